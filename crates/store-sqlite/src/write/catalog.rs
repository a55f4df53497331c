//! Changes of the catalog.

use posthorn_domain::{
    ApiKey, CatalogVersion, KeyId, Shard, Subscription, SubscriptionId, SubscriptionName, Tenant,
    TenantId, Timestamp, Topic, TopicName,
};
use posthorn_store::{CatalogChange, Refusal};
use rusqlite::{OptionalExtension, ToSql, params};

use crate::cache::{KnownSubscription, KnownTenant};
use crate::codec::{int, json, subscription_no};
use crate::error::Failure;
use crate::sql;
use crate::writer::Writer;

/// Applies one change; the new version.
pub(crate) fn change(
    writer: &mut Writer,
    change: &CatalogChange,
) -> Result<CatalogVersion, Failure> {
    let next = CatalogVersion(writer.cache.version.0 + 1);
    let mut catalog = Change { writer, next };
    let tenant = match change {
        CatalogChange::CreateTenant(tenant) => catalog.create_tenant(tenant)?,
        CatalogChange::CreateTopic(topic) => catalog.create_topic(topic)?,
        CatalogChange::PutTopic(topic) => catalog.put_topic(topic)?,
        CatalogChange::DeleteTopic { tenant, name } => catalog.delete_topic(*tenant, name)?,
        CatalogChange::CreateSubscription(subscription) => catalog.subscribe(subscription)?,
        CatalogChange::UpdateSubscription { subscription, expected } => {
            catalog.update_subscription(subscription, *expected)?
        }
        CatalogChange::DeleteSubscription { tenant, id, at } => {
            catalog.unsubscribe(*tenant, *id, *at)?
        }
        CatalogChange::PutProfile(profile) => catalog.put_profile(profile)?,
        CatalogChange::DeleteProfile { tenant, name } => catalog.delete_profile(*tenant, name)?,
        CatalogChange::CreateKey(key) => catalog.create_key(key)?,
        CatalogChange::RevokeKey { id, at } => {
            match catalog.revoke_key(id.as_bytes().as_slice(), *at)? {
                Some(tenant) => tenant,
                None => return Ok(writer.cache.version),
            }
        }
        CatalogChange::CreateCertificate(certificate) => catalog.create_certificate(certificate)?,
        CatalogChange::UpdateCertificate { certificate, expected } => {
            catalog.update_certificate(certificate, *expected)?
        }
        CatalogChange::RevokeCertificate { tenant, id, at } => {
            match catalog.revoke_certificate(*tenant, *id, *at)? {
                Some(tenant) => Some(tenant),
                None => return Ok(writer.cache.version),
            }
        }
        CatalogChange::DeleteCertificate { tenant, id } => {
            catalog.delete_certificate(*tenant, *id)?
        }
    };
    let conn = &writer.conn;
    conn.execute("update store set catalog_version = ?1", [int(next.0)])?;
    writer.cache.version = next;
    if let Some(tenant) = tenant {
        conn.execute("update tenant set version = ?2 where no = ?1", [tenant, int(next.0)])?;
        for known in writer.cache.tenants.values_mut().filter(|known| known.no == tenant) {
            known.version = next;
        }
    }
    Ok(next)
}

/// Writes down when keys were last used.
pub(crate) fn touch_keys(writer: &Writer, uses: &[(KeyId, Timestamp)]) -> Result<(), Failure> {
    // The `where` keeps sqlite from reading `on` as part of a join.
    let mut statement = writer.conn.prepare_cached(
        "insert into key_use (key, used_at) select id, ?2 from api_key where id = ?1 \
         on conflict do update set used_at = max(used_at, excluded.used_at)",
    )?;
    for (id, at) in uses {
        statement.execute(params![id.as_bytes().as_slice(), at.as_millis()])?;
    }
    Ok(())
}

/// A change under way. Each method returns the number of the tenant that changed.
pub(super) struct Change<'w> {
    pub(super) writer: &'w mut Writer,
    pub(super) next: CatalogVersion,
}

