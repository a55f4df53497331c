//! The wall clock is set, forwards or back.
//!
//! # Theory of operation
//! Due times are written down by the wall clock, so that they outlive the process. When that is set
//! forwards, everything that falls due is attempted, and waits are counted from a time that is not yet.
//! When it is set back, these due times are too far away by as much. So the wall clock is compared with
//! the monotonic one, which nobody sets, at every turn; after a step back everything in memory that was
//! measured before is dropped, and all unfinished deliveries are read again, each with its last attempt
//! where that is needed ([`due_again`]). Those that would wait longer than their schedule says get a
//! new due time, which is written down like a postponement. At a start, the newest events tell whether
//! the clock was ahead when they were accepted.
//!
//! # What it must not know
//! How attempts are made, and how a receiver is doing.

use std::sync::Arc;

use posthorn_domain::delivery::{PUSH_WAIT_MIN, Step, SubscriptionEffect};
use posthorn_domain::policy::{OnClosed, Policy, RetryAfter};
use posthorn_domain::{
    Delivery, DeliveryState, Fence, Shard, Span, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{EventFilter, Listing, PendingAsk, Record, Store, Work};
use tokio::time::Instant;
use tracing::{info, warn};

use super::Scheduler;
use super::pressure::Pressure;
use super::queue::Queue;
use super::tasks::TaskOutput;
use crate::error::chain;

/// How far the two clocks may be apart without anybody having set one: slewing and coarse readings.
const TOLERANCE: Span = Span::from_secs(2);
/// How long to wait for due times to be written before the same page is read again.
const PAGE_PAUSE: Span = Span::from_millis(20);
/// Tenants whose newest event is looked at when shards are gained.
const TENANTS_MAX: usize = 1_000;

/// Compares the wall clock with the monotonic one.
#[derive(Default)]
pub(super) struct ClockWatch {
    last: Option<(Timestamp, Instant)>,
    /// Until when there may be due times that a clock wrote which was ahead.
    ahead_until: Option<Timestamp>,
    /// Whether the store was asked for events from the future.
    asked: bool,
}

/// The wall clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClockStep {
    Forwards(Span),
    Back(Span),
}

impl ClockWatch {
    /// Whether there may be due times that a clock wrote which was ahead.
    pub(super) fn was_ahead(&self, now: Timestamp) -> bool {
        self.ahead_until.is_some_and(|until| now < until)
    }

    fn look(&mut self, now: Timestamp, at: Instant) -> Option<ClockStep> {
        let (was, then) = self.last.replace((now, at))?;
        let passed = Span::from_millis(u64::try_from((at - then).as_millis()).unwrap_or(u64::MAX));
        let expected = was.plus(passed);
        if expected > now.plus(TOLERANCE) {
            return Some(ClockStep::Back(expected.since(now)));
        }
        let ahead = now.since(expected);
        (now > expected && ahead > TOLERANCE).then_some(ClockStep::Forwards(ahead))
    }
}

/// A delivery that seems to wait too long, and its last attempt.
pub(super) struct Suspect {
    work: Work,
    fence: Fence,
    last: Option<LastAttempt>,
}

/// What the last attempt says about the wait that followed.
#[derive(Clone, Copy)]
struct LastAttempt {
    ended: Timestamp,
    /// Only who answers can ask for a wait.
    answered: bool,
}

/// When a delivery may start, by a clock that was set back, whose event is to be delivered at `later`: never later than its schedule says, counted
/// from its last attempt, or from now when that is in the future.
fn due_again(
    delivery: &Delivery,
    later: Option<Timestamp>,
    last: Option<LastAttempt>,
    policy: &Policy,
    now: Timestamp,
) -> Timestamp {
    let due = delivery.due_at;
    let from = last.map_or(delivery.created_at, |last| last.ended);
    let by_attempt = if from > now { now.plus(due.since(from)) } else { due };
    let mut longest = by_schedule(delivery, policy);
    // What a receiver may have asked for stands. A gate postpones again and again: longer than the receiver may ask for
    // was the gate.
    let RetryAfter { honour, cap } = policy.schedule.retry_after;
    let asked = last.is_some_and(|last| last.answered && due <= last.ended.plus(cap));
    if delivery.spent() > 0
        && delivery.state != DeliveryState::InFlight
        && honour
        && (asked || at_gate(policy).is_none())
    {
        longest = longest.max(cap);
    }
    // Nothing comes before the time at which its event is to be delivered, which no clock of ours made.
    let earliest = later.unwrap_or(Timestamp::MIN).min(due);
    due.min(by_attempt).min(now.plus(longest)).max(earliest)
}

