//! Everything that reads what strangers write, against everything strangers may write.
//!
//! # What it is for
//! A [`Target`] is a plain function of bytes. It gives them to one reader of the product and asserts
//! what must be true of the result: that it agrees with an independent reading, that it comes back
//! from its own text form, that nothing is accepted that another part would refuse. Not panicking is
//! the least of it.
//!
//! # How it works
//! [`run`] feeds a target the files of its corpus and mutations of them. The mutations are drawn from
//! a seed, so a seed and a number say exactly which input it was. A target says whether it accepted
//! an input; accepted mutations become seeds themselves, so that the search gets past the first check.
//!
//! # What it must not know
//! Engine, stores, the server: only readers of bytes.
//!
//! # Where to start
//! [`TARGETS`] is the list, [`mutation`] the engine; `main.rs` is the command.

mod corpus;
pub mod mutation;
mod run;
mod targets;

pub use corpus::corpus;
pub use run::{Broken, Limits, Ran, run};
pub use targets::{TARGETS, Target};
