//! Signatures after the Standard Webhooks specification: `v1` (HMAC-SHA-256) and `v1a` (Ed25519).
//!
//! What is signed is `{id}.{timestamp}.{body}`. During a rotation a message carries one signature
//! per live secret, separated by blanks, so receivers may change over whenever they like.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The header with the message's id.
pub const HEADER_ID: &str = "webhook-id";
/// The header with the attempt's time.
pub const HEADER_TIMESTAMP: &str = "webhook-timestamp";
/// The header with the signatures.
pub const HEADER_SIGNATURE: &str = "webhook-signature";

/// What the three headers are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    /// The id of the message.
    pub id: &'static str,
    /// The time of the attempt.
    pub timestamp: &'static str,
    /// The signatures.
    pub signature: &'static str,
}

impl HeaderNames {
    /// As the specification has them.
    pub const WEBHOOK: Self =
        Self { id: HEADER_ID, timestamp: HEADER_TIMESTAMP, signature: HEADER_SIGNATURE };
    /// As receivers of Svix know them.
    pub const SVIX: Self =
        Self { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

    /// Those that a request has: the usual ones, unless there are only the others.
    pub fn in_use(has: impl Fn(&str) -> bool) -> Self {
        let other = !has(HEADER_SIGNATURE) && has(Self::SVIX.signature);
        if other { Self::SVIX } else { Self::WEBHOOK }
    }
}
/// How far clocks may be apart, in seconds, unless somebody knows better.
pub const TOLERANCE_SECONDS: i64 = 300;

const HMAC_PREFIX: &str = "whsec_";
const PRIVATE_PREFIX: &str = "whsk_";
const PUBLIC_PREFIX: &str = "whpk_";
const HMAC_BYTES_MIN: usize = 24;
/// Some platforms give out up to 75 bytes; whoever moves here brings them along.
const HMAC_BYTES_MAX: usize = 75;
const HMAC_BYTES_FRESH: usize = 32;
const SEED_BYTES: usize = 32;
const PUBLIC_BYTES: usize = 32;

/// Why a text is not a signing secret or public key. It never repeats the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// No known prefix.
    #[error("a signing secret begins with whsec_ (symmetric) or whsk_ (Ed25519)")]
    Prefix,
    /// Not base64 after the prefix.
    #[error("after its prefix the key must be standard base64 with padding")]
    Base64,
    /// Too short to be safe, or too long to be portable.
    #[error("a whsec_ secret must encode {HMAC_BYTES_MIN} to {HMAC_BYTES_MAX} bytes, not {length}")]
    Length {
        /// How many bytes it stands for.
        length: usize,
    },
    /// Not a seed, or not one that fits the public key stored with it.
    #[error("a whsk_ secret must encode a seed of 32 bytes, or seed and public key")]
    Seed,
    /// Not a public key.
    #[error("a public key is whpk_ followed by the base64 of 32 bytes")]
    PublicKey,
}

/// Why a message is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// Signed too long ago.
    #[error("the message is too old")]
    TooOld,
    /// Signed in the future.
    #[error("the timestamp of the message is in the future")]
    TooNew,
    /// None of the signatures fits.
    #[error("no signature matches")]
    Signature,
}

/// The two kinds of signing secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SecretKind {
    /// Shared with the receiver; signs `v1`.
    #[default]
    Hmac,
    /// The receiver has the public half only; signs `v1a`.
    Ed25519,
}

impl SecretKind {
    /// What it is called.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hmac => "hmac",
            Self::Ed25519 => "ed25519",
        }
    }
}

/// A secret that signs messages. Cheap to clone.
#[derive(Clone)]
pub enum SigningSecret {
    /// Shared with the receiver: `whsec_…`.
    Hmac(HmacSecret),
    /// The receiver only has the public key: `whsk_…`.
    Ed25519(Ed25519Secret),
}

/// The symmetric kind. The key as the library wants it is made for each signature: it takes half a microsecond, and
/// forty times the memory of these bytes, of which a server has one for every subscription.
#[derive(Clone)]
pub struct HmacSecret {
    bytes: Arc<Zeroizing<Vec<u8>>>,
}

/// The asymmetric kind.
#[derive(Clone)]
pub struct Ed25519Secret {
    seed: Arc<Zeroizing<[u8; SEED_BYTES]>>,
    pair: Arc<Ed25519KeyPair>,
}

impl SigningSecret {
    /// A fresh secret of a kind.
    pub fn generate_of(kind: SecretKind) -> Self {
        match kind {
            SecretKind::Hmac => Self::generate(),
            SecretKind::Ed25519 => Self::generate_ed25519(),
        }
    }

