//! Topics, subscriptions, deliveries, dead letters, redrives, tenants and keys: the happy paths.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

/// Follows `next` through a list and returns everything on it.
async fn walk(server: &Server, path: &str, limit: usize) -> Vec<Value> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("{path}?limit={limit}&cursor={cursor}");
        let page = server.as_operator("GET", &path).header("posthorn-tenant", "acme");
        let page = page.await.expect(200);
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit);
        all.extend(items.iter().cloned());
        match page.get("next") {
            Some(next) => cursor = next.as_str().unwrap().to_owned(),
            None => return all,
        }
    }
}

#[tokio::test]
async fn topics_are_made_changed_listed_and_deleted() {
    let server = Server::start().await;
    let put = async |path: &str, body: Value| server.as_acme("PUT", path).json(&body).await;
    let contents = json!({"description": "all orders", "attributes": ["region"]});
    let made = put("/v1/topics/orders", contents).await.expect(200);
    assert_eq!(made["attributes"], json!(["region"]));
    let changed = put("/v1/topics/orders", json!({})).await.expect(200);
    assert_eq!(changed["description"], "");
    assert_eq!(changed["created_at"], made["created_at"]);
    put("/v1/topics/nested%2Fname", json!({})).await.expect(200);
    let nested = server.as_acme("GET", "/v1/topics/nested%2Fname").await.expect(200);
    assert_eq!(nested["name"], "nested/name");
    let names: Vec<Value> =
        walk(&server, "/v1/topics", 1).await.iter().map(|topic| topic["name"].clone()).collect();
    assert_eq!(names, ["nested/name", "orders"]);
    let gone = server.as_acme("DELETE", "/v1/topics/orders").await;
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    server.as_acme("GET", "/v1/topics/orders").await.expect_problem(404, "not_found");
    server.as_acme("DELETE", "/v1/topics/orders").await.expect_problem(404, "not_found");
    let refused = put("/v1/topics/a%20b", json!({})).await.expect_problem(422, "invalid_request");
    assert_eq!(refused["field"], "name");
}

#[tokio::test]
async fn subscriptions_are_made_read_changed_and_deleted() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let body = json!({
        "url": "https://ok.example/hook", "description": "mine",
        "filter": {"any_of": [{"topics": ["orders"], "types": ["order.*"]}]},
        "policy": {"schedule": {"max_attempts": 3}}, "paused": true,
    });
    let reply = server.as_acme("POST", "/v1/subscriptions").json(&body).await;
    let made = reply.expect(201);
    let id = made["id"].as_str().unwrap();
    let path = format!("/v1/subscriptions/{id}");
    assert_eq!(reply.header("location"), Some(&*path));
    assert!(made["signing_secret"].as_str().unwrap().starts_with("whsec_"));
    assert_eq!(made["profile"], "default");
    assert_eq!(made["policy"], body["policy"]);
    assert_eq!(made["status"], "paused");

    let read = server.as_acme("GET", &path).await;
    assert_eq!(read.header("etag"), Some(&*format!("\"{}\"", made["version"])));
    let mut shown = made.clone();
    shown.as_object_mut().unwrap().remove("signing_secret");
    assert_eq!(read.expect(200), shown);

    // Changes, with and without the version.
    let patch = async |tag: Option<&str>, body: Value| {
        let ask = server.as_acme("PATCH", &path).json(&body);
        match tag {
            Some(tag) => ask.header("if-match", tag).await,
            None => ask.await,
        }
    };
    let tag = read.header("etag").unwrap().to_owned();
    let changed = patch(Some(&tag), json!({"description": "ours", "paused": false})).await;
    let now = changed.header("etag").unwrap().to_owned();
    let changed = changed.expect(200);
    assert_eq!((&changed["description"], &changed["status"]), (&json!("ours"), &json!("active")));
    assert_eq!(changed["policy"], body["policy"]);
    for stale in [json!({"description": "x"}), json!({"paused": true}), json!({})] {
        patch(Some(&tag), stale).await.expect_problem(412, "version_mismatch");
    }
    assert_eq!(patch(Some(&now), json!({})).await.header("etag"), Some(&*now), "nothing to change");
    let reset = patch(Some("*"), json!({"policy": null})).await.expect(200);
    assert_eq!(reset["policy"], json!({}));
    for bad in ["5", "W/\"5\"", "\"a\""] {
        let problem = patch(Some(bad), json!({})).await.expect_problem(422, "invalid_request");
        assert_eq!(problem["field"], "If-Match");
    }

    let act = async |what: &str| server.as_acme("POST", &format!("{path}/{what}")).await;
    assert_eq!(act("pause").await.expect(200)["status"], "paused");
    assert_eq!(act("resume").await.expect(200)["status"], "active");
    let tested = act("test").await.expect(200);
    assert_eq!(tested, json!({"outcome": "answered", "status": 200, "response": "thanks"}));
    let rotated = act("rotate-secret").await.expect(200);
    assert!(rotated["secret"].as_str().unwrap().starts_with("whsec_"));
    let own = json!({"secret": rotated["secret"], "overlap": "1h"});
    let rotate = server.as_acme("POST", &format!("{path}/rotate-secret")).json(&own);
    assert_eq!(rotate.await.expect(200), rotated);

    for _ in 0..4 {
        server.as_acme("POST", "/v1/subscriptions").json(&body).await.expect(201);
    }
    let all = walk(&server, "/v1/subscriptions", 2).await;
    assert_eq!(all.len(), 5);
    assert!(all.iter().all(|item| item.get("signing_secret").is_none()));
    server.as_acme("DELETE", &path).await.expect(204);
    server.as_acme("DELETE", &path).await.expect_problem(404, "not_found");
    server.as_acme("GET", &path).await.expect_problem(404, "not_found");
    let profiles = server.as_acme("GET", "/v1/profiles").await.expect(200);
    let names: Vec<_> = profiles["items"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert!(names.contains(&&json!("default")) && names.contains(&&json!("efgs")));
    assert_eq!(profiles["items"][0]["policy"]["schedule"]["max_attempts"], 5);
}

