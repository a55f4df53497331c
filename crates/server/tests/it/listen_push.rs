//! `posthorn listen --push`: events over a socket that the listener opens.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use posthorn_testkit::program::{Home, Ran, Running, Server};
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};

use crate::push::{connected, wait};

/// A place whose servers do Web Push, on this port (0: any).
fn home(port: u16) -> Home {
    let home = Home::new();
    home.edit("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    home.configure("push: {enabled: true, drain_timeout: 0s}\n");
    home
}

fn listen(server: &Server, args: &[&str]) -> Running {
    let mut command = server.command();
    command.args(["listen", "--push", "--subscribe", "orders"]).args(args);
    let mut listener = Running::start(&mut command);
    listener.wait_for("subscription", |text| text.contains("subscribed to").then_some(()));
    listener
}

/// The events that were shown with `--json`, each opened.
fn events(listener: &Running) -> Vec<Value> {
    let lines = listener.stdout();
    let messages = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    messages
        .map(|message| {
            assert_eq!(message["verified"], true, "{message}");
            assert_eq!((&message["method"], &message["answered"]), (&json!("PUSH"), &json!(100)));
            let body = message["body"].as_str().expect("a text");
            serde_json::from_str(body).expect("an event")
        })
        .collect()
}

fn subscriptions(server: &Server) -> Vec<Value> {
    server.ask("subscriptions list")["items"].as_array().expect("a list").clone()
}

#[test]
fn events_come_over_the_socket_and_nothing_is_left_behind() {
    let (_home, server) = home(0).served();
    let mut listener = listen(&server, &["--count", "2", "--json"]);
    let sent: Vec<Value> = (0..2)
        .map(|n| {
            let payload = json!({"n": n}).to_string();
            server.ask(&["send", "orders", "order.created", &payload])["id"].clone()
        })
        .collect();
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let mut got = events(&listener);
    got.sort_by_key(|event| event["payload"]["n"].as_u64());
    for (n, event) in got.iter().enumerate() {
        assert_eq!(event["id"], sent[n]);
        assert_eq!((&event["topic"], &event["type"]), (&json!("orders"), &json!("order.created")));
        assert_eq!(event["payload"], json!({"n": n}));
    }
    assert_eq!(got.len(), 2);
    assert!(subscriptions(&server).is_empty(), "removed at the end");

    let mut listener = listen(&server, &["--count", "1"]);
    let sent = server.ask(&["send", "orders", "order.created", "{\"total\": 12}"]);
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let text = listener.stdout();
    let id = sent["id"].as_str().expect("an id");
    for part in ["PUSH orders order.created", id, "decrypted → 100", "\"total\""] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    server.stop();
}

#[test]
fn a_signal_removes_what_was_made() {
    let (_home, server) = home(0).served();
    let mut listener = listen(&server, &[]);
    assert_eq!(subscriptions(&server).len(), 1);
    listener.signal("INT");
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    assert!(subscriptions(&server).is_empty());
    server.stop();
}

#[test]
fn what_comes_while_the_listener_is_away_waits_for_it() {
    let (home, server) = home(0).served();
    let file = home.path().join("agent.json");
    let keep = file.to_str().expect("a path");
    let mut first = listen(&server, &["--keep", keep, "--json"]);
    first.signal("INT");
    assert_eq!(first.wait().code(), Some(0), "{}", first.stderr());
    let mode = std::fs::metadata(&file).expect("kept").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept = subscriptions(&server);
    assert_eq!(kept.len(), 1, "{kept:?}");

    let sent: Vec<Value> = (0..3)
        .map(|_| server.ask(&["send", "orders", "order.created", "{}"])["id"].clone())
        .collect();
    let mut second = listen(&server, &["--keep", keep, "--json", "--count", "3"]);
    assert_eq!(second.wait().code(), Some(0), "{}", second.stderr());
    let mut got: Vec<Value> = events(&second).into_iter().map(|it| it["id"].clone()).collect();
    got.sort_by_key(Value::to_string);
    let mut wanted = sent;
    wanted.sort_by_key(Value::to_string);
    assert_eq!(got, wanted);
    assert_eq!(subscriptions(&server)[0]["id"], kept[0]["id"], "the same subscription");

    let other = ["listen", "--push", "--subscribe", "invoices", "--keep", keep];
    server.run(&other).exits(2).says(&["keeps an agent of the topic orders", "--keep"]);
    server.stop();
}

/// A listener that was there and went, and where it is kept.
fn kept(home: &Home, server: &Server) -> String {
    let file = home.path().join("agent.json").to_str().expect("a path").to_owned();
    let mut listener = listen(server, &["--keep", &file]);
    listener.signal("INT");
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    file
}

/// Comes back, and gets each of two events once.
#[track_caller]
fn comes_back(server: &Server, file: &str, args: &[&str]) -> Running {
    let args = [&["--keep", file, "--json", "--count", "2"], args].concat();
    let mut listener = listen(server, &args);
    let sent = [0, 1].map(|_| server.ask(&["send", "orders", "order.created", "{}"])["id"].clone());
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let mut got: Vec<Value> = events(&listener).into_iter().map(|it| it["id"].clone()).collect();
    got.sort_by_key(Value::to_string);
    let mut wanted = sent.to_vec();
    wanted.sort_by_key(Value::to_string);
    assert_eq!(got, wanted, "each once");
    listener
}

#[test]
fn a_subscription_whose_id_was_not_kept_is_found_by_its_name() {
    let (home, server) = home(0).served();
    let file = kept(&home, &server);
    let made = subscriptions(&server);
    // As after a kill between making it and keeping its id.
    let mut agent: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("kept")).expect("JSON");
    agent.as_object_mut().expect("an object").remove("subscription").expect("an id");
    std::fs::write(&file, agent.to_string()).expect("written");

    comes_back(&server, &file, &[]);
    let now = subscriptions(&server);
    assert_eq!((now.len(), &now[0]["id"]), (1, &made[0]["id"]), "{now:?}");
    let kept: Value = serde_json::from_slice(&std::fs::read(&file).expect("kept")).expect("JSON");
    assert_eq!(kept["subscription"], made[0]["id"]);
    server.stop();
}

