//! Several nodes on one store.

use std::time::Duration;

use posthorn_domain::SubscriptionStatus;
use posthorn_engine::{
    AdmissionOptions, Error, Health, NewSubscription, Options, Refused, SubscriptionChange,
};
use posthorn_store::{CatalogChange, Error as StoreError, Store};
use serde_json::json;
use tokio::time::timeout;

use crate::house::{House, TENANT, answered, publish, rest, subscribe, topic};

#[tokio::test(start_paused = true)]
async fn nodes_share_the_shards_and_take_over_from_the_dead() {
    let house = House::new();
    let first = house.engine(1).await;
    rest(2).await;
    let second = house.engine(2).await;
    rest(30).await;
    topic(&first).await;
    for n in 0..20 {
        subscribe(&first, &format!("https://{n}/"), json!({})).await;
    }
    // A subscription that was created on one node is known to a publish on another.
    let published = second.publish(TENANT, publish("1", None)).await.expect("accepted");
    assert_eq!(published.deliveries, 20);
    rest(5).await;
    assert_eq!(house.counts().await.delivered, 20);
    first.kill();
    second.publish(TENANT, publish("2", None)).await.expect("accepted");
    rest(60).await;
    assert_eq!(house.counts().await.delivered, 40, "the survivor took over");
}

#[tokio::test(start_paused = true)]
async fn a_graceful_stop_hands_over_at_once_and_without_repeats() {
    let house = House::new();
    let first = house.engine(1).await;
    topic(&first).await;
    subscribe(&first, "https://a/", json!({})).await;
    for n in 0..100 {
        first.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    first.stop().await;
    assert!(first.publish(TENANT, publish("late", None)).await.is_err());
    let second = house.engine(2).await;
    rest(10).await;
    assert_eq!(house.counts().await.delivered, 100);
    assert_eq!(house.receivers.of("https://a/").len(), 100, "nothing was sent twice");
    drop(second);
}

/// The database is away for longer than leases last, and nobody takes anything from anybody: each node goes on under its
/// epochs, and what was under way when it went is written down when it is back.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_moves_no_shard_and_repeats_nothing() {
    let house = House::new();
    let lease = Options::default().lease.as_secs();
    let nodes = [house.engine(1).await, house.engine(2).await, house.engine(3).await];
    rest(30).await;
    topic(&nodes[0]).await;
    let urls: Vec<String> = (0..20).map(|n| format!("https://{n}/")).collect();
    for url in &urls {
        subscribe(
            &nodes[0],
            url,
            json!({"limits": {"total": "1m", "response": "1m"}, "lease": {"time": "2m"}}),
        )
        .await;
        // Some answer while the store is away, some when it is back.
        house.receivers.script(url, move |_, seen| {
            let slow = 2 + seen.url.len() as u64 * lease / 8;
            (Duration::from_secs(slow), answered(204))
        });
    }
    let before = house.holders().await;
    assert_eq!(before.len(), 64);
    nodes[0].publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    house.store.set_away(true);
    rest(lease + lease / 2).await;
    assert!(
        nodes[1].publish(TENANT, publish("2", None)).await.is_err(),
        "nobody is told otherwise"
    );
    house.store.set_away(false);
    rest(6 * lease).await;
    assert_eq!(house.holders().await, before, "the same owners under the same epochs");
    nodes[2].publish(TENANT, publish("3", None)).await.expect("accepted");
    rest(6 * lease).await;
    assert_eq!(house.counts().await.delivered, 40);
    for url in &urls {
        assert_eq!(house.receivers.bodies(url), ["1", "3"], "{url}: each once");
    }
}

