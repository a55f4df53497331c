//! Cases about writing down what became of deliveries, and about late writers.

use std::time::Duration;

use bytes::Bytes;
use posthorn_domain::{
    Attempt, DeadReason, DeliveryId, DeliveryState, Epoch, FailureCode, Fence, Held, NodeId,
    SentRequest, Shard, Span, SubscriptionId, Timestamp, Timings, WaitReason,
};

use super::Fixture;
use super::builders::{
    SHORT, Setting, at, attempt, dead_skip, delivered, dropped, failed, node, postponed,
};
use posthorn_store::{Grant, Record, Recorded};

async fn one(setting: &Setting) -> (SubscriptionId, DeliveryId) {
    let subscription = setting.subscribe().await;
    (subscription, setting.publish_one(subscription).await)
}

async fn history(setting: &Setting, id: DeliveryId) -> Vec<Attempt> {
    setting.store.attempts(setting.tenant, id).await.expect("attempts")
}

const WRITTEN: Recorded = Recorded::Written { promoted: None };

/// A delivered delivery has ended; nothing is pending any more.
pub async fn delivered_is_final(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, id) = one(&setting).await;
    assert_eq!(setting.record(id, delivered(), at(9)).await, None);
    let seen = setting.look(id).await;
    assert_eq!((seen.state, seen.attempts), (DeliveryState::Delivered, 1));
    assert_eq!(seen.ended_at, Some(at(9)));
    assert!(setting.ready(subscription).await.is_empty());
    let (_, other) = one(&setting).await;
    setting.record(other, dead_skip(), at(10)).await;
    let seen = setting.look(other).await;
    assert_eq!(seen.state, DeliveryState::Dead(DeadReason::Exhausted));
    assert_eq!(seen.ended_at, Some(at(10)));
}

