//! What one can see of the store from outside.

mod backup;
mod copying;
mod expunging;
mod kill;
mod kill_push;
mod opening;
mod suite;
mod upgrade;
