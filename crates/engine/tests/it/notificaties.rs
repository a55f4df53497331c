//! The profile `notificaties`: its schedule to the second, and what it survives. And what its dialect
//! stands on: events with several forms, and rehearsals.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use posthorn_domain::{
    AttemptOutcome, Clock as _, DeadReason, DeliveryState, FailureCode, ProfileName, SecretName,
    alternatives,
};
use posthorn_engine::{Engine, Error, NewSubscription, Publish, Rehearsal, SecretInput};
use posthorn_store::{DeliveryFilter, Listing, StateKind, Store as _};
use serde_json::{Value, json};

use posthorn_engine::Options;

use crate::house::{House, TENANT, answered, publish, refused, rest, topic};

const URL: &str = "https://receiver/";
/// When each send is due after the first, in seconds.
const ELAPSED: [i64; 8] = [0, 25, 125, 525, 2_125, 8_525, 34_125, 86_125];

async fn subscribe(engine: &Engine, url: &str, overrides: Value) {
    let new = NewSubscription {
        destination: url.into(),
        profile: Some(ProfileName::new("notificaties").expect("a name")),
        overrides,
        ..NewSubscription::default()
    };
    engine.create_subscription(TENANT, new).await.expect("a subscription");
}

/// Engines that look around rarely: these tests pass days, and every look costs.
fn calm() -> Options {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    Options {
        heartbeat_interval: minutes(5),
        lease: minutes(20),
        poll_interval: minutes(10),
        maintenance_interval: minutes(60),
        ..Options::default()
    }
}

/// When attempts were made after the first, in milliseconds.
fn elapsed(house: &House) -> Vec<i64> {
    let times: Vec<i64> = house.receivers.of(URL).iter().map(|s| s.at.as_millis()).collect();
    times.iter().map(|at| at - times[0]).collect()
}

#[tokio::test(start_paused = true)]
async fn eight_sends_over_a_day_and_not_a_second_off() {
    let house = House::new();
    let engine = house.engine_with(1, calm()).await;
    topic(&engine).await;
    // Every way to fail counts the same: a status, a gone endpoint, a refused connection, silence.
    house.receivers.script(URL, |nth, _| {
        let silence = AttemptOutcome::Failed {
            code: FailureCode::ResponseTimeout,
            detail: "silence".to_owned(),
        };
        let outcome = [answered(500), refused(), answered(410), silence, answered(302)];
        (Duration::ZERO, outcome[nth % 5].clone())
    });
    subscribe(&engine, URL, json!({})).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(90_000).await;
    let wanted: Vec<i64> = ELAPSED.iter().map(|seconds| seconds * 1_000).collect();
    assert_eq!(elapsed(&house), wanted);
    let filter = DeliveryFilter { state: Some(StateKind::Dead), ..DeliveryFilter::default() };
    let dead =
        house.store.deliveries(TENANT, filter, Listing::newest(10)).await.expect("answers").items;
    assert_eq!(dead[0].state, DeliveryState::Dead(DeadReason::Exhausted));
    rest(2 * 86_400).await;
    assert_eq!(house.receivers.of(URL).len(), 8, "after the last retry delivery stops");
}

#[tokio::test(start_paused = true)]
async fn the_next_try_is_due_after_the_end_of_the_failed_one() {
    let (house, engine) = House::open().await;
    house.receivers.script(URL, |_, _| (Duration::from_secs(4), answered(500)));
    subscribe(&engine, URL, json!({})).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(600).await;
    assert_eq!(elapsed(&house), [0, 29_000, 133_000, 537_000]);
}

