//! Addresses that show what is nobody's: wrong keys, certificates nobody registered.

use std::net::IpAddr;
use std::time::Duration;

use posthorn_domain::Rate;
use tokio::time::Instant;

use crate::peer::{Peer, source};
use crate::table::Table;

/// Addresses that are remembered at once.
const ADDRESSES_MAX: usize = 10_000;

/// How often each address failed to say who it is. One table for all routers of a process, so that
/// guessing on one of them is also counted on the others.
#[derive(Debug)]
pub struct Failures {
    table: Table<IpAddr>,
    origin: Instant,
}

impl Failures {
    /// So many failures a minute from one address; zero switches the limit off.
    pub fn new(per_minute: u32) -> Self {
        let rate = Rate::new(per_minute, Duration::from_secs(60));
        Self { table: Table::new(rate, ADDRESSES_MAX), origin: Instant::now() }
    }

    /// Counts one failure. `Err` when there were too many: for how long to be quiet. Requests that
    /// came over no connection of ours are not counted.
    pub fn count(&self, peer: Option<&Peer>) -> Result<(), Duration> {
        let Some(peer) = peer else { return Ok(()) };
        let now = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.table.take(source(peer.address()), now)
    }
}

impl Default for Failures {
    /// Without a limit.
    fn default() -> Self {
        Self::new(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_address_is_told_to_stop_and_another_is_not() {
        let failures = Failures::new(2);
        let peer = |last| Peer::new([192, 0, 2, last].into(), None);
        for _ in 0..2 {
            assert!(failures.count(Some(&peer(1))).is_ok());
        }
        let wait = failures.count(Some(&peer(1))).expect_err("too many");
        assert!(wait <= Duration::from_secs(30), "{wait:?}");
        assert!(failures.count(Some(&peer(2))).is_ok());
        assert!(failures.count(None).is_ok());
        tokio::time::advance(wait).await;
        assert!(failures.count(Some(&peer(1))).is_ok());
    }
}
