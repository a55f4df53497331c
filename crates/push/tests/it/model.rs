//! Many sessions, two nodes, one store and dice: everything that was accepted arrives.
//!
//! Each thing that takes time in the world (a question to the store and its answer, a step of a post,
//! the saving of what a session left behind) is a thing that waits here, and the dice say which goes
//! on next. A seed gives the same run every time.

mod plan;
mod world;

use plan::{Plan, Stats};
use posthorn_push::session::{AckMode, Options};
use world::run;

fn options(window: u16, batch: u16, ack: AckMode) -> Options {
    Options { unacked_window: window, batch, ack, stored_max: 0, ..Options::default() }
}

/// All seeds of a plan, and what happened in them together.
#[track_caller]
fn holds(plan: &Plan, seeds: u64) -> Stats {
    let mut all = Stats::default();
    for seed in 0..seeds {
        match run(plan, seed) {
            Ok(stats) => all.add(&stats),
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
    all
}

#[track_caller]
fn is_found(plan: &Plan, what: &str) {
    let broken = (0..100).find_map(|seed| run(plan, seed).err());
    let broken = broken.expect("the planted bug is found");
    assert!(broken.contains(what), "found as: {broken}");
}

#[test]
fn nothing_is_lost_repeated_or_out_of_order_with_the_usual_window() {
    let stats = holds(&Plan::new(options(128, 10, AckMode::Each)), 150);
    // The dice must have reached what they are for.
    assert!(stats.direct > 1_000 && stats.stored > 1_000, "{stats:?}");
    assert!(stats.saved > 100 && stats.replaced > 10 && stats.hints > 100, "{stats:?}");
}

#[test]
fn nothing_is_lost_repeated_or_out_of_order_with_a_small_window() {
    let stats = holds(&Plan::new(options(3, 2, AckMode::Each)), 150);
    assert!(stats.refused > 100, "{stats:?}");
}

#[test]
fn nothing_is_lost_repeated_or_out_of_order_with_a_window_of_one() {
    let stats = holds(&Plan::new(options(1, 10, AckMode::Each)), 150);
    assert!(stats.refused > 100, "{stats:?}");
}

#[test]
fn nothing_is_lost_when_batches_are_acknowledged_as_a_whole() {
    holds(&Plan::new(options(8, 3, AckMode::Batch)), 150);
}

#[test]
fn nothing_is_lost_when_the_store_fails_and_answers_get_lost() {
    let plan = Plan {
        store_fails: true,
        answers_get_lost: true,
        ..Plan::new(options(8, 3, AckMode::Each))
    };
    let stats = holds(&plan, 150);
    assert!(stats.lost_answers > 10 && stats.failures > 10, "{stats:?}");
}

#[test]
fn nothing_is_lost_when_the_store_has_one_order_for_all() {
    let plan = Plan { one_order: true, ..Plan::new(options(5, 3, AckMode::Each)) };
    holds(&plan, 150);
}

#[test]
fn a_run_can_be_had_again() {
    let plan = Plan::new(options(8, 3, AckMode::Each));
    assert_eq!(run(&plan, 7), run(&plan, 7));
    assert_ne!(run(&plan, 7), run(&plan, 8));
}

#[test]
fn hints_that_are_not_given_are_found() {
    let plan = Plan { hints: false, ..Plan::new(options(3, 2, AckMode::Each)) };
    is_found(&plan, "stuck");
}

#[test]
fn what_is_not_saved_is_found() {
    let plan = Plan { saves: false, ..Plan::new(options(8, 3, AckMode::Each)) };
    is_found(&plan, "lost");
}

#[test]
fn acks_that_are_not_kept_are_found() {
    let plan = Plan { forgets: false, ..Plan::new(options(8, 3, AckMode::Each)) };
    is_found(&plan, "again");
}

#[test]
fn entering_too_late_is_found() {
    let plan = Plan { enters_first: false, ..Plan::new(options(8, 3, AckMode::Each)) };
    is_found(&plan, "stuck");
}
