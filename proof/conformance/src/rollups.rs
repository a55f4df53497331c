//! Figures of the past: written by nodes, by the minute, and added up to hours.

use std::sync::Arc;

use posthorn_domain::{
    FailureClass, NodeId, RealmName, RollupCounts, RollupScope, RollupStep, Span, SubscriptionId,
    TenantId, Timestamp,
};
use posthorn_store::{
    MinuteRollup, Recorded, RollupKind, Rollups, Series, SeriesAsk, Store, Sum, SumsAsk,
    TendRollups,
};

use super::Fixture;
use super::builders::{Setting, at, delivered, node, unique, whole};

/// The beginning of an hour, and so of a minute.
fn hour() -> Timestamp {
    RollupStep::Hour.ceil(at(0))
}

/// Some minutes after [`hour`].
fn minute(number: u64) -> Timestamp {
    hour().plus(Span::from_secs(60 * number))
}

/// A scope that nobody else writes to.
fn scope() -> RollupScope {
    RollupScope::Subscription(SubscriptionId::new(at(0), unique().into()))
}

fn realm() -> RealmName {
    RealmName::new(&format!("realm-{}", unique())).expect("a name")
}

/// So many of everything that adds up.
fn some(number: u64) -> RollupCounts {
    let mut counts = RollupCounts {
        published: number,
        delivered: 2 * number,
        dead: 3 * number,
        ..RollupCounts::default()
    };
    for _ in 0..number {
        counts.attempted(Span::from_millis(7), None);
        counts.attempted(Span::from_secs(3), Some(FailureClass::Broken));
    }
    counts
}

fn rollups(node: NodeId, number: u64, rows: &[(&RollupScope, u64, RollupCounts)]) -> Rollups {
    let row = |(scope, at, counts): &(&RollupScope, u64, RollupCounts)| MinuteRollup {
        scope: (*scope).clone(),
        minute: minute(*at),
        counts: *counts,
    };
    Rollups { node, number, minutes: rows.iter().map(row).collect() }
}

async fn write(store: &Arc<dyn Store>, rollups: Rollups) {
    let answers = store.record_with(Vec::new(), Some(rollups)).await.expect("it is written");
    assert_eq!(answers, []);
}

async fn series(store: &Arc<dyn Store>, scope: &RollupScope, step: RollupStep) -> Series {
    let (from, until) = (Timestamp::MIN, hour().plus(Span::from_secs(1_000_000)));
    store.series(SeriesAsk { scope: scope.clone(), step, from, until }).await.expect("a series")
}

async fn minutes(store: &Arc<dyn Store>, scope: &RollupScope) -> Series {
    series(store, scope, RollupStep::Minute).await
}

/// Nothing is to be removed.
fn fold(before: Timestamp, limit: usize) -> TendRollups {
    let never = Timestamp::MIN;
    TendRollups { fold_before: before, minutes_before: never, hours_before: never, limit }
}

/// Does all there is to do; in how many goes.
async fn tend(store: &Arc<dyn Store>, what: TendRollups) -> usize {
    let mut goes = 1;
    while store.tend_rollups(what).await.expect("a go") {
        goes += 1;
        assert!(goes < 1_000, "it never ends");
    }
    goes
}

/// A node says what it has counted so far; what comes again, or late, changes nothing.
pub async fn what_a_node_wrote_last_counts(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (scope, node) = (&scope(), node());
    assert_eq!(minutes(&store, scope).await, []);
    write(&store, rollups(node, 1, &[(scope, 0, some(1))])).await;
    write(&store, rollups(node, 2, &[(scope, 0, some(4)), (scope, 1, some(2))])).await;
    let expected = [(minute(0), some(4)), (minute(1), some(2))];
    assert_eq!(minutes(&store, scope).await, expected);
    write(&store, rollups(node, 2, &[(scope, 0, some(4)), (scope, 1, some(2))])).await;
    assert_eq!(minutes(&store, scope).await, expected, "a repeat");
    write(&store, rollups(node, 1, &[(scope, 0, some(1))])).await;
    assert_eq!(minutes(&store, scope).await, expected, "one that was overtaken");
    let sampled = RollupCounts { backlog: Some(0), ..RollupCounts::default() };
    write(&store, rollups(node, 3, &[(scope, 2, sampled)])).await;
    assert_eq!(minutes(&store, scope).await[2], (minute(2), sampled), "zero is not nothing");
}

