//! The mailboxes of agents, for whoever delivers events to them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use posthorn_domain::{Problem, PushMessage};
use posthorn_engine::{
    Delivering, Looking, Opening, PushDelivery, PushLimits, PushOutcome, PushProblem,
};
use posthorn_push::endpoint::{Limits, Outcome};
use posthorn_sealing::endpoint_token::Endpoint;
use tokio::sync::watch;

use crate::node::Node;

/// How long somebody who names an endpoint waits for the node to start. Deliveries wait as long as an
/// attempt may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The mailboxes of a node's store. Made before the node, which needs what deliveries need; until it
/// is there, they wait for it.
#[derive(Clone)]
pub struct Mailboxes {
    node: Arc<watch::Sender<Option<Node>>>,
    limits: PushLimits,
}

impl Mailboxes {
    /// Mailboxes with the limits that senders have.
    pub fn new(limits: Limits) -> Self {
        let Limits { body_max: body_bytes_max, ttl_max } = limits;
        Self { node: Arc::default(), limits: PushLimits { body_bytes_max, ttl_max } }
    }

    /// From now on there is a node.
    pub fn serve(&self, node: Node) {
        self.node.send_replace(Some(node));
    }

    /// The node, as records of agents name it, with the sockets that are open there; nothing while it starts.
    pub fn sockets(&self) -> Option<(String, usize)> {
        let node = self.node.borrow();
        let node = node.as_ref()?;
        Some((node.0.options.node.clone(), node.0.sockets.load(Ordering::Relaxed)))
    }

    fn node(&self) -> impl Future<Output = Result<Node, Problem>> + Send + use<> {
        let mut node = self.node.subscribe();
        async move {
            let there = node.wait_for(Option::is_some).await.ok();
            there.and_then(|node| node.clone()).ok_or_else(|| "push did not start".into())
        }
    }

    fn node_soon(&self) -> impl Future<Output = Result<Node, PushProblem>> + Send + use<> {
        let node = tokio::time::timeout(PATIENCE, self.node());
        async move {
            let node = node.await.unwrap_or_else(|_| Err("push is still starting".into()));
            node.map_err(|problem| PushProblem::Unavailable(problem.into()))
        }
    }
}

impl PushDelivery for Mailboxes {
    fn limits(&self) -> PushLimits {
        self.limits
    }

    fn open(&self, endpoint: &str) -> Opening {
        let (node, endpoint) = (self.node_soon(), endpoint.to_owned());
        Box::pin(async move {
            let node = node.await?;
            node.open(&endpoint).ok_or_else(|| match node.is_here(&endpoint) {
                true => PushProblem::Altered,
                false => PushProblem::NotOurs,
            })
        })
    }

    fn look_up(&self, endpoint: Endpoint) -> Looking {
        let node = self.node_soon();
        Box::pin(async move {
            match node.await?.is_registered(endpoint.agent, endpoint.channel).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(PushProblem::Gone),
                Err(e) => Err(PushProblem::Unavailable(e.to_string())),
            }
        })
    }

    fn deliver(&self, message: PushMessage) -> Delivering {
        let node = self.node();
        Box::pin(async move {
            let node = match node.await {
                Ok(node) => node,
                Err(problem) => return PushOutcome::Unavailable(problem.into()),
            };
            match node.keep(&message).await {
                Outcome::Stored => PushOutcome::Kept,
                Outcome::Refused(refusal) if refusal.status() == 410 => PushOutcome::Gone,
                Outcome::Refused(refusal) => PushOutcome::Unavailable(refusal.message().to_owned()),
                // Whoever keeps does neither; if it did, it would not be in the store.
                Outcome::Direct | Outcome::Dropped => {
                    PushOutcome::Unavailable("the message was not stored".to_owned())
                }
            }
        })
    }
}
