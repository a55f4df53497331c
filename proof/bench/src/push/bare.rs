//! The bare server: an accept loop, WebSockets with buffers of 2 KiB, and a table of who is
//! connected. It answers agents and senders in the server's own words and promises nothing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use posthorn_domain::AgentId;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

const BUFFER_BYTES: usize = 2_048;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

#[derive(Default)]
struct Bare {
    /// Whether agents get messages; without, a socket is all there is of an agent.
    mailboxes: bool,
    numbers: AtomicU64,
    agents: Mutex<HashMap<String, UnboundedSender<Bytes>>>,
}

/// Runs until it is killed; prints its address on stdout.
pub(crate) async fn serve(mailboxes: bool) -> anyhow::Result<()> {
    let bare = Arc::new(Bare { mailboxes, ..Bare::default() });
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    let listener: TcpListener = socket.listen(4_096)?;
    {
        use std::io::Write as _;
        let mut out = std::io::stdout().lock();
        writeln!(out, "listening on {}", listener.local_addr()?)?;
        out.flush()?;
    }
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let bare = Arc::clone(&bare);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&bare), request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A peer that breaks off is no news.
            drop(connection.with_upgrades().await);
        });
    }
}

async fn answer(
    bare: Arc<Bare>,
    mut request: Request<Incoming>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let mut response = Response::new(Empty::new());
    if request.method() == Method::POST {
        let agent = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let body = request.into_body().collect().await.map(|body| body.to_bytes());
        let mailbox = bare.agents.lock().get(&agent).cloned();
        let sent = mailbox.zip(body.ok()).map(|(mailbox, body)| mailbox.send(body));
        let sent = matches!(sent, Some(Ok(())));
        *response.status_mut() = if sent { StatusCode::CREATED } else { StatusCode::NOT_FOUND };
        return Ok(response);
    }
    let key = request.headers().get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let Some(accept) = key.and_then(|key| HeaderValue::try_from(key).ok()) else {
        *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
        return Ok(response);
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES);
        let io = TokioIo::new(upgraded);
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        if bare.mailboxes {
            with_mailbox(&bare, socket).await;
        } else {
            without_mailbox(&bare, socket).await;
        }
    });
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

async fn without_mailbox(bare: &Bare, mut socket: Socket) {
    while let Some(Ok(message)) = socket.next().await {
        if let Some((reply, _)) = reply(bare, &message)
            && socket.send(reply).await.is_err()
        {
            return;
        }
    }
}

async fn with_mailbox(bare: &Bare, mut socket: Socket) {
    let (mailbox, mut letters) = mpsc::unbounded_channel();
    loop {
        let sent = tokio::select! {
            message = socket.next() => match message {
                Some(Ok(message)) => match reply(bare, &message) {
                    Some((reply, agent)) => {
                        if let Some(agent) = agent {
                            bare.agents.lock().insert(agent, mailbox.clone());
                        }
                        socket.send(reply).await
                    }
                    None => Ok(()),
                },
                _ => return,
            },
            Some(body) = letters.recv() => deliver(bare, &mut socket, body, &mut letters).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Writes all that has come, and flushes once.
async fn deliver(
    bare: &Bare,
    socket: &mut Socket,
    first: Bytes,
    letters: &mut UnboundedReceiver<Bytes>,
) -> Result<(), tokio_tungstenite::tungstenite::Error> {
    let mut next = Some(first);
    while let Some(body) = next {
        let version = bare.numbers.fetch_add(1, Ordering::Relaxed);
        let data = URL_SAFE_NO_PAD.encode(&body);
        let text = format!(
            r#"{{"messageType":"notification","channelID":"{CHANNEL}","version":"{version}","data":"{data}","headers":{{"encoding":"aes128gcm"}}}}"#
        );
        socket.feed(Message::text(text)).await?;
        next = letters.try_recv().ok();
    }
    socket.flush().await
}

/// Agents have one channel each here; which one does not matter.
const CHANNEL: &str = "00000000-0000-4000-8000-000000000007";

/// What to say; for a `hello` also who came.
fn reply(bare: &Bare, message: &Message) -> Option<(Message, Option<String>)> {
    let Message::Text(text) = message else { return None };
    // Acknowledgements need no answer and are not read.
    if text.as_str().contains(r#""ack""#) {
        return None;
    }
    let said: Value = serde_json::from_str(text).ok()?;
    match said["messageType"].as_str()? {
        "hello" => {
            let number = bare.numbers.fetch_add(1, Ordering::Relaxed);
            let agent = AgentId::from_random(u128::from(number)).to_string();
            let text = format!(
                r#"{{"messageType":"hello","uaid":"{agent}","status":200,"use_webpush":true,"broadcasts":{{}}}}"#
            );
            Some((Message::text(text), Some(agent)))
        }
        "register" => {
            let channel = &said["channelID"];
            let text = format!(
                r#"{{"messageType":"register","channelID":{channel},"status":200,"pushEndpoint":"http://localhost/wpush/v1/x"}}"#
            );
            Some((Message::text(text), None))
        }
        _ => None,
    }
}
