//! CloudEvents 1.0: what a CloudEvent is, as JSON ([`json`]) and as headers ([`headers`]), and how it
//! becomes one of our events and comes out again.
//!
//! # Theory of operation
//! A CloudEvent is a [`Context`] (its attributes) and data. When one is accepted, its type becomes the event's
//! type and its data the payload; what else is in the context is kept in the event's attributes
//! ([`Context::attributes`]): extensions and `subject` by their own names, so that filters can use them, and
//! what says which CloudEvent it was by names that begin with `ce-`. [`Context::of_event`] is the way back.
//! An event that was never a CloudEvent goes the same way out, with its own id and time.
//!
//! # What it must not know
//! Requests, and where a topic or an idempotency key comes from.

pub mod headers;
pub mod json;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::limits::{ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX};
use crate::{Event, Timestamp};

/// The media type of one CloudEvent as JSON.
pub const MEDIA_TYPE: &str = "application/cloudevents+json";
/// The media type of several.
pub const BATCH_MEDIA_TYPE: &str = "application/cloudevents-batch+json";
/// The version that is spoken here.
pub const SPEC_VERSION: &str = "1.0";
/// How headers of the binary mode begin, and attributes of events that keep a part of a context.
pub const HEADER_PREFIX: &str = "ce-";
/// The media type of data that does not say.
pub const DATA_TYPE_DEFAULT: &str = "application/json";
/// The extension that names the topic of an event that is published.
pub const TOPIC: &str = "topic";
/// The extension that is the key of ordered lanes, as the extension "partitioning" has it.
pub const PARTITION_KEY: &str = "partitionkey";
/// The extension that says which trace an event belongs to (the extension for distributed tracing).
pub const TRACEPARENT: &str = "traceparent";

/// Attributes of events that keep a part of a context.
const KEPT_ID: &str = "ce-id";
const KEPT_SOURCE: &str = "ce-source";
const KEPT_TIME: &str = "ce-time";
const KEPT_SCHEMA: &str = "ce-dataschema";
/// Names of extensions that were JSON numbers or booleans, separated by commas.
const KEPT_TYPED: &str = "ce-typed";
const SUBJECT: &str = "subject";

/// What the specification calls attributes itself, besides extensions; and what no extension may be called.
const OWN: [&str; 10] = [
    "specversion",
    "id",
    "source",
    "type",
    "time",
    SUBJECT,
    "datacontenttype",
    "dataschema",
    "data",
    "data_base64",
];

/// What is wrong with a CloudEvent, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{attribute}: {problem}")]
pub struct Fault {
    /// The attribute at fault, as the specification calls it.
    pub attribute: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

fn fault<T>(attribute: &str, problem: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { attribute: attribute.to_owned(), problem: problem.into() })
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A text, or what is written as one: URIs, times, bytes.
    Text(String),
    /// A boolean.
    Boolean(bool),
    /// A number of 32 bits, as the specification has it.
    Integer(i32),
}

impl Scalar {
    /// As in a header.
    fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Boolean(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
        }
    }
}

/// The attributes of a CloudEvent, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Unique together with the source.
    pub id: String,
    /// Where it happened, a URI reference.
    pub source: String,
    /// What happened.
    pub event_type: String,
    /// When it happened, RFC 3339 as its producer wrote it.
    pub time: Option<String>,
    /// What it happened to.
    pub subject: Option<String>,
    /// The media type of the data.
    pub data_content_type: Option<String>,
    /// The schema of the data, a URI.
    pub data_schema: Option<String>,
    /// Everything else.
    pub extensions: BTreeMap<String, Scalar>,
}

/// A context in the making: attributes come one by one.
#[derive(Default)]
struct Draft {
    own: BTreeMap<&'static str, String>,
    extensions: BTreeMap<String, Scalar>,
}

