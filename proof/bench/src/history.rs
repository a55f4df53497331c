//! The history scenario: how long lists, filters, counts and publishes take when there are millions of events.
//!
//! A history is made through the API, with everything people filter by: many types and one that is rare, attributes,
//! keys, ids of the publisher, dead letters, events that nobody wanted, a quiet tenant among a busy one, and deliveries
//! that wait. Then every list and filter is asked again and again. Publishing is measured in turns on this store and
//! on an empty one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use crate::child::{Caller, Home, Server};
use crate::progress::{self, say};
use crate::scenarios::Bench;
use crate::{Args, report};

/// How often each question is asked, of a history that is worth it.
const ASKED: usize = 40;
/// And of a short one, which only shows that everything works.
const ASKED_SHORTLY: usize = 5;
/// Where a history is long.
const LONG: u64 = 100_000;
/// How often publishing is measured on each store.
const TURNS: usize = 5;
/// How long the history may take to come to rest.
const REST: Duration = Duration::from_secs(600);
/// Publishers while the history is made.
const MAKERS: u64 = 8;
/// Topics that are delivered.
pub(crate) const TOPICS: u64 = 8;

/// The figures of the scenario.
#[derive(Debug, Serialize)]
struct Figures {
    scenario: &'static str,
    store: &'static str,
    events: u64,
    pending: u64,
    list_p95_ms: f64,
    stats_p95_ms: f64,
    publish_ratio: f64,
    gauge_age_s: f64,
    publish_per_s: f64,
    empty_per_s: f64,
    cpu_us_per_delivery: f64,
    empty_cpu_us_per_delivery: f64,
    worst_list: String,
    questions: usize,
    /// The 95th percentile of each question, in milliseconds.
    lists: BTreeMap<String, f64>,
    /// Lists that ended before they were full, though no attribute was asked for.
    gave_up: Vec<String>,
    lost: i64,
    seconds: f64,
    payload_bytes: usize,
}

/// Measures, and prints what it found.
pub(crate) async fn run(args: &Args, bench: Bench<'_>, mut home: Home) -> anyhow::Result<()> {
    ensure!(args.events >= 1_000, "--events must be at least 1000");
    let began = Instant::now();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let server = home.start().await?;
    let setting = Setting::make(&server, bench.sink_address, closed).await?;
    let pending = make(&server, &setting, args).await?;
    settle(&server, &bench, pending).await?;
    let events =
        server.call("GET", "/v1/stats", &Value::Null).await?["events"].as_u64().unwrap_or(0);
    say(&format!(
        "{events} events and {pending} pending after {:.0} s",
        began.elapsed().as_secs_f64()
    ));
    let asked = if args.events < LONG { ASKED_SHORTLY } else { ASKED };
    // The index of what came last is written in the background.
    progress::wait(Duration::from_secs(5)).await;
    let (Asked { p95: lists, gave_up, .. }, stats_p95_ms) =
        ask_everything(&server, &setting, asked).await?;
    let gauge_age_s = gauge_age(&server, &setting).await?;
    let publishing = publishing(args, &bench, &server, &setting).await?;
    let (worst_list, list_p95_ms) = lists
        .iter()
        .max_by(|a, b| a.1.total_cmp(b.1))
        .map(|(name, p95)| (name.clone(), *p95))
        .context("no question was asked")?;
    let figures = Figures {
        scenario: "history",
        store: if args.store == "sqlite" { "sqlite" } else { "postgres" },
        events,
        pending,
        list_p95_ms,
        stats_p95_ms,
        publish_ratio: publishing.per_s / publishing.empty_per_s.max(0.001),
        gauge_age_s,
        publish_per_s: publishing.per_s,
        empty_per_s: publishing.empty_per_s,
        cpu_us_per_delivery: publishing.cpu_us,
        empty_cpu_us_per_delivery: publishing.empty_cpu_us,
        worst_list,
        questions: lists.len(),
        lists,
        gave_up,
        lost: publishing.lost,
        seconds: began.elapsed().as_secs_f64(),
        payload_bytes: args.payload,
    };
    server.kill().await?;
    report::print(&figures, args.json);
    ensure!(figures.lost == 0, "{} deliveries were lost", figures.lost);
    Ok(())
}

