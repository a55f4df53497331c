//! One webhook, now, once: for command lines, migrations and tests.

use bytes::Bytes;
use posthorn::{Builder, SystemClock};
use posthorn_domain::{DeliveryState, EventType};
use serde_json::Value;

use crate::config::{Callbacks, CallbacksConfig};
use crate::error::Error;
use crate::event::{PAYMENT_SUCCEEDED, PaymentEvent, Prepared, prepare_json};

/// Sends one payment event at once, without retries, and says whether it was taken.
pub async fn send_once(config: &CallbacksConfig, event: PaymentEvent) -> Result<(), Error> {
    send_once_through(config, event, posthorn::egress::Options::default()).await
}

/// The same with other rules for the way out, such as which private networks are open.
pub async fn send_once_through(
    config: &CallbacksConfig,
    event: PaymentEvent,
    egress: posthorn::egress::Options,
) -> Result<(), Error> {
    let callbacks = config.check()?.ok_or(Error::NoUrl)?;
    let prepared = Prepared::payment(event, &SystemClock);
    let event_type = EventType::new(&prepared.event_type)
        .map_err(|source| Error::Event { field: "eventType", source })?;
    attempt(&callbacks, event_type, prepared.payload, egress).await
}

async fn attempt(
    callbacks: &Callbacks,
    event_type: EventType,
    payload: Bytes,
    egress: posthorn::egress::Options,
) -> Result<(), Error> {
    let outside = Builder::default().egress(egress);
    let courier = outside.courier(&callbacks.url, callbacks.policy.clone(), &callbacks.secrets)?;
    let media_type = "application/json".to_owned();
    let mut work = courier.work(callbacks.topic.clone(), event_type, media_type, payload);
    let attempt = courier.attempt(&mut work).await?;
    if work.delivery.state == DeliveryState::Delivered {
        return Ok(());
    }
    let reason = attempt.map_or_else(|| "no attempt was made".to_owned(), |a| a.outcome());
    Err(Error::NotDelivered(reason))
}

/// What one attempt sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentOnce {
    /// The id by which the receiver recognises it, given or made.
    pub event_id: String,
    /// Where it went.
    pub url: String,
}

/// Sends any event of the wire at once, without retries: `payload` is its JSON object, and what is missing in
/// it is filled in. Without a type, the payload's own, or [`PAYMENT_SUCCEEDED`].
pub async fn send_json_once(
    callbacks: &Callbacks,
    event_type: Option<&str>,
    payload: &[u8],
    egress: posthorn::egress::Options,
) -> Result<SentOnce, Error> {
    let own = member(payload, "eventType")?;
    let given = event_type.or(own.as_deref());
    let event_type = EventType::new(given.unwrap_or(PAYMENT_SUCCEEDED))
        .map_err(|source| Error::Event { field: "eventType", source })?;
    let payload = prepare_json(payload, event_type.as_str(), &SystemClock)
        .unwrap_or_else(|| Bytes::copy_from_slice(payload));
    let event_id = member(&payload, "eventId")?.unwrap_or_default();
    attempt(callbacks, event_type, payload, egress).await?;
    Ok(SentOnce { event_id, url: callbacks.url.clone() })
}

/// A text of the event, unless it is absent or empty.
fn member(payload: &[u8], name: &str) -> Result<Option<String>, Error> {
    let object: serde_json::Map<String, Value> =
        serde_json::from_slice(payload).map_err(Error::Payload)?;
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(_) => {
            Err(Error::Payload(serde::de::Error::custom(format_args!("{name} is not a text"))))
        }
    }
}
