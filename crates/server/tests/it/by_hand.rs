//! What operators do by hand: redrives, retries and cancels, on one node and on several.

use std::thread;
use std::time::Duration;

use posthorn_testkit::postgres::TestPostgres;
use posthorn_testkit::program::{Home, Server, id_of};
use posthorn_testkit::receiver::Receiver;
use posthorn_testkit::wait::{eventually, until};

use crate::cedros_world::On;
use crate::postgres::{database, nodes};

/// A server on the store that the test wants; the database ends after it.
fn serve(on: On, lines: &str) -> (Home, Server, Option<TestPostgres>) {
    let mut home = Home::new();
    let database = match on {
        On::Sqlite => None,
        On::Postgres => Some(database()),
    };
    if let Some(database) = &database {
        home.store_in(&database.url());
    }
    home.edit("admission: {", lines);
    let server = home.serve();
    (home, server, database)
}

fn subscribe(server: &Server, url: &str, policy: &str) -> String {
    let made =
        server.ask(&["subscriptions", "create", url, "--topic", "orders", "--policy", policy]);
    let id = made["id"].as_str().or_else(|| made["subscription"]["id"].as_str());
    id.expect("an id").to_owned()
}

fn send(server: &Server, number: usize) {
    let payload = number.to_string();
    server.ask(&["send", "orders", "order.changed", &payload, "--ordering-key", "ann"]);
}

fn dead_letters(server: &Server, count: usize) -> Vec<String> {
    eventually(&format!("{count} dead letters"), || {
        let list = server.ask("dead-letters list");
        let items = list["items"].as_array().or_else(|| list.as_array())?.clone();
        let ids: Vec<String> =
            items.iter().filter_map(|item| item["id"].as_str().map(str::to_owned)).collect();
        (ids.len() == count).then_some(ids)
    })
}

/// The payloads a receiver has seen, from the `first` on, when there are `count` of them.
fn bodies(receiver: &Receiver, first: usize, count: usize) -> Vec<String> {
    let seen = receiver.wait_for(first + count);
    seen[first..].iter().map(|request| request.text().to_owned()).collect()
}

/// Events of one key: the first is a dead letter, the others have not been sent. What is brought back
/// goes before them.
fn redriven_goes_first(on: On) {
    let (_home, server, _database) = serve(on, "admission: {");
    server.ask("topics put orders");
    let receiver = Receiver::new(200);
    let policy = r#"{"order":{"scope":"key"},"schedule":{"max_attempts":1}}"#;
    let subscription = subscribe(&server, &receiver.url("/"), policy);
    for (round, redrives) in [(0, true), (10, false)] {
        let before = receiver.count();
        receiver.answers(500);
        send(&server, round);
        let dead = dead_letters(&server, 1);
        server.ask(&["subscriptions", "pause", &subscription]);
        receiver.answers(200);
        send(&server, round + 1);
        send(&server, round + 2);
        if redrives {
            // What it may move in a second is on its way when it was answered.
            let made = server.ask("redrives create --no-wait");
            assert_eq!((&made["state"], &made["moved"]), (&"done".into(), &1.into()), "{made}");
        } else {
            server.ask(&["deliveries", "retry", &dead[0]]);
        }
        server.ask(&["subscriptions", "resume", &subscription]);
        let wanted: Vec<String> = (round..round + 3).map(|number| number.to_string()).collect();
        assert_eq!(bodies(&receiver, before + 1, 3), wanted);
        until("the end", || {
            let stats = server.ask("stats");
            stats["pending"] == 0 && stats["dead"] == 0
        });
    }
    server.stop();
}

#[test]
fn a_redriven_delivery_goes_before_what_has_not_been_sent_on_sqlite() {
    redriven_goes_first(On::Sqlite);
}

#[test]
fn a_redriven_delivery_goes_before_what_has_not_been_sent_on_postgresql() {
    redriven_goes_first(On::Postgres);
}

