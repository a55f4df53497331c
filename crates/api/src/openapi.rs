//! The OpenAPI 3.1 document, made from the table of routes, the types of policies and filters, and schemas by hand.
//!
//! `crates/api/openapi.json` is a copy that a test keeps equal, so that a change of the wire shows up
//! in review.

mod cloudevent;
mod policy;
mod schemas;

use posthorn_domain::Scope;
use posthorn_domain::cloudevent::{BATCH_MEDIA_TYPE, MEDIA_TYPE};
use serde_json::{Map, Value, json};

use crate::call::scope_name;
use crate::routes::{Access, ROUTES, Route};

/// The document, as JSON text.
pub fn document() -> String {
    let mut paths = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(route);
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Posthorn",
            "version": "1",
            "description": "Publish an event once; every matching subscription receives it at \
                            least once. Errors are problem documents with stable codes.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": TAGS.map(|(name, description)| json!({"name": name, "description": description})),
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, `ph_…`, with the scope that the operation names \
                                    in `x-scope`. Keys with the scope `operator` may do \
                                    everything.",
                },
            },
            "parameters": parameters(),
            "responses": {
                "Problem": {
                    "description": "A problem document; `code` identifies the error.",
                    "content": {"application/problem+json": {"schema": reference("Problem")}},
                },
            },
            "schemas": schemas::all(),
        },
    });
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

const TAGS: [(&str, &str); 21] = [
    ("events", "Publish events and see their deliveries"),
    ("topics", "Named streams of events"),
    ("subscriptions", "Which events are delivered where and how"),
    ("filters", "Try out which events a filter matches"),
    ("push", "Browsers and other agents as destinations"),
    ("profiles", "Named policies"),
    ("clients", "Clients of dialects that have their own authentication"),
    ("notificaties", "Operate the Notificaties API"),
    ("deliveries", "One event on its way to one subscription"),
    ("attempts", "What was tried, over all deliveries"),
    ("dead-letters", "Deliveries that ended without success"),
    ("redrives", "Retry many dead letters at a bounded rate"),
    ("jobs", "Bulk work on the history: progress and cancel"),
    ("stream", "What happens, as it happens"),
    ("metrics", "What happened in the past, in figures"),
    ("audit", "Who changed what, when, and from where"),
    ("portal", "Links for customers into the portal"),
    ("sessions", "Who is in the console and the portal"),
    ("tenants", "The isolation boundary (operators)"),
    ("keys", "API keys (operators)"),
    ("server", "The server itself"),
];

/// The section a path belongs to.
fn tag(path: &str) -> &str {
    let name = path.strip_prefix("/v1/").unwrap_or_default().split('/').next().unwrap_or_default();
    TAGS.iter().map(|(tag, _)| *tag).find(|tag| *tag == name).unwrap_or("server")
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": route.operation,
        "summary": route.summary,
        "tags": [tag(route.path)],
        "responses": responses(route),
    });
    let mut parameters = path_parameters(route.path);
    match route.access {
        // Without a key, it depends on who asks.
        Access::Open if route.operation.starts_with("validate") => {
            operation["security"] = json!([{"key": []}, {}]);
        }
        Access::Open => operation["security"] = json!([]),
        Access::Key => {
            operation["security"] = json!([{"key": []}]);
            parameters.push(parameter_reference("Posthorn-Tenant"));
        }
        Access::Realm(scope) => {
            operation["security"] = json!([{"key": []}]);
            operation["x-realm"] = json!(true);
            operation["x-scope"] = json!(scope_name(scope));
            // Lines are those of one tenant, where one is named.
            if tag(route.path) == "audit" {
                parameters.push(parameter_reference("Posthorn-Tenant"));
            }
        }
        Access::Scope(scope) => {
            operation["security"] = json!([{"key": []}]);
            operation["x-scope"] = json!(scope_name(scope));
            // Clients are an operator's to change, and one tenant's all the same.
            if scope != Scope::Operator || tag(route.path) == "clients" {
                parameters.push(parameter_reference("Posthorn-Tenant"));
            }
        }
    }
    let publishes = matches!(route.operation, "publishEvent" | "publishEvents");
    parameters.extend(route.query.iter().map(|name| match *name {
        "topic" if publishes => parameter_reference("cloudevent-topic"),
        "kind" if route.operation == "listSessions" => parameter_reference("session-kind"),
        name => parameter_reference(name),
    }));
    match route.operation {
        "publishEvent" => {
            parameters.push(parameter_reference("Idempotency-Key"));
            parameters.push(parameter_reference("traceparent"));
            parameters.extend(cloudevent::HEADERS.map(|(name, _)| parameter_reference(name)));
        }
        "publishEvents" => parameters.push(parameter_reference("traceparent")),
        "validateSender" | "validateBatchSender" => {
            parameters.push(parameter_reference("WebHook-Request-Origin"));
        }
        "stream" => parameters.push(parameter_reference("Last-Event-ID")),
        "updateSubscription" => parameters.push(parameter_reference("If-Match")),
        _ => {}
    }
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if let Some(schema) = route.body {
        operation["requestBody"] = json!({
            "required": !matches!(schema, "SecretRotation" | "NewPortalLink" | "SubscriptionTest"),
            "content": {"application/json": {"schema": reference(schema)}},
        });
        let content = &mut operation["requestBody"]["content"];
        match route.operation {
            "publishEvent" => content[MEDIA_TYPE] = json!({"schema": reference("CloudEvent")}),
            "publishEvents" => {
                content[BATCH_MEDIA_TYPE] = json!({"schema": reference("CloudEvents")});
            }
            _ => {}
        }
    }
    operation
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split(['{', '}']).skip(1).step_by(2);
    let by_name = ["/v1/subscriptions/", "/v1/tenants/"].iter().any(|noun| path.starts_with(noun));
    names
        .map(|name| {
            let mut parameter =
                json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
            if name == "id" && by_name {
                parameter["description"] = json!("Id or name");
            }
            parameter
        })
        .collect()
}

