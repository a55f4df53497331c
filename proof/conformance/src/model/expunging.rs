//! Removing what was said, in the model.

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{Attempt, DeliveryId, Event, EventId, TenantId, Timestamp};
use posthorn_store::Refusal;

use super::{State, plant};

impl State {
    pub(super) fn is_expunged(&self, event: EventId) -> bool {
        self.events.get(&event).is_some_and(|event| event.expunged_at.is_some())
    }

    /// Removes the payload of an event; whether anything changed.
    pub(super) fn expunge(
        &mut self,
        tenant: TenantId,
        id: EventId,
        responses: bool,
        at: Timestamp,
    ) -> Result<bool, Refusal> {
        let event = self.events.get(&id).filter(|event| event.tenant == tenant);
        let event = event.ok_or(Refusal::NotFound)?;
        let own = self.by_event.get(&id).cloned().unwrap_or_default();
        let mut rows = own.iter().filter_map(|id| self.rows.get(id));
        if rows.any(|row| self.unfinished(row)) && !plant::active("expunge-under-way") {
            return Err(Refusal::Unfinished);
        }
        let mut did = event.expunged_at.is_none();
        if did {
            let mut left = Event::clone(event);
            (left.payload, left.expunged_at) = (Bytes::new(), Some(at));
            self.events.insert(id, Arc::new(left));
        }
        for delivery in own {
            for attempt in self.attempts.get_mut(&delivery).into_iter().flatten() {
                attempt.request = None;
                did |= responses && clear(attempt, at);
            }
        }
        Ok(did)
    }

    /// Removes what the receiver answered to one attempt; whether anything changed.
    pub(super) fn expunge_response(
        &mut self,
        tenant: TenantId,
        id: DeliveryId,
        number: u32,
        at: Timestamp,
    ) -> Result<bool, Refusal> {
        let own = self.rows.get(&id).filter(|row| row.delivery.tenant == tenant);
        own.ok_or(Refusal::NotFound)?;
        let attempts = self.attempts.get_mut(&id).into_iter().flatten();
        let mut found = attempts.filter(|attempt| attempt.number == number).peekable();
        found.peek().ok_or(Refusal::NotFound)?;
        let mut did = false;
        for attempt in found {
            did |= clear(attempt, at);
        }
        Ok(did)
    }
}

/// Whether it was not yet.
fn clear(attempt: &mut Attempt, at: Timestamp) -> bool {
    if attempt.response_expunged_at.is_some() {
        return false;
    }
    (attempt.response, attempt.detail) = (Bytes::new(), String::new());
    attempt.response_expunged_at = Some(at);
    true
}
