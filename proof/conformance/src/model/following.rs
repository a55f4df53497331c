//! Following the log, in the model.

use posthorn_domain::{Delivery, DeliveryId, Event, EventId, TenantId, Timestamp};
use posthorn_store::{AttemptLine, AttemptMade, FollowAsk, Followed, FollowedItem, Place};

use super::State;

impl State {
    pub(super) fn events_after(&self, ask: &FollowAsk) -> Followed<Event> {
        let event = |id: &EventId| self.events.get(id).map(|event| (**event).clone());
        let all = self.taken_in.iter().zip(1..);
        let all = all.filter_map(|(id, place)| Some((place, event(id)?)));
        let all = all.map(|(place, event)| (place, event.tenant, event));
        followed(ask, self.taken_in.len() as u128, all)
    }

    pub(super) fn attempts_after(&self, ask: &FollowAsk) -> Followed<AttemptMade> {
        let made = |(delivery, number, started_at): &(DeliveryId, u32, Timestamp)| {
            let row = self.rows.get(delivery)?;
            let mut own = self.attempts.get(delivery)?.iter();
            let attempt = own.find(|a| a.number == *number && a.started_at == *started_at)?.clone();
            let Delivery { event, subscription, tenant, .. } = row.delivery;
            let line = AttemptLine { attempt, event, subscription };
            Some((tenant, AttemptMade { line, state: row.delivery.state }))
        };
        let all = self.made.iter().filter_map(|(no, of)| Some((u128::from(*no), made(of)?)));
        let end = self.made.last_key_value().map_or(0, |(no, _)| u128::from(*no));
        followed(ask, end, all.map(|(no, (tenant, made))| (no, tenant, made)))
    }
}

/// The next part of a log of which all is given, by place.
fn followed<T>(
    ask: &FollowAsk,
    end: u128,
    all: impl Iterator<Item = (u128, TenantId, T)>,
) -> Followed<T> {
    let Some(after) = ask.after else {
        return Followed { items: Vec::new(), last: Place(end), more: false };
    };
    let meant =
        |(place, tenant, _): &(u128, TenantId, T)| *place > after.0 && ask.tenants.contains(tenant);
    let item = |(place, tenant, item)| FollowedItem { tenant, place: Place(place), item };
    let mut all = all.filter(meant).map(item);
    let items: Vec<_> = all.by_ref().take(ask.limit).collect();
    let more = all.next().is_some();
    let last = items.last().filter(|_| more).map(|item| item.place);
    Followed { items, last: last.unwrap_or(after.max(Place(end))), more }
}
