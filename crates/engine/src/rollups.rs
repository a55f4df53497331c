//! Figures of the past: what happened is counted here and written now and then, for pictures.
//!
//! Intake and the scheduler count what was committed, each on a sheet of its own: one lock for a batch, one
//! addition for an event, a delivery made or an attempt. Once a second the recorder takes what has changed
//! ([`Rollups`](posthorn_store::Rollups)) and writes it with the outcomes that it writes anyway; only when
//! there are none for a second more does it go by itself. Tenants, realms and the server are summed up then,
//! from their subscriptions.
//!
//! What is written is what this node has counted of a minute so far, and replaces what it has written
//! before. So a repeat counts nothing twice. What was counted and not written when the process is killed is
//! missing from the pictures, and from nothing else.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use posthorn_domain::{
    Attempt, DeliveryState, FailureClass, NodeId, RealmName, RollupCounts, RollupScope, RollupStep,
    Span, SubscriptionId, TenantId, Timestamp, TopicName,
};
use posthorn_store::{MinuteRollup, Record, RollupKind, Rollups, Series, SeriesAsk, Sums, SumsAsk};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::catalog::Map;
use crate::engine::Engine;
use crate::error::Result;

/// How long something is counted before it is written.
pub(crate) const GATHER: Duration = Duration::from_secs(1);
/// Rows written at once, so that one commit stays short; the rest goes with the next.
const ROWS_MAX: usize = 1_000;

/// For how many subscriptions a sheet keeps its room.
const SHEET_ROOM: usize = 1_024;

/// The realm that a tenant is in, if it is known. A tenant never leaves its realm.
type RealmOf = Box<dyn Fn(TenantId) -> Option<RealmName> + Send + Sync>;

/// Whether a tenant is being deleted, or was.
type IsGone = Box<dyn Fn(TenantId) -> bool + Send + Sync>;

/// What is counted on this node.
pub(crate) struct Counting {
    intake: Mutex<Sheet>,
    scheduler: Mutex<Sheet>,
    book: Mutex<Book>,
    /// Whether something was counted since it was last taken.
    news: AtomicBool,
    some: Notify,
}

/// What was counted since it was last taken, all of one minute.
#[derive(Default)]
struct Sheet {
    minute: Timestamp,
    subscriptions: Map<SubscriptionId, (TenantId, RollupCounts)>,
    published: Map<TenantId, Map<TopicName, u64>>,
}

/// A sheet while a batch is counted on it.
pub(crate) struct Counted<'a>(MutexGuard<'a, Sheet>);

/// What was counted in the present minute and the one before, and in those that are not written yet.
struct Book {
    /// The account in the store. A clock that is set back begins another, since minutes that were let go of
    /// would be replaced by what is counted in them again.
    node: NodeId,
    /// What is to be written to accounts of before.
    closed: VecDeque<(NodeId, MinuteRollup)>,
    number: u64,
    minute: Timestamp,
    taken: Option<Instant>,
    pages: BTreeMap<(Timestamp, RollupScope), Page>,
    /// How many of them are not written yet.
    unwritten: usize,
    realm_of: RealmOf,
    is_gone: IsGone,
}

/// What was counted, and for which tenant, if it is one's. There is one for each subscription that had something to do in the
/// last two minutes, so it is kept as stores keep it, in a tenth of the room.
#[derive(Default)]
struct Page {
    tenant: Option<TenantId>,
    counts: Box<[u8]>,
    /// Whether it is not written yet.
    changed: bool,
}

impl Page {
    fn counts(&self) -> RollupCounts {
        // Nothing else is ever put there.
        RollupCounts::from_bytes(&self.counts).unwrap_or_default()
    }

    fn add(&mut self, more: &RollupCounts) {
        let mut counts = self.counts();
        counts.add(more);
        self.counts = counts.to_bytes().into_boxed_slice();
    }
}

