//! What templates may ask for.

use std::borrow::Cow;

use posthorn_domain::{Event, Labels, Lookup, Subscription, SubscriptionName, Timestamp};
use posthorn_store::Work;

use crate::catalog::SubscriptionView;

/// What is known of an event alone.
pub(crate) struct EventLookup<'a>(pub(crate) &'a Event);

impl Lookup for EventLookup<'_> {
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
        let event = self.0;
        if let Some(attribute) = name.strip_prefix("event.attributes.") {
            return event.attributes.get(attribute).map(|v| Cow::Borrowed(v.as_str()));
        }
        Some(match name {
            "event.id" => Cow::Owned(event.id.to_string()),
            "event.type" => Cow::Borrowed(event.event_type.as_str()),
            "event.family" => {
                let text = event.event_type.as_str();
                Cow::Borrowed(text.split_once('.').map_or(text, |(family, _)| family))
            }
            "event.topic" => Cow::Borrowed(event.topic.as_str()),
            "event.key" => Cow::Borrowed(event.key.as_ref()?.as_str()),
            "event.accepted_at" => Cow::Owned(event.accepted_at.to_string()),
            "event.date" => Cow::Owned(event.accepted_at.utc_date()),
            "tenant.id" => Cow::Owned(event.tenant.to_string()),
            _ => return None,
        })
    }
}

/// What is known of a subscription before there is anything to deliver.
pub(crate) struct SubscriptionLookup<'a> {
    pub(crate) name: Option<&'a SubscriptionName>,
    pub(crate) labels: &'a Labels,
}

impl<'a> SubscriptionLookup<'a> {
    pub(crate) fn of(subscription: &'a Subscription) -> Self {
        Self { name: subscription.name.as_ref(), labels: &subscription.labels }
    }
}

impl Lookup for SubscriptionLookup<'_> {
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
        match name.strip_prefix("subscription.labels.") {
            Some(label) => self.labels.get(label).map(Cow::Borrowed),
            None if name == "subscription.name" => Some(Cow::Borrowed(self.name?.as_str())),
            None => None,
        }
    }
}

/// What is known when an attempt begins.
pub(crate) struct AttemptLookup<'a> {
    pub(crate) view: &'a SubscriptionView,
    pub(crate) work: &'a Work,
    pub(crate) now: Timestamp,
}

impl Lookup for AttemptLookup<'_> {
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
        if name.starts_with("subscription.labels.") || name == "subscription.name" {
            let known = SubscriptionLookup::of(&self.view.subscription);
            return known.lookup(name).map(|value| Cow::Owned(value.into_owned()));
        }
        Some(match name {
            "delivery.id" => Cow::Owned(self.work.delivery.id.to_string()),
            "subscription.id" => Cow::Owned(self.view.subscription.id.to_string()),
            "attempt.number" => Cow::Owned((self.work.delivery.attempts + 1).to_string()),
            "attempt.unix" => Cow::Owned(self.now.as_seconds().to_string()),
            "attempt.at" => Cow::Owned(self.now.to_string()),
            _ => {
                // The event outlives this lookup, so its borrowed values are copied once here.
                let value = EventLookup(&self.work.event).lookup(name)?.into_owned();
                Cow::Owned(value)
            }
        })
    }
}
