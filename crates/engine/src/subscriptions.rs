//! Managing subscriptions: create, change, pause, test, delete. Their secrets are in [`secrets`].

mod ensure;
mod exposure;
mod secrets;

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::delivery::SubscriptionEffect;
use posthorn_domain::{
    AttemptOutcome, CatalogVersion, EventId, EventType, Filter, Labels, Metadata, OperationalType,
    ProfileName, SealedSecret, SecretName, Seed, Stops, Subscription, SubscriptionId,
    SubscriptionName, SubscriptionStatus, TenantId, Timestamp, limits::SECRETS_MAX,
    policy::profiles,
};
use posthorn_sealing::standard_webhooks::SecretKind;
use posthorn_store::CatalogChange;
use tracing::{info, warn};

use crate::attempt::{self, Ended, Needs};
use crate::audit::job_detail;
use crate::catalog::holdings::of_subscription;
use crate::catalog::{Holdings, SubscriptionView};
use crate::courier::job_outside;
use crate::destination::{self, DestinationInput, Opened, Wanted};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::metrics;
use crate::quotas::{Coming, check_description};
use crate::request::SubscriptionLookup;
use crate::scheduler::Effect;
use crate::told::Fact;

pub use secrets::{Rotation, RotationBounds, SecretInput};

pub(crate) use secrets::{check_secrets, names_secret, seal};

use exposure::Exposure;
use secrets::{check_no_secrets, check_signing};

/// What a change of a subscription is called.
fn change_kind(before: &SubscriptionStatus, after: &SubscriptionStatus) -> OperationalType {
    let disabled =
        |status: &SubscriptionStatus| matches!(status, SubscriptionStatus::Disabled { .. });
    match (disabled(before), disabled(after)) {
        (false, true) => OperationalType::SubscriptionDisabled,
        (true, false) if after.is_active() => OperationalType::SubscriptionRecovered,
        _ => OperationalType::SubscriptionUpdated,
    }
}

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
    /// What the customer remembers of it.
    pub metadata: Metadata,
    /// Where to.
    pub destination: DestinationInput,
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
    /// From where in the past on it gets events; from now on when absent.
    pub start: Option<Start>,
    /// What its id is made of; fresh when absent.
    pub seed: Option<Seed>,
}

/// Where in the past a subscription begins.
#[derive(Clone, Debug)]
pub struct Start {
    /// From there on.
    pub from: Beginning,
    /// Who asks.
    pub created_by: String,
}

/// A place in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// What was accepted at this time or later.
    Time(Timestamp),
    /// An event and those that come after it, also of the same moment.
    Event {
        /// Which one.
        id: EventId,
        /// When it was accepted.
        accepted_at: Timestamp,
    },
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
    /// What the customer remembers of it, as a whole.
    pub metadata: Option<Metadata>,
    /// Where to, from now on.
    pub destination: Option<DestinationInput>,
    /// Which events.
    pub filter: Option<Filter>,
    /// The policy it names.
    pub profile: Option<ProfileName>,
    /// What it changes in that policy, as a whole.
    pub overrides: Option<serde_json::Value>,
    /// Secrets to set at once, without overlap.
    pub secrets: Vec<SecretInput>,
    /// Secrets that were given as well and are the stored ones, so that there is nothing to set.
    pub repeated: Vec<SecretName>,
    /// Whether secrets that its policy does not name afterwards are removed.
    pub only_needed_secrets: bool,
    /// Only if it still has this version.
    pub expected: Option<CatalogVersion>,
}

impl Engine {
    /// Makes a subscription. Returns it with the signing secret, if one was made up that the receiver
    /// has to know: the only time it is shown. A private key stays here for good.
    ///
    /// One that was made of the same seed before is given back as it is, as if it had just been made.
    pub async fn create_subscription(
        &self,
        tenant: TenantId,
        new: NewSubscription,
    ) -> Result<(Arc<SubscriptionView>, Option<String>)> {
        let Some(seed) = new.seed else {
            let id = self.inner.chance.subscription_id(self.now());
            return self.create_subscription_with(tenant, id, new).await;
        };
        let id = SubscriptionId::of_seed(seed);
        let given: Vec<SecretName> = new.secrets.iter().map(|given| given.name.clone()).collect();
        if let Some(made) = self.made_before(tenant, id, &given) {
            return Ok(made);
        }
        match self.create_subscription_with(tenant, id, new).await {
            // By this seed on another node, or another subscription of this name.
            Err(e @ Error::AlreadyExists(_)) => {
                self.refresh_catalog().await?;
                self.made_before(tenant, id, &given).ok_or(e)
            }
            created => created,
        }
    }

