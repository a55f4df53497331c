//! Push destinations on the wire.

use std::sync::Arc;

use parking_lot::Mutex;
use posthorn_api::Options;
use posthorn_domain::{AgentId, ChannelId, PushMessage, Scope};
use posthorn_engine::{
    Delivering, Looking, Opening, PushDelivery, PushLimits, PushOutcome, PushProblem,
};
use posthorn_listener::ServeLimits;
use posthorn_sealing::endpoint_token::Endpoint;
use posthorn_sealing::vapid::{SenderKey, hash_key, hash_key_text};
use posthorn_sealing::web_push::ReceiverKeys;
use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

/// Mailboxes behind endpoints `https://push.test/NAME`, some for one sender only.
#[derive(Default)]
struct Mailboxes {
    /// The key of `https://push.test/bound`.
    bound_to: Mutex<Option<String>>,
    kept: Mutex<Vec<PushMessage>>,
}

impl PushDelivery for Mailboxes {
    fn limits(&self) -> PushLimits {
        PushLimits::default()
    }

    fn open(&self, endpoint: &str) -> Opening {
        let (agent, channel) = (AgentId::from_random(1), ChannelId::from_random(2));
        let key = match endpoint {
            "https://push.test/open" => Ok(None),
            "https://push.test/bound" => {
                Ok(self.bound_to.lock().as_deref().and_then(hash_key_text))
            }
            "https://push.test/foreign" => {
                Ok(Some(hash_key(SenderKey::generate().public_key().as_bytes())))
            }
            "https://push.test/gone" => Err(PushProblem::Gone),
            "https://push.test/away" => Err(PushProblem::Unavailable("10.0.0.7".to_owned())),
            url if url.starts_with("https://push.test/") => Err(PushProblem::Altered),
            _ => Err(PushProblem::NotOurs),
        };
        Box::pin(std::future::ready(key.map(|key| Endpoint { agent, channel, key })))
    }

    fn look_up(&self, _: Endpoint) -> Looking {
        Box::pin(std::future::ready(Ok(())))
    }

    fn deliver(&self, message: PushMessage) -> Delivering {
        self.kept.lock().push(message);
        Box::pin(std::future::ready(PushOutcome::Kept))
    }
}

async fn start() -> (Server, Arc<Mailboxes>) {
    let mailboxes = Arc::new(Mailboxes::default());
    let server = Server::start_pushing(mailboxes.clone()).await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    (server, mailboxes)
}

fn to(url: &str) -> Value {
    json!({"destination": {"type": "push", "endpoint": url}})
}

#[tokio::test]
async fn every_key_of_a_tenant_may_read_its_application_server_key() {
    let (server, _) = start().await;
    let mut keys = std::collections::BTreeSet::new();
    for scope in [Scope::Publish, Scope::Manage, Scope::Read] {
        let ask = server.ask("GET", "/v1/push/key").key(&server.keys.only[&scope]);
        let reply = ask.await.expect(200);
        keys.insert(reply["public_key"].as_str().unwrap().to_owned());
    }
    let operator = server.as_operator("GET", "/v1/push/key").header("posthorn-tenant", "acme");
    keys.insert(operator.await.expect(200)["public_key"].as_str().unwrap().to_owned());
    assert_eq!(keys.len(), 1);
    let other = server.ask("GET", "/v1/push/key").key(&server.keys.other).await;
    assert!(!keys.contains(other.expect(200)["public_key"].as_str().unwrap()));
    let key = keys.first().unwrap();
    assert_eq!((key.len(), &key[..1]), (87, "B"));
    server.ask("GET", "/v1/push/key").await.expect_problem(401, "unauthorized");
}

#[tokio::test]
async fn what_a_browser_says_of_itself_becomes_a_subscription_and_events_arrive() {
    let (server, mailboxes) = start().await;
    let key = server.as_acme("GET", "/v1/push/key").await.expect(200);
    *mailboxes.bound_to.lock() = Some(key["public_key"].as_str().unwrap().to_owned());
    let browser = ReceiverKeys::generate();
    let auth = browser.receiver().auth_text();
    let auth = auth.expose_str().unwrap();
    let p256dh = browser.receiver().key().to_text();
    let body = json!({"destination": {
        "type": "push", "endpoint": "https://push.test/bound", "expirationTime": null,
        "keys": {"p256dh": p256dh, "auth": auth}, "ttl": "60m",
    }});
    let reply = server.as_acme("POST", "/v1/subscriptions").json(&body).await;
    let made = reply.expect(201);
    let shown = json!({"type": "push", "encrypted": true, "ttl": "1h", "urgency": "normal"});
    assert_eq!(made["destination"], shown);
    assert_eq!((made.get("url"), made.get("signing_secret")), (None, None));
    let path = format!("/v1/subscriptions/{}", made["id"].as_str().unwrap());
    let shown = server.as_acme("GET", &path).await;
    let text = shown.body.clone();
    for secret in [auth, &p256dh, "push.test", &AgentId::from_random(1).to_string()] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
    let event = server.publish(r#"{"total":12}"#).await;
    let delivery = server.delivery_in(&event, "delivered").await;
    let path = format!("/v1/deliveries/{}", delivery["id"].as_str().unwrap());
    let whole = server.as_acme("GET", &path).await.expect(200);
    assert_eq!(whole["attempts"][0]["status"], 201);
    let message = mailboxes.kept.lock().remove(0);
    let text = browser.decrypt(&message.headers.unwrap(), &message.body.unwrap()).unwrap();
    let text: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&text["id"], &text["payload"]["total"]), (&json!(event), &json!(12)));
    assert_eq!((&text["topic"], &text["type"]), (&json!("orders"), &json!("order.created")));
}

