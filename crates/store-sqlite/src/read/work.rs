//! Finding work.

use std::collections::HashMap;
use std::sync::Arc;

use posthorn_domain::{Event, SHARD_COUNT, Shard, SubscriptionId, Timestamp};
use posthorn_store::{DueSubscription, FailingSubscription, PendingAsk, Streak, Work};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows;
use crate::codec::{Columns, NEVER, int};
use crate::error::Failure;
use crate::sql;

/// Every subscription of these shards with work that is not parked.
pub(crate) fn due_subscriptions(
    conn: &Connection,
    shards: &[Shard],
) -> Result<Vec<DueSubscription>, Failure> {
    let mut wanted = [false; SHARD_COUNT as usize];
    for shard in shards {
        wanted[usize::from(shard.number())] = true;
    }
    let mut statement = conn.prepare_cached(sql::DUE_SUBSCRIPTIONS)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let columns = Columns::of(row, "subscription", 0);
        let subscription = SubscriptionId::from_bytes(columns.array(1)?);
        // Parked ones sort last: if the first is parked, all are.
        let due_at = columns.time(2)?;
        if wanted[usize::from(Shard::of(subscription).number())] && due_at != Timestamp::MAX {
            found.push(DueSubscription { subscription, due_at });
        }
    }
    Ok(found)
}

/// Whether a delivery is to enter its lane.
pub(crate) fn may_enter(conn: &Connection, at: Timestamp) -> Result<bool, Failure> {
    let sql = "select exists (select 1 from scheduled indexed by scheduled_by_time where at <= ?1)";
    Ok(conn.prepare_cached(sql)?.query_row([at.as_millis()], |row| row.get(0))?)
}

/// Subscriptions of these shards whose receivers have only failed.
pub(crate) fn failing(
    conn: &Connection,
    shards: &[Shard],
) -> Result<Vec<FailingSubscription>, Failure> {
    let mut statement = conn.prepare_cached(sql::FAILING)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let columns = Columns::of(row, "failing", 0);
        let subscription = SubscriptionId::from_bytes(columns.array(0)?);
        if shards.contains(&Shard::of(subscription)) {
            let (exhausted, told) = (columns.int(2)? != 0, columns.int(3)? != 0);
            let streak = Streak { since: columns.time(1)?, exhausted, told };
            found.push(FailingSubscription { subscription, streak });
        }
    }
    Ok(found)
}

/// Work of some subscriptions, until there are `max_bytes` of payload.
pub(crate) fn pending(
    conn: &Connection,
    asks: &[PendingAsk],
    max_bytes: usize,
) -> Result<Vec<Vec<Work>>, Failure> {
    let mut number =
        conn.prepare_cached("select no from subscription where id = ?1 and deleted_at is null")?;
    let mut select = conn.prepare_cached(sql::PENDING)?;
    let mut events: HashMap<i64, Arc<Event>> = HashMap::new();
    let mut bytes = 0;
    let mut replies = Vec::with_capacity(asks.len());
    for ask in asks {
        let mut works = Vec::new();
        let id = ask.subscription.as_bytes().as_slice();
        let subscription: Option<i64> = number.query_row([id], |row| row.get(0)).optional()?;
        if let Some(subscription) = subscription.filter(|_| bytes <= max_bytes) {
            let (from, until) = (ask.from.as_millis(), ask.until.as_millis().min(NEVER - 1));
            let mut rows =
                select.query(params![subscription, from, until, int(ask.limit as u64)])?;
            while let Some(row) = rows.next()? {
                let delivery = rows::delivery(row)?;
                let no: i64 = row.get(14)?;
                let event = match events.get(&no) {
                    Some(event) => Arc::clone(event),
                    None => {
                        let event = rows::event_by_no(conn, no)?;
                        events.insert(no, Arc::clone(&event));
                        event
                    }
                };
                bytes = bytes.saturating_add(event.payload.len());
                works.push(Work { delivery, event });
                if bytes > max_bytes {
                    break;
                }
            }
        }
        replies.push(works);
    }
    Ok(replies)
}