/// One that starts after such an outage does not take from the others what is still theirs.
#[tokio::test(start_paused = true)]
async fn a_node_that_starts_after_an_outage_leaves_the_others_their_shards() {
    let house = House::new();
    let lease = Options::default().lease.as_secs();
    let nodes = [house.engine(1).await, house.engine(2).await, house.engine(3).await];
    rest(30).await;
    let before = house.holders().await;
    house.store.set_away(true);
    nodes[2].kill();
    rest(lease + 1).await;
    // The new one is there a moment before the others look again.
    house.store.set_away(false);
    let fourth = house.engine(4).await;
    rest(2).await;
    let others: Vec<_> = before.iter().filter(|held| held.node != nodes[2].node()).collect();
    let kept: Vec<_> = house.holders().await;
    assert!(!others.is_empty());
    for held in others {
        let now = kept.iter().find(|holder| holder.shard == held.shard);
        assert_eq!(now, Some(held), "the same owner under the same epoch");
    }
    rest(3 * lease).await;
    assert_eq!(house.holders().await.len(), 64, "what nobody had was taken in the end");
    drop(fourth);
}

/// A node hears that it holds nothing although it does, and gets its shards back: what was under way belongs to a former time
/// of owning them.
#[tokio::test(start_paused = true)]
async fn what_was_lost_only_by_hearsay_comes_back_under_another_epoch() {
    let house = House::new();
    let engine = house.engine(1).await;
    rest(5).await;
    topic(&engine).await;
    let patient = json!({"limits": {"total": "1m", "response": "1m"}, "lease": {"time": "2m"}});
    subscribe(&engine, "https://a/", patient).await;
    house.receivers.script("https://a/", |nth, _| {
        (Duration::from_secs(if nth == 0 { 30 } else { 0 }), answered(204))
    });
    let before = house.holders().await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    house.store.set_blind(true);
    rest(4).await;
    house.store.set_blind(false);
    rest(60).await;
    let after = house.holders().await;
    assert_eq!(after.len(), 64);
    assert!(before.iter().zip(&after).all(|(old, new)| new.epoch > old.epoch));
    engine.publish(TENANT, publish("2", None)).await.expect("accepted");
    rest(5).await;
    assert_eq!(house.counts().await.delivered, 2, "everything goes on");
    assert_eq!(engine.inspect().await.in_flight, 0);
}

/// Who died while the store was away is still replaced.
#[tokio::test(start_paused = true)]
async fn a_node_that_did_not_come_back_after_an_outage_is_replaced() {
    let house = House::new();
    let lease = Options::default().lease.as_secs();
    let (first, second) = (house.engine(1).await, house.engine(2).await);
    rest(30).await;
    house.store.set_away(true);
    first.kill();
    rest(2 * lease).await;
    house.store.set_away(false);
    rest(2 * lease).await;
    let holders = house.holders().await;
    assert_eq!(holders.len(), 64);
    let owner = holders[0].node;
    assert!(holders.iter().all(|holder| holder.node == owner));
    drop(second);
}

/// The farewell of a node is its last word, also when it takes long to be heard.
#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_gives_no_signs_of_life_behind_its_farewell() {
    let house = House::new();
    let (first, second) = (house.engine(1).await, house.engine(2).await);
    rest(30).await;
    house.store.set_slow_farewell(Duration::from_secs(5));
    first.stop().await;
    rest(2).await;
    let holders = house.holders().await;
    assert_eq!(holders.len(), 64);
    let owner = holders[0].node;
    assert!(holders.iter().all(|holder| holder.node == owner), "the other has all");
    drop(second);
}

/// What is stored is not said to be undone, whatever happens afterwards.
#[tokio::test(start_paused = true)]
async fn a_change_that_other_nodes_could_not_be_told_of_is_not_called_undone() {
    let (house, engine) = House::open().await;
    house.store.set_away(true);
    let new = NewSubscription { destination: "https://a/".into(), ..NewSubscription::default() };
    let refused = engine.create_subscription(TENANT, new).await.map(drop);
    assert!(matches!(refused, Err(Error::Store(StoreError::Unknown { .. }))), "{refused:?}");
    house.store.set_away(false);
    rest(5).await;
    assert_eq!(engine.catalog().subscriptions(TENANT).len(), 1, "it was made");
}

