//! The node: what its sockets and endpoints share, how it begins and how it goes away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use axum::Router;
use parking_lot::Mutex;
use posthorn_domain::{AgentId, ChannelId, Clock, PushMessage, Timestamp};
use posthorn_push::endpoint::{NodeAnswer, Outcome};
use posthorn_push::session::{Broadcasts, Context, Pushed, Summary};
use posthorn_sealing::endpoint_token::{Endpoint, EndpointTokens, Version};
use posthorn_sealing::vapid::Proven;
use posthorn_store::push::PushStore;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Pace;
use crate::connection::Connection;
use crate::hello_times::HelloTimes;
use crate::local::Local;
use crate::memory::Memory;
use crate::meter::Meter;
use crate::options::Options;
use crate::registry::Registry;
use crate::remote::Remote;
use crate::removals::Forgetting;
use crate::request_queries::RequestQueries;
use crate::session_queries::SessionQueries;
use crate::wheel::{STEP, Wheel};
use crate::{ending, endpoint, socket};

/// How often sockets are closed while the node goes away.
const WAVE: Duration = Duration::from_millis(100);
/// How long what was left behind may take to be stored after the last socket is closed.
pub const LAST_SAVES: Duration = Duration::from_secs(5);

/// What a node is made of.
pub struct Parts {
    /// Where agents and messages are.
    pub store: Arc<dyn PushStore>,
    /// Makes and opens the names of endpoints and messages.
    pub tokens: EndpointTokens,
    /// The way to other nodes; `None` when there are none.
    pub remote: Option<Arc<dyn Remote>>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// The broadcasts, which somebody else keeps up to date.
    pub broadcasts: Arc<ArcSwap<Broadcasts>>,
    /// Whether more may be stored; false when the disk is nearly full.
    pub accepting: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The knobs.
    pub options: Options,
}

pub(crate) struct Shared {
    pub(crate) store: Arc<dyn PushStore>,
    pub(crate) tokens: EndpointTokens,
    pub(crate) remote: Option<Arc<dyn Remote>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) broadcasts: Arc<ArcSwap<Broadcasts>>,
    pub(crate) accepting: Arc<dyn Fn() -> bool + Send + Sync>,
    pub(crate) options: Options,
    /// Scheme, host and port of the endpoints, which senders sign for.
    pub(crate) origin: String,
    pub(crate) registry: Registry,
    pub(crate) wheel: Wheel<Connection>,
    pub(crate) session_queries: SessionQueries,
    pub(crate) forgetting: Forgetting,
    pub(crate) request_queries: RequestQueries,
    pub(crate) pace: Pace,
    /// Tokens of senders whose signatures are known to be good.
    pub(crate) proven: Proven,
    pub(crate) meter: Meter,
    pub(crate) requests: Arc<AtomicU64>,
    pub(crate) sockets: AtomicUsize,
    /// What must end before the node may.
    pub(crate) work: TaskTracker,
    pub(crate) leaving: AtomicBool,
    pub(crate) memory: Memory,
    pub(crate) saves: Semaphore,
    hello_times: Mutex<HelloTimes>,
}

