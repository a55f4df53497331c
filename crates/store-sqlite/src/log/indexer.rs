//! The thread that writes postings: new blocks when they are full, stale ones when they have come to rest.
//!
//! It reads on a connection of its own and has the writer write what it found, as one command among others. It
//! is in no hurry: a list looks at rows that are in no block one by one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::build::{self, Postings};
use super::changes::{self, Pulse};
use super::{BLOCK, List, block_of};
use crate::error::Failure;
use crate::shared::Shared;
use crate::writer::{Call, Task, Weight, Writer};

/// How long it waits when there is nothing to do.
const IDLE: Duration = Duration::from_millis(200);
/// How long a stale block must be at rest before it is written anew.
const REST: Duration = Duration::from_millis(1_000);
/// After so long it is written anew all the same.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often blocks whose rows are gone are looked for.
const TIDY_EVERY: Duration = Duration::from_secs(30);
/// How often the tally is compared with the rows. That reads all of them, so it is rare.
const RECOUNT_EVERY: Duration = Duration::from_secs(86_400);
/// After each block it rests for this many times what the block took, so that whoever waits for an answer is
/// not held up by questions that nobody has asked yet.
const SHARE: u32 = 2;
/// Unless there are so many blocks to be written that lists would become slow.
const BEHIND_MAX: i64 = 4;

/// What it works with.
pub(crate) struct Indexer {
    pub(crate) conn: Connection,
    pub(crate) writer: mpsc::WeakSender<Box<dyn Task>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) pulse: Arc<Pulse>,
    /// For each list, the first block that is not indexed.
    pub(crate) next: [i64; 3],
}

/// Why it stops.
struct Stopped;

impl Indexer {
    /// Works until the store is closed or has failed.
    pub(crate) fn run(mut self) {
        let (mut tidied, mut counted) = (Instant::now(), Instant::now());
        loop {
            let began = Instant::now();
            let worked = self.new_blocks().and_then(|new| Ok(new | self.stale_block()?));
            if tidied.elapsed() > TIDY_EVERY {
                tidied = Instant::now();
                if self.tidy().is_err() {
                    return;
                }
            }
            if counted.elapsed() > RECOUNT_EVERY {
                counted = Instant::now();
                if self.recount().is_err() {
                    return;
                }
            }
            match worked {
                Err(Stopped) => return,
                Ok(false) => self.pause(IDLE),
                Ok(true) if self.behind() > BEHIND_MAX => {}
                Ok(true) => self.pause(began.elapsed() * SHARE),
            }
            if self.shared.ending.load(Ordering::Acquire) || self.shared.has_failed() {
                return;
            }
        }
    }

