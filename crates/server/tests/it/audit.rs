//! The audit log with the real program: by command on both stores, across a kill, and of a dialect.

use posthorn_testkit::program::{Home, Server};
use serde_json::{Value, json};

use crate::cedros_world::On;
use crate::notificaties_world::{
    Callback, abonnement, ask, home as notificaties, kanaal, native, path_of,
};
use crate::postgres::database;

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().expect("a list").clone()
}

fn actions(server: &Server, query: &str) -> Vec<String> {
    let list = server.ask(&format!("audit list {query}"));
    items(&list).iter().map(|line| line["action"].as_str().expect("a text").to_owned()).collect()
}

fn by_command(on: On) {
    let mut home = Home::new();
    let database = match on {
        On::Sqlite => None,
        On::Postgres => Some(database()),
    };
    if let Some(database) = &database {
        home.store_in(&database.url());
    }
    let server = home.serve();
    // What the server needed for itself, and its first key, in its own name.
    let first = items(&server.ask("audit list --oldest"));
    assert_eq!(
        first
            .iter()
            .map(|line| (&line["action"], &line["actor"]["kind"], &line["surface"]))
            .collect::<Vec<_>>(),
        [
            (&json!("tenant.created"), &json!("server"), &json!("server")),
            (&json!("key.created"), &json!("server"), &json!("config")),
        ]
    );
    server.ask("topics put orders");
    server.ask("topics put orders --description d");
    let made = server.ask("subscriptions create https://a.example/ --topic orders");
    let id = made["id"].as_str().expect("an id").to_owned();
    server.ask("tenants create acme");
    server.ask("--tenant acme topics put theirs");
    assert_eq!(
        actions(&server, "--action topic --oldest"),
        ["topic.created", "topic.updated", "topic.created"]
    );
    assert_eq!(actions(&server, "--tenant acme"), ["topic.created", "tenant.created"]);
    assert_eq!(actions(&server, &format!("--object {id}")), ["subscription.created"]);
    assert_eq!(actions(&server, "--action topic.updated --from 1h --limit 1"), ["topic.updated"]);
    assert_eq!(actions(&server, "--action topic --until 1h"), [""; 0]);
    let by = items(&server.ask("audit list --limit 1"))[0]["actor"]["id"]
        .as_str()
        .expect("a key")
        .to_owned();
    assert_eq!(
        actions(&server, &format!("--actor {by} --action subscription")),
        ["subscription.created"]
    );
    let table = server.run("audit list").exits(0);
    for word in ["OBJECT", "subscription.created", id.as_str(), "created at the"] {
        assert!(table.out.contains(word), "{word}: {}", table.out);
    }
    server.run("audit list --action nothing").exits(1).says(&["invalid_request", "action"]);
    // It is all there after a kill.
    let before = items(&server.ask("audit list --limit 200"));
    drop(server);
    let server = home.serve();
    let after = items(&server.ask("audit list --limit 200"));
    assert_eq!(after, before, "a restart changes nothing");
}

#[test]
fn the_audit_log_by_command_on_sqlite() {
    by_command(On::Sqlite);
}

#[test]
fn the_audit_log_by_command_on_postgresql() {
    by_command(On::Postgres);
}

#[test]
fn a_recovered_key_leaves_a_line() {
    let mut home = Home::new();
    drop(home.serve());
    let made = home.run("keys recover --json").exits(0).json();
    let server = home.serve();
    let list = items(&server.ask("audit list --action key --limit 1"));
    assert_eq!(list[0]["object"]["id"], made["id"]);
    assert_eq!((&list[0]["surface"], &list[0]["actor"]["kind"]), (&json!("cli"), &json!("server")));
}

#[test]
fn what_clients_of_a_dialect_do_has_their_name() {
    let (_home, server) = notificaties().served();
    let lines = |query: &str| -> Vec<Value> {
        items(&native(&server, "GET", &format!("/v1/audit?{query}"), &Value::Null).expect(200))
    };
    // What the configuration asks for is the server's own doing.
    let tenant = lines("action=tenant");
    assert_eq!(
        (&tenant[0]["surface"], &tenant[0]["object"]["name"]),
        (&json!("config"), &json!("gemeente"))
    );
    kanaal(&server, "zaken", &[]);
    let receiver = Callback::new();
    let made = abonnement(&server, &receiver, &json!([{"naam": "zaken"}]));
    let path = path_of(&made);
    let [line] = <[Value; 1]>::try_from(lines("action=subscription")).expect("one line");
    assert_eq!(line["action"], "subscription.created");
    assert_eq!(line["actor"], json!({"kind": "client", "id": "consumer", "name": null}));
    assert_eq!((&line["surface"], &line["address"]), (&json!("notificaties"), &json!("127.0.0.1")));
    assert!(!line.to_string().contains("callback-secret"), "{line}");
    let [line] = <[Value; 1]>::try_from(lines("action=topic&object=zaken")).expect("one line");
    assert_eq!(line["actor"]["id"], "publisher");
    ask(&server, "consumer", "DELETE", &path, &Value::Null).with(204);
    assert_eq!(
        lines("actor=consumer&order=oldest")
            .iter()
            .map(|line| line["action"].clone())
            .collect::<Vec<_>>(),
        ["subscription.created", "subscription.deleted",]
    );
    // A setup file that an operator sends is the operator's doing.
    let setup = json!({
        "notifications_kanalen_config_enable": true,
        "notifications_kanalen_config": {"items": [{"naam": "besluiten", "filters": []}]},
    });
    native(&server, "PUT", "/v1/notificaties/setup", &setup).expect(200);
    let [line] = <[Value; 1]>::try_from(lines("action=topic&object=besluiten")).expect("one line");
    assert_eq!((&line["actor"]["kind"], &line["surface"]), (&json!("key"), &json!("api")));
}
