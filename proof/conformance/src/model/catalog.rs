//! The catalog of the model.

use std::collections::BTreeMap;

use posthorn_domain::{
    ApiKey, CatalogVersion, Certificate, CertificateId, CertificateKind, Client, ClientName, KeyId,
    ProfileName, Subscription, SubscriptionId, Tenant, TenantId, TenantProfile, Timestamp, Topic,
    TopicName,
};

use posthorn_store::{CatalogChange, CatalogDelta, Recall, Refusal, Standing, Streak, TenantEntry};

pub(super) struct Catalog {
    version: CatalogVersion,
    tenants: BTreeMap<TenantId, TenantEntry>,
    topics: BTreeMap<(TenantId, TopicName), Versioned<Option<Topic>>>,
    subscriptions: BTreeMap<SubscriptionId, StoredSubscription>,
    profiles: BTreeMap<(TenantId, ProfileName), Versioned<Option<TenantProfile>>>,
    clients: BTreeMap<(TenantId, ClientName), Versioned<Option<Client>>>,
    keys: BTreeMap<KeyId, Versioned<ApiKey>>,
    certificates: BTreeMap<CertificateId, StoredCertificate>,
    keys_used: BTreeMap<KeyId, Timestamp>,
    recalls: BTreeMap<CatalogVersion, (Timestamp, Vec<Recall>)>,
    pub(super) failing: BTreeMap<SubscriptionId, Streak>,
}

struct Versioned<T> {
    version: CatalogVersion,
    value: T,
}

struct StoredSubscription {
    subscription: Subscription,
    deleted_at: Option<Timestamp>,
}

struct StoredCertificate {
    certificate: Certificate,
    deleted: bool,
}

impl Default for Catalog {
    fn default() -> Self {
        let tenant = Tenant {
            id: TenantId::DEFAULT,
            name: "default".to_owned(),
            created_at: Timestamp::MIN,
        };
        let version = CatalogVersion(1);
        Self {
            version,
            tenants: BTreeMap::from([(tenant.id, TenantEntry { tenant, version })]),
            topics: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            profiles: BTreeMap::new(),
            clients: BTreeMap::new(),
            keys: BTreeMap::new(),
            certificates: BTreeMap::new(),
            keys_used: BTreeMap::new(),
            recalls: BTreeMap::new(),
            failing: BTreeMap::new(),
        }
    }
}

impl Catalog {
    /// Takes note of how a receiver stands.
    pub(super) fn stand(&mut self, Standing { subscription, failing }: Standing) {
        match failing {
            None => drop(self.failing.remove(&subscription)),
            Some(_) if self.deleted_at(subscription).is_some() => {}
            Some(streak) => {
                let known = self.failing.entry(subscription).or_insert(streak);
                *known = known.joined(&streak);
            }
        }
    }

    pub(super) fn version(&self) -> CatalogVersion {
        self.version
    }

    pub(super) fn tenant_version(&self, tenant: TenantId) -> Option<CatalogVersion> {
        self.tenants.get(&tenant).map(|entry| entry.version)
    }

    /// When a subscription was deleted, if it was.
    pub(super) fn deleted_at(&self, id: SubscriptionId) -> Option<Timestamp> {
        self.subscriptions.get(&id).and_then(|stored| stored.deleted_at)
    }

    pub(super) fn deleted(&self) -> impl Iterator<Item = SubscriptionId> {
        self.subscriptions.iter().filter(|(_, s)| s.deleted_at.is_some()).map(|(id, _)| *id)
    }

    /// Writes down whose copies are out of date, as a version of its own.
    pub(super) fn recall(&mut self, at: Timestamp, recalls: Vec<Recall>) -> Option<CatalogVersion> {
        if recalls.is_empty() {
            return None;
        }
        self.version = CatalogVersion(self.version.0 + 1);
        self.recalls.insert(self.version, (at, recalls));
        Some(self.version)
    }

    pub(super) fn prune_recalls(&mut self, before: Timestamp) {
        self.recalls.retain(|_, (at, _)| *at >= before);
    }

