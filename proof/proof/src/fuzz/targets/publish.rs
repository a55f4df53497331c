//! Published events, against an independent reading of the same JSON.

use posthorn_api::fuzzing::{self, Understood};
use serde::de::IgnoredAny;
use serde_json::Value;

pub(super) const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "null",
    "true",
    "{}",
    "[]",
    "\\u0000",
    "\\ud800",
    "\\\"",
    "1e400",
    "-0",
    "[[[[[[[[[[[[[[[[",
    "\u{FEFF}",
    "\"topic\":",
    "\"type\":",
    "\"payload\":",
    "\"attributes\":",
    "\"key\":",
    "\"content_type\":",
    "\"deliver_at\":\"2027-01-31T08:00:00Z\"",
    "\"retention\":\"1h\"",
    "\"idempotency_key\":",
    "\"events\":[",
    "\"orders\"",
    "\"a.b\"",
    "\"text/plain\"",
    "\"\\u0074opic\":\"x\"",
    " ",
    "\n",
];

pub(super) fn check(input: &[u8]) -> bool {
    let mut accepted = strict(input);
    let event = fuzzing::understand_event(input);
    let batch = fuzzing::understand_batch(input);
    if event.is_none() && batch.is_none() {
        return accepted;
    }
    serde_json::from_slice::<IgnoredAny>(input).expect("what is accepted is JSON");
    // Half a surrogate pair in an escape is JSON by its grammar, and means nothing as a text. What
    // nobody looks at may contain it.
    let Ok(whole) = serde_json::from_slice::<Value>(input) else { return false };
    if let Some(event) = event {
        accepted = true;
        agree(&event, &whole, input);
    }
    if let Some(events) = batch {
        accepted = true;
        let items = whole["events"].as_array().expect("a batch has events");
        assert_eq!(events.len(), items.len());
        assert!(events.len() <= posthorn_domain::limits::BATCH_EVENTS_MAX);
        for (event, item) in events.iter().zip(items) {
            if let Some(event) = event {
                agree(event, item, input);
            }
        }
    }
    accepted
}

/// The event says what the JSON says, and its payload is a piece of the body, byte for byte.
fn agree(event: &Understood, json: &Value, body: &[u8]) {
    assert_eq!(Some(event.topic.as_str()), json["topic"].as_str());
    assert_eq!(Some(event.event_type.as_str()), json["type"].as_str());
    assert_eq!(event.key.as_deref(), json["key"].as_str());
    let attributes = json["attributes"].as_object().map_or(0, serde_json::Map::len);
    assert_eq!(event.attributes.len(), attributes);
    for (name, value) in &event.attributes {
        assert_eq!(Some(value.as_str()), json["attributes"][name].as_str());
    }
    assert!(http::HeaderValue::from_str(&event.content_type).is_ok(), "{}", event.content_type);
    assert!(
        body.windows(event.payload.len().max(1)).any(|piece| piece == event.payload.as_slice()),
        "the payload is not what was sent"
    );
    let payload: Value = serde_json::from_slice(&event.payload).expect("a payload is JSON");
    assert_eq!(payload, json["payload"]);
    assert!(depth(&payload) <= posthorn_domain::limits::JSON_DEPTH_MAX, "too deep");
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Small documents, where repeated keys are refused at any depth: as many keys as colons.
fn strict(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let Some(value) = fuzzing::parse_strict(text) else { return false };
    assert_eq!(serde_json::from_str::<Value>(text).ok().as_ref(), Some(&value), "{text:?}");
    assert!(depth(&value) <= posthorn_domain::limits::JSON_DEPTH_MAX);
    assert_eq!(keys(&value), colons(text), "a key is repeated in {text:?}");
    true
}

fn keys(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(keys).sum(),
        Value::Object(fields) => fields.len() + fields.values().map(keys).sum::<usize>(),
        _ => 0,
    }
}

/// Colons outside of strings: one for each key that was written.
fn colons(text: &str) -> usize {
    let (mut count, mut inside, mut escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b':' if !inside => count += 1,
            _ => {}
        }
    }
    count
}
