//! The catalog as a store keeps it: documents with a few facts beside them, and the rules by which a change
//! makes a new one.
//!
//! # What it is for
//! Every node has the whole catalog in memory. A store only keeps it, tells what changed, and sees to it
//! that changes obey the rules; it need not know what a subscription is. For a store an [`Entry`] is a
//! key, a tenant, a version, two texts that no other of its kind may have, the realm it keeps from being
//! deleted, whether it is removed, and one document. What things mean is written here, once.
//!
//! # Theory of operation
//! [`CatalogChange::lookups`] names the entries a change must look at. The store finds them inside the
//! change's transaction, while no other change can be made, and [`decide`] tells from them why not, or which
//! entry is to be written: never more than one. The entry's tenant gets the version of the change as well.
//! [`CatalogDelta::add`] makes of entries what nodes are told.
//!
//! # Documents
//! A document is the JSON form of a type of the domain. Later versions read what this one has written: no
//! field is renamed or means something else later, and one that is added has a default. One that is
//! removed stays readable, without anything secret, so that others learn of its removal.
//!
//! # What it must not know
//! Which databases exist, and what else they keep beside entries.

mod document;

use posthorn_domain::{
    ApiKey, CatalogVersion, Certificate, Client, Deletion, KnownType, Realm, RealmName,
    Subscription, Tenant, TenantId, TenantProfile, Topic,
};

use crate::{CatalogChange, CatalogDelta, Refusal, Result, TenantEntry};
use document::{Document, entry, in_realm, named, read, removed};

/// What kinds of entries there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A [`Tenant`]; its version is that of the last change in it.
    Tenant,
    /// A [`Topic`].
    Topic,
    /// A [`Subscription`].
    Subscription,
    /// A [`TenantProfile`].
    Profile,
    /// A [`Client`].
    Client,
    /// An [`ApiKey`].
    Key,
    /// A [`Certificate`].
    Certificate,
    /// A [`Realm`].
    Realm,
    /// A [`KnownType`].
    EventType,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Self::Tenant,
        Self::Topic,
        Self::Subscription,
        Self::Profile,
        Self::Client,
        Self::Key,
        Self::Certificate,
        Self::Realm,
        Self::EventType,
    ];

    /// As stores write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Topic => "topic",
            Self::Subscription => "subscription",
            Self::Profile => "profile",
            Self::Client => "client",
            Self::Key => "key",
            Self::Certificate => "certificate",
            Self::Realm => "realm",
            Self::EventType => "event_type",
        }
    }

    /// Back from a store.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// One thing of the catalog. Not for `Debug`: what is in a document is sealed, but nobody's business.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Of which kind.
    pub kind: Kind,
    /// Which of its kind, for ever.
    pub key: String,
    /// Whose; nobody's are realms with what they own, and the keys of operators.
    pub tenant: Option<TenantId>,
    /// Of its last change.
    pub version: CatalogVersion,
    /// What no other of its kind has at the same time.
    pub unique: Option<String>,
    /// Another text that no other of its kind has at the same time.
    pub alias: Option<String>,
    /// The realm that is not empty because of it. Whatever is in the default realm names none: that one stays.
    pub realm: Option<String>,
    /// Whether it is gone.
    pub removed: bool,
    /// Its JSON form.
    pub document: String,
}

/// How an entry is found, removed ones included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// By its key.
    Key(Kind, String),
    /// By its unique text.
    Unique(Kind, String),
    /// By its other unique text.
    Alias(Kind, String),
    /// One of those that are in a realm, if there are any.
    InRealm(String),
    /// All keys that belong to no tenant: those of operators, and of realms. There are few.
    OperatorKeys,
}

/// What a change comes to.
pub struct Decision {
    /// What is to be written, with the version of the change.
    pub entry: Entry,
    /// Whether it is a subscription that goes on after it was paused or disabled.
    pub resumed: bool,
}

impl CatalogChange {
    /// The tenant it is about, as far as the change itself says so: a key is revoked by its id.
    pub fn tenant(&self) -> Option<TenantId> {
        self.subject().0
    }

