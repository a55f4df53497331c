//! The schemas of what one looks at when a delivery does not arrive: timelines, requests, the health of a subscription.

use posthorn_domain::WaitReason;
use serde_json::{Value, json};

use super::super::reference;
use super::{count, id, object, text, time, with};

pub(super) fn all() -> Value {
    json!({
        "Explanation": object(&["code", "meaning", "remedy"], json!({
            "code": text(),
            "meaning": {"type": "string", "description": "What happened, as `posthorn explain` says it"},
            "remedy": {"type": "string", "description": "What to do"},
        })),
        "Timeline": object(&["delivery", "as_of", "steps"], json!({
            "delivery": id("dlv"), "as_of": time(),
            "steps": {
                "type": "array", "items": reference("TimelineStep"),
                "description": "In time order",
            },
        })),
        "TimelineStep": step(),
        "RequestPreview": {
            "oneOf": [
                reference("SentRequestOf"), reference("PreviewedRequest"), reference("PreviewedFailure"),
            ],
        },
        "SentRequestOf": object(
            &["as_of", "as_sent", "attempt", "method", "headers", "body_bytes"],
            with(&sent(), json!({
                "as_of": {"type": "string", "format": "date-time", "description": "When the attempt began"},
                "attempt": {"type": "integer", "minimum": 1, "description": "The number of the attempt that sent it"},
            })),
        ),
        "SentRequest": object(&["as_sent", "method", "headers", "body_bytes"], sent()),
        "PreviewedRequest": object(&["as_of", "as_sent", "method", "headers", "body_bytes"], json!({
            "as_of": as_of(), "as_sent": rebuilt(),
            "method": text(),
            "url": {
                "type": "string",
                "description": "Of another push service, only the origin; absent for agents of this server",
            },
            "headers": headers(),
            "body": {"type": "string", "description": "If it is text in UTF-8"},
            "body_base64": {"type": "string", "description": "If it is not"},
            "body_bytes": count(),
        })),
        "PreviewedFailure": object(&["as_of", "as_sent", "failure", "explain"], json!({
            "as_of": as_of(), "as_sent": rebuilt(),
            "failure": {
                "type": "string",
                "description": "The request cannot be built; an attempt would fail with this code",
            },
            "detail": text(), "explain": reference("Explanation"),
        })),
        "SubscriptionHealth": health(),
    })
}

fn headers() -> Value {
    json!({
        "type": "array",
        "items": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
        "description": "Name and value, by name. What the policy's authentication adds has the value `…`",
    })
}

/// What is kept of a request that was sent.
fn sent() -> Value {
    json!({
        "as_sent": {"const": true, "description": "Written down when the attempt was made"},
        "method": text(),
        "url": {"type": "string", "description": "Of another push service, only the origin"},
        "headers": headers(),
        "body_bytes": count(),
        "cut": {"type": "boolean", "description": "true: it was longer than 4 KiB, and is not shown whole"},
    })
}

fn rebuilt() -> Value {
    json!({"const": false, "description": "Built for this answer; it was not sent"})
}

fn as_of() -> Value {
    json!({"const": "now", "description": "Built from the present policy, secrets and time"})
}

fn step() -> Value {
    let attempt = "Of an attempt, as in the delivery";
    object(
        &["at", "step"],
        json!({
            "at": time(),
            "until": {
                "type": "string", "format": "date-time",
                "description": "When the step ended, or ends at the earliest; absent if unknown",
            },
            "step": {
                "enum": [
                    "accepted", "matched", "made", "waited", "retried", "attempt", "under_way", "ended",
                    "expunged",
                ],
            },
            "group": {
                "type": "integer", "minimum": 0,
                "description": "Of `matched`: the index in filter.any_of of the group that matches now",
            },
            "reason": {
                "type": "string",
                "description": format!(
                    "Of `waited`: {}. Of `ended`: as in the delivery",
                    WaitReason::ALL.map(WaitReason::as_str).join(", ")
                ),
            },
            "state": {"enum": ["delivered", "dead", "cancelled"], "description": "Of `ended`"},
            "detail": text(),
            "number": {"type": "integer", "minimum": 0, "description": attempt},
            "started_at": {"type": "string", "format": "date-time", "description": attempt},
            "took_ms": {"type": "integer", "minimum": 0, "description": attempt},
            "timings_ms": object(&[], json!({
                "dns": count(), "connect": count(), "tls": count(), "first_byte": count(),
            })),
            "status": {"type": "integer", "description": attempt},
            "failure": {"type": "string", "description": attempt},
            "response": {"type": "string", "description": attempt},
            "response_expunged_at": {"type": "string", "format": "date-time", "description": attempt},
            "late": {"type": "boolean", "description": attempt},
            "trigger": {"enum": ["scheduled", "manual"], "description": attempt},
            "request": reference("SentRequest"),
            "explain": reference("Explanation"),
        }),
    )
}

fn health() -> Value {
    let owned = "Only from the node that works on the subscription";
    object(
        &["owner", "concurrency", "rate", "blocked_lanes", "blocked_lanes_count", "last_hour"],
        json!({
            "owner": {
                "type": "boolean",
                "description": "Whether the asked node works on the subscription; if not, only that node knows \
                                breaker, effective concurrency, rate and failing_since",
            },
            "breaker": object(&["state"], json!({
                "state": {"enum": ["closed", "open", "probing"]}, "until": time(),
            })),
            "concurrency": object(&[], json!({
                "limit": {"type": "integer", "minimum": 0, "description": "policy.limits.concurrency"},
                "effective": {"type": "integer", "minimum": 0, "description": owned},
                "in_flight": {"type": "integer", "minimum": 0, "description": owned},
            })),
            "rate": object(&[], json!({
                "limit": {"type": "number", "description": "policy.limits.rate"},
                "next_slot": {
                    "type": "string", "format": "date-time",
                    "description": "When the rate allows the next attempt; absent if it allows one now",
                },
            })),
            "waiting": reference("Waiting"),
            "failing_since": time(),
            "blocked_lanes": {
                "type": "array", "maxItems": 20,
                "description": "Lanes in which deliveries wait behind another one, longest first",
                "items": object(&["lane", "since"], json!({
                    "lane": {"type": "string", "description": "Empty for the whole subscription"},
                    "since": time(), "delivery": id("dlv"),
                })),
            },
            "blocked_lanes_count": count(),
            "pending": {
                "type": "integer", "minimum": 0,
                "description": "Unfinished deliveries; absent if there are more than 500",
            },
            "oldest_due_at": time(),
            "last_hour": object(&["sampled"], json!({
                "attempts": {
                    "type": "integer", "minimum": 0,
                    "description": "Attempts in the last hour; absent if there were more than `sampled`",
                },
                "sampled": {
                    "type": "integer", "minimum": 0,
                    "description": "The newest attempts that the figures were computed from; at most 1,000",
                },
                "success_rate": {"type": "number", "minimum": 0, "maximum": 1},
                "p95_ms": count(),
            })),
        }),
    )
}
