//! How a subscription stands, as it looks on the wire.

use posthorn_domain::{DeliveryId, Span, Timestamp, Waiting};
use posthorn_engine::{BlockedLane, BreakerState, LastHour, Standing};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct HealthView<'a> {
    owner: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker: Option<BreakerView>,
    concurrency: ConcurrencyView,
    rate: RateView,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<Waiting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failing_since: Option<Timestamp>,
    blocked_lanes: Vec<LaneView<'a>>,
    blocked_lanes_count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_due_at: Option<Timestamp>,
    last_hour: HourView,
}

#[derive(Serialize)]
struct BreakerView {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
}

#[derive(Serialize)]
struct ConcurrencyView {
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effective: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<u32>,
}

#[derive(Serialize)]
struct RateView {
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_slot: Option<Timestamp>,
}

#[derive(Serialize)]
struct LaneView<'a> {
    /// Empty for the lane of the whole subscription.
    lane: &'a str,
    since: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<DeliveryId>,
}

#[derive(Serialize)]
struct HourView {
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<usize>,
    sampled: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    success_rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p95_ms: Option<u64>,
}

impl From<BreakerState> for BreakerView {
    fn from(state: BreakerState) -> Self {
        let (state, until) = match state {
            BreakerState::Closed => ("closed", None),
            BreakerState::Open(until) => ("open", Some(until)),
            BreakerState::Probing => ("probing", None),
        };
        Self { state, until }
    }
}

impl<'a> From<&'a BlockedLane> for LaneView<'a> {
    fn from(lane: &'a BlockedLane) -> Self {
        let key = lane.key.as_ref().map_or("", |key| key.as_str());
        Self { lane: key, since: lane.since, delivery: lane.head }
    }
}

impl From<LastHour> for HourView {
    fn from(hour: LastHour) -> Self {
        Self {
            attempts: hour.complete.then_some(hour.sampled),
            sampled: hour.sampled,
            success_rate: hour.success_rate,
            p95_ms: hour.p95.map(Span::as_millis),
        }
    }
}

impl<'a> From<&'a Standing> for HealthView<'a> {
    fn from(standing: &'a Standing) -> Self {
        let live = standing.live;
        Self {
            owner: live.is_some(),
            breaker: live.map(|live| live.breaker.into()),
            concurrency: ConcurrencyView {
                limit: standing.concurrency,
                effective: live.map(|live| live.at_once),
                in_flight: live.map(|live| live.state.in_flight),
            },
            rate: RateView {
                limit: standing.rate,
                next_slot: live.and_then(|live| live.next_slot),
            },
            waiting: standing.waiting,
            failing_since: live.and_then(|live| live.state.failing_since),
            blocked_lanes: standing.blocked.iter().map(LaneView::from).collect(),
            blocked_lanes_count: standing.blocked_count,
            pending: standing.pending,
            oldest_due_at: standing.oldest_due_at,
            last_hour: standing.last_hour.into(),
        }
    }
}
