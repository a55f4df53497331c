//! Upgraded connections: they count until they end, and nothing of HTTP is left of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::routing::get;
use http::{Request, Response, StatusCode, header};
use posthorn_listener::{
    ClientCertificates, Held, Peer, ServeLimits, Stream, Taken, Tls, serve, take_stream,
};
use posthorn_testkit::authority::Authority;
use posthorn_testkit::authority::calling;
use posthorn_testkit::wait::PATIENCE;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

const PLAIN: &[u8] = b"GET /plain HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n";
const UPGRADE: &str = "HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: test\r\n\r\n";

type Upgrade = (Taken, Option<Held>);

/// Upgrades, and gives what it gets to the test; it keeps its place when the path says so.
async fn upgrade(
    State(upgrades): State<mpsc::Sender<Upgrade>>,
    Extension(peer): Extension<Peer>,
    request: Request<Body>,
) -> Response<Body> {
    let held = (request.uri().path() == "/held").then(|| peer.hold().expect("a place"));
    tokio::spawn(async move {
        let upgraded = hyper::upgrade::on(request).await.unwrap();
        let taken = take_stream(upgraded).expect("a connection of this listener");
        upgrades.send((taken, held)).await.unwrap();
    });
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "test");
    response.body(Body::empty()).unwrap()
}

struct Server {
    address: SocketAddr,
    upgrades: mpsc::Receiver<Upgrade>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(limits: ServeLimits, tls: Option<Arc<Tls>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (sender, upgrades) = mpsc::channel(8);
        let router = Router::new()
            .route("/plain", get(async || "here"))
            .route("/held", get(upgrade))
            .route("/unheld", get(upgrade))
            .with_state(sender);
        let task = tokio::spawn(serve(listener, router, limits, tls, async {
            drop(stopped.await);
        }));
        Self { address, upgrades, stop, task }
    }

    #[expect(clippy::disallowed_methods, reason = "the test's own client talks to its own server")]
    async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection that was upgraded on this path: both ends of it.
    async fn upgraded(&mut self, path: &str) -> (TcpStream, Upgrade) {
        let mut client = self.dial().await;
        ask(&mut client, path, b"").await;
        (client, self.next().await)
    }

    async fn next(&mut self) -> Upgrade {
        timeout(PATIENCE, self.upgrades.recv()).await.unwrap().unwrap()
    }

    /// Whether a new connection gets an answer.
    async fn lets_in(&self) -> bool {
        let mut client = self.dial().await;
        let mut answer = Vec::new();
        let asking = async {
            client.write_all(PLAIN).await?;
            client.read_to_end(&mut answer).await
        };
        let asked = timeout(PATIENCE, asking).await.unwrap();
        asked.is_ok() && answer.ends_with(b"here")
    }

    /// Until a place has come free: whoever let go of it does not wait for it to be seen.
    async fn lets_in_soon(&self) {
        let trying = async {
            while !self.lets_in().await {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, trying).await.expect("a free place");
    }
}

/// Asks for an upgrade, with `more` right behind the request, and reads the head of the answer.
async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), path: &str, more: &[u8]) {
    let request = [format!("GET {path} {UPGRADE}").as_bytes(), more].concat();
    let asking = async {
        stream.write_all(&request).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    };
    timeout(PATIENCE, asking).await.expect("an answer");
}

/// What the one end writes, the other reads.
async fn speaks(from: &mut (impl AsyncWrite + Unpin), to: &mut (impl AsyncRead + Unpin)) {
    let mut seen = [0; 5];
    let speaking = async {
        from.write_all(b"hello").await.unwrap();
        from.flush().await.unwrap();
        to.read_exact(&mut seen).await.unwrap();
    };
    timeout(PATIENCE, speaking).await.expect("it arrives");
    assert_eq!(&seen, b"hello");
}

#[tokio::test]
async fn a_socket_counts_for_its_address_until_it_lets_go_of_its_place() {
    let limits = ServeLimits { connections_per_address: 2, ..ServeLimits::default() };
    let mut server = Server::start(limits, None).await;
    let (_first_client, (first, first_held)) = server.upgraded("/held").await;
    let (_second_client, (second, second_held)) = server.upgraded("/held").await;
    for _ in 0..20 {
        assert!(!server.lets_in().await, "both places are taken by sockets");
        sleep(Duration::from_millis(5)).await;
    }
    drop(first_held);
    server.lets_in_soon().await;
    // The stream alone keeps nothing.
    drop((first, second, second_held));
}

#[tokio::test]
async fn a_socket_counts_among_all_until_it_lets_go_of_its_place() {
    let limits = ServeLimits { connections: 1, ..ServeLimits::default() };
    let mut server = Server::start(limits, None).await;
    let (_client, (_taken, held)) = server.upgraded("/held").await;
    // It waits in the kernel's queue.
    let waiting = timeout(Duration::from_millis(200), server.lets_in()).await;
    waiting.expect_err("the only place is taken");
    drop(held);
    server.lets_in_soon().await;
}

#[tokio::test]
async fn a_socket_that_does_not_hold_its_place_does_not_count() {
    let limits = ServeLimits { connections_per_address: 1, ..ServeLimits::default() };
    let mut server = Server::start(limits, None).await;
    let (mut client, (mut taken, held)) = server.upgraded("/unheld").await;
    assert!(held.is_none());
    server.lets_in_soon().await;
    speaks(&mut taken.stream, &mut client).await;
}

#[tokio::test]
async fn what_came_behind_the_request_is_handed_over() {
    let mut server = Server::start(ServeLimits::default(), None).await;
    let mut client = server.dial().await;
    ask(&mut client, "/held", b"at once").await;
    let (mut taken, _held) = server.next().await;
    assert_eq!(&taken.read[..], b"at once");
    assert!(matches!(taken.stream, Stream::Plain(_)));
    speaks(&mut client, &mut taken.stream).await;
    speaks(&mut taken.stream, &mut client).await;
}

#[tokio::test]
async fn a_socket_through_tls_is_handed_over_as_well() {
    let authority = Authority::new("test");
    let own = authority.sign("server.test");
    let tls = Tls::new(own.certificate.as_bytes(), own.key.as_bytes(), ClientCertificates::Off);
    let mut server = Server::start(ServeLimits::default(), Some(Arc::new(tls.unwrap()))).await;
    let config = calling(&authority.pem, None);
    let name = ServerName::try_from("server.test").unwrap();
    let connecting = TlsConnector::from(config).connect(name, server.dial().await);
    let mut client = timeout(PATIENCE, connecting).await.unwrap().unwrap();
    ask(&mut client, "/held", b"at once").await;
    let (mut taken, _held) = server.next().await;
    assert_eq!(&taken.read[..], b"at once");
    assert!(matches!(taken.stream, Stream::Tls(_)));
    speaks(&mut client, &mut taken.stream).await;
    speaks(&mut taken.stream, &mut client).await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_sockets_and_does_not_cut_them() {
    let mut server = Server::start(ServeLimits::default(), None).await;
    let (mut client, (mut taken, _held)) = server.upgraded("/held").await;
    server.stop.send(()).unwrap();
    timeout(PATIENCE, server.task).await.expect("it ends").unwrap();
    speaks(&mut taken.stream, &mut client).await;
    speaks(&mut client, &mut taken.stream).await;
}
