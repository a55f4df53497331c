//! Trying out filters.

use bytes::Bytes;
use posthorn_engine::{Error, TestedEvent, TestedFilter};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::publish;
use crate::call::{Answer, Call};
use crate::json::{self, Text};
use crate::problem::{Problem, Result};
use crate::respond;

/// What is to be tested. Filter and event are read on their own: a payload is kept as it was written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request<'a, P = &'a RawValue> {
    filter: Option<P>,
    #[serde(borrow)]
    subscription: Option<Text<'a>>,
    event: Option<P>,
    #[serde(borrow)]
    event_id: Option<Text<'a>>,
}

#[derive(Serialize)]
struct Outcome<'a> {
    matches: bool,
    reasons: &'a [String],
    cost: u64,
}

/// `POST /v1/filters/test`.
pub(crate) async fn test(mut call: Call) -> Answer {
    let body = call.bytes(call.api.options.body_bytes).await?;
    let text = json::utf8(&body)?;
    let request: Request<'_> =
        json::parse(text, |outline| json::fault_of::<Request<'_, IgnoredAny>>(outline))?;
    let filter = filter(&call, &request)?;
    let event = event(&request, &body)?;
    let place = match event {
        TestedEvent::Given(_) => "event",
        TestedEvent::Stored(_) => "event_id",
    };
    let tested = call.engine().test_filter(call.tenant(), filter, event).await;
    let outcome = tested.map_err(|error| match error {
        Error::MatchingTooCostly { .. } => Problem::from(error).at(place),
        Error::Event { .. } | Error::PayloadTooLarge { .. } => Problem::from(error).within(place),
        error => error.into(),
    })?;
    let matches = outcome.matches();
    respond::ok(&Outcome { matches, reasons: &outcome.reasons, cost: outcome.cost })
}

fn filter(call: &Call, request: &Request<'_>) -> Result<TestedFilter> {
    match (request.filter, &request.subscription) {
        (Some(raw), None) => {
            let read = json::parse_strict(raw.get());
            read.map(TestedFilter::Given).map_err(|problem| problem.within("filter"))
        }
        (None, Some(text)) => {
            let found = call.find_subscription(&text.0);
            found.map(TestedFilter::Of).ok_or_else(|| Problem::not_found("subscription"))
        }
        _ => Err(Problem::field("filter", "give exactly one of filter and subscription")),
    }
}

fn event(request: &Request<'_>, body: &Bytes) -> Result<TestedEvent> {
    match (request.event, &request.event_id) {
        (Some(raw), None) => {
            let read = publish::read_unpublished(raw.get(), body);
            let given = |publish| TestedEvent::Given(Box::new(publish));
            read.map(given).map_err(|problem| problem.within("event"))
        }
        (None, Some(text)) => {
            let id = text.0.parse().map_err(|_| Problem::not_found("event"))?;
            Ok(TestedEvent::Stored(id))
        }
        _ => Err(Problem::field("event", "give exactly one of event and event_id")),
    }
}
