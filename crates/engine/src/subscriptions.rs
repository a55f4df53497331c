//! Managing subscriptions: create, change, pause, test, delete. Their secrets are in [`secrets`].

mod destination;
mod ensure;
mod secrets;

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::delivery::SubscriptionEffect;
use posthorn_domain::{
    AttemptOutcome, CatalogVersion, Destination, Filter, Labels, ProfileName, Stops, Subscription,
    SubscriptionId, SubscriptionName, SubscriptionStatus, TenantId, policy::profiles,
};
use posthorn_sealing::standard_webhooks::SecretKind;
use posthorn_store::CatalogChange;
use tracing::{info, warn};

use crate::attempt::{self, Ended};
use crate::catalog::SubscriptionView;
use crate::courier::job_outside;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::metrics;
use crate::push::{self, OpenedPush, PushInput};
use crate::request::SubscriptionLookup;
use crate::scheduler::Effect;

pub use secrets::{Rotation, SecretInput};

pub(crate) use secrets::{check_secrets, names_secret, seal};

use destination::Wanted;
use secrets::{check_no_secrets, check_signing};

/// How often a change that depends on the present version is tried when others interfere.
const TRIES: usize = 5;

/// A subscription to be made.
#[derive(Clone, Debug, Default)]
pub struct NewSubscription {
    /// What its makers call it; unique in the tenant.
    pub name: Option<SubscriptionName>,
    /// For people.
    pub description: String,
    /// What else is remembered of it.
    pub labels: Labels,
    /// Where to, unless it is a channel.
    pub url: String,
    /// To which channel.
    pub push: Option<PushInput>,
    /// Which events; everything when absent.
    pub filter: Option<Filter>,
    /// The policy it names.
    pub profile: Option<ProfileName>,
    /// What it changes in that policy.
    pub overrides: serde_json::Value,
    /// Its secrets. A signing secret that is needed and not given is made up.
    pub secrets: Vec<SecretInput>,
    /// Which kind of signing secret it wants; HMAC when it does not say.
    pub secret_kind: Option<SecretKind>,
    /// Whether it starts paused.
    pub paused: bool,
}

/// What to change; `None` leaves a field as it is.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionChange {
    /// What its makers call it; `Some(None)` takes the name away.
    pub name: Option<Option<SubscriptionName>>,
    /// For people.
    pub description: Option<String>,
    /// What else is remembered of it, as a whole.
    pub labels: Option<Labels>,
    /// Where to, from now on.
    pub url: Option<String>,
    /// To which channel, from now on; only without a URL.
    pub push: Option<PushInput>,
    /// Which events.
    pub filter: Option<Filter>,
    /// The policy it names.
    pub profile: Option<ProfileName>,
    /// What it changes in that policy, as a whole.
    pub overrides: Option<serde_json::Value>,
    /// Secrets to set at once, without overlap.
    pub secrets: Vec<SecretInput>,
    /// Whether secrets that its policy does not name afterwards are removed.
    pub only_needed_secrets: bool,
    /// Only if it still has this version.
    pub expected: Option<CatalogVersion>,
}

impl Engine {
    /// Makes a subscription. Returns it with the signing secret, if one was made up that the receiver
    /// has to know: the only time it is shown. A private key stays here for good.
    pub async fn create_subscription(
        &self,
        tenant: TenantId,
        new: NewSubscription,
    ) -> Result<(Arc<SubscriptionView>, Option<String>)> {
        self.catalog().tenant(tenant)?;
        let now = self.now();
        let id = self.inner.chance.subscription_id(now);
        let wanted = self.wanted(tenant, &new.url, new.push.as_ref()).await?;
        let filter = new.filter.unwrap_or_default();
        filter.validate()?;
        let profile = match new.profile {
            Some(profile) => profile,
            None => ProfileName::new(profiles::DEFAULT).expect("a valid name"),
        };
        let policy = self.catalog().profile(tenant, &profile)?.patched(&new.overrides)?;
        let known = SubscriptionLookup { name: new.name.as_ref(), labels: &new.labels };
        self.check_destination(tenant, &known, wanted.aim(), &policy).await?;
        policy.check_complete()?;
        let (destination, secrets, made) = match wanted {
            Wanted::Webhook(url) => {
                self.check_other_urls(&policy)?;
                let (given, kind) = (&new.secrets, new.secret_kind);
                let (secrets, made) = self.first_secrets(tenant, id, &policy, given, kind, now)?;
                (Destination::Webhook { url }, secrets, made)
            }
            Wanted::Push(opened) => {
                check_no_secrets(&new.secrets, new.secret_kind)?;
                let sealed = opened.auth.iter().map(|auth| self.seal(tenant, id, auth, now));
                (Destination::Push(opened.target), sealed.collect::<Result<_>>()?, None)
            }
        };
        let status =
            if new.paused { SubscriptionStatus::Paused } else { SubscriptionStatus::Active };
        let mut stops = Stops::default();
        if new.paused {
            stops.stop(now);
        }
        let subscription = Subscription {
            id,
            tenant,
            name: new.name,
            description: new.description,
            labels: new.labels,
            destination,
            filter,
            profile,
            overrides: new.overrides,
            secrets,
            status,
            stops,
            created_at: now,
            updated_at: now,
            version: CatalogVersion(0),
        };
        self.change(CatalogChange::CreateSubscription(Box::new(subscription))).await.map_err(
            |e| match e {
                Error::AlreadyExists(_) => e.about("subscription"),
                e => e.about("tenant"),
            },
        )?;
        Ok((self.catalog().subscription(tenant, id)?, made))
    }

