//! Events, idempotency keys and fan-out.

use bytes::Bytes;
use posthorn_domain::{
    CatalogVersion, Delivery, DeliveryId, DeliveryState, EventId, IdempotencyKey, Lane,
    SubscriptionId, TenantId, Timestamp,
};
use posthorn_engine::Published;
use posthorn_store::{Accepted, NewEvent, Placed};

use super::{Entry, Invariant, Oracle};

/// What an idempotency key stands for.
pub(super) struct KnownKey {
    pub(super) fingerprint: [u8; 32],
    pub(super) event: EventId,
    pub(super) accepted_at: Timestamp,
}

/// What a publisher was told, in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublishVerdict {
    /// Yes.
    Accepted,
    /// Surely not.
    Refused,
    /// Nobody knows.
    Unknown,
}

impl Oracle {
    /// The store judged a batch.
    pub(crate) fn accepted(&mut self, now: Timestamp, batch: &[NewEvent], answers: &[Accepted]) {
        for (new, answer) in batch.iter().zip(answers) {
            let tenant = new.event.tenant;
            let key = new.idempotency.as_ref();
            let known = key.and_then(|k| self.keys.get(&(tenant, k.key.as_str().to_owned())));
            let expected = match (key, known) {
                (Some(key), Some(known)) if known.fingerprint == key.fingerprint => {
                    Some(Accepted::Duplicate { event: known.event })
                }
                (Some(_), Some(known)) => Some(Accepted::Conflict { event: known.event }),
                _ => None,
            };
            if let Some(expected) = expected {
                self.expect(*answer == expected, Invariant::I11, now, || {
                    format!("a repeated key was answered {answer:?}, not {expected:?}")
                });
            }
            match answer {
                Accepted::Stored(placed) => self.stored(now, new, placed, None),
                Accepted::Stale => {}
                Accepted::Duplicate { .. } | Accepted::Conflict { .. } => {
                    let invented = self.keys_of(tenant, key.map(|k| &k.key)).is_none();
                    self.expect(!invented, Invariant::I2, now, || {
                        format!("{answer:?} for a key that was never stored")
                    });
                }
            }
        }
    }

    fn keys_of(&self, tenant: TenantId, key: Option<&IdempotencyKey>) -> Option<&KnownKey> {
        self.keys.get(&(tenant, key?.as_str().to_owned()))
    }

    /// An event is there, for all who want it; `except` is about to be gone.
    pub(super) fn stored(
        &mut self,
        now: Timestamp,
        new: &NewEvent,
        placed: &[Placed],
        except: Option<SubscriptionId>,
    ) {
        let event = &new.event;
        let current: Option<CatalogVersion> = self.tenants.get(&event.tenant).copied();
        self.expect(current == Some(new.catalog), Invariant::I14, now, || {
            format!("{} was planned on {:?}, the catalog is at {current:?}", event.id, new.catalog)
        });
        let mut expected = self.fan_out(event);
        expected.retain(|(wants, _)| Some(*wants) != except);
        let mut planned: Vec<(SubscriptionId, Option<Lane>)> =
            new.deliveries.iter().map(|d| (d.subscription, d.lane.clone())).collect();
        expected.sort();
        planned.sort();
        self.expect(
            expected == planned && placed.len() == planned.len(),
            Invariant::I14,
            now,
            || format!("{} goes to {planned:?}, but these want it: {expected:?}", event.id),
        );
        if let Some(key) = &new.idempotency {
            let known = KnownKey {
                fingerprint: key.fingerprint,
                event: event.id,
                accepted_at: event.accepted_at,
            };
            self.keys.insert((event.tenant, key.key.as_str().to_owned()), known);
        }
        self.tally.events += 1;
        self.by_payload.entry(event.payload.clone()).or_default().push(event.id);
        self.events.insert(event.id, std::sync::Arc::clone(event));
        for (delivery, placed) in new.deliveries.iter().zip(placed) {
            self.tally.deliveries += 1;
            let enters = event.deliver_at.zip(delivery.lane.clone());
            let lane = delivery.lane.clone().filter(|_| enters.is_none());
            let parked = enters.is_some()
                || lane
                    .as_ref()
                    .is_some_and(|lane| self.occupied(delivery.subscription, lane, None));
            self.expect(
                placed.seq > self.seq && placed.parked == parked,
                Invariant::I5,
                now,
                || format!("{} was placed {placed:?}; parked should be {parked}", delivery.id),
            );
            self.seq = self.seq.max(placed.seq);
            let due_at = if placed.parked { Timestamp::MAX } else { delivery.due_at };
            let mirror = Delivery {
                id: delivery.id,
                event: event.id,
                subscription: delivery.subscription,
                tenant: event.tenant,
                lane: lane.clone(),
                seq: placed.seq,
                state: DeliveryState::Pending,
                due_at,
                attempts: 0,
                budget_base: 0,
                budget: posthorn_domain::Budget::Fresh,
                budget_began: event.begins_at(),
                revival: 0,
                created_at: event.accepted_at,
                ended_at: None,
                last_outcome: None,
            };
            if let Some(lane) = lane {
                let lane = (delivery.subscription, lane);
                self.lanes.entry(lane).or_default().insert(delivery.id);
            }
            self.by_event.entry(event.id).or_default().push(delivery.id);
            let entry = Entry { enters, ..Entry::new(mirror, due_at) };
            self.deliveries.insert(delivery.id, entry);
        }
    }

    /// A publisher was told yes.
    pub(crate) fn published(&mut self, now: Timestamp, payload: &Bytes, told: &Published) {
        let pruned = self.pruned.contains(&told.id);
        let stored = self.events.get(&told.id);
        let right = stored.map_or(pruned, |event| event.payload == *payload);
        self.expect(right, Invariant::I1, now, || {
            format!("{} was acknowledged and is not in the store with these bytes", told.id)
        });
        // An operator may have removed some before the publisher heard.
        let forgotten = self.forgotten.iter().filter(|(id, forgotten)| {
            forgotten.event == told.id && !self.made_by_jobs.contains(*id)
        });
        // And a job may have made some more.
        let first = |id: &&DeliveryId| !self.made_by_jobs.contains(*id);
        let own = self.by_event.get(&told.id).map_or(0, |ids| ids.iter().filter(first).count());
        let deliveries = own + forgotten.count();
        self.expect(
            told.duplicate || pruned || deliveries == told.deliveries,
            Invariant::I1,
            now,
            || format!("{} has {deliveries} deliveries, not {}", told.id, told.deliveries),
        );
    }

    /// How many events one publisher's one event became, against what it was told.
    pub(crate) fn check_publish(
        &mut self,
        now: Timestamp,
        payload: &Bytes,
        told: PublishVerdict,
        id: Option<EventId>,
    ) {
        let events = self.by_payload.get(payload).cloned().unwrap_or_default();
        let fine = match told {
            PublishVerdict::Accepted => events.len() == 1 && events.first().copied() == id,
            PublishVerdict::Refused => events.is_empty(),
            PublishVerdict::Unknown => events.len() <= 1,
        };
        self.expect(fine, Invariant::I2, now, || {
            format!("a publish that was told {told:?} {id:?} is these events: {events:?}")
        });
    }
}
