//! Following the log of all nodes.
//!
//! Rows carry the transaction they came with. Those of transactions that are older than every one still running are
//! complete: whatever commits later is younger. So a reader goes through them in that order, and nothing appears
//! behind it. A transaction that takes long keeps the readers waiting, and nobody else.
//!
//! A place is the transaction and what tells the rows of one transaction apart, in the order in which they were
//! published or recorded: ids of events and numbers of attempts. All of one transaction are of one node, whose ids rise.

use std::collections::HashMap;
use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::{EventId, TenantId, Timestamp};
use posthorn_store::{
    AttemptLine, AttemptMade, EventLine, FollowAsk, Followed, FollowedItem, LogPlace, Result,
};
use tokio_postgres::Row;

use super::place_of;
use crate::codec::{self, Reader, Uid, limit, state_of};
use crate::failure::{Corrupt, Outcome};
use crate::session::{Operation, Param, Session, begin_snapshot, commit, query};
use crate::sql;

const EVENTS: Operation = Operation::read("events_after", "follow events");
const ATTEMPTS: Operation = Operation::read("attempts_after", "follow attempts");

/// Rows that are looked at in one go, whosever they are.
const LOOKS_MAX: usize = 5_000;
/// Where nobody else has many, so many for each that is wanted are enough.
const LOOKS_EACH: usize = 2;

/// What a log is read by.
struct Log {
    after: &'static str,
    from: &'static str,
}

const OF_EVENTS: Log = Log { after: sql::FOLLOW_EVENTS, from: sql::FOLLOW_EVENT_FROM };
const OF_ATTEMPTS: Log = Log { after: sql::FOLLOW_ATTEMPTS, from: sql::FOLLOW_ATTEMPT_FROM };

pub(crate) async fn events(session: &Session, ask: FollowAsk) -> Result<Followed<EventLine>> {
    let ask = Arc::new(ask);
    session
        .run(EVENTS, move |client| {
            let ask = Arc::clone(&ask);
            Box::pin(async move {
                begin_snapshot(client).await?;
                let found = find_events(client, &ask).await?;
                commit(client).await?;
                Ok(found)
            })
        })
        .await
}

pub(crate) async fn attempts(session: &Session, ask: FollowAsk) -> Result<Followed<AttemptMade>> {
    let ask = Arc::new(ask);
    session
        .run(ATTEMPTS, move |client| {
            let ask = Arc::clone(&ask);
            Box::pin(async move {
                begin_snapshot(client).await?;
                let found = find_attempts(client, &ask).await?;
                commit(client).await?;
                Ok(found)
            })
        })
        .await
}

async fn find_events(client: &Object, ask: &FollowAsk) -> Outcome<Followed<EventLine>> {
    let name = |reader: &Reader<'_>| {
        let id: Uid = reader.get("id")?;
        Ok((place_of(id), id))
    };
    let found = look(client, ask, &OF_EVENTS, name).await?;
    let tenants: Vec<Uid> = found.items.iter().map(|row| row.tenant.into()).collect();
    let ids: Vec<Uid> = found.items.iter().map(|row| row.item).collect();
    let mut whole = super::events::lines_of(client, &tenants, &ids).await?;
    Ok(filled(found, |id| whole.remove(&EventId::from(*id))))
}

/// Enough to find an attempt.
type Name = (Uid, i32, i64);

async fn find_attempts(client: &Object, ask: &FollowAsk) -> Outcome<Followed<AttemptMade>> {
    let name = |reader: &Reader<'_>| {
        let no: i64 = reader.get("no")?;
        let name: Name = (reader.get("delivery")?, reader.get("number")?, no);
        Ok((u128::from(no.max(0).unsigned_abs()), name))
    };
    let found = look(client, ask, &OF_ATTEMPTS, name).await?;
    let names = || found.items.iter().map(|row| row.item);
    let tenants: Vec<Uid> = found.items.iter().map(|row| row.tenant.into()).collect();
    let deliveries: Vec<Uid> = names().map(|(delivery, ..)| delivery).collect();
    let numbers: Vec<i32> = names().map(|(_, number, _)| number).collect();
    let nos: Vec<i64> = names().map(|(.., no)| no).collect();
    let mut whole: HashMap<Name, AttemptMade> = HashMap::new();
    if !nos.is_empty() {
        let params: [Param<'_>; 4] = [&tenants, &deliveries, &numbers, &nos];
        for row in &query(client, sql::FOLLOW_MADE, &params).await? {
            let place: i64 = Reader::new(row, "attempt", "delivery").get("place")?;
            let index = usize::try_from(place - 1).unwrap_or(usize::MAX);
            if let Some(name) = found.items.get(index) {
                whole.insert(name.item, made(row)?);
            }
        }
    }
    Ok(filled(found, |name| whole.remove(name)))
}

