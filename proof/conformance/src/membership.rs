//! Cases about nodes, shards and epochs. Expiry is judged by the store's clock, so these sleep.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{CatalogVersion, NodeId, SHARD_COUNT, Shard};

use super::Fixture;
use super::builders::{LONG, SHORT, all_shards, node, tenant};
use posthorn_store::{CatalogChange, Grant, Heartbeat, Membership, Store};

/// What nodes say that they run.
const VERSION: &str = "1.2.3";

async fn acquire(
    store: &Arc<dyn Store>,
    node: NodeId,
    shards: &[Shard],
    ttl: Duration,
) -> Vec<Grant> {
    let mut grants = store.acquire_shards(node, shards, ttl).await.expect("acquire");
    grants.sort_by_key(|grant| grant.shard);
    grants
}

async fn beat(store: &Arc<dyn Store>, node: NodeId, ttl: Duration) -> Membership {
    let beat = Heartbeat { node, ttl, catalog: CatalogVersion(1), version: VERSION };
    store.heartbeat(beat).await.expect("heartbeat")
}

async fn expire() {
    tokio::time::sleep(SHORT + Duration::from_millis(150)).await;
}

fn some_shards(count: usize) -> Vec<Shard> {
    Shard::all().take(count).collect()
}

fn alive(membership: &Membership) -> Vec<NodeId> {
    membership.nodes.iter().map(|live| live.node).collect()
}

/// Free shards are granted with an epoch each; what is held is not granted to others.
pub async fn free_shards_are_granted_once(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (a, b) = (node(), node());
    let mine = acquire(&store, a, &some_shards(3), LONG).await;
    assert_eq!(mine.iter().map(|grant| grant.shard).collect::<Vec<_>>(), some_shards(3));
    assert!(mine.iter().all(|grant| grant.epoch.0 > 0));
    let rest = acquire(&store, b, &all_shards(), LONG).await;
    assert_eq!(rest.len(), usize::from(SHARD_COUNT) - 3);
    assert!(rest.iter().all(|grant| !some_shards(3).contains(&grant.shard)));
    let membership = beat(&store, a, LONG).await;
    assert_eq!(membership.holders.len(), usize::from(SHARD_COUNT));
    for holder in membership.holders {
        let grants = if holder.node == a { &mine } else { &rest };
        assert!(grants.contains(&Grant { shard: holder.shard, epoch: holder.epoch }));
    }
}

/// Who asks for its own shard does not know that it is: it gets it for longer, under a greater epoch.
pub async fn own_shards_are_given_again_under_a_greater_epoch(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (a, b) = (node(), node());
    let first = acquire(&store, a, &some_shards(2), SHORT).await;
    let second = acquire(&store, a, &some_shards(2), LONG).await;
    assert_eq!(second.len(), 2);
    assert!(first.iter().zip(&second).all(|(old, new)| new.epoch > old.epoch));
    expire().await;
    assert!(acquire(&store, b, &some_shards(2), LONG).await.is_empty(), "renewed for long");
}

/// Whose lease has run out loses the shard to who asks, under a greater epoch.
pub async fn expired_lease_can_be_taken_over(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (a, b) = (node(), node());
    let first = acquire(&store, a, &some_shards(2), SHORT).await;
    assert!(acquire(&store, b, &some_shards(2), LONG).await.is_empty());
    expire().await;
    assert!(beat(&store, b, LONG).await.holders.is_empty(), "an expired lease is not held");
    let second = acquire(&store, b, &some_shards(2), LONG).await;
    assert_eq!(second.len(), 2);
    for (old, new) in first.iter().zip(&second) {
        assert!(new.epoch > old.epoch);
    }
    assert!(acquire(&store, a, &some_shards(2), LONG).await.is_empty());
}

