//! Destinations of the Svix API: endpoints that get messages one after the other, and logs that are polled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use posthorn_testkit::caller::Reply;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::receiver::{Answer, Receiver};
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};

use crate::postgres::{database, nodes};

/// With a profile that does not wait long.
fn svix() -> Home {
    let home = Home::new();
    let schedule = "{backoff: {fixed: {wait: 200ms}}, jitter: none, max_attempts: 3}";
    let brief = format!("profiles:\n  brief: {{base: svix, policy: {{schedule: {schedule}}}}}\n");
    home.edit("profiles:\n", &brief);
    home.configure("dialects: {svix: {enabled: true, profile: brief}}\n");
    home
}

fn ask(server: &Server, method: &str, path: &str) -> Reply {
    server.call(method, &format!("/api/v1{path}")).send()
}

fn say(server: &Server, method: &str, path: &str, body: &Value) -> Reply {
    server.call(method, &format!("/api/v1{path}")).json(body).send()
}

fn application(server: &Server) {
    say(server, "POST", "/app", &json!({"name": "ACME", "uid": "acme"})).expect(201);
}

fn message(number: usize) -> Value {
    json!({"eventType": "counted", "payload": {"n": number}})
}

fn publish(server: &Server, numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    let send = |number| say(server, "POST", "/app/acme/msg", &message(number)).expect(202);
    numbers.into_iter().map(|number| text(&send(number)["id"])).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn number(payload: &Value) -> usize {
    payload["n"].as_u64().unwrap_or_else(|| panic!("no number: {payload}")) as usize
}

/// A destination of a type, called `one`.
fn make(server: &Server, kind: &str, config: &Value) -> Value {
    let body = json!({"uid": "one", "type": kind, "config": config});
    say(server, "POST", "/app/acme/destination", &body).expect(201)
}

/// What a receiver got, in its order.
fn numbers(receiver: &Receiver) -> Vec<usize> {
    let read = |body: &[u8]| serde_json::from_slice::<Value>(body).expect("JSON");
    receiver.seen().iter().map(|request| number(&read(&request.body))).collect()
}

#[test]
fn a_fifo_endpoint_gets_one_message_after_the_other_and_none_before_one_that_fails() {
    let (_home, server) = svix().served();
    application(&server);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let receiver = Receiver::new(200);
    let failing = Arc::new(AtomicUsize::new(2));
    {
        let (running, most, failing) =
            (Arc::clone(&running), Arc::clone(&most), Arc::clone(&failing));
        receiver.script(move |_| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(5));
            running.fetch_sub(1, Ordering::SeqCst);
            let fails = failing
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            Answer::from(if fails.is_ok() { 500 } else { 200 })
        });
    }
    let made = make(&server, "fifoEndpoint", &json!({"url": receiver.url("/fifo")}));
    assert!(text(&made["id"]).starts_with("sink_"), "{made}");
    publish(&server, 0..20);
    receiver.wait_for(22);
    let mut wanted = vec![0, 0];
    wanted.extend(0..20);
    assert_eq!(numbers(&receiver), wanted, "the first fails twice, and the others wait for it");
    assert_eq!(most.load(Ordering::SeqCst), 1, "one at a time");
    until("all written down", || {
        ask(&server, "GET", "/app/acme/destination/one").expect(200)["status"] == "enabled"
    });
    server.stop();
}

#[test]
fn a_message_that_is_given_up_stops_a_fifo_endpoint_until_it_is_sent_again() {
    let (_home, server) = svix().served();
    application(&server);
    let receiver = Receiver::new(503);
    make(&server, "fifoEndpoint", &json!({"url": receiver.url("/fifo")}));
    let ids = publish(&server, 0..3);
    let stands = || ask(&server, "GET", "/app/acme/destination/one").expect(200);
    let view = eventually("the end of its attempts", || {
        Some(stands()).filter(|view| view["status"] == "paused")
    });
    assert_eq!(view["currentIterator"], json!(ids[0]), "{view}");
    assert!(view["failureReason"].is_string(), "{view}");
    assert_eq!(numbers(&receiver), [0, 0, 0]);
    receiver.answers(200);
    let again = format!("/app/acme/msg/{}/endpoint/one/resend", ids[0]);
    assert_eq!(say(&server, "POST", &again, &json!({})).status, 202);
    receiver.wait_for(6);
    assert_eq!(numbers(&receiver), [0, 0, 0, 0, 1, 2]);
    until("all written down", || stands()["status"] == "enabled");
    server.stop();
}

