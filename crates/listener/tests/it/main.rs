//! The listener as clients see it. The accept loop's limits are tested together with the API.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod authority;
mod tls;
mod upgrade;
