//! Who is connected to this node.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use posthorn_domain::AgentId;

use crate::connection::Connection;

/// So many parts have a lock of their own.
const PARTS: usize = 64;

/// The connections by their agents.
pub(crate) struct Registry([Mutex<HashMap<AgentId, Arc<Connection>>>; PARTS]);

impl Default for Registry {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(HashMap::new())))
    }
}

impl Registry {
    fn part(&self, agent: AgentId) -> &Mutex<HashMap<AgentId, Arc<Connection>>> {
        // The first byte is random for every agent that we named ourselves.
        &self.0[usize::from(agent.as_bytes()[0]) % PARTS]
    }

    /// Where an agent is.
    pub(crate) fn get(&self, agent: AgentId) -> Option<Arc<Connection>> {
        self.part(agent).lock().get(&agent).cloned()
    }

    /// Lets a connection be found; gives back the one that was found before.
    pub(crate) fn enter(
        &self,
        agent: AgentId,
        connection: Arc<Connection>,
    ) -> Option<Arc<Connection>> {
        self.part(agent).lock().insert(agent, connection)
    }

    /// Lets a connection not be found any more, if it is the one that is found.
    pub(crate) fn leave(&self, agent: AgentId, connection: &Arc<Connection>) {
        let mut part = self.part(agent).lock();
        if part.get(&agent).is_some_and(|found| Arc::ptr_eq(found, connection)) {
            part.remove(&agent);
            // After a wave of agents went away, their room is given back.
            if part.capacity() > 64 && part.len() < part.capacity() / 8 {
                part.shrink_to_fit();
            }
        }
    }

    /// Everybody, as of some moment.
    pub(crate) fn all(&self) -> Vec<Arc<Connection>> {
        self.0.iter().flat_map(|part| part.lock().values().cloned().collect::<Vec<_>>()).collect()
    }
}
