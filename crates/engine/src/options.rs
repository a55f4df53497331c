//! Knobs of the engine itself, as opposed to those of a subscription's policy.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::admission::AdmissionOptions;
use crate::destination::push::PushOptions;
use crate::policy_log::PolicyLogOptions;
use crate::quotas::Quotas;
use http::HeaderValue;
use posthorn_domain::{Policy, ProfileName, ProxyName, Span, limits, policy::profiles, setting};
use serde::Deserialize;

/// Knobs of the engine: the section `engine` of the configuration, and what others know of. The defaults
/// suit one machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The policies subscriptions may name.
    #[serde(skip, default = "profiles::shipped")]
    pub profiles: BTreeMap<ProfileName, Policy>,
    /// Proxies that profiles of the configuration may name, each with the names of the tenants it is open
    /// to; `None`: to all.
    #[serde(skip)]
    pub proxies: BTreeMap<ProxyName, Option<BTreeSet<String>>>,
    /// Whether nothing is sent until somebody resumes.
    #[serde(skip)]
    pub hold: bool,
    /// The largest payload of an event.
    #[serde(deserialize_with = "setting::some_bytes")]
    pub payload_max: usize,
    /// Accept transactions under way at once. More than one lets the next group form and be planned
    /// while one syncs.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub accept_pipeline: usize,
    /// Record transactions under way at once.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub record_pipeline: usize,
    /// Events in one accept transaction at most.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub accept_batch: usize,
    /// Deliveries in one accept transaction at most, unless one event alone has more: bounds how long
    /// others wait for it.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub accept_deliveries: usize,
    /// Attempts under way at once, over all subscriptions.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub slots: usize,
    /// Deliveries held in memory at once; the rest waits in the store.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub window: usize,
    /// Deliveries of one subscription held in memory at once.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub window_per_subscription: usize,
    /// Payload bytes held in memory for deliveries at once.
    #[serde(deserialize_with = "setting::some_bytes")]
    pub window_bytes: usize,
    /// How far ahead a delivery may be due and still be held in memory.
    pub horizon: Span,
    /// How long a shard is leased.
    #[serde(deserialize_with = "setting::some_time")]
    pub lease: Duration,
    /// How often leases are renewed and the catalog is compared.
    #[serde(deserialize_with = "setting::some_time")]
    pub heartbeat_interval: Duration,
    /// How often the store is asked for work nobody told us about.
    #[serde(deserialize_with = "setting::some_time")]
    pub poll_interval: Duration,
    /// How often history is pruned and deleted subscriptions are swept.
    #[serde(deserialize_with = "setting::some_time")]
    pub maintenance_interval: Duration,
    /// How long ended events are kept.
    pub event_retention: Span,
    /// How long dead letters are kept.
    pub dead_letter_retention: Span,
    /// How long idempotency keys are kept.
    pub idempotency_retention: Span,
    /// How long lines of the audit log are kept.
    pub audit_retention: Span,
    /// How long a stop waits for attempts under way.
    #[serde(deserialize_with = "setting::time")]
    pub drain_timeout: Duration,
    /// How long a replaced secret goes on signing when nobody says.
    pub rotation_overlap: Span,
    /// The longest anybody may ask for: a secret is replaced because it should not be trusted.
    pub rotation_overlap_max: Span,
    /// Who this server is to receivers that are asked for permission first.
    #[serde(deserialize_with = "setting::text_if_any")]
    pub webhook_origin: Option<WebhookOrigin>,
    /// Who may publish when there is too much of everything.
    #[serde(skip)]
    pub admission: AdmissionOptions,
    /// How much policies may write into the log.
    #[serde(skip)]
    pub policy_log: PolicyLogOptions,
    /// How much one tenant may have.
    #[serde(skip)]
    pub quotas: Quotas,
    /// Web Push to other services.
    #[serde(skip)]
    pub push: PushOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hold: false,
            profiles: profiles::shipped(),
            proxies: BTreeMap::new(),
            payload_max: limits::PAYLOAD_BYTES_DEFAULT,
            accept_pipeline: 2,
            record_pipeline: 2,
            accept_batch: 1_000,
            accept_deliveries: 2_000,
            slots: 512,
            window: 65_536,
            window_per_subscription: 4_096,
            window_bytes: 64 << 20,
            horizon: Span::from_secs(60),
            lease: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(1),
            poll_interval: Duration::from_secs(5),
            maintenance_interval: Duration::from_secs(10),
            event_retention: Span::from_secs(7 * 86_400),
            dead_letter_retention: Span::from_secs(30 * 86_400),
            idempotency_retention: Span::from_secs(2 * 86_400),
            audit_retention: Span::from_secs(365 * 86_400),
            drain_timeout: Duration::from_secs(25),
            rotation_overlap: Span::from_secs(86_400),
            rotation_overlap_max: Span::from_secs(86_400),
            webhook_origin: None,
            admission: AdmissionOptions::default(),
            policy_log: PolicyLogOptions::default(),
            quotas: Quotas::default(),
            push: PushOptions::default(),
        }
    }
}

/// Who a sender is to receivers that ask (`WebHook-Request-Origin`): the name of a system, such as
/// `events.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookOrigin(String);

impl WebhookOrigin {
    const BYTES_MAX: usize = 255;

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn to_header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.0).expect("checked to be visible ASCII")
    }
}

impl std::str::FromStr for WebhookOrigin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=Self::BYTES_MAX).contains(&text.len())
            && text.bytes().all(|b| matches!(b, b'!'..=b'~') && !b"*,\"".contains(&b));
        if fits {
            return Ok(Self(text.to_owned()));
        }
        Err(
            "must be a name such as events.example.com: 1 to 255 visible ASCII characters, without \
             spaces, commas, quotes and asterisks",
        )
    }
}
