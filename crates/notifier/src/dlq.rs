//! Dead letters of the in-memory notifier: nowhere, in memory, or in a JSON file.

mod file;

use std::collections::BTreeMap;

use async_trait::async_trait;
use parking_lot::Mutex;
use posthorn_domain::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use file::FileDlqStore;

/// What stands for the value of a header that may be a secret.
pub const REDACTED: &str = "[redacted]";

/// A webhook that was given up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedWebhook {
    /// The delivery's id, as receivers saw it.
    pub id: String,
    /// Where it should have gone.
    pub url: String,
    /// Exactly what was sent.
    pub payload: Box<RawValue>,
    /// The headers, without the values of those that may be secrets.
    pub headers: BTreeMap<String, String>,
    /// The family of the event: `payment` or `refund`.
    pub event_type: String,
    /// How often it was tried.
    pub attempts: u32,
    /// What the last attempt came to, in one line.
    pub last_error: String,
    /// When the last attempt began.
    pub last_attempt: Timestamp,
    /// When the event was taken over.
    pub created_at: Timestamp,
}

/// Why dead letters cannot be kept or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DlqError {
    /// The file cannot be used.
    #[error("the dead letters in {path} cannot be {what}")]
    File {
        /// Which.
        path: String,
        /// Read or written.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another process has it.
    #[error("the dead letters in {path} are in use by another process; choose another file")]
    InUse {
        /// Which.
        path: String,
    },
    /// There are too many already.
    #[error("the limit of {max} dead letters is reached; deliver or delete some")]
    Full {
        /// As many as there may be.
        max: usize,
    },
    /// The file holds something else.
    #[error("{path} is not a file of dead letters; move it away, or choose another file")]
    Contents {
        /// Which.
        path: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// Where webhooks go that were given up.
#[async_trait]
pub trait DlqStore: Send + Sync + 'static {
    /// Keeps one; one of the same id is replaced. `Ok(false)` when this store keeps nothing.
    async fn save(&self, webhook: FailedWebhook) -> Result<bool, DlqError>;

    /// Up to `limit`, the last given up first.
    async fn list(&self, limit: usize) -> Result<Vec<FailedWebhook>, DlqError>;

    /// Removes one; fine when it is not there.
    async fn delete(&self, id: &str) -> Result<(), DlqError>;
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopDlqStore;

#[async_trait]
impl DlqStore for NoopDlqStore {
    async fn save(&self, _webhook: FailedWebhook) -> Result<bool, DlqError> {
        Ok(false)
    }

    async fn list(&self, _limit: usize) -> Result<Vec<FailedWebhook>, DlqError> {
        Ok(Vec::new())
    }

    async fn delete(&self, _id: &str) -> Result<(), DlqError> {
        Ok(())
    }
}

/// By id.
type Letters = BTreeMap<String, FailedWebhook>;

fn latest(letters: &Letters, limit: usize) -> Vec<FailedWebhook> {
    let mut all: Vec<&FailedWebhook> = letters.values().collect();
    all.sort_by(|a, b| (b.last_attempt, &b.id).cmp(&(a.last_attempt, &a.id)));
    all.into_iter().take(limit).cloned().collect()
}

/// Keeps them in memory: for tests, and for programs that look at them while they run.
#[derive(Debug, Default)]
pub struct MemoryDlqStore(Mutex<Letters>);

#[async_trait]
impl DlqStore for MemoryDlqStore {
    async fn save(&self, webhook: FailedWebhook) -> Result<bool, DlqError> {
        self.0.lock().insert(webhook.id.clone(), webhook);
        Ok(true)
    }

    async fn list(&self, limit: usize) -> Result<Vec<FailedWebhook>, DlqError> {
        Ok(latest(&self.0.lock(), limit))
    }

    async fn delete(&self, id: &str) -> Result<(), DlqError> {
        self.0.lock().remove(id);
        Ok(())
    }
}
