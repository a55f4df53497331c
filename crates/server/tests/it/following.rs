//! What happens and what happened, as the commands show it: the tail and the series, of the real program.

use posthorn_testkit::program::{Home, Running};
use posthorn_testkit::wait::until;
use serde_json::Value;

/// Lines of JSON that a command has written so far.
fn lines(running: &Running) -> Vec<Value> {
    let text = running.stdout();
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn ids(running: &Running) -> Vec<String> {
    let id = |line: &Value| line["item"]["id"].as_str().unwrap_or_default().to_owned();
    lines(running).iter().map(id).collect()
}

/// The tail connects again by itself, and what happened meanwhile is told.
#[test]
fn a_tail_survives_a_restart_of_the_server() {
    let mut home = Home::new();
    let server = home.serve();
    let port = server.url.rsplit(':').next().expect("a port").to_owned();
    server.ask("topics put orders");
    let tail = Running::start(server.command().args(["events", "tail", "--json"]));
    tail.says("following");
    let mut sent = Vec::new();
    let mut send = |server: &posthorn_testkit::program::Server| {
        let id = server.ask("send orders order.created {}")["id"].clone();
        sent.push(id.as_str().expect("an id").to_owned());
        sent.clone()
    };
    let expected = send(&server);
    until("the first event", || ids(&tail) == expected);
    server.stop();
    tail.says("trying again");
    home.edit("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    let server = home.serve();
    let expected = send(&server);
    until("the second event", || ids(&tail) == expected);
    drop(tail);
    server.stop();
}

#[test]
fn deliveries_are_told_attempt_by_attempt_and_counted() {
    let (_home, server) = Home::new().served();
    server.ask("topics put orders");
    let (_listener, address) = server.listen("--status 500");
    server.ask(&["subscriptions", "create", &address, "--profile", "once", "--name", "bad"]);
    let mut tail = server.command();
    let tail = Running::start(tail.args(["deliveries", "tail", "--subscription", "bad"]));
    tail.says("following");
    server.ask("send orders order.created {} --count 2");
    until("two lines", || tail.stdout().matches("#1 500 dead (exhausted)").count() == 2);
    assert!(!tail.stdout().contains('\u{1b}'), "no colours where there is no terminal");
    let sum = |args: &str, field: &str| {
        let series = server.ask(args);
        let points = series["points"].as_array().expect("points").clone();
        points.iter().filter_map(|point| point.pointer(field)?.as_u64()).sum::<u64>()
    };
    let one = "metrics series --scope subscription --id bad";
    until("the figures", || sum(one, "/failed/5xx") == 2);
    assert_eq!((sum(one, "/dead"), sum(one, "/published")), (2, 2));
    assert_eq!(sum("metrics series --scope server --step hour", "/dead"), 2);
    let table = server.run("metrics series --from 10m").exits(0).out;
    assert!(table.starts_with("TIME") && table.lines().count() >= 11, "{table}");
    server.run("metrics series --scope subscription").exits(1).says(&["invalid_request"]);
    server.run("metrics series --scope subscription --id nobody").exits(1).says(&["not_found"]);
    server.stop();
}

/// What was counted is written before the store is closed, and is there after a restart.
#[test]
fn a_clean_stop_loses_no_figures() {
    let mut home = Home::new();
    let server = home.serve();
    let (listener, _) = server.listen("--subscribe orders");
    server.ask("send orders order.created {} --count 50 --create-topic");
    server.settles(&[("delivered", 50)]);
    server.stop();
    drop(listener);
    let server = home.serve();
    let series = server.ask("metrics series");
    let points = series["points"].as_array().expect("points");
    let sum = |field: &str| points.iter().filter_map(|p| p[field].as_u64()).sum::<u64>();
    assert_eq!((sum("published"), sum("delivered"), sum("attempts")), (50, 50, 50), "{series}");
    server.stop();
}
