//! Figures of the past, as they look on the wire.

use posthorn_domain::{
    FailureClass, LATENCY_BOUNDS_MS, LATENCY_BUCKETS, RollupCounts, RollupScope, RollupStep,
    Timestamp,
};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

#[derive(Serialize)]
pub(crate) struct SeriesView {
    scope: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    step: &'static str,
    latency_bounds_ms: [u64; LATENCY_BOUNDS_MS.len()],
    points: Vec<PointView>,
}

#[derive(Serialize)]
struct PointView {
    at: Timestamp,
    published: u64,
    attempts: u64,
    delivered: u64,
    dead: u64,
    failed: Failed,
    latency: [u64; LATENCY_BUCKETS],
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p95_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backlog: Option<u64>,
}

/// By class.
struct Failed([u64; FailureClass::ALL.len()]);

impl Serialize for Failed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (class, count) in FailureClass::ALL.iter().zip(&self.0) {
            map.serialize_entry(class.as_str(), count)?;
        }
        map.end()
    }
}

impl SeriesView {
    pub(crate) fn new(
        scope: &RollupScope,
        step: RollupStep,
        points: &[(Timestamp, RollupCounts)],
    ) -> Self {
        let (name, id) = match scope {
            RollupScope::Server => ("server", None),
            RollupScope::Realm(name) => ("realm", Some(name.to_string())),
            RollupScope::Tenant(id) => ("tenant", Some(id.to_string())),
            RollupScope::Subscription(id) => ("subscription", Some(id.to_string())),
            RollupScope::Topic(_, name) => ("topic", Some(name.to_string())),
        };
        Self {
            scope: name,
            id,
            step: step.as_str(),
            latency_bounds_ms: LATENCY_BOUNDS_MS,
            points: points.iter().map(|(at, counts)| PointView::new(*at, counts)).collect(),
        }
    }
}

impl PointView {
    fn new(at: Timestamp, counts: &RollupCounts) -> Self {
        // Buckets are not as exact as a number with many digits looks.
        let quantile = |share| counts.quantile_ms(share).map(|ms| (ms * 10.0).round() / 10.0);
        Self {
            at,
            published: counts.published,
            attempts: counts.attempts(),
            delivered: counts.delivered,
            dead: counts.dead,
            failed: Failed(counts.failed),
            latency: counts.took,
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            backlog: counts.backlog,
        }
    }
}
