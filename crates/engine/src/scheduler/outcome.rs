//! What follows from an attempt: the next state, a record, a sign of health.

use posthorn_domain::delivery::{
    Input as Happening, PUSH_WAIT_MIN, Step, SubscriptionEffect, step,
};
use posthorn_domain::policy::{RetryAfter, Verdict};
use posthorn_domain::{
    Attempt, AttemptOutcome, CancelReason, DeadReason, DeliveryState, FailureCode, Fence, Policy,
    SubscriptionId, TenantId, Timestamp, Timings,
};
use posthorn_store::{Record, Recorded, Standing, Work};
use tracing::warn;

use super::Scheduler;
use super::failing::Failed;
use super::health::{HeldBy, Sign};
use super::telling::News;
use crate::admission::Tally;
use crate::attempt::{Done, Ended, Job};
use crate::recorder::Written;
use crate::tokens::FAILURE_KEPT;
use crate::{metrics, plant};

/// How long a subscription whose receiver is gone, or has failed for too long, is left alone until it is disabled for good.
const GONE_HOLD: posthorn_domain::Span = posthorn_domain::Span::from_secs(30);

/// How often the log says that push messages cannot be kept.
const PUSH_TROUBLE_TOLD: posthorn_domain::Span = posthorn_domain::Span::from_secs(60);

/// Something that must happen to a subscription because of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) tenant: TenantId,
    pub(crate) subscription: SubscriptionId,
    pub(crate) what: SubscriptionEffect,
    /// Whether that is told: not when an operational event was to be delivered.
    pub(crate) tells: bool,
}

impl Scheduler {
    /// Whether a fence is that of the present ownership. What comes back from a former one must not
    /// touch the queues of this one.
    pub(super) fn is_present(&self, fence: &Fence) -> bool {
        self.held.epoch(fence.shard).is_some_and(|(epoch, _)| epoch == fence.epoch)
    }

    pub(super) fn free_slot(&mut self, job: &Job) {
        let since = self.slots.since(job.slot);
        self.slots.free(job.slot);
        if plant::active("slot-leak") && job.work.delivery.attempts == 1 {
            let tenant = job.work.delivery.tenant;
            let _ = self.slots.take(tenant, super::slots::Class::Quick, self.parts.clock.now());
        }
        if self.is_present(&job.fence)
            && let Some(queue) = self.queues.get_mut(&job.work.delivery.subscription)
        {
            queue.ended(since, job.work.delivery.lane.as_ref());
        }
    }

    pub(super) fn attempted(&mut self, done: Done) {
        let now = self.parts.clock.now();
        self.free_slot(&done.job);
        let id = done.subscription();
        if let Ended::Overtaken = done.result {
            self.held.busy(done.job.fence.shard, -1);
            self.give_back(done.job, now);
            return;
        }
        let sign = self.note_health(&done, now);
        let policy = &done.job.policy;
        let delivery = &done.job.work.delivery;
        let happening = match &done.result {
            Ended::Outcome(outcome) => Happening::Attempted(outcome),
            Ended::GateClosed | Ended::Overtaken => Happening::GateClosed,
        };
        let dice = self.parts.chance.dice();
        let policy = &*plant::policy(policy);
        let view = self.parts.catalog.view(id).unwrap_or_else(|| done.job.view.clone());
        let aged = delivery.aged(&view.subscription.stops, now);
        let mut next = match step(&aged, &happening, policy, now, dice) {
            Ok(next) => plant::step(next, &done, now),
            Err(refusal) => {
                self.held.busy(done.job.fence.shard, -1);
                warn!(delivery = %delivery.id, %refusal, "an attempt of an ended delivery; this is a defect");
                return;
            }
        };
        let attempt = match &done.result {
            Ended::Outcome(AttemptOutcome::Failed { .. }) if plant::active("no-history") => None,
            // What was not counted has no number, and so no line.
            Ended::Outcome(outcome) if next.charge => Some(history(&done, outcome)),
            _ => None,
        };
        let (standing, news) = self.note_streak(&done, sign, &mut next, now);
        let told = self.told(&done.job.work, &next, attempt.as_ref(), news, now);
        self.outbox.push(Record {
            fence: done.job.fence,
            tenant: delivery.tenant,
            delivery: delivery.id,
            expected_attempts: delivery.attempts,
            expected_revival: delivery.revival,
            ordered: delivery.lane.is_some(),
            step: next,
            attempt,
            standing,
            told,
            at: now,
        });
        if next.subscription != SubscriptionEffect::None {
            let effect = Effect {
                tenant: delivery.tenant,
                subscription: id,
                what: next.subscription,
                tells: !done.job.work.event.topic.is_reserved(),
            };
            let _ = self.parts.effects.send(effect);
        }
        self.recording.insert((done.delivery(), done.job.fence.epoch), done.job.work);
        self.evaluate(id);
    }

