//! The rules for every answer of the Svix API: break one, and one of its clients fails. Which test proves which rule is in
//! `docs/systems/svix.md`.

use posthorn_domain::Timestamp;
use posthorn_testkit::caller::{Reply, call};
use posthorn_testkit::program::Server;
use posthorn_testkit::receiver::Receiver;
use posthorn_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::svix::{ask, svix};

fn get(server: &Server, path: &str) -> Value {
    ask(server, "GET", &format!("/api/v1{path}"), None).expect(200)
}

fn post(server: &Server, path: &str, body: &Value) -> Reply {
    ask(server, "POST", &format!("/api/v1{path}"), Some(body))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// An application with an endpoint, and a message that was delivered to it: its id, and that of its attempt.
fn delivered(server: &Server, receiver: &Receiver) -> (String, String) {
    post(server, "/app", &json!({"name": "ACME", "uid": "acme"})).expect(201);
    let endpoint = json!({"url": receiver.url("/in"), "uid": "main"});
    post(server, "/app/acme/endpoint", &endpoint).expect(201);
    let message = json!({"eventType": "a.b", "payload": {"id": 7}, "eventId": "own"});
    let message = post(server, "/app/acme/msg", &message).expect(202);
    let attempt = eventually("an attempt", || {
        let list = get(server, "/app/acme/attempt/msg/own");
        list["data"].get(0).map(|attempt| text(attempt, "id").to_owned())
    });
    (text(&message, "id").to_owned(), attempt)
}

#[test]
fn a_server_that_cannot_says_so_in_an_object() {
    let home = svix();
    home.edit("{listen: '127.0.0.1:0'}", "{listen: '127.0.0.1:0', body_max: 1MiB}");
    let (home, server) = home.served();
    let is_said = |reply: Reply, status: u16, code: &str| {
        let said = reply.expect(status);
        assert_eq!(said["code"], code, "{said}");
        assert!(said["detail"].is_string(), "{said}");
    };
    let large = json!({"name": "x".repeat(2 << 20)});
    is_said(post(&server, "/app", &large), 413, "payload_too_large");
    let coded = server.call("POST", "/api/v1/app").header("content-encoding", "gzip").text("{}");
    assert!(coded.send().expect(422)["detail"][0]["msg"].is_string());
    post(&server, "/app", &json!({"name": "ACME", "uid": "acme"})).expect(201);
    let (data, aside) = (home.data(), home.path().join("aside"));
    std::fs::rename(&data, &aside).expect("moved");
    let message = json!({"eventType": "a", "payload": {}});
    is_said(post(&server, "/app/acme/msg", &message), 503, "unavailable");
    std::fs::rename(&aside, &data).expect("moved back");
    drop(server);
}

#[test]
fn whoever_asks_too_often_hears_it_in_an_object() {
    let home = svix();
    home.edit("disk_refuse_percent: 100}", "disk_refuse_percent: 100, key_requests_per_second: 1}");
    let (_home, server) = home.served();
    let refused = eventually("a refusal", || {
        Some(ask(&server, "GET", "/api/v1/app", None)).filter(|reply| reply.status == 429)
    });
    assert_eq!(refused.json()["code"], "rate_limited");
    assert!(refused.json()["detail"].is_string());
    server.stop();
}

#[test]
fn every_list_has_all_its_members_also_an_empty_one() {
    let (_home, server) = svix().served();
    let whole = |path: &str, items: usize| {
        let list = get(&server, path);
        assert_eq!(list["data"].as_array().map(Vec::len), Some(items), "{path}: {list}");
        assert!(list["done"].is_boolean(), "{path}: {list}");
        for name in ["iterator", "prevIterator"] {
            let own = list.get(name).unwrap_or_else(|| panic!("no {name} in {path}: {list}"));
            assert!(own.is_string() || own.is_null(), "{path}: {list}");
        }
    };
    for path in ["/app", "/event-type", "/background-task"] {
        whole(path, 0);
    }
    let (message, _) = delivered(&server, &Receiver::new(200));
    post(&server, "/event-type", &json!({"name": "a.b", "description": ""})).expect(201);
    post(&server, "/app", &json!({"name": "empty", "uid": "empty"})).expect(201);
    whole("/app", 2);
    whole("/event-type", 1);
    for path in ["endpoint", "msg"] {
        whole(&format!("/app/acme/{path}"), 1);
        whole(&format!("/app/empty/{path}"), 0);
    }
    for path in ["attempt/endpoint/main", "endpoint/main/msg", "attempt/msg/own"] {
        whole(&format!("/app/acme/{path}"), 1);
    }
    whole(&format!("/app/acme/msg/{message}/endpoint"), 1);
    server.stop();
}

#[test]
fn an_endpoint_has_the_members_of_old_and_new_clients() {
    let (_home, server) = svix().served();
    post(&server, "/event-type", &json!({"name": "a.b", "description": ""})).expect(201);
    post(&server, "/app", &json!({"name": "ACME", "uid": "acme"})).expect(201);
    let bare = json!({"url": "http://127.0.0.1:9/"});
    let bare = post(&server, "/app/acme/endpoint", &bare).expect(201);
    assert_eq!((&bare["metadata"], &bare["version"]), (&json!({}), &json!(1)), "{bare}");
    for name in ["eventTypes", "filterTypes", "throttleRate", "rateLimit", "channels"] {
        assert_eq!(bare.get(name), Some(&Value::Null), "{name}: {bare}");
    }
    // The newer name wins, and both come back.
    let both = json!({
        "url": "http://127.0.0.1:9/", "filterTypes": ["a.b"], "rateLimit": 5, "throttleRate": 7,
    });
    let both = post(&server, "/app/acme/endpoint", &both).expect(201);
    for (new, old, value) in
        [("eventTypes", "filterTypes", json!(["a.b"])), ("throttleRate", "rateLimit", json!(7))]
    {
        assert_eq!((&both[new], &both[old]), (&value, &value), "{both}");
    }
    server.stop();
}

#[test]
fn attempts_and_messages_are_whole_and_their_times_can_be_read() {
    let (_home, server) = svix().served();
    let (message, attempt) = delivered(&server, &Receiver::new(200));
    let attempt = get(&server, &format!("/app/acme/msg/{message}/attempt/{attempt}"));
    assert_eq!((&attempt["status"], text(&attempt, "statusText")), (&json!(0), "success"));
    assert!(attempt["responseDurationMs"].is_u64(), "{attempt}");
    assert_eq!(attempt["responseStatusCode"], 200);
    for (path, payload) in [
        (format!("/app/acme/msg/{message}"), json!({"id": 7})),
        (format!("/app/acme/msg/{message}?with_content=false"), json!({})),
    ] {
        let shown = get(&server, &path);
        assert_eq!(shown["payload"], payload, "{path}");
        text(&shown, "timestamp").parse::<Timestamp>().expect("a time with a zone");
    }
    assert_eq!(get(&server, "/app/acme/msg?with_content=false")["data"][0]["payload"], json!({}));
    let app = get(&server, "/app/acme");
    for (thing, name) in [(&attempt, "timestamp"), (&app, "createdAt"), (&app, "updatedAt")] {
        let at = text(thing, name);
        at.parse::<Timestamp>().unwrap_or_else(|e| panic!("{at}: {e}"));
        assert!(at.contains('T') && at.ends_with('Z'), "{at}");
    }
    // What is no object cannot be a payload.
    for payload in [json!([1]), json!("text"), json!(null)] {
        let body = json!({"eventType": "a", "payload": payload});
        post(&server, "/app/acme/msg", &body).expect(422);
    }
    server.stop();
}

#[test]
fn states_are_numbers_that_clients_know() {
    let (_home, server) = svix().served();
    let receiver = Receiver::new(500);
    let (message, _) = delivered(&server, &receiver);
    let known = |path: &str| {
        let list = get(&server, path);
        for one in list["data"].as_array().expect("data") {
            let number = one["status"].as_u64().expect("a number");
            let words = ["success", "pending", "fail", "sending", "canceled"];
            assert_eq!(words.get(number as usize), Some(&text(one, "statusText")), "{one}");
        }
        list["data"][0]["status"].clone()
    };
    assert_eq!(known("/app/acme/attempt/endpoint/main"), 2);
    assert_eq!(known("/app/acme/endpoint/main/msg"), 3, "another attempt follows");
    known(&format!("/app/acme/msg/{message}/endpoint"));
    // What people cancel is neither.
    let tenant = server.ask("tenants list --external-id acme")["items"][0]["id"].clone();
    let tenant = tenant.as_str().expect("an id");
    let delivery =
        server.ask(&["deliveries", "list", "--tenant", tenant])["items"][0]["id"].clone();
    let delivery = delivery.as_str().expect("an id");
    server.ask(&["deliveries", "cancel", delivery, "--tenant", tenant]);
    assert_eq!(known("/app/acme/endpoint/main/msg"), 4);
    server.stop();
}

#[test]
fn a_rotation_answers_with_the_new_key_and_a_resend_with_an_object() {
    let (_home, server) = svix().served();
    let (message, _) = delivered(&server, &Receiver::new(200));
    let key = |value: &Value| text(value, "key").to_owned();
    let old = key(&get(&server, "/app/acme/endpoint/main/secret"));
    let rotated = post(&server, "/app/acme/endpoint/main/secret/rotate", &json!({})).expect(200);
    assert_ne!(key(&rotated), old);
    assert_eq!(key(&rotated), key(&get(&server, "/app/acme/endpoint/main/secret")));
    let path = format!("/app/acme/msg/{message}/endpoint/main/resend");
    assert_eq!(post(&server, &path, &json!({})).expect(202), json!({}));
    server.stop();
}

#[test]
fn what_removes_or_sets_something_answers_nothing() {
    let (_home, server) = svix().served();
    let (message, attempt) = delivered(&server, &Receiver::new(200));
    post(&server, "/event-type", &json!({"name": "a.b", "description": ""})).expect(201);
    post(&server, "/event-type", &json!({"name": "c.d", "description": ""})).expect(201);
    let link = post(&server, "/auth/app-portal-access/acme", &json!({})).expect(200);
    let headers = json!({"headers": {"X-Team": "blue"}});
    for (method, path, body) in [
        ("PUT", "/app/acme/endpoint/main/headers", Some(&headers)),
        ("PATCH", "/app/acme/endpoint/main/headers", Some(&headers)),
        ("DELETE", &format!("/app/acme/msg/{message}/attempt/{attempt}/content"), None),
        ("DELETE", &format!("/app/acme/msg/{message}/content"), None),
        ("DELETE", "/event-type/a.b", None),
        ("DELETE", "/event-type/c.d?expunge=true", None),
        ("DELETE", "/app/acme/endpoint/main", None),
        ("DELETE", "/app/acme", None),
    ] {
        let reply = ask(&server, method, &format!("/api/v1{path}"), body).with(204);
        assert_eq!(reply.body, "", "{method} {path}");
    }
    assert_eq!(get(&server, "/event-type/a.b")["archived"], true);
    ask(&server, "GET", "/api/v1/event-type/c.d", None).expect(404);
    let logout = call(&server.url, "POST", "/api/v1/auth/logout").key(text(&link, "token"));
    // The application is gone, and its sessions with it.
    logout.send().expect(401);
    server.stop();
}

#[test]
fn an_old_client_gets_its_portal_link_and_can_leave() {
    let (_home, server) = svix().served();
    post(&server, "/app", &json!({"name": "ACME", "uid": "acme"})).expect(201);
    for body in ["null", "{}"] {
        let old = server.call("POST", "/api/v1/auth/dashboard-access/acme").text(body).send();
        let old = old.expect(200);
        assert!(text(&old, "url").contains("/portal#"), "{old}");
        let with = |method: &str, path: &str| {
            call(&server.url, method, path).key(text(&old, "token")).send()
        };
        with("GET", "/api/v1/app/acme").expect(200);
        assert_eq!(with("POST", "/api/v1/auth/logout").with(204).body, "");
        with("GET", "/api/v1/app/acme").expect(401);
    }
    server.stop();
}

#[test]
fn health_needs_no_token() {
    let (_home, server) = svix().served();
    let health = call(&server.url, "GET", "/api/v1/health").send().expect(200);
    assert_eq!(health["database"]["status"], "ok");
    assert_eq!(call(&server.url, "HEAD", "/api/v1/health").send().with(200).body, "");
    assert_eq!(call(&server.url, "GET", "/api/v1/health/ping").send().with(204).body, "");
    server.stop();
}

#[test]
fn pages_of_customers_may_call_from_anywhere() {
    let (_home, server) = svix().served();
    let asks = call(&server.url, "OPTIONS", "/api/v1/app/acme/endpoint")
        .header("origin", "https://customer.example")
        .header("access-control-request-method", "PATCH")
        .header("access-control-request-headers", "authorization,svix-req-id")
        .send()
        .with(204);
    let asks = asks.has(&[
        ("access-control-allow-origin", "*"),
        ("access-control-allow-headers", "authorization,svix-req-id"),
        ("access-control-max-age", "600"),
    ]);
    let methods = asks.header("access-control-allow-methods").expect("methods");
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        assert!(methods.contains(method), "{methods}");
    }
    // Refusals can be read by the page, too.
    let refused = call(&server.url, "GET", "/api/v1/app").header("origin", "https://c.example");
    refused.send().with(401).has(&[("access-control-allow-origin", "*")]);
    server.stop();
}

/// A client sends an idempotency key with every request. It is none of the message's names.
#[test]
fn a_message_that_was_given_no_name_has_none() {
    let (_home, server) = svix().served();
    post(&server, "/app", &json!({"name": "ACME", "uid": "acme"})).expect(201);
    let message = json!({"eventType": "a.b", "payload": {}}).to_string();
    let sent = server.call("POST", "/api/v1/app/acme/msg").header("idempotency-key", "once");
    let made = sent.text(&message).send().expect(202);
    let shown = get(&server, &format!("/app/acme/msg/{}", text(&made, "id")));
    for one in [&made, &shown, &get(&server, "/app/acme/msg")["data"][0]] {
        assert_eq!(one["eventId"], Value::Null, "{one}");
    }
    server.stop();
}
