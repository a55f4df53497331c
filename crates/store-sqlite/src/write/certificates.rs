//! Changes of the registry of certificates.

use posthorn_domain::{
    CatalogVersion, Certificate, CertificateId, CertificateKind, TenantId, Timestamp,
};
use posthorn_store::Refusal;
use rusqlite::{OptionalExtension, params};

use super::catalog::Change;
use crate::codec::{int, json};
use crate::error::Failure;

impl Change<'_> {
    pub(super) fn create_certificate(&mut self, new: &Certificate) -> Result<Option<i64>, Failure> {
        let tenant = self.tenant(new.tenant)?;
        let id = new.id.as_bytes().as_slice();
        if self.exists("select 1 from certificate where id = ?1", &[&id])? {
            return Err(Refusal::AlreadyExists.into());
        }
        self.free_thumbprint(new, new.kind)?;
        self.writer.conn.execute(
            "insert into certificate (tenant, id, kind, description, owner, host, scopes, \
             thumbprint, subject, pem, sealed_key, not_before, not_after, created_at, updated_at, \
             revoked_at, version) \
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            params![
                tenant,
                id,
                new.kind.as_str(),
                new.description,
                new.owner,
                new.host,
                json(&new.scopes),
                new.thumbprint.0.as_slice(),
                new.subject,
                new.pem,
                new.sealed_key.as_deref(),
                new.not_before.as_millis(),
                new.not_after.as_millis(),
                new.created_at.as_millis(),
                new.updated_at.as_millis(),
                new.revoked_at.map(Timestamp::as_millis),
                int(self.next.0),
            ],
        )?;
        Ok(Some(tenant))
    }

    pub(super) fn update_certificate(
        &mut self,
        new: &Certificate,
        expected: CatalogVersion,
    ) -> Result<Option<i64>, Failure> {
        let (tenant, current, kind, _) = self.live_certificate(new.tenant, new.id)?;
        if expected != current {
            return Err(Refusal::VersionMismatch { current }.into());
        }
        self.free_thumbprint(new, kind)?;
        self.writer.conn.execute(
            "update certificate set description = ?3, owner = ?4, host = ?5, scopes = ?6, \
             thumbprint = ?7, subject = ?8, pem = ?9, sealed_key = ?10, not_before = ?11, \
             not_after = ?12, updated_at = ?13, version = ?14 where tenant = ?1 and id = ?2",
            params![
                tenant,
                new.id.as_bytes().as_slice(),
                new.description,
                new.owner,
                new.host,
                json(&new.scopes),
                new.thumbprint.0.as_slice(),
                new.subject,
                new.pem,
                new.sealed_key.as_deref(),
                new.not_before.as_millis(),
                new.not_after.as_millis(),
                new.updated_at.as_millis(),
                int(self.next.0),
            ],
        )?;
        Ok(Some(tenant))
    }

    /// `None` when it was revoked before.
    pub(super) fn revoke_certificate(
        &mut self,
        tenant: TenantId,
        id: CertificateId,
        at: Timestamp,
    ) -> Result<Option<i64>, Failure> {
        let (tenant, _, _, revoked) = self.live_certificate(tenant, id)?;
        if revoked {
            return Ok(None);
        }
        self.writer.conn.execute(
            "update certificate set revoked_at = ?3, version = ?4 where tenant = ?1 and id = ?2",
            params![tenant, id.as_bytes().as_slice(), at.as_millis(), int(self.next.0)],
        )?;
        Ok(Some(tenant))
    }

    pub(super) fn delete_certificate(
        &mut self,
        tenant: TenantId,
        id: CertificateId,
    ) -> Result<Option<i64>, Failure> {
        let (tenant, ..) = self.live_certificate(tenant, id)?;
        self.writer.conn.execute(
            "update certificate set deleted = 1, sealed_key = null, pem = '', subject = '', \
             description = '', version = ?3 \
             where tenant = ?1 and id = ?2",
            params![tenant, id.as_bytes().as_slice(), int(self.next.0)],
        )?;
        Ok(Some(tenant))
    }

    /// The tenant's number, and version, kind and whether it is revoked.
    fn live_certificate(
        &self,
        tenant: TenantId,
        id: CertificateId,
    ) -> Result<(i64, CatalogVersion, CertificateKind, bool), Failure> {
        let tenant = self.tenant(tenant)?;
        let found: Option<(i64, String, bool)> = self
            .writer
            .conn
            .query_row(
                "select version, kind, revoked_at is not null from certificate \
                 where tenant = ?1 and id = ?2 and deleted = 0",
                params![tenant, id.as_bytes().as_slice()],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .optional()?;
        let (version, kind, revoked) = found.ok_or(Refusal::NotFound)?;
        // Reading the catalog names a kind that is not known; here it only must not be a caller.
        let kind = CertificateKind::parse(&kind).unwrap_or(CertificateKind::Client);
        Ok((tenant, CatalogVersion(version.unsigned_abs()), kind, revoked))
    }

    fn free_thumbprint(&self, new: &Certificate, kind: CertificateKind) -> Result<(), Failure> {
        let taken = "select 1 from certificate \
                     where kind = 'caller' and deleted = 0 and thumbprint = ?1 and id <> ?2";
        let (thumbprint, id) = (new.thumbprint.0.as_slice(), new.id.as_bytes().as_slice());
        if kind == CertificateKind::Caller && self.exists(taken, &[&thumbprint, &id])? {
            return Err(Refusal::AlreadyExists.into());
        }
        Ok(())
    }
}
