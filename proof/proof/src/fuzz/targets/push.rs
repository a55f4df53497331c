//! What senders of push messages write: who they are, how they encrypted, and the names of endpoints
//! and messages.

use std::sync::LazyLock;

use posthorn_sealing::endpoint_token::{EndpointKey, EndpointTokens, Version};
use posthorn_sealing::push_headers::{Given, HeaderRefusal, Parameters, cleaned, encryption};
use posthorn_sealing::vapid::{self, Form, SenderKey};
use posthorn_sealing::vault::VaultKey;

use super::first_line;

pub(super) const SENDERS: &[&str] = &[
    "TOKEN",
    "KEY",
    "vapid ",
    "WebPush ",
    "Bearer ",
    "t=TOKEN",
    "k=KEY",
    "p256ecdsa=KEY",
    "dh=",
    ",",
    ";",
    "=",
    "\"",
    " ",
    "\n",
    "https://push.example.org",
    "1699999940",
    "1699999939",
    "1700086400",
    "1700086401",
];

pub(super) const PARAMETERS: &[&str] = &[
    "salt=",
    "dh=",
    "keyid=",
    "rs=",
    "p256ecdsa=",
    "=",
    "==",
    ",",
    ";",
    "\"",
    " ",
    "\t",
    "A-_z9",
    "+",
];

pub(super) const TOKENS: &[&str] = &["A", "_", "-", "=", "==", "+", "/", "%2D", "AAAA"];

const NOW: i64 = 1_700_000_000;
const ORIGIN: &str = "https://push.example.org";

static SENDER: LazyLock<SenderKey> = LazyLock::new(|| {
    SenderKey::parse("eGN1nwNhyIsZrJvrMaEdlRCHQOEL5CPfrrrXLRuoX2c").expect("a key")
});

/// The two headers, the audience and the end. `TOKEN` and `KEY` stand for a token with that audience
/// and end, and for the key it is signed with.
pub(super) fn sender(input: &[u8]) -> bool {
    let (authorization, rest) = first_line(input);
    let (crypto_key, rest) = first_line(rest);
    let (audience, end) = first_line(rest);
    let texts = [authorization, crypto_key, audience, end].map(std::str::from_utf8);
    let [Ok(authorization), Ok(crypto_key), Ok(audience), Ok(end)] = texts else { return false };
    let Ok(end) = end.parse::<i64>() else { return false };
    let token = SENDER.token(audience, end, None);
    let key = SENDER.public_key().to_text();
    let filled = |text: &str| text.replace("TOKEN", &token).replace("KEY", &key);
    let (authorization, crypto_key) = (filled(authorization), filled(crypto_key));
    let counts = audience == ORIGIN && (NOW - 60..=NOW + 86_400).contains(&end);

    let usual = format!("vapid t={token},k={key}");
    assert_eq!(vapid::verify(&usual, None, ORIGIN, NOW).is_ok(), counts, "{audience} {end}");

    let Ok(found) = vapid::verify(&authorization, Some(&crypto_key), ORIGIN, NOW) else {
        return false;
    };
    // Nobody but this sender can be believed, and only with this token, whatever else is said.
    assert!(counts, "{authorization} {crypto_key}");
    assert_eq!(&found.key, SENDER.public_key());
    assert_eq!((found.audience.as_str(), found.expires_at), (audience, end));
    let scheme = authorization.split_whitespace().next().map(str::to_lowercase);
    match scheme.as_deref() {
        Some("vapid") => assert_eq!(found.form, Form::Rfc8292),
        Some("webpush" | "bearer") => {
            assert_eq!(found.form, Form::Draft01);
            let alone = vapid::verify(&authorization, None, ORIGIN, NOW);
            assert_eq!(alone.map_err(vapid::VapidRefusal::errno), Err(110), "{authorization}");
        }
        other => panic!("{other:?} was believed"),
    }
    let elsewhere = vapid::verify(&authorization, Some(&crypto_key), "https://example.org", NOW);
    assert_eq!(elsewhere, Err(vapid::VapidRefusal::Audience));
    let unsigned = authorization.replace(token.rsplit('.').next().unwrap_or_default(), "");
    assert!(vapid::verify(&unsigned, Some(&crypto_key), ORIGIN, NOW).is_err(), "{unsigned}");
    true
}

/// The pairs of a header, read letter by letter; `None` when it is not made of pairs.
fn pairs(header: &str) -> Option<Vec<(String, String)>> {
    let mut found = vec![(String::new(), None::<String>)];
    for c in header.chars() {
        let (name, value) = found.last_mut()?;
        match (c, value) {
            (',' | ';', _) => found.push((String::new(), None)),
            ('=', value @ None) => *value = Some(String::new()),
            (c, None) => name.push(c),
            (c, Some(value)) => value.push(c),
        }
    }
    found
        .into_iter()
        .map(|(name, value)| {
            let name = name.trim_matches(|c| c == ' ' || c == '\t').to_owned();
            (!name.is_empty()).then_some((name, value?))
        })
        .collect()
}

