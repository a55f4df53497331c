//! What happened to one delivery, and what it waits for: read from the store, told by
//! [`posthorn_domain::timeline`].

use posthorn_domain::filter::{Candidate, Matching};
use posthorn_domain::timeline::{Known, Step, timeline};
use posthorn_domain::{Attempt, Delivery, DeliveryId, Event, Stops, TenantId, Timestamp, Waiting};

use crate::catalog::SubscriptionView;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::matching::Matcher;

/// A delivery and everything its timeline is made of.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The delivery.
    pub delivery: Delivery,
    /// Which group of the subscription's filter matches the event now: the first that does. None when the
    /// filter has changed since, the subscription is gone, the payload was removed, or it would cost too much to
    /// find out.
    pub group: Option<usize>,
    /// When the times were read.
    pub now: Timestamp,
    accepted_at: Timestamp,
    deliver_at: Option<Timestamp>,
    expunged_at: Option<Timestamp>,
    attempts: Vec<Attempt>,
    stops: Stops,
    waiting: Option<Waiting>,
}

impl Timeline {
    /// All steps, in time order.
    pub fn steps(&self) -> Vec<Step<'_>> {
        timeline(&Known {
            accepted_at: self.accepted_at,
            deliver_at: self.deliver_at,
            expunged_at: self.expunged_at,
            delivery: &self.delivery,
            attempts: &self.attempts,
            stops: &self.stops,
            waiting: self.waiting,
            now: self.now,
        })
    }
}

impl Engine {
    /// What happened to a delivery, step by step.
    pub async fn timeline(&self, tenant: TenantId, id: DeliveryId) -> Result<Timeline> {
        let delivery = self.store().delivery(tenant, id).await?;
        let delivery = delivery.ok_or(Error::NotFound("delivery"))?;
        let attempts = self.store().attempts(tenant, id).await?;
        let event = self.store().event(tenant, delivery.event).await?;
        let waiting = self.waiting(tenant, std::slice::from_ref(&delivery)).await;
        let view = self.catalog().subscription(tenant, delivery.subscription).ok();
        let stops = view.as_ref().map(|view| view.subscription.stops.clone());
        let accepted_at = event.as_ref().map(|event| event.accepted_at);
        let deliver_at = event.as_ref().and_then(|event| event.deliver_at);
        let expunged_at = event.as_ref().and_then(|event| event.expunged_at);
        let group = match (event, view) {
            (Some(event), Some(view)) if expunged_at.is_none() => {
                let limit = self.inner.keeper.quotas().match_cost_per_event();
                if Matcher::is_long(view.cost.of(event.payload.len())) {
                    let work = move || group(&event, &view, limit);
                    self.inner.matcher.aside(tenant, work).await?
                } else {
                    group(&event, &view, limit).1
                }
            }
            _ => None,
        };
        Ok(Timeline {
            group,
            now: self.now(),
            // The id of an event tells when it was accepted.
            accepted_at: accepted_at.unwrap_or_else(|| delivery.event.made_at()),
            deliver_at,
            expunged_at,
            attempts,
            stops: stops.unwrap_or_default(),
            waiting: waiting.into_iter().next().flatten(),
            delivery,
        })
    }
}

/// The first group of a filter that matches an event, and what it cost to find out.
fn group(event: &Event, view: &SubscriptionView, limit: u64) -> (u64, Option<usize>) {
    let candidate = Candidate::metered(event, limit);
    let found = Matching::new(&candidate).group(&view.subscription.filter);
    let meter = candidate.meter();
    (meter.spent(), found.filter(|_| !meter.is_spent()))
}
