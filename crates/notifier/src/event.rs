//! What a payment server tells the world, with exactly the names and omissions of the Cedros wire.
//!
//! An event is *prepared* before anything else happens to it: what the caller left open is filled
//! in, and nothing that is there is touched. Preparing twice changes nothing, so the id, by which
//! receivers recognise repeats, is the same on every attempt.

mod id;
mod time;
mod wire;

use std::collections::BTreeMap;

use posthorn_domain::Clock;
use serde::{Deserialize, Serialize};

pub use id::fresh_event_id;
pub use time::EventTime;
pub use wire::prepare_json;

/// The type of a payment event that names none.
pub const PAYMENT_SUCCEEDED: &str = "payment.succeeded";
/// The type of a refund event that names none.
pub const REFUND_SUCCEEDED: &str = "refund.succeeded";

/// Somebody paid. Empty texts, zero amounts and empty metadata are left out of the JSON, except
/// where the wire always has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PaymentEvent {
    /// By which receivers recognise repeats; filled in when empty.
    pub event_id: String,
    /// Filled in when empty: [`PAYMENT_SUCCEEDED`].
    pub event_type: String,
    /// When the event came to be; filled in when absent.
    #[serde(with = "time::or_zero")]
    pub event_timestamp: Option<EventTime>,
    /// What was paid for.
    #[serde(rename = "resource")]
    pub resource_id: String,
    /// How it was paid.
    pub method: String,
    /// The session at Stripe.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stripe_session_id: String,
    /// The customer at Stripe.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stripe_customer: String,
    /// The amount in the currency's smallest unit.
    #[serde(skip_serializing_if = "is_zero")]
    pub fiat_amount_cents: i64,
    /// The currency.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fiat_currency: String,
    /// The amount in the token's smallest unit.
    #[serde(skip_serializing_if = "is_zero")]
    pub crypto_atomic_amount: i64,
    /// The token.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub crypto_token: String,
    /// The payer's wallet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wallet: String,
    /// The signature that proves the payment.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub proof_signature: String,
    /// Whatever else belongs to it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// When it was paid; filled in when absent.
    #[serde(with = "time::or_zero")]
    pub paid_at: Option<EventTime>,
}

/// Somebody got their money back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RefundEvent {
    /// By which receivers recognise repeats; filled in when empty.
    pub event_id: String,
    /// Filled in when empty: [`REFUND_SUCCEEDED`].
    pub event_type: String,
    /// When the event came to be; filled in when absent.
    #[serde(with = "time::or_zero")]
    pub event_timestamp: Option<EventTime>,
    /// The refund.
    pub refund_id: String,
    /// The purchase it belongs to.
    pub original_purchase_id: String,
    /// Who got the money.
    pub recipient_wallet: String,
    /// The amount in the token's smallest unit.
    pub atomic_amount: i64,
    /// The token.
    pub token: String,
    /// Who did it.
    pub processed_by: String,
    /// The signature of the transaction.
    pub signature: String,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Whatever else belongs to it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// When it was refunded; filled in when absent.
    #[serde(with = "time::or_zero")]
    pub refunded_at: Option<EventTime>,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Fills in what is missing in a payment event, and nothing else.
pub fn prepare_payment(event: &mut PaymentEvent, clock: &dyn Clock) {
    let now = EventTime::from(clock.now());
    fill(&mut event.event_id, || fresh_event_id(clock));
    fill(&mut event.event_type, || PAYMENT_SUCCEEDED.to_owned());
    event.event_timestamp.get_or_insert(now);
    event.paid_at.get_or_insert(now);
}

/// Fills in what is missing in a refund event, and nothing else.
pub fn prepare_refund(event: &mut RefundEvent, clock: &dyn Clock) {
    let now = EventTime::from(clock.now());
    fill(&mut event.event_id, || fresh_event_id(clock));
    fill(&mut event.event_type, || REFUND_SUCCEEDED.to_owned());
    event.event_timestamp.get_or_insert(now);
    event.refunded_at.get_or_insert(now);
}

fn fill(field: &mut String, value: impl FnOnce() -> String) {
    if field.is_empty() {
        *field = value();
    }
}

/// A prepared event, ready to be sent: what all kinds of events have in common.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) event_id: String,
    pub(crate) event_type: String,
    pub(crate) payload: bytes::Bytes,
    /// What the caller said, before anything was filled in but the id: the same words said again are
    /// the same event.
    pub(crate) as_said: Vec<u8>,
}

impl Prepared {
    pub(crate) fn payment(mut event: PaymentEvent, clock: &dyn Clock) -> Self {
        fill(&mut event.event_id, || fresh_event_id(clock));
        let as_said = json(&event);
        prepare_payment(&mut event, clock);
        let payload = json(&event).into();
        Self { event_id: event.event_id, event_type: event.event_type, payload, as_said }
    }

    pub(crate) fn refund(mut event: RefundEvent, clock: &dyn Clock) -> Self {
        fill(&mut event.event_id, || fresh_event_id(clock));
        let as_said = json(&event);
        prepare_refund(&mut event, clock);
        let payload = json(&event).into();
        Self { event_id: event.event_id, event_type: event.event_type, payload, as_said }
    }
}

fn json(event: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(event).expect("texts, numbers and maps with text keys are always JSON")
}

/// The family of an event type: what is before the first dot.
pub fn family(event_type: &str) -> &str {
    event_type.split_once('.').map_or(event_type, |(family, _)| family)
}
