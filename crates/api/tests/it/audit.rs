//! The audit log: who may read what of it, that every change leaves its line, and that no line says too much.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use posthorn_api::openapi_document;
use posthorn_domain::AuditEntry;
use posthorn_engine::Bound;
use posthorn_store::{AuditFilter, Listing};
use posthorn_testkit::caller::{Call, Reply};
use serde_json::{Value, json};

use crate::certificates::client_certificate;
use crate::harness::{Problem as _, Server};

/// The newest lines there are.
async fn lines(server: &Server) -> Vec<AuditEntry> {
    let all = server.engine.store().audit(AuditFilter::default(), Listing::newest(5_000)).await;
    all.unwrap().items
}

fn key_id(server: &Server, text: &str) -> String {
    server.engine.authenticate(text).unwrap().key.id.to_string()
}

fn id_of(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}

fn items(list: &Value) -> &Vec<Value> {
    list["items"].as_array().unwrap()
}

/// Operations that change something and leave no line, or not always one, each with the reason.
const EXCEPTIONS: [(&str, &str); 16] = [
    ("publishEvent", "publishing is no change of what is configured"),
    ("publishEvents", "the same"),
    ("republishEvent", "the same"),
    ("validateSender", "answers a question"),
    ("validateBatchSender", "answers a question"),
    ("testSubscription", "sends something that is not stored"),
    ("testFilter", "answers a question"),
    ("countBulk", "answers a question"),
    ("countExpunge", "answers a question"),
    ("countReplay", "answers a question"),
    ("countResend", "answers a question"),
    ("countNotificatiesResend", "answers a question"),
    ("findPushAgent", "it only looks; an endpoint does not belong into a URL"),
    (
        "updateNotificatiesSettings",
        "what it changes is a profile, which leaves its own line; see the tests of the server",
    ),
    (
        "applyNotificatiesSetup",
        "a line for each thing it changes; needs the dialect, whose tests look at it",
    ),
    ("resendNotificaties", "needs the dialect; it is a job like others"),
];

/// Every operation of the document that is no question.
fn changing() -> BTreeSet<String> {
    let document: Value = serde_json::from_str(&openapi_document()).unwrap();
    let mut all = BTreeSet::new();
    for methods in document["paths"].as_object().unwrap().values() {
        for (method, operation) in methods.as_object().unwrap() {
            if method != "get" {
                all.insert(operation["operationId"].as_str().unwrap().to_owned());
            }
        }
    }
    all
}

/// Walks through operations, and looks what each leaves in the log.
struct Walk<'s> {
    server: &'s Server,
    done: BTreeMap<String, String>,
}

impl Walk<'_> {
    /// Makes one call, which leaves one line of this action.
    async fn make(&mut self, operation: &str, action: &str, call: Call) -> Value {
        let before = lines(self.server).await;
        let reply: Reply = call.await;
        assert!((200..300).contains(&reply.status), "{operation}: {} {}", reply.status, reply.body);
        let after = lines(self.server).await;
        let new: Vec<&AuditEntry> = after.iter().filter(|line| !before.contains(line)).collect();
        let [line] = new.as_slice() else { panic!("{operation} left {new:?}") };
        assert_eq!(line.action.as_str(), action, "{operation}: {line:?}");
        let made_by = line.actor.id.as_deref();
        let known = [&self.server.keys.acme, &self.server.keys.operator];
        let known = known.map(|text| key_id(self.server, text));
        assert!(
            made_by.is_some_and(|id| known.iter().any(|key| key == id)),
            "{operation}: {line:?}"
        );
        assert_eq!(line.origin.surface, "api");
        assert_eq!(line.origin.address, Some("127.0.0.1".parse().unwrap()), "{operation}");
        self.done.insert(operation.to_owned(), action.to_owned());
        if reply.body.is_empty() { Value::Null } else { reply.json() }
    }
}

