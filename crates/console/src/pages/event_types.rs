//! Event types: the catalogue of a realm, and one of its entries.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::{Home, Scope, Span, SubscriptionStatus, Tenant, Timestamp};
use posthorn_engine::SubscriptionView;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Answer;
use super::show::{Listed, Named, Pager, Shown, Time};
use super::sure::{self, Question};
use super::tenants::realm_names;
use super::typed::{self, Wrong};
use crate::frame::{Frame, Place, home};
use crate::text::{self, Body};
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};
use crate::words;

/// What the filter has fields for.
const FILTER: [&str; 4] = ["realm", "group", "prefix", "archived"];

/// An event type as the API gives it.
#[derive(Deserialize)]
pub(crate) struct TypeRow {
    pub(crate) name: String,
    pub(crate) realm: String,
    pub(crate) description: String,
    pub(crate) group: Option<String>,
    pub(crate) schemas: Map<String, Value>,
    pub(crate) examples: Vec<Value>,
    pub(crate) archived: bool,
    pub(crate) deprecated: bool,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

impl TypeRow {
    pub(crate) fn shown(&self) -> Shown {
        match (self.archived, self.deprecated) {
            (true, _) => Shown::new("off", "archived"),
            (false, true) => Shown::new("wait", "deprecated"),
            (false, false) => Shown::new("good", "in use"),
        }
    }

    /// The same as a request that puts it.
    fn body(&self) -> Value {
        json!({
            "description": self.description,
            "group": self.group,
            "schemas": self.schemas,
            "examples": self.examples,
            "archived": self.archived,
            "deprecated": self.deprecated,
        })
    }
}

/// Whether the visitor may change what all tenants of a realm share.
pub(crate) fn changes(visit: &Visit) -> bool {
    visit.allows(Scope::Manage) && !matches!(visit.session.home, Home::Tenant(_))
}

/// The realms to choose from: an operator has all of them, others are told theirs.
pub(crate) fn realms(visit: &Visit) -> Vec<String> {
    if visit.is_everywhere() { realm_names(visit) } else { Vec::new() }
}

/// The pages of an event type.
pub(crate) fn path(realm: &str, name: &str) -> String {
    format!("/console/event-types/{}/{}", typed::part(realm), typed::part(name))
}

/// Where the API has it.
pub(crate) fn api_path(realm: &str, name: &str) -> String {
    format!("/v1/event-types/{}?realm={}", typed::part(name), typed::part(realm))
}

struct Line {
    name: String,
    href: String,
    description: String,
    group: Option<(String, String)>,
    versions: usize,
    examples: usize,
    shown: Shown,
    changed: Time,
}

#[derive(Template)]
#[template(path = "event_types.html")]
struct TypesPage<'p> {
    frame: Frame,
    visit: &'p Visit,
    lines: Vec<Line>,
    next: Option<String>,
    realms: Vec<String>,
    /// The realm of new ones, as a query.
    new_query: String,
    changes: bool,
    wrong: Option<Wrong>,
}

impl TypesPage<'_> {
    fn typed(&self, name: &str) -> &str {
        self.visit.query.typed(name)
    }

    fn is_wrong(&self, name: &str) -> bool {
        self.wrong.as_ref().is_some_and(|(field, _)| field == name)
    }
}

