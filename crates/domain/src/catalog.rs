//! The catalog: everything that changes rarely and is read for every event. Tenants, topics,
//! subscriptions and API keys. Each node keeps a copy in memory.
//!
//! Their JSON forms are what stores keep, and later versions read what earlier ones have written: a field
//! that is added has a default, and none is renamed.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    ClientName, ExternalId, Filter, JobId, KeyId, Labels, ProfileName, PushServiceTarget,
    PushTarget, RealmName, SecretName, Stops, SubscriptionId, SubscriptionName, TenantId,
    Timestamp, TopicName,
};

/// Grows with every change of the catalog. A tenant's version is that of its last change; an accept
/// that was planned on an older one is refused, so fan-out always belongs to the commit's snapshot.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct CatalogVersion(pub u64);

/// The isolation boundary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// Unique among all tenants.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// The realm it is in, for ever.
    #[serde(default)]
    pub realm: RealmName,
    /// What the customer calls it; unique in the realm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<ExternalId>,
    /// What the customer remembers of it.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// What else is remembered of it, by us and by dialects.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Attempts that all its subscriptions together may begin in a second, on each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliveries_per_second: Option<u32>,
    /// That it is being deleted, or was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
}

impl Tenant {
    /// One of the default realm, with nothing else said about it.
    pub fn new(id: TenantId, name: String, created_at: Timestamp) -> Self {
        Self {
            id,
            name,
            created_at,
            realm: RealmName::default(),
            external_id: None,
            metadata: Metadata::default(),
            labels: Labels::default(),
            deliveries_per_second: None,
            deletion: None,
        }
    }

    /// What is left of it when everything of it is gone: that it was there.
    pub fn tombstone(self) -> Self {
        let Self { id, created_at, realm, deletion, .. } = self;
        Self { realm, deletion, ..Self::new(id, String::new(), created_at) }
    }
}

/// Since when a tenant is being deleted, and by which job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// The job that removes what the tenant has.
    pub job: JobId,
    /// When somebody asked for it.
    pub at: Timestamp,
}

/// What is to change of a tenant; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantChange {
    /// Another name.
    pub name: Option<String>,
    /// Another external id, or none any more.
    pub external_id: Option<Option<ExternalId>>,
    /// Other metadata, in place of all there were.
    pub metadata: Option<Metadata>,
    /// Other labels, in place of all there were.
    pub labels: Option<Labels>,
    /// Another limit, or none of its own any more.
    pub deliveries_per_second: Option<Option<u32>>,
}

impl TenantChange {
    /// The tenant as it is with the change.
    pub fn apply(&self, tenant: Tenant) -> Tenant {
        let Self { name, external_id, metadata, labels, deliveries_per_second } = self.clone();
        Tenant {
            name: name.unwrap_or(tenant.name),
            external_id: external_id.unwrap_or(tenant.external_id),
            metadata: metadata.unwrap_or(tenant.metadata),
            labels: labels.unwrap_or(tenant.labels),
            deliveries_per_second: deliveries_per_second.unwrap_or(tenant.deliveries_per_second),
            ..tenant
        }
    }
}

/// Names and texts that somebody keeps with a tenant or a subscription; the engine does nothing with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Metadata(BTreeMap<String, String>);

/// That metadata are larger than they may be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metadata may have at most {max} bytes as JSON, these have {size}", max = Metadata::BYTES_MAX)]
pub struct MetadataError {
    /// How large they are.
    pub size: usize,
}

impl Metadata {
    /// The largest allowed, as JSON.
    pub const BYTES_MAX: usize = 4 << 10;

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryFrom<BTreeMap<String, String>> for Metadata {
    type Error = MetadataError;

    fn try_from(pairs: BTreeMap<String, String>) -> Result<Self, MetadataError> {
        let size = serde_json::to_vec(&pairs).map_or(usize::MAX, |text| text.len());
        if size > Self::BYTES_MAX { Err(MetadataError { size }) } else { Ok(Self(pairs)) }
    }
}

impl From<Metadata> for BTreeMap<String, String> {
    fn from(metadata: Metadata) -> Self {
        metadata.0
    }
}

/// A named stream of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topic {
    /// Whose.
    pub tenant: TenantId,
    /// Unique in the tenant.
    pub name: TopicName,
    /// For people.
    pub description: String,
    /// The attributes one may filter on; empty means any.
    pub attributes: Vec<String>,
    /// What else is remembered of it.
    pub labels: Labels,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Where deliveries of a subscription go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Destination {
    /// An HTTP endpoint.
    Webhook {
        /// Its normalised URL.
        url: String,
    },
    /// A channel of an agent of this server.
    Push(PushTarget),
    /// An endpoint of another push service.
    PushService(PushServiceTarget),
}

impl Destination {
    /// The URL of a webhook.
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Webhook { url } => Some(url),
            Self::Push(_) | Self::PushService(_) => None,
        }
    }
}

/// Whether a subscription takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum SubscriptionStatus {
    /// Events match it and are attempted.
    Active,
    /// Events match it; nothing is attempted until it is resumed. Set by its owner.
    Paused,
    /// Like paused, but set by Posthorn itself.
    Disabled {
        /// Why, in words.
        reason: String,
    },
}

impl SubscriptionStatus {
    /// Whether attempts may start.
    pub const fn is_active(&self) -> bool {
        matches!(self, Self::Active)
    }
}

/// A secret as it lies on disk. Only the sealing room can open it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedSecret {
    /// What policies call it.
    pub name: SecretName,
    /// Ciphertext.
    #[serde(with = "crate::base64_text")]
    pub sealed: Bytes,
    /// When it was made; the newest of a name is the current one.
    pub created_at: Timestamp,
    /// Until when it is used besides a newer one of the same name.
    pub expires_at: Option<Timestamp>,
}

