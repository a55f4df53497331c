//! Acknowledgements on their way to the store, and those who wait for them.

use std::sync::Arc;
use std::time::Duration;

use posthorn_agent::{Agent, Event};
use posthorn_domain::{AgentId, Span};
use posthorn_testkit::wait::PATIENCE;
use tokio::time::timeout;

use crate::live::gated::{Gated, Verb};
use crate::live::house::{House, QUIET, Wires, notification, options, silence, take, text};

/// An agent that is away, with so many messages.
async fn away(house: &House, many: usize) -> (AgentId, String) {
    let (agent, id, endpoint) = house.registered().await;
    agent.close().await.expect("closed");
    for n in 0..many {
        assert_eq!(house.post(&endpoint, &n.to_string()).await.status, 201);
    }
    (id, endpoint)
}

#[tokio::test]
async fn what_was_acknowledged_just_before_the_end_does_not_come_again() {
    for goodbye in [true, false] {
        let store = Gated::new();
        let house = House::start(Arc::clone(&store) as _, &Wires::default(), options("n1")).await;
        let (id, _) = away(&house, 30).await;
        let (mut agent, _) = house.agent(Some(id)).await;
        // One removal is under way and does not get anywhere; the others wait for it.
        store.close(Verb::Ack);
        assert_eq!(take(&mut agent, 30).await.len(), 30);
        store.arrived(Verb::Ack, 1).await;
        if goodbye {
            agent.close().await.expect("closed");
        } else {
            // The newer connection ends this one.
            drop(agent);
        }
        assert_eq!(store.texts(id).await.len(), 30);
        let waits = async {
            let mut back = std::pin::pin!(house.agent(Some(id)));
            assert!(timeout(QUIET, &mut back).await.is_err(), "it is greeted after they are gone");
            store.open(Verb::Ack);
            back.await.0
        };
        let mut agent = waits.await;
        if goodbye {
            silence(&mut agent).await;
            assert!(store.texts(id).await.is_empty());
        }
    }
}

/// If the node died now, what was acknowledged and not removed would come again. That must not be more
/// than the window.
#[tokio::test]
async fn acknowledgements_keep_the_next_messages_waiting_only_when_they_fill_the_window() {
    let store = Gated::new();
    let mut narrow = options("n1");
    narrow.session.unacked_window = 64;
    narrow.session.batch = 16;
    let house = House::start(Arc::clone(&store) as _, &Wires::default(), narrow).await;
    let (id, endpoint) = away(&house, 300).await;
    store.close(Verb::Ack);
    let (mut agent, _) = house.agent(Some(id)).await;
    let all: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    assert_eq!(take(&mut agent, 64).await, all[..64]);
    silence(&mut agent).await;
    assert_eq!(house.post(&endpoint, "direct").await.status, 201);
    assert_eq!(take(&mut agent, 1).await, ["direct"]);
    store.open(Verb::Ack);
    assert_eq!(take(&mut agent, 236).await, all[64..]);
    store.holds(id, &[]).await;
    silence(&mut agent).await;
}

/// Waits until a ping comes.
async fn pinged(agent: &mut Agent) {
    let ping = async { while !matches!(agent.next().await, Ok(Event::Ping)) {} };
    timeout(PATIENCE, ping).await.expect("a ping in time");
}

/// An ack of one agent is under way when another comes; the first one says again that it is here, or
/// comes back as well.
async fn ack_and_connect(comes_back: bool) {
    let store = Gated::new();
    let mut restless = options("n1");
    restless.session.ping_interval = Span::from_millis(300);
    restless.session.renew_interval = Span::from_millis(100);
    restless.session.pong_timeout = Span::from_secs(20);
    let house = House::start(Arc::clone(&store) as _, &Wires::default(), restless).await;
    let here = async |id: AgentId| {
        while !house.node.local().hint(id) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(away(&house, 0).await.0);
    }
    let (id, _) = away(&house, 1).await;
    let (mut busy, _) = house.agent(Some(id)).await;
    let got = notification(&mut busy).await;
    assert_eq!(text(&got), "0");
    // Two connects are held up, so that those after them share a batch.
    store.close(Verb::Connect);
    let (first, second) = (house.agent(Some(ids[0])), house.agent(Some(ids[1])));
    let third = async {
        store.arrived(Verb::Connect, 2).await;
        store.close(Verb::Ack);
        busy.ack(&[got.ack()]).await.expect("sent");
        store.arrived(Verb::Ack, 1).await;
        let mut back = None;
        if comes_back {
            busy.close().await.expect("closed");
            let mut hello = Box::pin(house.agent(Some(id)));
            tokio::select! {
                _ = &mut hello => panic!("greeted before its acks are kept"),
                () = here(id) => {}
            }
            back = Some(hello);
        } else {
            // With each ping the node says that it is here. The first may be from before.
            pinged(&mut busy).await;
            pinged(&mut busy).await;
        }
        let open = async {
            here(ids[2]).await;
            store.open(Verb::Connect);
        };
        tokio::join!(house.agent(Some(ids[2])), open);
        back
    };
    let all = async { tokio::join!(first, second, third).2 };
    let back = timeout(PATIENCE / 2, all).await.expect("all are greeted");
    store.open(Verb::Ack);
    if let Some(back) = back {
        timeout(PATIENCE, back).await.expect("greeted");
    }
    store.holds(id, &[]).await;
}

#[tokio::test]
async fn nobody_waits_for_the_acknowledgements_of_an_agent_that_is_here() {
    ack_and_connect(false).await;
}

#[tokio::test]
async fn nobody_else_waits_for_the_acknowledgements_of_an_agent_that_comes_back() {
    ack_and_connect(true).await;
}
