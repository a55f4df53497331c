//! A connection whose reader must keep up, and whose requests must not be ambiguous.
//!
//! # Theory of operation
//! What is written goes into the kernel's buffers as long as they have room. When they have none, the
//! other end is not reading: from then on it must take something every [`Pace::silence`], and at least
//! [`Pace::rate`] bytes a second beyond that, until everything is written. Otherwise the connection is
//! reset, so that neither its place nor the kernel's buffers stay taken. As long as writes succeed this
//! costs nothing, not even a look at the clock.
//!
//! What is read passes by [`Framing`], which notices requests that can end in two places. One that is
//! under way by then gets no more of its body.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_rustls::server::TlsStream;

use crate::framing::{Framing, Verdict};
use crate::metrics;

/// How quickly what is written must be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The longest time in which nothing is taken.
    pub(crate) silence: Duration,
    /// Bytes a second.
    pub(crate) rate: usize,
}

/// A connection that can be cut without waiting for what the other end has not read.
pub(crate) trait Cut {
    fn cut(&self);
}

impl Cut for TcpStream {
    fn cut(&self) {
        if let Err(e) = self.set_zero_linger() {
            tracing::debug!(error = %e, "a connection cannot be reset; it is closed");
        }
    }
}

impl Cut for TlsStream<TcpStream> {
    fn cut(&self) {
        self.get_ref().0.cut();
    }
}

/// A time in which the kernel has no room for what is to be written.
struct Stall {
    began: Instant,
    last: Instant,
    taken: usize,
    alarm: Pin<Box<Sleep>>,
}

impl Stall {
    fn new(pace: Pace) -> Self {
        let now = Instant::now();
        let alarm = Box::pin(sleep_until(now + pace.silence));
        Self { began: now, last: now, taken: 0, alarm }
    }

    /// Until when more must be taken.
    fn deadline(&self, pace: Pace) -> Instant {
        let earned = Duration::from_millis((self.taken * 1_000 / pace.rate.max(1)) as u64);
        (self.last + pace.silence).min(self.began + pace.silence + earned)
    }
}

/// A connection with its pace.
pub(crate) struct Paced<S> {
    stream: S,
    pace: Pace,
    stall: Option<Box<Stall>>,
    framing: Framing,
    verdict: Verdict,
}

impl<S> Paced<S> {
    pub(crate) fn new(stream: S, pace: Pace, verdict: Verdict) -> Self {
        Self { stream, pace, stall: None, framing: Framing::new(verdict.clone()), verdict }
    }

    /// The connection alone.
    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: Cut> Paced<S> {
    /// What a write means for the pace.
    fn judge(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                if let Some(stall) = &mut self.stall {
                    stall.taken += bytes;
                    stall.last = Instant::now();
                }
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Pending => {
                let pace = self.pace;
                let stall = self.stall.get_or_insert_with(|| Box::new(Stall::new(pace)));
                let deadline = stall.deadline(pace);
                if stall.alarm.deadline() != deadline {
                    stall.alarm.as_mut().reset(deadline);
                }
                if stall.alarm.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                ::metrics::counter!(metrics::CUT, "reason" => "slow_reader").increment(1);
                self.stream.cut();
                let problem = "the client reads the response too slowly";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, problem)))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = &read {
            this.framing.see(&buf.filled()[before..]);
            if this.verdict.is_under_way() {
                let problem = "the end of the body is ambiguous";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, problem)));
            }
        }
        read
    }
}

impl<S: AsyncWrite + Cut + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.judge(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                // Asked for when all is written: the next answer begins anew.
                this.stall = None;
                Poll::Ready(Ok(()))
            }
            // TLS has records of its own to write here.
            other => this.judge(cx, other.map_ok(|()| 0)).map_ok(|_| ()),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.judge(cx, shut.map_ok(|()| 0)).map_ok(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::{sleep, timeout};

    use super::*;

    impl Cut for DuplexStream {
        fn cut(&self) {}
    }

    const PACE: Pace = Pace { silence: Duration::from_secs(10), rate: 1_024 };

    fn pair() -> (Paced<DuplexStream>, DuplexStream) {
        let (ours, theirs) = duplex(1_024);
        (Paced::new(ours, PACE, Verdict::default()), theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_cut_after_the_longest_silence() {
        let (mut ours, _theirs) = pair();
        let began = Instant::now();
        let error = ours.write_all(&[0; 4_096]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), 10);
    }

    /// Reads so many bytes a second; gives how long the writer lasted, when it was cut.
    async fn read_at(bytes: usize) -> Option<u64> {
        let (mut ours, mut theirs) = pair();
        let reader = tokio::spawn(async move {
            let mut chunk = vec![0; bytes];
            loop {
                sleep(Duration::from_secs(1)).await;
                if theirs.read_exact(&mut chunk).await.is_err() {
                    return;
                }
            }
        });
        let began = Instant::now();
        let written = timeout(Duration::from_secs(3_600), ours.write_all(&[0; 200_000])).await;
        let lasted = began.elapsed().as_secs();
        reader.abort();
        written.expect("an end").is_err().then_some(lasted)
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_slower_than_the_least_rate_is_cut_and_who_keeps_it_is_not() {
        assert_eq!(read_at(2_048).await, None);
        let lasted = read_at(256).await.expect("it is cut");
        assert!((10..20).contains(&lasted), "{lasted}");
        let lasted = read_at(1).await.expect("it is cut");
        assert!((10..12).contains(&lasted), "{lasted}");
    }

    #[tokio::test(start_paused = true)]
    async fn every_answer_that_was_taken_begins_anew() {
        let (mut ours, mut theirs) = pair();
        for _ in 0..5 {
            let taken = tokio::spawn(async move {
                sleep(Duration::from_secs(9)).await;
                let mut all = vec![0; 1_100];
                theirs.read_exact(&mut all).await.expect("all of it");
                theirs
            });
            ours.write_all(&[0; 1_100]).await.expect("taken in time");
            ours.flush().await.expect("flushed");
            theirs = taken.await.expect("read");
        }
    }
}