/// A failed attempt is counted and the delivery waits for its new time.
pub async fn failure_waits_for_its_time(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, id) = one(&setting).await;
    for round in 1..=3 {
        setting.record(id, failed(at(100 * round)), at(100 * round - 50)).await;
        let seen = setting.look(id).await;
        assert_eq!(i64::from(seen.attempts), round);
        assert_eq!((seen.state, seen.due_at), (DeliveryState::Pending, at(100 * round)));
        assert_eq!((seen.ended_at, seen.budget_base), (None, 0));
        assert!(setting.pending(subscription, at(100 * round - 1)).await.is_empty());
        assert_eq!(setting.pending(subscription, at(100 * round)).await.len(), 1);
    }
    let numbers: Vec<u32> = history(&setting, id).await.iter().map(|a| a.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

/// A postponed delivery has neither more attempts nor history.
pub async fn postponing_charges_nothing(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (_, id) = one(&setting).await;
    setting.record(id, postponed(at(500)), at(10)).await;
    let seen = setting.look(id).await;
    assert_eq!((seen.attempts, seen.due_at), (0, at(500)));
    assert!(history(&setting, id).await.is_empty());
}

/// Every field of an attempt comes back, oldest first.
pub async fn attempts_read_back_as_they_were(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (_, id) = one(&setting).await;
    let rich = Attempt {
        timings: Timings {
            dns: Some(Span::ZERO),
            connect: Some(Span::from_millis(3)),
            tls: None,
            first_byte: Some(Span::from_secs(20)),
            held: Some(Held {
                until_due: WaitReason::Lane,
                late: Span::from_secs(4),
                by: Some(WaitReason::RetryAfter),
            }),
        },
        took: Span::from_millis(86_400_000),
        status: Some(503),
        detail: "é \"quoted\"".to_owned(),
        response: Bytes::from((0..=255).collect::<Vec<u8>>()),
        request: Some(Box::new(SentRequest {
            method: "POST".to_owned(),
            url: Some("https://receiver.example/é?a=1".to_owned()),
            headers: vec![
                ("authorization".to_owned(), None),
                ("x-odd".to_owned(), Some("\"\\ \0é".to_owned())),
            ],
            body_bytes: 12,
            cut: true,
        })),
        ..attempt(id, 1, 503)
    };
    let broken =
        Attempt { status: None, failure: Some(FailureCode::ConnectTimeout), ..attempt(id, 2, 0) };
    let bare = Attempt { took: Span::ZERO, ..attempt(id, 3, 200) };
    for (attempt, step) in
        [(&rich, failed(at(10))), (&broken, failed(at(20))), (&bare, delivered())]
    {
        let record =
            Record { attempt: Some(attempt.clone()), ..setting.report(id, step, at(9)).await };
        assert_eq!(setting.record_one(record).await, WRITTEN);
    }
    assert_eq!(history(&setting, id).await, [rich, broken, bare]);
}

/// Each stable code survives.
pub async fn every_failure_code_reads_back(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (_, id) = one(&setting).await;
    for code in FailureCode::ALL {
        let mut record = setting.report(id, failed(at(10)), at(9)).await;
        if let Some(attempt) = &mut record.attempt {
            (attempt.status, attempt.failure) = (None, Some(code));
        }
        assert_eq!(setting.record_one(record).await, WRITTEN);
    }
    let codes: Vec<_> = history(&setting, id).await.iter().filter_map(|a| a.failure).collect();
    assert_eq!(codes, FailureCode::ALL);
}

/// A batch with good, fenced and superseded items: replies in order, each judged by itself.
pub async fn items_are_judged_by_themselves(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (_, good) = one(&setting).await;
    let (_, fenced) = one(&setting).await;
    let (_, moved) = one(&setting).await;
    let (_, last) = one(&setting).await;
    let mut batch = Vec::new();
    for id in [good, fenced, moved, last] {
        batch.push(setting.report(id, delivered(), at(9)).await);
    }
    batch[1].fence.epoch = Epoch(batch[1].fence.epoch.0 + 7);
    batch[2].expected_attempts = 4;
    let replies = setting.store.record(batch).await.expect("record");
    assert_eq!(replies, [WRITTEN, Recorded::Fenced, Recorded::Superseded, WRITTEN]);
    for (id, state) in [
        (good, DeliveryState::Delivered),
        (fenced, DeliveryState::Pending),
        (moved, DeliveryState::Pending),
        (last, DeliveryState::Delivered),
    ] {
        assert_eq!(setting.look(id).await.state, state);
    }
}

/// What is nearly always written, among everything that is not: successes at once beside failures, beside the end of a
/// retry, beside what has ended already, and with another fence for the same shard. Written again, all of it is
/// superseded, and no attempt is doubled.
pub async fn every_kind_goes_into_one_batch(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(setting.publish_one(subscription).await);
    }
    setting.record(ids[1], failed(at(5)), at(4)).await;
    let too_late = setting.report(ids[2], delivered(), at(9)).await;
    setting.record(ids[2], delivered(), at(4)).await;
    let before = setting.store.counts(None).await.expect("counts");
    let mut batch = Vec::new();
    for (place, id) in ids.iter().enumerate() {
        let step = match place {
            3 => failed(at(99)),
            4 => dead_skip(),
            _ => delivered(),
        };
        batch.push(setting.report(*id, step, at(9)).await);
    }
    let second = Attempt { started_at: at(8), ..attempt(ids[2], 1, 204) };
    batch[2] = Record { attempt: Some(second), ..too_late };
    let owners = batch.clone();
    // With one fence for all, and then with a stranger among them.
    let mut wanted = [WRITTEN; 8];
    wanted[2] = Recorded::Superseded;
    wanted[6] = Recorded::Fenced;
    wanted[7] = Recorded::Fenced;
    for stranger in [6, 7] {
        batch[stranger].fence.epoch = Epoch(batch[stranger].fence.epoch.0 + 1);
    }
    let replies = setting.store.record(batch).await.expect("record");
    assert_eq!(replies, wanted);
    for (place, id) in ids.iter().enumerate() {
        let (state, attempts) = match place {
            1 => (DeliveryState::Delivered, 2),
            3 => (DeliveryState::Pending, 1),
            4 => (DeliveryState::Dead(DeadReason::Exhausted), 1),
            6 | 7 => (DeliveryState::Pending, 0),
            _ => (DeliveryState::Delivered, 1),
        };
        let seen = setting.look(*id).await;
        assert_eq!((seen.state, seen.attempts), (state, attempts), "{place}");
    }
    let after = setting.store.counts(None).await.expect("counts");
    assert_eq!((after.delivered - before.delivered, after.dead - before.dead), (3, 1));
    assert_eq!(before.pending - after.pending, 4);
    let kept: Vec<usize> = {
        let mut kept = Vec::new();
        for id in &ids {
            kept.push(history(&setting, *id).await.len());
        }
        kept
    };
    assert_eq!(kept, [1, 2, 2, 1, 1, 1, 1, 1]);
    assert!(history(&setting, ids[2]).await.iter().any(|made| made.late));

    let replies = setting.store.record(owners).await.expect("record");
    let mut wanted = vec![Recorded::Superseded; 8];
    wanted[6] = WRITTEN;
    wanted[7] = WRITTEN;
    assert_eq!(replies, wanted);
    assert_eq!(history(&setting, ids[0]).await.len(), 1);
    assert_eq!(setting.look(ids[6]).await.state, DeliveryState::Delivered);
}

