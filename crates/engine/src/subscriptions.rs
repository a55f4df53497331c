//! Managing subscriptions: create, change, pause, rotate secrets, test, delete.

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::delivery::SubscriptionEffect;
use posthorn_domain::{
    AttemptOutcome, CatalogVersion, Delivery, DeliveryState, Destination, Epoch, Event, EventType,
    Fence, Filter, NodeId, Policy, ProfileName, SealedSecret, SecretName, Shard, Span,
    Subscription, SubscriptionId, SubscriptionStatus, TenantId, Timestamp, TopicName,
    policy::{Auth, profiles},
};
use posthorn_sealing::standard_webhooks::SigningSecret;
use posthorn_store::{CatalogChange, Work};
use tracing::{info, warn};

use crate::attempt::{self, Ended, Job};
use crate::catalog::SubscriptionView;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::request::secret_context;
use crate::scheduler::Effect;

/// How often a change that depends on the present version is tried when others interfere.
const TRIES: usize = 5;

/// A subscription to be made.
#[derive(Clone, Debug, Default)]
pub struct NewSubscription {
    /// For people.
    pub description: String,
    /// Where to.
    pub url: String,
    /// Which events; everything when absent.
    pub filter: Option<Filter>,
    /// The policy it names.
    pub profile: Option<ProfileName>,
    /// What it changes in that policy.
    pub overrides: serde_json::Value,
    /// Its secrets. A signing secret that is needed and not given is made up.
    pub secrets: Vec<SecretInput>,
    /// Whether it starts paused.
    pub paused: bool,
}

/// A secret given by the subscriber.
#[derive(Clone)]
pub struct SecretInput {
    /// What the policy calls it.
    pub name: SecretName,
    /// The secret.
    pub value: String,
}

impl std::fmt::Debug for SecretInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretInput").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What to change; `None` leaves a field as it is.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionChange {
    /// For people.
    pub description: Option<String>,
    /// Where to.
    pub url: Option<String>,
    /// Which events.
    pub filter: Option<Filter>,
    /// The policy it names.
    pub profile: Option<ProfileName>,
    /// What it changes in that policy, as a whole.
    pub overrides: Option<serde_json::Value>,
    /// Secrets to set at once, without overlap.
    pub secrets: Vec<SecretInput>,
    /// Only if it still has this version.
    pub expected: Option<CatalogVersion>,
}

impl Engine {
    /// Makes a subscription. Returns it with the signing secret, if one was made up: the only time
    /// it is shown.
    pub async fn create_subscription(
        &self,
        tenant: TenantId,
        new: NewSubscription,
    ) -> Result<(Arc<SubscriptionView>, Option<String>)> {
        self.catalog().tenant(tenant)?;
        let now = self.now();
        let id = self.inner.chance.subscription_id(now);
        let url = self.inner.around.transport.check_url(&new.url)?;
        let filter = new.filter.unwrap_or_default();
        filter.validate()?;
        let profile = match new.profile {
            Some(profile) => profile,
            None => ProfileName::new(profiles::DEFAULT).expect("a valid name"),
        };
        let policy = self.catalog().profile(&profile)?.patched(&new.overrides)?;
        check_signing(&policy, &new.secrets)?;
        let mut secrets = Vec::new();
        for secret in &new.secrets {
            secrets.push(self.seal(tenant, id, secret, now)?);
        }
        let mut made = None;
        for name in missing(&policy, &secrets) {
            let text = SigningSecret::generate().to_text();
            let input = SecretInput { name: name.clone(), value: text.clone() };
            secrets.push(self.seal(tenant, id, &input, now)?);
            made = Some(text);
        }
        check_secrets(&policy, &secrets)?;
        let status =
            if new.paused { SubscriptionStatus::Paused } else { SubscriptionStatus::Active };
        let subscription = Subscription {
            id,
            tenant,
            description: new.description,
            destination: Destination::Webhook { url },
            filter,
            profile,
            overrides: new.overrides,
            secrets,
            status,
            created_at: now,
            updated_at: now,
            version: CatalogVersion(0),
        };
        self.change(CatalogChange::CreateSubscription(Box::new(subscription)))
            .await
            .map_err(|e| e.about("tenant"))?;
        Ok((self.catalog().subscription(tenant, id)?, made))
    }

    fn seal(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        secret: &SecretInput,
        now: Timestamp,
    ) -> Result<SealedSecret> {
        let problem = |problem: String| Error::Secret { name: secret.name.to_string(), problem };
        if secret.value.is_empty() || secret.value.len() > 4_096 {
            return Err(problem("must be 1 to 4096 bytes".to_owned()));
        }
        let context = secret_context(tenant, id, &secret.name);
        let sealed = self.inner.vault.seal(&context, secret.value.as_bytes());
        Ok(SealedSecret {
            name: secret.name.clone(),
            sealed: Bytes::from(sealed),
            created_at: now,
            expires_at: None,
        })
    }

