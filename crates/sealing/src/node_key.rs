//! How nodes of one installation recognise each other's calls.
//!
//! # Form
//! `Authorization: Posthorn-Node t=<ms>,mac=<base64url>`, where `mac` is HMAC-SHA-256 over a line
//! each for the scheme, the method, the path and the time, and the SHA-256 of the body. So nothing of
//! a call can be changed, and the key itself never travels. A call counts for [`CLOCKS_APART_MAX`]
//! before and after its time: the clocks of two nodes may differ by so much, and a call that somebody
//! recorded is worth nothing later.
//!
//! # Keys
//! The first key signs, all verify, so that keys can be changed one node after the other.
//!
//! # What it must not know
//! What is called, and by whom: every node may call every other.

use std::fmt;

use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use posthorn_domain::{Span, Timestamp};
use zeroize::Zeroizing;

use crate::hkdf::derive;
use crate::vault::VaultKey;

/// How far the time of a call may be from the clock of whoever verifies it.
pub const CLOCKS_APART_MAX: Span = Span::from_millis(60_000);

const KEY_BYTES: usize = 32;
const KEY_PREFIX: &str = "phnk_";
const SCHEME: &str = "Posthorn-Node";
const MAC_BYTES: usize = 32;

/// A key that all nodes of an installation share.
#[derive(Clone)]
pub struct NodeKey(Zeroizing<[u8; KEY_BYTES]>);

/// Why a text is not a key of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a node key is phnk_ followed by the base64 of 32 bytes")]
pub struct NodeKeyError;

impl NodeKey {
    /// A fresh key.
    pub fn generate() -> Self {
        Self(Zeroizing::new(crate::random()))
    }

    /// The key that belongs to a key of the vault: always the same, and no way back to the vault's.
    pub fn derived_from(key: &VaultKey) -> Self {
        Self(derive(b"", key.expose(), &[b"posthorn push node key"]))
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, NodeKeyError> {
        let encoded = text.trim().strip_prefix(KEY_PREFIX).ok_or(NodeKeyError)?;
        let bytes = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| NodeKeyError)?);
        let bytes = bytes.as_slice().try_into().map_err(|_| NodeKeyError)?;
        Ok(Self(Zeroizing::new(bytes)))
    }

    /// The text form, to be kept by the operator.
    pub fn to_text(&self) -> String {
        format!("{KEY_PREFIX}{}", STANDARD.encode(*self.0))
    }

    /// A public name of it, which does not help to guess it.
    pub fn name(&self) -> String {
        crate::encoding::hex(&*derive::<4>(b"", &*self.0, &[b"name"]))
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeKey({})", self.name())
    }
}

/// Calls need a key to be signed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("calls between nodes need at least one key")]
pub struct NoNodeKey;

/// What is signed of a call besides its time.
#[derive(Clone, Copy, Debug)]
pub struct NodeCall<'a> {
    /// The method, in upper case.
    pub method: &'a str,
    /// The path, as on the request line.
    pub path: &'a str,
    /// The whole body.
    pub body: &'a [u8],
}

/// Why a call is not one of a node of ours. Whoever made it is told nothing of this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeCallError {
    /// Not of the form that all nodes write.
    #[error("not the signature of a node")]
    Form,
    /// Made with another key, or altered.
    #[error("the call was altered, or signed with a key that is not configured")]
    Unknown,
    /// Signed by one of ours, but not now: it was recorded, or the clocks of two nodes differ.
    #[error("the call was signed too long ago, or in the future")]
    Time,
}

/// Signs and verifies calls.
pub struct NodeKeys {
    /// The first one signs.
    keys: Vec<hmac::Key>,
}

impl NodeKeys {
    /// The first key signs, all verify.
    #[expect(clippy::needless_pass_by_value, reason = "the keys are wiped when this returns")]
    pub fn new(keys: Vec<NodeKey>) -> Result<Self, NoNodeKey> {
        if keys.is_empty() {
            return Err(NoNodeKey);
        }
        let keys = keys.iter().map(|key| hmac::Key::new(hmac::HMAC_SHA256, &*key.0)).collect();
        Ok(Self { keys })
    }

