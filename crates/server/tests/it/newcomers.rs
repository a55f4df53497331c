//! What somebody meets who has never used this before: errors in plain words, tables one can read,
//! names in place of ids, and clients made from the OpenAPI document.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use posthorn_domain::{FailureCode, WaitReason};
use posthorn_testkit::caller::call;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};

use crate::interpreter::Language;

/// Words that only those know who have read the source.
const FOREIGN: [&str; 7] =
    ["struct", "variant", "expected", "invalid type", "missing field", "unknown field", "serde"];

#[track_caller]
fn assert_plain(text: &str) {
    for word in FOREIGN {
        assert!(!text.contains(word), "`{word}` in:\n{text}");
    }
}

#[test]
fn errors_of_policies_and_configurations_name_the_place_in_plain_words() {
    let (home, server) = Home::new().served();
    for (policy, field, words) in [
        (
            r#"{"schedule":{"backoff":{"fixed":{"wait":"5"}}}}"#,
            "policy.schedule.backoff.fixed.wait",
            "`5` is not a duration",
        ),
        (r#"{"order":"key"}"#, "policy.order", "must be an object with scope, key, dead_head"),
        (r#"{"limits":{"conurrency":1}}"#, "policy.limits.conurrency", "there is no such field"),
        (
            r#"{"request":{"method":"post"}}"#,
            "policy.request.method",
            "one of POST, PUT, PATCH, GET",
        ),
        (r#"{"auth":[{"kind":"otp","secret":"s"}]}"#, "policy.auth[0].method", "is missing"),
    ] {
        let url = "http://127.0.0.1:9/";
        let output = server.run(&["subscriptions", "create", url, "--policy", policy]).exits(1);
        let output = output.says(&["invalid_policy", &format!("(field `{field}`)"), words]);
        assert_plain(&output.err);
    }
    server.stop();

    for (config, key, words) in [
        (
            "server: {connections: many}",
            "server.connections",
            "must be a whole number from 0, not a text",
        ),
        (
            "engine: {webhook_origin: 'a b'}",
            "engine.webhook_origin",
            "must be a name such as events.example.com",
        ),
        (
            "server: {webhook_origins: ['a,b']}",
            "server.webhook_origins.0",
            "must be a name such as events.example.com",
        ),
        ("server: {public_names: posthorn}", "server.public_names", "must be a list, not a text"),
        ("telemetry: {metrics: perhaps}", "telemetry.metrics", "must be true or false, not a text"),
        (
            "engine: {drain_timeout: 5}",
            "engine.drain_timeout",
            "must be a duration as a text, like \"30s\" or \"1h30m\", not a number",
        ),
        ("engine: {drain_timeout: soon}", "engine.drain_timeout", "`soon` is not a duration"),
        (
            "profiles: {a: {polcy: {}}}",
            "profiles.a.polcy",
            "there is no such field here; known fields: base, policy",
        ),
        (
            "profiles: {a: {policy: {schedule: {backoff: {fixed: {wait: 5}}}}}}",
            "profiles.a.policy.schedule.backoff.fixed.wait",
            "must be a duration as a text, like \"30s\" or \"1h30m\", not a number",
        ),
        (
            "profiles: {a: {policy: {order: {scope: keys}}}}",
            "profiles.a.policy.order.scope",
            "`keys` is not one of none, subscription, key",
        ),
        ("profiles: {a: {policy: {auth: [{}]}}}", "profiles.a.policy.auth[0].kind", "is missing"),
    ] {
        home.write("bad.yaml", config);
        let output = home.run("check --config bad.yaml").exits(78).says(&[
            &format!("{key}: "),
            words,
            "(from file bad.yaml)",
        ]);
        assert_plain(&output.err);
    }
}

#[test]
fn the_last_request_of_a_listener_is_answered_before_it_ends() {
    let (_home, server) = Home::new().served();
    let args = ["--count", "1", "--delay", "300ms", "--status", "202"];
    let (mut listener, address) = server.listen(&args);
    let begun = Instant::now();
    let reply = call(&address, "POST", "/hook").send();
    reply.expect(202);
    assert!(begun.elapsed() >= Duration::from_millis(300), "it waited as it was told");
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());

    // The same for a delivery: it has success, and the subscription is gone only afterwards.
    let args = ["--subscribe", "orders", "--count", "1", "--delay", "300ms"];
    let (mut listener, _) = server.listen(&args);
    let sent = server.ask(&["send", "orders", "order.created", "{}"]);
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let event = sent["id"].as_str().expect("an id");
    until("the end of the delivery", || {
        let list = server.ask(&["deliveries", "list", "--event", event]);
        list["items"][0]["state"] == "delivered"
    });

    // One that never answers ends all the same.
    let (mut listener, address) = server.listen("--count 1 --stall");
    assert!(call(&address, "POST", "/").try_send().is_none());
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn pages(folder: &Path, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, out);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            out.push(std::fs::read_to_string(&path).expect("a page"));
        }
    }
}

