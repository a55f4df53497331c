//! The simulator: whole days of a small cluster's life in milliseconds, replayable from a number.
//!
//! # Theory of operation
//! One run is one seed. From it a [`plan`] is drawn: nodes, tenants, subscriptions with their
//! policies and the moods of their receivers, how often what breaks. The real
//! [`Engine`](posthorn_engine::Engine) then runs on tokio's paused clock, in one thread:
//!
//! ```text
//! publishers, operators, chaos ──▶ Engine × n ──▶ receivers ──▶ Oracle::request_…
//!                                     │
//!                                     ▼
//!                             FaultStore ──▶ ModelStore
//!                                     └────▶ Oracle::…   (at the moment a call takes effect)
//! ```
//! The `FaultStore` delays, refuses, loses replies, and lets calls of dead nodes take
//! effect after their death. The `oracle` keeps its own account of every delivery, lease and
//! version, written from the design and not from the engine, and compares each effect and each
//! request with it. When nothing is due for a while the clock jumps, which to the nodes looks like a
//! suspended machine; that is how a run covers days.
//!
//! After the storm everything heals and the rest must drain: safety is checked all the time,
//! liveness at the end.
//!
//! # Determinism
//! Everything that happens is folded into one hash; the same seed gives the same hash. Nothing here
//! may look at the wall clock, at thread timing, or at the order of a randomly seeded map.
//!
//! # Where to start
//! [`run::run`] is one run; the binary `sim` makes many.

mod clock;
mod cluster;
mod dice;
mod driver;
mod fault_store;
mod mailboxes;
mod operators;
mod oracle;
pub mod plan;
pub mod plants;
mod publishers;
mod receivers;
pub mod run;
mod trace;
mod world;

pub use oracle::{Invariant, Tally, Violation};
pub use run::{Outcome, run};
