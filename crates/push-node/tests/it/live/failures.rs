//! The store fails for a while. Everybody is told in the way they know, and nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use posthorn_agent::{Agent, Error, Options as AgentOptions};
use posthorn_domain::{AgentId, ChannelId};
use posthorn_push::session::Overflow;
use posthorn_push_node::Options;

use crate::live::gated::{Gated, Verb};
use crate::live::house::{
    House, Wires, closed, location, notification, options, request, settled, silence, take, text,
};

async fn house(change: impl FnOnce(&mut Options)) -> (Arc<Gated>, House) {
    let store = Gated::new();
    let mut options = options("n1");
    change(&mut options);
    let house = House::start(Arc::clone(&store) as _, &Wires::default(), options).await;
    (store, house)
}

fn failed() -> (Option<u16>, String) {
    (Some(1011), "SM".to_owned())
}

/// An agent that is away, with one message.
async fn away(house: &House) -> (AgentId, String) {
    let (agent, id, endpoint) = house.registered().await;
    agent.close().await.expect("closed");
    assert_eq!(house.post(&endpoint, "waits").await.status, 201);
    (id, endpoint)
}

/// Everything works again, and the message is there.
async fn recovered(house: &House, id: AgentId) {
    let (mut agent, same) = house.agent(Some(id)).await;
    assert_eq!(same, id);
    assert_eq!(take(&mut agent, 1).await, ["waits"]);
    silence(&mut agent).await;
}

#[tokio::test]
async fn an_agent_that_cannot_be_written_down_is_not_greeted() {
    for verb in [Verb::Connect, Verb::Count] {
        let (store, house) = house(|options| options.session.stored_max = 150).await;
        let (id, _) = away(&house).await;
        store.gates.break_down(verb);
        let agent = Agent::connect(&house.url, &AgentOptions::default()).await;
        let mut agent = agent.expect("a socket");
        match agent.hello(Some(id), &[]).await {
            Err(Error::Closed(close)) => assert_eq!((close.code, close.reason), failed()),
            other => panic!("{verb:?}: {other:?}"),
        }
        store.open(verb);
        recovered(&house, id).await;
    }
}

#[tokio::test]
async fn an_agent_whose_messages_cannot_be_read_is_sent_back() {
    let (store, house) = house(|_| {}).await;
    let (id, _) = away(&house).await;
    store.gates.break_down(Verb::Read);
    let (mut agent, _) = house.agent(Some(id)).await;
    assert_eq!(closed(&mut agent).await, failed());
    store.open(Verb::Read);
    recovered(&house, id).await;
}

#[tokio::test]
async fn an_acknowledgement_that_cannot_be_kept_ends_the_connection_and_loses_nothing() {
    let (store, house) = house(|_| {}).await;
    let (id, endpoint) = away(&house).await;
    let (mut agent, _) = house.agent(Some(id)).await;
    let stored = notification(&mut agent).await;
    assert_eq!(house.post(&endpoint, "direct").await.status, 201);
    assert_eq!(text(&notification(&mut agent).await), "direct");
    store.gates.break_down(Verb::Ack);
    agent.ack(&[stored.ack()]).await.expect("sent");
    assert_eq!(closed(&mut agent).await, failed());
    store.open(Verb::Ack);
    store.holds(id, &["waits", "direct"]).await;
    let (mut agent, _) = house.agent(Some(id)).await;
    assert_eq!(take(&mut agent, 2).await, ["waits", "direct"]);
    silence(&mut agent).await;
}

#[tokio::test]
async fn an_overflow_that_cannot_be_dealt_with_ends_the_connection() {
    let ways = [(Overflow::ResetAgent, Verb::Drop), (Overflow::DropOldest, Verb::Trim)];
    for (overflow, verb) in ways {
        let (store, house) = house(|options| {
            options.session.stored_max = 1;
            options.session.on_overflow = overflow;
        })
        .await;
        let (id, endpoint) = away(&house).await;
        assert_eq!(house.post(&endpoint, "one too many").await.status, 201);
        store.gates.break_down(verb);
        let (mut agent, _) = house.agent(Some(id)).await;
        if overflow == Overflow::ResetAgent {
            take(&mut agent, 1).await;
        }
        assert_eq!(closed(&mut agent).await, failed(), "{verb:?}");
        store.open(verb);
        if overflow == Overflow::ResetAgent {
            store.holds(id, &["one too many"]).await;
            assert_eq!(house.post(&endpoint, "again too many").await.status, 201);
        }
        let (mut agent, same) = house.agent(Some(id)).await;
        assert_eq!(same, id);
        match overflow {
            Overflow::ResetAgent => {
                take(&mut agent, 1).await;
                assert_eq!(closed(&mut agent).await, (Some(1000), "SM".to_owned()));
            }
            Overflow::DropOldest => assert_eq!(take(&mut agent, 1).await, ["one too many"]),
        }
    }
}

