//! Reading everything, as of one moment.

use std::path::Path;
use std::thread;

use async_trait::async_trait;
use posthorn_store::copy::{BITE_BYTES, BITE_ROWS, Reading, Row, Sheet, Unit, Value};
use posthorn_store::{Error, Result};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row as SqlRow};
use tokio::sync::{mpsc, oneshot};

use super::events;
use super::sheets::{self, Layout};
use super::{CopyError, DATABASE_FILE};
use crate::open;

/// Bites that wait to be taken.
const AHEAD: usize = 2;
const READING: &str = "reading the store to copy it";

/// What the thread is asked for.
enum Ask {
    Count(&'static Sheet, oneshot::Sender<rusqlite::Result<u64>>),
    Walk(&'static Sheet, mpsc::Sender<rusqlite::Result<Vec<Unit>>>),
}

/// A snapshot, read by a thread of its own.
pub struct CopyReading {
    asks: mpsc::Sender<Ask>,
    bites: Option<mpsc::Receiver<rusqlite::Result<Vec<Unit>>>>,
}

impl CopyReading {
    pub(super) fn start(path: &Path) -> Result<Self, CopyError> {
        let conn = open::read_only(&path.join(DATABASE_FILE))?;
        conn.set_prepared_statement_cache_capacity(64);
        conn.execute_batch("begin; select 1 from store")
            .map_err(crate::error::OpenError::sqlite("beginning to read"))?;
        let (asks, mut asked) = mpsc::channel(1);
        let work = move || {
            while let Some(ask) = asked.blocking_recv() {
                match ask {
                    // Whoever asked may have gone.
                    Ask::Count(sheet, reply) => drop(reply.send(count(&conn, sheet))),
                    Ask::Walk(sheet, to) => {
                        if let Err(error) = walk(&conn, sheet, &to) {
                            drop(to.blocking_send(Err(error)));
                        }
                    }
                }
            }
        };
        thread::Builder::new()
            .name("posthorn-copy".to_owned())
            .spawn(work)
            .map_err(CopyError::Thread)?;
        Ok(Self { asks, bites: None })
    }
}

#[async_trait]
impl Reading for CopyReading {
    async fn count(&mut self, sheet: &'static Sheet) -> Result<u64> {
        let (reply, answer) = oneshot::channel();
        self.asks
            .send(Ask::Count(sheet, reply))
            .await
            .map_err(|e| Error::fatal(READING, e.to_string()))?;
        let counted = answer.await.map_err(|e| Error::fatal(READING, e))?;
        counted.map_err(|e| Error::fatal(READING, e))
    }

    async fn open(&mut self, sheet: &'static Sheet) -> Result<()> {
        let (to, bites) = mpsc::channel(AHEAD);
        // What was not read to its end ends here.
        self.bites = Some(bites);
        let asked = self.asks.send(Ask::Walk(sheet, to)).await;
        asked.map_err(|e| Error::fatal(READING, e.to_string()))
    }

    async fn next(&mut self) -> Result<Vec<Unit>> {
        let Some(bites) = &mut self.bites else { return Ok(Vec::new()) };
        match bites.recv().await {
            None => Ok(Vec::new()),
            Some(bite) => bite.map_err(|e| Error::fatal(READING, e)),
        }
    }
}

fn count(conn: &Connection, sheet: &'static Sheet) -> rusqlite::Result<u64> {
    let number = |table: &str| -> rusqlite::Result<u64> {
        let sql = format!("select count(*) from {table}");
        conn.query_row(&sql, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
    };
    match sheets::layout(sheet) {
        Layout::Events => Ok(number("event")? + number("delivery")? + number("attempt")?),
        Layout::Store => Ok(1),
        Layout::Plain(_) => number(sheet.name),
    }
}

/// Collects units and sends them when there are enough.
pub(super) struct Bites<'t> {
    to: &'t mpsc::Sender<rusqlite::Result<Vec<Unit>>>,
    units: Vec<Unit>,
    rows: usize,
    bytes: usize,
}

impl Bites<'_> {
    /// False when nobody wants any more.
    pub(super) fn push(&mut self, unit: Unit) -> bool {
        self.rows += unit.rows();
        self.bytes += unit.size();
        self.units.push(unit);
        (self.rows < BITE_ROWS && self.bytes < BITE_BYTES) || self.send()
    }

    fn send(&mut self) -> bool {
        (self.rows, self.bytes) = (0, 0);
        let units = std::mem::take(&mut self.units);
        units.is_empty() || self.to.blocking_send(Ok(units)).is_ok()
    }
}

fn walk(
    conn: &Connection,
    sheet: &'static Sheet,
    to: &mpsc::Sender<rusqlite::Result<Vec<Unit>>>,
) -> rusqlite::Result<()> {
    let mut bites = Bites { to, units: Vec::new(), rows: 0, bytes: 0 };
    match sheets::layout(sheet) {
        Layout::Events => events::walk(conn, &mut bites)?,
        Layout::Store => {
            bites.push(sheets::store_row(conn)?.into());
        }
        Layout::Plain(plain) => {
            let mut statement = conn.prepare(plain.select)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                if !bites.push(values(row, 0, sheet.columns.len())?.into()) {
                    return Ok(());
                }
            }
        }
    }
    bites.send();
    Ok(())
}

/// So many values of a row, from one on.
pub(super) fn values(row: &SqlRow<'_>, from: usize, count: usize) -> rusqlite::Result<Row> {
    (from..from + count)
        .map(|column| {
            Ok(match row.get_ref(column)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(number) => Value::Int(number),
                ValueRef::Text(text) => Value::text(&String::from_utf8_lossy(text)),
                ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec().into()),
                ValueRef::Real(_) => {
                    let name = row.as_ref().column_name(column)?.to_owned();
                    return Err(rusqlite::Error::InvalidColumnType(
                        column,
                        name,
                        rusqlite::types::Type::Real,
                    ));
                }
            })
        })
        .collect()
}
