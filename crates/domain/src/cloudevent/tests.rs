use bytes::Bytes;
use serde_json::{Value, json};

use super::json::{Data, ReadError, read, write};
use super::*;
use crate::{EventId, EventType, TenantId, TopicName};

fn whole() -> Value {
    json!({"specversion": "1.0", "id": "A 1", "source": "/shop", "type": "order.paid"})
}

fn with(changes: &[(&str, Value)]) -> String {
    let mut event = whole();
    for (name, value) in changes {
        if *value == json!("absent") {
            event.as_object_mut().unwrap().remove(*name);
        } else {
            event[*name] = value.clone();
        }
    }
    event.to_string()
}

#[track_caller]
fn refused(text: &str, attribute: &str) {
    match read(text) {
        Err(ReadError::Fault(fault)) => assert_eq!(fault.attribute, attribute, "{text}: {fault}"),
        other => panic!("{text} is {other:?}"),
    }
}

#[test]
fn attributes_are_checked_and_named() {
    assert!(read(&with(&[])).is_ok());
    for name in ["specversion", "id", "source", "type"] {
        refused(&with(&[(name, json!("absent"))]), name);
        refused(&with(&[(name, json!(null))]), name);
        refused(&with(&[(name, json!(""))]), name);
        refused(&with(&[(name, json!(1))]), name);
        refused(&with(&[(name, json!({}))]), name);
        refused(&with(&[(name, json!("a\u{7}"))]), name);
        refused(&with(&[(name, json!("a".repeat(4_001)))]), name);
    }
    for version in ["0.3", "1.1", "1", "1.0.0", "2.0"] {
        refused(&with(&[("specversion", json!(version))]), "specversion");
    }
    for (name, bad) in [
        ("source", json!("a b")),
        ("time", json!("yesterday")),
        ("time", json!("2026-01-31 12:00:00Z")),
        ("time", json!("2026-01-31")),
        ("time", json!("2026-01-31T12:00:00+01:00[Europe/Paris]")),
        ("subject", json!("")),
        ("datacontenttype", json!("json")),
        ("datacontenttype", json!("a/b\u{e4}")),
        ("dataschema", json!("/relative")),
        ("Upper", json!("x")),
        ("snake_case", json!("x")),
        ("ext", json!([1])),
        ("ext", json!(1.5)),
        ("ext", json!(2_147_483_648_i64)),
        ("ext", json!("a\nb")),
        ("data_base64", json!("%%%")),
        ("data_base64", json!(5)),
    ] {
        refused(&with(&[(name, bad)]), name);
    }
    refused(&with(&[("data", json!(1)), ("data_base64", json!("AA=="))]), "data_base64");
    for (name, good) in [
        ("time", json!("2026-01-31T12:00:00.123456789+01:00")),
        ("dataschema", json!("https://example.com/s")),
        ("ext", json!(null)),
        ("ext", json!(-7)),
        ("ext", json!(true)),
        ("datacontenttype", json!("text/plain; charset=utf-8")),
    ] {
        assert!(read(&with(&[(name, good.clone())])).is_ok(), "{name}: {good}");
    }
}

#[test]
fn what_is_no_object_is_no_cloudevent() {
    for text in ["", "[]", "1", "null", "{", r#"{"id":"1","id":"2"}"#] {
        assert!(matches!(read(text), Err(ReadError::Json(_))), "{text}");
    }
    let many: serde_json::Map<String, Value> =
        (0..201).map(|n| (format!("a{n}"), json!(n))).collect();
    assert!(matches!(read(&Value::Object(many).to_string()), Err(ReadError::Json(_))));
}

