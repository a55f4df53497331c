//! The `posthorn` binary: configuration, wiring, signals, telemetry and the command line.
//!
//! # Theory of operation
//! [`main()`] starts a runtime and calls [`cli::run`]. `serve` reads a [`config`], opens the store
//! ([`storage`]), finds the seal key ([`seal`]), starts the engine, the API and, where it is on, Web
//! Push ([`push`]), makes sure that somebody has an operator key ([`first_key`]), and hands them to
//! [`lifecycle`], which knows how a server ends. All other commands are clients of the API
//! ([`client`], [`commands`]), or need no server at all.
//!
//! # Invariants
//! No business rule lives here: what is allowed and what happens is decided by the engine. Nothing
//! but data is written to stdout. Every way to end has a code in [`exit`].
//!
//! # Where to start
//! [`serve`] for what runs, [`cli`] for what can be typed.

pub mod callbacks;
pub mod cli;
pub mod client;
pub mod clock;
pub mod commands;
pub mod config;
pub mod demo;
pub mod disk;
pub mod exit;
pub mod fetch;
pub mod first_key;
mod former;
pub mod identity_provider;
pub mod lifecycle;
pub mod open_files;
pub mod own_addresses;
pub mod ports;
pub mod preflight;
pub mod private_file;
pub mod push;
pub mod receiver;
pub mod seal;
pub mod serve;
pub mod storage;
pub mod surfaces;
pub mod telemetry;
pub mod terminal;
pub mod tls;

use std::process::ExitCode;

/// All that the program does. It is here and not in the program's own crate so that the compiler makes it once, in parts.
pub fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            terminal::note(format!("error: the runtime cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(cli::run());
    // What still runs, runs for nobody: waiting for it could take for ever.
    runtime.shutdown_background();
    code
}
