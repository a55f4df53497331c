//! How many requests outside of any delivery may be made: tests of subscriptions and rehearsals. Each
//! makes this server connect to where its caller says and holds on to memory while it lasts, so there
//! are only so many at once, of a tenant and in all, and so many a minute.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::{Bucket, Rate, TenantId};

use crate::error::{Error, Result};

/// Under way at once, of all tenants.
const ALL_MAX: usize = 64;
/// Under way at once, of one tenant.
const TENANT_MAX: usize = 8;
/// Tenants whose rate is remembered at once; beyond, they share.
const TENANTS_MAX: usize = 100_000;
/// How long to wait when too many are under way.
const BUSY_WAIT: Duration = Duration::from_secs(1);

/// Who makes how many.
pub(crate) struct Trials {
    rate: Option<Rate>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    all: usize,
    /// Only tenants with something under way.
    running: HashMap<TenantId, usize>,
    rates: HashMap<TenantId, Bucket>,
    rest: Bucket,
}

/// One that is under way, until it is dropped.
pub(crate) struct Trial {
    state: Arc<Mutex<State>>,
    tenant: TenantId,
}

impl Trials {
    /// So many a minute of each tenant; zero means no such limit.
    pub(crate) fn new(a_minute: u32) -> Self {
        Self { rate: Rate::new(a_minute, Duration::from_secs(60)), state: Arc::default() }
    }

    /// Begins one at `now` (nanoseconds of any one clock), or says how long to wait for it.
    pub(crate) fn begin(&self, tenant: TenantId, now: u64) -> Result<Trial> {
        let mut state = self.state.lock();
        let running = state.running.get(&tenant).copied().unwrap_or_default();
        if state.all >= ALL_MAX || running >= TENANT_MAX {
            let what = "too many tests of subscriptions are running";
            return Err(Error::TooMany { what, wait: BUSY_WAIT });
        }
        if let Some(rate) = self.rate {
            state.take(tenant, rate, now).map_err(|wait| Error::TooMany {
                what: "too many tests of subscriptions were started within a minute",
                wait,
            })?;
        }
        state.all += 1;
        *state.running.entry(tenant).or_default() += 1;
        Ok(Trial { state: Arc::clone(&self.state), tenant })
    }
}

impl State {
    fn take(&mut self, tenant: TenantId, rate: Rate, now: u64) -> Result<(), Duration> {
        if self.rates.len() >= TENANTS_MAX && !self.rates.contains_key(&tenant) {
            self.rates.retain(|_, bucket| !bucket.is_full(now));
            if self.rates.len() >= TENANTS_MAX {
                return self.rest.take(rate, now);
            }
        }
        self.rates.entry(tenant).or_default().take(rate, now)
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.all -= 1;
        if let Some(running) = state.running.get_mut(&self.tenant) {
            *running -= 1;
            if *running == 0 {
                state.running.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use posthorn_domain::Timestamp;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn tenant(n: u128) -> TenantId {
        TenantId::new(Timestamp::from_millis(1), n)
    }

    #[test]
    fn only_so_many_are_under_way_at_once() {
        let trials = Trials::new(0);
        let mut open: Vec<Trial> =
            (0..TENANT_MAX).map(|_| trials.begin(tenant(1), 0).expect("room")).collect();
        assert!(matches!(trials.begin(tenant(1), 0), Err(Error::TooMany { .. })));
        for n in 2..=8 {
            open.extend((0..TENANT_MAX).map(|_| trials.begin(tenant(n), 0).expect("room")));
        }
        assert_eq!(open.len(), ALL_MAX);
        assert!(matches!(trials.begin(tenant(9), 0), Err(Error::TooMany { .. })));
        open.truncate(ALL_MAX - 1);
        drop(trials.begin(tenant(9), 0).expect("room again"));
        open.clear();
        assert_eq!(trials.state.lock().running.len(), 0, "nothing is left of those that ended");
        assert_eq!(trials.state.lock().all, 0);
    }

    #[test]
    fn each_tenant_has_its_minute_and_what_is_refused_costs_nothing() {
        let trials = Trials::new(2);
        for who in [1, 2] {
            for _ in 0..2 {
                drop(trials.begin(tenant(who), 0).expect("within the rate"));
            }
            match trials.begin(tenant(who), 0).err() {
                Some(Error::TooMany { wait, .. }) => assert_eq!(wait, Duration::from_secs(30)),
                other => panic!("over the rate, not {other:?}"),
            }
        }
        drop(trials.begin(tenant(1), 30 * SECOND).expect("half a minute later"));
    }
}