#[tokio::test]
async fn registers_and_unregisters_that_fail_are_answered_so_and_may_be_tried_again() {
    let (store, house) = house(|_| {}).await;
    let (mut agent, _) = house.agent(None).await;
    let channel = ChannelId::from_random(rand::random());
    let status = |answer: Error| match answer {
        Error::Refused { status, .. } => status,
        other => panic!("{other:?}"),
    };
    store.gates.break_down(Verb::Register);
    assert_eq!(status(agent.register(channel, None).await.expect_err("no endpoint")), 500);
    store.open(Verb::Register);
    let endpoint = agent.register(channel, None).await.expect("an endpoint");
    assert_eq!(house.post(&endpoint, "works").await.status, 201);
    assert_eq!(take(&mut agent, 1).await, ["works"]);
    store.gates.break_down(Verb::Unregister);
    assert_eq!(status(agent.unregister(channel).await.expect_err("a refusal")), 500);
    assert_eq!(house.post(&endpoint, "still works").await.status, 201);
    assert_eq!(take(&mut agent, 1).await, ["still works"]);
    store.open(Verb::Unregister);
    agent.unregister(channel).await.expect("an answer");
    assert_eq!(house.post(&endpoint, "gone").await.status, 410);
}

#[tokio::test]
async fn senders_are_asked_to_come_back_later() {
    let (store, house) = house(|_| {}).await;
    let (id, endpoint) = away(&house).await;
    for (verb, errno) in [(Verb::Store, "201"), (Verb::Routes, "null")] {
        store.gates.break_down(verb);
        let answer = house.post(&endpoint, "refused").await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.header("retry-after"), Some("120"), "{answer:?}");
        assert!(answer.body.contains(&format!("\"errno\":{errno},")), "{answer:?}");
        store.open(verb);
    }
    let answer = house.post(&endpoint, "accepted").await;
    assert_eq!(answer.status, 201);
    store.gates.break_down(Verb::Delete);
    let delete = request(&house.url, "DELETE", location(&answer), "", b"").await;
    assert_eq!(delete.status, 503, "{delete:?}");
    store.open(Verb::Delete);
    let delete = request(&house.url, "DELETE", location(&answer), "", b"").await;
    assert_eq!(delete.status, 204, "{delete:?}");
    recovered(&house, id).await;
}

#[tokio::test]
async fn a_stored_message_is_accepted_even_if_nobody_can_be_told_of_it() {
    let (store, house) = house(|_| {}).await;
    let (id, endpoint) = away(&house).await;
    store.close(Verb::Store);
    let fail = async {
        store.arrived(Verb::Store, 1).await;
        store.gates.break_down(Verb::Routes);
        store.open(Verb::Store);
        store.arrived(Verb::Routes, 1).await;
    };
    let (answer, ()) = tokio::join!(house.post(&endpoint, "second"), fail);
    assert_eq!(answer.status, 201, "{answer:?}");
    store.open(Verb::Routes);
    let (mut agent, _) = house.agent(Some(id)).await;
    assert_eq!(take(&mut agent, 2).await, ["waits", "second"]);
}

#[tokio::test]
async fn what_a_connection_leaves_behind_is_stored_as_soon_as_the_store_works_again() {
    let (store, house) = house(|_| {}).await;
    let (mut agent, id, endpoint) = house.registered().await;
    assert_eq!(house.post(&endpoint, "waits").await.status, 201);
    notification(&mut agent).await;
    store.gates.break_down(Verb::Store);
    agent.close().await.expect("closed");
    store.arrived(Verb::Store, 1).await;
    let (mut agent, _) = house.agent(Some(id)).await;
    settled(&mut agent).await;
    store.open(Verb::Store);
    assert_eq!(take(&mut agent, 1).await, ["waits"]);
    silence(&mut agent).await;
}

#[tokio::test]
async fn when_nothing_more_may_be_stored_connected_agents_still_get_theirs() {
    let store = Gated::new();
    let accepting = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&accepting);
    let house =
        House::start_with(Arc::clone(&store) as _, &Wires::default(), options("n1"), |parts| {
            parts.accepting = Arc::new(move || asked.load(Ordering::SeqCst))
        })
        .await;
    let (mut agent, id, endpoint) = house.registered().await;
    accepting.store(false, Ordering::SeqCst);
    assert_eq!(house.post(&endpoint, "direct").await.status, 201);
    assert_eq!(take(&mut agent, 1).await, ["direct"]);
    // Nor are there new channels and agents.
    let refused = agent.register(ChannelId::from_random(rand::random()), None).await;
    assert!(matches!(refused, Err(Error::Refused { status: 500, .. })), "{refused:?}");
    agent.close().await.expect("closed");
    let answer = house.post(&endpoint, "no room").await;
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("\"errno\":201"), "{answer:?}");
    accepting.store(true, Ordering::SeqCst);
    assert_eq!(house.post(&endpoint, "waits").await.status, 201);
    recovered(&house, id).await;
}
