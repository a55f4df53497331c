//! Removing what is over: messages past their time, and agents that were not seen for long.
//!
//! # How it works
//! Every so often, in bites, so that no transaction gets large and others come between two of them. A
//! round ends when nothing is left or after a number of bites; what is left then is for the next
//! one. Every node does this, and they share the work: a store passes over what another one removes
//! at the moment. Expired messages are never read, so nothing depends on when they are removed.
//!
//! # What it must not know
//! Whether agents are connected here: who is connected is seen.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{Clock, Span, Timestamp};
use posthorn_store::push::{Bite, PushStore};
use tokio_util::sync::CancellationToken;

use crate::log::chain;
use crate::metrics;

/// How much one transaction removes.
const BITE: usize = 500;
/// How many bites of each kind there are in a round.
const BITES_MAX: usize = 400;
/// Between two bites others get their turn.
const PAUSE: Duration = Duration::from_millis(20);

/// Removes what is over.
pub struct Upkeep {
    /// Where from.
    pub store: Arc<dyn PushStore>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Agents that were not seen for so long are removed.
    pub agent_ttl: Span,
    /// From the end of a round to the beginning of the next.
    pub every: Duration,
}

/// What a round removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Messages.
    pub messages: u64,
    /// Agents.
    pub agents: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Messages,
    Agents,
}

impl Upkeep {
    /// Goes on until it is stopped.
    pub async fn run(self, stop: CancellationToken) {
        let rounds = async {
            loop {
                tokio::time::sleep(self.every).await;
                let removed = self.round().await;
                if removed != Removed::default() {
                    let Removed { messages, agents } = removed;
                    tracing::debug!(messages, agents, "removed expired messages and agents");
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = rounds => {}
        }
    }

    /// One round. What fails is tried again in the next.
    pub async fn round(&self) -> Removed {
        let now = self.clock.now();
        Removed {
            messages: self.bites(Kind::Messages, now).await,
            agents: self.bites(Kind::Agents, now.minus(self.agent_ttl)).await,
        }
    }

    async fn bites(&self, kind: Kind, before: Timestamp) -> u64 {
        let (metric, operation) = match kind {
            Kind::Messages => (metrics::EXPIRED_MESSAGES, "expire_messages"),
            Kind::Agents => (metrics::EXPIRED_AGENTS, "expire_agents"),
        };
        let mut sum = 0;
        for _ in 0..BITES_MAX {
            let bite = match kind {
                Kind::Messages => self.store.expire_messages(before, BITE).await,
                Kind::Agents => self.store.expire_agents(before, BITE).await,
            };
            match bite {
                Ok(Bite { removed, more }) => {
                    let removed = u64::try_from(removed).unwrap_or(u64::MAX);
                    ::metrics::counter!(metric).increment(removed);
                    sum += removed;
                    if !more {
                        break;
                    }
                }
                Err(e) => {
                    ::metrics::counter!(metrics::STORE_ERRORS, "operation" => operation)
                        .increment(1);
                    tracing::warn!(
                        error = chain(&e),
                        operation,
                        "could not remove expired \
                                                                  messages and agents"
                    );
                    break;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        sum
    }
}
