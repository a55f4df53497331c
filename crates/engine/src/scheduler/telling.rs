//! What attempts lead to that is told: deliveries that fail, recover or die, receivers that fail or recover.
//!
//! Nearly every outcome leads to nothing of it, which a few comparisons find out. Only then is it asked whether anybody
//! wants to know.

use posthorn_domain::delivery::Step;
use posthorn_domain::{
    Attempt, DeliveryState, FAILING_AFTER, OperationalType, Span, SubscriptionId, Timestamp,
};
use posthorn_store::{NewEvent, Record, Recorded, Streak, Work};

use super::Scheduler;
use crate::plant;
use crate::told::{Fact, Happened};

/// What is new about a receiver.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    /// It has only failed for half of the time after which it is disabled.
    Failing(Streak, Span),
    /// It had a success after that.
    Recovered(Streak),
}

/// What is to be told of a delivery that takes this step.
fn kind_of(work: &Work, next: &Step) -> Option<OperationalType> {
    let spent = work.delivery.spent();
    match next.state {
        DeliveryState::Dead(_) => Some(OperationalType::DeliveryDead),
        DeliveryState::Delivered if spent >= FAILING_AFTER => {
            Some(OperationalType::DeliveryRecovered)
        }
        DeliveryState::Pending if next.charge && spent + 1 == FAILING_AFTER => {
            Some(OperationalType::DeliveryFailing)
        }
        _ => None,
    }
}

impl Scheduler {
    /// Plans what is told of an outcome.
    pub(super) fn told(
        &self,
        work: &Work,
        next: &Step,
        last: Option<&Attempt>,
        news: Option<News>,
        now: Timestamp,
    ) -> Vec<NewEvent> {
        let kind = kind_of(work, next).filter(|_| !plant::active("cause-without-told"));
        if kind.is_none() && news.is_none() {
            return Vec::new();
        }
        let teller = &self.parts.teller;
        // They never cause more of themselves.
        let quiet = work.event.topic.is_reserved() && !plant::active("told-of-told");
        if quiet || !teller.is_wanted(work.delivery.tenant) {
            return Vec::new();
        }
        let view = self.parts.catalog.view(work.delivery.subscription);
        let subscription = view.as_ref().map(|view| &view.subscription);
        let mut told = Vec::new();
        if let Some(kind) = kind {
            let name = subscription.and_then(|known| known.name.as_ref()).map(ToString::to_string);
            let pending = next.state == DeliveryState::Pending;
            let happened = Happened {
                work,
                name,
                state: next.state,
                attempts: work.delivery.attempts + u32::from(next.charge),
                last,
                next: pending.then_some(next.due_at),
                at: now,
            };
            told.extend(teller.plan(&Fact::delivery(kind, &happened)));
        }
        if let (Some(news), Some(subscription)) = (news, subscription) {
            let fact = match news {
                News::Failing(streak, disabled) => {
                    let (kind, since) = (OperationalType::SubscriptionFailing, streak.since);
                    Fact::streak(kind, subscription, since, Some(since.plus(disabled)), now)
                }
                News::Recovered(streak) => {
                    let kind = OperationalType::SubscriptionRecovered;
                    Fact::streak(kind, subscription, streak.since, None, now)
                }
            };
            told.extend(teller.plan(&fact));
        }
        told
    }

    /// A record that told something was answered: what it told is due, or is still to be told.
    pub(super) fn was_told(&mut self, id: SubscriptionId, record: &Record, answer: &Recorded) {
        if record.told.is_empty() {
            return;
        }
        match answer {
            Recorded::Written { .. } => {
                let due = self.parts.teller.committed(&record.told);
                self.note_due(&due);
            }
            Recorded::Superseded if self.is_present(&record.fence) => {
                let Some(standing) = record.standing else { return };
                let is = |kind: OperationalType| {
                    let kind = kind.event_type();
                    record.told.iter().any(|new| new.event.event_type == kind)
                };
                match standing.failing {
                    Some(_) if is(OperationalType::SubscriptionFailing) => {
                        self.streaks.not_told(id, None);
                    }
                    // When it began is not known any more; that it lasted is what counts.
                    None if is(OperationalType::SubscriptionRecovered) => {
                        let since = record.at;
                        let ended = Streak { since, exhausted: false, told: true };
                        self.streaks.not_told(id, Some(ended));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}
