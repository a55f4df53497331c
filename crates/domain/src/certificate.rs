//! The registry of certificates: who we are to receivers, who callers are to us, and which
//! authorities we trust for receivers that no public one vouches for.
//!
//! It must not know how a certificate is read or used in a handshake. What it holds was checked
//! when it was registered; the private key, where there is one, is sealed.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{CatalogVersion, CertificateId, Scope, TenantId, Timestamp};

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateKind {
    /// Shown to receivers: in the TLS handshake, or by its thumbprint in a header for an outbound
    /// proxy that holds the key.
    Client,
    /// Shown to us by callers, through a proxy that ends their TLS.
    Caller,
    /// Signs receivers' certificates; trusted only where a policy names it.
    Authority,
}

impl CertificateKind {
    /// All of them.
    pub const ALL: [CertificateKind; 3] = [Self::Client, Self::Caller, Self::Authority];

    /// The stable name, as stores and the API write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Caller => "caller",
            Self::Authority => "authority",
        }
    }

    /// Back from a store.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// SHA-256 of a certificate's DER form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thumbprint(pub [u8; 32]);

/// Why a text is not a thumbprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not the SHA-256 of a certificate: write its 64 hex digits")]
pub struct ThumbprintError;

impl fmt::Display for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Thumbprint {
    type Err = ThumbprintError;

    /// From 64 hex digits of any case.
    fn from_str(text: &str) -> Result<Self, ThumbprintError> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(ThumbprintError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(ThumbprintError);
            // Two hex digits are at most 255.
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Thumbprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Thumbprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One certificate of the registry.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// Its id. A rotation keeps it.
    pub id: CertificateId,
    /// Whose.
    pub tenant: TenantId,
    /// What it is for.
    pub kind: CertificateKind,
    /// For people.
    pub description: String,
    /// To whom it belongs inside the tenant, such as a country; empty when that does not matter.
    pub owner: String,
    /// `client`: the host it is for, when policies find it by the host of the URL.
    pub host: String,
    /// `caller`: what its bearer may do.
    pub scopes: Vec<Scope>,
    /// Of the first certificate of the chain.
    pub thumbprint: Thumbprint,
    /// The subject of the first certificate.
    pub subject: String,
    /// The chain, the certificate itself first.
    pub pem: String,
    /// `client`: the private key, sealed; none when a proxy holds it.
    #[serde(with = "crate::base64_text::maybe")]
    pub sealed_key: Option<Bytes>,
    /// From when it is valid.
    pub not_before: Timestamp,
    /// Until when it is valid.
    pub not_after: Timestamp,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When its contents were last replaced.
    pub updated_at: Timestamp,
    /// When it was revoked; for good.
    pub revoked_at: Option<Timestamp>,
    /// The catalog version of its last change, set by the store.
    pub version: CatalogVersion,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("thumbprint", &self.thumbprint)
            .finish_non_exhaustive()
    }
}

impl Certificate {
    /// Whether it may be used at `now`; otherwise why not.
    pub fn usable(&self, now: Timestamp) -> Result<(), &'static str> {
        if self.revoked_at.is_some() {
            Err("is revoked")
        } else if now < self.not_before {
            Err("is not valid yet")
        } else if now >= self.not_after {
            Err("has expired")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thumbprints_are_hex_of_any_case_and_of_full_length() {
        let text = "00ff".repeat(16);
        let parsed: Thumbprint = text.parse().expect("hex");
        assert_eq!(parsed.to_string(), text);
        assert_eq!(text.to_uppercase().parse(), Ok(parsed));
        for bad in ["", "00", &text[1..], &format!("{text}0"), &text.replace('f', "g"), "é"] {
            assert_eq!(bad.parse::<Thumbprint>(), Err(ThumbprintError), "{bad}");
        }
    }

    #[test]
    fn kinds_have_stable_names() {
        for kind in CertificateKind::ALL {
            assert_eq!(CertificateKind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(CertificateKind::parse("CLIENT"), None);
    }
}
