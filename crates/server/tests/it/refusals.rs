//! What is refused, and what a refusal tells: the field, and nothing that a stranger should not know.

use posthorn_testkit::caller::Reply;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::name_server::NameServer;
use crate::postgres::database;

fn call(server: &Server, method: &str, path: &str, body: &str) -> Reply {
    server.call(method, path).text(body).send()
}

#[test]
fn refusals_name_the_field_and_never_a_secret() {
    let (_home, server) = Home::new().served();
    call(&server, "PUT", "/v1/topics/orders", "{}").expect(200);
    let made = json!({"url": "http://127.0.0.1:9/", "secrets": {}});
    let made = call(&server, "POST", "/v1/subscriptions", &made.to_string()).expect(201);
    let path = format!("/v1/subscriptions/{}", made["id"].as_str().expect("an id"));

    // A secret in the wrong place, or of the wrong type, is not read out again.
    let url = r#""url":"http://127.0.0.1:9/""#;
    for (method, path, body, field) in [
        ("POST", "/v1/subscriptions", format!(r#"{{{url},"secrets":"whsec_XYZ"}}"#), "secrets"),
        ("PATCH", &path, r#"{"secrets":"whsec_XYZ"}"#.to_owned(), "secrets"),
        ("PATCH", &path, r#"{"secrets":["whsec_XYZ"]}"#.to_owned(), "secrets"),
        ("PATCH", &path, r#"{"secrets":{"token":["whsec_XYZ"]}}"#.to_owned(), "secrets.token"),
        ("PATCH", &path, r#"{"destination":"whsec_XYZ"}"#.to_owned(), "destination"),
        ("PATCH", &path, r#"{"policy":{"auth":"whsec_XYZ"}}"#.to_owned(), "policy"),
        (
            "PATCH",
            &path,
            r#"{"policy":{"auth":[{"kind":"bearer","secret":{"a":"whsec_XYZ"}}]}}"#.to_owned(),
            "policy",
        ),
        (
            "POST",
            &format!("{path}/rotate-secret"),
            r#"{"secret":["whsec_XYZ"]}"#.to_owned(),
            "secret",
        ),
    ] {
        let reply = call(&server, method, path, &body).with(422);
        assert!(!reply.body.contains("XYZ"), "{body}: {}", reply.body);
        let named = reply.json()["field"].as_str().unwrap_or_default().to_owned();
        assert!(named.starts_with(field), "{body}: {}", reply.body);
    }

    // An empty condition is JSON, but no condition.
    let filter =
        |payload: &str| format!(r#"{{{url},"filter":{{"any_of":[{{"payload":{payload}}}]}}}}"#);
    for payload in ["{}", r#"{"all":[{}]}"#] {
        let reply = call(&server, "POST", "/v1/subscriptions", &filter(payload)).expect(422);
        let field = reply["field"].as_str().unwrap_or_default();
        assert!(field.starts_with("filter.any_of[0].payload"), "{reply}");
    }
    let broken = call(&server, "POST", "/v1/subscriptions", "{\"url\":}").expect(400);
    assert_eq!(broken["code"], "invalid_json");

    // Times are taken to the end of the calendar.
    for (given, shown) in [
        ("9999-01-01T00:00:00Z", "9999-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"),
    ] {
        let body = json!({"tenant": "default", "scopes": ["read"], "expires_at": given});
        let made = call(&server, "POST", "/v1/keys", &body.to_string()).expect(201);
        assert_eq!(made["expires_at"], shown);
        let key = made["key"].as_str().expect("a key");
        server.open("GET", "/v1/events").key(key).send().expect(200);
    }
    server.stop();
}

fn no_text_has_the_character_zero(home: &mut Home) {
    let server = home.serve();
    call(&server, "PUT", "/v1/topics/orders", "{}").expect(200);
    let url = r#""url":"http://127.0.0.1:9/""#;
    let event = r#""topic":"orders","type":"a""#;
    for (method, path, body, field) in [
        ("PUT", "/v1/topics/orders", r#"{"description":"a\u0000b"}"#.to_owned(), "description"),
        ("PUT", "/v1/topics/orders", r#"{"attributes":["a\u0000"]}"#.to_owned(), "attributes[0]"),
        ("PUT", "/v1/topics/orders", r#"{"labels":{"a":"\u0000"}}"#.to_owned(), "labels.a"),
        ("POST", "/v1/tenants", r#"{"name":"a\u0000b"}"#.to_owned(), "name"),
        (
            "POST",
            "/v1/keys",
            r#"{"scopes":["operator"],"description":"\u0000"}"#.to_owned(),
            "description",
        ),
        ("POST", "/v1/subscriptions", format!(r#"{{{url},"name":"a\u0000"}}"#), "name"),
        (
            "POST",
            "/v1/subscriptions",
            format!(r#"{{{url},"description":"\u0000"}}"#),
            "description",
        ),
        (
            "POST",
            "/v1/subscriptions",
            format!(r#"{{{url},"labels":{{"x":"\u0000"}}}}"#),
            "labels.x",
        ),
        (
            "POST",
            "/v1/subscriptions",
            format!(r#"{{{url},"filter":{{"any_of":[{{"attributes":{{"a":"x\u0000"}}}}]}}}}"#),
            "filter.any_of[0].attributes.a",
        ),
        (
            "POST",
            "/v1/subscriptions",
            format!(r#"{{{url},"policy":{{"log":{{"delivered":"\u0000"}}}}}}"#),
            "policy",
        ),
        (
            "POST",
            "/v1/subscriptions",
            format!(r#"{{{url},"secrets":{{"a":"\u0000"}}}}"#),
            "secrets.a",
        ),
        (
            "PUT",
            "/v1/profiles/mine",
            r#"{"base":"default","policy":{"values":{"x":"\u0000"}}}"#.to_owned(),
            "policy.values.x",
        ),
        ("POST", "/v1/events", format!(r#"{{{event},"payload":1,"key":"\u0000"}}"#), "key"),
        (
            "POST",
            "/v1/events",
            format!(r#"{{{event},"payload":1,"attributes":{{"a":"\u0000"}}}}"#),
            "attributes",
        ),
        (
            "POST",
            "/v1/events",
            format!(r#"{{{event},"payload":1,"content_type":"a/\u0000"}}"#),
            "content_type",
        ),
        ("POST", "/v1/events", r#"{"topic":"o\u0000","type":"a","payload":1}"#.to_owned(), "topic"),
        ("GET", "/v1/subscriptions?name=%00", String::new(), "name"),
    ] {
        let reply = call(&server, method, path, &body).expect(422);
        let named = reply["field"].as_str().unwrap_or_default();
        assert!(named.starts_with(field), "{method} {path} {body}: {reply}");
    }
    // A payload is its publisher's, byte for byte.
    let body = format!(r#"{{{event},"payload":{{"x":"a\u0000b"}}}}"#);
    let sent = call(&server, "POST", "/v1/events", &body).expect(202);
    let id = sent["id"].as_str().expect("an id");
    let kept = call(&server, "GET", &format!("/v1/events/{id}"), "").with(200);
    assert!(kept.body.contains("u0000"), "{}", kept.body);
    server.stop();
}

#[test]
fn no_text_has_the_character_zero_on_sqlite() {
    no_text_has_the_character_zero(&mut Home::new());
}

#[test]
fn no_text_has_the_character_zero_on_postgresql() {
    let database = database();
    let mut home = Home::new();
    home.store_in(&database.url());
    no_text_has_the_character_zero(&mut home);
}

/// One delivery of an event to a subscription, once its attempt has been made, as a key sees it.
#[track_caller]
fn attempt(server: &Server, key: &str, event: &Value, of: &str) -> Value {
    let sent = call(server, "POST", "/v1/events", &event.to_string()).expect(202);
    let id = sent["id"].as_str().expect("an id");
    eventually("an attempt", || {
        let path = format!("/v1/deliveries?event={id}&subscription={of}");
        let list = server.open("GET", &path).key(key).send().expect(200);
        let delivery = list["items"][0]["id"].as_str()?.to_owned();
        let path = format!("/v1/deliveries/{delivery}");
        let delivery = server.open("GET", &path).key(key).send().expect(200);
        Some(delivery["attempts"][0].clone()).filter(|attempt| attempt.is_object())
    })
}

#[test]
fn a_value_cannot_climb_out_of_its_path() {
    let (_home, server) = Home::new().served();
    let (listener, address) = server.listen("--json");
    call(&server, "PUT", "/v1/topics/orders", "{}").expect(200);
    let path = json!({"schedule": {"max_attempts": 1}, "auth": [],
        "request": {"path": "/accounts/{event.attributes.id}/hook"}});
    let body = json!({"url": format!("{address}/base"), "policy": path}).to_string();
    let made = call(&server, "POST", "/v1/subscriptions", &body).expect(201);
    let of = made["id"].as_str().expect("an id");
    let event =
        |id: &str| json!({"topic": "orders", "type": "a", "payload": {}, "attributes": {"id": id}});
    for bad in ["..", ".", ""] {
        let attempt = attempt(&server, &server.key, &event(bad), of);
        assert_eq!(attempt["failure"], "request_invalid", "{bad:?}: {attempt}");
    }
    for good in ["7", "a/../b", "..x", "%2e%2e"] {
        let attempt = attempt(&server, &server.key, &event(good), of);
        assert_eq!(attempt["status"], 200, "{good:?}: {attempt}");
    }
    // A gate is asked by the same rule.
    let gate = json!({"gate": {"url": format!("{address}/gate/{{event.attributes.id}}"), "timeout": "1s",
        "status": ["2xx"], "on_closed": "dead_letter"}, "schedule": {"max_attempts": 1}, "auth": []});
    let body = json!({"url": format!("{address}/gated"), "policy": gate}).to_string();
    let made = call(&server, "POST", "/v1/subscriptions", &body).expect(201);
    let of = made["id"].as_str().expect("an id");
    let refused = attempt(&server, &server.key, &event(".."), of);
    assert_eq!(refused["failure"], "request_invalid", "{refused}");
    assert!(!listener.stdout().contains("/gate/"), "{}", listener.stdout());
    drop(listener);
    server.stop();
}

#[test]
fn tenants_cannot_tell_an_inner_name_from_none() {
    let names = NameServer::start();
    names.set("inner.example.com", &[[10, 1, 2, 3]]);
    let mut home = Home::new();
    let egress = format!("egress: {{allow: [127.0.0.0/8], resolvers: ['{}']}}", names.address);
    home.edit("egress: {allow: [127.0.0.0/8]}", &egress);
    // With the admin list of webhooks, for every tenant's own.
    home.configure(
        "callbacks: {payment_success_url: 'http://127.0.0.1:9/', \
                     hmac_secret: a secret of more than thirty-two characters}\n",
    );
    let server = home.serve();
    call(&server, "PUT", "/v1/topics/orders", "{}").expect(200);
    let scopes = json!({"tenant": "default", "scopes": ["publish", "manage", "read"]});
    let made = call(&server, "POST", "/v1/keys", &scopes.to_string()).expect(201);
    let tenant = made["key"].as_str().expect("a key");
    let event = json!({"topic": "orders", "type": "a", "payload": {}});
    let mut seen: Vec<(Value, Value, Value, Value, Value)> = Vec::new();
    let mut true_codes = Vec::new();
    for host in ["inner.example.com", "nothing.example.com"] {
        let url = format!("http://{host}/");
        let body = json!({"url": url, "policy": {"auth": [], "schedule": {"max_attempts": 1}}});
        let made =
            server.open("POST", "/v1/subscriptions").key(tenant).text(&body.to_string()).send();
        let of = made.expect(201)["id"].as_str().expect("an id").to_owned();
        let mut attempt_seen = attempt(&server, tenant, &event, &of);
        true_codes.push(attempt(&server, &server.key, &event, &of)["failure"].clone());
        for time in ["started_at", "took_ms"] {
            attempt_seen[time] = Value::Null;
        }
        let listed = eventually("both in the admin list", || {
            let list = ["", "/dlq"].map(|list| {
                let path = format!("/admin/webhooks{list}");
                server.open("GET", &path).key(tenant).send().expect(200)["webhooks"].take()
            });
            let of_host = |list: &Value| -> Vec<Value> {
                let all = list.as_array().expect("a list").iter();
                let mine = all.filter(|webhook| webhook["url"] == url);
                mine.map(|found| json!([found["lastError"], found["finalError"]])).collect()
            };
            let list = list.each_ref().map(of_host);
            (list.iter().all(|list| list.len() == 2)).then(|| json!(list))
        });
        let test = format!("/v1/subscriptions/{of}/test");
        let tested = server.open("POST", &test).key(tenant).text("{}").send().expect(200);
        // Asked when it is written down.
        let strict = json!({"url": url, "policy": {"auth": [], "url": {"resolve": true}}});
        let strict =
            server.open("POST", "/v1/subscriptions").key(tenant).text(&strict.to_string()).send();
        // And of a token server.
        let auth = json!([{"kind": "oauth2", "token_url": format!("https://{host}/token"),
            "client_id": "c", "secret": "s"}]);
        let body = json!({"url": "http://127.0.0.1:9/", "policy": {"auth": auth},
            "secrets": {"s": "x"}});
        let made =
            server.open("POST", "/v1/subscriptions").key(tenant).text(&body.to_string()).send();
        let of = made.expect(201)["id"].as_str().expect("an id").to_owned();
        let test = format!("/v1/subscriptions/{of}/test");
        let token = server.open("POST", &test).key(tenant).text("{}").send().expect(200);
        seen.push((attempt_seen, listed, tested, strict.expect(422), token));
    }
    assert_eq!(seen[0], seen[1], "one answer for both");
    assert!(seen[0].1.to_string().contains("no answer: dns_failed"), "{}", seen[0].1);
    assert_eq!(true_codes, ["address_not_allowed", "dns_failed"], "operators see which");
    server.stop();
}

#[test]
fn a_proxy_of_the_operator_is_no_receiver_although_its_network_is_open() {
    let names = NameServer::start();
    names.set("proxy.example.com", &[[127, 0, 0, 1]]);
    let mut home = Home::new();
    let open = format!(
        "egress: {{allow: [127.0.0.0/8], ports: [3901, 3902, 3903], resolvers: ['{}'], proxies: \
         {{by_address: {{url: 'http://127.0.0.1:3901'}}, by_name: {{url: \
         'http://proxy.example.com:3902', mode: forward}}}}}}",
        names.address
    );
    home.edit("egress: {allow: [127.0.0.0/8]}", &open);
    let server = home.serve();
    let add = |url: &str| {
        let body = json!({"url": url}).to_string();
        call(&server, "POST", "/v1/subscriptions", &body)
    };
    for url in [
        "http://127.0.0.1:3901/",
        // The same place, in other words.
        "http://127.0.0.2:3901/",
        "http://proxy.example.com:3902/",
        "http://127.0.0.1:3902/",
    ] {
        let refused = add(url).expect(422);
        assert_eq!(refused["code"], "url_not_allowed", "{url}: {refused}");
    }
    for url in ["http://127.0.0.1:3903/", "http://proxy.example.com:3903/"] {
        add(url).expect(201);
    }
    server.stop();
    // What needs no lookup is known before a start.
    for (url, allowed) in [
        ("http://127.0.0.1:3901/", false),
        ("http://proxy.example.com:3902/", false),
        ("http://127.0.0.1:3903/", true),
    ] {
        home.run(&["check", "url", "--", url]).exits(i32::from(!allowed));
    }
}
