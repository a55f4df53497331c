//! Tenants: what is said of them, how they are found, exported and deleted.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

/// Waits until nothing is left of a tenant, by its id; the job that did it.
pub(crate) async fn deleted(server: &Server, id: &str) -> Value {
    let path = format!("/v1/tenants/{id}/deletion");
    let mut last = Value::Null;
    for _ in 0..1_000 {
        last = server.as_operator("GET", &path).await.expect(200);
        if last["state"] != "running" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(last["state"], "done", "{last}");
    last
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[tokio::test]
async fn tenants_have_what_is_said_of_them() {
    let server = Server::start().await;
    server.as_operator("PUT", "/v1/realms/eu").json(json!({})).await.expect(200);
    let new = json!({
        "name": "shop", "realm": "eu", "external_id": "customer 17",
        "metadata": {"plan": "gold"}, "deliveries_per_second": 20,
    });
    let made = server.as_operator("POST", "/v1/tenants").json(&new).await.expect(201);
    for (field, value) in new.as_object().unwrap() {
        assert_eq!(made[field], *value);
    }
    assert_eq!(server.as_operator("GET", "/v1/tenants/shop").await.expect(200), made);
    let patch = |body: Value| server.as_operator("PATCH", "/v1/tenants/shop").json(body);
    let changed =
        patch(json!({"metadata": {"plan": "iron"}, "external_id": null})).await.expect(200);
    assert_eq!(
        (&changed["metadata"]["plan"], &changed["external_id"]),
        (&json!("iron"), &Value::Null)
    );
    assert_eq!(changed["deliveries_per_second"], 20, "what is not named stays");
    let renamed = patch(json!({"name": "store", "deliveries_per_second": null})).await.expect(200);
    assert_eq!((&renamed["id"], &renamed["deliveries_per_second"]), (&made["id"], &Value::Null));
    server.as_operator("GET", "/v1/tenants/shop").await.expect_problem(404, "not_found");
    let topics = server.as_operator("GET", "/v1/topics").header("posthorn-tenant", "store");
    topics.await.expect(200);
    assert_eq!(patch(json!({})).await.status, 404);
    let again = server.as_operator("PATCH", "/v1/tenants/store").json(json!({"name": "acme"}));
    again.await.expect_problem(409, "conflict");
}

#[tokio::test]
async fn tenants_are_found_page_by_page() {
    let server = Server::start().await;
    server.as_operator("PUT", "/v1/realms/eu").json(json!({})).await.expect(200);
    for number in 0..25 {
        let realm = if number % 5 == 0 { "eu" } else { "default" };
        let name = format!("shop-{number:02}");
        let new = json!({"name": name, "realm": realm, "external_id": format!("x{number}")});
        server.as_operator("POST", "/v1/tenants").json(new).await.expect(201);
    }
    let all = async |query: &str| {
        let (mut names, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/tenants?limit=4{query}{cursor}");
            let page = server.as_operator("GET", &path).await.expect(200);
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= 4);
            names.extend(items.iter().map(|item| text(&item["name"]).to_owned()));
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return names,
            }
        }
    };
    assert_eq!(all("").await.len(), 4 + 25, "with `default` and `system`");
    let eu = ["shop-00", "shop-05", "shop-10", "shop-15", "shop-20"];
    assert_eq!(all("&realm=eu").await, eu);
    assert_eq!(all("&name_prefix=shop-1").await.len(), 10);
    assert_eq!(all("&name_prefix=shop-1&realm=eu").await, ["shop-10", "shop-15"]);
    assert_eq!(all("&external_id=x7").await, ["shop-07"]);
    assert_eq!(all("&external_id=x5&realm=eu").await, ["shop-05"]);
    assert_eq!(all("&external_id=x5&realm=default").await, [""; 0]);
    let problem = server.as_operator("GET", "/v1/tenants?cursor=nonsense").await;
    problem.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn bad_tenants_are_refused() {
    let server = Server::start().await;
    let large = "x".repeat(5_000);
    for (body, field) in [
        (json!({"name": "ten_1"}), "name"),
        (json!({"name": "a", "realm": "nowhere"}), "realm"),
        (json!({"name": "a", "external_id": ""}), "external_id"),
        (json!({"name": "a", "external_id": "a\nb"}), "external_id"),
        (json!({"name": "a", "metadata": {"a": 1}}), "metadata.a"),
        (json!({"name": "a", "metadata": {"a": large}}), "metadata"),
        (json!({"name": "a", "deliveries_per_second": 0}), "deliveries_per_second"),
        (json!({"name": "a", "colour": "red"}), "colour"),
    ] {
        let reply = server.as_operator("POST", "/v1/tenants").json(&body).await;
        let problem = reply.expect_problem(422, "invalid_request");
        assert_eq!(problem["field"], field, "{problem}");
    }
    for (body, field) in [
        (json!({"name": null}), "name"),
        (json!({"realm": "eu"}), "realm"),
        (json!({"deliveries_per_second": 0}), "deliveries_per_second"),
    ] {
        let reply = server.as_operator("PATCH", "/v1/tenants/acme").json(&body).await;
        let problem = reply.expect_problem(422, "invalid_request");
        assert_eq!(problem["field"], field, "{problem}");
    }
    let twin = json!({"name": "one", "external_id": "x"});
    server.as_operator("POST", "/v1/tenants").json(&twin).await.expect(201);
    let twin = json!({"name": "two", "external_id": "x"});
    let reply = server.as_operator("POST", "/v1/tenants").json(&twin).await;
    reply.expect_problem(409, "conflict");
}

#[tokio::test]
async fn a_deleted_tenant_is_gone_with_everything_it_had() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let event = server.publish("1").await;
    server.delivery_in(&event, "delivered").await;
    let sent = server.transport.sent_to("ok.example").len();
    let acme = server.acme.to_string();
    let job = server.as_operator("DELETE", "/v1/tenants/acme").await.expect(202);
    assert_eq!(job["kind"], "delete_tenant");
    // Its keys open nothing any more, and nobody else does anything for it.
    server.as_acme("GET", "/v1/topics").await.expect_problem(401, "unauthorized");
    let body = json!({"topic": "orders", "type": "a", "payload": 1});
    for name in [acme.as_str(), "acme"] {
        let publish = server.as_operator("POST", "/v1/events").header("posthorn-tenant", name);
        let reply = publish.json(&body).await;
        // When it is over, the name is nobody's.
        assert!(reply.status == 410 || (name == "acme" && reply.status == 404), "{}", reply.body);
    }
    let done = deleted(&server, &acme).await;
    assert_eq!(done["id"], job["id"]);
    assert!(done["done"].as_u64().unwrap() > 3, "{done}");
    for path in ["", "/export"] {
        let reply = server.as_operator("GET", &format!("/v1/tenants/{acme}{path}")).await;
        reply.expect_problem(410, "tenant_deleted");
    }
    server
        .as_operator("DELETE", &format!("/v1/tenants/{acme}"))
        .await
        .expect_problem(410, "tenant_deleted");
    server.as_operator("GET", "/v1/tenants/acme").await.expect_problem(404, "not_found");
    let list = server.as_operator("GET", "/v1/tenants").await.expect(200);
    assert!(list["items"].as_array().unwrap().iter().all(|item| item["id"] != acme.as_str()));
    let keys = server.as_operator("GET", "/v1/keys").await.expect(200);
    assert!(keys["items"].as_array().unwrap().iter().all(|key| key["tenant"] != acme.as_str()));
    // The name is free, and whoever has it next has nothing of the other.
    let new = json!({"name": "acme"});
    let heir = server.as_operator("POST", "/v1/tenants").json(new).await.expect(201);
    assert_ne!(heir["id"], acme.as_str());
    let events = server.as_operator("GET", "/v1/events").header("posthorn-tenant", "acme");
    assert_eq!(events.await.expect(200), json!({"items": []}));
    assert_eq!(server.transport.sent_to("ok.example").len(), sent, "nothing was sent any more");
    let default = server.as_operator("DELETE", "/v1/tenants/default").await;
    default.expect_problem(409, "default_tenant");
}

