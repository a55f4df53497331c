//! The schema of the audit log.

use posthorn_domain::AuditAction;
use serde_json::{Value, json};

use super::{id, object, text, time};

pub(super) fn all() -> Value {
    let actions: Vec<&str> = AuditAction::ALL.iter().map(|action| action.as_str()).collect();
    let maybe = |mut schema: Value, description: &str| {
        schema["type"] = json!(["string", "null"]);
        schema["description"] = json!(description);
        schema
    };
    json!({
        "AuditLine": object(
            &["id", "at", "actor", "surface", "address", "action", "tenant", "realm", "object", "detail"],
            json!({
                "id": id("aud"),
                "at": time(),
                "actor": object(&["kind", "id", "name"], json!({
                    "kind": {
                        "enum": ["key", "certificate", "client", "session", "server", "realm", "operator"],
                        "description": "As what somebody came. `realm` and `operator` stand for somebody of whom the \
                                        caller may know no more",
                    },
                    "id": maybe(json!({}), "Of the key, certificate or session; the name of a client"),
                    "name": maybe(json!({}), "What it was called then"),
                })),
                "surface": {
                    "type": "string",
                    "description": "By which way: `api`, the name of a dialect, `cli`, `config` or `server`",
                },
                "address": maybe(json!({}), "Of whoever was connected, where the caller may know it"),
                "action": {"enum": actions},
                "tenant": maybe(id("ten"), "The tenant it concerns, if it concerns one"),
                "realm": maybe(json!({}), "That of the tenant, or the one it concerns"),
                "object": object(&["kind", "id", "name"], json!({
                    "kind": text(),
                    "id": {"type": "string", "description": "Its id; the name of what has none"},
                    "name": maybe(json!({}), "What it was called then"),
                })),
                "detail": {
                    "type": "object",
                    "properties": {
                        "fields": {
                            "type": "array", "items": text(),
                            "description": "Names of the fields that were changed",
                        },
                        "reason": {"type": "string", "description": "Why a subscription was disabled"},
                        "job": {"type": "string", "description": "The job that deletes a tenant"},
                        "kind": {"type": "string", "description": "Of a job or a certificate"},
                        "left_out": {"type": "boolean", "description": "Whether there was more to say than fits"},
                    },
                    "additionalProperties": true,
                    "description": "What else there is to say, such as `fields`, the names of those that were changed. \
                                    Never values of secrets or headers, and nothing of payloads",
                },
            }),
        ),
    })
}
