//! The sockets of agents: the upgrade, and one task for each socket that reads and writes frames.
//!
//! A task owns its socket and nothing else: what a frame means, and when something is due, is decided
//! by the session; timers are in the node's wheel. So an idle socket costs its buffers and little more.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use futures_util::{Sink as _, Stream as _};
use http::header::{
    CONNECTION, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use posthorn_listener::{Held, Peer, Stream, take_stream};
use posthorn_push::protocol::Close;
use posthorn_push::session::Session;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use crate::connection::{Connection, Frame};
use crate::node::Shared;
use crate::throttle::Throttled;

/// The largest message of an agent.
const MESSAGE_BYTES_MAX: usize = 65_536;
/// What a socket reads at once. The usual message of an agent has less than a tenth of it.
const READ_BYTES: usize = 2_048;
/// Frames are gathered up to this size before they are written.
const WRITE_BYTES: usize = 2_048;
/// How long an agent may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);
/// How much of what an agent had still sent is thrown away so that it can read why it was closed.
const REST_BYTES_MAX: usize = 1024 * 1024;
/// So many seconds' worth of frames may come at once.
const FRAMES_BURST_SECONDS: u32 = 10;
/// A frame of an agent has no reason to be larger for long, nor has an agent to send more bytes.
const FRAME_BYTES: u32 = 4 * 1024;
const BYTES_PER_SECOND_MIN: u32 = 256 * 1024;

/// What agents are told that may come, but not now.
const LATER: &str = "try again later\n";

/// What agents call.
pub(crate) fn router(node: Arc<Shared>) -> Router {
    Router::new().route("/", get(upgrade)).with_state(node)
}

fn answer(status: StatusCode, headers: &[(HeaderName, &str)], text: &'static str) -> Response {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, *value);
    }
    // Our own names and values are valid.
    response.body(Body::from(text)).unwrap_or_default()
}

async fn upgrade(State(node): State<Arc<Shared>>, mut request: Request) -> Response {
    if let Some(problem) = problem(request.method(), request.headers()) {
        let needed =
            [(UPGRADE, "websocket"), (CONNECTION, "upgrade"), (SEC_WEBSOCKET_VERSION, "13")];
        return answer(StatusCode::UPGRADE_REQUIRED, &needed, problem);
    }
    let key = request.headers().get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let Some(key) = key else {
        return answer(StatusCode::BAD_REQUEST, &[], "Sec-WebSocket-Key is missing\n");
    };
    let refuse = |text| answer(StatusCode::SERVICE_UNAVAILABLE, &[(RETRY_AFTER, "5")], text);
    if node.leaving.load(Ordering::SeqCst) {
        node.meter.draining.increment(1);
        return refuse(LATER);
    }
    // The socket has a place among all sockets and those of its address, for as long as it lives. Who
    // gets none is told at once, and keeps nobody else waiting.
    let held = match request.extensions().get::<Peer>().map(Peer::hold) {
        None => None,
        Some(Some(held)) => Some(held),
        Some(None) => return refuse("too many connections\n"),
    };
    let Some(place) = node.pace.place(Instant::now()) else {
        node.meter.paced.increment(1);
        return refuse(LATER);
    };
    if place > Instant::now() {
        // Agents that wait, many after a node went away, must not take the places of requests.
        held.iter().for_each(Held::leave_requests);
        sleep_until(place).await;
    }
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgraded.await {
            Ok(upgraded) => begin(node, upgraded, held).await,
            Err(e) => {
                tracing::debug!(error = %e, "a socket closed before the upgrade was complete")
            }
        }
    });
    let headers =
        [(CONNECTION, "upgrade"), (UPGRADE, "websocket"), (SEC_WEBSOCKET_ACCEPT, key.as_str())];
    answer(StatusCode::SWITCHING_PROTOCOLS, &headers, "")
}

/// Why it is no WebSocket.
fn problem(method: &Method, headers: &HeaderMap) -> Option<&'static str> {
    let has = |name: HeaderName, word: &str| {
        headers.get_all(name).iter().any(|value| {
            let words = value.to_str().unwrap_or_default().split(',');
            words.map(str::trim).any(|found| found.eq_ignore_ascii_case(word))
        })
    };
    if method != Method::GET || !has(UPGRADE, "websocket") || !has(CONNECTION, "upgrade") {
        return Some("agents connect here with a WebSocket\n");
    }
    let spoken = has(SEC_WEBSOCKET_VERSION, "13");
    (!spoken).then_some("only WebSocket version 13 is supported\n")
}

