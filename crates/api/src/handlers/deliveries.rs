//! Deliveries, those of them that are dead letters, and the attempts of all of them.

use http::StatusCode;
use posthorn_domain::{
    CancelReason, DeadReason, Delivery, DeliveryId, DeliveryState, SubscriptionId, TenantId,
};
use posthorn_engine::Engine;
use posthorn_store::{AttemptFilter, DeliveryFilter, StateKind};
use serde::Deserialize;

use crate::call::{Answer, Call};
use crate::cursor::{List, Paging};
use crate::problem::{Problem, Result};
use crate::respond;
use crate::wire::{AttemptLineView, DeliveryView, PreviewView, TimelineView};

/// `GET /v1/deliveries`.
pub(crate) async fn list(call: Call) -> Answer {
    let state = state(&call)?;
    let filter =
        DeliveryFilter { event: call.query.value("event")?, state, ..common_filter(&call)? };
    if let (Some(state), Some(exactly)) = (state, filter.exactly)
        && !state.includes(exactly)
    {
        return Err(Problem::field("reason", "no delivery in this state has this reason"));
    }
    answer_page(&call, filter).await
}

/// `state` of the query.
pub(super) fn state(call: &Call) -> Result<Option<StateKind>> {
    match call.query.text("state") {
        None => Ok(None),
        Some("pending") => Ok(Some(StateKind::Pending)),
        Some("in_flight") => Ok(Some(StateKind::InFlight)),
        Some("delivered") => Ok(Some(StateKind::Delivered)),
        Some("dead") => Ok(Some(StateKind::Dead)),
        Some("cancelled") => Ok(Some(StateKind::Cancelled)),
        Some(_) => {
            let detail = "must be pending, in_flight, delivered, dead or cancelled";
            Err(Problem::field("state", detail))
        }
    }
}

/// `trigger` of the query.
pub(super) fn manual(call: &Call) -> Result<Option<bool>> {
    match call.query.text("trigger") {
        None => Ok(None),
        Some("manual") => Ok(Some(true)),
        Some("scheduled") => Ok(Some(false)),
        Some(_) => Err(Problem::field("trigger", "must be manual or scheduled")),
    }
}

/// `GET /v1/dead-letters`.
pub(crate) async fn list_dead(call: Call) -> Answer {
    let filter = DeliveryFilter { state: Some(StateKind::Dead), ..common_filter(&call)? };
    if filter.exactly.is_some_and(|exactly| !StateKind::Dead.includes(exactly)) {
        return Err(Problem::field("reason", "no dead letter has this reason"));
    }
    answer_page(&call, filter).await
}

fn common_filter(call: &Call) -> Result<DeliveryFilter> {
    Ok(DeliveryFilter {
        subscription: subscription(call)?,
        exactly: reason(call)?,
        outcome: call.query.outcome(call.is_operator())?,
        created: call.query.period()?,
        ..DeliveryFilter::default()
    })
}

/// Why deliveries ended, each reason with its state.
const REASONS: [(&str, DeliveryState); 7] = [
    ("exhausted", DeliveryState::Dead(DeadReason::Exhausted)),
    ("permanent", DeliveryState::Dead(DeadReason::Permanent)),
    ("gate", DeliveryState::Dead(DeadReason::Gate)),
    ("expired", DeliveryState::Dead(DeadReason::Expired)),
    ("unsubscribed", DeliveryState::Cancelled(CancelReason::Unsubscribed)),
    ("operator", DeliveryState::Cancelled(CancelReason::Operator)),
    ("dropped", DeliveryState::Cancelled(CancelReason::Dropped)),
];

fn reason(call: &Call) -> Result<Option<DeliveryState>> {
    call.query.text("reason").map(reason_of).transpose()
}

/// The state that a reason belongs to.
pub(super) fn reason_of(text: &str) -> Result<DeliveryState> {
    let known = REASONS.iter().find(|(name, _)| *name == text);
    let names = || REASONS.map(|(name, _)| name).join(", ");
    let unknown = || Problem::field("reason", format!("must be one of: {}", names()));
    known.map(|(_, state)| *state).ok_or_else(unknown)
}

