//! What one looks at when a delivery does not arrive: timelines, requests, the health of a subscription. The harness
//! compares every answer with its schema.

use std::time::Duration;

use posthorn_api::Reason;
use posthorn_domain::{FailureCode, WaitReason};
use posthorn_testkit::caller::Reply;
use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The steps of a timeline by their names, and the timeline.
async fn timeline(server: &Server, delivery: &str) -> (Vec<String>, Value) {
    let path = format!("/v1/deliveries/{delivery}/timeline");
    let told = server.as_acme("GET", &path).await.expect(200);
    assert_eq!(told["delivery"], delivery);
    let steps = told["steps"].as_array().unwrap();
    let times: Vec<&str> = steps.iter().map(|step| step["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    (steps.iter().map(|step| text(&step["step"])).collect(), told)
}

fn find<'a>(told: &'a Value, step: &str) -> &'a Value {
    told["steps"].as_array().unwrap().iter().find(|found| found["step"] == step).unwrap()
}

#[tokio::test]
async fn a_timeline_tells_what_happened_and_what_to_do() {
    let server = Server::start().await;
    let policy = json!({"policy": {"schedule": {"max_attempts": 1}},
        "filter": {"any_of": [{"types": ["a"]}, {"types": ["order.*"]}]}});
    server.subscribe("https://dead.example/", policy).await;
    let event = server.publish("1").await;
    let id = text(&server.delivery_in(&event, "dead").await["id"]);
    let (steps, told) = timeline(&server, &id).await;
    assert_eq!(steps[..2], ["accepted", "matched"]);
    assert_eq!(steps[steps.len() - 2..], ["attempt", "ended"]);
    assert_eq!(find(&told, "matched")["group"], 1);
    let attempt = find(&told, "attempt");
    assert_eq!((&attempt["number"], &attempt["status"]), (&json!(1), &json!(500)));
    assert_eq!((&attempt["trigger"], &attempt["response"]), (&json!("scheduled"), &json!("no")));
    let status = Reason::of_status(500).unwrap();
    assert_eq!(attempt["explain"]["code"], "5xx");
    assert_eq!(attempt["explain"]["meaning"], status.meaning);
    let ended = find(&told, "ended");
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("dead"), &json!("exhausted")));
    assert_eq!(ended["explain"]["code"], "exhausted");
    // Retried by hand, and paused meanwhile: it waits, and says for what.
    let subscription = text(&server.delivery_in(&event, "dead").await["subscription"]);
    let at = |verb: &str| format!("/v1/subscriptions/{subscription}/{verb}");
    server.as_acme("POST", &at("pause")).await.expect(200);
    server.as_acme("POST", &format!("/v1/deliveries/{id}/retry")).await.expect(200);
    let (steps, told) = timeline(&server, &id).await;
    assert!(steps.contains(&"retried".to_owned()), "{steps:?}");
    let waits = told["steps"].as_array().unwrap().iter().rfind(|step| step["step"] == "waited");
    let waits = waits.unwrap();
    assert_eq!((&waits["reason"], waits.get("detail")), (&json!("paused"), None));
    let meaning = Reason::of_waiting(WaitReason::Paused).meaning;
    assert_eq!(waits["explain"]["meaning"], meaning);
}

#[tokio::test]
async fn a_timeline_shows_tenants_no_more_than_a_delivery_does() {
    let server = Server::start().await;
    let policy = json!({"policy": {"schedule": {"max_attempts": 1}}});
    server.subscribe("https://unreachable.example/", policy).await;
    let event = server.publish("1").await;
    let id = text(&server.delivery_in(&event, "dead").await["id"]);
    let (_, told) = timeline(&server, &id).await;
    assert!(!told.to_string().contains("192.0.2.7"), "{told}");
    let attempt = find(&told, "attempt");
    assert_eq!((&attempt["failure"], attempt.get("timings_ms")), (&json!("connect_failed"), None));
    let failure = Reason::of_failure(FailureCode::ConnectFailed);
    assert_eq!(attempt["explain"]["remedy"], failure.remedy);
    let path = format!("/v1/deliveries/{id}/timeline");
    let ask = server.as_operator("GET", &path).header("posthorn-tenant", "acme");
    let told = ask.await.expect(200);
    let detail = &find(&told, "attempt")["detail"];
    assert!(detail.as_str().unwrap().contains("192.0.2.7"), "{detail}");
}

