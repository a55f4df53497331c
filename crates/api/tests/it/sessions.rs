//! Links into the portal, and sessions: who may create, see and end them, and what bad input is answered with.

use posthorn_api::Options;
use posthorn_domain::{Capability, Home, Opener, Scope};
use posthorn_engine::NewSession;
use posthorn_listener::ServeLimits;
use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

const LINKS: &str = "/v1/portal/links";

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().unwrap().clone()
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap().to_owned()
}

async fn console(server: &Server, home: Home, scope: Scope) -> String {
    let new = NewSession {
        opener: Opener::Proxy,
        name: "jo".to_owned(),
        home,
        scopes: vec![scope],
        groups: Vec::new(),
        lasts: std::time::Duration::from_secs(60),
    };
    server.engine.open_session(new).await.unwrap().0.id.to_string()
}

#[tokio::test]
async fn a_link_leads_into_the_portal_once() {
    let server = Server::start().await;
    let made = server.as_acme("POST", LINKS).json(json!({"name": "Ann"})).await.expect(201);
    let (token, id) = (text(&made, "token"), text(&made, "id"));
    assert_eq!(made["url"], format!("http://api.test/portal#{token}"));
    assert!(token.starts_with("lnk_") && id.starts_with("ses_"), "{made}");
    let list = server.as_acme("GET", "/v1/sessions").await.expect(200);
    let [shown] = <[Value; 1]>::try_from(items(&list)).unwrap();
    assert_eq!((&shown["id"], &shown["kind"]), (&json!(id), &json!("link")));
    assert_eq!((&shown["name"], &shown["opener"]), (&json!("Ann"), &json!("link")));
    assert_eq!(shown["capabilities"], json!(Capability::DEFAULT));
    let key = server.engine.authenticate(&server.keys.acme).unwrap().key.id;
    assert_eq!(shown["key"], json!(key));
    let (session, opened) = server.engine.redeem_portal_link(&token).await.unwrap();
    assert!(server.engine.redeem_portal_link(&token).await.is_err());
    let list = server.as_acme("GET", "/v1/sessions?kind=portal").await.expect(200);
    assert_eq!(items(&list)[0]["id"], json!(session.id));
    // Nothing of a token is ever shown again.
    let opened = opened.expose_str().unwrap();
    for secret in [&token, opened].map(|token| token.split_once('.').unwrap().1) {
        assert!(!list.to_string().contains(secret));
    }
    server.as_acme("DELETE", &format!("/v1/sessions/{}", session.id)).await.expect(204);
    assert!(server.engine.authenticate_session(opened).await.unwrap().is_none());
    let gone = server.as_acme("DELETE", &format!("/v1/sessions/{}", session.id)).await;
    gone.expect_problem(404, "not_found");
}

#[tokio::test]
async fn a_link_begins_with_the_public_url() {
    let portal_url = Some("https://hooks.example.com/app".to_owned());
    let options = Options { portal_url, ..Options::default() };
    let server = Server::start_as(ServeLimits::default(), options).await;
    let made = server.as_acme("POST", LINKS).await.expect(201);
    assert!(text(&made, "url").starts_with("https://hooks.example.com/app/portal#lnk_"), "{made}");
}

#[tokio::test]
async fn a_host_that_is_none_is_not_repeated() {
    let server = Server::start().await;
    let made = server.as_acme("POST", LINKS).header("host", "evil\"<b>").await;
    if made.status == 201 {
        assert!(!made.body.contains("evil"), "{}", made.body);
    }
}

#[tokio::test]
async fn tenants_neither_see_nor_end_sessions_of_others() {
    let server = Server::start().await;
    let label = json!({"label": "same"});
    let own = text(&server.as_acme("POST", LINKS).json(&label).await.expect(201), "id");
    let other = server.ask("POST", LINKS).key(&server.keys.other).json(&label);
    let other = text(&other.await.expect(201), "id");
    let operators = console(&server, Home::Operator, Scope::Operator).await;
    let acmes = console(&server, Home::Tenant(server.acme), Scope::Read).await;
    for query in ["", "?label=same", "?kind=link", "?order=oldest&limit=1"] {
        let list = server.ask("GET", &format!("/v1/sessions{query}")).key(&server.keys.other);
        let found: Vec<String> =
            items(&list.await.expect(200)).iter().map(|item| text(item, "id")).collect();
        assert_eq!(found, std::slice::from_ref(&other), "{query}");
    }
    let nobody = "ses_01hf7yat00000000000000000z";
    let unknown = server.ask("DELETE", &format!("/v1/sessions/{nobody}")).key(&server.keys.other);
    let unknown = unknown.await;
    for foreign in [&own, &operators, &acmes] {
        let path = format!("/v1/sessions/{foreign}");
        let reply = server.ask("DELETE", &path).key(&server.keys.other).await;
        reply.expect_problem(404, "not_found");
        assert_eq!(reply.body, unknown.body, "as if there was none");
    }
    let ended = server.ask("DELETE", "/v1/sessions?label=same").key(&server.keys.other);
    assert_eq!(ended.await.expect(200), json!({"ended": 1}), "only its own");
    let acme = items(&server.as_acme("GET", "/v1/sessions").await.expect(200));
    assert_eq!(acme.iter().map(|item| text(item, "id")).collect::<Vec<_>>(), [acmes, own.clone()]);
    let all = server.as_operator("GET", "/v1/sessions").await.expect(200);
    assert_eq!(items(&all).len(), 3, "operators see all, their own too: {all}");
    let named = server.as_operator("GET", "/v1/sessions").header("posthorn-tenant", "acme");
    assert_eq!(items(&named.await.expect(200)).len(), 2, "or those of one tenant");
    let path = format!("/v1/sessions/{own}");
    let named = server.as_operator("DELETE", &path).header("posthorn-tenant", "other");
    named.await.expect_problem(404, "not_found");
    server.as_operator("DELETE", &path).await.expect(204);
    server.as_operator("DELETE", &format!("/v1/sessions/{operators}")).await.expect(204);
}

