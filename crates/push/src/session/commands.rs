//! What the agent says, and what the store answers to it.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use posthorn_domain::{AgentId, ChannelId};

use super::unacked::Kept;
use super::{AckMode, Answer, Ask, Context, Output, Phase, Session};
use crate::protocol::{Ack, ClientMessage, Close, Copies, read, write};

impl Session {
    /// The agent sent a text.
    pub fn text_frame(&mut self, text: &str, cx: &Context<'_>, out: &mut Vec<Output>) {
        if self.phase == Phase::Closed {
            return;
        }
        match read(text) {
            Ok(message) => self.message(message, cx, out),
            Err(error) => self.end(error.close(), cx, out),
        }
    }

    /// The agent sent a message.
    pub fn message(&mut self, message: ClientMessage<'_>, cx: &Context<'_>, out: &mut Vec<Output>) {
        match (self.phase, message) {
            (Phase::Closed | Phase::Dropping, _) => {}
            (Phase::Waiting, ClientMessage::Hello { agent, broadcasts }) => {
                self.hello(agent, &broadcasts, cx, out);
            }
            (Phase::Waiting, _) => self.end(Close::NotHello, cx, out),
            (_, ClientMessage::Hello { .. }) => self.end(Close::SecondHello, cx, out),
            // The driver does not read while we connect; whatever comes is out of turn.
            (Phase::Connecting, _) => self.end(Close::NotHello, cx, out),
            (Phase::Open, ClientMessage::Register { channel, key }) => {
                self.register(channel, key.as_deref(), out);
            }
            (Phase::Open, ClientMessage::Unregister { channel, code: _ }) => {
                self.ask(Ask::Unregister { agent: self.agent, channel }, out);
            }
            (Phase::Open, ClientMessage::Ack(acks)) => self.acks(&acks, cx, out),
            (Phase::Open, ClientMessage::Nack { code: _ }) => self.counters.nacks += 1,
            (Phase::Open, ClientMessage::BroadcastSubscribe(copies)) => {
                let news = self.followed.follow(cx.broadcasts, &copies);
                if !news.is_empty() {
                    out.push(Output::Send(write::broadcast(&news)));
                }
            }
            (Phase::Open, ClientMessage::Ping) => self.ping(cx, out),
        }
    }

    /// The store answered.
    pub fn answer(&mut self, answer: Answer, cx: &Context<'_>, out: &mut Vec<Output>) {
        let stalled = !self.wants_frames();
        self.asks = self.asks.saturating_sub(1);
        if stalled && self.pinged && self.wants_frames() {
            // The answer to the ping may wait in the socket, which was not read.
            self.wake(cx.now.plus(cx.options.pong_timeout), out);
        }
        match (self.phase, answer) {
            (Phase::Waiting | Phase::Closed, _) => {}
            (Phase::Connecting, Answer::Connected { stored, outdated }) => {
                self.outdated = outdated;
                self.welcome(cx, out);
                self.begin_drain(stored, cx, out);
            }
            (Phase::Connecting, Answer::Unknown) => {
                out.push(Output::Leave(self.agent));
                self.welcome_unknown(cx, out);
            }
            (Phase::Connecting | Phase::Open, Answer::AlreadyConnected) => {
                self.end(Close::AlreadyConnected, cx, out);
            }
            (Phase::Open, Answer::Renewed) => {
                // Somebody may have stored a message and found nobody to tell.
                self.drain.wanted = true;
                self.read_on(cx, out);
            }
            (Phase::Open, Answer::Unknown) => self.end(Close::Reset, cx, out),
            (Phase::Open, Answer::Read(messages)) => self.read_done(messages, cx, out),
            (Phase::Open, Answer::Trimmed | Answer::Forgotten) => {}
            (Phase::Open, Answer::Registered { channel, endpoint }) => {
                self.unborn = false;
                self.counters.registers += 1;
                out.push(Output::Send(write::register(channel, 200, &endpoint)));
            }
            (Phase::Open, Answer::NotRegistered(channel)) => {
                out.push(Output::Send(write::register(channel, 500, "")));
            }
            (Phase::Open, Answer::Unregistered(channel)) => {
                self.counters.unregisters += 1;
                out.push(Output::Send(write::unregister(channel, 200)));
            }
            (Phase::Open, Answer::NotUnregistered(channel)) => {
                out.push(Output::Send(write::unregister(channel, 500)));
            }
            (Phase::Dropping, Answer::Dropped | Answer::AgentGone) => {
                self.end(Close::Reset, cx, out)
            }
            // What was asked before; the end is near anyway.
            (Phase::Dropping, answer) if answer != Answer::Failed => {}
            // Its id means nothing any more; with the next hello it gets another.
            (_, Answer::AgentGone) => self.end(Close::Reset, cx, out),
            // Everything else is an answer to nothing that was asked; better to start over than to
            // go on with a wrong idea of the store.
            (_, _) => self.end(Close::StoreFailed, cx, out),
        }
    }

