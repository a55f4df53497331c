//! The key that seals secrets at rest: found, made at the first start, and proven to fit.

pub mod endpoints;

use std::path::Path;

use posthorn_sealing::vault::{OpenError, Vault, VaultKey, VaultKeyError};
use posthorn_store::CatalogDelta;
use tracing::info;

use crate::config::Seal;
use crate::exit::{Code, Failure};
use crate::private_file;

/// The vault of a configuration, and the keys in it, the one that seals first.
///
/// A key is made only when nothing is sealed yet: a fresh key beside sealed secrets would hide that
/// the right one is lost. A given key must know what is sealed, for the same reason.
pub fn vault(
    seal: Seal,
    file: &Path,
    catalog: &CatalogDelta,
) -> anyhow::Result<(Vault, Vec<VaultKey>)> {
    let sealed = sealed_in(catalog);
    let mut place = "seal.key of the configuration".to_owned();
    let mut keys = match seal.key {
        Some(key) => vec![key],
        None => {
            place = file.display().to_string();
            match read(file)? {
                Some(keys) => keys,
                None if sealed.is_empty() => {
                    let key = VaultKey::generate();
                    write_new(file, &key)?;
                    info!(file = %file.display(), "created a seal key; back it up separately from \
                                                   the data");
                    vec![key]
                }
                None => {
                    return Err(Failure::new(
                        Code::Config,
                        format!(
                            "the seal key {place} is missing, and stored secrets were sealed \
                                 with it"
                        ),
                    )
                    .hint(
                        "restore the file from its backup, or set the key with seal.key. Without \
                         it, every subscription needs its secrets again",
                    )
                    .into());
                }
            }
        }
    };
    keys.extend(seal.former);
    let vault = Vault::new(keys.clone())?;
    // The context is wrong on purpose: a vault that has the key says that the text does not belong
    // here, and one that has not says so before it looks.
    let unknown = |blob: &&[u8]| matches!(vault.open(b"", blob), Err(OpenError::UnknownKey));
    let strange = sealed.iter().filter(|blob| unknown(blob)).count();
    if strange > 0 {
        return Err(Failure::new(
            Code::Config,
            format!(
                "the seal key from {place} cannot decrypt {strange} of {} stored secrets",
                sealed.len()
            ),
        )
        .hint(
            "use the key they were sealed with; after a change of keys, list the old one in \
             seal.former",
        )
        .into());
    }
    Ok((vault, keys))
}

/// All that is sealed.
fn sealed_in(catalog: &CatalogDelta) -> Vec<&[u8]> {
    let secrets = catalog.subscriptions.iter().flat_map(|subscription| &subscription.secrets);
    let keys =
        catalog.certificates.iter().filter_map(|certificate| certificate.sealed_key.as_ref());
    let clients = catalog.clients.iter().filter_map(|client| client.sealed_secret.as_ref());
    secrets
        .map(|secret| &*secret.sealed)
        .chain(keys.map(|key| &**key))
        .chain(clients.map(|secret| &**secret))
        .collect()
}

/// Whether a seal key is needed to read what is stored.
pub fn is_anything_sealed(catalog: &CatalogDelta) -> bool {
    !sealed_in(catalog).is_empty()
}

/// The keys of a text, one a line: the first seals, all open.
pub fn parse(text: &str) -> Result<Vec<VaultKey>, VaultKeyError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let keys: Vec<VaultKey> = lines.map(VaultKey::parse).collect::<Result<_, _>>()?;
    if keys.is_empty() { Err(VaultKeyError) } else { Ok(keys) }
}

/// The keys of a file; `None` when there is no such file.
pub fn read(file: &Path) -> anyhow::Result<Option<Vec<VaultKey>>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            let message = format!("the seal key {} cannot be read: {e}", file.display());
            return Err(Failure::new(Code::Config, message).into());
        }
    };
    match parse(&text) {
        Ok(keys) => Ok(Some(keys)),
        Err(e) => Err(Failure::new(
            Code::Config,
            format!("{} does not contain a seal key: {e}", file.display()),
        )
        .hint("restore the file from its backup")
        .into()),
    }
}

/// Puts other keys into a file in one step: whoever reads it, also after a crash, finds either what
/// was there or all that is new.
pub fn replace(file: &Path, keys: &[VaultKey]) -> anyhow::Result<()> {
    private_file::replace(file, "the seal key", keys.iter().map(VaultKey::to_text))
}

/// Writes a key to a new file that only its owner can read, and makes sure it stays there.
pub fn write_new(file: &Path, key: &VaultKey) -> anyhow::Result<()> {
    private_file::write_new(file, "the seal key", std::iter::once(key.to_text()))
}
