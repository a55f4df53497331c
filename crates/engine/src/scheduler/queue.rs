//! One subscription's deliveries that are due soon: the part of its backlog that is in memory.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::BuildHasherDefault;

use posthorn_domain::policy::Policy;
use posthorn_domain::{DeliveryId, Held, Lane, Span, Timestamp, WaitReason, Waiting};
use posthorn_store::Work;

use super::health::Health;
use super::slots::{Class, SLOW_AFTER};
use crate::catalog::Map;

pub(super) type Ids = HashSet<DeliveryId, BuildHasherDefault<DefaultHasher>>;

/// Due deliveries among which the one to probe a failing receiver with is chosen.
const PROBE_CHOICE: usize = 64;

/// The part of a window that a failing receiver gets, and the least it gets.
const SICK_WINDOW: usize = 16;
const SICK_WINDOW_LEAST: usize = 4;

/// Where a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It waits until then at least.
    Queued(Timestamp),
    /// Another one of its lane is under way.
    Behind,
    /// It is under way itself, or its outcome is being written.
    UnderWay,
    /// Not in memory.
    Unknown,
}

/// What the scheduler knows of one subscription.
#[derive(Default)]
pub(super) struct Queue {
    /// Waiting deliveries by (time they may start, place in commit order).
    queue: BTreeMap<(Timestamp, u64), Work>,
    /// Everything in the queue, under way, or being recorded. The store may return it again.
    known: Ids,
    /// Those of them that were read from the store and might still be handed over in memory.
    read: Ids,
    /// Those of them whose row was changed by hand since: after the attempt the store is asked.
    outdated: Ids,
    /// Those of them that a closed gate has postponed.
    gated: Ids,
    /// Lanes with an attempt under way, and who waits for it to be over.
    busy: Map<Lane, Vec<Work>>,
    /// Attempts under way.
    pub(super) in_flight: u32,
    /// The earliest due time the store may have that is not in memory.
    pub(super) on_disk: Option<Timestamp>,
    /// A refill is under way; these were recorded since, so its copy of them is old.
    pub(super) refill: Option<Ids>,
    /// Which refill that is. A reply to one that a former ownership asked for is not the answer.
    pub(super) refill_number: u64,
    /// How the receiver is doing.
    pub(super) health: Health,
    /// When the last attempt of a lane ended, for spacing.
    spaced: Map<Lane, Timestamp>,
    /// Whether it is in the ring.
    pub(super) in_ring: bool,
    /// When the attempts under way began, oldest first.
    pub(super) begun: VecDeque<Timestamp>,
    /// Since when it is there, or waits for a slot.
    pub(super) lined_up: Timestamp,
    /// What kept its due deliveries from being attempted last, and until when.
    stopped: Option<(WaitReason, Timestamp)>,
    /// Whether it waits for a slot of the failing or the slow.
    pub(super) awaits_slot: bool,
    /// It waits for the pace of its tenant.
    pub(super) awaits_pace: bool,
    /// It waited for that, and it is its turn.
    pub(super) has_pace: bool,
    /// The timer that is set for it.
    pub(super) timer: Option<Timestamp>,
    /// What is on disk was perhaps written by a clock that was ahead: up to where it was looked at.
    examine: Option<Timestamp>,
    /// Whether all of it was looked at.
    examined: bool,
    /// Those that were, and wait longer than their schedule alone would have them: somebody asked for it.
    trusted: Ids,
}

impl Queue {
    /// Adds a delivery that may start at its due time; false when it is known already.
    pub(super) fn add(&mut self, work: Work) -> bool {
        if !self.known.insert(work.delivery.id) {
            return false;
        }
        self.queue.insert((work.delivery.due_at, work.delivery.seq), work);
        true
    }

    /// Puts back a delivery that was taken but not attempted.
    pub(super) fn put_back(&mut self, work: Work, not_before: Timestamp) {
        self.queue.insert((not_before.max(work.delivery.due_at), work.delivery.seq), work);
    }

    /// When the first waiting delivery may start.
    pub(super) fn head(&self) -> Option<Timestamp> {
        self.queue.first_key_value().map(|((due, _), _)| *due)
    }

