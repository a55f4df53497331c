//! Removing history that nobody needs any more.
//!
//! # Theory of operation
//! A day whose events are all done with is dropped whole, with its deliveries and attempts: no rows
//! are deleted and nothing is left to vacuum. Where something of a day must stay (a dead letter
//! with a longer life, a delivery that is still tried), the rest of the day is removed in bites,
//! and so is everything in the rest partition. A day that may go and is in use is left to the next round. A day that is only partly past its limit waits until
//! it is wholly so, unless the limit is so recent that waiting would be most of it.
//!
//! Events with a retention of their own are found by the time at which it is over, before all others.
//!
//! A bite looks at a bounded number of events from where the last one stopped; a round is over when
//! all partitions were seen. So events that must stay are looked at once a round, not once a bite.
//!
//! # Invariants
//! Never an event with an unfinished delivery: an event goes only when as many deliveries as it
//! lists have ended, and those rows are held while they are counted; then the event is held, and stays when
//! it lists others by now. Never a dead letter that blocks its lane.

use deadpool_postgres::Object;
use parking_lot::Mutex;
use posthorn_domain::Timestamp;
use posthorn_store::{Prune, Pruned, Result};
use tokio_postgres::error::SqlState;
use tracing::{info, warn};

use crate::codec::{FIRST_UID, Uid, limit};
use crate::failure::{Failure, Outcome};
use crate::partition::{self, DAY_MILLIS, Day};
use crate::session::{Operation, Param, Session, allow_slow, batch, begin, commit, execute, query};
use crate::{audit, lock, sql};

const KEYS: Operation = Operation::write("prune_keys", "remove old idempotency keys");
const SMALL: Operation = Operation::write("prune_small", "remove old redrives, jobs and recalls");
const BITE: Operation = Operation::write("prune", "remove old events").slow();
const EXPIRE: Operation =
    Operation::write("expire", "remove events whose retention is over").slow();
const DROP: Operation = Operation::write("drop_partition", "drop an old partition").slow();
const PRUNED: Operation = Operation::read("pruned_before", "read what was removed");
const LIST: Operation = Operation::read("partitions", "list partitions");

/// Keys removed in one transaction.
const KEYS_BITE: i64 = 5_000;
/// Transactions of one call.
const BITES_MAX: usize = 20;
/// Events looked at in one transaction.
const EVENTS_BITE: usize = 500;
/// The name of the partition for what has no day.
const REST: &str = "event_rest";

/// Where the present round stands.
#[derive(Clone, Debug)]
struct Place {
    /// Partitions still to be seen, the present one last.
    partitions: Vec<String>,
    after: (Uid, Uid),
}

/// Remembers where the last bite stopped.
#[derive(Default)]
pub(crate) struct Pruner {
    place: Mutex<Option<Place>>,
}

impl Pruner {
    pub(crate) async fn prune(&self, session: &Session, prune: Prune) -> Result<Pruned> {
        let mut pruned = Pruned::default();
        self.keys(session, prune.keys_before, &mut pruned).await?;
        small(session, prune, &mut pruned).await?;
        expire(session, prune, &mut pruned).await?;
        let begun = self.place.lock().take();
        let mut place = match begun {
            Some(place) => place,
            None => {
                let (old, mut partitions) = round(session, prune).await?;
                for day in old {
                    match drop_day(session, day, prune).await? {
                        Dropped::Yes(events) if pruned.events + events <= prune.limit => {
                            pruned.events += events;
                        }
                        // More than was asked for, at less than the price.
                        Dropped::Yes(events) => {
                            info!(events, day = day.name("event"), "Deleted a day of history");
                            pruned.events = prune.limit;
                        }
                        // The next round drops it. Deleting its rows meanwhile would be the dearer way.
                        Dropped::Busy => partitions.retain(|name| *name != day.name("event")),
                        Dropped::No => {}
                    }
                }
                Place { partitions, after: (FIRST_UID, FIRST_UID) }
            }
        };
        for _ in 0..BITES_MAX {
            let Some(partition) = place.partitions.last().cloned() else { break };
            let want = prune.limit.saturating_sub(pruned.events).min(EVENTS_BITE);
            if want == 0 {
                break;
            }
            let bite = bite(session, partition, place.after, prune, want).await?;
            pruned.events += bite.removed;
            match bite.last {
                Some(last) if bite.seen == want => place.after = last,
                _ => {
                    place.partitions.pop();
                    place.after = (FIRST_UID, FIRST_UID);
                }
            }
        }
        if !place.partitions.is_empty() {
            pruned.more = true;
            *self.place.lock() = Some(place);
        }
        Ok(pruned)
    }