#[tokio::test]
async fn keys_that_may_not_manage_are_refused() {
    let server = Server::start().await;
    let id = text(&server.as_acme("POST", LINKS).await.expect(201), "id");
    for scope in [Scope::Read, Scope::Publish] {
        let key = &server.keys.only[&scope];
        for (method, path) in [
            ("POST", LINKS.to_owned()),
            ("GET", "/v1/sessions".to_owned()),
            ("DELETE", "/v1/sessions?label=a".to_owned()),
            ("DELETE", format!("/v1/sessions/{id}")),
        ] {
            server.ask(method, &path).key(key).await.expect_problem(403, "forbidden");
        }
    }
    for key in [&server.keys.revoked, &server.keys.expired] {
        server.ask("GET", "/v1/sessions").key(key).await.expect_problem(401, "unauthorized");
    }
    server.ask("POST", LINKS).key(&server.keys.only[&Scope::Manage]).await.expect(201);
}

#[tokio::test]
async fn a_revoked_key_ends_what_it_opened() {
    let server = Server::start().await;
    let key = server.keys.only[&Scope::Manage].clone();
    let made = server.ask("POST", LINKS).key(&key).await.expect(201);
    let id = server.engine.authenticate(&key).unwrap().key.id;
    server.as_operator("DELETE", &format!("/v1/keys/{id}")).await.expect(204);
    assert!(server.engine.redeem_portal_link(&text(&made, "token")).await.is_err());
    let list = server.as_acme("GET", "/v1/sessions").await.expect(200);
    assert_eq!(items(&list), [Value::Null; 0]);
}

#[tokio::test]
async fn bad_input_is_named() {
    let server = Server::start().await;
    for (body, field) in [
        (json!({"name": "x".repeat(201)}), "name"),
        (json!({"name": 7}), "name"),
        (json!({"capabilities": ["fly"]}), "capabilities[0]"),
        (json!({"capabilities": "view"}), "capabilities"),
        (json!({"redeem_within": "2d"}), "redeem_within"),
        (json!({"redeem_within": 300}), "redeem_within"),
        (json!({"redeem_within": "0s"}), "redeem_within"),
        (json!({"expires_in": "8d"}), "expires_in"),
        (json!({"label": ""}), "label"),
        (json!({"label": "x".repeat(129)}), "label"),
        (json!({"return_url": "http://example.com/"}), "return_url"),
        (json!({"return_url": "javascript:alert(1)"}), "return_url"),
    ] {
        let reply = server.as_acme("POST", LINKS).json(&body).await;
        let problem = reply.expect_problem(422, "invalid_request");
        assert_eq!(problem["field"], field, "{body}: {problem}");
    }
    let unknown = server.as_acme("POST", LINKS).json(json!({"scopes": []})).await;
    assert!((400..500).contains(&unknown.status), "{}", unknown.body);
    for path in ["/v1/sessions?kind=door", "/v1/sessions?cursor=x", "/v1/sessions?tenant=acme"] {
        let reply = server.as_acme("GET", path).await;
        reply.expect_problem(422, "invalid_request");
    }
    let problem = server.as_acme("DELETE", "/v1/sessions").await;
    assert_eq!(problem.expect_problem(422, "invalid_request")["field"], "label");
    for id in ["ses_", "key_01hf7yat00000000000000000z", "%00"] {
        let reply = server.as_acme("DELETE", &format!("/v1/sessions/{id}")).await;
        reply.expect_problem(404, "not_found");
    }
    let list = server.as_acme("GET", "/v1/sessions").await.expect(200);
    assert_eq!(items(&list), [Value::Null; 0], "nothing was created");
}

#[tokio::test]
async fn a_tenant_over_its_quota_is_asked_to_wait() {
    let mut options = posthorn_engine::Options::default();
    options.quotas.sessions = 1;
    let limits = ServeLimits::default();
    let server = Server::start_limited(limits, options, Options::default()).await;
    server.as_acme("POST", LINKS).await.expect(201);
    let refused = server.as_acme("POST", LINKS).await;
    let problem = refused.expect_problem(429, "quota_exceeded");
    assert!(text(&problem, "detail").contains("quotas.sessions"), "{problem}");
    assert!(refused.headers.contains_key("retry-after"));
    server.ask("POST", LINKS).key(&server.keys.other).await.expect(201);
}

#[tokio::test]
async fn pages_of_sessions_lead_through_all() {
    let server = Server::start().await;
    for _ in 0..7 {
        server.as_acme("POST", LINKS).await.expect(201);
    }
    let (mut found, mut path) = (Vec::new(), "/v1/sessions?limit=3".to_owned());
    loop {
        let page = server.as_acme("GET", &path).await.expect(200);
        found.extend(items(&page).iter().map(|item| text(item, "id")));
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/sessions?limit=3&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found.len(), 7);
    assert!(found.is_sorted_by(|a, b| a > b), "newest first: {found:?}");
}
