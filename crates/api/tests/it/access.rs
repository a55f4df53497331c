//! Who may do what: every route with every kind of credential, and nothing across tenants.

use posthorn_api::{Access, ROUTES, Route};
use posthorn_domain::Scope;
use posthorn_testkit::caller::Call;
use serde_json::json;

use crate::certificates::client_certificate;
use crate::harness::{Problem as _, Server};

/// An id of the right kind that nobody has.
fn unknown(path: &str) -> String {
    let kind = match path.split('/').nth(2).unwrap_or_default() {
        "events" => "evt",
        "subscriptions" => "sub",
        "deliveries" | "dead-letters" => "dlv",
        "redrives" => "rdr",
        "tenants" => "ten",
        "keys" => "key",
        "certificates" => "crt",
        _ => return "no-such".to_owned(),
    };
    format!("{kind}_01hf7yat00000000000000000z")
}

fn ask(server: &Server, route: &Route, id: &str) -> Call {
    let path = route.path.replace("{id}", id).replace("{name}", id);
    let ask = server.ask(route.method.as_str(), &path);
    // A stream would have no end; from where nobody ever stood, it does not begin.
    let ask = if route.operation == "stream" { ask.header("last-event-id", "x") } else { ask };
    // A body that no route takes: it shows whether the request got past the gate at all.
    if route.body.is_some() { ask.text("[") } else { ask }
}

#[tokio::test]
async fn every_route_refuses_every_key_that_does_not_work_with_the_same_bytes() {
    let server = Server::start().await;
    let wrong_secret = {
        let mut key = server.keys.acme.clone();
        let flipped = if &key[40..41] == "A" { "B" } else { "A" };
        key.replace_range(40..41, flipped);
        key
    };
    let mut bodies = std::collections::BTreeSet::new();
    for route in ROUTES.iter().filter(|route| route.access != Access::Open) {
        let id = unknown(route.path);
        let asks = [
            ask(&server, route, &id),
            ask(&server, route, &id).key("garbage"),
            ask(&server, route, &id).key(""),
            ask(&server, route, &id).key(&wrong_secret),
            ask(&server, route, &id).key(&server.keys.revoked),
            ask(&server, route, &id).key(&server.keys.expired),
            ask(&server, route, &id).header("authorization", "Basic YTpi"),
            ask(&server, route, &id).header("authorization", &server.keys.acme),
            ask(&server, route, &id).key(&server.keys.acme).key(&server.keys.acme),
        ];
        for ask in asks {
            let reply = ask.await;
            reply.expect_problem(401, "unauthorized");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            bodies.insert(reply.body);
        }
    }
    assert_eq!(bodies.len(), 1);
}

#[tokio::test]
async fn every_route_needs_its_scope_and_nothing_else() {
    let server = Server::start().await;
    for route in &ROUTES {
        let Access::Scope(needed) = route.access else { continue };
        let id = unknown(route.path);
        for scope in [Scope::Publish, Scope::Manage, Scope::Read] {
            let reply = ask(&server, route, &id).key(&server.keys.only[&scope]).await;
            let status = reply.status;
            if scope == needed {
                assert!(!matches!(status, 401 | 403), "{} {status}", route.operation);
            } else {
                let problem = reply.expect_problem(403, "forbidden");
                let name = serde_json::to_value(needed).unwrap();
                assert!(problem["detail"].as_str().unwrap().contains(name.as_str().unwrap()));
            }
        }
        let reply = ask(&server, route, &id).key(&server.keys.operator).await;
        let status = reply.status;
        assert!(!matches!(status, 401 | 403), "{} {status}", route.operation);
        if route.body.is_some() && !route.path.contains('{') {
            reply.expect_problem(400, "invalid_json");
        } else if route.path.contains('{') && route.body.is_none() {
            reply.expect_problem(404, "not_found");
        }
    }
}