#[tokio::test]
async fn an_export_has_everything_but_secrets() {
    let server = Server::start().await;
    let made = server.subscribe("https://ok.example/", json!({"name": "one"})).await;
    let secret = text(&made["signing_secret"]).to_owned();
    let mut events = Vec::new();
    for number in 0..25 {
        events.push(server.publish(&format!(r#"{{"n":{number}}}"#)).await);
    }
    for event in &events {
        server.delivery_in(event, "delivered").await;
    }
    server.as_acme("POST", "/v1/redrives").json(json!({"reason": "gate"})).await.expect(201);
    let replay = server.as_acme("POST", "/v1/subscriptions/one/replay");
    replay.json(json!({"status": "failed"})).await.expect(201);
    let put = server.as_operator("PUT", "/v1/clients/zaak").header("posthorn-tenant", "acme");
    put.json(json!({"secret": "of-nobody-else-1234"})).await.expect(200);
    let reply = server.as_operator("GET", "/v1/tenants/acme/export").await.with(200);
    assert_eq!(reply.header("content-type"), Some("text/jsonl"));
    assert!(!reply.body.contains(&secret) && !reply.body.contains("of-nobody-else"));
    let lines: Vec<Value> =
        reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!((of("tenant"), of("topic"), of("subscription")), (1, 1, 1));
    assert_eq!((of("event"), of("delivery"), of("attempt")), (25, 25, 25));
    assert_eq!((of("job"), of("redrive"), of("client")), (1, 1, 1));
    assert!(of("audit") >= 4, "who made the subscription, the jobs and the client");
    let end = lines.last().unwrap();
    assert_eq!(*end, json!({"kind": "end", "item": {"lines": lines.len() - 1}}));
    let exported: Vec<&str> = lines
        .iter()
        .filter(|line| line["kind"] == "event")
        .map(|line| text(&line["item"]["event"]["id"]))
        .collect();
    assert_eq!(exported, events, "in the order in which they were stored");
    assert_eq!(lines.iter().find(|l| l["kind"] == "event").unwrap()["item"]["payload"]["n"], 0);
    server.as_operator("GET", "/v1/tenants/nobody/export").await.expect_problem(404, "not_found");
}
