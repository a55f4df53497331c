//! Carries the questions of sessions to the store, many at once, and the answers back.
//!
//! RequestQueries of one kind are gathered over all sessions, since the store takes batches. A session has
//! one question here at a time, so those of one session keep their order.

use std::future::Future;
use std::sync::{Arc, Weak};

use posthorn_domain::{AgentId, ChannelId, MessageSeq, Timestamp};
use posthorn_push::session::{Answer, Ask};
use posthorn_sealing::endpoint_token::Endpoint;
use posthorn_sealing::vapid::hash_key;
use posthorn_store::Result;
use posthorn_store::push::{
    Birth, Connect, Connected, MessagesAsk, Register, Registered, Route, RouteAsk, Trim,
};

use crate::connection::Connection;
use crate::gather::Gather;
use crate::log::chain;
use crate::meter::Meter;
use crate::node::Shared;

/// The most questions in one batch.
const BATCH: usize = 256;
/// So many batches of one kind are under way at once.
const ABREAST: usize = 2;

type Asker = Arc<Connection>;

/// The questions, by kind.
pub(crate) struct SessionQueries {
    connects: Gather<(Asker, Connect, Kind)>,
    reads: Gather<(Asker, MessagesAsk)>,
    forgets: Gather<(Asker, AgentId, Vec<MessageSeq>)>,
    registers: Gather<(Asker, Register)>,
    unregisters: Gather<(Asker, (AgentId, ChannelId))>,
    trims: Gather<(Asker, Trim)>,
    drops: Gather<(Asker, AgentId)>,
}

#[derive(Clone, Copy)]
enum Kind {
    First { count: bool },
    Again,
}

impl SessionQueries {
    /// Begins. The tasks end when the node is dropped.
    pub(crate) fn start(weak: &Weak<Shared>) -> Self {
        /// Calls a method of the node with each batch, for as long as there is a node.
        fn with<T: Send + 'static, Fut>(
            weak: &Weak<Shared>,
            work: fn(Arc<Shared>, Vec<T>) -> Fut,
        ) -> Gather<T>
        where
            Fut: Future<Output = ()> + Send + 'static,
        {
            let weak = weak.clone();
            Gather::start(BATCH, ABREAST, move |batch| {
                let node = weak.upgrade();
                async move {
                    if let Some(node) = node {
                        work(node, batch).await;
                    }
                }
            })
        }
        Self {
            connects: with(weak, connect),
            reads: with(weak, read),
            forgets: with(weak, forget),
            registers: with(weak, register),
            unregisters: with(weak, unregister),
            trims: with(weak, trim),
            drops: with(weak, drop_agents),
        }
    }

    /// Removes acknowledged messages; then [`Connection::forgot`] is called.
    pub(crate) fn forget(&self, asker: Asker, agent: AgentId, seqs: Vec<MessageSeq>) {
        self.forgets.hand_in((asker, agent, seqs));
    }

    /// Takes a question. The answer goes to [`Connection::answer`].
    pub(crate) fn hand_in(&self, asker: Asker, ask: Ask, node: &str, now: Timestamp) {
        match ask {
            Ask::Connect { agent, connected_at, count } => {
                let node = node.to_owned();
                let connect = Connect { agent, node, at: connected_at, seen: now };
                self.connects.hand_in((asker, connect, Kind::First { count }));
            }
            Ask::Renew { agent, connected_at } => {
                let node = node.to_owned();
                let connect = Connect { agent, node, at: connected_at, seen: now };
                self.connects.hand_in((asker, connect, Kind::Again));
            }
            Ask::Read { agent, after_topics, after, limit } => {
                let ask = MessagesAsk { agent, after_topics, after, now, limit };
                self.reads.hand_in((asker, ask));
            }
            // Connections hand these in by themselves, in rounds.
            Ask::Forget { agent, seqs } => self.forget(asker, agent, seqs),
            Ask::Register { agent, channel, key, birth } => {
                let birth = birth.map(|connected_at| Birth { node: node.to_owned(), connected_at });
                let key = key.map(|key| hash_key(&key));
                self.registers.hand_in((asker, Register { agent, channel, key, at: now, birth }));
            }
            Ask::Unregister { agent, channel } => {
                self.unregisters.hand_in((asker, (agent, channel)));
            }
            Ask::Trim { agent, keep } => {
                let keep = usize::try_from(keep).unwrap_or(usize::MAX);
                self.trims.hand_in((asker, Trim { agent, keep }));
            }
            Ask::DropAgent(agent) => self.drops.hand_in((asker, agent)),
        }
    }
}

