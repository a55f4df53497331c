//! Following the log, in the model.

use bytes::Bytes;
use posthorn_domain::{Attempt, Delivery, DeliveryId, EventId, TenantId, Timestamp};
use posthorn_store::{
    AttemptLine, AttemptMade, EventLine, FollowAsk, Followed, FollowedItem, LogPlace,
};

use super::State;

impl State {
    pub(super) fn events_after(&self, ask: &FollowAsk) -> Followed<EventLine> {
        let event = |id: &EventId| Some(EventLine::of((**self.events.get(id)?).clone()));
        let all = self.taken_in.iter().zip(1..);
        let all = all.filter_map(|(id, place)| Some((place, event(id)?)));
        let all = all.map(|(place, line)| Row {
            no: place,
            tenant: line.event.tenant,
            at: line.event.accepted_at,
            item: line,
        });
        followed(ask, self.taken_in.len() as u128, all)
    }

    pub(super) fn attempts_after(&self, ask: &FollowAsk) -> Followed<AttemptMade> {
        let made = |(delivery, number, started_at): &(DeliveryId, u32, Timestamp)| {
            let row = self.rows.get(delivery)?;
            let mut own = self.attempts.get(delivery)?.iter();
            let attempt = own.find(|a| a.number == *number && a.started_at == *started_at)?;
            let attempt = Attempt { response: Bytes::new(), request: None, ..attempt.clone() };
            let Delivery { event, subscription, tenant, .. } = row.delivery;
            let line = AttemptLine { attempt, event, subscription };
            Some((tenant, AttemptMade { line, state: row.delivery.state }))
        };
        let all = self.made.iter().filter_map(|(no, of)| Some((u128::from(*no), made(of)?)));
        let end = self.made.last_key_value().map_or(0, |(no, _)| u128::from(*no));
        let row = |(no, (tenant, made)): (u128, (TenantId, AttemptMade))| Row {
            no,
            tenant,
            at: made.line.attempt.started_at,
            item: made,
        };
        followed(ask, end, all.map(row))
    }
}

struct Row<T> {
    no: u128,
    tenant: TenantId,
    at: Timestamp,
    item: T,
}

fn place(row: u128) -> LogPlace {
    LogPlace { commit: 0, row }
}

/// The next part of a log of which all is given, by place.
fn followed<T>(ask: &FollowAsk, end: u128, all: impl Iterator<Item = Row<T>>) -> Followed<T> {
    let Some(after) = ask.after else {
        return Followed { items: Vec::new(), last: place(end), more: false, skipped: false };
    };
    let mut all = all.filter(|row| place(row.no) > after).peekable();
    let mut skipped = false;
    if let Some(since) = ask.since {
        while all.next_if(|row| row.at < since).is_some() {
            skipped = true;
        }
    }
    let mut all = all.filter(|row| ask.tenants.contains(&row.tenant)).map(|row| FollowedItem {
        tenant: row.tenant,
        place: place(row.no),
        item: row.item,
    });
    let items: Vec<_> = all.by_ref().take(ask.limit).collect();
    let more = all.next().is_some();
    let last = items.last().filter(|_| more).map(|item| item.place);
    Followed { items, last: last.unwrap_or(after.max(place(end))), more, skipped }
}
