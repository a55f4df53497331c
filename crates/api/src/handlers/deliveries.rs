//! Deliveries, and those of them that are dead letters.

use http::StatusCode;
use posthorn_domain::{Delivery, DeliveryId, DeliveryState, SubscriptionId, TenantId};
use posthorn_engine::Engine;
use posthorn_store::{DeliveryFilter, StateKind};

use crate::call::{Answer, Call};
use crate::cursor::{self, List};
use crate::problem::{Problem, Result};
use crate::respond;
use crate::wire::{DeliveryView, Page};

/// `GET /v1/deliveries`.
pub(crate) async fn list(call: Call) -> Answer {
    let state = match call.query.text("state") {
        None => None,
        Some("pending") => Some(StateKind::Pending),
        Some("delivered") => Some(StateKind::Delivered),
        Some("dead") => Some(StateKind::Dead),
        Some("cancelled") => Some(StateKind::Cancelled),
        Some(_) => {
            let detail = "must be pending, delivered, dead or cancelled";
            return Err(Problem::field("state", detail));
        }
    };
    let filter =
        DeliveryFilter { event: call.query.value("event")?, state, ..common_filter(&call)? };
    answer_page(&call, filter).await
}

/// `GET /v1/dead-letters`.
pub(crate) async fn list_dead(call: Call) -> Answer {
    let filter = DeliveryFilter { state: Some(StateKind::Dead), ..common_filter(&call)? };
    answer_page(&call, filter).await
}

fn common_filter(call: &Call) -> Result<DeliveryFilter> {
    let before = call.query.text("cursor").map(|text| cursor::decode_id(List::Deliveries, text));
    Ok(DeliveryFilter {
        subscription: subscription(call)?,
        before: before.transpose()?.map(DeliveryId::from_bytes),
        limit: call.query.limit()?,
        ..DeliveryFilter::default()
    })
}

/// The subscription of the query, by id or name.
fn subscription(call: &Call) -> Result<Option<SubscriptionId>> {
    let Some(text) = call.query.text("subscription") else { return Ok(None) };
    let unknown = || Problem::field("subscription", "no subscription has this id or name");
    call.find_subscription(text).map(Some).ok_or_else(unknown)
}

async fn answer_page(call: &Call, filter: DeliveryFilter) -> Answer {
    let page = call.engine().store().deliveries(call.tenant(), filter).await?;
    let next = page.items.last().filter(|_| page.more);
    let next = next.map(|last| cursor::encode(List::Deliveries, last.id.as_bytes()));
    let waiting = call.engine().waiting(call.tenant(), &page.items).await;
    let items = page.items.iter().zip(waiting);
    let items = items.map(|(delivery, waiting)| DeliveryView::from(delivery).waiting(waiting));
    respond::ok(&Page { items: items.collect(), next })
}

async fn find(engine: &Engine, tenant: TenantId, id: DeliveryId) -> Result<Delivery> {
    let delivery = engine.store().delivery(tenant, id).await?;
    delivery.ok_or_else(|| Problem::not_found("delivery"))
}

/// A delivery that is a dead letter; any other is none.
async fn find_dead(engine: &Engine, tenant: TenantId, id: DeliveryId) -> Result<Delivery> {
    let delivery = engine.store().delivery(tenant, id).await?;
    delivery
        .filter(|delivery| matches!(delivery.state, DeliveryState::Dead(_)))
        .ok_or_else(|| Problem::not_found("dead letter"))
}

async fn answer_whole(call: &Call, delivery: &Delivery) -> Answer {
    let attempts = call.engine().store().attempts(call.tenant(), delivery.id).await?;
    let waiting = call.engine().waiting(call.tenant(), std::slice::from_ref(delivery)).await;
    let view = DeliveryView::whole(delivery, &attempts, call.is_operator());
    respond::ok(&view.waiting(waiting.into_iter().next().flatten()))
}

/// `GET /v1/deliveries/{id}`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let id = call.named("delivery").await?;
    let delivery = find(call.engine(), call.tenant(), id).await?;
    answer_whole(&call, &delivery).await
}

/// `POST /v1/deliveries/{id}/retry`.
pub(crate) async fn retry(mut call: Call) -> Answer {
    let id = call.named("delivery").await?;
    let delivery = call.engine().retry_delivery(call.tenant(), id).await?;
    respond::ok(&DeliveryView::from(&delivery))
}

/// `POST /v1/deliveries/{id}/cancel`.
pub(crate) async fn cancel(mut call: Call) -> Answer {
    let id = call.named("delivery").await?;
    let delivery = call.engine().cancel_delivery(call.tenant(), id).await?;
    respond::ok(&DeliveryView::from(&delivery))
}

/// `DELETE /v1/deliveries/{id}`.
pub(crate) async fn forget(mut call: Call) -> Answer {
    let id = call.named("delivery").await?;
    call.engine().forget_delivery(call.tenant(), id).await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// `GET /v1/dead-letters/{id}`.
pub(crate) async fn one_dead(mut call: Call) -> Answer {
    let id = call.named("dead letter").await?;
    let delivery = find_dead(call.engine(), call.tenant(), id).await?;
    answer_whole(&call, &delivery).await
}

/// `POST /v1/dead-letters/{id}/retry`.
pub(crate) async fn retry_dead(mut call: Call) -> Answer {
    let id = call.named("dead letter").await?;
    find_dead(call.engine(), call.tenant(), id).await?;
    let delivery = call.engine().retry_delivery(call.tenant(), id).await?;
    respond::ok(&DeliveryView::from(&delivery))
}
