//! The scheduler: one task that owns every delivery that is due soon.
//!
//! # Theory of operation
//! The store's index on due times is the durable timer; memory holds a bounded window of it, one
//! [`Queue`](queue::Queue) for each subscription with work. A queue knows the earliest due time
//! that may be on disk and not in memory, so a backlog of a million costs one timer. Work that intake
//! has just committed arrives in memory and is never read again; what does not fit stays on disk and
//! is refilled when the window has room.
//!
//! Each turn of the loop takes in everything that happened, then starts as many attempts as there
//! are slots: round robin by tenant, then subscription. The sick share a tenth of the slots and go last
//! while the machine is busy with the healthy ([`pressure`]), whatever takes longer than a second gives its slot back to the
//! quick, and no tenant may take so many of any kind that nothing is left for the next ([`slots`], [`dispatch`]).
//!
//! # Invariants
//! * No attempt starts for a shard that is not held, or whose lease may have run out.
//! * A delivery is in at most one place: queue, under way, or being recorded. Refills are filtered
//!   against all three, and against what was recorded since the refill was asked for.
//! * No two attempts of a lane are under way at once, also when the store has let the lane go on
//!   because the first was cancelled.
//! * The scheduler never waits for anybody: it only sends to queues that its own limits bound.

mod clock_steps;
mod dispatch;
mod failing;
mod health;
mod outcome;
mod paces;
mod pressure;
mod queue;
mod recent;
mod report;
mod ring;
mod shards;
mod slots;
mod tasks;
mod telling;
mod term;
mod waits;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::Span;
use posthorn_domain::{
    Clock, DeliveryId, Epoch, NodeId, Shard, SubscriptionId, Timestamp, Waiting,
};
use posthorn_store::{DueSubscription, Grant, Recall, Record, Store, Work};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::attempt::{Context, Job};
use crate::catalog::{Applied, Catalog, Map};
use crate::chance::Chance;
use crate::metrics;
use crate::options::Options;
use crate::recorder::Written;
use clock_steps::ClockWatch;
use dispatch::at_once;
use failing::Streaks;
use paces::Paces;
use pressure::Pressure;
use queue::Queue;
use recent::Recent;
use ring::Ring;
use shards::Held;
use slots::Slots;
use tasks::TaskOutput;

/// Inputs taken in at once before attempts are started again.
const INPUTS_PER_TURN: usize = 64;
/// Refills under way at once.
const REFILLS_MAX: usize = 2;
/// Subscriptions in one refill.
const REFILL_ASKS_MAX: usize = 64;
/// Payload bytes of one refill.
const REFILL_BYTES_MAX: usize = 8 << 20;

/// How long the store is left alone after it showed a copy that was recalled.
const RECALLED_WAIT: Span = Span::from_millis(100);

/// Something the scheduler should know.
pub(crate) enum Input {
    /// Deliveries that were committed a moment ago and are due, and how long their publish had waited for
    /// a processor.
    Work { works: Vec<Work>, waited: Duration },
    /// Subscriptions that have work on disk.
    Due(Vec<DueSubscription>),
    /// Subscriptions that were created, changed or deleted.
    Changed(Vec<SubscriptionId>),
    /// Deliveries whose copies are out of date.
    Recalled(Vec<Recall>),
    /// Shards were gained.
    Gained(Vec<Grant>),
    /// Shards were lost.
    Lost(Vec<Shard>),
    /// Start nothing more in these shards; answer when nothing of them is under way or unwritten.
    Retire(Vec<Shard>, oneshot::Sender<()>),
    /// Look for work in these shards that nobody told us about.
    Scan(Vec<Shard>),
    /// Leases were renewed: attempts that waited for that may start.
    Renewed,
    /// Start nothing more; answer when nothing is under way or unwritten.
    Drain(oneshot::Sender<()>),
    /// Why do these deliveries wait?
    Waits(Waits),
    /// Which deliveries of these subscriptions are under way, at most so many?
    UnderWay(Vec<SubscriptionId>, usize, oneshot::Sender<Vec<DeliveryId>>),
    /// How does this subscription stand?
    StateOf(SubscriptionId, oneshot::Sender<SubscriptionState>),
    /// The same with its breaker, its concurrency and its rate, if it is this node's.
    Report(SubscriptionId, oneshot::Sender<Option<LiveState>>),
    /// How are you?
    Inspect(oneshot::Sender<Snapshot>),
}

