//! What happens by itself: time-outs, pings, broadcasts; and agents that send too much or read too
//! little.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use posthorn_agent::Event;
use posthorn_domain::{AgentId, Clock as _, Span};
use posthorn_push::session::Broadcasts;
use posthorn_push_node::Options;
use posthorn_store::push::{Connect, PushStore as _};
use posthorn_testkit::clock::Wall;
use posthorn_testkit::wait::PATIENCE;
use serde_json::json;

use crate::live::gated::Gated;
use crate::live::house::{House, Wires, options, silence, store};
use crate::live::wire::{HELLO, PING, PONG, Raw, TEXT, frame, greeted};

async fn house(change: impl FnOnce(&mut Options)) -> House {
    let mut options = options("n1");
    change(&mut options);
    House::start(store(), &Wires::default(), options).await
}

#[tokio::test]
async fn an_agent_that_says_nothing_is_closed() {
    let house = house(|options| options.session.handshake_timeout = Span::from_millis(200)).await;
    let mut raw = Raw::open(&house.url, None).await;
    assert_eq!(raw.end().await, (1011, "HandshakeTimeout".to_owned()));
    // Half a frame is nothing, too.
    let mut raw = Raw::open(&house.url, None).await;
    raw.bytes(&frame(TEXT, HELLO.as_bytes())[..8]).await;
    assert_eq!(raw.end().await, (1011, "HandshakeTimeout".to_owned()));
}

#[tokio::test]
async fn an_agent_that_answers_no_ping_is_closed_and_one_that_does_is_not() {
    let house = house(|options| {
        options.session.ping_interval = Span::from_millis(150);
        options.session.pong_timeout = Span::from_millis(400);
    })
    .await;
    let mut raw = greeted(&house.url).await;
    for _ in 0..3 {
        assert_eq!(raw.frame().await, Some((PING, Vec::new())));
        raw.bytes(&frame(PONG, b"")).await;
    }
    assert_eq!(raw.frame().await, Some((PING, Vec::new())));
    // Other signs of life are none.
    raw.text("{}").await;
    assert_eq!(raw.said().await, json!({}));
    assert_eq!(raw.end().await, (1011, "PongTimeout".to_owned()));
    // What it is told about it comes when it is read; nobody waits for it.
    let (agent, id, _) = house.registered().await;
    agent.close().await.expect("closed");
    house.agent(Some(id)).await;
}

