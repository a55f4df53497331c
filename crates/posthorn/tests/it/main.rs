//! Delivery inside one's own process, against receivers on this machine.

mod facade;
#[cfg(feature = "push")]
mod push;
mod receiver;
