//! The notifier as payment servers use it.

mod crash;
mod dead_letters;
mod events;
mod house;
mod memory;
mod persistent;
mod receiver;
mod wire;