    /// What [`decide`] must be shown, as far as it is there.
    pub fn lookups(&self) -> Vec<Lookup> {
        let (tenant, mut lookups) = self.subject();
        lookups.extend(tenant.map(|tenant| Lookup::Key(Kind::Tenant, tenant.to_string())));
        lookups
    }

    fn subject(&self) -> (Option<TenantId>, Vec<Lookup>) {
        match self {
            Self::PutRealm(new) => itself(new),
            Self::DeleteRealm(name) => {
                let key = Lookup::Key(Kind::Realm, name.to_string());
                (None, vec![key, Lookup::InRealm(name.to_string())])
            }
            Self::PutEventType(new) => (None, [itself(&**new).1, home(Some(&new.realm))].concat()),
            Self::DeleteEventType { realm, name } => {
                (None, vec![Lookup::Key(Kind::EventType, in_realm(realm, name))])
            }
            Self::CreateTenant(new) => {
                (Some(new.id), [itself(new).1, home(Some(&new.realm))].concat())
            }
            Self::ChangeTenant { tenant, realm, change } => {
                let name = change.name.clone().map(|name| Lookup::Unique(Kind::Tenant, name));
                let external = change.external_id.as_ref().and_then(Option::as_ref);
                let alias = external.map(|id| Lookup::Alias(Kind::Tenant, in_realm(realm, id)));
                (Some(*tenant), name.into_iter().chain(alias).collect())
            }
            Self::DeleteTenant { tenant, .. } | Self::BuryTenant { tenant } => {
                (Some(*tenant), Vec::new())
            }
            Self::CreateTopic(new) | Self::PutTopic(new) => itself(new),
            Self::DeleteTopic { tenant, name } => one(*tenant, Kind::Topic, &named(*tenant, name)),
            Self::CreateSubscription(new) | Self::UpdateSubscription { subscription: new, .. } => {
                itself(&**new)
            }
            Self::DeleteSubscription { tenant, id, .. } => one(*tenant, Kind::Subscription, id),
            Self::PutProfile(new) => itself(new),
            Self::DeleteProfile { tenant, name } => {
                one(*tenant, Kind::Profile, &named(*tenant, name))
            }
            Self::PutClient { client, .. } => itself(&**client),
            Self::DeleteClient { tenant, name } => {
                one(*tenant, Kind::Client, &named(*tenant, name))
            }
            Self::CreateKey(new) => {
                (new.tenant, [itself(new).1, home(new.realm.as_ref())].concat())
            }
            Self::CreateFirstKey(new) => {
                (new.tenant, [itself(new).1, vec![Lookup::OperatorKeys]].concat())
            }
            Self::RevokeKey { id, .. } => {
                (None, vec![Lookup::Key(Kind::Key, id.to_string()), Lookup::OperatorKeys])
            }
            // The kind that counts for an update is that of the one that is there.
            Self::CreateCertificate(new) | Self::UpdateCertificate { certificate: new, .. } => {
                let twin = Lookup::Unique(Kind::Certificate, new.thumbprint.to_string());
                (Some(new.tenant), vec![Lookup::Key(Kind::Certificate, new.key()), twin])
            }
            Self::RevokeCertificate { tenant, id, .. } | Self::DeleteCertificate { tenant, id } => {
                one(*tenant, Kind::Certificate, id)
            }
        }
    }
}

fn itself<T: Document>(new: &T) -> (Option<TenantId>, Vec<Lookup>) {
    let twin = new.unique().map(|text| Lookup::Unique(T::KIND, text));
    let other = new.alias().map(|text| Lookup::Alias(T::KIND, text));
    let key = [Lookup::Key(T::KIND, new.key())];
    (new.tenant(), key.into_iter().chain(twin).chain(other).collect())
}

/// The realm that something is to be in. The default realm is there whether anything was said about it or not.
fn home(realm: Option<&RealmName>) -> Vec<Lookup> {
    let named = realm.filter(|realm| !realm.is_default());
    named.map(|realm| Lookup::Key(Kind::Realm, realm.to_string())).into_iter().collect()
}

fn one(tenant: TenantId, kind: Kind, key: &impl ToString) -> (Option<TenantId>, Vec<Lookup>) {
    (Some(tenant), vec![Lookup::Key(kind, key.to_string())])
}

