//! What a request looks like.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{PolicyError, headers, refuse};
use crate::Template;

/// What a request looks like, before authentication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestPolicy {
    /// The HTTP method.
    pub method: Method,
    /// What the body is.
    pub body: BodySource,
    /// Appended to the path of the subscription's URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Template>,
    /// Query parameters, added to those of the URL.
    #[serde(default)]
    pub query: BTreeMap<String, Template>,
    /// Headers; a header whose template has no value for this event is left out when its name ends
    /// in `?`.
    #[serde(default)]
    pub headers: BTreeMap<String, Template>,
    /// Which form of an event with several is sent, by its media type; the first one when absent.
    /// An event without this form is not sent. See [`crate::alternatives`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternative: Option<String>,
    /// The media type of the body; the event's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The `User-Agent`; Posthorn's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
}

/// The HTTP method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        if self.method == Method::Get && self.body != BodySource::Empty {
            return refuse("request.body", "must be empty with method GET");
        }
        for (name, template) in &self.headers {
            let path = format!("request.headers.{name}");
            headers::at(&path, headers::check_name(bare_name(name)))?;
            headers::at(&path, headers::check_value(template.source()))?;
        }
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
}
