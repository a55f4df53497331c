//! Cancelling, forgetting and retrying all deliveries that match, as a job. The conditions are those of the list.

use posthorn_domain::delivery::Wish;
use posthorn_domain::{EventId, StateKind, SubscriptionId, Timestamp};
use posthorn_engine::NewBulk;
use posthorn_store::{DeliveryFilter, Period};
use serde::Deserialize;

use super::deliveries::reason_of;
use super::jobs::{Count, pace};
use crate::call::{Answer, Call};
use crate::problem::{Problem, Result};
use crate::query::outcome_of;
use crate::respond;
use crate::wire::JobView;

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Cancel,
    Forget,
    Retry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    action: Action,
    event: Option<String>,
    subscription: Option<String>,
    state: Option<StateKind>,
    reason: Option<String>,
    status: Option<String>,
    failure: Option<String>,
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    per_second: Option<u32>,
}

impl New {
    async fn understand(self, call: &Call) -> Result<NewBulk> {
        let unknown = || Problem::field("subscription", "no subscription has this id or name");
        let known =
            |id: &SubscriptionId| call.engine().catalog().subscription(call.tenant(), *id).is_ok();
        let find = |text: String| call.find_subscription(&text).filter(known).ok_or_else(unknown);
        if let (Some(from), Some(until)) = (self.from, self.until)
            && from >= until
        {
            return Err(Problem::field("until", "must be later than from"));
        }
        let (status, failure) = (self.status.as_deref(), self.failure.as_deref());
        let deliveries = DeliveryFilter {
            event: event_of(call, self.event.as_deref()).await?,
            subscription: self.subscription.map(find).transpose()?,
            state: self.state,
            exactly: self.reason.as_deref().map(reason_of).transpose()?,
            outcome: outcome_of(status, failure, call.is_operator())?,
            created: Period { from: self.from, until: self.until },
        };
        let wish = match self.action {
            Action::Cancel => Wish::Cancel,
            Action::Forget => Wish::Forget,
            Action::Retry => Wish::Retry,
        };
        let per_second = pace(self.per_second)?;
        Ok(NewBulk { wish, deliveries, per_second, created_by: call.who() })
    }
}

/// An event of the caller's own.
async fn event_of(call: &Call, text: Option<&str>) -> Result<Option<EventId>> {
    let Some(text) = text else { return Ok(None) };
    let unknown = || Problem::field("event", "there is no such event");
    let id: EventId = text.parse().map_err(|_| unknown())?;
    let found = call.engine().store().event(call.tenant(), id).await?;
    found.map(|event| Some(event.id)).ok_or_else(unknown)
}

async fn read(call: &mut Call) -> Result<NewBulk> {
    let new: New = call.json().await?;
    let new = new.understand(call).await?;
    call.api.limits.redrive(call.tenant(), call.engine().admission().nanos())?;
    Ok(new)
}

/// `POST /v1/deliveries/bulk`.
pub(crate) async fn create(mut call: Call) -> Answer {
    let new = read(&mut call).await?;
    let job = call.engine().create_bulk(call.tenant(), new).await?;
    let place = format_args!("/v1/jobs/{}", job.id).to_string();
    respond::created(place, &JobView::from(&job))
}

/// `POST /v1/deliveries/bulk/count`.
pub(crate) async fn count(mut call: Call) -> Answer {
    let new = read(&mut call).await?;
    let counted = call.engine().count_bulk(call.tenant(), new).await?;
    respond::ok(&Count { count: counted.count, seen: counted.seen, complete: counted.complete })
}
