//! API keys: what is shown once, and the hash that is stored.
//!
//! The text is `ph_`, the id's 26 characters, 43 characters of secret, and six characters of
//! checksum. The checksum proves nothing; it lets typing errors and leaked keys be recognised
//! without a look into the store. A plain hash suffices for the secret: it has 256 random bits,
//! so there is nothing to guess.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use posthorn_domain::KeyId;
use subtle::ConstantTimeEq;

use crate::encoding::hex;
use crate::vault::Secret;

const PREFIX: &str = "ph_";
const ID_CHARS: usize = 26;
const SECRET_BYTES: usize = 32;
const SECRET_CHARS: usize = 43;
const CHECK_BYTES: usize = 3;
/// Everything before the checksum and its underscore.
const SIGNED_CHARS: usize = PREFIX.len() + ID_CHARS + 1 + SECRET_CHARS;
const TEXT_CHARS: usize = SIGNED_CHARS + 1 + 2 * CHECK_BYTES;

/// The SHA-256 of a key's secret half, as stores keep it.
pub type KeyHash = [u8; 32];

/// Why a text is not an API key. It never repeats the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiKeyError {
    /// Not of the right shape.
    #[error("not an API key: it must begin with ph_ and have {TEXT_CHARS} characters")]
    Malformed,
    /// Of the right shape, but mistyped or cut and padded.
    #[error("the API key is mistyped: its checksum is wrong")]
    Checksum,
}

/// A fresh key: the text to show once, and the hash to store.
pub fn generate(id: KeyId) -> (Secret, KeyHash) {
    let secret: [u8; SECRET_BYTES] = crate::random();
    (Secret::from(text(id, &secret)), hash(&secret))
}

/// Takes a key's text apart. This says nothing about whether the key exists.
pub fn parse(text: &str) -> Result<(KeyId, Secret), ApiKeyError> {
    // By position: the secret's alphabet contains the underscore.
    if text.len() != TEXT_CHARS || !text.is_ascii() || !text.starts_with(PREFIX) {
        return Err(ApiKeyError::Malformed);
    }
    let (signed, check) = text.split_at(SIGNED_CHARS);
    let (id, secret) = signed[PREFIX.len()..].split_at(ID_CHARS);
    let id = format!("{}_{id}", KeyId::PREFIX).parse().map_err(|_| ApiKeyError::Malformed)?;
    let secret = secret.strip_prefix('_').ok_or(ApiKeyError::Malformed)?;
    let secret = URL_SAFE_NO_PAD.decode(secret).map_err(|_| ApiKeyError::Malformed)?;
    let check = check.strip_prefix('_').ok_or(ApiKeyError::Malformed)?;
    if check != checksum(signed) {
        return Err(ApiKeyError::Checksum);
    }
    Ok((id, Secret::from(secret)))
}

/// What a store keeps of a key's secret half.
pub fn hash(secret: &[u8]) -> KeyHash {
    let hash = digest(&SHA256, secret);
    std::array::from_fn(|index| hash.as_ref()[index])
}

/// Whether the secret half is the one that was stored, in constant time.
pub fn check(secret: &Secret, stored: &KeyHash) -> bool {
    hash(secret.expose()).ct_eq(stored).into()
}

fn text(id: KeyId, secret: &[u8; SECRET_BYTES]) -> String {
    let id = id.to_string();
    let id = id.split_once('_').map_or("", |(_, id)| id);
    let signed = format!("{PREFIX}{id}_{}", URL_SAFE_NO_PAD.encode(secret));
    let check = checksum(&signed);
    format!("{signed}_{check}")
}

fn checksum(signed: &str) -> String {
    hex(&digest(&SHA256, signed.as_bytes()).as_ref()[..CHECK_BYTES])
}

#[cfg(test)]
mod tests {
    use posthorn_domain::Timestamp;

    use super::*;

    fn id() -> KeyId {
        KeyId::new(Timestamp::from_millis(1_700_000_000_000), 42)
    }

    #[test]
    fn keys_come_back_and_match_their_hash() {
        for _ in 0..50 {
            let (text, stored) = generate(id());
            let text = text.expose_str().expect("text").to_owned();
            assert_eq!(text.len(), TEXT_CHARS);
            let (parsed, secret) = parse(&text).expect("parses");
            assert_eq!(parsed, id());
            assert!(check(&secret, &stored));
            assert!(!check(&secret, &generate(id()).1));
        }
    }

    #[test]
    fn the_form_is_stable() {
        let text = text(id(), &[0xFF; 32]);
        assert!(text.starts_with("ph_"), "{text}");
        assert_eq!(&text[3..29], &id().to_string()[4..]);
        assert_eq!(&text[30..73], "_".repeat(42) + "8");
        assert!(parse(&text).is_ok());
    }

    #[test]
    fn malformed_and_mistyped_keys_are_told_apart() {
        let (text, _) = generate(id());
        let text = text.expose_str().expect("text").to_owned();
        for bad in [
            "",
            "ph_",
            &text[1..],
            &format!("{text}0"),
            &text.replace("ph_", "pk_"),
            &"ä".repeat(40),
        ] {
            assert_eq!(parse(bad).expect_err(bad), ApiKeyError::Malformed);
        }
        for index in 3..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[index] = if changed[index] == b'0' { b'1' } else { b'0' };
            assert!(parse(std::str::from_utf8(&changed).expect("ascii")).is_err(), "{index}");
        }
        let mut changed = text.clone();
        changed.replace_range(TEXT_CHARS - 1.., if text.ends_with('0') { "1" } else { "0" });
        assert_eq!(parse(&changed).expect_err("checksum"), ApiKeyError::Checksum);
    }
}
