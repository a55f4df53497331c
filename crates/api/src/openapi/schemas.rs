//! The JSON schemas of everything on the wire.

mod audit;
mod deliveries;
mod looking;
mod realms;
mod series;
mod sessions;
mod system;

use serde_json::{Map, Value, json};

use super::{cloudevent, policy, reference};
use crate::codes::error_codes;

/// All schemas by name.
pub(super) fn all() -> Value {
    let mut all = Map::new();
    let groups = [
        general(),
        events(),
        subscriptions(),
        filters(),
        policy::all(),
        deliveries::all(),
        looking::all(),
        series::all(),
        certificates(),
        operators(),
        realms::all(),
        audit::all(),
        sessions::all(),
        system::all(),
    ];
    for group in groups {
        if let Value::Object(group) = group {
            all.extend(group);
        }
    }
    for item in
        ["Topic", "Subscription", "Redrive", "Certificate", "Tenant", "Key", "Realm", "EventType"]
    {
        all.insert(format!("{item}Page"), page(item));
    }
    for (item, of) in [
        ("Event", "Event"),
        ("Delivery", "Delivery"),
        ("Attempt", "AttemptMade"),
        ("Job", "Job"),
        ("Audit", "AuditLine"),
        ("Session", "Session"),
    ] {
        all.insert(format!("{item}Page"), log_page(of));
    }
    all.extend(cloudevent::schemas().map(|(name, schema)| (name.to_owned(), schema)));
    Value::Object(all)
}

fn page(item: &str) -> Value {
    object(
        &["items"],
        json!({
            "items": {"type": "array", "items": reference(item)},
            "next": {"type": "string", "description": "Cursor of the next page; absent on the \
                                                       last page"},
        }),
    )
}

/// A page of events, deliveries or attempts.
fn log_page(item: &str) -> Value {
    let mut page = page(item);
    page["properties"]["previous"] = json!({
        "type": "string", "description": "Cursor of the page before; absent on the first page",
    });
    page["properties"]["scanned_until"] = json!({
        "type": "string", "format": "date-time",
        "description": "The page ended early, because a filter that is not indexed would have had to look at \
                        too many items: everything up to this time was looked at. `next` goes on there",
    });
    page
}

/// An object with these fields and no others.
fn object(required: &[&str], properties: Value) -> Value {
    let mut schema = json!({"type": "object", "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema["properties"] = properties;
    schema
}

fn text() -> Value {
    json!({"type": "string"})
}

/// A duration: wherever one is asked for or shown that nobody measured.
fn span() -> Value {
    json!({"type": "string", "examples": ["250ms", "10s", "1h30m", "7d"]})
}

fn urgency() -> Value {
    json!({"type": "string", "enum": ["very-low", "low", "normal", "high"]})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn texts() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}})
}

fn labels() -> Value {
    json!({
        "type": "object", "maxProperties": 32, "additionalProperties": {"type": "string"},
        "propertyNames": {"pattern": "^[A-Za-z0-9._-]{1,64}$"},
        "description": "Key-value pairs of your own; templates can use them",
    })
}

/// What an id of a kind looks like.
fn id(prefix: &str) -> Value {
    json!({"type": "string", "pattern": format!("^{prefix}_[0-9a-hjkmnp-tv-z]{{26}}$")})
}

fn name(max: usize) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": max, "pattern": "^[A-Za-z0-9._:/-]+$"})
}

/// The fields of one schema and those of another.
fn with(base: &Value, more: Value) -> Value {
    let mut whole = base.clone();
    if let (Value::Object(fields), Value::Object(more)) = (&mut whole, more) {
        fields.extend(more);
    }
    whole
}

fn general() -> Value {
    let codes: Vec<&str> = error_codes().iter().map(|code| code.code).collect();
    json!({
        "Any": {"type": "object"},
        "Status": object(&["status"], json!({
            "status": {"enum": ["alive", "ready"]},
            "refusing_publishes": {
                "enum": ["disk_full", "overloaded"],
                "description": "Why publishes are refused while everything else works",
            },
            "on_hold": {
                "type": "boolean",
                "description": "True while the node was started on hold: events are accepted, nothing is sent",
            },
        })),
        "Resumed": object(&["was_on_hold"], json!({
            "was_on_hold": {"type": "boolean", "description": "Whether the node that answers was on hold"},
        })),
        "Stats": object(
            &["events", "pending", "delivered", "dead", "cancelled"],
            json!({
                "events": count(), "pending": count(), "delivered": count(), "dead": count(),
                "cancelled": count(),
            }),
        ),
        "Problem": object(
            &["type", "code", "title", "status", "detail"],
            json!({
                "type": {"type": "string", "format": "uri"},
                "code": {"enum": codes},
                "title": text(),
                "status": {"type": "integer"},
                "detail": text(),
                "field": {"type": "string", "description": "The field of the request that is wrong"},
            }),
        ),
    })
}

