//! The knobs of a node.

use std::time::Duration;

use posthorn_push::{endpoint, session};

/// What this process does for Web Push. The parts may be in one process or apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Agents connect here.
    pub connection: bool,
    /// Senders post here.
    pub endpoint: bool,
}

/// How a message that could go straight to a socket is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// In memory until it is acknowledged or the connection ends; the store is not touched.
    #[default]
    Memory,
    /// In the store, before the sender is answered: it survives even the death of the agent's node.
    Stored,
}

/// How a node behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it does.
    pub roles: Roles,
    /// What stands in front of `/wpush/…`, without a slash at its end.
    pub endpoint_url: String,
    /// This node on router records: the base URL of its internal listener, or any other text where
    /// there is no second node.
    pub node: String,
    /// How sessions behave.
    pub session: session::Options,
    /// How much a sender may ask for.
    pub limits: endpoint::Limits,
    /// How messages for connected agents are kept.
    pub direct: Direct,
    /// How many channels an agent may have.
    pub channels_max: usize,
    /// How many connections may be opened per second; more wait a little, then are refused.
    pub opens_per_second: u32,
    /// How many frames per second an agent may send for long; who sends more is read more slowly.
    pub frames_per_second: u32,
    /// For how long sockets are closed, in waves, when the node goes away.
    pub drain: Duration,
}