#[test]
fn data_is_json_text_or_bytes() {
    let data = |changes: &[(&str, Value)]| {
        let text = with(changes);
        match read(&text).expect("reads").1 {
            Data::None => "nothing".to_owned(),
            Data::Json(json) => format!("json {json}"),
            Data::Text(text) => format!("text {text}"),
            Data::Bytes(bytes) => format!("bytes {bytes:?}"),
        }
    };
    let kind = |kind: &str| ("datacontenttype", json!(kind));
    assert_eq!(data(&[]), "nothing");
    assert_eq!(data(&[("data", json!(null))]), "json null");
    assert_eq!(data(&[("data", json!("a"))]), "json \"a\"");
    assert_eq!(data(&[("data", json!("a")), kind("application/x+json")]), "json \"a\"");
    assert_eq!(data(&[("data", json!("<a/>")), kind("application/xml")]), "text <a/>");
    assert_eq!(data(&[("data", json!({"a": 1})), kind("text/plain")]), "json {\"a\":1}");
    assert_eq!(data(&[("data_base64", json!("AP8="))]), "bytes [0, 255]");
    assert_eq!(data(&[("data_base64", json!(null)), ("data", json!(1))]), "json 1");
}

fn event(attributes: BTreeMap<String, String>, payload: &'static [u8]) -> Event {
    Event {
        id: EventId::new(Timestamp::from_millis(1_700_000_000_000), 7),
        tenant: TenantId::DEFAULT,
        topic: TopicName::new("orders").unwrap(),
        event_type: EventType::new("order.paid").unwrap(),
        attributes,
        key: None,
        content_type: "application/json".to_owned(),
        payload: Bytes::from_static(payload),
        accepted_at: Timestamp::from_millis(1_700_000_000_000),
        publisher_id: None,
        deliver_at: None,
        retention: None,
        expunged_at: None,
        trace: None,
    }
}

fn derived() -> Result<String, ()> {
    Ok("/topics/orders".to_owned())
}

#[test]
fn an_accepted_cloudevent_comes_out_as_it_went_in() {
    let text = with(&[
        ("time", json!("2026-01-31T12:00:00.000000001Z")),
        ("subject", json!("order/7 ä")),
        ("dataschema", json!("urn:schema")),
        ("datacontenttype", json!("application/json")),
        ("region", json!("eu")),
        ("number", json!("42")),
        ("attempt", json!(42)),
        ("last", json!(false)),
        ("data", json!({"a": 1})),
    ]);
    let (context, _) = read(&text).expect("reads");
    let kept = event(context.attributes(), b"{\"a\":1}");
    assert!(Event::check_attributes(&kept.attributes).is_ok());
    let again = Context::of_event(&kept, "application/json", derived).expect("a context");
    assert_eq!(again, context);
    let out: Value = serde_json::from_slice(&write(&again, &kept.payload)).expect("JSON");
    assert_eq!(out, serde_json::from_str::<Value>(&text).unwrap());
    let headers = headers::write(&again);
    let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let mut back = headers::read(pairs, Some("application/json")).expect("reads");
    // Headers have no types.
    assert_eq!(
        back.extensions.insert("attempt".to_owned(), Scalar::Integer(42)).unwrap().to_text(),
        "42"
    );
    back.extensions.insert("last".to_owned(), Scalar::Boolean(false));
    assert_eq!(back, context);
}

#[test]
fn an_event_that_was_no_cloudevent_gets_its_own_id_time_and_source() {
    let attributes = [
        ("region", "eu"),
        ("subject", "order/7"),
        ("id", "9"),
        ("source", "web"),
        ("Upper", "x"),
        ("snake_case", "x"),
        ("line", "a\nb"),
        ("ce-time", "never"),
    ];
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let event = event(BTreeMap::from(attributes), b"{ \"a\" : 1.0 }");
    let context = Context::of_event(&event, "application/json", derived).expect("a context");
    let text = String::from_utf8(write(&context, &event.payload)).expect("text");
    assert!(text.ends_with(r#","data":{ "a" : 1.0 }}"#), "byte for byte: {text}");
    let out: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        out,
        json!({"specversion": "1.0", "id": event.id.to_string(), "source": "/topics/orders",
            "type": "order.paid", "time": "2023-11-14T22:13:20.000Z", "subject": "order/7",
            "datacontenttype": "application/json", "region": "eu", "data": {"a": 1.0}})
    );
    assert!(read(&text).is_ok());
}

#[test]
fn data_goes_out_by_its_type() {
    let out = |kind: &str, payload: &'static [u8]| {
        let context = Context::of_event(&event(BTreeMap::new(), payload), kind, derived).unwrap();
        let out: Value = serde_json::from_slice(&write(&context, payload)).expect("JSON");
        (out.get("data").cloned(), out.get("data_base64").cloned())
    };
    assert_eq!(out("application/json", b"[1]"), (Some(json!([1])), None));
    assert_eq!(out("application/json", b"[1"), (None, Some(json!("WzE="))));
    assert_eq!(out("application/json", b"\"\xff\""), (None, Some(json!("Iv8i"))));
    assert_eq!(out("text/plain", b"[1]"), (Some(json!("[1]")), None));
    assert_eq!(out("image/svg+xml", b"<a/>"), (Some(json!("<a/>")), None));
    assert_eq!(out("text/plain", b"\xff"), (None, Some(json!("/w=="))));
    assert_eq!(out("application/octet-stream", b"[1]"), (None, Some(json!("WzFd"))));
    assert_eq!(out("application/json", b""), (None, None));
}

