//! The words of Web Push: who receives (an agent), for whom (a channel), and what (a message).
//!
//! An agent is a browser with one socket at most that counts; a channel is one subscription of one
//! site in it; a message is what a site's server posted for one channel. The text forms are those
//! that browsers and senders see on the wire, so they are spelled here once.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use crate::Timestamp;

/// The most characters a topic may have.
pub const PUSH_TOPIC_BYTES_MAX: usize = 32;

/// The SHA-256 of a sender's public key: what a channel and its endpoint keep of the only one that may
/// post there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

/// Why a text is not an id of agents, channels or messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID: 32 hexadecimal digits, with or without dashes")]
pub struct UuidParseError;

/// Reads a UUID in any of its spellings: plain, dashed, in braces, as a URN; in any case.
fn parse_uuid(text: &str) -> Result<Uuid, UuidParseError> {
    let urn = text.get(..9).is_some_and(|start| start.eq_ignore_ascii_case("urn:uuid:"));
    let text = if urn { &text[9..] } else { text };
    Uuid::try_parse(text).map_err(|_| UuidParseError)
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $print:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// A fresh one (a UUID of version 4) out of 128 random bits.
            pub const fn from_random(random: u128) -> Self {
                Self(uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid())
            }

            /// The raw bytes, as stores and tokens keep them.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// Back from what was kept.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// Reads only the printed form: lower case, with or without dashes as it is printed.
            pub fn from_printed(text: &str) -> Result<Self, UuidParseError> {
                let id: Self = text.parse()?;
                if id.to_string() == text { Ok(id) } else { Err(UuidParseError) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self.0.$print(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = UuidParseError;

            fn from_str(text: &str) -> Result<Self, UuidParseError> {
                parse_uuid(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

uuid_id!(
    /// One user agent (UAID). Printed as 32 lower-case digits without dashes, read in any spelling.
    AgentId,
    as_simple
);
uuid_id!(
    /// One subscription of an agent (CHID); ids of different agents have nothing to do with each
    /// other. Printed in lower case with dashes, read in any spelling.
    ChannelId,
    as_hyphenated
);
uuid_id!(
    /// One accepted message: given once, when it is accepted, and kept through every store and
    /// every delivery. Agents see it as the `version` of a notification. Printed as 32 lower-case
    /// digits without dashes.
    MessageId,
    as_simple
);

/// The place of a stored message in the order of its agent's messages. Given by the store, never
/// twice; larger is later. Zero is before all of them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MessageSeq(pub u64);

impl MessageSeq {
    /// Before every stored message.
    pub const START: MessageSeq = MessageSeq(0);
}

impl fmt::Display for MessageSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a sender calls the matter of a message: of the stored messages of one channel with the
/// same topic only the newest stays. Taken letter by letter, so `a` and `a=` are two topics.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PushTopic(Box<str>);

/// Why a text is not a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a topic must be 1 to {PUSH_TOPIC_BYTES_MAX} characters of A-Z a-z 0-9 - _, and may end in ="
)]
pub struct PushTopicError;

impl PushTopic {
    /// The text, as the sender wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PushTopic {
    type Err = PushTopicError;

    fn from_str(text: &str) -> Result<Self, PushTopicError> {
        let letters = text.trim_end_matches('=');
        let proper = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if letters.is_empty() || text.len() > PUSH_TOPIC_BYTES_MAX || !letters.chars().all(proper) {
            return Err(PushTopicError);
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for PushTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PushTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Serialize for PushTopic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PushTopic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// How a body was encrypted. Only the agent can open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PushEncoding {
    /// RFC 8188 and RFC 8291: everything stands in the body.
    Aes128Gcm,
    /// The draft before it: salt and key stand in headers.
    AesGcm,
}

impl PushEncoding {
    /// As `Content-Encoding` spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            PushEncoding::Aes128Gcm => "aes128gcm",
            PushEncoding::AesGcm => "aesgcm",
        }
    }
}

impl FromStr for PushEncoding {
    type Err = PushEncodingError;

    fn from_str(text: &str) -> Result<Self, PushEncodingError> {
        match text {
            "aes128gcm" => Ok(PushEncoding::Aes128Gcm),
            "aesgcm" => Ok(PushEncoding::AesGcm),
            _ => Err(PushEncodingError),
        }
    }
}

/// Why a text is not an encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the content encoding must be aes128gcm or aesgcm")]
pub struct PushEncodingError;

/// What an agent needs beside the body to open it. The texts are as the agent gets them: without
/// quotes and without base64 padding.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PushHeaders {
    /// `Content-Encoding`.
    pub encoding: PushEncoding,
    /// `Encryption`: the salt, for `aesgcm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Box<str>>,
    /// `Crypto-Key`: the sender's public key, for `aesgcm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crypto_key: Option<Box<str>>,
}

/// One accepted message for one channel of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushMessage {
    /// Whose it is.
    pub agent: AgentId,
    /// For which of its channels.
    pub channel: ChannelId,
    /// Its name, from acceptance to the end.
    pub id: MessageId,
    /// What it replaces, and is replaced by, while stored.
    pub topic: Option<PushTopic>,
    /// For how many seconds it is worth delivering; with zero, only at once.
    pub ttl: u32,
    /// When it was accepted.
    pub received_at: Timestamp,
    /// How to open the body; only with a body.
    pub headers: Option<PushHeaders>,
    /// What the sender encrypted; many messages are only a knock on the door.
    pub body: Option<Bytes>,
}

impl PushMessage {
    /// The first moment at which it is worth nothing: whole seconds, as everybody counts a TTL.
    pub fn expires_at(&self) -> Timestamp {
        let second = self.received_at.as_seconds().saturating_add(i64::from(self.ttl));
        Timestamp::from_millis(second.saturating_mul(1000))
    }

    /// What it takes in memory, about, in bytes.
    pub fn weight(&self) -> usize {
        let headers = self.headers.as_ref().map_or(0, |headers| {
            let length = |text: &Option<Box<str>>| text.as_deref().map_or(0, str::len);
            length(&headers.encryption) + length(&headers.crypto_key)
        });
        size_of::<Self>() + self.body.as_ref().map_or(0, Bytes::len) + headers
    }

    /// Whether it is worth nothing any more.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at()
    }
}

/// The largest body of a message, in bytes, if nobody says otherwise.
pub const PUSH_BODY_BYTES_MAX: usize = 5_630;
/// For how many seconds a message may be kept at most, if nobody says otherwise: 30 days.
pub const PUSH_TTL_SECONDS_MAX: u32 = 2_592_000;

/// A message as a store hands it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its place among the agent's messages.
    pub seq: MessageSeq,
    /// What was stored.
    pub message: PushMessage,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "0123456789abcdef0123456789abcdef";
    const DASHED: &str = "01234567-89ab-cdef-0123-456789abcdef";

    #[test]
    fn ids_are_read_in_every_spelling_and_printed_in_one() {
        let spellings = [
            PLAIN.to_owned(),
            PLAIN.to_uppercase(),
            DASHED.to_owned(),
            DASHED.to_uppercase(),
            format!("{{{DASHED}}}"),
            format!("urn:uuid:{DASHED}"),
            format!("URN:UUID:{DASHED}"),
        ];
        for spelling in spellings {
            assert_eq!(spelling.parse::<AgentId>().map(|id| id.to_string()), Ok(PLAIN.into()));
            assert_eq!(spelling.parse::<ChannelId>().map(|id| id.to_string()), Ok(DASHED.into()));
        }
    }

    #[test]
    fn what_is_no_uuid_is_no_id() {
        let texts = [
            "",
            "-",
            &PLAIN[1..],
            &DASHED[1..],
            "0123456789abcdef0123456789abcdeg",
            "01234567-89ab-cdef-0123-456789abcde-",
            "012345678-9ab-cdef-0123-456789abcdef",
            "{01234567-89ab-cdef-0123-456789abcdef(",
            "urn:guid:01234567-89ab-cdef-0123-456789abcdef",
            " 0123456789abcdef0123456789abcdef",
            "０123456789abcdef0123456789abc",
            "{0123456789abcdef0123456789abcdef}",
        ];
        for text in texts {
            assert_eq!(text.parse::<AgentId>(), Err(UuidParseError), "{text:?}");
        }
    }

    #[test]
    fn only_the_printed_form_is_printed() {
        assert!(ChannelId::from_printed(DASHED).is_ok());
        assert!(ChannelId::from_printed(PLAIN).is_err());
        assert!(ChannelId::from_printed(&DASHED.to_uppercase()).is_err());
        assert!(MessageId::from_printed(PLAIN).is_ok());
        assert!(MessageId::from_printed(DASHED).is_err());
        assert!(MessageId::from_printed(&PLAIN.to_uppercase()).is_err());
    }

    #[test]
    fn fresh_ids_are_uuids_of_version_four() {
        for random in [0, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let text = ChannelId::from_random(random).to_string();
            assert_eq!(text.as_bytes()[14], b'4', "{text}");
            assert!(matches!(text.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{text}");
        }
        assert_ne!(AgentId::from_random(1), AgentId::from_random(2));
        assert_ne!(AgentId::from_random(1 << 127), AgentId::from_random(0));
    }

    #[test]
    fn ids_and_topics_are_texts_in_json() {
        let id: ChannelId = PLAIN.parse().expect("an id");
        let json = serde_json::to_string(&id).expect("JSON");
        assert_eq!(json, format!("\"{DASHED}\""));
        assert_eq!(serde_json::from_str::<ChannelId>(&json).expect("an id"), id);
        assert!(serde_json::from_str::<ChannelId>("\"nonsense\"").is_err());
        assert_eq!(
            serde_json::from_str::<PushTopic>("\"news\"").expect("a topic").as_str(),
            "news"
        );
        assert!(serde_json::from_str::<PushTopic>("\"no news\"").is_err());
    }

    #[test]
    fn topics_keep_to_their_alphabet_and_length() {
        for text in ["a", "news_-09", "a=", "a==", &"x".repeat(32), &format!("{}=", "x".repeat(31))]
        {
            assert_eq!(text.parse::<PushTopic>().map(|topic| topic.to_string()), Ok(text.into()));
        }
        for text in ["", "=", "a b", "a=b", "a+", "a/", "ä", "a\n", &"x".repeat(33)] {
            assert_eq!(text.parse::<PushTopic>(), Err(PushTopicError), "{text:?}");
        }
        assert_ne!("a".parse::<PushTopic>(), "a=".parse::<PushTopic>());
    }

    #[test]
    fn encodings_are_spelled_as_in_the_header() {
        for encoding in [PushEncoding::Aes128Gcm, PushEncoding::AesGcm] {
            assert_eq!(encoding.as_str().parse(), Ok(encoding));
            let json = serde_json::to_string(&encoding).expect("JSON");
            assert_eq!(json, format!("\"{}\"", encoding.as_str()));
        }
        for text in ["", "aesgcm128", "AES128GCM", "gzip"] {
            assert_eq!(text.parse::<PushEncoding>(), Err(PushEncodingError));
        }
    }

    fn message(received_millis: i64, ttl: u32) -> PushMessage {
        PushMessage {
            agent: AgentId::from_random(1),
            channel: ChannelId::from_random(2),
            id: MessageId::from_random(3),
            topic: None,
            ttl,
            received_at: Timestamp::from_millis(received_millis),
            headers: None,
            body: None,
        }
    }

    #[test]
    fn a_ttl_counts_whole_seconds() {
        let late_in_the_second = message(10_999, 2);
        assert_eq!(late_in_the_second.expires_at(), Timestamp::from_millis(12_000));
        assert!(!late_in_the_second.is_expired(Timestamp::from_millis(11_999)));
        assert!(late_in_the_second.is_expired(Timestamp::from_millis(12_000)));
        assert!(message(10_000, 0).is_expired(Timestamp::from_millis(10_000)));
        assert!(message(i64::MAX, u32::MAX).expires_at() > Timestamp::from_millis(0));
    }
}
