//! Removing what was said: the payload of an event, of many events, or the response to an attempt.

use std::collections::BTreeMap;

use posthorn_domain::{DeliveryId, EventType, Selection, Timestamp, TopicName};
use posthorn_engine::{Expunge, NewExpunge};
use serde::Deserialize;

use super::deliveries;
use super::jobs::{Count, check, pace};
use crate::call::{Answer, Call};
use crate::problem::{Problem, Result};
use crate::respond;
use crate::wire::{EventView, JobView};

/// `DELETE /v1/events/{id}/payload`.
pub(crate) async fn event(mut call: Call) -> Answer {
    let id = call.named("event").await?;
    let how = Expunge {
        responses: call.query.flag("responses")?.unwrap_or(false),
        cancel: call.query.flag("cancel")?.unwrap_or(false),
    };
    let event = call.engine().expunge_event(call.tenant(), id, how).await?;
    respond::ok(&EventView::from(&event))
}

/// `DELETE /v1/deliveries/{id}/attempts/{number}/response`.
pub(crate) async fn response(mut call: Call) -> Answer {
    let (id, number): (DeliveryId, String) = call.named_within("delivery").await?;
    let delivery = deliveries::find(call.engine(), call.tenant(), id).await?;
    let number = number.parse().map_err(|_| Problem::not_found("attempt"))?;
    call.engine().expunge_response(call.tenant(), id, number).await?;
    deliveries::answer_whole(&call, &delivery).await
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
    #[serde(default)]
    responses: bool,
    per_second: Option<u32>,
}

impl New {
    fn understand(self, call: &Call) -> Result<NewExpunge> {
        let events = Selection {
            topics: self.topics,
            types: self.types,
            attributes: self.attributes,
            from: self.from,
            until: self.until,
            ..Selection::default()
        };
        check(&events)?;
        let (responses, created_by) = (self.responses, call.who());
        Ok(NewExpunge { events, responses, per_second: pace(self.per_second)?, created_by })
    }
}

async fn read(call: &mut Call) -> Result<NewExpunge, Problem> {
    let new: New = call.json().await?;
    let new = new.understand(call)?;
    call.api.limits.redrive(call.tenant(), call.engine().admission().nanos())?;
    Ok(new)
}

/// `POST /v1/events/expunge`.
pub(crate) async fn many(mut call: Call) -> Answer {
    let new = read(&mut call).await?;
    let job = call.engine().create_expunge(call.tenant(), new).await?;
    let place = format_args!("/v1/jobs/{}", job.id).to_string();
    respond::created(place, &JobView::from(&job))
}

/// `POST /v1/events/expunge/count`.
pub(crate) async fn count(mut call: Call) -> Answer {
    let new = read(&mut call).await?;
    let counted = call.engine().count_expunge(call.tenant(), new).await?;
    respond::ok(&Count { count: counted.count, seen: counted.seen, complete: counted.complete })
}
