//! Sessions of pages: an operator in the console, a customer in the portal, and links into the portal.
//!
//! A session is opened on somebody's word (a key, a proxy, a provider of identities, a link), lasts for a time, and opens
//! nothing afterwards. A link is a session that waits: whoever redeems it, once, gets the session that it stands for.
//!
//! # What it must not know
//! How the secret half of a token is made and checked, and what a page looks like.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Home, KeyId, RealmName, Scope, SessionId, TenantId, Timestamp};

/// The longest name of a session, in bytes.
pub const SESSION_NAME_BYTES_MAX: usize = 200;
/// The longest name of a group that is kept with a session, in bytes.
pub const SESSION_GROUP_BYTES_MAX: usize = 256;
/// Groups that are kept with a session.
pub const SESSION_GROUPS_MAX: usize = 64;
/// The longest label of a session, in bytes.
pub const SESSION_LABEL_BYTES_MAX: usize = 128;
/// The longest URL that a customer goes back to, in bytes.
pub const SESSION_BACK_BYTES_MAX: usize = 2_048;

/// One session of pages, or a link that can be redeemed for one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Part of the token's text, and what it is called in lists.
    pub id: SessionId,
    /// Of which pages.
    pub kind: SessionKind,
    /// SHA-256 of the secret half of its token.
    #[serde(with = "crate::base64_text")]
    pub token: [u8; 32],
    /// On whose word it was opened.
    pub opener: Opener,
    /// For people: what a key is described as, a name from a provider, or the operator's own word for a customer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Whose it is.
    pub home: Home,
    /// What it may do in the console; nothing for the portal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<Scope>,
    /// The groups that a proxy or a provider named, as far as they are kept: what they stand for is looked up with each
    /// request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What it may do in the portal; nothing for the console.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
    /// Which event types it may see in the portal's API, of those that not everybody may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feature_flags: Vec<String>,
    /// The operator's own name for it: all of one tenant with the same one can be ended at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Where a customer goes when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<String>,
    /// When it was opened.
    pub created_at: Timestamp,
    /// When it opens nothing any more.
    pub expires_at: Timestamp,
    /// Of a link: how long the session lasts that it is redeemed for. Nothing for all others.
    #[serde(default, with = "millis", skip_serializing_if = "Duration::is_zero")]
    pub lasts: Duration,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Whether its time is not over.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }

    /// The tenant whose it is.
    pub const fn tenant(&self) -> Option<TenantId> {
        match &self.home {
            Home::Tenant(tenant) => Some(*tenant),
            Home::Operator | Home::Realm(_) => None,
        }
    }

    /// The realm whose it is; nothing for those of tenants.
    pub const fn realm(&self) -> Option<&RealmName> {
        match &self.home {
            Home::Realm(realm) => Some(realm),
            Home::Operator | Home::Tenant(_) => None,
        }
    }

    /// Whether it may do this in the portal.
    pub fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }
}

/// Of which pages a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// The console, for operators and whoever manages a tenant.
    Console,
    /// The portal, for customers.
    Portal,
    /// A link into the portal that nobody has redeemed.
    Link,
}

impl SessionKind {
    /// All of them, for tables.
    pub const ALL: [Self; 3] = [Self::Console, Self::Portal, Self::Link];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Console => "console",
            Self::Portal => "portal",
            Self::Link => "link",
        }
    }
}

/// What a customer may do in the portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// See endpoints, events and attempts.
    View,
    /// See the secrets that signatures are made with.
    SeeSecret,
    /// Replace these secrets.
    RotateSecret,
    /// Create, change and delete endpoints.
    ManageEndpoints,
    /// Have something sent again.
    Resend,
}

impl Capability {
    /// All of them, for tables.
    pub const ALL: [Self; 5] =
        [Self::View, Self::SeeSecret, Self::RotateSecret, Self::ManageEndpoints, Self::Resend];

    /// What a link allows that does not say: all but to see secrets that are in use.
    pub const DEFAULT: [Self; 4] =
        [Self::View, Self::RotateSecret, Self::ManageEndpoints, Self::Resend];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::SeeSecret => "see_secret",
            Self::RotateSecret => "rotate_secret",
            Self::ManageEndpoints => "manage_endpoints",
            Self::Resend => "resend",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// That a text names no capability, or no kind of session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be one of {0}")]
pub struct UnknownName(String);

impl FromStr for Capability {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let known = Self::ALL.into_iter().find(|capability| capability.as_str() == text);
        known.ok_or_else(|| UnknownName(Self::ALL.map(Self::as_str).join(", ")))
    }
}

