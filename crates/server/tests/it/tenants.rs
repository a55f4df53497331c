//! One greedy tenant beside a quiet one, at the real program.
//!
//! Times are bounds that hold on a busy machine with a debug build; what they replace were tens of
//! seconds.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use posthorn_testkit::caller::call;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::postgres;

const GREEDY: &str = "greedy";
const QUIET: &str = "quiet";

/// A caller with the operator's key, who acts for any tenant.
#[derive(Clone)]
struct Caller {
    url: String,
    key: String,
}

impl Caller {
    fn of(server: &Server) -> Self {
        Self { url: server.url.clone(), key: server.key.clone() }
    }

    /// Status and document of an answer; 0 when there is none.
    fn ask(&self, tenant: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let asked = call(&self.url, method, path).key(&self.key).header("posthorn-tenant", tenant);
        let reply = asked.text(&body).try_send();
        reply.map_or((0, Value::Null), |reply| (reply.status, reply.expect(reply.status)))
    }

    #[track_caller]
    fn must(&self, tenant: &str, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(tenant, method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    /// Two tenants, each with a topic.
    fn prepare(&self) {
        for tenant in [GREEDY, QUIET] {
            self.must("default", "POST", "/v1/tenants", &json!({ "name": tenant }));
            self.must(tenant, "PUT", "/v1/topics/orders", &json!({}));
        }
    }

    fn publish(&self, tenant: &str, payload: &Value) -> (u16, Value) {
        let event = json!({"topic": "orders", "type": "order.created", "payload": payload});
        self.ask(tenant, "POST", "/v1/events", &event)
    }
}

/// What a quiet tenant and a health check saw while something went on.
struct Seen {
    publishes: Vec<Duration>,
    health: Vec<Duration>,
}

impl Seen {
    /// Nearly all in time: one in twenty may meet a machine that did something else.
    #[track_caller]
    fn check(&mut self) {
        for (what, times, bound) in [
            ("publishes", &mut self.publishes, Duration::from_secs(1)),
            ("health", &mut self.health, Duration::from_millis(500)),
        ] {
            times.sort_unstable();
            assert!(times.len() >= 5, "only {} {what}", times.len());
            let usual = times[(times.len() - 1) * 19 / 20];
            assert!(usual <= bound, "{what} took {usual:?} of {bound:?}: {times:?}");
        }
    }
}

/// Publishes for the quiet tenant and asks after the server's health while `busy` says so. Not one of
/// its publishes may be refused.
fn watch(caller: &Caller, busy: impl Fn() -> bool) -> Seen {
    let mut seen = Seen { publishes: Vec::new(), health: Vec::new() };
    while busy() {
        let began = Instant::now();
        let (status, answer) = caller.publish(QUIET, &json!({"n": 1}));
        seen.publishes.push(began.elapsed());
        assert_eq!(status, 202, "{answer}");
        let began = Instant::now();
        let (status, _) = caller.ask(QUIET, "GET", "/healthz", &Value::Null);
        seen.health.push(began.elapsed());
        assert_eq!(status, 200);
        thread::sleep(Duration::from_millis(20));
    }
    seen
}

/// Groups of `contains` tests, none of which holds.
fn searching(groups: usize, tests: usize) -> Value {
    let test = |n: usize| json!({"test": {"path": "/text", "op": "contains", "value": format!("abab{n}")}});
    let group = json!({"payload": {"any": (0..tests).map(test).collect::<Vec<_>>()}});
    json!({"any_of": vec![group; groups]})
}

fn configured(more: &str) -> Home {
    let home = Home::new();
    home.configure(&format!("{more}\n"));
    home
}

#[test]
fn costly_filters_keep_nobody_else_waiting_and_nothing_is_left_undelivered_silently() {
    let (_home, server) = Home::new().served();
    let caller = Caller::of(&server);
    caller.prepare();
    let subscribe = |filter: Value| {
        let new = json!({"url": "https://example.com/", "filter": filter, "paused": true});
        caller.ask(GREEDY, "POST", "/v1/subscriptions", &new)
    };
    let (status, answer) = subscribe(searching(15, 63));
    assert_eq!((status, answer["code"].as_str()), (422, Some("invalid_filter")), "{answer}");
    assert!(
        answer["detail"].as_str().is_some_and(|text| text.contains("quotas.match_cost_per_event"))
    );

    // What one event may cost is matched, and explained.
    let large = json!({"text": "ab".repeat(120_000)});
    assert_eq!(subscribe(searching(2, 60)).0, 201);
    let (status, answer) = caller.publish(GREEDY, &large);
    assert_eq!((status, &answer["deliveries"]), (202, &json!(0)), "{answer}");
    let event = format!("/v1/events/{}", answer["id"].as_str().expect("an id"));
    let explained = caller.must(GREEDY, "GET", &event, &Value::Null);
    assert!(
        explained["not_delivered"][0]["reasons"].to_string().contains("payload"),
        "{explained}"
    );

    for _ in 0..40 {
        assert_eq!(subscribe(searching(2, 60)).0, 201);
    }
    let (over, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut seen = thread::scope(|scope| {
        for n in 0..4 {
            let (caller, over, refused) = (caller.clone(), &over, &refused);
            let (large, event) = (&large, &event);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    if n == 0 {
                        // Those that were made after it are not matched with it.
                        caller.ask(GREEDY, "GET", event, &Value::Null);
                        continue;
                    }
                    let (status, answer) = caller.publish(GREEDY, large);
                    let code = answer["code"].as_str().unwrap_or_default().to_owned();
                    let told = matches!(code.as_str(), "matching_too_costly" | "rate_limited");
                    assert!(told && (400..500).contains(&status), "{status} {answer}");
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(5);
        let seen = watch(&caller, || Instant::now() < end);
        over.store(true, Ordering::Relaxed);
        seen
    });
    seen.check();
    assert!(refused.load(Ordering::Relaxed) > 0);
    // What costs little is still taken from the same tenant.
    assert_eq!(caller.publish(GREEDY, &json!({"text": "short"})).0, 202);
    server.stop();
}

fn fan_out_on(mut home: Home) {
    const SUBSCRIPTIONS: usize = 200;
    const EVENTS: usize = 300;
    let server = home.serve();
    let caller = Caller::of(&server);
    caller.prepare();
    let subscribe = || {
        let new = json!({"url": "https://example.com/", "paused": true});
        caller.must(GREEDY, "POST", "/v1/subscriptions", &new);
    };
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..SUBSCRIPTIONS / 8).for_each(|_| subscribe()));
        }
    });
    let one = |n| json!({"topic": "orders", "type": "order.created", "payload": n, "key": "k"});
    let batch = json!({"events": (0..EVENTS).map(one).collect::<Vec<_>>()});
    let (mut seen, items) = thread::scope(|scope| {
        let publishing = scope.spawn(|| caller.must(GREEDY, "POST", "/v1/events/batch", &batch));
        let seen = watch(&caller, || !publishing.is_finished());
        (seen, publishing.join().expect("published"))
    });
    let items = items["items"].as_array().expect("items");
    assert_eq!(items.len(), EVENTS);
    assert!(items.iter().all(|item| item["deliveries"] == SUBSCRIPTIONS), "{:?}", items[0]);
    if seen.publishes.len() >= 5 {
        seen.check();
    }
    // One more is more than an event may have.
    subscribe();
    let (status, answer) = caller.publish(GREEDY, &json!(1));
    assert_eq!((status, answer["code"].as_str()), (422, Some("fan_out_exceeded")), "{answer}");
    assert!(answer["detail"].as_str().is_some_and(|text| text.contains("quotas.fan_out")));
    server.stop();
}

