//! Removing what nobody needs any more, in the model.

use posthorn_domain::{Event, EventId, Job, RedriveId, Timestamp};
use posthorn_store::{Prune, Pruned, StateKind};

use super::deliveries::Row;
use super::{State, plant};

impl State {
    /// Removes an event with all that belongs to it; how many rows that were.
    pub(super) fn remove_event(&mut self, id: EventId) -> usize {
        self.events.remove(&id);
        self.wanted.remove(&id);
        let deliveries = self.by_event.remove(&id).unwrap_or_default();
        for delivery in &deliveries {
            if let Some(row) = self.rows.remove(delivery)
                && let Some(ids) = self.by_subscription.get_mut(&row.delivery.subscription)
            {
                ids.remove(delivery);
            }
            self.attempts.remove(delivery);
            self.made.retain(|_, (of, ..)| of != delivery);
        }
        deliveries.len() + 1
    }

    pub(super) fn prune(&mut self, prune: Prune) -> Pruned {
        let removable = |event: &Event| {
            let ids = self.by_event.get(&event.id).map_or(&[][..], Vec::as_slice);
            if event.expires_at().is_some_and(|over| over <= prune.now) {
                let early = plant::active("retention-eats-unfinished");
                let mut rows = ids.iter().filter_map(|id| self.rows.get(id));
                let ended = |row: &Row| row.delivery.state.is_terminal() && !row.blocks;
                return early || rows.all(ended);
            }
            if ids.is_empty() {
                return event.begins_at() < prune.ended_before;
            }
            ids.iter().filter_map(|id| self.rows.get(id)).all(|row| {
                let state = row.delivery.state;
                let ended = row.delivery.ended_at.unwrap_or(Timestamp::MAX);
                let limit = match StateKind::of(state) {
                    StateKind::Dead => prune.dead_before.min(prune.ended_before),
                    _ => prune.ended_before,
                };
                if plant::active("prune-unfinished") {
                    return row.delivery.created_at < limit;
                }
                // A dead letter that blocks its lane is what those behind it wait for.
                state.is_terminal() && !row.blocks && ended < limit
            })
        };
        let doomed: Vec<EventId> = self
            .events
            .values()
            .filter(|event| removable(event))
            .map(|event| event.id)
            .take(prune.limit)
            .collect();
        let is_own = |event: &Event| event.expires_at().is_some_and(|over| over <= prune.now);
        if doomed.iter().filter_map(|id| self.events.get(id)).any(|event| !is_own(event)) {
            self.pruned_before = self.pruned_before.max(Some(prune.ended_before));
        }
        for id in &doomed {
            self.remove_event(*id);
        }
        let keys_before = self.keys.len();
        self.keys.retain(|_, key| key.accepted_at >= prune.keys_before);
        self.catalog.prune_recalls(prune.recalls_before);
        let over: Vec<RedriveId> = self
            .redrives
            .values()
            .map(|stored| &stored.redrive)
            .filter(|r| r.finished_at.is_some_and(|at| at < prune.ended_before))
            .map(|redrive| redrive.id)
            .take(prune.limit)
            .collect();
        for id in &over {
            self.redrives.remove(id);
        }
        let ended = |job: &Job| job.finished_at.is_some_and(|at| at < prune.ended_before);
        self.jobs.retain(|_, (job, _)| !ended(job));
        let audit = self.prune_audit(&prune);
        Pruned {
            events: doomed.len(),
            keys: keys_before - self.keys.len(),
            redrives: over.len(),
            audit,
            more: [doomed.len(), over.len(), audit].contains(&prune.limit),
        }
    }
}