    /// Takes the first waiting delivery that may start now and whose lane has had its rest, with the time from which on
    /// it might. Those that must rest are moved to when they may start.
    pub(super) fn take(
        &mut self,
        now: Timestamp,
        gap: Option<Span>,
        floor: Timestamp,
        probing: bool,
    ) -> Option<(Work, Timestamp)> {
        if probing
            && let Some(key) = self.least_tried(now)
            && let Some(work) = self.queue.remove(&key)
            && let Some(work) = self.line_up(work)
        {
            let rested = self.rested_at(&work, gap, floor);
            if rested <= now {
                return Some((work, key.0));
            }
            self.queue.insert((rested, work.delivery.seq), work);
        }
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > now {
                return None;
            }
            let ((start, _), work) = entry.remove_entry();
            let Some(work) = self.line_up(work) else { continue };
            let rested = self.rested_at(&work, gap, floor);
            if rested <= now {
                return Some((work, start));
            }
            self.queue.insert((rested, work.delivery.seq), work);
        }
        None
    }

    /// Has a delivery wait when another one of its lane is under way: one that was cancelled meanwhile
    /// may still arrive.
    fn line_up(&mut self, work: Work) -> Option<Work> {
        match work.delivery.lane.as_ref().and_then(|lane| self.busy.get_mut(lane)) {
            Some(behind) => {
                behind.push(work);
                None
            }
            None => Some(work),
        }
    }

    /// Notes that an attempt begins.
    pub(super) fn occupy(&mut self, work: &Work) {
        self.gated.remove(&work.delivery.id);
        if let Some(lane) = &work.delivery.lane {
            self.busy.entry(lane.clone()).or_default();
        }
    }

    /// When the lane of a delivery has had its rest.
    fn rested_at(&self, work: &Work, gap: Option<Span>, floor: Timestamp) -> Timestamp {
        match (gap, &work.delivery.lane) {
            (Some(gap), Some(lane)) => {
                self.spaced.get(lane).map_or(floor, |end| end.plus(gap).max(floor))
            }
            _ => Timestamp::MIN,
        }
    }

    /// What to ask a failing receiver with: something it has refused least often, so that a few
    /// events it cannot stomach do not pass for an outage.
    fn least_tried(&self, now: Timestamp) -> Option<(Timestamp, u64)> {
        self.queue
            .iter()
            .take(PROBE_CHOICE)
            .take_while(|((due, _), _)| *due <= now)
            .min_by_key(|(key, work)| (work.delivery.attempts, **key))
            .map(|(key, _)| *key)
    }

    /// What keeps a further attempt from beginning, besides time. Calls that are older than a second
    /// count towards what the policy allows, not towards `limit`: one that hangs stops nobody.
    pub(super) fn crowded(&self, policy: &Policy, limit: u32, now: Timestamp) -> Option<Waiting> {
        if self.in_flight > 0 && self.health.is_probing(policy.breaker.as_ref()) {
            return Some(Waiting::on(WaitReason::Breaker));
        }
        if self.in_flight >= policy.limits.concurrency.max(limit) {
            return Some(Waiting::on(WaitReason::Concurrency));
        }
        if self.in_flight < limit {
            return None;
        }
        let old = self.begun.partition_point(|since| since.plus(SLOW_AFTER) <= now);
        if self.begun.len() - old < limit as usize {
            return None;
        }
        let aged = self.begun.get(old).map(|since| since.plus(SLOW_AFTER));
        Some(Waiting { reason: WaitReason::Concurrency, until: aged })
    }

    /// Notes what keeps what is due from being attempted.
    pub(super) fn stop(&mut self, waiting: Waiting, now: Timestamp) {
        self.stopped = Some((waiting.reason, waiting.until.unwrap_or(now)));
    }

    /// What has held a delivery back that begins now and might have since `start`; `None` when it begins at once. `resumed`
    /// is when nothing was sent at all until then.
    pub(super) fn held(
        &self,
        work: &Work,
        start: Timestamp,
        policy: &Policy,
        resumed: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Held> {
        let delivery = &work.delivery;
        let began = delivery.created_at.max(delivery.budget_began);
        let first = delivery.spent() == 0;
        if first && now.since(delivery.created_at.min(began)) < Held::MOMENT {
            return None;
        }
        let postponed = first && delivery.due_at.since(began) >= Held::MOMENT;
        let gated = self.is_gated(delivery.id)
            || (postponed && policy.gate.is_some() && delivery.lane.is_none());
        let until_due = match () {
            () if gated => WaitReason::Gate,
            () if postponed && delivery.lane.is_some() => WaitReason::Lane,
            () => WaitReason::Schedule,
        };
        let late = now.since(delivery.due_at);
        if late < Held::MOMENT {
            return Some(Held { until_due, late: Span::ZERO, by: None });
        }
        let waited = |since: Timestamp| now.since(since) >= Held::MOMENT;
        let by = match self.stopped {
            _ if resumed.is_some_and(|at| at >= start.max(delivery.due_at)) => {
                Some(WaitReason::Hold)
            }
            _ if start > delivery.due_at && policy.spacing.is_some() => Some(WaitReason::Spacing),
            Some((reason, until)) if until >= delivery.due_at => Some(reason),
            _ if waited(self.lined_up.max(delivery.due_at)) => Some(WaitReason::Quota),
            _ => None,
        };
        Some(Held { until_due, late, by })
    }

    /// Says that a closed gate has postponed a delivery.
    pub(super) fn mark_gated(&mut self, id: DeliveryId) {
        if self.known.contains(&id) {
            self.gated.insert(id);
        }
    }

    pub(super) fn is_gated(&self, id: DeliveryId) -> bool {
        self.gated.contains(&id)
    }

    /// Where a delivery is; most are where the store says.
    pub(super) fn place(&self, id: DeliveryId, key: (Timestamp, u64)) -> Place {
        if !self.known.contains(&id) {
            return Place::Unknown;
        }
        if self.queue.get(&key).is_some_and(|work| work.delivery.id == id) {
            return Place::Queued(key.0);
        }
        if let Some(((start, _), _)) = self.queue.iter().find(|(_, work)| work.delivery.id == id) {
            return Place::Queued(*start);
        }
        match self.busy.values().flatten().any(|work| work.delivery.id == id) {
            true => Place::Behind,
            false => Place::UnderWay,
        }
    }

    /// Those whose attempts are under way, or whose outcomes are being written.
    pub(super) fn under_way(&self) -> impl Iterator<Item = DeliveryId> + '_ {
        let waits: Ids = self
            .queue
            .values()
            .chain(self.busy.values().flatten())
            .map(|w| w.delivery.id)
            .collect();
        self.known.iter().copied().filter(move |id| !waits.contains(id))
    }

    /// What its next attempt counts as.
    pub(super) fn class(&self, now: Timestamp) -> Class {
        let waits = self.begun.front().is_some_and(|since| since.plus(SLOW_AFTER) <= now);
        if self.health.is_slow(now) || waits {
            Class::Slow
        } else if self.health.is_sick() {
            Class::Failing
        } else {
            Class::Quick
        }
    }

    /// Notes that an attempt is over.
    pub(super) fn ended(&mut self, began: Timestamp, lane: Option<&Lane>) {
        self.in_flight -= 1;
        for work in lane.and_then(|lane| self.busy.remove(lane)).into_iter().flatten() {
            self.queue.insert((work.delivery.due_at, work.delivery.seq), work);
        }
        if let Some(at) = self.begun.iter().position(|since| *since == began) {
            self.begun.remove(at);
        }
    }

    /// Notes when an attempt of a lane ended.
    pub(super) fn rest(&mut self, lane: &Lane, gap: Span, now: Timestamp) {
        self.spaced.retain(|_, end| end.plus(gap) > now);
        self.spaced.insert(lane.clone(), now);
    }

    /// Says that the store has something due then.
    pub(super) fn note_on_disk(&mut self, due: Timestamp) {
        self.on_disk = Some(self.on_disk.map_or(due, |known| known.min(due)));
    }

    /// A delivery is no longer ours to think of. True when it had been read from the store.
    pub(super) fn forget(&mut self, id: DeliveryId) -> bool {
        self.known.remove(&id);
        self.outdated.remove(&id);
        self.gated.remove(&id);
        if let Some(since) = &mut self.refill {
            since.insert(id);
        }
        self.read.remove(&id)
    }

    /// Says that what memory has of a known delivery is no longer what the store has.
    pub(super) fn outdate(&mut self, id: DeliveryId) {
        self.outdated.insert(id);
    }

    pub(super) fn is_outdated(&self, id: DeliveryId) -> bool {
        self.outdated.contains(&id)
    }

    /// Says that a known delivery was read from the store before anybody handed it over.
    pub(super) fn mark_read(&mut self, id: DeliveryId) {
        if self.known.contains(&id) {
            self.read.insert(id);
        }
    }

    /// Removes a waiting delivery, wherever it is, whose copy has a smaller revival.
    pub(super) fn withdraw(&mut self, id: DeliveryId, revival: u32) -> Option<Work> {
        if !self.known.contains(&id) {
            return None;
        }
        let old = |work: &Work| work.delivery.id == id && work.delivery.revival < revival;
        let work = match self.queue.iter().find(|(_, work)| old(work)) {
            Some((key, _)) => {
                let key = *key;
                self.queue.remove(&key)?
            }
            None => {
                let behind = self.busy.values_mut().find(|behind| behind.iter().any(old))?;
                let place = behind.iter().position(old)?;
                behind.remove(place)
            }
        };
        self.forget(id);
        Some(work)
    }

    /// Whether an attempt of it is under way or being recorded.
    pub(super) fn is_under_way(&self, id: DeliveryId) -> bool {
        let waits = |work: &Work| work.delivery.id == id;
        self.known.contains(&id)
            && !self.queue.values().any(waits)
            && !self.busy.values().flatten().any(waits)
    }

    pub(super) fn is_known(&self, id: DeliveryId) -> bool {
        self.known.contains(&id)
    }

    /// How many may wait in memory, where `most` may for a healthy receiver. One that fails takes little,
    /// and what it does not take would fill the memory of all.
    pub(super) fn window(&self, most: usize) -> usize {
        match self.health.is_sick() {
            true => (most / SICK_WINDOW).max(most.min(SICK_WINDOW_LEAST)),
            false => most,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len() + self.busy.values().map(Vec::len).sum::<usize>()
    }

    pub(super) fn known(&self) -> usize {
        self.known.len()
    }

    /// Empties the queue, for when the shard or the subscription is gone.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Work> {
        let mut waiting: Vec<Work> = std::mem::take(&mut self.queue).into_values().collect();
        let mut behind: Vec<Work> = self.busy.values_mut().flat_map(std::mem::take).collect();
        behind.sort_by_key(|work| work.delivery.seq);
        waiting.append(&mut behind);
        for work in &waiting {
            self.known.remove(&work.delivery.id);
            self.outdated.remove(&work.delivery.id);
            self.gated.remove(&work.delivery.id);
            self.read.remove(&work.delivery.id);
        }
        waiting.into_iter()
    }

    /// The clock was set back by so much, or that of others was ahead: has everything on disk read again. Gives what no
    /// longer waits in memory.
    pub(super) fn look_again(&mut self, now: Timestamp, by: Span) -> Vec<Work> {
        let dropped = self.drain().collect();
        self.health.set_back(by);
        self.spaced.values_mut().for_each(|end| *end = (*end).min(now));
        self.begun.iter_mut().for_each(|since| *since = since.minus(by));
        (self.examine, self.examined) = (None, false);
        self.trusted.clear();
        self.examine_once(now);
        dropped
    }

    /// Has everything on disk read and examined, unless that was done.
    pub(super) fn examine_once(&mut self, now: Timestamp) {
        if !self.examined && self.examine.is_none() {
            self.examine = Some(Timestamp::MIN);
            self.note_on_disk(now);
        }
    }

    /// Gives up the last of those that wait when it comes after `due`: what is due sooner needs its place in memory, and
    /// the store has it. One that waits for something else than its due time stays; only memory knows of that.
    pub(super) fn displace(&mut self, due: Timestamp) -> Option<Work> {
        let last = self.queue.last_entry()?;
        let start = last.key().0;
        if start <= due || start != last.get().delivery.due_at {
            return None;
        }
        let work = last.remove();
        self.forget(work.delivery.id);
        self.note_on_disk(start);
        Some(work)
    }

    /// Whether there is room for what is on disk from `due` on; `window` is how many may wait in memory. Those that come
    /// later do not count: they give up their places. What is looked at by the way need not stay, but those whose due times
    /// are being corrected come first.
    pub(super) fn may_read(&self, due: Timestamp, window: usize) -> bool {
        match self.examine {
            None => self.waiting() <= window / 4 || self.head().is_some_and(|head| head > due),
            Some(_) => self.known.len() - self.waiting() <= window / 4,
        }
    }

    /// Says that the due time of a delivery is right, however long it waits.
    pub(super) fn trust(&mut self, id: DeliveryId) {
        self.trusted.insert(id);
    }

    pub(super) fn trusts(&self, id: DeliveryId) -> bool {
        self.trusted.contains(&id)
    }

    /// No due time is in doubt any more.
    pub(super) fn trust_all(&mut self) {
        self.trusted = Ids::default();
    }

    /// From where on what is on disk is still to be looked at.
    pub(super) fn examines(&self) -> Option<Timestamp> {
        self.examine
    }

    /// Looks on from there; without it, everything was looked at. What lies before was perhaps left on
    /// disk, so that is read again after.
    pub(super) fn examine_from(&mut self, from: Option<Timestamp>, not_before: Timestamp) {
        self.examine = from;
        self.examined = from.is_none();
        self.note_on_disk(not_before);
    }

    /// Takes note of a delivery that is looked at more closely; false when it is known already.
    pub(super) fn expect(&mut self, work: &Work) -> bool {
        self.known.insert(work.delivery.id)
    }

    /// From when on nothing would be lost by dropping it, as things are now.
    pub(super) fn idle_from(&self, now: Timestamp) -> Option<Timestamp> {
        let idle = self.known.is_empty()
            && self.in_flight == 0
            && self.on_disk.is_none()
            && self.refill.is_none()
            && !self.in_ring
            && !self.awaits_slot
            && !self.awaits_pace
            && self.health.is_plain(now)
            && self.spaced.is_empty();
        idle.then(|| self.health.slow_until().max(now))
    }
}
