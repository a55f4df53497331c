//! What becomes of a delivery, and of its lane, when somebody does something to it by hand.
//!
//! A store reads the delivery and what it must know of the others in its lane, asks [`by_hand`], and writes
//! what it says, in one transaction. A redrive is a retry of each of its dead letters, those of a lane in
//! their order. It must not know how a store finds a lane, or who tells the nodes.

use super::{Budget, CancelReason, Delivery, DeliveryState, Lane, StepRefusal};
use crate::Timestamp;

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It is not tried any more.
    Cancel,
    /// It is tried now, with a fresh budget.
    Retry,
    /// It is tried now. One that has ended gets this one attempt; one that waits keeps its budget, of which this is an
    /// attempt like any other.
    RetryOnce,
    /// It is gone, with its history.
    Forget,
}

impl Wish {
    /// To have it tried with this budget.
    pub const fn retry(budget: Budget) -> Self {
        match budget {
            Budget::Fresh => Self::Retry,
            Budget::Once => Self::RetryOnce,
        }
    }

    /// With which budget it is to be tried, if it is.
    pub const fn budget(self) -> Option<Budget> {
        match self {
            Self::Retry => Some(Budget::Fresh),
            Self::RetryOnce => Some(Budget::Once),
            Self::Cancel | Self::Forget => None,
        }
    }
}

/// A delivery as a store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The delivery.
    pub delivery: Delivery,
    /// Whether it is dead and blocks its lane.
    pub blocks: bool,
    /// When its subscription was deleted, if it was.
    pub left: Option<Timestamp>,
    /// When its event is to be delivered, where it said so.
    pub deliver_at: Option<Timestamp>,
    /// The lane that it enters then, as long as it has not.
    pub enters: Option<Lane>,
    /// Whether the payload of its event was removed: then nothing brings it back.
    pub expunged: bool,
}

/// The other deliveries of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Whether one of them is dead and blocks it.
    pub blocked: bool,
    /// The one that is neither parked nor ended.
    pub head: Option<Head>,
    /// The place of the first that is parked.
    pub parked: Option<u64>,
}

/// The head of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its place.
    pub seq: u64,
    /// Whether a written lease says that an attempt is under way.
    pub leased: bool,
}

/// What must be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The delivery as it is from now on, or was when it went. It blocks nobody, and nothing holds it back
    /// but its due time.
    pub delivery: Delivery,
    /// Whether nodes may hold copies of it that are out of date now.
    pub recalled: bool,
    /// Whether the head of the lane has to wait: it is parked, remembers when it was due, and is recalled.
    pub displaces: bool,
    /// From when on the first that is parked is the head of the lane, if it is now; never sooner than it
    /// was due when it had to wait.
    pub promotes: Option<Timestamp>,
}

impl Stored {
    /// As readers see it: what belongs to nobody any more is cancelled, swept or not.
    pub fn seen(self) -> Delivery {
        match self.left {
            Some(left) if !self.delivery.state.is_terminal() => {
                self.delivery.cancelled(CancelReason::Unsubscribed, left)
            }
            _ => self.delivery,
        }
    }

    /// Until when nothing of it is sent, by hand neither, since its event is to be delivered later, or was
    /// just now and it is about to enter its lane. What has arrived or is dead had its time, whatever a clock
    /// that was set back says.
    pub fn waits_until(&self, at: Timestamp) -> Option<Timestamp> {
        let over = matches!(self.delivery.state, DeliveryState::Delivered | DeliveryState::Dead(_));
        let waits = |until: &Timestamp| *until > at || self.enters.is_some();
        self.deliver_at.filter(waits).filter(|_| !over)
    }

    /// Whether others of its lane wait for it, and so for nobody else.
    pub fn leads(&self) -> bool {
        let live = !self.delivery.state.is_terminal() && !self.delivery.is_parked();
        self.delivery.lane.is_some() && self.left.is_none() && (self.blocks || live)
    }
}

impl Delivery {
    /// Ended, because nobody wants it any more.
    #[must_use]
    pub fn cancelled(self, reason: CancelReason, at: Timestamp) -> Self {
        let (state, due_at) = (DeliveryState::Cancelled(reason), Timestamp::MAX);
        Self { state, due_at, ended_at: Some(at), ..self }
    }
}

