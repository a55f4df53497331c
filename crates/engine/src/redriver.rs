//! Puts dead letters back: one go of a redrive, by whoever began it or does the chores.
//!
//! Several may advance the same redrive: the store moves each dead letter once. What it must not know:
//! which redrives there should be, and who is on duty.

use std::sync::Arc;

use posthorn_domain::{CatalogVersion, Clock, Redrive, RedriveState, Shard, SubscriptionId};
use posthorn_store::{DueSubscription, Result, Store};
use tokio::sync::mpsc;
use tracing::warn;

use crate::catalog::Catalog;
use crate::error::chain;
use crate::scheduler::{self, Input};
use crate::wakes::Wakes;

/// Dead letters put back in one bite.
pub(crate) const BITE: usize = 500;

/// What a go needs.
#[derive(Clone)]
pub(crate) struct Redriver {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) scheduler: mpsc::Sender<Input>,
    pub(crate) wakes: Wakes,
}

impl Redriver {
    /// Puts back as many as the redrive may in a second, and at most so many.
    pub(crate) async fn advance(&self, redrive: &Redrive, most: usize) -> Result<()> {
        let mut left = (redrive.per_second as usize).min(most);
        while left > 0 {
            let bite = left.min(BITE);
            let moved = self.store.advance_redrive(redrive.id, bite, self.clock.now()).await?;
            self.tell(moved.recall, &moved.subscriptions).await;
            left -= bite;
            if moved.state != RedriveState::Running {
                break;
            }
        }
        Ok(())
    }

    /// Tells nodes what is out of date, and what is due.
    pub(crate) async fn tell(&self, recall: Option<CatalogVersion>, due: &[SubscriptionId]) {
        if recall.is_some() {
            self.recall().await;
        }
        self.announce(due).await;
    }

    /// Has the nodes hear of those that have to wait now. Nobody waits for them: they hear of it with
    /// their next sign of life at the latest.
    async fn recall(&self) {
        match self.store.catalog_since(self.catalog.version()).await {
            Ok(delta) => scheduler::tell(&self.scheduler, self.catalog.apply(delta)).await,
            Err(e) => warn!(error = %chain(&e), "the catalog could not be read"),
        }
        if let Err(e) = self.store.notify(&[]).await {
            warn!(error = %chain(&e), "other nodes could not be notified of a redrive; they will \
                                       see it when they poll");
        }
    }

    async fn announce(&self, subscriptions: &[SubscriptionId]) {
        let due_at = self.clock.now();
        let due = subscriptions
            .iter()
            .map(|subscription| {
                self.wakes.add(Shard::of(*subscription));
                DueSubscription { subscription: *subscription, due_at }
            })
            .collect();
        drop(self.scheduler.send(Input::Due(due)).await);
    }
}
