//! The storage contract of Web Push: agents, their channels, and the messages kept for them.
//!
//! # What it is for
//! [`PushStore`] is a contract of its own beside [`Store`](crate::Store): the two share no table, and
//! whoever drives sockets needs nothing of the other. Its behaviour is defined by the doc comments and
//! by `posthorn-conformance`, which every implementation runs.
//!
//! # Theory of operation
//! * **Durable means durable**, as everywhere: a write that returned `Ok` survives `kill -9`.
//! * **A batch is one transaction**, in which each item is judged by itself, in batch order, as if it
//!   came alone; replies come in the order of the batch. Agents and channels that are not there are
//!   answers, not errors.
//! * **One agent, one order.** All writes about one agent happen one after the other, also from
//!   several nodes. Each stored message gets a [`MessageSeq`] that no message had before or will have
//!   again; among the messages of one agent a greater one was committed later. So a reader that goes
//!   on after the last sequences it saw, with topics and without, misses nothing.
//! * **Time is handed in.** A store has no clock of its own here: expiry is judged by the `now` of the
//!   caller.
//! * **Repeating is harmless.** Every verb may be called again with the same values after an unknown
//!   outcome.
//!
//! # What it must not know
//! Sockets, endpoints, tokens, limits and who decides about them.

use async_trait::async_trait;
use posthorn_domain::push::KeyHash;
use posthorn_domain::{
    AgentId, ChannelId, MessageId, MessageSeq, PushMessage, StoredMessage, Timestamp,
};

use crate::Result;

/// How many messages of agents one call of [`PushStore::expire_agents`] removes at most: others wait
/// for the end of its transaction.
pub const AGENT_MESSAGES_MAX: usize = 1_000;

/// What the push side may ask of a store.
#[async_trait]
pub trait PushStore: Send + Sync + 'static {
    // ---- agents --------------------------------------------------------------------------------

    /// The way to a channel, for every push: the agent's router record and the channel, if it is
    /// registered. `None` where there is no such agent. Cost does not grow with the number of
    /// channels.
    async fn routes(&self, asks: Vec<RouteAsk>) -> Result<Vec<Option<Route>>>;

    /// Agents with all their channels. `None` for those that do not exist.
    async fn agents(&self, asks: Vec<AgentId>) -> Result<Vec<Option<Agent>>>;

    /// Writes down that agents are connected to a node, each only when `at` is later than the
    /// `connected_at` on record; the node that was there before is told in the reply. With an equal
    /// `at` it is the same connection once more, a repeat or a renewal, and succeeds when the record
    /// has the same node or none: so a node that was taken off by mistake is put back. `seen_at` moves
    /// to `seen`, never back. An agent that does not exist is not made.
    async fn connect_agents(&self, batch: Vec<Connect>) -> Result<Vec<Connected>>;

    /// Takes the node off the record, only where it is still this node with this `connected_at`.
    /// `connected_at` stays, so that an older connection cannot come back. Replies whether there was
    /// something to take off.
    async fn clear_nodes(&self, batch: Vec<ClearNode>) -> Result<Vec<bool>>;

    /// Removes agents with their channels and messages. Replies whether there was one. An id may come
    /// back to life by [`PushStore::register_channels`], without anything of its former life: a store
    /// may leave messages that nobody can reach any more to [`PushStore::expire_agents`].
    async fn drop_agents(&self, agents: Vec<AgentId>) -> Result<Vec<bool>>;

    // ---- channels ------------------------------------------------------------------------------

    /// Registers channels. When the agent does not exist and the item carries its
    /// [`birth`](Register::birth), the agent is made in the same transaction; when it exists, the
    /// birth is ignored. A channel that is there already gets the new key.
    async fn register_channels(&self, batch: Vec<Register>) -> Result<Vec<Registered>>;

    /// Removes channels and replies whether they were there. Messages that are stored for them stay
    /// and are read like others. The agent stays, even without channels.
    async fn unregister_channels(&self, batch: Vec<(AgentId, ChannelId)>) -> Result<Vec<bool>>;

    // ---- messages ------------------------------------------------------------------------------

    /// Stores messages of many senders, or those that a connection leaves behind.
    ///
    /// Checks are made in this order: agent, channel, message id (unique within the agent), topic. Of
    /// two messages of one agent with the same channel and topic only the newer is kept, by
    /// `received_at`, and the one that is stored later when these are equal: the older is removed in
    /// the same transaction, or is not stored at all when it comes late. A message that replaces
    /// another has a new sequence.
    ///
    /// Messages that have expired are stored like others and never read. Meant for bodies up to
    /// 8 KiB.
    async fn store_messages(&self, batch: Vec<PushMessage>) -> Result<Vec<Kept>>;

    /// For each ask: first the messages of an agent with a topic and a sequence above `after_topics`,
    /// then those without a topic and with a sequence above `after`, each in the order of their
    /// sequences, together up to `limit`, none of them expired at `now`. Nothing for agents that do not
    /// exist.
    ///
    /// Cost does not grow with what is before the two sequences. Messages with a topic that were read
    /// and not removed are passed over, once, by who reads those without.
    async fn messages(&self, asks: Vec<MessagesAsk>) -> Result<Vec<Vec<StoredMessage>>>;

    /// How many messages of each agent have not expired at `now`, or `at_most` where there are more:
    /// cost does not grow with what is beyond that.
    async fn count_messages(
        &self,
        agents: Vec<AgentId>,
        now: Timestamp,
        at_most: u64,
    ) -> Result<Vec<u64>>;

    /// Removes messages by their sequence: what was acknowledged never returns. Replies whether each
    /// was there. A sequence of another agent is not there.
    async fn ack_messages(&self, batch: Vec<(AgentId, MessageSeq)>) -> Result<Vec<bool>>;

    /// Removes messages by their id, on behalf of their senders. Replies whether each was there.
    async fn delete_messages(&self, batch: Vec<(AgentId, MessageId)>) -> Result<Vec<bool>>;

    /// Leaves of each agent's messages that have not expired at `now` only the newest `keep`, by
    /// sequence. Replies how many were removed.
    async fn trim_messages(&self, batch: Vec<Trim>, now: Timestamp) -> Result<Vec<u64>>;

    // ---- figures -------------------------------------------------------------------------------

    /// How much there is, for people: agents, those of each node, and messages. Looks at no more than `at_most` rows of
    /// each kind, and says whether there were more. Messages that nobody can get any more count until they are removed.
    async fn census(&self, at_most: u64) -> Result<Census>;

    // ---- upkeep --------------------------------------------------------------------------------

    /// Removes up to `limit` messages that have expired at `now`, the longest expired first. May pass
    /// over what somebody else is writing to at the moment.
    async fn expire_messages(&self, now: Timestamp, limit: usize) -> Result<Bite>;

    /// Removes up to `limit` agents that were last seen before `before`, with their channels and
    /// messages, the longest unseen first. May pass over what somebody else is writing to at the
    /// moment; an agent that connects meanwhile stays.
    ///
    /// Removes no more than [`AGENT_MESSAGES_MAX`] messages on the way, those of dropped agents
    /// included. Where there are more, it says so, and the rest goes with the next calls: an agent may
    /// lose its oldest messages in a call and be removed by a later one.
    async fn expire_agents(&self, before: Timestamp, limit: usize) -> Result<Bite>;
}

