//! Acknowledged messages on their way out of the store.
//!
//! Agents acknowledge one message at a time, and each removal is a commit. So the acks of a connection
//! that come while a removal is under way are joined, and the end of the connection does not wait for
//! them. Reading on does, once they fill the window: if the node dies, what was acknowledged and not
//! yet removed comes again, and that must not be more than the window. An agent that comes back waits
//! as well: otherwise it would get again what it acknowledged a moment before.

use std::collections::HashMap;

use parking_lot::Mutex;
use posthorn_domain::{AgentId, MessageSeq};
use tokio::sync::watch;

/// The acks of one connection.
#[derive(Default)]
pub(crate) struct Acks {
    agent: Option<AgentId>,
    waiting: Vec<MessageSeq>,
    /// How many are being removed.
    under_way: usize,
}

impl Acks {
    /// Some more. Says whether these begin a new round.
    pub(crate) fn add(&mut self, agent: AgentId, seqs: Vec<MessageSeq>) -> bool {
        self.agent = Some(agent);
        if !self.waiting.is_empty() {
            self.waiting.extend(seqs);
            return false;
        }
        self.waiting = seqs;
        true
    }

    /// The next round, when none is under way: all that wait.
    pub(crate) fn next(&mut self) -> Option<(AgentId, Vec<MessageSeq>)> {
        if self.under_way > 0 || self.waiting.is_empty() {
            return None;
        }
        self.under_way = self.waiting.len();
        Some((self.agent?, std::mem::take(&mut self.waiting)))
    }

    /// The round that was under way is over.
    pub(crate) fn done(&mut self) {
        self.under_way = 0;
    }

    /// How many are still in the store.
    pub(crate) fn unremoved(&self) -> usize {
        self.under_way + self.waiting.len()
    }

    /// Whether there is anything left to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.unremoved() > 0
    }
}

/// The agents that have acks under way, or are being dropped, from whichever connection.
pub(crate) struct Forgetting {
    agents: Mutex<HashMap<AgentId, usize>>,
    changed: watch::Sender<()>,
}

impl Default for Forgetting {
    fn default() -> Self {
        Self { agents: Mutex::new(HashMap::new()), changed: watch::Sender::new(()) }
    }
}

impl Forgetting {
    /// A round of acks of an agent began.
    pub(crate) fn begin(&self, agent: AgentId) {
        *self.agents.lock().entry(agent).or_default() += 1;
    }

    /// Rounds are over.
    pub(crate) fn end(&self, agents: impl IntoIterator<Item = AgentId>) {
        let mut under_way = self.agents.lock();
        for agent in agents {
            if let Some(count) = under_way.get_mut(&agent) {
                *count -= 1;
                if *count == 0 {
                    under_way.remove(&agent);
                }
            }
        }
        drop(under_way);
        self.changed.send_replace(());
    }

    /// Whether an agent has any under way.
    pub(crate) fn is_busy(&self, agent: AgentId) -> bool {
        self.agents.lock().contains_key(&agent)
    }

    /// Waits until an agent has none under way.
    pub(crate) async fn settled(&self, agent: AgentId) {
        let mut changed = self.changed.subscribe();
        while self.is_busy(agent) {
            // The sender is in here, so it cannot be gone.
            let _ = changed.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn acks_that_come_while_others_are_under_way_are_joined() {
        let seqs = |numbers: &[u64]| numbers.iter().copied().map(MessageSeq).collect::<Vec<_>>();
        let agent = AgentId::from_random(7);
        let mut acks = Acks::default();
        assert!(acks.add(agent, seqs(&[1])));
        assert_eq!(acks.next(), Some((agent, seqs(&[1]))));
        assert!(acks.add(agent, seqs(&[2])));
        assert!(!acks.add(agent, seqs(&[3, 4])));
        assert_eq!((acks.next(), acks.unremoved()), (None, 4));
        acks.done();
        assert_eq!(acks.next(), Some((agent, seqs(&[2, 3, 4]))));
        assert!(acks.is_busy());
        acks.done();
        assert!(acks.next().is_none() && !acks.is_busy());
    }

    #[tokio::test]
    async fn somebody_who_comes_back_waits_for_the_own_acks_only() {
        let forgetting = Arc::new(Forgetting::default());
        let (one, other) = (AgentId::from_random(1), AgentId::from_random(2));
        forgetting.begin(one);
        forgetting.begin(one);
        forgetting.settled(other).await;
        let waiting = tokio::spawn({
            let forgetting = Arc::clone(&forgetting);
            async move { forgetting.settled(one).await }
        });
        forgetting.end([one]);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        forgetting.end([one]);
        waiting.await.expect("no panic");
    }
}