impl std::fmt::Debug for SealedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedSecret").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Who wants which events, where and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// Its id.
    pub id: SubscriptionId,
    /// Whose.
    pub tenant: TenantId,
    /// What its makers call it; unique in the tenant among those that exist.
    pub name: Option<SubscriptionName>,
    /// For people.
    pub description: String,
    /// What else is remembered of it.
    pub labels: Labels,
    /// What the customer remembers of it.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// Where deliveries go.
    pub destination: Destination,
    /// Which events it wants.
    pub filter: Filter,
    /// The policy it names.
    pub profile: ProfileName,
    /// What it changes in that policy (a JSON merge patch), already validated.
    pub overrides: serde_json::Value,
    /// Its secrets, sealed.
    pub secrets: Vec<SealedSecret>,
    /// Whether it takes part.
    pub status: SubscriptionStatus,
    /// When it did not.
    pub stops: Stops,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// The catalog version of its last change, set by the store; also its entity tag.
    pub version: CatalogVersion,
}

impl Subscription {
    /// Gives it another status, and remembers since when it does or does not take part.
    pub fn turn(&mut self, status: SubscriptionStatus, now: Timestamp) {
        if status.is_active() {
            self.stops.go_on(now);
        } else {
            self.stops.stop(now);
        }
        self.status = status;
    }
}

/// A profile that was made or changed at run time, for one tenant. It stands before a profile of the
/// configuration with the same name, for all subscriptions of the tenant that name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantProfile {
    /// Whose.
    pub tenant: TenantId,
    /// Unique in the tenant.
    pub name: ProfileName,
    /// The profile of the configuration it changes.
    pub base: ProfileName,
    /// What it changes in that (a JSON merge patch), already validated.
    pub policy: serde_json::Value,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// Somebody who signs requests of a dialect with a secret that both sides know, as far as that was said
/// at run time: a secret, what it may do, or both. What is absent is as the configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Whose.
    pub tenant: TenantId,
    /// Unique in the tenant.
    pub name: ClientName,
    /// What its requests are signed with, sealed.
    #[serde(with = "crate::base64_text::maybe")]
    pub sealed_secret: Option<Bytes>,
    /// What it may do, in the dialect's words.
    pub scopes: Option<Vec<String>>,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// The version of its last change.
    pub version: CatalogVersion,
}

/// What an API key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Publish events.
    Publish,
    /// Manage topics and subscriptions, retry and cancel deliveries. Documents that were stored before 1.0
    /// have another word for it, which nobody may write any more.
    #[serde(alias = "subscriptions")]
    Manage,
    /// Read everything of the tenant.
    Read,
    /// Everything, in every tenant.
    Operator,
}

/// The public half of an API key, and the hash of the secret half.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Part of the key's text.
    pub id: KeyId,
    /// The tenant it is bound to; `None` for keys of realms and of operators.
    pub tenant: Option<TenantId>,
    /// The realm it is bound to: it acts for any tenant of it that it names. Never beside a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realm: Option<RealmName>,
    /// For people.
    pub description: String,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// SHA-256 of the secret half.
    #[serde(with = "crate::base64_text")]
    pub hash: [u8; 32],
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops working by itself.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Requests per second it may make, when it has a limit of its own.
    pub rate_limit: Option<u32>,
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiKey")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

impl ApiKey {
    /// Whether it opens anything at `now`.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| now < at)
    }

    /// Whether it is bound to nothing, as only those of operators are.
    pub const fn is_unbound(&self) -> bool {
        self.tenant.is_none() && self.realm.is_none()
    }

    /// Whether it may do this.
    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Operator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_of_earlier_documents_are_in_the_default_realm() {
        let text = r#"{"id":"ten_00000000000000000000000000","name":"default","created_at":"1970-01-01T00:00:00.000Z"}"#;
        let tenant: Tenant = serde_json::from_str(text).expect("an earlier document");
        let same = Tenant::new(TenantId::DEFAULT, "default".to_owned(), tenant.created_at);
        assert_eq!(tenant, same);
        assert!(tenant.realm.is_default());
    }

    #[test]
    fn metadata_have_a_size() {
        let pairs = |len| BTreeMap::from([("a".to_owned(), "x".repeat(len))]);
        let room = Metadata::BYTES_MAX - r#"{"a":""}"#.len();
        assert!(Metadata::try_from(pairs(room)).is_ok());
        let problem = Metadata::try_from(pairs(room + 1)).expect_err("one byte more");
        assert_eq!(problem.size, Metadata::BYTES_MAX + 1);
    }

    #[test]
    fn a_tombstone_says_only_that_it_was_there() {
        let deletion = Deletion {
            job: JobId::new(Timestamp::from_millis(1), 1),
            at: Timestamp::from_millis(5),
        };
        let tenant = Tenant {
            metadata: Metadata::try_from(BTreeMap::from([("a".to_owned(), "b".to_owned())]))
                .expect("small"),
            deliveries_per_second: Some(5),
            deletion: Some(deletion),
            ..Tenant::new(TenantId::DEFAULT, "acme".to_owned(), Timestamp::from_millis(0))
        };
        let left = tenant.tombstone();
        assert_eq!(
            (left.name.as_str(), left.metadata.is_empty(), left.deletion),
            ("", true, Some(deletion))
        );
    }

    #[test]
    fn what_was_stored_under_the_former_name_of_a_scope_is_read() {
        for text in [r#""manage""#, r#""subscriptions""#] {
            let scope: Scope = serde_json::from_str(text).expect(text);
            assert_eq!(scope, Scope::Manage);
            assert_eq!(serde_json::to_string(&scope).expect("JSON"), r#""manage""#);
        }
    }
}
