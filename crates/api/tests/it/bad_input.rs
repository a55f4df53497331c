//! What must be refused, with which code, and which field is named.

use posthorn_testkit::caller::Call;
use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

struct Case<'a> {
    method: &'a str,
    path: &'a str,
    body: String,
    status: u16,
    code: &'a str,
    field: Option<&'a str>,
}

fn case<'a>(
    (method, path): (&'a str, &'a str),
    body: impl ToString,
    (status, code): (u16, &'a str),
    field: impl Into<Option<&'a str>>,
) -> Case<'a> {
    Case { method, path, body: body.to_string(), status, code, field: field.into() }
}

const EVENTS: (&str, &str) = ("POST", "/v1/events");
const BATCH: (&str, &str) = ("POST", "/v1/events/batch");
const SUBSCRIPTIONS: (&str, &str) = ("POST", "/v1/subscriptions");
const KEYS: (&str, &str) = ("POST", "/v1/keys");
const REDRIVES: (&str, &str) = ("POST", "/v1/redrives");
const JSON: (u16, &str) = (400, "invalid_json");
const REQUEST: (u16, &str) = (422, "invalid_request");
const POLICY: (u16, &str) = (422, "invalid_policy");

async fn check(server: &Server, cases: Vec<Case<'_>>) {
    for case in cases {
        let ask = server.as_operator(case.method, case.path).header("posthorn-tenant", "acme");
        let reply = ask.text(&case.body).await;
        let shown: String = case.body.chars().take(200).collect();
        assert_eq!(reply.status, case.status, "{} {shown}: {:?}", case.path, reply.body);
        let problem = reply.expect_problem(case.status, case.code);
        assert_eq!(problem["field"].as_str(), case.field, "{shown}: {problem}");
    }
}

