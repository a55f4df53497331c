//! Endpoints: subscriptions to the topic of messages.
//!
//! What an endpoint wants is its filter, which can be read back as the event types and channels it was made of. A channel of a
//! message is an attribute of its event; an endpoint with channels has a group of conditions for each of them.

mod filter;
pub(super) mod headers;
pub(super) mod kind;
pub(super) mod secret;
pub(super) mod stats;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::StatusCode;
use posthorn_domain::{
    Metadata, SecretName, Subscription, SubscriptionId, SubscriptionName, SubscriptionStatus,
    Tenant,
};
use posthorn_engine::{
    DestinationInput, Error, NewSubscription, SecretInput, SubscriptionChange, SubscriptionView,
};
use serde_json::{Value, json};

use super::body::{Given, Object};
use super::call::{Answer, Call, json, nothing, ok};
use super::failure::Failure;
use super::id;
use super::once::Seed;
use super::page::{Paging, list as shown_list};

pub(super) use filter::{ATTRIBUTE_PREFIX, Wanted};
pub(super) use kind::Kind;

/// What the profile calls the secret that it signs with.
pub(super) const SIGNING: &str = "signing";
/// Channels of an endpoint, and the longest.
pub(super) const CHANNELS_MAX: usize = 10;
pub(super) const CHANNEL_BYTES_MAX: usize = 90;
/// How often a change is merged anew when others change the same thing at the same time.
pub(super) const TRIES: usize = 5;
/// The label that keeps what an endpoint wants while it is disabled and gets nothing.
const KEPT_FILTER: &str = "svix.filter";

/// What an endpoint is shown as.
pub(super) fn view(call: &Call, view: &SubscriptionView) -> Value {
    let own = &view.subscription;
    let wanted = wanted(call, own);
    let rate =
        own.overrides.pointer("/limits/rate").and_then(Value::as_f64).map(|rate| rate as u64);
    let metadata: BTreeMap<String, String> = own.metadata.clone().into();
    let mut view = json!({
        "id": id::endpoint(own.id),
        "url": own.destination.url().unwrap_or_default(),
        "version": 1,
        "description": own.description,
        "disabled": !own.status.is_active(),
        "eventTypes": wanted.types,
        "filterTypes": wanted.types,
        "channels": wanted.channels,
        "metadata": metadata,
        "throttleRate": rate,
        "rateLimit": rate,
        "createdAt": id::time(own.created_at),
        "updatedAt": id::time(own.updated_at),
    });
    if let Some(uid) = &own.name {
        view["uid"] = json!(uid);
    }
    view
}

/// What it wants, or wanted when it was disabled.
pub(super) fn wanted(call: &Call, own: &Subscription) -> Wanted {
    let topic = Kind::of(own).topic(&call.service.options.topic);
    Wanted::read(&kept_filter(own), &topic)
}

fn kept_filter(own: &Subscription) -> posthorn_domain::Filter {
    let kept = own.labels.get(KEPT_FILTER).and_then(|text| serde_json::from_str(text).ok());
    kept.unwrap_or_else(|| own.filter.clone())
}

/// All endpoints of an application, or all of its destinations, oldest first.
pub(super) fn all(
    call: &Call,
    tenant: &Tenant,
    of: impl Fn(Kind) -> bool,
) -> Vec<Arc<SubscriptionView>> {
    let mut all = call.service.engine.catalog().subscriptions(tenant.id);
    all.retain(|view| Kind::of_url(&view.subscription).is_some_and(&of));
    all.sort_by_key(|view| view.subscription.id);
    all
}

/// `GET /app/{app}/endpoint`.
pub(super) fn list(call: &Call, app: &str) -> Answer {
    let tenant = call.application(app)?;
    let paging = Paging::ordered(&call.query, false)?;
    let mut all = all(call, &tenant, |kind| kind == Kind::Endpoint);
    if !paging.ascending {
        all.reverse();
    }
    let key = |view: &Arc<SubscriptionView>| id::endpoint(view.subscription.id);
    let (found, done) = paging.cut(all, key);
    let (first, last) = (found.first().map(key), found.last().map(key));
    let data = found.iter().map(|own| view(call, own)).collect();
    ok(&shown_list(data, done, first, last))
}

/// `GET /app/{app}/endpoint/{ep}`.
pub(super) fn get(call: &Call, app: &str, ep: &str) -> Answer {
    let tenant = call.application(app)?;
    ok(&view(call, &*call.endpoint(tenant.id, ep)?))
}

/// What somebody says about an endpoint or a destination.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) url: Option<String>,
    pub(super) uid: Option<Option<String>>,
    pub(super) description: Option<String>,
    pub(super) disabled: Option<bool>,
    pub(super) types: Option<Option<BTreeSet<String>>>,
    pub(super) channels: Option<Option<BTreeSet<String>>>,
    pub(super) rate: Option<Option<u64>>,
    pub(super) metadata: Option<Metadata>,
    pub(super) secret: Option<String>,
    pub(super) headers: Option<BTreeMap<String, String>>,
}

