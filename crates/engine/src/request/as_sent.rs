//! What is written down of a request when its attempt failed: its headers as they were sent. The request is put
//! together once more for that, from the same values, so that one that succeeds pays nothing and one that waits for
//! an answer holds nothing.
//!
//! What authenticates is left out thrice: what was marked where it was added, what is always a secret by its name, and
//! what contains a secret that the request was built with.

use std::fmt::Display;

use posthorn_domain::{AttemptOutcome, Policy, SentRequest};

use super::Redaction;
use crate::preview::RequestPreview;
use crate::transport::Outbound;

/// Headers that are secrets whoever adds them.
const ALWAYS_SECRET: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// What is written down of it, when it failed. `again` puts the request together as it was; `origin` stands for the
/// URL where that is a secret itself.
pub(crate) fn as_sent(
    outcome: &AttemptOutcome,
    policy: &Policy,
    origin: Option<&dyn Display>,
    again: impl FnOnce() -> Option<(Outbound, Redaction)>,
) -> Option<Box<SentRequest>> {
    if let AttemptOutcome::Answered(answer) = outcome
        && policy.success.contains(answer.status)
    {
        return None;
    }
    let (outbound, redaction) = again()?;
    let url = match origin {
        Some(origin) => origin.to_string(),
        None => outbound.endpoint.url_with(outbound.path_and_query.as_deref()),
    };
    let headers = RequestPreview::shown(&outbound.headers);
    let clean = |(name, value): (String, Option<String>)| {
        let secret = ALWAYS_SECRET.contains(&name.as_str());
        let value = value.filter(|text| !secret && !redaction.is_in(text.as_bytes()));
        (name, value)
    };
    let sent = SentRequest {
        method: outbound.method.to_string(),
        url: (!redaction.is_in(url.as_bytes())).then_some(url),
        headers: headers.into_iter().map(clean).collect(),
        body_bytes: outbound.body.len() as u64,
        cut: false,
    };
    Some(Box::new(sent.bounded()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, Method};
    use posthorn_domain::policy::profiles::default_profile;
    use posthorn_domain::{Answer, FailureCode, SubscriptionId, TenantId};

    use super::*;
    use crate::endpoint::Endpoint;
    use crate::transport::Deadlines;

    fn outbound() -> Outbound {
        let mut headers = HeaderMap::new();
        let mut marked = HeaderValue::from_static("t=1,v1=abc");
        marked.set_sensitive(true);
        headers.insert("x-signature", marked);
        headers.insert("cookie", HeaderValue::from_static("session=1"));
        headers.insert("x-copy", HeaderValue::from_static("has hush-hush-1 in it"));
        headers.insert("x-type", HeaderValue::from_static("order.created"));
        Outbound {
            tenant: TenantId::from_bytes([1; 16]),
            subscription: SubscriptionId::from_bytes([2; 16]),
            endpoint: Arc::new(Endpoint::new("https://h/in".to_owned())),
            path_and_query: Some("/in?a=1".to_owned()),
            method: Method::PUT,
            headers,
            tls: None,
            vet_always: false,
            proxy: None,
            body: Bytes::from_static(b"nine byte"),
            deadlines: Deadlines::all(Duration::from_secs(1)),
        }
    }

    fn answered(status: u16) -> AttemptOutcome {
        let (retry_after, content_type, body) = (None, None, Bytes::new());
        AttemptOutcome::Answered(Answer { status, retry_after, content_type, body })
    }

    #[test]
    fn only_failures_are_written_down_and_never_their_secrets() {
        let policy = default_profile();
        let again = || {
            let mut redaction = Redaction::default();
            redaction.add(b"hush-hush-1");
            Some((outbound(), redaction))
        };
        let written = |outcome: AttemptOutcome, origin: Option<&dyn Display>| {
            as_sent(&outcome, &policy, origin, again)
        };
        assert_eq!(written(answered(204), None), None);
        let unanswered = AttemptOutcome::Failed {
            code: FailureCode::ConnectFailed,
            detail: "refused".to_owned(),
        };
        for outcome in [answered(500), answered(302), unanswered] {
            let sent = written(outcome, None).expect("it failed");
            let text = |value: &str| Some(value.to_owned());
            assert_eq!((sent.method.as_str(), &sent.url), ("PUT", &text("https://h/in?a=1")));
            let shown = sent.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
            let shown: Vec<_> = shown.collect();
            let wanted = [
                ("cookie", None),
                ("x-copy", None),
                ("x-signature", None),
                ("x-type", text("order.created")),
            ];
            assert_eq!(shown, wanted);
            assert_eq!((sent.body_bytes, sent.cut), (9, false));
        }
        let sent = written(answered(500), Some(&"https://h")).expect("it failed");
        assert_eq!(sent.url.as_deref(), Some("https://h"), "where the URL is a secret");
    }
}
