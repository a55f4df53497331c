//! The schemas of policies: every knob, once for the whole and once for a patch of it.
//!
//! A record (an object of named knobs) may be given in part in a merge patch; a choice or the item of
//! a list only as a whole. So the schemas of patches are made from those of the records, and a knob
//! is written down once. A test compares them with what the types read.

use serde_json::{Map, Value, json};

use super::reference;
use super::schemas::{flag, id, name, object, text, texts};

/// The names of patches end so.
const PATCH: &str = "Patch";

/// All of them by name.
pub(super) fn all() -> Value {
    let records = records();
    let mut all = Map::new();
    if let Value::Object(records) = &records {
        for (name, record) in records {
            all.insert(name.clone(), whole(record));
            all.insert(format!("{name}{PATCH}"), patch_of(record, records));
        }
    }
    for group in [choices(), auths()] {
        if let Value::Object(group) = group {
            all.extend(group);
        }
    }
    all["Policy"]["description"] = json!("Every knob of how a delivery is made and retried");
    all[&format!("Policy{PATCH}")]["description"] = json!(
        "Changes to a policy, as a JSON merge patch (RFC 7396): what is not named stays, null takes \
         an optional field away"
    );
    Value::Object(all)
}

/// The record as it is shown: what is optional may be `null`.
fn whole(record: &Value) -> Value {
    let mut whole = record.clone();
    for (field, schema) in whole["properties"].as_object_mut().into_iter().flatten() {
        if !is_required(record, field) {
            *schema = or_null(schema.take());
        }
    }
    whole
}

fn is_required(record: &Value, field: &str) -> bool {
    record["required"].as_array().is_some_and(|required| required.contains(&json!(field)))
}

/// The same record with nothing required, and `null` for what may be taken away.
fn patch_of(record: &Value, records: &Map<String, Value>) -> Value {
    let mut fields = Map::new();
    for (field, schema) in record["properties"].as_object().into_iter().flatten() {
        let target = schema["$ref"].as_str().and_then(|target| target.rsplit('/').next());
        let part = match target.filter(|target| records.contains_key(*target)) {
            Some(target) => reference(&format!("{target}{PATCH}")),
            None => schema.clone(),
        };
        let stays = is_required(record, field);
        fields.insert(field.clone(), if stays { part } else { or_null(part) });
    }
    object(&[], Value::Object(fields))
}

fn or_null(mut schema: Value) -> Value {
    if let Some(forms) = schema.get_mut("oneOf").and_then(Value::as_array_mut) {
        forms.push(json!({"type": "null"}));
        return schema;
    }
    match schema.get("type") {
        Some(Value::String(kind)) if schema.get("enum").is_none() => {
            let kinds = json!([kind, "null"]);
            schema["type"] = kinds;
            schema
        }
        Some(Value::Array(kinds)) if kinds.contains(&json!("null")) => schema,
        _ => json!({"oneOf": [schema, {"type": "null"}]}),
    }
}

/// A text with a duration.
fn span(description: &str) -> Value {
    json!({
        "type": "string",
        "description": format!("{description}. A duration such as 250ms, 10s, 5m, 1h30m or 7d"),
    })
}

fn template(description: &str) -> Value {
    json!({"type": "string", "description": format!("{description}. A template")})
}

fn templates(description: &str) -> Value {
    json!({
        "type": "object", "additionalProperties": {"type": "string"},
        "description": format!("{description}. Templates"),
    })
}

fn choice(description: &str, values: &[&str]) -> Value {
    json!({"type": "string", "enum": values, "description": description})
}

fn statuses(description: &str) -> Value {
    json!({
        "type": "array", "items": {"type": ["string", "integer"]},
        "description": format!("{description}. Statuses such as 200, 2xx or 200-204"),
    })
}

fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = json!(description);
    schema
}

