//! Receivers are asked for permission before a subscription is saved, where its policy says so.

use http::{HeaderMap, HeaderValue, Method};
use posthorn_domain::{Subscription, SubscriptionId};
use posthorn_engine::{
    DestinationInput, Engine, Error, HandshakeRefusal, NewSubscription, Options, SubscriptionChange,
};
use serde_json::{Value, json};

use crate::house::{House, TENANT, publish, refused, rest, topic};

const ORIGIN: &str = "events.example.com";

async fn open() -> (House, Engine) {
    let house = House::new();
    let options =
        Options { webhook_origin: Some(ORIGIN.parse().expect("an origin")), ..Options::default() };
    let engine = house.engine_with(1, options).await;
    topic(&engine).await;
    (house, engine)
}

fn allows(house: &House, url: &str, headers: &[(&'static str, &str)]) {
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| {
            (http::HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"))
        })
        .collect();
    house.receivers.heads.lock().insert(url.to_owned(), headers);
}

fn wish(url: &str, rate: Option<f64>) -> NewSubscription {
    let mut overrides = json!({"request": {"handshake": "cloudevents"}});
    if let Some(rate) = rate {
        overrides["limits"] = json!({"rate": rate});
    }
    NewSubscription { destination: url.into(), overrides, ..NewSubscription::default() }
}

fn asked(house: &House, url: &str) -> usize {
    house.receivers.of(url).iter().filter(|seen| seen.method == Method::OPTIONS).count()
}

async fn create(engine: &Engine, wish: NewSubscription) -> Result<Subscription, Error> {
    let (view, _) = engine.create_subscription(TENANT, wish).await?;
    Ok(view.subscription.clone())
}

async fn change(
    engine: &Engine,
    id: SubscriptionId,
    change: SubscriptionChange,
) -> Result<(), Error> {
    engine.update_subscription(TENANT, id, change).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_allows_us_is_asked_once_and_told_who_sends() {
    let (house, engine) = open().await;
    allows(&house, "https://a/", &[("webhook-allowed-origin", ORIGIN)]);
    create(&engine, wish("https://a/", None)).await.expect("allowed");
    let question = &house.receivers.of("https://a/")[0];
    assert_eq!(question.method, Method::OPTIONS);
    assert_eq!(question.headers["webhook-request-origin"], ORIGIN);
    assert!(question.body.is_empty() && !question.headers.contains_key("webhook-signature"));
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(1).await;
    let seen = house.receivers.of("https://a/");
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].method, Method::POST);
    assert_eq!(seen[1].headers["webhook-request-origin"], ORIGIN, "in every request afterwards");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_does_not_allow_us_gets_no_subscription() {
    let (house, engine) = open().await;
    allows(&house, "https://other/", &[("webhook-allowed-origin", "other.example.com")]);
    for url in ["https://silent/", "https://other/"] {
        let refused = create(&engine, wish(url, None)).await;
        let Err(Error::Handshake(HandshakeRefusal::Origin { origin, .. })) = refused else {
            panic!("{url}: {refused:?}");
        };
        assert_eq!(origin, ORIGIN);
    }
    house.receivers.script("https://gone/", |_, _| (std::time::Duration::ZERO, refused()));
    let gone = create(&engine, wish("https://gone/", None)).await;
    assert!(matches!(gone, Err(Error::Handshake(HandshakeRefusal::Unanswered(_)))), "{gone:?}");
    assert_eq!(engine.catalog().subscriptions(TENANT).len(), 0, "nothing is left behind");
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_the_receiver_allows_must_be_the_policys() {
    let (house, engine) = open().await;
    let allowed = [("webhook-allowed-origin", "*"), ("webhook-allowed-rate", "120")];
    allows(&house, "https://a/", &allowed);
    let fast = create(&engine, wish("https://a/", Some(10.0))).await;
    let per_second = "2".to_owned();
    let refusal = HandshakeRefusal::Rate { per_minute: 120, per_second };
    assert!(matches!(&fast, Err(Error::Handshake(found)) if *found == refusal), "{fast:?}");
    let made = create(&engine, wish("https://a/", Some(2.0))).await.expect("allowed");
    assert_eq!(house.receivers.of("https://a/")[1].headers["webhook-request-rate"], "120");
    let id = made.id;
    let faster = SubscriptionChange {
        overrides: Some(json!({"request": {"handshake": "cloudevents"}, "limits": {"rate": 3}})),
        ..SubscriptionChange::default()
    };
    assert!(matches!(change(&engine, id, faster).await, Err(Error::Handshake(_))));
    assert_eq!(
        engine.catalog().subscription(TENANT, id).unwrap().subscription.version,
        made.version
    );
}

#[tokio::test(start_paused = true)]
async fn another_url_is_asked_again_and_another_description_is_not() {
    let (house, engine) = open().await;
    allows(&house, "https://a/", &[("webhook-allowed-origin", "*")]);
    let made = create(&engine, wish("https://a/", None)).await.expect("allowed");
    let id = made.id;
    let to = |url: &str| SubscriptionChange {
        destination: Some(DestinationInput::from(url)),
        ..SubscriptionChange::default()
    };
    let words = SubscriptionChange {
        description: Some("words".to_owned()),
        ..SubscriptionChange::default()
    };
    change(&engine, id, words).await.expect("changed");
    change(&engine, id, to("https://a/")).await.expect("the same");
    assert_eq!(asked(&house, "https://a/"), 1);
    assert!(matches!(change(&engine, id, to("https://b/")).await, Err(Error::Handshake(_))));
    let stays = engine.catalog().subscription(TENANT, id).expect("there");
    assert_eq!(stays.subscription.destination.url(), Some("https://a/"));
    allows(&house, "https://b/", &[("webhook-allowed-origin", ORIGIN)]);
    change(&engine, id, to("https://b/")).await.expect("allowed");
    assert_eq!(asked(&house, "https://b/"), 2);
}

#[tokio::test(start_paused = true)]
async fn without_an_origin_nobody_can_be_asked() {
    let (house, engine) = House::open().await;
    let refused = create(&engine, wish("https://a/", None)).await;
    assert!(
        matches!(&refused, Err(Error::Policy(e)) if e.path == "request.handshake"),
        "{refused:?}"
    );
    assert_eq!(house.receivers.of("https://a/").len(), 0);
    let plain = NewSubscription { overrides: Value::Null, ..wish("https://a/", None) };
    engine.create_subscription(TENANT, plain).await.expect("nobody is asked");
    assert_eq!(house.receivers.of("https://a/").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn questions_are_counted_like_tests_of_subscriptions() {
    let house = House::new();
    let mut options =
        Options { webhook_origin: Some(ORIGIN.parse().expect("an origin")), ..Options::default() };
    options.admission.tests_per_minute = 2;
    let engine = house.engine_with(1, options).await;
    for _ in 0..2 {
        let refused = create(&engine, wish("https://a/", None)).await;
        assert!(matches!(refused, Err(Error::Handshake(_))));
    }
    let third = create(&engine, wish("https://a/", None)).await;
    assert!(matches!(third, Err(Error::TooMany { .. })), "{third:?}");
    assert_eq!(house.receivers.of("https://a/").len(), 2);
}