#[test]
fn a_large_batch_with_a_large_fan_out_lets_others_through_on_sqlite() {
    fan_out_on(configured("quotas: {fan_out: 200}"));
}

#[test]
fn a_large_batch_with_a_large_fan_out_lets_others_through_on_postgresql() {
    let database = postgres::database();
    let home = configured("quotas: {fan_out: 200}");
    home.store_in(&database.url());
    fan_out_on(home);
}

/// Resident memory, in MiB.
fn memory(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.running.id()));
    let status = status.expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("there");
    let kib = line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok());
    kib.expect("a number") / 1024
}

#[test]
fn a_tenants_catalog_is_bounded_in_every_field_in_number_and_in_memory() {
    let quotas = "quotas: {subscriptions: 40, topics: 3, profiles: 2, catalog_memory: 16MiB}";
    let (mut home, server) = configured(quotas).served();
    let caller = Caller::of(&server);
    caller.prepare();
    let before = memory(&server);
    let big = "x".repeat(480_000);
    let template = "x".repeat(5_000);
    let test = |value: &str| json!({"test": {"path": "/a", "op": "eq", "value": value}});
    for (what, field) in [
        ("description", json!({"description": big})),
        ("labels", json!({"labels": {"a": big}})),
        ("filter", json!({"filter": {"any_of": [{"payload": test(&big)}]}})),
        ("filter", json!({"filter": {"any_of": [{"types": [template]}]}})),
        ("filter", json!({"filter": {"any_of": [{"attributes": {"a": template}}]}})),
        ("policy", json!({"policy": {"permanent": {"body": {"fields": {(big.as_str()): "any"}}}}})),
        ("policy.request.path", json!({"policy": {"request": {"path": format!("/{template}")}}})),
        ("policy.log.before", json!({"policy": {"log": {"before": "x".repeat(1_025)}}})),
        ("name", json!({"name": big})),
    ] {
        let mut new = json!({"url": "https://example.com/", "paused": true});
        new.as_object_mut().expect("an object").extend(field.as_object().expect("one").clone());
        for _ in 0..7 {
            let (status, answer) = caller.ask(GREEDY, "POST", "/v1/subscriptions", &new);
            assert_eq!(status, 422, "{what}: {answer}");
            let at = answer["field"].as_str().unwrap_or_default();
            assert!(at.starts_with(what), "{what}: {answer}");
        }
    }
    let full = |(status, answer): (u16, Value), quota: &str| {
        assert_eq!(
            (status, answer["code"].as_str()),
            (422, Some("catalog_quota_exceeded")),
            "{answer}"
        );
        assert!(answer["detail"].as_str().is_some_and(|text| text.contains(quota)), "{answer}");
    };
    // As large as a filter may be, in many small pieces, which take most memory.
    let pieces: Vec<String> = (0..12_000).map(|n| n.to_string()).collect();
    let test = |part: &[String]| json!({"test": {"path": "/a", "op": "in", "value": part}});
    let groups: Vec<Value> = pieces
        .chunks(100)
        .collect::<Vec<_>>()
        .chunks(40)
        .map(|parts| json!({"payload": {"any": parts.iter().map(|p| test(p)).collect::<Vec<_>>()}}))
        .collect();
    let filter = json!({"any_of": groups});
    let large = json!({"url": "https://example.com/", "paused": true, "filter": filter});
    let made =
        (0..60).take_while(|_| caller.ask(GREEDY, "POST", "/v1/subscriptions", &large).0 == 201);
    let made = made.count();
    assert!((2..30).contains(&made), "{made}");
    full(caller.ask(GREEDY, "POST", "/v1/subscriptions", &large), "quotas.catalog_memory");
    let after = memory(&server);
    assert!(after < before + 100, "{before} MiB before, {after} MiB after");

    // A change must fit as well, and one that makes it smaller always does.
    let list = caller.must(GREEDY, "GET", "/v1/subscriptions?limit=200", &Value::Null);
    let id = list["items"][0]["id"].as_str().expect("an id");
    let place = format!("/v1/subscriptions/{id}");
    caller.must(GREEDY, "PATCH", &place, &json!({"filter": {"any_of": [{}]}}));
    caller.must(GREEDY, "PATCH", &place, &json!({"filter": large["filter"]}));

    // Numbers, in the other tenant, which has all its quota.
    let small = json!({"url": "https://example.com/", "paused": true});
    (0..40).for_each(|_| drop(caller.must(QUIET, "POST", "/v1/subscriptions", &small)));
    full(caller.ask(QUIET, "POST", "/v1/subscriptions", &small), "quotas.subscriptions");
    caller.must(QUIET, "PUT", "/v1/topics/a", &json!({}));
    caller.must(QUIET, "PUT", "/v1/topics/b", &json!({}));
    caller.must(QUIET, "PUT", "/v1/topics/b", &json!({"description": "changed"}));
    full(caller.ask(QUIET, "PUT", "/v1/topics/c", &json!({})), "quotas.topics");
    caller.must(QUIET, "DELETE", "/v1/topics/a", &Value::Null);
    caller.must(QUIET, "PUT", "/v1/topics/c", &json!({}));
    for name in ["one", "two"] {
        let profile = json!({"base": "default", "policy": {}});
        caller.must(QUIET, "PUT", &format!("/v1/profiles/{name}"), &profile);
    }
    let third = json!({"base": "default", "policy": {}});
    full(caller.ask(QUIET, "PUT", "/v1/profiles/three", &third), "quotas.profiles");
    server.stop();

    // What was there before a quota is still there, and whoever runs it is told.
    home.edit(quotas, "quotas: {subscriptions: 5, catalog_memory: 1MiB}");
    let server = home.serve();
    let caller = Caller::of(&server);
    let list = caller.must(QUIET, "GET", "/v1/subscriptions?limit=200", &Value::Null);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(40));
    assert!(memory(&server) < before + 100, "{before} MiB before, {} MiB now", memory(&server));
    server.running.says("listening on");
    let log = server.running.stderr();
    assert_eq!(log.matches("a tenant is over its quota").count(), 2, "{log}");
    server.stop();
}