/// The records: objects whose fields a patch may name one by one.
fn records() -> Value {
    json!({
        "Policy": object(
            &[
                "url", "request", "auth", "tls", "success", "permanent", "schedule", "limits",
                "order", "on_exhausted", "on_permanent", "lease", "log",
            ],
            json!({
                "values": {
                    "type": "object", "maxProperties": 50,
                    "additionalProperties": {"oneOf": [text(), reference("PolicyValue")]},
                    "description": "Values that every template may use as {values.NAME}",
                },
                "url": reference("UrlPolicy"),
                "request": reference("RequestPolicy"),
                "auth": {
                    "type": "array", "items": reference("Auth"),
                    "description": "How requests prove where they come from",
                },
                "tls": reference("TlsPolicy"),
                "proxy": {
                    "type": "string", "minLength": 1, "maxLength": 64,
                    "description": "The proxy of egress.proxies that requests leave through; only \
                                    profiles of the configuration may say so",
                },
                "success": statuses("Which answers mean that the receiver has it"),
                "permanent": reference("Permanent"),
                "schedule": reference("Schedule"),
                "limits": reference("Limits"),
                "breaker": reference("Breaker"),
                "failing": reference("Failing"),
                "order": reference("Order"),
                "spacing": span(
                    "Least time between the end of one attempt and the next with the same key",
                ),
                "gate": reference("Gate"),
                "on_exhausted": choice(
                    "What becomes of a delivery whose schedule has run out",
                    &["dead_letter", "drop", "disable_subscription", "delete_subscription"],
                ),
                "on_permanent": choice(
                    "What becomes of a delivery that was refused for good",
                    &["dead_letter", "drop"],
                ),
                "lease": reference("Lease"),
                "log": reference("LogPolicy"),
            }),
        ),
        "UrlPolicy": object(&["https_only", "query", "resolve", "on_refused"], json!({
            "https_only": described(flag(), "Refuse plain http"),
            "query": described(flag(), "Whether the URL may have a query"),
            "resolve": described(flag(), "Look the host up already when the URL is written down"),
            "on_refused": choice(
                "What follows when the URL is refused before an attempt",
                &["give_up", "retry", "disable_subscription", "delete_subscription"],
            ),
        })),
        "RequestPolicy": object(&["method", "body"], json!({
            "method": choice("The HTTP method", &["POST", "PUT", "PATCH", "GET"]),
            "body": choice("What the body is", &["payload", "empty"]),
            "path": template("Appended to the path of the URL"),
            "families": {
                "type": "object", "additionalProperties": {"type": ["string", "boolean"]},
                "description": "A path for each family of events, or off",
            },
            "query": templates("Query parameters, added to those of the URL"),
            "headers": templates("Headers; one whose name ends in ? is left out without a value"),
            "alternative": described(text(), "Which form of an event with several is sent"),
            "content_type": described(text(), "The media type of the body"),
            "user_agent": described(text(), "The User-Agent"),
        })),
        "TlsPolicy": object(&["authorities"], json!({
            "authorities": {
                "type": "array", "maxItems": 10, "items": id("crt"),
                "description": "Only these authorities may vouch for the receiver",
            },
        })),
        "Permanent": object(&[], json!({
            "status": statuses("Answers after which trying again is pointless"),
            "body": reference("BodyRule"),
            "gone": choice("What a 410 does", &["disable", "retry"]),
        })),
        "BodyRule": object(&["fields"], json!({
            "fields": {
                "type": "object",
                "additionalProperties": choice(
                    "The type of the field", &["number", "string", "boolean", "any"],
                ),
                "description": "The fields that the object must have",
            },
            "except": statuses("Answers to which the rule does not apply"),
        })),
        "Schedule": object(&["backoff", "jitter", "retry_after"], json!({
            "backoff": reference("Backoff"),
            "jitter": reference("Jitter"),
            "max_attempts": {
                "type": "integer", "minimum": 1, "maximum": 1000,
                "description": "Sends in all, the first included",
            },
            "max_age": span("No attempt starts later than this; auto fits the schedule"),
            "retry_after": reference("RetryAfter"),
        })),
        "RetryAfter": object(&["honour", "cap"], json!({
            "honour": described(flag(), "Whether a receiver's Retry-After is listened to"),
            "cap": span("The longest that is believed"),
        })),
        "Limits": object(
            &["connect", "tls", "response", "total", "concurrency", "payload_bytes"],
            json!({
                "connect": span("To a connection, name resolution included; at most 10m"),
                "tls": span("To a finished TLS handshake; at most 10m"),
                "response": span("To the first byte of the response; at most 10m"),
                "total": span("For the whole attempt; at most 10m"),
                "concurrency": {
                    "type": "integer", "minimum": 1, "maximum": 1000,
                    "description": "Attempts under way at once",
                },
                "rate": {
                    "type": "number", "exclusiveMinimum": 0,
                    "description": "Attempts per second at most",
                },
                "payload_bytes": {
                    "type": "integer", "minimum": 1,
                    "description": "The largest payload that is sent",
                },
            }),
        ),
        "Breaker": object(&[], json!({
            "open_after": {
                "type": "integer", "minimum": 1, "maximum": 1000,
                "description": "Failures in a row, each of a second or more, that open it",
            },
            "longest": span("The longest it stays open, 1s to 1h"),
        })),
        "Failing": object(&["disable_after"], json!({
            "disable_after": span("Without a success for so long it is disabled, 1s to 365d"),
        })),
        "Order": object(&["scope", "dead_head"], json!({
            "scope": choice("What a lane is", &["none", "subscription", "key"]),
            "key": {"oneOf": [
                template("The key of a lane; the event's own when absent"),
                {
                    "type": "array", "items": text(), "minItems": 1, "maxItems": 5,
                    "description": "Templates, of which the first that an event can fill makes the key",
                },
            ]},
            "dead_head": choice(
                "What a dead delivery at the head of a lane does to those behind it",
                &["skip", "block"],
            ),
        })),
        "Gate": object(&["url", "timeout", "status", "on_closed"], json!({
            "url": template("Where to ask"),
            "timeout": span("How long to wait for the answer"),
            "status": statuses("The answers of an open gate"),
            "expect": reference("GateExpect"),
            "on_closed": reference("OnClosed"),
        })),
        "GateExpect": object(&["pointer", "equals"], json!({
            "pointer": described(text(), "Where to look: a JSON pointer"),
            "equals": {"description": "What must be there: any JSON value"},
            "text_is_fine": described(flag(), "Whether the text of the value is as good"),
        })),
        "Lease": object(&["time", "durable"], json!({
            "time": span("How long nobody else may try the delivery once an attempt has begun"),
            "durable": described(flag(), "Write the lease down before each attempt"),
        })),
        "LogPolicy": object(&[], json!({
            "field": described(text(), "The field of the text; message when absent"),
            "before": template("Logged before each request"),
            "failure": template("Logged after each request without success"),
            "fields": templates("Further fields of these lines"),
        })),
    })
}

