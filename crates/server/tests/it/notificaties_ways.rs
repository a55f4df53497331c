//! Other ways into a kanaal than its API, and what the log says of messages that do not arrive.

use std::time::Instant;

use posthorn_testkit::program::Server;
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};

use crate::notificaties_world::{
    Callback, abonnement, home, kanaal, message, native, publish, stats,
};

fn event(payload: &Value) -> Value {
    json!({"topic": "zaken", "type": "x", "payload": payload})
}

#[test]
fn whatever_comes_into_a_kanaal_is_checked_like_a_message_of_the_api() {
    let (home, server) = home().served();
    kanaal(&server, "zaken", &["bron"]);
    let (all, some) = (Callback::new(), Callback::new());
    abonnement(&server, &all, &json!([{"naam": "zaken"}]));
    abonnement(&server, &some, &json!([{"naam": "zaken", "filters": {"bron": "a"}}]));

    let fine = message("zaken", &json!({"bron": "a"}));
    let without = |field: &str| {
        let mut wrong = fine.clone();
        wrong.as_object_mut().expect("an object").remove(field);
        wrong
    };
    let with = |field: &str, value: Value| {
        let mut wrong = fine.clone();
        wrong[field] = value;
        wrong
    };
    let wrong = [
        (json!({}), "hoofdObject"),
        (json!([]), "kanaal zaken"),
        (without("actie"), "actie"),
        (with("kanaal", json!("other")), "`other`"),
        (with("resourceUrl", json!("nowhere")), "resourceUrl"),
        (with("aanmaakdatum", json!("2999-01-01T00:00:00Z")), "future"),
        (with("kenmerken", json!({"andere": "x"})), "kenmerken"),
    ];
    for (payload, says) in &wrong {
        let reply = native(&server, "POST", "/v1/events", &event(payload));
        assert_eq!(reply.status, 422, "{payload}: {}", reply.body);
        let problem = reply.json();
        assert_eq!(problem["field"], "payload", "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains(says)), "{problem}");
    }
    let mut typed = event(&fine);
    typed["content_type"] = json!("text/plain");
    assert_eq!(native(&server, "POST", "/v1/events", &typed).json()["field"], "content_type");

    // The command line, which is where people try things.
    let file = home.path().join("message.json");
    let run = |payload: &Value| {
        std::fs::write(&file, payload.to_string()).expect("written");
        let args = ["send", "zaken", "zaak.created", "@message.json", "--tenant", "gemeente"];
        server.run(&args)
    };
    let refused = run(&without("resource"));
    assert!(refused.code != Some(0));
    refused.says(&["kanaal zaken", "resource"]);
    assert_eq!(stats(&server)["events"], 0, "nothing of it was taken in");
    run(&fine).exits(0);

    // Each of a batch stands for itself. What arrives is what the API would have sent, and filters see
    // the kenmerken whatever attributes were given.
    let other = message("zaken", &json!({"bron": "b"}));
    let mut misled = event(&other);
    misled["attributes"] = json!({"bron": "a"});
    let batch = json!({"events": [event(&fine), event(&json!({})), misled]});
    let reply = native(&server, "POST", "/v1/events/batch", &batch).expect(200);
    let statuses: Vec<&Value> =
        reply["items"].as_array().expect("items").iter().map(|item| &item["status"]).collect();
    assert_eq!(statuses, [202, 422, 202], "{reply}");
    assert_eq!(reply["items"][1]["error"]["field"], "payload");
    assert_eq!(all.wait(3).len(), 3);
    let seen = some.wait(2);
    assert!(seen.iter().all(|seen| seen.json() == fine), "{seen:?}");
    until("the end", || stats(&server)["delivered"] == 5);
    assert_eq!((all.seen().len(), some.seen().len()), (3, 2));

    // Other topics of the tenant are nobody's business.
    let topic = server.ask("topics put other --tenant gemeente");
    assert_eq!(topic["name"], "other");
    let free = json!({"topic": "other", "type": "x", "payload": {"anything": 1}});
    assert_eq!(native(&server, "POST", "/v1/events", &free).status, 202);
    // One that wants CloudEvents cannot get what has no source.
    let wants = json!({"callbackUrl": all.url("/ce"), "auth": crate::notificaties_world::AUTH,
        "sendCloudevents": true, "kanalen": [{"naam": "zaken"}]});
    crate::notificaties_world::ask(&server, "consumer", "POST", "/abonnement", &wants).expect(201);
    let reply = native(&server, "POST", "/v1/events", &event(&fine));
    assert_eq!(reply.status, 422);
    assert!(reply.body.contains("source"), "{}", reply.body);
    let sourced = with("source", json!("urn:oz"));
    assert_eq!(native(&server, "POST", "/v1/events", &event(&sourced)).status, 202);
    let converted =
        eventually("a CloudEvent", || all.seen().into_iter().find(|seen| seen.path == "/ce"));
    assert_eq!(converted.json()["type"], "nl.overheid.zaken.status.create");
    server.stop();
}

/// The lines of a log with this message.
fn lines(server: &Server, text: &str) -> Vec<Value> {
    let log = server.running.stderr();
    let read = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    read.filter(|line| line["message"] == text || line["fields"]["message"] == text).collect()
}

#[test]
fn failed_sends_and_dead_letters_are_in_the_log_and_do_not_fill_it() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &[]);
    let receiver = Callback::new();
    let made = abonnement(&server, &receiver, &json!([{"naam": "zaken"}]));
    receiver.answer(500);
    publish(&server, &message("zaken", &json!({}))).expect(201);
    until("a dead letter", || stats(&server)["dead"] == 1);
    let event = server.ask("events list --tenant gemeente")["items"][0]["id"].clone();
    let subscription = server.ask("subscriptions list --tenant gemeente")["items"][0]["id"].clone();
    let uuid = made["url"].as_str().and_then(|url| url.rsplit('/').next()).expect("a UUID");
    let failed = eventually("the lines", || {
        Some(lines(&server, "notification_failed")).filter(|lines| lines.len() == 4)
    });
    let field = |line: &Value, name: &str| match line.get(name) {
        Some(value) => value.clone(),
        None => line["fields"][name].clone(),
    };
    for (number, line) in failed.iter().enumerate() {
        assert_eq!(line["level"], "WARN", "{line}");
        assert_eq!(field(line, "event"), event, "{line}");
        assert_eq!(field(line, "subscription"), subscription, "{line}");
        assert_eq!(field(line, "name"), uuid, "{line}");
        assert_eq!(field(line, "attempt"), number + 1, "{line}");
        assert_eq!(field(line, "outcome"), "HTTP 500", "{line}");
    }
    let dead = lines(&server, "notification_dead_letter");
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!((field(&dead[0], "event"), field(&dead[0], "attempts")), (event, json!(4)));

    // Many more are counted rather than written down.
    let begun = Instant::now();
    for _ in 0..40 {
        publish(&server, &message("zaken", &json!({}))).expect(201);
    }
    // As fast as a receiver is tried that fails and fails.
    until("more attempts", || receiver.seen().len() >= 10);
    let most = 5 * (2 + usize::try_from(begun.elapsed().as_secs() / 10).expect("soon"));
    for name in ["notification_failed", "notification_dead_letter"] {
        let written = lines(&server, name).len();
        assert!((1..=most).contains(&written), "{written} lines {name}, not up to {most}");
    }
    // Other tenants have them too, under a name of no system.
    let refused = server.ask(&format!(
        "subscriptions create '{}' --topic orders --profile nrc",
        receiver.url("/orders")
    ));
    assert!(refused["id"].is_string(), "{refused}");
    server.ask("send orders order.created --create-topic");
    eventually("a line", || lines(&server, "a delivery is a dead letter").first().cloned());
    assert_eq!(lines(&server, "an attempt failed").len(), 4);
    server.stop();
}