impl Counting {
    pub(crate) fn new(
        node: NodeId,
        realm_of: impl Fn(TenantId) -> Option<RealmName> + Send + Sync + 'static,
    ) -> Self {
        let book = Book {
            node,
            closed: VecDeque::new(),
            number: 0,
            minute: Timestamp::MIN,
            taken: None,
            pages: BTreeMap::new(),
            unwritten: 0,
            realm_of: Box::new(realm_of),
            is_gone: Box::new(|_| false),
        };
        Self {
            intake: Mutex::default(),
            scheduler: Mutex::default(),
            book: Mutex::new(book),
            news: AtomicBool::default(),
            some: Notify::default(),
        }
    }

    /// Writes nothing of tenants that are being deleted, or were: their figures go with them, and must not come back.
    pub(crate) fn without(
        self,
        is_gone: impl Fn(TenantId) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.book.lock().is_gone = Box::new(is_gone);
        self
    }

    /// Waits until something was counted.
    pub(crate) async fn counted(&self) {
        while !self.news.load(Ordering::Relaxed) {
            self.some.notified().await;
        }
    }

    fn tell(&self) {
        if !self.news.swap(true, Ordering::Relaxed) {
            self.some.notify_one();
        }
    }

    /// For a batch of intake.
    pub(crate) fn intake(&self, now: Timestamp) -> Counted<'_> {
        self.open(&self.intake, now)
    }

    /// For a batch of the scheduler.
    pub(crate) fn scheduler(&self, now: Timestamp) -> Counted<'_> {
        self.open(&self.scheduler, now)
    }

    fn open<'a>(&'a self, sheet: &'a Mutex<Sheet>, now: Timestamp) -> Counted<'a> {
        let mut sheet = sheet.lock();
        let minute = RollupStep::Minute.floor(now);
        if sheet.minute != minute {
            self.book.lock().enter(&mut sheet);
            sheet.minute = minute;
        }
        self.tell();
        Counted(sheet)
    }

    /// Notes how many deliveries wait, and whose they are.
    pub(crate) fn sample(
        &self,
        now: Timestamp,
        backlog: impl Iterator<Item = (Option<TenantId>, RollupScope, u64)>,
    ) {
        let minute = RollupStep::Minute.floor(now);
        let mut book = self.book.lock();
        for (tenant, scope, count) in backlog {
            let counts = RollupCounts { backlog: Some(count), ..RollupCounts::default() };
            book.add(minute, tenant, scope, &counts);
        }
        drop(book);
        self.tell();
    }

    /// What is to be written now: nothing when the last was taken less than `after` ago, unless it could not
    /// take all there was.
    pub(crate) fn take(&self, now: Timestamp, after: Duration) -> Option<Rollups> {
        let soon = |taken: Instant| taken.elapsed() < after;
        {
            let book = self.book.lock();
            if book.is_written() && book.taken.is_some_and(soon) {
                return None;
            }
        }
        let minute = RollupStep::Minute.floor(now);
        self.news.store(false, Ordering::Relaxed);
        for sheet in [&self.intake, &self.scheduler] {
            let mut sheet = sheet.lock();
            self.book.lock().enter(&mut sheet);
            sheet.minute = minute;
        }
        let mut book = self.book.lock();
        let taken = book.take(minute);
        let more = !book.is_written();
        drop(book);
        if more {
            self.tell();
        }
        taken
    }
}

impl Counted<'_> {
    /// An event was accepted.
    pub(crate) fn published(&mut self, tenant: TenantId, topic: &TopicName) {
        let topics = self.0.published.entry(tenant).or_default();
        match topics.get_mut(topic) {
            Some(count) => *count += 1,
            None => drop(topics.insert(topic.clone(), 1)),
        }
    }

    /// A subscription gets an event that was accepted.
    pub(crate) fn wanted(&mut self, tenant: TenantId, subscription: SubscriptionId) {
        self.of(tenant, subscription).published += 1;
    }

    /// The store has answered to what became of a delivery. An attempt was made in any case; the end counts
    /// when it was `written`.
    pub(crate) fn recorded(
        &mut self,
        subscription: SubscriptionId,
        record: &Record,
        written: bool,
    ) {
        let counts = self.of(record.tenant, subscription);
        let state = record.step.state;
        if let Some(attempt) = &record.attempt {
            let failed = failure(attempt).filter(|_| state != DeliveryState::Delivered);
            counts.attempted(attempt.took, failed);
        }
        match state {
            DeliveryState::Delivered if written => counts.delivered += 1,
            DeliveryState::Dead(_) if written => counts.dead += 1,
            _ => {}
        }
    }

    fn of(&mut self, tenant: TenantId, subscription: SubscriptionId) -> &mut RollupCounts {
        let entry = self.0.subscriptions.entry(subscription);
        &mut entry.or_insert_with(|| (tenant, RollupCounts::default())).1
    }
}