/// What is given as a whole: one of several forms.
fn choices() -> Value {
    let one = |name: &str, fields: Value| {
        let mut properties = Map::new();
        properties.insert(name.to_owned(), fields);
        object(&[name], Value::Object(properties))
    };
    let plain = |word: &str| json!({"type": "string", "enum": [word]});
    let of = |names: &[&str]| Value::Array(names.iter().map(|name| reference(name)).collect());
    json!({
        "PolicyValue": object(&["from"], json!({
            "from": template("What it is"),
            "after": {
                "type": ["string", "null"],
                "description": "Only what comes after this beginning; no value without it",
            },
        })),
        "Backoff": {
            "oneOf": of(&["BackoffFixed", "BackoffExponential", "BackoffList"]),
            "description": "The waits between attempts",
        },
        "BackoffFixed": one("fixed", object(&["wait"], json!({
            "wait": span("Always the same wait, at most 30d"),
        }))),
        "BackoffExponential": one("exponential", object(&["initial", "factor", "cap"], json!({
            "initial": span("The first wait"),
            "factor": {
                "type": "number", "minimum": 1, "maximum": 100,
                "description": "Each wait is this many times the one before",
            },
            "cap": span("The longest wait, at most 30d"),
        }))),
        "BackoffList": one("list", object(&["waits"], json!({
            "waits": {
                "type": "array", "items": text(),
                "description": "One after the other, each at most 30d; the last one repeats",
            },
        }))),
        "Jitter": {
            "oneOf": [plain("none"), reference("JitterRatio"), reference("JitterAdd")],
            "description": "What chance adds to a wait",
        },
        "JitterRatio": one("ratio", object(&["ratio"], json!({
            "ratio": {
                "type": "number", "minimum": 0, "maximum": 1,
                "description": "Up to this share of the wait, either way",
            },
        }))),
        "JitterAdd": one("add", object(&["from", "to", "step"], json!({
            "from": span("The least that is added"),
            "to": span("The most that is added"),
            "step": span("The grain, more than zero"),
        }))),
        "OnClosed": {
            "oneOf": [plain("dead_letter"), reference("OnClosedPostpone")],
            "description": "What to do at a closed gate; neither charges an attempt",
        },
        "OnClosedPostpone": one("postpone", object(&["wait"], json!({
            "wait": span("Ask again so much later"),
        }))),
    })
}