/// What a change with the version `next` comes to when `found` is there; `None` when there is nothing left
/// to change.
pub fn decide(
    change: &CatalogChange,
    found: &[Entry],
    next: CatalogVersion,
) -> Result<Option<Decision>> {
    let found = Found(found);
    if !matches!(change, CatalogChange::CreateTenant(_)) {
        found.known(change)?;
    }
    let mut resumed = false;
    let entry = match change {
        CatalogChange::PutRealm(new) => {
            let old = found.live::<Realm>(&new.key())?;
            let created_at = old.map_or(new.created_at, |old| old.created_at);
            entry(&Realm { created_at, ..new.clone() }, next)
        }
        CatalogChange::DeleteRealm(name) => {
            if name.is_default() {
                return Err(Refusal::NotEmpty.into());
            }
            let old: Realm = found.existing(name.as_str())?;
            if found.0.iter().any(|entry| entry.realm.as_deref() == Some(name.as_str())) {
                return Err(Refusal::NotEmpty.into());
            }
            removed(&Realm { description: String::new(), ..old }, next)
        }
        CatalogChange::PutEventType(new) => {
            found.has_realm(&new.realm)?;
            let old = found.live::<KnownType>(&new.key())?;
            let created_at = old.map_or(new.created_at, |old| old.created_at);
            entry(&KnownType { created_at, ..(**new).clone() }, next)
        }
        CatalogChange::DeleteEventType { realm, name } => {
            let old: KnownType = found.existing(&in_realm(realm, name))?;
            removed(&old, next)
        }
        CatalogChange::CreateTenant(new) => {
            found.has_realm(&new.realm)?;
            found.first(new, next)?
        }
        CatalogChange::ChangeTenant { tenant, realm, change } => {
            let old: Tenant = found.existing(&tenant.to_string())?;
            if old.realm != *realm {
                return Err(Refusal::NotFound.into());
            }
            let new = change.apply(old.clone());
            if new == old {
                return Ok(None);
            }
            found.alone(&new, next)?
        }
        CatalogChange::DeleteTenant { tenant, job, at } => {
            if *tenant == TenantId::DEFAULT {
                return Err(Refusal::NotEmpty.into());
            }
            let old: Tenant = found.existing(&tenant.to_string())?;
            let deletion = Some(Deletion { job: *job, at: *at });
            entry(&Tenant { deletion, ..old }, next)
        }
        CatalogChange::BuryTenant { tenant } => {
            let old: Tenant = found.existing(&tenant.to_string())?;
            if old.deletion.is_none() {
                return Err(Refusal::NotFound.into());
            }
            removed(&old.tombstone(), next)
        }
        CatalogChange::CreateTopic(new) => match found.live::<Topic>(&new.key())? {
            Some(_) => return Err(Refusal::AlreadyExists.into()),
            None => entry(new, next),
        },
        CatalogChange::PutTopic(new) => {
            let old = found.live::<Topic>(&new.key())?;
            let created_at = old.map_or(new.created_at, |old| old.created_at);
            entry(&Topic { created_at, ..new.clone() }, next)
        }
        CatalogChange::DeleteTopic { tenant, name } => {
            removed(&found.existing::<Topic>(&named(*tenant, name))?, next)
        }
        CatalogChange::CreateSubscription(new) => {
            found.first(&Subscription { version: next, ..(**new).clone() }, next)?
        }
        CatalogChange::UpdateSubscription { subscription: new, expected } => {
            let old: Subscription = found.own(&new.key(), new.tenant)?;
            expect(expected.unwrap_or(old.version), old.version)?;
            resumed = new.status.is_active() && !old.status.is_active();
            let created_at = old.created_at;
            found.alone(&Subscription { created_at, version: next, ..(**new).clone() }, next)?
        }
        CatalogChange::DeleteSubscription { tenant, id, .. } => {
            let old: Subscription = found.own(&id.to_string(), *tenant)?;
            // Secrets of somebody who left never sign again.
            removed(&Subscription { secrets: Vec::new(), version: next, ..old }, next)
        }
        CatalogChange::PutProfile(new) => entry(new, next),
        CatalogChange::DeleteProfile { tenant, name } => {
            removed(&found.existing::<TenantProfile>(&named(*tenant, name))?, next)
        }
        CatalogChange::PutClient { client: new, expected } => {
            let old = found.live::<Client>(&new.key())?;
            expect(*expected, old.map_or(CatalogVersion(0), |old| old.version))?;
            entry(&Client { version: next, ..(**new).clone() }, next)
        }
        CatalogChange::DeleteClient { tenant, name } => {
            let old: Client = found.existing(&named(*tenant, name))?;
            removed(&Client { sealed_secret: None, scopes: None, version: next, ..old }, next)
        }
        CatalogChange::CreateKey(new) => {
            new.realm.as_ref().map_or(Ok(()), |realm| found.has_realm(realm))?;
            found.first(new, next)?
        }
        CatalogChange::CreateFirstKey(new) => {
            if found.operator_keys()?.iter().any(|key| key.is_valid(new.created_at)) {
                return Err(Refusal::AlreadyExists.into());
            }
            found.first(new, next)?
        }
        CatalogChange::RevokeKey { id, at } => {
            let key: ApiKey = found.existing(&id.to_string())?;
            if key.revoked_at.is_some() {
                return Ok(None);
            }
            let operators = found.operator_keys()?;
            let replaced = operators.iter().any(|other| outlasts(other, &key));
            if key.is_unbound() && key.is_valid(*at) && !replaced {
                return Err(Refusal::LastOperatorKey.into());
            }
            entry(&ApiKey { revoked_at: Some(*at), ..key }, next)
        }
        CatalogChange::CreateCertificate(new) => {
            found.first(&Certificate { version: next, ..(**new).clone() }, next)?
        }
        CatalogChange::UpdateCertificate { certificate: new, expected } => {
            let old: Certificate = found.own(&new.key(), new.tenant)?;
            expect(*expected, old.version)?;
            let Certificate { kind, created_at, revoked_at, .. } = old;
            let new = (**new).clone();
            let new = Certificate { kind, created_at, revoked_at, version: next, ..new };
            found.alone(&new, next)?
        }
        CatalogChange::RevokeCertificate { tenant, id, at } => {
            let old: Certificate = found.own(&id.to_string(), *tenant)?;
            if old.revoked_at.is_some() {
                return Ok(None);
            }
            entry(&Certificate { revoked_at: Some(*at), version: next, ..old }, next)
        }
        CatalogChange::DeleteCertificate { tenant, id } => {
            let old: Certificate = found.own(&id.to_string(), *tenant)?;
            removed(&wiped(Certificate { version: next, ..old }), next)
        }
    };
    Ok(Some(Decision { entry, resumed }))
}

