//! Who wants which events, where and how.

use std::fmt;

use posthorn_domain::filter::{Glob, Group};
use posthorn_domain::{
    Filter, ProfileName, SecretName, SubscriptionId, SubscriptionName, TopicName,
};
use posthorn_engine::{DestinationInput, NewSubscription, SecretInput};
use posthorn_sealing::vault::Secret;

use crate::error::Error;

/// What most policies call the secret that signs.
const SIGNING_SECRET: &str = posthorn_domain::policy::profiles::SIGNING_SECRET;

/// Who wants which events, where and how.
#[derive(Clone)]
#[must_use = "a subscription does nothing until it is made with `Posthorn::subscribe`"]
pub struct Subscription {
    destination: DestinationInput,
    name: Option<String>,
    topics: Vec<String>,
    types: Vec<String>,
    filter: Option<Filter>,
    profile: Option<String>,
    overrides: serde_json::Value,
    secrets: Vec<(String, String)>,
}

impl fmt::Debug for Subscription {
    // Secrets and overrides are nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Subscription");
        shown.field("name", &self.name).field("destination", &self.destination);
        shown.finish_non_exhaustive()
    }
}

impl Subscription {
    /// A subscription for every event, delivered to this URL by the profile `default`: signed as the Standard Webhooks
    /// specification has it, and tried twelve times over about three days.
    pub fn to(destination: impl Into<DestinationInput>) -> Self {
        Self {
            destination: destination.into(),
            name: None,
            topics: Vec::new(),
            types: Vec::new(),
            filter: None,
            profile: None,
            overrides: serde_json::Value::Null,
            secrets: Vec::new(),
        }
    }

    /// The name by which it is found again. Without one, every call of
    /// [`Posthorn::subscribe`](crate::Posthorn::subscribe) makes another.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only events on this topic; several calls name several.
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topics.push(topic.into());
        self
    }

    /// Only events whose type fits this pattern, such as `order.*`; several calls name several.
    pub fn event_type(mut self, pattern: impl Into<String>) -> Self {
        self.types.push(pattern.into());
        self
    }

    /// Any other choice of events, in place of topics and types.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// The policy it follows: one of those shipped, or one of the engine's options.
    pub fn profile(mut self, name: impl Into<String>) -> Self {
        self.profile = Some(name.into());
        self
    }

    /// What it changes in that policy, as JSON: `{"schedule": {"max_attempts": 3}}`.
    pub fn overrides(mut self, changes: serde_json::Value) -> Self {
        self.overrides = changes;
        self
    }

    /// The secret that signs. When it is needed and not given, one is made up.
    pub fn signing_secret(self, secret: impl Into<String>) -> Self {
        self.secret(SIGNING_SECRET, secret)
    }

    /// Any other secret, by the name that the policy has for it.
    pub fn secret(mut self, name: impl Into<String>, secret: impl Into<String>) -> Self {
        self.secrets.push((name.into(), secret.into()));
        self
    }

    /// The topics it names, and the subscription as the engine wants it.
    pub(crate) fn into_parts(self) -> Result<(Vec<TopicName>, NewSubscription), Error> {
        let topics = self.topics.iter().map(|topic| TopicName::new(topic));
        let topics = topics.collect::<Result<Vec<_>, _>>()?;
        let filter = self.filter.unwrap_or_else(|| {
            let types = self.types.into_iter().map(Glob::new).collect();
            let group = Group { topics: topics.clone(), types, ..Group::default() };
            Filter { any_of: vec![group], ..Filter::default() }
        });
        let secrets = self
            .secrets
            .into_iter()
            .map(|(name, value)| Ok(SecretInput { name: SecretName::new(&name)?, value }));
        let wanted = NewSubscription {
            name: self.name.as_deref().map(SubscriptionName::new).transpose()?,
            destination: self.destination,
            filter: Some(filter),
            profile: self.profile.as_deref().map(ProfileName::new).transpose()?,
            overrides: self.overrides,
            secrets: secrets.collect::<Result<_, Error>>()?,
            ..NewSubscription::default()
        };
        Ok((topics, wanted))
    }
}

/// A subscription that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subscribed {
    /// Which.
    pub id: SubscriptionId,
    /// The signing secret that was made up for it, which its receiver needs. It is shown this once.
    pub secret: Option<Secret>,
    /// Whether anything was made or changed.
    pub changed: bool,
}
