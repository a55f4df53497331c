//! The oracle itself: each rule is shown a good run and a bad one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use posthorn_domain::delivery::{Step, SubscriptionEffect};
use posthorn_domain::policy::{Backoff, Jitter, OrderScope, Policy, profiles};
use posthorn_domain::{
    Attempt, Budget, CatalogVersion, DeadReason, DeliveryId, DeliveryState, Destination, Epoch,
    Event, EventId, EventType, Fence, Filter, Lane, NodeId, ProfileName, Shard, Span, Stops,
    Subscription, SubscriptionId, SubscriptionStatus, TenantId, Timestamp, TopicName,
};
use posthorn_engine::Published;
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_store::{
    Accepted, CatalogChange, Grant, Moved, NewDelivery, NewEvent, Placed, Prune, Pruned, Record,
    Recorded,
};

use super::{Arrival, Invariant, Oracle, PublishVerdict, Seen};

const T0: i64 = 1_750_000_000_000;
const TTL: Duration = Duration::from_secs(10);

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(T0 + ms)
}

fn node(n: u128) -> NodeId {
    NodeId::new(at(0), n)
}

fn subscription() -> SubscriptionId {
    SubscriptionId::new(at(0), 7)
}

fn delivery(n: u128) -> DeliveryId {
    DeliveryId::new(at(0), n)
}

fn event(n: u128) -> Arc<Event> {
    Arc::new(Event {
        id: EventId::new(at(0), n),
        tenant: TenantId::DEFAULT,
        topic: TopicName::new("t").expect("a name"),
        event_type: EventType::new("e").expect("a type"),
        attributes: BTreeMap::new(),
        key: None,
        content_type: "text/plain".to_owned(),
        payload: Bytes::from(format!("payload {n}")),
        accepted_at: at(0),
        publisher_id: None,
        deliver_at: None,
        retention: None,
        expunged_at: None,
        trace: None,
    })
}

fn policy() -> Policy {
    let mut policy = profiles::default_profile();
    policy.auth = Vec::new();
    policy.order.scope = OrderScope::Subscription;
    policy.schedule.backoff = Backoff::Fixed { wait: Span::from_secs(10) };
    policy.schedule.jitter = Jitter::None;
    policy.schedule.max_attempts = Some(2);
    policy
}

/// One subscription with an ordered lane, one node that holds its shard, two accepted events.
struct Scene {
    oracle: Oracle,
}

impl Scene {
    fn new() -> Self {
        let profile = ProfileName::new("p").expect("a name");
        let vault = Vault::new(vec![VaultKey::generate()]).expect("a vault");
        let profiles = BTreeMap::from([(profile.clone(), policy())]);
        let mut oracle = Oracle::new(1, TTL, 16, &profiles, Arc::new(vault));
        let new = Subscription {
            id: subscription(),
            tenant: TenantId::DEFAULT,
            name: None,
            description: String::new(),
            labels: posthorn_domain::Labels::default(),
            metadata: posthorn_domain::Metadata::default(),
            destination: Destination::Webhook { url: "https://r/0/v0".to_owned() },
            filter: Filter::everything(),
            profile,
            overrides: serde_json::Value::Null,
            secrets: Vec::new(),
            status: SubscriptionStatus::Active,
            stops: Stops::default(),
            created_at: at(0),
            updated_at: at(0),
            version: CatalogVersion(2),
        };
        let change = CatalogChange::CreateSubscription(Box::new(new));
        oracle.changed(at(0), &change, CatalogVersion(2));
        let grant = Grant { shard: Shard::of(subscription()), epoch: Epoch(1) };
        oracle.acquired(at(0), node(1), &[grant], TTL);
        let mut scene = Self { oracle };
        scene.accept(1, CatalogVersion(2), false);
        scene.accept(2, CatalogVersion(2), true);
        scene
    }