fn failure(attempt: &Attempt) -> Option<FailureClass> {
    attempt.came_of_it().map(FailureClass::of)
}

impl Book {
    /// Takes over what is on a sheet, and leaves it empty.
    fn enter(&mut self, sheet: &mut Sheet) {
        let minute = sheet.minute;
        for (subscription, (tenant, counts)) in sheet.subscriptions.drain() {
            self.add(minute, Some(tenant), RollupScope::Subscription(subscription), &counts);
            // Of a tenant, events are counted and not who gets them.
            self.add_for_tenant(minute, tenant, &RollupCounts { published: 0, ..counts });
        }
        for (tenant, topics) in sheet.published.drain() {
            let mut counts = RollupCounts::default();
            for (topic, published) in topics {
                counts.published += published;
                let own = RollupCounts { published, ..RollupCounts::default() };
                self.add(minute, Some(tenant), RollupScope::Topic(tenant, topic), &own);
            }
            self.add_for_tenant(minute, tenant, &counts);
        }
        // A second in which very many had something to do is not the rule.
        sheet.subscriptions.shrink_to(SHEET_ROOM);
        sheet.published.shrink_to(SHEET_ROOM);
    }

    /// Counts for a tenant and for all that it is part of.
    fn add_for_tenant(&mut self, minute: Timestamp, tenant: TenantId, counts: &RollupCounts) {
        self.add(minute, Some(tenant), RollupScope::Tenant(tenant), counts);
        if let Some(realm) = (self.realm_of)(tenant) {
            self.add(minute, None, RollupScope::Realm(realm), counts);
        }
        self.add(minute, None, RollupScope::Server, counts);
    }

    fn add(
        &mut self,
        minute: Timestamp,
        tenant: Option<TenantId>,
        scope: RollupScope,
        counts: &RollupCounts,
    ) {
        if counts.is_empty() {
            return;
        }
        if minute < self.kept_from() {
            self.begin_anew(minute);
        }
        let page = self.pages.entry((minute, scope)).or_default();
        page.tenant = tenant;
        page.add(counts);
        self.unwritten += usize::from(!std::mem::replace(&mut page.changed, true));
    }

    fn take(&mut self, minute: Timestamp) -> Option<Rollups> {
        self.taken = Some(Instant::now());
        if minute < self.kept_from() {
            self.begin_anew(minute);
        }
        self.minute = self.minute.max(minute);
        if let Some((node, _)) = self.closed.front() {
            let node = *node;
            let mut minutes = Vec::new();
            while minutes.len() < ROWS_MAX
                && let Some((_, row)) = self.closed.pop_front_if(|(of, _)| *of == node)
            {
                minutes.push(row);
            }
            self.number += 1;
            return Some(Rollups { node, number: self.number, minutes });
        }
        let mut minutes = Vec::with_capacity(self.unwritten.min(ROWS_MAX));
        let (kept, is_gone, unwritten) = (self.kept_from(), &self.is_gone, &mut self.unwritten);
        self.pages.retain(|key, page| {
            if page.changed && minutes.len() < ROWS_MAX {
                page.changed = false;
                *unwritten -= 1;
                minutes.extend(row(key, page, is_gone));
            }
            // What is over and written is let go of, a minute later: a batch may have looked at the clock before
            // it was its turn.
            key.0 >= kept || page.changed
        });
        if minutes.is_empty() {
            return None;
        }
        self.number += 1;
        Some(Rollups { node: self.node, number: self.number, minutes })
    }

