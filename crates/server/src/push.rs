//! Web Push in this process: from its configuration to a node at work.
//!
//! # The order
//! [`Ports::take`] takes the port of the internal listener before anything is opened, so that it can
//! be closed to receivers. [`Ports::start`] makes the node, with its routes for the public listener,
//! and lets other nodes call. At the end [`Running::drain`] sends the agents away, in waves, while
//! other nodes can still call; the stop of the process ends the rest.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use posthorn_domain::Clock;
use posthorn_egress::Egress;
use posthorn_listener::ServeLimits;
use posthorn_push_node::health::{Health, HealthParts};
use posthorn_push_node::nodes::{Nodes, internal};
use posthorn_push_node::upkeep::Upkeep;
use posthorn_push_node::{LAST_SAVES, Mailboxes, Node, Parts, Remote, broadcasts};
use posthorn_sealing::endpoint_token::EndpointTokens;
use posthorn_sealing::node_key::{NodeKey, NodeKeys};
use posthorn_sealing::vault::VaultKey;
use posthorn_store::PushStore;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use url::{Host, Url};

use crate::clock::WallClock;
use crate::config::push::Push;
use crate::exit::{Code, Failure};
use crate::ports::{self, take_port};
use crate::preflight::OPEN_IT;
use crate::seal::endpoints;
use crate::storage::{Opened, chain};

/// The setting that an address of the internal listener comes from.
const INTERNAL: &str = "push.internal.listen";
/// This node on router records, where there is no other.
const ALONE: &str = "here";
/// What is made before Web Push, and what it is made of.
pub struct OwnAddresses {
    /// Where agents and messages are.
    pub store: Arc<dyn PushStore>,
    /// The seal keys, the one that seals first.
    pub vault_keys: Vec<VaultKey>,
    /// Where endpoint keys of former seal keys are kept.
    pub kept_keys: PathBuf,
    /// The way out, for broadcasts.
    pub egress: Egress,
    /// Certificates trusted besides the public roots.
    pub extra_roots: Option<String>,
    /// The URL of this server.
    pub own_url: String,
    /// Whether more may be stored.
    pub accepting: Arc<dyn Fn() -> bool + Send + Sync>,
    /// For requests of other nodes to end at a stop.
    pub stop_timeout: Duration,
    /// Where events for agents are delivered, once the node is there.
    pub mailboxes: Mailboxes,
}

/// What operators see of it.
pub fn sight(opened: &Opened, mailboxes: &Mailboxes) -> posthorn_api::PushSight {
    let here = mailboxes.clone();
    posthorn_api::PushSight {
        store: opened.push_store(),
        mailboxes: Arc::new(mailboxes.clone()),
        here: Arc::new(move || here.sockets()),
    }
}

/// Web Push, not started yet: its configuration, and the port of the internal listener.
pub struct Ports {
    push: Push,
    socket: Option<TcpSocket>,
}

impl Ports {
    /// Takes the port without listening on it.
    pub fn take(push: Push) -> anyhow::Result<Self> {
        let listen = push.internal.listen;
        let socket = listen.map(|listen| take_port(listen, INTERNAL)).transpose()?;
        Ok(Self { push, socket })
    }

    /// Where other nodes call.
    pub fn internal(&self) -> anyhow::Result<Option<SocketAddr>> {
        Ok(self.socket.as_ref().map(TcpSocket::local_addr).transpose()?)
    }

    /// Where events for agents are delivered, which wait there until the node has started.
    pub fn mailboxes(&self) -> Mailboxes {
        Mailboxes::new(self.push.options.limits)
    }

    /// What a stop may take longer because of Web Push.
    pub fn patience(&self) -> Duration {
        self.push.options.drain_timeout + LAST_SAVES
    }

    /// Starts the node. What the public listener has to serve is in [`Running::public`].
    pub fn start(self, parts: OwnAddresses, stop: &CancellationToken) -> anyhow::Result<Running> {
        let Self { push, socket } = self;
        let clock: Arc<dyn Clock> = Arc::new(WallClock);
        let endpoint_url = push.endpoint_url.clone().unwrap_or(parts.own_url);
        warn_of_plain(&endpoint_url);
        let kept = endpoints::read(&parts.kept_keys)?;
        let derived = endpoints::derived(&parts.vault_keys);
        let keys = push.endpoint_keys.iter().cloned().chain(derived).chain(kept);
        let tokens = EndpointTokens::new(endpoints::distinct(keys))?;
        let table = broadcasts::table(&push.broadcasts.values)?;
        let called = socket.map(|socket| Called::new(&push, socket)).transpose()?;
        let node_keys = Arc::new(node_keys(&push, &parts.vault_keys)?);
        let remote = match &called {
            None => None,
            Some(called) => {
                let keys = Arc::clone(&node_keys);
                Some(remote_nodes(keys, Arc::clone(&clock), parts.extra_roots, &called.url)?)
            }
        };
        let name = called.as_ref().map_or_else(|| ALONE.to_owned(), |called| called.url.clone());
        let node = Node::start(
            Parts {
                store: Arc::clone(&parts.store),
                tokens,
                remote,
                clock: Arc::clone(&clock),
                broadcasts: Arc::clone(&table),
                accepting: parts.accepting,
                options: push.options(endpoint_url, name),
            },
            stop.clone(),
        );
        parts.mailboxes.serve(node.clone());
        let health = Health::new(HealthParts {
            roles: push.options.roles,
            local: push.options.roles.connection.then(|| node.local()),
            store: Arc::clone(&parts.store),
            request_count: node.request_count(),
            clock: Arc::clone(&clock),
        });
        let internal = called.map(|called| {
            let router = internal(node.local(), node_keys, Arc::clone(&clock), &health);
            called.serve(router, parts.stop_timeout, stop.clone())
        });
        if let Some(poller) = poller(&push, table, parts.egress)? {
            tokio::spawn(poller.run(stop.clone()));
        }
        let upkeep = Upkeep {
            store: parts.store,
            clock,
            agent_ttl: push.agent_ttl,
            every: push.maintenance_interval,
        };
        tokio::spawn(upkeep.run(stop.clone()));
        let public = node.router();
        Ok(Running { node, internal, public, health: health.routes() })
    }
}

