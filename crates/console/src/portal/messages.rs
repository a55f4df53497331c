//! Messages: what was published for this tenant, and where each of them went.

use std::sync::Arc;

use askama::Template;
use axum::body::Body as HttpBody;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use posthorn_domain::{EventId, SubscriptionId, Timestamp};
use serde::Deserialize;

use super::attempts::is_soon;
use super::endpoints::is_notification;
use super::frame::{Frame, Place};
use super::guest::Guest;
use super::say::{self, Moment};
use crate::form::Fields;
use crate::pages::Answer;
use crate::pages::deliveries::Row;
use crate::pages::events::{Payload, payload_bytes};
use crate::pages::show::{Listed, Named, Pager, Shown};
use crate::pages::typed::{self, Typed};
use crate::text::{self, Body};
use crate::trouble::Trouble;
use crate::words;

const FILTER: &[&str] = &["type", "from", "until"];

#[derive(Deserialize)]
struct Message {
    id: EventId,
    #[serde(rename = "type")]
    event_type: String,
    content_type: String,
    accepted_at: Timestamp,
    payload_bytes: u64,
    deliver_at: Option<Timestamp>,
    expunged_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Whole {
    #[serde(flatten)]
    message: Message,
    deliveries: Vec<Row>,
    not_delivered: Vec<NotDelivered>,
}

/// Somebody who does not get it.
#[derive(Deserialize)]
struct NotDelivered {
    subscription: SubscriptionId,
    reasons: Vec<String>,
}

/// Endpoints that did not get it, at most as many are shown.
const MISSED_MAX: usize = 50;

struct Line {
    id: String,
    event_type: String,
    size: String,
    at: Moment,
    later: Option<Moment>,
    removed: bool,
}

#[derive(Template)]
#[template(path = "portal/messages.html")]
struct MessagesPage {
    frame: Frame,
    form: Typed,
    lines: Vec<Line>,
    pager: Pager,
    types: Vec<String>,
}

/// `GET /portal/messages`.
pub(crate) async fn list(guest: Arc<Guest>) -> Answer {
    // An id that was typed into the search field is opened at once.
    if let Some(id) = guest.query.get("id") {
        let id: EventId = id.parse().map_err(|_| Trouble::NotFound("message"))?;
        return Ok(guest.see(&format!("messages/{id}")));
    }
    let wanted = guest.query.query(&[FILTER, &["cursor"]].concat(), &[("limit", "25")]);
    let answer = guest.get::<Listed<Message>>(&format!("/v1/events?{}", moments(&wanted))).await;
    let (list, wrong) = typed::filtered(answer)?;
    let types = super::endpoint_new::offers(&guest).await?;
    let form = Typed::new(FILTER, fitting(&guest.query)).wrong(wrong);
    let line = |message: &Message| Line {
        id: message.id.to_string(),
        event_type: text::line(&message.event_type, 80),
        size: words::bytes(message.payload_bytes),
        at: Moment::new(message.accepted_at),
        later: message.deliver_at.map(Moment::new),
        removed: message.expunged_at.is_some(),
    };
    let status = form.status();
    let html = MessagesPage {
        frame: Frame::new(&guest, Place::Messages, guest.t.messages).await,
        lines: list.items.iter().map(line).collect(),
        pager: Pager::of(&list, &guest.query, FILTER, guest.now()),
        types: types.into_iter().map(|offer| offer.name).collect(),
        form,
    };
    Ok(guest.page(status, html.render()?))
}

/// Times of a browser's field have no zone and no seconds: they are meant in UTC.
pub(crate) fn moments(query: &str) -> String {
    let mut out = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let is_time = matches!(&*name, "from" | "until") && value.len() == 16;
        match is_time {
            true => out.append_pair(&name, &format!("{value}:00Z")),
            false => out.append_pair(&name, &value),
        };
    }
    out.finish()
}

/// The same without times that such a field cannot show.
pub(crate) fn fitting(fields: &Fields) -> Fields {
    let fits = |name: &&str| match fields.get(name) {
        Some(text) => text.len() == 16 && format!("{text}:00Z").parse::<Timestamp>().is_ok(),
        None => true,
    };
    let odd = ["from", "until"].into_iter().filter(|name| !fits(name));
    odd.fold(fields.clone(), |fields, name| fields.without(name))
}

struct Sending {
    delivery: String,
    endpoint: String,
    name: String,
    shown: Shown,
    last: String,
    attempts: u32,
    next: Option<Moment>,
    resends: bool,
}

