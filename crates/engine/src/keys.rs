//! API keys and tenants.

use std::sync::Arc;

use posthorn_domain::{ApiKey, KeyId, Scope, Tenant, TenantId, Timestamp, Topic, TopicName};
use posthorn_sealing::api_key;
use posthorn_store::CatalogChange;

use crate::engine::Engine;
use crate::error::{Error, Result};

/// A key that was just made. The text is shown once and kept nowhere.
#[derive(Clone)]
pub struct NewKey {
    /// The whole key.
    pub text: String,
    /// What is kept of it.
    pub key: Arc<ApiKey>,
}

/// Somebody who showed a valid key.
#[derive(Clone)]
pub struct Principal {
    /// The key.
    pub key: Arc<ApiKey>,
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
        let key = key.filter(|key| right && key.is_valid(self.now()))?;
        Some(Principal { key })
    }

    /// Makes a key.
    pub async fn create_key(
        &self,
        tenant: Option<TenantId>,
        scopes: Vec<Scope>,
        description: String,
        expires_at: Option<Timestamp>,
    ) -> Result<NewKey> {
        if scopes.contains(&Scope::Operator) != tenant.is_none() {
            return Err(Error::Event {
                field: "scopes",
                problem: "an operator key belongs to no tenant, any other key to one".to_owned(),
            });
        }
        let now = self.now();
        let id = self.inner.chance.key_id(now);
        let (secret, hash) = api_key::generate(id);
        let text = secret.expose_str().unwrap_or_default().to_owned();
        let key = ApiKey {
            id,
            tenant,
            description,
            scopes,
            hash,
            created_at: now,
            expires_at,
            revoked_at: None,
        };
        self.change(CatalogChange::CreateKey(key), false).await.map_err(|e| e.about("tenant"))?;
        let key = self.catalog().key(id).ok_or(Error::NotFound("key"))?;
        Ok(NewKey { text, key })
    }

    /// Revokes a key; it opens nothing from now on.
    pub async fn revoke_key(&self, id: KeyId) -> Result<()> {
        let at = self.now();
        self.change(CatalogChange::RevokeKey { id, at }, true).await.map_err(|e| e.about("key"))
    }

    /// Makes an operator key if there is none that works, so that a fresh server can be used.
    pub async fn bootstrap_key(&self) -> Result<Option<NewKey>> {
        let now = self.now();
        let usable = |key: &Arc<ApiKey>| {
            key.tenant.is_none() && key.scopes.contains(&Scope::Operator) && key.is_valid(now)
        };
        if self.catalog().keys().iter().any(usable) {
            return Ok(None);
        }
        let description = "made at the first start".to_owned();
        self.create_key(None, vec![Scope::Operator], description, None).await.map(Some)
    }

    /// Makes a tenant.
    pub async fn create_tenant(&self, name: String) -> Result<Tenant> {
        let now = self.now();
        let id = self.inner.chance.tenant_id(now);
        let tenant = Tenant { id, name, created_at: now };
        self.change(CatalogChange::CreateTenant(tenant), false)
            .await
            .map_err(|e| e.about("tenant"))?;
        self.catalog().tenant(id)
    }

    /// Makes or changes a topic.
    pub async fn put_topic(
        &self,
        tenant: TenantId,
        name: TopicName,
        description: String,
        attributes: Vec<String>,
    ) -> Result<Arc<Topic>> {
        let topic =
            Topic { tenant, name: name.clone(), description, attributes, created_at: self.now() };
        self.change(CatalogChange::PutTopic(topic), false).await.map_err(|e| e.about("tenant"))?;
        self.catalog().topic(tenant, &name)
    }

    /// Deletes a topic; events published on it stay.
    pub async fn delete_topic(&self, tenant: TenantId, name: TopicName) -> Result<()> {
        self.change(CatalogChange::DeleteTopic { tenant, name }, true)
            .await
            .map_err(|e| e.about("topic"))
    }
}
