//! The receiver of a benchmark: counts what arrives, exactly once each, and how long it took.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::wire::{Reader, get_digits};

/// Width of the numbers in a payload.
pub(crate) const DIGITS: usize = 16;
/// What every payload begins with; the number follows, then the time.
pub(crate) const PREFIX: &[u8] = b"{\"n\":\"";
const BETWEEN: usize = b"\",\"t\":\"".len();

/// The receiver.
#[derive(Clone)]
pub(crate) struct Sink {
    shared: Arc<Shared>,
}

struct Shared {
    origin: Instant,
    arrived: AtomicU64,
    duplicates: AtomicU64,
    strangers: AtomicU64,
    seen: Mutex<Numbers>,
    /// Those that a server has taken responsibility for.
    accepted: Mutex<Numbers>,
    latency: Mutex<Histogram<u64>>,
    last: AtomicU64,
}

/// A set of numbers, one bit for each.
#[derive(Default)]
struct Numbers(Vec<u64>);

impl Numbers {
    /// Whether it was not there before.
    fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.0.len() <= word {
            self.0.resize((word + 1).next_power_of_two(), 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    fn count(&self, from: u64) -> u64 {
        self.count_without(&Self::default(), from)
    }

    /// How many from this number on the other does not have.
    fn count_without(&self, other: &Self, from: u64) -> u64 {
        let first = (from / 64) as usize;
        let words = self.0.iter().enumerate().skip(first).map(|(at, word)| {
            let below = if at == first { (1 << (from % 64)) - 1 } else { 0 };
            word & !other.0.get(at).unwrap_or(&0) & !below
        });
        words.map(|word| u64::from(word.count_ones())).sum()
    }
}

impl Sink {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, 120_000_000, 3).expect("valid bounds");
        Self {
            shared: Arc::new(Shared {
                origin: Instant::now(),
                arrived: AtomicU64::new(0),
                duplicates: AtomicU64::new(0),
                strangers: AtomicU64::new(0),
                seen: Mutex::default(),
                accepted: Mutex::default(),
                latency: Mutex::new(histogram),
                last: AtomicU64::new(0),
            }),
        }
    }

    /// Starts to listen on a port (0: any).
    pub(crate) async fn listen(&self, port: u16) -> anyhow::Result<SocketAddr> {
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
    pub(crate) fn take(&self, body: &[u8], at: u64) {
        let number_at = PREFIX.len();
        let time_at = number_at + DIGITS + BETWEEN;
        let number = body.get(number_at..number_at + DIGITS).and_then(get_digits);
        let sent = body.get(time_at..time_at + DIGITS).and_then(get_digits);
        let (Some(number), Some(sent), true) = (number, sent, body.starts_with(PREFIX)) else {
            self.shared.strangers.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if !self.shared.seen.lock().insert(number) {
            self.shared.duplicates.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let latency = at.saturating_sub(sent).clamp(1, 120_000_000);
        self.shared.latency.lock().saturating_record(latency);
        self.shared.last.fetch_max(self.now(), Ordering::Relaxed);
        self.shared.arrived.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that these were answered with a 2xx: from now on they are owed.
    pub(crate) fn owe(&self, numbers: Range<u64>) {
        let mut accepted = self.shared.accepted.lock();
        for number in numbers {
            accepted.insert(number);
        }
    }

    /// How many numbers from this one on were accepted, and how many of those have not arrived.
    pub(crate) fn owed(&self, from: u64) -> (u64, u64) {
        let (accepted, seen) = (self.shared.accepted.lock(), self.shared.seen.lock());
        (accepted.count(from), accepted.count_without(&seen, from))
    }

    /// Microseconds since the benchmark began; publishers put it into payloads.
    pub(crate) fn now(&self) -> u64 {
        self.shared.origin.elapsed().as_micros() as u64
    }

    /// Different numbers that arrived.
    pub(crate) fn arrived(&self) -> u64 {
        self.shared.arrived.load(Ordering::Relaxed)
    }

    /// Numbers that arrived again.
    pub(crate) fn duplicates(&self) -> u64 {
        self.shared.duplicates.load(Ordering::Relaxed)
    }

    /// When the last new number arrived, in microseconds since the benchmark began.
    pub(crate) fn last(&self) -> u64 {
        self.shared.last.load(Ordering::Relaxed)
    }

    /// Milliseconds below which this share of deliveries took, first byte to first byte.
    pub(crate) fn latency_ms(&self, quantile: f64) -> f64 {
        self.shared.latency.lock().value_at_quantile(quantile) as f64 / 1_000.0
    }

    /// Forgets latencies so far, e.g. those of a warm-up.
    pub(crate) fn reset_latency(&self) {
        self.shared.latency.lock().reset();
    }

    /// Waits until whatever was accepted from this number on has arrived, or nothing has for
    /// `patience`.
    pub(crate) async fn wait_for_owed(&self, from: u64, patience: Duration) {
        let (mut missing, mut since) = (self.owed(from).1, Instant::now());
        while missing > 0 && since.elapsed() < patience {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = self.owed(from).1;
            if now != missing {
                (missing, since) = (now, Instant::now());
            }
        }
    }

    /// Waits until `count` different numbers arrived, or nothing has for `patience`.
    pub(crate) async fn wait_for(&self, count: u64, patience: Duration) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(sink: &Sink, number: u64) {
        sink.take(format!("{{\"n\":\"{number:016}\",\"t\":\"{:016}\"}}", 0).as_bytes(), 1);
    }

    #[test]
    fn what_arrives_and_was_not_accepted_hides_no_loss() {
        let sink = Sink::new();
        sink.owe(10..200);
        (10..200).filter(|number| ![10, 64, 199].contains(number)).for_each(|n| arrive(&sink, n));
        // As many others as are missing.
        [300, 301, 302].into_iter().for_each(|number| arrive(&sink, number));
        assert_eq!(sink.owed(0), (190, 3));
        assert_eq!(sink.owed(11), (189, 2));
        assert_eq!(sink.owed(64), (136, 2));
        assert_eq!(sink.owed(65), (135, 1));
        assert_eq!(sink.owed(200), (0, 0));
        assert_eq!(sink.owed(100_000), (0, 0));
    }
}
