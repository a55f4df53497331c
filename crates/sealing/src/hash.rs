//! The hashes that schemes may name.

use std::str::FromStr;

use aws_lc_rs::hmac;

/// A text that names none of the known choices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be one of {known}")]
pub struct UnknownChoice {
    /// What it could be.
    pub known: &'static str,
}

/// A hash under an HMAC. SHA-1 is only here because old receivers ask for it; under an HMAC it
/// still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKind {
    /// `sha1`.
    Sha1,
    /// `sha256`.
    Sha256,
    /// `sha512`.
    Sha512,
}

impl HashKind {
    pub(crate) fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

/// A name for a list of texts, some of them secret: the same for the same list, telling nothing
/// about it.
pub fn fingerprint(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let digest = context.finish();
    std::array::from_fn(|index| digest.as_ref()[index])
}

impl FromStr for HashKind {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        match text {
            "sha1" => Ok(Self::Sha1),
            "sha256" => Ok(Self::Sha256),
            "sha512" => Ok(Self::Sha512),
            _ => Err(UnknownChoice { known: "sha1, sha256, sha512" }),
        }
    }
}