#[tokio::test]
async fn every_change_leaves_exactly_one_line() {
    let server = Server::start().await;
    let acme = |method: &str, path: &str| server.as_acme(method, path);
    let operator = |method: &str, path: &str| server.as_operator(method, path);
    let mut walk = Walk { server: &server, done: BTreeMap::new() };

    let put = acme("PUT", "/v1/topics/orders").json(json!({}));
    walk.make("putTopic", "topic.created", put).await;
    let put = acme("PUT", "/v1/topics/orders").json(json!({"description": "d"}));
    walk.make("putTopic", "topic.updated", put).await;
    acme("PUT", "/v1/topics/spare").json(json!({})).await.expect(200);
    walk.make("deleteTopic", "topic.deleted", acme("DELETE", "/v1/topics/spare")).await;

    let new = json!({"url": "https://ok.example/", "name": "one"});
    let call = acme("POST", "/v1/subscriptions").json(new);
    let one = id_of(&walk.make("createSubscription", "subscription.created", call).await);
    let path = format!("/v1/subscriptions/{one}");
    let call = acme("PATCH", &path).json(json!({"description": "d"}));
    walk.make("updateSubscription", "subscription.updated", call).await;
    let call = acme("POST", &format!("{path}/pause"));
    walk.make("pauseSubscription", "subscription.paused", call).await;
    let call = acme("POST", &format!("{path}/resume"));
    walk.make("resumeSubscription", "subscription.resumed", call).await;
    let call = acme("POST", &format!("{path}/rotate-secret")).json(json!({}));
    walk.make("rotateSecret", "subscription.updated", call).await;

    let (first, second) = (server.publish("1").await, server.publish("2").await);
    let delivery = id_of(&server.delivery_in(&first, "delivered").await);
    server.delivery_in(&second, "delivered").await;
    let call =
        acme("POST", &format!("/v1/events/{first}/deliver")).json(json!({"subscription": one}));
    walk.make("deliverEvent", "job.created", call).await;
    server.delivery_in(&first, "delivered").await;
    let slow = json!({"status": "all", "per_second": 1});
    let call = acme("POST", &format!("{path}/replay")).json(slow);
    let job = id_of(&walk.make("replay", "job.created", call).await);
    walk.make("cancelJob", "job.cancelled", acme("POST", &format!("/v1/jobs/{job}/cancel"))).await;
    let call = acme("POST", "/v1/deliveries/resend").json(json!({"status": "failed"}));
    walk.make("resendDeliveries", "job.created", call).await;
    server.delivery_in(&first, "delivered").await;
    let none = json!({"action": "forget", "state": "cancelled"});
    let call = acme("POST", "/v1/deliveries/bulk").json(none);
    walk.make("createBulk", "job.created", call).await;
    let call = acme("DELETE", &format!("/v1/deliveries/{delivery}/attempts/1/response"));
    walk.make("expungeResponse", "response.expunged", call).await;
    let call = acme("POST", &format!("/v1/deliveries/{delivery}/retry"));
    walk.make("retryDelivery", "delivery.retried", call).await;
    server.delivery_in(&first, "delivered").await;
    let call = acme("DELETE", &format!("/v1/deliveries/{delivery}"));
    walk.make("forgetDelivery", "delivery.forgotten", call).await;
    let call = acme("DELETE", &format!("/v1/events/{first}/payload"));
    walk.make("expungeEvent", "event.expunged", call).await;
    let call = acme("POST", "/v1/events/expunge").json(json!({"topics": ["nothing"]}));
    walk.make("expungeEvents", "job.created", call).await;
    walk.make("deleteSubscription", "subscription.deleted", acme("DELETE", &path)).await;

    let policy = json!({"schedule": {"max_attempts": 1}});
    let new = json!({"url": "https://dead.example/", "policy": policy});
    let two = id_of(&acme("POST", "/v1/subscriptions").json(new).await.expect(201));
    let dead = id_of(&server.delivery_in(&server.publish("3").await, "dead").await);
    let call = acme("POST", &format!("/v1/dead-letters/{dead}/retry"));
    walk.make("retryDeadLetter", "delivery.retried", call).await;
    let call = acme("POST", "/v1/redrives").json(json!({"reason": "gate"}));
    walk.make("createRedrive", "redrive.created", call).await;
    // One that nobody advances before it is stopped.
    let running = running_redrive(&server).await;
    let call = acme("POST", &format!("/v1/redrives/{running}/cancel"));
    walk.make("cancelRedrive", "redrive.cancelled", call).await;
    acme("POST", &format!("/v1/subscriptions/{two}/pause")).await.expect(200);
    let waiting = id_of(&server.delivery_in(&server.publish("4").await, "pending").await);
    let call = acme("POST", &format!("/v1/deliveries/{waiting}/cancel"));
    walk.make("cancelDelivery", "delivery.cancelled", call).await;

    let profile = json!({"base": "default", "policy": {}});
    let call = acme("PUT", "/v1/profiles/plan").json(profile);
    walk.make("putProfile", "profile.created", call).await;
    walk.make("deleteProfile", "profile.deleted", acme("DELETE", "/v1/profiles/plan")).await;
    let client = json!({"secret": "hush", "scopes": ["a"]});
    let call = operator("PUT", "/v1/clients/zaak").header("posthorn-tenant", "acme").json(client);
    walk.make("putClient", "client.created", call).await;
    let call = operator("DELETE", "/v1/clients/zaak").header("posthorn-tenant", "acme");
    walk.make("deleteClient", "client.deleted", call).await;
    let call = acme("POST", "/v1/certificates").json(client_certificate());
    let certificate = id_of(&walk.make("createCertificate", "certificate.created", call).await);
    let path = format!("/v1/certificates/{certificate}");
    let mut rotation = client_certificate();
    for field in ["kind", "host"] {
        rotation.as_object_mut().unwrap().remove(field);
    }
    let call = acme("POST", &format!("{path}/rotate")).json(rotation);
    walk.make("rotateCertificate", "certificate.updated", call).await;
    let call = acme("POST", &format!("{path}/revoke"));
    walk.make("revokeCertificate", "certificate.revoked", call).await;
    walk.make("deleteCertificate", "certificate.deleted", acme("DELETE", &path)).await;

    let call = operator("PUT", "/v1/realms/eu").json(json!({}));
    walk.make("putRealm", "realm.created", call).await;
    let call = operator("PUT", "/v1/event-types/a.b?realm=eu").json(json!({}));
    walk.make("putEventType", "event_type.created", call).await;
    let call = operator("DELETE", "/v1/event-types/a.b?realm=eu");
    walk.make("deleteEventType", "event_type.deleted", call).await;
    let hook = json!({"post": {"requestBody": {"content": {"application/json": {"schema": {}}}}}});
    let document = json!({"openapi": "3.1.0", "webhooks": {"c.d": hook}});
    let call = operator("POST", "/v1/event-types/import").json(json!({"document": document}));
    walk.make("importEventTypes", "event_type.created", call).await;
    walk.make("deleteRealm", "realm.deleted", operator("DELETE", "/v1/realms/eu")).await;
    let call = operator("POST", "/v1/tenants").json(json!({"name": "third"}));
    let tenant = id_of(&walk.make("createTenant", "tenant.created", call).await);
    let path = format!("/v1/tenants/{tenant}");
    let call = operator("PATCH", &path).json(json!({"name": "fourth"}));
    walk.make("updateTenant", "tenant.updated", call).await;
    let new = json!({"tenant": tenant, "scopes": ["read"], "description": "a reader"});
    let call = operator("POST", "/v1/keys").json(new);
    let key = id_of(&walk.make("createKey", "key.created", call).await);
    let new = json!({"name": "Ann", "label": "theirs"});
    let call = acme("POST", "/v1/portal/links").json(&new);
    let link = id_of(&walk.make("createPortalLink", "portal_link.created", call).await);
    let call = acme("DELETE", &format!("/v1/sessions/{link}"));
    walk.make("endSession", "session.ended", call).await;
    for _ in 0..2 {
        acme("POST", "/v1/portal/links").json(&new).await.expect(201);
    }
    let call = acme("DELETE", "/v1/sessions?label=theirs");
    let ended = walk.make("endSessions", "session.ended", call).await;
    assert_eq!(ended, json!({"ended": 2}));
    let before = lines(&server).await.len();
    let nothing = acme("DELETE", "/v1/sessions?label=theirs").await.expect(200);
    assert_eq!(nothing, json!({"ended": 0}));
    assert_eq!(lines(&server).await.len(), before, "nothing was ended");
    let call = operator("DELETE", &format!("/v1/keys/{key}"));
    walk.make("revokeKey", "key.revoked", call).await;
    walk.make("deleteTenant", "tenant.deleted", operator("DELETE", &path)).await;

    // Nothing is sealed with another key, so nothing is sealed anew.
    let before = lines(&server).await.len();
    operator("POST", "/v1/seal/rotate").await.expect(200);
    assert_eq!(lines(&server).await.len(), before);
    walk.done
        .insert("rotateSeal".to_owned(), "a line for each thing that is sealed anew".to_owned());

    // It is not on hold.
    let answer = operator("POST", "/v1/resume").await.expect(200);
    assert_eq!(answer, json!({"was_on_hold": false}));
    assert_eq!(lines(&server).await.len(), before);
    walk.done.insert("resume".to_owned(), "a line when there was a hold".to_owned());

    let covered: BTreeSet<String> = walk.done.keys().cloned().collect();
    let exceptions: BTreeSet<String> =
        EXCEPTIONS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let all: BTreeSet<String> = covered.union(&exceptions).cloned().collect();
    assert_eq!(
        all,
        changing(),
        "every operation that changes something is walked through, or has a reason"
    );
    assert!(covered.is_disjoint(&exceptions));
}

