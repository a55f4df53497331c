//! What a transaction changes in the log: the tally of each tenant, and which blocks are stale.
//!
//! Commands say what they do while they do it; [`Changes::write`] writes it once, at the end of the group. The
//! indexer must never take an older state of a block for the present one, so each commit also counts the changes
//! of each block ([`Pulse`]), after it is durable: what is counted was visible to whoever read the count before
//! they read the rows.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use posthorn_domain::DeliveryState;
use rusqlite::{Connection, params};

use super::build::Postings;
use super::{BLOCK, List, block_of};
use crate::codec::state_code;
use crate::error::Failure;

/// Outcomes of deliveries may have changed.
pub(crate) const OUTCOMES: i64 = 1;
/// States of deliveries may have changed.
pub(crate) const STATES: i64 = 2;
/// Rows are gone.
pub(crate) const GONE: i64 = 4;

pub(crate) const ADD_TO_TALLY: &str = "insert into tally (tenant, events, pending, delivered, dead, cancelled) \
    values (?1, ?2, ?3, ?4, ?5, ?6) on conflict do update set events = events + excluded.events, \
    pending = pending + excluded.pending, delivered = delivered + excluded.delivered, \
    dead = dead + excluded.dead, cancelled = cancelled + excluded.cancelled";

const COUNT_LETTERS: &str = "insert into dead_event (tenant, event, letters) values (?1, ?2, ?3) \
    on conflict do update set letters = letters + excluded.letters";

const MAKE_STALE: &str = "update block set stale = stale | ?3 where list = ?1 and no = ?2";

/// Columns of the tally.
const EVENTS: usize = 0;

/// The column of a delivery in a state, by its code.
const fn column(state: i64) -> usize {
    match state {
        0 | 1 => 1,
        2 => 2,
        10..20 => 3,
        _ => 4,
    }
}

const fn is_dead(state: i64) -> bool {
    column(state) == 3
}

/// A delivery on its way from one state to another, by numbers.
#[derive(Clone, Copy)]
pub(crate) struct Moving {
    pub(crate) tenant: i64,
    pub(crate) event: i64,
    pub(crate) seq: i64,
}

/// How often each block that is not at rest was changed, and when last. Shared with the indexer.
#[derive(Default)]
pub(crate) struct Pulse {
    blocks: Mutex<HashMap<(List, i64), Beat>>,
    /// The last row of each list.
    last: [AtomicI64; 3],
}

#[derive(Clone, Copy)]
pub(crate) struct Beat {
    /// Changes so far.
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) since: Instant,
    /// The last of them.
    pub(crate) at: Instant,
}

impl Pulse {
    pub(crate) fn of(&self, list: List, block: i64) -> Option<Beat> {
        self.blocks.lock().get(&(list, block)).copied()
    }

    pub(crate) fn last(&self, list: List) -> i64 {
        self.last[list.index()].load(Ordering::Acquire)
    }

    pub(crate) fn set_last(&self, list: List, row: i64) {
        self.last[list.index()].store(row, Ordering::Release);
    }
}

/// What the writer knows of the log, and what the present group has changed in it.
#[derive(Default)]
pub(crate) struct Changes {
    tally: HashMap<i64, [i64; 5]>,
    /// Dead letters more or less, by tenant and event.
    letters: HashMap<(i64, i64), i64>,
    touched: BTreeMap<(List, i64), i64>,
    /// For each list, the first block that is not indexed.
    closed: [i64; 3],
    /// Blocks that are stale, as they are written.
    stale: HashMap<(List, i64), i64>,
}

impl Changes {
    /// Reads what is written.
    pub(crate) fn load(conn: &Connection) -> Result<Self, Failure> {
        let mut changes = Self::default();
        for list in List::ALL {
            changes.closed[list.index()] = conn.query_row(
                "select coalesce(max(no) + 1, 0) from block where list = ?1",
                [list.code()],
                |row| row.get(0),
            )?;
            let mut statement =
                conn.prepare("select no, stale from block where list = ?1 and stale > 0")?;
            let mut rows = statement.query([list.code()])?;
            while let Some(row) = rows.next()? {
                changes.stale.insert((list, row.get(0)?), row.get(1)?);
            }
        }
        Ok(changes)
    }

