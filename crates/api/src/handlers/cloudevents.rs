//! CloudEvents that are published: structured, binary and in batches.
//!
//! How a request carries its events is told by its headers ([`Mode`]). What a CloudEvent is, `domain` knows;
//! here it gets what only a publish has: a topic, an idempotency key, and a payload that shares the memory
//! of the request.

use bytes::Bytes;
use http::{HeaderMap, header};
use posthorn_domain::cloudevent::json::{self as structured, Data, ReadError, is_json_text};
use posthorn_domain::cloudevent::{
    self, BATCH_MEDIA_TYPE, Context, DATA_TYPE_DEFAULT, Fault, MEDIA_TYPE, Scalar,
};
use posthorn_domain::limits::BATCH_EVENTS_MAX;
use posthorn_domain::{
    Event, EventType, Idempotency, IdempotencyKey, LaneKey, NameError, TopicName, TraceContext,
};
use posthorn_engine::Publish;
use posthorn_sealing::encoding::Encoding;
use posthorn_sealing::hash::fingerprint;
use serde_json::value::RawValue;

use super::publish::keep;
use crate::codes;
use crate::json::{self, AtMost};
use crate::problem::{Problem, Result};

/// The header that makes a request a CloudEvent in binary mode.
const VERSION_HEADER: &str = "ce-specversion";
/// The beginning of the media types of all event formats.
const FORMATS: &str = "application/cloudevents";

/// How a request carries its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As the native API has them.
    Native,
    /// One CloudEvent, a JSON document.
    Structured,
    /// One CloudEvent, its attributes in headers.
    Binary,
    /// A list of CloudEvents.
    Batch,
}

impl Mode {
    /// What the headers say. A content type of CloudEvents counts before all others.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self> {
        let binary = headers.contains_key(VERSION_HEADER);
        let Some(kind) = headers.get(header::CONTENT_TYPE) else {
            return Ok(if binary { Self::Binary } else { Self::Native });
        };
        let kind = kind.to_str().unwrap_or_default();
        if kind.get(..FORMATS.len()).is_none_or(|start| !start.eq_ignore_ascii_case(FORMATS)) {
            return Ok(if binary { Self::Binary } else { Self::Native });
        }
        let mut parts = kind.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default();
        let utf8 = |parameter: &str| match parameter.split_once('=') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
                value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        };
        if !parts.all(utf8) {
            return Err(unsupported("CloudEvents must be in UTF-8"));
        }
        if essence.eq_ignore_ascii_case(MEDIA_TYPE) {
            Ok(Self::Structured)
        } else if essence.eq_ignore_ascii_case(BATCH_MEDIA_TYPE) {
            Ok(Self::Batch)
        } else {
            Err(unsupported("the only format of CloudEvents that is known here is JSON"))
        }
    }
}

/// The request says that it is something that cannot be read here.
pub(crate) fn unsupported(detail: &'static str) -> Problem {
    Problem::new(codes::UNSUPPORTED_MEDIA_TYPE, detail)
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        let text = fault.to_string();
        Self::new(codes::INVALID_CLOUDEVENT, text).at(fault.attribute)
    }
}

fn fault(attribute: &str, problem: impl Into<String>) -> Problem {
    Fault { attribute: attribute.to_owned(), problem: problem.into() }.into()
}

/// The event of a request in structured mode.
pub(crate) fn read_structured(body: &Bytes, topic: Option<&TopicName>) -> Result<Publish> {
    understand_text(json::utf8(body)?, body, topic)
}

/// The events of a batch; what is wrong with one of them is its own affair.
pub(crate) fn read_batch(body: &Bytes, topic: Option<&TopicName>) -> Result<Vec<Result<Publish>>> {
    let text = json::utf8(body)?;
    let events: AtMost<BATCH_EVENTS_MAX, &RawValue> =
        serde_json::from_str(text).map_err(|e| match e.is_data() {
            true => {
                let detail = format!("a batch is a list of at most {BATCH_EVENTS_MAX} CloudEvents");
                Problem::new(codes::INVALID_CLOUDEVENT, detail)
            }
            false => Problem::new(codes::INVALID_JSON, e.to_string()),
        })?;
    Ok(events.0.into_iter().map(|raw| understand_text(raw.get(), body, topic)).collect())
}