    /// The value of the header `Authorization` for a call that is made now.
    pub fn sign(&self, call: NodeCall<'_>, now: Timestamp) -> String {
        let time = now.as_millis().to_string();
        let mac = hmac::sign(&self.keys[0], &signed(call, &time));
        format!("{SCHEME} t={time},mac={}", URL_SAFE_NO_PAD.encode(mac))
    }

    /// Whether a call comes from a node of ours, and now. Takes the same time whatever is wrong with
    /// the signature.
    pub fn verify(
        &self,
        call: NodeCall<'_>,
        authorization: &str,
        now: Timestamp,
    ) -> Result<(), NodeCallError> {
        let (time, mac) = parts(authorization).ok_or(NodeCallError::Form)?;
        let signed = signed(call, time);
        if !self.keys.iter().any(|key| hmac::verify(key, &signed, &mac).is_ok()) {
            return Err(NodeCallError::Unknown);
        }
        // Read only now, when it is known to be what `sign` wrote.
        let at = time.parse().map(Timestamp::from_millis).map_err(|_| NodeCallError::Form)?;
        if at.since(now).max(now.since(at)) > CLOCKS_APART_MAX {
            return Err(NodeCallError::Time);
        }
        Ok(())
    }
}

impl fmt::Debug for NodeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeKeys({})", self.keys.len())
    }
}

fn parts(authorization: &str) -> Option<(&str, [u8; MAC_BYTES])> {
    let parts = authorization.strip_prefix(SCHEME)?.strip_prefix(" t=")?;
    let (time, mac) = parts.split_once(",mac=")?;
    let mac = URL_SAFE_NO_PAD.decode(mac).ok()?;
    Some((time, mac.try_into().ok()?))
}

