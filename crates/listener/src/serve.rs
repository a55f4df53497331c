//! The accept loop: HTTP/1.1 with a bound on connections, heads and time.
//!
//! `axum::serve` has neither a timer nor a cap, so a client that sends its head byte by byte would
//! hold a connection for ever. Here a head must arrive within [`ServeLimits::head_timeout`], which also
//! ends connections that stay idle, and answers must be taken at a least pace. At the cap new
//! connections come into the reserve, where a few requests are answered and all others are told that
//! there is no place; a listener without a reserve leaves them in the kernel's queue. A TLS handshake may take as long, and is made by the connection's own task, so that a client that
//! is slow at it keeps nobody else waiting. Upgrades are allowed, so that WebSockets can share the
//! listener; a socket that outlives its connection's task goes on counting as long as its [`Held`]
//! is kept, among the sockets where these have places of their own, and its end is the business of
//! whoever keeps it.
//!
//! [`Held`]: crate::Held

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use posthorn_domain::setting;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::bodies::Bodies;
use crate::framing::Verdict;
use crate::metrics;
use crate::open::{Addresses, Open, Place, Sockets};
use crate::paced::{Cut, Pace, Paced};
use crate::peer::{Peer, PeerCertificate};
use crate::refusal;
use crate::reserve::{self, Reserve};
use crate::tls::Tls;

/// The first wait after the system refused a connection; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Bounds of a listener, a part of the section `server` of the configuration.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct ServeLimits {
    /// Connections open at once.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub connections: usize,
    /// Connections open at once from one address (IPv6: one /64); zero means no limit.
    pub connections_per_address: usize,
    /// Places of sockets, which are connections that were upgraded; zero: they stay among the
    /// connections.
    #[serde(skip)]
    pub sockets: usize,
    /// The same of one address; zero means no limit.
    #[serde(skip)]
    pub sockets_per_address: usize,
    /// Places of the reserve, where there is one.
    #[serde(skip, default = "reserve_places")]
    pub reserve: usize,
    /// How long a client may take nothing of its answer while more of it waits.
    #[serde(deserialize_with = "setting::some_time")]
    pub write_timeout: Duration,
    /// How many bytes a second it must take beyond that.
    #[serde(deserialize_with = "setting::some_bytes")]
    pub write_per_second_min: usize,
    /// How long a request's head may take, a TLS handshake may take, and a connection may be idle.
    #[serde(deserialize_with = "setting::some_time")]
    pub head_timeout: Duration,
    /// The largest head.
    #[serde(deserialize_with = "setting::some_bytes")]
    pub head_max: usize,
    /// How long requests under way may take to end after the shutdown began.
    #[serde(deserialize_with = "setting::time")]
    pub stop_timeout: Duration,
}

/// A few requests of operators.
const fn reserve_places() -> usize {
    64
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_address: 0,
            sockets: 0,
            sockets_per_address: 0,
            reserve: reserve_places(),
            write_timeout: Duration::from_secs(10),
            write_per_second_min: 4 * 1024,
            head_timeout: Duration::from_secs(10),
            head_max: 32 * 1024,
            stop_timeout: Duration::from_secs(10),
        }
    }
}

/// What a listener serves.
#[derive(Clone, Debug)]
pub struct Doors {
    /// To everybody who finds a place.
    pub router: Router,
    /// What is answered when there is none; without it, connections wait for a place.
    pub reserve: Option<Router>,
    /// The memory of large bodies, where it is bounded.
    pub bodies: Option<Bodies>,
}

impl From<Router> for Doors {
    fn from(router: Router) -> Self {
        Self { router, reserve: None, bodies: None }
    }
}

