//! Writes outcomes in batches. While one batch commits, the next one forms.
//!
//! A batch that fails for a passing reason is tried again until it is written or its shards are
//! gone; repeating is harmless by contract. The queue is bounded by construction: the scheduler
//! starts no attempt while too many outcomes wait here.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::DeliveryId;
use posthorn_store::{Record, Recorded, Store};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{error, warn};

use crate::error::chain;
use crate::metrics;

/// Outcomes in one transaction at most.
const BATCH_MAX: usize = 2_000;
/// First and longest wait after a failed write.
const RETRY_WAITS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];

/// What became of one record.
pub(crate) struct Written {
    pub(crate) delivery: DeliveryId,
    pub(crate) record: Record,
    pub(crate) answer: Recorded,
}

/// Runs until the queue is closed and everything in it is written.
///
/// Returns early, with what could not be written left pending in the store, when the store fails
/// for good.
pub(crate) async fn run(
    store: Arc<dyn Store>,
    pipeline: usize,
    mut queue: mpsc::UnboundedReceiver<Vec<Record>>,
    answers: mpsc::UnboundedSender<Vec<Written>>,
    failed: mpsc::UnboundedSender<String>,
) {
    let mut under_way: JoinSet<Result<Vec<Written>, String>> = JoinSet::new();
    let mut waiting: Vec<Record> = Vec::new();
    let mut open = true;
    while open || !waiting.is_empty() || !under_way.is_empty() {
        let room = under_way.len() < pipeline.max(1);
        if room && !waiting.is_empty() {
            let rest = waiting.split_off(waiting.len().min(BATCH_MAX));
            let batch = std::mem::replace(&mut waiting, rest);
            ::metrics::histogram!(metrics::RECORD_BATCH).record(batch.len() as f64);
            under_way.spawn(write(Arc::clone(&store), batch));
            continue;
        }
        tokio::select! {
            biased;
            Some(result) = under_way.join_next() => match result {
                Ok(Ok(written)) => drop(answers.send(written)),
                Ok(Err(reason)) => {
                    drop(failed.send(reason));
                    return;
                }
                Err(crash) => {
                    drop(failed.send(format!("the recorder crashed: {crash}")));
                    return;
                }
            },
            more = queue.recv(), if open => match more {
                Some(records) => {
                    waiting.extend(records);
                    // Take what else is there before a batch leaves.
                    while let Ok(records) = queue.try_recv() {
                        waiting.extend(records);
                    }
                }
                None => open = false,
            },
        }
    }
}

async fn write(store: Arc<dyn Store>, batch: Vec<Record>) -> Result<Vec<Written>, String> {
    let mut wait = RETRY_WAITS[0];
    loop {
        match store.record(batch.clone()).await {
            Ok(answers) => {
                let fenced = answers.iter().filter(|a| matches!(a, Recorded::Fenced)).count();
                if fenced > 0 {
                    ::metrics::counter!(metrics::FENCED).increment(fenced as u64);
                }
                let pairs = batch.into_iter().zip(answers);
                return Ok(pairs
                    .map(|(record, answer)| Written { delivery: record.delivery, record, answer })
                    .collect());
            }
            Err(e) if e.is_transient() => {
                ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "record").increment(1);
                warn!(error = %chain(&e), outcomes = batch.len(), "outcomes could not be written; trying again");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(RETRY_WAITS[1]);
            }
            Err(e) => {
                error!(error = %chain(&e), "outcomes can no longer be written");
                return Err(chain(&e));
            }
        }
    }
}
