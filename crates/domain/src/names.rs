//! Names people choose, each with its rule, checked once at the edge.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Why a text may not be used as a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be 1 to {max} characters of {alphabet}")]
pub struct NameError {
    /// What the name is for.
    pub what: &'static str,
    /// The longest allowed, in bytes.
    pub max: usize,
    /// Which characters are allowed, in words.
    pub alphabet: &'static str,
}

/// Safe in URLs, header values and metrics, and without the signature delimiter problem of spaces.
fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '/')
}

/// Printable without surprises: no control characters, no line breaks.
fn is_printable(c: char) -> bool {
    !c.is_control()
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal, $rule:ident, $alphabet:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest allowed, in bytes.
            pub const MAX: usize = $max;

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Checks the rule.
            pub fn new(text: &str) -> Result<Self, NameError> {
                if text.is_empty() || text.len() > $max || !text.chars().all($rule) {
                    return Err(NameError { what: $what, max: $max, alphabet: $alphabet });
                }
                Ok(Self(Arc::from(text)))
            }
        }

        crate::schema::of!($name, _ => crate::schema::name($max, $alphabet));

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(&text).map_err(de::Error::custom)
            }
        }
    };
}

name!(
    /// The name of a topic, unique in its tenant.
    TopicName, "a topic name", 128, is_token, "A-Z a-z 0-9 . _ - : /"
);
name!(
    /// What kind of thing happened, e.g. `payment.succeeded`.
    EventType, "an event type", 128, is_token, "A-Z a-z 0-9 . _ - : /"
);
name!(
    /// The name of a realm.
    RealmName, "a realm name", 128, is_token, "A-Z a-z 0-9 . _ - : /"
);
name!(
    /// What a customer calls a tenant in a system of its own, unique in the realm.
    ExternalId, "an external id", 255, is_printable, "printable characters"
);
name!(
    /// The name of a policy.
    ProfileName, "a profile name", 64, is_token, "A-Z a-z 0-9 . _ - : /"
);
name!(
    /// The name of a proxy that requests may leave through.
    ProxyName, "a proxy name", 64, is_token, "A-Z a-z 0-9 . _ - : /"
);
name!(
    /// The name under which a subscription keeps one of its secrets.
    SecretName, "a secret name", 64, is_token, "A-Z a-z 0-9 . _ - : /"
);
name!(
    /// What people call a subscription, unique in its tenant.
    SubscriptionName, "a subscription name", 255, is_printable, "printable characters"
);
name!(
    /// What a client calls itself, unique in its tenant.
    ClientName, "a client", 255, is_printable, "printable characters"
);
name!(
    /// What the publisher repeats when it does not know whether a publish arrived.
    IdempotencyKey, "an idempotency key", 255, is_printable, "printable characters"
);
name!(
    /// The key of an ordered lane, e.g. a user's id.
    LaneKey, "an ordering key", 255, is_printable, "printable characters"
);

impl RealmName {
    /// The realm that is always there. Tenants that name none are in it.
    pub const DEFAULT: &'static str = "default";

    /// Whether it is the one that is always there.
    pub fn is_default(&self) -> bool {
        self.as_str() == Self::DEFAULT
    }
}

impl Default for RealmName {
    fn default() -> Self {
        Self(Arc::from(Self::DEFAULT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_hold() {
        assert!(EventType::new("payment.succeeded").is_ok());
        for bad in ["", "a b", "a\nb", "ä", &"x".repeat(129)] {
            assert!(EventType::new(bad).is_err(), "{bad:?}");
        }
        assert!(LaneKey::new("user 7 / ä").is_ok());
        assert!(LaneKey::new("a\r\nb").is_err());
    }
}
