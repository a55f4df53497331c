//! Chance that a seed repeats: splitmix64, small enough to never change under us.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A seeded source of chance.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for a part of the run, so that parts do not disturb each other.
    pub fn part(seed: u64, name: &str) -> Self {
        Self::new(hash(seed, name.as_bytes()))
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number from a range.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let width = range.end() - range.start() + 1;
        range.start() + self.roll() % width
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.roll() % 100 < chance
    }

    /// A duration between two numbers of milliseconds.
    pub fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(of.len()).ok().filter(|count| *count > 0)?;
        of.get(usize::try_from(self.roll() % count).ok()?)
    }
}

/// A number that only depends on a seed and some bytes.
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut value = seed ^ 0xCBF2_9CE4_8422_2325;
    for byte in bytes {
        value = (value ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    mix(value)
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
