//! A message on its way from one node to another, as JSON. Nothing of it gets lost: what comes out is
//! equal to what went in.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use posthorn_domain::{
    AgentId, ChannelId, MessageId, PushHeaders, PushMessage, PushTopic, Timestamp,
};
use serde::{Deserialize, Serialize};

/// The largest message between nodes: room for a body as base64 and for the longest headers that a
/// listener lets in, even if each of their characters had to be escaped.
pub(super) const MESSAGE_BYTES_MAX: usize = 128 * 1024;

#[derive(Serialize)]
struct Written<'a> {
    #[serde(rename = "channelID")]
    channel: ChannelId,
    version: MessageId,
    ttl: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a PushTopic>,
    /// Whole seconds.
    timestamp: i64,
    /// The same moment, exactly.
    received_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<&'a PushHeaders>,
}

#[derive(Deserialize)]
struct Read {
    #[serde(rename = "channelID")]
    channel: ChannelId,
    version: MessageId,
    #[serde(default)]
    ttl: u32,
    topic: Option<PushTopic>,
    timestamp: i64,
    received_ms: Option<i64>,
    data: Option<String>,
    headers: Option<PushHeaders>,
}

/// Why something is not a message.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("read the JSON of a message")]
    Json(#[from] serde_json::Error),
    #[error("read the base64url of a body")]
    Data(#[from] base64::DecodeError),
}

/// The message without its agent, which is in the path.
pub(super) fn write(message: &PushMessage) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Written {
        channel: message.channel,
        version: message.id,
        ttl: message.ttl,
        topic: message.topic.as_ref(),
        timestamp: message.received_at.as_seconds(),
        received_ms: message.received_at.as_millis(),
        data: message.body.as_ref().map(|body| URL_SAFE_NO_PAD.encode(body)),
        headers: message.headers.as_ref(),
    })
}

/// Back again.
pub(super) fn read(agent: AgentId, json: &[u8]) -> Result<PushMessage, WireError> {
    let read: Read = serde_json::from_slice(json)?;
    let body = read.data.map(|data| URL_SAFE_NO_PAD.decode(data)).transpose()?;
    let received = read.received_ms.unwrap_or_else(|| read.timestamp.saturating_mul(1000));
    Ok(PushMessage {
        agent,
        channel: read.channel,
        id: read.version,
        topic: read.topic,
        ttl: read.ttl,
        received_at: Timestamp::from_millis(received),
        headers: read.headers,
        body: body.map(Bytes::from),
    })
}

#[cfg(test)]
mod tests {
    use posthorn_domain::PushEncoding;
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};
    use serde_json::{Value, json};

    use super::*;

    fn agent() -> AgentId {
        AgentId::from_random(1)
    }

    fn any_text(dice: &mut StdRng) -> Box<str> {
        let length = dice.random_range(0..100);
        (0..length).map(|_| dice.random::<char>()).collect::<String>().into()
    }

    fn any_message(dice: &mut StdRng) -> PushMessage {
        let topic = ["a", "news", "a==", "x-_0123456789012345678901234567="];
        let headers = PushHeaders {
            encoding: [PushEncoding::Aes128Gcm, PushEncoding::AesGcm][dice.random_range(0..2)],
            encryption: dice.random::<bool>().then(|| any_text(dice)),
            crypto_key: dice.random::<bool>().then(|| any_text(dice)),
        };
        let body: Vec<u8> = (0..dice.random_range(0..5_630)).map(|_| dice.random()).collect();
        PushMessage {
            agent: AgentId::from_random(dice.random()),
            channel: ChannelId::from_random(dice.random()),
            id: MessageId::from_random(dice.random()),
            topic: dice
                .random::<bool>()
                .then(|| topic[dice.random_range(0..4)].parse().expect("a topic")),
            ttl: dice.random(),
            received_at: Timestamp::from_millis(dice.random()),
            headers: dice.random::<bool>().then_some(headers),
            body: dice.random::<bool>().then(|| body.into()),
        }
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        let mut dice = StdRng::seed_from_u64(5);
        for _ in 0..500 {
            let message = any_message(&mut dice);
            let json = write(&message).expect("JSON");
            assert!(json.len() <= MESSAGE_BYTES_MAX);
            assert_eq!(read(message.agent, &json).expect("a message"), message);
        }
    }

    #[test]
    fn the_largest_message_is_not_too_large() {
        let headers = PushHeaders {
            encoding: PushEncoding::AesGcm,
            encryption: Some("\\".repeat(16 * 1024).into()),
            crypto_key: Some("\\".repeat(16 * 1024).into()),
        };
        let message = PushMessage {
            headers: Some(headers),
            body: Some(vec![0; 8 * 1024].into()),
            ..any_message(&mut StdRng::seed_from_u64(1))
        };
        assert!(write(&message).expect("JSON").len() < MESSAGE_BYTES_MAX);
    }

    #[test]
    fn messages_are_spelled_as_on_the_socket() {
        let message = PushMessage {
            agent: agent(),
            channel: ChannelId::from_bytes([1; 16]),
            id: MessageId::from_bytes([2; 16]),
            topic: Some("news".parse().expect("a topic")),
            ttl: 60,
            received_at: Timestamp::from_millis(1_700_000_000_123),
            headers: Some(PushHeaders {
                encoding: PushEncoding::AesGcm,
                encryption: Some("salt=a".into()),
                crypto_key: Some("dh=b".into()),
            }),
            body: Some(Bytes::from_static(&[0xFB, 0xFF])),
        };
        let json: Value =
            serde_json::from_slice(&write(&message).expect("JSON")).expect("an object");
        let wanted = json!({
            "channelID": "01010101-0101-0101-0101-010101010101",
            "version": "02020202020202020202020202020202",
            "ttl": 60,
            "topic": "news",
            "timestamp": 1_700_000_000,
            "received_ms": 1_700_000_000_123_i64,
            "data": "-_8",
            "headers": {"encoding": "aesgcm", "encryption": "salt=a", "crypto_key": "dh=b"},
        });
        assert_eq!(json, wanted);
    }

    #[test]
    fn what_may_be_left_out_has_a_meaning() {
        let json = r#"{"channelID":"01010101-0101-0101-0101-010101010101",
            "version":"02020202020202020202020202020202","timestamp":12,"topic":null,"more":1}"#;
        let message = read(agent(), json.as_bytes()).expect("a message");
        assert_eq!(message.received_at, Timestamp::from_millis(12_000));
        assert_eq!((message.ttl, message.topic), (0, None));
        assert_eq!((message.headers, message.body), (None, None));
        for (from, to) in [
            ("\"timestamp\":12", "\"timestamp\":\"12\""),
            ("channelID", "channel"),
            ("02020202020202020202020202020202", "1"),
            ("\"topic\":null", "\"data\":\"a=\""),
            ("\"topic\":null", "\"data\":\"+\""),
            ("\"topic\":null", "\"topic\":\"a b\""),
            ("\"topic\":null", "\"ttl\":-1"),
        ] {
            assert!(read(agent(), json.replace(from, to).as_bytes()).is_err(), "{to}");
        }
    }
}
