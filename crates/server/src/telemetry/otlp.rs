//! Traces and metrics for an OpenTelemetry collector, by OTLP over HTTP with protobuf.
//!
//! # Theory of operation
//! The engine tells `Spans` of every recorded step ([`Tracer`]); that puts it into a bounded queue and returns.
//! One task takes steps out in batches, writes them as protobuf (`spans`) and posts them (`sender`). What finds
//! the queue full, and what the collector does not take, is counted and gone: nobody ever waits for a collector. A
//! second task sends what `/metrics` shows every interval (`figures`).
//!
//! The collector's address is the operator's word. So it has a way out of its own, with a guard that opens this one
//! port and nothing else; the guard of tenants does not know of it but as a place that is closed.
//!
//! # What it must not know
//! What a delivery is, beyond what its steps say.

mod figures;
mod sender;
mod spans;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use metrics::{Counter, Unit, counter, describe_counter};
use posthorn_api::RenderMetrics;
use posthorn_domain::policy::headers;
use posthorn_domain::{Clock, TraceId, setting};
use posthorn_egress as egress;
use posthorn_engine::{TraceSpan, Tracer};
use prost::Message as _;
use serde::{Deserialize, Deserializer, de};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::WallClock;
use sender::{Collector, Signal};

/// Spans and data points that a collector took, by `signal`.
const SENT: &str = "posthorn_otlp_sent_total";
/// Spans and data points that were given up, by `signal` and `reason` (`queue_full`, `failed`, `rejected`).
const DROPPED: &str = "posthorn_otlp_dropped_total";

/// How long a batch that failed for a passing reason waits before it is sent again; then it is given up.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// Where traces and metrics go: the section `telemetry.otlp` of the configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The collector; nothing is sent when absent.
    #[serde(deserialize_with = "endpoint")]
    pub endpoint: Option<Endpoint>,
    /// Headers of every request.
    headers: Headers,
    /// How long one request may take.
    #[serde(deserialize_with = "setting::some_time")]
    timeout: Duration,
    /// How long a stop waits until what is left was sent.
    #[serde(deserialize_with = "setting::time")]
    pub stop_timeout: Duration,
    /// Who we are to the collector.
    #[serde(deserialize_with = "setting::some_text")]
    service_name: String,
    /// What else is said about us.
    resource: BTreeMap<String, String>,
    /// Whether traces are sent.
    traces: bool,
    /// Which part of the traces is recorded that begin here.
    sample_ratio: Ratio,
    /// Whether the publisher's flag decides for traces that it began.
    parent_based: bool,
    /// Spans that may wait to be sent.
    #[serde(deserialize_with = "setting::at_least_one")]
    queue: usize,
    /// Spans in one request.
    #[serde(deserialize_with = "setting::at_least_one")]
    batch: usize,
    /// How long the first span of a batch waits for others.
    #[serde(deserialize_with = "setting::some_time")]
    batch_interval: Duration,
    /// Whether metrics are sent.
    metrics: bool,
    /// How often.
    #[serde(deserialize_with = "setting::some_time")]
    metrics_interval: Duration,
}

impl Options {
    /// The host and port of the collector, which must not be a receiver.
    pub fn place(&self) -> Option<(String, u16)> {
        self.endpoint.as_ref().map(|endpoint| (endpoint.host.clone(), endpoint.port))
    }
}

/// The URL of a collector; `/v1/traces` and `/v1/metrics` are below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    url: String,
    host: String,
    port: u16,
}

impl std::str::FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let problem = "must be the URL of a collector that takes OTLP over HTTP, such as \
                       http://127.0.0.1:4318, without credentials and query";
        let url = url::Url::parse(text).map_err(|_| problem)?;
        let bare = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        let host = url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        match url.port_or_known_default() {
            Some(port) if bare && port != 0 && matches!(url.scheme(), "http" | "https") => {
                Ok(Self {
                    url: url.as_str().trim_end_matches('/').to_owned(),
                    host: host.to_owned(),
                    port,
                })
            }
            _ => Err(problem),
        }
    }
}

/// None when it is absent or empty.
fn endpoint<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Endpoint>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty());
    text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
}

