//! Asking a receiver whether it wants requests from here, before its subscription is saved: the validation
//! handshake of the CloudEvents webhook specification.
//!
//! An OPTIONS request says who we are, and how often we would send. Only an answer that allows our origin is
//! consent, whatever its status. A rate that the receiver allows is not taken over silently: a policy that may
//! send more often is refused, and the refusal says what to write.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use posthorn_domain::policy::{Handshake, Limits, PolicyError};
use posthorn_domain::{AttemptOutcome, FailureCode};

use super::Wanted;
use crate::catalog::TlsChoice;
use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::error::Result;
use crate::options::WebhookOrigin;
use crate::transport::{Deadlines, Outbound, Sent};

/// Who asks, in a handshake and in every request after it.
pub(crate) const REQUEST_ORIGIN: HeaderName = HeaderName::from_static("webhook-request-origin");
const REQUEST_RATE: HeaderName = HeaderName::from_static("webhook-request-rate");
const ALLOWED_ORIGIN: HeaderName = HeaderName::from_static("webhook-allowed-origin");
const ALLOWED_RATE: HeaderName = HeaderName::from_static("webhook-allowed-rate");

/// How long somebody who saves a subscription waits for its receiver.
const WITHIN: Duration = Duration::from_secs(10);

/// Why a receiver may not be sent to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeRefusal {
    /// It could not be asked.
    #[error("the receiver could not be asked for permission: {}", .0.as_str())]
    Unanswered(FailureCode),
    /// It did not say that it allows us.
    #[error(
        "the receiver answered {status} and does not allow requests from `{origin}`: its answer to \
         OPTIONS must have the header WebHook-Allowed-Origin with `{origin}` or `*`"
    )]
    Origin {
        /// What it answered with.
        status: u16,
        /// Who we said we are.
        origin: String,
    },
    /// It allows fewer requests than the policy.
    #[error(
        "the receiver allows {per_minute} requests a minute; set policy.limits.rate (requests a \
         second) to at most {per_second}"
    )]
    Rate {
        /// What it allows.
        per_minute: u64,
        /// The same as a policy has it.
        per_second: String,
    },
    /// It allows nobody knows how many.
    #[error(
        "the receiver's WebHook-Allowed-Rate is neither `*` nor a whole number of requests a minute"
    )]
    RateUnreadable,
}

impl Engine {
    /// Asks the receiver, when the policy wants that.
    pub(super) async fn shake_hands(
        &self,
        endpoint: &Arc<Endpoint>,
        wanted: &Wanted<'_>,
        tls: Option<Arc<TlsChoice>>,
    ) -> Result<()> {
        let policy = wanted.policy;
        if policy.request.handshake == Handshake::None {
            return Ok(());
        }
        let Some(origin) = &self.inner.around.origin else {
            let problem = "this server has no origin to ask with; its operator can set \
                           engine.webhook_origin"
                .to_owned();
            return Err(PolicyError { path: "request.handshake".to_owned(), problem }.into());
        };
        let _trial = self.trial(wanted.tenant)?;
        let question = Outbound {
            tenant: wanted.tenant,
            subscription: wanted.id,
            endpoint: Arc::clone(endpoint),
            path_and_query: None,
            method: Method::OPTIONS,
            headers: question(origin, &policy.limits),
            tls,
            proxy: policy.proxy.clone(),
            vet_always: true,
            body: Bytes::new(),
            deadlines: Deadlines::from(&policy.limits).at_most(WITHIN),
        };
        let sent = self.inner.around.transport.send(question).await;
        Ok(judge(&sent, origin, policy.limits.rate)?)
    }
}

fn question(origin: &WebhookOrigin, limits: &Limits) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(2);
    headers.insert(REQUEST_ORIGIN, origin.to_header());
    if let Some(rate) = limits.rate {
        headers.insert(REQUEST_RATE, HeaderValue::from((rate * 60.0).ceil().max(1.0) as u64));
    }
    headers
}

