//! Every hostile receiver against the real way out.

mod attack;
mod lures;
mod modes;
