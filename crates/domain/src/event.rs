//! Events: immutable facts, accepted once.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::limits::{ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX, ATTRIBUTES_MAX};
use crate::{
    EventId, EventType, IdempotencyKey, LaneKey, Span, TenantId, Timestamp, TopicName, TraceContext,
};

/// Something that happened, as the publisher said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Constant for ever; receivers use it to recognise repeats.
    pub id: EventId,
    /// Whose event it is.
    pub tenant: TenantId,
    /// The stream it was published on.
    pub topic: TopicName,
    /// What kind of thing happened.
    pub event_type: EventType,
    /// What filters and templates may look at besides the payload.
    pub attributes: BTreeMap<String, String>,
    /// What lanes of order `key` go by.
    pub key: Option<LaneKey>,
    /// The media type of the payload.
    pub content_type: String,
    /// Exactly the bytes that were published; signatures cover them, nobody rewrites them.
    pub payload: Bytes,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// What its publisher calls it: the idempotency key it was published with.
    pub publisher_id: Option<IdempotencyKey>,
    /// When it is to be delivered, where that is later than it was accepted.
    pub deliver_at: Option<Timestamp>,
    /// How long it is kept at most, where its publisher wants it removed sooner than others.
    pub retention: Option<Span>,
    /// When its payload was removed for good. It is empty since, and nothing of it is sent any more.
    pub expunged_at: Option<Timestamp>,
    /// The trace it belongs to: its attempts are children of this place in it.
    pub trace: Option<TraceContext>,
}

/// The publisher's protection against publishing twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// Chosen by the publisher, unique in its tenant.
    pub key: IdempotencyKey,
    /// SHA-256 of everything that was published under the key.
    pub fingerprint: [u8; 32],
}

/// What is wrong with an event's attributes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttributesError {
    /// Too many of them.
    #[error("at most {ATTRIBUTES_MAX} attributes are allowed, {0} were given")]
    TooMany(usize),
    /// A name is empty, too long or unprintable.
    #[error("attribute names must be 1 to {ATTRIBUTE_NAME_BYTES_MAX} printable bytes")]
    Name,
    /// A value is too long.
    #[error("the value of attribute `{0}` is longer than {ATTRIBUTE_VALUE_BYTES_MAX} bytes")]
    Value(String),
    /// A value that not every store can keep.
    #[error("the value of attribute `{0}` must not contain the character U+0000")]
    Nul(String),
}

impl Event {
    /// From when on its deliveries may be attempted and grow old, and its retention counts.
    pub fn begins_at(&self) -> Timestamp {
        self.deliver_at.unwrap_or(self.accepted_at)
    }

    /// When a retention of its own is over.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.retention.map(|retention| self.begins_at().plus(retention))
    }

    /// Its family: the type up to the first dot, e.g. `user` of `user.created`.
    pub fn family(&self) -> &str {
        let text = self.event_type.as_str();
        text.split_once('.').map_or(text, |(family, _)| family)
    }

    /// Checks attributes against the limits.
    pub fn check_attributes(attributes: &BTreeMap<String, String>) -> Result<(), AttributesError> {
        if attributes.len() > ATTRIBUTES_MAX {
            return Err(AttributesError::TooMany(attributes.len()));
        }
        for (name, value) in attributes {
            if name.is_empty()
                || name.len() > ATTRIBUTE_NAME_BYTES_MAX
                || name.chars().any(char::is_control)
            {
                return Err(AttributesError::Name);
            }
            if value.len() > ATTRIBUTE_VALUE_BYTES_MAX {
                return Err(AttributesError::Value(name.clone()));
            }
            if value.contains('\0') {
                return Err(AttributesError::Nul(name.clone()));
            }
        }
        Ok(())
    }
}
