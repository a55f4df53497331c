//! The registry of certificates: changes, and reading it. Part of the catalog, whose version row
//! is locked by every change; so looking for a twin after taking the version is exact.

use deadpool_postgres::Object;
use posthorn_domain::{
    CatalogVersion, Certificate, CertificateId, CertificateKind, TenantId, Thumbprint, Timestamp,
};
use posthorn_store::{CatalogDelta, Refusal};
use tokio_postgres::Row;

use crate::catalog::{enter, known, next_version, raw, refuse_unless};
use crate::codec::{Reader, Uid, json, text};
use crate::failure::{Corrupt, Outcome};
use crate::session::{execute, query};
use crate::sql;

pub(crate) async fn create(client: &Object, new: &Certificate) -> Outcome<i64> {
    enter(client, new.tenant).await?;
    known(client, new.tenant).await?;
    let version = next_version(client).await?;
    no_twin(client, new, new.kind).await?;
    let changed = execute(
        client,
        sql::CERTIFICATE_CREATE,
        &[
            &Uid::from(new.tenant),
            &Uid::from(new.id),
            &new.kind.as_str(),
            &text(&new.description),
            &text(&new.owner),
            &text(&new.host),
            &json(&new.scopes),
            &&new.thumbprint.0[..],
            &text(&new.subject),
            &text(&new.pem),
            &new.sealed_key.as_deref(),
            &new.not_before.as_millis(),
            &new.not_after.as_millis(),
            &new.created_at.as_millis(),
            &new.updated_at.as_millis(),
            &new.revoked_at.map(Timestamp::as_millis),
            &version,
        ],
    )
    .await?;
    refuse_unless(changed, Refusal::AlreadyExists)?;
    Ok(version)
}

pub(crate) async fn update(
    client: &Object,
    new: &Certificate,
    expected: CatalogVersion,
) -> Outcome<i64> {
    enter(client, new.tenant).await?;
    let found = find(client, new.tenant, new.id).await?;
    if raw(expected) != found.version {
        let current = CatalogVersion(found.version.unsigned_abs());
        return Err(Refusal::VersionMismatch { current }.into());
    }
    let version = next_version(client).await?;
    no_twin(client, new, found.kind).await?;
    execute(
        client,
        sql::CERTIFICATE_UPDATE,
        &[
            &Uid::from(new.tenant),
            &Uid::from(new.id),
            &text(&new.description),
            &text(&new.owner),
            &text(&new.host),
            &json(&new.scopes),
            &&new.thumbprint.0[..],
            &text(&new.subject),
            &text(&new.pem),
            &new.sealed_key.as_deref(),
            &new.not_before.as_millis(),
            &new.not_after.as_millis(),
            &new.updated_at.as_millis(),
            &version,
        ],
    )
    .await?;
    Ok(version)
}

/// `None` when it was revoked before.
pub(crate) async fn revoke(
    client: &Object,
    tenant: TenantId,
    id: CertificateId,
    at: Timestamp,
) -> Outcome<Option<i64>> {
    enter(client, tenant).await?;
    if find(client, tenant, id).await?.revoked {
        return Ok(None);
    }
    let version = next_version(client).await?;
    let key = (Uid::from(tenant), Uid::from(id));
    execute(client, sql::CERTIFICATE_REVOKE, &[&key.0, &key.1, &at.as_millis(), &version]).await?;
    Ok(Some(version))
}

pub(crate) async fn remove(client: &Object, tenant: TenantId, id: CertificateId) -> Outcome<i64> {
    enter(client, tenant).await?;
    let version = next_version(client).await?;
    let key = (Uid::from(tenant), Uid::from(id));
    let changed = execute(client, sql::CERTIFICATE_REMOVE, &[&key.0, &key.1, &version]).await?;
    refuse_unless(changed, Refusal::NotFound)?;
    Ok(version)
}

struct Found {
    version: i64,
    kind: CertificateKind,
    revoked: bool,
}

async fn find(client: &Object, tenant: TenantId, id: CertificateId) -> Outcome<Found> {
    let key = (Uid::from(tenant), Uid::from(id));
    let rows = query(client, sql::CERTIFICATE_FIND, &[&key.0, &key.1]).await?;
    let row = rows.first().ok_or(Refusal::NotFound)?;
    Ok(Found {
        version: row.try_get("version")?,
        kind: kind_of(&Reader::new(row, "certificate", "kind"))?,
        revoked: row.try_get::<_, Option<i64>>("revoked_at")?.is_some(),
    })
}

async fn no_twin(client: &Object, new: &Certificate, kind: CertificateKind) -> Outcome<()> {
    if kind != CertificateKind::Caller {
        return Ok(());
    }
    let (thumbprint, id) = (&new.thumbprint.0[..], Uid::from(new.id));
    match query(client, sql::CERTIFICATE_TWIN, &[&thumbprint, &id]).await?.is_empty() {
        true => Ok(()),
        false => Err(Refusal::AlreadyExists.into()),
    }
}

/// Adds what changed after a version.
pub(crate) async fn read(client: &Object, since: i64, delta: &mut CatalogDelta) -> Outcome<()> {
    for row in &query(client, sql::SINCE_CERTIFICATES, &[&since]).await? {
        let reader = Reader::new(row, "certificate", "id");
        if reader.get("removed")? {
            delta.removed_certificates.push((reader.id("tenant")?, reader.id("id")?));
        } else {
            delta.certificates.push(certificate_of(row)?);
        }
    }
    Ok(())
}

fn kind_of(reader: &Reader<'_>) -> Result<CertificateKind, Corrupt> {
    CertificateKind::parse(reader.get("kind")?)
        .ok_or_else(|| reader.corrupt("kind", "is not known"))
}

fn certificate_of(row: &Row) -> Result<Certificate, Corrupt> {
    let reader = Reader::new(row, "certificate", "id");
    let owned = |name| reader.get::<&str>(name).map(str::to_owned);
    let thumbprint: &[u8] = reader.get("thumbprint")?;
    Ok(Certificate {
        id: reader.id("id")?,
        tenant: reader.id("tenant")?,
        kind: kind_of(&reader)?,
        description: owned("description")?,
        owner: owned("owner")?,
        host: owned("host")?,
        scopes: reader.json("scopes")?,
        thumbprint: Thumbprint(
            thumbprint.try_into().map_err(|error| reader.corrupt("thumbprint", error))?,
        ),
        subject: owned("subject")?,
        pem: owned("pem")?,
        sealed_key: reader.get::<Option<&[u8]>>("sealed_key")?.map(bytes::Bytes::copy_from_slice),
        not_before: reader.time("not_before")?,
        not_after: reader.time("not_after")?,
        created_at: reader.time("created_at")?,
        updated_at: reader.time("updated_at")?,
        revoked_at: reader.time_maybe("revoked_at")?,
        version: CatalogVersion(reader.number("version")?),
    })
}
