//! The scenarios.

pub(crate) mod hostile;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::child::{Home, Server};
use super::load::{Form, Load, Target};
use super::progress::{self, say};
use super::report::Report;
use super::sink::Sink;
use super::wire::Reader;
use super::{Args, Neighbours, Scenario, baseline};

/// Load before anything is measured: connections open, caches warm.
pub(crate) const WARM_UP: Duration = Duration::from_secs(2);
/// How long the sink may see nothing before what is missing counts as lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// Neighbours that fail at once.
const NEIGHBOURS: usize = 100;
/// How often a server is measured that is compared with another one, in turns.
const TURNS: usize = 3;

/// Everything a scenario works with.
pub(crate) struct Bench<'a> {
    pub(crate) args: &'a Args,
    pub(crate) sink: Sink,
    pub(crate) sink_address: SocketAddr,
    pub(crate) numbers: Arc<AtomicU64>,
    pub(crate) home: Home,
}

impl<'a> Bench<'a> {
    /// With a sink of its own.
    pub(crate) async fn new(args: &'a Args) -> anyhow::Result<Self> {
        let sink = Sink::new();
        let sink_address = sink.listen(0).await?;
        let (numbers, home) = (Arc::new(AtomicU64::new(0)), Home::new(args)?);
        Ok(Self { args, sink, sink_address, numbers, home })
    }
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<Report> {
    let bench = Bench::new(args).await?;
    let (scenario, mut report) = match args.scenario {
        Scenario::Throughput => ("throughput", bench.throughput(1).await?),
        Scenario::Batch => ("batch", bench.throughput(args.batch.max(2)).await?),
        Scenario::Latency => ("latency", bench.latency().await?),
        Scenario::DeadNeighbour => {
            let name = match args.neighbours {
                Neighbours::Hanging => "dead-neighbour",
                Neighbours::Failing => "failing-neighbours",
                Neighbours::Refusing => "refusing-neighbours",
            };
            (name, bench.dead_neighbour().await?)
        }
        Scenario::Backlog => ("backlog", bench.backlog().await?),
        Scenario::Restart => ("restart", bench.restart().await?),
        Scenario::Overload => ("overload", super::overload::run(bench).await?),
        Scenario::Hostile => ("hostile", bench.hostile().await?),
        other => anyhow::bail!("{other:?} is not a scenario of publishers"),
    };
    report.scenario = scenario;
    report.store = if args.store == "sqlite" { "sqlite".into() } else { "postgres".into() };
    report.publishers = args.publishers;
    report.payload_bytes = args.payload;
    Ok(report)
}

/// What the dead neighbours do.
async fn misbehave(listener: tokio::net::TcpListener, neighbours: Neighbours) {
    if neighbours == Neighbours::Refusing {
        // Nobody listens there any more.
        return;
    }
    let mut held = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        match neighbours {
            Neighbours::Failing => drop(tokio::spawn(fail(stream))),
            _ => held.push(stream),
        }
    }
}

/// Answers every request with 500, at once.
async fn fail(mut stream: tokio::net::TcpStream) -> anyhow::Result<()> {
    drop(stream.set_nodelay(true));
    let mut reader = Reader::new();
    while let Some(message) = reader.next(&mut stream, || ()).await? {
        reader.consume(&message);
        let answer = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer).await?;
    }
    Ok(())
}

/// The run in the middle by its speed, with what went wrong in any of them.
fn middle(mut runs: Vec<Report>) -> Report {
    let lost = runs.iter().map(|run| run.lost).sum();
    let duplicates = runs.iter().map(|run| run.duplicates).sum();
    let refused = runs.iter().map(|run| run.refused).sum();
    runs.sort_by(|a, b| a.deliveries_per_s.total_cmp(&b.deliveries_per_s));
    let middle = runs.swap_remove(runs.len() / 2);
    Report { lost, duplicates, refused, ..middle }
}