/// What an answer means; `rate` is how many requests a second the policy may send.
fn judge(sent: &Sent, origin: &WebhookOrigin, rate: Option<f64>) -> Result<(), HandshakeRefusal> {
    let status = match &sent.outcome {
        AttemptOutcome::Answered(answer) => answer.status,
        AttemptOutcome::Failed { code, .. } => {
            return Err(HandshakeRefusal::Unanswered(code.for_tenants()));
        }
    };
    let text = |name: &HeaderName| {
        let value = sent.headers.as_ref()?.get(name)?;
        Some(value.to_str().unwrap_or_default().trim())
    };
    let allowed = |by: &str| by == "*" || by.eq_ignore_ascii_case(origin.as_str());
    if !text(&ALLOWED_ORIGIN).is_some_and(allowed) {
        return Err(HandshakeRefusal::Origin { status, origin: origin.as_str().to_owned() });
    }
    let per_minute: u64 = match text(&ALLOWED_RATE) {
        None | Some("*") => return Ok(()),
        Some(text) => match text.parse() {
            Ok(number) if number > 0 => number,
            _ => return Err(HandshakeRefusal::RateUnreadable),
        },
    };
    // What is written here must pass when it is repeated.
    let per_second = format!("{:.4}", (per_minute as f64 / 60.0 * 10_000.0).floor() / 10_000.0);
    let per_second = per_second.trim_end_matches('0').trim_end_matches('.').to_owned();
    match rate {
        Some(rate) if rate * 60.0 <= per_minute as f64 => Ok(()),
        _ => Err(HandshakeRefusal::Rate { per_minute, per_second }),
    }
}

#[cfg(test)]
mod tests {
    use posthorn_domain::Answer;

    use super::*;

    fn origin() -> WebhookOrigin {
        "events.example.com".parse().expect("an origin")
    }

    fn answer(headers: &[(&'static str, &'static str)]) -> Sent {
        let outcome = AttemptOutcome::Answered(Answer {
            status: 200,
            retry_after: None,
            content_type: None,
            body: Bytes::new(),
        });
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        Sent { headers: Some(Box::new(headers.collect())), ..Sent::from(outcome) }
    }

    #[test]
    fn only_our_origin_or_all_of_them_is_consent() {
        for text in ["*", "events.example.com", "Events.Example.Com", " * "] {
            assert_eq!(
                judge(&answer(&[("webhook-allowed-origin", text)]), &origin(), None),
                Ok(())
            );
        }
        for text in ["", "example.com", "*.example.com", "other, events.example.com"] {
            let judged = judge(&answer(&[("webhook-allowed-origin", text)]), &origin(), None);
            assert!(matches!(judged, Err(HandshakeRefusal::Origin { .. })), "{text}");
        }
        let judged = judge(&answer(&[("webhook-allowed-rate", "*")]), &origin(), None);
        assert!(matches!(judged, Err(HandshakeRefusal::Origin { status: 200, .. })));
        let code = FailureCode::AddressNotAllowed;
        let failed = Sent::from(AttemptOutcome::Failed { code, detail: "10.0.0.1".to_owned() });
        let judged = judge(&failed, &origin(), None).expect_err("not asked");
        assert_eq!(
            judged,
            HandshakeRefusal::Unanswered(FailureCode::DnsFailed),
            "one word for both"
        );
    }

    #[test]
    fn a_policy_may_not_send_more_than_the_receiver_allows() {
        let judged = |allowed: &'static str, rate| {
            let headers = [("webhook-allowed-origin", "*"), ("webhook-allowed-rate", allowed)];
            judge(&answer(&headers), &origin(), rate)
        };
        for rate in [None, Some(1_000.0)] {
            assert_eq!(judged("*", rate), Ok(()));
        }
        for (allowed, per_second) in [("120", "2"), ("100", "1.6666"), ("1", "0.0166")] {
            let per_minute = allowed.parse().expect("a number");
            let per_second = per_second.to_owned();
            let refusal = HandshakeRefusal::Rate { per_minute, per_second: per_second.clone() };
            assert_eq!(judged(allowed, None), Err(refusal.clone()));
            assert_eq!(judged(allowed, Some(2.1)), Err(refusal));
            assert_eq!(judged(allowed, per_second.parse().ok()), Ok(()), "what is advised passes");
        }
        for allowed in ["0", "-1", "many", "1.5", ""] {
            assert_eq!(judged(allowed, None), Err(HandshakeRefusal::RateUnreadable), "{allowed}");
        }
    }

    #[test]
    fn the_question_says_who_asks_and_how_often() {
        let limits = Limits { rate: Some(0.5), ..Limits::default() };
        let headers = question(&origin(), &limits);
        assert_eq!(headers["webhook-request-origin"], "events.example.com");
        assert_eq!(headers["webhook-request-rate"], "30");
        let none = question(&origin(), &Limits::default());
        assert!(!none.contains_key("webhook-request-rate"));
        let seldom = Limits { rate: Some(0.001), ..Limits::default() };
        assert_eq!(question(&origin(), &seldom)["webhook-request-rate"], "1");
    }
}