/// How many attempts are made, and when the last one, when the receiver is down for so long.
async fn down_for(seconds: i64) -> (usize, i64) {
    let house = House::new();
    let engine = house.engine_with(3, calm()).await;
    topic(&engine).await;
    let up = house.clock.now().as_millis() + seconds * 1_000;
    house.receivers.script(URL, move |_, seen| {
        (Duration::ZERO, if seen.at.as_millis() < up { refused() } else { answered(204) })
    });
    subscribe(&engine, URL, json!({})).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(90_000).await;
    assert_eq!(house.counts().await.delivered, 1, "down for {seconds} s");
    let times = elapsed(&house);
    (times.len(), times[times.len() - 1] / 1_000)
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_was_down_is_served_when_it_is_back() {
    assert_eq!(down_for(60).await, (3, 125));
    assert_eq!(down_for(3_600).await, (6, 8_525));
    assert_eq!(down_for(86_000).await, (8, 86_125));
}

#[tokio::test(start_paused = true)]
async fn a_restart_between_retries_keeps_attempts_and_due_time() {
    let house = House::new();
    house.receivers.script(URL, |_, _| (Duration::ZERO, answered(503)));
    let mut engine = house.engine(4).await;
    topic(&engine).await;
    subscribe(&engine, URL, json!({})).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    // Killed after each of the first sends, and back before or after the next one is due.
    for (nth, away) in [(1, 10), (2, 130), (3, 399), (4, 2_000)] {
        while house.receivers.of(URL).len() < nth {
            rest(1).await;
        }
        rest(1).await;
        engine.kill();
        rest(away).await;
        assert_eq!(house.receivers.of(URL).len(), nth, "nobody is there to send");
        engine = house.engine(10 + u8::try_from(nth).expect("few")).await;
    }
    while house.receivers.of(URL).len() < 5 {
        rest(1).await;
    }
    rest(1).await;
    engine.kill();
    let _calm = house.engine_with(99, calm()).await;
    rest(100_000).await;
    let times = elapsed(&house);
    assert_eq!(times.len(), 8, "the count of attempts survives: {times:?}");
    for (nth, (at, due)) in times.iter().zip(ELAPSED).enumerate() {
        assert!(*at >= due * 1_000, "send {nth} was early: {times:?}");
    }
    assert_eq!(house.counts().await.dead, 1);
}

fn two_forms() -> Publish {
    let payload = alternatives::encode(&[
        ("application/json", "{ \"source\": \"s\" }"),
        ("application/cloudevents+json", "{\"id\":\"1\"}"),
    ]);
    Publish {
        content_type: alternatives::MEDIA_TYPE.to_owned(),
        payload: payload.expect("two forms"),
        attributes: BTreeMap::new(),
        ..publish("", None)
    }
}

#[tokio::test(start_paused = true)]
async fn each_subscription_gets_one_form_of_an_event() {
    let (house, engine) = House::open().await;
    let cloudevents = json!({"request": {"alternative": "application/cloudevents+json"}});
    subscribe(&engine, "https://plain/", json!({})).await;
    subscribe(&engine, "https://other/", cloudevents.clone()).await;
    let published = engine.publish(TENANT, two_forms()).await.expect("accepted");
    assert_eq!(published.deliveries, 2);
    rest(1).await;
    let seen = |url: &str| {
        let seen = house.receivers.of(url);
        let kind = seen[0].headers["content-type"].to_str().expect("text").to_owned();
        (seen.len(), kind, String::from_utf8_lossy(&seen[0].body).into_owned())
    };
    let plain = (1, "application/json".to_owned(), "{ \"source\": \"s\" }".to_owned());
    assert_eq!(seen("https://plain/"), plain);
    let other = (1, "application/cloudevents+json".to_owned(), "{\"id\":\"1\"}".to_owned());
    assert_eq!(seen("https://other/"), other);

    // An event that is of the wanted type as a whole is its own only form; others have none.
    let whole = Publish {
        content_type: "application/cloudevents+json".to_owned(),
        ..publish("{\"id\":\"2\"}", None)
    };
    engine.publish(TENANT, whole).await.expect("accepted");
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://other/"), ["{\"id\":\"1\"}", "{\"id\":\"2\"}"]);
    assert_eq!(house.receivers.of("https://plain/").len(), 3);

    for payload in ["", "{}", "{\"alternatives\":[]}"] {
        let bad =
            Publish { content_type: alternatives::MEDIA_TYPE.to_owned(), ..publish(payload, None) };
        let refused = engine.publish(TENANT, bad).await;
        assert!(matches!(refused, Err(Error::Event { field: "payload", .. })), "{payload}");
    }
}

#[tokio::test(start_paused = true)]
async fn conditions_look_at_the_usual_form() {
    let (house, engine) = House::open().await;
    for (url, path) in [("https://a/", "/source"), ("https://b/", "/id")] {
        let filter = json!({"any_of": [{"payload": {"test": {"path": path, "op": "exists"}}}]});
        let new = NewSubscription {
            destination: url.into(),
            filter: Some(serde_json::from_value(filter).expect("a filter")),
            ..NewSubscription::default()
        };
        engine.create_subscription(TENANT, new).await.expect("a subscription");
    }
    engine.publish(TENANT, two_forms()).await.expect("accepted");
    rest(1).await;
    assert_eq!(house.receivers.of("https://a/").len(), 1);
    assert!(house.receivers.of("https://b/").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rehearsal_shows_what_would_be_sent_and_leaves_nothing() {
    let (house, engine) = House::open().await;
    let auth = json!({"auth": [{"kind": "secret_header", "header": "Authorization",
        "secret": "auth"}]});
    let secret = |value: &str| SecretInput {
        name: SecretName::new("auth").expect("a name"),
        value: value.to_owned(),
    };
    let new = NewSubscription {
        destination: URL.into(),
        profile: Some(ProfileName::new("notificaties").expect("a name")),
        overrides: auth.clone(),
        secrets: vec![secret("Bearer kept")],
        ..NewSubscription::default()
    };
    let (view, _) = engine.create_subscription(TENANT, new).await.expect("a subscription");
    let rehearsal = Rehearsal {
        url: "https://new/".to_owned(),
        profile: Some(ProfileName::new("notificaties").expect("a name")),
        overrides: auth,
        content_type: "application/json".to_owned(),
        payload: Bytes::from_static(b"{}"),
        ..Rehearsal::default()
    };
    let given = Rehearsal { secrets: vec![secret("Bearer new")], ..rehearsal.clone() };
    let kept = Rehearsal { like: Some(view.subscription.id), ..rehearsal.clone() };
    let beside = format!("{}beside", URL);
    let at_home = Rehearsal { url: beside.clone(), ..kept.clone() };
    let both = Rehearsal { like: kept.like, ..given.clone() };
    for rehearsal in [given.clone(), both, at_home] {
        let outcome = engine.rehearse(TENANT, rehearsal).await.expect("an outcome");
        assert!(matches!(outcome, AttemptOutcome::Answered(answer) if answer.status == 204));
    }
    let elsewhere = engine.rehearse(TENANT, kept).await;
    assert!(matches!(elsewhere, Err(Error::SecretRequired { .. })), "not for that receiver");
    let shown = |url: &str| -> Vec<String> {
        let seen = house.receivers.of(url);
        let header = |s: &http::HeaderMap| s["authorization"].to_str().expect("text").to_owned();
        seen.iter().map(|s| header(&s.headers)).collect()
    };
    assert_eq!(shown("https://new/"), ["Bearer new", "Bearer new"]);
    assert_eq!(shown(&beside), ["Bearer kept"]);
    assert_eq!(&house.receivers.of("https://new/")[0].body[..], b"{}");
    // Without its secret nothing is sent; to where nobody may go, neither.
    let outcome = engine.rehearse(TENANT, rehearsal.clone()).await.expect("an outcome");
    let missing = FailureCode::AuthUnavailable;
    assert!(matches!(outcome, AttemptOutcome::Failed { code, .. } if code == missing));
    let private = Rehearsal { url: "http://10.0.0.1/".to_owned(), ..given };
    assert!(matches!(engine.rehearse(TENANT, private).await, Err(Error::Url(_))));
    assert_eq!(house.receivers.of("https://new/").len(), 2);
    let counts = house.counts().await;
    assert_eq!((counts.events, counts.deliveries()), (0, 0));
    assert_eq!(engine.catalog().subscriptions(TENANT).len(), 1);
}
