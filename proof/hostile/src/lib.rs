//! Receivers that misbehave: everything a subscriber's server may do to us, on loopback and on
//! purpose.
//!
//! # What it is for
//! A webhook receiver is chosen by a tenant, so it may be an enemy. [`Mode`] lists the ways in which
//! one can try to hold, fill, confuse or lure the sender, each with the outcome a correct sender
//! must report ([`Mode::expectation`]) and the limit that ends it ([`Mode::limit`]). A [`Receiver`]
//! plays one mode on a loopback port and counts what it sees; a [`Fleet`] plays many at once.
//!
//! # How it works
//! One task accepts, one task plays each connection; dropping a receiver ends them all. Every
//! receiver can be [healed](Receiver::heal): from then on it answers each request with the request's
//! own body, so that a test can see whether an attack left something behind in the sender.
//!
//! # What it must not know
//! Who sends. There is no engine, no store and no egress in here, and no HTTP library either: a
//! library would not let it lie. `posthorn-bench hostile` plays it
//! against the real server, and the tests play it against the real way out.
//!
//! # Where to start
//! [`Mode`] is the table; `script` plays it.

mod bomb;
mod certificates;
mod expectation;
mod fleet;
mod mode;
mod receiver;
mod script;
mod wire;

pub use expectation::{Expectation, Outcome};
pub use fleet::Fleet;
pub use mode::Mode;
pub use receiver::{Receiver, Seen, Settings};