/// How much of Web Push there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Agents, connected or not.
    pub agents: u64,
    /// How many of them are on record as connected, by node.
    pub connected: Vec<(String, u64)>,
    /// Messages that wait.
    pub messages: u64,
    /// Whether there is more of anything than was looked at.
    pub more: bool,
}

impl Census {
    /// The same of a store that has looked at one row more than it should, to see whether there is one.
    pub fn bounded(mut self, at_most: u64) -> Self {
        self.more = self.agents > at_most || self.messages > at_most;
        self.agents = self.agents.min(at_most);
        self.messages = self.messages.min(at_most);
        self
    }
}

/// Where an agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Router {
    /// The address of the node it is connected to; `None` when nobody knows of a connection.
    pub node: Option<String>,
    /// When it connected last. Together with the node it names one connection.
    pub connected_at: Timestamp,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last known to be connected. Who is not seen for long is stale.
    pub seen_at: Timestamp,
}

/// A channel of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its id, unique within the agent.
    pub id: ChannelId,
    /// The key it is bound to.
    pub key: Option<KeyHash>,
}

/// An agent with everything but its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its id.
    pub id: AgentId,
    /// Where it is.
    pub router: Router,
    /// Its channels, by id.
    pub channels: Vec<Channel>,
}

/// A question for the way to a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteAsk {
    /// Whose channel.
    pub agent: AgentId,
    /// Which.
    pub channel: ChannelId,
}

/// The way to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where the agent is.
    pub router: Router,
    /// The channel; `None` when it is not registered.
    pub channel: Option<Channel>,
}

/// A connection that an agent made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Who.
    pub agent: AgentId,
    /// To which node.
    pub node: String,
    /// When the connection was made.
    pub at: Timestamp,
    /// When it was last known to be there: the same moment, or later for a renewal.
    pub seen: Timestamp,
}

/// What became of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connected {
    /// It is on record.
    Here {
        /// The agent as it is now.
        agent: Agent,
        /// The node that was on record before.
        before: Option<String>,
    },
    /// There is a later one; nothing was changed.
    Superseded {
        /// Where the agent is.
        router: Router,
    },
    /// There is no such agent.
    Unknown,
}

/// A connection that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClearNode {
    /// Whose.
    pub agent: AgentId,
    /// The node it was on.
    pub node: String,
    /// When it was made.
    pub connected_at: Timestamp,
}

/// A channel to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Whose.
    pub agent: AgentId,
    /// Which.
    pub channel: ChannelId,
    /// The key it is bound to.
    pub key: Option<KeyHash>,
    /// When.
    pub at: Timestamp,
    /// The connection of an agent that is made by this, its first channel. Without it, an agent that
    /// was dropped meanwhile stays gone.
    pub birth: Option<Birth>,
}

/// The connection of an agent that is not written down yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birth {
    /// The node it is connected to.
    pub node: String,
    /// Since when.
    pub connected_at: Timestamp,
}

/// What became of a channel to be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// It is registered.
    New,
    /// It was registered before; it has the new key.
    Again,
    /// There is no such agent.
    AgentGone,
}

/// What became of a message to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is stored.
    Stored(MessageSeq),
    /// It was stored before and is still there; nothing was changed.
    Again(MessageSeq),
    /// A newer message with its topic is stored; nothing was changed.
    Outdated,
    /// There is no such agent.
    AgentGone,
    /// The agent has no such channel.
    ChannelGone,
}

/// A question for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagesAsk {
    /// Whose.
    pub agent: AgentId,
    /// Of those with a topic only those after this one; [`MessageSeq::START`] is before all.
    pub after_topics: MessageSeq,
    /// Of those without a topic only those after this one.
    pub after: MessageSeq,
    /// The moment at which they must not have expired.
    pub now: Timestamp,
    /// How many at most.
    pub limit: usize,
}

/// A cut through an agent's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// Whose.
    pub agent: AgentId,
    /// How many may stay.
    pub keep: usize,
}

/// What a bite of upkeep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bite {
    /// How many.
    pub removed: usize,
    /// Whether there may be more.
    pub more: bool,
}
