//! What agents write, read without surprises: bounded, borrowed, and typed only where it matters.
//!
//! A message is read twice: its outline first, in which every known field is a piece of the text,
//! then the fields of its kind. So a field that means nothing for a kind may be anything, as
//! agents are used to.

use std::borrow::Cow;
use std::collections::BTreeMap;

use posthorn_domain::{AgentId, ChannelId, MessageId};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Close;

/// The largest text an agent may send.
pub const FRAME_BYTES_MAX: usize = 65_536;
/// The deepest nesting of a message, in fields that nobody reads too.
pub const NESTING_MAX: usize = 32;
/// The most broadcasts an agent may name at once.
pub const BROADCASTS_MAX: usize = 256;

/// The versions of broadcasts that an agent has, by id.
pub type Copies<'a> = BTreeMap<Cow<'a, str>, Cow<'a, str>>;

/// One message of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage<'a> {
    /// Who it is.
    Hello {
        /// The id it had; `None` when it has none, or one that nobody can have given to it.
        agent: Option<AgentId>,
        /// The broadcasts it wants to know of.
        broadcasts: Copies<'a>,
    },
    /// A new subscription.
    Register {
        /// Which.
        channel: ChannelId,
        /// The public key of the only sender that may use it.
        key: Option<Cow<'a, str>>,
    },
    /// The end of a subscription.
    Unregister {
        /// Which.
        channel: ChannelId,
        /// Why, for figures.
        code: Option<u32>,
    },
    /// Notifications that arrived, in whatever state.
    Ack(Vec<Ack>),
    /// A notification that arrived and could not be used. It is acknowledged besides.
    Nack {
        /// Why, for figures.
        code: Option<i32>,
    },
    /// More broadcasts it wants to know of.
    BroadcastSubscribe(Copies<'a>),
    /// Is anybody there?
    Ping,
}

/// One acknowledged notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Which; `None` for a version that we never give.
    pub id: Option<MessageId>,
    /// What became of it, for figures: 100 delivered, 101 not decrypted, 102 not delivered.
    pub code: Option<u16>,
}

/// Why a text is not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Larger than [`FRAME_BYTES_MAX`].
    #[error("the message has {0} bytes, more than {FRAME_BYTES_MAX}")]
    TooLarge(usize),
    /// Not one of the messages.
    #[error("{0}")]
    NotAMessage(String),
    /// A `register` whose channel is not in lower case with dashes.
    #[error("channelID must be a UUID in lower case with dashes")]
    BadChannel,
}

impl ReadError {
    /// How the socket is closed for it.
    pub const fn close(&self) -> Close {
        match self {
            ReadError::TooLarge(_) => Close::Protocol,
            ReadError::NotAMessage(_) => Close::Json,
            ReadError::BadChannel => Close::BadChannel,
        }
    }
}

fn wrong(what: impl Into<String>) -> ReadError {
    ReadError::NotAMessage(what.into())
}

/// The fields of all kinds, unread. A field that is `null` is as good as absent.
#[derive(Deserialize)]
#[serde(expecting = "a JSON object")]
struct Outline<'a> {
    #[serde(borrow, rename = "messageType")]
    message_type: Option<&'a RawValue>,
    #[serde(borrow)]
    uaid: Option<&'a RawValue>,
    #[serde(borrow)]
    broadcasts: Option<&'a RawValue>,
    #[serde(borrow, rename = "channelID")]
    channel: Option<&'a RawValue>,
    #[serde(borrow)]
    key: Option<&'a RawValue>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    updates: Option<&'a RawValue>,
    #[serde(borrow)]
    version: Option<&'a RawValue>,
}

/// A string, borrowed where it has no escapes.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// One element of `updates`.
#[derive(Deserialize)]
struct Update<'a> {
    #[serde(borrow, rename = "channelID")]
    channel: Text<'a>,
    #[serde(borrow)]
    version: Text<'a>,
    code: Option<u16>,
}

fn field<'a, T: Deserialize<'a>>(name: &str, raw: &'a RawValue) -> Result<T, ReadError> {
    serde_json::from_str(raw.get()).map_err(|error| wrong(format!("{name}: {error}")))
}

