//! Deliveries of the model: lanes, claims, records, and what operators do by hand.

use std::collections::BTreeSet;

use posthorn_domain::delivery::{CancelReason, Step};
use posthorn_domain::{
    Delivery, DeliveryId, DeliveryState, Event, Lane, Redrive, RedriveId, RedriveState,
    SubscriptionId, TenantId, Timestamp,
};

use super::State;
use posthorn_store::{
    Advanced, Claim, Moved, NewDelivery, Placed, Recall, Record, Recorded, Refusal, Swept,
};

pub(crate) struct Row {
    pub(super) delivery: Delivery,
    /// A dead head that stops its lane.
    pub(super) blocks: bool,
    /// While it is parked: when it would be due if nobody had to go before it.
    pub(super) held_until: Option<Timestamp>,
}

/// Whoever stands at the head of a lane.
enum Head {
    /// Unfinished; may be made to wait unless a written lease says that an attempt is under way.
    Live(DeliveryId),
    /// Dead, and blocks.
    Blocker,
}

impl State {
    /// Whether a lane has somebody at its head: unfinished and not parked, or dead and blocking.
    fn occupied(&self, subscription: SubscriptionId, lane: &Lane, but: Option<DeliveryId>) -> bool {
        self.lane_members(subscription, lane).any(|row| {
            Some(row.delivery.id) != but
                && (row.blocks || (!row.delivery.state.is_terminal() && !row.delivery.is_parked()))
        })
    }

