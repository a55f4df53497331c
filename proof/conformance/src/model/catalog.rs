//! The catalog of the model: entries in a map, by the rules that all stores share.

use std::collections::{BTreeMap, BTreeSet};

use posthorn_domain::{CatalogVersion, KeyId, SubscriptionId, Tenant, TenantId, Timestamp};
use posthorn_store::entry::{Decision, Entry, Kind, Lookup, decide};
use posthorn_store::{CatalogChange, CatalogDelta, Recall, Result, Standing, Streak};

pub(super) struct Catalog {
    version: CatalogVersion,
    entries: BTreeMap<(Kind, String), Entry>,
    tenants: BTreeMap<TenantId, CatalogVersion>,
    closed: BTreeSet<TenantId>,
    deleted: BTreeMap<SubscriptionId, Timestamp>,
    keys_used: BTreeMap<KeyId, Timestamp>,
    recalls: BTreeMap<CatalogVersion, (Timestamp, Vec<Recall>)>,
    pub(super) failing: BTreeMap<SubscriptionId, Streak>,
}

impl Default for Catalog {
    fn default() -> Self {
        let mut catalog = Self {
            version: CatalogVersion(0),
            entries: BTreeMap::new(),
            tenants: BTreeMap::new(),
            closed: BTreeSet::new(),
            deleted: BTreeMap::new(),
            keys_used: BTreeMap::new(),
            recalls: BTreeMap::new(),
            failing: BTreeMap::new(),
        };
        let (name, created_at) = ("default".to_owned(), Timestamp::MIN);
        let tenant = Tenant::new(TenantId::DEFAULT, name, created_at);
        catalog.change(&CatalogChange::CreateTenant(tenant)).expect("the first of all");
        catalog
    }
}

impl Catalog {
    /// Takes note of how a receiver stands.
    pub(super) fn stand(&mut self, Standing { subscription, failing }: Standing) {
        match failing {
            None => drop(self.failing.remove(&subscription)),
            Some(_) if self.deleted_at(subscription).is_some() => {}
            Some(streak) => {
                let known = self.failing.entry(subscription).or_insert(streak);
                *known = known.joined(&streak);
            }
        }
    }

    pub(super) fn version(&self) -> CatalogVersion {
        self.version
    }

    pub(super) fn tenant_version(&self, tenant: TenantId) -> Option<CatalogVersion> {
        self.tenants.get(&tenant).copied().filter(|_| !self.closed.contains(&tenant))
    }

    /// Whether a tenant is there, and is to stay.
    pub(super) fn is_open(&self, tenant: TenantId) -> bool {
        self.tenant_version(tenant).is_some()
    }

    /// Whether a tenant is being deleted, or was.
    pub(super) fn is_closed(&self, tenant: TenantId) -> bool {
        self.closed.contains(&tenant)
    }

    /// The subscriptions that a tenant has, at most so many.
    pub(super) fn subscriptions_of(&self, tenant: TenantId, limit: usize) -> Vec<SubscriptionId> {
        let own = self.entries.values().filter(|entry| {
            entry.kind == Kind::Subscription && entry.tenant == Some(tenant) && !entry.removed
        });
        own.filter_map(|entry| entry.key.parse().ok()).take(limit).collect()
    }

    /// Removes what a tenant has, but for the tenant itself; how many entries that were.
    pub(super) fn strip(&mut self, tenant: TenantId, limit: usize) -> usize {
        let own = |(kind, _): &&(Kind, String), entry: &Entry| {
            *kind != Kind::Tenant && entry.tenant == Some(tenant)
        };
        let found = self.entries.iter().filter(|(key, entry)| own(key, entry));
        let found: Vec<(Kind, String)> = found.map(|(key, _)| key.clone()).take(limit).collect();
        for key in &found {
            self.entries.remove(key);
            if let (Kind::Key, Ok(id)) = (key.0, key.1.parse()) {
                self.keys_used.remove(&id);
            }
        }
        found.len()
    }

    /// Whether a tenant has this subscription.
    pub(super) fn has_subscription(&self, tenant: TenantId, id: SubscriptionId) -> bool {
        let entry = self.entries.get(&(Kind::Subscription, id.to_string()));
        entry.is_some_and(|entry| !entry.removed && entry.tenant == Some(tenant))
    }

