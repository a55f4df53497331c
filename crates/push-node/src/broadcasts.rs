//! Where the table of broadcasts comes from: the configuration, a URL that is asked now and then, or
//! both.
//!
//! # How it works
//! A redirect is followed when it stays with its scheme, host and port, a few times.
//! There is one table for all sessions, behind a pointer that is swapped when something changed.
//! Whatever is wrong with an answer, the table stays as it was; also at start, when that is what the
//! configuration says. An answer counts as a whole or not at all.
//!
//! # What it must not know
//! Who follows a broadcast, and what its versions mean.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Method};
use posthorn_domain::limits::RESPONSE_KEPT_BYTES_MAX;
use posthorn_domain::{AttemptOutcome, TenantId};
use posthorn_egress::{Deadlines, Egress, PoolKey, Request, Sent, Target, UrlRefusal};
use posthorn_push::session::{BroadcastError, Broadcasts};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::log::chain;
use crate::metrics;

/// How often the table is asked for when nothing else is said.
pub const INTERVAL: Duration = Duration::from_secs(30);

/// So many redirects of one table are followed: a few moves of a file, and no ring.
const REDIRECTS_MAX: usize = 5;

/// The table that all sessions of a node read.
pub type Table = Arc<ArcSwap<Broadcasts>>;

/// The table the configuration gives, by id.
pub fn table(fixed: &BTreeMap<String, String>) -> Result<Table, BroadcastError> {
    let mut table = Broadcasts::default();
    for (id, version) in fixed {
        table.set(id, version)?;
    }
    Ok(Arc::new(ArcSwap::from_pointee(table)))
}

/// Keeps a table as a URL has it: `{"broadcasts":{"id":"version"}}`, of less than 16 KiB.
pub struct Poller {
    table: Table,
    egress: Egress,
    target: Arc<Target>,
    interval: Duration,
}

#[derive(Deserialize)]
struct Answer {
    broadcasts: BTreeMap<String, String>,
}

/// Why the table could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PollError {
    /// No answer.
    #[error("{0}")]
    NoAnswer(String),
    /// Not a 200.
    #[error("the answer was {0}")]
    Status(u16),
    /// A redirect to somebody else.
    #[error(
        "the answer is a redirect to another origin, or to an address that egress does not allow; \
         only redirects to the same origin are followed"
    )]
    Elsewhere,
    /// Redirects without end.
    #[error("more than {REDIRECTS_MAX} redirects in a row")]
    Redirects,
    /// More than is read.
    #[error("the answer has {RESPONSE_KEPT_BYTES_MAX} bytes or more")]
    TooLarge,
    /// Not a table.
    #[error("the answer is not a table of broadcasts")]
    Json(#[source] serde_json::Error),
    /// A table that cannot be ours.
    #[error("the table cannot be used")]
    Table(#[from] BroadcastError),
}

impl Poller {
    /// Reads the table at `url`, which is judged by the rules of `egress`.
    pub fn new(
        table: Table,
        egress: Egress,
        url: &str,
        interval: Duration,
    ) -> Result<Self, UrlRefusal> {
        let target = Arc::new(egress.guard().check_url(url)?);
        Ok(Self { table, egress, target, interval })
    }

    /// Reads the table at once and then again and again, until it is stopped.
    pub async fn run(self, stop: CancellationToken) {
        let mut well = true;
        loop {
            let polled = tokio::select! {
                () = stop.cancelled() => return,
                polled = self.poll() => polled,
            };
            let outcome = if polled.is_ok() { "ok" } else { "failed" };
            ::metrics::counter!(metrics::BROADCAST_POLLS, "outcome" => outcome).increment(1);
            // One line for each change: a server that stays away is not news.
            match &polled {
                Err(e) if well => {
                    tracing::warn!(
                        error = chain(e),
                        url = self.target.as_str(),
                        "broadcasts cannot be read; the last ones stay in use"
                    );
                }
                Ok(()) if !well => {
                    tracing::info!(url = self.target.as_str(), "broadcasts can be read again");
                }
                _ => {}
            }
            well = polled.is_ok();
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.interval) => {}
            }
        }
    }

    /// Reads the table once.
    pub async fn poll(&self) -> Result<(), PollError> {
        let mut target = Arc::clone(&self.target);
        let mut followed = 0;
        let answer = loop {
            let sent = self.ask(Arc::clone(&target)).await;
            let answer = match sent.outcome {
                AttemptOutcome::Answered(answer) => answer,
                AttemptOutcome::Failed { code, detail } => {
                    return Err(PollError::NoAnswer(format!("{}: {detail}", code.as_str())));
                }
            };
            let Some(location) = sent.location.filter(|_| is_redirect(answer.status)) else {
                break answer;
            };
            if followed == REDIRECTS_MAX {
                return Err(PollError::Redirects);
            }
            followed += 1;
            let next = self.egress.redirect(&target, &location).ok_or(PollError::Elsewhere)?;
            target = Arc::new(next);
        };
        if answer.status != 200 {
            return Err(PollError::Status(answer.status));
        }
        // What is kept of a longer body could by chance be a whole answer.
        if answer.body.len() >= RESPONSE_KEPT_BYTES_MAX {
            return Err(PollError::TooLarge);
        }
        let answer: Answer = serde_json::from_slice(&answer.body).map_err(PollError::Json)?;
        self.take(&answer.broadcasts)
    }

    async fn ask(&self, target: Arc<Target>) -> Sent {
        let mut headers = HeaderMap::with_capacity(1);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let request = Request {
            tenant: TenantId::DEFAULT,
            pool: PoolKey::new(*b"push broadcasts\0"),
            target,
            tls: None,
            proxy: None,
            vet_always: false,
            path_and_query: None,
            method: Method::GET,
            headers,
            body: Bytes::new(),
            deadlines: Deadlines::default(),
        };
        self.egress.send(request).await
    }

    fn take(&self, broadcasts: &BTreeMap<String, String>) -> Result<(), PollError> {
        let mut table = Broadcasts::clone(&self.table.load());
        let mut changed = false;
        for (id, version) in broadcasts {
            changed |= table.set(id, version)?;
        }
        if changed {
            self.table.store(Arc::new(table));
        }
        Ok(())
    }
}

/// The redirects that a GET may follow. Others mean something else, or need a choice.
fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}