/// No part but the last can have a line break in it, so no two calls have the same bytes.
fn signed(call: NodeCall<'_>, time: &str) -> Vec<u8> {
    let NodeCall { method, path, body } = call;
    let mut bytes = format!("{SCHEME}\n{method}\n{path}\n{time}\n").into_bytes();
    bytes.extend_from_slice(digest::digest(&digest::SHA256, body).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_123);
    const CALL: NodeCall<'static> = NodeCall {
        method: "PUT",
        path: "/push/0123456789abcdef0123456789abcdef",
        body: br#"{"ttl":60}"#,
    };

    fn keys(keys: &[&NodeKey]) -> NodeKeys {
        NodeKeys::new(keys.iter().map(|key| (*key).clone()).collect()).expect("some keys")
    }

    fn pinned() -> NodeKey {
        let vault = VaultKey::parse("phvk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
        NodeKey::derived_from(&vault.expect("a key"))
    }

    #[test]
    fn signatures_are_what_another_library_makes_of_them() {
        // During an update, nodes of two versions call each other; so these must not change.
        let key = pinned();
        assert_eq!(key.to_text(), "phnk_//OXCUFFCokw0wrD9SIbC8dk8fxES9x7JHrxz2LwUyU=");
        let keys = keys(&[&key]);
        let full = "Posthorn-Node t=1700000000123,mac=E457GtoTKqt7qZXg9ABZ4lP_kZe4nYykyFHG8JyjXBk";
        assert_eq!(keys.sign(CALL, NOW), full);
        assert_eq!(keys.verify(CALL, full, NOW), Ok(()));
        let hint = NodeCall { method: "PUT", path: "/notif/0", body: b"" };
        let empty = "Posthorn-Node t=0,mac=saL8e9srb1DyU1TFZdnLG-pA8aq5hJDp34TAVcEvV4g";
        assert_eq!(keys.sign(hint, Timestamp::from_millis(0)), empty);
    }

    #[test]
    fn nothing_of_a_call_can_be_changed() {
        let keys = keys(&[&NodeKey::generate()]);
        let header = keys.sign(CALL, NOW);
        let others = [
            NodeCall { method: "POST", ..CALL },
            NodeCall { path: "/notif/0123456789abcdef0123456789abcdef", ..CALL },
            NodeCall { path: "/push/0123456789abcdef0123456789abcdee", ..CALL },
            NodeCall { path: "/push/0123456789abcdef0123456789abcdef?a", ..CALL },
            NodeCall { body: br#"{"ttl":61}"#, ..CALL },
            NodeCall { body: b"", ..CALL },
            NodeCall { method: "PUT\n/push/0123456789abcdef0123456789abcdef", path: "", ..CALL },
        ];
        for other in others {
            assert_eq!(keys.verify(other, &header, NOW), Err(NodeCallError::Unknown), "{other:?}");
        }
        assert_eq!(keys.verify(CALL, &header, NOW), Ok(()));
        // No single character of the header can be another one. The last one of the signature has
        // two bits that nothing reads, but they must be zero.
        for at in 0..header.len() {
            for other in ["0", "A", "_", "=", " ", ",", "+"] {
                let changed = format!("{}{other}{}", &header[..at], &header[at + 1..]);
                let verified = keys.verify(CALL, &changed, NOW).is_ok();
                assert_eq!(verified, changed == header, "{at} {other}");
            }
            assert!(keys.verify(CALL, &header[..at], NOW).is_err());
        }
        assert!(keys.verify(CALL, &format!("{header}="), NOW).is_err());
        assert!(keys.verify(CALL, &format!("{header},"), NOW).is_err());
    }

    #[test]
    fn calls_count_for_a_minute_before_and_after() {
        let keys = keys(&[&NodeKey::generate()]);
        let header = keys.sign(CALL, NOW);
        let verified = |offset: i64| {
            keys.verify(CALL, &header, Timestamp::from_millis(NOW.as_millis() + offset))
        };
        for offset in [0, 1, -1, 60_000, -60_000] {
            assert_eq!(verified(offset), Ok(()), "{offset}");
        }
        for offset in [60_001, -60_001, 86_400_000, -1_700_000_000_123] {
            assert_eq!(verified(offset), Err(NodeCallError::Time), "{offset}");
        }
        let extreme = keys.sign(CALL, Timestamp::MAX);
        assert_eq!(keys.verify(CALL, &extreme, NOW), Err(NodeCallError::Time));
        assert_eq!(keys.verify(CALL, &extreme, Timestamp::MIN), Err(NodeCallError::Time));
    }

    #[test]
    fn what_is_no_signature_is_refused_for_its_form() {
        let keys = keys(&[&NodeKey::generate()]);
        let texts = [
            "",
            "Bearer phk_1",
            "Posthorn-Node",
            "Posthorn-Node t=1",
            "Posthorn-Node t=1,mac=",
            "Posthorn-Node t=1,mac=AAAA",
            "Posthorn-Node mac=AAAA,t=1",
            &format!("Posthorn-Node t=1,mac={}", "A".repeat(100_000)),
        ];
        for text in texts {
            assert_eq!(keys.verify(CALL, text, NOW), Err(NodeCallError::Form));
        }
        let zeros = format!("Posthorn-Node t=soon,mac={}", "A".repeat(43));
        assert_eq!(keys.verify(CALL, &zeros, NOW), Err(NodeCallError::Unknown));
    }

    #[test]
    fn keys_rotate() {
        let (old, new) = (NodeKey::generate(), NodeKey::generate());
        let both = keys(&[&new, &old]);
        assert_eq!(both.verify(CALL, &keys(&[&old]).sign(CALL, NOW), NOW), Ok(()));
        let after = both.sign(CALL, NOW);
        assert_eq!(keys(&[&new]).verify(CALL, &after, NOW), Ok(()));
        assert_eq!(keys(&[&old]).verify(CALL, &after, NOW), Err(NodeCallError::Unknown));
        assert_eq!(NodeKeys::new(vec![]).expect_err("none"), NoNodeKey);
    }

    #[test]
    fn keys_have_a_text_form_and_keep_quiet() {
        let key = NodeKey::generate();
        let text = key.to_text();
        assert_eq!(NodeKey::parse(&format!(" {text}\n")).expect("parses").to_text(), text);
        assert!(!format!("{key:?}").contains(&text[5..]));
        assert_eq!(format!("{:?}", keys(&[&key])), "NodeKeys(1)");
        for bad in ["", "phnk_", "phnk_AAAA", "phek_AAAA", &text[5..], &format!("{text}AA==")] {
            assert_eq!(NodeKey::parse(bad).expect_err(bad), NodeKeyError);
        }
        // The other key that is derived from the same one has nothing to do with it.
        let vault = VaultKey::generate();
        let endpoints = crate::endpoint_token::EndpointKey::derived_from(&vault);
        assert_ne!(endpoints.to_text()[5..], NodeKey::derived_from(&vault).to_text()[5..]);
    }
}
