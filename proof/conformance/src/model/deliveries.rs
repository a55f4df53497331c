//! Deliveries of the model: lanes, claims, records, and what operators do by hand.

use std::collections::BTreeSet;

use posthorn_domain::delivery::{self, CancelReason, Head, Others, Step, Stored, Wish};
use posthorn_domain::{
    Attempt, Delivery, DeliveryId, DeliveryState, Event, Lane, Redrive, RedriveId, RedriveState,
    SubscriptionId, TenantId, Timestamp,
};

use super::State;
use posthorn_store::{
    Advanced, Claim, Ending, Entered, Moved, NewDelivery, Placed, Recall, Record, Recorded,
    Refusal, Swept, Work,
};

pub(crate) struct Row {
    pub(super) delivery: Delivery,
    /// A dead head that stops its lane.
    pub(super) blocks: bool,
    /// While it is parked: when it would be due if nobody had to go before it.
    pub(super) held_until: Option<Timestamp>,
    /// When it enters which lane, as long as it has not.
    pub(super) enters: Option<(Timestamp, Lane)>,
}

impl State {
    /// Whether a lane has somebody at its head: unfinished and not parked, or dead and blocking.
    fn occupied(&self, subscription: SubscriptionId, lane: &Lane) -> bool {
        self.lane_members(subscription, lane).any(|row| {
            row.blocks || (!row.delivery.state.is_terminal() && !row.delivery.is_parked())
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
        self.place_at(event, new, event.deliver_at)
    }

    /// Stores a delivery that waits for a time of its event, where there is one.
    pub(super) fn place_at(
        &mut self,
        event: &Event,
        mut new: NewDelivery,
        later: Option<Timestamp>,
    ) -> Placed {
        let enters = later.and_then(|at| Some((at, new.lane.take()?)));
        let occupied = new.lane.as_ref().is_some_and(|lane| self.occupied(new.subscription, lane));
        let parked = occupied || enters.is_some();
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
            budget: posthorn_domain::Budget::Fresh,
            budget_began: later.unwrap_or(event.accepted_at),
            revival: 0,
            created_at: event.accepted_at,
            ended_at: None,
            last_outcome: None,
        };
        self.by_subscription.entry(new.subscription).or_default().insert(new.id);
        self.by_event.entry(event.id).or_default().push(new.id);
        self.wanted.insert(event.id);
        self.rows.insert(new.id, Row { delivery, blocks: false, held_until: None, enters });
        Placed { seq: self.seq, parked }
    }

    /// Makes the first parked delivery of a lane its head, if the lane has none.
    fn promote(
        &mut self,
        subscription: SubscriptionId,
        lane: Option<&Lane>,
        at: Timestamp,
    ) -> Option<Work> {
        let lane = lane?;
        if crate::model::plant::active("forget-parked") {
            return None;
        }
        if self.occupied(subscription, lane) {
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
        if !self.leases.allows_attempt(&claim.fence, now) {
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

    pub(super) fn record(&mut self, record: Record) -> Recorded {
        if self.is_stale(&record.told) {
            return Recorded::Stale;
        }
        let fenced = !self.leases.allows_outcome(&record.fence);
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
            if crate::model::plant::active("told-without-cause") {
                self.tell(record.told);
            }
            if let Some(mut attempt) = record.attempt
                && self.rows.contains_key(&record.delivery)
            {
                attempt.late = true;
                let mut known = self.attempts.get(&record.delivery).into_iter().flatten();
                // A repeat of what was written already is no news.
                if !known
                    .any(|old| old.number == attempt.number && old.started_at == attempt.started_at)
                {
                    self.keep_attempt(attempt);
                }
            }
            return if fenced { Recorded::Fenced } else { Recorded::Superseded };
        }
        let outcome = record.attempt.as_ref().and_then(Attempt::came_of_it);
        if let Some(attempt) = record.attempt {
            self.keep_attempt(attempt);
        }
        let (subscription, lane) = self.apply(record.delivery, &record.step, record.at);
        if let Some(row) = self.rows.get_mut(&record.delivery) {
            row.delivery.last_outcome = outcome.or(row.delivery.last_outcome);
        }
        let promoted = if record.step.release_lane {
            self.promote(subscription, lane.as_ref(), record.at)
        } else {
            None
        };
        self.tell(record.told);
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

    /// Does what somebody wants of a delivery, as far as it is possible.
    pub(super) fn by_hand(
        &mut self,
        wish: Wish,
        tenant: TenantId,
        id: DeliveryId,
        at: Timestamp,
    ) -> Result<Moved, Refusal> {
        self.rows.get(&id).filter(|row| row.delivery.tenant == tenant).ok_or(Refusal::NotFound)?;
        let (delivery, ready, recalls) = self.do_by_hand(wish, id, at)?;
        Ok(Moved { delivery, ready, recall: self.catalog.recall(at, recalls) })
    }

    /// The delivery, work that is due because of it, and whose copies are out of date.
    pub(super) fn do_by_hand(
        &mut self,
        wish: Wish,
        id: DeliveryId,
        at: Timestamp,
    ) -> Result<(Delivery, Option<Work>, Vec<Recall>), Refusal> {
        let row = self.rows.get(&id).ok_or(Refusal::NotFound)?;
        let stored = self.stored(row);
        let (head, others) = self.others(&stored.delivery, at);
        let moved = delivery::by_hand(wish, &stored, &others, at)?;
        let mut recalls = Vec::new();
        if let Some(row) = head.filter(|_| moved.displaces).and_then(|id| self.rows.get_mut(&id)) {
            row.held_until = Some(row.delivery.due_at);
            row.delivery.state = DeliveryState::Pending;
            row.delivery.due_at = Timestamp::MAX;
            row.delivery.revival += 1;
            recalls.push(recall(&row.delivery));
        }
        let delivery = moved.delivery;
        if wish == Wish::Forget {
            self.remove(&delivery);
        } else {
            let delivery = delivery.clone();
            let row = Row { delivery, blocks: false, held_until: None, enters: None };
            self.rows.insert(id, row);
        }
        recalls.extend(moved.recalled.then(|| recall(&delivery)));
        let ready = match moved.promotes {
            Some(from) => self.promote(delivery.subscription, delivery.lane.as_ref(), from),
            None => self.work(id).filter(|work| !work.delivery.state.is_terminal()),
        };
        let ready = ready.filter(|work| !work.delivery.is_parked());
        Ok((delivery, ready, recalls))
    }

    pub(super) fn stored(&self, row: &Row) -> Stored {
        let left = self.catalog.deleted_at(row.delivery.subscription);
        let deliver_at = self.events.get(&row.delivery.event).and_then(|event| event.deliver_at);
        let enters = row.enters.as_ref().map(|(_, lane)| lane.clone());
        let expunged = self.is_expunged(row.delivery.event);
        let expunged = expunged && !crate::model::plant::active("retry-expunged");
        let (delivery, blocks) = (row.delivery.clone(), row.blocks);
        Stored { delivery, blocks, left, deliver_at, enters, expunged }
    }

    /// Has deliveries enter their lanes whose time has come.
    pub(super) fn enter_lanes(&mut self, limit: usize, at: Timestamp) -> Entered {
        let waits = |row: &Row| Some((row.enters.as_ref()?.0, row.delivery.seq, row.delivery.id));
        let mut found: Vec<_> = self.rows.values().filter_map(waits).collect();
        found.retain(|(time, ..)| *time <= at);
        found.sort_unstable();
        found.truncate(limit);
        let more = found.len() == limit;
        let mut subscriptions = BTreeSet::new();
        for (time, old, id) in found {
            let Some(row) = self.rows.get_mut(&id) else { continue };
            let Some((_, lane)) = row.enters.take() else { continue };
            let subscription = row.delivery.subscription;
            if self.catalog.deleted_at(subscription).is_some() {
                continue;
            }
            let parked = self.occupied(subscription, &lane);
            self.seq += 1;
            let seq = match crate::model::plant::active("deliver-at-keeps-old-place") {
                true => old,
                false => self.seq,
            };
            if let Some(row) = self.rows.get_mut(&id) {
                row.delivery.lane = Some(lane);
                row.delivery.seq = seq;
                row.delivery.due_at = if parked { Timestamp::MAX } else { at };
                // Whoever promotes it may have a clock that is behind.
                row.held_until = parked.then_some(time);
            }
            subscriptions.insert(subscription);
        }
        Entered { subscriptions: subscriptions.into_iter().collect(), more }
    }

    /// The others in the lane of a delivery, and who heads it.
    fn others(&self, delivery: &Delivery, at: Timestamp) -> (Option<DeliveryId>, Others) {
        let (mut head, mut others) = (None, Others::default());
        let members = delivery.lane.iter();
        let members = members.flat_map(|lane| self.lane_members(delivery.subscription, lane));
        for row in members.filter(|row| row.delivery.id != delivery.id) {
            let Delivery { id, seq, .. } = row.delivery;
            others.blocked |= row.blocks;
            if row.delivery.is_parked() {
                others.parked = Some(others.parked.map_or(seq, |first: u64| first.min(seq)));
            } else if !row.delivery.state.is_terminal() {
                let leased = row.delivery.leased_until(at).is_some();
                let leased = leased || crate::model::plant::active("revive-behind");
                (head, others.head) = (Some(id), Some(Head { seq, leased }));
            }
        }
        (head, others)
    }

    fn remove(&mut self, delivery: &Delivery) {
        self.rows.remove(&delivery.id);
        self.attempts.remove(&delivery.id);
        self.made.retain(|_, (of, ..)| *of != delivery.id);
        if let Some(ids) = self.by_subscription.get_mut(&delivery.subscription) {
            ids.remove(&delivery.id);
        }
        if let Some(ids) = self.by_event.get_mut(&delivery.event) {
            ids.retain(|other| *other != delivery.id);
        }
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
                && !self.is_expunged(delivery.event)
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
        ending: Option<Ending>,
    ) -> Result<Advanced, Refusal> {
        let stored = self.redrives.get(&id).ok_or(Refusal::NotFound)?;
        if stored.redrive.state != RedriveState::Running {
            let state = stored.redrive.state;
            return Ok(Advanced { moved: 0, subscriptions: Vec::new(), state, recall: None });
        }
        let ids: Vec<DeliveryId> =
            self.redrivable(&stored.redrive, stored.cursor).take(limit).collect();
        let ends = match &ending {
            Some(_) => ids.is_empty(),
            None => ids.len() < limit,
        };
        let (total, moved) = (stored.redrive.total, stored.redrive.moved);
        if ends {
            self.tell_end(ending, total, moved)?;
        }
        let mut subscriptions = BTreeSet::new();
        let mut recalls = Vec::new();
        for id in &ids {
            let (delivery, _, recalled) = self.do_by_hand(Wish::Retry, *id, at)?;
            recalls.extend(recalled);
            subscriptions.insert(delivery.subscription);
        }
        let stored = self.redrives.get_mut(&id).ok_or(Refusal::NotFound)?;
        stored.redrive.moved += ids.len() as u64;
        stored.cursor = ids.last().copied().or(stored.cursor);
        if ends {
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
                row.delivery = row.delivery.clone().cancelled(CancelReason::Unsubscribed, at);
                row.enters = None;
            }
        }
        Swept { cancelled: doomed.len(), more: doomed.len() == limit }
    }
}

/// What nodes must hear of a delivery that has just changed.
fn recall(delivery: &Delivery) -> Recall {
    Recall { subscription: delivery.subscription, delivery: delivery.id, revival: delivery.revival }
}
