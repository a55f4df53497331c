//! What is compared right after an effect: rows of the model with the account, and what was told with its cause.

use posthorn_domain::{CatalogVersion, DeliveryId, JobId, TenantId};
use posthorn_store::{
    CatalogChange, Ending, Moved, NewEvent, Record, Recorded, Result, Rollups, Store as _,
};

use super::super::oracle::Left;
use super::{Reach, at_once};

fn deliveries_of(told: &[NewEvent]) -> impl Iterator<Item = DeliveryId> {
    told.iter().flat_map(|new| &new.deliveries).map(|delivery| delivery.id)
}

impl Reach {
    /// Compares rows of the model with the account, right after an effect.
    pub(super) fn check_rows(&self, ids: impl Iterator<Item = (TenantId, DeliveryId)>) {
        let now = self.world.now();
        for (tenant, id) in ids {
            let row = at_once(self.model.delivery(tenant, id)).unwrap_or(None);
            self.world.oracle.lock().check_row(now, id, row.as_ref());
        }
    }

    pub(super) fn record(
        &self,
        batch: &[Record],
        rollups: Option<Rollups>,
    ) -> Result<Vec<Recorded>> {
        let world = &self.world;
        let answers = at_once(self.model.record_with(batch.to_vec(), rollups))?;
        let now = world.now();
        world.oracle.lock().recorded(now, batch, &answers);
        for (record, answer) in batch.iter().zip(&answers) {
            let said = match answer {
                Recorded::Written { promoted } => (0, promoted.as_ref().map(|w| w.delivery.id)),
                Recorded::Fenced => (1, None),
                Recorded::Superseded => (2, None),
                Recorded::Stale => (3, None),
            };
            let step = (record.step.state, record.step.due_at, record.step.charge);
            world.note("record", &(self.link.life, record.delivery, step, said));
        }
        let mut all: Vec<_> = batch.iter().map(|record| record.delivery).collect();
        all.extend(batch.iter().flat_map(|record| deliveries_of(&record.told)));
        let tenants = world.oracle.lock().tenants_of(&all);
        self.check_rows(tenants.into_iter());
        Ok(answers)
    }

    /// A change of the catalog, and what was told of it.
    pub(super) fn changed(
        &self,
        change: &CatalogChange,
        told: &[NewEvent],
        version: CatalogVersion,
    ) {
        let now = self.world.now();
        let mut oracle = self.world.oracle.lock();
        oracle.told_by_change(now, change, told);
        oracle.changed(now, change, version);
        drop(oracle);
        self.check_told(told);
    }

    pub(super) fn check_told(&self, told: &[NewEvent]) {
        let ids: Vec<DeliveryId> = deliveries_of(told).collect();
        let tenants = self.world.oracle.lock().tenants_of(&ids);
        self.check_rows(tenants.into_iter());
    }

    pub(super) fn check_ending(&self, ending: Option<&Ending>) {
        self.check_told(ending.map_or(&[], |ending| &ending.told));
    }

    /// What the store has left after a bite of a deletion.
    pub(super) fn left_of(&self, job: JobId) -> Left {
        Left {
            events: self.model.all_events().iter().map(|event| event.id).collect(),
            deleted: self.model.deleted_subscriptions(),
            keys: self.model.has_keys_of_job(job),
        }
    }

    pub(super) fn moved(
        &self,
        kind: &'static str,
        tenant: TenantId,
        id: DeliveryId,
        moved: &Result<Moved>,
    ) {
        self.world.note(kind, &(self.link.life, id, moved.is_ok()));
        self.check_rows([(tenant, id)].into_iter());
    }
}
