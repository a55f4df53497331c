//! Subscriptions.

use std::collections::BTreeMap;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use posthorn_domain::{
    CatalogVersion, EventId, EventType, Filter, Labels, Metadata, ProfileName, SecretName, Span,
    SubscriptionId, SubscriptionName, SubscriptionStatus, Timestamp,
    policy::profiles::SIGNING_SECRET,
};
use posthorn_engine::{
    Beginning, NewSubscription, Rotation, SecretInput, SecretKind, Start, SubscriptionChange,
    SubscriptionView,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::check_description;
use super::destinations::{self, Destination};
use crate::call::{Answer, Call};
use crate::codes;
use crate::cursor::{self, List};
use crate::json::{self, given};
use crate::problem::{Problem, Result};
use crate::respond;
use crate::wire::{HealthView, Page, PublicKeyView, SubscriptionBody, TestView, Warning};

/// Warnings in one answer; more of the same help nobody.
const WARNINGS_MAX: usize = 20;
/// Secrets of one subscription.
const SECRETS_MAX: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    url: Option<String>,
    destination: Option<Destination>,
    name: Option<SubscriptionName>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    metadata: Metadata,
    filter: Option<Filter>,
    profile: Option<ProfileName>,
    policy: Option<Value>,
    #[serde(default)]
    secrets: BTreeMap<SecretName, String>,
    secret_kind: Option<Kind>,
    #[serde(default)]
    paused: bool,
    start: Option<StartBody>,
}

/// Where in the past a subscription begins.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartBody {
    time: Option<Timestamp>,
    event: Option<EventId>,
}

/// Which kind of signing secret is wanted.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Hmac,
    Ed25519,
}

impl From<Kind> for SecretKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Hmac => Self::Hmac,
            Kind::Ed25519 => Self::Ed25519,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    #[serde(default, deserialize_with = "given")]
    url: Option<String>,
    #[serde(default, deserialize_with = "given")]
    destination: Option<Destination>,
    /// `null` takes the name away.
    #[serde(default, deserialize_with = "given")]
    name: Option<Option<SubscriptionName>>,
    #[serde(default, deserialize_with = "given")]
    description: Option<String>,
    #[serde(default, deserialize_with = "given")]
    labels: Option<Labels>,
    #[serde(default, deserialize_with = "given")]
    metadata: Option<Metadata>,
    #[serde(default, deserialize_with = "given")]
    filter: Option<Filter>,
    #[serde(default, deserialize_with = "given")]
    profile: Option<ProfileName>,
    /// `null` takes all overrides back.
    #[serde(default, deserialize_with = "given")]
    policy: Option<Value>,
    #[serde(default)]
    secrets: BTreeMap<SecretName, String>,
    #[serde(default, deserialize_with = "given")]
    paused: Option<bool>,
}

/// `POST /v1/subscriptions`.
pub(crate) async fn create(mut call: Call) -> Answer {
    let new: New = call.json().await?;
    check_description(&new.description)?;
    let Some(destination) = destinations::one_of(new.url, new.destination)? else {
        return Err(Problem::field(
            "url",
            "is missing; give url for a webhook, or destination for push",
        ));
    };
    let new = NewSubscription {
        name: new.name,
        description: new.description,
        labels: new.labels,
        metadata: new.metadata,
        destination,
        filter: new.filter,
        profile: new.profile,
        overrides: new.policy.unwrap_or_else(no_overrides),
        secrets: secrets(new.secrets)?,
        secret_kind: new.secret_kind.map(SecretKind::from),
        paused: new.paused,
        start: start(&call, new.start).await?,
        seed: None,
    };
    let (view, made) = call.engine().create_subscription(call.tenant(), new).await?;
    let mut body = body(&view, &call);
    body.signing_secret = made.as_deref();
    body.warnings = warnings(&view, &call);
    let place = format_args!("/v1/subscriptions/{}", view.subscription.id).to_string();
    Ok(tagged(respond::created(place, &body)?, &view))
}

async fn start(call: &Call, given: Option<StartBody>) -> Result<Option<Start>> {
    let from = match given {
        None => return Ok(None),
        Some(StartBody { time: Some(time), event: None }) if time > call.engine().now() => {
            return Err(Problem::field("start.time", "must be in the past"));
        }
        Some(StartBody { time: Some(time), event: None }) => Beginning::Time(time),
        Some(StartBody { time: None, event: Some(id) }) => {
            let event = call.engine().store().event(call.tenant(), id).await?;
            let unknown = || Problem::field("start.event", "there is no such event");
            let accepted_at = event.ok_or_else(unknown)?.accepted_at;
            Beginning::Event { id, accepted_at }
        }
        Some(_) => return Err(Problem::field("start", "give exactly one of time and event")),
    };
    Ok(Some(Start { from, created_by: call.who() }))
}

