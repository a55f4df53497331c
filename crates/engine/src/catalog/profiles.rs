//! Profiles: those of the configuration, those tenants made at run time, and what a subscription
//! makes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use posthorn_domain::policy::PolicyError;
use posthorn_domain::{
    Policy, Problem, ProfileName, Subscription, SubscriptionId, TenantId, TenantProfile,
};

use super::holdings::{Holdings, of_profile};
use super::{Catalog, Map, State, SubscriptionView};
use crate::destination;
use crate::error::{Error, Result};

/// A tenant whose own profile is meant, the profile's name, and the overrides as text, behind the kind of destination
/// where that has a say.
pub(super) type PolicyKey = (Option<TenantId>, ProfileName, String);

/// Policies of subscriptions that change their profile, or whose destination does, one for all that change it in the same way. Who
/// uses one keeps it alive; what nobody uses any more is swept when there is as much again.
#[derive(Default)]
pub(super) struct Policies {
    known: Map<PolicyKey, Weak<Policy>>,
    /// How many there may be before the next sweep.
    room: usize,
}

impl Policies {
    /// Below this a sweep is not worth it.
    const ROOM_MIN: usize = 64;

    fn shared(
        &mut self,
        key: PolicyKey,
        make: impl FnOnce() -> std::result::Result<Policy, Problem>,
    ) -> std::result::Result<Arc<Policy>, Problem> {
        if let Some(policy) = self.known.get(&key).and_then(Weak::upgrade) {
            return Ok(policy);
        }
        let policy = Arc::new(make()?);
        if self.known.len() >= self.room.max(Self::ROOM_MIN) {
            self.known.retain(|_, policy| policy.strong_count() > 0);
            self.room = self.known.len() * 2;
        }
        self.known.insert(key, Arc::downgrade(&policy));
        Ok(policy)
    }

    fn forget(&mut self, touched: &BTreeSet<(TenantId, ProfileName)>) {
        self.known.retain(|(tenant, name, _), _| {
            !tenant.is_some_and(|tenant| touched.contains(&(tenant, name.clone())))
        });
    }
}

/// A profile of a tenant, with what it means. One whose base is gone from the configuration, or no
/// longer takes its changes, makes its subscriptions unusable until somebody mends it.
pub(super) struct OwnProfile {
    profile: Arc<TenantProfile>,
    policy: std::result::Result<Arc<Policy>, Problem>,
}

fn held(own: Option<&OwnProfile>) -> Holdings {
    own.map_or_else(Holdings::default, |own| {
        Holdings::profile(of_profile(&own.profile, own.policy.as_deref().ok()))
    })
}

/// A profile as a tenant sees it.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Its name.
    pub name: ProfileName,
    /// The complete policy, or why there is none.
    pub policy: std::result::Result<Arc<Policy>, Problem>,
    /// What the tenant made of it at run time, if it did.
    pub own: Option<Arc<TenantProfile>>,
}

impl Catalog {
    /// Applies changed profiles of tenants; returns the subscriptions that mean something else now.
    pub(super) fn apply_profiles(
        &self,
        state: &mut State,
        changed: Vec<TenantProfile>,
        removed: &[(TenantId, ProfileName)],
    ) -> Vec<SubscriptionId> {
        let mut touched: BTreeSet<(TenantId, ProfileName)> = removed.iter().cloned().collect();
        for (tenant, name) in removed {
            if let Some(tenant) = state.tenants.get_mut(tenant) {
                let old = tenant.profiles.remove(name);
                tenant.holdings = tenant.holdings.less(held(old.as_ref()));
            }
        }
        for profile in changed {
            let policy = self.base(&profile.base).and_then(|base| {
                base.patched(&profile.policy).map(Arc::new).map_err(|e| {
                    format!("the changes of profile `{}` no longer fit: {e}", profile.name).into()
                })
            });
            touched.insert((profile.tenant, profile.name.clone()));
            if let Some(tenant) = state.tenants.get_mut(&profile.tenant) {
                let own = OwnProfile { profile: Arc::new(profile), policy };
                let more = held(Some(&own));
                let old = tenant.profiles.insert(own.profile.name.clone(), own);
                tenant.holdings = tenant.holdings.plus(more).less(held(old.as_ref()));
            }
        }
        if crate::plant::active("stale-profile") {
            return Vec::new();
        }
        if touched.is_empty() {
            return Vec::new();
        }
        state.policies.forget(&touched);
        let names = |view: &&Arc<SubscriptionView>| {
            let subscription = &view.subscription;
            touched.contains(&(subscription.tenant, subscription.profile.clone()))
        };
        let mut views: Vec<_> = state.subscriptions.values().filter(names).cloned().collect();
        views.sort_by_key(|view| view.subscription.id);
        for view in &views {
            let subscription = view.subscription.clone();
            let policy = self.resolve(state, &subscription);
            let view = SubscriptionView::new(subscription, policy, Arc::clone(&self.vault));
            state.remove(view.subscription.id);
            state.insert(Arc::new(view));
        }
        views.iter().map(|view| view.subscription.id).collect()
    }

    fn base(&self, name: &ProfileName) -> std::result::Result<&Arc<Policy>, Problem> {
        self.profiles.get(name).ok_or_else(|| format!("the profile `{name}` does not exist").into())
    }

