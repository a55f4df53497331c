//! Bytes as text, and secrets back from the text forms people paste.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use crate::hash::UnknownChoice;
use crate::vault::Secret;

/// How a signature or code is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `hex`, lower case.
    Hex,
    /// `base64`, with padding.
    Base64,
    /// `base64url`, without padding.
    Base64Url,
}

impl Encoding {
    /// The bytes as text.
    pub fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Hex => hex(bytes),
            Self::Base64 => STANDARD.encode(bytes),
            Self::Base64Url => URL_SAFE_NO_PAD.encode(bytes),
        }
    }
}

impl FromStr for Encoding {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        match text {
            "hex" => Ok(Self::Hex),
            "base64" => Ok(Self::Base64),
            "base64url" => Ok(Self::Base64Url),
            _ => Err(UnknownChoice { known: "hex, base64, base64url" }),
        }
    }
}

/// How the text of a secret stands for its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretEncoding {
    /// `utf8`: the text itself.
    Utf8,
    /// `hex`.
    Hex,
    /// `base64`.
    Base64,
    /// `base32`, as authenticator apps show it: any case, with or without blanks and padding.
    Base32,
}

/// A secret that is not written as it should be. The text itself is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the secret is not valid {form}")]
pub struct SecretTextError {
    form: &'static str,
}

impl SecretEncoding {
    /// The bytes of a secret.
    pub fn decode(self, text: &[u8]) -> Result<Secret, SecretTextError> {
        let (form, bytes) = match self {
            Self::Utf8 => return Ok(Secret::from(text)),
            Self::Hex => ("hex", unhex(text)),
            Self::Base64 => ("base64", STANDARD.decode(text).ok()),
            Self::Base32 => ("base32", unbase32(text)),
        };
        bytes.map(Secret::from).ok_or(SecretTextError { form })
    }
}

impl FromStr for SecretEncoding {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        match text {
            "utf8" => Ok(Self::Utf8),
            "hex" => Ok(Self::Hex),
            "base64" => Ok(Self::Base64),
            "base32" => Ok(Self::Base32),
            _ => Err(UnknownChoice { known: "utf8, hex, base64, base32" }),
        }
    }
}

/// Base64 as browsers and their senders write keys: either alphabet, with any
/// padding or none.
pub(crate) fn base64_any(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').replace('+', "-").replace('/', "_");
    URL_SAFE_NO_PAD.decode(text).ok()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let pairs = text.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

fn unbase32(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 5 / 8);
    let (mut pending, mut bits) = (0_u32, 0);
    for byte in text.iter().filter(|byte| !matches!(byte, b' ' | b'-' | b'=')) {
        let digit = match byte.to_ascii_uppercase() {
            letter @ b'A'..=b'Z' => letter - b'A',
            digit @ b'2'..=b'7' => digit - b'2' + 26,
            _ => return None,
        };
        pending = pending << 5 | u32::from(digit);
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            out.push((pending >> bits) as u8);
            pending &= (1 << bits) - 1;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(form: &str, text: &str, bytes: Option<&[u8]>) {
        let form: SecretEncoding = form.parse().expect("a known form");
        assert_eq!(form.decode(text.as_bytes()).ok().as_ref().map(Secret::expose), bytes, "{text}");
    }

    #[test]
    fn secrets_are_read_in_every_form() {
        check("utf8", "grüße", Some("grüße".as_bytes()));
        check("hex", "00fFa5", Some(&[0, 255, 0xA5]));
        check("hex", "0", None);
        check("hex", "0g", None);
        check("base64", "aGk=", Some(b"hi"));
        check("base64", "aGk", None);
        check("base32", "MZXW6YTBOI======", Some(b"foobar"));
        check("base32", "mzxw 6ytb-oi", Some(b"foobar"));
        check("base32", "MZXW6YTB0I", None);
        assert!("rot13".parse::<SecretEncoding>().is_err());
    }

    #[test]
    fn bytes_are_written_in_every_form() {
        let bytes = [0xFB, 0xFF, 0x00];
        assert_eq!(Encoding::Hex.encode(&bytes), "fbff00");
        assert_eq!(Encoding::Base64.encode(&bytes), "+/8A");
        assert_eq!(Encoding::Base64Url.encode(&bytes[..2]), "-_8");
    }
}
