//! Dead letters by subscription and reason, and how many there are.
//!
//! The store keeps the number of all of a tenant, not of each group: groups are counted of the newest ones, and the page
//! says of how many. Nothing reads all history.

use std::collections::HashMap;

use posthorn_domain::{DeadReason, DeliveryState, SubscriptionId, TenantId, Timestamp};
use posthorn_store::{DeliveryFilter, Listing, Order, StateKind};

use super::matching::counted;
use super::show::{Named, Time};
use crate::trouble::Trouble;
use crate::visit::Visit;
use crate::words;

/// Dead letters that are looked at for the groups.
const LOOKED_MAX: usize = 1_000;
/// Dead letters that are counted one by one before a redrive.
const COUNTED_MAX: usize = 10_000;
/// Rows that are read at once.
const PAGE: usize = 1_000;
/// Groups that are shown.
const GROUPS_MAX: usize = 20;

/// The dead letters of one subscription that ended for one reason.
pub(crate) struct Group {
    pub(crate) to: Named,
    pub(crate) reason: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) count: String,
    pub(crate) newest: Time,
    /// Whether the subscription is still there, so that they can be tried again.
    pub(crate) is_there: bool,
}

/// All groups that were found.
pub(crate) struct Groups {
    pub(crate) lines: Vec<Group>,
    pub(crate) looked: u64,
    pub(crate) looked_text: String,
    pub(crate) all: u64,
    pub(crate) all_text: String,
}

const fn reason_word(reason: DeadReason) -> (&'static str, &'static str) {
    match reason {
        DeadReason::Exhausted => ("exhausted", "all attempts of its schedule failed"),
        DeadReason::Permanent => ("permanent", "the receiver said that a retry is pointless"),
        DeadReason::Gate => ("gate", "the gate before it stayed closed"),
        DeadReason::Expired => ("expired", "it became too old"),
    }
}

/// What was found of one group: how many, and when the newest of them ended.
type Found = HashMap<(SubscriptionId, &'static str), (u64, Timestamp, &'static str)>;

/// The groups of a tenant's newest dead letters, those with most first. None when there are no dead letters.
pub(crate) async fn groups(
    visit: &Visit,
    tenant: TenantId,
    all: u64,
    now: Timestamp,
) -> Result<Option<Groups>, Trouble> {
    if all == 0 {
        return Ok(None);
    }
    let (mut found, mut looked) = (Found::new(), 0);
    let dead = DeliveryFilter { state: Some(StateKind::Dead), ..DeliveryFilter::default() };
    let mut listing = Listing { order: Order::NewestFirst, after: None, limit: PAGE };
    for _ in 0..LOOKED_MAX / PAGE {
        let page = visit.engine().store().deliveries(tenant, dead.clone(), listing).await;
        let page = page.map_err(|_| Trouble::Away)?;
        looked += page.items.len();
        for delivery in &page.items {
            let DeliveryState::Dead(reason) = delivery.state else { continue };
            let (word, meaning) = reason_word(reason);
            let ended = delivery.ended_at.unwrap_or(delivery.created_at);
            let group = found.entry((delivery.subscription, word));
            let (count, newest, _) = group.or_insert((0, ended, meaning));
            *count += 1;
            *newest = ended.max(*newest);
        }
        listing.after = page.last;
        if !page.more {
            break;
        }
    }
    let mut sorted: Vec<_> = found.into_iter().collect();
    sorted.sort_by_key(|((id, reason), (count, ..))| (std::cmp::Reverse(*count), *id, *reason));
    let catalog = visit.engine().catalog();
    let lines =
        sorted.into_iter().take(GROUPS_MAX).map(|((id, reason), (count, newest, meaning))| Group {
            to: Named::find(visit.engine(), tenant, id),
            count: words::number(count),
            newest: Time::new(newest, now),
            is_there: catalog.subscription(tenant, id).is_ok(),
            reason,
            meaning,
        });
    let looked = looked as u64;
    Ok(Some(Groups {
        lines: lines.collect(),
        looked_text: words::number(looked),
        all_text: words::number(all.max(looked)),
        all: all.max(looked),
        looked,
    }))
}

/// How many dead letters a redrive by subscription and reason would move: counted one by one up to a bound, and known at
/// once when all are meant.
pub(crate) async fn count(
    visit: &Visit,
    (subscription, reason): (Option<&str>, Option<&str>),
) -> Result<String, Trouble> {
    let tenant = visit.tenant()?.id;
    let refuse = |field: &str, detail: &str| {
        Trouble::Refused(crate::trouble::Refusal {
            status: 400,
            code: "invalid_request".to_owned(),
            detail: detail.to_owned(),
            field: Some(field.to_owned()),
        })
    };
    let exactly = match reason {
        None => None,
        Some(text) => {
            let all = [
                DeadReason::Exhausted,
                DeadReason::Permanent,
                DeadReason::Gate,
                DeadReason::Expired,
            ];
            let known = all.into_iter().find(|reason| reason_word(*reason).0 == text);
            Some(known.ok_or_else(|| refuse("reason", "No dead letter has this reason."))?)
        }
    };
    let subscription = match subscription {
        None => None,
        Some(text) => {
            let views = visit.engine().catalog().subscriptions(tenant);
            let found = views.iter().map(|view| &view.subscription).find(|own| {
                let named = own.name.as_ref().is_some_and(|name| name.to_string() == text);
                named || own.id.to_string() == text
            });
            let found = found.map(|own| own.id);
            Some(found.ok_or_else(|| refuse("subscription", "There is no such subscription."))?)
        }
    };
    let store = visit.engine().store();
    if exactly.is_none() && subscription.is_none() {
        let counts = store.counts(Some(tenant)).await.map_err(|_| Trouble::Away)?;
        return Ok(counted(counts.dead, true));
    }
    let filter = DeliveryFilter {
        state: Some(StateKind::Dead),
        exactly: exactly.map(DeliveryState::Dead),
        subscription,
        ..DeliveryFilter::default()
    };
    let mut listing = Listing { order: Order::NewestFirst, after: None, limit: PAGE };
    let mut count = 0;
    for _ in 0..COUNTED_MAX / PAGE {
        let page = store.deliveries(tenant, filter.clone(), listing).await;
        let page = page.map_err(|_| Trouble::Away)?;
        count += page.items.len();
        listing.after = page.last;
        if !page.more {
            return Ok(counted(count as u64, true));
        }
    }
    Ok(counted(count as u64, false))
}
