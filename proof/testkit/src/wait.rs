//! Waiting for what happens in other processes and threads, with one patience for all tests.

use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a busy machine, short enough to notice a hang.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Asks until there is an answer.
#[track_caller]
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} did not come");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Asks until it is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, || is_so().then_some(()));
}
