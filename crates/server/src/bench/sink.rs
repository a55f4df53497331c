//! The receiver of a benchmark: counts what arrives, exactly once each, and how long it took.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::wire::{Reader, get_digits};

/// Width of the numbers in a payload.
pub(super) const DIGITS: usize = 16;
/// What every payload begins with; the number follows, then the time.
pub(super) const PREFIX: &[u8] = b"{\"n\":\"";
const BETWEEN: usize = b"\",\"t\":\"".len();

/// The receiver.
#[derive(Clone)]
pub(super) struct Sink {
    shared: Arc<Shared>,
}

struct Shared {
    origin: Instant,
    arrived: AtomicU64,
    duplicates: AtomicU64,
    strangers: AtomicU64,
    /// One bit for each number.
    seen: Mutex<Vec<u64>>,
    latency: Mutex<Histogram<u64>>,
    last: AtomicU64,
}

impl Sink {
    pub(super) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, 120_000_000, 3).expect("valid bounds");
        Self {
            shared: Arc::new(Shared {
                origin: Instant::now(),
                arrived: AtomicU64::new(0),
                duplicates: AtomicU64::new(0),
                strangers: AtomicU64::new(0),
                seen: Mutex::new(Vec::new()),
                latency: Mutex::new(histogram),
                last: AtomicU64::new(0),
            }),
        }
    }

    /// Starts to listen on a port (0: any).
    pub(super) async fn listen(&self, port: u16) -> anyhow::Result<SocketAddr> {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
        let listener: TcpListener = socket.listen(4_096)?;
        let address = listener.local_addr()?;
        let sink = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream.set_nodelay(true));
                let sink = sink.clone();
                tokio::spawn(async move { drop(sink.serve(stream).await) });
            }
        });
        Ok(address)
    }

    async fn serve(&self, mut stream: TcpStream) -> anyhow::Result<()> {
        let mut reader = Reader::new();
        loop {
            let mut at = 0;
            let next = reader.next(&mut stream, || at = self.now()).await?;
            let Some(message) = next else { return Ok(()) };
            self.take(&reader.bytes()[message.head..message.head + message.body], at);
            reader.consume(&message);
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
        }
    }

    /// Counts one payload that arrived at this time.
    pub(super) fn take(&self, body: &[u8], at: u64) {
        let number_at = PREFIX.len();
        let time_at = number_at + DIGITS + BETWEEN;
        let number = body.get(number_at..number_at + DIGITS).and_then(get_digits);
        let sent = body.get(time_at..time_at + DIGITS).and_then(get_digits);
        let (Some(number), Some(sent), true) = (number, sent, body.starts_with(PREFIX)) else {
            self.shared.strangers.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (word, bit) = ((number / 64) as usize, number % 64);
        let mut seen = self.shared.seen.lock();
        if seen.len() <= word {
            seen.resize((word + 1).next_power_of_two(), 0);
        }
        let known = seen[word] & (1 << bit) != 0;
        seen[word] |= 1 << bit;
        drop(seen);
        if known {
            self.shared.duplicates.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let latency = at.saturating_sub(sent).clamp(1, 120_000_000);
        self.shared.latency.lock().saturating_record(latency);
        self.shared.last.fetch_max(self.now(), Ordering::Relaxed);
        self.shared.arrived.fetch_add(1, Ordering::Relaxed);
    }

    /// Microseconds since the benchmark began; publishers put it into payloads.
    pub(super) fn now(&self) -> u64 {
        self.shared.origin.elapsed().as_micros() as u64
    }

    /// Different numbers that arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.shared.arrived.load(Ordering::Relaxed)
    }

    /// Numbers that arrived again.
    pub(super) fn duplicates(&self) -> u64 {
        self.shared.duplicates.load(Ordering::Relaxed)
    }

    /// When the last new number arrived, in microseconds since the benchmark began.
    pub(super) fn last(&self) -> u64 {
        self.shared.last.load(Ordering::Relaxed)
    }

    /// Milliseconds below which this share of deliveries took, first byte to first byte.
    pub(super) fn latency_ms(&self, quantile: f64) -> f64 {
        self.shared.latency.lock().value_at_quantile(quantile) as f64 / 1_000.0
    }

    /// Forgets latencies so far, e.g. those of a warm-up.
    pub(super) fn reset_latency(&self) {
        self.shared.latency.lock().reset();
    }

    /// Waits until `count` different numbers arrived, or nothing has for `patience`.
    pub(super) async fn wait_for(&self, count: u64, patience: Duration) {
        let mut seen = self.arrived();
        let mut since = Instant::now();
        while self.arrived() < count && since.elapsed() < patience {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if self.arrived() != seen {
                seen = self.arrived();
                since = Instant::now();
            }
        }
    }
}