fn no_overrides() -> Value {
    Value::Object(serde_json::Map::new())
}

fn secrets(given: BTreeMap<SecretName, String>) -> Result<Vec<SecretInput>> {
    if given.len() > SECRETS_MAX {
        return Err(Problem::field("secrets", format!("at most {SECRETS_MAX} are allowed")));
    }
    Ok(given.into_iter().map(|(name, value)| SecretInput { name, value }).collect())
}

/// What a subscription looks like, its public keys included.
fn body<'a>(view: &'a SubscriptionView, call: &Call) -> SubscriptionBody<'a> {
    // Secrets that cannot be opened say so at each attempt; they must not hide the subscription.
    let keys = view.verification_keys(call.engine().now()).unwrap_or_default();
    SubscriptionBody::new(&view.subscription, &keys)
}

/// A subscription with its version as entity tag.
fn answer(view: &SubscriptionView, call: &Call) -> Answer {
    Ok(tagged(respond::ok(&body(view, call))?, view))
}

fn tagged(mut response: Response, view: &SubscriptionView) -> Response {
    let tag = format!("\"{}\"", view.subscription.version.0);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// `GET /v1/subscriptions`.
pub(crate) async fn list(call: Call) -> Answer {
    let after = call.query.text("cursor").map(|text| cursor::decode_id(List::Subscriptions, text));
    let after = after.transpose()?.map(SubscriptionId::from_bytes);
    let limit = call.query.limit()?;
    let all = match call.query.text("name") {
        None => call.engine().catalog().subscriptions(call.tenant()),
        // What breaks the rules of names is nobody's name.
        Some(text) => {
            let name = SubscriptionName::new(text).ok();
            let catalog = call.engine().catalog();
            let named = name.and_then(|name| catalog.subscription_named(call.tenant(), &name));
            named.into_iter().collect()
        }
    };
    let start = after.map_or(0, |after| all.partition_point(|v| v.subscription.id <= after));
    let rest = &all[start..];
    let items = rest.iter().take(limit).map(|view| body(view, &call)).collect();
    let next = (rest.len() > limit)
        .then(|| cursor::encode(List::Subscriptions, rest[limit - 1].subscription.id.as_bytes()));
    respond::ok(&Page::forward(items, next))
}

/// `GET /v1/subscriptions/{id}`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let id = call.subscription().await?;
    let view = call.engine().catalog().subscription(call.tenant(), id)?;
    let state = call.engine().subscription_state(call.tenant(), id).await;
    Ok(tagged(respond::ok(&body(&view, &call).standing(&state))?, &view))
}

/// `GET /v1/subscriptions/{id}/health`.
pub(crate) async fn health(mut call: Call) -> Answer {
    let id = call.subscription().await?;
    let standing = call.engine().standing(call.tenant(), id).await?;
    respond::ok(&HealthView::from(&standing))
}

/// `PATCH /v1/subscriptions/{id}`.
pub(crate) async fn update(mut call: Call) -> Answer {
    let id = call.subscription().await?;
    let tenant = call.tenant();
    call.engine().catalog().subscription(tenant, id)?;
    let expected = if_match(&call.parts.headers)?;
    let change: Change = call.json().await?;
    let engine = call.engine();
    check_description(change.description.as_deref().unwrap_or_default())?;
    let paused = change.paused;
    let destination = destinations::one_of(change.url, change.destination)?;
    let contents = SubscriptionChange {
        name: change.name,
        description: change.description,
        labels: change.labels,
        metadata: change.metadata,
        destination,
        filter: change.filter,
        profile: change.profile,
        overrides: change.policy.map(|policy| match policy {
            Value::Null => no_overrides(),
            policy => policy,
        }),
        secrets: secrets(change.secrets)?,
        repeated: Vec::new(),
        only_needed_secrets: false,
        expected,
    };
    let is_empty = contents.name.is_none()
        && contents.labels.is_none()
        && contents.metadata.is_none()
        && contents.description.is_none()
        && contents.destination.is_none()
        && contents.filter.is_none()
        && contents.profile.is_none()
        && contents.overrides.is_none()
        && contents.secrets.is_empty();
    let mut view = if is_empty {
        let view = engine.catalog().subscription(tenant, id)?;
        check_version(expected, &view)?;
        view
    } else {
        engine.update_subscription(tenant, id, contents).await?
    };
    match paused {
        Some(true) if view.subscription.status.is_active() => {
            view = engine.pause_subscription(tenant, id).await?;
        }
        // Not a disabled one: that takes the explicit resume, since something was wrong with it.
        Some(false) if view.subscription.status == SubscriptionStatus::Paused => {
            view = engine.resume_subscription(tenant, id).await?;
        }
        _ => {}
    }
    let mut body = body(&view, &call);
    body.warnings = warnings(&view, &call);
    Ok(tagged(respond::ok(&body)?, &view))
}

