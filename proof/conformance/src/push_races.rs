//! Many at once, on several nodes where the store can have them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use posthorn_domain::{AgentId, MessageId, MessageSeq, PushMessage};

use super::builders::at;
use super::push::{
    NODE, OTHER, PushFixture, Scene, channel_id, clear, connect, further, look, message, newcomer,
    read, register, store_all, stored,
};
use posthorn_store::push::{Birth, Connect, Connected, Kept, PushStore, Register, Registered};

/// How many senders.
const SENDERS: usize = 250;
/// How many messages each sends, one after the other.
const EACH: usize = 8;

/// Two thousand messages to one agent who is away, from senders on two nodes: all are stored, none
/// takes the place of another, and a reader that goes on after what it saw sees every one.
pub async fn concurrent_stores_are_all_kept_in_commit_order(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let peer = fixture.peer(&scene.store).await;
    let ended = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(follow(Arc::clone(&peer), scene.agent, Arc::clone(&ended)));
    let mut senders = Vec::new();
    for number in 0..SENDERS {
        let store = Arc::clone(if number % 2 == 0 { &scene.store } else { &peer });
        let batch: Vec<PushMessage> = (0..EACH).map(|_| scene.message(0)).collect();
        senders.push(tokio::spawn(async move {
            let mut sent = Vec::new();
            for message in batch {
                let id = message.id;
                match store_all(&*store, vec![message]).await[0] {
                    Kept::Stored(seq) => sent.push((seq, id)),
                    other => panic!("stored, not {other:?}"),
                }
            }
            sent
        }));
    }
    let mut sent = Vec::new();
    for sender in senders {
        let own = sender.await.expect("a sender");
        assert!(own.is_sorted(), "what is sent later comes later");
        sent.extend(own);
    }
    ended.store(true, Ordering::Release);
    sent.sort_unstable();
    assert_eq!(sent.len(), SENDERS * EACH);
    assert!(sent.windows(2).all(|pair| pair[0].0 < pair[1].0), "no sequence twice");
    let found = stored(&*scene.store, scene.agent, at(0)).await;
    let found: Vec<_> = found.iter().map(|stored| (stored.seq, stored.message.id)).collect();
    assert_eq!(found, sent);
    assert_eq!(reader.await.expect("the reader"), sent, "the reader missed nothing");
}

/// Reads on after the last sequence until the senders are done and nothing is left.
async fn follow(
    store: Arc<dyn PushStore>,
    agent: AgentId,
    ended: Arc<AtomicBool>,
) -> Vec<(MessageSeq, MessageId)> {
    let mut seen: Vec<(MessageSeq, MessageId)> = Vec::new();
    loop {
        let over = ended.load(Ordering::Acquire);
        let after = seen.last().map_or(MessageSeq::START, |(seq, _)| *seq);
        let page = read(&*store, agent, (after, after), at(0), 64).await;
        if over && page.is_empty() {
            return seen;
        }
        seen.extend(page.iter().map(|stored| (stored.seq, stored.message.id)));
        tokio::task::yield_now().await;
    }
}

/// Batches over the same agents, in every order and of every kind, end.
pub async fn batches_over_the_same_agents_do_not_block_each_other(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let peer = fixture.peer(&scene.store).await;
    let mut agents = vec![(scene.agent, scene.channel)];
    for _ in 0..7 {
        agents.push(newcomer(&*scene.store, at(0)).await);
    }
    let mut tasks = Vec::new();
    for number in 0..24 {
        let store = Arc::clone(if number % 2 == 0 { &scene.store } else { &peer });
        let mut agents = agents.clone();
        agents.rotate_left(number % 8);
        if number % 3 == 0 {
            agents.reverse();
        }
        tasks.push(tokio::spawn(async move {
            for round in 0..4 {
                let batch =
                    agents.iter().map(|(agent, channel)| message(*agent, *channel, 0)).collect();
                let kept = store_all(&*store, batch).await;
                let mut acks = Vec::new();
                for ((agent, _), kept) in agents.iter().zip(&kept) {
                    let Kept::Stored(seq) = kept else { panic!("{kept:?}") };
                    acks.push((*agent, *seq));
                }
                if round % 2 == 0 {
                    let acked = store.ack_messages(acks).await.expect("ack");
                    assert!(acked.iter().all(|acked| *acked));
                }
                let connects = agents.iter().map(|(agent, _)| Connect {
                    agent: *agent,
                    node: NODE.to_owned(),
                    at: at(0),
                    seen: at(1),
                });
                store.connect_agents(connects.collect()).await.expect("connect");
            }
        }));
    }
    for task in tasks {
        task.await.expect("no task panics");
    }
    for (agent, _) in agents {
        assert_eq!(stored(&*scene.store, agent, at(0)).await.len(), 24 * 2);
    }
}

