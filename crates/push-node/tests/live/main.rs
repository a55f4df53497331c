//! A node with real sockets and real HTTP on loopback, on the model store.

mod house;
mod sockets;
