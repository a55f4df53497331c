//! Accepting events: the hotter half of the hot path.

use posthorn_domain::{EventId, Timestamp, TraceContext};
use posthorn_store::{Accepted, NewEvent, Placed};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::entry;
use crate::cache::{Cache, KnownTenant};
use crate::codec::{Columns, NEVER, due, int, json};
use crate::error::Failure;
use crate::log::changes::Changes;
use crate::sql;
use crate::writer::{Numbers, Weight, Writer};

/// How much work a batch is.
pub(crate) fn weight(batch: &[NewEvent]) -> Weight {
    Weight {
        rows: batch.iter().map(|new| 1 + new.deliveries.len()).sum(),
        bytes: batch.iter().map(|new| new.event.payload.len()).sum(),
    }
}

/// Stores events with all their deliveries and keys, each item judged by itself.
pub(crate) fn accept(writer: &mut Writer, batch: &[NewEvent]) -> Result<Vec<Accepted>, Failure> {
    let Writer { conn, cache, numbers, log, .. } = writer;
    accept_with(conn, cache, numbers, log, batch)
}

/// The same for those who are at work on the parts of the writer.
pub(crate) fn accept_with(
    conn: &Connection,
    cache: &Cache,
    numbers: &mut Numbers,
    log: &mut Changes,
    batch: &[NewEvent],
) -> Result<Vec<Accepted>, Failure> {
    let mut statements = Statements {
        event: conn.prepare_cached(sql::INSERT_EVENT)?,
        delivery: conn.prepare_cached(sql::INSERT_DELIVERY)?,
        in_lane: conn.prepare_cached(sql::INSERT_IN_LANE)?,
        find_key: conn.prepare_cached(sql::FIND_KEY)?,
        insert_key: conn.prepare_cached(sql::INSERT_KEY)?,
    };
    batch.iter().map(|new| statements.accept_one(conn, cache, numbers, log, new)).collect()
}

struct Statements<'c> {
    event: CachedStatement<'c>,
    delivery: CachedStatement<'c>,
    in_lane: CachedStatement<'c>,
    find_key: CachedStatement<'c>,
    insert_key: CachedStatement<'c>,
}

impl Statements<'_> {
    fn accept_one(
        &mut self,
        conn: &Connection,
        cache: &Cache,
        numbers: &mut Numbers,
        log: &mut Changes,
        new: &NewEvent,
    ) -> Result<Accepted, Failure> {
        // A tenant that is not there has no keys either; its plan cannot be current.
        let Some(tenant) = cache.tenants.get(&new.event.tenant) else {
            return Ok(Accepted::Stale);
        };
        if let Some(repeat) = self.find_repeat(tenant, new)? {
            return Ok(repeat);
        }
        if tenant.version != new.catalog || tenant.closed {
            return Ok(Accepted::Stale);
        }
        let mut to = Vec::with_capacity(new.deliveries.len());
        for delivery in &new.deliveries {
            match cache.subscriptions.get(&delivery.subscription) {
                Some(known) if known.tenant == tenant.no => to.push(known.no),
                // A current plan never names such a one; a wrong one must not be half stored.
                _ => return Ok(Accepted::Stale),
            }
        }
        numbers.event += 1;
        let event = numbers.event;
        let last_seq = &mut numbers.seq;
        self.insert_event(tenant, event, *last_seq + 1, new)?;
        if let Some(at) = new.event.expires_at() {
            conn.prepare_cached("insert into expiry (event, at) values (?1, ?2)")?
                .execute(params![event, at.as_millis()])?;
        }
        log.accepted(tenant.no, to.len());
        let mut placed = Vec::with_capacity(to.len());
        for (delivery, subscription) in new.deliveries.iter().zip(to) {
            *last_seq += 1;
            let (id, due) = (delivery.id.as_bytes().as_slice(), due(delivery.due_at));
            let parked = match (&delivery.lane, new.event.deliver_at) {
                (Some(lane), Some(at)) => {
                    let values = params![*last_seq, id, event, tenant.no, subscription, NEVER];
                    self.delivery.execute(values)?;
                    entry::schedule(conn, *last_seq, at, lane.as_str())?;
                    true
                }
                (None, _) => {
                    self.delivery.execute(params![
                        *last_seq,
                        id,
                        event,
                        tenant.no,
                        subscription,
                        due
                    ])?;
                    false
                }
                (Some(lane), None) => {
                    let values =
                        params![*last_seq, id, event, tenant.no, subscription, due, lane.as_str()];
                    let due: i64 = self.in_lane.query_row(values, |row| row.get(0))?;
                    due == NEVER
                }
            };
            placed.push(Placed { seq: last_seq.unsigned_abs(), parked });
        }
        Ok(Accepted::Stored(placed))
    }

    /// The event and its key.
    fn insert_event(
        &mut self,
        tenant: &KnownTenant,
        no: i64,
        first_seq: i64,
        new: &NewEvent,
    ) -> Result<(), Failure> {
        let event = &*new.event;
        let accepted_at = event.accepted_at.as_millis();
        if let Some(idempotency) = &new.idempotency {
            self.insert_key.execute(params![
                tenant.no,
                idempotency.key.as_str(),
                idempotency.fingerprint.as_slice(),
                event.id.as_bytes().as_slice(),
                accepted_at,
            ])?;
        }
        let attributes = match event.attributes.is_empty() {
            true => None,
            false => Some(json(&event.attributes)),
        };
        self.event.execute(params![
            event.id.as_bytes().as_slice(),
            tenant.no,
            accepted_at,
            first_seq,
            int(new.deliveries.len() as u64),
            event.topic.as_str(),
            event.event_type.as_str(),
            attributes,
            event.key.as_ref().map(|key| key.as_str()),
            event.content_type,
            event.payload.as_ref(),
            no,
            event.publisher_id.as_ref().map(|own| own.as_str()),
            event.deliver_at.map(Timestamp::as_millis),
            event.retention.map(|retention| int(retention.as_millis())),
            event.trace.map(TraceContext::to_bytes),
        ])?;
        Ok(())
    }

    fn find_repeat(
        &mut self,
        tenant: &KnownTenant,
        new: &NewEvent,
    ) -> Result<Option<Accepted>, Failure> {
        let Some(idempotency) = &new.idempotency else { return Ok(None) };
        let found = self
            .find_key
            .query_row(params![tenant.no, idempotency.key.as_str()], |row| {
                let columns = Columns::of(row, "idempotency", 1);
                Ok(columns.array::<32>(0).and_then(|sum| Ok((sum, columns.array::<16>(1)?))))
            })
            .optional()?;
        let Some(found) = found else { return Ok(None) };
        let (fingerprint, event) = found?;
        let event = EventId::from_bytes(event);
        Ok(Some(if fingerprint == idempotency.fingerprint {
            Accepted::Duplicate { event }
        } else {
            Accepted::Conflict { event }
        }))
    }
}
