//! What agents are told, byte for byte.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use posthorn_domain::{AgentId, ChannelId, PushMessage};

/// The answer to a ping of the agent.
pub const PING: &str = "{}";

/// The place of an endpoint in the answer to a `register` whose key is no key.
pub const NO_ENDPOINT: &str = "Failed to generate endpoint";

/// What is said about a broadcast that nobody knows.
const NOT_FOUND: &str = "Broadcast not found";

/// What an agent does not know yet about broadcasts it asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News<'a> {
    /// Ids with the version that is current.
    pub changed: Vec<(&'a str, &'a str)>,
    /// Ids that nobody knows.
    pub unknown: Vec<&'a str>,
}

impl News<'_> {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.unknown.is_empty()
    }
}

/// The answer to `hello`, with what [`broadcasts`] made.
pub fn hello(agent: AgentId, broadcasts: &str) -> String {
    format!(
        r#"{{"messageType":"hello","uaid":"{agent}","status":200,"use_webpush":true,"broadcasts":{broadcasts}}}"#
    )
}

/// The answer to `register`, with the endpoint when the status is 200.
pub fn register(channel: ChannelId, status: u16, endpoint: &str) -> String {
    let mut out = String::with_capacity(128 + endpoint.len());
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        r#"{{"messageType":"register","channelID":"{channel}","status":{status},"pushEndpoint":"#
    );
    text(&mut out, endpoint);
    out.push('}');
    out
}

/// The answer to `unregister`.
pub fn unregister(channel: ChannelId, status: u16) -> String {
    format!(r#"{{"messageType":"unregister","channelID":"{channel}","status":{status}}}"#)
}

/// A message for the agent. What only servers need (TTL, topic, time) is not in it, and without a
/// body there are no headers.
pub fn notification(message: &PushMessage) -> String {
    let body = message.body.as_ref().filter(|body| !body.is_empty());
    let size = body.map_or(0, |body| body.len().div_ceil(3) * 4);
    let mut out = String::with_capacity(256 + size);
    let _ = write!(
        out,
        r#"{{"messageType":"notification","channelID":"{}","version":"{}""#,
        message.channel, message.id
    );
    if let Some(body) = body {
        out.push_str(r#","data":""#);
        URL_SAFE_NO_PAD.encode_string(body, &mut out);
        out.push('"');
        if let Some(headers) = &message.headers {
            let _ = write!(out, r#","headers":{{"encoding":"{}""#, headers.encoding.as_str());
            for (name, value) in
                [("encryption", &headers.encryption), ("crypto_key", &headers.crypto_key)]
            {
                if let Some(value) = value {
                    let _ = write!(out, r#","{name}":"#);
                    text(&mut out, value);
                }
            }
            out.push('}');
        }
    }
    out.push('}');
    out
}

/// News about broadcasts.
pub fn broadcast(news: &News<'_>) -> String {
    format!(r#"{{"messageType":"broadcast","broadcasts":{}}}"#, broadcasts(news))
}

/// The object that tells the news.
pub fn broadcasts(news: &News<'_>) -> String {
    let mut text_of = String::from("{");
    let out = &mut text_of;
    let mut first = true;
    for (id, version) in &news.changed {
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        text(out, id);
        out.push(':');
        text(out, version);
    }
    if !news.unknown.is_empty() {
        if !first {
            out.push(',');
        }
        out.push_str(r#""errors":{"#);
        for (at, id) in news.unknown.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            text(out, id);
            out.push(':');
            text(out, NOT_FOUND);
        }
        out.push('}');
    }
    out.push('}');
    text_of
}

/// A JSON string. The pieces between characters that need an escape are copied whole.
fn text(out: &mut String, value: &str) {
    out.push('"');
    let mut rest = value;
    while let Some(at) = rest.find(|c: char| matches!(c, '"' | '\\') || (c as u32) < 0x20) {
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        match tail.as_bytes()[0] {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            control => {
                let _ = write!(out, "\\u{control:04x}");
            }
        }
        rest = &tail[1..];
    }
    out.push_str(rest);
    out.push('"');
}
