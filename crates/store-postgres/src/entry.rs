//! Deliveries whose time has come enter their lanes.
//!
//! A look without locks tells which lanes are concerned. Then the lanes are held, and the rows, in the order of
//! `lock`; who was cancelled or forgotten meanwhile, or entered by another node, is not among them.

use posthorn_domain::{SubscriptionId, Timestamp};
use posthorn_store::{Entered, Result};

use crate::codec::{Uid, due, limit};
use crate::session::{Operation, Param, Session, begin, commit, execute, query};
use crate::{lock, sql};

const ENTER: Operation = Operation::write("enter_lanes", "have deliveries enter their lanes");

pub(crate) async fn enter(session: &Session, bite: usize, at: Timestamp) -> Result<Entered> {
    session
        .run(ENTER, move |client| {
            Box::pin(async move {
                let params: [Param<'_>; 2] = [&at.as_millis(), &limit(bite)];
                // Nearly always there is nobody.
                if query(client, sql::ENTER_FIND, &params).await?.is_empty() {
                    return Ok(Entered::default());
                }
                begin(client).await?;
                let rows = query(client, sql::ENTER_FIND, &params).await?;
                let mut all: Vec<Uid> = Vec::with_capacity(rows.len());
                let mut slots: Vec<i16> = Vec::with_capacity(rows.len());
                for row in &rows {
                    all.push(row.try_get("delivery")?);
                    slots.push(row.try_get("lane_slot")?);
                }
                let locks = lock::sorted(slots.iter().map(|slot| i32::from(*slot)));
                lock::hold(client, lock::LANES, &locks).await?;
                let mut sorted = all.clone();
                sorted.sort_unstable();
                let mut held = std::collections::HashSet::with_capacity(sorted.len());
                for row in &query(client, sql::ENTER_HOLD, &[&sorted]).await? {
                    held.insert(row.try_get::<_, Uid>(0)?);
                }
                let (mut ids, mut whose, mut lanes) = (vec![], vec![], vec![]);
                let (mut own, mut times) = (vec![], vec![]);
                for ((row, id), slot) in rows.iter().zip(&all).zip(slots) {
                    if held.contains(id) {
                        ids.push(*id);
                        whose.push(row.try_get::<_, Uid>("subscription")?);
                        lanes.push(row.try_get::<_, &str>("lane")?);
                        own.push(slot);
                        times.push(row.try_get::<_, i64>("at")?);
                    }
                }
                let at = due(at);
                let params: [Param<'_>; 7] = [&all, &ids, &whose, &own, &lanes, &at, &times];
                execute(client, sql::ENTER, &params).await?;
                commit(client).await?;
                let mut subscriptions: Vec<SubscriptionId> =
                    whose.into_iter().map(SubscriptionId::from).collect();
                subscriptions.sort_unstable();
                subscriptions.dedup();
                Ok(Entered { subscriptions, more: all.len() == bite })
            })
        })
        .await
}