/// Headers that may hold secrets: their values are not shown.
#[derive(Clone, Debug, Default)]
struct Headers(HeaderMap);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut all = HeaderMap::new();
        for (name, text) in BTreeMap::<String, String>::deserialize(deserializer)? {
            let wrong = |problem: &dyn fmt::Display| {
                de::Error::custom(format_args!("the header `{name}` cannot be sent: {problem}"))
            };
            headers::check_name(&name).map_err(|e| wrong(&e))?;
            headers::check_value(&text).map_err(|e| wrong(&e))?;
            let key = HeaderName::try_from(&name).map_err(|e| wrong(&e))?;
            let mut value = HeaderValue::try_from(text).map_err(|e| wrong(&e))?;
            value.set_sensitive(true);
            all.insert(key, value);
        }
        Ok(Self(all))
    }
}

/// A part of the whole.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratio(f64);

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ratio = f64::deserialize(deserializer)?;
        if (0.0..=1.0).contains(&ratio) {
            return Ok(Self(ratio));
        }
        Err(de::Error::custom("must be from 0 (none) to 1 (all)"))
    }
}

/// What decides whether a trace is recorded.
#[derive(Clone, Copy, Debug)]
struct Sampler {
    /// Ids below it, by half of their last eight bytes, as in the SDKs: nodes and services agree.
    below: u64,
    parent_based: bool,
}

impl Sampler {
    fn new(Ratio(ratio): Ratio, parent_based: bool) -> Self {
        let all = (1_u64 << 63) as f64;
        Self { below: (ratio * all) as u64, parent_based }
    }

    fn samples(&self, trace: TraceId, asked: Option<bool>) -> bool {
        if let (true, Some(asked)) = (self.parent_based, asked) {
            return asked;
        }
        let last: [u8; 8] = std::array::from_fn(|at| trace.as_bytes()[8 + at]);
        u64::from_be_bytes(last) >> 1 < self.below
    }
}

/// Takes steps from the engine.
struct Spans {
    sampler: Sampler,
    queue: mpsc::Sender<TraceSpan>,
    queue_full: Counter,
}

impl Tracer for Spans {
    fn samples(&self, trace: TraceId, asked: Option<bool>) -> bool {
        self.sampler.samples(trace, asked)
    }

    fn ended(&self, span: TraceSpan) {
        if self.queue.try_send(span).is_err() {
            self.queue_full.increment(1);
        }
    }
}

/// The export, when it is on.
pub struct Otlp {
    way: (egress::Egress, Arc<egress::Target>),
    tracer: Option<Arc<dyn Tracer>>,
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
    stop_timeout: Duration,
}

/// Why it cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The way out cannot.
    #[error("the way to the collector cannot be set up")]
    Egress(#[source] egress::Error),
    /// Not an address that anything is sent to.
    #[error("{0}")]
    Url(egress::UrlRefusal),
}

/// The way to the collector: where its name is looked up and which certificates are trusted is as for everything
/// else; what is closed to receivers is open on this port, but for metadata services.
pub fn way_out(
    endpoint: &Endpoint,
    around: &egress::Options,
) -> Result<(egress::Egress, [egress::Target; 2]), Error> {
    let everywhere = |text: &str| {
        let net = text.parse::<egress::AddressRule>().expect("a network").net;
        egress::AddressRule { net, port: Some(endpoint.port) }
    };
    let egress = egress::Egress::new(egress::Options {
        allow: vec![everywhere("0.0.0.0/0"), everywhere("[::]/0")],
        names: vec![egress::NameRule::every()],
        ports: vec![endpoint.port],
        connections: 4,
        source: around.source,
        resolvers: around.resolvers.clone(),
        extra_roots: around.extra_roots.clone(),
        user_agent: around.user_agent.clone(),
        ..egress::Options::default()
    })
    .map_err(Error::Egress)?;
    let target = |signal: Signal| {
        let url = format!("{}{}", endpoint.url, signal.path());
        egress.guard().check_url(&url).map_err(Error::Url)
    };
    let targets = [target(Signal::Traces)?, target(Signal::Metrics)?];
    Ok((egress, targets))
}

