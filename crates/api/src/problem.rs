//! Problem documents (RFC 9457): the one form in which the API says no.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use posthorn_engine::{Error as EngineError, HandshakeRefusal, PushRefusal};
use posthorn_store::Error as StoreError;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::codes::{self, ErrorCode};
use crate::json::unquoted;
use crate::limits::{DISK_WAIT, QUOTA_WAIT};
use crate::respond;

/// What every handler returns.
pub(crate) type Result<T, E = Problem> = std::result::Result<T, E>;

/// Longest `detail`; parts of a request are quoted in it, and those have no bound of their own.
const DETAIL_CHARS_MAX: usize = 400;
/// What clients are asked to wait when the server cannot serve them now.
pub(crate) const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// One problem document.
#[derive(Debug)]
pub(crate) struct Problem {
    code: &'static ErrorCode,
    detail: Cow<'static, str>,
    field: Option<Cow<'static, str>>,
    /// Seconds to wait before a repeat; where absent, the status decides.
    retry_after: Option<u64>,
}

impl Problem {
    pub(crate) fn new(code: &'static ErrorCode, detail: impl Into<Cow<'static, str>>) -> Self {
        let mut detail = detail.into();
        if let Some((end, _)) = detail.char_indices().nth(DETAIL_CHARS_MAX) {
            let mut cut = detail[..end].to_owned();
            cut.push('…');
            detail = Cow::Owned(cut);
        }
        Self { code, detail, field: None, retry_after: None }
    }

