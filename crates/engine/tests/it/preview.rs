//! The request of a delivery as it would be built now.

use std::collections::BTreeMap;

use posthorn_domain::{FailureCode, SecretName};
use posthorn_engine::{
    Engine, Error, NewSubscription, Options, Preview, PushInput, PushOptions, RequestPreview,
    SecretInput,
};
use posthorn_sealing::web_push::ReceiverKeys;
use serde_json::{Value, json};

use crate::house::{House, Seen, TENANT, publish, rest, subscribe, topic};
use crate::push_house;

async fn shown(house: &House, engine: &Engine) -> Preview {
    let delivery = house.store.all_deliveries().pop().expect("one");
    engine.preview_request(TENANT, delivery.id).await.expect("it is there")
}

async fn request(house: &House, engine: &Engine) -> RequestPreview {
    match shown(house, engine).await {
        Preview::Request(request) => request,
        Preview::Failed { code, detail } => panic!("{code:?}: {detail}"),
    }
}

fn masked(request: &RequestPreview) -> Vec<&str> {
    let secret = request.headers.iter().filter(|(_, value)| value.is_none());
    secret.map(|(name, _)| name.as_str()).collect()
}

/// Everything but what changes with the time and what is not shown is as it was sent.
fn same(request: &RequestPreview, seen: &Seen) {
    assert_eq!(request.method, seen.method.as_str());
    assert_eq!(request.body.as_ref(), Some(&seen.body));
    assert_eq!(request.body_bytes, seen.body.len());
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
    let mut sent: Vec<&str> = seen.headers.keys().map(http::HeaderName::as_str).collect();
    sent.sort_unstable();
    assert_eq!(names, sent);
    for (name, value) in &request.headers {
        if let Some(value) = value.as_ref().filter(|_| name != "webhook-timestamp") {
            assert_eq!(value, seen.headers[name].to_str().expect("text"), "{name}");
        }
    }
}

async fn with_auth(engine: &Engine, policy: Value, secrets: &[(&str, &str)]) {
    let secret = |(name, value): &(&str, &str)| SecretInput {
        name: SecretName::new(name).expect("a name"),
        value: (*value).to_owned(),
    };
    let new = NewSubscription {
        destination: "https://a/in?x=1".into(),
        overrides: policy,
        secrets: secrets.iter().map(secret).collect(),
        ..NewSubscription::default()
    };
    engine.create_subscription(TENANT, new).await.expect("made");
}

