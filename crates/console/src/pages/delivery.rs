//! One delivery: what happened, step by step, what was sent, what came back, and what to do about it.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::policy::Policy;
use posthorn_domain::{Delivery, DeliveryFilter, StateKind, TenantId, Timestamp};
use posthorn_store::{Listing, Order};
use serde::Deserialize;
use serde_json::Value;

use super::Answer;
use super::deliveries::Row;
use super::show::{Named, Shown, Time};
use crate::frame::{Frame, Place, home};
use crate::text::{self, Body};
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};
use crate::{policy_words, signature_words, words};

/// Deliveries that are looked at to find those that wait behind one.
const BEHIND_MAX: usize = 500;

#[derive(Deserialize)]
struct Timeline {
    as_of: Timestamp,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    at: Timestamp,
    until: Option<Timestamp>,
    step: String,
    reason: Option<String>,
    detail: Option<String>,
    state: Option<String>,
    explain: Option<Explain>,
    number: Option<u32>,
    took_ms: Option<u64>,
    timings_ms: Option<Timings>,
    status: Option<u16>,
    failure: Option<String>,
    response: Option<String>,
    response_expunged_at: Option<Timestamp>,
    #[serde(default)]
    late: bool,
    trigger: Option<String>,
    request: Option<Value>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Explain {
    code: String,
    meaning: String,
    remedy: String,
}

#[derive(Deserialize)]
struct Timings {
    dns: Option<u64>,
    connect: Option<u64>,
    tls: Option<u64>,
    first_byte: Option<u64>,
}

#[derive(Deserialize)]
struct Whole {
    #[serde(flatten)]
    row: Row,
}

#[derive(Deserialize)]
struct EventHead {
    #[serde(rename = "type")]
    event_type: String,
    topic: String,
}

/// A step as the page tells it.
struct Told {
    class: &'static str,
    title: String,
    text: String,
    at: Time,
    until: Option<String>,
    bars: Vec<Phase>,
    phases: String,
    explain: Option<Explain>,
    anchor: Option<u32>,
}

/// A phase of an attempt, as a part of a line of a hundred.
struct Phase {
    x: u64,
    width: u64,
    class: &'static str,
}

/// An attempt in full.
struct Tried {
    number: u32,
    shown: Shown,
    request: Option<String>,
    /// How large the body was, where that was kept.
    size: Option<String>,
    response: Option<Body>,
    expunged: bool,
    detail: Option<String>,
    late: bool,
    manual: bool,
}

#[derive(Template)]
#[template(path = "delivery.html")]
struct DeliveryPage {
    frame: Frame,
    base: String,
    id: String,
    event: String,
    event_type: String,
    topic: String,
    to: Named,
    shown: Shown,
    lane: Option<String>,
    steps: Vec<Told>,
    tried: Option<Tried>,
    others: Vec<u32>,
    would_send: Option<String>,
    would_size: Option<String>,
    /// The profile, and what its schedule is.
    policy: Option<(String, String)>,
    /// What comes next.
    next: String,
    /// How many wait for it in its lane.
    behind: Option<String>,
    /// How a receiver checks the signature of an attempt.
    verify: Vec<String>,
    retries: bool,
    cancels: bool,
}

/// `GET …/deliveries/{id}`.
pub(crate) async fn one(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let tenant = visit.tenant()?.clone();
    let base = home(&tenant);
    let whole: Whole = visit.get(&format!("/v1/deliveries/{id}")).await?;
    let timeline: Timeline = visit.get(&format!("/v1/deliveries/{id}/timeline")).await?;
    let event: Option<EventHead> = visit.find(&format!("/v1/events/{}", whole.row.event)).await?;
    let now = timeline.as_of;
    let wanted = visit.query.get("attempt").and_then(|text| text.parse::<u32>().ok());
    let made: Vec<&Step> = timeline.steps.iter().filter(|step| step.step == "attempt").collect();
    let chosen =
        made.iter().rev().find(|step| wanted.is_none_or(|wanted| step.number == Some(wanted)));
    let preview: Option<Value> = match chosen.is_some_and(|step| step.request.is_some()) {
        true => None,
        false => {
            let path = format!("/v1/deliveries/{id}/request?rebuild=true");
            visit.find(&path).await.unwrap_or(None)
        }
    };
    let would_send = preview.as_ref().map(request_text);
    let view = visit.engine().catalog().subscription(tenant.id, whole.row.subscription).ok();
    let policy = view.as_ref().and_then(|view| view.policy.as_ref().ok());
    let stored = visit.engine().store().delivery(tenant.id, id).await.map_err(|_| Trouble::Away)?;
    let behind = match &stored {
        Some(stored) => behind(&visit, tenant.id, stored).await?,
        None => None,
    };
    let (event_type, topic) = match event {
        Some(event) => (event.event_type, event.topic),
        None => ("an event that is gone".to_owned(), String::new()),
    };
    let to = Named::find(visit.engine(), tenant.id, whole.row.subscription);
    let title = format!("{} → {}", text::line(&event_type, 80), to.name);
    let state = whole.row.state.as_str();
    let html = DeliveryPage {
        frame: Frame::new(&visit, Place::Deliveries, title)
            .await
            .below(format!("{base}/deliveries"), "Deliveries")
            .live_of(id),
        id: whole.row.id.to_string(),
        event: whole.row.event.to_string(),
        shown: whole.row.shown(),
        lane: whole.row.lane.as_deref().map(|lane| text::line(lane, 60)),
        steps: timeline.steps.iter().map(|step| told(step, now)).collect(),
        tried: chosen.map(|step| tried(step)),
        others: made.iter().filter_map(|step| step.number).collect(),
        would_size: preview.as_ref().and_then(body_size),
        policy: view.as_ref().zip(policy).map(|(view, policy)| {
            let schedule = policy_words::sentences(policy).swap_remove(0);
            (view.subscription.profile.to_string(), schedule)
        }),
        next: next(&whole.row, view.is_none(), policy.map(AsRef::as_ref), now),
        verify: policy.map_or_else(Vec::new, |policy| signature_words::sentences(&policy.auth)),
        behind,
        retries: state != "in_flight",
        cancels: matches!(state, "pending" | "in_flight"),
        base,
        event_type,
        topic,
        to,
        would_send,
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

fn named(visit: &Visit) -> Result<posthorn_domain::DeliveryId, Trouble> {
    let text = visit.named.first().ok_or(Trouble::NotFound("delivery"))?;
    text.parse().map_err(|_| Trouble::NotFound("delivery"))
}

fn told(step: &Step, now: Timestamp) -> Told {
    let lasted =
        step.until.map(|until| (until.as_millis() - step.at.as_millis()).max(0).unsigned_abs());
    let (class, title, text) = match step.step.as_str() {
        "accepted" => {
            ("good", "Accepted".to_owned(), "on disk before the publisher was answered".to_owned())
        }
        "matched" => ("good", "Matched".to_owned(), step.detail.clone().unwrap_or_default()),
        "made" => ("good", "Made by a job".to_owned(), step.detail.clone().unwrap_or_default()),
        "waited" => {
            let reason = words::waiting(step.reason.as_deref().unwrap_or_default());
            let title = match lasted {
                Some(lasted) => format!("Waited {} for {reason}", words::span(lasted)),
                None => format!("Waits for {reason}"),
            };
            // What the API explains besides names its own fields.
            ("wait", title, step.detail.clone().unwrap_or_default())
        }
        "retried" => (
            "off",
            "Retried by hand".to_owned(),
            "its attempts and its age count from zero again".to_owned(),
        ),
        "attempt" => attempt_words(step),
        "under_way" => ("wait", "An attempt is under way".to_owned(), String::new()),
        "expunged" => ("off", "Payload removed".to_owned(), "kept: that it was there".to_owned()),
        "ended" => {
            let state = step.state.as_deref().unwrap_or("ended");
            let shown = Shown::delivery(state, step.reason.as_deref(), false);
            let meaning = step.explain.as_ref().map(|explain| explain.meaning.clone());
            (shown.class, capital(&shown.word), meaning.unwrap_or_default())
        }
        other => ("off", capital(&other.replace('_', " ")), String::new()),
    };
    let (bars, phases) = phases(step);
    Told {
        class,
        title,
        text: text::visible(&text),
        at: Time::new(step.at, now),
        // How long an attempt took is in its title.
        until: step.until.filter(|_| step.step == "waited").map(words::moment),
        bars,
        phases,
        explain: if class == "bad" { step.explain.clone() } else { None },
        anchor: step.number,
    }
}

fn attempt_words(step: &Step) -> (&'static str, String, String) {
    let number = step.number.unwrap_or_default();
    let took = words::span(step.took_ms.unwrap_or_default());
    let by = if step.trigger.as_deref() == Some("manual") { ", asked for by hand" } else { "" };
    let class = match step.status {
        Some(200..300) => "good",
        _ => "bad",
    };
    let came_to = match (step.status, &step.failure) {
        (Some(status), _) => status.to_string(),
        (None, Some(failure)) => failure.replace('_', " "),
        (None, None) => "no answer".to_owned(),
    };
    let late = if step.late { "it came too late to count" } else { "" };
    let text = step.detail.clone().unwrap_or_else(|| late.to_owned());
    (class, format!("Attempt {number}: {came_to} in {took}{by}"), text)
}

/// How long the phases of an attempt took, as parts of a line and in words.
fn phases(step: &Step) -> (Vec<Phase>, String) {
    let Some(timings) = &step.timings_ms else { return (Vec::new(), String::new()) };
    let parts = [
        ("name", timings.dns, "f-soft"),
        ("connect", timings.connect, "f-wait"),
        ("TLS", timings.tls, "f-accent"),
        ("first byte", timings.first_byte, "f-good"),
    ];
    let total: u64 = parts.iter().filter_map(|(_, millis, _)| *millis).sum();
    if total == 0 {
        return (Vec::new(), String::new());
    }
    let (mut bars, mut said, mut x) = (Vec::new(), Vec::new(), 0);
    for (name, millis, class) in parts {
        let Some(millis) = millis else { continue };
        let width = (millis * 1_000 / total).max(4);
        bars.push(Phase { x, width, class });
        x += width;
        said.push(format!("{name} {millis}"));
    }
    (bars, format!("{} ms", said.join(" · ")))
}

fn tried(step: &Step) -> Tried {
    let (class, word) = match (step.status, &step.failure) {
        (Some(status @ 200..300), _) => ("good", status.to_string()),
        (Some(status), _) => ("bad", status.to_string()),
        (None, failure) => (
            "bad",
            failure.as_deref().map_or("no answer".to_owned(), |code| code.replace('_', " ")),
        ),
    };
    Tried {
        number: step.number.unwrap_or_default(),
        shown: Shown::new(class, word),
        request: step.request.as_ref().map(request_text),
        size: step.request.as_ref().and_then(body_size),
        response: step.response.as_ref().map(|response| Body::of(response.as_bytes())),
        expunged: step.response_expunged_at.is_some(),
        detail: step.detail.as_deref().map(text::visible),
        late: step.late,
        manual: step.trigger.as_deref() == Some("manual"),
    }
}

/// A request as it goes over the wire, as far as it may be shown.
pub(crate) fn request_text(request: &Value) -> String {
    let text = |name: &str| request.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut out = format!("{} {}\n", text("method"), text("url"));
    for pair in request.get("headers").and_then(Value::as_array).into_iter().flatten() {
        let part = |place: usize| pair.get(place).and_then(Value::as_str).unwrap_or_default();
        out.push_str(&format!("{}: {}\n", part(0), part(1)));
    }
    let body = match request.get("body") {
        Some(Value::String(body)) => Some(body.clone()),
        Some(Value::Null) | None => None,
        Some(other) => Some(other.to_string()),
    };
    if let Some(body) = body {
        out.push('\n');
        out.push_str(&Body::of(body.as_bytes()).text);
    }
    text::visible(&out)
}

/// How large the body of a request is.
fn body_size(request: &Value) -> Option<String> {
    let kept = request.get("body_bytes").and_then(Value::as_u64);
    let body = request.get("body").and_then(Value::as_str).map(|body| body.len() as u64);
    kept.or(body).map(words::bytes)
}

/// What becomes of it from here, in words.
fn next(row: &Row, gone: bool, policy: Option<&Policy>, now: Timestamp) -> String {
    match row.state.as_str() {
        "delivered" => "Nothing: it has arrived.".to_owned(),
        _ if gone => "Nothing: its subscription is gone.".to_owned(),
        "in_flight" => "The receiver's answer decides: an attempt is under way.".to_owned(),
        "pending" => {
            let due = match (row.due_at, row.waiting) {
                (Some(at), _) if at > now => format!("The next attempt {}.", words::age(at, now)),
                (_, Some(waiting)) => {
                    format!("An attempt; it waits for {}.", words::waiting(waiting.reason.as_str()))
                }
                _ => "An attempt, at once.".to_owned(),
            };
            let last = policy.and_then(|policy| policy.schedule.max_attempts);
            let given_up = match last {
                Some(times) => format!(" It is given up after {times} attempts without success."),
                None => String::new(),
            };
            format!("{due}{given_up}")
        }
        _ => "Nothing by itself. A retry begins its schedule from the start.".to_owned(),
    }
}

/// How many wait for a delivery in its lane, as far as a bounded look can tell.
async fn behind(
    visit: &Visit,
    tenant: TenantId,
    own: &Delivery,
) -> Result<Option<String>, Trouble> {
    if own.lane.is_none() {
        return Ok(None);
    }
    let filter = DeliveryFilter {
        subscription: Some(own.subscription),
        state: Some(StateKind::Pending),
        ..DeliveryFilter::default()
    };
    let listing = Listing { order: Order::OldestFirst, after: None, limit: BEHIND_MAX };
    let page = visit.engine().store().deliveries(tenant, filter, listing).await;
    let page = page.map_err(|_| Trouble::Away)?;
    let waits =
        |other: &&Delivery| other.lane == own.lane && other.seq > own.seq && other.is_parked();
    let count = page.items.iter().filter(waits).count() as u64;
    Ok((count > 0).then(|| super::matching::counted(count, !page.more)))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// `POST …/deliveries/{id}/retry`.
pub(crate) async fn retry(visit: Arc<Visit>) -> Answer {
    act(&visit, Method::POST, "/retry", "retried").await
}

/// `POST …/deliveries/{id}/cancel`.
pub(crate) async fn cancel(visit: Arc<Visit>) -> Answer {
    act(&visit, Method::POST, "/cancel", "cancelled").await
}

async fn act(visit: &Visit, method: Method, what: &str, done: &str) -> Answer {
    let id = named(visit)?;
    visit.send_bytes(method, &format!("/v1/deliveries/{id}{what}"), None).await?;
    Ok(see(&format!("{}/deliveries/{id}?done={done}", home(visit.tenant()?))))
}

/// `POST …/deliveries/{id}/forget`.
pub(crate) async fn forget(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    visit.send_bytes(Method::DELETE, &format!("/v1/deliveries/{id}"), None).await?;
    Ok(see(&format!("{}/deliveries?done=forgotten", home(visit.tenant()?))))
}
