//! Attempts: what was sent to endpoints, what came back, and sending again.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::{DeliveryId, EventId, Span, SubscriptionId, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::endpoints;
use super::frame::{Frame, Place};
use super::guest::Guest;
use super::messages::{fitting, moments};
use super::say::{self, Moment};
use crate::pages::Answer;
use crate::pages::deliveries::Row;
use crate::pages::delivery::request_text;
use crate::pages::show::{Listed, Named, Pager, Shown};
use crate::pages::typed::{self, Typed};
use crate::text::{self, Body};
use crate::trouble::Trouble;
use crate::words;

const FILTER: &[&str] = &["endpoint", "status", "from", "until"];

#[derive(Deserialize)]
struct Attempt {
    delivery: DeliveryId,
    event: EventId,
    subscription: SubscriptionId,
    number: u32,
    started_at: Timestamp,
    took_ms: u64,
    status: Option<u16>,
    failure: Option<String>,
    trigger: Option<String>,
}

struct Line {
    delivery: String,
    number: u32,
    message: String,
    message_short: String,
    endpoint: String,
    name: String,
    shown: Shown,
    took: String,
    manual: bool,
    at: Moment,
}

#[derive(Template)]
#[template(path = "portal/attempts.html")]
struct AttemptsPage {
    frame: Frame,
    form: Typed,
    lines: Vec<Line>,
    pager: Pager,
    endpoints: Vec<(String, String)>,
}

impl AttemptsPage {
    /// Answers to choose from.
    fn statuses(&self) -> [(&'static str, &'static str); 4] {
        let t = self.frame.t;
        [("2xx", t.status_2xx), ("3xx", t.status_3xx), ("4xx", t.status_4xx), ("5xx", t.status_5xx)]
    }
}

/// `GET /portal/attempts`.
pub(crate) async fn list(guest: Arc<Guest>) -> Answer {
    let (t, tenant) = (guest.t, guest.tenant()?.id);
    let endpoint = guest.query.get("endpoint").unwrap_or_default().to_owned();
    let fixed = [("limit", "25"), ("subscription", endpoint.as_str())];
    let wanted = guest.query.query(&["status", "from", "until", "cursor"], &fixed);
    let answer = guest.get::<Listed<Attempt>>(&format!("/v1/attempts?{}", moments(&wanted))).await;
    let (list, wrong) = typed::filtered(answer)?;
    let form = Typed::new(FILTER, fitting(&guest.query)).wrong(wrong);
    let line = |attempt: &Attempt| Line {
        delivery: attempt.delivery.to_string(),
        number: attempt.number,
        message: attempt.event.to_string(),
        message_short: words::short(&attempt.event.to_string()),
        endpoint: attempt.subscription.to_string(),
        name: text::line(&Named::find(guest.engine(), tenant, attempt.subscription).name, 80),
        shown: say::attempt(t, attempt.status, attempt.failure.as_deref()),
        took: words::span(attempt.took_ms).replace('.', t.decimal),
        manual: attempt.trigger.as_deref() == Some("manual"),
        at: Moment::new(attempt.started_at),
    };
    let status = form.status();
    let html = AttemptsPage {
        frame: Frame::new(&guest, Place::Attempts, t.attempts).await,
        lines: list.items.iter().map(line).collect(),
        pager: Pager::of(&list, &guest.query, FILTER, guest.now()),
        endpoints: endpoints::choices(&guest),
        form,
    };
    Ok(guest.page(status, html.render()?))
}

#[derive(Deserialize)]
struct Timeline {
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    at: Timestamp,
    step: String,
    number: Option<u32>,
    took_ms: Option<u64>,
    status: Option<u16>,
    failure: Option<String>,
    response: Option<String>,
    response_expunged_at: Option<Timestamp>,
    request: Option<Value>,
    trigger: Option<String>,
}

struct Other {
    number: u32,
    shown: Shown,
    at: Moment,
    here: bool,
}

struct Tried {
    shown: Shown,
    at: Moment,
    took: String,
    manual: bool,
    request: Option<String>,
    response: Option<Body>,
    removed: bool,
}