/// Whether a delivery is due later than its policy alone would have it.
fn waits_too_long(work: &Work, policy: &Policy, now: Timestamp) -> bool {
    let delivery = &work.delivery;
    let longest = by_schedule(delivery, policy);
    let from = work.event.deliver_at.unwrap_or(now).max(now);
    !delivery.is_parked() && delivery.due_at > from.plus(longest).plus(TOLERANCE)
}

/// The longest wait that follows from the policy alone.
fn by_schedule(delivery: &Delivery, policy: &Policy) -> Span {
    if delivery.state == DeliveryState::InFlight {
        return policy.lease.time;
    }
    let done = delivery.spent();
    let wait = if done == 0 {
        Span::ZERO
    } else {
        // The highest that chance can give is the highest of all its corners.
        let plain = policy.schedule.backoff.wait(done);
        policy.schedule.jitter.longest(plain)
    };
    wait.max(at_gate(policy).unwrap_or(Span::ZERO)).max(PUSH_WAIT_MIN)
}

/// How long a closed gate postpones, when it does.
fn at_gate(policy: &Policy) -> Option<Span> {
    match policy.gate.as_ref()?.on_closed {
        OnClosed::Postpone { wait } => Some(wait),
        OnClosed::DeadLetter => None,
    }
}

/// Waits as before, until then. Whether it has grown too old is asked when it is due.
fn postponed(due_at: Timestamp) -> Step {
    Step {
        state: DeliveryState::Pending,
        due_at,
        charge: false,
        release_lane: false,
        subscription: SubscriptionEffect::None,
    }
}

/// Reads the last attempts of these.
async fn look_back(store: Arc<dyn Store>, mut suspects: Vec<Suspect>) -> TaskOutput {
    for suspect in &mut suspects {
        let delivery = &suspect.work.delivery;
        if delivery.attempts == 0 {
            continue;
        }
        match store.attempts(delivery.tenant, delivery.id).await {
            Ok(attempts) => {
                suspect.last = attempts.last().map(|attempt| LastAttempt {
                    ended: attempt.started_at.plus(attempt.took),
                    answered: attempt.status.is_some(),
                });
            }
            Err(e) => warn!(error = %chain(&e), "an attempt could not be read"),
        }
    }
    TaskOutput::Examined(suspects)
}

/// When the newest event of these tenants was accepted.
async fn newest(store: Arc<dyn Store>, tenants: Vec<TenantId>) -> TaskOutput {
    let mut newest = Timestamp::MIN;
    for tenant in tenants {
        let filter = EventFilter::default();
        match store.event_lines(tenant, filter, Listing::newest(1)).await {
            Ok(page) => {
                newest =
                    page.items.iter().map(|line| line.event.accepted_at).fold(newest, Ord::max);
            }
            Err(e) => {
                warn!(error = %chain(&e), "the newest events could not be read");
                break;
            }
        }
    }
    TaskOutput::Newest(newest)
}

impl Scheduler {
    /// Looks at both clocks, and again at all due times when the wall clock was set back.
    pub(super) fn follow_clock(&mut self, now: Timestamp) {
        if self.clocks.ahead_until.is_some_and(|until| until <= now) {
            self.clocks.ahead_until = None;
            self.queues.values_mut().for_each(Queue::trust_all);
        }
        match self.clocks.look(now, Instant::now()) {
            None => {}
            Some(ClockStep::Forwards(by)) => warn!(
                %by,
                "the system clock was set forward, or the machine slept: deliveries that are now \
                 due are attempted"
            ),
            Some(ClockStep::Back(by)) => {
                warn!(%by, "the system clock was set back: all due times are checked again");
                self.clocks.ahead_until = self.clocks.ahead_until.max(Some(now.plus(by)));
                self.slots.set_back(by);
                self.paces.set_back(by);
                self.look_again(now, by);
            }
        }
    }

    /// Asks once whether the clock was ahead before this process began.
    pub(super) fn ask_for_the_future(&mut self) {
        if !std::mem::replace(&mut self.clocks.asked, true) {
            let tenants = self.parts.catalog.some_tenants(TENANTS_MAX);
            self.tasks.spawn(newest(Arc::clone(&self.parts.store), tenants));
        }
    }

    pub(super) fn learned_newest(&mut self, newest: Timestamp) {
        let now = self.parts.clock.now();
        if newest > now.plus(TOLERANCE) {
            let ahead = newest.since(now);
            warn!(
                %ahead,
                "events were accepted by a clock that was ahead of this one: all due times are \
                 checked again"
            );
            self.clocks.ahead_until = self.clocks.ahead_until.max(Some(newest));
            self.look_again(now, Span::ZERO);
        }
    }

