//! Managing subscriptions: create, change, pause, test, delete. Their secrets are in [`secrets`].

mod ensure;
mod secrets;

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::delivery::SubscriptionEffect;
use posthorn_domain::{
    AttemptOutcome, CatalogVersion, Destination, Filter, Labels, ProfileName, Subscription,
    SubscriptionId, SubscriptionName, SubscriptionStatus, TenantId,
    policy::{Auth, Policy, PolicyError, profiles},
};
use posthorn_sealing::standard_webhooks::SecretKind;
use posthorn_store::CatalogChange;
use tracing::{info, warn};

use crate::attempt::{self, Ended};
use crate::catalog::certificates::{NoCertificate, Purpose};
use crate::catalog::{Endpoint, SubscriptionView};
use crate::courier::job_outside;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::metrics;
use crate::request::SubscriptionLookup;
use crate::scheduler::Effect;
use crate::tokens::token_endpoint;
use crate::transport::UrlProblem;

pub use secrets::{Rotation, SecretInput};

pub(crate) use secrets::{check_secrets, names_secret, seal};

use secrets::check_signing;

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
        let url = self.inner.around.transport.check_url(&new.url)?;
        let filter = new.filter.unwrap_or_default();
        filter.validate()?;
        let profile = match new.profile {
            Some(profile) => profile,
            None => ProfileName::new(profiles::DEFAULT).expect("a valid name"),
        };
        let policy = self.catalog().profile(tenant, &profile)?.patched(&new.overrides)?;
        let known = SubscriptionLookup { name: new.name.as_ref(), labels: &new.labels };
        self.check_destination(tenant, &known, &url, &policy).await?;
        policy.check_complete()?;
        self.check_other_urls(&policy)?;
        let (secrets, made) =
            self.first_secrets(tenant, id, &policy, &new.secrets, new.secret_kind, now)?;
        let status =
            if new.paused { SubscriptionStatus::Paused } else { SubscriptionStatus::Active };
        let subscription = Subscription {
            id,
            tenant,
            name: new.name,
            description: new.description,
            labels: new.labels,
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
        self.change(CatalogChange::CreateSubscription(Box::new(subscription))).await.map_err(
            |e| match e {
                Error::AlreadyExists(_) => e.about("subscription"),
                e => e.about("tenant"),
            },
        )?;
        Ok((self.catalog().subscription(tenant, id)?, made))
    }

    /// A URL as a subscription would keep it, when the guard has nothing against it.
    pub fn check_url(&self, url: &str) -> Result<String> {
        Ok(self.inner.around.transport.check_url(url)?)
    }

    /// What a policy demands of a destination beyond what the guard demands of all: its own rules for
    /// URLs, names that resolve, and certificates that exist.
    async fn check_destination(
        &self,
        tenant: TenantId,
        known: &SubscriptionLookup<'_>,
        url: &str,
        policy: &Policy,
    ) -> Result<()> {
        let endpoint = Endpoint::new(url.to_owned());
        let parts = endpoint.parts();
        parts.check(&policy.url)?;
        if policy.url.resolve {
            self.inner.around.transport.vet(url).await?;
        }
        let now = self.now();
        let missing = |field: &'static str| {
            move |e: NoCertificate| Error::Certificate { field, problem: e.to_string() }
        };
        for auth in &policy.auth {
            let Some(choice) = auth.certificate() else { continue };
            let shown = matches!(auth, Auth::ClientCertificate(_));
            if shown && !parts.https {
                let message = "a client certificate can only be shown over https".to_owned();
                return Err(UrlProblem { code: "https_only", message }.into());
            }
            let purpose = if shown { Purpose::Show } else { Purpose::Name };
            let found = self
                .catalog()
                .client_certificate(tenant, choice, known, parts.host, purpose, now)
                .map_err(missing("policy.auth"))?;
            if shown {
                found.identity().map_err(|problem| Error::Certificate {
                    field: "policy.auth",
                    problem: format!("certificate {} {problem}", found.certificate.id),
                })?;
            }
        }
        self.catalog()
            .authorities(tenant, &policy.tls.authorities, now)
            .map_err(missing("policy.tls.authorities"))?;
        Ok(())
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
        self.check_changed_destination(tenant, id, &change, url.as_deref()).await?;
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
            let policy = self
                .catalog()
                .profile(tenant, &subscription.profile)?
                .patched(&subscription.overrides)?;
            check_secrets(&policy, &subscription.secrets)?;
            check_signing(&policy, &change.secrets)?;
            if change.only_needed_secrets {
                subscription.secrets.retain(|secret| names_secret(&policy, &secret.name));
            }
            policy.check_complete()?;
            self.check_other_urls(&policy)?;
            Ok(subscription)
        })
        .await
    }

    /// The same for a change, when it concerns the destination or the policy.
    async fn check_changed_destination(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        change: &SubscriptionChange,
        url: Option<&str>,
    ) -> Result<()> {
        let view = self.catalog().subscription(tenant, id)?;
        let old = &view.subscription;
        let profile = change.profile.as_ref().unwrap_or(&old.profile);
        let overrides = change.overrides.as_ref().unwrap_or(&old.overrides);
        let policy = self.catalog().profile(tenant, profile)?.patched(overrides)?;
        // Names and labels concern the destination only where they say whose certificate is shown.
        let owners = policy.auth.iter().filter_map(|auth| auth.certificate()?.owner.as_ref());
        let named = owners.flat_map(|owner| owner.names()).next().is_some();
        let renamed = change.name.is_some() || change.labels.is_some();
        if url.is_none()
            && change.profile.is_none()
            && change.overrides.is_none()
            && !(renamed && named)
        {
            return Ok(());
        }
        let known = SubscriptionLookup {
            name: change.name.as_ref().unwrap_or(&old.name).as_ref(),
            labels: change.labels.as_ref().unwrap_or(&old.labels),
        };
        let Destination::Webhook { url: present } = &old.destination;
        self.check_destination(tenant, &known, url.unwrap_or(present), &policy).await
    }

    /// Refuses a token server that could never be reached or told a secret, and a gate that could
    /// never be asked, as far as their URLs tell. What a template becomes is checked when it is used.
    pub(crate) fn check_other_urls(&self, policy: &Policy) -> Result<()> {
        for auth in &policy.auth {
            if let Auth::Oauth2(client) = auth
                && let Err(problem) =
                    token_endpoint(&*self.inner.around.transport, client, &policy.url)
            {
                let path = "auth.token_url".to_owned();
                return Err(PolicyError { path, problem: problem.to_string() }.into());
            }
        }
        if let Some(gate) = &policy.gate
            && gate.url.source().to_ascii_lowercase().starts_with("http://")
            && let Err(problem) =
                Endpoint::new(gate.url.source().to_owned()).parts().check_scheme(&policy.url)
        {
            let path = "gate.url".to_owned();
            return Err(PolicyError { path, problem: problem.to_string() }.into());
        }
        Ok(())
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
