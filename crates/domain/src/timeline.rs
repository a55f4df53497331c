//! What happened to one delivery, step by step, as far as what is stored tells.
//!
//! An attempt says what had held it back ([`Held`]), unless it is of an older version. The rest is read from
//! the gaps between what is written down: the attempts, the times in which the subscription stood still
//! ([`Stops`]), the last retry, the due time, and what its owner says of it at this moment. Where several reasons
//! look the same afterwards, the step says so.
//!
//! It must not know words for people, or who may see what.

use crate::{Attempt, Delivery, DeliveryState, Held, Span, Stops, Timestamp, WaitReason, Waiting};

/// How much younger than its event a delivery is that a job made. Ids of those that came with their event may be a
/// little younger, too.
const MADE_LATER: Span = Span::from_secs(60);

/// What is known of a delivery.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// When its event was accepted.
    pub accepted_at: Timestamp,
    /// When it is to be delivered, where that is later.
    pub deliver_at: Option<Timestamp>,
    /// When the payload of its event was removed.
    pub expunged_at: Option<Timestamp>,
    /// The delivery.
    pub delivery: &'a Delivery,
    /// All its attempts.
    pub attempts: &'a [Attempt],
    /// When its subscription stood still.
    pub stops: &'a Stops,
    /// What it waits for now; `None` when it has ended or an attempt is under way.
    pub waiting: Option<Waiting>,
    /// What time it is.
    pub now: Timestamp,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// When it began.
    pub at: Timestamp,
    /// When it ended, or will end at the earliest; absent where it has no length, or nobody knows.
    pub until: Option<Timestamp>,
    /// What it was.
    pub what: What<'a>,
}

/// What a step was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// The event was accepted.
    Accepted,
    /// The subscription matched.
    Matched,
    /// A job made the delivery, later than the event was accepted.
    Made,
    /// Nothing happened, for this reason.
    Waited(WaitReason, Certainty),
    /// Somebody asked for another try, by hand or by a job.
    Retried,
    /// An attempt was made.
    Attempted(&'a Attempt),
    /// An attempt is being made, or its outcome is being written.
    UnderWay,
    /// It came to its end.
    Ended(DeliveryState),
    /// The payload of its event was removed.
    Expunged,
}

/// How well the reason of a wait is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It is written down, or known at this moment.
    Known,
    /// An attempt had failed and another one followed. Beyond its schedule, whatever else held it back is
    /// not written down.
    Schedule,
    /// No attempt of this budget had been made, so that the schedule held nothing back. What did is not
    /// written down.
    BeforeFirst,
    /// Somebody retried it afterwards. Whether it waited or had ended is not written down.
    BeforeRetry,
    /// It was due, and nothing that is known held it back: no node was running, or it had to be read from the store.
    NotTaken,
}

/// All steps, in time order.
pub fn timeline<'a>(known: &Known<'a>) -> Vec<Step<'a>> {
    let delivery = known.delivery;
    let mut steps = Steps { known: *known, list: Vec::new() };
    steps.push(known.accepted_at, None, What::Accepted);
    match steps.made_later() {
        Some(at) => steps.push(at, None, What::Made),
        None => steps.push(delivery.created_at, None, What::Matched),
    }
    if let Some(at) = steps.retried() {
        steps.push(at, None, What::Retried);
    }
    let mut attempts: Vec<&Attempt> = known.attempts.iter().collect();
    attempts.sort_by_key(|attempt| (attempt.started_at, attempt.number));
    let (mut since, mut after) = (steps.begins(), Certainty::BeforeFirst);
    for attempt in attempts {
        steps.before(attempt, since, after);
        let end = attempt.started_at.plus(attempt.took);
        steps.push(attempt.started_at, Some(end), What::Attempted(attempt));
        (since, after) = (since.max(end), Certainty::Schedule);
    }
    match delivery.ended_at.filter(|_| delivery.state.is_terminal()) {
        Some(ended) => steps.ended(since, after, ended),
        None if delivery.state.is_terminal() => {}
        None => steps.present(since, after),
    }
    if let Some(at) = known.expunged_at {
        steps.push(at, None, What::Expunged);
    }
    steps.list.sort_by_key(|step| step.at);
    steps.list
}

struct Steps<'a> {
    known: Known<'a>,
    list: Vec<Step<'a>>,
}

impl<'a> Steps<'a> {
    fn push(&mut self, at: Timestamp, until: Option<Timestamp>, what: What<'a>) {
        self.list.push(Step { at, until, what });
    }

    /// When a job made it, where that was later than its event: its id says so.
    fn made_later(&self) -> Option<Timestamp> {
        let Delivery { id, created_at, .. } = self.known.delivery;
        Some(id.made_at()).filter(|made| *made > created_at.plus(MADE_LATER))
    }

