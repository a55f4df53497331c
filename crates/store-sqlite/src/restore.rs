//! Putting a backup back: a file is looked at, and becomes the store of a directory that has none.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use posthorn_domain::CatalogVersion;
use posthorn_store::CatalogDelta;
use rusqlite::{Connection, OpenFlags};

use crate::backup::Progress;
use crate::error::{Failure, OpenError};
use crate::integrity::{self, Damage, Depth};
use crate::open::{self, DATABASE_FILE};
use crate::{copy, migrate, read};

/// While it is being written.
const UNFINISHED: &str = "posthorn.db.restoring";
/// Bytes copied between two reports.
const SLICE_BYTES: usize = 1 << 20;

/// A backup, looked at.
#[derive(Debug)]
pub struct Backup {
    /// What is wrong with it; nothing, when it is sound.
    pub damage: Damage,
    /// Its schema version, and that of this program, which is never smaller.
    pub schema: (u32, u32),
    /// What is in it; nothing, when its schema is older: its tables are others then.
    pub contents: Option<Contents>,
    /// Its size.
    pub bytes: u64,
}

/// What is in a backup.
#[derive(Debug)]
pub struct Contents {
    /// Events.
    pub events: u64,
    /// Deliveries that have not ended.
    pub pending: u64,
    /// When the last event was accepted, in milliseconds.
    pub last_event_at: Option<i64>,
    /// The catalog.
    pub catalog: CatalogDelta,
}

/// Looks at a backup, wholly. Nothing is written, not even beside it.
pub fn look(file: &Path) -> Result<Backup, RestoreError> {
    let bytes =
        std::fs::metadata(file).map_err(|e| RestoreError::Unreadable(file.to_owned(), e))?;
    for end in ["-wal", "-journal"] {
        let mut log = file.as_os_str().to_owned();
        log.push(end);
        if std::fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
            return Err(RestoreError::Live { file: file.to_owned(), end });
        }
    }
    let conn = immutable(file)?;
    let damage = integrity::check_connection(&conn, Depth::Full)?;
    if !damage.findings.is_empty() {
        return Err(RestoreError::Damaged(damage));
    }
    let schema = migrate::versions(&conn)?;
    if schema.0 == 0 {
        return Err(RestoreError::NoStore(file.to_owned()));
    }
    if let Some(source) = copy::marked(&conn)? {
        return Err(RestoreError::HalfCopied(source));
    }
    let contents = (schema.0 == schema.1).then(|| contents(&conn)).transpose()?;
    Ok(Backup { damage, schema, contents, bytes: bytes.len() })
}

/// A file that nobody changes: SQLite makes no files beside it.
fn immutable(file: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    // What has a meaning in a URI is written as a number.
    let mut uri = "file:".to_owned();
    for byte in file.to_string_lossy().bytes() {
        match byte {
            b'%' | b'?' | b'#' => uri.push_str(&format!("%{byte:02x}")),
            _ => uri.push(char::from(byte)),
        }
    }
    uri.push_str("?immutable=1");
    Connection::open_with_flags(uri, flags)
        .map_err(OpenError::sqlite("opening the file for reading"))
}

fn contents(conn: &Connection) -> Result<Contents, OpenError> {
    let sql = "select (select count(*) from event), (select count(*) from delivery where state < 2), \
        (select accepted_at from event order by no desc limit 1)";
    let (events, pending, last_event_at): (i64, i64, Option<i64>) = conn
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .map_err(OpenError::sqlite("counting events"))?;
    let catalog =
        read::catalog::since(conn, CatalogVersion(0)).map_err(|failure| match failure {
            Failure::Sql(source) => OpenError::Sqlite { doing: "reading the catalog", source },
            other => OpenError::Damaged(other.to_string()),
        })?;
    let (events, pending) = (events.unsigned_abs(), pending.unsigned_abs());
    Ok(Contents { events, pending, last_event_at, catalog })
}

/// Makes a backup the store of a directory that has none. When it is cut off, there is still none.
pub fn restore(
    file: &Path,
    directory: &Path,
    mut report: impl FnMut(Progress),
) -> Result<(), RestoreError> {
    let database = directory.join(DATABASE_FILE);
    let empty = |path: &Path| std::fs::metadata(path).map_or(true, |found| found.len() == 0);
    // Before the lock, so that nothing is made beside a store; and once more, since a server may have been there until now.
    if !empty(&database) {
        return Err(RestoreError::Exists(database));
    }
    let _lock = open::lock(directory)?;
    if !empty(&database) {
        return Err(RestoreError::Exists(database));
    }
    let unfinished = directory.join(UNFINISHED);
    let written = (|| {
        let mut from = File::open(file)?;
        let total = from.metadata()?.len();
        let mut options = File::options();
        options.write(true).create(true).truncate(true);
        open::private(&mut options);
        let mut to = options.open(&unfinished)?;
        let (mut slice, mut done) = (vec![0; SLICE_BYTES], 0);
        loop {
            let read = from.read(&mut slice)?;
            if read == 0 {
                break;
            }
            to.write_all(&slice[..read])?;
            done += read as u64;
            report(Progress { done, total });
        }
        to.sync_all()?;
        // Of another store that was here once, these would be taken for its own.
        for end in ["-wal", "-shm", "-journal"] {
            let left = directory.join(format!("{DATABASE_FILE}{end}"));
            if left.exists() {
                std::fs::remove_file(left)?;
            }
        }
        std::fs::rename(&unfinished, &database)?;
        File::open(directory)?.sync_all()
    })();
    written.map_err(|e| {
        drop(std::fs::remove_file(&unfinished));
        RestoreError::Write(directory.to_owned(), e)
    })
}

/// Why a backup is not put back. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// It is not there, or nobody may read it.
    #[error("{0} cannot be read")]
    Unreadable(PathBuf, #[source] std::io::Error),
    /// It is a database, but not one of ours.
    #[error("{0} is a database without a store")]
    NoStore(PathBuf),
    /// A log lies beside it.
    #[error(
        "{file} has a log beside it ({end}): it is a store in use, or was copied from one, and no backup"
    )]
    Live {
        /// Which one.
        file: PathBuf,
        /// What the name of the log has more.
        end: &'static str,
    },
    /// It is damaged.
    #[error("the file is damaged: {}", .0.findings.first().map_or("", String::as_str))]
    Damaged(Damage),
    /// It is of a copy that was not complete.
    #[error("the file is of a copy of {0} that was not complete")]
    HalfCopied(String),
    /// There is a store already.
    #[error("there is a store already: {0}")]
    Exists(PathBuf),
    /// The directory or the file cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The disk says no.
    #[error("the store cannot be written to {0}")]
    Write(PathBuf, #[source] std::io::Error),
}
