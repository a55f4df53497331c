//! Sending again: one message, those that failed, those that were missed, or everything of a time. All but the first are jobs.

use http::StatusCode;
use posthorn_domain::delivery::Wish;
use posthorn_domain::{
    Budget, DeliveryFilter, EventId, EventType, OutcomeFilter, Period, ReplayStatus, Selection,
    StateKind, SubscriptionId, TenantId, Timestamp,
};
use posthorn_engine::{Error, JOB_PER_SECOND_MAX, NewBulk, NewReplay, Terms};
use posthorn_store::Listing;

use super::body::{Given, Object};
use super::call::{Answer, Call, json};
use super::endpoint::ATTRIBUTE_PREFIX;
use super::failure::Failure;
use super::once::Seed;
use super::task;

/// How far back may be asked for, with a little for clocks that differ.
const WINDOW_MILLIS: i64 = 14 * 86_400_000 + 300_000;
/// Deliveries that such a job begins in a second: receivers that were down are not overrun.
const PER_SECOND: u32 = 100;

/// Brings one message to one endpoint, whatever it wants: one attempt.
pub(super) async fn deliver(
    call: &Call,
    tenant: TenantId,
    event: EventId,
    subscription: SubscriptionId,
) -> Result<(), Failure> {
    let engine = &call.service.engine;
    let wanted = DeliveryFilter {
        event: Some(event),
        subscription: Some(subscription),
        ..DeliveryFilter::default()
    };
    let found = engine.store().deliveries(tenant, wanted, Listing::newest(1)).await?;
    let done = match found.items.first() {
        // Now, whether it has ended or waits for its schedule.
        Some(delivery) => engine.retry_delivery_once(tenant, delivery.id).await.map(drop),
        None => {
            let terms = Terms { budget: Budget::Once, ..Terms::default() };
            let who = call.who();
            engine.deliver_event_with(tenant, event, subscription, who, terms).await.map(drop)
        }
    };
    match done {
        Ok(()) => Ok(()),
        // It is on its way already.
        Err(Error::NotEnded) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Cancels what waits for an endpoint.
pub(super) async fn drop_pending(
    call: &Call,
    tenant: TenantId,
    subscription: SubscriptionId,
) -> Result<(), Failure> {
    let new = NewBulk {
        wish: Wish::Cancel,
        deliveries: DeliveryFilter {
            subscription: Some(subscription),
            state: Some(StateKind::Pending),
            ..DeliveryFilter::default()
        },
        per_second: JOB_PER_SECOND_MAX,
        created_by: call.who(),
    };
    call.service.engine.create_bulk(tenant, new).await?;
    Ok(())
}

/// The time that is asked for.
fn window(call: &Call, body: &mut Object) -> Period {
    let now = call.service.engine.now();
    let since = match body.time("since") {
        Given::Some(since) => Some(since),
        _ => {
            body.refuse("since", "field required");
            None
        }
    };
    let until = body.time("until").or_absent();
    let end = until.unwrap_or(now);
    if let Some(since) = since {
        if since > end {
            body.refuse("since", "must be before until");
        } else if now.as_millis() - since.as_millis() > WINDOW_MILLIS {
            body.refuse("since", "must be at most 14 days ago");
        }
    }
    Period {
        from: since,
        until: Some(Timestamp::from_millis(end.as_millis().min(now.as_millis()))),
    }
}

/// `POST …/recover`, `…/replay-missing` and `…/bulk-replay`.
pub(super) async fn begin(
    mut call: Call,
    app: &str,
    ep: &str,
    what: &str,
    seed: Option<Seed>,
) -> Answer {
    let tenant = call.application(app)?;
    let own = call.receiver(tenant.id, ep)?.subscription.id;
    let mut body = call.object(tenant.id).await?;
    let period = window(&call, &mut body);
    let mut events = Selection { from: period.from, until: period.until, ..Selection::default() };
    let mut status = match what {
        "recover" => ReplayStatus::Failed,
        "replay-missing" => ReplayStatus::Missed,
        _ => ReplayStatus::All,
    };
    let mut outcome = None;
    if what == "bulk-replay" {
        events.topics = vec![call.service.options.topic.clone()];
        let types = body.set("eventTypes", None).or_absent().unwrap_or_default();
        for name in &types {
            match EventType::new(name) {
                Ok(name) => events.types.push(name),
                Err(error) => body.refuse("eventTypes", error.to_string()),
            }
        }
        for (name, prefix) in [("channel", ATTRIBUTE_PREFIX), ("tag", "tag.")] {
            if let Some(own) = body.text(name).or_absent() {
                events.attributes.insert(format!("{prefix}{own}"), "1".to_owned());
            }
        }
        status = match body.number("status").or_absent() {
            None => ReplayStatus::All,
            Some(0) => ReplayStatus::Delivered,
            Some(2) => ReplayStatus::Failed,
            Some(_) => {
                body.refuse("status", "must be 0 or 2");
                ReplayStatus::All
            }
        };
        outcome = match body.number("statusCodeClass").or_absent() {
            None => None,
            Some(class @ (100 | 200 | 300 | 400 | 500)) => {
                Some(OutcomeFilter::Status(class as u16, class as u16 + 99))
            }
            Some(_) => {
                body.refuse("statusCodeClass", "must be 100, 200, 300, 400 or 500");
                None
            }
        };
    }
    body.done()?;
    let engine = &call.service.engine;
    let terms = Terms { seed: seed.map(Seed::of_id), budget: Budget::Once };
    let job = match outcome {
        Some(outcome) => {
            let state = match status {
                ReplayStatus::Delivered => StateKind::Delivered,
                _ if outcome == OutcomeFilter::Status(200, 299) => StateKind::Delivered,
                _ => StateKind::Dead,
            };
            let deliveries = DeliveryFilter {
                subscription: Some(own),
                state: Some(state),
                outcome: Some(outcome),
                created: period,
                ..DeliveryFilter::default()
            };
            let (wish, per_second, created_by) = (Wish::Retry, PER_SECOND, call.who());
            let new = NewBulk { wish, deliveries, per_second, created_by };
            engine.create_bulk_with(tenant.id, new, terms).await?
        }
        None => {
            let new = NewReplay {
                subscription: Some(own),
                events,
                status,
                per_second: PER_SECOND,
                created_by: call.who(),
            };
            engine.create_replay_with(tenant.id, new, terms).await?
        }
    };
    Ok(json(StatusCode::ACCEPTED, &task::view_as(&job, what)))
}
