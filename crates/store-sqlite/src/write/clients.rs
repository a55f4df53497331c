//! Clients that were made or changed at run time.

use posthorn_domain::{CatalogVersion, Client, ClientName, TenantId};
use posthorn_store::Refusal;
use rusqlite::{OptionalExtension, params};

use super::catalog::Change;
use crate::codec::{int, json};
use crate::error::Failure;

impl Change<'_> {
    pub(super) fn put_client(
        &mut self,
        new: &Client,
        expected: CatalogVersion,
    ) -> Result<Option<i64>, Failure> {
        let tenant = self.tenant(new.tenant)?;
        let found: Option<i64> = self
            .writer
            .conn
            .query_row(
                "select version from client where tenant = ?1 and name = ?2 and deleted = 0",
                params![tenant, new.name.as_str()],
                |row| row.get(0),
            )
            .optional()?;
        let current = CatalogVersion(found.unwrap_or(0).unsigned_abs());
        if current != expected {
            return Err(Refusal::VersionMismatch { current }.into());
        }
        self.writer.conn.execute(
            "insert into client (tenant, name, sealed_secret, scopes, updated_at, version) \
             values (?1, ?2, ?3, ?4, ?5, ?6) on conflict do update set \
             sealed_secret = excluded.sealed_secret, scopes = excluded.scopes, \
             updated_at = excluded.updated_at, version = excluded.version, deleted = 0",
            params![
                tenant,
                new.name.as_str(),
                new.sealed_secret.as_deref(),
                new.scopes.as_ref().map(json),
                new.updated_at.as_millis(),
                int(self.next.0),
            ],
        )?;
        Ok(Some(tenant))
    }

    pub(super) fn delete_client(
        &mut self,
        tenant: TenantId,
        name: &ClientName,
    ) -> Result<Option<i64>, Failure> {
        let tenant = self.tenant(tenant)?;
        let changed = self.writer.conn.execute(
            "update client set deleted = 1, sealed_secret = null, scopes = null, version = ?3 \
             where tenant = ?1 and name = ?2 and deleted = 0",
            params![tenant, name.as_str(), int(self.next.0)],
        )?;
        if changed == 1 { Ok(Some(tenant)) } else { Err(Refusal::NotFound.into()) }
    }
}
