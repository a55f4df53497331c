//! Deliveries, and the one function that decides what may become of them.
//!
//! ```text
//! pending(due_at) ─▶ in_flight ─▶ delivered
//!      ▲                 │   ├──▶ dead(exhausted | permanent | gate | expired)
//!      └──── failed ─────┘   └──▶ cancelled(unsubscribed | operator | dropped)
//! ```
//! Terminal is final: only a retry by hand or a redrive brings a delivery back, with a fresh budget
//! and its whole history. What attempts lead to is decided by [`step`], what people want by [`by_hand()`].

mod by_hand;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use by_hand::{Head, Moved, Others, Stored, Wish, by_hand};

use crate::policy::{OnClosed, OnExhausted, OnPermanent, OnRefused, Policy, Verdict};
use crate::{
    AttemptOutcome, DeliveryId, Event, EventId, FailureCode, LaneKey, Outcome, Shard, Span, Stops,
    SubscriptionId, TenantId, Timestamp,
};

/// How long a delivery waits at least when the mailboxes of agents are out of order.
pub const PUSH_WAIT_MIN: Span = Span::from_secs(5);
/// How long it waits at most.
const PUSH_WAIT_MAX: Span = Span::from_secs(60);

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "state", content = "reason", rename_all = "snake_case")]
pub enum DeliveryState {
    /// Waiting for its time, or for its turn in a lane.
    Pending,
    /// An attempt is under way (only written down under a durable lease).
    InFlight,
    /// The receiver has it.
    Delivered,
    /// Ended without success; kept, inspectable, redrivable.
    Dead(DeadReason),
    /// Ended because nobody wants it any more.
    Cancelled(CancelReason),
}

/// Why a delivery is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// The schedule ran out.
    Exhausted,
    /// The receiver refused for good.
    Permanent,
    /// The gate was closed.
    Gate,
    /// It grew too old.
    Expired,
}

/// Why a delivery is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// Its subscription is gone.
    Unsubscribed,
    /// An operator said so.
    Operator,
    /// Its schedule ran out and the policy keeps no dead letters.
    Dropped,
}

impl DeadReason {
    /// All of them, for tables and metrics.
    pub const ALL: [DeadReason; 4] = [Self::Exhausted, Self::Permanent, Self::Gate, Self::Expired];
}

impl CancelReason {
    /// All of them, for tables.
    pub const ALL: [CancelReason; 3] = [Self::Unsubscribed, Self::Operator, Self::Dropped];
}

impl DeliveryState {
    /// Whether nothing more happens by itself.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Pending | Self::InFlight)
    }
}

/// How often a delivery is tried from when its budget began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// As its policy's schedule says.
    #[default]
    Fresh,
    /// One attempt: whoever asked for it sees what came of it, and no other follows.
    Once,
}

impl Budget {
    /// Whether it is the usual one.
    pub fn is_fresh(&self) -> bool {
        *self == Self::Fresh
    }
}

/// The obligation to bring one event to one subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its id.
    pub id: DeliveryId,
    /// What is to be delivered.
    pub event: EventId,
    /// To whom.
    pub subscription: SubscriptionId,
    /// Whose.
    pub tenant: TenantId,
    /// Its lane, when the policy orders. The whole subscription is the lane with the empty key. One whose
    /// event is to be delivered later has none until then.
    pub lane: Option<Lane>,
    /// Its place in commit order, given by the store.
    pub seq: u64,
    /// Where it stands.
    pub state: DeliveryState,
    /// When the next attempt may start; [`Timestamp::MAX`] while others of its lane are before it, and
    /// until it enters its lane.
    pub due_at: Timestamp,
    /// Attempts made in all.
    pub attempts: u32,
    /// Attempts that had been made when the present budget began.
    pub budget_base: u32,
    /// How often it is tried in the present budget.
    pub budget: Budget,
    /// When the present budget began.
    pub budget_began: Timestamp,
    /// Counts what was done to it by hand, and how often another had to go before it. A copy with a
    /// smaller number is out of date, and nothing may be sent from it.
    pub revival: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it reached its terminal state.
    pub ended_at: Option<Timestamp>,
    /// What the last attempt that counted came to.
    pub last_outcome: Option<Outcome>,
}

