//! The description of this API, as JSON and as YAML.

use std::fmt::Write as _;

use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

use super::notificatie::{CLOUDEVENT, JSON};
use super::problem::{PROBLEM, plain};

/// The description, for a server at `base`.
fn document(base: &str) -> Value {
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Notificaties API",
            "version": "1.0.0",
            "description": "Routes notifications between components: publishers send them here, \
                subscribers receive them at their callbacks, at least once.",
        },
        "servers": [{"url": base}],
        "security": [{"JWT-Claims": []}],
        "paths": {
            "/kanaal": {
                "get": operation("kanaal_list", "List the kanalen", None, list("Kanaal"), 200)
                    .with("parameters", json!([{"name": "naam", "in": "query",
                        "schema": {"type": "string"}}])),
                "post": operation("kanaal_create", "Create a kanaal", Some((JSON, "Kanaal")),
                    Some(one("Kanaal")), 201),
            },
            "/kanaal/{uuid}": {
                "parameters": uuid(),
                "get": operation("kanaal_read", "Get a kanaal", None, Some(one("Kanaal")), 200),
                "put": operation("kanaal_update", "Change a kanaal (experimental)",
                    Some((JSON, "Kanaal")), Some(one("Kanaal")), 200),
                "patch": operation("kanaal_partial_update",
                    "Change parts of a kanaal (experimental)",
                    Some((JSON, "Kanaal")), Some(one("Kanaal")), 200),
            },
            "/abonnement": {
                "get": operation("abonnement_list", "List the abonnementen", None,
                    list("Abonnement"), 200),
                "post": operation("abonnement_create", "Create an abonnement",
                    Some((JSON, "Abonnement")), Some(one("Abonnement")), 201),
            },
            "/abonnement/{uuid}": {
                "parameters": uuid(),
                "get": operation("abonnement_read", "Get an abonnement", None,
                    Some(one("Abonnement")), 200),
                "put": operation("abonnement_update", "Replace an abonnement",
                    Some((JSON, "Abonnement")), Some(one("Abonnement")), 200),
                "patch": operation("abonnement_partial_update", "Change parts of an abonnement",
                    Some((JSON, "Abonnement")), Some(one("Abonnement")), 200),
                "delete": operation("abonnement_delete", "Delete an abonnement", None, None, 204),
            },
            "/notificaties": {
                "post": operation("notificaties_create", "Publish a notification",
                    Some((JSON, "Notificatie")), Some(one("Notificatie")), 201),
            },
            "/cloudevents": {
                "post": operation("cloudevent_create", "Publish a CloudEvent (experimental)",
                    Some((CLOUDEVENT, "CloudEvent")),
                    Some(content(CLOUDEVENT, &reference("CloudEvent"))), 201),
            },
        },
        "components": {
            "securitySchemes": {"JWT-Claims":
                {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
            "schemas": schemas(),
        },
    })
}

/// A value with one more member.
trait With {
    fn with(self, name: &str, value: Value) -> Value;
}