/// Each node has its own account; readers see the sum.
pub async fn nodes_add_up(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (scope, one, two) = (&scope(), node(), node());
    let backlog = |backlog, counts| RollupCounts { backlog: Some(backlog), ..counts };
    write(&store, rollups(one, 7, &[(scope, 0, backlog(5, some(3)))])).await;
    write(&store, rollups(two, 1, &[(scope, 0, backlog(9, some(4)))])).await;
    assert_eq!(minutes(&store, scope).await, [(minute(0), backlog(9, some(7)))]);
    write(&store, rollups(two, 2, &[(scope, 0, some(5))])).await;
    assert_eq!(minutes(&store, scope).await, [(minute(0), backlog(5, some(8)))]);
}

/// One transaction has both: the outcomes, and what was counted before them.
pub async fn rollups_come_with_outcomes(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let delivery = setting.publish_one(subscription).await;
    let record = setting.report(delivery, delivered(), at(1)).await;
    let scope = &scope();
    let counted = rollups(setting.node, 1, &[(scope, 0, some(1))]);
    let answers = setting.store.record_with(vec![record.clone()], Some(counted)).await;
    assert_eq!(answers.expect("written"), [Recorded::Written { promoted: None }]);
    let counted = rollups(setting.node, 2, &[(scope, 0, some(2))]);
    let answers = setting.store.record_with(vec![record], Some(counted)).await;
    assert_eq!(answers.expect("written"), [Recorded::Superseded]);
    assert_eq!(minutes(&setting.store, scope).await, [(minute(0), some(2))], "true all the same");
}

/// A series has the steps that were asked for, of the scope that was asked for.
pub async fn ranges_have_a_beginning_and_an_end(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (scope, other, node) = (&scope(), &scope(), node());
    let rows: Vec<_> = [0, 1, 2, 59, 60, 61, 180].map(|at| (scope, at, some(at + 1))).into();
    write(&store, rollups(node, 1, &rows)).await;
    write(&store, rollups(node, 2, &[(other, 1, some(9)), (&RollupScope::Server, 1, some(8))]))
        .await;
    let between = async |step, from, until| {
        let ask = SeriesAsk { scope: scope.clone(), step, from, until };
        let found = store.series(ask).await.expect("a series");
        found.into_iter().map(|(at, counts)| (at, counts.published)).collect::<Vec<_>>()
    };
    let found = between(RollupStep::Minute, minute(1), minute(60)).await;
    assert_eq!(found, [(minute(1), 2), (minute(2), 3), (minute(59), 60)]);
    assert_eq!(between(RollupStep::Minute, minute(3), minute(59)).await, []);
    assert_eq!(between(RollupStep::Minute, minute(200), minute(100)).await, []);
    let found = between(RollupStep::Hour, minute(0), minute(120)).await;
    assert_eq!(found, [(minute(0), 66), (minute(60), 123)]);
    let found = between(RollupStep::Minute, Timestamp::MIN, Timestamp::MAX).await;
    assert_eq!(found.len(), rows.len());
    assert_eq!(minutes(&store, other).await, [(minute(1), some(9))]);
    assert_eq!(minutes(&store, &RollupScope::Server).await, [(minute(1), some(8))]);
}

/// Whether or not they were made yet, in however many goes.
pub async fn hours_are_the_sum_of_their_minutes(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (one, two) = (node(), node());
    let scopes = [scope(), RollupScope::Realm(realm()), RollupScope::Server];
    let row = |scope: usize, at: u64| (&scopes[scope], at, some(at + scope as u64 + 1));
    let rows: Vec<_> = (0..90).flat_map(|at| [row(0, at), row(1, at), row(2, at)]).collect();
    for (number, part) in rows.chunks(100).enumerate() {
        write(&store, rollups(one, number as u64 + 1, part)).await;
        write(&store, rollups(two, number as u64 + 1, part)).await;
    }
    let all = async || {
        let mut all = Vec::new();
        for scope in &scopes {
            all.push(series(&store, scope, RollupStep::Hour).await);
        }
        all
    };
    let expected = all().await;
    let sum = |minutes: std::ops::Range<u64>| minutes.map(|at| 2 * (at + 1)).sum::<u64>();
    let first = &expected[0];
    assert_eq!(first[0], (minute(0), some(sum(0..60))));
    assert_eq!(first[1], (minute(60), some(sum(60..90))));
    let goes = tend(&store, fold(minute(75), 7)).await;
    assert!(goes > 60, "each has a few rows: {goes}");
    assert_eq!(all().await, expected, "partly made");
    assert_eq!(tend(&store, fold(minute(75), 1_000)).await, 1);
    assert_eq!(all().await, expected, "nothing is added twice");
    // The hour goes on.
    write(&store, rollups(one, 50, &[(&scopes[0], 89, some(100))])).await;
    tend(&store, fold(minute(100), 1_000)).await;
    let hours = series(&store, &scopes[0], RollupStep::Hour).await;
    assert_eq!(hours[1], (minute(60), some(sum(60..90) - 90 + 100)));
    assert_eq!(minutes(&store, &scopes[0]).await.len(), 90, "minutes stay until they are too old");
}

