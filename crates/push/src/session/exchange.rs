//! What goes between a session and its driver.

use bytes::Bytes;
use posthorn_domain::{
    AgentId, ChannelId, MessageSeq, PushMessage, Span, StoredMessage, Timestamp,
};

use crate::protocol::Close;

/// What the driver has to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a text.
    Send(String),
    /// Send an empty ping frame.
    Ping,
    /// Send a close frame and end the connection.
    Close(Close),
    /// Let this session be found under the agent on this node; one that was there before is told
    /// so ([`replaced`](super::Session::replaced)).
    Enter(AgentId),
    /// Let it not be found any more, if it still is the one that is found.
    Leave(AgentId),
    /// Ask the store.
    Ask(Ask),
    /// Call [`tick`](super::Session::tick) at this time; replaces what was said before.
    WakeAt(Timestamp),
    /// Store these, each once, in this order, with their ids.
    Save(Vec<PushMessage>),
    /// Nothing follows; this is worth a line in the log.
    Ended(Summary),
}

/// What is asked of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Write down that the agent is connected here, if it exists and has no later connection.
    Connect {
        /// Who.
        agent: AgentId,
        /// Since when. Names this connection together with the node.
        connected_at: Timestamp,
        /// Whether to count its messages, after it was written down.
        count: bool,
    },
    /// Write down that the agent is still connected here, and put the connection back where
    /// somebody took it off the record because this node did not answer in time.
    Renew {
        /// Who.
        agent: AgentId,
        /// Which connection.
        connected_at: Timestamp,
    },
    /// Leave only the newest messages of the agent.
    Trim {
        /// Whose.
        agent: AgentId,
        /// How many may stay.
        keep: u32,
    },
    /// Read messages: first those with a topic, then those without, each in their order, together
    /// at most `limit`, none of them expired. A store that has one order for both reads after the
    /// larger of the two.
    Read {
        /// Whose.
        agent: AgentId,
        /// Only those with a topic after this one.
        after_topics: MessageSeq,
        /// Only those without a topic after this one.
        after: MessageSeq,
        /// How many at most.
        limit: usize,
    },
    /// Remove acknowledged messages.
    Forget {
        /// Whose.
        agent: AgentId,
        /// Which.
        seqs: Vec<MessageSeq>,
    },
    /// Register a channel and make its endpoint.
    Register {
        /// Whose.
        agent: AgentId,
        /// Which.
        channel: ChannelId,
        /// The public key, decoded, of the only sender that may use it.
        key: Option<Bytes>,
        /// The agent may not exist yet; then it is made, connected here since this time.
        birth: Option<Timestamp>,
    },
    /// Remove a channel.
    Unregister {
        /// Whose.
        agent: AgentId,
        /// Which.
        channel: ChannelId,
    },
    /// Remove the agent with everything it has.
    DropAgent(AgentId),
}

/// What the store said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Ask::Connect`]: it is written down.
    Connected {
        /// How many messages wait, if that was asked for.
        stored: u64,
        /// The record is of an older kind: let the agent get what waits for it, then drop it.
        outdated: bool,
    },
    /// To [`Ask::Renew`]: it is written down.
    Renewed,
    /// To [`Ask::Connect`] and [`Ask::Renew`]: there is no such agent.
    Unknown,
    /// To [`Ask::Connect`] and [`Ask::Renew`]: there is a later connection.
    AlreadyConnected,
    /// The answer to [`Ask::Trim`].
    Trimmed,
    /// The answer to [`Ask::Read`].
    Read(Vec<StoredMessage>),
    /// The answer to [`Ask::Forget`].
    Forgotten,
    /// The channel is registered.
    Registered {
        /// Which.
        channel: ChannelId,
        /// Its endpoint, a URL.
        endpoint: String,
    },
    /// The channel is not registered, for no fault of the agent.
    NotRegistered(ChannelId),
    /// The channel is removed, or never was there.
    Unregistered(ChannelId),
    /// The channel is not removed, for no fault of the agent.
    NotUnregistered(ChannelId),
    /// The answer to [`Ask::DropAgent`].
    Dropped,
    /// The agent was dropped by somebody else.
    AgentGone,
    /// The store failed, in anything but a register or unregister.
    Failed,
}

/// What became of a message that was pushed to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is the session's: sent, and kept until it is acknowledged or saved.
    Accepted,
    /// Store it; the session will look there.
    Full,
    /// There is no agent here to send it to.
    NotConnected,
}

/// What one connection did, for one line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Whose it was, if it came that far.
    pub agent: Option<AgentId>,
    /// For how long it was there.
    pub lived: Span,
    /// How it ended.
    pub close: Close,
    /// What was counted.
    pub counters: Counters,
}

/// What is counted in a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages sent without the store.
    pub direct_sent: u32,
    /// Of these, acknowledged.
    pub direct_acked: u32,
    /// Of these, stored at the end.
    pub direct_saved: u32,
    /// Pushes refused because the window was full.
    pub direct_refused: u32,
    /// Messages sent from the store.
    pub stored_sent: u32,
    /// Of these, acknowledged.
    pub stored_acked: u32,
    /// Messages that expired on their way here.
    pub expired: u32,
    /// Acknowledged, and could not be decrypted (code 101).
    pub undecrypted: u32,
    /// Acknowledged, and not delivered to anybody (code 102).
    pub undelivered: u32,
    /// `nack`s.
    pub nacks: u32,
    /// `register`s that succeeded.
    pub registers: u32,
    /// `unregister`s that succeeded.
    pub unregisters: u32,
}
