//! `sim`: runs the simulator over many seeds, and shows that it finds planted bugs.
//!
//! Data goes to stdout, everything else to stderr. The exit code is 0 when nothing was violated
//! (or, with `--check-plants`, when every planted bug was found), 1 otherwise.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use posthorn_testkit::sim::{self, Outcome, Violation};

/// Violations printed of one summary.
const SHOWN_MAX: usize = 10;

/// Runs the real engine on virtual time, with a store that fails and receivers that misbehave.
#[derive(Parser)]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    start: u64,
    /// Run this one seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// Plant this bug (needs the feature `plant`).
    #[arg(long)]
    plant: Option<String>,
    /// List the bugs that can be planted.
    #[arg(long)]
    list_plants: bool,
    /// Plant every bug in turn; each must be found within `--seeds` seeds.
    #[arg(long)]
    check_plants: bool,
    /// The summary as JSON.
    #[arg(long)]
    json: bool,
    /// The whole trace of each run (best with --seed).
    #[arg(long)]
    verbose: bool,
    /// Threads; as many as there are cores by default.
    #[arg(long)]
    jobs: Option<usize>,
    /// Go on after a seed with violations.
    #[arg(long)]
    keep_going: bool,
}

/// What came of many runs.
#[derive(Default)]
struct Summary {
    seeds: u64,
    events: u64,
    deliveries: u64,
    requests: u64,
    crashes: u64,
    handovers: u64,
    fenced: u64,
    repeats: u64,
    virtual_ms: u64,
    wall: Duration,
    violations: Vec<Violation>,
    first_bad: Option<u64>,
    hash: u64,
}

impl Summary {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.events += outcome.tally.events;
        self.deliveries += outcome.tally.deliveries;
        self.requests += outcome.tally.requests;
        self.crashes += outcome.crashes;
        self.handovers += outcome.tally.handovers;
        self.fenced += outcome.tally.fenced;
        self.repeats += outcome.tally.repeats;
        self.virtual_ms += outcome.virtual_ms;
        // The order in which threads finish must not matter.
        self.hash = self.hash.wrapping_add(outcome.hash);
        if !outcome.violations.is_empty() {
            let first = self.first_bad.map_or(outcome.seed, |first| first.min(outcome.seed));
            self.first_bad = Some(first);
            self.violations.extend(outcome.violations.iter().cloned());
        }
    }

    fn print(&self, args: &Args) {
        let wall = self.wall.as_secs_f64();
        if args.json {
            let violations: Vec<_> = self
                .violations
                .iter()
                .map(|v| {
                    serde_json::json!({
                        "invariant": v.invariant.to_string(), "seed": v.seed,
                        "at": v.at.to_string(), "what": v.what, "replay": replay(v.seed, args),
                    })
                })
                .collect();
            let summary = serde_json::json!({
                "seeds": self.seeds, "events": self.events, "deliveries": self.deliveries,
                "requests": self.requests, "crashes": self.crashes,
                "handovers": self.handovers, "fenced": self.fenced, "repeats": self.repeats,
                "virtual_days": self.virtual_ms as f64 / 86_400_000.0, "wall_seconds": wall,
                "hash": format!("{:016x}", self.hash), "violations": violations,
            });
            println!("{summary:#}");
            return;
        }
        println!(
            "{} seeds, {} events, {} deliveries, {} requests ({} repeated), {} crashes, \
             {} shard handovers, {} writes fenced, {:.0} virtual days, {wall:.1} s \
             ({:.1} seeds/s), hash {:016x}",
            self.seeds,
            self.events,
            self.deliveries,
            self.requests,
            self.repeats,
            self.crashes,
            self.handovers,
            self.fenced,
            self.virtual_ms as f64 / 86_400_000.0,
            self.seeds as f64 / wall.max(0.001),
            self.hash,
        );
        for violation in self.violations.iter().take(SHOWN_MAX) {
            println!("VIOLATED {violation}\n  replay: {}", replay(violation.seed, args));
        }
        if self.violations.len() > SHOWN_MAX {
            println!("… and {} more", self.violations.len() - SHOWN_MAX);
        }
    }
}

