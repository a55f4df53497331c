//! Events: the list, one of them with who got it and who did not, publishing by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::body::Body as HttpBody;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use posthorn_domain::{EventId, SubscriptionId, Timestamp};
use posthorn_store::EventTally;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::Answer;
use super::deliveries::{self, Line, Row};
use super::show::{Listed, Moment, Named, Pager, Shown, Time, moments};
use super::sure::{self, Question};
use super::typed::filtered;
use crate::form::Fields;
use crate::frame::{Frame, Place, home};
use crate::text::{self, Body};
use crate::trouble::{Refusal, Trouble};
use crate::visit::{Visit, page, see};
use crate::words;

/// Deliveries of one event that are counted for its row.
const COUNTED_MAX: usize = 200;

/// What the filter has fields for.
const FILTER: [&str; 10] = [
    "topic",
    "type",
    "attribute",
    "key",
    "publisher_id",
    "dead_letters",
    "unwanted",
    "from",
    "until",
    "order",
];

#[derive(Deserialize)]
struct EventRow {
    id: EventId,
    topic: String,
    #[serde(rename = "type")]
    event_type: String,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    key: Option<String>,
    content_type: String,
    accepted_at: Timestamp,
    payload_bytes: u64,
    publisher_id: Option<String>,
    deliver_at: Option<Timestamp>,
    expunged_at: Option<Timestamp>,
    trace_id: Option<String>,
}

#[derive(Deserialize)]
struct Whole {
    #[serde(flatten)]
    event: EventRow,
    deliveries: Vec<Row>,
    not_delivered: Vec<NotDelivered>,
    truncated: bool,
}

/// Its payload, as it was published. Apart from the rest: what is flattened loses how its numbers were written.
#[derive(Deserialize)]
pub(crate) struct Payload {
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
}

#[derive(Deserialize)]
struct NotDelivered {
    subscription: SubscriptionId,
    reasons: Vec<String>,
}

struct EventLine {
    id: String,
    short: String,
    event_type: String,
    topic: String,
    key: Option<String>,
    size: String,
    at: Time,
    later: Option<Time>,
    expunged: bool,
    /// What became of its deliveries: a state, and how many; without those that there are none of.
    became: Vec<Shown>,
    /// Whether it has more than were counted.
    more: bool,
}

#[derive(Template)]
#[template(path = "events.html")]
struct EventsPage<'p> {
    frame: Frame,
    base: String,
    visit: &'p Visit,
    lines: Vec<EventLine>,
    pager: Pager,
    topics: Vec<String>,
    publishes: bool,
    /// Whether nothing was ever published in this tenant.
    first: bool,
    range: [Moment; 2],
    wrong: Option<(String, String)>,
}

impl EventsPage<'_> {
    fn typed(&self, name: &str) -> &str {
        self.visit.query.typed(name)
    }

    fn is_wrong(&self, name: &str) -> bool {
        self.wrong.as_ref().is_some_and(|(field, _)| field == name)
    }

    /// What is wrong with the id that was typed.
    fn wrong_id(&self) -> Option<&str> {
        let (field, text) = self.wrong.as_ref()?;
        (field == "id").then_some(text.as_str())
    }

    fn is_checked(&self, name: &str) -> bool {
        self.visit.query.is_checked(name)
    }
}

