//! What of Web Push is open to whom: listeners and roles, calls between nodes, health, metrics, log
//! and TLS.

use std::time::Duration;

use posthorn_agent::{Agent, Error, Event, Options};
use posthorn_domain::{AgentId, ChannelId, Timestamp};
use posthorn_sealing::node_key::{NodeCall, NodeKey, NodeKeys};
use posthorn_sealing::vault::VaultKey;
use posthorn_store::push::{PushStore as _, RouteAsk};
use posthorn_store_postgres::PostgresStore;
use posthorn_testkit::authority::Authority;
use posthorn_testkit::caller::{Reply, call};
use posthorn_testkit::program::Home;
use serde_json::Value;

use crate::push_world::{
    PushNode, SPLIT, Sender, Shape, Town, WITH_TEXT, acknowledged, channel, event, notification,
    seal_file, silence,
};
use crate::tls;

/// The internal listener of the node that an agent is connected to, as the other nodes know it.
async fn internal_url(town: &Town, agent: AgentId, channel: ChannelId) -> String {
    let url = town.database.as_ref().expect("PostgreSQL").url();
    let store = PostgresStore::connect(posthorn_store_postgres::Options::new(url)).await;
    let routes = store.expect("a store").routes(vec![RouteAsk { agent, channel }]).await;
    let route = routes.expect("an answer").pop().flatten().expect("it is registered");
    route.router.node.expect("it is connected")
}

#[expect(clippy::disallowed_methods, reason = "the program under test has the system's clock too")]
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = since.expect("after 1970").as_millis();
    Timestamp::from_millis(i64::try_from(millis).expect("not that late"))
}

async fn put(url: &str, path: &str, authorization: Option<&str>) -> Reply {
    let headers: Vec<_> = authorization.iter().map(|value| ("authorization", *value)).collect();
    let answer = Sender::to(url).await.ask("PUT", path, &headers, "").await;
    answer.expect("an answer")
}

#[tokio::test]
async fn only_nodes_call_nodes_and_only_at_the_internal_listener() {
    let town = Town::start(SPLIT, "");
    let node = town.agents();
    let (mut agent, id) = node.agent(None).await;
    let channel = channel();
    let endpoint = agent.register(channel, None).await.expect("an endpoint");
    let internal = internal_url(&town, id, channel).await;
    assert_ne!(internal, node.url);
    let seal = std::fs::read_to_string(seal_file(&node.home)).expect("there");
    let ours = NodeKey::derived_from(&VaultKey::parse(seal.trim()).expect("a key"));
    let sign = |key: NodeKey, path: &str, at: Timestamp| {
        let call = NodeCall { method: "PUT", path, body: b"" };
        NodeKeys::new(vec![key]).expect("a key").sign(call, at)
    };
    let hint = format!("/notif/{id}");
    let good = sign(ours.clone(), &hint, now());
    put(&internal, &hint, Some(&good)).await.expect(200);
    let elsewhere = format!("/notif/{}", AgentId::from_random(rand::random()));
    put(&internal, &elsewhere, Some(&sign(ours.clone(), &elsewhere, now()))).await.expect(404);
    // Without a signature, with that of a stranger, of another call, or of long ago.
    put(&internal, &hint, None).await.expect(401);
    let stranger = sign(NodeKey::generate(), &hint, now());
    put(&internal, &hint, Some(&stranger)).await.expect(401);
    put(&internal, &elsewhere, Some(&good)).await.expect(401);
    let push = format!("/push/{id}");
    put(&internal, &push, Some(&good)).await.expect(401);
    let old = Timestamp::from_millis(now().as_millis() - 120_000);
    put(&internal, &hint, Some(&sign(ours, &hint, old))).await.expect(401);
    let refused = "posthorn_push_node_calls_refused_total";
    assert_eq!(node.metric(&format!("{refused}{{reason=\"unknown\"}}")).await, 3);
    assert_eq!(node.metric(&format!("{refused}{{reason=\"time\"}}")).await, 1);
    // No public listener knows these paths, whoever asks.
    for node in [town.agents(), town.senders()] {
        for path in [&hint, &push] {
            put(&node.url, path, Some(&good)).await.expect(404);
        }
    }
    // The internal one knows nothing else.
    let mut inside = Sender::to(&internal).await;
    for path in ["/", "/v1/topics", "/metrics"] {
        inside.ask("GET", path, &[], "").await.expect("an answer").expect(404);
    }
    inside.ask("POST", &endpoint, &WITH_TEXT, "x").await.expect("an answer").expect(404);
    silence(&mut agent).await;
    town.stop();
}