    /// Whether a tenant has this subscription, or had it.
    pub(super) fn has_owned(&self, tenant: TenantId, id: SubscriptionId) -> bool {
        let entry = self.entries.get(&(Kind::Subscription, id.to_string()));
        entry.is_some_and(|entry| entry.tenant == Some(tenant))
    }

    /// When a subscription was deleted, if it was.
    pub(super) fn deleted_at(&self, id: SubscriptionId) -> Option<Timestamp> {
        self.deleted.get(&id).copied()
    }

    pub(super) fn deleted(&self) -> impl Iterator<Item = SubscriptionId> {
        self.deleted.keys().copied()
    }

    /// Writes down whose copies are out of date, as a version of its own.
    pub(super) fn recall(&mut self, at: Timestamp, recalls: Vec<Recall>) -> Option<CatalogVersion> {
        if recalls.is_empty() {
            return None;
        }
        self.version = CatalogVersion(self.version.0 + 1);
        self.recalls.insert(self.version, (at, recalls));
        Some(self.version)
    }

    pub(super) fn prune_recalls(&mut self, before: Timestamp) {
        self.recalls.retain(|_, (at, _)| *at >= before);
    }

    pub(super) fn change(&mut self, change: &CatalogChange) -> Result<CatalogVersion> {
        let next = CatalogVersion(self.version.0 + 1);
        let lookups = change.lookups();
        let found: Vec<Entry> = lookups.iter().flat_map(|lookup| self.find(lookup)).collect();
        let Some(Decision { entry, resumed }) = decide(change, &found, next)? else {
            return Ok(self.version);
        };
        match change {
            CatalogChange::UpdateSubscription { subscription, .. } if resumed => {
                self.failing.remove(&subscription.id);
            }
            CatalogChange::DeleteTenant { tenant, .. } => {
                self.closed.insert(*tenant);
            }
            CatalogChange::DeleteSubscription { id, at, .. } => {
                self.deleted.insert(*id, *at);
                self.failing.remove(id);
            }
            _ => {}
        }
        let tenant = entry.tenant;
        self.entries.insert((entry.kind, entry.key.clone()), entry);
        self.version = next;
        if let Some(tenant) = tenant {
            self.tenants.insert(tenant, next);
            if let Some(entry) = self.entries.get_mut(&(Kind::Tenant, tenant.to_string())) {
                entry.version = next;
            }
        }
        Ok(next)
    }

    fn find(&self, lookup: &Lookup) -> Vec<Entry> {
        let all = self.entries.values();
        match lookup {
            Lookup::Key(kind, key) => {
                self.entries.get(&(*kind, key.clone())).into_iter().cloned().collect()
            }
            Lookup::Unique(kind, text) => {
                let same = |entry: &&Entry| entry.unique.as_ref() == Some(text);
                all.filter(|entry| entry.kind == *kind).filter(same).cloned().collect()
            }
            Lookup::Alias(kind, text) => {
                let same = |entry: &&Entry| entry.alias.as_ref() == Some(text);
                all.filter(|entry| entry.kind == *kind).filter(same).cloned().collect()
            }
            Lookup::InRealm(realm) => {
                let inside = |entry: &&Entry| entry.realm.as_ref() == Some(realm);
                all.filter(inside).take(1).cloned().collect()
            }
            Lookup::OperatorKeys => {
                let nobodys = |entry: &&Entry| entry.kind == Kind::Key && entry.tenant.is_none();
                all.filter(nobodys).cloned().collect()
            }
        }
    }

    pub(super) fn touch_keys(&mut self, uses: Vec<(KeyId, Timestamp)>) {
        for (id, at) in uses {
            if self.entries.contains_key(&(Kind::Key, id.to_string())) {
                let last = self.keys_used.entry(id).or_insert(at);
                *last = at.max(*last);
            }
        }
    }

    pub(super) fn keys_used(&self) -> Vec<(KeyId, Timestamp)> {
        self.keys_used.iter().map(|(id, at)| (*id, *at)).collect()
    }

    pub(super) fn since(&self, since: CatalogVersion) -> CatalogDelta {
        let mut delta = CatalogDelta { version: self.version, ..CatalogDelta::default() };
        for entry in self.entries.values().filter(|entry| entry.version > since) {
            delta.add(entry).expect("what was written can be read");
        }
        if since > CatalogVersion(0) {
            let newer = self.recalls.iter().filter(|(version, _)| **version > since);
            delta.recalls.extend(newer.flat_map(|(_, (_, recalls))| recalls.iter().copied()));
        }
        delta
    }
}