async fn begin(node: Arc<Shared>, upgraded: hyper::upgrade::Upgraded, held: Option<Held>) {
    let Ok(taken) = take_stream(upgraded) else {
        tracing::error!("a socket came from an unknown listener");
        return;
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(WRITE_BYTES)
        .max_write_buffer_size(WRITE_BYTES + 4 * MESSAGE_BYTES_MAX)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let bytes =
        node.options.frames_per_second.saturating_mul(FRAME_BYTES).max(BYTES_PER_SECOND_MIN);
    let stream = Throttled::new(taken.stream, bytes);
    let socket = if taken.read.is_empty() {
        WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await
    } else {
        let read = taken.read.to_vec();
        WebSocketStream::from_partially_read(stream, read, Role::Server, Some(config)).await
    };
    let tracked = node.work.clone();
    // A task of its own, which is no larger than it must be for the rest of its life.
    tracked.spawn(run(Socket::new(node, socket, held)));
}

/// Everything of one socket.
struct Socket {
    node: Arc<Shared>,
    connection: Arc<Connection>,
    socket: WebSocketStream<Throttled<Stream>>,
    /// How many frames may come before it is read more slowly.
    frames: u32,
    refilled: Instant,
    /// The socket is not read before this.
    pause: Option<Pin<Box<Sleep>>>,
    /// The session is over; the socket is at the latest when this is.
    parting: Option<Pin<Box<Sleep>>>,
    /// Something was written that is not flushed.
    unflushed: bool,
    /// The close that is to be written last.
    last: Option<Close>,
    _held: Option<Held>,
}

/// How a socket's task goes on.
enum Turn {
    /// The last frame is written: wait for the agent's.
    Closing(Close),
    /// There is nobody at the other end.
    Broken,
}

async fn run(mut socket: Socket) {
    let turn = poll_fn(|cx| socket.turn(cx)).await;
    // However it ended, the session knows by now, or learns here.
    let node = Arc::clone(&socket.node);
    socket.connection.came(&node, Session::gone);
    if let Turn::Closing(close) = turn {
        Box::pin(socket.goodbye(close)).await;
    }
}

impl Socket {
    fn new(
        node: Arc<Shared>,
        socket: WebSocketStream<Throttled<Stream>>,
        held: Option<Held>,
    ) -> Self {
        node.sockets.fetch_add(1, Ordering::Relaxed);
        node.meter.connections.increment(1);
        node.meter.opened.increment(1);
        let connection = Connection::open(&node);
        let frames = node.options.frames_per_second.saturating_mul(FRAMES_BURST_SECONDS);
        Self {
            connection,
            socket,
            frames,
            refilled: Instant::now(),
            pause: None,
            parting: None,
            unflushed: false,
            last: None,
            _held: held,
            node,
        }
    }

    /// Writes what there is to write and reads what there is to read, until both have to wait.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        loop {
            // First of all, so that nothing is missed that comes while we look.
            self.connection.watch(cx.waker());
            match self.write(cx) {
                Poll::Ready(Ok(None)) => {}
                Poll::Ready(Ok(Some(close))) => return Poll::Ready(Turn::Closing(close)),
                Poll::Ready(Err(_)) => return Poll::Ready(Turn::Broken),
                // An agent that does not read is not read: what it asks for would be kept here.
                Poll::Pending if !self.connection.is_closed() => return Poll::Pending,
                Poll::Pending => {
                    ready!(self.patience(cx));
                    return Poll::Ready(Turn::Broken);
                }
            }
            if !self.connection.wants_frames() {
                return Poll::Pending;
            }
            ready!(self.rest(cx));
            match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                Some(Ok(message)) => self.came(message),
                Some(Err(e)) => {
                    if !is_fault_of_agent(&e) {
                        return Poll::Ready(Turn::Broken);
                    }
                    self.connection.came(&self.node, Session::broken_frame);
                }
                None => return Poll::Ready(Turn::Broken),
            }
        }
    }

    /// Writes all frames. Ready with the close when that was written.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Close>, Error>> {
        loop {
            ready!(Pin::new(&mut self.socket).poll_ready(cx))?;
            let Some(frame) = self.connection.next_frame(&self.node) else { break };
            let message = match frame {
                Frame::Text(text) => Message::Text(text),
                Frame::Ping => Message::Ping(bytes::Bytes::new()),
                Frame::Close(close) => {
                    self.last = Some(close);
                    break;
                }
            };
            Pin::new(&mut self.socket).start_send(message)?;
            self.unflushed = true;
        }
        // The agent went first; its close is repeated by the library.
        if self.last == Some(Close::Gone) {
            return Poll::Ready(Ok(self.last));
        }
        // Before the close, because the library would write the answer to a ping behind it.
        if self.unflushed {
            ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
            self.unflushed = false;
        }
        if let Some(close) = self.last {
            let frame = CloseFrame {
                code: CloseCode::from(close.code()),
                reason: Utf8Bytes::from_static(close.word()),
            };
            Pin::new(&mut self.socket).start_send(Message::Close(Some(frame)))?;
        }
        Poll::Ready(Ok(self.last))
    }

    /// Waits when frames come too fast: whoever sends more than others is read more slowly.
    fn rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        if self.frames == 0 {
            // Who gets much has much to acknowledge.
            self.frames = self.connection.take_credit();
        }
        if self.frames > 0 {
            return Poll::Ready(());
        }
        let rate = self.node.options.frames_per_second.max(1);
        let earned = self.refilled.elapsed().as_millis() * u128::from(rate) / 1_000;
        let most = rate.saturating_mul(FRAMES_BURST_SECONDS);
        self.frames = u32::try_from(earned).unwrap_or(most).min(most);
        if self.frames > 0 {
            self.refilled = Instant::now();
            return Poll::Ready(());
        }
        let mut pause = Box::pin(sleep(Duration::from_secs(1) / rate.min(10)));
        // Polled once, so that it wakes us.
        let waiting = pause.as_mut().poll(cx);
        self.pause = Some(pause);
        waiting
    }

    /// How long an agent that does not read may keep its close from being written.
    fn patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.parting.get_or_insert_with(|| Box::pin(sleep(GOODBYE))).as_mut().poll(cx)
    }

    fn came(&mut self, message: Message) {
        self.frames = self.frames.saturating_sub(1);
        let node = &self.node;
        match message {
            Message::Text(text) => {
                // Those that are known have their wave, and until then are served.
                let unknown = self.connection.is_unknown();
                let send_away = || {
                    if unknown && node.leaving.load(Ordering::SeqCst) {
                        self.connection.send_away(node);
                    }
                };
                send_away();
                self.connection.text(node, &text);
                // Whoever was not to be found yet when the others were sent away.
                send_away();
            }
            Message::Binary(_) => self.connection.came(node, Session::binary_frame),
            Message::Ping(_) => {
                // The library has an answer ready, which is sent with the next flush.
                self.unflushed = true;
                self.connection.came(node, Session::ping_frame);
            }
            Message::Pong(_) => self.connection.came(node, Session::pong_frame),
            Message::Close(_) => self.connection.came(node, Session::gone),
            // Only those who ask for bare frames get them.
            Message::Frame(_) => {}
        }
    }

    /// Lets the close arrive: it is flushed, and what the agent still sends is thrown away for a
    /// moment, because a connection that is dropped with unread bytes is reset, close and all.
    async fn goodbye(&mut self, close: Close) {
        let parting = async {
            poll_fn(|cx| Pin::new(&mut self.socket).poll_flush(cx)).await?;
            if close == Close::Gone {
                return Ok::<(), Error>(());
            }
            let stream = self.socket.get_mut();
            // The agent sees the end at once and need not wait for us to have seen its own.
            stream.shutdown().await?;
            let mut rest = Box::new([0u8; 4096]);
            let mut thrown = 0;
            while thrown < REST_BYTES_MAX {
                match stream.read(rest.as_mut_slice()).await? {
                    0 => break,
                    bytes => thrown += bytes,
                }
            }
            Ok(())
        };
        // Whether it arrived makes no difference any more.
        let _ = timeout(GOODBYE, parting).await;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.node.sockets.fetch_sub(1, Ordering::Relaxed);
        self.node.meter.connections.decrement(1);
    }
}

/// Whether the agent sent what is no frame, as opposed to a connection that is gone.
fn is_fault_of_agent(error: &Error) -> bool {
    matches!(error, Error::Capacity(_) | Error::Protocol(_) | Error::Utf8(_) | Error::AttackAttempt)
        && !matches!(
            error,
            Error::Protocol(
                tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake
            )
        )
}
