//! Envelopes and CloudEvents through the real program: what is published, what arrives, and the handshakes of both
//! sides. The commands of the guide run as they are written.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use posthorn_sealing::standard_webhooks::SigningSecret;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::receiver::{Answer, Receiver, Request};
use serde_json::{Value, json};

use crate::interpreter::Language;

const STRUCTURED: &str = "application/cloudevents+json";

/// A subscription with a policy; its signing secret.
fn subscribe(server: &Server, receiver: &Receiver, policy: &Value) -> SigningSecret {
    server.ask(&["topics", "put", "orders"]);
    let body = json!({"url": receiver.url("/"), "policy": policy});
    let made = server.call("POST", "/v1/subscriptions").json(&body).send().expect(201);
    SigningSecret::parse(made["signing_secret"].as_str().expect("a secret")).expect("a secret")
}

fn envelope(word: &str) -> Value {
    json!({"request": {"envelope": word}})
}

#[track_caller]
fn is_signed(secret: &SigningSecret, seen: &Request, prefix: &str) {
    let get = |name: &str| seen.header(&format!("{prefix}-{name}")).expect("a header");
    let at: i64 = get("timestamp").parse().expect("seconds");
    let checked = secret.verify(get("id"), at, get("signature"), &seen.body, at, 5);
    checked.expect("the signature covers the body as it is sent");
}

