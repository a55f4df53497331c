//! What the tests share: agents to be told of, and servers on this machine.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use http::StatusCode;
use parking_lot::Mutex;
use posthorn_domain::{AgentId, PushMessage};
use posthorn_listener::ServeLimits;
use posthorn_push::session::Pushed;
use posthorn_push_node::Local;
use posthorn_testkit::caller::call;
use posthorn_testkit::wait::PATIENCE;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

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

/// What a server answers, and the text of it.
pub(crate) async fn ask(
    server: &Server,
    method: &str,
    path: &str,
    authorization: Option<&str>,
    body: impl AsRef<[u8]>,
) -> (StatusCode, String) {
    let asked = call(&server.url(), method, path).raw(body);
    let reply = authorization.into_iter().fold(asked, |a, value| a.header("authorization", value));
    let reply = reply.await;
    (StatusCode::from_u16(reply.status).expect("a status"), reply.body)
}

/// What is counted while `work` runs, as Prometheus would read it.
pub(crate) fn counted(work: impl Future<Output = ()>) -> String {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    metrics::with_local_recorder(&recorder, || runtime.expect("a runtime").block_on(work));
    handle.render()
}
