//! Moving deliveries by hand, and who goes on in a lane because of it.
//!
//! A delivery *holds* its lane while it is unfinished, or dead and blocking. Of all holders of a
//! lane at most one is not parked: its head. Who ends or cancels the head promotes the holder with
//! the smallest seq. What is done by hand is decided by [`delivery::by_hand`].

use posthorn_domain::delivery::{self, Head, Others, Stored, Wish};
use posthorn_domain::{
    Budget, CatalogVersion, Delivery, DeliveryId, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{Along, Moved, Moves, Recall, Refusal, Work};
use rusqlite::{Connection, OptionalExtension, Params, params};

use super::{audit, entry};
use crate::codec::{Columns, NEVER, base_code, due, int, lane_of, state_code};
use crate::error::Failure;
use crate::log::changes::{Changes, Moving};
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
    let first = conn
        .prepare_cached(sql::FIRST_OF_LANE)?
        .query_row(params![subscription, lane], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        })
        .optional()?;
    let Some((seq, 0, NEVER)) = first else { return Ok(None) };
    conn.prepare_cached(sql::PROMOTE)?.execute(params![seq, due(at)])?;
    rows::work(conn, seq).map(Some)
}

/// Does what somebody wants of a delivery, as far as it is possible.
pub(crate) fn by_hand(
    writer: &mut Writer,
    wish: Wish,
    tenant: TenantId,
    id: DeliveryId,
    at: Timestamp,
    along: &Along,
) -> Result<Moved, Failure> {
    audit::check(&writer.cache, along)?;
    let values = params![id.as_bytes().as_slice(), tenant.as_bytes().as_slice()];
    let found = find(&writer.conn, sql::DELIVERY_BY_ID, values)?;
    if wish == Wish::Forget {
        super::keep_numbers(writer)?;
    }
    let Writer { conn, log, .. } = writer;
    let Done { delivery, ready, recalls } = carry_out(conn, log, wish, &found, at)?;
    let ready = ready.map(|seq| rows::work(conn, seq)).transpose()?;
    audit::write(writer, along)?;
    Ok(Moved { delivery, ready, recall: recall(writer, &recalls, at)? })
}

/// What was done to many.
#[derive(Default)]
pub(crate) struct MovedMany {
    pub(crate) done: usize,
    /// Of whom somebody else goes on now.
    pub(crate) due: Vec<SubscriptionId>,
    pub(crate) recalls: Vec<Recall>,
}

/// Does the same to many deliveries of a tenant, as far as each is still meant.
pub(crate) fn move_many(
    writer: &mut Writer,
    tenant: TenantId,
    moves: &Moves,
    at: Timestamp,
) -> Result<MovedMany, Failure> {
    let mut all = MovedMany::default();
    if moves.wish == Wish::Forget {
        super::keep_numbers(writer)?;
    }
    let Writer { conn, log, .. } = writer;
    for id in &moves.deliveries {
        let values = params![id.as_bytes().as_slice(), tenant.as_bytes().as_slice()];
        let found = match find(conn, sql::DELIVERY_BY_ID, values) {
            Err(Failure::Refused(_)) => continue,
            found => found?,
        };
        if !moves.filter.wants(&found.stored.clone().seen()) {
            continue;
        }
        match carry_out(conn, log, moves.wish, &found, at) {
            Err(Failure::Refused(_)) => {}
            moved => {
                let Done { delivery, ready, recalls } = moved?;
                all.done += 1;
                all.due.extend(ready.map(|_| delivery.subscription));
                all.recalls.extend(recalls);
            }
        }
    }
    Ok(all)
}

/// Brings a dead letter back; whose copies are out of date because of it.
pub(crate) fn revive(
    conn: &Connection,
    log: &mut Changes,
    seq: i64,
    budget: Budget,
    at: Timestamp,
) -> Result<Vec<Recall>, Failure> {
    let found = find(conn, sql::DELIVERY_BY_SEQ, [seq])?;
    Ok(carry_out(conn, log, Wish::retry(budget), &found, at)?.recalls)
}

struct Found {
    stored: Stored,
    seq: i64,
    subscription: i64,
    moving: Moving,
}

fn find(conn: &Connection, sql: &str, values: impl Params) -> Result<Found, Failure> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let row = rows.next()?.ok_or(Refusal::NotFound)?;
    let seq = row.get(0)?;
    let moving = Moving { tenant: row.get(19)?, event: row.get(14)?, seq };
    let mut stored = rows::stored(row)?;
    if stored.delivery.is_outside_its_lane() {
        stored.enters = enters(conn, seq)?;
    }
    Ok(Found { stored, seq, subscription: row.get(17)?, moving })
}