    fn accept(&mut self, n: u128, catalog: CatalogVersion, parked: bool) {
        let new = NewEvent {
            event: event(n),
            idempotency: None,
            catalog,
            deliveries: vec![NewDelivery {
                id: delivery(n),
                subscription: subscription(),
                lane: Some(Lane::Subscription),
                due_at: at(0),
            }],
        };
        let placed = Accepted::Stored(vec![Placed { seq: n as u64, parked }]);
        self.oracle.accepted(at(0), &[new], &[placed]);
    }

    fn request(&mut self, ms: i64, sender: u128, n: u128, number: u32, body: &str) -> usize {
        let body = Bytes::from(body.to_owned());
        let arrival = Arrival {
            life: sender as usize,
            node: Some(node(sender)),
            node_now: at(ms),
            tenant: TenantId::DEFAULT,
            subscription: subscription(),
            delivery: Some(delivery(n)),
            event: Some(EventId::new(at(0), n)),
            number,
            url: "https://r/0/v0",
            label: "0",
            profile: "",
            body: &body,
            signature: None,
        };
        self.oracle.request_began(at(ms), &arrival).expect("a known delivery")
    }

    fn answer(&mut self, ms: i64, index: usize, status: u16) {
        let taken = status == 200;
        let seen = Seen { status: Some(status), taken, ..Seen::default() };
        self.oracle.request_ended(at(ms), index, Some(&seen));
    }

    fn record(&mut self, ms: i64, n: u128, number: u32, step: (DeliveryState, i64, u16)) {
        let (state, due, status) = step;
        let ended = state.is_terminal();
        let record = Record {
            fence: Fence { shard: Shard::of(subscription()), epoch: Epoch(1), node: node(1) },
            tenant: TenantId::DEFAULT,
            delivery: delivery(n),
            expected_attempts: number - 1,
            expected_revival: 0,
            ordered: false,
            step: Step {
                state,
                due_at: at(due),
                charge: true,
                release_lane: ended,
                subscription: SubscriptionEffect::None,
            },
            attempt: Some(Attempt {
                delivery: delivery(n),
                number,
                started_at: at(ms),
                took: Span::ZERO,
                timings: posthorn_domain::Timings::default(),
                status: Some(status),
                failure: None,
                detail: String::new(),
                response: Bytes::new(),
                late: false,
                manual: false,
                response_expunged_at: None,
                request: None,
            }),
            standing: None,
            told: Vec::new(),
            at: at(ms),
        };
        let promoted = self.oracle.deliveries.get(&delivery(2)).filter(|_| ended && n == 1);
        let promoted = promoted.map(|entry| posthorn_store::Work {
            delivery: entry.delivery.clone(),
            event: event(2),
        });
        self.oracle.recorded(at(ms), &[record], &[Recorded::Written { promoted }]);
    }

    #[track_caller]
    fn check(&self, expected: &[Invariant]) {
        let found: Vec<Invariant> = self.oracle.violations.iter().map(|v| v.invariant).collect();
        assert_eq!(found, expected, "{:#?}", self.oracle.violations);
    }
}

#[test]
fn a_good_run_is_not_blamed() {
    let mut scene = Scene::new();
    let index = scene.request(10, 1, 1, 1, "payload 1");
    scene.answer(20, index, 500);
    scene.record(20, 1, 1, (DeliveryState::Pending, 10_020, 500));
    let beat = posthorn_store::Heartbeat {
        node: node(1),
        ttl: TTL,
        catalog: CatalogVersion(2),
        version: "1",
    };
    scene.oracle.beat(at(9_000), &beat);
    let index = scene.request(10_020, 1, 1, 2, "payload 1");
    scene.answer(10_030, index, 200);
    scene.record(10_030, 1, 2, (DeliveryState::Delivered, 0, 200));
    let index = scene.request(10_040, 1, 2, 1, "payload 2");
    scene.answer(10_050, index, 200);
    scene.check(&[]);
}

