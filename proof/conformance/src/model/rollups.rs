//! Figures of the past, in the model.

use std::collections::BTreeMap;

use posthorn_domain::{NodeId, RollupCounts, RollupScope, RollupStep, Timestamp};
use posthorn_store::{Rollups, Series, SeriesAsk, Summing, Sums, SumsAsk, TendRollups, add_up};

/// Which row of the minutes.
type Minute = (Timestamp, RollupScope, NodeId);

#[derive(Default)]
pub(super) struct Kept {
    minutes: BTreeMap<Minute, (u64, RollupCounts)>,
    hours: BTreeMap<(Timestamp, RollupScope), RollupCounts>,
    /// The last row that was added to its hour.
    folded: Option<Minute>,
}

impl Kept {
    pub(super) fn write(&mut self, rollups: &Rollups) {
        for row in &rollups.minutes {
            let key = (row.minute, row.scope.clone(), rollups.node);
            let kept = self.minutes.entry(key).or_insert((rollups.number, row.counts));
            if kept.0 < rollups.number {
                *kept = (rollups.number, row.counts);
            }
        }
    }

    pub(super) fn series(&self, ask: &SeriesAsk) -> Series {
        let hours = self.hours.iter().map(|((at, scope), counts)| (*at, scope, *counts));
        let open = |key: &Minute| self.folded.as_ref().is_none_or(|folded| key > folded);
        let wanted = |key: &Minute| match ask.step {
            RollupStep::Minute => true,
            RollupStep::Hour => open(key),
        };
        let minutes = self.minutes.iter().filter(|(key, _)| wanted(key));
        let minutes = minutes.map(|((at, scope, _), (_, counts))| (*at, scope, *counts));
        let hours = hours.filter(|_| ask.step == RollupStep::Hour);
        let all = hours.chain(minutes);
        let meant = all.filter(|(at, scope, _)| **scope == ask.scope && ask.contains(*at));
        add_up(ask.step, meant.map(|(at, _, counts)| (at, counts)))
    }

    /// Removes those about some scopes; how many.
    pub(super) fn forget(&mut self, is_meant: impl Fn(&RollupScope) -> bool) -> usize {
        let before = self.minutes.len() + self.hours.len();
        self.minutes.retain(|(_, scope, _), _| !is_meant(scope));
        self.hours.retain(|(_, scope), _| !is_meant(scope));
        before - self.minutes.len() - self.hours.len()
    }

    pub(super) fn sums(&self, ask: &SumsAsk) -> Sums {
        let open = |key: &Minute| self.folded.as_ref().is_none_or(|folded| key > folded);
        let minutes = self.minutes.iter().filter(|(key, _)| match ask.step {
            RollupStep::Minute => true,
            RollupStep::Hour => open(key),
        });
        let minutes = minutes.map(|((at, scope, _), (_, counts))| (*at, scope, counts));
        let hours = self.hours.iter().filter(|_| ask.step == RollupStep::Hour);
        let hours = hours.map(|((at, scope), counts)| (*at, scope, counts));
        // Minutes that are not in their hours are newer than all hours that are read after them.
        let mut summing = Summing::new(ask);
        let mut whole = true;
        let ways: [Vec<_>; 2] = [minutes.collect(), hours.collect()];
        for rows in ways {
            let meant = |at: Timestamp, scope: &RollupScope| {
                at >= ask.from && at < ask.until && ask.kind.contains(scope)
            };
            let mut last = None;
            for (at, scope, counts) in rows.into_iter().rev().filter(|row| meant(row.0, row.1)) {
                if last != Some(at) {
                    last.into_iter().for_each(|last| summing.reached(last));
                    whole = summing.goes_on();
                }
                if !whole {
                    break;
                }
                last = Some(at);
                summing.add(at, scope.clone(), counts);
            }
            if !whole {
                break;
            }
            last.into_iter().for_each(|last| summing.reached(last));
        }
        if whole {
            summing.reached(ask.from);
        }
        summing.done()
    }

    pub(super) fn tend(&mut self, tend: &TendRollups) -> bool {
        let open = |key: &&Minute| self.folded.as_ref().is_none_or(|folded| *key > folded);
        let due = self.minutes.keys().filter(open).filter(|(at, ..)| *at < tend.fold_before);
        let due: Vec<Minute> = due.take(tend.limit).cloned().collect();
        for key in &due {
            let counts = self.minutes[key].1;
            let hour = RollupStep::Hour.floor(key.0);
            self.hours.entry((hour, key.1.clone())).or_default().add(&counts);
        }
        self.folded = due.last().cloned().or(self.folded.take());
        if due.len() == tend.limit {
            return true;
        }
        // All before this moment are in their hours; of those at it, some may not be.
        let folded = self.folded.as_ref().map_or(Timestamp::MIN, |(at, ..)| *at);
        let old = |key: &&Minute| key.0 < tend.minutes_before.min(folded);
        let minutes: Vec<Minute> =
            self.minutes.keys().filter(old).take(tend.limit).cloned().collect();
        for key in &minutes {
            self.minutes.remove(key);
        }
        let old = |key: &&(Timestamp, RollupScope)| key.0 < tend.hours_before;
        let hours: Vec<_> = self.hours.keys().filter(old).take(tend.limit).cloned().collect();
        for key in &hours {
            self.hours.remove(key);
        }
        minutes.len() == tend.limit || hours.len() == tend.limit
    }
}
