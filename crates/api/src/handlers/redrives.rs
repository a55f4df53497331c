//! Redrives: many dead letters put back at once.

use posthorn_domain::{DeadReason, RedriveFilter, RedriveId, SubscriptionId, Timestamp};
use posthorn_store::RedrivePage;
use serde::Deserialize;

use crate::call::{Answer, Call};
use crate::cursor::{self, List};
use crate::problem::Problem;
use crate::respond;
use crate::wire::{Page, RedriveView};

const PER_SECOND_DEFAULT: u32 = 100;
const PER_SECOND_MAX: u32 = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    subscription: Option<String>,
    reason: Option<DeadReason>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    per_second: Option<u32>,
}

/// `POST /v1/redrives`.
pub(crate) async fn create(mut call: Call) -> Answer {
    let new: New = call.json().await?;
    let tenant = call.tenant();
    let per_second = new.per_second.unwrap_or(PER_SECOND_DEFAULT);
    if !(1..=PER_SECOND_MAX).contains(&per_second) {
        return Err(Problem::field("per_second", format!("must be 1 to {PER_SECOND_MAX}")));
    }
    if let (Some(since), Some(until)) = (new.since, new.until)
        && since >= until
    {
        return Err(Problem::field("until", "must be later than since"));
    }
    let known = |id: &SubscriptionId| call.engine().catalog().subscription(tenant, *id).is_ok();
    let subscription = match &new.subscription {
        None => None,
        Some(text) => match call.find_subscription(text).filter(known) {
            Some(id) => Some(id),
            None => return Err(Problem::field("subscription", "there is no such subscription")),
        },
    };
    call.api.limits.redrive(tenant, call.engine().admission().nanos())?;
    let filter =
        RedriveFilter { subscription, reason: new.reason, since: new.since, until: new.until };
    let redrive = call.engine().create_redrive(tenant, filter, per_second).await?;
    let place = format_args!("/v1/redrives/{}", redrive.id).to_string();
    respond::created(place, &RedriveView::from(&redrive))
}

/// `GET /v1/redrives`.
pub(crate) async fn list(call: Call) -> Answer {
    let before = call.query.text("cursor").map(|text| cursor::decode_id(List::Redrives, text));
    let before = before.transpose()?.map(RedriveId::from_bytes);
    let limit = call.query.limit()?;
    let page = call.engine().store().redrives(call.tenant(), RedrivePage { before, limit }).await?;
    let next = page.items.last().filter(|_| page.more);
    let next = next.map(|last| cursor::encode(List::Redrives, last.id.as_bytes()));
    respond::ok(&Page::forward(page.items.iter().map(RedriveView::from).collect(), next))
}

/// `GET /v1/redrives/{id}`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let id = call.named("redrive").await?;
    let redrive = call.engine().store().redrive(call.tenant(), id).await?;
    let redrive = redrive.ok_or_else(|| Problem::not_found("redrive"))?;
    respond::ok(&RedriveView::from(&redrive))
}

/// `POST /v1/redrives/{id}/cancel`.
pub(crate) async fn cancel(mut call: Call) -> Answer {
    let id = call.named("redrive").await?;
    let redrive = call.engine().cancel_redrive(call.tenant(), id).await?;
    respond::ok(&RedriveView::from(&redrive))
}
