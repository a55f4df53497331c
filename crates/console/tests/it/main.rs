//! The console as a browser meets it, without one: a real engine on the model store, and the router of the pages.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod certificates;
mod event_types;
mod guarding;
mod harness;
mod looking;
mod managing;
mod markup;
mod system;
