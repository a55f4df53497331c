//! Cases about jobs that cancel, forget and retry deliveries.

use posthorn_domain::delivery::Wish;
use posthorn_domain::{DeliveryFilter, DeliveryId, DeliveryState, JobState, Period, StateKind};
use posthorn_store::{Bite, Bitten, Moves, Place};

use super::Fixture;
use super::builders::{Setting, at, dead_block, dead_skip, delivered, whole};
use super::jobs::{advance, begun, bite};

fn filter(state: StateKind) -> DeliveryFilter {
    DeliveryFilter { state: Some(state), ..DeliveryFilter::default() }
}

async fn moved(
    setting: &Setting,
    wish: Wish,
    filter: DeliveryFilter,
    deliveries: &[DeliveryId],
) -> Bitten {
    let job = begun(setting).await;
    let moves = Moves { wish, filter, deliveries: deliveries.to_vec() };
    advance(setting, Bite { moves: Some(moves), ..bite(&job, None, 1, Vec::new()) }).await
}

/// What matches is cancelled, nodes hear of it, and it counts as done; what has ended otherwise stays.
pub async fn what_matches_is_cancelled(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let (waits, arrived) = (setting.publish_one(to).await, setting.publish_one(to).await);
    setting.record(arrived, delivered(), at(5)).await;
    let all = [waits, arrived, DeliveryId::new(at(0), u128::MAX)];
    let bitten = moved(&setting, Wish::Cancel, filter(StateKind::Pending), &all).await;
    assert_eq!((bitten.done, bitten.state), (1, JobState::Running));
    assert!(bitten.recall.is_some(), "a node may hold a copy");
    let now = setting.look(waits).await;
    assert!(matches!(now.state, DeliveryState::Cancelled(_)), "{now:?}");
    assert_eq!(now.ended_at, Some(at(1_000)));
    assert_eq!(setting.look(arrived).await.state, DeliveryState::Delivered);
    assert!(setting.pending(to, at(9_000)).await.is_empty());
    let again = moved(&setting, Wish::Cancel, filter(StateKind::Pending), &all).await;
    assert_eq!((again.done, again.recall), (0, None), "it is done once");
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.pending, counts.delivered, counts.cancelled), (0, 1, 1));
}

/// The filter is looked at in the transaction, not in the list that the bite was made from.
pub async fn what_does_not_match_any_more_stays(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let (dead, waits) = (setting.publish_one(to).await, setting.publish_one(to).await);
    setting.record(dead, dead_skip(), at(5)).await;
    let both = [dead, waits];
    let bitten = moved(&setting, Wish::Forget, filter(StateKind::Dead), &both).await;
    assert_eq!(bitten.done, 1);
    assert_eq!(setting.store.delivery(setting.tenant, dead).await.expect("answers"), None);
    assert_eq!(setting.look(waits).await.state, DeliveryState::Pending);
    let later = Period { from: Some(at(900_000)), until: None };
    let none = DeliveryFilter { created: later, ..DeliveryFilter::default() };
    assert_eq!(moved(&setting, Wish::Forget, none, &both).await.done, 0);
}

/// Gone with all attempts, and its event lists it no more; one that waits is cancelled by it, which nodes hear.
pub async fn what_matches_is_forgotten(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let (dead, waits) = (setting.publish_one(to).await, setting.publish_one(to).await);
    setting.record(dead, dead_skip(), at(5)).await;
    let of = DeliveryFilter { subscription: Some(to), ..DeliveryFilter::default() };
    let bitten = moved(&setting, Wish::Forget, of, &[dead, waits]).await;
    assert_eq!(bitten.done, 2);
    assert!(bitten.recall.is_some());
    for id in [dead, waits] {
        assert_eq!(setting.store.delivery(setting.tenant, id).await.expect("answers"), None);
        assert!(setting.store.attempts(setting.tenant, id).await.expect("answers").is_empty());
    }
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.events, counts.deliveries()), (2, 0));
    let setting = setting.reopen(fixture).await;
    assert_eq!(setting.store.delivery(setting.tenant, dead).await.expect("answers"), None);
}

/// Whoever is left in a lane goes on, whichever of those before it went.
pub async fn a_lane_goes_on_after_many_went(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let mut lane = Vec::new();
    for _ in 0..4 {
        lane.push(setting.publish_in(to, whole()).await);
    }
    assert_eq!(setting.ready(to).await, [lane[0]]);
    let bitten = moved(&setting, Wish::Cancel, filter(StateKind::Pending), &lane[..3]).await;
    assert_eq!((bitten.done, &bitten.subscriptions[..]), (3, &[to][..]));
    assert_eq!(setting.ready(to).await, [lane[3]]);
    let bitten = moved(&setting, Wish::Forget, filter(StateKind::Pending), &lane[3..]).await;
    assert_eq!((bitten.done, bitten.subscriptions.len()), (1, 0), "nobody is left");
}

