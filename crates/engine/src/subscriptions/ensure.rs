//! Keeping a subscription in step with a declaration of it, such as one in a configuration file.

use std::sync::Arc;

use posthorn_domain::policy::profiles;
use posthorn_domain::{ProfileName, TenantId};
use posthorn_sealing::vault::Secret;

use super::{NewSubscription, SecretInput, SubscriptionChange, TRIES, names_secret};
use crate::catalog::SubscriptionView;
use crate::engine::Engine;
use crate::error::{Error, Result};

impl Engine {
    /// Makes the subscription of a name, or changes it where it differs. However often and on however
    /// many nodes the same is asked for, there is one subscription, and nothing is written when it is
    /// as it should be. Returns it, and whether anything was done.
    ///
    /// `paused` counts only when it is made: whether it takes part later is decided by people.
    pub async fn ensure_subscription(
        &self,
        tenant: TenantId,
        wanted: NewSubscription,
    ) -> Result<(Arc<SubscriptionView>, bool)> {
        let Some(name) = wanted.name.clone() else {
            return Err(Error::NotFound("name to find the subscription by"));
        };
        for _ in 0..TRIES {
            let Some(view) = self.catalog().subscription_named(tenant, &name) else {
                match self.create_subscription(tenant, wanted.clone()).await {
                    Ok((view, _)) => return Ok((view, true)),
                    // Made on another node meanwhile; now it can be compared.
                    Err(Error::AlreadyExists("subscription")) => continue,
                    Err(e) => return Err(e),
                }
            };
            let Some(change) = self.difference(&view, &wanted).await? else {
                return Ok((view, false));
            };
            match self.update_subscription(tenant, view.subscription.id, change).await {
                Ok(view) => return Ok((view, true)),
                Err(Error::Changed { .. } | Error::NotFound("subscription")) => {}
                Err(e) => return Err(e),
            }
        }
        Err(Error::Busy("the subscription is being changed by others; try again"))
    }

    /// What has to be changed in a subscription so that it is as wanted.
    async fn difference(
        &self,
        view: &SubscriptionView,
        wanted: &NewSubscription,
    ) -> Result<Option<SubscriptionChange>> {
        let present = &view.subscription;
        let opened = self.open_destination(present.tenant, &wanted.destination, Some(view)).await?;
        let there = present.destination == opened.stored
            && opened.secrets.iter().all(|own| self.has(view, own))
            && (view.destination.takes_no_secrets().is_some() || !Self::has_more(view));
        let filter = wanted.filter.clone().unwrap_or_default();
        let profile = match &wanted.profile {
            Some(profile) => profile.clone(),
            None => ProfileName::new(profiles::DEFAULT).expect("a valid name"),
        };
        let (repeated, secrets): (Vec<SecretInput>, Vec<SecretInput>) =
            wanted.secrets.iter().cloned().partition(|secret| self.has(view, secret));
        let same = present.description == wanted.description
            && present.labels == wanted.labels
            && present.metadata == wanted.metadata
            && there
            && present.filter == filter
            && present.profile == profile
            && present.overrides == wanted.overrides
            && secrets.is_empty();
        Ok((!same).then(|| SubscriptionChange {
            name: None,
            description: Some(wanted.description.clone()),
            labels: Some(wanted.labels.clone()),
            metadata: Some(wanted.metadata.clone()),
            destination: Some(wanted.destination.clone()),
            filter: Some(filter),
            profile: Some(profile),
            overrides: Some(wanted.overrides.clone()),
            secrets,
            repeated: repeated.into_iter().map(|secret| secret.name).collect(),
            only_needed_secrets: true,
            expected: Some(present.version),
        }))
    }

    /// Whether a subscription keeps secrets that its policy does not name: what a declaration no
    /// longer says is not kept.
    fn has_more(view: &SubscriptionView) -> bool {
        let Ok(policy) = &view.policy else { return false };
        view.subscription.secrets.iter().any(|secret| !names_secret(policy, &secret.name))
    }

    /// Whether a subscription has this secret now. One that cannot be opened is not the same.
    fn has(&self, view: &SubscriptionView, secret: &SecretInput) -> bool {
        let opened = view.secrets().ok();
        let current = opened.and_then(|opened| opened.current(&secret.name, self.now()));
        current.is_some_and(|current| *current == Secret::from(secret.value.as_str()))
    }
}
