//! One tenant: what it is, what it has, its keys, how it is changed and deleted.

use std::sync::Arc;

use askama::Template;
use http::Method;
use posthorn_domain::{RollupCounts, RollupScope, TenantId, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Answer;
use super::keys::{self, KeyLine};
use super::overview::Range;
use super::show::{Shown, Time};
use super::tenant_portal::{self, CAPABILITIES, Guest};
use super::tenants::{FIELDS, TenantRow};
use super::typed::{self, Typed, Wrong};
use crate::form::Fields;
use crate::frame::{Frame, Place, home};
use crate::text;
use crate::trouble::{Refusal, Trouble};
use crate::visit::{Visit, page, see};
use crate::words;

/// Keys of one tenant that are shown.
const KEYS_MAX: usize = 100;
const CONFIRM: &[&str] = &["confirm"];

/// The job that deletes it.
#[derive(Deserialize)]
struct Job {
    state: String,
    seen: u64,
    done: u64,
    created_at: Timestamp,
    finished_at: Option<Timestamp>,
    problem: Option<String>,
}

/// How far a deletion is.
struct Deletion {
    shown: Shown,
    seen: String,
    done: String,
    since: Time,
    ended: Option<Time>,
    problem: Option<String>,
}

impl Deletion {
    fn new(job: &Job, now: Timestamp) -> Self {
        let (class, word) = match job.state.as_str() {
            "running" => ("wait", "being deleted"),
            "done" => ("off", "deleted"),
            "failed" => ("bad", "cannot go on"),
            _ => ("off", "stopped"),
        };
        Self {
            shown: Shown::new(class, word),
            seen: words::number(job.seen),
            done: words::number(job.done),
            since: Time::new(job.created_at, now),
            ended: job.finished_at.map(|at| Time::new(at, now)),
            problem: job.problem.as_deref().map(text::visible),
        }
    }
}

/// What there is of a tenant that is not gone.
struct Whole {
    realm: String,
    realm_href: String,
    external_id: Option<String>,
    made: Time,
    home: Option<String>,
    metadata: Vec<(String, String)>,
    counts: Vec<(&'static str, String)>,
    /// What happened in the range.
    lately: Vec<(&'static str, String)>,
    ranges: Vec<(&'static str, &'static str, bool)>,
    keys: Vec<KeyLine>,
    more_keys: bool,
    /// Who is in its portal, or has a link into it.
    guests: Vec<Guest>,
    more_guests: bool,
}

#[derive(Template)]
#[template(path = "tenant.html")]
struct TenantPage {
    frame: Frame,
    id: String,
    name: String,
    whole: Option<Whole>,
    form: Typed,
    confirm: Typed,
    link: Typed,
    deletion: Option<Deletion>,
}

/// What was refused.
#[derive(Default)]
pub(crate) struct Refused {
    pub(crate) change: Option<Wrong>,
    pub(crate) delete: Option<Wrong>,
    pub(crate) link: Option<Wrong>,
}

pub(crate) fn named(visit: &Visit) -> Result<TenantId, Trouble> {
    let id = visit.named.first().and_then(|text| text.parse().ok());
    id.ok_or(Trouble::NotFound("tenant"))
}

/// `GET /console/tenants/{id}`.
pub(crate) async fn one(visit: Arc<Visit>) -> Answer {
    show(&visit, Refused::default()).await
}

pub(crate) async fn show(visit: &Visit, refused: Refused) -> Answer {
    let id = named(visit)?;
    let row = match visit.get::<TenantRow>(&format!("/v1/tenants/{id}")).await {
        Ok(row) => Some(row),
        Err(Trouble::Refused(Refusal { status: 410, .. })) => None,
        Err(trouble) => return Err(trouble),
    };
    let now = visit.now();
    let mut deletion = None;
    if row.as_ref().is_none_or(|row| row.deleting_since.is_some()) {
        let job: Option<Job> = visit.find(&format!("/v1/tenants/{id}/deletion")).await?;
        deletion = job.map(|job| Deletion::new(&job, now));
    }
    let tombstone = visit.engine().catalog().tenant_or_tombstone(id);
    let name = tombstone.map_or_else(|| id.to_string(), |(tenant, _)| tenant.name);
    let whole = match &row {
        Some(row) => Some(whole(visit, row, now).await?),
        None => None,
    };
    let shown = match (&refused.change, &row) {
        (Some(_), _) => visit.form.clone(),
        (None, Some(row)) => as_typed(row),
        (None, None) => Fields::default(),
    };
    let form = Typed::new(FIELDS, shown).wrong(refused.change);
    let confirmed = if refused.delete.is_some() { visit.form.clone() } else { Fields::default() };
    let confirm = Typed::new(CONFIRM, confirmed).wrong(refused.delete);
    let linked = if refused.link.is_some() { visit.form.clone() } else { tenant_portal::usual() };
    let link = Typed::new(tenant_portal::FIELDS, linked).wrong(refused.link);
    let status = form.status().max(confirm.status()).max(link.status());
    let html = TenantPage {
        frame: Frame::new(visit, Place::Tenants, text::line(&name, 128))
            .await
            .below("/console/tenants", "Tenants"),
        id: id.to_string(),
        name: text::line(&name, 128),
        whole,
        form,
        confirm,
        link,
        deletion,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

async fn whole(visit: &Visit, row: &TenantRow, now: Timestamp) -> Result<Whole, Trouble> {
    let counts = visit.engine().store().counts(Some(row.id)).await;
    let counts = counts.map_err(|_| Trouble::Away)?;
    let (catalog, options) = (visit.engine().catalog(), visit.engine().options());
    let subscriptions = catalog.subscriptions(row.id).len() as u64;
    let topics = catalog.topics(row.id).len() as u64;
    let used = visit.engine().keys_used().await?;
    let own = catalog.keys().into_iter().filter(|key| key.tenant == Some(row.id));
    let mut keys: Vec<KeyLine> = own
        .take(KEYS_MAX + 1)
        .map(|key| keys::line(visit, &keys::KeyRow::of(&key, used.get(&key.id).copied()), now))
        .collect();
    let more_keys = keys.len() > KEYS_MAX;
    keys.truncate(KEYS_MAX);
    let open = catalog.tenant(row.id).ok();
    let (guests, more_guests) = tenant_portal::guests(visit, row.id, now).await?;
    let range = Range::of(visit);
    let from = Timestamp::from_millis(now.as_millis() - range.millis);
    let scope = RollupScope::Tenant(row.id);
    let mut lately = RollupCounts::default();
    for (_, step) in visit.engine().series(scope, range.step, from, now).await? {
        lately.add(&step);
    }
    let failed: u64 = lately.failed.iter().sum();
    let metadata = row.metadata.iter().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (text::line(name, 100), text::line(&value, 300))
    });
    Ok(Whole {
        realm: text::line(&row.realm, 128),
        realm_href: format!("/console/realms/{}", typed::part(&row.realm)),
        external_id: row.external_id.as_deref().map(text::visible),
        made: Time::new(row.created_at, now),
        home: open.as_ref().map(home),
        metadata: metadata.collect(),
        counts: vec![
            ("Events", words::number(counts.events)),
            ("Waiting", of(counts.pending, options.admission.pending_per_tenant)),
            ("Delivered", words::number(counts.delivered)),
            ("Dead letters", words::number(counts.dead)),
            ("Cancelled", words::number(counts.cancelled)),
            ("Subscriptions", of(subscriptions, options.quotas.subscriptions as u64)),
            ("Topics", of(topics, options.quotas.topics as u64)),
        ],
        lately: vec![
            ("Published", words::number(lately.published)),
            ("Delivered", words::number(lately.delivered)),
            ("Failed attempts", words::number(failed)),
            ("New dead letters", words::number(lately.dead)),
        ],
        ranges: range.switch(),
        keys,
        more_keys,
        guests,
        more_guests,
    })
}

/// A count beside its quota, where there is one.
fn of(count: u64, quota: u64) -> String {
    match quota {
        0 => words::number(count),
        quota => format!("{} of {}", words::number(count), words::number(quota)),
    }
}

/// A tenant as its form has it.
fn as_typed(row: &TenantRow) -> Fields {
    let metadata = match row.metadata.is_empty() {
        true => String::new(),
        false => serde_json::to_string_pretty(&row.metadata).unwrap_or_default(),
    };
    let rate = row.deliveries_per_second.map(|rate| rate.to_string()).unwrap_or_default();
    Fields::of([
        ("name", row.name.clone()),
        ("external_id", row.external_id.clone().unwrap_or_default()),
        ("metadata", metadata),
        ("deliveries_per_second", rate),
    ])
}

fn change_body(form: &Fields) -> Result<Value, Wrong> {
    Ok(json!({
        "name": form.get("name").unwrap_or_default(),
        "external_id": form.get("external_id"),
        "metadata": typed::json(form, "metadata", json!({}))?,
        "deliveries_per_second": typed::number(form, "deliveries_per_second")?,
    }))
}

/// `POST /console/tenants/{id}`.
pub(crate) async fn change(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let again =
        async |wrong| show(&visit, Refused { change: Some(wrong), ..Refused::default() }).await;
    let body = match change_body(&visit.form) {
        Ok(body) => body,
        Err(wrong) => return again(wrong).await,
    };
    match visit.send::<Value>(Method::PATCH, &format!("/v1/tenants/{id}"), Some(&body)).await {
        Ok(_) => Ok(see(&format!("/console/tenants/{id}?done=changed"))),
        Err(trouble) => again(typed::refused(trouble)?).await,
    }
}

/// `POST /console/tenants/{id}/delete`.
pub(crate) async fn delete(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let again = async |text: String| {
        let delete = Some(("confirm".to_owned(), text));
        show(&visit, Refused { delete, ..Refused::default() }).await
    };
    let row: TenantRow = visit.get(&format!("/v1/tenants/{id}")).await?;
    if visit.form.get("confirm") != Some(row.name.as_str()) {
        return again("is not the name of this tenant".to_owned()).await;
    }
    match visit.send::<Value>(Method::DELETE, &format!("/v1/tenants/{id}"), None).await {
        Ok(_) => Ok(see(&format!("/console/tenants/{id}?done=deleting"))),
        Err(trouble) => again(typed::refused(trouble)?.1).await,
    }
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn counts_stand_beside_their_quotas() {
        assert_eq!(of(1_200, 10_000), "1,200 of 10,000");
        assert_eq!(of(7, 0), "7");
    }
}
