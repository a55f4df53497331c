//! The console scenario: how long every page takes over a long history, what a first visit loads, and what fifty tabs that
//! stay open cost: as many events as the server can take are published with them and without, in turns, so that whatever
//! they take of the machine is missing from the deliveries.

mod browser;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::Value;

use crate::child::{Caller, Home, Server};
use crate::history::{self, Setting, one_of};
use crate::kept;
use crate::load::{Load, Target};
use crate::progress::{self, say};
use crate::scenarios::{Bench, PATIENCE, WARM_UP};
use crate::{Args, report};
use browser::{Connection, Session, Told, stay};

/// Tabs that stay open, and how many of them a person has.
const TABS: usize = 50;
const TABS_EACH: usize = 10;
/// How often each page is opened, of a history that is worth it, and of a short one.
const OPENED: usize = 40;
const OPENED_SHORTLY: usize = 5;
/// Where a history is long.
const LONG: u64 = 100_000;
/// How often throughput is measured, with the tabs and without, in turns.
const TURNS: usize = 3;

/// The figures of the scenario.
#[derive(Debug, Serialize)]
struct Figures {
    scenario: &'static str,
    store: &'static str,
    events: u64,
    page_p95_ms: f64,
    worst_page: String,
    throughput_ratio: f64,
    with_tabs_per_s: f64,
    without_tabs_per_s: f64,
    with_tabs_cpu_us: f64,
    without_tabs_cpu_us: f64,
    tabs: usize,
    bytes_per_live_tab: f64,
    live_bytes_per_s: f64,
    live_updates: u64,
    first_load_bytes: usize,
    /// The 95th percentile of each page, in milliseconds.
    pages: BTreeMap<String, f64>,
    lost: i64,
    seconds: f64,
}

/// Measures, and prints what it found.
pub(crate) async fn run(args: &Args, bench: Bench<'_>, mut home: Home) -> anyhow::Result<()> {
    ensure!(args.events >= 1_000, "--events must be at least 1000");
    let began = Instant::now();
    // One person opens more pages here than any does.
    home.set(["console.requests_per_second=100000".to_owned()]);
    let (server, setting, _) = kept::history(args, &bench, &mut home).await?;
    let stats = server.call("GET", "/v1/stats", &Value::Null).await?;
    let events = stats["events"].as_u64().unwrap_or(0);
    say(&format!("{events} events after {:.0} s", began.elapsed().as_secs_f64()));
    // The index of what came last is written in the background.
    progress::wait(Duration::from_secs(5)).await;
    let session = Session::open(&server).await?;
    let first_load_bytes = first_load(&session).await?;
    let opened = if args.events < LONG { OPENED_SHORTLY } else { OPENED };
    let pages = open_everything(&server, &session, &setting, opened).await?;
    let (worst_page, page_p95_ms) = pages
        .iter()
        .max_by(|a, b| a.1.total_cmp(b.1))
        .map(|(name, p95)| (name.clone(), *p95))
        .context("no page was opened")?;
    let mut people = Vec::new();
    for _ in 0..TABS.div_ceil(TABS_EACH) {
        people.push(Session::open(&server).await?);
    }
    let bytes_per_live_tab = memory(&server, &people).await?;
    let beside = throughput(args, &bench, &server, &people).await?;
    let figures = Figures {
        scenario: "console",
        store: if args.store == "sqlite" { "sqlite" } else { "postgres" },
        events,
        page_p95_ms,
        worst_page,
        throughput_ratio: beside.with.per_s / beside.without.per_s.max(0.001),
        with_tabs_per_s: beside.with.per_s,
        without_tabs_per_s: beside.without.per_s,
        with_tabs_cpu_us: beside.with.cpu_us,
        without_tabs_cpu_us: beside.without.cpu_us,
        tabs: TABS,
        bytes_per_live_tab,
        live_bytes_per_s: beside.bytes_per_s,
        live_updates: beside.updates,
        first_load_bytes,
        pages,
        lost: beside.lost,
        seconds: began.elapsed().as_secs_f64(),
    };
    server.kill().await?;
    report::print(&figures, args.json);
    Ok(())
}