/// Of many messages of one topic at once one is left, the one stored last.
pub async fn concurrent_topics_leave_one(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let peer = fixture.peer(&scene.store).await;
    let mut tasks = Vec::new();
    for number in 0..40 {
        let store = Arc::clone(if number % 2 == 0 { &scene.store } else { &peer });
        let message = scene.about("t", 0);
        tasks.push(tokio::spawn(async move {
            let id = message.id;
            (store_all(&*store, vec![message]).await[0], id)
        }));
    }
    let mut placed = Vec::new();
    for task in tasks {
        match task.await.expect("no task panics") {
            (Kept::Stored(seq), id) => placed.push((seq, id)),
            other => panic!("stored, not {other:?}"),
        }
    }
    placed.sort_unstable();
    let found = scene.stored().await;
    assert_eq!(found.len(), 1);
    assert_eq!(Some(&(found[0].seq, found[0].message.id)), placed.last());
}

/// One message sent many times at once is stored once.
pub async fn concurrent_repeats_are_stored_once(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let peer = fixture.peer(&scene.store).await;
    let message = scene.message(0);
    let mut tasks = Vec::new();
    for number in 0..24 {
        let store = Arc::clone(if number % 2 == 0 { &scene.store } else { &peer });
        let message = message.clone();
        tasks.push(tokio::spawn(async move { store_all(&*store, vec![message]).await[0] }));
    }
    let (mut firsts, mut seqs) = (0, BTreeSet::new());
    for task in tasks {
        match task.await.expect("no task panics") {
            Kept::Stored(seq) => {
                firsts += 1;
                seqs.insert(seq);
            }
            Kept::Again(seq) => {
                seqs.insert(seq);
            }
            other => panic!("stored, not {other:?}"),
        }
    }
    assert_eq!((firsts, seqs.len()), (1, 1));
    assert_eq!(scene.ids().await, [message.id]);
}

/// An agent moves to another node while the first is being taken off: the new one stays, always.
pub async fn connecting_races_with_clearing(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let peer = fixture.peer(&scene.store).await;
    for round in 0..40 {
        let (old, new) = (round * 10, round * 10 + 5);
        if round > 0 {
            connect(&*scene.store, scene.agent, NODE, old).await;
        }
        let (here, there) = (Arc::clone(&scene.store), Arc::clone(&peer));
        let agent = scene.agent;
        let clearing = tokio::spawn(async move { clear(&*here, agent, NODE, old).await });
        let connecting = tokio::spawn(async move { connect(&*there, agent, OTHER, new).await });
        let cleared = clearing.await.expect("clearing");
        let connected = connecting.await.expect("connecting");
        let Connected::Here { before, .. } = connected else { panic!("{connected:?}") };
        // Whoever came first, they agree about it.
        assert_eq!(before.is_none(), cleared);
        let router = scene.look().await.router;
        assert_eq!((router.node.as_deref(), router.connected_at), (Some(OTHER), at(new)));
    }
}

/// Of many connections at once the latest is on record in the end, and told so.
pub async fn one_of_many_connections_stays(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let peer = fixture.peer(&scene.store).await;
    let mut tasks = Vec::new();
    for number in 1..=30 {
        let store = Arc::clone(if number % 2 == 0 { &scene.store } else { &peer });
        let agent = scene.agent;
        tasks.push(tokio::spawn(async move {
            (number, connect(&*store, agent, &format!("http://n{number}.test"), number).await)
        }));
    }
    for task in tasks {
        let (number, reply) = task.await.expect("no task panics");
        match reply {
            Connected::Here { agent, .. } => assert_eq!(agent.router.connected_at, at(number)),
            Connected::Superseded { router } => {
                assert!(number < 30 && router.connected_at > at(number), "{number} {router:?}");
            }
            Connected::Unknown => panic!("the agent is there"),
        }
    }
    let router = scene.look().await.router;
    assert_eq!((router.node.as_deref(), router.connected_at), (Some("http://n30.test"), at(30)));
}

/// A channel is registered while its agent is dropped: it is there with the agent or not at all.
pub async fn registering_races_with_dropping(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let peer = fixture.peer(&scene.store).await;
    for round in 0..40 {
        let (agent, _) = newcomer(&*scene.store, at(0)).await;
        let channel = channel_id();
        let (here, there) = (Arc::clone(&scene.store), Arc::clone(&peer));
        let dropping = tokio::spawn(async move { here.drop_agents(vec![agent]).await });
        let birth = Birth { node: OTHER.to_owned(), connected_at: at(9) };
        let birth = (round % 2 == 0).then_some(birth);
        let reborn = birth.is_some();
        let item = Register { birth, ..further(agent, channel) };
        let registering = tokio::spawn(async move { register(&*there, item).await });
        assert_eq!(dropping.await.expect("dropping").expect("drop"), [true]);
        let registered = registering.await.expect("registering");
        let found = look(&*scene.store, agent).await;
        match registered {
            Registered::AgentGone => assert!(found.is_none() && !reborn),
            Registered::New => {
                // Before the drop it went with the agent; after it only a birth can have worked.
                let channels = found.map(|agent| (agent.router.node, agent.channels.len()));
                let alive = Some((Some(OTHER.to_owned()), 1));
                assert!(channels.is_none() || (reborn && channels == alive), "{channels:?}");
            }
            Registered::Again => panic!("the channel is new"),
        }
        // Nothing is left behind for one who comes with the same id.
        scene.store.drop_agents(vec![agent]).await.expect("drop");
        let birth = Some(Birth { node: NODE.to_owned(), connected_at: at(20) });
        let other = channel_id();
        register(&*scene.store, Register { birth, ..further(agent, other) }).await;
        let channels = look(&*scene.store, agent).await.expect("there").channels;
        assert_eq!(channels.iter().map(|channel| channel.id).collect::<Vec<_>>(), [other]);
    }
}

