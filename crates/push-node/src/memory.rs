//! How much of messages the node keeps in memory, over all agents.
//!
//! An agent that takes messages and never acknowledges them costs a window of them. Many such agents
//! together must not cost more than the node has: beyond the limit, messages go to the store.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The most that is kept.
const BYTES_MAX: usize = 256 * 1024 * 1024;

/// What is kept at the moment.
#[derive(Default)]
pub(crate) struct Memory(AtomicUsize);

/// A part of what is kept, until it is dropped.
pub(crate) struct Held<'a> {
    memory: &'a Memory,
    bytes: usize,
}

impl Memory {
    /// Whether nothing more should be kept.
    pub(crate) fn is_full(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= BYTES_MAX
    }

    /// What one holder keeps has changed.
    pub(crate) fn changed(&self, before: usize, now: usize) {
        if now > before {
            self.0.fetch_add(now - before, Ordering::Relaxed);
        } else if before > now {
            self.0.fetch_sub(before - now, Ordering::Relaxed);
        }
    }

    /// Keeps something for a while.
    pub(crate) fn hold(&self, bytes: usize) -> Held<'_> {
        self.changed(0, bytes);
        Held { memory: self, bytes }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.memory.changed(self.bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_counted_until_it_is_let_go() {
        let memory = Memory::default();
        memory.changed(0, BYTES_MAX - 10);
        assert!(!memory.is_full());
        let held = memory.hold(10);
        assert!(memory.is_full());
        drop(held);
        memory.changed(BYTES_MAX - 10, 5);
        assert!(!memory.is_full());
        assert_eq!(memory.0.load(Ordering::Relaxed), 5);
    }
}