/// `GET …/events`.
pub(crate) async fn list(visit: Arc<Visit>) -> Answer {
    let tenant = visit.tenant()?.clone();
    let base = home(&tenant);
    let query = moments(&visit.query).split("type");
    let (list, wrong) = match visit.query.get("id") {
        // An id that was typed into the search field is opened at once.
        Some(text) => {
            if let Some(id) = found(&visit, text).await? {
                return Ok(see(&format!("{base}/events/{id}")));
            }
            let wrong = match text.parse::<EventId>() {
                Ok(_) => "There is no event with this id here.",
                Err(_) => {
                    "This is not the id of an event: those look like evt_01m7fzphbj0123456789abcdef."
                }
            };
            (Listed::none(), Some(("id".to_owned(), wrong.to_owned())))
        }
        None => {
            let wanted = query.query(&[&FILTER[..], &["cursor"]].concat(), &[]);
            filtered(visit.get::<Listed<EventRow>>(&format!("/v1/events?{wanted}")).await)?
        }
    };
    let now = visit.now();
    let counts = visit.engine().store().counts(Some(tenant.id)).await.map_err(|_| Trouble::Away)?;
    let ids = list.items.iter().map(|row| row.id).collect();
    let tallies = visit.engine().store().event_tallies(tenant.id, ids, COUNTED_MAX).await;
    let tallies = tallies.map_err(|_| Trouble::Away)?;
    let topics = visit.engine().catalog().topics(tenant.id);
    let status = if wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let mut frame = Frame::new(&visit, Place::Events, "Events").await;
    // Only the newest change by themselves; what is further back stays where it is.
    frame.live = wrong.is_none()
        && visit.query.get("cursor").is_none()
        && visit.query.get("order") != Some("oldest");
    let html = EventsPage {
        frame,
        range: Moment::range(&visit.query, wrong.as_ref()),
        pager: Pager::of(&list, &query, &FILTER, now),
        lines: list.items.iter().zip(&tallies).map(|row| event_line(row, now)).collect(),
        topics: topics.iter().take(200).map(|topic| topic.name.to_string()).collect(),
        publishes: visit.allows(posthorn_domain::Scope::Publish),
        first: counts.events == 0 && wrong.is_none(),
        visit: &visit,
        base,
        wrong,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// The event with an id that was typed, if there is one.
async fn found(visit: &Visit, text: &str) -> Result<Option<EventId>, Trouble> {
    let Ok(id) = text.parse::<EventId>() else { return Ok(None) };
    let event = visit.engine().store().event(visit.tenant()?.id, id).await;
    Ok(event.map_err(|_| Trouble::Away)?.map(|event| event.id))
}

fn event_line((row, tally): (&EventRow, &EventTally), now: Timestamp) -> EventLine {
    EventLine {
        id: row.id.to_string(),
        short: words::short(&row.id.to_string()),
        event_type: text::line(&row.event_type, 80),
        topic: text::line(&row.topic, 80),
        key: row.key.as_deref().map(|key| text::line(key, 40)),
        size: words::bytes(row.payload_bytes),
        at: Time::new(row.accepted_at, now),
        later: row.deliver_at.map(|at| Time::new(at, now)),
        expunged: row.expunged_at.is_some(),
        became: became(tally),
        more: tally.more,
    }
}

/// How many were delivered, wait, and are dead or cancelled.
fn became(tally: &EventTally) -> Vec<Shown> {
    let parts = [
        ("good", tally.delivered, "delivered"),
        ("wait", tally.pending, "waiting"),
        ("bad", tally.dead, "dead"),
        ("off", tally.cancelled, "cancelled"),
    ];
    let there = parts.into_iter().filter(|(_, count, _)| *count > 0);
    there
        .map(|(class, count, word)| Shown::new(class, format!("{} {word}", words::number(count))))
        .collect()
}

#[derive(Template)]
#[template(path = "event.html")]
struct EventPage {
    frame: Frame,
    base: String,
    id: String,
    topic: String,
    key: Option<String>,
    content_type: String,
    publisher_id: Option<String>,
    trace_id: Option<String>,
    size: String,
    at: Time,
    later: Option<Time>,
    expunged: Option<Time>,
    attributes: Vec<(String, String)>,
    payload: Option<Body>,
    /// The same, as it came.
    raw: Option<Body>,
    /// How many of its deliveries are dead letters.
    failed: usize,
    lines: Vec<Line>,
    missed: Vec<(Named, Vec<String>)>,
    truncated: bool,
    publishes: bool,
}

/// `GET …/events/{id}`.
pub(crate) async fn one(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let tenant = visit.tenant()?.clone();
    let base = home(&tenant);
    let bytes = visit.send_bytes(Method::GET, &format!("/v1/events/{id}"), None).await?;
    let unread = |e: serde_json::Error| Trouble::Fault(format!("the event cannot be read: {e}"));
    let whole: Whole = serde_json::from_slice(&bytes).map_err(unread)?;
    let payload: Payload = serde_json::from_slice(&bytes).map_err(unread)?;
    // As JSON within JSON it would lose what is around it.
    let stored = visit.engine().store().event(tenant.id, id).await.map_err(|_| Trouble::Away)?;
    let now = visit.now();
    let event = &whole.event;
    let missed = whole.not_delivered.iter().map(|missed| {
        let reasons = missed.reasons.iter().map(|reason| text::visible(reason)).collect();
        (Named::find(visit.engine(), tenant.id, missed.subscription), reasons)
    });
    let html = EventPage {
        frame: Frame::new(&visit, Place::Events, text::line(&event.event_type, 100))
            .await
            .below(format!("{base}/events"), "Events")
            .live_of(id),
        id: event.id.to_string(),
        topic: text::line(&event.topic, 200),
        key: event.key.as_deref().map(text::visible),
        content_type: text::line(&event.content_type, 200),
        publisher_id: event.publisher_id.as_deref().map(text::visible),
        trace_id: event.trace_id.clone(),
        size: words::bytes(event.payload_bytes),
        at: Time::new(event.accepted_at, now),
        later: event.deliver_at.map(|at| Time::new(at, now)),
        expunged: event.expunged_at.map(|at| Time::new(at, now)),
        attributes: event
            .attributes
            .iter()
            .map(|(name, value)| (text::visible(name), text::visible(value)))
            .collect(),
        payload: payload_bytes(&payload).map(|bytes| Body::of(&bytes)),
        raw: stored.filter(|_| event.expunged_at.is_none()).map(|own| Body::raw(&own.payload)),
        failed: whole.deliveries.iter().filter(|row| row.state == "dead").count(),
        lines: whole
            .deliveries
            .iter()
            .map(|row| deliveries::line(&visit, tenant.id, row, now))
            .collect(),
        missed: missed.collect(),
        truncated: whole.truncated,
        publishes: visit.allows(posthorn_domain::Scope::Publish),
        base,
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

pub(crate) fn payload_bytes(payload: &Payload) -> Option<Bytes> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    match (&payload.payload, &payload.payload_base64) {
        (Some(json), _) => Some(Bytes::copy_from_slice(json.get().as_bytes())),
        (None, Some(text)) => STANDARD.decode(text).ok().map(Bytes::from),
        (None, None) => None,
    }
}

/// `GET …/events/{id}/payload`: all of it, to be kept as a file. A browser never shows it.
pub(crate) async fn payload(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let bytes = visit.send_bytes(Method::GET, &format!("/v1/events/{id}"), None).await?;
    let payload: Payload = serde_json::from_slice(&bytes)
        .map_err(|e| Trouble::Fault(format!("the event cannot be read: {e}")))?;
    let bytes = payload_bytes(&payload).ok_or(Trouble::NotFound("payload"))?;
    let mut response = Response::new(HttpBody::from(bytes));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    let named = HeaderValue::from_str(&format!("attachment; filename=\"{id}.bin\""));
    headers.insert(
        header::CONTENT_DISPOSITION,
        named.unwrap_or(HeaderValue::from_static("attachment")),
    );
    Ok(response)
}

fn named(visit: &Visit) -> Result<EventId, Trouble> {
    let text = visit.named.first().ok_or(Trouble::NotFound("event"))?;
    text.parse().map_err(|_| Trouble::NotFound("event"))
}

/// `POST …/events/{id}/republish`.
pub(crate) async fn republish(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let question = Question {
        place: Place::Events,
        title: "Publish this event again?",
        text: "It becomes a new event with the same contents. Everybody who wants such events gets it.",
        button: "Publish again",
        back: format!("{}/events/{id}", home(visit.tenant()?)),
    };
    if let Some(asked) = sure::ask(&visit, question).await {
        return asked;
    }
    let path = format!("/v1/events/{id}/republish");
    let published: Published = visit.send(Method::POST, &path, None).await?;
    Ok(see(&format!("{}/events/{}?done=republished", home(visit.tenant()?), published.id)))
}

#[derive(Deserialize)]
struct Published {
    id: EventId,
}

#[derive(Template)]
#[template(path = "publish.html")]
struct PublishPage<'p> {
    frame: Frame,
    base: String,
    typed: &'p Fields,
    topics: Vec<String>,
    wrong: Option<(String, String)>,
}

impl PublishPage<'_> {
    fn wrong_at(&self, name: &str) -> Option<&str> {
        let (field, text) = self.wrong.as_ref()?;
        (field == name).then_some(text.as_str())
    }

    /// What is wrong with no field of the form.
    fn wrong_elsewhere(&self) -> Option<&str> {
        const FIELDS: [&str; 6] = ["topic", "type", "key", "attributes", "payload", "deliver_at"];
        let (field, text) = self.wrong.as_ref()?;
        (!FIELDS.contains(&field.as_str())).then_some(text.as_str())
    }
}

/// `GET …/events/new`.
pub(crate) async fn new(visit: Arc<Visit>) -> Answer {
    let typed = visit.query.clone();
    publish_form(&visit, &typed, None).await
}

async fn publish_form(visit: &Visit, typed: &Fields, wrong: Option<(String, String)>) -> Answer {
    let tenant = visit.tenant()?.clone();
    let base = home(&tenant);
    let topics = visit.engine().catalog().topics(tenant.id);
    let status = if wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let html = PublishPage {
        frame: Frame::new(visit, Place::Events, "Publish an event")
            .await
            .below(format!("{base}/events"), "Events"),
        topics: topics.iter().take(200).map(|topic| topic.name.to_string()).collect(),
        typed,
        base,
        wrong,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// `POST …/events/new`.
pub(crate) async fn publish(visit: Arc<Visit>) -> Answer {
    let form = visit.form.clone();
    let body = match publish_body(&form) {
        Ok(body) => body,
        Err(wrong) => return publish_form(&visit, &form, Some(wrong)).await,
    };
    match visit.send_bytes(Method::POST, "/v1/events", Some(body)).await {
        Ok(bytes) => {
            let published: Published = serde_json::from_slice(&bytes)
                .map_err(|e| Trouble::Fault(format!("the answer cannot be read: {e}")))?;
            Ok(see(&format!("{}/events/{}?done=published", home(visit.tenant()?), published.id)))
        }
        Err(Trouble::Refused(Refusal { field, detail, .. })) => {
            let field = field.unwrap_or_default();
            let field = field.split('.').next().unwrap_or_default().to_owned();
            publish_form(&visit, &form, Some((field, detail))).await
        }
        Err(trouble) => Err(trouble),
    }
}

/// The body of a publish; or the field that cannot be part of one, and why. The payload goes in as it was typed.
fn publish_body(form: &Fields) -> Result<Bytes, (String, String)> {
    let wrong = |field: &str, text: String| (field.to_owned(), text);
    let payload = form.typed("payload").trim();
    let payload = if payload.is_empty() { "null" } else { payload };
    let raw: &RawValue = serde_json::from_str(payload)
        .map_err(|e| wrong("payload", format!("is not valid JSON: {e}")))?;
    let mut attributes = Map::new();
    for (number, line) in form.typed("attributes").lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| wrong("attributes", format!("line {}: write name=value", number + 1)))?;
        attributes.insert(name.trim().to_owned(), Value::String(value.trim().to_owned()));
    }
    let mut fields = vec![
        ("topic", Value::from(form.get("topic").unwrap_or_default())),
        ("type", Value::from(form.get("type").unwrap_or_default())),
    ];
    if !attributes.is_empty() {
        fields.push(("attributes", Value::Object(attributes)));
    }
    for name in ["key", "deliver_at"] {
        fields.extend(form.get(name).map(|value| (name, Value::from(value))));
    }
    let mut body = String::from("{");
    for (name, value) in fields {
        body.push_str(&format!("{}:{value},", Value::from(name)));
    }
    body.push_str(&format!("\"payload\":{}}}", raw.get()));
    Ok(body.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_becomes_a_publish_with_the_payload_as_it_was_written() {
        let form = Fields::parse(
            b"topic=orders&type=order.paid&attributes=region%3Deu%0A%0Atier+%3D+gold&key=c-7&payload=%7B%22n%22%3A1.10%7D",
        );
        let wanted = "{\"topic\":\"orders\",\"type\":\"order.paid\",\
                      \"attributes\":{\"region\":\"eu\",\"tier\":\"gold\"},\"key\":\"c-7\",\"payload\":{\"n\":1.10}}";
        assert_eq!(publish_body(&form).unwrap(), wanted);
    }

    #[test]
    fn what_cannot_be_published_names_its_field() {
        let (field, text) = publish_body(&Fields::parse(b"payload=%7B")).unwrap_err();
        assert_eq!(field, "payload");
        assert!(text.starts_with("is not valid JSON"), "{text}");
        let (field, text) =
            publish_body(&Fields::parse(b"attributes=a%3Db%0Anothing")).unwrap_err();
        assert_eq!((field.as_str(), text.as_str()), ("attributes", "line 2: write name=value"));
    }
}
