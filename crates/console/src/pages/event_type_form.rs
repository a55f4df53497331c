//! Describing an event type by hand, and importing many from an OpenAPI document.

use std::sync::Arc;

use askama::Template;
use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Answer;
use super::event_types::{TypeRow, api_path, changes, find, named, path, realms};
use super::typed::{self, Typed, Wrong};
use crate::form::Fields;
use crate::frame::{Frame, Place};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};

const FIELDS: &[&str] =
    &["name", "realm", "description", "group", "schemas", "examples", "archived", "deprecated"];
const IMPORT_FIELDS: &[&str] = &["realm", "document"];

#[derive(Template)]
#[template(path = "event_type_form.html")]
struct FormPage {
    frame: Frame,
    action: String,
    /// Whether it is there already: then its name and realm stay.
    known: bool,
    form: Typed,
    realms: Vec<String>,
}

/// Somebody of one tenant cannot change what all of them share; the API says the same.
fn check(visit: &Visit) -> Result<(), Trouble> {
    let why =
        "event types are shared by all tenants of a realm, and changed with a key of the realm";
    if changes(visit) { Ok(()) } else { Err(Trouble::Forbidden(why)) }
}

/// `GET /console/event-types/new`.
pub(crate) async fn new(visit: Arc<Visit>) -> Answer {
    check(&visit)?;
    form(&visit, None, visit.query.clone(), None).await
}

/// `GET /console/event-types/{realm}/{name}/change`.
pub(crate) async fn show(visit: Arc<Visit>) -> Answer {
    check(&visit)?;
    let row = find(&visit).await?;
    let typed = as_typed(&row);
    form(&visit, Some((&row.realm, &row.name)), typed, None).await
}

