//! The catalogue of event types: who may change it, what may be in it, and what it keeps out.

use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

fn order_schema() -> Value {
    json!({
        "type": "object", "required": ["amount"],
        "properties": {
            "amount": {"type": "number", "minimum": 0},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        },
        "$defs": {"line": {"type": "object", "properties": {"sku": {"type": "string", "pattern": "^[A-Z]+$"}}}},
    })
}

async fn put(server: &Server, name: &str, body: Value) -> Value {
    let path = format!("/v1/event-types/{name}");
    server.as_operator("PUT", &path).json(body).await.expect(200)
}

async fn validate(server: &Server, how: &str) {
    let body = json!({"validation": how});
    server.as_operator("PUT", "/v1/realms/default").json(body).await.expect(200);
}

#[tokio::test]
async fn event_types_are_found_by_group_state_and_prefix() {
    let server = Server::start().await;
    for (name, group, archived) in [
        ("order.made", "orders", false),
        ("order.gone", "orders", true),
        ("user.made", "users", false),
    ] {
        put(&server, name, json!({"group": group, "archived": archived})).await;
    }
    let names = async |query: &str| {
        let list = server.as_acme("GET", &format!("/v1/event-types{query}")).await.expect(200);
        let items = list["items"].as_array().unwrap().iter();
        let names = items.map(|item| item["name"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>().join(" "), list["next"].as_str().map(str::to_owned))
    };
    assert_eq!(names("").await.0, "order.gone order.made user.made");
    assert_eq!(names("?group=orders").await.0, "order.gone order.made");
    assert_eq!(names("?archived=false").await.0, "order.made user.made");
    assert_eq!(names("?prefix=order.&archived=true").await.0, "order.gone");
    let (first, next) = names("?limit=2").await;
    assert_eq!(first, "order.gone order.made");
    assert_eq!(names(&format!("?cursor={}", next.unwrap())).await, ("user.made".to_owned(), None));
    let full = json!({
        "description": "An order", "group": "orders", "schemas": {"1": order_schema()},
        "examples": [{"amount": 1}], "archived": false, "deprecated": true,
    });
    let shown = put(&server, "order.made", full.clone()).await;
    for (field, value) in full.as_object().unwrap() {
        assert_eq!(shown[field], *value);
    }
    assert_eq!(server.as_acme("GET", "/v1/event-types/order.made").await.expect(200), shown);
    server.as_operator("DELETE", "/v1/event-types/order.made").await.expect(204);
    let gone = server.as_acme("GET", "/v1/event-types/order.made").await;
    gone.expect_problem(404, "not_found");
    // What all tenants share is not for one of them to change.
    let theirs = server.as_acme("PUT", "/v1/event-types/mine").json(json!({})).await;
    theirs.expect_problem(403, "forbidden");
    server.as_acme("DELETE", "/v1/event-types/user.made").await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn unknown_types_are_refused_where_the_realm_says_so() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let publish = |kind: &str, payload: Value| {
        let body = json!({"topic": "orders", "type": kind, "payload": payload});
        server.as_acme("POST", "/v1/events").json(body)
    };
    put(&server, "order.made", json!({"schemas": {"1": order_schema()}})).await;
    put(&server, "old", json!({"archived": true})).await;
    publish("anything", json!(1)).await.expect(202);
    validate(&server, "known").await;
    for kind in ["anything", "old"] {
        let problem = publish(kind, json!(1)).await.expect_problem(422, "unknown_event_type");
        assert_eq!(problem["field"], "type");
    }
    publish("order.made", json!("no object at all")).await.expect(202);
    validate(&server, "schema").await;
    publish("anything", json!(1)).await.expect_problem(422, "unknown_event_type");
    publish("order.made", json!({"amount": 5, "lines": [{"sku": "AB"}]})).await.expect(202);
    for (payload, field) in [
        (json!("no object at all"), "payload"),
        (json!({}), "payload"),
        (json!({"amount": -1}), "payload/amount"),
        (json!({"amount": 1, "lines": [{"sku": "AB"}, {"sku": "ab"}]}), "payload/lines/1/sku"),
    ] {
        let problem = publish("order.made", payload).await.expect_problem(422, "payload_not_valid");
        assert_eq!(problem["field"], field, "{problem}");
    }
    // A payload may fit any version; one without schemas takes everything.
    let both = json!({"schemas": {"1": order_schema(), "2": {"type": "string"}}});
    put(&server, "order.made", both).await;
    publish("order.made", json!({"amount": 5})).await.expect(202);
    publish("order.made", json!("text")).await.expect(202);
    let problem = publish("order.made", json!(7)).await.expect_problem(422, "payload_not_valid");
    assert!(problem["detail"].as_str().unwrap().contains("string"), "of the newest: {problem}");
    put(&server, "order.made", json!({})).await;
    publish("order.made", json!(7)).await.expect(202);
    // A large one is looked at as well.
    put(
        &server,
        "order.made",
        json!({"schemas": {"1": {"type": "array", "items": {"type": "integer"}}}}),
    )
    .await;
    let many: Vec<u32> = (0..20_000).collect();
    publish("order.made", json!(many)).await.expect(202);
    let mut many = json!(many);
    many[19_999] = json!("x");
    let problem = publish("order.made", many).await.expect_problem(422, "payload_not_valid");
    assert_eq!(problem["field"], "payload/19999");
    validate(&server, "off").await;
    publish("anything", json!(1)).await.expect(202);
}

#[tokio::test]
async fn batches_are_checked_event_by_event() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    put(&server, "order.made", json!({"schemas": {"1": order_schema()}})).await;
    validate(&server, "schema").await;
    let event =
        |payload: Value| json!({"topic": "orders", "type": "order.made", "payload": payload});
    let body = json!({"events": [event(json!({"amount": 1})), event(json!(2)), event(json!({"amount": 3}))]});
    let reply = server.as_acme("POST", "/v1/events/batch").json(body).await.expect(200);
    let items = reply["items"].as_array().unwrap();
    assert!(items[0]["id"].is_string() && items[2]["id"].is_string(), "{reply}");
    assert!(items[1].to_string().contains("payload_not_valid"), "{reply}");
}

