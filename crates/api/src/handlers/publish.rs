//! Publishing: the hot path.
//!
//! The envelope is parsed with borrowed types; the payload is only checked to be JSON and to be of
//! bounded depth, and its bytes go on as they are. Repeated keys are refused in the envelope and in
//! `attributes`; inside the payload they are the business of publisher and receiver. CloudEvents are read
//! by [`cloudevents`].

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use posthorn_domain::limits::BATCH_EVENTS_MAX;
use posthorn_domain::{
    EventType, Idempotency, IdempotencyKey, LaneKey, NameError, Span, Timestamp, TopicName,
    TraceContext,
};
use posthorn_engine::{Publish, Published};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::cloudevents::{self, Mode};
use crate::call::{Answer, Call};
use crate::json::{self, AtMost, Object, Text, TextMap};
use crate::problem::{Problem, Result};
use crate::respond;
use crate::wire::PublishedView;

const IDEMPOTENCY_HEADER: &str = "idempotency-key";
const TRACE_HEADER: &str = "traceparent";
const CONTENT_TYPE_DEFAULT: &str = "application/json";
/// Longest content type of an event.
const CONTENT_TYPE_BYTES_MAX: usize = 255;
/// Payloads from this size on share the memory of the request instead of being copied.
const SHARE_BYTES_MIN: usize = 8 * 1024;

/// One event as it is published. What its payload is read as does not matter where only its form is looked
/// at.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item<'a, P = &'a RawValue> {
    #[serde(borrow)]
    topic: Text<'a>,
    #[serde(borrow, rename = "type")]
    event_type: Text<'a>,
    payload: P,
    #[serde(default)]
    attributes: TextMap,
    #[serde(borrow)]
    key: Option<Text<'a>>,
    #[serde(borrow)]
    content_type: Option<Text<'a>>,
    #[serde(borrow)]
    deliver_at: Option<Text<'a>>,
    #[serde(borrow)]
    retention: Option<Text<'a>>,
    /// Only in a batch; a single event has it in a header.
    #[serde(borrow)]
    idempotency_key: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<T> {
    events: AtMost<BATCH_EVENTS_MAX, T>,
}

/// `POST /v1/events`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let tenant = call.tenant();
    let limit = call.api.options.body_bytes;
    let mut publish = match Mode::of(&call.parts.headers)? {
        Mode::Native => {
            refuse_topic(&call)?;
            let body = call.bytes(limit).await?;
            let key = idempotency_header(&call.parts.headers)?;
            read_one(&body, key)?
        }
        Mode::Batch => {
            let detail = "send several CloudEvents to /v1/events/batch";
            return Err(cloudevents::unsupported(detail));
        }
        mode => {
            let topic = cloudevent_topic(&call)?;
            let body = call.any_bytes(limit).await?;
            match mode {
                Mode::Binary => {
                    cloudevents::read_binary(&call.parts.headers, &body, topic.as_ref())?
                }
                _ => cloudevents::read_structured(&body, topic.as_ref())?,
            }
        }
    };
    publish.trace = join(publish.trace, trace_header(&call.parts.headers));
    let published = call.engine().publish(tenant, publish).await?;
    respond::json(StatusCode::ACCEPTED, &PublishedView::from(&published))
}

/// A CloudEvent may be given its topic in the query, and is its own idempotency key.
fn cloudevent_topic(call: &Call) -> Result<Option<TopicName>> {
    if call.parts.headers.contains_key(IDEMPOTENCY_HEADER) {
        let detail = "a CloudEvent is recognised by its source and id; leave the header out";
        return Err(Problem::field("Idempotency-Key", detail));
    }
    call.query.value("topic")
}

/// Everything else has its topic in the body.
fn refuse_topic(call: &Call) -> Result<()> {
    match call.query.text("topic") {
        None => Ok(()),
        Some(_) => {
            let detail = "only CloudEvents take the topic from the query; give it in the body";
            Err(Problem::field("topic", detail))
        }
    }
}

/// The event of a single publish.
pub(crate) fn read_one(body: &Bytes, key: Option<IdempotencyKey>) -> Result<Publish> {
    let item = read_item(json::utf8(body)?)?;
    if item.idempotency_key.is_some() {
        let detail = "for a single event, send the key in the header Idempotency-Key";
        return Err(Problem::field("idempotency_key", detail));
    }
    understand(item, key, body)
}

