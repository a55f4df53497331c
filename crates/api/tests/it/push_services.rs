//! Endpoints of other push services on the wire.

use posthorn_api::Options;
use posthorn_domain::{PushEncoding, PushHeaders};
use posthorn_listener::ServeLimits;
use posthorn_sealing::web_push::ReceiverKeys;
use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

const URL: &str = "https://push.example/send/very-secret-token";

/// A server without agents that may send to `push.example`.
async fn start() -> Server {
    let mut options = posthorn_engine::Options::default();
    options.push.contact = Some("mailto:operations@example.com".parse().unwrap());
    options.push.services = vec!["push.example".parse().unwrap()];
    let server = Server::start_limited(ServeLimits::default(), options, Options::default()).await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    server
}

fn browser(url: &str, keys: &ReceiverKeys) -> Value {
    let auth = keys.receiver().auth_text();
    json!({"destination": {
        "type": "push", "endpoint": url, "expirationTime": null, "ttl": "1h",
        "urgency": "high", "topic": "{event.key}",
        "keys": {"p256dh": keys.receiver().key().to_text(), "auth": auth.expose_str().unwrap()},
    }})
}

#[tokio::test]
async fn a_browser_of_another_service_becomes_a_subscription_and_events_are_posted_to_it() {
    let server = start().await;
    let key = server.as_acme("GET", "/v1/push/key").await.expect(200);
    let keys = ReceiverKeys::generate();
    let mut body = browser(URL, &keys);
    body["destination"]["application_server_key"] = key["public_key"].clone();
    let made = server.as_acme("POST", "/v1/subscriptions").json(&body).await.expect(201);
    let shown = json!({
        "type": "push", "service": "https://push.example", "encrypted": true, "ttl": "1h",
        "urgency": "high", "topic": "{event.key}",
    });
    assert_eq!(made["destination"], shown);
    let event = server.publish(r#"{"total":12}"#).await;
    let delivery = server.delivery_in(&event, "delivered").await;
    let sent = server.transport.sent_to("push.example").remove(0);
    assert_eq!(sent.url, URL);
    assert_eq!(sent.headers["urgency"], "high");
    let headers =
        PushHeaders { encoding: PushEncoding::Aes128Gcm, encryption: None, crypto_key: None };
    let text: Value = serde_json::from_slice(&keys.decrypt(&headers, &sent.body).unwrap()).unwrap();
    assert_eq!((&text["id"], &text["payload"]["total"]), (&json!(event), &json!(12)));

    // Nobody reads the URL or the keys again, and nobody else anything at all.
    let id = made["id"].as_str().unwrap();
    let paths = [
        "/v1/subscriptions".to_owned(),
        format!("/v1/subscriptions/{id}"),
        format!("/v1/events/{event}"),
        format!("/v1/deliveries/{}", delivery["id"].as_str().unwrap()),
    ];
    for path in &paths {
        let text = server.as_acme("GET", path).await.body.clone();
        for secret in ["very-secret", keys.receiver().auth_text().expose_str().unwrap()] {
            assert!(!text.contains(secret), "{secret} is in {path}: {text}");
        }
        let theirs = server.ask("GET", path).key(&server.keys.other).await;
        assert!(!theirs.body.contains("push.example"), "{path}: {}", theirs.body);
    }
    let theirs = server.ask("GET", &paths[1]).key(&server.keys.other).await;
    theirs.expect_problem(404, "not_found");
    let patch = server.ask("PATCH", &paths[1]).key(&server.keys.other).json(&body).await;
    patch.expect_problem(404, "not_found");
}

#[tokio::test]
async fn what_cannot_be_sent_to_is_refused_with_a_code_and_a_field() {
    let server = start().await;
    let keys = ReceiverKeys::generate();
    let with = |name: &str, value: Value| {
        let mut body = browser(URL, &keys);
        body["destination"][name] = value;
        body
    };
    let other = ReceiverKeys::generate().receiver().key().to_text();
    let endpoint = "destination.endpoint";
    let key = "destination.application_server_key";
    for (body, (status, code), field) in [
        (browser("https://else.example/x", &keys), (422, "push_service_not_allowed"), endpoint),
        (browser("http://push.example/x", &keys), (422, "url_not_allowed"), endpoint),
        (with("keys", Value::Null), (422, "invalid_push_keys"), "destination.keys"),
        (with("ttl", json!("31d")), (422, "invalid_request"), "destination.ttl"),
        (with("application_server_key", json!("x")), (422, "invalid_request"), key),
        (with("application_server_key", json!(other)), (422, "push_endpoint_bound"), endpoint),
    ] {
        let reply = server.as_acme("POST", "/v1/subscriptions").json(&body).await;
        let problem = reply.expect_problem(status, code);
        assert_eq!(problem["field"], field, "{body}");
        assert!(!problem.to_string().contains("very-secret"), "{problem}");
    }
    let list = server.as_acme("GET", "/v1/subscriptions").await.expect(200);
    assert_eq!(list["items"], json!([]));
}
