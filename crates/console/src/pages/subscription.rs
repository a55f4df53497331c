//! One subscription: how it stands, what it wants, its secrets, and what to do with it.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::{DeliveryId, RollupScope, SubscriptionId, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Answer;
use super::deliveries::{self, Row};
use super::overview::Range;
use super::show::{Listed, Moment, Shown, Time, moments, place};
use super::subscriptions::{self, Given, SecretPage, changed, last_failure, wants};
use super::sure::{self, Question};
use crate::chart::Bars;
use crate::form::Fields;
use crate::frame::{Frame, Place, home};
use crate::policy_words;
use crate::text;
use crate::trouble::{Refusal, Trouble};
use crate::visit::{Visit, page, see};
use crate::words;

#[derive(Deserialize)]
struct Health {
    owner: bool,
    breaker: Option<Breaker>,
    concurrency: Concurrency,
    rate: Rate,
    blocked_lanes: Vec<Lane>,
    blocked_lanes_count: usize,
    pending: Option<u64>,
    oldest_due_at: Option<Timestamp>,
    last_hour: Hour,
}

#[derive(Deserialize)]
struct Breaker {
    state: String,
    until: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Concurrency {
    limit: Option<u32>,
    effective: Option<u32>,
    in_flight: Option<u32>,
}

#[derive(Deserialize)]
struct Rate {
    limit: Option<f64>,
}

#[derive(Deserialize)]
struct Lane {
    lane: String,
    since: Timestamp,
    delivery: Option<DeliveryId>,
}

#[derive(Deserialize)]
struct Hour {
    sampled: usize,
    success_rate: Option<f64>,
    p95_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Count {
    count: u64,
    complete: bool,
}

/// What came of a test, in words.
pub(crate) struct Tested {
    pub(crate) class: &'static str,
    pub(crate) text: String,
    pub(crate) body: Option<text::Body>,
}

#[derive(Template)]
#[template(path = "subscription.html")]
struct SubscriptionPage<'p> {
    frame: Frame,
    base: String,
    id: String,
    name: Option<String>,
    shown: Shown,
    reason: Option<String>,
    failing: Option<Time>,
    place: String,
    url: Option<String>,
    description: String,
    wants: String,
    filter: String,
    profile: String,
    policy: String,
    made: Time,
    changed: Time,
    paused: bool,
    facts: Vec<(&'static str, String)>,
    lanes: Vec<(String, Time, Option<String>)>,
    more_lanes: usize,
    bars: Bars,
    lines: Vec<deliveries::Line>,
    typed: &'p Fields,
    wrong: Option<(String, String)>,
    tested: Option<Tested>,
    counted: Option<String>,
    /// The policy in sentences, or what is wrong with it.
    means: Vec<String>,
    public_keys: Vec<(String, String, Option<Time>)>,
    last_failure: Option<Time>,
    ranges: Vec<(&'static str, &'static str, bool)>,
    profiles: Vec<String>,
    times: [Moment; 2],
}

impl SubscriptionPage<'_> {
    fn wrong_at(&self, name: &str) -> Option<&str> {
        let (field, text) = self.wrong.as_ref()?;
        (field == name).then_some(text.as_str())
    }