    /// The secret of a kind that is made of these bytes.
    pub fn made_of(kind: SecretKind, bytes: Zeroizing<[u8; 32]>) -> Self {
        match kind {
            SecretKind::Hmac => Self::hmac(bytes[..HMAC_BYTES_FRESH].to_vec()),
            SecretKind::Ed25519 => {
                Self::ed25519(bytes).expect("any 32 bytes are the seed of an Ed25519 key")
            }
        }
    }

    /// A fresh symmetric secret.
    pub fn generate() -> Self {
        Self::hmac(crate::random::<HMAC_BYTES_FRESH>().to_vec())
    }

    /// A fresh asymmetric secret.
    pub fn generate_ed25519() -> Self {
        Self::ed25519(Zeroizing::new(crate::random()))
            .expect("any 32 bytes are the seed of an Ed25519 key")
    }

    /// Reads `whsec_…` or `whsk_…`.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let decode = |encoded: &str| {
            STANDARD.decode(encoded).map(Zeroizing::new).map_err(|_| SecretError::Base64)
        };
        if let Some(encoded) = text.strip_prefix(HMAC_PREFIX) {
            let bytes = decode(encoded)?;
            let length = bytes.len();
            if !(HMAC_BYTES_MIN..=HMAC_BYTES_MAX).contains(&length) {
                return Err(SecretError::Length { length });
            }
            Ok(Self::hmac(bytes.to_vec()))
        } else if let Some(encoded) = text.strip_prefix(PRIVATE_PREFIX) {
            let bytes = decode(encoded)?;
            let (seed, public) =
                bytes.split_first_chunk::<SEED_BYTES>().ok_or(SecretError::Seed)?;
            let secret = Self::ed25519(Zeroizing::new(*seed))?;
            // Some tools write the private key with its public half appended.
            match (public, secret.public_key()) {
                ([], _) => Ok(secret),
                (public, Some(own)) if own.0 == public => Ok(secret),
                _ => Err(SecretError::Seed),
            }
        } else {
            Err(SecretError::Prefix)
        }
    }

    fn hmac(bytes: Vec<u8>) -> Self {
        Self::Hmac(HmacSecret { bytes: Arc::new(Zeroizing::new(bytes)) })
    }

    fn ed25519(seed: Zeroizing<[u8; SEED_BYTES]>) -> Result<Self, SecretError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&*seed).map_err(|_| SecretError::Seed)?;
        Ok(Self::Ed25519(Ed25519Secret { seed: Arc::new(seed), pair: Arc::new(pair) }))
    }

    /// Which kind it is.
    pub fn kind(&self) -> SecretKind {
        match self {
            Self::Hmac(_) => SecretKind::Hmac,
            Self::Ed25519(_) => SecretKind::Ed25519,
        }
    }

    /// The text form, to be shown to its owner and to be sealed.
    pub fn to_text(&self) -> String {
        match self {
            Self::Hmac(secret) => format!("{HMAC_PREFIX}{}", STANDARD.encode(&**secret.bytes)),
            Self::Ed25519(secret) => {
                format!("{PRIVATE_PREFIX}{}", STANDARD.encode(**secret.seed))
            }
        }
    }

    /// What receivers verify with; only for the asymmetric kind.
    pub fn public_key(&self) -> Option<PublicKey> {
        match self {
            Self::Hmac(_) => None,
            Self::Ed25519(secret) => {
                let bytes = secret.pair.public_key().as_ref();
                Some(PublicKey(std::array::from_fn(|index| bytes[index])))
            }
        }
    }

    /// One signature, `v1,…` or `v1a,…`.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut out = String::with_capacity(96);
        self.sign_into(&mut out, id, timestamp, body);
        out
    }

    fn sign_into(&self, out: &mut String, id: &str, timestamp: i64, body: &[u8]) {
        match self {
            Self::Hmac(secret) => {
                out.push_str("v1,");
                STANDARD.encode_string(secret.tag(id, timestamp, body), out);
            }
            Self::Ed25519(secret) => {
                out.push_str("v1a,");
                STANDARD.encode_string(secret.pair.sign(&content(id, timestamp, body)), out);
            }
        }
    }

    /// Whether one of the `signatures` of a message is ours, and its time is near `now`.
    pub fn verify(
        &self,
        id: &str,
        timestamp: i64,
        signatures: &str,
        body: &[u8],
        now: i64,
        tolerance_seconds: i64,
    ) -> Result<(), VerifyError> {
        check_time(timestamp, now, tolerance_seconds)?;
        match self {
            Self::Hmac(secret) => {
                let tag = secret.tag(id, timestamp, body);
                let fits = of_version(signatures, "v1")
                    .any(|signature| bool::from(signature.ct_eq(tag.as_ref())));
                fits.then_some(()).ok_or(VerifyError::Signature)
            }
            Self::Ed25519(_) => self
                .public_key()
                .ok_or(VerifyError::Signature)?
                .check(id, timestamp, signatures, body),
        }
    }
}

