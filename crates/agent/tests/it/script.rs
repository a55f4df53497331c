//! Servers that take one socket and follow a script.

use std::future::Future;
use std::time::Duration;

use base64::Engine as _;
use futures_util::{SinkExt as _, StreamExt as _};
use posthorn_agent::Message;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;

/// For anything that must happen; nothing takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn base64url(bytes: &[u8]) -> String {
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// The server's end of a socket.
pub(crate) struct Peer {
    pub(crate) socket: WebSocketStream<TcpStream>,
}

impl Peer {
    pub(crate) async fn read(&mut self) -> Value {
        match tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("in time") {
            Some(Ok(Message::Text(text))) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn say(&mut self, value: &Value) {
        self.socket.send(Message::text(value.to_string())).await.expect("sent");
    }

    /// Reads until the agent has gone.
    pub(crate) async fn end(&mut self) {
        let gone = async { while let Some(Ok(_)) = self.socket.next().await {} };
        tokio::time::timeout(PATIENCE, gone).await.expect("the agent goes");
    }
}

pub(crate) struct Server {
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start<F>(script: impl FnOnce(Peer) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("ws://{}/", listener.local_addr().expect("an address"));
        let task = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a connection");
            let socket = tokio_tungstenite::accept_async(stream).await.expect("a socket");
            script(Peer { socket }).await;
        });
        Self { url, task }
    }

    /// The script ran to its end, and nothing in it failed.
    pub(crate) async fn ended(self) {
        let ended = tokio::time::timeout(PATIENCE, self.task).await;
        ended.expect("the script ends").expect("the script holds");
    }
}

/// Where every request is answered with the same text.
pub(crate) async fn plain_http(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("ws://{}/", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut head = [0; 4_096];
        assert_ne!(stream.read(&mut head).await.expect("a request"), 0);
        stream.write_all(answer.as_bytes()).await.expect("sent");
    });
    url
}

/// Where nobody listens.
pub(crate) async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    format!("ws://{}/", listener.local_addr().expect("an address"))
}
