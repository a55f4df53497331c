//! What was sent and is not acknowledged, in the order in which it was sent.

use std::collections::VecDeque;

use posthorn_domain::{MessageId, MessageSeq, PushMessage, Timestamp};

/// Where the only copy of a sent message is.
#[derive(Debug)]
pub(super) enum Kept {
    /// Here. `None` for a message that is worth nothing later, so that nobody keeps it.
    Direct(Option<Box<PushMessage>>),
    /// In the store.
    Stored {
        /// Where there.
        seq: MessageSeq,
        /// Whether it has a topic.
        topic: bool,
    },
}

impl Kept {
    fn weight(&self) -> usize {
        match self {
            Kept::Direct(message) => message.as_deref().map_or(0, PushMessage::weight),
            Kept::Stored { .. } => 0,
        }
    }
}

#[derive(Debug)]
struct Sent {
    id: MessageId,
    copy: Kept,
}

/// The window. Its users keep it from growing: it never has more than the options allow.
#[derive(Debug, Default)]
pub(super) struct Unacked {
    // In order of sending. Agents acknowledge in about that order, so what is looked for is near
    // the front.
    sent: VecDeque<Sent>,
    stored: u16,
    /// What the messages weigh whose only copy is here.
    weight: usize,
}

/// An empty window keeps no more room than this: most sessions wait for most of their lives.
const IDLE_ROOM: usize = 4;

impl Unacked {
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// What the messages weigh whose only copy is here.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// How many of them are in the store.
    pub(super) fn stored(&self) -> usize {
        usize::from(self.stored)
    }

    pub(super) fn contains(&self, id: MessageId) -> bool {
        self.sent.iter().any(|sent| sent.id == id)
    }

    pub(super) fn push(&mut self, id: MessageId, copy: Kept) {
        self.stored += u16::from(matches!(copy, Kept::Stored { .. }));
        self.weight += copy.weight();
        self.sent.push_back(Sent { id, copy });
    }

    /// Takes note that a message that was sent is in the store, so that no copy is needed here.
    /// Says whether it was sent.
    pub(super) fn found_stored(&mut self, id: MessageId, seq: MessageSeq, topic: bool) -> bool {
        let Some(sent) = self.sent.iter_mut().find(|sent| sent.id == id) else { return false };
        if matches!(sent.copy, Kept::Direct(_)) {
            self.stored += 1;
        }
        self.weight -= sent.copy.weight();
        sent.copy = Kept::Stored { seq, topic };
        true
    }

    /// Takes an acknowledged message out.
    pub(super) fn take(&mut self, id: MessageId) -> Option<Kept> {
        let at = self.sent.iter().position(|sent| sent.id == id)?;
        let sent = self.sent.remove(at)?;
        self.stored -= u16::from(matches!(sent.copy, Kept::Stored { .. }));
        self.weight -= sent.copy.weight();
        if self.sent.is_empty() && self.sent.capacity() > IDLE_ROOM {
            self.sent = VecDeque::new();
        }
        Some(sent.copy)
    }

    /// Everything that exists only here and is still worth something, in order; the window is empty
    /// afterwards.
    pub(super) fn leave_behind(&mut self, now: Timestamp) -> Vec<PushMessage> {
        self.stored = 0;
        self.weight = 0;
        let kept = std::mem::take(&mut self.sent).into_iter().filter_map(|sent| match sent.copy {
            Kept::Direct(message) => message.map(|message| *message),
            Kept::Stored { .. } => None,
        });
        kept.filter(|message| !message.is_expired(now)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Sent;

    #[test]
    fn an_unacknowledged_message_costs_little_beside_itself() {
        assert!(size_of::<Sent>() <= 40, "{} bytes", size_of::<Sent>());
    }
}
