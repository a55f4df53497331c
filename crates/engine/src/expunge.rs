//! Removing what was said: the payload of an event, and what receivers answered. That it was said stays.
//!
//! The store decides, in its transaction, that nothing of an event is on its way any more. Whoever wants to remove one
//! that is has its deliveries cancelled first, which promises that no node starts an attempt of them any more.
//!
//! # What it must not know
//! Where stores keep bytes, and what of them is left on a disk.

use posthorn_domain::delivery::Wish;
use posthorn_domain::{
    AuditAction, CatalogVersion, Delivery, DeliveryId, Event, EventId, Job, JobWork, Selection,
    TenantId,
};
use posthorn_store::{
    AttemptFilter, DeliveryFilter, DueSubscription, Expunges, Listing, StateKind,
};

use crate::audit::created;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::operator::due_of;
use crate::replays::{ReplayCount, Terms, Walk};

/// How often deliveries are cancelled before one that somebody brings back each time counts as unfinished.
const TRIES: usize = 4;
/// Events that a count looks at before it gives up; it asks for the deliveries of each.
const COUNT_EVENTS_MAX: usize = 10_000;
/// What is read at once.
const PAGE: usize = 200;

/// What goes besides the payload, and what happens to deliveries that have not ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expunge {
    /// What receivers answered goes as well.
    pub responses: bool,
    /// They are cancelled; otherwise nothing is done while there are any.
    pub cancel: bool,
}

/// What somebody wants to have removed.
#[derive(Clone, Debug)]
pub struct NewExpunge {
    /// Of which events.
    pub events: Selection,
    /// Whether what receivers answered goes as well.
    pub responses: bool,
    /// How many per second at most.
    pub per_second: u32,
    /// Who asks.
    pub created_by: String,
}

impl Engine {
    /// Removes the payload of an event for good; the event stays, without one. When this returns, no node starts an
    /// attempt of it any more. One that was expunged before stays as it is.
    pub async fn expunge_event(
        &self,
        tenant: TenantId,
        id: EventId,
        how: Expunge,
    ) -> Result<Event> {
        let mut tries = 0;
        loop {
            let line = created(AuditAction::EventExpunged, "event", &id, tenant);
            let (line, at) = (line.with("responses", how.responses), self.now());
            let write =
                |along| self.store().expunge_event_with(tenant, id, how.responses, at, along);
            let done = self.writing(None, Some(line), true, write).await;
            match done.map_err(|e| Error::from(e).about("event")) {
                Err(Error::Unfinished) if how.cancel && tries < TRIES => {
                    self.cancel_all(tenant, id).await?;
                    tries += 1;
                }
                answer => {
                    let event = answer?;
                    self.hear_of_it().await?;
                    return Ok(event);
                }
            }
        }
    }

    /// Its deliveries have ended, but perhaps just now, by somebody who still waits until every node has heard that
    /// they are cancelled or their subscription is gone.
    async fn hear_of_it(&self) -> Result<()> {
        self.refresh_catalog().await?;
        self.recalled(Some(self.catalog().version())).await;
        Ok(())
    }

    /// Cancels all deliveries of an event, and waits once until every node has heard of the last: who has, has heard of
    /// all. Those behind them in their lanes come then.
    async fn cancel_all(&self, tenant: TenantId, id: EventId) -> Result<()> {
        let (mut recall, mut due) = (None, Vec::new());
        let cancelled = self.cancel_each(tenant, id, &mut recall, &mut due).await;
        self.recalled(recall).await;
        self.hand_over_due(due).await;
        cancelled
    }

