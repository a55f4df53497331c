//! What one can see of the store from outside.

mod backup;
mod kill;
mod opening;
mod suite;