#[test]
fn what_would_make_a_kept_listener_deaf_is_told_or_mended() {
    let (home, server) = home(0).served();
    let file = kept(&home, &server);
    let id = subscriptions(&server)[0]["id"].as_str().expect("an id").to_owned();
    let start = ["listen", "--push", "--subscribe", "orders", "--keep", &file];

    server.ask(&["subscriptions", "pause", &id]);
    server
        .run(&start)
        .exits(1)
        .says(&["is paused", &format!("posthorn subscriptions resume {id}")]);
    server.ask(&["subscriptions", "resume", &id]);

    let listener = comes_back(&server, &file, &["--profile", "quick"]);
    listener.says("has the profile quick");
    let now = subscriptions(&server);
    assert_eq!((&now[0]["id"], &now[0]["profile"]), (&json!(id), &json!("quick")));

    server.ask("tenants create other");
    Ran::of(server.command().args(start).args(["--tenant", "other"])).exits(2).says(&[
        &id,
        "another tenant",
        "--keep",
    ]);
    assert_eq!(server.ask("subscriptions list --tenant other")["items"], json!([]));
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_was_given_up_goes_on_when_its_listener_is_back() {
    let (home, server) = home(0).served();
    let file = kept(&home, &server);
    let keeps: Value = serde_json::from_slice(&std::fs::read(&file).expect("kept")).expect("JSON");
    let id = keeps["subscription"].as_str().expect("an id");
    let known = serde_json::from_value(keeps["agent"].clone()).expect("an agent");
    let (mut agent, _) = connected(&server, Some(known));
    let channel = serde_json::from_value(keeps["channel"].clone()).expect("a channel");
    wait(agent.unregister(channel)).expect("unregistered");
    drop(agent);
    server.ask(&["send", "orders", "order.created", "{}"]);
    until("the end of the subscription", || {
        let shown = server.ask(&["subscriptions", "show", id]);
        shown["status"] == "disabled"
    });

    // Events come from half a minute after the refusal on, which is not waited for here: the server takes
    // only a destination whose channel is there.
    let mut listener = listen(&server, &["--keep", &file]);
    listener.says("was disabled");
    listener.signal("INT");
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    assert_eq!(server.ask(&["subscriptions", "show", id])["status"], "active");
    server.stop();
}

#[test]
fn a_server_that_goes_is_waited_for() {
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        free.local_addr().expect("an address").port()
    };
    let (mut home, server) = home(port).served();
    let mut listener = listen(&server, &["--count", "2", "--json"]);
    let before = server.ask(&["send", "orders", "order.created", "{}"])["id"].clone();
    eventually("the first event", || listener.stdout().contains(before.as_str()?).then_some(()));
    server.stop();
    listener.wait_for("a break", |text| text.contains("the socket broke").then_some(()));
    let server = home.serve();
    let after = server.ask(&["send", "orders", "order.created", "{}"])["id"].clone();
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let got: Vec<Value> = events(&listener).into_iter().map(|event| event["id"].clone()).collect();
    assert_eq!(got, [before, after]);
    assert!(subscriptions(&server).is_empty());
    server.stop();
}

#[test]
fn a_server_without_web_push_says_how_to_get_it() {
    let (_home, server) = Home::new().served();
    let args = ["listen", "--push", "--subscribe", "orders"];
    server.run(&args).exits(1).says(&["does not do Web Push", "posthorn serve --push"]);
    assert_eq!(server.ask("topics list")["items"], Value::Array(Vec::new()), "nothing was made");
    for wrong in [
        &["listen", "--push"][..],
        &["listen", "--subscribe", "orders", "--keep", "agent.json"],
        &["listen", "--push", "--subscribe", "orders", "--status", "503"],
    ] {
        server.run(&wrong).exits(2);
    }
    server.stop();
}
