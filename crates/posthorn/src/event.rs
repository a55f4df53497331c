//! An event to be published.

use std::collections::BTreeMap;

use bytes::Bytes;
use posthorn_domain::{
    EventType, Idempotency, IdempotencyKey, LaneKey, Span, Timestamp, TopicName, TraceContext,
};
use posthorn_engine::Publish;
use serde::Serialize;

use crate::error::Error;

/// An event to be published. Its payload reaches receivers byte for byte.
#[derive(Clone, Debug)]
#[must_use = "an event does nothing until it is published"]
pub struct Event {
    topic: String,
    event_type: String,
    payload: Bytes,
    content_type: String,
    attributes: BTreeMap<String, String>,
    key: Option<String>,
    idempotency_key: Option<String>,
    deliver_at: Option<Timestamp>,
    retention: Option<Span>,
    trace: Option<TraceContext>,
}

impl Event {
    /// An event with any payload. Its content type is `application/octet-stream` unless
    /// [`Event::content_type`] says otherwise.
    pub fn new(
        topic: impl Into<String>,
        event_type: impl Into<String>,
        payload: impl Into<Bytes>,
    ) -> Self {
        Self {
            topic: topic.into(),
            event_type: event_type.into(),
            payload: payload.into(),
            content_type: "application/octet-stream".to_owned(),
            attributes: BTreeMap::new(),
            key: None,
            idempotency_key: None,
            deliver_at: None,
            retention: None,
            trace: None,
        }
    }

    /// An event with a JSON payload.
    pub fn json(
        topic: impl Into<String>,
        event_type: impl Into<String>,
        payload: &impl Serialize,
    ) -> Result<Self, Error> {
        let payload = serde_json::to_vec(payload).map_err(Error::Json)?;
        Ok(Self::new(topic, event_type, payload).content_type("application/json"))
    }

    /// The media type of the payload.
    pub fn content_type(mut self, media_type: impl Into<String>) -> Self {
        self.content_type = media_type.into();
        self
    }

    /// Something that filters can look at.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// What a subscription that wants order by key delivers one after the other.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Protects against publishing twice: the same event under the same key is published once, and another event
    /// under it is refused.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// When it is to be delivered. A time in the past means now.
    pub fn deliver_at(mut self, at: Timestamp) -> Self {
        self.deliver_at = Some(at);
        self
    }

    /// How long it is kept: once its deliveries have ended, it is removed when this time has passed.
    pub fn retention(mut self, retention: Span) -> Self {
        self.retention = Some(retention);
        self
    }

    /// The trace it belongs to, as the header `traceparent` of W3C Trace Context has it. A text that is none is
    /// passed over: an event is never refused because of its trace.
    pub fn traceparent(mut self, header: &str) -> Self {
        self.trace = TraceContext::parse(header);
        self
    }

    pub(crate) fn into_publish(self) -> Result<Publish, Error> {
        let mut publish = Publish {
            topic: TopicName::new(&self.topic)?,
            event_type: EventType::new(&self.event_type)?,
            attributes: self.attributes,
            key: self.key.as_deref().map(LaneKey::new).transpose()?,
            content_type: self.content_type,
            payload: self.payload,
            idempotency: None,
            publisher_id: None,
            deliver_at: self.deliver_at,
            retention: self.retention,
            trace: self.trace,
        };
        if let Some(key) = &self.idempotency_key {
            let (key, fingerprint) = (IdempotencyKey::new(key)?, publish.fingerprint());
            publish.publisher_id = Some(key.clone());
            publish.idempotency = Some(Idempotency { key, fingerprint });
        }
        Ok(publish)
    }
}
