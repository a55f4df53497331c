//! Claims, records and lanes.

use posthorn_domain::{Delivery, DeliveryId, DeliveryState, Lane, SubscriptionId, Timestamp};
use posthorn_store::{Claim, Record, Recorded};

use super::{Invariant, Oracle};

impl Oracle {
    /// Whether a lane has somebody at its head.
    pub(super) fn occupied(
        &self,
        subscription: SubscriptionId,
        lane: &Lane,
        but: Option<DeliveryId>,
    ) -> bool {
        let members = self.lanes.get(&(subscription, lane.clone()));
        members.into_iter().flatten().any(|id| {
            Some(*id) != but
                && self.deliveries.get(id).is_some_and(|entry| {
                    let delivery = &entry.delivery;
                    entry.blocks || (!delivery.state.is_terminal() && !delivery.is_parked())
                })
        })
    }

    /// Who must come next in a lane, if anybody: the first in commit order, once nobody is ahead.
    pub(super) fn next_of_lane(
        &self,
        subscription: SubscriptionId,
        lane: &Lane,
    ) -> Option<DeliveryId> {
        if self.occupied(subscription, lane, None) {
            return None;
        }
        let members = self.lanes.get(&(subscription, lane.clone()))?;
        members
            .iter()
            .filter_map(|id| self.deliveries.get(id))
            .filter(|entry| entry.delivery.is_parked())
            .min_by_key(|entry| entry.delivery.seq)
            .map(|entry| entry.delivery.id)
    }

    /// Promotes the next of a lane and compares with whom the store promoted.
    pub(super) fn promoted(
        &mut self,
        now: Timestamp,
        subscription: SubscriptionId,
        lane: Option<&Lane>,
        at: Timestamp,
        by_store: Option<DeliveryId>,
    ) {
        let next = lane.and_then(|lane| self.next_of_lane(subscription, lane));
        self.expect(next == by_store, Invariant::I5, now, || {
            format!("{by_store:?} was promoted in {lane:?} of {subscription}, not {next:?}")
        });
        self.promote(next, at);
    }

    /// Makes one that was parked the head of its lane.
    pub(super) fn promote(&mut self, next: Option<DeliveryId>, at: Timestamp) {
        if let Some(entry) = next.and_then(|next| self.deliveries.get_mut(&next)) {
            let due = entry.held_until.take().map_or(at, |held| held.max(at));
            entry.delivery.due_at = due;
            entry.ready_at = due;
        }
    }

    /// A delivery left its lane for good, or came back.
    pub(super) fn regroup(&mut self, id: DeliveryId) {
        let Some(entry) = self.deliveries.get(&id) else { return };
        let Some(lane) = &entry.delivery.lane else { return };
        let key = (entry.delivery.subscription, lane.clone());
        let stays = entry.blocks || !entry.delivery.state.is_terminal();
        let members = self.lanes.entry(key).or_default();
        if stays {
            members.insert(id);
        } else {
            members.remove(&id);
        }
    }

    /// The store wrote leases down, or not.
    pub(crate) fn claimed(&mut self, now: Timestamp, batch: &[Claim], granted: &[bool]) {
        for (claim, granted) in batch.iter().zip(granted) {
            let rightful = self.allows_attempt(&claim.fence, now);
            let current = self.is_current(claim.delivery, claim.expected_attempts)
                && self.is_newest(claim.delivery, claim.expected_revival);
            self.expect(!granted || (rightful && current), Invariant::I8, now, || {
                format!("{} was leased to a writer that may not have it: {claim:?}", claim.delivery)
            });
            if !granted {
                continue;
            }
            if let Some(entry) = self.deliveries.get_mut(&claim.delivery) {
                if entry.claimed != Some(claim.fence) {
                    entry.ready_at = entry.delivery.due_at;
                    entry.claimed = Some(claim.fence);
                }
                entry.delivery.state = DeliveryState::InFlight;
                entry.delivery.due_at = claim.until;
            }
        }
    }

    fn is_current(&self, id: DeliveryId, attempts: u32) -> bool {
        self.deliveries.get(&id).is_some_and(|entry| {
            let delivery = &entry.delivery;
            !delivery.state.is_terminal()
                && delivery.attempts == attempts
                && self.subscriptions.get(&delivery.subscription).is_some_and(|s| !s.deleted)
        })
    }

