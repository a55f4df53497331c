//! A socket byte by byte: an agent that may send what no library would.

use posthorn_testkit::wait::PATIENCE;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::live::house::QUIET;

/// First bytes of frames.
pub(crate) const TEXT: u8 = 0x81;
pub(crate) const BINARY: u8 = 0x82;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;
pub(crate) const PONG: u8 = 0x8a;

/// A frame as an agent has to send it, masked.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = vec![first];
    match payload.len() {
        short @ 0..126 => frame.push(0x80 | u8::try_from(short).expect("short")),
        medium @ 126..0x1_0000 => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(medium).expect("medium").to_be_bytes());
        }
        long => {
            frame.push(0x80 | 127);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// A socket.
pub(crate) struct Raw(TcpStream);

impl Raw {
    /// An upgraded socket. With a small buffer it takes little before it is read.
    #[expect(clippy::disallowed_methods, reason = "the agent of a test, on loopback")]
    pub(crate) async fn open(url: &str, buffer: Option<u32>) -> Self {
        let address = url.strip_prefix("http://").expect("plain http");
        let socket = TcpSocket::new_v4().expect("a socket");
        if let Some(bytes) = buffer {
            socket.set_recv_buffer_size(bytes).expect("a buffer");
        }
        let mut stream =
            socket.connect(address.parse().expect("an address")).await.expect("a connection");
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: keep-alive, Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: push-notification\r\n\
             Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("an answer"));
        }
        let head = String::from_utf8(head).expect("text");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        assert!(!head.to_lowercase().contains("sec-websocket-extensions"), "{head}");
        Self(stream)
    }

    /// Sends bytes as they are. The server may have stopped listening.
    pub(crate) async fn bytes(&mut self, bytes: &[u8]) {
        let sent = timeout(PATIENCE, self.0.write_all(bytes)).await;
        drop(sent.expect("sent in time"));
    }

    pub(crate) async fn text(&mut self, text: &str) {
        self.bytes(&frame(TEXT, text.as_bytes())).await;
    }

    /// The next frame: its first byte and its payload. `None` at the end.
    pub(crate) async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let read = async {
            let first = self.0.read_u8().await.ok()?;
            let length = match self.0.read_u8().await.ok()? {
                126 => u64::from(self.0.read_u16().await.ok()?),
                127 => self.0.read_u64().await.ok()?,
                short => u64::from(short),
            };
            let mut payload = vec![0; usize::try_from(length).expect("fits")];
            self.0.read_exact(&mut payload).await.ok()?;
            Some((first, payload))
        };
        timeout(PATIENCE, read).await.expect("a frame in time")
    }

    /// The next text.
    pub(crate) async fn said(&mut self) -> Value {
        match self.frame().await {
            Some((TEXT, text)) => serde_json::from_slice(&text).expect("JSON"),
            other => panic!("not a text: {other:?}"),
        }
    }

    /// Says hello, and what it is answered.
    pub(crate) async fn hello(&mut self, hello: &str) -> Value {
        self.text(hello).await;
        self.said().await
    }

    /// The close frame, which must be the next one; after it the server is gone.
    pub(crate) async fn end(&mut self) -> (u16, String) {
        let close = self.frame().await;
        let Some((CLOSE, payload)) = close else { panic!("not a close: {close:?}") };
        let (code, reason) = payload.split_at(2);
        let code = u16::from_be_bytes([code[0], code[1]]);
        (code, String::from_utf8(reason.to_vec()).expect("text"))
    }

    /// Nothing comes for a while.
    pub(crate) async fn silence(&mut self) {
        let mut byte = [0];
        if let Ok(came) = timeout(QUIET, self.0.peek(&mut byte)).await {
            panic!("something came: {came:?}");
        }
    }
}

/// The shortest hello.
pub(crate) const HELLO: &str = r#"{"messageType":"hello"}"#;

/// An upgraded socket that said hello.
pub(crate) async fn greeted(url: &str) -> Raw {
    let mut raw = Raw::open(url, None).await;
    raw.hello(HELLO).await;
    raw
}
