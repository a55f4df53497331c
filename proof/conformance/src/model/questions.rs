//! Lists and counts of the model.

use std::collections::BTreeMap;

use posthorn_domain::{DeliveryId, Event, TenantId, Timestamp};
use posthorn_store::{AttemptFilter, AttemptLine, Counts, EventFilter, Listing, Page, StateKind};

use super::State;
use super::pages::{listed, searched};

impl State {
    pub(super) fn list_events(
        &self,
        tenant: TenantId,
        filter: &EventFilter,
        listing: &Listing,
    ) -> Page<Event> {
        let own = self.events.values().filter(|event| event.tenant == tenant);
        // What has other attributes is looked at in vain; everything else has an index.
        let indexed = EventFilter { attributes: BTreeMap::new(), ..filter.clone() };
        let looked_at = own.filter(|event| {
            indexed.wants(event)
                && filter.from_event.is_none_or(|first| event.id >= first)
                && (!filter.with_dead_letters || self.has_dead_letters(event.id))
                && (!filter.unwanted || !self.wanted.contains(&event.id))
        });
        let placed = looked_at.map(|event| {
            let item = filter.wants(event).then(|| Event::clone(event));
            (u128::from_be_bytes(*event.id.as_bytes()), event.accepted_at, item)
        });
        searched(placed.collect(), listing)
    }

    pub(super) fn list_attempts(
        &self,
        tenant: TenantId,
        filter: &AttemptFilter,
        listing: &Listing,
    ) -> Page<AttemptLine> {
        let line = |(delivery, number, started_at): &(DeliveryId, u32, Timestamp)| {
            let row = &self.rows.get(delivery)?.delivery;
            let own = self.attempts.get(delivery)?.iter();
            let attempt =
                own.clone().find(|own| own.number == *number && own.started_at == *started_at)?;
            let (event, subscription) = (row.event, row.subscription);
            let line = AttemptLine { attempt: attempt.clone(), event, subscription };
            (row.tenant == tenant && filter.wants(&line)).then_some(line)
        };
        let found = self.made.iter().filter_map(|(no, made)| Some(((*no).into(), line(made)?)));
        listed(found.collect(), listing)
    }

    pub(super) fn counts(&self, tenant: Option<TenantId>) -> Counts {
        let mine = |owner: TenantId| tenant.is_none_or(|wanted| wanted == owner);
        let mut counts = Counts {
            events: self.events.values().filter(|event| mine(event.tenant)).count() as u64,
            ..Counts::default()
        };
        for row in self.rows.values().filter(|row| mine(row.delivery.tenant)) {
            match StateKind::of(self.seen(row).state) {
                StateKind::Pending | StateKind::InFlight => counts.pending += 1,
                StateKind::Delivered => counts.delivered += 1,
                StateKind::Dead => counts.dead += 1,
                StateKind::Cancelled => counts.cancelled += 1,
            }
        }
        counts
    }
}
