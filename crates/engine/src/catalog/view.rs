//! One subscription as the engine uses it: its record, its complete policy, its open secrets.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use posthorn_domain::filter::Cost;
use posthorn_domain::policy::{Auth, OrderScope, PolicyError, Route};
use posthorn_domain::{
    Event, Lane, LaneKey, Policy, Problem, SecretName, Subscription, Timestamp, TopicName,
};
use posthorn_sealing::encoding::Encoding;
use posthorn_sealing::hash::fingerprint;
use posthorn_sealing::jwk::Jwk;
use posthorn_sealing::standard_webhooks::{PublicKey, SecretKind, SigningSecret};
use posthorn_sealing::vault::{Secret, Vault};

use super::holdings::{Holdings, of_subscription};
use crate::destination::{self, Destination};
use crate::error::Error;
use crate::request::{EventLookup, secret_context};

/// One version of a subscription. Immutable: an attempt holds on to the one it began with.
pub struct SubscriptionView {
    /// The record.
    pub subscription: Subscription,
    /// The complete policy, or why there is none.
    pub policy: Result<Arc<Policy>, Problem>,
    /// Where its deliveries go.
    pub(crate) destination: Box<dyn Destination>,
    /// What it may cost to match an event with it, its lane included.
    pub(crate) cost: Cost,
    /// How much memory it takes, nearly.
    pub(crate) bytes: usize,
    vault: Arc<Vault>,
    secrets: OnceLock<Result<Secrets, Problem>>,
}

/// What filling in the key of a lane costs, beside reading the payload.
const LANE: u64 = 512;

/// A subscription's secrets, opened at the first attempt.
pub struct Secrets {
    list: Vec<OpenSecret>,
}

/// What receivers verify asymmetric signatures with. Public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationKey {
    /// The secret it belongs to.
    pub secret: SecretName,
    /// The key.
    pub key: PublicKey,
    /// Until when it is used besides a newer one.
    pub expires_at: Option<Timestamp>,
}

