//! Agents that come, go and move while somebody posts for them. Whatever the order, a message that
//! was accepted arrives, and without a reconnect when the agent is connected.

use std::sync::Arc;

use posthorn_agent::{Agent, Event};
use posthorn_domain::Span;
use posthorn_push::session;
use posthorn_push_node::Options;

use crate::live::gated::{Gated, Verb};
use crate::live::house::{
    Call, House, Wires, closed, notification, options, settled, silence, take, text,
};

struct Street {
    store: Arc<Gated>,
    wires: Wires,
    one: House,
    two: House,
}

/// Two nodes with one store.
async fn street() -> Street {
    let (store, wires) = (Gated::new(), Wires::default());
    let one = House::start(Arc::clone(&store) as _, &wires, options("n1")).await;
    let two = House::start(Arc::clone(&store) as _, &wires, options("n2")).await;
    Street { store, wires, one, two }
}

/// Exactly this arrives, and once.
async fn gets(agent: &mut Agent, texts: &[&str]) {
    assert_eq!(take(agent, texts.len()).await, texts);
    silence(agent).await;
}

#[tokio::test]
async fn an_agent_that_connects_and_reads_before_a_message_is_stored_is_told_of_it() {
    // The agent comes back to the node that stores, or to another.
    for same_node in [true, false] {
        let Street { store, one, two, .. } = street().await;
        let (agent, id, endpoint) = one.registered().await;
        agent.close().await.expect("closed");
        store.close(Verb::Store);
        let back = async {
            store.arrived(Verb::Store, 1).await;
            let to = if same_node { &one } else { &two };
            let (mut agent, _) = to.agent(Some(id)).await;
            settled(&mut agent).await;
            store.open(Verb::Store);
            agent
        };
        let (answer, mut agent) = tokio::join!(one.post(&endpoint, "late"), back);
        assert_eq!(answer.status, 201, "{answer:?}");
        gets(&mut agent, &["late"]).await;
    }
}

#[tokio::test]
async fn an_agent_that_reconnects_between_a_failed_delivery_and_the_store_is_told() {
    for cut in [true, false] {
        for same_node in [true, false] {
            let Street { store, wires, one, two } = street().await;
            let (agent, id, endpoint) = two.registered().await;
            if cut {
                // The node is there and has the agent, but nobody reaches it.
                wires.cut("n2");
            } else {
                // The agent is gone and the record does not know.
                store.gates.break_down(Verb::Clear);
                agent.close().await.expect("closed");
                store.arrived(Verb::Clear, 1).await;
                store.open(Verb::Clear);
            }
            assert_eq!(store.node_of(id).await.as_deref(), Some("n2"));
            store.close(Verb::Store);
            let back = async {
                store.arrived(Verb::Store, 1).await;
                // By now it is known not to be there.
                assert_eq!(store.node_of(id).await, None);
                let to = if same_node && !cut { &two } else { &one };
                let (mut agent, _) = to.agent(Some(id)).await;
                settled(&mut agent).await;
                store.open(Verb::Store);
                agent
            };
            let (answer, mut agent) = tokio::join!(one.post(&endpoint, "late"), back);
            assert_eq!(answer.status, 201, "{answer:?}");
            gets(&mut agent, &["late"]).await;
        }
    }
}

#[tokio::test]
async fn a_stale_connection_is_cleared_only_as_long_as_it_is_the_one_on_record() {
    for same_node in [true, false] {
        let Street { store, wires, one, two } = street().await;
        let (old, id, endpoint) = two.registered().await;
        wires.cut("n2");
        store.close(Verb::Clear);
        let moved = async {
            // The endpoint found nobody at the node and is about to clear it.
            store.arrived(Verb::Clear, 1).await;
            let to = if same_node { &two } else { &one };
            let (mut agent, _) = to.agent(Some(id)).await;
            settled(&mut agent).await;
            store.open(Verb::Clear);
            agent
        };
        let (answer, mut agent) = tokio::join!(one.post(&endpoint, "moved"), moved);
        assert_eq!(answer.status, 201, "{answer:?}");
        if same_node {
            // It is there, but cannot be told: it is taken off the record, and the message is kept.
            assert_eq!(store.texts(id).await, ["moved"]);
            agent.close().await.expect("closed");
            agent = one.agent(Some(id)).await.0;
        }
        assert_eq!(store.node_of(id).await.as_deref(), Some("n1"));
        gets(&mut agent, &["moved"]).await;
        drop(old);
    }
}

#[tokio::test]
async fn of_two_connections_to_one_node_the_newer_wins_and_gets_what_the_older_had() {
    // The older's messages are stored before or after the newer looked for the first time.
    for late in [false, true] {
        let Street { store, one, .. } = street().await;
        let (mut old, id, endpoint) = one.registered().await;
        for n in ["1", "2", "3", "4"] {
            assert_eq!(one.post(&endpoint, n).await.status, 201);
        }
        let first = notification(&mut old).await;
        old.ack(&[first.ack()]).await.expect("sent");
        for n in ["2", "3", "4"] {
            assert_eq!(text(&notification(&mut old).await), n);
        }
        // The ack was read before this is answered.
        settled(&mut old).await;
        if late {
            store.close(Verb::Store);
        }
        let (mut new, same) = one.agent(Some(id)).await;
        assert_eq!(same, id);
        if late {
            settled(&mut new).await;
            store.open(Verb::Store);
        }
        assert_eq!(closed(&mut old).await, (Some(1011), "SM".to_owned()));
        gets(&mut new, &["2", "3", "4"]).await;
        assert_eq!(store.node_of(id).await.as_deref(), Some("n1"));
        assert_eq!(one.post(&endpoint, "5").await.status, 201);
        gets(&mut new, &["5"]).await;
        new.close().await.expect("closed");
        silence(&mut one.agent(Some(id)).await.0).await;
    }
}

