//! Cancelling, forgetting and retrying many deliveries: what may be asked for, how much it would be, and the jobs that do it.
//!
//! The filter is that of a list, and the store looks at it again in the transaction that changes a delivery. So a job does
//! to each exactly what somebody would do by hand who sees it in the list at that moment.
//!
//! # What it must not know
//! How a job goes on: that is [`crate::jobs`].

use posthorn_domain::delivery::Wish;
use posthorn_domain::{DeliveryFilter, Job, JobWork, StateKind, TenantId};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::replays::{COUNT_MAX, ReplayCount, Terms, Walk};

/// What somebody wants to have done to deliveries.
#[derive(Clone, Debug)]
pub struct NewBulk {
    /// What.
    pub wish: Wish,
    /// Which deliveries.
    pub deliveries: DeliveryFilter,
    /// How many per second at most.
    pub per_second: u32,
    /// Who asks.
    pub created_by: String,
}

impl Engine {
    /// Begins to cancel, forget or retry many deliveries, each at most once. Nodes hear of it as it goes on; what is under way may still arrive.
    pub async fn create_bulk(&self, tenant: TenantId, new: NewBulk) -> Result<Job> {
        self.create_bulk_with(tenant, new, Terms::default()).await
    }

    /// The same on terms of the caller's.
    pub async fn create_bulk_with(
        &self,
        tenant: TenantId,
        new: NewBulk,
        terms: Terms,
    ) -> Result<Job> {
        self.begin_job_with(tenant, terms.seed, async { self.bulk(tenant, new) }).await
    }

    /// How many deliveries are meant. Nothing is changed. It looks at a bounded number of them.
    pub async fn count_bulk(&self, tenant: TenantId, new: NewBulk) -> Result<ReplayCount> {
        let job = self.bulk(tenant, new)?;
        let (mut walk, mut count) = (Walk::new(COUNT_MAX), 0);
        while let Some(prepared) = walk.next(&self.inner.jobs, &job).await? {
            count += prepared.wanted() as u64;
        }
        Ok(walk.end(count))
    }

    fn bulk(&self, tenant: TenantId, new: NewBulk) -> Result<Job> {
        let refuse =
            |field, problem: &str| Err(Error::Event { field, problem: problem.to_owned() });
        let mut deliveries = new.deliveries;
        if deliveries.is_everything() {
            return refuse(
                "state",
                "name at least one condition; without any, every delivery would be meant",
            );
        }
        if let (Some(kind), Some(exactly)) = (deliveries.state, deliveries.exactly)
            && !kind.includes(exactly)
        {
            return refuse("reason", "no delivery in this state has this reason");
        }
        if deliveries.state == Some(StateKind::InFlight) {
            return refuse("state", "must be pending: what is under way is part of that");
        }
        // What comes from now on is not meant.
        let now = self.now();
        deliveries.created.until =
            Some(deliveries.created.until.map_or(now, |until| until.min(now)));
        let kind = deliveries.exactly.map(StateKind::of).or(deliveries.state);
        let work = match new.wish {
            Wish::Forget => JobWork::Forget { deliveries },
            Wish::Retry | Wish::RetryOnce => {
                match kind {
                    None => deliveries.state = Some(StateKind::Dead),
                    Some(StateKind::Dead | StateKind::Delivered | StateKind::Cancelled) => {}
                    Some(_) => {
                        return refuse(
                            "state",
                            "must be dead, delivered or cancelled: what waits is tried by its schedule",
                        );
                    }
                }
                JobWork::Retry { deliveries }
            }
            Wish::Cancel => {
                match kind {
                    None => deliveries.state = Some(StateKind::Pending),
                    // A dead letter that blocks its lane can be cancelled, and lets the others go on.
                    Some(StateKind::Pending | StateKind::Dead) => {}
                    Some(_) => {
                        return refuse("state", "must be pending or dead: others have ended");
                    }
                }
                JobWork::Cancel { deliveries }
            }
        };
        Ok(self.job(tenant, work, new.per_second, new.created_by))
    }
}
