//! Events on their way to browsers of other push services: another process of ours stands for one, then a receiver
//! whose requests are read by libraries of others, then the sample of the guide.

use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use posthorn_agent::{Agent, Event, Options};
use posthorn_domain::ChannelId;
use posthorn_sealing::web_push::ReceiverKeys;
use posthorn_testkit::authority::{Authority, Clients};
use posthorn_testkit::caller::call;
use posthorn_testkit::program::{Home, Running, Server, id_of};
use posthorn_testkit::receiver::{Answer, Receiver};
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};

use crate::interpreter::Language;
use crate::push::{home as with_agents, wait};
use crate::tls;

const CHANNEL: ChannelId = ChannelId::from_bytes([9; 16]);
const CONTACT: &str = "mailto:operations@example.com";

/// A home without agents that trusts an authority and may send to services of this machine.
fn sending_home(authority: &Authority) -> Home {
    let home = Home::new();
    home.write("ca.pem", &authority.pem);
    home.edit(
        "egress: {allow: [127.0.0.0/8]}",
        "egress: {allow: [127.0.0.0/8], extra_roots: ca.pem}",
    );
    home.configure(&format!("push: {{contact: '{CONTACT}', services: [127.0.0.1]}}\n"));
    home
}

fn browser(endpoint: &str, keys: &ReceiverKeys) -> Value {
    let auth = keys.receiver().auth_text();
    json!({
        "endpoint": endpoint, "expirationTime": null,
        "keys": {"p256dh": keys.receiver().key().to_text(), "auth": auth.expose_str()},
    })
}

fn state(server: &Server, event: &Value) -> Option<String> {
    let shown = server.ask(&["events", "show", event["id"].as_str().expect("an id")]);
    shown["deliveries"][0]["state"].as_str().map(str::to_owned)
}

