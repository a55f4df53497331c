//! CloudEvents as the document describes them: one as JSON, its headers in binary mode, and the answer to a
//! sender that asks for permission.

use serde_json::{Value, json};

/// The headers of the binary mode, with what they mean.
pub(super) const HEADERS: [(&str, &str); 6] = [
    (
        "ce-specversion",
        "Makes the request a CloudEvent in binary mode: the body is its data, and extensions are \
         headers `ce-NAME`; must be 1.0",
    ),
    ("ce-id", "Unique together with the source (binary mode)"),
    ("ce-source", "Where it happened, a URI reference (binary mode)"),
    ("ce-type", "The event's type (binary mode)"),
    ("ce-time", "When it happened, RFC 3339 (binary mode)"),
    ("ce-subject", "What it happened to (binary mode)"),
];

fn text() -> Value {
    json!({"type": "string"})
}

/// What a sender that asks is told.
pub(super) fn answer_headers() -> Value {
    let header = |description: &str| json!({"description": description, "schema": text()});
    json!({
        "Allow": header("The methods of this path"),
        "WebHook-Allowed-Origin": header("The origin that asked, when it may publish"),
        "WebHook-Allowed-Rate": header("Requests per minute that it may send; `*` means any number"),
    })
}

/// The schemas.
pub(super) fn schemas() -> [(&'static str, Value); 2] {
    let limited = |description: &str| json!({"type": "string", "minLength": 1, "maxLength": 4_000, "description": description});
    let mut time = limited("When it happened");
    time["format"] = json!("date-time");
    let one = json!({
        "type": "object",
        "description": "A CloudEvent 1.0 in the JSON format. Further members are extensions: their \
                        names consist of a-z and 0-9",
        "required": ["specversion", "id", "source", "type"],
        "properties": {
            "specversion": {"type": "string", "const": "1.0"},
            "id": limited("Unique together with the source: a repeat is published only once"),
            "source": limited("Where it happened, a URI reference"),
            "type": {"type": "string", "minLength": 1, "maxLength": 128, "description": "The event's type: 1 to 128 characters of A-Z a-z 0-9 . _ - : /"},
            "time": time,
            "subject": limited("What it happened to; kept as the attribute `subject`"),
            "datacontenttype": {"type": "string", "maxLength": 255, "description": "The media type of the data; application/json when absent"},
            "dataschema": limited("The schema of the data, a URI"),
            "data": {"description": "The data; it becomes the payload. A text of another type than JSON is the payload itself"},
            "data_base64": {"type": "string", "contentEncoding": "base64", "description": "The data as bytes, instead of `data`"},
            "topic": {"type": "string", "description": "The topic, unless the query names one"},
            "partitionkey": {"type": "string", "maxLength": 255, "description": "The key of ordered lanes"},
        },
        "additionalProperties": {"type": ["string", "boolean", "integer", "null"]},
    });
    let many = json!({
        "type": "array",
        "maxItems": posthorn_domain::limits::BATCH_EVENTS_MAX,
        "items": super::reference("CloudEvent"),
    });
    [("CloudEvent", one), ("CloudEvents", many)]
}
