//! Attempts, and what became of messages at endpoints.
//!
//! A number says how something stands: 0 success, 2 failure, 3 when more attempts follow, 4 cancelled. An attempt has succeeded or
//! failed; a message at an endpoint stands like its delivery.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthorn_domain::{
    Attempt, Delivery, DeliveryState, Event, EventId, FailureCode, SubscriptionId, TenantId,
    Timestamp,
};
use posthorn_engine::SubscriptionView;
use posthorn_store::{
    AttemptFilter, AttemptLine, DeliveryFilter, EventFilter, Listing, OutcomeFilter, Page,
    StateKind,
};
use serde_json::{Value, json};

use super::call::{Answer, Call, json, nothing, ok};
use super::failure::Failure;
use super::page::{Arranged, Paging, list as shown_list};
use super::{endpoint, id, message, replay};

/// How something stands.
const SUCCESS: (u8, &str) = (0, "success");
const FAIL: (u8, &str) = (2, "fail");
const SENDING: (u8, &str) = (3, "sending");
const CANCELED: (u8, &str) = (4, "canceled");
/// What is shown of a response, in bytes.
const RESPONSE_BYTES_MAX: usize = 20_000;
/// Questions to the store for one page, where what is asked for is in no index.
const LOOKS_MAX: usize = 20;

fn stands(state: DeliveryState) -> (u8, &'static str) {
    match state {
        DeliveryState::Delivered => SUCCESS,
        DeliveryState::Dead(_) => FAIL,
        DeliveryState::Pending | DeliveryState::InFlight => SENDING,
        DeliveryState::Cancelled(_) => CANCELED,
    }
}

fn came_to(attempt: &Attempt, view: Option<&SubscriptionView>) -> (u8, &'static str) {
    let success =
        attempt.status.is_some_and(|status| match view.map(|view| view.policy.as_ref()) {
            Some(Ok(policy)) => policy.success.contains(status),
            _ => (200..300).contains(&status),
        });
    if success { SUCCESS } else { FAIL }
}

/// What a receiver said, or why it said nothing: without a word about the network.
fn response(attempt: &Attempt) -> String {
    if attempt.response_expunged_at.is_some() {
        return "EXPUNGED".to_owned();
    }
    if attempt.status.is_none() {
        return attempt.summary();
    }
    let bytes = &attempt.response[..attempt.response.len().min(RESPONSE_BYTES_MAX)];
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        // Cut in the middle of a character, or no text at all.
        Err(error) if error.error_len().is_none() => {
            String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned()
        }
        Err(_) => STANDARD.encode(bytes),
    }
}

fn view(
    line: &AttemptLine,
    endpoint: Option<&SubscriptionView>,
    with_content: bool,
    msg: Option<&Event>,
) -> Value {
    let attempt = &line.attempt;
    let (status, word) = came_to(attempt, endpoint);
    let url = endpoint.and_then(|view| view.subscription.destination.url());
    let mut view = json!({
        "id": id::attempt(attempt.delivery, attempt.number),
        "msgId": id::message(line.event),
        "endpointId": id::endpoint(line.subscription),
        "url": url.unwrap_or_default(),
        "timestamp": id::time(attempt.started_at),
        "responseStatusCode": attempt.status.unwrap_or(0),
        "response": if with_content { response(attempt) } else { "{}".to_owned() },
        "responseDurationMs": attempt.took.as_millis(),
        "status": status,
        "statusText": word,
        "triggerType": u8::from(attempt.manual),
    });
    if let Some(event) = msg {
        view["msg"] = message::view(event, with_content);
    }
    view
}

/// Which outcomes of attempts a request asks for; `None` where there can be none.
fn outcomes(call: &Call) -> Result<Option<Vec<Option<OutcomeFilter>>>, Failure> {
    let failures = || OutcomeFilter::Failures(FailureCode::ALL.to_vec());
    let class = match call.query.number("status_code_class")? {
        None => None,
        Some(0) => Some(failures()),
        Some(class @ (100 | 200 | 300 | 400 | 500)) => {
            Some(OutcomeFilter::Status(class as u16, class as u16 + 99))
        }
        Some(_) => {
            let detail = "status_code_class must be 0, 100, 200, 300, 400 or 500";
            return Err(Failure::bad_request("generic_error", detail));
        }
    };
    let status = call.query.number("status")?;
    let is_success = |own: &OutcomeFilter| matches!(own, OutcomeFilter::Status(200, _));
    Ok(match (status, class) {
        (None, None) => Some(vec![None]),
        (None, Some(class)) => Some(vec![Some(class)]),
        (Some(0), None) => Some(vec![Some(OutcomeFilter::Status(200, 299))]),
        (Some(2), None) => Some(vec![
            Some(OutcomeFilter::Status(100, 199)),
            Some(OutcomeFilter::Status(300, 599)),
            Some(failures()),
        ]),
        (Some(0), Some(class)) => is_success(&class).then(|| vec![Some(class)]),
        (Some(2), Some(class)) => (!is_success(&class)).then(|| vec![Some(class)]),
        (Some(1 | 3 | 4), _) => None,
        (Some(_), _) => {
            let detail = "status must be from 0 to 4";
            return Err(Failure::bad_request("generic_error", detail));
        }
    })
}

