//! The byte stream under HTTP: plain or TLS, with a meter on what arrives before the answer.
//!
//! hyper bounds a single message head, but not how many informational heads precede the answer.
//! The meter is the brake: once tripped, every further read fails, and the trip says why.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Bytes that may arrive before the answer's head is complete, informational heads included.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes that may arrive before a TLS handshake is done.
const HANDSHAKE_BYTES_MAX: usize = 64 * 1024;
/// Informational (1xx) heads that may precede an answer.
const INFORMATIONAL_MAX: u32 = 10;

/// Which limit was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trip {
    HeadTooLarge,
    Informational,
}

/// Counts what arrives while an answer's head is awaited. Relaxed ordering suffices: writer and
/// reader are the same task; the atomics only make it shareable with hyper's callback.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    in_body: AtomicBool,
    bytes: AtomicUsize,
    informational: AtomicU32,
}

impl Meter {
    /// A new request begins.
    pub(crate) fn restart(&self) {
        self.in_body.store(false, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.informational.store(0, Ordering::Relaxed);
    }

    /// The head has arrived; the body has limits of its own.
    pub(crate) fn enter_body(&self) {
        self.in_body.store(true, Ordering::Relaxed);
    }

    pub(crate) fn count_informational(&self) {
        self.informational.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn tripped(&self) -> Option<Trip> {
        if self.informational.load(Ordering::Relaxed) > INFORMATIONAL_MAX {
            Some(Trip::Informational)
        } else if self.bytes.load(Ordering::Relaxed) > HEAD_BYTES_MAX {
            Some(Trip::HeadTooLarge)
        } else {
            None
        }
    }
}

/// Plain or TLS.
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<Capped>>),
}

/// A socket that stops handing over what arrives when the TLS handshake is not done by then: a
/// receiver must not keep us busy with certificates without end.
pub(crate) struct Capped {
    tcp: TcpStream,
    /// None once the handshake is done.
    left: Option<usize>,
}

impl Capped {
    /// For a handshake.
    pub(crate) fn new(tcp: TcpStream) -> Self {
        Self { tcp, left: Some(HANDSHAKE_BYTES_MAX) }
    }

    /// The handshake is done; from here on the HTTP layer has limits of its own.
    pub(crate) fn lift(&mut self) {
        self.left = None;
    }
}

impl AsyncRead for Capped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if self.left == Some(0) {
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        let polled = Pin::new(&mut self.tcp).poll_read(cx, buf);
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(buf.filled().len() - before);
        }
        polled
    }
}

impl AsyncWrite for Capped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

/// A transport with its meter.
pub(crate) struct Stream {
    transport: Transport,
    meter: std::sync::Arc<Meter>,
}

impl Stream {
    pub(crate) fn new(transport: Transport, meter: std::sync::Arc<Meter>) -> Self {
        Self { transport, meter }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let counting = !self.meter.in_body.load(Ordering::Relaxed);
        if counting && self.meter.tripped().is_some() {
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        let before = buf.filled().len();
        let polled = match &mut self.transport {
            Transport::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, buf),
        };
        if counting {
            self.meter.bytes.fetch_add(buf.filled().len() - before, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a peer of the test, on loopback")]
    async fn a_capped_socket_stops_until_the_cap_is_lifted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let talking = tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.expect("accepted");
            let _ = tcp.write_all(&vec![7; 4 * HANDSHAKE_BYTES_MAX]).await;
        });
        let tcp = TcpSocket::new_v4().expect("socket").connect(address).await.expect("connected");
        let mut capped = Capped::new(tcp);
        let mut heard = Vec::new();
        let error = capped.read_to_end(&mut heard).await.expect_err("capped");
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
        assert!(heard.len() >= HANDSHAKE_BYTES_MAX && heard.len() < 4 * HANDSHAKE_BYTES_MAX);
        capped.lift();
        capped.read_to_end(&mut heard).await.expect("the rest");
        assert_eq!(heard.len(), 4 * HANDSHAKE_BYTES_MAX);
        talking.await.expect("task");
    }
}
