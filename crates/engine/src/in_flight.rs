//! Lists of deliveries, as their owner knows them: what is under way is known to the scheduler, and written down only
//! where a policy says so.

use std::collections::BTreeMap;

use posthorn_domain::{Delivery, DeliveryId, DeliveryState, SubscriptionId, TenantId};
use posthorn_store::{DeliveryFilter, Listing, Order, Page, Place, StateKind};
use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::error::Result;
use crate::scheduler::Input;
use crate::waiting::PATIENCE;

/// Deliveries in flight that one list looks at: of those that this node works on, and of those whose leases are written
/// down.
const IN_FLIGHT_MAX: usize = 1_000;
const WRITTEN_MAX: usize = 10_000;

impl Engine {
    /// Deliveries of a tenant. In flight are those that this node works on, and those whose leases are written
    /// down; places in that list are of its own.
    pub async fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        listing: Listing,
    ) -> Result<Page<Delivery>> {
        if filter.state != Some(StateKind::InFlight) {
            return Ok(self.store().deliveries(tenant, filter, listing).await?);
        }
        let mut found: BTreeMap<u64, Delivery> = BTreeMap::new();
        let mut next = Listing::newest(IN_FLIGHT_MAX);
        loop {
            let page = self.store().deliveries(tenant, filter.clone(), next).await?;
            found.extend(page.items.into_iter().map(|delivery| (delivery.seq, delivery)));
            if !page.more || found.len() >= WRITTEN_MAX {
                break;
            }
            next.after = page.last;
        }
        let ids = self.under_way(tenant, filter.subscription).await;
        let under_way = match ids.is_empty() {
            true => Vec::new(),
            false => self.store().deliveries_by_id(tenant, ids).await?,
        };
        for delivery in under_way {
            // It may have ended since.
            if delivery.state.is_terminal() {
                continue;
            }
            let delivery = Delivery { state: DeliveryState::InFlight, ..delivery };
            if filter.wants(&delivery) {
                found.insert(delivery.seq, delivery);
            }
        }
        Ok(part(found, &listing))
    }

    async fn under_way(
        &self,
        tenant: TenantId,
        subscription: Option<SubscriptionId>,
    ) -> Vec<DeliveryId> {
        let of = match subscription {
            Some(one) => vec![one],
            None => {
                let all = self.catalog().subscriptions(tenant);
                all.iter().map(|view| view.subscription.id).collect()
            }
        };
        let (answer, ids) = oneshot::channel();
        let ask = async {
            let question = Input::UnderWay(of, IN_FLIGHT_MAX, answer);
            self.inner.scheduler.send(question).await.ok()?;
            ids.await.ok()
        };
        tokio::time::timeout(PATIENCE, ask).await.ok().flatten().unwrap_or_default()
    }
}

/// The part of a whole list that was asked for.
fn part(found: BTreeMap<u64, Delivery>, listing: &Listing) -> Page<Delivery> {
    let is_after = |seq: u64| match (listing.after, listing.order) {
        (None, _) => true,
        (Some(after), Order::NewestFirst) => u128::from(seq) < after.0,
        (Some(after), Order::OldestFirst) => u128::from(seq) > after.0,
    };
    let mut items: Vec<Delivery> =
        found.into_values().filter(|delivery| is_after(delivery.seq)).collect();
    if listing.order == Order::NewestFirst {
        items.reverse();
    }
    let more = items.len() > listing.limit;
    items.truncate(listing.limit);
    Page::of(items, |delivery| Place(delivery.seq.into()), more)
}