#[derive(Template)]
#[template(path = "portal/attempt.html")]
struct AttemptPage {
    frame: Frame,
    delivery: String,
    message: String,
    endpoint: String,
    name: String,
    shown: Shown,
    next: Option<Moment>,
    tried: Option<Tried>,
    others: Vec<Other>,
    would_send: Option<String>,
    resends: bool,
    /// Whether an outcome is on its way, for which the page waits.
    soon: bool,
}

fn named(guest: &Guest) -> Result<DeliveryId, Trouble> {
    let text = guest.named.first().ok_or(Trouble::NotFound("attempt"))?;
    text.parse().map_err(|_| Trouble::NotFound("attempt"))
}

/// How long a page waits for an outcome.
const SOON: Span = Span::from_secs(30);

/// Whether an attempt is under way, or about to begin: then its page asks until it is over, a minute at most.
pub(crate) fn is_soon(row: &Row, now: Timestamp) -> bool {
    match row.state.as_str() {
        "in_flight" => true,
        "pending" => row.due_at.is_some_and(|due| due <= now.plus(SOON)),
        _ => false,
    }
}

/// `GET /portal/attempts/{delivery}`: all attempts to bring one message to one endpoint, and one of them in full.
pub(crate) async fn one(guest: Arc<Guest>) -> Answer {
    let id = named(&guest)?;
    let (t, tenant) = (guest.t, guest.tenant()?.id);
    let row: Row = guest.get(&format!("/v1/deliveries/{id}")).await?;
    let timeline: Timeline = guest.get(&format!("/v1/deliveries/{id}/timeline")).await?;
    let made: Vec<&Step> = timeline.steps.iter().filter(|step| step.step == "attempt").collect();
    let wanted = guest.query.get("attempt").and_then(|text| text.parse::<u32>().ok());
    let chosen =
        made.iter().rev().find(|step| wanted.is_none_or(|wanted| step.number == Some(wanted)));
    let would_send = match chosen.is_some_and(|step| step.request.is_some()) {
        true => None,
        false => {
            let path = format!("/v1/deliveries/{id}/request?rebuild=true");
            let preview: Option<Value> = guest.find(&path).await.unwrap_or(None);
            let preview = preview.filter(|preview| preview.get("url").is_some());
            preview.as_ref().map(request_text)
        }
    };
    let tried = |step: &&Step| Tried {
        shown: say::attempt(t, step.status, step.failure.as_deref()),
        at: Moment::new(step.at),
        took: words::span(step.took_ms.unwrap_or_default()).replace('.', t.decimal),
        manual: step.trigger.as_deref() == Some("manual"),
        request: step.request.as_ref().map(request_text),
        response: step.response.as_ref().map(|response| Body::of(response.as_bytes())),
        removed: step.response_expunged_at.is_some(),
    };
    let here = chosen.and_then(|step| step.number);
    let others = made.iter().map(|step| Other {
        number: step.number.unwrap_or_default(),
        shown: say::attempt(t, step.status, step.failure.as_deref()),
        at: Moment::new(step.at),
        here: step.number == here,
    });
    let to = Named::find(guest.engine(), tenant, row.subscription);
    let failed = row.last_failure.is_some()
        || row.last_status.is_some_and(|status| !(200..300).contains(&status));
    let title = match here {
        Some(number) => t.attempt_title.replace("{}", &number.to_string()),
        None => t.no_attempt_yet.to_owned(),
    };
    let html = AttemptPage {
        frame: Frame::new(&guest, Place::Attempts, title).await.below("attempts", t.attempts),
        delivery: id.to_string(),
        message: row.event.to_string(),
        endpoint: row.subscription.to_string(),
        name: text::line(&to.name, 80),
        shown: say::delivery(t, &row.state, failed),
        next: row.due_at.map(Moment::new),
        tried: chosen.map(tried),
        others: others.collect(),
        resends: row.state != "in_flight",
        soon: is_soon(&row, guest.now()),
        would_send,
    };
    Ok(guest.page(StatusCode::OK, html.render()?))
}

/// `POST /portal/attempts/{delivery}/resend`.
pub(crate) async fn resend(guest: Arc<Guest>) -> Answer {
    let id = named(&guest)?;
    guest.send_bytes(Method::POST, &format!("/v1/deliveries/{id}/retry"), None).await?;
    Ok(guest.see(&format!("attempts/{id}?done=resent")))
}
