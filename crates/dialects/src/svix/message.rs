//! Messages: events on one topic, published with their bytes as they came.
//!
//! The hot path of this API. A message is recognised by its idempotency key or its `eventId`, as events are anyway, so
//! publishing one is one commit and nothing besides.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::StatusCode;
use posthorn_domain::filter::Candidate;
use posthorn_domain::{
    Event, EventId, EventType, Idempotency, IdempotencyKey, Labels, Period, Span, Subscription,
    Tenant, TenantId, Timestamp, TopicName, base62,
};
use posthorn_engine::{Error, Expunge, NewExpunge, Publish, Terms};
use posthorn_sealing::hash;
use posthorn_store::{EventFilter, Page};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::body::{Object, read_time};
use super::call::{Answer, Call, json, nothing, ok, raw};
use super::endpoint::{ATTRIBUTE_PREFIX, Kind, check_channels};
use super::failure::{Failure, VALUE};
use super::once::{self, Seed};
use super::page::Paging;
use super::{application, id, poller, task};

/// The value of the attribute that a channel or a tag is.
const PRESENT: &str = "1";
/// A tag of a message is an attribute with this before its name.
const TAG_PREFIX: &str = "tag.";
/// Tags of a message.
const TAGS_MAX: usize = 5;
/// How long contents may be asked to be kept, in days.
const DAYS: std::ops::RangeInclusive<u64> = 1..=90;
/// How far ahead a message may be sent.
const AHEAD: std::ops::RangeInclusive<i64> = 60_000..=86_400_000;
/// Where examples are published: nobody subscribes to it, they are brought to one endpoint.
const EXAMPLES: &str = "svix.examples";
/// The type of an example that needs no event type.
const PING: &str = "svix.ping";
/// How far back a list looks that says nothing about time.
const LOOK_BACK: Span = Span::from_secs(90 * 86_400);
/// Messages that are expunged with one request.
const EXPUNGED_MAX: usize = 100;

/// A message as clients send it. Members that nobody knows are passed over.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct New<'a> {
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    #[serde(borrow, alias = "data")]
    payload: &'a RawValue,
    #[serde(default, borrow)]
    event_id: Option<Cow<'a, str>>,
    #[serde(default)]
    channels: Option<BTreeSet<String>>,
    #[serde(default)]
    tags: Option<BTreeSet<String>>,
    #[serde(default)]
    payload_retention_period: Option<u64>,
    #[serde(default)]
    payload_retention_hours: Option<u64>,
    #[serde(default, borrow)]
    deliver_at: Option<Cow<'a, str>>,
    #[serde(default)]
    application: Option<Value>,
    #[serde(default)]
    transformations_params: Option<Transformations>,
}

/// How clients send a body that is no object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Transformations {
    #[serde(default)]
    raw_payload: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// What a message is shown as.
pub(super) fn view(event: &Event, with_content: bool) -> Value {
    let marks = |prefix: &str| -> Option<Vec<&str>> {
        let names = event.attributes.keys().filter_map(|name| name.strip_prefix(prefix));
        let names: Vec<&str> = names.collect();
        (!names.is_empty()).then_some(names)
    };
    let payload = match (event.expunged_at, with_content) {
        (Some(_), _) => json!({"expired": true}),
        (None, true) => shown_payload(&event.payload),
        (None, false) => json!({}),
    };
    let mut view = json!({
        "id": id::message(event.id),
        "eventType": event.event_type,
        "payload": payload,
        "channels": marks(ATTRIBUTE_PREFIX),
        "tags": marks(TAG_PREFIX),
        "timestamp": id::time(event.accepted_at),
    });
    if let Some(own) = &event.publisher_id {
        view["eventId"] = json!(own);
    }
    if let Some(at) = event.deliver_at {
        view["deliverAt"] = json!(id::time(at));
    }
    view
}

/// Only objects are shown: clients read nothing else.
fn shown_payload(payload: &[u8]) -> Value {
    serde_json::from_slice::<Value>(payload).ok().filter(Value::is_object).unwrap_or(json!({}))
}

fn shape(error: &serde_json::Error) -> Failure {
    let text = error.to_string();
    let missing = text.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    match missing {
        Some(field) => Failure::at(&["body", field], "field required", super::failure::SHAPE),
        None => Failure::shape(text),
    }
}