/// Gives each asker its answer, or all of them the same failure.
fn reply<A>(
    node: &Arc<Shared>,
    askers: Vec<Asker>,
    what: &'static str,
    answers: Result<Vec<A>>,
    mut say: impl FnMut(&Asker, usize, Option<A>) -> Answer,
) {
    let mut answers = match answers {
        Ok(answers) => answers.into_iter(),
        Err(e) => {
            tracing::warn!(error = %chain(&e), "the store could not {what} for connected agents");
            Meter::store_failed(what);
            Vec::new().into_iter()
        }
    };
    for (at, asker) in askers.into_iter().enumerate() {
        let answer = say(&asker, at, answers.next());
        asker.answer(node, answer);
    }
}

async fn connect(node: Arc<Shared>, batch: Vec<(Asker, Connect, Kind)>) {
    let mut askers = Vec::with_capacity(batch.len());
    let mut kinds = Vec::with_capacity(batch.len());
    let mut connects = Vec::with_capacity(batch.len());
    for (asker, connect, kind) in batch {
        // What an agent acknowledged on its last connection must not come again on this one. It
        // waits by itself, so that nobody waits for the acks of others.
        if matches!(kind, Kind::First { .. }) && node.forgetting.is_busy(connect.agent) {
            let node = Arc::clone(&node);
            tokio::spawn(async move {
                node.forgetting.settled(connect.agent).await;
                node.session_queries.connects.hand_in((asker, connect, kind));
            });
            continue;
        }
        askers.push(asker);
        kinds.push(kind);
        connects.push(connect);
    }
    if askers.is_empty() {
        return;
    }
    let agents: Vec<AgentId> = connects.iter().map(|connect| connect.agent).collect();
    let connected = node.store.connect_agents(connects).await;
    // Counted after it is written down, so that nothing is stored unseen in between.
    let counted: Vec<AgentId> = match &connected {
        Ok(connected) => (0..agents.len())
            .filter(|at| {
                matches!(kinds[*at], Kind::First { count: true })
                    && matches!(connected.get(*at), Some(Connected::Here { .. }))
            })
            .map(|at| agents[at])
            .collect(),
        Err(_) => Vec::new(),
    };
    let counts = if counted.is_empty() {
        Ok(Vec::new())
    } else {
        // Whether there are more than the limit is all that anybody wants to know.
        let at_most = u64::from(node.options.session.stored_max) + 1;
        node.store.count_messages(counted, node.clock.now(), at_most).await
    };
    let mut counts = match counts {
        Ok(counts) => Some(counts.into_iter()),
        Err(e) => {
            tracing::warn!(error = %chain(&e), "the store could not count messages of reconnected \
                                                agents");
            None
        }
    };
    reply(&node, askers, "connect", connected, |asker, at, connected| match connected {
        Some(Connected::Here { agent, .. }) => {
            asker.set_channels(agent.channels.len());
            if matches!(kinds[at], Kind::First { .. }) {
                node.meter.known.increment(1);
            }
            match kinds[at] {
                Kind::Again => Answer::Renewed,
                Kind::First { count: false } => Answer::Connected { stored: 0, outdated: false },
                Kind::First { count: true } => match counts.as_mut().and_then(Iterator::next) {
                    Some(stored) => Answer::Connected { stored, outdated: false },
                    None => Answer::Failed,
                },
            }
        }
        Some(Connected::Superseded { .. }) => {
            if matches!(kinds[at], Kind::First { .. }) {
                node.meter.superseded.increment(1);
            }
            Answer::AlreadyConnected
        }
        Some(Connected::Unknown) => {
            if matches!(kinds[at], Kind::First { .. }) {
                node.meter.new.increment(1);
            }
            Answer::Unknown
        }
        None => Answer::Failed,
    });
}

async fn read(node: Arc<Shared>, batch: Vec<(Asker, MessagesAsk)>) {
    let (askers, asks): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let read = node.store.messages(asks).await;
    reply(&node, askers, "read messages", read, |_, _, messages| match messages {
        Some(messages) => Answer::Read(messages),
        None => Answer::Failed,
    });
}

