//! Why did, or didn't, a subscription get an event?

use std::collections::BTreeSet;
use std::sync::Arc;

use posthorn_domain::filter::Candidate;
use posthorn_domain::{Attempt, Delivery, Event, EventId, SubscriptionId, TenantId, Waiting};
use posthorn_store::DeliveryFilter;

use crate::catalog::SubscriptionView;
use crate::engine::Engine;
use crate::error::{Error, Result};

/// Subscriptions that did not get it are listed up to here.
const NOT_DELIVERED_MAX: usize = 200;
/// Deliveries explained with their attempts at most.
const DELIVERIES_MAX: usize = 200;
/// Deliveries read at once.
const PAGE: usize = 1_000;

/// An event and everything that became of it.
#[derive(Clone, Debug)]
pub struct EventExplanation {
    /// The event.
    pub event: Event,
    /// Its deliveries, each with every attempt.
    pub deliveries: Vec<(Delivery, Vec<Attempt>)>,
    /// For each of them: why it waits, if it does.
    pub waiting: Vec<Option<Waiting>>,
    /// Subscriptions of the tenant that did not get it, and why not.
    pub not_delivered: Vec<NotDelivered>,
    /// Whether a list was cut short.
    pub truncated: bool,
}

/// A subscription that did not get an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotDelivered {
    /// Which.
    pub subscription: SubscriptionId,
    /// Why not, in words; one for each group of its filter.
    pub reasons: Vec<String>,
}

impl Engine {
    /// An event, which subscriptions it went to, which not and why, and every attempt.
    pub async fn explain_event(&self, tenant: TenantId, id: EventId) -> Result<EventExplanation> {
        let event = self.store().event(tenant, id).await?.ok_or(Error::NotFound("event"))?;
        let mut all: Vec<Delivery> = Vec::new();
        loop {
            let filter = DeliveryFilter {
                event: Some(id),
                before: all.last().map(|delivery| delivery.id),
                limit: PAGE,
                ..DeliveryFilter::default()
            };
            let page = self.store().deliveries(tenant, filter).await?;
            all.extend(page.items);
            if !page.more {
                break;
            }
        }
        let got: BTreeSet<SubscriptionId> = all.iter().map(|d| d.subscription).collect();
        all.sort_by_key(|delivery| delivery.seq);
        let cut = all.len() > DELIVERIES_MAX;
        all.truncate(DELIVERIES_MAX);
        let waiting = self.waiting(tenant, &all).await;
        let mut deliveries = Vec::with_capacity(all.len());
        for delivery in all {
            let attempts = self.store().attempts(tenant, delivery.id).await?;
            deliveries.push((delivery, attempts));
        }
        let candidate = Candidate::new(&event);
        let mut not_delivered: Vec<NotDelivered> = self
            .catalog()
            .subscriptions(tenant)
            .iter()
            .filter(|view| !got.contains(&view.subscription.id))
            .take(NOT_DELIVERED_MAX + 1)
            .map(|view| NotDelivered {
                subscription: view.subscription.id,
                reasons: reasons(view, &event, &candidate),
            })
            .collect();
        let truncated = cut || not_delivered.len() > NOT_DELIVERED_MAX;
        not_delivered.truncate(NOT_DELIVERED_MAX);
        Ok(EventExplanation { event: event.clone(), deliveries, waiting, not_delivered, truncated })
    }
}

fn reasons(view: &Arc<SubscriptionView>, event: &Event, candidate: &Candidate<'_>) -> Vec<String> {
    if view.subscription.created_at > event.accepted_at {
        return vec!["the subscription was created after the event was accepted".to_owned()];
    }
    match view.subscription.filter.explain(candidate) {
        Some(mismatches) => mismatches.iter().map(ToString::to_string).collect(),
        None if view.switches_off(event) => vec![format!(
            "its policy has switched the family `{}` off (request.families)",
            event.family()
        )],
        None => vec![
            "its present filter matches; it did not when the event was accepted, or the delivery \
             has been pruned"
                .to_owned(),
        ],
    }
}
