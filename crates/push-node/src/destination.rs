//! The mailboxes of agents, for whoever delivers events to them.

use std::sync::{Arc, OnceLock};

use posthorn_domain::PushMessage;
use posthorn_engine::{Delivering, Opening, PushDelivery, PushOutcome, PushProblem};
use posthorn_push::endpoint::Outcome;

use crate::node::Node;

/// What is said before the node has started.
const STARTING: &str = "push is still starting";

/// The mailboxes of a node's store. Made before the node, which needs what deliveries need.
#[derive(Clone, Default)]
pub struct Mailboxes(Arc<OnceLock<Node>>);

impl Mailboxes {
    /// From now on there is a node. The first one stays.
    pub fn serve(&self, node: Node) {
        let _ = self.0.set(node);
    }
}

impl PushDelivery for Mailboxes {
    fn open(&self, endpoint: &str) -> Opening {
        let Some(node) = self.0.get().cloned() else {
            return Box::pin(async { Err(PushProblem::Unavailable(STARTING.to_owned())) });
        };
        let opened = node.open(endpoint);
        Box::pin(async move {
            let opened = opened.ok_or(PushProblem::NotOurs)?;
            match node.is_registered(opened.agent, opened.channel).await {
                Ok(true) => Ok(opened),
                Ok(false) => Err(PushProblem::Gone),
                Err(e) => Err(PushProblem::Unavailable(e.to_string())),
            }
        })
    }

    fn deliver(&self, message: PushMessage) -> Delivering {
        let Some(node) = self.0.get().cloned() else {
            return Box::pin(async { PushOutcome::Unavailable(STARTING.to_owned()) });
        };
        Box::pin(async move {
            match node.keep(&message).await {
                Outcome::Direct | Outcome::Stored | Outcome::Dropped => PushOutcome::Kept,
                Outcome::Refused(refusal) if refusal.status() == 410 => PushOutcome::Gone,
                Outcome::Refused(refusal) => PushOutcome::Unavailable(refusal.message().to_owned()),
            }
        })
    }
}
