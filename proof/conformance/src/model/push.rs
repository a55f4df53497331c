//! Agents, channels and messages in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use async_trait::async_trait;
use posthorn_domain::push::KeyHash;
use posthorn_domain::{
    AgentId, ChannelId, MessageId, MessageSeq, PushMessage, StoredMessage, Timestamp,
};

use super::ModelStore;
use posthorn_store::Result;
use posthorn_store::push::{
    AGENT_MESSAGES_MAX, Agent, Bite, Census, Channel, ClearNode, Connect, Connected, Kept,
    MessagesAsk, PushStore, Register, Registered, Route, RouteAsk, Router, Trim,
};

/// Everything of Web Push.
#[derive(Default)]
pub(super) struct State {
    agents: BTreeMap<AgentId, Stored>,
    seq: u64,
}

struct Stored {
    router: Router,
    channels: BTreeMap<ChannelId, Option<KeyHash>>,
    messages: BTreeMap<MessageSeq, PushMessage>,
}

impl Stored {
    fn agent(&self, id: AgentId) -> Agent {
        let channel = |(id, key): (&ChannelId, &Option<KeyHash>)| Channel { id: *id, key: *key };
        let channels = self.channels.iter().map(channel).collect();
        Agent { id, router: self.router.clone(), channels }
    }

    fn find(&self, wanted: impl Fn(&PushMessage) -> bool) -> Option<(MessageSeq, &PushMessage)> {
        self.messages.iter().find(|(_, message)| wanted(message)).map(|(seq, m)| (*seq, m))
    }
}

impl State {
    fn connect(&mut self, connect: Connect) -> Connected {
        let Some(stored) = self.agents.get_mut(&connect.agent) else { return Connected::Unknown };
        let router = &mut stored.router;
        let before = router.node.clone();
        let free = before.as_ref().is_none_or(|node| *node == connect.node);
        if router.connected_at > connect.at || (router.connected_at == connect.at && !free) {
            return Connected::Superseded { router: router.clone() };
        }
        router.node = Some(connect.node);
        router.connected_at = connect.at;
        router.seen_at = router.seen_at.max(connect.seen);
        Connected::Here { agent: stored.agent(connect.agent), before }
    }

    fn clear(&mut self, clear: &ClearNode) -> bool {
        let Some(stored) = self.agents.get_mut(&clear.agent) else { return false };
        let router = &mut stored.router;
        let same =
            router.connected_at == clear.connected_at && router.node.as_ref() == Some(&clear.node);
        if same {
            router.node = None;
        }
        same
    }

    fn register(&mut self, register: Register) -> Registered {
        if let Some(birth) = register.birth {
            self.agents.entry(register.agent).or_insert_with(|| Stored {
                router: Router {
                    node: Some(birth.node),
                    connected_at: birth.connected_at,
                    created_at: register.at,
                    seen_at: birth.connected_at.max(register.at),
                },
                channels: BTreeMap::new(),
                messages: BTreeMap::new(),
            });
        }
        let Some(stored) = self.agents.get_mut(&register.agent) else {
            return Registered::AgentGone;
        };
        match stored.channels.insert(register.channel, register.key) {
            None => Registered::New,
            Some(_) => Registered::Again,
        }
    }

    fn keep(&mut self, message: PushMessage) -> Kept {
        let Some(stored) = self.agents.get_mut(&message.agent) else { return Kept::AgentGone };
        if !stored.channels.contains_key(&message.channel) {
            return Kept::ChannelGone;
        }
        if let Some((seq, _)) = stored.find(|other| other.id == message.id) {
            return Kept::Again(seq);
        }
        let twin = |other: &PushMessage| {
            message.topic.is_some()
                && (other.channel, &other.topic) == (message.channel, &message.topic)
        };
        if let Some((seq, other)) = stored.find(twin) {
            if other.received_at > message.received_at {
                return Kept::Outdated;
            }
            stored.messages.remove(&seq);
        }
        self.seq += 1;
        let seq = MessageSeq(self.seq);
        stored.messages.insert(seq, message);
        Kept::Stored(seq)
    }

