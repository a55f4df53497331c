//! The message of one attempt: an envelope around the payload, encrypted where the agent gave keys.
//!
//! An agent sees no headers, so what a webhook has there stands in the envelope. Its members are
//! named as the API names those of an event.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use posthorn_domain::policy::BodySource;
use posthorn_domain::{
    EventId, EventType, FailureCode, MessageId, Policy, PushEncoding, PushHeaders, PushMessage,
    PushTarget, Timestamp, TopicName,
};
use posthorn_sealing::hash::fingerprint;
use posthorn_sealing::web_push::{PLAINTEXT_BYTES_MAX, Receiver};
use posthorn_store::Work;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{PushLimits, auth_name};
use crate::catalog::SubscriptionView;
use crate::request::{BuildError, form};

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

/// The message of a delivery. All attempts of one budget make a message with the same id, so that a
/// mailbox knows a repeat; who retries by hand wants it sent once more, and gets another id.
pub(super) fn message(
    view: &SubscriptionView,
    target: &PushTarget,
    limits: PushLimits,
    policy: &Policy,
    work: &Work,
    now: Timestamp,
) -> Result<PushMessage, NoMessage> {
    let plaintext = envelope(policy, work)?;
    let receiver = receiver(view, target, now)?;
    let max = if receiver.is_some() { PLAINTEXT_BYTES_MAX } else { limits.body_bytes_max };
    if plaintext.len() > max {
        let detail = format!(
            "the message has {} bytes; at most {max} are allowed; publish a reference to large \
             data",
            plaintext.len()
        );
        return Err(NoMessage { code: FailureCode::MessageTooLarge, detail });
    }
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
        topic: None,
        ttl: target.ttl.min(limits.ttl_max),
        received_at: now,
        headers,
        body: Some(Bytes::from(body)),
    })
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

/// For whom to encrypt, when the agent gave keys.
fn receiver(
    view: &SubscriptionView,
    target: &PushTarget,
    now: Timestamp,
) -> Result<Option<Receiver>, NoMessage> {
    let Some(p256dh) = &target.p256dh else { return Ok(None) };
    let missing = |detail: String| NoMessage { code: FailureCode::AuthUnavailable, detail };
    let secrets = view.secrets().map_err(|problem| missing(problem.to_owned()))?;
    let auth = secrets.current(&auth_name(), now).and_then(|secret| secret.expose_str());
    let auth = auth.ok_or_else(|| missing("the secret `push.auth` is missing".to_owned()))?;
    Receiver::parse(p256dh, auth).map(Some).map_err(|e| missing(e.to_string()))
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
