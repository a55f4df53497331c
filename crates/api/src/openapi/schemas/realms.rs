//! The schemas of realms, tenants and event types.

use serde_json::{Value, json};

use super::{flag, id, labels, name, object, text, texts, time, with};

pub(super) fn all() -> Value {
    let mut all = tenants();
    if let (Value::Object(all), Value::Object(realms)) = (&mut all, realms()) {
        all.extend(realms);
    }
    if let (Value::Object(all), Value::Object(types)) = (&mut all, event_types()) {
        all.extend(types);
    }
    all
}

fn per_second() -> Value {
    json!({
        "type": "integer", "minimum": 1,
        "description": "Attempts that all subscriptions of a tenant together may begin in a second, on each \
                        node; not limited when absent",
    })
}

fn or_null(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

fn external_id() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": 255,
        "description": "Your own id of the tenant; unique in the realm",
    })
}

pub(super) fn metadata() -> Value {
    let mut metadata = texts();
    metadata["description"] = json!("Key-value pairs of your own; at most 4 KiB as JSON");
    metadata
}

fn tenants() -> Value {
    let mut null_metadata = metadata();
    null_metadata["description"] = json!("All of them, in place of those that were there");
    json!({
        "NewTenant": object(&["name"], json!({
            "name": name(128),
            "realm": {"type": ["string", "null"], "description": "`default` when absent; cannot be changed later"},
            "external_id": or_null(external_id()), "metadata": metadata(), "labels": labels(),
            "deliveries_per_second": or_null(per_second()),
        })),
        "TenantChange": object(&[], json!({
            "name": name(128), "external_id": or_null(external_id()), "metadata": null_metadata,
            "labels": labels(), "deliveries_per_second": or_null(per_second()),
        })),
        "Tenant": object(&["id", "name", "realm", "created_at"], json!({
            "id": id("ten"), "name": text(), "realm": text(), "external_id": external_id(),
            "metadata": metadata(), "labels": texts(), "deliveries_per_second": per_second(),
            "created_at": time(),
            "deleting_since": {
                "type": "string", "format": "date-time",
                "description": "Present while the tenant is being deleted",
            },
        })),
        "ExportedLine": object(&["kind", "item"], json!({
            "kind": {"enum": [
                "tenant", "topic", "profile", "certificate", "key", "client", "subscription", "event",
                "delivery", "attempt", "job", "redrive", "audit", "end",
            ]},
            "item": {
                "type": "object", "additionalProperties": true,
                "description": "What it is about, as other routes show it. Events have their payload: as JSON in \
                                `payload`, beside the event in `event`, or in `payload_base64`. The line `end` \
                                is the last and has the number of lines before it: without it, the answer was \
                                cut off",
            },
        })),
    })
}

fn realms() -> Value {
    let contents = json!({
        "description": text(),
        "defaults": object(&[], json!({
            "profile": {
                "type": ["string", "null"],
                "description": "The configured profile of new subscriptions that name none",
            },
            "deliveries_per_second": or_null(per_second()),
        })),
        "validation": {
            "enum": ["off", "known", "schema"],
            "description": "What is checked of events before they are accepted: nothing; that their type is in the \
                            catalogue; or also that their payload fits its schema",
        },
    });
    let required = ["name", "description", "defaults", "validation", "created_at", "updated_at"];
    json!({
        "RealmContents": object(&[], contents.clone()),
        "Realm": object(&required, with(&contents, json!({
            "name": name(128), "created_at": time(), "updated_at": time(),
        }))),
    })
}

fn event_types() -> Value {
    let contents = json!({
        "description": text(),
        "group": {"type": ["string", "null"], "maxLength": 128, "description": "For people who look for it"},
        "schemas": {
            "type": "object", "maxProperties": 20,
            "propertyNames": {"pattern": "^[1-9][0-9]{0,9}$"},
            "additionalProperties": {"type": ["object", "boolean"]},
            "description": "JSON Schemas (2020-12) of the payload by version, each at most 64 KiB, with `$ref` only to \
                            its own parts and without recursion. A payload must fit one of them",
        },
        "examples": {"type": "array", "maxItems": 10, "items": {}},
        "archived": flag(),
        "deprecated": flag(),
        "feature_flags": {
            "type": "array", "uniqueItems": true, "maxItems": 20,
            "items": {"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[A-Za-z0-9._-]+$"},
            "description": "Callers of the Svix API with flags see only event types that have one of them, or none. Those \
                            that are there stay when this is left out",
        },
    });
    let required = [
        "name",
        "realm",
        "description",
        "schemas",
        "examples",
        "archived",
        "deprecated",
        "created_at",
        "updated_at",
    ];
    let names = || json!({"type": "array", "items": {"type": "string"}});
    json!({
        "EventTypeContents": object(&[], contents.clone()),
        "EventType": object(&required, with(&contents, json!({
            "name": name(128), "realm": text(), "created_at": time(), "updated_at": time(),
        }))),
        "EventTypeImport": object(&["document"], json!({
            "document": {
                "type": "object", "additionalProperties": true,
                "description": "An OpenAPI 3.1 document; its `webhooks` are taken",
            },
            "replace_all": {
                "type": "boolean", "default": false,
                "description": "Archive event types that the document does not have",
            },
            "dry_run": {
                "type": "boolean", "default": false, "description": "Only say what would change",
            },
        })),
        "EventTypesImported": object(
            &["dry_run", "created", "changed", "archived", "unchanged"],
            json!({
                "dry_run": flag(), "created": names(), "changed": names(), "archived": names(),
                "unchanged": names(),
            }),
        ),
    })
}
