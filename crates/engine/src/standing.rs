//! How a subscription stands: what its owner knows, what waits, and how the last hour went.
//!
//! Everything that is read is bounded. What a bound cut off is said, not guessed.

use std::collections::BTreeMap;

use posthorn_domain::policy::{DeadHead, OrderScope, StatusSet};
use posthorn_domain::{
    Delivery, DeliveryId, Lane, LaneKey, Span, SubscriptionId, TenantId, Timestamp, Waiting,
};
use posthorn_store::{
    AttemptFilter, AttemptLine, DeliveryFilter, Listing, Order, Period, StateKind,
};
use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::scheduler::{Input, LiveState};
use crate::waiting::PATIENCE;

/// How far back the figures go.
const HOUR: Span = Span::from_secs(3_600);
/// Attempts that are looked at: so many pages of so many.
const PAGES: usize = 5;
const PAGE: usize = 200;
/// Unfinished deliveries that are looked at, oldest first.
const PENDING_MAX: usize = 500;
/// Lanes that are named.
const LANES_MAX: usize = 20;

/// How a subscription stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// What its owner knows; `None` when another node works on it.
    pub live: Option<LiveState>,
    /// Attempts at once that its policy allows.
    pub concurrency: Option<u32>,
    /// Attempts per second that its policy allows.
    pub rate: Option<f64>,
    /// What keeps its due deliveries from being attempted.
    pub waiting: Option<Waiting>,
    /// Lanes in which deliveries wait for another one, those that wait longest first; not all of them when
    /// there are many.
    pub blocked: Vec<BlockedLane>,
    /// How many such lanes were found.
    pub blocked_count: usize,
    /// Unfinished deliveries, when there are not too many to count.
    pub pending: Option<usize>,
    /// The earliest due time of an unfinished delivery.
    pub oldest_due_at: Option<Timestamp>,
    /// How the last hour went.
    pub last_hour: LastHour,
}

/// A lane in which deliveries wait for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedLane {
    /// Its key; `None` for the whole subscription.
    pub key: Option<LaneKey>,
    /// Since when the first of them waits.
    pub since: Timestamp,
    /// What they wait for, when it was among what was looked at.
    pub head: Option<DeliveryId>,
}

/// The attempts of the last hour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LastHour {
    /// How many were looked at, the newest.
    pub sampled: usize,
    /// Whether those were all.
    pub complete: bool,
    /// The part of them that succeeded, from 0 to 1.
    pub success_rate: Option<f64>,
    /// How long nineteen of twenty took at most.
    pub p95: Option<Span>,
}

impl LastHour {
    fn of(lines: &[AttemptLine], complete: bool, success: &StatusSet) -> Self {
        let good = |line: &&AttemptLine| {
            line.attempt.status.is_some_and(|status| success.contains(status))
        };
        let sampled = lines.len();
        let mut took: Vec<Span> = lines.iter().map(|line| line.attempt.took).collect();
        took.sort_unstable();
        // The nearest rank: the smallest value that nineteen of twenty do not exceed.
        let rank = (sampled * 19).div_ceil(20);
        let part = lines.iter().filter(good).count() as f64 / sampled as f64;
        Self {
            sampled,
            complete,
            success_rate: (sampled > 0).then_some(part),
            p95: rank.checked_sub(1).and_then(|index| took.get(index).copied()),
        }
    }
}

