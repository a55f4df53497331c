//! Realms with their event types, as requests and publishes need them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use posthorn_domain::{
    Event, EventType, KnownType, ProfileName, Realm, RealmName, TenantId, Timestamp, Validation,
};

use super::{Catalog, State};
use crate::error::{Error, Result};
use crate::event_types::compiled::TypeView;

/// A realm and its catalogue.
pub(super) struct RealmState {
    pub(super) realm: Arc<Realm>,
    types: BTreeMap<EventType, Arc<TypeView>>,
}

/// Which event types are meant. What is absent does not matter.
#[derive(Clone, Debug, Default)]
pub struct TypeFilter {
    /// Of this group.
    pub group: Option<String>,
    /// Archived ones, or the others.
    pub archived: Option<bool>,
    /// Whose name begins so.
    pub prefix: Option<String>,
}

impl TypeFilter {
    fn wants(&self, known: &KnownType) -> bool {
        self.group.as_ref().is_none_or(|group| known.group.as_ref() == Some(group))
            && self.archived.is_none_or(|archived| known.archived == archived)
            && self.prefix.as_ref().is_none_or(|prefix| known.name.as_str().starts_with(prefix))
    }
}

/// What is checked of an event before it is accepted, and with what.
pub(crate) enum Check {
    /// Nothing, or nothing more: its type is known.
    Nothing,
    /// That its payload fits.
    Schema(Arc<TypeView>),
}

impl State {
    pub(super) fn put_realm(&mut self, realm: Realm) {
        let realm = Arc::new(realm);
        match self.realms.get_mut(&realm.name) {
            Some(known) => known.realm = realm,
            None => {
                let new = RealmState { realm: Arc::clone(&realm), types: BTreeMap::new() };
                self.realms.insert(realm.name.clone(), new);
            }
        }
    }

    pub(super) fn drop_realm(&mut self, name: &RealmName) {
        self.realms.remove(name);
    }

    pub(super) fn put_type(&mut self, known: KnownType) {
        let realm = self.realms.entry(known.realm.clone()).or_insert_with(|| {
            let realm = Realm::new(known.realm.clone(), Timestamp::from_millis(0));
            RealmState { realm: Arc::new(realm), types: BTreeMap::new() }
        });
        realm.types.insert(known.name.clone(), Arc::new(TypeView::new(known)));
    }

    pub(super) fn drop_type(&mut self, realm: &RealmName, name: &EventType) {
        if let Some(realm) = self.realms.get_mut(realm) {
            realm.types.remove(name);
        }
    }

    /// Whether any realm checks events before they are accepted.
    pub(super) fn has_checks(&self) -> bool {
        self.realms.values().any(|known| known.realm.validation != Validation::Off)
    }

    pub(super) fn realm(&self, name: &RealmName) -> Option<&RealmState> {
        self.realms.get(name)
    }

    /// What is to be checked of an event of this type, or that it is not known.
    pub(super) fn check(&self, realm: &RealmName, name: &EventType) -> Result<Check> {
        let Some(known) = self.realms.get(realm) else { return Ok(Check::Nothing) };
        let validation = known.realm.validation;
        if validation == Validation::Off {
            return Ok(Check::Nothing);
        }
        match known.types.get(name).filter(|view| !view.known.archived) {
            None => Err(Error::UnknownType { name: name.clone(), realm: realm.clone() }),
            Some(view) if validation == Validation::Schema && !view.known.schemas.is_empty() => {
                Ok(Check::Schema(Arc::clone(view)))
            }
            Some(_) => Ok(Check::Nothing),
        }
    }
}

impl Catalog {
    /// A realm. The default one is always there.
    pub fn realm(&self, name: &RealmName) -> Result<Arc<Realm>> {
        let state = self.state.read();
        match state.realms.get(name) {
            Some(known) => Ok(Arc::clone(&known.realm)),
            None if name.is_default() => Ok(Arc::new(default_realm())),
            None => Err(Error::NotFound("realm")),
        }
    }

    /// All realms, by name.
    pub fn realms(&self) -> Vec<Arc<Realm>> {
        let state = self.state.read();
        let mut all: Vec<_> = state.realms.values().map(|known| Arc::clone(&known.realm)).collect();
        if !state.realms.contains_key(&RealmName::default()) {
            all.push(Arc::new(default_realm()));
            all.sort_by(|a, b| a.name.cmp(&b.name));
        }
        all
    }

    /// The realm a tenant is in.
    pub fn realm_of(&self, tenant: TenantId) -> Result<RealmName> {
        self.tenant(tenant).map(|tenant| tenant.realm)
    }

    /// The profile of new subscriptions of a tenant that name none, where its realm says so.
    pub(crate) fn default_profile(&self, tenant: TenantId) -> Option<ProfileName> {
        let state = self.state.read();
        let realm = &state.tenants.get(&tenant)?.tenant.realm;
        state.realms.get(realm)?.realm.defaults.profile.clone()
    }

    /// One event type of a realm.
    pub fn event_type(&self, realm: &RealmName, name: &EventType) -> Result<Arc<KnownType>> {
        let state = self.state.read();
        let found = state.realms.get(realm).and_then(|known| known.types.get(name));
        found.map(|view| Arc::clone(&view.known)).ok_or(Error::NotFound("event type"))
    }

    /// The event types of a realm, with the memory that each needs. The first time that may take a while.
    pub(crate) fn event_type_memory(&self, realm: &RealmName) -> BTreeMap<EventType, u64> {
        let views: Vec<Arc<TypeView>> = {
            let state = self.state.read();
            let known = state.realms.get(realm);
            known.map(|known| known.types.values().cloned().collect()).unwrap_or_default()
        };
        views.iter().map(|view| (view.known.name.clone(), view.memory())).collect()
    }

    /// What is to be checked of an event before it is accepted, or that its type is not known. Where no realm checks
    /// anything, it is one look at a flag.
    pub(crate) fn check(&self, event: &Event) -> Result<Check> {
        if !self.checks.load(Ordering::Relaxed) {
            return Ok(Check::Nothing);
        }
        let state = self.state.read();
        match state.tenants.get(&event.tenant) {
            Some(known) => state.check(&known.tenant.realm, &event.event_type),
            None => Ok(Check::Nothing),
        }
    }

    /// Event types of a realm that a filter wants, by name, from one on; at most so many, and whether more follow.
    pub fn event_types(
        &self,
        realm: &RealmName,
        filter: &TypeFilter,
        after: Option<&EventType>,
        limit: usize,
    ) -> (Vec<Arc<KnownType>>, bool) {
        let state = self.state.read();
        let Some(known) = state.realms.get(realm) else { return (Vec::new(), false) };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = known.types.range::<EventType, _>((from, Bound::Unbounded));
        let mut wanted = rest.map(|(_, view)| &view.known).filter(|known| filter.wants(known));
        let found: Vec<_> = wanted.by_ref().take(limit).cloned().collect();
        (found, wanted.next().is_some())
    }
}

/// The default realm while nothing was said about it.
fn default_realm() -> Realm {
    Realm::new(RealmName::default(), Timestamp::from_millis(0))
}