fn made(row: &Row) -> Result<AttemptMade, Corrupt> {
    let reader = Reader::new(row, "attempt", "delivery");
    let line = AttemptLine {
        attempt: codec::attempt(row)?,
        event: reader.id("event")?,
        subscription: reader.id("subscription")?,
    };
    let state = state_of(reader.get("state")?);
    let state = state.ok_or_else(|| reader.corrupt("state", "there is no such state"))?;
    Ok(AttemptMade { line, state })
}

/// The same with what the names stand for; what is gone meanwhile is left out.
fn filled<N, T>(found: Followed<N>, mut whole: impl FnMut(&N) -> Option<T>) -> Followed<T> {
    let Followed { items, last, more, skipped } = found;
    let items = items.into_iter().filter_map(|FollowedItem { tenant, place, item }| {
        Some(FollowedItem { tenant, place, item: whole(&item)? })
    });
    Followed { items: items.collect(), last, more, skipped }
}

/// Names of the next rows: `name` says what tells a row apart in its transaction, and what it is called.
async fn look<N>(
    client: &Object,
    ask: &FollowAsk,
    log: &Log,
    name: impl Fn(&Reader<'_>) -> Result<(u128, N), Corrupt>,
) -> Outcome<Followed<N>> {
    let Some(after) = ask.after else {
        let last = before(end(client).await?);
        return Ok(Followed { items: Vec::new(), last, more: false, skipped: false });
    };
    let passed = match ask.since {
        Some(since) => first_since(client, log, after, since).await?,
        None => None,
    };
    let after = passed.unwrap_or(after);
    let few = (ask.limit * LOOKS_EACH).clamp(1, LOOKS_MAX);
    let mut found = look_at(client, ask, log.after, (after, few), &name).await?;
    if found.items.is_empty() && found.more && few < LOOKS_MAX {
        found = look_at(client, ask, log.after, (found.last, LOOKS_MAX), &name).await?;
    }
    Ok(Followed { skipped: passed.is_some(), ..found })
}

async fn look_at<N>(
    client: &Object,
    ask: &FollowAsk,
    text: &str,
    (after, looks): (LogPlace, usize),
    name: &impl Fn(&Reader<'_>) -> Result<(u128, N), Corrupt>,
) -> Outcome<Followed<N>> {
    let rows = query(client, text, &[&transaction(after), &limit(looks)]).await?;
    let mut looked = Vec::with_capacity(rows.len());
    for row in &rows {
        let reader = Reader::new(row, "log", "tenant");
        let (row, item) = name(&reader)?;
        let tx: i64 = reader.get("tx")?;
        let tenant: TenantId = reader.id("tenant")?;
        let place = LogPlace { commit: tx.max(0).unsigned_abs(), row };
        looked.push(FollowedItem { tenant, place, item });
    }
    let full = looked.len() >= looks;
    looked.retain(|row| row.place > after);
    looked.sort_by_key(|row| row.place);
    // One transaction with as many rows as are looked at, all of them read: it is over.
    let over = LogPlace { row: u128::MAX, ..after };
    let stays = if full { over } else { after };
    let mut last = looked.last().map_or(stays, |row| row.place);
    looked.retain(|row| ask.tenants.contains(&row.tenant));
    let cut = looked.len() > ask.limit;
    looked.truncate(ask.limit);
    if cut {
        last = looked.last().map_or(after, |row| row.place);
    }
    Ok(Followed { items: looked, last, more: full || cut, skipped: false })
}

/// The place before the first row of a time, where the row after a place is older. Transactions rise with time, more
/// or less: so it is searched for by halves.
async fn first_since(
    client: &Object,
    log: &Log,
    after: LogPlace,
    since: Timestamp,
) -> Outcome<Option<LogPlace>> {
    // The transaction of the first row from one on, if that is older.
    let older = async |from: i64| -> Outcome<Option<i64>> {
        let rows = query(client, log.from, &[&from]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let at: i64 = row.try_get("at")?;
        Ok(if at < since.as_millis() { Some(row.try_get("tx")?) } else { None })
    };
    // Of its own transaction something was heard of, unless it stands before all of it.
    let next = transaction(after).saturating_add(i64::from(after.row > 0));
    let Some(mut low) = older(next).await? else { return Ok(None) };
    let mut high = end(client).await?;
    while low < high {
        // Above `low`, and at most `high`.
        let middle = low + (high - low + 1) / 2;
        match older(middle).await? {
            Some(tx) => low = tx.min(high),
            None => high = middle - 1,
        }
    }
    Ok(Some(before(low.saturating_add(1))))
}

/// The oldest transaction that may still be running.
async fn end(client: &Object) -> Outcome<i64> {
    let rows = query(client, sql::FOLLOW_END, &[]).await?;
    Ok(match rows.first() {
        Some(row) => row.try_get("tx")?,
        None => 0,
    })
}

/// The place before all rows of a transaction.
fn before(tx: i64) -> LogPlace {
    LogPlace { commit: tx.max(0).unsigned_abs(), row: 0 }
}

/// A place that nobody has given out may be any number.
fn transaction(place: LogPlace) -> i64 {
    i64::try_from(place.commit).unwrap_or(i64::MAX)
}
