//! One subscription as the engine uses it: its record, its complete policy, its open secrets.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use posthorn_domain::policy::OrderScope;
use posthorn_domain::{
    Destination, Event, Lane, LaneKey, Policy, SecretName, Subscription, Timestamp, TopicName,
};
use posthorn_egress::Target;
use posthorn_sealing::standard_webhooks::SigningSecret;
use posthorn_sealing::vault::{Secret, Vault};

use crate::request::{EventLookup, secret_context};

/// Where a subscription's requests go, with the parsed form kept beside the text.
pub struct Endpoint {
    /// The normalised URL.
    pub url: String,
    /// Filled by the transport at the first use.
    pub(crate) target: OnceLock<Result<Arc<Target>, String>>,
}

impl Endpoint {
    /// An endpoint that was not used yet.
    pub fn new(url: String) -> Self {
        Self { url, target: OnceLock::new() }
    }
}

/// One version of a subscription. Immutable: an attempt holds on to the one it began with.
pub struct SubscriptionView {
    /// The record.
    pub subscription: Subscription,
    /// The complete policy, or why there is none.
    pub policy: Result<Arc<Policy>, String>,
    /// Where requests go.
    pub endpoint: Arc<Endpoint>,
    vault: Arc<Vault>,
    secrets: OnceLock<Result<Secrets, String>>,
}

/// A subscription's secrets, opened at the first attempt.
pub struct Secrets {
    list: Vec<OpenSecret>,
}

struct OpenSecret {
    name: SecretName,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    secret: Secret,
    signing: Option<SigningSecret>,
}

impl SubscriptionView {
    pub(crate) fn new(
        subscription: Subscription,
        policy: Result<Arc<Policy>, String>,
        vault: Arc<Vault>,
    ) -> Self {
        let Destination::Webhook { url } = &subscription.destination;
        let endpoint = Arc::new(Endpoint::new(url.clone()));
        Self { subscription, policy, endpoint, vault, secrets: OnceLock::new() }
    }

    /// The topics it can ever match, when every group of its filter names some.
    pub(crate) fn topics(&self) -> Option<BTreeSet<TopicName>> {
        let groups = &self.subscription.filter.any_of;
        if groups.iter().any(|group| group.topics.is_empty()) {
            return None;
        }
        Some(groups.iter().flat_map(|group| group.topics.iter().cloned()).collect())
    }

    /// The lane of an event's delivery, when the policy orders.
    pub(crate) fn lane(&self, event: &Event) -> Option<Lane> {
        let policy = self.policy.as_ref().ok()?;
        match policy.order.scope {
            OrderScope::None => None,
            OrderScope::Subscription => Some(Lane::Subscription),
            OrderScope::Key => match &policy.order.key {
                None => event.key.clone().map(Lane::Key),
                Some(template) => {
                    let text = template.render(&EventLookup(event), str::to_owned).ok()?;
                    LaneKey::new(&text).ok().map(Lane::Key)
                }
            },
        }
    }

    /// Its secrets, opened.
    pub(crate) fn secrets(&self) -> Result<&Secrets, &str> {
        let opened = self.secrets.get_or_init(|| {
            let mut list = Vec::new();
            for sealed in &self.subscription.secrets {
                let context =
                    secret_context(self.subscription.tenant, self.subscription.id, &sealed.name);
                let secret = self
                    .vault
                    .open(&context, &sealed.sealed)
                    .map_err(|e| format!("secret `{}` cannot be opened: {e}", sealed.name))?;
                let text = std::str::from_utf8(secret.expose()).unwrap_or_default();
                let signing = SigningSecret::parse(text).ok();
                list.push(OpenSecret {
                    name: sealed.name.clone(),
                    created_at: sealed.created_at,
                    expires_at: sealed.expires_at,
                    secret,
                    signing,
                });
            }
            // Newest first: the current secret leads, those of a rotation follow.
            list.sort_by_key(|secret| std::cmp::Reverse(secret.created_at));
            Ok(Secrets { list })
        });
        opened.as_ref().map_err(String::as_str)
    }
}

impl Secrets {
    fn live(&self, name: &SecretName, now: Timestamp) -> impl Iterator<Item = &OpenSecret> {
        self.list.iter().filter(move |s| s.name == *name && s.expires_at.is_none_or(|at| now < at))
    }

    /// The current secret of a name.
    pub(crate) fn current(&self, name: &SecretName, now: Timestamp) -> Option<&Secret> {
        self.live(name, now).next().map(|s| &s.secret)
    }

    /// Every signing secret of a name that is valid now, the current one first.
    pub(crate) fn signing(&self, name: &SecretName, now: Timestamp) -> Vec<&SigningSecret> {
        self.live(name, now).filter_map(|s| s.signing.as_ref()).collect()
    }
}
