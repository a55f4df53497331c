//! The accept loop: HTTP/1.1 with a bound on connections, heads and time.
//!
//! `axum::serve` has neither a timer nor a cap, so a client that sends its head byte by byte would
//! hold a connection for ever. Here a head must arrive within [`ServeLimits::head_time`], which also
//! ends connections that stay idle, and at the cap new connections wait in the kernel's queue.
//! A TLS handshake may take as long, and is made by the connection's own task, so that a client that
//! is slow at it keeps nobody else waiting. Upgrades are allowed, so that WebSockets can share the
//! listener; a socket that outlives its connection's task goes on counting as long as its [`Held`]
//! is kept, and its end is the business of whoever keeps it.
//!
//! [`Held`]: crate::Held

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::metrics;
use crate::open::{Addresses, Open};
use crate::peer::Peer;
use crate::tls::Tls;

/// The first wait after the system refused a connection; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Connections open at once.
    pub connections: usize,
    /// Connections open at once from one address (IPv6: one /64); zero means no limit.
    pub connections_per_address: usize,
    /// How long a request's head may take, a TLS handshake may take, and a connection may be idle.
    pub head_time: Duration,
    /// The largest head.
    pub head_bytes: usize,
    /// How long requests under way may take to end after the shutdown began.
    pub drain: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_address: 0,
            head_time: Duration::from_secs(10),
            head_bytes: 32 * 1024,
            drain: Duration::from_secs(10),
        }
    }
}

/// Serves until `shutdown` is ready, then finishes the requests under way and closes. Without `tls`
/// it speaks plain HTTP. Connections that were upgraded are not waited for.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ServeLimits,
    tls: Option<Arc<Tls>>,
    shutdown: impl Future<Output = ()>,
) {
    metrics::describe();
    let mut shutdown = pin!(shutdown);
    let slots = Arc::new(Semaphore::new(limits.connections));
    let addresses = Addresses::default();
    let (stop, stopping) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut backoff = BACKOFF_MIN;
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &slots) => accepted,
        };
        match accepted {
            Ok((stream, peer, slot)) => {
                backoff = BACKOFF_MIN;
                // One address must not take all places; it is told by a closed connection.
                let Some(place) = addresses.enter(peer, limits.connections_per_address) else {
                    let refused =
                        ::metrics::counter!(metrics::ADMISSION_REFUSED, "reason" => "connections");
                    refused.increment(1);
                    continue;
                };
                let open = Arc::new(Open::new(slot, place));
                let (router, tls, stopping) = (router.clone(), tls.clone(), stopping.clone());
                connections.spawn(connection(stream, peer, open, router, tls, limits, stopping));
            }
            Err(e) if is_of_one_connection(&e) => {}
            Err(e) => {
                ::metrics::counter!(metrics::ACCEPT_ERRORS).increment(1);
                tracing::warn!(error = %e, "connections cannot be accepted; trying again soon");
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
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.drain, drained).await.is_err() {
        tracing::warn!(open = connections.len(), "some requests did not end in time; cutting them");
        connections.shutdown().await;
    }
}

/// The next connection, once there is room for it. Safe to drop at any time: a connection that was
/// not taken stays in the kernel's queue.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.map_err(io::Error::other)?;
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

/// One connection from its first byte to its last.
async fn connection(
    stream: TcpStream,
    address: IpAddr,
    open: Arc<Open>,
    router: Router,
    tls: Option<Arc<Tls>>,
    limits: ServeLimits,
    mut stopping: watch::Receiver<()>,
) {
    if let Err(e) = stream.set_nodelay(true) {
        tracing::debug!(error = %e, "TCP_NODELAY could not be set");
    }
    let inner = TowerToHyperService::new(router);
    let Some(tls) = tls else {
        let service = FromPeer { inner, peer: Peer::of(address, None, &open) };
        return requests(stream, service, limits, stopping).await;
    };
    let shaken = tokio::select! {
        shaken = tls.accept(stream, limits.head_time) => shaken,
        // Nobody has asked for anything yet.
        _ = stopping.changed() => return,
    };
    if let Some((stream, certificate)) = shaken {
        let service = FromPeer { inner, peer: Peer::of(address, certificate, &open) };
        requests(stream, service, limits, stopping).await;
    }
}

async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: FromPeer,
    limits: ServeLimits,
    mut stopping: watch::Receiver<()>,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(limits.head_bytes.max(8 * 1024))
        .keep_alive(true);
    let serving = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        // Nothing is ever sent; the channel closes when the server stops.
        _ = stopping.changed() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(e) = ended {
        tracing::debug!(error = %e, "a connection ended badly");
    }
}

/// The router, told where requests come from.
struct FromPeer {
    inner: TowerToHyperService<Router>,
    peer: Peer,
}

impl Service<Request<Incoming>> for FromPeer {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer.clone());
        self.inner.call(request)
    }
}
