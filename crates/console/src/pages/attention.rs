//! What needs somebody: what is wrong with the server, and the receivers that do worst.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::{
    FailureCode, NodeId, RollupScope, RollupStep, Shard, SubscriptionId, Tenant, TenantId,
    Timestamp,
};
use posthorn_store::{AttemptFilter, Listing, OutcomeFilter, Period, RollupKind};
use tokio::time::Instant;

use super::overview::Range;
use super::show::{Named, Shown, Time};
use crate::chart::Bars;
use crate::frame::home;
use crate::text;
use crate::trouble::Trouble;
use crate::visit::Visit;
use crate::words;

/// Receivers that are shown, at most.
const WORST_MAX: usize = 10;
/// The store may take so long to answer before that is worth a word.
const SLOW: Duration = Duration::from_secs(1);

/// Something that is wrong with the whole server.
pub(crate) struct Banner {
    pub(crate) what: String,
    pub(crate) since: Option<Time>,
    /// What it costs.
    pub(crate) cost: String,
    /// What happens next.
    pub(crate) next: String,
    pub(crate) href: &'static str,
    pub(crate) link: &'static str,
}

const SYSTEM: (&str, &str) = ("/console/system", "System");

/// What may be wrong with the server.
#[derive(Default)]
struct Wrong {
    on_hold: bool,
    disk_full: Option<Duration>,
    overloaded: Option<Duration>,
    /// How long the store took to answer.
    ping: Duration,
    lost: Vec<(NodeId, Duration)>,
}

/// What is wrong with the server, worst first.
pub(crate) fn banners(visit: &Visit, ping: Duration, now: Timestamp) -> Vec<Banner> {
    let engine = visit.engine();
    let wrong = Wrong {
        on_hold: engine.is_on_hold(),
        disk_full: engine.admission().disk_full_for(),
        overloaded: engine.admission().overloaded_for(),
        ping,
        lost: engine.lost_nodes(),
    };
    told(wrong, now)
}

