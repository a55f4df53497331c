//! Operational events: what Posthorn tells about itself.
//!
//! They are ordinary events on one reserved topic, in the tenant they are about. Those for operators are in a
//! reserved tenant. Only Posthorn itself publishes there, and only filters that name the topic match them: who
//! subscribed to everything meant everything that publishers say.

use std::fmt;
use std::sync::LazyLock;

use crate::{EventType, TenantId, TopicName};

/// The name of the tenant that operators subscribe in.
pub const SYSTEM_TENANT: &str = "system";
/// The name of the reserved topic.
pub const OPERATIONAL_TOPIC: &str = "posthorn.operational";
/// Which failed attempt of a budget makes a delivery a failing one.
pub const FAILING_AFTER: u32 = 4;

static TOPIC: LazyLock<TopicName> =
    LazyLock::new(|| TopicName::new(OPERATIONAL_TOPIC).expect("the constant is a proper name"));

impl TenantId {
    /// The tenant that operators subscribe in.
    pub const SYSTEM: TenantId =
        TenantId::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

impl TopicName {
    /// The reserved topic.
    pub fn operational() -> Self {
        TOPIC.clone()
    }

    /// Whether only Posthorn itself publishes on it.
    pub fn is_reserved(&self) -> bool {
        self.as_str() == OPERATIONAL_TOPIC
    }
}

/// What Posthorn tells about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationalType {
    /// The fourth attempt of a budget failed.
    DeliveryFailing,
    /// Delivered after it was failing.
    DeliveryRecovered,
    /// It ended as a dead letter.
    DeliveryDead,
    /// A new subscription.
    SubscriptionCreated,
    /// A subscription was changed, paused or resumed.
    SubscriptionUpdated,
    /// No more subscription.
    SubscriptionDeleted,
    /// Its receiver has only failed for half of the time after which it is disabled.
    SubscriptionFailing,
    /// Posthorn disabled it.
    SubscriptionDisabled,
    /// A success after it was failing, or it was enabled again.
    SubscriptionRecovered,
    /// A job or a redrive has ended.
    JobFinished,
    /// A certificate has 30 days left.
    CertificateExpiring,
    /// A tenant is near the limit of its pending deliveries.
    QuotaNear,
    /// The disk is nearly full.
    DiskNearFull,
    /// A node gave no sign of life and had not said good-bye.
    NodeLost,
    /// A line of the audit log was written.
    AuditRecorded,
}

impl OperationalType {
    /// All of them, for tables.
    pub const ALL: [Self; 15] = [
        Self::DeliveryFailing,
        Self::DeliveryRecovered,
        Self::DeliveryDead,
        Self::SubscriptionCreated,
        Self::SubscriptionUpdated,
        Self::SubscriptionDeleted,
        Self::SubscriptionFailing,
        Self::SubscriptionDisabled,
        Self::SubscriptionRecovered,
        Self::JobFinished,
        Self::CertificateExpiring,
        Self::QuotaNear,
        Self::DiskNearFull,
        Self::NodeLost,
        Self::AuditRecorded,
    ];

    /// The type of the event.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeliveryFailing => "delivery.failing",
            Self::DeliveryRecovered => "delivery.recovered",
            Self::DeliveryDead => "delivery.dead",
            Self::SubscriptionCreated => "subscription.created",
            Self::SubscriptionUpdated => "subscription.updated",
            Self::SubscriptionDeleted => "subscription.deleted",
            Self::SubscriptionFailing => "subscription.failing",
            Self::SubscriptionDisabled => "subscription.disabled",
            Self::SubscriptionRecovered => "subscription.recovered",
            Self::JobFinished => "job.finished",
            Self::CertificateExpiring => "certificate.expiring",
            Self::QuotaNear => "quota.near",
            Self::DiskNearFull => "disk.near_full",
            Self::NodeLost => "node.lost",
            Self::AuditRecorded => "audit.recorded",
        }
    }

    /// What the Svix API calls it, where it has it.
    pub const fn svix_name(self) -> Option<&'static str> {
        match self {
            Self::SubscriptionCreated => Some("endpoint.created"),
            Self::SubscriptionUpdated => Some("endpoint.updated"),
            Self::SubscriptionDeleted => Some("endpoint.deleted"),
            Self::SubscriptionDisabled => Some("endpoint.disabled"),
            Self::DeliveryFailing => Some("message.attempt.failing"),
            Self::DeliveryDead => Some("message.attempt.exhausted"),
            Self::DeliveryRecovered => Some("message.attempt.recovered"),
            Self::JobFinished => Some("background_task.finished"),
            Self::SubscriptionFailing
            | Self::SubscriptionRecovered
            | Self::CertificateExpiring
            | Self::QuotaNear
            | Self::DiskNearFull
            | Self::NodeLost
            | Self::AuditRecorded => None,
        }
    }

    /// The same as events have it.
    pub fn event_type(self) -> EventType {
        EventType::new(self.as_str()).expect("the constants are proper types")
    }
}

impl fmt::Display for OperationalType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_are_proper_names() {
        assert!(TopicName::operational().is_reserved());
        assert!(!TopicName::new("posthorn.operational.eu").expect("a name").is_reserved());
        let types: std::collections::BTreeSet<_> =
            OperationalType::ALL.iter().map(|kind| kind.event_type()).collect();
        assert_eq!(types.len(), OperationalType::ALL.len());
        assert_ne!(TenantId::SYSTEM, TenantId::DEFAULT);
    }
}
