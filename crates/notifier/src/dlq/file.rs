//! Dead letters in a JSON file: one object, keyed by id.
//!
//! The file is small by nature and written whole each time: to a file beside it, synced, and then
//! put in its place, so that a crash leaves either the old contents or the new. Changes that come while
//! it is written are written together next: a receiver that is gone takes many webhooks with it at once.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{DlqError, DlqStore, FailedWebhook, Letters, latest};

/// Dead letters kept at most. The file is written whole, so it must stay small.
const LETTERS_MAX: usize = 10_000;

/// Keeps dead letters in a JSON file. One process at a time, which a lock on a file beside it makes sure
/// of. It keeps ten thousand; more are refused until some are deleted.
#[derive(Clone, Debug)]
pub struct FileDlqStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Held as long as the store lives.
    _lock: File,
    letters: Mutex<Letters>,
    waiting: Mutex<Vec<Waiting>>,
    /// Held by the one that writes.
    pen: Mutex<()>,
}

/// A change that is not written yet, and who waits for it.
#[derive(Debug)]
struct Waiting {
    edit: Edit,
    done: oneshot::Sender<Result<(), Refused>>,
}

/// Why a change was not made.
#[derive(Clone, Debug)]
enum Refused {
    Full,
    Write(Arc<io::Error>),
}

#[derive(Debug)]
enum Edit {
    Save(Box<FailedWebhook>),
    Delete(String),
}

impl Edit {
    /// Makes the change, if there is room for it.
    fn apply(&self, letters: &mut Letters) -> Result<(), Refused> {
        match self {
            Self::Save(webhook) => {
                if letters.len() >= LETTERS_MAX && !letters.contains_key(&webhook.id) {
                    return Err(Refused::Full);
                }
                letters.insert(webhook.id.clone(), (**webhook).clone());
            }
            Self::Delete(id) => drop(letters.remove(id)),
        }
        Ok(())
    }
}

impl FileDlqStore {
    /// Opens the file, if it is there, and reads what it holds. A file that cannot be read is an
    /// error: writing over it would lose what somebody may still want.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DlqError> {
        let path = path.into();
        let lock = lock(&path)?;
        let letters = match std::fs::read(&path) {
            Ok(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => Letters::new(),
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| DlqError::Contents {
                path: path.display().to_string(),
                source,
            })?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Letters::new(),
            Err(source) => return Err(failed(&path, "read", source)),
        };
        let inner = Inner {
            path,
            _lock: lock,
            letters: Mutex::new(letters),
            waiting: Mutex::default(),
            pen: Mutex::default(),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Makes a change and has it written, with all others that wait. On failure nothing has changed.
    async fn change(&self, edit: Edit) -> Result<(), DlqError> {
        let (done, written) = oneshot::channel();
        self.0.waiting.lock().push(Waiting { edit, done });
        let inner = Arc::clone(&self.0);
        // It goes on when the caller gives up: a change that was begun is written.
        let writing = tokio::task::spawn_blocking(move || inner.write());
        if let Err(crash) = writing.await {
            return Err(failed(&self.0.path, "written", io::Error::other(crash)));
        }
        match written.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Refused::Full)) => Err(DlqError::Full { max: LETTERS_MAX }),
            Ok(Err(Refused::Write(source))) => {
                let source = io::Error::new(source.kind(), source.to_string());
                Err(failed(&self.0.path, "written", source))
            }
            Err(lost) => Err(failed(&self.0.path, "written", io::Error::other(lost))),
        }
    }
}

impl Inner {
    /// Writes all changes that wait, and answers those who made them. Whoever held the pen before may
    /// have done so already.
    fn write(&self) {
        let _held = self.pen.lock();
        let waiting = std::mem::take(&mut *self.waiting.lock());
        if waiting.is_empty() {
            return;
        }
        let mut changed = self.letters.lock().clone();
        let made: Vec<Result<(), Refused>> =
            waiting.iter().map(|change| change.edit.apply(&mut changed)).collect();
        let written = match made.iter().any(Result::is_ok) {
            true => write_whole(&self.path, &changed).map_err(|e| Refused::Write(Arc::new(e))),
            false => Ok(()),
        };
        if written.is_ok() {
            *self.letters.lock() = changed;
        }
        for (change, made) in waiting.into_iter().zip(made) {
            // Who no longer waits does not need to know.
            let _ = change.done.send(made.and_then(|()| written.clone()));
        }
    }
}

/// Takes the file for this process; it is free again when the lock is dropped, or the process ends.
fn lock(path: &Path) -> Result<File, DlqError> {
    let unusable = |source| failed(path, "locked", source);
    make_folder(path).map_err(unusable)?;
    let file = beside(path, ".lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(file).map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DlqError::InUse { path: path.display().to_string() }),
        Err(TryLockError::Error(source)) => Err(unusable(source)),
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder(path))
}

fn failed(path: &Path, what: &'static str, source: io::Error) -> DlqError {
    DlqError::File { path: path.display().to_string(), what, source }
}

fn write_whole(path: &Path, letters: &Letters) -> io::Result<()> {
    make_folder(path)?;
    let beside = beside(path, ".new");
    // Left over from a write that was cut short; it never counted.
    drop(std::fs::remove_file(&beside));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = options.open(&beside)?;
    let mut text = serde_json::to_vec_pretty(letters)?;
    text.push(b'\n');
    out.write_all(&text)?;
    out.sync_all()?;
    std::fs::rename(&beside, path)?;
    File::open(folder(path))?.sync_all()
}

#[async_trait]
impl DlqStore for FileDlqStore {
    async fn save(&self, webhook: FailedWebhook) -> Result<bool, DlqError> {
        self.change(Edit::Save(Box::new(webhook))).await?;
        Ok(true)
    }

    async fn list(&self, limit: usize) -> Result<Vec<FailedWebhook>, DlqError> {
        Ok(latest(&self.0.letters.lock(), limit))
    }

    async fn delete(&self, id: &str) -> Result<(), DlqError> {
        self.change(Edit::Delete(id.to_owned())).await
    }
}