    async fn cancel_each(
        &self,
        tenant: TenantId,
        id: EventId,
        recall: &mut Option<CatalogVersion>,
        due: &mut Vec<DueSubscription>,
    ) -> Result<()> {
        let mut listing = Listing::newest(PAGE);
        loop {
            let (event, state) = (Some(id), Some(StateKind::Pending));
            let filter = DeliveryFilter { event, state, ..DeliveryFilter::default() };
            let page = self.store().deliveries(tenant, filter, listing).await?;
            for Delivery { id, .. } in page.items {
                match self.write_move(Wish::Cancel, tenant, id).await {
                    Ok(moved) => {
                        *recall = (*recall).max(moved.recall);
                        due.extend(due_of(&moved));
                    }
                    // It has ended, or was forgotten, by itself.
                    Err(Error::Ended | Error::NotFound(_)) => {}
                    Err(e) => return Err(e),
                }
            }
            listing.after = page.last;
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Removes what the receiver answered to one attempt for good.
    pub async fn expunge_response(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        number: u32,
    ) -> Result<()> {
        let line = created(AuditAction::ResponseExpunged, "delivery", &delivery, tenant);
        let (line, at) = (line.with("attempt", number), self.now());
        let write = |along| self.store().expunge_response_with(tenant, delivery, number, at, along);
        let done = self.writing(None, Some(line), true, write).await;
        done.map_err(|e| Error::from(e).about("attempt"))
    }

    /// Begins to remove the payloads of many events. Those with deliveries that have not ended are passed over.
    pub async fn create_expunge(&self, tenant: TenantId, new: NewExpunge) -> Result<Job> {
        self.create_expunge_with(tenant, new, Terms::default()).await
    }

    /// The same on terms of the caller's.
    pub async fn create_expunge_with(
        &self,
        tenant: TenantId,
        new: NewExpunge,
        terms: Terms,
    ) -> Result<Job> {
        self.begin_job_with(tenant, terms.seed, async { self.expunging(tenant, new) }).await
    }

    fn expunging(&self, tenant: TenantId, new: NewExpunge) -> Result<Job> {
        if new.events.is_everything() {
            let problem = "name at least one of topics, types, attributes, from and until; without any, every \
                           payload would be removed";
            return Err(Error::Event { field: "from", problem: problem.to_owned() });
        }
        let (now, mut events) = (self.now(), new.events);
        // What comes from now on is not meant.
        events.until = Some(events.until.map_or(now, |until| until.min(now)));
        let work = JobWork::Expunge { events, responses: new.responses };
        Ok(self.job(tenant, work, new.per_second, new.created_by))
    }

    /// Of how many events something would go. Nothing is changed. It looks at a bounded number of events.
    pub async fn count_expunge(&self, tenant: TenantId, new: NewExpunge) -> Result<ReplayCount> {
        let job = self.expunging(tenant, new)?;
        let (mut walk, mut count) = (Walk::new(COUNT_EVENTS_MAX), 0);
        while let Some(prepared) = walk.next(&self.inner.jobs, &job).await? {
            let Expunges { events, responses } = prepared.expunges.unwrap_or_default();
            for event in events {
                count += u64::from(self.would_expunge(tenant, event, responses).await?);
            }
        }
        Ok(walk.end(count))
    }

    async fn would_expunge(
        &self,
        tenant: TenantId,
        event: EventId,
        responses: bool,
    ) -> Result<bool> {
        let (of, state) = (Some(event), Some(StateKind::Pending));
        let pending = DeliveryFilter { event: of, state, ..DeliveryFilter::default() };
        let page = self.store().deliveries(tenant, pending, Listing::newest(1)).await?;
        if !page.items.is_empty() {
            return Ok(false);
        }
        let found = self.store().event(tenant, event).await?;
        if !responses || found.is_some_and(|event| event.expunged_at.is_none()) {
            return Ok(true);
        }
        let filter = AttemptFilter { event: of, ..AttemptFilter::default() };
        let mut listing = Listing::newest(PAGE);
        loop {
            let page = self.store().attempts_made(tenant, filter.clone(), listing).await?;
            let kept = page.items.iter().any(|line| line.attempt.response_expunged_at.is_none());
            listing.after = page.last;
            if kept || !page.more {
                return Ok(kept);
            }
        }
    }
}
