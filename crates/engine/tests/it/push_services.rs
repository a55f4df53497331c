//! Messages to other push services: what is sent, what answers mean, which endpoints may be named, and what of them is
//! shown.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use posthorn_domain::{
    Answer, Attempt, AttemptOutcome, DeadReason, DeliveryState, Destination, EventId, FailureCode,
    PushEncoding, PushHeaders, PushUrgency, SubscriptionStatus,
};
use posthorn_engine::{
    DestinationInput, Engine, Error, NewSubscription, Options, PushInput, PushOptions, PushRefusal,
    SubscriptionChange,
};
use posthorn_sealing::vapid;
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_sealing::web_push::ReceiverKeys;
use posthorn_store::Store as _;
use serde_json::{Value, json};

use crate::house::{House, Seen, TENANT, answered, publish, rest, topic};
use crate::push_house::{Mailboxes, endpoint, keys_of, subscribe, subscribe_in, to};

const ORIGIN: &str = "https://push.example:8443";
const ENDPOINT: &str = "https://push.example:8443/send/very-secret-token?x=1";
const CONTACT: &str = "mailto:operations@example.com";

fn push_options(services: &[&str]) -> PushOptions {
    PushOptions {
        contact: Some(CONTACT.parse().expect("a contact")),
        services: services.iter().map(|text| text.parse().expect("a service")).collect(),
    }
}

async fn engine(house: &House, seed: u8, push: PushOptions) -> Engine {
    house.engine_with(seed, Options { push, ..Options::default() }).await
}

/// A server without agents that may send to `push.example`.
async fn open() -> (House, Engine) {
    let house = House::new();
    let engine = engine(&house, 1, push_options(&["push.example"])).await;
    topic(&engine).await;
    (house, engine)
}

fn browser() -> (ReceiverKeys, PushInput) {
    let keys = ReceiverKeys::generate();
    let input = PushInput { keys: Some(keys_of(&keys)), ..to(ENDPOINT) };
    (keys, input)
}

fn header<'a>(seen: &'a Seen, name: &str) -> Option<&'a str> {
    seen.headers.get(name).map(|value| value.to_str().expect("text"))
}

fn opened(keys: &ReceiverKeys, seen: &Seen) -> Value {
    let headers =
        PushHeaders { encoding: PushEncoding::Aes128Gcm, encryption: None, crypto_key: None };
    let text = keys.decrypt(&headers, &seen.body).expect("for these keys");
    serde_json::from_slice(&text).expect("JSON")
}

async fn told(engine: &Engine, event: EventId) -> (DeliveryState, Vec<Attempt>) {
    let mut told = engine.explain_event(TENANT, event).await.expect("explains");
    assert_eq!(told.deliveries.len(), 1);
    let (delivery, attempts) = told.deliveries.remove(0);
    (delivery.state, attempts)
}

async fn published(engine: &Engine, payload: &str) -> EventId {
    engine.publish(TENANT, publish(payload, None)).await.expect("accepted").id
}

