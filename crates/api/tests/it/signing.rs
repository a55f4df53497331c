//! Public keys of subscriptions, and the page anybody may fetch them from.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use posthorn_sealing::standard_webhooks::PublicKey;
use serde_json::json;

use crate::harness::{Problem as _, Server};

#[tokio::test]
async fn an_ed25519_subscription_shows_its_public_key_and_never_the_private_one() {
    let server = Server::start().await;
    let wish = json!({"secret_kind": "ed25519"});
    let made = server.subscribe("https://ok.example/hook", wish).await;
    assert!(made.get("signing_secret").is_none());
    let key = made["public_keys"][0]["key"].as_str().unwrap();
    let public = PublicKey::parse(key).unwrap();
    assert_eq!(made["public_keys"][0]["secret"], "signing");
    let id = made["id"].as_str().unwrap();
    let event = server.publish(r#"{"n":1}"#).await;
    server.delivery_in(&event, "delivered").await;
    let sent = &server.transport.sent_to("ok.example")[0];
    let header = |name: &str| sent.headers[name].to_str().unwrap();
    let at: i64 = header("webhook-timestamp").parse().unwrap();
    let signature = header("webhook-signature");
    assert_eq!(public.verify(&event, at, signature, &sent.body, at, 5), Ok(()));

    // Anybody may fetch the key, and keep it for a while.
    let page = server.ask("GET", &format!("/jwks/{id}")).await;
    assert_eq!(page.header("cache-control"), Some("public, max-age=300"));
    assert_eq!(page.header("content-type"), Some("application/jwk-set+json"));
    let set = page.json();
    let jwk = json!({"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA",
        "x": URL_SAFE_NO_PAD.encode(public.as_bytes()), "kid": made["public_keys"][0]["kid"]});
    assert_eq!(set, json!({"keys": [jwk]}));

    // During a rotation both keys are there, the new one first.
    let rotate = server.as_acme("POST", &format!("/v1/subscriptions/{id}/rotate-secret"));
    let rotated = rotate.json(json!({"overlap": "1h"})).await.expect(200);
    assert!(rotated.get("secret").is_none());
    assert_eq!(rotated["public_keys"][1]["key"], key);
    assert!(rotated["public_keys"][1]["expires_at"].is_string());
    let page = server.ask("GET", &format!("/jwks/{id}")).await;
    let set = page.json();
    let kids: Vec<_> = set["keys"].as_array().unwrap().iter().map(|key| &key["kid"]).collect();
    assert_eq!(kids, [&rotated["public_keys"][0]["kid"], &rotated["public_keys"][1]["kid"]]);
    let shown = server.as_acme("GET", &format!("/v1/subscriptions/{id}")).await.expect(200);
    assert_eq!(shown["public_keys"], rotated["public_keys"]);
    let longest = server.as_acme("POST", &format!("/v1/subscriptions/{id}/rotate-secret"));
    let refused = longest.json(json!({"overlap": "25h"})).await;
    let problem = refused.expect_problem(422, "invalid_request");
    assert_eq!(problem["field"], "overlap");
    assert!(problem["detail"].as_str().unwrap().contains("at most 1d"), "{problem}");

    let everything = server.as_acme("GET", "/v1/subscriptions").await;
    assert!(!everything.body.contains("whsk_"));
}

#[tokio::test]
async fn where_there_are_no_public_keys_the_page_says_the_same_whatever_the_reason() {
    let server = Server::start().await;
    let hmac = server.subscribe("https://ok.example/", json!({})).await;
    let gone = server.subscribe("https://ok.example/", json!({"secret_kind": "ed25519"})).await;
    let delete = format!("/v1/subscriptions/{}", gone["id"].as_str().unwrap());
    server.as_acme("DELETE", &delete).await.expect(204);
    let mut answers = std::collections::BTreeSet::new();
    for id in [
        hmac["id"].as_str().unwrap(),
        gone["id"].as_str().unwrap(),
        "sub_01hf7yat00000000000000000z",
        "evt_01hf7yat00000000000000000z",
        "x",
        "%00",
    ] {
        let reply = server.ask("GET", &format!("/jwks/{id}")).await;
        reply.expect_problem(404, "not_found");
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        answers.insert(reply.body);
    }
    assert_eq!(answers.len(), 1);
}