/// A heartbeat renews everything its node holds.
pub async fn heartbeat_renews_shards(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (a, b) = (node(), node());
    let mine = acquire(&store, a, &some_shards(3), SHORT).await;
    let membership = beat(&store, a, LONG).await;
    assert_eq!(alive(&membership), [a]);
    expire().await;
    assert!(acquire(&store, b, &some_shards(3), LONG).await.is_empty());
    let held: Vec<Grant> = beat(&store, b, LONG)
        .await
        .holders
        .iter()
        .map(|holder| Grant { shard: holder.shard, epoch: holder.epoch })
        .collect();
    assert_eq!(held, mine);
}

/// Who slept through its lease goes on under its epoch with a heartbeat, as long as nobody took the shard.
pub async fn an_expired_lease_that_nobody_took_keeps_its_epoch(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (a, b) = (node(), node());
    let first = acquire(&store, a, &some_shards(2), SHORT).await;
    expire().await;
    assert!(beat(&store, b, LONG).await.holders.is_empty(), "it had run out");
    let again = beat(&store, a, SHORT).await.holders;
    let again: Vec<Grant> =
        again.iter().map(|held| Grant { shard: held.shard, epoch: held.epoch }).collect();
    assert_eq!(again, first);
    expire().await;
    beat(&store, a, LONG).await;
    assert!(acquire(&store, b, &some_shards(2), LONG).await.is_empty(), "renewed for long");
}

/// A heartbeat brings nothing back that somebody else took, also when that lease has run out as well.
pub async fn a_heartbeat_takes_nothing_back(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (a, b) = (node(), node());
    let first = acquire(&store, a, &some_shards(1), SHORT).await;
    expire().await;
    let second = acquire(&store, b, &some_shards(1), SHORT).await;
    assert!(beat(&store, a, LONG).await.holders.iter().all(|held| held.node == b));
    expire().await;
    assert!(beat(&store, a, LONG).await.holders.is_empty());
    let third = acquire(&store, a, &some_shards(1), LONG).await;
    assert!(first[0].epoch < second[0].epoch && second[0].epoch < third[0].epoch);
}

/// Given back is free at once.
pub async fn released_shards_are_free(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (a, b) = (node(), node());
    let mine = acquire(&store, a, &some_shards(3), LONG).await;
    store.release_shards(a, &mine[..2]).await.expect("release");
    let taken = acquire(&store, b, &some_shards(3), LONG).await;
    assert_eq!(taken.len(), 2);
    assert!(taken.iter().zip(&mine).all(|(new, old)| new.epoch > old.epoch));
}

/// Only the holder, under its epoch, can give back.
pub async fn release_under_another_epoch_changes_nothing(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (a, b) = (node(), node());
    let old = acquire(&store, a, &some_shards(1), LONG).await;
    store.release_shards(a, &old).await.expect("release");
    let held = acquire(&store, a, &some_shards(1), LONG).await;
    store.release_shards(a, &old).await.expect("release");
    store.release_shards(b, &held).await.expect("release");
    assert!(acquire(&store, b, &some_shards(1), LONG).await.is_empty());
    let holders = beat(&store, a, LONG).await.holders;
    assert_eq!((holders.len(), holders[0].epoch), (1, held[0].epoch));
}

/// Who departs is not alive and holds nothing.
pub async fn departed_node_is_gone(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (a, b) = (node(), node());
    acquire(&store, a, &some_shards(2), LONG).await;
    beat(&store, a, LONG).await;
    assert_eq!(alive(&beat(&store, b, LONG).await), [a, b], "by id");
    store.depart(a).await.expect("depart");
    let membership = beat(&store, b, LONG).await;
    assert_eq!(alive(&membership), [b]);
    assert!(membership.holders.is_empty());
    assert_eq!(acquire(&store, b, &some_shards(2), LONG).await.len(), 2);
    store.depart(node()).await.expect("a stranger may depart");
}

/// A sign of life counts for its time.
pub async fn dead_nodes_are_forgotten(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (a, b) = (node(), node());
    beat(&store, a, SHORT).await;
    assert_eq!(alive(&beat(&store, b, LONG).await), [a, b]);
    expire().await;
    assert_eq!(alive(&beat(&store, b, LONG).await), [b]);
    assert_eq!(alive(&beat(&store, a, LONG).await), [a, b]);
}

