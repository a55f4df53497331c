//! What requests are wrapped in, and how the headers of signatures are called.

use serde_json::{Value, json};

use crate::policy::profiles::{default_profile, shipped};
use crate::policy::{Auth, Envelope, Handshake, SignatureHeaders};

#[test]
fn only_the_default_profile_names_type_and_topic_in_headers() {
    for (name, policy) in shipped() {
        assert_eq!(policy.request.event_headers, name.as_str() == "default", "{name}");
        assert_eq!(policy.request.envelope, Envelope::None, "{name}");
        assert_eq!(policy.request.handshake, Handshake::None, "{name}");
    }
    let off = default_profile().patched(&json!({"request": {"event_headers": false}}));
    assert!(!off.expect("a policy").request.event_headers);
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "tables read better without borrows")]
fn refused(patch: Value, path: &str) {
    let refused = default_profile().patched(&patch).expect_err("refused");
    assert_eq!(refused.path, path, "{patch}: {refused}");
}

#[test]
fn envelopes_that_can_never_work_are_refused() {
    for envelope in ["standard_webhooks", "cloudevents_structured", "cloudevents_binary"] {
        let fine = json!({"request": {"envelope": envelope}});
        assert!(default_profile().patched(&fine).is_ok(), "{envelope}");
        let empty = json!({"request": {"envelope": envelope, "method": "GET", "body": "empty"}});
        refused(empty, "request.envelope");
    }
    refused(json!({"request": {"envelope": "cloudevents"}}), "request.envelope");
    refused(json!({"request": {"handshake": "svix"}}), "request.handshake");
    for envelope in ["standard_webhooks", "cloudevents_structured"] {
        let typed = json!({"request": {"envelope": envelope, "content_type": "text/plain"}});
        refused(typed, "request.content_type");
    }
    let binary = |more: Value| {
        let mut patch = json!({"request": {"envelope": "cloudevents_binary"}});
        super::super::merge(&mut patch, &more);
        patch
    };
    assert!(
        default_profile().patched(&binary(json!({"request": {"content_type": "a/b"}}))).is_ok()
    );
    let header = json!({"request": {"headers": {"Ce-Id?": "x"}}});
    assert!(default_profile().patched(&header).is_ok(), "without the envelope, it is a header");
    refused(binary(header), "request.headers.Ce-Id");
    let way = json!({"auth": [{"kind": "secret_header", "header": "ce_key", "secret": "k"}]});
    refused(binary(way), "auth");
    for source in ["", "a b", "ä", "a\\b", "<a>"] {
        refused(json!({"request": {"source": source}}), "request.source");
    }
    for source in ["https://example.com/{event.topic}", "urn:x", "/{event.attributes.a|event.id}"] {
        let fine = json!({"request": {"source": source}});
        assert!(default_profile().patched(&fine).is_ok(), "{source}");
    }
}

fn signed(headers: &str) -> Value {
    json!({"auth": [{"kind": "standard_webhooks", "secret": "signing", "headers": headers}]})
}

#[test]
fn headers_of_signatures_have_one_or_two_names() {
    for (word, headers) in [
        ("webhook", SignatureHeaders::Webhook),
        ("svix", SignatureHeaders::Svix),
        ("both", SignatureHeaders::Both),
    ] {
        let policy = default_profile().patched(&signed(word)).expect("a policy");
        assert!(
            matches!(&policy.auth[..], [Auth::StandardWebhooks { headers: h, .. }] if *h == headers)
        );
    }
    refused(signed("x"), "auth[0].headers");
    // What was stored before the knob existed means the same as ever, and is written the same.
    let old = json!({"auth": [{"kind": "standard_webhooks", "secret": "signing"}]});
    let policy = default_profile().patched(&old).expect("a policy");
    assert_eq!(policy, default_profile());
    assert_eq!(serde_json::to_value(&policy.auth).expect("JSON"), old["auth"]);
    for (word, clash) in [("svix", true), ("both", true), ("webhook", false)] {
        let mut patch = signed(word);
        patch["request"] = json!({"headers": {"Svix-Id": "{event.id}"}});
        assert_eq!(default_profile().patched(&patch).is_err(), clash, "{word}");
    }
}
