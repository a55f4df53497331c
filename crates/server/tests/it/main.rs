//! Drives the real program, as an operator would.

mod commands;
mod configuration;
mod documents;
mod harness;
mod mutual_tls;
mod postgres;
mod serving;
mod verify;
