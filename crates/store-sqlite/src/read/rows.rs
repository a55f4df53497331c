//! Rows of the hot tables as the domain's values.

use std::collections::BTreeMap;
use std::sync::Arc;

use posthorn_domain::delivery::Stored;
use posthorn_domain::{
    Attempt, Delivery, DeliveryId, Event, EventId, FailureCode, LaneKey, Outcome, SentRequest,
    Span, SubscriptionId, TenantId, Timings, TraceContext,
};
use posthorn_store::{EventLine, Work};
use rusqlite::{Connection, Row};

use crate::codec::{Columns, base_of, lane_of, state_of};
use crate::error::{Corrupt, Failure};
use crate::sql;

/// Decodes the `delivery_columns` of [`sql`]. The delivery of a deleted subscription reads as
/// cancelled, swept or not.
pub(crate) fn delivery(row: &Row<'_>) -> Result<Delivery, Corrupt> {
    Ok(stored(row)?.seen())
}

/// The same, as it is.
pub(crate) fn stored(row: &Row<'_>) -> Result<Stored, Corrupt> {
    let columns = Columns::of(row, "delivery", 0);
    let lane = match columns.maybe_text(5)? {
        None => None,
        Some(text) => Some(lane_of(text).ok_or_else(|| columns.corrupt("not a lane"))?),
    };
    let state = columns.int(6)?;
    let state = state_of(state)
        .ok_or_else(|| columns.corrupt(format_args!("there is no state {state}")))?;
    let base = base_of(columns.int(9)?);
    let (budget_base, budget) = base.ok_or_else(|| columns.corrupt("not a budget"))?;
    let (created_at, deliver_at) = (columns.time(11)?, columns.maybe_time(20)?);
    let delivery = Delivery {
        seq: columns.number(0)?,
        id: DeliveryId::from_bytes(columns.array(1)?),
        event: EventId::from_bytes(columns.array(2)?),
        subscription: SubscriptionId::from_bytes(columns.array(3)?),
        tenant: TenantId::from_bytes(columns.array(4)?),
        lane,
        state,
        due_at: columns.time(7)?,
        attempts: columns.number(8)?,
        budget_base,
        budget,
        budget_began: columns.maybe_time(10)?.or(deliver_at).unwrap_or(created_at),
        revival: columns.number(15)?,
        created_at,
        ended_at: columns.maybe_time(12)?,
        last_outcome: match columns.maybe_int(18)? {
            None => None,
            Some(_) => Outcome::from_code(columns.number(18)?),
        },
    };
    if delivery.state.is_terminal() != delivery.ended_at.is_some() {
        return Err(columns.corrupt("a delivery has a time of ending when it has ended, only"));
    }
    if delivery.budget_base > delivery.attempts {
        return Err(columns.corrupt("more attempts before the budget than in all"));
    }
    let blocks = delivery.state.is_terminal() && columns.maybe_int(16)?.is_some();
    let (left, expunged) = (columns.maybe_time(13)?, columns.maybe_int(21)?.is_some());
    Ok(Stored { delivery, blocks, left, deliver_at, enters: None, expunged })
}

/// Decodes the `event_columns` of [`sql`].
pub(crate) fn event(row: &Row<'_>) -> Result<Event, Corrupt> {
    let columns = Columns::of(row, "event", 0);
    let attributes = match columns.maybe_text(6)? {
        None => BTreeMap::new(),
        Some(_) => columns.json(6)?,
    };
    let key = match columns.maybe_text(7)? {
        None => None,
        Some(text) => Some(LaneKey::new(text).map_err(|error| columns.corrupt(error))?),
    };
    Ok(Event {
        id: EventId::from_bytes(columns.array(1)?),
        tenant: TenantId::from_bytes(columns.array(2)?),
        accepted_at: columns.time(3)?,
        topic: columns.parsed(4)?,
        event_type: columns.parsed(5)?,
        attributes,
        key,
        content_type: columns.text(8)?.to_owned(),
        payload: columns.bytes(9)?,
        publisher_id: match columns.maybe_text(10)? {
            None => None,
            Some(_) => Some(columns.parsed(10)?),
        },
        deliver_at: columns.maybe_time(11)?,
        retention: match columns.maybe_int(12)? {
            None => None,
            Some(_) => Some(Span::from_millis(columns.number(12)?)),
        },
        expunged_at: columns.maybe_time(13)?,
        trace: match columns.maybe_array::<{ TraceContext::BYTES }>(14)? {
            None => None,
            Some(bytes) => Some(
                TraceContext::from_bytes(&bytes)
                    .ok_or_else(|| columns.corrupt("no place in a trace"))?,
            ),
        },
    })
}

