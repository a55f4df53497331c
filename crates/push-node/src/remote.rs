//! The way to other nodes, as this node sees it.

use async_trait::async_trait;
use posthorn_domain::{AgentId, PushMessage};
use posthorn_push::endpoint::NodeAnswer;

use crate::nodes::Nodes;

/// Calls to other nodes, by the address on the router record.
#[async_trait]
pub trait Remote: Send + Sync + 'static {
    /// Gives a message to the node its agent is connected to.
    async fn push(&self, node: &str, message: &PushMessage) -> NodeAnswer;

    /// Tells a node that something was stored for an agent.
    async fn hint(&self, node: &str, agent: AgentId) -> NodeAnswer;
}

#[async_trait]
impl Remote for Nodes {
    async fn push(&self, node: &str, message: &PushMessage) -> NodeAnswer {
        Nodes::push(self, node, message).await
    }

    async fn hint(&self, node: &str, agent: AgentId) -> NodeAnswer {
        Nodes::hint(self, node, agent).await
    }
}
