//! Moving deliveries by hand, and who goes on in a lane because of it.
//!
//! A delivery *holds* its lane while it is unfinished, or dead and blocking. Of all holders of a
//! lane at most one is not parked: its head. Who ends or cancels the head promotes the holder with
//! the smallest seq.

use posthorn_domain::{
    CancelReason, CatalogVersion, Delivery, DeliveryId, DeliveryState, TenantId, Timestamp,
};
use posthorn_store::{Moved, Recall, Refusal, Work};
use rusqlite::{Connection, OptionalExtension, params};

use crate::codec::{Columns, NEVER, due, int, state_code};
use crate::error::{Corrupt, Failure};
use crate::read::rows;
use crate::sql;
use crate::writer::Writer;

/// Makes the first parked delivery of a lane its head, if the lane has no head.
pub(crate) fn promote(
    conn: &Connection,
    subscription: i64,
    lane: &str,
    at: Timestamp,
) -> Result<Option<Work>, Failure> {
    promote_first(conn, subscription, lane, at)?.map(|seq| rows::work(conn, seq)).transpose()
}

fn promote_first(
    conn: &Connection,
    subscription: i64,
    lane: &str,
    at: Timestamp,
) -> Result<Option<i64>, Failure> {
    let first = conn
        .prepare_cached(sql::FIRST_OF_LANE)?
        .query_row(params![subscription, lane], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        })
        .optional()?;
    match first {
        Some((seq, 0, NEVER)) => {
            conn.prepare_cached(sql::PROMOTE)?.execute(params![seq, due(at)])?;
            Ok(Some(seq))
        }
        _ => Ok(None),
    }
}

/// Cancels one delivery on behalf of an operator.
pub(crate) fn cancel(
    writer: &mut Writer,
    tenant: TenantId,
    delivery: DeliveryId,
    at: Timestamp,
) -> Result<Moved, Failure> {
    let found = find(writer, tenant, delivery)?;
    let deleted = writer.cache.unswept.contains(&found.subscription);
    let ended = found.state >= 2 || deleted;
    // The one ended delivery that may still be cancelled is a dead letter that blocks its lane.
    if ended && !(found.state >= 2 && found.holds_lane) {
        return Err(Refusal::Ended.into());
    }
    let conn = &writer.conn;
    let state = state_code(DeliveryState::Cancelled(CancelReason::Operator));
    conn.prepare_cached(sql::CANCEL)?.execute(params![found.seq, state, at.as_millis()])?;
    let was_parked = found.state < 2 && found.due_at == NEVER;
    let ready = match &found.lane {
        Some(lane) if found.holds_lane && !was_parked && !deleted => {
            promote(conn, found.subscription, lane, found.leased_until(at).unwrap_or(at))?
        }
        _ => None,
    };
    let delivery = rows::delivery_by_seq(conn, found.seq)?;
    let recalls: Vec<Recall> =
        (found.state < 2).then(|| recall_of(&delivery)).into_iter().collect();
    Ok(Moved { delivery, ready, recall: recall(writer, &recalls, at)? })
}

/// Removes one delivery with its attempts.
pub(crate) fn forget(
    writer: &mut Writer,
    tenant: TenantId,
    delivery: DeliveryId,
    at: Timestamp,
) -> Result<Moved, Failure> {
    let found = find(writer, tenant, delivery)?;
    let deleted = writer.cache.unswept.contains(&found.subscription);
    let conn = &writer.conn;
    let mut delivery = rows::delivery_by_seq(conn, found.seq)?;
    let mut recalls = Vec::new();
    if !delivery.state.is_terminal() {
        delivery.revival += 1;
        recalls.push(recall_of(&delivery));
        delivery.state = DeliveryState::Cancelled(CancelReason::Operator);
        delivery.ended_at = Some(at);
        delivery.due_at = Timestamp::MAX;
    }
    super::keep_seqs(writer)?;
    let conn = &writer.conn;
    conn.prepare_cached("delete from attempt where delivery = ?1")?.execute([found.seq])?;
    conn.prepare_cached("delete from delivery where seq = ?1")?.execute([found.seq])?;
    let was_parked = found.state < 2 && found.due_at == NEVER;
    let ready = match &found.lane {
        Some(lane) if found.holds_lane && !was_parked && !deleted => {
            promote(conn, found.subscription, lane, found.leased_until(at).unwrap_or(at))?
        }
        _ => None,
    };
    Ok(Moved { delivery, ready, recall: recall(writer, &recalls, at)? })
}

/// Has a delivery tried now: an ended one comes back, one that waits keeps its place.
pub(crate) fn retry(
    writer: &mut Writer,
    tenant: TenantId,
    delivery: DeliveryId,
    at: Timestamp,
) -> Result<Moved, Failure> {
    let found = find(writer, tenant, delivery)?;
    let conn = &writer.conn;
    let gone = conn
        .prepare_cached("select deleted_at is not null from subscription where no = ?1")?
        .query_row([found.subscription], |row| row.get(0))?;
    if gone {
        return Err(Refusal::NotFound.into());
    }
    if found.leased_until(at).is_some() {
        return Err(Refusal::NotEnded.into());
    }
    let Revived { recalled, ready } = if found.state < 2 {
        conn.prepare_cached(sql::HASTEN)?.execute(params![found.seq, at.as_millis(), due(at)])?;
        let hastened = rows::delivery_by_seq(conn, found.seq)?;
        let ready = (!hastened.is_parked()).then_some(found.seq);
        Revived { recalled: Some(recall_of(&hastened)), ready }
    } else {
        revive(conn, found.seq, at)?
    };
    let delivery = rows::delivery_by_seq(conn, found.seq)?;
    let ready = ready.map(|seq| rows::work(conn, seq)).transpose()?;
    Ok(Moved { delivery, ready, recall: recall(writer, recalled.as_slice(), at)? })
}