/// One page of attempts, of which some may be of several kinds of outcomes.
async fn attempts(
    call: &Call,
    tenant: TenantId,
    paging: &Paging,
    base: &AttemptFilter,
) -> Result<Arranged<AttemptLine>, Failure> {
    let Some(outcomes) = outcomes(call)? else { return Ok(paging.arrange(Page::empty())) };
    let events = message::filter(call)?;
    let asks_events = !events.types.is_empty() || !events.attributes.is_empty();
    let store = call.service.engine.store();
    let mut listing = paging.listing();
    let mut page = Page::empty();
    for _ in 0..LOOKS_MAX {
        // The newest of each kind, of which the newest of all are wanted.
        let mut parts = Vec::new();
        for outcome in &outcomes {
            let filter = AttemptFilter { outcome: outcome.clone(), ..base.clone() };
            parts.push(store.attempts_made(tenant, filter, listing).await?);
        }
        let mut found = merged(parts, listing);
        if page.first.is_none() {
            page.first = found.first;
        }
        (page.last, page.more) = (found.last, found.more);
        listing.after = found.last;
        if asks_events {
            found.items = of_events(call, tenant, found.items, &events).await?;
        }
        page.items.extend(found.items);
        if page.items.len() >= paging.limit || !page.more {
            break;
        }
    }
    Ok(paging.arrange(page))
}

/// Several pages of the same list as one.
fn merged(mut parts: Vec<Page<AttemptLine>>, listing: Listing) -> Page<AttemptLine> {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let newest = listing.order == posthorn_store::Order::NewestFirst;
    let more = parts.iter().any(|part| part.more);
    let mut all: Vec<_> =
        parts.into_iter().flat_map(|part| part.places.into_iter().zip(part.items)).collect();
    all.sort_by_key(|(place, _)| if newest { u128::MAX - place.0 } else { place.0 });
    let cut = all.len() > listing.limit;
    all.truncate(listing.limit);
    let (first, last) = (all.first().map(|own| own.0), all.last().map(|own| own.0));
    let looked = all.len();
    let (places, items) = all.into_iter().unzip();
    Page { items, places, first, last, more: more || cut, scanned_until: None, looked }
}

/// Those whose messages are asked for.
async fn of_events(
    call: &Call,
    tenant: TenantId,
    lines: Vec<AttemptLine>,
    wanted: &EventFilter,
) -> Result<Vec<AttemptLine>, Failure> {
    let mut ids: Vec<EventId> = lines.iter().map(|line| line.event).collect();
    ids.sort_unstable();
    ids.dedup();
    let events = call.service.engine.store().events_by_id(tenant, ids).await?;
    let fits = EventFilter {
        types: wanted.types.clone(),
        attributes: wanted.attributes.clone(),
        ..EventFilter::default()
    };
    let fits: Vec<EventId> =
        events.iter().filter(|event| fits.wants(event)).map(|event| event.id).collect();
    Ok(lines.into_iter().filter(|line| fits.contains(&line.event)).collect())
}

async fn show(call: &Call, tenant: TenantId, shown: Arranged<AttemptLine>) -> Answer {
    let with_content = call.with_content()?;
    let with_msg = call.query.flag("with_msg")?.unwrap_or(false);
    let catalog = call.service.engine.catalog();
    let mut events = HashMap::new();
    if with_msg {
        let ids = shown.items.iter().map(|line| line.event).collect();
        let found = call.service.engine.store().events_by_id(tenant, ids).await?;
        events.extend(found.into_iter().map(|event| (event.id, event)));
    }
    let data = shown.items.iter().map(|line| {
        let endpoint = catalog.subscription(tenant, line.subscription).ok();
        view(line, endpoint.as_deref(), with_content, events.get(&line.event))
    });
    let data = data.collect();
    ok(&shown.show(data))
}