/// Names in a text: what begins so, as far as it goes on like a name.
fn names<'a>(text: &'a str, begin: &'a str) -> impl Iterator<Item = String> + 'a {
    text.match_indices(begin).map(|(at, _)| {
        let is_part = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_';
        text[at..].chars().take_while(is_part).collect()
    })
}

#[test]
fn all_counters_that_the_pages_name_are_there_from_the_start() {
    let mut all = Vec::new();
    pages(&docs(), &mut all);
    let mut wanted: BTreeSet<String> = all
        .iter()
        .flat_map(|page| names(page, "posthorn_"))
        .filter(|name| name.ends_with("_total"))
        .collect();
    // The page for Autopush leaves the beginning of its names out.
    let autopush = std::fs::read_to_string(docs().join("systems/autopush.md")).expect("a page");
    let (_, table) = autopush.split_once("Here (`posthorn_push_…`)").expect("the table");
    let table = table.split("\n\n").next().expect("its rows");
    let cells =
        table.lines().filter_map(|row| row.rsplit('|').nth(1)).collect::<Vec<_>>().join(" ");
    let short = cells.split('`').skip(1).step_by(2).map(|name| names(name, "").next());
    let counters = short.flatten().filter(|name| name.ends_with("_total"));
    wanted.extend(counters.map(|name| format!("posthorn_push_{name}")));
    assert!(wanted.len() > 25, "names were found: {wanted:?}");
    // Those of the other store have a section of their own.
    let reference = std::fs::read_to_string(docs().join("reference/metrics.md")).expect("a page");
    let (_, elsewhere) = reference.split_once("## PostgreSQL").expect("the section");
    let elsewhere = elsewhere.split("\n## ").next().unwrap_or_default();
    for name in names(elsewhere, "posthorn_") {
        wanted.remove(&name);
    }

    let mut home = Home::new();
    home.configure(
        "push: {enabled: true}\n\
                dialects: {notificaties: {enabled: true, tenant: gemeente}}\n",
    );
    let server = home.serve();
    let metrics = server.metrics();
    let has = |name: &&String| {
        let at_zero = |rest: &str| rest.starts_with([' ', '{']);
        metrics.lines().any(|line| line.strip_prefix(name.as_str()).is_some_and(at_zero))
    };
    let missing: Vec<&String> = wanted.iter().filter(|name| !has(name)).collect();
    assert!(missing.is_empty(), "not at /metrics of a fresh server: {missing:?}");
    for reason in ["exhausted", "permanent", "gate", "expired"] {
        let line = format!("posthorn_dead_letters_total{{reason=\"{reason}\"}} 0\n");
        assert!(metrics.contains(&line), "{line}");
    }
    server.stop();
}