#[tokio::test]
async fn each_role_has_its_own_routes() {
    let town = Town::start(SPLIT, "");
    let (connection, endpoint) = (town.agents(), town.senders());
    let (_agent, _, url) = connection.registered().await;
    assert!(url.starts_with(&endpoint.url), "{url} is not below {}", endpoint.url);
    let mut there = connection.sender().await;
    there.ask("POST", &url, &WITH_TEXT, "x").await.expect("an answer").expect(404);
    let nobody = Agent::connect(&endpoint.url, &Options::default()).await;
    assert!(matches!(nobody, Err(Error::NoSocket(404))), "{nobody:?}");
    let plain = connection.get("/").await.with(426);
    assert_eq!(plain.header("upgrade"), Some("websocket"));
    // Pages in browsers may post.
    let asked = [("origin", "https://example.com"), ("access-control-request-headers", "ttl")];
    let mut page = endpoint.sender().await;
    let allowed = page.ask("OPTIONS", &url, &asked, "").await.expect("an answer").with(200);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("*"));
    assert_eq!(allowed.header("access-control-max-age"), Some("3600"));
    page.ask("PUT", &url, &[], "").await.expect("an answer").expect(405);
    // Phones have push services of their own, to which there is no bridge.
    let bridge = page.ask("POST", "/v1/fcm/app/registration", &[], "{}").await;
    bridge.expect("an answer").expect(404);
    town.stop();
}

fn fields(answer: &Reply) -> (Value, Vec<String>) {
    let value: Value = serde_json::from_str(&answer.body).expect("JSON");
    let names = value.as_object().expect("an object").keys().cloned().collect();
    (value, names)
}

async fn check_health(url: &str, connections: Option<u64>, endpoint: bool) {
    let mut asker = Sender::to(url).await;
    let mut get = async |path: &str| asker.ask("GET", path, &[], "").await.expect("an answer");
    for path in ["/health", "/__heartbeat__"] {
        let (value, names) = fields(&get(path).await.with(200));
        assert_eq!(value["status"], "OK");
        assert_eq!(value["connections"].as_u64(), connections, "{value}");
        let both = ["message_table", "request_count", "router_table", "routers"];
        for name in both {
            assert_eq!(names.iter().any(|found| found == name), endpoint, "{value}");
        }
        if endpoint {
            assert_eq!(value["router_table"]["status"], "OK");
            assert_eq!(value["message_table"]["status"], "OK");
        }
    }
    let (value, names) = fields(&get("/status").await.with(200));
    assert_eq!(value["status"], "OK");
    assert_eq!(names, ["status", "version"]);
    assert_eq!(get("/__lbheartbeat__").await.with(200).body, "");
    let (_, names) = fields(&get("/__version__").await.with(200));
    assert_eq!(names, ["build", "commit", "source", "version"]);
    let (value, _) = fields(&get("/__error__").await.with(418));
    assert_eq!(value["errno"], 999);
    get("/v1/err/crit").await.expect(if connections.is_some() { 418 } else { 404 });
}

#[tokio::test]
async fn every_listener_says_how_its_node_is() {
    let town = Town::start(SPLIT, "");
    let (mut agent, id) = town.agents().agent(None).await;
    let channel = channel();
    agent.register(channel, None).await.expect("an endpoint");
    check_health(&town.agents().url, Some(1), false).await;
    check_health(&internal_url(&town, id, channel).await, Some(1), false).await;
    check_health(&town.senders().url, None, true).await;
    town.senders().get("/v1/err").await.expect(418);
    town.stop();
    let town = Town::start(Shape::Sqlite, "");
    check_health(&town.agents().url, Some(0), true).await;
    // The rest of the house says so in its own way, as ever.
    for path in ["/healthz", "/readyz"] {
        town.agents().get(path).await.expect(200);
    }
    town.stop();
}

#[tokio::test]
async fn a_store_that_is_away_shows_in_health_and_is_not_the_senders_fault() {
    let town = Town::start(Shape::Postgres, "");
    let (agent, _, endpoint) = town.agents().registered().await;
    agent.close().await.expect("closed");
    town.database.as_ref().expect("PostgreSQL").stop_immediate().expect("stops");
    let (value, _) = fields(&town.agents().get("/health").await.with(200));
    assert_eq!(value["status"], "ERROR", "{value}");
    let (value, names) = fields(&town.agents().get("/status").await.with(200));
    assert_eq!(value["status"], "ERROR", "{value}");
    assert!(names.iter().any(|name| name == "error"), "{value}");
    let mut sender = town.senders().sender().await;
    let answer = sender.ask("POST", &endpoint, &WITH_TEXT, "x").await.expect("an answer");
    assert_eq!(answer.with(503).header("retry-after"), Some("120"));
}

