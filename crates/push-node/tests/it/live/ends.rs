//! Nodes that go away, with a goodbye and without, and what of their messages is left.

use std::sync::Arc;

use posthorn_agent::{Agent, Error};
use posthorn_push_node::{Direct, Options};
use posthorn_testkit::clock::StillClock;
use tokio::runtime::{Builder, Runtime};

use crate::live::gated::{Gated, Verb};
use crate::live::house::{
    Call, House, Wires, closed, notification, options, settled, silence, take, text,
};
use crate::live::wire::{HELLO, Raw};

/// A node that can be killed: nothing of it runs any more, and what only it had is gone.
struct Doomed {
    house: House,
    runtime: Runtime,
}

impl Doomed {
    async fn start(store: &Arc<Gated>, wires: &Wires, options: Options) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (store, wires) = (Arc::clone(store), wires.clone());
        let start = async move { House::start(store, &wires, options).await };
        let house = runtime.spawn(start).await.expect("a node");
        Self { house, runtime }
    }

    /// Kills it; its agent sees the connection break.
    async fn kill(self, agent: &mut Agent) {
        drop(self.house);
        self.runtime.shutdown_background();
        assert_eq!(closed(agent).await.0, None, "no goodbye");
    }
}

fn with(name: &str, direct: Direct) -> Options {
    Options { direct, ..options(name) }
}

#[tokio::test]
async fn a_message_on_its_way_to_a_node_that_dies_is_stored_and_comes_from_another() {
    let (store, wires) = (Gated::new(), Wires::default());
    let one = House::start(Arc::clone(&store) as _, &wires, options("n1")).await;
    let two = Doomed::start(&store, &wires, options("n2")).await;
    let (mut agent, id, endpoint) = two.house.registered().await;
    wires.gates.close(Call::Push);
    let death = async {
        wires.gates.arrived(Call::Push, 1).await;
        two.kill(&mut agent).await;
        wires.gates.open(Call::Push);
    };
    let (answer, ()) = tokio::join!(one.post(&endpoint, "survives"), death);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(store.node_of(id).await, None, "the dead node is off the record");
    let (mut agent, _) = one.agent(Some(id)).await;
    assert_eq!(take(&mut agent, 1).await, ["survives"]);
    silence(&mut agent).await;
}

#[tokio::test]
async fn a_message_that_was_stored_first_survives_the_death_of_the_node_that_sent_it() {
    let (store, wires) = (Gated::new(), Wires::default());
    let one = House::start(Arc::clone(&store) as _, &wires, with("n1", Direct::Stored)).await;
    let two = Doomed::start(&store, &wires, with("n2", Direct::Stored)).await;
    let (mut agent, id, endpoint) = two.house.registered().await;
    for post_at in [&one, &two.house] {
        assert_eq!(post_at.post(&endpoint, "kept").await.status, 201);
    }
    let versions = [notification(&mut agent).await.version, notification(&mut agent).await.version];
    two.kill(&mut agent).await;
    let (mut agent, _) = one.agent(Some(id)).await;
    for version in versions {
        let got = notification(&mut agent).await;
        assert_eq!((text(&got), got.version), ("kept".to_owned(), version));
    }
    silence(&mut agent).await;
}

#[tokio::test]
async fn only_what_a_dead_node_had_in_memory_is_lost() {
    let (store, wires) = (Gated::new(), Wires::default());
    let one = House::start(Arc::clone(&store) as _, &wires, with("n1", Direct::Memory)).await;
    let two = Doomed::start(&store, &wires, with("n2", Direct::Memory)).await;
    let (agent, id, endpoint) = two.house.registered().await;
    agent.close().await.expect("closed");
    assert_eq!(one.post(&endpoint, "stored").await.status, 201);
    let (mut agent, _) = two.house.agent(Some(id)).await;
    assert_eq!(text(&notification(&mut agent).await), "stored");
    assert_eq!(one.post(&endpoint, "in memory").await.status, 201);
    assert_eq!(text(&notification(&mut agent).await), "in memory");
    two.kill(&mut agent).await;
    let (mut agent, _) = one.agent(Some(id)).await;
    assert_eq!(take(&mut agent, 1).await, ["stored"]);
    silence(&mut agent).await;
}

#[tokio::test]
async fn a_node_that_goes_away_closes_its_sockets_and_leaves_nothing_behind() {
    let (store, wires) = (Gated::new(), Wires::default());
    let one = House::start(Arc::clone(&store) as _, &wires, options("n1")).await;
    let two = House::start(Arc::clone(&store) as _, &wires, options("n2")).await;
    let mut agents = Vec::new();
    for n in 0..12 {
        let (agent, id, endpoint) = two.registered().await;
        assert_eq!(one.post(&endpoint, &n.to_string()).await.status, 201);
        agents.push((agent, id, endpoint));
    }
    // One that has said nothing yet is sent away as soon as it does.
    let mut quiet = Raw::open(&two.url, None).await;
    let (mut other, _) = two.agent(None).await;
    let said = async {
        assert_eq!(closed(&mut other).await.0, Some(1001));
        quiet.text(HELLO).await;
        assert_eq!(quiet.end().await, (1001, "SessionClosed".to_owned()));
    };
    tokio::join!(two.node.drain(), said);
    for (n, (mut agent, id, endpoint)) in agents.into_iter().enumerate() {
        assert_eq!(text(&notification(&mut agent).await), n.to_string());
        assert_eq!(closed(&mut agent).await, (Some(1001), "SessionClosed".to_owned()));
        // All of it was done before the drain was over.
        assert_eq!(store.node_of(id).await, None);
        assert_eq!(store.texts(id).await, [n.to_string()]);
        // It still takes what senders post.
        assert_eq!(two.post(&endpoint, "more").await.status, 201);
        let (mut agent, _) = one.agent(Some(id)).await;
        assert_eq!(take(&mut agent, 2).await, [n.to_string(), "more".to_owned()]);
    }
    let refused = Agent::connect(&two.url, &posthorn_agent::Options::default()).await;
    assert!(matches!(refused, Err(Error::NoSocket(503))), "{:?}", refused.err());
}

#[tokio::test]
async fn connections_within_one_moment_are_told_apart() {
    let store = Gated::new();
    let clock = StillClock::at(1_800_000_000_000);
    let house =
        House::start_with(Arc::clone(&store) as _, &Wires::default(), options("n1"), |parts| {
            parts.clock = clock
        })
        .await;
    let (mut old, id, endpoint) = house.registered().await;
    for _ in 0..3 {
        assert_eq!(house.post(&endpoint, "handed on").await.status, 201);
        notification(&mut old).await;
        // The newer connection has looked before the older one's message is stored.
        store.close(Verb::Store);
        let (mut new, _) = house.agent(Some(id)).await;
        settled(&mut new).await;
        store.open(Verb::Store);
        assert_eq!(take(&mut new, 1).await, ["handed on"]);
        settled(&mut new).await;
        assert_eq!(store.node_of(id).await.as_deref(), Some("n1"));
        old = new;
    }
}