fn expect(expected: CatalogVersion, current: CatalogVersion) -> Result<(), Refusal> {
    if expected == current { Ok(()) } else { Err(Refusal::VersionMismatch { current }) }
}

/// Whether somebody who has `other` can do without `key`. One that ends never outlasts one that does not.
fn outlasts(other: &ApiKey, key: &ApiKey) -> bool {
    let longer = match (other.expires_at, key.expires_at) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(other), Some(end)) => other >= end,
    };
    other.id != key.id && other.revoked_at.is_none() && longer
}

/// What is left of a certificate that is gone.
fn wiped(old: Certificate) -> Certificate {
    let none = String::new;
    Certificate { sealed_key: None, pem: none(), subject: none(), description: none(), ..old }
}

/// What a change was shown.
struct Found<'a>(&'a [Entry]);

impl Found<'_> {
    fn by_key(&self, kind: Kind, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.kind == kind && entry.key == key)
    }

    /// Refuses what belongs to a tenant that is not there, or will soon not be there any more.
    fn known(&self, change: &CatalogChange) -> Result<()> {
        let Some(tenant) = change.tenant() else { return Ok(()) };
        let found = self.by_key(Kind::Tenant, &tenant.to_string()).ok_or(Refusal::NotFound)?;
        if found.removed {
            return Err(Refusal::Deleted.into());
        }
        // What the deletion itself does.
        let takes_away = matches!(
            change,
            CatalogChange::DeleteSubscription { .. } | CatalogChange::BuryTenant { .. }
        );
        match takes_away || read::<Tenant>(found)?.deletion.is_none() {
            true => Ok(()),
            false => Err(Refusal::Deleted.into()),
        }
    }

    /// Refuses what is to be in a realm that is not there.
    fn has_realm(&self, realm: &RealmName) -> Result<()> {
        match realm.is_default() || self.live::<Realm>(realm.as_str())?.is_some() {
            true => Ok(()),
            false => Err(Refusal::NotFound.into()),
        }
    }

    fn live<T: Document>(&self, key: &str) -> Result<Option<T>> {
        self.by_key(T::KIND, key).filter(|entry| !entry.removed).map(read).transpose()
    }

    fn existing<T: Document>(&self, key: &str) -> Result<T> {
        Ok(self.live(key)?.ok_or(Refusal::NotFound)?)
    }

    /// One of the tenant's; another's looks as if it did not exist.
    fn own<T: Document>(&self, key: &str, tenant: TenantId) -> Result<T> {
        let found: T = self.existing(key)?;
        if found.tenant() == Some(tenant) { Ok(found) } else { Err(Refusal::NotFound.into()) }
    }

    /// The entry of a thing whose key was never used.
    fn first<T: Document>(&self, new: &T, next: CatalogVersion) -> Result<Entry, Refusal> {
        match self.by_key(T::KIND, &new.key()) {
            Some(_) => Err(Refusal::AlreadyExists),
            None => self.alone(new, next),
        }
    }

    /// The entry of a thing whose unique text no other one has.
    fn alone<T: Document>(&self, new: &T, next: CatalogVersion) -> Result<Entry, Refusal> {
        let new = entry(new, next);
        let same = |one: &Option<String>, other: &Option<String>| one.is_some() && one == other;
        let twin = |old: &Entry| {
            let other = old.kind == new.kind && old.key != new.key;
            other && (same(&old.unique, &new.unique) || same(&old.alias, &new.alias))
        };
        match self.0.iter().any(twin) {
            true => Err(Refusal::AlreadyExists),
            false => Ok(new),
        }
    }

    fn operator_keys(&self) -> Result<Vec<ApiKey>> {
        let keys = self.0.iter().filter(|entry| entry.kind == Kind::Key && entry.tenant.is_none());
        let keys = keys.map(read).collect::<Result<Vec<ApiKey>>>()?;
        Ok(keys.into_iter().filter(ApiKey::is_unbound).collect())
    }
}

