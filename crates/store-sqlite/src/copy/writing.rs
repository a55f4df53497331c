//! Making a store out of rows.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use posthorn_domain::{Shard, SubscriptionId};
use posthorn_store::copy::{Reading, Row, Sheet, Unit, Value, Writing};
use posthorn_store::{Error, Result};
use rusqlite::{Connection, ToSql, TransactionBehavior, params};

use super::events::Putting;
use super::reading::CopyReading;
use super::sheets::{self, Layout, Param, Plain};
use super::{CopyError, DATABASE_FILE, MARK, connect, is_empty, marked};
use crate::codec::subscription_no;
use crate::error::OpenError;
use crate::log::{BLOCK, List, block_of};
use crate::{migrate, open};

const WRITING: &str = "writing the copy";
/// The log is copied into the database when it is longer than this.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// A store that a copy is made in.
pub struct CopyTarget {
    path: PathBuf,
    conn: Arc<Mutex<Connection>>,
    /// Nobody else uses it meanwhile.
    _lock: File,
}

impl CopyTarget {
    /// Makes a store in a directory, or goes on with a copy of the same source that was begun there before. A store that holds
    /// anything else is refused, and nothing is changed in it.
    pub fn open(path: &Path, source: &str) -> Result<Self, CopyError> {
        let there = path.join(DATABASE_FILE).exists();
        let lock = open::lock(path)?;
        if there {
            let conn = open::read_only(&path.join(DATABASE_FILE))?;
            let (found, known) = migrate::versions(&conn)?;
            match marked(&conn)? {
                Some(begun) if begun == source => {}
                Some(source_name) => {
                    return Err(CopyError::OtherSource { path: path.to_owned(), source_name });
                }
                None if found == 0 || (found == known && is_empty(&conn)?) => {}
                None => return Err(CopyError::NotEmpty(path.to_owned())),
            }
        }
        let mut conn = connect(path)?;
        // Before anything else, so that one that is killed at any moment is known for what it is.
        if marked(&conn)?.is_none() {
            let mark = || -> rusqlite::Result<()> {
                let change = conn.unchecked_transaction()?;
                change
                    .execute_batch(&format!("create table {MARK} (source text not null) strict"))?;
                change.execute(&format!("insert into {MARK} values (?1)"), [source])?;
                change.commit()
            };
            mark().map_err(OpenError::sqlite("marking the copy"))?;
        }
        migrate::migrate(&mut conn, &migrate::SCHEMA)?;
        conn.execute_batch("pragma foreign_keys = off")
            .map_err(OpenError::sqlite("configuring the connection"))?;
        let conn = Arc::new(Mutex::new(conn));
        Ok(Self { path: path.to_owned(), conn, _lock: lock })
    }

    /// On a thread for work that blocks.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let conn = Arc::clone(&self.conn);
        let done = tokio::task::spawn_blocking(move || work(&mut conn.lock())).await;
        let done = done.map_err(|e| Error::fatal(WRITING, e))?;
        done.map_err(|e| match e.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Error::disk_full(e),
            _ => Error::fatal(WRITING, e),
        })
    }
}

#[async_trait]
impl Writing for CopyTarget {
    async fn reading(&mut self) -> Result<Box<dyn Reading>> {
        let reading = CopyReading::start(&self.path).map_err(|e| Error::fatal(WRITING, e))?;
        Ok(Box::new(reading))
    }

    async fn apply(&mut self, sheet: &'static Sheet, gone: Vec<Row>, new: Vec<Unit>) -> Result<()> {
        let log = self.path.join(format!("{DATABASE_FILE}-wal"));
        self.run(move |conn| {
            let change = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            match sheets::layout(sheet) {
                Layout::Events => put_events(&change, &gone, &new)?,
                Layout::Store => {
                    for unit in &new {
                        sheets::put_store(&change, &unit.row)?;
                    }
                }
                Layout::Plain(plain) => put_rows(&change, sheet, plain, &gone, &new)?,
            }
            change.commit()?;
            shorten(conn, &log)
        })
        .await
    }

    async fn derive(&mut self) -> Result<()> {
        self.run(|conn| {
            let change = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            change.execute_batch(DERIVE)?;
            change.execute_batch(RECOUNT)?;
            for list in List::ALL {
                skip_empty_blocks(&change, list)?;
            }
            change.commit()
        })
        .await
    }