/// An event that is not published; its text is part of the body.
pub(super) fn read_unpublished(text: &str, body: &Bytes) -> Result<Publish> {
    let item = read_item(text)?;
    if item.idempotency_key.is_some() {
        return Err(Problem::field("idempotency_key", "is only for events that are published"));
    }
    for (field, given) in
        [("deliver_at", item.deliver_at.is_some()), ("retention", item.retention.is_some())]
    {
        if given {
            return Err(Problem::field(field, "is only for events that are published"));
        }
    }
    understand(item, None, body)
}

/// `POST /v1/events/batch`.
pub(crate) async fn batch(mut call: Call) -> Answer {
    let tenant = call.tenant();
    if call.parts.headers.contains_key(IDEMPOTENCY_HEADER) {
        let detail = "give each event of a batch its own idempotency_key";
        return Err(Problem::field("Idempotency-Key", detail));
    }
    let limit = call.api.options.batch_bytes;
    let read = match Mode::of(&call.parts.headers)? {
        Mode::Native => {
            refuse_topic(&call)?;
            items(&call.bytes(limit).await?)?
        }
        Mode::Batch => {
            let topic = cloudevent_topic(&call)?;
            cloudevents::read_batch(&call.any_bytes(limit).await?, topic.as_ref())?
        }
        Mode::Structured | Mode::Binary => {
            let detail = "send a single CloudEvent to /v1/events";
            return Err(cloudevents::unsupported(detail));
        }
    };
    let request = trace_header(&call.parts.headers);
    let mut understood = Vec::new();
    let mut results: Vec<Result<Published>> = Vec::new();
    // What is wrong with an item is its own affair: the others are published.
    let mut places = Vec::new();
    for (place, item) in read.into_iter().enumerate() {
        match item {
            Ok(mut publish) => {
                publish.trace = join(publish.trace, request);
                understood.push(publish);
                places.push(place);
            }
            Err(problem) => results.push(Err(problem)),
        }
    }
    let total = understood.len() + results.len();
    // The request itself was counted when it came in.
    call.charge(total.saturating_sub(1));
    let mut refused = results.into_iter();
    let mut published = call.engine().publish_batch(tenant, understood).await?.into_iter();
    let mut places = places.into_iter().peekable();
    let mut items = Vec::with_capacity(total);
    for place in 0..total {
        let result = match places.next_if_eq(&place) {
            Some(_) => published.next().map(|result| result.map_err(Problem::from)),
            None => refused.next(),
        };
        items.extend(result.map(ItemView));
    }
    respond::ok(&Items { items })
}

#[derive(serde::Serialize)]
struct Items {
    items: Vec<ItemView>,
}

/// The answer to one event of a batch.
struct ItemView(Result<Published>);

impl Serialize for ItemView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Accepted {
            status: u16,
            #[serde(flatten)]
            published: PublishedView,
        }
        match &self.0 {
            Ok(published) => {
                Accepted { status: 202, published: published.into() }.serialize(serializer)
            }
            Err(problem) => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("status", &problem.status().as_u16())?;
                map.serialize_entry("error", problem)?;
                map.end()
            }
        }
    }
}

/// The events of a batch. All are read in one go; only when one of them is misshapen are they read
/// one by one, to find out which.
pub(crate) fn items(body: &Bytes) -> Result<Vec<Result<Publish>>> {
    let text = json::utf8(body)?;
    if let Ok(Object(batch)) = serde_json::from_str::<Object<Batch<Object<Item<'_>>>>>(text) {
        let events = batch.events.0.into_iter();
        return Ok(events.map(|Object(item)| understand_item(item, body)).collect());
    }
    let fault = |outline: &_| json::fault_of::<Batch<IgnoredAny>>(outline);
    let batch: Batch<&RawValue> = json::parse(text, fault)?;
    let events = batch.events.0.into_iter();
    Ok(events
        .map(|raw| read_item(raw.get()).and_then(|item| understand_item(item, body)))
        .collect())
}

fn read_item(text: &str) -> Result<Item<'_>> {
    json::parse(text, |outline| json::fault_of::<Item<'_, IgnoredAny>>(outline))
}

