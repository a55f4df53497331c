//! Points on the curve P-256: the keys of senders (VAPID) and of browsers (message encryption).
//!
//! On the wire they are the 65 bytes of the uncompressed form in base64, which everybody writes as
//! they like: base64url or not, padded or not. Other forms of the point are not in use and refused,
//! so that one key has one hash.

use aws_lc_rs::agreement::{self, ECDH_P256, UnparsedPublicKey};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::encoding::base64_any;

/// Bytes of a public key.
pub const PUBLIC_KEY_BYTES: usize = 65;
/// Bytes of a private key.
pub const PRIVATE_KEY_BYTES: usize = 32;
/// What the uncompressed form begins with.
const UNCOMPRESSED: u8 = 4;
/// Longest text worth decoding. A key has 88 characters at most, and blanks are not in it.
const TEXT_BYTES_MAX: usize = 128;

/// A public key: a point that is on the curve.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; PUBLIC_KEY_BYTES]);

/// Why something is not a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key must be the base64url of an uncompressed P-256 point of 65 bytes")]
pub struct PublicKeyError;

impl PublicKey {
    /// Reads the 65 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PublicKeyError> {
        let bytes: [u8; PUBLIC_KEY_BYTES] = bytes.try_into().map_err(|_| PublicKeyError)?;
        if bytes[0] != UNCOMPRESSED {
            return Err(PublicKeyError);
        }
        ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, bytes).map_err(|_| PublicKeyError)?;
        Ok(Self(bytes))
    }

    /// Reads the text in any spelling.
    pub fn parse(text: &str) -> Result<Self, PublicKeyError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(PublicKeyError);
        }
        Self::from_bytes(&base64_any(text).ok_or(PublicKeyError)?)
    }

    /// The 65 bytes.
    pub const fn as_bytes(&self) -> &[u8; PUBLIC_KEY_BYTES] {
        &self.0
    }

    /// The usual text: base64url without padding.
    pub fn to_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Whether `signature` (the two numbers of ES256) is this key's over `message`.
    pub(crate) fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.0)
            .is_ok_and(|key| key.verify_sig(message, signature).is_ok())
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({})", self.to_text())
    }
}

/// A private key. Wiped when dropped.
#[derive(Clone)]
pub(crate) struct PrivateKey {
    scalar: Zeroizing<[u8; PRIVATE_KEY_BYTES]>,
    public: PublicKey,
}

impl PrivateKey {
    pub(crate) fn generate() -> Self {
        loop {
            // All but one in 2^32 of random numbers are private keys.
            let scalar = Zeroizing::new(crate::random::<PRIVATE_KEY_BYTES>());
            if let Some(key) = Self::from_scalar(&*scalar) {
                return key;
            }
        }
    }

    /// From the number itself, when it is one that a key can be.
    pub(crate) fn from_scalar(bytes: &[u8]) -> Option<Self> {
        let scalar = Zeroizing::new(<[u8; PRIVATE_KEY_BYTES]>::try_from(bytes).ok()?);
        let key = agreement::PrivateKey::from_private_key(&ECDH_P256, &*scalar).ok()?;
        let public = PublicKey::from_bytes(key.compute_public_key().ok()?.as_ref()).ok()?;
        Some(Self { scalar, public })
    }

    pub(crate) fn expose(&self) -> &[u8; PRIVATE_KEY_BYTES] {
        &self.scalar
    }

    pub(crate) const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The secret that both sides of a conversation arrive at.
    pub(crate) fn agree(&self, other: &PublicKey) -> Zeroizing<[u8; 32]> {
        let own = agreement::PrivateKey::from_private_key(&ECDH_P256, &*self.scalar)
            .expect("it was checked when it was read");
        let other = UnparsedPublicKey::new(&ECDH_P256, other.as_bytes());
        agreement::agree(&own, other, (), |secret| {
            <[u8; 32]>::try_from(secret).map(Zeroizing::new).map_err(|_| ())
        })
        .expect("two keys of one curve agree")
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};

    use super::*;

    #[test]
    fn keys_are_read_in_every_spelling_of_base64() {
        let key = *PrivateKey::generate().public();
        let bytes = key.as_bytes();
        for text in [
            key.to_text(),
            URL_SAFE.encode(bytes),
            STANDARD.encode(bytes),
            STANDARD_NO_PAD.encode(bytes),
        ] {
            assert_eq!(PublicKey::parse(&text), Ok(key), "{text}");
        }
    }

    #[test]
    fn what_is_no_point_in_the_usual_form_is_no_key() {
        let key = *PrivateKey::generate().public();
        let mut beside = *key.as_bytes();
        beside[64] ^= 1;
        let compressed = [&[2 | (key.as_bytes()[64] & 1)], &key.as_bytes()[1..33]].concat();
        let longer = [&key.as_bytes()[..], &[0]].concat();
        let mut infinity = [0; 65];
        infinity[0] = UNCOMPRESSED;
        for bytes in [
            &beside[..],
            &compressed,
            &longer,
            &key.as_bytes()[1..],
            &key.as_bytes()[..64],
            &infinity,
            &[0],
            &[],
        ] {
            assert_eq!(PublicKey::from_bytes(bytes), Err(PublicKeyError), "{bytes:?}");
            assert_eq!(PublicKey::parse(&STANDARD.encode(bytes)), Err(PublicKeyError));
        }
        for text in ["", "=", "!", &key.to_text()[1..], &"A".repeat(10_000)] {
            assert_eq!(PublicKey::parse(text), Err(PublicKeyError), "{text}");
        }
    }

    #[test]
    fn private_keys_are_numbers_below_the_order_and_not_zero() {
        let order: [u8; 32] = [
            0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63,
            0x25, 0x51,
        ];
        let mut largest = order;
        largest[31] -= 1;
        assert!(PrivateKey::from_scalar(&largest).is_some());
        for bad in [&order[..], &[0; 32], &[0xff; 32], &[1; 31], &[1; 33], &[]] {
            assert!(PrivateKey::from_scalar(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn two_keys_agree() {
        let (one, two) = (PrivateKey::generate(), PrivateKey::generate());
        assert_eq!(one.agree(two.public()), two.agree(one.public()));
        assert_ne!(one.agree(two.public()), one.agree(one.public()));
    }
}
