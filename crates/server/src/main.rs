//! The `posthorn` program.

use std::process::ExitCode;

/// Many small allocations on several threads are what a delivery is made of.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    posthorn_server::main()
}