    pub(super) fn change(&mut self, change: CatalogChange) -> Result<CatalogVersion, Refusal> {
        let next = CatalogVersion(self.version.0 + 1);
        let tenant = match change {
            CatalogChange::CreateTenant(tenant) => {
                let taken =
                    |e: &TenantEntry| e.tenant.id == tenant.id || e.tenant.name == tenant.name;
                if self.tenants.values().any(taken) {
                    return Err(Refusal::AlreadyExists);
                }
                let id = tenant.id;
                self.tenants.insert(id, TenantEntry { tenant, version: next });
                Some(id)
            }
            CatalogChange::CreateTopic(topic) => {
                self.known(topic.tenant)?;
                let key = (topic.tenant, topic.name.clone());
                if self.topics.get(&key).is_some_and(|topic| topic.value.is_some()) {
                    return Err(Refusal::AlreadyExists);
                }
                let tenant = topic.tenant;
                self.topics.insert(key, Versioned { version: next, value: Some(topic) });
                Some(tenant)
            }
            CatalogChange::PutTopic(mut topic) => {
                self.known(topic.tenant)?;
                let key = (topic.tenant, topic.name.clone());
                if let Some(Versioned { value: Some(old), .. }) = self.topics.get(&key) {
                    topic.created_at = old.created_at;
                }
                let tenant = topic.tenant;
                self.topics.insert(key, Versioned { version: next, value: Some(topic) });
                Some(tenant)
            }
            CatalogChange::DeleteTopic { tenant, name } => {
                let stored = self.topics.get_mut(&(tenant, name)).filter(|t| t.value.is_some());
                *stored.ok_or(Refusal::NotFound)? = Versioned { version: next, value: None };
                Some(tenant)
            }
            CatalogChange::CreateSubscription(mut subscription) => {
                self.known(subscription.tenant)?;
                if self.subscriptions.contains_key(&subscription.id) {
                    return Err(Refusal::AlreadyExists);
                }
                self.free_name(&subscription)?;
                subscription.version = next;
                let (id, tenant) = (subscription.id, subscription.tenant);
                let stored = StoredSubscription { subscription: *subscription, deleted_at: None };
                self.subscriptions.insert(id, stored);
                Some(tenant)
            }
            CatalogChange::UpdateSubscription { subscription, expected } => {
                let stored = self.live(subscription.tenant, subscription.id)?;
                let current = stored.subscription.version;
                if expected.is_some_and(|expected| expected != current) {
                    return Err(Refusal::VersionMismatch { current });
                }
                let created_at = stored.subscription.created_at;
                let tenant = subscription.tenant;
                self.free_name(&subscription)?;
                let stored = self.live(tenant, subscription.id)?;
                if subscription.status.is_active() && !stored.subscription.status.is_active() {
                    self.failing.remove(&subscription.id);
                }
                let stored = self.live(tenant, subscription.id)?;
                stored.subscription = Subscription { created_at, version: next, ..*subscription };
                Some(tenant)
            }
            CatalogChange::DeleteSubscription { tenant, id, at } => {
                let stored = self.live(tenant, id)?;
                stored.deleted_at = Some(at);
                stored.subscription.version = next;
                self.failing.remove(&id);
                Some(tenant)
            }
            CatalogChange::PutProfile(profile) => {
                self.known(profile.tenant)?;
                let key = (profile.tenant, profile.name.clone());
                let tenant = profile.tenant;
                self.profiles.insert(key, Versioned { version: next, value: Some(profile) });
                Some(tenant)
            }
            CatalogChange::DeleteProfile { tenant, name } => {
                let stored = self.profiles.get_mut(&(tenant, name)).filter(|p| p.value.is_some());
                *stored.ok_or(Refusal::NotFound)? = Versioned { version: next, value: None };
                Some(tenant)
            }
            CatalogChange::PutClient { client, expected } => {
                self.known(client.tenant)?;
                let key = (client.tenant, client.name.clone());
                let stored = self.clients.get(&key).filter(|stored| stored.value.is_some());
                let current = stored.map_or(CatalogVersion(0), |stored| stored.version);
                if current != expected {
                    return Err(Refusal::VersionMismatch { current });
                }
                let client = Client { version: next, ..*client };
                let tenant = client.tenant;
                self.clients.insert(key, Versioned { version: next, value: Some(client) });
                Some(tenant)
            }
            CatalogChange::DeleteClient { tenant, name } => {
                let stored = self.clients.get_mut(&(tenant, name)).filter(|c| c.value.is_some());
                *stored.ok_or(Refusal::NotFound)? = Versioned { version: next, value: None };
                Some(tenant)
            }
            CatalogChange::CreateKey(key) => self.create_key(key, next)?,
            CatalogChange::CreateFirstKey(key) => {
                let now = key.created_at;
                if self.operator_keys().any(|other| other.is_valid(now)) {
                    return Err(Refusal::AlreadyExists);
                }
                self.create_key(key, next)?
            }
            CatalogChange::RevokeKey { id, at } => {
                let key = &self.keys.get(&id).ok_or(Refusal::NotFound)?.value;
                if key.revoked_at.is_some() {
                    return Ok(self.version);
                }
                let end = key.expires_at;
                let outlasts = |other: &ApiKey| match (other.expires_at, end) {
                    (None, _) => true,
                    (Some(_), None) => false,
                    (Some(other), Some(end)) => other >= end,
                };
                let other = |other: &ApiKey| other.id != id && other.revoked_at.is_none();
                let outlasted = self.operator_keys().any(|key| other(key) && outlasts(key));
                if key.tenant.is_none() && key.is_valid(at) && !outlasted {
                    return Err(Refusal::LastOperatorKey);
                }
                let stored = self.keys.get_mut(&id).ok_or(Refusal::NotFound)?;
                stored.value.revoked_at = Some(at);
                stored.version = next;
                stored.value.tenant
            }
            CatalogChange::CreateCertificate(certificate) => {
                self.known(certificate.tenant)?;
                if self.certificates.contains_key(&certificate.id) {
                    return Err(Refusal::AlreadyExists);
                }
                self.free_thumbprint(&certificate)?;
                let (id, tenant) = (certificate.id, certificate.tenant);
                let certificate = Certificate { version: next, ..*certificate };
                self.certificates.insert(id, StoredCertificate { certificate, deleted: false });
                Some(tenant)
            }
            CatalogChange::UpdateCertificate { certificate, expected } => {
                let old = self.live_certificate(certificate.tenant, certificate.id)?;
                let current = old.certificate.version;
                if expected != current {
                    return Err(Refusal::VersionMismatch { current });
                }
                let certificate = Certificate {
                    kind: old.certificate.kind,
                    created_at: old.certificate.created_at,
                    revoked_at: old.certificate.revoked_at,
                    version: next,
                    ..*certificate
                };
                self.free_thumbprint(&certificate)?;
                let (tenant, id) = (certificate.tenant, certificate.id);
                self.live_certificate(tenant, id)?.certificate = certificate;
                Some(tenant)
            }
            CatalogChange::RevokeCertificate { tenant, id, at } => {
                let version = self.version;
                let stored = self.live_certificate(tenant, id)?;
                if stored.certificate.revoked_at.is_some() {
                    return Ok(version);
                }
                stored.certificate.revoked_at = Some(at);
                stored.certificate.version = next;
                Some(tenant)
            }
            CatalogChange::DeleteCertificate { tenant, id } => {
                let stored = self.live_certificate(tenant, id)?;
                stored.deleted = true;
                stored.certificate.sealed_key = None;
                stored.certificate.version = next;
                Some(tenant)
            }
        };
        self.version = next;
        if let Some(entry) = tenant.and_then(|tenant| self.tenants.get_mut(&tenant)) {
            entry.version = next;
        }
        Ok(next)
    }

