//! Typed identifiers: sixteen bytes of UUIDv7 inside, a prefix and 26 sortable characters outside.
//!
//! A wrong kind of id cannot be passed by mistake, in code (types) or on the wire (prefix). The
//! text form sorts like the bytes, and the bytes sort by creation time.

use std::fmt;
use std::str::FromStr;

use schemars::json_schema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Timestamp;

/// What an id is made of: when, and 74 random bits. Whoever makes something again from the same seed makes the same id, and so finds
/// what is there.
pub type Seed = (Timestamp, u128);

/// Crockford's base 32, lower case: no `i`, `l`, `o`, `u`, and in ASCII order.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// 128 bits in groups of five, rounded up.
const TEXT_LEN: usize = 26;

/// Why a text is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an id of the form {prefix}_ followed by 26 characters of 0-9 and a-z without i, l, o, u"
)]
pub struct IdParseError {
    /// The prefix that was expected.
    pub prefix: &'static str,
}

fn encode(bytes: [u8; 16], out: &mut [u8; TEXT_LEN]) {
    let mut value = u128::from_be_bytes(bytes);
    for slot in out.iter_mut().rev() {
        *slot = ALPHABET[(value & 31) as usize];
        value >>= 5;
    }
}

fn decode(text: &str) -> Option<[u8; 16]> {
    if text.len() != TEXT_LEN {
        return None;
    }
    let mut value: u128 = 0;
    for (index, byte) in text.bytes().enumerate() {
        let digit = ALPHABET.iter().position(|c| *c == byte)? as u128;
        // 26 × 5 = 130 bits: the first character carries only three.
        if index == 0 && digit > 7 {
            return None;
        }
        value = (value << 5) | digit;
    }
    Some(value.to_be_bytes())
}

/// Makes the sixteen bytes of a UUIDv7 from a time and 74 random bits.
fn v7_bytes(at: Timestamp, random: u128) -> [u8; 16] {
    let millis = (at.as_millis().max(0) as u128) & 0xFFFF_FFFF_FFFF;
    let rand_a = (random >> 64) & 0xFFF;
    let rand_b = random & 0x3FFF_FFFF_FFFF_FFFF;
    let value = (millis << 80) | (0x7 << 76) | (rand_a << 64) | (0b10 << 62) | rand_b;
    value.to_be_bytes()
}

macro_rules! typed_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// What every text form of this kind starts with, before the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// A fresh id: `at` makes it sortable, `random` makes it unique.
            pub fn new(at: Timestamp, random: u128) -> Self {
                Self(v7_bytes(at, random))
            }

            /// The id that a seed gives: always the same.
            pub fn of_seed((at, random): Seed) -> Self {
                Self::new(at, random)
            }

            /// The smallest id that could have been made at `at`; a bound for range scans.
            pub fn floor(at: Timestamp) -> Self {
                let millis = (at.as_millis().max(0) as u128) & 0xFFFF_FFFF_FFFF;
                Self((millis << 80).to_be_bytes())
            }

            /// When it was made, to the millisecond.
            pub fn made_at(&self) -> Timestamp {
                let millis = u128::from_be_bytes(self.0) >> 80;
                Timestamp::from_millis(millis as i64)
            }

            /// The raw bytes, as stores keep them.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }

            /// Back from what a store kept.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }
        }

        crate::schema::of!($name, _ => json_schema!({
            "type": "string",
            "pattern": concat!("^", $prefix, "_[0-9a-hjkmnp-tv-z]{26}$"),
        }));

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut text = [0u8; TEXT_LEN];
                encode(self.0, &mut text);
                f.write_str(concat!($prefix, "_"))?;
                f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdParseError;

            fn from_str(text: &str) -> Result<Self, IdParseError> {
                text.strip_prefix(concat!($prefix, "_"))
                    .and_then(decode)
                    .map(Self)
                    .ok_or(IdParseError { prefix: $prefix })
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

typed_id!(
    /// One accepted event.
    EventId,
    "evt"
);
typed_id!(
    /// One subscription.
    SubscriptionId,
    "sub"
);
typed_id!(
    /// One obligation: an event for a subscription.
    DeliveryId,
    "dlv"
);
typed_id!(
    /// One tenant.
    TenantId,
    "ten"
);
typed_id!(
    /// One API key (its public half).
    KeyId,
    "key"
);
typed_id!(
    /// One bulk redrive.
    RedriveId,
    "rdr"
);
typed_id!(
    /// One job.
    JobId,
    "job"
);
typed_id!(
    /// One line of the audit log.
    AuditId,
    "aud"
);
typed_id!(
    /// One certificate of the registry.
    CertificateId,
    "crt"
);
typed_id!(
    /// One running process.
    NodeId,
    "nod"
);

typed_id!(
    /// One session of pages, or a link that can be redeemed for one.
    SessionId,
    "ses"
);
impl AuditId {
    /// The next greater one.
    #[must_use]
    pub fn following(self) -> Self {
        Self(u128::from_be_bytes(self.0).saturating_add(1).to_be_bytes())
    }
}

impl TenantId {
    /// The tenant every fresh store begins with.
    pub const DEFAULT: TenantId = TenantId([0; 16]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_sorts_like_time() {
        let early = EventId::new(Timestamp::from_millis(1_000), u128::MAX);
        let late = EventId::new(Timestamp::from_millis(1_001), 0);
        assert!(early < late);
        assert!(early.to_string() < late.to_string());
        assert_eq!(early.to_string().parse::<EventId>(), Ok(early));
        assert_eq!(late.made_at(), Timestamp::from_millis(1_001));
        assert!(EventId::floor(Timestamp::from_millis(1_000)) <= early);
    }

    #[test]
    fn wrong_prefix_length_or_alphabet_is_refused() {
        let id = EventId::new(Timestamp::from_millis(5), 7).to_string();
        assert!(id.parse::<SubscriptionId>().is_err());
        assert!(id[..29].parse::<EventId>().is_err());
        assert!(id.to_uppercase().parse::<EventId>().is_err());
        assert!("evt_zzzzzzzzzzzzzzzzzzzzzzzzzz".parse::<EventId>().is_err());
        assert!("evt_0000000000000000000000000u".parse::<EventId>().is_err());
    }
}
