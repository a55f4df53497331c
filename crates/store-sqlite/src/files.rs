//! Whether the files that are open are still those in the data directory.
//!
//! A removed file goes on working for whoever has it open: commits succeed, and everything is gone with
//! the process. So before each commit the names are looked up again, which costs a microsecond.

use std::path::{Path, PathBuf};

use crate::open::DATABASE_FILE;

/// Which file it is, whatever it is called.
type Identity = (u64, u64);

/// The files of an open store.
#[derive(Debug, Default)]
pub(crate) struct Files {
    database: PathBuf,
    known: Vec<(PathBuf, Identity)>,
}

impl Files {
    /// Those of the store in this directory, which is open.
    pub(crate) fn of(directory: &Path) -> Self {
        let database = directory.join(DATABASE_FILE);
        let log = directory.join(format!("{DATABASE_FILE}-wal"));
        let known = [database.clone(), log];
        let known = known.into_iter().filter_map(|path| Some((path.clone(), identity(&path)?)));
        Self { known: known.collect(), database }
    }

    pub(crate) fn database(&self) -> &Path {
        &self.database
    }

    /// Whether each is still there, and still the same.
    pub(crate) fn are_there(&self) -> bool {
        self.known.iter().all(|(path, known)| identity(path) == Some(*known))
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Where files cannot be removed while they are open, being there is enough.
#[cfg(not(unix))]
fn identity(path: &Path) -> Option<Identity> {
    path.exists().then_some((0, 0))
}
