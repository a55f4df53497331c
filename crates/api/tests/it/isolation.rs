//! Tenants cannot see each other: a matrix made from the OpenAPI document itself, so that a route or
//! a parameter that is added is in it without anybody thinking of it.
//!
//! Every operation × every place for an id (path, query, body) × every kind of id that is not one's
//! own × every scope: the answer has the same bytes as for an id that nobody has.

use std::collections::{BTreeMap, BTreeSet};

use posthorn_api::openapi_document;
use posthorn_domain::{Scope, TenantId};
use posthorn_testkit::caller::{Call, Reply};
use serde_json::{Value, json};

use crate::certificates::client_certificate;
use crate::harness::{Problem as _, Server};

/// What tenant `acme` has, by what ids of it begin with; topics and profiles have names.
struct Belongings {
    ids: BTreeMap<&'static str, String>,
    /// Had, once.
    deleted: String,
}

impl Belongings {
    async fn make(server: &Server) -> Self {
        let policy = json!({"name": "billing", "policy": {"schedule": {"max_attempts": 1}}});
        let gone = server.subscribe("https://gone.example/", json!({})).await;
        let deleted = gone["id"].as_str().unwrap().to_owned();
        server.as_acme("DELETE", &format!("/v1/subscriptions/{deleted}")).await.expect(204);
        let subscription = server.subscribe("https://dead.example/", policy).await;
        let event = server.publish("1").await;
        let delivery = server.delivery_in(&event, "dead").await;
        let redrive = server.as_acme("POST", "/v1/redrives").json(json!({"reason": "gate"}));
        let redrive = redrive.await.expect(201);
        let job = server.as_acme("POST", "/v1/subscriptions/billing/replay").json(json!({}));
        let job = job.await.expect(201);
        let certificate = server.as_acme("POST", "/v1/certificates");
        let certificate = certificate.json(client_certificate()).await.expect(201);
        let profile = json!({"base": "default", "policy": {}});
        let put = server.as_acme("PUT", "/v1/profiles/secret-plan").json(&profile);
        put.await.expect(200);
        let client = json!({"secret": "hush", "scopes": ["a"]});
        let put = server.ask("PUT", "/v1/clients/open-zaak").key(&server.keys.operator);
        put.header("posthorn-tenant", "acme").json(&client).await.expect(200);
        let link = server.as_acme("POST", "/v1/portal/links").json(json!({})).await.expect(201);
        let text = |value: &Value| value["id"].as_str().unwrap().to_owned();
        let ids = BTreeMap::from([
            ("sub", text(&subscription)),
            ("evt", event),
            ("dlv", text(&delivery)),
            ("rdr", text(&redrive)),
            ("job", text(&job)),
            ("ses", text(&link)),
            ("crt", text(&certificate)),
            ("topic", "orders".to_owned()),
            ("name", "billing".to_owned()),
            ("profile", "secret-plan".to_owned()),
            ("client", "open-zaak".to_owned()),
            ("ten", server.acme.to_string()),
            ("key", server.engine.authenticate(&server.keys.acme).unwrap().key.id.to_string()),
        ]);
        Self { ids, deleted }
    }

    /// Ids that are not the other tenant's own, each beside one of the same shape that nobody has.
    fn strangers(&self, kind: &str) -> Vec<(&'static str, String, String)> {
        let own = self.ids[kind].clone();
        let nobody = match kind {
            "topic" | "profile" | "name" | "client" => "no-such".to_owned(),
            _ => format!("{kind}_01hf7yat00000000000000000z"),
        };
        let encoded =
            |id: &str| -> String { id.bytes().map(|byte| format!("%{byte:02X}")).collect() };
        let other = if kind == "sub" { &self.ids["dlv"] } else { &self.ids["sub"] };
        let mut all = vec![
            ("another tenant's", own.clone(), nobody.clone()),
            ("upper-cased", own.to_uppercase(), nobody.to_uppercase()),
            ("encoded", encoded(&own), encoded(&nobody)),
            (
                "twice encoded",
                encoded(&own).replace('%', "%25"),
                encoded(&nobody).replace('%', "%25"),
            ),
            ("in a list", format!("%5B%22{own}%22%5D"), format!("%5B%22{nobody}%22%5D")),
            ("two", format!("{own},{own}"), format!("{nobody},{nobody}")),
            ("with a space", format!("{own}%20"), format!("{nobody}%20")),
            ("random", format!("{}7z", &nobody[..nobody.len() - 2]), nobody.clone()),
            ("null", "null".to_owned(), nobody.clone()),
        ];
        if kind != "topic" {
            all.push(("of another type", other.clone(), nobody.clone()));
        }
        if kind == "sub" {
            all.push(("deleted", self.deleted.clone(), nobody));
        }
        all
    }
}

