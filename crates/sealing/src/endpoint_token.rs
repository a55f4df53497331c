//! Opaque names that only this server can read: the last part of an endpoint's URL (which agent,
//! which channel, whose key), and the id of a message (which message of which channel).
//!
//! # Form
//! `base64url(nonce ‖ ciphertext ‖ tag)`, without padding, of a fixed length for each kind: 80
//! characters for an endpoint anybody may use (`v1`), 123 for one that belongs to a sender's key
//! (`v2`), 146 for a message. There is no visible part: no version, no name of the key. So two tokens
//! of one agent have nothing in common, and whoever has one cannot make another.
//!
//! # Keys
//! The first key seals, all open. From each key one key for each kind is derived (HKDF-SHA-256), so
//! that a token of one kind never opens as another, whatever path it comes on.
//!
//! # Nonces
//! The cipher is AES-256-GCM-SIV, as in the vault. With nonces of 96 random bits, among `n` tokens
//! under one key some two have the same nonce with a probability of about n²/2⁹⁷: below one in
//! 100,000 at 10¹² tokens, and a half near 2⁴⁸. With AES-GCM that would be
//! the end of the key; with GCM-SIV a repeated nonce shows only whether the two plaintexts are equal,
//! here: that two endpoints are the same, which their owner knows anyway. Nothing can be forged or read.
//!
//! The nonce of a message's id is not random but a keyed hash (HMAC-SHA-256) of its content, which
//! has the random id of the message in it: the same message has the same text on every node and at
//! every redelivery, although nobody stores it, and browsers recognise what they have seen. Different
//! messages have different content, so that nothing is revealed by this.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use posthorn_domain::push::KeyHash;
use posthorn_domain::{AgentId, ChannelId, MessageId, PUSH_TOPIC_BYTES_MAX, PushTopic};
use zeroize::Zeroizing;

use crate::hkdf::derive;
use crate::vault::VaultKey;

const KEY_BYTES: usize = 32;
const KEY_PREFIX: &str = "phek_";
const TAG_BYTES: usize = 16;
const ID_BYTES: usize = 16;

const V1_BYTES: usize = 2 * ID_BYTES;
const V2_BYTES: usize = V1_BYTES + 32;
/// Agent, channel, message; how long the topic is, and room for the longest, so that the length of
/// an id tells nothing.
const MESSAGE_BYTES: usize = 3 * ID_BYTES + 1 + PUSH_TOPIC_BYTES_MAX;

const fn text_bytes(plaintext: usize) -> usize {
    ((NONCE_LEN + plaintext + TAG_BYTES) * 4).div_ceil(3)
}

/// Characters of a token of version 1.
pub const V1_TEXT_BYTES: usize = text_bytes(V1_BYTES);
/// Characters of a token of version 2.
pub const V2_TEXT_BYTES: usize = text_bytes(V2_BYTES);
/// Characters of a message's id.
pub const MESSAGE_TEXT_BYTES: usize = text_bytes(MESSAGE_BYTES);

/// A key that endpoints are made with. Whoever loses it loses every endpoint: browsers keep them for
/// years.
#[derive(Clone)]
pub struct EndpointKey(Zeroizing<[u8; KEY_BYTES]>);

/// Why a text is not a key of endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an endpoint key is phek_ followed by the base64 of 32 bytes")]
pub struct EndpointKeyError;

impl EndpointKey {
    /// A fresh key.
    pub fn generate() -> Self {
        Self(Zeroizing::new(crate::random()))
    }

    /// The key that belongs to a key of the vault: always the same, and no way back to the vault's.
    pub fn derived_from(key: &VaultKey) -> Self {
        Self(derive(b"", key.expose(), &[b"posthorn push endpoint key"]))
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, EndpointKeyError> {
        let encoded = text.trim().strip_prefix(KEY_PREFIX).ok_or(EndpointKeyError)?;
        let bytes = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| EndpointKeyError)?);
        let bytes = bytes.as_slice().try_into().map_err(|_| EndpointKeyError)?;
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

    fn cipher(&self, purpose: &[u8]) -> LessSafeKey {
        let key = derive::<KEY_BYTES>(b"", &*self.0, &[purpose]);
        let unbound = UnboundKey::new(&AES_256_GCM_SIV, &*key)
            .expect("the key has exactly the length the algorithm asks for");
        LessSafeKey::new(unbound)
    }
}