/// The ways of authentication, told apart by `kind`.
fn auths() -> Value {
    let certificate = || {
        json!({
            "certificate": {"oneOf": [id("crt"), {"type": "null"}]},
            "owner": or_null(template("Only a certificate of this owner")),
        })
    };
    let secret = || described(name(64), "The name of a secret of the subscription");
    let hashes = ["sha1", "sha256", "sha512"];
    let kinds = json!({
        "standard_webhooks": [["secret"], {"secret": secret()}],
        "hmac_header": [
            ["secret", "header", "hash", "encoding", "content", "format"],
            {
                "secret": secret(), "header": text(), "hash": choice("The hash", &hashes),
                "encoding": choice("How the code is written", &["hex", "base64", "base64url"]),
                "content": choice("What is signed", &["body", "timestamp_and_body"]),
                "format": described(text(), "The header's value around {signature}"),
            },
        ],
        "bearer": [["secret"], {"secret": secret()}],
        "basic": [["user", "secret"], {"user": text(), "secret": secret()}],
        "secret_header": [["header", "secret"], {"header": text(), "secret": secret()}],
        "otp": [
            ["secret", "method", "hash"],
            {
                "secret": secret(),
                "method": choice("The kind of code", &["totp", "hmac", "static"]),
                "hash": choice("The hash", &hashes),
                "secret_encoding": choice(
                    "How the secret's text becomes bytes", &["utf8", "hex", "base64", "base32"],
                ),
                "salt": {"type": ["string", "null"], "description": "The name of a second secret"},
                "salt_use": choice(
                    "How the two are combined",
                    &["prefix", "suffix", "key_xor", "key-xor", "none"],
                ),
                "step": span("How long one code is valid, at least 1s"),
                "t0": {"type": "integer", "description": "Where steps begin, in Unix seconds"},
                "digits": {"type": "integer", "minimum": 6, "maximum": 8},
                "message": described(text(), "What an hmac code covers"),
                "encode": choice("How an hmac code is written", &["hex", "base64", "base64url"]),
                "header": text(),
                "format": described(text(), "The header's value around {otp}"),
                "values": templates("Further placeholders for message"),
                "secret_values": {
                    "type": "object", "additionalProperties": secret(),
                    "description": "Further placeholders for message that are secrets",
                },
            },
        ],
        "zgw_jwt": [
            ["client_id", "secret", "lifetime"],
            {
                "client_id": text(), "secret": secret(),
                "lifetime": span("How long a token is valid, at most 24h"),
            },
        ],
        "oauth2": [
            ["token_url", "client_id", "secret"],
            {
                "token_url": {"type": "string", "format": "uri"},
                "client_id": text(), "secret": secret(),
                "scope": {"type": ["string", "null"]},
                "audience": {"type": ["string", "null"]},
                "client_auth": choice("How the secret is presented", &["basic", "post"]),
                "renew_before": or_null(span("How long before its end a token is replaced")),
            },
        ],
        "client_certificate": [[], certificate()],
        "certificate_thumbprint": [
            ["header"],
            {
                "header": text(),
                "encoding": choice("How the thumbprint is written", &["hex", "base64"]),
                "choice": object(&[], certificate()),
            },
        ],
    });
    let mut all = Map::new();
    let (mut forms, mut mapping) = (Vec::new(), Map::new());
    for (kind, parts) in kinds.as_object().into_iter().flatten() {
        let title: String = kind.split('_').map(capital).collect();
        let title = format!("Auth{title}");
        let mut required = vec!["kind"];
        required.extend(parts[0].as_array().into_iter().flatten().filter_map(Value::as_str));
        let mut fields = parts[1].clone();
        fields["kind"] = json!({"const": kind});
        all.insert(title.clone(), object(&required, fields));
        forms.push(reference(&title));
        mapping.insert(kind.clone(), json!(format!("#/components/schemas/{title}")));
    }
    let auth = json!({
        "oneOf": forms,
        "discriminator": {"propertyName": "kind", "mapping": mapping},
        "description": "One way of authentication",
    });
    all.insert("Auth".to_owned(), auth);
    Value::Object(all)
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Conditions of filters on the payload.
pub(super) fn conditions() -> Value {
    let list = |description: &str| json!({"type": "array", "items": reference("Condition"), "description": description});
    json!({
        "Condition": {
            "oneOf": [
                reference("ConditionAll"), reference("ConditionAny"), reference("ConditionNot"),
                reference("ConditionTest"),
            ],
            "description": "A condition on a JSON payload; at most 64 nodes, 8 levels deep",
        },
        "ConditionAll": object(&["all"], json!({"all": list("All hold; an empty list holds")})),
        "ConditionAny": object(&["any"], json!({
            "any": list("At least one holds; an empty list does not"),
        })),
        "ConditionNot": object(&["not"], json!({"not": reference("Condition")})),
        "ConditionTest": object(&["test"], json!({
            "test": object(&["path", "op"], json!({
                "path": described(text(), "Where to look: a JSON pointer such as /data/amount"),
                "op": choice(
                    "How to compare",
                    &["eq", "ne", "lt", "le", "gt", "ge", "in", "exists", "contains", "prefix"],
                ),
                "value": {"description": "With what: any JSON value; not used by exists"},
            })),
        })),
        "FilterGroup": object(&[], json!({
            "topics": {"type": "array", "items": name(128)},
            "types": {"type": "array", "items": text()},
            "attributes": texts(),
            "payload": {"oneOf": [reference("Condition"), {"type": "null"}]},
        })),
        "Filter": object(&["any_of"], json!({
            "any_of": {
                "type": "array", "maxItems": 64, "items": reference("FilterGroup"),
                "description": "Wanted when any of these groups wants it",
            },
            "missing_attribute": choice(
                "What a condition on an attribute that the event does not have means",
                &["mismatch", "ignore"],
            ),
            "attribute_names": choice(
                "How attribute names are compared", &["exact", "camel_or_snake"],
            ),
        })),
    })
}
