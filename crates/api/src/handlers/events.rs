//! Reading events, publishing them again, and counting.

use http::StatusCode;
use posthorn_store::{EventFilter, EventLine};
use serde::Serialize;

use crate::call::{Answer, Call};
use crate::cursor::{List, Paging};
use crate::problem::{Problem, Result};
use crate::respond;
use crate::wire::{EventView, ExplainedView, PublishedView};

/// `GET /v1/events`.
pub(crate) async fn list(call: Call) -> Answer {
    let paging = Paging::read(List::Events, &call.query)?;
    let filter = EventFilter {
        topics: call.query.values("topic")?,
        types: call.query.values("type")?,
        attributes: call.query.attributes()?,
        key: call.query.value("key")?,
        publisher_id: call.query.value("publisher_id")?,
        accepted: call.query.period()?,
        from_event: None,
        with_dead_letters: only_true(&call, "dead_letters")?,
        unwanted: only_true(&call, "unwanted")?,
    };
    let page = call.engine().store().event_lines(call.tenant(), filter, paging.listing()).await?;
    let mut shown = paging.show(page);
    let lines = std::mem::take(&mut shown.items);
    let views = lines.iter().map(|EventLine { event, payload_bytes }| {
        EventView::without_payload(event, *payload_bytes)
    });
    respond::ok(&shown.page(views.collect()))
}

/// A filter that can only be switched on: nobody asks for what has no dead letters.
fn only_true(call: &Call, name: &'static str) -> Result<bool> {
    match call.query.flag(name)? {
        Some(false) => Err(Problem::field(name, "can only be true; leave it out for all events")),
        given => Ok(given.is_some()),
    }
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