    /// Asks to wait before a repeat, in whole seconds and at least one.
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
        self
    }

    /// Whether it is this one.
    pub(crate) fn is(&self, code: &'static ErrorCode) -> bool {
        self.code == code
    }

    /// What admission calls it, when admission said no.
    pub(crate) fn admission_reason(&self) -> Option<&'static str> {
        let reasons = [
            codes::RATE_LIMITED,
            codes::QUOTA_EXCEEDED,
            codes::TOO_MANY_FAILURES,
            codes::OVERLOADED,
            codes::DISK_FULL,
        ];
        reasons.contains(&self.code).then_some(self.code.code)
    }

    /// Names the field at fault.
    pub(crate) fn at(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        let field = field.into();
        // A field name comes from the request as well; a long one helps nobody.
        self.field = (!field.is_empty() && field.len() <= DETAIL_CHARS_MAX).then_some(field);
        self
    }

    /// The same, seen from the field around it.
    pub(crate) fn within(self, around: &str) -> Self {
        let field = match &self.field {
            Some(field) => format!("{around}.{field}"),
            None => around.to_owned(),
        };
        self.at(field)
    }

    /// A field is missing, unknown, of the wrong type or out of bounds.
    pub(crate) fn field(
        field: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(codes::INVALID_REQUEST, detail).at(field)
    }

    /// There is no such thing, or it is another tenant's, or its id is malformed: the same bytes.
    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(codes::NOT_FOUND, format!("{what} not found"))
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(codes::UNAUTHORIZED, "a valid API key is required: Authorization: Bearer ph_…")
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let kind = format_args!("urn:posthorn:error:{}", self.code.code).to_string();
        map.serialize_entry("type", &kind)?;
        map.serialize_entry("code", self.code.code)?;
        map.serialize_entry("title", self.code.title)?;
        map.serialize_entry("status", &self.code.status)?;
        map.serialize_entry("detail", &self.detail)?;
        if let Some(field) = &self.field {
            map.serialize_entry("field", field)?;
        }
        map.end()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = respond::bytes(self.status(), respond::PROBLEM, body);
        let headers = response.headers_mut();
        match self.code.status {
            401 => {
                drop(headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
            }
            429 | 503 => {
                let wait = self.retry_after.map_or(RETRY_AFTER, HeaderValue::from);
                drop(headers.insert(header::RETRY_AFTER, wait));
            }
            // What is left of the body will not be read, so the connection is of no more use.
            408 => drop(headers.insert(header::CONNECTION, HeaderValue::from_static("close"))),
            _ => {}
        }
        response
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let text = error.to_string();
        match error {
            EngineError::NotFound(what) => Self::not_found(what),
            EngineError::AlreadyExists(_) => Self::new(codes::CONFLICT, text),
            EngineError::InUse(_) => Self::new(codes::IN_USE, text),
            EngineError::LastOperatorKey => Self::new(codes::LAST_OPERATOR_KEY, text),
            EngineError::Changed { .. } => Self::new(codes::VERSION_MISMATCH, text).at("If-Match"),
            EngineError::UnknownTopic(_) => Self::new(codes::UNKNOWN_TOPIC, text).at("topic"),
            EngineError::TopicReserved(_) => Self::new(codes::TOPIC_RESERVED, text).at("topic"),
            EngineError::TenantReserved => Self::new(codes::TENANT_RESERVED, text).at("tenant"),
            EngineError::UnknownProfile(_) => Self::new(codes::UNKNOWN_PROFILE, text).at("profile"),
            EngineError::Policy(e) => {
                let field = match e.path.as_str() {
                    "policy" | "profile" => e.path.clone(),
                    path => format!("policy.{path}"),
                };
                Self::new(codes::INVALID_POLICY, unquoted(&text)).at(field)
            }
            EngineError::HistoryNotKept { .. } => {
                Self::new(codes::HISTORY_NOT_KEPT, text).at("from")
            }
            EngineError::Filter(_) => Self::new(codes::INVALID_FILTER, text).at("filter"),
            EngineError::Url(_) => Self::new(codes::URL_NOT_ALLOWED, text).at("url"),
            EngineError::Handshake(HandshakeRefusal::Rate { .. }) => {
                Self::new(codes::HANDSHAKE_RATE, text).at("policy.limits.rate")
            }
            EngineError::Handshake(_) => Self::new(codes::HANDSHAKE_REFUSED, text).at("url"),
            EngineError::Push(refusal) => of_push(&refusal),
            EngineError::Secret { name, .. } => {
                Self::new(codes::INVALID_SECRET, text).at(format!("secrets.{name}"))
            }
            EngineError::SecretRequired { names, subscription, .. } => {
                let field = match (subscription, names.first()) {
                    (None, Some(name)) => format!("secrets.{name}"),
                    _ => "policy".to_owned(),
                };
                Self::new(codes::SECRET_REQUIRED, text).at(field)
            }
            EngineError::Certificate { field, problem } => {
                Self::new(codes::INVALID_CERTIFICATE, problem).at(field)
            }
            EngineError::SecretKind(_) => Self::new(codes::INVALID_SECRET, text).at("secret_kind"),
            EngineError::Overlap { .. } => Self::field("overlap", text),
            EngineError::Event { field, problem } => Self::field(field, problem),
            EngineError::PayloadTooLarge { .. } => {
                Self::new(codes::PAYLOAD_TOO_LARGE, text).at("payload")
            }
            EngineError::MatchingTooCostly { .. } => {
                Self::new(codes::MATCHING_TOO_COSTLY, text).at("payload")
            }
            EngineError::FanOut { .. } => Self::new(codes::FAN_OUT_EXCEEDED, text),
            EngineError::CatalogFull { .. } => Self::new(codes::CATALOG_QUOTA_EXCEEDED, text),
            EngineError::SessionsFull { .. } => {
                Self::new(codes::QUOTA_EXCEEDED, text).retry_after(QUOTA_WAIT)
            }
            EngineError::TooLong { field, max } => {
                Self::field(field, format!("must be at most {max} bytes"))
            }
            EngineError::KeyReused { .. } => Self::new(codes::IDEMPOTENCY_KEY_REUSED, text),
            EngineError::Ended => Self::new(codes::DELIVERY_ENDED, text),
            EngineError::NotEnded => Self::new(codes::DELIVERY_NOT_ENDED, text),
            EngineError::Scheduled { .. } => Self::new(codes::DELIVERY_SCHEDULED, text),
            EngineError::Expunged => Self::new(codes::EVENT_EXPUNGED, text),
            EngineError::Unfinished => Self::new(codes::DELIVERIES_NOT_ENDED, text),
            EngineError::TenantDeleted => Self::new(codes::TENANT_DELETED, text),
            EngineError::DefaultTenant => Self::new(codes::DEFAULT_TENANT, text),
            EngineError::NotEmpty(_) => Self::new(codes::REALM_NOT_EMPTY, text),
            EngineError::UnknownType { .. } => {
                Self::new(codes::UNKNOWN_EVENT_TYPE, text).at("type")
            }
            EngineError::Payload { path, .. } => {
                Self::new(codes::PAYLOAD_NOT_VALID, text).at(format!("payload{path}"))
            }
            EngineError::Schema { field, problem } => {
                Self::new(codes::INVALID_EVENT_TYPE, problem).at(field)
            }
            EngineError::TooMany { what, wait } => {
                Self::new(codes::RATE_LIMITED, what).retry_after(wait)
            }
            EngineError::Busy(_) => Self::new(codes::UNAVAILABLE, text),
            EngineError::Store(e) => of_store(&e),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        EngineError::from(error).into()
    }
}

