//! Broadcasts: a few texts that every agent may follow, each with a current version.
//!
//! There is one table for all sessions of a node. A session remembers only which rows it follows
//! and the last change it told its agent, so a change costs nothing per session until the session's
//! next ping is due.

use std::collections::HashMap;
use std::sync::Arc;

use crate::protocol::Copies;
use crate::protocol::write::News;

/// How many broadcasts a table takes.
pub const TABLE_MAX: usize = 1024;

/// All broadcasts with their current versions. Rows are never removed.
#[derive(Clone, Debug, Default)]
pub struct Broadcasts {
    rows: Vec<Row>,
    by_id: HashMap<Arc<str>, u16>,
    changes: u64,
}

#[derive(Clone, Debug)]
struct Row {
    id: Arc<str>,
    version: Arc<str>,
    changed: u64,
}

/// Which rows an agent follows, and up to which change it knows them.
#[derive(Debug, Default)]
pub(super) struct Followed {
    rows: Vec<u16>,
    seen: u64,
}

/// A broadcast that cannot be in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BroadcastError {
    /// The table is full.
    #[error("there are {TABLE_MAX} broadcasts already")]
    TooMany,
    /// On the wire, this name stands for ids that nobody knows.
    #[error("a broadcast cannot be called `errors`")]
    Reserved,
}

impl Broadcasts {
    /// Sets the version of a broadcast, new or old. Says whether anything changed.
    pub fn set(&mut self, id: &str, version: &str) -> Result<bool, BroadcastError> {
        if let Some(row) = self.by_id.get(id) {
            let row = &mut self.rows[usize::from(*row)];
            if *row.version == *version {
                return Ok(false);
            }
            self.changes += 1;
            row.version = version.into();
            row.changed = self.changes;
            return Ok(true);
        }
        if id == "errors" {
            return Err(BroadcastError::Reserved);
        }
        let index = u16::try_from(self.rows.len()).ok().filter(|at| usize::from(*at) < TABLE_MAX);
        let index = index.ok_or(BroadcastError::TooMany)?;
        self.changes += 1;
        let id: Arc<str> = id.into();
        self.by_id.insert(Arc::clone(&id), index);
        self.rows.push(Row { id, version: version.into(), changed: self.changes });
        Ok(true)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Followed {
    /// Follows what the agent names, and says what it does not know yet, of these and of those it
    /// followed before.
    pub(super) fn follow<'t>(&mut self, table: &'t Broadcasts, copies: &'t Copies<'_>) -> News<'t> {
        let mut news = self.news(table);
        for (id, version) in copies {
            let Some(index) = table.by_id.get(&**id) else {
                news.unknown.push(id);
                continue;
            };
            let row = &table.rows[usize::from(*index)];
            news.changed.retain(|(told, _)| *told != &*row.id);
            if *row.version != **version {
                news.changed.push((&row.id, &row.version));
            }
            if let Err(at) = self.rows.binary_search(index) {
                self.rows.insert(at, *index);
            }
        }
        self.rows.shrink_to_fit();
        self.seen = table.changes;
        news
    }

    /// What changed since the agent was told last; after this it counts as told.
    pub(super) fn catch_up<'t>(&mut self, table: &'t Broadcasts) -> News<'t> {
        let news = self.news(table);
        self.seen = table.changes;
        news
    }

    fn news<'t>(&self, table: &'t Broadcasts) -> News<'t> {
        let mut news = News::default();
        if self.seen == table.changes {
            return news;
        }
        let rows = self.rows.iter().filter_map(|index| table.rows.get(usize::from(*index)));
        let changed = rows.filter(|row| row.changed > self.seen);
        news.changed.extend(changed.map(|row| (&*row.id, &*row.version)));
        news
    }
}
