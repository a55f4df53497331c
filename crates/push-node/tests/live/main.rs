//! A node with real sockets and real HTTP on loopback, on the model store.

mod ends;
mod gated;
mod house;
mod order;
mod races;
mod sockets;
