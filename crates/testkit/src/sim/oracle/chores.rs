//! Operators, redrives, sweeps and pruning.

use std::collections::BTreeSet;

use posthorn_domain::{
    CancelReason, DeliveryId, DeliveryState, EventId, Redrive, RedriveId, RedriveState,
    SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{Advanced, Error, Moved, Prune, Pruned, StateKind};

use super::{Entry, Invariant, Oracle};

impl Oracle {
    /// An operator cancelled a delivery, or was refused.
    pub(crate) fn cancelled(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        id: DeliveryId,
        at: Timestamp,
        answer: &Result<Moved, Error>,
    ) {
        let Some(entry) = self.deliveries.get_mut(&id) else { return };
        let open = !entry.delivery.state.is_terminal() || entry.blocks;
        let own = entry.delivery.tenant == tenant;
        let Ok(moved) = answer else { return };
        let free_at = match entry.delivery.state {
            DeliveryState::InFlight => entry.delivery.due_at.max(at),
            _ => at,
        };
        entry.blocks = false;
        entry.handled = true;
        entry.claimed = None;
        entry.delivery.state = DeliveryState::Cancelled(CancelReason::Operator);
        entry.delivery.ended_at = Some(at);
        entry.delivery.due_at = Timestamp::MAX;
        let (subscription, lane) = (entry.delivery.subscription, entry.delivery.lane.clone());
        self.expect(open && own, Invariant::I15, now, || format!("{id} had ended when cancelled"));
        self.regroup(id);
        let ready = moved.ready.as_ref().map(|work| work.delivery.id);
        self.promoted(now, subscription, lane.as_ref(), free_at, ready);
    }

    /// An operator brought a delivery back, or was refused.
    pub(crate) fn retried(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        id: DeliveryId,
        at: Timestamp,
        answer: &Result<Moved, Error>,
    ) {
        if answer.is_err() {
            return;
        }
        let Some(entry) = self.deliveries.get(&id) else { return };
        let delivery = &entry.delivery;
        let leased = delivery.state == DeliveryState::InFlight && delivery.due_at > at;
        let right = !leased && delivery.tenant == tenant;
        let ended = delivery.state.is_terminal();
        self.expect(right, Invariant::I15, now, || format!("{id} was retried under way"));
        if ended {
            self.revive(id, at);
        } else {
            self.hasten(id, at);
        }
    }

    /// One that waits is due at once, where it stands.
    fn hasten(&mut self, id: DeliveryId, at: Timestamp) {
        let Some(entry) = self.deliveries.get_mut(&id) else { return };
        entry.handled = true;
        entry.claimed = None;
        entry.budgets += 1;
        entry.delivery.state = DeliveryState::Pending;
        if !entry.delivery.is_parked() {
            entry.delivery.due_at = at;
            entry.ready_at = at;
        }
        entry.delivery.budget_base = entry.delivery.attempts;
        entry.delivery.budget_began = at;
    }

    fn revive(&mut self, id: DeliveryId, at: Timestamp) {
        let Some(entry) = self.deliveries.get(&id) else { return };
        let (subscription, lane) = (entry.delivery.subscription, entry.delivery.lane.clone());
        let parked = lane.as_ref().is_some_and(|lane| self.occupied(subscription, lane, Some(id)));
        let Some(entry) = self.deliveries.get_mut(&id) else { return };
        entry.blocks = false;
        entry.handled = true;
        entry.claimed = None;
        entry.budgets += 1;
        entry.delivery.state = DeliveryState::Pending;
        entry.delivery.due_at = if parked { Timestamp::MAX } else { at };
        entry.ready_at = entry.delivery.due_at;
        entry.delivery.budget_base = entry.delivery.attempts;
        entry.delivery.budget_began = at;
        entry.delivery.ended_at = None;
        self.regroup(id);
    }

    /// A redrive was written down.
    pub(crate) fn redrive_made(&mut self, now: Timestamp, redrive: &Redrive) {
        let total = self.redrivable(redrive, None).len() as u64;
        self.expect(total == redrive.total, Invariant::I10, now, || {
            format!("{} would move {} dead letters, not {total}", redrive.id, redrive.total)
        });
        self.redrives.insert(redrive.id, (redrive.clone(), None));
    }

    /// A redrive was stopped.
    pub(crate) fn redrive_stopped(&mut self, redrive: &Redrive) {
        if let Some((known, _)) = self.redrives.get_mut(&redrive.id) {
            known.state = redrive.state;
        }
    }

    fn redrivable(&self, redrive: &Redrive, after: Option<DeliveryId>) -> Vec<DeliveryId> {
        let wanted = |entry: &&Entry| {
            let delivery = &entry.delivery;
            let DeliveryState::Dead(reason) = delivery.state else { return false };
            delivery.tenant == redrive.tenant
                && after.is_none_or(|after| delivery.id > after)
                && self.subscriptions.get(&delivery.subscription).is_some_and(|s| !s.deleted)
                && redrive.filter.wants(
                    delivery.subscription,
                    reason,
                    delivery.ended_at.unwrap_or(Timestamp::MAX),
                )
        };
        self.deliveries.values().filter(wanted).map(|entry| entry.delivery.id).collect()
    }

    /// A redrive went on by one bite. Returns whom it moved, to be compared with the store.
    pub(crate) fn advanced(
        &mut self,
        now: Timestamp,
        id: RedriveId,
        limit: usize,
        at: Timestamp,
        answer: &Advanced,
    ) -> Vec<DeliveryId> {
        let Some((redrive, cursor)) = self.redrives.get(&id).cloned() else { return Vec::new() };
        if redrive.state != RedriveState::Running {
            self.expect(answer.moved == 0, Invariant::I10, now, || format!("{id} had ended"));
            return Vec::new();
        }
        let mut ids = self.redrivable(&redrive, cursor);
        ids.truncate(limit);
        self.expect(ids.len() == answer.moved, Invariant::I10, now, || {
            format!("{id} moved {}, not {}", answer.moved, ids.len())
        });
        for id in &ids {
            self.revive(*id, at);
        }
        if let Some((redrive, cursor)) = self.redrives.get_mut(&id) {
            *cursor = ids.last().copied().or(*cursor);
            redrive.state = answer.state;
        }
        ids
    }

    /// A subscription was deleted: everything unfinished counts as cancelled from now on.
    pub(super) fn unsubscribed(&mut self, subscription: SubscriptionId, at: Timestamp) {
        // Nobody waits behind its dead letters any more.
        for entry in self.deliveries.values_mut() {
            entry.blocks &= entry.delivery.subscription != subscription;
        }
        let ids: Vec<DeliveryId> = self
            .deliveries
            .values()
            .filter(|entry| entry.delivery.subscription == subscription)
            .filter(|entry| !entry.delivery.state.is_terminal())
            .map(|entry| entry.delivery.id)
            .collect();
        for id in ids {
            if let Some(entry) = self.deliveries.get_mut(&id) {
                entry.delivery.state = DeliveryState::Cancelled(CancelReason::Unsubscribed);
                entry.delivery.due_at = Timestamp::MAX;
                entry.delivery.ended_at = Some(at);
                entry.claimed = None;
            }
            self.regroup(id);
        }
    }

    /// History was removed; `left` is what the store still has.
    pub(crate) fn pruned(
        &mut self,
        now: Timestamp,
        prune: &Prune,
        answer: &Pruned,
        left: &BTreeSet<EventId>,
    ) {
        if answer.keys > 0 {
            self.keys.retain(|_, key| key.accepted_at >= prune.keys_before);
        }
        let gone: Vec<EventId> =
            self.events.keys().filter(|id| !left.contains(id)).copied().collect();
        self.expect(gone.len() == answer.events, Invariant::I16, now, || {
            format!("{} events were removed, {} are gone", answer.events, gone.len())
        });
        for event in gone {
            let accepted = self.events.get(&event).map_or(now, |event| event.accepted_at);
            let ids = self.by_event.remove(&event).unwrap_or_default();
            let mut early = ids.is_empty() && accepted >= prune.ended_before;
            for id in &ids {
                if let Some(entry) = self.deliveries.remove(id) {
                    let ended = entry.delivery.ended_at.unwrap_or(Timestamp::MAX);
                    let dead = StateKind::of(entry.delivery.state) == StateKind::Dead;
                    early |= !entry.delivery.state.is_terminal()
                        || entry.blocks
                        || ended >= prune.ended_before
                        || (dead && ended >= prune.dead_before);
                    if let Some(lane) = entry.delivery.lane
                        && let Some(members) =
                            self.lanes.get_mut(&(entry.delivery.subscription, lane))
                    {
                        members.remove(id);
                    }
                }
            }
            self.expect(!early, Invariant::I16, now, || {
                format!("{event} was removed with unfinished, blocking or fresh deliveries {ids:?}")
            });
            self.events.remove(&event);
            self.pruned.insert(event);
        }
    }

    /// Some delivery to be cancelled or retried by hand.
    pub(crate) fn some_delivery(&self, ended: bool, at: u64) -> Option<(TenantId, DeliveryId)> {
        let fits = |entry: &&Entry| {
            (entry.delivery.state.is_terminal() || entry.blocks) == ended
                && self.subscriptions.get(&entry.delivery.subscription).is_some_and(|s| !s.deleted)
        };
        let all: Vec<_> = self.deliveries.values().filter(fits).collect();
        let entry = all.get((at % all.len().max(1) as u64) as usize)?;
        Some((entry.delivery.tenant, entry.delivery.id))
    }

    /// Dead letters that stop their lanes.
    pub(crate) fn blockers(&self) -> Vec<(TenantId, DeliveryId)> {
        let blocks = self.deliveries.values().filter(|entry| entry.blocks);
        blocks
            .filter(|e| {
                self.subscriptions.get(&e.delivery.subscription).is_some_and(|s| !s.deleted)
            })
            .map(|e| (e.delivery.tenant, e.delivery.id))
            .collect()
    }
}

impl Oracle {
    /// Whose deliveries these are, those that are known.
    pub(crate) fn tenants_of(&self, ids: &[DeliveryId]) -> Vec<(TenantId, DeliveryId)> {
        ids.iter().filter_map(|id| Some((self.deliveries.get(id)?.delivery.tenant, *id))).collect()
    }
}
