//! Operational events: what Posthorn tells about itself, through its own engine.
//!
//! # Theory of operation
//! What is told is planned like a publish: matched with the catalog in memory, and given the version it was matched
//! on. The plan goes along with the write that causes it, and the store makes both or neither. When the catalog has
//! moved on, the store says so, nothing was changed, and it is planned and written again.
//!
//! Each is an event of the tenant it is about, with a copy for operators in the system tenant. One that nobody wants is
//! not made: [`Teller::is_wanted`] is two lookups in memory, and asked only when there is something to tell.
//!
//! What happens to deliveries of operational events is never told, so that they do not cause more of themselves.
//!
//! What has no transaction of its own, such as a certificate that is about to end, is published under a key of its own
//! ([`Teller::publish`]).
//!
//! # What it must not know
//! When there is something to tell: those who cause it know that.

mod facts;

use std::sync::Arc;

use posthorn_domain::{
    Clock, Event, Idempotency, IdempotencyKey, Shard, SubscriptionId, TenantId, Timestamp,
    TopicName,
};
use posthorn_store::{
    Accepted, DueSubscription, EventFilter, Listing, NewDelivery, NewEvent, Record, Result, Store,
};
use tokio::sync::mpsc;
use tracing::warn;

use crate::admission::Admission;
use crate::catalog::Catalog;
use crate::chance::Chance;
use crate::error::chain;
use crate::matching::{Matcher, Plan};
use crate::metrics;
use crate::rollups::Counting;
use crate::scheduler::{self, Input};
use crate::wakes::Wakes;

pub(crate) use facts::{Fact, Happened};

/// How often something that is told is planned again because the catalog changed under it.
pub(crate) const REPLANS_MAX: u32 = 50;

/// Whoever tells.
pub(crate) struct Teller {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) matcher: Arc<Matcher>,
    pub(crate) chance: Arc<Chance>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) scheduler: mpsc::Sender<Input>,
    pub(crate) wakes: Wakes,
    pub(crate) counting: Arc<Counting>,
}

impl Teller {
    /// Whether anybody may want to be told of something in this tenant.
    pub(crate) fn is_wanted(&self, tenant: TenantId) -> bool {
        self.catalog.wants_operational(tenant) || self.catalog.wants_operational(TenantId::SYSTEM)
    }

    /// Plans what is told of something: in its tenant, and to operators. Nothing where nobody wants it.
    pub(crate) fn plan(&self, fact: &Fact) -> Vec<NewEvent> {
        let now = self.clock.now();
        let own = fact.tenant.filter(|tenant| *tenant != TenantId::SYSTEM);
        let told = own.into_iter().chain([TenantId::SYSTEM]);
        let told = told.filter(|tenant| self.catalog.wants_operational(*tenant));
        told.filter_map(|tenant| self.planned(Arc::new(self.event(tenant, fact, now)), fact.except))
            .collect()
    }

    /// The same on a catalog that has moved on. Those that nobody wants any more are not told.
    fn again(&self, told: &[NewEvent], except: Option<SubscriptionId>) -> Vec<NewEvent> {
        let again = told.iter().filter_map(|new| {
            let planned = self.planned(Arc::clone(&new.event), except)?;
            Some(NewEvent { idempotency: new.idempotency.clone(), ..planned })
        });
        again.collect()
    }

    /// Brings the catalog up to date, and plans again.
    pub(crate) async fn replan(
        &self,
        told: &[NewEvent],
        except: Option<SubscriptionId>,
    ) -> Result<Vec<NewEvent>> {
        self.refresh().await?;
        Ok(self.again(told, except))
    }

    /// The same for records.
    pub(crate) async fn replan_records(&self, mut stale: Vec<Record>) -> Result<Vec<Record>> {
        self.refresh().await?;
        for record in &mut stale {
            record.told = self.again(&record.told, None);
        }
        Ok(stale)
    }

    pub(crate) async fn refresh(&self) -> Result<()> {
        let delta = self.store.catalog_since(self.catalog.version()).await?;
        scheduler::tell(&self.scheduler, self.catalog.apply(delta)).await;
        Ok(())
    }

    fn event(&self, tenant: TenantId, fact: &Fact, now: Timestamp) -> Event {
        let mut attributes = fact.attributes.clone();
        let mut payload = &fact.payload;
        if tenant == TenantId::SYSTEM {
            attributes.extend(fact.tenant.into_iter().flat_map(|of| self.whose(of)));
            payload = fact.for_operators.as_ref().unwrap_or(payload);
        }
        Event {
            id: self.chance.event_id(now),
            tenant,
            topic: TopicName::operational(),
            event_type: fact.kind.event_type(),
            attributes,
            key: fact.subject.clone(),
            content_type: "application/json".to_owned(),
            payload: payload.clone(),
            accepted_at: now,
            publisher_id: None,
            deliver_at: None,
            retention: None,
            expunged_at: None,
            trace: None,
        }
    }