    /// The complete policy of a subscription. A profile that is gone, or overrides that no longer fit
    /// it, make the subscription unusable until somebody mends it; its work waits.
    pub(super) fn resolve(
        &self,
        state: &mut State,
        subscription: &Subscription,
    ) -> std::result::Result<Arc<Policy>, Problem> {
        let name = &subscription.profile;
        let tenant = state.tenants.get(&subscription.tenant);
        let own = tenant.and_then(|tenant| tenant.profiles.get(name));
        let (whose, base) = match own {
            Some(own) => (Some(subscription.tenant), own.policy.clone()?),
            None => (None, Arc::clone(self.base(name)?)),
        };
        let plain = match &subscription.overrides {
            serde_json::Value::Null => true,
            serde_json::Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        self.check_proxy(state, subscription.tenant, &base).map_err(|e| e.to_string())?;
        let (policies, overrides) = (&mut state.policies, &subscription.overrides);
        let policy = if plain {
            base
        } else {
            let key = (whose, name.clone(), overrides.to_string());
            policies.shared(key, || base.patched(overrides).map_err(|e| e.to_string().into()))?
        };
        let destination = destination::of(&subscription.destination);
        if destination.takes(&policy) {
            return Ok(policy);
        }
        // There are as many destinations as browsers, and hardly more than one policy.
        let key = (whose, name.clone(), format!("{} {overrides}", destination.kind()));
        policies.shared(key, || Ok(destination.fit(&policy)))
    }

    /// The policy a name stands for in a tenant.
    pub fn profile(&self, tenant: TenantId, name: &ProfileName) -> Result<Arc<Policy>> {
        let state = self.state.read();
        let own = state.tenants.get(&tenant).and_then(|tenant| tenant.profiles.get(name));
        let known = match own {
            Some(own) => own.policy.as_ref().ok(),
            None => self.profiles.get(name),
        };
        let policy = known.cloned().ok_or_else(|| Error::UnknownProfile(name.clone()))?;
        self.check_proxy(&state, tenant, &policy)?;
        Ok(policy)
    }

    /// Whether the proxy of a policy is open to a tenant. What a tenant says cannot change the proxy, so that
    /// it is enough to look at the profile.
    fn check_proxy(
        &self,
        state: &State,
        tenant: TenantId,
        policy: &Policy,
    ) -> std::result::Result<(), PolicyError> {
        let Some(proxy) = &policy.proxy else { return Ok(()) };
        let name = state.tenants.get(&tenant).map(|known| known.tenant.name.as_str());
        let open = match self.proxies.get(proxy) {
            Some(None) => true,
            Some(Some(tenants)) => name.is_some_and(|name| tenants.contains(name)),
            None => false,
        };
        if open {
            return Ok(());
        }
        let problem = format!(
            "the profile uses the proxy `{proxy}`, which this tenant may not use; choose another \
             profile, or ask the operator (egress.proxies)"
        );
        Err(PolicyError { path: "proxy".to_owned(), problem })
    }

    /// The policy a name stands for in the configuration.
    pub(crate) fn configured_profile(&self, name: &ProfileName) -> Result<&Arc<Policy>> {
        self.profiles.get(name).ok_or_else(|| Error::UnknownProfile(name.clone()))
    }

    /// A profile that a tenant has made or changed.
    pub(crate) fn tenant_profile(
        &self,
        tenant: TenantId,
        name: &ProfileName,
    ) -> Option<Arc<TenantProfile>> {
        let state = self.state.read();
        Some(Arc::clone(&state.tenants.get(&tenant)?.profiles.get(name)?.profile))
    }

    /// All profiles a tenant may name.
    pub fn profiles(&self, tenant: TenantId) -> Vec<Profile> {
        let configured = self.profiles.iter().map(|(name, policy)| Profile {
            name: name.clone(),
            policy: Ok(Arc::clone(policy)),
            own: None,
        });
        let mut all: BTreeMap<ProfileName, Profile> =
            configured.map(|profile| (profile.name.clone(), profile)).collect();
        let state = self.state.read();
        for (name, own) in state.tenants.get(&tenant).into_iter().flat_map(|t| &t.profiles) {
            let profile = Profile {
                name: name.clone(),
                policy: own.policy.clone(),
                own: Some(Arc::clone(&own.profile)),
            };
            all.insert(name.clone(), profile);
        }
        all.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use posthorn_domain::policy::profiles;

    use super::*;

    fn key(n: usize) -> PolicyKey {
        let name = ProfileName::new(profiles::DEFAULT).expect("a valid name");
        (None, name, n.to_string())
    }

    #[test]
    fn policies_are_shared_while_somebody_uses_them_and_then_forgotten() {
        let shipped = profiles::shipped();
        let make = || Ok(shipped.values().next().cloned().expect("one is shipped"));
        let mut policies = Policies::default();
        let used: Vec<_> = (0..50).map(|n| policies.shared(key(n), make).expect("made")).collect();
        for n in 50..10_000 {
            drop(policies.shared(key(n), make).expect("made"));
            assert!(policies.known.len() <= 2 * Policies::ROOM_MIN, "{}", policies.known.len());
        }
        for (n, policy) in used.iter().enumerate() {
            let again = policies.shared(key(n), || unreachable!("it is known")).expect("known");
            assert!(Arc::ptr_eq(policy, &again));
        }
        let broken = policies.shared(key(0), || Err("never asked".into()));
        assert!(broken.is_ok());
        assert!(policies.shared(key(10_001), || Err("broken".into())).is_err());
    }
}
