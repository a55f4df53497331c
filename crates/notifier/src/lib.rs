//! The notifier: webhooks of a payment server, as a library in its own process.
//!
//! # What it must not know
//! No HTTP routes.
