//! What goes wrong, in the shape that clients of Cedros know.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use serde_json::json;
use tracing::error;

/// Why a request is not served.
#[derive(Debug)]
pub(super) enum Failure {
    /// No valid key.
    Unauthorized,
    /// Too many requests without a valid key, or with this one; so long to be quiet.
    RateLimited(Duration),
    /// A valid key that may not do this.
    Forbidden(&'static str),
    /// There is no such webhook, or it is another tenant's.
    NotFound,
    /// A parameter cannot be read.
    Field { name: &'static str, problem: String },
    /// An attempt is under way, so that nothing can be done now.
    UnderWay,
    /// The payload was removed, so that there is nothing to send.
    Expunged,
    /// There is no such method here.
    WrongMethod(Method),
    /// The server is stopping or overloaded.
    Busy,
    /// The store failed.
    Store(String),
}

impl From<posthorn_store::Error> for Failure {
    fn from(error: posthorn_store::Error) -> Self {
        Self::from(posthorn_engine::Error::from(error))
    }
}

impl From<posthorn_engine::Error> for Failure {
    fn from(error: posthorn_engine::Error) -> Self {
        match error {
            posthorn_engine::Error::NotFound(_) | posthorn_engine::Error::TenantDeleted => {
                Self::NotFound
            }
            posthorn_engine::Error::Busy(_)
            | posthorn_engine::Error::Store(posthorn_store::Error::DiskFull { .. }) => Self::Busy,
            posthorn_engine::Error::TooMany { wait, .. } => Self::RateLimited(wait),
            posthorn_engine::Error::NotEnded | posthorn_engine::Error::Scheduled { .. } => {
                Self::UnderWay
            }
            posthorn_engine::Error::Expunged => Self::Expunged,
            other => Self::Store(other.to_string()),
        }
    }
}

impl Failure {
    fn parts(&self) -> (StatusCode, &'static str, String, bool) {
        match self {
            Self::Unauthorized => {
                let message = "show a key of this server: Authorization: Bearer, or X-API-Key";
                (StatusCode::UNAUTHORIZED, "unauthorized", message.to_owned(), false)
            }
            Self::RateLimited(_) => {
                let message = "too many requests; wait as long as Retry-After says";
                (StatusCode::TOO_MANY_REQUESTS, "rate_limited", message.to_owned(), true)
            }
            Self::Forbidden(problem) => {
                (StatusCode::FORBIDDEN, "forbidden", (*problem).to_owned(), false)
            }
            Self::NotFound => {
                let message = "there is no such webhook";
                (StatusCode::NOT_FOUND, "resource_not_found", message.to_owned(), false)
            }
            Self::Field { name, problem } => {
                (StatusCode::BAD_REQUEST, "invalid_field", format!("{name} {problem}"), false)
            }
            Self::UnderWay => {
                let message = "an attempt is in progress; try again when it has ended";
                (StatusCode::CONFLICT, "webhook_processing", message.to_owned(), true)
            }
            Self::Expunged => {
                let message = "the payload was removed; nothing can be sent any more";
                (StatusCode::CONFLICT, "webhook_expunged", message.to_owned(), false)
            }
            Self::WrongMethod(method) => {
                let message = format!("{method} is not allowed here");
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message, false)
            }
            Self::Busy => {
                let message = "the server is stopping or overloaded; try again";
                (StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", message.to_owned(), true)
            }
            Self::Store(_) => {
                let message = "the store could not answer; the server's log says why";
                (StatusCode::INTERNAL_SERVER_ERROR, "database_error", message.to_owned(), true)
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, code, message, retryable) = self.parts();
        if let Self::Store(cause) = &self {
            error!(%cause, "an admin request could not be served");
        }
        let body = json!({"error": {"code": code, "message": message, "retryable": retryable}});
        let mut response = super::handlers::json(status, &body);
        match self {
            Self::Unauthorized => {
                let value = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
            }
            Self::RateLimited(wait) => {
                // At least one: zero would mean at once.
                let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            _ => {}
        }
        response
    }
}