fn optional<'a, T: Deserialize<'a>>(
    name: &str,
    raw: Option<&'a RawValue>,
) -> Result<Option<T>, ReadError> {
    raw.map(|raw| field(name, raw)).transpose()
}

fn required<'a, T: Deserialize<'a>>(name: &str, raw: Option<&'a RawValue>) -> Result<T, ReadError> {
    field(name, raw.ok_or_else(|| wrong(format!("{name} is missing")))?)
}

/// Reads one text frame.
pub fn read(text: &str) -> Result<ClientMessage<'_>, ReadError> {
    if text.len() > FRAME_BYTES_MAX {
        return Err(ReadError::TooLarge(text.len()));
    }
    if is_empty_object(text) {
        return Ok(ClientMessage::Ping);
    }
    if nesting(text) > NESTING_MAX {
        return Err(wrong(format!("nested deeper than {NESTING_MAX}")));
    }
    // A sequence would do for a struct, but not for anybody's idea of a message.
    if !text.trim_start_matches(WHITE).starts_with('{') {
        return Err(wrong("not a JSON object"));
    }
    let outline: Outline<'_> =
        serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let kind: Text<'_> = required("messageType", outline.message_type)?;
    match &*kind.0 {
        "hello" => {
            let agent: Option<Text<'_>> = optional("uaid", outline.uaid)?;
            Ok(ClientMessage::Hello {
                agent: agent.and_then(|text| text.0.parse().ok()),
                broadcasts: outline.broadcasts.map(copies).transpose()?.unwrap_or_default(),
            })
        }
        "register" => {
            let channel: Text<'_> = required("channelID", outline.channel)?;
            let key: Option<Text<'_>> = optional("key", outline.key)?;
            Ok(ClientMessage::Register {
                channel: ChannelId::from_printed(&channel.0).map_err(|_| ReadError::BadChannel)?,
                key: key.map(|text| text.0),
            })
        }
        "unregister" => Ok(ClientMessage::Unregister {
            channel: required("channelID", outline.channel)?,
            code: optional("code", outline.code)?,
        }),
        "ack" => {
            let updates: Vec<Update<'_>> = required("updates", outline.updates)?;
            let acks = updates.iter().map(|update| {
                let _: ChannelId = update
                    .channel
                    .0
                    .parse()
                    .map_err(|error| wrong(format!("updates: channelID: {error}")))?;
                Ok(Ack { id: MessageId::from_printed(&update.version.0).ok(), code: update.code })
            });
            Ok(ClientMessage::Ack(acks.collect::<Result<_, _>>()?))
        }
        "nack" => {
            let _: Text<'_> = required("version", outline.version)?;
            Ok(ClientMessage::Nack { code: optional("code", outline.code)? })
        }
        "broadcast_subscribe" => {
            let raw = outline.broadcasts.ok_or_else(|| wrong("broadcasts is missing"))?;
            Ok(ClientMessage::BroadcastSubscribe(copies(raw)?))
        }
        "ping" => Ok(ClientMessage::Ping),
        _ => Err(wrong("messageType is unknown")),
    }
}

fn copies(raw: &RawValue) -> Result<Copies<'_>, ReadError> {
    let read: BTreeMap<Text<'_>, Text<'_>> = field("broadcasts", raw)?;
    if read.len() > BROADCASTS_MAX {
        return Err(wrong(format!(
            "broadcasts: {} are named, more than {BROADCASTS_MAX}",
            read.len()
        )));
    }
    Ok(read.into_iter().map(|(id, version)| (id.0, version.0)).collect())
}

const WHITE: [char; 4] = [' ', '\t', '\n', '\r'];

/// The shortest message: an object without anything in it.
fn is_empty_object(text: &str) -> bool {
    text.trim_matches(WHITE)
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .is_some_and(|inside| inside.trim_matches(WHITE).is_empty())
}

/// How deep brackets nest. Counted before anything is read, because what nobody reads is skipped
/// without counting. Right for JSON; what is not JSON is refused later anyway.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0, false, false);
    for byte in text.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