/// A listener at work, until it has ended.
pub type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves until `shutdown` is ready, then finishes the requests under way and closes. Without `tls`
/// it speaks plain HTTP. Connections that were upgraded are not waited for.
pub fn serve(
    listener: TcpListener,
    doors: impl Into<Doors>,
    limits: ServeLimits,
    tls: Option<Arc<Tls>>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Serving {
    begin(listener, doors.into(), limits, tls, Box::pin(shutdown))
}

/// The same for one kind of everything, so that connections are compiled here and nowhere else.
fn begin(
    listener: TcpListener,
    doors: Doors,
    limits: ServeLimits,
    tls: Option<Arc<Tls>>,
    shutdown: Serving,
) -> Serving {
    Box::pin(run(listener, doors, limits, tls, shutdown))
}

async fn run(
    listener: TcpListener,
    doors: Doors,
    limits: ServeLimits,
    tls: Option<Arc<Tls>>,
    mut shutdown: Serving,
) {
    metrics::describe();
    let Doors { router, reserve, bodies } = doors;
    let (stop, stopping) = watch::channel(());
    let mut hall = Hall {
        slots: Arc::new(Semaphore::new(limits.connections)),
        addresses: Addresses::default(),
        sockets: (limits.sockets > 0)
            .then(|| Sockets::new(limits.sockets, limits.sockets_per_address)),
        reserve: reserve.map(|router| (Reserve::new(limits.reserve), Served::reserve(router))),
        limits,
        served: Served::new(router),
        bodies,
        tls,
        stopping,
        connections: JoinSet::new(),
    };
    // With a reserve, nobody waits for a place.
    let waiting = hall.reserve.is_none().then(|| Arc::clone(&hall.slots));
    let mut backoff = BACKOFF_MIN;
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = hall.connections.join_next() => continue,
            accepted = accept(&listener, waiting.as_ref()) => accepted,
        };
        match accepted {
            Ok((stream, peer, slot)) => {
                backoff = BACKOFF_MIN;
                hall.let_in(stream, peer, slot);
            }
            Err(e) if is_of_one_connection(&e) => {}
            Err(e) => {
                ::metrics::counter!(metrics::ACCEPT_ERRORS).increment(1);
                tracing::warn!(error = %e, "connections cannot be accepted; retrying soon");
                tokio::select! {
                    () = &mut shutdown => break,
                    () = tokio::time::sleep(backoff) => backoff = (backoff * 2).min(BACKOFF_MAX),
                }
            }
        }
    }
    // New connections are refused from here on, rather than left waiting.
    drop(listener);
    drop(stop);
    let mut connections = hall.connections;
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.stop_timeout, drained).await.is_err() {
        tracing::warn!(
            open = connections.len(),
            "some requests did not end in time; closing \
                                                  their connections"
        );
        connections.shutdown().await;
    }
}

/// The connections of a listener, and what they are made with.
struct Hall {
    limits: ServeLimits,
    slots: Arc<Semaphore>,
    addresses: Addresses,
    sockets: Option<Sockets>,
    reserve: Option<(Reserve, Served)>,
    served: Served,
    bodies: Option<Bodies>,
    tls: Option<Arc<Tls>>,
    stopping: watch::Receiver<()>,
    connections: JoinSet<()>,
}

impl Hall {
    fn let_in(&mut self, stream: TcpStream, peer: IpAddr, slot: Option<OwnedSemaphorePermit>) {
        let slot = slot.or_else(|| Arc::clone(&self.slots).try_acquire_owned().ok());
        let place = slot.and_then(|slot| self.place(peer).map(|place| (slot, place)));
        let (tls, stopping) = (self.tls.clone(), self.stopping.clone());
        if let Some((slot, place)) = place {
            let open = Arc::new(Open::new(slot, place, self.sockets.clone()));
            let (served, bodies) = (self.served.clone(), self.bodies.clone());
            let limits = self.limits;
            let one = Connection { address: peer, open, served, bodies, limits, stopping };
            self.connections.spawn(one.run(stream, tls));
            return;
        }
        let Some((reserve, served)) = &mut self.reserve else {
            // It is told by a closed connection.
            ::metrics::counter!(metrics::ADMISSION_REFUSED, "reason" => "connections").increment(1);
            return;
        };
        reserve.make_room(peer);
        let mut limits = self.limits;
        limits.head_timeout = limits.head_timeout.min(reserve::HEAD_TIME);
        let (open, served) = (Arc::new(Open::in_reserve()), served.clone());
        let one = Connection { address: peer, open, served, bodies: None, limits, stopping };
        let task = self.connections.spawn(async move {
            let _ = tokio::time::timeout(reserve::LIFE, one.run(stream, tls)).await;
        });
        reserve.enter(peer, task);
    }

    /// A place for one more connection of an address: one address must not take all.
    fn place(&self, peer: IpAddr) -> Option<Place> {
        self.addresses.enter(peer, self.limits.connections_per_address)
    }
}

