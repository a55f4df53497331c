//! Writes outcomes in batches. While one batch commits, the next one forms.
//!
//! A transaction costs the same for ten outcomes as for a hundred, and nobody waits for most of them: what was
//! delivered is delivered. So under load batches leave at a pace. What somebody waits for leaves at once: the next of
//! a lane, how a receiver stands, what is told.
//!
//! A batch that fails for a passing reason is tried again until it is written or its shards are
//! gone; repeating is harmless by contract. The queue is bounded by construction: the scheduler
//! starts no attempt while too many outcomes wait here.
//!
//! Batches overtake each other, above all when one has to be tried again. For deliveries that does not
//! matter, since none of them has two outcomes here at a time. How a receiver stands is another matter:
//! the last word must stay the last. So an outcome that changes it is written only after the one before it
//! that did; there are few of those.
//!
//! What was counted ([`crate::rollups`]) rides with the next batch, one load at a time; when nothing is to be
//! written for a while, it goes alone.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{Clock, DeliveryId, SubscriptionId};
use posthorn_store::{Record, Recorded, Rollups};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::error::chain;
use crate::metrics;
use crate::rollups::{Counting, GATHER};

/// Outcomes in one transaction at most.
const BATCH_MAX: usize = 2_000;
/// Deliveries of operational events that are made in one transaction at most, unless one outcome alone tells more.
const TOLD_MAX: usize = 2_000;
/// How long after the batch before it the next one leaves at the earliest. A restart repeats what was not written yet, so
/// this is short.
const PACE: Duration = Duration::from_millis(20);
/// So many leave whatever the pace.
const BATCH_ENOUGH: usize = 500;
/// First and longest wait after a failed write.
const RETRY_WAITS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];

/// What became of one record.
pub(crate) struct Written {
    pub(crate) delivery: DeliveryId,
    pub(crate) record: Record,
    pub(crate) answer: Recorded,
}

