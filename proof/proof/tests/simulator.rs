//! The simulator as a test: a few seeds find nothing, and every seed replays exactly.
//!
//! CI runs many more with the release binary; see the `sim` binary's own help.

use posthorn_proof::sim;

/// Seeds that run in every test run, also in debug builds.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=16;
/// Seeds that once found something: an engine that turned in circles while its lease had run out,
/// deliveries that died of a budget which a retry by hand had replaced, one that was tried again
/// because the news of its turn came late, one of a stopped lane that overtook older ones, due ones that
/// stayed on disk while later ones filled the memory, a rate that was forgotten when another clock was ahead, a
/// retry by hand whose reply came after the success of an attempt that had been under way, a receiver's wait that was
/// shortened because another clock was ahead, and an attempt that was sent after its node had taken its leave.
const FOUND: [u64; 13] =
    [1488, 1509, 2537, 3543, 2461, 8022, 9065, 11914, 16328, 35311, 36706, 44274, 79629];

#[test]
fn nothing_is_violated() {
    for seed in SEEDS.chain(FOUND) {
        let outcome = sim::run(seed, false);
        assert!(outcome.violations.is_empty(), "{:#?}", outcome.violations);
        assert!(outcome.tally.deliveries > 0, "seed {seed} does nothing");
    }
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [6, 7, 8, 10, 12, 14, 15, 22, 23, 28, 36, 153] {
        let (first, second) = (sim::run(seed, false), sim::run(seed, false));
        assert_eq!(first.entries, second.entries, "seed {seed}");
        assert_eq!(first.hash, second.hash, "seed {seed}");
    }
    assert_ne!(sim::run(1, false).hash, sim::run(2, false).hash);
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_found() {
    use posthorn_proof::sim::plants::{find, set};
    for name in [
        "ack-before-commit",
        "retry-too-early",
        "promote-two",
        "old-secret",
        "revive-behind",
        "turns-in-circles",
        "push-without-payload",
        "replay-skips",
        "job-forgets-place",
        "told-without-cause",
        "cause-without-told",
        "told-of-told",
    ] {
        set(Some(find(name).expect("a bug that can be planted")));
        let found = (1..=20).any(|seed| !sim::run(seed, false).violations.is_empty());
        set(None);
        assert!(found, "{name}");
    }
}
