//! What operators do by hand: cancel, retry, forget, redrive, republish.

use posthorn_domain::{
    Delivery, DeliveryId, EventId, Redrive, RedriveFilter, RedriveId, RedriveState, TenantId,
};
use posthorn_store::Moved;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::intake::{Publish, Published};
use crate::scheduler::Input;

/// The fastest a redrive may be, so that a mistyped pace does not crowd out live traffic.
const REDRIVE_PER_SECOND_MAX: u32 = 10_000;

impl Engine {
    /// Cancels a delivery that has not ended. An attempt under way may still arrive; the next of its
    /// lane does not start before it is over.
    pub async fn cancel_delivery(&self, tenant: TenantId, id: DeliveryId) -> Result<Delivery> {
        let moved = self.store().cancel_delivery(tenant, id, self.now()).await;
        let moved = moved.map_err(|e| Error::from(e).about("delivery"))?;
        let gone = Input::Cancelled(moved.delivery.subscription, id);
        drop(self.inner.scheduler.send(gone).await);
        Ok(self.hand_over(moved).await)
    }

    /// Tries a delivery now, with a fresh budget and its whole history: one that has ended, or one that
    /// waits, which keeps its place in its lane. An attempt that is under way without a written lease
    /// counts as the try.
    pub async fn retry_delivery(&self, tenant: TenantId, id: DeliveryId) -> Result<Delivery> {
        let moved = self.store().retry_delivery(tenant, id, self.now()).await;
        let moved = moved.map_err(|e| Error::from(e).about("delivery"))?;
        if let Some(work) = moved.ready {
            self.inner.wakes.add(work.delivery.shard());
            drop(self.inner.scheduler.send(Input::Retried(Box::new(work))).await);
        }
        Ok(moved.delivery)
    }

    /// Publishes an event again, as a new one with the same contents: everybody who wants such events
    /// now gets it, whether they got the old one or not. What became of the old one stays as it is.
    pub async fn republish(&self, tenant: TenantId, id: EventId) -> Result<Published> {
        let event = self.store().event(tenant, id).await?.ok_or(Error::NotFound("event"))?;
        let again = Publish {
            topic: event.topic,
            event_type: event.event_type,
            attributes: event.attributes,
            key: event.key,
            content_type: event.content_type,
            payload: event.payload,
            idempotency: None,
        };
        let mut answers = self.publish_unchecked(tenant, vec![again]).await?;
        answers.pop().unwrap_or(Err(Error::Busy("it is stopping")))
    }

    /// Removes a delivery with its attempts for good; one that has not ended is cancelled by it. An
    /// attempt under way may still arrive. Its event stays until it is pruned.
    pub async fn forget_delivery(&self, tenant: TenantId, id: DeliveryId) -> Result<Delivery> {
        let moved = self.store().forget_delivery(tenant, id, self.now()).await;
        let moved = moved.map_err(|e| Error::from(e).about("delivery"))?;
        let gone = Input::Cancelled(moved.delivery.subscription, id);
        drop(self.inner.scheduler.send(gone).await);
        Ok(self.hand_over(moved).await)
    }

    async fn hand_over(&self, moved: Moved) -> Delivery {
        if let Some(work) = moved.ready {
            self.inner.wakes.add(work.delivery.shard());
            drop(self.inner.scheduler.send(Input::Work(vec![work])).await);
        }
        moved.delivery
    }

    /// Begins to put dead letters back, at most `per_second`.
    pub async fn create_redrive(
        &self,
        tenant: TenantId,
        mut filter: RedriveFilter,
        per_second: u32,
    ) -> Result<Redrive> {
        let now = self.now();
        // What dies again during the redrive is not moved again.
        filter.until = Some(filter.until.map_or(now, |until| until.min(now)));
        let redrive = Redrive {
            id: self.inner.chance.redrive_id(now),
            tenant,
            filter,
            per_second: per_second.clamp(1, REDRIVE_PER_SECOND_MAX),
            state: RedriveState::Running,
            total: 0,
            moved: 0,
            created_at: now,
            finished_at: None,
        };
        Ok(self.store().create_redrive(redrive).await?)
    }

    /// Stops a redrive; what was put back stays so.
    pub async fn cancel_redrive(&self, tenant: TenantId, id: RedriveId) -> Result<Redrive> {
        let cancelled = self.store().cancel_redrive(tenant, id, self.now()).await;
        cancelled.map_err(|e| Error::from(e).about("redrive"))
    }
}
