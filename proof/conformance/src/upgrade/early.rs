//! A small script in words that every version of the contract has known, the first one included.
//!
//! Programs of the first eight versions have filled stores with it. It must never change, and says nothing that a later version
//! has added.

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{
    ApiKey, DeliveryId, Destination, Event, EventId, KeyId, Lane, SubscriptionId, Tenant, TenantId,
};
use posthorn_store::{CatalogChange, NewDelivery, NewEvent};

use crate::builders::{
    Setting, api_key, at, dead_block, dead_skip, delivered, event, failed, idempotency, lane,
    redrive, subscription, tenant, topic, whole,
};

/// A subscription without lanes.
pub const HOOK: u128 = 511;
/// One whose deliveries have lanes.
pub const LANES: u128 = 512;
/// One that was deleted.
pub const GONE: u128 = 513;

/// The tenant.
pub fn tenant_id() -> TenantId {
    TenantId::new(at(0), 501)
}

/// A subscription.
pub fn subscription_id(number: u128) -> SubscriptionId {
    SubscriptionId::new(at(0), number)
}

/// A delivery.
pub fn delivery_id(number: u128) -> DeliveryId {
    DeliveryId::new(at(0), number)
}

/// An event.
pub fn event_id(number: u128) -> EventId {
    EventId::new(at(0), number)
}

/// An API key.
pub fn key_id(number: u128) -> KeyId {
    KeyId::new(at(0), number)
}

async fn change(setting: &Setting, change: CatalogChange) {
    setting.store.change_catalog(change).await.expect("a proper change");
}

/// An event and its only delivery, both of one number, under a key of the same number.
pub async fn plan(setting: &Setting, number: u128, to: u128, lane: Option<Lane>) -> NewEvent {
    let planned = setting.planned(Vec::new()).await;
    let event = Event {
        id: event_id(number),
        payload: Bytes::from(format!("{{\"number\":{number}}}")),
        accepted_at: at(100),
        ..event(setting.tenant)
    };
    let delivery = NewDelivery {
        id: delivery_id(number),
        subscription: subscription_id(to),
        lane,
        due_at: at(100),
    };
    NewEvent {
        event: Arc::new(event),
        idempotency: Some(idempotency(&format!("key {number}"), 5)),
        deliveries: vec![delivery],
        ..planned
    }
}

/// Fills an empty store. The tenant of the setting is another one afterwards.
pub async fn fill(setting: &mut Setting) {
    setting.tenant = tenant_id();
    let early = Tenant { id: tenant_id(), name: "early é".to_owned(), ..tenant() };
    change(setting, CatalogChange::CreateTenant(early)).await;
    change(setting, CatalogChange::PutTopic(topic(tenant_id(), "orders"))).await;
    for number in [HOOK, LANES, GONE] {
        let new = subscription(tenant_id());
        let url = format!("https://example.test/{number}");
        let destination = Destination::Webhook { url };
        let new = posthorn_domain::Subscription { id: subscription_id(number), destination, ..new };
        change(setting, CatalogChange::CreateSubscription(Box::new(new))).await;
    }
    for (number, tenant) in [(521, None), (522, Some(tenant_id()))] {
        let key = ApiKey { id: key_id(number), hash: [21; 32], ..api_key(tenant) };
        change(setting, CatalogChange::CreateKey(key)).await;
    }
    for (number, to, lane) in [
        (601, HOOK, None),
        (602, HOOK, None),
        (603, HOOK, None),
        (604, HOOK, None),
        (611, LANES, lane("waits")),
        (612, LANES, lane("waits")),
        (613, LANES, lane("waits")),
        (614, LANES, lane("blocked")),
        (615, LANES, lane("blocked")),
        (616, LANES, whole()),
        (617, LANES, whole()),
        (621, GONE, None),
    ] {
        let new = plan(setting, number, to, lane).await;
        setting.accept(new).await;
    }
    setting.record(delivery_id(601), delivered(), at(200)).await;
    setting.record(delivery_id(602), failed(at(300)), at(201)).await;
    setting.record(delivery_id(602), dead_skip(), at(301)).await;
    setting.record(delivery_id(603), failed(at(900_000)), at(202)).await;
    setting.record(delivery_id(614), dead_block(), at(203)).await;
    setting.record(delivery_id(616), failed(at(800_000)), at(204)).await;
    setting.unsubscribe(subscription_id(GONE), at(240)).await;
    setting.store.sweep_cancelled(10, at(241)).await.expect("a sweep");
    let new = redrive(tenant_id(), at(5_000));
    let new = posthorn_domain::Redrive { id: posthorn_domain::RedriveId::new(at(0), 531), ..new };
    setting.store.create_redrive(new).await.expect("a redrive");
}
