//! What operators do by hand: cancel, retry, forget, redrive, republish.

use posthorn_domain::delivery::Wish;
use posthorn_domain::{
    AuditAction, Delivery, DeliveryId, EventId, Redrive, RedriveFilter, RedriveId, RedriveState,
    Seed, Shard, TenantId,
};
use posthorn_store::{DueSubscription, Error as StoreError, Moved, Refusal};
use tracing::warn;

use crate::audit::{created, redrive_detail};
use crate::engine::Engine;
use crate::error::{Error, Result, chain};
use crate::intake::{Publish, Published};
use crate::redriver::BITE;
use crate::scheduler::Input;
use crate::told::REPLANS_MAX;

/// The fastest a redrive may be, so that a mistyped pace does not crowd out live traffic.
const REDRIVE_PER_SECOND_MAX: u32 = 10_000;

impl Engine {
    /// Cancels a delivery that has not ended. When this returns, no node starts an attempt of it any
    /// more; one under way may still arrive, and the next of its lane does not start before it is over.
    pub async fn cancel_delivery(&self, tenant: TenantId, id: DeliveryId) -> Result<Delivery> {
        self.move_delivery(Wish::Cancel, tenant, id).await
    }

    /// Tries a delivery now, with a fresh budget and its whole history: one that has ended, or one that
    /// waits. Either keeps its place in its lane, so one that ended goes before what came after it. An
    /// attempt that is under way without a written lease counts when it succeeds; when it fails, the
    /// delivery is tried again at once.
    pub async fn retry_delivery(&self, tenant: TenantId, id: DeliveryId) -> Result<Delivery> {
        self.move_delivery(Wish::Retry, tenant, id).await
    }

    /// Tries a delivery now, and once: one that has ended gets this one attempt, and is dead again when that fails. One that
    /// waits keeps its budget, of which this is an attempt like any other: its schedule goes on. Everything else is as with
    /// [`Engine::retry_delivery`].
    pub async fn retry_delivery_once(&self, tenant: TenantId, id: DeliveryId) -> Result<Delivery> {
        self.move_delivery(Wish::RetryOnce, tenant, id).await
    }

    /// Publishes an event again, as a new one with the same contents: everybody who wants such events
    /// now gets it, whether they got the old one or not. What became of the old one stays as it is.
    pub async fn republish(&self, tenant: TenantId, id: EventId) -> Result<Published> {
        let event = self.store().event(tenant, id).await?.ok_or(Error::NotFound("event"))?;
        if event.expunged_at.is_some() {
            return Err(Error::Expunged);
        }
        let again = Publish {
            topic: event.topic,
            event_type: event.event_type,
            attributes: event.attributes,
            key: event.key,
            content_type: event.content_type,
            payload: event.payload,
            idempotency: None,
            publisher_id: None,
            // Again means now; how long it may be kept is a property of what it says.
            deliver_at: None,
            retention: event.retention,
            // A new event: the old one's trace tells of the old one.
            trace: None,
        };
        let mut answers = self.publish_unchecked(tenant, vec![again]).await?;
        answers.pop().unwrap_or(Err(Error::Busy("it is stopping")))
    }

    /// Removes a delivery with its attempts for good; one that has not ended is cancelled by it, with
    /// the same promise. Its event stays until it is pruned.
    pub async fn forget_delivery(&self, tenant: TenantId, id: DeliveryId) -> Result<Delivery> {
        self.move_delivery(Wish::Forget, tenant, id).await
    }

    async fn move_delivery(
        &self,
        wish: Wish,
        tenant: TenantId,
        id: DeliveryId,
    ) -> Result<Delivery> {
        let moved = self.write_move(wish, tenant, id).await?;
        self.recalled(moved.recall).await;
        Ok(self.hand_over(moved).await)
    }

    /// The same without waiting until every node has heard of it.
    pub(crate) async fn write_move(
        &self,
        wish: Wish,
        tenant: TenantId,
        id: DeliveryId,
    ) -> Result<Moved> {
        let action = match wish {
            Wish::Cancel => AuditAction::DeliveryCancelled,
            Wish::Retry | Wish::RetryOnce => AuditAction::DeliveryRetried,
            Wish::Forget => AuditAction::DeliveryForgotten,
        };
        let (mut line, at) = (created(action, "delivery", &id, tenant), self.now());
        if wish == Wish::RetryOnce {
            line = line.with("once", true);
        }
        let write = |along| self.store().move_delivery(wish, tenant, id, at, along);
        // Else whoever clears away deliveries of operational events would make one more with each.
        let tells = !self.is_operational(tenant, id).await?;
        let moved = self.writing(None, Some(line), tells, write).await;
        moved.map_err(|e| Error::from(e).about("delivery"))
    }

    /// Whether a delivery is of an operational event. Where nobody listens that does not matter, and is not looked up.
    async fn is_operational(&self, tenant: TenantId, id: DeliveryId) -> Result<bool> {
        if !self.inner.teller.is_wanted(tenant) {
            return Ok(false);
        }
        let Some(delivery) = self.store().delivery(tenant, id).await? else { return Ok(false) };
        let event = self.store().event(tenant, delivery.event).await?;
        Ok(event.is_some_and(|event| event.topic.is_reserved()))
    }

