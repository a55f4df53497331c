//! Events with their deliveries and attempts, between small numbers here and ids elsewhere.

use std::collections::HashMap;

use posthorn_store::copy::{ATTEMPT, DELIVERY, EVENT, Row, Unit, Value};
use rusqlite::{Connection, OptionalExtension, params};

use super::reading::{Bites, values};
use super::sheets::Param;
use crate::codec::NEVER;

/// Sorted by id alone: no two tenants have an event of the same id. Only keys of an index are sorted; rows are looked up.
const ORDER: &str = "select no from event indexed by event_by_id order by id";

const FIND: &str = "select e.id, t.id, e.topic, e.event_type, ifnull(e.attributes, '{}'), e.key, \
    e.content_type, e.payload, e.accepted_at, e.publisher_id, e.deliver_at, e.retention, \
    e.expunged_at, e.trace, e.deliveries = 0, x.at, e.first_seq, e.first_seq + e.deliveries \
    from event e join tenant t on t.no = e.tenant left join expiry x on x.event = e.no where e.no = ?1";

/// Those that were stored with the event, and those that were made later.
macro_rules! deliveries {
    () => {
        "with own (seq) as (select seq from delivery where seq >= ?1 and seq < ?2 and event = ?3 \
         union all select seq from later_delivery where event = ?3) "
    };
}

/// A time until which one was held means nothing when it has ended; former programs left it there.
const DELIVERIES: &str = concat!(
    deliveries!(),
    "select d.id, e.id, s.id, t.id, d.seq, d.state, iif(d.state < 2, d.due_at, null), d.attempts, \
     d.budget_base, coalesce(d.budget_began, e.deliver_at, e.accepted_at), d.ended_at, d.lane, \
     d.state >= 2 and ifnull(d.holds_lane, 0), d.revival, iif(d.state < 2, d.held_until, null), \
     d.outcome, w.at, w.lane \
     from own cross join delivery d on d.seq = own.seq cross join event e on e.no = d.event \
     cross join subscription s on s.no = d.subscription cross join tenant t on t.no = d.tenant \
     left join scheduled w on w.seq = d.seq order by d.id"
);

const ATTEMPTS: &str = concat!(
    deliveries!(),
    "select d.id, a.number, a.started_at, a.no, a.took, a.late, a.manual, a.status, a.failure, \
     ifnull(a.detail, ''), a.timings, ifnull(a.response, x''), a.response_expunged_at, a.request \
     from own cross join delivery d on d.seq = own.seq \
     cross join subscription s on s.no = d.subscription cross join tenant t on t.no = d.tenant \
     cross join attempt a indexed by attempt_of on a.delivery = d.seq \
     order by d.id, a.number, a.started_at"
);

/// Sends all events, in the order of their ids.
pub(super) fn walk(conn: &Connection, bites: &mut Bites<'_>) -> rusqlite::Result<()> {
    let mut order = conn.prepare(ORDER)?;
    let mut numbers = order.query([])?;
    while let Some(number) = numbers.next()? {
        // One whose tenant is not there belongs to nothing.
        if let Some(unit) = unit(conn, number.get(0)?)?
            && !bites.push(unit)
        {
            return Ok(());
        }
    }
    Ok(())
}

fn unit(conn: &Connection, no: i64) -> rusqlite::Result<Option<Unit>> {
    let columns = EVENT.columns.len();
    let found = conn.prepare_cached(FIND)?.query_row([no], |row| {
        Ok((values(row, 0, columns)?, row.get::<_, i64>(columns)?, row.get::<_, i64>(columns + 1)?))
    });
    let Some((row, first, end)) = found.optional()? else { return Ok(None) };
    let all = |sql: &str, columns: usize| -> rusqlite::Result<Vec<Row>> {
        let mut statement = conn.prepare_cached(sql)?;
        let found = statement.query_map([first, end, no], |row| values(row, 0, columns))?;
        found.collect()
    };
    let deliveries = all(DELIVERIES, DELIVERY.columns.len())?;
    let attempts = match deliveries.is_empty() {
        true => Vec::new(),
        false => all(ATTEMPTS, ATTEMPT.columns.len())?,
    };
    Ok(Some(Unit { row, deliveries, attempts }))
}