/// Which kind of id a path's parameter is.
fn kind_of(path: &str) -> Option<&'static str> {
    Some(match path.split('/').nth(2)? {
        "events" => "evt",
        "subscriptions" => "sub",
        "deliveries" | "dead-letters" => "dlv",
        "redrives" => "rdr",
        "jobs" => "job",
        "sessions" => "ses",
        "topics" => "topic",
        "profiles" => "profile",
        "certificates" => "crt",
        "clients" => "client",
        _ => return None,
    })
}

/// One operation of the document.
struct Operation {
    name: String,
    method: String,
    path: String,
    scope: String,
    query: Vec<String>,
    /// Whether it is about what a realm owns, which its tenants share.
    realm: bool,
    /// The schema of the body, resolved.
    body: Option<Value>,
}

/// Those that keys of tenants may use. Figures are of a tenant, too, unless a realm is named.
fn operations(document: &Value) -> Vec<Operation> {
    let mut all = all_operations(document);
    // Figures and the audit log are read by keys of tenants and of realms alike.
    let both = ["listAudit", "getSeries"];
    let shared =
        |operation: &Operation| operation.realm && !both.contains(&operation.name.as_str());
    all.retain(|operation| operation.scope != "operator" && !shared(operation));
    all
}

fn all_operations(document: &Value) -> Vec<Operation> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let Some(scope) = operation["x-scope"].as_str() else { continue };
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let query = parameters
                .filter_map(|parameter| parameter["$ref"].as_str()?.rsplit('/').next())
                .filter(|name| document["components"]["parameters"][*name]["in"] == "query");
            let body = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                .as_str()
                .map(|at| {
                    document["components"]["schemas"][at.rsplit('/').next().unwrap()].clone()
                });
            all.push(Operation {
                name: operation["operationId"].as_str().unwrap().to_owned(),
                method: method.to_uppercase(),
                path: path.clone(),
                scope: scope.to_owned(),
                query: query.map(str::to_owned).collect(),
                realm: operation["x-realm"] == true,
                body,
            });
        }
    }
    all
}

/// A body that the operation takes, as far as its required fields go.
fn body_of(operation: &Operation) -> Value {
    match operation.name.as_str() {
        "publishEvent" => json!({"topic": "orders", "type": "a", "payload": 1}),
        "publishEvents" => json!({"events": []}),
        "createSubscription" => json!({"url": "https://ok.example/"}),
        "updateSubscription" => json!({"description": "mine now"}),
        _ => json!({}),
    }
}

/// What else a body has, so that an id in this field of it is looked at.
fn beside(operation: &Operation, field: &str) -> Value {
    match (operation.name.as_str(), field) {
        ("testFilter", "event_id") => json!({"filter": {"any_of": [{}]}}),
        ("testFilter", _) => json!({"event": {"topic": "orders", "type": "a", "payload": 1}}),
        ("createBulk" | "countBulk", _) => json!({"action": "cancel"}),
        ("createSubscription", _) => json!({"url": "https://ok.example/"}),
        _ => json!({}),
    }
}

/// How deep the fields of a body are looked at: conditions of filters refer to themselves.
const DEPTH_MAX: usize = 4;