/// What a browser loads that was never here: the overview, and all files that it names, packed.
async fn first_load(session: &Session) -> anyhow::Result<usize> {
    let mut browser = session.connect().await?;
    let html = browser.text("/console/").await?;
    let named = html.split('"').filter(|part| part.starts_with("/console/assets/"));
    let files: BTreeSet<&str> = named.collect();
    ensure!(files.len() >= 3, "the overview names only {files:?}");
    let mut bytes = browser.packed("/console/").await?;
    for file in files {
        bytes += browser.packed(file).await?;
    }
    Ok(bytes)
}

/// Every page over the history; the 95th percentile of each.
async fn open_everything(
    server: &Server,
    session: &Session,
    setting: &Setting,
    opened: usize,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut caller = Caller::open(server).await?;
    let event = one_of(&mut caller, "/v1/events?dead_letters=true&limit=1", "id").await?;
    let delivery = one_of(&mut caller, "/v1/dead-letters?limit=1", "id").await?;
    let of = "/console/t/default";
    let Setting { dead, some, waiting, .. } = setting;
    let paths = [
        "/console/".to_owned(),
        "/console/?range=7d".to_owned(),
        of.to_owned(),
        format!("{of}/events"),
        format!("{of}/events?type=type.7"),
        format!("{of}/events?attribute=region%3Dr3"),
        format!("{of}/events?dead_letters=true"),
        format!("{of}/events/{event}"),
        format!("{of}/events/new"),
        format!("{of}/deliveries"),
        format!("{of}/deliveries?state=pending"),
        format!("{of}/deliveries?state=dead&failure=connect_failed"),
        format!("{of}/deliveries?subscription={some}"),
        format!("{of}/deliveries/{delivery}"),
        format!("{of}/dead-letters"),
        format!("{of}/dead-letters/redrive"),
        format!("{of}/subscriptions"),
        format!("{of}/subscriptions/{dead}"),
        format!("{of}/subscriptions/{waiting}"),
        format!("{of}/jobs"),
        format!("{of}/topics"),
        format!("{of}/topics/history-1"),
        format!("{of}/certificates"),
        "/console/tenants".to_owned(),
        "/console/realms".to_owned(),
        "/console/keys".to_owned(),
        "/console/event-types".to_owned(),
        "/console/audit".to_owned(),
        "/console/push".to_owned(),
        "/console/system".to_owned(),
        "/console/system/config".to_owned(),
        "/console/system/explain".to_owned(),
    ];
    say(&format!("opening {} pages, {opened} times each", paths.len()));
    let mut browser = session.connect().await?;
    let mut pages = BTreeMap::new();
    for path in paths {
        let name = path
            .replace(dead, "DEAD")
            .replace(some, "SOME")
            .replace(waiting, "WAITING")
            .replace(&event, "EVENT")
            .replace(&delivery, "DELIVERY");
        pages.insert(name, p95(&mut browser, &path, opened).await?);
    }
    Ok(pages)
}

async fn p95(browser: &mut Connection, path: &str, opened: usize) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(opened);
    for _ in 0..opened {
        let began = Instant::now();
        browser.packed(path).await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[opened * 95 / 100])
}

/// Tabs that stay open.
struct Tabs {
    tasks: tokio::task::JoinSet<anyhow::Result<()>>,
    told: Arc<Told>,
}

impl Tabs {
    fn open(people: &[Session]) -> Self {
        let told = Arc::new(Told::default());
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..TABS {
            let path = if number % 2 == 0 { "/console/" } else { "/console/t/default" };
            let session = people[number / TABS_EACH].clone();
            tasks.spawn(stay(session, path.to_owned(), Arc::clone(&told)));
        }
        Self { tasks, told }
    }

    /// Closes them; the bytes and updates they were sent. One that ended by itself was no live tab.
    async fn close(mut self) -> anyhow::Result<(u64, u64)> {
        if let Some(ended) = self.tasks.try_join_next() {
            ended??;
        }
        self.tasks.shutdown().await;
        let Told { bytes, updates } = &*self.told;
        Ok((bytes.load(Ordering::Relaxed), updates.load(Ordering::Relaxed)))
    }
}

