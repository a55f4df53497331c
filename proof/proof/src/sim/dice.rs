//! Chance, from one seed.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sha2::{Digest, Sha256};

/// One stream of chance.
pub(crate) struct Dice(StdRng);

impl Dice {
    /// The stream of a seed for one purpose. Streams of different purposes are independent, so that
    /// a new question in one place does not change the answers in another.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        Self(StdRng::from_seed(seed_bytes(seed, purpose)))
    }

    /// Uniform below `n`, which must not be zero.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0.random::<u64>() % n
    }

    /// Uniform in `from..=to`.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.0.random::<f64>() < probability
    }

    /// One of them.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// One of these words.
    pub(crate) fn word(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len() as u64) as usize]
    }

    /// A position in a list of so many, by weight.
    pub(crate) fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut at = self.below(weights.iter().sum::<u64>().max(1));
        for (index, weight) in weights.iter().enumerate() {
            if at < *weight {
                return index;
            }
            at -= weight;
        }
        0
    }

    /// Random bytes.
    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.0.random())
    }
}

/// Thirty-two bytes that depend on seed and purpose only.
pub(crate) fn seed_bytes(seed: u64, purpose: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(seed.to_be_bytes());
    hash.update(purpose.as_bytes());
    hash.finalize().into()
}
