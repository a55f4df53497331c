//! Limits on who asks: addresses that show wrong keys, and tenants that probe.
//!
//! Everything is kept in memory, per node, and bounded: an address that is not known costs a slot,
//! and when all slots are taken by others, strangers share one.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthorn_domain::TenantId;
use posthorn_engine::Refused;
use posthorn_engine::admission::{Bucket, Rate};

use crate::codes;
use crate::problem::Problem;

/// Addresses that are remembered at once.
const ADDRESSES_MAX: usize = 10_000;
/// A publish that follows a refusal on the same connection within this time (in nanoseconds) came at
/// once.
const REPEATS_AT_ONCE: u64 = 50_000_000;
/// Tenants that are remembered at once; beyond, they share.
const TENANTS_MAX: usize = 100_000;

/// Knobs of the limits on who asks. Zero switches one off.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitOptions {
    /// Wrong keys a minute from one address.
    pub auth_failures: u32,
    /// Tests a minute of one tenant's subscriptions.
    pub tests: u32,
    /// Redrives a minute that one tenant may begin.
    pub redrives: u32,
    /// How long the answer to a publish that is refused because of overload is held back when its
    /// client repeats at once, so that it does not take the time of those who are served.
    pub refusal_hold: Duration,
}

/// Where a request comes from: one connection of one address.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    address: IpAddr,
    /// When a publish on it was last refused because of overload.
    refused_at: AtomicU64,
}

impl Peer {
    pub(crate) fn new(address: IpAddr) -> Self {
        Self(Arc::new(Connection { address, refused_at: AtomicU64::new(0) }))
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.0.address
    }

    /// Notes a refusal; true when the last one was just now, so that the client repeats at once
    /// although it was asked to wait.
    fn refused(&self, now: u64) -> bool {
        let last = self.0.refused_at.swap(now.max(1), Ordering::Relaxed);
        last != 0 && now.saturating_sub(last) < REPEATS_AT_ONCE
    }
}

/// What counts as one address: whoever has one IPv6 address has a whole /64 of them.
pub(crate) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let prefix = v6.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(prefix))
        }
        v4 => v4,
    }
}

/// All limits of one API.
pub(crate) struct Limits {
    failures: Table<IpAddr>,
    tests: Table<TenantId>,
    redrives: Table<TenantId>,
    refusal_hold: Duration,
}

impl Limits {
    pub(crate) fn new(options: &LimitOptions) -> Self {
        let a_minute = |count| Rate::new(count, Duration::from_secs(60));
        Self {
            failures: Table::new(a_minute(options.auth_failures), ADDRESSES_MAX),
            tests: Table::new(a_minute(options.tests), TENANTS_MAX),
            redrives: Table::new(a_minute(options.redrives), TENANTS_MAX),
            refusal_hold: options.refusal_hold,
        }
    }

    /// What somebody who showed no valid key is told: at first that, later to stop.
    pub(crate) fn failed(&self, peer: Option<&Peer>, now: u64) -> Problem {
        let Some(Peer(connection)) = peer else { return Problem::unauthorized() };
        match self.failures.take(source(connection.address), now) {
            Ok(()) => Problem::unauthorized(),
            Err(wait) => {
                let detail = "too many requests without a valid key came from this address";
                Problem::new(codes::TOO_MANY_FAILURES, detail).retry_after(wait)
            }
        }
    }

    /// How long the refusal of a publish is held back.
    pub(crate) fn hold(&self, peer: Option<&Peer>, now: u64) -> Duration {
        let at_once = peer.is_some_and(|peer| peer.refused(now));
        if at_once { self.refusal_hold } else { Duration::ZERO }
    }

    pub(crate) fn test(&self, tenant: TenantId, now: u64) -> Result<(), Problem> {
        let detail = "too many tests of subscriptions within a minute";
        self.tests.take(tenant, now).map_err(|wait| rate_limited(detail, wait))
    }

    pub(crate) fn redrive(&self, tenant: TenantId, now: u64) -> Result<(), Problem> {
        let detail = "too many redrives were begun within a minute";
        self.redrives.take(tenant, now).map_err(|wait| rate_limited(detail, wait))
    }
}