/// Writes events, with the small numbers of this store.
pub(super) struct Putting<'c> {
    conn: &'c Connection,
    /// The number that was given to an event last.
    last: i64,
    tenants: HashMap<[u8; 16], i64>,
    subscriptions: HashMap<[u8; 16], i64>,
}

/// What an event is called here.
type Name = (Value, Value);

impl<'c> Putting<'c> {
    /// Reads what is known: the catalog, which every node has in memory anyway.
    pub(super) fn new(conn: &'c Connection) -> rusqlite::Result<Self> {
        let numbers = |sql: &str| -> rusqlite::Result<HashMap<[u8; 16], i64>> {
            let mut statement = conn.prepare(sql)?;
            let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            found.collect()
        };
        let last =
            "select max(s.event_floor, coalesce((select max(no) from event), 0)) from store s";
        Ok(Self {
            conn,
            last: conn.query_row(last, [], |row| row.get(0))?,
            tenants: numbers("select id, no from tenant")?,
            subscriptions: numbers("select id, no from subscription")?,
        })
    }

    /// Removes an event with all that belongs to it; the number that it had.
    pub(super) fn cut(&self, key: &Row) -> rusqlite::Result<Option<(Name, i64)>> {
        let find = "select no, first_seq, first_seq + deliveries from event where id = ?1 \
            and tenant = (select no from tenant where id = ?2)";
        let found = self
            .conn
            .prepare_cached(find)?
            .query_row(params![Param(&key[0]), Param(&key[1])], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
            })
            .optional()?;
        let Some((no, first, end)) = found else { return Ok(None) };
        for sql in [
            concat!(deliveries!(), "delete from attempt where delivery in (select seq from own)"),
            concat!(deliveries!(), "delete from scheduled where seq in (select seq from own)"),
            concat!(deliveries!(), "delete from delivery where seq in (select seq from own)"),
        ] {
            self.conn.prepare_cached(sql)?.execute([first, end, no])?;
        }
        for sql in [
            "delete from later_delivery where event = ?1",
            "delete from expiry where event = ?1",
            "delete from event where no = ?1",
        ] {
            self.conn.prepare_cached(sql)?.execute([no])?;
        }
        Ok(Some(((key[0].clone(), key[1].clone()), no)))
    }

    /// Writes an event, under the number it had before if it had one.
    pub(super) fn put(&mut self, unit: &Unit, former: Option<i64>) -> rusqlite::Result<()> {
        let row = &unit.row;
        let no = former.unwrap_or_else(|| {
            self.last += 1;
            self.last
        });
        let tenant = known(&self.tenants, &row[1])?;
        let mut seqs: Vec<i64> = unit.deliveries.iter().filter_map(|row| row[4].int()).collect();
        seqs.sort_unstable();
        let (first, stored) = neighbours(&seqs, row[14].int() == Some(1));
        let attributes = match row[4].as_text() {
            Some("{}") | None => &Value::Null,
            Some(_) => &row[4],
        };
        let sql = "insert into event (no, id, tenant, topic, event_type, attributes, key, \
            content_type, payload, accepted_at, publisher_id, deliver_at, retention, expunged_at, \
            trace, first_seq, deliveries) \
            values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
        self.conn.prepare_cached(sql)?.execute(params![
            no,
            Param(&row[0]),
            tenant,
            Param(&row[2]),
            Param(&row[3]),
            Param(attributes),
            Param(&row[5]),
            Param(&row[6]),
            Param(&row[7]),
            Param(&row[8]),
            Param(&row[9]),
            Param(&row[10]),
            Param(&row[11]),
            Param(&row[12]),
            Param(&row[13]),
            first,
            stored,
        ])?;
        if row[15] != Value::Null {
            let sql = "insert into expiry (event, at) values (?1, ?2)";
            self.conn.prepare_cached(sql)?.execute(params![no, Param(&row[15])])?;
        }
        let begins = if row[10] == Value::Null { &row[8] } else { &row[10] };
        let mut places = HashMap::with_capacity(unit.deliveries.len());
        for delivery in &unit.deliveries {
            let subscription = known(&self.subscriptions, &delivery[2])?;
            self.put_delivery(delivery, (no, tenant, subscription), begins)?;
            let seq = delivery[4].int().unwrap_or_default();
            if seq < first || seq >= first + stored {
                let sql =
                    "insert into later_delivery (event, seq, subscription) values (?1, ?2, ?3)";
                self.conn.prepare_cached(sql)?.execute([no, seq, subscription])?;
            }
            places.insert(delivery[0].clone(), (seq, subscription));
        }
        for attempt in &unit.attempts {
            // Attempts without their delivery are in no unit.
            if let Some(place) = places.get(&attempt[0]) {
                self.put_attempt(attempt, *place)?;
            }
        }
        Ok(())
    }

    fn put_delivery(
        &self,
        row: &Row,
        (event, tenant, subscription): (i64, i64, i64),
        begins: &Value,
    ) -> rusqlite::Result<()> {
        let live = row[5].int().is_some_and(|state| state < 2);
        let due_at = if live { row[6].int().unwrap_or(NEVER) } else { NEVER };
        let holds = (live && row[11] != Value::Null) || row[12].int() == Some(1);
        let began = if row[9] == *begins { &Value::Null } else { &row[9] };
        let sql = "insert into delivery (seq, id, event, tenant, subscription, state, due_at, \
            attempts, budget_base, budget_began, ended_at, lane, holds_lane, revival, held_until, \
            outcome) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
        self.conn.prepare_cached(sql)?.execute(params![
            Param(&row[4]),
            Param(&row[0]),
            event,
            tenant,
            subscription,
            Param(&row[5]),
            due_at,
            Param(&row[7]),
            Param(&row[8]),
            Param(began),
            Param(&row[10]),
            Param(&row[11]),
            holds.then_some(1),
            Param(&row[13]),
            Param(&row[14]),
            Param(&row[15]),
        ])?;
        if row[16] != Value::Null {
            let sql = "insert into scheduled (seq, at, lane) values (?1, ?2, ?3)";
            let values = params![Param(&row[4]), Param(&row[16]), Param(&row[17])];
            self.conn.prepare_cached(sql)?.execute(values)?;
        }
        Ok(())
    }

    fn put_attempt(&self, row: &Row, (seq, subscription): (i64, i64)) -> rusqlite::Result<()> {
        let unless_empty = |value| match value {
            Value::Text(text) if text.is_empty() => Value::Null,
            Value::Bytes(bytes) if bytes.is_empty() => Value::Null,
            value => value,
        };
        let (detail, response) = (unless_empty(row[9].clone()), unless_empty(row[11].clone()));
        let sql = "insert into attempt (no, delivery, subscription, number, started_at, took, late, \
            manual, status, failure, detail, timings, response, response_expunged_at, request) \
            values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
        self.conn.prepare_cached(sql)?.execute(params![
            Param(&row[3]),
            seq,
            subscription,
            Param(&row[1]),
            Param(&row[2]),
            Param(&row[4]),
            Param(&row[5]),
            Param(&row[6]),
            Param(&row[7]),
            Param(&row[8]),
            Param(&detail),
            Param(&row[10]),
            Param(&response),
            Param(&row[12]),
            Param(&row[13]),
        ])?;
        Ok(())
    }
}

fn known(numbers: &HashMap<[u8; 16], i64>, id: &Value) -> rusqlite::Result<i64> {
    let known = id.id().and_then(|id| numbers.get(&id).copied());
    known.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// Which of an event's deliveries count as stored with it: the first of the range, and how many. They must be neighbours, and
/// nobody else's may be between them. An event that nobody wanted has none, whatever was made of it later; one that has lost
/// all of them still was wanted, and gets a range in which there is nothing.
fn neighbours(seqs: &[i64], unwanted: bool) -> (i64, i64) {
    let Some(first) = seqs.first().filter(|_| !unwanted) else {
        return (0, i64::from(!unwanted));
    };
    let stored = seqs.iter().zip(*first..).take_while(|(seq, place)| **seq == *place).count();
    (*first, i64::try_from(stored).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_neighbours_are_stored_with_their_event() {
        assert_eq!(neighbours(&[5, 6, 7], false), (5, 3));
        assert_eq!(neighbours(&[5, 6, 8], false), (5, 2));
        assert_eq!(neighbours(&[5, 9], true), (0, 0));
        assert_eq!(neighbours(&[], true), (0, 0));
        assert_eq!(neighbours(&[], false), (0, 1));
    }
}