#[test]
fn failures_and_ends_are_explained() {
    let home = Home::new();
    for code in FailureCode::ALL {
        let output = home.run(&["explain", code.as_str()]).exits(0);
        let text = output.out;
        assert!(text.contains("(failure of an attempt)") && text.contains("What to do:"), "{text}");
    }
    for (reason, kind) in [
        ("exhausted", "dead letter"),
        ("permanent", "dead letter"),
        ("gate", "dead letter"),
        ("expired", "dead letter"),
        ("unsubscribed", "cancelled delivery"),
        ("operator", "cancelled delivery"),
        ("dropped", "cancelled delivery"),
    ] {
        let output = home.run(&["explain", reason]).exits(0);
        assert!(output.out.contains(&format!("{reason} (reason of a {kind})")), "{}", output.out);
    }
    // One word for two things is explained twice.
    let both = home.run("explain url_not_allowed").out;
    assert!(both.contains("422") && both.contains("(failure of an attempt)"), "{both}");
    let all: Value = serde_json::from_str(&home.run("explain --json").out).expect("JSON");
    let listed: Vec<&Value> = all["reasons"].as_array().expect("a list").iter().collect();
    let statuses = listed.iter().filter(|reason| reason["kind"] == "status").count();
    assert_eq!(listed.len(), FailureCode::ALL.len() + statuses + 7 + WaitReason::ALL.len());
    for (status, code) in [("503", "5xx"), ("5xx", "5xx"), ("410", "410"), ("404", "4xx")] {
        let text = home.run(&["explain", status]).exits(0).out;
        assert!(text.contains(&format!("{code} (status of an attempt)")), "{text}");
    }
    let text = home.run("explain 130").exits(0).out;
    assert!(text.contains("exit code 130"), "{text}");
    home.run("explain 700").exits(1);
    home.run("explain nonsense").exits(1);
}

/// Runs a command that must succeed; what it says on stdout and stderr.
#[track_caller]
fn say(server: &Server, args: &[&str]) -> (String, String) {
    let output = server.run(&args).exits(0);
    (output.out, output.err)
}

#[test]
fn tables_show_names_urls_and_the_next_attempt_and_fit_into_eighty_columns() {
    let (_home, server) = Home::new().served();
    let url = format!("http://127.0.0.1:9/a/rather/long/path/to/some/hook/{}", "x".repeat(80));
    let long = "the shop in the old town that delivers everything to everybody";
    say(&server, &["topics", "put", "orders", "--description", &"words ".repeat(30)]);
    let policy = r#"{"schedule":{"backoff":{"fixed":{"wait":"1h"}},"jitter":"none"}}"#;
    let create = |name: &str, url: &str, more: &[&str]| {
        let base = ["subscriptions", "create", url, "--name", name, "--topic", "orders"];
        server.ask(&[&base[..], more].concat())
    };
    create(long, &url, &["--policy", policy]);
    create("short", "http://127.0.0.1:9/s", &["--profile", "once"]);
    server.ask(&format!("keys create --scope publish --scope read --scope manage --tenant default --description '{}'", "key ".repeat(30)));
    let sent = server.ask(&["send", "orders", &format!("order.{}", "y".repeat(100)), "{}"]);
    let event = sent["id"].as_str().expect("an id");
    let by = |name: &str| server.ask(&["deliveries", "list", "--subscription", name]);
    let waiting = eventually("a failed attempt", || {
        let list = by(long);
        let item = &list["items"][0];
        (item["attempts_made"] == 1 && item["state"] == "pending").then(|| item.clone())
    });
    until("a dead letter", || by("short")["items"][0]["state"] == "dead");

    let lists: [&[&str]; 11] = [
        &["subscriptions", "list"],
        &["deliveries", "list"],
        &["dead-letters", "list"],
        &["redrives", "list"],
        &["events", "list"],
        &["topics", "list"],
        &["tenants", "list"],
        &["keys", "list"],
        &["certificates", "list"],
        &["profiles", "list"],
        &["explain"],
    ];
    for args in lists {
        let (text, _) = say(&server, args);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{args:?}: {line}");
        }
    }
    let (text, _) = say(&server, &["subscriptions", "list"]);
    assert!(text.contains("the shop in") && text.contains("http://127.0.0.1:9/s"), "{text}");
    assert!(text.contains('…'), "what is long is cut: {text}");
    let (text, _) = say(&server, &["deliveries", "list"]);
    let line = |text: &str, part: &str| {
        text.lines().find(|line| line.contains(part)).unwrap_or_default().to_owned()
    };
    let id = waiting["id"].as_str().expect("an id");
    let row = line(&text, id);
    assert!(row.contains("pending") && row.contains("the shop"), "{text}");
    assert!(row.contains("in 59m") || row.contains("in 1h"), "the next attempt: {text}");
    let row = line(&text, "short http");
    assert!(row.contains("dead") && row.contains("exhausted"), "{text}");
    let (text, _) = say(&server, &["keys", "list"]);
    assert!(text.contains("default"), "the tenant's name: {text}");
    let (text, _) = say(&server, &["events", "show", event]);
    assert!(text.contains("to short http://127.0.0.1:9/s (sub_"), "{text}");
    assert!(text.contains("next attempt in ") && text.contains("connect_failed"), "{text}");
    let (text, _) = say(&server, &["deliveries", "show", id]);
    let attempts = text.split("\n\n").last().expect("a table");
    assert!(attempts.lines().all(|line| line.chars().count() <= 80), "{text}");
    server.stop();
}

