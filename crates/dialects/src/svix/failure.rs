//! What goes wrong, as this API says it: always a JSON object, whatever the status, because its clients read every
//! answer as one.

use std::time::Duration;

use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use posthorn_access::Denied;
use posthorn_engine::Error;
use posthorn_listener::BodyError;
use serde_json::{Value, json};

use super::call::json;

/// Why a request is not served.
#[derive(Debug)]
pub(super) enum Failure {
    /// Without a token that opens anything.
    Unauthorized,
    /// With a token that does not open this.
    Forbidden,
    /// There is no such thing, or it is somebody else's.
    NotFound,
    /// Something else has this name.
    Conflict { code: &'static str, detail: String },
    /// A part of the request is wrong; each place with what is wrong there.
    Invalid(Vec<Wrong>),
    /// The request as a whole cannot be served.
    Refused { status: StatusCode, code: &'static str, detail: String },
    /// Too much, too often, or not now: try again later.
    Later { status: StatusCode, detail: String, wait: Option<Duration> },
}

/// One thing that is wrong with a request.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Where: `body`, `query` or `path`, then the names on the way.
    pub(super) place: Vec<String>,
    pub(super) problem: String,
    pub(super) kind: &'static str,
}

/// A value that may not be.
pub(super) const VALUE: &str = "value_error";
/// A body that cannot be read as what it should be.
pub(super) const SHAPE: &str = "value_error.jsondecode";

impl Failure {
    /// A field of the body has a value that may not be.
    pub(super) fn field(name: &str, problem: impl Into<String>) -> Self {
        Self::at(&["body", name], problem, VALUE)
    }

    pub(super) fn at(place: &[&str], problem: impl Into<String>, kind: &'static str) -> Self {
        let place = place.iter().map(|part| (*part).to_owned()).collect();
        Self::Invalid(vec![Wrong { place, problem: problem.into(), kind }])
    }

    /// The body is not what it should be.
    pub(super) fn shape(problem: impl Into<String>) -> Self {
        Self::at(&["body"], problem, SHAPE)
    }

    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self::Conflict { code: "conflict", detail: detail.into() }
    }

    pub(super) fn bad_request(code: &'static str, detail: impl Into<String>) -> Self {
        Self::Refused { status: StatusCode::BAD_REQUEST, code, detail: detail.into() }
    }

    pub(super) fn not_implemented(what: &str) -> Self {
        let detail = format!("Posthorn does not have {what}.");
        Self::Refused { status: StatusCode::NOT_IMPLEMENTED, code: "not_implemented", detail }
    }

