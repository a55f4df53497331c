//! The wire: every message of agents, and every text they are told.

use bytes::Bytes;
use posthorn_domain::{AgentId, ChannelId, PushEncoding, PushHeaders};
use posthorn_push::protocol::write::{self, News};
use posthorn_push::protocol::{
    Ack, BROADCASTS_MAX, ClientMessage, Close, FRAME_BYTES_MAX, NESTING_MAX, read,
};

use crate::rig::{CHANNEL, KNOWN, id, message};

const CHID: &str = "01234567-89ab-cdef-0123-456789abcdef";
const VERSION: &str = "000000000000000000000000000000aa";

fn chid() -> ChannelId {
    CHID.parse().expect("an id")
}

#[track_caller]
fn reads(text: &str, expected: &ClientMessage<'_>) {
    assert_eq!(read(text).as_ref(), Ok(expected), "{text}");
}

#[track_caller]
fn refuses(text: &str, close: Close) {
    match read(text) {
        Ok(message) => panic!("{text} was read as {message:?}"),
        Err(error) => assert_eq!(error.close(), close, "{text}: {error}"),
    }
}

fn hello(agent: Option<AgentId>) -> ClientMessage<'static> {
    ClientMessage::Hello { agent, broadcasts: Default::default() }
}

#[test]
fn hello_takes_any_spelling_of_an_id_and_treats_nonsense_as_none() {
    let plain = KNOWN.to_string();
    let dashed = ChannelId::from_bytes(*KNOWN.as_bytes()).to_string();
    for spelling in [&plain, &dashed, &plain.to_uppercase(), &dashed.to_uppercase()] {
        reads(&format!(r#"{{"messageType":"hello","uaid":"{spelling}"}}"#), &hello(Some(KNOWN)));
    }
    for none in [
        r#"{"messageType":"hello"}"#,
        r#"{"messageType":"hello","uaid":null}"#,
        r#"{"messageType":"hello","uaid":""}"#,
        r#"{"messageType":"hello","uaid":"nonsense"}"#,
        r#"{"messageType":"hello","uaid":"nonsense","use_webpush":false}"#,
        r#"{"messageType":"hello","broadcasts":null,"channelIDs":[]}"#,
        r#"{"messageType":"hello","channelIDs":["not a uuid",7],"use_webpush":{"a":[]}}"#,
        r#"{"messageType":"hello","code":"x","key":7,"updates":{},"version":[],"channelID":1}"#,
        "{\"messageType\":\"he\\u006clo\"}",
        " \r\n\t{ \"messageType\" : \"hello\" } ",
    ] {
        reads(none, &hello(None));
    }
    for wrong in [
        r#"{"messageType":"hello","uaid":7}"#,
        r#"{"messageType":"hello","uaid":["a"]}"#,
        r#"{"messageType":"hello","broadcasts":[]}"#,
        r#"{"messageType":"hello","broadcasts":{"a":1}}"#,
        r#"{"messageType":"hello","uaid":"\ud800"}"#,
    ] {
        refuses(wrong, Close::Json);
    }
}

#[test]
fn broadcasts_are_texts_by_id() {
    let broadcasts = [("a".into(), "1".into()), ("ä\n".into(), "2".into())].into();
    reads(
        r#"{"messageType":"hello","broadcasts":{"a":"1","ä\n":"2"}}"#,
        &ClientMessage::Hello { agent: None, broadcasts },
    );
    let broadcasts = [("a".into(), "2".into())].into();
    reads(
        r#"{"messageType":"broadcast_subscribe","broadcasts":{"a":"1","a":"2"}}"#,
        &ClientMessage::BroadcastSubscribe(broadcasts),
    );
    refuses(r#"{"messageType":"broadcast_subscribe"}"#, Close::Json);
    refuses(r#"{"messageType":"broadcast_subscribe","broadcasts":null}"#, Close::Json);
    refuses(r#"{"messageType":"broadcast_subscribe","broadcasts":"a"}"#, Close::Json);
    let many = |count: usize| {
        let pairs: Vec<String> = (0..count).map(|n| format!(r#""{n}":"""#)).collect();
        format!(r#"{{"messageType":"broadcast_subscribe","broadcasts":{{{}}}}}"#, pairs.join(","))
    };
    assert!(read(&many(BROADCASTS_MAX)).is_ok());
    refuses(&many(BROADCASTS_MAX + 1), Close::Json);
}

#[test]
fn register_wants_the_printed_form_of_a_channel() {
    let register = |key: Option<&'static str>| ClientMessage::Register {
        channel: chid(),
        key: key.map(Into::into),
    };
    reads(&format!(r#"{{"messageType":"register","channelID":"{CHID}"}}"#), &register(None));
    reads(
        &format!(r#"{{"messageType":"register","channelID":"{CHID}","key":null}}"#),
        &register(None),
    );
    reads(
        &format!(r#"{{"messageType":"register","channelID":"{CHID}","key":"AA==","uaid":3}}"#),
        &register(Some("AA==")),
    );
    for bad in [CHID.to_uppercase(), CHID.replace('-', ""), "nonsense".into(), String::new()] {
        let text = format!(r#"{{"messageType":"register","channelID":"{bad}"}}"#);
        refuses(&text, Close::BadChannel);
    }
    refuses(r#"{"messageType":"register"}"#, Close::Json);
    refuses(r#"{"messageType":"register","channelID":null}"#, Close::Json);
    refuses(r#"{"messageType":"register","channelID":7}"#, Close::Json);
    refuses(&format!(r#"{{"messageType":"register","channelID":"{CHID}","key":7}}"#), Close::Json);
}

#[test]
fn unregister_takes_any_spelling_and_a_number_as_code() {
    let unregister = |code| ClientMessage::Unregister { channel: chid(), code };
    for spelling in [CHID.to_owned(), CHID.to_uppercase(), CHID.replace('-', "")] {
        let text = format!(r#"{{"messageType":"unregister","channelID":"{spelling}"}}"#);
        reads(&text, &unregister(None));
    }
    reads(
        &format!(r#"{{"messageType":"unregister","channelID":"{CHID}","code":202}}"#),
        &unregister(Some(202)),
    );
    for code in [r#""200""#, "-1", "1.5", "4294967296", "[]"] {
        let text = format!(r#"{{"messageType":"unregister","channelID":"{CHID}","code":{code}}}"#);
        refuses(&text, Close::Json);
    }
    refuses(r#"{"messageType":"unregister"}"#, Close::Json);
    refuses(r#"{"messageType":"unregister","channelID":"nonsense"}"#, Close::Json);
}

#[test]
fn acks_are_matched_by_version_alone() {
    let ack = |updates: &str| format!(r#"{{"messageType":"ack","updates":{updates}}}"#);
    reads(&ack("[]"), &ClientMessage::Ack(Vec::new()));
    let two = format!(
        r#"[{{"channelID":"{CHID}","version":"{VERSION}","code":100}},
            {{"channelID":"{}","version":"of somebody else","x":[]}}]"#,
        CHID.to_uppercase()
    );
    reads(
        &ack(&two),
        &ClientMessage::Ack(vec![
            Ack { id: Some(id(0xaa)), code: Some(100) },
            Ack { id: None, code: None },
        ]),
    );
    for updates in [
        "null".to_owned(),
        "{}".to_owned(),
        "[7]".to_owned(),
        format!(r#"[{{"channelID":"{CHID}","version":7}}]"#),
        format!(r#"[{{"channelID":"{CHID}"}}]"#),
        format!(r#"[{{"version":"{VERSION}"}}]"#),
        format!(r#"[{{"channelID":"nonsense","version":"{VERSION}"}}]"#),
        format!(r#"[{{"channelID":"{CHID}","version":"{VERSION}","code":65536}}]"#),
        format!(r#"[{{"channelID":"{CHID}","version":"{VERSION}","code":"100"}}]"#),
    ] {
        refuses(&ack(&updates), Close::Json);
    }
    refuses(r#"{"messageType":"ack"}"#, Close::Json);
}

#[test]
fn nack_needs_a_version() {
    reads(r#"{"messageType":"nack","version":"x"}"#, &ClientMessage::Nack { code: None });
    reads(
        r#"{"messageType":"nack","version":"x","code":301}"#,
        &ClientMessage::Nack { code: Some(301) },
    );
    refuses(r#"{"messageType":"nack"}"#, Close::Json);
    refuses(r#"{"messageType":"nack","version":7}"#, Close::Json);
    refuses(r#"{"messageType":"nack","version":"x","code":"301"}"#, Close::Json);
}

#[test]
fn a_ping_is_an_empty_object_or_says_so() {
    for text in ["{}", "{ }", " {\r\n\t} ", r#"{"messageType":"ping"}"#] {
        reads(text, &ClientMessage::Ping);
    }
}

#[test]
fn what_is_no_message_closes_with_json() {
    for text in [
        "",
        " ",
        "nonsense",
        "null",
        "7",
        "\"{}\"",
        "[]",
        r#"["hello"]"#,
        r#"[ "hello", null, null, null, null, null, null, null ]"#,
        "{",
        "{}{}",
        "{} x",
        "\u{feff}{}",
        r#"{"messageType":"hello"} {}"#,
        r#"{"messageType":"hello",}"#,
        r#"{"messageType":null}"#,
        r#"{"messageType":7}"#,
        r#"{"messageType":"HELLO"}"#,
        r#"{"messageType":"unheard-of"}"#,
        r#"{"uaid":"x"}"#,
        r#"{"messageType":"ping","messageType":"hello"}"#,
        r#"{'messageType':'hello'}"#,
    ] {
        refuses(text, Close::Json);
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let padded = |bytes: usize| {
        let frame = r#"{"messageType":"ping","x":""}"#;
        format!(r#"{{"messageType":"ping","x":"{}"}}"#, "x".repeat(bytes - frame.len()))
    };
    reads(&padded(FRAME_BYTES_MAX), &ClientMessage::Ping);
    refuses(&padded(FRAME_BYTES_MAX + 1), Close::Protocol);
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
        format!(r#"{{"messageType":"ping","x":{open}{close}}}"#)
    };
    reads(&nested(NESTING_MAX), &ClientMessage::Ping);
    refuses(&nested(NESTING_MAX + 1), Close::Json);
    refuses(&"[".repeat(FRAME_BYTES_MAX), Close::Json);
    refuses(&"{\"a\":".repeat(10_000), Close::Json);
    // Brackets in texts are letters.
    let brackets = format!(r#"{{"messageType":"ping","x":"\"{}\\"}}"#, "[".repeat(1_000));
    reads(&brackets, &ClientMessage::Ping);
}

#[test]
fn answers_are_exact() {
    let agent: AgentId = CHID.parse().expect("an id");
    assert_eq!(
        write::hello(agent, &write::broadcasts(&News::default())),
        r#"{"messageType":"hello","uaid":"0123456789abcdef0123456789abcdef","status":200,"use_webpush":true,"broadcasts":{}}"#
    );
    assert_eq!(
        write::register(chid(), 200, "https://push.example.org/wpush/v1/x"),
        r#"{"messageType":"register","channelID":"01234567-89ab-cdef-0123-456789abcdef","status":200,"pushEndpoint":"https://push.example.org/wpush/v1/x"}"#
    );
    assert_eq!(
        write::register(chid(), 400, write::NO_ENDPOINT),
        r#"{"messageType":"register","channelID":"01234567-89ab-cdef-0123-456789abcdef","status":400,"pushEndpoint":"Failed to generate endpoint"}"#
    );
    assert_eq!(
        write::register(chid(), 500, ""),
        r#"{"messageType":"register","channelID":"01234567-89ab-cdef-0123-456789abcdef","status":500,"pushEndpoint":""}"#
    );
    assert_eq!(
        write::unregister(chid(), 200),
        r#"{"messageType":"unregister","channelID":"01234567-89ab-cdef-0123-456789abcdef","status":200}"#
    );
    assert_eq!(write::PING, "{}");
}

#[test]
fn notifications_are_exact() {
    let mut message = message(0xaa, posthorn_domain::Timestamp::MIN);
    message.channel = chid();
    message.topic = Some("news".parse().expect("a topic"));
    // Two bytes that base64 pads, with both letters that base64url has of its own.
    message.body = Some(Bytes::from_static(&[0xfb, 0xef, 0xff, 0xff]));
    assert_eq!(
        write::notification(&message),
        format!(
            r#"{{"messageType":"notification","channelID":"{CHID}","version":"{VERSION}","data":"--___w","headers":{{"encoding":"aes128gcm"}}}}"#
        )
    );
    message.headers = Some(PushHeaders {
        encoding: PushEncoding::AesGcm,
        encryption: Some("salt=\"a\\b".into()),
        crypto_key: Some("dh=\tx".into()),
    });
    assert_eq!(
        write::notification(&message),
        format!(
            r#"{{"messageType":"notification","channelID":"{CHID}","version":"{VERSION}","data":"--___w","headers":{{"encoding":"aesgcm","encryption":"salt=\"a\\b","crypto_key":"dh=\tx"}}}}"#
        )
    );
    for empty in [None, Some(Bytes::new())] {
        message.body = empty;
        assert_eq!(
            write::notification(&message),
            format!(
                r#"{{"messageType":"notification","channelID":"{CHID}","version":"{VERSION}"}}"#
            )
        );
    }
}

#[test]
fn broadcasts_are_exact() {
    let news = News { changed: vec![("a", "2"), ("b\"", "\u{1}")], unknown: Vec::new() };
    assert_eq!(
        write::broadcast(&news),
        r#"{"messageType":"broadcast","broadcasts":{"a":"2","b\"":"\u0001"}}"#
    );
    let news = News { changed: vec![("a", "2")], unknown: vec!["x", "y"] };
    assert_eq!(
        write::broadcast(&news),
        r#"{"messageType":"broadcast","broadcasts":{"a":"2","errors":{"x":"Broadcast not found","y":"Broadcast not found"}}}"#
    );
    let news = News { changed: Vec::new(), unknown: vec!["x"] };
    assert_eq!(
        write::broadcast(&news),
        r#"{"messageType":"broadcast","broadcasts":{"errors":{"x":"Broadcast not found"}}}"#
    );
    assert!(!news.is_empty() && News::default().is_empty());
}

#[test]
fn what_is_written_is_json_whatever_is_in_it() {
    for text in ["", "\"", "\\", "\u{0}\u{1f}\u{7f}", "a\"b\\c\nd\re\tf", "ä𝄞\u{2028}", "</script>"]
    {
        let written = write::register(CHANNEL, 200, text);
        let json: serde_json::Value = serde_json::from_str(&written).expect("JSON");
        assert_eq!(json["pushEndpoint"], text);
    }
}
