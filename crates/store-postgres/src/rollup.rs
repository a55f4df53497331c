//! Figures of the past: written with outcomes, added up to hours, removed by age.
//!
//! # Theory of operation
//! Each node has rows of its own for the minutes, so that writing waits for nobody. One node at a time adds
//! them to the hours; the last row it has added is kept in `folded_rollup`, in the same transaction. A reader of
//! hours adds those that are not added yet.

use std::collections::BTreeMap;

use deadpool_postgres::Object;
use posthorn_domain::{RollupCounts, RollupScope, RollupStep, SubscriptionId, TenantId, Timestamp};
use posthorn_store::{
    Result, Rollups, Series, SeriesAsk, Summing, Sums, SumsAsk, TendRollups, add_up,
};
use tokio_postgres::Row;

use crate::codec::{FIRST_UID, Reader, Uid, limit};
use crate::failure::{Corrupt, Outcome};
use crate::session::{
    Operation, Param, Session, allow_slow, begin, begin_snapshot, commit, execute, query,
};
use crate::sql;

const SERIES: Operation = Operation::read("series", "read figures of the past");
const SUMS: Operation = Operation::read("sums", "sum up figures of the past");
const TEND: Operation = Operation::write("tend_rollups", "add up figures of the past").slow();
const PENDING: Operation =
    Operation::read("pending_by_subscription", "count unfinished deliveries").slow();

/// What a node has counted, as columns.
pub(crate) struct Columns {
    at: Vec<i64>,
    scope: Vec<String>,
    node: Uid,
    number: i64,
    counts: Vec<Vec<u8>>,
}

impl Columns {
    pub(crate) fn of(rollups: &Rollups) -> Self {
        let rows = &rollups.minutes;
        Self {
            at: rows.iter().map(|row| row.minute.as_millis()).collect(),
            scope: rows.iter().map(|row| row.scope.to_string()).collect(),
            node: rollups.node.into(),
            number: i64::try_from(rollups.number).unwrap_or(i64::MAX),
            counts: rows.iter().map(|row| row.counts.to_bytes()).collect(),
        }
    }

    pub(crate) fn params(&self) -> [Param<'_>; 5] {
        [&self.at, &self.scope, &self.node, &self.number, &self.counts]
    }
}

fn counts(reader: &Reader<'_>) -> Result<RollupCounts, Corrupt> {
    let bytes: &[u8] = reader.get("counts")?;
    let counts = RollupCounts::from_bytes(bytes);
    counts.ok_or_else(|| reader.corrupt("counts", "these are no counts"))
}

pub(crate) async fn series(session: &Session, ask: SeriesAsk) -> Result<Series> {
    session.run(SERIES, move |client| Box::pin(read(client, ask.clone()))).await
}