#[test]
fn fan_out_on_an_old_catalog_is_noticed() {
    let mut scene = Scene::new();
    scene.accept(3, CatalogVersion(1), true);
    scene.check(&[Invariant::I14]);
}

#[test]
fn a_change_without_its_line_and_a_line_without_its_change_are_noticed() {
    let tenant = Some(TenantId::DEFAULT);
    let line = posthorn_domain::AuditEntry {
        id: posthorn_domain::AuditId::new(at(5), 1),
        actor: posthorn_domain::Actor::SERVER,
        origin: posthorn_domain::Origin { surface: "server".to_owned(), address: None },
        action: posthorn_domain::AuditAction::TopicCreated,
        tenant,
        realm: None,
        object: posthorn_domain::AuditObject {
            kind: "topic".to_owned(),
            id: "orders".to_owned(),
            name: None,
        },
        detail: serde_json::Map::new(),
    };
    for (did, kept, of, fine) in [
        (true, true, tenant, true),
        (false, false, tenant, true),
        (true, false, tenant, false),
        (false, true, tenant, false),
        (true, true, None, false),
    ] {
        let mut scene = Scene::new();
        let kept = kept.then_some(&line);
        scene.oracle.line_of_change(at(5), did, of, (Some(&line), kept));
        scene.check(if fine { &[] } else { &[Invariant::I21] });
    }
}

#[test]
fn a_lane_is_not_entered_twice() {
    let mut scene = Scene::new();
    scene.accept(3, CatalogVersion(2), false);
    scene.check(&[Invariant::I5]);
}

#[test]
fn other_bytes_are_noticed() {
    let mut scene = Scene::new();
    scene.request(10, 1, 1, 1, "something else");
    scene.check(&[Invariant::I4]);
}

#[test]
fn attempts_without_a_lease_and_out_of_turn_are_noticed() {
    let mut scene = Scene::new();
    scene.request(10, 2, 1, 1, "payload 1");
    scene.check(&[Invariant::I7]);
    // The lease is old enough that no aftermath of a handover explains anything.
    let mut scene = Scene::new();
    let beat = posthorn_store::Heartbeat {
        node: node(1),
        ttl: TTL,
        catalog: CatalogVersion(2),
        version: "1",
    };
    for ms in (5_000..=65_000).step_by(5_000) {
        scene.oracle.beat(at(ms), &beat);
    }
    scene.request(65_100, 1, 2, 1, "payload 2");
    scene.check(&[Invariant::I5]);
}

#[test]
fn two_requests_of_one_lane_at_once_are_noticed() {
    let mut scene = Scene::new();
    scene.request(10, 1, 1, 1, "payload 1");
    scene.request(20, 1, 1, 1, "payload 1");
    scene.check(&[Invariant::I6]);
}

#[test]
fn early_retries_and_surplus_attempts_are_noticed() {
    let mut scene = Scene::new();
    let index = scene.request(10, 1, 1, 1, "payload 1");
    scene.answer(20, index, 500);
    scene.record(20, 1, 1, (DeliveryState::Pending, 9_000, 500));
    scene.check(&[Invariant::I9]);
    let index = scene.request(9_100, 1, 1, 2, "payload 1");
    scene.answer(9_200, index, 500);
    scene.record(9_200, 1, 2, (DeliveryState::Pending, 19_200, 500));
    scene.check(&[Invariant::I9, Invariant::I10]);
}

#[test]
fn invented_and_wrong_endings_are_noticed() {
    let mut scene = Scene::new();
    scene.record(20, 1, 1, (DeliveryState::Delivered, 0, 200));
    scene.check(&[Invariant::I4]);
    let mut scene = Scene::new();
    let index = scene.request(10, 1, 1, 1, "payload 1");
    scene.answer(20, index, 500);
    scene.record(20, 1, 1, (DeliveryState::Dead(DeadReason::Exhausted), 0, 500));
    scene.check(&[Invariant::I10]);
}

