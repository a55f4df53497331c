//! Operational webhooks: what an organisation is told about its endpoints, messages and tasks.
//!
//! Each is a subscription in the tenant of operators. It wants operational events of one realm only, which its filter says, and gets
//! them in the words of this API (`request.envelope: svix_operational`). Names are unique in that tenant, so that of a
//! realm stands before the uid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::StatusCode;
use posthorn_domain::filter::{AttributeValues, Glob, Group};
use posthorn_domain::{
    Filter, Labels, OperationalType, RealmName, Subscription, SubscriptionName, SubscriptionStatus,
    TenantId, TopicName,
};
use posthorn_engine::{
    DestinationInput, Error, NewSubscription, SubscriptionChange, SubscriptionView,
};
use serde_json::{Value, json};

use super::call::{Answer, Call, json, nothing, ok};
use super::endpoint::{Contents, conflict, headers, with_rate};
use super::failure::Failure;
use super::id;
use super::once::Seed;
use super::page::{Paging, list as shown_list};

/// The label with the realm whose these are. What else is in that tenant is none of this API's business.
const REALM: &str = "svix.operational";

/// What may be asked for.
fn kinds() -> impl Iterator<Item = (OperationalType, &'static str)> {
    OperationalType::ALL.into_iter().filter_map(|kind| Some((kind, kind.svix_name()?)))
}

/// Whether only what happens to messages is meant: deliveries of other topics are none.
const fn is_of_messages(kind: OperationalType) -> bool {
    matches!(
        kind,
        OperationalType::DeliveryFailing
            | OperationalType::DeliveryRecovered
            | OperationalType::DeliveryDead
    )
}

/// What one wants who asks for these types; for all where nothing is said.
fn filter(realm: &RealmName, topic: &TopicName, types: Option<&BTreeSet<String>>) -> Filter {
    let wanted = |messages: bool| {
        let all = kinds().filter(move |(kind, _)| is_of_messages(*kind) == messages);
        let all = all.filter(|(_, name)| types.is_none_or(|own| own.contains(*name)));
        all.map(|(kind, _)| Glob::new(kind.as_str())).collect::<Vec<_>>()
    };
    let group = |messages: bool| {
        let one = |text: &str| AttributeValues::One(text.to_owned());
        let mut attributes = BTreeMap::from([("realm".to_owned(), one(realm.as_str()))]);
        if messages {
            attributes.insert("topic".to_owned(), one(topic.as_str()));
        }
        Group {
            topics: vec![TopicName::operational()],
            types: wanted(messages),
            attributes,
            payload: None,
        }
    };
    // A group without types would want all.
    let any_of = [false, true].map(group).into_iter().filter(|group| !group.types.is_empty());
    Filter {
        any_of: any_of.collect(),
        missing_attribute: Default::default(),
        attribute_names: Default::default(),
    }
}

/// Back from a filter: nothing where it wants all.
fn types(filter: &Filter) -> Option<BTreeSet<&'static str>> {
    let wanted: BTreeSet<&str> =
        filter.any_of.iter().flat_map(|group| &group.types).map(Glob::as_str).collect();
    let named = kinds().filter(|(kind, _)| wanted.contains(kind.as_str()));
    let named: BTreeSet<&str> = named.map(|(_, name)| name).collect();
    (named.len() < kinds().count()).then_some(named)
}

fn check(types: &BTreeSet<String>) -> Result<(), String> {
    let known = |name: &String| kinds().any(|(_, own)| own == name);
    let unknown: Vec<&str> = types.iter().filter(|name| !known(name)).map(String::as_str).collect();
    match unknown.is_empty() {
        true => Ok(()),
        false => {
            let all: Vec<&str> = kinds().map(|(_, name)| name).collect();
            let (unknown, all) = (unknown.join(", "), all.join(", "));
            Err(format!("these are not told: {unknown}; what can be asked for is {all}"))
        }
    }
}

/// The name of its subscription.
fn full_name(realm: &RealmName, uid: &str) -> Result<SubscriptionName, Failure> {
    let name = format!("{realm}/{uid}").parse();
    name.map_err(|_| Failure::field("uid", "is too long with the name of the realm before it"))
}