impl HmacSecret {
    fn tag(&self, id: &str, timestamp: i64, body: &[u8]) -> hmac::Tag {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.bytes);
        let mut context = hmac::Context::with_key(&key);
        context.update(id.as_bytes());
        context.update(format!(".{timestamp}.").as_bytes());
        context.update(body);
        context.sign()
    }
}

/// One header value with a signature by every secret.
pub fn signature_header<'a>(
    secrets: impl IntoIterator<Item = &'a SigningSecret>,
    id: &str,
    timestamp: i64,
    body: &[u8],
) -> String {
    let mut out = String::with_capacity(96);
    for secret in secrets {
        if !out.is_empty() {
            out.push(' ');
        }
        secret.sign_into(&mut out, id, timestamp, body);
    }
    out
}

/// What a receiver of `v1a` signatures has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; PUBLIC_BYTES]);

impl PublicKey {
    /// Reads `whpk_…`.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let encoded = text.strip_prefix(PUBLIC_PREFIX).ok_or(SecretError::PublicKey)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| SecretError::PublicKey)?;
        bytes.try_into().map(Self).map_err(|_| SecretError::PublicKey)
    }

    /// The key itself.
    pub fn as_bytes(&self) -> &[u8; PUBLIC_BYTES] {
        &self.0
    }

    /// Like [`SigningSecret::verify`], without the secret.
    pub fn verify(
        &self,
        id: &str,
        timestamp: i64,
        signatures: &str,
        body: &[u8],
        now: i64,
        tolerance_seconds: i64,
    ) -> Result<(), VerifyError> {
        check_time(timestamp, now, tolerance_seconds)?;
        self.check(id, timestamp, signatures, body)
    }

    fn check(
        &self,
        id: &str,
        timestamp: i64,
        signatures: &str,
        body: &[u8],
    ) -> Result<(), VerifyError> {
        let key = UnparsedPublicKey::new(&ED25519, &self.0);
        let content = content(id, timestamp, body);
        let fits =
            of_version(signatures, "v1a").any(|signature| key.verify(&content, &signature).is_ok());
        fits.then_some(()).ok_or(VerifyError::Signature)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC_PREFIX}{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hmac(_) => f.write_str("SigningSecret(whsec, redacted)"),
            Self::Ed25519(_) => f.write_str("SigningSecret(whsk, redacted)"),
        }
    }
}

fn content(id: &str, timestamp: i64, body: &[u8]) -> Vec<u8> {
    let head = format!("{id}.{timestamp}.");
    [head.as_bytes(), body].concat()
}

fn check_time(timestamp: i64, now: i64, tolerance: i64) -> Result<(), VerifyError> {
    if timestamp < now.saturating_sub(tolerance) {
        Err(VerifyError::TooOld)
    } else if timestamp > now.saturating_add(tolerance) {
        Err(VerifyError::TooNew)
    } else {
        Ok(())
    }
}

