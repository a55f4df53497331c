//! The sending side: a key, and headers made with it.

use std::fmt;

use aws_lc_rs::encoding::AsBigEndian;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use posthorn_domain::TenantId;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::encoding::base64_any;
use crate::hkdf::derive;
use crate::p256::{PRIVATE_KEY_BYTES, PrivateKey, PublicKey};
use crate::vault::{Secret, VaultKey};

const HEADER: &[u8] = br#"{"typ":"JWT","alg":"ES256"}"#;
/// Longest text worth reading: a PEM file of one key has a few hundred bytes.
const TEXT_BYTES_MAX: usize = 4_096;

/// Why a text is not a sender's key. The text itself is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a VAPID key must be the base64url of 32 bytes, or a P-256 private key as PEM or base64 DER"
)]
pub struct SenderKeyError;

/// The private key of a sender.
pub struct SenderKey {
    key: PrivateKey,
    pair: EcdsaKeyPair,
}

#[derive(Serialize)]
struct Claims<'a> {
    aud: &'a str,
    exp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<&'a str>,
}

impl SenderKey {
    /// A fresh key.
    pub fn generate() -> Self {
        Self::new(PrivateKey::generate())
    }

    /// The key with which this server sends for a tenant: always the same for one key of the vault,
    /// with no way back to that, and none to the key of another tenant.
    pub fn derived_from(key: &VaultKey, tenant: TenantId) -> Self {
        // All but one in 2^32 of random numbers are private keys, so the first is almost always one.
        let numbered = |number: u8| {
            let info: [&[u8]; 3] = [b"posthorn push sender key", tenant.as_bytes(), &[number]];
            let scalar = derive::<PRIVATE_KEY_BYTES>(b"", key.expose(), &info);
            PrivateKey::from_scalar(&*scalar)
        };
        let found = (0..=u8::MAX).find_map(numbered);
        Self::new(found.expect("256 numbers in a row that are no keys do not happen"))
    }

    /// Reads a key as the tools of this trade write it: the bare number in base64url, or PKCS#8 or
    /// SEC 1, in PEM or as bare base64.
    pub fn parse(text: &str) -> Result<Self, SenderKeyError> {
        let text = text.trim();
        if text.len() > TEXT_BYTES_MAX {
            return Err(SenderKeyError);
        }
        // The parameters of the curve may stand in a block of their own before the key.
        let block = text.rfind("-----BEGIN ").map_or(text, |at| &text[at..]);
        let base64: Zeroizing<String> = Zeroizing::new(
            block.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect(),
        );
        let bytes = Zeroizing::new(base64_any(&base64).ok_or(SenderKeyError)?);
        if let Some(key) = PrivateKey::from_scalar(&bytes) {
            return Ok(Self::new(key));
        }
        let pair = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, &bytes)
            .map_err(|_| SenderKeyError)?;
        let scalar = pair.private_key().as_be_bytes().map_err(|_| SenderKeyError)?;
        let key = PrivateKey::from_scalar(scalar.as_ref()).ok_or(SenderKeyError)?;
        Ok(Self { key, pair })
    }

    fn new(key: PrivateKey) -> Self {
        let pair = EcdsaKeyPair::from_private_key_and_public_key(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            key.expose(),
            key.public().as_bytes(),
        )
        .expect("the public key was computed from the private one");
        Self { key, pair }
    }

    /// The text form: the bare number in base64url, which all tools read.
    pub fn to_text(&self) -> Secret {
        Secret::from(URL_SAFE_NO_PAD.encode(self.key.expose()))
    }

    /// What browsers get to ask for an endpoint of this sender, and push services to verify it.
    pub fn public_key(&self) -> &PublicKey {
        self.key.public()
    }

    /// A signed token for the push service with this origin, until a time in Unix seconds. Push
    /// services ask that it is at most 24 hours ahead; some want a subject, a `mailto:` or
    /// `https:` URL of whoever answers for the sender.
    pub fn token(&self, audience: &str, expires_at: i64, subject: Option<&str>) -> String {
        let claims = Claims { aud: audience, exp: expires_at, sub: subject };
        let claims = serde_json::to_vec(&claims).expect("claims are texts and numbers");
        let mut token = URL_SAFE_NO_PAD.encode(HEADER);
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        let signature = self.pair.sign(&SystemRandom::new(), token.as_bytes());
        let signature = signature.expect("signing needs nothing but randomness");
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        token
    }

    /// The value of `Authorization` in the form of RFC 8292. There is no blank behind the comma:
    /// some readers split at the last one.
    pub fn authorization(&self, audience: &str, expires_at: i64, subject: Option<&str>) -> String {
        let token = self.token(audience, expires_at, subject);
        format!("vapid t={token},k={}", self.public_key().to_text())
    }
}

impl fmt::Debug for SenderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SenderKey({})", self.public_key().to_text())
    }
}
