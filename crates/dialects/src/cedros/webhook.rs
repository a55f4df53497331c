//! How a delivery becomes a webhook.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{
    Attempt, CancelReason, DeadReason, Delivery, DeliveryId, DeliveryState, Event, EventType,
    TenantId, Timestamp,
};
use posthorn_engine::{Engine, Preview, SubscriptionView};
use posthorn_store::Store;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::failure::Failure;

/// What stands for the value of a header that is secret.
const SECRET: &str = "…";

/// Where a webhook stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// Waits for its time.
    Pending,
    /// An attempt is under way.
    Processing,
    /// It was given up: a dead letter, or cancelled.
    Failed,
    /// The receiver has it.
    Success,
}

impl Status {
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "pending" => Self::Pending,
            "processing" => Self::Processing,
            "failed" => Self::Failed,
            "success" => Self::Success,
            _ => return None,
        })
    }

    pub(super) fn of(state: DeliveryState) -> Self {
        match state {
            DeliveryState::Pending => Self::Pending,
            DeliveryState::InFlight => Self::Processing,
            DeliveryState::Delivered => Self::Success,
            DeliveryState::Dead(_) | DeliveryState::Cancelled(_) => Self::Failed,
        }
    }
}

/// A webhook.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Webhook {
    id: DeliveryId,
    tenant_id: TenantId,
    url: String,
    event_id: String,
    event_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<BTreeMap<String, String>>,
    status: Status,
    attempts: u32,
    max_attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_attempt_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<Timestamp>,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<Timestamp>,
}

/// A dead letter.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeadWebhook {
    id: DeliveryId,
    tenant_id: TenantId,
    original_webhook_id: DeliveryId,
    url: String,
    event_id: String,
    event_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<BTreeMap<String, String>>,
    final_error: String,
    total_attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_attempt_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_attempt_at: Option<Timestamp>,
    moved_to_dlq_at: Timestamp,
}

/// A delivery with all that is told of it.
pub(super) struct Told {
    delivery: Delivery,
    event_id: String,
    event_type: Option<EventType>,
    payload: Option<Bytes>,
    headers: Option<BTreeMap<String, String>>,
    attempts: Vec<Attempt>,
    view: Option<Arc<SubscriptionView>>,
}

impl Told {
    /// Reads what a delivery itself does not say.
    pub(super) async fn read(engine: &Engine, delivery: Delivery) -> Result<Self, Failure> {
        let store: &Arc<dyn Store> = engine.store();
        let (tenant, id) = (delivery.tenant, delivery.id);
        let event = store.event(tenant, delivery.event).await?;
        let attempts = match delivery.attempts {
            0 => Vec::new(),
            _ => store.attempts(tenant, id).await?,
        };
        let view = engine.catalog().subscription(tenant, delivery.subscription).ok();
        let event_id = event_id(&delivery, event.as_ref());
        let headers = headers(engine, &delivery, event.as_ref(), &attempts);
        let kept = event.as_ref().is_some_and(|event| event.expunged_at.is_none());
        let (event_type, payload) = event.map(|event| (event.event_type, event.payload)).unzip();
        let payload = payload.filter(|_| kept);
        Ok(Self { delivery, event_id, event_type, payload, headers, attempts, view })
    }

    /// How large its payload is.
    pub(super) fn payload_bytes(&self) -> usize {
        self.payload.as_ref().map_or(0, Bytes::len)
    }

    /// Leaves the payload out of what is told, when there is no room for it.
    pub(super) fn without_payload(mut self) -> Self {
        self.payload = None;
        self
    }

    /// The payload as it was published: JSON as it stands, anything else as a text.
    fn payload(&self) -> Option<Box<RawValue>> {
        let payload = self.payload.as_ref()?;
        let json = std::str::from_utf8(payload).ok().map(str::to_owned);
        let json = json.and_then(|text| RawValue::from_string(text).ok());
        json.or_else(|| serde_json::value::to_raw_value(&String::from_utf8_lossy(payload)).ok())
    }

