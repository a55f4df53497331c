//! Planted bugs: with the feature `plant`, which no product has, the simulator turns one on at a time and must notice.
//!
//! Without the feature `active` is the constant `false`, and the compiler removes every bug.

use std::borrow::Cow;

use posthorn_domain::delivery::Step;
use posthorn_domain::{AttemptOutcome, CancelReason, DeliveryState, Policy, Span, Timestamp};

use crate::attempt::{Done, Ended};

#[cfg(feature = "plant")]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Plants the bug of this name in this thread, or none.
#[cfg(feature = "plant")]
pub fn set(name: Option<&'static str>) {
    ACTIVE.set(name);
}

/// Whether the bug of this name is planted in this thread.
#[cfg(feature = "plant")]
pub(crate) fn active(name: &str) -> bool {
    ACTIVE.get() == Some(name)
}

/// Never: this build has no bugs to plant.
#[cfg(not(feature = "plant"))]
pub(crate) const fn active(_name: &str) -> bool {
    false
}

/// The policy as a planted bug sees it.
pub(crate) fn policy(policy: &Policy) -> Cow<'_, Policy> {
    if !active("one-too-many") {
        return Cow::Borrowed(policy);
    }
    let mut policy = policy.clone();
    policy.schedule.max_attempts = policy.schedule.max_attempts.map(|max| max + 1);
    Cow::Owned(policy)
}

/// The decision as a planted bug changes it.
pub(crate) fn step(mut next: Step, done: &Done, now: Timestamp) -> Step {
    let retries = next.charge && next.state == DeliveryState::Pending;
    if active("retry-too-early") && retries {
        next.due_at = now.plus(Span::from_millis(next.due_at.since(now).as_millis() / 2));
    }
    if active("retry-after-shortens")
        && retries
        && let Ended::Outcome(AttemptOutcome::Answered(answer)) = &done.result
        && let Some(asked) = answer.retry_after.as_ref().and_then(|text| text.parse().ok())
    {
        next.due_at = now.plus(Span::from_secs(asked));
    }
    if active("no-dead-letter")
        && let DeliveryState::Dead(_) = next.state
    {
        next.state = DeliveryState::Cancelled(CancelReason::Dropped);
    }
    next
}
