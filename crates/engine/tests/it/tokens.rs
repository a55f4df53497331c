//! OAuth 2.0 client credentials: when tokens are fetched, shared, replaced, and given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use posthorn_domain::{
    Answer, AttemptOutcome, FailureCode, Labels, SecretName, Span, TenantId, TopicName,
};
use posthorn_engine::{Engine, Error, NewSubscription, Options, Rotation, SecretInput};
use posthorn_store::{DeliveryFilter, Listing, Store};
use posthorn_testkit::clock::VirtualClock;
use serde_json::{Value, json};

use crate::house::{House, TENANT, answered, publish, refused, rest, topic};

const TOKEN: &str = "https://id/token";
const HOOK: &str = "https://a/";
const QUICK: Duration = Duration::from_millis(5);

fn body(status: u16, body: impl Into<Bytes>) -> AttemptOutcome {
    AttemptOutcome::Answered(Answer {
        status,
        retry_after: None,
        content_type: Some("application/json".to_owned()),
        body: body.into(),
    })
}

fn granted(token: &str, seconds: u64) -> AttemptOutcome {
    let text = json!({"access_token": token, "token_type": "Bearer", "expires_in": seconds});
    body(200, text.to_string())
}

fn client() -> Value {
    json!({"kind": "oauth2", "token_url": TOKEN, "client_id": "me", "secret": "client",
        "scope": "a b"})
}

async fn subscribe_as(
    engine: &Engine,
    tenant: TenantId,
    url: &str,
    auth: Value,
    secret: &str,
) -> posthorn_domain::SubscriptionId {
    let new = NewSubscription {
        destination: url.into(),
        overrides: json!({"auth": [auth], "schedule": {"backoff": {"fixed": {"wait": "10s"}},
            "jitter": "none", "max_attempts": 5}}),
        secrets: vec![SecretInput {
            name: SecretName::new("client").expect("a name"),
            value: secret.to_owned(),
        }],
        ..NewSubscription::default()
    };
    engine.create_subscription(tenant, new).await.expect("made").0.subscription.id
}

async fn send(engine: &Engine, wait: u64) {
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(wait).await;
}

fn bearers(house: &House) -> Vec<String> {
    let seen = house.receivers.of(HOOK);
    seen.iter().map(|s| s.headers["authorization"].to_str().expect("text").to_owned()).collect()
}

