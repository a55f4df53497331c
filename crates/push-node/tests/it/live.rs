//! A node with real sockets and real HTTP on loopback, on the model store.

mod acks;
mod destination;
mod endpoint;
mod ends;
mod failures;
pub(crate) mod gated;
mod house;
mod limits;
mod order;
mod protocol;
mod races;
mod senders;
mod sockets;
mod storm;
mod timers;
mod wire;