impl With for Value {
    fn with(mut self, name: &str, value: Value) -> Value {
        if let Value::Object(members) = &mut self {
            members.insert(name.to_owned(), value);
        }
        self
    }
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn content(kind: &str, schema: &Value) -> Value {
    json!({kind: {"schema": schema}})
}

fn one(schema: &str) -> Value {
    content(JSON, &reference(schema))
}

fn list(schema: &str) -> Option<Value> {
    Some(content(JSON, &json!({"type": "array", "items": reference(schema)})))
}

fn uuid() -> Value {
    json!([{"name": "uuid", "in": "path", "required": true,
        "schema": {"type": "string", "format": "uuid"}}])
}

fn operation(
    id: &str,
    summary: &str,
    body: Option<(&str, &str)>,
    answer: Option<Value>,
    status: u16,
) -> Value {
    let version = json!({"API-version": {"description": "The version of this API.",
        "schema": {"type": "string"}}});
    let mut success = json!({"description": "Done.", "headers": version});
    if let Some(answer) = answer {
        success = success.with("content", answer);
    }
    let mut responses = Map::new();
    responses.insert(status.to_string(), success);
    let problems = [
        (400, "ValidatieFout", "The request is not valid."),
        (403, "Fout", "Not allowed."),
        (404, "Fout", "Not found."),
        (406, "Fout", "Not available in the requested media type."),
        (409, "Fout", "Changed by others at the same time."),
        (415, "Fout", "The body is of the wrong type."),
        (429, "Fout", "Too many requests."),
        (503, "Fout", "Temporarily unavailable."),
    ];
    for (status, schema, description) in problems {
        if status == 409 && !id.ends_with("update") {
            continue;
        }
        if status == 404
            && !id.ends_with("read")
            && !id.ends_with("update")
            && !id.ends_with("delete")
        {
            continue;
        }
        if status == 415 && body.is_none() {
            continue;
        }
        let content = content(PROBLEM, &reference(schema));
        responses.insert(
            status.to_string(),
            json!({"description": description, "content": content, "headers": version}),
        );
    }
    let tag = id.split('_').next().unwrap_or_default();
    let mut operation =
        json!({"operationId": id, "summary": summary, "tags": [tag], "responses": responses});
    if let Some((kind, schema)) = body {
        let content = content(kind, &reference(schema));
        operation = operation.with("requestBody", json!({"required": true, "content": content}));
    }
    operation
}

fn schemas() -> Value {
    let text = |max: usize| json!({"type": "string", "maxLength": max});
    let url = json!({"type": "string", "format": "uri"});
    let own_url = json!({"type": "string", "format": "uri", "readOnly": true});
    let map = json!({"type": "object", "additionalProperties": text(1_000)});
    let secret = |description: &str| {
        json!({"type": "string", "maxLength": 4_096, "writeOnly": true,
            "description": description})
    };
    json!({
        "Kanaal": {"type": "object", "required": ["naam"], "properties": {
            "url": own_url,
            "naam": text(50),
            "documentatieLink": {"type": "string", "format": "uri", "maxLength": 200},
            "filters": {"type": "array", "items": text(100)},
        }},
        "FilterGroup": {"type": "object", "required": ["naam"], "properties": {
            "filters": map, "naam": text(50),
        }},
        "CloudEventFilterGroup": {"type": "object", "required": ["typeSubstring"], "properties": {
            "typeSubstring": text(255), "filters": map,
        }},
        "Abonnement": {"type": "object", "required": ["callbackUrl", "auth"], "properties": {
            "url": own_url,
            "callbackUrl": {"type": "string", "format": "uri", "maxLength": 1_000},
            "auth": secret("The value of the header Authorization of deliveries."),
            "kanalen": {"type": "array", "items": reference("FilterGroup")},
            "sendCloudevents": {"type": "boolean", "default": false},
            "cloudeventFilters": {"type": "array", "items": reference("CloudEventFilterGroup")},
            "authType": {"type": "string", "default": "api_key", "writeOnly": true,
                "enum": ["no_auth", "api_key", "zgw", "oauth2_client_credentials"],
                "description": "Not in the standard."},
            "authClientId": secret("Not in the standard. For zgw and oauth2_client_credentials."),
            "secret": secret("Not in the standard. For zgw and oauth2_client_credentials."),
            "oauth2TokenUrl": secret("Not in the standard. For oauth2_client_credentials."),
            "oauth2Scope": secret("Not in the standard. For oauth2_client_credentials."),
            "clientCertificate": secret("Not in the standard. A registered client certificate."),
        }},
        "Notificatie": {"type": "object",
            "required": ["kanaal", "hoofdObject", "resource", "resourceUrl", "actie",
                "aanmaakdatum"],
            "properties": {
                "kanaal": text(50),
                "source": text(100),
                "hoofdObject": url,
                "resource": text(100),
                "resourceUrl": url,
                "actie": text(100),
                "aanmaakdatum": {"type": "string", "format": "date-time"},
                "kenmerken": map,
            }},
        "CloudEvent": {"type": "object", "required": ["id", "source", "specversion", "type"],
            "properties": {
                "id": text(255),
                "source": {"type": "string", "format": "uri-reference", "maxLength": 255},
                "specversion": {"type": "string", "pattern": "^\\d+\\.\\d+"},
                "type": text(255),
                "datacontenttype": text(255),
                "dataschema": url,
                "subject": text(255),
                "time": {"type": "string", "format": "date-time"},
                "data": {"nullable": true},
            }},
        "Fout": {"type": "object",
            "required": ["code", "title", "status", "detail", "instance"],
            "properties": {
                "type": {"type": "string"},
                "code": {"type": "string"},
                "title": {"type": "string"},
                "status": {"type": "integer"},
                "detail": {"type": "string"},
                "instance": {"type": "string"},
            }},
        "FieldValidationError": {"type": "object", "required": ["name", "code", "reason"],
            "properties": {
                "name": {"type": "string"},
                "code": {"type": "string"},
                "reason": {"type": "string"},
            }},
        "ValidatieFout": {"allOf": [reference("Fout"), {"type": "object",
            "required": ["invalidParams"],
            "properties": {"invalidParams": {"type": "array",
                "items": reference("FieldValidationError")}}}]},
    })
}

fn open(kind: &'static str, body: String) -> Response {
    let mut response = plain(StatusCode::OK, kind, body);
    let everybody = HeaderValue::from_static("*");
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, everybody);
    response
}

