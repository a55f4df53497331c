//! Tenants: the list with what waits and what is dead, and a new one.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::{RollupScope, TenantId, Timestamp};
use posthorn_store::RollupKind;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Answer;
use super::overview::Range;
use super::show::{Listed, Pager, Shown, Time};
use super::typed::{self, Typed, Wrong};
use crate::form::Fields;
use crate::frame::{Frame, Place};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};
use crate::words;

/// What the filter has fields for.
const FILTER: [&str; 3] = ["name_prefix", "realm", "external_id"];
/// Tenants on a page, which are counted together.
const LIMIT: &str = "50";
/// Fields of the form, as the API calls them.
pub(crate) const FIELDS: &[&str] =
    &["name", "realm", "external_id", "metadata", "deliveries_per_second"];

/// A tenant as the API gives it.
#[derive(Deserialize)]
pub(crate) struct TenantRow {
    pub(crate) id: TenantId,
    pub(crate) name: String,
    pub(crate) realm: String,
    pub(crate) external_id: Option<String>,
    #[serde(default)]
    pub(crate) metadata: serde_json::Map<String, Value>,
    pub(crate) deliveries_per_second: Option<u32>,
    pub(crate) created_at: Timestamp,
    pub(crate) deleting_since: Option<Timestamp>,
}

struct Line {
    id: String,
    name: String,
    /// Its own pages; one that is being deleted has none any more.
    home: Option<String>,
    realm: String,
    realm_href: String,
    external_id: Option<String>,
    waiting: String,
    /// The share of what it may have waiting.
    of_quota: Option<String>,
    near_quota: bool,
    dead: String,
    has_dead: bool,
    /// What it published in the range, and how many attempts failed, once that is counted.
    lately: Option<(String, String)>,
    has_failed: bool,
    made: Time,
    deleting: Option<Shown>,
}

#[derive(Template)]
#[template(path = "tenants.html")]
struct TenantsPage<'p> {
    frame: Frame,
    visit: &'p Visit,
    lines: Vec<Line>,
    next: Option<String>,
    realms: Vec<String>,
    ranges: Vec<(&'static str, &'static str, bool)>,
    wrong: Option<Wrong>,
}

impl TenantsPage<'_> {
    fn typed(&self, name: &str) -> &str {
        self.visit.query.typed(name)
    }

    fn is_wrong(&self, name: &str) -> bool {
        self.wrong.as_ref().is_some_and(|(field, _)| field == name)
    }
}

/// The names of all realms, for lists to choose from.
pub(crate) fn realm_names(visit: &Visit) -> Vec<String> {
    let realms = visit.engine().catalog().realms();
    realms.iter().take(200).map(|realm| realm.name.to_string()).collect()
}

/// `GET /console/tenants`.
pub(crate) async fn list(visit: Arc<Visit>) -> Answer {
    let wanted = visit.query.query(&[&FILTER[..], &["cursor"]].concat(), &[("limit", LIMIT)]);
    let answer: Result<Listed<TenantRow>, Trouble> =
        visit.get(&format!("/v1/tenants?{wanted}")).await;
    let (list, wrong) = typed::filtered(answer)?;
    let now = visit.now();
    let ids = list.items.iter().map(|row| row.id).collect();
    let counts = visit.engine().store().counts_by_tenant(ids).await;
    let counts = counts.map_err(|_| Trouble::Away)?;
    let range = Range::of(&visit);
    let sums = visit.console.figures.get(visit.engine(), RollupKind::Tenants, range).await;
    let quota = visit.engine().options().admission.pending_per_tenant;
    let mut lines = Vec::with_capacity(list.items.len());
    for (row, counts) in list.items.iter().zip(counts) {
        let lately = sums.as_ref().map(|sums| {
            let sum = sums.scopes.get(&RollupScope::Tenant(row.id));
            let sum = sum.map(|sum| sum.counts).unwrap_or_default();
            (sum.published, sum.failed.iter().sum::<u64>())
        });
        lines.push(Line {
            has_failed: lately.is_some_and(|(_, failed)| failed > 0),
            lately: lately
                .map(|(published, failed)| (words::number(published), words::number(failed))),
            id: row.id.to_string(),
            name: text::line(&row.name, 128),
            home: visit.find_tenant(&row.id.to_string()).map(|tenant| crate::frame::home(&tenant)),
            realm: text::line(&row.realm, 128),
            realm_href: format!("/console/realms/{}", typed::part(&row.realm)),
            external_id: row.external_id.as_deref().map(|id| text::line(id, 60)),
            waiting: words::number(counts.pending),
            of_quota: (quota > 0).then(|| words::percent(counts.pending, quota)),
            near_quota: quota > 0 && counts.pending >= quota - quota / 5,
            dead: words::number(counts.dead),
            has_dead: counts.dead > 0,
            made: Time::new(row.created_at, now),
            deleting: row.deleting_since.map(|_| Shown::new("off", "being deleted")),
        });
    }
    let status = if wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let html = TenantsPage {
        frame: Frame::new(&visit, Place::Tenants, "Tenants").await,
        next: Pager::of(&list, &visit.query, &[&FILTER[..], &["range"]].concat(), now).next,
        realms: realm_names(&visit),
        ranges: range.switch(),
        visit: &visit,
        lines,
        wrong,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

#[derive(Template)]
#[template(path = "tenant_new.html")]
struct NewPage {
    frame: Frame,
    form: Typed,
    realms: Vec<String>,
}

/// `GET /console/tenants/new`.
pub(crate) async fn new(visit: Arc<Visit>) -> Answer {
    form(&visit, visit.query.clone(), None).await
}

async fn form(visit: &Visit, typed: Fields, wrong: Option<Wrong>) -> Answer {
    let form = Typed::new(FIELDS, typed).wrong(wrong);
    let status = form.status();
    let html = NewPage {
        frame: Frame::new(visit, Place::Tenants, "New tenant")
            .await
            .below("/console/tenants", "Tenants"),
        realms: realm_names(visit),
        form,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// `POST /console/tenants/new`.
pub(crate) async fn create(visit: Arc<Visit>) -> Answer {
    let body = match new_body(&visit.form) {
        Ok(body) => body,
        Err(wrong) => return form(&visit, visit.form.clone(), Some(wrong)).await,
    };
    match visit.send::<TenantRow>(Method::POST, "/v1/tenants", Some(&body)).await {
        Ok(made) => Ok(see(&format!("/console/tenants/{}?done=created", made.id))),
        Err(trouble) => form(&visit, visit.form.clone(), Some(typed::refused(trouble)?)).await,
    }
}

fn new_body(form: &Fields) -> Result<Value, Wrong> {
    let mut body = json!({
        "name": form.get("name").unwrap_or_default(),
        "metadata": typed::json(form, "metadata", json!({}))?,
    });
    for name in ["realm", "external_id"] {
        if let Some(value) = form.get(name) {
            body[name] = Value::from(value);
        }
    }
    let rate = typed::number(form, "deliveries_per_second")?;
    if !rate.is_null() {
        body["deliveries_per_second"] = rate;
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_becomes_a_tenant() {
        let form =
            Fields::parse(b"name=acme&realm=&external_id=c-7&metadata=&deliveries_per_second=50");
        let wanted = json!({
            "name": "acme", "external_id": "c-7", "metadata": {}, "deliveries_per_second": 50,
        });
        assert_eq!(new_body(&form), Ok(wanted));
        let (field, _) = new_body(&Fields::parse(b"name=a&metadata=x")).unwrap_err();
        assert_eq!(field, "metadata");
    }
}