/// What becomes of a delivery when somebody wants something of it at `at`. Pure, like [`super::step`].
pub fn by_hand(
    wish: Wish,
    found: &Stored,
    others: &Others,
    at: Timestamp,
) -> Result<Moved, StepRefusal> {
    match wish {
        Wish::Cancel => cancel(found, others, at),
        Wish::Retry => retry(found, others, Budget::Fresh, at),
        Wish::RetryOnce => retry(found, others, Budget::Once, at),
        Wish::Forget => Ok(forget(found, others, at)),
    }
}

/// The one ended delivery that may still be cancelled is a dead letter that blocks its lane.
fn cancel(found: &Stored, others: &Others, at: Timestamp) -> Result<Moved, StepRefusal> {
    if found.clone().seen().state.is_terminal() && !found.blocks {
        return Err(StepRefusal::Terminal);
    }
    let old = found.delivery.clone();
    let recalled = !old.state.is_terminal();
    // Should it come back, it belongs to its lane, with its place in commit order.
    let lane = old.lane.clone().or_else(|| found.enters.clone());
    let delivery = Delivery { revival: old.revival + 1, lane, ..old };
    let delivery = delivery.cancelled(CancelReason::Operator, at);
    let promotes = released(found, others, at);
    Ok(Moved { delivery, recalled, displaces: false, promotes })
}

/// What has not ended is cancelled by it; what has is gone as it ended.
fn forget(found: &Stored, others: &Others, at: Timestamp) -> Moved {
    let delivery = found.clone().seen();
    if !delivery.state.is_terminal()
        && let Ok(moved) = cancel(found, others, at)
    {
        return moved;
    }
    let promotes = released(found, others, at);
    Moved { delivery, recalled: false, displaces: false, promotes }
}

/// From when on somebody else goes on in the lane. While a lease says that an attempt is under way, it may
/// still arrive.
fn released(found: &Stored, others: &Others, at: Timestamp) -> Option<Timestamp> {
    let free = found.leads() && !others.blocked && others.head.is_none();
    (free && others.parked.is_some()).then(|| found.delivery.leased_until(at).unwrap_or(at))
}

fn retry(
    found: &Stored,
    others: &Others,
    budget: Budget,
    at: Timestamp,
) -> Result<Moved, StepRefusal> {
    if found.left.is_some() {
        return Err(StepRefusal::Unsubscribed);
    }
    if let Some(until) = found.waits_until(at) {
        return Err(StepRefusal::Scheduled(until));
    }
    let old = found.delivery.clone();
    if found.expunged {
        return Err(StepRefusal::Expunged);
    }
    if old.leased_until(at).is_some() {
        return Err(StepRefusal::UnderWay);
    }
    let recalled = !old.state.is_terminal();
    let turn = match &old.lane {
        // One that waits keeps its place.
        _ if recalled && old.is_parked() => Turn::Later,
        Some(_) if !recalled => turn(others, old.seq),
        _ => Turn::Now { displaces: false },
    };
    let (due_at, displaces, promotes) = match turn {
        Turn::Now { displaces } => (at, displaces, None),
        Turn::After { displaces } => (Timestamp::MAX, displaces, Some(at)),
        Turn::Later => (Timestamp::MAX, false, None),
    };
    let (budget_base, budget, budget_began) = match budget {
        // Its schedule goes on afterwards, as it would have without.
        Budget::Once if recalled => (old.budget_base, old.budget, old.budget_began),
        _ => (old.attempts, budget, at),
    };
    let delivery = Delivery {
        state: DeliveryState::Pending,
        due_at,
        budget_base,
        budget,
        budget_began,
        revival: old.revival + 1,
        ended_at: None,
        ..old
    };
    Ok(Moved { delivery, recalled, displaces, promotes })
}

/// When it is the turn of one that comes back.
enum Turn {
    /// At once; a head that comes later has to wait.
    Now { displaces: bool },
    /// After the first that is parked, which goes on now.
    After { displaces: bool },
    /// After whoever goes on or blocks already.
    Later,
}

/// In commit order, except that what is under way is not overtaken.
fn turn(others: &Others, seq: u64) -> Turn {
    let displaces = others.head.is_some();
    match others.head {
        _ if others.blocked => Turn::Later,
        Some(head) if head.leased || head.seq < seq => Turn::Later,
        _ if others.parked.is_some_and(|parked| parked < seq) => Turn::After { displaces },
        _ => Turn::Now { displaces },
    }
}
