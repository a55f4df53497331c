//! The Svix API: messages through it next to events through our own API, and what many applications cost.
//!
//! Both ways lead to one receiver, with the same payload, the same profile (so the same signature) and an idempotency key on
//! every request, as Svix clients send it. They are measured in turns, since a machine is not equally fast all the time.
//!
//! Then applications are made, each with some endpoints, and messages are spread over all of them. Every endpoint of an
//! application has a receiver of its own, so that each of its deliveries is missed when it does not come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Args;
use super::child::{Caller, Server};
use super::load::{Form, Request, Target};
use super::progress::{self, say};
use super::scenarios::{Bench, PATIENCE};
use super::sink::Sink;
use super::wire::{Reader, status};

/// Connections at once, unless fewer publishers are asked for.
const CONNECTIONS: usize = 64;
/// How often each of two ways is measured; once in a run that is as short as can be.
const TURNS: usize = 3;
/// Endpoints of each application.
const ENDPOINTS: usize = 3;
/// The topic and the subscription of our own API.
const NATIVE: &str = "native";
/// The application that throughput is measured with.
const SINGLE: &str = "single";

/// What was found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    scenario: &'static str,
    store: &'static str,
    /// Messages through the Svix API that arrived.
    deliveries_per_s: f64,
    /// Events through our own API that arrived.
    native_per_s: f64,
    ratio: f64,
    applications: usize,
    endpoints: usize,
    creates_per_s: f64,
    /// Message to its answer, over all applications.
    create_p99_ms: f64,
    /// The same with one of them.
    one_create_p99_ms: f64,
    p99_ratio: f64,
    rss_mib: f64,
    /// After the throughput was measured, and before the applications.
    loaded_rss_mib: f64,
    idle_rss_mib: f64,
    lost: u64,
    duplicates: u64,
    refused: u64,
    seconds: f64,
    publishers: usize,
    payload_bytes: usize,
}

const fn turns(args: &Args) -> usize {
    if args.seconds > 1 { TURNS } else { 1 }
}

/// Measures and prints. An error when something was lost.
pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let report = measure(args).await?;
    super::report::print(&report, args.json);
    if report.lost > 0 {
        bail!("{} accepted messages were lost", report.lost);
    }
    Ok(())
}