#[tokio::test]
async fn bad_event_types_are_refused() {
    let server = Server::start().await;
    let with = |schema: Value| json!({"schemas": {"1": schema}});
    let deep = (0..60).fold(json!({}), |inner, _| json!({"not": inner}));
    for (body, field) in [
        (with(json!({"$ref": "https://example.test/x.json"})), "schemas.1/$ref"),
        (with(json!({"properties": {"a": {"$ref": "#"}}})), "schemas.1/properties/a/$ref"),
        (with(json!({"$ref": "#/$defs/none"})), "schemas.1/$ref"),
        (with(json!({"type": "objekt"})), "schemas.1"),
        (with(json!({"pattern": "(?=a)b"})), "schemas.1"),
        (with(json!({"pattern": "("})), "schemas.1"),
        (with(json!(5)), "schemas.1"),
        (with(json!({"description": "x".repeat(70_000)})), "schemas.1"),
        (json!({"group": ""}), "group"),
        (json!({"examples": (0..11).collect::<Vec<_>>()}), "examples"),
    ] {
        let reply = server.as_operator("PUT", "/v1/event-types/a").json(&body).await;
        let problem = reply.expect_problem(422, "invalid_event_type");
        assert_eq!(problem["field"], field, "{problem}");
    }
    let reply = server.as_operator("PUT", "/v1/event-types/a").json(with(deep)).await;
    let problem = reply.expect_problem(422, "invalid_event_type");
    assert!(problem["detail"].as_str().unwrap().contains("nested deeper"), "{problem}");
    for body in
        [json!({"schemas": {"v1": {}}}), json!({"schemas": {"0": {}}}), json!({"colour": 1})]
    {
        let reply = server.as_operator("PUT", "/v1/event-types/a").json(&body).await;
        reply.expect_problem(422, "invalid_request");
    }
    let reply = server.as_operator("PUT", "/v1/event-types/a%20b").json(json!({})).await;
    reply.expect_problem(422, "invalid_request");
    let reply = server.as_operator("PUT", "/v1/event-types/a?realm=nowhere").json(json!({})).await;
    reply.expect_problem(404, "not_found");
    let list = server.as_operator("GET", "/v1/event-types").await.expect(200);
    assert_eq!(list, json!({"items": []}), "nothing of it was kept");
}

