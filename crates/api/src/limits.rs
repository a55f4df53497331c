//! Limits on who asks: addresses that show wrong keys, and tenants that probe.
//!
//! Everything is kept in memory, per node, and bounded.

use std::time::Duration;

use posthorn_domain::{Rate, TenantId, setting};
use posthorn_engine::Refused;
use posthorn_listener::{BodyError, Peer, Table};
use serde::Deserialize;

use crate::codes;
use crate::problem::Problem;

/// Tenants that are remembered at once; beyond, they share.
const TENANTS_MAX: usize = 100_000;

/// Knobs of the limits on who asks, a part of the section `admission` of the configuration. Zero switches
/// one off.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct LimitOptions {
    /// Requests without a valid key that one address may send in a minute.
    pub auth_failures_per_minute: u32,
    /// Redrives a minute that one tenant may begin.
    pub redrives_per_minute: u32,
    /// How long the answer to a publish that is refused because of overload is held back when its
    /// client repeats at once, so that it does not take the time of those who are served.
    #[serde(deserialize_with = "setting::time")]
    pub refusal_delay: Duration,
}

/// All limits of one API.
pub(crate) struct Limits {
    redrives: Table<TenantId>,
    refusal_delay: Duration,
}

impl Limits {
    pub(crate) fn new(options: &LimitOptions) -> Self {
        let a_minute = |count| Rate::new(count, Duration::from_secs(60));
        Self {
            redrives: Table::new(a_minute(options.redrives_per_minute), TENANTS_MAX),
            refusal_delay: options.refusal_delay,
        }
    }

    /// How long the refusal of a publish is held back.
    pub(crate) fn hold(&self, peer: Option<&Peer>, now: u64) -> Duration {
        let at_once = peer.is_some_and(|peer| peer.refused(now));
        if at_once { self.refusal_delay } else { Duration::ZERO }
    }

    pub(crate) fn redrive(&self, tenant: TenantId, now: u64) -> Result<(), Problem> {
        let detail = "too many redrives were started within a minute";
        self.redrives.take(tenant, now).map_err(|wait| rate_limited(detail, wait))
    }
}

/// The answer to what comes too fast.
pub(crate) fn rate_limited(detail: &'static str, wait: Duration) -> Problem {
    Problem::new(codes::RATE_LIMITED, detail).retry_after(wait)
}

/// How long those over their quota are asked to wait: the count is put right about this often.
pub(crate) const QUOTA_WAIT: Duration = Duration::from_secs(5);
/// How long publishers wait for a disk: nothing changes there within moments.
pub(crate) const DISK_WAIT: Duration = Duration::from_secs(30);

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Overloaded => {
                let detail =
                    "the tenant publishes faster than events can be stored; nothing was done";
                Self::new(codes::OVERLOADED, detail)
            }
            Refused::Quota { pending, quota } => {
                let detail =
                    format!("the tenant has {pending} unfinished deliveries; the limit is {quota}");
                Self::new(codes::QUOTA_EXCEEDED, detail).retry_after(QUOTA_WAIT)
            }
            Refused::DiskFull => {
                let detail = "the server's disk is nearly full; deliveries continue, publishes \
                              are refused";
                Self::new(codes::DISK_FULL, detail).retry_after(DISK_WAIT)
            }
        }
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        let code = match error {
            BodyError::TooLarge { .. } => codes::PAYLOAD_TOO_LARGE,
            BodyError::TooSlow { .. } => codes::REQUEST_TIMEOUT,
            BodyError::BrokeOff => codes::INVALID_JSON,
            BodyError::ShareTaken => codes::TOO_MANY_BODIES,
            BodyError::NoRoom => codes::BODIES_FULL,
            BodyError::Encoded | BodyError::NotJson => codes::UNSUPPORTED_MEDIA_TYPE,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn only_those_who_repeat_at_once_are_held_back() {
        let hold = Duration::from_millis(20);
        let options = LimitOptions { refusal_delay: hold, ..LimitOptions::default() };
        let limits = Limits::new(&options);
        let peer = || Peer::new([192, 0, 2, 1].into(), None);
        let (one, other) = (peer(), peer());
        assert_eq!(limits.hold(Some(&one), SECOND), Duration::ZERO);
        assert_eq!(limits.hold(Some(&other), SECOND), Duration::ZERO);
        assert_eq!(limits.hold(Some(&one), SECOND + SECOND / 100), hold);
        assert_eq!(limits.hold(Some(&one), SECOND * 2), Duration::ZERO);
        assert_eq!(limits.hold(None, SECOND), Duration::ZERO);
    }

    #[test]
    fn what_is_refused_at_the_door_is_counted_in_the_same_series() {
        let (listener, engine) = (
            posthorn_listener::metrics::ADMISSION_REFUSED,
            posthorn_engine::metrics::ADMISSION_REFUSED,
        );
        assert_eq!(listener, engine);
    }
}