impl CatalogDelta {
    /// Adds an entry that changed.
    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        match entry.kind {
            Kind::Tenant => {
                let version = entry.version;
                let removed = entry.removed;
                self.tenants.push(TenantEntry { tenant: read(entry)?, version, removed });
            }
            Kind::Topic => place(entry, &mut self.topics, &mut self.removed_topics, |gone| {
                (gone.tenant, gone.name)
            })?,
            Kind::Subscription => {
                let (here, gone) = (&mut self.subscriptions, &mut self.removed_subscriptions);
                place(entry, here, gone, |gone| (gone.tenant, gone.id))?;
            }
            Kind::Profile => {
                place(entry, &mut self.profiles, &mut self.removed_profiles, |gone| {
                    (gone.tenant, gone.name)
                })?
            }
            Kind::Client => place(entry, &mut self.clients, &mut self.removed_clients, |gone| {
                (gone.tenant, gone.name)
            })?,
            Kind::Key => self.keys.push(read(entry)?),
            Kind::Realm => {
                place(entry, &mut self.realms, &mut self.removed_realms, |gone: Realm| gone.name)?;
            }
            Kind::EventType => {
                let (here, gone) = (&mut self.event_types, &mut self.removed_event_types);
                place(entry, here, gone, |gone: KnownType| (gone.realm, gone.name))?;
            }
            Kind::Certificate => {
                let (here, gone) = (&mut self.certificates, &mut self.removed_certificates);
                place(entry, here, gone, |gone| (gone.tenant, gone.id))?;
            }
        }
        Ok(())
    }
}

fn place<T: Document, K>(
    entry: &Entry,
    here: &mut Vec<T>,
    gone: &mut Vec<K>,
    key: impl FnOnce(T) -> K,
) -> Result<()> {
    let thing = read(entry)?;
    match entry.removed {
        true => gone.push(key(thing)),
        false => here.push(thing),
    }
    Ok(())
}
