//! The message of one attempt: an envelope around the payload, encrypted where the agent gave keys.
//!
//! An agent sees no headers, so what a webhook has there stands in the envelope. Its members are
//! named as the API names those of an event.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use posthorn_domain::policy::BodySource;
use posthorn_domain::{
    EventId, EventType, FailureCode, MadeTopic, MessageId, Policy, PushEncoding, PushHeaders,
    PushMessage, PushTarget, PushTopic, PushTopicRule, Timestamp, TopicName,
};
use posthorn_sealing::hash::fingerprint;
use posthorn_sealing::web_push::{PLAINTEXT_BYTES_MAX, Receiver};
use posthorn_store::Work;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{AUTH_SECRET, PushLimits, named};
use crate::catalog::SubscriptionView;
use crate::request::{AttemptLookup, BuildError, form};

/// Bytes of a fingerprint that fill a topic.
const TOPIC_BYTES: usize = 24;

/// Why there is no message.
#[derive(Debug)]
pub(super) struct NoMessage {
    pub(crate) code: FailureCode,
    pub(crate) detail: String,
}

#[derive(Serialize)]
struct Envelope<'a> {
    id: EventId,
    topic: &'a TopicName,
    #[serde(rename = "type")]
    event_type: &'a EventType,
    accepted_at: Timestamp,
    /// As it was published, byte for byte, but for blanks around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// The message of a delivery for a mailbox here. All attempts of one budget make a message with the same id, so that
/// a mailbox knows a repeat; who retries by hand wants it sent once more, and gets another id.
pub(super) fn message(
    values: &AttemptLookup<'_>,
    target: &PushTarget,
    limits: PushLimits,
) -> Result<PushMessage, NoMessage> {
    let AttemptLookup { view, policy, work, now, .. } = *values;
    let receiver = target.p256dh.as_deref().map(|p256dh| receiver(view, p256dh, now));
    let receiver = receiver.transpose()?;
    let max = if receiver.is_some() { PLAINTEXT_BYTES_MAX } else { limits.body_bytes_max };
    let plaintext = plaintext(policy, work, max)?;
    let (headers, body) = match receiver {
        None => (None, plaintext),
        Some(receiver) => {
            let encoding = PushEncoding::Aes128Gcm;
            let headers = PushHeaders { encoding, encryption: None, crypto_key: None };
            (Some(headers), receiver.encrypt(&plaintext, 0))
        }
    };
    Ok(PushMessage {
        agent: target.agent,
        channel: target.channel,
        id: id(work),
        topic: made_topic(target.topic.as_ref(), values),
        ttl: target.ttl.min(limits.ttl_max),
        received_at: now,
        headers,
        body: Some(Bytes::from(body)),
    })
}

/// What a message says, if it fits into so many bytes.
pub(super) fn plaintext(policy: &Policy, work: &Work, max: usize) -> Result<Vec<u8>, NoMessage> {
    let plaintext = envelope(policy, work)?;
    if plaintext.len() > max {
        let detail = format!(
            "the message has {} bytes; at most {max} are allowed; publish a reference to large \
             data",
            plaintext.len()
        );
        return Err(NoMessage { code: FailureCode::MessageTooLarge, detail });
    }
    Ok(plaintext)
}

/// The topic of a message. Push services read topics, and are not told what an event is about: one that is made from
/// the event is a fingerprint, which nobody can compare with those of other subscriptions.
pub(super) fn made_topic(
    rule: Option<&PushTopicRule>,
    values: &AttemptLookup<'_>,
) -> Option<PushTopic> {
    match rule?.make(values)? {
        MadeTopic::Fixed(topic) => Some(topic),
        MadeTopic::Private(text) => {
            let subscription = values.view.subscription.id;
            let hash =
                fingerprint(&[b"posthorn push topic", subscription.as_bytes(), text.as_bytes()]);
            URL_SAFE_NO_PAD.encode(&hash[..TOPIC_BYTES]).parse().ok()
        }
    }
}

fn envelope(policy: &Policy, work: &Work) -> Result<Vec<u8>, NoMessage> {
    let event = &work.event;
    let shape = &policy.request;
    let chosen = match shape.body {
        BodySource::Empty => None,
        BodySource::Payload => {
            let invalid = |e: BuildError| NoMessage {
                code: FailureCode::RequestInvalid,
                detail: e.to_string(),
            };
            Some(form(event, shape.alternative.as_deref()).map_err(invalid)?)
        }
    };
    let mut envelope = Envelope {
        id: event.id,
        topic: &event.topic,
        event_type: &event.event_type,
        accepted_at: event.accepted_at,
        payload: None,
        content_type: None,
        payload_base64: None,
    };
    if let Some((content_type, payload)) = &chosen {
        let json = is_json(content_type).then(|| serde_json::from_slice(payload).ok()).flatten();
        match json {
            Some(json) => envelope.payload = Some(json),
            None => {
                envelope.content_type = Some(content_type);
                envelope.payload_base64 = Some(STANDARD.encode(payload));
            }
        }
    }
    if crate::plant::active("push-without-payload") {
        envelope.payload = None;
    }
    Ok(serde_json::to_vec(&envelope).expect("an envelope is texts and JSON that was read"))
}

/// For whom to encrypt.
pub(super) fn receiver(
    view: &SubscriptionView,
    p256dh: &str,
    now: Timestamp,
) -> Result<Receiver, NoMessage> {
    Receiver::parse(p256dh, secret(view, AUTH_SECRET, now)?)
        .map_err(|e| NoMessage { code: FailureCode::AuthUnavailable, detail: e.to_string() })
}

/// A secret that a destination keeps in its subscription.
pub(super) fn secret<'v>(
    view: &'v SubscriptionView,
    name: &str,
    now: Timestamp,
) -> Result<&'v str, NoMessage> {
    let missing = |detail: String| NoMessage { code: FailureCode::AuthUnavailable, detail };
    let secrets = view.secrets().map_err(|problem| missing(problem.to_owned()))?;
    let found = secrets.current(&named(name), now).and_then(|secret| secret.expose_str());
    found.ok_or_else(|| missing(format!("the secret `{name}` is missing")))
}

/// Whether a content type says JSON: by itself, or as the form of something else.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

fn id(work: &Work) -> MessageId {
    let budget = work.delivery.budget_base.to_be_bytes();
    let hash = fingerprint(&[b"posthorn push message", work.delivery.id.as_bytes(), &budget]);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    MessageId::from_random(u128::from_be_bytes(bytes))
}
