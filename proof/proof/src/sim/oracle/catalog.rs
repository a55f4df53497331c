//! Subscriptions, their versions, and who must get an event.

use std::sync::Arc;

use posthorn_domain::filter::Candidate;
use posthorn_domain::policy::OrderScope;
use posthorn_domain::{
    CatalogVersion, Event, Lane, Policy, Span, Subscription, SubscriptionId, TenantId, Timestamp,
};
use posthorn_sealing::standard_webhooks::SigningSecret;
use posthorn_store::CatalogChange;

use super::{Invariant, Oracle};

/// A signing secret of one version, with the time it counts.
pub(super) struct Signing {
    pub(super) secret: SigningSecret,
    pub(super) expires_at: Option<Timestamp>,
}

/// One version of a subscription.
pub(super) struct Version {
    pub(super) version: CatalogVersion,
    pub(super) url: String,
    pub(super) active: bool,
    pub(super) signing: Vec<Signing>,
    pub(super) subscription: Subscription,
}

/// A subscription with all its versions.
pub(super) struct Known {
    pub(super) tenant: TenantId,
    pub(super) policy: Arc<Policy>,
    pub(super) versions: Vec<Version>,
    pub(super) deleted: bool,
    /// Whether its tenant is being deleted.
    pub(super) closed: bool,
    /// Since when nothing may start, by the store: paused, disabled or deleted.
    pub(super) stopped_at: Option<Timestamp>,
    /// Since when somebody was told that nothing starts any more.
    pub(super) promised_stop: Option<Timestamp>,
    /// Attempts that start from now on use at least this version: somebody was told so.
    pub(super) settled: CatalogVersion,
    /// Until when the breaker, or what the receiver asked for, may hold work back; explains why it is late.
    pub(super) troubled: Timestamp,
}

impl Known {
    pub(super) fn current(&self) -> Option<&Version> {
        self.versions.last()
    }

    /// How long it stood still since then, at the least and at the most, by the versions that its
    /// owner may know.
    pub(super) fn stood_still(&self, since: Timestamp, now: Timestamp) -> (Span, Span) {
        let present = self.versions.iter().rev();
        let before = self.versions.iter().filter(|version| version.version <= self.settled).count();
        let shifts = present
            .take(self.versions.len() + 1 - before.max(1))
            .map(|version| version.subscription.stops.between(since, now));
        let (mut least, mut most) = (Span::from_millis(u64::MAX), Span::ZERO);
        for shift in shifts {
            (least, most) = (least.min(shift), most.max(shift));
        }
        (least.min(most), most)
    }

    pub(super) fn is_active(&self) -> bool {
        !self.deleted && !self.closed && self.current().is_some_and(|version| version.active)
    }
}

impl Oracle {
    /// The store applied a change.
    pub(crate) fn changed(&mut self, now: Timestamp, change: &CatalogChange, to: CatalogVersion) {
        let tenant = match change {
            CatalogChange::CreateTenant(tenant) => Some(tenant.id),
            CatalogChange::CreateTopic(topic) => {
                let new = self.topics.insert((topic.tenant, topic.name.clone()));
                let name = topic.name.clone();
                self.expect(new, Invariant::I15, now, || format!("topic {name} was made twice"));
                Some(topic.tenant)
            }
            CatalogChange::PutTopic(topic) => {
                self.topics.insert((topic.tenant, topic.name.clone()));
                Some(topic.tenant)
            }
            CatalogChange::DeleteTopic { tenant, name } => {
                self.topics.remove(&(*tenant, name.clone()));
                Some(*tenant)
            }
            CatalogChange::CreateSubscription(subscription) => {
                self.put(now, subscription, to);
                Some(subscription.tenant)
            }
            CatalogChange::UpdateSubscription { subscription, .. } => {
                self.put(now, subscription, to);
                Some(subscription.tenant)
            }
            CatalogChange::DeleteSubscription { tenant, id, .. } => {
                if let Some(known) = self.subscriptions.get_mut(id) {
                    known.deleted = true;
                    known.stopped_at.get_or_insert(now);
                }
                self.unsubscribed(*id, now);
                Some(*tenant)
            }
            CatalogChange::PutProfile(profile) => {
                self.put_profile(profile, to);
                Some(profile.tenant)
            }
            CatalogChange::DeleteTenant { tenant, .. } => {
                self.closed(now, *tenant);
                None
            }
            // No simulated world has certificates, clients, realms or event types, or takes profiles back.
            CatalogChange::PutRealm(_)
            | CatalogChange::DeleteRealm(_)
            | CatalogChange::PutEventType(_)
            | CatalogChange::DeleteEventType { .. }
            | CatalogChange::ChangeTenant { .. }
            | CatalogChange::BuryTenant { .. }
            | CatalogChange::DeleteProfile { .. }
            | CatalogChange::PutClient { .. }
            | CatalogChange::DeleteClient { .. }
            | CatalogChange::CreateCertificate(_)
            | CatalogChange::UpdateCertificate { .. }
            | CatalogChange::RevokeCertificate { .. }
            | CatalogChange::DeleteCertificate { .. }
            | CatalogChange::CreateKey(_)
            | CatalogChange::CreateFirstKey(_)
            | CatalogChange::RevokeKey { .. } => None,
        };
        if let Some(tenant) = tenant {
            let before = self.tenants.insert(tenant, to);
            self.expect(before.is_none_or(|before| before < to), Invariant::I14, now, || {
                format!("catalog version {to:?} of {tenant} is not newer than {before:?}")
            });
        }
    }

