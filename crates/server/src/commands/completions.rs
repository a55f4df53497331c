//! `posthorn completions`: what a shell needs to complete the command line, made from the command line itself, so that
//! it is never older than the program. Needs no server.

use clap_complete::Shell;

use crate::terminal;

/// Print the completions for a shell
///
/// For one session of bash: source <(posthorn completions bash). The packages install them for all users.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Runs it for `command`, which is the whole command line.
pub fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<()> {
    // Into memory first: what writes completions panics where a pipe was closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "posthorn", &mut script);
    Ok(terminal::data(String::from_utf8(script)?.trim_end())?)
}
