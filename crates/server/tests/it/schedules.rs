//! One subscription, one schedule: through the real program. What becomes of one delivery does not move
//! the others, a delivery that waits says why, and a receiver that only fails is given up in the end.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use posthorn_testkit::postgres::TestPostgres;
use posthorn_testkit::program::{Home, Server, id_of};
use posthorn_testkit::receiver::{Answer, Receiver, Request};
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};

use crate::postgres;

/// How much later than its time an attempt may begin: the promise is a second, and a busy machine may
/// need another one for itself.
const LATE_MAX: Duration = Duration::from_secs(2);
/// How long a call hangs: much longer than all the waits of the tests together.
const HANGS: Duration = Duration::from_secs(12);

/// A receiver whose answer is said by the payload: `{"n": 1, "does": "hang"}`.
struct Told {
    receiver: Receiver,
    url: String,
    /// The status of everything that says nothing.
    status: Arc<AtomicU16>,
}

impl Told {
    fn start() -> Self {
        let status = Arc::new(AtomicU16::new(200));
        let usual = Arc::clone(&status);
        let receiver = Receiver::scripted(move |seen| {
            let Some(body) = payload(seen) else { return Answer::from(0) };
            match body["does"].as_str() {
                Some("hang") => Answer::from(200).after(HANGS),
                Some("busy") => 503.into(),
                Some("later") => Answer::from(503).header("Retry-After", "20"),
                Some("gone") => 410.into(),
                Some("fail") => 500.into(),
                _ => usual.load(Ordering::SeqCst).into(),
            }
        });
        Self { url: receiver.url(""), receiver, status }
    }

