//! The bare connection behind an upgrade.
//!
//! What hyper hands over is a box around a box, with the buffer that requests were read into. Somebody
//! who keeps thousands of idle sockets wants the connection and nothing else.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::upgrade::{Parts, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::paced::Paced;

/// A connection of the listener, without HTTP.
#[derive(Debug)]
pub enum Stream {
    /// In the clear.
    Plain(TcpStream),
    /// Through TLS; apart, because its state is much larger than a plain connection.
    Tls(Box<TlsStream<TcpStream>>),
}

/// What an upgrade leaves.
#[derive(Debug)]
pub struct Taken {
    /// The connection.
    pub stream: Stream,
    /// What the other end sent right behind its request; it comes before all that the stream gives.
    pub read: Bytes,
}

/// The connection of an upgrade, with nothing left of HTTP. One that no listener of ours accepted is
/// given back.
pub fn take_stream(upgraded: Upgraded) -> Result<Taken, Upgraded> {
    let upgraded = match upgraded.downcast::<TokioIo<Paced<TcpStream>>>() {
        Ok(Parts { io, read_buf, .. }) => {
            return Ok(Taken::new(Stream::Plain(io.into_inner().into_inner()), &read_buf));
        }
        Err(other) => other,
    };
    let parts = upgraded.downcast::<TokioIo<Paced<TlsStream<TcpStream>>>>()?;
    let stream = parts.io.into_inner().into_inner();
    Ok(Taken::new(Stream::Tls(Box::new(stream)), &parts.read_buf))
}

impl Taken {
    /// Copies what was read, even when it is nothing: a piece of hyper's buffer keeps all of it.
    fn new(stream: Stream, read: &[u8]) -> Self {
        Self { stream, read: Bytes::copy_from_slice(read) }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
