//! The profile `pca-hub`: what is sent where, what answers mean, when it is tried again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use posthorn_domain::{
    Answer, AttemptOutcome, DeadReason, Delivery, DeliveryState, EventType, FailureCode,
    ProfileName, RedriveFilter, SecretName,
};
use posthorn_engine::{
    Engine, NewSubscription, Publish, SecretInput, SubscriptionChange, SubscriptionView,
};
use posthorn_sealing::otp;
use posthorn_sealing::vault::Secret;
use posthorn_store::{DeliveryFilter, Listing, Store};
use serde_json::{Value, json};

use crate::house::{House, Seen, TENANT, answered, publish, rest, topic};

pub(crate) const ROOT: &str = "https://alb.example/g/private/api/v1/pcaidwebhooks";
pub(crate) const GATE: &str = "https://tenant1.hub.example/g/api/pca119";
const USERS: &str = "/g/private/api/v1/pcaidwebhooks/user-events";

/// What the Hub says of itself when it takes calls.
pub(crate) fn open() -> AttemptOutcome {
    said(200, r#"{"Status": 2}"#)
}

pub(crate) fn said(status: u16, body: &str) -> AttemptOutcome {
    AttemptOutcome::Answered(Answer {
        status,
        retry_after: None,
        content_type: None,
        body: Bytes::from(body.to_owned()),
    })
}

/// The Hub's standard error.
fn standard(status: u16) -> AttemptOutcome {
    said(
        status,
        r#"{"status":400,"code":"E1","message":"no","domain":"hub","trace":"t-1","more":1}"#,
    )
}

fn secrets() -> Vec<SecretInput> {
    let pairs = [
        ("otp", "one-time-secret"),
        ("otp-salt", "salt"),
        ("shared-internal-key", "open sesame"),
        ("event-api-key", "event-key-1"),
    ];
    pairs
        .map(|(name, value)| SecretInput {
            name: SecretName::new(name).expect("a name"),
            value: value.to_owned(),
        })
        .into()
}

pub(crate) async fn subscribe_as(
    engine: &Engine,
    profile: &str,
    url: &str,
    overrides: Value,
) -> Arc<SubscriptionView> {
    let new = NewSubscription {
        destination: url.into(),
        profile: Some(ProfileName::new(profile).expect("a name")),
        overrides,
        secrets: secrets(),
        ..NewSubscription::default()
    };
    engine.create_subscription(TENANT, new).await.expect("a subscription").0
}

/// A house with a Hub whose gate is open, and one engine with a subscription to it.
pub(crate) async fn hub(seed: u8) -> (House, Engine) {
    let house = House::new();
    house.receivers.script(GATE, |_, _| (Duration::from_millis(2), open()));
    house.receivers.script(ROOT, |_, _| (Duration::from_millis(5), answered(200)));
    let engine = house.engine(seed).await;
    topic(&engine).await;
    let overrides = json!({"values": {"hub_domain": "hub.example"}});
    subscribe_as(&engine, "pca-hub", ROOT, overrides).await;
    rest(3).await;
    (house, engine)
}

/// An event as the sender publishes it.
pub(crate) fn event(event_type: &str, tenant: &str, account: &str, n: u32) -> Publish {
    let body = json!({"account_id": account, "login_name": "taro", "n": n,
        "organization_id": "org-9", "service_partition": format!("pca.hub.{tenant}")});
    let mut event = publish(&body.to_string(), None);
    event.event_type = EventType::new(event_type).expect("a type");
    for (name, value) in
        [("service_partition", format!("pca.hub.{tenant}")), ("eventSender", "user".to_owned())]
    {
        event.attributes.insert(name.to_owned(), value);
    }
    event
}

pub(crate) fn user(account: &str, n: u32) -> Publish {
    event("user.updated", "tenant1", account, n)
}

fn header<'a>(seen: &'a Seen, name: &str) -> &'a str {
    seen.headers[name].to_str().expect("text")
}

