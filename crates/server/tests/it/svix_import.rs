//! `posthorn import svix`, from a real server that speaks the Svix API and from canned ones that do what ours does not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthorn_sealing::standard_webhooks::SigningSecret;
use posthorn_testkit::caller::call;
use posthorn_testkit::program::{Ran, Running, Server};
use posthorn_testkit::receiver::{Answer, Receiver, Request};
use posthorn_testkit::wait::until;
use serde_json::{Value, json};

use crate::svix::{ask, svix};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn import(target: &Server, from: &str, token: &str, more: &str) -> Ran {
    let mut command = target.command();
    command.env("SVIX_TOKEN", token).args(["import", "svix", "--json", "--from", from]);
    Ran::of(command.args(more.split_whitespace()))
}

/// How many of a kind were made, were there, were changed, differ, were skipped.
#[track_caller]
fn counts(report: &Value, kind: &str) -> [u64; 5] {
    ["made", "already_there", "changed", "different", "skipped"]
        .map(|name| report[kind][name].as_u64().unwrap_or_else(|| panic!("{report}")))
}

fn codes(report: &Value) -> Vec<&str> {
    let all = report["findings"].as_array().expect("findings");
    all.iter().filter_map(|own| own["code"].as_str()).collect()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

#[track_caller]
fn make(server: &Server, path: &str, body: &Value) -> Value {
    ask(server, "POST", &format!("/api/v1{path}"), Some(body)).expect(201)
}

#[track_caller]
fn look(server: &Server, path: &str) -> Value {
    ask(server, "GET", &format!("/api/v1{path}"), None).expect(200)
}

/// Whether a request is signed with a secret.
fn is_signed(request: &Request, secret: &str) -> bool {
    let header = |name| request.header(name).expect("a header of a signature");
    let secret = SigningSecret::parse(secret).expect("a secret");
    let at = header("svix-timestamp").parse().expect("a number");
    let signature = secret.sign(header("svix-id"), at, &request.body);
    header("svix-signature").split(' ').any(|own| own == signature)
}

/// A server with two applications, two endpoints and two event types; the ids of the first application and its endpoints.
fn filled(source: &Server, receiver: &Receiver) -> (String, String, String) {
    let schema = json!({"1": {"type": "object", "examples": [{"id": 7}]}});
    make(source, "/event-type", &json!({"name": "a.b", "description": "d", "schemas": schema}));
    make(source, "/event-type", &json!({"name": "old", "description": "not used any more"}));
    ask(source, "DELETE", "/api/v1/event-type/old", None).expect(204);
    let app = json!({
        "name": "ACME (Europe)", "uid": "acme", "throttleRate": 500, "metadata": {"tier": "gold"},
    });
    let app = text(&make(source, "/app", &app), "id").to_owned();
    make(source, "/app", &json!({"name": "no uid"}));
    let endpoint = json!({
        "url": receiver.url("/in"), "uid": "main", "description": "all of it", "secret": SECRET,
        "eventTypes": ["a.b"], "channels": ["eu"], "throttleRate": 100, "metadata": {"k": "v"},
        "headers": {"X-Team": "blue"},
    });
    let path = format!("/app/{app}/endpoint");
    let main = text(&make(source, &path, &endpoint), "id").to_owned();
    let disabled = json!({"url": receiver.url("/off"), "disabled": true});
    let disabled = text(&make(source, &path, &disabled), "id").to_owned();
    (app, main, disabled)
}

#[test]
fn a_move_keeps_ids_uids_and_signatures() {
    let (_one, source) = svix().served();
    let (_two, target) = svix().served();
    let receiver = Receiver::new(200);
    let (app, main, disabled) = filled(&source, &receiver);
    let report = import(&target, &source.url, &source.key, "").exits(0).json();
    assert_eq!(counts(&report, "event_types"), [2, 0, 0, 0, 0], "{report}");
    assert_eq!(counts(&report, "applications"), [2, 0, 0, 0, 0], "{report}");
    assert_eq!(counts(&report, "endpoints"), [2, 0, 0, 0, 0], "{report}");
    assert_eq!((&report["complete"], codes(&report)), (&json!(true), vec![]), "{report}");

    // By the former id, and by the uid.
    let there = look(&target, &format!("/app/{app}"));
    assert_eq!(there["id"], look(&target, "/app/acme")["id"]);
    assert_eq!((text(&there, "name"), &there["throttleRate"]), ("ACME (Europe)", &json!(500)));
    assert_eq!(there["metadata"], json!({"tier": "gold"}));
    let (before, after) = (
        look(&source, &format!("/app/{app}/endpoint/{main}")),
        look(&target, &format!("/app/{app}/endpoint/{main}")),
    );
    for name in ["url", "uid", "description", "eventTypes", "channels", "throttleRate", "metadata"]
    {
        assert_eq!(before[name], after[name], "{name}");
    }
    assert_eq!(look(&target, "/app/acme/endpoint/main/headers")["headers"]["X-Team"], "blue");
    assert_eq!(look(&target, "/app/acme/endpoint/main/secret")["key"], SECRET);
    assert_eq!(look(&target, &format!("/app/acme/endpoint/{disabled}"))["disabled"], true);
    assert_eq!(look(&target, "/event-type/a.b")["schemas"]["1"]["type"], "object");
    assert_eq!(look(&target, "/event-type/old")["archived"], true);

    let message = json!({"eventType": "a.b", "payload": {"id": 7}, "channels": ["eu"]});
    let path = format!("/api/v1/app/{app}/msg");
    let sent = ask(&target, "POST", &path, Some(&message)).expect(202);
    let got = receiver.wait_for(1).remove(0);
    assert_eq!((got.path.as_str(), got.header("x-team")), ("/in", Some("blue")));
    assert_eq!(got.header("svix-id"), sent["id"].as_str());
    assert!(is_signed(&got, SECRET), "the former secret verifies");

    let again = import(&target, &source.url, &source.key, "").exits(0).json();
    for kind in ["event_types", "applications", "endpoints"] {
        assert_eq!(counts(&again, kind), [0, 2, 0, 0, 0], "{again}");
    }
    source.stop();
    target.stop();
}

#[test]
fn a_dry_run_writes_nothing() {
    let (_one, source) = svix().served();
    let (_two, target) = svix().served();
    let receiver = Receiver::new(200);
    filled(&source, &receiver);
    let report = import(&target, &source.url, &source.key, "--dry-run").exits(0).json();
    for kind in ["event_types", "applications", "endpoints"] {
        assert_eq!(counts(&report, kind), [2, 0, 0, 0, 0], "{report}");
    }
    assert_eq!(report["dry_run"], true);
    assert_eq!(look(&target, "/app")["data"], json!([]));
    assert_eq!(look(&target, "/event-type?include_archived=true")["data"], json!([]));
    source.stop();
    target.stop();
}

#[test]
fn what_changed_meanwhile_is_told_and_taken_over_when_asked_for() {
    let (_one, source) = svix().served();
    let (_two, target) = svix().served();
    let receiver = Receiver::new(200);
    let (app, main, _) = filled(&source, &receiver);
    import(&target, &source.url, &source.key, "").exits(0);
    let path = format!("/api/v1/app/{app}/endpoint/{main}");
    let change = json!({"url": receiver.url("/new"), "eventTypes": null, "channels": null});
    ask(&source, "PATCH", &path, Some(&change)).expect(200);
    let rotated = ask(&source, "POST", &format!("{path}/secret/rotate"), Some(&json!({})));
    let newer = text(&rotated.expect(200), "key").to_owned();
    ask(&source, "PATCH", &format!("/api/v1/app/{app}"), Some(&json!({"name": "other"})))
        .expect(200);

    let report = import(&target, &source.url, &source.key, "").exits(0).json();
    assert_eq!(counts(&report, "applications"), [0, 1, 0, 1, 0], "{report}");
    assert_eq!(counts(&report, "endpoints"), [0, 1, 0, 1, 0], "{report}");
    assert_eq!(codes(&report), ["different", "different"]);
    assert_eq!(look(&target, "/app/acme/endpoint/main")["url"], receiver.url("/in"));

    let report = import(&target, &source.url, &source.key, "--update").exits(0).json();
    assert_eq!(counts(&report, "applications"), [0, 1, 1, 0, 0], "{report}");
    assert_eq!(counts(&report, "endpoints"), [0, 1, 1, 0, 0], "{report}");
    assert_eq!(look(&target, "/app/acme")["name"], "other");
    let message = json!({"eventType": "x", "payload": {}});
    ask(&target, "POST", "/api/v1/app/acme/msg", Some(&message)).expect(202);
    let got = receiver.wait_for(1).remove(0);
    assert_eq!(got.path, "/new");
    assert!(is_signed(&got, &newer) && is_signed(&got, SECRET), "both sign for a while");

    let report = import(&target, &source.url, &source.key, "--update").exits(0).json();
    assert_eq!(counts(&report, "endpoints"), [0, 2, 0, 0, 0], "{report}");
    source.stop();
    target.stop();
}

#[test]
fn realms_are_kept_apart_and_what_is_there_is_adopted() {
    let (_one, source) = svix().served();
    let (_two, target) = svix().served();
    let receiver = Receiver::new(200);
    let (app, main, _) = filled(&source, &receiver);
    let refused = import(&target, &source.url, &source.key, "--realm staging").exits(2);
    refused.says(&["there is no realm staging", "posthorn realms put staging"]);
    target.ask("realms put staging");
    let report = import(&target, &source.url, &source.key, "--realm staging").exits(0).json();
    assert_eq!(counts(&report, "applications"), [2, 0, 0, 0, 0], "{report}");
    assert_eq!(look(&target, "/app")["data"], json!([]), "another realm");

    // One that has the same uid becomes the one that is meant.
    let made = make(&target, "/app", &json!({"name": "ACME (Europe)", "uid": "acme"}));
    let endpoint = json!({"url": receiver.url("/in"), "uid": "main"});
    let endpoint = make(&target, "/app/acme/endpoint", &endpoint);
    let report = import(&target, &source.url, &source.key, "").exits(0).json();
    assert_eq!(counts(&report, "applications"), [1, 0, 0, 1, 0], "{report}");
    assert_eq!(counts(&report, "endpoints"), [1, 0, 0, 1, 0], "{report}");
    assert_eq!(look(&target, &format!("/app/{app}"))["id"], made["id"]);
    let adopted = look(&target, &format!("/app/{app}/endpoint/{main}"));
    assert_eq!((&adopted["id"], &adopted["description"]), (&endpoint["id"], &json!("")));
    // But not one that came from elsewhere.
    ask(&source, "DELETE", &format!("/api/v1/app/{app}"), None).expect(204);
    let other = make(&source, "/app", &json!({"name": "another", "uid": "acme"}));
    let ran = import(&target, &source.url, &source.key, "").exits(1);
    let report = ran.json();
    assert_eq!(counts(&report, "applications"), [0, 1, 0, 0, 1], "{report}");
    assert_eq!(report["findings"][0]["id"], other["id"]);
    ran.says(&["1 thing could not be taken over"]);
    source.stop();
    target.stop();
}

/// A server with answers by path; what it does not know is not there.
#[derive(Clone, Default)]
struct Canned(Arc<Mutex<BTreeMap<String, Vec<Answer>>>>);

fn page(data: &Value) -> Value {
    json!({"data": data, "done": true, "iterator": null})
}

impl Canned {
    /// With two applications, of which the first has an endpoint.
    fn filled() -> Self {
        let canned = Self::default();
        canned.says("/event-type", 200, &page(&json!([])));
        let apps =
            json!([{"id": "app_1", "name": "one", "uid": "one"}, {"id": "app_2", "name": "two"}]);
        canned.says("/app", 200, &page(&apps));
        let endpoint = json!({"id": "ep_1", "url": "http://127.0.0.1:9/"});
        canned.says("/app/app_1/endpoint", 200, &page(&json!([endpoint])));
        canned.says("/app/app_1/endpoint/ep_1/secret", 200, &json!({"key": SECRET}));
        let headers = json!({"headers": {}, "sensitive": []});
        canned.says("/app/app_1/endpoint/ep_1/headers", 200, &headers);
        canned.says("/app/app_2/endpoint", 200, &page(&json!([])));
        canned
    }

    fn answers(&self, path: &str, answers: Vec<Answer>) {
        self.0.lock().expect("unharmed").insert(path.to_owned(), answers);
    }

    fn says(&self, path: &str, status: u16, body: &Value) {
        self.answers(path, vec![Answer::from(status).body(body.to_string())]);
    }

    /// Answers in turn; the last one for ever.
    fn serve(&self) -> Receiver {
        let own = self.clone();
        Receiver::scripted(move |request| {
            let path = request.path.split('?').next().unwrap_or_default();
            let path = path.strip_prefix("/api/v1").unwrap_or_default();
            let mut all = own.0.lock().expect("unharmed");
            match all.get_mut(path) {
                Some(answers) if answers.len() > 1 => answers.remove(0),
                Some(answers) => answers[0].clone(),
                None => {
                    let body = json!({"code": "not_found", "detail": "Entity not found"});
                    Answer::from(404).body(body.to_string())
                }
            }
        })
    }
}

#[test]
fn what_has_no_counterpart_is_listed_and_waits_for_people() {
    let (_home, target) = svix().served();
    let canned = Canned::filled();
    let types = json!([
        {"name": "flagged", "description": "", "featureFlag": "beta"},
        {"name": "odd", "description": "", "featureFlags": ["with a blank"]},
        {"name": "x".repeat(129), "description": ""},
    ]);
    canned.says("/event-type", 200, &page(&types));
    let pair = SigningSecret::generate_ed25519();
    let public = pair.public_key().expect("a pair").to_string();
    let hidden =
        json!({"headers": {"X-Team": "a", "svix-own": "b"}, "sensitive": ["Authorization"]});
    let endpoints = ["ep_1", "ep_2", "ep_3"];
    let all = endpoints
        .map(|id| json!({"id": id, "uid": id.replace("ep_", "end"), "url": "http://127.0.0.1:9/"}));
    canned.says("/app/app_1/endpoint", 200, &page(&json!(all)));
    for (id, key) in endpoints.into_iter().zip([SECRET, &public, &pair.to_text()]) {
        let place = format!("/app/app_1/endpoint/{id}");
        canned.says(&format!("{place}/secret"), 200, &json!({"key": key}));
        let headers = if id == "ep_1" { hidden.clone() } else { json!({"headers": {}}) };
        canned.says(&format!("{place}/headers"), 200, &headers);
        let code = match id {
            "ep_3" => json!({"code": "return webhook", "enabled": true}),
            _ => json!({"enabled": false}),
        };
        canned.says(&format!("{place}/transformation"), 200, &code);
    }
    let source = canned.serve();
    let ran = import(&target, &source.url(""), "token", "").exits(1);
    let report = ran.json();
    let mut found = codes(&report);
    found.sort_unstable();
    let wanted =
        ["feature_flag", "header", "name", "private_key", "sensitive_header", "transformation"];
    assert_eq!(found, wanted, "{report}");
    assert_eq!(counts(&report, "event_types"), [2, 0, 0, 0, 1], "{report}");
    let flags = |name: &str| look(&target, &format!("/event-type/{name}"))["featureFlags"].clone();
    assert_eq!([flags("flagged"), flags("odd")], [json!(["beta"]), Value::Null]);
    assert_eq!(counts(&report, "endpoints"), [3, 0, 0, 0, 0], "{report}");
    let disabled = |id: &str| look(&target, &format!("/app/one/endpoint/{id}"))["disabled"].clone();
    assert_eq!(endpoints.map(disabled), [json!(true), json!(true), json!(false)]);
    assert_eq!(
        look(&target, "/app/one/endpoint/ep_3/secret")["key"],
        *public,
        "the pair came with it"
    );

    // Once they are completed here, nothing is said about them any more, and they stay as they are.
    let headers = json!({"headers": {"Authorization": "hush", "X-Team": "a"}});
    ask(&target, "PUT", "/api/v1/app/one/endpoint/ep_1/headers", Some(&headers)).expect(204);
    let body = json!({"key": pair.to_text()});
    ask(&target, "POST", "/api/v1/app/one/endpoint/ep_2/secret/rotate", Some(&body)).expect(200);
    for id in ["ep_1", "ep_2"] {
        let path = format!("/api/v1/app/one/endpoint/{id}");
        ask(&target, "PATCH", &path, Some(&json!({"disabled": false}))).expect(200);
    }
    let report = import(&target, &source.url(""), "token", "--update").exits(1).json();
    assert_eq!(counts(&report, "endpoints"), [0, 3, 0, 0, 0], "{report}");
    assert_eq!(codes(&report), ["feature_flag", "name", "header", "transformation"], "{report}");
    assert_eq!(endpoints.map(disabled), [json!(false), json!(false), json!(false)]);
    target.stop();
}

#[test]
fn stopped_half_way_it_goes_on_and_makes_nothing_twice() {
    let (_home, target) = svix().served();
    let canned = Canned::filled();
    // The second application never comes to an end.
    let stall = Answer::from(200).after(Duration::from_secs(600));
    canned.answers("/app/app_2/endpoint", vec![stall]);
    let source = canned.serve();
    let mut command = target.command();
    command.args(["import", "svix", "--token", "token", "--from", &source.url("")]);
    let child = Running::start(&mut command);
    until("the first endpoint", || {
        let all = ask(&target, "GET", "/api/v1/app/app_1/endpoint", None);
        all.status == 200 && all.json()["data"].as_array().is_some_and(|all| all.len() == 1)
    });
    child.signal("KILL");
    drop(child);

    canned.says("/app/app_2/endpoint", 503, &json!({}));
    let ran = import(&target, &source.url(""), "token", "").exits(69);
    assert_eq!(ran.json()["complete"], false);
    ran.says(&["503", "run the same command again"]);
    canned.says("/app/app_2/endpoint", 200, &page(&json!([])));
    let report = import(&target, &source.url(""), "token", "").exits(0).json();
    assert_eq!(counts(&report, "applications"), [0, 2, 0, 0, 0], "{report}");
    assert_eq!(counts(&report, "endpoints"), [0, 1, 0, 0, 0], "{report}");
    assert_eq!(look(&target, "/app")["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(look(&target, "/app/one/endpoint")["data"].as_array().map(Vec::len), Some(1));
    target.stop();
}

#[test]
fn an_answer_that_gets_lost_makes_nothing_twice() {
    let (_home, target) = svix().served();
    let source = Canned::filled().serve();
    // Between the command and its server: what creates something gets there, and the first answer does not come back.
    let (url, lost) = (target.url.clone(), Mutex::new(Vec::new()));
    let between = Receiver::scripted(move |request| {
        let mut call = call(&url, &request.method, &request.path);
        for name in ["authorization", "posthorn-tenant", "content-type"] {
            call = request.header(name).into_iter().fold(call, |call, own| call.header(name, own));
        }
        let reply = call.raw(request.text()).send();
        let mut lost = lost.lock().expect("unharmed");
        if request.method == "POST" && !lost.contains(&request.path) {
            lost.push(request.path.clone());
            return Answer::from(0);
        }
        Answer::from(reply.status).body(reply.body)
    });
    let more = format!("--server {}", between.url(""));
    let report = import(&target, &source.url(""), "token", &more).exits(0).json();
    assert_eq!(counts(&report, "applications"), [2, 0, 0, 0, 0], "{report}");
    assert_eq!(counts(&report, "endpoints"), [1, 0, 0, 0, 0], "{report}");
    assert_eq!(look(&target, "/app")["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(look(&target, "/app/one/endpoint")["data"].as_array().map(Vec::len), Some(1));
    target.stop();
}

#[test]
fn a_server_that_is_busy_or_wants_smaller_pages_is_read_all_the_same() {
    let (_home, target) = svix().served();
    let canned = Canned::filled();
    let later = |status: u16| Answer::from(status).header("retry-after", "0").body("{}");
    let first = json!({"data": [{"id": "app_1", "name": "one", "uid": "one"}], "done": false, "iterator": "app_1"});
    let second = page(&json!([{"id": "app_2", "name": "two"}]));
    let fine = |body: &Value| Answer::from(200).body(body.to_string());
    let refused =
        Answer::from(422).body(json!({"detail": [{"loc": ["query", "limit"]}]}).to_string());
    let answers =
        vec![later(429), refused, later(500), fine(&first), Answer::from(0), fine(&second)];
    canned.answers("/app", answers);
    // It was listed, and is gone when its secret is asked for.
    let gone = json!({"id": "ep_gone", "url": "http://127.0.0.1:9/"});
    canned.says("/app/app_2/endpoint", 200, &page(&json!([gone])));
    let source = canned.serve();
    let report = import(&target, &source.url("/api/v1/"), "token", "").exits(0).json();
    assert_eq!(counts(&report, "applications"), [2, 0, 0, 0, 0], "{report}");
    assert_eq!(counts(&report, "endpoints"), [1, 0, 0, 0, 0], "{report}");
    let seen = source.seen();
    let asked: Vec<&Request> =
        seen.iter().filter(|own| own.path.starts_with("/api/v1/app?")).collect();
    assert_eq!(asked.first().map(|own| own.query("limit")), Some("250"));
    let last = asked.last().expect("asked");
    assert_eq!((last.query("limit"), last.query("iterator")), ("100", "app_1"));
    assert!(seen.iter().all(|own| own.header("authorization") == Some("Bearer token")));
    target.stop();
}

#[test]
fn whoever_is_no_svix_server_is_named() {
    let (home, target) = svix().served();
    let token = "sk_very-secret";
    let check = |answer: Answer, code: i32, says: &[&str]| {
        let canned = Canned::default();
        canned.answers("/event-type", vec![answer]);
        let source = canned.serve();
        let ran = import(&target, &source.url(""), token, "").exits(code);
        assert!(!ran.err.contains(token) && !ran.out.contains(token));
        ran.says(says);
    };
    let stranger = "does not look like a Svix server";
    check(Answer::from(404).body("<html>"), 1, &[stranger, "--from"]);
    check(Answer::from(200).body("<html>"), 1, &[stranger, "no JSON object"]);
    check(Answer::from(200).body("{\"items\": []}"), 1, &[stranger, "no data"]);
    check(Answer::from(302).header("location", "/login"), 1, &[stranger, "302"]);
    let said = json!({"code": "authentication_failed", "detail": "Invalid token"}).to_string();
    check(Answer::from(401).body(said), 77, &["does not accept the token (Invalid token)"]);
    check(Answer::from(403).body("{}"), 77, &["organisation"]);
    let open = json!({"data": [], "done": false, "iterator": null}).to_string();
    check(Answer::from(200).body(open), 1, &["there is more, but not where"]);
    let circle = json!({"data": [], "done": false, "iterator": "x"}).to_string();
    check(Answer::from(200).body(circle), 1, &["goes in circles"]);
    let gone = Receiver::new(200).url("");
    import(&target, &gone, token, "").exits(69).says(&["--from"]);
    import(&target, "ftp://x", token, "").exits(2).says(&["--from"]);

    // The token may be elsewhere, and must be somewhere.
    let canned = Canned::filled();
    let source = canned.serve();
    let file = home.write("token", format!("{token}\n"));
    import(&target, &source.url(""), &format!("file:{}", file.display()), "--dry-run").exits(0);
    assert_eq!(source.seen()[0].header("authorization"), Some(&*format!("Bearer {token}")));
    import(&target, &source.url(""), "env:NOT_THERE", "").exits(2).says(&["NOT_THERE"]);
    let without = ["import", "svix", "--from", &source.url("")];
    Ran::of(target.command().env_remove("SVIX_TOKEN").args(without)).exits(2).says(&["--token"]);
    target.stop();
}
