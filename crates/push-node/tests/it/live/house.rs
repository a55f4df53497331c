//! Nodes to test with: real listeners on loopback, a store they share, and wires between them that a
//! test can cut.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use parking_lot::Mutex;
use posthorn_agent::{Agent, Closed, Error, Event, Notification};
use posthorn_conformance::model::ModelStore;
use posthorn_domain::{AgentId, ChannelId, PushMessage};
use posthorn_listener::{ServeLimits, serve};
use posthorn_push::endpoint::{Limits, NodeAnswer};
use posthorn_push::session::{self, Broadcasts, Pushed};
use posthorn_push_node::{Direct, Node, Options, Parts, Remote, Roles};
use posthorn_sealing::endpoint_token::{EndpointKey, EndpointTokens};
use posthorn_store::push::PushStore;
use posthorn_testkit::caller::{Reply, call};
use posthorn_testkit::clock::Wall;
use posthorn_testkit::wait::PATIENCE;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::live::gated::Gates;

/// Long enough for something that should not happen to show itself.
pub(crate) const QUIET: Duration = Duration::from_millis(300);

/// What nodes ask of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Push,
    Hint,
}

/// The wires between the nodes of a test, by their names, with a gate before each call.
#[derive(Clone, Default)]
pub(crate) struct Wires {
    nodes: Arc<Mutex<HashMap<String, Node>>>,
    pub(crate) gates: Arc<Gates<Call>>,
}

impl Wires {
    /// From now on nobody can reach the node.
    pub(crate) fn cut(&self, node: &str) {
        self.nodes.lock().remove(node);
    }

    /// What a node answers to a call. With a broken gate the call arrives and the answer is lost.
    async fn call<A>(&self, node: &str, call: Call, make: impl FnOnce(Node) -> A) -> Option<A> {
        let answered = self.gates.pass(call).await;
        let node = self.nodes.lock().get(node).cloned();
        node.map(make).filter(|_| answered)
    }
}

#[async_trait]
impl Remote for Wires {
    async fn push(&self, node: &str, message: &PushMessage) -> NodeAnswer {
        let make = |node: Node| node.local().push(message.clone());
        match self.call(node, Call::Push, make).await {
            Some(Pushed::Accepted) => NodeAnswer::Accepted,
            Some(Pushed::Full) => NodeAnswer::Full,
            Some(Pushed::NotConnected) => NodeAnswer::NotConnected,
            None => NodeAnswer::Unreachable,
        }
    }

    async fn hint(&self, node: &str, agent: AgentId) -> NodeAnswer {
        match self.call(node, Call::Hint, |node| node.local().hint(agent)).await {
            Some(true) => NodeAnswer::Accepted,
            Some(false) => NodeAnswer::NotConnected,
            None => NodeAnswer::Unreachable,
        }
    }
}

/// Everything on by default, and patient.
pub(crate) fn options(name: &str) -> Options {
    Options {
        roles: Roles { connection: true, endpoint: true },
        endpoint_url: String::new(),
        node: name.to_owned(),
        session: session::Options { stored_max: 0, ..session::Options::default() },
        limits: Limits::default(),
        direct: Direct::Memory,
        channels_max: 100,
        opens_per_second: 0,
        frames_per_second: 1_000,
        drain_timeout: Duration::from_millis(300),
    }
}

/// A node at work. When this is dropped, nobody can reach it any more.
pub(crate) struct House {
    pub(crate) node: Node,
    pub(crate) url: String,
    name: String,
    wires: Wires,
    stop: CancellationToken,
}

impl House {
    pub(crate) async fn start(store: Arc<dyn PushStore>, wires: &Wires, options: Options) -> Self {
        Self::start_with(store, wires, options, |_| {}).await
    }

    /// With other parts than the usual ones.
    pub(crate) async fn start_with(
        store: Arc<dyn PushStore>,
        wires: &Wires,
        mut options: Options,
        change: impl FnOnce(&mut Parts),
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        options.endpoint_url = url.clone();
        let name = options.node.clone();
        let stop = CancellationToken::new();
        let tokens = EndpointTokens::new(vec![shared_key()]).expect("one key");
        let mut parts = Parts {
            store,
            tokens,
            remote: Some(Arc::new(wires.clone())),
            clock: Arc::new(Wall),
            broadcasts: Arc::new(ArcSwap::from_pointee(Broadcasts::default())),
            accepting: Arc::new(|| true),
            options,
        };
        change(&mut parts);
        let node = Node::start(parts, stop.clone());
        wires.nodes.lock().insert(name.clone(), node.clone());
        let router = node.router();
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(serve(listener, router, ServeLimits::default(), None, stopped));
        Self { node, url, name, wires: wires.clone(), stop }
    }