#[tokio::test]
async fn what_is_anothers_looks_exactly_like_what_does_not_exist() {
    let server = Server::start().await;
    let policy = json!({"policy": {"schedule": {"max_attempts": 1}}});
    let subscription = server.subscribe("https://dead.example/", policy).await;
    let event = server.publish("1").await;
    let delivery = server.delivery_in(&event, "dead").await;
    let redrive = server.as_acme("POST", "/v1/redrives").json(json!({"reason": "gate"}));
    let redrive = redrive.await.expect(201);
    let certificate = server.as_acme("POST", "/v1/certificates");
    let certificate = certificate.json(client_certificate()).await.expect(201);
    let profile = json!({"base": "default", "policy": {}});
    server.as_acme("PUT", "/v1/profiles/quick").json(&profile).await.expect(200);
    for route in &ROUTES {
        let Access::Scope(scope) = route.access else { continue };
        // Anybody may make a topic or a profile of any name.
        let makes = ["putTopic", "putProfile"].contains(&route.operation);
        if !route.path.contains('{') || scope == Scope::Operator || makes {
            continue;
        }
        let foreign = match route.path.split('/').nth(2).unwrap() {
            "events" => event.as_str(),
            "subscriptions" => subscription["id"].as_str().unwrap(),
            "redrives" => redrive["id"].as_str().unwrap(),
            "topics" => "orders",
            "profiles" => "quick",
            "certificates" => certificate["id"].as_str().unwrap(),
            _ => delivery["id"].as_str().unwrap(),
        };
        let unknown = unknown(route.path);
        let random = format!("{}zz", &unknown[..unknown.len() - 2]);
        let upper = unknown.to_uppercase();
        let other_type = "nod_01hf7yat00000000000000000z";
        let mut answers = std::collections::BTreeSet::new();
        for id in [foreign, &unknown, &random, &upper, other_type, "null", "%00", "%ff", "a%2Fb"] {
            let path = route.path.replace("{id}", id).replace("{name}", id);
            let mut ask = server.ask(route.method.as_str(), &path).key(&server.keys.other);
            if route.body.is_some() {
                ask = ask.text("{}");
            }
            let reply = ask.await;
            reply.expect_problem(404, "not_found");
            answers.insert(reply.body);
        }
        assert_eq!(answers.len(), 1, "{}", route.operation);
    }
    // Lists and filters show nothing of the other tenant either, with a cursor of it or without.
    let list = server.as_acme("GET", "/v1/events?limit=1").await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    for path in [
        "/v1/events".to_owned(),
        "/v1/topics".to_owned(),
        "/v1/subscriptions".to_owned(),
        "/v1/redrives".to_owned(),
        "/v1/certificates".to_owned(),
        "/v1/dead-letters".to_owned(),
        format!("/v1/deliveries?event={event}"),
    ] {
        let list = server.ask("GET", &path).key(&server.keys.other).await.expect(200);
        assert_eq!(list, json!({"items": []}), "{path}");
    }
    let stats = server.ask("GET", "/v1/stats").key(&server.keys.other).await.expect(200);
    assert_eq!(stats["events"], 0);
}

#[tokio::test]
async fn operators_name_a_tenant_and_others_cannot_leave_theirs() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let topics = async |ask: Call| ask.await.expect(200)["items"].clone();
    let list = || server.ask("GET", "/v1/topics");
    let operator = || list().key(&server.keys.operator);
    assert_eq!(topics(operator()).await, json!([]), "the default tenant has none");
    let by_name = topics(operator().header("posthorn-tenant", "acme")).await;
    let id = server.acme.to_string();
    let by_id = topics(operator().header("posthorn-tenant", &id)).await;
    assert_eq!(by_name[0]["name"], "orders");
    assert_eq!(by_name, by_id);
    let unknown = operator().header("posthorn-tenant", "nobody").await;
    assert_eq!(unknown.expect_problem(404, "not_found")["field"], "Posthorn-Tenant");

    let acme = || list().key(&server.keys.acme);
    assert_eq!(topics(acme().header("posthorn-tenant", "acme")).await, by_name);
    let foreign = acme().header("posthorn-tenant", "other").await;
    assert_eq!(foreign.body, unknown.body);
}

#[tokio::test]
async fn no_key_is_bound_to_a_tenant_and_an_operator_at_once() {
    let server = Server::start().await;
    let make =
        |tenant, scope| server.engine.create_key(tenant, vec![scope], String::new(), None, None);
    assert!(make(Some(server.acme), Scope::Operator).await.is_err());
    assert!(make(None, Scope::Read).await.is_err());
    assert!(make(None, Scope::Operator).await.is_ok());
}

#[tokio::test]
async fn what_failed_on_the_network_is_told_to_operators_only() {
    let server = Server::start().await;
    let subscription = server.subscribe("https://unreachable.example/", json!({})).await;
    let path = format!("/v1/subscriptions/{}/test", subscription["id"].as_str().unwrap());
    let own = server.as_acme("POST", &path).await.expect(200);
    assert_eq!(own, json!({"outcome": "failed", "failure": "connect_failed"}));
    let operator = server.as_operator("POST", &path).header("posthorn-tenant", "acme").await;
    assert!(operator.expect(200)["detail"].as_str().unwrap().contains("192.0.2.7"));
}
