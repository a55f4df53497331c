//! Operational webhooks of the Svix API: who is told what, in which words, and whose endpoints these are.

use posthorn_testkit::caller::{Reply, call};
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::receiver::Receiver;
use serde_json::{Value, json};

use crate::cedros_world::On;

const BASE: &str = "/api/v1/operational-webhook/endpoint";

/// One attempt is enough to be a dead letter.
const CONFIGURATION: &str = "dialects: {svix: {enabled: true, profile: once}}\n";

fn ask(server: &Server, key: &str, method: &str, path: &str, body: Option<&Value>) -> Reply {
    let request = call(&server.url, method, path);
    let request = request.header("authorization", &format!("Bearer {key}"));
    match body {
        Some(body) => request.json(body).send(),
        None => request.send(),
    }
}

fn key_of(server: &Server, realm: &str) -> String {
    server.ask(&["realms", "put", realm]);
    let scopes = ["--scope", "manage", "--scope", "read", "--scope", "publish"];
    let mut args = vec!["keys", "create", "--realm", realm];
    args.extend(scopes);
    server.ask(&args)["key"].as_str().expect("a key").to_owned()
}

/// What a receiver was told: types, and the data of each.
fn told(receiver: &Receiver) -> Vec<(String, Value)> {
    let all = receiver.seen();
    let told = all.iter().map(|request| {
        let body = request.json();
        (body["type"].as_str().expect("a type").to_owned(), body["data"].clone())
    });
    told.collect()
}

fn tells(on: On) {
    let mut home = Home::new();
    home.configure(CONFIGURATION);
    let _database = on.store(&home);
    let server = home.serve();
    let (eu, us) = (key_of(&server, "eu"), key_of(&server, "us"));
    let (ear, other, dead) = (Receiver::new(204), Receiver::new(204), Receiver::new(503));

    let wanted = json!({
        "url": ear.url("/ops"), "uid": "ops",
        "eventTypes": ["endpoint.created", "endpoint.deleted", "message.attempt.exhausted"],
    });
    let made = ask(&server, &eu, "POST", BASE, Some(&wanted)).expect(201);
    assert_eq!((&made["uid"], &made["disabled"]), (&json!("ops"), &json!(false)));
    // The same uid is another endpoint's in another organisation, and that is told nothing of this one.
    let theirs = json!({"url": other.url("/ops"), "uid": "ops"});
    ask(&server, &us, "POST", BASE, Some(&theirs)).expect(201);

    let app = json!({"name": "ACME", "uid": "acme"});
    let app = ask(&server, &eu, "POST", "/api/v1/app", Some(&app)).expect(201);
    let endpoint = json!({"url": dead.url("/"), "uid": "main"});
    let endpoint = ask(&server, &eu, "POST", "/api/v1/app/acme/endpoint", Some(&endpoint));
    let endpoint = endpoint.expect(201);
    let message = json!({"eventType": "a", "payload": {}, "eventId": "order-7"});
    let message = ask(&server, &eu, "POST", "/api/v1/app/acme/msg", Some(&message)).expect(202);
    ear.wait_for(2);
    ask(&server, &eu, "DELETE", "/api/v1/app/acme/endpoint/main", None);
    ear.wait_for(3);

    let told = told(&ear);
    let of = |kind: &str| &told.iter().find(|(own, _)| own == kind).expect(kind).1;
    let created = of("endpoint.created");
    assert_eq!(
        (&created["appId"], &created["appUid"], &created["endpointId"], &created["endpointUid"]),
        (&app["id"], &json!("acme"), &endpoint["id"], &json!("main"))
    );
    let exhausted = of("message.attempt.exhausted");
    assert_eq!(exhausted["msgId"], message["id"]);
    assert_eq!(exhausted["msgEventId"], "order-7");
    assert_eq!(exhausted["lastAttempt"]["responseStatusCode"], 503);
    assert_eq!(of("endpoint.deleted")["endpointId"], endpoint["id"]);
    // The attempt that is named can be asked for.
    let attempt = exhausted["lastAttempt"]["id"].as_str().expect("an id");
    let path = format!("/api/v1/app/acme/msg/order-7/attempt/{attempt}");
    assert_eq!(ask(&server, &eu, "GET", &path, None).expect(200)["id"], attempt);
    assert_eq!(other.count(), 0, "another organisation's: {:?}", other.heard());
    server.stop();
}

#[test]
fn an_organisation_is_told_what_happens_to_its_own_on_sqlite() {
    tells(On::Sqlite);
}

#[test]
fn an_organisation_is_told_what_happens_to_its_own_on_postgres() {
    tells(On::Postgres);
}

