//! How many events and deliveries there are, without counting them.
//!
//! # Theory of operation
//! Each transaction that adds, ends, brings back or removes rows adds the difference to the tally, in the same
//! statement. A tenant has a row for each connection that ever changed something of it (its slot), so that no
//! transaction waits for another; a reader adds them up.
//!
//! The tally is a sum of differences. So what a comparison with the rows finds missing in one snapshot can
//! be added at any later time. It never should find anything; it is made once a day, by one of the nodes.

use std::sync::Arc;

use posthorn_domain::TenantId;
use posthorn_store::{Counts, Result};
use tokio_postgres::Row;
use tracing::warn;

use crate::codec::{Reader, Uid};
use crate::failure::Outcome;
use crate::session::{Operation, Param, Session, allow_slow, batch, commit, execute, query};
use crate::sql;

const COUNTS: Operation = Operation::read("counts", "count deliveries");
const PENDING_BY_TENANT: Operation =
    Operation::read("pending_by_tenant", "count unfinished deliveries");
const RECOUNT: Operation =
    Operation::write("recount", "compare the tally with what is stored").slow();

pub(crate) async fn counts(session: &Session, tenant: Option<TenantId>) -> Result<Counts> {
    session
        .run(COUNTS, move |client| {
            Box::pin(async move {
                let rows = match tenant.map(Uid::from) {
                    Some(owner) => query(client, sql::COUNTS_OF, &[&owner]).await?,
                    None => query(client, sql::COUNTS, &[]).await?,
                };
                rows.first().map_or_else(|| Ok(Counts::default()), counted)
            })
        })
        .await
}

/// For each of these tenants, in one statement.
pub(crate) async fn counts_by_tenant(
    session: &Session,
    tenants: &[TenantId],
) -> Result<Vec<Counts>> {
    let asked: Arc<[Uid]> = tenants.iter().map(|tenant| Uid::from(*tenant)).collect();
    session
        .run(COUNTS, move |client| {
            let asked = Arc::clone(&asked);
            Box::pin(async move {
                let params: [Param<'_>; 1] = [&&*asked];
                let rows = query(client, sql::COUNTS_EACH, &params).await?;
                rows.iter().map(counted).collect()
            })
        })
        .await
}

fn counted(row: &Row) -> Outcome<Counts> {
    let reader = Reader::new(row, "tally", "tenant");
    let unswept: u64 = reader.number("unswept")?;
    let pending: u64 = reader.number("pending")?;
    let cancelled: u64 = reader.number("cancelled")?;
    Ok(Counts {
        events: reader.number("events")?,
        pending: pending.saturating_sub(unswept),
        delivered: reader.number("delivered")?,
        dead: reader.number("dead")?,
        cancelled: cancelled + unswept,
    })
}

pub(crate) async fn pending_by_tenant(session: &Session) -> Result<Vec<(TenantId, u64)>> {
    session
        .run(PENDING_BY_TENANT, move |client| {
            Box::pin(async move {
                let mut counts = Vec::new();
                for row in &query(client, sql::PENDING_BY_TENANT, &[]).await? {
                    let reader = Reader::new(row, "tally", "tenant");
                    counts.push((reader.id("tenant")?, reader.number("number")?));
                }
                Ok(counts)
            })
        })
        .await
}

/// Compares, if nobody has for a day.
pub(crate) async fn look_after(session: &Session) -> Result<()> {
    let due = session
        .run(RECOUNT, |client| {
            Box::pin(async move { Ok(execute(client, sql::TALLY_CHECK, &[]).await? > 0) })
        })
        .await?;
    if due {
        recount(session).await?;
    }
    Ok(())
}

/// Compares the tally with the rows and corrects it; for how many tenants it was wrong.
pub(crate) async fn recount(session: &Session) -> Result<u64> {
    let wrong = session
        .run(RECOUNT, |client| {
            Box::pin(async move {
                batch(client, "begin transaction isolation level repeatable read").await?;
                allow_slow(client).await?;
                let wrong = execute(client, sql::RECOUNT, &[]).await?;
                commit(client).await?;
                Ok(wrong)
            })
        })
        .await?;
    if wrong > 0 {
        warn!(tenants = wrong, "Counts of events and deliveries were wrong and are corrected");
    }
    Ok(wrong)
}