    fn url(&self) -> String {
        let url = self.view.as_ref().and_then(|view| view.subscription.destination.url());
        url.unwrap_or_default().to_owned()
    }

    fn event_type(&self) -> String {
        self.event_type.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    /// What the last attempt came to, unless it was success.
    fn last_error(&self) -> Option<String> {
        match self.delivery.state {
            DeliveryState::Delivered => None,
            DeliveryState::Cancelled(CancelReason::Operator) => Some("cancelled".to_owned()),
            DeliveryState::Cancelled(CancelReason::Unsubscribed) => {
                Some("the subscription was deleted".to_owned())
            }
            DeliveryState::Dead(DeadReason::Gate) => Some("the gate was closed".to_owned()),
            DeliveryState::Dead(DeadReason::Expired) if self.attempts.is_empty() => {
                Some("it became too old before it could be attempted".to_owned())
            }
            _ => self.attempts.last().map(Attempt::summary),
        }
    }

    pub(super) fn webhook(&self) -> Webhook {
        let delivery = &self.delivery;
        let status = Status::of(delivery.state);
        let policy = self.view.as_ref().and_then(|view| view.policy.as_ref().ok());
        let waits = status == Status::Pending && !delivery.is_parked();
        Webhook {
            id: delivery.id,
            tenant_id: delivery.tenant,
            url: self.url(),
            event_id: self.event_id.clone(),
            event_type: self.event_type(),
            payload: self.payload(),
            headers: self.headers.clone(),
            status,
            // An attempt counts from its beginning.
            attempts: delivery.spent() + u32::from(status == Status::Processing),
            max_attempts: match policy {
                // Zero stands for no limit but age.
                Some(policy) => policy.schedule.max_attempts.unwrap_or(0),
                // Whoever knew is gone; nothing more will be tried.
                None => delivery.spent(),
            },
            last_error: self.last_error(),
            last_attempt_at: self.attempts.last().map(|attempt| attempt.started_at),
            next_attempt_at: waits.then_some(delivery.due_at),
            created_at: delivery.created_at,
            completed_at: delivery.ended_at,
        }
    }

    pub(super) fn dead(&self) -> DeadWebhook {
        let delivery = &self.delivery;
        DeadWebhook {
            id: delivery.id,
            tenant_id: delivery.tenant,
            original_webhook_id: delivery.id,
            url: self.url(),
            event_id: self.event_id.clone(),
            event_type: self.event_type(),
            payload: self.payload(),
            headers: self.headers.clone(),
            final_error: self.last_error().unwrap_or_default(),
            total_attempts: delivery.attempts,
            first_attempt_at: self.attempts.first().map(|attempt| attempt.started_at),
            last_attempt_at: self.attempts.last().map(|attempt| attempt.started_at),
            moved_to_dlq_at: delivery.ended_at.unwrap_or(delivery.created_at),
        }
    }
}

/// The headers as the last attempt sent them that failed; where that is not known, as an attempt would send them now.
/// What authenticates a request is not shown, and where no request can be built there are none.
fn headers(
    engine: &Engine,
    delivery: &Delivery,
    event: Option<&Event>,
    attempts: &[Attempt],
) -> Option<BTreeMap<String, String>> {
    let sent = attempts.iter().rev().find_map(|attempt| attempt.request.as_ref());
    let headers = match sent {
        Some(request) => request.headers.clone(),
        None => match engine.preview_of(delivery.clone(), Arc::new(event?.clone())) {
            Ok(Preview::Request(request)) => request.headers,
            _ => return None,
        },
    };
    let shown = |value: Option<String>| value.unwrap_or_else(|| SECRET.to_owned());
    Some(headers.into_iter().map(|(name, value)| (name, shown(value))).collect())
}

/// The id by which receivers recognise repeats: the payload's own, or that of the event.
fn event_id(delivery: &Delivery, event: Option<&Event>) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named {
        event_id: String,
    }
    let own = event.and_then(|event| {
        let named = serde_json::from_slice::<Named>(&event.payload).ok()?;
        Some(named.event_id).filter(|id| !id.is_empty())
    });
    own.unwrap_or_else(|| delivery.event.to_string())
}
