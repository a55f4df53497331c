//! Knobs of the engine itself, as opposed to those of a subscription's policy.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::admission::AdmissionOptions;
use crate::policy_log::PolicyLogOptions;
use crate::quotas::Quotas;
use posthorn_domain::{Policy, ProfileName, ProxyName, Span, limits, policy::profiles};

/// Knobs of the engine. The defaults suit one machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policies subscriptions may name.
    pub profiles: BTreeMap<ProfileName, Policy>,
    /// Proxies that profiles of the configuration may name, each with the names of the tenants it is open
    /// to; `None`: to all.
    pub proxies: BTreeMap<ProxyName, Option<BTreeSet<String>>>,
    /// The largest payload of an event.
    pub payload_bytes: usize,
    /// Accept transactions under way at once. More than one lets the next group form and be planned
    /// while one syncs.
    pub accept_pipeline: usize,
    /// Record transactions under way at once.
    pub record_pipeline: usize,
    /// Events in one accept transaction at most.
    pub accept_batch: usize,
    /// Deliveries in one accept transaction at most, unless one event alone has more: bounds how long
    /// others wait for it.
    pub accept_deliveries: usize,
    /// Attempts under way at once, over all subscriptions.
    pub slots: usize,
    /// Deliveries held in memory at once; the rest waits in the store.
    pub window: usize,
    /// Deliveries of one subscription held in memory at once.
    pub window_per_subscription: usize,
    /// Payload bytes held in memory for deliveries at once.
    pub window_bytes: usize,
    /// How far ahead a delivery may be due and still be held in memory.
    pub horizon: Span,
    /// How long a shard is leased.
    pub lease_ttl: Duration,
    /// How often leases are renewed and the catalog is compared.
    pub heartbeat: Duration,
    /// How often the store is asked for work nobody told us about.
    pub poll: Duration,
    /// How often history is pruned and deleted subscriptions are swept.
    pub maintenance: Duration,
    /// How long ended events are kept.
    pub retention: Span,
    /// How long dead letters are kept.
    pub dead_retention: Span,
    /// How long idempotency keys are kept.
    pub key_retention: Span,
    /// How long a stop waits for attempts under way.
    pub drain: Duration,
    /// How long a replaced secret goes on signing when nobody says.
    pub rotation_overlap: Span,
    /// The longest anybody may ask for: a secret is replaced because it should not be trusted.
    pub rotation_overlap_max: Span,
    /// Who may publish when there is too much of everything.
    pub admission: AdmissionOptions,
    /// How much policies may write into the log.
    pub policy_log: PolicyLogOptions,
    /// How much one tenant may have.
    pub quotas: Quotas,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            profiles: profiles::shipped(),
            proxies: BTreeMap::new(),
            payload_bytes: limits::PAYLOAD_BYTES_DEFAULT,
            accept_pipeline: 2,
            record_pipeline: 2,
            accept_batch: 1_000,
            accept_deliveries: 2_000,
            slots: 512,
            window: 65_536,
            window_per_subscription: 4_096,
            window_bytes: 64 << 20,
            horizon: Span::from_secs(60),
            lease_ttl: Duration::from_secs(10),
            heartbeat: Duration::from_secs(1),
            poll: Duration::from_secs(5),
            maintenance: Duration::from_secs(10),
            retention: Span::from_secs(7 * 86_400),
            dead_retention: Span::from_secs(30 * 86_400),
            key_retention: Span::from_secs(2 * 86_400),
            drain: Duration::from_secs(25),
            rotation_overlap: Span::from_secs(86_400),
            rotation_overlap_max: Span::from_secs(86_400),
            admission: AdmissionOptions::default(),
            policy_log: PolicyLogOptions::default(),
            quotas: Quotas::default(),
        }
    }
}