    /// A subscription that was made already, with the secret that was made up for it.
    fn made_before(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        given: &[SecretName],
    ) -> Option<(Arc<SubscriptionView>, Option<String>)> {
        let view = self.catalog().subscription(tenant, id).ok()?;
        let own = |secret: &SealedSecret| given.contains(&secret.name);
        let made_up = !view.subscription.secrets.iter().any(own);
        let secret = made_up.then(|| view.signing_secret(self.now())).flatten();
        Some((view, secret))
    }

    async fn create_subscription_with(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        new: NewSubscription,
    ) -> Result<(Arc<SubscriptionView>, Option<String>)> {
        self.catalog().tenant(tenant)?;
        let now = self.now();
        let opened = self.open_destination(tenant, &new.destination, None).await?;
        let destination = destination::of(&opened.stored);
        let filter = new.filter.unwrap_or_default();
        check_description(&new.description)?;
        self.check_filter(&filter)?;
        let profile = match new.profile {
            Some(profile) => profile,
            None => self
                .catalog()
                .default_profile(tenant)
                .unwrap_or_else(|| ProfileName::new(profiles::DEFAULT).expect("a valid name")),
        };
        let policy = self.catalog().profile(tenant, &profile)?.patched(&new.overrides)?;
        policy.check_size(&new.overrides)?;
        let subscription = SubscriptionLookup { name: new.name.as_ref(), labels: &new.labels };
        let wanted = Wanted { id, tenant, subscription, policy: &policy };
        destination.check_now(self, &wanted).await?;
        policy.check_complete()?;
        destination.check_policy(self, &policy)?;
        let (given, kind) = (&new.secrets, new.secret_kind);
        let (secrets, made) = match destination.takes_no_secrets() {
            None => self.first_secrets(tenant, id, &policy, given, kind, now)?,
            Some(why) => {
                check_no_secrets(why, given, kind)?;
                let own = opened.secrets.iter().map(|own| self.seal(tenant, id, own, now));
                (own.collect::<Result<_>>()?, None)
            }
        };
        destination.ask_permission(self, &wanted).await?;
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
            metadata: new.metadata,
            destination: opened.stored,
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
        let bytes = of_subscription(&subscription, Some(&policy));
        let more = Holdings::subscription(&subscription, bytes);
        let _coming = self.inner.keeper.admit(tenant, more)?;
        let fact = Fact::subscription(OperationalType::SubscriptionCreated, &subscription, now);
        let create = CatalogChange::CreateSubscription(Box::new(subscription));
        let created = match new.start {
            None => self.change_telling(create, &fact).await,
            Some(start) => {
                let job = self.first_replay(tenant, id, start.from, start.created_by).await?;
                let detail = job_detail(&job);
                let line = self.line_of(&create).map(|line| line.with("start", detail));
                let write =
                    |along| self.store().create_job_with(job.clone(), Some(create.clone()), along);
                self.change_with(self.writing(Some(&fact), line, true, write)).await
            }
        };
        created.map_err(|e| match e {
            Error::AlreadyExists(_) => e.about("subscription"),
            e => e.about("tenant"),
        })?;
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
        let opened = match &change.destination {
            None => None,
            Some(input) => {
                let view = self.catalog().subscription(tenant, id)?;
                Some(self.open_destination(tenant, input, Some(&view)).await?)
            }
        };
        check_description(change.description.as_deref().unwrap_or_default())?;
        change.filter.as_ref().map_or(Ok(()), |filter| self.check_filter(filter))?;
        let mut sealed = Vec::new();
        for secret in &change.secrets {
            sealed.push(self.seal(tenant, id, secret, now)?);
        }
        self.check_changed_destination(tenant, id, &change, opened.as_ref()).await?;
        let own = opened.iter().flat_map(|opened| &opened.secrets);
        let own = own.map(|own| self.seal(tenant, id, own, now)).collect::<Result<Vec<_>>>()?;
        let given = change.secrets.iter().map(|secret| &secret.name);
        let given: Vec<&SecretName> = given.chain(&change.repeated).collect();
        let _still = self.inner.exposure_lock.read().await;
        self.modify(tenant, id, change.expected, true, |mut subscription| {
            let before = self.exposure_now(&subscription);
            if let Some(name) = &change.name {
                subscription.name.clone_from(name);
            }
            if let Some(labels) = &change.labels {
                subscription.labels = labels.clone();
            }
            if let Some(metadata) = &change.metadata {
                subscription.metadata = metadata.clone();
            }
            if let Some(text) = &change.description {
                subscription.description.clone_from(text);
            }
            if let Some(opened) = &opened {
                // What the former destination kept for itself goes with it.
                let former = destination::of(&subscription.destination).own_secrets();
                subscription.secrets.retain(|secret| !former.contains(&secret.name.as_str()));
                subscription.destination = opened.stored.clone();
            }
            let destination = destination::of(&subscription.destination);
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
            if let Some(overrides) = &change.overrides {
                policy.check_size(overrides)?;
            }
            policy.check_complete()?;
            destination.check_policy(self, &policy)?;
            if let Some(why) = destination.takes_no_secrets() {
                check_no_secrets(why, &change.secrets, None)?;
                if opened.is_some() {
                    subscription.secrets.clone_from(&own);
                }
                return Ok(subscription);
            }
            for secret in &sealed {
                subscription.secrets.retain(|old| old.name != secret.name);
                subscription.secrets.push(secret.clone());
            }
            if subscription.secrets.len() > SECRETS_MAX {
                let problem = format!("a subscription may have at most {SECRETS_MAX} secrets");
                return Err(Error::Secret { name: "secrets".to_owned(), problem });
            }
            check_secrets(&policy, &subscription.secrets)?;
            check_signing(&policy, &change.secrets)?;
            self.exposure(&policy, &subscription.destination).check(&before, &given)?;
            if change.only_needed_secrets {
                subscription.secrets.retain(|secret| names_secret(&policy, &secret.name));
            }
            Ok(subscription)
        })
        .await
    }

