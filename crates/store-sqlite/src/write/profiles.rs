//! Profiles that were made or changed at run time.

use posthorn_domain::{ProfileName, TenantId, TenantProfile};
use posthorn_store::Refusal;
use rusqlite::params;

use super::catalog::Change;
use crate::codec::{int, json};
use crate::error::Failure;

impl Change<'_> {
    pub(super) fn put_profile(&mut self, profile: &TenantProfile) -> Result<Option<i64>, Failure> {
        let tenant = self.tenant(profile.tenant)?;
        self.writer.conn.execute(
            "insert into profile (tenant, name, base, policy, updated_at, version) \
             values (?1, ?2, ?3, ?4, ?5, ?6) on conflict do update set \
             base = excluded.base, policy = excluded.policy, updated_at = excluded.updated_at, \
             version = excluded.version, deleted = 0",
            params![
                tenant,
                profile.name.as_str(),
                profile.base.as_str(),
                json(&profile.policy),
                profile.updated_at.as_millis(),
                int(self.next.0),
            ],
        )?;
        Ok(Some(tenant))
    }

    pub(super) fn delete_profile(
        &mut self,
        tenant: TenantId,
        name: &ProfileName,
    ) -> Result<Option<i64>, Failure> {
        let tenant = self.tenant(tenant)?;
        let changed = self.writer.conn.execute(
            "update profile set deleted = 1, version = ?3 \
             where tenant = ?1 and name = ?2 and deleted = 0",
            params![tenant, name.as_str(), int(self.next.0)],
        )?;
        if changed == 1 { Ok(Some(tenant)) } else { Err(Refusal::NotFound.into()) }
    }
}