fn events() -> Value {
    let new = json!({
        "topic": name(128),
        "type": name(128),
        "payload": {"description": "Any JSON value; its bytes are kept and delivered as sent"},
        "attributes": texts(),
        "key": {"type": ["string", "null"], "minLength": 1, "maxLength": 255},
        "content_type": {"type": ["string", "null"], "default": "application/json"},
        "deliver_at": {
            "type": ["string", "null"], "format": "date-time",
            "description": "When to deliver it, at most 366 days ahead; a time in the past means now",
        },
        "retention": {
            "type": ["string", "null"],
            "description": "How long to keep it once its deliveries have ended, such as 1h or 7d: at \
                            least 1m, and not longer than the server keeps events. It counts from \
                            accepted_at, or deliver_at",
        },
    });
    let item_key = json!({
        "idempotency_key": {"type": ["string", "null"], "minLength": 1, "maxLength": 255},
    });
    let published = json!({
        "id": id("evt"),
        "accepted_at": time(),
        "deliveries": {
            "type": "integer",
            "minimum": 0,
            "description": "Number of subscriptions that match; 0 when the request repeats an \
                            earlier one",
        },
        "duplicate": flag(),
    });
    let event = json!({
        "id": id("evt"), "topic": name(128), "type": name(128), "attributes": texts(),
        "key": text(), "content_type": text(), "accepted_at": time(), "payload_bytes": count(),
        "publisher_id": {
            "type": "string", "description": "The Idempotency-Key it was published with",
        },
        "deliver_at": {
            "type": "string", "format": "date-time",
            "description": "When it is to be delivered, where that is later than accepted_at",
        },
        "retention": {
            "type": "string", "description": "How long it is kept, where its publisher said so",
        },
        "expunged_at": {
            "type": "string", "format": "date-time",
            "description": "When its payload was removed for good; absent while there is one",
        },
        "trace_id": {
            "type": "string", "pattern": "^[0-9a-f]{32}$",
            "description": "The trace it belongs to (W3C Trace Context)",
        },
    });
    let event_required = ["id", "topic", "type", "attributes", "content_type", "accepted_at"];
    let published_required = ["id", "accepted_at", "deliveries", "duplicate"];
    json!({
        "NewEvent": object(&["topic", "type", "payload"], new.clone()),
        "NewEvents": object(&["events"], json!({
            "events": {
                "type": "array",
                "maxItems": 1000,
                "items": object(&["topic", "type", "payload"], with(&new, item_key)),
            },
        })),
        "Published": object(&published_required, published.clone()),
        "PublishedItems": object(&["items"], json!({
            "items": {"type": "array", "items": {
                "oneOf": [reference("PublishedItem"), reference("RefusedItem")],
            }},
        })),
        "PublishedItem": object(
            &["status", "id", "accepted_at", "deliveries", "duplicate"],
            with(&published, json!({"status": {"const": 202}})),
        ),
        "RefusedItem": object(&["status", "error"], json!({
            "status": {"type": "integer", "minimum": 400},
            "error": reference("Problem"),
        })),
        "Event": object(&event_required, event.clone()),
        "ExplainedEvent": object(&event_required, with(&event, json!({
            "payload": {"description": "The payload, if it is JSON"},
            "payload_base64": {"type": "string", "description": "The payload as base64, if it is \
                                                                 not JSON"},
            "deliveries": {"type": "array", "items": reference("DeliveryWithAttempts")},
            "not_delivered": {"type": "array", "items": object(
                &["subscription", "reasons"],
                json!({"subscription": id("sub"), "reasons": {"type": "array", "items": text()}}),
            )},
            "truncated": flag(),
        }))),
        "Topic": object(&["name", "description", "attributes", "created_at"], json!({
            "name": name(128), "description": text(),
            "attributes": {"type": "array", "items": text()}, "labels": texts(),
            "created_at": time(),
        })),
        "TopicContents": object(&[], json!({
            "description": text(),
            "attributes": {
                "type": "array", "items": text(), "maxItems": 64,
                "description": "Attributes that filters may use; empty means any",
            },
            "labels": labels(),
        })),
    })
}

