//! What a tenant has in the catalog, counted as it is in memory.

use posthorn_domain::{Policy, Subscription, TenantId, TenantProfile, Topic, footprint};

use super::{Catalog, SubscriptionView};

/// Entries of maps and lists that lead to a thing.
const ENTRIES: usize = 256;

/// Things and bytes of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Subscriptions.
    pub subscriptions: usize,
    /// Topics.
    pub topics: usize,
    /// Profiles of its own.
    pub profiles: usize,
    /// Subscriptions that name the topic of operational events.
    pub operational: usize,
    /// Bytes of all of these in memory, nearly.
    pub bytes: usize,
}

impl Holdings {
    /// One subscription of so many bytes.
    pub(crate) fn subscription(subscription: &Subscription, bytes: usize) -> Self {
        let operational = usize::from(subscription.filter.names_reserved());
        Self { subscriptions: 1, operational, bytes, ..Self::default() }
    }

    /// One topic of so many bytes.
    pub(crate) fn topic(bytes: usize) -> Self {
        Self { topics: 1, bytes, ..Self::default() }
    }

    /// One profile of so many bytes.
    pub(crate) fn profile(bytes: usize) -> Self {
        Self { profiles: 1, bytes, ..Self::default() }
    }

    /// These and others.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            subscriptions: self.subscriptions + other.subscriptions,
            topics: self.topics + other.topics,
            profiles: self.profiles + other.profiles,
            operational: self.operational + other.operational,
            bytes: self.bytes + other.bytes,
        }
    }

    /// These without others.
    pub(crate) fn less(self, other: Self) -> Self {
        Self {
            subscriptions: self.subscriptions.saturating_sub(other.subscriptions),
            topics: self.topics.saturating_sub(other.topics),
            profiles: self.profiles.saturating_sub(other.profiles),
            operational: self.operational.saturating_sub(other.operational),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// Whether there are none.
    pub(crate) fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// Bytes of a subscription. One that changes its profile has a policy of its own; several that make the
/// same changes share it, and it is counted for each of them.
pub(crate) fn of_subscription(subscription: &Subscription, policy: Option<&Policy>) -> usize {
    let Subscription {
        name,
        description,
        labels,
        metadata,
        destination,
        filter,
        overrides,
        secrets,
        ..
    } = subscription;
    let own = match overrides {
        serde_json::Value::Object(changes) if !changes.is_empty() => policy.map_or(0, footprint),
        _ => 0,
    };
    // Secrets are kept sealed, and opened once they are used.
    let secrets: usize = secrets.iter().map(|secret| 256 + 2 * secret.sealed.len()).sum();
    let name = name.as_ref().map_or(0, |name| 2 * name.as_str().len());
    size_of::<SubscriptionView>()
        + ENTRIES
        + name
        + description.len()
        + 2 * footprint(destination)
        + footprint(labels)
        + footprint(metadata)
        + footprint(filter)
        + footprint(overrides)
        + own
        + secrets
}

/// Bytes of a topic.
pub(crate) fn of_topic(topic: &Topic) -> usize {
    let Topic { name, description, attributes, labels, .. } = topic;
    size_of::<Topic>()
        + ENTRIES
        + 2 * name.as_str().len()
        + description.len()
        + footprint(attributes)
        + footprint(labels)
}

/// Bytes of a profile.
pub(crate) fn of_profile(profile: &TenantProfile, policy: Option<&Policy>) -> usize {
    size_of::<TenantProfile>() + ENTRIES + footprint(&profile.policy) + policy.map_or(0, footprint)
}

impl Catalog {
    /// What a tenant has.
    pub fn holdings(&self, tenant: TenantId) -> Holdings {
        let state = self.state.read();
        state.tenants.get(&tenant).map(|tenant| tenant.holdings).unwrap_or_default()
    }
}