    /// When it was there: with its event, or when a job made it.
    fn there(&self) -> Timestamp {
        self.made_later().unwrap_or(self.known.delivery.created_at)
    }

    /// When it was last retried. Earlier retries are seen by their attempts alone.
    fn retried(&self) -> Option<Timestamp> {
        let delivery = self.known.delivery;
        if self.made_later().is_some() && delivery.revival == 0 {
            // Its budget began when it was made.
            return None;
        }
        let begins = self.known.deliver_at.unwrap_or(delivery.created_at).max(delivery.created_at);
        Some(delivery.budget_began).filter(|began| *began > begins)
    }

    /// Writes down that it waited for the time of its event, as far as that is over; when it was.
    fn begins(&mut self) -> Timestamp {
        let Known { delivery, deliver_at, now, .. } = self.known;
        let created = self.there();
        let Some(at) = deliver_at.filter(|at| *at > created) else { return created };
        let until = at.min(delivery.ended_at.unwrap_or(now));
        if until < at && delivery.ended_at.is_none() {
            // It is what it waits for now.
            return created;
        }
        self.waited(created, until, WaitReason::Scheduled, Certainty::Known);
        until
    }

    fn waited(&mut self, from: Timestamp, to: Timestamp, reason: WaitReason, how: Certainty) {
        if to > from && to.since(from) >= Held::MOMENT {
            self.push(from, Some(to), What::Waited(reason, how));
        }
    }

    /// From what was before it to an attempt.
    fn before(&mut self, attempt: &Attempt, since: Timestamp, how: Certainty) {
        let how = if attempt.manual { Certainty::BeforeRetry } else { how };
        let Some(held) = attempt.timings.held else {
            return self.gap(since, attempt.started_at, how);
        };
        let due = attempt.started_at.minus(held.late).max(since);
        if attempt.manual {
            self.gap(since, due, Certainty::BeforeRetry);
        } else {
            self.stretch(since, due, (held.until_due, Certainty::Known));
        }
        let why = match held.by {
            Some(reason) => (reason, Certainty::Known),
            None => (WaitReason::Schedule, Certainty::NotTaken),
        };
        self.stretch(due, attempt.started_at, why);
    }

    /// A time in which nothing happened: cut where it was retried, and where the subscription stood still.
    fn gap(&mut self, from: Timestamp, to: Timestamp, how: Certainty) {
        match self.retried().filter(|retried| from < *retried && *retried <= to) {
            Some(retried) => {
                self.stretch(from, retried, (WaitReason::Schedule, Certainty::BeforeRetry));
                self.stretch(retried, to, (WaitReason::Schedule, Certainty::BeforeFirst));
            }
            None => self.stretch(from, to, (WaitReason::Schedule, how)),
        }
    }

    fn stretch(&mut self, from: Timestamp, to: Timestamp, why: (WaitReason, Certainty)) {
        let mut since = from;
        for (began, ended) in self.known.stops.periods() {
            let (began, ended) = (began.max(since), ended.unwrap_or(to).min(to));
            if began < ended {
                self.waited(since, began, why.0, why.1);
                self.waited(began, ended, WaitReason::Paused, Certainty::Known);
                since = ended;
            }
        }
        self.waited(since, to, why.0, why.1);
    }

    fn ended(&mut self, since: Timestamp, how: Certainty, ended: Timestamp) {
        let state = self.known.delivery.state;
        // What ends with a success ends with its attempt, however long that took to be written.
        if state != DeliveryState::Delivered {
            self.gap(since, ended, how);
        }
        self.push(ended, None, What::Ended(state));
    }

    /// From the last attempt until now, and what is to come.
    fn present(&mut self, since: Timestamp, how: Certainty) {
        let Known { delivery, waiting, now, stops, .. } = self.known;
        // While an attempt is under way by a written lease, this is when the lease ends.
        let is_due = delivery.state == DeliveryState::Pending && delivery.due_at <= now;
        let Some(Waiting { reason, until }) = waiting else {
            if is_due {
                self.gap(since, delivery.due_at, how);
            }
            return self.push(now, None, What::UnderWay);
        };
        // The present wait began when nothing else explains the time any more.
        let stopped = matches!(reason, WaitReason::Paused | WaitReason::Disabled);
        let mut began = self.retried().map_or(since, |retried| retried.max(since));
        if is_due {
            began = began.max(delivery.due_at);
        }
        for (stop, end) in stops.periods() {
            match end {
                Some(end) if end > began && end <= now => began = end,
                None if stopped => began = stop.max(since),
                _ => {}
            }
        }
        let began = began.min(now);
        self.gap(since, began, how);
        self.push(began, until, What::Waited(reason, Certainty::Known));
    }
}

#[cfg(test)]
mod tests;
