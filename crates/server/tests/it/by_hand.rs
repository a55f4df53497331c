//! What operators do by hand: redrives, retries and cancels, on one node and on several.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use posthorn_testkit::postgres::TestPostgres;
use serde_json::Value;

use crate::cedros_world::{On, Receiver};
use crate::harness::{Home, Server, eventually};
use crate::postgres::{configure, database, nodes};

/// A server on the store that the test wants; the database ends after it.
fn serve(on: On, lines: &str) -> (Home, Server, Option<TestPostgres>) {
    let mut home = Home::new();
    let database = match on {
        On::Sqlite => None,
        On::Postgres => Some(database()),
    };
    if let Some(database) = &database {
        configure(&home, &database.url());
    }
    let file = home.path().join("posthorn.yaml");
    let config = std::fs::read_to_string(&file).expect("there");
    std::fs::write(&file, config.replace("admission: {", lines)).expect("written");
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
        let list = server.ask(&["dead-letters", "list"]);
        let items = list["items"].as_array().or_else(|| list.as_array())?.clone();
        let ids: Vec<String> =
            items.iter().filter_map(|item| item["id"].as_str().map(str::to_owned)).collect();
        (ids.len() == count).then_some(ids)
    })
}

/// The payloads a receiver has seen, from the `first` on, when there are `count` of them.
fn bodies(receiver: &Receiver, first: usize, count: usize) -> Vec<String> {
    let seen = receiver.wait_for(first + count);
    seen[first..].iter().map(|request| request.body.clone()).collect()
}

