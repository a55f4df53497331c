//! Reading events, publishing them again, and counting.

use http::StatusCode;
use posthorn_store::EventFilter;
use serde::Serialize;

use crate::call::{Answer, Call};
use crate::cursor::{self, List};
use crate::respond;
use crate::wire::{EventView, ExplainedView, Page, PublishedView};

/// `GET /v1/events`.
pub(crate) async fn list(call: Call) -> Answer {
    let before = call.query.text("cursor").map(|text| cursor::decode_id(List::Events, text));
    let filter = EventFilter {
        topic: call.query.value("topic")?,
        event_type: call.query.value("type")?,
        before: before.transpose()?.map(posthorn_domain::EventId::from_bytes),
        limit: call.query.limit()?,
    };
    let page = call.engine().store().events(call.tenant(), filter).await?;
    let next = page.items.last().filter(|_| page.more);
    let next = next.map(|last| cursor::encode(List::Events, last.id.as_bytes()));
    respond::ok(&Page { items: page.items.iter().map(EventView::from).collect(), next })
}

/// `GET /v1/events/{id}`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let id = call.named("event").await?;
    let explained = call.engine().explain_event(call.tenant(), id).await?;
    respond::ok(&ExplainedView::new(&explained, call.is_operator()))
}

/// `POST /v1/events/{id}/republish`.
pub(crate) async fn republish(mut call: Call) -> Answer {
    let id = call.named("event").await?;
    let published = call.engine().republish(call.tenant(), id).await?;
    respond::json(StatusCode::ACCEPTED, &PublishedView::from(&published))
}

#[derive(Serialize)]
struct Stats {
    events: u64,
    pending: u64,
    delivered: u64,
    dead: u64,
    cancelled: u64,
}

/// `GET /v1/stats`.
pub(crate) async fn stats(call: Call) -> Answer {
    let counts = call.engine().store().counts(Some(call.tenant())).await?;
    respond::ok(&Stats {
        events: counts.events,
        pending: counts.pending,
        delivered: counts.delivered,
        dead: counts.dead,
        cancelled: counts.cancelled,
    })
}