async fn form(
    visit: &Visit,
    known: Option<(&str, &str)>,
    typed: Fields,
    wrong: Option<Wrong>,
) -> Answer {
    let form = Typed::new(FIELDS, typed).wrong(wrong);
    let status = form.status();
    let title = match known {
        Some((_, name)) => format!("Change {}", text::line(name, 128)),
        None => "New event type".to_owned(),
    };
    let frame = Frame::new(visit, Place::EventTypes, title).await;
    let frame = frame.below("/console/event-types", "Event types");
    let html = FormPage {
        frame: match known {
            Some((realm, name)) => frame.below(path(realm, name), text::line(name, 128)),
            None => frame,
        },
        action: match known {
            Some((realm, name)) => format!("{}/change", path(realm, name)),
            None => "/console/event-types/new".to_owned(),
        },
        known: known.is_some(),
        realms: realms(visit),
        form,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

fn as_typed(row: &TypeRow) -> Fields {
    let lines = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let schemas = if row.schemas.is_empty() { String::new() } else { lines(&json!(row.schemas)) };
    let examples =
        if row.examples.is_empty() { String::new() } else { lines(&json!(row.examples)) };
    let flag = |set: bool| if set { "true".to_owned() } else { String::new() };
    Fields::of([
        ("description", row.description.clone()),
        ("group", row.group.clone().unwrap_or_default()),
        ("schemas", schemas),
        ("examples", examples),
        ("archived", flag(row.archived)),
        ("deprecated", flag(row.deprecated)),
    ])
}

fn body(form: &Fields) -> Result<Value, Wrong> {
    Ok(json!({
        "description": form.get("description").unwrap_or_default(),
        "group": form.get("group"),
        "schemas": typed::json(form, "schemas", json!({}))?,
        "examples": typed::json(form, "examples", json!([]))?,
        "archived": form.is_checked("archived"),
        "deprecated": form.is_checked("deprecated"),
    }))
}

/// The realm of something new: what an operator chose, or the visitor's own.
fn realm_of(visit: &Visit) -> Result<String, Trouble> {
    let own = visit.realm().map(ToString::to_string);
    let chosen = visit.form.get("realm").map(str::to_owned);
    Ok(own.or(chosen).unwrap_or_else(|| posthorn_domain::RealmName::DEFAULT.to_owned()))
}

/// `POST /console/event-types/new`.
pub(crate) async fn create(visit: Arc<Visit>) -> Answer {
    check(&visit)?;
    let again = async |wrong| form(&visit, None, visit.form.clone(), Some(wrong)).await;
    let wrong = |text: &str| ("name".to_owned(), text.to_owned());
    let Some(name) = visit.form.get("name") else { return again(wrong("is missing")).await };
    let realm = realm_of(&visit)?;
    if visit.find::<Value>(&api_path(&realm, name)).await?.is_some() {
        return again(wrong("there is such an event type already")).await;
    }
    match put(&visit, &realm, name).await? {
        None => Ok(see(&format!("{}?done=created", path(&realm, name)))),
        Some(wrong) => again(wrong).await,
    }
}

/// `POST /console/event-types/{realm}/{name}/change`.
pub(crate) async fn change(visit: Arc<Visit>) -> Answer {
    check(&visit)?;
    let known = named(&visit)?;
    let (realm, name) = known;
    // One that is gone is not made again by a form that is still open.
    find(&visit).await?;
    match put(&visit, realm, name).await? {
        None => Ok(see(&format!("{}?done=changed", path(realm, name)))),
        Some(wrong) => form(&visit, Some(known), visit.form.clone(), Some(wrong)).await,
    }
}

async fn put(visit: &Visit, realm: &str, name: &str) -> Result<Option<Wrong>, Trouble> {
    let body = match body(&visit.form) {
        Ok(body) => body,
        Err(wrong) => return Ok(Some(wrong)),
    };
    match visit.send::<Value>(Method::PUT, &api_path(realm, name), Some(&body)).await {
        Ok(_) => Ok(None),
        Err(trouble) => typed::refused(trouble).map(Some),
    }
}

/// What an import does, or would do.
#[derive(Deserialize)]
struct Imported {
    created: Vec<String>,
    changed: Vec<String>,
    archived: Vec<String>,
    unchanged: Vec<String>,
}

/// What would happen to types of one kind.
struct Planned {
    word: &'static str,
    types: Vec<String>,
}

#[derive(Template)]
#[template(path = "event_types_import.html")]
struct ImportPage {
    frame: Frame,
    form: Typed,
    realms: Vec<String>,
    plan: Option<Vec<Planned>>,
}

/// `GET /console/event-types/import`.
pub(crate) async fn paste(visit: Arc<Visit>) -> Answer {
    check(&visit)?;
    import_form(&visit, visit.query.clone(), None, None).await
}

async fn import_form(
    visit: &Visit,
    typed: Fields,
    wrong: Option<Wrong>,
    plan: Option<Imported>,
) -> Answer {
    let form = Typed::new(IMPORT_FIELDS, typed).wrong(wrong);
    let status = form.status();
    let names = |names: Vec<String>| names.iter().map(|name| text::line(name, 128)).collect();
    let plan = plan.map(|plan| {
        vec![
            Planned { word: "New", types: names(plan.created) },
            Planned { word: "Changed", types: names(plan.changed) },
            Planned { word: "Archived", types: names(plan.archived) },
            Planned { word: "As before", types: names(plan.unchanged) },
        ]
    });
    let html = ImportPage {
        frame: Frame::new(visit, Place::EventTypes, "Import event types")
            .await
            .below("/console/event-types", "Event types"),
        realms: realms(visit),
        form,
        plan,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// `POST /console/event-types/import`. First a dry run, whose answer has the button that does it.
pub(crate) async fn import(visit: Arc<Visit>) -> Answer {
    check(&visit)?;
    let form = &visit.form;
    let for_real = form.get("step") == Some("import");
    let body = match import_body(form, !for_real) {
        Ok(body) => body,
        Err(wrong) => return import_form(&visit, form.clone(), Some(wrong), None).await,
    };
    let realm = realm_of(&visit)?;
    let path = format!("/v1/event-types/import?realm={}", typed::part(&realm));
    match visit.send_bytes(Method::POST, &path, Some(body)).await {
        Ok(_) if for_real => {
            Ok(see(&format!("/console/event-types?realm={}&done=imported", typed::part(&realm))))
        }
        Ok(bytes) => {
            let plan: Imported = serde_json::from_slice(&bytes)
                .map_err(|e| Trouble::Fault(format!("the answer cannot be read: {e}")))?;
            import_form(&visit, form.clone(), None, Some(plan)).await
        }
        Err(trouble) => {
            let wrong = typed::refused(trouble)?;
            import_form(&visit, form.clone(), Some(wrong), None).await
        }
    }
}

/// The document goes in as it was pasted.
fn import_body(form: &Fields, dry_run: bool) -> Result<Bytes, Wrong> {
    let pasted = form.typed("document").trim();
    let wrong = |text: String| ("document".to_owned(), text);
    if pasted.is_empty() {
        return Err(wrong("is missing".to_owned()));
    }
    let raw: &RawValue =
        serde_json::from_str(pasted).map_err(|e| wrong(format!("is not valid JSON: {e}")))?;
    let replace_all = form.is_checked("replace_all");
    let body = format!(
        "{{\"document\":{},\"replace_all\":{replace_all},\"dry_run\":{dry_run}}}",
        raw.get()
    );
    Ok(body.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_becomes_an_event_type() {
        let form = Fields::parse(
            b"description=x&group=&schemas=%7B%221%22%3A%7B%7D%7D&examples=&deprecated=true",
        );
        let wanted = json!({
            "description": "x", "group": null, "schemas": {"1": {}}, "examples": [],
            "archived": false, "deprecated": true,
        });
        assert_eq!(body(&form), Ok(wanted));
        assert_eq!(body(&Fields::parse(b"examples=%5B")).unwrap_err().0, "examples");
    }

    #[test]
    fn a_document_is_imported_as_it_was_pasted() {
        let form = Fields::parse(b"document=%7B%22n%22%3A1.10%7D&replace_all=true");
        let wanted = r#"{"document":{"n":1.10},"replace_all":true,"dry_run":true}"#;
        assert_eq!(import_body(&form, true).unwrap(), wanted);
        for bad in [&b"document="[..], b"document=openapi%3A+3.1.0"] {
            assert_eq!(import_body(&Fields::parse(bad), true).unwrap_err().0, "document");
        }
    }
}