fn is_own(call: &Call, own: &Subscription) -> bool {
    own.labels.get(REALM) == Some(call.caller.realm.as_str())
}

fn view(own: &Subscription) -> Value {
    let wanted = types(&own.filter);
    let rate =
        own.overrides.pointer("/limits/rate").and_then(Value::as_f64).map(|rate| rate as u64);
    let metadata: BTreeMap<String, String> = own.metadata.clone().into();
    let mut view = json!({
        "id": id::endpoint(own.id),
        "url": own.destination.url().unwrap_or_default(),
        "description": own.description,
        "disabled": !own.status.is_active(),
        "eventTypes": wanted,
        "filterTypes": wanted,
        "metadata": metadata,
        "throttleRate": rate,
        "rateLimit": rate,
        "createdAt": id::time(own.created_at),
        "updatedAt": id::time(own.updated_at),
    });
    if let Some((_, uid)) = own.name.as_ref().and_then(|name| name.as_str().rsplit_once('/')) {
        view["uid"] = json!(uid);
    }
    view
}

/// The one that a path names, by id or uid.
pub(super) fn find(call: &Call, text: &str) -> Result<Arc<SubscriptionView>, Failure> {
    let catalog = call.service.engine.catalog();
    let by_id = id::read_endpoint(text);
    let by_id = by_id.and_then(|own| catalog.subscription(TenantId::SYSTEM, own).ok());
    let found = by_id.or_else(|| {
        let name = full_name(&call.caller.realm, text).ok()?;
        catalog.subscription_named(TenantId::SYSTEM, &name)
    });
    found.filter(|view| is_own(call, &view.subscription)).ok_or(Failure::NotFound)
}

/// `GET /operational-webhook/endpoint`.
pub(super) fn list(call: &Call) -> Answer {
    let paging = Paging::ordered(&call.query, false)?;
    let mut all = call.service.engine.catalog().subscriptions(TenantId::SYSTEM);
    all.retain(|view| is_own(call, &view.subscription));
    all.sort_by_key(|view| view.subscription.id);
    if !paging.ascending {
        all.reverse();
    }
    let key = |view: &Arc<SubscriptionView>| id::endpoint(view.subscription.id);
    let (found, done) = paging.cut(all, key);
    let (first, last) = (found.first().map(key), found.last().map(key));
    let data = found.iter().map(|own| view(&own.subscription)).collect();
    ok(&shown_list(data, done, first, last))
}

/// `GET /operational-webhook/endpoint/{ep}`.
pub(super) fn get(call: &Call, ep: &str) -> Answer {
    ok(&view(&find(call, ep)?.subscription))
}

/// `POST /operational-webhook/endpoint`.
pub(super) async fn create(mut call: Call, seed: Option<Seed>) -> Answer {
    let mut body = call.object(TenantId::SYSTEM).await?;
    let contents = Contents::read(&mut body, false, check);
    body.done()?;
    let made = make(&call, contents, seed).await?;
    Ok(json(StatusCode::CREATED, &view(&made.subscription)))
}

async fn make(
    call: &Call,
    contents: Contents,
    seed: Option<Seed>,
) -> Result<Arc<SubscriptionView>, Failure> {
    let (realm, options) = (&call.caller.realm, &call.service.options);
    let (overrides, secrets) =
        contents.knobs(json!({"request": {"envelope": "svix_operational"}}))?;
    let labels = Labels::new([(REALM.to_owned(), realm.to_string())].into());
    let uid = contents.uid.flatten();
    let types = contents.types.flatten();
    let new = NewSubscription {
        name: uid.map(|uid| full_name(realm, &uid)).transpose()?,
        description: contents.description.unwrap_or_default(),
        labels: labels.map_err(|error| Failure::shape(error.to_string()))?,
        destination: DestinationInput::Webhook(contents.url.unwrap_or_default()),
        filter: Some(filter(realm, &options.topic, types.as_ref())),
        profile: Some(options.profile.clone()),
        overrides,
        secrets,
        metadata: contents.metadata.unwrap_or_default(),
        paused: contents.disabled.unwrap_or(false),
        seed: seed.map(Seed::of_id),
        ..NewSubscription::default()
    };
    let made = call.service.engine.create_subscription(TenantId::SYSTEM, new).await;
    made.map(|(view, _)| view).map_err(conflict)
}

