//! The socket's wire: what agents write, what they are told, and how a socket is closed.
//!
//! # How it works
//! [`read`] makes a [`ClientMessage`] of one text frame; the functions of [`mod@write`] make the texts
//! of the answers, byte for byte. Whatever else may happen to a socket ends in a [`Close`].
//!
//! # What it must not know
//! Sessions, stores, time. It holds no state at all.

mod client;
mod close;
pub mod write;

pub use client::{
    Ack, BROADCASTS_MAX, ClientMessage, Copies, FRAME_BYTES_MAX, NESTING_MAX, ReadError, read,
};
pub use close::Close;
