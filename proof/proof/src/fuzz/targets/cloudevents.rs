//! Published CloudEvents, against an independent reading of the same JSON; and that what goes out again is read as
//! what came in.

use std::collections::BTreeMap;

use bytes::Bytes;
use posthorn_api::fuzzing::{self, Understood};
use posthorn_domain::cloudevent::{self, Context};
use posthorn_domain::{Event, EventId, EventType, TenantId, Timestamp, TopicName};
use serde_json::Value;

pub(super) const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "null",
    "true",
    "7",
    "{}",
    "\\u0000",
    "\\u00e4",
    "\\ud800",
    "\"specversion\":\"1.0\",",
    "\"id\":",
    "\"source\":",
    "\"type\":",
    "\"time\":\"2026-01-31T12:00:00Z\",",
    "\"subject\":",
    "\"topic\":\"o\",",
    "\"partitionkey\":",
    "\"ext\":",
    "\"datacontenttype\":",
    "\"application/json\"",
    "\"text/plain\"",
    "\"dataschema\":\"urn:x\",",
    "\"data\":",
    "\"data_base64\":\"AA==\",",
    "ce-",
    "ce-ext: ",
    "ce-time: 2026-01-31T12:00:00Z",
    "content-type: application/json",
    "content-type: text/plain",
    "%20",
    "%C3%A4",
    "%",
    ": ",
    "\n",
    "\n\n",
];

pub(super) fn check(input: &[u8]) -> bool {
    let structured = fuzzing::understand_cloudevent(input);
    let batch = fuzzing::understand_cloudevents(input);
    let binary = binary(input);
    if let Some(event) = &structured {
        agree(event, &read(input));
        comes_back(event);
    }
    for (nth, event) in batch.iter().flatten().enumerate() {
        if let Some(event) = event {
            agree(event, &read(input)[nth]);
            comes_back(event);
        }
    }
    if let Some(event) = &binary {
        comes_back(event);
    }
    let any = batch.is_some_and(|events| events.iter().any(Option::is_some));
    structured.is_some() || any || binary.is_some()
}

fn read(input: &[u8]) -> Value {
    serde_json::from_slice(input).unwrap_or_default()
}

/// The event says what the JSON says.
fn agree(event: &Understood, json: &Value) {
    if json.is_null() {
        // Half a surrogate pair in the data, which is kept and not read.
        return;
    }
    assert_eq!(json["specversion"], "1.0");
    let kept = |name: &str| event.attributes.get(name).map(String::as_str);
    assert_eq!(Some(event.event_type.as_str()), json["type"].as_str());
    assert_eq!(Some(event.topic.as_str()), json["topic"].as_str());
    assert_eq!(event.key.as_deref(), json["partitionkey"].as_str());
    for (own, name) in [
        ("ce-id", "id"),
        ("ce-source", "source"),
        ("ce-time", "time"),
        ("subject", "subject"),
        ("ce-dataschema", "dataschema"),
    ] {
        assert_eq!(kept(own), json[name].as_str(), "{name}");
    }
    let kind = json["datacontenttype"].as_str().unwrap_or("application/json");
    assert_eq!(event.content_type, kind);
    let known = [
        "specversion",
        "id",
        "source",
        "type",
        "time",
        "subject",
        "datacontenttype",
        "dataschema",
        "data",
        "data_base64",
    ];
    for (name, value) in json.as_object().into_iter().flatten() {
        if known.contains(&name.as_str()) || value.is_null() {
            continue;
        }
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        assert_eq!(kept(name), Some(text.as_str()), "{name}");
    }
    let Some(data) = json.get("data") else { return };
    match data {
        Value::String(text) if !cloudevent::is_json(kind) => {
            assert_eq!(event.payload, text.as_bytes());
        }
        data => {
            assert_eq!(serde_json::from_slice::<Value>(&event.payload).ok().as_ref(), Some(data))
        }
    }
}

/// A request in binary mode: headers, an empty line, the body.
fn binary(input: &[u8]) -> Option<Understood> {
    let at = input.windows(2).position(|pair| pair == b"\n\n")?;
    let lines = input[..at].split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.windows(2).position(|pair| pair == b": ")?;
        Some((line[..colon].to_vec(), line[colon + 2..].to_vec()))
    });
    fuzzing::understand_binary_cloudevent(&lines.collect::<Vec<_>>(), &input[at + 2..])
}

/// Sent in either mode, it is read as the same event.
fn comes_back(event: &Understood) {
    let at = Timestamp::from_millis(1_700_000_000_000);
    let whole = Event {
        id: EventId::new(at, 7),
        tenant: TenantId::DEFAULT,
        topic: TopicName::new(&event.topic).expect("a name"),
        event_type: EventType::new(&event.event_type).expect("a type"),
        attributes: event.attributes.clone(),
        key: None,
        content_type: event.content_type.clone(),
        payload: Bytes::copy_from_slice(&event.payload),
        accepted_at: at,
        publisher_id: None,
        deliver_at: None,
        retention: None,
        expunged_at: None,
        trace: None,
    };
    Event::check_attributes(&whole.attributes).expect("attributes that can be kept");
    let never = || -> Result<String, ()> { panic!("an event that had a source has it") };
    let context = Context::of_event(&whole, &event.content_type, never).expect("a context");
    let sent = cloudevent::json::write(&context, &event.payload);
    let again = fuzzing::understand_cloudevent(&sent);
    same(event, again.expect("what is sent is a CloudEvent"), &sent);
    let mut headers: Vec<(Vec<u8>, Vec<u8>)> = cloudevent::headers::write(&context)
        .into_iter()
        .map(|(name, value)| (name.into_bytes(), value.into_bytes()))
        .collect();
    if !event.payload.is_empty() {
        headers.push((b"content-type".to_vec(), event.content_type.clone().into_bytes()));
    }
    let again = fuzzing::understand_binary_cloudevent(&headers, &event.payload);
    let mut event = event.clone();
    // Headers have no types.
    event.attributes.remove("ce-typed");
    same(&event, again.expect("what is sent is a CloudEvent"), &sent);
}

fn same(event: &Understood, mut again: Understood, sent: &[u8]) {
    let sent = String::from_utf8_lossy(sent);
    // One that had no time is sent with that of its acceptance.
    if !event.attributes.contains_key("ce-time") {
        again.attributes.remove("ce-time");
    }
    let told = |attributes: &BTreeMap<String, String>| format!("{attributes:?}");
    assert_eq!(told(&again.attributes), told(&event.attributes), "{sent}");
    assert_eq!(
        (&again.topic, &again.event_type, &again.key),
        (&event.topic, &event.event_type, &event.key),
        "{sent}"
    );
    assert_eq!(again.payload.trim_ascii(), event.payload.trim_ascii(), "{sent}");
    if !event.payload.is_empty() {
        assert_eq!(again.content_type, event.content_type, "{sent}");
    }
}