/// Pauses or resumes these subscriptions.
async fn tell_all(server: &Server, subscriptions: &[String], what: &str) -> anyhow::Result<()> {
    for name in subscriptions {
        server.call("POST", &format!("/v1/subscriptions/{name}/{what}"), &json!({})).await?;
    }
    Ok(())
}

impl Bench<'_> {
    /// Topics with one subscription each, all to the sink (or to another address).
    async fn subscribe(
        &self,
        server: &Server,
        prefix: &str,
        count: usize,
        to: SocketAddr,
    ) -> anyhow::Result<Vec<String>> {
        let mut topics = Vec::new();
        for index in 0..count {
            let topic = format!("{prefix}-{index}");
            server.call("PUT", &format!("/v1/topics/{topic}"), &json!({})).await?;
            let body = json!({
                "name": topic,
                "url": format!("http://{to}/hook/{topic}"),
                "filter": {"any_of": [{"topics": [topic]}]},
            });
            server.call("POST", "/v1/subscriptions", &body).await?;
            topics.push(topic);
        }
        Ok(topics)
    }

    pub(crate) fn target(
        &self,
        server: &Server,
        topics: Vec<String>,
        batch: usize,
    ) -> anyhow::Result<Target> {
        let key = server.key.as_deref().context("the server under test printed no key")?;
        let path = if batch == 1 { "/v1/events" } else { "/v1/events/batch" };
        Ok(Target {
            address: server.address,
            path: path.to_owned(),
            headers: format!("authorization: Bearer {key}\r\n"),
            form: Form::Event(topics),
            keyed: false,
            batch,
            payload: self.args.payload,
        })
    }

    /// Runs a closed-loop load for a phase and drains it.
    pub(crate) async fn measure(
        &self,
        target: &Target,
        publishers: usize,
    ) -> anyhow::Result<Report> {
        let before = self.sink.arrived();
        let warm = Load::start(target, publishers, None, &self.numbers, &self.sink);
        tokio::time::sleep(WARM_UP).await;
        let (warm_accepted, warm_refused) = warm.stop().await?;
        self.sink.wait_for(before + warm_accepted, Duration::from_secs(2)).await;
        self.sink.reset_latency();
        let (arrived, duplicates, began) =
            (self.sink.arrived(), self.sink.duplicates(), self.sink.now());
        let load = Load::start(target, publishers, None, &self.numbers, &self.sink);
        progress::wait(self.args.phase()).await;
        let (accepted, refused) = load.stop().await?;
        self.sink.wait_for(arrived + accepted, PATIENCE).await;
        let delivered = self.sink.arrived() - arrived;
        let seconds = (self.sink.last().saturating_sub(began)) as f64 / 1e6;
        let deliveries_per_s = delivered as f64 / seconds.max(0.001);
        say(&format!("  {deliveries_per_s:.0} deliveries a second"));
        Ok(Report {
            deliveries_per_s,
            p50_ms: self.sink.latency_ms(0.5),
            p99_ms: self.sink.latency_ms(0.99),
            lost: accepted as i64 - delivered as i64,
            duplicates: self.sink.duplicates() - duplicates,
            refused: refused + warm_refused,
            seconds,
            ..Report::default()
        })
    }

    async fn bare_relay(&self) -> anyhow::Result<f64> {
        say("measuring the bare relay");
        let relay = Server::relay(self.sink_address).await?;
        let target = Target {
            address: relay.address,
            path: "/".to_owned(),
            headers: String::new(),
            form: Form::Bare,
            keyed: false,
            batch: 1,
            payload: self.args.payload,
        };
        let report = self.measure(&target, self.args.publishers).await?;
        relay.kill().await?;
        Ok(report.deliveries_per_s)
    }

    async fn throughput(mut self, batch: usize) -> anyhow::Result<Report> {
        let bare = if batch == 1 {
            self.bare_relay().await?
        } else {
            say("measuring the bare client");
            let time = self.args.phase();
            let (senders, payload) = (self.args.publishers, self.args.payload);
            let sink = self.sink.clone();
            baseline::client(&sink, self.sink_address, senders, payload, time, &self.numbers)
                .await?
        };
        let server = self.home.start().await?;
        let idle = server.rss_mib();
        // A batch is many events: fewer publishers keep as many of them in the air.
        let publishers = if batch == 1 { self.args.publishers } else { 16 };
        let target = self.healthy(&server, batch).await?;
        say("measuring the server");
        let (cpu, arrived) = (server.cpu(), self.sink.arrived());
        let mut report = self.measure(&target, publishers).await?;
        let cpu = server.cpu().saturating_sub(cpu).as_secs_f64() * 1e6;
        report.cpu_us_per_delivery = Some(cpu / (self.sink.arrived() - arrived).max(1) as f64);
        report.bare_per_s = bare;
        report.ratio = report.deliveries_per_s / bare.max(1.0);
        report.rss_mib = server.peak_mib();
        report.idle_rss_mib = Some(idle);
        server.kill().await?;
        Ok(report)
    }

    async fn latency(mut self) -> anyhow::Result<Report> {
        let bare = self.bare_relay().await?;
        let server = self.home.start().await?;
        let target = self.healthy(&server, 1).await?;
        say("finding the full load");
        let full = self.measure(&target, self.args.publishers).await?;
        let rate = full.deliveries_per_s / 2.0;
        say("measuring at half of it");
        let (arrived, duplicates) = (self.sink.arrived(), self.sink.duplicates());
        let load =
            Load::start(&target, self.args.publishers, Some(rate), &self.numbers, &self.sink);
        tokio::time::sleep(WARM_UP).await;
        self.sink.reset_latency();
        progress::wait(self.args.phase()).await;
        let began = load.began;
        let (accepted, refused) = load.stop().await?;
        let seconds = began.elapsed().as_secs_f64();
        let (p50_ms, p99_ms) = (self.sink.latency_ms(0.5), self.sink.latency_ms(0.99));
        self.sink.wait_for(arrived + accepted, PATIENCE).await;
        let delivered = self.sink.arrived() - arrived;
        let report = Report {
            deliveries_per_s: delivered as f64 / seconds,
            bare_per_s: bare,
            ratio: delivered as f64 / seconds / bare.max(1.0),
            p50_ms,
            p99_ms,
            rss_mib: server.peak_mib(),
            lost: accepted as i64 - delivered as i64,
            duplicates: self.sink.duplicates() - duplicates,
            refused,
            seconds,
            ..Report::default()
        };
        server.kill().await?;
        Ok(report)
    }

    /// Publishes a backlog for subscriptions whose receivers do not take it.
    async fn fill(&self, server: &Server, topics: &[String]) -> anyhow::Result<u64> {
        let target = self.target(server, topics.to_vec(), 500)?;
        let load = Load::start(&target, 8, None, &self.numbers, &self.sink);
        say(&format!("filling the backlog with {} events", self.args.backlog));
        let form = "{msg} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}";
        let bar = progress::bar(self.args.backlog, "  filling", form);
        while load.accepted() < self.args.backlog {
            tokio::time::sleep(Duration::from_millis(200)).await;
            bar.set_position(load.accepted());
        }
        bar.finish_and_clear();
        Ok(load.stop().await?.0)
    }

    /// Measures beside the dead and without them in turns: a machine is not equally fast all the time, and what is
    /// compared must not be minutes apart.
    async fn dead_neighbour(mut self) -> anyhow::Result<Report> {
        let server = self.home.start().await?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let (address, neighbours) = (listener.local_addr()?, self.args.neighbours);
        let count = if neighbours == Neighbours::Hanging { 1 } else { NEIGHBOURS };
        let beside = self.healthy(&server, 1).await?;
        // A database belongs to one server here: the one without neighbours has a folder of its own. On PostgreSQL there
        // is one database, so it is measured once, before the neighbours come.
        let mut quiet_home = Home::new(self.args)?;
        let own = self.args.store == "sqlite";
        let quiet = if own { Some(quiet_home.start().await?) } else { None };
        let alone = match &quiet {
            Some(quiet) => self.healthy(quiet, 1).await?,
            None => beside.clone(),
        };
        say("measuring without the dead neighbours");
        let mut without = vec![self.measure(&alone, self.args.publishers).await?];
        let dead = self.subscribe(&server, "dead", count, address).await?;
        let hold = tokio::spawn(misbehave(listener, neighbours));
        let pending = self.fill(&server, &dead).await?;
        let mut with = Vec::new();
        for turn in 1..=TURNS {
            say(&format!("measuring beside the dead neighbours: {turn} of {TURNS}"));
            with.push(self.measure(&beside, self.args.publishers).await?);
            if own && turn < TURNS {
                say("measuring without them");
                // What the other server would do for the dead meanwhile is no part of this.
                tell_all(&server, &dead, "pause").await?;
                without.push(self.measure(&alone, self.args.publishers).await?);
                tell_all(&server, &dead, "resume").await?;
            }
        }
        let mut report = middle(with);
        report.bare_per_s = middle(without).deliveries_per_s;
        report.ratio = report.deliveries_per_s / report.bare_per_s.max(1.0);
        report.rss_mib = server.peak_mib();
        report.pending = Some(pending);
        hold.abort();
        server.kill().await?;
        if let Some(quiet) = quiet {
            quiet.kill().await?;
        }
        Ok(report)
    }

    /// Subscriptions whose receiver is well, and how to publish to them.
    async fn healthy(&self, server: &Server, batch: usize) -> anyhow::Result<Target> {
        let topics =
            self.subscribe(server, "bench", self.args.subscriptions, self.sink_address).await?;
        self.target(server, topics, batch)
    }

    /// A server with a backlog for a receiver that refuses connections, and that receiver's address.
    async fn with_backlog(&mut self) -> anyhow::Result<(Server, SocketAddr, u64, f64)> {
        // Bound and closed again: connections to it are refused until the sink listens there.
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        let server = self.home.start().await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let idle = server.rss_mib();
        let topics = self.subscribe(&server, "backlog", 1, closed).await?;
        let pending = self.fill(&server, &topics).await?;
        Ok((server, closed, pending, idle))
    }

    async fn backlog(mut self) -> anyhow::Result<Report> {
        let began = Instant::now();
        let (server, _, pending, idle) = self.with_backlog().await?;
        let seconds = began.elapsed().as_secs_f64();
        server.reset_peak();
        progress::wait(self.args.phase()).await;
        let report = Report {
            rss_mib: server.peak_mib(),
            idle_rss_mib: Some(idle),
            pending: Some(pending),
            seconds,
            ..Report::default()
        };
        server.kill().await?;
        Ok(report)
    }

    async fn restart(mut self) -> anyhow::Result<Report> {
        let (server, receiver, pending, _) = self.with_backlog().await?;
        server.kill().await?;
        self.sink.listen(receiver.port()).await?;
        say("restarting after a kill");
        let began = Instant::now();
        let server = self.home.start().await?;
        while self.sink.arrived() == 0 && began.elapsed() < Duration::from_secs(120) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let first = began.elapsed().as_secs_f64();
        say("draining for a while");
        let (arrived, from) = (self.sink.arrived(), Instant::now());
        progress::wait(self.args.phase()).await;
        let rate = (self.sink.arrived() - arrived) as f64 / from.elapsed().as_secs_f64();
        let report = Report {
            deliveries_per_s: rate,
            rss_mib: server.peak_mib(),
            pending: Some(pending),
            first_delivery_s: Some(first),
            duplicates: self.sink.duplicates(),
            seconds: from.elapsed().as_secs_f64(),
            ..Report::default()
        };
        server.kill().await?;
        Ok(report)
    }
}