/// The lane that a delivery enters later.
fn enters(conn: &Connection, seq: i64) -> Result<Option<posthorn_domain::Lane>, Failure> {
    let mut statement = conn.prepare_cached("select lane from scheduled where seq = ?1")?;
    let mut rows = statement.query([seq])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let columns = Columns::of(row, "scheduled", 0);
    let lane = lane_of(columns.text(0)?).ok_or_else(|| columns.corrupt("not a lane"))?;
    Ok(Some(lane))
}

/// What was done.
struct Done {
    delivery: Delivery,
    /// Who is due now because of it, by its seq.
    ready: Option<i64>,
    recalls: Vec<Recall>,
}

fn carry_out(
    conn: &Connection,
    log: &mut Changes,
    wish: Wish,
    found: &Found,
    at: Timestamp,
) -> Result<Done, Failure> {
    let Lane { others, head, parked } = others_of(conn, found, at)?;
    let moved = delivery::by_hand(wish, &found.stored, &others, at).map_err(Refusal::from)?;
    let mut recalls = Vec::new();
    if let Some(head) = head.filter(|_| moved.displaces) {
        conn.prepare_cached(sql::DISPLACE)?.execute([head])?;
        recalls.push(recall_of(&rows::delivery_by_seq(conn, head)?));
    }
    let delivery = moved.delivery;
    if found.stored.enters.is_some() {
        entry::unschedule(conn, found.seq)?;
    }
    match wish {
        Wish::Forget => {
            log.removed(found.moving, state_code(found.stored.delivery.state));
            super::remove_attempts(conn, log, found.seq, found.seq + 1)?;
            conn.prepare_cached("delete from delivery where seq = ?1")?.execute([found.seq])?;
            conn.prepare_cached("delete from later_delivery where event = ?1 and seq = ?2")?
                .execute([found.moving.event, found.seq])?;
        }
        Wish::Cancel | Wish::Retry | Wish::RetryOnce => {
            log.moved(found.moving, found.stored.delivery.state, delivery.state);
            conn.prepare_cached(sql::MOVE)?.execute(params![
                found.seq,
                state_code(delivery.state),
                delivery.due_at.as_millis(),
                delivery.ended_at.map(Timestamp::as_millis),
                base_code(delivery.budget_base, delivery.budget),
                delivery.budget_began.as_millis(),
                delivery.revival,
            ])?;
            if let Some(lane) = &found.stored.enters {
                conn.prepare_cached("update delivery set lane = ?2 where seq = ?1")?
                    .execute(params![found.seq, lane.as_str()])?;
            }
        }
    }
    recalls.extend(moved.recalled.then(|| recall_of(&delivery)));
    let itself = !delivery.state.is_terminal() && !delivery.is_parked();
    let ready = match (moved.promotes, parked) {
        (Some(from), Some(parked)) => {
            conn.prepare_cached(sql::PROMOTE)?.execute(params![parked, due(from)])?;
            Some(parked)
        }
        _ => itself.then_some(found.seq),
    };
    Ok(Done { delivery, ready, recalls })
}

/// The others in the lane of a delivery.
#[derive(Default)]
struct Lane {
    others: Others,
    head: Option<i64>,
    parked: Option<i64>,
}

fn others_of(conn: &Connection, found: &Found, at: Timestamp) -> Result<Lane, Failure> {
    let Found { stored, seq, subscription, .. } = found;
    let Some(name) = stored.delivery.lane.as_ref().filter(|_| stored.left.is_none()) else {
        return Ok(Lane::default());
    };
    let values = params![subscription, name.as_str(), seq];
    let mut lane = Lane::default();
    // Who leads a lane does so alone; looking for somebody else would pass over all that are parked.
    if !stored.leads() {
        let found: Option<(i64, i64, i64)> = conn
            .prepare_cached(sql::HEAD_OF_LANE)?
            .query_row(values, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        match found {
            Some((head, state @ 0..2, due_at)) => {
                let leased = state == 1 && due_at > at.as_millis();
                lane.others.head = Some(Head { seq: head.unsigned_abs(), leased });
                lane.head = Some(head);
            }
            blocker => lane.others.blocked = blocker.is_some(),
        }
    }
    let first = conn.prepare_cached(sql::FIRST_PARKED)?.query_row(values, |row| row.get(0));
    lane.parked = first.optional()?;
    lane.others.parked = lane.parked.map(i64::unsigned_abs);
    Ok(lane)
}

/// What nodes must hear of a delivery that has just changed.
fn recall_of(delivery: &Delivery) -> Recall {
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