    /// What operators filter by, of the tenant that something is about.
    fn whose(&self, tenant: TenantId) -> Vec<(String, String)> {
        let mut whose = vec![("tenant".to_owned(), tenant.to_string())];
        // One that is being deleted may be gone already.
        if let Ok(known) = self.catalog.tenant(tenant) {
            whose.push(("realm".to_owned(), known.realm.to_string()));
            let own = known.external_id.map(|own| ("external_id".to_owned(), own.to_string()));
            whose.extend(own);
        }
        whose
    }

    /// Matches an event on the spot: its payload is next to nothing.
    fn planned(&self, event: Arc<Event>, except: Option<SubscriptionId>) -> Option<NewEvent> {
        let Plan { version, matches } = match self.matcher.on_the_spot(&event) {
            Ok(plan) => plan,
            Err(e) => {
                warn!(tenant = %event.tenant, kind = %event.event_type, error = %chain(&e),
                    "an operational event could not be matched and is not told");
                return None;
            }
        };
        let wanted = matches.into_iter().filter(|found| Some(found.subscription) != except);
        let deliveries: Vec<NewDelivery> = wanted
            .map(|found| NewDelivery {
                id: self.chance.delivery_id(event.accepted_at),
                subscription: found.subscription,
                lane: found.lane,
                due_at: event.accepted_at,
            })
            .collect();
        let new = NewEvent { event, idempotency: None, catalog: version, deliveries };
        (!new.deliveries.is_empty()).then_some(new)
    }

    /// What was told is due: here, or on the node whose it is.
    pub(crate) async fn announce(&self, told: &[NewEvent]) {
        let due = self.committed(told);
        if !due.is_empty() {
            drop(self.scheduler.send(Input::Due(due)).await);
        }
    }

    /// The same for the scheduler itself: counts what was told, wakes the nodes whose it is, and says what is due.
    pub(crate) fn committed(&self, told: &[NewEvent]) -> Vec<DueSubscription> {
        let mut due = Vec::new();
        if told.is_empty() {
            return due;
        }
        let mut counted = self.counting.intake(self.clock.now());
        for new in told {
            counted.published(new.event.tenant, &new.event.topic);
            ::metrics::counter!(metrics::TOLD, "type" => new.event.event_type.to_string())
                .increment(1);
            for delivery in &new.deliveries {
                let shard = Shard::of(delivery.subscription);
                if self.admission.counts(shard) {
                    self.admission.add_pending(new.event.tenant, 1);
                }
                counted.wanted(new.event.tenant, delivery.subscription);
                self.wakes.add(shard);
                let NewDelivery { subscription, due_at, .. } = *delivery;
                due.push(DueSubscription { subscription, due_at });
            }
        }
        due
    }

    /// Tells of something that no transaction causes, once for each `key`: also when several nodes notice it, and after
    /// a restart as long as the event or its key is kept. Whether it was told to anybody now.
    pub(crate) async fn publish(&self, fact: &Fact, key: &IdempotencyKey) -> Result<bool> {
        let mut told = self.plan(fact);
        for new in &mut told {
            let event = Event { publisher_id: Some(key.clone()), ..Event::clone(&new.event) };
            new.event = Arc::new(event);
            // The key says all that makes two of them the same.
            new.idempotency = Some(Idempotency { key: key.clone(), fingerprint: [0; 32] });
        }
        let mut any = false;
        for new in told {
            any |= self.publish_one(new, key).await?;
        }
        Ok(any)
    }

    async fn publish_one(&self, new: NewEvent, key: &IdempotencyKey) -> Result<bool> {
        let tenant = new.event.tenant;
        let known = EventFilter { publisher_id: Some(key.clone()), ..EventFilter::default() };
        if !self.store.event_lines(tenant, known, Listing::newest(1)).await?.items.is_empty() {
            return Ok(false);
        }
        let mut told = vec![new];
        for _ in 0..REPLANS_MAX {
            match self.store.accept(told.clone()).await?.pop() {
                Some(Accepted::Stored(_)) => {
                    self.announce(&told).await;
                    return Ok(true);
                }
                Some(Accepted::Stale) => told = self.replan(&told, None).await?,
                // Another node was faster.
                _ => return Ok(false),
            }
            if told.is_empty() {
                return Ok(false);
            }
        }
        Ok(false)
    }
}
