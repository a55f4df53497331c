//! What operators ask about the server itself, over the API and with commands.

use posthorn_testkit::program::{Home, Running};
use posthorn_testkit::wait::until;
use serde_json::{Value, json};

use crate::postgres::{database, nodes};

#[test]
fn two_nodes_are_listed_and_one_that_is_killed_is_lost() {
    let database = database();
    let quick = |home: Home| {
        let rest = "engine: {lease: 3s, heartbeat_interval: 500ms, drain_timeout: 2s}";
        home.edit("engine: {drain_timeout: 2s}", rest);
        home
    };
    let homes = [quick(Home::new()), quick(Home::new())];
    let [(_one, first), (_two, second)] = nodes(&database, homes);
    let list = || first.ask("nodes list")["items"].as_array().cloned().unwrap_or_default();
    let held = |node: &Value| node["shards"].as_array().map_or(0, Vec::len);
    let shared = || {
        let all = list();
        all.len() == 2 && all.iter().all(|node| held(node) > 8)
    };
    until("both nodes to hold shards", shared);
    let all = list();
    assert_eq!(all.iter().map(held).sum::<usize>(), 64, "{all:?}");
    assert_eq!(all.iter().filter(|node| node["here"] == true).count(), 1, "{all:?}");
    for node in &all {
        assert_eq!(
            (&node["alive"], &node["version"]),
            (&json!(true), &json!(env!("CARGO_PKG_VERSION")))
        );
    }
    let table = first.run("nodes list").exits(0).out;
    assert!(table.contains("VERSION") && table.contains("SHARDS"), "{table}");
    // Dropped without a word.
    drop(second);
    let lost = || list().iter().any(|node| node["alive"] == false && held(node) == 0);
    until("the other one to be lost", lost);
    until("its shards to be taken", || list().iter().any(|node| held(node) == 64));
    first.stop();
}

#[test]
fn the_configuration_in_effect_is_told_without_secrets() {
    let mut home = Home::new();
    home.configure(
        "callbacks: {payment_success_url: 'http://127.0.0.1:9/hook', hmac_secret: hush-hush}\n",
    );
    home.configure("log: {level: warn}\n");
    let server = home.serve();
    let reply = server.call("GET", "/v1/config").send();
    let config = reply.expect(200);
    let entry = |key: &str| {
        let all = config["items"].as_array().expect("items");
        all.iter().find(|entry| entry["key"] == key).unwrap_or_else(|| panic!("no {key}")).clone()
    };
    assert_eq!(entry("log.level")["value"], "warn");
    assert!(entry("log.level")["source"].as_str().is_some_and(|from| from.starts_with("file ")));
    assert_eq!(entry("callbacks.hmac_secret")["value"], "(redacted)");
    assert!(!reply.body.contains("hush-hush"), "{}", reply.body);
    // As `posthorn check` has it.
    let checked = home.run("check --json").exits(0).json();
    assert_eq!(checked.as_array().map(Vec::len), config["items"].as_array().map(Vec::len));
    server.stop();
}

#[test]
fn agents_that_are_connected_are_seen_by_operators() {
    let mut home = Home::new();
    let server = home.serve();
    assert_eq!(server.ask("push status")["enabled"], false);
    server.run(&["push", "agent", &"0".repeat(32)]).fails().says(&["push.enabled"]);
    server.stop();

    home.configure("push: {enabled: true}\n");
    let server = home.serve();
    let args = ["listen", "--push", "--subscribe", "orders", "--count", "1", "--json"];
    let mut listener = Running::start(server.command().args(args));
    let one = || server.ask("push status")["agents"] == 1;
    until("an agent", one);
    let status = server.ask("push status");
    assert_eq!(
        (&status["nodes"][0]["agents"], &status["nodes"][0]["here"]),
        (&json!(1), &json!(true))
    );
    assert_eq!(status["nodes"][0]["sockets"], 1, "{status}");
    // An agent is there before what it subscribes to: an event before that is for nobody.
    listener.says("subscribed to orders");
    server.ask("send orders order.created");
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    server.stop();
}

#[test]
fn the_settings_of_notificaties_are_the_same_over_the_api_and_as_a_command() {
    let home = Home::new();
    home.configure("dialects: {notificaties: {enabled: true}}\n");
    let (_home, server) = home.served();
    let path = "/v1/notificaties/settings";
    let shown = server.call("GET", path).send().expect(200);
    assert_eq!(shown["notification_delivery_max_retries"], 7);
    let change = json!({"notification_delivery_max_retries": 3, "notification_delivery_retry_backoff": true});
    let changed = server.call("PATCH", path).json(&change).send().expect(200);
    assert_eq!(changed["notification_delivery_retry_backoff"], 1.0);
    let told = server.ask("notificaties settings --tenant notificaties");
    assert_eq!(told, changed);
    let wrong = json!({"notification_delivery_max_retries": 1_000});
    let refused = server.call("PATCH", path).json(&wrong).send().expect(422);
    assert_eq!(refused["field"], "notification_delivery_max_retries");
    // The change has its line.
    let audit = server.ask("audit list --action profile");
    assert_eq!(audit["items"].as_array().map(Vec::len), Some(1), "{audit}");
    server.stop();
}
