//! What a request looks like.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{HEADER_VALUE_BYTES_MAX, HEADERS_MAX, PolicyError, refuse};
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

/// Headers nobody may set: they belong to the connection, to us, or unlock metadata services.
const RESERVED: [&str; 24] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "content-encoding",
    "accept-encoding",
    "via",
    "forwarded",
    "proxy-authorization",
    "proxy-authenticate",
    "proxy-connection",
    "metadata",
    "metadata-flavor",
    "x-aws-ec2-metadata-token",
    "x-aws-ec2-metadata-token-ttl-seconds",
    "x-google-metadata-request",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
];

fn header_problem(name: &str) -> Option<&'static str> {
    let bare = name.strip_suffix('?').unwrap_or(name);
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if bare.is_empty() || bare.len() > 64 || !bare.bytes().all(token) {
        return Some("is not a header name of at most 64 characters");
    }
    let lower = bare.to_ascii_lowercase();
    if RESERVED.contains(&lower.as_str()) || lower.starts_with("x-forwarded-") {
        return Some("is reserved and cannot be set");
    }
    None
}

impl RequestPolicy {
    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        if self.method == Method::Get && self.body != BodySource::Empty {
            return refuse("request.body", "must be empty with method GET");
        }
        if self.headers.len() > HEADERS_MAX {
            return refuse("request.headers", format!("at most {HEADERS_MAX} are allowed"));
        }
        for (name, template) in &self.headers {
            if let Some(problem) = header_problem(name) {
                return refuse(&format!("request.headers.{name}"), problem);
            }
            let text = template.source();
            let printable = |byte: u8| byte == b'\t' || (0x20..0x7F).contains(&byte);
            if text.len() > HEADER_VALUE_BYTES_MAX || !text.bytes().all(printable) {
                return refuse(
                    &format!("request.headers.{name}"),
                    format!(
                        "must be one line of at most {HEADER_VALUE_BYTES_MAX} printable ASCII \
                         characters"
                    ),
                );
            }
        }
        for (path, text) in
            [("request.content_type", &self.content_type), ("request.user_agent", &self.user_agent)]
        {
            if text.as_ref().is_some_and(|t| t.is_empty() || t.chars().any(char::is_control)) {
                return refuse(path, "must be one line of text");
            }
        }
        Ok(())
    }
}
