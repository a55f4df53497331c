//! The pulse of the server: one task looks, for all who look at the overview.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::CatalogVersion;
use posthorn_engine::Engine;
use posthorn_store::Counts;
use tokio::sync::watch;
use tokio::time::sleep;

use super::mark::print_of;

/// How often the pulse of the server is taken.
const PULSE: Duration = Duration::from_secs(1);

/// Whether anything happens on the server. Taken by one task, while somebody wants to know.
#[derive(Default)]
pub(super) struct Pulse {
    /// The vitals, in short.
    beats: watch::Sender<u64>,
    is_taken: Mutex<bool>,
}

/// What a beat is made of.
#[derive(Debug, PartialEq)]
pub(super) struct Vitals {
    commits: u64,
    catalog: CatalogVersion,
    /// What other nodes commit is seen here.
    counts: Option<Counts>,
    disk_full: bool,
    overloaded: bool,
    lost_nodes: usize,
}

impl Vitals {
    pub(super) async fn of(engine: &Engine) -> Self {
        Self {
            commits: engine.commits(),
            catalog: engine.catalog().version(),
            counts: engine.store().counts(None).await.ok(),
            disk_full: engine.admission().is_disk_full(),
            overloaded: engine.admission().is_overloaded(),
            lost_nodes: engine.lost_nodes().len(),
        }
    }
}

impl Pulse {
    pub(super) fn follow(self: &Arc<Self>, engine: &Engine) -> watch::Receiver<u64> {
        let beats = self.beats.subscribe();
        let mut is_taken = self.is_taken.lock();
        if !*is_taken {
            *is_taken = true;
            tokio::spawn(Arc::clone(self).take(engine.clone()));
        }
        beats
    }

    async fn take(self: Arc<Self>, engine: Engine) {
        // Nobody has missed anything yet.
        let first = print_of(&Vitals::of(&engine).await);
        self.beats.send_if_modified(|beat| {
            *beat = first;
            false
        });
        loop {
            sleep(PULSE).await;
            {
                let mut is_taken = self.is_taken.lock();
                if self.beats.receiver_count() == 0 {
                    *is_taken = false;
                    return;
                }
            }
            let now = print_of(&Vitals::of(&engine).await);
            self.beats.send_if_modified(|beat| std::mem::replace(beat, now) != now);
        }
    }
}
