//! API keys, and topics.

use std::collections::HashMap;
use std::sync::Arc;

use posthorn_domain::{
    ApiKey, KeyId, Labels, RealmName, Scope, Tenant, TenantId, Timestamp, Topic, TopicName,
};
use posthorn_sealing::api_key;
use posthorn_sealing::vault::Secret;
use posthorn_store::CatalogChange;

use crate::catalog::holdings::of_topic;
use crate::catalog::{Holdings, KnownKey};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::quotas::{Coming, check_description};

/// The reserved topic is nobody's to change.
fn check_topic(name: &TopicName) -> Result<()> {
    if name.is_reserved() { Err(Error::TopicReserved(name.clone())) } else { Ok(()) }
}

/// A key that was just made. The text is shown once and kept nowhere.
#[derive(Clone)]
pub struct NewKey {
    /// The whole key.
    pub text: String,
    /// What is kept of it.
    pub key: Arc<KnownKey>,
}

/// Whom a key may act for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// One tenant.
    Tenant(TenantId),
    /// Every tenant of a realm that it names.
    Realm(RealmName),
    /// Everybody: the key of an operator.
    Nobody,
}

impl From<Option<TenantId>> for Bound {
    fn from(tenant: Option<TenantId>) -> Self {
        tenant.map_or(Self::Nobody, Self::Tenant)
    }
}

/// Somebody who showed a valid key.
#[derive(Clone)]
pub struct Principal {
    /// The key.
    pub key: Arc<KnownKey>,
    /// Whether it stands for a certificate that was shown.
    pub(crate) certificate: bool,
    /// Whether it may act for every tenant with the scopes it has, without being an operator: somebody in a session
    /// who is bound to nobody. There is no such key.
    pub(crate) everywhere: bool,
}

impl Principal {
    /// Whether it may act for every tenant.
    pub fn is_operator(&self) -> bool {
        self.key.is_unbound() && self.key.scopes.contains(&Scope::Operator)
    }

    /// Whether it may act for a tenant: it is an operator, or the key is the tenant's own or that of its realm. What
    /// operators are told is about all realms, so the key of one does not open the system tenant.
    pub fn acts_for(&self, tenant: &Tenant) -> bool {
        let of_realm = || tenant.id != TenantId::SYSTEM && self.realm() == Some(&tenant.realm);
        let anywhere = || tenant.id != TenantId::SYSTEM && self.is_everywhere();
        self.is_operator() || self.key.tenant == Some(tenant.id) || of_realm() || anywhere()
    }

    /// Whether it may act for every tenant, with the scopes it has.
    pub fn is_everywhere(&self) -> bool {
        self.is_operator() || (self.everywhere && self.key.is_unbound())
    }

    /// The realm whose tenants it may act for, if it is bound to one.
    pub fn realm(&self) -> Option<&RealmName> {
        self.key.realm.as_ref()
    }
}

impl Engine {
    /// Who shows this key? `None` for every key that is malformed, unknown, wrong, expired or
    /// revoked: the caller cannot tell which.
    pub fn authenticate(&self, text: &str) -> Option<Principal> {
        let now = self.now();
        let key = self.key_of(text, now)?;
        key.touch(now);
        Some(Principal { key, certificate: false, everywhere: false })
    }

    /// Whether a key opens anything, without counting as a use of it.
    pub fn knows_key(&self, text: &str) -> bool {
        self.key_of(text, self.now()).is_some()
    }

    fn key_of(&self, text: &str, now: Timestamp) -> Option<Arc<KnownKey>> {
        let (id, secret) = api_key::parse(text).ok()?;
        let key = self.catalog().key(id);
        // An unknown id costs the same comparison as a known one.
        let hash = key.as_ref().map_or([0; 32], |key| key.hash);
        let right = api_key::check(&secret, &hash);
        key.filter(|key| right && key.is_valid(now))
    }

    /// Makes a key.
    pub async fn create_key(
        &self,
        bound: impl Into<Bound>,
        scopes: Vec<Scope>,
        description: String,
        expires_at: Option<Timestamp>,
        rate_limit: Option<u32>,
    ) -> Result<NewKey> {
        let bound = bound.into();
        if scopes.contains(&Scope::Operator) != (bound == Bound::Nobody) {
            let problem = "an operator key has no tenant and no realm; every other key needs one";
            return Err(Error::Event { field: "scopes", problem: problem.to_owned() });
        }
        let (tenant, realm) = match bound {
            Bound::Tenant(tenant) => (Some(tenant), None),
            Bound::Realm(realm) => (None, Some(realm)),
            Bound::Nobody => (None, None),
        };
        let about = if realm.is_some() { "realm" } else { "tenant" };
        let id = self.inner.chance.key_id(self.now());
        let (secret, hash) = api_key::generate(id);
        let text = secret.expose_str().unwrap_or_default().to_owned();
        let key = ApiKey {
            id,
            tenant,
            realm,
            description,
            scopes,
            hash,
            created_at: self.now(),
            expires_at,
            revoked_at: None,
            rate_limit,
        };
        self.change(CatalogChange::CreateKey(key)).await.map_err(|e| e.about(about))?;
        let key = self.catalog().key(id).ok_or(Error::NotFound("key"))?;
        Ok(NewKey { text, key })
    }