    /// Changes a subscription. Attempts that start after this returned use the new version.
    pub async fn update_subscription(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        change: SubscriptionChange,
    ) -> Result<Arc<SubscriptionView>> {
        let now = self.now();
        let url = match &change.url {
            Some(url) => Some(self.inner.around.transport.check_url(url)?),
            None => None,
        };
        if let Some(filter) = &change.filter {
            filter.validate()?;
        }
        let mut sealed = Vec::new();
        for secret in &change.secrets {
            sealed.push(self.seal(tenant, id, secret, now)?);
        }
        self.modify(tenant, id, change.expected, |mut subscription| {
            if let Some(text) = &change.description {
                subscription.description.clone_from(text);
            }
            if let Some(url) = &url {
                subscription.destination = Destination::Webhook { url: url.clone() };
            }
            if let Some(filter) = &change.filter {
                subscription.filter = filter.clone();
            }
            if let Some(profile) = &change.profile {
                subscription.profile = profile.clone();
            }
            if let Some(overrides) = &change.overrides {
                subscription.overrides = overrides.clone();
            }
            for secret in &sealed {
                subscription.secrets.retain(|old| old.name != secret.name);
                subscription.secrets.push(secret.clone());
            }
            let policy =
                self.catalog().profile(&subscription.profile)?.patched(&subscription.overrides)?;
            check_secrets(&policy, &subscription.secrets)?;
            check_signing(&policy, &change.secrets)?;
            Ok(subscription)
        })
        .await
    }

    /// Reads, changes and writes back; again when somebody else was faster and the caller does not
    /// insist on a version.
    async fn modify(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        expected: Option<CatalogVersion>,
        edit: impl Fn(Subscription) -> Result<Subscription>,
    ) -> Result<Arc<SubscriptionView>> {
        for _ in 0..TRIES {
            let view = self.catalog().subscription(tenant, id)?;
            if let Some(expected) = expected
                && view.subscription.version != expected
            {
                // This node may be behind; only a fresh look can say that the caller is.
                self.refresh_catalog().await?;
                let current = self.catalog().subscription(tenant, id)?.subscription.version;
                if current != expected {
                    return Err(Error::Changed { current });
                }
                continue;
            }
            let mut subscription = edit(view.subscription.clone())?;
            subscription.updated_at = self.now();
            let change = CatalogChange::UpdateSubscription {
                subscription: Box::new(subscription),
                expected: Some(view.subscription.version),
            };
            match self.change(change).await {
                Ok(()) => return self.catalog().subscription(tenant, id),
                Err(Error::Changed { .. }) if expected.is_none() => {
                    let delta = self.store().catalog_since(self.catalog().version()).await?;
                    self.catalog().apply(delta);
                }
                Err(e) => return Err(e.about("subscription")),
            }
        }
        Err(Error::Busy("the subscription changes too fast"))
    }

    async fn set_status(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        status: SubscriptionStatus,
    ) -> Result<Arc<SubscriptionView>> {
        self.modify(tenant, id, None, |subscription| {
            Ok(Subscription { status: status.clone(), ..subscription })
        })
        .await
    }

    /// Stops attempts; events go on matching. When this has returned, no attempt starts.
    pub async fn pause_subscription(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
    ) -> Result<Arc<SubscriptionView>> {
        self.set_status(tenant, id, SubscriptionStatus::Paused).await
    }

    /// Lets attempts go on where they stopped.
    pub async fn resume_subscription(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
    ) -> Result<Arc<SubscriptionView>> {
        self.set_status(tenant, id, SubscriptionStatus::Active).await
    }

    /// Deletes a subscription. When this has returned, no attempt starts on any node; what was
    /// pending is cancelled.
    pub async fn delete_subscription(&self, tenant: TenantId, id: SubscriptionId) -> Result<()> {
        let at = self.now();
        self.change(CatalogChange::DeleteSubscription { tenant, id, at })
            .await
            .map_err(|e| e.about("subscription"))
    }

    /// A new secret; the old one goes on signing beside it for `overlap`. Returns the new one, the
    /// only time it is shown.
    pub async fn rotate_secret(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        name: SecretName,
        value: Option<String>,
        overlap: Span,
    ) -> Result<(Arc<SubscriptionView>, String)> {
        let now = self.now();
        let text = value.unwrap_or_else(|| SigningSecret::generate().to_text());
        let input = SecretInput { name: name.clone(), value: text.clone() };
        let view = self.catalog().subscription(tenant, id)?;
        if let Ok(policy) = &view.policy {
            check_signing(policy, std::slice::from_ref(&input))?;
        }
        let fresh = self.seal(tenant, id, &input, now)?;
        let until = now.plus(overlap);
        let view = self
            .modify(tenant, id, None, |mut subscription| {
                subscription.secrets.retain(|old| old.expires_at.is_none_or(|at| now < at));
                for old in subscription.secrets.iter_mut().filter(|old| old.name == name) {
                    old.expires_at = Some(old.expires_at.map_or(until, |at| at.min(until)));
                }
                subscription.secrets.push(fresh.clone());
                Ok(subscription)
            })
            .await?;
        Ok((view, text))
    }

