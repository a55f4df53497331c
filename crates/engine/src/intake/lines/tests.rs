use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{
    CatalogVersion, Event, EventId, EventType, SubscriptionId, Timestamp, TopicName,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::*;
use crate::admission::{Admission, AdmissionOptions};
use crate::matching::{Match, Plan};

const ROOM: Room = Room { events: 100, deliveries: 1_000, bytes: 1_000_000 };

fn tenant(n: u8) -> TenantId {
    TenantId::from_bytes([n; 16])
}

/// An event of a call, with so many deliveries. Its number is in its id.
fn pending(of: u8, call: u64, number: u128, deliveries: u128) -> Pending {
    let admission = Arc::new(Admission::new(AdmissionOptions::default()));
    let gauge = admission.gauge(tenant(of));
    let event = Event {
        id: EventId::new(Timestamp::MIN, number),
        tenant: tenant(of),
        topic: TopicName::new("t").expect("a name"),
        event_type: EventType::new("t").expect("a name"),
        attributes: BTreeMap::new(),
        key: None,
        content_type: String::new(),
        payload: Bytes::new(),
        accepted_at: Timestamp::MIN,
    };
    let found = |n| Match { subscription: SubscriptionId::new(Timestamp::MIN, n), lane: None };
    Pending {
        event: Arc::new(event),
        idempotency: None,
        reply: oneshot::channel().0,
        replans: 0,
        plan: Some(Plan {
            version: CatalogVersion(1),
            matches: (0..deliveries).map(found).collect(),
        }),
        call,
        ticket: admission.wait(&gauge, Instant::now()),
        _room: None,
    }
}

/// How many events of a tenant are in a group.
fn of(group: &Group, n: u8) -> usize {
    group.events.iter().filter(|taken| taken.event.tenant == tenant(n)).count()
}

#[test]
fn a_small_event_is_in_the_next_commit_whatever_another_tenant_has_waiting() {
    let mut lines = Lines::default();
    (0..500).for_each(|n| lines.push(pending(1, 7, n, 400)));
    let first = lines.cut(ROOM);
    assert_eq!((of(&first, 1), first.events.len()), (2, 2), "bounded in deliveries");
    lines.push(pending(2, 8, 1, 1));
    lines.release(&first.held);
    let second = lines.cut(ROOM);
    assert_eq!(of(&second, 2), 1);
    assert!(of(&second, 1) > 0, "and the other goes on");
}

#[test]
fn what_one_call_published_is_committed_in_order_and_never_twice_at_once() {
    let mut lines = Lines::default();
    (0..10).for_each(|n| lines.push(pending(1, 7, n, 300)));
    lines.push(pending(1, 8, 10, 1));
    let mut seen = Vec::new();
    while !lines.is_empty() {
        assert!(lines.is_ready(), "it waits for nothing");
        let group = lines.cut(ROOM);
        assert_eq!(group.events.len(), if seen.len() < 9 { 3 } else { 2 });
        if seen.len() < 9 {
            assert_eq!(group.held, [tenant(1)], "the rest of the call waits");
            assert!(!lines.is_ready());
        }
        seen.extend(group.events.iter().map(|taken| taken.event.id));
        lines.release(&group.held);
    }
    let expected: Vec<_> = (0..11).map(|n| EventId::new(Timestamp::MIN, n)).collect();
    assert_eq!(seen, expected);
}

#[test]
fn single_publishes_of_one_tenant_are_never_held() {
    let mut lines = Lines::default();
    (0..250_u32).for_each(|n| lines.push(pending(1, n.into(), n.into(), 1)));
    let groups: Vec<_> = std::iter::from_fn(|| lines.is_ready().then(|| lines.cut(ROOM))).collect();
    assert_eq!(groups.iter().map(|group| group.events.len()).collect::<Vec<_>>(), [100, 100, 50]);
    assert!(groups.iter().all(|group| group.held.is_empty()));
}

#[test]
fn tenants_with_heavy_events_share_commits_by_deliveries() {
    let mut lines = Lines::default();
    (0..1_000).for_each(|n| lines.push(pending(1, n, n.into(), 0)));
    (0..100).for_each(|n| lines.push(pending(2, n, n.into(), 100)));
    let group = lines.cut(Room { events: 1_000, ..ROOM });
    let (light, heavy) = (of(&group, 1), of(&group, 2));
    assert!((3..=10).contains(&heavy), "{heavy}");
    assert!(light >= 64 * heavy, "{light} beside {heavy}");
}

#[test]
fn an_event_that_fits_into_no_commit_has_one_of_its_own() {
    let mut lines = Lines::default();
    lines.push(pending(1, 1, 1, 5_000));
    lines.push(pending(2, 2, 2, 1));
    let sizes: Vec<usize> =
        std::iter::from_fn(|| lines.is_ready().then(|| lines.cut(ROOM).events.len())).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 2);
    assert!(sizes.len() <= 2, "{sizes:?}");
}

#[test]
fn what_is_put_back_comes_first_and_in_order() {
    let mut lines = Lines::default();
    (0..3).for_each(|n| lines.push(pending(1, n, n.into(), 0)));
    let group = lines.cut(Room { events: 2, ..ROOM });
    lines.put_back(group.events);
    let group = lines.cut(ROOM);
    let ids: Vec<_> = group.events.iter().map(|taken| taken.event.id).collect();
    assert_eq!(ids, [0, 1, 2].map(|n| EventId::new(Timestamp::MIN, n)));
    assert!(lines.is_empty());
}
