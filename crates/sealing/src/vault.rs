//! Secrets at rest.
//!
//! A blob is a version byte, four bytes that name the key, a random nonce, and AES-256-GCM-SIV
//! ciphertext. The caller's context is authenticated with it, so a blob cannot be moved to another
//! row or column. GCM-SIV is chosen because a repeated nonce costs almost nothing: it only shows
//! that two plaintexts are equal.
//!
//! Keys rotate by putting a new one first: it seals, all open.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthorn_domain::TenantId;
use serde::Deserialize;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::vapid::SenderKey;

const VERSION: u8 = 1;
const KEY_BYTES: usize = 32;
const KEY_ID_BYTES: usize = 4;
const HEADER_BYTES: usize = 1 + KEY_ID_BYTES;
const KEY_PREFIX: &str = "phvk_";

/// Bytes that must not be shown. Wiped when dropped.
#[derive(Clone, Default, Deserialize)]
#[serde(from = "String")]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// The bytes; named so that every use can be found.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as text, when they are.
    pub fn expose_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl From<&[u8]> for Secret {
    fn from(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text.into_bytes()))
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.expose().ct_eq(other.expose()).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

/// A key of the vault.
#[derive(Clone)]
pub struct VaultKey(Zeroizing<[u8; KEY_BYTES]>);

/// Why a text is not a vault key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a vault key is phvk_ followed by the base64 of 32 bytes")]
pub struct VaultKeyError;

impl VaultKey {
    /// A fresh key.
    pub fn generate() -> Self {
        Self(Zeroizing::new(crate::random()))
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, VaultKeyError> {
        let encoded = text.trim().strip_prefix(KEY_PREFIX).ok_or(VaultKeyError)?;
        let bytes = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| VaultKeyError)?);
        let bytes: [u8; KEY_BYTES] = bytes.as_slice().try_into().map_err(|_| VaultKeyError)?;
        Ok(Self(Zeroizing::new(bytes)))
    }

    /// The text form, to be kept by the operator.
    pub fn to_text(&self) -> String {
        format!("{KEY_PREFIX}{}", STANDARD.encode(*self.0))
    }

    /// A public name of it, which does not help to guess it.
    pub fn name(&self) -> String {
        crate::encoding::hex(&self.id())
    }

    /// The bytes, to derive keys for other purposes from.
    pub(crate) fn expose(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    fn id(&self) -> [u8; KEY_ID_BYTES] {
        let hash = digest(&SHA256, &*self.0);
        std::array::from_fn(|index| hash.as_ref()[index])
    }
}

impl fmt::Debug for VaultKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VaultKey({})", crate::encoding::hex(&self.id()))
    }
}

/// A vault needs a key to seal with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a vault needs at least one key")]
pub struct NoVaultKey;

/// Why a blob cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Too short to be a blob.
    #[error("the sealed secret is incomplete")]
    Truncated,
    /// Written by a later version of this program.
    #[error("the sealed secret has an unknown form {version}")]
    Version {
        /// The version it claims.
        version: u8,
    },
    /// Sealed with a key we were not given.
    #[error("the sealed secret needs a vault key that is not configured")]
    UnknownKey,
    /// Changed, moved to another place, or sealed with another key of the same id.
    #[error("the sealed secret was altered, or belongs to another record")]
    Altered,
}

/// Seals and opens, and knows what is derived from its keys.
pub struct Vault {
    /// The first one seals.
    keys: Vec<([u8; KEY_ID_BYTES], LessSafeKey)>,
    /// The same keys, to derive others from.
    roots: Vec<VaultKey>,
}

impl Vault {
    /// The first key seals, all open.
    pub fn new(roots: Vec<VaultKey>) -> Result<Self, NoVaultKey> {
        if roots.is_empty() {
            return Err(NoVaultKey);
        }
        let keys = roots.iter().map(|key| {
            let unbound = UnboundKey::new(&AES_256_GCM_SIV, &*key.0)
                .expect("a vault key has exactly the length the algorithm asks for");
            (key.id(), LessSafeKey::new(unbound))
        });
        Ok(Self { keys: keys.collect(), roots })
    }

    /// The keys with which this server sends push messages for a tenant, one for each key of the
    /// vault: the first is the current one, the others were before a change of keys.
    pub fn sender_keys(&self, tenant: TenantId) -> impl Iterator<Item = SenderKey> {
        self.roots.iter().map(move |root| SenderKey::derived_from(root, tenant))
    }

    /// Secret bytes that go with something that need not be secret itself: always the same ones, and without the key that seals
    /// nobody can tell them.
    pub fn derive(&self, purpose: &[u8], from: &[u8]) -> Zeroizing<[u8; 32]> {
        crate::hkdf::derive(
            b"posthorn derived secret",
            self.roots[0].expose(),
            &[purpose, b"\0", from],
        )
    }

