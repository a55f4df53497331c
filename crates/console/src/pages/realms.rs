//! Realms: groups of tenants that share event types, keys and defaults.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::Timestamp;
use posthorn_engine::TenantFilter;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Answer;
use super::show::{Listed, Pager, Time};
use super::typed::{self, Typed, Wrong};
use crate::form::Fields;
use crate::frame::{Frame, Place};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};

const FIELDS: &[&str] = &["name", "description", "profile", "deliveries_per_second", "validation"];
/// What is checked of events, with what it means.
const VALIDATIONS: [(&str, &str); 3] = [
    ("off", "nothing"),
    ("known", "that the type is in the catalogue and not archived"),
    ("schema", "the same, and that the payload fits a schema of the type"),
];

#[derive(Deserialize)]
struct Defaults {
    profile: Option<String>,
    deliveries_per_second: Option<u32>,
}

/// A realm as the API gives it.
#[derive(Deserialize)]
struct RealmRow {
    name: String,
    description: String,
    defaults: Defaults,
    validation: String,
    created_at: Timestamp,
    updated_at: Timestamp,
}

struct Line {
    name: String,
    href: String,
    description: String,
    checks: &'static str,
    profile: Option<String>,
    rate: Option<u32>,
    made: Time,
}

#[derive(Template)]
#[template(path = "realms.html")]
struct RealmsPage {
    frame: Frame,
    lines: Vec<Line>,
    next: Option<String>,
    form: Typed,
    validations: &'static [(&'static str, &'static str)],
}

fn checks(validation: &str) -> &'static str {
    let found = VALIDATIONS.iter().find(|(name, _)| *name == validation);
    found.map_or("something else", |(_, meaning)| meaning)
}

/// `GET /console/realms`.
pub(crate) async fn list(visit: Arc<Visit>) -> Answer {
    show_all(&visit, Fields::default(), None).await
}

