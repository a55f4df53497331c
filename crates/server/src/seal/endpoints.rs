//! Keys of Web Push endpoints, which live longer than seal keys.
//!
//! Endpoint keys are derived from seal keys, and browsers keep endpoints for years: when a seal key
//! goes, the key derived from it must stay, or every endpoint made with it is dead and nobody
//! notices. So it is written to `endpoint.keys` beside the seal key, which a start always reads.

use std::path::{Path, PathBuf};

use posthorn_sealing::endpoint_token::EndpointKey;
use posthorn_sealing::vault::VaultKey;

use crate::exit::{Code, Failure};
use crate::private_file;

/// Where they are kept, for a seal key in this file.
pub fn beside(seal_file: &Path) -> PathBuf {
    seal_file.with_file_name("endpoint.keys")
}

/// Those that were kept; none when there is no such file.
pub fn read(file: &Path) -> anyhow::Result<Vec<EndpointKey>> {
    let fail = |problem: String| {
        Failure::new(Code::Config, format!("the endpoint keys {problem}"))
            .hint("restore the file from its backup: existing endpoints need its keys")
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(fail(format!("{} cannot be read: {e}", file.display())).into()),
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let keys = lines.map(EndpointKey::parse).collect::<Result<Vec<_>, _>>();
    keys.map_err(|e| fail(format!("in {} are not readable: {e}", file.display())).into())
}

/// Keeps the endpoint keys of seal keys that go, beside what was kept before.
pub fn keep(file: &Path, retired: &[VaultKey]) -> anyhow::Result<()> {
    let kept = read(file)?;
    let keys = distinct(kept.into_iter().chain(derived(retired)));
    private_file::replace(file, "the endpoint keys", keys.iter().map(EndpointKey::to_text))
}

/// Those that belong to seal keys, in the same order.
pub fn derived(keys: &[VaultKey]) -> impl Iterator<Item = EndpointKey> {
    keys.iter().map(EndpointKey::derived_from)
}

/// Each once, where it comes first.
pub fn distinct(keys: impl IntoIterator<Item = EndpointKey>) -> Vec<EndpointKey> {
    let mut found: Vec<EndpointKey> = Vec::new();
    for key in keys {
        if found.iter().all(|known| known.name() != key.name()) {
            found.push(key);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(keys: &[EndpointKey]) -> Vec<String> {
        keys.iter().map(EndpointKey::name).collect()
    }

    #[test]
    fn keys_are_kept_once_each_for_their_owner_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = beside(&dir.path().join("seal.key"));
        assert!(read(&file).expect("nothing").is_empty());
        let (first, second) = (VaultKey::generate(), VaultKey::generate());
        keep(&file, std::slice::from_ref(&first)).expect("kept");
        keep(&file, &[second.clone(), first.clone()]).expect("kept");
        let expected: Vec<EndpointKey> = derived(&[first, second]).collect();
        assert_eq!(names(&read(&file).expect("readable")), names(&expected));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(&file).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_written_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("endpoint.keys");
        std::fs::write(&file, "phek_broken\n").expect("written");
        let error = keep(&file, &[VaultKey::generate()]).expect_err("not readable");
        assert!(error.to_string().contains("endpoint.keys are not readable"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).expect("there"), "phek_broken\n");
    }
}