/// A value without what is not of it: blanks, quotes, padding.
fn bare(value: &str) -> String {
    let plain: String = value.chars().filter(|c| *c != '"').collect();
    let blank = |c| c == ' ' || c == '\t';
    plain.trim_start_matches(blank).trim_end_matches(|c| blank(c) || c == '=').to_owned()
}

pub(super) fn parameters(input: &[u8]) -> bool {
    let Ok(header) = std::str::from_utf8(input) else { return false };
    let independent = pairs(header);
    let read = Parameters::parse(header);
    assert_eq!(read.is_ok(), independent.is_some(), "{header:?}");
    let clean = cleaned(header);
    assert!(!clean.contains('"') && clean.len() <= header.len(), "{header:?}");
    assert_eq!(cleaned(&clean), clean, "{header:?}");

    let of_clean = pairs(&clean);
    let first = |name: &str| {
        let pairs = of_clean.as_ref()?;
        pairs.iter().find(|(found, _)| found == name).map(|(_, value)| bare(value))
    };
    let proper = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    for (name, in_encryption) in [("salt", true), ("dh", false)] {
        if let Ok(read) = &read
            && !header.contains('"')
        {
            assert_eq!(read.get(name).map(bare), first(name), "{header:?} and {clean:?}");
        }
        let given = |coding| Given {
            content_encoding: Some(coding),
            encryption: if in_encryption { Some(header) } else { Some("salt=AAAA") },
            crypto_key: (!in_encryption).then_some(header),
            encryption_key: None,
        };
        let old = encryption(given("aesgcm"));
        let there = first(name).is_some_and(|value| !value.is_empty() && value.chars().all(proper));
        // Said here once more: no sender has a reason for a longer header.
        let short = header.len() <= 1_024;
        assert_eq!(old.is_ok(), there && short, "{header:?}: {old:?}");
        if let Ok(headers) = &old {
            let sent = if in_encryption { &headers.encryption } else { &headers.crypto_key };
            assert_eq!(sent.as_deref(), Some(clean.as_str()), "{header:?}");
        }
        let new = Given { encryption: in_encryption.then_some(header), ..given("aes128gcm") };
        let fine = of_clean.is_some() && first(name).is_none() && short;
        let refused = encryption(new).err().map(HeaderRefusal::errno);
        assert_eq!(refused, (!fine).then_some(110), "{header:?}");
    }
    read.is_ok()
}

static OURS: LazyLock<EndpointTokens> = LazyLock::new(|| {
    let key = VaultKey::parse("phvk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    let key = EndpointKey::derived_from(&key.expect("a key"));
    EndpointTokens::new(vec![EndpointKey::generate(), key]).expect("tokens")
});

static STRANGERS: LazyLock<EndpointTokens> = LazyLock::new(|| {
    EndpointTokens::new(vec![EndpointKey::generate(), EndpointKey::generate()]).expect("tokens")
});

/// How many readers of tokens open this text.
fn openers(tokens: &EndpointTokens, text: &str) -> usize {
    let endpoints = [Version::V1, Version::V2].map(|v| tokens.open_endpoint(v, text).is_ok());
    usize::from(tokens.open_message(text).is_ok())
        + endpoints.into_iter().filter(|opened| *opened).count()
}

pub(super) fn token(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    assert_eq!(openers(&STRANGERS, text), 0, "{text}");
    if openers(&OURS, text) == 0 {
        return false;
    }
    assert_eq!(openers(&OURS, text), 1, "{text} is two things");
    for version in [Version::V1, Version::V2] {
        if let Ok(endpoint) = OURS.open_endpoint(version, text) {
            assert_eq!(endpoint.version(), version);
            let again = OURS.seal_endpoint(&endpoint);
            assert_ne!(again, text);
            assert_eq!(OURS.open_endpoint(version, &again), Ok(endpoint));
        }
    }
    if let Ok(name) = OURS.open_message(text) {
        let again = OURS.seal_message(&name);
        assert_eq!(OURS.open_message(&again).as_ref(), Ok(&name));
        assert_eq!(OURS.seal_message(&name), again, "a message has one id");
    }
    // No other text is the same token.
    for at in 0..text.len() {
        let mut other = text.as_bytes().to_vec();
        other[at] = if other[at] == b'A' { b'B' } else { b'A' };
        let other = String::from_utf8(other).expect("tokens are ASCII");
        assert_eq!(openers(&OURS, &other), 0, "{other}");
    }
    true
}
