//! Answering senders that ask whether they may publish here: the validation handshake of the CloudEvents webhook
//! specification.
//!
//! Consent is given to whoever shows a key or certificate that may publish, and, without one, to origins that the
//! operator has named: some senders cannot authenticate this question. Publishing needs a key in any case.

use http::{HeaderName, HeaderValue, StatusCode, header};
use posthorn_domain::Scope;
use posthorn_engine::WebhookOrigin;

use crate::call::{Answer, Call};
use crate::problem::Problem;
use crate::respond;

const REQUEST_ORIGIN: &str = "webhook-request-origin";
const ALLOWED_ORIGIN: HeaderName = HeaderName::from_static("webhook-allowed-origin");
const ALLOWED_RATE: HeaderName = HeaderName::from_static("webhook-allowed-rate");

/// `OPTIONS /v1/events`.
pub(crate) async fn one(call: Call) -> Answer {
    answer(&call, "GET, HEAD, OPTIONS, POST")
}

/// `OPTIONS /v1/events/batch`.
pub(crate) async fn batch(call: Call) -> Answer {
    answer(&call, "OPTIONS, POST")
}

fn answer(call: &Call, methods: &'static str) -> Answer {
    let mut response = respond::empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static(methods));
    let Some(asked) = call.parts.headers.get(REQUEST_ORIGIN) else { return Ok(response) };
    let origin: WebhookOrigin = asked
        .to_str()
        .unwrap_or_default()
        .parse()
        .map_err(|problem: &str| Problem::field("WebHook-Request-Origin", problem))?;
    let admission = call.engine().admission();
    let named = call.api.options.webhook_origins.iter().any(|own| own.allows(&origin));
    let per_second = if named && !call.has_credentials() {
        admission.options().key_requests_per_second
    } else {
        call.authorize(Scope::Publish)?.principal.key.requests_per_second(admission)
    };
    let rate = match per_second {
        0 => HeaderValue::from_static("*"),
        per_second => HeaderValue::from(u64::from(per_second) * 60),
    };
    headers.insert(ALLOWED_ORIGIN, asked.clone());
    headers.insert(ALLOWED_RATE, rate);
    Ok(response)
}
