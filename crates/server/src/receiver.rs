//! A small HTTP receiver for `listen` and `demo`: it shows what arrives and checks signatures. Senders that ask
//! for permission get it.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ALLOW;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use posthorn_domain::{Clock, Problem, Timestamp};
use posthorn_sealing::standard_webhooks::{HeaderNames, PublicKey, SigningSecret};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::WallClock;
use crate::exit::{Code, Failure};

/// More than any payload Posthorn sends by default.
const BODY_BYTES_MAX: usize = 64 << 20;
/// How old or new a signature may be, as the Standard Webhooks libraries have it.
const TOLERANCE_SECONDS: i64 = 300;

/// One request that arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// When.
    pub at: Timestamp,
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Received {
    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// What a receiver answers with; `None` says nothing at all until the sender gives up.
pub type Answer = Pin<Box<dyn Future<Output = Option<StatusCode>> + Send>>;
/// What a receiver does with each request.
pub type Handler = Arc<dyn Fn(Received) -> Answer + Send + Sync>;

/// What signatures are checked with.
#[derive(Clone)]
pub enum Verifier {
    /// A shared or private secret, `whsec_…` or `whsk_…`.
    Secret(SigningSecret),
    /// A public key, `whpk_…`.
    Public(PublicKey),
}

impl Verifier {
    /// Reads the text form.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let read = if text.starts_with("whpk_") {
            PublicKey::parse(text).map(Self::Public)
        } else {
            SigningSecret::parse(text).map(Self::Secret)
        };
        read.map_err(|e| {
            Failure::new(Code::Usage, format!("the signing secret cannot be read: {e}"))
                .hint("use the whsec_… text from the response that created the subscription")
                .into()
        })
    }

    /// Whether the request was signed by the one we know; otherwise why not.
    pub fn check(&self, received: &Received) -> Result<(), Problem> {
        let get =
            |name| received.header(name).ok_or_else(|| format!("the {name} header is missing"));
        let names = HeaderNames::in_use(|name| received.headers.contains_key(name));
        let (id, signature) = (get(names.id)?, get(names.signature)?);
        let timestamp = get(names.timestamp)?
            .parse()
            .map_err(|_| format!("the {} is not a number", names.timestamp))?;
        let (body, now) = (&received.body, received.at.as_seconds());
        let checked = match self {
            Self::Secret(secret) => {
                secret.verify(id, timestamp, signature, body, now, TOLERANCE_SECONDS)
            }
            Self::Public(key) => key.verify(id, timestamp, signature, body, now, TOLERANCE_SECONDS),
        };
        checked.map_err(|e| e.to_string().into())
    }
}

/// Listens on an address.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            Failure::new(Code::InUse, format!("the address {address} is in use"))
                .hint("choose another port; 0 picks a free one")
                .into()
        }
        _ => Failure::new(Code::Failure, format!("cannot listen on {address}: {e}")).into(),
    })
}

/// Serves until it is told to stop; what is being answered then gets its answer, if that does not take
/// longer than `patience`.
pub async fn run(
    listener: TcpListener,
    handler: Handler,
    stop: CancellationToken,
    patience: Duration,
) {
    // Dropped with this service, and all connections with it.
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors, or a peer that has gone: the next one may work.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        drop(stream.set_nodelay(true));
        let (handler, stop) = (Arc::clone(&handler), stop.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| respond(Arc::clone(&handler), request));
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new());
            let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
            tokio::select! {
                // A sender that breaks off is its own affair.
                served = connection.as_mut() => return drop(served),
                () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            drop(connection.await);
        });
    }
    drop(listener);
    let answers = async { while connections.join_next().await.is_some() {} };
    drop(tokio::time::timeout(patience, answers).await);
}

async fn respond(
    handler: Handler,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    if let (&Method::OPTIONS, Some(origin)) =
        (request.method(), request.headers().get("webhook-request-origin"))
    {
        // Whoever asks may send: that is what this receiver is for.
        let mut response = Response::new(Full::default());
        let headers = response.headers_mut();
        headers.insert("webhook-allowed-origin", origin.clone());
        headers.insert("webhook-allowed-rate", HeaderValue::from_static("*"));
        headers.insert(ALLOW, HeaderValue::from_static("OPTIONS, POST"));
        return Ok(response);
    }
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await?.to_bytes();
    let received = Received {
        at: WallClock.now(),
        method: parts.method,
        path: parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        headers: parts.headers,
        body,
    };
    let Some(status) = handler(received).await else {
        return std::future::pending().await;
    };
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    Ok(response)
}
