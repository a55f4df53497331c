//! What is kept of a request until it is known how it went: the headers as they are sent, to be written down with an
//! attempt that failed. One that succeeded pays for a copy of references and nothing else.
//!
//! What authenticates is left out thrice: what was marked where it was added, what is always a secret by its name, and
//! what contains a secret that the request was built with.

use std::sync::Arc;

use http::{HeaderMap, Method};
use posthorn_domain::{AttemptOutcome, Policy, SentRequest};

use super::Redaction;
use crate::endpoint::Endpoint;
use crate::preview::RequestPreview;
use crate::transport::Outbound;

/// Headers that are secrets whoever adds them.
const ALWAYS_SECRET: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// A request that is on its way.
pub(crate) struct Kept {
    method: Method,
    endpoint: Arc<Endpoint>,
    path_and_query: Option<String>,
    headers: HeaderMap,
    body_bytes: usize,
}

impl Kept {
    pub(crate) fn of(outbound: &Outbound) -> Self {
        Self {
            method: outbound.method.clone(),
            endpoint: Arc::clone(&outbound.endpoint),
            path_and_query: outbound.path_and_query.clone(),
            headers: outbound.headers.clone(),
            body_bytes: outbound.body.len(),
        }
    }

    /// What is written down of it, when it failed. `origin` stands for the URL where that is a secret itself.
    pub(crate) fn written(
        self,
        outcome: &AttemptOutcome,
        policy: &Policy,
        redaction: &Redaction,
        origin: Option<&str>,
    ) -> Option<Box<SentRequest>> {
        if let AttemptOutcome::Answered(answer) = outcome
            && policy.success.contains(answer.status)
        {
            return None;
        }
        let url = match origin {
            Some(origin) => origin.to_owned(),
            None => self.endpoint.url_with(self.path_and_query.as_deref()),
        };
        let headers = RequestPreview::shown(&self.headers);
        let clean = |(name, value): (String, Option<String>)| {
            let secret = ALWAYS_SECRET.contains(&name.as_str());
            let value = value.filter(|text| !secret && !redaction.is_in(text.as_bytes()));
            (name, value)
        };
        let sent = SentRequest {
            method: self.method.to_string(),
            url: (!redaction.is_in(url.as_bytes())).then_some(url),
            headers: headers.into_iter().map(clean).collect(),
            body_bytes: self.body_bytes as u64,
            cut: false,
        };
        Some(Box::new(sent.bounded()))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;
    use posthorn_domain::policy::profiles::default_profile;
    use posthorn_domain::{Answer, FailureCode};

    use super::*;

    fn kept() -> Kept {
        let mut headers = HeaderMap::new();
        let mut marked = HeaderValue::from_static("t=1,v1=abc");
        marked.set_sensitive(true);
        headers.insert("x-signature", marked);
        headers.insert("cookie", HeaderValue::from_static("session=1"));
        headers.insert("x-copy", HeaderValue::from_static("has hush-hush-1 in it"));
        headers.insert("x-type", HeaderValue::from_static("order.created"));
        Kept {
            method: Method::PUT,
            endpoint: Arc::new(Endpoint::new("https://h/in".to_owned())),
            path_and_query: Some("/in?a=1".to_owned()),
            headers,
            body_bytes: 9,
        }
    }

    fn answered(status: u16) -> AttemptOutcome {
        let (retry_after, content_type, body) = (None, None, Bytes::new());
        AttemptOutcome::Answered(Answer { status, retry_after, content_type, body })
    }

    #[test]
    fn only_failures_are_written_down_and_never_their_secrets() {
        let policy = default_profile();
        let mut redaction = Redaction::default();
        redaction.add(b"hush-hush-1");
        let written = |outcome: AttemptOutcome, origin: Option<&str>| {
            kept().written(&outcome, &policy, &redaction, origin)
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
        let sent = written(answered(500), Some("https://h")).expect("it failed");
        assert_eq!(sent.url.as_deref(), Some("https://h"), "where the URL is a secret");
    }
}