impl fmt::Debug for EndpointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EndpointKey({})", self.name())
    }
}

/// Tokens need a key to be made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("endpoints need at least one key")]
pub struct NoEndpointKey;

/// Which path a token belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// `v1`: anybody who knows the URL may send.
    V1,
    /// `v2`: only the sender whose key the browser named may.
    V2,
}

impl Version {
    /// As the path has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

/// What an endpoint stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Who receives.
    pub agent: AgentId,
    /// On which channel.
    pub channel: ChannelId,
    /// Whose key a sender must have, if the browser named one.
    pub key: Option<KeyHash>,
}

impl Endpoint {
    /// The version of its token.
    pub const fn version(&self) -> Version {
        match self.key {
            None => Version::V1,
            Some(_) => Version::V2,
        }
    }
}

/// What a message's id stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageName {
    /// Who receives it.
    pub agent: AgentId,
    /// On which channel.
    pub channel: ChannelId,
    /// Which it is.
    pub message: MessageId,
    /// Its topic, under which a store may look for it.
    pub topic: Option<PushTopic>,
}

/// Why a token cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Not of the length or the alphabet that all tokens of its kind have.
    #[error("not a token")]
    Form,
    /// Not made with any of the keys, or altered, or of another kind.
    #[error("the token was altered, or created with a key that is not configured")]
    Unknown,
}

struct Keys {
    v1: LessSafeKey,
    v2: LessSafeKey,
    message: LessSafeKey,
    message_nonce: hmac::Key,
}

/// Makes and opens tokens.
pub struct EndpointTokens {
    /// The first one seals.
    keys: Vec<Keys>,
}

impl EndpointTokens {
    /// The first key seals, all open.
    #[expect(clippy::needless_pass_by_value, reason = "the keys are wiped when this returns")]
    pub fn new(keys: Vec<EndpointKey>) -> Result<Self, NoEndpointKey> {
        if keys.is_empty() {
            return Err(NoEndpointKey);
        }
        let keys = keys.iter().map(|key| Keys {
            v1: key.cipher(b"endpoint v1"),
            v2: key.cipher(b"endpoint v2"),
            message: key.cipher(b"message"),
            message_nonce: hmac::Key::new(
                hmac::HMAC_SHA256,
                &*derive::<KEY_BYTES>(b"", &*key.0, &[b"message nonce"]),
            ),
        });
        Ok(Self { keys: keys.collect() })
    }

    /// The token of an endpoint, another text each time.
    pub fn seal_endpoint(&self, endpoint: &Endpoint) -> String {
        let mut plaintext = Vec::with_capacity(V2_BYTES + TAG_BYTES);
        plaintext.extend_from_slice(endpoint.agent.as_bytes());
        plaintext.extend_from_slice(endpoint.channel.as_bytes());
        let keys = &self.keys[0];
        let key = match &endpoint.key {
            None => &keys.v1,
            Some(hash) => {
                plaintext.extend_from_slice(&hash.0);
                &keys.v2
            }
        };
        seal(key, crate::random(), plaintext)
    }

    /// What a token on the path of this version stands for.
    pub fn open_endpoint(&self, version: Version, token: &str) -> Result<Endpoint, TokenError> {
        match version {
            Version::V1 => {
                let bytes = self.open::<V1_BYTES>(token, |keys| &keys.v1)?;
                Ok(Endpoint { agent: agent(&bytes), channel: channel(&bytes), key: None })
            }
            Version::V2 => {
                let bytes = self.open::<V2_BYTES>(token, |keys| &keys.v2)?;
                let key = Some(KeyHash(part(&bytes, V1_BYTES)));
                Ok(Endpoint { agent: agent(&bytes), channel: channel(&bytes), key })
            }
        }
    }

    /// The id of a message: the same text for the same message, as long as the first key is the same.
    pub fn seal_message(&self, name: &MessageName) -> String {
        let topic = name.topic.as_ref().map_or("", PushTopic::as_str);
        let mut plaintext = Vec::with_capacity(MESSAGE_BYTES + TAG_BYTES);
        plaintext.extend_from_slice(name.agent.as_bytes());
        plaintext.extend_from_slice(name.channel.as_bytes());
        plaintext.extend_from_slice(name.message.as_bytes());
        plaintext.push(u8::try_from(topic.len()).expect("a topic has at most 32 bytes"));
        plaintext.extend_from_slice(topic.as_bytes());
        plaintext.resize(MESSAGE_BYTES, 0);
        let keys = &self.keys[0];
        let hash = hmac::sign(&keys.message_nonce, &plaintext);
        seal(&keys.message, part(hash.as_ref(), 0), plaintext)
    }