#[test]
fn names_work_wherever_ids_do_and_topics_that_are_not_there_are_warned_of() {
    let (_home, server) = Home::new().served();
    let url = "http://127.0.0.1:9/";
    let args = ["subscriptions", "create", url, "--name", "shop/1", "--topic", "odrers"];
    let (_, said) = say(&server, &args);
    assert!(said.contains("warning: the topic `odrers` does not exist"), "{said}");
    let id = server.ask("subscriptions show shop/1")["id"].clone();
    let id = id.as_str().expect("an id");
    let (shown, said) = say(&server, &["subscriptions", "update", "shop/1", "--topic", "orders"]);
    assert!(said.contains("`orders`") && shown.contains(id), "{shown}{said}");
    say(&server, &["topics", "put", "orders"]);
    let update = ["subscriptions", "update", "shop/1", "--topic", "orders", "--profile", "once"];
    let (_, said) = say(&server, &update);
    assert!(!said.contains("warning"), "{said}");
    for verb in ["pause", "resume", "test", "rotate-secret"] {
        say(&server, &["subscriptions", verb, "shop/1"]);
    }
    server.ask(&["send", "orders", "order.created", "{}"]);
    until("a dead letter", || {
        let list = server.ask("dead-letters list --subscription shop/1");
        list["items"][0]["subscription"] == id
    });
    let redrive = ["redrives", "create", "--subscription", "shop/1"];
    assert_eq!(server.ask(&redrive)["filter"]["subscription"], id);
    server.run("subscriptions show nobody").exits(1);
    say(&server, &["subscriptions", "delete", "shop/1"]);
    server.stop();
}

/// A client made from the served document makes a subscription with a nested policy.
fn generated_client(language: Language, name: &str) {
    let (home, server) = Home::new().served();
    let document = server.get("/openapi.json");
    let folder = home.path().join("client");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("openapi.json"), &document.with(200).body).expect("written");
    let question = json!({
        "ask": "openapi", "folder": folder, "document": folder.join("openapi.json"),
        "server": server.url, "key": server.key, "url": "http://127.0.0.1:9/hook",
    });
    let answers = language.ask(&[question]);
    let made = server.ask(&["subscriptions", "show", name]);
    assert_eq!(made["id"], answers[0]["id"]);
    let policy = &made["policy"];
    let backoff = &policy["schedule"]["backoff"]["exponential"];
    assert_eq!((&backoff["initial"], &backoff["cap"]), (&json!("2s"), &json!("1m")), "{policy}");
    assert_eq!(backoff["factor"].as_f64(), Some(3.0), "{policy}");
    assert_eq!(policy["gate"]["on_closed"], json!({"postpone": {"wait": "1m"}}));
    assert_eq!(policy["auth"][0]["kind"], "hmac_header");
    assert_eq!(made["filter"]["any_of"][0]["payload"]["all"][0]["test"]["op"], "gt");
    server.stop();
}

#[test]
fn a_client_of_openapi_python_client_makes_a_nested_policy() {
    generated_client(Language::Python, "made by python");
}

#[test]
fn a_client_of_openapi_typescript_makes_a_nested_policy() {
    generated_client(Language::JavaScript, "made by typescript");
}
