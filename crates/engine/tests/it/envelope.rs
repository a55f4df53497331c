//! What a payload is wrapped in, that signatures cover the body as it is sent, and what of the event stands
//! in headers.

use std::collections::BTreeMap;

use posthorn_domain::{ProfileName, SecretName, alternatives, cloudevent};
use posthorn_engine::{Engine, NewSubscription, Publish, SecretInput};
use posthorn_sealing::standard_webhooks::SigningSecret;
use serde_json::{Value, json};

use crate::house::{House, Seen, TENANT, publish, rest, subscribe};

const URL: &str = "https://a/";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn text<'s>(seen: &'s Seen, name: &str) -> &'s str {
    seen.headers[name].to_str().expect("text")
}

fn names(seen: &Seen, prefix: &str) -> Vec<String> {
    let names = seen.headers.keys().map(|name| name.as_str().to_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort();
    names
}

#[track_caller]
fn is_signed(seen: &Seen, prefix: &str) {
    let secret = SigningSecret::parse(SECRET).expect("a secret");
    let get = |name: &str| text(seen, &format!("{prefix}-{name}"));
    let at: i64 = get("timestamp").parse().expect("seconds");
    secret
        .verify(get("id"), at, get("signature"), &seen.body, at, 5)
        .expect("signed as it is sent");
}

/// One delivery under a policy, with a secret that the test knows.
async fn delivered(policy: Value, event: Publish) -> (Seen, String) {
    let (house, engine) = House::open().await;
    signed(&engine, policy).await;
    let published = engine.publish(TENANT, event).await.expect("accepted");
    rest(1).await;
    let seen = house.receivers.of(URL);
    assert_eq!(seen.len(), 1, "one request");
    (seen.into_iter().next().expect("arrived"), published.id.to_string())
}

async fn signed(engine: &Engine, overrides: Value) {
    let name = SecretName::new("signing").expect("a name");
    let secrets = vec![SecretInput { name, value: SECRET.to_owned() }];
    let new = NewSubscription {
        destination: URL.into(),
        overrides,
        secrets,
        ..NewSubscription::default()
    };
    engine.create_subscription(TENANT, new).await.expect("a subscription");
}

fn with_attributes(attributes: &[(&str, &str)]) -> Publish {
    let attributes =
        attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Publish { attributes: attributes.collect(), ..publish(r#"{ "n" : 1.0 }"#, None) }
}

#[tokio::test(start_paused = true)]
async fn type_and_topic_stand_in_headers_unless_they_are_switched_off() {
    let (seen, _) = delivered(Value::Null, publish("{}", None)).await;
    assert_eq!(text(&seen, "posthorn-event-type"), "order.created");
    assert_eq!(text(&seen, "posthorn-topic"), "orders");
    let (seen, _) =
        delivered(json!({"request": {"event_headers": false}}), publish("{}", None)).await;
    assert_eq!(names(&seen, "posthorn-"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn profiles_of_other_systems_send_no_headers_of_ours() {
    let (house, engine) = House::open().await;
    for name in ["notificaties", "cedros"] {
        let new = NewSubscription {
            destination: format!("https://{name}/").into(),
            profile: Some(ProfileName::new(name).expect("a name")),
            ..NewSubscription::default()
        };
        engine.create_subscription(TENANT, new).await.expect("a subscription");
    }
    subscribe(&engine, "https://on/", json!({"request": {"event_headers": true}})).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(1).await;
    for name in ["notificaties", "cedros"] {
        let seen = house.receivers.of(&format!("https://{name}/"));
        assert_eq!(names(&seen[0], "posthorn-"), Vec::<String>::new(), "{name}");
    }
    let seen = house.receivers.of("https://on/");
    assert_eq!(names(&seen[0], "posthorn-"), ["posthorn-event-type", "posthorn-topic"]);
}

#[tokio::test(start_paused = true)]
async fn the_envelope_of_standard_webhooks_is_signed_as_it_is_sent() {
    let policy = json!({"request": {"envelope": "standard_webhooks"}});
    let (seen, _) = delivered(policy.clone(), with_attributes(&[])).await;
    assert_eq!(text(&seen, "content-type"), "application/json");
    let body = std::str::from_utf8(&seen.body).expect("text");
    assert!(body.ends_with(r#","data":{ "n" : 1.0 }}"#), "the payload byte for byte: {body}");
    let body: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["type"], "order.created");
    let at = body["timestamp"].as_str().expect("a text");
    assert!(at.parse::<posthorn_domain::Timestamp>().is_ok(), "{at}");
    is_signed(&seen, "webhook");

    let event = Publish { content_type: "text/csv".to_owned(), ..publish("a;b", None) };
    let (seen, _) = delivered(policy, event).await;
    let mut body: Value = serde_json::from_slice(&seen.body).expect("JSON");
    body.as_object_mut().expect("an object").remove("timestamp");
    let expected =
        json!({"type": "order.created", "content_type": "text/csv", "data_base64": "YTti"});
    assert_eq!(body, expected);
    is_signed(&seen, "webhook");
}

#[tokio::test(start_paused = true)]
async fn a_structured_cloudevent_is_signed_as_it_is_sent() {
    let policy = json!({"request": {"envelope": "cloudevents_structured"}});
    let attributes = [("region", "eu"), ("Not-a-name", "x"), ("subject", "order/7")];
    let (seen, id) = delivered(policy, with_attributes(&attributes)).await;
    assert_eq!(text(&seen, "content-type"), "application/cloudevents+json; charset=utf-8");
    let mut body: Value = serde_json::from_slice(&seen.body).expect("JSON");
    let time = body.as_object_mut().expect("an object").remove("time").expect("a time");
    assert!(time.as_str().expect("a text").parse::<posthorn_domain::Timestamp>().is_ok());
    let expected = json!({"specversion": "1.0", "id": id, "source": "/topics/orders",
        "type": "order.created", "subject": "order/7", "datacontenttype": "application/json",
        "region": "eu", "data": {"n": 1.0}});
    assert_eq!(body, expected);
    is_signed(&seen, "webhook");
}

#[tokio::test(start_paused = true)]
async fn a_binary_cloudevent_has_its_attributes_in_headers() {
    let policy = json!({"request": {"envelope": "cloudevents_binary",
        "source": "https://{event.attributes.shop}.example.com/{event.topic}"}});
    let attributes = [("shop", "a b"), ("subject", "50 % ä"), ("Not-a-name", "x")];
    let (seen, id) = delivered(policy, with_attributes(&attributes)).await;
    assert_eq!(&seen.body[..], br#"{ "n" : 1.0 }"#);
    assert_eq!(text(&seen, "content-type"), "application/json");
    assert_eq!(text(&seen, "ce-specversion"), "1.0");
    assert_eq!(text(&seen, "ce-id"), id);
    assert_eq!(text(&seen, "ce-type"), "order.created");
    assert_eq!(text(&seen, "ce-source"), "https://a%2520b.example.com/orders", "encoded twice");
    assert_eq!(text(&seen, "ce-subject"), "50%20%25%20%C3%A4");
    assert_eq!(text(&seen, "ce-shop"), "a%20b");
    let expected =
        ["ce-id", "ce-shop", "ce-source", "ce-specversion", "ce-subject", "ce-time", "ce-type"];
    assert_eq!(names(&seen, "ce-"), expected);
    is_signed(&seen, "webhook");
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_is_a_cloudevent_is_not_wrapped_once_more() {
    let inner = r#"{"specversion":"1.0","id":"7","source":"/x","type":"t","data":[1]}"#;
    let event =
        || Publish { content_type: cloudevent::MEDIA_TYPE.to_owned(), ..publish(inner, None) };
    let structured = json!({"request": {"envelope": "cloudevents_structured"}});
    let (seen, _) = delivered(structured.clone(), event()).await;
    assert_eq!(seen.body, inner);
    let (seen, _) =
        delivered(json!({"request": {"envelope": "cloudevents_binary"}}), event()).await;
    assert_eq!(seen.body, "[1]");
    assert_eq!((text(&seen, "ce-id"), text(&seen, "ce-source")), ("7", "/x"));
    assert_eq!(text(&seen, "content-type"), "application/json");
    // One that says it is, but is not, is data like any other.
    let event = Publish { payload: "{}".into(), ..event() };
    let (seen, _) = delivered(structured, event).await;
    let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
    assert_eq!((&body["data"], &body["source"]), (&json!({}), &json!("/topics/orders")));
}

#[tokio::test(start_paused = true)]
async fn the_chosen_form_of_an_event_is_wrapped() {
    let payload =
        alternatives::encode(&[("application/json", "[1]"), ("application/b+json", "[2]")]);
    let event = Publish {
        content_type: alternatives::MEDIA_TYPE.to_owned(),
        payload: payload.expect("forms"),
        attributes: BTreeMap::new(),
        ..publish("", None)
    };
    let policy = json!({"request": {"envelope": "cloudevents_structured",
        "alternative": "application/b+json"}});
    let (seen, _) = delivered(policy, event).await;
    let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
    assert_eq!(body["data"], json!([2]));
    assert_eq!(body["datacontenttype"], "application/b+json");
}

#[tokio::test(start_paused = true)]
async fn headers_of_signatures_are_called_as_the_receiver_knows_them() {
    for (word, prefixes) in
        [("webhook", &["webhook"][..]), ("svix", &["svix"]), ("both", &["webhook", "svix"])]
    {
        let auth = json!({"kind": "standard_webhooks", "secret": "signing", "headers": word});
        let (seen, id) = delivered(json!({"auth": [auth]}), publish("{}", None)).await;
        for prefix in ["webhook", "svix"] {
            let count = if prefixes.contains(&prefix) { 3 } else { 0 };
            assert_eq!(names(&seen, &format!("{prefix}-")).len(), count, "{word}: {prefix}");
        }
        for prefix in prefixes {
            is_signed(&seen, prefix);
            assert_eq!(text(&seen, &format!("{prefix}-id")), id);
        }
    }
}