async fn forget(node: Arc<Shared>, batch: Vec<(Asker, AgentId, Vec<MessageSeq>)>) {
    let mut askers = Vec::with_capacity(batch.len());
    let mut acks = Vec::new();
    for (asker, agent, seqs) in batch {
        askers.push((asker, agent));
        acks.extend(seqs.into_iter().map(|seq| (agent, seq)));
    }
    // Whether a message was still there does not matter.
    let removed = node.store.ack_messages(acks).await;
    if let Err(e) = &removed {
        tracing::warn!(error = %chain(e), "the store could not remove acknowledged messages");
        Meter::store_failed("remove acknowledged messages");
    }
    node.forgetting.end(askers.iter().map(|(_, agent)| *agent));
    for (asker, _) in askers {
        asker.forgot(&node, removed.is_ok());
    }
}

async fn register(node: Arc<Shared>, batch: Vec<(Asker, Register)>) {
    let mut askers = Vec::with_capacity(batch.len());
    let mut registers = Vec::with_capacity(batch.len());
    // On a disk that is nearly full there is room for nothing new.
    let accepting = (node.accepting)();
    let has_room = |asker: &Connection| accepting && asker.channels() < node.options.channels_max;
    let rooms: Vec<bool> = batch.iter().map(|(asker, _)| has_room(asker)).collect();
    let mut known = known_channels(&node, &batch, &rooms).await.into_iter();
    for ((asker, register), room) in batch.into_iter().zip(rooms) {
        if room || known.next().unwrap_or(false) {
            askers.push(asker);
            registers.push(register);
        } else {
            asker.answer(&node, Answer::NotRegistered(register.channel));
        }
    }
    if askers.is_empty() {
        return;
    }
    let asked: Vec<Endpoint> = registers
        .iter()
        .map(|register| Endpoint {
            agent: register.agent,
            channel: register.channel,
            key: register.key,
        })
        .collect();
    let registered = node.store.register_channels(registers).await;
    reply(&node, askers, "register channels", registered, |asker, at, registered| {
        let endpoint = &asked[at];
        match registered {
            Some(Registered::AgentGone) => Answer::AgentGone,
            Some(registered @ (Registered::New | Registered::Again)) => {
                if registered == Registered::New {
                    asker.set_channels(asker.channels() + 1);
                }
                Answer::Registered { channel: endpoint.channel, endpoint: node.url_of(endpoint) }
            }
            None => Answer::NotRegistered(endpoint.channel),
        }
    });
}

/// Of those who have no room for another channel, whether theirs is one that they have: that may be
/// registered again.
async fn known_channels(node: &Shared, batch: &[(Asker, Register)], rooms: &[bool]) -> Vec<bool> {
    let full = batch.iter().zip(rooms).filter(|(_, room)| !**room).map(|(asked, _)| asked);
    let asks: Vec<RouteAsk> = full
        .map(|(_, register)| RouteAsk { agent: register.agent, channel: register.channel })
        .collect();
    if asks.is_empty() {
        return Vec::new();
    }
    match node.store.routes(asks).await {
        Ok(routes) => {
            let registered = |route: Route| route.channel.is_some();
            routes.into_iter().map(|route| route.is_some_and(registered)).collect()
        }
        Err(e) => {
            tracing::warn!(error = %chain(&e), "the store could not look up channels of connected agents");
            Vec::new()
        }
    }
}

async fn unregister(node: Arc<Shared>, batch: Vec<(Asker, (AgentId, ChannelId))>) {
    let (askers, channels): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let asked = channels.clone();
    let removed = node.store.unregister_channels(channels).await;
    reply(&node, askers, "unregister channels", removed, |asker, at, removed| match removed {
        Some(removed) => {
            asker.set_channels(asker.channels().saturating_sub(usize::from(removed)));
            Answer::Unregistered(asked[at].1)
        }
        None => Answer::NotUnregistered(asked[at].1),
    });
}

async fn trim(node: Arc<Shared>, batch: Vec<(Asker, Trim)>) {
    let (askers, trims): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let trimmed = node.store.trim_messages(trims, node.clock.now()).await;
    reply(&node, askers, "trim messages", trimmed, |_, _, trimmed| match trimmed {
        Some(_) => Answer::Trimmed,
        None => Answer::Failed,
    });
}

async fn drop_agents(node: Arc<Shared>, batch: Vec<(Asker, AgentId)>) {
    let (askers, agents): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let dropped = node.store.drop_agents(agents.clone()).await;
    node.forgetting.end(agents);
    reply(&node, askers, "drop agents", dropped, |_, _, dropped| match dropped {
        Some(_) => Answer::Dropped,
        None => Answer::Failed,
    });
}
