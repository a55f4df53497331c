//! Jobs: durable bulk work on the history, at a bounded pace, with progress, until it is done or cancelled.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::delivery::{Budget, Wish};
use crate::{
    DeliveryFilter, DeliveryState, EventId, EventType, Filter, JobId, SubscriptionId, TenantId,
    Timestamp, TopicName,
};

/// Which events a job is about. What is empty or absent does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// On one of these topics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<TopicName>,
    /// Of one of these types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<EventType>,
    /// With all of these attributes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Accepted at or after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Accepted before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// This event and what comes after it: those of one moment have an order, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_event: Option<EventId>,
    /// That this filter wants. It is asked event by event: no index helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
}

/// Which of the events that a subscription wants are delivered to it (again).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayStatus {
    /// All of them.
    All,
    /// Those it never got: there is no delivery.
    #[default]
    Missed,
    /// Those that are dead letters.
    Failed,
    /// Those it has got already.
    Delivered,
}

/// What is to become of the delivery of an event to a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// Nothing.
    Left,
    /// There is none yet: one is made.
    Made,
    /// It is tried again, with the budget of the job.
    Retried,
}

impl Selection {
    /// Whether every event is meant.
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }
}

impl ReplayStatus {
    /// What becomes of a delivery in this state, or of none. One that has not ended is on its way anyway.
    pub const fn decide(self, delivery: Option<DeliveryState>) -> Replayed {
        match (self, delivery) {
            (Self::All | Self::Missed, None) => Replayed::Made,
            (Self::All | Self::Failed, Some(DeliveryState::Dead(_)))
            | (Self::All | Self::Delivered, Some(DeliveryState::Delivered))
            | (Self::All, Some(DeliveryState::Cancelled(_))) => Replayed::Retried,
            _ => Replayed::Left,
        }
    }
}

/// What a job does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum JobWork {
    /// Delivers events of the past to a subscription; without one, again to all that have a delivery of them.
    Replay {
        /// To whom.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subscription: Option<SubscriptionId>,
        /// Which events.
        events: Selection,
        /// Which of them.
        status: ReplayStatus,
        /// How often each is tried.
        #[serde(default, skip_serializing_if = "Budget::is_fresh")]
        budget: Budget,
    },
    /// Removes the payloads of events whose deliveries have all ended.
    Expunge {
        /// Which events.
        events: Selection,
        /// Whether what receivers answered goes as well.
        responses: bool,
    },
    /// Delivers one event to one subscription, whatever its filter.
    Deliver {
        /// Which event.
        event: EventId,
        /// To whom.
        subscription: SubscriptionId,
        /// How often it is tried.
        #[serde(default, skip_serializing_if = "Budget::is_fresh")]
        budget: Budget,
    },
    /// Cancels deliveries that have not ended, and dead letters that block their lane.
    Cancel {
        /// Which deliveries.
        deliveries: DeliveryFilter,
    },
    /// Removes deliveries with their attempts; those that have not ended are cancelled by it.
    Forget {
        /// Which deliveries.
        deliveries: DeliveryFilter,
    },
    /// Tries ended deliveries again, with a fresh budget, each at most once.
    Retry {
        /// Which deliveries.
        deliveries: DeliveryFilter,
    },
    /// Removes everything of the tenant whose job it is, and at last the tenant.
    DeleteTenant,
}

impl JobWork {
    /// How often what it delivers is tried.
    pub const fn budget(&self) -> Budget {
        match self {
            Self::Replay { budget, .. } | Self::Deliver { budget, .. } => *budget,
            _ => Budget::Fresh,
        }
    }

    /// What it does by hand, so to speak, to which deliveries.
    pub const fn moves(&self) -> Option<(Wish, &DeliveryFilter)> {
        match self {
            Self::Cancel { deliveries } => Some((Wish::Cancel, deliveries)),
            Self::Forget { deliveries } => Some((Wish::Forget, deliveries)),
            Self::Retry { deliveries } => Some((Wish::Retry, deliveries)),
            Self::Replay { .. }
            | Self::Expunge { .. }
            | Self::Deliver { .. }
            | Self::DeleteTenant => None,
        }
    }
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Going on.
    Running,
    /// All is done.
    Done,
    /// Stopped by somebody; what was done stays done.
    Cancelled,
    /// It cannot go on, and says why.
    Failed,
}

