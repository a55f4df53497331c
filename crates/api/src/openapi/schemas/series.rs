//! The schemas of figures of the past.

use posthorn_domain::{FailureClass, LATENCY_BOUNDS_MS, LATENCY_BUCKETS};
use serde_json::{Map, Value, json};

use super::super::reference;
use super::{count, object, text};

pub(super) fn all() -> Value {
    json!({
        "Series": object(&["scope", "step", "latency_bounds_ms", "points"], json!({
            "scope": {"enum": ["server", "realm", "tenant", "subscription", "topic"]},
            "id": text(),
            "step": {"enum": ["minute", "hour"]},
            "latency_bounds_ms": {
                "type": "array", "items": {"type": "integer"},
                "minItems": LATENCY_BOUNDS_MS.len(), "maxItems": LATENCY_BOUNDS_MS.len(),
                "description": "Upper ends of the buckets of `latency`, in milliseconds, included; the last bucket \
                                has none",
            },
            "points": {
                "type": "array", "items": reference("SeriesPoint"),
                "description": "One for each step, in time order; steps in which nothing happened have zeros",
            },
        })),
        "SeriesPoint": point(),
    })
}

fn point() -> Value {
    let classes: Map<String, Value> =
        FailureClass::ALL.iter().map(|class| (class.as_str().to_owned(), count())).collect();
    let names = FailureClass::ALL.map(FailureClass::as_str);
    let quantile = |share: &str| {
        json!({
            "type": "number", "minimum": 0,
            "description": format!(
                "{share} of the attempts took at most so long, read off `latency`; absent without attempts"
            ),
        })
    };
    object(
        &["at", "published", "attempts", "delivered", "dead", "failed", "latency"],
        json!({
            "at": {"type": "string", "format": "date-time", "description": "The beginning of the step"},
            "published": {
                "type": "integer", "minimum": 0,
                "description": "Events that were accepted; of a subscription, those that it matched",
            },
            "attempts": count(),
            "delivered": count(),
            "dead": count(),
            "failed": with_description(
                object(&names, Value::Object(classes)),
                "Attempts that did not succeed, by class: of the status, or `timeout`, `connection` or `other`",
            ),
            "latency": {
                "type": "array", "items": count(),
                "minItems": LATENCY_BUCKETS, "maxItems": LATENCY_BUCKETS,
                "description": "Attempts by how long they took, see `latency_bounds_ms`",
            },
            "p50_ms": quantile("Half"),
            "p95_ms": quantile("95 %"),
            "p99_ms": quantile("99 %"),
            "backlog": {
                "type": "integer", "minimum": 0,
                "description": "Unfinished deliveries, looked at once a minute; of an hour, the most that were seen. \
                                Absent if nobody has looked in this step",
            },
        }),
    )
}

fn with_description(mut schema: Value, description: &str) -> Value {
    schema["description"] = json!(description);
    schema
}