/// The event of a request in binary mode.
pub(crate) fn read_binary(
    headers: &HeaderMap,
    body: &Bytes,
    topic: Option<&TopicName>,
) -> Result<Publish> {
    let kind = match headers.get(header::CONTENT_TYPE) {
        None if !body.is_empty() => {
            return Err(fault("datacontenttype", "is required: send the header Content-Type"));
        }
        None => None,
        Some(kind) => {
            let refused = |_| fault("datacontenttype", "must be a media type in visible ASCII");
            Some(kind.to_str().map_err(refused)?)
        }
    };
    let all = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let context = cloudevent::headers::read(all, kind)?;
    understand(&context, body.clone(), topic)
}

fn understand_text(text: &str, body: &Bytes, topic: Option<&TopicName>) -> Result<Publish> {
    let (context, data) = structured::read(text).map_err(|e| match e {
        ReadError::Json(problem) => Problem::new(codes::INVALID_JSON, problem),
        ReadError::Fault(fault) => fault.into(),
    })?;
    let payload = match data {
        Data::None => Bytes::new(),
        Data::Json(json) => keep(body, json.as_bytes()),
        Data::Text(text) => text.into(),
        Data::Bytes(bytes) => bytes.into(),
    };
    understand(&context, payload, topic)
}

/// Turns a CloudEvent into what the engine takes.
fn understand(context: &Context, payload: Bytes, topic: Option<&TopicName>) -> Result<Publish> {
    let named = |attribute: &'static str| move |e: NameError| fault(attribute, e.to_string());
    let extension = |name: &str| match context.extensions.get(name) {
        None => Ok(None),
        Some(Scalar::Text(text)) => Ok(Some(text)),
        Some(_) => Err(fault(name, "must be a text")),
    };
    let topic = match (topic, extension(cloudevent::TOPIC)?) {
        (Some(topic), _) => topic.clone(),
        (None, Some(text)) => TopicName::new(text).map_err(named(cloudevent::TOPIC))?,
        (None, None) => {
            let problem = "is required: give the query parameter `topic`, or the event an extension \
                           of this name";
            return Err(fault(cloudevent::TOPIC, problem));
        }
    };
    let key = extension(cloudevent::PARTITION_KEY)?
        .map(|text| LaneKey::new(text).map_err(named(cloudevent::PARTITION_KEY)));
    let kind = context.data_content_type.as_deref().unwrap_or(DATA_TYPE_DEFAULT);
    if cloudevent::is_json(kind) && !payload.is_empty() {
        if !is_json_text(&payload) {
            return Err(fault("data", "is not JSON, as its datacontenttype says"));
        }
        json::check_depth(json::utf8(&payload)?).map_err(|problem| problem.at("data"))?;
    }
    let attributes = context.attributes();
    Event::check_attributes(&attributes)
        .map_err(|e| Problem::new(codes::INVALID_CLOUDEVENT, e.to_string()))?;
    let mut publish = Publish {
        topic,
        event_type: EventType::new(&context.event_type).map_err(named("type"))?,
        attributes,
        key: key.transpose()?,
        content_type: kind.to_owned(),
        payload,
        idempotency: None,
        // So it can be found by what its publisher calls it.
        publisher_id: IdempotencyKey::new(&context.id).ok(),
        deliver_at: None,
        retention: None,
        trace: match context.extensions.get(cloudevent::TRACEPARENT) {
            Some(Scalar::Text(text)) => TraceContext::parse(text),
            _ => None,
        },
    };
    // Two CloudEvents with the same source and id are the same.
    let names = fingerprint(&[context.source.as_bytes(), context.id.as_bytes()]);
    let key = format!("ce:{}", Encoding::Hex.encode(&names));
    let key = IdempotencyKey::new(&key).expect("hexadecimal digits are printable");
    publish.idempotency = Some(Idempotency { key, fingerprint: publish.fingerprint() });
    Ok(publish)
}
