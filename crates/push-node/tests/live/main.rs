//! A node with real sockets and real HTTP on loopback, on the model store.

mod ends;
mod failures;
mod gated;
mod house;
mod limits;
mod order;
mod protocol;
mod races;
mod sockets;
mod timers;
mod wire;
