//! One open HTTP/1.1 connection, owned by whoever uses it.
//!
//! Theory of operation. hyper splits a connection into a sender and a future that does the I/O,
//! and expects a task to run the latter. We keep both halves together instead: the task that
//! makes an attempt polls the I/O itself, so that an answer costs one wake-up, not three, and
//! dropping the attempt drops the connection. An idle link is nobody's task; it is looked at once
//! before it is used again.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use crate::stream::{Meter, Stream, Transport};

/// The most hyper buffers for one message head.
const BUFFER_BYTES_MAX: usize = 32 * 1024;

/// A connection and everything that must end with it.
pub(crate) struct Link {
    pub(crate) sender: SendRequest<Full<Bytes>>,
    /// None once it has ended.
    connection: Option<Connection<TokioIo<Stream>, Full<Bytes>>>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) peer: SocketAddr,
    pub(crate) opened_at: Instant,
    /// Counts against the cap on open connections for as long as the connection lives.
    _permit: OwnedSemaphorePermit,
}

impl Link {
    pub(crate) async fn over(
        transport: Transport,
        peer: SocketAddr,
        permit: OwnedSemaphorePermit,
    ) -> hyper::Result<Box<Self>> {
        let meter = Arc::new(Meter::default());
        let stream = TokioIo::new(Stream::new(transport, Arc::clone(&meter)));
        // The number of headers is left at hyper's default of 100: setting it, even to the same
        // number, makes hyper allocate for every head.
        let (sender, connection) =
            http1::Builder::new().max_buf_size(BUFFER_BYTES_MAX).handshake(stream).await?;
        Ok(Box::new(Self {
            sender,
            connection: Some(connection),
            meter,
            peer,
            opened_at: Instant::now(),
            _permit: permit,
        }))
    }

    /// Does whatever I/O is possible now, and arranges for `cx` to be woken when more is. When
    /// the connection ends it is dropped, which resolves everything that waits on it.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(cx).is_ready()
        {
            // An error was already handed to the waiting request; without one it only means
            // that the idle connection is no longer good.
            self.connection = None;
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.connection.is_none()
    }

    /// Whether another request can be sent: the last exchange is over, the other side has not
    /// closed, and nothing arrived that nobody asked for.
    pub(crate) fn is_clean(&mut self) -> bool {
        // Nobody waits for an idle link, so nobody needs to be woken. The look must not be cut
        // short by the task's cooperation budget, or it would see a clean link in any case.
        let look = pin!(unconstrained(std::future::poll_fn(|cx| {
            self.drive(cx);
            Poll::Ready(())
        })));
        let _ = look.poll(&mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.sender.is_ready()
    }
}