/// Tells the scheduler what a change of the catalog means for the deliveries it holds.
pub(crate) async fn tell(scheduler: &mpsc::Sender<Input>, applied: Applied) {
    if !applied.changed.is_empty() {
        drop(scheduler.send(Input::Changed(applied.changed)).await);
    }
    if !applied.recalls.is_empty() {
        drop(scheduler.send(Input::Recalled(applied.recalls)).await);
    }
}

/// What is in memory, for tests and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Deliveries waiting in memory.
    pub window: usize,
    /// Attempts under way.
    pub in_flight: usize,
    /// Outcomes not yet written.
    pub recording: usize,
    /// Subscriptions with state in memory.
    pub queues: usize,
    /// The earliest due time of a delivery that waits, of all that is not paused. In the past: so far behind it is.
    pub oldest_due: Option<Timestamp>,
}

/// What the scheduler is made of.
pub(crate) struct Parts {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) chance: Arc<Chance>,
    pub(crate) around: Arc<Context>,
    pub(crate) term: LeaseTerm,
    pub(crate) options: Arc<Options>,
    pub(crate) records: mpsc::UnboundedSender<Vec<Record>>,
    /// Effects on subscriptions: disable, delete.
    pub(crate) effects: mpsc::UnboundedSender<Effect>,
    /// Counts what ends.
    pub(crate) admission: Arc<crate::admission::Admission>,
    /// Tells of what ends.
    pub(crate) outcomes: crate::outcomes::Outcomes,
    /// Plans operational events.
    pub(crate) teller: Arc<crate::told::Teller>,
    /// Counts what happened.
    pub(crate) counting: Arc<crate::rollups::Counting>,
    /// Tells whoever listens that something was committed.
    pub(crate) hints: Arc<crate::tail::Hints>,
}

pub(crate) use outcome::{Effect, history};
pub use report::{BreakerState, LiveState};
pub(crate) use slots::Slot;
pub(crate) use term::LeaseTerm;
pub use waits::SubscriptionState;
pub(crate) use waits::{Asked, Live, Waits};

pub(crate) struct Scheduler {
    parts: Parts,
    queues: Map<SubscriptionId, Queue>,
    held: Held,
    recent: Recent,
    ring: Ring,
    /// Who waits for a slot of the sick, who for one of the slow, and who because its tenant holds as
    /// many as it may.
    waiting_failing: Ring,
    waiting_slow: Ring,
    waiting_quick: Ring,
    paces: Paces,
    timers: BTreeSet<(Timestamp, SubscriptionId)>,
    /// Attempts, claims, refills and scans under way.
    tasks: JoinSet<TaskOutput>,
    refills: usize,
    /// Counts refills, so that each reply can be told from those of a former ownership.
    refill_number: u64,
    wants_refill: BTreeSet<SubscriptionId>,
    /// Deliveries whose outcome is being written, with what is needed afterwards.
    recording: Map<(DeliveryId, Epoch), Work>,
    /// Since when outcomes wait without one being written.
    unwritten_since: Option<Timestamp>,
    /// When the log last said that push messages cannot be kept.
    push_trouble: Option<Timestamp>,
    slots: Slots,
    /// How busy the machine is.
    pressure: Pressure,
    /// Since when receivers have only failed.
    streaks: Streaks,
    window: usize,
    window_bytes: usize,
    claims: Vec<Job>,
    outbox: Vec<Record>,
    draining: Option<oneshot::Sender<()>>,
    retiring: Vec<(Vec<Shard>, oneshot::Sender<()>)>,
    stopped: bool,
    /// Notices when somebody sets the wall clock.
    clocks: ClockWatch,
}

