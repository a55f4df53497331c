//! What can be an entry: of each kind of thing its key, its tenant, what is unique of it, and its JSON form.

use posthorn_domain::{
    ApiKey, CatalogVersion, Certificate, CertificateKind, Client, KnownType, Realm, RealmName,
    Subscription, Tenant, TenantId, TenantProfile, Topic,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Entry, Kind};
use crate::{Error, Result};

/// What can be an entry.
pub(super) trait Document: Serialize + DeserializeOwned {
    const KIND: Kind;

    fn key(&self) -> String;

    fn tenant(&self) -> Option<TenantId>;

    fn unique(&self) -> Option<String>;

    /// What else is unique of it.
    fn alias(&self) -> Option<String> {
        None
    }

    /// The realm that cannot go while it is there.
    fn realm(&self) -> Option<String> {
        None
    }
}

/// The key of what has a name in its tenant. Ids have no slash, so no two are the same.
pub(super) fn named(tenant: TenantId, name: &impl std::fmt::Display) -> String {
    format!("{tenant}/{name}")
}

/// The key of what has a name in its realm. Neither has a space.
pub(super) fn in_realm(realm: &RealmName, name: &impl std::fmt::Display) -> String {
    format!("{realm} {name}")
}

fn not_default(realm: &RealmName) -> Option<String> {
    (!realm.is_default()).then(|| realm.to_string())
}

/// Of each kind: its key, its tenant, and what is unique of it; then whatever else is to be said.
macro_rules! documents {
    ($($kind:ident: $thing:ty = $key:expr, $tenant:expr, $unique:expr $(, { $($more:tt)+ })?;)+) => {
        $(
            impl Document for $thing {
                const KIND: Kind = Kind::$kind;

                fn key(&self) -> String {
                    let key: fn(&Self) -> String = $key;
                    key(self)
                }

                fn tenant(&self) -> Option<TenantId> {
                    let tenant: fn(&Self) -> Option<TenantId> = $tenant;
                    tenant(self)
                }

                fn unique(&self) -> Option<String> {
                    let unique: fn(&Self) -> Option<String> = $unique;
                    unique(self)
                }

                $($($more)+)?
            }
        )+
    };
}

documents! {
    Tenant: Tenant = |it| it.id.to_string(), |it| Some(it.id), |it| Some(it.name.clone()), {
        fn alias(&self) -> Option<String> {
            self.external_id.as_ref().map(|id| in_realm(&self.realm, id))
        }

        fn realm(&self) -> Option<String> {
            not_default(&self.realm)
        }
    };
    Realm: Realm = |it| it.name.to_string(), |_| None, |_| None;
    EventType: KnownType = |it| in_realm(&it.realm, &it.name), |_| None, |_| None, {
        fn realm(&self) -> Option<String> {
            not_default(&self.realm)
        }
    };
    Topic: Topic = |it| named(it.tenant, &it.name), |it| Some(it.tenant), |_| None;
    Subscription: Subscription = |it| it.id.to_string(), |it| Some(it.tenant), |it| {
        it.name.as_ref().map(|name| named(it.tenant, name))
    };
    Profile: TenantProfile = |it| named(it.tenant, &it.name), |it| Some(it.tenant), |_| None;
    Client: Client = |it| named(it.tenant, &it.name), |it| Some(it.tenant), |_| None;
    Key: ApiKey = |it| it.id.to_string(), |it| it.tenant, |_| None, {
        // One that was revoked opens nothing, and holds nothing up.
        fn realm(&self) -> Option<String> {
            self.realm.as_ref().filter(|_| self.revoked_at.is_none()).and_then(not_default)
        }
    };
    // A caller is told by its thumbprint, whichever tenant it belongs to.
    Certificate: Certificate = |it| it.id.to_string(), |it| Some(it.tenant), |it| {
        (it.kind == CertificateKind::Caller).then(|| it.thumbprint.to_string())
    };
}

pub(super) fn entry<T: Document>(thing: &T, version: CatalogVersion) -> Entry {
    Entry {
        kind: T::KIND,
        key: thing.key(),
        tenant: thing.tenant(),
        version,
        unique: thing.unique(),
        alias: thing.alias(),
        realm: thing.realm(),
        removed: false,
        document: serde_json::to_string(thing).expect("the domain's types have a JSON form"),
    }
}

pub(super) fn removed<T: Document>(thing: &T, version: CatalogVersion) -> Entry {
    Entry { removed: true, unique: None, alias: None, realm: None, ..entry(thing, version) }
}

pub(super) fn read<T: Document>(entry: &Entry) -> Result<T> {
    serde_json::from_str(&entry.document).map_err(|problem| {
        let entry = format!("{} {}: {problem}", entry.kind.as_str(), entry.key);
        Error::fatal("read a document of the catalog", entry)
    })
}
