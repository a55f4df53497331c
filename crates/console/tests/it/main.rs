//! The console as a browser meets it, without one: a real engine on the model store, and the router of the pages.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bulk;
mod certificates;
mod event_types;
mod guarding;
mod harness;
mod lists;
mod live;
mod looking;
mod managing;
mod markup;
mod portal;
mod portal_doing;
mod push;
mod system;
mod systems;
mod topics;