#[derive(Template)]
#[template(path = "portal/message.html")]
struct MessagePage {
    frame: Frame,
    id: String,
    at: Moment,
    later: Option<Moment>,
    content_type: String,
    size: String,
    removed: bool,
    payload: Option<Body>,
    sendings: Vec<Sending>,
    /// Whether an outcome is on its way, for which the page waits.
    soon: bool,
    /// Endpoints that did not get it, and why.
    missed: Vec<Missed>,
}

struct Missed {
    endpoint: String,
    name: String,
    reasons: Vec<String>,
}

fn named(guest: &Guest) -> Result<EventId, Trouble> {
    let text = guest.named.first().ok_or(Trouble::NotFound("message"))?;
    text.parse().map_err(|_| Trouble::NotFound("message"))
}

/// `GET /portal/messages/{id}`.
pub(crate) async fn one(guest: Arc<Guest>) -> Answer {
    let id = named(&guest)?;
    let (t, tenant) = (guest.t, guest.tenant()?.id);
    let bytes = guest.send_bytes(Method::GET, &format!("/v1/events/{id}"), None).await?;
    let unread = |e: serde_json::Error| Trouble::Fault(e.to_string());
    let whole: Whole = serde_json::from_slice(&bytes).map_err(unread)?;
    let payload: Payload = serde_json::from_slice(&bytes).map_err(unread)?;
    let message = &whole.message;
    let sending = |row: &Row| {
        let to = Named::find(guest.engine(), tenant, row.subscription);
        let failed = row.last_failure.is_some()
            || row.last_status.is_some_and(|status| !(200..300).contains(&status));
        let last = match row.attempts_made {
            0 => String::new(),
            _ => say::attempt(t, row.last_status, row.last_failure.as_deref()).word,
        };
        Sending {
            delivery: row.id.to_string(),
            endpoint: row.subscription.to_string(),
            name: text::line(&to.name, 80),
            shown: say::delivery(t, &row.state, failed),
            last,
            attempts: row.attempts_made,
            next: row.due_at.map(Moment::new),
            resends: row.state != "in_flight" && message.expunged_at.is_none(),
        }
    };
    let mut missed = Vec::new();
    for one in &whole.not_delivered {
        let view = guest.engine().catalog().subscription(tenant, one.subscription);
        // Addresses for notifications are no endpoints, and want no messages.
        let Some(view) = view.ok().filter(|view| !is_notification(&view.subscription.filter))
        else {
            continue;
        };
        let to = Named::find(guest.engine(), tenant, view.subscription.id);
        missed.push(Missed {
            endpoint: view.subscription.id.to_string(),
            name: text::line(&to.name, 80),
            reasons: one.reasons.iter().map(|reason| text::line(reason, 300)).collect(),
        });
    }
    missed.truncate(MISSED_MAX);
    let now = guest.now();
    let html = MessagePage {
        soon: whole.deliveries.iter().any(|row| is_soon(row, now)),
        missed,
        frame: Frame::new(&guest, Place::Messages, text::line(&message.event_type, 100))
            .await
            .below("messages", t.messages),
        id: message.id.to_string(),
        at: Moment::new(message.accepted_at),
        later: message.deliver_at.map(Moment::new),
        content_type: text::line(&message.content_type, 200),
        size: words::bytes(message.payload_bytes),
        removed: message.expunged_at.is_some(),
        payload: payload_bytes(&payload).map(|bytes| Body::of(&bytes)),
        sendings: whole.deliveries.iter().map(sending).collect(),
    };
    Ok(guest.page(StatusCode::OK, html.render()?))
}

/// `GET /portal/messages/{id}/payload`: all of it, to be kept as a file. A browser never shows it.
pub(crate) async fn payload(guest: Arc<Guest>) -> Answer {
    let id = named(&guest)?;
    let bytes = guest.send_bytes(Method::GET, &format!("/v1/events/{id}"), None).await?;
    let payload: Payload =
        serde_json::from_slice(&bytes).map_err(|e| Trouble::Fault(e.to_string()))?;
    let bytes: Bytes = payload_bytes(&payload).ok_or(Trouble::NotFound("payload"))?;
    let mut response = Response::new(HttpBody::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    let named = HeaderValue::from_str(&format!("attachment; filename=\"{id}.bin\""));
    let named = named.unwrap_or(HeaderValue::from_static("attachment"));
    headers.insert(header::CONTENT_DISPOSITION, named);
    Ok(response)
}