/// A store that fails for good may have failed behind the commit.
#[tokio::test(start_paused = true)]
async fn nobody_says_that_nothing_was_stored_when_the_store_breaks() {
    let (house, engine) = House::open().await;
    house.store.set_broken();
    let refused = engine.publish(TENANT, publish("1", None)).await.map(drop);
    assert!(matches!(refused, Err(Error::Store(StoreError::Unknown { .. }))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_only_renews_its_leases_notices_a_broken_store() {
    let (house, engine) = House::open().await;
    let mut health = engine.health();
    house.store.set_broken();
    let failed = |health: &Health| matches!(health, Health::Failed(_));
    timeout(Duration::from_secs(10), health.wait_for(failed))
        .await
        .expect("noticed")
        .expect("open");
}

#[tokio::test(start_paused = true)]
async fn a_crash_loses_nothing_that_was_accepted() {
    let house = House::new();
    let first = house.engine(1).await;
    topic(&first).await;
    subscribe(&first, "https://a/", json!({})).await;
    for n in 0..100 {
        first.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    first.kill();
    let second = house.engine(2).await;
    rest(60).await;
    assert_eq!(house.counts().await.delivered, 100);
    assert_eq!(house.store.counts(None).await.expect("answers").pending, 0);
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn what_ends_on_another_node_does_not_fill_the_quota_of_the_one_that_took_it_in() {
    let quota = 100;
    let options = |refresh| Options {
        admission: AdmissionOptions {
            pending_per_tenant: quota,
            pending_count_interval: Duration::from_secs(refresh),
            ..AdmissionOptions::default()
        },
        ..Options::default()
    };
    let house = House::new();
    // The first counts once, when it starts, and the second every few seconds.
    let first = house.engine_with(1, options(86_400)).await;
    rest(2).await;
    let second = house.engine_with(2, options(5)).await;
    rest(30).await;
    topic(&first).await;
    let mut paused = Vec::new();
    for n in 0..20 {
        paused.push(subscribe(&first, &format!("https://{n}/"), json!({})).await.subscription.id);
    }
    for n in 0..20 {
        first.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(10).await;
    assert_eq!(house.counts().await.delivered, 400, "by both nodes");
    for (name, node) in [("first", &first), ("second", &second)] {
        assert_eq!(node.admission().pending(TENANT), 0, "{name}");
        assert_eq!(node.admission().publish(TENANT), Ok(()), "{name}");
    }
    // What waits is counted wherever it was taken in, by whoever counts.
    for id in paused {
        first.pause_subscription(TENANT, id).await.expect("paused");
    }
    for n in 0..5 {
        first.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(10).await;
    let refused = Refused::Quota { pending: 100, quota };
    assert_eq!(second.admission().publish(TENANT), Err(refused));
    assert_eq!(first.admission().publish(TENANT), Ok(()), "until its next count");
}

#[tokio::test(start_paused = true)]
async fn what_is_learnt_of_others_while_a_change_is_repeated_is_acted_upon() {
    let house = House::new();
    // Nobody looks for forgotten work, so that it is noticed when something is.
    let options = Options { poll_interval: Duration::from_secs(86_400), ..Options::default() };
    let engine = house.engine_with(1, options).await;
    topic(&engine).await;
    let changed = subscribe(&engine, "https://a/", json!({})).await.subscription.clone();
    let resumed = subscribe(&engine, "https://b/", json!({})).await.subscription.id;
    let resumed = engine.pause_subscription(TENANT, resumed).await.expect("paused");
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(5).await;
    // Another node resumes one subscription and changes the other, a moment before this one does.
    let mut resumed = resumed.subscription.clone();
    resumed.status = SubscriptionStatus::Active;
    for subscription in [resumed, changed.clone()] {
        let expected = Some(subscription.version);
        let subscription = Box::new(subscription);
        let change = CatalogChange::UpdateSubscription { subscription, expected };
        house.store.change_catalog(change).await.expect("changed");
    }
    let description = Some("mine".to_owned());
    let change = SubscriptionChange { description, ..SubscriptionChange::default() };
    engine.update_subscription(TENANT, changed.id, change).await.expect("changed");
    rest(60).await;
    assert_eq!(house.receivers.of("https://b/").len(), 1);
}
