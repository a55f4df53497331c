//! What a request looks like.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::{self, Deserializer};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::{PolicyError, headers, refuse};
use crate::Template;

/// What a request looks like, before authentication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestPolicy {
    /// The HTTP method.
    pub method: Method,
    /// What the body is.
    pub body: BodySource,
    /// Appended to the path of the subscription's URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Template>,
    /// A path for each family of events (the type up to its first dot), appended to the path of the
    /// subscription's URL, or `off`. `*` stands for every other family. If any family is given,
    /// events of other families are not sent.
    #[serde(default)]
    pub families: BTreeMap<String, FamilyPath>,
    /// Query parameters, added to those of the URL.
    #[serde(default)]
    pub query: BTreeMap<String, Template>,
    /// Headers; a header whose template has no value for this event is left out when its name ends
    /// in `?`.
    #[serde(default)]
    pub headers: BTreeMap<String, Template>,
    /// The media type of the form to send, for events with several forms; the first form when
    /// absent. An event without this form is not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternative: Option<String>,
    /// The media type of the body; the event's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The `User-Agent`; Posthorn's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// Whether requests carry the event's type and topic in the headers `posthorn-event-type` and
    /// `posthorn-topic`.
    #[serde(default)]
    pub event_headers: bool,
    /// What the payload is wrapped in.
    #[serde(default)]
    pub envelope: Envelope,
    /// The `source` of CloudEvents, for events that were not published as CloudEvents;
    /// `/topics/{event.topic}` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Template>,
    /// How the receiver is asked for permission when the subscription is saved.
    #[serde(default)]
    pub handshake: Handshake,
    /// Whether requests carry the trace of their event in the header `traceparent`.
    #[serde(default)]
    pub traceparent: TraceHeader,
}

/// What the payload is wrapped in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Envelope {
    /// Nothing: the payload is the body, byte for byte.
    #[default]
    None,
    /// A JSON object with `type`, `timestamp` and `data`, as Standard Webhooks recommends.
    StandardWebhooks,
    /// A CloudEvent as one JSON document.
    CloudeventsStructured,
    /// A CloudEvent in `ce-` headers; the payload is the body, byte for byte.
    CloudeventsBinary,
    /// An operational event in the words of the Svix API. Other events go out as they are.
    SvixOperational,
}

/// How the receiver is asked for permission when the subscription is saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Handshake {
    /// Not at all.
    #[default]
    None,
    /// With an OPTIONS request, as the CloudEvents webhook specification has it.
    Cloudevents,
}

/// Whether requests carry the trace of their event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum TraceHeader {
    /// No: how a publisher traces its requests is not told to receivers.
    #[default]
    None,
    /// As W3C Trace Context has it, when the event has a trace.
    Send,
}

/// Where events of one family go.
#[derive(Clone, Debug, PartialEq)]
pub enum FamilyPath {
    /// To this path, which begins with `/`.
    Path(Template),
    /// Nowhere: such an event leads to no delivery.
    Off,
}

impl FamilyPath {
    pub(super) fn template(&self) -> Option<&Template> {
        match self {
            Self::Path(template) => Some(template),
            Self::Off => None,
        }
    }
}

impl Serialize for FamilyPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.template().map_or("off", Template::source))
    }
}

impl<'de> Deserialize<'de> for FamilyPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wrong = || de::Error::custom("the path of a family must begin with `/`, or be `off`");
        match serde_json::Value::deserialize(deserializer)? {
            // Some readers of YAML take a bare `off` for false.
            serde_json::Value::Bool(false) => Ok(Self::Off),
            serde_json::Value::String(text) if text == "off" => Ok(Self::Off),
            serde_json::Value::String(text) if text.starts_with('/') => {
                text.parse().map(Self::Path).map_err(de::Error::custom)
            }
            _ => Err(wrong()),
        }
    }
}

/// What a policy says about events of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Route<'a> {
    /// It does not ask for families.
    Any,
    /// They have a path of their own.
    Path(&'a Template),
    /// They are not wanted.
    Off,
    /// It knows no such family.
    Unknown,
}

/// The HTTP method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
pub enum Method {
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// GET, always without a body.
    Get,
}

impl Method {
    /// As on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Get => "GET",
        }
    }
}

/// What the body of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum BodySource {
    /// The event's payload, byte for byte.
    Payload,
    /// Nothing.
    Empty,
}

/// The name of a header, without the mark that it may be left out.
pub(super) fn bare_name(name: &str) -> &str {
    name.strip_suffix('?').unwrap_or(name)
}

impl RequestPolicy {
    /// Where events of a family go.
    pub fn route(&self, family: &str) -> Route<'_> {
        if self.families.is_empty() {
            return Route::Any;
        }
        match self.families.get(family).or_else(|| self.families.get("*")) {
            Some(FamilyPath::Path(template)) => Route::Path(template),
            Some(FamilyPath::Off) => Route::Off,
            None => Route::Unknown,
        }
    }

    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        if self.method == Method::Get && self.body != BodySource::Empty {
            return refuse("request.body", "must be empty with method GET");
        }
        if self.path.is_some() && !self.families.is_empty() {
            return refuse("request.families", "already gives the paths; leave request.path out");
        }
        for family in self.families.keys() {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':' | '/');
            let name = (1..=128).contains(&family.len()) && family.chars().all(plain);
            if !name && family != "*" {
                let problem = "is not a family: the part of an event's type before its first dot";
                return refuse("request.families", format!("`{family}` {problem}, or `*`"));
            }
        }
        for (name, template) in &self.headers {
            let path = format!("request.headers.{name}");
            headers::at(&path, headers::check_name(bare_name(name)))?;
            headers::at(&path, headers::check_value(template.source()))?;
        }
        self.validate_envelope()?;
        for (path, text) in [
            ("request.alternative", &self.alternative),
            ("request.content_type", &self.content_type),
            ("request.user_agent", &self.user_agent),
        ] {
            if let Some(text) = text {
                headers::at(path, headers::check_value(text))?;
                if text.trim().is_empty() {
                    return refuse(path, "must not be empty");
                }
            }
        }
        Ok(())
    }

    fn validate_envelope(&self) -> Result<(), PolicyError> {
        if self.envelope != Envelope::None && self.body == BodySource::Empty {
            return refuse("request.envelope", "needs request.body to be payload");
        }
        let decides = matches!(
            self.envelope,
            Envelope::StandardWebhooks
                | Envelope::CloudeventsStructured
                | Envelope::SvixOperational
        );
        if decides && self.content_type.is_some() {
            let problem = "must be absent with this request.envelope, which has its own";
            return refuse("request.content_type", problem);
        }
        if let Some(source) = &self.source {
            // Braces and bars are those of placeholders; what these stand for is percent-encoded.
            let fine = |b: u8| matches!(b, b'!'..=b'~') && !b"\"<>\\^`".contains(&b);
            if source.source().is_empty() || !source.source().bytes().all(fine) {
                let problem = "must be a URI reference such as https://example.com/shop: visible \
                               ASCII without spaces and \"<>\\^`";
                return refuse("request.source", problem);
            }
        }
        Ok(())
    }
}
