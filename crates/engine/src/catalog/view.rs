//! One subscription as the engine uses it: its record, its complete policy, its open secrets.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use posthorn_domain::filter::Cost;
use posthorn_domain::policy::{Auth, OrderScope, PolicyError, Route, UrlPolicy};
use posthorn_domain::{
    Destination, Event, Lane, LaneKey, Policy, PushTarget, SecretName, Subscription, Timestamp,
    TopicName,
};
use posthorn_egress::Target;
use posthorn_sealing::encoding::Encoding;
use posthorn_sealing::hash::fingerprint;
use posthorn_sealing::jwk::Jwk;
use posthorn_sealing::standard_webhooks::{PublicKey, SecretKind, SigningSecret};
use posthorn_sealing::vault::{Secret, Vault};

use super::holdings::of_subscription;
use crate::error::Error;
use crate::push;
use crate::request::{EventLookup, secret_context};
use crate::transport::UrlProblem;

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

    /// What policies ask about a URL. It is normalised, so its parts stand where they must: this
    /// cuts a text we wrote ourselves, it does not judge one that somebody else did.
    pub(crate) fn parts(&self) -> UrlParts<'_> {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let host = match authority.strip_prefix('[') {
            Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
            None => authority.split(':').next().unwrap_or_default(),
        };
        UrlParts { https: scheme == "https", host, query: path.contains('?') }
    }
}

/// What policies ask about a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UrlParts<'a> {
    pub(crate) https: bool,
    pub(crate) host: &'a str,
    pub(crate) query: bool,
}

impl UrlParts<'_> {
    /// Whether a policy's rules allow its scheme: that of every URL the policy leads to.
    pub(crate) fn check_scheme(&self, rules: &UrlPolicy) -> Result<(), UrlProblem> {
        if rules.https_only && !self.https {
            let message = "the profile allows https only".to_owned();
            return Err(UrlProblem { code: "https_only", message });
        }
        Ok(())
    }

    /// Whether a secret may be sent there: over https, or without leaving this machine. Names are not
    /// believed, whatever they resolve to at the moment.
    pub(crate) fn check_private(&self, rules: &UrlPolicy) -> Result<(), UrlProblem> {
        self.check_scheme(rules)?;
        let loopback = self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if !self.https && !loopback {
            let message = "secrets are sent over https only; use https".to_owned();
            return Err(UrlProblem { code: "https_only", message });
        }
        Ok(())
    }

    /// Whether a policy's own rules allow it.
    pub(crate) fn check(&self, rules: &UrlPolicy) -> Result<(), UrlProblem> {
        let problem = |code, message: &str| Err(UrlProblem { code, message: message.to_owned() });
        self.check_scheme(rules)?;
        if !rules.query && self.query {
            return problem("query_not_allowed", "the profile allows no query; remove it");
        }
        Ok(())
    }
}

/// Where a subscription's deliveries go, ready for use.
pub enum Place {
    /// Requests to a URL.
    Webhook(Arc<Endpoint>),
    /// Messages to a channel.
    Push(PushTarget),
}

/// One version of a subscription. Immutable: an attempt holds on to the one it began with.
pub struct SubscriptionView {
    /// The record.
    pub subscription: Subscription,
    /// The complete policy, or why there is none.
    pub policy: Result<Arc<Policy>, String>,
    /// Where its deliveries go.
    pub place: Place,
    /// What it may cost to match an event with it, its lane included.
    pub(crate) cost: Cost,
    /// How much memory it takes, nearly.
    pub(crate) bytes: usize,
    vault: Arc<Vault>,
    secrets: OnceLock<Result<Secrets, String>>,
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
        subscription: Subscription,
        policy: Result<Arc<Policy>, String>,
        vault: Arc<Vault>,
    ) -> Self {
        let place = match &subscription.destination {
            Destination::Webhook { url } => Place::Webhook(Arc::new(Endpoint::new(url.clone()))),
            Destination::Push(target) => Place::Push(target.clone()),
        };
        let policy = match place {
            Place::Webhook(_) => policy,
            Place::Push(_) => policy.map(push::fitted),
        };
        let keyed = policy.as_ref().is_ok_and(|policy| policy.order.key.is_some());
        let lane = Cost { fixed: if keyed { LANE } else { 0 }, scans: 0, reads: keyed };
        let cost = subscription.filter.cost() + lane;
        let bytes = of_subscription(&subscription, policy.as_deref().ok());
        Self { subscription, policy, place, cost, bytes, vault, secrets: OnceLock::new() }
    }

    /// The complete policy, or what must be mended before anything can be sent.
    pub(crate) fn usable_policy(&self) -> Result<Arc<Policy>, Error> {
        let broken = |problem: &String| {
            Error::Policy(PolicyError { path: "profile".to_owned(), problem: problem.clone() })
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
            Ok(policy) => policy
                .auth
                .iter()
                .any(|auth| matches!(auth, Auth::StandardWebhooks { secret } if secret == name)),
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
            // Newest first: the current secret leads, those of a rotation follow. Of two that were
            // made in the same millisecond, the one written later is the newer.
            list.reverse();
            list.sort_by_key(|secret| std::cmp::Reverse(secret.created_at));
            Ok(Secrets { list })
        });
        opened.as_ref().map_err(String::as_str)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_those_the_guard_sees() {
        let guard = posthorn_egress::Guard::default();
        for text in [
            "https://a.example/",
            "http://a.example:8080/b?c=d://e",
            "https://[2606:4700:4700::1111]:8443/?",
            "https://93.184.216.34/x?y",
            "HTTPS://B.Example",
        ] {
            let target = guard.check_url(text).expect(text);
            let endpoint = Endpoint::new(target.as_str().to_owned());
            let host = match target.host() {
                posthorn_egress::Host::Name(name) => name.to_string(),
                posthorn_egress::Host::Ip(ip) => ip.to_string(),
            };
            let expected = UrlParts {
                https: target.scheme() == posthorn_egress::Scheme::Https,
                host: &host,
                query: target.path_and_query().contains('?'),
            };
            assert_eq!(endpoint.parts(), expected, "{text}");
        }
    }
}
