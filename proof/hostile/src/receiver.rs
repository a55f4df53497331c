//! One misbehaving receiver on a loopback port.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::certificates::Authority;
use crate::mode::{Door, Mode};
use crate::script;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;
/// What the kernel may hold for us before a sender takes it: floods should cost the sender, not the
/// machine they come from.
const SEND_BUFFER_BYTES: u32 = 32 * 1024;
/// How long a connection to a full queue is waited for before the queue counts as full.
const FULL_AFTER: Duration = Duration::from_millis(100);

/// How receivers behave, apart from their mode.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The pause between two bytes of a slow mode.
    pub pace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { pace: Duration::from_secs(1) }
    }
}

/// What a receiver has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub open: u64,
    /// The most open at once.
    pub peak: u64,
    /// Requests read to their end.
    pub requests: u64,
    /// Requests that carried a cookie.
    pub cookies: u64,
    /// Answers sent while nobody was asking.
    pub unasked: u64,
}

/// Everything the connections of one receiver share.
pub(crate) struct Stage {
    pub(crate) mode: Mode,
    pub(crate) pace: Duration,
    pub(crate) trap: SocketAddr,
    pub(crate) address: SocketAddr,
    /// For a handshake that is meant to work.
    pub(crate) good: Option<TlsAcceptor>,
    /// For one that is not.
    pub(crate) bad: Option<TlsAcceptor>,
    healed: watch::Sender<bool>,
    /// Whether connections are being accepted.
    receiving: watch::Sender<bool>,
    connections: AtomicU64,
    open: AtomicU64,
    peak: AtomicU64,
    requests: AtomicU64,
    cookies: AtomicU64,
    unasked: AtomicU64,
}

impl Stage {
    pub(crate) fn is_healed(&self) -> bool {
        *self.healed.borrow()
    }

    pub(crate) fn count_request(&self, cookie: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.cookies.fetch_add(u64::from(cookie), Ordering::Relaxed);
    }

    pub(crate) fn count_unasked(&self) {
        self.unasked.fetch_add(1, Ordering::Relaxed);
    }
}

/// A receiver that plays one mode until it is healed or dropped.
pub struct Receiver {
    stage: Arc<Stage>,
    task: JoinHandle<()>,
    authority: Arc<Authority>,
    trap: Arc<Trap>,
}

impl Receiver {
    /// Starts to misbehave on a free port.
    pub async fn start(mode: Mode, settings: Settings) -> io::Result<Self> {
        let shared = (Arc::new(Authority::new()), Arc::new(Trap::start().await?));
        Self::with(mode, settings, shared).await
    }

    pub(crate) async fn with(
        mode: Mode,
        settings: Settings,
        (authority, trap): (Arc<Authority>, Arc<Trap>),
    ) -> io::Result<Self> {
        let entrance = Entrance::open(mode).await?;
        let stage = Arc::new(Stage {
            mode,
            pace: settings.pace,
            trap: trap.address,
            address: entrance.address()?,
            good: mode.is_tls().then(|| authority.good()),
            bad: (mode.door() == Door::Handshake).then(|| authority.bad(mode)).flatten(),
            healed: watch::Sender::new(false),
            receiving: watch::Sender::new(false),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            cookies: AtomicU64::new(0),
            unasked: AtomicU64::new(0),
        });
        let task = tokio::spawn(receive(entrance, Arc::clone(&stage)));
        Ok(Self { stage, task, authority, trap })
    }

    /// What it plays.
    pub fn mode(&self) -> Mode {
        self.stage.mode
    }

    /// Where it listens, or pretends to.
    pub fn address(&self) -> SocketAddr {
        self.stage.address
    }