    /// Sleeps in short bits: whoever closes the store waits for this thread.
    fn pause(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.shared.ending.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(20).min(time));
        }
    }

    /// Full blocks that wait.
    fn behind(&self) -> i64 {
        let full = |list: List| block_of(self.pulse.last(list) + 1) - self.next[list.index()];
        List::ALL.into_iter().map(full).max().unwrap_or_default()
    }

    /// Writes the next full block of each list.
    fn new_blocks(&mut self) -> Result<bool, Stopped> {
        let mut worked = false;
        for list in List::ALL {
            let next = self.next[list.index()];
            if self.pulse.last(list) + 1 < (next + 1) * BLOCK {
                continue;
            }
            // What is under way ends in a moment, as a rule; then the block is not stale from the beginning.
            let moved = |beat: changes::Beat| beat.at.elapsed() < REST / 4;
            if self.pulse.of(list, next).is_some_and(moved) && self.behind() <= BEHIND_MAX {
                continue;
            }
            if self.write(list, next)? {
                self.next[list.index()] = next + 1;
                worked = true;
            }
        }
        Ok(worked)
    }

    /// Writes one stale block anew, if there is one at rest.
    fn stale_block(&mut self) -> Result<bool, Stopped> {
        for list in List::ALL {
            let stale = self.ask(|conn| {
                let mut statement = conn.prepare_cached(
                    "select no from block where list = ?1 and stale > 0 order by no",
                )?;
                let found = statement.query_map([list.code()], |row| row.get::<_, i64>(0))?;
                Ok(found.collect::<rusqlite::Result<Vec<i64>>>()?)
            })?;
            let at_rest = stale.into_iter().find(|block| {
                // Without a beat nobody has touched it since the store was opened.
                self.pulse
                    .of(list, *block)
                    .is_none_or(|beat| beat.at.elapsed() > REST || beat.since.elapsed() > PATIENCE)
            });
            if let Some(block) = at_rest {
                return self.write(list, block);
            }
        }
        Ok(false)
    }

    fn ask<T>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, Stopped> {
        // One snapshot for all that is read.
        let asked = self.conn.unchecked_transaction().map_err(Failure::from);
        asked.and_then(|snapshot| question(&snapshot)).map_err(|failure| {
            drop(self.shared.judge(failure, "reading rows for the index"));
            Stopped
        })
    }

    /// Reads a block and has its postings written; false when that was not possible now.
    fn write(&self, list: List, block: i64) -> Result<bool, Stopped> {
        // Before the rows: what is counted here is part of what is read.
        let seen = self.pulse.of(list, block).map(|beat| beat.count);
        let postings: Postings = self.ask(|conn| build::build(conn, list, block))?;
        let weight = Weight { rows: postings.terms.len() / 4 + 1, bytes: 0 };
        let pulse = Arc::clone(&self.pulse);
        self.command(weight, move |writer| {
            let Writer { conn, log, .. } = writer;
            log.put(conn, &pulse, &postings, seen)
        })
    }

    /// Forgets blocks whose rows are gone.
    fn tidy(&self) -> Result<(), Stopped> {
        for list in List::ALL {
            let first = self.ask(|conn| {
                let table = match list {
                    List::Events => "select min(no) from event",
                    List::Deliveries => "select min(seq) from delivery",
                    List::Attempts => "select min(no) from attempt",
                };
                Ok(conn.prepare_cached(table)?.query_row([], |row| row.get::<_, Option<i64>>(0))?)
            })?;
            let first = first.unwrap_or_else(|| self.pulse.last(list));
            let there = self.ask(|conn| {
                let sql = "select exists (select 1 from block where list = ?1 and no < ?2)";
                let values = (list.code(), block_of(first).min(self.next[list.index()] - 1));
                Ok(conn.prepare_cached(sql)?.query_row(values, |row| row.get::<_, bool>(0))?)
            })?;
            if there {
                self.command(Weight { rows: 1, bytes: 0 }, move |writer| {
                    let Writer { conn, log, .. } = writer;
                    log.drop_before(conn, list, first).map(drop)
                })?;
            }
        }
        Ok(())
    }

    /// Compares the tally with the rows, and puts it right. It should never have to.
    fn recount(&self) -> Result<(), Stopped> {
        let off = self.ask(changes::miscounted)?;
        if off.is_empty() {
            return Ok(());
        }
        tracing::error!(
            tenants = off.len(),
            "the counts of some tenants were wrong; they are corrected. This is a defect"
        );
        self.command(Weight { rows: 1, bytes: 0 }, move |writer| {
            writer.log.correct(&off);
            Ok(())
        })
        .map(drop)
    }

    /// Has the writer do something, and waits for it; false when that was not possible now.
    fn command(
        &self,
        weight: Weight,
        operation: impl FnMut(&mut Writer) -> Result<(), Failure> + Send + 'static,
    ) -> Result<bool, Stopped> {
        let (reply, answer) = oneshot::channel();
        let call: Box<dyn Task> = Box::new(Call { weight, operation, reply, result: None });
        let queue = self.writer.upgrade().ok_or(Stopped)?;
        queue.blocking_send(call).map_err(|_| Stopped)?;
        drop(queue);
        match answer.blocking_recv() {
            Ok(Ok(())) => Ok(true),
            // A full disk, for instance: nothing was written, and it is tried again.
            Ok(Err(error)) if error.is_transient() => {
                tracing::debug!(error = %error, "the index could not be written; it will be retried");
                Ok(false)
            }
            _ => Err(Stopped),
        }
    }
}
