//! The questions that requests have for the store, each waiting for its answer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{AgentId, ChannelId, PushMessage};
use posthorn_push::endpoint::Connection;
use posthorn_store::push::{ClearNode, Kept, PushStore, Route, RouteAsk};

use crate::gather::{Gather, Waiting};
use crate::log::chain;
use crate::meter::Meter;

/// The most questions in one batch, and batches at once.
const BATCH: usize = 256;
const ABREAST: usize = 2;
/// How long a sender waits for the store.
const PATIENCE: Duration = Duration::from_secs(10);

/// The questions, by kind.
pub(crate) struct RequestQueries {
    routes: Gather<Waiting<RouteAsk, Result<Option<Route>, ()>>>,
    messages: Gather<Waiting<PushMessage, Result<Kept, ()>>>,
    clears: Gather<Waiting<ClearNode, Result<bool, ()>>>,
}

impl RequestQueries {
    /// Begins; ends with the last of the askers.
    pub(crate) fn start(store: &Arc<dyn PushStore>) -> Self {
        Self {
            routes: gather(store, "look up agents", |store, batch| async move {
                store.routes(batch).await
            }),
            messages: gather(store, "store messages", |store, batch| async move {
                store.store_messages(batch).await
            }),
            clears: gather(store, "clear records", |store, batch| async move {
                store.clear_nodes(batch).await
            }),
        }
    }

    /// The way to a channel.
    pub(crate) async fn route_to(
        &self,
        agent: AgentId,
        channel: ChannelId,
    ) -> Result<Option<Route>, ()> {
        in_time(self.routes.ask(RouteAsk { agent, channel })).await
    }

    /// Stores a message, with those of others.
    pub(crate) async fn store(&self, message: PushMessage) -> Result<Kept, ()> {
        in_time(self.messages.ask(message)).await
    }

    /// Takes a connection off the record, if it is the one on it. When that fails, a later push does.
    pub(crate) async fn clear(&self, agent: AgentId, connection: Connection) {
        let Connection { node, connected_at } = connection;
        let _ = in_time(self.clears.ask(ClearNode { agent, node, connected_at })).await;
    }
}

/// An answer of the store, or none when it takes too long: whoever waits for it holds a connection.
async fn in_time<A>(answer: impl Future<Output = Option<Result<A, ()>>>) -> Result<A, ()> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(Some(answer)) => answer,
        Ok(None) | Err(_) => Err(()),
    }
}

/// Gathers the questions of requests for one verb of the store.
fn gather<Q, A, Fut>(
    store: &Arc<dyn PushStore>,
    what: &'static str,
    verb: fn(Arc<dyn PushStore>, Vec<Q>) -> Fut,
) -> Gather<Waiting<Q, Result<A, ()>>>
where
    Q: Send + 'static,
    A: Send + 'static,
    Fut: Future<Output = posthorn_store::Result<Vec<A>>> + Send + 'static,
{
    let store = Arc::clone(store);
    Gather::start(BATCH, ABREAST, move |batch: Vec<Waiting<Q, Result<A, ()>>>| {
        // Nobody must find done later what its sender was told has failed.
        let still = batch.into_iter().filter(|(_, waiting)| !waiting.is_closed());
        let (questions, waiting): (Vec<_>, Vec<_>) = still.unzip();
        let answers = verb(Arc::clone(&store), questions);
        async move {
            match answers.await {
                Ok(answers) => {
                    for (waiting, answer) in waiting.into_iter().zip(answers) {
                        let _ = waiting.send(Ok(answer));
                    }
                }
                Err(e) => {
                    tracing::warn!(error = %chain(&e), "the store could not {what}");
                    Meter::store_failed(what);
                    for waiting in waiting {
                        let _ = waiting.send(Err(()));
                    }
                }
            }
        }
    })
}