/// The lines of connections that ended, in the log of a node.
fn ended(log: &str) -> Vec<Value> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let told = |line: &Value| line.to_string().contains("\"connection ended\"");
    lines.filter(told).collect()
}

#[tokio::test]
async fn every_connection_is_counted_and_has_one_line_in_the_log() {
    let mut town = Town::start(Shape::Sqlite, "ping_interval_min: 0s");
    let node = town.agents();
    let (mut agent, id, endpoint) = node.registered().await;
    let mut sender = node.sender().await;
    for n in 0..3 {
        sender.post(&endpoint, &n.to_string()).await.expect(201);
    }
    for _ in 0..2 {
        acknowledged(&mut agent).await;
    }
    let third = notification(&mut agent).await;
    agent.nack(&third.version, Some(301)).await.expect("sent");
    agent.ping().await.expect("sent");
    assert_eq!(event(&mut agent).await, Event::Pong);
    assert_eq!(node.metric("posthorn_push_connections").await, 1);
    agent.close().await.expect("closed");
    sender.ask("POST", &endpoint, &[], "").await.expect("an answer").expect(400);
    // A second socket, which says what nobody understands.
    let mut rude = Agent::connect(&node.url, &Options::default()).await.expect("a socket");
    rude.send_text("rubbish").await.expect("sent");
    assert!(matches!(event(&mut rude).await, Event::Closed(closed) if closed.code == Some(1011)));
    drop(rude);
    let wanted = [
        ("connections_opened_total", 2),
        ("connections_ended_total{close=\"gone\"}", 1),
        ("connections_ended_total{close=\"json\"}", 1),
        ("hellos_total{agent=\"new\"}", 1),
        ("registers_total", 1),
        ("notifications_sent_total{source=\"direct\"}", 3),
        ("acks_total{source=\"direct\"}", 2),
        ("nacks_total", 1),
        ("messages_total{outcome=\"direct\"}", 3),
        ("saved_at_end_total", 1),
        ("vapid_total{form=\"none\"}", 4),
        ("refused_total{status=\"400\",errno=\"111\"}", 1),
        ("connections", 0),
    ];
    for (name, value) in wanted {
        let name = format!("posthorn_push_{name}");
        // The end of a connection is noticed a moment after it.
        for left in (0..50).rev() {
            let found = node.metric(&name).await;
            if found == value {
                break;
            }
            assert!(left > 0, "{name} is {found}, not {value}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let log = town.nodes[0].stop();
    // Who knows the id of an agent can be that agent.
    let id = id.to_string();
    assert!(!format!("{log:?}").contains(&id), "the id of an agent is in the log");
    let lines = ended(&log);
    let [first, second] = lines.as_slice() else { panic!("two lines: {lines:?}") };
    let numbers = first.to_string();
    for part in [
        "\"agent\":\"".to_owned(),
        "\"close\":\"gone\"".to_owned(),
        "\"direct_sent\":3".to_owned(),
        "\"direct_acked\":2".to_owned(),
        "\"direct_storage\":1".to_owned(),
        "\"nacks\":1".to_owned(),
        "\"registers\":1".to_owned(),
        "\"connection_time_ms\":".to_owned(),
    ] {
        assert!(numbers.contains(&part), "{part} is not in {numbers}");
    }
    assert!(second.to_string().contains("\"close\":\"json\""), "{second}");
}

#[tokio::test]
async fn agents_and_senders_may_come_over_tls() {
    let authority = Authority::new("ours");
    let home = Home::new();
    tls::configure(&home, &authority, "off");
    home.configure("push: {enabled: true}\n");
    let mut node = PushNode::start(home);
    let options = Options { roots: Some(authority.roots()), ..Options::default() };
    let url = node.url.replace("https://", "wss://");
    let mut agent = Agent::connect(&url, &options).await.expect("a socket");
    agent.hello(None, &[]).await.expect("a hello");
    let endpoint = agent.register(channel(), None).await.expect("an endpoint");
    let path = endpoint.strip_prefix(&node.url).expect("an endpoint of this server");
    for _ in 0..3 {
        let knock = call(&node.url, "POST", path).header("ttl", "60");
        knock.over_tls(&authority.pem, None).send().expect(201);
        assert_eq!(acknowledged(&mut agent).await, "");
    }
    agent.close().await.expect("closed");
    node.stop();
}
