//! Removing personal data with the real program: one event, one response, many events, across a kill.

use posthorn_testkit::program::{Home, Server, id_of};
use posthorn_testkit::receiver::{Answer, Receiver};
use posthorn_testkit::wait::eventually;
use serde_json::Value;

use crate::cedros_world::On;
use crate::postgres::database;

const SECRET: &str = "4929-leaked-number";
const SAID: &str = "said-by-the-receiver";

fn sent(server: &Server, payload: &str) -> String {
    id_of(&server.ask(&["send", "orders", "order.created", payload]))
}

/// Whether a text is in a file of the data folder.
fn kept(home: &Home, text: &str) -> bool {
    let files = std::fs::read_dir(home.data()).expect("the data folder");
    let read = |path| std::fs::read(path).unwrap_or_default();
    let has = |bytes: Vec<u8>| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    files.flatten().any(|file| has(read(file.path())))
}

fn job_ends(server: &Server, id: &str) -> Value {
    eventually("the end of the job", || {
        let job = server.ask(&["jobs", "show", id]);
        (job["state"] != "running").then_some(job)
    })
}

fn removes(on: On) {
    let mut home = Home::new();
    let database = match on {
        On::Sqlite => None,
        On::Postgres => Some(database()),
    };
    if let Some(database) = &database {
        home.store_in(&database.url());
    }
    let mut server = home.serve();
    server.ask("topics put orders");
    let receiver = Receiver::new(Answer::from(200).body(SAID));
    server.ask(&["subscriptions", "create", &receiver.url("/"), "--topic", "orders"]);
    let payload = format!(r#"{{"card":"{SECRET}"}}"#);
    let event = sent(&server, &payload);
    server.settles(&[("delivered", 1)]);
    assert_eq!(receiver.wait_for(1)[0].text(), payload);

    let shown = server.ask(&["events", "show", &event]);
    let delivery = id_of(&shown["deliveries"][0]);
    let gone = server.ask(&["events", "expunge", &event, "--responses"]);
    assert!(gone["expunged_at"].is_string(), "{gone}");
    assert_eq!(server.ask(&["events", "expunge", &event, "--cancel"]), gone);
    let table = server.run(&["deliveries", "show", &delivery]).exits(0);
    assert!(table.out.contains("(removed)") && !table.out.contains(SAID), "{}", table.out);
    let whole = server.ask(&["events", "show", &event]);
    assert!(!whole.to_string().contains(SECRET) && !whole.to_string().contains(SAID), "{whole}");
    assert_eq!(whole["deliveries"][0]["state"], "delivered");
    server.run(&["deliveries", "retry", &delivery]).fails().says(&["event_expunged"]);
    let steps = server.ask(&["deliveries", "timeline", &delivery]);
    assert!(
        steps["steps"].as_array().is_some_and(|all| all.iter().any(|s| s["step"] == "expunged"))
    );

    // One response alone, by the command and without --json.
    let second = sent(&server, "2");
    server.settles(&[("delivered", 2)]);
    let second = id_of(&server.ask(&["events", "show", &second])["deliveries"][0]);
    let one = server.run(&["deliveries", "expunge", &second, "--attempt", "1"]).exits(0);
    assert!(one.out.contains("(removed)"), "{}", one.out);

    // Nothing is removed by a command that names nothing.
    server.run("events expunge").exits(2).says(&["--type"]);
    server.run(&["events", "expunge", &event, "--type", "a"]).exits(2);
    let only_count = ["events", "expunge", &event, "--dry-run"];
    server.run(&only_count).exits(2).says(&["--dry-run"]);
    server.run("events expunge --type a --cancel").exits(2);

    // A job that is killed between its bites goes on.
    for number in 0..8 {
        sent(&server, &format!(r#"{{"card":"{SECRET}","number":{number}}}"#));
    }
    server.settles(&[("delivered", 10)]);
    let all = ["events", "expunge", "--type", "order.created", "--responses"];
    let count = server.ask(&[&all[..], &["--dry-run"]].concat());
    assert_eq!((&count["count"], &count["seen"]), (&9.into(), &10.into()), "{count}");
    let slow = [&all[..], &["--per-second", "2", "--no-wait"]].concat();
    let job = id_of(&server.ask(&slow));
    server.running.signal("KILL");
    server.running.wait();
    server = home.serve();
    let job = job_ends(&server, &job);
    assert_eq!((&job["state"], &job["kind"]), (&"done".into(), &"expunge".into()), "{job}");
    assert_eq!((&job["done"], &job["seen"]), (&9.into(), &10.into()), "{job}");
    let list = server.ask("events list --limit 20");
    let items = list["items"].as_array().or_else(|| list.as_array()).expect("a list");
    assert_eq!(items.len(), 10);
    assert!(items.iter().all(|item| item["expunged_at"].is_string()), "{list}");
    assert_eq!(receiver.count(), 10, "nothing was sent again");
    server.stop();
    assert!(!kept(&home, SECRET) && !kept(&home, SAID), "nothing of it is left on the disk");
}

#[test]
fn what_is_expunged_is_gone_for_good_on_sqlite() {
    removes(On::Sqlite);
}

#[test]
fn what_is_expunged_is_gone_for_good_on_postgresql() {
    removes(On::Postgres);
}
