//! Removing what was said: payloads of events, what attempts sent of them, and what receivers answered.
//!
//! SQLite leaves removed bytes where they were until something else is written there. While this works, it
//! overwrites them with zeros, in the pages of rows and in those that become free. Nothing of it is in an index.
//! Older versions of these pages stay in the write-ahead log until it is written over.

use posthorn_domain::{DeliveryId, Event, EventId, TenantId, Timestamp};
use posthorn_store::{Along, Refusal};
use rusqlite::{Connection, params};

use super::audit;
use crate::error::Failure;
use crate::read::lists::neighbours;
use crate::read::rows;
use crate::sql;
use crate::writer::Writer;

/// Removes the payload of an event.
pub(crate) fn event(
    writer: &mut Writer,
    tenant: TenantId,
    id: EventId,
    responses: bool,
    at: Timestamp,
    along: &Along,
) -> Result<Event, Failure> {
    let tenant = writer.cache.tenants.get(&tenant).ok_or(Refusal::NotFound)?.no;
    audit::check(&writer.cache, along)?;
    let conn = &writer.conn;
    let (no, did) = overwriting(conn, || expunge(conn, tenant, id, responses, at))?;
    if did {
        audit::write(writer, along)?;
    }
    let conn = &writer.conn;
    Ok(std::sync::Arc::unwrap_or_clone(rows::event_by_no(conn, no)?))
}

/// Removes those of several events; of how many something went. What cannot be done is passed over.
pub(crate) fn events(
    conn: &Connection,
    tenant: i64,
    ids: &[EventId],
    responses: bool,
    at: Timestamp,
) -> Result<usize, Failure> {
    if ids.is_empty() {
        return Ok(0);
    }
    overwriting(conn, || {
        let mut done = 0;
        for id in ids {
            match expunge(conn, tenant, *id, responses, at) {
                Ok((_, did)) => done += usize::from(did),
                Err(Failure::Refused(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(done)
    })
}

/// Its number, and whether anything changed.
fn expunge(
    conn: &Connection,
    tenant: i64,
    id: EventId,
    responses: bool,
    at: Timestamp,
) -> Result<(i64, bool), Failure> {
    let event = neighbours(conn, tenant, id)?.ok_or(Refusal::NotFound)?;
    let values = params![event.first, event.end, event.no];
    if conn.prepare_cached(sql::UNFINISHED)?.query_row(values, |row| row.get(0))? {
        return Err(Refusal::Unfinished.into());
    }
    let mut statement = conn.prepare_cached(sql::EXPUNGE_EVENT)?;
    let mut changed = statement.execute(params![event.no, at.as_millis()])?;
    let mut later = conn.prepare_cached("select seq from later_delivery where event = ?1")?;
    let later = later.query_map([event.no], |row| row.get::<_, i64>(0))?;
    let later = later.collect::<rusqlite::Result<Vec<i64>>>()?;
    for (first, end) in later.iter().map(|seq| (*seq, seq + 1)).chain([(event.first, event.end)]) {
        conn.prepare_cached(sql::EXPUNGE_SENT)?.execute([first, end])?;
        if responses {
            let mut clear = conn.prepare_cached(sql::EXPUNGE_RESPONSES)?;
            changed += clear.execute(params![first, end, at.as_millis()])?;
        }
    }
    Ok((event.no, changed > 0))
}

/// Removes what the receiver answered to one attempt.
pub(crate) fn response(
    writer: &mut Writer,
    tenant: TenantId,
    id: DeliveryId,
    number: u32,
    at: Timestamp,
    along: &Along,
) -> Result<(), Failure> {
    audit::check(&writer.cache, along)?;
    let conn = &writer.conn;
    let delivery = crate::read::queries::delivery(conn, tenant, id)?.ok_or(Refusal::NotFound)?;
    let seq = crate::codec::int(delivery.seq);
    let known = "select exists (select 1 from attempt where delivery = ?1 and number = ?2)";
    if !conn.prepare_cached(known)?.query_row(params![seq, number], |row| row.get::<_, bool>(0))? {
        return Err(Refusal::NotFound.into());
    }
    let cleared = overwriting(conn, || {
        let values = params![seq, number, at.as_millis()];
        Ok(conn.prepare_cached(sql::EXPUNGE_RESPONSE)?.execute(values)?)
    })?;
    if cleared > 0 { audit::write(writer, along) } else { Ok(()) }
}

/// Has SQLite overwrite what `work` removes. Only then: it has to read pages that it would otherwise just let go.
pub(super) fn overwriting<T>(
    conn: &Connection,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    // It takes effect when it is prepared, so it must be prepared each time.
    let set = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    set("pragma secure_delete = 1")?;
    let done = work();
    set("pragma secure_delete = 0")?;
    done
}
