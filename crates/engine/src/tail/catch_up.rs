//! What a listener missed, read from the store for it alone.
//!
//! A listener may stand far back, and what lies between may all be of others. So whoever catches up waits for its
//! turn: one page of a tenant at a time, a few of the node; and after each page there is a pause of at least as long as
//! the page took, so that the store is busy with it for half of the time at most.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::{TenantId, Timestamp};
use posthorn_store::{AttemptMade, EventLine, FollowAsk, Followed, Result, Store};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::{PAGE, TailCursor};

/// Pages that are read at the same time.
const AT_ONCE: usize = 4;
/// The pause after a page in which there was something, and after one without, at least.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_IN_VAIN: Duration = Duration::from_millis(20);

/// Whose turn it is.
pub(crate) struct CatchUps {
    places: Arc<Semaphore>,
    tenants: Mutex<HashMap<TenantId, Arc<Turn<()>>>>,
}

impl Default for CatchUps {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(AT_ONCE)), tenants: Mutex::default() }
    }
}

/// The right to read a page.
struct Allowed {
    _tenant: OwnedMutexGuard<()>,
    _place: Option<OwnedSemaphorePermit>,
}

impl CatchUps {
    async fn allowed(&self, tenant: TenantId) -> Allowed {
        let turn = {
            let mut tenants = self.tenants.lock();
            // There are at most as many as there are listeners.
            tenants.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(tenants.entry(tenant).or_default())
        };
        let tenant = turn.lock_owned().await;
        // It is never closed.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        Allowed { _tenant: tenant, _place: place }
    }

    /// The next page after `cursor`: events, and attempts where they are asked for.
    pub(super) async fn page(
        self: Arc<Self>,
        store: Arc<dyn Store>,
        tenant: TenantId,
        cursor: TailCursor,
        want: Want,
    ) -> Result<Page> {
        let _allowed = self.allowed(tenant).await;
        let began = Instant::now();
        let ask = |after| FollowAsk {
            tenants: vec![tenant],
            after: Some(after),
            since: want.since,
            limit: PAGE,
        };
        // Attempts are read first: so the events of all of them are among what is read of those.
        let attempts = match want.attempts {
            true => Some(store.attempts_after(ask(cursor.attempts)).await?),
            false => None,
        };
        let events = store.events_after(ask(cursor.events)).await?;
        let some = attempts.as_ref().is_some_and(|page| !page.items.is_empty());
        let least = if some || !events.items.is_empty() { PAUSE } else { PAUSE_IN_VAIN };
        tokio::time::sleep(began.elapsed().max(least)).await;
        Ok(Page { events, attempts })
    }
}

/// What a page is to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) attempts: bool,
    /// Nothing older.
    pub(super) since: Option<Timestamp>,
}

pub(super) struct Page {
    pub(super) events: Followed<EventLine>,
    pub(super) attempts: Option<Followed<AttemptMade>>,
}

#[cfg(test)]
mod tests {
    use posthorn_conformance::model::ModelStore;
    use posthorn_store::LogPlace;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pages_in_vain_are_far_apart() {
        let clock = posthorn_testkit::clock::VirtualClock::start();
        let store: Arc<dyn Store> = Arc::new(ModelStore::new(clock));
        let gate = Arc::new(CatchUps::default());
        let cursor = TailCursor { events: LogPlace::default(), attempts: LogPlace::default() };
        let began = Instant::now();
        let mut pages = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let want = Want { attempts: true, since: None };
            pages.spawn(Arc::clone(&gate).page(
                Arc::clone(&store),
                TenantId::DEFAULT,
                cursor,
                want,
            ));
        }
        for page in pages.join_all().await {
            assert!(page.expect("a page").events.items.is_empty());
        }
        assert!(began.elapsed() >= 10 * PAUSE_IN_VAIN, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_has_one_turn_and_the_node_a_few() {
        let gate = CatchUps::default();
        let tenant = |number| TenantId::new(Timestamp::from_millis(0), number);
        let soon = async |tenant| {
            tokio::time::timeout(Duration::from_secs(1), gate.allowed(tenant)).await.ok()
        };
        let first = soon(tenant(1)).await.expect("a turn");
        assert!(soon(tenant(1)).await.is_none(), "it has one already");
        let others = [soon(tenant(2)).await, soon(tenant(3)).await, soon(tenant(4)).await];
        assert!(others.iter().all(Option::is_some));
        assert!(soon(tenant(5)).await.is_none(), "all places are taken");
        drop(first);
        assert!(soon(tenant(5)).await.is_some());
        drop(others);
        drop(soon(tenant(1)).await.expect("a turn"));
        assert_eq!(gate.tenants.lock().len(), 1, "those who are gone are forgotten");
    }
}