#[tokio::test]
async fn a_subscription_that_was_made_paused_gets_its_events_after_it_is_resumed() {
    let server = Server::start().await;
    let made = server.subscribe("https://ok.example/", json!({"paused": true})).await;
    let event = server.publish("1").await;
    let waiting = server.delivery_in(&event, "pending").await;
    assert_eq!(waiting["attempts_made"], 0);
    let id = made["id"].as_str().unwrap();
    let patch = server.as_acme("PATCH", &format!("/v1/subscriptions/{id}"));
    patch.json(json!({"paused": false})).await.expect(200);
    server.delivery_in(&event, "delivered").await;
}

#[tokio::test]
async fn deliveries_are_listed_retried_and_cancelled() {
    let server = Server::start().await;
    server.subscribe("https://dead.example/", json!({"paused": true})).await;
    let event = server.publish("1").await;
    let waiting = server.delivery_in(&event, "pending").await;
    let path = format!("/v1/deliveries/{}", waiting["id"].as_str().unwrap());
    let act = async |what: &str| server.as_acme("POST", &format!("{path}/{what}")).await;
    let again = act("retry").await.expect(200);
    assert_eq!((&again["state"], &again["id"]), (&json!("pending"), &waiting["id"]));
    let cancelled = act("cancel").await.expect(200);
    assert_eq!(
        (&cancelled["state"], &cancelled["reason"]),
        (&json!("cancelled"), &json!("operator"))
    );
    assert!(cancelled["ended_at"].is_string());
    act("cancel").await.expect_problem(409, "delivery_ended");
    let back = act("retry").await.expect(200);
    assert_eq!(back["state"], "pending");
    let one = server.as_acme("GET", &path).await.expect(200);
    assert_eq!(one["attempts"], json!([]));

    for payload in ["2", "3", "4", "5"] {
        server.publish(payload).await;
    }
    assert_eq!(walk(&server, "/v1/deliveries", 2).await.len(), 5);
    let states = async |state: &str| {
        let path = format!("/v1/deliveries?state={state}");
        let list = server.as_acme("GET", &path).await.expect(200);
        list["items"].as_array().unwrap().len()
    };
    assert_eq!((states("pending").await, states("delivered").await), (5, 0));
    let stats = server.as_acme("GET", "/v1/stats").await.expect(200);
    let wanted = json!({"events": 5, "pending": 5, "delivered": 0, "dead": 0, "cancelled": 0});
    assert_eq!(stats, wanted);
    server.as_acme("DELETE", &path).await.expect(204);
    server.as_acme("GET", &path).await.expect_problem(404, "not_found");
    server.as_acme("DELETE", &path).await.expect_problem(404, "not_found");
    act("retry").await.expect_problem(404, "not_found");
    let stats = server.as_acme("GET", "/v1/stats").await.expect(200);
    assert_eq!((&stats["events"], &stats["pending"]), (&json!(5), &json!(4)));
}

