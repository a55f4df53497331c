//! What a record may say, given what the receiver answered.

use posthorn_domain::policy::{
    Gone, Jitter, MaxAge, OnClosed, OnExhausted, OnPermanent, Policy, Schedule,
};
use posthorn_domain::{
    Attempt, Budget, CancelReason, DeadReason, Delivery, DeliveryState, FailureCode, Timestamp,
};
use posthorn_store::Record;

use super::requests::Seen;
use super::{Invariant, Oracle};

/// How long a delivery waits when mailboxes are out of order, in milliseconds.
const PUSH_WAIT_LEAST: u64 = 5_000;
const PUSH_WAIT_MOST: u64 = 60_000;

impl Oracle {
    /// Compares the step of a record with what the receiver said and the policy asks for.
    pub(super) fn check_step(&mut self, now: Timestamp, record: &Record) {
        let Some(entry) = self.deliveries.get(&record.delivery) else {
            let what = format!("an outcome of {}, which was never accepted", record.delivery);
            self.blame(Invariant::I4, now, what);
            return;
        };
        let Some(known) = self.subscriptions.get(&entry.delivery.subscription) else { return };
        let policy = std::sync::Arc::clone(&known.policy);
        let delivery = entry.delivery.clone();
        match &record.attempt {
            Some(attempt) => {
                self.expect(
                    attempt.number == delivery.attempts + 1 && record.step.charge && !attempt.late,
                    Invariant::I15,
                    now,
                    || format!("attempt {attempt:?} follows {} others", delivery.attempts),
                );
                match self.seen(record, attempt) {
                    Some(seen) => self.check_answer(now, record, &delivery, &policy, &seen),
                    None => self.blame(
                        Invariant::I4,
                        now,
                        format!("no receiver of {} has seen {attempt:?}", record.delivery),
                    ),
                }
            }
            None => self.check_unsent(now, record, &delivery, &policy),
        }
    }

    /// What the receiver answered to this attempt, by the node that recorded it.
    fn seen(&self, record: &Record, attempt: &Attempt) -> Option<Seen> {
        let entry = self.deliveries.get(&record.delivery)?;
        entry
            .requests
            .iter()
            .rev()
            .map(|index| &self.requests[*index])
            .filter(|request| request.node == record.fence.node)
            .filter(|request| request.number == attempt.number)
            .filter_map(|request| request.seen.clone())
            .find(|seen| seen.status == attempt.status && seen.failure == attempt.failure)
    }

    fn check_answer(
        &mut self,
        now: Timestamp,
        record: &Record,
        delivery: &Delivery,
        policy: &Policy,
        seen: &Seen,
    ) {
        let step = &record.step;
        let status = seen.status.unwrap_or(0);
        let success = seen.status.is_some() && policy.success.contains(status);
        if success {
            self.expect(step.state == DeliveryState::Delivered, Invariant::I3, now, || {
                format!("{} succeeded and became {step:?}", delivery.id)
            });
            return;
        }
        if step.state == DeliveryState::Delivered {
            let what = format!("{} is called delivered after {seen:?}", delivery.id);
            self.blame(Invariant::I4, now, what);
            return;
        }
        // Trouble of the mailboxes is not counted; it is only written down when it was the last.
        if seen.failure == Some(FailureCode::PushUnavailable) {
            let (limit, _) = self.limits_of_age(delivery, policy, record.at);
            let old = limit.is_some_and(|limit| after(record.at, PUSH_WAIT_MOST) > limit);
            let right = step.state == DeliveryState::Dead(DeadReason::Expired) && old;
            self.expect(right, Invariant::I10, now, || {
                format!("{} became {step:?} because of the mailboxes", delivery.id)
            });
            return;
        }
        if status == 410 && policy.permanent.gone == Gone::Disable {
            let wanted = match delivery.budget {
                Budget::Fresh => DeliveryState::Pending,
                Budget::Once => DeliveryState::Dead(DeadReason::Exhausted),
            };
            self.expect(step.state == wanted, Invariant::I3, now, || {
                format!("410 for {} must keep it pending, not {step:?}", delivery.id)
            });
            return;
        }
        let permanent = seen.failure == Some(FailureCode::UrlNotAllowed)
            || policy.permanent.status.contains(status)
            || (seen.refuses && policy.permanent.body.is_some());
        if permanent {
            let wanted = match policy.on_permanent {
                OnPermanent::DeadLetter => DeliveryState::Dead(DeadReason::Permanent),
                OnPermanent::Drop => DeliveryState::Cancelled(CancelReason::Dropped),
            };
            self.expect(step.state == wanted, Invariant::I10, now, || {
                format!("{} was refused for good and became {step:?}", delivery.id)
            });
            return;
        }
        self.check_retry(now, record, delivery, policy, seen);
    }

