//! Operational events, stored with what causes them.
//!
//! They need the locks of an accept: those of their tenants, shared, and those of the lanes they add to. So whoever
//! tells takes them where its other locks of the same class are taken ([`lock`](mod@crate::lock)). A change of the
//! catalog has its own tenant's lock alone; what it tells there needs no other.

use std::collections::{HashMap, HashSet};

use deadpool_postgres::Object;
use posthorn_domain::{CatalogVersion, TenantId};
use posthorn_store::{Ending, NewEvent, Record, Refusal, Result};

use crate::codec::{Reader, Uid};
use crate::failure::Outcome;
use crate::session::{Session, query};
use crate::{intake, lock, sql};

/// Before anything is told: what tables of times have to know.
pub(crate) async fn prepare<'t>(
    session: &Session,
    told: impl IntoIterator<Item = &'t NewEvent>,
) -> Result<()> {
    intake::note_skew(session, told).await
}

/// The slots of the tenants it is told in.
pub(crate) fn tenant_slots<'t>(told: impl IntoIterator<Item = &'t NewEvent>) -> Vec<i32> {
    lock::sorted(told.into_iter().map(|new| lock::tenant_slot(new.event.tenant)))
}

/// The slots of the lanes it adds to.
pub(crate) fn lane_slots<'t>(told: impl IntoIterator<Item = &'t NewEvent>) -> Vec<i32> {
    let deliveries = told.into_iter().flat_map(|new| &new.deliveries);
    lock::sorted(
        deliveries.filter_map(|new| {
            Some(i32::from(lock::lane_slot(new.subscription, new.lane.as_ref()?)))
        }),
    )
}

/// Takes the locks of what is told, and that of `changed` alone: its catalog is about to change.
pub(crate) async fn hold(
    client: &Object,
    changed: Option<TenantId>,
    told: &[NewEvent],
) -> Outcome<()> {
    hold_tenants(client, changed, told).await?;
    lock::hold(client, lock::LANES, &lane_slots(told)).await
}

/// The same without the lanes, for those who take other lanes first.
pub(crate) async fn hold_tenants(
    client: &Object,
    changed: Option<TenantId>,
    told: &[NewEvent],
) -> Outcome<()> {
    let shared = tenant_slots(told);
    match changed.map(lock::tenant_slot) {
        None => lock::share(client, lock::TENANTS, &shared).await?,
        Some(alone) => {
            let (below, above): (Vec<i32>, Vec<i32>) =
                shared.into_iter().filter(|slot| *slot != alone).partition(|slot| *slot < alone);
            lock::share(client, lock::TENANTS, &below).await?;
            lock::hold(client, lock::TENANTS, &[alone]).await?;
            lock::share(client, lock::TENANTS, &above).await?;
        }
    }
    Ok(())
}

/// Stores what is told, or refuses all of it. The caller holds the locks, and rolls back what is refused.
pub(crate) async fn tell<'t>(
    client: &Object,
    told: impl IntoIterator<Item = &'t NewEvent>,
) -> Outcome<()> {
    let told: Vec<&NewEvent> = told.into_iter().collect();
    if told.is_empty() {
        return Ok(());
    }
    match intake::store_within(client, &told).await? == told.len() {
        true => Ok(()),
        false => Err(Refusal::Stale.into()),
    }
}

/// Refuses what would not be true of something that has looked at, and done, so much.
pub(crate) fn check_end(ending: &Ending, seen: u64, done: u64) -> Result<(), Refusal> {
    if (ending.seen, ending.done) == (seen, done) { Ok(()) } else { Err(Refusal::Stale) }
}

/// Which records tell what was planned on another version, by their places. The caller holds the tenants' locks.
pub(crate) async fn stale(client: &Object, batch: &[Record]) -> Outcome<HashSet<usize>> {
    let tenants: HashSet<TenantId> =
        batch.iter().flat_map(|record| &record.told).map(|new| new.event.tenant).collect();
    let ids: Vec<Uid> = tenants.into_iter().map(Uid::from).collect();
    let mut versions: HashMap<TenantId, CatalogVersion> = HashMap::new();
    for row in &query(client, sql::TENANT_VERSIONS, &[&ids]).await? {
        let reader = Reader::new(row, "tenant", "id");
        versions.insert(reader.id("id")?, CatalogVersion(reader.number("version")?));
    }
    let is_stale = |new: &NewEvent| versions.get(&new.event.tenant) != Some(&new.catalog);
    let places = batch.iter().enumerate().filter(|(_, record)| record.told.iter().any(is_stale));
    Ok(places.map(|(place, _)| place).collect())
}
