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
        publisher_id: None,
        deliver_at: None,
        retention: None,
        expunged_at: None,
        trace: None,
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
fn an_event_that_does_not_fit_leaves_the_room_to_others_and_is_first_in_the_next_commit() {
    let mut lines = Lines::default();
    lines.push(pending(1, 1, 1, 10));
    lines.push(pending(2, 2, 2, 995));
    (0..50).for_each(|n| lines.push(pending(3, 10 + n, n.into(), 1)));
    (0..30).for_each(|n| lines.push(pending(4, 100 + n, n.into(), 1)));
    let group = lines.cut(ROOM);
    assert_eq!([1, 2, 3, 4].map(|n| of(&group, n)), [1, 0, 50, 30]);
    // Whatever others have waiting by then.
    (0..500).for_each(|n| lines.push(pending(5, 1_000 + n, n.into(), 1)));
    let group = lines.cut(ROOM);
    assert_eq!([2, 5].map(|n| of(&group, n)), [1, 5], "to the last delivery");
}

#[test]
fn several_that_do_not_fit_go_one_after_the_other() {
    let mut lines = Lines::default();
    let mut firsts = Vec::new();
    (1..=4).for_each(|n| lines.push(pending(n, n.into(), n.into(), 900)));
    for n in 0..5 {
        (0..20).for_each(|i| lines.push(pending(9, 100 * n + i, i.into(), 1)));
        let group = lines.cut(ROOM);
        assert!(of(&group, 9) >= 20, "the small ones are in each");
        firsts.push((1..=4).find(|n| of(&group, *n) == 1));
    }
    firsts.retain(Option::is_some);
    assert_eq!(firsts, [1, 2, 3, 4].map(Some));
}

#[test]
fn whoever_filled_a_commit_lets_the_others_begin_the_next() {
    let large = |of, call, bytes: usize| {
        let mut pending = pending(of, call, call.into(), 1);
        let payload = Bytes::from(vec![0; bytes]);
        let event = Arc::get_mut(&mut pending.event).expect("nobody else has it");
        event.payload = payload;
        pending
    };
    // To the last byte, and not quite: the other one does not fit beside.
    for bytes in [100_000, 90_000] {
        let mut lines = Lines::default();
        (0..60).for_each(|n| lines.push(large(1, n, bytes)));
        lines.push(large(2, 100, 200_000));
        let group = lines.cut(ROOM);
        assert_eq!([1, 2].map(|n| of(&group, n)), [1_000_000 / bytes, 0], "{bytes}");
        assert_eq!(of(&lines.cut(ROOM), 2), 1, "{bytes}");
    }
}

#[test]
fn events_of_one_tenant_are_beside_each_other_however_often_it_had_its_turn() {
    let mut lines = Lines::default();
    for n in 0..3 {
        lines.push(pending(1, 1, n, 50));
        lines.push(pending(2, 2, n, 50));
    }
    let group = lines.cut(ROOM);
    let taken: Vec<_> =
        group.events.iter().map(|taken| (taken.event.tenant, taken.event.id)).collect();
    let id = |n| EventId::new(Timestamp::MIN, n);
    let all = |of| (0..3).map(move |n| (tenant(of), id(n)));
    assert_eq!(taken, all(1).chain(all(2)).collect::<Vec<_>>());
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