impl Change<'_> {
    pub(super) fn tenant(&self, id: TenantId) -> Result<i64, Failure> {
        Ok(self.writer.cache.tenants.get(&id).ok_or(Refusal::NotFound)?.no)
    }

    pub(super) fn exists(&self, sql: &str, values: &[&dyn ToSql]) -> Result<bool, Failure> {
        Ok(self.writer.conn.prepare_cached(sql)?.exists(values)?)
    }

    fn create_tenant(&mut self, tenant: &Tenant) -> Result<Option<i64>, Failure> {
        let id = tenant.id.as_bytes().as_slice();
        let taken = "select 1 from tenant where id = ?1 or name = ?2";
        if self.exists(taken, &[&id, &tenant.name])? {
            return Err(Refusal::AlreadyExists.into());
        }
        let conn = &self.writer.conn;
        conn.execute(
            "insert into tenant (id, name, created_at, version) values (?1, ?2, ?3, ?4)",
            params![id, tenant.name, tenant.created_at.as_millis(), int(self.next.0)],
        )?;
        let no = conn.last_insert_rowid();
        self.writer.cache.tenants.insert(tenant.id, KnownTenant { no, version: self.next });
        Ok(Some(no))
    }

    fn create_topic(&mut self, topic: &Topic) -> Result<Option<i64>, Failure> {
        let tenant = self.tenant(topic.tenant)?;
        let taken = self.writer.conn.query_row(
            "select exists (select 1 from topic where tenant = ?1 and name = ?2 and deleted = 0)",
            params![tenant, topic.name.as_str()],
            |row| row.get::<_, bool>(0),
        )?;
        if taken { Err(Refusal::AlreadyExists.into()) } else { self.put_topic(topic) }
    }

    fn put_topic(&mut self, topic: &Topic) -> Result<Option<i64>, Failure> {
        let tenant = self.tenant(topic.tenant)?;
        // One that is gone is born anew.
        self.writer.conn.execute(
            "insert into topic (tenant, name, description, attributes, created_at, version, \
             labels) values (?1, ?2, ?3, ?4, ?5, ?6, ?7) on conflict do update set \
             description = excluded.description, attributes = excluded.attributes, \
             labels = excluded.labels, \
             created_at = iif(deleted, excluded.created_at, created_at), \
             version = excluded.version, deleted = 0",
            params![
                tenant,
                topic.name.as_str(),
                topic.description,
                json(&topic.attributes),
                topic.created_at.as_millis(),
                int(self.next.0),
                json(&topic.labels),
            ],
        )?;
        Ok(Some(tenant))
    }

    fn delete_topic(&mut self, tenant: TenantId, name: &TopicName) -> Result<Option<i64>, Failure> {
        let tenant = self.tenant(tenant)?;
        let changed = self.writer.conn.execute(
            "update topic set deleted = 1, version = ?3 \
             where tenant = ?1 and name = ?2 and deleted = 0",
            params![tenant, name.as_str(), int(self.next.0)],
        )?;
        if changed == 1 { Ok(Some(tenant)) } else { Err(Refusal::NotFound.into()) }
    }

    fn subscribe(&mut self, subscription: &Subscription) -> Result<Option<i64>, Failure> {
        let tenant = self.tenant(subscription.tenant)?;
        let id = subscription.id.as_bytes().as_slice();
        if self.exists("select 1 from subscription where id = ?1", &[&id])? {
            return Err(Refusal::AlreadyExists.into());
        }
        self.free_name(tenant, subscription)?;
        let greatest = self.writer.cache.greatest_subscription;
        let no = subscription_no(greatest, Shard::of(subscription.id));
        self.writer.conn.execute(
            "insert into subscription (no, id, tenant, description, destination, filter, profile, \
             overrides, status, created_at, updated_at, version, name, labels, stops) \
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            params![
                no,
                id,
                tenant,
                subscription.description,
                json(&subscription.destination),
                json(&subscription.filter),
                subscription.profile.as_str(),
                json(&subscription.overrides),
                json(&subscription.status),
                subscription.created_at.as_millis(),
                subscription.updated_at.as_millis(),
                int(self.next.0),
                subscription.name.as_ref().map(SubscriptionName::as_str),
                json(&subscription.labels),
                json(&subscription.stops),
            ],
        )?;
        self.put_secrets(no, subscription)?;
        let cache = &mut self.writer.cache;
        cache.greatest_subscription = no;
        cache.subscriptions.insert(subscription.id, KnownSubscription { no, tenant });
        Ok(Some(tenant))
    }

    fn update_subscription(
        &mut self,
        subscription: &Subscription,
        expected: Option<CatalogVersion>,
    ) -> Result<Option<i64>, Failure> {
        let known = self.live(subscription.tenant, subscription.id)?;
        let current: i64 = self.writer.conn.query_row(
            "select version from subscription where no = ?1",
            [known.no],
            |row| row.get(0),
        )?;
        let current = CatalogVersion(current.unsigned_abs());
        if expected.is_some_and(|expected| expected != current) {
            return Err(Refusal::VersionMismatch { current }.into());
        }
        self.free_name(known.tenant, subscription)?;
        if subscription.status.is_active() {
            self.writer.conn.execute(sql::FAILING_FORGET, [known.no])?;
        }
        self.writer.conn.execute(
            "update subscription set description = ?2, destination = ?3, filter = ?4, \
             profile = ?5, overrides = ?6, status = ?7, updated_at = ?8, version = ?9, \
             name = ?10, labels = ?11, stops = ?12 where no = ?1",
            params![
                known.no,
                subscription.description,
                json(&subscription.destination),
                json(&subscription.filter),
                subscription.profile.as_str(),
                json(&subscription.overrides),
                json(&subscription.status),
                subscription.updated_at.as_millis(),
                int(self.next.0),
                subscription.name.as_ref().map(SubscriptionName::as_str),
                json(&subscription.labels),
                json(&subscription.stops),
            ],
        )?;
        self.put_secrets(known.no, subscription)?;
        Ok(Some(known.tenant))
    }

    fn unsubscribe(
        &mut self,
        tenant: TenantId,
        id: SubscriptionId,
        at: Timestamp,
    ) -> Result<Option<i64>, Failure> {
        let known = self.live(tenant, id)?;
        let conn = &self.writer.conn;
        conn.execute(
            "update subscription set deleted_at = ?2, version = ?3 where no = ?1",
            params![known.no, at.as_millis(), int(self.next.0)],
        )?;
        // Secrets of somebody who left never sign again.
        conn.execute("delete from subscription_secret where subscription = ?1", [known.no])?;
        conn.execute(sql::FAILING_END, [known.no])?;
        self.writer.cache.subscriptions.remove(&id);
        self.writer.cache.unswept.insert(known.no);
        Ok(Some(known.tenant))
    }

    fn live(&self, tenant: TenantId, id: SubscriptionId) -> Result<KnownSubscription, Failure> {
        let tenant = self.tenant(tenant)?;
        let known = self.writer.cache.subscriptions.get(&id);
        Ok(*known.filter(|known| known.tenant == tenant).ok_or(Refusal::NotFound)?)
    }

    /// A name stands for one subscription of a tenant at a time.
    fn free_name(&self, tenant: i64, subscription: &Subscription) -> Result<(), Failure> {
        let Some(name) = &subscription.name else { return Ok(()) };
        let (name, id) = (name.as_str(), subscription.id.as_bytes().as_slice());
        let sql = "select 1 from subscription where tenant = ?1 and name = ?2 and id <> ?3 \
                   and deleted_at is null";
        match self.exists(sql, &[&tenant, &name, &id])? {
            true => Err(Refusal::AlreadyExists.into()),
            false => Ok(()),
        }
    }

    fn put_secrets(&self, no: i64, subscription: &Subscription) -> Result<(), Failure> {
        let conn = &self.writer.conn;
        conn.execute("delete from subscription_secret where subscription = ?1", [no])?;
        for (position, secret) in subscription.secrets.iter().enumerate() {
            conn.execute(
                "insert into subscription_secret values (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    no,
                    int(position as u64),
                    secret.name.as_str(),
                    secret.sealed.as_ref(),
                    secret.created_at.as_millis(),
                    secret.expires_at.map(Timestamp::as_millis),
                ],
            )?;
        }
        Ok(())
    }

    fn create_key(&mut self, key: &ApiKey) -> Result<Option<i64>, Failure> {
        let tenant = key.tenant.map(|tenant| self.tenant(tenant)).transpose()?;
        let id = key.id.as_bytes().as_slice();
        if self.exists("select 1 from api_key where id = ?1", &[&id])? {
            return Err(Refusal::AlreadyExists.into());
        }
        self.writer.conn.execute(
            "insert into api_key (id, tenant, description, scopes, hash, created_at, expires_at, \
             revoked_at, version, rate_limit) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                id,
                tenant,
                key.description,
                json(&key.scopes),
                key.hash.as_slice(),
                key.created_at.as_millis(),
                key.expires_at.map(Timestamp::as_millis),
                key.revoked_at.map(Timestamp::as_millis),
                int(self.next.0),
                key.rate_limit,
            ],
        )?;
        Ok(tenant)
    }

    /// `None` when it was revoked before.
    fn revoke_key(&mut self, id: &[u8], at: Timestamp) -> Result<Option<Option<i64>>, Failure> {
        let conn = &self.writer.conn;
        let found: Option<(Option<i64>, bool)> = conn
            .query_row(
                "select tenant, revoked_at is not null from api_key where id = ?1",
                [id],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()?;
        let (tenant, revoked) = found.ok_or(Refusal::NotFound)?;
        if revoked {
            return Ok(None);
        }
        conn.execute(
            "update api_key set revoked_at = ?2, version = ?3 where id = ?1",
            params![id, at.as_millis(), int(self.next.0)],
        )?;
        Ok(Some(tenant))
    }
}
