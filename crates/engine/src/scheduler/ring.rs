//! Whose turn it is: round robin over tenants, then over the ready subscriptions of each.

use std::collections::VecDeque;

use posthorn_domain::{SubscriptionId, TenantId};

use crate::catalog::Map;

/// The ready subscriptions. Each is in here at most once (the caller keeps the mark).
#[derive(Default)]
pub(super) struct Ring {
    tenants: VecDeque<TenantId>,
    ready: Map<TenantId, VecDeque<SubscriptionId>>,
}

impl Ring {
    pub(super) fn push(&mut self, tenant: TenantId, subscription: SubscriptionId) {
        let queue = self.ready.entry(tenant).or_default();
        if queue.is_empty() {
            self.tenants.push_back(tenant);
        }
        queue.push_back(subscription);
    }

    /// The next one; it leaves the ring.
    pub(super) fn pop(&mut self) -> Option<SubscriptionId> {
        let tenant = self.tenants.pop_front()?;
        let queue = self.ready.get_mut(&tenant)?;
        let subscription = queue.pop_front();
        if queue.is_empty() {
            self.ready.remove(&tenant);
        } else {
            self.tenants.push_back(tenant);
        }
        subscription
    }

    /// The next one of a tenant that may; it leaves the ring. Looks at each tenant once at most.
    pub(super) fn pop_of(
        &mut self,
        mut may: impl FnMut(TenantId) -> bool,
    ) -> Option<(TenantId, SubscriptionId)> {
        for _ in 0..self.tenants.len() {
            let tenant = *self.tenants.front()?;
            if may(tenant) {
                return self.pop().map(|subscription| (tenant, subscription));
            }
            self.tenants.rotate_left(1);
        }
        None
    }

    /// Whether anybody of a tenant is in here.
    pub(super) fn has(&self, tenant: TenantId) -> bool {
        self.ready.contains_key(&tenant)
    }

    /// The tenants of those in here.
    pub(super) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        self.tenants.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthorn_domain::Timestamp;

    #[test]
    fn tenants_take_turns_whatever_their_number_of_subscriptions() {
        let tenant = |n| TenantId::new(Timestamp::MIN, n);
        let sub = |n| SubscriptionId::new(Timestamp::MIN, n);
        let mut ring = Ring::default();
        for n in 1..=3 {
            ring.push(tenant(1), sub(n));
        }
        ring.push(tenant(2), sub(9));
        let order: Vec<_> = std::iter::from_fn(|| ring.pop()).collect();
        assert_eq!(order, [sub(1), sub(9), sub(2), sub(3)]);
        assert!(ring.is_empty());

        ring.push(tenant(1), sub(1));
        ring.push(tenant(2), sub(9));
        assert_eq!(ring.pop_of(|of| of == tenant(2)), Some((tenant(2), sub(9))));
        assert_eq!(ring.pop_of(|of| of == tenant(2)), None);
        assert_eq!(ring.pop(), Some(sub(1)), "whoever may not keeps its place");
    }
}
