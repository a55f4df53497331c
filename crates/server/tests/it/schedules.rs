//! One subscription, one schedule: through the real program. What becomes of one delivery does not move
//! the others, a delivery that waits says why, and a receiver that only fails is given up in the end.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use posthorn_testkit::postgres::TestPostgres;
use serde_json::{Value, json};

use crate::caller::call;
use crate::harness::{Home, PATIENCE, Server, eventually, out};
use crate::postgres;

/// How much later than its time an attempt may begin: the promise is a second, and a busy machine may
/// need another one for itself.
const LATE_MAX: Duration = Duration::from_secs(2);
/// How long a call hangs: much longer than all the waits of the tests together.
const HANGS: Duration = Duration::from_secs(12);

/// A receiver whose answer is said by the payload: `{"n": 1, "does": "hang"}`.
struct Receiver {
    url: String,
    /// When each number was asked for.
    seen: Arc<Mutex<BTreeMap<u64, Vec<Instant>>>>,
    /// The status of everything that says nothing.
    status: Arc<Mutex<u16>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let seen: Arc<Mutex<BTreeMap<u64, Vec<Instant>>>> = Arc::default();
        let status = Arc::new(Mutex::new(200));
        let (into, told) = (Arc::clone(&seen), Arc::clone(&status));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (into, told) = (Arc::clone(&into), Arc::clone(&told));
                thread::spawn(move || serve(&stream, &into, &told));
            }
        });
        Self { url, seen, status }
    }

    fn answers(&self, status: u16) {
        *self.status.lock().expect("fine") = status;
    }

    fn of(&self, number: u64) -> Vec<Instant> {
        self.seen.lock().expect("fine").get(&number).cloned().unwrap_or_default()
    }

    fn all(&self) -> usize {
        self.seen.lock().expect("fine").values().map(Vec::len).sum()
    }
}

fn serve(
    stream: &TcpStream,
    seen: &Mutex<BTreeMap<u64, Vec<Instant>>>,
    status: &Mutex<u16>,
) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length: ") {
            length = value.parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).ok()?;
    seen.lock().ok()?.entry(body["n"].as_u64()?).or_default().push(Instant::now());
    let (status, more) = match body["does"].as_str() {
        Some("hang") => {
            thread::sleep(HANGS);
            (200, "")
        }
        Some("busy") => (503, ""),
        Some("later") => (503, "Retry-After: 20\r\n"),
        Some("gone") => (410, ""),
        Some("fail") => (500, ""),
        _ => (*status.lock().ok()?, ""),
    };
    let text = format!(
        "HTTP/1.1 {status} Whatever\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    (&mut &*stream).write_all(text.as_bytes()).ok()
}

/// Subscribes the receiver to a topic of its own.
fn subscribe(
    server: &Server,
    receiver: &Receiver,
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
    server.ask(&args)["id"].as_str().expect("an id").to_owned()
}

