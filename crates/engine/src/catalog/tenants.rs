//! Tenants as requests find them: by id, by name, by external id, and page by page.
//!
//! A tenant that is being deleted has nothing here any more from the moment this node hears of it: no subscription to
//! attempt for, no key that opens anything. Only that it was there is kept, so that it can be said.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use posthorn_domain::{ExternalId, RealmName, SubscriptionId, Tenant, TenantId};
use posthorn_store::TenantEntry;

use super::{Catalog, Map, State, TenantState};
use crate::error::{Error, Result};

/// Which tenants are meant. What is absent does not matter.
#[derive(Clone, Debug, Default)]
pub struct TenantFilter {
    /// In this realm.
    pub realm: Option<RealmName>,
    /// With this external id.
    pub external_id: Option<ExternalId>,
    /// Whose name begins so.
    pub name_prefix: Option<String>,
}

impl TenantFilter {
    fn wants(&self, tenant: &Tenant) -> bool {
        let Self { realm, external_id, name_prefix } = self;
        realm.as_ref().is_none_or(|realm| tenant.realm == *realm)
            && external_id.as_ref().is_none_or(|id| tenant.external_id.as_ref() == Some(id))
            && name_prefix.as_ref().is_none_or(|prefix| tenant.name.starts_with(prefix))
    }
}

/// Ways to find tenants.
#[derive(Default)]
pub(super) struct TenantIndex {
    by_name: Map<String, TenantId>,
    by_external_id: Map<(RealmName, ExternalId), TenantId>,
    /// All that are there, oldest first.
    order: BTreeSet<TenantId>,
}

impl TenantIndex {
    fn add(&mut self, tenant: &Tenant) {
        self.by_name.insert(tenant.name.clone(), tenant.id);
        if let Some(id) = &tenant.external_id {
            self.by_external_id.insert((tenant.realm.clone(), id.clone()), tenant.id);
        }
        self.order.insert(tenant.id);
    }

    fn remove(&mut self, tenant: &Tenant) {
        // Another one may have the name by now, as with a delta that renames both.
        if self.by_name.get(&tenant.name) == Some(&tenant.id) {
            self.by_name.remove(&tenant.name);
        }
        if let Some(id) = &tenant.external_id {
            let key = (tenant.realm.clone(), id.clone());
            if self.by_external_id.get(&key) == Some(&tenant.id) {
                self.by_external_id.remove(&key);
            }
        }
        self.order.remove(&tenant.id);
    }
}

impl State {
    /// Takes in tenants that are new or changed; returns the subscriptions of those that are being deleted.
    pub(super) fn put_tenants(&mut self, entries: Vec<TenantEntry>) -> Vec<SubscriptionId> {
        for entry in &entries {
            if let Some(old) = self.tenants.get(&entry.tenant.id) {
                self.tenant_index.remove(&old.tenant);
            }
        }
        let mut dropped = Vec::new();
        for TenantEntry { tenant, version, removed } in entries {
            let (id, closed) = (tenant.id, tenant.deletion.is_some());
            if !removed {
                self.tenant_index.add(&tenant);
            }
            match self.tenants.get_mut(&id) {
                Some(known) => {
                    known.version = version;
                    known.tenant = tenant;
                    known.removed = removed;
                }
                None => {
                    let new = TenantState { removed, ..TenantState::new(tenant, version) };
                    self.tenants.insert(id, new);
                }
            }
            if closed && !crate::plant::active("delivery-after-deletion") {
                dropped.extend(self.empty_tenant(id));
            }
        }
        dropped
    }

    /// Lets go of everything a tenant has.
    fn empty_tenant(&mut self, id: TenantId) -> Vec<SubscriptionId> {
        let own = self.subscriptions.values().filter(|view| view.subscription.tenant == id);
        let mut own: Vec<SubscriptionId> = own.map(|view| view.subscription.id).collect();
        own.sort_unstable();
        own.iter().for_each(|subscription| self.remove(*subscription));
        self.keys.retain(|_, key| key.tenant != Some(id));
        let certificates = self.certificates.values().map(|view| &view.certificate);
        let certificates = certificates.filter(|certificate| certificate.tenant == id);
        let certificates: Vec<_> = certificates.map(|certificate| certificate.id).collect();
        certificates.into_iter().for_each(|certificate| self.drop_certificate(certificate));
        if let Some(known) = self.tenants.get_mut(&id) {
            let (tenant, version, removed) = (known.tenant.clone(), known.version, known.removed);
            *known = TenantState { removed, ..TenantState::new(tenant, version) };
        }
        own
    }

