//! Drives the real program, as an operator would.

mod admission;
mod canary;
mod commands;
mod configuration;
mod documents;
mod harness;
mod mutual_tls;
mod postgres;
mod rotation;
mod serving;
mod token_canary;
mod verify;