fn document() -> Value {
    json!({
        "openapi": "3.1.0", "info": {"title": "Shop", "version": "1"},
        "webhooks": {
            "order.made": {"post": {
                "summary": "An order was made", "tags": ["orders"],
                "requestBody": {"content": {"application/json": {
                    "schema": {"$ref": "#/components/schemas/Order"},
                    "example": {"amount": 5},
                }}},
            }},
            "order.gone": {"post": {"description": "No more order", "deprecated": true}},
        },
        "components": {"schemas": {
            "Order": {"type": "object", "required": ["amount"], "properties": {
                "amount": {"$ref": "#/components/schemas/Amount"},
            }},
            "Amount": {"type": "number"},
            "Unused": {"$ref": "https://example.test/"},
        }},
    })
}

#[tokio::test]
async fn event_types_are_imported_from_an_openapi_document() {
    let server = Server::start().await;
    put(&server, "user.made", json!({})).await;
    let import = async |document: &Value, more: Value| {
        let mut body = json!({"document": document});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        server.as_operator("POST", "/v1/event-types/import").json(body).await.expect(200)
    };
    let planned = import(&document(), json!({"dry_run": true, "replace_all": true})).await;
    assert_eq!(
        planned,
        json!({
            "dry_run": true, "created": ["order.gone", "order.made"], "changed": [],
            "archived": ["user.made"], "unchanged": [],
        })
    );
    let missing = server.as_operator("GET", "/v1/event-types/order.made").await;
    missing.expect_problem(404, "not_found");
    let done = import(&document(), json!({})).await;
    assert_eq!((&done["created"], &done["archived"]), (&planned["created"], &json!([])));
    let made = server.as_operator("GET", "/v1/event-types/order.made").await.expect(200);
    assert_eq!(
        (&made["group"], &made["description"]),
        (&json!("orders"), &json!("An order was made"))
    );
    assert_eq!(made["examples"], json!([{"amount": 5}]));
    let schema = &made["schemas"]["1"];
    assert_eq!(schema["$ref"], "#/$defs/Order", "{schema}");
    assert_eq!(schema["$defs"]["Order"]["properties"]["amount"]["$ref"], "#/$defs/Amount");
    assert_eq!(schema["$defs"].as_object().unwrap().len(), 2, "and nothing that nobody needs");
    // The same again changes nothing; another schema is another version.
    let again = import(&document(), json!({})).await;
    assert_eq!(again["unchanged"], planned["created"]);
    let mut other = document();
    other["components"]["schemas"]["Amount"] = json!({"type": "string"});
    other["webhooks"].as_object_mut().unwrap().remove("order.gone");
    let changed = import(&other, json!({"replace_all": true})).await;
    assert_eq!(changed["changed"], json!(["order.made"]));
    assert_eq!(changed["archived"], json!(["order.gone", "user.made"]));
    let made = server.as_operator("GET", "/v1/event-types/order.made").await.expect(200);
    assert_eq!(made["schemas"].as_object().unwrap().len(), 2, "{made}");
    // Both are checked from now on.
    server.subscribe("https://ok.example/", json!({})).await;
    validate(&server, "schema").await;
    for (payload, status) in
        [(json!({"amount": 5}), 202), (json!({"amount": "5"}), 202), (json!({"amount": null}), 422)]
    {
        let body = json!({"topic": "orders", "type": "order.made", "payload": payload});
        assert_eq!(server.as_acme("POST", "/v1/events").json(body).await.status, status);
    }
}