impl Contents {
    /// The overrides of a new one, on top of those of its kind, and its secrets.
    pub(super) fn knobs(&self, kind: Value) -> Result<(Value, Vec<SecretInput>), Failure> {
        let mut overrides = with_rate(kind, self.rate.flatten());
        let mut secrets = Vec::new();
        if let Some(secret) = &self.secret {
            secrets.push(SecretInput { name: named(SIGNING)?, value: secret::read(secret)? });
        }
        if let Some(headers) = &self.headers {
            let custom = headers::Custom::default().put(headers)?;
            overrides = custom.write(overrides);
            secrets.extend(custom.secrets()?);
        }
        Ok((overrides, secrets))
    }

    /// `check` says what is wrong with the event types that are asked for.
    pub(super) fn read(
        body: &mut Object,
        change: bool,
        check: impl FnOnce(&BTreeSet<String>) -> Result<(), String>,
    ) -> Self {
        let mut contents = Self::shared(body, id::ENDPOINT, check);
        contents.url = read_url(body, change);
        contents.description = body.text("description").or_absent();
        contents.disabled = body.flag("disabled").or_absent();
        contents.rate = body.number_of("throttleRate", "rateLimit").change().map(|rate| {
            let rate = rate?;
            if !(1..=u64::from(u16::MAX)).contains(&rate) {
                body.refuse("throttleRate", "must be from 1 to 65535");
            }
            Some(rate)
        });
        contents.secret = body.text("secret").or_absent();
        contents.headers = body.texts("headers").or_absent();
        if body.number("version") == Given::Some(0) {
            body.refuse("version", "must be at least 1");
        }
        contents
    }

    /// What endpoints and destinations have in common.
    pub(super) fn shared(
        body: &mut Object,
        prefix: &str,
        check: impl FnOnce(&BTreeSet<String>) -> Result<(), String>,
    ) -> Self {
        let uid = body.text("uid").change().map(|uid| {
            let uid = uid?;
            match id::check_uid(&uid, prefix) {
                Ok(()) => Some(uid),
                Err(problem) => {
                    body.refuse("uid", problem);
                    None
                }
            }
        });
        let types = body.set("eventTypes", Some("filterTypes")).change().map(|types| {
            // An empty list is what some pages send for everything.
            let types = types.filter(|types| !types.is_empty())?;
            if let Err(problem) = check(&types) {
                body.refuse("eventTypes", problem);
            }
            Some(types)
        });
        let channels = body.set("channels", None).change().map(|channels| {
            let channels = channels.filter(|channels| !channels.is_empty())?;
            if let Err(problem) = check_channels(&channels) {
                body.refuse("channels", problem);
            }
            Some(channels)
        });
        let metadata = body.texts("metadata").change().map(Option::unwrap_or_default);
        let metadata = metadata.and_then(|pairs| match Metadata::try_from(pairs) {
            Ok(metadata) => Some(metadata),
            Err(error) => {
                body.refuse("metadata", error.to_string());
                None
            }
        });
        Self { uid, types, channels, metadata, ..Self::default() }
    }

    /// What was not said is to be as in something new.
    pub(super) fn whole(self) -> Self {
        Self {
            uid: Some(self.uid.flatten()),
            description: Some(self.description.unwrap_or_default()),
            disabled: Some(self.disabled.unwrap_or(false)),
            types: Some(self.types.flatten()),
            channels: Some(self.channels.flatten()),
            rate: Some(self.rate.flatten()),
            metadata: Some(self.metadata.unwrap_or_default()),
            secret: None,
            ..self
        }
    }

    /// As the name of a subscription: every uid fits.
    fn name(&self) -> Option<Option<SubscriptionName>> {
        self.uid.as_ref().map(|uid| uid.as_ref().and_then(|uid| uid.parse().ok()))
    }

    fn filter(&self, call: &Call, old: &Wanted, kind: Kind) -> posthorn_domain::Filter {
        let wanted = Wanted {
            types: self.types.clone().unwrap_or_else(|| old.types.clone()),
            channels: self.channels.clone().unwrap_or_else(|| old.channels.clone()),
        };
        wanted.filter(&kind.topic(&call.service.options.topic))
    }
}

/// A URL as it comes back: a bare host has a path. It must be there unless it is only a change.
pub(super) fn read_url(body: &mut Object, change: bool) -> Option<String> {
    let text = match body.text("url") {
        Given::Some(text) => text,
        Given::Absent if change => return None,
        _ => {
            body.refuse("url", "field required");
            return None;
        }
    };
    match url::Url::parse(&text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Some(url.to_string()),
        _ => {
            body.refuse("url", "must be an http or https URL");
            None
        }
    }
}