    fn answers(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// When a number was asked for.
    fn of(&self, number: u64) -> Vec<Instant> {
        let seen = self.receiver.seen();
        let own = seen.iter().filter(|seen| payload(seen).is_some_and(|body| body["n"] == number));
        own.map(|seen| seen.at).collect()
    }

    fn all(&self) -> usize {
        self.receiver.count()
    }
}

fn payload(seen: &Request) -> Option<Value> {
    serde_json::from_slice(&seen.body).ok()
}

/// Subscribes the receiver to a topic of its own.
fn subscribe(
    server: &Server,
    receiver: &Told,
    topic: &str,
    profile: &str,
    policy: &Value,
) -> String {
    server.ask(&["topics", "put", topic]);
    let policy = policy.to_string();
    let mut args = vec!["subscriptions", "create", &receiver.url, "--topic", topic];
    args.extend(["--profile", profile, "--policy", &policy]);
    if profile.starts_with("pca-hub") {
        args.extend(["--secret", "event-api-key=key"]);
    }
    id_of(&server.ask(&args))
}

/// Publishes over HTTP, since a process for each event would take its time; returns the id.
fn publish(server: &Server, topic: &str, payload: &Value) -> String {
    let account = payload["n"].to_string();
    let event = json!({"topic": topic, "type": "user.changed", "payload": payload,
        "attributes": {"service_partition": "pca.hub.t", "eventSender": "user", "account": account}});
    id_of(&server.call("POST", "/v1/events").json(&event).send().expect(202))
}

/// Hanging calls beside failing ones: every retry comes at its time, and so does what is new. Before,
/// three failures were enough to let one hanging call stop everything.
#[test]
fn a_hanging_call_does_not_move_the_schedule_of_the_others() {
    let (_home, server) = Home::new().served();
    let receiver = Told::start();
    // The waits are those of the systems where a test can wait for them.
    let systems = [
        ("cedros", json!({}), vec![1_000, 2_000]),
        (
            "notificaties",
            json!({"schedule": {"backoff": {"exponential":
                {"initial": "1s", "factor": 2.0, "cap": "10s"}}}}),
            vec![1_000, 2_000],
        ),
        (
            "pca-hub-interim",
            json!({"values": {"hub_domain": "hub.example"}, "gate": null,
                "url": {"https_only": false}, "order": {"key": "{event.attributes.account}"},
                "request": {"headers": {"X-PCA-organization-id": null}},
                "log": {"field": null, "before": null, "failure": null, "fields": {}},
                "schedule": {"backoff": {"list": {"waits": ["3s"]}}, "jitter": "none"}}),
            vec![3_000],
        ),
    ];
    for (index, (profile, policy, _)) in systems.iter().enumerate() {
        let topic = format!("t{index}");
        subscribe(&server, &receiver, &topic, profile, policy);
        for n in 0..2 {
            publish(&server, &topic, &json!({"n": index * 100 + n, "does": "hang"}));
        }
        for n in 2..8 {
            let does = if n % 2 == 0 { "fail" } else { "busy" };
            publish(&server, &topic, &json!({"n": index * 100 + n, "does": does}));
        }
    }
    thread::sleep(Duration::from_millis(1_500));
    let published = Instant::now();
    for index in 0..systems.len() {
        publish(&server, &format!("t{index}"), &json!({"n": index * 100 + 50}));
    }
    for (index, (profile, _, waits)) in systems.iter().enumerate() {
        let base = index as u64 * 100;
        let fresh = eventually("the new event", || receiver.of(base + 50).first().copied());
        assert!(fresh - published < LATE_MAX, "{profile}: {:?}", fresh - published);
        for n in 2..8 {
            let times = eventually("the retries", || {
                let times = receiver.of(base + n);
                (times.len() > waits.len()).then_some(times)
            });
            for (pair, wait) in times.windows(2).zip(waits) {
                let (gap, wait) = (pair[1] - pair[0], Duration::from_millis(*wait));
                let right = gap + Duration::from_millis(20) >= wait && gap < wait + LATE_MAX;
                assert!(right, "{profile} {n}: {gap:?} instead of {wait:?}");
            }
        }
    }
    assert!(published.elapsed() < HANGS, "all that while the calls were hanging");
}

/// A receiver that fails at once is asked at its schedule, however many wait.
#[test]
fn a_backlog_that_fails_quickly_keeps_its_schedule() {
    let (_home, server) = Home::new().served();
    let receiver = Told::start();
    let waits = json!({"schedule": {"backoff": {"fixed": {"wait": "1s"}}, "jitter": "none",
        "max_attempts": 2}});
    subscribe(&server, &receiver, "fails", "default", &waits);
    // Nobody listens there.
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let nobody = Told { url: format!("http://{closed}"), ..Told::start() };
    subscribe(&server, &nobody, "refuses", "default", &waits);
    let began = Instant::now();
    for n in 0..40 {
        publish(&server, "fails", &json!({"n": n, "does": "fail"}));
        publish(&server, "refuses", &json!({"n": n}));
    }
    until("80 dead letters", || {
        let stats = server.ask("stats");
        stats["dead"] == 80 && stats["pending"] == 0
    });
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(receiver.all(), 80);
}

/// The reason that the only waiting delivery of an event gives.
fn waiting(server: &Server, event: &str) -> Value {
    server.ask(&["events", "show", event])["deliveries"][0]["waiting"].clone()
}

#[track_caller]
fn waits_for(server: &Server, event: &str, reason: &str, known: bool) {
    until(reason, || {
        let found = waiting(server, event);
        found["reason"] == reason && found["until"].is_string() == known
    });
}

/// Whatever a delivery waits for, it says so wherever it is shown.
#[test]
fn a_delivery_that_waits_says_why_and_until_when() {
    let (_home, server) = Home::new().served();
    let receiver = Told::start();
    let once = |more: Value| {
        let mut policy = json!({"schedule": {"backoff": {"fixed": {"wait": "1h"}}}});
        policy.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        policy
    };
    let make =
        |topic: &str, policy: Value| subscribe(&server, &receiver, topic, "default", &policy);

    make("plain", once(json!({})));
    let failed = publish(&server, "plain", &json!({"n": 1, "does": "fail"}));
    waits_for(&server, &failed, "schedule", true);

    let slow = make("later", once(json!({})));
    let asked = publish(&server, "later", &json!({"n": 2, "does": "later"}));
    eventually("the first attempt", || receiver.of(2).first().copied());
    waits_for(&server, &asked, "schedule", true);
    let behind = publish(&server, "later", &json!({"n": 3}));
    waits_for(&server, &behind, "retry_after", true);
    let shown = server.ask(&["subscriptions", "show", &slow]);
    assert_eq!(shown["waiting"]["reason"], "retry_after", "{shown}");
    assert!(shown["failing_since"].is_string(), "{shown}");

    make("rate", once(json!({"limits": {"rate": 0.05}})));
    publish(&server, "rate", &json!({"n": 4}));
    let second = publish(&server, "rate", &json!({"n": 5}));
    waits_for(&server, &second, "rate", true);

    make("one", once(json!({"limits": {"concurrency": 1}})));
    publish(&server, "one", &json!({"n": 6, "does": "hang"}));
    let second = publish(&server, "one", &json!({"n": 7}));
    waits_for(&server, &second, "concurrency", false);

    make("lane", once(json!({"order": {"scope": "subscription"}})));
    publish(&server, "lane", &json!({"n": 8, "does": "fail"}));
    let second = publish(&server, "lane", &json!({"n": 9}));
    waits_for(&server, &second, "lane", false);

    let limits = json!({"response": "1100ms", "total": "2s"});
    make("breaker", once(json!({"breaker": {"open_after": 1, "longest": "1h"}, "limits": limits})));
    publish(&server, "breaker", &json!({"n": 10, "does": "hang"}));
    let held = eventually("an open breaker", || {
        let event = publish(&server, "breaker", &json!({"n": 11, "does": "hang"}));
        (waiting(&server, &event)["reason"] == "breaker").then_some(event)
    });
    let page = server.ask(&["deliveries", "list", "--event", &held]);
    let delivery = page["items"][0]["id"].as_str().expect("an id").to_owned();
    assert!(page["items"][0]["waiting"]["reason"].is_string(), "{page}");
    assert!(server.ask(&["deliveries", "show", &delivery])["state"].is_string());

    let gone = make("gone", once(json!({})));
    let event = publish(&server, "gone", &json!({"n": 12, "does": "gone"}));
    waits_for(&server, &event, "disabled", false);
    assert_eq!(server.ask(&["subscriptions", "show", &gone])["waiting"]["reason"], "disabled");

    server.ask(&["subscriptions", "pause", &slow]);
    waits_for(&server, &behind, "paused", false);

    // People read it too.
    let show = server.run(&["events", "show", &failed]);
    assert!(show.out.contains("waits for schedule until 2"), "{}", show.out);
    let list = server.run("deliveries list");
    assert!(list.out.contains("WHY") && list.out.contains("paused"), "{}", list.out);
    let show = server.run(&["subscriptions", "show", &gone]);
    assert!(show.out.contains("{\"reason\":\"disabled\"}"), "{}", show.out);
}

/// The rest of what a delivery can wait for, with one slot for attempts.
#[test]
fn a_delivery_that_waits_for_spacing_a_gate_or_a_slot_says_so() {
    let mut home = Home::new();
    home.edit("engine: {drain_timeout: 2s}", "engine: {drain_timeout: 2s, slots: 1}");
    let server = home.serve();
    let receiver = Told::start();
    let make = |topic: &str, policy: Value| {
        subscribe(&server, &receiver, topic, "default", &policy);
    };

    let key = json!({"scope": "key", "key": "{event.attributes.account}"});
    make("spacing", json!({"order": key, "spacing": "6s"}));
    publish(&server, "spacing", &json!({"n": 1}));
    let second = publish(&server, "spacing", &json!({"n": 1}));
    eventually("the first", || receiver.of(1).first().copied());
    waits_for(&server, &second, "spacing", true);

    // What asks without an event is not answered.
    let gate = json!({"url": format!("{}/gate", receiver.url), "timeout": "1s", "status": ["2xx"],
        "on_closed": {"postpone": {"wait": "1h"}}});
    make("gate", json!({"gate": gate}));
    let event = publish(&server, "gate", &json!({"n": 2}));
    waits_for(&server, &event, "gate", true);
    assert!(receiver.of(2).is_empty());

    for topic in ["a", "b", "c"] {
        make(topic, json!({"breaker": null}));
    }
    let events =
        ["a", "b", "c"].map(|topic| publish(&server, topic, &json!({"n": 3, "does": "hang"})));
    // An attempt that takes long leaves its slot to another, but not to all.
    until("two that hang", || receiver.of(3).len() == 2);
    let reasons = events.each_ref().map(|event| waiting(&server, event));
    let waits: Vec<&Value> = reasons.iter().filter(|waiting| !waiting.is_null()).collect();
    assert_eq!(waits, [&json!({"reason": "quota"})], "{reasons:?}");
}

/// A receiver that only fails is given up, also when the server was restarted meanwhile; its work is
/// kept, and what waits while a subscription stands still does not grow old.
fn a_dead_endpoint_ends(database: Option<&TestPostgres>) {
    let mut home = Home::new();
    if let Some(database) = database {
        home.store_in(&database.url());
    }
    let server = home.serve();
    let receiver = Told::start();
    receiver.answers(500);
    let policy = json!({"failing": {"disable_after": "6s"}, "schedule": {"jitter": "none",
        "backoff": {"fixed": {"wait": "100ms"}}, "max_attempts": 2, "max_age": "8s"}});
    let id = subscribe(&server, &receiver, "dead", "default", &policy);
    publish(&server, "dead", &json!({"n": 1}));
    let first = eventually("the first attempt", || receiver.of(1).first().copied());
    server.settles(&[("dead", 1)]);
    publish(&server, "dead", &json!({"n": 2}));
    server.settles(&[("dead", 2)]);
    assert_eq!(server.ask(&["subscriptions", "show", &id])["status"], "active");
    server.stop();

    let server = home.serve();
    thread::sleep(Duration::from_secs(6).saturating_sub(first.elapsed()));
    publish(&server, "dead", &json!({"n": 3}));
    let published = Instant::now();
    let shown = eventually("the end", || {
        let shown = server.ask(&["subscriptions", "show", &id]);
        (shown["status"] == "disabled").then_some(shown)
    });
    // Its streak began before the restart, or it would have taken as long again.
    assert!(published.elapsed() < Duration::from_secs(5), "{:?}", published.elapsed());
    assert_eq!(
        (&shown["status_reason"], &shown["waiting"]["reason"]),
        (&json!("failing"), &json!("disabled"))
    );
    let counted = "posthorn_subscriptions_disabled_total{reason=\"failing\"} 1";
    until("the count", || server.metrics().contains(counted));

    // What comes waits, and while it does it does not age.
    publish(&server, "dead", &json!({"n": 4}));
    thread::sleep(Duration::from_secs(9));
    let stats = server.ask("stats");
    assert_eq!((&stats["pending"], &stats["dead"]), (&json!(2), &json!(2)), "{stats}");
    receiver.answers(200);
    server.ask(&["subscriptions", "resume", &id]);
    server.settles(&[("delivered", 2)]);
    server.stop();
}

#[test]
fn a_dead_endpoint_ends_on_sqlite() {
    a_dead_endpoint_ends(None);
}

#[test]
fn a_dead_endpoint_ends_on_postgresql() {
    let database = postgres::database();
    a_dead_endpoint_ends(Some(&database));
}