/// Trying out a filter: one of two ways to name it, with one of two ways to name an event.
fn filters() -> Value {
    let test = object(
        &[],
        json!({
            "filter": {
                "allOf": [reference("Filter")],
                "description": "The filter; give exactly one of filter and subscription",
            },
            "subscription": {
                "type": "string", "description": "Test the filter of this subscription, by sub_… or name",
            },
            "event": {
                "allOf": [reference("NewEvent")],
                "description": "An event that is not published; its topic need not exist. Give \
                                exactly one of event and event_id",
            },
            "event_id": {"type": "string", "description": "A published event, evt_…"},
        }),
    );
    json!({
        "FilterTest": test,
        "FilterOutcome": object(&["matches", "reasons", "cost"], json!({
            "matches": flag(),
            "reasons": {
                "type": "array", "items": text(),
                "description": "Why it does not match, one for each group; empty when it matches",
            },
            "cost": {
                "type": "integer", "minimum": 0,
                "description": "What matching cost; the limit for one event is \
                                quotas.match_cost_per_event",
            },
        })),
    })
}

fn subscriptions() -> Value {
    let policy = json!({
        "oneOf": [reference("PolicyPatch"), {"type": "null"}],
        "description": "Changes to the profile; GET /v1/profiles shows all settings",
    });
    let secrets = json!({
        "type": "object",
        "additionalProperties": {"type": "string"},
        "maxProperties": 16,
        "writeOnly": true,
    });
    let writable = json!({
        "url": {
            "type": "string", "format": "uri",
            "description": "URL of the receiver; give exactly one of url and destination",
        },
        "destination": reference("PushDestination"), "description": text(),
        "name": {
            "type": ["string", "null"], "minLength": 1, "maxLength": 255,
            "description": "A name of your choice; unique in the tenant",
        },
        "labels": labels(), "metadata": realms::metadata(),
        "filter": reference("Filter"), "profile": name(64), "policy": policy,
        "secrets": secrets, "paused": flag(),
    });
    let kind = |description: &str| {
        json!({
            "type": ["string", "null"], "enum": ["hmac", "ed25519", null], "description": description,
        })
    };
    let public_keys = json!({
        "type": "array",
        "description": "Public keys for Ed25519 signatures, the current key first; absent without \
                        such a secret. GET /jwks/{id} returns them without an API key",
        "items": object(&["secret", "key", "kid"], json!({
            "secret": name(64),
            "key": {"type": "string", "pattern": "^whpk_[A-Za-z0-9+/]{43}=$"},
            "kid": {"type": "string", "description": "RFC 7638 thumbprint of the key"},
            "expires_at": time(),
        })),
    });
    let create = with(
        &writable,
        json!({
            "start": {
                "description": "Where in the past it begins: at a time, or with an event. What it missed is delivered \
                                by a job, exactly once",
                "oneOf": [
                    object(&["time"], json!({"time": time()})),
                    object(&["event"], json!({"event": id("evt")})),
                    {"type": "null"},
                ],
            },
            "secret_kind": kind("The kind of signing secret to create; hmac when absent. The \
                                 private part of an ed25519 key is never shown, only public_keys"),
        }),
    );
    let shown = json!({
        "id": id("sub"), "name": text(),
        "url": {"type": "string", "format": "uri", "description": "Absent for push destinations"},
        "destination": object(&["type", "encrypted", "ttl", "urgency"], json!({
            "type": {"const": "push"},
            "service": {
                "type": "string",
                "description": "Origin of the push service; absent for agents of this server",
            },
            "encrypted": flag(), "ttl": span(), "urgency": urgency(), "topic": text(),
        })),
        "description": text(), "labels": texts(), "metadata": realms::metadata(),
        "filter": reference("Filter"), "profile": name(64), "policy": reference("PolicyPatch"),
        "status": {"enum": ["active", "paused", "disabled"]}, "status_reason": text(),
        "waiting": {
            "allOf": [reference("Waiting")],
            "description": "Why due deliveries are not attempted. Lists show only paused and \
                            disabled; the other reasons are shown for a single subscription, by \
                            the node that works on it",
        },
        "failing_since": {
            "type": "string", "format": "date-time",
            "description": "Since when every attempt has failed; shown where waiting is shown",
        },
        "public_keys": public_keys.clone(), "version": count(), "created_at": time(),
        "updated_at": time(),
        "warnings": {
            "type": "array", "items": reference("Warning"),
            "description": "Settings that were accepted but are probably mistakes; only in \
                            responses to create and update, absent when there are none",
        },
    });
    let without = |fields: &Value, name: &str| {
        let mut fields = fields.clone();
        fields.as_object_mut().and_then(|fields| fields.remove(name));
        fields
    };
    let mut change = object(&[], writable);
    change["not"] = json!({"required": ["url", "destination"]});
    let required = [
        "id",
        "description",
        "filter",
        "profile",
        "policy",
        "status",
        "version",
        "created_at",
        "updated_at",
    ];
    json!({
        "NewSubscription": {
            "oneOf": [reference("NewWebhookSubscription"), reference("NewPushSubscription")],
        },
        "NewWebhookSubscription": object(&["url"], without(&create, "destination")),
        "NewPushSubscription": object(&["destination"], without(&create, "url")),
        "SubscriptionChange": change,
        "Subscription": object(&required, shown.clone()),
        "CreatedSubscription": object(&required, with(&shown, json!({
            "signing_secret": {
                "type": "string",
                "description": "The signing secret, if one was created; shown only once",
            },
        }))),
        "PushDestination": object(&["type", "endpoint"], json!({
            "type": {"const": "push"},
            "endpoint": {"type": "string", "format": "uri", "writeOnly": true},
            "keys": {
                "description": "The browser's keys; without them messages are not encrypted. \
                                Required for an endpoint of another push service",
                "oneOf": [
                    object(&["p256dh", "auth"], json!({"p256dh": text(), "auth": text()})),
                    {"type": "null"},
                ],
                "writeOnly": true,
            },
            "ttl": {
                "type": ["string", "null"], "examples": ["12h", "7d"],
                "description": "How long a message waits for the agent, in whole seconds. The \
                                maximum and default is the server's push.ttl_max (30 days unless \
                                changed). For other push services the maximum is 30 days and the \
                                default 28 days",
            },
            "urgency": {
                "type": ["string", "null"], "enum": ["very-low", "low", "normal", "high", null],
                "description": "Whether a device is woken up for messages (RFC 8030, section 5.3); \
                                normal when absent. Agents of this server get every message at once",
            },
            "topic": {
                "type": ["string", "null"], "minLength": 1, "maxLength": 256,
                "examples": ["news", "{event.key}"],
                "description": "Of the messages that wait for the browser, only the newest of a \
                                topic is kept. Either 1 to 32 base64url characters, sent as they \
                                are, or a template, of which a fingerprint is sent. Events without \
                                the values it needs have no topic",
            },
            "application_server_key": {
                "type": ["string", "null"],
                "description": "The public key that the browser subscribed with, if that is a \
                                former key of the tenant; the key of GET /v1/push/key when absent. \
                                Only for endpoints of other push services",
            },
            "expirationTime": {"description": "Ignored; browsers send it"},
        })),
        "Warning": object(&["code", "detail"], json!({
            "code": {"type": "string", "enum": ["unknown_topic"]},
            "detail": text(),
            "field": {"type": "string", "description": "The field that the warning is about"},
        })),
        "PushKey": object(&["public_key"], json!({
            "public_key": {
                "type": "string", "pattern": "^[A-Za-z0-9_-]{87}$",
                "description": "applicationServerKey of PushManager.subscribe()",
            },
        })),
        "TestOutcome": object(&["outcome"], json!({
            "outcome": {"enum": ["answered", "failed"]}, "status": {"type": "integer"},
            "failure": text(), "detail": text(), "response": text(),
        })),
        "SubscriptionTest": object(&[], json!({
            "type": {"type": ["string", "null"], "default": "posthorn.test"},
            "payload": {"description": "What is sent, as JSON; {\"test\": true} when absent"},
        })),
        "DeliveryRetry": object(&[], json!({
            "once": {
                "type": "boolean", "default": false,
                "description": "One attempt for a delivery that has ended: no other follows when it fails. A \
                                delivery that waits is tried now and keeps its schedule",
            },
        })),
        "SecretRotation": object(&[], json!({
            "name": {"type": ["string", "null"], "default": "signing"},
            "secret": {"type": ["string", "null"], "writeOnly": true},
            "secret_kind": kind("The kind to create; the kind of the current secret when absent"),
            "overlap": {
                "type": ["string", "null"], "examples": ["24h"],
                "description": "How long the old secret keeps signing; engine.rotation_overlap \
                                when absent, at most engine.rotation_overlap_max",
            },
        })),
        "RotatedSecret": object(&[], json!({
            "secret": {
                "type": "string",
                "description": "The new secret, shown only once; absent for an ed25519 key",
            },
            "public_keys": public_keys,
        })),
        "JwkSet": object(&["keys"], json!({
            "keys": {"type": "array", "minItems": 1, "items": object(
                &["kty", "crv", "x", "kid", "use", "alg"],
                json!({
                    "kty": {"const": "OKP"}, "crv": {"const": "Ed25519"}, "x": text(),
                    "kid": text(), "use": {"const": "sig"}, "alg": {"const": "EdDSA"},
                }),
            )},
        })),
        "ProfileList": object(&["items"], json!({
            "items": {"type": "array", "items": reference("Profile")},
        })),
        "Profile": object(&["name"], json!({
            "name": name(64),
            "policy": reference("Policy"),
            "problem": {
                "type": "string",
                "description": "Why the changes no longer fit the base profile; deliveries wait \
                                until this is fixed",
            },
            "base": {
                "type": "string",
                "description": "The profile of the configuration that these changes apply to",
            },
            "changes": reference("PolicyPatch"),
            "updated_at": time(),
        })),
        "ProfileContents": object(&["policy"], json!({
            "base": {
                "type": ["string", "null"],
                "description": "A profile of the configuration; the profile with the same name \
                                when absent",
            },
            "policy": reference("PolicyPatch"),
        })),
        "ClientList": object(&["items"], json!({
            "items": {"type": "array", "items": reference("Client")},
        })),
        "Client": object(&["name", "has_secret", "updated_at"], json!({
            "name": name(255), "has_secret": {"type": "boolean"},
            "scopes": {
                "type": "array", "items": text(),
                "description": "What the client may do; absent if the configuration decides",
            },
            "updated_at": time(),
        })),
        "ClientContents": object(&[], json!({
            "secret": {
                "type": ["string", "null"], "minLength": 1, "maxLength": 4096, "writeOnly": true,
                "description": "The secret that signs the client's requests; unchanged when absent",
            },
            "scopes": {
                "type": ["array", "null"], "maxItems": 64, "items": text(),
                "description": "What the client may do; null uses the configuration, unchanged \
                                when absent",
            },
        })),
        "NotificatiesSetup": {
            "type": "object", "additionalProperties": true,
            "description": "A setup_configuration file of Open Notificaties as JSON. Each section \
                            is applied if `<section>_enable` is true. `value_from` is not allowed",
        },
        "NotificatiesResend": object(&[], json!({
            "van": {
                "type": "string", "format": "date-time",
                "description": "Only messages that were accepted at or after this time",
            },
            "tot": {
                "type": "string", "format": "date-time",
                "description": "Only messages that were accepted before this time",
            },
            "resultaat": {
                "enum": ["mislukt", "gelukt", "gemist", "alle"], "default": "mislukt",
                "description": "Which of them: those that failed for good, those that were delivered; and, with an \
                                abonnement, those it never got, or all",
            },
            "kanaal": {"type": "string", "maxLength": 50, "description": "Only in this kanaal"},
            "kenmerken": {
                "type": "object", "maxProperties": 20, "additionalProperties": text(),
                "description": "Only messages with all of these kenmerken; `*` stands for any value",
            },
            "resource": {"type": "string", "maxLength": 100, "description": "Only of this resource"},
            "actie": {"type": "string", "maxLength": 100, "description": "Only of this actie"},
            "hoofdObject": {"type": "string", "maxLength": 1000, "description": "Only about this object"},
            "resourceUrl": {"type": "string", "maxLength": 1000, "description": "Only about this resource"},
            "abonnement": {
                "type": "string", "maxLength": 1000,
                "description": "Only to this abonnement, by its UUID or its url; to all of them when absent",
            },
            "perSeconde": {"type": "integer", "minimum": 1, "maximum": 5000, "default": 100},
        })),
        "NotificatiesApplied": object(&["changed", "unchanged", "ignored"], json!({
            "changed": {
                "type": "array", "items": text(),
                "description": "What was changed, such as `kanaal zaken`",
            },
            "unchanged": count(),
            "ignored": {
                "type": "array", "items": text(),
                "description": "Sections that do not apply here, or only at startup",
            },
        })),
    })
}