/// Why a push destination is refused, and which of its fields is at fault.
fn of_push(refusal: &PushRefusal) -> Problem {
    let text = refusal.to_string();
    let endpoint = "destination.endpoint";
    match refusal {
        PushRefusal::NotEnabled => Problem::new(codes::PUSH_NOT_ENABLED, text),
        PushRefusal::Altered => Problem::new(codes::PUSH_ENDPOINT_UNKNOWN, text).at(endpoint),
        PushRefusal::Gone => Problem::new(codes::PUSH_ENDPOINT_GONE, text).at(endpoint),
        PushRefusal::OtherKey => Problem::new(codes::PUSH_ENDPOINT_BOUND, text).at(endpoint),
        PushRefusal::ApplicationKey => Problem::field("destination.application_server_key", text),
        PushRefusal::Keys(_) | PushRefusal::KeysMissing => {
            Problem::new(codes::INVALID_PUSH_KEYS, text).at("destination.keys")
        }
        PushRefusal::ServiceNotAllowed { .. } => {
            Problem::new(codes::PUSH_SERVICE_NOT_ALLOWED, text).at(endpoint)
        }
        PushRefusal::NoContact => Problem::new(codes::PUSH_CONTACT_MISSING, text),
        PushRefusal::Plain | PushRefusal::Url(_) => {
            Problem::new(codes::URL_NOT_ALLOWED, text).at(endpoint)
        }
        PushRefusal::Ttl { .. } => Problem::field("destination.ttl", text),
    }
}

/// What the store's trouble is called outside. Its causes go to the log and nowhere else.
fn of_store(error: &StoreError) -> Problem {
    match error {
        StoreError::Unavailable { .. } => {
            tracing::debug!(error = %chain(error), "a request failed: the store is not available");
            Problem::new(codes::UNAVAILABLE, "the store cannot be reached; nothing was done")
        }
        StoreError::DiskFull { .. } => {
            tracing::debug!(error = %chain(error), "a request failed: the disk is full");
            let detail = "the server's disk is full; nothing was done";
            Problem::new(codes::DISK_FULL, detail).retry_after(DISK_WAIT)
        }
        StoreError::Unknown { .. } => {
            tracing::debug!(error = %chain(error), "a request ended in an unknown outcome");
            Problem::new(codes::OUTCOME_UNKNOWN, "the change may or may not have been made")
        }
        // Refusals were given their own codes before; one that arrives here is a defect.
        StoreError::Fatal { .. } | StoreError::Refused(_) => {
            tracing::error!(error = %chain(error), "a request failed; the store needs attention");
            Problem::new(codes::INTERNAL, "internal error; see the server's log")
        }
    }
}

/// An error with all its causes, for one log line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
