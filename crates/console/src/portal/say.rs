//! How things are said to customers: moments, states, failures. Never more than they may know: of a failure only what
//! kind it is, in words of our own, so that nothing of the operator's network is in them.

use posthorn_domain::Timestamp;
use serde_json::Value;

use super::texts::Texts;
use crate::pages::show::Shown;
use crate::text::Body;
use crate::words;

/// A moment: in UTC as it stands; the script shows it as people write it where they are.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) iso: String,
    pub(crate) exact: String,
}

impl Moment {
    pub(crate) fn new(at: Timestamp) -> Self {
        Self { iso: at.to_string(), exact: words::moment(at) }
    }
}

/// The state of an endpoint.
pub(crate) fn endpoint(t: &Texts, status: &str, failing: bool) -> Shown {
    match (status, failing) {
        ("active", true) => Shown::new("bad", t.state_failing),
        ("active", false) => Shown::new("good", t.state_active),
        ("paused", _) => Shown::new("off", t.state_paused),
        _ => Shown::new("bad", t.state_disabled),
    }
}

/// The state of a message on its way to one endpoint.
pub(crate) fn delivery(t: &Texts, state: &str, failed: bool) -> Shown {
    match (state, failed) {
        ("delivered", _) => Shown::new("good", t.state_delivered),
        ("pending", true) => Shown::new("bad", t.state_failing),
        ("dead", _) => Shown::new("bad", t.state_failed),
        ("cancelled", _) => Shown::new("off", t.state_cancelled),
        _ => Shown::new("wait", t.state_waiting),
    }
}

/// Why there was no answer.
pub(crate) fn failure(t: &'static Texts, code: &str) -> &'static str {
    match code {
        "url_not_allowed" | "url_refused" => t.failure_url,
        "dns_failed" | "dns_timeout" | "address_not_allowed" => t.failure_name,
        "connect_failed" | "connect_timeout" | "proxy_failed" => t.failure_connect,
        "tls_certificate_invalid" => t.failure_certificate,
        "tls_failed" | "tls_timeout" => t.failure_tls,
        "response_timeout" | "attempt_timeout" => t.failure_slow,
        "connection_closed" | "protocol_error" | "response_head_too_large" => t.failure_answer,
        "message_too_large" => t.failure_large,
        _ => t.failure_here,
    }
}

/// Why an endpoint was disabled, by what the status says.
pub(crate) fn disabled(t: &'static Texts, reason: &str) -> &'static str {
    match reason {
        "failing" => t.disabled_failing,
        "a delivery was exhausted" => t.disabled_exhausted,
        "its URL was refused" => t.disabled_refused,
        _ => t.disabled_gone,
    }
}

/// What an attempt came to.
pub(crate) fn attempt(t: &'static Texts, status: Option<u16>, code: Option<&str>) -> Shown {
    match (status, code) {
        (Some(status @ 200..300), _) => Shown::new("good", status.to_string()),
        (Some(status), _) => Shown::new("bad", status.to_string()),
        (None, Some(code)) => Shown::new("bad", failure(t, code)),
        (None, None) => Shown::new("bad", t.no_answer),
    }
}

/// What came of a test.
pub(crate) struct Tested {
    pub(crate) class: &'static str,
    pub(crate) text: String,
    pub(crate) body: Option<Body>,
}

impl Tested {
    /// As the API tells it.
    pub(crate) fn of(t: &'static Texts, outcome: &Value) -> Self {
        let part = |name: &str| outcome.get(name).and_then(Value::as_str);
        match outcome.get("status").and_then(Value::as_u64) {
            Some(status) => Self {
                class: if (200..300).contains(&status) { "good" } else { "bad" },
                text: t.test_answered.replace("{}", &status.to_string()),
                body: part("response").map(|body| Body::of(body.as_bytes())),
            },
            None => {
                let why = failure(t, part("failure").unwrap_or_default());
                Self { class: "bad", text: format!("{} {why}", t.test_failed), body: None }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthorn_domain::FailureCode;

    #[test]
    fn a_failure_tells_nothing_of_the_network() {
        let t = super::super::Language::English.texts();
        for code in FailureCode::ALL {
            let said = failure(t, code.as_str());
            assert!(!said.is_empty() && !said.contains(char::is_numeric), "{code:?}: {said}");
        }
        // What may not be told apart is the same.
        assert_eq!(failure(t, "address_not_allowed"), failure(t, "dns_failed"));
        assert_eq!(failure(t, "proxy_failed"), failure(t, "connect_failed"));
        let outcome = serde_json::json!({"outcome": "failed", "failure": "connect_failed", "detail": "10.0.0.7"});
        assert!(!Tested::of(t, &outcome).text.contains("10.0.0.7"));
    }
}
