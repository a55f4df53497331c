//! What all threads of a store have in common: whether it still works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use posthorn_store::{Error, Result};

use crate::error::{Failure, Scope};
use crate::files::Files;

/// The state of the whole store.
#[derive(Default)]
pub(crate) struct Shared {
    failed: AtomicBool,
    damaged: AtomicBool,
    /// Whether the files were found missing.
    gone: AtomicBool,
    files: Files,
    reason: Mutex<String>,
    /// Set before the queues are closed on purpose.
    pub(crate) closing: AtomicBool,
    /// Set when the threads should end, on purpose or because the store is dropped.
    pub(crate) ending: AtomicBool,
}

impl Shared {
    /// Of a store in these files.
    pub(crate) fn of(files: Files) -> Self {
        Self { files, ..Self::default() }
    }

    /// Refuses while the files are not where they were opened: what is written now would be gone
    /// with the process.
    pub(crate) fn check_files(&self) -> Result<()> {
        let there = self.files.are_there();
        let gone = !there;
        if self.gone.swap(gone, Ordering::AcqRel) != gone {
            if gone {
                tracing::error!(
                    path = %self.files.database().display(),
                    "the data directory or the database in it was removed or replaced; nothing is \
                     accepted until the same files are back: put them back, or stop and restore a \
                     backup"
                );
            } else {
                tracing::warn!("the files of the store are back");
            }
        }
        if there {
            return Ok(());
        }
        Err(Error::Unavailable { context: "the data directory is gone", source: None })
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Acquire)
    }

    /// Refuses at once when the store has failed.
    pub(crate) fn check(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) { Err(self.failure()) } else { Ok(()) }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// What every caller gets after the store has failed.
    pub(crate) fn failure(&self) -> Error {
        Error::fatal("it failed before and must be opened again", self.reason.lock().clone())
    }

    /// What the caller gets when a thread no longer answers.
    pub(crate) fn silence(&self) -> Error {
        if self.has_failed() {
            self.failure()
        } else if self.closing.load(Ordering::Acquire) {
            Error::Unavailable { context: "it is closed", source: None }
        } else {
            Error::Fatal { context: "a storage thread has ended", source: None }
        }
    }

    /// Turns a failure into what the caller is told, and remembers it when it ends the store.
    pub(crate) fn judge(&self, failure: Failure, doing: &'static str) -> Error {
        if failure.scope() == Scope::Store {
            if failure.is_damage() {
                self.damaged.store(true, Ordering::Release);
                tracing::error!(
                    "the database is damaged; stop, restore it from a backup, and look at the disk; \
                     `posthorn check store` shows what is damaged"
                );
            }
            self.fail(format!("{doing}: {failure}"));
        }
        failure.into_error(doing)
    }

    fn fail(&self, reason: String) {
        tracing::error!(error = %reason, "the store has failed and accepts nothing more");
        *self.reason.lock() = reason;
        self.failed.store(true, Ordering::Release);
    }
}

/// Held by every thread: when one panics, the store has failed.
pub(crate) struct Alarm(pub(crate) Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("a storage thread panicked".to_owned());
        }
    }
}