fn told(wrong: Wrong, now: Timestamp) -> Vec<Banner> {
    let Wrong { on_hold, disk_full, overloaded, ping, lost } = wrong;
    let ago = |span: Duration| {
        let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Some(Time::new(Timestamp::from_millis(now.as_millis().saturating_sub(millis)), now))
    };
    let banner = |what: String, since, cost: &str, next: &str| Banner {
        what,
        since,
        cost: cost.to_owned(),
        next: next.to_owned(),
        href: SYSTEM.0,
        link: SYSTEM.1,
    };
    let mut banners = Vec::new();
    if on_hold {
        let what = "This server is on hold.".to_owned();
        let cost = "It accepts events and sends nothing.";
        let next = "posthorn resume lets it go on: what is due is sent then.";
        banners.push(banner(what, None, cost, next));
    }
    if let Some(span) = disk_full {
        let what = "The disk is full.".to_owned();
        let cost =
            "Every publish is refused with 503. What was accepted is kept, and deliveries go on.";
        let next = "Publishes are accepted again as soon as there is space: free some, or keep events for a shorter time \
                    (engine.event_retention).";
        banners.push(banner(what, ago(span), cost, next));
    }
    if let Some(span) = overloaded {
        let what =
            "The server is overloaded: publishes come faster than they can be stored.".to_owned();
        let cost = "Some publishes are refused with 503; well-made publishers try again.";
        let next = "It ends by itself when fewer come. If it happens often, the store needs a faster disk.";
        banners.push(banner(what, ago(span), cost, next));
    }
    if ping >= SLOW {
        let what = format!("The store is slow: it took {} to answer.", words::span(millis(ping)));
        let cost = "Publishes and deliveries wait for it.";
        banners.push(banner(what, None, cost, "Look at its load and its disk."));
    }
    for (node, span) in lost {
        let what = format!("Node {node} is gone.");
        let cost = "Deliveries of its shards were late until its leases ran out.";
        let next =
            "The other nodes have its work now. Start it again if it was not stopped on purpose.";
        banners.push(banner(what, ago(span), cost, next));
    }
    banners
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A receiver that does badly.
pub(crate) struct Worst {
    pub(crate) base: String,
    pub(crate) to: Named,
    /// Whose it is.
    pub(crate) tenant: String,
    /// Since when it only fails.
    pub(crate) since: Option<Time>,
    /// How many attempts failed, or how many deliveries wait.
    pub(crate) count: String,
    pub(crate) bars: Bars,
    pub(crate) shown: Shown,
}

/// Receivers whose attempts fail.
pub(crate) struct Failures {
    pub(crate) worst: Vec<Worst>,
    /// How many have only failed, for a while.
    pub(crate) only: usize,
    pub(crate) more: usize,
    /// Whether those of all tenants are among them: until the first figures are there, they are not.
    pub(crate) counted: bool,
}

/// Failed attempts of a tenant that are looked at.
const ATTEMPTS: usize = 200;

/// Whose attempts failed lately, of one tenant, and how many of the newest.
async fn failed_lately(
    visit: &Visit,
    tenant: TenantId,
    from: Timestamp,
) -> Result<BTreeMap<SubscriptionId, u64>, Trouble> {
    let mut found = BTreeMap::new();
    let ways =
        [OutcomeFilter::Status(300, 599), OutcomeFilter::Failures(FailureCode::ALL.to_vec())];
    for outcome in ways {
        let started = Period { from: Some(from), until: None };
        let filter = AttemptFilter { started, outcome: Some(outcome), ..AttemptFilter::default() };
        let store = visit.engine().store();
        let page = store.attempts_made(tenant, filter, Listing::newest(ATTEMPTS)).await;
        for line in page.map_err(|_| Trouble::Away)?.items {
            *found.entry(line.subscription).or_default() += 1;
        }
    }
    Ok(found)
}

/// A receiver of which something failed.
#[derive(Default)]
struct Known {
    failed: u64,
    /// Since when it only fails.
    since: Option<Timestamp>,
}

/// The receivers that fail, those with most failures in the range first: of the whole server, or of one tenant. The
/// newest attempts of the tenant that is looked at count at once, all others with the next figures.
pub(crate) async fn by_failures(
    visit: &Visit,
    (tenant, usual): (Option<TenantId>, Option<TenantId>),
    range: &Range,
    now: Timestamp,
) -> Result<Failures, Trouble> {
    let engine = visit.engine();
    let from = Timestamp::from_millis(now.as_millis() - range.millis);
    let mut known: BTreeMap<SubscriptionId, Known> = BTreeMap::new();
    let summed = visit.console.figures.get(engine, RollupKind::Subscriptions, range).await;
    for (scope, sum) in summed.iter().flat_map(|summed| &summed.scopes) {
        let failed: u64 = sum.counts.failed.iter().sum();
        if let RollupScope::Subscription(id) = scope
            && failed > 0
        {
            known.insert(*id, Known { failed, since: None });
        }
    }
    // Figures come a moment later, and not at all when a server was killed before; attempts are there at once.
    if let Some(usual) = usual {
        for (id, failed) in failed_lately(visit, usual, from).await? {
            let known = known.entry(id).or_default();
            known.failed = known.failed.max(failed);
        }
    }
    let shards: Vec<Shard> = Shard::all().collect();
    let streaks = engine.store().failing(&shards).await.map_err(|_| Trouble::Away)?;
    for failing in streaks {
        known.entry(failing.subscription).or_default().since = Some(failing.streak.since);
    }
    let mut seen: Vec<(SubscriptionId, Known, TenantId)> = Vec::with_capacity(known.len());
    for (id, known) in known {
        // What is deleted needs nobody.
        let Some(view) = engine.catalog().view(id) else { continue };
        let own = view.subscription.tenant;
        if tenant.is_none_or(|tenant| tenant == own) {
            seen.push((id, known, own));
        }
    }
    // Of those that fail as often, those first that have failed longest.
    seen.sort_by_key(|(_, known, _)| {
        (std::cmp::Reverse(known.failed), known.since.unwrap_or(Timestamp::MAX))
    });
    let only = seen.iter().filter(|(_, known, _)| known.since.is_some()).count();
    let more = seen.len().saturating_sub(WORST_MAX);
    let mut worst = Vec::new();
    for (id, Known { failed, since }, own) in seen {
        let Some(own) = visit.find_tenant(&own.to_string()) else { continue };
        let series = engine.series(RollupScope::Subscription(id), range.step, from, now).await?;
        worst.push(Worst {
            base: home(&own),
            to: Named::find(engine, own.id, id),
            tenant: text::line(&own.name, 60),
            since: since.map(|since| Time::new(since, now)),
            count: words::number(failed),
            bars: Bars::of(&series),
            shown: match since {
                Some(_) => Shown::new("bad", "failing"),
                None => Shown::new("wait", "some fail"),
            },
        });
        if worst.len() == WORST_MAX {
            break;
        }
    }
    Ok(Failures { worst, only, more, counted: summed.is_some() })
}

/// Tenants whose dead letters are looked at for the newest of all.
const DEAD_TENANTS: usize = 8;

/// The tenants that got a dead letter last, as far as the figures of the range tell, and the one that is looked at.
pub(crate) async fn lately_dead(
    visit: &Visit,
    usual: Option<&Tenant>,
    range: &Range,
) -> Vec<Tenant> {
    let engine = visit.engine();
    let summed = visit.console.figures.get(engine, RollupKind::Tenants, range).await;
    let mut found: Vec<(Timestamp, TenantId)> = Vec::new();
    for (scope, sum) in summed.iter().flat_map(|summed| &summed.scopes) {
        if let (RollupScope::Tenant(id), Some(at)) = (scope, sum.dead_at) {
            found.push((at, *id));
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    let found =
        found.into_iter().map(|(_, id)| id).filter(|id| usual.is_none_or(|own| own.id != *id));
    let others = found.filter_map(|id| engine.catalog().tenant(id).ok());
    usual.cloned().into_iter().chain(others.take(DEAD_TENANTS)).collect()
}

/// How many deliveries wait, by subscription.
type Waiting = Arc<Vec<(TenantId, SubscriptionId, u64)>>;

/// What waits, as it was counted last. Counting looks at all that waits, so it is done seldom: a hundred times as
/// long as it took is the least time between two.
#[derive(Default)]
pub(crate) struct Backlog(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    waiting: Waiting,
    at: Option<Timestamp>,
    again: Option<Instant>,
}

/// The least time between two counts.
const COUNT_EVERY: Duration = Duration::from_secs(5);
const COUNT_PART: u32 = 100;

impl Backlog {
    async fn get(&self, visit: &Visit) -> Result<(Waiting, Timestamp), Trouble> {
        let began = Instant::now();
        {
            let mut counted = self.0.lock();
            if let Some(at) = counted.at
                && counted.again.is_some_and(|again| began < again)
            {
                return Ok((Arc::clone(&counted.waiting), at));
            }
            // Others are given what is there until this count is done.
            counted.again = Some(began + COUNT_EVERY * 6);
        }
        let found = visit.engine().store().pending_by_subscription().await;
        let found = Arc::new(found.map_err(|_| Trouble::Away)?);
        let (at, took) = (visit.now(), began.elapsed());
        let mut counted = self.0.lock();
        *counted = Counted {
            waiting: Arc::clone(&found),
            at: Some(at),
            again: Some(began + (took * COUNT_PART).max(COUNT_EVERY)),
        };
        Ok((found, at))
    }
}

/// The receivers for which most waits, and when that was counted.
pub(crate) async fn by_backlog(
    visit: &Visit,
    tenant: Option<TenantId>,
    range: (RollupStep, Timestamp),
    now: Timestamp,
) -> Result<(Vec<Worst>, Time), Trouble> {
    let (waiting, at) = visit.console.backlog.get(visit).await?;
    let own = waiting.iter().filter(|(own, ..)| tenant.is_none_or(|tenant| tenant == *own));
    let mut own: Vec<_> = own.copied().collect();
    own.sort_by_key(|(_, id, count)| (std::cmp::Reverse(*count), *id));
    let mut found = Vec::new();
    for (tenant, id, count) in own.into_iter().take(WORST_MAX) {
        let Some(tenant) = visit.find_tenant(&tenant.to_string()) else { continue };
        let Ok(view) = visit.engine().catalog().subscription(tenant.id, id) else { continue };
        let series =
            visit.engine().series(RollupScope::Subscription(id), range.0, range.1, now).await?;
        let (status, class) = match &view.subscription.status {
            posthorn_domain::SubscriptionStatus::Active => ("active", "wait"),
            posthorn_domain::SubscriptionStatus::Paused => ("paused", "off"),
            posthorn_domain::SubscriptionStatus::Disabled { .. } => ("disabled", "bad"),
        };
        found.push(Worst {
            base: home(&tenant),
            to: Named::find(visit.engine(), tenant.id, id),
            tenant: text::line(&tenant.name, 60),
            since: None,
            count: words::number(count),
            bars: Bars::of(&series),
            shown: Shown::new(class, status),
        });
    }
    Ok((found, Time::new(at, now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_that_is_wrong_has_a_banner_worst_first() {
        let now = Timestamp::from_millis(3_600_000);
        assert!(
            told(Wrong { ping: Duration::from_millis(999), ..Wrong::default() }, now).is_empty()
        );
        let minute = Duration::from_secs(60);
        let node = NodeId::new(Timestamp::from_millis(0), 7);
        let wrong = Wrong {
            on_hold: true,
            disk_full: Some(minute),
            overloaded: Some(minute),
            ping: Duration::from_millis(1_500),
            lost: vec![(node, minute)],
        };
        let banners = told(wrong, now);
        let wanted = [
            ("This server is on hold.", "sends nothing", false),
            ("The disk is full.", "Every publish is refused", true),
            ("The server is overloaded", "Some publishes are refused", true),
            ("The store is slow: it took 1.5 s to answer.", "wait for it", false),
            (&format!("Node {node} is gone."), "late until its leases ran out", true),
        ];
        assert_eq!(banners.len(), wanted.len());
        for (banner, (what, cost, since)) in banners.iter().zip(wanted) {
            assert!(banner.what.starts_with(what), "{}", banner.what);
            assert!(banner.cost.contains(cost) && !banner.next.is_empty(), "{}", banner.cost);
            assert_eq!(banner.since.is_some(), since, "{what}");
            assert_eq!(banner.href, "/console/system");
        }
    }
}
