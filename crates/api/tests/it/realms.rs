//! Realms: made, changed and deleted by operators; what their tenants and keys have of them.

use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

#[tokio::test]
async fn realms_come_and_go() {
    let server = Server::start().await;
    let default = server.as_operator("GET", "/v1/realms/default").await.expect(200);
    assert_eq!((&default["validation"], &default["defaults"]), (&json!("off"), &json!({})));
    server.as_operator("GET", "/v1/realms/eu").await.expect_problem(404, "not_found");
    let contents = json!({
        "description": "Europe", "defaults": {"profile": "default", "deliveries_per_second": 50},
        "validation": "known",
    });
    let put = async |name: &str, body: &Value| {
        server.as_operator("PUT", &format!("/v1/realms/{name}")).json(body).await
    };
    let made = put("eu", &contents).await.expect(200);
    for (field, value) in contents.as_object().unwrap() {
        assert_eq!(made[field], *value);
    }
    let again = put("eu", &json!({})).await.expect(200);
    assert_eq!((&again["description"], &again["validation"]), (&json!(""), &json!("off")));
    assert_eq!(again["created_at"], made["created_at"]);
    for name in ["a", "b"] {
        put(name, &json!({})).await.expect(200);
    }
    let (mut names, mut next) = (Vec::new(), String::new());
    for _ in 0..4 {
        let path = format!("/v1/realms?limit=1{next}");
        let page = server.as_operator("GET", &path).await.expect(200);
        names.push(page["items"][0]["name"].as_str().unwrap().to_owned());
        next = page["next"].as_str().map_or_else(String::new, |next| format!("&cursor={next}"));
    }
    assert_eq!((names.join(" ").as_str(), next.as_str()), ("a b default eu", ""));
    server.as_operator("DELETE", "/v1/realms/a").await.expect(204);
    server.as_operator("DELETE", "/v1/realms/a").await.expect_problem(404, "not_found");
    let default = server.as_operator("DELETE", "/v1/realms/default").await;
    default.expect_problem(409, "realm_not_empty");
}

#[tokio::test]
async fn a_realm_with_something_in_it_stays() {
    let server = Server::start().await;
    server.as_operator("PUT", "/v1/realms/eu").json(json!({})).await.expect(200);
    let delete = || server.as_operator("DELETE", "/v1/realms/eu");
    let new = json!({"realm": "eu", "scopes": ["read"]});
    let key = server.as_operator("POST", "/v1/keys").json(new).await.expect(201);
    delete().await.expect_problem(409, "realm_not_empty");
    let id = key["id"].as_str().unwrap();
    server.as_operator("DELETE", &format!("/v1/keys/{id}")).await.expect(204);
    let put = server.as_operator("PUT", "/v1/event-types/a?realm=eu").json(json!({}));
    put.await.expect(200);
    delete().await.expect_problem(409, "realm_not_empty");
    server.as_operator("DELETE", "/v1/event-types/a?realm=eu").await.expect(204);
    let new = json!({"name": "one", "realm": "eu"});
    let one = server.as_operator("POST", "/v1/tenants").json(new).await.expect(201);
    delete().await.expect_problem(409, "realm_not_empty");
    server.as_operator("DELETE", "/v1/tenants/one").await.expect(202);
    crate::tenants::deleted(&server, one["id"].as_str().unwrap()).await;
    delete().await.expect(204);
}

#[tokio::test]
async fn bad_realms_are_refused() {
    let server = Server::start().await;
    for (name, body, field) in [
        ("a%20b", json!({}), "name"),
        ("r", json!({"validation": "maybe"}), "validation"),
        ("r", json!({"defaults": {"profile": "no-such"}}), "profile"),
        ("r", json!({"defaults": {"deliveries_per_second": 0}}), "defaults.deliveries_per_second"),
        ("r", json!({"defaults": {"speed": 1}}), "defaults.speed"),
        ("r", json!({"name": "r"}), "name"),
    ] {
        let reply = server.as_operator("PUT", &format!("/v1/realms/{name}")).json(&body).await;
        assert_eq!(reply.status, 422, "{body}");
        let problem = reply.json();
        assert_eq!(problem["field"], field, "{problem}");
    }
    let keys = |body: Value| server.as_operator("POST", "/v1/keys").json(body);
    for (body, field) in [
        (json!({"scopes": ["read"], "realm": "nowhere"}), "realm"),
        (json!({"scopes": ["read"], "realm": "default", "tenant": "acme"}), "realm"),
        (json!({"scopes": ["operator"], "realm": "default"}), "realm"),
        (json!({"scopes": ["read"]}), "tenant"),
    ] {
        let problem = keys(body).await.expect_problem(422, "invalid_request");
        assert_eq!(problem["field"], field);
    }
}

#[tokio::test]
async fn subscriptions_that_name_no_profile_have_that_of_the_realm() {
    let server = Server::start().await;
    let put = |body: Value| server.as_operator("PUT", "/v1/realms/default").json(body);
    put(json!({"defaults": {"profile": "cedros"}})).await.expect(200);
    let made = server.subscribe("https://ok.example/", json!({})).await;
    assert_eq!(made["profile"], "cedros");
    let named = server.subscribe("https://ok.example/", json!({"profile": "default"})).await;
    assert_eq!(named["profile"], "default");
    put(json!({})).await.expect(200);
    let made = server.subscribe("https://ok.example/", json!({})).await;
    assert_eq!(made["profile"], "default");
}
