//! Why did, or didn't, a subscription get an event?

use std::collections::BTreeSet;
use std::sync::Arc;

use posthorn_domain::filter::{Candidate, Cost, Matching};
use posthorn_domain::{Attempt, Delivery, Event, EventId, SubscriptionId, TenantId, Waiting};
use posthorn_store::{DeliveryFilter, Listing};

use crate::catalog::SubscriptionView;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::matching::Matcher;

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
        let mut listing = Listing::newest(PAGE);
        loop {
            let filter = DeliveryFilter { event: Some(id), ..DeliveryFilter::default() };
            let page = self.store().deliveries(tenant, filter, listing).await?;
            all.extend(page.items);
            listing.after = page.last;
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
        let mut others = self.catalog().subscriptions(tenant);
        others.retain(|view| !got.contains(&view.subscription.id));
        let truncated = cut || others.len() > NOT_DELIVERED_MAX;
        others.truncate(NOT_DELIVERED_MAX);
        let cost: Cost = others.iter().map(|view| view.cost).sum();
        let limit = self.inner.keeper.quotas().match_cost_per_event();
        let not_delivered = if Matcher::is_long(cost.of(event.payload.len())) {
            let event = event.clone();
            let work = move || explain_all(&event, &others, limit);
            self.inner.matcher.aside(tenant, work).await?
        } else {
            explain_all(&event, &others, limit).1
        };
        Ok(EventExplanation { event, deliveries, waiting, not_delivered, truncated })
    }
}

/// Why each of these did not get an event, and what it cost to find out.
fn explain_all(
    event: &Event,
    others: &[Arc<SubscriptionView>],
    limit: u64,
) -> (u64, Vec<NotDelivered>) {
    let candidate = Candidate::metered(event, limit);
    let matching = Matching::new(&candidate);
    let explained = others.iter().map(|view| {
        let reasons = reasons(view, event, &matching);
        let spent = candidate.meter().is_spent();
        let unknown =
            || vec!["not checked: it would cost too much (quotas.match_cost_per_event)".to_owned()];
        NotDelivered {
            subscription: view.subscription.id,
            reasons: if spent { unknown() } else { reasons },
        }
    });
    let explained = explained.collect();
    (candidate.meter().spent(), explained)
}

fn reasons<'c>(
    view: &'c Arc<SubscriptionView>,
    event: &Event,
    matching: &Matching<'c, '_>,
) -> Vec<String> {
    if view.subscription.created_at > event.accepted_at {
        return vec!["the subscription was created after the event was accepted".to_owned()];
    }
    // What a filter says of a payload that is not there is no reason.
    let filter = &view.subscription.filter;
    if event.expunged_at.is_some() && filter.any_of.iter().any(|group| group.payload.is_some()) {
        return vec!["its filter tests the payload, which was removed since".to_owned()];
    }
    match matching.explain(filter) {
        Some(mismatches) => mismatches.iter().map(ToString::to_string).collect(),
        None if view.switches_off(event) => {
            vec![turned_off(event)]
        }
        None => vec![
            "its current filter matches; it did not match when the event was accepted, or the \
             delivery has been deleted after the retention time"
                .to_owned(),
        ],
    }
}

/// Why a subscription whose filter matches does not get an event all the same.
pub(crate) fn turned_off(event: &Event) -> String {
    format!("its policy turns the family `{}` off (request.families)", event.family())
}
