//! What is said when something is wrong: the problem documents that clients of the ZGW APIs read.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use posthorn_engine::{Error, Refused};
use serde::Serialize;
use serde_json::{Map, Value};

use super::authentication::CLIENT;
use super::uuid::Uuid;

pub(crate) const PROBLEM: &str = "application/problem+json";

/// How long those are asked to wait who are not served for a passing reason.
const WAIT_SECONDS: u32 = 5;

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fault {
    /// Where: camelCase, dotted, list items by their index.
    pub(crate) name: String,
    pub(crate) code: &'static str,
    /// For people.
    pub(crate) reason: String,
}

impl Fault {
    pub(crate) fn new(
        name: impl Into<String>,
        code: &'static str,
        reason: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), code, reason: reason.into() }
    }
}

/// What goes with errors that belong to no field.
pub(crate) const NO_FIELD: &str = "nonFieldErrors";

/// A request that is not answered as its client hoped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// The name of the exception that stands at the end of `type`.
    exception: &'static str,
    pub(crate) code: &'static str,
    title: &'static str,
    detail: String,
    pub(crate) faults: Option<Vec<Fault>>,
    allow: Option<&'static str>,
    /// In seconds; zero for problems that waiting does not help against.
    retry_after: u32,
}

impl Problem {
    fn new(
        status: StatusCode,
        exception: &'static str,
        code: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            status,
            exception,
            code,
            title,
            detail: detail.into(),
            faults: None,
            allow: None,
            retry_after: 0,
        }
    }

    /// Fields that do not hold what they should.
    pub(crate) fn invalid(faults: Vec<Fault>) -> Self {
        let text = "Invalid input.";
        let bad = StatusCode::BAD_REQUEST;
        let problem = Self::new(bad, "ValidationError", "invalid", text, text);
        Self { faults: Some(faults), ..problem }
    }

    /// One such field.
    pub(crate) fn field(
        name: impl Into<String>,
        code: &'static str,
        reason: impl Into<String>,
    ) -> Self {
        Self::invalid(vec![Fault::new(name, code, reason)])
    }

    /// Not JSON, or not as it should be.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        let bad = StatusCode::BAD_REQUEST;
        Self::new(bad, "ParseError", "parse_error", "Malformed request.", detail)
    }

    /// Somebody who may not, whyever.
    pub(crate) fn forbidden(code: &'static str, detail: impl Into<String>) -> Self {
        let title = "You do not have permission to perform this action.";
        Self::new(StatusCode::FORBIDDEN, "PermissionDenied", code, title, detail)
    }

    pub(crate) fn not_found() -> Self {
        let text = "Not found.";
        Self::new(StatusCode::NOT_FOUND, "NotFound", "not_found", text, text)
    }

    /// Others changed the same thing, again and again.
    pub(crate) fn conflict() -> Self {
        let detail = "It was changed by others at the same time. Nothing was done; try again.";
        Self::new(StatusCode::CONFLICT, "Conflict", "conflict", "Conflict.", detail)
    }

    pub(crate) fn method(method: &http::Method, allow: &'static str) -> Self {
        let detail = format!("Method \"{method}\" not allowed.");
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let title = "Method not allowed.";
        let problem = Self::new(status, "MethodNotAllowed", "method_not_allowed", title, detail);
        Self { allow: Some(allow), ..problem }
    }

    pub(crate) fn not_acceptable(offered: &str) -> Self {
        let title = "Could not satisfy the request Accept header.";
        let detail = format!("{title} This is answered as {offered}.");
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", "not_acceptable", title, detail)
    }

    pub(crate) fn media_type(detail: impl Into<String>) -> Self {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let title = "Unsupported media type in request.";
        Self::new(status, "UnsupportedMediaType", "unsupported_media_type", title, detail)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let detail = format!("The body may have at most {limit} bytes.");
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        Self::new(status, "RequestTooLarge", "request_too_large", "Request too large.", detail)
    }

    /// The body is not too large, but what it becomes beside it is.
    pub(crate) fn too_large_as_cloudevent(size: usize, limit: usize) -> Self {
        let detail = format!(
            "As a CloudEvent the message has {size} bytes, and at most {limit} are allowed; make it \
             smaller, or leave out its source."
        );
        Self { detail, ..Self::too_large(limit) }
    }

    pub(crate) fn too_slow() -> Self {
        let detail = "The body did not arrive in time.";
        let status = StatusCode::REQUEST_TIMEOUT;
        Self::new(status, "RequestTimeout", "request_timeout", "Request timed out.", detail)
    }

    pub(crate) fn throttled(detail: impl Into<String>, wait_seconds: u32) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        let title = "Request was throttled.";
        let problem = Self::new(status, "Throttled", "throttled", title, detail);
        Self { retry_after: wait_seconds.max(1), ..problem }
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let title = "Service temporarily unavailable.";
        let problem = Self::new(status, "ServiceUnavailable", "service_unavailable", title, detail);
        Self { retry_after: WAIT_SECONDS, ..problem }
    }

    fn defect(detail: &Error) -> Self {
        tracing::error!(error = %detail, "the engine gave an unexpected result; this is a defect");
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        let title = "A server error occurred.";
        Self::new(status, "APIException", "error", title, "Internal Server Error")
    }

    /// The response. `site` is scheme and authority, as the client knows them.
    pub(crate) fn respond(&self, site: &str, instance: Uuid) -> Response {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Document<'a> {
            r#type: String,
            code: &'a str,
            title: &'a str,
            status: u16,
            detail: &'a str,
            instance: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            invalid_params: Option<&'a [Fault]>,
        }
        let document = Document {
            r#type: format!("{site}/ref/fouten/{}/", self.exception),
            code: self.code,
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            instance: format!("urn:uuid:{instance}"),
            invalid_params: self.faults.as_deref(),
        };
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = plain(self.status, PROBLEM, body);
        let headers = response.headers_mut();
        if let Some(methods) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        }
        if self.retry_after > 0 {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(self.retry_after));
        }
        response
    }
}