/// Subscribes a browser to `orders`.
fn subscribe(home: &Home, server: &Server, browser: &Value, more: &[&str]) -> Value {
    home.write("browser.json", browser.to_string());
    server.ask("topics put orders");
    let create = ["subscriptions", "create", "--push", "@browser.json", "--topic", "orders"];
    server.ask(&[&create[..], more].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_delivers_to_the_push_service_of_another() {
    let authority = Authority::new("ours");
    let mut service_home = with_agents("");
    tls::configure(&service_home, &authority, "off");
    let service = service_home.serve();
    let (home, server) = sending_home(&authority).served();

    // The browser is connected there, and subscribes with the key of the tenant here.
    let key = server.ask("push show-key")["public_key"].as_str().expect("a key").to_owned();
    let options = Options { roots: Some(authority.roots()), ..Options::default() };
    let (mut agent, endpoint) = wait(async {
        let mut agent = Agent::connect(&service.url, &options).await.expect("a socket");
        agent.hello(None, &[]).await.expect("hello");
        let endpoint = agent.register(CHANNEL, Some(&key)).await.expect("an endpoint");
        (agent, endpoint)
    });
    assert!(endpoint.starts_with("https://127.0.0.1:"), "{endpoint}");
    let keys = ReceiverKeys::generate();
    let more = ["--ttl", "1h", "--urgency", "high", "--push-topic", "{event.key}"];
    let made = subscribe(&home, &server, &browser(&endpoint, &keys), &more);
    let shown = json!({
        "type": "push", "service": service.url, "encrypted": true, "ttl": "1h",
        "urgency": "high", "topic": "{event.key}",
    });
    assert_eq!(made["destination"], shown);
    let list = server.run("subscriptions list");
    assert!(list.out.contains(&format!("push {}\n", service.url)), "{}", list.out);

    // With a key, and so with a topic that the other server has to understand.
    let send = ["send", "orders", "order.created", r#"{"total":12}"#, "--ordering-key", "7"];
    let sent = server.ask(&send);
    let notification = match wait(agent.next()).expect("an event") {
        Event::Notification(notification) => notification,
        other => panic!("{other:?}"),
    };
    wait(agent.ack(&[notification.ack()])).expect("acknowledged");
    let text = notification.open(&keys).expect("for these keys");
    let got: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!((&got["id"], &got["payload"]), (&sent["id"], &json!({"total": 12})));
    until("the delivery", || state(&server, &sent).as_deref() == Some("delivered"));
    let told = server.ask(&["events", "show", sent["id"].as_str().expect("an id")]);
    let attempt = &told["deliveries"][0]["attempts"][0];
    assert_eq!(attempt["status"], 201, "{attempt}");
    assert!(attempt["timings_ms"].is_object(), "as for a webhook: {attempt}");
    let tested = server.ask(&["subscriptions", "test", &id_of(&made)]);
    assert_eq!((&tested["outcome"], &tested["status"]), (&json!("answered"), &json!(201)));

    // Who unsubscribes gets nothing more, and the subscription says so and keeps its work.
    wait(agent.unregister(CHANNEL)).expect("unregistered");
    let lost = server.ask("send orders order.paid 1");
    let shown = eventually("the end of the subscription", || {
        let shown = server.ask(&["subscriptions", "show", &id_of(&made)]);
        (shown["status"] == "disabled").then_some(shown)
    });
    let reason = shown["status_reason"].as_str().expect("a reason");
    assert!(reason.contains("no longer knows the endpoint"), "{reason}");
    assert_eq!(state(&server, &lost).as_deref(), Some("pending"));

    // Neither the program nor its log nor its database shows the URL.
    let token = endpoint.rsplit('/').next().expect("a token").to_owned();
    let explained = server.run(&["subscriptions", "show", &id_of(&made)]).out;
    let log = server.running.stderr();
    server.stop();
    let stored = std::fs::read_dir(home.data()).expect("a folder");
    let stored: Vec<u8> =
        stored.flatten().filter_map(|file| std::fs::read(file.path()).ok()).flatten().collect();
    for shown in [explained.as_bytes(), log.as_bytes(), &stored] {
        let found = shown.windows(token.len()).any(|window| window == token.as_bytes());
        assert!(!found, "the endpoint is shown");
    }
    service.stop();
}

/// A receiver over TLS that stands for a push service.
fn service(authority: &Authority) -> Receiver {
    let receiver = Receiver::secure(authority, "127.0.0.1", Clients::Unasked);
    receiver.answers(201);
    receiver
}

/// What a library of another language makes of a request.
fn read_by(language: Language) {
    let authority = Authority::new("ours");
    let receiver = service(&authority);
    let (home, server) = sending_home(&authority).served();
    let keys = ReceiverKeys::generate();
    let browser = browser(&receiver.url("/send/token?x=1"), &keys);
    subscribe(&home, &server, &browser, &["--urgency", "very-low", "--push-topic", "news"]);
    let sent = server.ask(&["send", "orders", "order.created", r#"{"total":"zwölf"}"#]);
    let request = receiver.wait_for(1).remove(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/send/token?x=1"));
    for (name, value) in [
        ("ttl", "2419200"),
        ("urgency", "very-low"),
        ("topic", "news"),
        ("content-encoding", "aes128gcm"),
        ("content-type", "application/octet-stream"),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    let key = server.ask("push show-key")["public_key"].clone();
    let answers = language.ask(&[json!({
        "ask": "receive", "authorization": request.header("authorization"), "key": key,
        "audience": receiver.url(""), "private": keys.private_text().expose_str(),
        "public": keys.receiver().key().to_text(),
        "auth": keys.receiver().auth_text().expose_str(),
        "body": URL_SAFE_NO_PAD.encode(&request.body),
    })]);
    let read = &answers[0];
    assert_eq!(read["accepted"], true, "{read}");
    assert_eq!(
        (&read["claims"]["sub"], &read["claims"]["aud"]),
        (&json!(CONTACT), &json!(receiver.url("")))
    );
    let left = read["seconds_left"].as_i64().expect("a number");
    assert!((0..=86_400).contains(&left), "{read}");
    let text: Value = serde_json::from_str(read["text"].as_str().expect("text")).expect("JSON");
    assert_eq!((&text["id"], &text["payload"]["total"]), (&sent["id"], &json!("zwölf")));
    server.stop();
}

#[test]
fn libraries_for_python_verify_the_sender_and_read_the_message() {
    read_by(Language::Python);
}

#[test]
fn libraries_for_javascript_verify_the_sender_and_read_the_message() {
    read_by(Language::JavaScript);
}

#[test]
fn what_a_service_asks_for_is_done() {
    let authority = Authority::new("ours");
    let receiver = service(&authority);
    let (home, server) = sending_home(&authority).served();
    let keys = ReceiverKeys::generate();
    subscribe(&home, &server, &browser(&receiver.url("/a"), &keys), &["--profile", "quick"]);
    // It is busy at first; then it does not take the message; then all is well.
    receiver.script(|seen| match seen.nth {
        0 => Answer::from(429).header("Retry-After", "1"),
        1 => Answer::from(500),
        2 => Answer::from(201),
        _ => Answer::from(413),
    });
    let sent = server.ask("send orders order.created 1");
    until("the delivery", || state(&server, &sent).as_deref() == Some("delivered"));
    let large = server.ask("send orders order.created 2");
    until("the end", || state(&server, &large).as_deref() == Some("dead"));
    assert_eq!(receiver.count(), 4);
    let refused = server.run(&[
        "subscriptions",
        "create",
        "--push-endpoint",
        "https://else.example/x",
        "--p256dh",
        &keys.receiver().key().to_text(),
        "--auth",
        keys.receiver().auth_text().expose_str().expect("text"),
    ]);
    refused.exits(1).says(&["else.example", "push.services"]);
    server.stop();
}

#[test]
fn no_list_of_services_opens_a_private_address() {
    let home = Home::with(
        "server: {listen: '127.0.0.1:0'}\n\
         admission: {disk_warn_percent: 100, disk_refuse_percent: 100}\n\
         push: {contact: 'mailto:a@b.example', services: ['*']}\n",
    );
    let (home, server) = home.served();
    let keys = ReceiverKeys::generate();
    for url in ["https://127.0.0.1:8443/x", "https://10.0.0.1/x", "https://[::1]/x", &server.url] {
        let url = url.replace("http://", "https://");
        home.write("browser.json", browser(&url, &keys).to_string());
        let refused = server.run("subscriptions create --push @browser.json");
        refused.exits(1).says(&["url_not_allowed", "receivers may not be at this address"]);
    }
    server.stop();
}

#[test]
fn a_contact_that_is_none_is_found_by_check() {
    let home = Home::new();
    home.configure("push: {contact: 'operations@example.com'}\n");
    home.run("check").exits(78).says(&["push.contact", "mailto:"]);
}

/// The sample of the guide, with a receiver in the part of the browser's service.
#[test]
fn the_sample_subscribes_a_browser_of_any_service() {
    let authority = Authority::new("ours");
    let receiver = service(&authority);
    let (_home, server) = sending_home(&authority).served();
    server.ask("topics put orders");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/browsers");
    let mut command = Command::new("node");
    command.arg(format!("{folder}/server.mjs")).env("PORT", "0").stdin(Stdio::null());
    command.env("POSTHORN_SERVER", &server.url).env("POSTHORN_KEY", &server.key);
    let mut sample = Running::start(&mut command);
    let url = eventually("the address of the sample", || {
        sample.stdout().lines().find(|line| line.starts_with("http://")).map(str::to_owned)
    });
    let url = url.replace("localhost", "127.0.0.1");

    let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).expect("there");
    let fetched = |path: &str| call(&url, "GET", path).send().with(200);
    let (page, worker) = (fetched("/"), fetched("/worker.js"));
    assert_eq!((&page.body, &worker.body), (&read("index.html"), &read("worker.js")));
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(worker.header("content-type"), Some("text/javascript; charset=utf-8"));
    // What the page asks for is there, and what messages have is what the worker reads.
    for path in ["/worker.js", "/push-key", "/subscribe"] {
        assert!(page.body.contains(&format!("'{path}'")), "{path}");
    }
    let key = fetched("/push-key").expect(200);
    assert_eq!(key, server.ask("push show-key"));
    call(&url, "GET", "/nothing").send().with(404);

    let keys = ReceiverKeys::generate();
    let browser = browser(&receiver.url("/send/token"), &keys);
    let made = call(&url, "POST", "/subscribe").json(&browser).send().expect(201);
    assert_eq!(made["destination"]["service"], receiver.url(""));
    server.ask(&["send", "orders", "order.created", r#"{"title":"Order 7","text":"12.50"}"#]);
    let request = receiver.wait_for(1).remove(0);
    let text = keys.decrypt_aes128gcm(&request.body).expect("for these keys");
    let text: Value = serde_json::from_slice(&text).expect("JSON");
    for name in ["id", "type", "payload"] {
        assert!(text.get(name).is_some() && worker.body.contains(name), "{name}");
    }
    // A browser that the service refuses is told why.
    let mut elsewhere = browser.clone();
    elsewhere["endpoint"] = "https://else.example/x".into();
    let refused = call(&url, "POST", "/subscribe").json(&elsewhere).send().expect(422);
    assert_eq!(refused["code"], "push_service_not_allowed");
    sample.signal("TERM");
    sample.wait();
    server.stop();
}