fn understand_item(mut item: Item<'_>, body: &Bytes) -> Result<Publish> {
    let key = item.idempotency_key.take().map(|text| {
        IdempotencyKey::new(&text.0).map_err(|e| Problem::field("idempotency_key", e.to_string()))
    });
    understand(item, key.transpose()?, body)
}

/// Checks every field and turns an item into what the engine takes.
fn understand(item: Item<'_>, key: Option<IdempotencyKey>, body: &Bytes) -> Result<Publish> {
    let named = |field: &'static str| move |e: NameError| Problem::field(field, e.to_string());
    json::check_depth(item.payload.get()).map_err(|problem| problem.at("payload"))?;
    let content_type = match item.content_type {
        None => CONTENT_TYPE_DEFAULT.to_owned(),
        Some(text) => check_content_type(text.0)?,
    };
    let lane = item.key.map(|text| LaneKey::new(&text.0).map_err(named("key"))).transpose()?;
    let read = |text: Text<'_>| text.0.parse::<Timestamp>();
    let deliver_at = item.deliver_at.map(read).transpose();
    let deliver_at = deliver_at.map_err(|e| Problem::field("deliver_at", e.to_string()))?;
    let retention = item.retention.map(|text| text.0.parse::<Span>()).transpose();
    let retention = retention.map_err(|e| Problem::field("retention", e.to_string()))?;
    let mut publish = Publish {
        topic: TopicName::new(&item.topic.0).map_err(named("topic"))?,
        event_type: EventType::new(&item.event_type.0).map_err(named("type"))?,
        attributes: item.attributes.0,
        key: lane,
        content_type,
        payload: keep(body, item.payload.get().as_bytes()),
        idempotency: None,
        publisher_id: None,
        deliver_at,
        retention,
        trace: None,
    };
    if let Some(key) = key {
        let fingerprint = publish.fingerprint();
        publish.publisher_id = Some(key.clone());
        publish.idempotency = Some(Idempotency { key, fingerprint });
    }
    Ok(publish)
}

/// The payload's own bytes. A large payload that is most of its request shares its memory; a small
/// one is copied, since an event may wait for a while and would keep the whole buffer of its
/// connection, or the whole batch, alive for the sake of a few bytes.
pub(super) fn keep(body: &Bytes, payload: &[u8]) -> Bytes {
    if payload.len() >= SHARE_BYTES_MIN && payload.len() >= body.len() / 2 {
        body.slice_ref(payload)
    } else {
        Bytes::copy_from_slice(payload)
    }
}

/// A content type goes into a request header of every delivery.
fn check_content_type(text: Cow<'_, str>) -> Result<String> {
    let fits = text.len() <= CONTENT_TYPE_BYTES_MAX
        && text.is_ascii()
        && HeaderValue::from_str(&text).is_ok()
        && text.split_once('/').is_some_and(|(kind, sub)| !kind.is_empty() && !sub.is_empty());
    if fits {
        return Ok(text.into_owned());
    }
    Err(Problem::field("content_type", "must be a media type such as application/json"))
}

/// The trace that a request belongs to. A header that breaks the rules, or is there twice, is none: a publisher is
/// never refused because of it.
fn trace_header(headers: &HeaderMap) -> Option<TraceContext> {
    let mut values = headers.get_all(TRACE_HEADER).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    TraceContext::parse(value.to_str().ok()?)
}

/// The trace of an event. What it says itself wins over its request, which may be that of a relay or bring events
/// of several traces; but in the same trace the request is the nearer step.
fn join(own: Option<TraceContext>, request: Option<TraceContext>) -> Option<TraceContext> {
    match (own, request) {
        (Some(own), Some(request)) if own.trace != request.trace => Some(own),
        (own, request) => request.or(own),
    }
}

fn idempotency_header(headers: &HeaderMap) -> Result<Option<IdempotencyKey>> {
    let refuse = |detail: String| Problem::field("Idempotency-Key", detail);
    let mut values = headers.get_all(IDEMPOTENCY_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(refuse("is given more than once".to_owned()));
    }
    let text = std::str::from_utf8(value.as_bytes()).map_err(|e| refuse(e.to_string()))?;
    IdempotencyKey::new(text).map(Some).map_err(|e| refuse(e.to_string()))
}
