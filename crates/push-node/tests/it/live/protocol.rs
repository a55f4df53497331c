//! What agents may write, what they are answered, and how they are closed for everything else.

use serde_json::{Value, json};

use crate::live::house::{House, Wires, notification, options, request, store, text};
use crate::live::wire::{BINARY, CLOSE, HELLO, PING, PONG, Raw, TEXT, frame, greeted};

const PROTOCOL: (u16, &str) = (1002, "Protocol");
const UNSUPPORTED: (u16, &str) = (1003, "UnsupportedMessage");
const JSON: (u16, &str) = (1011, "Json");
const SM: (u16, &str) = (1011, "SM");

const CHANNEL: &str = "0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff";

async fn house() -> House {
    House::start(store(), &Wires::default(), options("n1")).await
}

/// A socket, or one that said hello, is closed for these bytes in this way.
async fn is_closed(house: &House, greet: bool, bytes: &[u8], close: (u16, &str)) {
    let mut raw = if greet { greeted(&house.url).await } else { Raw::open(&house.url, None).await };
    raw.bytes(bytes).await;
    let (code, reason) = raw.end().await;
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned();
    assert_eq!((code, reason.as_str()), close, "greeted: {greet}, {shown:?}");
    assert_eq!(raw.frame().await, None, "something after the close for {shown:?}");
}

#[tokio::test]
async fn what_is_no_frame_is_a_fault_of_protocol_at_any_time() {
    let house = house().await;
    let unmasked = [&[TEXT, 23], HELLO.as_bytes()].concat();
    let fragments = [frame(0x01, &[b' '; 40_000]), frame(0x80, &[b' '; 40_000])].concat();
    let interrupted = [frame(0x01, b"{"), frame(TEXT, HELLO.as_bytes())].concat();
    let table: [(&[u8], (u16, &str)); 12] = [
        (&frame(TEXT, &[b' '; 65_537]), PROTOCOL),
        (&fragments, PROTOCOL),
        (&unmasked, PROTOCOL),
        (&interrupted, PROTOCOL),
        // Reserved bits, reserved kinds.
        (&frame(0xc1, HELLO.as_bytes()), PROTOCOL),
        (&frame(0x91, HELLO.as_bytes()), PROTOCOL),
        (&frame(0x83, b""), PROTOCOL),
        (&frame(0x8b, b""), PROTOCOL),
        // A continuation of nothing; control frames that are too long or in pieces.
        (&frame(0x80, HELLO.as_bytes()), PROTOCOL),
        (&frame(PING, &[0; 126]), PROTOCOL),
        (&frame(0x09, b"ping"), PROTOCOL),
        // A text that is none.
        (&frame(TEXT, b"{\"messageType\":\"\xff\xfe\"}"), PROTOCOL),
    ];
    for (bytes, close) in table {
        for greet in [false, true] {
            is_closed(&house, greet, bytes, close).await;
        }
    }
}

#[tokio::test]
async fn everything_but_text_is_not_supported() {
    let house = house().await;
    for greet in [false, true] {
        is_closed(&house, greet, &frame(BINARY, HELLO.as_bytes()), UNSUPPORTED).await;
        is_closed(&house, greet, &frame(BINARY, b""), UNSUPPORTED).await;
    }
    // A ping before hello is answered, as every ping is; then it was the wrong first message.
    for payload in [&b""[..], b"are you there"] {
        let mut raw = Raw::open(&house.url, None).await;
        raw.bytes(&frame(PING, payload)).await;
        assert_eq!(raw.frame().await, Some((PONG, payload.to_vec())));
        let (code, reason) = raw.end().await;
        assert_eq!((code, reason.as_str()), UNSUPPORTED);
        assert_eq!(raw.frame().await, None, "nothing after the close");
    }
}