async fn measure(args: &Args) -> anyhow::Result<Report> {
    let began = Instant::now();
    let connections = args.publishers.clamp(1, CONNECTIONS);
    let mut bench = Bench::new(args).await?;
    bench.home.set(["dialects.svix.enabled=true".to_owned()]);
    bench.home.set(args.set.iter().cloned());
    let server = bench.home.start().await?;
    let mut report = Report {
        scenario: "svix",
        store: if args.store == "sqlite" { "sqlite" } else { "postgres" },
        idle_rss_mib: server.rss_mib(),
        applications: args.applications.max(1),
        endpoints: ENDPOINTS,
        publishers: connections,
        payload_bytes: args.payload,
        ..Report::default()
    };
    throughput(&bench, &server, connections, &mut report).await?;
    report.loaded_rss_mib = server.rss_mib();

    let mut fleet = Fleet::new(&bench, &server, connections, report.applications).await?;
    say(&format!("creating {} applications with {ENDPOINTS} endpoints each", fleet.applications));
    report.creates_per_s = fleet.create().await?;
    say(&format!("  {:.0} creates a second", report.creates_per_s));
    fleet.latency(&mut report).await?;
    report.rss_mib = server.rss_mib();
    report.refused += fleet.refused;
    for sink in fleet.sinks.iter().chain([&bench.sink]) {
        sink.wait_for_owed(0, PATIENCE).await;
        report.lost += sink.owed(0).1;
        report.duplicates += sink.duplicates();
    }
    server.kill().await?;
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

/// Messages through the Svix API and events through our own, in turns.
async fn throughput(
    bench: &Bench<'_>,
    server: &Server,
    connections: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let hook = |name: &str| format!("http://{}/{name}", bench.sink_address);
    server.call("PUT", &format!("/v1/topics/{NATIVE}"), &json!({})).await?;
    let subscription = json!({
        "name": NATIVE,
        "url": hook(NATIVE),
        "profile": "svix",
        "filter": {"any_of": [{"topics": [NATIVE]}]},
    });
    server.call("POST", "/v1/subscriptions", &subscription).await?;
    let application = json!({"name": SINGLE, "uid": SINGLE});
    server.call("POST", "/api/v1/app", &application).await?;
    let endpoint = json!({"url": hook(SINGLE)});
    server.call("POST", &format!("/api/v1/app/{SINGLE}/endpoint"), &endpoint).await?;

    let native = Target { keyed: true, ..bench.target(server, vec![NATIVE.to_owned()], 1)? };
    let svix = message_to(bench, server, SINGLE)?;
    let (mut of_svix, mut of_native) = (Vec::new(), Vec::new());
    let turns = turns(bench.args);
    for turn in 1..=turns {
        // Whoever is first has the cooler machine, so they change places.
        let both = [turn % 2 == 1, turn % 2 == 0];
        for is_svix in both {
            let (target, name, rates) = match is_svix {
                true => (&svix, "the Svix API", &mut of_svix),
                false => (&native, "the native API", &mut of_native),
            };
            say(&format!("measuring {name}: {turn} of {turns}"));
            let found = bench.measure(target, connections).await?;
            report.refused += found.refused;
            rates.push(found.deliveries_per_s);
        }
    }
    report.deliveries_per_s = middle(of_svix);
    report.native_per_s = middle(of_native);
    report.ratio = report.deliveries_per_s / report.native_per_s.max(1.0);
    Ok(())
}

/// How a message is sent to an application. Clients do not want its contents back.
fn message_to(bench: &Bench<'_>, server: &Server, app: &str) -> anyhow::Result<Target> {
    let path = format!("/api/v1/app/{app}/msg?with_content=false");
    let native = bench.target(server, Vec::new(), 1)?;
    Ok(Target { path, form: Form::Message, keyed: true, ..native })
}

fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// Many applications.
struct Fleet<'a> {
    bench: &'a Bench<'a>,
    server: &'a Server,
    connections: usize,
    applications: usize,
    /// One for each endpoint of an application.
    sinks: Vec<Sink>,
    /// Where they listen.
    hooks: Vec<String>,
    refused: u64,
}

/// What an application is called.
fn name(number: usize) -> String {
    format!("bench-{number:08}")
}

impl<'a> Fleet<'a> {
    async fn new(
        bench: &'a Bench<'a>,
        server: &'a Server,
        connections: usize,
        applications: usize,
    ) -> anyhow::Result<Self> {
        let (mut sinks, mut hooks) = (Vec::new(), Vec::new());
        for _ in 0..ENDPOINTS {
            let sink = Sink::new();
            hooks.push(format!("http://{}/hook", sink.listen(0).await?));
            sinks.push(sink);
        }
        Ok(Self { bench, server, connections, applications, sinks, hooks, refused: 0 })
    }

