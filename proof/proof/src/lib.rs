//! The proofs that nothing is lost: [`sim`], the deterministic simulator; [`crash`], which kills the real server
//! again and again; [`fuzz`], which gives every reader of the product what strangers may write.
//!
//! Each has a binary of its name.

pub mod crash;
pub mod fuzz;
pub mod sim;
