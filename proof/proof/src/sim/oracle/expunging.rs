//! Payloads that were removed: never while they are needed, and nothing is sent of them afterwards.

use bytes::Bytes;
use posthorn_domain::{DeliveryId, Event, EventId, TenantId, Timestamp};
use posthorn_store::{Error, Expunges, Refusal};

use super::{Invariant, Oracle};

/// An event whose payload was removed.
#[derive(Clone, Copy)]
pub(super) struct Expunged {
    /// When it says so.
    stamp: Timestamp,
    /// When that took effect.
    at: Timestamp,
    /// Whether somebody was told so.
    promised: bool,
}

impl Oracle {
    /// Somebody had a payload removed, or was refused.
    pub(crate) fn expunged(
        &mut self,
        now: Timestamp,
        (tenant, id, responses): (TenantId, EventId, bool),
        stamp: Timestamp,
        answer: &Result<Event, Error>,
    ) {
        let known = self.events.get(&id).filter(|event| event.tenant == tenant).cloned();
        let unfinished = self.has_unfinished(id);
        let left = match (answer, known) {
            (Ok(left), Some(known)) => Some((left, known)),
            (Err(Error::Refused(Refusal::NotFound)), None) => None,
            (Err(Error::Refused(Refusal::Unfinished)), Some(_)) if unfinished => None,
            // What is told of it was planned on an older catalog; it is planned anew.
            (Err(Error::Refused(Refusal::Stale)), _) => None,
            (other, known) => {
                let known = known.map(|event| event.id);
                let what = format!("{id} (known: {known:?}) was to be expunged: {other:?}");
                return self.blame(Invariant::I16, now, what);
            }
        };
        let Some((left, known)) = left else { return };
        self.expect(!unfinished, Invariant::I16, now, || {
            format!("{id} was expunged with deliveries that have not ended")
        });
        self.remove_payload(now, id, stamp);
        if responses {
            self.remove_responses(id, stamp);
        }
        let first = self.expunged.get(&id).map(|expunged| expunged.stamp);
        let whole = Event { payload: Bytes::new(), expunged_at: first, ..Event::clone(&known) };
        self.expect(*left == whole, Invariant::I15, now, || {
            format!("{id} is {left:?} after it was expunged, not {whole:?}")
        });
    }

    /// A job had payloads removed; of how many events, as it should be.
    pub(super) fn expunged_many(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        wanted: &Expunges,
        stamp: Timestamp,
    ) -> usize {
        let mut done = 0;
        for id in &wanted.events {
            let own = self.events.get(id).is_some_and(|event| event.tenant == tenant);
            if own && !self.has_unfinished(*id) && !self.expunged.contains_key(id) {
                self.remove_payload(now, *id, stamp);
                done += 1;
            }
        }
        done
    }

    /// The first time counts. What attempts had sent goes with it.
    fn remove_payload(&mut self, now: Timestamp, id: EventId, stamp: Timestamp) {
        for delivery in self.by_event.get(&id).into_iter().flatten() {
            let written = self.deliveries.get_mut(delivery).map(|entry| &mut entry.written);
            written.into_iter().flatten().for_each(|attempt| attempt.request = None);
        }
        self.expunged.entry(id).or_insert(Expunged { stamp, at: now, promised: false });
    }

    /// What receivers said goes from the history, and nothing else of it.
    fn remove_responses(&mut self, id: EventId, stamp: Timestamp) {
        for id in self.by_event.get(&id).into_iter().flatten() {
            let written = self.deliveries.get_mut(id).map(|entry| &mut entry.written);
            for attempt in written.into_iter().flatten() {
                if attempt.response_expunged_at.is_none() {
                    (attempt.response, attempt.detail) = (Bytes::new(), String::new());
                    attempt.response_expunged_at = Some(stamp);
                }
            }
        }
    }

    /// Somebody was told that a payload is gone: nothing of it starts any more.
    pub(crate) fn promised_gone(&mut self, id: EventId) {
        if let Some(expunged) = self.expunged.get_mut(&id) {
            expunged.promised = true;
        }
    }

    /// A request begins. Copies may be sent until every node has heard why its delivery has ended.
    pub(super) fn check_payload_is_there(&mut self, now: Timestamp, id: EventId) {
        let Some(expunged) = self.expunged.get(&id).copied() else { return };
        let excused = !expunged.promised && now <= expunged.at.plus(self.hearsay());
        self.expect(excused, Invariant::I12, now, || {
            format!("{id} is sent although its payload was removed at {}", expunged.at)
        });
    }

    /// Some delivery that must not come back.
    pub(crate) fn some_expunged(&self, at: u64) -> Option<(TenantId, DeliveryId)> {
        let gone = self.deliveries.values().map(|entry| &entry.delivery);
        let gone: Vec<_> = gone.filter(|delivery| self.is_expunged(delivery.event)).collect();
        let found = gone.get((at % gone.len().max(1) as u64) as usize)?;
        Some((found.tenant, found.id))
    }

    pub(super) fn is_expunged(&self, id: EventId) -> bool {
        self.expunged.contains_key(&id)
    }

    fn has_unfinished(&self, id: EventId) -> bool {
        let ids = self.by_event.get(&id).into_iter().flatten();
        let mut entries = ids.filter_map(|id| self.deliveries.get(id));
        entries.any(|entry| !entry.delivery.state.is_terminal())
    }
}
