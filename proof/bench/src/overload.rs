//! Ten times the load: is as much served as before, and are the others refused soon?
//!
//! Each event goes to all subscriptions. An accepted publish is then work enough that ten times as
//! many can be sent from the same two cores: a refusal costs the client about what it costs the
//! server, and with one delivery for each event, the load itself would need more than both.
//!
//! The load is open: every connection has its own timetable and does not wait for better times, but
//! it has only one request under way. What it could not send in time is not sent; `offered_ratio`
//! says how much was.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::child::Server;
use super::load::{Load, Request, Target};
use super::progress::say;
use super::report::Report;
use super::scenarios::Bench;
use super::sink::Sink;
use super::wire::{Reader, status};

/// How much more is offered than can be served.
const TIMES: f64 = 10.0;
/// Subscriptions at least: with fewer, two cores cannot send more than the server takes.
const FAN_OUT_MIN: usize = 40;
/// Connections of the overload for each of `--publishers`.
const CONNECTIONS_EACH: usize = 4;
const WARM_UP: Duration = Duration::from_secs(2);
/// How long nothing may arrive before what is missing counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// An acceptance within this time counts as recovered, when it is followed by more of them.
const RECOVERED: Duration = Duration::from_millis(100);
const RECOVERED_IN_A_ROW: u32 = 10;

pub(crate) async fn run(mut bench: Bench<'_>) -> anyhow::Result<Report> {
    let server = bench.home.start().await?;
    let fan_out = bench.args.subscriptions.max(FAN_OUT_MIN) as u64;
    subscribe(&server, fan_out, bench.sink_address).await?;
    let target = bench.target(&server, vec!["overload".to_owned()], 1)?;

    say("finding the peak");
    let (peak, mut accepted, mut refused) = find_peak(&bench, &target).await?;
    say(&format!("the peak is {peak:.0} publishes a second; waiting for their deliveries"));
    drain(&bench.sink, accepted * fan_out).await;

    let seconds = bench.args.phase();
    let connections = bench.args.publishers * CONNECTIONS_EACH;
    say(&format!("offering {TIMES} times as many on {connections} connections"));
    let tally = Arc::new(Tally::new());
    let mut tasks = JoinSet::new();
    for turn in 0..connections {
        let publisher = Publisher {
            request: Request::new(&target, turn),
            target: target.clone(),
            numbers: Arc::clone(&bench.numbers),
            sink: bench.sink.clone(),
            tally: Arc::clone(&tally),
            pause: Duration::from_secs_f64(connections as f64 / (peak * TIMES)),
            turn,
            connections,
        };
        tasks.spawn(publisher.run());
    }
    tasks.spawn(probe_health(server.address, Arc::clone(&tally)));
    tokio::time::sleep(WARM_UP).await;
    let start = tally.reset();
    let (began, arrived) = (Instant::now(), all_arrived(&bench.sink));
    tokio::time::sleep(seconds).await;
    let measured = began.elapsed().as_secs_f64();
    let end = tally.counts();
    let delivered = all_arrived(&bench.sink) - arrived;
    tally.stop.store(true, Ordering::Relaxed);
    let recovery = recover(&target, &bench, &tally).await?;
    while let Some(task) = tasks.join_next().await {
        task.context("a publisher crashed")??;
    }
    let last = tally.counts();
    accepted += last.accepted;
    refused += last.refused;
    say("waiting for the deliveries of what was accepted");
    drain(&bench.sink, accepted * fan_out).await;
    // Machines have moods: the baseline is the mean of before and after.
    say("finding the peak again");
    let (again, more_accepted, more_refused) = find_peak(&bench, &target).await?;
    accepted += more_accepted;
    refused += more_refused;
    drain(&bench.sink, accepted * fan_out).await;
    let peak = f64::midpoint(peak, again);
    let lost = (accepted * fan_out) as i64 - all_arrived(&bench.sink) as i64;

    let goodput = (end.accepted - start.accepted) as f64 / measured;
    let offered = (end.sent() - start.sent()) as f64 / measured;
    let report = Report {
        deliveries_per_s: delivered as f64 / measured,
        bare_per_s: peak,
        ratio: goodput / peak.max(1.0),
        p50_ms: bench.sink.latency_ms(0.5),
        p99_ms: bench.sink.latency_ms(0.99),
        rss_mib: server.peak_mib(),
        lost,
        refused,
        peak_per_s: Some(peak),
        goodput_per_s: Some(goodput),
        goodput_ratio: Some(goodput / peak.max(1.0)),
        offered_ratio: Some(offered / peak.max(1.0)),
        reject_p50_ms: Some(millis(&tally.refusals, 0.5)),
        reject_p99_ms: Some(millis(&tally.refusals, 0.99)),
        accept_p99_ms: Some(millis(&tally.acceptances, 0.99)),
        health_p99_ms: Some(millis(&tally.health, 0.99)),
        acked_lost: Some(lost.max(0)),
        recovery_s: Some(recovery.as_secs_f64()),
        seconds: measured,
        ..Report::default()
    };
    server.kill().await?;
    Ok(report)
}

/// Publishes a second in a closed loop, how many were accepted in all, and how many refused.
async fn find_peak(bench: &Bench<'_>, target: &Target) -> anyhow::Result<(f64, u64, u64)> {
    let load = Load::start(target, bench.args.publishers, None, &bench.numbers, &bench.sink);
    tokio::time::sleep(WARM_UP).await;
    let (before, began) = (load.accepted(), Instant::now());
    tokio::time::sleep(bench.args.phase()).await;
    let peak = (load.accepted() - before) as f64 / began.elapsed().as_secs_f64();
    let (accepted, refused) = load.stop().await?;
    Ok((peak, accepted, refused))
}

