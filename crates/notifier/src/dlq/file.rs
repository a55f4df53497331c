//! Dead letters in a JSON file: one object, keyed by id.
//!
//! The file is small by nature and written whole each time: to a file beside it, synced, and then
//! put in its place, so that a crash leaves either the old contents or the new.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{DlqError, DlqStore, FailedWebhook, Letters, latest};

/// Keeps dead letters in a JSON file. One process at a time.
#[derive(Clone, Debug)]
pub struct FileDlqStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    letters: Mutex<Letters>,
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
        Ok(Self(Arc::new(Inner { path, letters: Mutex::new(letters) })))
    }

    /// Changes the letters and writes the file. On failure nothing has changed.
    async fn change(
        &self,
        edit: impl FnOnce(&mut Letters) + Send + 'static,
    ) -> Result<(), DlqError> {
        let inner = Arc::clone(&self.0);
        let write = move || {
            // Held while the file is written: the file never goes back to an older state.
            let mut letters = inner.letters.lock();
            let mut changed = letters.clone();
            edit(&mut changed);
            write_whole(&inner.path, &changed)
                .map_err(|source| failed(&inner.path, "written", source))?;
            *letters = changed;
            Ok(())
        };
        match tokio::task::spawn_blocking(write).await {
            Ok(result) => result,
            Err(crash) => Err(failed(&self.0.path, "written", io::Error::other(crash))),
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
        self.change(move |letters| drop(letters.insert(webhook.id.clone(), webhook))).await?;
        Ok(true)
    }

    async fn list(&self, limit: usize) -> Result<Vec<FailedWebhook>, DlqError> {
        Ok(latest(&self.0.letters.lock(), limit))
    }

    async fn delete(&self, id: &str) -> Result<(), DlqError> {
        let id = id.to_owned();
        self.change(move |letters| drop(letters.remove(&id))).await
    }
}