/// The fields of a body that take ids, with what those begin with; of objects in it, too.
fn id_fields(document: &Value, schema: &Value, depth: usize) -> BTreeSet<(String, &'static str)> {
    let mut found = BTreeSet::new();
    let named = schema["$ref"].as_str().and_then(|at| at.rsplit('/').next());
    let schema = named.map_or(schema, |name| &document["components"]["schemas"][name]);
    if depth == DEPTH_MAX {
        return found;
    }
    for (field, shape) in schema["properties"].as_object().into_iter().flatten() {
        let takes = |kind: &&str| {
            let named = format!("{kind}_");
            let says = |place: &str| shape[place].as_str().is_some_and(|t| t.contains(&named));
            says("pattern") || says("description")
        };
        let kind = ["sub", "evt", "dlv", "rdr"].into_iter().find(takes);
        found.extend(kind.map(|kind| (field.clone(), kind)));
        let inside = id_fields(document, shape, depth + 1).into_iter();
        found.extend(inside.map(|(inner, kind)| (format!("{field}.{inner}"), kind)));
    }
    for either in ["oneOf", "anyOf", "allOf"] {
        let ways = schema[either].as_array().into_iter().flatten();
        found.extend(ways.flat_map(|way| id_fields(document, way, depth + 1)));
    }
    found
}

fn ask(server: &Server, operation: &Operation, path: &str) -> Call {
    let ask = server.ask(&operation.method, path);
    if operation.body.is_some() { ask.json(body_of(operation)) } else { ask }
}

/// Keys of the other tenant: one for each scope, and one with all.
async fn keys(server: &Server) -> Vec<(String, String)> {
    let other = server.engine.catalog().tenant_named("other").unwrap().id;
    let mut keys = vec![("all".to_owned(), server.keys.other.clone())];
    for scope in [Scope::Publish, Scope::Manage, Scope::Read] {
        let make = server.engine.create_key(Some(other), vec![scope], String::new(), None, None);
        keys.push((format!("{scope:?}").to_lowercase(), make.await.unwrap().text));
    }
    keys
}

#[track_caller]
fn same(a: &Reply, b: &Reply, what: &str) {
    assert_eq!(a.status, b.status, "{what}");
    assert_eq!(a.body, b.body, "{what}");
    let names = |reply: &Reply| -> BTreeSet<String> {
        reply.headers.keys().map(|name| name.as_str().to_owned()).collect()
    };
    assert_eq!(names(a), names(b), "{what}");
}