/// A heartbeat tells which catalog version there is, and which each node works with.
pub async fn heartbeat_tells_the_catalog_version(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let a = node();
    let version = store.change_catalog(CatalogChange::CreateTenant(tenant())).await.expect("new");
    let beat = Heartbeat { node: a, ttl: LONG, catalog: version, version: VERSION };
    let membership = store.heartbeat(beat).await.expect("heartbeat");
    assert_eq!(membership.catalog, version);
    assert_eq!(membership.nodes[0].catalog, version);
}

/// Many nodes grab at the same shards: each is held by one, and no epoch is given twice.
pub async fn two_nodes_never_hold_one_shard(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            let me = node();
            let mut got = Vec::new();
            for _ in 0..5 {
                let grants = acquire(&store, me, &some_shards(8), LONG).await;
                got.extend(grants.iter().copied());
                tokio::task::yield_now().await;
                store.release_shards(me, &grants).await.expect("release");
            }
            (me, got)
        }));
    }
    let mut owners: HashMap<(Shard, u64), NodeId> = HashMap::new();
    for task in tasks {
        let (me, got) = task.await.expect("no task panics");
        for grant in got {
            let owner = owners.entry((grant.shard, grant.epoch.0)).or_insert(me);
            assert_eq!(*owner, me, "{grant:?} was given twice");
        }
    }
    assert!(!owners.is_empty());
}

/// Epochs go on growing after a crash.
pub async fn epochs_survive_reopening(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let a = node();
    let before = acquire(&store, a, &some_shards(2), LONG).await;
    store.depart(a).await.expect("depart");
    let store = fixture.reopen(store).await;
    let after = acquire(&store, node(), &some_shards(2), LONG).await;
    assert_eq!(after.len(), 2);
    assert!(before.iter().zip(&after).all(|(old, new)| new.epoch > old.epoch));
}

/// Hints may be given at any time; without another node nobody hears them.
pub async fn notify_is_only_a_hint(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    store.notify(&some_shards(3)).await.expect("notify");
    store.notify(&[]).await.expect("notify");
    let heard = tokio::time::timeout(Duration::from_millis(50), store.notified()).await;
    assert!(heard.is_err(), "a node does not hear itself");
}

/// A node that falls silent is lost; one that departs is not. One that is heard of again is not lost any more.
pub async fn lost_nodes_are_told_from_those_that_left(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (a, b, c) = (node(), node(), node());
    beat(&store, a, SHORT).await;
    beat(&store, b, SHORT).await;
    assert_eq!(beat(&store, c, LONG).await.lost, []);
    store.depart(b).await.expect("departs");
    expire().await;
    let members = beat(&store, c, LONG).await;
    assert_eq!((alive(&members), &members.lost[..]), (vec![c], &[a][..]));
    assert_eq!(beat(&store, a, LONG).await.lost, []);
}

/// Of each node, alive or lost, the last sign of life is known: how long ago it was, and which version it ran.
pub async fn the_last_sign_of_each_node_is_told(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (a, b) = (node(), node());
    beat(&store, a, SHORT).await;
    expire().await;
    let newer = Heartbeat { node: b, ttl: LONG, catalog: CatalogVersion(1), version: "1.3.0" };
    let members = store.heartbeat(newer).await.expect("heartbeat");
    assert_eq!(members.lost, [a]);
    let mut signs = members.signs;
    signs.sort_by_key(|sign| sign.node != a);
    assert_eq!((signs.len(), signs[0].node, signs[1].node), (2, a, b));
    assert_eq!((signs[0].version.as_str(), signs[1].version.as_str()), (VERSION, "1.3.0"));
    assert!(signs[0].ago >= SHORT, "{:?}", signs[0].ago);
    assert!(signs[1].ago < SHORT, "{:?}", signs[1].ago);
    store.depart(a).await.expect("departs");
    let signs = beat(&store, b, LONG).await.signs;
    assert_eq!(signs.iter().map(|sign| sign.node).collect::<Vec<_>>(), [b]);
    assert_eq!(signs[0].version, VERSION, "as it says now");
}
