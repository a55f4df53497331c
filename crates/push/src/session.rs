//! One connection of an agent, from the upgrade to its end, as a state machine.
//!
//! # How it works
//! A [`Session`] has a method for everything that can happen to a connection. Each adds
//! [`Output`]s: what the driver has to do, in their order. Time and everything that sessions share
//! come with each call, in a [`Context`]. Nothing here waits: what needs the store is an [`Ask`], and
//! its [`Answer`] comes back as another call.
//!
//! ```text
//! waiting ──hello──▶ connecting ──Connected──▶ open ──▶ closed
//!    └───────── hello without a known id ──────▶┘
//! ```
//!
//! # What the driver promises
//! * Each [`Ask`] is carried out after those before it, and gets exactly one [`Answer`]; none is
//!   needed after the session closed. [`Ask::Forget`] may be answered at once and carried out later,
//!   also after the session closed; if it fails then, [`Answer::Failed`] follows. An agent's next
//!   session connects only after that.
//! * Frames are read only while [`Session::wants_frames`] says so; that is what bounds the asks.
//! * [`Output::Enter`] is done before the next output: from then on pushes and hints for the agent
//!   come here.
//! * `now` does not go backwards. A tick may come at any time, early or late.
//! * No two sessions of a node get their first text at the same `now`: node and time together name a
//!   connection, and whoever takes an old one off the record must not mean a newer one.
//! * After [`Output::Save`] was carried out, [`crate::endpoint::hint_after_save`] says whom to tell.
//!
//! # Why nothing gets lost
//! A session can be found under its agent ([`Output::Enter`]) before the store says that the agent is
//! here ([`Ask::Connect`]), and reads the store after that. So whoever stores a message and then
//! looks where the agent is either stored it before the read, or finds the session and tells it to
//! look again ([`Session::check_storage`]). A hint that comes while a read is under way makes another
//! read follow. What was accepted without the store is handed out at the end ([`Output::Save`]), after
//! nobody can find the session any more.
//!
//! A record that names no node although the agent is here, because a node was slow to answer
//! and was taken for dead, is put right by [`Ask::Renew`]. The same finds out that the agent is
//! somewhere else by now, or gone.
//!
//! # Why nothing comes twice
//! Reads go on strictly after what was read before, for messages with a topic and without one
//! apart; what is already in the window is recognised by its id.

mod broadcasts;
mod commands;
mod drain;
mod exchange;
mod options;
mod unacked;

use posthorn_domain::{AgentId, PushMessage, Timestamp};

use crate::protocol::{Close, write};
use broadcasts::Followed;
use drain::Drain;
use unacked::{Kept, Unacked};

pub use broadcasts::{BroadcastError, Broadcasts, TABLE_MAX};
pub use exchange::{Answer, Ask, Counters, Output, Pushed, Summary};
pub use options::{AckMode, Options, Overflow};

/// So many asks may wait for their answers before no more frames are wanted.
pub const ASKS_MAX: u16 = 8;

/// What every call needs and no session owns.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The present moment.
    pub now: Timestamp,
    /// The knobs.
    pub options: &'a Options,
    /// All broadcasts.
    pub broadcasts: &'a Broadcasts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Connecting,
    Open,
    /// The agent is being dropped; the end comes when it is.
    Dropping,
    Closed,
}

/// One connection of an agent.
#[derive(Debug)]
pub struct Session {
    phase: Phase,
    /// Whether the agent may not be in the store yet.
    unborn: bool,
    /// Whether the agent shall be dropped once it has everything.
    outdated: bool,
    /// Whether a ping of ours is unanswered.
    pinged: bool,
    /// How many asks wait for their answers.
    asks: u16,
    /// The id that is used when the agent has none; the agent's id from then on.
    agent: AgentId,
    fresh: AgentId,
    opened_at: Timestamp,
    connected_at: Timestamp,
    wake_at: Timestamp,
    renew_at: Timestamp,
    last_ping: Option<Timestamp>,
    unacked: Unacked,
    drain: Drain,
    followed: Followed,
    /// What the answer to hello says about broadcasts, until it is sent.
    greeting: Option<Box<str>>,
    counters: Counters,
}