    /// When each key was last used, on any node, to the minute. What other nodes saw in the last
    /// minute or so may be missing.
    pub async fn keys_used(&self) -> Result<HashMap<KeyId, Timestamp>> {
        let mut used: HashMap<KeyId, Timestamp> =
            self.store().keys_used().await?.into_iter().collect();
        for key in self.catalog().keys() {
            if let Some(at) = key.used_at() {
                let last = used.entry(key.id).or_insert(at);
                *last = at.max(*last);
            }
        }
        Ok(used)
    }

    /// Revokes a key; it opens nothing from now on, and neither do sessions and links that were made with it. The last operator key is not revoked, nor the one
    /// that works longest: [`Error::LastOperatorKey`].
    pub async fn revoke_key(&self, id: KeyId) -> Result<()> {
        let at = self.now();
        self.change(CatalogChange::RevokeKey { id, at }).await.map_err(|e| e.about("key"))?;
        self.tidy_sessions(id).await;
        Ok(())
    }

    /// Whether somebody can manage this server: there is an operator key that works.
    pub fn has_operator_key(&self) -> bool {
        let now = self.now();
        let operator = |key: &Arc<KnownKey>| {
            key.is_unbound() && key.scopes.contains(&Scope::Operator) && key.is_valid(now)
        };
        self.catalog().keys().iter().any(operator)
    }

    /// A fresh text for an operator key. It opens nothing until [`Engine::bootstrap_key`] has taken it
    /// in, so that it can be put into a safe place first.
    pub fn draft_key(&self) -> Secret {
        api_key::generate(self.inner.chance.key_id(self.now())).0
    }

    /// Takes in the text of an operator key, unless there is one that works: what a fresh server is
    /// managed with. Returns whether it did. However many nodes try on one store, one of them does;
    /// and whoever repeats it with the same text after a crash finds it done or does it.
    pub async fn bootstrap_key(&self, text: &str) -> Result<bool> {
        let (id, secret) = api_key::parse(text)
            .map_err(|e| Error::Event { field: "key", problem: e.to_string() })?;
        if self.has_operator_key() {
            return Ok(false);
        }
        let key = ApiKey {
            id,
            tenant: None,
            realm: None,
            description: "created at the first start".to_owned(),
            scopes: vec![Scope::Operator],
            hash: api_key::hash(secret.expose()),
            created_at: self.now(),
            expires_at: None,
            revoked_at: None,
            rate_limit: None,
        };
        match self.change(CatalogChange::CreateFirstKey(key)).await {
            Ok(()) => Ok(true),
            Err(Error::AlreadyExists(_)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Makes a topic. When there is one of that name, on whatever node it was made, nothing changes and
    /// the answer is [`Error::AlreadyExists`].
    pub async fn create_topic(
        &self,
        tenant: TenantId,
        name: TopicName,
        description: String,
        attributes: Vec<String>,
        labels: Labels,
    ) -> Result<Arc<Topic>> {
        let created_at = self.now();
        let topic =
            Topic { tenant, name: name.clone(), description, attributes, labels, created_at };
        let _coming = self.admit_topic(&topic)?;
        self.change(CatalogChange::CreateTopic(topic)).await.map_err(|e| match e {
            Error::NotFound(_) => Error::NotFound("tenant"),
            other => other.about("topic"),
        })?;
        self.catalog().topic(tenant, &name)
    }

    /// Makes or changes a topic.
    pub async fn put_topic(
        &self,
        tenant: TenantId,
        name: TopicName,
        description: String,
        attributes: Vec<String>,
        labels: Labels,
    ) -> Result<Arc<Topic>> {
        let created_at = self.now();
        let topic =
            Topic { tenant, name: name.clone(), description, attributes, labels, created_at };
        let _coming = self.admit_topic(&topic)?;
        self.change(CatalogChange::PutTopic(topic)).await.map_err(|e| e.about("tenant"))?;
        self.catalog().topic(tenant, &name)
    }

    /// Lets a topic in, if its tenant may have what it adds.
    fn admit_topic(&self, topic: &Topic) -> Result<Coming> {
        check_topic(&topic.name)?;
        check_description(&topic.description)?;
        let bytes = of_topic(topic);
        let more = match self.catalog().topic(topic.tenant, &topic.name) {
            Ok(old) => {
                let bytes = bytes.saturating_sub(of_topic(&old));
                Holdings { bytes, ..Holdings::default() }
            }
            Err(_) => Holdings::topic(bytes),
        };
        self.inner.keeper.admit(topic.tenant, more)
    }

    /// Deletes a topic; events published on it stay.
    pub async fn delete_topic(&self, tenant: TenantId, name: TopicName) -> Result<()> {
        check_topic(&name)?;
        self.change(CatalogChange::DeleteTopic { tenant, name }).await.map_err(|e| e.about("topic"))
    }
}