/// Runs until the queue is closed and everything in it is written by `store`. What tells something that was planned on
/// a catalog that has moved on is planned again by `replan`, and written after the others of its batch.
///
/// Returns early, with what could not be written left pending in the store, when the store fails
/// for good.
pub(crate) async fn run<S, F, R, G>(
    store: S,
    replan: R,
    pipeline: usize,
    (counting, clock): (Arc<Counting>, Arc<dyn Clock>),
    mut queue: mpsc::UnboundedReceiver<Vec<Record>>,
    answers: mpsc::UnboundedSender<Vec<Written>>,
    failed: mpsc::UnboundedSender<String>,
) where
    S: Fn(Vec<Record>, Option<Rollups>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = posthorn_store::Result<Vec<Recorded>>> + Send + 'static,
    R: Fn(Vec<Record>) -> G + Clone + Send + Sync + 'static,
    G: Future<Output = posthorn_store::Result<Vec<Record>>> + Send + 'static,
{
    let mut under_way: JoinSet<posthorn_store::Result<Batch>> = JoinSet::new();
    // Whether one of them carries what was counted.
    let mut carried = false;
    // When it goes alone.
    let mut alone: Option<Instant> = None;
    let mut waiting: Vec<Record> = Vec::new();
    // When the last batch left.
    let mut left: Option<Instant> = None;
    // Whose standing is being written.
    let mut told: BTreeSet<SubscriptionId> = BTreeSet::new();
    let mut open = true;
    while open || !waiting.is_empty() || !under_way.is_empty() {
        let room = under_way.len() < pipeline.max(1);
        let leaves_at = left.map(|left| left + PACE).filter(|_| open && may_wait(&waiting));
        let paced = leaves_at.is_some_and(|at| Instant::now() < at);
        let batch = if room && !paced { next_batch(&mut waiting, &told) } else { Vec::new() };
        if !batch.is_empty() {
            left = Some(Instant::now());
            told.extend(standings(&batch));
            ::metrics::histogram!(metrics::RECORD_BATCH).record(batch.len() as f64);
            let counted = if carried { None } else { counting.take(clock.now(), GATHER) };
            if counted.is_some() {
                (carried, alone) = (true, None);
            }
            under_way.spawn(write(store.clone(), replan.clone(), batch, counted));
            continue;
        }
        tokio::select! {
            biased;
            Some(result) = under_way.join_next() => match result {
                Ok(Ok(Batch { written, counted })) => {
                    carried &= !counted;
                    if written.is_empty() {
                        continue;
                    }
                    for id in standings(written.iter().map(|written| &written.record)) {
                        told.remove(&id);
                    }
                    drop(answers.send(written));
                }
                Ok(Err(e)) => {
                    drop(failed.send(chain(&e)));
                    return;
                }
                Err(crash) => {
                    drop(failed.send(format!("the recorder crashed: {crash}")));
                    return;
                }
            },
            more = queue.recv(), if open => match more {
                Some(records) => {
                    waiting.extend(records);
                    // Take what else is there before a batch leaves, and what is about to be.
                    tokio::task::yield_now().await;
                    while let Ok(records) = queue.try_recv() {
                        waiting.extend(records);
                    }
                }
                None => open = false,
            },
            () = sleep_until(leaves_at), if room && paced => {}
            () = counting.counted(), if open && alone.is_none() => {
                alone = Some(Instant::now() + GATHER * 2);
            }
            () = sleep_until(alone), if open && room && !carried && alone.is_some() => {
                alone = None;
                if let Some(counted) = counting.take(clock.now(), Duration::ZERO) {
                    carried = true;
                    under_way.spawn(write(store.clone(), replan.clone(), Vec::new(), Some(counted)));
                }
            }
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Whether nobody waits for any of these, and there are not enough of them yet.
fn may_wait(waiting: &[Record]) -> bool {
    let is_awaited =
        |record: &Record| record.ordered || record.standing.is_some() || !record.told.is_empty();
    !waiting.is_empty() && waiting.len() < BATCH_ENOUGH && !waiting.iter().any(is_awaited)
}

/// A batch that is written, and whether it carried what was counted.
struct Batch {
    written: Vec<Written>,
    counted: bool,
}

/// Takes a batch off what waits, without those that say of one in `told` how it stands.
fn next_batch(waiting: &mut Vec<Record>, told: &BTreeSet<SubscriptionId>) -> Vec<Record> {
    let mut room = Room { records: BATCH_MAX, deliveries: TOLD_MAX };
    if told.is_empty() {
        let count = waiting.iter().take_while(|record| room.take(record)).count();
        let rest = waiting.split_off(count);
        return std::mem::replace(waiting, rest);
    }
    let mut batch = Vec::new();
    for record in std::mem::take(waiting) {
        let held = record.standing.is_some_and(|standing| told.contains(&standing.subscription));
        let place = if held || !room.take(&record) { &mut *waiting } else { &mut batch };
        place.push(record);
    }
    batch
}

/// What is left of a batch. Once something does not fit, it is full: what comes after must not overtake.
struct Room {
    records: usize,
    deliveries: usize,
}

impl Room {
    fn take(&mut self, record: &Record) -> bool {
        let told: usize = record.told.iter().map(|new| new.deliveries.len()).sum();
        // One alone is always taken, however much it tells.
        let fits = self.records == BATCH_MAX || told <= self.deliveries;
        if self.records == 0 || !fits {
            self.records = 0;
            return false;
        }
        self.records -= 1;
        self.deliveries = self.deliveries.saturating_sub(told);
        true
    }
}

/// Of whom records say how they stand.
fn standings<'r>(
    records: impl IntoIterator<Item = &'r Record>,
) -> impl Iterator<Item = SubscriptionId> {
    records.into_iter().filter_map(|record| Some(record.standing?.subscription))
}

async fn write<S, F, R, G>(
    store: S,
    replan: R,
    mut batch: Vec<Record>,
    mut counted: Option<Rollups>,
) -> posthorn_store::Result<Batch>
where
    S: Fn(Vec<Record>, Option<Rollups>) -> F,
    F: Future<Output = posthorn_store::Result<Vec<Recorded>>>,
    R: Fn(Vec<Record>) -> G,
    G: Future<Output = posthorn_store::Result<Vec<Record>>>,
{
    let mut written = Vec::with_capacity(batch.len());
    let carries = counted.is_some();
    loop {
        let answers = patiently(|| store(batch.clone(), counted.clone()), batch.len()).await?;
        // Once is enough, also when some of it has to be planned again.
        counted = None;
        let fenced = answers.iter().filter(|a| matches!(a, Recorded::Fenced)).count();
        if fenced > 0 {
            ::metrics::counter!(metrics::FENCED).increment(fenced as u64);
        }
        let mut stale = Vec::new();
        for (record, answer) in batch.into_iter().zip(answers) {
            match answer {
                Recorded::Stale => stale.push(record),
                answer => written.push(Written { delivery: record.delivery, record, answer }),
            }
        }
        if stale.is_empty() {
            return Ok(Batch { written, counted: carries });
        }
        batch = patiently(|| replan(stale.clone()), stale.len()).await?;
    }
}

/// Tries until it works, or never can.
async fn patiently<T, F>(act: impl Fn() -> F, outcomes: usize) -> posthorn_store::Result<T>
where
    F: Future<Output = posthorn_store::Result<T>>,
{
    let mut wait = RETRY_WAITS[0];
    loop {
        match act().await {
            Err(e) if e.is_transient() => {
                ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "record").increment(1);
                warn!(error = %chain(&e), outcomes, "outcomes could not be written; retrying");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(RETRY_WAITS[1]);
            }
            Err(e) => {
                error!(error = %chain(&e), "outcomes can no longer be written");
                return Err(e);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use posthorn_domain::delivery::Step;
    use posthorn_domain::{
        CatalogVersion, DeliveryState, Epoch, Event, EventId, Fence, NodeId, OperationalType,
        Shard, Span, TenantId, Timestamp, TopicName,
    };
    use posthorn_store::{Error, NewDelivery, NewEvent, Standing, Streak};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(0);

    /// A clock that stands.
    struct Still;

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            NOW
        }
    }

    /// The outcome of delivery `n`, and what it says of a receiver, if anything.
    fn record(n: u128, standing: Option<(u128, Option<Streak>)>) -> Record {
        let subscription = SubscriptionId::new(NOW, standing.map_or(0, |(to, _)| to));
        Record {
            fence: Fence {
                shard: Shard::of(subscription),
                epoch: Epoch(1),
                node: NodeId::new(NOW, 1),
            },
            tenant: TenantId::DEFAULT,
            delivery: DeliveryId::new(NOW, n),
            expected_attempts: 0,
            expected_revival: 0,
            ordered: false,
            step: Step {
                state: DeliveryState::Delivered,
                due_at: NOW,
                charge: true,
                release_lane: true,
                subscription: posthorn_domain::delivery::SubscriptionEffect::None,
            },
            attempt: None,
            standing: standing.map(|(_, failing)| Standing { subscription, failing }),
            told: Vec::new(),
            at: NOW,
        }
    }

    /// A batch that has to be tried again is not overtaken by what says the opposite of a receiver; by
    /// everything else it is.
    #[tokio::test(start_paused = true)]
    async fn the_last_word_about_a_receiver_stays_the_last() {
        let failing = Some(Streak { since: NOW, exhausted: true, told: false });
        let written: Arc<Mutex<Vec<DeliveryId>>> = Arc::default();
        let tries: Arc<Mutex<u32>> = Arc::default();
        let store = {
            let (written, tries) = (Arc::clone(&written), Arc::clone(&tries));
            move |batch: Vec<Record>, _| {
                let (written, tries) = (Arc::clone(&written), Arc::clone(&tries));
                async move {
                    tokio::time::sleep(Span::from_millis(10).to_duration()).await;
                    let first = batch.iter().any(|r| r.delivery == DeliveryId::new(NOW, 1));
                    if first {
                        *tries.lock() += 1;
                        if *tries.lock() < 3 {
                            let lost = std::io::Error::other("the connection is gone");
                            return Err(Error::unknown("write down outcomes", lost));
                        }
                    }
                    written.lock().extend(batch.iter().map(|record| record.delivery));
                    Ok(vec![Recorded::Written { promoted: None }; batch.len()])
                }
            }
        };
        let (records, queue) = mpsc::unbounded_channel();
        let (answers, mut answered) = mpsc::unbounded_channel();
        let (failed, mut failures) = mpsc::unbounded_channel();
        let same = |batch| async move { Ok(batch) };
        let counting = Arc::new(Counting::new(NodeId::new(NOW, 1), |_| None));
        let clock: Arc<dyn Clock> = Arc::new(Still);
        let running = tokio::spawn(run(store, same, 3, (counting, clock), queue, answers, failed));
        let give = async |record| {
            records.send(vec![record]).expect("it runs");
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        give(record(1, Some((7, failing)))).await;
        give(record(2, Some((7, None)))).await;
        give(record(3, Some((8, None)))).await;
        give(record(4, None)).await;
        give(record(5, Some((7, failing)))).await;
        drop(records);
        running.await.expect("it ends");
        let order: Vec<DeliveryId> = written.lock().clone();
        let expected = [3, 4, 1, 2, 5].map(|n| DeliveryId::new(NOW, n));
        assert_eq!(order, expected);
        let mut count = 0;
        while let Some(batch) = answered.recv().await {
            count += batch.len();
        }
        assert_eq!((count, failures.recv().await), (5, None));
    }

    /// When the batches of `given` left, in milliseconds from the start, and how large they were. Each outcome comes a
    /// millisecond after the one before it.
    async fn departures(given: Vec<Record>) -> Vec<(u128, usize)> {
        let left: Arc<Mutex<Vec<(u128, usize)>>> = Arc::default();
        let start = Instant::now();
        let store = {
            let left = Arc::clone(&left);
            move |batch: Vec<Record>, _| {
                left.lock().push((start.elapsed().as_millis(), batch.len()));
                async move { Ok(vec![Recorded::Written { promoted: None }; batch.len()]) }
            }
        };
        let (records, queue) = mpsc::unbounded_channel();
        let (answers, _answered) = mpsc::unbounded_channel();
        let (failed, _failures) = mpsc::unbounded_channel();
        let same = |batch| async move { Ok(batch) };
        let counting = Arc::new(Counting::new(NodeId::new(NOW, 1), |_| None));
        let clock: Arc<dyn Clock> = Arc::new(Still);
        let running = tokio::spawn(run(store, same, 2, (counting, clock), queue, answers, failed));
        for record in given {
            records.send(vec![record]).expect("it runs");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(PACE * 2).await;
        drop(records);
        running.await.expect("it ends");
        Arc::into_inner(left).expect("it has ended").into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn outcomes_that_nobody_waits_for_leave_at_a_pace() {
        let pace = PACE.as_millis();
        let many = (0..60).map(|n| record(n, None)).collect();
        let left = departures(many).await;
        assert_eq!(left[0], (0, 1), "the first waits for nothing");
        assert_eq!(left.iter().map(|(_, size)| size).sum::<usize>(), 60, "all are written");
        let gaps = left.windows(2).map(|pair| pair[1].0 - pair[0].0);
        assert!(gaps.into_iter().all(|gap| gap >= pace), "{left:?}");
        assert_eq!(left.len(), 4, "{left:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_somebody_waits_for_leaves_at_once() {
        let of_lane = Record { ordered: true, ..record(2, None) };
        let left = departures(vec![record(0, None), record(1, None), of_lane]).await;
        assert_eq!(left, [(0, 1), (2, 2)], "and takes along what was waiting");
        let standing = record(1, Some((7, None)));
        assert_eq!(departures(vec![record(0, None), standing]).await, [(0, 1), (1, 1)]);
        assert_eq!(departures(vec![record(0, None), telling(1, 1)]).await, [(0, 1), (1, 1)]);
    }

    /// One outcome that is told to so many.
    fn telling(n: u128, deliveries: usize) -> Record {
        let id = EventId::new(NOW, n);
        let event = Event {
            id,
            tenant: TenantId::DEFAULT,
            topic: TopicName::operational(),
            event_type: OperationalType::DeliveryDead.event_type(),
            attributes: std::collections::BTreeMap::new(),
            key: None,
            content_type: "application/json".to_owned(),
            payload: bytes::Bytes::new(),
            accepted_at: NOW,
            publisher_id: None,
            deliver_at: None,
            retention: None,
            expunged_at: None,
            trace: None,
        };
        let delivery = |n| NewDelivery {
            id: DeliveryId::new(NOW, n),
            subscription: SubscriptionId::new(NOW, n),
            lane: None,
            due_at: NOW,
        };
        let told = NewEvent {
            event: Arc::new(event),
            idempotency: None,
            catalog: CatalogVersion(1),
            deliveries: (0..deliveries as u128).map(delivery).collect(),
        };
        Record { told: vec![told], ..record(n, None) }
    }

    /// Operational events of one tenant do not make a transaction for which all the others wait.
    #[test]
    fn batches_are_cut_by_what_they_tell() {
        let order = |batch: &[Record]| -> Vec<DeliveryId> {
            batch.iter().map(|record| record.delivery).collect()
        };
        for busy in [BTreeSet::new(), BTreeSet::from([SubscriptionId::new(NOW, 99)])] {
            let mut waiting: Vec<Record> = (0..10).map(|n| telling(n, 900)).collect();
            waiting.insert(5, telling(20, TOLD_MAX * 3));
            waiting.push(record(30, None));
            let all = order(&waiting);
            let (mut written, mut sizes) = (Vec::new(), Vec::new());
            while !waiting.is_empty() {
                let batch = next_batch(&mut waiting, &busy);
                sizes.push(batch.len());
                written.extend(order(&batch));
            }
            assert_eq!(written, all, "in their order");
            assert_eq!(sizes, [2, 2, 1, 1, 2, 2, 2]);
        }
        let mut waiting: Vec<Record> =
            (0..BATCH_MAX as u128 + 1).map(|n| record(n, None)).collect();
        assert_eq!(next_batch(&mut waiting, &BTreeSet::new()).len(), BATCH_MAX);
        assert_eq!(waiting.len(), 1);
    }

    /// What is stale is planned again and written; the others of its batch are not repeated.
    #[tokio::test(start_paused = true)]
    async fn what_is_stale_is_planned_again_and_the_rest_is_not_repeated() {
        let calls: Arc<Mutex<Vec<Vec<DeliveryId>>>> = Arc::default();
        let store = {
            let calls = Arc::clone(&calls);
            move |batch: Vec<Record>, _: Option<Rollups>| {
                let calls = Arc::clone(&calls);
                async move {
                    let first = calls.lock().len() < 2;
                    calls.lock().push(batch.iter().map(|record| record.delivery).collect());
                    let odd = |record: &Record| record.delivery == DeliveryId::new(NOW, 1);
                    let answer = |record: &Record| match odd(record) && first {
                        true => Recorded::Stale,
                        false => Recorded::Written { promoted: None },
                    };
                    Ok(batch.iter().map(answer).collect())
                }
            }
        };
        let replans: Arc<Mutex<u32>> = Arc::default();
        let replan = {
            let replans = Arc::clone(&replans);
            move |stale: Vec<Record>| {
                let replans = Arc::clone(&replans);
                async move {
                    *replans.lock() += 1;
                    match *replans.lock() {
                        1 => Err(Error::Unavailable { context: "read", source: None }),
                        _ => Ok(stale),
                    }
                }
            }
        };
        let batch = vec![record(1, None), record(2, None)];
        let written = write(store, replan, batch, None).await.expect("written").written;
        let order: Vec<DeliveryId> = written.iter().map(|written| written.delivery).collect();
        let [one, two] = [1, 2].map(|n| DeliveryId::new(NOW, n));
        assert_eq!(order, [two, one]);
        assert_eq!(*calls.lock(), [vec![one, two], vec![one], vec![one]]);
        assert_eq!(*replans.lock(), 3, "one of them failed");
    }
}