#[test]
fn headers_are_percent_encoded_and_back() {
    for text in ["a b", "50%", "\"q\"", "ä€😀", "plain/path?x=1", "%20", "~!"] {
        let mut extensions = BTreeMap::new();
        extensions.insert("ext".to_owned(), Scalar::Text(text.to_owned()));
        let (context, _) = read(&with(&[])).unwrap();
        let context = Context { extensions, ..context };
        let headers = headers::write(&context);
        for (_, value) in &headers {
            assert!(value.bytes().all(|b| matches!(b, b'!'..=b'~') && b != b'"'), "{value}");
        }
        let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        assert_eq!(headers::read(pairs, None).expect("reads"), context, "{text}");
    }
    let (context, _) = read(&with(&[])).unwrap();
    let written = headers::write(&Context { subject: Some("Euro € 😀".to_owned()), ..context });
    assert!(
        written.contains(&("ce-subject".to_owned(), "Euro%20%E2%82%AC%20%F0%9F%98%80".to_owned()))
    );
}

#[test]
fn headers_that_are_wrong_are_named() {
    let good: [(&str, &[u8]); 4] =
        [("ce-specversion", b"1.0"), ("ce-id", b"1"), ("ce-source", b"/s"), ("ce-type", b"t")];
    let read = |more: &[(&'static str, &'static [u8])]| {
        headers::read(good.iter().copied().chain(more.iter().copied()), Some("text/plain"))
    };
    let context =
        read(&[("ce-ext", b"\"a \\\" %41\""), ("host", b"x"), ("x-ce", b"\xff")]).unwrap();
    assert_eq!(context.extensions["ext"], Scalar::Text("a \" A".to_owned()));
    assert_eq!(context.data_content_type.as_deref(), Some("text/plain"));
    for (header, value, attribute) in [
        ("ce-ext", &b"%"[..], "ext"),
        ("ce-ext", b"%4", "ext"),
        ("ce-ext", b"%zz", "ext"),
        ("ce-ext", b"%ff", "ext"),
        ("ce-ext", b"\xff", "ext"),
        ("ce-ext", b"%00", "ext"),
        ("ce-id", b"2", "id"),
        ("ce-ex-t", b"2", "ex-t"),
        ("ce-", b"2", ""),
        ("ce-datacontenttype", b"a/b", "datacontenttype"),
        ("ce-data", b"2", "data"),
        ("ce-time", b"now", "time"),
    ] {
        assert_eq!(read(&[(header, value)]).unwrap_err().attribute, attribute, "{header}");
    }
}

#[test]
fn media_types_are_known_by_their_names() {
    for kind in ["application/json", "Application/JSON; charset=utf-8", "a/b+json", "text/json"] {
        assert!(is_json(kind), "{kind}");
    }
    for kind in ["", "json", "text/plain", "application/jsonx", "application/json+xml"] {
        assert!(!is_json(kind), "{kind}");
    }
    assert!(is_structured("application/CloudEvents+json;charset=UTF-8"));
    assert!(!is_structured("application/cloudevents-batch+json"));
}