#[test]
fn destinations_are_made_changed_listed_and_deleted() {
    let (_home, server) = svix().served();
    application(&server);
    let receiver = Receiver::new(200);
    let config =
        json!({"url": receiver.url("/a"), "headers": {"x-team": "a", "authorization": "hush"}});
    let made = make(&server, "fifoEndpoint", &config);
    let hidden = json!({"headers": {"x-team": "a"}, "sensitive": ["authorization"]});
    assert_eq!(made["config"]["headers"], hidden, "{made}");
    assert_eq!((&made["batchSize"], &made["maxWaitSecs"]), (&json!(1), &json!(0)));
    let path = "/app/acme/destination/one";
    let by_id = format!("/app/acme/destination/{}", text(&made["id"]));
    assert_eq!(ask(&server, "GET", &by_id).expect(200)["uid"], "one");

    // It is no endpoint, and endpoints are no destinations.
    let ep = json!({"url": receiver.url("/ep"), "uid": "plain"});
    say(&server, "POST", "/app/acme/endpoint", &ep).expect(201);
    let ids = |list: Value| -> Vec<Value> {
        list["data"].as_array().expect("a list").iter().map(|own| own["uid"].clone()).collect()
    };
    assert_eq!(ids(ask(&server, "GET", "/app/acme/endpoint").expect(200)), ["plain"]);
    assert_eq!(ids(ask(&server, "GET", "/app/acme/destination").expect(200)), ["one"]);
    assert_eq!(ask(&server, "GET", "/app/acme/endpoint/one").status, 404);
    assert_eq!(ask(&server, "GET", "/app/acme/destination/plain").status, 404);

    let patch =
        json!({"type": "fifoEndpoint", "status": "disabled", "channels": ["x"], "config": {}});
    let patched = say(&server, "PATCH", path, &patch).expect(200);
    assert_eq!((&patched["status"], &patched["channels"]), (&json!("disabled"), &json!(["x"])));
    assert_eq!(patched["config"], made["config"], "{patched}");
    let whole = json!({"uid": "one", "type": "fifoEndpoint", "metadata": {"a": "b"},
        "config": {"url": receiver.url("/b"), "headers": {"authorization": "hush"}}});
    let put = say(&server, "PUT", path, &whole).expect(200);
    assert_eq!((&put["status"], &put["channels"]), (&json!("enabled"), &Value::Null), "{put}");
    assert_eq!((&put["metadata"]["a"], &put["id"]), (&json!("b"), &made["id"]), "{put}");
    let fresh = json!({"uid": "two", "type": "pollingEndpoint", "eventTypes": []});
    let fresh = say(&server, "PUT", "/app/acme/destination/two", &fresh).expect(201);
    assert_eq!((&fresh["type"], &fresh["config"]), (&json!("pollingEndpoint"), &json!({})));

    let rotated = say(&server, "POST", &format!("{path}/secret/rotate"), &json!({})).expect(200);
    assert!(text(&rotated["key"]).starts_with("whsec_"), "{rotated}");
    let polled = say(&server, "POST", "/app/acme/destination/two/secret/rotate", &json!({}));
    assert_eq!(polled.status, 400);
    assert_eq!(ask(&server, "DELETE", path).status, 204);
    assert_eq!(ask(&server, "GET", path).status, 404);
    server.stop();
}

#[test]
fn what_destinations_cannot_do_is_refused() {
    let (_home, server) = svix().served();
    application(&server);
    make(&server, "pollingEndpoint", &json!({}));
    let url = json!({"url": "https://example.com/"});
    let cases = [
        (json!({"type": "amazonS3", "config": {}}), 501),
        (json!({"type": "sqs", "config": {}}), 501),
        (json!({"type": "carrier pigeon", "config": {}}), 422),
        (json!({"config": url}), 422),
        (json!({"type": "fifoEndpoint"}), 422),
        (json!({"type": "fifoEndpoint", "config": {}}), 422),
        (json!({"type": "fifoEndpoint", "config": {"url": "ftp://example.com"}}), 422),
        (
            json!({"type": "fifoEndpoint", "config": {"url": "https://example.com/", "key": "x"}}),
            422,
        ),
        (json!({"type": "fifoEndpoint", "config": url, "batchSize": 100}), 422),
        (json!({"type": "fifoEndpoint", "config": url, "maxWaitSecs": 10}), 422),
        (json!({"type": "fifoEndpoint", "config": url, "status": "paused"}), 422),
        (json!({"type": "fifoEndpoint", "config": url, "uid": "sink_x"}), 422),
        (json!({"type": "fifoEndpoint", "config": url, "uid": "one"}), 409),
    ];
    for (body, status) in cases {
        let reply = say(&server, "POST", "/app/acme/destination", &body);
        assert_eq!(reply.status, status, "{body}");
    }
    let other = json!({"type": "fifoEndpoint", "config": url});
    assert_eq!(say(&server, "PUT", "/app/acme/destination/one", &other).status, 422);
    assert_eq!(ask(&server, "GET", "/app/acme/destination/one/transformation").status, 501);
    for path in ["poller/one?iterator=it_00", "poller/one?limit=251", "poller/one/consumer/a%20b"] {
        assert_eq!(ask(&server, "GET", &format!("/app/acme/{path}")).status, 422, "{path}");
    }
    assert_eq!(ask(&server, "GET", "/app/acme/poller/nobody").status, 404);
    server.stop();
}

