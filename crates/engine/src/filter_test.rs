//! Would a filter match an event? Asked before a subscription is written down, or to find out why one gets
//! nothing. Nothing is kept of it, and nothing is sent.
//!
//! It costs what matching the event costs when it is published, under the same limits: what may take long
//! is done aside, when the tenant's turn has come.

use std::sync::Arc;

use posthorn_domain::filter::Candidate;
use posthorn_domain::{Event, EventId, Filter, SubscriptionId, TenantId};

use crate::catalog::SubscriptionView;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::explain::turned_off;
use crate::intake::Publish;
use crate::matching::Matcher;

/// Whose filter is tested.
#[derive(Clone, Debug)]
pub enum TestedFilter {
    /// Nobody's yet.
    Given(Filter),
    /// A subscription's.
    Of(SubscriptionId),
}

/// The event it is tested with.
#[derive(Clone, Debug)]
pub enum TestedEvent {
    /// One that is not published. Its topic need not exist.
    Given(Box<Publish>),
    /// One that was.
    Stored(EventId),
}

/// What a test of a filter has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterOutcome {
    /// Why it does not match, in words; one for each group. It matches when there are none.
    pub reasons: Vec<String>,
    /// What matching has cost, in the unit of `quotas.match_cost_per_event`.
    pub cost: u64,
}

impl FilterOutcome {
    /// Whether the filter matches.
    pub fn matches(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// A filter at hand.
enum Subject {
    Filter(Filter),
    Subscription(Arc<SubscriptionView>),
}

impl Subject {
    fn filter(&self) -> &Filter {
        match self {
            Self::Filter(filter) => filter,
            Self::Subscription(view) => &view.subscription.filter,
        }
    }

    /// What came of it, and what it cost to find out.
    fn test(&self, event: &Event, limit: u64) -> (u64, Result<FilterOutcome>) {
        let candidate = Candidate::metered(event, limit);
        let mismatches = self.filter().explain(&candidate);
        let cost = candidate.meter().spent();
        if candidate.meter().is_spent() {
            return (cost, Err(Error::MatchingTooCostly { limit }));
        }
        let reasons = match (mismatches, self) {
            (Some(mismatches), _) => mismatches.iter().map(ToString::to_string).collect(),
            (None, Self::Subscription(view)) if view.switches_off(event) => vec![turned_off(event)],
            (None, _) => Vec::new(),
        };
        (cost, Ok(FilterOutcome { reasons, cost }))
    }
}

impl Engine {
    /// Whether a filter matches an event, and why not. A filter and an event that are given must be such
    /// as could be written down and published.
    pub async fn test_filter(
        &self,
        tenant: TenantId,
        filter: TestedFilter,
        event: TestedEvent,
    ) -> Result<FilterOutcome> {
        let subject = match filter {
            TestedFilter::Given(filter) => {
                self.check_filter(&filter)?;
                Subject::Filter(filter)
            }
            TestedFilter::Of(id) => Subject::Subscription(self.catalog().subscription(tenant, id)?),
        };
        let event = match event {
            TestedEvent::Given(publish) => self.unpublished(tenant, *publish)?,
            TestedEvent::Stored(id) => {
                let event = self.store().event(tenant, id).await?;
                let event = event.ok_or(Error::NotFound("event"))?;
                if event.expunged_at.is_some() {
                    return Err(Error::Expunged);
                }
                event
            }
        };
        let limit = self.inner.keeper.quotas().match_cost_per_event();
        if Matcher::is_long(subject.filter().cost().of(event.payload.len())) {
            let work = move || subject.test(&event, limit);
            return self.inner.matcher.aside(tenant, work).await?;
        }
        subject.test(&event, limit).1
    }

    /// An event that could be published, and is not.
    fn unpublished(&self, tenant: TenantId, publish: Publish) -> Result<Event> {
        publish.check(self.payload_bytes())?;
        let now = self.now();
        Ok(Event {
            id: self.inner.chance.event_id(now),
            tenant,
            topic: publish.topic,
            event_type: publish.event_type,
            attributes: publish.attributes,
            key: publish.key,
            content_type: publish.content_type,
            payload: publish.payload,
            accepted_at: now,
            publisher_id: None,
            deliver_at: None,
            retention: None,
            expunged_at: None,
            trace: None,
        })
    }
}
