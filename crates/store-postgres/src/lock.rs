//! Advisory locks: who waits for whom, and in which order, so that nobody waits in a circle.
//!
//! | class | shared | exclusive | protects |
//! |---|---|---|---|
//! | tenant | accept, retry, redrive, job, session | catalog changes | fan-out belongs to the commit |
//! | lane | – | adding, ending, reviving members | commit order; one head; nobody forgotten |
//! | shard | claim, record | taking a shard over | no late write after a take-over |
//! | slot | – | a connection, for good | nobody else changes its rows of the tally |
//! | gate | a connection, for good | a migration | no older program beside a schema it cannot use (`gate`) |
//! | copy | – | a copy that is made in a store | no two copies at once |
//!
//! Every transaction takes its locks by class in this order, sorted within a class, before it
//! touches a row; only a redrive or a job holds its own row first, which nobody else waits for. Rows come in
//! the order ended deliveries, live deliveries, events, each by id. The locks are slots, not names, so that their number is bounded; two names in one
//! slot wait for each other now and then, for the length of a commit.
//!
//! Web Push has nothing to do with these: there the row of an agent is its lock (see `push`).

use posthorn_domain::{Lane, SubscriptionId, TenantId};

use crate::failure::Outcome;
use crate::session::query;
use crate::sql;

use deadpool_postgres::Object;

/// The first keys of our locks; the second is a slot.
pub(crate) const TENANTS: i32 = 720_101;
pub(crate) const LANES: i32 = 720_102;
pub(crate) const SHARDS: i32 = 720_103;
/// Held as long as a connection lasts: its slot of the tally.
pub(crate) const SLOTS: i32 = 720_104;
/// Taken by two sessions at the start, to see whether locks hold.
pub(crate) const TRIAL: i32 = 720_105;
/// Held by a copy that is made in the store; the second key is made of the schema.
pub(crate) const COPIES: i32 = 720_106;
/// The whole key of the lock around migrations and partitions.
pub(crate) const SCHEMA: i64 = 7_201_000_000_001;

/// A slot has one holder, so this bounds the locks of all transactions together: well below what
/// the lock table of an untuned server holds (6,400). More slots would let more large ordered
/// batches run side by side.
const LANE_SLOTS: u64 = 4096;
const TENANT_SLOTS: u64 = 256;

/// FNV-1a: the same on all nodes and in all versions, which the standard hasher does not promise.
pub(crate) fn fnv(parts: [&[u8]; 2]) -> u64 {
    parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The slot of a lane; stored with its members.
pub(crate) fn lane_slot(subscription: SubscriptionId, lane: &Lane) -> i16 {
    let hash = fnv([subscription.as_bytes(), lane.as_str().as_bytes()]);
    i16::try_from((hash ^ (hash >> 32)) % LANE_SLOTS).unwrap_or(0)
}

/// The slot of a tenant.
pub(crate) fn tenant_slot(tenant: TenantId) -> i32 {
    let hash = fnv([tenant.as_bytes(), &[]]);
    i32::try_from((hash ^ (hash >> 32)) % TENANT_SLOTS).unwrap_or(0)
}

/// In the order in which they must be taken.
pub(crate) fn sorted(slots: impl IntoIterator<Item = i32>) -> Vec<i32> {
    let mut slots: Vec<i32> = slots.into_iter().collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

pub(crate) async fn share(client: &Object, class: i32, slots: &[i32]) -> Outcome<()> {
    if !slots.is_empty() {
        query(client, sql::LOCK_SHARED, &[&class, &slots]).await?;
    }
    Ok(())
}

pub(crate) async fn hold(client: &Object, class: i32, slots: &[i32]) -> Outcome<()> {
    if !slots.is_empty() {
        query(client, sql::LOCK_EXCLUSIVE, &[&class, &slots]).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_in_range_spread_and_never_change() {
        let subscription = SubscriptionId::from_bytes([7; 16]);
        let slots: std::collections::BTreeSet<i16> = (0..1000)
            .map(|n| posthorn_domain::LaneKey::new(&format!("user-{n}")).expect("a key"))
            .map(|key| lane_slot(subscription, &Lane::Key(key)))
            .collect();
        assert!(slots.len() > 500, "{}", slots.len());
        assert!(slots.iter().all(|slot| (0..4096).contains(slot)));
        // Nodes of different versions must agree, for ever.
        assert_eq!(lane_slot(subscription, &Lane::Subscription), 2125);
    }
}
