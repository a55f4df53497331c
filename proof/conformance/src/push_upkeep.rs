//! Removing what nobody waits for any more, in bites.

use posthorn_domain::{AgentId, MessageId, PushMessage};

use super::builders::at;
use super::push::{
    NODE, PushFixture, Scene, connect, further, look, message, newcomer, register, renew,
    store_all, stored,
};
use posthorn_store::push::{AGENT_MESSAGES_MAX, Birth, Bite, Register, Registered, Trim};

/// Expired messages go, a few at a time; others stay.
pub async fn expired_messages_go_in_bites(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (other, channel) = newcomer(&*scene.store, at(0)).await;
    let short = |message: PushMessage| PushMessage { ttl: 1, ..message };
    let mut batch: Vec<PushMessage> = (0..5).map(|_| short(scene.message(0))).collect();
    batch.extend((0..2).map(|_| short(message(other, channel, 0))));
    batch.push(scene.message(0));
    store_all(&*scene.store, batch).await;
    let nothing = scene.store.expire_messages(at(999), 100).await.expect("expire");
    assert_eq!(nothing, Bite { removed: 0, more: false });
    let bite = scene.store.expire_messages(at(1_000), 4).await.expect("expire");
    assert_eq!(bite, Bite { removed: 4, more: true });
    let bite = scene.store.expire_messages(at(1_000), 4).await.expect("expire");
    assert_eq!(bite, Bite { removed: 3, more: false });
    // They are gone even for one who looks at the past.
    assert_eq!(scene.stored().await.len(), 1);
    assert!(stored(&*scene.store, other, at(0)).await.is_empty());
}

/// A bite takes those that expired first.
pub async fn longest_expired_go_first(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let batch: Vec<PushMessage> =
        [30, 10, 20].map(|ttl| PushMessage { ttl, ..scene.message(0) }).to_vec();
    store_all(&*scene.store, batch.clone()).await;
    scene.store.expire_messages(at(60_000), 1).await.expect("expire");
    let left: Vec<MessageId> = scene.ids().await;
    assert_eq!(left, [batch[0].id, batch[2].id]);
    scene.store.expire_messages(at(60_000), 1).await.expect("expire");
    assert_eq!(scene.ids().await, [batch[0].id]);
}

/// Stale agents go with all they have, a few at a time, the longest unseen first.
pub async fn stale_agents_go_in_bites(fixture: &dyn PushFixture) {
    let store = fixture.push_store().await;
    let mut agents: Vec<(AgentId, _)> = Vec::new();
    for millis in [40, 10, 30, 20, 50] {
        agents.push(newcomer(&*store, at(millis)).await);
    }
    let waiting: Vec<PushMessage> =
        agents.iter().map(|(agent, channel)| message(*agent, *channel, 0)).collect();
    store_all(&*store, waiting).await;
    let bite = store.expire_agents(at(50), 3).await.expect("expire");
    assert_eq!(bite, Bite { removed: 3, more: true });
    let mut there = Vec::new();
    for (agent, _) in &agents {
        there.push(look(&*store, *agent).await.is_some());
        let messages = stored(&*store, *agent, at(0)).await.len();
        assert_eq!(messages == 1, there[there.len() - 1]);
    }
    assert_eq!(there, [true, false, false, false, true]);
    let bite = store.expire_agents(at(50), 3).await.expect("expire");
    assert_eq!(bite, Bite { removed: 1, more: false });
    assert!(look(&*store, agents[4].0).await.is_some(), "seen at the limit");
}

/// Agents with many messages go by and by, and hold up nobody for long.
pub async fn agents_with_many_messages_go_in_bites(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let store = &*scene.store;
    let (other, channel) = newcomer(store, at(1)).await;
    let (stays, channel_of_stays) = newcomer(store, at(100)).await;
    let batch: Vec<PushMessage> =
        (0..2 * AGENT_MESSAGES_MAX + 1).map(|_| scene.message(0)).collect();
    store_all(store, batch).await;
    store_all(store, vec![message(other, channel, 0), message(stays, channel_of_stays, 0)]).await;
    let mut removed = 0;
    for more in [true, true, false] {
        let bite = store.expire_agents(at(100), 10).await.expect("expire");
        removed += bite.removed;
        assert_eq!(bite.more, more);
    }
    assert_eq!(removed, 2);
    assert_eq!(look(store, scene.agent).await, None);
    assert_eq!(look(store, other).await, None);
    assert_eq!(stored(store, stays, at(0)).await.len(), 1);
    revive(&scene).await;
}