impl VerificationKey {
    /// The form that receivers' tools fetch.
    pub fn jwk(&self) -> Jwk {
        Jwk::from(&self.key)
    }
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
        mut subscription: Subscription,
        policy: Result<Arc<Policy>, Problem>,
        vault: Arc<Vault>,
    ) -> Self {
        // Whoever reads a list makes room for four, and mostly there is one. There may be very many subscriptions.
        subscription.filter.any_of.shrink_to_fit();
        subscription.secrets.shrink_to_fit();
        let destination = destination::of(&subscription.destination);
        let keyed = policy.as_ref().is_ok_and(|policy| policy.order.key.is_some());
        let lane = Cost { fixed: if keyed { LANE } else { 0 }, scans: 0, reads: keyed };
        let cost = subscription.filter.cost() + lane;
        let bytes = of_subscription(&subscription, policy.as_deref().ok());
        Self { subscription, policy, destination, cost, bytes, vault, secrets: OnceLock::new() }
    }

    /// What it counts against the quotas of its tenant.
    pub(crate) fn holdings(&self) -> Holdings {
        Holdings::subscription(&self.subscription, self.bytes)
    }

    /// The complete policy, or what must be mended before anything can be sent.
    pub(crate) fn usable_policy(&self) -> Result<Arc<Policy>, Error> {
        let broken = |problem: &Problem| {
            Error::Policy(PolicyError { path: "profile".to_owned(), problem: problem.to_string() })
        };
        self.policy.as_ref().map(Arc::clone).map_err(broken)
    }

    /// The topics it can ever match, when every group of its filter names some.
    pub(crate) fn topics(&self) -> Option<BTreeSet<TopicName>> {
        let groups = &self.subscription.filter.any_of;
        if groups.iter().any(|group| group.topics.is_empty()) {
            return None;
        }
        Some(groups.iter().flat_map(|group| group.topics.iter().cloned()).collect())
    }

    /// Whether its policy has switched the family of an event off: then there is no delivery.
    pub(crate) fn switches_off(&self, event: &Event) -> bool {
        let route = |policy: &Arc<Policy>| policy.request.route(event.family()) == Route::Off;
        self.policy.as_ref().is_ok_and(route)
    }

    /// The lane of an event's delivery, when the policy orders.
    pub(crate) fn lane(&self, event: &EventLookup<'_>) -> Option<Lane> {
        let policy = self.policy.as_ref().ok()?;
        match policy.order.scope {
            OrderScope::None => None,
            OrderScope::Subscription => Some(Lane::Subscription),
            OrderScope::Key => match &policy.order.key {
                None => event.event.key.clone().map(Lane::Key),
                // Events that lack what makes a key are free: in one lane, whoever they belong to would
                // wait for strangers.
                Some(key) => {
                    let text = key.render(&policy.with_values(event))?;
                    lane_key(&text).map(Lane::Key)
                }
            },
        }
    }

    /// The public keys that verify its signatures now, the current ones first; `Err` when its
    /// secrets cannot be opened.
    pub fn verification_keys(&self, now: Timestamp) -> Result<Vec<VerificationKey>, &str> {
        let live = |secret: &&OpenSecret| secret.expires_at.is_none_or(|at| now < at);
        let signs = |name: &SecretName| match &self.policy {
            Ok(policy) => policy.auth.iter().any(
                |auth| matches!(auth, Auth::StandardWebhooks { secret, .. } if secret == name),
            ),
            Err(_) => true,
        };
        let keys = self.secrets()?.list.iter().filter(live).filter_map(|secret| {
            if !signs(&secret.name) {
                return None;
            }
            Some(VerificationKey {
                secret: secret.name.clone(),
                key: secret.signing.as_ref()?.public_key()?,
                expires_at: secret.expires_at,
            })
        });
        Ok(keys.collect())
    }

    /// Whether a secret signs now that somebody could be shown.
    pub fn has_signing_secret(&self, now: Timestamp) -> bool {
        self.signing_secret(now).is_some()
    }

    /// The public half of the private key that signs now.
    pub(crate) fn public_half(&self, now: Timestamp) -> Option<String> {
        self.signing_now(now)?.public_key().map(|key| key.to_string())
    }

    /// The secret that signs now, for whoever may see it; nothing where a private key signs, or nothing does.
    pub(crate) fn signing_secret(&self, now: Timestamp) -> Option<String> {
        let signing = self.signing_now(now)?;
        signing.public_key().is_none().then(|| signing.to_text())
    }

    fn signing_now(&self, now: Timestamp) -> Option<&SigningSecret> {
        let (policy, open) = (self.policy.as_ref().ok()?, self.secrets().ok()?);
        let mut names = policy.auth.iter().filter_map(|auth| match auth {
            Auth::StandardWebhooks { secret, .. } => Some(secret),
            _ => None,
        });
        names.find_map(|name| open.signing(name, now).first().copied())
    }

    /// Its secrets, opened.
    pub(crate) fn secrets(&self) -> Result<&Secrets, &str> {
        let opened = self.secrets.get_or_init(|| {
            let mut list = Vec::with_capacity(self.subscription.secrets.len());
            for sealed in &self.subscription.secrets {
                let context =
                    secret_context(self.subscription.tenant, self.subscription.id, &sealed.name);
                let secret = self
                    .vault
                    .open(&context, &sealed.sealed)
                    .map_err(|e| format!("secret `{}` cannot be decrypted: {e}", sealed.name))?;
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
            // Newest first: the current secret leads, those of a rotation follow. Of two that were
            // made in the same millisecond, the one written later is the newer.
            list.reverse();
            list.sort_by_key(|secret| std::cmp::Reverse(secret.created_at));
            Ok(Secrets { list })
        });
        opened.as_ref().map_err(Problem::as_str)
    }
}

/// The key of a lane. What is too long or too odd for one keeps its order by its fingerprint.
fn lane_key(text: &str) -> Option<LaneKey> {
    if text.is_empty() {
        return None;
    }
    let digest = || Encoding::Hex.encode(&fingerprint(&[text.as_bytes()]));
    LaneKey::new(text).or_else(|_| LaneKey::new(&format!("sha256:{}", digest()))).ok()
}

impl Secrets {
    fn live(&self, name: &SecretName, now: Timestamp) -> impl Iterator<Item = &OpenSecret> {
        self.list.iter().filter(move |s| s.name == *name && s.expires_at.is_none_or(|at| now < at))
    }

    /// The current secret of a name.
    pub(crate) fn current(&self, name: &SecretName, now: Timestamp) -> Option<&Secret> {
        self.live(name, now).next().map(|s| &s.secret)
    }

    /// The kind of the current signing secret of a name.
    pub(crate) fn kind(&self, name: &SecretName, now: Timestamp) -> Option<SecretKind> {
        self.live(name, now).find_map(|s| s.signing.as_ref()).map(SigningSecret::kind)
    }

    /// Every signing secret of a name that is valid now, the current one first.
    pub(crate) fn signing(&self, name: &SecretName, now: Timestamp) -> Vec<&SigningSecret> {
        self.live(name, now).filter_map(|s| s.signing.as_ref()).collect()
    }
}
