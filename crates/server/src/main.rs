//! The `posthorn` program.

use std::process::ExitCode;

/// Many small allocations on several threads are what a delivery is made of.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            posthorn_server::terminal::note(format!("error: the runtime cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(posthorn_server::cli::run());
    // What still runs, runs for nobody: waiting for it could take for ever.
    runtime.shutdown_background();
    code
}
