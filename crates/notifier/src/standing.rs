//! The standing subscription: what a `callbacks:` block becomes in an engine.
//!
//! At every start it is made, or brought in step with the configuration; when nothing differs,
//! nothing is written. Whether it is paused is the operator's business and left alone.

use posthorn_domain::filter::Group;
use posthorn_domain::{
    Filter, Labels, ProfileName, SubscriptionId, SubscriptionName, TenantId, TopicName,
};
use posthorn_engine::{Engine, NewSubscription};
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
    let group = Group { topics: vec![topic.clone()], ..Group::default() };
    let wanted = NewSubscription {
        name: Some(SubscriptionName::new(SUBSCRIPTION_NAME).expect("a valid name")),
        description: "kept in step with `callbacks` of the configuration".to_owned(),
        url: callbacks.url.clone(),
        filter: Some(Filter { any_of: vec![group], ..Filter::default() }),
        profile: Some(ProfileName::new(PROFILE).expect("a valid name")),
        overrides: callbacks.overrides.clone(),
        secrets: callbacks.secrets.clone(),
        ..NewSubscription::default()
    };
    let (view, changed) = engine.ensure_subscription(tenant, wanted).await?;
    let subscription = view.subscription.id;
    if changed {
        info!(%subscription, "the subscription for callbacks is in step with the configuration");
    }
    Ok(Standing { tenant, topic, subscription })
}
