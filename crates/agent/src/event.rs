//! What arrives, read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use posthorn_domain::{AgentId, ChannelId, PushHeaders};
use posthorn_sealing::web_push::{DecryptError, ReceiverKeys};
use serde::Deserialize;
use serde_json::Value;

use crate::agent::Ack;
use crate::{Closed, DELIVERED, Error};

/// A message for one of the agent's channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// For which channel.
    pub channel: ChannelId,
    /// The message's name, to be repeated when it is acknowledged.
    pub version: String,
    /// The body; many messages are only a knock on the door.
    pub data: Option<Vec<u8>>,
    /// How to open the body.
    pub headers: Option<PushHeaders>,
}

/// Why a notification cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It has a body, but nothing says how it was encrypted.
    #[error("the message does not say how it was encrypted")]
    NoHeaders,
    /// It does not open.
    #[error(transparent)]
    Decrypt(#[from] DecryptError),
}

impl Notification {
    /// What to send when it was shown.
    pub fn ack(&self) -> Ack<'_> {
        Ack { channel: self.channel, version: &self.version, code: Some(DELIVERED) }
    }

    /// The text that was encrypted for these keys; empty when there is no body.
    pub fn open(&self, keys: &ReceiverKeys) -> Result<Vec<u8>, OpenError> {
        match (&self.data, &self.headers) {
            (None, _) => Ok(Vec::new()),
            (Some(_), None) => Err(OpenError::NoHeaders),
            (Some(data), Some(headers)) => Ok(keys.decrypt(headers, data)?),
        }
    }
}

/// What comes next on the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message.
    Notification(Notification),
    /// News about broadcasts: ids with their version, and under `errors` those nobody knows.
    Broadcast(BTreeMap<String, Value>),
    /// The answer to a ping of the agent.
    Pong,
    /// A pong of the transport, whether it was asked for or not.
    PongFrame,
    /// The server asked whether anybody is there. It was answered.
    Ping,
    /// Something else, as it came.
    Other(String),
    /// The end. Nothing comes after it.
    Closed(Closed),
}

/// What a server says.
#[derive(Debug)]
pub(crate) enum Said {
    Hello { agent: AgentId, broadcasts: BTreeMap<String, Value> },
    Register { channel: ChannelId, status: u16, endpoint: String },
    Unregister { channel: ChannelId, status: u16 },
    Event(Event),
}

/// Every field of every message. Flat, because a message for each kind would be copied to be read.
#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, rename = "messageType")]
    kind: Cow<'a, str>,
    uaid: Option<AgentId>,
    broadcasts: Option<BTreeMap<String, Value>>,
    #[serde(rename = "channelID")]
    channel: Option<ChannelId>,
    status: Option<u16>,
    #[serde(rename = "pushEndpoint")]
    endpoint: Option<String>,
    version: Option<String>,
    #[serde(borrow)]
    data: Option<Cow<'a, str>>,
    headers: Option<PushHeaders>,
}

fn need<T>(field: Option<T>, name: &str) -> Result<T, Error> {
    field.ok_or_else(|| Error::Unreadable(format!("there is no {name}")))
}

/// Reads one text message.
pub(crate) fn read(text: &str) -> Result<Said, Error> {
    if text == "{}" {
        return Ok(Said::Event(Event::Pong));
    }
    let unreadable = |why: &dyn std::fmt::Display| Error::Unreadable(why.to_string());
    let wire: Wire<'_> = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    let channel = || need(wire.channel, "channelID");
    let status = || need(wire.status, "status");
    Ok(match &*wire.kind {
        "hello" => Said::Hello {
            agent: need(wire.uaid, "uaid")?,
            broadcasts: wire.broadcasts.unwrap_or_default(),
        },
        "register" => Said::Register {
            channel: channel()?,
            status: status()?,
            endpoint: wire.endpoint.unwrap_or_default(),
        },
        "unregister" => Said::Unregister { channel: channel()?, status: status()? },
        "notification" => {
            let channel = channel()?;
            let version = need(wire.version, "version")?;
            let data = wire.data.map(|text| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')));
            let data = data.transpose().map_err(|error| unreadable(&error))?;
            let headers = wire.headers;
            Said::Event(Event::Notification(Notification { channel, version, data, headers }))
        }
        "broadcast" => Said::Event(Event::Broadcast(need(wire.broadcasts, "broadcasts")?)),
        _ => Said::Event(Event::Other(text.to_owned())),
    })
}
