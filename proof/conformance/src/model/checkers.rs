//! What checkers look at: everything there is, past the contract.

use std::sync::Arc;

use posthorn_domain::{Attempt, AuditEntry, AuditId, Delivery, Event, JobId, SubscriptionId};

use super::ModelStore;

impl ModelStore {
    /// Every delivery there is, for checkers.
    pub fn all_deliveries(&self) -> Vec<Delivery> {
        let state = self.shared.state.lock();
        state.rows.values().map(|row| state.seen(row)).collect()
    }

    /// Every attempt there is, for checkers.
    pub fn all_attempts(&self) -> Vec<Attempt> {
        self.shared.state.lock().attempts.values().flatten().cloned().collect()
    }

    /// Every subscription that was deleted, for checkers.
    pub fn deleted_subscriptions(&self) -> Vec<SubscriptionId> {
        self.shared.state.lock().catalog.deleted().collect()
    }

    /// Whether the tenant of a job has idempotency keys, for checkers.
    pub fn has_keys_of_job(&self, job: JobId) -> bool {
        let state = self.shared.state.lock();
        let tenant = state.jobs.get(&job).map(|(job, _)| job.tenant);
        tenant.is_some_and(|tenant| state.keys.keys().any(|(of, _)| *of == tenant))
    }

    /// One line of the audit log, for checkers.
    pub fn line(&self, id: AuditId) -> Option<AuditEntry> {
        self.shared.state.lock().audit.get(&id).cloned()
    }

    /// Every event there is, for checkers.
    pub fn all_events(&self) -> Vec<Arc<Event>> {
        self.shared.state.lock().events.values().cloned().collect()
    }
}