    /// Ends a delivery that grew too old while it was held back.
    pub(super) fn expire(&mut self, work: Work, policy: &Policy, fence: Fence, now: Timestamp) {
        let delivery = &work.delivery;
        let held = Happening::Postponed { until: now };
        let stops = self.parts.catalog.view(delivery.subscription);
        let stops = stops.map(|view| view.subscription.stops.clone()).unwrap_or_default();
        let Ok(next) = step(&delivery.aged(&stops, now), &held, policy, now, 0) else { return };
        self.outbox.push(Record {
            fence,
            tenant: delivery.tenant,
            delivery: delivery.id,
            expected_attempts: delivery.attempts,
            expected_revival: delivery.revival,
            ordered: delivery.lane.is_some(),
            step: next,
            attempt: None,
            standing: None,
            told: self.told(&work, &next, None, None, now),
            at: now,
        });
        self.held.busy(fence.shard, 1);
        self.recording.insert((delivery.id, fence.epoch), work);
    }

    /// Nothing is kept of a delivery that is dropped, so the log says what became of it.
    fn log_dropped(&self, work: &Work, last: Option<&Attempt>) {
        let delivery = &work.delivery;
        let view = self.parts.catalog.view(delivery.subscription);
        let name = view.as_ref().and_then(|view| view.subscription.name.as_ref());
        let labels = view.as_ref().map(|view| &view.subscription.labels);
        warn!(
            delivery = %delivery.id,
            subscription = %delivery.subscription,
            name = name.map(|name| name.as_str()),
            labels = ?labels,
            event = %delivery.event,
            attributes = ?work.event.attributes,
            attempts = delivery.attempts + 1,
            status = last.and_then(|last| last.status),
            failure = last.and_then(|last| last.failure).map(FailureCode::as_str),
            "a delivery failed and was dropped, as its policy says; the next one continues",
        );
    }

    /// Keeps account of receivers that only fail, and gives those up that have for too long.
    fn note_streak(
        &mut self,
        done: &Done,
        sign: Sign,
        next: &mut Step,
        now: Timestamp,
    ) -> (Option<Standing>, Option<News>) {
        let id = done.subscription();
        if !self.is_present(&done.job.fence) {
            return (None, None);
        }
        match sign {
            Sign::Good => {
                let tells = !done.job.work.event.topic.is_reserved();
                let (standing, ended) = self.streaks.succeeded(id, tells);
                (standing, ended.map(News::Recovered))
            }
            Sign::Refused | Sign::Silent => (None, None),
            Sign::Bad | Sign::Overloaded { .. } => {
                let Some(policy) = done.job.policy.failing.as_ref() else { return (None, None) };
                let active = |view: &std::sync::Arc<crate::catalog::SubscriptionView>| {
                    view.subscription.status.is_active()
                };
                if !self.parts.catalog.view(id).as_ref().is_some_and(active) {
                    return (None, None);
                }
                let exhausted = matches!(
                    next.state,
                    DeliveryState::Dead(DeadReason::Exhausted | DeadReason::Expired)
                        | DeliveryState::Cancelled(CancelReason::Dropped)
                );
                let tells = !done.job.work.event.topic.is_reserved();
                let Failed { standing, ends, told } =
                    self.streaks.failed(id, exhausted, tells, policy, now);
                if ends && next.subscription == SubscriptionEffect::None {
                    next.subscription = SubscriptionEffect::DisableFailing;
                    if let Some(queue) = self.queues.get_mut(&id) {
                        queue.health.hold(now.plus(GONE_HOLD), HeldBy::Ending);
                    }
                }
                (standing, told.map(|streak| News::Failing(streak, policy.disable_after)))
            }
        }
    }

