//! The catalog in memory: what matching, authentication and attempts look at.
//!
//! Every node keeps the whole catalog. It is brought up to date by deltas from the store, and each
//! plan for an event remembers the version it was made on, so that the store can refuse a plan that
//! missed a change. Readers take the lock for microseconds; nothing is awaited under it, and an event
//! whose matching may take longer is matched by `crate::matching`, on a copy of the list.

mod audience;
pub(crate) mod certificates;
pub(crate) mod clients;
pub(crate) mod holdings;
mod known_key;
mod profiles;
mod realms;
mod recalls;
mod tenants;
mod view;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use posthorn_domain::filter::Cost;
use posthorn_domain::{
    CatalogVersion, CertificateId, ClientName, Event, KeyId, Policy, ProfileName, ProxyName, Realm,
    RealmName, SubscriptionId, SubscriptionName, Tenant, TenantId, Thumbprint, Timestamp, Topic,
    TopicName,
};
use posthorn_sealing::vault::Vault;
use posthorn_store::{CatalogDelta, Recall, TenantEntry};

use crate::error::{Error, Result};
use crate::matching::{self, Audience, LOCKED_MAX, Plan, Planned};
use crate::quotas::Quotas;

pub use certificates::{CertificateView, TlsChoice};
pub use clients::ClientView;
pub use holdings::Holdings;
pub use known_key::KnownKey;
pub use profiles::Profile;
pub(crate) use realms::Check;
pub use realms::TypeFilter;
pub use tenants::TenantFilter;
pub use view::{Secrets, SubscriptionView, VerificationKey};

use audience::Listeners;

/// Hash maps with keys that nobody outside can know, so that nobody can choose names that collide. Their
/// order differs from run to run: whoever walks through one sorts, or does what any order makes the same
/// of, for the simulator replays runs exactly.
pub(crate) type Map<K, V> = HashMap<K, V, RandomState>;

/// The catalog in memory.
pub struct Catalog {
    state: RwLock<State>,
    profiles: BTreeMap<ProfileName, Arc<Policy>>,
    /// The operator's proxies, and whom they are open to.
    proxies: BTreeMap<ProxyName, Option<BTreeSet<String>>>,
    vault: Arc<Vault>,
    recalls: recalls::Recalls,
    /// Whether any realm checks events before they are accepted.
    checks: AtomicBool,
    /// Whether any tenant, or any realm, has ever said how many attempts may begin in a second.
    paces: AtomicBool,
}

/// What a delta was about, for those who hold deliveries.
#[derive(Default)]
pub(crate) struct Applied {
    /// Subscriptions that are new, changed or gone.
    pub(crate) changed: Vec<SubscriptionId>,
    /// Deliveries whose copies are out of date.
    pub(crate) recalls: Vec<Recall>,
}

#[derive(Default)]
struct State {
    version: CatalogVersion,
    tenants: Map<TenantId, TenantState>,
    tenant_index: tenants::TenantIndex,
    realms: BTreeMap<RealmName, realms::RealmState>,
    subscriptions: Map<SubscriptionId, Arc<SubscriptionView>>,
    by_name: Map<(TenantId, SubscriptionName), SubscriptionId>,
    keys: Map<KeyId, Arc<KnownKey>>,
    /// Policies with overrides, shared by all subscriptions that say the same.
    policies: profiles::Policies,
    certificates: certificates::Certificates,
    /// Certificates by tenant and host.
    by_host: Map<(TenantId, String), Vec<CertificateId>>,
    /// The `caller` certificates by thumbprint.
    callers: Map<Thumbprint, CertificateId>,
    /// What was made of certificates; emptied when any of them changes.
    tls: Map<certificates::TlsKey, Arc<TlsChoice>>,
}