#[test]
fn late_writers_are_noticed() {
    let mut scene = Scene::new();
    let index = scene.request(10, 1, 1, 1, "payload 1");
    scene.answer(20, index, 200);
    // Its lease has run out, and somebody else has the shard.
    let shard = Shard::of(subscription());
    scene.oracle.acquired(at(10_500), node(2), &[Grant { shard, epoch: Epoch(2) }], TTL);
    scene.record(11_000, 1, 1, (DeliveryState::Delivered, 0, 200));
    scene.check(&[Invariant::I8]);
    // Until then it may say what became of its attempt.
    let mut scene = Scene::new();
    let index = scene.request(10, 1, 1, 1, "payload 1");
    scene.answer(20, index, 200);
    scene.record(11_000, 1, 1, (DeliveryState::Delivered, 0, 200));
    scene.check(&[]);
}

#[test]
fn requests_after_an_unsubscribe_are_noticed() {
    let mut scene = Scene::new();
    scene.oracle.promised_stop(at(5), subscription());
    scene.request(10, 1, 1, 1, "payload 1");
    scene.check(&[Invariant::I12]);
}

#[test]
fn shards_are_given_to_one_only() {
    let mut scene = Scene::new();
    let grant = Grant { shard: Shard::of(subscription()), epoch: Epoch(2) };
    scene.oracle.acquired(at(9_999), node(2), &[grant], TTL);
    scene.check(&[Invariant::I7]);
    scene.oracle.acquired(at(30_000), node(3), &[grant], TTL);
    scene.check(&[Invariant::I7, Invariant::I7]);
}

#[test]
fn acknowledged_means_stored() {
    let mut scene = Scene::new();
    let told = |n| Published {
        id: EventId::new(at(0), n),
        accepted_at: at(0),
        deliveries: 1,
        duplicate: false,
    };
    scene.oracle.published(at(1), &event(1).payload, &told(1));
    scene.check(&[]);
    scene.oracle.published(at(1), &event(9).payload, &told(9));
    scene.oracle.check_publish(at(1), &event(1).payload, PublishVerdict::Refused, None);
    scene.check(&[Invariant::I1, Invariant::I1, Invariant::I2]);
}

#[test]
fn retention_leaves_unfinished_work_alone() {
    let mut scene = Scene::new();
    let prune = Prune {
        now: at(0),
        ended_before: at(100),
        dead_before: at(100),
        keys_before: at(100),
        recalls_before: at(0),
        audit_before: at(0),
        limit: 10,
    };
    let answer = Pruned { events: 1, keys: 0, redrives: 0, audit: 0, more: false };
    let left = [EventId::new(at(0), 1)].into();
    scene.oracle.pruned(at(200), &prune, &answer, &left);
    scene.check(&[Invariant::I16]);
}

#[test]
fn stuck_work_is_noticed_in_the_end() {
    let mut scene = Scene::new();
    assert!(!scene.oracle.check_progress(at(1_000), at(0)), "there is something to do");
    scene.check(&[]);
    scene.oracle.check_progress(at(1_000_000), at(0));
    scene.check(&[Invariant::I20]);
}

/// The owner's lease goes on to the end of these scenes.
fn keep_alive(scene: &mut Scene, until: i64) {
    let beat = posthorn_store::Heartbeat {
        node: node(1),
        ttl: TTL,
        catalog: CatalogVersion(2),
        version: "1",
    };
    for ms in (5_000..=until).step_by(5_000) {
        scene.oracle.beat(at(ms), &beat);
    }
}

fn moved(scene: &Scene, n: u128, ready: Option<u128>, recalls: bool) -> Moved {
    let work = |n: u128| posthorn_store::Work {
        delivery: scene.oracle.deliveries[&delivery(n)].delivery.clone(),
        event: event(n),
    };
    Moved {
        delivery: work(n).delivery,
        ready: ready.map(work),
        recall: recalls.then_some(CatalogVersion(9)),
    }
}

