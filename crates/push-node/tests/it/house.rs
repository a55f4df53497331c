//! What the tests share: a clock to be set, agents to be told of, and servers on this machine.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use posthorn_domain::{AgentId, Clock, PushMessage, Timestamp};
use posthorn_listener::ServeLimits;
use posthorn_push::session::Pushed;
use posthorn_push_node::Local;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Long enough for anything that ends at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A clock that stands until it is set.
pub(crate) struct SetClock(AtomicI64);

impl SetClock {
    pub(crate) fn at(millis: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(millis)))
    }

    pub(crate) fn set(&self, millis: i64) {
        self.0.store(millis, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Agents with what becomes of a message for them, and what they got.
#[derive(Default)]
pub(crate) struct Agents {
    pub(crate) answers: Mutex<HashMap<AgentId, Pushed>>,
    pub(crate) pushed: Mutex<Vec<PushMessage>>,
    pub(crate) hinted: Mutex<Vec<AgentId>>,
}

impl Local for Agents {
    fn push(&self, message: PushMessage) -> Pushed {
        let answer = self.answers.lock().get(&message.agent).copied();
        self.pushed.lock().push(message);
        answer.unwrap_or(Pushed::NotConnected)
    }

    fn hint(&self, agent: AgentId) -> bool {
        self.hinted.lock().push(agent);
        self.answers.lock().contains_key(&agent)
    }

    fn connections(&self) -> usize {
        self.answers.lock().len()
    }
}

/// A server on this machine, until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let limits = ServeLimits { stop_timeout: Duration::from_secs(1), ..ServeLimits::default() };
        let task = tokio::spawn(posthorn_listener::serve(listener, router, limits, None, async {
            let _ = stopped.await;
        }));
        Self { address, stop: Some(stop), task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes the port.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(PATIENCE, &mut self.task).await.expect("it stops").expect("no panic");
    }
}

/// What a server answers, and the bytes of it.
#[expect(clippy::disallowed_methods, reason = "the test is a stranger on this machine")]
pub(crate) async fn ask(
    server: &Server,
    method: Method,
    path: &str,
    authorization: Option<&str>,
    body: Vec<u8>,
) -> (StatusCode, Vec<u8>) {
    let asked = async {
        let stream = TcpStream::connect(server.address).await.expect("a connection");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        let driver = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("Host", "node");
        if let Some(value) = authorization {
            request = request.header("Authorization", value);
        }
        let request = request.body(Full::<Bytes>::new(body.into())).expect("a request");
        let response: http::Response<hyper::body::Incoming> =
            sender.send_request(request).await.expect("an answer");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes().to_vec();
        drop(sender);
        driver.abort();
        (status, body)
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("an answer in time")
}

/// The first line of the answer to what is sent as it is.
#[expect(clippy::disallowed_methods, reason = "the test is a stranger on this machine")]
pub(crate) async fn raw(server: &Server, text: &str) -> String {
    let asked = async {
        let mut stream = TcpStream::connect(server.address).await.expect("a connection");
        stream.write_all(text.as_bytes()).await.expect("it is sent");
        BufReader::new(stream).lines().next_line().await.expect("an answer").unwrap_or_default()
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("an answer in time")
}

/// What is counted while `work` runs, as Prometheus would read it.
pub(crate) fn counted(work: impl Future<Output = ()>) -> String {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    metrics::with_local_recorder(&recorder, || runtime.expect("a runtime").block_on(work));
    handle.render()
}
