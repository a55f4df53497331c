//! Destinations: endpoints that get their messages one after the other (`fifoEndpoint`), and logs that are asked for theirs
//! (`pollingEndpoint`, see `poller.rs`). Both are subscriptions; other types of destinations are not there.
//!
//! A batch has one message: it is full at once, so there is nothing to wait for.

use std::sync::Arc;

use http::StatusCode;
use posthorn_domain::{
    Delivery, DeliveryFilter, Outcome, StateKind, Subscription, SubscriptionStatus, Tenant,
    Timestamp,
};
use posthorn_engine::SubscriptionView;
use posthorn_store::{Listing, Order};
use serde_json::{Value, json};

use super::body::{Given, Object};
use super::call::{Answer, Call, Whose, json, nothing, ok};
use super::endpoint::{self, Contents, Kind, headers, secret};
use super::failure::Failure;
use super::id;
use super::once::Seed;
use super::page::{Paging, list as shown_list};

/// Types that clients know and that are not there.
const ELSEWHERE: [&str; 15] = [
    "amazonS3",
    "azureBlobStorage",
    "bigQuery",
    "clickhouse",
    "elasticSearch",
    "eventBridge",
    "googleCloudPubSub",
    "googleCloudStorage",
    "otelTracing",
    "postgres",
    "rabbitMq",
    "redshift",
    "snowflake",
    "sns",
    "sqs",
];
/// The URL of a polling endpoint, which is never called: the name is reserved and leads nowhere.
const NO_URL: &str = "https://polling.example/";
/// What people read of a polling endpoint elsewhere.
const POLLED: &str = "Is polled over the Svix API; nothing is sent to it.";

/// How the sending stands.
struct Stand {
    status: &'static str,
    reason: Option<String>,
    next: Option<Timestamp>,
    /// The message that is sent next.
    at: Option<String>,
}

impl Stand {
    async fn of(call: &Call, view: &SubscriptionView) -> Result<Self, Failure> {
        let own = &view.subscription;
        let quiet = |status| Self { status, reason: None, next: None, at: None };
        if let SubscriptionStatus::Disabled { reason } = &own.status {
            return Ok(Self { reason: Some(reason.clone()), ..quiet("disabled") });
        }
        if !own.status.is_active() {
            return Ok(quiet("disabled"));
        }
        if Kind::of(own) == Kind::Polling {
            return Ok(quiet("enabled"));
        }
        // One that was given up stops the others.
        if let Some(dead) = first(call, own, StateKind::Dead).await? {
            let reason = "A message was given up; send it again to go on.".to_owned();
            let at = Some(id::message(dead.event));
            return Ok(Self { reason: Some(reason), at, ..quiet("paused") });
        }
        let head = first(call, own, StateKind::Pending).await?;
        let Some(head) = head else { return Ok(quiet("enabled")) };
        let at = Some(id::message(head.event));
        Ok(match head.last_outcome {
            None => Self { at, ..quiet("enabled") },
            Some(outcome) => Self {
                reason: Some(match outcome {
                    Outcome::Status(status) => format!("The receiver answered {status}."),
                    Outcome::Failure(_) => "The receiver did not answer.".to_owned(),
                }),
                next: (head.due_at != Timestamp::MAX).then_some(head.due_at),
                at,
                ..quiet("retrying")
            },
        })
    }
}

/// The first of its deliveries in this state.
async fn first(
    call: &Call,
    own: &Subscription,
    state: StateKind,
) -> Result<Option<Delivery>, Failure> {
    let filter = DeliveryFilter {
        subscription: Some(own.id),
        state: Some(state),
        ..DeliveryFilter::default()
    };
    let listing = Listing { order: Order::OldestFirst, after: None, limit: 1 };
    let store = call.service.engine.store();
    Ok(store.deliveries(own.tenant, filter, listing).await?.items.pop())
}

async fn view(call: &Call, view: &SubscriptionView) -> Result<Value, Failure> {
    let own = &view.subscription;
    let (stand, kind) = (Stand::of(call, view).await?, Kind::of(own));
    let wanted = endpoint::wanted(call, own);
    let metadata: std::collections::BTreeMap<String, String> = own.metadata.clone().into();
    let config = match kind {
        Kind::Polling => json!({}),
        _ => json!({
            "url": own.destination.url().unwrap_or_default(),
            "headers": headers::Custom::read(own).shown(),
        }),
    };
    let mut view = json!({
        "id": id::destination(own.id),
        "type": kind.name(),
        "config": config,
        "status": stand.status,
        "failureReason": stand.reason,
        "nextRetryAt": stand.next.map(id::time),
        "currentIterator": stand.at.unwrap_or_default(),
        "batchSize": 1,
        "maxWaitSecs": 0,
        "eventTypes": wanted.types,
        "channels": wanted.channels,
        "metadata": metadata,
        "createdAt": id::time(own.created_at),
        "updatedAt": id::time(own.updated_at),
    });
    if let Some(uid) = &own.name {
        view["uid"] = json!(uid);
    }
    Ok(view)
}

/// `GET /app/{app}/destination`.
pub(super) async fn list(call: &Call, app: &str) -> Answer {
    let tenant = call.application(app)?;
    let paging = Paging::ordered(&call.query, false)?;
    let mut all = endpoint::all(call, &tenant, |kind| kind != Kind::Endpoint);
    if !paging.ascending {
        all.reverse();
    }
    let key = |own: &Arc<SubscriptionView>| id::destination(own.subscription.id);
    let (found, done) = paging.cut(all, key);
    let (first, last) = (found.first().map(key), found.last().map(key));
    let mut data = Vec::new();
    for own in &found {
        data.push(view(call, own).await?);
    }
    ok(&shown_list(data, done, first, last))
}