/// The lanes in which somebody is parked, with what is before them.
fn blocked(pending: &[Delivery], dead: &[Delivery]) -> Vec<BlockedLane> {
    let mut lanes: BTreeMap<&Lane, Timestamp> = BTreeMap::new();
    let parked = pending.iter().filter(|delivery| delivery.is_parked());
    for (lane, since) in parked.filter_map(|d| Some((d.lane.as_ref()?, d.created_at))) {
        let first = lanes.entry(lane).or_insert(since);
        *first = since.min(*first);
    }
    let heads = pending.iter().filter(|delivery| !delivery.is_parked()).chain(dead);
    let mut before: BTreeMap<&Lane, DeliveryId> = BTreeMap::new();
    for (lane, id) in heads.filter_map(|delivery| Some((delivery.lane.as_ref()?, delivery.id))) {
        before.entry(lane).or_insert(id);
    }
    let mut all: Vec<BlockedLane> = lanes
        .into_iter()
        .map(|(lane, since)| BlockedLane {
            key: match lane {
                Lane::Subscription => None,
                Lane::Key(key) => Some(key.clone()),
            },
            since,
            head: before.get(lane).copied(),
        })
        .collect();
    all.sort_by_key(|lane| lane.since);
    all
}

impl Engine {
    /// How a subscription stands: breaker, concurrency and rate from the node that works on it, what waits
    /// and how the last hour went from the store.
    pub async fn standing(&self, tenant: TenantId, id: SubscriptionId) -> Result<Standing> {
        let view = self.catalog().subscription(tenant, id)?;
        let policy = view.policy.as_ref().ok();
        let live = self.live_state(id).await?;
        let (pending, more) = self.oldest(tenant, id, StateKind::Pending).await?;
        let order = policy.map(|policy| &policy.order);
        let dead_block = order.is_some_and(|order| {
            order.scope != OrderScope::None && order.dead_head == DeadHead::Block
        });
        let dead = match dead_block {
            true => self.oldest(tenant, id, StateKind::Dead).await?.0,
            false => Vec::new(),
        };
        let mut blocked = blocked(&pending, &dead);
        let blocked_count = blocked.len();
        blocked.truncate(LANES_MAX);
        let now = self.now();
        let waits =
            |delivery: &&Delivery| !delivery.is_parked() && delivery.leased_until(now).is_none();
        let due = pending.iter().filter(waits).map(|delivery| delivery.due_at).min();
        // What is beyond the oldest of them, only the owner knows.
        let beyond = live.and_then(|live| live.due_at).filter(|_| more);
        let success = policy.map_or_else(StatusSet::two_hundreds, |policy| policy.success.clone());
        Ok(Standing {
            live,
            concurrency: policy.map(|policy| policy.limits.concurrency),
            rate: policy.and_then(|policy| policy.limits.rate),
            waiting: Waiting::of_status(&view.subscription.status)
                .or_else(|| live.and_then(|live| live.state.waiting)),
            blocked,
            blocked_count,
            pending: (!more).then_some(pending.len()),
            oldest_due_at: due.into_iter().chain(beyond).min(),
            last_hour: self.last_hour(tenant, id, &success).await?,
        })
    }

    async fn live_state(&self, id: SubscriptionId) -> Result<Option<LiveState>> {
        let (answer, state) = oneshot::channel();
        let ask = async {
            self.inner.scheduler.send(Input::Report(id, answer)).await.ok()?;
            state.await.ok()
        };
        let known = tokio::time::timeout(PATIENCE, ask).await.ok().flatten();
        known.ok_or(Error::Busy("the scheduler does not answer"))
    }

    /// The oldest deliveries of a subscription in a state, and whether there are more.
    async fn oldest(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        state: StateKind,
    ) -> Result<(Vec<Delivery>, bool)> {
        let filter = DeliveryFilter {
            subscription: Some(id),
            state: Some(state),
            ..DeliveryFilter::default()
        };
        let listing = Listing { order: Order::OldestFirst, after: None, limit: PENDING_MAX };
        let page = self.store().deliveries(tenant, filter, listing).await?;
        Ok((page.items, page.more))
    }

