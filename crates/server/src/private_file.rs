//! Files that only their owner may read: keys, and what is beside them.
//!
//! Modes are set, not hoped for: what a umask leaves is different on every machine. Files of the data
//! folder that others can read all the same, because of an older version or a copy, are closed at each
//! start, with a warning: they may have been read. Files that the operator keeps elsewhere are only warned
//! of: they are not ours to change.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tracing::warn;

use crate::exit::{Code, Failure};

/// The bits of everybody but the owner.
const OTHERS: u32 = 0o077;

/// Writes lines to a new file that only its owner can read, and makes sure it stays there.
pub fn write_new(
    file: &Path,
    what: &str,
    lines: impl Iterator<Item = String>,
) -> anyhow::Result<()> {
    write(file, lines).map_err(|e| {
        let message = format!("{what} cannot be written to {}: {e}", file.display());
        Failure::new(Code::CannotCreate, message).into()
    })
}

fn write(file: &Path, lines: impl Iterator<Item = String>) -> io::Result<()> {
    if let Some(folder) = parent(file) {
        make_folder(&folder)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = options.open(file)?;
    for line in lines {
        writeln!(out, "{line}")?;
    }
    // A key that is gone after a power cut takes with it what was sealed or promised meanwhile.
    out.sync_all()?;
    sync_folder(file)
}

/// Writes a line to a file that only its owner can read, whole or not at all, unless there is one
/// already. Returns whether it did.
pub fn create(file: &Path, what: &str, line: &str) -> anyhow::Result<bool> {
    let create = || -> io::Result<bool> {
        let folder = parent(file).unwrap_or_else(|| PathBuf::from("."));
        make_folder(&folder)?;
        // Files of this kind are made with mode 0600, under names of their own.
        let mut made = tempfile::Builder::new().prefix("posthorn.new.").tempfile_in(folder)?;
        writeln!(made, "{line}")?;
        made.as_file().sync_all()?;
        match made.persist_noclobber(file) {
            Ok(_) => sync_folder(file).map(|()| true),
            Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e.error),
        }
    };
    create().map_err(|e| {
        let message = format!("{what} cannot be written to {}: {e}", file.display());
        Failure::new(Code::CannotCreate, message).into()
    })
}

/// Puts other lines into a file in one step: whoever reads it, also after a crash, finds either what was
/// there or all that is new.
pub fn replace(file: &Path, what: &str, lines: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    // Left over from a try that was cut short; it was never used.
    drop(std::fs::remove_file(&beside));
    write_new(&beside, what, lines)?;
    std::fs::rename(&beside, file).and_then(|()| sync_folder(file)).map_err(|e| {
        let message = format!("{what} {} cannot be replaced: {e}", file.display());
        Failure::new(Code::CannotCreate, message).into()
    })
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn sync_folder(file: &Path) -> io::Result<()> {
    match parent(file) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn parent(file: &Path) -> Option<PathBuf> {
    match file.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Some(PathBuf::from(".")),
        other => other.map(Path::to_owned),
    }
}

/// Takes files of ours away from everybody but their owner, and warns of it.
pub fn tighten(files: impl IntoIterator<Item = PathBuf>) {
    for file in files {
        let Some(mode) = open_to_others(&file) else { continue };
        let mode = format!("{mode:03o}");
        let shown = file.display();
        match close(&file) {
            Ok(()) => warn!(
                file = %shown, was = mode,
                "other users of this machine could read the file; its permissions are restricted \
                 now"
            ),
            Err(e) => warn!(
                file = %shown, mode, error = %e,
                "other users of this machine can read the file, and its mode cannot be changed; \
                 run `chmod 600` on it as its owner"
            ),
        }
    }
}

/// Warns of a file with a secret that others can read, named by a key of the configuration.
pub fn warn_of_open_secret(key: &str, file: &Path) {
    if let Some(mode) = open_to_others(file) {
        let (shown, mode) = (file.display(), format!("{mode:03o}"));
        warn!(
            file = %shown, mode, key,
            "other users of this machine can read the secret that {key} names. Run `chmod 600 \
             {shown}`, and consider replacing the secret"
        );
    }
}

/// Warns of a folder that others can look into. It is not changed: who made it may mean it so.
pub fn warn_of_open_folder(folder: &Path) {
    if let Some(mode) = open_to_others(folder) {
        let (shown, mode) = (folder.display(), format!("{mode:03o}"));
        warn!(
            folder = %shown, mode,
            "other users of this machine can list the data folder. Posthorn's own files are \
             protected, but files you put there may not be. Run `chmod 700 {shown}`"
        );
    }
}

/// The mode of what is there, when it has bits for others.
#[cfg(unix)]
fn open_to_others(path: &Path) -> Option<u32> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().ok()?.permissions());
    (mode & OTHERS != 0).then_some(mode & 0o777)
}

#[cfg(not(unix))]
fn open_to_others(_: &Path) -> Option<u32> {
    None
}

#[cfg(unix)]
fn close(file: &Path) -> io::Result<()> {
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
}

#[cfg(not(unix))]
fn close(_: &Path) -> io::Result<()> {
    Ok(())
}