/// Only types that the catalogue has can be asked for.
pub(super) fn check_types(call: &Call, types: &BTreeSet<String>) -> Result<(), String> {
    let catalog = call.service.engine.catalog();
    let known = |name: &&String| {
        let name = name.parse().ok();
        let found = name.and_then(|name| catalog.event_type(&call.caller.realm, &name).ok());
        found.is_some_and(|known| !known.archived)
    };
    let unknown: Vec<&str> = types.iter().filter(|name| !known(name)).map(String::as_str).collect();
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(format!("these event types do not exist: {}", unknown.join(", "))),
    }
}

/// Channels of a message or an endpoint.
pub(super) fn check_channels(channels: &BTreeSet<String>) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '+');
    let fits =
        |own: &String| !own.is_empty() && own.len() <= CHANNEL_BYTES_MAX && own.chars().all(plain);
    if channels.len() > CHANNELS_MAX || !channels.iter().all(fits) {
        return Err(format!(
            "must be at most {CHANNELS_MAX}, each of 1 to {CHANNEL_BYTES_MAX} characters of A-Z a-z 0-9 - _ . : +"
        ));
    }
    Ok(())
}

fn named(name: &str) -> Result<SecretName, Failure> {
    SecretName::new(name).map_err(|error| Failure::shape(error.to_string()))
}

/// What a policy is changed to: the rate, and headers with their secrets.
pub(super) fn with_rate(mut overrides: Value, rate: Option<u64>) -> Value {
    if !overrides.is_object() {
        overrides = json!({});
    }
    match rate {
        Some(rate) => overrides["limits"]["rate"] = json!(rate as f64),
        None => {
            if let Some(limits) = overrides.get_mut("limits").and_then(Value::as_object_mut) {
                limits.remove("rate");
            }
        }
    }
    overrides
}

pub(super) fn conflict(error: Error) -> Failure {
    match error {
        Error::AlreadyExists(_) => {
            Failure::conflict("An endpoint or destination with this uid already exists.")
        }
        other => other.into(),
    }
}

/// `POST /app/{app}/endpoint`.
pub(super) async fn create(mut call: Call, app: &str, seed: Option<Seed>) -> Answer {
    let tenant = call.application(app)?;
    let mut body = call.object(tenant.id).await?;
    let contents = Contents::read(&mut body, false, |types| check_types(&call, types));
    body.done()?;
    let made = make(&call, &tenant, Kind::Endpoint, contents, seed).await?;
    Ok(json(StatusCode::CREATED, &view(&call, &made)))
}

pub(super) async fn make(
    call: &Call,
    tenant: &Tenant,
    kind: Kind,
    contents: Contents,
    seed: Option<Seed>,
) -> Result<Arc<SubscriptionView>, Failure> {
    let filter = contents.filter(call, &Wanted::default(), kind);
    let (overrides, secrets) = contents.knobs(kind.overrides())?;
    let paused = contents.disabled.unwrap_or(false);
    let drops = paused && kind.drops(call.service.options.disabled);
    let (labels, filter) = shelve(&kind.labels(), filter, drops);
    let new = NewSubscription {
        name: contents.name().flatten(),
        description: contents.description.unwrap_or_default(),
        labels,
        destination: DestinationInput::Webhook(contents.url.unwrap_or_default()),
        filter: Some(filter),
        profile: Some(call.service.options.profile.clone()),
        overrides,
        secrets,
        metadata: contents.metadata.unwrap_or_default(),
        paused,
        seed: seed.map(Seed::of_id),
        ..NewSubscription::default()
    };
    let made = call.service.engine.create_subscription(tenant.id, new).await;
    made.map(|(view, _)| view).map_err(conflict)
}

/// The labels and the filter of an endpoint. One that drops what comes while it is disabled wants nothing meanwhile, and remembers
/// what it wants otherwise.
fn shelve(
    labels: &posthorn_domain::Labels,
    filter: posthorn_domain::Filter,
    drops: bool,
) -> (posthorn_domain::Labels, posthorn_domain::Filter) {
    let mut all: BTreeMap<String, String> =
        labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    all.remove(KEPT_FILTER);
    let text = drops.then(|| serde_json::to_string(&filter).ok()).flatten();
    all.extend(text.map(|text| (KEPT_FILTER.to_owned(), text)));
    match posthorn_domain::Labels::new(all) {
        Ok(labels) if drops => {
            let nothing = posthorn_domain::Filter { any_of: Vec::new(), ..filter };
            (labels, nothing)
        }
        Ok(labels) => (labels, filter),
        Err(_) => (labels.clone(), filter),
    }
}