impl Shared {
    pub(crate) fn context<'a>(
        &'a self,
        broadcasts: &'a Guard<Arc<Broadcasts>>,
        now: Timestamp,
    ) -> Context<'a> {
        Context { now, options: &self.options.session, broadcasts }
    }

    /// A time for a hello that no other hello of this agent had on this node, and not before the
    /// socket was opened.
    pub(crate) fn hello_time(&self, agent: AgentId, opened_at: Timestamp) -> Timestamp {
        self.hello_times.lock().next(agent, self.clock.now().max(opened_at))
    }

    /// An agent is connected since this time. Its id may be a new one, for which nobody asked the
    /// time; but nobody knows it yet, either.
    pub(crate) fn note_hello(&self, agent: AgentId, at: Timestamp) {
        self.hello_times.lock().note(agent, at, self.clock.now());
    }

    /// The URL of an endpoint.
    pub(crate) fn url_of(&self, endpoint: &Endpoint) -> String {
        let base = &self.options.endpoint_url;
        let version = endpoint.version().as_str();
        format!("{base}/wpush/{version}/{}", self.tokens.seal_endpoint(endpoint))
    }

    /// Gives a message to a node, which may be this one.
    pub(crate) async fn push_to(self: &Arc<Self>, node: &str, message: &PushMessage) -> NodeAnswer {
        if node == self.options.node {
            return match self.push_here(message.clone()) {
                Pushed::Accepted => NodeAnswer::Accepted,
                Pushed::Full => NodeAnswer::Full,
                Pushed::NotConnected => NodeAnswer::NotConnected,
            };
        }
        match &self.remote {
            Some(remote) => remote.push(node, message).await,
            None => NodeAnswer::Unreachable,
        }
    }

    /// Tells a node, which may be this one, that something was stored for an agent.
    pub(crate) async fn hint_to(self: &Arc<Self>, node: &str, agent: AgentId) -> NodeAnswer {
        if node == self.options.node {
            return match self.hint_here(agent) {
                true => NodeAnswer::Accepted,
                false => NodeAnswer::NotConnected,
            };
        }
        match &self.remote {
            Some(remote) => remote.hint(node, agent).await,
            None => NodeAnswer::Unreachable,
        }
    }

    fn push_here(self: &Arc<Self>, message: PushMessage) -> Pushed {
        match self.registry.get(message.agent) {
            Some(connection) => connection.push(self, message),
            None => Pushed::NotConnected,
        }
    }

    pub(crate) fn hint_here(self: &Arc<Self>, agent: AgentId) -> bool {
        self.registry.get(agent).is_some_and(|connection| connection.hint(self))
    }
}

/// The store could not be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store could not be reached")]
pub struct StoreFailed;

/// A node of Web Push. Clones share it.
#[derive(Clone)]
pub struct Node(pub(crate) Arc<Shared>);

impl Node {
    /// Begins. Must be called within a runtime; `stop` ends the timers.
    pub fn start(parts: Parts, stop: CancellationToken) -> Self {
        let origin = endpoint::origin(&parts.options.endpoint_url);
        let shared = Arc::new_cyclic(|weak| Shared {
            request_queries: RequestQueries::start(&parts.store),
            store: parts.store,
            tokens: parts.tokens,
            remote: parts.remote,
            clock: parts.clock,
            broadcasts: parts.broadcasts,
            accepting: parts.accepting,
            origin,
            registry: Registry::default(),
            wheel: Wheel::default(),
            session_queries: SessionQueries::start(weak),
            forgetting: Forgetting::default(),
            pace: Pace::new(parts.options.opens_per_second),
            proven: Proven::default(),
            meter: Meter::new(),
            requests: Arc::new(AtomicU64::new(0)),
            sockets: AtomicUsize::new(0),
            work: TaskTracker::new(),
            leaving: AtomicBool::new(false),
            memory: Memory::default(),
            saves: Semaphore::new(ending::SAVES_ABREAST),
            hello_times: Mutex::new(HelloTimes::default()),
            options: parts.options,
        });
        tokio::spawn(turn(Arc::clone(&shared), stop));
        Self(shared)
    }

    /// What agents and senders call, as far as this node has that role.
    pub fn router(&self) -> Router {
        let mut router = Router::new();
        if self.0.options.roles.connection {
            router = router.merge(socket::router(Arc::clone(&self.0)));
        }
        if self.0.options.roles.endpoint {
            router = router.merge(endpoint::router(Arc::clone(&self.0)));
        }
        router
    }

    /// The agents that are connected here, for other nodes.
    pub fn local(&self) -> Arc<dyn Local> {
        Arc::new(self.clone())
    }

