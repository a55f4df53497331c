//! Dead letters in a JSON file: one object, keyed by id.
//!
//! The file is small by nature and written whole each time: to a file beside it, synced, and then
//! put in its place, so that a crash leaves either the old contents or the new. Changes that come while
//! it is written are written together next: a receiver that is gone takes many webhooks with it at once.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{DlqError, DlqStore, FailedWebhook, Letters, latest};

/// Keeps dead letters in a JSON file. One process at a time.
#[derive(Clone, Debug)]
pub struct FileDlqStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    letters: Mutex<Letters>,
    waiting: Mutex<Vec<Waiting>>,
    /// Held by the one that writes.
    pen: Mutex<()>,
}

/// A change that is not written yet, and who waits for it.
#[derive(Debug)]
struct Waiting {
    edit: Edit,
    done: oneshot::Sender<Result<(), Arc<io::Error>>>,
}

#[derive(Debug)]
enum Edit {
    Save(Box<FailedWebhook>),
    Delete(String),
}

impl Edit {
    fn apply(&self, letters: &mut Letters) {
        match self {
            Self::Save(webhook) => drop(letters.insert(webhook.id.clone(), (**webhook).clone())),
            Self::Delete(id) => drop(letters.remove(id)),
        }
    }
}

impl FileDlqStore {
    /// Opens the file, if it is there, and reads what it holds. A file that cannot be read is an
    /// error: writing over it would lose what somebody may still want.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DlqError> {
        let path = path.into();
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
        let result = written.await.unwrap_or_else(|e| Err(Arc::new(io::Error::other(e))));
        result.map_err(|source| {
            let source = io::Error::new(source.kind(), source.to_string());
            failed(&self.0.path, "written", source)
        })
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
        for change in &waiting {
            change.edit.apply(&mut changed);
        }
        let result = write_whole(&self.path, &changed).map_err(Arc::new);
        if result.is_ok() {
            *self.letters.lock() = changed;
        }
        for change in waiting {
            // Who no longer waits does not need to know.
            let _ = change.done.send(result.clone());
        }
    }
}

fn failed(path: &Path, what: &'static str, source: io::Error) -> DlqError {
    DlqError::File { path: path.display().to_string(), what, source }
}

fn write_whole(path: &Path, letters: &Letters) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
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
    File::open(folder)?.sync_all()
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
