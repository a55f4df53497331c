//! The live tail as server-sent events: events and attempts of a tenant as they happen.
//!
//! A client that reads is told each item once, with an `id` that says where it stands; one that comes back with it
//! (`Last-Event-ID`) goes on there. Nothing is kept for a client that does not read: what it missed is counted and
//! told. A stream ends when its key does, when the server stops, and when the client is gone.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderName, StatusCode};
use posthorn_domain::{EventId, TenantId, Timestamp};
use posthorn_engine::{Health, Heard, Tail, TailCursor, TailItem};
use posthorn_listener::Peer;
use posthorn_store::{AttemptFilter, EventFilter, LogPlace, StateKind};
use serde::Serialize;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::deliveries;
use crate::call::{Answer, Call};
use crate::cursor::{self, List};
use crate::problem::{Problem, Result};
use crate::wire::{AttemptToldView, EventView};
use crate::{codes, respond};

/// Streams of one tenant that may be open at once on a node.
pub(crate) const PER_TENANT_MAX: usize = 20;
/// Streams of all tenants together.
pub(crate) const STREAMS_MAX: usize = 500;
/// How often it is looked whether the caller may still listen.
const LOOK: Duration = Duration::from_secs(1);
/// A client that hears nothing for so long is told that all is well.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Bytes that are written at once, so that one look at the key serves many items.
const CHUNK: usize = 32 << 10;

/// Bytes of a place.
const PLACE: usize = 24;

/// What clients are asked to wait when there are too many streams.
const FULL_WAIT: Duration = Duration::from_secs(5);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The streams that are open.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<HashMap<TenantId, usize>>>);

impl Streams {
    fn enter(&self, tenant: TenantId) -> Result<StreamPlace> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = open.values().sum();
        let own = open.get(&tenant).copied().unwrap_or_default();
        let full = |whose: &str, most: usize| {
            let detail = format!("{whose} has {most} open streams, which is the limit");
            Problem::new(codes::TOO_MANY_STREAMS, detail).retry_after(FULL_WAIT)
        };
        if own >= PER_TENANT_MAX {
            return Err(full("the tenant", PER_TENANT_MAX));
        }
        if all >= STREAMS_MAX {
            return Err(full("the server", STREAMS_MAX));
        }
        open.insert(tenant, own + 1);
        Ok(StreamPlace { streams: self.clone(), tenant })
    }
}

/// A place among the open streams.
struct StreamPlace {
    streams: Streams,
    tenant: TenantId,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.tenant);
            }
        }
    }
}

/// `GET /v1/stream`.
pub(crate) async fn open(call: Call) -> Answer {
    let wanted = Wanted::read(&call)?;
    let from = last_event_id(&call)?;
    let place = call.api.streams.enter(call.tenant())?;
    let tail = call.engine().tail(call.tenant(), from).await?;
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let following =
        Following { told: None, spoke: Instant::now(), call, wanted, tail, look, _place: place };
    let body = Body::from_stream(stream::unfold(following, Following::next));
    let mut response = respond::bytes(StatusCode::OK, respond::EVENT_STREAM, body);
    // Proxies that would keep the answer back until it is complete are asked not to.
    response.headers_mut().insert("x-accel-buffering", respond::NO);
    Ok(response)
}

/// Where the client stood.
fn last_event_id(call: &Call) -> Result<Option<TailCursor>> {
    let broken = || {
        let detail =
            "not an `id` of this stream; use the last one unchanged, or leave the header out";
        Problem::field("Last-Event-ID", detail)
    };
    let mut values = call.parts.headers.get_all(LAST_EVENT_ID).iter();
    let (value, more) = (values.next(), values.next());
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| more.is_none()).ok_or_else(broken)?;
    let bytes = cursor::decode(List::Stream, text).map_err(|_| broken())?;
    let bytes: [u8; 2 * PLACE] = bytes.try_into().map_err(|_| broken())?;
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| (sum << 8) | u128::from(*byte));
    let place = |bytes: &[u8]| {
        let (commit, row) = bytes.split_at(8);
        LogPlace { commit: u64::try_from(number(commit)).unwrap_or(u64::MAX), row: number(row) }
    };
    let (events, attempts) = bytes.split_at(PLACE);
    Ok(Some(TailCursor { events: place(events), attempts: place(attempts) }))
}

fn id(cursor: TailCursor) -> String {
    let mut bytes = Vec::with_capacity(2 * PLACE);
    for place in [cursor.events, cursor.attempts] {
        bytes.extend(place.commit.to_be_bytes());
        bytes.extend(place.row.to_be_bytes());
    }
    cursor::encode(List::Stream, &bytes)
}

/// What a client wants to hear of.
struct Wanted {
    /// Of this event only.
    event: Option<EventId>,
    events: Option<EventFilter>,
    attempts: Option<(AttemptFilter, Option<StateKind>)>,
}

/// Parameters that only events have, and those that only attempts have.
const OF_EVENTS: [&str; 5] = ["topic", "type", "attribute", "key", "publisher_id"];
const OF_ATTEMPTS: [&str; 5] = ["subscription", "state", "status", "failure", "trigger"];