    /// What an agent is called in logs: the same as long as the first key is, and of no use to anybody
    /// who reads them. An agent's id itself is all that it takes to be that agent.
    pub fn pseudonym(&self, agent: AgentId) -> String {
        let hash =
            hmac::sign(&self.keys[0].message_nonce, &[b"agent", &agent.as_bytes()[..]].concat());
        hash.as_ref()[..6].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What a message's id stands for.
    pub fn open_message(&self, id: &str) -> Result<MessageName, TokenError> {
        let bytes = self.open::<MESSAGE_BYTES>(id, |keys| &keys.message)?;
        let (length, topic) = bytes[3 * ID_BYTES..].split_first().ok_or(TokenError::Unknown)?;
        let topic = match usize::from(*length) {
            0 => None,
            length => {
                let topic = topic.get(..length).ok_or(TokenError::Unknown)?;
                let topic = std::str::from_utf8(topic).map_err(|_| TokenError::Unknown)?;
                Some(topic.parse().map_err(|_| TokenError::Unknown)?)
            }
        };
        let message = MessageId::from_bytes(part(&bytes, 2 * ID_BYTES));
        Ok(MessageName { agent: agent(&bytes), channel: channel(&bytes), message, topic })
    }

    fn open<const N: usize>(
        &self,
        token: &str,
        key: impl Fn(&Keys) -> &LessSafeKey,
    ) -> Result<[u8; N], TokenError> {
        if token.len() != text_bytes(N) {
            return Err(TokenError::Form);
        }
        let sealed = URL_SAFE_NO_PAD.decode(token).map_err(|_| TokenError::Form)?;
        let (nonce, ciphertext) =
            sealed.split_first_chunk::<NONCE_LEN>().ok_or(TokenError::Form)?;
        self.keys
            .iter()
            .find_map(|keys| {
                let mut bytes = ciphertext.to_vec();
                let nonce = Nonce::assume_unique_for_key(*nonce);
                let opened = key(keys).open_in_place(nonce, Aad::empty(), &mut bytes).ok()?;
                <[u8; N]>::try_from(&*opened).ok()
            })
            .ok_or(TokenError::Unknown)
    }
}

impl fmt::Debug for EndpointTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EndpointTokens({} keys)", self.keys.len())
    }
}

fn seal(key: &LessSafeKey, nonce: [u8; NONCE_LEN], mut plaintext: Vec<u8>) -> String {
    let unique = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(unique, Aad::empty(), &mut plaintext)
        .expect("sealing only fails for texts of many gigabytes");
    URL_SAFE_NO_PAD.encode([&nonce[..], &plaintext].concat())
}

/// The `N` bytes at a place that is there, as all callers know.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}

fn agent(bytes: &[u8]) -> AgentId {
    AgentId::from_bytes(part(bytes, 0))
}