/// `GET /app/{app}/destination/{destination}`.
pub(super) async fn get(call: &Call, app: &str, text: &str) -> Answer {
    let tenant = call.application(app)?;
    ok(&view(call, &*call.destination(tenant.id, text)?).await?)
}

/// Reads a body. The type must be there for a new one, and cannot be changed.
fn read(
    call: &Call,
    mut body: Object,
    old: Option<Kind>,
    change: bool,
) -> Result<(Kind, Contents), Failure> {
    let named = match body.text("type") {
        Given::Some(name) if ELSEWHERE.contains(&name.as_str()) => {
            return Err(Failure::not_implemented(&format!("destinations of the type {name}")));
        }
        Given::Some(name) => {
            let known = Kind::named(&name);
            if known.is_none() {
                body.refuse("type", "names no type of a destination");
            }
            known
        }
        Given::Absent if old.is_some() => None,
        _ => {
            body.refuse("type", "field required");
            None
        }
    };
    if let (Some(old), Some(named)) = (old, named)
        && old != named
    {
        body.refuse("type", format!("is {} and cannot be changed", old.name()));
    }
    let kind = old.or(named).unwrap_or(Kind::Polling);
    let mut contents =
        Contents::shared(&mut body, id::DESTINATION, |types| endpoint::check_types(call, types));
    contents.disabled = match body.text("status").or_absent().as_deref() {
        None => None,
        Some("enabled") => Some(false),
        Some("disabled") => Some(true),
        Some(_) => {
            body.refuse("status", "must be enabled or disabled");
            None
        }
    };
    if body.number("batchSize").or_absent().is_some_and(|size| size != 1) {
        body.refuse("batchSize", "must be 1: messages are sent one at a time");
    }
    if body.number("maxWaitSecs").or_absent().is_some_and(|wait| wait != 0) {
        body.refuse("maxWaitSecs", "must be 0: messages are sent one at a time, without waiting");
    }
    let config = body.object("config");
    match (kind, config) {
        (Kind::Fifo, Given::Some(mut config)) => {
            contents.url = endpoint::read_url(&mut config, change);
            contents.headers = config.texts("headers").or_absent();
            contents.secret = config.text("key").or_absent();
            if contents.secret.as_deref().is_some_and(|key| secret::read(key).is_err()) {
                config.refuse("key", secret::FORM);
            }
            body.done()?;
            config.done()?;
            return Ok((kind, contents));
        }
        (Kind::Fifo, _) if !change => body.refuse("config", "field required"),
        (Kind::Polling, _) if !change => {
            contents.url = Some(NO_URL.to_owned());
            contents.description = Some(POLLED.to_owned());
        }
        _ => {}
    }
    body.done()?;
    Ok((kind, contents))
}

/// `POST /app/{app}/destination`.
pub(super) async fn create(mut call: Call, app: &str, seed: Option<Seed>) -> Answer {
    let tenant = call.application(app)?;
    let body = call.object(tenant.id).await?;
    let (kind, contents) = read(&call, body, None, false)?;
    made(&call, &tenant, kind, contents, seed).await
}

async fn made(
    call: &Call,
    tenant: &Tenant,
    kind: Kind,
    contents: Contents,
    seed: Option<Seed>,
) -> Answer {
    let made = endpoint::make(call, tenant, kind, contents, seed).await?;
    Ok(json(StatusCode::CREATED, &view(call, &made).await?))
}

/// `PUT /app/{app}/destination/{destination}`: changed as a whole, or made under the uid of the body.
pub(super) async fn put(mut call: Call, app: &str, text: &str) -> Answer {
    let tenant = call.application(app)?;
    let body = call.object(tenant.id).await?;
    let old = call.destination(tenant.id, text).ok();
    let known = old.as_ref().map(|old| Kind::of(&old.subscription));
    let (kind, contents) = read(&call, body, known, false)?;
    let Some(old) = old else { return made(&call, &tenant, kind, contents, None).await };
    let (own, key) = (old.subscription.id, contents.secret.clone());
    let changed = endpoint::change(&call, &tenant, own, &contents.whole()).await?;
    if let Some(key) = key {
        secret::replace(&call, tenant.id, own, key).await?;
    }
    ok(&view(&call, &changed).await?)
}

/// `PATCH /app/{app}/destination/{destination}`: only what is said changes.
pub(super) async fn patch(mut call: Call, app: &str, text: &str) -> Answer {
    let tenant = call.application(app)?;
    let old = call.destination(tenant.id, text)?;
    let body = call.object(tenant.id).await?;
    let known = Kind::of(&old.subscription);
    let (_, contents) = read(&call, body, Some(known), true)?;
    let changed = endpoint::change(&call, &tenant, old.subscription.id, &contents).await?;
    ok(&view(&call, &changed).await?)
}

/// `DELETE /app/{app}/destination/{destination}`.
pub(super) async fn delete(call: Call, app: &str, text: &str) -> Answer {
    let tenant = call.application(app)?;
    let own = call.destination(tenant.id, text)?.subscription.id;
    call.service.engine.delete_subscription(tenant.id, own).await?;
    Ok(nothing())
}

/// `POST /app/{app}/destination/{destination}/secret/rotate`.
pub(super) async fn rotate(call: Call, app: &str, text: &str, seed: Option<Seed>) -> Answer {
    let tenant = call.application(app)?;
    let own = call.destination(tenant.id, text)?;
    if Kind::of(&own.subscription) == Kind::Polling {
        let detail = "Nothing is sent to a polling endpoint, so it has no secret.";
        return Err(Failure::bad_request("generic_error", detail));
    }
    secret::rotate(call, Whose::Application(app), text, seed).await
}
