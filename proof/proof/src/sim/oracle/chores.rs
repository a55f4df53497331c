//! Operators, redrives, sweeps and pruning.

use std::collections::BTreeSet;

use posthorn_domain::{
    Budget, CancelReason, Delivery, DeliveryId, DeliveryState, EventId, Lane, NodeId, Redrive,
    RedriveId, RedriveState, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{Advanced, Ending, Entered, Error, Moved, Prune, Pruned, StateKind};

use super::{Entry, Invariant, Oracle};

/// A delivery that was removed by hand.
pub(super) struct Forgotten {
    pub(super) event: EventId,
    pub(super) at: Timestamp,
    /// Whether somebody was told so.
    pub(super) promised: bool,
    /// The tenant it went with, when it was not removed by hand.
    pub(super) tenant: Option<TenantId>,
}

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
        let Some(entry) = self.deliveries.get(&id) else { return };
        let waited = !entry.delivery.state.is_terminal();
        let open = waited || entry.blocks;
        let own = entry.delivery.tenant == tenant;
        let Ok(moved) = answer else { return };
        self.expect(open && own, Invariant::I15, now, || format!("{id} had ended when cancelled"));
        self.expect(waited == moved.recall.is_some(), Invariant::I12, now, || {
            format!("{id} was cancelled and nodes hear {:?} of it", moved.recall)
        });
        let Some((subscription, lane, free_at)) = self.cancel(now, id, at) else { return };
        let ready = moved.ready.as_ref().map(|work| work.delivery.id);
        self.promoted(now, subscription, lane.as_ref(), free_at, ready);
    }

    /// A job cancelled a delivery; whether it had not ended.
    pub(super) fn cancel_quietly(&mut self, now: Timestamp, id: DeliveryId, at: Timestamp) -> bool {
        let waited = self.deliveries.get(&id).is_some_and(|e| !e.delivery.state.is_terminal());
        if let Some((subscription, lane, free_at)) = self.cancel(now, id, at) {
            let next = lane.and_then(|lane| self.next_of_lane(subscription, &lane));
            self.promote(next, free_at);
        }
        waited
    }

    /// Cancels a delivery; which lane of whom it leaves, and from when on another may go.
    fn cancel(
        &mut self,
        now: Timestamp,
        id: DeliveryId,
        at: Timestamp,
    ) -> Option<(SubscriptionId, Option<Lane>, Timestamp)> {
        let entry = self.deliveries.get_mut(&id)?;
        let free_at = free_at(&entry.delivery, at);
        entry.blocks = false;
        entry.handled_at = Some(now);
        entry.held_until = None;
        entry.claimed = None;
        entry.delivery.revival += 1;
        entry.delivery.state = DeliveryState::Cancelled(CancelReason::Operator);
        entry.delivery.ended_at = Some(at);
        entry.delivery.due_at = Timestamp::MAX;
        let (subscription, lane) = (entry.delivery.subscription, entry.delivery.lane.clone());
        // Outside its lane it held nobody up; should it come back, it belongs there.
        if let Some((_, lane)) = entry.enters.take() {
            entry.delivery.lane = Some(lane);
        }
        self.regroup(id);
        Some((subscription, lane, free_at))
    }

    /// An operator was told that a delivery is cancelled: nothing of it starts any more.
    pub(crate) fn promised_quiet(&mut self, id: DeliveryId) {
        if let Some(forgotten) = self.forgotten.get_mut(&id) {
            forgotten.promised = true;
        }
        if let Some(entry) = self.deliveries.get_mut(&id) {
            entry.quiet = matches!(entry.delivery.state, DeliveryState::Cancelled(_));
        }
    }

    /// An operator removed a delivery, or was refused.
    pub(crate) fn forgot(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        id: DeliveryId,
        at: Timestamp,
        answer: &Result<Moved, Error>,
    ) {
        let Ok(moved) = answer else { return };
        let Some((delivery, lane)) = self.forget(now, id) else {
            self.blame(Invariant::I4, now, format!("{id} was forgotten and never accepted"));
            return;
        };
        self.expect(delivery.tenant == tenant, Invariant::I15, now, || {
            format!("{id} was forgotten by a stranger")
        });
        let waited = !delivery.state.is_terminal();
        self.expect(waited == moved.recall.is_some(), Invariant::I12, now, || {
            format!("{id} was forgotten and nodes hear {:?} of it", moved.recall)
        });
        let ready = moved.ready.as_ref().map(|work| work.delivery.id);
        let free_at = free_at(&delivery, at);
        self.promoted(now, delivery.subscription, lane.as_ref(), free_at, ready);
    }

    /// A job removed a delivery; whether it had not ended.
    pub(super) fn forget_quietly(&mut self, now: Timestamp, id: DeliveryId, at: Timestamp) -> bool {
        let Some((delivery, lane)) = self.forget(now, id) else { return false };
        let next = lane.and_then(|lane| self.next_of_lane(delivery.subscription, &lane));
        self.promote(next, free_at(&delivery, at));
        !delivery.state.is_terminal()
    }

    /// Removes a delivery: as it was, and the lane in which others may go on.
    fn forget(&mut self, now: Timestamp, id: DeliveryId) -> Option<(Delivery, Option<Lane>)> {
        let Entry { delivery, .. } = self.deliveries.remove(&id)?;
        let forgotten = Forgotten { event: delivery.event, at: now, promised: false, tenant: None };
        self.forgotten.insert(id, forgotten);
        if let Some(ids) = self.by_event.get_mut(&delivery.event) {
            ids.retain(|other| *other != id);
        }
        let (subscription, lane) = (delivery.subscription, delivery.lane.clone());
        if let Some(lane) = &lane
            && let Some(members) = self.lanes.get_mut(&(subscription, lane.clone()))
        {
            members.remove(&id);
        }
        let gone = self.subscriptions.get(&subscription).is_none_or(|s| s.deleted);
        Some((delivery, lane.filter(|_| !gone)))
    }

    /// An operator brought a delivery back, or was refused.
    pub(crate) fn retried(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        (id, budget): (DeliveryId, Budget),
        at: Timestamp,
        answer: &Result<Moved, Error>,
    ) {
        let Ok(moved) = answer else { return };
        let Some(entry) = self.deliveries.get(&id) else { return };
        let delivery = &entry.delivery;
        let leased = delivery.state == DeliveryState::InFlight && delivery.due_at > at;
        let right = !leased && delivery.tenant == tenant;
        let ended = delivery.state.is_terminal();
        let event = self.events.get(&delivery.event);
        let later = event.and_then(|event| event.deliver_at).filter(|later| *later > at);
        let over = matches!(delivery.state, DeliveryState::Delivered | DeliveryState::Dead(_));
        let expunged = self.is_expunged(delivery.event);
        self.expect(right, Invariant::I15, now, || format!("{id} was retried under way"));
        self.expect(later.is_none() || over, Invariant::I9, now, || {
            format!("{id} was retried, though it is to be delivered at {later:?}")
        });
        self.expect(!expunged, Invariant::I15, now, || {
            format!("{id} was retried without the payload of its event")
        });
        let recalls = if ended {
            self.revive(now, (id, budget), at)
        } else {
            self.hasten(now, (id, budget), at);
            true
        };
        self.expect(recalls == moved.recall.is_some(), Invariant::I12, now, || {
            format!("{id} was retried and nodes hear {:?} of it", moved.recall)
        });
    }

    /// One that waits is due at once, where it stands.
    fn hasten(&mut self, now: Timestamp, (id, budget): (DeliveryId, Budget), at: Timestamp) {
        let Some(entry) = self.deliveries.get_mut(&id) else { return };
        entry.handled_at = Some(now);
        entry.held_until = None;
        entry.claimed = None;
        entry.delivery.state = DeliveryState::Pending;
        if !entry.delivery.is_parked() {
            entry.delivery.due_at = at;
            entry.ready_at = at;
        }
        entry.delivery.revival += 1;
        // One attempt now, of the budget that it has.
        if budget == Budget::Once {
            return;
        }
        entry.budgets += 1;
        entry.delivery.budget_base = entry.delivery.attempts;
        entry.delivery.budget = Budget::Fresh;
        entry.delivery.budget_began = at;
    }

    /// One that has ended comes back to its place; true when somebody has to wait for it.
    pub(super) fn revive(
        &mut self,
        now: Timestamp,
        (id, budget): (DeliveryId, Budget),
        at: Timestamp,
    ) -> bool {
        let Some(entry) = self.deliveries.get(&id) else { return false };
        let (subscription, seq) = (entry.delivery.subscription, entry.delivery.seq);
        let lane = entry.delivery.lane.clone();
        let members = lane.as_ref().and_then(|lane| self.lanes.get(&(subscription, lane.clone())));
        let others = members.into_iter().flatten().filter(|other| **other != id);
        let others: Vec<&Entry> = others.filter_map(|other| self.deliveries.get(other)).collect();
        let head = others
            .iter()
            .map(|other| &other.delivery)
            .find(|other| !other.state.is_terminal() && !other.is_parked());
        let blocked = others.iter().any(|other| other.blocks);
        let leased = |head: &&Delivery| head.state == DeliveryState::InFlight && head.due_at > at;
        let behind = head.filter(leased).map(|head| head.id);
        let first = head.is_none_or(|head| seq < head.seq && behind.is_none());
        let waits = head.map(|head| head.id).filter(|_| first && !blocked);
        if let Some(waiting) = waits.and_then(|waits| self.deliveries.get_mut(&waits)) {
            waiting.held_until = Some(waiting.delivery.due_at);
            waiting.handled_at = Some(now);
            waiting.claimed = None;
            waiting.delivery.state = DeliveryState::Pending;
            waiting.delivery.due_at = Timestamp::MAX;
            waiting.delivery.revival += 1;
        }
        let Some(entry) = self.deliveries.get_mut(&id) else { return false };
        entry.blocks = false;
        entry.quiet = false;
        entry.behind = behind;
        entry.handled_at = Some(now);
        entry.held_until = None;
        entry.claimed = None;
        entry.budgets += 1;
        entry.delivery.state = DeliveryState::Pending;
        entry.delivery.due_at = if lane.is_some() { Timestamp::MAX } else { at };
        entry.ready_at = entry.delivery.due_at;
        entry.delivery.revival += 1;
        entry.delivery.budget_base = entry.delivery.attempts;
        entry.delivery.budget = budget;
        entry.delivery.budget_began = at;
        entry.delivery.ended_at = None;
        self.regroup(id);
        // The first of all goes on when nobody is ahead, which may be one that waited before it.
        let next = lane.and_then(|lane| self.next_of_lane(subscription, &lane));
        self.promote(next, at);
        waits.is_some()
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
    pub(crate) fn redrive_stopped(
        &mut self,
        now: Timestamp,
        redrive: &Redrive,
        told: Option<&Ending>,
    ) {
        let Some((known, _)) = self.redrives.get_mut(&redrive.id) else { return };
        let ends = known.state == RedriveState::Running;
        known.state = redrive.state;
        self.told_by_end(now, redrive.tenant, told.filter(|_| ends), ends);
    }

    /// Those that have not ended.
    pub(crate) fn running_redrives(&self) -> Vec<(TenantId, RedriveId)> {
        let all = self.redrives.values().map(|(redrive, _)| redrive);
        let running = all.filter(|redrive| redrive.state == RedriveState::Running);
        running.map(|redrive| (redrive.tenant, redrive.id)).collect()
    }

    /// Whether one that has not ended is still there after history was removed.
    pub(crate) fn redrive_kept(&mut self, now: Timestamp, id: RedriveId, there: bool) {
        self.expect(there, Invariant::I16, now, || format!("{id} runs and was removed"));
    }

    fn redrivable(&self, redrive: &Redrive, after: Option<DeliveryId>) -> Vec<DeliveryId> {
        let wanted = |entry: &&Entry| {
            let delivery = &entry.delivery;
            let DeliveryState::Dead(reason) = delivery.state else { return false };
            delivery.tenant == redrive.tenant
                && after.is_none_or(|after| delivery.id > after)
                && self.subscriptions.get(&delivery.subscription).is_some_and(|s| !s.deleted)
                && !self.is_expunged(delivery.event)
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
        (answer, told): (&Advanced, Option<&Ending>),
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
        let mut recalls = false;
        for id in &ids {
            recalls |= self.revive(now, (*id, Budget::Fresh), at);
        }
        self.expect(recalls == answer.recall.is_some(), Invariant::I12, now, || {
            format!("{id} went on and nodes hear {:?} of it", answer.recall)
        });
        if let Some((redrive, cursor)) = self.redrives.get_mut(&id) {
            *cursor = ids.last().copied().or(*cursor);
            redrive.state = answer.state;
        }
        let ends = answer.state != RedriveState::Running;
        self.told_by_end(now, redrive.tenant, told.filter(|_| ends), ends);
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
                entry.enters = None;
            }
            self.regroup(id);
        }
    }

    /// Deliveries entered their lanes. Returns them, to be compared with the store.
    pub(crate) fn entered(
        &mut self,
        now: Timestamp,
        limit: usize,
        at: Timestamp,
        answer: &Entered,
    ) -> Vec<DeliveryId> {
        let waits =
            |entry: &Entry| Some((entry.enters.as_ref()?.0, entry.delivery.seq, entry.delivery.id));
        let mut found: Vec<_> = self.deliveries.values().filter_map(waits).collect();
        found.retain(|(time, ..)| *time <= at);
        found.sort_unstable();
        let ids: Vec<DeliveryId> = found.iter().map(|(.., id)| *id).take(limit).collect();
        let mut whose = BTreeSet::new();
        for id in &ids {
            let Some(entry) = self.deliveries.get_mut(id) else { continue };
            let Some((time, lane)) = entry.enters.take() else { continue };
            let subscription = entry.delivery.subscription;
            whose.insert(subscription);
            let parked = self.occupied(subscription, &lane, None);
            self.seq += 1;
            let (seq, due_at) = (self.seq, if parked { Timestamp::MAX } else { at });
            if let Some(entry) = self.deliveries.get_mut(id) {
                entry.delivery.lane = Some(lane.clone());
                entry.delivery.seq = seq;
                entry.delivery.due_at = due_at;
                entry.ready_at = due_at;
                entry.held_until = parked.then_some(time);
            }
            self.lanes.entry((subscription, lane)).or_default().insert(*id);
        }
        let whose: Vec<SubscriptionId> = whose.into_iter().collect();
        self.expect(whose == answer.subscriptions, Invariant::I20, now, || {
            format!("{answer:?} entered their lanes, not those of {whose:?}")
        });
        ids
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
            let known = self.events.get(&event);
            let begins = known.map_or(now, |event| event.begins_at());
            let over = known.and_then(|event| event.expires_at()).is_some_and(|at| at <= prune.now);
            let ids = self.by_event.remove(&event).unwrap_or_default();
            let mut early = ids.is_empty() && begins >= prune.ended_before && !over;
            for id in &ids {
                if let Some(entry) = self.deliveries.remove(id) {
                    let ended = entry.delivery.ended_at.unwrap_or(Timestamp::MAX);
                    let dead = StateKind::of(entry.delivery.state) == StateKind::Dead;
                    early |= !entry.delivery.state.is_terminal()
                        || entry.blocks
                        || (!over && ended >= prune.ended_before)
                        || (!over && dead && ended >= prune.dead_before);
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

    /// Some event of a tenant.
    pub(crate) fn some_event(&self, tenant: TenantId, at: u64) -> Option<EventId> {
        let all: Vec<EventId> = self
            .events
            .values()
            .filter(|event| event.tenant == tenant)
            .map(|event| event.id)
            .collect();
        all.get((at % all.len().max(1) as u64) as usize).copied()
    }

    /// The latest time at which an event of a tenant was accepted, by whatever clock.
    pub(crate) fn newest_event(&self, tenant: TenantId) -> Option<Timestamp> {
        let own = self.events.values().filter(|event| event.tenant == tenant);
        own.map(|event| event.accepted_at).max()
    }

    /// Who holds the shard of a delivery, by the last that was heard.
    pub(crate) fn owner_of(&self, id: DeliveryId) -> Option<NodeId> {
        let shard = self.deliveries.get(&id)?.delivery.shard();
        self.leases.get(&shard)?.holder
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

/// When the next of a lane may go on: not while a written lease says that an attempt is under way.
fn free_at(ended: &Delivery, at: Timestamp) -> Timestamp {
    if ended.state == DeliveryState::InFlight { ended.due_at.max(at) } else { at }
}

impl Oracle {
    /// Whose deliveries these are, those that are known.
    pub(crate) fn tenants_of(&self, ids: &[DeliveryId]) -> Vec<(TenantId, DeliveryId)> {
        ids.iter().filter_map(|id| Some((self.deliveries.get(id)?.delivery.tenant, *id))).collect()
    }
}