impl Otlp {
    /// Starts to send, if there is a collector.
    pub fn start(
        options: &Options,
        around: &egress::Options,
        render: RenderMetrics,
    ) -> Result<Option<Self>, Error> {
        describe();
        let Some(endpoint) = &options.endpoint else { return Ok(None) };
        let (egress, targets) = way_out(endpoint, around)?;
        let [traces, metrics] = targets.map(Arc::new);
        let way = (egress.clone(), Arc::clone(&traces));
        let resource = spans::resource(&options.service_name, &options.resource);
        let collector = |signal, target| Collector {
            egress: egress.clone(),
            target,
            headers: options.headers.0.clone(),
            timeout: options.timeout,
            signal,
            complaints: sender::Complaints::default(),
        };
        let stop = CancellationToken::new();
        let (mut tracer, mut tasks) = (None, Vec::new());
        if options.traces {
            let (queue, waiting) = mpsc::channel(options.queue);
            let sampler = Sampler::new(options.sample_ratio, options.parent_based);
            let queue_full = dropped(Signal::Traces, "queue_full");
            tracer = Some(Arc::new(Spans { sampler, queue, queue_full }) as Arc<dyn Tracer>);
            let batches = Batches {
                collector: collector(Signal::Traces, traces),
                resource: resource.clone(),
                most: options.batch,
                wait: options.batch_interval,
            };
            tasks.push(tokio::spawn(batches.run(waiting, stop.clone())));
        }
        if options.metrics {
            let collector = collector(Signal::Metrics, metrics);
            let every = options.metrics_interval;
            let run = send_figures(collector, resource, render, every, stop.clone());
            tasks.push(tokio::spawn(run));
        }
        Ok(Some(Self { way, tracer, tasks, stop, stop_timeout: options.stop_timeout }))
    }

    /// The way to the collector, for whoever wants to know where it is.
    pub fn way(&self) -> (egress::Egress, Arc<egress::Target>) {
        self.way.clone()
    }

    /// For the engine, when traces are sent.
    pub fn tracer(&self) -> Option<Arc<dyn Tracer>> {
        self.tracer.clone()
    }

    /// How long [`Self::stop`] may take.
    pub fn patience(&self) -> Duration {
        self.stop_timeout
    }

    /// Sends what is left, as far as that can be done in time.
    pub async fn stop(&mut self) {
        self.stop.cancel();
        let until = Instant::now() + self.stop_timeout;
        for mut task in self.tasks.drain(..) {
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                task.abort();
            }
        }
    }
}

/// Tells the recorder what these mean, and that they are there.
fn describe() {
    describe_counter!(SENT, Unit::Count, "Spans and data points taken by the collector, by signal");
    describe_counter!(
        DROPPED,
        Unit::Count,
        "Spans and data points that the collector did not get, by signal and reason"
    );
    for signal in [Signal::Traces, Signal::Metrics] {
        sent(signal).increment(0);
        for reason in ["failed", "rejected"] {
            dropped(signal, reason).increment(0);
        }
    }
    dropped(Signal::Traces, "queue_full").increment(0);
}

fn sent(signal: Signal) -> Counter {
    counter!(SENT, "signal" => signal.name())
}

fn dropped(signal: Signal, reason: &'static str) -> Counter {
    counter!(DROPPED, "signal" => signal.name(), "reason" => reason)
}

/// Sends steps in batches.
struct Batches {
    collector: Collector,
    resource: spans::Resource,
    most: usize,
    wait: Duration,
}

impl Batches {
    async fn run(self, mut queue: mpsc::Receiver<TraceSpan>, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(self.most.min(1_024));
        loop {
            let stopped = self.fill(&mut queue, &mut batch, &stop).await;
            if batch.is_empty() {
                return;
            }
            let count = batch.len();
            let body = spans::request(&self.resource, batch.drain(..)).encode_to_vec();
            deliver(&self.collector, body, count, stopped.then_some(()), &stop).await;
        }
    }

    /// Waits for a batch; it is empty when there is nothing more. Says whether it is time to stop.
    async fn fill(
        &self,
        queue: &mut mpsc::Receiver<TraceSpan>,
        batch: &mut Vec<TraceSpan>,
        stop: &CancellationToken,
    ) -> bool {
        let mut until = None;
        while batch.len() < self.most {
            let room = self.most - batch.len();
            let full = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    // Whoever is late is counted as lost by the queue, which nobody empties any more.
                    while batch.len() < self.most
                        && let Ok(span) = queue.try_recv()
                    {
                        batch.push(span);
                    }
                    return true;
                }
                got = queue.recv_many(batch, room) => {
                    if got == 0 {
                        return true;
                    }
                    until = until.or(Some(Instant::now() + self.wait));
                }
                () = full => break,
            }
        }
        false
    }
}

