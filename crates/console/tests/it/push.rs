//! The pages of Web Push: what there is, and one agent.

use std::sync::Arc;

use bytes::Bytes;
use posthorn_api::PushSight;
use posthorn_conformance::model::ModelStore;
use posthorn_domain::push::KeyHash;
use posthorn_domain::{AgentId, ChannelId, Clock, MessageId, PushMessage};
use posthorn_engine::{
    Delivering, Looking, Opening, PushDelivery, PushLimits, PushOutcome, PushProblem,
};
use posthorn_sealing::endpoint_token::Endpoint;
use posthorn_store::PushStore;
use posthorn_store::push::{Birth, Register};
use posthorn_testkit::clock::Wall;

use crate::harness::{MARKUP, Site};
use crate::looking::check_page;

const ENDPOINT: &str = "https://push.test/wpush/v2/secret-of-a-sender";
const BODY: &str = "what the message says";

/// Knows one endpoint.
struct Mailboxes(AgentId, ChannelId);

impl PushDelivery for Mailboxes {
    fn limits(&self) -> PushLimits {
        PushLimits::default()
    }

    fn open(&self, endpoint: &str) -> Opening {
        let known = (endpoint == ENDPOINT).then_some(Endpoint {
            agent: self.0,
            channel: self.1,
            key: None,
        });
        Box::pin(std::future::ready(known.ok_or(PushProblem::NotOurs)))
    }

    fn look_up(&self, _: Endpoint) -> Looking {
        Box::pin(std::future::ready(Ok(())))
    }

    fn deliver(&self, _: PushMessage) -> Delivering {
        Box::pin(std::future::ready(PushOutcome::Kept))
    }
}

/// An agent with two channels and two messages that wait, on a node with markup for a name.
async fn open() -> (Site, AgentId, ChannelId) {
    let clock: Arc<dyn Clock> = Arc::new(Wall);
    let now = clock.now();
    let store = Arc::new(ModelStore::new(clock));
    let (agent, channel) = (AgentId::from_random(1), ChannelId::from_random(2));
    let birth = Some(Birth { node: MARKUP.to_owned(), connected_at: now });
    for (channel, key) in [(channel, None), (ChannelId::from_random(3), Some(KeyHash([0xab; 32])))]
    {
        let register = Register { agent, channel, key, at: now, birth: birth.clone() };
        store.register_channels(vec![register]).await.unwrap();
    }
    for id in 0..2 {
        let message = PushMessage {
            agent,
            channel,
            id: MessageId::from_random(id),
            topic: None,
            ttl: 600,
            received_at: now,
            headers: None,
            body: Some(Bytes::from_static(BODY.as_bytes())),
        };
        store.store_messages(vec![message]).await.unwrap();
    }
    let sight = PushSight {
        store,
        mailboxes: Arc::new(Mailboxes(agent, channel)),
        here: Arc::new(|| Some((MARKUP.to_owned(), 7))),
    };
    let options = posthorn_api::Options { push: Some(sight), ..posthorn_api::Options::default() };
    (Site::open_with(options).await, agent, channel)
}

#[tokio::test]
async fn where_web_push_is_off_the_page_says_how_to_turn_it_on() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let shown = operator.get("/console/push").await;
    check_page("push", &shown);
    assert!(shown.text.contains("Web Push is off") && shown.text.contains("enabled: true"));
    assert!(!shown.text.contains("Endpoint or UAID"), "there is nothing to look up");
    operator.get(&format!("/console/push/agents/{}", AgentId::from_random(1))).await.expect(404);
}

#[tokio::test]
async fn agents_and_messages_are_counted_by_node() {
    let (site, ..) = open().await;
    let shown = site.operator().await.get("/console/push").await;
    check_page("push", &shown);
    let html = shown.text;
    for text in [
        "<dt>Connected agents</dt><dd>1</dd>",
        "<dt>Messages stored</dt><dd>2</dd>",
        "this node",
        "<td class=\"number\">7</td>",
        "&#60;img src=x",
    ] {
        assert!(html.contains(text), "{text}: {html}");
    }
    assert!(!html.contains("<img"), "{html}");
}

#[tokio::test]
async fn an_agent_is_found_by_its_uaid_and_by_an_endpoint_which_stand_in_no_address() {
    let (site, agent, channel) = open().await;
    let operator = site.operator().await;
    let place = operator.submit("/console/push/find", &[("find", ENDPOINT)]).await.leads();
    assert_eq!(place, format!("/console/push/agents/{agent}?channel={channel}"));
    let shown = operator.get(&place).await;
    check_page("agent", &shown);
    let html = &shown.text;
    for text in [
        "connected",
        "<dt>Messages waiting</dt><dd>2</dd>",
        "the endpoint you looked for",
        "the sender of one key",
    ] {
        assert!(html.contains(text), "{text}: {html}");
    }
    // Never what a message says, nor a key.
    assert!(!html.contains(BODY) && !html.contains("abab") && !html.contains("<img"), "{html}");
    let uaid = agent.to_string().to_uppercase();
    let place = operator.submit("/console/push/find", &[("find", &uaid)]).await.leads();
    assert_eq!(place, format!("/console/push/agents/{agent}"));
    let gone = format!("/console/push/agents/{agent}?channel={}", ChannelId::from_random(9));
    let html = operator.get(&gone).await.expect(200);
    assert!(html.contains("has no channel"), "{html}");

    for (typed, said) in [
        ("", "type an endpoint"),
        ("https://elsewhere.example/x", "is not an endpoint of this server"),
        (&AgentId::from_random(77).to_string(), "no such agent"),
        (MARKUP, "is not an endpoint of this server"),
    ] {
        let html = operator.submit("/console/push/find", &[("find", typed)]).await.expect(400);
        assert!(html.contains(said) && html.contains("id=\"w-find\"") && !html.contains("<img"));
    }
    let acme = site.of_acme(&[posthorn_domain::Scope::Read, posthorn_domain::Scope::Manage]).await;
    acme.submit("/console/push/find", &[("find", ENDPOINT)]).await.expect(403);
}