    async fn keys(&self, session: &Session, before: Timestamp, pruned: &mut Pruned) -> Result<()> {
        for _ in 0..BITES_MAX {
            let removed = session
                .run(KEYS, move |client| {
                    Box::pin(async move {
                        begin(client).await?;
                        let params: [Param<'_>; 2] = [&before.as_millis(), &KEYS_BITE];
                        let removed = execute(client, sql::PRUNE_KEYS, &params).await?;
                        commit(client).await?;
                        Ok(removed)
                    })
                })
                .await?;
            pruned.keys += usize::try_from(removed).unwrap_or(usize::MAX);
            if limit(pruned.keys) % KEYS_BITE != 0 || removed == 0 {
                return Ok(());
            }
        }
        pruned.more = true;
        Ok(())
    }
}

/// Before when history was removed for its age.
pub(crate) async fn pruned_before(session: &Session) -> Result<Option<Timestamp>> {
    session
        .run(PRUNED, |client| {
            Box::pin(async move {
                let rows = query(client, sql::PRUNED_BEFORE, &[]).await?;
                let before: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?;
                Ok(before.map(Timestamp::from_millis))
            })
        })
        .await
}

/// Removes what is kept outside of events: ended redrives and jobs, recalls, and lines of the audit log.
async fn small(session: &Session, prune: Prune, pruned: &mut Pruned) -> Result<()> {
    let (redrives, jobs, recalls, lines) = session
        .run(SMALL, move |client| {
            Box::pin(async move {
                begin(client).await?;
                let ended: [Param<'_>; 2] = [&prune.ended_before.as_millis(), &KEYS_BITE];
                let redrives = execute(client, sql::PRUNE_REDRIVES, &ended).await?;
                let jobs = execute(client, sql::PRUNE_JOBS, &ended).await?;
                let recalled: [Param<'_>; 2] = [&prune.recalls_before.as_millis(), &KEYS_BITE];
                let recalls = execute(client, sql::PRUNE_RECALLS, &recalled).await?;
                let lines = audit::prune(client, prune.audit_before, KEYS_BITE).await?;
                commit(client).await?;
                Ok((redrives, jobs, recalls, lines))
            })
        })
        .await?;
    pruned.redrives = usize::try_from(redrives).unwrap_or(usize::MAX);
    let whole = u64::try_from(KEYS_BITE).unwrap_or(u64::MAX);
    pruned.audit = usize::try_from(lines).unwrap_or(usize::MAX);
    pruned.more |= [redrives, jobs, recalls, lines].contains(&whole);
    Ok(())
}

/// Removes events whose own retention is over. Those that cannot go yet are looked at again later, so that each
/// bite looks at others.
async fn expire(session: &Session, prune: Prune, pruned: &mut Pruned) -> Result<()> {
    for _ in 0..BITES_MAX {
        let want = prune.limit.saturating_sub(pruned.events).min(EVENTS_BITE);
        if want == 0 {
            break;
        }
        let (seen, removed) =
            session.run(EXPIRE, move |client| Box::pin(expire_some(client, prune, want))).await?;
        pruned.events += removed;
        if seen < want {
            return Ok(());
        }
    }
    pruned.more = true;
    Ok(())
}

/// How many were looked at, and how many went.
async fn expire_some(client: &Object, prune: Prune, want: usize) -> Outcome<(usize, usize)> {
    let params: [Param<'_>; 2] = [&prune.now.as_millis(), &limit(want)];
    // Nearly always there are none.
    if query(client, sql::EXPIRY_FIND, &params).await?.is_empty() {
        return Ok((0, 0));
    }
    begin(client).await?;
    allow_slow(client).await?;
    let rows = query(client, sql::EXPIRY_FIND, &params).await?;
    let (mut tenants, mut events, mut later) = (vec![], vec![], vec![]);
    for row in &rows {
        tenants.push(row.try_get::<_, Uid>("tenant")?);
        events.push(row.try_get::<_, Uid>("event")?);
        let expired: Option<i64> = row.try_get("expired")?;
        let again = |expired| prune.look_again(Timestamp::from_millis(expired)).as_millis();
        later.push(expired.map(again));
    }
    let text = sql::PRUNE_BITE.replace("{candidate}", sql::PRUNE_EXPIRED);
    let text = text.replace("{partition}", "event");
    // However lately its deliveries have ended.
    let params: [Param<'_>; 5] = [&tenants, &events, &limit(want), &i64::MAX, &i64::MAX];
    let bite = bite_of(&query(client, &text, &params).await?)?;
    // What is gone is no longer there to be changed.
    execute(client, sql::EXPIRY_LATER, &[&tenants, &events, &later]).await?;
    commit(client).await?;
    Ok((rows.len(), bite.removed))
}

/// What a round sees: days that may be dropped whole, and partitions to bite from, the first last.
async fn round(session: &Session, prune: Prune) -> Result<(Vec<Day>, Vec<String>)> {
    session
        .run(LIST, move |client| {
            Box::pin(async move {
                let now = partition::now(client).await?;
                let limit = prune.ended_before;
                // Nearly all of such a short life would be spent waiting for the end of the day.
                let impatient = limit.as_millis() > now.as_millis() - DAY_MILLIS;
                let days = partition::days(client).await?;
                // A day that is not over yet may still be written to.
                let past = limit.min(now);
                let old: Vec<Day> = days.iter().copied().filter(|d| d.end() <= past).collect();
                let bitten = days
                    .iter()
                    .filter(|day| day.end() <= limit || (impatient && day.begin() < limit));
                let mut partitions: Vec<String> = bitten.map(|day| day.name("event")).collect();
                partitions.reverse();
                partitions.push(REST.to_owned());
                Ok((old, partitions))
            })
        })
        .await
}

struct Bite {
    seen: usize,
    removed: usize,
    last: Option<(Uid, Uid)>,
}

async fn bite(
    session: &Session,
    partition: String,
    after: (Uid, Uid),
    prune: Prune,
    want: usize,
) -> Result<Bite> {
    session
        .run(BITE, move |client| {
            let text = sql::PRUNE_BITE.replace("{candidate}", sql::PRUNE_OLD);
            let text = text.replace("{partition}", &partition);
            Box::pin(async move {
                begin(client).await?;
                let (ended, dead) = (prune.ended_before.as_millis(), prune.dead_before.as_millis());
                let params: [Param<'_>; 5] = [&after.0, &after.1, &limit(want), &ended, &dead];
                // Not kept prepared: there is a new partition every day.
                let rows = client.query(&text, &params).await.map_err(Failure::Database);
                let bite = match rows {
                    Ok(rows) => bite_of(&rows)?,
                    // Another node has dropped the day meanwhile.
                    Err(failure) if is_gone(&failure) => {
                        batch(client, "rollback; begin").await?;
                        Bite { seen: 0, removed: 0, last: None }
                    }
                    Err(failure) => return Err(failure),
                };
                if bite.removed > 0 {
                    execute(client, sql::PRUNED, &[&ended]).await?;
                }
                commit(client).await?;
                Ok(bite)
            })
        })
        .await
}

fn bite_of(rows: &[tokio_postgres::Row]) -> Outcome<Bite> {
    let Some(row) = rows.first() else { return Ok(Bite { seen: 0, removed: 0, last: None }) };
    let number = |column| -> Outcome<usize> {
        Ok(usize::try_from(row.try_get::<_, i64>(column)?).unwrap_or(0))
    };
    let (tenant, id): (Option<Uid>, Option<Uid>) = (row.try_get("tenant")?, row.try_get("id")?);
    Ok(Bite { seen: number("seen")?, removed: number("removed")?, last: tenant.zip(id) })
}

fn is_gone(failure: &Failure) -> bool {
    matches!(failure, Failure::Database(e) if e.code() == Some(&SqlState::UNDEFINED_TABLE))
}

fn is_busy(failure: &Failure) -> bool {
    matches!(failure, Failure::Database(e) if e.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
}

/// What became of a day that was to be dropped.
enum Dropped {
    /// It is gone, with so many events.
    Yes(usize),
    /// Something in it must stay.
    No,
    /// All of it may go, and somebody was using it.
    Busy,
}

/// Drops a day if nothing in it is needed.
async fn drop_day(session: &Session, day: Day, prune: Prune) -> Result<Dropped> {
    session
        .run(DROP, move |client| {
            Box::pin(async move {
                match try_drop(client, day, prune).await {
                    Err(failure) if is_busy(&failure) || is_gone(&failure) => {
                        warn!(
                            day = day.name("event"),
                            "A day of history is in use; deleting it \
                                                        later"
                        );
                        batch(client, "rollback").await?;
                        Ok(Dropped::Busy)
                    }
                    other => other.map(|events| events.map_or(Dropped::No, Dropped::Yes)),
                }
            })
        })
        .await
}

async fn try_drop(client: &Object, day: Day, prune: Prune) -> Outcome<Option<usize>> {
    begin(client).await?;
    allow_slow(client).await?;
    // Those who wait behind us must not wait long for something that can be done any time. But longer than a second:
    // so long the server waits before it has an autovacuum give way.
    batch(client, "set local lock_timeout = 2000").await?;
    let free = client
        .query_one("select pg_try_advisory_xact_lock($1)", &[&lock::SCHEMA])
        .await?
        .try_get::<_, bool>(0)?;
    let names = ["event", "delivery_done", "attempt"].map(|table| day.name(table)).join(", ");
    if !free || removable(client, day, prune).await?.is_none() {
        commit(client).await?;
        return Ok(None);
    }
    batch(client, &format!("lock table {names} in access exclusive mode")).await?;
    let events = removable(client, day, prune).await?;
    if events.is_some() {
        let tally = sql::TALLY_DROP
            .replace("{event}", &day.name("event"))
            .replace("{done}", &day.name("delivery_done"));
        batch(client, &tally).await?;
        batch(client, &format!("drop table {names}")).await?;
        if events.is_some_and(|events| events > 0) {
            execute(client, sql::PRUNED, &[&prune.ended_before.as_millis()]).await?;
        }
    }
    commit(client).await?;
    Ok(events)
}

/// How many events a day has, if all that it holds may go: as many deliveries have ended long
/// enough ago as the events list, and all of them belong to events of the day.
///
/// A job makes deliveries of old events, which lie in the partitions of a later day. Their event's day lists
/// more than has ended in it, and their own day has what belongs to no event of it; so both stay, until the
/// bites have taken that event with all its deliveries. While such a one has not ended, only its attempts are
/// in the partitions of its day, and it keeps them.
async fn removable(client: &Object, day: Day, prune: Prune) -> Outcome<Option<usize>> {
    let (from, to) = day.keys();
    let (ended, dead) = (prune.ended_before.as_millis(), prune.dead_before.as_millis());
    let text = format!(
        "select e.events, e.listed = d.ended and d.ended = d.settled and e.later = 0 and not exists (
             select from lane_block where delivery >= $1 and delivery < $2
         ) and not exists (
             select from delivery_live where id >= $1 and id < $2
         ) as removable
         from (
             select
                 count(*) as events, coalesce(sum(cardinality(deliveries)), 0) as listed,
                 count(*) filter (where deliver_at >= $3::int8) as later
             from {event}
         ) as e, (
             select count(*) as ended, count(*) filter (
                 where event >= $1 and event < $2 and ended_at < $3::int8
                   and (state not between 10 and 19 or ended_at < $4::int8)
             ) as settled
             from {done}
         ) as d",
        event = day.name("event"),
        done = day.name("delivery_done"),
    );
    let row = client.query_one(&text, &[&from, &to, &ended, &dead]).await?;
    let events: i64 = row.try_get("events")?;
    let removable: bool = row.try_get("removable")?;
    Ok(removable.then(|| usize::try_from(events).unwrap_or(usize::MAX)))
}