/// `GET /app/{app}/attempt/endpoint/{ep}`.
pub(super) async fn of_endpoint(call: &Call, app: &str, ep: &str) -> Answer {
    let tenant = call.application(app)?.id;
    let own = call.receiver(tenant, ep)?.subscription.id;
    let paging = Paging::read(&call.query, false)?;
    let started = message::period(call)?;
    let base = AttemptFilter { subscription: Some(own), started, ..AttemptFilter::default() };
    let shown = attempts(call, tenant, &paging, &base).await?;
    show(call, tenant, shown).await
}

/// `GET /app/{app}/attempt/msg/{msg}`, perhaps of one endpoint.
pub(super) async fn of_message(call: &Call, app: &str, msg: &str, ep: Option<&str>) -> Answer {
    let tenant = call.application(app)?.id;
    let event = message::find(call, tenant, msg).await?.id;
    let paging = Paging::read(&call.query, false)?;
    let ep = ep.or_else(|| call.query.text("endpoint_id"));
    let subscription = ep.map(|ep| known_endpoint(call, tenant, ep)).transpose()?;
    let started = message::period(call)?;
    let base =
        AttemptFilter { event: Some(event), subscription, started, ..AttemptFilter::default() };
    let shown = attempts(call, tenant, &paging, &base).await?;
    show(call, tenant, shown).await
}

/// An endpoint, also one that was deleted: its attempts are kept.
fn known_endpoint(call: &Call, tenant: TenantId, text: &str) -> Result<SubscriptionId, Failure> {
    match (call.receiver(tenant, text), id::read_endpoint(text)) {
        (Ok(view), _) => Ok(view.subscription.id),
        (Err(_), Some(id)) => Ok(id),
        (Err(failure), None) => Err(failure),
    }
}

/// The attempt that a path names, with its message.
async fn find(
    call: &Call,
    tenant: TenantId,
    msg: &str,
    text: &str,
) -> Result<AttemptLine, Failure> {
    let event = message::find(call, tenant, msg).await?.id;
    let (delivery, number) = id::read_attempt(text).ok_or(Failure::NotFound)?;
    let store = call.service.engine.store();
    let found = store.delivery(tenant, delivery).await?.ok_or(Failure::NotFound)?;
    if found.event != event {
        return Err(Failure::NotFound);
    }
    let all = store.attempts(tenant, delivery).await?;
    let attempt = all.into_iter().find(|own| own.number == number).ok_or(Failure::NotFound)?;
    Ok(AttemptLine { attempt, event, subscription: found.subscription })
}

/// `GET /app/{app}/msg/{msg}/attempt/{attempt}`.
pub(super) async fn get(call: &Call, app: &str, msg: &str, one: &str) -> Answer {
    let tenant = call.application(app)?.id;
    let line = find(call, tenant, msg, one).await?;
    let endpoint = call.service.engine.catalog().subscription(tenant, line.subscription).ok();
    ok(&view(&line, endpoint.as_deref(), true, None))
}

/// `DELETE /app/{app}/msg/{msg}/attempt/{attempt}/content`.
pub(super) async fn expunge(call: &Call, app: &str, msg: &str, one: &str) -> Answer {
    let tenant = call.application(app)?.id;
    let line = find(call, tenant, msg, one).await?;
    let (delivery, number) = (line.attempt.delivery, line.attempt.number);
    call.service.engine.expunge_response(tenant, delivery, number).await?;
    Ok(nothing())
}

/// When the next attempt is planned.
fn next_attempt(delivery: &Delivery) -> Option<String> {
    let planned = !delivery.state.is_terminal() && delivery.due_at != Timestamp::MAX;
    planned.then(|| id::time(delivery.due_at))
}

