//! How many attempts a second a tenant may begin, all its subscriptions together.
//!
//! Whoever is ready while its tenant has used up its pace waits here, behind those of the tenant who came before. When
//! there is room again they go on in that order, so that no subscription of a tenant starves another. Tenants have
//! nothing to do with each other.
//!
//! The pace is even: at most as much as fits a moment is made up for. It begins anew when this node does.

use posthorn_domain::{Span, SubscriptionId, TenantId, Timestamp};

use super::ring::Ring;
use crate::catalog::Map;

/// What was not used is kept for so long, so that a pace of many a second is reached with a clock of milliseconds.
const KEPT_MS: f64 = 50.0;
/// Tenants that are remembered before those that have used nothing lately are forgotten.
const KNOWN_MAX: usize = 1_024;

/// The paces of tenants that have one.
#[derive(Default)]
pub(super) struct Paces {
    /// When the next attempt of a tenant may begin, in milliseconds.
    next_ms: Map<TenantId, f64>,
    waiting: Ring,
}

impl Paces {
    /// When the next attempt of a tenant may begin.
    pub(super) fn slot(&self, tenant: TenantId) -> Timestamp {
        let next = self.next_ms.get(&tenant);
        next.map_or(Timestamp::MIN, |next| Timestamp::from_millis(next.ceil() as i64))
    }

    /// An attempt of a tenant begins that may begin so many in a second.
    pub(super) fn take(&mut self, tenant: TenantId, per_second: u32, now: Timestamp) {
        let now_ms = now.as_millis() as f64;
        if self.next_ms.len() >= KNOWN_MAX {
            self.next_ms.retain(|_, next| *next > now_ms - KEPT_MS);
        }
        let next = self.next_ms.entry(tenant).or_insert(now_ms - KEPT_MS);
        *next = next.max(now_ms - KEPT_MS) + 1_000.0 / f64::from(per_second.max(1));
    }

    /// How many attempts of a tenant may begin now.
    fn room(&self, tenant: TenantId, per_second: u32, now: Timestamp) -> usize {
        let now_ms = now.as_millis() as f64;
        let next = self.next_ms.get(&tenant).copied().unwrap_or(now_ms).max(now_ms - KEPT_MS);
        match next.ceil() <= now_ms {
            true => ((now_ms - next) * f64::from(per_second) / 1_000.0) as usize + 1,
            false => 0,
        }
    }

    /// Has one wait, behind the others of its tenant.
    pub(super) fn wait(&mut self, tenant: TenantId, subscription: SubscriptionId) {
        self.waiting.push(tenant, subscription);
    }

    /// Whether somebody of a tenant waits.
    pub(super) fn is_waited_for(&self, tenant: TenantId) -> bool {
        self.waiting.has(tenant)
    }

    /// Those who may go on now. `per_second` says what a tenant may, if it is limited at all.
    pub(super) fn ready(
        &mut self,
        now: Timestamp,
        per_second: impl Fn(TenantId) -> Option<u32>,
    ) -> Vec<SubscriptionId> {
        let mut room: Map<TenantId, usize> = Map::default();
        for tenant in self.waiting.tenants() {
            let left = per_second(tenant).map_or(usize::MAX, |rate| self.room(tenant, rate, now));
            room.insert(tenant, left);
        }
        let mut ready = Vec::new();
        let may =
            |room: &Map<TenantId, usize>, tenant| room.get(&tenant).is_some_and(|left| *left > 0);
        while let Some((tenant, id)) = self.waiting.pop_of(|tenant| may(&room, tenant)) {
            ready.push(id);
            if let Some(left) = room.get_mut(&tenant) {
                *left = left.saturating_sub(1);
            }
        }
        ready
    }

    /// The clock was set back by so much; nobody waits longer because of it.
    pub(super) fn set_back(&mut self, by: Span) {
        self.next_ms.values_mut().for_each(|next| *next -= by.as_millis() as f64);
    }

    /// When somebody who waits may go on.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.waiting.tenants().map(|tenant| self.slot(tenant)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    fn tenant(number: u128) -> TenantId {
        TenantId::new(Timestamp::MIN, number)
    }

    fn subscription(number: u128) -> SubscriptionId {
        SubscriptionId::new(Timestamp::MIN, number)
    }

    /// Begins whatever may begin in a time, a look each millisecond.
    fn begun(per_second: u32, millis: i64) -> usize {
        let (mut paces, one) = (Paces::default(), tenant(1));
        let mut count = 0;
        for now in 0..millis {
            while paces.slot(one) <= at(now) {
                paces.take(one, per_second, at(now));
                count += 1;
            }
        }
        count
    }

    #[test]
    fn a_pace_is_kept_whatever_it_is() {
        for (per_second, wanted) in [(1, 10), (7, 70), (1_000, 10_000), (4_000, 40_000)] {
            let count = begun(per_second, 10_000);
            // What fits the moment that is kept, and the first.
            let more = per_second as usize / 20 + 1;
            assert!((wanted..=wanted + more).contains(&count), "{per_second}: {count}");
        }
    }

    #[test]
    fn those_who_wait_go_on_in_their_order_and_tenants_do_not_meet() {
        let mut paces = Paces::default();
        let (one, two) = (tenant(1), tenant(2));
        while paces.slot(one) <= at(0) {
            paces.take(one, 10, at(0));
        }
        assert_eq!(paces.slot(two), Timestamp::MIN, "another tenant has its own");
        for number in 1..=3 {
            paces.wait(one, subscription(number));
        }
        assert!(paces.is_waited_for(one) && !paces.is_waited_for(two));
        let limit = |_| Some(10);
        assert_eq!(paces.ready(at(0), limit), []);
        let wake = paces.next_wake().expect("somebody waits");
        assert!(wake > at(0) && wake <= at(100), "{wake}");
        assert_eq!(paces.ready(wake, limit), [subscription(1)]);
        paces.take(one, 10, wake);
        let wake = paces.next_wake().expect("somebody waits");
        assert_eq!(paces.ready(wake, limit), [subscription(2)]);
        // Without a limit nobody waits any longer.
        assert_eq!(paces.ready(wake, |_| None), [subscription(3)]);
        assert_eq!(paces.next_wake(), None);
    }
}