/// `POST /app/{app}/msg`.
pub(super) async fn create(mut call: Call, app: &str) -> Answer {
    let with_content = call.with_content()?;
    let known = call.application(app);
    if known.is_err() && id::check_uid(app, "").is_err() {
        let problem = "must be an id or a uid";
        return Err(Failure::at(&["path", "app_id"], problem, VALUE));
    }
    let owner = known.as_ref().map_or(TenantId::DEFAULT, |tenant| tenant.id);
    let bytes = call.bytes(owner).await?;
    let text = std::str::from_utf8(&bytes).map_err(|e| Failure::shape(e.to_string()))?;
    let new: New<'_> = serde_json::from_str(text).map_err(|e| shape(&e))?;
    let tenant = match (known, &new.application) {
        (Ok(tenant), _) => tenant,
        (Err(_), Some(body)) => make_application(&call, app, body).await?,
        (Err(failure), None) => return Err(failure),
    };
    let engine = &call.service.engine;
    let topic = call.service.options.topic.clone();
    ensure_topic(&call, tenant.id, &topic).await?;
    let publish = understand(&call, &new, topic, &bytes)?;
    let shown = json!({
        "eventId": publish.publisher_id, "channels": new.channels, "tags": new.tags,
        "deliverAt": publish.deliver_at.map(id::time),
    });
    let published = engine.publish(tenant.id, publish).await.map_err(|error| match error {
        Error::KeyReused { .. } => Failure::conflict("A message with this eventId already exists."),
        other => other.into(),
    })?;
    let event_type = serde_json::to_string(&*new.event_type).unwrap_or_default();
    let payload = match with_content && new.payload.get().starts_with('{') {
        true => new.payload.get(),
        false => "{}",
    };
    // Put together as text, so that what was sent comes back as it was written.
    let mut body = format!(
        "{{\"id\":\"{}\",\"eventType\":{event_type},\"payload\":{payload},\"timestamp\":\"{}\"",
        id::message(published.id),
        id::time(published.accepted_at),
    );
    for (name, value) in shown.as_object().into_iter().flatten().filter(|(_, own)| !own.is_null()) {
        body.push_str(&format!(",\"{name}\":{value}"));
    }
    body.push('}');
    Ok(raw(StatusCode::ACCEPTED, Bytes::from(body)))
}

/// A message may bring its application with it.
async fn make_application(call: &Call, app: &str, body: &Value) -> Result<Tenant, Failure> {
    let mut body = Object::read(body.clone())?;
    let contents = application::Contents::read(&mut body, false);
    body.done()?;
    let place = ["body", "application", "uid"];
    match contents.uid() {
        None => Err(Failure::at(&place, "field required", "application_uid_missing")),
        Some(uid) if uid.as_str() != app => {
            let problem = "must be the uid of the path";
            Err(Failure::at(&place, problem, "application_uid_mismatch"))
        }
        Some(_) => match application::make(call, contents, None).await {
            // Another message was faster.
            Err(Failure::Conflict { .. }) => call.application(app),
            made => made,
        },
    }
}

/// Topics of new applications are made with their first message.
pub(super) async fn ensure_topic(
    call: &Call,
    tenant: TenantId,
    topic: &TopicName,
) -> Result<(), Failure> {
    let engine = &call.service.engine;
    if engine.catalog().topic(tenant, topic).is_err() {
        let description = "Messages of the Svix API".to_owned();
        engine.put_topic(tenant, topic.clone(), description, Vec::new(), Labels::default()).await?;
    }
    Ok(())
}

fn event_type(text: &str) -> Result<EventType, Failure> {
    EventType::new(text).map_err(|error| Failure::field("eventType", error.to_string()))
}

/// The attributes of a message: one for each channel and tag.
fn attributes(
    channels: Option<&BTreeSet<String>>,
    tags: Option<&BTreeSet<String>>,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut all = BTreeMap::new();
    for (given, prefix, field) in
        [(channels, ATTRIBUTE_PREFIX, "channels"), (tags, TAG_PREFIX, "tags")]
    {
        let Some(given) = given else { continue };
        check_channels(given).map_err(|problem| Failure::field(field, problem))?;
        if field == "tags" && given.len() > TAGS_MAX {
            return Err(Failure::field(field, format!("must be at most {TAGS_MAX}")));
        }
        let own = given.iter().map(|name| (format!("{prefix}{name}"), PRESENT.to_owned()));
        all.extend(own);
    }
    Ok(all)
}