    /// Corrects what was measured by a clock that was ahead by so much while this process ran, and has
    /// everything read again.
    fn look_again(&mut self, now: Timestamp, by: Span) {
        self.pressure = Pressure::default();
        self.held.since_at_most(now);
        self.recent.at_most(now);
        self.unwritten_since = self.unwritten_since.map(|since| since.min(now));
        self.push_trouble = self.push_trouble.filter(|told| *told <= now);
        let all: Vec<SubscriptionId> = self.queues.keys().copied().collect();
        for id in all {
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            let dropped = queue.look_again(now, by);
            for work in &dropped {
                self.left_window(work);
            }
            self.evaluate_at(id, now);
        }
        // Those that have nothing in memory at all.
        let held = Shard::all().filter(|shard| self.held.holds(*shard)).collect();
        self.scan(held);
    }

    /// Decides where to look on after a page of a subscription's deliveries was read; `more` says that
    /// there may be others behind it.
    pub(super) fn look_on(&mut self, ask: &PendingAsk, page: &[Work], more: bool, now: Timestamp) {
        let was_ahead = self.clocks.was_ahead(now);
        let view = self.parts.catalog.view(ask.subscription);
        let policy = view.as_ref().and_then(|view| view.policy.as_ref().ok());
        let Some(queue) = self.queues.get_mut(&ask.subscription) else { return };
        let (from, not_before) = match page.last().map(|work| work.delivery.due_at) {
            _ if !more => (None, now),
            // Others took all the room.
            None => (Some(ask.from), now),
            Some(last) if last > ask.from => (Some(last), now),
            // More of one moment than fit a page: wait until those found have moved.
            Some(_) => {
                let moves = |policy: &Arc<Policy>| {
                    page.iter().any(|work| {
                        waits_too_long(work, policy, now) && !queue.trusts(work.delivery.id)
                    })
                };
                match was_ahead && policy.is_some_and(moves) {
                    true => (Some(ask.from), now.plus(PAGE_PAUSE)),
                    false => (Some(ask.from.plus(Span::from_millis(1))), now),
                }
            }
        };
        queue.examine_from(from, not_before);
    }

    /// Sorts out those that seem to wait too long; gives the others.
    pub(super) fn examine(
        &mut self,
        id: SubscriptionId,
        works: Vec<Work>,
        now: Timestamp,
    ) -> Vec<Work> {
        let view = self.parts.catalog.view(id);
        let policy = view.as_ref().and_then(|view| view.policy.as_ref().ok());
        let shard = Shard::of(id);
        let lease = self.held.epoch(shard);
        let (Some(policy), Some((epoch, _))) = (policy, lease) else { return works };
        let queue = self.queues.entry(id).or_default();
        let fence = Fence { shard, epoch, node: self.parts.node };
        let (suspects, plain): (Vec<Work>, Vec<Work>) = works.into_iter().partition(|work| {
            waits_too_long(work, policy, now)
                && !queue.trusts(work.delivery.id)
                && queue.expect(work)
        });
        if !suspects.is_empty() {
            let suspects = suspects.into_iter().map(|work| Suspect { work, fence, last: None });
            let store = Arc::clone(&self.parts.store);
            self.tasks.spawn(look_back(store, suspects.collect()));
        }
        plain
    }

    /// Gives those that wait too long another due time.
    pub(super) fn examined(&mut self, suspects: Vec<Suspect>) {
        let now = self.parts.clock.now();
        let mut sooner = 0_usize;
        for Suspect { mut work, fence, last } in suspects {
            let id = work.delivery.subscription;
            if !self.is_present(&fence) {
                continue;
            }
            let view = self.parts.catalog.view(id);
            let was = work.delivery.due_at;
            if let Some(Ok(policy)) = view.as_ref().map(|view| &view.policy) {
                let later = work.event.deliver_at;
                work.delivery.due_at = due_again(&work.delivery, later, last, policy, now);
                // So that it is not shortened again and again.
                if waits_too_long(&work, policy, now)
                    && let Some(queue) = self.queues.get_mut(&id)
                {
                    queue.trust(work.delivery.id);
                }
            }
            let due = work.delivery.due_at;
            match due < was {
                true => {
                    sooner += 1;
                    self.outbox.push(Record {
                        fence,
                        tenant: work.delivery.tenant,
                        delivery: work.delivery.id,
                        expected_attempts: work.delivery.attempts,
                        expected_revival: work.delivery.revival,
                        ordered: work.delivery.lane.is_some(),
                        step: postponed(due),
                        attempt: None,
                        standing: None,
                        told: Vec::new(),
                        at: now,
                    });
                    self.held.busy(fence.shard, 1);
                    self.recording.insert((work.delivery.id, fence.epoch), work);
                }
                false => {
                    if let Some(queue) = self.queues.get_mut(&id) {
                        queue.forget(work.delivery.id);
                    }
                    self.insert_trusted(work, now);
                }
            }
        }
        if sooner > 0 {
            info!(deliveries = sooner, "due times too far in the future were shortened");
        }
    }
}

