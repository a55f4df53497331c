//! Channels as destinations of subscriptions: what is stored of them, and how messages to them are sent.
//!
//! A channel is of an agent of this server ([`PushTarget`]), or of a browser that another push service looks after
//! ([`PushServiceTarget`]). Both have the same knobs.
//!
//! What it must not know: how a message is encrypted, stored or posted.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{AgentId, ChannelId, Lookup, PushTopic, PushTopicError, Template, TemplateError};

/// How many bytes the template of a topic may have.
const TEMPLATE_BYTES_MAX: usize = 256;
/// What the placeholders of a topic may begin with. What is different for each attempt or delivery would make
/// every message a matter of its own.
const TEMPLATE_NAMES: [&str; 4] = ["event.", "subscription.", "tenant.", "values."];

/// How urgent messages are: whether a device is woken up for them (RFC 8030, section 5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PushUrgency {
    /// On power and Wi-Fi.
    VeryLow,
    /// On either power or Wi-Fi.
    Low,
    /// On neither.
    #[default]
    Normal,
    /// Also when the battery is low.
    High,
}

/// Why a text is not an urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the urgency must be very-low, low, normal or high")]
pub struct PushUrgencyError;

impl PushUrgency {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::VeryLow, Self::Low, Self::Normal, Self::High];

    /// As the header `Urgency` spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::VeryLow => "very-low",
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }

    /// Whether it is the one that nobody has to name.
    pub fn is_normal(&self) -> bool {
        *self == Self::Normal
    }
}

impl FromStr for PushUrgency {
    type Err = PushUrgencyError;

    fn from_str(text: &str) -> Result<Self, PushUrgencyError> {
        Self::ALL.into_iter().find(|urgency| urgency.as_str() == text).ok_or(PushUrgencyError)
    }
}

/// Which topic messages have: of the messages that wait for a browser, only the newest of a topic is kept.
/// Fixed, or made from the event.
#[derive(Clone, PartialEq, Eq)]
pub struct PushTopicRule(Template);

/// Why a text does not say which topic messages have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushTopicRuleError {
    /// Too many bytes.
    #[error("a topic with placeholders may have at most {TEMPLATE_BYTES_MAX} bytes")]
    TooLong,
    /// Not a template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// Fixed, and not a topic.
    #[error(transparent)]
    Fixed(#[from] PushTopicError),
    /// A placeholder for what changes with each attempt.
    #[error(
        "`{0}` cannot be part of a topic: use values of the event, the subscription, the tenant or \
         the policy (event.key, subscription.name, tenant.id, values.NAME)"
    )]
    Name(String),
}

/// A topic as a rule makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MadeTopic {
    /// It stands in the rule.
    Fixed(PushTopic),
    /// Made from values of the event, which are not for others to read.
    Private(String),
}

impl PushTopicRule {
    /// As it was written.
    pub fn source(&self) -> &str {
        self.0.source()
    }

    /// The topic of whatever has these values; none when one that it needs is missing or empty.
    pub fn make(&self, values: &dyn Lookup) -> Option<MadeTopic> {
        let text = self.0.render(&NotEmpty(values), str::to_owned).ok()?;
        match self.is_fixed() {
            true => text.parse().ok().map(MadeTopic::Fixed),
            false => Some(MadeTopic::Private(text)),
        }
    }

    fn is_fixed(&self) -> bool {
        self.0.placeholders().next().is_none()
    }
}

/// Values that are there and not empty: messages about nothing in particular must not replace each other.
struct NotEmpty<'a>(&'a dyn Lookup);

impl Lookup for NotEmpty<'_> {
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
        self.0.lookup(name).filter(|value| !value.is_empty())
    }
}

impl FromStr for PushTopicRule {
    type Err = PushTopicRuleError;

    fn from_str(text: &str) -> Result<Self, PushTopicRuleError> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(PushTopicRuleError::TooLong);
        }
        let rule = Self(text.parse()?);
        if rule.is_fixed() {
            text.parse::<PushTopic>()?;
        }
        let known = |name: &&str| TEMPLATE_NAMES.iter().any(|begin| name.starts_with(begin));
        let odd = rule.0.names().find(|name| !known(name)).map(str::to_owned);
        odd.map_or(Ok(rule), |name| Err(PushTopicRuleError::Name(name)))
    }
}

impl fmt::Debug for PushTopicRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.source(), f)
    }
}

impl Serialize for PushTopicRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.source())
    }
}

impl<'de> Deserialize<'de> for PushTopicRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A channel of this server as the destination of a subscription.
///
/// Whoever knows the agent's id can pretend to be it, so it is never shown, not even in logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushTarget {
    /// Whose channel.
    pub agent: AgentId,
    /// Which.
    pub channel: ChannelId,
    /// The agent's public key (`p256dh`), when messages are encrypted for it. The secret that goes
    /// with it is kept among those of the subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p256dh: Option<Box<str>>,
    /// For how many seconds a message waits for the agent.
    pub ttl: u32,
    /// How urgent messages are. Agents of this server get all of them at once.
    #[serde(default, skip_serializing_if = "PushUrgency::is_normal")]
    pub urgency: PushUrgency,
    /// Which topic messages have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<PushTopicRule>,
}