    /// Whether a tenant is being deleted, or was: nothing of it is taken in any more.
    pub(super) fn is_closed(&self, id: TenantId) -> bool {
        let closed = self.tenants.get(&id).is_some_and(|known| known.tenant.deletion.is_some());
        closed && !crate::plant::active("delivery-after-deletion")
    }
}

impl TenantState {
    /// A tenant that can be worked for.
    pub(super) fn open(&self) -> Result<&Self> {
        match self.tenant.deletion {
            None => Ok(self),
            Some(_) => Err(Error::TenantDeleted),
        }
    }
}

impl Catalog {
    /// One tenant; one that is being deleted, or was, is refused as such.
    pub fn tenant(&self, id: TenantId) -> Result<Tenant> {
        let state = self.state.read();
        let known = state.tenants.get(&id).ok_or(Error::NotFound("tenant"))?;
        Ok(known.open()?.tenant.clone())
    }

    /// One tenant, and whether nothing is left of it; also while it is being deleted and afterwards.
    pub fn tenant_or_tombstone(&self, id: TenantId) -> Option<(Tenant, bool)> {
        let state = self.state.read();
        state.tenants.get(&id).map(|known| (known.tenant.clone(), known.removed))
    }

    /// A tenant of a realm by one of its labels: the oldest that has it. Looks at all of them.
    pub fn tenant_labelled(&self, realm: &RealmName, name: &str, value: &str) -> Option<Tenant> {
        let state = self.state.read();
        let all = state.tenant_index.order.iter().filter_map(|id| state.tenants.get(id));
        let mut own = all.map(|known| &known.tenant).filter(|tenant| tenant.realm == *realm);
        own.find(|tenant| tenant.labels.get(name) == Some(value)).cloned()
    }

    /// A tenant by its name, also while it is being deleted.
    pub fn tenant_named(&self, name: &str) -> Option<Tenant> {
        let state = self.state.read();
        let id = state.tenant_index.by_name.get(name)?;
        state.tenants.get(id).map(|known| known.tenant.clone())
    }

    /// Some tenants, at most so many.
    pub(crate) fn some_tenants(&self, max: usize) -> Vec<TenantId> {
        self.state.read().tenant_index.order.iter().copied().take(max).collect()
    }

    /// All tenants, oldest first, those that are being deleted included.
    pub fn tenants(&self) -> Vec<Tenant> {
        let state = self.state.read();
        let order = state.tenant_index.order.iter();
        order.filter_map(|id| state.tenants.get(id)).map(|known| known.tenant.clone()).collect()
    }

    /// Tenants that a filter wants, oldest first, from one on; at most so many, and whether more follow.
    pub fn tenants_page(
        &self,
        filter: &TenantFilter,
        after: Option<TenantId>,
        limit: usize,
    ) -> (Vec<Tenant>, bool) {
        let state = self.state.read();
        let index = &state.tenant_index;
        if let TenantFilter { realm: Some(realm), external_id: Some(external), .. } = filter {
            let id = index.by_external_id.get(&(realm.clone(), external.clone()));
            let id = id.filter(|id| after.is_none_or(|after| **id > after));
            let found = id.and_then(|id| state.tenants.get(id)).map(|known| &known.tenant);
            return (
                found.filter(|tenant| filter.wants(tenant)).cloned().into_iter().collect(),
                false,
            );
        }
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = index.order.range((from, Bound::Unbounded));
        let rest = rest.filter_map(|id| state.tenants.get(id)).map(|known| &known.tenant);
        let mut wanted = rest.filter(|tenant| filter.wants(tenant));
        let found: Vec<Tenant> = wanted.by_ref().take(limit).cloned().collect();
        (found, wanted.next().is_some())
    }

    /// Whether anybody is limited in how many attempts may begin in a second.
    pub(crate) fn has_paces(&self) -> bool {
        self.paces.load(Ordering::Relaxed)
    }

    /// How many attempts a second a tenant may begin on a node, if that is limited: what it says itself, or its realm.
    pub(crate) fn deliveries_per_second(&self, id: TenantId) -> Option<u32> {
        let state = self.state.read();
        let tenant = &state.tenants.get(&id)?.tenant;
        let realms = || state.realm(&tenant.realm)?.realm.defaults.deliveries_per_second;
        tenant.deliveries_per_second.or_else(realms)
    }
}
