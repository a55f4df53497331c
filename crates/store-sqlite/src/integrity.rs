//! Looking for damage, without writing anything.
//!
//! The check works on a read-only connection and one snapshot, so that a server may go on working with
//! the store. `integrity_check` walks every page of every table and index and compares them; the quick
//! one leaves the comparison of indexes with their tables out. Foreign keys are looked at as well: a
//! page that was lost and came back as an older one can leave a sound tree with rows that belong to
//! nothing.

use std::path::Path;

use rusqlite::Connection;

use crate::error::{OpenError, is_damage};
use crate::open;

/// Findings that are told; a broken disk has thousands.
const FINDINGS_MAX: usize = 100;

/// How closely to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Every page, but not whether indexes and tables agree.
    Quick,
    /// Everything.
    Full,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// One line for each finding, at most a hundred; none means that the store is sound.
    pub findings: Vec<String>,
    /// Pages of the database.
    pub pages: u64,
}

/// Checks the store in `directory`, whether or not a process works with it. Blocks, for as long as it
/// takes to read everything.
pub fn check_file(directory: &Path, depth: Depth) -> Result<Damage, OpenError> {
    let conn = match open::read_only(&directory.join(open::DATABASE_FILE)) {
        Ok(conn) => conn,
        Err(error) if error.is_damage() => {
            return Ok(Damage { findings: vec![crate::error::text(&error)], pages: 0 });
        }
        Err(error) => return Err(error),
    };
    check_connection(&conn, depth)
}

/// The same of a database that is open.
pub(crate) fn check_connection(conn: &Connection, depth: Depth) -> Result<Damage, OpenError> {
    let mut damage = Damage::default();
    match look(conn, depth, &mut damage) {
        Ok(()) => Ok(damage),
        // The check itself stumbles over what it looks for.
        Err(error) if is_damage(&error) => {
            damage.findings.push(error.to_string());
            Ok(damage)
        }
        Err(error) => Err(OpenError::sqlite("checking it")(error)),
    }
}

fn look(conn: &Connection, depth: Depth, damage: &mut Damage) -> rusqlite::Result<()> {
    conn.execute_batch("begin")?;
    let pages: i64 = conn.query_row("pragma page_count", [], |row| row.get(0))?;
    damage.pages = pages.unsigned_abs();
    let pragma = match depth {
        Depth::Quick => format!("pragma quick_check({FINDINGS_MAX})"),
        Depth::Full => format!("pragma integrity_check({FINDINGS_MAX})"),
    };
    let mut statement = conn.prepare(&pragma)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let text: String = row.get(0)?;
        if text != "ok" {
            damage.findings.extend(text.lines().map(str::to_owned));
        }
    }
    let mut statement = conn.prepare("pragma foreign_key_check")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()?
        && damage.findings.len() < FINDINGS_MAX
    {
        let (table, id): (String, Option<i64>) = (row.get(0)?, row.get(1)?);
        let parent: String = row.get(2)?;
        let id = id.map_or_else(|| "?".to_owned(), |id| id.to_string());
        damage.findings.push(format!("row {id} of {table} refers to a missing row in {parent}"));
    }
    damage.findings.truncate(FINDINGS_MAX);
    conn.execute_batch("commit")
}