#[tokio::test]
async fn dead_letters_are_retried_and_redriven() {
    let server = Server::start().await;
    let policy = json!({"policy": {"schedule": {"max_attempts": 1}}});
    let made = server.subscribe("https://dead.example/", policy).await;
    let event = server.publish("1").await;
    let dead = server.delivery_in(&event, "dead").await;
    assert_eq!(dead["reason"], "exhausted");
    let path = format!("/v1/dead-letters/{}", dead["id"].as_str().unwrap());
    let letter = server.as_acme("GET", &path).await.expect(200);
    assert_eq!(letter["attempts"][0]["status"], 500);
    let list = format!("/v1/dead-letters?subscription={}", made["id"].as_str().unwrap());
    let list = server.as_acme("GET", &list).await.expect(200);
    assert_eq!(list["items"][0]["id"], dead["id"]);

    // The receiver is mended, and the letter goes through.
    let id = made["id"].as_str().unwrap();
    let mend = server.as_acme("PATCH", &format!("/v1/subscriptions/{id}"));
    mend.json(json!({"url": "https://ok.example/"})).await.expect(200);
    server.as_acme("POST", &format!("{path}/retry")).await.expect(200);
    let done = server.delivery_in(&event, "delivered").await;
    assert_eq!(done["attempts_made"], 2);
    server.as_acme("GET", &path).await.expect_problem(404, "not_found");
    let retry = server.as_acme("POST", &format!("{path}/retry")).await;
    retry.expect_problem(404, "not_found");

    let ask = server.as_acme("POST", "/v1/redrives").json(json!({"subscription": id}));
    let reply = ask.await;
    let redrive = reply.expect(201);
    assert_eq!(redrive["per_second"], 100);
    assert_eq!(redrive["filter"]["subscription"], id);
    assert!(redrive["filter"]["until"].is_string());
    let path = format!("/v1/redrives/{}", redrive["id"].as_str().unwrap());
    assert_eq!(reply.header("location"), Some(&*path));
    let cancelled = server.as_acme("POST", &format!("{path}/cancel")).await.expect(200);
    assert_ne!(cancelled["state"], "running");
    assert_eq!(server.as_acme("GET", &path).await.expect(200)["id"], redrive["id"]);
    for _ in 0..3 {
        server.as_acme("POST", "/v1/redrives").json(json!({})).await.expect(201);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(walk(&server, "/v1/redrives", 3).await.len(), 4);
}

#[tokio::test]
async fn tenants_and_keys_are_made_and_revoked() {
    let server = Server::start().await;
    let reply = server.as_operator("POST", "/v1/tenants").json(json!({"name": "new"})).await;
    let tenant = reply.expect(201);
    let path = format!("/v1/tenants/{}", tenant["id"].as_str().unwrap());
    assert_eq!(reply.header("location"), Some(&*path));
    assert_eq!(server.as_operator("GET", &path).await.expect(200), tenant);
    let again = server.as_operator("POST", "/v1/tenants").json(json!({"name": "new"})).await;
    again.expect_problem(409, "conflict");
    let mut names: Vec<String> = walk(&server, "/v1/tenants", 2)
        .await
        .iter()
        .map(|tenant| tenant["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["acme", "default", "new", "other", "system"]);

    let body = json!({"tenant": "new", "scopes": ["read", "read"], "description": "mine"});
    let made = server.as_operator("POST", "/v1/keys").json(&body).await.expect(201);
    assert_eq!(made["tenant"], tenant["id"]);
    assert_eq!(made["scopes"], json!(["read"]));
    let text = made["key"].as_str().unwrap().to_owned();
    let topics = async || server.ask("GET", "/v1/topics").key(&text).await;
    topics().await.expect(200);
    let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    let one = server.as_operator("GET", &path).await.expect(200);
    assert_eq!((&one["scopes"], one.get("key")), (&made["scopes"], None));
    server.as_operator("DELETE", &path).await.expect(204);
    topics().await.expect_problem(401, "unauthorized");
    let all = walk(&server, "/v1/keys", 3).await;
    let shown = all.iter().find(|key| key["id"] == made["id"]).unwrap();
    assert!(shown["revoked_at"].is_string());
    let everything = serde_json::to_string(&all).unwrap();
    assert!(!everything.contains("ph_") && !everything.contains("hash"));
    let operator = json!({"scopes": ["operator"], "expires_at": "2999-01-01T00:00:00Z"});
    let made = server.as_operator("POST", "/v1/keys").json(&operator).await.expect(201);
    let text = made["key"].as_str().unwrap();
    server.ask("GET", "/v1/keys").key(text).await.expect(200);
}

#[tokio::test]
async fn the_former_name_of_a_scope_is_refused_with_the_new_one() {
    let server = Server::start().await;
    let key = json!({"tenant": "acme", "scopes": ["read", "subscriptions"]});
    let caller = json!({"kind": "caller", "certificate": "", "scopes": ["read", "subscriptions"]});
    for (path, body) in [("/v1/keys", key), ("/v1/certificates", caller)] {
        let reply = server.as_operator("POST", path).json(&body).await;
        let problem = reply.expect_problem(422, "invalid_request");
        assert_eq!(problem["field"], "scopes[1]");
        assert_eq!(problem["detail"], "`subscriptions` is now `manage`");
    }
    let key = json!({"tenant": "acme", "scopes": ["manage"]});
    let made = server.as_operator("POST", "/v1/keys").json(&key).await.expect(201);
    assert_eq!(made["scopes"], json!(["manage"]));
}

#[tokio::test]
async fn profiles_are_made_changed_and_taken_back_at_run_time() {
    let server = Server::start().await;
    let put = async |name: &str, body: Value| {
        server.as_acme("PUT", &format!("/v1/profiles/{name}")).json(&body).await
    };
    let body = json!({"base": "default", "policy": {"schedule": {"max_attempts": 3}}});
    let made = put("patient", body).await.expect(200);
    assert_eq!(
        (&made["base"], &made["changes"]["schedule"]),
        (&json!("default"), &json!({"max_attempts": 3}))
    );
    assert_eq!(made["policy"]["schedule"]["max_attempts"], 3);
    let body = json!({"profile": "patient"});
    let subscription = server.subscribe("https://dead.example/", body).await;
    let changed = json!({"base": "default", "policy": {"schedule": {"max_attempts": 1}}});
    put("patient", changed).await.expect(200);
    let event = server.publish("1").await;
    let dead = server.delivery_in(&event, "dead").await;
    assert_eq!(dead["attempts_made"], 1, "the change counts for subscriptions made before");

    let unknown = put("own", json!({"policy": {}})).await.expect_problem(422, "unknown_profile");
    assert_eq!(unknown["field"], "profile");
    let wrong = json!({"policy": {"schedule": {"max_attempts": -1}}});
    put("default", wrong).await.expect_problem(422, "invalid_policy");
    put("default", json!({})).await.expect_problem(422, "invalid_request");
    let delete = async || server.as_acme("DELETE", "/v1/profiles/patient").await;
    delete().await.expect_problem(409, "in_use");
    let path = format!("/v1/subscriptions/{}", subscription["id"].as_str().unwrap());
    server.as_acme("PATCH", &path).json(json!({"profile": "default"})).await.expect(200);
    assert_eq!(delete().await.status, 204);
    server.as_acme("GET", "/v1/profiles/patient").await.expect_problem(404, "not_found");
    let list = server.as_acme("GET", "/v1/profiles").await.expect(200);
    assert!(list["items"].as_array().unwrap().iter().all(|profile| profile.get("base").is_none()));
}

#[tokio::test]
async fn subscriptions_are_found_by_name_and_remember_labels() {
    let server = Server::start().await;
    let body = json!({"url": "https://ok.example/", "name": "billing/eu", "labels": {"team": "a"}});
    let create = async |body: &Value| server.as_acme("POST", "/v1/subscriptions").json(body).await;
    let made = create(&body).await.expect(201);
    assert_eq!((&made["name"], &made["labels"]), (&body["name"], &body["labels"]));
    create(&body).await.expect_problem(409, "conflict");
    let find = async |query: &str| {
        let path = format!("/v1/subscriptions?name={query}");
        server.as_acme("GET", &path).await.expect(200)["items"].as_array().unwrap().len()
    };
    assert_eq!((find("billing%2Feu").await, find("other").await, find("%0A").await), (1, 0, 0));
    let path = format!("/v1/subscriptions/{}", made["id"].as_str().unwrap());
    let patch = async |body: Value| server.as_acme("PATCH", &path).json(&body).await;
    let changed = patch(json!({"name": null, "labels": {}})).await.expect(200);
    assert!(changed.get("name").is_none() && changed.get("labels").is_none());
    assert_eq!(find("billing%2Feu").await, 0);
    patch(json!({"labels": {"a b": "c"}})).await.expect_problem(422, "invalid_request");
    patch(json!({"labels": null})).await.expect_problem(422, "invalid_request");
    patch(json!({"name": "\n"})).await.expect_problem(422, "invalid_request");
    let topic = json!({"labels": {"link": "https://docs.example/"}});
    let topic = server.as_acme("PUT", "/v1/topics/linked").json(&topic).await.expect(200);
    assert_eq!(topic["labels"]["link"], "https://docs.example/");
}

#[tokio::test]
async fn subscriptions_and_tenants_are_found_by_name_wherever_by_id() {
    let server = Server::start().await;
    let made = server.subscribe("https://dead.example/", json!({"name": "the shop/ä"})).await;
    let id = made["id"].as_str().unwrap();
    let path = "/v1/subscriptions/the%20shop%2F%C3%A4";
    let get = async |path: &str| server.as_acme("GET", path).await.expect(200);
    assert_eq!(get(path).await["id"], id);
    let change = json!({"policy": {"schedule": {"max_attempts": 1}}});
    server.as_acme("PATCH", path).json(&change).await.expect(200);
    for verb in ["pause", "resume", "test", "rotate-secret"] {
        server.as_acme("POST", &format!("{path}/{verb}")).await.expect(200);
    }
    let event = server.publish("1").await;
    server.delivery_in(&event, "dead").await;
    let query = "subscription=the+shop%2F%C3%A4";
    for list in ["deliveries", "dead-letters"] {
        let list = get(&format!("/v1/{list}?{query}")).await;
        assert_eq!(list["items"][0]["subscription"], id);
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
    }
    let unknown = server.as_acme("GET", "/v1/deliveries?subscription=nobody").await;
    assert_eq!(unknown.expect_problem(422, "invalid_request")["field"], "subscription");
    let body = json!({"subscription": "the shop/ä"});
    let redrive = server.as_acme("POST", "/v1/redrives").json(&body).await.expect(201);
    assert_eq!(redrive["filter"]["subscription"], id);
    // Names belong to their tenant.
    let other = server.ask("GET", path).key(&server.keys.other).await;
    other.expect_problem(404, "not_found");
    let tenant = server.as_operator("GET", "/v1/tenants/acme").await.expect(200);
    assert_eq!(tenant["id"], server.acme.to_string());
    server.as_operator("GET", "/v1/tenants/nobody").await.expect_problem(404, "not_found");
    server.as_acme("DELETE", path).await.expect(204);
    server.as_acme("GET", path).await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn a_subscription_to_a_topic_that_does_not_exist_gets_a_warning() {
    let server = Server::start().await;
    let filter = json!({"any_of": [{"topics": ["orders"]}, {"topics": ["orders", "odrers"]}]});
    let made = server.subscribe("https://ok.example/", json!({"filter": filter})).await;
    let warnings = made["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{made}");
    assert_eq!(warnings[0]["code"], "unknown_topic");
    assert_eq!(warnings[0]["field"], "filter.any_of[1].topics[1]");
    assert!(warnings[0]["detail"].as_str().unwrap().contains("`odrers`"));
    let path = format!("/v1/subscriptions/{}", made["id"].as_str().unwrap());
    let shown = server.as_acme("GET", &path).await.expect(200);
    assert!(shown.get("warnings").is_none(), "only where it was said");
    let change = json!({"description": "still"});
    let changed = server.as_acme("PATCH", &path).json(&change).await.expect(200);
    assert_eq!(changed["warnings"].as_array().unwrap().len(), 1);
    server.as_acme("PUT", "/v1/topics/odrers").json(json!({})).await.expect(200);
    let changed = server.as_acme("PATCH", &path).json(&change).await.expect(200);
    assert!(changed.get("warnings").is_none());
}