    fn lane_members<'a>(
        &'a self,
        subscription: SubscriptionId,
        lane: &'a Lane,
    ) -> impl Iterator<Item = &'a Row> {
        self.by_subscription
            .get(&subscription)
            .into_iter()
            .flatten()
            .filter_map(|id| self.rows.get(id))
            .filter(move |row| row.delivery.lane.as_ref() == Some(lane))
    }

    pub(super) fn place(&mut self, event: &Event, new: NewDelivery) -> Placed {
        let parked =
            new.lane.as_ref().is_some_and(|lane| self.occupied(new.subscription, lane, None));
        self.seq += 1;
        let delivery = Delivery {
            id: new.id,
            event: event.id,
            subscription: new.subscription,
            tenant: event.tenant,
            lane: new.lane,
            seq: self.seq,
            state: DeliveryState::Pending,
            due_at: if parked { Timestamp::MAX } else { new.due_at },
            attempts: 0,
            budget_base: 0,
            budget_began: event.accepted_at,
            revival: 0,
            created_at: event.accepted_at,
            ended_at: None,
        };
        self.by_subscription.entry(new.subscription).or_default().insert(new.id);
        self.by_event.entry(event.id).or_default().push(new.id);
        self.rows.insert(new.id, Row { delivery, blocks: false, held_until: None });
        Placed { seq: self.seq, parked }
    }

    /// Makes the first parked delivery of a lane its head, if the lane has none.
    fn promote(
        &mut self,
        subscription: SubscriptionId,
        lane: Option<&Lane>,
        at: Timestamp,
    ) -> Option<posthorn_store::Work> {
        let lane = lane?;
        if crate::model::plant::active("forget-parked") {
            return None;
        }
        if self.occupied(subscription, lane, None) {
            return None;
        }
        let next = self
            .lane_members(subscription, lane)
            .filter(|row| row.delivery.is_parked())
            .min_by_key(|row| row.delivery.seq)?
            .delivery
            .id;
        let next = self.planted_next(subscription, lane, next, at);
        let row = self.rows.get_mut(&next)?;
        row.delivery.due_at = row.held_until.take().map_or(at, |held| held.max(at));
        self.work(next)
    }

    fn planted_next(
        &mut self,
        subscription: SubscriptionId,
        lane: &Lane,
        first: DeliveryId,
        at: Timestamp,
    ) -> DeliveryId {
        let parked = self.lane_members(subscription, lane).filter(|row| row.delivery.is_parked());
        let last = parked.max_by_key(|row| row.delivery.seq).map_or(first, |row| row.delivery.id);
        if crate::model::plant::active("promote-two")
            && let Some(row) = self.rows.get_mut(&last)
        {
            row.delivery.due_at = at;
        }
        if crate::model::plant::active("promote-last") { last } else { first }
    }

    pub(super) fn claim(&mut self, claim: &Claim, now: Timestamp) -> bool {
        if !self.leases.allows(&claim.fence, now) {
            return false;
        }
        let deleted = |state: &Self, id| state.catalog.deleted_at(id).is_some();
        match self.rows.get(&claim.delivery) {
            Some(row)
                if !row.delivery.state.is_terminal()
                    && !row.delivery.is_parked()
                    && row.delivery.attempts == claim.expected_attempts
                    && row.delivery.revival == claim.expected_revival
                    && !deleted(self, row.delivery.subscription) => {}
            _ => return false,
        }
        if let Some(row) = self.rows.get_mut(&claim.delivery) {
            row.delivery.state = DeliveryState::InFlight;
            row.delivery.due_at = claim.until;
        }
        true
    }

    pub(super) fn record(&mut self, record: Record, now: Timestamp) -> Recorded {
        let fenced = !self.leases.allows(&record.fence, now);
        let fenced = fenced && !crate::model::plant::active("no-fencing");
        let arrived = record.step.state == DeliveryState::Delivered;
        if let Some(standing) = record.standing.filter(|_| !fenced) {
            self.catalog.stand(standing);
        }
        let current = self.rows.get(&record.delivery).is_some_and(|row| {
            let known =
                !row.delivery.is_parked() && row.delivery.revival == record.expected_revival;
            let known = known || crate::model::plant::active("ignore-revival");
            !row.delivery.state.is_terminal()
                && row.delivery.attempts == record.expected_attempts
                && (known || arrived)
                && self.catalog.deleted_at(row.delivery.subscription).is_none()
        });
        if fenced || !current {
            if let Some(mut attempt) = record.attempt
                && self.rows.contains_key(&record.delivery)
            {
                attempt.late = true;
                let list = self.attempts.entry(record.delivery).or_default();
                // A repeat of what was written already is no news.
                if !list
                    .iter()
                    .any(|old| old.number == attempt.number && old.started_at == attempt.started_at)
                {
                    list.push(attempt);
                }
            }
            return if fenced { Recorded::Fenced } else { Recorded::Superseded };
        }
        if let Some(attempt) = record.attempt {
            self.attempts.entry(record.delivery).or_default().push(attempt);
        }
        let (subscription, lane) = self.apply(record.delivery, &record.step, record.at);
        let promoted = if record.step.release_lane {
            self.promote(subscription, lane.as_ref(), record.at)
        } else {
            None
        };
        Recorded::Written { promoted }
    }

    fn apply(
        &mut self,
        id: DeliveryId,
        step: &Step,
        at: Timestamp,
    ) -> (SubscriptionId, Option<Lane>) {
        let row = self.rows.get_mut(&id).expect("the caller has just seen the row");
        let delivery = &mut row.delivery;
        delivery.attempts += u32::from(step.charge);
        delivery.state = step.state;
        if step.state.is_terminal() {
            delivery.ended_at = Some(at);
            delivery.due_at = Timestamp::MAX;
            row.blocks = !step.release_lane && delivery.lane.is_some();
        } else {
            delivery.due_at = step.due_at;
        }
        (delivery.subscription, delivery.lane.clone())
    }

    pub(super) fn cancel(
        &mut self,
        tenant: TenantId,
        id: DeliveryId,
        at: Timestamp,
    ) -> Result<Moved, Refusal> {
        let row = self.rows.get(&id).filter(|row| row.delivery.tenant == tenant);
        let row = row.ok_or(Refusal::NotFound)?;
        if self.seen(row).state.is_terminal() && !row.blocks {
            return Err(Refusal::Ended);
        }
        let row = self.rows.get_mut(&id).ok_or(Refusal::NotFound)?;
        let free_at = row.delivery.leased_until(at).unwrap_or(at);
        let waited = !row.delivery.state.is_terminal();
        row.blocks = false;
        row.held_until = None;
        row.delivery.revival += 1;
        row.delivery.state = DeliveryState::Cancelled(CancelReason::Operator);
        row.delivery.ended_at = Some(at);
        row.delivery.due_at = Timestamp::MAX;
        let delivery = row.delivery.clone();
        let recalls = waited.then(|| recall(&delivery)).into_iter().collect();
        let ready = self.promote(delivery.subscription, delivery.lane.as_ref(), free_at);
        Ok(Moved { delivery, ready, recall: self.catalog.recall(at, recalls) })
    }

    pub(super) fn retry(
        &mut self,
        tenant: TenantId,
        id: DeliveryId,
        at: Timestamp,
    ) -> Result<Moved, Refusal> {
        let row = self.rows.get(&id).filter(|row| row.delivery.tenant == tenant);
        let row = row.ok_or(Refusal::NotFound)?;
        if self.catalog.deleted_at(row.delivery.subscription).is_some() {
            return Err(Refusal::NotFound);
        }
        if row.delivery.leased_until(at).is_some() {
            return Err(Refusal::NotEnded);
        }
        let (recalled, ready) = if row.delivery.state.is_terminal() {
            self.revive(id, at)
        } else {
            (self.hasten(id, at), self.work(id).filter(|work| !work.delivery.is_parked()))
        };
        let delivery = self.rows.get(&id).ok_or(Refusal::NotFound)?.delivery.clone();
        let recall = self.catalog.recall(at, recalled.into_iter().collect());
        Ok(Moved { delivery, ready, recall })
    }

    pub(super) fn forget(
        &mut self,
        tenant: TenantId,
        id: DeliveryId,
        at: Timestamp,
    ) -> Result<Moved, Refusal> {
        let row = self.rows.get(&id).filter(|row| row.delivery.tenant == tenant);
        let mut delivery = self.seen(row.ok_or(Refusal::NotFound)?);
        let free_at = delivery.leased_until(at).unwrap_or(at);
        self.rows.remove(&id);
        self.attempts.remove(&id);
        if let Some(ids) = self.by_subscription.get_mut(&delivery.subscription) {
            ids.remove(&id);
        }
        if let Some(ids) = self.by_event.get_mut(&delivery.event) {
            ids.retain(|other| *other != id);
        }
        let mut recalls = Vec::new();
        if !delivery.state.is_terminal() {
            delivery.revival += 1;
            delivery.state = DeliveryState::Cancelled(CancelReason::Operator);
            delivery.ended_at = Some(at);
            delivery.due_at = Timestamp::MAX;
            recalls.push(recall(&delivery));
        }
        let ready = match self.catalog.deleted_at(delivery.subscription) {
            None => self.promote(delivery.subscription, delivery.lane.as_ref(), free_at),
            Some(_) => None,
        };
        Ok(Moved { delivery, ready, recall: self.catalog.recall(at, recalls) })
    }

    /// Who stands at the head of a lane, besides `but`. A blocker counts more than whoever goes on.
    fn head(&self, subscription: SubscriptionId, lane: &Lane, but: DeliveryId) -> Option<Head> {
        let mut live = None;
        for row in self.lane_members(subscription, lane).filter(|row| row.delivery.id != but) {
            if row.blocks {
                return Some(Head::Blocker);
            }
            if !row.delivery.state.is_terminal() && !row.delivery.is_parked() {
                live = Some(Head::Live(row.delivery.id));
            }
        }
        live
    }

    /// Back to pending with a fresh budget, in its place: a head that comes later has to wait. Returns
    /// the head that does, and who goes on because of it.
    fn revive(
        &mut self,
        id: DeliveryId,
        at: Timestamp,
    ) -> (Option<Recall>, Option<posthorn_store::Work>) {
        let Some(row) = self.rows.get(&id) else { return (None, None) };
        let (subscription, lane, seq) =
            (row.delivery.subscription, row.delivery.lane.clone(), row.delivery.seq);
        let head = lane.as_ref().and_then(|lane| self.head(subscription, lane, id));
        let waits = match head {
            Some(Head::Live(head)) => Some(head).filter(|head| {
                let first = self.rows.get(head).is_none_or(|row| {
                    row.delivery.seq < seq || row.delivery.leased_until(at).is_some()
                });
                let first = first || crate::model::plant::active("revive-behind");
                !first
            }),
            None | Some(Head::Blocker) => None,
        };
        let recalled = waits.and_then(|head| self.displace(head));
        let Some(row) = self.rows.get_mut(&id) else { return (None, None) };
        row.blocks = false;
        row.held_until = None;
        let delivery = &mut row.delivery;
        delivery.state = DeliveryState::Pending;
        delivery.due_at = if lane.is_some() { Timestamp::MAX } else { at };
        delivery.budget_base = delivery.attempts;
        delivery.budget_began = at;
        delivery.revival += 1;
        delivery.ended_at = None;
        // In a lane it waits like the others; when the lane is free, the first of all goes on.
        let ready = match &lane {
            Some(lane) => self.promote(subscription, Some(lane), at),
            None => self.work(id),
        };
        (recalled, ready)
    }

    /// Has the head of a lane wait for one that comes before it.
    fn displace(&mut self, head: DeliveryId) -> Option<Recall> {
        let row = self.rows.get_mut(&head)?;
        row.held_until = Some(row.delivery.due_at);
        row.delivery.state = DeliveryState::Pending;
        row.delivery.due_at = Timestamp::MAX;
        row.delivery.revival += 1;
        Some(recall(&row.delivery))
    }

    /// Due now with a fresh budget; a parked one keeps waiting for its turn.
    fn hasten(&mut self, id: DeliveryId, at: Timestamp) -> Option<Recall> {
        let row = self.rows.get_mut(&id)?;
        row.held_until = None;
        let delivery = &mut row.delivery;
        delivery.state = DeliveryState::Pending;
        if !delivery.is_parked() {
            delivery.due_at = at;
        }
        delivery.budget_base = delivery.attempts;
        delivery.budget_began = at;
        delivery.revival += 1;
        Some(recall(delivery))
    }

    pub(super) fn redrivable<'a>(
        &'a self,
        redrive: &'a Redrive,
        after: Option<DeliveryId>,
    ) -> impl Iterator<Item = DeliveryId> + 'a {
        self.rows.values().filter_map(move |row| {
            let delivery = &row.delivery;
            let DeliveryState::Dead(reason) = delivery.state else { return None };
            let wanted = delivery.tenant == redrive.tenant
                && after.is_none_or(|after| delivery.id > after)
                && self.catalog.deleted_at(delivery.subscription).is_none()
                && redrive.filter.wants(
                    delivery.subscription,
                    reason,
                    delivery.ended_at.unwrap_or(Timestamp::MAX),
                );
            wanted.then_some(delivery.id)
        })
    }

    pub(super) fn advance(
        &mut self,
        id: RedriveId,
        limit: usize,
        at: Timestamp,
    ) -> Result<Advanced, Refusal> {
        let stored = self.redrives.get(&id).ok_or(Refusal::NotFound)?;
        if stored.redrive.state != RedriveState::Running {
            let state = stored.redrive.state;
            return Ok(Advanced { moved: 0, subscriptions: Vec::new(), state, recall: None });
        }
        let ids: Vec<DeliveryId> =
            self.redrivable(&stored.redrive, stored.cursor).take(limit).collect();
        let mut subscriptions = BTreeSet::new();
        let mut recalls = Vec::new();
        for id in &ids {
            recalls.extend(self.revive(*id, at).0);
            subscriptions.extend(self.rows.get(id).map(|row| row.delivery.subscription));
        }
        let stored = self.redrives.get_mut(&id).ok_or(Refusal::NotFound)?;
        stored.redrive.moved += ids.len() as u64;
        stored.cursor = ids.last().copied().or(stored.cursor);
        if ids.len() < limit {
            stored.redrive.state = RedriveState::Done;
            stored.redrive.finished_at = Some(at);
        }
        let state = stored.redrive.state;
        let recall = self.catalog.recall(at, recalls);
        let subscriptions = subscriptions.into_iter().collect();
        Ok(Advanced { moved: ids.len(), subscriptions, state, recall })
    }

    pub(super) fn sweep(&mut self, limit: usize, at: Timestamp) -> Swept {
        let doomed: Vec<DeliveryId> = self
            .catalog
            .deleted()
            .filter_map(|id| self.by_subscription.get(&id))
            .flatten()
            .filter(|id| self.rows.get(id).is_some_and(|row| !row.delivery.state.is_terminal()))
            .copied()
            .take(limit)
            .collect();
        let gone: Vec<SubscriptionId> = self.catalog.deleted().collect();
        for id in gone.iter().filter_map(|id| self.by_subscription.get(id)).flatten() {
            // Nobody is left behind a dead letter of somebody who left.
            if let Some(row) = self.rows.get_mut(id) {
                row.blocks = false;
            }
        }
        for id in &doomed {
            if let Some(row) = self.rows.get_mut(id) {
                row.delivery.state = DeliveryState::Cancelled(CancelReason::Unsubscribed);
                row.delivery.ended_at = Some(at);
                row.delivery.due_at = Timestamp::MAX;
            }
        }
        Swept { cancelled: doomed.len(), more: doomed.len() == limit }
    }
}

/// What nodes must hear of a delivery that has just changed.
fn recall(delivery: &Delivery) -> Recall {
    Recall { subscription: delivery.subscription, delivery: delivery.id, revival: delivery.revival }
}
