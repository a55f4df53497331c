//! Rehearsals: a request to a receiver outside of any delivery. A test of a subscription is one; so is
//! the question whether a receiver answers at all, before its subscription is written down.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{
    AttemptOutcome, CatalogVersion, Destination, Event, EventType, FailureCode, Filter, Labels,
    Metadata, ProfileName, SecretName, Stops, Subscription, SubscriptionId, SubscriptionStatus,
    TenantId, TopicName, policy::profiles,
};
use posthorn_store::Work;

use crate::attempt::{self, Ended, Needs};
use crate::catalog::SubscriptionView;
use crate::courier::{job_outside, work_outside};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::subscriptions::SecretInput;

/// A request that would be made for a subscription that is not there, or not so.
#[derive(Clone, Debug, Default)]
pub struct Rehearsal {
    /// Where to.
    pub url: String,
    /// The policy it would have.
    pub profile: Option<ProfileName>,
    /// What it would change in that policy.
    pub overrides: serde_json::Value,
    /// The secrets it would have.
    pub secrets: Vec<SecretInput>,
    /// A subscription whose secrets it has besides.
    pub like: Option<SubscriptionId>,
    /// The media type of the body.
    pub content_type: String,
    /// The body.
    pub payload: Bytes,
}

impl Engine {
    /// Makes one request, now, once, and keeps nothing of it. A policy or URL that can never work is
    /// an error; everything else is the outcome. Gates are not asked. Refused with [`Error::TooMany`]
    /// when the tenant makes too many.
    pub async fn rehearse(&self, tenant: TenantId, rehearsal: Rehearsal) -> Result<AttemptOutcome> {
        let inner = &self.inner;
        let now = self.now();
        let _trial = self.trial(tenant)?;
        let url = inner.around.transport.check_url(&rehearsal.url)?;
        let profile = match rehearsal.profile {
            Some(profile) => profile,
            None => ProfileName::new(profiles::DEFAULT).expect("a valid name"),
        };
        let mut policy = self.catalog().profile(tenant, &profile)?.patched(&rehearsal.overrides)?;
        policy.gate = None;
        let policy = Arc::new(policy);
        let (id, mut secrets) = match rehearsal.like {
            // Sealed secrets belong to their subscription, so the rehearsal goes by its id. They are told
            // to nobody who is not told them already.
            Some(id) => {
                let present = self.catalog().subscription(tenant, id)?;
                let to = Destination::Webhook { url: url.clone() };
                let given: Vec<&SecretName> =
                    rehearsal.secrets.iter().map(|secret| &secret.name).collect();
                self.exposure(&policy, &to)
                    .check(&self.exposure_now(&present.subscription), &given)?;
                (id, present.subscription.secrets.clone())
            }
            None => (inner.chance.subscription_id(now), Vec::new()),
        };
        for secret in &rehearsal.secrets {
            secrets.retain(|old| old.name != secret.name);
            secrets.push(self.seal(tenant, id, secret, now)?);
        }
        let subscription = Subscription {
            id,
            tenant,
            name: None,
            description: String::new(),
            labels: Labels::default(),
            metadata: Metadata::default(),
            destination: Destination::Webhook { url },
            filter: Filter::everything(),
            profile,
            overrides: rehearsal.overrides,
            secrets,
            status: SubscriptionStatus::Active,
            stops: Stops::default(),
            created_at: now,
            updated_at: now,
            version: CatalogVersion(0),
        };
        let vault = Arc::clone(&inner.vault);
        let view = SubscriptionView::new(subscription, Ok(Arc::clone(&policy)), vault);
        let work = self.made_up(&view, test_type(), &rehearsal.content_type, rehearsal.payload);
        let job = job_outside(Arc::new(view), policy, work, Needs::Nothing);
        match attempt::run(Arc::clone(&inner.around), job).await.result {
            Ended::Outcome(AttemptOutcome::Failed {
                code: FailureCode::CertificateUnavailable,
                detail: problem,
            }) => Err(Error::Certificate { field: "policy.auth", problem }),
            Ended::Outcome(outcome) => Ok(outcome),
            Ended::GateClosed | Ended::Overtaken => Err(Error::Busy("the rehearsal")),
        }
    }

    /// Work that was never accepted.
    pub(crate) fn made_up(
        &self,
        view: &SubscriptionView,
        event_type: EventType,
        content_type: &str,
        payload: Bytes,
    ) -> Work {
        let now = self.now();
        let event = Event {
            id: self.inner.chance.event_id(now),
            tenant: view.subscription.tenant,
            topic: TopicName::new("posthorn.test").expect("a valid name"),
            event_type,
            attributes: BTreeMap::new(),
            key: None,
            content_type: content_type.to_owned(),
            payload,
            accepted_at: now,
            publisher_id: None,
            deliver_at: None,
            retention: None,
            expunged_at: None,
            trace: None,
        };
        work_outside(&self.inner.chance, view, event, now)
    }
}

/// The type of what nobody has published.
pub(crate) fn test_type() -> EventType {
    EventType::new("posthorn.test").expect("a valid type")
}
