//! Cases about bulk redrives.

use posthorn_domain::delivery::Step;
use posthorn_domain::{
    DeadReason, DeliveryId, DeliveryState, Redrive, RedriveFilter, RedriveId, RedriveState,
    SubscriptionId, TenantId,
};

use super::Fixture;
use super::builders::{Setting, at, dead_skip, delivered, redrive, unique, whole};
use posthorn_store::{Error, Prune, RedrivePage, Refusal};

fn dead(reason: DeadReason) -> Step {
    Step { state: DeliveryState::Dead(reason), ..dead_skip() }
}

async fn dead_letters(setting: &Setting, to: SubscriptionId, count: usize) -> Vec<DeliveryId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let id = setting.publish_one(to).await;
        setting.record(id, dead_skip(), at(10)).await;
        ids.push(id);
    }
    ids
}

pub(super) async fn create(setting: &Setting, redrive: Redrive) -> Redrive {
    setting.store.create_redrive(redrive).await.expect("create")
}

async fn find(setting: &Setting, id: RedriveId) -> Redrive {
    let found = setting.store.redrive(setting.tenant, id).await.expect("a lookup");
    found.expect("the redrive is there")
}

/// Runs a redrive to its end; how many were moved.
async fn run(setting: &Setting, id: RedriveId, bite: usize, when: i64) -> usize {
    let before = find(setting, id).await.moved;
    let mut moved = 0;
    for _ in 0..100 {
        let advanced =
            setting.store.advance_redrive(id, bite, at(when), None).await.expect("advance");
        assert!(advanced.moved <= bite, "at most the limit");
        moved += advanced.moved;
        let written = find(setting, id).await.moved - before;
        assert_eq!(written, moved as u64, "progress is written down");
        assert_eq!(find(setting, id).await.state, advanced.state);
        if advanced.state != RedriveState::Running {
            return moved;
        }
    }
    panic!("a redrive comes to an end");
}

/// Each dead letter is moved once, in bites, with progress; then the redrive is done.
pub async fn redrive_moves_every_match_once(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let mut ids = dead_letters(&setting, a, 3).await;
    ids.extend(dead_letters(&setting, b, 2).await);
    let fine = setting.publish_one(a).await;
    setting.record(fine, delivered(), at(10)).await;
    let asked = redrive(setting.tenant, at(100));
    let stored = create(&setting, asked.clone()).await;
    assert_eq!(stored, Redrive { total: 5, ..asked });
    assert_eq!(find(&setting, stored.id).await, stored);

    let first = setting.store.advance_redrive(stored.id, 2, at(110), None).await.expect("advance");
    assert_eq!((first.moved, first.state), (2, RedriveState::Running));
    assert_eq!(first.subscriptions, [a], "without repetition");
    let mut state = first.state;
    let mut moved = first.moved;
    while state == RedriveState::Running {
        let next =
            setting.store.advance_redrive(stored.id, 2, at(110), None).await.expect("advance");
        assert!(next.moved <= 2, "at most the limit");
        (state, moved) = (next.state, moved + next.moved);
        assert_eq!(find(&setting, stored.id).await.moved, moved as u64, "progress is written");
    }
    assert_eq!(moved, 5);
    for id in &ids {
        let seen = setting.look(*id).await;
        assert_eq!((seen.state, seen.due_at), (DeliveryState::Pending, at(110)));
        assert_eq!((seen.budget_base, seen.budget_began), (1, at(110)));
        assert_eq!(seen.ended_at, None);
    }
    assert_eq!(setting.look(fine).await.state, DeliveryState::Delivered);
    let done = find(&setting, stored.id).await;
    assert_eq!((done.state, done.moved, done.total), (RedriveState::Done, 5, 5));
    assert_eq!(done.finished_at, Some(at(110)));
}

