//! The audit log: who changed what, when, and from where.
//!
//! A line is written by the transaction that makes the change, and never changed afterwards. It says which fields
//! were changed and never what was in them: nothing that is secret, no payload and no value of a header stands in one.
//!
//! # What it must not know
//! Who may read which lines, and how they are shown: that is the API's affair.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{AuditId, RealmName, TenantId, Timestamp};

/// The largest detail of a line, as JSON.
pub const AUDIT_DETAIL_BYTES_MAX: usize = 2 << 10;
/// The longest name in a line, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// One line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Its id, which says when: lines are kept in this order.
    pub id: AuditId,
    /// Who.
    pub actor: Actor,
    /// From where.
    pub origin: Origin,
    /// What was done.
    pub action: AuditAction,
    /// In which tenant, if it concerns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// In which realm: that of the tenant, or the one it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realm: Option<RealmName>,
    /// To what.
    pub object: AuditObject,
    /// What else is to be said: names of fields, counts, what a job is about.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub detail: Map<String, Value>,
}

impl AuditEntry {
    /// When.
    pub fn at(&self) -> Timestamp {
        self.id.made_at()
    }

    /// Whether it stays when everything else of its tenant goes.
    pub fn outlives_its_tenant(&self) -> bool {
        self.action == AuditAction::TenantDeleted
    }

    /// The same with a detail that is not too large: one that is says so instead.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let size = serde_json::to_vec(&self.detail).map_or(usize::MAX, |text| text.len());
        if size > AUDIT_DETAIL_BYTES_MAX {
            self.detail = Map::from_iter([("left_out".to_owned(), Value::Bool(true))]);
        }
        self.actor.name = self.actor.name.map(shortened);
        self.object.name = self.object.name.map(shortened);
        self
    }
}

/// The first part of a long name.
fn shortened(mut name: String) -> String {
    let end = (0..=NAME_BYTES_MAX.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    name.truncate(end.unwrap_or_default());
    name
}

/// Who changed something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// As what they came.
    pub kind: ActorKind,
    /// Which one; nothing for the server itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it was called then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whose it is.
    #[serde(default)]
    pub home: Home,
}

impl Actor {
    /// The server itself.
    pub const SERVER: Self =
        Self { kind: ActorKind::Server, id: None, name: None, home: Home::Operator };
}

/// As what somebody changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// With an API key.
    Key,
    /// With a certificate.
    Certificate,
    /// As a client of a dialect.
    Client,
    /// In a session of the console or the portal.
    Session,
    /// Nobody: the server itself, by its configuration or by what a policy says.
    Server,
}

impl ActorKind {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Certificate => "certificate",
            Self::Client => "client",
            Self::Session => "session",
            Self::Server => "server",
        }
    }
}

/// Whose somebody is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Home {
    /// The operator's.
    #[default]
    Operator,
    /// A realm's.
    Realm(RealmName),
    /// A tenant's.
    Tenant(TenantId),
}

/// Where a change came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// By which way: `api`, a dialect's name, `console`, `portal`, `cli`, `config` or `server`.
    pub surface: String,
    /// The address of whoever was connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

/// What something was done to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditObject {
    /// What it is, in one word.
    pub kind: String,
    /// Its id; the name of what has none.
    pub id: String,
    /// What else it was called then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What was done: a noun and what happened to it.