/// `GET /app/{app}/endpoint/{ep}/msg`: what an endpoint got, and how it stands.
pub(super) async fn messages_of(call: &Call, app: &str, ep: &str) -> Answer {
    let tenant = call.application(app)?.id;
    let own = call.receiver(tenant, ep)?.subscription.id;
    let with_content = call.with_content()?;
    let paging = Paging::read(&call.query, false)?;
    let state = match call.query.number("status")? {
        None => None,
        Some(0) => Some(StateKind::Delivered),
        Some(2) => Some(StateKind::Dead),
        Some(3) => Some(StateKind::Pending),
        Some(4) => Some(StateKind::Cancelled),
        Some(1) => return ok(&paging.arrange(Page::<Delivery>::empty()).show(Vec::new())),
        Some(_) => {
            let detail = "status must be from 0 to 4";
            return Err(Failure::bad_request("generic_error", detail));
        }
    };
    let wanted = message::filter(call)?;
    let asks = EventFilter {
        types: wanted.types.clone(),
        attributes: wanted.attributes.clone(),
        ..EventFilter::default()
    };
    let filter = DeliveryFilter {
        subscription: Some(own),
        state,
        created: wanted.accepted,
        ..DeliveryFilter::default()
    };
    let store = call.service.engine.store();
    let (mut listing, mut page, mut events) = (paging.listing(), Page::empty(), HashMap::new());
    for _ in 0..LOOKS_MAX {
        let found = store.deliveries(tenant, filter.clone(), listing).await?;
        if page.first.is_none() {
            page.first = found.first;
        }
        (page.last, page.more) = (found.last, found.more);
        listing.after = found.last;
        let ids = found.items.iter().map(|delivery| delivery.event).collect();
        let read = store.events_by_id(tenant, ids).await?;
        events.extend(
            read.into_iter().filter(|event| asks.wants(event)).map(|event| (event.id, event)),
        );
        let fits = found.items.into_iter().filter(|own| events.contains_key(&own.event));
        page.items.extend(fits);
        if page.items.len() >= paging.limit || !page.more {
            break;
        }
    }
    let shown = paging.arrange(page);
    let data = shown.items.iter().filter_map(|delivery| {
        let mut view = message::view(events.get(&delivery.event)?, with_content);
        let (status, word) = stands(delivery.state);
        view["status"] = json!(status);
        view["statusText"] = json!(word);
        view["nextAttempt"] = json!(next_attempt(delivery));
        Some(view)
    });
    let data = data.collect();
    ok(&shown.show(data))
}

/// `GET /app/{app}/msg/{msg}/endpoint`: who gets a message, also endpoints that were deleted.
pub(super) async fn destinations(call: &Call, app: &str, msg: &str) -> Answer {
    let tenant = call.application(app)?.id;
    let event = message::find(call, tenant, msg).await?.id;
    let paging = Paging::read(&call.query, true)?;
    let store = call.service.engine.store();
    let filter = DeliveryFilter { event: Some(event), ..DeliveryFilter::default() };
    let mut all = Vec::new();
    let mut listing = Listing::newest(1_000);
    loop {
        let page = store.deliveries(tenant, filter.clone(), listing).await?;
        all.extend(page.items);
        listing.after = page.last;
        if !page.more {
            break;
        }
    }
    all.sort_by_key(|delivery| delivery.subscription);
    let key = |delivery: &Delivery| id::endpoint(delivery.subscription);
    let (found, done) = paging.cut(all, key);
    let (first, last) = (found.first().map(key), found.last().map(key));
    let catalog = call.service.engine.catalog();
    let mut data = Vec::new();
    for delivery in &found {
        let known: Option<Arc<SubscriptionView>> =
            catalog.subscription(tenant, delivery.subscription).ok();
        let mut view = match &known {
            Some(own) => endpoint::view(call, own),
            None => deleted(delivery),
        };
        // The last attempt's own word, also where another follows.
        let (status, word) = match (stands(delivery.state), delivery.attempts) {
            (SENDING, 0) | (SENDING, _) if delivery.last_outcome.is_none() => SENDING,
            (SENDING, _) => FAIL,
            (other, _) => other,
        };
        view["status"] = json!(status);
        view["statusText"] = json!(word);
        view["nextAttempt"] = json!(next_attempt(delivery));
        data.push(view);
    }
    ok(&shown_list(data, done, first, last))
}

/// What is left to say of an endpoint that is gone.
fn deleted(delivery: &Delivery) -> Value {
    let at = id::time(delivery.created_at);
    json!({
        "id": id::endpoint(delivery.subscription), "url": "", "version": 1, "description": "",
        "disabled": true, "metadata": {}, "createdAt": at, "updatedAt": at,
    })
}

/// `POST /app/{app}/msg/{msg}/endpoint/{ep}/resend`: once, whatever the endpoint wants, and not again when that fails.
pub(super) async fn resend(call: Call, app: &str, msg: &str, ep: &str) -> Answer {
    let tenant = call.application(app)?.id;
    let event = message::find(&call, tenant, msg).await?;
    let own = call.receiver(tenant, ep)?;
    if event.expunged_at.is_some() {
        let detail = "The payload of the message was removed.";
        return Err(Failure::bad_request("missing_payload", detail));
    }
    replay::deliver(&call, tenant, event.id, own.subscription.id).await?;
    Ok(json(http::StatusCode::ACCEPTED, &json!({})))
}