/// The next connection, once there is room for it where it has to wait for that. Safe to drop at any
/// time: a connection that was not taken stays in the kernel's queue.
async fn accept(
    listener: &TcpListener,
    slots: Option<&Arc<Semaphore>>,
) -> io::Result<(TcpStream, IpAddr, Option<OwnedSemaphorePermit>)> {
    let slot = match slots {
        Some(slots) => Some(Arc::clone(slots).acquire_owned().await.map_err(io::Error::other)?),
        None => None,
    };
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer.ip(), slot))
}

/// Whether an error concerns the connection that was being accepted, as opposed to accepting.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// The routes of a connection, and the answers to what never reaches them.
#[derive(Clone)]
struct Served {
    router: Router,
    keep_alive: bool,
    no_host: Router,
    two_lengths: Router,
}

impl Served {
    fn new(router: Router) -> Self {
        let no_host = refusal::malformed("the request must have exactly one valid Host header");
        let two_lengths = refusal::malformed(
            "the end of the request is ambiguous: send either Content-Length or \
             Transfer-Encoding, in a line of at most 64 bytes; the same limit applies to chunk \
             sizes with their extensions",
        );
        Self { router, keep_alive: true, no_host, two_lengths }
    }

    /// One request each, of those that the reserve serves.
    fn reserve(router: Router) -> Self {
        Self { keep_alive: false, ..Self::new(router.fallback(refusal::crowded)) }
    }
}

/// One connection.
struct Connection {
    address: IpAddr,
    open: Arc<Open>,
    served: Served,
    bodies: Option<Bodies>,
    limits: ServeLimits,
    stopping: watch::Receiver<()>,
}

impl Connection {
    /// From its first byte to its last.
    async fn run(mut self, stream: TcpStream, tls: Option<Arc<Tls>>) {
        if let Err(e) = stream.set_nodelay(true) {
            tracing::debug!(error = %e, "TCP_NODELAY could not be set");
        }
        let Some(tls) = tls else {
            let peer = self.peer(false, None);
            return self.requests(stream, peer).await;
        };
        let shaken = tokio::select! {
            shaken = tls.accept(stream, self.limits.head_timeout) => shaken,
            // Nobody has asked for anything yet.
            _ = self.stopping.changed() => return,
        };
        if let Some((stream, certificate)) = shaken {
            let peer = self.peer(true, certificate);
            self.requests(stream, peer).await;
        }
    }

    fn peer(&mut self, tls: bool, certificate: Option<PeerCertificate>) -> Peer {
        let (bodies, stopping) = (self.bodies.take(), self.stopping.clone());
        Peer::of(self.address, tls, certificate, &self.open, bodies, stopping)
    }

    async fn requests<S>(mut self, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Cut + Unpin + Send + 'static,
    {
        let limits = self.limits;
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_timeout)
            .max_buf_size(limits.head_max.max(8 * 1024))
            .keep_alive(self.served.keep_alive);
        let verdict = Verdict::default();
        let pace = Pace { silence: limits.write_timeout, rate: limits.write_per_second_min };
        let stream = Paced::new(stream, pace, verdict.clone());
        let service = FromPeer {
            inner: TowerToHyperService::new(self.served.router),
            no_host: self.served.no_host,
            two_lengths: self.served.two_lengths,
            peer,
            verdict,
        };
        let serving = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
        let mut serving = pin!(serving);
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            // Nothing is ever sent; the channel closes when the server stops.
            _ = self.stopping.changed() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(e) = ended {
            tracing::debug!(error = %e, "a connection ended with an error");
        }
    }
}

/// The router, told where requests come from. Requests that can be read in two ways do not reach it.
struct FromPeer {
    inner: TowerToHyperService<Router>,
    no_host: Router,
    two_lengths: Router,
    peer: Peer,
    verdict: Verdict,
}

impl Service<Request<Incoming>> for FromPeer {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if self.verdict.next_is_ambiguous() {
            return TowerToHyperService::new(self.two_lengths.clone()).call(request);
        }
        if !refusal::names_one_host(request.version(), request.headers()) {
            return TowerToHyperService::new(self.no_host.clone()).call(request);
        }
        request.extensions_mut().insert(self.peer.clone());
        self.inner.call(request)
    }
}