    fn note_health(&mut self, done: &Done, now: Timestamp) -> Sign {
        let policy = &done.job.policy;
        let (sign, label) = match &done.result {
            Ended::GateClosed | Ended::Overtaken => (Sign::Silent, "gate_closed"),
            Ended::Outcome(AttemptOutcome::Failed { code, .. }) => {
                let sign = match code {
                    code if code.is_overload() => Sign::Overloaded { asked: None },
                    code if code.blames_receiver() => Sign::Bad,
                    _ => Sign::Silent,
                };
                (sign, code.as_str())
            }
            Ended::Outcome(outcome @ AttemptOutcome::Answered(answer)) => {
                match policy.classify(outcome, now) {
                    Verdict::Success => (Sign::Good, "success"),
                    Verdict::Permanent => (Sign::Refused, "permanent"),
                    Verdict::Gone => (Sign::Refused, "gone"),
                    Verdict::Retry { asked, throttle: true } => {
                        // A policy that does not listen to a receiver's wish for one delivery does
                        // not for all of them either.
                        let RetryAfter { honour, cap } = policy.schedule.retry_after;
                        let asked = asked.filter(|_| honour).map(|asked| asked.min(cap));
                        (Sign::Overloaded { asked }, "throttled")
                    }
                    Verdict::Retry { .. } if answer.status >= 500 => (Sign::Bad, "server_error"),
                    Verdict::Retry { .. } => (Sign::Bad, "not_success"),
                }
            }
        };
        ::metrics::counter!(metrics::ATTEMPTS, "outcome" => label).increment(1);
        ::metrics::histogram!(metrics::ATTEMPT_SECONDS)
            .record(done.took.as_millis() as f64 / 1_000.0);
        let Some(queue) = self.queues.get_mut(&done.subscription()) else { return sign };
        let breaker = policy.breaker.as_ref();
        if queue.health.note(sign, done.took, breaker, &policy.limits, now) {
            ::metrics::counter!(metrics::BREAKER_OPENED).increment(1);
        }
        if label == "gone" {
            queue.health.hold(now.plus(GONE_HOLD), HeldBy::Ending);
        }
        // The receiver is not to blame, but until there is a token every attempt would be wasted.
        if let Ended::Outcome(AttemptOutcome::Failed {
            code: FailureCode::TokenUnavailable, ..
        }) = &done.result
        {
            queue.health.hold(now.plus(FAILURE_KEPT), HeldBy::Want);
        }
        if let Ended::Outcome(AttemptOutcome::Failed {
            code: FailureCode::PushUnavailable,
            detail,
        }) = &done.result
        {
            queue.health.hold(now.plus(PUSH_WAIT_MIN), HeldBy::Want);
            if self.push_trouble.is_none_or(|told| now >= told.plus(PUSH_TROUBLE_TOLD)) {
                self.push_trouble = Some(now);
                warn!(problem = detail, "push messages cannot be stored; their deliveries wait");
            }
        }
        if let (Some(gap), Some(lane)) = (policy.spacing, &done.job.work.delivery.lane) {
            queue.rest(lane, gap, now);
        }
        sign
    }

    /// Whether a gate is asked before attempts of a subscription.
    fn has_gate(&self, id: SubscriptionId) -> bool {
        let view = self.parts.catalog.view(id);
        view.is_some_and(|view| view.policy.as_ref().is_ok_and(|policy| policy.gate.is_some()))
    }