fn understand(
    call: &Call,
    new: &New<'_>,
    topic: TopicName,
    body: &Bytes,
) -> Result<Publish, Failure> {
    let given = new.payload.get();
    let raw = new.transformations_params.as_ref();
    let (payload, content_type) = match raw.and_then(|own| own.raw_payload.as_ref().zip(Some(own)))
    {
        Some((text, own)) => {
            let kind =
                own.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
            let kind = kind.map_or("application/json", |(_, value)| value);
            (Bytes::from(text.clone()), kind.to_owned())
        }
        None if given.starts_with('{') => {
            // A part of the body, not a copy of it.
            (body.slice_ref(given.as_bytes()), "application/json".to_owned())
        }
        None => {
            let problem = "must be an object";
            return Err(Failure::at(&["body", "payload"], problem, super::failure::SHAPE));
        }
    };
    let now = call.service.engine.now();
    let deliver_at = match &new.deliver_at {
        None => None,
        Some(text) => {
            let at = read_time(text);
            let ahead = at.map(|at| at.as_millis() - now.as_millis());
            let fits = ahead.is_some_and(|ahead| AHEAD.contains(&ahead));
            let problem = "must be a time from one minute to 24 hours ahead";
            Some(at.filter(|_| fits).ok_or_else(|| Failure::field("deliverAt", problem))?)
        }
    };
    let hours = match (new.payload_retention_hours, new.payload_retention_period) {
        (Some(hours), _) => Some(("payloadRetentionHours", hours)),
        (None, Some(days)) => Some(("payloadRetentionPeriod", days.saturating_mul(24))),
        (None, None) => None,
    };
    if let Some((field, hours)) = hours
        && (hours == 0 || hours > DAYS.end() * 24)
    {
        return Err(Failure::field(field, format!("must be at most {} days", DAYS.end())));
    }
    let kept = call.service.engine.options().event_retention;
    // Nothing is kept longer than everything else is.
    let retention =
        hours.map(|(_, hours)| Span::from_secs(hours * 3_600)).filter(|own| *own < kept);
    let (idempotency, publisher_id) = idempotency(call, new.event_id.as_deref())?;
    Ok(Publish {
        topic,
        event_type: event_type(&new.event_type)?,
        attributes: attributes(new.channels.as_ref(), new.tags.as_ref())?,
        key: None,
        content_type,
        payload,
        idempotency,
        publisher_id,
        deliver_at,
        retention,
        trace: None,
    })
}

/// How a repeat of a message is recognised. One with an `eventId` is there once, whoever sends it: only a repeat of the same
/// request is answered again, anything else is a conflict.
fn idempotency(
    call: &Call,
    event_id: Option<&str>,
) -> Result<(Option<Idempotency>, Option<IdempotencyKey>), Failure> {
    let key = once::key(call)?.map(|key| once::name(call, key));
    // Half of a hash tells requests apart, and every message writes it.
    let short = |hash: &[u8; 32]| base62::to_text(&std::array::from_fn(|at| hash[at]), 0);
    let named = |text: &str| {
        IdempotencyKey::new(text).map_err(|error| Failure::field("eventId", error.to_string()))
    };
    match (event_id, key) {
        (None, None) => Ok((None, None)),
        (None, Some(name)) => {
            let key = named(&format!("svix-key:{}", short(&name)))?;
            Ok((Some(Idempotency { key, fingerprint: [0; 32] }), None))
        }
        (Some(own), key) => {
            id::check_uid(own, id::MESSAGE).map_err(|e| Failure::field("eventId", e))?;
            let once = hash::fingerprint(&[b"svix event id", own.as_bytes()]);
            let fingerprint = key.unwrap_or_else(|| {
                let dice = call.service.engine.dice().to_be_bytes();
                hash::fingerprint(&[b"no key", &dice])
            });
            let key = named(&format!("svix-id:{}", short(&once)))?;
            Ok((Some(Idempotency { key, fingerprint }), Some(named(own)?)))
        }
    }
}

/// The message that a path names, by id or by the name its sender gave it.
pub(super) async fn find(call: &Call, tenant: TenantId, text: &str) -> Result<Event, Failure> {
    let store = call.service.engine.store();
    if let Some(own) = id::read_message(text) {
        return store.event(tenant, own).await?.ok_or(Failure::NotFound);
    }
    let own = IdempotencyKey::new(text).map_err(|_| Failure::NotFound)?;
    let filter = EventFilter { publisher_id: Some(own), ..EventFilter::default() };
    let found = store.events(tenant, filter, posthorn_store::Listing::newest(1)).await?;
    let found = found.items.into_iter().next().ok_or(Failure::NotFound)?;
    store.event(tenant, found.id).await?.ok_or(Failure::NotFound)
}