    fn operator_keys(&self) -> impl Iterator<Item = &ApiKey> {
        self.keys.values().map(|stored| &stored.value).filter(|key| key.tenant.is_none())
    }

    fn create_key(
        &mut self,
        key: ApiKey,
        next: CatalogVersion,
    ) -> Result<Option<TenantId>, Refusal> {
        if let Some(tenant) = key.tenant {
            self.known(tenant)?;
        }
        if self.keys.contains_key(&key.id) {
            return Err(Refusal::AlreadyExists);
        }
        let tenant = key.tenant;
        self.keys.insert(key.id, Versioned { version: next, value: key });
        Ok(tenant)
    }

    pub(super) fn touch_keys(&mut self, uses: Vec<(KeyId, Timestamp)>) {
        for (id, at) in uses.into_iter().filter(|(id, _)| self.keys.contains_key(id)) {
            let last = self.keys_used.entry(id).or_insert(at);
            *last = at.max(*last);
        }
    }

    pub(super) fn keys_used(&self) -> Vec<(KeyId, Timestamp)> {
        self.keys_used.iter().map(|(id, at)| (*id, *at)).collect()
    }

    fn known(&self, tenant: TenantId) -> Result<(), Refusal> {
        self.tenants.get(&tenant).map(|_| ()).ok_or(Refusal::NotFound)
    }

