//! Tools for testing Posthorn, never part of the product.
//!
//! [`sim`] is the deterministic simulator: the real engine on a virtual clock, a store that fails,
//! receivers that misbehave, and an oracle that knows what must always hold. [`fake_hub`] is the
//! other side of one real system, on a loopback port.

pub mod fake_hub;
pub mod sim;
