//! Puts dead letters back: one go of a redrive, by whoever began it or does the chores.
//!
//! Several may advance the same redrive: the store moves each dead letter once. What it must not know:
//! which redrives there should be, and who is on duty.

use std::sync::Arc;

use posthorn_domain::{
    CatalogVersion, Clock, Redrive, RedriveState, Shard, SubscriptionId, Timestamp,
};
use posthorn_store::{Advanced, DueSubscription, Ending, Error, Refusal, Result, Store};
use tokio::sync::mpsc;
use tracing::warn;

use crate::catalog::Catalog;
use crate::error::chain;
use crate::scheduler::{self, Input};
use crate::told::{Fact, REPLANS_MAX, Teller};
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
    pub(crate) teller: Arc<Teller>,
}

impl Redriver {
    /// Puts back as many as the redrive may in a second, and at most so many.
    pub(crate) async fn advance(&self, redrive: &Redrive, most: usize) -> Result<()> {
        let mut left = (redrive.per_second as usize).min(most);
        let tells = self.teller.is_wanted(redrive.tenant);
        while left > 0 {
            let bite = left.min(BITE);
            let moved = match tells {
                true => self.advance_telling(redrive, bite).await?,
                false => {
                    self.store.advance_redrive(redrive.id, bite, self.clock.now(), None).await?
                }
            };
            self.tell(moved.recall, &moved.subscriptions).await;
            left -= bite;
            if moved.state != RedriveState::Running {
                break;
            }
            // Nothing is left but its end, which costs no pace.
            if tells && moved.moved < bite {
                left = left.max(1);
            }
        }
        Ok(())
    }

    /// One bite; should there be nothing left, the redrive ends, and that is told.
    async fn advance_telling(&self, redrive: &Redrive, bite: usize) -> Result<Advanced> {
        for _ in 0..REPLANS_MAX {
            let at = self.clock.now();
            let found = self.store.redrive(redrive.tenant, redrive.id).await?;
            let found = found.ok_or(Refusal::NotFound)?;
            let ran = found.finished_at.is_none();
            let ended = Redrive { state: RedriveState::Done, finished_at: Some(at), ..found };
            let ending = self.ending(&ended, at);
            let advanced = self.store.advance_redrive(redrive.id, bite, at, ending.clone()).await;
            match advanced {
                Err(Error::Refused(Refusal::Stale)) => self.teller.refresh().await?,
                Ok(advanced) => {
                    // Somebody else may have ended it first.
                    let ended =
                        ran && advanced.state == RedriveState::Done && ending.is_some() && {
                            let now = self.store.redrive(redrive.tenant, redrive.id).await?;
                            now.is_some_and(|now| now.finished_at == Some(at))
                        };
                    if ended {
                        let told = ending.map_or(Vec::new(), |ending| ending.told);
                        self.teller.announce(&told).await;
                    }
                    return Ok(advanced);
                }
                Err(e) => return Err(e),
            }
        }
        Err(Refusal::Stale.into())
    }

    /// What is told of the end of a redrive, when anybody wants to know.
    pub(crate) fn ending(&self, ended: &Redrive, at: Timestamp) -> Option<Ending> {
        if !self.teller.is_wanted(ended.tenant) {
            return None;
        }
        let told = self.teller.plan(&Fact::redrive(ended, at));
        (!told.is_empty()).then_some(Ending { told, seen: ended.total, done: ended.moved })
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