    pub(super) fn respond(self) -> Response {
        let plain = |status, code: &str, detail: &str| {
            json(status, &json!({"code": code, "detail": detail}))
        };
        match self {
            Self::Unauthorized => {
                plain(StatusCode::UNAUTHORIZED, "authentication_failed", "Invalid token")
            }
            Self::Forbidden => {
                let detail = "This token does not allow this.";
                plain(StatusCode::FORBIDDEN, "insufficient access", detail)
            }
            Self::NotFound => plain(StatusCode::NOT_FOUND, "not_found", "Entity not found"),
            Self::Conflict { code, detail } => plain(StatusCode::CONFLICT, code, &detail),
            Self::Invalid(all) => {
                let detail: Vec<Value> = all
                    .into_iter()
                    .map(|Wrong { place, problem, kind }| {
                        json!({"loc": place, "msg": problem, "type": kind})
                    })
                    .collect();
                json(StatusCode::UNPROCESSABLE_ENTITY, &json!({"detail": detail}))
            }
            Self::Refused { status, code, detail } => plain(status, code, &detail),
            Self::Later { status, detail, wait } => {
                let code = match status {
                    StatusCode::TOO_MANY_REQUESTS => "rate_limited",
                    _ => "unavailable",
                };
                let mut response = plain(status, code, &detail);
                let seconds = wait.map(|wait| wait.as_secs_f64().ceil() as u64);
                if let Some(seconds) = seconds {
                    let value = HeaderValue::from(seconds.max(1));
                    response.headers_mut().insert(header::RETRY_AFTER, value);
                }
                response
            }
        }
    }
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        let slow = |wait| {
            let detail = "Too many requests; slow down.".to_owned();
            Self::Later { status: StatusCode::TOO_MANY_REQUESTS, detail, wait: Some(wait) }
        };
        match denied {
            Denied::Unknown => Self::Unauthorized,
            Denied::TooManyFailures(wait) | Denied::RateLimited(wait) => slow(wait),
            Denied::Scope(_) | Denied::NoTenant | Denied::TenantNeeded => Self::Forbidden,
            Denied::UnknownTenant | Denied::TenantDeleted => Self::NotFound,
        }
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge { limit } => Self::Refused {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                code: "payload_too_large",
                detail: format!("The body may have at most {limit} bytes."),
            },
            BodyError::TooSlow { .. } => Self::Refused {
                status: StatusCode::REQUEST_TIMEOUT,
                code: "timeout",
                detail: error.to_string(),
            },
            BodyError::ShareTaken => Self::Later {
                status: StatusCode::TOO_MANY_REQUESTS,
                detail: error.to_string(),
                wait: Some(Duration::from_secs(1)),
            },
            BodyError::NoRoom => Self::Later {
                status: StatusCode::SERVICE_UNAVAILABLE,
                detail: error.to_string(),
                wait: Some(Duration::from_secs(1)),
            },
            other => Self::shape(other.to_string()),
        }
    }
}

impl From<posthorn_store::Error> for Failure {
    fn from(error: posthorn_store::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::NotFound(_) | Error::TenantDeleted => Self::NotFound,
            Error::AlreadyExists(_) | Error::InUse(_) | Error::Changed { .. } => {
                Self::conflict(text)
            }
            Error::Url(_) => Self::field("url", text),
            Error::PayloadTooLarge { .. } => Self::Refused {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                code: "payload_too_large",
                detail: text,
            },
            Error::Secret { .. } | Error::SecretKind(_) => Self::field("secret", text),
            Error::Overlap { .. } => Self::field("gracePeriodSeconds", text),
            Error::Schema { .. } => Self::field("schemas", text),
            Error::Filter(_) => Self::field("eventTypes", text),
            Error::Policy(_) => Self::shape(text),
            Error::Event { field, .. } => Self::field(field, text),
            Error::HistoryNotKept { .. } => Self::field("since", text),
            Error::Payload { .. } | Error::UnknownType { .. } => Self::field("payload", text),
            Error::Expunged => Self::bad_request("missing_payload", text),
            Error::TooMany { wait, .. } => Self::Later {
                status: StatusCode::TOO_MANY_REQUESTS,
                detail: text,
                wait: Some(wait),
            },
            Error::Busy(_) => {
                Self::Later { status: StatusCode::SERVICE_UNAVAILABLE, detail: text, wait: None }
            }
            Error::Store(error) => of_store(&error),
            _ => Self::Refused { status: StatusCode::BAD_REQUEST, code: "refused", detail: text },
        }
    }
}

/// What the store's trouble is called outside. Its causes go to the log and nowhere else.
fn of_store(error: &posthorn_store::Error) -> Failure {
    use posthorn_store::Error as Store;
    tracing::debug!(%error, "a request failed in the store");
    let detail = match error {
        Store::Unavailable { .. } => "The store cannot be reached; nothing was done.",
        Store::DiskFull { .. } => "The disk is full; nothing was done.",
        Store::Unknown { .. } => "The change may or may not have been made; repeat the request.",
        Store::Fatal { .. } | Store::Refused(_) => {
            tracing::error!(%error, "a request failed; the store needs attention");
            let detail = "Internal error; see the server's log.".to_owned();
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            return Failure::Refused { status, code: "internal", detail };
        }
    };
    let status = StatusCode::SERVICE_UNAVAILABLE;
    Failure::Later { status, detail: detail.to_owned(), wait: None }
}
