//! The benchmarks run, and what they count is right. Speeds are not looked at.

mod push;
mod svix;

use std::path::{Path, PathBuf};
use std::process::Command;

use posthorn_testkit::program::Ran;
use serde_json::Value;

/// The server beside the benchmark; built when it is not there yet.
fn server() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_posthorn-bench")).with_file_name("posthorn");
    if !beside.exists() {
        let built = Command::new(env!("CARGO")).args(["build", "-p", "posthorn-server"]).status();
        assert!(built.is_ok_and(|status| status.success()), "the server could not be built");
    }
    beside
}

fn run_on(server: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthorn-bench"));
    Ran::of(command.args(args).arg("--binary").arg(server))
}

fn run(args: &[&str]) -> Ran {
    run_on(&server(), args)
}

fn bench(args: &[&str]) -> Value {
    run(&[args, &["--json", "--seconds", "1"]].concat()).exits(0).json()
}