    /// Makes them all; how many things were made per second.
    async fn create(&self) -> anyhow::Result<f64> {
        let next = Arc::new(AtomicU64::new(0));
        let total = self.applications as u64;
        let began = Instant::now();
        let mut workers = JoinSet::new();
        for _ in 0..self.connections {
            let mut caller = Caller::open(self.server).await?;
            let (next, hooks) = (Arc::clone(&next), self.hooks.clone());
            workers.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= total {
                        return anyhow::Ok(());
                    }
                    let name = name(number as usize);
                    let body = json!({"name": name, "uid": name}).to_string();
                    caller.post_once("/api/v1/app", &body, &format!("app-{number}")).await?;
                    let path = format!("/api/v1/app/{name}/endpoint");
                    for (index, url) in hooks.iter().enumerate() {
                        let (body, key) = (json!({"url": url}), format!("ep-{number}-{index}"));
                        caller.post_once(&path, &body.to_string(), &key).await?;
                    }
                }
            });
        }
        let form = "{msg} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}";
        let bar = progress::bar(total, "  creating", form);
        while let Some(done) = workers.join_next().await {
            done.context("a worker crashed")??;
            bar.set_position(next.load(Ordering::Relaxed).min(total));
        }
        bar.finish_and_clear();
        let made = total * (1 + ENDPOINTS as u64);
        Ok(made as f64 / began.elapsed().as_secs_f64().max(0.001))
    }

    /// How long the answer to a message takes: with one application, and spread over all of them, in turns.
    async fn latency(&mut self, report: &mut Report) -> anyhow::Result<()> {
        say("sending each application its first message");
        // What only a first message does is no part of what is compared.
        self.send(self.applications, self.applications as u64, None).await?;
        let rate = self.bench.args.rate;
        let messages = ((rate * self.bench.args.phase().as_secs_f64()) as u64).max(1);
        let (mut one, mut all) = (Vec::new(), Vec::new());
        let turns = turns(self.bench.args);
        for turn in 1..=turns {
            say(&format!("measuring {rate} messages a second: {turn} of {turns}"));
            let alone = self.send(1, messages, Some(rate)).await?;
            let spread = self.send(self.applications, messages, Some(rate)).await?;
            one.push(alone.value_at_quantile(0.99) as f64 / 1_000.0);
            all.push(spread.value_at_quantile(0.99) as f64 / 1_000.0);
        }
        report.one_create_p99_ms = middle(one);
        report.create_p99_ms = middle(all);
        report.p99_ratio = report.create_p99_ms / report.one_create_p99_ms.max(0.001);
        Ok(())
    }

    /// Sends messages to some applications in turns, as fast as they are answered or at a rate; microseconds to their answers.
    /// Whatever was accepted has arrived in the end, or is lost.
    async fn send(
        &mut self,
        applications: usize,
        messages: u64,
        rate: Option<f64>,
    ) -> anyhow::Result<Histogram<u64>> {
        let next = Arc::new(AtomicU64::new(0));
        let began = tokio::time::Instant::now();
        let first = self.bench.numbers.load(Ordering::Relaxed);
        let mut workers = JoinSet::new();
        for _ in 0..self.connections.min(messages as usize) {
            let sender = Sender {
                target: message_to(self.bench, self.server, "")?,
                next: Arc::clone(&next),
                numbers: Arc::clone(&self.bench.numbers),
                sinks: self.sinks.clone(),
                applications: applications as u64,
                messages,
                began,
                rate,
            };
            workers.spawn(sender.run());
        }
        let mut whole = histogram()?;
        while let Some(done) = workers.join_next().await {
            let (part, refused) = done.context("a sender crashed")??;
            whole.add(part)?;
            self.refused += refused;
        }
        for sink in &self.sinks {
            sink.wait_for_owed(first, PATIENCE).await;
        }
        Ok(whole)
    }
}

fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 120_000_000, 3)?)
}

/// One connection that messages are sent on.
struct Sender {
    target: Target,
    next: Arc<AtomicU64>,
    numbers: Arc<AtomicU64>,
    sinks: Vec<Sink>,
    applications: u64,
    messages: u64,
    began: tokio::time::Instant,
    rate: Option<f64>,
}

impl Sender {
    async fn run(mut self) -> anyhow::Result<(Histogram<u64>, u64)> {
        let (mut took, mut refused) = (histogram()?, 0);
        let (mut stream, mut reader) = (self.connect().await?, Reader::new());
        loop {
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            if turn >= self.messages {
                return Ok((took, refused));
            }
            if let Some(rate) = self.rate {
                let due = std::time::Duration::from_secs_f64(turn as f64 / rate);
                tokio::time::sleep_until(self.began + due).await;
            }
            let app = name((turn % self.applications) as usize);
            self.target.path = format!("/api/v1/app/{app}/msg?with_content=false");
            let mut request = Request::new(&self.target, 0);
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            request.stamp(number, self.sinks[0].now());
            let sent = Instant::now();
            stream.write_all(&request.bytes).await.context("sending a message")?;
            let answer = reader.next(&mut stream, || {}).await?;
            let micros = sent.elapsed().as_micros() as u64;
            let accepted =
                answer.filter(|own| (200..300).contains(&status(&reader.bytes()[..own.head])));
            let Some(message) = accepted else {
                refused += 1;
                (stream, reader) = (self.connect().await?, Reader::new());
                continue;
            };
            reader.consume(&message);
            took.saturating_record(micros.max(1));
            self.sinks.iter().for_each(|sink| sink.owe(number..number + 1));
        }
    }

    async fn connect(&self) -> anyhow::Result<TcpStream> {
        let stream = TcpStream::connect(self.target.address).await.context("connecting")?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
