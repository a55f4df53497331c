//! The seeds of a target: the files of `corpus/NAME`.

use std::io;
use std::path::Path;

use crate::fuzz::targets::Target;

/// All seeds, by file name. There is always at least one: nothing.
pub fn corpus(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let mut files: Vec<_> =
        std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut seeds = vec![Vec::new()];
    for file in files {
        seeds.push(std::fs::read(file)?);
    }
    Ok(seeds)
}