/// Lines that a policy wrote.
fn lines(server: &Server) -> usize {
    server.running.stderr().matches("a line of a policy").count()
}

#[test]
fn policies_write_so_many_lines_and_no_more() {
    let flood = |server: &Server, events: usize| {
        let caller = Caller::of(server);
        let (_listener, address) = server.listen("--json");
        caller.must("default", "PUT", "/v1/topics/orders", &json!({}));
        let before = format!("a line of a policy {}{{event.payload.text}}", "x".repeat(900));
        let new = json!({"url": address, "policy": {"log": {"before": before}}});
        caller.must("default", "POST", "/v1/subscriptions", &new);
        let text = "y".repeat(35_000);
        let event = json!({"topic": "orders", "type": "order.created", "payload": {"text": text}});
        let batch = json!({"events": vec![event; events]});
        caller.must("default", "POST", "/v1/events/batch", &batch);
        server.settles(&[("delivered", events)]);
    };
    let (_home, server) = configured("log: {policy_lines_per_second: 3}").served();
    let began = Instant::now();
    flood(&server, 200);
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("few") + 1;
    let left_out = eventually("the word of what was left out", || {
        let log = server.running.stderr();
        let counts = log.split("left_out").skip(1).filter_map(|rest| {
            let digits: String = rest
                .chars()
                .skip_while(|c| !c.is_ascii_digit())
                .take_while(char::is_ascii_digit)
                .collect();
            digits.parse::<usize>().ok()
        });
        let left_out: usize = counts.sum();
        (left_out + lines(&server) == 200).then_some(left_out)
    });
    assert!(left_out >= 200 - 3 * (seconds + 1), "{left_out} in {seconds} s");
    let longest = server.running.stderr().lines().map(str::len).max().unwrap_or_default();
    assert!(longest < 30_000, "{longest}");
    server.stop();

    let (_home, server) = configured("log: {policy: false}").served();
    flood(&server, 5);
    assert_eq!(lines(&server), 0);
    server.stop();
}

/// A store that is gone refuses every publish. The log says so once a second, with a count.
#[test]
fn publishes_that_cannot_be_stored_are_one_line_a_second() {
    let database = postgres::database();
    let mut home = Home::new();
    home.store_in(&database.url());
    let server = home.serve();
    let caller = Caller::of(&server);
    caller.must("default", "PUT", "/v1/topics/orders", &json!({}));
    database.stop_immediate().expect("stops");
    let began = Instant::now();
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while began.elapsed() < Duration::from_secs(3) {
                    if caller.publish("default", &json!(1)).0 == 503 {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("few");
    server.running.says("events could not be stored");
    let said = server.running.stderr().matches("events could not be stored").count();
    assert!(refused.load(Ordering::Relaxed) > 0);
    assert!((1..=seconds + 2).contains(&said), "{said} lines in {seconds} s");
}
