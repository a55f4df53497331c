//! Realms: groups of tenants that share event types, keys and defaults. One realm is one environment of a
//! platform.
//!
//! Like everything of the catalog, their JSON forms are what stores keep: a field that is added has a default.
//!
//! # What it must not know
//! How a payload is compared with a schema: that is the engine's affair.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{EventType, ProfileName, RealmName, Timestamp};

/// A group of tenants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Realm {
    /// Unique among all realms.
    pub name: RealmName,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// What its tenants have when they say nothing else.
    #[serde(default)]
    pub defaults: RealmDefaults,
    /// What is checked of events before they are accepted.
    #[serde(default)]
    pub validation: Validation,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

impl Realm {
    /// One with nothing said about it.
    pub fn new(name: RealmName, created_at: Timestamp) -> Self {
        Self {
            name,
            description: String::new(),
            defaults: RealmDefaults::default(),
            validation: Validation::default(),
            created_at,
            updated_at: created_at,
        }
    }
}

/// What tenants of a realm have when they say nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RealmDefaults {
    /// The profile of new subscriptions that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileName>,
    /// `deliveries_per_second` of tenants that have none of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliveries_per_second: Option<u32>,
}

/// What is checked of events of a realm before they are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Validation {
    /// Nothing.
    #[default]
    Off,
    /// That their type is in the catalogue, and not archived.
    Known,
    /// The same, and that their payload fits a schema of the type, if it has any.
    Schema,
}

impl Validation {
    /// As it is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Known => "known",
            Self::Schema => "schema",
        }
    }
}

/// The number of a version of a schema, as it is written: from 1 on, without leading zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SchemaVersion(pub u32);

/// That a text is not the number of a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no version of a schema; versions are numbers from 1 on")]
pub struct SchemaVersionError(String);

impl TryFrom<String> for SchemaVersion {
    type Error = SchemaVersionError;

    fn try_from(text: String) -> Result<Self, SchemaVersionError> {
        match text.parse::<u32>() {
            Ok(number) if number > 0 && number.to_string() == text => Ok(Self(number)),
            _ => Err(SchemaVersionError(text)),
        }
    }
}

impl From<SchemaVersion> for String {
    fn from(version: SchemaVersion) -> Self {
        version.0.to_string()
    }
}

/// An entry of the catalogue of event types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownType {
    /// Whose.
    pub realm: RealmName,
    /// Unique in the realm.
    pub name: EventType,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// What it belongs to, for people who look for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// JSON Schemas of its payload, by version.
    #[serde(default)]
    pub schemas: BTreeMap<SchemaVersion, Value>,
    /// Payloads as they may be.
    #[serde(default)]
    pub examples: Vec<Value>,
    /// Whether it is kept only so that it is known: no more events of it are expected.
    #[serde(default)]
    pub archived: bool,
    /// Whether publishers should use another.
    #[serde(default)]
    pub deprecated: bool,
    /// Who may see it where callers have flags: those with one of these, or everybody when there are none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub feature_flags: BTreeSet<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// Flags of an event type at most.
const FEATURE_FLAGS_MAX: usize = 20;
/// Their bytes.
const FEATURE_FLAG_BYTES_MAX: usize = 100;

/// What is wrong with the flags of an event type, if anything is.
pub fn check_feature_flags(flags: &BTreeSet<String>) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = |own: &String| {
        !own.is_empty() && own.len() <= FEATURE_FLAG_BYTES_MAX && own.chars().all(plain)
    };
    if flags.len() > FEATURE_FLAGS_MAX || !flags.iter().all(fits) {
        return Err(format!(
            "must be at most {FEATURE_FLAGS_MAX}, each of 1 to {FEATURE_FLAG_BYTES_MAX} characters of \
             A-Z a-z 0-9 - _ ."
        ));
    }
    Ok(())
}

impl KnownType {
    /// Whether another says the same, whenever it was written.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let Self { created_at, updated_at, .. } = *self;
        Self { created_at, updated_at, ..other.clone() } == *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_from_one_on() {
        let read = |text: &str| SchemaVersion::try_from(text.to_owned());
        assert_eq!(read("12"), Ok(SchemaVersion(12)));
        for bad in ["", "0", "01", "+1", "-1", "1.0", "v1", "4294967296"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn documents_read_back_and_lack_nothing_but_their_names() {
        let at = Timestamp::from_millis(0);
        let text = r#"{"realm":"default","name":"a.b","created_at":"1970-01-01T00:00:00.000Z","updated_at":"1970-01-01T00:00:00.000Z"}"#;
        let known: KnownType = serde_json::from_str(text).expect("a document");
        let again = serde_json::to_string(&known).expect("JSON");
        assert_eq!(serde_json::from_str::<KnownType>(&again).expect("its own text"), known);
        assert!(
            known.says_the_same(&KnownType {
                updated_at: Timestamp::from_millis(9),
                ..known.clone()
            })
        );
        assert!(!known.says_the_same(&KnownType { archived: true, ..known.clone() }));
        let realm = Realm::new(RealmName::default(), at);
        let text = serde_json::to_string(&realm).expect("JSON");
        assert_eq!(serde_json::from_str::<Realm>(&text).expect("its own text"), realm);
    }
}
