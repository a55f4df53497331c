//! Web Push: browsers on sockets, senders at endpoints, and every decision in between, without I/O.
//!
//! # What it is for
//! An agent (a browser) holds one socket and gets notifications on it; a sender posts messages to
//! endpoints. This room decides everything that can be decided from what is known: what a frame
//! means, what is answered, what is sent, kept, asked of the store and told to a sender. Whoever
//! drives it owns the sockets, the timers, the store and the other nodes.
//!
//! # How it works
//! * [`protocol`] is the wire of the socket.
//! * [`session`] is one connection as a state machine: methods are inputs, [`session::Output`]s are
//!   what the driver has to do, in their order. Many thousands of sessions live in one process, so
//!   a session is small and owns no task and no timer.
//! * [`endpoint`] checks what a sender posted, and [`endpoint::route`] brings it to the agent's
//!   node or to the store.
//!
//! # What it must not know
//! Sockets, SQL, what time it is, chance. Time and fresh ids are handed in.
//!
//! # Where to start
//! [`session::Session`].

pub mod endpoint;
pub mod protocol;
pub mod session;
