//! Drives the real program, as an operator would.

mod canaries;
mod commands;
mod configuration;
mod documents;
mod harness;
mod postgres;
mod serving;
mod verify;