    /// An event was stored with so many deliveries, the first of which has this seq.
    pub(crate) fn accepted(&mut self, tenant: i64, deliveries: usize) {
        let counts = self.tally.entry(tenant).or_default();
        counts[EVENTS] += 1;
        counts[column(0)] += deliveries as i64;
    }

    /// One more delivery of an event that was stored before.
    pub(crate) fn made(&mut self, tenant: i64) {
        self.tally.entry(tenant).or_default()[column(0)] += 1;
    }

    /// A delivery went from one state to another.
    pub(crate) fn moved(&mut self, row: Moving, from: DeliveryState, to: DeliveryState) {
        let (from, to) = (state_code(from), state_code(to));
        self.moved_many(row.tenant, from, to, 1);
        self.count_letters(row, i64::from(is_dead(to)) - i64::from(is_dead(from)));
        self.touch(List::Deliveries, row.seq, STATES);
    }

    fn count_letters(&mut self, row: Moving, more: i64) {
        if more != 0 {
            *self.letters.entry((row.tenant, row.event)).or_default() += more;
        }
    }

    /// So many deliveries did; whoever says so also says which.
    pub(crate) fn moved_many(&mut self, tenant: i64, from: i64, to: i64, number: i64) {
        let counts = self.tally.entry(tenant).or_default();
        counts[column(from)] -= number;
        counts[column(to)] += number;
    }

    /// A delivery was removed, in the state of this code.
    pub(crate) fn removed(&mut self, row: Moving, state: i64) {
        self.tally.entry(row.tenant).or_default()[column(state)] -= 1;
        self.count_letters(row, -i64::from(is_dead(state)));
        self.touch(List::Deliveries, row.seq, GONE);
    }

    /// An event was removed.
    pub(crate) fn removed_event(&mut self, tenant: i64, no: i64) {
        self.tally.entry(tenant).or_default()[EVENTS] -= 1;
        self.touch(List::Events, no, GONE);
    }

    /// A row has changed, or is gone.
    pub(crate) fn touch(&mut self, list: List, row: i64, what: i64) {
        *self.touched.entry((list, block_of(row))).or_default() |= what;
    }

    /// Writes what the group has changed. The last thing before its commit.
    pub(crate) fn write(&mut self, conn: &Connection) -> Result<(), Failure> {
        if !self.tally.is_empty() {
            let mut add = conn.prepare_cached(ADD_TO_TALLY)?;
            for (tenant, [events, pending, delivered, dead, cancelled]) in self.tally.drain() {
                add.execute(params![tenant, events, pending, delivered, dead, cancelled])?;
            }
        }
        for ((tenant, event), more) in self.letters.drain() {
            conn.prepare_cached(COUNT_LETTERS)?.execute(params![tenant, event, more])?;
            if more < 0 {
                let sql =
                    "delete from dead_event where tenant = ?1 and event = ?2 and letters <= 0";
                conn.prepare_cached(sql)?.execute(params![tenant, event])?;
            }
        }
        for (key @ (list, block), what) in &self.touched {
            let known = self.stale.get(key).copied().unwrap_or_default();
            if *block < self.closed[list.index()] && known | what != known {
                conn.prepare_cached(MAKE_STALE)?.execute(params![list.code(), block, what])?;
                self.stale.insert(*key, known | what);
            }
        }
        Ok(())
    }

    /// The group is durable.
    pub(crate) fn committed(&mut self, pulse: &Pulse) {
        if self.touched.is_empty() {
            return;
        }
        let at = Instant::now();
        let mut blocks = pulse.blocks.lock();
        for (key, _) in std::mem::take(&mut self.touched) {
            let beat = blocks.entry(key).or_insert(Beat { count: 0, since: at, at });
            *beat = Beat { count: beat.count + 1, at, ..*beat };
        }
    }