/// What follows from bringing one back.
pub(crate) struct Revived {
    /// Whose copies are out of date.
    pub(crate) recalled: Option<Recall>,
    /// Who goes on, by its seq.
    pub(crate) ready: Option<i64>,
}

/// Back to pending with a fresh budget, in its place: a head that comes later has to wait.
pub(crate) fn revive(conn: &Connection, seq: i64, at: Timestamp) -> Result<Revived, Failure> {
    let (subscription, lane): (i64, Option<String>) = conn
        .prepare_cached(sql::LANE_OF)?
        .query_row([seq], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?
        .ok_or_else(|| vanished(seq))?;
    let head = match &lane {
        None => None,
        Some(lane) => conn
            .prepare_cached(sql::HEAD_OF_LANE)?
            .query_row(params![subscription, lane, seq], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
            })
            .optional()?,
    };
    let (taken, waits) = match head {
        None => (false, None),
        Some((head, state, due_at)) => {
            let leased = state == 1 && due_at > at.as_millis();
            let first = state < 2 && seq < head && !leased;
            (!first, first.then_some(head))
        }
    };
    let mut recalled = None;
    if let Some(head) = waits {
        conn.prepare_cached(sql::DISPLACE)?.execute([head])?;
        recalled = Some(recall_of(&rows::delivery_by_seq(conn, head)?));
    }
    let due_at = if lane.is_some() { NEVER } else { due(at) };
    let changed =
        conn.prepare_cached(sql::REVIVE)?.execute(params![seq, at.as_millis(), due_at])?;
    if changed != 1 {
        return Err(vanished(seq).into());
    }
    // In a lane it waits like the others; when the lane is free, the first of all goes on.
    let ready = match &lane {
        None => Some(seq),
        Some(_) if taken => None,
        Some(lane) => promote_first(conn, subscription, lane, at)?,
    };
    Ok(Revived { recalled, ready })
}

fn vanished(seq: i64) -> Corrupt {
    let problem = "it was there a moment ago".to_owned();
    Corrupt { table: "delivery", row: seq.to_string(), problem }
}

/// What nodes must hear of a delivery that has just changed.
pub(crate) fn recall_of(delivery: &Delivery) -> Recall {
    Recall { subscription: delivery.subscription, delivery: delivery.id, revival: delivery.revival }
}

/// Writes down whose copies are out of date, as a version of the catalog of its own.
pub(crate) fn recall(
    writer: &mut Writer,
    recalls: &[Recall],
    at: Timestamp,
) -> Result<Option<CatalogVersion>, Failure> {
    if recalls.is_empty() {
        return Ok(None);
    }
    let next = CatalogVersion(writer.cache.version.0 + 1);
    let conn = &writer.conn;
    let mut insert = conn.prepare_cached(sql::INSERT_RECALL)?;
    for recall in recalls {
        insert.execute(params![
            int(next.0),
            recall.subscription.as_bytes().as_slice(),
            recall.delivery.as_bytes().as_slice(),
            recall.revival,
            at.as_millis(),
        ])?;
    }
    conn.prepare_cached("update store set catalog_version = ?1")?.execute([int(next.0)])?;
    drop(insert);
    writer.cache.version = next;
    Ok(Some(next))
}

struct Found {
    seq: i64,
    subscription: i64,
    state: i64,
    due_at: i64,
    lane: Option<String>,
    holds_lane: bool,
}

impl Found {
    /// Until when a written lease says that an attempt is under way.
    fn leased_until(&self, at: Timestamp) -> Option<Timestamp> {
        let until = Timestamp::from_millis(self.due_at);
        (self.state == 1 && until > at).then_some(until)
    }
}

fn find(writer: &Writer, tenant: TenantId, delivery: DeliveryId) -> Result<Found, Failure> {
    let tenant = writer.cache.tenants.get(&tenant).ok_or(Refusal::NotFound)?;
    let mut statement = writer.conn.prepare_cached(sql::FIND_TO_MOVE)?;
    let mut rows = statement.query(params![delivery.as_bytes().as_slice(), tenant.no])?;
    let row = rows.next()?.ok_or(Refusal::NotFound)?;
    let columns = Columns::of(row, "delivery", 0);
    Ok(Found {
        seq: columns.int(0)?,
        subscription: columns.int(1)?,
        state: columns.int(2)?,
        due_at: columns.int(3)?,
        lane: columns.maybe_text(4)?.map(str::to_owned),
        holds_lane: columns.maybe_int(5)?.is_some(),
    })
}
