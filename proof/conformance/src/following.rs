//! Following the log: each item once, in an order that never changes behind the reader.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{DeliveryId, DeliveryState, EventId, TenantId};
use posthorn_store::{AttemptMade, FollowAsk, Followed, Place, Prune, Store};

use super::Fixture;
use super::builders::{Setting, at, dead_skip, delivered, failed, unique, whole};

/// What was committed may be shown a moment later.
const PATIENCE: Duration = Duration::from_secs(10);

fn ask(tenants: &[TenantId], after: Option<Place>, limit: usize) -> FollowAsk {
    FollowAsk { tenants: tenants.to_vec(), after, limit }
}

/// Where both logs end.
async fn ends(store: &Arc<dyn Store>) -> (Place, Place) {
    let events = store.events_after(ask(&[], None, 10)).await.expect("an end");
    let attempts = store.attempts_after(ask(&[], None, 10)).await.expect("an end");
    assert!(events.items.is_empty() && attempts.items.is_empty());
    (events.last, attempts.last)
}

#[track_caller]
fn check_page<T>(page: &Followed<T>, after: Place, limit: usize) {
    assert!(page.items.len() <= limit);
    let places = page.items.iter().map(|item| item.place);
    assert!(places.clone().is_sorted_by(|a, b| a < b), "in order");
    assert!(places.clone().all(|place| place > after), "after the place");
    assert!(page.last >= places.last().unwrap_or(after), "never back");
}

