//! API keys, tokens of sessions, cursors and sealed secrets: one spelling each, and no second door.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use posthorn_sealing::api_key;
use posthorn_sealing::session_token::{self, TokenKind};
use posthorn_sealing::vault::{Vault, VaultKey};

pub(super) const WORDS: &[&str] =
    &["ph_", "ses_", "lnk_", ".", "_", "=", "==", "-", "+", "/", "A", "AQEA", "8", "Z", "I", "l"];

pub(super) fn api_key(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let Ok((id, secret)) = api_key::parse(text) else { return false };
    assert_eq!(secret.expose().len(), 32);
    // The parts, put together again, are the text: no key has two spellings.
    let id = id.to_string();
    let (_, id) = id.split_once('_').expect("an id has a prefix");
    let signed = format!("ph_{id}_{}", URL_SAFE_NO_PAD.encode(secret.expose()));
    assert_eq!(text.get(..signed.len()), Some(signed.as_str()), "{text}");
    assert_eq!(text.len(), signed.len() + 7);
    assert!(api_key::check(&secret, &api_key::hash(secret.expose())));
    assert!(!api_key::check(&secret, &[0; 32]));
    // Any other last character is a typing error.
    let mut other = text.to_owned();
    let last = other.pop().expect("it is not empty");
    other.push(if last == '0' { '1' } else { '0' });
    assert!(api_key::parse(&other).is_err());
    true
}

pub(super) fn session_token(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let parsed = [(TokenKind::Session, "ses"), (TokenKind::Link, "lnk")]
        .map(|(kind, prefix)| session_token::parse(kind, text).map(|parts| (prefix, parts)));
    assert!(parsed.iter().flatten().count() <= 1, "{text} is a session and a link");
    let Some((prefix, (id, secret))) = parsed.into_iter().flatten().next() else { return false };
    assert_eq!(secret.expose().len(), 32);
    // The parts, put together again, are the text: no token has two spellings.
    let id = id.to_string();
    let (_, id) = id.split_once('_').expect("an id has a prefix");
    assert_eq!(text, format!("{prefix}_{id}.{}", URL_SAFE_NO_PAD.encode(secret.expose())));
    assert!(session_token::check(&secret, &api_key::hash(secret.expose())));
    assert!(!session_token::check(&secret, &[0; 32]));
    true
}

pub(super) fn cursor(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let lists = posthorn_api::fuzzing::cursor_lists();
    let mut accepted = 0;
    for list in lists {
        let Some(behind) = posthorn_api::fuzzing::decode_cursor(*list, text) else { continue };
        accepted += 1;
        assert_eq!(posthorn_api::fuzzing::encode_cursor(*list, &behind), text, "two spellings");
    }
    assert!(accepted <= 1, "{text} is a cursor of {accepted} lists");
    accepted == 1
}

static VAULT: LazyLock<Vault> = LazyLock::new(|| {
    let key = "phvk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    Vault::new(vec![VaultKey::parse(key).expect("a key")]).expect("a vault")
});

/// The input as changes to a sealed secret: pairs of a place and what is done to the byte there; an
/// odd byte at the end says how much is cut off.
pub(super) fn vault(input: &[u8]) -> bool {
    assert!(VAULT.open(b"context", input).is_err(), "a stranger's bytes were opened");
    let whole = VAULT.seal(b"context", b"secret");
    let mut blob = whole.clone();
    let mut pairs = input.chunks_exact(2);
    for pair in &mut pairs {
        let place = usize::from(pair[0]) % blob.len();
        blob[place] ^= pair[1];
    }
    if let [cut] = pairs.remainder() {
        blob.truncate(blob.len().saturating_sub(usize::from(*cut)));
    }
    let opened = VAULT.open(b"context", &blob);
    if blob == whole {
        assert_eq!(opened.expect("it was not changed").expose(), b"secret");
        assert!(VAULT.open(b"elsewhere", &blob).is_err(), "it was moved");
        return true;
    }
    assert!(opened.is_err(), "a changed secret was opened");
    false
}
