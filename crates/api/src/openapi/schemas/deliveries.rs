//! Deliveries, attempts, redrives and jobs.

use posthorn_domain::WaitReason;
use serde_json::{Value, json};

use super::{count, flag, id, name, object, reference, text, texts, time, with};

pub(super) fn all() -> Value {
    let every_reason = json!({"enum": [
        "exhausted", "permanent", "gate", "expired", "unsubscribed", "operator", "dropped",
    ]});
    let delivery = json!({
        "id": id("dlv"), "event": id("evt"), "subscription": id("sub"),
        "state": {"enum": ["pending", "in_flight", "delivered", "dead", "cancelled"]},
        "reason": every_reason.clone(),
        "due_at": time(), "waiting": reference("Waiting"), "attempts_made": count(), "lane": text(), "created_at": time(),
        "ended_at": time(),
        "last_status": {
            "type": "integer", "description": "The HTTP status of the last attempt, if it was answered",
        },
        "last_failure": {
            "type": "string", "description": "The failure code of the last attempt, if it was not answered",
        },
    });
    let required = ["id", "event", "subscription", "state", "attempts_made", "created_at"];
    let whole = with(
        &delivery,
        json!({
            "attempts": {"type": "array", "items": reference("Attempt")},
        }),
    );
    let attempt_required = ["number", "started_at", "took_ms", "late", "trigger"];
    let attempt = json!({
        "number": count(), "started_at": time(), "took_ms": count(),
        "timings_ms": object(&[], json!({
            "dns": count(), "connect": count(), "tls": count(), "first_byte": count(),
        })),
        "status": {"type": "integer"}, "failure": text(), "detail": text(),
        "response": text(), "late": flag(),
        "response_expunged_at": {
            "type": "string", "format": "date-time",
            "description": "When `response` and `detail` were removed for good",
        },
        "trigger": {
            "enum": ["scheduled", "manual"],
            "description": "manual: the first attempt after somebody asked for it, by hand or by a job",
        },
    });
    let reason = json!({"enum": ["exhausted", "permanent", "gate", "expired"]});
    let filter = json!({
        "subscription": id("sub"), "reason": reason, "since": time(), "until": time(),
    });
    let selection = json!({
        "from": time(), "until": time(), "attributes": texts(),
        "topics": {"type": "array", "items": name(128), "maxItems": 20},
        "types": {"type": "array", "items": name(128), "maxItems": 20},
    });
    let by_name = json!({"type": "string", "description": "The id (sub_…) or the name of the \
                                                           subscription"});
    json!({
        "Delivery": object(&required, delivery),
        "DeliveryWithAttempts": object(&required, whole),
        "Waiting": object(&["reason"], json!({
            "reason": {
                "enum": WaitReason::ALL.map(WaitReason::as_str),
                "description": "Why it has not been attempted yet",
            },
            "until": {
                "type": "string", "format": "date-time",
                "description": "Earliest time of the next attempt; absent if unknown",
            },
        })),
        "Attempt": object(&attempt_required, attempt.clone()),
        "AttemptMade": object(
            &[&["delivery", "event", "subscription"], &attempt_required[..]].concat(),
            with(&attempt, json!({
                "delivery": id("dlv"), "event": id("evt"), "subscription": id("sub"),
            })),
        ),
        "ToldAttempt": object(
            &[&["delivery", "event", "subscription", "state"], &attempt_required[..]].concat(),
            with(&attempt, json!({
                "delivery": id("dlv"), "event": id("evt"), "subscription": id("sub"),
                "state": {
                    "enum": ["pending", "in_flight", "delivered", "dead", "cancelled"],
                    "description": "What the attempt led to: the state of its delivery when it was told",
                },
                "reason": {"type": "string", "description": "Why the delivery ended, as in the delivery"},
            })),
        ),
        "SkippedItems": object(&[], json!({
            "count": {
                "type": "integer", "minimum": 1,
                "description": "Events and attempts of the tenant that went by because the client did not keep up, \
                                before filters",
            },
            "older_than": {
                "type": "string", "format": "date-time",
                "description": "The client was away for long: what is older is not told, and was not counted",
            },
        })),
        "NewReplay": object(&[], with(&selection, json!({
            "status": {
                "enum": ["all", "missed", "failed", "delivered"],
                "description": "Which of them: all; those the subscription never got (the default of a \
                                replay); dead letters (the default of a resend); those it has got",
            },
            "per_second": {"type": "integer", "minimum": 1, "maximum": 5000, "default": 100},
        }))),
        "NewExpunge": object(&[], with(&selection, json!({
            "responses": {
                "type": "boolean", "default": false,
                "description": "Also remove the responses to all attempts of these events",
            },
            "per_second": {"type": "integer", "minimum": 1, "maximum": 5000, "default": 100},
        }))),
        "ExpungeCount": object(&["count", "seen", "complete"], json!({
            "count": {"type": "integer", "description": "Events that something would be removed of"},
            "seen": {"type": "integer", "description": "Events that were looked at"},
            "complete": {"type": "boolean", "description": "false: there is more than was looked at"},
        })),
        "NewBulk": object(&["action"], json!({
            "action": {
                "enum": ["cancel", "forget", "retry"],
                "description": "cancel: what has not ended, and dead letters that block their lane; without `state`, what has \
                                not ended. forget: removes deliveries with their attempts, and cancels what has not ended. \
                                retry: what is dead, delivered or cancelled is tried again, each at most once; without `state`, \
                                what is dead",
            },
            "event": id("evt"), "subscription": by_name.clone(),
            "state": {"enum": ["pending", "delivered", "dead", "cancelled"]}, "reason": every_reason.clone(),
            "status": {"type": "string", "description": "What the last attempt was answered: 404, or 5xx"},
            "failure": {"type": "string", "description": "Why the last attempt was not answered"},
            "from": time(), "until": time(),
            "per_second": {"type": "integer", "minimum": 1, "maximum": 5000, "default": 100},
        })),
        "BulkCount": object(&["count", "seen", "complete"], json!({
            "count": {"type": "integer", "description": "Deliveries that match"},
            "seen": {"type": "integer", "description": "What was looked at"},
            "complete": {"type": "boolean", "description": "false: there is more than was looked at"},
        })),
        "ReplayCount": object(&["count", "seen", "complete"], json!({
            "count": {"type": "integer", "description": "Deliveries that would be made or tried again"},
            "seen": {"type": "integer", "description": "What was looked at"},
            "complete": {"type": "boolean", "description": "false: there is more than was looked at"},
        })),
        "DeliverTo": object(&["subscription"], json!({"subscription": by_name.clone()})),
        "Job": object(
            &["id", "kind", "per_second", "state", "seen", "done", "created_by", "created_at"],
            json!({
                "id": id("job"), "kind": {"enum": ["replay", "deliver", "expunge", "cancel", "forget", "retry", "delete_tenant"]},
                "subscription": id("sub"), "event": id("evt"), "events": object(&[], with(&selection, json!({
                    "filter": reference("Filter"),
                    "from_event": {
                        "type": "string", "pattern": id("evt")["pattern"],
                        "description": "The event that a subscription begins with",
                    },
                }))),
                "deliveries": object(&[], json!({
                    "event": id("evt"), "subscription": id("sub"),
                    "state": {"enum": ["pending", "delivered", "dead", "cancelled"]},
                    "exactly": object(&["state", "reason"], json!({"state": text(), "reason": every_reason})),
                    "outcome": object(&[], json!({
                        "status": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
                        "failures": {"type": "array", "items": text()},
                    })),
                    "created": object(&[], json!({"from": time(), "until": time()})),
                })),
                "status": {"enum": ["all", "missed", "failed", "delivered"]}, "responses": flag(),
                "per_second": count(), "state": {"enum": ["running", "done", "cancelled", "failed"]},
                "seen": {"type": "integer", "description": "Events or deliveries it has looked at"},
                "done": {"type": "integer", "description": "Deliveries it has made, tried again, \
                                                            cancelled or removed, events it has expunged, or rows \
                                                            of a tenant it has removed"},
                "created_by": {"type": "string", "description": "The key that asked for it"},
                "created_at": time(), "finished_at": time(),
                "problem": {"type": "string", "description": "Why it could not go on"},
            }),
        ),
        "NewRedrive": object(&[], with(&filter, json!({
            "subscription": by_name,
            "per_second": {"type": "integer", "minimum": 1, "maximum": 10000, "default": 100},
        }))),
        "Redrive": object(
            &["id", "filter", "per_second", "state", "total", "moved", "created_at"],
            json!({
                "id": id("rdr"), "filter": object(&["until"], filter), "per_second": count(),
                "state": {"enum": ["running", "done", "cancelled"]}, "total": count(),
                "moved": count(), "created_at": time(), "finished_at": time(),
            }),
        ),
    })
}
