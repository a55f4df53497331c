//! The writer thread: groups of commands, one commit each.
//!
//! # Theory of operation
//! The thread sleeps until a command comes, takes everything else that is queued up to
//! [`GROUP_ROWS`] and [`GROUP_BYTES`], and runs it in one `begin immediate … commit`. Only then are
//! the callers answered. Commands can be run again from the start: when one of a group fails, the
//! group is rolled back and run one command at a time, so that only the culprit gets the error.
//!
//! Memory that mirrors the file ([`Cache`], [`Changes`]) is read again after a rollback; leases are put back
//! from a copy. Between groups, when the log has grown long, the thread copies it back (a
//! `passive` checkpoint). It is the only one to do so, and it looks at the result: a failed sync of
//! the database file must never be followed by a second try that seems to work.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use posthorn_store::{Error, Result};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::cache::Cache;
use crate::codec::Columns;
use crate::error::{Failure, Scope};
use crate::leases::Leases;
use crate::log::changes::{Changes, Pulse};
use crate::log::{BLOCK, List};
use crate::metrics;
use crate::shared::{Alarm, Shared};

/// Rows after which a group is closed: bounds how long one commit takes.
const GROUP_ROWS: usize = 4096;
/// Payload bytes after which a group is closed.
const GROUP_BYTES: usize = 16 << 20;

/// How much work a command is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Weight {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

/// What commands work with.
pub(crate) struct Writer {
    pub(crate) conn: Connection,
    pub(crate) cache: Cache,
    pub(crate) leases: Leases,
    /// What the leases of kept answers are counted from.
    pub(crate) opened: Instant,
    /// Never go back, not even after a rollback.
    pub(crate) numbers: Numbers,
    /// What the present group changes in the log.
    pub(crate) log: Changes,
    /// Tells the indexer what has changed.
    pub(crate) pulse: Arc<Pulse>,
}

/// The numbers of the last rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) event: i64,
    pub(crate) seq: i64,
    pub(crate) attempt: i64,
}

impl Numbers {
    fn load(conn: &Connection) -> rusqlite::Result<Self> {
        let rows = conn.query_row(
            "select max(event_floor, coalesce((select max(no) from event), 0)), \
             max(seq_floor, coalesce((select max(seq) from delivery), 0)), \
             max(attempt_floor, coalesce((select max(no) from attempt), 0)) from store",
            [],
            |row| Ok(Self { event: row.get(0)?, seq: row.get(1)?, attempt: row.get(2)? }),
        )?;
        // Numbers of a group that failed are used up as well: their block may be indexed without them, and nobody would
        // look there for rows that got them later.
        let indexed = |list: List| {
            conn.query_row(
                "select coalesce(max(no), -1) from block where list = ?1",
                [list.code()],
                |row| Ok((row.get::<_, i64>(0)? + 1) * BLOCK - 1),
            )
        };
        Ok(Self {
            event: rows.event.max(indexed(List::Events)?),
            seq: rows.seq.max(indexed(List::Deliveries)?),
            attempt: rows.attempt.max(indexed(List::Attempts)?),
        })
    }

    fn tell(&self, pulse: &Pulse) {
        pulse.set_last(List::Events, self.event);
        pulse.set_last(List::Deliveries, self.seq);
        pulse.set_last(List::Attempts, self.attempt);
    }
}

impl Writer {
    /// Reads what must be known by heart.
    pub(crate) fn load(conn: Connection) -> Result<Self, Failure> {
        let cache = Cache::load(&conn)?;
        let epochs = {
            let mut statement = conn.prepare("select number, epoch from shard")?;
            let mut rows = statement.query([])?;
            let mut epochs = Vec::new();
            while let Some(row) = rows.next()? {
                let columns = Columns::of(row, "shard", 0);
                let shard = posthorn_domain::Shard::new(columns.number(0)?)
                    .ok_or_else(|| columns.corrupt("there is no such shard"))?;
                epochs.push((shard, columns.number(1)?));
            }
            epochs
        };
        let (numbers, log) = (Numbers::load(&conn)?, Changes::load(&conn)?);
        let pulse = Arc::new(Pulse::default());
        numbers.tell(&pulse);
        crate::write::kept_answer::clear_leases(&conn)?;
        let (leases, opened) = (Leases::new(epochs), Instant::now());
        Ok(Self { conn, cache, leases, opened, numbers, log, pulse })
    }
}