    /// Changes a subscription. Attempts that start after this returned use the new version.
    pub async fn update_subscription(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        change: SubscriptionChange,
    ) -> Result<Arc<SubscriptionView>> {
        let now = self.now();
        let wanted = match (&change.url, &change.push) {
            (None, None) => None,
            (url, push) => {
                let push = push.as_ref().filter(|_| url.is_none());
                Some(self.wanted(tenant, url.as_deref().unwrap_or_default(), push).await?)
            }
        };
        if let Some(filter) = &change.filter {
            filter.validate()?;
        }
        let mut sealed = Vec::new();
        for secret in &change.secrets {
            sealed.push(self.seal(tenant, id, secret, now)?);
        }
        self.check_changed_destination(tenant, id, &change, wanted.as_ref()).await?;
        let auth = match &wanted {
            Some(Wanted::Push(OpenedPush { auth: Some(auth), .. })) => {
                Some(self.seal(tenant, id, auth, now)?)
            }
            _ => None,
        };
        self.modify(tenant, id, change.expected, |mut subscription| {
            if let Some(name) = &change.name {
                subscription.name.clone_from(name);
            }
            if let Some(labels) = &change.labels {
                subscription.labels = labels.clone();
            }
            if let Some(text) = &change.description {
                subscription.description.clone_from(text);
            }
            match &wanted {
                None => {}
                Some(Wanted::Webhook(url)) => {
                    // Of a webhook it is a secret like any other.
                    if let Destination::Push(_) = subscription.destination {
                        subscription.secrets.retain(|secret| secret.name != push::auth_name());
                    }
                    subscription.destination = Destination::Webhook { url: url.clone() };
                }
                Some(Wanted::Push(opened)) => {
                    subscription.destination = Destination::Push(opened.target.clone());
                    // Nothing signs a message to a channel.
                    subscription.secrets = auth.iter().cloned().collect();
                }
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
            let policy = self
                .catalog()
                .profile(tenant, &subscription.profile)?
                .patched(&subscription.overrides)?;
            policy.check_complete()?;
            if let Destination::Push(_) = subscription.destination {
                push::check_policy(&policy)?;
                check_no_secrets(&change.secrets, None)?;
                return Ok(subscription);
            }
            for secret in &sealed {
                subscription.secrets.retain(|old| old.name != secret.name);
                subscription.secrets.push(secret.clone());
            }
            check_secrets(&policy, &subscription.secrets)?;
            check_signing(&policy, &change.secrets)?;
            if change.only_needed_secrets {
                subscription.secrets.retain(|secret| names_secret(&policy, &secret.name));
            }
            self.check_other_urls(&policy)?;
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
                    self.refresh_catalog().await?;
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
        self.modify(tenant, id, None, |mut subscription| {
            subscription.turn(status.clone(), self.now());
            Ok(subscription)
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

    /// Sends one made-up event to a subscription, now, once, outside of any schedule and history.
    pub async fn test_subscription(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
    ) -> Result<AttemptOutcome> {
        let view = self.catalog().subscription(tenant, id)?;
        let policy = view.usable_policy()?;
        let _trial = self.trial(tenant)?;
        let payload = Bytes::from_static(br#"{"test":true}"#);
        let work = self.made_up(&view, "application/json", payload);
        let job = job_outside(view, policy, work);
        match attempt::run(Arc::clone(&self.inner.around), job).await.result {
            Ended::Outcome(outcome) => Ok(outcome),
            Ended::GateClosed => Err(Error::Busy("the gate of the subscription is closed")),
            Ended::Overtaken => Err(Error::Busy("the subscription changed meanwhile")),
        }
    }

    pub(crate) async fn apply_effect(&self, effect: Effect) -> Result<()> {
        let Effect { tenant, subscription, what } = effect;
        match what {
            SubscriptionEffect::None => Ok(()),
            SubscriptionEffect::DisableGone => {
                self.disable(tenant, subscription, "gone", "the receiver answered 410 Gone").await
            }
            SubscriptionEffect::DisableExhausted => {
                self.disable(tenant, subscription, "exhausted", "a delivery was exhausted").await
            }
            SubscriptionEffect::DisableFailing => {
                self.disable(tenant, subscription, "failing", "failing").await
            }
            SubscriptionEffect::DisableRefused => {
                self.disable(tenant, subscription, "url_refused", "its URL was refused").await
            }
            SubscriptionEffect::Delete | SubscriptionEffect::DeleteRefused => {
                let reason = match what {
                    SubscriptionEffect::Delete => "a delivery was exhausted",
                    _ => "its URL was refused",
                };
                info!(%subscription, reason, "deleted, as its policy says");
                match self.delete_subscription(tenant, subscription).await {
                    Err(Error::NotFound(_)) => Ok(()),
                    other => other,
                }
            }
        }
    }

    /// Disables a subscription and tells the operator: in its status, in the log, and as a count.
    /// What is pending is kept.
    async fn disable(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        label: &'static str,
        reason: &str,
    ) -> Result<()> {
        match self.catalog().subscription(tenant, id) {
            Ok(view) if view.subscription.status.is_active() => {
                let status = SubscriptionStatus::Disabled { reason: reason.to_owned() };
                self.set_status(tenant, id, status).await?;
                ::metrics::counter!(metrics::DISABLED, "reason" => label).increment(1);
                warn!(subscription = %id, reason, "a subscription was disabled; its pending work is kept until it is resumed");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