impl Draft {
    fn take(&mut self, name: &str, value: Scalar) -> Result<(), Fault> {
        let repeated = if let Some(own) = OWN.into_iter().find(|own| *own == name) {
            let Scalar::Text(text) = value else { return fault(name, "must be a text") };
            check_text(name, &text)?;
            self.own.insert(own, text).is_some()
        } else {
            if !is_name(name) {
                return fault(name, "is not a name: attributes consist of a-z and 0-9 only");
            }
            if name.len() > ATTRIBUTE_NAME_BYTES_MAX {
                let most = format!("the name must be at most {ATTRIBUTE_NAME_BYTES_MAX} bytes");
                return fault(name, most);
            }
            if let Scalar::Text(text) = &value {
                check_text(name, text)?;
            }
            self.extensions.insert(name.to_owned(), value).is_some()
        };
        if repeated { fault(name, "is given more than once") } else { Ok(()) }
    }

    fn required(&mut self, name: &'static str) -> Result<String, Fault> {
        match self.own.remove(name) {
            Some(text) if !text.is_empty() => Ok(text),
            Some(_) => fault(name, "must not be empty"),
            None => fault(name, "is required"),
        }
    }

    fn optional(&mut self, name: &'static str) -> Result<Option<String>, Fault> {
        match self.own.remove(name) {
            Some(text) if text.is_empty() => fault(name, "must not be empty; leave it out"),
            other => Ok(other),
        }
    }

    fn finish(mut self) -> Result<Context, Fault> {
        let version = self.required("specversion")?;
        if version != SPEC_VERSION {
            return fault("specversion", format!("must be {SPEC_VERSION}, the only known version"));
        }
        let (id, source) = (self.required("id")?, self.required("source")?);
        let event_type = self.required("type")?;
        if source.chars().any(char::is_whitespace) {
            return fault("source", "must be a URI reference, without spaces");
        }
        let time = self.optional("time")?;
        if time.as_deref().is_some_and(|time| !is_time(time)) {
            return fault("time", "must be RFC 3339, such as 2026-01-31T12:00:00Z");
        }
        let subject = self.optional(SUBJECT)?;
        let data_content_type = self.optional("datacontenttype")?;
        if data_content_type.as_deref().is_some_and(|kind| !is_media_type(kind)) {
            return fault("datacontenttype", "must be a media type such as application/json");
        }
        let data_schema = self.optional("dataschema")?;
        if data_schema.as_deref().is_some_and(|schema| !is_uri(schema)) {
            return fault("dataschema", "must be an absolute URI");
        }
        let extensions = self.extensions;
        Ok(Context {
            id,
            source,
            event_type,
            time,
            subject,
            data_content_type,
            data_schema,
            extensions,
        })
    }
}

/// Lower-case letters and digits of ASCII.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

fn check_text(name: &str, text: &str) -> Result<(), Fault> {
    if text.len() > ATTRIBUTE_VALUE_BYTES_MAX {
        return fault(name, format!("must be at most {ATTRIBUTE_VALUE_BYTES_MAX} bytes"));
    }
    if !is_text(text) {
        return fault(name, "must not contain control characters");
    }
    Ok(())
}

/// No control characters, and none of the code points that are no characters.
fn is_text(text: &str) -> bool {
    let none = |c: char| matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe;
    !text.chars().any(|c| c.is_control() || none(c))
}

/// Dates and times may be written in more ways than RFC 3339 has; others read only that.
fn is_time(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_digit() || b"-:.+TtZz".contains(&b);
    let whole = text.as_bytes().get(10).is_some_and(|b| b.eq_ignore_ascii_case(&b'T'));
    whole && text.len() >= 20 && text.bytes().all(plain) && text.parse::<Timestamp>().is_ok()
}

fn is_uri(text: &str) -> bool {
    let scheme = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    let (before, after) = text.split_once(':').unwrap_or_default();
    before.starts_with(|c: char| c.is_ascii_alphabetic())
        && before.bytes().all(scheme)
        && !after.is_empty()
        && !after.contains(char::is_whitespace)
}

/// Longest media type.
const MEDIA_TYPE_BYTES_MAX: usize = 255;