    /// Writes the postings of a block. `seen` is what the pulse said before its rows were read: when it has moved
    /// since, the block is stale from the beginning.
    pub(crate) fn put(
        &mut self,
        conn: &Connection,
        pulse: &Pulse,
        postings: &Postings,
        seen: Option<u64>,
    ) -> Result<(), Failure> {
        let Postings { list, block, times, terms } = postings;
        let key = (*list, *block);
        let present = pulse.of(*list, *block).map(|beat| beat.count);
        let quiet = present == seen && !self.touched.contains_key(&key);
        let stale = if quiet { 0 } else { OUTCOMES | STATES };
        conn.prepare_cached("delete from posting where list = ?1 and block = ?2")?
            .execute(params![list.code(), block])?;
        // An empty one stays when it is the last, so that what follows it counts as indexed.
        let (first_at, last_at) = times.unwrap_or((i64::MAX, i64::MIN));
        conn.prepare_cached(
            "insert into block (list, no, first_at, last_at, stale) values (?1, ?2, ?3, ?4, ?5) \
             on conflict do update set first_at = excluded.first_at, last_at = excluded.last_at, \
             stale = excluded.stale",
        )?
        .execute(params![list.code(), block, first_at, last_at, stale])?;
        let mut insert = conn.prepare_cached(
            "insert into posting (list, block, owner, kind, value, places) \
             values (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        for ((owner, kind, value), places) in terms {
            insert.execute(params![list.code(), block, owner, kind, value, places])?;
        }
        let closed = &mut self.closed[list.index()];
        *closed = (*closed).max(block + 1);
        if stale == 0 {
            self.stale.remove(&key);
            pulse.blocks.lock().remove(&key);
        } else {
            self.stale.insert(key, stale);
            if let Some(beat) = pulse.blocks.lock().get_mut(&key) {
                beat.since = Instant::now();
            }
        }
        Ok(())
    }

    /// Removes blocks before the first row there is.
    pub(crate) fn drop_before(
        &mut self,
        conn: &Connection,
        list: List,
        row: i64,
    ) -> Result<usize, Failure> {
        let before = block_of(row).min(self.closed[list.index()] - 1);
        conn.prepare_cached("delete from posting where list = ?1 and block < ?2")?
            .execute(params![list.code(), before])?;
        let gone = conn
            .prepare_cached("delete from block where list = ?1 and no < ?2")?
            .execute(params![list.code(), before])?;
        self.stale.retain(|(of, block), _| *of != list || *block >= before);
        Ok(gone)
    }

    /// The first block of a list that is not indexed.
    pub(crate) const fn closed(&self, list: List) -> i64 {
        self.closed[list.index()]
    }
}

/// How much each tenant's tally is off, in one snapshot. The tally is additive: what it lacks in a snapshot it lacks
/// whatever has been committed since.
pub(crate) fn miscounted(conn: &Connection) -> Result<Vec<(i64, [i64; 5])>, Failure> {
    let mut off: BTreeMap<i64, [i64; 5]> = BTreeMap::new();
    let mut statement =
        conn.prepare("select tenant, events, pending, delivered, dead, cancelled from tally")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let counts = off.entry(row.get(0)?).or_default();
        for (place, count) in counts.iter_mut().enumerate() {
            *count -= row.get::<_, i64>(place + 1)?;
        }
    }
    let mut statement = conn.prepare("select tenant, count(*) from event group by tenant")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        off.entry(row.get(0)?).or_default()[EVENTS] += row.get::<_, i64>(1)?;
    }
    let sql = "select tenant, state, count(*) from delivery group by tenant, state";
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        off.entry(row.get(0)?).or_default()[column(row.get(1)?)] += row.get::<_, i64>(2)?;
    }
    off.retain(|_, counts| counts.iter().any(|count| *count != 0));
    Ok(off.into_iter().collect())
}

impl Changes {
    /// Puts the tally right.
    pub(crate) fn correct(&mut self, off: &[(i64, [i64; 5])]) {
        for (tenant, off) in off {
            let counts = self.tally.entry(*tenant).or_default();
            counts.iter_mut().zip(off).for_each(|(count, off)| *count += off);
        }
    }
}

const _: () = assert!(BLOCK <= 1 << 16, "a place is two bytes");
