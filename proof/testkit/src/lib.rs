//! What tests stand on, never part of the product.
//!
//! Time and chance: [`clock`], [`dice`], [`wait`]. The other ends of the product: [`receiver`] takes
//! what it sends, [`caller`] asks it, [`fake_hub`] is one real system, [`identity_provider`] logs people in, [`postgres`] is a
//! throw-away database, [`patroni`] one on two machines, [`link`] a wire that can be cut; [`authority`] signs certificates for all of them, [`id_tokens`] tokens. [`program`] runs the real `posthorn`.
//!
//! It knows nothing of the product but the trait of its clock and how its program is used: what needs
//! an engine or a store stays with the tests of that crate. Whatever a test could not go on without
//! panics here.

pub mod authority;
pub mod caller;
pub mod clock;
pub mod dice;
pub mod fake_hub;
pub mod id_tokens;
pub mod identity_provider;
pub mod link;
pub mod patroni;
pub mod postgres;
pub mod program;
pub mod receiver;
pub mod wait;
mod wire;