pub(super) fn json(base: &str) -> Response {
    open("application/vnd.oai.openapi+json", document(base).to_string())
}

pub(super) fn yaml(base: &str) -> Response {
    let mut text = String::new();
    write_yaml(&document(base), 0, &mut text);
    open("application/vnd.oai.openapi", text)
}

/// Block style, with every text quoted: then no text can be taken for anything else.
fn write_yaml(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, member) in members {
                let name = Value::String(name.clone());
                let _ = write!(out, "{indent}{name}:");
                write_member(member, depth, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let _ = write!(out, "{indent}-");
                write_member(item, depth, out);
            }
        }
        scalar => {
            let _ = writeln!(out, "{indent}{scalar}");
        }
    }
}

fn write_member(value: &Value, depth: usize, out: &mut String) {
    let block = match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if block {
        out.push('\n');
        write_yaml(value, depth + 1, out);
    } else {
        // JSON scalars and empty collections are YAML.
        let _ = writeln!(out, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_names_the_operations_of_the_standard() {
        let document = document("http://localhost/api/v1");
        let mut ids: Vec<&str> = document["paths"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(|path| path.as_object().unwrap().values())
            .filter_map(|operation| operation.get("operationId")?.as_str())
            .collect();
        ids.sort_unstable();
        let standard = [
            "abonnement_create",
            "abonnement_delete",
            "abonnement_list",
            "abonnement_partial_update",
            "abonnement_read",
            "abonnement_update",
            "cloudevent_create",
            "kanaal_create",
            "kanaal_list",
            "kanaal_partial_update",
            "kanaal_read",
            "kanaal_update",
            "notificaties_create",
        ];
        assert_eq!(ids, standard);
    }

    #[test]
    fn the_yaml_says_what_the_json_says() {
        let value = json!({"a": [1, {"b": "x: y #"}, [], {}], "c: d": null, "e": [[true]]});
        let mut text = String::new();
        write_yaml(&value, 0, &mut text);
        let expected = "\"a\":\n  - 1\n  -\n    \"b\": \"x: y #\"\n  - []\n  - {}\n\"c: d\": null\n\
                        \"e\":\n  -\n    - true\n";
        assert_eq!(text, expected);
    }
}