/// What memory one of them costs while nothing happens.
async fn memory(server: &Server, people: &[Session]) -> anyhow::Result<f64> {
    let before = server.rss_mib();
    let tabs = Tabs::open(people);
    // Long enough for each to have been told something.
    progress::wait(Duration::from_secs(8)).await;
    let with = server.rss_mib();
    tabs.close().await?;
    Ok((with - before).max(0.0) * 1_048_576.0 / TABS as f64)
}

/// What one phase came to.
#[derive(Clone, Copy)]
struct Phase {
    /// Deliveries per second.
    per_s: f64,
    /// Processor time of the server for one of them, in microseconds.
    cpu_us: f64,
    lost: i64,
}

struct Beside {
    with: Phase,
    without: Phase,
    bytes_per_s: f64,
    updates: u64,
    lost: i64,
}

/// As much as the server can take, with the tabs and without, in turns; the medians.
async fn throughput(
    args: &Args,
    bench: &Bench<'_>,
    server: &Server,
    people: &[Session],
) -> anyhow::Result<Beside> {
    let topics = (0..history::TOPICS).map(|topic| format!("history-{topic}")).collect();
    let target = bench.target(server, topics, 1)?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let (mut bytes, mut updates, mut lost, mut seconds) = (0, 0, 0, 0.0);
    for turn in 1..=TURNS {
        for open in [turn % 2 == 0, turn % 2 != 0] {
            let tabs = open.then(|| Tabs::open(people));
            let open = tabs.as_ref().map_or(0, |_| TABS);
            say(&format!("as much as it can take with {open} tabs open, {turn} of {TURNS}"));
            let began = Instant::now();
            let phase = saturate(args, bench, server, &target).await?;
            lost += phase.lost;
            match tabs {
                None => without.push(phase),
                Some(tabs) => {
                    seconds += began.elapsed().as_secs_f64();
                    let told = tabs.close().await?;
                    (bytes, updates) = (bytes + told.0, updates + told.1);
                    with.push(phase);
                }
            }
        }
    }
    let median = |runs: &mut Vec<Phase>| {
        runs.sort_by(|a, b| a.per_s.total_cmp(&b.per_s));
        runs[runs.len() / 2]
    };
    ensure!(updates > 0, "no tab was told anything");
    Ok(Beside {
        with: median(&mut with),
        without: median(&mut without),
        bytes_per_s: bytes as f64 / seconds.max(0.001) / TABS as f64,
        updates,
        lost,
    })
}

/// Publishes as fast as the server answers, for a phase; what is waiting then is delivered before the clock stops.
async fn saturate(
    args: &Args,
    bench: &Bench<'_>,
    server: &Server,
    target: &Target,
) -> anyhow::Result<Phase> {
    let publishers = args.publishers.clamp(1, 64);
    let start = || Load::start(target, publishers, None, &bench.numbers, &bench.sink);
    let before = bench.sink.arrived();
    let warm = start();
    tokio::time::sleep(WARM_UP).await;
    let (accepted, _) = warm.stop().await?;
    bench.sink.wait_for(before + accepted, PATIENCE).await;
    let (arrived, began, cpu) = (bench.sink.arrived(), bench.sink.now(), server.cpu());
    let load = start();
    progress::wait(args.phase()).await;
    let (accepted, _) = load.stop().await?;
    bench.sink.wait_for(arrived + accepted, PATIENCE).await;
    let spent = server.cpu().saturating_sub(cpu).as_secs_f64() * 1e6;
    let delivered = bench.sink.arrived() - arrived;
    ensure!(delivered > 0, "nothing was delivered");
    let seconds = bench.sink.last().saturating_sub(began) as f64 / 1e6;
    Ok(Phase {
        per_s: delivered as f64 / seconds.max(0.001),
        cpu_us: spent / delivered as f64,
        lost: accepted as i64 - delivered as i64,
    })
}
