//! A node of Web Push: it drives what [`posthorn_push`] decides.
//!
//! # What it is for
//! Agents (browsers) hold sockets to a node, senders post to endpoints, and nodes hand messages to
//! each other. This crate owns the sockets, the one wheel of timers, the registry of who is connected
//! here, the questions to the store, and the calls between nodes.
//!
//! # What it must not know
//! SQL, what a frame means (that is [`posthorn_push`]), how events are retried.

mod admission;
pub mod broadcasts;
mod connection;
mod destination;
mod ending;
mod endpoint;
mod gather;
pub mod health;
mod hello_times;
mod local;
mod log;
mod memory;
mod meter;
pub mod metrics;
mod node;
pub mod nodes;
mod options;
mod registry;
mod remote;
mod removals;
mod request_queries;
mod session_queries;
mod socket;
mod throttle;
pub mod upkeep;
mod wheel;

pub use destination::Mailboxes;
pub use local::Local;
pub use node::{LAST_SAVES, Node, Parts, StoreFailed};
pub use options::{Direct, Options, Roles};
pub use remote::Remote;
