//! Calls between nodes.

use std::sync::Arc;

use axum::Router;
use axum::routing::put;
use bytes::Bytes;
use http::StatusCode;
use posthorn_conformance::model::ModelStore;
use posthorn_domain::{
    AgentId, ChannelId, Clock, MessageId, PushEncoding, PushHeaders, PushMessage, Timestamp,
};
use posthorn_push::endpoint::NodeAnswer;
use posthorn_push::session::Pushed;
use posthorn_push_node::Roles;
use posthorn_push_node::health::{Health, HealthParts};
use posthorn_push_node::nodes::{Nodes, internal};
use posthorn_sealing::node_key::{NodeCall, NodeKey, NodeKeys};
use posthorn_testkit::caller::call;
use posthorn_testkit::clock::StillClock;
use posthorn_testkit::wait::PATIENCE;
use tokio::net::TcpListener;

use crate::house::{Agents, Server, ask, counted};

const NOW: i64 = 1_700_000_000_123;

const HERE: AgentId = AgentId::from_random(1);
const BUSY: AgentId = AgentId::from_random(2);
const AWAY: AgentId = AgentId::from_random(3);

/// One node, and another one that calls it.
struct Two {
    agents: Arc<Agents>,
    clock: Arc<StillClock>,
    keys: Arc<NodeKeys>,
    called: Server,
    caller: Nodes,
}

fn keys_of(keys: &[&NodeKey]) -> Arc<NodeKeys> {
    let keys = keys.iter().map(|key| (*key).clone()).collect();
    Arc::new(NodeKeys::new(keys).expect("some keys"))
}

fn caller(keys: Arc<NodeKeys>, clock: Arc<dyn Clock>) -> Nodes {
    Nodes::new(keys, clock, None).expect("a way out")
}

impl Two {
    async fn start() -> Self {
        let clock = StillClock::at(NOW);
        let keys = keys_of(&[&NodeKey::generate()]);
        let agents = Arc::new(Agents::default());
        agents.answers.lock().extend([(HERE, Pushed::Accepted), (BUSY, Pushed::Full)]);
        let health = Health::new(HealthParts {
            roles: Roles { connection: true, endpoint: false },
            local: Some(agents.clone()),
            store: Arc::new(ModelStore::new(clock.clone())),
            request_count: Arc::default(),
            clock: clock.clone(),
        });
        let router = internal(agents.clone(), keys.clone(), clock.clone(), &health);
        let called = Server::start(router).await;
        let caller = caller(keys.clone(), clock.clone());
        Self { agents, clock, keys, called, caller }
    }

    async fn put(&self, path: &str, signed: &str, body: &[u8]) -> StatusCode {
        let call = NodeCall { method: "PUT", path: signed, body };
        let signature = self.keys.sign(call, self.clock.now());
        let (status, answer) = ask(&self.called, "PUT", path, Some(&signature), body).await;
        assert!(answer.is_empty(), "nothing is told");
        status
    }

    fn untouched(&self) -> bool {
        self.agents.pushed.lock().is_empty() && self.agents.hinted.lock().is_empty()
    }
}

fn message(agent: AgentId) -> PushMessage {
    PushMessage {
        agent,
        channel: ChannelId::from_random(10),
        id: MessageId::from_random(11),
        topic: None,
        ttl: 60,
        received_at: Timestamp::from_millis(NOW - 7),
        headers: None,
        body: None,
    }
}

#[tokio::test]
async fn messages_arrive_as_they_were_sent() {
    let two = Two::start().await;
    let aesgcm = PushHeaders {
        encoding: PushEncoding::AesGcm,
        encryption: Some("keyid=p256dh;salt=\u{e4}\\".into()),
        crypto_key: Some("dh=a;p256ecdsa=b".into()),
    };
    let aes128gcm =
        PushHeaders { encoding: PushEncoding::Aes128Gcm, encryption: None, crypto_key: None };
    let shapes = [
        message(HERE),
        PushMessage { topic: Some("news".parse().expect("a topic")), ttl: 0, ..message(HERE) },
        PushMessage {
            headers: Some(aesgcm),
            body: Some(Bytes::from_static(b"\0\xFF body")),
            ..message(HERE)
        },
        PushMessage {
            headers: Some(aes128gcm),
            body: Some(vec![0xA5; 5_630].into()),
            ttl: u32::MAX,
            ..message(HERE)
        },
    ];
    for shape in &shapes {
        assert_eq!(two.caller.push(&two.called.url(), shape).await, NodeAnswer::Accepted);
    }
    assert_eq!(*two.agents.pushed.lock(), shapes);
    two.called.stop().await;
}

