//! An event that is published once reaches webhooks and agents, whether those are awake or asleep.

use posthorn_agent::Agent;
use posthorn_domain::{AgentId, ChannelId};
use posthorn_sealing::web_push::ReceiverKeys;
use posthorn_testkit::program::{Server, id_of};
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::push_world::{PushNode, SPLIT, Shape, Town, channel, notification, silence};

/// A call of the API with the operator's key.
async fn api(node: &PushNode, method: &str, path: &str, body: Value, status: u16) -> Value {
    let key = format!("Bearer {}", node.server().key);
    let headers = [("authorization", key.as_str()), ("content-type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = node.sender().await.ask(method, path, &headers, body).await;
    serde_json::from_str(&answer.expect("an answer").with(status).body).expect("JSON")
}

/// An agent with a channel that is for our tenant's key, and a subscription that names it.
struct Subscriber {
    agent: Agent,
    id: AgentId,
    channel: ChannelId,
    keys: Option<ReceiverKeys>,
    subscription: String,
}

impl Subscriber {
    async fn new(town: &Town, keys: Option<ReceiverKeys>) -> Self {
        let api_node = town.senders();
        let key = api(api_node, "GET", "/v1/push/key", Value::Null, 200).await;
        let key = key["public_key"].as_str().expect("a key").to_owned();
        let (mut agent, id) = town.agents().agent(None).await;
        let channel = channel();
        let endpoint = agent.register(channel, Some(&key)).await.expect("an endpoint");
        let mut destination = json!({"type": "push", "endpoint": endpoint, "ttl": "1h"});
        if let Some(keys) = &keys {
            let auth = keys.receiver().auth_text();
            destination["keys"] = json!({"p256dh": keys.receiver().key().to_text(),
                "auth": auth.expose_str().expect("text")});
        }
        let made =
            json!({"destination": destination, "filter": {"any_of": [{"topics": ["orders"]}]}});
        let made = api(api_node, "POST", "/v1/subscriptions", made, 201).await;
        assert_eq!(made["destination"]["encrypted"], keys.is_some(), "{made}");
        assert!(made.get("signing_secret").is_none_or(Value::is_null), "{made}");
        let subscription = id_of(&made);
        Self { agent, id, channel, keys, subscription }
    }

    /// The next event, opened and acknowledged.
    async fn event(&mut self) -> Value {
        let got = notification(&mut self.agent).await;
        assert_eq!(got.channel, self.channel);
        let text = match &self.keys {
            Some(keys) => got.open(keys).expect("encrypted for this agent"),
            None => got.data.clone().expect("a body"),
        };
        self.agent.ack(&[got.ack()]).await.expect("sent");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// These events come, each once; the subscription asked for no order.
    async fn read(&mut self, ids: &[String]) {
        let mut came = Vec::new();
        for _ in ids {
            came.push(id_of(&self.event().await));
        }
        came.sort_unstable();
        let mut wanted = ids.to_vec();
        wanted.sort_unstable();
        assert_eq!(came, wanted);
        silence(&mut self.agent).await;
    }
}

fn send(server: &Server, number: u32) -> String {
    let payload = format!("{{\"number\": {number}}}");
    let sent = server.ask(&["send", "orders", "order.created", &payload]);
    assert_eq!(sent["deliveries"], 3, "a webhook and two agents: {sent}");
    id_of(&sent)
}

async fn one_publish(shape: Shape) {
    let town = Town::start(shape, "");
    let server = town.senders().server();
    let (listener, _) = block_in_place(|| server.listen("--subscribe orders --json"));
    let mut secret = Subscriber::new(&town, Some(ReceiverKeys::generate())).await;
    let mut open = Subscriber::new(&town, None).await;
    let id = block_in_place(|| send(server, 1));
    for subscriber in [&mut secret, &mut open] {
        let event = subscriber.event().await;
        assert_eq!(event["id"], id.as_str());
        assert_eq!((&event["topic"], &event["type"]), (&json!("orders"), &json!("order.created")));
        assert_eq!(event["payload"], json!({"number": 1}));
    }
    block_in_place(|| {
        until("the webhook", || listener.stdout().contains(&id));
        // The same record for all of them.
        server.settles(&[("delivered", 3)]);
    });

    // Asleep, it gets everything when it wakes up.
    secret.agent.close().await.expect("closed");
    let ids: Vec<_> = (2..7).map(|number| block_in_place(|| send(server, number))).collect();
    open.read(&ids).await;
    block_in_place(|| {
        // For the engine it is done when the mailbox has it.
        server.settles(&[("delivered", 18)]);
    });
    secret.agent = town.agents().agent(Some(secret.id)).await.0;
    secret.read(&ids).await;

    // A channel that is gone disables the subscription, as a receiver that answers 410 does.
    secret.agent.unregister(secret.channel).await.expect("done");
    block_in_place(|| {
        send(server, 7);
        let shown = eventually("disabled", || {
            let shown = server.ask(&["subscriptions", "show", &secret.subscription]);
            (shown["status"] == "disabled").then_some(shown)
        });
        let reason = shown["status_reason"].as_str().expect("a reason");
        assert!(reason.contains("410"), "{reason}");
    });
    assert_eq!(open.event().await["payload"], json!({"number": 7}), "nobody else notices");
    drop(listener);
    town.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_publish_reaches_webhooks_and_agents_awake_or_asleep_on_sqlite() {
    one_publish(Shape::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_publish_reaches_webhooks_and_agents_awake_or_asleep_between_nodes() {
    one_publish(SPLIT).await;
}
