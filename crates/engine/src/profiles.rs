//! Profiles that tenants make or change at run time.

use posthorn_domain::policy::{Policy, PolicyError};
use posthorn_domain::{ProfileName, TenantId, TenantProfile};
use posthorn_store::CatalogChange;
use serde_json::Value;

use crate::catalog::holdings::of_profile;
use crate::catalog::{Holdings, Profile};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::subscriptions::check_secrets;

impl Engine {
    /// Makes a profile for a tenant, or changes one: `policy` is what differs from the profile `base`
    /// of the configuration, by default the one with the same name. Attempts that start after this
    /// returned go by it, on all nodes; what is due already stays due.
    pub async fn put_profile(
        &self,
        tenant: TenantId,
        name: ProfileName,
        base: Option<ProfileName>,
        policy: Value,
    ) -> Result<Profile> {
        self.catalog().tenant(tenant)?;
        let base = base.unwrap_or_else(|| name.clone());
        let whole = self.catalog().configured_profile(&base)?.patched(&policy)?;
        self.check_other_urls(&whole)?;
        whole.check_size(&policy)?;
        let _still = self.inner.exposure_lock.write().await;
        self.check_users(tenant, &name, &whole)?;
        let profile =
            TenantProfile { tenant, name: name.clone(), base, policy, updated_at: self.now() };
        let _coming = self.inner.keeper.admit(tenant, self.growth(&profile, &whole))?;
        self.change(CatalogChange::PutProfile(profile)).await.map_err(|e| e.about("tenant"))?;
        self.one_profile(tenant, &name)
    }

    /// What a profile adds to what its tenant has.
    fn growth(&self, profile: &TenantProfile, policy: &Policy) -> Holdings {
        let bytes = of_profile(profile, Some(policy));
        let known = self.one_profile(profile.tenant, &profile.name).ok();
        let old = known.and_then(|known| Some((known.own?, known.policy.ok())));
        match old {
            None => Holdings::profile(bytes),
            Some((old, policy)) => {
                let bytes = bytes.saturating_sub(of_profile(&old, policy.as_deref()));
                Holdings { bytes, ..Holdings::default() }
            }
        }
    }

    /// Takes back what a tenant made of a profile. Refused when subscriptions would be left without
    /// one.
    pub async fn delete_profile(&self, tenant: TenantId, name: ProfileName) -> Result<()> {
        let _still = self.inner.exposure_lock.write().await;
        let used = self.catalog().subscriptions(tenant);
        let used = used.iter().any(|view| view.subscription.profile == name);
        match self.catalog().configured_profile(&name) {
            Ok(policy) => self.check_users(tenant, &name, policy)?,
            Err(_) if used => return Err(Error::InUse("profile")),
            Err(_) => {}
        }
        let change = CatalogChange::DeleteProfile { tenant, name };
        self.change(change).await.map_err(|e| e.about("profile"))
    }

    /// One profile as a tenant sees it.
    pub fn one_profile(&self, tenant: TenantId, name: &ProfileName) -> Result<Profile> {
        let known = self.catalog().profiles(tenant).into_iter();
        known.into_iter().find(|profile| profile.name == *name).ok_or(Error::NotFound("profile"))
    }

    /// Refuses a policy that a subscription which names the profile could not live with.
    fn check_users(&self, tenant: TenantId, name: &ProfileName, policy: &Policy) -> Result<()> {
        let views = self.catalog().subscriptions(tenant);
        for view in views.iter().filter(|view| view.subscription.profile == *name) {
            let subscription = &view.subscription;
            let fits = policy
                .patched(&subscription.overrides)
                .and_then(|whole| whole.check_complete().map(|()| whole))
                .map_err(Error::from)
                .and_then(|whole| {
                    if view.destination.takes_no_secrets().is_some() {
                        return view.destination.check_policy(self, &whole);
                    }
                    check_secrets(&whole, &subscription.secrets)?;
                    let before = self.exposure_now(subscription);
                    let exposure = self.exposure(&whole, &subscription.destination);
                    // A profile has no secrets, so that none can be given with it.
                    exposure.check(&before, &[])
                });
            if let Err(Error::SecretRequired { names, origin, .. }) = fits {
                let subscription = Some(subscription.id);
                return Err(Error::SecretRequired { names, origin, subscription });
            }
            if let Err(e) = fits {
                let problem = format!("does not fit subscription {}: {e}", subscription.id);
                return Err(PolicyError { path: "policy".to_owned(), problem }.into());
            }
        }
        Ok(())
    }
}