#[tokio::test]
async fn what_is_no_message_is_a_fault_of_json_at_any_time() {
    let house = house().await;
    let deep = format!(r#"{{"messageType":"hello","x":{}{}}}"#, "[".repeat(33), "]".repeat(33));
    let many: Vec<String> = (0..257).map(|n| format!(r#""b{n}":"1""#)).collect();
    let many = format!(r#"{{"messageType":"hello","broadcasts":{{{}}}}}"#, many.join(","));
    let texts = [
        "",
        " ",
        "hello",
        "{",
        "}",
        "null",
        "42",
        "true",
        "[]",
        "[{}]",
        r#""hello""#,
        r#"{"messageType":"hello""#,
        r#"{"messageType":"hello"}{}"#,
        r#"{"messageType":"hello",}"#,
        r#"{"messageType":"nothing"}"#,
        r#"{"messageType":"Hello"}"#,
        r#"{"messageType":"notification"}"#,
        r#"{"messageType":null}"#,
        r#"{"messageType":5}"#,
        r#"{"messagetype":"hello"}"#,
        r#"{"uaid":""}"#,
        r#"{"messageType":"hello","uaid":5}"#,
        r#"{"messageType":"hello","uaid":["a"]}"#,
        r#"{"messageType":"hello","broadcasts":[]}"#,
        r#"{"messageType":"hello","broadcasts":{"a":1}}"#,
        r#"{"messageType":"hello","broadcasts":"a"}"#,
        &deep,
        &many,
    ];
    for text in texts {
        for greet in [false, true] {
            is_closed(&house, greet, &frame(TEXT, text.as_bytes()), JSON).await;
        }
    }
}

#[tokio::test]
async fn hello_comes_first_and_once() {
    let house = house().await;
    let texts = [
        "{}".to_owned(),
        r#"{"messageType":"ping"}"#.to_owned(),
        format!(r#"{{"messageType":"register","channelID":"{CHANNEL}"}}"#),
        format!(r#"{{"messageType":"unregister","channelID":"{CHANNEL}"}}"#),
        r#"{"messageType":"ack","updates":[]}"#.to_owned(),
        r#"{"messageType":"nack","version":"x"}"#.to_owned(),
        r#"{"messageType":"broadcast_subscribe","broadcasts":{}}"#.to_owned(),
    ];
    for text in texts {
        is_closed(&house, false, &frame(TEXT, text.as_bytes()), SM).await;
    }
    is_closed(&house, true, &frame(TEXT, HELLO.as_bytes()), SM).await;
    let known = format!(r#"{{"messageType":"hello","uaid":"{}"}}"#, "a".repeat(32));
    is_closed(&house, true, &frame(TEXT, known.as_bytes()), SM).await;
    let both = [frame(TEXT, b"{}"), frame(TEXT, b"{}")].concat();
    let mut raw = greeted(&house.url).await;
    raw.bytes(&both).await;
    assert_eq!(raw.said().await, json!({}));
    assert_eq!(raw.end().await, (1011, "SM".to_owned()), "two pings within 45 seconds");
}

#[tokio::test]
async fn fields_that_are_missing_or_of_another_type_close_the_socket() {
    let house = house().await;
    let update = |fields: &str| format!(r#"{{"messageType":"ack","updates":[{fields}]}}"#);
    let table = [
        (r#"{"messageType":"register"}"#.to_owned(), JSON),
        (r#"{"messageType":"register","channelID":5}"#.to_owned(), JSON),
        (r#"{"messageType":"register","channelID":null}"#.to_owned(), JSON),
        (format!(r#"{{"messageType":"register","channelID":"{CHANNEL}","key":5}}"#), JSON),
        (r#"{"messageType":"register","channelID":""}"#.to_owned(), SM),
        (r#"{"messageType":"register","channelID":"junk"}"#.to_owned(), SM),
        (format!(r#"{{"messageType":"register","channelID":"{}"}}"#, CHANNEL.to_uppercase()), SM),
        (format!(r#"{{"messageType":"register","channelID":"{}"}}"#, CHANNEL.replace('-', "")), SM),
        (format!(r#"{{"messageType":"register","channelID":"{{{CHANNEL}}}"}}"#), SM),
        (format!(r#"{{"messageType":"register","channelID":" {CHANNEL}"}}"#), SM),
        (r#"{"messageType":"unregister"}"#.to_owned(), JSON),
        (r#"{"messageType":"unregister","channelID":"junk"}"#.to_owned(), JSON),
        (format!(r#"{{"messageType":"unregister","channelID":"{CHANNEL}","code":"200"}}"#), JSON),
        (format!(r#"{{"messageType":"unregister","channelID":"{CHANNEL}","code":-1}}"#), JSON),
        (format!(r#"{{"messageType":"unregister","channelID":"{CHANNEL}","code":1.5}}"#), JSON),
        (r#"{"messageType":"ack"}"#.to_owned(), JSON),
        (r#"{"messageType":"ack","updates":{}}"#.to_owned(), JSON),
        (update("5"), JSON),
        (update(r#"{"version":"v"}"#), JSON),
        (update(r#"{"channelID":"junk","version":"v"}"#), JSON),
        (update(&format!(r#"{{"channelID":"{CHANNEL}"}}"#)), JSON),
        (update(&format!(r#"{{"channelID":"{CHANNEL}","version":5}}"#)), JSON),
        (update(&format!(r#"{{"channelID":"{CHANNEL}","version":"v","code":"100"}}"#)), JSON),
        (update(&format!(r#"{{"channelID":"{CHANNEL}","version":"v","code":65536}}"#)), JSON),
        (r#"{"messageType":"nack"}"#.to_owned(), JSON),
        (r#"{"messageType":"nack","version":5}"#.to_owned(), JSON),
        (r#"{"messageType":"nack","version":"v","code":"301"}"#.to_owned(), JSON),
        (r#"{"messageType":"broadcast_subscribe"}"#.to_owned(), JSON),
        (r#"{"messageType":"broadcast_subscribe","broadcasts":null}"#.to_owned(), JSON),
        (r#"{"messageType":"broadcast_subscribe","broadcasts":["a"]}"#.to_owned(), JSON),
    ];
    for (text, close) in table {
        is_closed(&house, true, &frame(TEXT, text.as_bytes()), close).await;
    }
}

#[tokio::test]
async fn whatever_an_agent_calls_itself_it_gets_an_id_that_it_has() {
    let house = house().await;
    let fields = [
        "",
        r#","uaid":null"#,
        r#","uaid":"""#,
        r#","uaid":"garbage""#,
        r#","uaid":"5c1f3f7ad9f64a0d8d2c0d8f3a1b2c3d""#,
        r#","uaid":"5c1f3f7a-d9f6-4a0d-8d2c-0d8f3a1b2c3d""#,
        r#","use_webpush":false,"channelIDs":["junk",5],"broadcasts":null,"other":{"a":[1]}"#,
        r#","broadcasts":{},"channelIDs":[]"#,
    ];
    let mut seen = std::collections::HashSet::new();
    for fields in fields {
        let mut raw = Raw::open(&house.url, None).await;
        let hello = raw.hello(&format!(r#"{{"messageType":"hello"{fields}}}"#)).await;
        let id = hello["uaid"].as_str().expect("an id").to_owned();
        let expected = json!({
            "messageType": "hello", "uaid": id, "status": 200, "use_webpush": true,
            "broadcasts": {},
        });
        assert_eq!(hello, expected, "{fields}");
        let printed = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        assert!(id.len() == 32 && id.bytes().all(printed), "{id}");
        assert!(!id.starts_with("5c1f3f7a"), "never the one it proposed");
        assert!(seen.insert(id.clone()));
        // It is not kept before something is registered.
        let again = format!(r#"{{"messageType":"hello","uaid":"{id}"}}"#);
        let other = Raw::open(&house.url, None).await.hello(&again).await;
        assert_ne!(other["uaid"], hello["uaid"]);
    }
    let (agent, id, _) = house.registered().await;
    agent.close().await.expect("closed");
    let bare = id.to_string();
    let dashed = format!(
        "{}-{}-{}-{}-{}",
        &bare[..8],
        &bare[8..12],
        &bare[12..16],
        &bare[16..20],
        &bare[20..]
    );
    for spelled in [bare.clone(), dashed.clone(), dashed.to_uppercase()] {
        let hello = format!(r#"{{"messageType":"hello","uaid":"{spelled}"}}"#);
        let answer = Raw::open(&house.url, None).await.hello(&hello).await;
        assert_eq!(answer["uaid"], Value::String(bare.clone()), "{spelled}");
    }
}

#[tokio::test]
async fn fragments_pings_and_closes_are_understood() {
    let house = house().await;
    let mut raw = Raw::open(&house.url, None).await;
    let (head, tail) = HELLO.as_bytes().split_at(9);
    let pieces = [frame(0x01, head), frame(0x00, b""), frame(0x80, tail)].concat();
    // Byte by byte, so that they come in pieces on the wire as well.
    for byte in pieces {
        raw.bytes(&[byte]).await;
    }
    assert_eq!(raw.said().await["status"], 200);
    raw.bytes(&frame(PING, b"abc")).await;
    assert_eq!(raw.frame().await, Some((PONG, b"abc".to_vec())));
    raw.bytes(&frame(PONG, b"unasked")).await;
    // A ping amid the pieces of a text.
    let amid = [frame(0x01, b"{"), frame(PING, b"amid"), frame(0x80, b"}")].concat();
    raw.bytes(&amid).await;
    assert_eq!(raw.frame().await, Some((PONG, b"amid".to_vec())));
    assert_eq!(raw.said().await, json!({}));
    let padded = format!("{}{HELLO}", " ".repeat(65_536 - HELLO.len()));
    let mut largest = Raw::open(&house.url, None).await;
    assert_eq!(largest.hello(&padded).await["status"], 200, "65,536 bytes are not too many");
    // The agent's own close is repeated.
    for payload in [&b"\x03\xe8bye"[..], &b"\x0f\xa0"[..], b""] {
        let mut raw = greeted(&house.url).await;
        raw.bytes(&frame(CLOSE, payload)).await;
        let (kind, echo) = raw.frame().await.expect("a close");
        assert_eq!((kind, echo.get(..2)), (CLOSE, payload.get(..2)), "{payload:?}");
        assert_eq!(raw.frame().await, None);
    }
}

#[tokio::test]
async fn registering_and_unregistering_are_answered() {
    let house = house().await;
    let mut raw = greeted(&house.url).await;
    let key =
        "BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs";
    // Padded or not, in either alphabet; what is a key is not looked at.
    let table = [
        (String::new(), "/wpush/v1/"),
        (r#","key":null"#.to_owned(), "/wpush/v1/"),
        (format!(r#","key":"{key}""#), "/wpush/v2/"),
        (format!(r#","key":"{key}=""#), "/wpush/v2/"),
        (format!(r#","key":"{}=""#, key.replace('-', "+").replace('_', "/")), "/wpush/v2/"),
        (r#","key":"AAAA""#.to_owned(), "/wpush/v2/"),
    ];
    let mut urls = std::collections::HashSet::new();
    for (field, kind) in table {
        raw.text(&format!(r#"{{"messageType":"register","channelID":"{CHANNEL}"{field}}}"#)).await;
        let answer = raw.said().await;
        let url = answer["pushEndpoint"].as_str().expect("a URL").to_owned();
        assert!(url.starts_with(&format!("{}{kind}", house.url)), "{url}");
        assert!(urls.insert(url.clone()), "each looks different");
        let expected = json!({
            "messageType": "register", "channelID": CHANNEL, "status": 200, "pushEndpoint": url,
        });
        assert_eq!(answer, expected);
    }
    for key in ["", "not base64!", "AA*A"] {
        raw.text(&format!(r#"{{"messageType":"register","channelID":"{CHANNEL}","key":"{key}"}}"#))
            .await;
        let expected = json!({
            "messageType": "register", "channelID": CHANNEL, "status": 400,
            "pushEndpoint": "Failed to generate endpoint",
        });
        assert_eq!(raw.said().await, expected, "{key}");
    }
    let gone = json!({"messageType": "unregister", "channelID": CHANNEL, "status": 200});
    let spellings = [CHANNEL.to_owned(), CHANNEL.to_uppercase(), CHANNEL.replace('-', "")];
    for (spelled, code) in spellings.iter().zip(["", r#","code":202"#, r#","code":0"#]) {
        // It is there the first time only, which makes no difference.
        raw.text(&format!(r#"{{"messageType":"unregister","channelID":"{spelled}"{code}}}"#)).await;
        assert_eq!(raw.said().await, gone);
    }
    for url in urls.iter().filter(|url| url.contains("/v1/")) {
        assert_eq!(house.knock(url, "TTL: 0\r\n").await.status, 410);
    }
}

#[tokio::test]
async fn what_means_nothing_is_ignored_without_a_word() {
    let house = house().await;
    let (mut agent, _, endpoint) = house.registered().await;
    assert_eq!(house.post(&endpoint, "body").await.status, 201);
    assert_eq!(house.knock(&endpoint, "TTL: 60\r\nEncryption: salt=abc\r\n").await.status, 201);
    let got = notification(&mut agent).await;
    assert_eq!((text(&got).as_str(), got.headers.is_some()), ("body", true));
    let knock = notification(&mut agent).await;
    assert!(knock.data.is_none() && knock.headers.is_none(), "{knock:?}");
    let mut raw = greeted(&house.url).await;
    let version = &got.version;
    let update = |code: &str| {
        let one = format!(r#"{{"channelID":"{CHANNEL}","version":"{version}"{code}}}"#);
        format!(r#"{{"messageType":"ack","updates":[{one},{one}],"x":1}}"#)
    };
    let texts = [
        r#"{"messageType":"ack","updates":[]}"#.to_owned(),
        // Of another agent; of nobody.
        update(""),
        update(r#","code":100"#),
        update(r#","code":null,"other":[]"#),
        update("").replace(version.as_str(), "unknown"),
        update("").replace(version.as_str(), ""),
        r#"{"messageType":"nack","version":"unknown"}"#.to_owned(),
        r#"{"messageType":"nack","version":"","code":303}"#.to_owned(),
        r#"{"messageType":"nack","version":"x","code":-7}"#.to_owned(),
        r#"{"messageType":"broadcast_subscribe","broadcasts":{}}"#.to_owned(),
    ];
    for text in texts {
        raw.text(&text).await;
    }
    raw.text("{ \n}").await;
    assert_eq!(raw.said().await, json!({}));
    raw.silence().await;
}

#[tokio::test]
async fn only_the_root_is_a_socket() {
    let house = house().await;
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade, close\r\n";
    let thirteen = "Sec-WebSocket-Version: 13\r\n";
    let table = [
        ("GET", "x://h/", String::new(), 426),
        ("GET", "x://h/", format!("{key}{thirteen}"), 426),
        ("GET", "x://h/", format!("{upgrade}{key}"), 426),
        ("GET", "x://h/", format!("{upgrade}{key}Sec-WebSocket-Version: 8\r\n"), 426),
        ("GET", "x://h/", format!("{upgrade}{thirteen}"), 400),
        ("POST", "x://h/", format!("{upgrade}{key}{thirteen}"), 405),
        ("GET", "x://h/push", format!("{upgrade}{key}{thirteen}"), 404),
    ];
    for (method, to, headers, status) in table {
        let answer = request(&house.url, method, to, &headers, b"").await;
        assert_eq!(answer.status, status, "{method} {to} {headers:?}: {answer:?}");
    }
}