    /// All pages from this minute on are here.
    fn kept_from(&self) -> Timestamp {
        self.minute.minus(RollupStep::Minute.span())
    }

    fn is_written(&self) -> bool {
        self.unwritten == 0 && self.closed.is_empty()
    }

    /// Goes on in an account that has nothing in it. What is not written yet belongs to the one of before.
    fn begin_anew(&mut self, minute: Timestamp) {
        for (key, page) in std::mem::take(&mut self.pages) {
            let row = page.changed.then(|| row(&key, &page, &self.is_gone)).flatten();
            self.closed.extend(row.map(|row| (self.node, row)));
        }
        self.unwritten = 0;
        let next = u128::from_be_bytes(*self.node.as_bytes()).wrapping_add(1);
        self.node = NodeId::from_bytes(next.to_be_bytes());
        self.minute = minute;
    }
}

/// What is to be written of a page.
fn row(key: &(Timestamp, RollupScope), page: &Page, is_gone: &IsGone) -> Option<MinuteRollup> {
    let is_left = !page.tenant.is_some_and(is_gone);
    is_left.then(|| MinuteRollup { scope: key.1.clone(), minute: key.0, counts: page.counts() })
}

impl Engine {
    /// What was counted of a scope, by the steps from `from` up to, but without, `until`; steps in which
    /// nothing happened are there with zeros. The last second or two may be missing.
    ///
    /// `backlog` is `None` in steps in which nobody has looked: no node was running, or the step has just
    /// begun.
    pub async fn series(
        &self,
        scope: RollupScope,
        step: RollupStep,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Series> {
        let (from, until) = (step.floor(from), step.ceil(until));
        let whole = scope == RollupScope::Server;
        let ask = SeriesAsk { scope, step, from, until };
        let mut own: Map<_, _> = self.store().series(ask).await?.into_iter().collect();
        // Who has no backlog has no row; whether somebody has looked, the server's row tells.
        let looked: Map<_, _> = if whole {
            Map::default()
        } else {
            let server = SeriesAsk { scope: RollupScope::Server, step, from, until };
            self.store().series(server).await?.into_iter().collect()
        };
        let mut points = Vec::new();
        let mut at = from;
        while at < until {
            let mut counts = own.remove(&at).unwrap_or_default();
            if looked.get(&at).is_some_and(|server| server.backlog.is_some()) {
                counts.backlog = counts.backlog.or(Some(0));
            }
            points.push((at, counts));
            at = at.plus(step.span());
        }
        Ok(points)
    }
}

/// Ranges longer than this are summed up by the hour.
const BY_MINUTES: Span = Span::from_secs(3 * 3_600);

impl Engine {
    /// What all tenants, or all subscriptions, come to since a time: those of whom anything was counted. Longer ranges
    /// begin with a whole hour. The last second or two may be missing, and what is older when there is more than `rows`.
    /// It takes as long as there is much: nothing to wait for on the way to a page.
    pub async fn sums(&self, kind: RollupKind, from: Timestamp, rows: usize) -> Result<Sums> {
        let until = RollupStep::Minute.ceil(self.now().plus(Span::from_millis(1)));
        let step = match from.plus(BY_MINUTES) < until {
            true => RollupStep::Hour,
            false => RollupStep::Minute,
        };
        let ask = SumsAsk { kind, step, from: step.floor(from), until, rows };
        Ok(self.store().sums(ask).await?)
    }
}

/// How long minutes are left alone before they are added to their hours: as long as a node may take to write
/// what it has counted.
pub(crate) const FOLD_AFTER: Span = Span::from_secs(300);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn minute(number: i64) -> Timestamp {
        Timestamp::from_millis(number * 60_000)
    }

    fn tenant(number: u128) -> TenantId {
        TenantId::new(minute(0), number)
    }

    fn subscription(number: u128) -> SubscriptionId {
        SubscriptionId::new(minute(0), number)
    }