#[tokio::test(start_paused = true)]
async fn it_is_what_an_attempt_sends_without_what_authenticates_it() {
    let secret = "a-very-secret-text-of-some-length";
    let hmac = json!({"kind": "hmac_header", "secret": "s", "header": "X-Sum", "hash": "sha256",
        "encoding": "hex", "content": "body", "format": "{signature}"});
    let ways = [
        (json!({"kind": "bearer", "secret": "s"}), vec!["authorization"]),
        (json!({"kind": "basic", "user": "me", "secret": "s"}), vec!["authorization"]),
        (json!({"kind": "secret_header", "secret": "s", "header": "X-Any"}), vec!["x-any"]),
        (hmac, vec!["x-sum"]),
    ];
    for (way, expected) in ways {
        let (house, engine) = House::open().await;
        let policy = json!({"auth": [way], "request": {"headers": {"X-Type": "{event.type}"},
            "path": "{event.type}", "query": {"n": "{event.payload.n}"}}});
        with_auth(&engine, policy, &[("s", secret)]).await;
        engine.publish(TENANT, publish(r#"{"n":7}"#, None)).await.expect("accepted");
        rest(1).await;
        let sent = house.receivers.of("https://a/in?x=1");
        let request = request(&house, &engine).await;
        same(&request, &sent[0]);
        assert_eq!(masked(&request), expected);
        assert!(!format!("{request:?}").contains(secret));
        assert_eq!(request.url.as_deref(), Some("https://a/in/order.created?x=1&n=7"));
        assert_eq!(house.receivers.of("https://a/in?x=1").len(), 1, "nothing was sent for it");
    }
    // The signature of the default profile; its id and its time are no secrets.
    let (house, engine) = House::open().await;
    subscribe(&engine, "https://a/", json!({})).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    let request = request(&house, &engine).await;
    same(&request, &house.receivers.of("https://a/")[0]);
    assert_eq!(masked(&request), ["webhook-signature"]);
}

#[tokio::test(start_paused = true)]
async fn no_token_is_fetched_and_no_gate_asked() {
    let (house, engine) = House::open().await;
    let client = json!({"kind": "oauth2", "token_url": "https://id/token", "client_id": "me",
        "secret": "client"});
    let policy = json!({"auth": [client], "gate": {"url": "https://gate/", "status": [200],
        "on_closed": {"postpone": {"wait": "1h"}}, "timeout": "5s"}});
    with_auth(&engine, policy, &[("client", "hush-hush-hush")]).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    let before = house.receivers.seen.lock().len();
    let request = request(&house, &engine).await;
    assert_eq!(masked(&request), ["authorization"]);
    assert_eq!(house.receivers.seen.lock().len(), before);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_built_says_how_an_attempt_would_fail() {
    let (house, engine) = House::open().await;
    let policy = json!({"request": {"headers": {"X-N": "{event.payload.missing}"}}});
    let view = subscribe(&engine, "https://a/", policy).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(1).await;
    match shown(&house, &engine).await {
        Preview::Failed { code, detail } => {
            assert_eq!(code, FailureCode::RequestInvalid);
            assert!(detail.contains("X-N"), "{detail}");
        }
        Preview::Request(request) => panic!("{request:?}"),
    }
    engine.delete_subscription(TENANT, view.subscription.id).await.expect("deleted");
    let delivery = house.store.all_deliveries().pop().expect("one");
    let gone = engine.preview_request(TENANT, delivery.id).await;
    assert!(matches!(gone, Err(Error::NotFound("subscription"))), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn of_push_messages_only_the_headers_are_shown() {
    // An agent of this server.
    let (house, mailboxes, engine) = push_house::house().await;
    let keys = ReceiverKeys::generate();
    mailboxes.put("https://here/1", Ok(push_house::endpoint(1, None)));
    let input = PushInput {
        keys: Some(push_house::keys_of(&keys)),
        ttl: Some(60),
        ..push_house::to("https://here/1")
    };
    push_house::subscribe(&engine, input, json!({})).await.expect("made");
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    let own = request(&house, &engine).await;
    assert_eq!((own.url.as_ref(), own.body.as_ref()), (None, None));
    assert!(own.body_bytes > 0);
    let headers: BTreeMap<_, _> = own.headers.iter().cloned().collect();
    assert_eq!(headers["ttl"].as_deref(), Some("60"));
    assert_eq!(headers["content-encoding"].as_deref(), Some("aes128gcm"));
    assert_eq!(mailboxes.kept().len(), 1, "nothing was kept for it");

    // A browser that another service looks after.
    let house = House::new();
    let push = PushOptions {
        contact: Some("mailto:a@b.example".parse().expect("a contact")),
        services: vec!["push.example".parse().expect("a service")],
    };
    let engine = house.engine_with(1, Options { push, ..Options::default() }).await;
    topic(&engine).await;
    let input = PushInput {
        keys: Some(push_house::keys_of(&ReceiverKeys::generate())),
        ..push_house::to("https://push.example/send/very-secret-token")
    };
    push_house::subscribe(&engine, input, json!({})).await.expect("made");
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    let other = request(&house, &engine).await;
    assert_eq!(other.url.as_deref(), Some("https://push.example"));
    assert_eq!((masked(&other), other.body.as_ref()), (vec!["authorization"], None));
    assert!(!format!("{other:?}").contains("very-secret-token"));
}