impl Session {
    /// A connection that was just upgraded. `fresh` is an id that nobody has.
    pub fn new(fresh: AgentId, cx: &Context<'_>, out: &mut Vec<Output>) -> Self {
        let mut session = Self {
            phase: Phase::Waiting,
            unborn: false,
            outdated: false,
            pinged: false,
            asks: 0,
            agent: fresh,
            fresh,
            opened_at: cx.now,
            connected_at: cx.now,
            wake_at: Timestamp::MAX,
            renew_at: Timestamp::MAX,
            last_ping: None,
            unacked: Unacked::default(),
            drain: Drain::default(),
            followed: Followed::default(),
            greeting: None,
            counters: Counters::default(),
        };
        session.wake(cx.now.plus(cx.options.handshake_timeout), out);
        session
    }

    /// Whose connection it is, once that is known.
    pub fn agent(&self) -> Option<AgentId> {
        let known = matches!(self.phase, Phase::Connecting | Phase::Open | Phase::Dropping);
        known.then_some(self.agent)
    }

    /// Names the connection among those of its agent.
    pub const fn connected_at(&self) -> Timestamp {
        self.connected_at
    }

    /// Whether frames may be read from the socket. If not, try again after the next answer.
    pub const fn wants_frames(&self) -> bool {
        match self.phase {
            Phase::Waiting => true,
            Phase::Open => self.asks < ASKS_MAX,
            Phase::Connecting | Phase::Dropping | Phase::Closed => false,
        }
    }

    /// Whether it is over.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// When it wants to be woken next.
    pub const fn wake_at(&self) -> Timestamp {
        self.wake_at
    }

    /// How many notifications are sent and not acknowledged.
    pub fn outstanding(&self) -> usize {
        self.unacked.len()
    }

    /// What the messages weigh, in bytes, whose only copy is here.
    pub fn weight(&self) -> usize {
        self.unacked.weight()
    }

    /// What was counted so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// An endpoint has a message for the agent.
    pub fn push(
        &mut self,
        message: PushMessage,
        cx: &Context<'_>,
        out: &mut Vec<Output>,
    ) -> Pushed {
        match self.phase {
            Phase::Waiting | Phase::Dropping | Phase::Closed => return Pushed::NotConnected,
            // Whether the agent exists is not known yet, and the answer to its hello comes first.
            // The store is read as soon as it is known.
            Phase::Connecting => {
                self.counters.direct_refused += 1;
                return Pushed::Full;
            }
            Phase::Open if message.agent != self.agent => return Pushed::NotConnected,
            Phase::Open => {}
        }
        if self.unacked.contains(message.id) {
            // The sender's node asks again because it did not hear the answer.
            return Pushed::Accepted;
        }
        let worthless_later = message.ttl == 0;
        if !worthless_later && message.is_expired(cx.now) {
            self.counters.expired += 1;
            return Pushed::Accepted;
        }
        // Those that are being read have their places already.
        if self.unacked.len() + self.drain.reserved() >= cx.options.window() {
            self.counters.direct_refused += 1;
            self.drain.wanted = true;
            return Pushed::Full;
        }
        self.counters.direct_sent += 1;
        out.push(Output::Send(write::notification(&message)));
        let id = message.id;
        let kept = (!worthless_later).then(|| Box::new(message));
        self.unacked.push(id, Kept::Direct(kept));
        Pushed::Accepted
    }

    /// Somebody stored a message for the agent. Says whether the agent is here.
    pub fn check_storage(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) -> bool {
        match self.phase {
            Phase::Waiting | Phase::Dropping | Phase::Closed => false,
            Phase::Connecting => {
                self.drain.wanted = true;
                true
            }
            Phase::Open => {
                self.drain.wanted = true;
                self.read_on(cx, out);
                true
            }
        }
    }

    /// The agent sent a ping frame, which the transport answers by itself. The first thing an agent
    /// says must be a text.
    pub fn ping_frame(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) {
        if self.phase == Phase::Waiting {
            self.end(Close::UnsupportedMessage, cx, out);
        }
    }