    async fn hand_over(&self, moved: Moved) -> Delivery {
        self.hand_over_due(due_of(&moved).into_iter().collect()).await;
        moved.delivery
    }

    /// Says where there is something to do: here, or on the nodes whose it is.
    pub(crate) async fn hand_over_due(&self, due: Vec<DueSubscription>) {
        for DueSubscription { subscription, .. } in &due {
            self.inner.wakes.add(Shard::of(*subscription));
        }
        if !due.is_empty() {
            drop(self.inner.scheduler.send(Input::Due(due)).await);
        }
    }

    /// Begins to put dead letters back, at most `per_second`.
    pub async fn create_redrive(
        &self,
        tenant: TenantId,
        filter: RedriveFilter,
        per_second: u32,
    ) -> Result<Redrive> {
        self.create_redrive_with(tenant, filter, per_second, None).await
    }

    /// The same with an id that is made of a seed. One that was made of it before is given back as it is.
    pub async fn create_redrive_with(
        &self,
        tenant: TenantId,
        filter: RedriveFilter,
        per_second: u32,
        seed: Option<Seed>,
    ) -> Result<Redrive> {
        let Some(id) = seed.map(RedriveId::of_seed) else {
            let id = self.inner.chance.redrive_id(self.now());
            return self.begin_redrive(id, tenant, filter, per_second).await;
        };
        if let Some(redrive) = self.store().redrive(tenant, id).await? {
            return Ok(redrive);
        }
        match self.begin_redrive(id, tenant, filter, per_second).await {
            // On another node, in this very moment.
            Err(e @ Error::AlreadyExists(_)) => self.store().redrive(tenant, id).await?.ok_or(e),
            begun => begun,
        }
    }

    async fn begin_redrive(
        &self,
        id: RedriveId,
        tenant: TenantId,
        mut filter: RedriveFilter,
        per_second: u32,
    ) -> Result<Redrive> {
        let now = self.now();
        // What dies again during the redrive is not moved again.
        filter.until = Some(filter.until.map_or(now, |until| until.min(now)));
        let redrive = Redrive {
            id,
            tenant,
            filter,
            per_second: per_second.clamp(1, REDRIVE_PER_SECOND_MAX),
            state: RedriveState::Running,
            total: 0,
            moved: 0,
            created_at: now,
            finished_at: None,
        };
        let line = created(AuditAction::RedriveCreated, "redrive", &redrive.id, tenant);
        let line = line.detailed(redrive_detail(&redrive.filter));
        let write = |along| self.store().create_redrive_with(redrive.clone(), along);
        let redrive = self.writing(None, Some(line), true, write).await?;
        // The first go is made at once, so that what comes next in a lane finds them before it. Should it
        // fail, whoever does the chores goes on all the same.
        match self.inner.redriver.advance(&redrive, BITE).await {
            Ok(()) => Ok(self.store().redrive(tenant, redrive.id).await?.unwrap_or(redrive)),
            Err(e) => {
                warn!(error = %chain(&e), redrive = %redrive.id, "a redrive starts with the next \
                                                                  maintenance run");
                Ok(redrive)
            }
        }
    }

    /// Stops a redrive; what was put back stays so.
    pub async fn cancel_redrive(&self, tenant: TenantId, id: RedriveId) -> Result<Redrive> {
        for _ in 0..REPLANS_MAX {
            let at = self.now();
            let found = self.store().redrive(tenant, id).await?;
            let found = found.ok_or(Error::NotFound("redrive"))?;
            // One that has ended stays as it is, and that was told.
            if found.finished_at.is_some() {
                return Ok(found);
            }
            let ended = Redrive { state: RedriveState::Cancelled, finished_at: Some(at), ..found };
            let ending = self.inner.redriver.ending(&ended, at);
            let line = created(AuditAction::RedriveCancelled, "redrive", &id, tenant);
            let write =
                |along| self.store().cancel_redrive_with(tenant, id, at, ending.clone(), along);
            match self.writing_once(line, write).await {
                Err(StoreError::Refused(Refusal::Stale)) => self.refresh_catalog().await?,
                cancelled => {
                    let redrive = cancelled.map_err(|e| Error::from(e).about("redrive"))?;
                    if redrive.state == RedriveState::Cancelled && redrive.finished_at == Some(at) {
                        let told = ending.map_or(Vec::new(), |ending| ending.told);
                        self.inner.teller.announce(&told).await;
                    }
                    return Ok(redrive);
                }
            }
        }
        Err(Error::Busy("the redrive is moving on; try again"))
    }
}

/// Who is due because a delivery was moved. Not the copy itself: by the time the store's reply is here, an attempt that
/// was under way may have ended it.
pub(crate) fn due_of(moved: &Moved) -> Option<DueSubscription> {
    let Delivery { subscription, due_at, .. } = moved.ready.as_ref()?.delivery;
    Some(DueSubscription { subscription, due_at })
}