/// A command on its way.
pub(crate) trait Task: Send {
    fn weight(&self) -> Weight;
    /// Runs it, inside a transaction. May be called again after a rollback.
    fn run(&mut self, writer: &mut Writer) -> Result<(), Failure>;
    /// Tells the caller. `None`: it was committed.
    fn answer(self: Box<Self>, error: Option<Error>);
}

/// A command made of a function.
pub(crate) struct Call<F, T> {
    pub(crate) weight: Weight,
    pub(crate) operation: F,
    pub(crate) reply: oneshot::Sender<Result<T>>,
    pub(crate) result: Option<Result<T>>,
}

impl<F, T> Task for Call<F, T>
where
    F: FnMut(&mut Writer) -> Result<T, Failure> + Send,
    T: Send,
{
    fn weight(&self) -> Weight {
        self.weight
    }

    fn run(&mut self, writer: &mut Writer) -> Result<(), Failure> {
        self.result = Some(match (self.operation)(writer) {
            Ok(value) => Ok(value),
            // A refusal wrote nothing, so the rest of the group may go on.
            Err(Failure::Refused(refusal)) => Err(refusal.into()),
            Err(failure) => return Err(failure),
        });
        Ok(())
    }

    fn answer(self: Box<Self>, error: Option<Error>) {
        let reply = match (error, self.result) {
            (Some(error), _) => Err(error),
            (None, Some(result)) => result,
            (None, None) => Err(Error::Unavailable { context: "it was not run", source: None }),
        };
        // The caller may have stopped waiting; the work is done all the same.
        drop(self.reply.send(reply));
    }
}

/// The thread. `lock` is let go of last, when the file is closed.
pub(crate) struct Thread {
    pub(crate) writer: Writer,
    pub(crate) queue: mpsc::Receiver<Box<dyn Task>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) page_bytes: u64,
    /// How long the log was when a restart of it was last tried.
    pub(crate) restart_tried: u64,
    pub(crate) lock: File,
}

impl Thread {
    /// Works until the queue is closed.
    pub(crate) fn run(mut self) {
        let _alarm = Alarm(Arc::clone(&self.shared));
        while let Some(group) = self.next_group() {
            self.commit(group);
            self.checkpoint_if_long();
        }
        if self.shared.closing.load(Ordering::Acquire) && !self.shared.has_failed() {
            self.checkpoint("pragma wal_checkpoint(truncate)");
        }
        drop(self.writer);
        drop(self.lock);
    }

    fn next_group(&mut self) -> Option<Vec<Box<dyn Task>>> {
        let first = self.queue.blocking_recv()?;
        let mut weight = first.weight();
        let mut group = vec![first];
        while weight.rows < GROUP_ROWS && weight.bytes < GROUP_BYTES {
            let Ok(task) = self.queue.try_recv() else { break };
            weight.rows += task.weight().rows;
            weight.bytes += task.weight().bytes;
            group.push(task);
        }
        Some(group)
    }

    fn commit(&mut self, mut group: Vec<Box<dyn Task>>) {
        if self.shared.has_failed() {
            group.into_iter().for_each(|task| task.answer(Some(self.shared.failure())));
            return;
        }
        if let Err(gone) = self.shared.check_files() {
            return self.refuse_with(group, gone);
        }
        let began = Instant::now();
        match self.transact(&mut group) {
            Ok(()) => {
                let Writer { log, numbers, pulse, .. } = &mut self.writer;
                log.committed(pulse);
                numbers.tell(pulse);
                metrics::committed(began.elapsed(), group.len());
                group.into_iter().for_each(|task| task.answer(None));
            }
            Err(failure) if group.len() > 1 && failure.scope() == Scope::Command => {
                for task in group {
                    self.commit(vec![task]);
                }
            }
            Err(failure) => self.refuse(group, failure),
        }
    }

