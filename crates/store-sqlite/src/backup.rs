//! Copying the store while it works.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use crate::error::OpenError;
use crate::open;

/// Pages copied between two reports.
const SLICE_PAGES: i32 = 2048;

/// How far a backup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Pages copied.
    pub done: u64,
    /// Pages in all.
    pub total: u64,
}

/// Copies the store in `directory` to the new file `to`, as of one moment, whether or not another
/// process works with it: the copy only reads. Blocks. `report` is called after every slice. When it
/// fails, nothing is left of the copy.
pub fn backup_file(
    directory: &Path,
    to: &Path,
    report: impl FnMut(Progress),
) -> Result<(), BackupError> {
    let result = copy(&directory.join(open::DATABASE_FILE), to, report);
    if let Err(BackupError::Open(_) | BackupError::Sqlite(_) | BackupError::Sync(_)) = &result {
        // Half a copy must not be taken for a whole one.
        drop(std::fs::remove_file(to));
    }
    result
}

/// Copies the file `from` to the new file `to`, as of one moment.
///
/// The source is held at one snapshot for the whole copy. Without that, SQLite starts over whenever
/// the writer commits between two slices, and a busy store would never be done.
pub(crate) fn copy(
    from: &Path,
    to: &Path,
    mut report: impl FnMut(Progress),
) -> Result<(), BackupError> {
    let source = open::read_only(from)?;
    // A file that is there may be somebody's only good backup.
    let mut options = std::fs::File::options();
    options.write(true).create_new(true);
    open::private(&mut options);
    options.open(to).map_err(BackupError::Target)?;
    let mut target = Connection::open(to)?;
    source.execute_batch("begin; select 1 from store")?;
    {
        let backup = Backup::new(&source, &mut target)?;
        loop {
            let step = backup.step(SLICE_PAGES)?;
            let pages = backup.progress();
            let total = u64::try_from(pages.pagecount).unwrap_or(0);
            let left = u64::try_from(pages.remaining).unwrap_or(0);
            report(Progress { done: total.saturating_sub(left), total });
            match step {
                StepResult::Done => break,
                _ => std::thread::yield_now(),
            }
        }
    }
    source.execute_batch("commit")?;
    target.close().map_err(|(_, error)| error)?;
    std::fs::File::open(to).and_then(|file| file.sync_all()).map_err(BackupError::Sync)
}

/// Why a backup was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// It is there already, or the place is not writable.
    #[error("the target file cannot be created")]
    Target(#[source] std::io::Error),
    /// The copy could not be synced to disk.
    #[error("the target file cannot be synced to disk")]
    Sync(#[source] std::io::Error),
    /// There is no store, or it cannot be read.
    #[error("the source cannot be opened")]
    Open(#[from] OpenError),
    /// SQLite stopped.
    #[error("SQLite stopped the copy")]
    Sqlite(#[from] rusqlite::Error),
}