    /// Whether the destination can work at this moment, when a change concerns it or the policy.
    async fn check_changed_destination(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        change: &SubscriptionChange,
        opened: Option<&Opened>,
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
        if opened.is_none()
            && change.profile.is_none()
            && change.overrides.is_none()
            && !(renamed && named)
        {
            return Ok(());
        }
        let subscription = SubscriptionLookup {
            name: change.name.as_ref().unwrap_or(&old.name).as_ref(),
            labels: change.labels.as_ref().unwrap_or(&old.labels),
        };
        let stored = opened.map_or(&old.destination, |opened| &opened.stored);
        let wanted = Wanted { id, tenant, subscription, policy: &policy };
        let destination = destination::of(stored);
        destination.check_now(self, &wanted).await?;
        // Permission was given for one URL and one rate.
        let same = view.policy.as_ref().is_ok_and(|before| **before == policy);
        if same && *stored == old.destination {
            return Ok(());
        }
        policy.check_complete()?;
        destination.check_policy(self, &policy)?;
        destination.ask_permission(self, &wanted).await
    }

    /// Whether a filter may be written down.
    pub(crate) fn check_filter(&self, filter: &Filter) -> Result<()> {
        filter.validate()?;
        let units = self.inner.keeper.quotas().match_cost_per_event();
        Ok(filter.check_size(self.payload_bytes(), units)?)
    }

    /// Lets a subscription grow, if its tenant may have more. One that shrinks always may.
    fn admit_growth(&self, old: &SubscriptionView, new: &Subscription) -> Result<Option<Coming>> {
        let policy = self.catalog().profile(new.tenant, &new.profile);
        let policy = policy.ok().and_then(|policy| policy.patched(&new.overrides).ok());
        let new_holdings = Holdings::subscription(new, of_subscription(new, policy.as_ref()));
        let more = new_holdings.less(old.holdings());
        if more.is_nothing() {
            return Ok(None);
        }
        self.inner.keeper.admit(new.tenant, more).map(Some)
    }

    /// Who is told the secrets of a subscription as it stands; nobody when its policy cannot be used.
    pub(crate) fn exposure_now(&self, subscription: &Subscription) -> Exposure {
        let policy = self.catalog().profile(subscription.tenant, &subscription.profile);
        match policy.and_then(|policy| Ok(policy.patched(&subscription.overrides)?)) {
            Ok(policy) => self.exposure(&policy, &subscription.destination),
            Err(_) => Exposure::default(),
        }
    }