fn channel(bytes: &[u8]) -> ChannelId {
    ChannelId::from_bytes(part(bytes, ID_BYTES))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::vapid::hash_key;

    fn tokens(keys: &[&EndpointKey]) -> EndpointTokens {
        EndpointTokens::new(keys.iter().map(|key| (*key).clone()).collect()).expect("keys")
    }

    fn one() -> EndpointTokens {
        tokens(&[&EndpointKey::generate()])
    }

    fn endpoint(key: Option<KeyHash>) -> Endpoint {
        Endpoint { agent: AgentId::from_random(1), channel: ChannelId::from_random(2), key }
    }

    fn message(topic: Option<&str>) -> MessageName {
        MessageName {
            agent: AgentId::from_random(1),
            channel: ChannelId::from_random(2),
            message: MessageId::from_random(3),
            topic: topic.map(|topic| topic.parse().expect("a topic")),
        }
    }

    #[test]
    fn what_was_sealed_opens() {
        let tokens = one();
        let v1 = tokens.seal_endpoint(&endpoint(None));
        assert_eq!(v1.len(), V1_TEXT_BYTES);
        assert_eq!(tokens.open_endpoint(Version::V1, &v1), Ok(endpoint(None)));
        let locked = endpoint(Some(hash_key(b"key")));
        let v2 = tokens.seal_endpoint(&locked);
        assert_eq!(v2.len(), V2_TEXT_BYTES);
        assert_eq!(tokens.open_endpoint(Version::V2, &v2), Ok(locked));
        assert_eq!([endpoint(None).version().as_str(), locked.version().as_str()], ["v1", "v2"]);
        for topic in [None, Some("a"), Some("a=="), Some("a-test-topic-which-is-just-right")] {
            let id = tokens.seal_message(&message(topic));
            assert_eq!(id.len(), MESSAGE_TEXT_BYTES);
            assert_eq!(tokens.open_message(&id), Ok(message(topic)));
        }
        assert_eq!([V1_TEXT_BYTES, V2_TEXT_BYTES, MESSAGE_TEXT_BYTES], [80, 123, 146]);
        let proper = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        assert!(v1.chars().chain(v2.chars()).all(proper));
    }

    #[test]
    fn a_token_opens_on_its_own_path_only() {
        let tokens = one();
        let v1 = tokens.seal_endpoint(&endpoint(None));
        let v2 = tokens.seal_endpoint(&endpoint(Some(hash_key(b"key"))));
        let id = tokens.seal_message(&message(None));
        assert_eq!(tokens.open_endpoint(Version::V2, &v1), Err(TokenError::Form));
        assert_eq!(tokens.open_endpoint(Version::V1, &v2), Err(TokenError::Form));
        for version in [Version::V1, Version::V2] {
            assert_eq!(tokens.open_endpoint(version, &id), Err(TokenError::Form));
        }
        assert_eq!(tokens.open_message(&v1), Err(TokenError::Form));
        assert_eq!(tokens.open_message(&v2), Err(TokenError::Form));
        // Not only the length keeps them apart: the same bytes under the key of another kind.
        let keys = &tokens.keys[0];
        let plaintext = || vec![7; V1_BYTES];
        assert!(tokens.open_endpoint(Version::V1, &seal(&keys.v1, [1; 12], plaintext())).is_ok());
        for other in [&keys.v2, &keys.message] {
            let token = seal(other, [1; 12], plaintext());
            assert_eq!(tokens.open_endpoint(Version::V1, &token), Err(TokenError::Unknown));
        }
    }

    #[test]
    fn any_changed_character_is_noticed() {
        let tokens = one();
        let v1 = tokens.seal_endpoint(&endpoint(None));
        let v2 = tokens.seal_endpoint(&endpoint(Some(hash_key(b"key"))));
        let id = tokens.seal_message(&message(Some("topic")));
        let opens = |text: &str| {
            tokens.open_endpoint(Version::V1, text).is_ok()
                || tokens.open_endpoint(Version::V2, text).is_ok()
                || tokens.open_message(text).is_ok()
        };
        for token in [v1, v2, id] {
            assert!(opens(&token));
            for at in 0..token.len() {
                for other in ["A", "_", "=", " ", "+", "%41"] {
                    let changed = format!("{}{other}{}", &token[..at], &token[at + 1..]);
                    assert_eq!(opens(&changed), changed == token, "{at} {other}");
                }
                assert!(!opens(&token[..at]) && !opens(&token[at + 1..]));
            }
            assert!(!opens(&format!("{token}=")) && !opens(&format!("{token}A")));
        }
        for text in ["", "A", "ä", &"A".repeat(100_000), &"é".repeat(40)] {
            assert!(!opens(text));
        }
    }

    #[test]
    fn keys_rotate() {
        let (old, new) = (EndpointKey::generate(), EndpointKey::generate());
        let before = tokens(&[&old]).seal_endpoint(&endpoint(None));
        let id_before = tokens(&[&old]).seal_message(&message(None));
        let both = tokens(&[&new, &old]);
        assert_eq!(both.open_endpoint(Version::V1, &before), Ok(endpoint(None)));
        assert_eq!(both.open_message(&id_before), Ok(message(None)));
        let after = both.seal_endpoint(&endpoint(None));
        assert!(tokens(&[&new]).open_endpoint(Version::V1, &after).is_ok());
        assert_eq!(tokens(&[&old]).open_endpoint(Version::V1, &after), Err(TokenError::Unknown));
        assert_eq!(tokens(&[&new]).open_endpoint(Version::V1, &before), Err(TokenError::Unknown));
        assert_eq!(EndpointTokens::new(vec![]).expect_err("none"), NoEndpointKey);
    }

    #[test]
    fn tokens_of_one_agent_have_nothing_in_common() {
        let tokens = one();
        // At no place do all of them have the same character, and no two are equal.
        let many: Vec<_> = (0..200).map(|_| tokens.seal_endpoint(&endpoint(None))).collect();
        assert_eq!(many.iter().collect::<HashSet<_>>().len(), many.len());
        for at in 0..V1_TEXT_BYTES {
            let here: HashSet<_> = many.iter().map(|token| token.as_bytes()[at]).collect();
            assert!(here.len() > 1, "all have the same at {at}");
        }
        let ids: Vec<_> = (0..200)
            .map(|nth| MessageName { message: MessageId::from_random(nth << 80), ..message(None) })
            .map(|name| tokens.seal_message(&name))
            .collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        // But for the last one, which has four bits of its own only.
        for at in 0..MESSAGE_TEXT_BYTES {
            let here: HashSet<_> = ids.iter().map(|id| id.as_bytes()[at]).collect();
            assert!(here.len() > 1, "all have the same at {at}");
        }
    }

    #[test]
    fn a_message_has_one_id_on_every_node() {
        let key = EndpointKey::generate();
        let id = tokens(&[&key]).seal_message(&message(Some("a")));
        let other = tokens(&[&key, &EndpointKey::generate()]);
        assert_eq!(other.seal_message(&message(Some("a"))), id);
        assert_ne!(other.seal_message(&message(None)), id);
        let next = MessageName { message: MessageId::from_random(4), ..message(Some("a")) };
        assert_ne!(other.seal_message(&next), id);
    }

    #[test]
    fn the_vaults_key_gives_a_key_that_stays_and_can_be_pinned() {
        let vault = VaultKey::parse("phvk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
        let vault = vault.expect("a key");
        let key = EndpointKey::derived_from(&vault);
        let token = tokens(&[&key]).seal_endpoint(&endpoint(None));
        let pinned = EndpointKey::parse(&key.to_text()).expect("its own text");
        assert_eq!(pinned.name(), key.name());
        assert!(tokens(&[&pinned]).open_endpoint(Version::V1, &token).is_ok());
        assert!(!key.to_text().contains(&vault.to_text()[5..]));
        assert_ne!(EndpointKey::derived_from(&VaultKey::generate()).name(), key.name());
        // Endpoints are kept by browsers for years, so none of these may ever change. All of them
        // were made with another library's HKDF, HMAC and AES-256-GCM-SIV.
        assert_eq!(key.to_text(), "phek_kf/4FTf7OHgmHbrnD8PH5AuQdKxuRe0NE5YmKdiBN9A=");
        let tokens = tokens(&[&key]);
        let id = "MLcLzlAyL7PnzWiSX1IE6C56IUqzl89EFDBX1Orwt0aKXCDp6r4w9Y_vgx5OvMU2fFX0k332vqrCc0ZL\
             PEzjGfQhFS4ZaLV4KPFF--8AnPlJMH8ntJoB6ThcqWZ1WFt78iTchxYd54FF6RY88A";
        assert_eq!(tokens.seal_message(&message(Some("topic"))), id);
        let v1 = "AAECAwQFBgcICQoLNp5SVAUSXIqqxUxLOm-X-9nRf9npXH8CSyrTBsMnd9V4XuL9Brsev8NJYeaxWWl_";
        assert_eq!(tokens.open_endpoint(Version::V1, v1), Ok(endpoint(None)));
        let v2 = "AAECAwQFBgcICQoL6ifMukHOLTXPCVvHHAoEBoBwEt9d4GjMKtH7dq5WA45GdEmAzLRtRIgHmSvApZ9S\
             9rjf8_O0P5YLUfL8gmt48TMDsHEBf6x-i7fEs-gL6vQ";
        let locked = endpoint(Some(hash_key(b"key")));
        assert_eq!(tokens.open_endpoint(Version::V2, v2), Ok(locked));
    }

    #[test]
    fn keys_have_a_text_form_and_keep_quiet() {
        let key = EndpointKey::generate();
        let text = key.to_text();
        assert_eq!(EndpointKey::parse(&format!(" {text}\n")).expect("parses").to_text(), text);
        assert!(!format!("{key:?}").contains(&text[5..]));
        for bad in ["", "phek_", "phek_AAAA", &text[5..], &format!("{text}AA==")] {
            assert_eq!(EndpointKey::parse(bad).expect_err(bad), EndpointKeyError);
        }
    }
}