#[test]
fn a_cloudevent_goes_through_the_program_in_both_modes() {
    let (_home, server) = Home::new().served();
    let (whole, parts) = (Receiver::new(200), Receiver::new(200));
    let secret = subscribe(&server, &whole, &envelope("cloudevents_structured"));
    let other = subscribe(&server, &parts, &envelope("cloudevents_binary"));
    let event = json!({"specversion": "1.0", "id": "A 1", "source": "https://shop.example/eu",
        "type": "order.paid", "time": "2026-01-31T12:00:00.123456789+01:00", "subject": "order/ä",
        "topic": "orders", "region": "eu", "attempt": 3, "datacontenttype": "application/json",
        "data": {"n": 1}});
    let publish = || {
        server.call("POST", "/v1/events").header("content-type", STRUCTURED).raw(event.to_string())
    };
    let first = publish().send().expect(202);
    let seen = &whole.wait_for(1)[0];
    assert_eq!(seen.header("content-type"), Some("application/cloudevents+json; charset=utf-8"));
    assert_eq!(seen.json(), event, "as it was published");
    is_signed(&secret, seen, "webhook");
    let seen = &parts.wait_for(1)[0];
    assert_eq!(seen.body, br#"{"n":1}"#);
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-id", "A%201"),
        ("ce-source", "https://shop.example/eu"),
        ("ce-type", "order.paid"),
        ("ce-time", "2026-01-31T12:00:00.123456789+01:00"),
        ("ce-subject", "order/%C3%A4"),
        ("ce-region", "eu"),
        ("ce-attempt", "3"),
        ("content-type", "application/json"),
        ("posthorn-event-type", "order.paid"),
        ("posthorn-topic", "orders"),
    ] {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    is_signed(&other, seen, "webhook");

    let again = publish().send().expect(202);
    assert_eq!((&again["id"], &again["duplicate"]), (&first["id"], &json!(true)));
    let bad = server.call("POST", "/v1/events").header("content-type", STRUCTURED);
    let bad = bad.raw(r#"{"specversion":"1.1"}"#).send().expect(400);
    assert_eq!(
        (&bad["code"], &bad["field"]),
        (&json!("invalid_cloudevent"), &json!("specversion"))
    );
}

#[test]
fn receivers_of_svix_verify_what_standard_webhooks_wraps() {
    let (home, server) = Home::new().served();
    let receiver = Receiver::new(200);
    let auth = json!([{"kind": "standard_webhooks", "secret": "signing", "headers": "svix"}]);
    let policy = json!({"request": {"envelope": "standard_webhooks"}, "auth": auth});
    let secret = subscribe(&server, &receiver, &policy);
    server.ask(&["send", "orders", "order.paid", r#"{"total":12}"#]);
    let seen = &receiver.wait_for(1)[0];
    let body = seen.json();
    assert_eq!((&body["type"], &body["data"]), (&json!("order.paid"), &json!({"total": 12})));
    assert!(body["timestamp"].is_string());
    assert_eq!(seen.header("webhook-signature"), None);
    is_signed(&secret, seen, "svix");
    // And by hand, with what a receiver would have written down.
    home.write("secret", secret.to_text());
    let dump = [seen.head.as_bytes(), &seen.body].concat();
    home.write("dump", dump);
    let ran = home.run("verify --secret file:secret --request dump").exits(0);
    assert!(ran.out.contains("HMAC"), "{}", ran.out);
}

#[test]
fn receivers_are_asked_and_every_request_says_who_sends() {
    let home = Home::new();
    home.edit("engine: {", "engine: {webhook_origin: events.example.com, ");
    let (_home, server) = home.served();
    let receiver = Receiver::scripted(|seen| match seen.method.as_str() {
        "OPTIONS" => Answer::from(200)
            .header("WebHook-Allowed-Origin", "events.example.com")
            .header("WebHook-Allowed-Rate", "600"),
        _ => Answer::from(200),
    });
    let handshake = |rate: Option<u32>| {
        let policy = json!({"request": {"handshake": "cloudevents"}, "limits": {"rate": rate}});
        json!({"url": receiver.url("/hook"), "policy": policy})
    };
    let create = |body: &Value| server.call("POST", "/v1/subscriptions").json(body).send();
    server.ask(&["topics", "put", "orders"]);
    let fast = create(&handshake(None)).expect(422);
    assert_eq!(fast["code"], "handshake_rate");
    assert!(fast["detail"].as_str().expect("a detail").contains("at most 10"), "{fast}");
    let made = create(&handshake(Some(10))).expect(201);
    let asked = &receiver.seen()[1];
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("OPTIONS", "/hook"));
    assert_eq!(asked.header("webhook-request-origin"), Some("events.example.com"));
    assert_eq!(asked.header("webhook-request-rate"), Some("600"));
    server.ask(&["send", "orders", "order.paid", "{}"]);
    let sent = &receiver.wait_for(3)[2];
    assert_eq!(sent.method, "POST");
    assert_eq!(sent.header("webhook-request-origin"), Some("events.example.com"));

    // A URL that does not agree changes nothing, and a closed address is not even asked.
    let silent = Receiver::new(200);
    let id = made["id"].as_str().expect("an id");
    let path = format!("/v1/subscriptions/{id}");
    let change = |url: &str| server.call("PATCH", &path).json(json!({"url": url})).send();
    assert_eq!(change(&silent.url("/")).expect(422)["code"], "handshake_refused");
    assert_eq!(silent.count(), 1, "it was asked");
    assert_eq!(change("http://10.0.0.1/").expect(422)["code"], "url_not_allowed");
    assert_eq!(server.call("GET", &path).send().expect(200)["url"], json!(receiver.url("/hook")));

    let (_listener, address) = server.listen("");
    assert_eq!(change(&format!("{address}/")).status, 200, "the receiver of the program agrees");
}

#[test]
fn senders_are_told_whether_they_may_publish() {
    let home = Home::new();
    home.edit("server: {", "server: {webhook_origins: [sender.example], ");
    let (_home, server) = home.served();
    let ask = |origin: &str| {
        server.open("OPTIONS", "/v1/events").header("webhook-request-origin", origin)
    };
    let allowed = ask("sender.example").send().with(204);
    assert_eq!(allowed.header("webhook-allowed-origin"), Some("sender.example"));
    assert_eq!(allowed.header("webhook-allowed-rate"), Some("3000000"));
    ask("other.example").send().expect(401);
    let other =
        server.call("OPTIONS", "/v1/events").header("webhook-request-origin", "other.example");
    let other = other.send().with(204);
    assert_eq!(other.header("webhook-allowed-origin"), Some("other.example"));
}

#[test]
fn the_library_for_python_reads_ours_and_we_read_its() {
    let (_home, server) = Home::new().served();
    let (whole, parts) = (Receiver::new(200), Receiver::new(200));
    subscribe(&server, &whole, &envelope("cloudevents_structured"));
    subscribe(&server, &parts, &envelope("cloudevents_binary"));
    let question = |id: &str, received: &[Value]| {
        json!({"ask": "cloudevent", "received": received, "data": {"n": 1, "ä": "€"},
            "attributes": {"id": id, "source": "https://shop.example/eu", "type": "order.paid",
                "time": "2026-01-31T12:00:00.250000+00:00", "subject": "50 % \"ä\" 😀",
                "region": "eu north", "topic": "orders", "datacontenttype": "application/json"}})
    };
    let written = Language::Python.ask(&[question("1", &[]), question("2", &[])]);
    for (answer, mode) in written.iter().zip(["structured", "binary"]) {
        let mut call = server.call("POST", "/v1/events");
        for (name, value) in answer[mode]["headers"].as_object().expect("headers") {
            call = call.header(name, value.as_str().expect("a text"));
        }
        call.raw(answer[mode]["body"].as_str().expect("a body")).send().expect(202);
    }
    // Deliveries may overtake each other.
    let by_id = |receiver: &Receiver, id: &str| {
        let seen = receiver.wait_for(2).into_iter();
        let mut found = seen.filter(|seen| match seen.header("ce-id") {
            Some(header) => header == id,
            None => seen.json()["id"] == id,
        });
        let seen = found.next().expect("arrived");
        let wanted = |name: &str| name.starts_with("ce-") || name == "content-type";
        let headers: BTreeMap<&String, &String> =
            seen.headers.iter().filter(|(name, _)| wanted(name)).collect();
        json!({"headers": headers, "body": String::from_utf8_lossy(&seen.body)})
    };
    let received = [by_id(&whole, "1"), by_id(&parts, "1"), by_id(&whole, "2"), by_id(&parts, "2")];
    let answers =
        Language::Python.ask(&[question("1", &received[..2]), question("2", &received[2..])]);
    for answer in &answers {
        for read in answer["read"].as_array().expect("a list") {
            assert_eq!(*read, answer["own"], "what it wrote comes back to it");
        }
    }
}

/// The guide's commands are for a shell, as whoever follows it would run them.
#[test]
fn the_commands_of_the_guide_run_as_they_are_written() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/envelopes.md");
    let page = std::fs::read_to_string(page).expect("the guide");
    let (home, server) = Home::new().served();
    let receiver = Receiver::new(200);
    let program = Path::new(env!("CARGO_BIN_EXE_posthorn")).parent().expect("a folder");
    let paths = std::env::var("PATH").unwrap_or_default();
    let blocks: Vec<&str> =
        page.split("```sh\n").skip(1).filter_map(|b| b.split("```").next()).collect();
    assert_eq!(blocks.len(), 5);
    let mut said = String::new();
    for block in blocks {
        let there = receiver.url("");
        let block = block
            .replace("http://127.0.0.1:8080", &server.url)
            .replace("http://127.0.0.1:9000", &there);
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &block]).current_dir(home.path());
        shell.env("PATH", format!("{}:{paths}", program.display()));
        shell.env("POSTHORN_KEY", &server.key).env("POSTHORN_SERVER", &server.url);
        let output = shell.output().expect("a shell");
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{block}\n{out}\n{err}");
        said.push_str(&out);
    }
    assert!(said.to_lowercase().contains("webhook-allowed-origin: sender.example.com"), "{said}");
    let seen = receiver.wait_for(4);
    let mut ids: Vec<String> = seen.iter().map(|seen| seen.json()["id"].to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["\"10\"", "\"7\"", "\"8\"", "\"9\""]);
    assert!(seen.iter().all(|seen| seen.json()["source"] == "https://shop.example.com"));
}
