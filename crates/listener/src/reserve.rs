//! Connections beyond those there may be: a few, for a moment, for what operators ask.
//!
//! # Theory of operation
//! What a connection is for is known only when its first head has been read. So when all places are
//! taken, or all of one address, a connection is let in all the same: into a reserve in which one
//! request is answered, quickly, and only when it asks for what the reserve serves (health, readiness,
//! metrics). Whoever asks for something else is told that there is no place.
//!
//! The reserve is never full: a newcomer drives out the oldest connection, or the oldest of its own
//! address when that has its part of the reserve. A probe sends its head at once and is gone within a
//! moment; those who sit and say nothing lose their place to it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::peer::source;

/// How long a head of a connection in the reserve may take.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(2);
/// How long such a connection may take in all. Metrics are some hundred kilobytes at most.
pub(crate) const LIFE: Duration = Duration::from_secs(5);
/// The part of the reserve that one address may have.
const PER_ADDRESS: usize = 4;

/// The connections of a reserve, oldest first.
#[derive(Debug)]
pub(crate) struct Reserve {
    max: usize,
    open: VecDeque<(IpAddr, AbortHandle)>,
}

impl Reserve {
    /// One of so many places.
    pub(crate) fn new(max: usize) -> Self {
        Self { max: max.max(1), open: VecDeque::new() }
    }

    /// Makes room for one of this address.
    pub(crate) fn make_room(&mut self, address: IpAddr) {
        let address = source(address);
        self.open.retain(|(_, task)| !task.is_finished());
        let own = self.open.iter().filter(|(other, _)| *other == address).count();
        let oldest = if own >= (self.max / PER_ADDRESS).max(1) {
            self.open.iter().position(|(other, _)| *other == address)
        } else if self.open.len() >= self.max {
            Some(0)
        } else {
            None
        };
        if let Some((_, task)) = oldest.and_then(|place| self.open.remove(place)) {
            task.abort();
        }
    }

    pub(crate) fn enter(&mut self, address: IpAddr, task: AbortHandle) {
        self.open.push_back((source(address), task));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn the_oldest_makes_room_and_first_that_of_the_same_address() {
        let mut tasks = JoinSet::new();
        let mut reserve = Reserve::new(8);
        let mut enter = |reserve: &mut Reserve, last: u8| {
            let address = IpAddr::from([192, 0, 2, last]);
            reserve.make_room(address);
            reserve.enter(address, tasks.spawn(pending::<()>()));
        };
        for last in [1, 1, 1, 2, 3, 4] {
            enter(&mut reserve, last);
        }
        let owners = |reserve: &Reserve| -> Vec<u8> {
            let last = |address: &IpAddr| match address {
                IpAddr::V4(v4) => v4.octets()[3],
                IpAddr::V6(_) => 0,
            };
            reserve.open.iter().map(|(address, _)| last(address)).collect()
        };
        assert_eq!(owners(&reserve), [1, 1, 2, 3, 4], "a quarter of the places");
        for last in [5, 6, 7, 8] {
            enter(&mut reserve, last);
        }
        assert_eq!(owners(&reserve), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