impl Delivery {
    /// The delivery as its schedule sees it at `now`: the time in which its subscription stood still has
    /// not aged it.
    pub fn aged(&self, stops: &Stops, now: Timestamp) -> std::borrow::Cow<'_, Self> {
        if stops.is_empty() {
            return std::borrow::Cow::Borrowed(self);
        }
        let budget_began = stops.shifted(self.budget_began, now);
        std::borrow::Cow::Owned(Self { budget_began, ..self.clone() })
    }

    /// The shard it belongs to.
    pub fn shard(&self) -> Shard {
        Shard::of(self.subscription)
    }

    /// Whether the next attempt, which brings this event, is the first that somebody asked for, by hand
    /// or by a job.
    pub fn is_by_hand(&self, event: &Event) -> bool {
        self.spent() == 0 && self.budget_began > event.begins_at()
    }

    /// Until when it waits because its event is to be delivered later. One that nothing was done to yet
    /// and whose budget begins in the future was accepted for then.
    pub fn scheduled_until(&self, now: Timestamp) -> Option<Timestamp> {
        let untouched = self.state == DeliveryState::Pending && self.attempts == 0;
        (untouched && self.revival == 0 && self.budget_began > now).then_some(self.budget_began)
    }

    /// Whether it has not entered its lane yet: it waits for a time, not for others.
    pub fn is_outside_its_lane(&self) -> bool {
        self.is_parked() && self.lane.is_none()
    }

    /// Attempts made in the present budget.
    pub fn spent(&self) -> u32 {
        self.attempts.saturating_sub(self.budget_base)
    }

    /// Whether it waits for others of its lane.
    pub fn is_parked(&self) -> bool {
        !self.state.is_terminal() && self.due_at == Timestamp::MAX
    }

    /// Until when a lease that was written down says that an attempt is under way, if it still does
    /// at `now`. Of attempts whose policy writes no leases, nothing is known here.
    pub fn leased_until(&self, now: Timestamp) -> Option<Timestamp> {
        (self.state == DeliveryState::InFlight && self.due_at > now).then_some(self.due_at)
    }
}

/// A scope of order inside a subscription.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// All deliveries of the subscription.
    Subscription,
    /// Those with this key.
    Key(LaneKey),
}

impl Lane {
    /// The text stores index: empty for the whole subscription.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Subscription => "",
            Self::Key(key) => key.as_str(),
        }
    }
}

/// Something that happened to a delivery.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// An attempt ended so.
    Attempted(&'a AttemptOutcome),
    /// The gate was closed, so no attempt was made.
    GateClosed,
    /// The breaker or a pause holds it back until then; no attempt was made.
    Postponed {
        /// Until when.
        until: Timestamp,
    },
}

/// What must be written down, in one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The new state.
    pub state: DeliveryState,
    /// The new due time; only meaningful while pending.
    pub due_at: Timestamp,
    /// Whether an attempt is added to the count.
    pub charge: bool,
    /// Whether the next delivery of the lane may go on.
    pub release_lane: bool,
    /// What happens to the subscription.
    pub subscription: SubscriptionEffect,
}

/// What a step does to the subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionEffect {
    /// Nothing.
    None,
    /// It is disabled: the receiver says it is gone.
    DisableGone,
    /// It is disabled: a delivery was exhausted and the policy says so.
    DisableExhausted,
    /// It is disabled: it has only failed for as long as the policy allows.
    DisableFailing,
    /// It is disabled: its URL was refused and the policy says so.
    DisableRefused,
    /// It is deleted: a delivery was exhausted and the policy says so.
    Delete,
    /// It is deleted: its URL was refused and the policy says so.
    DeleteRefused,
}

/// Why an input is not possible in the present state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StepRefusal {
    /// It has ended already.
    #[error("the delivery has already ended; only a retry can start it again")]
    Terminal,
    /// A written lease says that an attempt is under way.
    #[error("an attempt of the delivery is in progress")]
    UnderWay,
    /// Its subscription is gone.
    #[error("the delivery's subscription was deleted")]
    Unsubscribed,
    /// Its event is to be delivered later.
    #[error("the event is to be delivered at {0}")]
    Scheduled(Timestamp),
    /// There is nothing to send any more.
    #[error("the payload of the delivery's event was removed")]
    Expunged,
}

/// The state machine: what becomes of a delivery when `input` happens at `now`.
///
/// Pure: the same arguments give the same answer. `dice` is one uniform random number for jitter.
pub fn step(
    delivery: &Delivery,
    input: &Input<'_>,
    policy: &Policy,
    now: Timestamp,
    dice: u64,
) -> Result<Step, StepRefusal> {
    if delivery.state.is_terminal() {
        return Err(StepRefusal::Terminal);
    }
    Ok(match input {
        Input::Attempted(outcome) => attempted(delivery, outcome, policy, now, dice),
        Input::GateClosed => match policy.gate.as_ref().map(|gate| &gate.on_closed) {
            Some(OnClosed::Postpone { wait }) => {
                match policy.schedule.outlives(delivery.budget_began, now.plus(*wait)) {
                    true => dead(DeadReason::Expired, policy, false),
                    false => stay_pending(now.plus(*wait)),
                }
            }
            _ => dead(DeadReason::Gate, policy, false),
        },
        Input::Postponed { until } => {
            match policy.schedule.outlives(delivery.budget_began, *until) {
                true => dead(DeadReason::Expired, policy, false),
                false => stay_pending(*until),
            }
        }
    })
}

