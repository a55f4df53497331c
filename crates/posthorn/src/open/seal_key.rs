//! The seal key in a file beside the data.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use posthorn_sealing::vault::VaultKey;

use crate::error::Error;

/// The same file that a server has beside its data.
const FILE: &str = "seal.key";

/// The key in the file beside the data; made the first time, for its owner's eyes only.
pub(super) fn beside(folder: &Path) -> Result<VaultKey, Error> {
    let path = folder.join(FILE);
    let key = match std::fs::read_to_string(&path) {
        Ok(text) => {
            VaultKey::parse(&text).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => make(&path, folder),
        Err(e) => Err(e),
    };
    key.map_err(|source| Error::SealKey { path, source })
}

fn make(path: &Path, folder: &Path) -> io::Result<VaultKey> {
    let key = VaultKey::generate();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    writeln!(file, "{}", key.to_text())?;
    file.sync_all()?;
    File::open(folder)?.sync_all()?;
    Ok(key)
}
