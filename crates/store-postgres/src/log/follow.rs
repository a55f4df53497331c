//! Following the log of all nodes.
//!
//! Rows carry the transaction they came with. Those of transactions that are older than every one still running are
//! complete: whatever commits later is younger. So a reader goes through them in that order, and nothing appears
//! behind it. A transaction that takes long keeps the readers waiting, and nobody else.
//!
//! A place is the transaction and, in its lower half, what tells the rows of one transaction apart.

use std::collections::HashMap;
use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::{Event, TenantId};
use posthorn_store::{AttemptLine, AttemptMade, FollowAsk, Followed, FollowedItem, Place, Result};
use tokio_postgres::Row;

use crate::codec::{self, Reader, Uid, limit, state_of};
use crate::failure::{Corrupt, Outcome};
use crate::session::{Operation, Param, Session, begin_snapshot, commit, query};
use crate::sql;

const EVENTS: Operation = Operation::read("events_after", "follow events");
const ATTEMPTS: Operation = Operation::read("attempts_after", "follow attempts");

/// Rows that are looked at in one go, whosever they are.
const LOOKS_MAX: usize = 5_000;

pub(crate) async fn events(session: &Session, ask: FollowAsk) -> Result<Followed<Event>> {
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

async fn find_events(client: &Object, ask: &FollowAsk) -> Outcome<Followed<Event>> {
    let name = |reader: &Reader<'_>| {
        let id: Uid = reader.get("id")?;
        let [.., a, b, c, d, e, f, g, h] = id.0;
        Ok((u64::from_be_bytes([a, b, c, d, e, f, g, h]), id))
    };
    let found = look(client, ask, sql::FOLLOW_EVENTS, name).await?;
    let tenants: Vec<Uid> = found.items.iter().map(|row| row.tenant.into()).collect();
    let ids: Vec<Uid> = found.items.iter().map(|row| row.item).collect();
    let mut whole: HashMap<Uid, Event> = HashMap::new();
    if !ids.is_empty() {
        for row in &query(client, sql::EVENTS_OF, &[&tenants, &ids, &limit(usize::MAX)]).await? {
            let event = codec::event(row, "id")?;
            whole.insert(event.id.into(), event);
        }
    }
    Ok(filled(found, |id| whole.remove(id)))
}

/// Enough to find an attempt.
type Name = (Uid, i32, i64);

async fn find_attempts(client: &Object, ask: &FollowAsk) -> Outcome<Followed<AttemptMade>> {
    let name = |reader: &Reader<'_>| {
        let no: i64 = reader.get("no")?;
        let name: Name = (reader.get("delivery")?, reader.get("number")?, no);
        Ok((no.max(0).unsigned_abs(), name))
    };
    let found = look(client, ask, sql::FOLLOW_ATTEMPTS, name).await?;
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
    let Followed { items, last, more } = found;
    let items = items.into_iter().filter_map(|FollowedItem { tenant, place, item }| {
        Some(FollowedItem { tenant, place, item: whole(&item)? })
    });
    Followed { items: items.collect(), last, more }
}

/// Names of the next rows: `name` says what tells a row apart in its transaction, and what it is called.
async fn look<N>(
    client: &Object,
    ask: &FollowAsk,
    text: &str,
    name: impl Fn(&Reader<'_>) -> Result<(u64, N), Corrupt>,
) -> Outcome<Followed<N>> {
    let Some(after) = ask.after else {
        let rows = query(client, sql::FOLLOW_END, &[]).await?;
        let end = match rows.first() {
            Some(row) => row.try_get("tx")?,
            None => 0,
        };
        return Ok(Followed { items: Vec::new(), last: end_of(end), more: false });
    };
    // A place that nobody has given out may be any number.
    let from = i64::try_from(after.0 >> 64).unwrap_or(i64::MAX);
    let rows = query(client, text, &[&from, &limit(LOOKS_MAX)]).await?;
    let mut looked = Vec::with_capacity(rows.len());
    for row in &rows {
        let reader = Reader::new(row, "log", "tenant");
        let (low, item) = name(&reader)?;
        let tx: i64 = reader.get("tx")?;
        let tenant: TenantId = reader.id("tenant")?;
        let place = Place((u128::from(tx.max(0).unsigned_abs()) << 64) | u128::from(low));
        looked.push(FollowedItem { tenant, place, item });
    }
    let full = looked.len() >= LOOKS_MAX;
    looked.retain(|row| row.place > after);
    looked.sort_by_key(|row| row.place);
    // One transaction with as many rows as are looked at, all of them read: it is over.
    let over = Place((u128::from(from.max(0).unsigned_abs()) << 64) | u128::from(u64::MAX));
    let stays = if full { over.max(after) } else { after };
    let mut last = looked.last().map_or(stays, |row| row.place);
    looked.retain(|row| ask.tenants.contains(&row.tenant));
    let cut = looked.len() > ask.limit;
    looked.truncate(ask.limit);
    if cut {
        last = looked.last().map_or(after, |row| row.place);
    }
    Ok(Followed { items: looked, last, more: full || cut })
}

/// The place before all rows of a transaction that may still be running.
fn end_of(tx: i64) -> Place {
    Place((u128::from(tx.max(0).unsigned_abs()) << 64).saturating_sub(1))
}
