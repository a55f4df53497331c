//! Jobs: events of the past, delivered again or for the first time.

use std::collections::BTreeMap;

use posthorn_domain::{
    EventId, EventType, JobId, ReplayStatus, Selection, SubscriptionId, TenantId, Timestamp,
    TopicName,
};
use posthorn_engine::{JOB_PER_SECOND_MAX, NewReplay};
use serde::{Deserialize, Serialize};

use crate::call::{Answer, Call};
use crate::cursor::{List, Paging};
use crate::problem::{Problem, Result};
use crate::respond;
use crate::wire::JobView;

const PER_SECOND_DEFAULT: u32 = 100;
/// Values of one kind.
const VALUES_MAX: usize = 20;

/// How many per second, when that is in range.
pub(super) fn pace(given: Option<u32>) -> Result<u32> {
    let per_second = given.unwrap_or(PER_SECOND_DEFAULT);
    match (1..=JOB_PER_SECOND_MAX).contains(&per_second) {
        true => Ok(per_second),
        false => Err(Problem::field("per_second", format!("must be 1 to {JOB_PER_SECOND_MAX}"))),
    }
}

/// Refuses what selects nothing, or lists too much.
pub(super) fn check(events: &Selection) -> Result<()> {
    if let (Some(from), Some(until)) = (events.from, events.until)
        && from >= until
    {
        return Err(Problem::field("until", "must be later than from"));
    }
    let counts = [
        ("topics", events.topics.len()),
        ("types", events.types.len()),
        ("attributes", events.attributes.len()),
    ];
    match counts.iter().find(|(_, count)| *count > VALUES_MAX) {
        Some((name, _)) => Err(Problem::field(*name, format!("at most {VALUES_MAX} are allowed"))),
        None => Ok(()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    #[serde(default)]
    topics: Vec<TopicName>,
    #[serde(default)]
    types: Vec<EventType>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    status: Option<ReplayStatus>,
    per_second: Option<u32>,
}

impl New {
    fn understand(self, call: &Call, subscription: Option<SubscriptionId>) -> Result<NewReplay> {
        let per_second = pace(self.per_second)?;
        let events = Selection {
            topics: self.topics,
            types: self.types,
            attributes: self.attributes,
            from: self.from,
            until: self.until,
            ..Selection::default()
        };
        check(&events)?;
        let default =
            if subscription.is_some() { ReplayStatus::Missed } else { ReplayStatus::Failed };
        Ok(NewReplay {
            subscription,
            events,
            status: self.status.unwrap_or(default),
            per_second,
            created_by: call.who(),
        })
    }
}

/// The subscription at the end of the path, which must be there.
async fn subscription(call: &mut Call) -> Result<SubscriptionId> {
    let id = call.subscription().await?;
    call.engine().catalog().subscription(call.tenant(), id)?;
    Ok(id)
}

async fn begin(call: Call, new: New, to: Option<SubscriptionId>) -> Answer {
    let replay = new.understand(&call, to)?;
    let tenant = call.tenant();
    create(&call, tenant, replay).await
}

/// Begins a replay.
pub(super) async fn create(call: &Call, tenant: TenantId, replay: NewReplay) -> Answer {
    call.api.limits.redrive(tenant, call.engine().admission().nanos())?;
    let job = call.engine().create_replay(tenant, replay).await?;
    let place = format_args!("/v1/jobs/{}", job.id).to_string();
    respond::created(place, &JobView::from(&job))
}

#[derive(Serialize)]
pub(super) struct Count {
    pub(super) count: u64,
    pub(super) seen: u64,
    pub(super) complete: bool,
}

async fn count(call: Call, new: New, to: Option<SubscriptionId>) -> Answer {
    let replay = new.understand(&call, to)?;
    let tenant = call.tenant();
    count_of(&call, tenant, replay).await
}

/// Counts what a replay would do.
pub(super) async fn count_of(call: &Call, tenant: TenantId, replay: NewReplay) -> Answer {
    call.api.limits.redrive(tenant, call.engine().admission().nanos())?;
    let counted = call.engine().count_replay(tenant, replay).await?;
    respond::ok(&Count { count: counted.count, seen: counted.seen, complete: counted.complete })
}

/// `POST /v1/subscriptions/{id}/replay`.
pub(crate) async fn replay(mut call: Call) -> Answer {
    let to = subscription(&mut call).await?;
    let new = call.json().await?;
    begin(call, new, Some(to)).await
}

/// `POST /v1/subscriptions/{id}/replay/count`.
pub(crate) async fn count_replay(mut call: Call) -> Answer {
    let to = subscription(&mut call).await?;
    let new = call.json().await?;
    count(call, new, Some(to)).await
}

/// `POST /v1/deliveries/resend`.
pub(crate) async fn resend(mut call: Call) -> Answer {
    let new = call.json().await?;
    begin(call, new, None).await
}

/// `POST /v1/deliveries/resend/count`.
pub(crate) async fn count_resend(mut call: Call) -> Answer {
    let new = call.json().await?;
    count(call, new, None).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct To {
    subscription: String,
}

/// `POST /v1/events/{id}/deliver`.
pub(crate) async fn deliver(mut call: Call) -> Answer {
    let event: EventId = call.named("event").await?;
    let tenant = call.tenant();
    let found = call.engine().store().event(tenant, event).await?;
    found.ok_or_else(|| Problem::not_found("event"))?;
    let to: To = call.json().await?;
    let known = |id: &SubscriptionId| call.engine().catalog().subscription(tenant, *id).is_ok();
    let subscription = call.find_subscription(&to.subscription).filter(known);
    let unknown = || Problem::field("subscription", "there is no such subscription");
    let subscription = subscription.ok_or_else(unknown)?;
    call.api.limits.redrive(tenant, call.engine().admission().nanos())?;
    let job = call.engine().deliver_event(tenant, event, subscription, call.who()).await?;
    let place = format_args!("/v1/jobs/{}", job.id).to_string();
    respond::created(place, &JobView::from(&job))
}

/// `GET /v1/jobs`.
pub(crate) async fn list(call: Call) -> Answer {
    let paging = Paging::read(List::Jobs, &call.query)?;
    let page = call.engine().store().jobs(call.tenant(), paging.listing()).await?;
    let mut shown = paging.show(page);
    let jobs = std::mem::take(&mut shown.items);
    respond::ok(&shown.page(jobs.iter().map(JobView::from).collect()))
}

/// `GET /v1/jobs/{id}`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let id: JobId = call.named("job").await?;
    let job = call.engine().store().job(call.tenant(), id).await?;
    respond::ok(&JobView::from(&job.ok_or_else(|| Problem::not_found("job"))?))
}

/// `POST /v1/jobs/{id}/cancel`.
pub(crate) async fn cancel(mut call: Call) -> Answer {
    let id = call.named("job").await?;
    let job = call.engine().cancel_job(call.tenant(), id).await?;
    respond::ok(&JobView::from(&job))
}
