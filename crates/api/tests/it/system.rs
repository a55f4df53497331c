//! What operators see of the server itself: nodes, the configuration, Web Push, settings of Notificaties.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use posthorn_api::{ConfigEntry, Notificaties, Options, PushSight};
use posthorn_conformance::model::ModelStore;
use posthorn_domain::push::KeyHash;
use posthorn_domain::{AgentId, ChannelId, Clock, MessageId, PushMessage, TenantId};
use posthorn_engine::{
    Delivering, Looking, Opening, PushDelivery, PushLimits, PushOutcome, PushProblem,
};
use posthorn_listener::ServeLimits;
use posthorn_sealing::endpoint_token::Endpoint;
use posthorn_store::PushStore;
use posthorn_store::push::{Birth, ClearNode, Register};
use posthorn_testkit::clock::Wall;
use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

#[tokio::test]
async fn nodes_are_listed_with_shards_and_versions() {
    let server = Server::start().await;
    let mut nodes = Value::Null;
    for _ in 0..500 {
        nodes = server.as_operator("GET", "/v1/nodes").await.expect(200);
        if nodes["items"][0]["shards"].as_array().is_some_and(|shards| shards.len() == 64) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let [node] = nodes["items"].as_array().unwrap().as_slice() else { panic!("{nodes}") };
    assert_eq!(node["id"], server.engine.node().to_string());
    assert_eq!((&node["here"], &node["alive"]), (&json!(true), &json!(true)));
    assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(node["shards"][63], json!({"shard": 63, "epoch": 1}));
    assert!(node["seen_at"].is_string() && node["catalog_version"].as_u64() > Some(0), "{node}");
}

#[tokio::test]
async fn the_configuration_is_for_operators() {
    let entry = ConfigEntry {
        key: "engine.slots".to_owned(),
        value: json!(64),
        source: "default".to_owned(),
    };
    let options = Options { config: [entry].into(), ..Options::default() };
    let server = Server::start_as(ServeLimits::default(), options).await;
    let config = server.as_operator("GET", "/v1/config").await.expect(200);
    let wanted = json!({"items": [{"key": "engine.slots", "value": 64, "source": "default"}]});
    assert_eq!(config, wanted);
    server.as_acme("GET", "/v1/config").await.expect_problem(403, "forbidden");
}

/// Knows one endpoint, one that was altered, and one that nobody can tell of.
struct Mailboxes;

impl PushDelivery for Mailboxes {
    fn limits(&self) -> PushLimits {
        PushLimits::default()
    }

    fn open(&self, endpoint: &str) -> Opening {
        let (agent, channel) = (AgentId::from_random(1), ChannelId::from_random(2));
        let found = match endpoint {
            "https://push.test/known" => Ok(Endpoint { agent, channel, key: None }),
            "https://push.test/dropped" => {
                Ok(Endpoint { agent: AgentId::from_random(9), channel, key: None })
            }
            "https://push.test/altered" => Err(PushProblem::Altered),
            "https://push.test/away" => Err(PushProblem::Unavailable("10.0.0.7".to_owned())),
            _ => Err(PushProblem::NotOurs),
        };
        Box::pin(std::future::ready(found))
    }

    fn look_up(&self, _: Endpoint) -> Looking {
        Box::pin(std::future::ready(Ok(())))
    }

    fn deliver(&self, _: PushMessage) -> Delivering {
        Box::pin(std::future::ready(PushOutcome::Kept))
    }
}

#[tokio::test]
async fn agents_are_found_and_counted_and_nothing_of_their_messages_is_told() {
    let clock: Arc<dyn Clock> = Arc::new(Wall);
    let now = clock.now();
    let store = Arc::new(ModelStore::new(clock));
    let agent = AgentId::from_random(1);
    let birth = Some(Birth { node: "http://a.test".to_owned(), connected_at: now });
    let channels =
        [(ChannelId::from_random(2), None), (ChannelId::from_random(3), Some(KeyHash([0xab; 32])))];
    for (channel, key) in channels {
        let register = Register { agent, channel, key, at: now, birth: birth.clone() };
        store.register_channels(vec![register]).await.unwrap();
    }
    let message = PushMessage {
        agent,
        channel: ChannelId::from_random(2),
        id: MessageId::from_random(5),
        topic: None,
        ttl: 600,
        received_at: now,
        headers: None,
        body: Some(Bytes::from_static(b"secret words")),
    };
    store.store_messages(vec![message]).await.unwrap();
    let sight = PushSight {
        store: Arc::clone(&store) as Arc<dyn PushStore>,
        mailboxes: Arc::new(Mailboxes),
        here: Arc::new(|| Some(("http://b.test".to_owned(), 4))),
    };
    let options = Options { push: Some(sight), ..Options::default() };
    let server = Server::start_as(ServeLimits::default(), options).await;
    let overview = server.as_operator("GET", "/v1/push").await.expect(200);
    let wanted = json!({
        "enabled": true, "agents": 1, "messages": 1, "more": false,
        "nodes": [
            {"node": "http://a.test", "here": false, "agents": 1},
            {"node": "http://b.test", "here": true, "agents": 0, "sockets": 4},
        ],
    });
    assert_eq!(overview, wanted);

    let path = format!("/v1/push/agents/{agent}");
    let reply = server.as_operator("GET", &path).await;
    let shown = reply.expect(200);
    assert_eq!((&shown["node"], &shown["waiting"]), (&json!("http://a.test"), &json!(1)));
    let restricted: Vec<&Value> =
        shown["channels"].as_array().unwrap().iter().map(|own| &own["restricted"]).collect();
    assert_eq!((restricted.len(), shown["channel_count"].as_u64()), (2, Some(2)));
    assert!(restricted.contains(&&json!(true)) && restricted.contains(&&json!(false)));
    assert!(!reply.body.contains("secret words") && !reply.body.contains("abab"), "{}", reply.body);
    let clear = ClearNode { agent, node: "http://a.test".to_owned(), connected_at: now };
    store.clear_nodes(vec![clear]).await.unwrap();

    let find = async |endpoint: &str| {
        let find = server.as_operator("POST", "/v1/push/agents/find");
        find.json(json!({"endpoint": endpoint})).await
    };
    let found = find("https://push.test/known").await.expect(200);
    assert_eq!(found["uaid"], agent.to_string());
    assert_eq!(found["channel"], ChannelId::from_random(2).to_string());
    assert!(found.get("node").is_none(), "it is away now: {found}");
    find("https://push.test/dropped").await.expect_problem(404, "not_found");
    for endpoint in ["https://push.test/altered", "https://elsewhere.example/"] {
        let problem = find(endpoint).await.expect_problem(422, "invalid_request");
        assert_eq!(problem["field"], "endpoint");
    }
    let away = find("https://push.test/away").await;
    away.expect_problem(503, "unavailable");
    assert!(!away.body.contains("10.0.0.7"), "{}", away.body);
    for id in [AgentId::from_random(9).to_string(), "null".to_owned()] {
        let path = format!("/v1/push/agents/{id}");
        server.as_operator("GET", &path).await.expect_problem(404, "not_found");
    }
}

#[tokio::test]
async fn without_web_push_its_overview_says_so() {
    let server = Server::start().await;
    let overview = server.as_operator("GET", "/v1/push").await.expect(200);
    assert_eq!(overview["enabled"], false);
    let path = format!("/v1/push/agents/{}", AgentId::from_random(1));
    let problem = server.as_operator("GET", &path).await.expect_problem(404, "not_found");
    assert!(problem["detail"].as_str().unwrap().contains("push.enabled"), "{problem}");
}

#[tokio::test]
async fn the_settings_of_notificaties_are_shown_and_changed() {
    let settings: posthorn_api::Settings = Arc::new(|_, change| {
        let retries =
            change.and_then(|change| change.get("notification_delivery_max_retries").cloned());
        let answer = match retries.as_ref().and_then(Value::as_u64) {
            Some(1_000..) => {
                Err("notification_delivery_max_retries must be a whole number up to 999".to_owned())
            }
            retries => Ok(json!({
                "notification_delivery_max_retries": retries.unwrap_or(7),
                "notification_delivery_retry_backoff": 25.0,
                "notification_delivery_retry_backoff_max": 52_000.0,
                "notification_delivery_base_factor": 4.0,
            })),
        };
        Box::pin(std::future::ready(answer))
    });
    let notificaties = Notificaties {
        tenant: TenantId::DEFAULT,
        setup: Arc::new(|_, _| Box::pin(std::future::ready(Ok(json!({}))))),
        resend: Arc::new(|_, _| Err(Vec::new())),
        settings,
    };
    let options = Options { notificaties: Some(notificaties), ..Options::default() };
    let server = Server::start_as(ServeLimits::default(), options).await;
    let path = "/v1/notificaties/settings";
    let shown = server.as_operator("GET", path).await.expect(200);
    assert_eq!(shown["notification_delivery_max_retries"], 7);
    let change = |retries: u64| {
        let body = json!({"notification_delivery_max_retries": retries});
        server.as_operator("PATCH", path).json(body)
    };
    assert_eq!(change(3).await.expect(200)["notification_delivery_max_retries"], 3);
    let problem = change(1_000).await.expect_problem(422, "invalid_request");
    assert_eq!(problem["field"], "notification_delivery_max_retries");
    assert_eq!(problem["detail"], "must be a whole number up to 999");
}