async fn running_redrive(server: &Server) -> String {
    use posthorn_domain::{Redrive, RedriveFilter, RedriveId, RedriveState};
    let now = server.engine.now();
    let redrive = Redrive {
        id: RedriveId::new(now, 7),
        tenant: server.acme,
        filter: RedriveFilter { until: Some(now), ..RedriveFilter::default() },
        per_second: 1,
        state: RedriveState::Running,
        total: 0,
        moved: 0,
        created_at: now,
        finished_at: None,
    };
    server.engine.store().create_redrive(redrive).await.unwrap().id.to_string()
}

/// What is refused, and what asks for what is so already, leaves nothing.
#[tokio::test]
async fn what_changes_nothing_leaves_no_line() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({"name": "one"})).await;
    let id = key_id(&server, &server.keys.acme);
    let made = server.engine.create_key(
        Bound::Nobody,
        vec![posthorn_domain::Scope::Operator],
        String::new(),
        None,
        None,
    );
    let spare = made.await.unwrap().key.id;
    server.as_operator("DELETE", &format!("/v1/keys/{spare}")).await.expect(204);
    let before = lines(&server).await;
    server.as_operator("DELETE", &format!("/v1/keys/{spare}")).await.expect(204);
    server.as_acme("DELETE", "/v1/topics/nothing").await.expect_problem(404, "not_found");
    let twin = json!({"url": "https://ok.example/", "name": "one"});
    let reply = server.as_acme("POST", "/v1/subscriptions").json(twin).await;
    assert_eq!(reply.status, 409, "{}", reply.body);
    server.as_acme("DELETE", &format!("/v1/keys/{id}")).await.expect_problem(403, "forbidden");
    server.as_acme("GET", "/v1/audit").await.expect(200);
    server.publish("1").await;
    assert_eq!(lines(&server).await, before);
}