fn attempted(
    delivery: &Delivery,
    outcome: &AttemptOutcome,
    policy: &Policy,
    now: Timestamp,
    dice: u64,
) -> Step {
    if let AttemptOutcome::Failed { code: FailureCode::PushUnavailable, .. } = outcome {
        return unavailable(delivery, policy, now);
    }
    let step = judged(delivery, outcome, policy, now, dice);
    let refused = matches!(outcome, AttemptOutcome::Failed { code, .. } if code.refuses_url());
    let effect = match policy.url.on_refused {
        OnRefused::DisableSubscription if refused => SubscriptionEffect::DisableRefused,
        OnRefused::DeleteSubscription if refused => SubscriptionEffect::DeleteRefused,
        _ => return step,
    };
    Step { subscription: effect, ..step }
}

/// Trouble of ours costs nobody's budget: it waits, the longer it has waited already. Only what grew
/// too old ends, and then the history says why.
fn unavailable(delivery: &Delivery, policy: &Policy, now: Timestamp) -> Step {
    let began = delivery.budget_began;
    let half = Span::from_millis(now.since(began).as_millis() / 2);
    let due = now.plus(half.max(PUSH_WAIT_MIN).min(PUSH_WAIT_MAX));
    match policy.schedule.outlives(began, due) {
        true => dead(DeadReason::Expired, policy, true),
        false => stay_pending(due),
    }
}

fn judged(
    delivery: &Delivery,
    outcome: &AttemptOutcome,
    policy: &Policy,
    now: Timestamp,
    dice: u64,
) -> Step {
    match policy.classify(outcome, now) {
        Verdict::Success => end(DeliveryState::Delivered, true, true),
        Verdict::Permanent => match policy.on_permanent {
            OnPermanent::DeadLetter => dead(DeadReason::Permanent, policy, true),
            OnPermanent::Drop => end(DeliveryState::Cancelled(CancelReason::Dropped), true, true),
        },
        // The subscription stops here, and its work waits for whoever resumes it.
        Verdict::Gone if delivery.budget == Budget::Once => Step {
            subscription: SubscriptionEffect::DisableGone,
            ..dead(DeadReason::Exhausted, policy, true)
        },
        Verdict::Gone => Step {
            charge: true,
            subscription: SubscriptionEffect::DisableGone,
            ..stay_pending(now)
        },
        // A budget that somebody made so small says nothing about the receiver: what the policy does to a subscription
        // whose schedule ran out is not done.
        Verdict::Retry { .. } if delivery.budget == Budget::Once => {
            dead(DeadReason::Exhausted, policy, true)
        }
        Verdict::Retry { asked, .. } => {
            let done = delivery.spent() + 1;
            match policy.schedule.next(done, delivery.budget_began, now, asked, dice) {
                Some(due) => Step { charge: true, ..stay_pending(due) },
                None => exhausted(done, policy),
            }
        }
    }
}

fn exhausted(done: u32, policy: &Policy) -> Step {
    let by_count = policy.schedule.max_attempts.is_some_and(|max| done >= max);
    let reason = if by_count { DeadReason::Exhausted } else { DeadReason::Expired };
    let letter = dead(reason, policy, true);
    match policy.on_exhausted {
        OnExhausted::DeadLetter => letter,
        OnExhausted::Drop => end(DeliveryState::Cancelled(CancelReason::Dropped), true, true),
        OnExhausted::DisableSubscription => {
            Step { subscription: SubscriptionEffect::DisableExhausted, ..letter }
        }
        OnExhausted::DeleteSubscription => {
            Step { subscription: SubscriptionEffect::Delete, ..letter }
        }
    }
}

fn dead(reason: DeadReason, policy: &Policy, charge: bool) -> Step {
    let release = policy.order.dead_head == crate::policy::DeadHead::Skip;
    end(DeliveryState::Dead(reason), charge, release)
}

fn end(state: DeliveryState, charge: bool, release_lane: bool) -> Step {
    Step {
        state,
        due_at: Timestamp::MAX,
        charge,
        release_lane,
        subscription: SubscriptionEffect::None,
    }
}

fn stay_pending(due_at: Timestamp) -> Step {
    Step {
        state: DeliveryState::Pending,
        due_at,
        charge: false,
        release_lane: false,
        subscription: SubscriptionEffect::None,
    }
}
