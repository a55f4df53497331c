//! What is acknowledged, what is too much, and what happens then.

use std::sync::Arc;

use posthorn_agent::{Agent, Error, Options as AgentOptions};
use posthorn_domain::{AgentId, ChannelId};
use posthorn_push::session::{AckMode, Overflow};
use posthorn_push_node::Options;

use crate::live::gated::Gated;
use crate::live::house::{
    House, Wires, closed, notification, options, settled, silence, take, text,
};

async fn house(change: impl FnOnce(&mut Options)) -> (Arc<Gated>, House) {
    let store = Gated::new();
    let mut options = options("n1");
    change(&mut options);
    let house = House::start(Arc::clone(&store) as _, &Wires::default(), options).await;
    (store, house)
}

/// An agent that is away, with so many messages.
async fn away(house: &House, many: usize) -> (AgentId, String) {
    let (agent, id, endpoint) = house.registered().await;
    agent.close().await.expect("closed");
    for n in 0..many {
        assert_eq!(house.post(&endpoint, &n.to_string()).await.status, 201);
    }
    (id, endpoint)
}

fn numbers(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|n| n.to_string()).collect()
}

#[tokio::test]
async fn an_acknowledged_message_returns_only_where_batches_are_acknowledged() {
    for (ack, returned) in [(AckMode::Each, numbers(1, 3)), (AckMode::Batch, numbers(0, 3))] {
        let (store, house) = house(|options| options.session.ack = ack).await;
        let (id, _) = away(&house, 3).await;
        let (mut agent, _) = house.agent(Some(id)).await;
        let first = notification(&mut agent).await;
        agent.ack(&[first.ack()]).await.expect("sent");
        for n in ["1", "2"] {
            assert_eq!(text(&notification(&mut agent).await), n);
        }
        agent.close().await.expect("closed");
        let (mut agent, _) = house.agent(Some(id)).await;
        assert_eq!(take(&mut agent, returned.len()).await, returned, "{ack:?}");
        silence(&mut agent).await;
        settled(&mut agent).await;
        assert!(store.texts(id).await.is_empty(), "{ack:?}");
    }
}

#[tokio::test]
async fn one_ack_may_name_many_messages_and_any_that_are_not_there() {
    let (store, house) = house(|_| {}).await;
    let (id, _) = away(&house, 5).await;
    let (mut agent, _) = house.agent(Some(id)).await;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(notification(&mut agent).await);
    }
    let mut acks: Vec<_> = all.iter().map(|got| got.ack()).collect();
    acks.extend(all.iter().map(|got| got.ack()));
    for ack in &mut acks {
        // Only the version counts.
        ack.channel = ChannelId::from_random(7);
        ack.code = Some(102);
    }
    agent.ack(&acks).await.expect("sent");
    settled(&mut agent).await;
    assert!(store.texts(id).await.is_empty());
}

#[tokio::test]
async fn an_agent_with_too_many_messages_starts_anew() {
    let (_, house) = house(|options| {
        options.session.stored_max = 20;
        options.session.on_overflow = Overflow::ResetAgent;
    })
    .await;
    // As many as are allowed are all right.
    let (id, endpoint) = away(&house, 20).await;
    let (mut agent, _) = house.agent(Some(id)).await;
    assert_eq!(take(&mut agent, 20).await, numbers(0, 20));
    // More that are stored while it is there are no backlog.
    assert_eq!(house.post(&endpoint, "direct").await.status, 201);
    assert_eq!(take(&mut agent, 1).await, ["direct"]);
    silence(&mut agent).await;

    let (id, endpoint) = away(&house, 21).await;
    let (mut agent, same) = house.agent(Some(id)).await;
    assert_eq!(same, id);
    assert_eq!(take(&mut agent, 20).await, numbers(0, 20));
    assert_eq!(closed(&mut agent).await, (Some(1000), "SM".to_owned()));
    let answer = house.post(&endpoint, "x").await;
    assert_eq!(answer.status, 410, "{answer:?}");
    assert!(answer.body.contains("\"errno\":106"), "{answer:?}");
    let (mut agent, other) = house.agent(Some(id)).await;
    assert_ne!(other, id);
    silence(&mut agent).await;
}

#[tokio::test]
async fn or_its_oldest_messages_are_dropped() {
    let (_, house) = house(|options| {
        options.session.stored_max = 20;
        options.session.on_overflow = Overflow::DropOldest;
    })
    .await;
    let (id, endpoint) = away(&house, 33).await;
    let (mut agent, same) = house.agent(Some(id)).await;
    assert_eq!(same, id);
    assert_eq!(take(&mut agent, 20).await, numbers(13, 33));
    assert_eq!(house.post(&endpoint, "next").await.status, 201);
    assert_eq!(take(&mut agent, 1).await, ["next"]);
    silence(&mut agent).await;
}

#[tokio::test]
async fn an_agent_has_only_so_many_channels() {
    let (_, house) = house(|options| options.channels_max = 3).await;
    let (mut agent, id) = house.agent(None).await;
    let channels: Vec<_> = (0..4).map(|_| ChannelId::from_random(rand::random())).collect();
    for channel in &channels[..3] {
        agent.register(*channel, None).await.expect("an endpoint");
    }
    let refused = |answer: Result<String, Error>| match answer {
        Err(Error::Refused { status, .. }) => status == 500,
        _ => false,
    };
    assert!(refused(agent.register(channels[3], None).await));
    // What it has it may register again, also after it came back.
    agent.register(channels[0], None).await.expect("another endpoint");
    agent.close().await.expect("closed");
    let (mut agent, _) = house.agent(Some(id)).await;
    assert!(refused(agent.register(channels[3], None).await));
    agent.register(channels[1], None).await.expect("another endpoint");
    agent.unregister(channels[1]).await.expect("an answer");
    agent.register(channels[3], None).await.expect("an endpoint");
    assert!(refused(agent.register(channels[1], None).await));
}

#[tokio::test]
async fn connections_that_come_too_fast_wait_and_then_are_refused() {
    // The quarter of a second that may come at once and the three that may wait are four in all.
    let (_, house) = house(|options| options.opens_per_second = 1).await;
    let patient = AgentOptions::default();
    let all = (0..12).map(|_| Agent::connect(&house.url, &patient));
    let all = futures_util::future::join_all(all).await;
    let refused = all.iter().filter(|agent| matches!(agent, Err(Error::NoSocket(503)))).count();
    let came = all.iter().filter(|agent| agent.is_ok()).count();
    assert_eq!(came + refused, 12);
    assert!((1..12).contains(&came), "{came} came");
}
