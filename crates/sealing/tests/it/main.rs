//! Signatures against implementations that were not written here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod interpreter;
mod other_languages;
mod payloads;
mod web_push;