    fn read(&self, ask: MessagesAsk) -> Vec<StoredMessage> {
        let Some(stored) = self.agents.get(&ask.agent) else { return Vec::new() };
        let part = |after, with_topic| {
            let after = (Bound::Excluded(after), Bound::Unbounded);
            let wanted =
                move |m: &PushMessage| m.topic.is_some() == with_topic && !m.is_expired(ask.now);
            stored.messages.range(after).filter(move |(_, m)| wanted(m))
        };
        let all = part(ask.after_topics, true).chain(part(ask.after, false));
        let found = all.map(|(seq, m)| StoredMessage { seq: *seq, message: m.clone() });
        found.take(ask.limit).collect()
    }

    fn alive(&self, agent: AgentId, now: Timestamp) -> Vec<MessageSeq> {
        let Some(stored) = self.agents.get(&agent) else { return Vec::new() };
        let alive = stored.messages.iter().filter(|(_, m)| !m.is_expired(now));
        alive.map(|(seq, _)| *seq).collect()
    }

    fn remove(&mut self, agent: AgentId, seq: MessageSeq) -> bool {
        self.agents.get_mut(&agent).is_some_and(|stored| stored.messages.remove(&seq).is_some())
    }

    fn delete(&mut self, agent: AgentId, id: MessageId) -> bool {
        let found = self.agents.get(&agent).and_then(|stored| stored.find(|m| m.id == id));
        let seq = found.map(|(seq, _)| seq);
        seq.is_some_and(|seq| self.remove(agent, seq))
    }

    fn trim(&mut self, trim: Trim, now: Timestamp) -> u64 {
        let alive = self.alive(trim.agent, now);
        let surplus = alive.len().saturating_sub(trim.keep);
        let removed = alive.iter().take(surplus).filter(|seq| self.remove(trim.agent, **seq));
        removed.count() as u64
    }

    fn expire_messages(&mut self, now: Timestamp, limit: usize) -> Bite {
        let mut expired: Vec<(Timestamp, MessageSeq, AgentId)> = Vec::new();
        for (id, stored) in &self.agents {
            let past = stored.messages.iter().filter(|(_, m)| m.is_expired(now));
            expired.extend(past.map(|(seq, m)| (m.expires_at(), *seq, *id)));
        }
        expired.sort_unstable();
        expired.truncate(limit);
        for (_, seq, agent) in &expired {
            self.remove(*agent, *seq);
        }
        Bite { removed: expired.len(), more: expired.len() == limit }
    }

    fn expire_agents(&mut self, before: Timestamp, limit: usize) -> Bite {
        let stale = self.agents.iter().filter(|(_, stored)| stored.router.seen_at < before);
        let mut stale: Vec<_> = stale.map(|(id, stored)| (stored.router.seen_at, *id)).collect();
        stale.sort_unstable();
        stale.truncate(limit);
        let mut room = AGENT_MESSAGES_MAX;
        let mut removed = 0;
        for (_, id) in &stale {
            let Some(stored) = self.agents.get_mut(id) else { continue };
            let bite = room.min(stored.messages.len());
            for _ in 0..bite {
                stored.messages.pop_first();
            }
            room -= bite;
            if stored.messages.is_empty() {
                self.agents.remove(id);
                removed += 1;
            }
        }
        Bite { removed, more: removed < stale.len() || stale.len() == limit }
    }
}

#[async_trait]
impl PushStore for ModelStore {
    async fn routes(&self, asks: Vec<RouteAsk>) -> Result<Vec<Option<Route>>> {
        let state = self.shared.push.lock();
        let route = |ask: RouteAsk| {
            let stored = state.agents.get(&ask.agent)?;
            let key = stored.channels.get(&ask.channel);
            let channel = key.map(|key| Channel { id: ask.channel, key: *key });
            Some(Route { router: stored.router.clone(), channel })
        };
        Ok(asks.into_iter().map(route).collect())
    }

    async fn agents(&self, asks: Vec<AgentId>) -> Result<Vec<Option<Agent>>> {
        let state = self.shared.push.lock();
        let agent = |id: AgentId| state.agents.get(&id).map(|stored| stored.agent(id));
        Ok(asks.into_iter().map(agent).collect())
    }

