//! Headers that events and secrets fill in, at the moment they are sent.

use posthorn_domain::{FailureCode, SecretName};
use posthorn_engine::{Error, NewSubscription, SecretInput};
use posthorn_store::{DeliveryFilter, Listing, Store};
use serde_json::json;

use crate::house::{House, TENANT, publish, rest, subscribe, topic};

/// What became of an event whose attribute `a` is this.
async fn sent_with(house: &House, seed: u8, value: &str) -> Option<(FailureCode, String)> {
    let engine = house.engine(seed).await;
    topic(&engine).await;
    let overrides = json!({"request": {"headers": {"X-A": "{event.attributes.a} {event.attributes.a}"}},
        "schedule": {"max_attempts": 1}});
    subscribe(&engine, "https://a/", overrides).await;
    let mut event = publish("{}", None);
    event.attributes.insert("a".to_owned(), value.to_owned());
    engine.publish(TENANT, event).await.expect("accepted");
    rest(1).await;
    let filter = DeliveryFilter::default();
    let delivery =
        house.store.deliveries(TENANT, filter, Listing::newest(10)).await.expect("answers").items
            [0]
        .id;
    let attempts = house.store.attempts(TENANT, delivery).await.expect("answers");
    attempts[0].failure.map(|code| (code, attempts[0].detail.clone()))
}

#[tokio::test(start_paused = true)]
async fn a_rendered_value_that_is_no_header_value_fails_the_attempt_before_anything_is_sent() {
    for (seed, value) in ["a\r\nX-B: c", "a\nb", "\u{1}", "日本", &"x".repeat(2_048)]
        .into_iter()
        .enumerate()
        .map(|(seed, value)| (u8::try_from(seed).expect("few"), value))
    {
        let house = House::new();
        let (code, detail) = sent_with(&house, seed, value).await.expect("fails");
        assert_eq!(code, FailureCode::RequestInvalid);
        assert!(detail.contains("X-A"), "{detail}");
        assert!(house.receivers.of("https://a/").is_empty(), "{value:?} was sent");
    }
    let house = House::new();
    assert_eq!(sent_with(&house, 9, &"x".repeat(2_047)).await, None);
    assert_eq!(house.receivers.of("https://a/").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_no_header_can_carry_is_refused_when_it_is_given() {
    let house = House::new();
    let engine = house.engine(1).await;
    let name = SecretName::new("token").expect("a name");
    for auth in [
        json!({"kind": "bearer", "secret": "token"}),
        json!({"kind": "secret_header", "secret": "token", "header": "X-Key"}),
    ] {
        for (value, fine) in [("abc", true), ("a\r\nX-B: c", false), ("schlüssel", false)] {
            let new = NewSubscription {
                destination: "https://a/".into(),
                overrides: json!({"auth": [auth]}),
                secrets: vec![SecretInput { name: name.clone(), value: value.to_owned() }],
                ..NewSubscription::default()
            };
            let made = engine.create_subscription(TENANT, new).await;
            match made {
                Ok(_) => assert!(fine, "{value:?}"),
                Err(Error::Secret { problem, .. }) => {
                    assert!(!fine, "{value:?}");
                    assert!(!problem.contains(value), "a problem never repeats the secret");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_secret_that_is_taken_can_be_sent() {
    let (house, engine) = House::open().await;
    let longest = "x".repeat(4_096);
    for (n, auth) in [
        json!({"kind": "bearer", "secret": "token"}),
        json!({"kind": "basic", "user": "me", "secret": "token"}),
        json!({"kind": "secret_header", "secret": "token", "header": "X-Key"}),
    ]
    .into_iter()
    .enumerate()
    {
        let new = NewSubscription {
            destination: format!("https://{n}/").into(),
            overrides: json!({"auth": [auth]}),
            secrets: vec![SecretInput {
                name: SecretName::new("token").expect("a name"),
                value: longest.clone(),
            }],
            ..NewSubscription::default()
        };
        engine.create_subscription(TENANT, new).await.expect("made");
    }
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(1).await;
    assert_eq!(house.counts().await.delivered, 3);
    assert!(house.receivers.of("https://0/")[0].headers["authorization"].len() > 4_096);
}

#[tokio::test(start_paused = true)]
async fn a_content_type_that_is_no_header_value_is_refused_when_it_is_published() {
    let (_house, engine) = House::open().await;
    let mut event = publish("{}", None);
    event.content_type = "text/plain\r\nX-B: c".to_owned();
    let refused = engine.publish(TENANT, event).await.expect_err("refused");
    assert!(matches!(refused, Error::Event { field: "content_type", .. }), "{refused}");
}