/// Subscription, reason and time of death choose.
pub async fn redrive_keeps_to_its_filter(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    for (to, reason, when) in [
        (a, DeadReason::Exhausted, 10),
        (a, DeadReason::Permanent, 20),
        (b, DeadReason::Exhausted, 30),
        (b, DeadReason::Gate, 40),
        (b, DeadReason::Expired, 50),
    ] {
        let id = setting.publish_one(to).await;
        setting.record(id, dead(reason), at(when)).await;
    }
    let all = RedriveFilter { until: Some(at(50)), ..RedriveFilter::default() };
    for (filter, total) in [
        (RedriveFilter { subscription: Some(a), ..all.clone() }, 2),
        (RedriveFilter { reason: Some(DeadReason::Exhausted), ..all.clone() }, 2),
        (RedriveFilter { reason: Some(DeadReason::Expired), ..all.clone() }, 0),
        (RedriveFilter { since: Some(at(20)), until: Some(at(40)), ..all.clone() }, 2),
        (all, 4),
    ] {
        let asked = Redrive { filter, ..redrive(setting.tenant, at(50)) };
        assert_eq!(create(&setting, asked.clone()).await.total, total, "{:?}", asked.filter);
    }
    let filter = RedriveFilter {
        subscription: Some(b),
        reason: Some(DeadReason::Gate),
        since: Some(at(40)),
        until: Some(at(41)),
    };
    let one = create(&setting, Redrive { filter, ..redrive(setting.tenant, at(41)) }).await;
    assert_eq!(run(&setting, one.id, 10, 60).await, 1);
    assert_eq!(setting.ready(b).await.len(), 1);
    assert!(setting.ready(a).await.is_empty());
    assert_eq!(setting.store.counts(None).await.expect("counts").dead, 4);
}

/// Another tenant's dead letters stay where they are.
pub async fn redrive_keeps_to_its_tenant(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    dead_letters(&setting, subscription, 2).await;
    let other = setting.other_tenant().await;
    let stored = create(&setting, redrive(other, at(100))).await;
    assert_eq!(stored.total, 0);
    let advanced =
        setting.store.advance_redrive(stored.id, 10, at(110), None).await.expect("advance");
    assert_eq!((advanced.moved, advanced.state), (0, RedriveState::Done));
    assert!(setting.ready(subscription).await.is_empty());
}

/// What dies again while the redrive runs is not moved again.
pub async fn redrive_does_not_move_what_dies_again(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let ids = dead_letters(&setting, subscription, 4).await;
    let stored = create(&setting, redrive(setting.tenant, at(100))).await;
    setting.store.advance_redrive(stored.id, 2, at(110), None).await.expect("advance");
    for id in setting.ready(subscription).await {
        setting.record(id, dead_skip(), at(120)).await;
    }
    for _ in 0..5 {
        setting.store.advance_redrive(stored.id, 2, at(130), None).await.expect("advance");
    }
    assert_eq!(find(&setting, stored.id).await.moved, 4);
    let mut attempts = Vec::new();
    for id in ids {
        let seen = setting.look(id).await;
        attempts.push((seen.state == DeliveryState::Pending, seen.attempts));
    }
    attempts.sort_unstable();
    assert_eq!(attempts, [(false, 2), (false, 2), (true, 1), (true, 1)]);
}

/// Dead letters whose subscription is gone are neither counted nor moved.
pub async fn redrive_passes_over_deleted_subscriptions(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (kept, gone, later) =
        (setting.subscribe().await, setting.subscribe().await, setting.subscribe().await);
    let left = dead_letters(&setting, gone, 2).await;
    dead_letters(&setting, kept, 1).await;
    dead_letters(&setting, later, 1).await;
    setting.unsubscribe(gone, at(20)).await;
    let stored = create(&setting, redrive(setting.tenant, at(100))).await;
    assert_eq!(stored.total, 2);
    setting.unsubscribe(later, at(105)).await;
    assert_eq!(run(&setting, stored.id, 10, 110).await, 1);
    assert_eq!(setting.ready(kept).await.len(), 1);
    assert_eq!(setting.look(left[0]).await.state, DeliveryState::Dead(DeadReason::Exhausted));
}

