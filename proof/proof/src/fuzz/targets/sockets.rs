//! What agents write on their sockets, against an independent reading of the same JSON, and what a
//! session makes of it.

use posthorn_domain::{AgentId, Timestamp};
use posthorn_push::protocol::{ClientMessage, FRAME_BYTES_MAX, read};
use posthorn_push::session::{Broadcasts, Context, Options, Output, Session};
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
    "{}",
    "\\u0000",
    "\\ud800",
    "1e400",
    "-1",
    "65536",
    "[[[[[[[[[[[[[[[[",
    "\"messageType\":",
    "\"hello\"",
    "\"register\"",
    "\"unregister\"",
    "\"ack\"",
    "\"nack\"",
    "\"broadcast_subscribe\"",
    "\"ping\"",
    "\"uaid\":",
    "\"channelID\":",
    "\"key\":",
    "\"code\":",
    "\"updates\":[",
    "\"version\":",
    "\"broadcasts\":{",
    "01234567-89ab-cdef-0123-456789abcdef",
    "0123456789abcdef0123456789abcdef",
    "urn:uuid:",
    " ",
    "\n",
];

pub(super) fn message(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let result = read(text);
    drive(text, result.as_ref().err().map(|error| error.close().code()));
    let Ok(message) = result else { return false };
    assert!(text.len() <= FRAME_BYTES_MAX);
    // Half a surrogate pair in a text that nobody looks at is JSON, and no text.
    let Ok(json) = serde_json::from_str::<Value>(text) else { return false };
    let fields = json.as_object().expect("a message is an object");
    let kind = fields.get("messageType").map(|kind| kind.as_str().expect("a kind is a text"));
    match &message {
        ClientMessage::Ping => assert!(fields.is_empty() || kind == Some("ping")),
        ClientMessage::Hello { agent, broadcasts } => {
            assert_eq!(kind, Some("hello"));
            if let Some(agent) = agent {
                let text = json["uaid"].as_str().expect("a text").to_lowercase();
                let digits: String = text
                    .trim_start_matches("urn:uuid:")
                    .chars()
                    .filter(char::is_ascii_hexdigit)
                    .collect();
                assert_eq!(digits, agent.to_string());
            }
            agree(broadcasts, &json["broadcasts"]);
        }
        ClientMessage::Register { channel, key } => {
            assert_eq!(kind, Some("register"));
            assert_eq!(json["channelID"], channel.to_string());
            assert_eq!(key.as_deref(), json["key"].as_str());
        }
        ClientMessage::Unregister { channel, code } => {
            assert_eq!(kind, Some("unregister"));
            let text = json["channelID"].as_str().expect("a text");
            assert_eq!(text.parse(), Ok(*channel));
            assert_eq!(code.map(u64::from), json["code"].as_u64());
        }
        ClientMessage::Ack(acks) => {
            assert_eq!(kind, Some("ack"));
            let updates = json["updates"].as_array().expect("a list");
            assert_eq!(acks.len(), updates.len());
            for (ack, update) in acks.iter().zip(updates) {
                let version = update["version"].as_str().expect("a text");
                if let Some(id) = ack.id {
                    assert_eq!(id.to_string(), version);
                }
                assert_eq!(ack.code.map(u64::from), update["code"].as_u64());
            }
        }
        ClientMessage::Nack { code } => {
            assert_eq!(kind, Some("nack"));
            assert!(json["version"].is_string());
            assert_eq!(code.map(i64::from), json["code"].as_i64());
        }
        ClientMessage::BroadcastSubscribe(broadcasts) => {
            assert_eq!(kind, Some("broadcast_subscribe"));
            agree(broadcasts, &json["broadcasts"]);
        }
    }
    true
}

fn agree(broadcasts: &posthorn_push::protocol::Copies<'_>, json: &Value) {
    assert_eq!(broadcasts.len(), json.as_object().map_or(0, serde_json::Map::len));
    for (id, version) in broadcasts {
        assert_eq!(json[&**id], **version);
    }
}

/// A session gets the text as its first message, and another as its second: whatever it answers is
/// JSON, and whatever is no message ends it with the right code.
fn drive(text: &str, refused: Option<u16>) {
    let options = Options::default();
    let mut broadcasts = Broadcasts::default();
    broadcasts.set("known", "1").expect("there is room");
    let now = Timestamp::from_millis(1_700_000_000_000);
    let context = Context { now, options: &options, broadcasts: &broadcasts };
    for greeted in [false, true] {
        let mut out = Vec::new();
        let mut session = Session::new(AgentId::from_random(1), &context, &mut out);
        if greeted {
            session.text_frame(r#"{"messageType":"hello"}"#, &context, &mut out);
        }
        out.clear();
        session.text_frame(text, &context, &mut out);
        let mut closed = None;
        for output in &out {
            match output {
                Output::Send(text) => {
                    let json: Value = serde_json::from_str(text).expect("answers are JSON");
                    assert!(json.is_object());
                }
                Output::Close(close) => closed = Some(close.code()),
                _ => {}
            }
        }
        assert_eq!(closed.is_some(), session.is_closed());
        if refused.is_some() {
            assert_eq!(closed, refused);
        }
        assert_eq!(session.outstanding(), 0);
    }
}