    /// Reads, changes and writes back; again when somebody else was faster and the caller does not
    /// insist on a version. What was changed is told, unless an operational event is the reason for it.
    async fn modify(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        expected: Option<CatalogVersion>,
        tells: bool,
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
            // What Posthorn itself says of it, such as why it was disabled, is never refused.
            let _coming = match subscription.status == view.subscription.status {
                true => self.admit_growth(&view, &subscription)?,
                false => None,
            };
            let kind = change_kind(&view.subscription.status, &subscription.status);
            let fact = Fact::subscription(kind, &subscription, subscription.updated_at);
            let change = CatalogChange::UpdateSubscription {
                subscription: Box::new(subscription),
                expected: Some(view.subscription.version),
            };
            let changed = match tells {
                true => self.change_telling(change, &fact).await,
                false => self.change_quietly(change).await,
            };
            match changed {
                Ok(()) => return self.catalog().subscription(tenant, id),
                Err(Error::Changed { .. }) if expected.is_none() => {
                    self.refresh_catalog().await?;
                }
                Err(e) => return Err(e.about("subscription")),
            }
        }
        Err(Error::Busy("the subscription is being changed by others; try again"))
    }

    async fn set_status(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        status: SubscriptionStatus,
        tells: bool,
    ) -> Result<Arc<SubscriptionView>> {
        self.modify(tenant, id, None, tells, |mut subscription| {
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
        self.set_status(tenant, id, SubscriptionStatus::Paused, true).await
    }

    /// Lets attempts go on where they stopped.
    pub async fn resume_subscription(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
    ) -> Result<Arc<SubscriptionView>> {
        self.set_status(tenant, id, SubscriptionStatus::Active, true).await
    }

    /// Deletes a subscription. When this has returned, no attempt starts on any node; what was
    /// pending is cancelled.
    pub async fn delete_subscription(&self, tenant: TenantId, id: SubscriptionId) -> Result<()> {
        self.delete(tenant, id, true).await
    }

    async fn delete(&self, tenant: TenantId, id: SubscriptionId, tells: bool) -> Result<()> {
        let at = self.now();
        let change = CatalogChange::DeleteSubscription { tenant, id, at };
        if tells && self.catalog().subscription(tenant, id).is_err() {
            // This node may be behind; what is told says whom it is about.
            self.refresh_catalog().await?;
        }
        let deleted = match self.catalog().subscription(tenant, id) {
            Ok(view) if tells => {
                let kind = OperationalType::SubscriptionDeleted;
                self.change_telling(change, &Fact::subscription(kind, &view.subscription, at)).await
            }
            _ if tells => self.change(change).await,
            _ => self.change_quietly(change).await,
        };
        deleted.map_err(|e| e.about("subscription"))
    }

    /// Sends one made-up event to a subscription, now, once, outside of any schedule and history.
    pub async fn test_subscription(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
    ) -> Result<AttemptOutcome> {
        let payload = Bytes::from_static(br#"{"test":true}"#);
        self.test_subscription_with(tenant, id, None, payload).await
    }

    /// The same with a type and a JSON payload, such as the example of an event type.
    pub async fn test_subscription_with(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        event_type: Option<EventType>,
        payload: Bytes,
    ) -> Result<AttemptOutcome> {
        let view = self.catalog().subscription(tenant, id)?;
        let policy = view.usable_policy()?;
        let _trial = self.trial(tenant)?;
        let event_type = event_type.unwrap_or_else(crate::rehearsal::test_type);
        let work = self.made_up(&view, event_type, "application/json", payload);
        let job = job_outside(view, policy, work, Needs::Subscription);
        match attempt::run(Arc::clone(&self.inner.around), job).await.result {
            Ended::Outcome(outcome) => Ok(outcome),
            Ended::GateClosed => Err(Error::Busy("the gate of the subscription is closed")),
            Ended::Overtaken => Err(Error::Busy("the subscription was changed in the meantime")),
        }
    }

    pub(crate) async fn apply_effect(&self, effect: Effect) -> Result<()> {
        let Effect { tenant, subscription, what, tells } = effect;
        match what {
            SubscriptionEffect::None => Ok(()),
            SubscriptionEffect::DisableGone => {
                let view = self.catalog().subscription(tenant, subscription);
                let reason = view.as_ref().map_or("gone", |view| view.destination.gone());
                self.disable(tenant, subscription, ("gone", reason), tells).await
            }
            SubscriptionEffect::DisableExhausted => {
                let why = ("exhausted", "a delivery was exhausted");
                self.disable(tenant, subscription, why, tells).await
            }
            SubscriptionEffect::DisableFailing => {
                self.disable(tenant, subscription, ("failing", "failing"), tells).await
            }
            SubscriptionEffect::DisableRefused => {
                let why = ("url_refused", "its URL was refused");
                self.disable(tenant, subscription, why, tells).await
            }
            SubscriptionEffect::Delete | SubscriptionEffect::DeleteRefused => {
                let reason = match what {
                    SubscriptionEffect::Delete => "a delivery was exhausted",
                    _ => "its URL was refused",
                };
                info!(%subscription, reason, "deleted, as its policy says");
                match self.delete(tenant, subscription, tells).await {
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
        (label, reason): (&'static str, &str),
        tells: bool,
    ) -> Result<()> {
        match self.catalog().subscription(tenant, id) {
            Ok(view) if view.subscription.status.is_active() => {
                let status = SubscriptionStatus::Disabled { reason: reason.to_owned() };
                self.set_status(tenant, id, status, tells).await?;
                ::metrics::counter!(metrics::DISABLED, "reason" => label).increment(1);
                warn!(subscription = %id, reason, "a subscription was disabled; its pending work is kept until it is resumed");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
