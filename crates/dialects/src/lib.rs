//! Dialects: other systems' wire APIs, spoken on top of the same engine. One module a system.
//!
//! # What it must not know
//! No SQL, no sockets. What is delivered, when and how often is decided by the engine and by the
//! profile a system names; a dialect only translates between its wire and the engine's words.

pub mod cedros;
mod document;
pub mod efgs;
pub mod notificaties;
