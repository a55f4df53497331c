//! The live tail: order, resuming, skipping, and who hears what for how long.

use std::net::SocketAddr;
use std::time::Duration;

use posthorn_listener::ServeLimits;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{Problem as _, Server, connect};

/// Nothing of this takes long; a test that waits in vain says so.
const PATIENCE: Duration = Duration::from_secs(20);

/// One server-sent event.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    name: String,
    id: String,
    data: Value,
}

/// A client of a stream.
struct Listener {
    connection: TcpStream,
    status: u16,
    /// What has arrived and was not read yet, without the framing of HTTP.
    text: String,
    raw: Vec<u8>,
    /// The last id that was told.
    id: String,
}

async fn open(address: SocketAddr, key: &str, query: &str, last: Option<&str>) -> Listener {
    open_for(address, key, None, query, last).await
}

/// The same with a key that has to name its tenant.
async fn open_for(
    address: SocketAddr,
    key: &str,
    tenant: Option<&str>,
    query: &str,
    last: Option<&str>,
) -> Listener {
    let mut connection = connect(address).await;
    let tenant = tenant.map(|name| format!("posthorn-tenant: {name}\r\n")).unwrap_or_default();
    let last = last.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
    let head = format!(
        "GET /v1/stream{query} HTTP/1.1\r\nhost: api.test\r\nauthorization: Bearer {key}\r\n{tenant}{last}\r\n"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut raw = Vec::new();
    let end = loop {
        if let Some(end) = raw.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        let mut part = [0; 1024];
        let count = tokio::time::timeout(PATIENCE, connection.read(&mut part)).await;
        let count = count.expect("an answer").unwrap();
        assert!(count > 0, "the head ended early");
        raw.extend_from_slice(&part[..count]);
    };
    let head = String::from_utf8_lossy(&raw[..end]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    raw.drain(..end);
    if status == 200 {
        assert!(head.to_lowercase().contains("content-type: text/event-stream"), "{head}");
    }
    let mut listener = Listener { connection, status, text: String::new(), raw, id: String::new() };
    if status == 200 {
        listener.unchunk();
        while !listener.text.contains("\n\n") {
            listener.more().await;
        }
        let (first, rest) = listener.text.split_once("\n\n").unwrap();
        assert!(first.contains(": following"), "{first}");
        listener.id = first.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
        listener.text = rest.to_owned();
    }
    listener
}

impl Listener {
    /// Takes whole chunks out of what arrived.
    fn unchunk(&mut self) {
        while let Some(line) = self.raw.windows(2).position(|two| two == b"\r\n") {
            let size = std::str::from_utf8(&self.raw[..line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            let end = line + 2 + size;
            if self.raw.len() < end + 2 {
                return;
            }
            let chunk = self.raw[line + 2..end].to_vec();
            self.raw.drain(..end + 2);
            self.text.push_str(&String::from_utf8(chunk).unwrap());
        }
    }

    /// Reads on; false when the stream has ended.
    async fn more(&mut self) -> bool {
        let mut part = vec![0; 64 << 10];
        let read = tokio::time::timeout(PATIENCE, self.connection.read(&mut part)).await;
        let count = read.expect("something in time").unwrap_or(0);
        self.raw.extend_from_slice(&part[..count]);
        self.unchunk();
        count > 0
    }

    /// The next item; none when the stream has ended.
    async fn next(&mut self) -> Option<Told> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                let mut told = Told::default();
                for line in block.lines() {
                    match line.split_once(": ") {
                        Some(("event", name)) => told.name = name.to_owned(),
                        Some(("id", id)) => told.id = id.to_owned(),
                        Some(("data", data)) => told.data = serde_json::from_str(data).unwrap(),
                        _ => assert!(line.starts_with(':') || line.starts_with("retry"), "{line}"),
                    }
                }
                if !told.id.is_empty() {
                    self.id.clone_from(&told.id);
                }
                if !told.name.is_empty() {
                    return Some(told);
                }
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// The next items, by name and what tells them apart.
    async fn names(&mut self, count: usize) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for _ in 0..count {
            let told = self.next().await.expect("the stream goes on");
            let id = if told.name == "event" { &told.data["id"] } else { &told.data["event"] };
            found.push((told.name, id.as_str().unwrap_or_default().to_owned()));
        }
        found
    }

    /// Reads until the end of the stream.
    async fn end(&mut self) {
        let wait = async { while self.next().await.is_some() {} };
        tokio::time::timeout(PATIENCE, wait).await.expect("the stream ends");
    }
}

fn pair(name: &str, id: &str) -> (String, String) {
    (name.to_owned(), id.to_owned())
}

#[tokio::test]
async fn what_happens_is_told_in_order() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    server.publish("0").await;
    let mut listener = open(server.address, &server.keys.acme, "?kind=events", None).await;
    let mut published = Vec::new();
    for number in 1..=20 {
        published.push(pair("event", &server.publish(&number.to_string()).await));
    }
    assert_eq!(listener.names(20).await, published);
    let mut both = open(server.address, &server.keys.acme, "", None).await;
    let event = server.publish("21").await;
    // An event comes before what was tried of it.
    assert_eq!(both.names(2).await, [pair("event", &event), pair("attempt", &event)]);
}

#[tokio::test]
async fn items_say_what_lists_say_without_what_is_large() {
    let server = Server::start().await;
    let once = json!({"policy": {"schedule": {"max_attempts": 1}}, "name": "dead"});
    server.subscribe("https://dead.example/", once).await;
    let mut listener = open(server.address, &server.keys.acme, "", None).await;
    let id = server.publish(r#"{"large": "payload"}"#).await;
    let event = listener.next().await.unwrap().data;
    let listed = server.as_acme("GET", "/v1/events").await.expect(200);
    assert_eq!(event, listed["items"][0]);
    assert_eq!((&event["id"], event["payload_bytes"].as_u64()), (&json!(id), Some(20)));
    let attempt = listener.next().await.unwrap().data;
    assert_eq!((&attempt["event"], &attempt["status"]), (&json!(id), &json!(500)));
    assert_eq!((&attempt["state"], &attempt["reason"]), (&json!("dead"), &json!("exhausted")));
    assert!(attempt.get("request").is_none());
}

#[tokio::test]
async fn filters_select_what_is_told() {
    let server = Server::start().await;
    let once = json!({"policy": {"schedule": {"max_attempts": 1}}, "name": "dead"});
    server.subscribe("https://dead.example/", once).await;
    server.subscribe("https://ok.example/", json!({"name": "fine"})).await;
    let publish = async |event_type: &str| {
        let body = json!({"topic": "orders", "type": event_type, "payload": 1});
        let reply = server.as_acme("POST", "/v1/events").json(&body).await.expect(202);
        reply["id"].as_str().unwrap().to_owned()
    };
    let key = &server.keys.acme;
    let mut typed = open(server.address, key, "?type=b", None).await;
    let mut failed = open(server.address, key, "?status=5xx", None).await;
    let mut dead = open(server.address, key, "?state=dead&subscription=dead", None).await;
    let mut fine = open(server.address, key, "?subscription=fine&kind=attempts", None).await;
    let start = typed.id.clone();
    let (a, b) = (publish("a").await, publish("b").await);
    assert_eq!(typed.names(1).await, [pair("event", &b)]);
    for listener in [&mut failed, &mut dead, &mut fine] {
        let mut found = listener.names(2).await;
        found.sort();
        let mut expected = [pair("attempt", &a), pair("attempt", &b)];
        expected.sort();
        assert_eq!(found, expected);
    }
    let mut one = open(server.address, key, &format!("?event={b}"), Some(&start)).await;
    let (event, attempt) = (pair("event", &b), pair("attempt", &b));
    assert_eq!(one.names(3).await, [event, attempt.clone(), attempt]);
}

#[tokio::test]
async fn a_listener_that_comes_back_misses_nothing() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let mut listener = open(server.address, &server.keys.acme, "?kind=events", None).await;
    let first = server.publish("1").await;
    assert_eq!(listener.names(1).await, [pair("event", &first)]);
    let id = listener.id.clone();
    drop(listener);
    let mut missed = Vec::new();
    for number in 2..=250 {
        missed.push(pair("event", &server.publish(&number.to_string()).await));
    }
    let mut back = open(server.address, &server.keys.acme, "?kind=events", Some(&id)).await;
    assert_eq!(back.names(100).await, missed[..100]);
    // From the middle of what it has read.
    let mut again = open(server.address, &server.keys.acme, "?kind=events", Some(&back.id)).await;
    let next = pair("event", &server.publish("251").await);
    missed.push(next);
    assert_eq!(back.names(150).await, missed[100..]);
    assert_eq!(again.names(150).await, missed[100..]);
}

#[tokio::test]
async fn a_listener_that_does_not_read_is_told_how_much_it_missed() {
    let limits = ServeLimits { write_timeout: Duration::from_secs(600), ..ServeLimits::default() };
    let server = Server::start_with(limits).await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let mut listener = open(server.address, &server.keys.acme, "?kind=events", None).await;
    // Nobody reads while more happens than the network and the channel can hold.
    let attributes: serde_json::Map<String, Value> =
        (0..10).map(|n| (format!("a{n}"), json!("x".repeat(250)))).collect();
    let event = json!({"topic": "orders", "type": "a", "payload": 1, "attributes": attributes});
    let batch = json!({"events": vec![event; 200]});
    for _ in 0..30 {
        let reply = server.as_acme("POST", "/v1/events/batch").json(&batch).await;
        reply.expect(200);
        // The follower has time to tell what happened.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (mut told, mut skipped) = (0, 0);
    while told + skipped < 6_000 {
        let next = listener.next().await.expect("the stream goes on");
        match next.name.as_str() {
            "skipped" => skipped += next.data["count"].as_u64().unwrap(),
            _ => told += 1,
        }
    }
    assert_eq!(told + skipped, 6_000);
    assert!(skipped > 0, "it was kept somewhere: {told}");
    let last = server.publish("1").await;
    assert_eq!(listener.names(1).await, [pair("event", &last)], "it goes on");
}

/// The listener cuts it, and nothing is left of it.
#[tokio::test]
async fn a_listener_that_never_reads_is_cut() {
    let limits =
        ServeLimits { write_timeout: Duration::from_millis(300), ..ServeLimits::default() };
    let server = Server::start_with(limits).await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let mut listener = open(server.address, &server.keys.acme, "", None).await;
    let attributes: serde_json::Map<String, Value> =
        (0..10).map(|n| (format!("a{n}"), json!("x".repeat(250)))).collect();
    let event = json!({"topic": "orders", "type": "a", "payload": 1, "attributes": attributes});
    let batch = json!({"events": vec![event; 200]});
    let wait = async {
        loop {
            server.as_acme("POST", "/v1/events/batch").json(&batch).await.expect(200);
            tokio::time::sleep(Duration::from_millis(100)).await;
            // A reset is noticed by writing.
            if listener.connection.write_all(b" ").await.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("it is cut");
}

#[tokio::test]
async fn tenants_hear_of_their_own_only() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let other = |method: &str, path: &str| server.ask(method, path).key(&server.keys.other);
    other("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let mut theirs = open(server.address, &server.keys.other, "", None).await;
    let mut ours = open(server.address, &server.keys.acme, "?kind=events", None).await;
    let mut own = Vec::new();
    for number in 0..10 {
        own.push(pair("event", &server.publish(&number.to_string()).await));
    }
    assert_eq!(ours.names(10).await, own);
    let body = json!({"topic": "orders", "type": "a", "payload": 1});
    let published = other("POST", "/v1/events").json(&body).await.expect(202);
    let published = published["id"].as_str().unwrap();
    assert_eq!(theirs.names(1).await, [pair("event", published)], "the first they hear of");
    // Nor by an id of another's stream, by an id of an event, or by a header.
    let id = ours.id.clone();
    for query in ["".to_owned(), format!("?event={}", own[0].1)] {
        let mut sly = open(server.address, &server.keys.other, &query, Some(&id)).await;
        let body = json!({"topic": "orders", "type": "b", "payload": 1});
        let next = other("POST", "/v1/events").json(&body).await.expect(202);
        if query.is_empty() {
            let heard = sly.names(1).await;
            assert!(!own.contains(&heard[0]), "{heard:?}");
        } else {
            // Nothing at all: neither what another has published nor what became of it.
            let heard = tokio::time::timeout(Duration::from_secs(2), sly.names(1)).await;
            assert!(heard.is_err(), "{query}: {heard:?}");
        }
        assert_eq!(theirs.names(1).await[0].1, next["id"].as_str().unwrap());
    }
    let named = server.ask("GET", "/v1/stream").key(&server.keys.other);
    named.header("posthorn-tenant", "acme").await.expect_problem(404, "not_found");
    let publish_only = &server.keys.only[&posthorn_domain::Scope::Publish];
    server.ask("GET", "/v1/stream").key(publish_only).await.expect_problem(403, "forbidden");
}

/// A key of a realm hears of tenants of its realm, and of nobody else; operators are told of all realms, so the tenant they
/// are told in is not for the key of any.
#[tokio::test]
async fn keys_of_realms_hear_of_their_own_tenants_only() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    server.as_operator("PUT", "/v1/realms/eu").json(json!({})).await.expect(200);
    let new = json!({"name": "eu-one", "realm": "eu"});
    server.as_operator("POST", "/v1/tenants").json(new).await.expect(201);
    let key = async |realm: &str| {
        let new = json!({"realm": realm, "scopes": ["read"]});
        let made = server.as_operator("POST", "/v1/keys").json(new).await.expect(201);
        made["key"].as_str().unwrap().to_owned()
    };
    let (eu, default) = (key("eu").await, key("default").await);
    let system = posthorn_domain::TenantId::SYSTEM.to_string();
    let acme = server.acme.to_string();
    for (key, tenant) in [
        (&eu, "acme"),
        (&eu, &acme),
        (&eu, "system"),
        (&eu, &system),
        (&default, "eu-one"),
        (&default, "system"),
        (&default, &system),
    ] {
        let ask = async |tenant: &str| {
            let call = server.ask("GET", "/v1/stream").key(key);
            call.header("posthorn-tenant", tenant).await
        };
        let refused = ask(tenant).await;
        refused.expect_problem(404, "not_found");
        assert_eq!(refused.body, ask("nobody").await.body, "{tenant}");
    }
    let mut own = open_for(server.address, &default, Some("acme"), "?kind=events", None).await;
    let event = server.publish("1").await;
    assert_eq!(own.names(1).await, [pair("event", &event)]);
}

#[tokio::test]
async fn a_stream_ends_with_its_key() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let make = async |expires| {
        let scopes = vec![posthorn_domain::Scope::Read];
        server.engine.create_key(Some(server.acme), scopes, String::new(), expires, None).await
    };
    let key = make(None).await.unwrap();
    let mut revoked = open(server.address, &key.text, "", None).await;
    server.engine.revoke_key(key.key.id).await.unwrap();
    server.publish("1").await;
    assert_eq!(revoked.next().await, None, "what happened since is not told");
    let soon = server.engine.now().plus(posthorn_domain::Span::from_secs(2));
    let key = make(Some(soon)).await.unwrap();
    let mut expires = open(server.address, &key.text, "", None).await;
    expires.end().await;
    assert!(server.engine.now() >= soon);
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops() {
    let mut server = Server::start().await;
    let mut listener = open(server.address, &server.keys.acme, "", None).await;
    let stopped = server.begin_stop();
    listener.end().await;
    tokio::time::timeout(PATIENCE, stopped).await.expect("nothing holds it up").unwrap();
}

#[tokio::test]
async fn a_tenant_has_a_bounded_number_of_streams() {
    let server = Server::start().await;
    let mut listeners = Vec::new();
    for _ in 0..20 {
        listeners.push(open(server.address, &server.keys.acme, "", None).await);
    }
    let refused = server.as_acme("GET", "/v1/stream").await;
    refused.expect_problem(429, "too_many_streams");
    assert_eq!(open(server.address, &server.keys.other, "", None).await.status, 200);
    listeners.clear();
    let wait = async {
        // It takes a moment until the server knows that they are gone.
        while open(server.address, &server.keys.acme, "", None).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("places become free");
}

#[tokio::test]
async fn bad_streams_are_refused() {
    let server = Server::start().await;
    let cases = [
        ("kind=deliveries", "kind"),
        ("kind=events&status=500", "status"),
        ("kind=attempts&type=a", "type"),
        ("type=a&status=500", "status"),
        ("state=lost", "state"),
        ("trigger=luck", "trigger"),
        ("status=999", "status"),
        ("status=500&failure=connect_failed", "failure"),
        ("event=evt_1", "event"),
        ("subscription=nobody", "subscription"),
        ("from=2020-01-01T00:00:00Z", "from"),
        ("limit=5", "limit"),
    ];
    for (query, field) in cases {
        let reply = server.as_acme("GET", &format!("/v1/stream?{query}")).await;
        let problem = reply.expect_problem(422, "invalid_request");
        assert_eq!(problem["field"], field, "{query}: {problem}");
    }
    for id in ["x", "AQs", "AQEAAAAAAAAAAAAAAAAAAAAAAA", "%00", "AQsAAAA"] {
        let reply = server.as_acme("GET", "/v1/stream").header("last-event-id", id).await;
        let problem = reply.expect_problem(422, "invalid_request");
        assert_eq!(problem["field"], "Last-Event-ID", "{id}: {problem}");
    }
}