struct TenantState {
    tenant: Tenant,
    version: CatalogVersion,
    topics: Map<TopicName, Arc<Topic>>,
    profiles: Map<ProfileName, profiles::OwnProfile>,
    clients: Map<ClientName, Arc<ClientView>>,
    /// Subscriptions whose every group names topics, by topic.
    by_topic: Map<TopicName, Listeners>,
    /// Subscriptions with a group that does not.
    any_topic: Listeners,
    /// Subscriptions that name the reserved topic: nobody else gets its events.
    operational: Listeners,
    holdings: Holdings,
    /// Whether nothing is left of it but that it was there.
    removed: bool,
}

impl TenantState {
    fn new(tenant: Tenant, version: CatalogVersion) -> Self {
        Self {
            tenant,
            version,
            topics: Map::default(),
            profiles: Map::default(),
            clients: Map::default(),
            by_topic: Map::default(),
            any_topic: Listeners::default(),
            operational: Listeners::default(),
            holdings: Holdings::default(),
            removed: false,
        }
    }
}

impl Catalog {
    pub(crate) fn new(
        profiles: &BTreeMap<ProfileName, Policy>,
        proxies: BTreeMap<ProxyName, Option<BTreeSet<String>>>,
        vault: Arc<Vault>,
    ) -> Self {
        let profiles = profiles
            .iter()
            .map(|(name, policy)| (name.clone(), Arc::new(policy.clone())))
            .collect();
        let recalls = recalls::Recalls::default();
        let (state, checks) = (RwLock::new(State::default()), AtomicBool::new(false));
        Self { state, profiles, proxies, vault, recalls, checks, paces: AtomicBool::new(false) }
    }

    /// The version this copy has.
    pub fn version(&self) -> CatalogVersion {
        self.state.read().version
    }

    /// Whether a copy of a delivery is out of date, so that nothing may be sent from it.
    pub(crate) fn is_recalled(&self, copy: &posthorn_domain::Delivery) -> bool {
        self.recalls.concern(copy)
    }

    /// Applies what changed.
    pub(crate) fn apply(&self, delta: CatalogDelta) -> Applied {
        let mut state = self.state.write();
        if delta.version <= state.version {
            return Applied::default();
        }
        // Before anybody can say that this version is in force here.
        self.recalls.note(&delta.recalls);
        state.version = delta.version;
        let paced = |entry: &TenantEntry| entry.tenant.deliveries_per_second.is_some();
        let has_pace = |realm: &Realm| realm.defaults.deliveries_per_second.is_some();
        if delta.tenants.iter().any(paced) || delta.realms.iter().any(has_pace) {
            self.paces.store(true, Ordering::Relaxed);
        }
        for name in &delta.removed_realms {
            state.drop_realm(name);
        }
        for realm in delta.realms {
            state.put_realm(realm);
        }
        for (realm, name) in &delta.removed_event_types {
            state.drop_type(realm, name);
        }
        for known in delta.event_types {
            state.put_type(known);
        }
        self.checks.store(state.has_checks(), Ordering::Relaxed);
        let dropped = state.put_tenants(delta.tenants);
        for topic in delta.topics {
            if state.is_closed(topic.tenant) {
                continue;
            }
            if let Some(tenant) = state.tenants.get_mut(&topic.tenant) {
                let more = Holdings::topic(holdings::of_topic(&topic));
                tenant.holdings = tenant.holdings.plus(more);
                if let Some(old) = tenant.topics.insert(topic.name.clone(), Arc::new(topic)) {
                    let old = Holdings::topic(holdings::of_topic(&old));
                    tenant.holdings = tenant.holdings.less(old);
                }
            }
        }
        for (tenant, name) in delta.removed_topics {
            if let Some(tenant) = state.tenants.get_mut(&tenant)
                && let Some(old) = tenant.topics.remove(&name)
            {
                let old = Holdings::topic(holdings::of_topic(&old));
                tenant.holdings = tenant.holdings.less(old);
            }
        }
        for key in delta.keys {
            if key.tenant.is_some_and(|tenant| state.is_closed(tenant)) {
                continue;
            }
            let known = match state.keys.get(&key.id) {
                Some(old) => old.with(key),
                None => KnownKey::new(key),
            };
            state.keys.insert(known.id, Arc::new(known));
        }
        for client in delta.clients {
            if !state.is_closed(client.tenant) {
                state.put_client(client, &self.vault);
            }
        }
        for (tenant, name) in &delta.removed_clients {
            state.drop_client(*tenant, name);
        }
        for certificate in delta.certificates {
            if !state.is_closed(certificate.tenant) {
                state.put_certificate(certificate, &self.vault);
            }
        }
        for (_, id) in delta.removed_certificates {
            state.drop_certificate(id);
        }
        let profiles = delta.profiles.into_iter();
        let profiles = profiles.filter(|profile| !state.is_closed(profile.tenant)).collect();
        let mut changed = self.apply_profiles(&mut state, profiles, &delta.removed_profiles);
        changed.extend(dropped);
        for subscription in delta.subscriptions {
            changed.push(subscription.id);
            if state.is_closed(subscription.tenant) {
                continue;
            }
            let policy = self.resolve(&mut state, &subscription);
            let view =
                Arc::new(SubscriptionView::new(subscription, policy, Arc::clone(&self.vault)));
            state.remove(view.subscription.id);
            state.insert(view);
        }
        for (_, id) in delta.removed_subscriptions {
            changed.push(id);
            state.remove(id);
        }
        Applied { changed, recalls: delta.recalls }
    }