    fn live(
        &mut self,
        tenant: TenantId,
        id: SubscriptionId,
    ) -> Result<&mut StoredSubscription, Refusal> {
        self.subscriptions
            .get_mut(&id)
            .filter(|s| s.subscription.tenant == tenant && s.deleted_at.is_none())
            .ok_or(Refusal::NotFound)
    }

    /// A name stands for one subscription of a tenant at a time.
    fn free_name(&self, new: &Subscription) -> Result<(), Refusal> {
        let taken = self.subscriptions.values().any(|stored| {
            let old = &stored.subscription;
            stored.deleted_at.is_none()
                && old.id != new.id
                && old.tenant == new.tenant
                && old.name == new.name
        });
        if new.name.is_some() && taken { Err(Refusal::AlreadyExists) } else { Ok(()) }
    }

    fn live_certificate(
        &mut self,
        tenant: TenantId,
        id: CertificateId,
    ) -> Result<&mut StoredCertificate, Refusal> {
        self.certificates
            .get_mut(&id)
            .filter(|stored| stored.certificate.tenant == tenant && !stored.deleted)
            .ok_or(Refusal::NotFound)
    }

    /// A caller is told by its thumbprint, so two of them cannot have the same.
    fn free_thumbprint(&self, new: &Certificate) -> Result<(), Refusal> {
        let taken = self.certificates.values().any(|stored| {
            let old = &stored.certificate;
            !stored.deleted
                && old.id != new.id
                && old.kind == CertificateKind::Caller
                && old.thumbprint == new.thumbprint
        });
        match new.kind {
            CertificateKind::Caller if taken => Err(Refusal::AlreadyExists),
            _ => Ok(()),
        }
    }

    pub(super) fn since(&self, since: CatalogVersion) -> CatalogDelta {
        let mut delta = CatalogDelta { version: self.version, ..CatalogDelta::default() };
        delta.tenants.extend(self.tenants.values().filter(|e| e.version > since).cloned());
        for ((tenant, name), stored) in self.topics.iter().filter(|(_, t)| t.version > since) {
            match &stored.value {
                Some(topic) => delta.topics.push(topic.clone()),
                None => delta.removed_topics.push((*tenant, name.clone())),
            }
        }
        for (id, stored) in &self.subscriptions {
            if stored.subscription.version > since {
                match stored.deleted_at {
                    None => delta.subscriptions.push(stored.subscription.clone()),
                    Some(_) => {
                        delta.removed_subscriptions.push((stored.subscription.tenant, *id));
                    }
                }
            }
        }
        for ((tenant, name), stored) in self.profiles.iter().filter(|(_, p)| p.version > since) {
            match &stored.value {
                Some(profile) => delta.profiles.push(profile.clone()),
                None => delta.removed_profiles.push((*tenant, name.clone())),
            }
        }
        for ((tenant, name), stored) in self.clients.iter().filter(|(_, c)| c.version > since) {
            match &stored.value {
                Some(client) => delta.clients.push(client.clone()),
                None => delta.removed_clients.push((*tenant, name.clone())),
            }
        }
        let keys = self.keys.values().filter(|key| key.version > since);
        delta.keys.extend(keys.map(|key| key.value.clone()));
        for (id, stored) in &self.certificates {
            if stored.certificate.version > since {
                match stored.deleted {
                    false => delta.certificates.push(stored.certificate.clone()),
                    true => {
                        delta.removed_certificates.push((stored.certificate.tenant, *id));
                    }
                }
            }
        }
        if since > CatalogVersion(0) {
            let newer = self.recalls.iter().filter(|(version, _)| **version > since);
            delta.recalls.extend(newer.flat_map(|(_, (_, recalls))| recalls.iter().copied()));
        }
        delta
    }
}