/// Dead letters of one lane come back one behind the other.
pub async fn redrive_runs_lanes_in_order(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        let id = setting.publish_in(subscription, whole()).await;
        setting.record(id, dead_skip(), at(10)).await;
        ids.push(id);
    }
    let stored = create(&setting, redrive(setting.tenant, at(100))).await;
    assert_eq!(run(&setting, stored.id, 3, 110).await, 4);
    assert_eq!(setting.ready(subscription).await, ids[..1]);
    for pair in ids.windows(2) {
        let next = setting.record(pair[0], delivered(), at(120)).await;
        assert_eq!(next.map(|work| work.delivery.id), Some(pair[1]));
    }
}

/// A cancelled redrive moves nothing more; what was moved stays so.
pub async fn redrive_can_be_cancelled(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    dead_letters(&setting, subscription, 3).await;
    let stored = create(&setting, redrive(setting.tenant, at(100))).await;
    setting.store.advance_redrive(stored.id, 1, at(110), None).await.expect("advance");
    let cancelled = setting
        .store
        .cancel_redrive(setting.tenant, stored.id, at(115), None)
        .await
        .expect("cancel");
    assert_eq!((cancelled.state, cancelled.moved), (RedriveState::Cancelled, 1));
    assert_eq!(cancelled.finished_at, Some(at(115)));
    assert_eq!(find(&setting, stored.id).await, cancelled);
    let advanced =
        setting.store.advance_redrive(stored.id, 1, at(120), None).await.expect("advance");
    assert_eq!((advanced.moved, advanced.state), (0, RedriveState::Cancelled));
    assert!(advanced.subscriptions.is_empty());
    assert_eq!(setting.ready(subscription).await.len(), 1);
}

/// A redrive that is done cannot be cancelled, and cancelling twice keeps the first time.
pub async fn ended_redrive_stays_as_it_is(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let stored = create(&setting, redrive(setting.tenant, at(100))).await;
    run(&setting, stored.id, 5, 110).await;
    let done = find(&setting, stored.id).await;
    let again = setting
        .store
        .cancel_redrive(setting.tenant, stored.id, at(200), None)
        .await
        .expect("cancel");
    assert_eq!(again, done);
    assert_eq!((done.state, done.finished_at), (RedriveState::Done, Some(at(110))));
    let advanced =
        setting.store.advance_redrive(stored.id, 5, at(300), None).await.expect("advance");
    assert_eq!((advanced.moved, advanced.state), (0, RedriveState::Done));
}

/// Newest first, page by page.
pub async fn redrives_are_listed_newest_first(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let mut made = Vec::new();
    for (index, tenant) in [setting.tenant, other, setting.tenant].into_iter().enumerate() {
        let when = at(i64::try_from(index).expect("a small number"));
        let id = RedriveId::new(when, unique().into());
        let asked = Redrive { id, created_at: when, ..redrive(tenant, at(100)) };
        made.push(create(&setting, asked).await);
    }
    let list = async |tenant: TenantId, before: Option<RedriveId>, limit: usize| {
        let page = RedrivePage { before, limit };
        let found = setting.store.redrives(tenant, page).await.expect("a list");
        (found.items.into_iter().map(|redrive| redrive.id).collect::<Vec<_>>(), found.more)
    };
    let (new, foreign, old) = (made[2].id, made[1].id, made[0].id);
    assert_eq!(list(setting.tenant, None, 10).await, (vec![new, old], false));
    assert_eq!(list(setting.tenant, None, 1).await, (vec![new], true));
    assert_eq!(list(setting.tenant, Some(new), 1).await, (vec![old], false));
    assert_eq!(list(setting.tenant, Some(old), 1).await, (vec![], false));
    assert_eq!(list(other, None, 10).await, (vec![foreign], false));
}