/// Publishes over HTTP, since a process for each event would take its time; returns the id.
#[expect(clippy::disallowed_methods, reason = "the test's own client talks to its own server")]
fn publish(server: &Server, topic: &str, payload: &Value) -> String {
    let account = payload["n"].to_string();
    let event = json!({"topic": topic, "type": "user.changed", "payload": payload,
        "attributes": {"service_partition": "pca.hub.t", "eventSender": "user", "account": account}});
    let (host, body) = (server.url.strip_prefix("http://").expect("plain"), event.to_string());
    let mut tcp = TcpStream::connect(host).expect("a connection");
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        server.key,
        body.len()
    );
    tcp.write_all(head.as_bytes()).expect("sent");
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).expect("an answer");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let body: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"));
    body["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Hanging calls beside failing ones: every retry comes at its time, and so does what is new. Before,
/// three failures were enough to let one hanging call stop everything.
#[test]
fn a_hanging_call_does_not_move_the_schedule_of_the_others() {
    let mut home = Home::new();
    let server = home.serve();
    let receiver = Receiver::start();
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
    let mut home = Home::new();
    let server = home.serve();
    let receiver = Receiver::start();
    let waits = json!({"schedule": {"backoff": {"fixed": {"wait": "1s"}}, "jitter": "none",
        "max_attempts": 2}});
    subscribe(&server, &receiver, "fails", "default", &waits);
    // Nobody listens there.
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let nobody = Receiver { url: format!("http://{closed}"), ..Receiver::start() };
    subscribe(&server, &nobody, "refuses", "default", &waits);
    let began = Instant::now();
    for n in 0..40 {
        publish(&server, "fails", &json!({"n": n, "does": "fail"}));
        publish(&server, "refuses", &json!({"n": n}));
    }
    eventually("80 dead letters", || {
        let stats = server.ask(&["stats"]);
        (stats["dead"] == 80 && stats["pending"] == 0).then_some(())
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
    eventually(reason, || {
        let found = waiting(server, event);
        (found["reason"] == reason && found["until"].is_string() == known).then_some(())
    });
}

/// Whatever a delivery waits for, it says so wherever it is shown.
#[test]
fn a_delivery_that_waits_says_why_and_until_when() {
    let mut home = Home::new();
    let server = home.serve();
    let receiver = Receiver::start();
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
    let show = server.command().args(["events", "show", &failed]).output().expect("runs");
    assert!(out(&show).contains("waits for schedule until 2"), "{}", out(&show));
    let list = server.command().args(["deliveries", "list"]).output().expect("runs");
    assert!(out(&list).contains("WHY") && out(&list).contains("paused"), "{}", out(&list));
    let show = server.command().args(["subscriptions", "show", &gone]).output().expect("runs");
    assert!(out(&show).contains("{\"reason\":\"disabled\"}"), "{}", out(&show));
}

/// The rest of what a delivery can wait for, with one slot for attempts.
#[test]
fn a_delivery_that_waits_for_spacing_a_gate_or_a_slot_says_so() {
    let mut home = Home::new();
    let file = home.path().join("posthorn.yaml");
    let config = std::fs::read_to_string(&file).expect("there");
    let one_slot = config.replace("engine: {drain: 2s}", "engine: {drain: 2s, slots: 1}");
    assert_ne!(one_slot, config);
    std::fs::write(&file, one_slot).expect("written");
    let server = home.serve();
    let receiver = Receiver::start();
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
    eventually("two that hang", || (receiver.of(3).len() == 2).then_some(()));
    let reasons = events.each_ref().map(|event| waiting(&server, event));
    let waits: Vec<&Value> = reasons.iter().filter(|waiting| !waiting.is_null()).collect();
    assert_eq!(waits, [&json!({"reason": "quota"})], "{reasons:?}");
}

/// A receiver that only fails is given up, also when the server was restarted meanwhile; its work is
/// kept, and what waits while a subscription stands still does not grow old.
fn a_dead_endpoint_ends(database: Option<&TestPostgres>) {
    let mut home = Home::new();
    if let Some(database) = database {
        postgres::configure(&home, &database.url());
    }
    let server = home.serve();
    let receiver = Receiver::start();
    receiver.answers(500);
    let policy = json!({"failing": {"disable_after": "6s"}, "schedule": {"jitter": "none",
        "backoff": {"fixed": {"wait": "100ms"}}, "max_attempts": 2, "max_age": "8s"}});
    let id = subscribe(&server, &receiver, "dead", "default", &policy);
    publish(&server, "dead", &json!({"n": 1}));
    let first = eventually("the first attempt", || receiver.of(1).first().copied());
    eventually("the first dead letter", || (server.ask(&["stats"])["dead"] == 1).then_some(()));
    publish(&server, "dead", &json!({"n": 2}));
    eventually("another one", || (server.ask(&["stats"])["dead"] == 2).then_some(()));
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
    let metrics = call(&server.url, None, "GET", "/metrics", &[]).expect("an answer").body;
    let counted = "posthorn_subscriptions_disabled_total{reason=\"failing\"} 1";
    assert!(metrics.contains(counted), "{metrics}");

    // What comes waits, and while it does it does not age.
    publish(&server, "dead", &json!({"n": 4}));
    thread::sleep(Duration::from_secs(9));
    let stats = server.ask(&["stats"]);
    assert_eq!((&stats["pending"], &stats["dead"]), (&json!(2), &json!(2)), "{stats}");
    receiver.answers(200);
    server.ask(&["subscriptions", "resume", &id]);
    eventually("what was kept", || (server.ask(&["stats"])["delivered"] == 2).then_some(()));
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
