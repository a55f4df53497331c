//! `sim`: runs the simulator over many seeds, and shows that it finds planted bugs.
//!
//! Data goes to stdout, everything else to stderr. The exit code is 0 when nothing was violated
//! (or, with `--check-plants`, when every planted bug was found), 1 otherwise.
//!
//! Each seed runs in a worker thread. A run that turns in circles without its clock going on ends itself;
//! one that never comes back is given up by the main thread, which counts a hang for its seed, leaves
//! that thread alone and puts another in its place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use clap::Parser;
use posthorn_proof::sim::plants::{self, PLANTS, Plant};
use posthorn_proof::sim::{self, Outcome, Violation};

/// Violations printed of one summary.
const SHOWN_MAX: usize = 10;
/// How often the main thread looks for workers that do not come back.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Workers that may be given up before the whole run is: each may still use a core.
const HANGS_MAX: usize = 16;
const NO_PLANTS: &str = "no bugs can be planted in this build; build with --features plant";

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
    /// Go on after a seed with violations, or one that hangs.
    #[arg(long)]
    keep_going: bool,
    /// Seconds of real time after which a seed is said to hang. A run takes well below one.
    #[arg(long, default_value_t = 120)]
    hang_after: u64,
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
    /// Seeds that did not come back.
    hangs: Vec<u64>,
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

    /// A seed that did not come back.
    fn add_hang(&mut self, seed: u64) {
        self.seeds += 1;
        self.hangs.push(seed);
        self.first_bad = Some(self.first_bad.map_or(seed, |first| first.min(seed)));
    }

    fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.hangs.is_empty()
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
                "hash": format!("{:016x}", self.hash), "violations": violations, "hangs": self.hangs,
            });
            println!("{summary:#}");
            return;
        }
        println!(
            "{} seeds, {} events, {} deliveries, {} requests ({} repeated), {} crashes, \
             {} shard handovers, {} writes fenced, {:.0} virtual days, {wall:.1} s \
             ({:.1} seeds/s), hash {:016x}, {} violations, {} hangs",
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
            self.violations.len(),
            self.hangs.len(),
        );
        for seed in self.hangs.iter().take(SHOWN_MAX) {
            println!("HANGS seed {seed}\n  replay: {}", replay(*seed, args));
        }
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
        "cargo run --release -p posthorn-proof{feature} --bin sim -- --seed {seed} --verbose{plant}"
    )
}

fn main() -> std::process::ExitCode {
    let args = Arc::new(Args::parse());
    if args.list_plants {
        for plant in PLANTS {
            println!("{:26} {}", plant.name, plant.what);
        }
        return std::process::ExitCode::SUCCESS;
    }
    let good = if args.check_plants {
        check_plants(&args)
    } else {
        let plant = args.plant.as_deref().map(plants::find);
        if let Some(None) = plant {
            eprintln!("sim: there is no such bug; see --list-plants");
            return std::process::ExitCode::from(2);
        }
        if plant.is_some() && !cfg!(feature = "plant") {
            eprintln!("sim: {NO_PLANTS}");
            return std::process::ExitCode::from(2);
        }
        let summary = many(&args, plant.flatten(), !args.json);
        summary.print(&args);
        summary.is_clean()
    };
    // Workers that were given up are still there: nobody waits for them.
    std::process::exit(if good { 0 } else { 1 });
}

/// Plants each bug in turn. A run without any comes first: it must find nothing.
fn check_plants(args: &Arc<Args>) -> bool {
    if !cfg!(feature = "plant") {
        eprintln!("sim: {NO_PLANTS}");
        return false;
    }
    let mut all = true;
    let clean = many(args, None, false);
    clean.print(args);
    all &= clean.is_clean();
    for plant in PLANTS.iter().filter(|plant| !plant.rare) {
        let summary = many(args, Some(plant), false);
        println!("{:26} {}", plant.name, verdict(&summary, args.start));
        all &= !summary.is_clean();
    }
    all
}

fn verdict(summary: &Summary, start: u64) -> String {
    match (summary.first_bad, summary.violations.first()) {
        (Some(seed), Some(violation)) => {
            format!("found with seed {seed}, number {}: {}", seed - start + 1, violation.invariant)
        }
        (Some(seed), None) => format!("hangs with seed {seed}, number {}", seed - start + 1),
        _ => format!("nothing found in {} seeds", summary.seeds),
    }
}

