//! Operational events: nothing is told without its cause, and no cause is without what is told of it.
//!
//! Who wants to be told is made before anything breaks, and nobody begins to want it later. So whatever a node knows of the
//! catalog, who wants it at the moment of the commit wanted it when it was planned.

use posthorn_domain::filter::Candidate;
use posthorn_domain::policy::OnExhausted;
use posthorn_domain::{
    DeliveryState, Event, EventId, OperationalType, SubscriptionId, SubscriptionStatus, TenantId,
    Timestamp, TopicName,
};
use posthorn_store::{CatalogChange, Ending, NewEvent, Placed, Record};

use super::{Invariant, Oracle};

/// The failed attempt of a budget with which a delivery counts as failing, by the design's own words.
const FOURTH: u32 = 4;

/// What is told of every change that somebody asks for.
const LINE: OperationalType = OperationalType::AuditRecorded;

/// Where the line of a change is told besides to operators. A tenant that is to be deleted is told nothing any more.
fn line_tenant(change: &CatalogChange) -> TenantId {
    match change {
        CatalogChange::DeleteTenant { .. } => TenantId::SYSTEM,
        change => change.tenant().unwrap_or(TenantId::SYSTEM),
    }
}

impl Oracle {
    /// Whether a plan is not of the present.
    pub(super) fn is_stale(&self, told: &[NewEvent]) -> bool {
        told.iter().any(|new| self.tenants.get(&new.event.tenant) != Some(&new.catalog))
    }

    /// Takes what was told into the account, as the store must have placed it.
    pub(super) fn tell(
        &mut self,
        now: Timestamp,
        told: &[NewEvent],
        except: Option<SubscriptionId>,
    ) {
        for new in told {
            self.expect(new.event.topic.is_reserved(), Invariant::I4, now, || {
                format!("{} is told on {}", new.event.id, new.event.topic)
            });
            let mut lanes = std::collections::BTreeSet::new();
            let mut placed = Vec::with_capacity(new.deliveries.len());
            for (seq, delivery) in (self.seq + 1..).zip(&new.deliveries) {
                let parked = delivery.lane.as_ref().is_some_and(|lane| {
                    let first = lanes.insert((delivery.subscription, lane.clone()));
                    !first || self.occupied(delivery.subscription, lane, None)
                });
                placed.push(Placed { seq, parked });
            }
            self.stored(now, new, &placed, except);
        }
    }

    /// Whether somebody of a tenant wants to be told something of this type.
    fn is_wanted(
        &self,
        tenant: TenantId,
        kind: OperationalType,
        now: Timestamp,
        except: Option<SubscriptionId>,
    ) -> bool {
        let event = Event {
            id: EventId::new(now, 0),
            tenant,
            topic: TopicName::operational(),
            event_type: kind.event_type(),
            attributes: std::collections::BTreeMap::new(),
            key: None,
            content_type: String::new(),
            payload: bytes::Bytes::new(),
            accepted_at: now,
            publisher_id: None,
            deliver_at: None,
            retention: None,
            expunged_at: None,
            trace: None,
        };
        let candidate = Candidate::new(&event);
        self.subscriptions.iter().any(|(id, known)| {
            known.tenant == tenant
                && !known.deleted
                && Some(*id) != except
                && known.current().is_some_and(|now| now.subscription.filter.wants(&candidate))
        })
    }

    /// Something happened in a tenant that is to be told, there and to operators, exactly once to each that wants it.
    fn check_kind(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        kind: OperationalType,
        told: &[NewEvent],
        except: Option<SubscriptionId>,
    ) {
        let own = (tenant != TenantId::SYSTEM).then_some(tenant);
        for to in own.into_iter().chain([TenantId::SYSTEM]) {
            let wanted = usize::from(self.is_wanted(to, kind, now, except));
            let event_type = kind.event_type();
            let of_kind =
                |new: &&NewEvent| new.event.tenant == to && new.event.event_type == event_type;
            let found = told.iter().filter(of_kind).count();
            // Once a tenant is being deleted, whoever has heard of it tells nothing there any more.
            let told_enough = found == wanted || (found == 0 && self.is_closed(to));
            self.expect(told_enough, Invariant::I14, now, || {
                format!("{kind} of {tenant} was told {found} times in {to}, not {wanted}")
            });
        }
    }

    /// Nothing else is told than these.
    fn only(&mut self, now: Timestamp, told: &[NewEvent], kinds: &[OperationalType]) {
        let types: Vec<_> = kinds.iter().map(|kind| kind.event_type()).collect();
        let more = told.iter().find(|new| !types.contains(&new.event.event_type));
        if let Some(new) = more {
            let what = format!("{} was told without a cause", new.event.event_type);
            self.blame(Invariant::I14, now, what);
        }
    }

