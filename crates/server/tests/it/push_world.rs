//! Installations with Web Push, their agents and their senders.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use posthorn_agent::{Agent, Event, Notification, Options};
use posthorn_domain::{AgentId, ChannelId};
use posthorn_testkit::caller::Reply;
use posthorn_testkit::postgres::TestPostgres;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::wait::PATIENCE;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Long enough for something that should not happen to show itself.
pub(crate) const QUIET: Duration = Duration::from_millis(300);

/// How an installation is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// One process on SQLite.
    Sqlite,
    /// One process on PostgreSQL.
    Postgres,
    /// On PostgreSQL: so many processes for agents, and so many others for senders.
    Split { connections: usize, endpoints: usize },
}

/// Two nodes that agents may choose from, and one for senders.
pub(crate) const SPLIT: Shape = Shape::Split { connections: 2, endpoints: 1 };

/// An installation at work.
pub(crate) struct Town {
    /// Those for agents first, those for senders last; in one process they are the same.
    pub(crate) nodes: Vec<PushNode>,
    pub(crate) database: Option<TestPostgres>,
}

impl Town {
    /// With more of the section `push` than the defaults, in YAML: `a: 1, b: 2`.
    pub(crate) fn start(shape: Shape, settings: &str) -> Self {
        match shape {
            Shape::Sqlite => {
                let node = PushNode::start(home(settings));
                Self { nodes: vec![node], database: None }
            }
            Shape::Postgres => {
                let database = database();
                let plan = Plan::new(&database, settings);
                Self {
                    nodes: vec![plan.node("connection, endpoint", None)],
                    database: Some(database),
                }
            }
            Shape::Split { connections, endpoints } => {
                let database = database();
                let mut plan = Plan::new(&database, settings);
                // Endpoints are named after the first of those who serve them.
                let first = plan.node("endpoint", None);
                plan.key = first.home.key.clone();
                let url = first.url.clone();
                let mut nodes: Vec<_> =
                    (0..connections).map(|_| plan.node("connection", Some(&url))).collect();
                nodes.push(first);
                nodes.extend((1..endpoints).map(|_| plan.node("endpoint", Some(&url))));
                Self { nodes, database: Some(database) }
            }
        }
    }

    /// Where agents connect.
    pub(crate) fn agents(&self) -> &PushNode {
        self.nodes.first().expect("a node")
    }

    /// Where senders post.
    pub(crate) fn senders(&self) -> &PushNode {
        self.nodes.last().expect("a node")
    }

    pub(crate) fn stop(self) {
        for mut node in self.nodes {
            node.stop();
        }
    }
}

fn database() -> TestPostgres {
    TestPostgres::start().expect("PostgreSQL, which ./test installs")
}

fn home(settings: &str) -> Home {
    let home = Home::new();
    home.configure(&format!("push: {{enabled: true, {settings}}}\n"));
    home
}

/// What the nodes of a database have in common.
struct Plan<'a> {
    database: &'a TestPostgres,
    seal: String,
    settings: &'a str,
    key: Option<String>,
}

impl<'a> Plan<'a> {
    fn new(database: &'a TestPostgres, settings: &'a str) -> Self {
        let seal = Home::new().run("seal create").exits(0).out;
        Self { database, seal, settings, key: None }
    }

    fn node(&self, roles: &str, endpoint_url: Option<&str>) -> PushNode {
        let url = endpoint_url.map_or_else(String::new, |url| format!("endpoint_url: '{url}', "));
        let mut home = home(&format!(
            "roles: [{roles}], internal: {{listen: '127.0.0.1:0'}}, {url}{}",
            self.settings
        ));
        home.store_in(&self.database.url());
        let key = home.write("shared.key", &self.seal);
        home.configure(&format!("seal: {{key: 'file:{}'}}\n", key.display()));
        home.key.clone_from(&self.key);
        PushNode::start(home)
    }
}

/// Where the shared seal key of a node is.
pub(crate) fn seal_file(home: &Home) -> PathBuf {
    home.path().join("shared.key")
}

/// A process, which may be killed and started again.
pub(crate) struct PushNode {
    pub(crate) home: Home,
    server: Option<Server>,
    pub(crate) url: String,
}

impl PushNode {
    pub(crate) fn start(mut home: Home) -> Self {
        let server = home.serve();
        let url = server.url.clone();
        Self { home, server: Some(server), url }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// As a machine that loses its power.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().expect("it runs");
        server.running.signal("KILL");
        server.running.wait();
    }

    /// As a supervisor would. Returns its log.
    pub(crate) fn stop(&mut self) -> String {
        let mut server = self.server.take().expect("it runs");
        server.running.signal("TERM");
        let status = server.running.wait();
        let log = server.running.stderr();
        assert_eq!(status.code(), Some(0), "{log}");
        log
    }

