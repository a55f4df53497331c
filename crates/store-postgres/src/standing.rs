//! Receivers that have only failed: written with the outcomes that say so, and read by new owners.

use std::collections::BTreeMap;

use posthorn_domain::{Fence, Shard, SubscriptionId};
use posthorn_store::{FailingSubscription, Record, Result, Standing, Streak};

use crate::codec::{Reader, Uid, due};
use crate::session::{Operation, Param, Session, query};
use crate::work::Fences;
use crate::{lease, sql};

const FAILING: Operation = Operation::read("failing", "read failing subscriptions");

pub(crate) async fn failing(
    session: &Session,
    shards: &[Shard],
) -> Result<Vec<FailingSubscription>> {
    let shards = lease::numbers(shards);
    session
        .run(FAILING, move |client| {
            let shards = shards.clone();
            Box::pin(async move {
                let rows = query(client, sql::FAILING, &[&shards]).await?;
                let mut found = Vec::with_capacity(rows.len());
                for row in &rows {
                    let reader = Reader::new(row, "failing", "subscription");
                    let streak = Streak {
                        since: reader.time("since")?,
                        exhausted: reader.get("exhausted")?,
                        told: reader.get("told")?,
                    };
                    found.push(FailingSubscription {
                        subscription: reader.id("subscription")?,
                        streak,
                    });
                }
                Ok(found)
            })
        })
        .await
}

/// What a batch of records changes, each subscription once: first all ends, then what goes on; both in
/// the order of subscriptions, so that two batches do not wait for each other.
#[derive(Default)]
pub(crate) struct Changes {
    ended: Vec<Uid>,
    ended_fences: Fences,
    begun: Vec<Uid>,
    begun_fences: Fences,
    since: Vec<i64>,
    exhausted: Vec<bool>,
    told: Vec<bool>,
}

impl Changes {
    pub(crate) fn of(batch: &[Record]) -> Self {
        // In the order of the batch; the last word about a subscription counts.
        let mut last: BTreeMap<SubscriptionId, (Fence, Standing, bool)> = BTreeMap::new();
        for record in batch {
            let Some(standing) = record.standing else { continue };
            let new = (record.fence, standing, standing.failing.is_none());
            last.entry(standing.subscription)
                .and_modify(|(fence, old, ends)| {
                    *fence = record.fence;
                    *ends |= standing.failing.is_none();
                    old.failing = match (old.failing, standing.failing) {
                        (Some(before), Some(after)) => Some(before.joined(&after)),
                        (_, after) => after,
                    };
                })
                .or_insert(new);
        }
        let mut changes = Self::default();
        for (fence, standing, ends) in last.into_values() {
            if ends {
                changes.ended.push(standing.subscription.into());
                changes.ended_fences.push(&fence);
            }
            if let Some(streak) = standing.failing {
                changes.begun.push(standing.subscription.into());
                changes.begun_fences.push(&fence);
                changes.since.push(due(streak.since));
                changes.exhausted.push(streak.exhausted);
                changes.told.push(streak.told);
            }
        }
        changes
    }

    pub(crate) fn ends(&self) -> Option<[Param<'_>; 4]> {
        let fence = &self.ended_fences;
        (!self.ended.is_empty()).then_some([&self.ended, &fence.shard, &fence.epoch, &fence.node])
    }

    pub(crate) fn begins(&self) -> Option<[Param<'_>; 7]> {
        let fence = &self.begun_fences;
        (!self.begun.is_empty()).then_some([
            &self.begun,
            &fence.shard,
            &fence.epoch,
            &fence.node,
            &self.since,
            &self.exhausted,
            &self.told,
        ])
    }
}