    /// Sends one made-up event to a subscription, now, once, outside of any schedule and history.
    pub async fn test_subscription(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
    ) -> Result<AttemptOutcome> {
        let view = self.catalog().subscription(tenant, id)?;
        let policy = view.policy.clone().map_err(|problem| {
            Error::Policy(posthorn_domain::policy::PolicyError {
                path: "profile".to_owned(),
                problem,
            })
        })?;
        let now = self.now();
        let event = Event {
            id: self.inner.chance.event_id(now),
            tenant,
            topic: TopicName::new("posthorn.test").expect("a valid name"),
            event_type: EventType::new("posthorn.test").expect("a valid type"),
            attributes: std::collections::BTreeMap::new(),
            key: None,
            content_type: "application/json".to_owned(),
            payload: Bytes::from_static(br#"{"test":true}"#),
            accepted_at: now,
        };
        let delivery = Delivery {
            id: self.inner.chance.delivery_id(now),
            event: event.id,
            subscription: id,
            tenant,
            lane: None,
            seq: 0,
            state: DeliveryState::Pending,
            due_at: now,
            attempts: 0,
            budget_base: 0,
            budget_began: now,
            created_at: now,
            ended_at: None,
        };
        let fence =
            Fence { shard: Shard::of(id), epoch: Epoch(0), node: NodeId::from_bytes([0; 16]) };
        let work = Work { delivery, event: Arc::new(event) };
        let job = Job { work, view, policy, fence, sick: false, leased: None };
        match attempt::run(Arc::clone(&self.inner.around), job).await.result {
            Ended::Outcome(outcome) => Ok(outcome),
            Ended::GateClosed => Err(Error::Busy("the gate of the subscription is closed")),
            Ended::Overtaken => Err(Error::Busy("the subscription changed meanwhile")),
        }
    }

    pub(crate) async fn apply_effect(&self, effect: Effect) -> Result<()> {
        let Effect { tenant, subscription, what } = effect;
        let disable = |reason: &str| SubscriptionStatus::Disabled { reason: reason.to_owned() };
        match what {
            SubscriptionEffect::None => Ok(()),
            SubscriptionEffect::DisableGone => {
                warn!(%subscription, "disabled: its receiver answered 410 Gone; pending work is kept");
                self.disable(tenant, subscription, disable("the receiver answered 410 Gone")).await
            }
            SubscriptionEffect::DisableExhausted => {
                warn!(%subscription, "disabled: a delivery was exhausted and its policy says so");
                self.disable(tenant, subscription, disable("a delivery was exhausted")).await
            }
            SubscriptionEffect::Delete => {
                info!(%subscription, "deleted: a delivery was exhausted and its policy says so");
                match self.delete_subscription(tenant, subscription).await {
                    Err(Error::NotFound(_)) => Ok(()),
                    other => other,
                }
            }
        }
    }

    async fn disable(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        status: SubscriptionStatus,
    ) -> Result<()> {
        match self.catalog().subscription(tenant, id) {
            Ok(view) if view.subscription.status.is_active() => {
                self.set_status(tenant, id, status).await.map(drop)
            }
            _ => Ok(()),
        }
    }
}

/// Signing secrets a policy needs and a subscription does not have.
fn missing<'p>(policy: &'p Policy, secrets: &[SealedSecret]) -> Vec<&'p SecretName> {
    let lacks = |name: &SecretName| !secrets.iter().any(|secret| secret.name == *name);
    policy
        .auth
        .iter()
        .filter_map(|auth| match auth {
            Auth::StandardWebhooks { secret } if lacks(secret) => Some(secret),
            _ => None,
        })
        .collect()
}

/// Secrets that sign must have the form of a signing secret; otherwise every attempt would fail.
fn check_signing(policy: &Policy, given: &[SecretInput]) -> Result<()> {
    let signs = |name: &SecretName| {
        policy
            .auth
            .iter()
            .any(|auth| matches!(auth, Auth::StandardWebhooks { secret } if secret == name))
    };
    for secret in given.iter().filter(|secret| signs(&secret.name)) {
        if let Err(e) = SigningSecret::parse(&secret.value) {
            return Err(Error::Secret { name: secret.name.to_string(), problem: e.to_string() });
        }
    }
    Ok(())
}

fn check_secrets(policy: &Policy, secrets: &[SealedSecret]) -> Result<()> {
    for name in policy.auth.iter().flat_map(Auth::secrets) {
        if !secrets.iter().any(|secret| secret.name == *name) {
            return Err(Error::Secret {
                name: name.to_string(),
                problem: "the policy needs it and it was not given".to_owned(),
            });
        }
    }
    Ok(())
}
