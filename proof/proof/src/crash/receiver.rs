//! Receivers: one small HTTP server per subscription, with the temper of the plan, that writes down
//! every request it gets.
//!
//! HTTP is read by hand, because a good part of the job is to break it: to reset a connection after
//! the request was read, and to be gone for a while.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::crash::dice::hash;
use crate::crash::evidence::{Journal, Micros, Receipt};
use crate::crash::plan::{Subscription, Temper};
use crate::crash::signature;

/// The largest request head that is read.
const HEAD_MAX: usize = 64 << 10;
/// How far the time of a signature may be off. Attempts are signed when they are made.
const SKEW_SECONDS: u64 = 60;

/// A running receiver.
#[derive(Debug)]
pub struct Receiver {
    subscription: Subscription,
    secret: [u8; 32],
    seed: u64,
    journal: Arc<Journal>,
    /// Set when the faults have stopped: from then on it behaves.
    calm: Arc<AtomicBool>,
    /// How often each event came, for tempers that depend on it.
    seen: Mutex<HashMap<String, u32>>,
}

/// What a receiver does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reaction {
    delay: Duration,
    /// 0 is a reset.
    status: u16,
}

impl Receiver {
    /// Listens on a free loopback port and serves until the process ends.
    pub async fn start(
        subscription: Subscription,
        seed: u64,
        journal: Arc<Journal>,
        calm: Arc<AtomicBool>,
    ) -> anyhow::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("a receiver")?;
        let address = listener.local_addr()?;
        let secret = subscription.secret(seed);
        let seen = Mutex::new(HashMap::new());
        let this = Arc::new(Self { subscription, secret, seed, journal, calm, seen });
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    // Out of descriptors, for instance: those in use will come back.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                };
                if this.is_down(this.journal.now()) {
                    cut(&stream);
                    continue;
                }
                let this = Arc::clone(&this);
                // A connection that breaks is what this is about, and no error of the receiver.
                tokio::spawn(async move { this.serve(stream).await.ok() });
            }
        });
        Ok(address)
    }

    async fn serve(&self, mut stream: TcpStream) -> anyhow::Result<()> {
        stream.set_nodelay(true)?;
        let mut buffer = Vec::new();
        while let Some(request) = Request::read(&mut stream, &mut buffer).await? {
            let at = self.journal.now();
            let reaction = self.react(&request, at);
            if !reaction.delay.is_zero() {
                tokio::time::sleep(reaction.delay).await;
            }
            // Taken before the answer leaves: whatever follows from it comes later.
            let answered = self.journal.now();
            self.journal.receipt(&Receipt {
                at,
                answered,
                subscription: self.subscription.name.clone(),
                event: request.header("webhook-id").to_owned(),
                sha: signature::sha256_hex(&request.body),
                signature: self.is_authentic(&request),
                status: reaction.status,
            });
            if reaction.status == 0 {
                cut(&stream);
                return Ok(());
            }
            let answer =
                format!("HTTP/1.1 {} answer\r\ncontent-length: 2\r\n\r\nok", reaction.status);
            stream.write_all(answer.as_bytes()).await?;
        }
        Ok(())
    }

    fn is_authentic(&self, request: &Request) -> bool {
        let timestamp = request.header("webhook-timestamp");
        let is_now = timestamp.parse::<u64>().is_ok_and(|at| at.abs_diff(wall()) <= SKEW_SECONDS);
        let is_here = request.path == format!("/hook/{}", self.subscription.name);
        is_now
            && is_here
            && request.method == "POST"
            && signature::fits(
                &self.secret,
                request.header("webhook-id"),
                timestamp,
                &request.body,
                request.header("webhook-signature"),
            )
    }

    fn is_down(&self, now: Micros) -> bool {
        let Temper::Moody { up_millis, down_millis } = self.subscription.temper else {
            return false;
        };
        let phase = (now / 1_000) % (up_millis + down_millis);
        phase >= up_millis && !self.calm.load(Ordering::Relaxed)
    }

    /// Depends on the seed, the event and how often it came, so that a run can be repeated.
    fn react(&self, request: &Request, now: Micros) -> Reaction {
        let event = request.header("webhook-id");
        let times = {
            let mut seen = self.seen.lock();
            let times = seen.entry(event.to_owned()).or_default();
            *times += 1;
            *times
        };
        let mut reaction = Reaction { delay: Duration::ZERO, status: 200 };
        let calm = self.calm.load(Ordering::Relaxed);
        let of_event = hash(self.seed, event.as_bytes());
        let of_try = hash(of_event, &times.to_be_bytes());
        match self.subscription.temper {
            Temper::Good => {}
            Temper::Slow { millis } => {
                reaction.delay = Duration::from_millis(of_try % (millis + 1));
            }
            Temper::Moody { .. } if self.is_down(now) => reaction.status = 0,
            Temper::BadAtFirst { percent, times: bad }
                if !calm && of_event % 100 < percent && times <= bad =>
            {
                reaction.status = 500;
            }
            Temper::Resets { percent } if !calm && of_try % 100 < percent => reaction.status = 0,
            Temper::Flaky { percent } if !calm && of_try % 100 < percent => {
                reaction.status = [500, 0, 500, 0, 503][(of_try / 100 % 5) as usize];
            }
            Temper::Moody { .. }
            | Temper::BadAtFirst { .. }
            | Temper::Resets { .. }
            | Temper::Flaky { .. } => {}
        }
        reaction
    }
}

/// Lets the connection end with a reset, so that the other side learns nothing but that it is over.
fn cut(stream: &TcpStream) {
    // Without it the connection still closes, only more politely.
    let _ = stream.set_zero_linger();
}

#[expect(clippy::disallowed_methods, reason = "a receiver has its own clock, as in real life")]
fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A request, read whole.
#[derive(Debug)]
struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// The next request of a connection; `None` when it was closed between two.
    async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> anyhow::Result<Option<Self>> {
        let head = loop {
            if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if buffer.len() > HEAD_MAX {
                bail!("the head does not end");
            }
            if stream.read_buf(buffer).await? == 0 {
                return Ok(None);
            }
        };
        let text = String::from_utf8_lossy(&buffer[..head]).into_owned();
        let mut lines = text.lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut request = Self {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect(),
            body: Vec::new(),
        };
        let length = request.header("content-length").parse::<usize>().unwrap_or(0);
        while buffer.len() < head + length {
            if stream.read_buf(buffer).await? == 0 {
                bail!("the body does not end");
            }
        }
        request.body = buffer[head..head + length].to_vec();
        buffer.drain(..head + length);
        Ok(Some(request))
    }
}