#[test]
fn operational_endpoints_are_changed_listed_and_kept_apart() {
    let home = Home::new();
    home.configure(CONFIGURATION);
    let (_home, server) = home.served();
    let (eu, us) = (key_of(&server, "eu"), key_of(&server, "us"));
    let as_eu =
        |method: &str, path: &str, body: Option<&Value>| ask(&server, &eu, method, path, body);
    let new = json!({"url": "https://a.example", "description": "d", "metadata": {"a": "b"}});
    let made = as_eu("POST", BASE, Some(&new)).expect(201);
    assert_eq!(made["url"], "https://a.example/");
    assert_eq!(made["eventTypes"], Value::Null);
    let own = format!("{BASE}/{}", made["id"].as_str().expect("an id"));

    let bad = json!({"url": "https://a.example", "eventTypes": ["endpoint.gone"]});
    let wrong = as_eu("POST", BASE, Some(&bad)).expect(422);
    assert_eq!(wrong["detail"][0]["loc"], json!(["body", "eventTypes"]));

    let whole = json!({"url": "https://b.example/x", "disabled": true, "uid": "second",
        "filterTypes": ["message.attempt.failing"]});
    let changed = as_eu("PUT", &own, Some(&whole)).expect(200);
    assert_eq!(changed["filterTypes"], json!(["message.attempt.failing"]));
    assert_eq!((&changed["disabled"], &changed["uid"]), (&json!(true), &json!("second")));
    let by_uid = format!("{BASE}/second");
    assert_eq!(as_eu("GET", &by_uid, None).expect(200)["id"], made["id"]);
    let taken = json!({"url": "https://c.example/", "uid": "second"});
    assert_eq!(as_eu("POST", BASE, Some(&taken)).status, 409);

    let headers = json!({"headers": {"x-team": "ops"}});
    assert_eq!(as_eu("PUT", &format!("{own}/headers"), Some(&headers)).status, 204);
    let read = as_eu("GET", &format!("{own}/headers"), None).expect(200);
    assert_eq!(read["headers"]["x-team"], "ops");
    let secret = |path: &str| as_eu("GET", path, None).expect(200)["key"].clone();
    let before = secret(&format!("{own}/secret"));
    assert_eq!(as_eu("POST", &format!("{own}/secret/rotate"), Some(&json!({}))).status, 204);
    assert_ne!(secret(&format!("{own}/secret")), before);

    // Everything of it is unknown to another organisation, and to an application.
    for (method, path) in [
        ("GET", own.clone()),
        ("PUT", own.clone()),
        ("DELETE", own.clone()),
        ("GET", format!("{own}/secret")),
        ("POST", format!("{own}/secret/rotate")),
        ("GET", format!("{own}/headers")),
        ("PUT", format!("{own}/headers")),
    ] {
        let body = json!({"url": "https://evil.example/", "headers": {}});
        let body = matches!(method, "PUT" | "POST").then_some(&body);
        let reply = ask(&server, &us, method, &path, body);
        let made_new = method == "PUT" && !path.ends_with("headers");
        assert_eq!(reply.status, if made_new { 201 } else { 404 }, "{method} {path}");
    }
    assert_eq!(as_eu("GET", &own, None).expect(200)["url"], "https://b.example/x");
    let list = as_eu("GET", BASE, None).expect(200);
    assert_eq!(list["data"].as_array().map(Vec::len), Some(1), "{list}");
    let app = as_eu("POST", "/api/v1/app", Some(&json!({"name": "a", "uid": "a"}))).expect(201);
    let link = format!("/api/v1/auth/app-portal-access/{}", app["id"].as_str().expect("an id"));
    let token = as_eu("POST", &link, Some(&json!({}))).expect(200);
    let token = token["token"].as_str().expect("a token");
    assert_eq!(ask(&server, token, "GET", BASE, None).status, 403);

    assert_eq!(as_eu("DELETE", &own, None).status, 204);
    assert_eq!(as_eu("GET", &own, None).status, 404);
    server.stop();
}

/// Another organisation may get the name later, and must not be told on.
#[test]
fn a_realm_stays_as_long_as_somebody_is_told_of_it() {
    let mut home = Home::new();
    home.configure(CONFIGURATION);
    let server = home.serve();
    let key = key_of(&server, "eu");
    let made = json!({"url": "https://ops.example.com/", "uid": "ops"});
    ask(&server, &key, "POST", BASE, Some(&made)).expect(201);
    let keys = server.ask(&["keys", "list"]);
    let keys = keys["items"].as_array().expect("keys").iter().filter(|key| key["realm"] == "eu");
    for key in keys {
        server.ask(&["keys", "revoke", key["id"].as_str().expect("an id")]);
    }
    let delete = || ask(&server, &server.key, "DELETE", "/v1/realms/eu", None);
    let refused = delete().expect(409);
    assert_eq!(refused["code"], "realm_not_empty", "{refused}");
    let all = server.ask(&["subscriptions", "list", "--tenant", "system"]);
    server.ask(&[
        "subscriptions",
        "delete",
        all["items"][0]["id"].as_str().expect("an id"),
        "--tenant",
        "system",
    ]);
    delete().expect(204);
    server.stop();
}