    /// Runs all in one transaction; after an error nothing of it is left, in the file or in memory.
    fn transact(&mut self, group: &mut [Box<dyn Task>]) -> Result<(), Failure> {
        let leases = self.writer.leases.clone();
        let result = self.run_all(group);
        // After an I/O error nothing is touched any more.
        if result.as_ref().is_err_and(|failure| failure.scope() != Scope::Store) {
            // SQLite has rolled back by itself after some errors.
            if !self.writer.conn.is_autocommit() {
                self.writer.conn.execute_batch("rollback").map_err(Failure::Unsound)?;
            }
            self.writer.leases = leases;
            let unsound = |failure| match failure {
                Failure::Sql(error) => Failure::Unsound(error),
                other => other,
            };
            self.writer.cache = Cache::load(&self.writer.conn).map_err(unsound)?;
            self.writer.log = Changes::load(&self.writer.conn).map_err(unsound)?;
        }
        result
    }

    fn run_all(&mut self, group: &mut [Box<dyn Task>]) -> Result<(), Failure> {
        self.writer.conn.prepare_cached("begin immediate")?.execute([])?;
        for task in group {
            task.run(&mut self.writer)?;
        }
        self.writer.log.write(&self.writer.conn)?;
        self.writer.conn.prepare_cached("commit")?.execute([])?;
        Ok(())
    }

    fn refuse(&self, group: Vec<Box<dyn Task>>, failure: Failure) {
        self.refuse_with(group, self.shared.judge(failure, "committing"));
    }

    fn refuse_with(&self, group: Vec<Box<dyn Task>>, error: Error) {
        let full = matches!(error, Error::DiskFull { .. });
        let mut error = Some(error);
        for task in group {
            // Errors cannot be copied; the first caller gets the one with the cause.
            let next = error.take().unwrap_or_else(|| match self.shared.check() {
                Err(fatal) => fatal,
                Ok(()) if full => Error::DiskFull { source: None },
                Ok(()) => Error::Unavailable { context: "committing", source: None },
            });
            task.answer(Some(next));
        }
    }

    fn checkpoint_if_long(&mut self) {
        if self.shared.has_failed() {
            return;
        }
        // `noop` only tells how long the log is.
        let Some((log, done)) = self.frames("pragma wal_checkpoint(noop)") else { return };
        let (bytes, left) = (log * self.page_bytes, log.saturating_sub(done) * self.page_bytes);
        metrics::wal(bytes);
        if bytes < self.restart_tried {
            self.restart_tried = 0;
        }
        if left > self.checkpoint_bytes {
            self.checkpoint("pragma wal_checkpoint(passive)");
        } else if bytes > (self.restart_tried + self.checkpoint_bytes).max(self.log_limit()) {
            // All of it is copied, but whenever the writer could begin the log anew, some reader
            // was in it. Waiting for readers is bounded by the connection's busy timeout.
            self.restart_tried = bytes;
            self.checkpoint("pragma wal_checkpoint(restart)");
        }
    }

    /// Where the log is so long that it is worth waiting for readers to leave it.
    fn log_limit(&self) -> u64 {
        self.checkpoint_bytes * 8
    }

    fn checkpoint(&mut self, pragma: &'static str) {
        let began = Instant::now();
        if self.frames(pragma).is_some() {
            metrics::checkpointed(began.elapsed());
        }
    }

    /// Frames in the log, and how many of them are copied back. `None` when it did not work.
    fn frames(&mut self, pragma: &'static str) -> Option<(u64, u64)> {
        let conn = &self.writer.conn;
        let asked = conn.prepare_cached(pragma).and_then(|mut statement| {
            statement.query_row([], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))
        });
        match asked {
            Ok((log, done)) => Some((log.max(0).unsigned_abs(), done.max(0).unsigned_abs())),
            Err(error) => {
                let failure = Failure::Sql(error);
                // A long reader only delays; anything else the store decides about.
                if failure.scope() == Scope::Store {
                    drop(self.shared.judge(failure, "checkpointing the write-ahead log"));
                }
                None
            }
        }
    }
}