#[tokio::test]
async fn a_node_says_who_is_there_and_who_can_take_more() {
    let two = Two::start().await;
    let url = two.called.url();
    for (agent, pushed, hinted) in [
        (HERE, NodeAnswer::Accepted, NodeAnswer::Accepted),
        (BUSY, NodeAnswer::Full, NodeAnswer::Accepted),
        (AWAY, NodeAnswer::NotConnected, NodeAnswer::NotConnected),
    ] {
        assert_eq!(two.caller.push(&url, &message(agent)).await, pushed);
        // A slash at the end is no path.
        assert_eq!(two.caller.hint(&format!("{url}/"), agent).await, hinted);
    }
    assert_eq!(*two.agents.hinted.lock(), [HERE, BUSY, AWAY]);
}

#[tokio::test]
async fn agents_may_be_spelled_with_dashes() {
    let two = Two::start().await;
    let plain = HERE.to_string();
    let dashed = ChannelId::from_bytes(*HERE.as_bytes()).to_string();
    for text in [plain, dashed] {
        let path = format!("/notif/{text}");
        assert_eq!(two.put(&path, &path, b"").await, StatusCode::OK);
    }
    assert_eq!(*two.agents.hinted.lock(), [HERE, HERE]);
    for path in ["/notif/nobody", "/push/nobody", "/push/%30", "/notif/-"] {
        assert_eq!(two.put(path, path, b"").await, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn strangers_learn_nothing() {
    let two = Two::start().await;
    let json = br#"{"channelID":"01010101-0101-0101-0101-010101010101",
        "version":"02020202020202020202020202020202","timestamp":12}"#;
    let (push, hint) = (format!("/push/{HERE}"), format!("/notif/{HERE}"));
    // Whatever is wrong besides, or right.
    let nowhere = "/push/nobody".to_owned();
    for path in [&push, &hint, &nowhere] {
        let stranger = keys_of(&[&NodeKey::generate()]);
        let call = NodeCall { method: "PUT", path, body: json };
        let foreign = stranger.sign(call, two.clock.now());
        for header in [None, Some(""), Some("Bearer a"), Some("\u{e4}"), Some(&*foreign)] {
            let (status, body) = ask(&two.called, "PUT", path, header, json).await;
            assert_eq!((status, &*body), (StatusCode::UNAUTHORIZED, ""), "{header:?}");
        }
    }
    // A signature is for one path.
    assert_eq!(two.put(&push, &hint, b"").await, StatusCode::UNAUTHORIZED);
    let elsewhere = format!("{push}?a=1");
    assert_eq!(two.put(&elsewhere, &push, json).await, StatusCode::UNAUTHORIZED);
    assert!(two.untouched());
    assert_eq!(two.put(&push, &push, json).await, StatusCode::OK);
}

#[tokio::test]
async fn what_is_no_message_is_refused() {
    let two = Two::start().await;
    let path = format!("/push/{HERE}");
    for body in ["", "{", "[]", "{}", "null"] {
        assert_eq!(two.put(&path, &path, body.as_bytes()).await, StatusCode::BAD_REQUEST);
    }
    // It is refused before it was sent.
    let length = [("authorization", "a"), ("content-length", "131073")];
    assert_eq!(call(&two.called.url(), "PUT", &path).headers(&length).await.status, 413);
    let (status, _) = ask(&two.called, "POST", &path, None, "").await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(two.untouched());
}

#[tokio::test]
async fn recorded_calls_are_worth_nothing_later() {
    let two = Two::start().await;
    let path = format!("/notif/{HERE}");
    let call = NodeCall { method: "PUT", path: &path, body: b"" };
    let signature = two.keys.sign(call, two.clock.now());
    let replay = async |at: i64| {
        two.clock.set(at);
        ask(&two.called, "PUT", &path, Some(&signature), "").await.0
    };
    assert_eq!(replay(NOW + 60_000).await, StatusCode::OK);
    assert_eq!(replay(NOW + 60_001).await, StatusCode::UNAUTHORIZED);
    assert_eq!(replay(NOW - 60_001).await, StatusCode::UNAUTHORIZED);
    assert_eq!(two.agents.hinted.lock().len(), 1);
}

#[tokio::test]
async fn nodes_with_other_keys_or_clocks_take_nothing_and_stay_on_the_record() {
    let two = Two::start().await;
    let url = two.called.url();
    let other = caller(keys_of(&[&NodeKey::generate()]), two.clock.clone());
    assert_eq!(other.push(&url, &message(HERE)).await, NodeAnswer::Full);
    let ahead = caller(two.keys.clone(), StillClock::at(NOW + 61_000));
    assert_eq!(ahead.hint(&url, HERE).await, NodeAnswer::Full);
    assert!(two.untouched());
}

#[tokio::test]
async fn keys_change_one_node_after_the_other() {
    let (old, new) = (NodeKey::generate(), NodeKey::generate());
    let clock = StillClock::at(NOW);
    let agents = Arc::new(Agents::default());
    agents.answers.lock().insert(HERE, Pushed::Accepted);
    let health = Health::new(HealthParts {
        roles: Roles { connection: true, endpoint: true },
        local: None,
        store: Arc::new(ModelStore::new(clock.clone())),
        request_count: Arc::default(),
        clock: clock.clone(),
    });
    let both = keys_of(&[&new, &old]);
    let server = Server::start(internal(agents, both, clock.clone(), &health)).await;
    for key in [old, new] {
        let node = caller(keys_of(&[&key]), clock.clone());
        assert_eq!(node.hint(&server.url(), HERE).await, NodeAnswer::Accepted);
    }
}

#[tokio::test]
async fn what_cannot_be_called_is_unreachable_in_bounded_time() {
    let two = Two::start().await;
    let url = two.called.url();
    let Two { caller, called, .. } = two;
    assert_eq!(caller.hint(&url, HERE).await, NodeAnswer::Accepted);
    // Gone, with a connection to it still in the pool.
    called.stop().await;
    // Accepted by the kernel, and then nothing.
    let mute = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mute = format!("http://{}", mute.local_addr().expect("an address"));
    let no_urls = ["", "node-1", "127.0.0.1:8081", "ftp://127.0.0.1/", "http://", "http://a b/"];
    let metadata = ["http://169.254.169.254/"];
    let paths = [format!("{url}/internal"), format!("{url}/?a=b"), format!("{url}/#a")];
    let calls = async {
        for node in no_urls.into_iter().chain(metadata).chain(paths.iter().map(String::as_str)) {
            assert!(caller.check(node).is_err(), "{node}");
            assert_eq!(caller.push(node, &message(HERE)).await, NodeAnswer::Unreachable);
            assert_eq!(caller.hint(node, HERE).await, NodeAnswer::Unreachable);
        }
        // One that is merely slow may have taken the message, and its agents are there.
        for (node, answer) in [(&url, NodeAnswer::Unreachable), (&mute, NodeAnswer::Full)] {
            assert_eq!(caller.check(node), Ok(()));
            assert_eq!(caller.push(node, &message(HERE)).await, answer);
            assert_eq!(caller.hint(node, HERE).await, answer);
        }
    };
    tokio::time::timeout(PATIENCE, calls).await.expect("bounded");
}

#[tokio::test]
async fn nodes_may_have_inner_names_and_addresses() {
    let caller = caller(keys_of(&[&NodeKey::generate()]), StillClock::at(NOW));
    for node in [
        "http://10.0.0.1:8081",
        "http://[fd00::1]:8081",
        "http://127.0.0.1:1",
        "http://localhost:8081",
        "http://push-1:8081/",
        "https://push-1.push.svc.cluster.local:8081",
        "https://push-1.example.com",
    ] {
        assert_eq!(caller.check(node), Ok(()), "{node}");
    }
}

#[tokio::test]
async fn answers_that_mean_nothing_leave_a_node_on_the_record() {
    let answer = |status: u16| async move { StatusCode::from_u16(status).expect("a status") };
    for status in [201, 204, 302, 400, 403, 413, 429, 500, 502] {
        let router = Router::new().route("/notif/{agent}", put(move || answer(status)));
        let server = Server::start(router).await;
        let caller = caller(keys_of(&[&NodeKey::generate()]), StillClock::at(NOW));
        let answer = caller.hint(&server.url(), HERE).await;
        assert_eq!(answer, NodeAnswer::Full, "{status}");
    }
}

#[test]
fn calls_are_counted() {
    let text = counted(async {
        let two = Two::start().await;
        let url = two.called.url();
        two.caller.push(&url, &message(HERE)).await;
        two.caller.push(&url, &message(BUSY)).await;
        two.caller.push(&url, &message(AWAY)).await;
        two.caller.hint("nowhere", HERE).await;
        two.clock.set(NOW + 1);
        two.put(&format!("/notif/{HERE}"), "/", b"").await;
    });
    for line in [
        r#"posthorn_push_node_calls_total{call="push",outcome="accepted"} 1"#,
        r#"posthorn_push_node_calls_total{call="push",outcome="full"} 1"#,
        r#"posthorn_push_node_calls_total{call="push",outcome="not_connected"} 1"#,
        r#"posthorn_push_node_calls_total{call="hint",outcome="unreachable"} 1"#,
        r#"posthorn_push_node_calls_refused_total{reason="unknown"} 1"#,
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}