fn certificates() -> Value {
    let kind = json!({"enum": ["client", "caller", "authority"]});
    let scopes = json!({
        "type": "array",
        "items": {"enum": ["publish", "manage", "read"]},
        "description": "Scopes of a caller that shows this certificate",
    });
    let pem = json!({"type": "string", "description": "PEM; the certificate itself first, then \
                                                       its chain"});
    let key = json!({
        "type": ["string", "null"],
        "writeOnly": true,
        "description": "PEM; if absent, an outbound proxy must hold the key",
    });
    json!({
        "NewCertificate": object(&["kind", "certificate"], json!({
            "kind": kind.clone(), "description": text(), "owner": text(), "host": text(),
            "scopes": scopes.clone(), "certificate": pem.clone(), "key": key.clone(),
        })),
        "CertificateRotation": object(&["certificate"], json!({
            "certificate": pem.clone(), "key": key,
        })),
        "Certificate": object(
            &[
                "id", "kind", "description", "thumbprint", "subject", "certificate", "has_key",
                "state", "not_before", "not_after", "created_at", "updated_at",
            ],
            json!({
                "id": id("crt"), "kind": kind, "description": text(), "owner": text(),
                "host": text(), "scopes": scopes,
                "thumbprint": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                "subject": text(), "certificate": pem, "has_key": flag(),
                "state": {
                    "enum": ["valid", "expiring", "expired", "not_yet_valid", "revoked"],
                    "description": "`expiring` when fewer than 30 days are left",
                },
                "not_before": time(), "not_after": time(), "created_at": time(),
                "updated_at": time(), "revoked_at": time(),
            }),
        ),
    })
}