#[tokio::test]
async fn what_cannot_be_delivered_to_is_refused_with_a_code_and_a_field() {
    let (server, _) = start().await;
    let with = |name: &str, value: Value| {
        let mut body = to("https://push.test/open");
        body["destination"][name] = value;
        body
    };
    let besides = |name: &str, value: Value| {
        let mut body = to("https://push.test/open");
        body[name] = value;
        body
    };
    let endpoint = "destination.endpoint";
    let request = (422, "invalid_request");
    let cases = [
        (to("https://push.test/other"), (422, "push_endpoint_unknown"), endpoint),
        (to("https://push.test/gone"), (422, "push_endpoint_gone"), endpoint),
        (to("https://push.test/foreign"), (422, "push_endpoint_bound"), endpoint),
        (
            with("keys", json!({"p256dh": "A", "auth": "A"})),
            (422, "invalid_push_keys"),
            "destination.keys",
        ),
        (with("keys", json!({"p256dh": "A"})), request, "destination.keys.auth"),
        (with("ttl", json!("0s")), request, "destination.ttl"),
        (with("ttl", json!("30d1s")), request, "destination.ttl"),
        (with("ttl", json!("99999d")), request, "destination.ttl"),
        (with("ttl", json!("1500ms")), request, "destination.ttl"),
        (with("ttl", json!(3_600)), request, "destination.ttl"),
        (with("urgency", json!("soon")), request, "destination.urgency"),
        (with("topic", json!("no news")), request, "destination.topic"),
        (with("topic", json!("{delivery.id}")), request, "destination.topic"),
        (to("https://else.example/x"), (422, "push_service_not_allowed"), endpoint),
        (to("http://fcm.googleapis.com/x"), (422, "url_not_allowed"), endpoint),
        (with("type", json!("webhook")), request, "destination.type"),
        (with("agent", json!("x")), request, "destination.agent"),
        (besides("url", json!("https://ok.example/")), request, "destination"),
        (besides("secrets", json!({"signing": "x"})), (422, "invalid_secret"), "secrets.signing"),
        (besides("secret_kind", json!("hmac")), (422, "invalid_secret"), "secret_kind"),
        (
            besides("policy", json!({"auth": [{"kind": "client_certificate"}]})),
            (422, "invalid_policy"),
            "policy.auth",
        ),
        (json!({"destination": {"type": "push"}}), request, endpoint),
        (json!({"destination": {"endpoint": "x"}}), request, "destination.type"),
    ];
    for (body, (status, code), field) in cases {
        let reply = server.as_acme("POST", "/v1/subscriptions").json(&body).await;
        assert_eq!(reply.expect_problem(status, code)["field"], field, "{body}");
    }
    let away = server.as_acme("POST", "/v1/subscriptions").json(to("https://push.test/away"));
    let problem = away.await.expect_problem(503, "unavailable");
    assert!(!problem.to_string().contains("10.0.0.7"));

    // Services of browsers may be sent to, but nobody said on whose behalf.
    let browser = ReceiverKeys::generate();
    let mut vendor = to("https://fcm.googleapis.com/fcm/send/x");
    vendor["destination"]["keys"] = json!({
        "p256dh": browser.receiver().key().to_text(),
        "auth": browser.receiver().auth_text().expose_str().unwrap(),
    });
    let refused = server.as_acme("POST", "/v1/subscriptions").json(&vendor).await;
    refused.expect_problem(501, "push_contact_missing");
    let mut off = posthorn_engine::Options::default();
    off.push.services.clear();
    let without = Server::start_limited(ServeLimits::default(), off, Options::default()).await;
    for ask in [
        without.as_acme("GET", "/v1/push/key"),
        without.as_acme("POST", "/v1/subscriptions").json(to("https://push.test/open")),
    ] {
        ask.await.expect_problem(501, "push_not_enabled");
    }
}

#[tokio::test]
async fn a_patch_gives_a_new_endpoint_or_makes_it_a_webhook() {
    let (server, mailboxes) = start().await;
    let body = to("https://push.test/open");
    let made = server.as_acme("POST", "/v1/subscriptions").json(&body).await.expect(201);
    let shown = json!({"type": "push", "encrypted": false, "ttl": "30d", "urgency": "normal"});
    assert_eq!(made["destination"], shown);
    let path = format!("/v1/subscriptions/{}", made["id"].as_str().unwrap());
    let patch = async |body: Value| server.as_acme("PATCH", &path).json(&body).await;
    let gone = patch(to("https://push.test/gone")).await;
    assert_eq!(gone.expect_problem(422, "push_endpoint_gone")["field"], "destination.endpoint");
    patch(json!({"destination": null})).await.expect_problem(422, "invalid_request");
    let mut shorter = to("https://push.test/open");
    shorter["destination"]["ttl"] = json!("5s");
    assert_eq!(patch(shorter).await.expect(200)["destination"]["ttl"], "5s");
    let test = server.as_acme("POST", &format!("{path}/test")).await.expect(200);
    assert_eq!((&test["outcome"], &test["status"]), (&json!("answered"), &json!(201)));
    assert_eq!(mailboxes.kept.lock().len(), 1);
    let rotate = server.as_acme("POST", &format!("{path}/rotate-secret")).await;
    rotate.expect_problem(422, "invalid_secret");
    let webhook = json!({"url": "https://ok.example/", "policy": {"auth": []}});
    let shown = patch(webhook).await.expect(200);
    assert_eq!((&shown["url"], shown.get("destination")), (&json!("https://ok.example/"), None));
}