    /// An agent that said hello, with the id it got.
    pub(crate) async fn agent(&self, known: Option<AgentId>) -> (Agent, AgentId) {
        let agent = Agent::connect(&self.url, &posthorn_agent::Options::default()).await;
        let mut agent = agent.expect("a socket");
        let hello = agent.hello(known, &[]).await.expect("a hello");
        (agent, hello.agent)
    }

    /// A new agent with one channel and its endpoint.
    pub(crate) async fn registered(&self) -> (Agent, AgentId, String) {
        let (mut agent, id) = self.agent(None).await;
        let channel = ChannelId::from_random(rand::random());
        let endpoint = agent.register(channel, None).await.expect("an endpoint");
        (agent, id, endpoint)
    }

    /// Posts without a body.
    pub(crate) async fn knock(&self, endpoint: &str, headers: &str) -> Reply {
        request(&self.url, "POST", endpoint, headers, b"").await
    }

    /// Posts some text, which nobody decrypts here.
    pub(crate) async fn post(&self, endpoint: &str, text: &str) -> Reply {
        let headers = "TTL: 600\r\nContent-Encoding: aes128gcm\r\n";
        request(&self.url, "POST", endpoint, headers, text.as_bytes()).await
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.wires.cut(&self.name);
        self.stop.cancel();
    }
}

/// All nodes of a test process have one key.
fn shared_key() -> EndpointKey {
    static KEY: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    EndpointKey::parse(KEY.get_or_init(|| EndpointKey::generate().to_text())).expect("a key")
}

/// An empty store.
pub(crate) fn store() -> Arc<ModelStore> {
    Arc::new(ModelStore::new(Arc::new(Wall)))
}

/// Where a message can be taken back.
pub(crate) fn location(reply: &Reply) -> &str {
    reply.header("location").expect("a location")
}

/// One request on a connection of its own, with lines of headers. `to` is a whole URL; only its path
/// counts.
pub(crate) async fn request(
    server: &str,
    method: &str,
    to: &str,
    headers: &str,
    body: &[u8],
) -> Reply {
    let lines = headers.lines().filter_map(|line| line.split_once(':'));
    let asked = call(server, method, to).raw(body);
    lines.fold(asked, |asked, (name, value)| asked.header(name, value.trim())).await
}

/// The next notification.
pub(crate) async fn notification(agent: &mut Agent) -> Notification {
    let next = async {
        loop {
            match agent.next().await.expect("a socket") {
                Event::Notification(notification) => return notification,
                Event::Ping => {}
                other => panic!("not a notification: {other:?}"),
            }
        }
    };
    timeout(PATIENCE, next).await.expect("a notification in time")
}

/// So many notifications, each acknowledged as it came.
pub(crate) async fn take(agent: &mut Agent, many: usize) -> Vec<String> {
    let mut texts = Vec::with_capacity(many);
    for _ in 0..many {
        let got = notification(agent).await;
        agent.ack(&[got.ack()]).await.expect("sent");
        texts.push(text(&got));
    }
    texts
}

/// How the server closes the socket, whatever comes before.
pub(crate) async fn closed(agent: &mut Agent) -> (Option<u16>, String) {
    let end = async {
        loop {
            match agent.next().await {
                Ok(Event::Closed(Closed { code, reason }))
                | Err(Error::Closed(Closed { code, reason })) => {
                    return (code, reason);
                }
                Ok(_) => {}
                Err(e) => panic!("no close: {e:?}"),
            }
        }
    };
    timeout(PATIENCE, end).await.expect("a close in time")
}

/// The text of a notification.
pub(crate) fn text(notification: &Notification) -> String {
    String::from_utf8(notification.data.clone().unwrap_or_default()).expect("text")
}

/// Waits until the store has answered everything this connection asked of it: a connection asks one
/// thing after the other, so the answer to one more comes last.
pub(crate) async fn settled(agent: &mut Agent) {
    let channel = ChannelId::from_random(rand::random());
    agent.unregister(channel).await.expect("an answer");
}

/// Nothing comes for a while.
pub(crate) async fn silence(agent: &mut Agent) {
    if let Ok(event) = timeout(QUIET, agent.next()).await {
        panic!("something came: {event:?}");
    }
}