#[tokio::test]
async fn what_is_no_openapi_document_is_refused() {
    let server = Server::start().await;
    let webhook = |name: &str, operation: Value| json!({"openapi": "3.1.0", "webhooks": {name: {"post": operation}}});
    let body = |schema: Value| json!({"requestBody": {"content": {"application/json": {"schema": schema}}}});
    let cases = [
        (json!({}), "document.openapi"),
        (json!({"openapi": "3.0.3", "webhooks": {}}), "document.openapi"),
        (json!({"swagger": "2.0"}), "document.openapi"),
        (json!([]), "document.openapi"),
        (json!({"openapi": "3.1.0"}), "document.webhooks"),
        (json!({"openapi": "3.1.0", "webhooks": []}), "document.webhooks"),
        (webhook("a b", json!({})), "document.webhooks.a b"),
        (json!({"openapi": "3.1.0", "webhooks": {"a": {}}}), "document.webhooks.a"),
        (webhook("a", body(json!({"$ref": "#/components/schemas/None"}))), "document.webhooks.a"),
        (
            webhook("a", body(json!({"$ref": "other.yaml#/x"}))),
            "document.webhooks.a.schemas.1/$ref",
        ),
        (webhook("a", body(json!({"type": 7}))), "document.webhooks.a.schemas.1"),
    ];
    for (document, field) in cases {
        let call = server.as_operator("POST", "/v1/event-types/import");
        let reply = call.json(json!({"document": document})).await;
        let problem = reply.expect_problem(422, "invalid_event_type");
        assert_eq!(problem["field"], field, "{problem}");
    }
    let none = server.as_operator("POST", "/v1/event-types/import").json(json!({})).await;
    none.expect_problem(422, "invalid_request");
}

/// A chain of definitions, each of which leads to the next.
fn chain(levels: usize, link: impl Fn(Value) -> Value) -> Value {
    let mut defs = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
        defs.insert(format!("l{level}"), link(next));
    }
    defs.insert(format!("l{levels}"), json!({}));
    json!({"$ref": "#/$defs/l0", "$defs": defs})
}

#[tokio::test]
async fn schemas_that_would_take_for_ever_or_all_memory_are_refused() {
    let server = Server::start().await;
    let unevaluated = chain(50, |next| json!({"anyOf": [next], "unevaluatedProperties": false}));
    let patterns: Vec<Value> =
        (0..2_000).map(|n| json!({"pattern": format!("\\w{{{}}}{n}", 20 + n % 10)})).collect();
    let amplified = |n: usize| {
        json!({"description": n.to_string(), "allOf": vec![json!({"$ref": "#/$defs/s"}); 90],
            "$defs": {"s": {"allOf": vec![json!({}); 100]}}})
    };
    let versions: Value = (1..=3).map(|n| (n.to_string(), amplified(n))).collect();
    for (schemas, field, why) in [
        (json!({"1": unevaluated}), "schemas.1/$ref/unevaluatedProperties", "not supported"),
        (json!({"1": chain(1_000, |next| next)}), "schemas.1", "within each other"),
        (json!({"1": {"anyOf": patterns}}), "schemas", "patterns of all versions"),
        (versions, "schemas", "all versions together come to"),
    ] {
        let put =
            server.as_operator("PUT", "/v1/event-types/bad").json(json!({"schemas": schemas}));
        let problem = put.await.expect_problem(422, "invalid_event_type");
        let found = problem["field"].as_str().unwrap();
        assert!(found.starts_with(field), "{field}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{why}: {problem}");
    }
}