#[tokio::test(start_paused = true)]
async fn a_message_is_posted_encrypted_and_signed_with_the_tenants_key() {
    let (house, engine) = open().await;
    let (keys, input) = browser();
    let input = PushInput {
        ttl: Some(3_600),
        urgency: PushUrgency::High,
        topic: Some("news".parse().expect("a topic")),
        ..input
    };
    subscribe(&engine, input, json!({})).await.expect("made");
    let event = published(&engine, r#"{"total":12}"#).await;
    rest(1).await;
    let (state, attempts) = told(&engine, event).await;
    assert_eq!(state, DeliveryState::Delivered);
    assert_eq!((attempts.len(), attempts[0].status), (1, Some(204)));

    let seen = house.receivers.of(ENDPOINT).remove(0);
    assert_eq!((seen.method.as_str(), seen.path.as_deref()), ("POST", None));
    for (name, value) in [
        ("ttl", "3600"),
        ("urgency", "high"),
        ("topic", "news"),
        ("content-encoding", "aes128gcm"),
        ("content-type", "application/octet-stream"),
    ] {
        assert_eq!(header(&seen, name), Some(value), "{name}");
    }
    assert_eq!(seen.headers.len(), 6, "nothing else: {:?}", seen.headers);
    let authorization = header(&seen, "authorization").expect("signed");
    let now = seen.at.as_seconds();
    let shown = vapid::verify(authorization, None, ORIGIN, now).expect("counts");
    assert_eq!(shown.key, engine.push_key(TENANT).expect("a key"));
    assert_eq!(shown.subject.as_deref(), Some(CONTACT));
    assert!((now + 1..=now + 86_400).contains(&shown.expires_at), "{}", shown.expires_at);
    let text = opened(&keys, &seen);
    assert_eq!((&text["id"], &text["payload"]["total"]), (&json!(event), &json!(12)));
    assert!(seen.body.len() <= 4_096);
}

#[tokio::test(start_paused = true)]
async fn what_answers_mean() {
    enum Then {
        Delivered,
        Disabled,
        Dead,
        /// Tried again after so many seconds.
        Again(u64),
    }
    use Then::{Again, Dead, Delivered, Disabled};
    let plain = || json!({"schedule": {"jitter": "none"}});
    let gives_up = || json!({"permanent": {"status": [400, 401, 403]}});
    let rows = [
        (200, None, plain(), Delivered),
        (201, None, plain(), Delivered),
        (202, None, plain(), Delivered),
        // Whatever the policy says of webhooks.
        (201, None, json!({"success": ["204"]}), Delivered),
        (404, None, plain(), Disabled),
        (410, None, plain(), Disabled),
        (413, None, plain(), Dead),
        (400, None, plain(), Again(5)),
        (401, None, plain(), Again(5)),
        (403, None, plain(), Again(5)),
        (403, None, gives_up(), Dead),
        (429, None, plain(), Again(5)),
        (429, Some("100"), plain(), Again(100)),
        (500, None, plain(), Again(5)),
        (503, Some("60"), plain(), Again(60)),
        (301, None, plain(), Again(5)),
    ];
    for (status, wait, policy, then) in rows {
        let (house, engine) = open().await;
        house.receivers.script(ENDPOINT, move |nth, _| {
            let answer = Answer {
                status: if nth == 0 { status } else { 201 },
                retry_after: wait.map(str::to_owned),
                content_type: None,
                body: Bytes::new(),
            };
            (Duration::from_millis(5), AttemptOutcome::Answered(answer))
        });
        let view = subscribe(&engine, browser().1, policy).await.expect("made");
        let event = published(&engine, "1").await;
        rest(1).await;
        let (state, attempts) = told(&engine, event).await;
        assert_eq!(attempts[0].status, Some(status));
        let now = engine.catalog().subscription(TENANT, view.subscription.id).expect("there");
        let active = now.subscription.status.is_active();
        match then {
            Delivered => assert_eq!((state, active), (DeliveryState::Delivered, true), "{status}"),
            Dead => {
                let dead = DeliveryState::Dead(DeadReason::Permanent);
                assert_eq!((state, active), (dead, true), "{status}");
            }
            Disabled => {
                assert_eq!(state, DeliveryState::Pending, "{status}: its work is kept");
                let SubscriptionStatus::Disabled { reason } = &now.subscription.status else {
                    panic!("{status}: {:?}", now.subscription.status);
                };
                assert!(reason.contains("push service"), "{reason}");
            }
            Again(seconds) => {
                assert_eq!((state, active), (DeliveryState::Pending, true), "{status}");
                rest(seconds - 2).await;
                assert_eq!(house.receivers.of(ENDPOINT).len(), 1, "{status}: not before its time");
                rest(3).await;
                assert_eq!(told(&engine, event).await.0, DeliveryState::Delivered, "{status}");
            }
        }
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn browsers_share_their_policy() {
    let (_house, engine) = open().await;
    let policy = async |overrides: Value| {
        let view = subscribe(&engine, browser().1, overrides).await.expect("made");
        view.policy.clone().expect("usable")
    };
    let named = || json!({"limits": {"concurrency": 2}});
    let (first, second) = (policy(json!({})).await, policy(json!({})).await);
    assert!(Arc::ptr_eq(&first, &second));
    let (third, fourth) = (policy(named()).await, policy(named()).await);
    assert!(Arc::ptr_eq(&third, &fourth) && !Arc::ptr_eq(&first, &third));
    assert_eq!(third.limits.concurrency, 2);
    // A profile that changes changes it for all of them.
    let default = posthorn_domain::ProfileName::new("default").expect("a name");
    let change = json!({"limits": {"concurrency": 3}});
    engine.put_profile(TENANT, default, None, change).await.expect("put");
    for view in engine.catalog().subscriptions(TENANT) {
        let policy = view.policy.as_ref().expect("usable");
        assert!(policy.permanent.gone_too.contains(404), "as it holds for push services");
        let expected = if view.subscription.overrides == named() { 2 } else { 3 };
        assert_eq!(policy.limits.concurrency, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_given_up_before_anything_is_sent() {
    let (house, engine) = open().await;
    let (keys, input) = browser();
    subscribe(&engine, input, json!({})).await.expect("made");
    let large = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
    let event = published(&engine, &large(3_993)).await;
    rest(1).await;
    let (state, attempts) = told(&engine, event).await;
    assert_eq!(state, DeliveryState::Dead(DeadReason::Permanent));
    assert_eq!(attempts[0].failure, Some(FailureCode::MessageTooLarge));
    assert!(house.receivers.of(ENDPOINT).is_empty());
    // The largest that fits has a body that every service takes.
    let around = published(&engine, &large(1)).await;
    rest(1).await;
    let overhead = serde_json::to_vec(&opened(&keys, &house.receivers.of(ENDPOINT)[0]));
    let overhead = overhead.expect("JSON").len() - 1;
    let event = published(&engine, &large(3_993 - overhead)).await;
    rest(1).await;
    for event in [around, event] {
        assert_eq!(told(&engine, event).await.0, DeliveryState::Delivered);
    }
    assert_eq!(house.receivers.of(ENDPOINT)[1].body.len(), 4_096);
}

#[tokio::test(start_paused = true)]
async fn which_endpoints_may_be_named() {
    let (house, engine) = open().await;
    let (_, good) = browser();
    let at = |url: &str| PushInput { endpoint: url.to_owned(), ..good.clone() };
    let host = |host: &str| PushRefusal::ServiceNotAllowed { host: host.to_owned() };
    let ttl = || PushRefusal::Ttl { max: posthorn_domain::Span::from_secs(2_592_000) };
    for (input, expected) in [
        (at("http://push.example/x"), PushRefusal::Plain),
        (at(""), PushRefusal::Plain),
        (at("https://else.example/x"), host("else.example")),
        (at("https://x.push.example/x"), host("x.push.example")),
        (PushInput { keys: None, ..good.clone() }, PushRefusal::KeysMissing),
        (PushInput { ttl: Some(0), ..good.clone() }, ttl()),
        (PushInput { ttl: Some(2_592_001), ..good.clone() }, ttl()),
        (
            PushInput { application_server_key: Some("AAAA".to_owned()), ..good.clone() },
            PushRefusal::ApplicationKey,
        ),
        (
            PushInput {
                application_server_key: Some(ReceiverKeys::generate().receiver().key().to_text()),
                ..good.clone()
            },
            PushRefusal::OtherKey,
        ),
    ] {
        match subscribe(&engine, input, json!({})).await {
            Err(Error::Push(refusal)) => assert_eq!(refusal, expected),
            other => panic!("{expected:?}: {:?}", other.err()),
        }
    }
    // What the guard refuses is refused in its words.
    let private = subscribe(&engine, at("https://10.0.0.1/x"), json!({})).await.err();
    assert!(matches!(private, Some(Error::Push(PushRefusal::Url(_)))), "{private:?}");
    assert!(engine.catalog().subscriptions(TENANT).is_empty(), "nothing was made");

    let silent = PushOptions { contact: None, ..push_options(&["*"]) };
    let silent = self::engine(&house, 2, silent).await;
    let refused = subscribe(&silent, good.clone(), json!({})).await.err();
    assert!(matches!(refused, Some(Error::Push(PushRefusal::NoContact))), "{refused:?}");
    let off = self::engine(&house, 3, push_options(&[])).await;
    for refused in [subscribe(&off, good, json!({})).await.err(), off.push_key(TENANT).err()] {
        assert!(matches!(refused, Some(Error::Push(PushRefusal::NotEnabled))), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn own_endpoints_go_on_into_the_mailbox_with_the_same_knobs() {
    let house = House::new();
    let mailboxes = Arc::new(Mailboxes::default());
    mailboxes.put("https://push/a", Ok(endpoint(1, None)));
    let engine =
        crate::push_house::engine_of(&house, Some(&mailboxes), Arc::clone(&house.vault), 1);
    let engine = engine.await;
    topic(&engine).await;
    let rule = "{event.key}".parse().expect("a topic");
    let input = PushInput { urgency: PushUrgency::Low, topic: Some(rule), ..to("https://push/a") };
    let view = subscribe(&engine, input, json!({})).await.expect("made");
    let Destination::Push(target) = &view.subscription.destination else { panic!("a channel") };
    assert_eq!(target.urgency, PushUrgency::Low);
    for key in [Some("7"), Some("7"), Some("8"), None] {
        engine.publish(TENANT, publish("1", key)).await.expect("accepted");
        rest(1).await;
    }
    let topics: Vec<_> = mailboxes.kept().into_iter().map(|message| message.topic).collect();
    assert_eq!(topics[0], topics[1]);
    assert!(topics[0].is_some() && topics[2].is_some() && topics[0] != topics[2], "{topics:?}");
    assert_eq!(topics[3], None, "an event without a key replaces nothing");
    assert!(house.receivers.seen.lock().is_empty(), "nothing leaves");
}

#[tokio::test(start_paused = true)]
async fn a_topic_made_from_an_event_does_not_tell_what_it_is_about() {
    let (house, engine) = open().await;
    let with_topic = || {
        let rule = "order-{event.key}".parse().expect("a topic");
        PushInput { topic: Some(rule), ..browser().1 }
    };
    for _ in 0..2 {
        subscribe(&engine, with_topic(), json!({})).await.expect("made");
    }
    engine.publish(TENANT, publish("1", Some("7"))).await.expect("accepted");
    rest(1).await;
    let seen = house.receivers.of(ENDPOINT);
    let topics: Vec<_> = seen.iter().filter_map(|seen| header(seen, "topic")).collect();
    assert_eq!(topics.len(), 2);
    assert_ne!(topics[0], topics[1], "nor that two subscriptions get the same");
    for topic in topics {
        assert_eq!(URL_SAFE_NO_PAD.decode(topic).expect("base64url").len(), 24);
    }
}

#[tokio::test(start_paused = true)]
async fn the_url_is_sealed_and_nothing_shows_it() {
    let (house, engine) = open().await;
    // A service that repeats what it was sent.
    house.receivers.script(ENDPOINT, |_, seen| {
        let authorization = header(seen, "authorization").unwrap_or_default();
        let token = authorization.split([' ', '=', ',']).nth(2).unwrap_or_default();
        let url = seen.url.replace('/', "\\/");
        let body = format!("{} {url} {authorization} {token} very-secret-token", seen.url);
        let answer =
            Answer { status: 500, retry_after: None, content_type: None, body: body.into() };
        (Duration::from_millis(5), AttemptOutcome::Answered(answer))
    });
    let (_, input) = browser();
    assert!(!format!("{input:?}").contains("very-secret"), "{input:?}");
    let view = subscribe(&engine, input, json!({})).await.expect("made");
    let names: Vec<_> = view.subscription.secrets.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["push.auth", "push.key", "push.endpoint"]);
    let Destination::PushService(target) = &view.subscription.destination else { panic!("one") };
    assert_eq!((&*target.origin, target.ttl), (ORIGIN, 2_419_200));
    let event = published(&engine, "1").await;
    rest(1).await;
    let (_, attempts) = told(&engine, event).await;
    let answer = String::from_utf8_lossy(&attempts[0].response).into_owned();
    assert!(answer.contains("[secret removed]"), "{answer}");
    let stored = house.store.catalog_since(posthorn_domain::CatalogVersion(0)).await.expect("it");
    let stored = serde_json::to_string(&stored.subscriptions).expect("JSON");
    for shown in [answer, stored, format!("{:?}", view.subscription)] {
        for secret in ["very-secret", "eyJ"] {
            assert!(!shown.contains(secret), "{secret} is in {shown}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_tenant_signs_with_its_own_key() {
    let (house, engine) = open().await;
    let other = engine.create_tenant("other".to_owned()).await.expect("made").id;
    subscribe_in(&engine, other, browser().1, json!({})).await.expect("made");
    let name = posthorn_domain::TopicName::new("orders").expect("a name");
    let labels = posthorn_domain::Labels::default();
    engine.put_topic(other, name, String::new(), vec![], labels).await.expect("a topic");
    engine.publish(other, publish("1", None)).await.expect("accepted");
    rest(1).await;
    let seen = house.receivers.of(ENDPOINT).remove(0);
    let authorization = header(&seen, "authorization").expect("signed");
    let shown = vapid::verify(authorization, None, ORIGIN, seen.at.as_seconds()).expect("counts");
    assert_eq!(shown.key, engine.push_key(other).expect("a key"));
    assert_ne!(shown.key, engine.push_key(TENANT).expect("a key"));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_seal_keys_does_not_change_who_signs() {
    let (old, new) = (VaultKey::generate(), VaultKey::generate());
    let vault = |keys: &[&VaultKey]| {
        Arc::new(Vault::new(keys.iter().map(|key| (*key).clone()).collect()).expect("keys"))
    };
    let mut house = House::new();
    house.vault = vault(&[&old]);
    let before = engine(&house, 1, push_options(&["*"])).await;
    topic(&before).await;
    let former = before.push_key(TENANT).expect("a key");
    let (_, input) = browser();
    let id = subscribe(&before, input.clone(), json!({})).await.expect("made").subscription.id;
    before.stop().await;

    house.vault = vault(&[&new, &old]);
    let both = engine(&house, 2, push_options(&["*"])).await;
    let current = both.push_key(TENANT).expect("a key");
    assert_ne!(current, former);
    // A page that subscribed before the change may say so.
    let late = PushInput {
        endpoint: "https://push.example/late".to_owned(),
        application_server_key: Some(former.to_text()),
        ..input.clone()
    };
    subscribe(&both, late, json!({})).await.expect("made");
    // A change that names the same endpoint keeps its key.
    let change = SubscriptionChange {
        destination: Some(DestinationInput::Push(PushInput { ttl: Some(60), ..input.clone() })),
        ..SubscriptionChange::default()
    };
    both.update_subscription(TENANT, id, change).await.expect("changes");
    both.reseal(100).await.expect("seals");
    both.stop().await;

    house.vault = vault(&[&new]);
    let after = engine(&house, 3, push_options(&["*"])).await;
    let fresh = PushInput { endpoint: "https://push.example/fresh".to_owned(), ..input.clone() };
    subscribe(&after, fresh, json!({})).await.expect("made");
    published(&after, "1").await;
    rest(1).await;
    for (url, origin, key) in [
        (ENDPOINT, ORIGIN, former),
        ("https://push.example/late", "https://push.example", former),
        ("https://push.example/fresh", "https://push.example", current),
    ] {
        let seen = house.receivers.of(url).remove(0);
        let authorization = header(&seen, "authorization").expect("signed");
        let shown = vapid::verify(authorization, None, origin, seen.at.as_seconds());
        assert_eq!(shown.expect("counts").key, key, "{url}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_operator_takes_back_waits() {
    let (house, engine) = open().await;
    subscribe(&engine, browser().1, json!({"schedule": {"jitter": "none"}})).await.expect("made");
    engine.stop().await;
    let silent = PushOptions { contact: None, ..push_options(&["*"]) };
    for (seed, push, code) in [
        (2, push_options(&["else.example"]), FailureCode::UrlRefused),
        (3, silent, FailureCode::AuthUnavailable),
    ] {
        let engine = self::engine(&house, seed, push).await;
        let event = published(&engine, "1").await;
        rest(1).await;
        let (state, attempts) = told(&engine, event).await;
        assert_eq!((state, attempts[0].failure), (DeliveryState::Pending, Some(code)));
        engine.stop().await;
    }
    assert!(house.receivers.seen.lock().is_empty());
    let engine = self::engine(&house, 4, push_options(&["*"])).await;
    rest(3_600).await;
    assert_eq!(house.receivers.of(ENDPOINT).len(), 2);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_declared_subscription_is_made_once_and_a_webhook_may_take_its_place() {
    let (house, engine) = open().await;
    let (_, input) = browser();
    let wanted = |input: &PushInput| NewSubscription {
        name: Some(posthorn_domain::SubscriptionName::new("declared").expect("a name")),
        destination: DestinationInput::Push(input.clone()),
        overrides: json!({}),
        ..NewSubscription::default()
    };
    let moved = PushInput { endpoint: "https://push.example/b".to_owned(), ..input.clone() };
    let urgent = PushInput { urgency: PushUrgency::High, ..moved.clone() };
    let mut id = None;
    for (input, done) in
        [(&input, true), (&input, false), (&moved, true), (&urgent, true), (&urgent, false)]
    {
        let ensured = engine.ensure_subscription(TENANT, wanted(input)).await;
        let (view, changed) = ensured.expect("ensures");
        assert_eq!(changed, done);
        id = Some(view.subscription.id);
    }
    let change = SubscriptionChange {
        destination: Some("https://a/".into()),
        overrides: Some(json!({"auth": []})),
        ..SubscriptionChange::default()
    };
    let view = engine.update_subscription(TENANT, id.expect("one"), change).await;
    assert!(view.expect("changes").subscription.secrets.is_empty(), "they went with it");
    house.receivers.script("https://a/", |_, _| (Duration::ZERO, answered(200)));
    published(&engine, "1").await;
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["1"]);
}
