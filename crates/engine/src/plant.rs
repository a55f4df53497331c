//! Planted bugs. Compiled only with the feature `plant`, which no product has: the simulator turns
//! one on at a time and must notice.
//!
//! The choice is kept per thread, because a simulated cluster lives in one thread and several may
//! run side by side.

pub use posthorn_store::plant::{Plant, active, set};