    /// Which subscriptions want an event, and on which version that was decided; or whom to ask, when
    /// that may take longer than anybody should hold the lock.
    pub(crate) fn plan(&self, event: &Event, quotas: &Quotas) -> Result<Planned> {
        let state = self.state.read();
        let tenant = state.tenants.get(&event.tenant).ok_or(Error::NotFound("tenant"))?.open()?;
        // The reserved topic is everybody's, and nobody's to make.
        if !tenant.topics.contains_key(&event.topic) && !event.topic.is_reserved() {
            return Err(Error::UnknownTopic(event.topic.clone()));
        }
        let version = tenant.version;
        let lists = match event.topic.is_reserved() {
            false => [tenant.by_topic.get(&event.topic), Some(&tenant.any_topic)],
            true => [Some(&tenant.operational), None],
        };
        let lists = lists.into_iter().flatten();
        let cost: Cost = lists.clone().map(|list| list.cost).sum();
        let cost = cost.of(event.payload.len());
        let views = lists.flat_map(|list| &list.views);
        if cost > LOCKED_MAX {
            let views = views.cloned().collect();
            return Ok(Planned::Costly(Audience { version, views }, cost));
        }
        let (_, matches) = matching::decide(event, views, quotas);
        Ok(Planned::Done(Plan { version, matches: matches? }))
    }

    /// Whether anybody of a tenant may want operational events.
    pub(crate) fn wants_operational(&self, tenant: TenantId) -> bool {
        self.state.read().tenants.get(&tenant).is_some_and(|tenant| !tenant.operational.is_empty())
    }

    /// One subscription, whoever's: for what is not a secret of its tenant.
    pub fn view(&self, id: SubscriptionId) -> Option<Arc<SubscriptionView>> {
        self.state.read().subscriptions.get(&id).cloned()
    }

    /// One subscription of a tenant.
    pub fn subscription(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
    ) -> Result<Arc<SubscriptionView>> {
        self.view(id)
            .filter(|view| view.subscription.tenant == tenant)
            .ok_or(Error::NotFound("subscription"))
    }

    /// The subscription of a tenant with this name.
    pub fn subscription_named(
        &self,
        tenant: TenantId,
        name: &SubscriptionName,
    ) -> Option<Arc<SubscriptionView>> {
        let state = self.state.read();
        let id = state.by_name.get(&(tenant, name.clone()))?;
        state.subscriptions.get(id).cloned()
    }

    /// All subscriptions of a tenant, oldest first.
    pub fn subscriptions(&self, tenant: TenantId) -> Vec<Arc<SubscriptionView>> {
        let state = self.state.read();
        let mut all: Vec<_> = state
            .subscriptions
            .values()
            .filter(|view| view.subscription.tenant == tenant)
            .cloned()
            .collect();
        all.sort_by_key(|view| view.subscription.id);
        all
    }

