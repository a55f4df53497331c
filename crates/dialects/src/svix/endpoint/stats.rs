//! How many attempts of an endpoint came to what, over a time. Read from figures that are kept by the hour.

use posthorn_domain::{RollupScope, RollupStep, Timestamp};
use serde_json::json;

use super::super::call::{Answer, Call, ok};
use super::super::failure::Failure;

const MINUTE: i64 = 60_000;
/// The longest time that is counted, with a little for clocks that differ.
const WINDOW: i64 = 28 * 24 * 60 * MINUTE;
const GRACE: i64 = 5 * MINUTE;

/// `GET …/stats` and `GET …/attempt-stats`. The first has two more members.
pub(in super::super) async fn attempts(call: &Call, app: &str, ep: &str, whole: bool) -> Answer {
    let tenant = call.application(app)?;
    let view = call.receiver(tenant.id, ep)?;
    let engine = &call.service.engine;
    let now = engine.now().as_millis();
    let until = call.query.time("until")?.map_or(now, Timestamp::as_millis);
    let since = call.query.time("since")?.map_or(until - WINDOW, Timestamp::as_millis);
    let refuse = |detail: &str| Err(Failure::bad_request("invalid_range", detail));
    if until > now + GRACE {
        return refuse("until must not be in the future");
    }
    if since > until || until - since > WINDOW + GRACE {
        return refuse("since must be before until, by at most 28 days");
    }
    let scope = RollupScope::Subscription(view.subscription.id);
    // Minutes are kept for two days, hours for longer.
    let step = if now - since < 47 * 60 * MINUTE { RollupStep::Minute } else { RollupStep::Hour };
    let (from, to) = (Timestamp::from_millis(since), Timestamp::from_millis(until));
    let series = engine.series(scope, step, from, to).await?;
    let (mut all, mut failed) = (0, 0);
    for (_, counts) in &series {
        all += counts.attempts();
        failed += counts.failed.iter().sum::<u64>();
    }
    let success = all.saturating_sub(failed);
    ok(&match whole {
        true => {
            json!({"success": success, "pending": 0, "sending": 0, "fail": failed, "canceled": 0})
        }
        false => json!({"success": success, "fail": failed, "canceled": 0}),
    })
}