#[tokio::test]
async fn each_reader_sees_what_is_theirs() {
    let server = Server::start().await;
    let operator = |method: &str, path: &str| server.as_operator(method, path);
    operator("PUT", "/v1/realms/eu").json(json!({})).await.expect(200);
    let new = json!({"name": "eu-one", "realm": "eu"});
    let tenant = id_of(&operator("POST", "/v1/tenants").json(new).await.expect(201));
    let scopes = json!(["manage", "read"]);
    let new = json!({"realm": "eu", "scopes": scopes, "description": "the platform"});
    let realm_key = operator("POST", "/v1/keys").json(new).await.expect(201);
    let new = json!({"tenant": tenant, "scopes": scopes, "description": "the customer"});
    let tenant_key = operator("POST", "/v1/keys").json(new).await.expect(201);
    let text = |key: &Value| key["key"].as_str().unwrap().to_owned();
    let (of_realm, of_tenant) = (text(&realm_key), text(&tenant_key));
    for (name, key) in
        [("by-operator", &server.keys.operator), ("by-realm", &of_realm), ("by-tenant", &of_tenant)]
    {
        let put = server.ask("PUT", &format!("/v1/topics/{name}")).key(key);
        put.header("posthorn-tenant", "eu-one").json(json!({})).await.expect(200);
    }
    server.as_acme("PUT", "/v1/topics/of-acme").json(json!({})).await.expect(200);

    let actors = async |key: &str, query: &str| -> BTreeMap<String, Value> {
        let list =
            server.ask("GET", &format!("/v1/audit?limit=200{query}")).key(key).await.expect(200);
        let pairs = items(&list).iter().map(|line| {
            let object = line["object"]["id"].as_str().unwrap().to_owned();
            assert_eq!(line["address"].is_null(), line["actor"]["id"].is_null(), "{line}");
            (object, line["actor"].clone())
        });
        pairs.collect()
    };
    let shown =
        |kind: &str, key: &Value, name: &str| json!({"kind": kind, "id": key["id"], "name": name});
    let hidden = |kind: &str| json!({"kind": kind, "id": null, "name": null});

    let all = actors(&server.keys.operator, "").await;
    assert_eq!(all["by-realm"], shown("key", &realm_key, "the platform"));
    assert_eq!(all["by-tenant"], shown("key", &tenant_key, "the customer"));
    assert_eq!(all["by-operator"]["id"], key_id(&server, &server.keys.operator));
    assert_eq!(all["eu"]["kind"], "key");
    assert!(all.contains_key("of-acme") && all.contains_key(&id_of(&realm_key)));
    // The server made these itself.
    assert_eq!(all[&server.acme.to_string()]["kind"], "server");

    let topics = "&action=topic.created";
    let seen = actors(&of_realm, topics).await;
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["by-operator", "by-realm", "by-tenant"]);
    assert_eq!(seen["by-operator"], hidden("operator"));
    assert_eq!(seen["by-realm"], shown("key", &realm_key, "the platform"));
    assert_eq!(seen["by-tenant"], shown("key", &tenant_key, "the customer"));
    let seen = actors(&of_tenant, topics).await;
    assert_eq!(seen["by-operator"], hidden("operator"));
    assert_eq!(seen["by-realm"], hidden("realm"));
    assert_eq!(seen["by-tenant"], shown("key", &tenant_key, "the customer"));
    let whole = actors(&of_realm, "").await;
    assert!(whole.contains_key("eu") && whole.contains_key(&id_of(&realm_key)), "{whole:?}");
    assert!(!whole.contains_key("of-acme"));
    let own = actors(&of_tenant, "").await;
    assert!(own.contains_key(&id_of(&tenant_key)) && !own.contains_key("eu"), "{own:?}");

    // Whom one does not know, one cannot ask for.
    let asked = async |key: &str, actor: &Value| {
        actors(key, &format!("&actor={}", actor.as_str().unwrap()))
            .await
            .into_keys()
            .collect::<Vec<_>>()
    };
    let by = json!(key_id(&server, &server.keys.operator));
    assert!(asked(&server.keys.operator, &by).await.contains(&"by-operator".to_owned()));
    assert_eq!(asked(&of_realm, &by).await, [""; 0]);
    assert_eq!(asked(&of_tenant, &by).await, [""; 0]);
    assert_eq!(asked(&of_tenant, &realm_key["id"]).await, [""; 0]);
    assert_eq!(asked(&of_tenant, &tenant_key["id"]).await, ["by-tenant"]);
    assert_eq!(asked(&of_realm, &tenant_key["id"]).await, ["by-tenant"]);

    // An operator, and a key of a realm, may ask for one tenant; by parameter or by header.
    let only = actors(&server.keys.operator, "&tenant=acme&action=topic").await;
    assert_eq!(only.keys().collect::<Vec<_>>(), ["of-acme"]);
    let only = actors(&of_realm, "&tenant=eu-one&action=topic").await;
    assert_eq!(only.len(), 3);
    let named = operator("GET", "/v1/audit?action=topic").header("posthorn-tenant", "acme");
    assert_eq!(items(&named.await.expect(200)).len(), 1);
    let both = operator("GET", "/v1/audit?tenant=acme").header("posthorn-tenant", "eu-one").await;
    assert_eq!(both.expect_problem(422, "invalid_request")["field"], "tenant");
    let only = actors(&server.keys.operator, "&realm=eu&action=realm").await;
    assert_eq!(only.keys().collect::<Vec<_>>(), ["eu"]);
    // Without the scope, nobody reads anything.
    let publish = &server.keys.only[&posthorn_domain::Scope::Publish];
    server.ask("GET", "/v1/audit").key(publish).await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn lists_have_filters_orders_and_cursors() {
    let server = Server::start().await;
    let mut made = Vec::new();
    for n in 0..5 {
        let name = format!("topic-{n}");
        server.as_acme("PUT", &format!("/v1/topics/{name}")).json(json!({})).await.expect(200);
        made.push(name);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    server
        .as_acme("PUT", "/v1/topics/topic-0")
        .json(json!({"description": "x", "attributes": ["a"]}))
        .await
        .expect(200);
    let get =
        async |query: &str| server.as_acme("GET", &format!("/v1/audit?{query}")).await.expect(200);
    let objects = |list: &Value| -> Vec<String> {
        items(list).iter().map(|line| line["object"]["id"].as_str().unwrap().to_owned()).collect()
    };
    let updated = get("action=topic.updated").await;
    let [line] = items(&updated).as_slice() else { panic!("{updated}") };
    assert_eq!(line["detail"], json!({"fields": ["attributes", "description"]}));
    assert_eq!(line["object"], json!({"kind": "topic", "id": "topic-0", "name": null}));
    assert_eq!((&line["surface"], &line["realm"]), (&json!("api"), &json!("default")));
    assert_eq!(line["tenant"], server.acme.to_string());

    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(&format!("action=topic.created&order=oldest&limit=2{cursor}")).await;
        seen.extend(objects(&page));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, made);
    let newest = get("action=topic.created&limit=1").await;
    assert_eq!(objects(&newest), ["topic-4"]);
    let back = newest["next"].as_str().unwrap();
    assert_eq!(
        objects(&get(&format!("action=topic.created&limit=1&cursor={back}")).await),
        ["topic-3"]
    );
    assert_eq!(objects(&get("object=topic-0").await), ["topic-0", "topic-0"]);
    let third = get("object=topic-2").await;
    let at = items(&third)[0]["at"].as_str().unwrap().to_owned();
    assert_eq!(
        objects(&get(&format!("action=topic&order=oldest&until={at}")).await),
        ["topic-0", "topic-1"]
    );
    assert_eq!(
        objects(&get(&format!("action=topic.created&order=oldest&from={at}&limit=1")).await),
        ["topic-2"]
    );

    for (query, field) in [
        ("action=nothing", "action"),
        ("action=topic.", "action"),
        ("order=up", "order"),
        ("cursor=x", "cursor"),
        ("limit=0", "limit"),
        ("from=yesterday", "from"),
        ("from=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "until"),
        ("subscription=x", "subscription"),
        (&format!("object={}", "x".repeat(400)), "object"),
        ("realm=NOT%20A%20NAME", "realm"),
    ] {
        let problem = server.as_acme("GET", &format!("/v1/audit?{query}")).await;
        assert_eq!(problem.expect_problem(422, "invalid_request")["field"], field, "{query}");
    }
    for query in ["tenant=other", "tenant=no-such", "realm=no-such"] {
        server.as_acme("GET", &format!("/v1/audit?{query}")).await.expect_problem(404, "not_found");
    }
}

/// Whatever is secret, is sent, or is published: none of it stands in a line, nor in what is told of it.
#[tokio::test]
async fn no_line_says_what_is_secret() {
    let server = Server::start().await;
    let ear = json!({"url": "https://ear.example/", "filter": {"any_of": [{"topics": ["posthorn.operational"]}]}});
    let call = server.as_operator("POST", "/v1/subscriptions").header("posthorn-tenant", "system");
    call.json(&ear).await.expect(201);
    let secret = "c2VudGluZWwtc2VjcmV0LXZhbHVlLXNlbnRpbmVs";
    let policy = json!({
        "auth": [{"kind": "bearer", "secret": "token"}],
        "request": {"headers": {"X-Sentinel": "sentinel-header"}},
    });
    let url = "https://ok.example/sentinel-path?sentinel-query=1";
    let body = json!({"policy": policy, "secrets": {"token": format!("sentinel-{secret}")}, "description": "visible"});
    let made = server.subscribe(url, body).await;
    let path = format!("/v1/subscriptions/{}", id_of(&made));
    let change = json!({
        "url": "https://ok.example/sentinel-other",
        "labels": {"note": "sentinel-label"},
        "secrets": {"token": "sentinel-again"},
    });
    server.as_acme("PATCH", &path).json(change).await.expect(200);
    let rotate = json!({"name": "token", "value": "sentinel-third"});
    server.as_acme("POST", &format!("{path}/rotate-secret")).json(rotate).await;
    let event = server.publish(r#"{"card":"sentinel-payload"}"#).await;
    let delivery = server.delivery_in(&event, "delivered").await;
    server.as_acme("POST", &format!("/v1/deliveries/{}/retry", id_of(&delivery))).await.expect(200);
    server.delivery_in(&event, "delivered").await;
    let expunge = json!({"topics": ["orders"], "attributes": {"who": "sentinel-attribute"}});
    server.as_acme("POST", "/v1/events/expunge").json(expunge).await.expect(201);
    let client = json!({"secret": "sentinel-client", "scopes": ["a"]});
    let put = server.as_operator("PUT", "/v1/clients/zaak").header("posthorn-tenant", "acme");
    put.json(client).await.expect(200);
    let certificate = client_certificate();
    let made = server.as_acme("POST", "/v1/certificates").json(&certificate).await.expect(201);
    server.as_acme("POST", &format!("/v1/certificates/{}/revoke", id_of(&made))).await.expect(200);
    let key =
        server.as_operator("POST", "/v1/keys").json(json!({"tenant": "acme", "scopes": ["read"]}));
    let key = key.await.expect(201)["key"].as_str().unwrap().to_owned();
    let profile =
        json!({"base": "default", "policy": {"request": {"headers": {"X-Own": "sentinel-own"}}}});
    server.as_acme("PUT", "/v1/profiles/own").json(profile).await.expect(200);

    let all = lines(&server).await;
    let made: BTreeSet<&str> = all.iter().map(|line| line.action.as_str()).collect();
    for action in [
        "subscription.updated",
        "client.created",
        "certificate.created",
        "key.created",
        "job.created",
        "profile.created",
    ] {
        assert!(made.contains(action), "{made:?}");
    }
    let mut texts: Vec<String> =
        all.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
    let list = server.as_operator("GET", "/v1/audit?limit=200").await.expect(200);
    texts.push(list.to_string());
    let told = async || {
        for _ in 0..1_000 {
            let sent = server.transport.sent_to("ear.example");
            let bodies: Vec<String> =
                sent.iter().map(|sent| String::from_utf8_lossy(&sent.body).into_owned()).collect();
            if bodies.iter().any(|body| body.contains("profile.created")) {
                return bodies;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("operators never heard of the last change");
    };
    texts.extend(told().await);
    let private = certificate["key"].as_str().unwrap().lines().nth(1).unwrap().to_owned();
    let half = key.rsplit('_').next().unwrap().to_owned();
    for text in texts {
        for hidden in ["sentinel", "hush", secret, private.as_str(), half.as_str(), "PRIVATE"] {
            // Of operational events, those of subscriptions say the origin of a URL.
            assert!(!text.contains(hidden), "{hidden} in {text}");
        }
    }
}

/// Who listens is told of each line: a tenant of its own, with as much as it may read, and operators of all.
#[tokio::test]
async fn lines_are_told_to_those_who_listen() {
    let server = Server::start().await;
    let types =
        json!({"any_of": [{"topics": ["posthorn.operational"], "types": ["audit.recorded"]}]});
    for (tenant, host) in
        [("acme", "ear.example"), ("other", "stranger.example"), ("system", "operator.example")]
    {
        let call =
            server.as_operator("POST", "/v1/subscriptions").header("posthorn-tenant", tenant);
        let body = json!({"url": format!("https://{host}/"), "filter": types});
        call.json(body).await.expect(201);
    }
    let before = server.transport.sent_to("ear.example").len();
    assert_eq!(before, 0, "a new subscription is not told of itself");
    server.as_acme("PUT", "/v1/topics/own").json(json!({})).await.expect(200);
    let put = server.as_operator("PUT", "/v1/topics/theirs").header("posthorn-tenant", "acme");
    put.json(json!({})).await.expect(200);
    server.as_operator("PUT", "/v1/realms/eu").json(json!({})).await.expect(200);
    let heard = async |host: &str, object: &str| -> Value {
        for _ in 0..1_000 {
            let sent = server.transport.sent_to(host);
            let bodies =
                sent.iter().map(|sent| serde_json::from_slice::<Value>(&sent.body).unwrap());
            if let Some(found) = bodies.into_iter().find(|body| body["object"]["id"] == object) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{host} never heard of {object}");
    };
    let own = heard("ear.example", "own").await;
    assert_eq!((&own["type"], &own["action"]), (&json!("audit.recorded"), &json!("topic.created")));
    assert_eq!(own["actor"]["id"], key_id(&server, &server.keys.acme));
    let theirs = heard("ear.example", "theirs").await;
    assert_eq!(theirs["actor"], json!({"kind": "operator", "id": null, "name": null}));
    assert_eq!(theirs["address"], Value::Null);
    let full = heard("operator.example", "theirs").await;
    assert_eq!(full["actor"]["id"], key_id(&server, &server.keys.operator));
    assert_eq!(full["address"], "127.0.0.1");
    assert_eq!(heard("operator.example", "eu").await["tenant"], Value::Null);
    // It has settled: one for each line, and none because of another.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let count = |host: &str| server.transport.sent_to(host).len();
    assert_eq!((count("ear.example"), count("stranger.example")), (2, 0));
    assert_eq!(count("operator.example"), 3);
}

/// With a tenant its lines go, but for the one that says who deleted it.
#[tokio::test]
async fn the_line_of_a_deleted_tenant_stays() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/own").json(json!({})).await.expect(200);
    let tenant = server.acme.to_string();
    server.as_operator("DELETE", "/v1/tenants/acme").await.expect(202);
    let path = format!("/v1/audit?tenant={tenant}");
    for _ in 0..1_000 {
        let list = server.as_operator("GET", &path).await.expect(200);
        if let [line] = items(&list).as_slice() {
            assert_eq!(line["action"], "tenant.deleted");
            assert_eq!(line["object"], json!({"kind": "tenant", "id": tenant, "name": "acme"}));
            assert_eq!(line["actor"]["id"], key_id(&server, &server.keys.operator));
            assert!(line["detail"]["job"].as_str().unwrap().starts_with("job_"), "{line}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("its lines never went");
}
