//! Jobs of the model.

use std::collections::BTreeSet;
use std::sync::Arc;

use posthorn_domain::delivery::Wish;
use posthorn_domain::{
    Budget, DeliveryId, DeliveryState, EventId, JobState, Replayed, SubscriptionId, TenantId,
    Timestamp,
};
use posthorn_store::{Bite, Bitten, EventTally, Moves, NewDelivery, Recall, Redelivery, Refusal};

use super::{State, plant};

impl State {
    /// Does what a bite says, unless another was faster.
    pub(super) fn bite(&mut self, bite: &Bite) -> Result<Bitten, Refusal> {
        let (job, cursor) = self.jobs.get(&bite.job).ok_or(Refusal::NotFound)?;
        if job.state != JobState::Running || *cursor != bite.expected {
            let state = job.state;
            return Ok(Bitten { done: 0, subscriptions: Vec::new(), state, recall: None });
        }
        let (tenant, seen, before) = (job.tenant, job.seen, job.done);
        let budget = job.work.budget();
        if bite.ends.is_some() && bite.removes.is_none() {
            self.tell_end(bite.ending.clone(), seen, before)?;
        }
        let (mut done, mut subscriptions, mut recalls) = (0, BTreeSet::new(), Vec::new());
        for deed in &bite.deeds {
            let event = self.events.get(&deed.event).filter(|event| event.tenant == tenant);
            let there = event.is_some() && !self.is_expunged(deed.event);
            if !there || !self.catalog.has_subscription(tenant, deed.subscription) {
                continue;
            }
            if let Some(recalled) = self.redeliver(deed, budget, bite) {
                done += 1;
                subscriptions.insert(deed.subscription);
                recalls.extend(recalled);
            }
        }
        for (event, responses) in
            bite.expunges.iter().flat_map(|e| e.events.iter().map(|id| (*id, e.responses)))
        {
            done +=
                usize::from(self.expunge(tenant, event, responses, bite.at).is_ok_and(|did| did));
        }
        if let Some(moves) = &bite.moves {
            for id in &moves.deliveries {
                let Some((whose, recalled)) = self.move_chosen(tenant, *id, moves, bite.at) else {
                    continue;
                };
                done += 1;
                subscriptions.extend(whose);
                if !plant::active("bulk-without-recall") {
                    recalls.extend(recalled);
                }
            }
        }
        let (mut ends, mut buried) = (bite.ends, None);
        if let Some(limit) = bite.removes {
            let job = self.jobs.get(&bite.job).ok_or(Refusal::NotFound)?.0.clone();
            let removed = self.remove_tenant(&job, limit, bite)?;
            done += removed.rows;
            buried = removed.buried;
            ends = buried.map(|_| JobState::Done);
        }
        let (job, cursor) = self.jobs.get_mut(&bite.job).ok_or(Refusal::NotFound)?;
        job.seen += bite.seen;
        job.done += done as u64;
        if !plant::active("job-forgets-place") {
            *cursor = bite.cursor;
        }
        if let Some(end) = ends {
            job.state = end;
            job.finished_at = Some(bite.at);
            job.problem.clone_from(&bite.problem);
        }
        let state = job.state;
        let recall = self.catalog.recall(bite.at, recalls).or(buried);
        Ok(Bitten { done, subscriptions: subscriptions.into_iter().collect(), state, recall })
    }

    /// Of whom somebody else goes on, and whose copies are out of date; `None` when it is not meant any more.
    fn move_chosen(
        &mut self,
        tenant: TenantId,
        id: DeliveryId,
        moves: &Moves,
        at: Timestamp,
    ) -> Option<(Option<SubscriptionId>, Vec<Recall>)> {
        let row = self.rows.get(&id).filter(|row| row.delivery.tenant == tenant)?;
        if !moves.filter.wants(&self.stored(row).seen()) {
            return None;
        }
        let (delivery, ready, recalls) = self.do_by_hand(moves.wish, id, at).ok()?;
        Some((ready.map(|_| delivery.subscription), recalls))
    }

    /// The delivery of an event to a subscription, and its state.
    pub(super) fn between(
        &self,
        event: EventId,
        to: SubscriptionId,
    ) -> Option<(DeliveryId, DeliveryState)> {
        let of_event = self.by_event.get(&event).into_iter().flatten();
        let mut rows = of_event.filter_map(|id| self.rows.get(id));
        let there = rows.find(|row| row.delivery.subscription == to);
        there.map(|row| (row.delivery.id, row.delivery.state))
    }

    /// What became of the deliveries of an event.
    pub(super) fn tally(&self, tenant: TenantId, event: EventId, limit: usize) -> EventTally {
        let own = self.events.get(&event).filter(|event| event.tenant == tenant);
        let listed = own.and_then(|_| self.by_event.get(&event)).into_iter().flatten();
        let mut rows = listed.filter_map(|id| self.rows.get(id));
        let mut tally = EventTally::default();
        for row in rows.by_ref().take(limit) {
            tally.add(self.stored(row).seen().state, 1);
        }
        tally.more = rows.next().is_some();
        tally
    }

    /// Whose copies are out of date because of it; `None` when nothing was done.
    fn redeliver(&mut self, deed: &Redelivery, budget: Budget, bite: &Bite) -> Option<Vec<Recall>> {
        let there = self.between(deed.event, deed.subscription);
        match deed.status.decide(there.map(|(_, state)| state)) {
            Replayed::Left => None,
            Replayed::Retried => {
                let id: DeliveryId = there?.0;
                let moved = self.do_by_hand(Wish::retry(budget), id, bite.at);
                moved.ok().map(|(_, _, recalls)| recalls)
            }
            Replayed::Made => {
                let event = Arc::clone(self.events.get(&deed.event)?);
                let Redelivery { id, subscription, lane, .. } = deed.clone();
                let later = event.deliver_at.filter(|later| *later > bite.at);
                let due_at = later.unwrap_or(bite.at);
                let new = NewDelivery { id, subscription, lane, due_at };
                self.place_at(&event, new, later);
                let row = self.rows.get_mut(&id)?;
                row.delivery.budget_began = due_at;
                row.delivery.budget = budget;
                if plant::active("replay-overtakes") {
                    row.delivery.due_at = due_at;
                }
                Some(Vec::new())
            }
        }
    }
}