/// Decodes the `attempt_columns` of [`sql`].
pub(crate) fn attempt(row: &Row<'_>, delivery: DeliveryId) -> Result<Attempt, Corrupt> {
    let columns = Columns::of(row, "attempt", 0);
    let failure = match columns.maybe_text(6)? {
        None => None,
        Some(text) => {
            let code = FailureCode::parse(text);
            Some(code.ok_or_else(|| columns.corrupt(format_args!("no failure code {text}")))?)
        }
    };
    let status = match columns.maybe_int(5)? {
        None => None,
        Some(_) => Some(columns.number(5)?),
    };
    Ok(Attempt {
        delivery,
        number: columns.number(1)?,
        started_at: columns.time(2)?,
        took: Span::from_millis(columns.number(3)?),
        timings: columns.maybe_text(9)?.map(Timings::from_text).unwrap_or_default(),
        status,
        failure,
        detail: columns.maybe_text(7)?.unwrap_or_default().to_owned(),
        response: columns.bytes(8)?,
        late: columns.int(4)? != 0,
        manual: columns.int(10)? != 0,
        response_expunged_at: columns.maybe_time(11)?,
        request: columns.maybe_text(12)?.and_then(SentRequest::from_text).map(Box::new),
    })
}

/// One event by number.
pub(crate) fn event_by_no(conn: &Connection, no: i64) -> Result<Arc<Event>, Failure> {
    let mut statement = conn.prepare_cached(sql::EVENT_BY_NO)?;
    let mut rows = statement.query([no])?;
    match rows.next()? {
        Some(row) => Ok(Arc::new(event(row)?)),
        None => Err(missing("event", no).into()),
    }
}

/// The same without its payload.
pub(crate) fn event_line(conn: &Connection, no: i64) -> Result<EventLine, Failure> {
    let mut statement = conn.prepare_cached(sql::EVENT_LINE)?;
    let mut rows = statement.query([no])?;
    let row = rows.next()?.ok_or_else(|| missing("event", no))?;
    let payload_bytes = Columns::of(row, "event", 0).number(15)?;
    Ok(EventLine { event: event(row)?, payload_bytes })
}

/// One delivery by seq.
pub(crate) fn delivery_by_seq(conn: &Connection, seq: i64) -> Result<Delivery, Failure> {
    let mut statement = conn.prepare_cached(sql::DELIVERY_BY_SEQ)?;
    let mut rows = statement.query([seq])?;
    match rows.next()? {
        Some(row) => Ok(delivery(row)?),
        None => Err(missing("delivery", seq).into()),
    }
}

/// One delivery by seq, with its event.
pub(crate) fn work(conn: &Connection, seq: i64) -> Result<Work, Failure> {
    let mut statement = conn.prepare_cached(sql::DELIVERY_BY_SEQ)?;
    let mut rows = statement.query([seq])?;
    let row = rows.next()?.ok_or_else(|| missing("delivery", seq))?;
    Ok(Work { delivery: delivery(row)?, event: event_by_no(conn, row.get(14)?)? })
}

fn missing(table: &'static str, row: i64) -> Corrupt {
    let problem = "another row refers to it, and it is not there".to_owned();
    Corrupt { table, row: row.to_string(), problem }
}