fn operators() -> Value {
    let scopes = json!({
        "type": "array",
        "minItems": 1,
        "items": {"enum": ["publish", "manage", "read", "operator"]},
    });
    let key = json!({
        "id": id("key"), "tenant": id("ten"), "realm": text(), "description": text(), "scopes": scopes.clone(),
        "created_at": time(), "expires_at": time(), "revoked_at": time(),
        "rate_limit": {
            "type": "integer", "description": "The key's own limit of requests per second",
        },
        "last_used_at": {
            "type": "string", "format": "date-time",
            "description": "Accurate to the minute; not in the answer to a creation",
        },
    });
    let required = ["id", "description", "scopes", "created_at"];
    json!({
        "SealRotation": object(&["key", "total", "resealed", "remaining", "unopenable"], json!({
            "key": {"type": "string", "description": "Public name of the current seal key"},
            "total": {"type": "integer", "description": "Number of stored secrets"},
            "resealed": {"type": "integer", "description": "Secrets that this request sealed again"},
            "remaining": {"type": "integer", "description": "Secrets still sealed with another key"},
            "unopenable": {
                "type": "integer",
                "description": "Secrets of `remaining` that no configured key can open",
            },
        })),
        "NewKey": object(&["scopes"], json!({
            "tenant": {"type": ["string", "null"], "description": "Id or name"},
            "realm": {
                "type": ["string", "null"],
                "description": "Instead of a tenant: the key acts for any tenant of this realm that it names",
            },
            "scopes": scopes, "description": text(),
            "expires_at": {"type": ["string", "null"], "format": "date-time"},
            "rate_limit": {
                "type": ["integer", "null"], "minimum": 1,
                "description": "Requests per second on each node; every event of a batch counts. \
                                The server's default when absent",
            },
        })),
        "Key": object(&required, key.clone()),
        "CreatedKey": object(&required, with(&key, json!({
            "key": {"type": "string", "description": "The key itself; shown only once"},
        }))),
    })
}
