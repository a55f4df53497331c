//! Puts the counts of unfinished deliveries right, every now and then.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use posthorn_domain::TenantId;
use posthorn_store::Store;
use tokio::time::Instant;
use tracing::warn;

use super::Admission;
use crate::error::chain;
use crate::metrics;

/// A count may take this share of the time at most: a backlog of many millions is counted less often.
const COUNT_SHARE: u32 = 50;

/// Runs until it is dropped.
pub(crate) async fn run(admission: Arc<Admission>, store: Arc<dyn Store>) {
    if admission.options.pending_quota == 0 {
        return;
    }
    loop {
        let began = Instant::now();
        if let Err(e) = refresh(&admission, &*store).await {
            ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "pending_by_tenant")
                .increment(1);
            warn!(error = %chain(&e), "unfinished deliveries could not be counted");
        }
        let pause = admission.options.pending_refresh.max(began.elapsed() * COUNT_SHARE);
        tokio::time::sleep(pause).await;
    }
}

/// What changed here while the store counted is kept on top of its count, some of which it may have
/// seen: until the next time, the count is wrong by that much at most.
async fn refresh(admission: &Admission, store: &dyn Store) -> posthorn_store::Result<()> {
    let load = |admission: &Admission| -> Vec<(TenantId, i64)> {
        let pending = admission.pending.read();
        pending.iter().map(|(tenant, count)| (*tenant, count.load(Ordering::Relaxed))).collect()
    };
    let before = load(admission);
    let counted = store.pending_by_tenant().await?;
    let count_of = |tenant: TenantId| {
        let found = counted.iter().find(|(counted, _)| *counted == tenant);
        found.map_or(0, |(_, count)| i64::try_from(*count).unwrap_or(i64::MAX))
    };
    let known: Vec<TenantId> = before.iter().map(|(tenant, _)| *tenant).collect();
    for (tenant, before) in before {
        admission.add_pending(tenant, count_of(tenant) - before);
    }
    for (tenant, _) in counted.iter().filter(|(tenant, _)| !known.contains(tenant)) {
        admission.add_pending(*tenant, count_of(*tenant));
    }
    Ok(())
}
