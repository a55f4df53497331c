//! What tests stand on, never part of the product.
//!
//! [`postgres`] is a throw-away PostgreSQL server. [`fake_hub`] is the other side of one real system, on a
//! loopback port.

pub mod fake_hub;
pub mod postgres;
