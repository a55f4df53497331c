//! The checks of a post, in their order.

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::setting::{self, ByteSize};
use posthorn_domain::{AgentId, ChannelId, MessageId, PushMessage, Span, Timestamp};
use posthorn_sealing::endpoint_token::{Endpoint, EndpointTokens, Version};
use posthorn_sealing::push_headers::{self, Given};
use posthorn_sealing::vapid::{self, Proven, Vapid};
use serde::{Deserialize, Deserializer, de::Error};

use super::Refusal;

/// What is taken if nobody says otherwise.
pub use posthorn_domain::{PUSH_BODY_BYTES_MAX as BODY_BYTES_MAX, PUSH_TTL_SECONDS_MAX as TTL_MAX};

/// With less, senders could not send what RFC 8030 lets them.
const BODY_MIN: ByteSize = ByteSize(4 * 1024);
/// More is no notification, and every one of them is kept in memory while it is under way.
const BODY_MAX: ByteSize = ByteSize(64 * 1024);

/// How much a sender may ask for, a part of the section `push` of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Limits {
    /// The largest body in bytes.
    #[serde(deserialize_with = "body")]
    pub body_max: usize,
    /// The longest TTL in seconds; what is longer is cut down, and the sender told so.
    #[serde(deserialize_with = "ttl_max")]
    pub ttl_max: u32,
}

fn body<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let bytes = setting::bytes(deserializer)?;
    if !(BODY_MIN.0..=BODY_MAX.0).contains(&bytes) {
        let problem =
            format_args!("must be {BODY_MIN} to {BODY_MAX}: RFC 8030 promises the former");
        return Err(Error::custom(problem));
    }
    Ok(bytes)
}

fn ttl_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::try_from(Span::deserialize(deserializer)?.as_millis() / 1_000) {
        Ok(0) => Err(Error::custom("must be at least 1s: nothing would ever be stored")),
        Ok(seconds) => Ok(seconds),
        Err(_) => Err(Error::custom("must be less than 100 years")),
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { body_max: BODY_BYTES_MAX, ttl_max: TTL_MAX }
    }
}

/// The headers of a post that matter. One that is there several times is given once, joined by
/// commas.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a> {
    /// `Authorization`.
    pub authorization: Option<&'a str>,
    /// `Crypto-Key`.
    pub crypto_key: Option<&'a str>,
    /// `Encryption`.
    pub encryption: Option<&'a str>,
    /// `Encryption-Key`.
    pub encryption_key: Option<&'a str>,
    /// `Content-Encoding`.
    pub content_encoding: Option<&'a str>,
    /// `TTL`.
    pub ttl: Option<&'a str>,
    /// `Topic`.
    pub topic: Option<&'a str>,
    /// `Urgency`.
    pub urgency: Option<&'a str>,
}

/// What was found of whom an endpoint stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// The agent is there and has the channel.
    Registered,
    /// The agent is there and has no such channel.
    NoChannel,
    /// There is no such agent.
    NoAgent,
}

/// An endpoint of ours; nothing is known of who posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened(Endpoint);

/// An endpoint, and a sender that may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorized {
    endpoint: Endpoint,
    sender: Option<Arc<Vapid>>,
}

/// An agent and a channel that exist, and a sender that may write to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressed(Authorized);

impl Opened {
    /// Opens the URL: what stands between `/wpush/` and the token, if anything, and the token.
    pub fn open(
        tokens: &EndpointTokens,
        version: Option<&str>,
        token: &str,
    ) -> Result<Self, Refusal> {
        let version = match version {
            None | Some("v1") => Version::V1,
            Some("v2") => Version::V2,
            Some(_) => return Err(Refusal::not_found()),
        };
        tokens.open_endpoint(version, token).map(Self).map_err(|_| Refusal::not_found())
    }

    /// Looks who posts. Whoever shows a token must show a good one, also where none is needed.
    /// `origin` is that of the endpoints, without a slash at its end; `proven` remembers whom it
    /// believed before.
    pub fn sender(
        self,
        headers: &Headers<'_>,
        proven: &Proven,
        origin: &str,
        now: Timestamp,
    ) -> Result<Authorized, Refusal> {
        let sender = headers
            .authorization
            .map(|header| proven.verify(header, headers.crypto_key, origin, now.as_seconds()))
            .transpose()?;
        if let Some(made_for) = &self.0.key {
            vapid::check_key(sender.as_deref(), made_for)?;
        }
        Ok(Authorized { endpoint: self.0, sender })
    }
}

impl Authorized {
    /// Whom to look up.
    pub const fn agent(&self) -> AgentId {
        self.endpoint.agent
    }

    /// Which of its channels.
    pub const fn channel(&self) -> ChannelId {
        self.endpoint.channel
    }

    /// Who posts, if it was said.
    pub fn vapid(&self) -> Option<&Vapid> {
        self.sender.as_deref()
    }

    /// Goes on if agent and channel exist.
    pub fn recipient(self, found: Recipient) -> Result<Addressed, Refusal> {
        match found {
            Recipient::Registered => Ok(Addressed(self)),
            Recipient::NoChannel | Recipient::NoAgent => Err(Refusal::gone()),
        }
    }
}

impl Addressed {
    /// The last checks: the message itself. `id` is a fresh one.
    pub fn message(
        self,
        headers: &Headers<'_>,
        body: Bytes,
        id: MessageId,
        now: Timestamp,
        limits: &Limits,
    ) -> Result<PushMessage, Refusal> {
        self.body_size(body.len() as u64, limits)?;
        let ttl = push_headers::ttl(headers.ttl)?;
        let body = Some(body).filter(|body| !body.is_empty());
        // A message without a body is only a knock; nobody looks at how it was encrypted.
        let encryption = match body {
            None => None,
            Some(_) => Some(push_headers::encryption(Given {
                content_encoding: headers.content_encoding,
                encryption: headers.encryption,
                crypto_key: headers.crypto_key,
                encryption_key: headers.encryption_key,
            })?),
        };
        let ttl = ttl.within(limits.ttl_max)?;
        let topic = push_headers::topic(headers.topic)?;
        check_urgency(headers.urgency)?;
        Ok(PushMessage {
            agent: self.0.endpoint.agent,
            channel: self.0.endpoint.channel,
            id,
            topic,
            ttl,
            received_at: now,
            headers: encryption,
            body,
        })
    }

    /// Whether a body of this size is taken, for whoever knows the size before the body.
    pub fn body_size(&self, bytes: u64, limits: &Limits) -> Result<(), Refusal> {
        if bytes > limits.body_max as u64 {
            return Err(Refusal::too_large(bytes, limits.body_max));
        }
        Ok(())
    }
}

/// RFC 8030 has four urgencies. Nothing is done with them; but a sender that writes something else
/// means something that nobody will do.
fn check_urgency(header: Option<&str>) -> Result<(), Refusal> {
    const KNOWN: [&str; 4] = ["very-low", "low", "normal", "high"];
    match header.map(|text| text.trim_matches([' ', '\t'])) {
        Some(text) if !KNOWN.iter().any(|known| known.eq_ignore_ascii_case(text)) => {
            Err(Refusal::urgency())
        }
        _ => Ok(()),
    }
}