    /// Its URL, with a path of the caller's choice.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.mode().is_tls() { "https" } else { "http" };
        format!("{scheme}://{}/{path}", self.address())
    }

    /// What a sender must trust for the certificates meant to be good.
    pub fn authority_pem(&self) -> &str {
        self.authority.pem()
    }

    /// From now on every request is answered with 200 and its own body, on new connections and on
    /// those that are open and were left in a state that allows it. Returns when it listens, which
    /// not every mode did before.
    pub async fn heal(&self) {
        self.stage.healed.send_replace(true);
        let mut receiving = self.stage.receiving.subscribe();
        receiving.wait_for(|receiving| *receiving).await.expect("the stage holds the other end");
    }

    /// What it has seen.
    pub fn seen(&self) -> Seen {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Seen {
            connections: read(&self.stage.connections),
            open: read(&self.stage.open),
            peak: read(&self.stage.peak),
            requests: read(&self.stage.requests),
            cookies: read(&self.stage.cookies),
            unasked: read(&self.stage.unasked),
        }
    }

    /// Connections to where it lured the sender; must stay 0. A fleet's receivers share the count.
    pub fn lured(&self) -> u64 {
        self.trap.lured()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // The task owns the tasks of the connections, which end with it.
        self.task.abort();
    }
}

/// A port before anybody is let in.
enum Entrance {
    Open(TcpListener),
    /// Listening, but the queue is full and nobody takes from it. The streams keep it full.
    Full(TcpListener, JoinSet<()>),
    /// Bound, so that nobody else gets the port, but not listening.
    Shut(TcpSocket),
}

impl Entrance {
    async fn open(mode: Mode) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
        match mode {
            Mode::Refused => Ok(Self::Shut(socket)),
            Mode::Blackhole => {
                let listener = socket.listen(0)?;
                let fillers = fill(listener.local_addr()?).await?;
                Ok(Self::Full(listener, fillers))
            }
            _ => Ok(Self::Open(socket.listen(BACKLOG)?)),
        }
    }

    fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Open(listener) | Self::Full(listener, _) => listener.local_addr(),
            Self::Shut(socket) => socket.local_addr(),
        }
    }
}

/// Connects until a connection no longer gets through.
#[expect(clippy::disallowed_methods, reason = "a receiver that fills its own queue, on loopback")]
async fn fill(address: SocketAddr) -> io::Result<JoinSet<()>> {
    let mut fillers = JoinSet::new();
    for _ in 0..16 {
        let connecting = TcpSocket::new_v4()?.connect(address);
        let (tell, told) = tokio::sync::oneshot::channel();
        fillers.spawn(async move {
            let stream = connecting.await;
            let _ = tell.send(());
            std::future::pending::<()>().await;
            drop(stream);
        });
        if tokio::time::timeout(FULL_AFTER, told).await.is_err() {
            return Ok(fillers);
        }
    }
    Err(io::Error::other("the queue of a listener cannot be filled on this system"))
}

/// Accepts for ever.
async fn receive(entrance: Entrance, stage: Arc<Stage>) {
    let mut healed = stage.healed.subscribe();
    let listener = match entrance {
        Entrance::Open(listener) => listener,
        Entrance::Full(listener, mut fillers) => {
            let _ = healed.wait_for(|healed| *healed).await;
            fillers.shutdown().await;
            // What is still queued are the fillers; without them the queue has room again.
            while tokio::time::timeout(FULL_AFTER, listener.accept()).await.is_ok() {}
            listener
        }
        Entrance::Shut(socket) => {
            let _ = healed.wait_for(|healed| *healed).await;
            socket.listen(BACKLOG).expect("a bound socket can listen")
        }
    };
    stage.receiving.send_replace(true);
    let mut playing = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = playing.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    playing.spawn(connection(Arc::clone(&stage), stream));
                }
                // Out of descriptors, most likely: the sender will be refused for a while.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
        }
    }
}

async fn connection(stage: Arc<Stage>, stream: TcpStream) {
    let _open = Open::new(&stage);
    // A slow mode wants its bytes to leave one by one.
    let _ = stream.set_nodelay(true);
    script::play(&stage, stream).await;
}

/// A connection that counts as open.
struct Open<'a>(&'a Stage);

impl<'a> Open<'a> {
    fn new(stage: &'a Stage) -> Self {
        stage.connections.fetch_add(1, Ordering::Relaxed);
        let open = stage.open.fetch_add(1, Ordering::Relaxed) + 1;
        stage.peak.fetch_max(open, Ordering::Relaxed);
        Self(stage)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where lures lead. Whoever connects has fallen for one.
pub(crate) struct Trap {
    address: SocketAddr,
    lured: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Trap {
    pub(crate) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let lured = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&lured);
        let task = tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self { address, lured, task })
    }

    pub(crate) fn lured(&self) -> u64 {
        self.lured.load(Ordering::Relaxed)
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        self.task.abort();
    }
}
