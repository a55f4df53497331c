//! API keys and tenants.

use std::collections::HashMap;
use std::sync::Arc;

use posthorn_domain::{
    ApiKey, KeyId, Labels, Scope, Tenant, TenantId, Timestamp, Topic, TopicName,
};
use posthorn_sealing::api_key;
use posthorn_store::CatalogChange;

use crate::catalog::holdings::of_topic;
use crate::catalog::{Holdings, KnownKey};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::quotas::{Coming, check_description};

/// A key that was just made. The text is shown once and kept nowhere.
#[derive(Clone)]
pub struct NewKey {
    /// The whole key.
    pub text: String,
    /// What is kept of it.
    pub key: Arc<KnownKey>,
}

/// Somebody who showed a valid key.
#[derive(Clone)]
pub struct Principal {
    /// The key.
    pub key: Arc<KnownKey>,
}

impl Principal {
    /// Whether it may act for every tenant.
    pub fn is_operator(&self) -> bool {
        self.key.tenant.is_none() && self.key.scopes.contains(&Scope::Operator)
    }
}

impl Engine {
    /// Who shows this key? `None` for every key that is malformed, unknown, wrong, expired or
    /// revoked: the caller cannot tell which.
    pub fn authenticate(&self, text: &str) -> Option<Principal> {
        let (id, secret) = api_key::parse(text).ok()?;
        let key = self.catalog().key(id);
        // An unknown id costs the same comparison as a known one.
        let hash = key.as_ref().map_or([0; 32], |key| key.hash);
        let right = api_key::check(&secret, &hash);
        let now = self.now();
        let key = key.filter(|key| right && key.is_valid(now))?;
        key.touch(now);
        Some(Principal { key })
    }

    /// Makes a key.
    pub async fn create_key(
        &self,
        tenant: Option<TenantId>,
        scopes: Vec<Scope>,
        description: String,
        expires_at: Option<Timestamp>,
        rate_limit: Option<u32>,
    ) -> Result<NewKey> {
        if scopes.contains(&Scope::Operator) != tenant.is_none() {
            return Err(Error::Event {
                field: "scopes",
                problem: "an operator key belongs to no tenant, any other key to one".to_owned(),
            });
        }
        let id = self.inner.chance.key_id(self.now());
        self.create_key_as(id, tenant, scopes, description, expires_at, rate_limit).await
    }

    async fn create_key_as(
        &self,
        id: KeyId,
        tenant: Option<TenantId>,
        scopes: Vec<Scope>,
        description: String,
        expires_at: Option<Timestamp>,
        rate_limit: Option<u32>,
    ) -> Result<NewKey> {
        let (secret, hash) = api_key::generate(id);
        let text = secret.expose_str().unwrap_or_default().to_owned();
        let key = ApiKey {
            id,
            tenant,
            description,
            scopes,
            hash,
            created_at: self.now(),
            expires_at,
            revoked_at: None,
            rate_limit,
        };
        self.change(CatalogChange::CreateKey(key)).await.map_err(|e| e.about("tenant"))?;
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

    /// Revokes a key; it opens nothing from now on.
    pub async fn revoke_key(&self, id: KeyId) -> Result<()> {
        let at = self.now();
        self.change(CatalogChange::RevokeKey { id, at }).await.map_err(|e| e.about("key"))
    }

    /// Makes an operator key if there is none that works, so that a fresh server can be used.
    ///
    /// Nodes that start together on one empty store make one key between them: its id is a number
    /// that they all count to, and only one of them can take it.
    pub async fn bootstrap_key(&self) -> Result<Option<NewKey>> {
        let now = self.now();
        let keys = self.catalog().keys();
        let operator =
            |key: &&Arc<KnownKey>| key.tenant.is_none() && key.scopes.contains(&Scope::Operator);
        if keys.iter().filter(operator).any(|key| key.is_valid(now)) {
            return Ok(None);
        }
        let count = keys.iter().filter(operator).count();
        let id = KeyId::from_bytes((count as u128).to_be_bytes());
        let description = "made at the first start".to_owned();
        match self.create_key_as(id, None, vec![Scope::Operator], description, None, None).await {
            Ok(key) => Ok(Some(key)),
            Err(Error::AlreadyExists(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Makes a tenant.
    pub async fn create_tenant(&self, name: String) -> Result<Tenant> {
        let now = self.now();
        let id = self.inner.chance.tenant_id(now);
        let tenant = Tenant { id, name, created_at: now };
        self.change(CatalogChange::CreateTenant(tenant)).await.map_err(|e| e.about("tenant"))?;
        self.catalog().tenant(id)
    }

    /// The tenant with this name; made when there is none.
    pub async fn ensure_tenant(&self, name: &str) -> Result<Tenant> {
        if let Some(tenant) = self.catalog().tenant_named(name) {
            return Ok(tenant);
        }
        match self.create_tenant(name.to_owned()).await {
            Err(Error::AlreadyExists(_)) => {
                // Another node was faster.
                self.catalog().tenant_named(name).ok_or(Error::NotFound("tenant"))
            }
            other => other,
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
        self.change(CatalogChange::DeleteTopic { tenant, name }).await.map_err(|e| e.about("topic"))
    }
}