/// A token server whose nth token is `t<n>`.
fn numbered(house: &House, seconds: u64) {
    house.receivers.script(TOKEN, move |nth, _| (QUICK, granted(&format!("t{nth}"), seconds)));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_asked_for_as_the_standard_says_and_sent_as_a_bearer() {
    for (form, expected_body, with_header) in [
        ("basic", "grant_type=client_credentials&scope=a%20b&audience=https%3A%2F%2Fapi", true),
        (
            "post",
            "grant_type=client_credentials&scope=a%20b&audience=https%3A%2F%2Fapi\
             &client_id=me%3A&client_secret=s%26%20%C3%BC",
            false,
        ),
    ] {
        let (house, engine) = House::open().await;
        numbered(&house, 600);
        let mut auth = client();
        auth["client_auth"] = json!(form);
        auth["client_id"] = json!("me:");
        auth["audience"] = json!("https://api");
        subscribe_as(&engine, TENANT, HOOK, auth, "s& ü").await;
        send(&engine, 1).await;
        let [call] = &house.receivers.of(TOKEN)[..] else { panic!("one call") };
        assert_eq!(call.body, expected_body);
        assert_eq!(call.headers["content-type"], "application/x-www-form-urlencoded");
        assert_eq!(call.headers["accept"], "application/json");
        let basic = base64::engine::general_purpose::STANDARD.encode("me%3A:s%26%20%C3%BC");
        let header = call.headers.get("authorization").map(|v| v.to_str().expect("text"));
        assert_eq!(header, with_header.then_some(format!("Basic {basic}").as_str()));
        assert!(call.headers.get("authorization").is_none_or(http::HeaderValue::is_sensitive));
        assert_eq!(bearers(&house), ["Bearer t0"]);
        assert!(house.receivers.of(HOOK)[0].headers["authorization"].is_sensitive());
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_kept_until_shortly_before_its_end() {
    let (house, engine) = House::open().await;
    numbered(&house, 600);
    subscribe_as(&engine, TENANT, HOOK, client(), "s").await;
    for wait in [1, 500, 30, 600, 1] {
        send(&engine, wait).await;
    }
    // Made at 0, 1, 501, 531, 1131 seconds; a token of ten minutes is replaced a minute early.
    assert_eq!(bearers(&house), ["Bearer t0", "Bearer t0", "Bearer t0", "Bearer t0", "Bearer t1"]);

    let (house, engine) = House::open().await;
    numbered(&house, 600);
    let mut early = client();
    early["renew_before"] = json!("200s");
    subscribe_as(&engine, TENANT, HOOK, early, "s").await;
    for wait in [390, 20, 1] {
        send(&engine, wait).await;
    }
    assert_eq!(bearers(&house), ["Bearer t0", "Bearer t0", "Bearer t1"]);
}

#[tokio::test(start_paused = true)]
async fn attempts_at_the_same_time_share_one_call_also_one_that_fails() {
    for life in [600, 0] {
        let (house, engine) = House::open().await;
        house.receivers.script(TOKEN, move |nth, _| {
            (Duration::from_millis(300), granted(&format!("t{nth}"), life))
        });
        subscribe_as(&engine, TENANT, HOOK, client(), "s").await;
        let batch = (0..8).map(|n| publish(&n.to_string(), None)).collect();
        engine.publish_batch(TENANT, batch).await.expect("taken");
        rest(2).await;
        assert_eq!(house.receivers.of(TOKEN).len(), 1, "life {life}");
        assert_eq!(bearers(&house), ["Bearer t0"; 8]);
    }
    let (house, engine) = House::open().await;
    house.receivers.script(TOKEN, |nth, _| match nth {
        0 => (Duration::from_millis(300), answered(500)),
        _ => (QUICK, granted("t", 600)),
    });
    subscribe_as(&engine, TENANT, HOOK, client(), "s").await;
    let batch = (0..8).map(|n| publish(&n.to_string(), None)).collect();
    engine.publish_batch(TENANT, batch).await.expect("taken");
    rest(2).await;
    assert_eq!(house.receivers.of(TOKEN).len(), 1);
    assert!(house.receivers.of(HOOK).is_empty());
    rest(20).await;
    assert_eq!((house.receivers.of(TOKEN).len(), house.counts().await.delivered), (2, 8));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_a_receiver_refuses_is_replaced_for_the_next_attempt() {
    let (house, engine) = House::open().await;
    numbered(&house, 3_600);
    house.receivers.script(HOOK, |_, seen| {
        let old = seen.headers["authorization"] == "Bearer t0";
        (QUICK, answered(if old && seen.at.as_seconds() > 1_700_000_100 { 401 } else { 200 }))
    });
    subscribe_as(&engine, TENANT, HOOK, client(), "s").await;
    send(&engine, 200).await;
    // Revoked meanwhile: eight attempts find out together, and one new token serves them all.
    let batch = (0..8).map(|n| publish(&n.to_string(), None)).collect();
    engine.publish_batch(TENANT, batch).await.expect("taken");
    rest(60).await;
    assert_eq!(house.receivers.of(TOKEN).len(), 2);
    let all = bearers(&house);
    assert_eq!(all.iter().filter(|b| *b == "Bearer t0").count(), 9);
    assert_eq!(all.iter().filter(|b| *b == "Bearer t1").count(), 8);
    assert_eq!(house.counts().await.delivered, 9);
}

#[tokio::test(start_paused = true)]
async fn tokens_are_shared_within_a_tenant_and_never_beyond() {
    let (house, engine) = House::open().await;
    numbered(&house, 3_600);
    let other = engine.create_tenant("other".to_owned()).await.expect("made").id;
    let orders = TopicName::new("orders").expect("a name");
    engine
        .put_topic(other, orders, String::new(), vec![], Labels::default())
        .await
        .expect("a topic");
    let mut scoped = client();
    scoped["scope"] = json!("c");
    subscribe_as(&engine, TENANT, "https://1/", client(), "s").await;
    let second = subscribe_as(&engine, TENANT, "https://2/", client(), "s").await;
    subscribe_as(&engine, TENANT, "https://3/", client(), "another").await;
    subscribe_as(&engine, TENANT, "https://4/", scoped, "s").await;
    subscribe_as(&engine, other, "https://5/", client(), "s").await;
    send(&engine, 1).await;
    engine.publish(other, publish("{}", None)).await.expect("accepted");
    rest(1).await;
    let token = |url: &str| {
        let seen = house.receivers.of(url);
        seen[seen.len() - 1].headers["authorization"].to_str().expect("text").to_owned()
    };
    assert_eq!(token("https://1/"), token("https://2/"));
    let mut kinds: Vec<_> =
        ["https://1/", "https://3/", "https://4/", "https://5/"].map(token).into();
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds.len(), 4, "another secret, scope or tenant is another token");
    assert_eq!(house.receivers.of(TOKEN).len(), 4);

    // Another secret, another token.
    let before = token("https://2/");
    let name = SecretName::new("client").expect("a name");
    let change = Rotation { value: Some("new".to_owned()), ..Rotation::of(name) };
    engine.rotate_secret(TENANT, second, change).await.expect("rotates");
    send(&engine, 1).await;
    assert_ne!(token("https://2/"), before);
    assert_eq!(token("https://1/"), before);
}

#[tokio::test(start_paused = true)]
async fn a_token_server_in_trouble_fails_attempts_with_their_own_code_and_blames_nobody() {
    for (n, answer) in [
        (QUICK, answered(500)),
        (QUICK, refused()),
        (QUICK, body(200, "<html>hush")),
        (QUICK, body(200, vec![b'x'; 16 * 1_024])),
        (QUICK, body(401, r#"{"error":"invalid_client","error_description":"hush"}"#)),
        (QUICK, body(200, r#"{"access_token":"hush","token_type":"mac"}"#)),
        (QUICK, body(200, "{\"access_token\":\"hush\\r\\nX: y\",\"token_type\":\"Bearer\"}")),
        (Duration::from_secs(86_400), granted("late", 600)),
    ]
    .into_iter()
    .enumerate()
    {
        let house = House::new();
        let engine = house.engine(u8::try_from(n).expect("few")).await;
        topic(&engine).await;
        let back_at = Arc::new(AtomicU64::new(u64::MAX));
        let script = Arc::clone(&back_at);
        house.receivers.script(TOKEN, move |_, seen| {
            if seen.at.as_seconds() as u64 >= script.load(Ordering::Relaxed) {
                return (QUICK, granted("t", 600));
            }
            (answer.0, answer.1.clone())
        });
        subscribe_as(&engine, TENANT, HOOK, client(), "s").await;
        for n in 0..20 {
            engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
        }
        rest(24).await;
        assert!(house.receivers.of(HOOK).is_empty(), "{n}: nothing is sent without a token");
        let calls = house.receivers.of(TOKEN).len();
        assert!((1..=6).contains(&calls), "{n}: {calls} calls in 24 s");
        let filter = DeliveryFilter::default();
        let one = house
            .store
            .deliveries(TENANT, filter, Listing::newest(1))
            .await
            .expect("answers")
            .items[0]
            .id;
        let attempts = house.store.attempts(TENANT, one).await.expect("answers");
        assert!(!attempts.is_empty());
        for attempt in attempts {
            assert_eq!(attempt.failure, Some(FailureCode::TokenUnavailable));
            assert!(attempt.detail.contains("token server"), "{}", attempt.detail);
            assert!(!attempt.detail.contains("hush"), "{}", attempt.detail);
        }
        back_at.store(0, Ordering::Relaxed);
        rest(40).await;
        assert_eq!(house.counts().await.delivered, 20, "{n}: it recovers by itself");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_still_good_is_used_while_its_replacement_cannot_be_had() {
    let (house, engine) = House::open().await;
    house
        .receivers
        .script(TOKEN, |nth, _| (QUICK, if nth == 0 { granted("t0", 600) } else { answered(503) }));
    subscribe_as(&engine, TENANT, HOOK, client(), "s").await;
    send(&engine, 550).await;
    for _ in 0..3 {
        send(&engine, 3).await;
    }
    assert_eq!(bearers(&house), ["Bearer t0"; 4]);
    assert_eq!(house.receivers.of(TOKEN).len(), 3, "asked again after some seconds");
    rest(60).await;
    send(&engine, 1).await;
    assert_eq!(bearers(&house).len(), 4, "and no longer when it is over");
}

#[tokio::test(start_paused = true)]
async fn a_token_server_that_may_not_be_reached_is_refused_when_it_is_named() {
    let house = House::new();
    let engine = house.engine(1).await;
    let mut auth = client();
    auth["token_url"] = json!("https://10.0.0.1/token");
    let new = |auth: &Value| NewSubscription {
        destination: HOOK.into(),
        overrides: json!({"auth": [auth]}),
        secrets: vec![SecretInput {
            name: SecretName::new("client").expect("a name"),
            value: "s".to_owned(),
        }],
        ..NewSubscription::default()
    };
    let refused = engine.create_subscription(TENANT, new(&auth)).await.err().expect("refused");
    assert!(matches!(&refused, Error::Policy(e) if e.path == "auth[0].token_url"), "{refused}");
    let (view, _) = engine.create_subscription(TENANT, new(&client())).await.expect("made");
    let change = posthorn_engine::SubscriptionChange {
        overrides: Some(json!({"auth": [auth]})),
        ..posthorn_engine::SubscriptionChange::default()
    };
    let refused = engine.update_subscription(TENANT, view.subscription.id, change).await;
    assert!(matches!(refused.err().expect("refused"), Error::Policy(_)));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_while_a_token_is_fetched_costs_the_attempt_no_time() {
    let house = House::new();
    let clock = VirtualClock::start();
    let engine = house.engine_on(clock.clone(), 1).await;
    topic(&engine).await;
    house.receivers.script(TOKEN, move |_, _| {
        clock.ahead(Duration::from_secs(3_600));
        (Duration::from_secs(2), granted("t", 86_400))
    });
    let id = subscribe_as(&engine, TENANT, HOOK, client(), "s").await;
    send(&engine, 10).await;
    let [seen] = &house.receivers.of(HOOK)[..] else { panic!("one attempt") };
    assert_eq!(seen.total, Span::from_secs(18), "the default less what the token took");
    let filter = DeliveryFilter { subscription: Some(id), ..DeliveryFilter::default() };
    let page = house.store.deliveries(TENANT, filter, Listing::newest(10)).await.expect("a list");
    let attempts = house.store.attempts(TENANT, page.items[0].id).await.expect("attempts");
    assert_eq!(attempts[0].took, Span::from_millis(2_005));
}

#[tokio::test(start_paused = true)]
async fn a_client_secret_is_not_sent_in_the_clear() {
    let (house, engine) = House::open().await;
    let new = |url: &str, https_only: bool| {
        let mut auth = client();
        auth["token_url"] = json!(url);
        NewSubscription {
            destination: HOOK.into(),
            overrides: match https_only {
                true => json!({"auth": [auth], "url": {"https_only": true}}),
                false => json!({"auth": [auth]}),
            },
            secrets: vec![SecretInput {
                name: SecretName::new("client").expect("a name"),
                value: "s".to_owned(),
            }],
            ..NewSubscription::default()
        }
    };
    for (url, https_only, allowed) in [
        ("https://id/token", true, true),
        ("http://id/token", false, false),
        ("http://localhost/token", false, false),
        ("http://127.0.0.1.example/token", false, false),
        ("http://192.0.2.1/token", false, false),
        ("http://127.0.0.1:8080/token", false, true),
        ("http://[::1]:8080/token", false, true),
        ("http://127.0.0.1:8080/token", true, false),
    ] {
        let made = engine.create_subscription(TENANT, new(url, https_only)).await;
        match made {
            Ok(_) => assert!(allowed, "{url}"),
            Err(Error::Policy(e)) => {
                assert!(!allowed && e.path == "auth[0].token_url", "{url}: {e}")
            }
            Err(e) => panic!("{url}: {e}"),
        }
    }
    // Nor when the configuration became stricter since.
    engine.kill();
    let mut strict = Options::default();
    for policy in strict.profiles.values_mut() {
        policy.url.https_only = true;
    }
    let engine = house.engine_with(2, strict).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(60).await;
    let clear = |seen: &crate::house::Seen| seen.url.starts_with("http://");
    assert!(house.receivers.seen.lock().iter().any(|seen| seen.url == TOKEN));
    assert!(house.receivers.seen.lock().iter().all(|seen| !clear(seen)));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_allows_https_only_means_its_gate_too() {
    let (house, engine) = House::open().await;
    let overrides = |gate: &str| {
        json!({"url": {"https_only": true}, "gate": {"url": gate, "timeout": "1s",
            "status": ["2xx"], "on_closed": {"postpone": {"wait": "10s"}}}})
    };
    let new = |gate: &str| NewSubscription {
        destination: HOOK.into(),
        overrides: overrides(gate),
        ..NewSubscription::default()
    };
    let refused = engine.create_subscription(TENANT, new("http://gate/")).await.err();
    assert!(matches!(&refused, Some(Error::Policy(e)) if e.path == "gate.url"), "{refused:?}");
    // A scheme that comes from the event can only be judged when it is there.
    let gate = "{event.key}://gate/";
    engine.create_subscription(TENANT, new(gate)).await.expect("made");
    engine.publish(TENANT, publish("{}", Some("http"))).await.expect("accepted");
    rest(60).await;
    assert!(house.receivers.seen.lock().is_empty(), "neither the gate nor the receiver is asked");
    assert_eq!(house.counts().await.pending, 1);
    engine.publish(TENANT, publish("{}", Some("https"))).await.expect("accepted");
    rest(60).await;
    assert_eq!(house.receivers.of("https://gate/").len(), 1);
    assert_eq!(house.receivers.of(HOOK).len(), 1);
}
