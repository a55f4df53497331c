//! Clocks for tests: the wall, one that goes with tokio's time and can be set, one that stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use posthorn_domain::{Clock, Timestamp};
use tokio::time::Instant;

/// The day on which virtual clocks start: 2023-11-14T22:13:20Z.
const START: i64 = 1_700_000_000_000;

/// How long ago 1970 is, by the system's clock.
#[expect(clippy::disallowed_methods, reason = "the program under test has the system's clock too")]
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

/// The system's clock, for what lives in real time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wall;

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(millis(since_1970()))
    }
}

/// A fixed day plus tokio's time, which tests pause; it can be set while it runs.
#[derive(Debug)]
pub struct VirtualClock {
    begun: Instant,
    ahead: AtomicI64,
    /// How far each look moves it on.
    step: i64,
}

impl VirtualClock {
    /// One that goes as tokio's time does.
    pub fn start() -> Arc<Self> {
        Arc::new(Self { begun: Instant::now(), ahead: AtomicI64::new(0), step: 0 })
    }

    /// One that also moves on by a millisecond with every look at it, as a real one may.
    pub fn restless() -> Arc<Self> {
        Arc::new(Self { begun: Instant::now(), ahead: AtomicI64::new(0), step: 1 })
    }

    /// Sets it so far before what it would show by itself.
    pub fn ahead(&self, by: Duration) {
        self.ahead.store(millis(by), Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let ahead = self.ahead.fetch_add(self.step, Ordering::Relaxed);
        Timestamp::from_millis(START + millis(self.begun.elapsed()) + ahead)
    }
}

/// A clock that stands until it is set, in milliseconds.
#[derive(Debug)]
pub struct StillClock(AtomicI64);

impl StillClock {
    /// One that shows this.
    pub fn at(millis: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(millis)))
    }

    /// Sets it.
    pub fn set(&self, millis: i64) {
        self.0.store(millis, Ordering::Relaxed);
    }
}

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).expect("not that long")
}
