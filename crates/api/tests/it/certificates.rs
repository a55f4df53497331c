//! The registry of certificates over HTTP.

use posthorn_testkit::authority::Pair;
use rcgen::DnType;
use serde_json::{Value, json};

use posthorn_api::Options;
use posthorn_listener::{ProxyIdentity, ServeLimits};

use crate::harness::{Problem as _, Server};

/// A fresh certificate and its key, as PEM texts.
fn fresh() -> (String, String) {
    let pair = Pair::self_signed_with("ok.example", |params| {
        params.distinguished_name.push(DnType::CommonName, "hooks");
    });
    (pair.certificate, pair.key)
}

/// The body that registers a client certificate.
pub(crate) fn client_certificate() -> Value {
    let (certificate, key) = fresh();
    json!({"kind": "client", "host": "ok.example", "certificate": certificate, "key": key})
}

#[tokio::test]
async fn a_certificate_is_registered_used_rotated_revoked_and_deleted() {
    let server = Server::start().await;
    let body = client_certificate();
    let reply = server.as_acme("POST", "/v1/certificates").json(&body).await;
    let made = reply.expect(201);
    let id = made["id"].as_str().unwrap();
    let path = format!("/v1/certificates/{id}");
    assert_eq!(reply.header("location"), Some(&*path));
    assert_eq!((&made["state"], &made["has_key"]), (&json!("valid"), &json!(true)));
    let lines = |text: &Value| text.as_str().unwrap().lines().collect::<Vec<_>>().join("\n");
    assert_eq!(lines(&made["certificate"]), lines(&body["certificate"]));
    assert_eq!(made["thumbprint"].as_str().unwrap().len(), 64);
    assert!(made["subject"].as_str().unwrap().contains("CN=hooks"));
    let text = reply.body.clone();
    assert!(!text.contains("PRIVATE"), "the key is never shown");
    let read = server.as_acme("GET", &path).await.expect(200);
    assert_eq!(read, made);
    let list = server.as_acme("GET", "/v1/certificates").await.expect(200);
    assert_eq!(list, json!({"items": [made]}));

    let policy = json!({"policy": {
        "auth": [{"kind": "certificate_thumbprint", "header": "X-Certificate"}],
    }});
    server.subscribe("https://ok.example/", policy).await;
    let event = server.publish("1").await;
    server.delivery_in(&event, "delivered").await;
    let sent = server.transport.sent_to("ok.example");
    assert_eq!(sent[0].headers["x-certificate"], made["thumbprint"].as_str().unwrap());

    let (certificate, key) = fresh();
    let rotation = json!({"certificate": certificate, "key": key});
    let rotate = format!("{path}/rotate");
    let rotated = server.as_acme("POST", &rotate).json(&rotation).await.expect(200);
    assert_ne!(rotated["thumbprint"], made["thumbprint"]);
    let wrong = json!({"certificate": fresh().0, "key": key});
    let refused = server.as_acme("POST", &rotate).json(&wrong).await;
    assert_eq!(refused.expect_problem(422, "invalid_certificate")["field"], "key");
    let now = server.as_acme("GET", &path).await.expect(200);
    assert_eq!(now, rotated, "a refused rotation changes nothing");

    let revoke = format!("{path}/revoke");
    for _ in 0..2 {
        let revoked = server.as_acme("POST", &revoke).await.expect(200);
        assert_eq!(revoked["state"], "revoked");
    }
    server.as_acme("DELETE", &path).await.expect(204);
    server.as_acme("GET", &path).await.expect_problem(404, "not_found");
    server.as_acme("DELETE", &path).await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn what_cannot_be_a_certificate_is_refused_with_its_field() {
    let server = Server::start().await;
    let (certificate, key) = fresh();
    let (_, other) = fresh();
    for (body, status, code, field) in [
        (
            json!({"kind": "client", "certificate": "x", "key": key}),
            422,
            "invalid_certificate",
            "certificate",
        ),
        (
            json!({"kind": "client", "certificate": certificate, "key": other}),
            422,
            "invalid_certificate",
            "key",
        ),
        (
            json!({"kind": "authority", "certificate": certificate}),
            422,
            "invalid_certificate",
            "certificate",
        ),
        (
            json!({"kind": "client", "certificate": certificate, "key": key, "scopes": ["read"]}),
            422,
            "invalid_certificate",
            "scopes",
        ),
    ] {
        let reply = server.as_acme("POST", "/v1/certificates").json(&body).await;
        assert_eq!(reply.expect_problem(status, code)["field"], field);
        assert!(!reply.body.contains("PRIVATE"));
    }
    for body in [json!({}), json!({"kind": "server", "certificate": "x"})] {
        let reply = server.as_acme("POST", "/v1/certificates").json(&body).await;
        assert!((400..500).contains(&reply.status));
    }
    let policy = json!({"url": "https://nobody.example/", "policy": {
        "auth": [{"kind": "client_certificate"}],
    }});
    let reply = server.as_acme("POST", "/v1/subscriptions").json(&policy).await;
    let problem = reply.expect_problem(422, "invalid_certificate");
    assert_eq!(problem["field"], "policy.auth");
    assert!(problem["detail"].as_str().unwrap().contains("nobody.example"));
    let list = server.as_acme("GET", "/v1/certificates").await.expect(200);
    assert_eq!(list, json!({"items": []}));
}

#[tokio::test]
async fn only_operators_register_callers() {
    let server = Server::start().await;
    let caller = || {
        let (certificate, _) = fresh();
        json!({"kind": "caller", "certificate": certificate, "scopes": ["read", "read"]})
    };
    let own = server.as_acme("POST", "/v1/certificates").json(caller()).await;
    own.expect_problem(403, "forbidden");
    let ask = || server.as_operator("POST", "/v1/certificates").header("posthorn-tenant", "acme");
    let made = ask().json(caller()).await.expect(201);
    assert_eq!(made["scopes"], json!(["read"]));
    let operator = json!({
        "kind": "caller", "certificate": fresh().0, "scopes": ["operator"],
    });
    ask().json(&operator).await.expect_problem(422, "invalid_certificate");
    let path = format!("/v1/certificates/{}", made["id"].as_str().unwrap());
    let rotation = json!({"certificate": fresh().0});
    let rotated = server.as_acme("POST", &format!("{path}/rotate")).json(&rotation).await;
    rotated.expect_problem(403, "forbidden");
    server.as_acme("DELETE", &path).await.expect_problem(403, "forbidden");
    let revoked = server.as_acme("POST", &format!("{path}/revoke")).await.expect(200);
    assert_eq!(revoked["state"], "revoked");
}

/// A server behind a proxy that connects from `net`.
async fn behind(net: &str) -> Server {
    let identity = ProxyIdentity {
        thumbprint_header: Some("x-ssl-client-sha256".try_into().unwrap()),
        subject_header: Some("x-ssl-client-dn".try_into().unwrap()),
        proxies: vec![net.parse().unwrap()],
    };
    let options = Options { identity: Some(identity), ..Options::default() };
    Server::start_as(ServeLimits::default(), options).await
}

async fn caller(server: &Server, scopes: Value) -> Value {
    let body = json!({
        "kind": "caller", "owner": "DE", "certificate": fresh().0, "scopes": scopes,
    });
    let ask = server.as_operator("POST", "/v1/certificates").header("posthorn-tenant", "acme");
    ask.json(&body).await.expect(201)
}

#[tokio::test]
async fn a_proxy_that_is_believed_vouches_for_callers() {
    let server = behind("127.0.0.0/8").await;
    let made = caller(&server, json!(["read"])).await;
    let thumbprint = made["thumbprint"].as_str().unwrap();
    let ask = |method, path, thumbprint: &str, subject: &str| {
        server
            .ask(method, path)
            .header("x-ssl-client-sha256", thumbprint)
            .header("x-ssl-client-dn", subject)
    };
    let topics = "/v1/topics";
    let subject = "CN=backend,C=DE,O=Example";
    for spelling in [thumbprint.to_owned(), thumbprint.to_uppercase()] {
        ask("GET", topics, &spelling, subject).await.expect(200);
    }
    // It has a tenant and scopes like a key, and no more.
    let foreign = ask("GET", topics, thumbprint, subject).header("posthorn-tenant", "other");
    foreign.await.expect_problem(404, "not_found");
    let put = ask("PUT", "/v1/topics/a", thumbprint, subject).json(json!({}));
    put.await.expect_problem(403, "forbidden");
    ask("GET", "/v1/tenants", thumbprint, subject).await.expect_problem(403, "forbidden");

    let unknown = "ab".repeat(32);
    let wrong = [
        ask("GET", topics, &unknown, subject),
        ask("GET", topics, "nonsense", subject),
        ask("GET", topics, thumbprint, "C=NL"),
        ask("GET", topics, thumbprint, "CN=backend"),
        ask("GET", topics, thumbprint, subject).header("x-ssl-client-sha256", &unknown),
        server.ask("GET", topics).header("x-ssl-client-sha256", thumbprint),
        // A key that does not work is not mended by a certificate.
        ask("GET", topics, thumbprint, subject).key("nonsense"),
    ];
    for ask in wrong {
        ask.await.expect_problem(401, "unauthorized");
    }
    let key = ask("GET", topics, &unknown, subject).key(&server.keys.acme);
    key.await.expect(200);

    let revoke = format!("/v1/certificates/{}/revoke", made["id"].as_str().unwrap());
    server.as_acme("POST", &revoke).await.expect(200);
    let after = ask("GET", topics, thumbprint, subject).await;
    after.expect_problem(401, "unauthorized");
}

#[tokio::test]
async fn headers_from_anywhere_else_are_ignored() {
    for server in [behind("10.0.0.0/8").await, Server::start().await] {
        let made = caller(&server, json!(["read"])).await;
        let ask = server
            .ask("GET", "/v1/topics")
            .header("x-ssl-client-sha256", made["thumbprint"].as_str().unwrap())
            .header("x-ssl-client-dn", "C=DE");
        ask.await.expect_problem(401, "unauthorized");
    }
}

#[tokio::test]
async fn whoever_shows_no_key_cannot_have_a_certificate_named_for_them() {
    let server = Server::start().await;
    let (certificate, key) = fresh();
    let bare = json!({"kind": "client", "host": "ok.example", "certificate": certificate});
    let own = server.as_acme("POST", "/v1/certificates").json(&bare).await;
    assert_eq!(own.expect_problem(403, "forbidden")["field"], "key");
    let operator = server.as_operator("POST", "/v1/certificates").header("posthorn-tenant", "acme");
    let made = operator.json(&bare).await.expect(201);
    assert_eq!(made["has_key"], false);
    let rotate = format!("/v1/certificates/{}/rotate", made["id"].as_str().unwrap());
    let rotation = json!({"certificate": fresh().0});
    let rotated = server.as_acme("POST", &rotate).json(&rotation).await;
    rotated.expect_problem(403, "forbidden");
    let rotation = json!({"certificate": certificate, "key": key});
    server.as_acme("POST", &rotate).json(&rotation).await.expect(200);
    // Nor can the header be set by hand.
    let policy = json!({"url": "https://ok.example/", "policy": {
        "request": {"headers": {"X-SSL-Client-SHA256": "ab"}},
    }});
    let reply = server.as_acme("POST", "/v1/subscriptions").json(&policy).await;
    reply.expect_problem(422, "invalid_policy");
}

#[tokio::test]
async fn only_certificates_are_kept_of_what_is_sent_as_one() {
    let server = Server::start().await;
    let (certificate, key) = fresh();
    let hidden =
        "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAAhush\n-----END OPENSSH PRIVATE KEY-----\n";
    let body = json!({
        "kind": "client", "certificate": format!("hush\n{certificate}{hidden} hush"), "key": key,
    });
    let made = server.as_acme("POST", "/v1/certificates").json(&body).await;
    let text = made.body.clone();
    assert!(!text.contains("hush"), "{text}");
    let lines = |pem: &str| pem.lines().map(str::to_owned).collect::<Vec<_>>();
    let kept = made.expect(201)["certificate"].as_str().unwrap().to_owned();
    assert_eq!(lines(&kept), lines(&certificate));
    for bad in ["ok.example:443", "https://ok.example", "[::1]", "a b"] {
        let (certificate, key) = fresh();
        let body = json!({"kind": "client", "host": bad, "certificate": certificate, "key": key});
        let reply = server.as_acme("POST", "/v1/certificates").json(&body).await;
        assert_eq!(reply.expect_problem(422, "invalid_certificate")["field"], "host");
    }
}