impl Wanted {
    fn read(call: &Call) -> Result<Self> {
        let query = &call.query;
        let given =
            |names: &[&'static str]| names.iter().copied().find(|n| query.text(n).is_some());
        let (of_events, of_attempts) = (given(&OF_EVENTS), given(&OF_ATTEMPTS));
        let (events, attempts) = match query.text("kind") {
            None if of_events.is_some() && of_attempts.is_some() => {
                let name = of_attempts.unwrap_or_default();
                let detail = "is a filter of attempts, and another one given is a filter of events";
                return Err(Problem::field(name, detail));
            }
            None => (of_attempts.is_none(), of_events.is_none()),
            Some("events") => (true, false),
            Some("attempts") => (false, true),
            Some(_) => return Err(Problem::field("kind", "must be events or attempts")),
        };
        for (shown, filter) in [(events, of_events), (attempts, of_attempts)] {
            if let Some(name) = filter.filter(|_| !shown) {
                return Err(Problem::field(name, "is no filter of what `kind` asks for"));
            }
        }
        let event = query.value("event")?;
        let of_events = EventFilter {
            topics: query.values("topic")?,
            types: query.values("type")?,
            attributes: query.attributes()?,
            key: query.value("key")?,
            publisher_id: query.value("publisher_id")?,
            ..EventFilter::default()
        };
        let of_attempts = AttemptFilter {
            event,
            subscription: deliveries::subscription(call)?,
            outcome: query.outcome(call.is_operator())?,
            manual: deliveries::manual(call)?,
            ..AttemptFilter::default()
        };
        let state = deliveries::state(call)?;
        Ok(Self {
            event,
            events: events.then_some(of_events),
            attempts: attempts.then_some((of_attempts, state)),
        })
    }

    fn wants(&self, item: &TailItem) -> bool {
        match item {
            TailItem::Event { event, .. } => {
                self.events.as_ref().is_some_and(|filter| filter.wants(event))
                    && self.event.is_none_or(|wanted| wanted == event.id)
            }
            TailItem::Attempt(made) => self.attempts.as_ref().is_some_and(|(filter, state)| {
                filter.wants(&made.line) && state.is_none_or(|state| state.includes(made.state))
            }),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Skipped {
    Count(u64),
    OlderThan(Timestamp),
}

/// One stream.
struct Following {
    call: Call,
    wanted: Wanted,
    tail: Tail,
    /// The last id that the client was told.
    told: Option<String>,
    /// When it was last told anything.
    spoke: Instant,
    look: Interval,
    _place: StreamPlace,
}

impl Following {
    /// The next part of the body; none when the stream ends.
    async fn next(mut self) -> Option<(std::result::Result<Bytes, Infallible>, Self)> {
        if self.told.is_none() {
            // At once: so the client knows that it listens, and from where on.
            let text = format!("retry: 1000\n: following\n{}\n", self.stand());
            return Some(self.say(text));
        }
        loop {
            let heard = tokio::select! {
                biased;
                () = ending(&self.call) => return None,
                heard = self.tail.next() => Some(heard),
                _ = self.look.tick() => None,
            };
            if !self.call.is_still_allowed() {
                return None;
            }
            let text = match heard {
                // The client comes back with what it has, and goes on there.
                Some(Err(_) | Ok(None)) => return None,
                Some(Ok(Some(heard))) => self.write(heard),
                None if self.spoke.elapsed() < KEEP_ALIVE => continue,
                None => format!(": keep-alive\n{}\n", self.stand()),
            };
            if !text.is_empty() {
                return Some(self.say(text));
            }
        }
    }

    fn say(mut self, text: String) -> (std::result::Result<Bytes, Infallible>, Self) {
        self.spoke = Instant::now();
        (Ok(Bytes::from(text)), self)
    }

    /// Where the client stands, also when nothing it wants has happened.
    fn stand(&mut self) -> String {
        let id = id(self.tail.cursor());
        let line = format!("id: {id}\n");
        self.told = Some(id);
        line
    }

    /// What was heard, and what else there is already.
    fn write(&mut self, first: Heard) -> String {
        let mut text = String::new();
        let mut next = Some(first);
        while let Some(heard) = next {
            self.write_one(&mut text, &heard);
            next = if text.len() < CHUNK { self.tail.try_next() } else { None };
        }
        text
    }

    fn write_one(&mut self, text: &mut String, heard: &Heard) {
        let operator = self.call.is_operator();
        let (name, data) = match heard {
            Heard::Skipped(count) => ("skipped", serde_json::to_string(&Skipped::Count(*count))),
            Heard::TooOld(since) => ("skipped", serde_json::to_string(&Skipped::OlderThan(*since))),
            // Told to those only who do not want to hear everything.
            Heard::Much => return,
            Heard::Item(item) if !self.wanted.wants(item) => return,
            Heard::Item(item) => match &**item {
                TailItem::Event { event, payload_bytes } => {
                    let view = EventView::without_payload(event, *payload_bytes);
                    ("event", serde_json::to_string(&view))
                }
                TailItem::Attempt(made) => {
                    ("attempt", serde_json::to_string(&AttemptToldView::new(made, operator)))
                }
            },
        };
        let stand = self.stand();
        match data {
            // Writing to a text cannot fail.
            Ok(data) => drop(write!(text, "event: {name}\n{stand}data: {data}\n\n")),
            Err(e) => tracing::error!(error = %e, "an item could not be written; this is a defect"),
        }
    }
}

/// Waits until the server stops.
async fn ending(call: &Call) {
    let peer = call.parts.extensions.get::<Peer>();
    let mut health = call.engine().health();
    let closing = async {
        match peer {
            Some(peer) => peer.closing().await,
            None => std::future::pending().await,
        }
    };
    let stopping = async { drop(health.wait_for(|health| *health != Health::Running).await) };
    tokio::select! {
        () = closing => {}
        () = stopping => {}
    }
}