    /// All subscriptions of all tenants, oldest first.
    pub(crate) fn all_subscriptions(&self) -> Vec<Arc<SubscriptionView>> {
        let mut all: Vec<_> = self.state.read().subscriptions.values().cloned().collect();
        all.sort_by_key(|view| view.subscription.id);
        all
    }

    /// One topic of a tenant.
    pub fn topic(&self, tenant: TenantId, name: &TopicName) -> Result<Arc<Topic>> {
        let state = self.state.read();
        let topic = state.tenants.get(&tenant).and_then(|t| t.topics.get(name)).cloned();
        topic.ok_or(Error::NotFound("topic"))
    }

    /// All topics of a tenant, by name.
    pub fn topics(&self, tenant: TenantId) -> Vec<Arc<Topic>> {
        let state = self.state.read();
        let topics = state.tenants.get(&tenant).into_iter().flat_map(|t| t.topics.values());
        let mut all: Vec<_> = topics.cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// One key.
    pub fn key(&self, id: KeyId) -> Option<Arc<KnownKey>> {
        self.state.read().keys.get(&id).cloned()
    }

    /// All keys, oldest first.
    pub fn keys(&self) -> Vec<Arc<KnownKey>> {
        let mut all: Vec<_> = self.state.read().keys.values().cloned().collect();
        all.sort_by_key(|key| key.id);
        all
    }

    /// Keys that were used since this was asked last, and when.
    pub(crate) fn uses_to_write(&self) -> Vec<(KeyId, Timestamp)> {
        let mut uses: Vec<_> =
            self.state.read().keys.values().filter_map(|key| key.use_to_write()).collect();
        uses.sort_unstable();
        uses
    }

    /// These could not be written down; they are given out again.
    pub(crate) fn uses_not_written(&self, uses: &[(KeyId, Timestamp)]) {
        let state = self.state.read();
        uses.iter().filter_map(|(id, _)| state.keys.get(id)).for_each(|key| key.keep_use());
    }
}

impl State {
    fn insert(&mut self, view: Arc<SubscriptionView>) {
        if let Some(tenant) = self.tenants.get_mut(&view.subscription.tenant) {
            tenant.holdings = tenant.holdings.plus(view.holdings());
            if view.subscription.filter.names_reserved() {
                tenant.operational.push(Arc::clone(&view));
            }
            match view.topics() {
                Some(topics) => {
                    for topic in topics {
                        tenant.by_topic.entry(topic).or_default().push(Arc::clone(&view));
                    }
                }
                None => tenant.any_topic.push(Arc::clone(&view)),
            }
        }
        if let Some(name) = &view.subscription.name {
            let key = (view.subscription.tenant, name.clone());
            self.by_name.insert(key, view.subscription.id);
        }
        self.subscriptions.insert(view.subscription.id, view);
    }

    fn remove(&mut self, id: SubscriptionId) {
        let Some(old) = self.subscriptions.remove(&id) else { return };
        if let Some(name) = &old.subscription.name {
            let key = (old.subscription.tenant, name.clone());
            // Another one may have the name by now.
            if self.by_name.get(&key) == Some(&id) {
                self.by_name.remove(&key);
            }
        }
        let Some(tenant) = self.tenants.get_mut(&old.subscription.tenant) else { return };
        tenant.holdings = tenant.holdings.less(old.holdings());
        if old.subscription.filter.names_reserved() {
            tenant.operational.remove(id);
        }
        match old.topics() {
            Some(topics) => {
                for topic in topics {
                    if let Entry::Occupied(mut list) = tenant.by_topic.entry(topic) {
                        list.get_mut().remove(id);
                        if list.get().is_empty() {
                            list.remove();
                        }
                    }
                }
            }
            None => tenant.any_topic.remove(id),
        }
    }
}