/// One page: its messages, its iterator, and whether it is the last.
fn page(server: &Server, path: &str, iterator: Option<&str>) -> (Vec<usize>, String, bool) {
    let more = iterator.map(|own| format!("&iterator={own}")).unwrap_or_default();
    let page = ask(server, "GET", &format!("/app/acme/poller/{path}{more}")).expect(200);
    let data = page["data"].as_array().expect("data");
    let found = data.iter().map(|own| number(&own["payload"])).collect();
    (found, text(&page["iterator"]), page["done"].as_bool().expect("done"))
}

#[test]
fn a_poller_gets_each_message_once_and_in_order_while_others_publish_and_after_a_restart() {
    let (mut home, server) = svix().served();
    application(&server);
    make(&server, "pollingEndpoint", &json!({}));
    let (mut found, mut iterator) = (Vec::new(), None);
    thread::scope(|scope| {
        let sent = scope.spawn(|| publish(&server, 0..200));
        while !sent.is_finished() || found.len() < 200 {
            let (some, next, _) = page(&server, "one?limit=7", iterator.as_deref());
            found.extend(some);
            iterator = Some(next);
        }
    });
    assert_eq!(found, (0..200).collect::<Vec<_>>());
    server.stop();
    let server = home.serve();
    let (none, _, done) = page(&server, "one?limit=7", iterator.as_deref());
    assert!(none.is_empty() && done, "{none:?}");
    let ids = publish(&server, 200..203);
    assert_eq!(page(&server, "one?limit=7", iterator.as_deref()).0, [200, 201, 202]);
    // Nothing is sent for it, and whoever comes anew begins with the first.
    assert_eq!(page(&server, "one?limit=2", None).0, [0, 1]);
    let waits = ask(&server, "GET", &format!("/app/acme/msg/{}/endpoint", ids[0])).expect(200);
    assert_eq!(waits["data"], json!([]), "{waits}");
    server.stop();
}

#[test]
fn a_poller_gets_what_it_wants() {
    let (_home, server) = svix().served();
    application(&server);
    say(&server, "POST", "/event-type", &json!({"name": "a", "description": ""})).expect(201);
    let body = json!({"uid": "one", "type": "pollingEndpoint", "eventTypes": ["a"], "channels": ["x", "y"]});
    let made = say(&server, "POST", "/app/acme/destination", &body).expect(201);
    assert_eq!((&made["eventTypes"], &made["channels"]), (&json!(["a"]), &json!(["x", "y"])));
    let send = |n: usize, kind: &str, channels: Value| {
        let body = json!({"eventType": kind, "payload": {"n": n}, "channels": channels});
        say(&server, "POST", "/app/acme/msg", &body).expect(202)
    };
    send(0, "a", json!(["x"]));
    send(1, "b", json!(["x"]));
    send(2, "a", Value::Null);
    let last = send(3, "a", json!(["y", "z"]));
    assert_eq!(page(&server, "one?limit=9", None).0, [0, 3]);
    assert_eq!(page(&server, "one?channel=y", None).0, [3]);
    assert_eq!(page(&server, "one?event_type=b", None).0, Vec::<usize>::new());
    let after = |time: &str| page(&server, &format!("one?after={time}"), None).0;
    assert_eq!(after("2020-01-01T00:00:00Z"), [0, 3]);
    assert_eq!(after(&text(&last["timestamp"])), Vec::<usize>::new());
    let active = |kind: &str, channel: &str| {
        let body = json!({"eventType": kind, "channels": [channel]});
        say(&server, "POST", "/app/acme/msg/precheck/active", &body).expect(200)["active"].clone()
    };
    assert_eq!(
        (active("a", "x"), active("a", "q"), active("b", "x")),
        (json!(true), json!(false), json!(false))
    );
    // While it is disabled it says nothing, and loses nothing.
    let turn = |status: &str| {
        let body = json!({"type": "pollingEndpoint", "status": status});
        say(&server, "PATCH", "/app/acme/destination/one", &body).expect(200)
    };
    assert_eq!(turn("disabled")["status"], "disabled");
    send(4, "a", json!(["x"]));
    let (none, iterator, done) = page(&server, "one?limit=9", None);
    assert!(none.is_empty() && done);
    turn("enabled");
    assert_eq!(page(&server, "one?limit=9", Some(&iterator)).0, [0, 3, 4]);
    server.stop();
}

