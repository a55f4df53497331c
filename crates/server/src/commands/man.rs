//! `posthorn man`: the man pages, made from the command line itself, so that they are never older than the program.
//! Needs no server.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::exit::{Code, Failure};
use crate::terminal;

/// Write the man pages of all commands into a folder
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The folder; it is created when it is missing. Pages of the same name are replaced
    #[arg(long, value_name = "DIRECTORY")]
    to: PathBuf,
}

/// Runs it for `command`, which is the whole command line.
pub fn run(args: &Args, command: clap::Command, json: bool) -> anyhow::Result<()> {
    let failed = |e: std::io::Error| {
        Failure::new(Code::CannotCreate, format!("{} cannot be written: {e}", args.to.display()))
    };
    std::fs::create_dir_all(&args.to).map_err(failed)?;
    clap_mangen::generate_to(command, &args.to).map_err(failed)?;
    let pages = pages(&args.to).map_err(failed)?;
    if json {
        return Ok(terminal::json(&json!({"folder": args.to, "pages": pages}))?);
    }
    Ok(terminal::data(format_args!("{} pages in {}", pages.len(), args.to.display()))?)
}

fn pages(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("posthorn") && name.ends_with(".1") {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}