    pub(super) fn written(&mut self, batch: Vec<Written>) {
        let now = self.parts.clock.now();
        self.unwritten_since = None;
        self.parts.hints.committed();
        let admission = std::sync::Arc::clone(&self.parts.admission);
        let mut tally = Tally::new(&admission);
        let counting = std::sync::Arc::clone(&self.parts.counting);
        let mut counted = counting.scheduler(now);
        for Written { delivery, record, answer } in batch {
            let Some(mut work) = self.recording.remove(&(delivery, record.fence.epoch)) else {
                continue;
            };
            self.held.busy(record.fence.shard, -1);
            let id = work.delivery.subscription;
            counted.recorded(id, &record, matches!(answer, Recorded::Written { .. }));
            if matches!(answer, Recorded::Written { .. }) {
                let catalog = &self.parts.catalog;
                self.parts.outcomes.failures.note(&work, &record, |id| {
                    let view = catalog.view(id)?;
                    view.subscription.name.as_ref().map(ToString::to_string)
                });
            }
            if matches!(answer, Recorded::Written { .. }) && record.step.state.is_terminal() {
                tally.add(work.delivery.tenant, -1);
                self.parts.outcomes.tell(&work, &record);
            }
            self.was_told(id, &record, &answer);
            if !self.is_present(&record.fence) {
                continue;
            }
            let mut outdated = false;
            if let Some(queue) = self.queues.get_mut(&id) {
                outdated = queue.is_outdated(delivery);
                if outdated {
                    queue.note_on_disk(now);
                }
                if queue.forget(delivery) {
                    self.recent.note(&work.delivery, now);
                }
            }
            match answer {
                Recorded::Written { promoted } => {
                    count_end(record.step.state);
                    if record.step.state == DeliveryState::Cancelled(CancelReason::Dropped) {
                        self.log_dropped(&work, record.attempt.as_ref());
                    }
                    if !record.step.state.is_terminal() && !outdated {
                        work.delivery.attempts += u32::from(record.step.charge);
                        work.delivery.state = record.step.state;
                        work.delivery.due_at = record.step.due_at;
                        self.insert(work, now);
                        // Neither tried nor ended: where there is a gate, it was closed.
                        if !record.step.charge
                            && record.attempt.is_none()
                            && self.has_gate(id)
                            && let Some(queue) = self.queues.get_mut(&id)
                        {
                            queue.mark_gated(delivery);
                        }
                    }
                    if let Some(next) = promoted {
                        self.hand_over(next, now);
                    }
                }
                // The recorder has planned and written it again.
                Recorded::Fenced | Recorded::Stale => {}
                Recorded::Superseded => {
                    if let Some(queue) = self.queues.get_mut(&id) {
                        queue.note_on_disk(now);
                    }
                }
            }
            self.evaluate(id);
        }
    }
}

/// The line an attempt leaves in the history.
pub(crate) fn history(done: &Done, outcome: &AttemptOutcome) -> Attempt {
    let mut attempt = Attempt {
        delivery: done.delivery(),
        number: done.job.work.delivery.attempts + 1,
        started_at: done.started_at,
        took: done.took,
        timings: Timings { held: done.job.held, ..done.timings },
        status: None,
        failure: None,
        detail: String::new(),
        response: bytes::Bytes::new(),
        late: false,
        manual: done.job.work.delivery.is_by_hand(&done.job.work.event),
        response_expunged_at: None,
        request: done.sent.clone(),
    };
    match outcome {
        AttemptOutcome::Answered(answer) => {
            attempt.status = Some(answer.status);
            attempt.response = answer.body.clone();
        }
        AttemptOutcome::Failed { code, detail } => {
            attempt.failure = Some(*code);
            attempt.detail.clone_from(detail);
        }
    }
    attempt
}

fn count_end(state: DeliveryState) {
    let label = match state {
        DeliveryState::Pending | DeliveryState::InFlight => return,
        DeliveryState::Delivered => "delivered",
        DeliveryState::Dead(reason) => {
            let reason = match reason {
                DeadReason::Exhausted => "exhausted",
                DeadReason::Permanent => "permanent",
                DeadReason::Gate => "gate",
                DeadReason::Expired => "expired",
            };
            ::metrics::counter!(metrics::DEAD, "reason" => reason).increment(1);
            "dead"
        }
        DeliveryState::Cancelled(_) => "cancelled",
    };
    ::metrics::counter!(metrics::ENDED, "state" => label).increment(1);
}