    /// The agent answered a ping.
    pub fn pong_frame(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) {
        if self.phase == Phase::Open && std::mem::take(&mut self.pinged) {
            self.wake(cx.now.plus(cx.options.ping_interval), out);
        }
    }

    /// The agent sent a binary frame.
    pub fn binary_frame(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) {
        self.end(Close::UnsupportedMessage, cx, out);
    }

    /// The agent sent what is no frame, or one that is too large.
    pub fn broken_frame(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) {
        self.end(Close::Protocol, cx, out);
    }

    /// It may be time for something. Coming early does no harm.
    pub fn tick(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Waiting | Phase::Open if cx.now < self.wake_at => {
                out.push(Output::WakeAt(self.wake_at));
            }
            Phase::Waiting => self.end(Close::HandshakeTimeout, cx, out),
            Phase::Open if self.pinged && self.wants_frames() => {
                self.end(Close::PongTimeout, cx, out);
            }
            // The socket is not read, so the agent cannot be blamed.
            Phase::Open if self.pinged => self.wake(cx.now.plus(cx.options.pong_timeout), out),
            Phase::Open => {
                let news = self.followed.catch_up(cx.broadcasts);
                let next = if news.is_empty() {
                    out.push(Output::Ping);
                    self.pinged = true;
                    cx.options.pong_timeout
                } else {
                    // As good a sign of life to whatever stands in between; nothing answers it.
                    out.push(Output::Send(write::broadcast(&news)));
                    cx.options.ping_interval
                };
                self.wake(cx.now.plus(next), out);
                self.renew(cx, out);
            }
            Phase::Connecting | Phase::Dropping | Phase::Closed => {}
        }
    }

    /// Another session of this node was entered for the same agent.
    pub fn replaced(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) {
        self.end(Close::Replaced, cx, out);
    }

    /// This node is going away.
    pub fn drain_node(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) {
        self.end(Close::Draining, cx, out);
    }

    /// The agent closed the connection, or it broke.
    pub fn gone(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) {
        self.end(Close::Gone, cx, out);
    }

    /// Ends the connection, once. Nobody can find the session before the agent learns of the end, and
    /// what only the session has is handed out after that.
    fn end(&mut self, close: Close, cx: &Context<'_>, out: &mut Vec<Output>) {
        let agent = self.agent();
        if std::mem::replace(&mut self.phase, Phase::Closed) == Phase::Closed {
            return;
        }
        // Who replaced this session is the one that is found.
        if let Some(agent) = agent.filter(|_| close != Close::Replaced) {
            out.push(Output::Leave(agent));
        }
        out.push(Output::Close(close));
        let left = self.unacked.leave_behind(cx.now);
        // An agent that is dropped has nobody to keep anything for.
        if !left.is_empty() && close != Close::Reset {
            self.counters.direct_saved = u32::try_from(left.len()).unwrap_or(u32::MAX);
            out.push(Output::Save(left));
        }
        self.drain = Drain::default();
        self.followed = Followed::default();
        out.push(Output::Ended(Summary {
            agent,
            lived: cx.now.since(self.opened_at),
            close,
            counters: self.counters,
        }));
    }

    /// Drops the agent, and with it the connection.
    fn reset(&mut self, out: &mut Vec<Output>) {
        // It would come back at once, and must not be found then; so the close waits.
        self.phase = Phase::Dropping;
        self.ask(Ask::DropAgent(self.agent), out);
    }

    /// Says from time to time that the agent is still here.
    fn renew(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) {
        if cx.now < self.renew_at || self.unborn {
            return;
        }
        self.renew_at = cx.now.plus(cx.options.renew_interval);
        let (agent, connected_at) = (self.agent, self.connected_at);
        self.ask(Ask::Renew { agent, connected_at }, out);
    }

    fn ask(&mut self, ask: Ask, out: &mut Vec<Output>) {
        self.asks = self.asks.saturating_add(1);
        out.push(Output::Ask(ask));
    }

    fn wake(&mut self, at: Timestamp, out: &mut Vec<Output>) {
        self.wake_at = at;
        out.push(Output::WakeAt(at));
    }
}
