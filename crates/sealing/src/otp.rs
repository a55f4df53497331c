//! One-time codes: RFC 6238 TOTP, and a free HMAC form for receivers with a scheme of their own.
//!
//! A code is only valid for its step, so it is computed when a request is sent, never before.

use std::str::FromStr;

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::encoding::Encoding;
use crate::hash::{HashKind, UnknownChoice};
use crate::vault::Secret;

const OTP: &str = "{otp}";

/// How a salt changes the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaltUse {
    /// `none`: not at all; it is only there for the message.
    None,
    /// `prefix`: salt, then secret.
    Prefix,
    /// `suffix`: secret, then salt.
    Suffix,
    /// `key_xor`: secret XOR salt, the salt repeated as often as needed.
    KeyXor,
}

impl SaltUse {
    fn key(self, secret: &[u8], salt: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::None => secret.to_vec(),
            Self::Prefix => [salt, secret].concat(),
            Self::Suffix => [secret, salt].concat(),
            Self::KeyXor if salt.is_empty() => secret.to_vec(),
            Self::KeyXor => secret.iter().zip(salt.iter().cycle()).map(|(a, b)| a ^ b).collect(),
        })
    }
}

impl FromStr for SaltUse {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        match text {
            "none" => Ok(Self::None),
            "prefix" => Ok(Self::Prefix),
            "suffix" => Ok(Self::Suffix),
            "key_xor" | "key-xor" => Ok(Self::KeyXor),
            _ => Err(UnknownChoice { known: "none, prefix, suffix, key_xor" }),
        }
    }
}

/// Which kind of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// RFC 6238.
    Totp {
        /// How many digits, 6 to 8.
        digits: u32,
    },
    /// An HMAC over a message with placeholders.
    Hmac {
        /// May contain `{step}`, `{salt}`, and the names passed along with each code.
        message: String,
        /// How the HMAC is written.
        encode: Encoding,
    },
    /// The secret itself, as it stands.
    Static,
}

/// Every knob of a one-time code but the secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// Which kind.
    pub method: Method,
    /// The hash under the HMAC.
    pub hash: HashKind,
    /// How the salt changes the key.
    pub salt_use: SaltUse,
    /// How long a code is valid.
    pub step_seconds: i64,
    /// Where steps begin to count, in Unix seconds.
    pub t0: i64,
    /// The value around `{otp}`.
    pub format: String,
}

/// Why there is no code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OtpError {
    /// A step that never ends or never begins.
    #[error("the step of a one-time code must be at least one second")]
    Step,
    /// Fewer are guessable; more do not fit the 31 bits a code is cut from.
    #[error("a one-time code has 6 to 8 digits")]
    Digits,
    /// Nowhere to put the code.
    #[error("the format must contain {{otp}}")]
    Format,
    /// A brace without its counterpart.
    #[error("the message of the one-time code has an unclosed placeholder")]
    Unclosed,
    /// A placeholder nobody has a value for.
    #[error("the message of the one-time code uses `{0}`, which has no value here")]
    Missing(String),
    /// A static code must be text.
    #[error("a static one-time code must be text")]
    NotText,
}

/// A scheme with its secrets.
pub struct Otp {
    key: hmac::Key,
    secret: Secret,
    salt: Secret,
    scheme: Scheme,
}

impl Otp {
    /// Takes the decoded secret, and the salt if there is one.
    pub fn new(secret: Secret, salt: Option<Secret>, scheme: Scheme) -> Result<Self, OtpError> {
        if scheme.step_seconds < 1 {
            return Err(OtpError::Step);
        }
        if matches!(scheme.method, Method::Totp { digits } if !(6..=8).contains(&digits)) {
            return Err(OtpError::Digits);
        }
        if !scheme.format.contains(OTP) {
            return Err(OtpError::Format);
        }
        let salt = salt.unwrap_or_else(|| Secret::from(""));
        let key = scheme.salt_use.key(secret.expose(), salt.expose());
        Ok(Self { key: hmac::Key::new(scheme.hash.hmac(), &key), secret, salt, scheme })
    }

