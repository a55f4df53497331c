//! The profile `pca-hub` on several nodes: one worker at a time, order and rest for each user.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::delivery::{Input, step};
use posthorn_domain::{Clock, DeliveryState, Epoch, Fence, Timestamp};
use posthorn_store::{Record, Recorded, Store};
use serde_json::Value;

use crate::house::{Seen, TENANT, answered, rest};
use crate::pca_hub::{ROOT, event, hub, only, open, user};

fn number(seen: &Seen) -> u64 {
    let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
    body["n"].as_u64().expect("a number")
}

#[tokio::test(start_paused = true)]
async fn two_workers_make_one_call_of_each_message() {
    let (house, first) = hub(1).await;
    let second = house.engine(2).await;
    house.receivers.script(ROOT, |_, _| (Duration::from_millis(50), answered(200)));
    for n in 0..20 {
        let node = if n % 2 == 0 { &first } else { &second };
        node.publish(TENANT, user(&format!("acc-{n}"), n)).await.expect("accepted");
    }
    rest(60).await;
    let mut seen: Vec<u64> = house.receivers.of(ROOT).iter().map(number).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_killed_worker_keeps_the_lock_for_180_seconds_and_not_longer() {
    let (house, first) = hub(3).await;
    // The first call is never answered; the worker dies meanwhile.
    house.receivers.script(ROOT, |nth, _| {
        let wait = if nth == 0 { Duration::from_secs(86_400) } else { Duration::ZERO };
        (wait, answered(200))
    });
    first.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
    first.publish(TENANT, user("acc-1", 2)).await.expect("accepted");
    rest(5).await;
    let begun = house.receivers.of(ROOT)[0].at;
    first.kill();
    let second = house.engine(4).await;
    rest(165).await;
    assert_eq!(house.receivers.of(ROOT).len(), 1, "the lock still holds, also for those behind");
    rest(60).await;
    let seen = house.receivers.of(ROOT);
    assert_eq!(seen.iter().map(number).collect::<Vec<_>>(), [1, 1, 2]);
    let after = seen[1].at.since(begun).as_millis();
    assert!((179_900..190_000).contains(&after), "{after} ms after the lock was taken");
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_the_handler_releases_the_lock_at_once() {
    let (house, engine) = hub(5).await;
    // A call that crashes is not noted as seen, so that the script counts for itself.
    let calls = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&calls);
    house.receivers.script(ROOT, move |_, _| {
        let mut calls = counted.lock();
        *calls += 1;
        assert!(*calls > 1, "the handler crashes");
        (Duration::ZERO, answered(200))
    });
    let began = house.clock.now();
    engine.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
    rest(60).await;
    assert_eq!(*calls.lock(), 2);
    let retried = house.receivers.of(ROOT)[0].at.since(began).as_millis();
    assert!((11_000..=20_100).contains(&retried), "the first retry, not 180 s: {retried} ms");
    let delivered = only(&house).await;
    assert_eq!((delivered.state, delivered.attempts), (DeliveryState::Delivered, 2));
}

#[tokio::test(start_paused = true)]
async fn an_old_owner_cannot_release_a_newer_lock() {
    let (house, first) = hub(6).await;
    house.receivers.script(ROOT, |nth, _| {
        let wait = [86_400, 60, 0][nth.min(2)];
        (Duration::from_secs(wait), answered(200))
    });
    first.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
    first.publish(TENANT, user("acc-1", 2)).await.expect("accepted");
    rest(5).await;
    first.kill();
    let second = house.engine(7).await;
    rest(180).await;
    assert_eq!(house.receivers.of(ROOT).len(), 2, "the new owner has the lock");
    let head = || house.store.all_deliveries().into_iter().min_by_key(|delivery| delivery.seq);
    let locked = head().expect("there");
    assert_eq!(locked.state, DeliveryState::InFlight);
    // The old owner's call ends after all, and it says so with every epoch it may have had.
    let view = second.catalog().view(locked.subscription).expect("known");
    let policy = view.policy.clone().expect("valid");
    let happened = answered(200);
    let now = house.clock.now();
    let step = step(&locked, &Input::Attempted(&happened), &policy, now, 0).expect("possible");
    for epoch in 0..4 {
        let fence = Fence { shard: locked.shard(), epoch: Epoch(epoch), node: first.node() };
        let record = Record {
            fence,
            tenant: locked.tenant,
            delivery: locked.id,
            expected_attempts: locked.attempts,
            expected_revival: locked.revival,
            ordered: locked.lane.is_some(),
            step,
            attempt: None,
            standing: None,
            told: Vec::new(),
            at: now,
        };
        let answers = house.store.record(vec![record]).await.expect("answers");
        assert!(matches!(answers[..], [Recorded::Fenced]), "{answers:?}");
    }
    assert_eq!(head().expect("there").state, DeliveryState::InFlight, "still locked");
    assert_eq!(house.receivers.of(ROOT).len(), 2, "the next of the same user waits");
    rest(100).await;
    let seen = house.receivers.of(ROOT);
    assert_eq!(seen.iter().map(number).collect::<Vec<_>>(), [1, 1, 2]);
    assert_eq!(house.counts().await.delivered, 2);
}

/// When calls of each key began and ended.
type Calls = Arc<Mutex<Vec<(String, Timestamp, Timestamp)>>>;

#[tokio::test(start_paused = true)]
async fn two_seconds_and_order_for_each_user_on_all_nodes() {
    let (house, first) = hub(8).await;
    let second = house.engine(9).await;
    let other = "https://tenant2.hub.example/g/api/pca119";
    house.receivers.script(other, |_, _| (Duration::ZERO, open()));
    let calls: Calls = Arc::default();
    let noted = Arc::clone(&calls);
    house.receivers.script(ROOT, move |nth, seen| {
        let took = Duration::from_millis([30, 700, 5, 2_500][nth % 4]);
        let key = String::from_utf8_lossy(seen.headers["x-pca-tenant"].as_bytes()).into_owned();
        let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
        let key = format!("{key}/{}", body["account_id"].as_str().expect("text"));
        let end = seen.at.plus(posthorn_domain::Span::from_millis(took.as_millis() as u64));
        noted.lock().push((key, seen.at, end));
        (took, answered(200))
    });
    let began = house.clock.now();
    for n in 0..6 {
        let node = if n % 2 == 0 { &first } else { &second };
        for (tenant, account) in [("tenant1", "a"), ("tenant1", "b"), ("tenant2", "a")] {
            let event = event("user.updated", tenant, account, n);
            node.publish(TENANT, event).await.expect("accepted");
        }
    }
    rest(10).await;
    // In the middle of it a node dies, and another one takes over.
    first.kill();
    rest(400).await;
    let calls = calls.lock().clone();
    for key in ["tenant1/a", "tenant1/b", "tenant2/a"] {
        let own: Vec<_> = calls.iter().filter(|(k, ..)| k == key).collect();
        assert!(own.len() >= 6, "{key}");
        for pair in own.windows(2) {
            let gap = pair[1].1.as_millis() - pair[0].2.as_millis();
            assert!(gap >= 2_000, "{key}: {gap} ms after the end of the call before");
        }
        let first = own[0].1.since(began).as_millis();
        assert!(first < 3_000, "{key} waits for nobody else: {first} ms");
    }
    assert_eq!(house.counts().await.delivered, 18);
    let seen = house.receivers.of(ROOT);
    for (tenant, account) in [("tenant1", "a"), ("tenant1", "b"), ("tenant2", "a")] {
        let own = seen.iter().filter(|seen| {
            let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
            body["account_id"] == account && seen.headers["x-pca-tenant"] == tenant
        });
        let mut order: Vec<u64> = own.map(number).collect();
        order.dedup();
        assert_eq!(order, [0, 1, 2, 3, 4, 5], "{tenant}/{account}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_with_an_absurd_name_keeps_its_order_too() {
    let (house, engine) = hub(12).await;
    let names = ["x".repeat(400), "line\nbreak".to_owned()];
    for n in 0..3 {
        for name in &names {
            engine.publish(TENANT, user(name, n)).await.expect("accepted");
        }
    }
    rest(60).await;
    for name in &names {
        let own: Vec<Seen> = house
            .receivers
            .of(ROOT)
            .into_iter()
            .filter(|seen| {
                let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
                body["account_id"] == *name
            })
            .collect();
        assert_eq!(own.iter().map(number).collect::<Vec<_>>(), [0, 1, 2]);
        for pair in own.windows(2) {
            assert!(pair[1].at.since(pair[0].at).as_millis() >= 2_000);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_between_retries_keeps_number_and_time() {
    let (house, first) = hub(10).await;
    house.receivers.script(ROOT, |_, _| (Duration::ZERO, answered(500)));
    first.publish(TENANT, user("acc-1", 1)).await.expect("accepted");
    rest(60).await;
    let before = only(&house).await;
    assert_eq!(before.attempts, 2);
    first.kill();
    rest(30).await;
    let second = house.engine(11).await;
    rest(10).await;
    let after = only(&house).await;
    assert_eq!((after.attempts, after.due_at), (2, before.due_at));
    rest(9_000).await;
    let seen = house.receivers.of(ROOT);
    assert_eq!(seen.len(), 6, "the rest of the same budget");
    let late = seen[2].at.since(before.due_at).as_millis();
    assert!(seen[2].at >= before.due_at && late < 1_000, "{late} ms late");
    drop(second);
}
