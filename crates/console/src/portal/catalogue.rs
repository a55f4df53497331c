//! The catalogue: every type of message there is, with its schema and an example that can be sent to an endpoint.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::endpoint_new::EventKind;
use super::endpoints;
use super::frame::{Frame, Place};
use super::guest::Guest;
use super::say::Tested;
use crate::pages::Answer;
use crate::pages::show::{Listed, Pager};
use crate::pages::typed::{self, part};
use crate::text;
use crate::trouble::Trouble;

struct Line {
    name: String,
    href: String,
    description: String,
    group: Option<String>,
    deprecated: bool,
}

#[derive(Template)]
#[template(path = "portal/event-types.html")]
struct CataloguePage {
    frame: Frame,
    lines: Vec<Line>,
    pager: Pager,
}

/// `GET /portal/event-types`.
pub(crate) async fn list(guest: Arc<Guest>) -> Answer {
    let wanted = guest.query.query(&["cursor"], &[("limit", "50"), ("archived", "false")]);
    let list: Listed<EventKind> = guest.get(&format!("/v1/event-types?{wanted}")).await?;
    let line = |kind: &EventKind| Line {
        name: text::line(&kind.name, 200),
        href: guest.path(&format!("event-types/{}", part(&kind.name))),
        description: text::line(&kind.description, 200),
        group: kind.group.as_deref().map(|group| text::line(group, 60)),
        deprecated: kind.deprecated,
    };
    let html = CataloguePage {
        frame: Frame::new(&guest, Place::Catalogue, guest.t.event_types).await,
        lines: list.items.iter().map(line).collect(),
        pager: Pager::of(&list, &guest.query, &[], guest.now()),
    };
    Ok(guest.page(StatusCode::OK, html.render()?))
}

#[derive(Template)]
#[template(path = "portal/event-type.html")]
struct EventTypePage {
    frame: Frame,
    action: String,
    description: String,
    deprecated: bool,
    schema: Option<String>,
    example: Option<String>,
    endpoints: Vec<(String, String)>,
    chosen: String,
    tested: Option<Tested>,
    wrong: Option<String>,
}

async fn find(guest: &Guest) -> Result<EventKind, Trouble> {
    let name = guest.named.first().ok_or(Trouble::NotFound("event type"))?;
    guest.get(&format!("/v1/event-types/{}", part(name))).await
}

/// `GET /portal/event-types/{name}`.
pub(crate) async fn one(guest: Arc<Guest>) -> Answer {
    show(&guest, None, None).await
}

async fn show(guest: &Guest, tested: Option<Tested>, wrong: Option<String>) -> Answer {
    let kind = find(guest).await?;
    let t = guest.t;
    let status = if wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let html = EventTypePage {
        frame: Frame::new(guest, Place::Catalogue, text::line(&kind.name, 200))
            .await
            .below("event-types", t.event_types),
        action: guest.path(&format!("event-types/{}/send", part(&kind.name))),
        description: text::visible(&kind.description),
        deprecated: kind.deprecated,
        schema: kind.schema(),
        example: kind.example(),
        endpoints: endpoints::choices(guest),
        chosen: guest.form.typed("endpoint").to_owned(),
        tested,
        wrong,
    };
    Ok(guest.page(status, html.render()?))
}

/// `POST /portal/event-types/{name}/send`: the example to one endpoint, now, outside of the history.
pub(crate) async fn send(guest: Arc<Guest>) -> Answer {
    let kind = find(&guest).await?;
    let t = guest.t;
    let endpoint = guest.form.get("endpoint").unwrap_or_default();
    let known = endpoints::choices(&guest).into_iter().any(|(id, _)| id == endpoint);
    if !known {
        return Err(Trouble::NotFound("endpoint"));
    }
    let payload = kind.examples.first().cloned().unwrap_or_else(|| json!({}));
    let body = json!({"type": kind.name, "payload": payload});
    let path = format!("/v1/subscriptions/{endpoint}/test");
    match guest.send::<Value>(Method::POST, &path, Some(&body)).await {
        Ok(outcome) => show(&guest, Some(Tested::of(t, &outcome)), None).await,
        Err(trouble) => {
            let (_, detail) = typed::refused(trouble)?;
            show(&guest, None, Some(detail)).await
        }
    }
}