/// The time that a list is about: 90 days back where nothing is said.
pub(super) fn period(call: &Call) -> Result<Period, Failure> {
    let (after, before) = (call.query.time("after")?, call.query.time("before")?);
    let back = LOOK_BACK.as_millis() as i64;
    let from = after.or_else(|| {
        let until = before.unwrap_or_else(|| call.service.engine.now());
        Some(Timestamp::from_millis(until.as_millis() - back))
    });
    // Later than this moment, not at it.
    let from = match after {
        Some(after) => Some(Timestamp::from_millis(after.as_millis() + 1)),
        None => from,
    };
    Ok(Period { from, until: before })
}

/// What a list of messages, or of their attempts, is filtered by.
pub(super) fn filter(call: &Call) -> Result<EventFilter, Failure> {
    let types = call.query.list("event_types");
    let types = types.iter().map(|name| event_type(name)).collect::<Result<_, _>>()?;
    let marks = [("channel", ATTRIBUTE_PREFIX), ("tag", TAG_PREFIX)];
    let attributes = marks.iter().filter_map(|(name, prefix)| {
        let own = call.query.text(name)?;
        Some((format!("{prefix}{own}"), PRESENT.to_owned()))
    });
    Ok(EventFilter {
        types,
        attributes: attributes.collect(),
        accepted: period(call)?,
        ..EventFilter::default()
    })
}

/// `GET /app/{app}/msg`.
pub(super) async fn list(call: &Call, app: &str) -> Answer {
    let tenant = call.application(app)?;
    let with_content = call.with_content()?;
    let paging = Paging::read(&call.query, false)?;
    let filter = filter(call)?;
    let store = call.service.engine.store();
    let page: Page<Event> = store.events(tenant.id, filter, paging.listing()).await?;
    let mut shown = paging.arrange(page);
    if with_content {
        // Lists do not read payloads; these are asked for together.
        let ids: Vec<EventId> = shown.items.iter().map(|event| event.id).collect();
        let whole = store.events_by_id(tenant.id, ids).await?;
        let mut whole: BTreeMap<EventId, Event> =
            whole.into_iter().map(|event| (event.id, event)).collect();
        for event in &mut shown.items {
            if let Some(own) = whole.remove(&event.id) {
                *event = own;
            }
        }
    }
    let data = shown.items.iter().map(|event| view(event, with_content)).collect();
    ok(&shown.show(data))
}

/// `GET /app/{app}/msg/{msg}`.
pub(super) async fn get(call: &Call, app: &str, msg: &str) -> Answer {
    let tenant = call.application(app)?;
    let event = find(call, tenant.id, msg).await?;
    ok(&view(&event, call.with_content()?))
}

/// `DELETE /app/{app}/msg/{msg}/content`.
pub(super) async fn expunge(call: &Call, app: &str, msg: &str) -> Answer {
    let tenant = call.application(app)?;
    let event = find(call, tenant.id, msg).await?;
    expunge_one(call, tenant.id, event.id).await?;
    Ok(nothing())
}

async fn expunge_one(call: &Call, tenant: TenantId, event: EventId) -> Result<(), Failure> {
    // What is still to be sent is not sent any more: there is nothing left of it.
    let how = Expunge { cancel: true, responses: false };
    call.service.engine.expunge_event(tenant, event, how).await?;
    Ok(())
}

/// `POST /app/{app}/msg/bulk-expunge`.
pub(super) async fn expunge_some(mut call: Call, app: &str) -> Answer {
    let tenant = call.application(app)?;
    let mut body = call.object(tenant.id).await?;
    let ids = body.set("ids", None).or_absent().unwrap_or_default();
    if ids.is_empty() || ids.len() > EXPUNGED_MAX {
        body.refuse("ids", format!("must be 1 to {EXPUNGED_MAX} ids"));
    }
    body.done()?;
    let mut results = BTreeMap::new();
    for text in ids {
        let word = match find(&call, tenant.id, &text).await {
            Ok(event) => {
                expunge_one(&call, tenant.id, event.id).await?;
                "expunged"
            }
            Err(Failure::NotFound) => "not-found",
            Err(failure) => return Err(failure),
        };
        results.insert(text, word);
    }
    ok(&json!({"results": results}))
}

