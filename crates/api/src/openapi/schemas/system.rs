//! The schemas of the server itself: nodes, the configuration, and what operators see of Web Push.

use posthorn_domain::SHARD_COUNT;
use serde_json::{Value, json};

use super::super::reference;
use super::{count, flag, id, object, text, time};

fn about(mut schema: Value, description: &str) -> Value {
    schema["description"] = json!(description);
    schema
}

fn list(item: &str) -> Value {
    object(&["items"], json!({"items": {"type": "array", "items": reference(item)}}))
}

/// The settings of deliveries, by the names that Open Notificaties has for them.
const SETTINGS: [(&str, &str); 4] = [
    ("notification_delivery_max_retries", "Retries after the first send"),
    ("notification_delivery_retry_backoff", "The factor of all waits, in seconds; 0 for no wait"),
    ("notification_delivery_retry_backoff_max", "The longest wait, in seconds"),
    ("notification_delivery_base_factor", "Each wait is this many times the one before"),
];

fn settings(change: bool) -> Value {
    let mut all = serde_json::Map::new();
    for (name, description) in SETTINGS {
        let kind = match name {
            "notification_delivery_max_retries" => json!("integer"),
            // How the original writes 1 and 0, too.
            "notification_delivery_retry_backoff" if change => json!(["number", "boolean"]),
            _ => json!("number"),
        };
        all.insert(name.to_owned(), about(json!({"type": kind, "minimum": 0}), description));
    }
    Value::Object(all)
}

pub(super) fn all() -> Value {
    json!({
        "NodeList": list("Node"),
        "Node": object(&["id", "here", "alive", "seen_at", "shards"], json!({
            "id": id("nod"),
            "here": about(flag(), "Whether it is the node that answers"),
            "alive": about(
                flag(),
                "False when it stopped without a word: no sign of life came in time. Its shards go to others, and it \
                 is listed for a day",
            ),
            "seen_at": about(time(), "When the store heard of it last"),
            "version": about(text(), "The version of Posthorn it runs; absent where it does not say so"),
            "catalog_version": about(count(), "The version of the catalog it works with"),
            "shards": {
                "type": "array", "maxItems": SHARD_COUNT, "items": reference("NodeShard"),
                "description": "The shards it holds",
            },
        })),
        "NodeShard": object(&["shard", "epoch"], json!({
            "shard": {"type": "integer", "minimum": 0, "maximum": SHARD_COUNT - 1},
            "epoch": about(count(), "Grows each time the shard changes hands"),
        })),
        "NotificatiesSettings": object(&SETTINGS.map(|(name, _)| name), settings(false)),
        "NotificatiesSettingsChange": object(&[], settings(true)),
        "ConfigList": list("ConfigEntry"),
        "ConfigEntry": object(&["key", "value", "source"], json!({
            "key": {"type": "string", "examples": ["engine.slots"]},
            "value": {"description": "Without secrets"},
            "source": about(text(), "Where the value comes from: the defaults, the file, the environment or a flag"),
        })),
        "PushOverview": object(&["enabled", "agents", "messages", "more", "nodes"], json!({
            "enabled": about(flag(), "Whether Web Push is on"),
            "agents": about(count(), "Agents, connected or not"),
            "messages": about(count(), "Messages that wait for agents"),
            "more": about(flag(), "Whether there is more than was counted: at most 200,000 of each are"),
            "nodes": {"type": "array", "items": reference("PushNode")},
        })),
        "PushNode": object(&["node", "here", "agents"], json!({
            "node": about(text(), "The node, as records of agents name it"),
            "here": about(flag(), "Whether it is the node that answers"),
            "agents": about(
                count(),
                "Agents on record as connected to it. Those of a node that was killed stay on record until they \
                 connect again",
            ),
            "sockets": about(count(), "Sockets open right now; of the node that answers"),
        })),
        "PushEndpoint": object(&["endpoint"], json!({
            "endpoint": about(
                json!({"type": "string", "maxLength": 8_192}),
                "The URL that a browser was given, whole",
            ),
        })),
        "PushAgent": object(
            &["uaid", "connected_at", "created_at", "seen_at", "channels", "channel_count", "waiting",
              "more_waiting"],
            json!({
                "uaid": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
                "node": about(text(), "The node it is connected to, as far as is known; absent when it is away"),
                "connected_at": about(time(), "When it connected last"),
                "created_at": time(),
                "seen_at": about(time(), "When it was last known to be connected"),
                "channels": {
                    "type": "array", "items": reference("PushChannel"), "maxItems": 1_000,
                    "description": "Its channels, by id; the first 1,000 of them",
                },
                "channel_count": count(),
                "waiting": about(count(), "Messages that wait for it; at most 10,000 are counted"),
                "more_waiting": about(flag(), "Whether more wait than were counted"),
                "channel": about(text(), "The channel of the endpoint that was asked for, registered or not"),
            }),
        ),
        "PushChannel": object(&["id", "restricted"], json!({
            "id": text(),
            "restricted": about(flag(), "Whether only the sender of one key may post to it (VAPID)"),
        })),
    })
}