/// A wait in whole seconds, as `Retry-After` says it; never too short.
pub(crate) fn seconds(wait: Duration) -> u32 {
    u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1)
}

/// A response with a body.
pub(crate) fn plain(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The faults of a published message as this one endpoint has always said them: a map from fields to
/// messages, without an envelope.
pub(crate) fn bare(faults: &[Fault]) -> Value {
    let mut all = Map::new();
    for fault in faults {
        let mut names: Vec<&str> = fault.name.splitn(2, '.').collect();
        let last = names.pop().unwrap_or_default();
        let place = match names.first() {
            None => &mut all,
            Some(outer) => {
                let inner = all.entry(*outer).or_insert_with(|| Value::Object(Map::new()));
                match inner {
                    Value::Object(inner) => inner,
                    // The field as a whole is at fault already.
                    _ => continue,
                }
            }
        };
        match place.entry(last).or_insert_with(|| Value::Array(Vec::new())) {
            Value::Array(messages) => messages.push(fault.reason.clone().into()),
            _ => continue,
        }
    }
    Value::Object(all)
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Overloaded => Self::unavailable(
                "Notifications come faster than they can be stored. Nothing was done; try again.",
            ),
            Refused::Quota { pending, quota } => Self::throttled(
                format!("There are {pending} unfinished deliveries of the {quota} allowed."),
                WAIT_SECONDS,
            ),
            Refused::DiskFull => {
                Self::unavailable("The server's disk is nearly full. Nothing was done.")
            }
        }
    }
}

impl From<Error> for Problem {
    /// What the engine says no to, where the handler has nothing better to say.
    fn from(error: Error) -> Self {
        match error {
            // Of a tenant that is being deleted nothing is there any more.
            Error::NotFound(_) | Error::TenantDeleted => Self::not_found(),
            Error::TooMany { what, wait } => Self::throttled(what, seconds(wait)),
            Error::Store(posthorn_store::Error::DiskFull { .. }) => {
                Self::unavailable("The server's disk is full. Nothing was done.")
            }
            Error::Busy(_) | Error::Store(_) => {
                // The engine has said so, for all of them together.
                tracing::debug!(%error, "a request could not be served");
                Self::unavailable("The server cannot do this right now; try again.")
            }
            // Deleted natively, or made, between two steps of one request.
            Error::Changed { .. } | Error::UnknownTopic(_) | Error::AlreadyExists(_) => {
                Self::conflict()
            }
            Error::PayloadTooLarge { limit, .. } => Self::too_large(limit),
            Error::Url(problem) => {
                Self::field("callbackUrl", "invalid-callback-url", problem.message)
            }
            Error::Secret { problem, .. } => Self::field("auth", "invalid", problem),
            Error::SecretRequired { names, .. } => {
                let client = names.iter().any(|name| name.as_str() == CLIENT);
                let field = if client { "secret" } else { "auth" };
                let reason = "The callback or the token server has changed: give its credentials \
                              again, with authType unless it is api_key.";
                Self::field(field, "required", reason)
            }
            Error::Filter(problem) => Self::field("kanalen", "invalid", problem.to_string()),
            Error::Policy(problem) => Self::field(NO_FIELD, "invalid", problem.to_string()),
            Error::Certificate { problem, .. } => {
                Self::field("clientCertificate", "invalid", problem)
            }
            Error::TopicReserved(_) | Error::TenantReserved => {
                Self::field("kanaal", "topic_reserved", error.to_string())
            }
            Error::MatchingTooCostly { .. }
            | Error::FanOut { .. }
            | Error::CatalogFull { .. }
            | Error::UnknownType { .. }
            | Error::Payload { .. }
            | Error::Schema { .. }
            | Error::TooLong { .. } => Self::field(NO_FIELD, "invalid", error.to_string()),
            Error::Event { problem, .. } => Self::field("kenmerken", "invalid", problem),
            other => Self::defect(&other),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What a realm refuses is the publisher's affair, and no defect.
    #[test]
    fn what_a_realm_refuses_is_the_callers() {
        let name = || posthorn_domain::EventType::new("zaak.create").expect("a name");
        let realm = posthorn_domain::RealmName::default();
        let path = "/kenmerken".to_owned();
        for (error, status) in [
            (Error::UnknownType { name: name(), realm }, StatusCode::BAD_REQUEST),
            (
                Error::Payload { name: name(), path, problem: "is odd".to_owned() },
                StatusCode::BAD_REQUEST,
            ),
            (Error::TenantDeleted, StatusCode::NOT_FOUND),
        ] {
            let says = error.to_string();
            let problem = Problem::from(error);
            assert_eq!(problem.status, status, "{says}");
            if let Some(faults) = &problem.faults {
                assert!(format!("{faults:?}").contains("zaak.create"), "{faults:?}");
            }
        }
    }

    #[test]
    fn bare_faults_are_a_map_of_messages() {
        let faults = [
            Fault::new("kanaal", "required", "a"),
            Fault::new("kanaal", "blank", "b"),
            Fault::new("kenmerken.x.y", "invalid", "c"),
            Fault::new("kenmerken.z", "invalid", "d"),
            Fault::new("actie", "required", "e"),
            Fault::new("actie.x", "required", "f"),
        ];
        let expected = json!({"kanaal": ["a", "b"], "kenmerken": {"x.y": ["c"], "z": ["d"]},
            "actie": ["e"]});
        assert_eq!(bare(&faults), expected);
    }
}