/// Who gets what.
pub(crate) struct Setting {
    pub(crate) dead: String,
    pub(crate) some: String,
    pub(crate) waiting: String,
    quiet_key: String,
}

async fn put_topic(server: &Server, name: &str) -> anyhow::Result<()> {
    server.call("PUT", &format!("/v1/topics/{name}"), &json!({})).await?;
    Ok(())
}

impl Setting {
    pub(crate) async fn make(
        server: &Server,
        sink: SocketAddr,
        closed: SocketAddr,
    ) -> anyhow::Result<Self> {
        let subscribe =
            async |topic: &str, to: SocketAddr, more: Value| -> anyhow::Result<String> {
                put_topic(server, topic).await?;
                let mut body = json!({
                    "name": topic, "url": format!("http://{to}/hook/{topic}"),
                    "filter": {"any_of": [{"topics": [topic]}]},
                });
                for (name, value) in more.as_object().into_iter().flatten() {
                    body[name] = value.clone();
                }
                let made = server.call("POST", "/v1/subscriptions", &body).await?;
                Ok(made["id"].as_str().context("an id")?.to_owned())
            };
        let mut some = String::new();
        for topic in 0..TOPICS {
            some = subscribe(&format!("history-{topic}"), sink, json!({})).await?;
        }
        let once = json!({"policy": {"schedule": {"max_attempts": 1}}});
        let dead = subscribe("dead", closed, once).await?;
        let waiting = subscribe("waiting", sink, json!({"paused": true})).await?;
        put_topic(server, "nobody").await?;
        server.call("POST", "/v1/tenants", &json!({"name": "quiet"})).await?;
        let key = json!({"tenant": "quiet", "scopes": ["publish", "manage", "read"]});
        let key = server.call("POST", "/v1/keys", &key).await?;
        let quiet_key = key["key"].as_str().context("a key")?.to_owned();
        Ok(Self { dead, some, waiting, quiet_key })
    }
}

/// One event of the history by its number.
fn write_event(body: &mut String, number: u64, waits: bool, pad: &str) {
    let topic = match number % 1_000 {
        _ if waits => "waiting".to_owned(),
        0..5 => "nobody".to_owned(),
        5..15 => "dead".to_owned(),
        _ => format!("history-{}", number % TOPICS),
    };
    let kind = if number.is_multiple_of(100_003) {
        "type.rare".to_owned()
    } else {
        format!("type.{}", number % 60)
    };
    let _ = write!(
        body,
        "{{\"topic\":\"{topic}\",\"type\":\"{kind}\",\"key\":\"customer-{}\",\"idempotency_key\":\"own-{number}\",\
         \"attributes\":{{\"region\":\"r{}\",\"number\":\"{}\"}},\"payload\":{{\"h\":{number},\"pad\":\"{pad}\"}}}}",
        number % 50_021,
        number % 5,
        number % 1_000_003,
    );
}

