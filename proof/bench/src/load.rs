//! The publishers of a benchmark.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::sink::{DIGITS, PREFIX, Sink};
use super::wire::{Reader, put_digits, status};

/// What publishers send, and where.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) path: String,
    /// Extra header lines, each ended.
    pub(crate) headers: String,
    pub(crate) form: Form,
    /// Whether each request has an idempotency key of its own.
    pub(crate) keyed: bool,
    /// Events in one request; 1 means single publishes.
    pub(crate) batch: usize,
    pub(crate) payload: usize,
}

/// What stands around a payload.
#[derive(Clone)]
pub(crate) enum Form {
    /// Nothing: it is the whole body.
    Bare,
    /// An event of our own API. Publishers take these topics in turns.
    Event(Vec<String>),
    /// A message of the Svix API.
    Message,
}

/// What an idempotency key begins with; a number follows.
const KEY_HEAD: &str = "idempotency-key: auto_";
/// As many digits as a UUID has.
const KEY_DIGITS: usize = 32;

/// A running load.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    accepted: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    tasks: tokio::task::JoinSet<anyhow::Result<()>>,
    pub(crate) began: Instant,
}

/// One request, built once; numbers are patched in place.
pub(crate) struct Request {
    pub(crate) bytes: Vec<u8>,
    /// Where the number of each event is; the time follows at a fixed distance.
    places: Vec<usize>,
    /// Where the number of the idempotency key is.
    key: Option<usize>,
}

impl Request {
    pub(crate) fn new(target: &Target, turn: usize) -> Self {
        let mut body = Vec::new();
        let mut places = Vec::new();
        match &target.form {
            Form::Bare => places.push(push_payload(&mut body, target.payload)),
            Form::Message => {
                body.extend_from_slice(b"{\"eventType\":\"bench.event\",\"payload\":");
                places.push(push_payload(&mut body, target.payload));
                body.push(b'}');
            }
            Form::Event(topics) => {
                let topic = &topics[turn % topics.len()];
                let single = target.batch == 1;
                if !single {
                    body.extend_from_slice(b"{\"events\":[");
                }
                for index in 0..target.batch {
                    if index > 0 {
                        body.push(b',');
                    }
                    let head =
                        format!("{{\"topic\":\"{topic}\",\"type\":\"bench.event\",\"payload\":");
                    body.extend_from_slice(head.as_bytes());
                    places.push(push_payload(&mut body, target.payload));
                    body.push(b'}');
                }
                if !single {
                    body.extend_from_slice(b"]}");
                }
            }
        }
        let key_line = match target.keyed {
            true => format!("{KEY_HEAD}{:0KEY_DIGITS$}\r\n", 0),
            false => String::new(),
        };
        let mut bytes = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n{}{key_line}content-length: {}\r\n\r\n",
            target.path,
            target.address,
            target.headers,
            body.len()
        )
        .into_bytes();
        let head = bytes.len();
        let text = KEY_HEAD.as_bytes();
        let key = match target.keyed {
            true => bytes.windows(text.len()).position(|own| own == text),
            false => None,
        };
        let key = key.map(|at| at + text.len());
        bytes.extend_from_slice(&body);
        places.iter_mut().for_each(|place| *place += head);
        Self { bytes, places, key }
    }

    pub(crate) fn stamp(&mut self, first: u64, now: u64) {
        for (index, place) in self.places.iter().enumerate() {
            let time = place + DIGITS + "\",\"t\":\"".len();
            put_digits(&mut self.bytes[*place..place + DIGITS], first + index as u64);
            put_digits(&mut self.bytes[time..time + DIGITS], now);
        }
        if let Some(place) = self.key {
            put_key(&mut self.bytes[place..place + KEY_DIGITS], first);
        }
    }
}

/// A key as clients make them: another one for each number, and in no order. A store that is given keys in order writes them more
/// cheaply than it can those of its users.
fn put_key(into: &mut [u8], number: u64) {
    // Odd factors and shifts lose nothing, so no two numbers have the same key.
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    for slot in into.iter_mut() {
        *slot = b"0123456789abcdef"[(mixed & 15) as usize];
        mixed = mixed.rotate_right(4);
    }
}