    /// The code of the moment in its format. `values` fill the message's placeholders.
    pub fn code(&self, now: i64, values: &[(&str, &str)]) -> Result<String, OtpError> {
        self.code_of_step(self.step(now), values)
    }

    /// Whether `value` is the code of now or of at most `skew_steps` steps before or after.
    pub fn verify(
        &self,
        value: &str,
        now: i64,
        skew_steps: i64,
        values: &[(&str, &str)],
    ) -> Result<bool, OtpError> {
        let current = self.step(now);
        let mut fits = false;
        for step in current.saturating_sub(skew_steps)..=current.saturating_add(skew_steps) {
            let code = self.code_of_step(step, values)?;
            fits |= bool::from(code.as_bytes().ct_eq(value.as_bytes()));
        }
        Ok(fits)
    }

    fn step(&self, now: i64) -> i64 {
        now.saturating_sub(self.scheme.t0).div_euclid(self.scheme.step_seconds)
    }

    fn code_of_step(&self, step: i64, values: &[(&str, &str)]) -> Result<String, OtpError> {
        let code = match &self.scheme.method {
            Method::Totp { digits } => self.totp(step, *digits),
            Method::Hmac { message, encode } => {
                let message = self.fill(message, step, values)?;
                encode.encode(hmac::sign(&self.key, &message).as_ref())
            }
            Method::Static => self.secret.expose_str().ok_or(OtpError::NotText)?.to_owned(),
        };
        Ok(self.scheme.format.replace(OTP, &code))
    }

    fn totp(&self, step: i64, digits: u32) -> String {
        let tag = hmac::sign(&self.key, &step.to_be_bytes());
        let tag = tag.as_ref();
        // The last four bits say where to cut out 31 bits; every hash is long enough for that.
        let at = usize::from(tag[tag.len() - 1] & 15);
        let cut =
            u32::from_be_bytes([tag[at], tag[at + 1], tag[at + 2], tag[at + 3]]) & (u32::MAX >> 1);
        format!("{:0width$}", cut % 10_u32.pow(digits), width = digits as usize)
    }

