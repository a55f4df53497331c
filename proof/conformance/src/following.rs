//! Following the log: each item once, in an order that never changes behind the reader.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{DeliveryId, DeliveryState, Event, EventId, TenantId};
use posthorn_store::{AttemptMade, FollowAsk, Followed, LogPlace, Prune, Store};

use super::Fixture;
use super::builders::{Setting, at, dead_skip, delivered, delivery, failed, unique, whole};

/// What was committed may be shown a moment later.
const PATIENCE: Duration = Duration::from_secs(10);

fn ask(tenants: &[TenantId], after: Option<LogPlace>, limit: usize) -> FollowAsk {
    FollowAsk { tenants: tenants.to_vec(), after, since: None, limit }
}

/// Where both logs end.
async fn ends(store: &Arc<dyn Store>) -> (LogPlace, LogPlace) {
    let events = store.events_after(ask(&[], None, 10)).await.expect("an end");
    let attempts = store.attempts_after(ask(&[], None, 10)).await.expect("an end");
    assert!(events.items.is_empty() && attempts.items.is_empty());
    (events.last, attempts.last)
}

#[track_caller]
fn check_page<T>(page: &Followed<T>, after: LogPlace, limit: usize) {
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
    after: &mut LogPlace,
    count: usize,
) -> Vec<EventId> {
    let mut found = Vec::new();
    let wait = async {
        loop {
            let page = store.events_after(ask(tenants, Some(*after), 2)).await.expect("a page");
            check_page(&page, *after, 2);
            *after = page.last;
            found.extend(page.items.iter().map(|item| item.item.event.id));
            assert!(page.items.iter().all(|item| item.item.event.tenant == item.tenant));
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
    after: &mut LogPlace,
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

/// What was published together comes in the order in which it was: ids rise.
pub async fn events_of_one_commit_keep_their_order(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (mut after, _) = ends(&setting.store).await;
    let mut batch = Vec::new();
    for number in 0..6 {
        let mut new = setting.planned(Vec::new()).await;
        // Later ones have smaller numbers behind their times.
        let id = EventId::new(at(number), 1_000_000 + u128::from(unique()) - (number as u128) * 99);
        new.event = Arc::new(Event { id, accepted_at: at(number), ..(*new.event).clone() });
        batch.push(new);
    }
    let ids: Vec<EventId> = batch.iter().map(|new| new.event.id).collect();
    setting.store.accept(batch).await.expect("accept");
    assert_eq!(events(&setting.store, &[setting.tenant], &mut after, 6).await, ids);
}

/// How large a payload is, and nothing of it; nothing of what was sent and answered.
pub async fn what_is_large_is_not_read(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let (start, attempts_start) = ends(&setting.store).await;
    let mut new = setting.planned(vec![delivery(to, None)]).await;
    let payload = bytes::Bytes::from(vec![b'x'; 100_000]);
    new.event = Arc::new(Event { payload, ..(*new.event).clone() });
    let published = setting.accept(new).await;
    let mut record = setting.report(published.deliveries[0], delivered(), at(1)).await;
    if let Some(attempt) = &mut record.attempt {
        attempt.response = bytes::Bytes::from(vec![b'y'; 1_000]);
    }
    setting.store.record(vec![record]).await.expect("a record");
    let ask = |after| ask(&[setting.tenant], Some(after), 5);
    let wait = async {
        loop {
            let lines = setting.store.events_after(ask(start)).await.expect("a page").items;
            let made =
                setting.store.attempts_after(ask(attempts_start)).await.expect("a page").items;
            if let ([line], [made]) = (&*lines, &*made) {
                let (line, attempt) = (&line.item, &made.item.line.attempt);
                assert_eq!((line.event.payload.len(), line.payload_bytes), (0, 100_000));
                let event = Event { payload: bytes::Bytes::new(), ..(*published.event).clone() };
                assert_eq!(line.event, event);
                assert_eq!((attempt.response.len(), attempt.request.is_none()), (0, true));
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("both are shown");
}

/// Whoever was away for long goes on where what is wanted begins.
pub async fn what_is_old_is_passed_over(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (start, _) = ends(&setting.store).await;
    let mut ids = Vec::new();
    for number in 0..40 {
        let mut new = setting.planned(Vec::new()).await;
        let id = EventId::new(at(number * 10), unique().into());
        new.event = Arc::new(Event { id, accepted_at: at(number * 10), ..(*new.event).clone() });
        ids.push(setting.accept(new).await.event.id);
    }
    let mut after = start;
    assert_eq!(events(&setting.store, &[setting.tenant], &mut after, 40).await, ids);
    for (since, first) in [(-5, 0), (0, 0), (1, 1), (10, 1), (255, 26), (390, 39), (391, 40)] {
        let asked = FollowAsk { since: Some(at(since)), ..ask(&[setting.tenant], Some(start), 50) };
        let page = setting.store.events_after(asked).await.expect("a page");
        let found: Vec<EventId> = page.items.iter().map(|item| item.item.event.id).collect();
        assert_eq!((found, page.skipped), (ids[first..].to_vec(), first > 0), "{since}");
        check_page(&page, start, 50);
    }
    // Who stands behind it all does not go back.
    let asked = FollowAsk { since: Some(at(100)), ..ask(&[setting.tenant], Some(after), 50) };
    let page = setting.store.events_after(asked).await.expect("a page");
    assert_eq!((page.items.len(), page.skipped), (0, false));
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
    let numbers = [0, 1, u128::from(u64::MAX), 1 << 100, u128::MAX - 1, u128::MAX];
    let commits = [0, 1, u64::MAX >> 1, u64::MAX];
    let places = commits.into_iter().flat_map(|commit| numbers.map(|row| LogPlace { commit, row }));
    for place in places {
        let mut asked = ask(&[setting.tenant], Some(place), 5);
        asked.since = place.row.is_multiple_of(2).then_some(at(i64::MAX >> 16));
        let page = setting.store.events_after(asked.clone()).await.expect("a page");
        assert!(page.items.len() <= 1, "{place:?}");
        let page = setting.store.attempts_after(asked).await.expect("a page");
        assert!(page.items.len() <= 1, "{place:?}");
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
