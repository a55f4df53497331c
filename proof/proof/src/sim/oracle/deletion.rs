//! Tenants that are deleted: nothing comes in from the moment the store says so, no attempt starts once somebody was
//! told, everything of the tenant goes, and nothing of anybody else.

use std::collections::BTreeSet;

use posthorn_domain::{EventId, JobState, RedriveState, SubscriptionId, TenantId, Timestamp};
use posthorn_store::{Bite, Bitten};

use super::chores::Forgotten;
use super::{Invariant, Oracle};

/// What the store has left of a tenant after a bite of its deletion.
pub(crate) struct Left {
    /// All events there are, of all tenants.
    pub(crate) events: BTreeSet<EventId>,
    /// Subscriptions that were deleted, of all tenants.
    pub(crate) deleted: Vec<SubscriptionId>,
    /// Whether the tenant has idempotency keys.
    pub(crate) keys: bool,
}

impl Oracle {
    /// The store says that a tenant is to be deleted.
    pub(super) fn closed(&mut self, now: Timestamp, tenant: TenantId) {
        self.closed.insert(tenant, false);
        for known in self.subscriptions.values_mut().filter(|known| known.tenant == tenant) {
            known.closed = true;
            known.stopped_at.get_or_insert(now);
        }
        // No plan is current any more.
        self.tenants.remove(&tenant);
    }

    /// Whether a tenant is being deleted, or was.
    pub(crate) fn is_closed(&self, tenant: TenantId) -> bool {
        self.closed.contains_key(&tenant)
    }

    /// Somebody was told that a tenant is being deleted.
    pub(crate) fn promised_deletion(&mut self, now: Timestamp, tenant: TenantId) {
        self.closed.insert(tenant, true);
        for known in self.subscriptions.values_mut().filter(|known| known.tenant == tenant) {
            known.promised_stop.get_or_insert(now);
        }
        let own = self.forgotten.values_mut().filter(|gone| gone.tenant == Some(tenant));
        own.for_each(|gone| gone.promised = true);
    }

    /// A deletion went on by one bite.
    pub(crate) fn removed(&mut self, now: Timestamp, bite: &Bite, answer: &Bitten, left: &Left) {
        let Some(tenant) = self.tenant_of_job(bite.job) else { return };
        let promised = self.closed.get(&tenant).copied();
        for id in &left.deleted {
            let own = self.subscriptions.get(id).filter(|known| !known.deleted);
            if own.is_some_and(|known| known.tenant == tenant) {
                if let Some(known) = self.subscriptions.get_mut(id) {
                    known.deleted = true;
                }
                self.unsubscribed(*id, bite.at);
            }
        }
        let gone: Vec<EventId> =
            self.events.keys().filter(|id| !left.events.contains(id)).copied().collect();
        for event in gone {
            let own = self.events.get(&event).is_some_and(|event| event.tenant == tenant);
            self.expect(own && promised.is_some(), Invariant::I16, now, || {
                format!(
                    "{event} was removed with {tenant}, which it does not belong to, or which stays"
                )
            });
            self.gone_with_tenant(now, tenant, event, promised.unwrap_or_default());
        }
        if !left.keys {
            self.keys.retain(|(of, _), _| *of != tenant);
        }
        let ran = self.running_jobs().contains(&(tenant, bite.job));
        self.stop_work_of(tenant, bite, answer.state);
        if answer.state == JobState::Done {
            let rest = self.events.values().filter(|event| event.tenant == tenant).count();
            self.expect(rest == 0 && !left.keys, Invariant::I3, now, || {
                format!("{tenant} is deleted, and {rest} of its events are left")
            });
            // Whoever comes after the last bite tells nothing.
            self.told_by_end(now, tenant, bite.ending.as_ref().filter(|_| ran), ran);
        }
    }

    fn gone_with_tenant(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        event: EventId,
        promised: bool,
    ) {
        for id in self.by_event.remove(&event).unwrap_or_default() {
            let Some(entry) = self.deliveries.remove(&id) else { continue };
            if let Some(lane) = entry.delivery.lane
                && let Some(members) = self.lanes.get_mut(&(entry.delivery.subscription, lane))
            {
                members.remove(&id);
            }
            let gone = Forgotten { event, at: now, promised, tenant: Some(tenant) };
            self.forgotten.insert(id, gone);
        }
        self.events.remove(&event);
        self.pruned.insert(event);
    }

    /// What else runs for the tenant is stopped.
    fn stop_work_of(&mut self, tenant: TenantId, bite: &Bite, state: JobState) {
        self.set_job_states(tenant, bite.job, state);
        for (redrive, _) in self.redrives.values_mut().filter(|(own, _)| own.tenant == tenant) {
            if redrive.state == RedriveState::Running {
                redrive.state = RedriveState::Cancelled;
            }
        }
    }
}