    /// Whether a copy is the present one, of a delivery whose turn it is.
    fn is_newest(&self, id: DeliveryId, revival: u32) -> bool {
        self.deliveries
            .get(&id)
            .is_some_and(|entry| !entry.delivery.is_parked() && entry.delivery.revival == revival)
    }

    /// The store wrote outcomes down, or not.
    pub(crate) fn recorded(&mut self, now: Timestamp, batch: &[Record], answers: &[Recorded]) {
        for (record, answer) in batch.iter().zip(answers) {
            let rightful = self.allows_outcome(&record.fence);
            // What the receiver has counts, also when it was sent from an older copy.
            let current = self.is_current(record.delivery, record.expected_attempts)
                && (record.step.state == DeliveryState::Delivered
                    || self.is_newest(record.delivery, record.expected_revival));
            match answer {
                Recorded::Fenced => {
                    self.tally.fenced += 1;
                    self.expect(!rightful, Invariant::I8, now, || {
                        format!("the owner of {} was fenced off: {record:?}", record.delivery)
                    });
                }
                Recorded::Superseded => self.expect(!current, Invariant::I8, now, || {
                    format!("news of {} were not taken: {record:?}", record.delivery)
                }),
                Recorded::Stale => {
                    self.expect(self.is_stale(&record.told), Invariant::I14, now, || {
                        format!("what {} tells was planned on the present catalog", record.delivery)
                    })
                }
                Recorded::Written { promoted } => {
                    self.expect(rightful, Invariant::I8, now, || {
                        format!("a late writer changed {}: {record:?}", record.delivery)
                    });
                    self.expect(current, Invariant::I15, now, || {
                        format!("{} had ended or moved on: {record:?}", record.delivery)
                    });
                    self.check_step(now, record);
                    self.check_told(now, record);
                    let promoted = promoted.as_ref().map(|work| work.delivery.id);
                    self.apply(now, record, promoted);
                    self.tell(now, &record.told, None);
                }
            }
        }
    }

    fn apply(&mut self, now: Timestamp, record: &Record, promoted: Option<DeliveryId>) {
        let Some(entry) = self.deliveries.get_mut(&record.delivery) else { return };
        let step = &record.step;
        let delivery = &mut entry.delivery;
        delivery.attempts += u32::from(step.charge);
        delivery.state = step.state;
        entry.claimed = None;
        if step.state.is_terminal() {
            delivery.ended_at = Some(record.at);
            delivery.due_at = Timestamp::MAX;
            entry.blocks = !step.release_lane && delivery.lane.is_some();
        } else {
            delivery.due_at = step.due_at;
            entry.ready_at = step.due_at;
        }
        entry.written.extend(record.attempt.clone());
        let (subscription, lane) = (delivery.subscription, delivery.lane.clone());
        match step.state {
            DeliveryState::Delivered => self.tally.delivered += 1,
            DeliveryState::Dead(_) => self.tally.dead += 1,
            _ => {}
        }
        self.regroup(record.delivery);
        if step.release_lane {
            self.promoted(now, subscription, lane.as_ref(), record.at, promoted);
        } else {
            self.expect(promoted.is_none(), Invariant::I5, now, || {
                format!("{promoted:?} was promoted past {}", record.delivery)
            });
        }
    }

    /// Compares the store's row with the account.
    pub(crate) fn check_row(&mut self, now: Timestamp, id: DeliveryId, row: Option<&Delivery>) {
        let Some(entry) = self.deliveries.get(&id) else {
            let event = row.map(|row| row.event);
            let gone = event.is_none_or(|event| self.pruned.contains(&event));
            self.expect(gone, Invariant::I4, now, || format!("{id} is in the store, unaccounted"));
            return;
        };
        let mine = &entry.delivery;
        let Some(row) = row else {
            self.blame(Invariant::I3, now, format!("{id} is gone from the store: {mine:?}"));
            return;
        };
        let same = row.state == mine.state
            && row.attempts == mine.attempts
            && row.due_at == mine.due_at
            && row.budget_base == mine.budget_base
            && row.budget == mine.budget
            && row.lane == mine.lane
            && row.revival == mine.revival
            && row.seq == mine.seq;
        // A deleted subscription's deliveries look cancelled before they are swept.
        let swept = row.state.is_terminal()
            && self.subscriptions.get(&mine.subscription).is_some_and(|s| s.deleted);
        if !same && !swept {
            let what = format!("{id} is {row:?} in the store and should be {mine:?}");
            self.blame(Invariant::I15, now, what);
        }
    }
}