/// What ended as the filter says is tried again with a fresh budget; what waits, what was delivered and what belongs to somebody who
/// left stays, and so does what has no payload any more.
pub async fn what_matches_is_tried_again(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (to, left) = (setting.subscribe().await, setting.subscribe().await);
    let dead = setting.publish_one(to).await;
    let (waits, arrived) = (setting.publish_one(to).await, setting.publish_one(to).await);
    let orphan = setting.publish_one(left).await;
    let emptied = setting.publish(&[(to, None)]).await;
    for id in [dead, orphan, emptied.deliveries[0]] {
        setting.record(id, dead_skip(), at(5)).await;
    }
    setting.record(arrived, delivered(), at(5)).await;
    setting.unsubscribe(left, at(6)).await;
    let event = emptied.event.id;
    setting.store.expunge_event(setting.tenant, event, false, at(7)).await.expect("expunged");
    let all = [dead, waits, arrived, orphan, emptied.deliveries[0]];
    let bitten = moved(&setting, Wish::Retry, filter(StateKind::Dead), &all).await;
    assert_eq!((bitten.done, &bitten.subscriptions[..]), (1, &[to][..]));
    let now = setting.look(dead).await;
    assert_eq!((now.state, now.due_at), (DeliveryState::Pending, at(1_000)));
    assert_eq!((now.budget_base, now.budget_began), (now.attempts, at(1_000)));
    assert_eq!(setting.look(arrived).await.state, DeliveryState::Delivered);
    assert!(matches!(setting.look(orphan).await.state, DeliveryState::Dead(_)));
    let again = moved(&setting, Wish::Retry, filter(StateKind::Dead), &all).await;
    assert_eq!(again.done, 0, "it waits now");
    let bitten = moved(&setting, Wish::Retry, filter(StateKind::Delivered), &all).await;
    assert_eq!(bitten.done, 1, "what arrived can be delivered once more");
    assert_eq!(setting.look(arrived).await.state, DeliveryState::Pending);
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.pending, counts.delivered, counts.dead), (3, 0, 2));
}

/// Those of a lane come back to their places, before what came later: its head has to wait, which nodes hear.
pub async fn what_is_tried_again_comes_back_to_its_place(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let mut lane = Vec::new();
    for _ in 0..4 {
        lane.push(setting.publish_in(to, whole()).await);
    }
    setting.record(lane[0], dead_skip(), at(5)).await;
    setting.record(lane[1], delivered(), at(6)).await;
    setting.record(lane[2], dead_skip(), at(7)).await;
    assert_eq!(setting.ready(to).await, [lane[3]]);
    let bitten = moved(&setting, Wish::Retry, filter(StateKind::Dead), &lane).await;
    assert_eq!((bitten.done, &bitten.subscriptions[..]), (2, &[to][..]));
    assert!(bitten.recall.is_some(), "the head has to wait");
    assert_eq!(setting.ready(to).await, [lane[0]]);
    for (head, next) in [(lane[0], lane[2]), (lane[2], lane[3])] {
        let promoted = setting.record(head, delivered(), at(3_000)).await;
        assert_eq!(promoted.map(|work| work.delivery.id), Some(next));
    }
    let blocker = setting.publish_in(to, whole()).await;
    setting.record(lane[3], delivered(), at(4_000)).await;
    setting.record(blocker, dead_block(), at(4_001)).await;
    assert!(setting.ready(to).await.is_empty());
    let bitten = moved(&setting, Wish::Retry, filter(StateKind::Dead), &[blocker]).await;
    assert_eq!(bitten.done, 1);
    assert_eq!(setting.ready(to).await, [blocker]);
}

/// Others' deliveries are not touched, and a bite that comes late does nothing.
pub async fn strangers_and_late_bites_change_nothing(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let to = setting.subscribe().await;
    let waits = setting.publish_one(to).await;
    let foreign = super::jobs::begun_for(&setting, other).await;
    let everything = DeliveryFilter::default();
    let moves = Moves { wish: Wish::Forget, filter: everything, deliveries: vec![waits] };
    let moves = Some(moves);
    let taken = Bite { moves: moves.clone(), ..bite(&foreign, None, 1, Vec::new()) };
    assert_eq!(advance(&setting, taken).await.done, 0);
    let own = begun(&setting).await;
    let late = Bite { moves, ..bite(&own, Some(Place(7)), 8, Vec::new()) };
    assert_eq!(advance(&setting, late).await.done, 0);
    assert_eq!(setting.look(waits).await.state, DeliveryState::Pending);
}
