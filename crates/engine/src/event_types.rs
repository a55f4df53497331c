//! The catalogue of event types of a realm: what may be in it, and whether a payload fits.
//!
//! # Theory of operation
//! A schema is bounded before it is stored, so that comparing a payload with it ends, and soon: it has a size and a depth, it
//! refers only to itself and never in a circle, and what it comes to with every reference written out is bounded as
//! well. Patterns are matched in linear time. Nothing is ever fetched.
//!
//! Schemas are compiled when the first event is compared with them, once for each version of an entry. Where no realm
//! checks anything, a publish pays for a look at one flag.
//!
//! # What it must not know
//! Where event types come from; documents of OpenAPI are read by [`import`].

pub(crate) mod bounds;
pub(crate) mod compiled;
mod import;

use std::sync::Arc;

use posthorn_domain::{EventType, KnownType, Realm, RealmName};
use posthorn_store::CatalogChange;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::quotas::check_description;

pub use import::{Import, Imported};

/// Versions of the schema of one event type.
const VERSIONS_MAX: usize = 20;
/// Examples of one event type.
const EXAMPLES_MAX: usize = 10;
/// The longest name of a group.
const GROUP_BYTES_MAX: usize = 128;
/// Event types of one realm: they are in every node's memory.
const TYPES_MAX: usize = 2_000;
/// The largest entry as a whole.
const ENTRY_BYTES_MAX: usize = 256 << 10;

/// What somebody says about a realm.
#[derive(Clone, Debug, Default)]
pub struct RealmContents {
    /// For people.
    pub description: String,
    /// What its tenants have when they say nothing else.
    pub defaults: posthorn_domain::RealmDefaults,
    /// What is checked of events.
    pub validation: posthorn_domain::Validation,
}

impl Engine {
    /// Makes or changes a realm.
    pub async fn put_realm(&self, name: RealmName, contents: RealmContents) -> Result<Arc<Realm>> {
        let RealmContents { description, defaults, validation } = contents;
        check_description(&description)?;
        if let Some(profile) = &defaults.profile {
            // Profiles of tenants are theirs alone.
            self.catalog().configured_profile(profile)?;
        }
        if defaults.deliveries_per_second == Some(0) {
            let problem = "must be at least 1; leave it out for no limit".to_owned();
            return Err(Error::Event { field: "defaults.deliveries_per_second", problem });
        }
        let now = self.now();
        let new = Realm {
            description,
            defaults,
            validation,
            updated_at: now,
            ..Realm::new(name.clone(), now)
        };
        self.change(CatalogChange::PutRealm(new)).await.map_err(|e| e.about("realm"))?;
        self.catalog().realm(&name)
    }

    /// Deletes a realm in which there is nothing.
    pub async fn delete_realm(&self, name: RealmName) -> Result<()> {
        let what = match name.is_default() {
            true => "the default realm cannot be deleted",
            false => {
                "the realm has tenants, keys or event types; delete the tenants and event types and \
                 revoke the keys first"
            }
        };
        self.change(CatalogChange::DeleteRealm(name)).await.map_err(|e| match e {
            Error::NotEmpty(_) => Error::NotEmpty(what),
            e => e.about("realm"),
        })
    }

    /// Makes or changes an event type.
    pub async fn put_event_type(&self, known: KnownType) -> Result<Arc<KnownType>> {
        let (realm, name) = (known.realm.clone(), known.name.clone());
        check(&known)?;
        self.check_room(&realm, std::slice::from_ref(&known))?;
        let put = CatalogChange::PutEventType(Box::new(known));
        self.change(put).await.map_err(|e| e.about("realm"))?;
        self.catalog().event_type(&realm, &name)
    }

    /// Deletes an event type; events of it stay.
    pub async fn delete_event_type(&self, realm: RealmName, name: EventType) -> Result<()> {
        let delete = CatalogChange::DeleteEventType { realm, name };
        self.change(delete).await.map_err(|e| e.about("event type"))
    }

    /// Refuses what would make a catalogue too large.
    fn check_room(&self, realm: &RealmName, coming: &[KnownType]) -> Result<()> {
        let catalog = self.catalog();
        let new = coming.iter().filter(|known| catalog.event_type(realm, &known.name).is_err());
        let has = catalog.event_type_count(realm);
        match has + new.count() > TYPES_MAX {
            false => Ok(()),
            true => {
                let problem =
                    format!("a realm may have at most {TYPES_MAX} event types; it has {has}");
                Err(Error::Schema { field: "name".to_owned(), problem })
            }
        }
    }
}

/// Refuses an entry that cannot be used.
fn check(known: &KnownType) -> Result<()> {
    let refuse =
        |field: &str, problem: String| Err(Error::Schema { field: field.to_owned(), problem });
    check_description(&known.description)?;
    if let Some(group) = &known.group
        && (group.is_empty()
            || group.len() > GROUP_BYTES_MAX
            || group.chars().any(char::is_control))
    {
        return refuse("group", format!("must be 1 to {GROUP_BYTES_MAX} printable bytes"));
    }
    if known.schemas.len() > VERSIONS_MAX {
        return refuse("schemas", format!("at most {VERSIONS_MAX} versions are allowed"));
    }
    if known.examples.len() > EXAMPLES_MAX {
        return refuse("examples", format!("at most {EXAMPLES_MAX} are allowed"));
    }
    let size = serde_json::to_vec(known).map_or(usize::MAX, |text| text.len());
    if size > ENTRY_BYTES_MAX {
        let problem = format!(
            "the event type has {size} bytes with its schemas and examples; at most \
             {ENTRY_BYTES_MAX} are allowed"
        );
        return refuse("schemas", problem);
    }
    for (version, schema) in &known.schemas {
        let field = || format!("schemas.{}", version.0);
        bounds::check(schema).map_err(|e| Error::Schema {
            field: format!("{}{}", field(), e.path),
            problem: e.problem,
        })?;
        compiled::compile(schema).map_err(|problem| Error::Schema { field: field(), problem })?;
    }
    Ok(())
}
