//! The endpoint: what a sender posts, from its URL to the agent or to the store.
//!
//! # How it works
//! The checks of a post come in a fixed order, and the first that fails is the answer. Each step
//! is a type that only the step before can make, so the order cannot be got wrong:
//!
//! ```text
//! Opened::open ─▶ Opened::sender ─▶ Authorized::recipient ─▶ Addressed::message ─▶ route
//!     404            401, 400            410              413, 400            201, 410, 503
//! ```
//!
//! Only between `sender` and `recipient` something is looked up: where the agent is, and whether
//! it has the channel. Whatever is wrong is a [`Refusal`], with everything its answer needs.
//! [`route`] then says what to do next until the message is the agent's, or stored, or worthless.
//!
//! # What it must not know
//! HTTP types, stores, sockets, the clock.

mod checks;
mod refusal;
mod routing;

pub use checks::{
    Addressed, Authorized, BODY_BYTES_MAX, Headers, Limits, Opened, Recipient, TTL_MAX,
};
pub use refusal::{GONE_MAX_AGE_SECONDS, MORE_INFO, RETRY_AFTER_SECONDS, Refusal};
pub use routing::{
    Clear, Connection, Found, Hint, LookAgain, NodeAnswer, Outcome, Push, Step, Store, StoreAnswer,
    hint_after_save, route,
};

/// The headers of every 201: where the message can be taken back, and for how long it counts.
/// `base` is the URL of the endpoints without a slash at its end, `name` the sealed name of the
/// message.
pub fn created(base: &str, name: &str, ttl: u32) -> [(&'static str, String); 2] {
    [("Location", format!("{base}/m/{name}")), ("TTL", ttl.to_string())]
}