/// A redrive goes on although more than a thousand were begun and ended after it, and all of them are
/// listed, page by page.
fn redrive_among_many(on: On) {
    let (_home, server, _database) = serve(on, "admission: {redrives_per_minute: 100000, ");
    server.ask("topics put orders");
    let receiver = Receiver::new(200);
    receiver.answers(500);
    subscribe(&server, &receiver.url("/"), r#"{"schedule":{"max_attempts":1}}"#);
    for number in 0..4 {
        send(&server, number);
    }
    dead_letters(&server, 4);
    receiver.answers(200);
    let call = |method: &str, path: &str, body: &str| {
        let reply = server.call(method, path).text(body).send();
        assert!(reply.status < 300, "{reply:?}");
        reply.json()
    };
    let slow = call("POST", "/v1/redrives", r#"{"per_second":1}"#);
    assert_eq!((&slow["total"], &slow["state"]), (&4.into(), &"running".into()), "{slow}");
    const ENDED: usize = 1_010;
    let mut quick = String::new();
    for _ in 0..ENDED {
        let made = call("POST", "/v1/redrives", r#"{"reason":"permanent"}"#);
        assert_eq!(made["state"], "done", "{made}");
        quick = id_of(&made);
    }
    let place = format!("/v1/redrives/{}", slow["id"].as_str().expect("an id"));
    until("the end of the first redrive", || {
        let now = call("GET", &place, "");
        now["state"] == "done" && now["moved"] == 4
    });
    server.settles(&[("delivered", 4)]);

    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = call("GET", &format!("/v1/redrives?limit=200{cursor}"), "");
        let items = page["items"].as_array().expect("a list");
        listed.extend(items.iter().map(|item| id_of(item)));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(listed.len(), ENDED + 1);
    assert_eq!(listed.first(), Some(&quick));
    assert_eq!(listed.last().map(String::as_str), slow["id"].as_str());
    let some = server.ask("redrives list --limit 1001");
    let some = some["items"].as_array().or_else(|| some.as_array()).map(Vec::len);
    assert_eq!(some, Some(1_001), "the command goes through the pages");
    server.stop();
}

#[test]
fn a_redrive_goes_on_however_many_ended_after_it_on_sqlite() {
    redrive_among_many(On::Sqlite);
}

#[test]
fn a_redrive_goes_on_however_many_ended_after_it_on_postgresql() {
    redrive_among_many(On::Postgres);
}

/// While one redrive cannot be moved, the others go on; and it goes on itself when it can.
#[test]
fn a_redrive_that_fails_keeps_no_other_from_going_on() {
    let database = database();
    let mut home = Home::new();
    home.store_in(&database.url());
    let server = home.serve();
    server.ask("topics put orders");
    let receiver = Receiver::new(200);
    receiver.answers(500);
    let ids = [0, 1]
        .map(|_| subscribe(&server, &receiver.url("/"), r#"{"schedule":{"max_attempts":1}}"#));
    (0..10).for_each(|n| send(&server, n));
    server.settles(&[("dead", 20)]);
    receiver.answers(200);
    let redrive = |id: &str, pace: &str| {
        let args = ["redrives", "create", "--no-wait", "--per-second", pace, "--subscription", id];
        id_of(&server.ask(&args))
    };
    let first = redrive(&ids[0], "1");
    let row = database.sql("select id from redrive").expect("one");
    let trigger = format!(
        "create function refuse() returns trigger language plpgsql as \
         $$ begin raise exception 'not now'; end $$; \
         create trigger refuse before update on redrive for each row \
         when (old.id = '{}') execute function refuse()",
        row.trim()
    );
    database.sql(&trigger).expect("made");
    let second = redrive(&ids[1], "4");
    let state = |id: &str| {
        let list = server.ask("redrives list");
        let items = list["items"].as_array().or_else(|| list.as_array()).expect("a list").clone();
        let found = items.into_iter().find(|item| item["id"] == id).expect("there");
        (found["state"].as_str().expect("a text").to_owned(), found["moved"].clone())
    };
    until("the second", || state(&second).0 == "done");
    let (standing, moved) = state(&first);
    assert_eq!(standing, "running", "{moved}");
    server.running.says("a redrive could not continue; it will be retried");
    database.sql("drop trigger refuse on redrive").expect("dropped");
    until("the first", || state(&first).0 == "done");
    server.settles(&[("delivered", 20)]);
    server.stop();
}

/// Whoever is told that a delivery is cancelled sees no attempt of it begin, whichever node was asked
/// and whichever owns its shard. What is retried is sent, once.
#[test]
fn what_was_cancelled_on_any_node_is_not_sent_by_another() {
    let database = database();
    let nodes = nodes(&database, [Home::new(), Home::new()]);
    let (first, second) = (&nodes[0].1, &nodes[1].1);
    first.ask("topics put orders");
    // Several subscriptions, so that each node owns some of their shards.
    let receivers: Vec<Receiver> = (0..6).map(|_| Receiver::new(200)).collect();
    let policy =
        r#"{"schedule":{"backoff":{"fixed":{"wait":"8s"}},"jitter":"none","max_attempts":5}}"#;
    for receiver in &receivers {
        receiver.answers(500);
        subscribe(first, &receiver.url("/"), policy);
    }
    // Both nodes have taken their share of the shards.
    thread::sleep(Duration::from_secs(3));
    send(first, 1);
    for receiver in &receivers {
        receiver.wait_for(1);
    }
    let waiting = eventually("all failed once", || {
        let list = first.ask("deliveries list --state pending");
        let items = list["items"].as_array().or_else(|| list.as_array())?.clone();
        let failed = items.iter().filter(|item| item["attempts_made"] == 1).count();
        (failed == receivers.len()).then_some(items)
    });
    let ids: Vec<&str> = waiting.iter().filter_map(|item| item["id"].as_str()).collect();
    for (place, id) in ids.iter().enumerate() {
        let node = if place % 2 == 0 { first } else { second };
        node.ask(&["deliveries", "cancel", id]);
    }
    let counts = || -> Vec<usize> { receivers.iter().map(|receiver| receiver.count()).collect() };
    let before = counts();
    // Their times come and go.
    thread::sleep(Duration::from_secs(10));
    assert_eq!(counts(), before, "nothing is sent any more");
    for receiver in &receivers {
        receiver.answers(200);
    }
    for (place, id) in ids.iter().enumerate() {
        let node = if place % 2 == 0 { second } else { first };
        node.ask(&["deliveries", "retry", id]);
    }
    first.settles(&[("delivered", receivers.len())]);
    let wanted: Vec<usize> = before.iter().map(|count| count + 1).collect();
    assert_eq!(counts(), wanted, "each was sent once more");
    for (_, server) in nodes {
        server.stop();
    }
}