#[tokio::test]
async fn a_request_is_shown_without_its_secrets() {
    let server = Server::start().await;
    let policy = json!({
        "auth": [{"kind": "bearer", "secret": "token"},
                 {"kind": "secret_header", "secret": "other", "header": "X-Plain-Name"}],
        "request": {"method": "PUT", "headers": {"X-Type": "{event.type}"},
                    "query": {"from": "posthorn"}},
    });
    let more =
        json!({"policy": policy, "secrets": {"token": "hush-hush-1", "other": "hush-hush-2"}});
    server.subscribe("https://ok.example/in", more).await;
    let event = server.publish(r#"{"n":"ü"}"#).await;
    let id = text(&server.delivery_in(&event, "delivered").await["id"]);
    let path = format!("/v1/deliveries/{id}/request");
    let reply = server.as_acme("GET", &path).await;
    let shown = reply.expect(200);
    assert!(!shown.to_string().contains("hush-hush"), "{shown}");
    assert_eq!((&shown["as_of"], &shown["as_sent"]), (&json!("now"), &json!(false)));
    assert_eq!(
        (&shown["method"], &shown["url"]),
        (&json!("PUT"), &json!("https://ok.example/in?from=posthorn"))
    );
    assert_eq!((&shown["body"], &shown["body_bytes"]), (&json!(r#"{"n":"ü"}"#), &json!(10)));
    let headers = shown["headers"].as_array().unwrap();
    let value = |name: &str| {
        let found = headers.iter().find(|pair| pair[0] == name);
        found.map(|pair| text(&pair[1]))
    };
    assert_eq!(value("authorization").as_deref(), Some("…"));
    assert_eq!(value("x-plain-name").as_deref(), Some("…"));
    assert_eq!(value("x-type").as_deref(), Some("order.created"));
    // The same names as were sent, and nothing was sent for it.
    let sent = server.transport.sent_to("ok.example");
    assert_eq!(sent.len(), 1);
    let mut names: Vec<&str> = sent[0].headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    let shown: Vec<&str> = headers.iter().map(|pair| pair[0].as_str().unwrap()).collect();
    assert_eq!(shown, names);
}

#[tokio::test]
async fn what_a_failed_attempt_sent_is_kept_as_it_was() {
    let server = Server::start().await;
    let policy = |version: &str| {
        json!({"auth": [{"kind": "bearer", "secret": "token"}],
            "request": {"headers": {"X-Version": version}}, "schedule": {"max_attempts": 1}})
    };
    let more = json!({"name": "a", "policy": policy("one"), "secrets": {"token": "hush-hush-1"}});
    server.subscribe("https://dead.example/in", more).await;
    let event = server.publish(r#"{"n":1}"#).await;
    let id = text(&server.delivery_in(&event, "dead").await["id"]);
    let change = json!({"policy": policy("two")});
    server.as_acme("PATCH", "/v1/subscriptions/a").json(&change).await.expect(200);
    let value = |shown: &Value, name: &str| {
        let headers = shown["headers"].as_array().expect("headers").iter();
        headers.clone().find(|pair| pair[0] == name).map(|pair| text(&pair[1]))
    };
    let path = format!("/v1/deliveries/{id}/request");
    let sent = server.as_acme("GET", &path).await.expect(200);
    assert_eq!((&sent["as_sent"], &sent["attempt"]), (&json!(true), &json!(1)), "{sent}");
    assert_eq!(value(&sent, "x-version").as_deref(), Some("one"));
    assert_eq!(value(&sent, "authorization").as_deref(), Some("…"));
    assert_eq!((&sent["method"], &sent["body_bytes"]), (&json!("POST"), &json!(7)));
    assert_eq!(sent["url"], "https://dead.example/in");
    assert_eq!(sent.get("body"), None);

    let rebuilt = server.as_acme("GET", &format!("{path}?rebuild=true")).await.expect(200);
    assert_eq!((&rebuilt["as_sent"], &rebuilt["as_of"]), (&json!(false), &json!("now")));
    assert_eq!(value(&rebuilt, "x-version").as_deref(), Some("two"));
    let odd = server.as_acme("GET", &format!("{path}?rebuild=perhaps")).await;
    assert_eq!(odd.expect_problem(422, "invalid_request")["field"], "rebuild");

    let (_, told) = timeline(&server, &id).await;
    let request = &find(&told, "attempt")["request"];
    assert_eq!(request["as_sent"], true, "{told}");
    assert_eq!(value(request, "x-version").as_deref(), Some("one"));
    let all = server.as_acme("GET", "/v1/attempts").await.expect(200);
    assert_eq!(all["items"][0].get("request"), None, "lists stay short");
    assert!(!format!("{sent}{rebuilt}{told}").contains("hush-hush"));
    // It does not need the subscription any more.
    server.as_acme("DELETE", "/v1/subscriptions/a").await.expect(204);
    assert_eq!(server.as_acme("GET", &path).await.expect(200)["as_sent"], true);
}

#[tokio::test]
async fn a_request_that_cannot_be_built_says_why() {
    let server = Server::start().await;
    let policy = json!({"policy": {"request": {"headers": {"X-N": "{event.payload.n}"}},
        "schedule": {"max_attempts": 1}}});
    server.subscribe("https://ok.example/", policy).await;
    let event = server.publish("{}").await;
    let id = text(&server.delivery_in(&event, "dead").await["id"]);
    let path = format!("/v1/deliveries/{id}/request");
    let shown = server.as_acme("GET", &path).await.expect(200);
    assert_eq!(shown["failure"], "request_invalid");
    assert!(shown["detail"].as_str().unwrap().contains("X-N"), "{shown}");
    assert_eq!(shown["explain"]["code"], "request_invalid");
}

#[tokio::test]
async fn health_tells_how_a_subscription_does() {
    let server = Server::start().await;
    let policy = json!({"name": "billing", "policy": {"limits": {"concurrency": 3, "rate": 50.0},
        "schedule": {"max_attempts": 1}}});
    server.subscribe("https://dead.example/", policy).await;
    let event = server.publish("1").await;
    server.delivery_in(&event, "dead").await;
    // By its name; the node takes a moment to own it.
    let mut health = Value::Null;
    for _ in 0..500 {
        health = server.as_acme("GET", "/v1/subscriptions/billing/health").await.expect(200);
        if health["owner"] == true && health["last_hour"]["sampled"] == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(health["owner"], true, "{health}");
    assert_eq!(health["breaker"], json!({"state": "closed"}));
    assert_eq!(health["concurrency"], json!({"limit": 3, "effective": 3, "in_flight": 0}));
    assert_eq!(health["rate"]["limit"], 50.0);
    assert_eq!(health["last_hour"]["attempts"], 1);
    assert_eq!(health["last_hour"]["success_rate"], 0.0);
    assert_eq!((&health["pending"], &health["blocked_lanes_count"]), (&json!(0), &json!(0)));
    assert!(health["failing_since"].is_string(), "{health}");
    server.as_acme("POST", "/v1/subscriptions/billing/pause").await.expect(200);
    let health = server.as_acme("GET", "/v1/subscriptions/billing/health").await.expect(200);
    assert_eq!(health["waiting"]["reason"], "paused");
}

#[tokio::test]
async fn what_is_not_there_or_not_asked_well_is_refused() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({"name": "billing"})).await;
    let event = server.publish("1").await;
    let delivery = server.delivery_in(&event, "delivered").await;
    let id = text(&delivery["id"]);
    let nobody = "dlv_01hf7yat00000000000000000z";
    for verb in ["timeline", "request"] {
        for odd in [nobody, "nonsense", "%00", "sub_01hf7yat00000000000000000z"] {
            let reply: Reply = server.as_acme("GET", &format!("/v1/deliveries/{odd}/{verb}")).await;
            reply.expect_problem(404, "not_found");
        }
        let path = format!("/v1/deliveries/{id}/{verb}");
        let reply = server.as_acme("GET", &format!("{path}?verbose=1")).await;
        reply.expect_problem(422, "invalid_request");
        server.as_acme("POST", &path).await.expect_problem(405, "method_not_allowed");
    }
    let reply = server.as_acme("GET", "/v1/subscriptions/billing/health?limit=1").await;
    reply.expect_problem(422, "invalid_request");
    let reply = server.as_acme("GET", "/v1/subscriptions/nobody/health").await;
    reply.expect_problem(404, "not_found");
    // Without its subscription there is nothing to build a request from; the history stays.
    let subscription = text(&delivery["subscription"]);
    server.as_acme("DELETE", &format!("/v1/subscriptions/{subscription}")).await.expect(204);
    let reply = server.as_acme("GET", &format!("/v1/deliveries/{id}/request")).await;
    reply.expect_problem(404, "not_found");
    let (steps, told) = timeline(&server, &id).await;
    assert!(steps.contains(&"attempt".to_owned()), "{steps:?}");
    assert_eq!(find(&told, "matched").get("group"), None);
}