    /// What was typed in a field, or what it is now.
    fn now<'v>(&'v self, name: &str, now: &'v str) -> &'v str {
        if self.typed.has(name) { self.typed.typed(name) } else { now }
    }
}

/// What else a page says than how the subscription stands.
#[derive(Default)]
struct Also {
    wrong: Option<(String, String)>,
    tested: Option<Tested>,
    counted: Option<String>,
}

/// `GET …/subscriptions/{id}`.
pub(crate) async fn one(visit: Arc<Visit>) -> Answer {
    render(&visit, Also::default(), true).await
}

async fn show(visit: &Visit, also: Also) -> Answer {
    render(visit, also, false).await
}

fn named(visit: &Visit) -> Result<SubscriptionId, Trouble> {
    let text = visit.named.first().ok_or(Trouble::NotFound("subscription"))?;
    text.parse().map_err(|_| Trouble::NotFound("subscription"))
}

/// The page. What a form has led to stays as it is; only what was asked for can be asked for again.
async fn render(visit: &Visit, also: Also, live: bool) -> Answer {
    let id = named(visit)?;
    let tenant = visit.tenant()?.clone();
    let base = home(&tenant);
    let given: Given = visit.get(&format!("/v1/subscriptions/{id}")).await?;
    let health: Health = visit.get(&format!("/v1/subscriptions/{id}/health")).await?;
    let rows: Listed<Row> =
        visit.get(&format!("/v1/deliveries?subscription={id}&limit=10")).await?;
    let now = visit.now();
    let range = Range::of(visit);
    let from = Timestamp::from_millis(now.as_millis() - range.millis);
    let scope = RollupScope::Subscription(id);
    let series = visit.engine().series(scope, range.step, from, now).await?;
    let view = visit.engine().catalog().subscription(tenant.id, id)?;
    let profiles = visit.engine().catalog().profiles(tenant.id);
    let (made, changed) = changed(&given, now);
    let pretty = |value: &Value| text::indented(&value.to_string());
    let status = if also.wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let mut frame = Frame::new(visit, Place::Subscriptions, given.title())
        .await
        .below(format!("{base}/subscriptions"), "Subscriptions");
    if live {
        frame = frame.live_of(id);
    }
    let keys = given.public_keys.iter().map(|own| {
        let ends = own.expires_at.map(|at| Time::new(at, now));
        (text::line(&own.key, 300), text::line(&own.kid, 100), ends)
    });
    let html = SubscriptionPage {
        frame,
        means: match &view.policy {
            Ok(policy) => policy_words::sentences(policy),
            Err(_) => vec![
                "Its policy cannot be used; nothing is attempted until it is mended.".to_owned(),
            ],
        },
        public_keys: keys.collect(),
        last_failure: last_failure(&series).map(|at| Time::new(at, now)),
        ranges: range.switch(),
        profiles: profiles.iter().map(|profile| profile.name.to_string()).collect(),
        times: Moment::range(&visit.form, also.wrong.as_ref()),
        id: id.to_string(),
        shown: Shown::subscription(&given.status, given.failing_since.is_some()),
        reason: given.status_reason.as_deref().map(text::visible),
        failing: given.failing_since.map(|at| Time::new(at, now)),
        place: place(&view.subscription.destination),
        url: given.url.as_deref().map(text::visible),
        description: text::visible(&given.description),
        wants: wants(&given.filter),
        filter: pretty(&given.filter),
        profile: given.profile.clone(),
        policy: pretty(&given.policy),
        paused: given.status != "active",
        facts: facts(&health, now),
        lanes: health
            .blocked_lanes
            .iter()
            .map(|lane| {
                let name = match lane.lane.as_str() {
                    "" => "the whole subscription".to_owned(),
                    key => text::line(key, 60),
                };
                (name, Time::new(lane.since, now), lane.delivery.map(|id| id.to_string()))
            })
            .collect(),
        more_lanes: health.blocked_lanes_count.saturating_sub(health.blocked_lanes.len()),
        bars: Bars::of(&series),
        lines: rows.items.iter().map(|row| deliveries::line(visit, tenant.id, row, now)).collect(),
        name: given.name,
        typed: &visit.form,
        wrong: also.wrong,
        tested: also.tested,
        counted: also.counted,
        base,
        made,
        changed,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// How it stands now, in words.
fn facts(health: &Health, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let hour = &health.last_hour;
    if let Some(rate) = hour.success_rate {
        let text =
            format!("{:.1} % of {} attempts", rate * 100.0, words::number(hour.sampled as u64));
        facts.push(("Success in the last hour", text));
    }
    facts.extend(hour.p95_ms.map(|ms| ("p95 of the last hour", words::span(ms))));
    facts.extend(health.pending.map(|count| ("Waiting", words::number(count))));
    if let Some(at) = health.oldest_due_at {
        facts.push(("Oldest due", words::age(at, now)));
    }
    if let Some(breaker) = &health.breaker {
        let text = match (breaker.state.as_str(), breaker.until) {
            ("closed", _) => "closed: attempts go out".to_owned(),
            (_, Some(until)) => format!("open: the next attempt {}", words::age(until, now)),
            (state, None) => state.to_owned(),
        };
        facts.push(("Breaker", text));
    }
    let at_once = &health.concurrency;
    if let Some(effective) = at_once.effective {
        let limit = at_once.limit.map_or_else(String::new, |limit| format!(" of {limit}"));
        let now = at_once.in_flight.unwrap_or(0);
        facts.push(("At once", format!("{now} now, up to {effective}{limit}")));
    }
    facts.extend(health.rate.limit.map(|rate| ("Rate limit", format!("{rate} a second"))));
    if !health.owner {
        facts.push(("Where", "another node attempts its deliveries".to_owned()));
    }
    facts
}

async fn act(visit: &Visit, what: &str, done: &str) -> Answer {
    let id = named(visit)?;
    let path = format!("/v1/subscriptions/{id}/{what}");
    visit.send_bytes(Method::POST, &path, None).await?;
    let base = home(visit.tenant()?);
    // Whoever did it in a row of the list goes on there.
    let Some(back) = visit.form.get("back") else {
        return Ok(see(&format!("{base}/subscriptions/{id}?done={done}")));
    };
    let query = Fields::parse(back.as_bytes()).query(&subscriptions::LIST, &[("done", done)]);
    Ok(see(&format!("{base}/subscriptions?{query}")))
}

/// `POST …/subscriptions/{id}/pause`.
pub(crate) async fn pause(visit: Arc<Visit>) -> Answer {
    act(&visit, "pause", "paused").await
}

/// `POST …/subscriptions/{id}/resume`.
pub(crate) async fn resume(visit: Arc<Visit>) -> Answer {
    act(&visit, "resume", "resumed").await
}

/// `POST …/subscriptions/{id}/test`: sends one test event and waits for the answer.
pub(crate) async fn test(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let path = format!("/v1/subscriptions/{id}/test");
    let outcome: Value = visit.send(Method::POST, &path, None).await?;
    let part = |name: &str| outcome.get(name).and_then(Value::as_str).map(str::to_owned);
    let tested = match outcome.get("status").and_then(Value::as_u64) {
        Some(status) => Tested {
            class: if (200..300).contains(&status) { "good" } else { "bad" },
            text: format!("The receiver answered {status}."),
            body: part("response").map(|body| text::Body::of(body.as_bytes())),
        },
        None => Tested {
            class: "bad",
            text: format!(
                "No answer: {}. {}",
                part("failure").unwrap_or_default().replace('_', " "),
                part("detail").map(|detail| text::visible(&detail)).unwrap_or_default()
            ),
            body: None,
        },
    };
    show(&visit, Also { tested: Some(tested), ..Also::default() }).await
}

/// `POST …/subscriptions/{id}/rotate`.
pub(crate) async fn rotate(visit: Arc<Visit>) -> Answer {
    #[derive(Deserialize)]
    struct Rotated {
        secret: Option<String>,
    }
    let id = named(&visit)?;
    let question = Question {
        place: Place::Subscriptions,
        title: "Rotate the signing secret?",
        text: "A new one is made and shown once. The old one keeps signing beside it for as long as was typed; after \
               that, receivers that do not have the new one refuse what they get.",
        button: "Rotate it",
        back: format!("{}/subscriptions/{id}", home(visit.tenant()?)),
    };
    if let Some(asked) = sure::ask(&visit, question).await {
        return asked;
    }
    let path = format!("/v1/subscriptions/{id}/rotate-secret");
    let mut body = Map::new();
    body.extend(visit.form.get("overlap").map(|overlap| ("overlap".to_owned(), json!(overlap))));
    let made: Rotated = match visit.send(Method::POST, &path, Some(&Value::Object(body))).await {
        Ok(made) => made,
        Err(Trouble::Refused(refusal)) => {
            let wrong = Some(("overlap".to_owned(), refusal.detail));
            return show(&visit, Also { wrong, ..Also::default() }).await;
        }
        Err(trouble) => return Err(trouble),
    };
    // A key whose public half receivers verify with has nothing to be shown.
    let Some(secret) = made.secret else {
        return Ok(see(&format!("{}/subscriptions/{id}?done=changed", home(visit.tenant()?))));
    };
    let html = SecretPage {
        frame: Frame::new(&visit, Place::Subscriptions, "The new signing secret").await,
        text: "It is shown only once. The old one keeps signing beside it for a while, so that receivers can change \
               over without losing anything.",
        back: format!("{}/subscriptions/{id}", home(visit.tenant()?)),
        secret,
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

/// `POST …/subscriptions/{id}/change`.
pub(crate) async fn change(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let body = match subscriptions::change(&visit.form) {
        Ok(body) => body,
        Err(wrong) => return show(&visit, Also { wrong: Some(wrong), ..Also::default() }).await,
    };
    match visit.send::<Value>(Method::PATCH, &format!("/v1/subscriptions/{id}"), Some(&body)).await
    {
        Ok(_) => Ok(see(&format!("{}/subscriptions/{id}?done=changed", home(visit.tenant()?)))),
        Err(Trouble::Refused(Refusal { field, detail, .. })) => {
            let field = field.unwrap_or_default();
            let first = field.split(['.', '[']).next().unwrap_or_default().to_owned();
            let wrong = Some((first, format!("{field}: {detail}")));
            show(&visit, Also { wrong, ..Also::default() }).await
        }
        Err(trouble) => Err(trouble),
    }
}

/// `POST …/subscriptions/{id}/replay`: counts first, and starts a job when told to.
pub(crate) async fn replay(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let form = moments(&visit.form);
    let mut body = Map::new();
    for name in ["from", "until", "status"] {
        if let Some(value) = form.get(name) {
            body.insert(name.to_owned(), json!(value));
        }
    }
    if let Some(pace) = form.get("per_second") {
        let Ok(pace) = pace.parse::<u32>() else {
            let wrong = Some(("per_second".to_owned(), "must be a number".to_owned()));
            return show(&visit, Also { wrong, ..Also::default() }).await;
        };
        body.insert("per_second".to_owned(), json!(pace));
    }
    let body = Value::Object(body);
    let path = format!("/v1/subscriptions/{id}/replay");
    let refused = |refusal: Refusal| Also {
        wrong: Some((refusal.field.unwrap_or_else(|| "replay".to_owned()), refusal.detail)),
        ..Also::default()
    };
    if form.is_checked("start") {
        return match visit.send::<Value>(Method::POST, &path, Some(&body)).await {
            Ok(job) => {
                let job = job.get("id").and_then(Value::as_str).unwrap_or_default();
                Ok(see(&format!("{}/jobs/{job}?done=started", home(visit.tenant()?))))
            }
            Err(Trouble::Refused(refusal)) => show(&visit, refused(refusal)).await,
            Err(trouble) => Err(trouble),
        };
    }
    match visit.send::<Count>(Method::POST, &format!("{path}/count"), Some(&body)).await {
        Ok(count) => {
            let counted = match count.complete {
                true => words::number(count.count),
                false => format!("{} or more", words::number(count.count)),
            };
            show(&visit, Also { counted: Some(counted), ..Also::default() }).await
        }
        Err(Trouble::Refused(refusal)) => show(&visit, refused(refusal)).await,
        Err(trouble) => Err(trouble),
    }
}

/// `POST …/subscriptions/{id}/delete`, with its name or id typed.
pub(crate) async fn delete(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let given: Given = visit.get(&format!("/v1/subscriptions/{id}")).await?;
    let typed = visit.form.get("confirm").unwrap_or_default();
    if typed != id.to_string() && given.name.as_deref() != Some(typed) {
        let text = "type the name or the id of the subscription to delete it".to_owned();
        let wrong = Some(("confirm".to_owned(), text));
        return show(&visit, Also { wrong, ..Also::default() }).await;
    }
    visit.send_bytes(Method::DELETE, &format!("/v1/subscriptions/{id}"), None).await?;
    Ok(see(&format!("{}/subscriptions?done=deleted", home(visit.tenant()?))))
}
