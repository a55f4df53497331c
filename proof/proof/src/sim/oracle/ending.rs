//! What must be true at any pause, and when all is over.

use std::collections::BTreeMap;

use posthorn_domain::{Attempt, Delivery, DeliveryId, Span, Timestamp};
use posthorn_store::{Counts, StateKind};

use super::{Invariant, Oracle};

/// How long due work may wait once nothing breaks any more: a breaker, a lease and a durable lease.
const PATIENCE: Span = Span::from_secs(900);

impl Oracle {
    /// Accepted = delivered + dead + cancelled + pending, and the store counts the same.
    pub(crate) fn check_counts(&mut self, now: Timestamp, counts: &Counts) {
        let mut mine = Counts { events: self.events.len() as u64, ..Counts::default() };
        for entry in self.deliveries.values() {
            match StateKind::of(entry.delivery.state) {
                StateKind::Pending | StateKind::InFlight => mine.pending += 1,
                StateKind::Delivered => mine.delivered += 1,
                StateKind::Dead => mine.dead += 1,
                StateKind::Cancelled => mine.cancelled += 1,
            }
        }
        let whole = counts.deliveries() == self.deliveries.len() as u64;
        self.expect(whole && *counts == mine, Invariant::I3, now, || {
            format!("the store counts {counts:?}, the account says {mine:?}")
        });
    }

    /// Everything that is due has been due for a short while only; true when nothing is left to do.
    pub(crate) fn check_progress(&mut self, now: Timestamp, healed: Timestamp) -> bool {
        let mut stuck = Vec::new();
        let mut left = false;
        for entry in self.deliveries.values() {
            let Some(at) = self.awaits(entry) else { continue };
            left = true;
            let since = at.max(healed);
            if now > since.plus(PATIENCE) {
                stuck.push(entry.delivery.id);
            }
        }
        if let Some(first) = stuck.first() {
            let entry = self.deliveries.get(first).map(|entry| entry.delivery.clone());
            let what = format!("{} deliveries wait for nothing, such as {entry:?}", stuck.len());
            self.blame(Invariant::I20, now, what);
            return true;
        }
        !left
    }

    /// The final reckoning against everything the store holds.
    pub(crate) fn check_end(&mut self, now: Timestamp, rows: &[Delivery], attempts: Vec<Attempt>) {
        let known = self.deliveries.len();
        self.expect(rows.len() == known, Invariant::I3, now, || {
            format!("the store holds {} deliveries, not {known}", rows.len())
        });
        for row in rows {
            self.check_row(now, row.id, Some(row));
        }
        self.check_lanes(now);
        let mut by_delivery: BTreeMap<DeliveryId, Vec<Attempt>> = BTreeMap::new();
        for attempt in attempts {
            by_delivery.entry(attempt.delivery).or_default().push(attempt);
        }
        let mut problems = Vec::new();
        for (id, entry) in &self.deliveries {
            let stored = by_delivery.remove(id).unwrap_or_default();
            let on_time: Vec<_> = stored.iter().filter(|attempt| !attempt.late).collect();
            if on_time != entry.written.iter().collect::<Vec<_>>() {
                problems.push(format!("{id}: history was changed: {on_time:?}"));
            }
            let gapless = on_time.iter().enumerate().all(|(n, a)| a.number as usize == n + 1);
            if !gapless || on_time.len() != entry.delivery.attempts as usize {
                problems.push(format!("{id}: {on_time:?} are not {}", entry.delivery.attempts));
            }
        }
        for problem in problems {
            self.blame(Invariant::I15, now, problem);
        }
    }

    /// No lane with somebody waiting is without a head.
    fn check_lanes(&mut self, now: Timestamp) {
        let headless: Vec<_> = self
            .lanes
            .iter()
            .filter(|((subscription, lane), members)| {
                let waiting = members
                    .iter()
                    .filter_map(|id| self.deliveries.get(id))
                    .any(|entry| entry.delivery.is_parked());
                waiting && !self.occupied(*subscription, lane, None)
            })
            .map(|(key, _)| key.clone())
            .collect();
        for (subscription, lane) in headless {
            let what = format!("{lane:?} of {subscription} waits and nobody is at its head");
            self.blame(Invariant::I20, now, what);
        }
    }

    /// What a quiet engine holds in memory: nothing, but for what is still open. A node that is missed may be told of when
    /// everything else has ended, and a job may just have put back another.
    pub(crate) fn check_idle(
        &mut self,
        now: Timestamp,
        node: usize,
        snapshot: &posthorn_engine::Snapshot,
    ) {
        let open = self.deliveries.values().filter(|entry| !entry.delivery.state.is_terminal());
        let idle = snapshot.in_flight + snapshot.recording <= open.count();
        self.expect(idle, Invariant::I18, now, || {
            format!("node {node} is idle and still counts {snapshot:?}")
        });
    }
}
