//! Removing everything of a tenant that is being deleted, bite by bite.
//!
//! # Theory of operation
//! The order matters: as long as there is a subscription, a delivery could be made or enter its lane; as long as there are
//! events, somebody could ask for them. What is left at the end is the line of the tenant, the lines of its
//! subscriptions, the job that says when it was done, and the line of the audit log that says who asked for it.
//!
//! Each bite holds its job, then the tenant, then the lanes of what it removes, then the rows, in the order of `lock`. An
//! attempt that comes back later finds nothing, and is superseded.
//!
//! # What it must not know
//! Who may delete a tenant, and what nodes do when they hear of it.

use deadpool_postgres::Object;
use posthorn_domain::{CatalogVersion, Job, KeyId, SubscriptionId};
use posthorn_store::entry::Kind;
use posthorn_store::{Bite, CatalogChange, Refusal};

use crate::catalog::{self, Written};
use crate::codec::{Uid, limit};
use crate::failure::Outcome;
use crate::session::{Param, execute, query};
use crate::{audit, lock, page_session, rollup, sql, told};

/// What went.
#[derive(Default)]
pub(crate) struct Removed {
    pub(crate) rows: usize,
    /// Set when there was nothing left: the version that says so.
    pub(crate) buried: Option<CatalogVersion>,
}

/// Removes about so many rows of the job's tenant. The caller holds the job.
pub(crate) async fn remove(
    client: &Object,
    job: &Job,
    most: usize,
    bite: &Bite,
) -> Outcome<Removed> {
    let told = bite.ending.as_ref().map_or(&[][..], |ending| &ending.told);
    told::hold_tenants(client, Some(job.tenant), told).await?;
    let at = bite.at;
    let tenant = Uid::from(job.tenant);
    // Nobody's rows go who is not to be deleted, whatever a job says.
    let rows = query(client, sql::TENANT_CLOSED, &[&tenant]).await?;
    if !rows.first().map_or(Ok(false), |row| row.try_get(0))? {
        return Err(Refusal::NotFound.into());
    }
    let mut removed = Removed::default();
    let params: [Param<'_>; 3] = [&tenant, &Uid::from(job.id), &at.as_millis()];
    execute(client, sql::TENANT_STOP, &params).await?;
    let subscribed = query(client, sql::TENANT_SUBSCRIPTIONS, &[&tenant, &limit(most)]).await?;
    if !subscribed.is_empty() {
        for row in &subscribed {
            let id = SubscriptionId::from(row.try_get::<_, Uid>(0)?);
            let delete = CatalogChange::DeleteSubscription { tenant: job.tenant, id, at };
            catalog::write(client, &delete).await?;
        }
        // From here to the commit nobody else may change the catalog: the rest can wait.
        return Ok(Removed { rows: subscribed.len(), buried: None });
    }
    let (seen, rows) = events(client, tenant, most).await?;
    if seen > 0 {
        return Ok(Removed { rows, buried: None });
    }
    // Nodes write these rows last and wait for nobody then. So nothing is waited for with them held, either.
    let rows = rollup::forget(client, job.tenant, limit(most)).await?;
    if rows > 0 {
        return Ok(Removed { rows, buried: None });
    }
    let left = |removed: &Removed| limit(most.saturating_sub(removed.rows));
    removed.rows += keys(client, tenant, left(&removed)).await?;
    removed.rows += jobs(client, job, left(&removed)).await?;
    removed.rows += page_session::forget(client, tenant, left(&removed)).await?;
    removed.rows += audit::forget(client, tenant, left(&removed)).await?;
    removed.rows += entries(client, tenant, left(&removed)).await?;
    // What is told of the end is the whole of it, so nothing else may have happened with it.
    let is_end = bite.ending.is_none() || removed.rows == 0;
    if removed.rows < most && is_end {
        if let Some(ending) = &bite.ending {
            told::check_end(ending, job.seen, job.done)?;
            lock::hold(client, lock::LANES, &told::lane_slots(told)).await?;
            told::tell(client, told).await?;
        }
        let bury = CatalogChange::BuryTenant { tenant: job.tenant };
        if let Written::Changed(version) = catalog::write(client, &bury).await? {
            removed.buried = Some(version);
        }
    }
    Ok(removed)
}

/// Events with their deliveries and attempts: how many were looked at, and how many rows went.
async fn events(client: &Object, tenant: Uid, most: usize) -> Outcome<(usize, usize)> {
    let params: [Param<'_>; 2] = [&tenant, &limit(most)];
    let mut slots = Vec::new();
    for row in &query(client, sql::TENANT_LANES, &params).await? {
        slots.push(i32::from(row.try_get::<_, i16>(0)?));
    }
    lock::hold(client, lock::LANES, &lock::sorted(slots)).await?;
    let rows = query(client, sql::TENANT_EVENTS, &params).await?;
    let Some(row) = rows.first() else { return Ok((0, 0)) };
    let count = |column| -> Outcome<usize> {
        Ok(usize::try_from(row.try_get::<_, i64>(column)?).unwrap_or_default())
    };
    Ok((count("seen")?, count("removed")?))
}

/// Idempotency keys.
async fn keys(client: &Object, tenant: Uid, most: i64) -> Outcome<usize> {
    let removed = execute(client, sql::TENANT_KEYS, &[&tenant, &most]).await?;
    Ok(usize::try_from(removed).unwrap_or(usize::MAX))
}

/// Redrives, and all jobs but its own.
async fn jobs(client: &Object, job: &Job, most: i64) -> Outcome<usize> {
    let params: [Param<'_>; 3] = [&Uid::from(job.tenant), &Uid::from(job.id), &most];
    let rows = query(client, sql::TENANT_JOBS, &params).await?;
    let removed: i64 = rows.first().map_or(Ok(0), |row| row.try_get("removed"))?;
    Ok(usize::try_from(removed).unwrap_or_default())
}

/// Everything of the catalog but the tenant itself. Nobody needs to be told: whoever heard that the tenant is to be
/// deleted has let go of all of it.
async fn entries(client: &Object, tenant: Uid, most: i64) -> Outcome<usize> {
    let rows = query(client, sql::TENANT_ENTRIES, &[&tenant, &most]).await?;
    let mut used = Vec::new();
    for row in &rows {
        if row.try_get::<_, &str>("kind")? == Kind::Key.as_str()
            && let Ok(id) = row.try_get::<_, &str>("key")?.parse::<KeyId>()
        {
            used.push(Uid::from(id));
        }
    }
    if !used.is_empty() {
        execute(client, sql::TENANT_KEY_USES, &[&used]).await?;
    }
    Ok(rows.len())
}