/// What a worker says.
enum Word {
    /// It begins with a seed, unless it was given up.
    Begins(usize, u64),
    /// It is done with one.
    Done(usize, Box<Outcome>),
    /// There is nothing left to do.
    Idle(usize),
}

/// What the workers share.
struct Seeds {
    next: AtomicU64,
    end: u64,
    stop: AtomicBool,
    verbose: bool,
    plant: Option<&'static Plant>,
    words: Mutex<mpsc::Sender<Word>>,
}

impl Seeds {
    fn work(&self, worker: usize) {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner).clone();
        plants::set(self.plant);
        while !self.stop.load(Ordering::Relaxed) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.end || words.send(Word::Begins(worker, seed)).is_err() {
                break;
            }
            let outcome = Box::new(sim::run(seed, self.verbose));
            if words.send(Word::Done(worker, outcome)).is_err() {
                break;
            }
        }
        let _ = words.send(Word::Idle(worker));
    }
}

/// Runs all seeds on several threads; stops at the first violation unless told otherwise.
fn many(args: &Arc<Args>, plant: Option<&'static Plant>, progress: bool) -> Summary {
    let (start, count) = args.seed.map_or((args.start, args.seeds), |seed| (seed, 1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or(cores).clamp(1, count.max(1) as usize);
    let (words, heard) = mpsc::channel();
    let seeds = Arc::new(Seeds {
        next: AtomicU64::new(start),
        end: start + count,
        stop: AtomicBool::new(false),
        verbose: args.verbose,
        plant,
        words: Mutex::new(words),
    });
    let hire = |worker: usize| {
        let seeds = Arc::clone(&seeds);
        std::thread::spawn(move || seeds.work(worker));
    };
    let began = wall();
    let mut summary = Summary::default();
    let mut busy: BTreeMap<usize, Option<(u64, Instant)>> = BTreeMap::new();
    for worker in 0..jobs {
        busy.insert(worker, None);
        hire(worker);
    }
    let mut hired = jobs;
    let hang_after = Duration::from_secs(args.hang_after.max(1));
    while !busy.is_empty() {
        match heard.recv_timeout(LOOK_EVERY) {
            Ok(Word::Begins(worker, seed)) if busy.contains_key(&worker) => {
                busy.insert(worker, Some((seed, wall())));
            }
            // Late words of a worker that was given up do not count twice.
            Ok(Word::Done(worker, outcome)) if busy.contains_key(&worker) => {
                busy.insert(worker, None);
                show(args, &outcome);
                if !outcome.violations.is_empty() && !args.keep_going {
                    seeds.stop.store(true, Ordering::Relaxed);
                }
                summary.add(&outcome);
                if progress && summary.seeds.is_multiple_of(50) {
                    eprintln!("{} of {count} seeds", summary.seeds);
                }
            }
            Ok(Word::Begins(..) | Word::Done(..)) => {}
            Ok(Word::Idle(worker)) => drop(busy.remove(&worker)),
            Err(_) => {}
        }
        let stuck: Vec<(usize, u64)> = busy
            .iter()
            .filter_map(|(worker, under_way)| Some((*worker, (*under_way)?)))
            .filter(|(_, (_, since))| since.elapsed() >= hang_after)
            .map(|(worker, (seed, _))| (worker, seed))
            .collect();
        for (worker, seed) in stuck {
            eprintln!("seed {seed} does not come back; replay: {}", replay(seed, args));
            busy.remove(&worker);
            summary.add_hang(seed);
            if args.keep_going && summary.hangs.len() < HANGS_MAX {
                busy.insert(hired, None);
                hire(hired);
                hired += 1;
            } else {
                seeds.stop.store(true, Ordering::Relaxed);
            }
        }
    }
    summary.wall = began.elapsed();
    summary.violations.sort_by_key(|violation| violation.seed);
    summary.hangs.sort_unstable();
    summary
}

fn show(args: &Args, outcome: &Outcome) {
    for line in &outcome.lines {
        println!("{line}");
    }
    if args.verbose {
        println!("seed {} hash {:016x}", outcome.seed, outcome.hash);
    }
}

/// How long the whole takes is the one thing here that is measured in real time.
fn wall() -> Instant {
    Instant::now()
}