impl fmt::Debug for PushTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushTarget")
            .field("encrypted", &self.p256dh.is_some())
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

/// A browser's subscription with another push service as the destination of a subscription.
///
/// Whoever knows the URL of an endpoint may be able to send to it, so only its origin stands here. The URL, the
/// browser's `auth` and the key that messages are signed with are among the sealed secrets of the subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushServiceTarget {
    /// Scheme, host and port of the endpoint.
    pub origin: Box<str>,
    /// The browser's public key (`p256dh`).
    pub p256dh: Box<str>,
    /// For how many seconds the service keeps a message for the browser.
    pub ttl: u32,
    /// How urgent messages are.
    #[serde(default, skip_serializing_if = "PushUrgency::is_normal")]
    pub urgency: PushUrgency,
    /// Which topic messages have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<PushTopicRule>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Destination;

    const AGENT: &str = "0123456789abcdef0123456789abcdef";
    const CHANNEL: &str = "01234567-89ab-cdef-0123-456789abcdef";

    fn kept(destination: &Destination) -> String {
        let json = serde_json::to_string(destination).expect("JSON");
        let back: Destination = serde_json::from_str(&json).expect("a destination");
        assert_eq!(&back, destination);
        let more = json.replace(r#""ttl":60"#, r#""ttl":60,"more":1"#);
        assert!(serde_json::from_str::<Destination>(&more).is_err(), "unknown fields are errors");
        json
    }

    #[test]
    fn a_target_is_kept_as_json_and_does_not_show_its_agent() {
        let mut target = PushTarget {
            agent: AGENT.parse().expect("an id"),
            channel: CHANNEL.parse().expect("an id"),
            p256dh: None,
            ttl: 60,
            urgency: PushUrgency::Normal,
            topic: None,
        };
        // As it was stored before there were urgencies and topics.
        let plain = kept(&Destination::Push(target.clone()));
        let expected =
            format!(r#"{{"kind":"push","agent":"{AGENT}","channel":"{CHANNEL}","ttl":60}}"#);
        assert_eq!(plain, expected);
        assert!(!format!("{target:?}").contains(&AGENT[..8]), "{target:?}");
        target.urgency = PushUrgency::VeryLow;
        target.topic = Some("{event.key}".parse().expect("a rule"));
        let json = kept(&Destination::Push(target));
        assert!(json.ends_with(r#""urgency":"very-low","topic":"{event.key}"}"#), "{json}");
    }

    #[test]
    fn of_an_endpoint_elsewhere_only_the_origin_is_kept_in_the_clear() {
        let target = PushServiceTarget {
            origin: "https://push.example".into(),
            p256dh: "BPublic".into(),
            ttl: 60,
            urgency: PushUrgency::Normal,
            topic: None,
        };
        let destination = Destination::PushService(target);
        let expected = r#"{"kind":"push_service","origin":"https://push.example","p256dh":"BPublic","ttl":60}"#;
        assert_eq!(kept(&destination), expected);
        assert_eq!(destination.url(), None);
    }

    #[test]
    fn urgencies_are_spelled_as_the_header_has_them() {
        for urgency in PushUrgency::ALL {
            assert_eq!(urgency.as_str().parse(), Ok(urgency));
            let json = serde_json::to_string(&urgency).expect("JSON");
            assert_eq!(json, format!("\"{}\"", urgency.as_str()));
        }
        for text in ["", "High", "very_low", "soon"] {
            assert_eq!(text.parse::<PushUrgency>(), Err(PushUrgencyError));
        }
    }

    struct Values;
    impl Lookup for Values {
        fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
            match name {
                "event.key" => Some(Cow::Borrowed("order 7")),
                "event.attributes.none" => Some(Cow::Borrowed("")),
                _ => None,
            }
        }
    }

    #[test]
    fn a_topic_is_fixed_or_made_from_the_event() {
        let make = |text: &str| text.parse::<PushTopicRule>().expect(text).make(&Values);
        let fixed = "news".parse().expect("a topic");
        assert_eq!(make("news"), Some(MadeTopic::Fixed(fixed)));
        let made = |text: &str| Some(MadeTopic::Private(text.to_owned()));
        assert_eq!(make("{event.key}"), made("order 7"));
        assert_eq!(make("o-{event.attributes.none|event.key}"), made("o-order 7"));
        assert_eq!(make("{event.attributes.none}"), None);
        assert_eq!(make("{subscription.name}"), None);
    }

    #[test]
    fn what_can_never_be_a_topic_is_refused() {
        let long = "a".repeat(33);
        let longer = format!("{{event.key}}{}", "a".repeat(256));
        for text in ["", "no news", "{", "{event key}", "{{x}}", &long, &longer] {
            assert!(text.parse::<PushTopicRule>().is_err(), "{text}");
        }
        for text in ["{delivery.id}", "{attempt.number}", "x{event.key|attempt.unix}"] {
            let refused = text.parse::<PushTopicRule>();
            assert!(matches!(refused, Err(PushTopicRuleError::Name(_))), "{text}: {refused:?}");
        }
    }
}
