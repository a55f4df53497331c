//! The standing subscription: what a `callbacks:` block becomes in an engine.
//!
//! At every start it is made, or brought in step with the configuration; when nothing differs,
//! nothing is written. Whether it is paused is the operator's business and left alone, with one
//! exception: one that the configuration no longer asks for is paused and marked, and goes on when the
//! configuration asks for it again. Its work waits meanwhile.

use std::sync::Arc;

use posthorn::SystemClock;
use posthorn_domain::filter::Group;
use posthorn_domain::{
    Filter, Labels, ProfileName, SubscriptionId, SubscriptionName, TenantId, TopicName,
};
use posthorn_engine::{Engine, NewSubscription, Publish, SubscriptionChange, SubscriptionView};
use tracing::{info, warn};

use crate::config::Callbacks;
use crate::error::Error;
use crate::event::prepare_json;

/// What the standing subscription is called.
pub const SUBSCRIPTION_NAME: &str = "cedros-callbacks";
/// The profile it names.
pub const PROFILE: &str = "cedros";

/// The label by which a standing subscription is known, and the one that says that it was paused here.
const KEPT: (&str, &str) = ("kept-by", "callbacks");
const OFF: (&str, &str) = ("callbacks", "off");

fn name() -> SubscriptionName {
    SubscriptionName::new(SUBSCRIPTION_NAME).expect("a valid name")
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    Labels::new(pairs.collect()).expect("short names and texts")
}

fn has(view: &SubscriptionView, label: (&str, &str)) -> bool {
    view.subscription.labels.get(label.0) == Some(label.1)
}

/// Pauses every standing subscription that the configuration does not ask for any more: all but this
/// one, in whichever tenant. Its work is kept.
pub async fn retire_subscriptions(
    engine: &Engine,
    but: Option<SubscriptionId>,
) -> Result<(), Error> {
    for tenant in engine.catalog().tenants() {
        let Some(view) = engine.catalog().subscription_named(tenant.id, &name()) else { continue };
        let id = view.subscription.id;
        let active = view.subscription.status.is_active();
        if Some(id) == but || !has(&view, KEPT) || !active {
            continue;
        }
        // Marked first: should the rest not happen, the next start does it.
        let change = SubscriptionChange {
            labels: Some(labels(&[KEPT, OFF])),
            ..SubscriptionChange::default()
        };
        engine.update_subscription(tenant.id, id, change).await?;
        engine.pause_subscription(tenant.id, id).await?;
        warn!(subscription = %id, tenant = %tenant.name, "paused the subscription for callbacks, \
                                                          because the configuration no longer has \
                                                          it; its deliveries wait");
    }
    Ok(())
}

/// Gives events what the wire always has, when their publisher left it out.
fn fill_in(mut publish: Publish) -> Publish {
    // Whatever else it is, it is not an event of the wire.
    let media_type = publish.content_type.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        let event_type = publish.event_type.as_str();
        if let Some(payload) = prepare_json(&publish.payload, event_type, &SystemClock) {
            publish.payload = payload;
        }
    }
    publish
}

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
    if let Some(view) = engine.catalog().subscription_named(tenant, &name())
        && has(&view, OFF)
    {
        // Before the mark is taken away: should the rest not happen, the next start does it.
        engine.resume_subscription(tenant, view.subscription.id).await?;
    }
    let group = Group { topics: vec![topic.clone()], ..Group::default() };
    let wanted = NewSubscription {
        name: Some(name()),
        labels: labels(&[KEPT]),
        description: "managed by `callbacks` of the configuration".to_owned(),
        destination: callbacks.url.as_str().into(),
        filter: Some(Filter { any_of: vec![group], ..Filter::default() }),
        profile: Some(ProfileName::new(PROFILE).expect("a valid name")),
        overrides: callbacks.overrides.clone(),
        secrets: callbacks.secrets.clone(),
        ..NewSubscription::default()
    };
    let own = topic.clone();
    let check = move |_: &Engine, publish: Publish| {
        Ok(if publish.topic == own { fill_in(publish) } else { publish })
    };
    engine.check_publishes(tenant, Arc::new(check));
    let (view, changed) = engine.ensure_subscription(tenant, wanted).await?;
    let subscription = view.subscription.id;
    if changed {
        info!(%subscription, "the subscription for callbacks matches the configuration");
    }
    Ok(Standing { tenant, topic, subscription })
}
