//! Opening the data directory: the lock, the connections and their settings.

use std::fs::{DirBuilder, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::OpenError;

/// The database inside the data directory.
pub(crate) const DATABASE_FILE: &str = "posthorn.db";
const LOCK_FILE: &str = "posthorn.lock";

/// How to open a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data directory; made when it is not there.
    pub path: PathBuf,
    /// Threads that answer questions. At least one.
    pub readers: usize,
    /// Commands that may wait for the writer. When it is full, callers wait.
    pub queue: usize,
    /// Page cache of the writer; each reader has an eighth of it.
    pub cache_bytes: usize,
    /// The log is copied back into the database when it is longer than this.
    pub checkpoint_bytes: u64,
}

impl Options {
    /// The usual settings for a directory.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            readers: 2,
            queue: 1024,
            cache_bytes: 32 << 20,
            checkpoint_bytes: 16 << 20,
        }
    }
}

/// Makes the directory if need be and locks it against other processes. The lock holds as long as
/// the file is open, so a killed process leaves nothing behind.
pub(crate) fn lock(path: &Path) -> Result<File, OpenError> {
    let unusable = |source| OpenError::Directory { path: path.to_owned(), source };
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    // Payloads and sealed secrets are nobody else's business.
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(unusable)?;
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    private(&mut options);
    let file = options.open(path.join(LOCK_FILE)).map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => {
            make_database(path).map_err(unusable)?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(unusable(source)),
    }
}

/// The files of a store in a directory, as far as they are there.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let with = |end: &str| path.join(format!("{DATABASE_FILE}{end}"));
    vec![with(""), with("-wal"), with("-shm"), with("-journal"), path.join(LOCK_FILE)]
}

/// Makes the database before SQLite does, which gives its log and index the mode that the database has.
/// Files that are there already keep theirs: whoever owns the directory looks after them.
fn make_database(path: &Path) -> std::io::Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    private(&mut options);
    match options.open(path.join(DATABASE_FILE)) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// For files that only their owner may read, whatever the umask leaves.
pub(crate) fn private(options: &mut std::fs::OpenOptions) {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
}

/// The connection that writes.
pub(crate) fn writer(options: &Options) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let file = options.path.join(DATABASE_FILE);
    let conn = Connection::open_with_flags(file, flags)
        .map_err(OpenError::sqlite("opening the file for writing"))?;
    // The writer checkpoints where it can see the error; a close must not do it on the side.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(OpenError::sqlite("configuring the connection"))?;
    // Only somebody with a shell can be in the way, or a reader when the log is to begin anew.
    conn.busy_timeout(Duration::from_millis(250))
        .map_err(OpenError::sqlite("configuring the connection"))?;
    set(&conn, "journal_mode", "wal", "wal")?;
    set(&conn, "synchronous", "full", "2")?;
    set(&conn, "fullfsync", "1", "1")?;
    set(&conn, "foreign_keys", "1", "1")?;
    set(&conn, "mmap_size", "0", "0")?;
    set(&conn, "wal_autocheckpoint", "0", "0")?;
    set(&conn, "temp_store", "memory", "2")?;
    let limit = (options.checkpoint_bytes * 2).to_string();
    set(&conn, "journal_size_limit", &limit, &limit)?;
    set_cache(&conn, options.cache_bytes)?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(conn)
}

/// A connection that reads.
pub(crate) fn reader(options: &Options) -> Result<Connection, OpenError> {
    let conn = read_only(&options.path.join(DATABASE_FILE))?;
    set_cache(&conn, options.cache_bytes / 8)?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(conn)
}

/// A read-only connection to a database file.
pub(crate) fn read_only(file: &Path) -> Result<Connection, OpenError> {
    undo_begun(file);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(file, flags)
        .map_err(OpenError::sqlite("opening the file for reading"))?;
    conn.busy_timeout(Duration::from_secs(5))
        .map_err(OpenError::sqlite("configuring the connection"))?;
    set(&conn, "query_only", "1", "1")?;
    set(&conn, "mmap_size", "0", "0")?;
    Ok(conn)
}

/// A start that was killed before the database had its log left a journal, and nobody can read before what it had begun is
/// undone. SQLite does that for whoever may write, unless somebody is at work. Who may not write gets its error.
fn undo_begun(file: &Path) {
    let mut journal = file.as_os_str().to_owned();
    journal.push("-journal");
    if !Path::new(&journal).exists() {
        return;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let undone = Connection::open_with_flags(file, flags).and_then(|conn| {
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        conn.query_row("select count(*) from sqlite_schema", [], |_| Ok(()))
    });
    if let Err(error) = undone {
        tracing::debug!(%error, file = %file.display(), "what a killed start had begun was not undone");
    }
}

fn set_cache(conn: &Connection, bytes: usize) -> Result<(), OpenError> {
    let kibibytes = format!("-{}", bytes / 1024);
    set(conn, "cache_size", &kibibytes, &kibibytes)
}

/// Sets a pragma and reads it back: wrappers, builds and file systems silently disagree.
fn set(conn: &Connection, name: &'static str, value: &str, wanted: &str) -> Result<(), OpenError> {
    let doing = OpenError::sqlite("configuring the database file");
    // Some pragmas answer with a row and some do not.
    conn.execute_batch(&format!("pragma {name} = {value}")).map_err(doing)?;
    let found = conn.query_row(&format!("pragma {name}"), [], |row| {
        row.get_ref(0).map(|value| match value {
            rusqlite::types::ValueRef::Integer(number) => number.to_string(),
            rusqlite::types::ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
            other => format!("{other:?}"),
        })
    });
    let found = match found {
        Ok(found) => found,
        // A build without memory mapping says nothing at all.
        Err(rusqlite::Error::QueryReturnedNoRows) if wanted == "0" => wanted.to_owned(),
        Err(source) => {
            return Err(OpenError::Sqlite {
                doing: "checking the configuration of the database file",
                source,
            });
        }
    };
    if found == wanted {
        Ok(())
    } else {
        Err(OpenError::Setting { name, wanted: wanted.to_owned(), found })
    }
}
