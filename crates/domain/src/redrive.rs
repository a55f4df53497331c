//! Bulk redrives: putting many dead letters back to work, durably and at a bounded pace.

use serde::{Deserialize, Serialize};

use crate::{DeadReason, RedriveId, SubscriptionId, TenantId, Timestamp};

/// Which dead letters to put back.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedriveFilter {
    /// Only those of this subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<SubscriptionId>,
    /// Only those that died of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<DeadReason>,
    /// Only those that died at or after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Only those that died before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl RedriveFilter {
    /// Whether a dead letter is meant.
    pub fn wants(&self, subscription: SubscriptionId, reason: DeadReason, at: Timestamp) -> bool {
        self.subscription.is_none_or(|wanted| wanted == subscription)
            && self.reason.is_none_or(|wanted| wanted == reason)
            && self.since.is_none_or(|since| at >= since)
            && self.until.is_none_or(|until| at < until)
    }
}

/// Where a redrive stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RedriveState {
    /// Still moving dead letters.
    Running,
    /// All matching dead letters were put back.
    Done,
    /// Stopped by an operator; what was put back stays so.
    Cancelled,
}

/// One bulk redrive and its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redrive {
    /// Its id.
    pub id: RedriveId,
    /// Whose dead letters.
    pub tenant: TenantId,
    /// Which of them. `until` is always set, so that what dies again is not moved again.
    pub filter: RedriveFilter,
    /// How many per second are put back at most.
    pub per_second: u32,
    /// Where it stands.
    pub state: RedriveState,
    /// How many dead letters matched when it began.
    pub total: u64,
    /// How many were put back so far.
    pub moved: u64,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it was done or cancelled.
    pub finished_at: Option<Timestamp>,
}