#[tokio::test]
async fn ids_in_paths_tell_nothing() {
    let server = Server::start().await;
    let belongings = Belongings::make(&server).await;
    let document: Value = serde_json::from_str(&openapi_document()).unwrap();
    let mut looked_at = 0;
    for operation in operations(&document).iter().filter(|o| o.path.contains('{')) {
        let kind = kind_of(&operation.path)
            .unwrap_or_else(|| panic!("{} needs a place in this matrix", operation.path));
        // The other tenant may of course make a topic or a profile of the same name.
        if ["putTopic", "putProfile"].contains(&operation.name.as_str()) {
            continue;
        }
        let path = operation.path.replace("{number}", "1");
        let place = |id: &str| path.replace("{id}", id).replace("{name}", id);
        for (scope, key) in keys(&server).await {
            for (what, stranger, nobody) in belongings.strangers(kind) {
                let what = format!("{} with scope {scope}: {what}", operation.name);
                let theirs = ask(&server, operation, &place(&stranger)).key(&key).await;
                let unknown = ask(&server, operation, &place(&nobody)).key(&key).await;
                same(&theirs, &unknown, &what);
                let wanted = if scope == "all" || scope == operation.scope { 404 } else { 403 };
                assert_eq!(theirs.status, wanted, "{what}");
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 500, "{looked_at}");
    // All of it is still there, as it was.
    for (kind, path) in [
        ("sub", "subscriptions"),
        ("evt", "events"),
        ("dlv", "dead-letters"),
        ("crt", "certificates"),
    ] {
        let path = format!("/v1/{path}/{}", belongings.ids[kind]);
        server.as_acme("GET", &path).await.expect(200);
    }
    let redrive = format!("/v1/redrives/{}", belongings.ids["rdr"]);
    let redrive = server.as_acme("GET", &redrive).await.expect(200);
    assert_ne!(redrive["state"], "cancelled");
}

/// Keys of tenants get the same bytes from all of it, whatever is there.
#[tokio::test]
async fn what_is_for_operators_tells_tenants_nothing() {
    let server = Server::start().await;
    let belongings = Belongings::make(&server).await;
    let document: Value = serde_json::from_str(&openapi_document()).unwrap();
    let (mut bodies, mut names) = (BTreeSet::new(), BTreeSet::new());
    for operation in all_operations(&document).iter().filter(|o| o.scope == "operator") {
        names.insert(operation.name.clone());
        let ids = [&server.acme.to_string(), &belongings.ids["client"], "no-such", "acme"];
        for id in ids {
            let path = operation.path.replace("{id}", id).replace("{name}", id);
            for (scope, key) in keys(&server).await {
                let reply = ask(&server, operation, &path).key(&key).await;
                assert_eq!(reply.status, 403, "{} with scope {scope}: {path}", operation.name);
                bodies.insert(reply.body);
            }
        }
    }
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    for name in ["applyNotificatiesSetup", "putClient", "resendNotificaties"] {
        assert!(names.contains(name), "{names:?}");
    }
    // An operator is told what is missing here.
    let setup = server.ask("PUT", "/v1/notificaties/setup").key(&server.keys.operator);
    let told = setup.json(json!({})).await.expect_problem(404, "not_found");
    assert!(told["detail"].as_str().unwrap().contains("dialects.notificaties"), "{told}");
}

/// A text of the same shape that says nothing: each id in it is one that nobody has.
fn alike(text: &str) -> String {
    let nobody = "01hf7yat00000000000000000z";
    let mut shaped = text.to_owned();
    for (at, _) in text.match_indices('_') {
        let end = at + 1 + nobody.len();
        if text.get(at + 1..end).is_some_and(|id| id.bytes().all(|b| b.is_ascii_alphanumeric())) {
            let upper = text[at + 1..end].bytes().any(|byte| byte.is_ascii_uppercase());
            let id = if upper { nobody.to_uppercase() } else { nobody.to_owned() };
            shaped.replace_range(at + 1..end, &id);
        }
    }
    shaped
}

#[tokio::test]
async fn ids_in_queries_filter_to_the_same_nothing() {
    let server = Server::start().await;
    let belongings = Belongings::make(&server).await;
    let document: Value = serde_json::from_str(&openapi_document()).unwrap();
    let mut seen = BTreeSet::new();
    // A stream has no end: `streaming` looks at it.
    for operation in operations(&document).iter().filter(|o| o.name != "stream") {
        for name in &operation.query {
            let kind = match name.as_str() {
                "event" => "evt",
                "subscription" => "sub",
                "topic" => "topic",
                "name" => "name",
                "cursor" | "limit" | "order" | "from" | "until" => continue,
                "state" | "type" | "reason" | "status" | "failure" | "trigger" => continue,
                // Whatever they are, they are looked for among the caller's own events.
                "attribute" | "key" | "publisher_id" | "dead_letters" | "unwanted" => continue,
                "responses" | "cancel" | "rebuild" | "label" | "session-kind" => continue,
                // `event_types_of_another_realm_tell_nothing` looks at realms.
                "scope" | "step" | "action" | "realm" => continue,
                "id" | "object" => "sub",
                "tenant" => "ten",
                "actor" => "key",
                // A topic of one's own, that an event is published on.
                "cloudevent-topic" => continue,
                other => panic!("{other} needs a place in this matrix"),
            };
            seen.insert(name.clone());
            for (scope, key) in keys(&server).await {
                for (what, stranger, nobody) in belongings.strangers(kind) {
                    let what = format!("{} {name} with scope {scope}: {what}", operation.name);
                    let of = if name == "id" { "scope=subscription&" } else { "" };
                    let place = |id: &str| format!("{}?{of}{name}={id}", operation.path);
                    let theirs = server.ask("GET", &place(&stranger)).key(&key).await;
                    let unknown = server.ask("GET", &place(&nobody)).key(&key).await;
                    let well_formed = theirs.status == 200 && unknown.status == 200;
                    if well_formed {
                        assert_eq!(theirs.json(), json!({"items": []}), "{what}");
                    }
                    // What is misshapen is named for its shape, before anything is looked up: as it is with one that
                    // nobody has, in the same shape.
                    let shaped = match theirs.status {
                        422 => server.ask("GET", &place(&alike(&stranger))).key(&key).await,
                        _ => unknown,
                    };
                    same(&theirs, &shaped, &what);
                }
            }
        }
    }
    let wanted = ["actor", "event", "id", "name", "object", "subscription", "tenant", "topic"];
    assert_eq!(seen, wanted.map(str::to_owned).into());
}

#[tokio::test]
async fn ids_in_bodies_tell_nothing() {
    let server = Server::start().await;
    let belongings = Belongings::make(&server).await;
    let document: Value = serde_json::from_str(&openapi_document()).unwrap();
    let other = |method: &str, path: &str| server.ask(method, path).key(&server.keys.other);
    other("PUT", "/v1/topics/own").json(json!({})).await.expect(200);
    let new = json!({"topic": "own", "type": "a", "payload": 1});
    let own_event = other("POST", "/v1/events").json(&new).await.expect(202);
    let own_event = own_event["id"].as_str().unwrap().to_owned();
    let mut seen = BTreeSet::new();
    for operation in operations(&document) {
        let Some(schema) = &operation.body else { continue };
        for (field, kind) in id_fields(&document, schema, 0) {
            seen.insert(format!("{}.{field}", operation.name));
            // What the path names is the caller's own, so that the body is looked at.
            let path = match kind_of(&operation.path) {
                Some("evt") => operation.path.replace("{id}", &own_event),
                _ => operation.path.clone(),
            };
            assert!(!path.contains('{'), "{path} needs something of one's own");
            for (scope, key) in keys(&server).await {
                let send = async |value: Value| {
                    let mut body = beside(&operation, &field);
                    let mut at = &mut body;
                    for part in field.split('.') {
                        at = &mut at[part];
                    }
                    *at = value;
                    server.ask(&operation.method, &path).key(&key).json(&body).await
                };
                let unknown = send(json!(format!("{kind}_01hf7yat00000000000000000z"))).await;
                let what = format!("{}.{field} with scope {scope}", operation.name);
                same(&send(json!(belongings.ids[kind])).await, &unknown, &what);
                if kind == "sub" {
                    same(&send(json!(belongings.deleted)).await, &unknown, &what);
                }
                let wanted = if operation.name == "testFilter" { 404 } else { 422 };
                let allowed = scope == "all" || scope == operation.scope;
                assert_eq!(unknown.status, if allowed { wanted } else { 403 }, "{what}");
                if allowed && wanted == 422 {
                    let problem = unknown.expect_problem(422, "invalid_request");
                    assert_eq!(problem["field"], field.as_str(), "{what}: {problem}");
                }
                if kind == "sub" {
                    let theirs = send(json!(belongings.ids["name"])).await;
                    same(&theirs, &send(json!("no-such")).await, &what);
                }
                for odd in
                    [json!([belongings.ids[kind]]), json!({"id": belongings.ids[kind]}), json!(7)]
                {
                    let status = send(odd).await.status;
                    assert!(matches!(status, 403 | 422), "{what}: {status}");
                }
            }
        }
    }
    for place in [
        "createRedrive.subscription",
        "createSubscription.start.event",
        "deliverEvent.subscription",
        "testFilter.subscription",
        "testFilter.event_id",
    ] {
        assert!(seen.contains(place), "{place}: {seen:?}");
    }
}

#[tokio::test]
async fn cursors_of_another_tenant_show_ones_own_only() {
    let server = Server::start().await;
    Belongings::make(&server).await;
    server.publish("2").await;
    server.publish("3").await;
    server.as_acme("PUT", "/v1/topics/zebra").json(json!({})).await.expect(200);
    server.subscribe("https://two.example/", json!({})).await;
    // Something of the other's own, in the middle of it all.
    let other = |method: &str, path: &str| server.ask(method, path).key(&server.keys.other);
    other("PUT", "/v1/topics/own").json(json!({})).await.expect(200);
    let mut lists = 0;
    for path in ["/v1/events", "/v1/topics", "/v1/subscriptions", "/v1/deliveries", "/v1/audit"] {
        let list = server.as_acme("GET", &format!("{path}?limit=1")).await.expect(200);
        let Some(next) = list["next"].as_str() else { continue };
        let foreign = other("GET", &format!("{path}?cursor={next}")).await.expect(200);
        let tenant = server.engine.catalog().tenant_named("other").unwrap().id.to_string();
        for item in foreign["items"].as_array().unwrap() {
            let own = item["name"] == "own" || item["tenant"] == tenant.as_str();
            assert!(own, "{path}: {item}");
        }
        lists += 1;
    }
    assert_eq!(lists, 5);
}

#[tokio::test]
async fn idempotency_keys_of_tenants_are_independent() {
    let server = Server::start().await;
    Belongings::make(&server).await;
    let other = |method: &str, path: &str| server.ask(method, path).key(&server.keys.other);
    other("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let publish = async |key: &str, payload: u8| {
        let body = json!({"topic": "orders", "type": "a", "payload": payload});
        let ask = server.ask("POST", "/v1/events").key(key).header("idempotency-key", "the-same");
        ask.json(&body).await.expect(202)
    };
    let ours = publish(&server.keys.acme, 1).await;
    let theirs = publish(&server.keys.other, 2).await;
    assert_eq!((&ours["duplicate"], &theirs["duplicate"]), (&false.into(), &false.into()));
    assert_ne!(ours["id"], theirs["id"]);
    assert_eq!(publish(&server.keys.other, 2).await["id"], theirs["id"]);
}

#[tokio::test]
async fn no_tenant_header_leads_out_of_ones_tenant() {
    let server = Server::start().await;
    Belongings::make(&server).await;
    let acme = server.acme.to_string();
    let unknown = server.ask("GET", "/v1/topics").key(&server.keys.other);
    let unknown = unknown.header("posthorn-tenant", "nobody").await;
    unknown.expect_problem(404, "not_found");
    for value in [
        acme.as_str(),
        "acme",
        "ACME",
        "default",
        "ten_00000000000000000000000000",
        &acme.to_uppercase(),
        " acme",
        "other, acme",
        "acme, other",
        "other;acme",
        "*",
        "null",
        "",
    ] {
        let reply = server.ask("GET", "/v1/topics").key(&server.keys.other);
        let reply = reply.header("posthorn-tenant", value).await;
        same(&reply, &unknown, value);
    }
    // Two of them are one too many, whichever comes first; also for operators.
    for (first, second) in [("other", "acme"), ("acme", "other"), ("other", "other")] {
        for key in [&server.keys.other, &server.keys.operator] {
            let reply = server.ask("GET", "/v1/topics").key(key);
            let reply = reply.header("posthorn-tenant", first).header("posthorn-tenant", second);
            same(&reply.await, &unknown, first);
        }
    }
}

/// A realm `eu` with a tenant and a key that may do everything there; `acme` and `other` are in the default realm.
async fn realm_key(server: &Server) -> String {
    let put = server.as_operator("PUT", "/v1/realms/eu").json(json!({}));
    put.await.expect(200);
    let new = json!({"name": "eu-one", "realm": "eu"});
    server.as_operator("POST", "/v1/tenants").json(new).await.expect(201);
    let new = json!({"realm": "eu", "scopes": ["publish", "manage", "read"]});
    let made = server.as_operator("POST", "/v1/keys").json(new).await.expect(201);
    assert_eq!((&made["realm"], &made["tenant"]), (&json!("eu"), &Value::Null));
    made["key"].as_str().unwrap().to_owned()
}

/// Every operation with the key of a realm, for a tenant of another: as if there was no such tenant.
#[tokio::test]
async fn keys_of_a_realm_do_not_reach_tenants_of_another() {
    let server = Server::start().await;
    let belongings = Belongings::make(&server).await;
    let key = realm_key(&server).await;
    let document: Value = serde_json::from_str(&openapi_document()).unwrap();
    let acme = server.acme.to_string();
    let mut looked_at = 0;
    // A stream has no end: `streaming` looks at it.
    for operation in operations(&document).into_iter().filter(|o| o.name != "stream") {
        let kind = kind_of(&operation.path).filter(|_| operation.path.contains('{'));
        let own = kind.map_or_else(String::new, |kind| belongings.ids[kind].clone());
        let path = operation.path.replace("{number}", "1");
        let path = path.replace("{id}", &own).replace("{name}", &own);
        let send = async |tenant: Option<&str>| {
            let call = ask(&server, &operation, &path).key(&key);
            match tenant {
                Some(tenant) => call.header("posthorn-tenant", tenant).await,
                None => call.await,
            }
        };
        let nobody = send(Some("nobody")).await;
        nobody.expect_problem(404, "not_found");
        for foreign in
            [acme.as_str(), "acme", "default", "ten_00000000000000000000000000", "EU-ONE"]
        {
            same(&send(Some(foreign)).await, &nobody, &format!("{} {foreign}", operation.name));
            looked_at += 1;
        }
        // It names none at all: it belongs to no tenant. The audit log of the realm is its own.
        let none = send(None).await;
        if operation.name == "listAudit" {
            assert!(!none.expect(200).to_string().contains(&acme), "{}", none.body);
        } else {
            let problem = none.expect_problem(422, "invalid_request");
            assert_eq!(problem["field"], "Posthorn-Tenant", "{}", operation.name);
        }
        // In its own realm it gets in, and finds nothing of the others.
        let inside = send(Some("eu-one")).await;
        assert!(!matches!(inside.status, 401 | 403), "{} {}", operation.name, inside.status);
        let makes = ["putTopic", "putProfile"].contains(&operation.name.as_str());
        if operation.path.contains('{') && !makes {
            assert_eq!(inside.status, 404, "{}", operation.name);
        }
    }
    assert!(looked_at > 200, "{looked_at}");
    for operation in all_operations(&document).iter().filter(|o| o.scope == "operator") {
        let path = operation.path.replace("{id}", &acme).replace("{name}", "eu");
        for tenant in ["eu-one", "acme"] {
            let reply = ask(&server, operation, &path).key(&key).header("posthorn-tenant", tenant);
            assert_eq!(reply.await.status, 403, "{}", operation.name);
        }
    }
    // All of it is still there.
    let path = format!("/v1/subscriptions/{}", belongings.ids["sub"]);
    server.as_acme("GET", &path).await.expect(200);
}

/// A key that may do everything in the default realm.
async fn default_realm_key(server: &Server) -> String {
    let new = json!({"realm": "default", "scopes": ["publish", "manage", "read"]});
    let made = server.as_operator("POST", "/v1/keys").json(new).await.expect(201);
    made["key"].as_str().unwrap().to_owned()
}

/// Every operation with the key of the realm `default`, in which the system tenant is: what operators are told is about all
/// realms, so to this key there is no such tenant.
#[tokio::test]
async fn a_key_of_the_default_realm_does_not_reach_the_system_tenant() {
    let server = Server::start().await;
    let belongings = Belongings::make(&server).await;
    let key = default_realm_key(&server).await;
    let document: Value = serde_json::from_str(&openapi_document()).unwrap();
    let system = TenantId::SYSTEM.to_string();
    let found = server.as_operator("GET", "/v1/tenants/system").await.expect(200);
    assert_eq!((&found["id"], &found["realm"]), (&json!(system), &json!("default")));
    let mut looked_at = 0;
    for operation in operations(&document).into_iter().filter(|o| o.name != "stream") {
        let kind = kind_of(&operation.path).filter(|_| operation.path.contains('{'));
        let own = kind.map_or_else(String::new, |kind| belongings.ids[kind].clone());
        let path = operation.path.replace("{number}", "1");
        let path = path.replace("{id}", &own).replace("{name}", &own);
        let send = async |tenant: &str| {
            ask(&server, &operation, &path).key(&key).header("posthorn-tenant", tenant).await
        };
        let nobody = send("nobody").await;
        nobody.expect_problem(404, "not_found");
        for named in ["system", &system] {
            same(&send(named).await, &nobody, &format!("{} {named}", operation.name));
            looked_at += 1;
        }
    }
    assert!(looked_at > 80, "{looked_at}");
    // Nor where a tenant is named otherwise.
    for named in ["system", &system] {
        let series = format!("/v1/metrics/series?id={named}");
        let series = server.ask("GET", &series).key(&key).header("posthorn-tenant", "acme");
        series.await.expect_problem(404, "not_found");
        for path in ["", "/export", "/deletion"] {
            let path = format!("/v1/tenants/{named}{path}");
            server.ask("GET", &path).key(&key).await.expect_problem(403, "forbidden");
        }
    }
    // Its own tenants it reaches, and a key of the system tenant reaches that.
    let topics = server.ask("GET", "/v1/topics").key(&key).header("posthorn-tenant", "acme");
    topics.await.expect(200);
    let new = json!({"tenant": "system", "scopes": ["read"]});
    let made = server.as_operator("POST", "/v1/keys").json(new).await.expect(201);
    let own = made["key"].as_str().unwrap();
    server.ask("GET", "/v1/events").key(own).await.expect(200);
    let named = server.ask("GET", "/v1/events").key(own).header("posthorn-tenant", "system");
    named.await.expect(200);
}

/// What a realm owns is shown to its own keys and tenants, and to nobody else.
#[tokio::test]
async fn event_types_of_another_realm_tell_nothing() {
    let server = Server::start().await;
    let key = realm_key(&server).await;
    let put = server.as_operator("PUT", "/v1/event-types/secret.plan").json(json!({}));
    put.await.expect(200);
    let document: Value = serde_json::from_str(&openapi_document()).unwrap();
    let mut seen = BTreeSet::new();
    for operation in all_operations(&document).iter().filter(|o| o.realm) {
        seen.insert(operation.name.clone());
        let path = |name: &str| operation.path.replace("{name}", name);
        let body = match operation.name.as_str() {
            "importEventTypes" => json!({"document": {"openapi": "3.1.0", "webhooks": {}}}),
            _ => json!({}),
        };
        let send = async |path: String, key: &str| {
            let call = server.ask(&operation.method, &path).key(key);
            if operation.body.is_some() { call.json(&body).await } else { call.await }
        };
        for (whose, who) in [("realm", &key), ("tenant", &server.keys.acme)] {
            let what = format!("{} by a key of a {whose}", operation.name);
            let foreign = if whose == "realm" { "default" } else { "eu" };
            let theirs = send(format!("{}?realm={foreign}", path("secret.plan")), who).await;
            let nobody = send(format!("{}?realm=nowhere", path("secret.plan")), who).await;
            same(&theirs, &nobody, &what);
            let changes = operation.scope == "manage" && whose == "tenant";
            assert_eq!(theirs.status, if changes { 403 } else { 404 }, "{what}");
        }
        // In its own realm there is no such thing.
        if operation.name == "getEventType" || operation.name == "deleteEventType" {
            send(path("secret.plan"), &key).await.expect_problem(404, "not_found");
        }
    }
    assert_eq!(seen.len(), 7, "{seen:?}");
    let list = server.ask("GET", "/v1/event-types").key(&key).await.expect(200);
    let names: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|i| &i["name"]).collect();
    assert!(!names.contains(&&json!("secret.plan")), "{list}");
    let list = server.as_acme("GET", "/v1/event-types").await.expect(200);
    assert_eq!(list["items"][0]["name"], "secret.plan", "its tenants see what they share");
}
