//! What one call publishes keeps its order: in lists, in replays and in streams.

use posthorn_testkit::program::{Home, Running, Server};
use posthorn_testkit::receiver::Receiver;
use posthorn_testkit::wait::until;
use serde_json::{Value, json};

use crate::cedros_world::On;
use crate::postgres::database;

const COUNT: usize = 50;

/// Publishes a batch with one key in one call, and says what was published in it.
fn publish(server: &Server, first: usize) -> Vec<String> {
    let event = |number: usize| json!({"topic": "orders", "type": "order.changed", "key": "ann", "payload": number});
    let batch: Vec<Value> = (first..first + COUNT).map(event).collect();
    let reply = server.call("POST", "/v1/events/batch").json(json!({"events": batch})).send();
    let reply = reply.expect(200);
    let id = |item: &Value| item["id"].as_str().expect("an id").to_owned();
    reply["items"].as_array().expect("items").iter().map(id).collect()
}

fn order_is_kept(on: On) {
    let database = matches!(on, On::Postgres).then(database);
    let mut home = Home::new();
    if let Some(database) = &database {
        home.store_in(&database.url());
    }
    let server = home.serve();
    server.ask("topics put orders");
    let tail = Running::start(server.command().args(["events", "tail", "--json"]));
    tail.says("following");
    let mut published = publish(&server, 0);
    published.extend(publish(&server, COUNT));
    let told = || -> Vec<String> {
        let line = |line: &str| serde_json::from_str::<Value>(line).expect("a line of JSON");
        let lines = tail.stdout().lines().map(line).collect::<Vec<_>>();
        lines.iter().map(|line| line["item"]["id"].as_str().unwrap_or_default().into()).collect()
    };
    until("all events in the stream", || told().len() == published.len());
    assert_eq!(told(), published, "the stream");
    let listed = server.call("GET", "/v1/events?order=oldest&limit=100").send().expect(200);
    let listed: Vec<&str> = listed["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|i| i["id"].as_str())
        .collect();
    assert_eq!(listed, published, "the list");

    let receiver = Receiver::new(200);
    let subscription = json!({
        "url": receiver.url("/"),
        "policy": {"order": {"scope": "key"}},
        "start": {"event": published[0]},
    });
    let made = server.call("POST", "/v1/subscriptions").json(subscription).send();
    made.expect(201);
    let seen = receiver.wait_for(2 * COUNT);
    let bodies: Vec<String> = seen.iter().map(|request| request.text().to_owned()).collect();
    let numbers: Vec<String> = (0..2 * COUNT).map(|number| number.to_string()).collect();
    assert_eq!(bodies, numbers, "the replay");
    drop(tail);
    server.stop();
}

#[test]
fn what_one_call_publishes_keeps_its_order_on_sqlite() {
    order_is_kept(On::Sqlite);
}

#[test]
fn what_one_call_publishes_keeps_its_order_on_postgres() {
    order_is_kept(On::Postgres);
}
