//! Realms, tenants and event types with the real program: its commands, an export, and a deletion across a kill.

use posthorn_testkit::program::{Home, id_of};
use posthorn_testkit::receiver::{Answer, Receiver};
use posthorn_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::cedros_world::On;
use crate::postgres::database;

#[test]
fn realms_and_event_types_by_command() {
    let (home, server) = Home::new().served();
    let realm = server.ask("realms put production --description ours --deliveries-per-second 50");
    assert_eq!(realm["defaults"]["deliveries_per_second"], 50);
    assert_eq!(server.ask("realms show production"), realm);
    let names: Vec<Value> = server.ask("realms list")["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|realm| realm["name"].clone())
        .collect();
    assert_eq!(names, ["default", "production"]);
    let tenant = server.ask(
        "tenants create acme --realm production --external-id 4711 --metadata plan=gold \
         --deliveries-per-second 20",
    );
    assert_eq!((&tenant["realm"], &tenant["external_id"]), (&json!("production"), &json!("4711")));
    let found = server.ask("tenants list --realm production --external-id 4711");
    assert_eq!(found["items"], json!([tenant]));
    let changed =
        server.ask("tenants update acme --name shop --no-external-id --no-deliveries-per-second");
    assert_eq!((&changed["name"], changed.get("external_id")), (&json!("shop"), None));
    assert_eq!(changed["metadata"], json!({"plan": "gold"}));
    assert_eq!(server.ask("tenants show shop"), changed);
    let table = server.run("tenants list --name-prefix sh").exits(0);
    assert!(table.out.contains("shop") && table.out.contains("production"), "{}", table.out);

    // A key of the realm, for each of its tenants and for nothing else.
    let made =
        server.ask("keys create --realm production --scope manage --scope publish --scope read");
    let key = made["key"].as_str().expect("shown once");
    server.ask(&["topics", "put", "orders", "--tenant", "shop", "--key", key]);
    server.run(&["topics", "list", "--key", key]).exits(1).says(&["Posthorn-Tenant"]);
    server
        .run(&["topics", "list", "--tenant", "default", "--key", key])
        .exits(1)
        .says(&["not_found"]);
    server.run(&["tenants", "list", "--key", key]).exits(77).says(&["forbidden"]);

    home.write("order.json", r#"{"type": "object", "required": ["amount"]}"#);
    let put = [
        "event-types",
        "put",
        "order.made",
        "--group",
        "orders",
        "--schema",
        "1=@order.json",
        "--example",
        r#"{"amount": 1}"#,
        "--key",
        key,
    ];
    let shown = server.ask(&put);
    assert_eq!(shown["schemas"], json!({"1": {"type": "object", "required": ["amount"]}}));
    assert_eq!(server.ask("event-types show order.made --realm production"), shown);
    let document =
        json!({"openapi": "3.1.0", "webhooks": {"order.gone": {"post": {"summary": "gone"}}}});
    home.write("openapi.json", document.to_string());
    let import = "event-types import @openapi.json --realm production --replace-all";
    let planned = server.ask(&format!("{import} --dry-run"));
    assert_eq!(
        (&planned["created"], &planned["archived"]),
        (&json!(["order.gone"]), &json!(["order.made"]))
    );
    assert_eq!(server.ask(import)["created"], planned["created"]);
    let listed = server.ask("event-types list --realm production --archived false");
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed}");
    server.run("event-types import {} --realm production").exits(1).says(&["invalid_event_type"]);

    server.ask("realms put production --validation schema");
    let send = |kind: &str, payload: &str| {
        server.run(&["send", "orders", kind, payload, "--tenant", "shop", "--key", key])
    };
    send("order.made", "{}").exits(1).says(&["unknown_event_type"]);
    server.ask(&put);
    send("order.made", "{}").exits(1).says(&["payload_not_valid", "amount"]);
    send("order.made", r#"{"amount": 1}"#).exits(0);
    server.ask("event-types delete order.gone --realm production");
    server.run("realms delete production").exits(1).says(&["realm_not_empty"]);
    server.ask("realms put empty");
    server.ask("realms delete empty");
    server.stop();
}

fn leaves(on: On) {
    let mut home = Home::new();
    let database = match on {
        On::Sqlite => None,
        On::Postgres => Some(database()),
    };
    if let Some(database) = &database {
        home.store_in(&database.url());
    }
    let mut server = home.serve();
    let tenant = id_of(&server.ask("tenants create acme"));
    server.ask("topics put orders --tenant acme");
    server.ask("topics put orders");
    let receiver = Receiver::new(Answer::from(503));
    let subscribe = ["subscriptions", "create", &receiver.url("/"), "--topic", "orders"];
    let made = server.ask(&[&subscribe[..], &["--tenant", "acme"]].concat());
    let secret = made["signing_secret"].as_str().expect("shown once");
    server.ask("send orders order.created --tenant acme --count 3000");
    server.ask("send orders order.created");
    receiver.wait_for(5);

    let export = server.run("tenants export acme").exits(0);
    let lines: Vec<Value> = export
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!(
        (of("tenant"), of("subscription"), of("event"), of("delivery")),
        (1, 1, 3_000, 3_000)
    );
    assert_eq!(lines.last().expect("lines")["kind"], "end");
    assert!(!export.out.contains(secret));

    let job = server.ask("tenants delete acme");
    assert_eq!(job["kind"], "delete_tenant");
    // Killed while it removes rows; whoever starts next goes on.
    server.running.signal("KILL");
    server.running.wait();
    server = home.serve();
    server.run("send orders order.created --tenant acme").fails();
    let done = eventually("the end of the deletion", || {
        let job = server.ask(&["tenants", "deletion", &tenant]);
        (job["state"] != "running").then_some(job)
    });
    assert_eq!((&done["id"], &done["state"]), (&job["id"], &json!("done")));
    assert!(done["done"].as_u64().is_some_and(|rows| rows > 6_000), "{done}");
    server.run(&["tenants", "show", &tenant]).exits(1).says(&["tenant_deleted"]);
    server.run("tenants show acme").exits(1).says(&["not_found"]);
    server.run(&["tenants", "export", &tenant]).exits(1).says(&["tenant_deleted"]);
    let heir = server.ask("tenants create acme");
    assert_ne!(id_of(&heir), tenant);
    assert_eq!(server.ask("stats --tenant acme")["events"], 0);
    assert_eq!(server.ask("stats")["events"], 1, "others lose nothing");
    server.run("check store").exits(0);
    server.stop();
}

#[test]
fn a_tenant_leaves_sqlite_with_everything() {
    leaves(On::Sqlite);
}

#[test]
fn a_tenant_leaves_postgres_with_everything() {
    leaves(On::Postgres);
}