/// `POST /app/{app}/msg/expunge-all-contents`.
pub(super) async fn expunge_all(call: Call, app: &str, seed: Option<Seed>) -> Answer {
    let tenant = call.application(app)?;
    let engine = &call.service.engine;
    let new = NewExpunge {
        events: posthorn_domain::Selection {
            until: Some(engine.now()),
            ..posthorn_domain::Selection::default()
        },
        responses: false,
        per_second: posthorn_engine::JOB_PER_SECOND_MAX,
        created_by: call.who(),
    };
    let terms = Terms { seed: seed.map(Seed::of_id), ..Terms::default() };
    let job = engine.create_expunge_with(tenant.id, new, terms).await?;
    Ok(json(StatusCode::ACCEPTED, &task::purge(&job)))
}

/// `POST /app/{app}/msg/precheck/active`: whether anybody would get such a message.
pub(super) async fn precheck(mut call: Call, app: &str) -> Answer {
    let tenant = call.application(app)?;
    let mut body = call.object(tenant.id).await?;
    let name = body.needed("eventType");
    let channels = body.set("channels", None).or_absent();
    body.done()?;
    let event = Event {
        id: EventId::floor(call.service.engine.now()),
        tenant: tenant.id,
        topic: call.service.options.topic.clone(),
        event_type: event_type(&name)?,
        attributes: attributes(channels.as_ref(), None)?,
        key: None,
        content_type: "application/json".to_owned(),
        payload: Bytes::from_static(b"{}"),
        accepted_at: call.service.engine.now(),
        publisher_id: None,
        deliver_at: None,
        retention: None,
        expunged_at: None,
        trace: None,
    };
    let candidate = Candidate::new(&event);
    let wanted = |own: &Subscription| match Kind::of(own) {
        Kind::Polling => poller::filter(&call, own).wants(&candidate),
        Kind::Endpoint | Kind::Fifo => own.filter.wants(&candidate),
    };
    let all = call.service.engine.catalog().subscriptions(tenant.id);
    let active =
        all.iter().any(|view| view.subscription.status.is_active() && wanted(&view.subscription));
    ok(&json!({"active": active}))
}

/// `POST …/endpoint/{ep}/send-example`: to this endpoint only, whatever it wants.
pub(super) async fn send_example(
    mut call: Call,
    app: &str,
    ep: &str,
    seed: Option<Seed>,
) -> Answer {
    let tenant = call.application(app)?;
    let view_of = call.receiver(tenant.id, ep)?;
    let mut body = call.object(tenant.id).await?;
    let name = body.needed("eventType");
    let index = body.number("exampleIndex").or_absent().unwrap_or(0);
    let payload = body.value("payload").or_absent();
    body.done()?;
    let engine = &call.service.engine;
    let event_type = event_type(&name)?;
    let payload = match payload {
        Some(payload) => payload,
        None if name == PING => json!({"success": true}),
        None => {
            let known = engine.catalog().event_type(&call.caller.realm, &event_type)?;
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            known.examples.get(index).cloned().ok_or_else(|| {
                let detail = "The event type has no such example.";
                Failure::bad_request("invalid_scheme", detail)
            })?
        }
    };
    let topic = TopicName::new(EXAMPLES).map_err(|e| Failure::shape(e.to_string()))?;
    ensure_topic(&call, tenant.id, &topic).await?;
    let key = seed.map(|seed| format!("svix-example:{:032x}", seed.of_id().1));
    let key = key.and_then(|key| IdempotencyKey::new(&key).ok());
    let publish = Publish {
        topic,
        event_type,
        attributes: BTreeMap::new(),
        key: None,
        content_type: "application/json".to_owned(),
        payload: Bytes::from(payload.to_string()),
        idempotency: key.map(|key| Idempotency { key, fingerprint: [0; 32] }),
        publisher_id: None,
        deliver_at: None,
        retention: None,
        trace: None,
    };
    let published = engine.publish(tenant.id, publish).await?;
    let own = view_of.subscription.id;
    super::replay::deliver(&call, tenant.id, published.id, own).await?;
    let event = engine.store().event(tenant.id, published.id).await?;
    ok(&view(&event.ok_or(Failure::NotFound)?, true))
}