/// Nothing of the delivery changes when its writer is fenced.
async fn stays_fenced(
    setting: &Setting,
    subscription: SubscriptionId,
    id: DeliveryId,
    fence: Fence,
) {
    let before = setting.look(id).await;
    for step in [delivered(), failed(at(99)), dead_skip(), dropped(), postponed(at(99))] {
        let record = Record { fence, ..setting.report(id, step, at(9)).await };
        assert_eq!(setting.record_one(record).await, Recorded::Fenced);
    }
    assert_eq!(setting.look(id).await, before);
    assert_eq!(setting.ready(subscription).await, [id]);
}

/// A writer of an earlier or later epoch changes nothing.
pub async fn wrong_epoch_is_fenced(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, id) = one(&setting).await;
    let good = setting.fence(subscription);
    for epoch in [good.epoch.0 - 1, good.epoch.0 + 1] {
        let fence = Fence { epoch: Epoch(epoch), ..good };
        stays_fenced(&setting, subscription, id, fence).await;
    }
}

/// A writer that is not the holder changes nothing.
pub async fn wrong_node_is_fenced(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, id) = one(&setting).await;
    let fence = Fence { node: node(), ..setting.fence(subscription) };
    stays_fenced(&setting, subscription, id, fence).await;
}

/// A writer whose shard was given back changes nothing.
pub async fn unheld_shard_is_fenced(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, id) = one(&setting).await;
    let fence = setting.fence(subscription);
    let grant = Grant { shard: fence.shard, epoch: fence.epoch };
    setting.store.release_shards(setting.node, &[grant]).await.expect("release");
    stays_fenced(&setting, subscription, id, fence).await;
}

async fn take(setting: &Setting, who: NodeId, shard: Shard, ttl: Duration) -> Vec<Grant> {
    setting.store.acquire_shards(who, &[shard], ttl).await.expect("acquire")
}

/// A writer whose lease has run out can still say what became of its attempts, until somebody takes the shard: then it
/// changes nothing any more.
pub async fn outcomes_are_written_until_somebody_takes_the_shard(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, id) = one(&setting).await;
    let held = setting.fence(subscription);
    let grant = Grant { shard: held.shard, epoch: held.epoch };
    setting.store.release_shards(setting.node, &[grant]).await.expect("release");
    let grants = take(&setting, setting.node, held.shard, SHORT).await;
    let fence = Fence { epoch: grants[0].epoch, ..held };
    tokio::time::sleep(SHORT + Duration::from_millis(100)).await;
    let record = Record { fence, ..setting.report(id, failed(at(50)), at(9)).await };
    assert_eq!(setting.record_one(record).await, WRITTEN);
    assert_eq!(setting.look(id).await.attempts, 1);

    let heir = node();
    let grants = take(&setting, heir, held.shard, Duration::from_secs(60)).await;
    assert!(grants[0].epoch > fence.epoch);
    stays_fenced(&setting, subscription, id, fence).await;
    let fence = Fence { node: heir, epoch: grants[0].epoch, ..held };
    let record = Record { fence, ..setting.report(id, delivered(), at(60)).await };
    assert_eq!(setting.record_one(record).await, WRITTEN);
}

