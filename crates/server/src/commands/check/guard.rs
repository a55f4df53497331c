//! `posthorn check guard`: compares the address policy with a second statement of it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use posthorn_egress::audit::{self, Difference, V6Samples};
use serde_json::json;

use crate::exit::{Code, Failure};
use crate::terminal::{self, Paint};

/// IPv4 is compared in blocks of this many addresses.
const V4_BLOCK: u64 = 1 << 16;
/// All of IPv4.
const V4_BLOCKS: u64 = (1 << 32) / V4_BLOCK;
/// IPv6 samples of one block come from one series.
const V6_BLOCK: u64 = 1 << 16;
/// Without `--all`, besides the ends of every block, every so-manyth address of it.
const SAMPLE_STEP: usize = 1_021;
/// More threads than this are of no use to anybody.
const THREADS_MAX: usize = 16;
/// Differences shown; one is too many already.
const SHOWN_MAX: usize = 20;

/// Compare the address policy with an independent statement of it
///
/// A look at the program itself: it needs no configuration, and opens nothing.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Args {
    /// Compare every IPv4 address, not a sample
    #[arg(long)]
    all: bool,
    /// How many IPv6 addresses to compare
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    v6: u64,
    /// Which IPv6 addresses; the same number gives the same ones
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

/// Runs it.
pub(super) fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let began = Instant::now();
    let work = Work::new(args);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let bar = terminal::progress(work.blocks, "blocks");
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work.run(|| bar.inc(1)));
        }
    });
    bar.finish_and_clear();
    let (v4, v6) = (work.v4.into_inner(), work.v6.into_inner());
    let mut differences = work.differences.into_inner().unwrap_or_default();
    differences.sort_by_key(|difference| difference.address);
    let seconds = began.elapsed().as_secs_f64();
    if json {
        let shown: Vec<String> = differences.iter().map(ToString::to_string).collect();
        terminal::json(&json!({
            "v4_compared": v4, "v6_compared": v6, "seed": args.seed, "seconds": seconds,
            "differences": shown,
        }))?;
    } else {
        for difference in &differences {
            terminal::data(Paint::stdout().bad(difference))?;
        }
        terminal::note(format!(
            "compared {v4} IPv4 and {v6} IPv6 addresses (seed {}) in {seconds:.1} s",
            args.seed
        ));
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Code::Failure, "the address policy is wrong")
        .hint("this is a defect in the program; do not run this build")
        .into())
}

/// Blocks to compare, taken by whoever is free: first those of IPv4, then those of IPv6.
struct Work {
    all: bool,
    v6_wanted: u64,
    seed: u64,
    blocks: u64,
    next: AtomicU64,
    v4: AtomicU64,
    v6: AtomicU64,
    differences: Mutex<Vec<Difference>>,
}

impl Work {
    fn new(args: &Args) -> Self {
        Self {
            all: args.all,
            v6_wanted: args.v6,
            seed: args.seed,
            blocks: V4_BLOCKS + args.v6.div_ceil(V6_BLOCK),
            next: AtomicU64::new(0),
            v4: AtomicU64::new(0),
            v6: AtomicU64::new(0),
            differences: Mutex::default(),
        }
    }

    fn run(&self, done: impl Fn()) {
        loop {
            let block = self.next.fetch_add(1, Ordering::Relaxed);
            if block >= self.blocks {
                return;
            }
            match block.checked_sub(V4_BLOCKS) {
                None => self.v4_block(block * V4_BLOCK),
                Some(block) => self.v6_block(block),
            }
            done();
        }
    }

    fn v4_block(&self, first: u64) {
        let address = |number: u64| Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX));
        let last = first + V4_BLOCK - 1;
        let mut compared = V4_BLOCK;
        if self.all {
            self.note(audit::compare_v4(address(first), address(last)));
        } else {
            let sample = (first..=last).step_by(SAMPLE_STEP).chain([last]);
            compared = 0;
            for number in sample {
                self.note(audit::compare(IpAddr::V4(address(number))));
                compared += 1;
            }
        }
        self.v4.fetch_add(compared, Ordering::Relaxed);
    }

    fn v6_block(&self, block: u64) {
        let count = V6_BLOCK.min(self.v6_wanted - block * V6_BLOCK);
        // Neighbouring blocks must not walk through the same series with a shift.
        let seed = self.seed ^ (block + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        for ip in V6Samples::new(seed).take(usize::try_from(count).unwrap_or(0)) {
            self.note(audit::compare(IpAddr::V6(ip)));
        }
        self.v6.fetch_add(count, Ordering::Relaxed);
    }

    fn note(&self, compared: Result<(), Difference>) {
        if let Err(difference) = compared
            && let Ok(mut differences) = self.differences.lock()
            && differences.len() < SHOWN_MAX
        {
            differences.push(difference);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_compared_once() {
        let args = Args { all: false, v6: V6_BLOCK + 10, seed: 7 };
        let work = Work { next: AtomicU64::new(V4_BLOCKS - 2), ..Work::new(&args) };
        let blocks = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    work.run(|| {
                        blocks.fetch_add(1, Ordering::Relaxed);
                    });
                });
            }
        });
        assert_eq!(blocks.into_inner(), 4);
        assert_eq!(work.v6.into_inner(), V6_BLOCK + 10);
        assert_eq!(work.v4.into_inner(), 2 * (V4_BLOCK.div_ceil(SAMPLE_STEP as u64) + 1));
        assert!(work.differences.into_inner().expect("no panic").is_empty());
        let whole = Work::new(&Args { all: true, ..args });
        whole.v4_block(10 << 24);
        assert_eq!(whole.v4.into_inner(), V4_BLOCK);
    }
}
