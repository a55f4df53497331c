//! The wall clock, the only one in production.

use std::time::{SystemTime, UNIX_EPOCH};

use posthorn_domain::{Clock, Timestamp};

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "this is where the system is asked")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}
