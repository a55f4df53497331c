//! One target, many inputs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::fuzz::mutation::{Dice, mutate};
use crate::fuzz::targets::Target;

/// Accepted mutations kept as further seeds.
const KEPT_MAX: usize = 512;
/// Inputs between two looks at the clock.
const BETWEEN_LOOKS: u64 = 64;

/// When to stop. Whatever comes first.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Mutations tried.
    pub mutations: u64,
    /// Time taken.
    pub time: Duration,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Inputs given to the target.
    pub inputs: u64,
    /// Those it accepted, as opposed to refused.
    pub accepted: u64,
}

/// An input for which an assertion of the target does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The input.
    pub input: Vec<u8>,
    /// What the assertion said.
    pub said: String,
    /// Which mutation it was; 0 for a seed.
    pub mutation: u64,
}

/// Gives a target all its seeds and then mutations of them. The same seed gives the same inputs in
/// the same order.
pub fn run(target: &Target, seeds: &[Vec<u8>], seed: u64, limits: Limits) -> Result<Ran, Broken> {
    let mut ran = Ran::default();
    let mut seeds = seeds.to_vec();
    for input in &seeds {
        ran.accepted += u64::from(try_one(target, input, 0)?);
        ran.inputs += 1;
    }
    let own = seeds.len();
    let mut dice = Dice::new(seed);
    let began = Instant::now();
    for mutation in 1..=limits.mutations {
        if mutation % BETWEEN_LOOKS == 0 && began.elapsed() >= limits.time {
            break;
        }
        let mut input = seeds[dice.below(seeds.len())].clone();
        mutate(&mut input, &seeds, target.words, &mut dice);
        ran.inputs += 1;
        if try_one(target, &input, mutation)? {
            ran.accepted += 1;
            // The oldest of those found makes room; the target's own seeds stay.
            if seeds.len() < own + KEPT_MAX {
                seeds.push(input);
            } else {
                let place = own + dice.below(KEPT_MAX);
                seeds[place] = input;
            }
        }
    }
    Ok(ran)
}

fn try_one(target: &Target, input: &[u8], mutation: u64) -> Result<bool, Broken> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|panic| {
        let said = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        Broken { input: input.to_vec(), said, mutation }
    })
}
