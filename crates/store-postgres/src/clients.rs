//! Clients that were made or changed at run time: changes, and reading them. Part of the catalog, whose
//! version row is locked by every change; so what is found after taking the version is what is there.

use deadpool_postgres::Object;
use posthorn_domain::{CatalogVersion, Client, ClientName, TenantId};
use posthorn_store::{CatalogDelta, Refusal};

use crate::catalog::{enter, known, next_version, refuse_unless};
use crate::codec::{Reader, Uid, json};
use crate::failure::Outcome;
use crate::session::{execute, query};
use crate::sql;

pub(crate) async fn put(client: &Object, new: &Client, expected: CatalogVersion) -> Outcome<i64> {
    enter(client, new.tenant).await?;
    known(client, new.tenant).await?;
    let version = next_version(client).await?;
    let key: (Uid, &str) = (Uid::from(new.tenant), new.name.as_str());
    let found = query(client, sql::CLIENT_FIND, &[&key.0, &key.1]).await?;
    let found: i64 = found.first().map_or(Ok(0), |row| row.try_get("version"))?;
    let current = CatalogVersion(found.unsigned_abs());
    if current != expected {
        return Err(Refusal::VersionMismatch { current }.into());
    }
    execute(
        client,
        sql::CLIENT_PUT,
        &[
            &key.0,
            &key.1,
            &new.sealed_secret.as_deref(),
            &new.scopes.as_ref().map(json),
            &new.updated_at.as_millis(),
            &version,
        ],
    )
    .await?;
    Ok(version)
}

pub(crate) async fn remove(client: &Object, tenant: TenantId, name: &ClientName) -> Outcome<i64> {
    enter(client, tenant).await?;
    let version = next_version(client).await?;
    let key: (Uid, &str) = (Uid::from(tenant), name.as_str());
    let changed = execute(client, sql::CLIENT_REMOVE, &[&key.0, &key.1, &version]).await?;
    refuse_unless(changed, Refusal::NotFound)?;
    Ok(version)
}

pub(crate) async fn read(client: &Object, since: i64, delta: &mut CatalogDelta) -> Outcome<()> {
    for row in &query(client, sql::SINCE_CLIENTS, &[&since]).await? {
        let reader = Reader::new(row, "client", "tenant");
        let tenant = reader.id("tenant")?;
        let name = reader.name("name", ClientName::new)?;
        if reader.get("removed")? {
            delta.removed_clients.push((tenant, name));
            continue;
        }
        let sealed: Option<&[u8]> = reader.get("sealed_secret")?;
        let scopes: Option<&str> = reader.get("scopes")?;
        delta.clients.push(Client {
            tenant,
            name,
            sealed_secret: sealed.map(bytes::Bytes::copy_from_slice),
            scopes: scopes.map(|_| reader.json("scopes")).transpose()?,
            updated_at: reader.time("updated_at")?,
            version: CatalogVersion(reader.number("version")?),
        });
    }
    Ok(())
}
