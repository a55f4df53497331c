//! The API as clients meet it: a real engine on the model store, over a real loopback listener.

mod access;
mod bad_input;
mod documents;
mod harness;
mod listener;
mod managing;
mod publishing;
mod rate;