/// What a dropped agent had is out of reach at once, also while it is being removed; its id may live
/// again meanwhile.
pub async fn dropped_messages_are_never_seen_again(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let store = &*scene.store;
    let mut batch: Vec<PushMessage> =
        (0..AGENT_MESSAGES_MAX + 1).map(|_| scene.message(0)).collect();
    let about = scene.about("t", 9);
    batch.push(about.clone());
    store_all(store, batch).await;
    let old = scene.stored().await[0].seq;
    assert_eq!(store.drop_agents(vec![scene.agent]).await.expect("drop"), [true]);
    revive(&scene).await;
    // The same id, and a topic that was newer in the former life.
    let first = scene.store_one(about.clone()).await;
    let older = scene.store_one(scene.about("u", 1)).await;
    let acked = store.ack_messages(vec![(scene.agent, old)]).await.expect("ack");
    assert_eq!(acked, [false], "of the former life");
    assert_eq!(store.drop_agents(vec![scene.agent]).await.expect("drop"), [true]);
    revive(&scene).await;
    assert!(scene.store_one(scene.about("t", 1)).await > older.max(first));
    let (lives, _) = newcomer(store, at(50)).await;
    let mut bites = 0;
    while store.expire_agents(at(1), 10).await.expect("expire").more {
        bites += 1;
        assert!(bites < 5, "it ends");
    }
    assert_eq!(scene.stored().await.len(), 1, "what is of this life stays");
    assert!(look(store, lives).await.is_some());
    let count = store.count_messages(vec![scene.agent], at(0), 9).await.expect("count");
    assert_eq!(count, [1]);
    let left = Trim { agent: scene.agent, keep: 0 };
    assert_eq!(store.trim_messages(vec![left], at(0)).await.expect("trim"), [1]);
}

/// Brings an agent back that must be gone with everything.
async fn revive(scene: &Scene) {
    let (agent, channel) = (scene.agent, scene.channel);
    assert_eq!(look(&*scene.store, agent).await, None);
    assert!(scene.stored().await.is_empty());
    let birth = Some(Birth { node: NODE.to_owned(), connected_at: at(50) });
    let again = Register { birth, at: at(50), ..further(agent, channel) };
    assert_eq!(register(&*scene.store, again).await, Registered::New);
    assert!(scene.stored().await.is_empty());
    let count = scene.store.count_messages(vec![agent], at(0), 9).await.expect("count");
    assert_eq!(count, [0]);
}

/// Who connected or renewed its connection is not stale.
pub async fn seen_agents_stay(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (renewed, _) = newcomer(&*scene.store, at(0)).await;
    let (stale, _) = newcomer(&*scene.store, at(0)).await;
    connect(&*scene.store, scene.agent, NODE, 100).await;
    renew(&*scene.store, renewed, NODE, 0, 100).await;
    let bite = scene.store.expire_agents(at(100), 10).await.expect("expire");
    assert_eq!(bite, Bite { removed: 1, more: false });
    let found = scene.store.agents(vec![scene.agent, renewed, stale]).await.expect("agents");
    let there: Vec<bool> = found.iter().map(Option::is_some).collect();
    assert_eq!(there, [true, true, false]);
}

/// An empty store has nothing to remove.
pub async fn upkeep_without_work_does_nothing(fixture: &dyn PushFixture) {
    let store = fixture.push_store().await;
    let nothing = Bite { removed: 0, more: false };
    assert_eq!(store.expire_messages(at(0), 10).await.expect("expire"), nothing);
    assert_eq!(store.expire_agents(at(0), 10).await.expect("expire"), nothing);
}

/// After expiry an id and a topic are free again.
pub async fn expiry_makes_room_for_the_id(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let short = PushMessage { ttl: 1, ..scene.about("t", 5_000) };
    let first = scene.store_one(short.clone()).await;
    scene.store.expire_messages(at(60_000), 10).await.expect("expire");
    let again = PushMessage { received_at: at(4_000), ..short };
    assert!(scene.store_one(again).await > first);
}
