//! A socket that is read no faster than an agent has reason to send.
//!
//! Frames are counted where they are whole; what never becomes whole, such as a message in endless
//! pieces, is counted here, in bytes.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long a socket rests that was read too much.
const REST: Duration = Duration::from_millis(100);
/// So many seconds' worth may come at once.
const BURST_SECONDS: u32 = 10;

/// A stream with an allowance of bytes to be read.
pub(crate) struct Throttled<S> {
    stream: S,
    per_second: u32,
    allowance: u32,
    refilled: Instant,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S> Throttled<S> {
    /// Reads at most so many bytes per second for long.
    pub(crate) fn new(stream: S, per_second: u32) -> Self {
        let allowance = per_second.saturating_mul(BURST_SECONDS);
        Self { stream, per_second, allowance, refilled: Instant::now(), pause: None }
    }

    fn refill(&mut self) {
        let earned = self.refilled.elapsed().as_millis() * u128::from(self.per_second) / 1_000;
        let most = self.per_second.saturating_mul(BURST_SECONDS);
        self.allowance = u32::try_from(earned).unwrap_or(most).min(most);
        self.refilled = Instant::now();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Throttled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        if self.allowance == 0 {
            self.refill();
            if self.allowance == 0 {
                let mut pause = Box::pin(sleep(REST));
                let rested = pause.as_mut().poll(cx);
                self.pause = Some(pause);
                ready!(rested);
            }
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = u32::try_from(buf.filled().len() - before).unwrap_or(u32::MAX);
        self.allowance = self.allowance.saturating_sub(read);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Throttled<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn more_than_the_allowance_takes_its_time() {
        let (mut far, near) = tokio::io::duplex(1 << 20);
        let mut near = Throttled::new(near, 1_000);
        far.write_all(&[7; 15_000]).await.expect("room for all");
        let began = Instant::now();
        let mut all = vec![0; 15_000];
        near.read_exact(&mut all[..10_000]).await.expect("read");
        assert_eq!(began.elapsed(), Duration::ZERO, "ten seconds' worth comes at once");
        for piece in all[10_000..].chunks_mut(100) {
            near.read_exact(piece).await.expect("read");
        }
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(4), "{took:?}");
    }
}
