//! Removing everything of a tenant that is being deleted, in the model.

use posthorn_domain::{
    CatalogVersion, EventId, Job, JobState, RedriveState, RollupScope, Timestamp,
};
use posthorn_store::{Bite, CatalogChange, Error, Refusal};

use super::State;

/// What went.
#[derive(Default)]
pub(super) struct Removed {
    pub(super) rows: usize,
    /// Set when there was nothing left: the version that says so.
    pub(super) buried: Option<CatalogVersion>,
}

impl State {
    /// Removes about so many rows of the job's tenant.
    pub(super) fn remove_tenant(
        &mut self,
        job: &Job,
        limit: usize,
        bite: &Bite,
    ) -> Result<Removed, Refusal> {
        let (tenant, at) = (job.tenant, bite.at);
        if !self.catalog.is_closed(tenant) {
            return Err(Refusal::NotFound);
        }
        self.stop_work(job, at);
        let mut rows = 0;
        for id in self.catalog.subscriptions_of(tenant, limit) {
            self.change_quietly(&CatalogChange::DeleteSubscription { tenant, id, at })?;
            rows += 1;
        }
        let own = self.events.values().filter(|event| event.tenant == tenant);
        let own: Vec<EventId> = own.map(|event| event.id).take(limit).collect();
        for id in own {
            if rows >= limit {
                return Ok(Removed { rows, buried: None });
            }
            rows += self.remove_event(id);
        }
        if rows >= limit {
            return Ok(Removed { rows, buried: None });
        }
        let rest = |state: &Self| {
            let work = state.keys.len() + state.redrives.len() + state.jobs.len();
            work + state.audit.len() + state.sessions.len()
        };
        let before = rest(self);
        self.keys.retain(|(of, _), _| *of != tenant);
        self.redrives.retain(|_, stored| stored.redrive.tenant != tenant);
        self.jobs.retain(|_, (other, _)| other.tenant != tenant || other.id == job.id);
        self.audit.retain(|_, line| line.tenant != Some(tenant) || line.outlives_its_tenant());
        self.sessions.retain(|_, session| session.tenant() != Some(tenant));
        rows += before - rest(self);
        let catalog = &self.catalog;
        rows += self.rollups.forget(|scope| match scope {
            RollupScope::Server | RollupScope::Realm(_) => false,
            RollupScope::Tenant(of) | RollupScope::Topic(of, _) => *of == tenant,
            RollupScope::Subscription(id) => catalog.has_owned(tenant, *id),
        });
        rows += self.catalog.strip(tenant, limit.saturating_sub(rows));
        // What is told of the end is the whole of it, so nothing else may have happened with it.
        if rows >= limit || (bite.ending.is_some() && rows > 0) {
            return Ok(Removed { rows, buried: None });
        }
        self.tell_end(bite.ending.clone(), job.seen, job.done)?;
        let buried = Some(self.change_quietly(&CatalogChange::BuryTenant { tenant })?);
        Ok(Removed { rows, buried })
    }

    /// Stops what else runs for the tenant.
    fn stop_work(&mut self, job: &Job, at: Timestamp) {
        for (other, _) in self.jobs.values_mut() {
            let own = other.tenant == job.tenant && other.id != job.id;
            if own && other.state == JobState::Running {
                other.state = JobState::Cancelled;
                other.finished_at = Some(at);
            }
        }
        for stored in self.redrives.values_mut() {
            let redrive = &mut stored.redrive;
            if redrive.tenant == job.tenant && redrive.state == RedriveState::Running {
                redrive.state = RedriveState::Cancelled;
                redrive.finished_at = Some(at);
            }
        }
    }

    /// A change that only a rule can refuse.
    fn change_quietly(&mut self, change: &CatalogChange) -> Result<CatalogVersion, Refusal> {
        self.catalog.change(change).map_err(|e| match e {
            Error::Refused(refusal) => refusal,
            other => unreachable!("the model reads what it wrote: {other}"),
        })
    }
}