/// Appends a payload; returns where its number is.
fn push_payload(body: &mut Vec<u8>, size: usize) -> usize {
    let start = body.len();
    body.extend_from_slice(PREFIX);
    let place = body.len();
    body.extend_from_slice(&[b'0'; DIGITS]);
    body.extend_from_slice(b"\",\"t\":\"");
    body.extend_from_slice(&[b'0'; DIGITS]);
    body.extend_from_slice(b"\",\"pad\":\"");
    let rest = size.saturating_sub(body.len() - start + 2);
    body.resize(body.len() + rest, b'x');
    body.extend_from_slice(b"\"}");
    place
}

impl Load {
    /// Starts publishers in a closed loop, or, with a rate, in an open one.
    pub(crate) fn start(
        target: &Target,
        publishers: usize,
        rate: Option<f64>,
        numbers: &Arc<AtomicU64>,
        sink: &Sink,
    ) -> Self {
        Self::spread(std::slice::from_ref(target), publishers, rate, numbers, sink)
    }

    /// The same, with publishers for each of these targets in turn.
    pub(crate) fn spread(
        targets: &[Target],
        publishers: usize,
        rate: Option<f64>,
        numbers: &Arc<AtomicU64>,
        sink: &Sink,
    ) -> Self {
        let mut load = Self {
            stop: Arc::new(AtomicBool::new(false)),
            accepted: Arc::new(AtomicU64::new(0)),
            failed: Arc::new(AtomicU64::new(0)),
            tasks: tokio::task::JoinSet::new(),
            began: Instant::now(),
        };
        for (turn, target) in targets.iter().cycle().take(publishers).enumerate() {
            let publisher = Publisher {
                target: target.clone(),
                request: Request::new(target, turn),
                stop: Arc::clone(&load.stop),
                accepted: Arc::clone(&load.accepted),
                failed: Arc::clone(&load.failed),
                numbers: Arc::clone(numbers),
                sink: sink.clone(),
                pause: rate.map(|rate| Duration::from_secs_f64(publishers as f64 / rate)),
                turn,
                publishers,
            };
            load.tasks.spawn(publisher.run());
        }
        load
    }

    /// Events answered with a 2xx so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Stops and waits for the last answers; how many were accepted and how many failed.
    pub(crate) async fn stop(mut self) -> anyhow::Result<(u64, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(result) = self.tasks.join_next().await {
            result.context("a publisher crashed")??;
        }
        Ok((self.accepted.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed)))
    }
}

/// How long a publisher waits after a refusal.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

struct Publisher {
    target: Target,
    request: Request,
    stop: Arc<AtomicBool>,
    accepted: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    numbers: Arc<AtomicU64>,
    sink: Sink,
    pause: Option<Duration>,
    turn: usize,
    publishers: usize,
}

impl Publisher {
    async fn run(mut self) -> anyhow::Result<()> {
        let (mut stream, mut reader) = (self.connect().await?, Reader::new());
        let events = self.request.places.len() as u64;
        // Spread open-loop publishers evenly over one pause.
        let mut due = Instant::now()
            + self.pause.unwrap_or_default().mul_f64(self.turn as f64 / self.publishers as f64);
        while !self.stop.load(Ordering::Relaxed) {
            if let Some(pause) = self.pause {
                tokio::time::sleep_until(due).await;
                due += pause;
            }
            let first = self.numbers.fetch_add(events, Ordering::Relaxed);
            self.request.stamp(first, self.sink.now());
            let answer = match stream.write_all(&self.request.bytes).await {
                Ok(()) => reader.next(&mut stream, || {}).await.ok().flatten(),
                Err(_) => None,
            };
            let accepted = answer
                .filter(|message| (200..300).contains(&status(&reader.bytes()[..message.head])));
            let Some(message) = accepted else {
                // A server that refuses a body before it has read it ends the connection.
                self.failed.fetch_add(events, Ordering::Relaxed);
                tokio::time::sleep(REFUSED_PAUSE).await;
                (stream, reader) = (self.connect().await?, Reader::new());
                continue;
            };
            self.sink.owe(first..first + events);
            self.accepted.fetch_add(events, Ordering::Relaxed);
            reader.consume(&message);
        }
        Ok(())
    }

    async fn connect(&self) -> anyhow::Result<TcpStream> {
        let stream =
            TcpStream::connect(self.target.address).await.context("connecting a publisher")?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