/// `PUT /operational-webhook/endpoint/{ep}`: changed as a whole, or made under the uid of the body.
pub(super) async fn put(mut call: Call, ep: &str) -> Answer {
    let mut body = call.object(TenantId::SYSTEM).await?;
    let contents = Contents { secret: None, ..Contents::read(&mut body, false, check) };
    body.done()?;
    let Ok(old) = find(&call, ep) else {
        let made = make(&call, contents, None).await?;
        return Ok(json(StatusCode::CREATED, &view(&made.subscription)));
    };
    let (own, engine) = (&old.subscription, &call.service.engine);
    let (realm, topic) = (&call.caller.realm, &call.service.options.topic);
    let types = contents.types.flatten();
    let name = contents.uid.flatten().map(|uid| full_name(realm, &uid)).transpose()?;
    let mut overrides = with_rate(own.overrides.clone(), contents.rate.flatten());
    let mut secrets = Vec::new();
    if let Some(given) = &contents.headers {
        let custom = headers::Custom::default().put(given)?;
        overrides = custom.write(overrides);
        secrets.extend(custom.secrets()?);
    }
    let url = contents.url.filter(|url| own.destination.url() != Some(url));
    let change = SubscriptionChange {
        name: Some(name),
        description: Some(contents.description.unwrap_or_default()),
        destination: url.map(DestinationInput::Webhook),
        filter: Some(filter(realm, topic, types.as_ref())),
        overrides: Some(overrides),
        metadata: Some(contents.metadata.unwrap_or_default()),
        secrets,
        only_needed_secrets: contents.headers.is_some(),
        expected: Some(own.version),
        ..SubscriptionChange::default()
    };
    let changed = engine.update_subscription(TenantId::SYSTEM, own.id, change).await;
    changed.map_err(|error| match error {
        Error::Changed { .. } => {
            Failure::conflict("The endpoint is being changed by others; try again.")
        }
        other => conflict(other),
    })?;
    let disabled = contents.disabled.unwrap_or(false);
    let turned = match &own.status {
        SubscriptionStatus::Active if disabled => {
            engine.pause_subscription(TenantId::SYSTEM, own.id).await?
        }
        status if !status.is_active() && !disabled => {
            engine.resume_subscription(TenantId::SYSTEM, own.id).await?
        }
        _ => engine.catalog().subscription(TenantId::SYSTEM, own.id)?,
    };
    ok(&view(&turned.subscription))
}

/// `DELETE /operational-webhook/endpoint/{ep}`.
pub(super) async fn delete(call: Call, ep: &str) -> Answer {
    let own = find(&call, ep)?.subscription.id;
    call.service.engine.delete_subscription(TenantId::SYSTEM, own).await?;
    Ok(nothing())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_comes_back_from_its_filter() {
        let (realm, topic) = (RealmName::default(), "messages".parse().expect("a topic"));
        assert_eq!(types(&filter(&realm, &topic, None)), None);
        for all in [
            vec!["endpoint.disabled"],
            vec!["message.attempt.exhausted"],
            vec!["endpoint.created", "message.attempt.failing", "background_task.finished"],
        ] {
            let wanted: BTreeSet<String> = all.iter().map(|name| (*name).to_owned()).collect();
            let made = filter(&realm, &topic, Some(&wanted));
            made.validate().expect("a filter");
            let back: BTreeSet<&str> = all.into_iter().collect();
            assert_eq!(types(&made), Some(back));
            let bound = |group: &Group| group.attributes.contains_key("realm");
            assert!(made.any_of.iter().all(bound), "another realm's are never wanted");
        }
    }

    #[test]
    fn what_is_never_told_cannot_be_asked_for() {
        let problem = check(&["endpoint.gone".to_owned()].into()).expect_err("refused");
        assert!(problem.contains("endpoint.gone") && problem.contains("endpoint.disabled"));
    }
}