/// Messages are stored while their agent is dropped: none is left behind.
pub async fn storing_races_with_dropping(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let peer = fixture.peer(&scene.store).await;
    for _ in 0..40 {
        let (agent, channel) = newcomer(&*scene.store, at(0)).await;
        let (here, there) = (Arc::clone(&scene.store), Arc::clone(&peer));
        let batch: Vec<PushMessage> = (0..5).map(|_| message(agent, channel, 0)).collect();
        let storing = tokio::spawn(async move { store_all(&*there, batch).await });
        let dropping = tokio::spawn(async move { here.drop_agents(vec![agent]).await });
        let kept = storing.await.expect("storing");
        dropping.await.expect("dropping").expect("drop");
        let gone = kept.iter().filter(|kept| **kept == Kept::AgentGone).count();
        assert!(gone == 0 || gone == 5, "all or none: {kept:?}");
        let birth = Some(Birth { node: NODE.to_owned(), connected_at: at(20) });
        register(&*scene.store, Register { birth, ..further(agent, channel) }).await;
        assert!(stored(&*scene.store, agent, at(0)).await.is_empty());
    }
}

/// A stale agent connects while it is being removed: it is gone and told so, or it stays whole.
pub async fn connecting_races_with_expiry(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let peer = fixture.peer(&scene.store).await;
    connect(&*scene.store, scene.agent, NODE, 1_000).await;
    for _ in 0..40 {
        let (agent, channel) = newcomer(&*scene.store, at(0)).await;
        store_all(&*scene.store, vec![message(agent, channel, 0)]).await;
        let (here, there) = (Arc::clone(&scene.store), Arc::clone(&peer));
        let expiring = tokio::spawn(async move { here.expire_agents(at(500), 10).await });
        let connecting = tokio::spawn(async move { connect(&*there, agent, OTHER, 900).await });
        let removed = expiring.await.expect("expiring").expect("expire").removed;
        let connected = connecting.await.expect("connecting");
        let found = look(&*scene.store, agent).await;
        let messages = stored(&*scene.store, agent, at(0)).await.len();
        match connected {
            Connected::Here { .. } => {
                let channels = found.map(|agent| agent.channels.len());
                assert_eq!((removed, channels, messages), (0, Some(1), 1));
            }
            Connected::Unknown => assert_eq!((removed, found, messages), (1, None, 0)),
            Connected::Superseded { .. } => panic!("nobody connected later"),
        }
    }
}

/// Expiry works while everybody stores, replaces and acknowledges what it wants to remove.
pub async fn expiry_races_with_everything(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let peer = fixture.peer(&scene.store).await;
    let ended = Arc::new(AtomicBool::new(false));
    let (sweeper, over) = (Arc::clone(&peer), Arc::clone(&ended));
    let sweeping = tokio::spawn(async move {
        while !over.load(Ordering::Acquire) {
            sweeper.expire_messages(at(5_000), 7).await.expect("expire");
            tokio::task::yield_now().await;
        }
    });
    let mut tasks = Vec::new();
    for number in 0..8 {
        let store = Arc::clone(if number % 2 == 0 { &scene.store } else { &peer });
        let short: Vec<PushMessage> = (0..40)
            .map(|n| {
                let message = if n % 3 == 0 { scene.about("t", 0) } else { scene.message(0) };
                PushMessage { ttl: 1, ..message }
            })
            .collect();
        let (agent, long) = (scene.agent, scene.message(0));
        tasks.push(tokio::spawn(async move {
            for message in short {
                let kept = store_all(&*store, vec![message]).await;
                let Kept::Stored(seq) = kept[0] else { panic!("{kept:?}") };
                store.ack_messages(vec![(agent, seq)]).await.expect("ack");
            }
            store_all(&*store, vec![long]).await;
        }));
    }
    for task in tasks {
        task.await.expect("no task panics");
    }
    ended.store(true, Ordering::Release);
    sweeping.await.expect("sweeping");
    assert_eq!(stored(&*scene.store, scene.agent, at(5_000)).await.len(), 8);
}