/// What may well be a slip of the pen, although it is allowed: topics may be made later.
fn warnings(view: &SubscriptionView, call: &Call) -> Vec<Warning> {
    let catalog = call.engine().catalog();
    let mut warnings: Vec<Warning> = Vec::new();
    for (group, conditions) in view.subscription.filter.any_of.iter().enumerate() {
        for (place, topic) in conditions.topics.iter().enumerate() {
            let there = topic.is_reserved() || catalog.topic(call.tenant(), topic).is_ok();
            if warnings.len() < WARNINGS_MAX && !there {
                warnings.push(Warning {
                    code: "unknown_topic",
                    detail: format!(
                        "the topic `{topic}` does not exist, so no event can match it; create it \
                         with PUT /v1/topics/{topic}"
                    ),
                    field: format!("filter.any_of[{group}].topics[{place}]"),
                });
            }
        }
    }
    warnings
}

/// The version the client had read, from `If-Match: "<version>"`.
fn if_match(headers: &HeaderMap) -> Result<Option<CatalogVersion>> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let version = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match version.and_then(|version| version.parse().ok()) {
        Some(version) => Ok(Some(CatalogVersion(version))),
        None => Err(Problem::field(
            "If-Match",
            "must be one ETag, in quotes, exactly as the \
                                                server sent it",
        )),
    }
}

fn check_version(expected: Option<CatalogVersion>, view: &SubscriptionView) -> Result<()> {
    if expected.is_some_and(|expected| expected != view.subscription.version) {
        let detail = "the subscription was changed in the meantime; read it again";
        return Err(Problem::new(codes::VERSION_MISMATCH, detail).at("If-Match"));
    }
    Ok(())
}

/// `DELETE /v1/subscriptions/{id}`.
pub(crate) async fn delete(mut call: Call) -> Answer {
    let id = call.subscription().await?;
    call.engine().delete_subscription(call.tenant(), id).await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// `POST /v1/subscriptions/{id}/pause`.
pub(crate) async fn pause(mut call: Call) -> Answer {
    let id = call.subscription().await?;
    answer(&*call.engine().pause_subscription(call.tenant(), id).await?, &call)
}

/// `POST /v1/subscriptions/{id}/resume`.
pub(crate) async fn resume(mut call: Call) -> Answer {
    let id = call.subscription().await?;
    answer(&*call.engine().resume_subscription(call.tenant(), id).await?, &call)
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Test {
    #[serde(rename = "type")]
    event_type: Option<EventType>,
    payload: Option<Value>,
}

/// `POST /v1/subscriptions/{id}/test`.
pub(crate) async fn test(mut call: Call) -> Answer {
    let id = call.subscription().await?;
    let tenant = call.tenant();
    call.engine().catalog().subscription(tenant, id)?;
    // It took no body once, so an empty one of any type is fine.
    let limit = call.api.options.body_bytes;
    let bytes = call.any_bytes(limit).await?;
    let Test { event_type, payload } = match bytes.is_empty() {
        true => Test::default(),
        false => json::parse_strict(json::utf8(&bytes)?)?,
    };
    let payload = payload.unwrap_or_else(|| serde_json::json!({"test": true}));
    let payload = Bytes::from(payload.to_string());
    let outcome = call.engine().test_subscription_with(tenant, id, event_type, payload).await?;
    respond::ok(&TestView::new(&outcome, call.is_operator()))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Replacement {
    name: Option<SecretName>,
    secret: Option<String>,
    secret_kind: Option<Kind>,
    overlap: Option<Span>,
}

#[derive(Serialize)]
struct Rotated {
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    public_keys: Vec<PublicKeyView>,
}

/// `POST /v1/subscriptions/{id}/rotate-secret`.
pub(crate) async fn rotate_secret(mut call: Call) -> Answer {
    let id = call.subscription().await?;
    let tenant = call.tenant();
    call.engine().catalog().subscription(tenant, id)?;
    let Replacement { name, secret, secret_kind, overlap } = call.json_or_default().await?;
    let name = match name {
        Some(name) => name,
        None => SecretName::new(SIGNING_SECRET).expect("the shipped name is valid"),
    };
    let kind = secret_kind.map(SecretKind::from);
    let rotation = Rotation { name, value: secret, kind, overlap, seed: None };
    let (view, secret) = call.engine().rotate_secret(tenant, id, rotation).await?;
    let keys = view.verification_keys(call.engine().now()).unwrap_or_default();
    respond::ok(&Rotated { secret, public_keys: keys.iter().map(PublicKeyView::from).collect() })
}