fn responses(route: &Route) -> Value {
    let mut good = json!({"description": route.summary});
    if let Some(schema) = route.answer {
        let media_type = match schema {
            "JwkSet" => "application/jwk-set+json",
            "ExportedLine" => "text/jsonl",
            _ => "application/json",
        };
        good["content"] = json!({media_type: {"schema": reference(schema)}});
    } else if route.operation == "metrics" {
        good["content"] = json!({"text/plain": {"schema": {"type": "string"}}});
    } else if route.operation == "stream" {
        good["content"] = json!({"text/event-stream": {"schema": {
            "type": "string",
            "description": "Each has an `id`, for `Last-Event-ID`, and JSON as `data`. `event`: an Event. \
                            `attempt`: a ToldAttempt. `skipped`: a SkippedItems",
        }}});
    }
    let location = json!({"schema": {"type": "string"}, "description": "URL of the new resource"});
    if route.status == 201 && !matches!(route.operation, "createKey" | "createPortalLink") {
        good["headers"] = json!({"Location": location});
    }
    if route.operation.starts_with("validate") {
        good["headers"] = cloudevent::answer_headers();
    }
    let problem = json!({"$ref": "#/components/responses/Problem"});
    let mut all = json!({"default": problem});
    all[route.status.to_string()] = good;
    let mut refused = Vec::new();
    if route.access != Access::Open {
        refused.extend(["401", "403", "422"]);
    }
    if route.path.contains('{') {
        refused.push("404");
    }
    if route.body.is_some() {
        refused.extend(["400", "413", "415"]);
    }
    for status in refused {
        all[status] = problem.clone();
    }
    all
}

fn parameter_reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/parameters/{name}")})
}