#[test]
fn requests_after_a_cancel_are_noticed_once_it_was_promised() {
    for (ms, promised, expected) in [
        (20, false, &[][..]),
        (20, true, &[Invariant::I12][..]),
        (60_000, false, &[Invariant::I15][..]),
    ] {
        let mut scene = Scene::new();
        // So long ago that no handover explains anything.
        keep_alive(&mut scene, 130_000);
        let began = 65_000;
        let answer = Ok(moved(&scene, 1, Some(2), true));
        let tenant = TenantId::DEFAULT;
        scene.oracle.cancelled(at(began), tenant, delivery(1), at(began), &answer);
        if promised {
            scene.oracle.promised_quiet(delivery(1));
        }
        scene.request(began + ms, 1, 1, 1, "payload 1");
        scene.check(expected);
    }
}

#[test]
fn what_was_forgotten_before_its_publisher_heard_is_not_missed() {
    let mut scene = Scene::new();
    let answer = Ok(moved(&scene, 1, Some(2), true));
    scene.oracle.forgot(at(1), TenantId::DEFAULT, delivery(1), at(1), &answer);
    let told = Published { id: event(1).id, accepted_at: at(0), deliveries: 1, duplicate: false };
    scene.oracle.published(at(2), &event(1).payload, &told);
    scene.check(&[]);
}

#[test]
fn requests_for_what_was_forgotten_are_noticed() {
    for (promised, expected) in [(false, &[][..]), (true, &[Invariant::I12][..])] {
        let mut scene = Scene::new();
        let answer = Ok(moved(&scene, 1, Some(2), true));
        scene.oracle.forgot(at(10), TenantId::DEFAULT, delivery(1), at(10), &answer);
        if promised {
            scene.oracle.promised_quiet(delivery(1));
        }
        let body = Bytes::from("payload 1");
        let arrival = Arrival {
            life: 1,
            node: Some(node(1)),
            node_now: at(20),
            tenant: TenantId::DEFAULT,
            subscription: subscription(),
            delivery: Some(delivery(1)),
            event: Some(EventId::new(at(0), 1)),
            number: 1,
            url: "https://r/0/v0",
            label: "0",
            profile: "",
            body: &body,
            signature: None,
        };
        assert_eq!(scene.oracle.request_began(at(20), &arrival), None);
        scene.check(expected);
    }
}

#[test]
fn what_comes_back_goes_first_and_nobody_may_overtake_it() {
    let mut scene = Scene::new();
    keep_alive(&mut scene, 130_000);
    let index = scene.request(65_000, 1, 1, 1, "payload 1");
    scene.answer(65_010, index, 500);
    scene.record(65_010, 1, 1, (DeliveryState::Pending, 75_010, 500));
    let index = scene.request(75_010, 1, 1, 2, "payload 1");
    scene.answer(75_020, index, 500);
    scene.record(75_020, 1, 2, (DeliveryState::Dead(DeadReason::Exhausted), 0, 500));
    scene.check(&[]);
    // The second is at the head, and has to wait when the first comes back.
    let answer = Ok(moved(&scene, 1, None, false));
    scene.oracle.retried(
        at(76_000),
        TenantId::DEFAULT,
        (delivery(1), Budget::Fresh),
        at(76_000),
        &answer,
    );
    scene.check(&[Invariant::I12]);
    assert!(scene.oracle.deliveries[&delivery(2)].delivery.is_parked());
    assert_eq!(scene.oracle.deliveries[&delivery(1)].delivery.due_at, at(76_000));
    // Long after every node has heard of it, the second is sent all the same.
    scene.request(100_000, 1, 2, 1, "payload 2");
    scene.check(&[Invariant::I12, Invariant::I5]);
}