/// Posts one body, again if that may help, and counts what became of it. While it is stopping there is no second
/// try.
async fn deliver(
    collector: &Collector,
    body: Vec<u8>,
    count: usize,
    last: Option<()>,
    stop: &CancellationToken,
) {
    let body = bytes::Bytes::from(body);
    let all = u64::try_from(count).unwrap_or(u64::MAX);
    let mut pauses = PAUSES.iter();
    loop {
        match collector.post(body.clone()).await {
            sender::Posted::Taken { rejected } => {
                let rejected = rejected.min(all);
                sent(collector.signal).increment(all - rejected);
                dropped(collector.signal, "rejected").increment(rejected);
                return;
            }
            sender::Posted::Failed { again, problem } => {
                let pause = pauses.next().filter(|_| again && last.is_none());
                if let Some(pause) = pause {
                    tokio::select! {
                        () = tokio::time::sleep(*pause) => continue,
                        () = stop.cancelled() => {}
                    }
                }
                dropped(collector.signal, "failed").increment(all);
                collector.complain(&problem, count);
                return;
            }
        }
    }
}

/// Sends what `/metrics` shows, every so often and a last time at the end. What fails is not sent again: the next
/// one says more.
async fn send_figures(
    collector: Collector,
    resource: spans::Resource,
    render: RenderMetrics,
    every: Duration,
    stop: CancellationToken,
) {
    let began = WallClock.now();
    let mut due = Instant::now() + every;
    let mut stopped = false;
    while !stopped {
        tokio::select! {
            () = stop.cancelled() => stopped = true,
            () = tokio::time::sleep_until(due) => due = Instant::now() + every,
        }
        let (request, count) = figures::request(&resource, &render(), began, WallClock.now());
        deliver(&collector, request.encode_to_vec(), count, Some(()), &stop).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(last: u64) -> TraceId {
        let mut bytes = [1; 16];
        bytes[8..].copy_from_slice(&last.to_be_bytes());
        TraceId::new(bytes).expect("not zero")
    }

    #[test]
    fn a_ratio_takes_its_part_and_the_publisher_decides_where_it_may() {
        let taken = |ratio, parent_based, asked| {
            let sampler = Sampler::new(Ratio(ratio), parent_based);
            let step = u64::MAX / 1_000;
            (0..1_000).filter(|n| sampler.samples(trace(n * step), asked)).count()
        };
        assert_eq!(taken(0.0, true, None), 0);
        assert_eq!(taken(1.0, true, None), 1_000);
        assert!((240..=260).contains(&taken(0.25, true, None)));
        assert_eq!((taken(0.0, true, Some(true)), taken(1.0, true, Some(false))), (1_000, 0));
        assert_eq!((taken(0.0, false, Some(true)), taken(1.0, false, Some(false))), (0, 1_000));
    }

    #[test]
    fn the_address_of_a_collector_is_read_strictly() {
        let read = |text: &str| text.parse::<Endpoint>().map(|it| (it.url, it.host, it.port));
        let place = |url: &str, host: &str, port| Ok((url.to_owned(), host.to_owned(), port));
        assert_eq!(read("http://[::1]:4318/"), place("http://[::1]:4318", "::1", 4318));
        assert_eq!(
            read("https://otel.example/in/"),
            place("https://otel.example/in", "otel.example", 443)
        );
        for text in ["collector:4318", "grpc://a:4317", "http://u:p@a:4318", "http://a/?k=1", ""] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_collector_may_be_anywhere_but_at_a_metadata_service() {
        let around = egress::Options::default();
        let opens = |text: &str| way_out(&text.parse().expect("an endpoint"), &around).is_ok();
        for text in [
            "http://127.0.0.1:4318",
            "http://otel-collector:4318",
            "http://10.1.2.3:9",
            "https://collector.svc.cluster.local",
            "http://[fd00::1]:4318/base",
        ] {
            assert!(opens(text), "{text}");
        }
        assert!(!opens("http://169.254.169.254"));
    }

    #[tokio::test]
    async fn a_full_queue_never_makes_anybody_wait() {
        let (queue, mut waiting) = mpsc::channel(1);
        let sampler = Sampler::new(Ratio(1.0), true);
        let spans = Spans { sampler, queue, queue_full: Counter::noop() };
        for _ in 0..3 {
            spans.ended(spans::tests::span());
        }
        assert!(waiting.try_recv().is_ok() && waiting.try_recv().is_err());
    }
}