async fn show_all(visit: &Visit, typed: Fields, wrong: Option<Wrong>) -> Answer {
    let wanted = visit.query.query(&["cursor"], &[("limit", "50")]);
    let list: Listed<RealmRow> = visit.get(&format!("/v1/realms?{wanted}")).await?;
    let now = visit.now();
    let form = Typed::new(FIELDS, typed).wrong(wrong);
    let status = form.status();
    let lines = list.items.iter().map(|row| Line {
        name: text::line(&row.name, 128),
        href: format!("/console/realms/{}", typed::part(&row.name)),
        description: text::line(&row.description, 200),
        checks: checks(&row.validation),
        profile: row.defaults.profile.as_deref().map(|name| text::line(name, 64)),
        rate: row.defaults.deliveries_per_second,
        made: Time::new(row.created_at, now),
    });
    let html = RealmsPage {
        frame: Frame::new(visit, Place::Realms, "Realms").await,
        lines: lines.collect(),
        next: Pager::of(&list, &visit.query, &[], now).next,
        form,
        validations: &VALIDATIONS,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// `POST /console/realms`.
pub(crate) async fn create(visit: Arc<Visit>) -> Answer {
    let again = async |wrong| show_all(&visit, visit.form.clone(), Some(wrong)).await;
    let Some(name) = visit.form.get("name") else {
        return again(("name".to_owned(), "is missing".to_owned())).await;
    };
    let path = format!("/v1/realms/{}", typed::part(name));
    // Its form says "create"; what is there already is not to be changed by it.
    if visit.find::<Value>(&path).await?.is_some() {
        return again(("name".to_owned(), "there is such a realm already".to_owned())).await;
    }
    match put(&visit, &path).await? {
        None => Ok(see("/console/realms?done=created")),
        Some(wrong) => again(wrong).await,
    }
}

async fn put(visit: &Visit, path: &str) -> Result<Option<Wrong>, Trouble> {
    let body = match body(&visit.form) {
        Ok(body) => body,
        Err(wrong) => return Ok(Some(wrong)),
    };
    match visit.send::<Value>(Method::PUT, path, Some(&body)).await {
        Ok(_) => Ok(None),
        Err(trouble) => {
            // What is wrong within the defaults stands beside the field that was typed in.
            let (field, text) = typed::refused(trouble)?;
            let inner = FIELDS.iter().find(|name| text.starts_with(&format!("{name}: ")));
            Ok(Some(match (field.as_str(), inner) {
                ("defaults", Some(inner)) => {
                    ((*inner).to_owned(), text[inner.len() + 2..].to_owned())
                }
                _ => (field, text),
            }))
        }
    }
}

fn body(form: &Fields) -> Result<Value, Wrong> {
    let mut defaults = Map::new();
    if let Some(profile) = form.get("profile") {
        defaults.insert("profile".to_owned(), Value::from(profile));
    }
    let rate = typed::number(form, "deliveries_per_second")?;
    if !rate.is_null() {
        defaults.insert("deliveries_per_second".to_owned(), rate);
    }
    Ok(json!({
        "description": form.get("description").unwrap_or_default(),
        "defaults": defaults,
        "validation": form.get("validation").unwrap_or("off"),
    }))
}

#[derive(Template)]
#[template(path = "realm.html")]
struct RealmPage {
    frame: Frame,
    path: String,
    name: String,
    query: String,
    made: Time,
    changed: Time,
    form: Typed,
    validations: &'static [(&'static str, &'static str)],
    /// Whether it has tenants, or is the one that is always there.
    stays: Option<&'static str>,
}

fn named(visit: &Visit) -> Result<String, Trouble> {
    visit.named.first().cloned().ok_or(Trouble::NotFound("realm"))
}

/// `GET /console/realms/{name}`.
pub(crate) async fn one(visit: Arc<Visit>) -> Answer {
    show(&visit, None, None).await
}

async fn show(visit: &Visit, wrong: Option<Wrong>, said: Option<String>) -> Answer {
    let name = named(visit)?;
    let part = typed::part(&name);
    let row: RealmRow = visit.get(&format!("/v1/realms/{part}")).await?;
    let now = visit.now();
    let typed = if wrong.is_some() { visit.form.clone() } else { as_typed(&row) };
    let form = Typed::new(FIELDS, typed).wrong(wrong);
    let status = if said.is_some() { StatusCode::CONFLICT } else { form.status() };
    let frame = Frame::new(visit, Place::Realms, text::line(&row.name, 128)).await;
    let frame = frame.below("/console/realms", "Realms");
    let html = RealmPage {
        frame: match said {
            Some(said) => frame.wrong(said),
            None => frame,
        },
        path: format!("/console/realms/{part}"),
        query: part,
        stays: stays(visit, &row.name),
        name: text::line(&row.name, 128),
        made: Time::new(row.created_at, now),
        changed: Time::new(row.updated_at, now),
        form,
        validations: &VALIDATIONS,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// Why a realm cannot be deleted, as far as that is known beforehand.
fn stays(visit: &Visit, name: &str) -> Option<&'static str> {
    let realm: posthorn_domain::RealmName = name.parse().ok()?;
    if realm.is_default() {
        return Some("This realm is always there: tenants that name none are in it.");
    }
    let filter = TenantFilter { realm: Some(realm), ..TenantFilter::default() };
    let (some, _) = visit.engine().catalog().tenants_page(&filter, None, 1);
    (!some.is_empty()).then_some("It has tenants. Only an empty realm can be deleted.")
}

fn as_typed(row: &RealmRow) -> Fields {
    let rate = row.defaults.deliveries_per_second;
    Fields::of([
        ("description", row.description.clone()),
        ("profile", row.defaults.profile.clone().unwrap_or_default()),
        ("deliveries_per_second", rate.map(|rate| rate.to_string()).unwrap_or_default()),
        ("validation", row.validation.clone()),
    ])
}

/// `POST /console/realms/{name}`.
pub(crate) async fn change(visit: Arc<Visit>) -> Answer {
    let part = typed::part(&named(&visit)?);
    // One that is gone is not made again by a form that is still open.
    let path = format!("/v1/realms/{part}");
    visit.get::<Value>(&path).await?;
    match put(&visit, &path).await? {
        None => Ok(see(&format!("/console/realms/{part}?done=changed"))),
        Some(wrong) => show(&visit, Some(wrong), None).await,
    }
}

/// `POST /console/realms/{name}/delete`.
pub(crate) async fn delete(visit: Arc<Visit>) -> Answer {
    let part = typed::part(&named(&visit)?);
    match visit.send_bytes(Method::DELETE, &format!("/v1/realms/{part}"), None).await {
        Ok(_) => Ok(see("/console/realms?done=deleted")),
        Err(trouble) => show(&visit, None, Some(typed::refused(trouble)?.1)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_becomes_a_realm() {
        let form =
            Fields::parse(b"description=x&profile=&deliveries_per_second=7&validation=known");
        let wanted = json!({
            "description": "x", "defaults": {"deliveries_per_second": 7}, "validation": "known",
        });
        assert_eq!(body(&form), Ok(wanted));
    }
}
