//! What all threads of a store have in common: whether it still works.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use posthorn_store::{Error, Result};

use crate::error::{Failure, Scope};

/// The state of the whole store.
#[derive(Default)]
pub(crate) struct Shared {
    failed: AtomicBool,
    reason: Mutex<String>,
    /// Set before the queues are closed on purpose.
    pub(crate) closing: AtomicBool,
}

impl Shared {
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
            Error::fatal("a storage thread has ended", "it panicked; see the log".to_owned())
        }
    }

    /// Turns a failure into what the caller is told, and remembers it when it ends the store.
    pub(crate) fn judge(&self, failure: Failure, doing: &'static str) -> Error {
        if failure.scope() == Scope::Store {
            let text = match &failure {
                Failure::Sql(error) => format!("{doing}: {error}"),
                Failure::Corrupt(corrupt) => format!("{doing}: {corrupt}"),
                Failure::Refused(refusal) => format!("{doing}: {refusal}"),
            };
            tracing::error!(error = %text, "the store has failed and accepts nothing more");
            *self.reason.lock() = text;
            self.failed.store(true, Ordering::Release);
        }
        failure.into_error(doing)
    }
}