/// Events of one key: the first is a dead letter, the others have not been sent. What is brought back
/// goes before them.
fn redriven_goes_first(on: On) {
    let (_home, server, _database) = serve(on, "admission: {");
    server.ask(&["topics", "put", "orders"]);
    let receiver = Receiver::start();
    let policy = r#"{"order":{"scope":"key"},"schedule":{"max_attempts":1}}"#;
    let subscription = subscribe(&server, &receiver.url, policy);
    for (round, redrives) in [(0, true), (10, false)] {
        let before = receiver.seen.lock().expect("fine").len();
        receiver.answers(500);
        send(&server, round);
        let dead = dead_letters(&server, 1);
        server.ask(&["subscriptions", "pause", &subscription]);
        receiver.answers(200);
        send(&server, round + 1);
        send(&server, round + 2);
        if redrives {
            // What it may move in a second is on its way when it was answered.
            let made = server.ask(&["dead-letters", "redrive", "--no-wait"]);
            assert_eq!((&made["state"], &made["moved"]), (&"done".into(), &1.into()), "{made}");
        } else {
            server.ask(&["deliveries", "retry", &dead[0]]);
        }
        server.ask(&["subscriptions", "resume", &subscription]);
        let wanted: Vec<String> = (round..round + 3).map(|number| number.to_string()).collect();
        assert_eq!(bodies(&receiver, before + 1, 3), wanted);
        eventually("the end", || {
            let stats = server.ask(&["stats"]);
            (stats["pending"] == 0 && stats["dead"] == 0).then_some(())
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

/// One connection to a server, for many small calls.
struct Line {
    stream: BufReader<TcpStream>,
    key: String,
}

impl Line {
    #[expect(
        clippy::disallowed_methods,
        reason = "it calls the server under test, on this machine"
    )]
    fn to(server: &Server) -> Self {
        let address = server.url.trim_start_matches("http://");
        let stream = TcpStream::connect(address).expect("it listens");
        Self { stream: BufReader::new(stream), key: server.key.clone() }
    }

    fn call(&mut self, method: &str, path: &str, body: &str) -> Value {
        let (key, length) = (&self.key, body.len());
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: posthorn\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(text.as_bytes()).expect("sent");
        let mut status = String::new();
        self.stream.read_line(&mut status).expect("an answer");
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("an answer");
            if line.trim().is_empty() {
                break;
            }
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("a body");
        assert!(status.contains(" 20"), "{status}{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).expect("JSON")
    }
}

/// A redrive goes on although more than a thousand were begun and ended after it, and all of them are
/// listed, page by page.
fn redrive_among_many(on: On) {
    let (_home, server, _database) = serve(on, "admission: {redrives: 100000, ");
    server.ask(&["topics", "put", "orders"]);
    let receiver = Receiver::start();
    receiver.answers(500);
    subscribe(&server, &receiver.url, r#"{"schedule":{"max_attempts":1}}"#);
    for number in 0..4 {
        send(&server, number);
    }
    dead_letters(&server, 4);
    receiver.answers(200);
    let mut line = Line::to(&server);
    let slow = line.call("POST", "/v1/redrives", r#"{"per_second":1}"#);
    assert_eq!((&slow["total"], &slow["state"]), (&4.into(), &"running".into()), "{slow}");
    const ENDED: usize = 1_010;
    let mut quick = String::new();
    for _ in 0..ENDED {
        let made = line.call("POST", "/v1/redrives", r#"{"reason":"permanent"}"#);
        assert_eq!(made["state"], "done", "{made}");
        quick = made["id"].as_str().expect("an id").to_owned();
    }
    let place = format!("/v1/redrives/{}", slow["id"].as_str().expect("an id"));
    eventually("the end of the first redrive", || {
        let mut line = Line::to(&server);
        let now = line.call("GET", &place, "");
        (now["state"] == "done" && now["moved"] == 4).then_some(())
    });
    eventually("the deliveries", || (server.ask(&["stats"])["delivered"] == 4).then_some(()));

    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = line.call("GET", &format!("/v1/redrives?limit=200{cursor}"), "");
        let items = page["items"].as_array().expect("a list");
        listed.extend(items.iter().map(|item| item["id"].as_str().expect("an id").to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(listed.len(), ENDED + 1);
    assert_eq!(listed.first(), Some(&quick));
    assert_eq!(listed.last().map(String::as_str), slow["id"].as_str());
    let some = server.ask(&["dead-letters", "redrives", "--limit", "1001"]);
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
    configure(&home, &database.url());
    let server = home.serve();
    server.ask(&["topics", "put", "orders"]);
    let receiver = Receiver::start();
    receiver.answers(500);
    let ids =
        [0, 1].map(|_| subscribe(&server, &receiver.url, r#"{"schedule":{"max_attempts":1}}"#));
    (0..10).for_each(|n| send(&server, n));
    eventually("dead letters", || (server.ask(&["stats"])["dead"] == 20).then_some(()));
    receiver.answers(200);
    let redrive = |id: &str, pace: &str| {
        let args =
            ["dead-letters", "redrive", "--no-wait", "--per-second", pace, "--subscription", id];
        server.ask(&args)["id"].as_str().expect("an id").to_owned()
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
        let list = server.ask(&["dead-letters", "redrives"]);
        let items = list["items"].as_array().or_else(|| list.as_array()).expect("a list").clone();
        let found = items.into_iter().find(|item| item["id"] == id).expect("there");
        (found["state"].as_str().expect("a text").to_owned(), found["moved"].clone())
    };
    eventually("the second", || (state(&second).0 == "done").then_some(()));
    let (standing, moved) = state(&first);
    assert_eq!(standing, "running", "{moved}");
    server.running.says("a redrive could not go on");
    database.sql("drop trigger refuse on redrive").expect("dropped");
    eventually("the first", || (state(&first).0 == "done").then_some(()));
    eventually("the deliveries", || (server.ask(&["stats"])["delivered"] == 20).then_some(()));
    server.stop();
}

/// Whoever is told that a delivery is cancelled sees no attempt of it begin, whichever node was asked
/// and whichever owns its shard. What is retried is sent, once.
#[test]
fn what_was_cancelled_on_any_node_is_not_sent_by_another() {
    let database = database();
    let nodes = nodes(&database, [Home::new(), Home::new()]);
    let (first, second) = (&nodes[0].1, &nodes[1].1);
    first.ask(&["topics", "put", "orders"]);
    // Several subscriptions, so that each node owns some of their shards.
    let receivers: Vec<Receiver> = (0..6).map(|_| Receiver::start()).collect();
    let policy =
        r#"{"schedule":{"backoff":{"fixed":{"wait":"8s"}},"jitter":"none","max_attempts":5}}"#;
    for receiver in &receivers {
        receiver.answers(500);
        subscribe(first, &receiver.url, policy);
    }
    // Both nodes have taken their share of the shards.
    thread::sleep(Duration::from_secs(3));
    send(first, 1);
    for receiver in &receivers {
        receiver.wait_for(1);
    }
    let waiting = eventually("all failed once", || {
        let list = first.ask(&["deliveries", "list", "--state", "pending"]);
        let items = list["items"].as_array().or_else(|| list.as_array())?.clone();
        let failed = items.iter().filter(|item| item["attempts_made"] == 1).count();
        (failed == receivers.len()).then_some(items)
    });
    let ids: Vec<&str> = waiting.iter().filter_map(|item| item["id"].as_str()).collect();
    for (place, id) in ids.iter().enumerate() {
        let node = if place % 2 == 0 { first } else { second };
        node.ask(&["deliveries", "cancel", id]);
    }
    let counts = || -> Vec<usize> {
        receivers.iter().map(|receiver| receiver.seen.lock().expect("fine").len()).collect()
    };
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
    eventually("the deliveries", || {
        (first.ask(&["stats"])["delivered"] == receivers.len()).then_some(())
    });
    let wanted: Vec<usize> = before.iter().map(|count| count + 1).collect();
    assert_eq!(counts(), wanted, "each was sent once more");
    for (_, server) in nodes {
        server.stop();
    }
}