#[tokio::test]
async fn what_an_older_connection_to_another_node_had_comes_when_that_one_ends() {
    let Street { store, wires, one, two } = street().await;
    let (mut old, id, endpoint) = one.registered().await;
    for n in ["1", "2", "3"] {
        assert_eq!(two.post(&endpoint, n).await.status, 201);
        assert_eq!(text(&notification(&mut old).await), n);
    }
    let (mut new, _) = two.agent(Some(id)).await;
    assert_eq!(store.node_of(id).await.as_deref(), Some("n2"));
    assert_eq!(one.post(&endpoint, "4").await.status, 201);
    gets(&mut new, &["4"]).await;
    wires.gates.close(Call::Hint);
    old.close().await.expect("closed");
    // The old node stored what it had and now tells the new one.
    wires.gates.arrived(Call::Hint, 1).await;
    assert_eq!(store.texts(id).await, ["1", "2", "3"]);
    wires.gates.open(Call::Hint);
    gets(&mut new, &["1", "2", "3"]).await;
    assert_eq!(store.node_of(id).await.as_deref(), Some("n2"));
}

#[tokio::test]
async fn a_post_while_an_agent_is_being_written_down_arrives_without_a_reconnect() {
    // Before the record names the node; and after, while the session does not know it yet.
    for gate in [Verb::Connect, Verb::Count] {
        let (store, wires) = (Gated::new(), Wires::default());
        let counting = session::Options::default();
        let options = Options { session: counting, ..options("n1") };
        let house = House::start(Arc::clone(&store) as _, &wires, options).await;
        let (agent, id, endpoint) = house.registered().await;
        agent.close().await.expect("closed");
        store.close(gate);
        let post = async {
            store.arrived(gate, 1).await;
            let named = store.node_of(id).await;
            assert_eq!(named.is_some(), gate == Verb::Count, "{named:?}");
            let answer = house.post(&endpoint, "early").await;
            store.open(gate);
            answer
        };
        let ((mut agent, _), answer) = tokio::join!(house.agent(Some(id)), post);
        assert_eq!(answer.status, 201, "{answer:?}");
        gets(&mut agent, &["early"]).await;
    }
}

#[tokio::test]
async fn a_post_while_the_store_is_being_read_arrives_without_a_reconnect() {
    for gate in [Verb::Read, Verb::ReadAnswer] {
        // With room for one, the place belongs to the read; with more, the message goes straight.
        for window in [1, 128] {
            let (store, wires) = (Gated::new(), Wires::default());
            let mut options = options("n1");
            options.session.unacked_window = window;
            let house = House::start(Arc::clone(&store) as _, &wires, options).await;
            let (agent, id, endpoint) = house.registered().await;
            agent.close().await.expect("closed");
            store.close(gate);
            let (mut agent, _) = house.agent(Some(id)).await;
            store.arrived(gate, 1).await;
            assert_eq!(house.post(&endpoint, "meanwhile").await.status, 201);
            assert_eq!(store.texts(id).await.len(), usize::from(window == 1));
            store.open(gate);
            gets(&mut agent, &["meanwhile"]).await;
        }
    }
}

/// Two nodes, the second of which says again and again who is there.
async fn restless() -> Street {
    let (store, wires) = (Gated::new(), Wires::default());
    let mut restless = options("n2");
    restless.session.ping_interval = Span::from_millis(200);
    restless.session.renew_interval = Span::from_millis(100);
    let one = House::start(Arc::clone(&store) as _, &wires, options("n1")).await;
    let two = House::start(Arc::clone(&store) as _, &wires, restless).await;
    Street { store, wires, one, two }
}

#[tokio::test]
async fn a_node_that_could_not_be_told_finds_out_by_itself() {
    let Street { wires, one, two, .. } = restless().await;
    let (mut old, id, endpoint) = one.registered().await;
    assert_eq!(one.post(&endpoint, "left behind").await.status, 201);
    notification(&mut old).await;
    let (mut new, _) = two.agent(Some(id)).await;
    wires.cut("n2");
    // What it has is stored, and nobody can be told; nor of what is posted then.
    old.close().await.expect("closed");
    assert_eq!(take(&mut new, 1).await, ["left behind"]);
    assert_eq!(one.post(&endpoint, "posted").await.status, 201);
    assert_eq!(take(&mut new, 1).await, ["posted"]);
}

#[tokio::test]
async fn a_message_whose_node_was_not_heard_is_stored_too_and_comes_once() {
    let Street { store, wires, one, two } = restless().await;
    let (mut agent, id, endpoint) = two.registered().await;
    wires.gates.break_down(Call::Push);
    assert_eq!(one.post(&endpoint, "doubled").await.status, 201);
    let got = notification(&mut agent).await;
    assert_eq!(text(&got), "doubled");
    assert_eq!(store.texts(id).await, ["doubled"]);
    // The node finds itself off the record, and in the store what it has sent already.
    store.open(Verb::Read);
    wires.gates.open(Call::Push);
    let heard = async {
        loop {
            tokio::select! {
                () = store.arrived(Verb::Read, 1) => return,
                event = agent.next() => assert!(matches!(event, Ok(Event::Ping)), "{event:?}"),
            }
        }
    };
    heard.await;
    settled(&mut agent).await;
    assert_eq!(store.node_of(id).await.as_deref(), Some("n2"));
    agent.ack(&[got.ack()]).await.expect("sent");
    store.holds(id, &[]).await;
    assert_eq!(one.post(&endpoint, "next").await.status, 201);
    assert_eq!(take(&mut agent, 1).await, ["next"]);
}