/// Minutes go before their hours do, and never before they are in them.
pub async fn old_rollups_go_when_they_are_in_their_hours(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (scope, node) = (&scope(), node());
    let rows: Vec<_> = (0..130).map(|at| (scope, at, some(1))).collect();
    write(&store, rollups(node, 1, &rows)).await;
    let old = |fold_before, minutes_before, hours_before| TendRollups {
        fold_before,
        minutes_before,
        hours_before,
        limit: 25,
    };
    let hours = series(&store, scope, RollupStep::Hour).await;
    tend(&store, old(minute(0), minute(120), minute(0))).await;
    assert_eq!(minutes(&store, scope).await.len(), 130, "none is in its hour");
    tend(&store, old(minute(70), minute(65), minute(0))).await;
    let left = minutes(&store, scope).await;
    assert_eq!((left.len(), left[0].0), (65, minute(65)));
    assert_eq!(series(&store, scope, RollupStep::Hour).await, hours);
    tend(&store, old(minute(130), minute(130), minute(60))).await;
    let left = minutes(&store, scope).await;
    assert_eq!((left.len(), left[0].0), (1, minute(129)), "the last that was added tells how far");
    assert_eq!(series(&store, scope, RollupStep::Hour).await, hours[1..]);
    tend(&store, old(minute(130), minute(130), minute(180))).await;
    assert_eq!(series(&store, scope, RollupStep::Hour).await, []);
}

/// Like everything else.
pub async fn rollups_survive_reopening(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (scope, node) = (&scope(), node());
    write(&store, rollups(node, 1, &[(scope, 0, some(1)), (scope, 1, some(2))])).await;
    tend(&store, fold(minute(1), 10)).await;
    let store = fixture.reopen(store).await;
    assert_eq!(minutes(&store, scope).await, [(minute(0), some(1)), (minute(1), some(2))]);
    assert_eq!(series(&store, scope, RollupStep::Hour).await, [(minute(0), some(3))]);
}

/// Several nodes write about the same, while hours are made.
pub async fn writers_at_once_lose_nothing(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let scopes = Arc::new([RollupScope::Server, scope(), scope(), RollupScope::Realm(realm())]);
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (store, scopes) = (Arc::clone(&store), Arc::clone(&scopes));
            tokio::spawn(async move {
                let node = node();
                for number in 1..=20_u64 {
                    let minute = number / 5;
                    let counts = some(number % 5 + 1);
                    let rows = scopes.each_ref().map(|scope| (scope, minute, counts));
                    write(&store, rollups(node, number, &rows)).await;
                }
            })
        })
        .collect();
    for _ in 0..10 {
        store.tend_rollups(fold(minute(0), 5)).await.expect("a go");
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    tend(&store, fold(minute(3), 5)).await;
    for scope in &*scopes {
        let found = minutes(&store, scope).await;
        let expected = [20, 20, 20, 20, 4].map(some);
        assert_eq!(found.into_iter().map(|(_, counts)| counts).collect::<Vec<_>>(), expected);
        let hours = series(&store, scope, RollupStep::Hour).await;
        assert_eq!(hours, [(minute(0), some(84))]);
    }
}

/// What a question about subscriptions comes to: of each of these, how much failed, and when one last died.
async fn sums(store: &Arc<dyn Store>, ask: SumsAsk, of: &[&RollupScope]) -> Vec<Option<Sum>> {
    let sums = store.sums(ask).await.expect("sums");
    assert!(sums.scopes.keys().all(|scope| ask.kind.contains(scope)), "{sums:?}");
    of.iter().map(|scope| sums.scopes.get(scope).copied()).collect()
}