/// Those that run are found however many have ended since, the oldest first.
pub async fn running_redrives_are_found_among_many(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let subscription = setting.subscribe().await;
    dead_letters(&setting, subscription, 3).await;
    let mut running = Vec::new();
    for (index, tenant) in [setting.tenant, other].into_iter().enumerate() {
        let id = RedriveId::new(at(i64::try_from(index).expect("small")), unique().into());
        running.push(create(&setting, Redrive { id, ..redrive(tenant, at(100)) }).await.id);
    }
    for index in 0..20 {
        let id = RedriveId::new(at(10 + index), unique().into());
        let asked = create(&setting, Redrive { id, ..redrive(setting.tenant, at(1)) }).await;
        match index % 2 {
            0 => assert_eq!(run(&setting, asked.id, 5, 110).await, 0),
            _ => drop(setting.store.cancel_redrive(setting.tenant, asked.id, at(110), None).await),
        }
    }
    let found = async |limit| {
        let found = setting.store.running_redrives(limit).await.expect("a list");
        found.into_iter().map(|redrive| redrive.id).collect::<Vec<_>>()
    };
    assert_eq!(found(10).await, running);
    assert_eq!(found(1).await, running[..1]);
    setting.store.advance_redrive(running[0], 2, at(120), None).await.expect("advance");
    assert_eq!(found(10).await, running, "one that has begun still runs");
    assert_eq!(run(&setting, running[0], 2, 120).await, 1, "the last of three");
    assert_eq!(found(10).await, running[1..]);
}

/// Ended ones go after their time, running ones never.
pub async fn ended_redrives_are_pruned(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut ids = Vec::new();
    for index in 0..4 {
        let id = RedriveId::new(at(index), unique().into());
        ids.push(create(&setting, Redrive { id, ..redrive(setting.tenant, at(1)) }).await.id);
    }
    run(&setting, ids[0], 5, 50).await;
    setting.store.cancel_redrive(setting.tenant, ids[1], at(60), None).await.expect("cancel");
    run(&setting, ids[2], 5, 100).await;
    let prune = Prune {
        now: at(0),
        ended_before: at(100),
        dead_before: at(0),
        keys_before: at(0),
        recalls_before: at(0),
        audit_before: at(0),
        limit: 100,
    };
    let pruned = setting.store.prune(prune).await.expect("prune");
    assert_eq!((pruned.redrives, pruned.events), (2, 0));
    for (id, there) in ids.iter().zip([false, false, true, true]) {
        let found = setting.store.redrive(setting.tenant, *id).await.expect("a lookup");
        assert_eq!(found.is_some(), there);
    }
    let again = setting.store.prune(prune).await.expect("prune");
    assert_eq!((again.redrives, again.more), (0, false));
}

/// An id is used once.
pub async fn redrive_ids_are_unique(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let stored = create(&setting, redrive(setting.tenant, at(100))).await;
    let again = setting.store.create_redrive(stored).await;
    assert!(matches!(again, Err(Error::Refused(Refusal::AlreadyExists))), "{again:?}");
}

/// Another tenant's redrive looks as if it did not exist.
pub async fn foreign_redrives_are_not_found(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let stored = create(&setting, redrive(setting.tenant, at(100))).await;
    assert_eq!(setting.store.redrive(other, stored.id).await.expect("a lookup"), None);
    let cancelled = setting.store.cancel_redrive(other, stored.id, at(1), None).await;
    assert!(matches!(cancelled, Err(Error::Refused(Refusal::NotFound))), "{cancelled:?}");
    assert_eq!(find(&setting, stored.id).await.state, RedriveState::Running);
    let unknown = RedriveId::new(at(0), u128::MAX);
    let advanced = setting.store.advance_redrive(unknown, 1, at(1), None).await;
    assert!(matches!(advanced, Err(Error::Refused(Refusal::NotFound))), "{advanced:?}");
}

/// After a crash a redrive goes on where it stopped.
pub async fn redrive_progress_survives_reopening(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    dead_letters(&setting, subscription, 5).await;
    let stored = create(&setting, redrive(setting.tenant, at(100))).await;
    setting.store.advance_redrive(stored.id, 2, at(110), None).await.expect("advance");
    let before = find(&setting, stored.id).await;
    let setting = setting.reopen(fixture).await;
    assert_eq!(find(&setting, stored.id).await, before);
    for _ in 0..3 {
        setting.store.advance_redrive(stored.id, 2, at(120), None).await.expect("advance");
    }
    let done = find(&setting, stored.id).await;
    assert_eq!((done.moved, done.state), (5, RedriveState::Done));
    assert_eq!(setting.ready(subscription).await.len(), 5);
}
