//! The standing subscription: what a `callbacks:` block becomes in an engine.
//!
//! At every start it is made, or brought in step with the configuration; when nothing differs,
//! nothing is written. Whether it is paused is the operator's business and left alone.

use std::sync::Arc;

use posthorn_domain::{
    Destination, Filter, Labels, ProfileName, SubscriptionId, SubscriptionName, TenantId, TopicName,
};
use posthorn_engine::{
    Engine, Error as EngineError, NewSubscription, SubscriptionChange, SubscriptionView,
};
use tracing::info;

use crate::config::Callbacks;
use crate::error::Error;

/// What the standing subscription is called.
pub const SUBSCRIPTION_NAME: &str = "cedros-callbacks";
/// The profile it names.
const PROFILE: &str = "cedros";

/// Where events for the standing subscription are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// In which tenant.
    pub tenant: TenantId,
    /// On which topic.
    pub topic: TopicName,
    /// The subscription.
    pub subscription: SubscriptionId,
}

/// Makes the tenant, the topic and the subscription of a `callbacks:` block, or brings them in step.
pub async fn keep_subscription(engine: &Engine, callbacks: &Callbacks) -> Result<Standing, Error> {
    let tenant = match &callbacks.tenant {
        Some(name) => engine.ensure_tenant(name).await?.id,
        None => TenantId::DEFAULT,
    };
    let topic = callbacks.topic.clone();
    if engine.catalog().topic(tenant, &topic).is_err() {
        let description = "payments and refunds, for callbacks".to_owned();
        engine.put_topic(tenant, topic.clone(), description, Vec::new(), Labels::default()).await?;
    }
    let kept = match find(engine, tenant) {
        Some(view) => bring_in_step(engine, &view, callbacks).await?,
        None => match create(engine, tenant, callbacks).await {
            // Another node was faster, and this one has heard of it.
            Err(Error::Engine(EngineError::AlreadyExists(_))) => {
                let view = find(engine, tenant).ok_or(EngineError::NotFound("subscription"))?;
                bring_in_step(engine, &view, callbacks).await?
            }
            made => made?,
        },
    };
    Ok(Standing { tenant, topic, subscription: kept })
}

fn name() -> SubscriptionName {
    SubscriptionName::new(SUBSCRIPTION_NAME).expect("a valid name")
}

fn find(engine: &Engine, tenant: TenantId) -> Option<Arc<SubscriptionView>> {
    engine.catalog().subscription_named(tenant, &name())
}

fn filter_of(callbacks: &Callbacks) -> Filter {
    let group = posthorn_domain::filter::Group {
        topics: vec![callbacks.topic.clone()],
        ..Default::default()
    };
    Filter { any_of: vec![group], ..Filter::default() }
}

fn profile() -> ProfileName {
    ProfileName::new(PROFILE).expect("a valid name")
}

async fn create(
    engine: &Engine,
    tenant: TenantId,
    callbacks: &Callbacks,
) -> Result<SubscriptionId, Error> {
    let new = NewSubscription {
        name: Some(name()),
        description: "kept in step with `callbacks` of the configuration".to_owned(),
        url: callbacks.url.clone(),
        filter: Some(filter_of(callbacks)),
        profile: Some(profile()),
        overrides: callbacks.overrides.clone(),
        secrets: callbacks.secrets.clone(),
        ..NewSubscription::default()
    };
    let (view, _) = engine.create_subscription(tenant, new).await?;
    let id = view.subscription.id;
    info!(subscription = %id, "made the subscription for callbacks");
    Ok(id)
}

async fn bring_in_step(
    engine: &Engine,
    view: &SubscriptionView,
    callbacks: &Callbacks,
) -> Result<SubscriptionId, Error> {
    let subscription = &view.subscription;
    let (tenant, id) = (subscription.tenant, subscription.id);
    let Destination::Webhook { url } = &subscription.destination;
    let filter = filter_of(callbacks);
    let mut secrets = callbacks.secrets.iter();
    let same = *url == engine.check_url(&callbacks.url)?
        && subscription.filter == filter
        && subscription.profile == profile()
        && subscription.overrides == callbacks.overrides
        && secrets.all(|secret| view.has_secret(&secret.name, &secret.value, engine.now()));
    if same {
        return Ok(id);
    }
    let change = SubscriptionChange {
        url: Some(callbacks.url.clone()),
        filter: Some(filter),
        profile: Some(profile()),
        overrides: Some(callbacks.overrides.clone()),
        secrets: callbacks.secrets.clone(),
        ..SubscriptionChange::default()
    };
    engine.update_subscription(tenant, id, change).await?;
    info!(subscription = %id, "brought the subscription for callbacks in step");
    Ok(id)
}
