//! The audit log: who changed what, as far as the visitor may know it.

use std::collections::BTreeSet;
use std::sync::Arc;

use askama::Template;
use http::StatusCode;
use posthorn_domain::{AuditAction, TenantId, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Answer;
use super::event_types;
use super::show::{Listed, Moment, Pager, Time, moments};
use super::typed::{self, Wrong};
use crate::frame::{Frame, Place, home};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page};

/// What the filter has fields for.
const FILTER: [&str; 8] =
    ["actor", "action", "object", "tenant", "realm", "from", "until", "order"];

#[derive(Deserialize)]
struct Actor {
    kind: String,
    id: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Object {
    kind: String,
    id: String,
    name: Option<String>,
}

/// A line as the API gives it.
#[derive(Deserialize)]
struct AuditRow {
    at: Timestamp,
    actor: Actor,
    surface: String,
    address: Option<String>,
    action: String,
    tenant: Option<TenantId>,
    realm: Option<String>,
    object: Object,
    #[serde(default)]
    detail: Map<String, Value>,
}

/// A text that leads somewhere, if it does.
struct Linked {
    text: String,
    href: Option<String>,
}

struct Line {
    at: Time,
    who: Linked,
    who_id: Option<String>,
    from: String,
    action: String,
    action_href: String,
    object: Linked,
    object_id: Option<String>,
    tenant: Option<Linked>,
    detail: String,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage<'p> {
    frame: Frame,
    visit: &'p Visit,
    lines: Vec<Line>,
    pager: Pager,
    actions: Vec<&'static str>,
    /// Whether the visitor sees more than one tenant.
    wide: bool,
    range: [Moment; 2],
    wrong: Option<Wrong>,
}

impl AuditPage<'_> {
    fn typed(&self, name: &str) -> &str {
        self.visit.query.typed(name)
    }

    fn is_wrong(&self, name: &str) -> bool {
        self.wrong.as_ref().is_some_and(|(field, _)| field == name)
    }
}

/// `GET /console/audit`.
pub(crate) async fn list(visit: Arc<Visit>) -> Answer {
    let query = moments(&visit.query);
    let wanted = query.query(&[&FILTER[..], &["cursor"]].concat(), &[]);
    let answer: Result<Listed<AuditRow>, Trouble> = visit.get(&format!("/v1/audit?{wanted}")).await;
    let (list, wrong) = typed::filtered(answer)?;
    let now = visit.now();
    let nouns: BTreeSet<&str> = AuditAction::ALL.iter().map(|action| action.noun()).collect();
    let mut actions: Vec<&str> = nouns.into_iter().collect();
    actions.extend(AuditAction::ALL.iter().map(|action| action.as_str()));
    let status = if wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let html = AuditPage {
        frame: Frame::new(&visit, Place::Audit, "Audit").await,
        lines: list.items.iter().map(|row| line(&visit, row, now)).collect(),
        pager: Pager::of(&list, &query, &FILTER, now),
        range: Moment::range(&visit.query, wrong.as_ref()),
        actions,
        wide: visit.is_everywhere() || visit.realm().is_some(),
        visit: &visit,
        wrong,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// The same list, only of one thing.
fn only(name: &str, value: &str) -> String {
    format!("/console/audit?{name}={}", typed::part(value))
}

fn line(visit: &Visit, row: &AuditRow, now: Timestamp) -> Line {
    let Actor { kind, id, name } = &row.actor;
    let called = name.as_deref().filter(|name| !name.is_empty());
    let who = match (called, id) {
        (Some(name), _) => format!("{} {}", kind.replace('_', " "), text::line(name, 80)),
        (None, Some(_)) => kind.replace('_', " "),
        (None, None) if kind == "server" => "the server itself".to_owned(),
        (None, None) => format!("somebody of the {}", kind.replace('_', " ")),
    };
    let from = match &row.address {
        Some(address) => format!("{}, {}", text::line(&row.surface, 40), text::line(address, 60)),
        None => text::line(&row.surface, 40),
    };
    let object_name = row.object.name.as_deref().filter(|name| *name != row.object.id);
    let shown = object_name.unwrap_or(&row.object.id);
    let object = Linked {
        text: format!("{} {}", row.object.kind.replace('_', " "), text::line(shown, 80)),
        href: Some(object_page(visit, row).unwrap_or_else(|| only("object", &row.object.id))),
    };
    Line {
        at: Time::new(row.at, now),
        who: Linked { text: who, href: id.as_deref().map(|id| only("actor", id)) },
        who_id: id.as_deref().map(|id| text::line(id, 80)),
        from,
        action: text::line(&row.action, 60),
        action_href: only("action", &row.action),
        object,
        object_id: object_name.map(|_| text::line(&row.object.id, 80)),
        tenant: row.tenant.map(|id| tenant(visit, id)),
        detail: detail(&row.detail),
    }
}

fn tenant(visit: &Visit, id: TenantId) -> Linked {
    let known = visit.engine().catalog().tenant_or_tombstone(id);
    let name = known.map_or_else(|| id.to_string(), |(tenant, _)| tenant.name);
    let href = match visit.is_operator() {
        true => Some(format!("/console/tenants/{id}")),
        false => visit.find_tenant(&id.to_string()).map(|tenant| home(&tenant)),
    };
    Linked { text: text::line(&name, 80), href }
}

/// The page of what was changed, where there is one.
fn object_page(visit: &Visit, row: &AuditRow) -> Option<String> {
    let id = &row.object.id;
    let of_tenant = |place: &str| {
        let tenant = visit.find_tenant(&row.tenant?.to_string())?;
        Some(format!("{}/{place}/{}", home(&tenant), typed::part(id)))
    };
    match row.object.kind.as_str() {
        "tenant" if visit.is_operator() => Some(format!("/console/tenants/{}", typed::part(id))),
        "realm" if visit.is_operator() && !row.action.ends_with(".deleted") => {
            Some(format!("/console/realms/{}", typed::part(id)))
        }
        "event_type" if !row.action.ends_with(".deleted") => {
            Some(event_types::path(row.realm.as_deref()?, id))
        }
        "certificate" if !row.action.ends_with(".deleted") => of_tenant("certificates"),
        "delivery" if row.action != AuditAction::DeliveryForgotten.as_str() => {
            of_tenant("deliveries")
        }
        "event" => of_tenant("events"),
        _ => None,
    }
}

/// What else is to be said, in a few words.
fn detail(detail: &Map<String, Value>) -> String {
    let said = detail.iter().map(|(name, value)| {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Array(parts) if parts.iter().all(Value::is_string) => {
                let parts: Vec<&str> = parts.iter().filter_map(Value::as_str).collect();
                parts.join(", ")
            }
            other => other.to_string(),
        };
        format!("{}: {value}", name.replace('_', " "))
    });
    text::line(&said.collect::<Vec<_>>().join("; "), 300)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_said_in_words() {
        let Value::Object(given) = serde_json::json!({
            "fields": ["filter", "url"], "left_out": true, "from": "a\u{202e}b",
        }) else {
            unreachable!("it is an object")
        };
        assert_eq!(detail(&given), "fields: filter, url; from: a\\u{202e}b; left out: true");
        assert_eq!(detail(&Map::new()), "");
    }
}
