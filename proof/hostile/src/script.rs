//! Plays a mode on one connection.
//!
//! Most modes are one canned answer and an ending; the rest are small programs. A program that ends
//! with [`Then::Next`] hears the next request on the same connection, which is what a sender that
//! was fooled would use.

mod canned;
mod handshake;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::mode::{Door, Mode};
use crate::receiver::Stage;
use crate::wire::Reader;

/// What happens to the connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The next request is heard.
    Next,
    /// It is closed properly: what was written arrives.
    Close,
    /// It is dropped: closed, but under TLS without a goodbye.
    Drop,
    /// It is reset.
    Reset,
    /// Nothing, for ever.
    Hold,
}

/// A byte stream with a socket under it.
trait Carrier: AsyncRead + AsyncWrite + Unpin + Send {
    fn tcp(&self) -> &TcpStream;
}

impl Carrier for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Carrier for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

pub(crate) async fn play(stage: &Stage, tcp: TcpStream) {
    let healed = stage.is_healed();
    match (stage.mode.door(), &stage.good) {
        (Door::Handshake, _) if !healed => handshake::play(stage, tcp).await,
        (Door::Plain, _) | (_, None) => converse(stage, tcp).await,
        (_, Some(good)) => {
            if let Ok(tls) = good.accept(tcp).await {
                converse(stage, tls).await;
            }
        }
    }
}

async fn converse<C: Carrier>(stage: &Stage, mut carrier: C) {
    let mut reader = Reader::default();
    loop {
        let then = match before_request(stage, &mut carrier).await {
            Some(then) => then,
            None => {
                let Some(request) = reader.next(&mut carrier).await else { return };
                stage.count_request(request.cookie);
                if stage.is_healed() || stage.mode.is_control() {
                    echo(&mut carrier, &request.body).await
                } else {
                    answer(stage, &mut carrier).await
                }
            }
        };
        match then {
            Then::Next => {}
            Then::Close => return close(carrier).await,
            Then::Drop => return,
            Then::Reset => return drop(carrier.tcp().set_zero_linger()),
            Then::Hold => return std::future::pending().await,
        }
    }
}

/// What is done without hearing the request first.
async fn before_request<C: Carrier>(stage: &Stage, carrier: &mut C) -> Option<Then> {
    if stage.is_healed() {
        return None;
    }
    match stage.mode {
        Mode::CloseOnAccept => Some(Then::Close),
        Mode::ResetOnAccept => Some(Then::Reset),
        Mode::Deaf => Some(Then::Hold),
        Mode::EarlyAnswer | Mode::EarlyAnswerReset => {
            // A part of the request, so that it is under way.
            let mut some = vec![0; 512];
            let _ = carrier.read(&mut some).await;
            let reply = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = write(carrier, reply).await;
            tokio::time::sleep(stage.pace.min(std::time::Duration::from_millis(100))).await;
            Some(if stage.mode == Mode::EarlyAnswer { Then::Close } else { Then::Reset })
        }
        _ => None,
    }
}

/// Misbehaves after one request.
async fn answer<C: Carrier>(stage: &Stage, carrier: &mut C) -> Then {
    if let Some((reply, then)) = canned::reply(stage) {
        return if write(carrier, &reply).await { then } else { Then::Close };
    }
    match stage.mode {
        Mode::SlowHead => {
            drip(stage, carrier, b"HTTP/1.1 200 OK\r\nX: ", b"x").await;
        }
        Mode::SlowBody => {
            write(carrier, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").await;
            drip(stage, carrier, b"", b"x").await;
        }
        Mode::SlowChunks => {
            write(carrier, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            drip(stage, carrier, b"", b"1\r\nx\r\n").await;
        }
        Mode::EndlessChunks => {
            let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
            flood(carrier, CHUNKED, chunk.as_bytes()).await;
        }
        Mode::EndlessBody => flood(carrier, "HTTP/1.1 200 OK\r\n\r\n", b"xxxxxxxxxxxxxxxx").await,
        Mode::EndlessError => flood(carrier, "HTTP/1.1 500 No\r\n\r\n", b"xxxxxxxxxxxxxxxx").await,
        Mode::EndlessChunkExtension => {
            flood(carrier, &format!("{CHUNKED}1;"), b"extension=yes;").await;
        }
        Mode::EndlessTrailers => {
            flood(carrier, &format!("{CHUNKED}1\r\nx\r\n0\r\n"), b"X-Trailer: y\r\n").await;
        }
        Mode::EndlessHeader => flood(carrier, "HTTP/1.1 200 OK\r\nX: ", b"xxxxxxxxxxxxxxxx").await,
        Mode::EndlessReason => flood(carrier, "HTTP/1.1 200 ", b"xxxxxxxxxxxxxxxx").await,
        Mode::EndlessInformational => {
            flood(carrier, "", b"HTTP/1.1 103 Early Hints\r\n\r\n").await;
        }
        Mode::LateSecondAnswer => {
            let good = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";
            write(carrier, good).await;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            write(carrier, canned::FORGED.as_bytes()).await;
            stage.count_unasked();
            return Then::Next;
        }
        Mode::HalfClose => {
            let _ = carrier.shutdown().await;
            let mut some = vec![0; 1_024];
            while matches!(carrier.read(&mut some).await, Ok(read) if read > 0) {}
        }
        // Every other mode is canned, or never gets here.
        _ => {}
    }
    // Whatever could be done to the sender has been done when it is gone.
    Then::Drop
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

async fn echo<C: Carrier>(carrier: &mut C, body: &[u8]) -> Then {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    if write(carrier, &[head.as_bytes(), body].concat()).await { Then::Next } else { Then::Close }
}

/// Whether it could be written.
async fn write<W: AsyncWrite + Unpin>(to: &mut W, bytes: &[u8]) -> bool {
    to.write_all(bytes).await.is_ok() && to.flush().await.is_ok()
}

/// The beginning byte by byte, then the same bytes again and again, at the pace of the stage.
async fn drip<W: AsyncWrite + Unpin>(stage: &Stage, to: &mut W, first: &[u8], again: &[u8]) {
    for byte in first {
        if !write(to, &[*byte]).await {
            return;
        }
        tokio::time::sleep(stage.pace).await;
    }
    while write(to, again).await {
        tokio::time::sleep(stage.pace).await;
    }
}

/// The same bytes as fast as they are taken, until the sender has had enough.
async fn flood<W: AsyncWrite + Unpin>(to: &mut W, first: &str, again: &[u8]) {
    let mut many = again.to_vec();
    while many.len() < 8 * 1_024 {
        many.extend_from_slice(again);
    }
    if write(to, first.as_bytes()).await {
        while write(to, &many).await {}
    }
}

/// Closes so that what was written is not lost to a reset: the sender is heard out.
async fn close<C: Carrier>(mut carrier: C) {
    let _ = carrier.shutdown().await;
    let mut some = vec![0; 16 * 1_024];
    while matches!(carrier.read(&mut some).await, Ok(read) if read > 0) {}
}