/// `GET /v1/attempts`.
pub(crate) async fn list_attempts(call: Call) -> Answer {
    let paging = Paging::read(List::Attempts, &call.query)?;
    let manual = manual(&call)?;
    let filter = AttemptFilter {
        event: call.query.value("event")?,
        subscription: subscription(&call)?,
        outcome: call.query.outcome(call.is_operator())?,
        manual,
        started: call.query.period()?,
    };
    let store = call.engine().store();
    let page = store.attempts_made(call.tenant(), filter, paging.listing()).await?;
    let mut shown = paging.show(page);
    let lines = std::mem::take(&mut shown.items);
    let views = lines.iter().map(|line| AttemptLineView::new(line, call.is_operator()));
    respond::ok(&shown.page(views.collect()))
}

/// The subscription of the query, by id or name.
pub(super) fn subscription(call: &Call) -> Result<Option<SubscriptionId>> {
    let Some(text) = call.query.text("subscription") else { return Ok(None) };
    let unknown = || Problem::field("subscription", "no subscription has this id or name");
    call.find_subscription(text).map(Some).ok_or_else(unknown)
}

async fn answer_page(call: &Call, filter: DeliveryFilter) -> Answer {
    let list = match filter.state {
        Some(StateKind::InFlight) => List::InFlight,
        _ => List::Deliveries,
    };
    let paging = Paging::read(list, &call.query)?;
    let page = call.engine().deliveries(call.tenant(), filter, paging.listing()).await?;
    let mut shown = paging.show(page);
    let deliveries = std::mem::take(&mut shown.items);
    let waiting = call.engine().waiting(call.tenant(), &deliveries).await;
    let operator = call.is_operator();
    let views = deliveries.iter().zip(waiting);
    let views =
        views.map(|(delivery, waiting)| DeliveryView::new(delivery, operator).waiting(waiting));
    respond::ok(&shown.page(views.collect()))
}

pub(super) async fn find(engine: &Engine, tenant: TenantId, id: DeliveryId) -> Result<Delivery> {
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

pub(super) async fn answer_whole(call: &Call, delivery: &Delivery) -> Answer {
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

/// `GET /v1/deliveries/{id}/timeline`.
pub(crate) async fn timeline(mut call: Call) -> Answer {
    let id = call.named("delivery").await?;
    let timeline = call.engine().timeline(call.tenant(), id).await?;
    respond::ok(&TimelineView::new(&timeline, call.is_operator()))
}

/// `GET /v1/deliveries/{id}/request`.
pub(crate) async fn request(mut call: Call) -> Answer {
    let id = call.named("delivery").await?;
    let rebuild = call.query.flag("rebuild")?.unwrap_or(false);
    if !rebuild
        && let Some(attempt) = call.engine().sent_request(call.tenant(), id).await?
        && let Some(sent) = PreviewView::sent(&attempt)
    {
        return respond::ok(&sent);
    }
    let preview = call.engine().preview_request(call.tenant(), id).await?;
    respond::ok(&PreviewView::new(&preview, call.is_operator()))
}

/// `POST /v1/deliveries/{id}/retry`.
pub(crate) async fn retry(mut call: Call) -> Answer {
    let id = call.named("delivery").await?;
    retried(call, id).await
}

/// How a delivery is tried again.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Again {
    #[serde(default)]
    once: bool,
}

async fn retried(mut call: Call, id: DeliveryId) -> Answer {
    // Callers that know nothing of it send no body, whatever they say of its type.
    let Again { once } = match http_body::Body::is_end_stream(call.body()) {
        true => Again::default(),
        false => call.json().await?,
    };
    let (engine, tenant) = (call.engine(), call.tenant());
    let delivery = match once {
        true => engine.retry_delivery_once(tenant, id).await?,
        false => engine.retry_delivery(tenant, id).await?,
    };
    respond::ok(&DeliveryView::new(&delivery, call.is_operator()))
}

/// `POST /v1/deliveries/{id}/cancel`.
pub(crate) async fn cancel(mut call: Call) -> Answer {
    let id = call.named("delivery").await?;
    let delivery = call.engine().cancel_delivery(call.tenant(), id).await?;
    respond::ok(&DeliveryView::new(&delivery, call.is_operator()))
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
    retried(call, id).await
}