    async fn complete(&mut self) -> Result<()> {
        self.run(|conn| {
            // From here on everything is on disk before it counts.
            conn.execute_batch("pragma synchronous = full")?;
            conn.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?;
            conn.execute_batch(&format!("drop table {MARK}"))?;
            conn.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))
        })
        .await
    }
}

/// What is counted with the rows, as the transactions of a server would have left it.
const DERIVE: &str = "
    update store set event_floor = coalesce((select max(no) from event), 0);
    delete from dead_event;
    insert into dead_event
    select tenant, event, count(*) from delivery where state between 10 and 19 group by tenant, event;
    delete from block;
    delete from posting;
";

/// How many events and deliveries each tenant has.
pub(crate) const RECOUNT: &str = "
    delete from tally;
    insert into tally
    select tenant, sum(events), sum(pending), sum(delivered), sum(dead), sum(cancelled) from (
        select no as tenant, 0 as events, 0 as pending, 0 as delivered, 0 as dead, 0 as cancelled
        from tenant
        union all select tenant, count(*), 0, 0, 0, 0 from event group by tenant
        union all select tenant, 0, sum(state < 2), sum(state = 2), sum(state between 10 and 19),
            sum(state >= 20) from delivery group by tenant)
    group by tenant;
";

/// Numbers may begin far from one: blocks without a row count as indexed, so that nobody walks through them.
fn skip_empty_blocks(conn: &Connection, list: List) -> rusqlite::Result<()> {
    let first = match list {
        List::Events => "select min(no) from event",
        List::Deliveries => "select min(seq) from delivery",
        List::Attempts => "select min(no) from attempt",
    };
    let first: Option<i64> = conn.query_row(first, [], |row| row.get(0))?;
    if let Some(first) = first.filter(|first| *first >= BLOCK) {
        conn.execute(
            "insert into block (list, no, first_at, last_at, stale) values (?1, ?2, ?3, ?4, 0)",
            params![list.code(), block_of(first) - 1, i64::MAX, i64::MIN],
        )?;
    }
    Ok(())
}

/// Copies the log into the database now and then: nobody else does.
fn shorten(conn: &Connection, log: &Path) -> rusqlite::Result<()> {
    if std::fs::metadata(log).is_ok_and(|log| log.len() > LOG_BYTES_MAX) {
        conn.query_row("pragma wal_checkpoint(passive)", [], |_| Ok(()))?;
    }
    Ok(())
}

fn put_events(conn: &Connection, gone: &[Row], new: &[Unit]) -> rusqlite::Result<()> {
    let mut putting = Putting::new(conn)?;
    let mut former = HashMap::new();
    for key in gone {
        former.extend(putting.cut(key)?.map(|((id, tenant), no)| (vec![id, tenant], no)));
    }
    for unit in new {
        let name: Vec<Value> = unit.row[..2].to_vec();
        putting.put(unit, former.get(&name).copied())?;
    }
    Ok(())
}

fn put_rows(
    conn: &Connection,
    sheet: &Sheet,
    plain: &Plain,
    gone: &[Row],
    new: &[Unit],
) -> rusqlite::Result<()> {
    let stays: BTreeSet<&[Value]> = new.iter().map(|unit| sheet.key_of(&unit.row)).collect();
    for key in gone.iter().filter(|key| !stays.contains(key.as_slice())) {
        for sql in plain.cut {
            let mut statement = conn.prepare_cached(sql)?;
            let count = statement.parameter_count();
            let values = key.iter().take(count).map(Param).collect::<Vec<_>>();
            statement.execute(rusqlite::params_from_iter(values.iter()))?;
        }
    }
    let mut put = conn.prepare_cached(plain.put)?;
    let mut greatest: i64 =
        conn.query_row("select coalesce(max(no), 0) from subscription", [], |row| row.get(0))?;
    for Unit { row, .. } in new {
        let values: Vec<Param<'_>> = row.iter().map(Param).collect();
        let mut values: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
        let number;
        if sheet.name == "subscription" {
            let id = SubscriptionId::from_bytes(row[0].id().unwrap_or_default());
            greatest = subscription_no(greatest, Shard::of(id));
            number = greatest;
            values.push(&number);
        }
        put.execute(values.as_slice())?;
    }
    Ok(())
}
