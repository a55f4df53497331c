//! What a subscription is to clients of this API: an endpoint, or one of two kinds of destinations.

use std::collections::BTreeMap;

use posthorn_domain::{Labels, Subscription, TopicName};
use serde_json::{Value, json};

use super::super::Disabled;

/// The label that says which kind of destination it is.
const LABEL: &str = "svix.type";
const FIFO: &str = "fifoEndpoint";
const POLLING: &str = "pollingEndpoint";
/// Where nobody publishes: a polling endpoint wants what is there, so that nothing is ever sent to it and what it wants can still
/// be read from its filter.
const NOWHERE: &str = "svix.polled";

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Endpoint,
    /// Messages are sent one after the other, in the order of their commits.
    Fifo,
    /// Messages are asked for.
    Polling,
}

impl Kind {
    pub(crate) fn of(own: &Subscription) -> Self {
        match own.labels.get(LABEL) {
            Some(FIFO) => Self::Fifo,
            Some(POLLING) => Self::Polling,
            _ => Self::Endpoint,
        }
    }

    /// The same for subscriptions that this API knows: those with a URL.
    pub(crate) fn of_url(own: &Subscription) -> Option<Self> {
        own.destination.url().map(|_| Self::of(own))
    }

    /// A destination by the name of its type.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Fifo, Self::Polling].into_iter().find(|kind| kind.name() == name)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "",
            Self::Fifo => FIFO,
            Self::Polling => POLLING,
        }
    }

    pub(super) fn labels(self) -> Labels {
        let own = (self != Self::Endpoint).then(|| (LABEL.to_owned(), self.name().to_owned()));
        Labels::new(BTreeMap::from_iter(own)).unwrap_or_default()
    }

    /// What it changes in the profile. A message that is given up stops those behind it, which would overtake it otherwise.
    pub(super) fn overrides(self) -> Value {
        match self {
            Self::Fifo => json!({"order": {"scope": "subscription", "dead_head": "block"}}),
            Self::Endpoint | Self::Polling => json!({}),
        }
    }

    /// The topic that its filter names.
    pub(crate) fn topic(self, messages: &TopicName) -> TopicName {
        match self {
            Self::Polling => TopicName::new(NOWHERE).expect("it is a plain name"),
            Self::Endpoint | Self::Fifo => messages.clone(),
        }
    }

    /// Whether it loses what comes while it is disabled. Destinations never do: they are logs.
    pub(super) fn drops(self, disabled: Disabled) -> bool {
        self == Self::Endpoint && disabled == Disabled::Drop
    }
}
