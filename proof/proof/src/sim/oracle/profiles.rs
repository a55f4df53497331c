//! What tenants make of profiles: subscriptions follow at once, and attempts that start after a change
//! was confirmed go by it.

use std::sync::Arc;

use posthorn_domain::{
    CatalogVersion, Policy, ProfileName, SubscriptionId, TenantId, TenantProfile,
};

use super::Oracle;

/// A profile of a tenant, with all that it has been.
pub(super) struct Own {
    policy: Arc<Policy>,
    /// The labels of its versions, oldest first.
    labels: Vec<(CatalogVersion, String)>,
    /// Attempts that start from now on carry this label or a later one: somebody was told so.
    settled: usize,
}

/// The label that a profile writes into a header of each request.
fn label_of(profile: &TenantProfile) -> String {
    let header = &profile.policy["request"]["headers"]["x-profile"];
    header.as_str().unwrap_or_default().to_owned()
}

impl Oracle {
    /// The policy that a name stands for in a tenant.
    pub(super) fn profile(&self, tenant: TenantId, name: &ProfileName) -> Arc<Policy> {
        match self.own_profiles.get(&(tenant, name.clone())) {
            Some(own) => Arc::clone(&own.policy),
            None => Arc::clone(&self.profiles[name]),
        }
    }

    /// The same, for operators.
    pub(crate) fn profile_of(&self, tenant: TenantId, name: &ProfileName) -> Arc<Policy> {
        self.profile(tenant, name)
    }

    pub(super) fn put_profile(&mut self, profile: &TenantProfile, version: CatalogVersion) {
        let patched = self.profiles[&profile.base].patched(&profile.policy);
        let policy = Arc::new(patched.expect("the simulator writes valid patches"));
        let key = (profile.tenant, profile.name.clone());
        let own = self.own_profiles.entry(key).or_insert_with(|| Own {
            policy: Arc::clone(&policy),
            labels: Vec::new(),
            settled: 0,
        });
        own.policy = policy;
        own.labels.push((version, label_of(profile)));
        for id in self.users(profile.tenant, &profile.name) {
            let resolved = self.current(id).map(|subscription| self.resolve(subscription));
            if let (Some(policy), Some(known)) = (resolved, self.subscriptions.get_mut(&id)) {
                known.policy = policy;
            }
        }
    }

    fn current(&self, id: SubscriptionId) -> Option<&posthorn_domain::Subscription> {
        Some(&self.subscriptions.get(&id)?.current()?.subscription)
    }

    fn users(&self, tenant: TenantId, name: &ProfileName) -> Vec<SubscriptionId> {
        let uses = |id: &SubscriptionId| {
            self.current(*id).is_some_and(|s| s.tenant == tenant && s.profile == *name)
        };
        let living = self.subscriptions.iter().filter(|(_, known)| !known.deleted);
        living.map(|(id, _)| *id).filter(uses).collect()
    }

    /// Names of the profiles that a tenant has made.
    pub(crate) fn own_profiles(&self, tenant: TenantId) -> Vec<ProfileName> {
        let own = self.own_profiles.keys().filter(|(owner, _)| *owner == tenant);
        own.map(|(_, name)| name.clone()).collect()
    }

    /// Somebody was told that a profile is as this label says.
    pub(crate) fn profile_settled(&mut self, tenant: TenantId, name: &ProfileName, label: &str) {
        if let Some(own) = self.own_profiles.get_mut(&(tenant, name.clone()))
            && let Some(place) = own.labels.iter().position(|(_, known)| known == label)
        {
            own.settled = own.settled.max(place);
        }
    }

    /// Whether a request carries a label that its subscription's profile may have now.
    pub(super) fn has_profile(&self, subscription: SubscriptionId, label: &str) -> bool {
        let Some(current) = self.current(subscription) else { return true };
        match self.own_profiles.get(&(current.tenant, current.profile.clone())) {
            None => label.is_empty(),
            Some(own) => own.labels[own.settled..].iter().any(|(_, known)| known == label),
        }
    }
}
