//! Tokens of sessions of pages and of links into the portal: what a browser holds, and the hash that is stored.
//!
//! The text is the session's id, a dot, and 43 characters of secret. That of a link begins with `lnk_` instead of `ses_`,
//! so that nobody takes one for the other. As with API keys a plain hash suffices: the secret has 256 random bits.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use posthorn_domain::SessionId;

use crate::api_key;
use crate::vault::Secret;

const LINK_PREFIX: &str = "lnk";
const SECRET_BYTES: usize = 32;
const SECRET_CHARS: usize = 43;
/// Prefix and underscore, the id's characters, the dot and the secret.
const TEXT_CHARS: usize = 4 + 26 + 1 + SECRET_CHARS;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A session.
    Session,
    /// A link that can be redeemed for one.
    Link,
}

impl TokenKind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Session => SessionId::PREFIX,
            Self::Link => LINK_PREFIX,
        }
    }
}

/// A fresh token: the text to hand over once, and the hash to store.
pub fn generate(kind: TokenKind, id: SessionId) -> (Secret, [u8; 32]) {
    made_of(kind, id, &crate::random())
}

/// The same with a secret that is there already.
pub fn made_of(kind: TokenKind, id: SessionId, secret: &[u8; SECRET_BYTES]) -> (Secret, [u8; 32]) {
    (Secret::from(text(kind, id, secret)), api_key::hash(secret))
}

/// Takes a token's text apart; `None` when it is not one of this kind. This says nothing about whether the session
/// exists.
pub fn parse(kind: TokenKind, text: &str) -> Option<(SessionId, Secret)> {
    if text.len() != TEXT_CHARS || !text.is_ascii() {
        return None;
    }
    let (id, secret) = text.split_once('.')?;
    let id = id.strip_prefix(kind.prefix())?.strip_prefix('_')?;
    let id = format!("{}_{id}", SessionId::PREFIX).parse().ok()?;
    let secret = URL_SAFE_NO_PAD.decode(secret).ok()?;
    Some((id, Secret::from(secret)))
}

/// Whether the secret half is the one that was stored, in constant time.
pub fn check(secret: &Secret, stored: &[u8; 32]) -> bool {
    api_key::check(secret, stored)
}

fn text(kind: TokenKind, id: SessionId, secret: &[u8; SECRET_BYTES]) -> String {
    let id = id.to_string();
    let id = id.split_once('_').map_or("", |(_, id)| id);
    format!("{}_{id}.{}", kind.prefix(), URL_SAFE_NO_PAD.encode(secret))
}

#[cfg(test)]
mod tests {
    use posthorn_domain::Timestamp;

    use super::*;

    fn id() -> SessionId {
        SessionId::new(Timestamp::from_millis(1_700_000_000_000), 42)
    }

    #[test]
    fn tokens_come_back_and_match_their_hash() {
        for kind in [TokenKind::Session, TokenKind::Link] {
            for _ in 0..50 {
                let (text, stored) = generate(kind, id());
                let text = text.expose_str().expect("text");
                assert_eq!(text.len(), TEXT_CHARS);
                let (parsed, secret) = parse(kind, text).expect("parses");
                assert_eq!(parsed, id());
                assert!(check(&secret, &stored));
                assert!(!check(&secret, &generate(kind, id()).1));
            }
        }
    }

    #[test]
    fn the_form_is_stable() {
        let session = text(TokenKind::Session, id(), &[0xFF; 32]);
        assert_eq!(session, format!("{}.{}8", id(), "_".repeat(42)));
        let link = text(TokenKind::Link, id(), &[0xFF; 32]);
        assert_eq!(link, session.replace("ses_", "lnk_"));
    }

    #[test]
    fn a_link_is_no_session() {
        let (session, _) = generate(TokenKind::Session, id());
        let (link, _) = generate(TokenKind::Link, id());
        assert!(parse(TokenKind::Link, session.expose_str().expect("text")).is_none());
        assert!(parse(TokenKind::Session, link.expose_str().expect("text")).is_none());
    }

    #[test]
    fn malformed_tokens_are_refused() {
        let (text, _) = generate(TokenKind::Session, id());
        let text = text.expose_str().expect("text").to_owned();
        for bad in [
            "",
            "ses_",
            &text[1..],
            &format!("{text}A"),
            &text.replace('.', "_"),
            &text.replace("ses_", "ph__"),
            &text.to_uppercase(),
            &"ä".repeat(37),
            &format!("{}.{}", id(), "A".repeat(42)),
            &format!("{}.{}!", id(), "A".repeat(42)),
            // The last character has bits that belong to no byte.
            &format!("{}.{}B", id(), "A".repeat(42)),
        ] {
            assert!(parse(TokenKind::Session, bad).is_none(), "{bad}");
        }
    }
}
