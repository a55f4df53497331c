//! The agent itself.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use posthorn_domain::{AgentId, ChannelId};
use serde::Serialize;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};

use crate::dial::{self, Options, Socket};
use crate::event::{self, Event, Said};
use crate::{Closed, Error};

/// How much may arrive while an answer is awaited. Servers hold back long before.
const WAITING_MAX: usize = 1_024;

/// An acknowledgement of one message.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ack<'a> {
    /// The message's channel.
    #[serde(rename = "channelID")]
    pub channel: ChannelId,
    /// The message's name.
    pub version: &'a str,
    /// What became of it, such as [`DELIVERED`](crate::DELIVERED).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
}

#[derive(Serialize)]
struct AckFrame<'a> {
    #[serde(rename = "messageType")]
    kind: &'static str,
    updates: &'a [Ack<'a>],
}

/// The answer to `hello`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Who we are from now on.
    pub agent: AgentId,
    /// Whether the server knew the id that was proposed. If not, every channel is gone.
    pub known: bool,
    /// Versions of broadcasts that are not those that were named.
    pub broadcasts: BTreeMap<String, Value>,
}

/// What was read from the socket.
enum Read {
    Text(Utf8Bytes),
    Event(Event),
}

/// A socket to a node.
pub struct Agent {
    socket: Socket,
    /// What came while an answer was awaited.
    waiting: VecDeque<Event>,
    patience: Duration,
    ended: Option<Closed>,
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl Agent {
    /// Opens a socket. The address has the scheme `ws` or `wss`; `http` and `https` mean the same.
    pub async fn connect(url: &str, options: &Options) -> Result<Self, Error> {
        let socket = dial::connect(url, options).await?;
        let (waiting, patience) = (VecDeque::new(), options.patience);
        Ok(Self { socket, waiting, patience, ended: None })
    }

    /// Says who we are, or nobody yet, and which broadcasts we have in which version.
    pub async fn hello(
        &mut self,
        agent: Option<AgentId>,
        broadcasts: &[(&str, &str)],
    ) -> Result<Hello, Error> {
        let known: BTreeMap<_, _> = broadcasts.iter().copied().collect();
        let mut hello = json!({"messageType": "hello", "use_webpush": true, "broadcasts": known});
        if let Some(agent) = agent {
            hello["uaid"] = json!(agent);
        }
        self.send_text(hello.to_string()).await?;
        let answer = self.answer("the answer to hello", |said| match said {
            Said::Hello { agent, broadcasts } => Ok((agent, broadcasts)),
            other => Err(other),
        });
        let (named, broadcasts) = answer.await?;
        Ok(Hello { agent: named, known: agent == Some(named), broadcasts })
    }

    /// Makes a channel; its endpoint, for the sender with this key or for anybody.
    pub async fn register(
        &mut self,
        channel: ChannelId,
        key: Option<&str>,
    ) -> Result<String, Error> {
        let mut request = json!({"messageType": "register", "channelID": channel});
        if let Some(key) = key {
            request["key"] = json!(key);
        }
        self.send_text(request.to_string()).await?;
        let answer = self.answer("the answer to register", |said| match said {
            Said::Register { channel: of, status, endpoint } if of == channel => {
                Ok((status, endpoint))
            }
            other => Err(other),
        });
        match answer.await? {
            (200, endpoint) => Ok(endpoint),
            (status, text) => Err(Error::Refused { what: "register", status, text }),
        }
    }

    /// Ends a channel.
    pub async fn unregister(&mut self, channel: ChannelId) -> Result<(), Error> {
        let request = json!({"messageType": "unregister", "channelID": channel, "code": 200});
        self.send_text(request.to_string()).await?;
        let answer = self.answer("the answer to unregister", |said| match said {
            Said::Unregister { channel: of, status } if of == channel => Ok(status),
            other => Err(other),
        });
        match answer.await? {
            200 => Ok(()),
            status => Err(Error::Refused { what: "unregister", status, text: String::new() }),
        }
    }

    /// Asks for broadcasts; news come as [`Event::Broadcast`].
    pub async fn subscribe_broadcasts(&mut self, broadcasts: &[(&str, &str)]) -> Result<(), Error> {
        let known: BTreeMap<_, _> = broadcasts.iter().copied().collect();
        let request = json!({"messageType": "broadcast_subscribe", "broadcasts": known});
        self.send_text(request.to_string()).await
    }

    /// Acknowledges messages, all in one frame.
    pub async fn ack(&mut self, acks: &[Ack<'_>]) -> Result<(), Error> {
        let frame = AckFrame { kind: "ack", updates: acks };
        let text = serde_json::to_string(&frame).map_err(|e| Error::Unreadable(e.to_string()))?;
        self.send_text(text).await
    }

    /// Says that a message did harm.
    pub async fn nack(&mut self, version: &str, code: Option<u16>) -> Result<(), Error> {
        let nack = json!({"messageType": "nack", "version": version, "code": code.unwrap_or(301)});
        self.send_text(nack.to_string()).await
    }

    /// Asks whether the server is there; it answers with [`Event::Pong`].
    pub async fn ping(&mut self) -> Result<(), Error> {
        self.send_text("{}").await
    }

    /// Sends any text.
    pub async fn send_text(&mut self, text: impl Into<Utf8Bytes>) -> Result<(), Error> {
        self.send(Message::Text(text.into())).await
    }

    /// Sends any message; [`Message::Frame`] sends a frame of any kind.
    pub async fn send(&mut self, message: Message) -> Result<(), Error> {
        let sent = tokio::time::timeout(self.patience, self.socket.send(message)).await;
        sent.map_err(|_| Error::Late("sending"))?.map_err(Error::of)
    }

    /// What comes next. Waits for as long as it takes; may be given up at any time without loss.
    pub async fn next(&mut self) -> Result<Event, Error> {
        if let Some(event) = self.waiting.pop_front() {
            return Ok(event);
        }
        match self.read().await? {
            Read::Event(event) => Ok(event),
            Read::Text(text) => match event::read(&text)? {
                Said::Event(event) => Ok(event),
                _ => Ok(Event::Other(text.to_string())),
            },
        }
    }

    /// What has come already, without waiting.
    pub fn ready(&mut self) -> Option<Result<Event, Error>> {
        self.next().now_or_never()
    }

    /// Goes, and waits a little for the server to agree.
    pub async fn close(mut self) -> Result<Closed, Error> {
        // The other side may have been quicker.
        drop(self.socket.close(None).await);
        let patience = self.patience;
        let end = async {
            loop {
                if let Read::Event(Event::Closed(closed)) = self.read().await? {
                    return Ok(closed);
                }
            }
        };
        tokio::time::timeout(patience, end).await.map_err(|_| Error::Late("closing"))?
    }

    /// Waits for what `pick` takes; what else comes is kept for later.
    async fn answer<T>(
        &mut self,
        what: &'static str,
        mut pick: impl FnMut(Said) -> Result<T, Said>,
    ) -> Result<T, Error> {
        let patience = self.patience;
        let answer = async {
            loop {
                let said = match self.read().await? {
                    Read::Text(text) => event::read(&text)?,
                    Read::Event(event) => Said::Event(event),
                };
                match pick(said) {
                    Ok(answer) => return Ok(answer),
                    Err(Said::Event(Event::Closed(closed))) => return Err(Error::Closed(closed)),
                    Err(Said::Event(_)) if self.waiting.len() == WAITING_MAX => {
                        return Err(Error::Flooded);
                    }
                    Err(Said::Event(event)) => self.waiting.push_back(event),
                    Err(other) => {
                        return Err(Error::Unreadable(format!("{other:?} instead of {what}")));
                    }
                }
            }
        };
        tokio::time::timeout(patience, answer).await.map_err(|_| Error::Late(what))?
    }

    async fn read(&mut self) -> Result<Read, Error> {
        if let Some(closed) = &self.ended {
            return Ok(Read::Event(Event::Closed(closed.clone())));
        }
        let closed = match self.socket.next().await {
            Some(Ok(Message::Text(text))) => return Ok(Read::Text(text)),
            Some(Ok(Message::Close(frame))) => frame.map_or(
                // A close frame without anything in it: 1005 stands for that.
                Closed { code: Some(1005), reason: String::new() },
                |frame| Closed {
                    code: Some(frame.code.into()),
                    reason: frame.reason.as_str().to_owned(),
                },
            ),
            Some(Ok(Message::Ping(_))) => {
                self.flush().await?;
                return Ok(Read::Event(Event::Ping));
            }
            Some(Ok(Message::Pong(_))) => {
                return Ok(Read::Event(Event::PongFrame));
            }
            Some(Ok(Message::Binary(_) | Message::Frame(_))) => {
                return Err(Error::Unreadable("a message that is not text".to_owned()));
            }
            Some(Err(error)) => match Error::of(error) {
                Error::Closed(closed) => closed,
                other => return Err(other),
            },
            None => Closed::broken(),
        };
        self.ended = Some(closed.clone());
        // Agreeing is a courtesy; whoever closed may not wait for it.
        drop(self.flush().await);
        Ok(Read::Event(Event::Closed(closed)))
    }

    /// The library queues answers to pings and closes, and sends them with the next flush.
    async fn flush(&mut self) -> Result<(), Error> {
        let flushed = tokio::time::timeout(self.patience, self.socket.flush()).await;
        match flushed.map_err(|_| Error::Late("sending"))? {
            Ok(()) | Err(tungstenite::Error::ConnectionClosed) => Ok(()),
            Err(error) => Err(Error::of(error)),
        }
    }
}