/// A writer that knows another number of attempts changes nothing.
pub async fn other_count_is_superseded(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (_, id) = one(&setting).await;
    setting.record(id, failed(at(50)), at(9)).await;
    let before = setting.look(id).await;
    for expected_attempts in [0, 2] {
        let record = Record { expected_attempts, ..setting.report(id, delivered(), at(10)).await };
        assert_eq!(setting.record_one(record).await, Recorded::Superseded);
    }
    assert_eq!(setting.look(id).await, before);
}

/// What has ended stays so.
pub async fn ended_delivery_supersedes(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    for end in [delivered(), dead_skip(), dropped()] {
        let (_, id) = one(&setting).await;
        setting.record(id, end, at(9)).await;
        let before = setting.look(id).await;
        for step in [delivered(), failed(at(99)), postponed(at(99))] {
            let record = setting.report(id, step, at(10)).await;
            assert_eq!(setting.record_one(record).await, Recorded::Superseded);
        }
        assert_eq!(setting.look(id).await, before);
    }
}

/// A delivery nobody knows (any more) is nobody's problem.
pub async fn unknown_delivery_is_superseded(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (_, id) = one(&setting).await;
    let unknown = DeliveryId::new(at(0), u128::MAX);
    let record = Record {
        delivery: unknown,
        attempt: Some(attempt(unknown, 1, 200)),
        ..setting.report(id, delivered(), at(9)).await
    };
    assert_eq!(setting.record_one(record).await, Recorded::Superseded);
    assert!(history(&setting, unknown).await.is_empty());
}

/// The attempt of a fenced or superseded item is kept for audit, and marked.
pub async fn late_attempts_are_kept_and_marked(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (_, id) = one(&setting).await;
    let late = |started: i64| Attempt { started_at: at(started), ..attempt(id, 1, 200) };
    let mut fenced = setting.report(id, delivered(), at(9)).await;
    fenced.fence.node = node();
    fenced.attempt = Some(late(3));
    assert_eq!(setting.record_one(fenced).await, Recorded::Fenced);
    setting.record(id, failed(at(50)), at(9)).await;
    let mut superseded = setting.report(id, delivered(), at(9)).await;
    superseded.expected_attempts = 0;
    superseded.attempt = Some(late(4));
    assert_eq!(setting.record_one(superseded).await, Recorded::Superseded);

    let mut kept: Vec<(Timestamp, bool)> =
        history(&setting, id).await.iter().map(|a| (a.started_at, a.late)).collect();
    kept.sort();
    assert_eq!(kept, [(at(1), false), (at(3), true), (at(4), true)]);
    assert_eq!(setting.look(id).await.attempts, 1, "late attempts are not counted");
}

/// The same item again changes nothing and adds nothing.
pub async fn repeating_is_harmless(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (_, id) = one(&setting).await;
    for step in [failed(at(50)), delivered()] {
        let record = setting.report(id, step, at(9)).await;
        assert_eq!(setting.record_one(record.clone()).await, WRITTEN);
        let (delivery, attempts) = (setting.look(id).await, history(&setting, id).await);
        for _ in 0..2 {
            assert_eq!(setting.record_one(record.clone()).await, Recorded::Superseded);
        }
        assert_eq!(setting.look(id).await, delivery);
        assert_eq!(history(&setting, id).await, attempts);
    }
}

/// Also inside one batch the first counts.
pub async fn same_item_twice_in_one_batch_counts_once(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (_, id) = one(&setting).await;
    let record = setting.report(id, failed(at(50)), at(9)).await;
    let replies = setting.store.record(vec![record.clone(), record]).await.expect("record");
    assert_eq!(replies, [WRITTEN, Recorded::Superseded]);
    assert_eq!(setting.look(id).await.attempts, 1);
    assert_eq!(history(&setting, id).await.len(), 1);
}

/// What was written down is there after a crash, and old epochs stay fenced.
pub async fn records_survive_reopening(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (_, a) = one(&setting).await;
    let (_, b) = one(&setting).await;
    setting.record(a, failed(at(50)), at(9)).await;
    setting.record(b, dead_skip(), at(9)).await;
    let before = (setting.look(a).await, setting.look(b).await, history(&setting, a).await);
    let setting = setting.reopen(fixture).await;
    let after = (setting.look(a).await, setting.look(b).await, history(&setting, a).await);
    assert_eq!(before, after);
    setting.record(a, delivered(), at(60)).await;
    assert_eq!(history(&setting, a).await.len(), 2);
}
