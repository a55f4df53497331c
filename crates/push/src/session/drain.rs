//! How stored messages come out: in batches, each after the last, as far as the window has room.

use posthorn_domain::{MessageSeq, StoredMessage};

use super::unacked::Kept;
use super::{AckMode, Ask, Context, Output, Overflow, Phase, Session};
use crate::protocol::write;

/// How far the store was read.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// The store may hold what was not read yet.
    pub(super) wanted: bool,
    /// How many are being read; each has a place in the window. Zero when no read is under way.
    reading: u16,
    /// How many more may be sent before the agent is dropped for having had too many. With none left it
    /// is dropped as soon as it has acknowledged those it got.
    allowance: Option<u32>,
    /// The last message with a topic that was read.
    after_topics: MessageSeq,
    /// The last message without a topic that was read.
    after: MessageSeq,
    /// Acknowledged, and not to be removed before the rest of its batch is acknowledged too.
    pub(super) held: Vec<MessageSeq>,
}

impl Drain {
    /// How many places of the window belong to a read that is under way.
    pub(super) fn reserved(&self) -> usize {
        usize::from(self.reading)
    }
}

impl Session {
    /// The agent is back, and so many messages wait for it.
    pub(super) fn begin_drain(&mut self, stored: u64, cx: &Context<'_>, out: &mut Vec<Output>) {
        let limit = cx.options.stored_max;
        if limit > 0 && stored > u64::from(limit) {
            // Counted once, when the agent comes back: what is stored later, while it is connected
            // and slow, is not a backlog that it abandoned.
            match cx.options.on_overflow {
                Overflow::ResetAgent => self.drain.allowance = Some(limit),
                Overflow::DropOldest => {
                    self.ask(Ask::Trim { agent: self.agent, keep: limit }, out);
                }
            }
        }
        self.drain.wanted = true;
        self.read_on(cx, out);
    }

    /// Reads the next batch if there may be one, and room for it.
    pub(super) fn read_on(&mut self, cx: &Context<'_>, out: &mut Vec<Output>) {
        if self.phase != Phase::Open || self.drain.reading > 0 {
            return;
        }
        if self.drain.allowance == Some(0) {
            // What there is besides is not for this agent, so nothing is read to find it.
            if self.unacked.stored() == 0 {
                self.reset(out);
            }
            return;
        }
        if !self.drain.wanted {
            if self.outdated && self.unacked.is_empty() {
                self.reset(out);
            }
            return;
        }
        let room = cx.options.window().saturating_sub(self.unacked.len());
        let all_acked = self.unacked.stored() == 0;
        // A place that becomes free is not worth a read of its own; a batch of them is.
        let worth_it = match cx.options.ack {
            AckMode::Each => all_acked || room >= cx.options.batch().min(cx.options.window()),
            AckMode::Batch => all_acked,
        };
        if room == 0 || !worth_it {
            return;
        }
        let allowed = self.drain.allowance.map_or(usize::MAX, |left| left as usize);
        let limit = room.min(cx.options.batch()).min(allowed);
        self.drain.wanted = false;
        self.drain.reading = u16::try_from(limit).unwrap_or(u16::MAX);
        let Drain { after_topics, after, .. } = self.drain;
        self.ask(Ask::Read { agent: self.agent, after_topics, after, limit }, out);
    }

    /// A batch was read.
    pub(super) fn read_done(
        &mut self,
        messages: Vec<StoredMessage>,
        cx: &Context<'_>,
        out: &mut Vec<Output>,
    ) {
        let limit = usize::from(std::mem::take(&mut self.drain.reading));
        // A batch that is not full is the last, as far as was known when it was read.
        self.drain.wanted |= messages.len() >= limit;
        let sent_before = self.counters.stored_sent;
        // More than was asked for would not fit into the window.
        for StoredMessage { seq, message } in messages.into_iter().take(limit) {
            let topic = message.topic.is_some();
            let pointer = if topic { &mut self.drain.after_topics } else { &mut self.drain.after };
            *pointer = seq.max(*pointer);
            if message.is_expired(cx.now) {
                self.counters.expired += 1;
            } else if !self.unacked.found_stored(message.id, seq, topic) {
                self.counters.stored_sent += 1;
                out.push(Output::Send(write::notification(&message)));
                self.unacked.push(message.id, Kept::Stored { seq, topic });
            }
        }
        if let Some(allowance) = self.drain.allowance {
            let left = allowance.saturating_sub(self.counters.stored_sent - sent_before);
            // Where nothing is left to read, so much expired meanwhile that there is no backlog.
            self.drain.allowance = (self.drain.wanted || left == 0).then_some(left);
        }
        // If all of them had expired there is nothing to wait for.
        self.read_on(cx, out);
    }
}