    /// What an endpoint's URL stands for, if it was made with one of our keys. Where it says that we
    /// are does not matter: endpoints outlive names of hosts.
    pub fn open(&self, url: &str) -> Option<Endpoint> {
        let (_, path) = url.rsplit_once("/wpush/")?;
        let (version, token) = path.split_once('/').unwrap_or(("v1", path));
        let version = [Version::V1, Version::V2].into_iter().find(|v| v.as_str() == version)?;
        self.0.tokens.open_endpoint(version, token).ok()
    }

    /// Whether a URL begins as those of our endpoints do.
    pub fn is_here(&self, url: &str) -> bool {
        let rest = url.strip_prefix(self.0.options.endpoint_url.as_str());
        rest.is_some_and(|rest| rest.starts_with("/wpush/"))
    }

    /// Whether an agent with a channel exists.
    pub async fn is_registered(
        &self,
        agent: AgentId,
        channel: ChannelId,
    ) -> Result<bool, StoreFailed> {
        let found =
            self.0.request_queries.route_to(agent, channel).await.map_err(|()| StoreFailed)?;
        Ok(found.is_some_and(|route| route.channel.is_some()))
    }

    /// Keeps a message in the store in any case, then tells the agent's node.
    pub async fn keep(&self, message: &PushMessage) -> Outcome {
        endpoint::keep(&self.0, message).await
    }

    /// How many posts were taken since the start.
    pub fn request_count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.requests)
    }

    /// Goes away: takes no more sockets, closes those that are open in waves, so that the other nodes
    /// are not overrun by all of them at once, and waits until what they left behind is stored.
    pub async fn drain(&self) {
        self.drain_within(self.0.options.drain_timeout).await;
    }

    /// The same, with another time for the waves.
    pub async fn drain_within(&self, time: Duration) {
        let node = &self.0;
        node.leaving.store(true, Ordering::SeqCst);
        let open = node.registry.all();
        let waves = time.as_millis() / WAVE.as_millis();
        let size = open.len().div_ceil(usize::try_from(waves).unwrap_or(1).max(1)).max(1);
        if !open.is_empty() {
            tracing::info!(sockets = open.len(), "closing the sockets of agents in batches");
        }
        for wave in open.chunks(size) {
            for connection in wave {
                connection.send_away(node);
            }
            tokio::time::sleep(WAVE).await;
        }
        drop(open);
        // Whoever came in while we were at it, and whoever has not said who it is: all have timers.
        for connection in node.wheel.due(Timestamp::MAX) {
            if let Some(connection) = connection.upgrade() {
                connection.send_away(node);
            }
        }
        node.work.close();
        if tokio::time::timeout(LAST_SAVES, node.work.wait()).await.is_err() {
            tracing::warn!(left = node.work.len(), "some sockets did not close in time");
        }
    }
}

impl Local for Node {
    fn push(&self, message: PushMessage) -> Pushed {
        self.0.push_here(message)
    }

    fn hint(&self, agent: AgentId) -> bool {
        self.0.hint_here(agent)
    }

    fn connections(&self) -> usize {
        self.0.sockets.load(Ordering::Relaxed)
    }
}

/// Turns the wheel.
async fn turn(node: Arc<Shared>, stop: CancellationToken) {
    let mut steps = tokio::time::interval(Duration::from_millis(STEP.unsigned_abs()));
    steps.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = steps.tick() => {}
        }
        let now = node.clock.now();
        for connection in node.wheel.due(now) {
            if let Some(connection) = connection.upgrade() {
                connection.tick(&node, now);
            }
        }
    }
}

impl Shared {
    /// A connection is over.
    pub(crate) fn ended(
        self: &Arc<Self>,
        summary: Summary,
        connected_at: Timestamp,
        save: Vec<PushMessage>,
    ) {
        self.meter.ended(&summary);
        ending::log(self, &summary);
        self.work.spawn(ending::settle(Arc::clone(self), summary, connected_at, save));
    }
}