async fn read(client: &Object, ask: SeriesAsk) -> Outcome<Series> {
    begin_snapshot(client).await?;
    let mut rows = Vec::new();
    if let Some(row) = query(client, sql::ROLLUP_BOUNDS, &[]).await?.first() {
        let scope = ask.scope.to_string();
        let reader = Reader::new(row, "folded_rollup", "scope");
        let folded: (i64, String, Uid) = match ask.step {
            RollupStep::Minute => (i64::MIN, String::new(), FIRST_UID),
            RollupStep::Hour => (reader.get("at")?, reader.get("scope")?, reader.get("node")?),
        };
        let first = ask.from.max(Timestamp::from_millis(folded.0));
        let minutes = overlap(&reader, ("first_minute", "last_minute"), first, ask.until)?;
        if let Some((first, last)) = minutes {
            let (at, of, node) = &folded;
            let first = RollupStep::Minute.ceil(Timestamp::from_millis(first)).as_millis();
            let params: [Param<'_>; 6] = [&scope, &first, &last, at, of, node];
            rows.extend(query(client, sql::ROLLUP_MINUTES, &params).await?);
        }
        let hours = overlap(&reader, ("first_hour", "last_hour"), ask.from, ask.until)?;
        if let Some((first, last)) = hours.filter(|_| ask.step == RollupStep::Hour) {
            let first = RollupStep::Hour.ceil(Timestamp::from_millis(first)).as_millis();
            let params: [Param<'_>; 3] = [&scope, &first, &last];
            rows.extend(query(client, sql::ROLLUP_HOURS, &params).await?);
        }
    }
    commit(client).await?;
    let counted = |row: &Row| {
        let reader = Reader::new(row, "rollup", "scope");
        Ok((reader.time("at")?, counts(&reader)?))
    };
    let rows: Vec<(Timestamp, RollupCounts)> =
        rows.iter().map(counted).collect::<Result<_, Corrupt>>()?;
    Ok(add_up(ask.step, rows.into_iter()))
}

pub(crate) async fn sums(session: &Session, ask: SumsAsk) -> Result<Sums> {
    session.run(SUMS, move |client| Box::pin(sum_up(client, ask))).await
}

async fn sum_up(client: &Object, ask: SumsAsk) -> Outcome<Sums> {
    begin_snapshot(client).await?;
    let mut summing = Summing::new(&ask);
    let mut whole = true;
    if let Some(row) = query(client, sql::ROLLUP_BOUNDS, &[]).await?.first() {
        let reader = Reader::new(row, "folded_rollup", "scope");
        let folded: (i64, String, Uid) = match ask.step {
            RollupStep::Minute => (i64::MIN, String::new(), FIRST_UID),
            RollupStep::Hour => (reader.get("at")?, reader.get("scope")?, reader.get("node")?),
        };
        let first = ask.from.max(Timestamp::from_millis(folded.0));
        let minutes = overlap(&reader, ("first_minute", "last_minute"), first, ask.until)?;
        if let Some(range) = minutes {
            let table = Kind::Minutes(folded);
            whole = sum_range(client, &ask, &table, range, &mut summing).await?;
        }
        let hours = overlap(&reader, ("first_hour", "last_hour"), ask.from, ask.until)?;
        if let Some(range) = hours.filter(|_| whole && ask.step == RollupStep::Hour) {
            whole = sum_range(client, &ask, &Kind::Hours, range, &mut summing).await?;
        }
    }
    commit(client).await?;
    if whole {
        summing.reached(ask.from);
    }
    Ok(summing.done())
}

/// Which table is summed up: minutes after the last that is in its hour, or hours.
enum Kind {
    Minutes((i64, String, Uid)),
    Hours,
}

/// Steps that are asked for at once, at most.
const STEPS_MAX: i64 = 60;

/// Sums up steps, the newest first, some at a time: as many as will not be far too much, as far as those before tell.
/// Whether all were looked at.
async fn sum_range(
    client: &Object,
    ask: &SumsAsk,
    kind: &Kind,
    (first, last): (i64, i64),
    summing: &mut Summing,
) -> Outcome<bool> {
    let (lowest, beyond) = ask.kind.bounds();
    let step = match kind {
        Kind::Minutes(_) => RollupStep::Minute,
        Kind::Hours => RollupStep::Hour,
    };
    let each = i64::try_from(step.span().as_millis()).unwrap_or(i64::MAX);
    let first = step.ceil(Timestamp::from_millis(first)).as_millis();
    let mut last = step.floor(Timestamp::from_millis(last)).as_millis();
    let mut steps = 1;
    while last >= first {
        if !summing.goes_on() {
            return Ok(false);
        }
        let from = first.max(last - (steps - 1) * each);
        let rows = match kind {
            Kind::Minutes((at, scope, node)) => {
                let params: [Param<'_>; 7] = [&from, &last, &lowest, &beyond, at, scope, node];
                query(client, sql::ROLLUP_KIND_MINUTES, &params).await?
            }
            Kind::Hours => {
                let params: [Param<'_>; 4] = [&from, &last, &lowest, &beyond];
                query(client, sql::ROLLUP_KIND_HOURS, &params).await?
            }
        };
        for row in &rows {
            let reader = Reader::new(row, "rollup", "scope");
            let scope: &str = reader.get("scope")?;
            let scope: RollupScope =
                scope.parse().map_err(|_| reader.corrupt("scope", "this is no scope"))?;
            summing.add(reader.time("at")?, scope, &counts(&reader)?);
        }
        summing.reached(Timestamp::from_millis(from));
        let per_step = (rows.len() as i64 / steps).max(1);
        steps = (i64::try_from(summing.left()).unwrap_or(i64::MAX) / per_step).clamp(1, STEPS_MAX);
        last = from - each;
    }
    Ok(true)
}

/// From the first to the last moment of a table that is asked for, both included: a question about a
/// thousand years costs no more than what there is.
fn overlap(
    reader: &Reader<'_>,
    (first, last): (&str, &str),
    from: Timestamp,
    until: Timestamp,
) -> Result<Option<(i64, i64)>, Corrupt> {
    let (first, last) = (reader.time_maybe(first)?, reader.time_maybe(last)?);
    let (Some(first), Some(last)) = (first, last) else { return Ok(None) };
    let (from, last) = (from.max(first).as_millis(), last.as_millis());
    Ok(Some((from, last.min(until.as_millis().saturating_sub(1)))).filter(|(a, b)| a <= b))
}

pub(crate) async fn tend(session: &Session, tend: TendRollups) -> Result<bool> {
    session.run(TEND, move |client| Box::pin(tend_some(client, tend))).await
}

async fn tend_some(client: &Object, tend: TendRollups) -> Outcome<bool> {
    begin(client).await?;
    let mut more = fold(client, tend).await? >= tend.limit;
    if !more {
        let limit = limit(tend.limit);
        let params: [Param<'_>; 2] = [&tend.minutes_before.as_millis(), &limit];
        let minutes = execute(client, sql::ROLLUP_PRUNE, &params).await?;
        let params: [Param<'_>; 2] = [&tend.hours_before.as_millis(), &limit];
        let hours = execute(client, sql::ROLLUP_HOUR_PRUNE, &params).await?;
        more = minutes.max(hours) >= tend.limit as u64;
    }
    commit(client).await?;
    Ok(more)
}

/// How many rows were added to their hours.
async fn fold(client: &Object, tend: TendRollups) -> Outcome<usize> {
    let held = query(client, sql::ROLLUP_HOLD, &[]).await?;
    let Some(row) = held.first() else { return Ok(0) };
    let reader = Reader::new(row, "folded_rollup", "scope");
    let last: (i64, &str, Uid) = (reader.get("at")?, reader.get("scope")?, reader.get("node")?);
    let before = tend.fold_before.as_millis();
    let most = limit(tend.limit);
    let params: [Param<'_>; 5] = [&last.0, &last.1, &last.2, &before, &most];
    let due = query(client, sql::ROLLUP_DUE, &params).await?;
    let Some(end) = due.last() else { return Ok(0) };
    let mut sums: BTreeMap<(Timestamp, &str), RollupCounts> = BTreeMap::new();
    for row in &due {
        let reader = Reader::new(row, "rollup", "scope");
        let hour = RollupStep::Hour.floor(reader.time("at")?);
        sums.entry((hour, reader.get("scope")?)).or_default().add(&counts(&reader)?);
    }
    let at: Vec<i64> = sums.keys().map(|(hour, _)| hour.as_millis()).collect();
    let scopes: Vec<&str> = sums.keys().map(|(_, scope)| *scope).collect();
    let known = query(client, sql::ROLLUP_HOUR_GET, &[&at, &scopes]).await?;
    for row in &known {
        let reader = Reader::new(row, "rollup_hour", "scope");
        if let Some(sum) = sums.get_mut(&(reader.time("at")?, reader.get("scope")?)) {
            sum.add(&counts(&reader)?);
        }
    }
    let bytes: Vec<Vec<u8>> = sums.values().map(RollupCounts::to_bytes).collect();
    execute(client, sql::ROLLUP_HOUR_PUT, &[&at, &scopes, &bytes]).await?;
    let reader = Reader::new(end, "rollup", "scope");
    let last: (i64, &str, Uid) = (reader.get("at")?, reader.get("scope")?, reader.get("node")?);
    execute(client, sql::ROLLUP_FOLDED, &[&last.0, &last.1, &last.2]).await?;
    Ok(due.len())
}

/// Removes about so many figures of a tenant that is being deleted, of its subscriptions and of its topics; how many.
pub(crate) async fn forget(client: &Object, tenant: TenantId, most: i64) -> Outcome<usize> {
    let mut scopes = vec![RollupScope::Tenant(tenant).to_string()];
    for row in &query(client, sql::TENANT_SCOPES, &[&Uid::from(tenant)]).await? {
        let id = SubscriptionId::from(row.try_get::<_, Uid>(0)?);
        scopes.push(RollupScope::Subscription(id).to_string());
    }
    let (first, last) = RollupScope::topics_of(tenant);
    let params: [Param<'_>; 4] = [&scopes, &first, &last, &most];
    let rows = query(client, sql::TENANT_ROLLUPS, &params).await?;
    let removed: i64 = rows.first().map_or(Ok(0), |row| row.try_get("removed"))?;
    Ok(usize::try_from(removed).unwrap_or_default())
}

pub(crate) async fn pending_by_subscription(
    session: &Session,
) -> Result<Vec<(TenantId, SubscriptionId, u64)>> {
    session
        .run(PENDING, |client| {
            Box::pin(async move {
                begin(client).await?;
                allow_slow(client).await?;
                let rows = query(client, sql::PENDING_BY_SUBSCRIPTION, &[]).await?;
                commit(client).await?;
                let mut found = Vec::with_capacity(rows.len());
                for row in &rows {
                    let reader = Reader::new(row, "delivery_live", "subscription");
                    let number = reader.number("number")?;
                    found.push((reader.id("tenant")?, reader.id("subscription")?, number));
                }
                Ok(found)
            })
        })
        .await
}