/// One topic that all subscriptions want.
async fn subscribe(server: &Server, count: u64, to: SocketAddr) -> anyhow::Result<()> {
    server.call("PUT", "/v1/topics/overload", &json!({})).await?;
    for index in 0..count {
        let body = json!({"url": format!("http://{to}/hook/{index}")});
        server.call("POST", "/v1/subscriptions", &body).await?;
    }
    Ok(())
}

/// Deliveries at the sink; with several for each event, all but its first look like repeats there.
fn all_arrived(sink: &Sink) -> u64 {
    sink.arrived() + sink.duplicates()
}

async fn drain(sink: &Sink, wanted: u64) {
    let (mut seen, mut since) = (all_arrived(sink), Instant::now());
    while all_arrived(sink) < wanted && since.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if all_arrived(sink) != seen {
            (seen, since) = (all_arrived(sink), Instant::now());
        }
    }
}

/// What became of publishes.
struct Tally {
    stop: AtomicBool,
    accepted: AtomicU64,
    refused: AtomicU64,
    acceptances: Mutex<Histogram<u64>>,
    refusals: Mutex<Histogram<u64>>,
    health: Mutex<Histogram<u64>>,
}

#[derive(Clone, Copy)]
struct Counts {
    accepted: u64,
    refused: u64,
}

impl Counts {
    fn sent(self) -> u64 {
        self.accepted + self.refused
    }
}

fn histogram() -> Mutex<Histogram<u64>> {
    Mutex::new(Histogram::new_with_bounds(1, 120_000_000, 3).expect("valid bounds"))
}

fn note(histogram: &Mutex<Histogram<u64>>, since: Instant) {
    histogram.lock().saturating_record(since.elapsed().as_micros().max(1) as u64);
}

fn millis(histogram: &Mutex<Histogram<u64>>, quantile: f64) -> f64 {
    histogram.lock().value_at_quantile(quantile) as f64 / 1_000.0
}

impl Tally {
    fn new() -> Self {
        Self {
            stop: AtomicBool::new(false),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            acceptances: histogram(),
            refusals: histogram(),
            health: histogram(),
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            accepted: self.accepted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Forgets latencies so far, and says where the counts are.
    fn reset(&self) -> Counts {
        for histogram in [&self.acceptances, &self.refusals, &self.health] {
            histogram.lock().reset();
        }
        self.counts()
    }
}

/// One connection of the overload.
struct Publisher {
    target: Target,
    request: Request,
    numbers: Arc<AtomicU64>,
    sink: Sink,
    tally: Arc<Tally>,
    pause: Duration,
    turn: usize,
    connections: usize,
}

impl Publisher {
    async fn run(mut self) -> anyhow::Result<()> {
        let mut due = Instant::now()
            + self.pause.mul_f64(self.turn as f64 / self.connections as f64)
            + WARM_UP / 4;
        let mut line = Line::open(self.target.address).await?;
        while !self.tally.stop.load(Ordering::Relaxed) {
            tokio::time::sleep_until(due).await;
            // What could not be sent in time is not sent: the timetable goes on from now.
            due = (due + self.pause).max(Instant::now());
            self.request.stamp(self.numbers.fetch_add(1, Ordering::Relaxed), self.sink.now());
            let sent = Instant::now();
            match line.ask(&self.request.bytes).await? {
                200..300 => {
                    self.tally.accepted.fetch_add(1, Ordering::Relaxed);
                    note(&self.tally.acceptances, sent);
                }
                503 | 429 => {
                    self.tally.refused.fetch_add(1, Ordering::Relaxed);
                    note(&self.tally.refusals, sent);
                }
                code => anyhow::bail!("a publish was answered with {code}"),
            }
        }
        Ok(())
    }
}

/// One connection and what is read from it.
struct Line {
    stream: TcpStream,
    reader: Reader,
}

impl Line {
    async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.context("connecting")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, reader: Reader::new() })
    }

    async fn ask(&mut self, request: &[u8]) -> anyhow::Result<u16> {
        self.stream.write_all(request).await?;
        let message = self.reader.next(&mut self.stream, || {}).await?;
        let message = message.context("the server closed the connection")?;
        let code = status(&self.reader.bytes()[..message.head]);
        self.reader.consume(&message);
        Ok(code)
    }
}

async fn probe_health(address: SocketAddr, tally: Arc<Tally>) -> anyhow::Result<()> {
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let mut line = Line::open(address).await?;
    while !tally.stop.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let code = line.ask(request.as_bytes()).await?;
        anyhow::ensure!(code == 200, "health was answered with {code} under overload");
        note(&tally.health, sent);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// How long it takes until publishes are accepted soon again.
async fn recover(target: &Target, bench: &Bench<'_>, tally: &Tally) -> anyhow::Result<Duration> {
    let over = Instant::now();
    let mut line = Line::open(target.address).await?;
    let mut request = Request::new(target, 0);
    let (mut in_a_row, mut first) = (0, over);
    while in_a_row < RECOVERED_IN_A_ROW {
        anyhow::ensure!(over.elapsed() < Duration::from_secs(120), "it did not recover");
        request.stamp(bench.numbers.fetch_add(1, Ordering::Relaxed), bench.sink.now());
        let sent = Instant::now();
        let code = line.ask(&request.bytes).await?;
        let accepted = (200..300).contains(&code);
        let counter = if accepted { &tally.accepted } else { &tally.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        if accepted && sent.elapsed() <= RECOVERED {
            if in_a_row == 0 {
                first = Instant::now();
            }
            in_a_row += 1;
        } else {
            in_a_row = 0;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(first - over)
}
