//! Profiles that were made or changed at run time: changes, and reading them. Part of the catalog.

use deadpool_postgres::Object;
use posthorn_domain::{ProfileName, TenantId, TenantProfile};
use posthorn_store::{CatalogDelta, Refusal};

use crate::catalog::{enter, known, next_version, refuse_unless};
use crate::codec::{Reader, Uid, json};
use crate::failure::Outcome;
use crate::session::{execute, query};
use crate::sql;

pub(crate) async fn put(client: &Object, profile: &TenantProfile) -> Outcome<i64> {
    enter(client, profile.tenant).await?;
    known(client, profile.tenant).await?;
    let version = next_version(client).await?;
    execute(
        client,
        sql::PROFILE_PUT,
        &[
            &Uid::from(profile.tenant),
            &profile.name.as_str(),
            &profile.base.as_str(),
            &json(&profile.policy),
            &profile.updated_at.as_millis(),
            &version,
        ],
    )
    .await?;
    Ok(version)
}

pub(crate) async fn remove(client: &Object, tenant: TenantId, name: &ProfileName) -> Outcome<i64> {
    enter(client, tenant).await?;
    let version = next_version(client).await?;
    let key: (Uid, &str) = (Uid::from(tenant), name.as_str());
    let changed = execute(client, sql::PROFILE_REMOVE, &[&key.0, &key.1, &version]).await?;
    refuse_unless(changed, Refusal::NotFound)?;
    Ok(version)
}

pub(crate) async fn read(client: &Object, since: i64, delta: &mut CatalogDelta) -> Outcome<()> {
    for row in &query(client, sql::SINCE_PROFILES, &[&since]).await? {
        let reader = Reader::new(row, "profile", "tenant");
        let tenant = reader.id("tenant")?;
        let name = reader.name("name", ProfileName::new)?;
        if reader.get("removed")? {
            delta.removed_profiles.push((tenant, name));
        } else {
            delta.profiles.push(TenantProfile {
                tenant,
                name,
                base: reader.name("base", ProfileName::new)?,
                policy: reader.json("policy")?,
                updated_at: reader.time("updated_at")?,
            });
        }
    }
    Ok(())
}
