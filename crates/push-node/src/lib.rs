//! A node of Web Push: it drives what [`posthorn_push`] decides.
//!
//! # What it is for
//! Agents (browsers) hold sockets to a node, senders post to endpoints, and nodes hand messages to
//! each other. This room owns the sockets, the one wheel of timers, the registry of who is connected
//! here, the questions to the store, and the calls between nodes.
//!
//! # What it must not know
//! SQL, what a frame means (that is [`posthorn_push`]), how events are retried.

mod admission;
mod clerk;
mod connection;
mod ending;
mod endpoint;
mod gather;
mod local;
mod meter;
pub mod metrics;
mod node;
mod options;
mod reach;
mod registry;
mod socket;
mod wheel;

pub use local::Local;
pub use node::{Node, Parts};
pub use options::{Direct, Options, Roles};
pub use reach::Reach;