/// `GET /console/event-types`.
pub(crate) async fn list(visit: Arc<Visit>) -> Answer {
    let wanted = visit.query.query(&[&FILTER[..], &["cursor"]].concat(), &[("limit", "50")]);
    let answer: Result<Listed<TypeRow>, Trouble> =
        visit.get(&format!("/v1/event-types?{wanted}")).await;
    let (list, wrong) = typed::filtered(answer)?;
    let now = visit.now();
    let of_group = |group: &str| {
        let query = visit.query.query(&["realm", "archived"], &[("group", group)]);
        (text::line(group, 60), format!("?{query}"))
    };
    let lines = list.items.iter().map(|row| Line {
        name: text::line(&row.name, 128),
        href: path(&row.realm, &row.name),
        description: text::line(&row.description, 160),
        group: row.group.as_deref().map(of_group),
        versions: row.schemas.len(),
        examples: row.examples.len(),
        shown: row.shown(),
        changed: Time::new(row.updated_at, now),
    });
    let status = if wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let html = TypesPage {
        frame: Frame::new(&visit, Place::EventTypes, "Event types").await,
        lines: lines.collect(),
        next: Pager::of(&list, &visit.query, &FILTER, now).next,
        realms: realms(&visit),
        new_query: visit.query.query(&["realm"], &[]),
        changes: changes(&visit),
        visit: &visit,
        wrong,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

#[derive(Template)]
#[template(path = "event_type.html")]
struct TypePage {
    frame: Frame,
    path: String,
    realm: String,
    realm_href: Option<String>,
    group: Option<String>,
    description: String,
    shown: Shown,
    archived: bool,
    deprecated: bool,
    made: Time,
    changed: Time,
    schemas: Vec<(String, Body)>,
    examples: Vec<Body>,
    events_href: Option<String>,
    /// What came of it lately, and who wants it, of the tenant that one looks at.
    traffic: Option<Traffic>,
    changes: bool,
}

/// Events of a type, and who gets them.
struct Traffic {
    base: String,
    /// How many came in the last day.
    day: String,
    latest: Vec<(String, String, Time)>,
    subscribers: Vec<(Named, Shown)>,
    more: usize,
}

/// Events of the last day that are counted one by one.
const COUNTED_MAX: usize = 200;
/// Of them, those that are shown.
const LATEST: usize = 10;
/// Subscribers that are shown.
const SUBSCRIBERS_MAX: usize = 100;

async fn traffic(visit: &Visit, tenant: &Tenant, name: &str) -> Result<Traffic, Trouble> {
    #[derive(Deserialize)]
    struct Event {
        id: String,
        topic: String,
        accepted_at: Timestamp,
    }
    let now = visit.now();
    let base = home(tenant);
    let path = format!("/v1/events?type={}&limit={COUNTED_MAX}", typed::part(name));
    let list: Listed<Event> = visit.get_of(tenant, &path).await?;
    let day = now.minus(Span::from_secs(24 * 3_600));
    let count = list.items.iter().filter(|event| event.accepted_at >= day).count();
    let whole = count < COUNTED_MAX && list.scanned_until.is_none_or(|until| until < day);
    let latest = list.items.iter().take(LATEST).map(|event| {
        let at = Time::new(event.accepted_at, now);
        (event.id.clone(), text::line(&event.topic, 80), at)
    });
    let all = visit.engine().catalog().subscriptions(tenant.id);
    let wants = |view: &SubscriptionView| {
        let groups = &view.subscription.filter.any_of;
        // No group at all is everything, as is a group that names no type.
        groups.is_empty()
            || groups.iter().any(|group| {
                group.types.is_empty() || group.types.iter().any(|glob| glob.matches(name))
            })
    };
    let found: Vec<_> = all.iter().filter(|view| wants(view)).collect();
    let subscribers = found.iter().take(SUBSCRIBERS_MAX).map(|view| {
        let status = match view.subscription.status {
            SubscriptionStatus::Active => "active",
            SubscriptionStatus::Paused => "paused",
            SubscriptionStatus::Disabled { .. } => "disabled",
        };
        let to = Named::find(visit.engine(), tenant.id, view.subscription.id);
        (to, Shown::subscription(status, false))
    });
    Ok(Traffic {
        day: match whole {
            true => words::number(count as u64),
            false => format!("{} or more", words::number(count as u64)),
        },
        latest: latest.collect(),
        subscribers: subscribers.collect(),
        more: found.len().saturating_sub(SUBSCRIBERS_MAX),
        base,
    })
}

/// What the path names: a realm and a type.
pub(crate) fn named(visit: &Visit) -> Result<(&str, &str), Trouble> {
    match &visit.named[..] {
        [realm, name] => Ok((realm, name)),
        _ => Err(Trouble::NotFound("event type")),
    }
}

pub(crate) async fn find(visit: &Visit) -> Result<TypeRow, Trouble> {
    let (realm, name) = named(visit)?;
    visit.get(&api_path(realm, name)).await
}

fn pretty(value: &Value) -> Body {
    Body::of(value.to_string().as_bytes())
}

/// `GET /console/event-types/{realm}/{name}`.
pub(crate) async fn one(visit: Arc<Visit>) -> Answer {
    let row = find(&visit).await?;
    let now = visit.now();
    // The newest version is the one that publishers want to see.
    let mut versions: Vec<(&String, &Value)> = row.schemas.iter().collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(version.parse::<u32>().unwrap_or(0)));
    let events = |tenant| format!("{}/events?type={}", home(&tenant), typed::part(&row.name));
    let usual = visit.usual_tenant().filter(|tenant| tenant.realm.as_str() == row.realm);
    let traffic = match &usual {
        Some(tenant) => Some(traffic(&visit, tenant, &row.name).await?),
        None => None,
    };
    let html = TypePage {
        frame: Frame::new(&visit, Place::EventTypes, text::line(&row.name, 128)).await.below(
            format!("/console/event-types?realm={}", typed::part(&row.realm)),
            "Event types",
        ),
        path: path(&row.realm, &row.name),
        realm: text::line(&row.realm, 128),
        realm_href: visit
            .is_operator()
            .then(|| format!("/console/realms/{}", typed::part(&row.realm))),
        group: row.group.as_deref().map(|group| text::line(group, 128)),
        description: text::visible(&row.description),
        shown: row.shown(),
        archived: row.archived,
        deprecated: row.deprecated,
        made: Time::new(row.created_at, now),
        changed: Time::new(row.updated_at, now),
        schemas: versions
            .into_iter()
            .map(|(version, schema)| (text::line(version, 20), pretty(schema)))
            .collect(),
        examples: row.examples.iter().map(pretty).collect(),
        events_href: usual.map(events),
        traffic,
        changes: changes(&visit),
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

/// `POST /console/event-types/{realm}/{name}/mark`: archives or deprecates it, or takes that back.
pub(crate) async fn mark(visit: Arc<Visit>) -> Answer {
    let row = find(&visit).await?;
    let mut body = row.body();
    for name in ["archived", "deprecated"] {
        if let Some(value) = visit.form.get(name) {
            body[name] = Value::from(value == "true");
        }
    }
    let place = api_path(&row.realm, &row.name);
    visit.send::<Value>(Method::PUT, &place, Some(&body)).await?;
    Ok(see(&format!("{}?done=changed", path(&row.realm, &row.name))))
}

/// `POST /console/event-types/{realm}/{name}/delete`.
pub(crate) async fn delete(visit: Arc<Visit>) -> Answer {
    let (realm, name) = named(&visit)?;
    let question = Question {
        place: Place::EventTypes,
        title: "Delete this event type?",
        text: "It goes for good, with its schemas and examples. Events of this type stay.",
        button: "Delete for good",
        back: path(realm, name),
    };
    if let Some(asked) = sure::ask(&visit, question).await {
        return asked;
    }
    visit.send_bytes(Method::DELETE, &api_path(realm, name), None).await?;
    Ok(see(&format!("/console/event-types?realm={}&done=deleted", typed::part(realm))))
}