macro_rules! actions {
    ($($name:ident = $text:literal,)+) => {
        /// What was done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum AuditAction {
            $(
                #[doc = concat!("`", $text, "`.")]
                $name,
            )+
        }

        impl AuditAction {
            /// All of them, for tables.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The stable name.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

actions! {
    RealmCreated = "realm.created",
    RealmUpdated = "realm.updated",
    RealmDeleted = "realm.deleted",
    EventTypeCreated = "event_type.created",
    EventTypeUpdated = "event_type.updated",
    EventTypeDeleted = "event_type.deleted",
    TenantCreated = "tenant.created",
    TenantUpdated = "tenant.updated",
    TenantDeleted = "tenant.deleted",
    TopicCreated = "topic.created",
    TopicUpdated = "topic.updated",
    TopicDeleted = "topic.deleted",
    SubscriptionCreated = "subscription.created",
    SubscriptionUpdated = "subscription.updated",
    SubscriptionPaused = "subscription.paused",
    SubscriptionResumed = "subscription.resumed",
    SubscriptionDisabled = "subscription.disabled",
    SubscriptionDeleted = "subscription.deleted",
    SecretViewed = "secret.viewed",
    ProfileCreated = "profile.created",
    ProfileUpdated = "profile.updated",
    ProfileDeleted = "profile.deleted",
    ClientCreated = "client.created",
    ClientUpdated = "client.updated",
    ClientDeleted = "client.deleted",
    KeyCreated = "key.created",
    KeyRevoked = "key.revoked",
    CertificateCreated = "certificate.created",
    CertificateUpdated = "certificate.updated",
    CertificateRevoked = "certificate.revoked",
    CertificateDeleted = "certificate.deleted",
    DeliveryCancelled = "delivery.cancelled",
    DeliveryRetried = "delivery.retried",
    DeliveryForgotten = "delivery.forgotten",
    EventExpunged = "event.expunged",
    ResponseExpunged = "response.expunged",
    RedriveCreated = "redrive.created",
    RedriveCancelled = "redrive.cancelled",
    JobCreated = "job.created",
    JobCancelled = "job.cancelled",
    SessionOpened = "session.opened",
    SessionEnded = "session.ended",
    PortalLinkCreated = "portal_link.created",
    PortalLinkRedeemed = "portal_link.redeemed",
    NodeResumed = "node.resumed",
}

impl AuditAction {
    /// The noun: what stands before the dot.
    pub fn noun(self) -> &'static str {
        let text = self.as_str();
        text.split_once('.').map_or(text, |(noun, _)| noun)
    }
}

impl fmt::Display for AuditAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// That a text names no action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an action such as subscription.created, nor the first word of one")]
pub struct UnknownAction;

impl FromStr for AuditAction {
    type Err = UnknownAction;

    fn from_str(text: &str) -> Result<Self, UnknownAction> {
        Self::ALL.iter().copied().find(|action| action.as_str() == text).ok_or(UnknownAction)
    }
}

impl Serialize for AuditAction {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for AuditAction {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Which actions are meant: one, or all of a noun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionFilter {
    /// Exactly this one.
    Exactly(AuditAction),
    /// All whose noun is this.
    Noun(&'static str),
}

impl ActionFilter {
    /// Whether an action is meant.
    pub fn wants(self, action: AuditAction) -> bool {
        match self {
            Self::Exactly(wanted) => wanted == action,
            Self::Noun(noun) => noun == action.noun(),
        }
    }
}

impl FromStr for ActionFilter {
    type Err = UnknownAction;

    fn from_str(text: &str) -> Result<Self, UnknownAction> {
        if let Ok(action) = text.parse() {
            return Ok(Self::Exactly(action));
        }
        let mut nouns = AuditAction::ALL.iter().map(|action| action.noun());
        nouns.find(|noun| *noun == text).map(Self::Noun).ok_or(UnknownAction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> AuditEntry {
        AuditEntry {
            id: AuditId::new(Timestamp::from_millis(5_000), 7),
            actor: Actor {
                kind: ActorKind::Key,
                id: Some("key_1".to_owned()),
                name: Some("ci".to_owned()),
                home: Home::Tenant(TenantId::DEFAULT),
            },
            origin: Origin { surface: "api".to_owned(), address: "192.0.2.1".parse().ok() },
            action: AuditAction::SubscriptionCreated,
            tenant: Some(TenantId::DEFAULT),
            realm: Some(RealmName::default()),
            object: AuditObject {
                kind: "subscription".to_owned(),
                id: "sub_1".to_owned(),
                name: None,
            },
            detail: Map::from_iter([("fields".to_owned(), serde_json::json!(["filter"]))]),
        }
    }

    /// Stores keep the text: it must be read for ever.
    #[test]
    fn a_line_reads_back() {
        let text = serde_json::to_string(&line()).expect("a text");
        assert_eq!(
            text,
            r#"{"id":"aud_00000004w8e008000000000007","actor":{"kind":"key","id":"key_1","name":"ci","home":{"tenant":"ten_00000000000000000000000000"}},"origin":{"surface":"api","address":"192.0.2.1"},"action":"subscription.created","tenant":"ten_00000000000000000000000000","realm":"default","object":{"kind":"subscription","id":"sub_1"},"detail":{"fields":["filter"]}}"#
        );
        assert_eq!(serde_json::from_str::<AuditEntry>(&text).expect("its own text"), line());
        assert_eq!(line().at(), Timestamp::from_millis(5_000));
    }

    #[test]
    fn actions_are_found_by_name_and_by_noun() {
        for action in AuditAction::ALL {
            assert_eq!(action.as_str().parse(), Ok(*action));
            assert_eq!(action.as_str().parse(), Ok(ActionFilter::Exactly(*action)));
            assert_eq!(action.noun().parse(), Ok(ActionFilter::Noun(action.noun())));
            assert!(ActionFilter::Noun(action.noun()).wants(*action));
            let [noun, verb] = *action.as_str().split('.').collect::<Vec<_>>() else {
                panic!("{action} is not two words");
            };
            assert!(!noun.is_empty() && verb.ends_with("ed") || verb.ends_with("ten"), "{action}");
        }
        assert_eq!("subscription.".parse::<ActionFilter>(), Err(UnknownAction));
        assert_eq!("subscriptions".parse::<ActionFilter>(), Err(UnknownAction));
    }

    #[test]
    fn what_is_too_large_is_left_out() {
        let mut large = line();
        large.detail.insert("x".to_owned(), Value::String("y".repeat(AUDIT_DETAIL_BYTES_MAX)));
        large.object.name = Some("ä".repeat(NAME_BYTES_MAX));
        let bounded = large.bounded();
        assert_eq!(Value::Object(bounded.detail), serde_json::json!({"left_out": true}));
        assert_eq!(bounded.object.name.map(|name| name.len()), Some(NAME_BYTES_MAX));
        assert_eq!(line().bounded(), line());
    }
}