#[tokio::test]
async fn the_event_types_of_a_realm_have_a_limit_of_memory() {
    let quotas = posthorn_engine::Quotas { event_types_memory: 1 << 20, ..Default::default() };
    let options = posthorn_engine::Options { quotas, ..Default::default() };
    let limits = posthorn_listener::ServeLimits::default();
    let server = Server::start_limited(limits, options, Default::default()).await;
    let large = |n: usize| json!({"examples": [format!("{n}{}", "x".repeat(50_000))]});
    let mut put = 0;
    let problem = loop {
        let path = format!("/v1/event-types/large.{put}");
        let reply = server.as_operator("PUT", &path).json(large(put)).await;
        if reply.status != 200 {
            break reply.expect_problem(422, "invalid_event_type");
        }
        put += 1;
    };
    assert!((3..=6).contains(&put), "{put}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("quotas.event_types_memory"), "{problem}");
    // What is there may be made smaller, and then there is room.
    put_small(&server, "large.0").await;
    put_small(&server, "large.1").await;
    let path = format!("/v1/event-types/large.{put}");
    server.as_operator("PUT", &path).json(large(put)).await.expect(200);
    // Another realm has its own.
    server.as_operator("PUT", "/v1/realms/eu").json(json!({})).await.expect(200);
    let other = server.as_operator("PUT", "/v1/event-types/large?realm=eu").json(large(0));
    other.await.expect(200);
}

async fn put_small(server: &Server, name: &str) {
    put(server, name, json!({})).await;
}

/// A document in which many refer to one that is large is small, and what it means is not.
#[tokio::test]
async fn a_document_that_expands_is_refused_before_it_does() {
    let server = Server::start().await;
    let large: serde_json::Map<String, Value> =
        (0..20_000).map(|n| (format!("property-{n}"), json!({"type": "string"}))).collect();
    let webhook = |at: &str| {
        json!({"post": {"requestBody": {"content": {"application/json": {
            "schema": {"$ref": format!("#/components/schemas/{at}")},
        }}}}})
    };
    let webhooks: serde_json::Map<String, Value> =
        (0..1_000).map(|n| (format!("w{n}"), webhook("Large"))).collect();
    let document = json!({"openapi": "3.1.0", "webhooks": webhooks,
        "components": {"schemas": {"Large": {"properties": large}}}});
    for dry_run in [true, false] {
        let body = json!({"document": document, "dry_run": dry_run});
        let import = server.as_operator("POST", "/v1/event-types/import").json(body);
        let problem = import.await.expect_problem(422, "invalid_event_type");
        assert_eq!(problem["field"], "document.webhooks.w0", "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("65536 bytes"), "{problem}");
    }
    // Each is small enough, and all together are not.
    let text = "x".repeat(60_000);
    let document = json!({"openapi": "3.1.0", "webhooks": webhooks,
        "components": {"schemas": {"Large": {"description": text}}}});
    let body = json!({"document": document, "dry_run": true});
    let import = server.as_operator("POST", "/v1/event-types/import").json(body);
    let problem = import.await.expect_problem(422, "invalid_event_type");
    assert!(problem["field"].as_str().unwrap().starts_with("document.webhooks.w"), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("in one import"), "{problem}");
    // What is wrong with one says which one.
    let document = json!({"openapi": "3.1.0", "webhooks": {"fine": webhook("A"), "odd": webhook("B")},
        "components": {"schemas": {"A": {"type": "object"}, "B": {"unevaluatedItems": false}}}});
    let body = json!({"document": document});
    let import = server.as_operator("POST", "/v1/event-types/import").json(body);
    let problem = import.await.expect_problem(422, "invalid_event_type");
    let field = problem["field"].as_str().unwrap();
    assert!(field.starts_with("document.webhooks.odd.schemas.1"), "{problem}");
    let list = server.as_operator("GET", "/v1/event-types").await.expect(200);
    assert_eq!(list["items"], json!([]), "nothing was taken in");
}

/// Of an event in several forms, the usual one is what filters look at, and what schemas are about.
#[tokio::test]
async fn of_several_forms_the_usual_one_is_compared() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    put(&server, "order.made", json!({"schemas": {"1": order_schema()}})).await;
    validate(&server, "schema").await;
    let publish = async |usual: Value| {
        let body = json!({"topic": "orders", "type": "order.made",
        "content_type": "application/vnd.posthorn.alternatives+json",
        "payload": {"alternatives": [
            {"content_type": "application/json", "body": usual},
            {"content_type": "application/vnd.other+json", "body": ["something", "else"]},
        ]}});
        server.as_acme("POST", "/v1/events").json(body).await
    };
    publish(json!({"amount": 5})).await.expect(202);
    let problem = publish(json!({"amount": -5})).await.expect_problem(422, "payload_not_valid");
    assert!(problem["detail"].as_str().unwrap().contains("/amount"), "{problem}");
}

/// Much to compare takes its time elsewhere; the limit is on what the payload and all versions come to.
#[tokio::test]
async fn payloads_that_are_too_much_for_their_schemas_are_refused() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let many: Vec<Value> = (0..3_000).map(|n| json!({"const": n})).collect();
    let schema = json!({"items": {"anyOf": many}});
    put(&server, "order.made", json!({"schemas": {"1": schema}})).await;
    validate(&server, "schema").await;
    let publish = async |count: usize| {
        let body = json!({"topic": "orders", "type": "order.made", "payload": vec![1; count]});
        server.as_acme("POST", "/v1/events").json(body).await
    };
    publish(5).await.expect(202);
    publish(1_000).await.expect(202);
    let problem = publish(100_000).await.expect_problem(422, "payload_not_valid");
    assert!(problem["detail"].as_str().unwrap().contains("too large to be compared"), "{problem}");
}