#[cfg(test)]
mod tests {
    use posthorn_domain::policy::profiles::shipped;

    use super::*;

    #[test]
    fn a_step_is_told_from_the_passing_of_time() {
        let began = Instant::now();
        let at = |seconds: u64| began + std::time::Duration::from_secs(seconds);
        let wall = |seconds: i64| Timestamp::from_millis(1_700_000_000_000 + seconds * 1_000);
        let mut watch = ClockWatch::default();
        assert_eq!(watch.look(wall(0), at(0)), None);
        assert_eq!(watch.look(wall(10), at(10)), None);
        assert_eq!(watch.look(wall(11), at(12)), None, "slewed");
        let day = Span::from_secs(86_400);
        assert_eq!(watch.look(wall(86_412), at(13)), Some(ClockStep::Forwards(day)));
        assert_eq!(watch.look(wall(86_413), at(14)), None, "told once");
        assert_eq!(watch.look(wall(14), at(15)), Some(ClockStep::Back(day)));
        assert_eq!(watch.look(wall(15), at(16)), None);
    }

    #[test]
    fn nothing_waits_longer_than_its_schedule_and_what_was_right_stays() {
        let policy = shipped().into_iter().find(|(name, _)| name.as_str() == "efgs");
        let policy = policy.expect("shipped").1;
        let now = Timestamp::from_millis(1_700_000_000_000);
        let (day, wait) = (Span::from_secs(86_400), Span::from_secs(300));
        let delivery = |attempts: u32, created: Timestamp, due: Timestamp| Delivery {
            id: posthorn_domain::DeliveryId::new(now, 1),
            event: posthorn_domain::EventId::new(now, 1),
            subscription: SubscriptionId::new(now, 1),
            tenant: TenantId::DEFAULT,
            lane: None,
            seq: 1,
            state: DeliveryState::Pending,
            due_at: due,
            attempts,
            budget_base: 0,
            budget: posthorn_domain::Budget::Fresh,
            revival: 0,
            budget_began: created,
            created_at: created,
            ended_at: None,
            last_outcome: None,
        };
        // Accepted while the clock was ahead, and never attempted.
        let ahead = now.plus(day);
        assert_eq!(due_again(&delivery(0, ahead, ahead), None, None, &policy, now), now);
        // Attempted while the clock was ahead.
        let failed = delivery(1, now, ahead.plus(wait));
        let ended = |ended: Timestamp| Some(LastAttempt { ended, answered: false });
        assert_eq!(due_again(&failed, None, ended(ahead), &policy, now), now.plus(wait));
        // A wait that began before, by the right clock.
        let right = delivery(1, now, now.plus(wait));
        assert_eq!(due_again(&right, None, ended(now), &policy, now), now.plus(wait));
        // It is to be delivered tomorrow, whatever the clock said when it was accepted.
        let tomorrow = delivery(0, ahead, ahead.plus(day));
        assert_eq!(due_again(&tomorrow, Some(ahead), None, &policy, now), ahead);
        assert_eq!(
            due_again(&tomorrow, Some(tomorrow.due_at), None, &policy, now),
            tomorrow.due_at
        );
        let due = delivery(0, now, now);
        assert_eq!(due_again(&due, None, None, &policy, now), now);
        // A receiver asked for a longer wait than the schedule's, also where there is a gate.
        let mut gated = policy.clone();
        gated.schedule.retry_after = RetryAfter { honour: true, cap: Span::from_secs(3_600) };
        gated.gate = pca_gate();
        let asked = delivery(1, now, now.plus(Span::from_secs(1_800)));
        let answered = Some(LastAttempt { ended: now, answered: true });
        assert_eq!(due_again(&asked, None, answered, &gated, now), asked.due_at);
        // Nobody asked for this: it was the gate, by a clock that was ahead.
        assert!(due_again(&asked, None, ended(now), &gated, now) < asked.due_at);
        let gate = delivery(1, now, now.plus(day));
        assert!(due_again(&gate, None, answered, &gated, now) <= now.plus(Span::from_secs(3_600)));
    }

    fn pca_gate() -> Option<posthorn_domain::policy::Gate> {
        let pca = shipped().into_iter().find(|(_, policy)| policy.gate.is_some());
        let mut gate = pca.expect("a shipped profile has a gate").1.gate?;
        gate.on_closed = OnClosed::Postpone { wait: Span::from_secs(60) };
        Some(gate)
    }
}
