//! The knobs of a node.

use std::time::Duration;

use posthorn_domain::setting;
use posthorn_push::{endpoint, session};
use serde::{Deserialize, Deserializer, de::Error};

/// What this process does for Web Push. The parts may be in one process or apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Agents connect here.
    pub connection: bool,
    /// Senders post here.
    pub endpoint: bool,
}

impl<'de> Deserialize<'de> for Roles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(PartialEq, Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Role {
            Connection,
            Endpoint,
        }
        let named = Vec::<Role>::deserialize(deserializer)?;
        if named.is_empty() {
            return Err(Error::custom("must name connection, endpoint or both"));
        }
        let has = |role: Role| named.contains(&role);
        Ok(Self { connection: has(Role::Connection), endpoint: has(Role::Endpoint) })
    }
}

/// How a message that could go straight to a socket is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direct {
    /// In memory until it is acknowledged or the connection ends; the store is not touched.
    #[default]
    Memory,
    /// In the store, before the sender is answered: it survives even the death of the agent's node.
    Stored,
}

/// How a node behaves: a part of the section `push` of the configuration, and what is known at the start.
#[derive(Clone, Debug, Deserialize)]
pub struct Options {
    /// What it does.
    pub roles: Roles,
    /// What stands in front of `/wpush/…`, without a slash at its end.
    #[serde(skip)]
    pub endpoint_url: String,
    /// This node on router records: the base URL of its internal listener, or any other text where
    /// there is no second node.
    #[serde(skip)]
    pub node: String,
    /// How sessions behave.
    #[serde(skip)]
    pub session: session::Options,
    /// How much a sender may ask for.
    #[serde(skip)]
    pub limits: endpoint::Limits,
    /// How messages for connected agents are kept.
    pub direct: Direct,
    /// How many channels an agent may have.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub channels_max: usize,
    /// How many connections may be opened per second; more wait a little, then are refused.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub opens_per_second: u32,
    /// How many frames per second an agent may send for long; who sends more is read more slowly.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub frames_per_second: u32,
    /// For how long sockets are closed, in waves, when the node goes away.
    #[serde(deserialize_with = "setting::time")]
    pub drain_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            roles: Roles { connection: true, endpoint: true },
            endpoint_url: String::new(),
            node: String::new(),
            session: session::Options::default(),
            limits: endpoint::Limits::default(),
            direct: Direct::Memory,
            channels_max: 1_000,
            opens_per_second: 2_000,
            frames_per_second: 50,
            drain_timeout: Duration::from_secs(10),
        }
    }
}
