//! What each endpoint does.

use axum::extract::{FromRequestParts as _, Path};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use posthorn_access::Caller;
use posthorn_domain::{Delivery, DeliveryId, DeliveryState, TenantId};
use posthorn_store::{DeliveryFilter, Listing, Page, StateKind};
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;
use tracing::info;

use super::Service;
use super::failure::Failure;
use super::webhook::{Status, Told};

type Answer = Result<Response, Failure>;

/// Webhooks in a list when nobody says how many, and the most.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;
/// Deliveries looked at in one question, and questions at most, when a status has no index: what is
/// beyond is found by waiting until what is before has ended.
const PAGE: usize = 1_000;
const PAGES_MAX: usize = 20;
/// Deliveries of a list that are read at once.
const READS: usize = 8;
/// Bytes of payloads in one list. Those of the rest are left out; each is shown when asked for by its id.
const PAYLOADS_BYTES_MAX: usize = 4 << 20;

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(bytes.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// `GET /admin/webhooks`.
pub(super) async fn list(service: &Service, caller: &Caller, parts: &Parts) -> Answer {
    let query = Query::read(parts)?;
    let (tenant, newest) = (caller.tenant, Listing::newest(query.limit));
    let found = match query.status {
        None => page(service, tenant, None, newest).await?.items,
        Some(Status::Success) => {
            page(service, tenant, Some(StateKind::Delivered), newest).await?.items
        }
        Some(Status::Failed) => {
            let kinds = [StateKind::Dead, StateKind::Cancelled];
            let mut both = Vec::new();
            for kind in kinds {
                both.extend(page(service, tenant, Some(kind), newest).await?.items);
            }
            both.sort_by_key(|delivery| std::cmp::Reverse(delivery.id));
            both.truncate(query.limit);
            both
        }
        Some(status) => unfinished(service, tenant, status, query.limit).await?,
    };
    let told = tell(service, found).await?;
    let webhooks: Vec<_> = told.iter().map(Told::webhook).collect();
    Ok(json(StatusCode::OK, &json!({"count": webhooks.len(), "webhooks": webhooks})))
}

/// `GET /admin/webhooks/dlq`.
pub(super) async fn list_dead(service: &Service, caller: &Caller, parts: &Parts) -> Answer {
    let limit = Query::read(parts)?.limit;
    let newest = Listing::newest(limit);
    let found = page(service, caller.tenant, Some(StateKind::Dead), newest).await?;
    let told = tell(service, found.items).await?;
    let webhooks: Vec<_> = told.iter().map(Told::dead).collect();
    Ok(json(StatusCode::OK, &json!({"count": webhooks.len(), "webhooks": webhooks})))
}

/// `GET /admin/webhooks/{id}`.
pub(super) async fn get(service: &Service, caller: &Caller, parts: &mut Parts) -> Answer {
    let delivery = find(service, caller, parts, false).await?;
    let told = Told::read(&service.engine, delivery).await?;
    Ok(json(StatusCode::OK, &told.webhook()))
}

/// `POST /admin/webhooks/{id}/retry`, and the same for a dead letter: pending, due now, with a fresh
/// budget.
pub(super) async fn retry(
    service: &Service,
    caller: &Caller,
    parts: &mut Parts,
    dead: bool,
) -> Answer {
    let engine = &service.engine;
    let delivery = find(service, caller, parts, dead).await?;
    let (tenant, id) = (caller.tenant, delivery.id);
    engine.retry_delivery(tenant, id).await?;
    info!(key = %caller.principal.key.id, webhook = %id, "an admin retried a webhook");
    let message = "Webhook queued for retry";
    Ok(json(StatusCode::OK, &json!({"status": "queued", "message": message, "webhookId": id})))
}

/// `DELETE /admin/webhooks/{id}`, and the same for a dead letter.
pub(super) async fn delete(
    service: &Service,
    caller: &Caller,
    parts: &mut Parts,
    dead: bool,
) -> Answer {
    let id = find(service, caller, parts, dead).await?.id;
    service.engine.forget_delivery(caller.tenant, id).await?;
    info!(key = %caller.principal.key.id, webhook = %id, "an admin deleted a webhook");
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// The delivery that the path names; a malformed id is like an unknown one.
async fn find(
    service: &Service,
    caller: &Caller,
    parts: &mut Parts,
    dead: bool,
) -> Result<Delivery, Failure> {
    let path = Path::<String>::from_request_parts(parts, &()).await;
    let Path(text) = path.map_err(|_| Failure::NotFound)?;
    let id: DeliveryId = text.parse().map_err(|_| Failure::NotFound)?;
    let found = service.engine.store().delivery(caller.tenant, id).await?;
    found
        .filter(|delivery| !dead || matches!(delivery.state, DeliveryState::Dead(_)))
        .ok_or(Failure::NotFound)
}

/// A page of deliveries.
async fn page(
    service: &Service,
    tenant: TenantId,
    state: Option<StateKind>,
    listing: Listing,
) -> Result<Page<Delivery>, Failure> {
    let filter = DeliveryFilter { state, ..DeliveryFilter::default() };
    Ok(service.engine.store().deliveries(tenant, filter, listing).await?)
}

/// Unfinished deliveries that wait, or that are under way. Stores know them as one kind.
async fn unfinished(
    service: &Service,
    tenant: TenantId,
    status: Status,
    limit: usize,
) -> Result<Vec<Delivery>, Failure> {
    let mut found = Vec::new();
    let mut listing = Listing::newest(PAGE);
    for _ in 0..PAGES_MAX {
        let page = page(service, tenant, Some(StateKind::Pending), listing).await?;
        listing.after = page.last;
        let items = page.items.into_iter();
        found.extend(items.filter(|delivery| Status::of(delivery.state) == status));
        if found.len() >= limit || !page.more {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// Reads what a list tells of each delivery, a few at a time, and keeps the order.
async fn tell(service: &Service, deliveries: Vec<Delivery>) -> Result<Vec<Told>, Failure> {
    let mut told: Vec<Option<Told>> = Vec::new();
    told.resize_with(deliveries.len(), || None);
    let mut waiting = deliveries.into_iter().enumerate();
    let mut reads = JoinSet::new();
    let mut room = PAYLOADS_BYTES_MAX;
    loop {
        while reads.len() < READS
            && let Some((place, delivery)) = waiting.next()
        {
            let engine = service.engine.clone();
            reads.spawn(async move { (place, Told::read(&engine, delivery).await) });
        }
        match reads.join_next().await {
            None => return Ok(told.into_iter().flatten().collect()),
            Some(Ok((place, read))) => {
                let read: Told = read?;
                told[place] = Some(match room.checked_sub(read.payload_bytes()) {
                    Some(left) => {
                        room = left;
                        read
                    }
                    None => read.without_payload(),
                });
            }
            Some(Err(crash)) => return Err(Failure::Store(crash.to_string())),
        }
    }
}

/// The parameters of a list.
struct Query {
    status: Option<Status>,
    limit: usize,
}

impl Query {
    /// Reads those it knows; others are passed over, and one that is empty was not given.
    fn read(parts: &Parts) -> Result<Self, Failure> {
        let mut query = Self { status: None, limit: LIMIT_DEFAULT };
        let text = parts.uri.query().unwrap_or_default();
        for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
            match (&*name, &*value) {
                (_, "") => {}
                ("status", value) => {
                    query.status = Some(Status::parse(value).ok_or_else(|| Failure::Field {
                        name: "status",
                        problem: "must be pending, processing, failed or success".to_owned(),
                    })?);
                }
                ("limit", value) => {
                    let number: i64 = value.parse().map_err(|_| Failure::Field {
                        name: "limit",
                        problem: format!("must be a number from 1 to {LIMIT_MAX}"),
                    })?;
                    let number = usize::try_from(number).unwrap_or(1);
                    query.limit = number.clamp(1, LIMIT_MAX);
                }
                _ => {}
            }
        }
        Ok(query)
    }
}