#[tokio::test]
async fn bad_events_are_refused() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let event = |field: &str, value: Value| {
        let mut event = json!({"topic": "orders", "type": "a", "payload": 1});
        event[field] = value;
        event
    };
    let raw = |text: &str| format!(r#"{{"topic":"orders","type":"a",{text}}}"#);
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let many: serde_json::Map<String, Value> =
        (0..65).map(|n| (n.to_string(), json!("x"))).collect();
    check(
        &server,
        vec![
            case(EVENTS, "", JSON, None),
            case(EVENTS, "{", JSON, None),
            case(EVENTS, "nonsense", JSON, None),
            case(EVENTS, raw(r#""payload":01"#), JSON, None),
            case(EVENTS, raw(r#""payload":[1,]"#), JSON, None),
            case(EVENTS, raw(r#""payload":NaN"#), JSON, None),
            case(EVENTS, raw(r#""payload":1} {"#), JSON, None),
            case(EVENTS, raw(r#""payload":1,"payload":2"#), JSON, None),
            case(EVENTS, raw(r#""payload":1,"attributes":{"a":"1","a":"2"}"#), JSON, None),
            case(EVENTS, raw(&format!(r#""payload":{}"#, nested(65))), JSON, "payload"),
            case(EVENTS, raw(&format!(r#""payload":{}"#, "[".repeat(100_000))), JSON, None),
            case(EVENTS, "[]", REQUEST, None),
            case(EVENTS, r#"["orders","a",1,{},null,null,null]"#, REQUEST, None),
            case(EVENTS, "7", REQUEST, None),
            case(EVENTS, r#"{"topic":"orders","type":"a"}"#, REQUEST, "payload"),
            case(EVENTS, r#"{"topic":"orders","payload":1}"#, REQUEST, "type"),
            case(EVENTS, r#"{"type":"a","payload":1}"#, REQUEST, "topic"),
            case(EVENTS, event("unknown", json!(1)), REQUEST, "unknown"),
            case(EVENTS, event("idempotency_key", json!("k")), REQUEST, "idempotency_key"),
            case(EVENTS, event("topic", json!(7)), REQUEST, "topic"),
            case(EVENTS, event("topic", json!("a b")), REQUEST, "topic"),
            case(EVENTS, event("topic", json!("")), REQUEST, "topic"),
            case(EVENTS, event("type", json!("x".repeat(129))), REQUEST, "type"),
            case(EVENTS, event("type", json!("a\nb")), REQUEST, "type"),
            case(EVENTS, event("type", json!("ä")), REQUEST, "type"),
            case(EVENTS, event("key", json!("")), REQUEST, "key"),
            case(EVENTS, event("key", json!("a\r\nb")), REQUEST, "key"),
            case(EVENTS, event("key", json!(7)), REQUEST, "key"),
            case(EVENTS, event("attributes", json!([])), REQUEST, "attributes"),
            case(EVENTS, event("attributes", json!({"a": 1})), REQUEST, "attributes.a"),
            case(EVENTS, r#"{"topic":7"#, JSON, None),
            case(EVENTS, event("attributes", json!({"": "x"})), REQUEST, "attributes"),
            case(EVENTS, event("attributes", json!(many)), REQUEST, "attributes"),
            case(EVENTS, event("content_type", json!("a\r\nb: c")), REQUEST, "content_type"),
            case(EVENTS, event("content_type", json!("json")), REQUEST, "content_type"),
            case(EVENTS, event("deliver_at", json!("soon")), REQUEST, "deliver_at"),
            case(EVENTS, event("deliver_at", json!("2027-01-31")), REQUEST, "deliver_at"),
            case(EVENTS, event("deliver_at", json!("2027-01-31T08:00:00")), REQUEST, "deliver_at"),
            case(EVENTS, event("deliver_at", json!(1_800_000_000)), REQUEST, "deliver_at"),
            case(EVENTS, event("deliver_at", json!("9999-12-31T23:59:59Z")), REQUEST, "deliver_at"),
            case(EVENTS, event("retention", json!("")), REQUEST, "retention"),
            case(EVENTS, event("retention", json!("-1h")), REQUEST, "retention"),
            case(EVENTS, event("retention", json!("59s")), REQUEST, "retention"),
            case(EVENTS, event("retention", json!("9999d")), REQUEST, "retention"),
            case(EVENTS, event("retention", json!(3600)), REQUEST, "retention"),
            case(EVENTS, event("topic", json!("nowhere")), (422, "unknown_topic"), "topic"),
            case(
                EVENTS,
                event("payload", json!("x".repeat(256 * 1024))),
                (413, "payload_too_large"),
                "payload",
            ),
            case(
                EVENTS,
                event("payload", json!("x".repeat(1 << 20))),
                (413, "payload_too_large"),
                None,
            ),
            case(BATCH, "{}", REQUEST, "events"),
            case(BATCH, "[[]]", REQUEST, None),
            case(BATCH, r#"{"events":{}}"#, REQUEST, "events"),
            case(BATCH, r#"{"events":[],"x":1}"#, REQUEST, "x"),
            case(BATCH, r#"{"events":[{]}"#, JSON, None),
            case(BATCH, format!(r#"{{"events":[{}1]}}"#, "1,".repeat(1_000)), REQUEST, "events"),
            case(BATCH, " ".repeat((8 << 20) + 1), (413, "payload_too_large"), None),
        ],
    )
    .await;
    let deep = raw(&format!(r#""payload":{}"#, nested(64)));
    server.as_acme("POST", "/v1/events").text(&deep).await.expect(202);
    let stats = server.as_acme("GET", "/v1/stats").await.expect(200);
    assert_eq!(stats["events"], 1, "nothing of what was refused was stored");
}

#[tokio::test]
async fn bad_bodies_and_headers_are_refused() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let body = br#"{"topic":"orders","type":"a","payload":1}"#;
    let ask = || server.as_acme("POST", "/v1/events").raw(body);
    let json_ask = || ask().header("content-type", "application/json");
    for good in ["application/json", "Application/JSON; charset=UTF-8", "application/json;x=y"] {
        ask().header("content-type", good).await.expect(202);
    }
    json_ask().header("content-encoding", "identity").await.expect(202);
    let unsupported = async |ask: Call| {
        ask.await.expect_problem(415, "unsupported_media_type");
    };
    unsupported(ask()).await;
    for bad in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json"] {
        unsupported(ask().header("content-type", bad)).await;
    }
    unsupported(ask().header("content-type", "application/json; charset=utf-16")).await;
    for coding in ["gzip", "br", "identity, gzip"] {
        unsupported(json_ask().header("content-encoding", coding)).await;
    }
    let not_utf8 = json_ask().raw(b"{\"topic\":\"orders\",\"type\":\"a\",\"payload\":\"\xff\"}");
    not_utf8.await.expect_problem(400, "invalid_json");

    let long = "k".repeat(256);
    for key in ["", long.as_str()] {
        let reply = json_ask().header("idempotency-key", key).await;
        let problem = reply.expect_problem(422, "invalid_request");
        assert_eq!(problem["field"], "Idempotency-Key");
    }
    let twice = json_ask().header("idempotency-key", "a").header("idempotency-key", "b");
    twice.await.expect_problem(422, "invalid_request");
    let batch = server.as_acme("POST", "/v1/events/batch").header("idempotency-key", "a");
    let problem = batch.text(r#"{"events":[]}"#).await;
    assert_eq!(problem.expect_problem(422, "invalid_request")["field"], "Idempotency-Key");
}

#[tokio::test]
async fn bad_subscriptions_are_refused() {
    let server = Server::start().await;
    let with = |field: &str, value: Value| {
        let mut body = json!({"url": "https://ok.example/"});
        body[field] = value;
        body
    };
    let policy = |value: Value| with("policy", value);
    let schedule = |value: Value| policy(json!({"schedule": value}));
    let groups: Vec<Value> = (0..65).map(|_| json!({})).collect();
    let mut condition = json!({"test": {"path": "/a", "op": "eq", "value": 1}});
    for _ in 0..9 {
        condition = json!({"not": condition});
    }
    let filter = |group: Value| with("filter", json!({"any_of": [group]}));
    let bad_filter = (422, "invalid_filter");
    let bad_url = (422, "url_not_allowed");
    check(
        &server,
        vec![
            case(SUBSCRIPTIONS, "{}", REQUEST, "url"),
            case(
                SUBSCRIPTIONS,
                r#"["https://ok.example/","",null,null,null,{},false]"#,
                REQUEST,
                None,
            ),
            case(SUBSCRIPTIONS, r#"{"url":"https://a.example/","url":"x"}"#, JSON, None),
            case(SUBSCRIPTIONS, with("url", json!(["x"])), REQUEST, "url"),
            case(SUBSCRIPTIONS, with("url", json!("https://10.0.0.1/")), bad_url, "url"),
            case(SUBSCRIPTIONS, with("url", json!("http://a.example/")), bad_url, "url"),
            case(SUBSCRIPTIONS, with("colour", json!("red")), REQUEST, "colour"),
            case(SUBSCRIPTIONS, with("paused", json!("yes")), REQUEST, "paused"),
            case(
                SUBSCRIPTIONS,
                with("description", json!("x".repeat(1_001))),
                REQUEST,
                "description",
            ),
            case(SUBSCRIPTIONS, with("profile", json!("a b")), REQUEST, "profile"),
            case(
                SUBSCRIPTIONS,
                with("profile", json!("none")),
                (422, "unknown_profile"),
                "profile",
            ),
            case(SUBSCRIPTIONS, policy(json!([])), POLICY, "policy"),
            case(SUBSCRIPTIONS, policy(json!({"colour": 1})), POLICY, "policy.colour"),
            case(SUBSCRIPTIONS, schedule(json!({"max_attempts": null})), POLICY, "policy.schedule"),
            case(
                SUBSCRIPTIONS,
                schedule(json!({"max_attempts": 0})),
                POLICY,
                "policy.schedule.max_attempts",
            ),
            case(
                SUBSCRIPTIONS,
                schedule(json!({"max_attempts": 1_001})),
                POLICY,
                "policy.schedule.max_attempts",
            ),
            case(
                SUBSCRIPTIONS,
                schedule(json!({"max_attempts": -1})),
                POLICY,
                "policy.schedule.max_attempts",
            ),
            case(
                SUBSCRIPTIONS,
                schedule(json!({"backoff": {"fixed": {"wait": "-5s"}}})),
                POLICY,
                "policy.schedule.backoff.fixed.wait",
            ),
            case(
                SUBSCRIPTIONS,
                schedule(json!({"backoff": {"list": {"waits": []}}})),
                POLICY,
                "policy.schedule.backoff.list.waits",
            ),
            case(SUBSCRIPTIONS, schedule(json!({"backof": {}})), POLICY, "policy.schedule.backof"),
            case(SUBSCRIPTIONS, policy(json!({"success": ["3xx"]})), POLICY, "policy.success"),
            case(
                SUBSCRIPTIONS,
                r#"{"url":"https://ok.example/","policy":{"schedule":{"a":1,"a":2}}}"#,
                JSON,
                None,
            ),
            case(SUBSCRIPTIONS, with("filter", json!({"any_of": groups})), bad_filter, "filter"),
            case(SUBSCRIPTIONS, filter(json!({"payload": condition})), bad_filter, "filter"),
            case(SUBSCRIPTIONS, with("filter", json!({})), REQUEST, "filter.any_of"),
            case(SUBSCRIPTIONS, filter(json!({"topic": 1})), REQUEST, "filter.any_of[0].topic"),
            case(
                SUBSCRIPTIONS,
                filter(json!({"topics": ["a b"]})),
                REQUEST,
                "filter.any_of[0].topics[0]",
            ),
            case(
                SUBSCRIPTIONS,
                filter(json!({"payload": {}})),
                REQUEST,
                "filter.any_of[0].payload",
            ),
            case(
                SUBSCRIPTIONS,
                filter(json!({"payload": {"all": [{"test": {"path": "/a", "op": "is"}}]}})),
                REQUEST,
                "filter.any_of[0].payload.all[0].test.op",
            ),
            case(
                SUBSCRIPTIONS,
                with("secrets", json!({"signing": ""})),
                (422, "invalid_secret"),
                "secrets.signing",
            ),
            case(SUBSCRIPTIONS, with("secrets", json!({"signing": 7})), REQUEST, "secrets.signing"),
            case(
                SUBSCRIPTIONS,
                policy(json!({"auth": [{"kind": "bearer", "secret": "token"}]})),
                (422, "invalid_secret"),
                "secrets.token",
            ),
        ],
    )
    .await;
    let deep = "[".repeat(65) + &"]".repeat(65);
    let body = format!(r#"{{"url":"https://ok.example/","policy":{deep}}}"#);
    check(&server, vec![case(SUBSCRIPTIONS, body, JSON, None)]).await;

    let made = server.subscribe("https://ok.example/", json!({})).await;
    let path = format!("/v1/subscriptions/{}", made["id"].as_str().unwrap());
    let rotate = format!("{path}/rotate-secret");
    let (patch, rotate) = (("PATCH", path.as_str()), ("POST", rotate.as_str()));
    check(
        &server,
        vec![
            case(patch, r#"{"url":null}"#, REQUEST, "url"),
            case(patch, r#"{"filter":null}"#, REQUEST, "filter"),
            case(patch, r#"{"id":"x"}"#, REQUEST, "id"),
            case(patch, r#"{"url":"https://localhost/"}"#, bad_url, "url"),
            case(
                patch,
                r#"{"policy":{"schedule":{"max_attempts":0}}}"#,
                POLICY,
                "policy.schedule.max_attempts",
            ),
            case(rotate, r#"{"overlap":"8d"}"#, REQUEST, "overlap"),
            case(rotate, r#"{"overlap":"24h1s"}"#, REQUEST, "overlap"),
            case(rotate, r#"{"overlap":"soon"}"#, REQUEST, "overlap"),
            case(rotate, r#"{"secret_kind":"rsa"}"#, REQUEST, "secret_kind"),
            case(rotate, r#"{"name":"a b"}"#, REQUEST, "name"),
            case(rotate, "{", JSON, None),
        ],
    )
    .await;
    let now = server.as_acme("GET", &path).await.expect(200);
    assert_eq!(now["version"], made["version"], "nothing was changed");
}

#[tokio::test]
async fn bad_operator_requests_are_refused() {
    let server = Server::start().await;
    let tenants = ("POST", "/v1/tenants");
    let topics = ("PUT", "/v1/topics/orders");
    let unknown = "sub_01hf7yat00000000000000000z";
    check(
        &server,
        vec![
            case(tenants, r#"{"name":""}"#, REQUEST, "name"),
            case(tenants, r#"{"name":"a b"}"#, REQUEST, "name"),
            case(tenants, r#"{"name":"ten_x"}"#, REQUEST, "name"),
            case(tenants, r#"{"name":"acme"}"#, (409, "conflict"), None),
            case(KEYS, r#"{"tenant":"acme"}"#, REQUEST, "scopes"),
            case(KEYS, r#"{"tenant":"acme","scopes":[]}"#, REQUEST, "scopes"),
            case(KEYS, r#"{"tenant":"acme","scopes":["root"]}"#, REQUEST, "scopes[0]"),
            case(KEYS, r#"{"tenant":"acme","scopes":["read",1]}"#, REQUEST, "scopes[1]"),
            case(KEYS, r#"{"scopes":["read"]}"#, REQUEST, "tenant"),
            case(KEYS, r#"{"tenant":"nobody","scopes":["read"]}"#, REQUEST, "tenant"),
            case(KEYS, r#"{"tenant":"acme","scopes":["operator"]}"#, REQUEST, "tenant"),
            case(
                KEYS,
                r#"{"scopes":["operator"],"expires_at":"2001-01-01T00:00:00Z"}"#,
                REQUEST,
                "expires_at",
            ),
            case(KEYS, r#"{"scopes":["operator"],"expires_at":"soon"}"#, REQUEST, "expires_at"),
            case(REDRIVES, r#"{"per_second":0}"#, REQUEST, "per_second"),
            case(REDRIVES, r#"{"per_second":-1}"#, REQUEST, "per_second"),
            case(REDRIVES, r#"{"reason":"bored"}"#, REQUEST, "reason"),
            case(REDRIVES, r#"{"subscription":"x"}"#, REQUEST, "subscription"),
            case(REDRIVES, format!(r#"{{"subscription":"{unknown}"}}"#), REQUEST, "subscription"),
            case(REDRIVES, r#"{"until":"yesterday"}"#, REQUEST, "until"),
            case(
                REDRIVES,
                r#"{"since":"2020-01-02T00:00:00Z","until":"2020-01-01T00:00:00Z"}"#,
                REQUEST,
                "until",
            ),
            case(topics, r#"{"attributes":[""]}"#, REQUEST, "attributes[0]"),
            case(topics, r#"{"attributes":[7]}"#, REQUEST, "attributes[0]"),
            case(topics, r#"{"name":"x"}"#, REQUEST, "name"),
        ],
    )
    .await;
}

#[tokio::test]
async fn bad_queries_are_refused() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    for _ in 0..2 {
        server.publish("1").await;
    }
    let page = server.as_acme("GET", "/v1/events?limit=1").await.expect(200);
    let of_events = page["next"].as_str().unwrap();
    let foreign = format!("/v1/deliveries?cursor={of_events}");
    let of_attempts = format!("/v1/attempts?cursor={of_events}");
    let wrong_way = format!("/v1/events?order=oldest&cursor={of_events}");
    let many = format!("/v1/events?{}", "type=x&".repeat(21));
    for (path, field) in [
        ("/v1/events?limit=0", "limit"),
        ("/v1/events?limit=201", "limit"),
        ("/v1/events?limit=-1", "limit"),
        ("/v1/events?limit=ten", "limit"),
        ("/v1/events?limit=1&limit=2", "limit"),
        ("/v1/events?cursor=x", "cursor"),
        ("/v1/events?cursor=%00", "cursor"),
        (foreign.as_str(), "cursor"),
        ("/v1/events?topics=orders", "topics"),
        ("/v1/events?topic=a%20b", "topic"),
        ("/v1/events?order=up", "order"),
        ("/v1/events?from=yesterday", "from"),
        ("/v1/events?from=2026-01-02T00:00:00Z&until=2026-01-02T00:00:00Z", "until"),
        ("/v1/events?attribute=colour", "attribute"),
        ("/v1/events?attribute=a=1&attribute=a=2", "attribute"),
        ("/v1/events?dead_letters=false", "dead_letters"),
        ("/v1/events?unwanted=yes", "unwanted"),
        (many.as_str(), "type"),
        (wrong_way.as_str(), "order"),
        ("/v1/deliveries?state=dying", "state"),
        ("/v1/deliveries?reason=old_age", "reason"),
        ("/v1/deliveries?state=delivered&reason=gate", "reason"),
        ("/v1/deliveries?status=6xx", "status"),
        ("/v1/deliveries?status=20", "status"),
        ("/v1/deliveries?failure=bad_luck", "failure"),
        ("/v1/deliveries?failure=dns_failed&status=5xx", "failure"),
        ("/v1/dead-letters?reason=dropped", "reason"),
        ("/v1/attempts?trigger=maybe", "trigger"),
        ("/v1/attempts?number=1", "number"),
        (of_attempts.as_str(), "cursor"),
        ("/v1/deliveries?event=x", "event"),
        ("/v1/deliveries?subscription=evt_01hf7yat00000000000000000z", "subscription"),
        ("/v1/dead-letters?state=dead", "state"),
        ("/v1/topics/orders?x=1", "x"),
        ("/v1/stats?tenant=other", "tenant"),
        ("/v1/events/batch?x", "x"),
    ] {
        let method = if path.contains("batch") { "POST" } else { "GET" };
        let reply = server.as_acme(method, path).await;
        assert_eq!(reply.status, 422, "{path}");
        assert_eq!(reply.expect_problem(422, "invalid_request")["field"], field, "{path}");
    }
    server.as_acme("GET", "/v1/events?topic=&limit=&cursor=").await.expect(200);
}

#[tokio::test]
async fn unknown_paths_and_methods_get_problem_documents() {
    let server = Server::start().await;
    for path in ["/", "/v1", "/v1/", "/v1/nothing", "/v1/events/", "/V1/events", "/v1//events"] {
        server.as_acme("GET", path).await.expect_problem(404, "not_found");
    }
    for (method, path, allow) in [
        ("DELETE", "/v1/events", "POST,OPTIONS,GET,HEAD"),
        ("PUT", "/v1/subscriptions/x", "GET,HEAD,PATCH,DELETE"),
        ("GET", "/v1/events/batch/", ""),
        ("POST", "/healthz", "GET,HEAD"),
    ] {
        let reply = server.as_acme(method, path).await;
        if allow.is_empty() {
            reply.expect_problem(404, "not_found");
        } else {
            reply.expect_problem(405, "method_not_allowed");
            assert_eq!(reply.header("allow"), Some(allow));
        }
    }
    let head = server.as_acme("HEAD", "/v1/stats").await;
    assert_eq!((head.status, head.body.len()), (200, 0));
}

/// Whatever is thrown at it, it answers; and a long text in a request does not come back whole.
#[tokio::test]
async fn details_are_bounded() {
    let server = Server::start().await;
    let long = "é".repeat(100_000);
    for body in [
        json!({"url": {"a": long}}),
        json!({"url": "https://ok.example/", "paused": long}),
        json!({ long.clone(): 1 }),
        json!({"url": "https://ok.example/", "secrets": {long.clone(): "x"}}),
    ] {
        let reply = server.as_acme("POST", "/v1/subscriptions").json(&body).await;
        assert!((400..500).contains(&reply.status));
        assert!(reply.body.len() < 4_000, "{}", reply.body.len());
    }
}
