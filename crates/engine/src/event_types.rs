//! The catalogue of event types of a realm: what may be in it, and whether a payload fits.
//!
//! # Theory of operation
//! A schema is bounded before it is stored, so that comparing a payload with it ends, and soon: it has a size and a depth, it
//! refers only to itself and never in a circle, and what it comes to with every reference written out is bounded as
//! well. Patterns are matched in linear time. Nothing is ever fetched.
//!
//! Schemas are compiled when the first event is compared with them, once for each version of an entry, and on a thread
//! aside. Where no realm checks anything, a publish pays for a look at one flag.
//!
//! # What it must not know
//! Where event types come from; documents of OpenAPI are read by [`import`].

pub(crate) mod bounds;
pub(crate) mod compiled;
mod import;
mod patterns;

use std::collections::BTreeMap;
use std::sync::Arc;

use posthorn_domain::filter::AttributeValues;
use posthorn_domain::{EventType, KnownType, Realm, RealmName, TenantId};
use posthorn_store::CatalogChange;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::quotas::check_description;

use bounds::Extent;
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
/// What all versions of an entry may come to together with every reference written out.
const ENTRY_PARTS_MAX: u64 = 20_000;
/// The memory that the patterns of all versions of an entry may need.
const ENTRY_PATTERN_BYTES_MAX: u64 = 4 << 20;

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
        if self.tells_of_realm(&name) {
            let what =
                "operational subscriptions in the tenant system name the realm; delete them first";
            return Err(Error::NotEmpty(what));
        }
        self.change(CatalogChange::DeleteRealm(name)).await.map_err(|e| match e {
            Error::NotEmpty(_) => Error::NotEmpty(what),
            e => e.about("realm"),
        })
    }

    /// Whether somebody wants to be told of this realm alone. Left behind, they would be told of the next with its name.
    fn tells_of_realm(&self, name: &RealmName) -> bool {
        let names = |values: &AttributeValues| values.all().iter().any(|own| own == name.as_str());
        let all = self.catalog().subscriptions(TenantId::SYSTEM);
        let mut groups = all.iter().flat_map(|own| &own.subscription.filter.any_of);
        groups.any(|group| group.attributes.get("realm").is_some_and(names))
    }

    /// Makes or changes an event type.
    pub async fn put_event_type(&self, known: KnownType) -> Result<Arc<KnownType>> {
        let (realm, name) = (known.realm.clone(), known.name.clone());
        let engine = self.clone();
        let known = compiled::aside(move || {
            let memory = check(&known)?;
            engine.check_room(&known.realm, &[(&known.name, memory)])?;
            Ok::<_, Error>(known)
        });
        let known = known.await??;
        let put = CatalogChange::PutEventType(Box::new(known));
        self.change(put).await.map_err(|e| e.about("realm"))?;
        self.catalog().event_type(&realm, &name)
    }

    /// Deletes an event type; events of it stay.
    pub async fn delete_event_type(&self, realm: RealmName, name: EventType) -> Result<()> {
        let delete = CatalogChange::DeleteEventType { realm, name };
        self.change(delete).await.map_err(|e| e.about("event type"))
    }

    /// Refuses what would make a catalogue too large: entries that come, with the memory that each needs.
    fn check_room(&self, realm: &RealmName, coming: &[(&EventType, u64)]) -> Result<()> {
        let refuse =
            |field: &str, problem: String| Err(Error::Schema { field: field.to_owned(), problem });
        let mut all: BTreeMap<EventType, u64> = self.catalog().event_type_memory(realm);
        let (has, used) = (all.len(), all.values().sum::<u64>());
        for (name, memory) in coming {
            all.insert((*name).clone(), *memory);
        }
        if all.len() > TYPES_MAX && all.len() > has {
            let problem = format!("a realm may have at most {TYPES_MAX} event types; it has {has}");
            return refuse("name", problem);
        }
        let (needs, limit) = (all.values().sum::<u64>(), self.event_types_memory());
        if needs > limit && needs > used {
            let problem = format!(
                "the event types of the realm would need {needs} bytes of memory, with schemas ready \
                 for use; the limit is {limit} (quotas.event_types_memory)"
            );
            return refuse("schemas", problem);
        }
        Ok(())
    }

    fn event_types_memory(&self) -> u64 {
        match self.inner.keeper.quotas().event_types_memory {
            0 => u64::MAX,
            limit => limit as u64,
        }
    }
}

/// Refuses an entry that cannot be used. The memory that it needs, otherwise. May take some hundredths of a second.
fn check(known: &KnownType) -> Result<u64> {
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
    let mut extent = Extent::default();
    for (version, schema) in &known.schemas {
        let found = bounds::check(schema).map_err(|e| Error::Schema {
            field: format!("schemas.{}{}", version.0, e.path),
            problem: e.problem,
        })?;
        extent = extent.plus(found);
    }
    if extent.parts > ENTRY_PARTS_MAX {
        let problem = format!(
            "all versions together come to {} schemas with every $ref written out; at most \
             {ENTRY_PARTS_MAX} are allowed",
            extent.parts
        );
        return refuse("schemas", problem);
    }
    // Before any of them is compiled.
    if extent.pattern_bytes > ENTRY_PATTERN_BYTES_MAX {
        let problem = format!(
            "the patterns of all versions together may need {} bytes of memory; at most \
             {ENTRY_PATTERN_BYTES_MAX} are allowed",
            extent.pattern_bytes
        );
        return refuse("schemas", problem);
    }
    for (version, schema) in &known.schemas {
        let field = || format!("schemas.{}", version.0);
        compiled::compile(schema).map_err(|problem| Error::Schema { field: field(), problem })?;
    }
    Ok(compiled::memory(known, extent))
}