/// The answer to what comes too fast.
pub(crate) fn rate_limited(detail: &'static str, wait: Duration) -> Problem {
    Problem::new(codes::RATE_LIMITED, detail).retry_after(wait)
}

/// How long those over their quota are asked to wait: the count is put right about this often.
const QUOTA_WAIT: Duration = Duration::from_secs(5);
/// How long publishers wait for a disk: nothing changes there within moments.
const DISK_WAIT: Duration = Duration::from_secs(30);

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Overloaded => {
                let detail = "publishes come faster than they can be stored; nothing was done";
                Self::new(codes::OVERLOADED, detail)
            }
            Refused::Quota { pending, quota } => {
                let detail = format!(
                    "the tenant has {pending} unfinished deliveries of the {quota} it may have"
                );
                Self::new(codes::QUOTA_EXCEEDED, detail).retry_after(QUOTA_WAIT)
            }
            Refused::DiskFull => {
                let detail = "the server's disk is nearly full; deliveries go on, publishes wait";
                Self::new(codes::DISK_FULL, detail).retry_after(DISK_WAIT)
            }
        }
    }
}

/// One bucket for each of many, at most so many.
struct Table<K> {
    rate: Option<Rate>,
    max: usize,
    rows: Mutex<HashMap<K, Bucket>>,
    /// For those there is no place for.
    rest: Bucket,
}

impl<K: Hash + Eq> Table<K> {
    fn new(rate: Option<Rate>, max: usize) -> Self {
        Self { rate, max, rows: Mutex::default(), rest: Bucket::default() }
    }

    fn take(&self, key: K, now: u64) -> Result<(), Duration> {
        let Some(rate) = self.rate else { return Ok(()) };
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = rows.get(&key) {
            return bucket.take(rate, now);
        }
        if rows.len() >= self.max {
            // Those that have been quiet for long enough are as good as unknown.
            rows.retain(|_, bucket| !bucket.is_full(now));
        }
        if rows.len() >= self.max {
            return self.rest.take(rate, now);
        }
        rows.entry(key).or_default().take(rate, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn table(max: usize) -> Table<u32> {
        Table::new(Rate::new(2, Duration::from_secs(60)), max)
    }

    #[test]
    fn each_has_its_own_bucket_and_strangers_share_one_when_there_is_no_room() {
        let table = table(2);
        for key in [1, 2] {
            assert!(table.take(key, 0).is_ok() && table.take(key, 0).is_ok());
            assert!(table.take(key, 0).is_err());
        }
        assert!(table.take(3, 0).is_ok() && table.take(4, 0).is_ok());
        assert!(table.take(5, 0).is_err(), "the strangers' bucket is empty");
        assert_eq!(table.rows.lock().unwrap().len(), 2);
        // Later, the first two have been quiet, and there is room.
        assert!(table.take(5, 120 * SECOND).is_ok());
        assert_eq!(table.rows.lock().unwrap().len(), 1);
    }

    #[test]
    fn only_those_who_repeat_at_once_are_held_back() {
        let hold = Duration::from_millis(20);
        let limits = Limits::new(&LimitOptions { refusal_hold: hold, ..LimitOptions::default() });
        let (one, other) = (Peer::new([192, 0, 2, 1].into()), Peer::new([192, 0, 2, 1].into()));
        assert_eq!(limits.hold(Some(&one), SECOND), Duration::ZERO);
        assert_eq!(limits.hold(Some(&other), SECOND), Duration::ZERO);
        assert_eq!(limits.hold(Some(&one), SECOND + SECOND / 100), hold);
        assert_eq!(limits.hold(Some(&one), SECOND * 2), Duration::ZERO);
        assert_eq!(limits.hold(None, SECOND), Duration::ZERO);
    }

    #[test]
    fn an_address_is_a_whole_network_where_networks_are_given_out() {
        let same = |a: &str, b: &str| source(a.parse().unwrap()) == source(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:1:2:3"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }
}