fn is_media_type(text: &str) -> bool {
    text.len() <= MEDIA_TYPE_BYTES_MAX
        && text.bytes().all(|b| matches!(b, b' '..=b'~'))
        && text.split_once('/').is_some_and(|(kind, sub)| !kind.is_empty() && !sub.is_empty())
}

/// A media type without its parameters, in lower case.
fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether data of a media type is JSON by its name: `…/json` or `…+json`.
pub fn is_json(media_type: &str) -> bool {
    let essence = essence(media_type);
    let sub = essence.split_once('/').map_or("", |(_, sub)| sub);
    sub == "json" || sub.ends_with("+json")
}

/// Whether data of a media type is text by its name.
fn is_textual(media_type: &str) -> bool {
    let essence = essence(media_type);
    essence.starts_with("text/") || essence.ends_with("/xml") || essence.ends_with("+xml")
}

/// Whether a media type is that of one CloudEvent as JSON.
pub fn is_structured(media_type: &str) -> bool {
    essence(media_type) == MEDIA_TYPE
}

impl Context {
    /// What an event keeps of it besides type, key and data.
    pub fn attributes(&self) -> BTreeMap<String, String> {
        let mut kept = BTreeMap::from([
            (KEPT_ID.to_owned(), self.id.clone()),
            (KEPT_SOURCE.to_owned(), self.source.clone()),
        ]);
        for (name, value) in
            [(KEPT_TIME, &self.time), (SUBJECT, &self.subject), (KEPT_SCHEMA, &self.data_schema)]
        {
            kept.extend(value.clone().map(|value| (name.to_owned(), value)));
        }
        let typed = self.extensions.iter().filter(|(_, value)| !matches!(value, Scalar::Text(_)));
        let typed: Vec<&str> = typed.map(|(name, _)| name.as_str()).collect();
        if !typed.is_empty() {
            kept.insert(KEPT_TYPED.to_owned(), typed.join(","));
        }
        kept.extend(self.extensions.iter().map(|(name, value)| (name.clone(), value.to_text())));
        kept
    }

    /// The context of an event, whose payload is sent with this media type. `source` is asked when the
    /// event was not published as a CloudEvent. Attributes that CloudEvents cannot have are left out.
    pub fn of_event<E>(
        event: &Event,
        media_type: &str,
        source: impl FnOnce() -> Result<String, E>,
    ) -> Result<Self, E> {
        let kept = |name: &str, fits: fn(&str) -> bool| {
            let value = event.attributes.get(name)?;
            (!value.is_empty() && is_text(value) && fits(value)).then(|| value.clone())
        };
        let typed = event.attributes.get(KEPT_TYPED).map_or("", String::as_str);
        let extensions = event.attributes.iter().filter_map(|(name, value)| {
            if !is_name(name) || OWN.contains(&name.as_str()) || !is_text(value) {
                return None;
            }
            let value = match typed.split(',').any(|typed| typed == name) {
                true => typed_scalar(value),
                false => Scalar::Text(value.clone()),
            };
            Some((name.clone(), value))
        });
        let source = match kept(KEPT_SOURCE, |text| !text.contains(char::is_whitespace)) {
            Some(source) => source,
            None => source()?,
        };
        Ok(Self {
            id: kept(KEPT_ID, |_| true).unwrap_or_else(|| event.id.to_string()),
            source,
            event_type: event.event_type.as_str().to_owned(),
            time: Some(kept(KEPT_TIME, is_time).unwrap_or_else(|| event.accepted_at.to_string())),
            subject: kept(SUBJECT, |_| true),
            data_content_type: (!event.payload.is_empty()).then(|| media_type.to_owned()),
            data_schema: kept(KEPT_SCHEMA, is_uri),
            extensions: extensions.collect(),
        })
    }
}

fn typed_scalar(value: &str) -> Scalar {
    match (value, value.parse()) {
        ("true", _) => Scalar::Boolean(true),
        ("false", _) => Scalar::Boolean(false),
        (_, Ok(number)) => Scalar::Integer(number),
        _ => Scalar::Text(value.to_owned()),
    }
}