    async fn connect_agents(&self, batch: Vec<Connect>) -> Result<Vec<Connected>> {
        let mut state = self.shared.push.lock();
        Ok(batch.into_iter().map(|connect| state.connect(connect)).collect())
    }

    async fn clear_nodes(&self, batch: Vec<ClearNode>) -> Result<Vec<bool>> {
        let mut state = self.shared.push.lock();
        Ok(batch.iter().map(|clear| state.clear(clear)).collect())
    }

    async fn drop_agents(&self, agents: Vec<AgentId>) -> Result<Vec<bool>> {
        let mut state = self.shared.push.lock();
        Ok(agents.iter().map(|agent| state.agents.remove(agent).is_some()).collect())
    }

    async fn register_channels(&self, batch: Vec<Register>) -> Result<Vec<Registered>> {
        let mut state = self.shared.push.lock();
        Ok(batch.into_iter().map(|register| state.register(register)).collect())
    }

    async fn unregister_channels(&self, batch: Vec<(AgentId, ChannelId)>) -> Result<Vec<bool>> {
        let mut state = self.shared.push.lock();
        let mut remove = |(agent, channel): &(AgentId, ChannelId)| {
            let stored = state.agents.get_mut(agent);
            stored.is_some_and(|stored| stored.channels.remove(channel).is_some())
        };
        Ok(batch.iter().map(&mut remove).collect())
    }

    async fn store_messages(&self, batch: Vec<PushMessage>) -> Result<Vec<Kept>> {
        let mut state = self.shared.push.lock();
        Ok(batch.into_iter().map(|message| state.keep(message)).collect())
    }

    async fn messages(&self, asks: Vec<MessagesAsk>) -> Result<Vec<Vec<StoredMessage>>> {
        let state = self.shared.push.lock();
        Ok(asks.into_iter().map(|ask| state.read(ask)).collect())
    }

    async fn count_messages(
        &self,
        agents: Vec<AgentId>,
        now: Timestamp,
        at_most: u64,
    ) -> Result<Vec<u64>> {
        let state = self.shared.push.lock();
        let count = |agent| (state.alive(agent, now).len() as u64).min(at_most);
        Ok(agents.into_iter().map(count).collect())
    }

    async fn ack_messages(&self, batch: Vec<(AgentId, MessageSeq)>) -> Result<Vec<bool>> {
        let mut state = self.shared.push.lock();
        Ok(batch.into_iter().map(|(agent, seq)| state.remove(agent, seq)).collect())
    }

    async fn delete_messages(&self, batch: Vec<(AgentId, MessageId)>) -> Result<Vec<bool>> {
        let mut state = self.shared.push.lock();
        Ok(batch.into_iter().map(|(agent, id)| state.delete(agent, id)).collect())
    }

    async fn trim_messages(&self, batch: Vec<Trim>, now: Timestamp) -> Result<Vec<u64>> {
        let mut state = self.shared.push.lock();
        Ok(batch.into_iter().map(|trim| state.trim(trim, now)).collect())
    }

    async fn census(&self, at_most: u64) -> Result<Census> {
        let state = self.shared.push.lock();
        let looked = usize::try_from(at_most).unwrap_or(usize::MAX);
        let mut connected: BTreeMap<String, u64> = BTreeMap::new();
        for stored in state.agents.values().take(looked) {
            if let Some(node) = &stored.router.node {
                *connected.entry(node.clone()).or_default() += 1;
            }
        }
        let messages = state.agents.values().map(|stored| stored.messages.len() as u64).sum();
        let (agents, connected) = (state.agents.len() as u64, connected.into_iter().collect());
        Ok(Census { agents, connected, messages, more: false }.bounded(at_most))
    }

    async fn expire_messages(&self, now: Timestamp, limit: usize) -> Result<Bite> {
        Ok(self.shared.push.lock().expire_messages(now, limit))
    }

    async fn expire_agents(&self, before: Timestamp, limit: usize) -> Result<Bite> {
        Ok(self.shared.push.lock().expire_agents(before, limit))
    }
}