/// `PUT /app/{app}/endpoint/{ep}`: changed as a whole, or made under the uid of the body.
pub(super) async fn put(mut call: Call, app: &str, ep: &str) -> Answer {
    let tenant = call.application(app)?;
    let mut body = call.object(tenant.id).await?;
    let contents = Contents::read(&mut body, false, |types| check_types(&call, types));
    body.done()?;
    match call.endpoint(tenant.id, ep) {
        Ok(old) => {
            let own = old.subscription.id;
            ok(&view(&call, &*change(&call, &tenant, own, &contents.whole()).await?))
        }
        Err(_) => {
            let contents = Contents { secret: None, ..contents };
            let made = make(&call, &tenant, Kind::Endpoint, contents, None).await?;
            Ok(json(StatusCode::CREATED, &view(&call, &made)))
        }
    }
}

/// `PATCH /app/{app}/endpoint/{ep}`: only what is said changes.
pub(super) async fn patch(mut call: Call, app: &str, ep: &str) -> Answer {
    let tenant = call.application(app)?;
    let own = call.endpoint(tenant.id, ep)?.subscription.id;
    let mut body = call.object(tenant.id).await?;
    let contents = Contents::read(&mut body, true, |types| check_types(&call, types));
    body.done()?;
    ok(&view(&call, &*change(&call, &tenant, own, &contents).await?))
}

/// Merges what was said into what is there, as often as others interfere.
pub(super) async fn change(
    call: &Call,
    tenant: &Tenant,
    id: SubscriptionId,
    contents: &Contents,
) -> Result<Arc<SubscriptionView>, Failure> {
    let engine = &call.service.engine;
    for _ in 0..TRIES {
        let old = engine.catalog().subscription(tenant.id, id)?;
        let own = &old.subscription;
        let kind = Kind::of(own);
        let asks = contents.types.is_some() || contents.channels.is_some();
        let filter = match asks {
            true => contents.filter(call, &wanted(call, own), kind),
            false => kept_filter(own),
        };
        let disabled = contents.disabled.unwrap_or(!own.status.is_active());
        let drops = disabled && kind.drops(call.service.options.disabled);
        let (labels, filter) = shelve(&own.labels, filter, drops);
        let mut overrides = own.overrides.clone();
        if let Some(rate) = contents.rate {
            overrides = with_rate(overrides, rate);
        }
        let mut secrets = Vec::new();
        if let Some(headers) = &contents.headers {
            let custom = headers::Custom::read(own).put(headers)?;
            overrides = custom.write(overrides);
            secrets.extend(custom.secrets()?);
        }
        let url = contents.url.as_ref().filter(|url| own.destination.url() != Some(url));
        let change = SubscriptionChange {
            name: contents.name(),
            description: contents.description.clone(),
            labels: (labels != own.labels).then_some(labels),
            destination: url.map(|url| DestinationInput::Webhook(url.clone())),
            filter: (filter != own.filter).then_some(filter),
            overrides: (overrides != own.overrides).then_some(overrides),
            metadata: contents.metadata.clone(),
            secrets,
            only_needed_secrets: contents.headers.is_some(),
            expected: Some(own.version),
            ..SubscriptionChange::default()
        };
        match engine.update_subscription(tenant.id, own.id, change).await {
            Ok(_) => {}
            // Somebody else was faster; this request is for what is there now.
            Err(Error::Changed { .. }) => {
                engine.refresh_catalog().await?;
                continue;
            }
            Err(error) => return Err(conflict(error)),
        }
        return turn(call, tenant, &old, contents.disabled).await;
    }
    Err(Failure::conflict("The endpoint is being changed by others; try again."))
}

/// Enables or disables it, where that was said.
async fn turn(
    call: &Call,
    tenant: &Tenant,
    old: &SubscriptionView,
    disabled: Option<bool>,
) -> Result<Arc<SubscriptionView>, Failure> {
    let (engine, own) = (&call.service.engine, &old.subscription);
    match (disabled, &own.status) {
        (Some(true), SubscriptionStatus::Active) => {
            let turned = engine.pause_subscription(tenant.id, own.id).await?;
            if Kind::of(own).drops(call.service.options.disabled) {
                super::replay::drop_pending(call, tenant.id, own.id).await?;
            }
            Ok(turned)
        }
        (Some(false), status) if !status.is_active() => {
            Ok(engine.resume_subscription(tenant.id, own.id).await?)
        }
        _ => Ok(engine.catalog().subscription(tenant.id, own.id)?),
    }
}

/// `DELETE /app/{app}/endpoint/{ep}`.
pub(super) async fn delete(call: Call, app: &str, ep: &str) -> Answer {
    let tenant = call.application(app)?;
    let own = call.endpoint(tenant.id, ep)?.subscription.id;
    call.service.engine.delete_subscription(tenant.id, own).await?;
    Ok(nothing())
}
