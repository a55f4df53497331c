//! Why a delivery has not been attempted yet: one enum for the API, the command line and the logs.

use serde::{Deserialize, Serialize};

use crate::{Delivery, Span, SubscriptionStatus, Timestamp};

/// What a delivery, or a whole subscription, waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// Its time has not come: the schedule says when.
    Schedule,
    /// Its event is to be delivered later: the publisher said when.
    Scheduled,
    /// The receiver asked for a pause with `Retry-After`.
    RetryAfter,
    /// Another one of its lane is before it.
    Lane,
    /// The rate of its subscription (`limits.rate`).
    Rate,
    /// The rate of its tenant (`deliveries_per_second`).
    TenantRate,
    /// As many calls of its subscription are under way as may be.
    Concurrency,
    /// The rest between two attempts with its key (`spacing`).
    Spacing,
    /// The gate was closed.
    Gate,
    /// The breaker: calls of this receiver cost too much.
    Breaker,
    /// Its subscription is paused.
    Paused,
    /// Its subscription is disabled.
    Disabled,
    /// All slots are taken, or all that its tenant may have.
    Quota,
    /// The server is on hold: it sends nothing until somebody lets it go on.
    Hold,
}

impl WaitReason {
    /// All of them, for documents and tables.
    pub const ALL: [WaitReason; 14] = [
        Self::Schedule,
        Self::Scheduled,
        Self::RetryAfter,
        Self::Lane,
        Self::Rate,
        Self::TenantRate,
        Self::Concurrency,
        Self::Spacing,
        Self::Gate,
        Self::Breaker,
        Self::Paused,
        Self::Disabled,
        Self::Quota,
        Self::Hold,
    ];

    /// As it is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Scheduled => "scheduled",
            Self::RetryAfter => "retry_after",
            Self::Lane => "lane",
            Self::Rate => "rate",
            Self::TenantRate => "tenant_rate",
            Self::Concurrency => "concurrency",
            Self::Spacing => "spacing",
            Self::Gate => "gate",
            Self::Breaker => "breaker",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
            Self::Quota => "quota",
            Self::Hold => "hold",
        }
    }

    /// Back from what was kept.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// What had held an attempt back before it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// What it waited for until it was due: its schedule, its lane or the gate.
    pub until_due: WaitReason,
    /// How long it waited then.
    pub late: Span,
    /// For what; `None` when nobody knows: no node was running, or it had to be read from the store.
    pub by: Option<WaitReason>,
}

impl Held {
    /// Shorter waits are none: an attempt takes a moment to begin and its outcome one to be written.
    pub const MOMENT: Span = Span::from_millis(100);

    pub(crate) fn to_text(self) -> String {
        let by = self.by.map_or("", WaitReason::as_str);
        format!("{},{},{by}", self.until_due.as_str(), self.late.as_millis())
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.split(',');
        let until_due = WaitReason::parse(parts.next()?)?;
        let late = Span::from_millis(parts.next()?.parse().ok()?);
        Some(Self { until_due, late, by: WaitReason::parse(parts.next()?) })
    }
}

/// Why something waits, and until when, if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Why.
    pub reason: WaitReason,
    /// Until when at least; absent when nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Waiting {
    /// For something, without a time.
    pub const fn on(reason: WaitReason) -> Self {
        Self { reason, until: None }
    }

    /// Until a time.
    pub const fn until(reason: WaitReason, until: Timestamp) -> Self {
        Self { reason, until: Some(until) }
    }

    /// What the state of a subscription says.
    pub const fn of_status(status: &SubscriptionStatus) -> Option<Self> {
        match status {
            SubscriptionStatus::Active => None,
            SubscriptionStatus::Paused => Some(Self::on(WaitReason::Paused)),
            SubscriptionStatus::Disabled { .. } => Some(Self::on(WaitReason::Disabled)),
        }
    }

    /// What is known of a delivery without asking whoever works on it: what is written down. `None`
    /// for one that has ended or is under way.
    pub fn of_row(
        delivery: &Delivery,
        status: &SubscriptionStatus,
        gated: bool,
        now: Timestamp,
    ) -> Option<Self> {
        if delivery.state.is_terminal() || delivery.leased_until(now).is_some() {
            return None;
        }
        if let Some(stopped) = Self::of_status(status) {
            return Some(stopped);
        }
        if let Some(until) = delivery.scheduled_until(now) {
            return Some(Self::until(WaitReason::Scheduled, until));
        }
        if delivery.is_parked() {
            return Some(Self::on(WaitReason::Lane));
        }
        // Before the first attempt only a closed gate moves the due time.
        let postponed = gated && delivery.spent() == 0 && delivery.due_at > delivery.budget_began;
        let reason = if postponed { WaitReason::Gate } else { WaitReason::Schedule };
        Some(Self::until(reason, delivery.due_at))
    }
}