    /// Seals a secret for one place, named by `context`.
    pub fn seal(&self, context: &[u8], secret: &[u8]) -> Vec<u8> {
        let (id, key) = &self.keys[0];
        let nonce: [u8; NONCE_LEN] = crate::random();
        let mut header = [VERSION; HEADER_BYTES];
        header[1..].copy_from_slice(id);
        let mut ciphertext = Vec::with_capacity(secret.len() + AES_256_GCM_SIV.tag_len());
        ciphertext.extend_from_slice(secret);
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(bound(&header, context)),
            &mut ciphertext,
        )
        .expect("sealing only fails for texts of many gigabytes");
        [&header[..], &nonce, &ciphertext].concat()
    }

    /// The public name of the key that seals.
    pub fn key_name(&self) -> String {
        crate::encoding::hex(&self.keys[0].0)
    }

    /// Whether a blob was sealed with the key that seals now.
    pub fn is_current(&self, blob: &[u8]) -> bool {
        let (id, _) = &self.keys[0];
        blob.first() == Some(&VERSION) && blob.get(1..HEADER_BYTES) == Some(&id[..])
    }

    /// Opens what was sealed for the same `context`.
    pub fn open(&self, context: &[u8], blob: &[u8]) -> Result<Secret, OpenError> {
        let (header, rest) =
            blob.split_first_chunk::<HEADER_BYTES>().ok_or(OpenError::Truncated)?;
        if header[0] != VERSION {
            return Err(OpenError::Version { version: header[0] });
        }
        let (nonce, ciphertext) =
            rest.split_first_chunk::<NONCE_LEN>().ok_or(OpenError::Truncated)?;
        if ciphertext.len() < AES_256_GCM_SIV.tag_len() {
            return Err(OpenError::Truncated);
        }
        let (_, key) =
            self.keys.iter().find(|(id, _)| id == &header[1..]).ok_or(OpenError::UnknownKey)?;
        let mut bytes = Zeroizing::new(ciphertext.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = key
            .open_in_place(nonce, Aad::from(bound(header, context)), &mut bytes)
            .map_err(|_| OpenError::Altered)?;
        Ok(Secret::from(&*opened))
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vault({} keys)", self.keys.len())
    }
}

/// What is authenticated besides the ciphertext. The header has a fixed length, so the two parts
/// cannot be shifted against each other.
fn bound(header: &[u8; HEADER_BYTES], context: &[u8]) -> Vec<u8> {
    [header, context].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vault(keys: &[&VaultKey]) -> Vault {
        Vault::new(keys.iter().map(|key| (*key).clone()).collect()).expect("keys")
    }

    #[test]
    fn what_was_sealed_opens_in_its_place_only() {
        let vault = vault(&[&VaultKey::generate()]);
        for secret in [&b""[..], b"s", &[7; 5000]] {
            let blob = vault.seal(b"here", secret);
            assert_eq!(vault.open(b"here", &blob).expect("opens").expose(), secret);
            assert_eq!(vault.open(b"there", &blob).expect_err("place"), OpenError::Altered);
            assert_eq!(vault.open(b"", &blob).expect_err("place"), OpenError::Altered);
            assert_ne!(vault.seal(b"here", secret), blob, "nonces differ");
        }
    }

    #[test]
    fn any_changed_or_missing_byte_is_noticed() {
        let vault = vault(&[&VaultKey::generate()]);
        let blob = vault.seal(b"c", b"secret");
        for index in 0..blob.len() {
            let mut changed = blob.clone();
            changed[index] ^= 1;
            let expected = match index {
                0 => OpenError::Version { version: 0 },
                1..=4 => OpenError::UnknownKey,
                _ => OpenError::Altered,
            };
            assert_eq!(vault.open(b"c", &changed).expect_err("changed"), expected, "{index}");
            let cut = vault.open(b"c", &blob[..index]).expect_err("cut");
            assert!(matches!(cut, OpenError::Truncated | OpenError::Altered), "{index}");
        }
        assert_eq!(vault.open(b"c", &[]).expect_err("empty"), OpenError::Truncated);
    }

    #[test]
    fn keys_rotate() {
        let (old, new) = (VaultKey::generate(), VaultKey::generate());
        let before = vault(&[&old]).seal(b"c", b"x");
        let both = vault(&[&new, &old]);
        assert!(both.open(b"c", &before).is_ok());
        let after = both.seal(b"c", b"x");
        assert!(both.is_current(&after) && !both.is_current(&before) && !both.is_current(b""));
        assert_eq!(both.key_name(), new.name());
        assert!(vault(&[&new]).open(b"c", &after).is_ok());
        assert_eq!(vault(&[&new]).open(b"c", &before).expect_err("gone"), OpenError::UnknownKey);
        assert_eq!(Vault::new(vec![]).expect_err("none"), NoVaultKey);
    }

    #[test]
    fn keys_have_a_text_form_and_keep_quiet() {
        let key = VaultKey::generate();
        let text = key.to_text();
        assert_eq!(VaultKey::parse(&format!(" {text}\n")).expect("parses").to_text(), text);
        assert!(!format!("{key:?}").contains(&text[5..]));
        for bad in ["", "phvk_", "phvk_AAAA", &text[5..], &format!("{text}AA==")] {
            assert_eq!(VaultKey::parse(bad).expect_err(bad), VaultKeyError);
        }
        assert_eq!(format!("{:?}", Secret::from("hush")), "Secret(redacted)");
    }
}
