//! Where an accepted message goes: to the agent's node, or to the store, so that no race loses it.
//!
//! The agent may connect, disconnect and move while this goes on. What keeps the message safe is the
//! order: it is stored first, then the record is read *again*, and the node that is on it now is told
//! to look. An agent that connects after that reads the store itself.
//!
//! Taking a node off the record is always conditional on the connection it was read with, so a newer
//! connection is never taken off by somebody who knows only the older.

use posthorn_domain::Timestamp;

use super::Refusal;

/// A connection on record. Node and time together name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The address of the node.
    pub node: String,
    /// When the agent connected to it.
    pub connected_at: Timestamp,
}

/// What to do next. Each step but the last has one method that takes what came of it and says what
/// to do after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Give the message to the agent's node.
    Push(Push),
    /// Take a connection off the record, if it still is the one on it.
    Clear(Clear),
    /// Store the message.
    Store(Store),
    /// Read the record again.
    LookAgain(LookAgain),
    /// Tell a node to look into the store.
    Hint(Hint),
    /// Answer the sender.
    Done(Outcome),
}

/// What the sender is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 201: the agent's node has it.
    Direct,
    /// 201: it is stored.
    Stored,
    /// 201: it was only worth something at once, and the agent was not there.
    Dropped,
    /// Something else.
    Refused(Refusal),
}

/// What a node said, or that it said nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAnswer {
    /// It has the message, or will look.
    Accepted,
    /// The agent is there, and can take no more now.
    Full,
    /// The agent is not there.
    NotConnected,
    /// It could not be asked, or did not answer in time.
    Unreachable,
}

/// What the store said about the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreAnswer {
    /// It is stored, or was, or a newer one with its topic is.
    Stored,
    /// The agent or the channel is gone.
    Gone,
    /// It failed.
    Failed,
}

/// What the record says after the message was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is no such agent any more.
    NoAgent,
    /// The agent is nowhere.
    NotConnected,
    /// The agent is, or was a moment ago, there.
    Connected(Connection),
    /// It could not be read. The message is stored all the same.
    Failed,
}

/// Begins with the record as it was read for the checks.
pub fn route(connection: Option<Connection>, ttl: u32) -> Step {
    match connection {
        Some(connection) => Step::Push(Push { connection, ttl }),
        None => keep(ttl),
    }
}

/// What is worthless later is not stored.
fn keep(ttl: u32) -> Step {
    if ttl == 0 { Step::Done(Outcome::Dropped) } else { Step::Store(Store(())) }
}

/// See [`Step::Push`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Where to.
    pub connection: Connection,
    ttl: u32,
}

impl Push {
    /// The node answered.
    pub fn answered(self, answer: NodeAnswer) -> Step {
        match answer {
            NodeAnswer::Accepted => Step::Done(Outcome::Direct),
            NodeAnswer::Full => keep(self.ttl),
            NodeAnswer::NotConnected | NodeAnswer::Unreachable => {
                Step::Clear(Clear { connection: self.connection, before: Some(self.ttl) })
            }
        }
    }
}

/// See [`Step::Clear`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clear {
    /// Which.
    pub connection: Connection,
    /// The TTL of a message that is not stored yet.
    before: Option<u32>,
}

impl Clear {
    /// It was cleared, or somebody else changed the record before, or it failed: the record is read
    /// again in any case, or was.
    pub fn done(self) -> Step {
        match self.before {
            Some(ttl) => keep(ttl),
            None => Step::Done(Outcome::Stored),
        }
    }
}

/// See [`Step::Store`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store(());

impl Store {
    /// The store answered.
    pub fn answered(self, answer: StoreAnswer) -> Step {
        match answer {
            StoreAnswer::Stored => Step::LookAgain(LookAgain(())),
            StoreAnswer::Gone => Step::Done(Outcome::Refused(Refusal::gone())),
            StoreAnswer::Failed => Step::Done(Outcome::Refused(Refusal::not_stored())),
        }
    }
}

/// See [`Step::LookAgain`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookAgain(());

impl LookAgain {
    /// The record was read.
    pub fn found(self, found: Found) -> Step {
        match found {
            Found::NoAgent => Step::Done(Outcome::Refused(Refusal::agent_vanished())),
            Found::Connected(connection) => Step::Hint(Hint { connection }),
            Found::NotConnected | Found::Failed => Step::Done(Outcome::Stored),
        }
    }
}

/// See [`Step::Hint`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Whom.
    pub connection: Connection,
}

impl Hint {
    /// The node answered. If the agent is not there, it reads the store when it connects.
    pub fn answered(self, answer: NodeAnswer) -> Step {
        match answer {
            NodeAnswer::Accepted | NodeAnswer::Full => Step::Done(Outcome::Stored),
            NodeAnswer::NotConnected | NodeAnswer::Unreachable => {
                Step::Clear(Clear { connection: self.connection, before: None })
            }
        }
    }
}

/// Whom to tell after a session's messages were saved at its end: the agent may have come back, and
/// read the store, before they were there. `found` is the record, read after the save. It may still
/// name the connection that ended; then its node finds nobody to tell, which does no harm.
pub fn hint_after_save(found: &Found) -> Option<&Connection> {
    match found {
        Found::Connected(connection) => Some(connection),
        Found::NoAgent | Found::NotConnected | Found::Failed => None,
    }
}
