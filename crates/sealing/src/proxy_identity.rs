//! Who called, as told by a proxy that ended their TLS: the thumbprint of the client certificate
//! and its subject, each in a header.
//!
//! Proxies disagree on spelling. A thumbprint comes as 64 hex digits of any case, or as base 64,
//! perhaps percent-encoded, perhaps without leading zero bytes; a subject comes percent-encoded or
//! not, with its parts in any order. Everything here reads texts; whether the proxy is believed, and
//! whether anybody has that certificate, is decided elsewhere.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use posthorn_domain::Thumbprint;

/// Longest text worth reading: base 64 of 32 bytes with every byte percent-encoded is shorter.
const THUMBPRINT_TEXT_MAX: usize = 256;
/// Longest subject worth reading.
const SUBJECT_TEXT_MAX: usize = 4_096;

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// The thumbprint a header names, in whichever spelling.
pub fn thumbprint(text: &str) -> Option<Thumbprint> {
    let text = text.trim();
    if text.len() > THUMBPRINT_TEXT_MAX {
        return None;
    }
    let decoded = percent_decoded(text)?;
    let text = decoded.trim();
    if let Ok(hex) = text.parse() {
        return Some(hex);
    }
    // Some write the digits in pairs.
    if let Ok(hex) = text.replace(':', "").parse() {
        return Some(hex);
    }
    let bytes = BASE64.decode(text).or_else(|_| BASE64_URL.decode(text)).ok()?;
    // A number that began with zeros may have lost them.
    if bytes.len() > 32 || bytes.len() < 28 {
        return None;
    }
    let mut whole = [0; 32];
    whole[32 - bytes.len()..].copy_from_slice(&bytes);
    Some(Thumbprint(whole))
}

/// One part of a subject such as `C=DE,O=Example,CN=backend`: the value of the first part with this
/// key, which is compared without regard to case. Parts that are not `key=value` are passed over.
pub fn subject_part(subject: &str, key: &str) -> Option<String> {
    if subject.len() > SUBJECT_TEXT_MAX {
        return None;
    }
    let subject = percent_decoded(subject)?;
    parts(&subject).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let fits = name.eq_ignore_ascii_case(key) && !value.is_empty() && !value.contains('=');
        fits.then(|| value.to_owned())
    })
}

/// The parts between commas. A comma that is escaped or quoted belongs to a value: `CN=a\,C=DE` says
/// nothing about a country.
fn parts(subject: &str) -> impl Iterator<Item = &str> {
    let (mut escaped, mut quoted) = (false, false);
    subject.split(move |c| {
        let literal = std::mem::take(&mut escaped);
        match c {
            '\\' if !literal => escaped = true,
            '"' if !literal => quoted = !quoted,
            ',' => return !literal && !quoted,
            _ => {}
        }
        false
    })
}

/// Undoes percent-encoding. A plus sign stays one: it is a digit of base 64.
fn percent_decoded(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        // Two hex digits are at most 255.
        bytes.push((high << 4 | low) as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "00fb10ff2233445566778899aabbccddeeff00112233445566778899aabbccdd";

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(thumbprint(text).map(|found| found.to_string()).as_deref(), expected, "{text}");
    }

    #[test]
    fn thumbprints_are_read_in_every_spelling() {
        let bytes = HEX.parse::<Thumbprint>().expect("hex").0;
        check(HEX, Some(HEX));
        check(&HEX.to_uppercase(), Some(HEX));
        check(&format!(" {HEX} "), Some(HEX));
        let pairs: Vec<&str> = (0..32).map(|at| &HEX[2 * at..2 * at + 2]).collect();
        check(&pairs.join(":"), Some(HEX));
        let text = BASE64.encode(bytes);
        check(&text, Some(HEX));
        check(text.trim_end_matches('='), Some(HEX));
        check(&text.replace('+', "%2B").replace('/', "%2f").replace('=', "%3D"), Some(HEX));
        check(&BASE64_URL.encode(bytes), Some(HEX));
        check(&BASE64.encode(&bytes[1..]), Some(HEX));
        for bad in ["", "00", "zz", &HEX[2..], &format!("{HEX}00"), "%", "%zz", "%ff", "===="] {
            check(bad, None);
        }
        check(&"a".repeat(10_000), None);
    }

    #[test]
    fn subjects_are_read_in_any_order_and_spelling() {
        let part = |subject: &str| subject_part(subject, "C");
        let country = Some("DE".to_owned());
        assert_eq!(part("C=DE,O=Example,CN=backend"), country);
        assert_eq!(part("CN=backend, O = Example, c = DE"), country);
        assert_eq!(part("CN%3Dbackend%2CC%3DDE"), country);
        assert_eq!(part("C=DE,C=NL"), country, "the first counts");
        assert_eq!(part("C=,C=D=E,nonsense,C=DE"), country, "what is no pair is passed over");
        assert_eq!(part(r#"CN=a\,C=NL,O="b,C=NL",C=DE"#), country, "commas inside values");
        for none in ["", "CN=DE", r"CN=a\,C=DE", r#"O="b,C=DE""#, "C", "XC=DE", "%zz", "C=DE%"] {
            assert_eq!(part(none), None, "{none}");
        }
    }
}
