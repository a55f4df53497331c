//! Operational events, stored with what causes them.
//!
//! Whoever tells asks first whether the plans are of the present ([`is_stale`]), before anything is written, and
//! tells afterwards. Both are in one transaction of the only writer, so nothing comes in between.

use posthorn_store::{Accepted, Ending, NewEvent, Refusal};

use super::accept;
use crate::cache::Cache;
use crate::error::Failure;
use crate::writer::{Weight, Writer};

/// How much work it is.
pub(crate) fn weight(told: &[NewEvent]) -> Weight {
    let own = accept::weight(told);
    Weight { rows: own.rows + 1, bytes: own.bytes }
}

/// Whether one of the plans is not of the present.
pub(crate) fn is_stale(cache: &Cache, told: &[NewEvent]) -> bool {
    !told.iter().all(|new| {
        let tenant = cache.tenants.get(&new.event.tenant);
        tenant.is_some_and(|tenant| {
            let own = |id| cache.subscriptions.get(id).is_some_and(|to| to.tenant == tenant.no);
            tenant.version == new.catalog && new.deliveries.iter().all(|to| own(&to.subscription))
        })
    })
}

/// Refuses plans that are not of the present.
fn check(cache: &Cache, told: &[NewEvent]) -> Result<(), Failure> {
    if is_stale(cache, told) { Err(Refusal::Stale.into()) } else { Ok(()) }
}

/// Stores what is told; the plans are of the present.
pub(crate) fn tell(writer: &mut Writer, told: &[NewEvent]) -> Result<(), Failure> {
    if told.is_empty() {
        return Ok(());
    }
    let stored = accept::accept(writer, told)?;
    debug_assert!(stored.iter().all(|reply| matches!(reply, Accepted::Stored(_))), "{stored:?}");
    Ok(())
}

/// Refuses what would not be true of something that has looked at, and done, so much.
pub(crate) fn check_end(
    cache: &Cache,
    ending: Option<&Ending>,
    seen: u64,
    done: u64,
) -> Result<(), Failure> {
    let Some(ending) = ending else { return Ok(()) };
    if (ending.seen, ending.done) != (seen, done) {
        return Err(Refusal::Stale.into());
    }
    check(cache, &ending.told)
}

/// Tells of an end that was checked.
pub(crate) fn tell_end(writer: &mut Writer, ending: Option<&Ending>) -> Result<(), Failure> {
    ending.map_or(Ok(()), |ending| tell(writer, &ending.told))
}