fn parameters() -> Value {
    let query = |name: &str, description: &str, schema: Value| json!({"name": name, "in": "query", "description": description, "schema": schema});
    let header = |name: &str, description: &str, schema: Value| json!({"name": name, "in": "header", "description": description, "schema": schema});
    let text = json!({"type": "string"});
    let time = json!({"type": "string", "format": "date-time"});
    let many = json!({"type": "array", "items": {"type": "string"}, "maxItems": 20});
    let mut all = json!({
        "cursor": query("cursor", "`next` or `previous` of another page", text.clone()),
        "limit": query("limit", "Items per page", json!({
            "type": "integer", "minimum": 1, "maximum": 200, "default": 50,
        })),
        "realm": query(
            "realm",
            "The realm that is meant. Of lists of tenants, only those in it. Of the audit log, only its lines and those \
             of its tenants. Of event types, that of the key when absent, and `default` for operator keys",
            text.clone(),
        ),
        "external_id": query("external_id", "Only tenants with this external id", text.clone()),
        "name_prefix": query("name_prefix", "Only tenants whose name begins so", text.clone()),
        "group": query("group", "Only event types of this group", text.clone()),
        "archived": query("archived", "Only archived event types, or only others", json!({"type": "boolean"})),
        "prefix": query("prefix", "Only event types whose name begins so", text.clone()),
        "name": query("name", "Only the one with this name", text.clone()),
        "order": query("order", "Newest first or oldest first; a cursor keeps the order it was made for", json!({
            "type": "string", "enum": ["newest", "oldest"], "default": "newest",
        })),
        "from": query("from", "Nothing before this time", time.clone()),
        "until": query("until", "Nothing at or after this time", time),
        "topic": query("topic", "Only events on this topic; on one of them when given several times", many.clone()),
        "type": query("type", "Only events of this type; of one of them when given several times", many.clone()),
        "attribute": query(
            "attribute",
            "Only events with this attribute, as name=value; with all of them when given several times. Not \
             indexed: a page may end early, see `scanned_until`",
            many,
        ),
        "key": query("key", "Only events with this key", text.clone()),
        "publisher_id": query("publisher_id", "Only the event that was published with this Idempotency-Key", text.clone()),
        "dead_letters": query("dead_letters", "Only events with a dead letter", json!({"type": "boolean", "const": true})),
        "rebuild": query("rebuild", "Show what an attempt would send now, also when one was sent before", json!({"type": "boolean"})),
        "unwanted": query("unwanted", "Only events that matched no subscription", json!({"type": "boolean", "const": true})),
        "event": query("event", "Only what belongs to this event", text.clone()),
        "subscription": query("subscription", "Only what belongs to this subscription, by id or name", text.clone()),
        "state": query("state", "Only deliveries in this state; pending includes in_flight", json!({
            "type": "string", "enum": ["pending", "in_flight", "delivered", "dead", "cancelled"],
        })),
        "reason": query("reason", "Only deliveries that ended for this reason", json!({
            "type": "string",
            "enum": ["exhausted", "permanent", "gate", "expired", "unsubscribed", "operator", "dropped"],
        })),
        "status": query(
            "status",
            "Only what was answered with this HTTP status, or this class of them; of deliveries, the last attempt \
             counts",
            json!({"type": "string", "pattern": "^([1-5]xx|[1-5][0-9][0-9])$", "examples": ["5xx", "404"]}),
        ),
        "failure": query(
            "failure",
            "Only what was not answered, with this failure code; of deliveries, the last attempt counts",
            text.clone(),
        ),
        "trigger": query("trigger", "Only attempts that somebody asked for, or that the schedule made", json!({
            "type": "string", "enum": ["manual", "scheduled"],
        })),
        "kind": query("kind", "Only events, or only attempts", json!({
            "type": "string", "enum": ["events", "attempts"],
        })),
        "scope": query("scope", "Whose figures; those of the server are for operators", json!({
            "type": "string", "enum": ["server", "tenant", "subscription"], "default": "tenant",
        })),
        "id": query(
            "id",
            "The tenant or the subscription, by id or name; without it, the caller's tenant",
            text.clone(),
        ),
        "step": query(
            "step",
            "How long the steps are. Minutes are kept for 48 hours, hours for 90 days",
            json!({"type": "string", "enum": ["minute", "hour"], "default": "minute"}),
        ),
        "responses": query(
            "responses",
            "Also remove the responses to all attempts of the event",
            json!({"type": "boolean", "default": false}),
        ),
        "cancel": query(
            "cancel",
            "Cancel the deliveries that have not ended first; otherwise the request is refused while there are any",
            json!({"type": "boolean", "default": false}),
        ),
        "Posthorn-Tenant": header(
            "Posthorn-Tenant",
            "The tenant (id or name) that an operator key or a key of a realm acts for. For operator keys, \
             `default` when absent; keys of realms must name one of their tenants",
            text.clone(),
        ),
        "Idempotency-Key": header(
            "Idempotency-Key",
            "Requests with the same key publish only once",
            json!({"type": "string", "minLength": 1, "maxLength": 255}),
        ),
        "traceparent": header(
            "traceparent",
            "The trace that the request belongs to (W3C Trace Context). One that is not valid is ignored",
            text.clone(),
        ),
        "Last-Event-ID": header(
            "Last-Event-ID",
            "The last `id` of an earlier stream: this one begins after it; without it, with what happens from now on",
            text.clone(),
        ),
        "If-Match": header("If-Match", "Change only if this is still the current `ETag`", text.clone()),
        "cloudevent-topic": query("topic", "The topic of CloudEvents; of other events, it is in the body", text.clone()),
        "WebHook-Request-Origin": header(
            "WebHook-Request-Origin",
            "The sender that asks for permission; without it, only `Allow` is answered",
            text.clone(),
        ),
    });
    let audit = [
        ("tenant", "Only lines of this tenant, by id or name; also of one that was deleted, by id"),
        (
            "actor",
            "Only what was done by the key, certificate, client or session with this id, as far as the caller may know it",
        ),
        ("object", "Only what was done to the thing with this id (or name, where it has no id)"),
    ];
    for (name, description) in audit {
        all[name] = query(name, description, text.clone());
    }
    all["action"] = query(
        "action",
        "Only this action, or all that begin with this word",
        json!({"type": "string", "examples": ["subscription", "subscription.created"]}),
    );
    let kinds = posthorn_domain::SessionKind::ALL.map(posthorn_domain::SessionKind::as_str);
    all["session-kind"] = query(
        "kind",
        "Only sessions of the console, of the portal, or links that were not redeemed",
        json!({"type": "string", "enum": kinds}),
    );
    all["label"] = query("label", "Only sessions and links with this label", text.clone());
    for (name, description) in cloudevent::HEADERS {
        all[name] = header(name, description, text.clone());
    }
    all
}