#[tokio::test]
async fn broadcasts_are_told_with_hello_when_asked_for_and_instead_of_a_ping() {
    let table = |version: &str| {
        let mut table = Broadcasts::default();
        table.set("known", "v1").expect("room");
        table.set("other", "o1").expect("room");
        table.set("known", version).expect("room");
        table
    };
    let broadcasts = Arc::new(ArcSwap::from_pointee(table("v1")));
    let mut options = options("n1");
    options.session.ping_interval = Span::from_secs(1);
    let shared = Arc::clone(&broadcasts);
    let house =
        House::start_with(store(), &Wires::default(), options, |parts| parts.broadcasts = shared)
            .await;
    let mut raw = Raw::open(&house.url, None).await;
    let hello = r#"{"messageType":"hello","broadcasts":{"known":"v0","nobody":"x"}}"#;
    let told = json!({"known": "v1", "errors": {"nobody": "Broadcast not found"}});
    assert_eq!(raw.hello(hello).await["broadcasts"], told);
    let subscribe = |asked: &str| {
        format!(r#"{{"messageType":"broadcast_subscribe","broadcasts":{{{asked}}}}}"#)
    };
    // Nothing to say, so nothing is said.
    raw.text(&subscribe(r#""other":"o1","known":"v1""#)).await;
    raw.text(&subscribe(r#""other":"o0""#)).await;
    let told = json!({"messageType": "broadcast", "broadcasts": {"other": "o1"}});
    assert_eq!(raw.said().await, told);
    raw.text(&subscribe(r#""none":"""#)).await;
    let errors = json!({"errors": {"none": "Broadcast not found"}});
    assert_eq!(raw.said().await, json!({"messageType": "broadcast", "broadcasts": errors}));
    broadcasts.store(Arc::new(table("v2")));
    let told = json!({"messageType": "broadcast", "broadcasts": {"known": "v2"}});
    loop {
        match raw.frame().await {
            // A ping may have been due just before.
            Some((PING, _)) => raw.bytes(&frame(PONG, b"")).await,
            Some((TEXT, text)) => {
                let said: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
                assert_eq!(said, told);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(raw.frame().await, Some((PING, Vec::new())), "and once is enough");
}

#[tokio::test]
async fn an_agent_that_sends_too_much_is_read_more_slowly() {
    // Ten seconds' worth may come at once; the rest must take its time.
    let house = house(|options| options.frames_per_second = 100).await;
    let mut raw = greeted(&house.url).await;
    let ack = frame(TEXT, br#"{"messageType":"ack","updates":[]}"#);
    let began = Instant::now();
    raw.bytes(&ack.repeat(1_200)).await;
    raw.text("{}").await;
    assert_eq!(raw.said().await, json!({}));
    assert!(began.elapsed().as_millis() >= 1_500, "{:?}", began.elapsed());
    // It is not punished for it.
    let (mut agent, _, endpoint) = house.registered().await;
    assert_eq!(house.post(&endpoint, "others are not slowed").await.status, 201);
    agent.next().await.expect("a notification");
    silence(&mut agent).await;
}

/// The texts of all notifications that come until there are so many, each acknowledged.
async fn drink(raw: &mut Raw, many: usize) -> Vec<String> {
    let mut texts = Vec::new();
    while texts.len() < many {
        let said = raw.said().await;
        assert_eq!(said["messageType"], "notification");
        let data = URL_SAFE_NO_PAD.decode(said["data"].as_str().expect("data")).expect("base64");
        let text = String::from_utf8(data).expect("text");
        texts.push(text.trim_end().to_owned());
        let update = json!({"channelID": said["channelID"], "version": said["version"]});
        raw.text(&json!({"messageType": "ack", "updates": [update]}).to_string()).await;
    }
    texts
}

#[tokio::test]
async fn what_an_agent_does_not_read_is_kept_in_the_store_and_not_in_memory() {
    let store = Gated::new();
    let mut options = options("n1");
    options.session.unacked_window = u16::MAX;
    options.frames_per_second = 100_000;
    let house = House::start(Arc::clone(&store) as _, &Wires::default(), options).await;
    let mut raw = Raw::open(&house.url, Some(4_096)).await;
    let id: AgentId = raw.hello(HELLO).await["uaid"].as_str().expect("an id").parse().expect("one");
    let channel = "0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff";
    raw.text(&format!(r#"{{"messageType":"register","channelID":"{channel}"}}"#)).await;
    let endpoint = raw.said().await["pushEndpoint"].as_str().expect("a URL").to_owned();
    // The buffers of the system take some; then the window is empty still, but nothing is taken.
    let mut posted = 0;
    let mut stored = 0;
    while stored < 25 {
        assert!(posted < 4_000, "everything is taken");
        assert_eq!(house.post(&endpoint, &format!("{posted:<5500}")).await.status, 201);
        posted += 1;
        stored = store.texts(id).await.len();
    }
    let all: Vec<String> = (0..posted).map(|n| n.to_string()).collect();
    assert_eq!(drink(&mut raw, posted).await, all);
    raw.silence().await;
    // And it goes straight again.
    assert_eq!(house.post(&endpoint, "last").await.status, 201);
    assert_eq!(drink(&mut raw, 1).await, ["last"]);
    assert!(store.texts(id).await.is_empty());
}

#[test]
fn saying_again_who_is_there_is_no_hello() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let hellos = || {
        let text = handle.render();
        let lines =
            text.lines().filter(|line| line.starts_with(posthorn_push_node::metrics::HELLOS));
        lines.map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let life = async {
        let store = store();
        let mut options = options("n1");
        options.session.ping_interval = Span::from_millis(200);
        options.session.renew_interval = Span::from_millis(100);
        let house = House::start(Arc::clone(&store) as _, &Wires::default(), options).await;
        // One agent is removed while it is connected, the other one connects elsewhere.
        let (mut removed, id, _) = house.registered().await;
        let (mut moved, other, _) = house.registered().await;
        let before = hellos();
        store.drop_agents(vec![id]).await.expect("dropped");
        let at = Wall.now().plus(Span::from_secs(60));
        let connect = Connect { agent: other, node: "n2".to_owned(), at, seen: at };
        store.connect_agents(vec![connect]).await.expect("connected");
        for agent in [&mut removed, &mut moved] {
            let closed = async { while !matches!(agent.next().await, Ok(Event::Closed(_))) {} };
            tokio::time::timeout(PATIENCE, closed).await.expect("the renewal finds out");
        }
        assert!(!before.is_empty());
        assert_eq!(hellos(), before);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    metrics::with_local_recorder(&recorder, || runtime.expect("a runtime").block_on(life));
}