/// A node at work.
pub struct Running {
    node: Node,
    internal: Option<JoinHandle<()>>,
    /// What agents and senders call.
    pub public: Router,
    /// What load balancers and people ask.
    pub health: Router,
}

impl Running {
    /// Sends all agents away and lets none in; what they had not acknowledged is stored.
    pub async fn drain(&self) {
        self.node.drain().await;
    }

    /// Sends all agents away at once and stores what can be stored within `time`.
    pub async fn hurry(&self, time: Duration) {
        let _ = tokio::time::timeout(time, self.node.drain_within(Duration::ZERO)).await;
    }

    /// Resolves when the internal listener has ended, which it must not by itself.
    pub async fn ended(&mut self) -> String {
        match &mut self.internal {
            Some(internal) => {
                internal.await.err().map_or_else(|| "it ended".to_owned(), |e| e.to_string())
            }
            None => std::future::pending().await,
        }
    }
}

/// The internal listener, which nobody is let in at yet.
struct Called {
    listener: TcpListener,
    url: String,
    connections: usize,
}

impl Called {
    fn new(push: &Push, socket: TcpSocket) -> anyhow::Result<Self> {
        let listen = socket.local_addr()?;
        let listener = ports::open(socket, INTERNAL)?;
        let url = push.internal.url.clone().unwrap_or_else(|| format!("http://{listen}"));
        Ok(Self { listener, url, connections: push.internal.connections })
    }

    fn serve(
        self,
        router: Router,
        stop_timeout: Duration,
        stop: CancellationToken,
    ) -> JoinHandle<()> {
        let limits =
            ServeLimits { connections: self.connections, stop_timeout, ..ServeLimits::default() };
        let listener = self.listener;
        tokio::spawn(async move {
            posthorn_listener::serve(listener, router, limits, None, stop.cancelled_owned()).await;
        })
    }
}

fn node_keys(push: &Push, vault_keys: &[VaultKey]) -> anyhow::Result<NodeKeys> {
    let given = push.internal.keys.clone();
    let keys = match given.is_empty() {
        true => vault_keys.iter().map(NodeKey::derived_from).collect(),
        false => given,
    };
    Ok(NodeKeys::new(keys)?)
}

fn remote_nodes(
    keys: Arc<NodeKeys>,
    clock: Arc<dyn Clock>,
    extra_roots: Option<String>,
    own: &str,
) -> anyhow::Result<Arc<dyn Remote>> {
    let nodes = Nodes::new(keys, clock, extra_roots).map_err(|e| {
        let message = format!("calls to other nodes cannot be set up: failed to {}", chain(&e));
        Failure::new(Code::Config, message)
    })?;
    nodes.check(own).map_err(|problem| {
        Failure::new(Code::Config, format!("other nodes could not call {own}: {problem}"))
            .hint("correct push.internal.url")
    })?;
    Ok(Arc::new(nodes))
}

/// What asks for broadcasts, where they are asked for.
pub fn poller(
    push: &Push,
    table: broadcasts::Table,
    egress: Egress,
) -> anyhow::Result<Option<broadcasts::Poller>> {
    let Some(url) = &push.broadcasts.url else { return Ok(None) };
    let poller = broadcasts::Poller::new(table, egress, url.as_str(), push.broadcasts.interval);
    Ok(Some(poller.map_err(|e| {
        Failure::new(Code::Config, format!("push.broadcasts.url cannot be asked: {e}"))
            .hint(OPEN_IT)
    })?))
}

/// Whether others could call this node as the configuration has it.
pub fn check_internal(push: &Push, extra_roots: Option<String>) -> anyhow::Result<()> {
    let Some(listen) = push.internal.listen else { return Ok(()) };
    let url = &push.internal.url;
    // A port that is chosen at the start is fine by then.
    if url.is_none() && listen.port() == 0 {
        return Ok(());
    }
    let own = url.clone().unwrap_or_else(|| format!("http://{listen}"));
    // Which key signs does not matter here.
    let keys = Arc::new(node_keys(push, &[VaultKey::generate()])?);
    remote_nodes(keys, Arc::new(WallClock), extra_roots, &own)?;
    Ok(())
}

/// Endpoints are secrets: who reads one on its way can send to it.
fn warn_of_plain(endpoint_url: &str) {
    let Ok(url) = Url::parse(endpoint_url) else { return };
    let local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    if url.scheme() == "http" && !local {
        warn!(
            endpoint_url,
            "push.endpoint_url is plain http: anyone who sees an endpoint in transit can send to \
             it; put TLS in front, or use server.tls"
        );
    }
}