#[test]
fn the_place_of_a_consumer_is_kept_when_it_has_confirmed_a_page() {
    let (mut home, server) = svix().served();
    application(&server);
    make(&server, "pollingEndpoint", &json!({}));
    publish(&server, 0..10);
    let consumer = "one/consumer/worker?limit=4";
    let (first, iterator, _) = page(&server, consumer, None);
    assert_eq!(first, [0, 1, 2, 3]);
    assert_eq!(page(&server, consumer, None).0, first, "it did not say that it has them");
    let (second, _, _) = page(&server, consumer, Some(&iterator));
    assert_eq!(second, [4, 5, 6, 7]);
    server.stop();
    let server = home.serve();
    let (again, iterator, _) = page(&server, consumer, None);
    assert_eq!(again, second, "the first page is confirmed, the second is not");
    // Others have places of their own.
    assert_eq!(page(&server, "one/consumer/other?limit=1", None).0, [0]);
    let (rest, iterator, _) = page(&server, consumer, Some(&iterator));
    assert_eq!(rest, [8, 9]);
    page(&server, consumer, Some(&iterator));
    assert!(page(&server, consumer, None).0.is_empty(), "all of it is confirmed");
    // Places are no messages and no metadata of the customer.
    assert_eq!(ask(&server, "GET", "/app/acme/destination/one").expect(200)["metadata"], json!({}));

    let seek = |after: &str| {
        let path = "/app/acme/poller/one/consumer/worker/seek";
        text(&say(&server, "POST", path, &json!({"after": after})).expect(200)["iterator"])
    };
    let iterator = seek("2020-01-01T00:00:00Z");
    assert_eq!(page(&server, consumer, None).0, first);
    assert_eq!(page(&server, consumer, Some(&iterator)).0, first);
    seek("2100-01-01T00:00:00Z");
    publish(&server, 10..11);
    assert!(page(&server, consumer, None).0.is_empty());
    server.stop();
}

#[test]
fn a_poller_of_two_nodes_skips_nothing_that_either_commits() {
    let database = database();
    let nodes = nodes(&database, [svix(), svix()]);
    let [(_, first), (_, second)] = &nodes;
    application(first);
    until("the other node to know it", || ask(second, "GET", "/app/acme").status == 200);
    make(first, "pollingEndpoint", &json!({}));
    publish(first, [1_000]);
    until("the other node to know both", || {
        ask(second, "GET", "/app/acme/destination/one").status == 200
            && say(second, "POST", "/app/acme/msg", &message(1_001)).status == 202
    });
    let (mut found, mut iterator) = (Vec::new(), None);
    thread::scope(|scope| {
        let sent: Vec<_> = [first, second, first, second]
            .into_iter()
            .enumerate()
            .map(|(at, server)| scope.spawn(move || publish(server, at * 50..(at + 1) * 50)))
            .collect();
        let mut turn = 0;
        while sent.iter().any(|one| !one.is_finished()) || found.len() < 202 {
            // It goes from node to node.
            turn += 1;
            let server = if turn % 2 == 0 { first } else { second };
            let (some, next, _) = page(server, "one?limit=20", iterator.as_deref());
            found.extend(some);
            iterator = Some(next);
        }
    });
    let different: BTreeSet<usize> = found.iter().copied().collect();
    assert_eq!((found.len(), different.len()), (202, 202), "each once");
    // Those of one publisher, who waits for each answer, are in the order of their commits.
    for at in 0..4 {
        let own: Vec<usize> = found.iter().copied().filter(|n| n / 50 == at).collect();
        assert_eq!(own, (at * 50..(at + 1) * 50).collect::<Vec<_>>());
    }
    let again: Vec<usize> = (0..11)
        .scan(None, |iterator: &mut Option<String>, _| {
            let (some, next, _) = page(first, "one?limit=20", iterator.as_deref());
            *iterator = Some(next);
            Some(some)
        })
        .flatten()
        .collect();
    assert_eq!(again, found, "whoever reads it again reads the same");
    for (_, server) in nodes {
        server.stop();
    }
}
