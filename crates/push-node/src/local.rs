//! The agents of this node, as other nodes and endpoints see them.

use posthorn_domain::{AgentId, PushMessage};
use posthorn_push::session::Pushed;

/// The agents that are connected here.
pub trait Local: Send + Sync + 'static {
    /// Gives a message to its agent. It is sent, or not taken at all, by the time this returns.
    fn push(&self, message: PushMessage) -> Pushed;

    /// Tells an agent's session that something was stored for it. False when it is not here.
    fn hint(&self, agent: AgentId) -> bool;

    /// How many sockets are open.
    fn connections(&self) -> usize;
}