    /// Of which only the second tenant is in a realm that is known.
    fn counting() -> Counting {
        let known = |id| (id == tenant(2)).then(RealmName::default);
        Counting::new(NodeId::new(minute(0), 1), known)
    }

    /// A topic, which every test publishes on.
    fn topic() -> TopicName {
        TopicName::new("orders").expect("a name")
    }

    /// What was published of each scope and minute, but for topics.
    fn published(rollups: Option<Rollups>) -> Vec<(i64, RollupScope, u64)> {
        let rows = rollups.map(|rollups| rollups.minutes).unwrap_or_default();
        let row = |row: &MinuteRollup| {
            (row.minute.as_millis() / 60_000, row.scope.clone(), row.counts.published)
        };
        let is_topic = |row: &&MinuteRollup| matches!(row.scope, RollupScope::Topic(..));
        rows.iter().filter(|own| !is_topic(own)).map(row).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_published_is_counted_by_topic() {
        let counting = counting();
        let other = TopicName::new("other").expect("a name");
        counting.intake(minute(1)).published(tenant(1), &topic());
        counting.intake(minute(1)).published(tenant(1), &other);
        counting.intake(minute(1)).published(tenant(1), &topic());
        let taken = counting.take(minute(1), GATHER).expect("something");
        let of = |scope: &RollupScope| {
            let found = taken.minutes.iter().find(|row| row.scope == *scope);
            found.map(|row| row.counts.published)
        };
        assert_eq!(of(&RollupScope::Topic(tenant(1), topic())), Some(2));
        assert_eq!(of(&RollupScope::Topic(tenant(1), other)), Some(1));
        assert_eq!(of(&RollupScope::Tenant(tenant(1))), Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_counted_is_written_once_a_second_and_replaces_what_was() {
        let counting = counting();
        let scope = || RollupScope::Tenant(tenant(1));
        let count = |at| counting.intake(at).published(tenant(1), &topic());
        count(minute(1));
        let first = counting.take(minute(1), GATHER);
        assert_eq!(first.as_ref().map(|first| first.number), Some(1));
        assert_eq!(published(first), [(1, RollupScope::Server, 1), (1, scope(), 1)]);
        count(minute(1));
        assert_eq!(counting.take(minute(1), GATHER), None, "too soon");
        tokio::time::advance(GATHER).await;
        let second = counting.take(minute(1), GATHER);
        assert_eq!(published(second), [(1, RollupScope::Server, 2), (1, scope(), 2)]);
        tokio::time::advance(GATHER).await;
        assert_eq!(counting.take(minute(1), GATHER), None, "nothing is new");
    }

    #[tokio::test(start_paused = true)]
    async fn minutes_are_kept_apart_and_let_go_of() {
        let counting = counting();
        for at in [1, 1, 2, 3] {
            counting.intake(minute(at)).wanted(tenant(1), subscription(1));
        }
        let scope = || RollupScope::Subscription(subscription(1));
        let taken = counting.take(minute(3), GATHER);
        assert_eq!(published(taken), [(1, scope(), 2), (2, scope(), 1), (3, scope(), 1)]);
        assert_eq!(counting.book.lock().pages.len(), 2, "the present minute and the one before");
        for (at, pages) in [(4, 1), (5, 0)] {
            tokio::time::advance(GATHER).await;
            assert_eq!(counting.take(minute(at), GATHER), None);
            assert_eq!(counting.book.lock().pages.len(), pages, "{at}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_tenant_that_is_deleted_nothing_is_written() {
        let counting = counting().without(|id| id == tenant(1));
        for id in [1, 2] {
            let mut counted = counting.intake(minute(1));
            counted.published(tenant(id), &topic());
            counted.wanted(tenant(id), subscription(id));
        }
        let waiting = (Some(tenant(1)), RollupScope::Tenant(tenant(1)), 7);
        counting.sample(minute(1), std::iter::once(waiting));
        let taken = counting.take(minute(1), GATHER).expect("something");
        let scopes: BTreeSet<RollupScope> =
            taken.minutes.into_iter().map(|row| row.scope).collect();
        let left = [
            RollupScope::Server,
            RollupScope::Realm(RealmName::default()),
            RollupScope::Tenant(tenant(2)),
            RollupScope::Subscription(subscription(2)),
            RollupScope::Topic(tenant(2), topic()),
        ];
        assert_eq!(scopes, BTreeSet::from(left));
    }

    #[tokio::test(start_paused = true)]
    async fn a_realm_is_the_sum_of_its_tenants() {
        let counting = counting();
        for id in [1, 2, 2] {
            counting.intake(minute(1)).published(tenant(id), &topic());
        }
        let realm = RollupScope::Realm(RealmName::default());
        let taken = published(counting.take(minute(1), GATHER));
        let of = |scope: &RollupScope| taken.iter().find(|row| row.1 == *scope).map(|row| row.2);
        assert_eq!((of(&RollupScope::Server), of(&realm)), (Some(3), Some(2)));
    }

    /// Else a minute that was written and let go of would be replaced by the little that is counted in it
    /// again.
    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_begins_another_account() {
        let counting = counting();
        let mut nodes = BTreeSet::new();
        for at in [5, 6, 4, 5] {
            counting.intake(minute(at)).published(tenant(1), &topic());
            let taken = counting.take(minute(at), GATHER).expect("something is new");
            // The realm is unknown here, so that it is the server, the tenant and the topic.
            assert_eq!(taken.minutes.len(), 3);
            assert_eq!(taken.minutes[0].counts.published, 1, "{at}");
            nodes.insert(taken.node);
            tokio::time::advance(GATHER).await;
        }
        assert_eq!(nodes.len(), 2);
    }

    /// A batch looks at the clock, and then waits for its turn.
    #[tokio::test(start_paused = true)]
    async fn what_is_counted_at_the_edge_of_a_minute_is_added_to_it() {
        let counting = counting();
        let count = |at| counting.intake(minute(at)).published(tenant(1), &topic());
        count(1);
        count(1);
        let first = counting.take(minute(1), GATHER).expect("something is new");
        tokio::time::advance(GATHER).await;
        assert_eq!(counting.take(minute(2), GATHER), None);
        count(1);
        tokio::time::advance(GATHER).await;
        let second = counting.take(minute(2), GATHER).expect("something is new");
        assert_eq!(first.node, second.node);
        assert_eq!(second.minutes[0].counts.published, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_counts_nothing_twice() {
        let counting = counting();
        let count = |at| counting.intake(minute(at)).published(tenant(1), &topic());
        for at in [4, 10] {
            count(at);
            assert!(counting.take(minute(at), GATHER).is_some());
            tokio::time::advance(GATHER).await;
        }
        for at in [10, 4, 5, 10] {
            count(at);
        }
        let mut rows: BTreeMap<(NodeId, i64), u64> = BTreeMap::new();
        while let Some(taken) = counting.take(minute(10), GATHER) {
            let node = taken.node;
            for (at, scope, count) in published(Some(taken)) {
                if scope == RollupScope::Server {
                    // A row replaces itself.
                    rows.insert((node, at), count);
                }
            }
        }
        let of = |at| rows.iter().filter(|row| row.0.1 == at).map(|row| *row.1).sum::<u64>();
        assert_eq!((of(4), of(5), of(10)), (1, 1, 3), "{rows:?}");
        let first = NodeId::new(minute(0), 1);
        assert!(!rows.contains_key(&(first, 4)), "what was written of it stays: {rows:?}");
        assert_eq!(rows.get(&(first, 10)), Some(&2), "{rows:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn many_rows_go_at_once_but_not_all_together() {
        let counting = counting();
        for number in 0..2_500 {
            counting.intake(minute(1)).wanted(tenant(1), subscription(number));
        }
        let mut rows = Vec::new();
        while let Some(taken) = counting.take(minute(1), GATHER) {
            rows.push(taken.minutes.len());
        }
        assert_eq!(rows, [1_000, 1_000, 500]);
    }
}