    /// What a record tells follows from what it says. The account is still that from before it.
    pub(super) fn check_told(&mut self, now: Timestamp, record: &Record) {
        let Some(entry) = self.deliveries.get(&record.delivery) else { return };
        let (tenant, event) = (entry.delivery.tenant, entry.delivery.event);
        let revival = entry.delivery.revival;
        let spent = entry.delivery.attempts - entry.delivery.budget_base;
        let reserved = self.events.get(&event).is_some_and(|event| event.topic.is_reserved());
        if reserved {
            self.expect(record.told.is_empty(), Invariant::I14, now, || {
                format!("{} delivers what was told, and tells {:?}", record.delivery, record.told)
            });
            return;
        }
        // What the receiver has counts, also when it was sent under a former budget; then that is what it recovered from.
        if revival != record.expected_revival {
            let kinds =
                [OperationalType::DeliveryRecovered, OperationalType::SubscriptionRecovered];
            self.only(now, &record.told, &kinds);
            return;
        }
        let kind = match record.step.state {
            DeliveryState::Dead(_) => Some(OperationalType::DeliveryDead),
            DeliveryState::Delivered if spent >= FOURTH => Some(OperationalType::DeliveryRecovered),
            DeliveryState::Pending if record.step.charge && spent + 1 == FOURTH => {
                Some(OperationalType::DeliveryFailing)
            }
            _ => None,
        };
        if let Some(kind) = kind {
            self.check_kind(now, tenant, kind, &record.told, None);
        }
        let receiver = match record.step.state {
            DeliveryState::Delivered => OperationalType::SubscriptionRecovered,
            _ => OperationalType::SubscriptionFailing,
        };
        let kinds: Vec<_> = kind.into_iter().chain([receiver]).collect();
        self.only(now, &record.told, &kinds);
    }

    /// What a change of the catalog tells. The account is still that from before it.
    pub(crate) fn told_by_change(
        &mut self,
        now: Timestamp,
        change: &CatalogChange,
        told: &[NewEvent],
    ) {
        // What an operational event leads to is not told, and nobody here knows why something was disabled or deleted.
        let (tenant, kind, sure, except) = match change {
            CatalogChange::CreateSubscription(new) => {
                (new.tenant, OperationalType::SubscriptionCreated, true, None)
            }
            CatalogChange::UpdateSubscription { subscription: new, .. } => {
                let disabled = |status: &SubscriptionStatus| {
                    matches!(status, SubscriptionStatus::Disabled { .. })
                };
                let old = self.subscriptions.get(&new.id).and_then(|known| known.current());
                let was = old.is_some_and(|old| disabled(&old.subscription.status));
                let tells = |kind: OperationalType| {
                    told.iter().any(|new| new.event.event_type == kind.event_type())
                };
                match (was, disabled(&new.status)) {
                    (false, true) => {
                        (new.tenant, OperationalType::SubscriptionDisabled, false, None)
                    }
                    // Disabled once more, by whoever did not know of the first time; or changed by somebody.
                    (true, true) => {
                        let again = tells(OperationalType::SubscriptionDisabled);
                        let kind = match again {
                            true => OperationalType::SubscriptionDisabled,
                            false => OperationalType::SubscriptionUpdated,
                        };
                        (new.tenant, kind, false, None)
                    }
                    (true, false) if new.status.is_active() => {
                        (new.tenant, OperationalType::SubscriptionRecovered, true, None)
                    }
                    _ => (new.tenant, OperationalType::SubscriptionUpdated, true, None),
                }
            }
            CatalogChange::DeleteSubscription { tenant, id, .. } => {
                let deletes = |known: &super::catalog::Known| {
                    known.policy.on_exhausted == OnExhausted::DeleteSubscription
                };
                let sure = !self.subscriptions.get(id).is_some_and(deletes);
                (*tenant, OperationalType::SubscriptionDeleted, sure, Some(*id))
            }
            _ => {
                self.check_kind(now, line_tenant(change), LINE, told, None);
                self.only(now, told, &[LINE]);
                self.tell(now, told, None);
                return;
            }
        };
        if sure || !told.is_empty() {
            self.check_kind(now, tenant, kind, told, except);
            self.check_kind(now, tenant, LINE, told, except);
        }
        self.only(now, told, &[kind, LINE]);
        self.tell(now, told, except);
    }

    /// What somebody asked for that is no change of the catalog: only its line is told.
    pub(crate) fn told_of_line(&mut self, now: Timestamp, tenant: TenantId, told: &[NewEvent]) {
        self.check_kind(now, tenant, LINE, told, None);
        self.only(now, told, &[LINE]);
        self.tell(now, told, None);
    }

    /// What is done to operational events causes no more of them.
    pub(crate) fn told_nothing(&mut self, now: Timestamp, tenant: TenantId, told: &[NewEvent]) {
        self.expect(told.is_empty(), Invariant::I14, now, || {
            format!("something is done to an operational event of {tenant}, and {told:?} is told")
        });
    }

    /// A job or a redrive has ended, or not, and this is told of it.
    pub(super) fn told_by_end(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        told: Option<&Ending>,
        ends: bool,
    ) {
        let told = told.map_or(&[][..], |ending| &ending.told);
        if ends {
            self.check_kind(now, tenant, OperationalType::JobFinished, told, None);
        }
        self.tell(now, told, None);
    }
}