/// Publishes the history; how many deliveries wait.
pub(crate) async fn make(server: &Server, setting: &Setting, args: &Args) -> anyhow::Result<u64> {
    let waiting = args.events / 10;
    say(&format!("publishing {} events", args.events));
    let (next, done) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
    let pad: Arc<str> = "x".repeat(args.payload.saturating_sub(30)).into();
    let mut makers = tokio::task::JoinSet::new();
    let (last, batch) = (args.events, args.batch.clamp(2, 1_000) as u64);
    for _ in 0..MAKERS {
        let (next, done, pad) = (Arc::clone(&next), Arc::clone(&done), Arc::clone(&pad));
        let mut caller = Caller::open(server).await?;
        makers.spawn(async move {
            let mut body = String::new();
            loop {
                let first = next.fetch_add(batch, Ordering::Relaxed);
                if first > last {
                    return anyhow::Ok(());
                }
                let end = (first + batch).min(last + 1);
                body.clear();
                body.push_str("{\"events\":[");
                for number in first..end {
                    if number > first {
                        body.push(',');
                    }
                    // Those that wait are spread over all of the history.
                    write_event(&mut body, number, number.is_multiple_of(10), &pad);
                }
                body.push_str("]}");
                publish(&mut caller, &body).await?;
                done.fetch_add(end - first, Ordering::Relaxed);
            }
        });
    }
    let bar = progress::bar(args.events, "  history", "{msg} {wide_bar} {pos}/{len} {elapsed}");
    while !makers.is_empty() {
        tokio::select! {
            Some(made) = makers.join_next() => made??,
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
        bar.set_position(done.load(Ordering::Relaxed));
    }
    bar.finish_and_clear();
    // A tenant that has three events in all of this.
    let mut quiet = Caller::open(server).await?.with_key(&setting.quiet_key);
    quiet.call("PUT", "/v1/topics/quiet", "{}").await?;
    for number in 0..3 {
        let event = json!({"topic": "quiet", "type": "quiet", "payload": number});
        quiet.call("POST", "/v1/events", &event.to_string()).await?;
    }
    Ok(waiting)
}

/// A server with too much to do says so; then it is asked again.
async fn publish(caller: &mut Caller, body: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        match caller.call("POST", "/v1/events/batch", body).await {
            Ok(answer) => {
                let answer: Value = serde_json::from_str(&answer)?;
                let items = answer["items"].as_array().map_or(&[][..], Vec::as_slice);
                if items.iter().all(|item| item["status"] == 202) {
                    return Ok(());
                }
            }
            Err(error) if began.elapsed() > Duration::from_secs(60) => return Err(error),
            Err(_) => caller.reconnect().await?,
        }
        // The keys of what was published already keep it from being published twice.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until nothing is pending but what shall wait.
pub(crate) async fn settle(server: &Server, bench: &Bench<'_>, pending: u64) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let stats = server.call("GET", "/v1/stats", &Value::Null).await?;
        if stats["pending"].as_u64() == Some(pending) {
            return Ok(());
        }
        ensure!(
            began.elapsed() < REST,
            "the history does not come to rest: {stats}, {} arrived",
            bench.sink.arrived()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// What was asked, and what it came to.
struct Asked {
    times: usize,
    p95: BTreeMap<String, f64>,
    gave_up: Vec<String>,
}

impl Asked {
    /// Asks one question again and again, and looks at the answers.
    async fn ask(&mut self, caller: &mut Caller, path: &str, name: String) -> anyhow::Result<()> {
        let mut times = Vec::with_capacity(self.times);
        let mut gave_up = false;
        for _ in 0..self.times {
            let began = Instant::now();
            let answer = caller.get(path).await?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
            gave_up |= answer.get("scanned_until").is_some();
        }
        if gave_up && !path.contains("attribute=") {
            self.gave_up.push(name.clone());
        }
        times.sort_by(f64::total_cmp);
        self.p95.insert(name, times[self.times * 95 / 100]);
        Ok(())
    }
}

/// The path of the tenth page of a list, and of the page before it, read backwards.
async fn deep(caller: &mut Caller, list: &str) -> anyhow::Result<Option<[String; 2]>> {
    let mut path = list.to_owned();
    for page in 1..=10 {
        let found = caller.get(&path).await?;
        if page == 10 {
            let back = found["previous"].as_str().context("a page before it")?;
            return Ok(Some([path, format!("{list}?cursor={back}")]));
        }
        let Some(next) = found["next"].as_str() else { return Ok(None) };
        path = format!("{list}?cursor={next}");
    }
    Ok(None)
}

/// What is in flight while a receiver does not answer: to a few of one subscription.
async fn ask_in_flight(
    server: &Server,
    caller: &mut Caller,
    asked: &mut Asked,
) -> anyhow::Result<()> {
    // Connections are taken by the system, and nobody reads from them.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    put_topic(server, "hanging").await?;
    let body = json!({
        "name": "hanging", "url": format!("http://{}/hook", silent.local_addr()?),
        "filter": {"any_of": [{"topics": ["hanging"]}]},
    });
    server.call("POST", "/v1/subscriptions", &body).await?;
    for number in 0..5 {
        let event = json!({"topic": "hanging", "type": "one", "payload": number});
        caller.call("POST", "/v1/events", &event.to_string()).await?;
    }
    let list = "/v1/deliveries?state=in_flight";
    let began = Instant::now();
    while caller.get(list).await?["items"].as_array().is_none_or(Vec::is_empty) {
        ensure!(began.elapsed() < Duration::from_secs(30), "nothing is in flight");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for path in [list.to_owned(), format!("{list}&subscription=hanging")] {
        let name = format!("{path} while something hangs");
        asked.ask(caller, &path, name).await?;
    }
    server.call("DELETE", "/v1/subscriptions/hanging", &Value::Null).await?;
    Ok(())
}

/// Every list and filter; the 95th percentile of each, and of the counts.
async fn ask_everything(
    server: &Server,
    setting: &Setting,
    asked: usize,
) -> anyhow::Result<(Asked, f64)> {
    let mut asked = Asked { times: asked, p95: BTreeMap::new(), gave_up: Vec::new() };
    let mut caller = Caller::open(server).await?;
    let middle = middle(&mut caller).await?;
    let event = one_of(&mut caller, "/v1/events?dead_letters=true&limit=1", "id").await?;
    let Setting { dead, some, waiting, .. } = setting;
    let mut paths: Vec<String> = [
        "/v1/events",
        "/v1/events?order=oldest",
        "/v1/events?limit=200",
        "/v1/events?type=nope",
        "/v1/events?type=type.rare",
        "/v1/events?type=type.7",
        "/v1/events?type=type.7&order=oldest",
        "/v1/events?type=type.1&type=type.2&type=type.3",
        "/v1/events?topic=history-1",
        "/v1/events?topic=history-1&topic=dead",
        "/v1/events?topic=nobody",
        "/v1/events?topic=history-1&type=type.9",
        "/v1/events?topic=history-1&type=type.2",
        "/v1/events?topic=dead&type=type.rare",
        "/v1/events?key=customer-77",
        "/v1/events?key=nope",
        "/v1/events?publisher_id=own-5",
        "/v1/events?publisher_id=nope",
        "/v1/events?unwanted=true",
        "/v1/events?unwanted=true&order=oldest",
        "/v1/events?dead_letters=true",
        "/v1/events?dead_letters=true&type=type.11",
        "/v1/events?attribute=region=r3",
        "/v1/events?attribute=number=17",
        "/v1/events?attribute=region=nope",
        "/v1/events?attribute=region=r1&type=type.6",
        "/v1/deliveries",
        "/v1/deliveries?order=oldest",
        "/v1/deliveries?state=pending",
        "/v1/deliveries?state=pending&order=oldest",
        "/v1/deliveries?state=in_flight",
        "/v1/deliveries?state=delivered",
        "/v1/deliveries?state=dead",
        "/v1/deliveries?state=cancelled",
        "/v1/deliveries?reason=exhausted",
        "/v1/deliveries?reason=gate",
        "/v1/deliveries?status=2xx",
        "/v1/deliveries?status=5xx",
        "/v1/deliveries?status=404",
        "/v1/deliveries?failure=connect_failed",
        "/v1/deliveries?failure=tls_failed",
        "/v1/dead-letters",
        "/v1/dead-letters?order=oldest",
        "/v1/dead-letters?reason=expired",
        "/v1/attempts",
        "/v1/attempts?order=oldest",
        "/v1/attempts?status=2xx",
        "/v1/attempts?status=5xx",
        "/v1/attempts?failure=connect_failed",
        "/v1/attempts?failure=tls_failed",
        "/v1/attempts?trigger=manual",
        "/v1/attempts?trigger=scheduled",
    ]
    .map(str::to_owned)
    .into();
    for of in [dead, some, waiting] {
        for list in ["deliveries", "attempts"] {
            paths.push(format!("/v1/{list}?subscription={of}"));
            paths.push(format!("/v1/{list}?subscription={of}&status=5xx"));
            paths.push(format!("/v1/{list}?subscription={of}&failure=connect_failed"));
            paths.push(format!("/v1/{list}?subscription={of}&order=oldest&{middle}"));
        }
        for state in ["pending", "delivered", "dead", "cancelled"] {
            paths.push(format!("/v1/deliveries?subscription={of}&state={state}"));
        }
    }
    for list in ["events", "deliveries", "attempts"] {
        paths.push(format!("/v1/{list}?{middle}"));
        paths.push(format!("/v1/{list}?{middle}&order=oldest"));
    }
    paths.push(format!("/v1/events?{middle}&type=type.5"));
    paths.push(format!("/v1/events/{event}"));
    for list in ["deliveries", "attempts"] {
        paths.push(format!("/v1/{list}?event={event}"));
    }
    let delivery = one_of(&mut caller, "/v1/dead-letters?limit=1", "id").await?;
    paths.push(format!("/v1/deliveries/{delivery}/timeline"));
    for of in [dead, some, waiting] {
        paths.push(format!("/v1/subscriptions/{of}/health"));
    }
    for path in [
        "/v1/jobs",
        "/v1/redrives",
        "/v1/audit",
        "/v1/metrics/series",
        "/v1/metrics/series?step=hour",
        "/v1/attempts?status=404",
        "/v1/attempts?status=204",
        "/v1/events?key=customer-77&type=type.7",
        "/v1/events?unwanted=true&type=type.7",
        "/v1/events?unwanted=true&topic=nobody",
    ] {
        paths.push(path.to_owned());
    }
    paths.push(format!("/v1/deliveries?state=dead&{middle}"));
    paths.push(format!("/v1/events?dead_letters=true&{middle}"));
    say(&format!("asking {} questions, {} times each", paths.len(), asked.times));
    for path in paths {
        let name = path
            .replace(dead, "DEAD")
            .replace(some, "SOME")
            .replace(waiting, "WAITING")
            .replace(&event, "EVENT")
            .replace(&delivery, "DELIVERY");
        asked.ask(&mut caller, &path, name.replace(&middle, "MIDDLE")).await?;
    }
    for list in ["/v1/events", "/v1/deliveries", "/v1/attempts"] {
        if let Some([tenth, before]) = deep(&mut caller, list).await? {
            asked.ask(&mut caller, &tenth, format!("{list}, the tenth page")).await?;
            asked.ask(&mut caller, &before, format!("{list}, back from the tenth page")).await?;
        }
    }
    ask_in_flight(server, &mut caller, &mut asked).await?;
    let mut quiet = Caller::open(server).await?.with_key(&setting.quiet_key);
    for path in
        ["/v1/events", "/v1/deliveries", "/v1/attempts", "/v1/events?type=type.7", "/v1/stats"]
    {
        asked.ask(&mut quiet, path, format!("{path} of a quiet tenant")).await?;
    }
    asked.ask(&mut caller, "/v1/stats", String::new()).await?;
    let stats = asked.p95.remove("").context("the counts")?;
    Ok((asked, stats))
}

pub(crate) async fn one_of(caller: &mut Caller, path: &str, field: &str) -> anyhow::Result<String> {
    let list = caller.get(path).await?;
    Ok(list["items"][0][field].as_str().with_context(|| format!("{path} is empty"))?.to_owned())
}

/// A second in the middle of the history.
async fn middle(caller: &mut Caller) -> anyhow::Result<String> {
    let first = one_of(caller, "/v1/events?order=oldest&limit=1", "accepted_at").await?;
    let last = one_of(caller, "/v1/events?limit=1", "accepted_at").await?;
    let millis = |text: &str| -> anyhow::Result<i64> {
        Ok(text
            .parse::<posthorn_domain::Timestamp>()
            .map_err(|e| anyhow::anyhow!("{e}"))?
            .as_millis())
    };
    let from = i64::midpoint(millis(&first)?, millis(&last)?);
    let text = |millis| posthorn_domain::Timestamp::from_millis(millis).to_string();
    Ok(format!("from={}&until={}", text(from), text(from + 1_000)))
}

/// How long the gauge of pending deliveries takes to be true again; the longest of three times.
async fn gauge_age(server: &Server, setting: &Setting) -> anyhow::Result<f64> {
    const GAUGE: &str = "posthorn_deliveries_pending";
    say("looking how old the gauges are");
    let mut longest: f64 = 0.0;
    let mut caller = Caller::open(server).await?;
    ensure!(!setting.waiting.is_empty(), "a subscription that waits");
    for _ in 0..3 {
        let event = json!({"topic": "waiting", "type": "one.more", "payload": 1});
        caller.call("POST", "/v1/events", &event.to_string()).await?;
        let wanted =
            server.call("GET", "/v1/stats", &Value::Null).await?["pending"].as_u64().unwrap_or(0);
        let began = Instant::now();
        while server.gauge(GAUGE).await? != wanted {
            ensure!(began.elapsed() < Duration::from_secs(120), "{GAUGE} stands still");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        longest = longest.max(began.elapsed().as_secs_f64());
    }
    Ok(longest)
}

#[derive(Default)]
struct Publishing {
    per_s: f64,
    empty_per_s: f64,
    cpu_us: f64,
    empty_cpu_us: f64,
    lost: i64,
}

/// Publishing on the store with the history and on an empty one, in turns; the medians.
async fn publishing(
    args: &Args,
    bench: &Bench<'_>,
    server: &Server,
    setting: &Setting,
) -> anyhow::Result<Publishing> {
    ensure!(!setting.some.is_empty(), "subscriptions that are delivered");
    let second = match (args.store.as_str(), &args.empty_store) {
        ("sqlite", _) => "sqlite",
        (_, Some(empty)) => empty,
        // With a database of one's own there is no second, empty one.
        (_, None) => return Ok(Publishing { empty_per_s: f64::NAN, ..Publishing::default() }),
    };
    let mut empty_home = Home::new(&Args { store: second.to_owned(), ..args.clone() })?;
    let empty = empty_home.start().await?;
    let mut topics = Vec::new();
    for topic in 0..TOPICS {
        let name = format!("history-{topic}");
        put_topic(&empty, &name).await?;
        let body = json!({
            "name": name, "url": format!("http://{}/hook/{name}", bench.sink_address),
            "filter": {"any_of": [{"topics": [name]}]},
        });
        empty.call("POST", "/v1/subscriptions", &body).await?;
        topics.push(name);
    }
    let (mut with, mut without, mut lost) = (Vec::new(), Vec::new(), 0);
    for turn in 1..=TURNS {
        let mut both =
            [(&empty, &mut without, "an empty store"), (server, &mut with, "the history")];
        // What one leaves to be done in the background is done while the other is measured.
        if turn % 2 == 0 {
            both.reverse();
        }
        for (server, runs, what) in both {
            say(&format!("publishing on {what}, {turn} of {TURNS}"));
            let target = bench.target(server, topics.clone(), 1)?;
            let (cpu, arrived) = (server.cpu(), bench.sink.arrived());
            let run = bench.measure(&target, args.publishers).await?;
            let spent = (server.cpu() - cpu).as_secs_f64() * 1e6;
            let cpu = spent / (bench.sink.arrived() - arrived).max(1) as f64;
            lost += run.lost;
            runs.push((run.deliveries_per_s, cpu));
        }
    }
    let median = |runs: &mut Vec<(f64, f64)>| {
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        runs[runs.len() / 2]
    };
    let ((per_s, cpu_us), (empty_per_s, empty_cpu_us)) = (median(&mut with), median(&mut without));
    empty.kill().await?;
    Ok(Publishing { per_s, empty_per_s, cpu_us, empty_cpu_us, lost })
}