    fn fill(
        &self,
        message: &str,
        step: i64,
        values: &[(&str, &str)],
    ) -> Result<Zeroizing<Vec<u8>>, OtpError> {
        let mut out = Zeroizing::new(Vec::with_capacity(message.len() + 64));
        let mut rest = message;
        while let Some((text, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or(OtpError::Unclosed)?;
            out.extend_from_slice(text.as_bytes());
            match name {
                "step" => out.extend_from_slice(step.to_string().as_bytes()),
                "salt" => out.extend_from_slice(self.salt.expose()),
                _ => match values.iter().find(|(known, _)| *known == name) {
                    Some((_, value)) => out.extend_from_slice(value.as_bytes()),
                    None => return Err(OtpError::Missing(name.to_owned())),
                },
            }
            rest = after;
        }
        out.extend_from_slice(rest.as_bytes());
        Ok(out)
    }
}

impl std::fmt::Debug for Otp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Otp").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheme(method: Method, hash: HashKind) -> Scheme {
        Scheme {
            method,
            hash,
            salt_use: SaltUse::None,
            step_seconds: 30,
            t0: 0,
            format: OTP.to_owned(),
        }
    }

    fn hmac_of(message: &str, key: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        crate::encoding::hex(hmac::sign(&key, message.as_bytes()).as_ref())
    }

    #[test]
    fn totp_matches_rfc_6238() {
        let digits = "1234567890".repeat(7);
        for (hash, length, codes) in [
            (HashKind::Sha1, 20, ["94287082", "07081804", "69279037"]),
            (HashKind::Sha256, 32, ["46119246", "68084774", "90698825"]),
            (HashKind::Sha512, 64, ["90693936", "25091201", "38618901"]),
        ] {
            let secret = Secret::from(&digits[..length]);
            let otp =
                Otp::new(secret, None, scheme(Method::Totp { digits: 8 }, hash)).expect("scheme");
            for (now, code) in [59, 1_111_111_109, 2_000_000_000].into_iter().zip(codes) {
                assert_eq!(otp.code(now, &[]).as_deref(), Ok(code), "{hash:?} at {now}");
            }
        }
    }

    #[test]
    fn digits_start_and_step_are_knobs() {
        let secret = || Secret::from("12345678901234567890");
        let six = scheme(Method::Totp { digits: 6 }, HashKind::Sha1);
        let otp = Otp::new(secret(), None, six.clone()).expect("scheme");
        assert_eq!(otp.code(59, &[]).as_deref(), Ok("287082"));
        assert_eq!(otp.code(30, &[]), otp.code(59, &[]));
        assert_ne!(otp.code(60, &[]), otp.code(59, &[]));
        let shifted =
            Scheme { t0: 1000, step_seconds: 60, format: "OTP {otp}".to_owned(), ..six.clone() };
        let otp = Otp::new(secret(), None, shifted).expect("scheme");
        assert_eq!(otp.code(1060, &[]).as_deref(), Ok("OTP 287082"));
        for bad in [
            Scheme { step_seconds: 0, ..six.clone() },
            Scheme { method: Method::Totp { digits: 9 }, ..six.clone() },
            Scheme { format: "x".to_owned(), ..six },
        ] {
            assert!(Otp::new(secret(), None, bad).is_err());
        }
    }

    #[test]
    fn the_hmac_form_fills_its_message() {
        let method = Method::Hmac {
            message: "{tenant}:{step}:{salt}:{shared_key}".to_owned(),
            encode: Encoding::Hex,
        };
        let otp = Otp::new(
            Secret::from("key"),
            Some(Secret::from("na")),
            scheme(method, HashKind::Sha256),
        )
        .expect("scheme");
        let values = [("tenant", "tenant1"), ("shared_key", "sk")];
        assert_eq!(otp.code(61, &values), Ok(hmac_of("tenant1:2:na:sk", b"key")));
        assert_eq!(otp.code(61, &values[..1]), Err(OtpError::Missing("shared_key".to_owned())));
        assert_eq!(otp.verify(&hmac_of("tenant1:1:na:sk", b"key"), 61, 1, &values), Ok(true));
        assert_eq!(otp.verify(&hmac_of("tenant1:3:na:sk", b"key"), 61, 1, &values), Ok(true));
        assert_eq!(otp.verify(&hmac_of("tenant1:0:na:sk", b"key"), 61, 1, &values), Ok(false));
        assert_eq!(otp.verify(&hmac_of("tenant1:1:na:sk", b"key"), 61, 0, &values), Ok(false));
    }

    #[test]
    fn salts_change_the_key_as_told() {
        for (salt_use, key) in [
            ("none", &b"abcd"[..]),
            ("prefix", b"\x01\x02abcd"),
            ("suffix", b"abcd\x01\x02"),
            ("key_xor", b"\x60\x60\x62\x66"),
            ("key-xor", b"\x60\x60\x62\x66"),
        ] {
            let method = Method::Hmac { message: "m".to_owned(), encode: Encoding::Hex };
            let salt_use = salt_use.parse().expect("known");
            let scheme = Scheme { salt_use, ..scheme(method, HashKind::Sha256) };
            let salt = Some(Secret::from(&[1, 2][..]));
            let otp = Otp::new(Secret::from("abcd"), salt, scheme).expect("scheme");
            assert_eq!(otp.code(0, &[]), Ok(hmac_of("m", key)), "{salt_use:?}");
        }
    }

    #[test]
    fn a_static_code_is_the_secret() {
        let form =
            Scheme { format: "Bearer {otp}".to_owned(), ..scheme(Method::Static, HashKind::Sha1) };
        let otp = Otp::new(Secret::from("s3"), None, form).expect("scheme");
        assert_eq!(otp.code(0, &[]).as_deref(), Ok("Bearer s3"));
        assert!(!format!("{otp:?}").contains("s3"));
    }
}
