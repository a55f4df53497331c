//! The queue of a payment server's webhooks: what is tried again, what outlives a crash, what is counted.

use std::time::Duration;

use posthorn_domain::Timestamp;
use posthorn_testkit::wait::{eventually, until};
use serde_json::Value;

use crate::cedros::text;
use crate::cedros_world::{On, TENANT, World, becomes, listed, pay};

/// Every request is a POST of JSON, and whatever is not a 2xx is tried again: any status, or none at all.
#[test]
fn whatever_is_not_success_is_posted_again() {
    let mut world = World::new(On::Sqlite);
    world.callbacks("  retry: {max_attempts: 50, initial_interval: 300ms, max_interval: 300ms}\n");
    let server = world.home.serve();
    let failures = [400, 410, 302, 500, 0];
    world.answers(failures[0]);
    pay(&server, "evt_1");
    for status in failures {
        world.answers(status);
        let wanted = match status {
            0 => "no answer: connection_closed".to_owned(),
            status => format!("HTTP {status}"),
        };
        eventually(&wanted, || {
            let webhook = listed(&server, "").into_iter().next()?;
            assert_ne!(webhook["status"], "success", "{status} is not success");
            (webhook["lastError"] == wanted.as_str()).then_some(())
        });
    }
    world.answers(204);
    let webhook = becomes(&server, "success");
    let seen = world.receiver.seen();
    assert_eq!(webhook["attempts"], seen.len(), "each request is an attempt");
    assert!(seen.len() > failures.len());
    for request in &seen {
        assert_eq!(request.method, "POST");
        assert_eq!(request.headers["content-type"], "application/json");
        assert_eq!(request.body, seen[0].body);
    }
    server.stop();
}

fn time(webhook: &Value, name: &str) -> Timestamp {
    serde_json::from_value(webhook[name].clone()).expect("a time")
}

/// What was queued, how often it was tried and when it is due is on disk, and found again by age and time.
fn the_queue_outlives_a_crash_as_it_was(on: On) {
    let mut world = World::new(on);
    world.replace_dead_nodes_quickly();
    world.callbacks("  retry: {max_attempts: 3, initial_interval: 4s, multiplier: 1}\n");
    let mut server = world.home.serve();
    pay(&server, "evt_good");
    becomes(&server, "success");
    world.answers(500);
    for n in 1..=3 {
        pay(&server, &format!("evt_{n}"));
    }
    let before = eventually("each tried once", || {
        let all = listed(&server, "");
        all[..3].iter().all(|w| w["attempts"] == 1 && w["status"] == "pending").then_some(all)
    });
    for webhook in &before[..3] {
        let wait = time(webhook, "nextAttemptAt").since(time(webhook, "lastAttemptAt"));
        let wait = wait.to_duration();
        let range = Duration::from_secs(4)..Duration::from_secs(20);
        assert!(range.contains(&wait), "due by the schedule: {webhook}");
    }
    server.running.signal("KILL");
    server.running.wait();
    world.answers(200);
    let server = world.home.serve();
    let after = listed(&server, "");
    assert_eq!(after.len(), 4);
    for (old, new) in before.iter().zip(&after) {
        for name in ["id", "url", "payload", "eventId", "eventType", "createdAt", "maxAttempts"] {
            assert_eq!(old[name], new[name], "{name}");
        }
        if new["status"] == "pending" {
            for name in ["attempts", "lastError", "lastAttemptAt", "nextAttemptAt"] {
                assert_eq!(old[name], new[name], "{name}");
            }
        }
    }
    eventually("all of them", || (listed(&server, "?status=success").len() == 4).then_some(()));
    for (old, new) in before[..3].iter().zip(listed(&server, "")) {
        assert_eq!(new["attempts"], 2, "the count went on: {new}");
        assert!(text(&new, "lastAttemptAt") >= text(old, "nextAttemptAt"), "never early: {new}");
    }
    server.stop();
}

#[test]
fn the_queue_outlives_a_crash_as_it_was_on_sqlite() {
    the_queue_outlives_a_crash_as_it_was(On::Sqlite);
}

#[test]
fn the_queue_outlives_a_crash_as_it_was_on_postgresql() {
    the_queue_outlives_a_crash_as_it_was(On::Postgres);
}

/// The value of a figure; zero when it is not there.
fn figure(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0.0, |text| text.trim().parse().expect("a number"))
}

#[test]
fn each_webhook_is_observed_once_with_family_end_duration_and_attempt() {
    let mut world = World::new(On::Sqlite);
    world.callbacks("  retry: {max_attempts: 3, initial_interval: 400ms, multiplier: 2}\n");
    let server = world.home.serve();
    let metrics = || server.get("/metrics").body;
    let ended = |family: &str, status: &str| {
        let name = format!("cedros_webhooks_total{{event_type=\"{family}\",status=\"{status}\"}}");
        figure(&metrics(), &name)
    };
    let wait = |family: &str, status: &str, wanted: f64| {
        until(&format!("{wanted} {family} {status}"), || ended(family, status) >= wanted);
    };
    // At once.
    pay(&server, "evt_1");
    wait("payment", "success", 1.0);
    let text = metrics();
    assert!(
        !text.contains("cedros_webhook_retries_total{event_type=\"payment\""),
        "no retry: {text}"
    );
    let quick = figure(&text, "cedros_webhook_duration_seconds_sum{event_type=\"payment\"}");
    // At the third attempt: 400 and 800 milliseconds later.
    world.answers(500);
    pay(&server, "evt_2");
    world.receiver.wait_for(3);
    world.answers(200);
    wait("payment", "success", 2.0);
    let text = metrics();
    let third = "cedros_webhook_retries_total{event_type=\"payment\",attempt=\"3\"}";
    assert!((figure(&text, third) - 1.0).abs() < 0.1, "{text}");
    let sum = figure(&text, "cedros_webhook_duration_seconds_sum{event_type=\"payment\"}") - quick;
    assert!((1.2..20.0).contains(&sum), "from the first attempt to the last: {sum}");
    assert!(figure(&text, "cedros_webhook_dlq_total{event_type=\"payment\"}") < 0.1, "{text}");
    // Given up, of another family.
    world.answers(500);
    server.ask(&["send", "payments", "refund.succeeded", "{}", "--tenant", TENANT]);
    wait("refund", "dlq", 1.0);
    let text = metrics();
    assert!((figure(&text, "cedros_webhook_dlq_total{event_type=\"refund\"}") - 1.0).abs() < 0.1);
    let sum = figure(&text, "cedros_webhook_duration_seconds_sum{event_type=\"refund\"}");
    assert!((1.2..20.0).contains(&sum), "{sum}");
    // Each of them once, also some time later.
    std::thread::sleep(Duration::from_secs(1));
    let totals = [
        ("payment", "success"),
        ("refund", "dlq"),
        ("payment", "dlq"),
        ("refund", "success"),
        ("payment", "failed"),
    ]
    .map(|(family, status)| ended(family, status));
    assert!(
        totals.iter().zip([2.0, 1.0, 0.0, 0.0, 0.0]).all(|(a, b)| (a - b).abs() < 0.1),
        "{totals:?}"
    );
    let text = metrics();
    for (family, count) in [("payment", 2.0), ("refund", 1.0)] {
        let name = format!("cedros_webhook_duration_seconds_count{{event_type=\"{family}\"}}");
        assert!((figure(&text, &name) - count).abs() < 0.1, "{text}");
    }
    server.stop();
}
