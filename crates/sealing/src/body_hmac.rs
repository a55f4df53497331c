//! HMAC in a header, in whichever of the many shapes a receiver expects.

use std::str::FromStr;

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;

use crate::encoding::Encoding;
use crate::hash::{HashKind, UnknownChoice};

const SIGNATURE: &str = "{signature}";
const TIMESTAMP: &str = "{timestamp}";

/// What is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// `body`.
    Body,
    /// `timestamp_and_body`: the time in seconds, a dot, and the body.
    TimestampAndBody,
}

impl FromStr for Content {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        match text {
            "body" => Ok(Self::Body),
            "timestamp_and_body" => Ok(Self::TimestampAndBody),
            _ => Err(UnknownChoice { known: "body, timestamp_and_body" }),
        }
    }
}

/// The shape of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// The hash under the HMAC.
    pub hash: HashKind,
    /// How the signature is written.
    pub encoding: Encoding,
    /// What is signed.
    pub content: Content,
    /// The value around `{signature}`, and `{timestamp}` where wanted: `sha256={signature}`,
    /// `t={timestamp},v1={signature}`.
    pub format: String,
}

/// A format without a place for the signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the format must contain {{signature}}")]
pub struct FormatError;

/// A scheme with its key.
#[derive(Clone)]
pub struct BodyHmac {
    key: hmac::Key,
    scheme: Scheme,
}

impl BodyHmac {
    /// Takes the key as raw bytes.
    pub fn new(secret: &[u8], scheme: Scheme) -> Result<Self, FormatError> {
        if !scheme.format.contains(SIGNATURE) {
            return Err(FormatError);
        }
        Ok(Self { key: hmac::Key::new(scheme.hash.hmac(), secret), scheme })
    }

    /// The header's value.
    pub fn sign(&self, timestamp: i64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.key);
        if self.scheme.content == Content::TimestampAndBody {
            context.update(format!("{timestamp}.").as_bytes());
        }
        context.update(body);
        let signature = self.scheme.encoding.encode(context.sign().as_ref());
        self.scheme.format.replace(TIMESTAMP, &timestamp.to_string()).replace(SIGNATURE, &signature)
    }

    /// Whether a header's value is the one we would send, in constant time.
    pub fn verify(&self, timestamp: i64, body: &[u8], value: &str) -> bool {
        self.sign(timestamp, body).as_bytes().ct_eq(value.as_bytes()).into()
    }
}

impl std::fmt::Debug for BodyHmac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyHmac").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(secret: &[u8], form: [&str; 4], body: &[u8], expected: &str) {
        let [hash, encoding, content, format] = form;
        let scheme = Scheme {
            hash: hash.parse().expect("hash"),
            encoding: encoding.parse().expect("encoding"),
            content: content.parse().expect("content"),
            format: format.to_owned(),
        };
        let signer = BodyHmac::new(secret, scheme).expect("scheme");
        assert_eq!(signer.sign(7, body), expected);
        assert!(signer.verify(7, body, expected));
        assert!(!signer.verify(7, b"other", expected));
        assert!(!signer.verify(7, body, &expected[1..]));
    }

    #[test]
    fn known_vectors_hold_in_every_shape() {
        // RFC 2202 case 2, RFC 4231 case 2.
        let (key, body) = (b"Jefe", b"what do ya want for nothing?");
        check(
            key,
            ["sha1", "hex", "body", "sha1={signature}"],
            body,
            "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
        );
        check(
            key,
            ["sha256", "hex", "body", "{signature}"],
            body,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        );
        check(
            key,
            ["sha256", "base64", "body", "t={timestamp},v1={signature}"],
            body,
            "t=7,v1=W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOEM=",
        );
        check(
            key,
            ["sha512", "hex", "body", "{signature}"],
            body,
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d03\
             4f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
        );
    }

    #[test]
    fn the_timestamp_can_be_covered() {
        let with = |content| {
            let scheme = Scheme {
                hash: HashKind::Sha256,
                encoding: Encoding::Hex,
                content,
                format: SIGNATURE.to_owned(),
            };
            BodyHmac::new(b"k", scheme).expect("scheme")
        };
        let covered = with(Content::TimestampAndBody);
        assert_eq!(covered.sign(7, b"x"), with(Content::Body).sign(0, b"7.x"));
        assert!(!covered.verify(8, b"x", &covered.sign(7, b"x")));
    }

    #[test]
    fn a_format_needs_a_place_for_the_signature() {
        let scheme = Scheme {
            hash: HashKind::Sha1,
            encoding: Encoding::Hex,
            content: Content::Body,
            format: "sha1=".to_owned(),
        };
        assert_eq!(BodyHmac::new(b"k", scheme).expect_err("format"), FormatError);
    }
}