impl FromStr for SessionKind {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| UnknownName(Self::ALL.map(Self::as_str).join(", ")))
    }
}

/// On whose word a session was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opener {
    /// Somebody showed this key.
    Key {
        /// Which.
        id: KeyId,
    },
    /// A proxy in front of the server said who it is.
    Proxy,
    /// A provider of identities said who it is (OpenID Connect).
    Provider,
    /// A link into the portal: itself, or the session that it was redeemed for.
    Link {
        /// The key that the link was made with, if it was one.
        key: Option<KeyId>,
    },
}

impl Opener {
    /// The key that it stands and falls with.
    pub const fn key(&self) -> Option<KeyId> {
        match self {
            Self::Key { id } => Some(*id),
            Self::Link { key } => *key,
            Self::Proxy | Self::Provider => None,
        }
    }

    /// The stable name.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Key { .. } => "key",
            Self::Proxy => "proxy",
            Self::Provider => "provider",
            Self::Link { .. } => "link",
        }
    }
}

/// A time in whole milliseconds, as stores keep it.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session {
            id: SessionId::new(Timestamp::from_millis(5_000), 7),
            kind: SessionKind::Link,
            token: [0xAB; 32],
            opener: Opener::Link { key: Some(KeyId::new(Timestamp::from_millis(1), 1)) },
            name: "Ann".to_owned(),
            home: Home::Tenant(TenantId::DEFAULT),
            scopes: Vec::new(),
            groups: Vec::new(),
            capabilities: vec![Capability::View, Capability::SeeSecret],
            feature_flags: Vec::new(),
            label: Some("s-1".to_owned()),
            back: None,
            created_at: Timestamp::from_millis(5_000),
            expires_at: Timestamp::from_millis(305_000),
            lasts: Duration::from_secs(3_600),
        }
    }

    /// Stores keep the text: it must be read for ever.
    #[test]
    fn a_session_reads_back() {
        let text = serde_json::to_string(&session()).expect("a text");
        assert_eq!(
            text,
            r#"{"id":"ses_00000004w8e008000000000007","kind":"link","token":"q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s=","opener":{"link":{"key":"key_0000000001e008000000000001"}},"name":"Ann","home":{"tenant":"ten_00000000000000000000000000"},"capabilities":["view","see_secret"],"label":"s-1","created_at":"1970-01-01T00:00:05.000Z","expires_at":"1970-01-01T00:05:05.000Z","lasts":3600000}"#
        );
        assert_eq!(serde_json::from_str::<Session>(&text).expect("its own text"), session());
    }

    #[test]
    fn groups_are_kept() {
        let of_groups = Session { groups: vec!["ops".to_owned(), "/acme".to_owned()], ..session() };
        let text = serde_json::to_string(&of_groups).expect("a text");
        assert!(text.contains(r#""groups":["ops","/acme"]"#), "{text}");
        assert_eq!(serde_json::from_str::<Session>(&text).expect("its own text"), of_groups);
    }

    #[test]
    fn nothing_of_a_token_is_shown() {
        let shown = format!("{:?}", session());
        assert!(shown.contains("ses_") && !shown.contains("171") && !shown.contains("token"));
    }

    #[test]
    fn names_are_read_back() {
        for capability in Capability::ALL {
            assert_eq!(capability.as_str().parse(), Ok(capability));
            let text = serde_json::to_string(&capability).expect("a text");
            assert_eq!(text, format!("\"{capability}\""));
        }
        for kind in SessionKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        let problem = "write".parse::<Capability>().expect_err("no capability").to_string();
        assert!(problem.contains("see_secret"), "{problem}");
        assert!(!Capability::DEFAULT.contains(&Capability::SeeSecret));
    }

    #[test]
    fn a_session_lasts_until_its_end() {
        let session = session();
        assert!(session.is_alive(Timestamp::from_millis(304_999)));
        assert!(!session.is_alive(Timestamp::from_millis(305_000)));
        assert!(session.can(Capability::SeeSecret) && !session.can(Capability::Resend));
        assert_eq!((session.tenant(), session.realm()), (Some(TenantId::DEFAULT), None));
    }
}