impl Scheduler {
    pub(crate) fn new(parts: Parts) -> Self {
        let slots = Slots::new(parts.options.slots);
        Self {
            parts,
            queues: Map::default(),
            held: Held::default(),
            recent: Recent::default(),
            ring: Ring::default(),
            waiting_failing: Ring::default(),
            waiting_slow: Ring::default(),
            waiting_quick: Ring::default(),
            paces: Paces::default(),
            timers: BTreeSet::new(),
            tasks: JoinSet::new(),
            refills: 0,
            refill_number: 0,
            wants_refill: BTreeSet::new(),
            recording: Map::default(),
            unwritten_since: None,
            push_trouble: None,
            slots,
            pressure: Pressure::default(),
            streaks: Streaks::default(),
            window: 0,
            window_bytes: 0,
            claims: Vec::new(),
            outbox: Vec::new(),
            draining: None,
            retiring: Vec::new(),
            stopped: false,
            clocks: ClockWatch::default(),
        }
    }

    /// Runs until every sender of inputs is gone.
    pub(crate) async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Input>,
        mut answers: mpsc::UnboundedReceiver<Vec<Written>>,
    ) {
        let alarm = tokio::time::sleep(Duration::from_secs(3600));
        tokio::pin!(alarm);
        loop {
            alarm.as_mut().reset(self.next_wake());
            tokio::select! {
                biased;
                Some(written) = answers.recv() => self.written(written),
                Some(output) = self.tasks.join_next() => self.finished(output),
                input = inputs.recv() => match input {
                    Some(input) => self.take_in(input),
                    None => return,
                },
                () = &mut alarm => {}
            }
            // Take in whatever else is there, from every side, so that no side starves another.
            while let Ok(written) = answers.try_recv() {
                self.written(written);
            }
            while let Some(output) = self.tasks.try_join_next() {
                self.finished(output);
            }
            for _ in 0..INPUTS_PER_TURN {
                match inputs.try_recv() {
                    Ok(input) => self.take_in(input),
                    Err(_) => break,
                }
            }
            self.turn();
        }
    }

    fn next_wake(&self) -> Instant {
        let now = self.parts.clock.now();
        let timer = self.timers.first().map(|(at, _)| *at);
        // Somebody who is ready waits for a slot: the next one may come from an attempt turning slow.
        let waits = !self.ring.is_empty()
            || !self.waiting_quick.is_empty()
            || !self.waiting_failing.is_empty();
        let slot = self.slots.next_aging().filter(|_| waits);
        // Or somebody who fails waits until there is capacity to spare.
        let spare = (!self.waiting_failing.is_empty()).then(|| self.pressure.next_room(now));
        let pace = self.paces.next_wake();
        let next = timer.into_iter().chain(slot).chain(spare).chain(pace).min();
        let wait = next.map_or(Duration::from_secs(3600), |at| at.since(now).to_duration());
        Instant::now() + wait.min(Duration::from_secs(3600))
    }

    fn take_in(&mut self, input: Input) {
        match input {
            Input::Work { .. } if crate::plant::active("lost-wake-up") => {}
            Input::Work { works, waited } => {
                let now = self.parts.clock.now();
                self.pressure.published(works.len(), waited, now);
                for work in works {
                    self.hand_over(work, now);
                }
            }
            Input::Due(due) => self.note_due(&due),
            Input::Changed(ids) => {
                for id in ids {
                    self.pardon_stopped(id);
                    self.evaluate(id);
                }
            }
            Input::Recalled(recalls) => {
                for recall in recalls {
                    self.recalled(recall);
                }
            }
            Input::Gained(grants) => self.gain(&grants),
            Input::Lost(shards) => self.lose(&shards),
            Input::Retire(shards, done) => {
                for shard in &shards {
                    self.held.retire(*shard);
                }
                self.retiring.push((shards, done));
            }
            Input::Scan(shards) => self.scan(shards),
            Input::Renewed => {}
            Input::Drain(done) => {
                self.stopped = true;
                self.draining = Some(done);
            }
            Input::Waits(question) => self.answer_waits(question),
            Input::UnderWay(of, most, answer) => {
                let _ = answer.send(self.under_way(&of, most));
            }
            Input::StateOf(id, answer) => {
                let _ = answer.send(self.state_of(id));
            }
            Input::Report(id, answer) => {
                let _ = answer.send(self.report(id));
            }
            Input::Inspect(answer) => {
                let snapshot = Snapshot {
                    window: self.window,
                    in_flight: self.slots.in_flight(),
                    recording: self.recording.len(),
                    queues: self.queues.len(),
                    oldest_due: self.oldest_due(),
                };
                let _ = answer.send(snapshot);
            }
        }
    }

    /// Everything that follows from what was taken in.
    fn turn(&mut self) {
        let now = self.parts.clock.now();
        self.follow_clock(now);
        while let Some((at, id)) = self.timers.first().copied() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            if let Some(queue) = self.queues.get_mut(&id) {
                queue.timer = None;
            }
            self.evaluate(id);
        }
        self.go_on_at_pace(now);
        // Also when nothing can be started: the next wake is set by what is not yet slow.
        self.slots.age(now);
        if !self.stopped {
            self.dispatch(now);
            self.start_refills(now);
        }
        if self.recording.is_empty() {
            self.unwritten_since = None;
        } else {
            self.unwritten_since.get_or_insert(now);
        }
        if !self.outbox.is_empty() {
            drop(self.parts.records.send(std::mem::take(&mut self.outbox)));
        }
        ::metrics::gauge!(metrics::WINDOW).set(self.window as f64);
        ::metrics::gauge!(metrics::IN_FLIGHT).set(self.slots.in_flight() as f64);
        self.answer_retired();
        if self.slots.in_flight() == 0
            && self.recording.is_empty()
            && let Some(done) = self.draining.take()
        {
            let _ = done.send(());
        }
    }

    /// Takes in a delivery that comes with the reply of the store that made it due. After a reply that took very long, as
    /// when this process slept, the store is asked what became of it.
    fn hand_over(&mut self, work: Work, now: Timestamp) {
        if !Recent::reaches_back_to(&work.delivery, now) {
            let due = DueSubscription {
                subscription: work.delivery.subscription,
                due_at: work.delivery.due_at,
            };
            self.note_due(&[due]);
        } else if !self.recent.has(&work.delivery) {
            self.insert(work, now);
        }
    }

    /// A copy that waits is let go, and what the store says is read. While an attempt is under way or
    /// being recorded nothing is started: the store is asked after.
    fn recalled(&mut self, recall: Recall) {
        let now = self.parts.clock.now();
        let Some(queue) = self.queues.get_mut(&recall.subscription) else { return };
        if let Some(work) = queue.withdraw(recall.delivery, recall.revival) {
            queue.note_on_disk(now);
            self.left_window(&work);
        } else if queue.is_under_way(recall.delivery) {
            queue.outdate(recall.delivery);
        }
        self.evaluate(recall.subscription);
    }

    /// Takes a delivery into the window, or leaves it on disk when it is far off or there is no room.
    fn insert(&mut self, work: Work, now: Timestamp) {
        let id = work.delivery.subscription;
        if !self.clocks.was_ahead(now) {
            return self.insert_trusted(work, now);
        }
        // Perhaps its due time was made by the clock that was ahead.
        for work in self.examine(id, vec![work], now) {
            self.insert_trusted(work, now);
        }
    }

    /// The same for one whose due time is right.
    fn insert_trusted(&mut self, work: Work, now: Timestamp) {
        let id = work.delivery.subscription;
        if !self.held.holds(Shard::of(id)) || work.delivery.is_parked() {
            return;
        }
        let options = &self.parts.options;
        let size = work.event.payload.len();
        let due = work.delivery.due_at;
        let queue = self.queues.entry(id).or_default();
        if self.parts.catalog.is_recalled(&work.delivery) {
            // Read before it was recalled; whatever is true is in the store. The store may still show the
            // same to us, so it is not asked again at once.
            queue.note_on_disk(now.plus(RECALLED_WAIT));
            self.evaluate(id);
            return;
        }
        let crowded = queue.waiting() >= queue.window(options.window_per_subscription)
            || (queue.waiting() > 0
                && (self.window >= options.window
                    || self.window_bytes + size > options.window_bytes));
        let far = due > now.plus(options.horizon);
        let known = queue.is_known(work.delivery.id);
        let displaced = if crowded && !far && !known { queue.displace(due) } else { None };
        if far || (crowded && displaced.is_none()) {
            if !known {
                queue.note_on_disk(due);
            }
        } else if queue.add(work) {
            self.window += 1;
            self.window_bytes += size;
        }
        if let Some(later) = displaced {
            self.left_window(&later);
        }
        self.evaluate(id);
    }

    fn left_window(&mut self, work: &Work) {
        self.window -= 1;
        self.window_bytes -= work.event.payload.len();
    }

    fn note_due(&mut self, due: &[DueSubscription]) {
        let now = self.parts.clock.now();
        for DueSubscription { subscription, due_at } in due {
            if self.held.holds(Shard::of(*subscription)) {
                let queue = self.queues.entry(*subscription).or_default();
                if self.clocks.was_ahead(now) && *due_at > now {
                    queue.examine_once(now);
                }
                queue.note_on_disk(*due_at);
                self.evaluate(*subscription);
            }
        }
    }

    /// Whoever stops a subscription, and lets it go on, wants it tried anew.
    fn pardon_stopped(&mut self, id: SubscriptionId) {
        let view = self.parts.catalog.view(id);
        if view.is_some_and(|view| view.subscription.status.is_active()) {
            return;
        }
        self.streaks.forget(id);
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.health.pardon();
        }
    }

    /// Decides what a subscription waits for: a turn, a refill, a time, or nothing.
    fn evaluate(&mut self, id: SubscriptionId) {
        let now = self.parts.clock.now();
        self.evaluate_at(id, now);
    }

    /// The same for one moment. Whoever acts on the answer must act for the same moment: a delivery
    /// that is due by one reading of the clock and not by another would go round for ever.
    fn evaluate_at(&mut self, id: SubscriptionId, now: Timestamp) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let Some(view) = self.parts.catalog.view(id) else {
            // Deleted, or so new that this node has not heard of it. Either way the store knows.
            let dropped: Vec<Work> = queue.drain().collect();
            queue.on_disk = None;
            for work in &dropped {
                self.left_window(work);
            }
            self.tidy(id, now);
            return;
        };
        let Ok(policy) = &view.policy else { return };
        let lined_up = queue.in_ring || queue.awaits_slot || queue.awaits_pace;
        if !view.subscription.status.is_active() || lined_up {
            return;
        }
        if self.held.usable(Shard::of(id)).is_none() {
            return;
        }
        let held = queue.health.held_until().max(queue.health.rate_slot(&policy.limits));
        let mut wake: Option<Timestamp> = None;
        let tenant = view.subscription.tenant;
        let limit = at_once(queue, &self.slots, tenant, &policy.limits);
        if let Some(head) = queue.head() {
            let start = head.max(held);
            if start > now.max(head) {
                queue.stop(queue.health.held(&policy.limits), now);
            }
            match queue.crowded(policy, limit, now) {
                None if start <= now => {
                    queue.in_ring = true;
                    queue.lined_up = now;
                    self.ring.push(tenant, id);
                }
                None => wake = Some(start),
                // The end of an attempt wakes it, and so does the age of one.
                Some(crowd) => {
                    if start <= now {
                        queue.stop(Waiting::on(crowd.reason), now);
                    }
                    wake = crowd.until.map(|aged| aged.max(start));
                }
            }
        }
        if let Some(due) = queue.on_disk
            && queue.refill.is_none()
            && queue.may_read(due, queue.window(self.parts.options.window_per_subscription))
        {
            // Due times that may be wrong are looked at whatever holds the attempts back.
            let held = queue.health.held_until();
            let start = if queue.examines().is_some() { due } else { due.max(held) };
            if start <= now {
                self.wants_refill.insert(id);
            } else {
                wake = Some(wake.map_or(start, |other| other.min(start)));
            }
        }
        match wake {
            Some(at) => self.set_timer(id, at),
            None => self.tidy(id, now),
        }
    }

    fn set_timer(&mut self, id: SubscriptionId, at: Timestamp) {
        if let Some(queue) = self.queues.get_mut(&id) {
            if queue.timer == Some(at) {
                return;
            }
            if let Some(old) = queue.timer.replace(at) {
                self.timers.remove(&(old, id));
            }
            self.timers.insert((at, id));
        }
    }

    /// Drops a queue that holds nothing any more, at once or when what it remembers is too old.
    fn tidy(&mut self, id: SubscriptionId, now: Timestamp) {
        match self.queues.get(&id).and_then(|queue| queue.idle_from(now)) {
            None => {}
            Some(later) if later > now => self.set_timer(id, later),
            Some(_) => {
                if let Some(queue) = self.queues.remove(&id)
                    && let Some(at) = queue.timer
                {
                    self.timers.remove(&(at, id));
                }
            }
        }
    }
}