/// The next events of some tenants, once there are so many.
async fn events(
    store: &Arc<dyn Store>,
    tenants: &[TenantId],
    after: &mut Place,
    count: usize,
) -> Vec<EventId> {
    let mut found = Vec::new();
    let wait = async {
        loop {
            let page = store.events_after(ask(tenants, Some(*after), 2)).await.expect("a page");
            check_page(&page, *after, 2);
            *after = page.last;
            found.extend(page.items.iter().map(|item| item.item.id));
            assert!(page.items.iter().all(|item| item.item.tenant == item.tenant));
            if found.len() >= count && !page.more {
                return;
            }
            tokio::time::sleep(Duration::from_millis(u64::from(!page.more))).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("all are shown");
    found
}

/// The same with attempts.
async fn attempts(
    store: &Arc<dyn Store>,
    tenants: &[TenantId],
    after: &mut Place,
    count: usize,
) -> Vec<AttemptMade> {
    let mut found = Vec::new();
    let wait = async {
        loop {
            let page = store.attempts_after(ask(tenants, Some(*after), 2)).await.expect("a page");
            check_page(&page, *after, 2);
            *after = page.last;
            found.extend(page.items.into_iter().map(|item| item.item));
            if found.len() >= count && !page.more {
                return;
            }
            tokio::time::sleep(Duration::from_millis(u64::from(!page.more))).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("all are shown");
    found
}

/// Whoever begins to follow hears of what comes, not of what was.
pub async fn the_log_is_followed_from_its_end(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let tenants = [setting.tenant];
    let (mut event, mut attempt) = ends(&setting.store).await;
    let before = setting.publish(&[(to, None)]).await;
    setting.record(before.deliveries[0], delivered(), at(1)).await;
    // What was committed a moment ago may still come.
    assert_eq!(events(&setting.store, &tenants, &mut event, 1).await, [before.event.id]);
    assert_eq!(attempts(&setting.store, &tenants, &mut attempt, 1).await.len(), 1);
    let (mut event, mut attempt) = ends(&setting.store).await;
    let after = setting.publish(&[(to, None)]).await;
    setting.record(after.deliveries[0], delivered(), at(2)).await;
    assert_eq!(events(&setting.store, &tenants, &mut event, 1).await, [after.event.id]);
    let made = attempts(&setting.store, &tenants, &mut attempt, 1).await;
    let made: Vec<DeliveryId> = made.iter().map(|made| made.line.attempt.delivery).collect();
    assert_eq!(made, after.deliveries);
}

/// In the order of commits, none twice and none left out, however small the pages are.
pub async fn every_page_goes_on_where_the_last_one_ended(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (mut after, _) = ends(&setting.store).await;
    let mut published = Vec::new();
    for round in 0..4 {
        for _ in 0..3 {
            published.push(setting.publish(&[]).await.event.id);
        }
        let found = events(&setting.store, &[setting.tenant], &mut after, 3).await;
        assert_eq!(found, published[round * 3..], "{round}");
    }
    let page = setting.store.events_after(ask(&[setting.tenant], Some(after), 2)).await;
    let page = page.expect("a page");
    assert_eq!((page.items.len(), page.more), (0, false));
}

/// Of others nothing is shown.
pub async fn tenants_are_followed_apart_and_together(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let theirs = setting.subscribe_for(other).await;
    let own = setting.subscribe().await;
    let (start, attempts_start) = ends(&setting.store).await;
    let first = setting.publish(&[(own, None)]).await;
    let foreign = Setting::on(Arc::clone(&setting.store), other, setting.node).await;
    let second = foreign.publish(&[(theirs, None)]).await;
    setting.record(first.deliveries[0], delivered(), at(1)).await;
    foreign.record(second.deliveries[0], delivered(), at(1)).await;
    let (both, alone) = ([setting.tenant, other], [other]);
    let ids = [first.event.id, second.event.id];
    assert_eq!(events(&setting.store, &both, &mut start.clone(), 2).await, ids);
    assert_eq!(events(&setting.store, &alone, &mut start.clone(), 1).await, ids[1..]);
    let mut after = attempts_start;
    let made = attempts(&setting.store, &alone, &mut after, 1).await;
    assert_eq!((made.len(), made[0].line.event), (1, second.event.id));
    let page = setting.store.events_after(ask(&[], Some(start), 2)).await.expect("a page");
    assert!(page.items.is_empty(), "nobody is meant");
}

/// In the order in which they were recorded.
pub async fn attempts_come_with_what_they_led_to(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let published = [setting.publish(&[(to, None)]).await, setting.publish(&[(to, None)]).await];
    let [one, two] = [published[0].deliveries[0], published[1].deliveries[0]];
    let (_, mut after) = ends(&setting.store).await;
    setting.record(two, failed(at(50)), at(1)).await;
    let made = attempts(&setting.store, &[setting.tenant], &mut after, 1).await;
    assert_eq!(made[0].state, DeliveryState::Pending);
    assert_eq!((made[0].line.event, made[0].line.subscription), (published[1].event.id, to));
    setting.record(one, delivered(), at(2)).await;
    setting.record(two, dead_skip(), at(3)).await;
    let made = attempts(&setting.store, &[setting.tenant], &mut after, 2).await;
    let made: Vec<_> =
        made.iter().map(|made| (made.line.attempt.delivery, made.line.attempt.number)).collect();
    assert_eq!(made, [(one, 1), (two, 2)]);
}

/// As if it had never been.
pub async fn what_was_removed_is_left_out(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let (start, attempts_start) = ends(&setting.store).await;
    let old = setting.publish(&[(to, None)]).await;
    setting.record(old.deliveries[0], delivered(), at(1)).await;
    let kept = setting.publish(&[(to, None)]).await;
    setting.record(kept.deliveries[0], failed(at(9)), at(2)).await;
    let prune = Prune {
        now: at(0),
        ended_before: at(1_000),
        dead_before: at(1_000),
        keys_before: at(0),
        recalls_before: at(0),
        audit_before: at(0),
        limit: 10,
    };
    assert_eq!(setting.store.prune(prune).await.expect("a prune").events, 1);
    let tenants = [setting.tenant];
    let found = events(&setting.store, &tenants, &mut start.clone(), 1).await;
    assert_eq!(found, [kept.event.id]);
    let made = attempts(&setting.store, &tenants, &mut attempts_start.clone(), 1).await;
    assert_eq!((made.len(), made[0].line.event), (1, kept.event.id));
}

/// Whatever somebody sends.
pub async fn made_up_places_of_the_log_are_harmless(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let delivery = setting.publish_in(to, whole()).await;
    setting.record(delivery, delivered(), at(1)).await;
    for place in [0, 1, u128::from(u64::MAX), 1 << 100, u128::MAX - 1, u128::MAX] {
        let asked = ask(&[setting.tenant], Some(Place(place)), 5);
        let page = setting.store.events_after(asked.clone()).await.expect("a page");
        assert!(page.items.len() <= 1, "{place}");
        let page = setting.store.attempts_after(asked).await.expect("a page");
        assert!(page.items.len() <= 1, "{place}");
    }
}

/// A reader comes back to the same log.
pub async fn following_survives_reopening(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (mut after, _) = ends(&setting.store).await;
    let first = setting.publish(&[]).await.event.id;
    assert_eq!(events(&setting.store, &[setting.tenant], &mut after, 1).await, [first]);
    let second = setting.publish(&[]).await.event.id;
    let setting = setting.reopen(fixture).await;
    let third = setting.publish(&[]).await.event.id;
    assert_eq!(events(&setting.store, &[setting.tenant], &mut after, 2).await, [second, third]);
}

/// Nothing appears behind a reader who reads while others write.
pub async fn writers_at_once_are_all_seen_once(fixture: &dyn Fixture) {
    let setting = Arc::new(Setting::new(fixture).await);
    let (mut after, _) = ends(&setting.store).await;
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let setting = Arc::clone(&setting);
            tokio::spawn(async move {
                let mut ids = Vec::new();
                for _ in 0..25 {
                    ids.push(setting.publish(&[]).await.event.id);
                    if unique().is_multiple_of(3) {
                        tokio::task::yield_now().await;
                    }
                }
                ids
            })
        })
        .collect();
    let found = events(&setting.store, &[setting.tenant], &mut after, 100).await;
    let mut published = BTreeSet::new();
    for writer in writers {
        published.extend(writer.await.expect("a writer"));
    }
    assert_eq!(found.len(), 100, "none is seen twice");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), published);
}
