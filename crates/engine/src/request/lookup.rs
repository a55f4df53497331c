//! What templates may ask for.

use std::borrow::Cow;
use std::sync::OnceLock;

use posthorn_domain::{
    Event, Labels, Lookup, Policy, Subscription, SubscriptionName, Timestamp, alternatives,
};
use posthorn_store::Work;
use serde_json::Value;

use crate::catalog::SubscriptionView;

/// What is known of an event alone.
pub(crate) struct EventLookup<'a> {
    pub(crate) event: &'a Event,
    /// The payload as JSON, read when a template first asks for a part of it.
    payload: OnceLock<Option<Value>>,
}

impl<'a> EventLookup<'a> {
    pub(crate) fn new(event: &'a Event) -> Self {
        Self { event, payload: OnceLock::new() }
    }

    /// The same with the payload as it was read before, if it was.
    pub(crate) fn read(event: &'a Event, payload: Option<Option<Value>>) -> Self {
        Self { event, payload: payload.map(OnceLock::from).unwrap_or_default() }
    }

    fn find(&self, name: &str) -> Option<Cow<'_, str>> {
        let event = self.event;
        if let Some(attribute) = name.strip_prefix("event.attributes.") {
            return event.attributes.get(attribute).map(|v| Cow::Borrowed(v.as_str()));
        }
        if let Some(path) = name.strip_prefix("event.payload.") {
            let parse = || alternatives::usual_json(event);
            return member(self.payload.get_or_init(parse).as_ref()?, path);
        }
        Some(match name {
            "event.id" => Cow::Owned(event.id.to_string()),
            "event.type" => Cow::Borrowed(event.event_type.as_str()),
            "event.family" => Cow::Borrowed(event.family()),
            "event.topic" => Cow::Borrowed(event.topic.as_str()),
            "event.key" => Cow::Borrowed(event.key.as_ref()?.as_str()),
            "event.accepted_at" => Cow::Owned(event.accepted_at.to_string()),
            "event.date" => Cow::Owned(event.accepted_at.utc_date()),
            "tenant.id" => Cow::Owned(event.tenant.to_string()),
            _ => return None,
        })
    }
}

impl Lookup for EventLookup<'_> {
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
        self.find(name)
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

/// The text at a dotted path of members: a string as it is, a number or a boolean as JSON has it.
pub(crate) fn member<'v>(json: &'v Value, path: &str) -> Option<Cow<'v, str>> {
    match path.split('.').try_fold(json, |value, name| value.as_object()?.get(name))? {
        Value::String(text) => Some(Cow::Borrowed(text)),
        value @ (Value::Number(_) | Value::Bool(_)) => Some(Cow::Owned(value.to_string())),
        _ => None,
    }
}

/// What is known when an attempt begins.
pub(crate) struct AttemptLookup<'a> {
    pub(crate) view: &'a SubscriptionView,
    pub(crate) policy: &'a Policy,
    pub(crate) work: &'a Work,
    pub(crate) now: Timestamp,
    event: &'a EventLookup<'a>,
}

impl<'a> AttemptLookup<'a> {
    pub(crate) fn new(
        view: &'a SubscriptionView,
        policy: &'a Policy,
        work: &'a Work,
        event: &'a EventLookup<'a>,
        now: Timestamp,
    ) -> Self {
        Self { view, policy, work, now, event }
    }

    /// A fact of the attempt itself, as opposed to a value of the policy.
    fn fact(&self, name: &str) -> Option<Cow<'_, str>> {
        let Self { view, work, now, event, .. } = self;
        if let Some(label) = name.strip_prefix("subscription.labels.") {
            return view.subscription.labels.get(label).map(Cow::Borrowed);
        }
        Some(match name {
            "delivery.id" => Cow::Owned(work.delivery.id.to_string()),
            "subscription.name" => Cow::Borrowed(view.subscription.name.as_ref()?.as_str()),
            "subscription.id" => Cow::Owned(view.subscription.id.to_string()),
            "attempt.number" => Cow::Owned((work.delivery.attempts + 1).to_string()),
            "attempt.unix" => Cow::Owned(now.as_seconds().to_string()),
            "attempt.at" => Cow::Owned(now.to_string()),
            _ => return event.find(name),
        })
    }
}

/// An attempt's own facts, without the policy's values.
struct Facts<'a, 'b>(&'b AttemptLookup<'a>);

impl Lookup for Facts<'_, '_> {
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
        self.0.fact(name)
    }
}

impl Lookup for AttemptLookup<'_> {
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
        if !Policy::is_value(name) {
            return self.fact(name);
        }
        let facts = Facts(self);
        let value = self.policy.with_values(&facts).lookup(name)?.into_owned();
        Some(Cow::Owned(value))
    }
}