    fn put(&mut self, now: Timestamp, subscription: &Subscription, version: CatalogVersion) {
        // A channel never changes, so it needs no URL that tells versions apart.
        let url = subscription.destination.url().unwrap_or_default();
        let signing = self.open(subscription);
        let policy = self.resolve(subscription);
        let active = subscription.status.is_active();
        let version = Version {
            version,
            url: url.to_owned(),
            active,
            signing,
            subscription: subscription.clone(),
        };
        let known = self.subscriptions.entry(subscription.id).or_insert_with(|| Known {
            tenant: subscription.tenant,
            policy: Arc::clone(&policy),
            versions: Vec::new(),
            deleted: false,
            closed: false,
            stopped_at: None,
            promised_stop: None,
            settled: CatalogVersion(0),
            troubled: Timestamp::MIN,
        });
        known.policy = policy;
        known.versions.push(version);
        known.troubled = now;
        if active {
            known.stopped_at = None;
        } else {
            known.stopped_at.get_or_insert(now);
        }
    }

    pub(super) fn resolve(&self, subscription: &Subscription) -> Arc<Policy> {
        let base = self.profile(subscription.tenant, &subscription.profile);
        match &subscription.overrides {
            serde_json::Value::Null => base,
            patch => Arc::new(base.patched(patch).expect("the simulator writes valid patches")),
        }
    }

    fn open(&self, subscription: &Subscription) -> Vec<Signing> {
        let mut all: Vec<_> = subscription.secrets.iter().collect();
        all.sort_by_key(|sealed| std::cmp::Reverse(sealed.created_at));
        all.into_iter()
            .filter_map(|sealed| {
                let mut context = b"subscription-secret 2\0".to_vec();
                context.extend_from_slice(subscription.tenant.as_bytes());
                context.extend_from_slice(subscription.id.as_bytes());
                context.extend_from_slice(sealed.name.as_str().as_bytes());
                let opened = self.vault.open(&context, &sealed.sealed);
                let opened = opened.expect("the context is the one the engine seals with");
                let secret = SigningSecret::parse(opened.expose_str()?).ok()?;
                Some(Signing { secret, expires_at: sealed.expires_at })
            })
            .collect()
    }

    /// Who must get an event, and in which lane, by the catalog of this moment.
    pub(super) fn fan_out(&self, event: &Event) -> Vec<(SubscriptionId, Option<Lane>)> {
        let candidate = Candidate::new(event);
        self.subscriptions
            .iter()
            .filter(|(_, known)| known.tenant == event.tenant && !known.deleted)
            .filter_map(|(id, known)| {
                let filter = &known.current()?.subscription.filter;
                filter.wants(&candidate).then(|| (*id, lane_of(&known.policy, event)))
            })
            .collect()
    }

    /// Somebody was told that a subscription is paused or deleted.
    pub(crate) fn promised_stop(&mut self, now: Timestamp, id: SubscriptionId) {
        if let Some(known) = self.subscriptions.get_mut(&id) {
            known.promised_stop = Some(now);
        }
    }

    /// Somebody asks for a subscription to go on, whatever comes of it.
    pub(crate) fn asked_to_resume(&mut self, id: SubscriptionId) {
        if let Some(known) = self.subscriptions.get_mut(&id) {
            known.promised_stop = None;
        }
    }

    /// Somebody was told that a version is in force.
    pub(crate) fn settled(&mut self, id: SubscriptionId, version: CatalogVersion) {
        if let Some(known) = self.subscriptions.get_mut(&id) {
            known.settled = known.settled.max(version);
        }
    }

    /// Subscriptions that exist, for operators to choose from.
    pub(crate) fn living(&self) -> Vec<(TenantId, SubscriptionId, bool)> {
        self.subscriptions
            .iter()
            .filter(|(_, known)| !known.deleted && !known.closed)
            .map(|(id, known)| (known.tenant, *id, known.is_active()))
            .collect()
    }
}

fn lane_of(policy: &Policy, event: &Event) -> Option<Lane> {
    match policy.order.scope {
        OrderScope::None => None,
        OrderScope::Subscription => Some(Lane::Subscription),
        OrderScope::Key => event.key.clone().map(Lane::Key),
    }
}
