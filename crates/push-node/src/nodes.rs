//! Calls between nodes: a message for an agent that is connected elsewhere, and the hint that
//! something was stored for it.
//!
//! # How it works
//! A router record names the node an agent is connected to, by the base URL of that node's internal
//! listener. [`Nodes`] calls it; [`internal`] is what listens there:
//!
//! ```text
//! PUT /push/{agent}    the message     200 sent, 404 not here, 503 can take no more now
//! PUT /notif/{agent}   nothing         200 will look at the store, 404 not here
//! ```
//!
//! Every call is signed with a key that all nodes share ([`posthorn_sealing::node_key`]); without that
//! it is a 401, whatever else is wrong with it. These routes are never on a public listener.
//!
//! # What it must not know
//! What happens to a message that another node did not take: that is [`posthorn_push::endpoint`].

mod client;
mod router;
mod wire;

pub use client::Nodes;
pub use router::internal;