    fn hello(
        &mut self,
        agent: Option<AgentId>,
        copies: &Copies<'_>,
        cx: &Context<'_>,
        out: &mut Vec<Output>,
    ) {
        self.connected_at = cx.now;
        let news = self.followed.follow(cx.broadcasts, copies);
        self.greeting = (!news.is_empty()).then(|| write::broadcasts(&news).into());
        let Some(agent) = agent else {
            return self.welcome_unknown(cx, out);
        };
        self.agent = agent;
        self.phase = Phase::Connecting;
        out.push(Output::Enter(agent));
        let count = cx.options.stored_max > 0;
        self.ask(Ask::Connect { agent, connected_at: cx.now, count }, out);
    }

    /// The agent has no id that means anything: it gets a fresh one. Nothing is written down before
    /// it registers its first channel.
    fn welcome_unknown(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) {
        self.agent = self.fresh;
        self.unborn = true;
        out.push(Output::Enter(self.agent));
        self.welcome(cx, out);
    }

    fn welcome(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) {
        self.phase = Phase::Open;
        self.renew_at = cx.now.plus(cx.options.renew_interval);
        let greeting = self.greeting.take();
        out.push(Output::Send(write::hello(self.agent, greeting.as_deref().unwrap_or("{}"))));
        self.wake(cx.now.plus(cx.options.ping_interval), out);
    }

    fn register(&mut self, channel: ChannelId, key: Option<&str>, out: &mut Vec<Output>) {
        let Ok(key) = key.map(decode_key).transpose() else {
            out.push(Output::Send(write::register(channel, 400, write::NO_ENDPOINT)));
            return;
        };
        let birth = self.unborn.then_some(self.connected_at);
        self.ask(Ask::Register { agent: self.agent, channel, key, birth }, out);
    }

    /// What was acknowledged is matched by its version only, and whatever else is ignored: agents
    /// acknowledge what came twice twice.
    fn acks(&mut self, acks: &[Ack], cx: &Context<'_>, out: &mut Vec<Output>) {
        let mut forget = Vec::new();
        for ack in acks {
            let Some(kept) = ack.id.and_then(|id| self.unacked.take(id)) else { continue };
            match ack.code {
                Some(101) => self.counters.undecrypted += 1,
                Some(102) => self.counters.undelivered += 1,
                _ => {}
            }
            match kept {
                Kept::Direct(_) => self.counters.direct_acked += 1,
                Kept::Stored { seq, topic } => {
                    self.counters.stored_acked += 1;
                    match cx.options.ack {
                        AckMode::Batch if !topic => self.drain.held.push(seq),
                        AckMode::Batch | AckMode::Each => forget.push(seq),
                    }
                }
            }
        }
        if self.unacked.stored() == 0 {
            forget.append(&mut std::mem::take(&mut self.drain.held));
        }
        if !forget.is_empty() {
            self.ask(Ask::Forget { agent: self.agent, seqs: forget }, out);
        }
        self.read_on(cx, out);
    }

    fn ping(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) {
        let too_soon = |last| cx.now.since(last) < cx.options.ping_interval_min;
        if self.last_ping.is_some_and(too_soon) {
            return self.end(Close::PingTooSoon, cx, out);
        }
        self.last_ping = Some(cx.now);
        out.push(Output::Send(write::PING.to_owned()));
    }
}

/// Base64 of whatever alphabet and padding, as agents send it.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);

/// A public key as an agent sends it. Whether it is a point on a curve is found out by those who
/// use it; an empty one would be an endpoint that nobody can use.
fn decode_key(text: &str) -> Result<Bytes, ()> {
    let key = URL_SAFE.decode(text).or_else(|_| STANDARD.decode(text)).map_err(|_| ())?;
    if key.is_empty() { Err(()) } else { Ok(key.into()) }
}
