//! `push`: Web Push, the sockets of agents and the endpoints of senders.
//!
//! What depends on the port that is really listened on (the URL of endpoints, the name of this node)
//! is settled at the start; everything else is checked here.

mod build;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use posthorn_domain::Span;
use posthorn_push_node::Options;
use posthorn_sealing::endpoint_token::EndpointKey;
use posthorn_sealing::node_key::NodeKey;
use url::Url;

pub(super) use build::{RawPush, build};

/// Web Push as it was configured.
#[derive(Clone, Debug)]
pub struct Push {
    /// The knobs of the node, but for its name and the URL of its endpoints.
    pub options: Options,
    /// Sockets of agents at once.
    pub connections: usize,
    /// Sockets of agents at once from one address; 0: no limit.
    pub connections_per_address: usize,
    /// What stands in front of `/wpush/…`; the server's own URL when it is not given.
    pub endpoint_url: Option<String>,
    /// What endpoints are made with, before the keys that come from the seal keys.
    pub endpoint_keys: Vec<EndpointKey>,
    /// Where other nodes call.
    pub internal: Option<Internal>,
    /// What calls between nodes are signed with; those that come from the seal keys when empty.
    pub node_keys: Vec<NodeKey>,
    /// Agents that were not seen for so long are removed.
    pub agent_ttl: Span,
    /// How often the expired are removed.
    pub upkeep: Duration,
    /// Texts that every agent may follow.
    pub broadcasts: Broadcasts,
}

/// Where other nodes call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Internal {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What the others call; made from `listen` when it is not given.
    pub url: Option<String>,
    /// Connections of other nodes at once.
    pub connections: usize,
}

/// Texts that every agent may follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broadcasts {
    /// Where they are asked for.
    pub url: Option<Url>,
    /// How often.
    pub interval: Duration,
    /// Those that are known without asking: the version of each.
    pub values: BTreeMap<String, String>,
}

impl Push {
    /// The knobs of a node that has this name and makes endpoints below this URL.
    pub fn options(&self, endpoint_url: String, node: String) -> Options {
        Options { endpoint_url, node, ..self.options.clone() }
    }
}
