//! Lines in the log for sends that failed and deliveries that are dead, as many as somebody can read.
//!
//! Each subscription has a few lines of each kind for a while; what comes beyond them is counted, and the
//! next line says how many. The bodies of answers are not logged: they are the receiver's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use parking_lot::{Mutex, RwLock};
use posthorn_domain::{DeliveryState, Span, SubscriptionId, TenantId, Timestamp};
use posthorn_store::{Record, Work};
use tracing::warn;

/// Lines of one kind and one subscription at most, in each [`WINDOW`].
const LINES_MAX: u32 = 5;
/// How long a subscription that used its lines up is only counted.
const WINDOW: Span = Span::from_secs(10);
/// Subscriptions that are told apart; more of them that fail at once share one place.
const SUBSCRIPTIONS_MAX: usize = 4_096;

/// What these lines are called for one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureNames {
    /// An attempt did not succeed.
    pub failed: &'static str,
    /// A delivery ended without success.
    pub dead: &'static str,
}

const NAMES: FailureNames =
    FailureNames { failed: "an attempt failed", dead: "a delivery is a dead letter" };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Failed,
    Dead,
}

struct Lines {
    since: Timestamp,
    written: u32,
    suppressed: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct FailureLog {
    lines: Mutex<HashMap<(Option<SubscriptionId>, Kind), Lines>>,
    names: RwLock<Vec<(TenantId, FailureNames)>>,
}

impl FailureLog {
    /// Calls these lines of a tenant so from now on.
    pub(crate) fn name(&self, tenant: TenantId, names: FailureNames) {
        let mut all = self.names.write();
        all.retain(|(known, _)| *known != tenant);
        all.push((tenant, names));
    }

    /// Looks at what was written down of an attempt or an end. `name` tells what people call the
    /// subscription.
    pub(crate) fn note(
        &self,
        work: &Work,
        record: &Record,
        name: impl Fn(SubscriptionId) -> Option<String>,
    ) {
        let state = record.step.state;
        if state == DeliveryState::Delivered {
            return;
        }
        let delivery = &work.delivery;
        let (id, event, subscription) = (delivery.id, delivery.event, delivery.subscription);
        let called = || name(subscription).unwrap_or_default();
        if let Some(attempt) = &record.attempt
            && let Some(suppressed) = self.take(subscription, Kind::Failed, record.at)
        {
            let text = self.names_of(delivery.tenant).failed;
            warn!(
                %subscription, name = called(), %event, delivery = %id, attempt = attempt.number,
                outcome = attempt.outcome(), suppressed, "{text}"
            );
        }
        if let DeliveryState::Dead(reason) = state
            && let Some(suppressed) = self.take(subscription, Kind::Dead, record.at)
        {
            let text = self.names_of(delivery.tenant).dead;
            warn!(
                %subscription, name = called(), %event, delivery = %id, ?reason,
                attempts = delivery.attempts + u32::from(record.attempt.is_some()), suppressed, "{text}"
            );
        }
    }

    fn names_of(&self, tenant: TenantId) -> FailureNames {
        let names = self.names.read();
        names.iter().find(|(known, _)| *known == tenant).map_or(NAMES, |(_, names)| *names)
    }

    /// A place for a line: how many were left out before it.
    fn take(&self, subscription: SubscriptionId, kind: Kind, now: Timestamp) -> Option<u64> {
        let mut all = self.lines.lock();
        if all.len() >= SUBSCRIPTIONS_MAX && !all.contains_key(&(Some(subscription), kind)) {
            all.retain(|_, lines| now.since(lines.since) < WINDOW || lines.suppressed > 0);
        }
        let known = all.len() < SUBSCRIPTIONS_MAX || all.contains_key(&(Some(subscription), kind));
        match all.entry((known.then_some(subscription), kind)) {
            Entry::Vacant(free) => {
                free.insert(Lines { since: now, written: 1, suppressed: 0 });
                Some(0)
            }
            Entry::Occupied(mut lines) => {
                let lines = lines.get_mut();
                // Or the clock was set back.
                if now.since(lines.since) >= WINDOW || now < lines.since {
                    *lines = Lines { since: now, written: 0, suppressed: lines.suppressed };
                }
                if lines.written >= LINES_MAX {
                    lines.suppressed += 1;
                    return None;
                }
                lines.written += 1;
                Some(std::mem::take(&mut lines.suppressed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000).plus(Span::from_secs(seconds))
    }

    fn id(number: u128) -> SubscriptionId {
        SubscriptionId::from_bytes(number.to_be_bytes())
    }

    #[test]
    fn a_few_lines_for_each_subscription_and_kind_and_then_a_count() {
        let log = FailureLog::default();
        for _ in 0..LINES_MAX {
            assert_eq!(log.take(id(1), Kind::Failed, at(0)), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(log.take(id(1), Kind::Failed, at(9)), None);
        }
        assert_eq!(log.take(id(1), Kind::Dead, at(9)), Some(0), "ends are counted apart");
        assert_eq!(log.take(id(2), Kind::Failed, at(9)), Some(0), "and so are others");
        assert_eq!(log.take(id(1), Kind::Failed, at(10)), Some(7), "nothing goes uncounted");
        assert_eq!(log.take(id(1), Kind::Failed, at(10)), Some(0));
    }

    #[test]
    fn the_table_is_bounded() {
        let log = FailureLog::default();
        for number in 0..2 * SUBSCRIPTIONS_MAX as u128 {
            log.take(id(number), Kind::Failed, at(0));
        }
        assert!(log.lines.lock().len() <= SUBSCRIPTIONS_MAX + 2);
        assert_eq!(log.take(id(7), Kind::Dead, at(100)), Some(0), "old ones make room");
        assert!(log.lines.lock().len() <= 3);
    }
}
