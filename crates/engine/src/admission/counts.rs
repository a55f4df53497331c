//! Puts the counts of unfinished deliveries right, every now and then.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use posthorn_domain::TenantId;
use posthorn_store::Store;
use tokio::time::Instant;
use tracing::warn;

use super::{Admission, Gauge};
use crate::catalog::Map;
use crate::error::chain;
use crate::metrics;

/// A count may take this share of the time at most: a backlog of many millions is counted less often.
const COUNT_SHARE: u32 = 50;
/// One that failed is repeated sooner, since without it the quota is not enforced for long.
const RETRY_SHARE: u32 = 5;

/// Runs until it is dropped.
pub(crate) async fn run(admission: Arc<Admission>, store: Arc<dyn Store>) {
    if admission.options.pending_per_tenant == 0 {
        return;
    }
    loop {
        let began = Instant::now();
        let counted = refresh(&admission, &*store).await;
        if let Err(e) = &counted {
            ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "pending_by_tenant")
                .increment(1);
            warn!(error = %chain(e), "unfinished deliveries could not be counted");
        }
        admission.counted(counted.is_ok());
        // A tenant that was overloaded and went away says nothing itself.
        admission.tell_overload();
        let share = if counted.is_ok() { COUNT_SHARE } else { RETRY_SHARE };
        let pause = admission.options.pending_count_interval.max(began.elapsed() * share);
        tokio::time::sleep(pause).await;
    }
}

/// What changed here while the store counted is kept on top of its count, some of which it may have
/// seen: until the next time, the count is wrong by that much at most.
async fn refresh(admission: &Admission, store: &dyn Store) -> posthorn_store::Result<()> {
    let load = |admission: &Admission| -> Vec<(TenantId, i64)> {
        let gauges = admission.gauges.read();
        let count = |gauge: &Gauge| gauge.pending.load(Ordering::Relaxed);
        gauges.iter().map(|(tenant, gauge)| (*tenant, count(gauge))).collect()
    };
    let before = load(admission);
    let mut counted: Map<TenantId, u64> = store.pending_by_tenant().await?.into_iter().collect();
    let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    for (tenant, before) in before {
        let count = counted.remove(&tenant).map_or(0, whole);
        admission.add_pending(tenant, count - before);
    }
    for (tenant, count) in counted {
        admission.add_pending(tenant, whole(count));
    }
    Ok(())
}