pub(crate) async fn only(house: &House) -> Delivery {
    let filter = DeliveryFilter::default();
    let mut all =
        house.store.deliveries(TENANT, filter, Listing::newest(10)).await.expect("answers").items;
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[tokio::test(start_paused = true)]
async fn headers_are_complete_and_exact() {
    let (house, engine) = hub(1).await;
    let mut event = user("acc-1", 1);
    for (name, value) in [("eventTypeVersion", "1"), ("eventSourceClient", "PCAID-management")] {
        event.attributes.insert(name.to_owned(), value.to_owned());
    }
    let body = event.payload.clone();
    engine.publish(TENANT, event).await.expect("accepted");
    rest(1).await;
    let [seen] = &house.receivers.of(ROOT)[..] else { panic!("one call") };
    assert_eq!(seen.method, http::Method::POST);
    assert_eq!(seen.path.as_deref(), Some(USERS));
    assert_eq!(seen.body, body, "byte for byte");
    let names: BTreeSet<&str> = seen.headers.keys().map(http::HeaderName::as_str).collect();
    let expected = [
        ("content-type", "application/json"),
        ("x-pca-shared-internal-key", "open sesame"),
        ("x-pca-issuer", "https://tenant1.hub.example/auth"),
        ("x-pca-tenant", "tenant1"),
        ("x-pca-event-apikey", "event-key-1"),
        ("x-pca-organization-id", "org-9"),
        ("x-pca-service-partition", "pca.hub.tenant1"),
        ("x-pca-event-type", "user.updated"),
        ("x-pca-event-sender", "user"),
        ("x-pca-event-type-version", "1"),
        ("x-pca-event-sourceclient", "PCAID-management"),
    ];
    for (name, value) in expected {
        assert_eq!(header(seen, name), value, "{name}");
    }
    let mut all: BTreeSet<&str> = expected.iter().map(|(name, _)| *name).collect();
    all.insert("authorization");
    assert_eq!(names, all, "what is not known is not sent, and nothing else is");
    for name in ["authorization", "x-pca-shared-internal-key", "x-pca-event-apikey"] {
        assert!(seen.headers[name].is_sensitive(), "{name}");
    }
    // The gate is asked with nothing of all this.
    let [gate] = &house.receivers.of(GATE)[..] else { panic!("one question") };
    assert_eq!((gate.method.clone(), gate.headers.len()), (http::Method::GET, 0));
    assert_eq!(gate.total.as_millis(), 5_000);
    assert!(gate.at <= seen.at);
}

#[tokio::test(start_paused = true)]
async fn interim_mode_sends_neither_code_nor_shared_key_nor_issuer() {
    let house = House::new();
    house.receivers.script(GATE, |_, _| (Duration::ZERO, open()));
    house.receivers.script(ROOT, |_, _| (Duration::ZERO, answered(200)));
    let engine = house.engine(2).await;
    topic(&engine).await;
    let overrides = json!({"values": {"hub_domain": "hub.example"}});
    subscribe_as(&engine, "pca-hub-interim", ROOT, overrides).await;
    rest(3).await;
    engine.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
    rest(1).await;
    let [seen] = &house.receivers.of(ROOT)[..] else { panic!("one call") };
    for name in ["authorization", "x-pca-shared-internal-key", "x-pca-issuer"] {
        assert!(!seen.headers.contains_key(name), "{name}");
    }
    assert_eq!(header(seen, "x-pca-tenant"), "tenant1");
    assert_eq!(header(seen, "x-pca-event-apikey"), "event-key-1");
    assert_eq!(header(seen, "x-pca-event-type"), "user.updated");
    assert_eq!(seen.path.as_deref(), Some(USERS));
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_the_code_of_its_own_step() {
    let (house, engine) = hub(3).await;
    house.receivers.script(ROOT, |nth, _| {
        (Duration::ZERO, if nth < 2 { answered(500) } else { answered(200) })
    });
    engine.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
    rest(400).await;
    let seen = house.receivers.of(ROOT);
    let scheme = || otp::Scheme {
        method: otp::Method::Totp { digits: 6 },
        hash: "sha1".parse().expect("a hash"),
        salt_use: otp::SaltUse::Prefix,
        step_seconds: 30,
        t0: 0,
        format: "{otp}".to_owned(),
    };
    let codes: Vec<&str> = seen.iter().map(|seen| header(seen, "authorization")).collect();
    assert_eq!(codes.len(), 3);
    for (seen, code) in seen.iter().zip(&codes) {
        let salt = Some(Secret::from("salt"));
        let ours = otp::Otp::new(Secret::from("one-time-secret"), salt, scheme()).expect("valid");
        assert_eq!(*code, ours.code(seen.at.as_seconds(), &[]).expect("a code"));
    }
    assert_ne!(codes[1], codes[2], "five minutes later it is another one");
}

#[tokio::test(start_paused = true)]
async fn each_family_has_its_own_path_and_no_other_is_called() {
    let (house, engine) = hub(4).await;
    engine.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
    let created = event("organization.created", "tenant1", "acc-1", 2);
    engine.publish(TENANT, created).await.expect("accepted");
    rest(10).await;
    let paths: Vec<_> = house
        .receivers
        .of(ROOT)
        .iter()
        .map(|seen| (header(seen, "x-pca-event-type").to_owned(), seen.path.clone()))
        .collect();
    let root = "/g/private/api/v1/pcaidwebhooks";
    assert!(paths.contains(&("user.updated".to_owned(), Some(format!("{root}/user-events")))));
    let organization = Some(format!("{root}/organization-events"));
    assert!(paths.contains(&("organization.created".to_owned(), organization)));
    assert_eq!(paths.len(), 2);

    // A family nobody has a path for is never called, not even asked for, and kept.
    let asked = house.receivers.of(GATE).len();
    let strange = event("group.created", "tenant1", "acc-1", 3);
    let published = engine.publish(TENANT, strange).await.expect("accepted");
    rest(10).await;
    assert_eq!(house.receivers.of(ROOT).len(), 2);
    assert_eq!(house.receivers.of(GATE).len(), asked);
    let told = engine.explain_event(TENANT, published.id).await.expect("answers");
    let [(delivery, attempts)] = &told.deliveries[..] else { panic!("one delivery") };
    assert_eq!(delivery.state, DeliveryState::Dead(DeadReason::Permanent));
    assert_eq!(attempts[0].failure, Some(FailureCode::FamilyNotRouted));
    assert!(attempts[0].detail.contains("no path for the family `group`"), "{attempts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_family_that_is_off_leads_to_no_delivery_and_says_so() {
    for root in [ROOT.to_owned(), format!("{ROOT}/")] {
        let house = House::new();
        house.receivers.script(GATE, |_, _| (Duration::ZERO, open()));
        house.receivers.script(&root, |_, _| (Duration::ZERO, answered(200)));
        let engine = house.engine(5).await;
        topic(&engine).await;
        let overrides = json!({"values": {"hub_domain": "hub.example"},
            "request": {"families": {"organization": "off"}}});
        subscribe_as(&engine, "pca-hub", &root, overrides).await;
        rest(3).await;
        let created = event("organization.created", "tenant1", "acc-1", 2);
        let published = engine.publish(TENANT, created).await.expect("accepted");
        assert_eq!(published.deliveries, 0);
        let told = engine.explain_event(TENANT, published.id).await.expect("answers");
        let reason = &told.not_delivered[0].reasons[0];
        assert!(reason.contains("turns the family `organization` off"), "{reason}");
        engine.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
        rest(10).await;
        let [seen] = &house.receivers.of(&root)[..] else { panic!("the user's event only") };
        assert_eq!(seen.path.as_deref(), Some(USERS), "joined cleanly from {root}");
        assert_eq!(house.receivers.of(GATE).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_when_its_family_is_switched_off_is_kept_and_not_sent() {
    let (house, engine) = hub(26).await;
    let id = engine.catalog().subscriptions(TENANT)[0].subscription.id;
    engine.pause_subscription(TENANT, id).await.expect("paused");
    engine.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
    let off =
        json!({"values": {"hub_domain": "hub.example"}, "request": {"families": {"user": "off"}}});
    let change = SubscriptionChange { overrides: Some(off), ..SubscriptionChange::default() };
    engine.update_subscription(TENANT, id, change).await.expect("changed");
    engine.resume_subscription(TENANT, id).await.expect("resumed");
    rest(5).await;
    assert!(house.receivers.seen.lock().is_empty());
    let dead = only(&house).await;
    assert_eq!(dead.state, DeliveryState::Dead(DeadReason::Permanent));
    let attempts = house.store.attempts(TENANT, dead.id).await.expect("answers");
    assert!(attempts[0].detail.contains("turns the family `user` off"), "{attempts:?}");
}

#[tokio::test(start_paused = true)]
async fn five_retries_in_their_windows_then_a_dead_letter() {
    let mut jitters = BTreeSet::new();
    for seed in 10..14 {
        let (house, engine) = hub(seed).await;
        house.receivers.script(ROOT, |_, _| (Duration::ZERO, answered(500)));
        engine.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
        rest(9_000).await;
        let times: Vec<i64> =
            house.receivers.of(ROOT).iter().map(|seen| seen.at.as_millis()).collect();
        assert_eq!(times.len(), 6, "one call and five retries");
        let windows = [(0, 0), (11, 20), (312, 330), (913, 940), (2714, 2750), (8715, 8760)];
        for (time, (from, to)) in times.iter().zip(windows) {
            // The gate takes 2 ms before each call.
            let after = time - times[0];
            assert!((from * 1_000..=to * 1_000 + 20).contains(&after), "{after} ms");
        }
        let own: Vec<i64> = times
            .windows(2)
            .zip([10, 300, 600, 1800, 6000])
            .map(|(pair, wait)| (pair[1] - pair[0]) / 1_000 - wait)
            .collect();
        assert!(own.iter().any(|jitter| *jitter != own[0]), "thrown anew each time: {own:?}");
        jitters.extend(own);
        let dead = only(&house).await;
        assert_eq!(dead.state, DeliveryState::Dead(DeadReason::Exhausted));
        assert_eq!(dead.attempts, 6);
        rest(400).await;
        assert_eq!(house.receivers.of(ROOT).len(), 6, "and that is the end");
    }
    assert!(jitters.len() > 5 && jitters.iter().all(|j| (1..=10).contains(j)), "{jitters:?}");
}

/// Makes one attempt with this outcome and says what the delivery is then.
async fn after_one(outcome: AttemptOutcome) -> DeliveryState {
    let (house, engine) = hub(6).await;
    house.receivers.script(ROOT, move |_, _| (Duration::ZERO, outcome.clone()));
    engine.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
    rest(5).await;
    assert_eq!(house.receivers.of(ROOT).len(), 1);
    only(&house).await.state
}

#[tokio::test(start_paused = true)]
async fn what_each_answer_means() {
    let html = "<html>502 Bad Gateway</html>";
    let four = r#"{"status":400,"code":"c","message":"m","domain":"d"}"#;
    let text = r#"{"status":"400","code":"c","message":"m","domain":"d","trace":"t"}"#;
    let failed = |code| AttemptOutcome::Failed { code, detail: String::new() };
    let permanent = DeliveryState::Dead(DeadReason::Permanent);
    let again = DeliveryState::Pending;
    for (name, outcome, expected) in [
        ("200", said(200, ""), DeliveryState::Delivered),
        ("200 with an error's body", standard(200), DeliveryState::Delivered),
        ("201", said(201, ""), again),
        ("204", said(204, ""), again),
        ("301", said(301, ""), again),
        ("400 standard", standard(400), permanent),
        ("401 standard", standard(401), permanent),
        ("403 standard", standard(403), permanent),
        ("404 standard", standard(404), permanent),
        ("410 standard", standard(410), permanent),
        ("400 HTML", said(400, html), again),
        ("404 empty", said(404, ""), again),
        ("410 empty", said(410, ""), again),
        ("409 standard", standard(409), again),
        ("409 empty", said(409, ""), again),
        ("500 standard", standard(500), again),
        ("500 HTML", said(500, html), again),
        ("502 HTML", said(502, html), again),
        ("503 empty", said(503, ""), again),
        ("503 standard", standard(503), permanent),
        ("four of five keys", said(400, four), again),
        ("status as a text", said(400, text), again),
        ("time-out", failed(FailureCode::ResponseTimeout), again),
        ("reset", failed(FailureCode::ConnectionClosed), again),
        ("refused", failed(FailureCode::ConnectFailed), again),
        ("TLS", failed(FailureCode::TlsFailed), again),
        ("no name", failed(FailureCode::DnsFailed), again),
    ] {
        assert_eq!(after_one(outcome).await, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_is_a_dead_letter_at_once_and_no_attempt() {
    let late = AttemptOutcome::Failed {
        code: FailureCode::ResponseTimeout,
        detail: "too late".to_owned(),
    };
    for (name, answer) in [
        ("another status", said(200, r#"{"Status": 1}"#)),
        ("no JSON", said(200, "OK")),
        ("a text", said(200, r#"{"Status": "2"}"#)),
        ("another case", said(200, r#"{"status": 2}"#)),
        ("nothing", said(200, "{}")),
        ("503", said(503, r#"{"Status": 2}"#)),
        ("201", said(201, r#"{"Status": 2}"#)),
        ("time-out", late),
    ] {
        let (house, engine) = hub(7).await;
        house.receivers.script(GATE, move |_, _| (Duration::ZERO, answer.clone()));
        engine.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
        rest(5).await;
        assert!(house.receivers.of(ROOT).is_empty(), "{name}: called");
        assert_eq!(house.receivers.of(GATE).len(), 1, "{name}: asked once");
        let dead = only(&house).await;
        assert_eq!(dead.state, DeliveryState::Dead(DeadReason::Gate), "{name}");
        assert_eq!(dead.attempts, 0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_gate_is_asked_again_before_each_retry() {
    let (house, engine) = hub(8).await;
    house.receivers.script(ROOT, |_, _| (Duration::ZERO, answered(500)));
    house.receivers.script(GATE, |nth, _| {
        (Duration::ZERO, if nth < 2 { open() } else { said(200, r#"{"Status": 1}"#) })
    });
    engine.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
    rest(1_000).await;
    assert_eq!(house.receivers.of(ROOT).len(), 2);
    assert_eq!(house.receivers.of(GATE).len(), 3);
    let dead = only(&house).await;
    assert_eq!(dead.state, DeliveryState::Dead(DeadReason::Gate));
    assert_eq!(dead.attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_may_be_waited_at_instead() {
    let house = House::new();
    house
        .receivers
        .script(GATE, |nth, _| (Duration::ZERO, if nth < 3 { said(503, "") } else { open() }));
    house.receivers.script(ROOT, |_, _| (Duration::ZERO, answered(200)));
    let engine = house.engine(9).await;
    topic(&engine).await;
    let overrides = json!({"values": {"hub_domain": "hub.example"},
        "gate": {"on_closed": {"postpone": {"wait": "60s"}}}});
    subscribe_as(&engine, "pca-hub", ROOT, overrides).await;
    rest(3).await;
    engine.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
    rest(300).await;
    assert_eq!(house.receivers.of(ROOT).len(), 1);
    let delivered = only(&house).await;
    assert_eq!((delivered.state, delivered.attempts), (DeliveryState::Delivered, 1));
}

#[tokio::test(start_paused = true)]
async fn a_gate_may_take_the_text_of_its_value() {
    let (house, engine) = hub(27).await;
    house.receivers.script(GATE, |_, _| (Duration::ZERO, said(200, r#"{"Status": "2"}"#)));
    let id = engine.catalog().subscriptions(TENANT)[0].subscription.id;
    let overrides = json!({"values": {"hub_domain": "hub.example"},
        "gate": {"expect": {"text_is_fine": true}}});
    let change = SubscriptionChange { overrides: Some(overrides), ..SubscriptionChange::default() };
    engine.update_subscription(TENANT, id, change).await.expect("changed");
    engine.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
    rest(5).await;
    assert_eq!(only(&house).await.state, DeliveryState::Delivered);
}

#[tokio::test(start_paused = true)]
async fn plain_http_is_refused_for_root_and_gate() {
    let house = House::new();
    let engine = house.engine(28).await;
    let gate = "http://{values.tenant}.hub.example/g/api/pca119";
    for (url, overrides) in [
        ("http://alb.example/", json!({"values": {"hub_domain": "hub.example"}})),
        (ROOT, json!({"values": {"hub_domain": "hub.example"}, "gate": {"url": gate}})),
    ] {
        let new = NewSubscription {
            destination: url.into(),
            profile: Some(ProfileName::new("pca-hub").expect("a name")),
            overrides,
            secrets: secrets(),
            ..NewSubscription::default()
        };
        let problem = engine.create_subscription(TENANT, new).await.err().expect("refused");
        assert!(problem.to_string().contains("https only"), "{problem}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_publisher_says_cannot_lead_the_gate_elsewhere() {
    for tenant in ["evil.example/x?", "evil.example#", "a@evil.example:80/", "..%2f", "a b"] {
        let (house, engine) = hub(23).await;
        engine.publish(TENANT, event("user.updated", tenant, "acc-1", 1)).await.expect("accepted");
        rest(5).await;
        for seen in house.receivers.seen.lock().iter() {
            let host = seen.url.strip_prefix("https://").and_then(|rest| rest.split('/').next());
            let host = host.expect("a host");
            assert!(host.ends_with(".hub.example") && !host.contains(['@', '#', '?']), "{host}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_redrive_gives_a_fresh_budget_and_asks_the_gate_again() {
    let (house, engine) = hub(24).await;
    house.receivers.script(ROOT, |_, _| (Duration::ZERO, answered(500)));
    engine.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
    rest(9_000).await;
    assert_eq!(only(&house).await.attempts, 6);
    let asked = house.receivers.of(GATE).len();
    // First with the gate closed: dead again, for another reason, and nothing was sent.
    house.receivers.script(GATE, |_, _| (Duration::ZERO, said(200, r#"{"Status": 3}"#)));
    let all = RedriveFilter::default();
    engine.create_redrive(TENANT, all.clone(), 100).await.expect("begun");
    rest(10).await;
    let dead = only(&house).await;
    assert_eq!(dead.state, DeliveryState::Dead(DeadReason::Gate));
    assert_eq!(house.receivers.of(ROOT).len(), 6);
    assert_eq!(house.receivers.of(GATE).len(), asked + 1);
    // Then with the gate open: five retries more.
    house.receivers.script(GATE, |_, _| (Duration::ZERO, open()));
    engine.create_redrive(TENANT, all, 100).await.expect("begun");
    rest(9_000).await;
    let dead = only(&house).await;
    assert_eq!(dead.state, DeliveryState::Dead(DeadReason::Exhausted));
    assert_eq!((dead.attempts, house.receivers.of(ROOT).len()), (12, 12));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_without_the_hub_domain_is_refused_with_its_name() {
    let house = House::new();
    let engine = house.engine(25).await;
    let new = |overrides| NewSubscription {
        destination: ROOT.into(),
        profile: Some(ProfileName::new("pca-hub").expect("a name")),
        overrides,
        secrets: secrets(),
        ..NewSubscription::default()
    };
    let refused = engine.create_subscription(TENANT, new(json!({}))).await;
    let Err(posthorn_engine::Error::Policy(problem)) = refused else { panic!("refused") };
    assert_eq!(problem.path, "values.hub_domain");
    let mut without = new(json!({"values": {"hub_domain": "hub.example"}}));
    without.secrets.pop();
    let problem = engine.create_subscription(TENANT, without).await.err().expect("refused");
    assert!(problem.to_string().contains("event-api-key"), "{problem}");
}