    async fn last_hour(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        success: &StatusSet,
    ) -> Result<LastHour> {
        let started = Period { from: Some(self.now().minus(HOUR)), until: None };
        let filter = AttemptFilter { subscription: Some(id), started, ..AttemptFilter::default() };
        let mut lines = Vec::new();
        let mut listing = Listing::newest(PAGE);
        for _ in 0..PAGES {
            let page = self.store().attempts_made(tenant, filter.clone(), listing).await?;
            lines.extend(page.items);
            listing.after = page.last;
            if !page.more {
                return Ok(LastHour::of(&lines, true, success));
            }
        }
        Ok(LastHour::of(&lines, false, success))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use posthorn_domain::{Attempt, DeliveryState, EventId, Timings};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn line(status: Option<u16>, took: u64) -> AttemptLine {
        let attempt = Attempt {
            delivery: DeliveryId::new(at(1), 1),
            number: 1,
            started_at: at(1),
            took: Span::from_millis(took),
            timings: Timings::default(),
            status,
            failure: None,
            detail: String::new(),
            response: Bytes::new(),
            late: false,
            manual: false,
            response_expunged_at: None,
            request: None,
        };
        AttemptLine {
            attempt,
            event: EventId::new(at(1), 1),
            subscription: SubscriptionId::new(at(1), 1),
        }
    }

    #[track_caller]
    fn check(lines: &[AttemptLine], rate: Option<f64>, p95: Option<u64>) {
        let hour = LastHour::of(lines, true, &StatusSet::two_hundreds());
        assert_eq!(hour.sampled, lines.len());
        assert_eq!(hour.success_rate, rate);
        assert_eq!(hour.p95.map(Span::as_millis), p95);
    }

    #[test]
    fn figures_of_an_hour() {
        check(&[], None, None);
        check(&[line(Some(204), 7)], Some(1.0), Some(7));
        check(&[line(Some(500), 7), line(None, 9)], Some(0.0), Some(9));
        let many: Vec<AttemptLine> = (1..=100)
            .rev()
            .map(|took| line(Some(if took % 4 == 0 { 503 } else { 200 }), took))
            .collect();
        check(&many, Some(0.75), Some(95));
    }

    fn delivery(n: u128, lane: Option<&str>, due_at: Timestamp, created: i64) -> Delivery {
        Delivery {
            id: DeliveryId::new(at(created), n),
            event: EventId::new(at(created), n),
            subscription: SubscriptionId::new(at(1), 1),
            tenant: TenantId::DEFAULT,
            lane: lane.map(|key| match LaneKey::new(key) {
                Ok(key) => Lane::Key(key),
                Err(_) => Lane::Subscription,
            }),
            seq: u64::try_from(n).expect("small"),
            state: DeliveryState::Pending,
            due_at,
            attempts: 0,
            budget_base: 0,
            budget: posthorn_domain::Budget::Fresh,
            budget_began: at(created),
            revival: 0,
            created_at: at(created),
            ended_at: None,
            last_outcome: None,
        }
    }

    #[test]
    fn a_lane_is_blocked_while_somebody_is_parked_in_it() {
        let head = delivery(1, Some("a"), at(50), 10);
        let pending = [
            delivery(4, Some("b"), Timestamp::MAX, 40),
            head.clone(),
            delivery(2, Some("a"), Timestamp::MAX, 20),
            delivery(3, Some("a"), Timestamp::MAX, 15),
            delivery(5, Some("free"), at(50), 1),
            delivery(6, None, at(50), 1),
            delivery(7, Some(""), Timestamp::MAX, 60),
        ];
        let dead = delivery(8, Some("b"), Timestamp::MAX, 5);
        let dead =
            Delivery { state: DeliveryState::Dead(posthorn_domain::DeadReason::Exhausted), ..dead };
        let key = |text| Some(LaneKey::new(text).expect("a key"));
        let expected = [
            BlockedLane { key: key("a"), since: at(15), head: Some(head.id) },
            BlockedLane { key: key("b"), since: at(40), head: Some(dead.id) },
            BlockedLane { key: None, since: at(60), head: None },
        ];
        assert_eq!(blocked(&pending, std::slice::from_ref(&dead)), expected);
        assert_eq!(blocked(&[], &[dead]), []);
    }
}