/// Durable bulk work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Whose.
    pub tenant: TenantId,
    /// What it does.
    pub work: JobWork,
    /// How many events it looks at, and how many things it changes, per second at most.
    pub per_second: u32,
    /// Where it stands.
    pub state: JobState,
    /// Events it has looked at.
    pub seen: u64,
    /// What it has changed.
    pub done: u64,
    /// Who asked for it.
    pub created_by: String,
    /// When.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Why it could not go on.
    pub problem: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CancelReason, DeadReason, OutcomeFilter, Period, StateKind};

    /// Stores keep the text: it must be read for ever.
    #[test]
    fn work_reads_back() {
        let events = Selection { from: Some(Timestamp::from_millis(5)), ..Selection::default() };
        assert!(!events.is_everything() && Selection::default().is_everything());
        let work = JobWork::Expunge { events, responses: true };
        let text = serde_json::to_string(&work).expect("a text");
        let kept =
            r#"{"kind":"expunge","events":{"from":"1970-01-01T00:00:00.005Z"},"responses":true}"#;
        assert_eq!(text, kept);
        assert_eq!(serde_json::from_str::<JobWork>(&text).expect("its own text"), work);
    }

    #[test]
    fn chosen_deliveries_read_back() {
        let deliveries = DeliveryFilter {
            state: Some(StateKind::Dead),
            exactly: Some(DeliveryState::Dead(DeadReason::Gate)),
            outcome: Some(OutcomeFilter::Status(500, 599)),
            created: Period { from: None, until: Some(Timestamp::from_millis(5)) },
            ..DeliveryFilter::default()
        };
        let work = JobWork::Forget { deliveries };
        let text = serde_json::to_string(&work).expect("a text");
        let kept = r#"{"kind":"forget","deliveries":{"state":"dead","exactly":{"state":"dead","reason":"gate"},"outcome":{"status":[500,599]},"created":{"until":"1970-01-01T00:00:00.005Z"}}}"#;
        assert_eq!(text, kept);
        assert_eq!(serde_json::from_str::<JobWork>(&text).expect("its own text"), work);
        let deliveries = DeliveryFilter { state: Some(StateKind::Dead), ..Default::default() };
        let work = JobWork::Retry { deliveries };
        let text = serde_json::to_string(&work).expect("a text");
        assert_eq!(text, r#"{"kind":"retry","deliveries":{"state":"dead"}}"#);
        assert_eq!(serde_json::from_str::<JobWork>(&text).expect("its own text"), work);
        // One that says more than is known must not be taken for one that says less.
        let unknown = r#"{"kind":"forget","deliveries":{"state":"dead","lane":"x"}}"#;
        assert!(serde_json::from_str::<JobWork>(unknown).is_err());
    }

    #[test]
    fn what_a_replay_does_with_each_delivery() {
        use Replayed::{Left, Made, Retried};
        let dead = Some(DeliveryState::Dead(DeadReason::Gate));
        let cancelled = Some(DeliveryState::Cancelled(CancelReason::Operator));
        let (delivered, pending) = (Some(DeliveryState::Delivered), Some(DeliveryState::Pending));
        let states = [None, pending, Some(DeliveryState::InFlight), delivered, dead, cancelled];
        for (status, wanted) in [
            (ReplayStatus::All, [Made, Left, Left, Retried, Retried, Retried]),
            (ReplayStatus::Missed, [Made, Left, Left, Left, Left, Left]),
            (ReplayStatus::Failed, [Left, Left, Left, Left, Retried, Left]),
            (ReplayStatus::Delivered, [Left, Left, Left, Retried, Left, Left]),
        ] {
            assert_eq!(states.map(|state| status.decide(state)), wanted, "{status:?}");
        }
    }
}