    fn check_retry(
        &mut self,
        now: Timestamp,
        record: &Record,
        delivery: &Delivery,
        policy: &Policy,
        seen: &Seen,
    ) {
        let step = &record.step;
        let schedule = &policy.schedule;
        let done = delivery.attempts - delivery.budget_base + 1;
        let asked = seen.retry_after_ms.filter(|_| schedule.retry_after.honour);
        let cap = schedule.retry_after.cap.as_millis();
        let (from, to) = waits(schedule, done);
        let least = asked.map_or(from, |asked| from.max(asked.min(cap)));
        let most = asked.map_or(to, |asked| to.max(asked.min(cap)));
        let (least, most) = (after(record.at, least), after(record.at, most));
        let once = delivery.budget == Budget::Once;
        let spent = once || schedule.max_attempts.is_some_and(|max| done >= max);
        let (first, last) = self.limits_of_age(delivery, policy, record.at);
        let must_expire = !spent && last.is_some_and(|limit| least > limit);
        let may_expire = !spent && first.is_some_and(|limit| most > limit);
        match step.state {
            DeliveryState::Pending => {
                self.expect(!spent && !must_expire, Invariant::I10, now, || {
                    format!("{} had {done} attempts and goes on: {step:?}", delivery.id)
                });
                self.expect(step.due_at >= least, Invariant::I9, now, || {
                    let wait = step.due_at.since(record.at);
                    format!("attempt {done} of {} is followed too early, after {wait}", delivery.id)
                });
                self.expect(step.due_at <= most, Invariant::I9, now, || {
                    let wait = step.due_at.since(record.at);
                    let (id, most) = (delivery.id, most.since(record.at));
                    format!("attempt {done} of {id} is followed too late, after {wait}, not {most}: {schedule:?}")
                });
            }
            DeliveryState::Dead(reason) => {
                let right = match reason {
                    DeadReason::Exhausted => spent,
                    DeadReason::Expired => may_expire,
                    DeadReason::Permanent | DeadReason::Gate => false,
                };
                let kept = once || policy.on_exhausted != OnExhausted::Drop;
                self.expect(right && kept, Invariant::I10, now, || {
                    format!("{} died of {reason:?} after {done} attempts", delivery.id)
                });
            }
            DeliveryState::Cancelled(CancelReason::Dropped) => {
                let drops = policy.on_exhausted == OnExhausted::Drop && !once;
                let right = drops && (spent || may_expire);
                self.expect(right, Invariant::I10, now, || {
                    format!("{} was dropped after {done} attempts", delivery.id)
                });
            }
            _ => self.blame(
                Invariant::I3,
                now,
                format!("{} became {step:?} after {seen:?}", delivery.id),
            ),
        }
    }

    /// The time after which a delivery is too old, at the earliest and at the latest: its clock stands
    /// still with its subscription, as any version says that its sender may have gone by.
    fn limits_of_age(
        &self,
        delivery: &Delivery,
        policy: &Policy,
        now: Timestamp,
    ) -> (Option<Timestamp>, Option<Timestamp>) {
        let Some(MaxAge::Is(age)) = policy.schedule.max_age else { return (None, None) };
        let limit = delivery.budget_began.plus(age);
        let known = self.subscriptions.get(&delivery.subscription);
        let shifts = known.map(|known| known.stood_still(delivery.budget_began, now));
        let (least, most) = shifts.unwrap_or_default();
        (Some(limit.plus(least)), Some(limit.plus(most)))
    }

    /// A step without an attempt: the gate was closed, or it grew too old.
    fn check_unsent(
        &mut self,
        now: Timestamp,
        record: &Record,
        delivery: &Delivery,
        policy: &Policy,
    ) {
        let step = &record.step;
        let (limit, _) = self.limits_of_age(delivery, policy, record.at);
        let old = |at: Timestamp| limit.is_some_and(|limit| at > limit);
        if step.state == DeliveryState::Pending && self.is_push(delivery.subscription) {
            let due = after(record.at, PUSH_WAIT_LEAST)..=after(record.at, PUSH_WAIT_MOST);
            self.expect(due.contains(&step.due_at) && !step.charge, Invariant::I9, now, || {
                format!("{} waits for the mailboxes: {step:?}", delivery.id)
            });
            return;
        }
        let right = match (step.state, policy.gate.as_ref().map(|gate| &gate.on_closed)) {
            (DeliveryState::Dead(DeadReason::Gate), Some(OnClosed::DeadLetter)) => true,
            (DeliveryState::Pending, Some(OnClosed::Postpone { wait })) => {
                step.due_at == record.at.plus(*wait)
            }
            (DeliveryState::Dead(DeadReason::Expired), Some(OnClosed::Postpone { wait })) => {
                old(record.at.plus(*wait))
            }
            (DeliveryState::Dead(DeadReason::Expired), _) => old(record.at),
            _ => false,
        };
        self.expect(right && !step.charge, Invariant::I10, now, || {
            format!("{} became {step:?} without an attempt", delivery.id)
        });
    }
}

fn after(at: Timestamp, millis: u64) -> Timestamp {
    at.plus(posthorn_domain::Span::from_millis(millis))
}

/// The shortest and the longest wait after attempt number `done`, by the design's own words.
pub(super) fn waits(schedule: &Schedule, done: u32) -> (u64, u64) {
    use posthorn_domain::policy::Backoff;
    let index = done.saturating_sub(1) as usize;
    let wait = match &schedule.backoff {
        Backoff::Fixed { wait } => wait.as_millis(),
        Backoff::Exponential { initial, factor, cap } => {
            let mut wait = initial.as_millis() as f64;
            for _ in 0..index {
                wait = (wait * factor).min(cap.as_millis() as f64);
            }
            (wait as u64).min(cap.as_millis())
        }
        Backoff::List { waits } => {
            waits.get(index).or(waits.last()).map_or(0, |wait| wait.as_millis())
        }
    };
    match &schedule.jitter {
        // How a fraction of a millisecond is rounded is nobody's business.
        Jitter::None => (wait, wait + 1),
        Jitter::Ratio { ratio } => {
            let spread = (wait as f64 * ratio).ceil() as u64;
            (wait.saturating_sub(spread), wait + spread + 1)
        }
        Jitter::Add { from, to, .. } => (wait + from.as_millis(), wait + to.as_millis() + 1),
    }
}