/// The decoded signatures of one version. Others, and what is not base64, are passed over: a
/// sender may add versions we do not know.
fn of_version<'a>(signatures: &'a str, version: &'a str) -> impl Iterator<Item = Vec<u8>> + 'a {
    signatures
        .split(' ')
        .filter_map(|signature| signature.split_once(','))
        .filter(move |(found, _)| *found == version)
        .filter_map(|(_, encoded)| STANDARD.decode(encoded).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const AT: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn verify(secret: &SigningSecret, signatures: &str) -> Result<(), VerifyError> {
        secret.verify(ID, AT, signatures, BODY, AT, TOLERANCE_SECONDS)
    }

    #[test]
    fn the_published_vector_holds() {
        let secret =
            SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("secret");
        let signature = secret.sign(ID, AT, BODY);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(verify(&secret, &signature), Ok(()));
    }

    #[test]
    fn another_implementation_agrees() {
        for _ in 0..20 {
            let ours = SigningSecret::generate();
            let theirs = standardwebhooks::Webhook::new(&ours.to_text()).expect("secret");
            assert_eq!(ours.sign(ID, AT, BODY), theirs.sign(ID, AT, BODY).expect("signs"));
            assert_eq!(verify(&ours, &theirs.sign(ID, AT, BODY).expect("signs")), Ok(()));
        }
    }

    #[test]
    fn ed25519_matches_rfc_8032_and_verifies_without_the_secret() {
        // Test 1 of RFC 8032, section 7.1: this seed has this public key.
        let seed: [u8; 32] = [
            0x9D, 0x61, 0xB1, 0x9D, 0xEF, 0xFD, 0x5A, 0x60, 0xBA, 0x84, 0x4A, 0xF4, 0x92, 0xEC,
            0x2C, 0xC4, 0x44, 0x49, 0xC5, 0x69, 0x7B, 0x32, 0x69, 0x19, 0x70, 0x3B, 0xAC, 0x03,
            0x1C, 0xAE, 0x7F, 0x60,
        ];
        let text = format!("whsk_{}", STANDARD.encode(seed));
        let secret = SigningSecret::parse(&text).expect("secret");
        assert_eq!(secret.to_text(), text);
        let public = secret.public_key().expect("public key");
        assert_eq!(public.to_string(), "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=");
        let both = format!("whsk_{}", STANDARD.encode([seed, public.0].concat()));
        assert_eq!(SigningSecret::parse(&both).expect("both halves").to_text(), text);

        let signature = secret.sign(ID, AT, BODY);
        assert!(signature.starts_with("v1a,"));
        assert_eq!(verify(&secret, &signature), Ok(()));
        let public = PublicKey::parse(&public.to_string()).expect("parses");
        assert_eq!(public.verify(ID, AT, &signature, BODY, AT + 1, 5), Ok(()));
        assert_eq!(public.verify(ID, AT, &signature, b"x", AT, 5), Err(VerifyError::Signature));
        assert!(SigningSecret::generate_ed25519().public_key().is_some());
        assert!(SigningSecret::generate().public_key().is_none());
    }

    #[test]
    fn rotation_carries_every_signature() {
        let secrets = [
            SigningSecret::generate(),
            SigningSecret::generate_ed25519(),
            SigningSecret::generate(),
        ];
        let header = signature_header(&secrets, ID, AT, BODY);
        assert_eq!(header.split(' ').count(), 3);
        for secret in &secrets {
            assert_eq!(verify(secret, &header), Ok(()));
        }
        assert_eq!(verify(&SigningSecret::generate(), &header), Err(VerifyError::Signature));
        assert_eq!(signature_header([], ID, AT, BODY), "");
    }

    #[test]
    fn anything_else_is_refused() {
        let secret = SigningSecret::generate();
        let good = secret.sign(ID, AT, BODY);
        for bad in ["", "v1", "v1,", "v1,x", "v2,abcd", &good[3..], &good.replace("v1,", "v1a,")] {
            assert_eq!(verify(&secret, bad), Err(VerifyError::Signature), "{bad}");
        }
        let check = |id, timestamp, body, now| secret.verify(id, timestamp, &good, body, now, 300);
        assert_eq!(check("other", AT, BODY, AT), Err(VerifyError::Signature));
        assert_eq!(check(ID, AT + 1, BODY, AT), Err(VerifyError::Signature));
        assert_eq!(check(ID, AT, b"other", AT), Err(VerifyError::Signature));
        assert_eq!(check(ID, AT, BODY, AT + 300), Ok(()));
        assert_eq!(check(ID, AT, BODY, AT + 301), Err(VerifyError::TooOld));
        assert_eq!(check(ID, AT, BODY, AT - 300), Ok(()));
        assert_eq!(check(ID, AT, BODY, AT - 301), Err(VerifyError::TooNew));
        assert_eq!(check(ID, AT, BODY, i64::MAX), Err(VerifyError::TooOld));
    }

    #[test]
    fn secrets_are_checked_when_read() {
        let with = |length: usize| format!("whsec_{}", STANDARD.encode(vec![7; length]));
        for (text, expected) in [
            ("plain".to_owned(), SecretError::Prefix),
            ("whsec_???".to_owned(), SecretError::Base64),
            (with(23), SecretError::Length { length: 23 }),
            (with(76), SecretError::Length { length: 76 }),
            (format!("whsk_{}", STANDARD.encode([7; 31])), SecretError::Seed),
            (format!("whsk_{}", STANDARD.encode([7; 64])), SecretError::Seed),
        ] {
            assert_eq!(SigningSecret::parse(&text).expect_err(&text), expected);
        }
        for length in [24, 32, 64, 75] {
            let secret = SigningSecret::parse(&with(length)).expect("secret");
            assert_eq!(secret.to_text(), with(length));
            assert!(!format!("{secret:?}").contains("Bwc"));
        }
        assert!(PublicKey::parse("whpk_AAAA").is_err());
    }
}