fn replay(seed: u64, args: &Args) -> String {
    let (feature, plant) = match &args.plant {
        Some(plant) => (" --features plant", format!(" --plant {plant}")),
        None => ("", String::new()),
    };
    format!(
        "cargo run --release -p posthorn-testkit{feature} --bin sim -- --seed {seed} --verbose{plant}"
    )
}

fn main() -> std::process::ExitCode {
    let args = Arc::new(Args::parse());
    if args.list_plants {
        for name in plants::names() {
            println!("{name}");
        }
        return std::process::ExitCode::SUCCESS;
    }
    let good = if args.check_plants {
        check_plants(&args)
    } else {
        if let Some(name) = &args.plant
            && let Err(problem) = plants::check(name)
        {
            eprintln!("sim: {problem}");
            return std::process::ExitCode::from(2);
        }
        let summary = many(&args, args.plant.as_deref(), !args.json);
        summary.print(&args);
        summary.violations.is_empty()
    };
    if good { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

/// Plants each bug in turn. A run without any comes first: it must find nothing.
fn check_plants(args: &Arc<Args>) -> bool {
    let names = plants::names();
    if names.is_empty() {
        eprintln!("sim: no bugs can be planted; build with --features plant");
        return false;
    }
    let mut all = true;
    let clean = many(args, None, false);
    println!("{:26} {}", "(none)", verdict(&clean, args.start));
    all &= clean.violations.is_empty();
    for name in names {
        let summary = many(args, Some(name), false);
        println!("{name:26} {}", verdict(&summary, args.start));
        all &= !summary.violations.is_empty();
    }
    all
}

fn verdict(summary: &Summary, start: u64) -> String {
    match (summary.first_bad, summary.violations.first()) {
        (Some(seed), Some(violation)) => {
            format!("found with seed {seed}, number {}: {}", seed - start + 1, violation.invariant)
        }
        _ => format!("nothing found in {} seeds", summary.seeds),
    }
}

/// Runs all seeds on several threads; stops at the first violation unless told otherwise.
fn many(args: &Arc<Args>, plant: Option<&str>, progress: bool) -> Summary {
    let (start, count) = args.seed.map_or((args.start, args.seeds), |seed| (seed, 1));
    let next = AtomicU64::new(start);
    let stop = AtomicBool::new(false);
    let summary = Mutex::new(Summary::default());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or(cores).clamp(1, count.max(1) as usize);
    let began = wall();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                plants::set(plant);
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= start + count {
                        break;
                    }
                    let outcome = sim::run(seed, args.verbose);
                    for line in &outcome.lines {
                        println!("{line}");
                    }
                    if args.verbose {
                        println!("seed {seed} hash {:016x}", outcome.hash);
                    }
                    if !outcome.violations.is_empty() && !args.keep_going {
                        stop.store(true, Ordering::Relaxed);
                    }
                    let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
                    summary.add(&outcome);
                    if progress && summary.seeds.is_multiple_of(50) {
                        eprintln!("{} of {count} seeds", summary.seeds);
                    }
                }
            });
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.wall = began.elapsed();
    summary.violations.sort_by_key(|violation| violation.seed);
    summary
}

/// How long the whole takes is the one thing here that is measured in real time.
fn wall() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(feature = "plant")]
mod plants {
    use posthorn_engine::plant::{self, Plant};

    fn find(name: &str) -> Option<Plant> {
        Plant::ALL.iter().copied().find(|plant| plant.name() == name)
    }

    pub(super) fn names() -> Vec<&'static str> {
        Plant::ALL.iter().map(|plant| plant.name()).collect()
    }

    pub(super) fn check(name: &str) -> Result<(), String> {
        find(name).map(drop).ok_or_else(|| format!("there is no bug `{name}`; see --list-plants"))
    }

    pub(super) fn set(name: Option<&str>) {
        plant::set(name.and_then(find));
    }
}

#[cfg(not(feature = "plant"))]
mod plants {
    pub(super) fn names() -> Vec<&'static str> {
        Vec::new()
    }

    pub(super) fn check(_: &str) -> Result<(), String> {
        Err("no bugs can be planted; build with --features plant".to_owned())
    }

    pub(super) fn set(_: Option<&str>) {}
}