    /// Again, on the same data and perhaps another port.
    pub(crate) fn again(&mut self) {
        assert!(self.server.is_none(), "it runs");
        let server = self.home.serve();
        self.url.clone_from(&server.url);
        self.server = Some(server);
    }

    /// An agent that said hello, with the id it got.
    pub(crate) async fn agent(&self, known: Option<AgentId>) -> (Agent, AgentId) {
        agent(&self.url, known).await
    }

    /// An agent with a channel and its endpoint.
    pub(crate) async fn registered(&self) -> (Agent, AgentId, String) {
        let (mut agent, id) = self.agent(None).await;
        let endpoint = agent.register(channel(), None).await.expect("an endpoint");
        (agent, id, endpoint)
    }

    pub(crate) async fn sender(&self) -> Sender {
        Sender::to(&self.url).await
    }

    /// A page without a key.
    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.sender().await.ask("GET", path, &[], "").await.expect("an answer")
    }

    /// What a counter or gauge stands at, with all its labels as they are printed.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let metrics = self.get("/metrics").await.body;
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().expect("a whole number"))
    }
}

/// An agent that said hello, with the id it got.
pub(crate) async fn agent(url: &str, known: Option<AgentId>) -> (Agent, AgentId) {
    let mut agent = Agent::connect(url, &Options::default()).await.expect("a socket");
    let hello = agent.hello(known, &[]).await.expect("a hello");
    if let Some(known) = known {
        assert_eq!(hello.agent, known, "it is known");
    }
    (agent, hello.agent)
}

pub(crate) fn channel() -> ChannelId {
    ChannelId::from_random(rand::random())
}

/// The headers of a message that says something.
pub(crate) const WITH_TEXT: [(&str, &str); 2] = [("ttl", "600"), ("content-encoding", "aes128gcm")];

/// An application server with one connection.
pub(crate) struct Sender {
    requests: SendRequest<Full<Bytes>>,
    host: String,
}

impl Sender {
    pub(crate) async fn to(url: &str) -> Self {
        Self::try_to(url).await.expect("a connection")
    }

    /// `None` when nobody is there.
    #[expect(clippy::disallowed_methods, reason = "the test's own client talks to its own server")]
    pub(crate) async fn try_to(url: &str) -> Option<Self> {
        let host = url.strip_prefix("http://").expect("plain http").to_owned();
        let stream = TcpStream::connect(&host).await.ok()?;
        let (requests, connection) = handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        Some(Self { requests, host })
    }

    /// `to` is a path, or a whole URL of which only the path counts. `None` when there is no answer.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        to: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Option<Reply> {
        let path = match to.split_once("://") {
            Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
            None => to,
        };
        let mut request =
            http::Request::builder().method(method).uri(path).header("host", &self.host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).expect("a request");
        let answer = async {
            self.requests.ready().await.ok()?;
            let (head, body) = self.requests.send_request(request).await.ok()?.into_parts();
            let body = body.collect().await.ok()?.to_bytes();
            let body = String::from_utf8(body.to_vec()).expect("text");
            Some(Reply { status: head.status.as_u16(), headers: head.headers, body })
        };
        timeout(PATIENCE, answer).await.expect("an answer or an end in time")
    }

    /// Posts some text, which nobody decrypts here.
    pub(crate) async fn post(&mut self, endpoint: &str, text: &str) -> Reply {
        self.ask("POST", endpoint, &WITH_TEXT, text.to_owned()).await.expect("an answer")
    }
}

/// What comes next, which must come.
pub(crate) async fn event(agent: &mut Agent) -> Event {
    timeout(PATIENCE, agent.next()).await.expect("something in time").expect("a socket")
}

/// The next notification.
#[track_caller]
pub(crate) fn notification(agent: &mut Agent) -> impl Future<Output = Notification> {
    let place = std::panic::Location::caller();
    async move {
        match event(agent).await {
            Event::Notification(notification) => notification,
            other => panic!("not a notification: {other:?}, at {place}"),
        }
    }
}

/// The next one, which is acknowledged; its text.
pub(crate) async fn acknowledged(agent: &mut Agent) -> String {
    let got = notification(agent).await;
    agent.ack(&[got.ack()]).await.expect("sent");
    text(&got)
}

pub(crate) fn text(notification: &Notification) -> String {
    String::from_utf8(notification.data.clone().unwrap_or_default()).expect("text")
}

/// Nothing comes for a while.
pub(crate) async fn silence(agent: &mut Agent) {
    if let Ok(event) = timeout(QUIET, agent.next()).await {
        panic!("something came: {event:?}");
    }
}
