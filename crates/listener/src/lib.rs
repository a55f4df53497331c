//! The way in: the accept loop with its limits, TLS, and who is at the other end of a connection.
//!
//! # What it must not know
//! Which routes there are, and what an event is.
