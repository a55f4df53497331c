//! Answers as the gateway's clients expect them: errors are `{"message": …}`, successes mostly empty.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use posthorn_engine::Error;
use serde_json::{Value, json};
use tracing::{error, info, warn};

/// Requests answered, by `dialect`, `operation` and `class`.
const REQUESTS: &str = "posthorn_dialect_requests_total";
/// What clients are told of every URL that may not be used, whatever the reason.
const URL_INVALID: &str = "Callback URL is invalid";

/// Tells the recorder what is counted here.
pub(super) fn describe() {
    metrics::describe_counter!(
        REQUESTS,
        "Requests in other systems' dialects, by dialect, operation and class"
    );
}

/// What a handler makes of a request.
pub(super) type Answer = Result<Response, Refusal>;

/// A request that was not granted.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    message: String,
    wait: Option<Duration>,
    /// Why a URL may not be used, for the operator.
    bad_url: Option<String>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), wait: None, bad_url: None }
    }

    /// Told to come back later.
    pub(super) fn slow_down(message: &str, wait: Duration) -> Self {
        let wait = Some(wait);
        Self { wait, ..Self::new(StatusCode::TOO_MANY_REQUESTS, message) }
    }

    /// A URL that may not be used. Clients know one text for all reasons; the operator reads why.
    pub(super) fn invalid_url(reason: &str) -> Self {
        let bad_url = Some(reason.to_owned());
        Self { bad_url, ..Self::new(StatusCode::BAD_REQUEST, URL_INVALID) }
    }

    /// Tells the operator why a URL was refused, and whose: the clients are not told.
    pub(super) fn log(&self, callback_id: &str, country: &str) {
        if let Some(reason) = &self.bad_url {
            info!(callback_id, country, reason, "a callback URL was refused");
        }
    }

    pub(super) fn from_engine(error: &Error) -> Self {
        match error {
            Error::Url(_) | Error::Certificate { .. } => Self::invalid_url(&error.to_string()),
            Error::CatalogFull { .. } => {
                // What there is too much of, and what may be changed about it, is the operator's affair.
                warn!(%error, "the limit of callbacks is reached");
                Self::new(StatusCode::BAD_REQUEST, "The limit of callbacks is reached.")
            }
            Error::SecretRequired { .. } => {
                info!(%error, "a callback with a secret was not moved");
                let problem = "The callback has a secret for its current host; delete the \
                               callback and subscribe it again.";
                Self::new(StatusCode::BAD_REQUEST, problem)
            }
            Error::TooLong { .. } | Error::Event { .. } => {
                info!(%error, "a callback was refused");
                Self::new(StatusCode::BAD_REQUEST, "The callback is too large.")
            }
            Error::NotFound(_) | Error::TenantDeleted => {
                info!(%error, "a callback was refused: what it belongs to is gone");
                Self::new(StatusCode::NOT_FOUND, "Not Found.")
            }
            Error::TooMany { wait, .. } => Self::slow_down("Too many changes.", *wait),
            Error::Busy(_) | Error::Store(_) => {
                warn!(%error, "a callback could not be changed");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable.")
            }
            _ => {
                error!(%error, "a callback could not be changed");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error.")
            }
        }
    }
}

impl From<super::target::NoTarget> for Refusal {
    fn from(problem: super::target::NoTarget) -> Self {
        match problem {
            super::target::NoTarget::Missing => {
                Self::new(StatusCode::BAD_REQUEST, "the query parameter url is missing")
            }
            super::target::NoTarget::Invalid => Self::invalid_url("it is not text"),
        }
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        let mut response = json(refusal.status, &json!({"message": refusal.message}));
        if let Some(wait) = refusal.wait {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            response.headers_mut().insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        response
    }
}

/// A JSON answer.
pub(super) fn json(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A success that says no more.
pub(super) fn empty() -> Response {
    Response::new(Body::empty())
}

/// Counts an answer on its way out.
pub(super) fn count(operation: &'static str, response: Response) -> Response {
    let class = match response.status().as_u16() {
        500.. => "5xx",
        400.. => "4xx",
        _ => "2xx",
    };
    metrics::counter!(
        REQUESTS, "dialect" => "efgs", "operation" => operation, "class" => class
    )
    .increment(1);
    response
}

/// Whether JSON is among what a client takes. Parameters, such as a version, do not matter.
pub(super) fn accepts_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::ACCEPT).iter().peekable();
    if values.peek().is_none() {
        return true;
    }
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(|range| {
        let kind = range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        matches!(kind.as_str(), "*/*" | "application/*" | "application/json" | "")
    })
}

#[cfg(test)]
mod tests {
    use posthorn_domain::SecretName;

    use super::*;

    #[test]
    fn what_is_the_callers_is_told_as_such_and_names_nothing_inside() {
        let full = Error::CatalogFull {
            what: "subscriptions",
            key: "quotas.subscriptions",
            has: 7,
            limit: 7,
        };
        let moved = Error::SecretRequired {
            names: vec![SecretName::new("token").expect("a name")],
            origin: "https://b.example".to_owned(),
            subscription: None,
        };
        let long = Error::TooLong { field: "description", max: 9 };
        let labels = Error::Event { field: "labels", problem: "has too many".to_owned() };
        for (error, says) in [
            (full, "limit of callbacks"),
            (moved, "subscribe it again"),
            (long, "large"),
            (labels, "large"),
        ] {
            let refusal = Refusal::from_engine(&error);
            assert_eq!(refusal.status, StatusCode::BAD_REQUEST, "{error}");
            assert!(refusal.message.contains(says), "{}", refusal.message);
            for inside in ["quotas", "7", "token", "b.example", "description", "labels"] {
                assert!(!refusal.message.contains(inside), "{}", refusal.message);
            }
        }
        for gone in [Error::NotFound("subscription"), Error::TenantDeleted] {
            assert_eq!(Refusal::from_engine(&gone).status, StatusCode::NOT_FOUND, "{gone}");
        }
        let many = Error::TooMany { what: "changes", wait: Duration::from_millis(1_500) };
        let response = Response::from(Refusal::from_engine(&many));
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        for ours in [
            Error::Busy("stopping"),
            Error::Store(posthorn_store::Error::DiskFull { source: None }),
        ] {
            let status = Refusal::from_engine(&ours).status;
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{ours}");
        }
    }

    #[test]
    fn json_is_accepted_with_any_parameters_and_refused_only_when_it_is_not_named() {
        let accepts = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ACCEPT, value.parse().expect("a value"));
            }
            accepts_json(&headers)
        };
        for fine in [
            &[][..],
            &["application/json; version=1.0"],
            &["application/json"],
            &["text/html, application/JSON;q=0.8"],
            &["*/*"],
            &["application/*"],
            &["text/plain", "application/json"],
        ] {
            assert!(accepts(fine), "{fine:?}");
        }
        assert!(!accepts(&["text/plain; version=1.0"]));
        assert!(!accepts(&["text/html, application/protobuf"]));
    }
}