/// All scopes of a kind, from minutes and from hours, whether or not these were made yet.
pub async fn many_scopes_are_summed_up(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let (one, two) = (node(), node());
    let (a, b, c) = (&scope(), &scope(), &scope());
    let tenant = &RollupScope::Tenant(TenantId::new(at(0), unique().into()));
    let other = &RollupScope::Realm(realm());
    let failing = |number| RollupCounts { dead: 0, ..some(number) };
    let rows = [
        (a, 0, some(1)),
        (a, 5, some(2)),
        (a, 61, failing(3)),
        (b, 5, some(4)),
        (b, 130, some(5)),
        (tenant, 61, some(6)),
        (other, 61, some(7)),
    ];
    write(&store, rollups(one, 1, &rows)).await;
    write(&store, rollups(two, 1, &[(a, 61, failing(10))])).await;
    let ask = |step, from, until| SumsAsk {
        kind: RollupKind::Subscriptions,
        step,
        from: minute(from),
        until: minute(until),
        rows: 1_000_000,
    };
    let is =
        |counts: RollupCounts, dead: Option<u64>| Some(Sum { counts, dead_at: dead.map(minute) });
    let mut sum = some(3);
    sum.add(&failing(13));
    let check = async || {
        let of = [a, b, c, tenant];
        let found = sums(&store, ask(RollupStep::Minute, 0, 131), &of).await;
        assert_eq!(found, [is(sum, Some(5)), is(some(9), Some(130)), None, None]);
        let found = sums(&store, ask(RollupStep::Minute, 1, 130), &of[..2]).await;
        let mut later = some(2);
        later.add(&failing(13));
        assert_eq!(found, [is(later, Some(5)), is(some(4), Some(5))]);
        assert_eq!(sums(&store, ask(RollupStep::Minute, 6, 61), &of[..2]).await, [None, None]);
        assert_eq!(sums(&store, ask(RollupStep::Minute, 61, 6), &of[..2]).await, [None, None]);
        let hours = store.sums(ask(RollupStep::Hour, 0, 180)).await.expect("sums");
        let of_hours = [a, b].map(|scope| hours.scopes[scope].counts);
        assert_eq!((of_hours, hours.from), ([sum, some(9)], minute(0)));
        let last = store.sums(ask(RollupStep::Hour, 60, 120)).await.expect("sums");
        assert_eq!((last.scopes[a].counts, last.scopes.get(b)), (failing(13), None));
        let tenants = SumsAsk { kind: RollupKind::Tenants, ..ask(RollupStep::Hour, 0, 180) };
        assert_eq!(
            sums(&store, tenants, &[tenant, a, other]).await[0].map(|sum| sum.counts),
            Some(some(6))
        );
    };
    check().await;
    tend(&store, fold(minute(62), 3)).await;
    check().await;
    tend(&store, fold(minute(200), 1_000)).await;
    check().await;
}

/// What was not looked at is the oldest, and whole steps of it.
pub async fn sums_begin_where_there_are_too_many_rows(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let scopes: Vec<RollupScope> = (0..3).map(|_| scope()).collect();
    let rows: Vec<_> =
        (0..200).flat_map(|at| scopes.iter().map(move |scope| (scope, at, some(1)))).collect();
    write(&store, rollups(node(), 1, &rows)).await;
    for (step, before) in [(RollupStep::Minute, 0), (RollupStep::Hour, 0), (RollupStep::Hour, 185)]
    {
        if before > 0 {
            tend(&store, fold(minute(before), 100)).await;
        }
        for most in [1, 7, 60, 10_000] {
            let (kind, from, until) = (RollupKind::Subscriptions, minute(0), minute(240));
            let found = store.sums(SumsAsk { kind, step, from, until, rows: most }).await;
            let found = found.expect("sums");
            let summed =
                |scope| found.scopes.get(scope).map_or(0, |sum: &Sum| sum.counts.published);
            let first = (200 - summed(&scopes[0])) as i64;
            let named = (found.from.as_millis() - minute(0).as_millis()) / 60_000;
            assert_eq!(named, first, "{step:?} {before} {most}");
            assert!(scopes.iter().all(|scope| summed(scope) == summed(&scopes[0])), "{found:?}");
            assert!(summed(&scopes[0]) >= 1, "a step at least");
            let whole = most == 10_000 || (before > 0 && most == 60);
            assert_eq!(first == 0, whole, "{step:?} {before} {most}: {first}");
        }
    }
}

/// Parked ones and those in flight included; what ended, and what nobody wants any more, not.
pub async fn unfinished_deliveries_are_counted_by_subscription(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let pending = async |setting: &Setting| {
        let counts = setting.store.pending_by_subscription().await.expect("counts");
        let own = counts.into_iter().filter(|(tenant, ..)| *tenant == setting.tenant);
        let mut own: Vec<_> = own.map(|(_, subscription, count)| (subscription, count)).collect();
        own.sort_unstable();
        own
    };
    assert_eq!(pending(&setting).await, []);
    let first = setting.publish_one(a).await;
    setting.publish_one(a).await;
    for _ in 0..3 {
        setting.publish_in(b, whole()).await;
    }
    assert_eq!(pending(&setting).await, [(a, 2), (b, 3)]);
    setting.lease(first, at(100)).await;
    assert_eq!(pending(&setting).await, [(a, 2), (b, 3)], "in flight");
    setting.record(first, delivered(), at(2)).await;
    assert_eq!(pending(&setting).await, [(a, 1), (b, 3)]);
    setting.unsubscribe(b, at(3)).await;
    assert_eq!(pending(&setting).await, [(a, 1)], "also before a sweep");
}
