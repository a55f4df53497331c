//! Daily partitions of events, ended deliveries and attempts.
//!
//! All three are cut by the time inside their key (a UUIDv7), so an event, its deliveries and their
//! attempts, which are made at the same moment, lie in partitions of the same day. Only a delivery that a job
//! makes of an old event lies in a later one, with its attempts. A partition is
//! made days before it is needed; should none be there, rows go to the rest partition, where
//! everything works the same and only removing is slower.

use std::time::Duration;

use deadpool_postgres::Object;
use posthorn_domain::{EventId, Timestamp};
use posthorn_store::Result;
use tokio_postgres::error::SqlState;
use tracing::warn;

use crate::codec::Uid;
use crate::failure::{Failure, Outcome};
use crate::lock;
use crate::session::{Operation, Session, batch, begin, commit};

pub(crate) const DAY_MILLIS: i64 = 86_400_000;
/// How many days are made before they begin.
const DAYS_AHEAD: i64 = 3;
/// What a name of a day's partition has after that of its table.
const MARK: &str = "_d";

/// For a lock on a table that others use.
const LOCK_WAIT: Duration = Duration::from_secs(2);

const ENSURE: Operation = Operation::write("partitions", "create partitions");

/// One day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Day(i64);

impl Day {
    pub(crate) fn of(at: Timestamp) -> Self {
        Self(at.as_millis().div_euclid(DAY_MILLIS))
    }

    pub(crate) fn begin(self) -> Timestamp {
        Timestamp::from_millis(self.0 * DAY_MILLIS)
    }

    pub(crate) fn end(self) -> Timestamp {
        Self(self.0 + 1).begin()
    }

    /// How many days later another one is.
    pub(crate) const fn until(self, later: Self) -> i64 {
        later.0 - self.0
    }

    /// So many days before.
    pub(crate) const fn before(self, days: i64) -> Self {
        Self(self.0 - days)
    }

    /// The keys of the day: from the first, up to but without the second.
    pub(crate) fn keys(self) -> (Uid, Uid) {
        (EventId::floor(self.begin()).into(), EventId::floor(self.end()).into())
    }

    /// The name of a table's partition for the day.
    pub(crate) fn name(self, table: &str) -> String {
        format!("{table}{MARK}{}", self.begin().utc_date().replace('-', ""))
    }

    /// Back from the name of an event partition.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let date = name.strip_prefix("event")?.strip_prefix(MARK)?;
        if date.len() != 8 || !date.is_ascii() {
            return None;
        }
        let text = format!("{}-{}-{}T00:00:00Z", &date[..4], &date[4..6], &date[6..]);
        text.parse().ok().map(Self::of)
    }
}

/// The database's present.
pub(crate) async fn now(client: &Object) -> Outcome<Timestamp> {
    let text = "select (extract(epoch from clock_timestamp()) * 1000)::int8";
    Ok(Timestamp::from_millis(client.query_one(text, &[]).await?.try_get(0)?))
}

/// The days there are partitions for, oldest first.
pub(crate) async fn days(client: &Object) -> Outcome<Vec<Day>> {
    let text = "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid \
                where i.inhparent = 'event'::regclass";
    let mut days = Vec::new();
    for row in &client.query(text, &[]).await? {
        days.extend(Day::parse(row.try_get(0)?));
    }
    days.sort_unstable();
    Ok(days)
}

/// Makes what is missing for today and the next days.
pub(crate) async fn ensure(session: &Session) -> Result<()> {
    make_missing(session, None, DAYS_AHEAD + 1).await
}

/// The same for other days.
pub(crate) async fn make_days(session: &Session, first: Timestamp, count: i64) -> Result<()> {
    make_missing(session, Some(Day::of(first)), count).await
}

/// Makes what is missing of `count` days, from today unless another day is named. While somebody has the tables in use for long,
/// days that nobody named are left to a later round; until then their rows go to the rest partition.
async fn make_missing(session: &Session, first: Option<Day>, count: i64) -> Result<()> {
    session
        .run(ENSURE, move |client| {
            Box::pin(async move {
                let begin = match first {
                    Some(day) => day,
                    None => Day::of(now(client).await?),
                };
                let there = days(client).await?;
                for day in (begin.0..begin.0 + count).map(Day) {
                    if there.contains(&day) {
                        continue;
                    }
                    match make_if_possible(client, day).await {
                        Err(failure) if first.is_none() && failure.is_lock_wait() => {
                            batch(client, "rollback").await?;
                            let day = day.name("event");
                            warn!(
                                day,
                                "The tables are in use; the partitions of this day are made later"
                            );
                            break;
                        }
                        made => made?,
                    }
                }
                Ok(())
            })
        })
        .await
}

/// Makes the partitions of a day, unless rows of it lie in the rest partition already.
pub(crate) async fn make_if_possible(client: &Object, day: Day) -> Outcome<()> {
    match make(client, day).await {
        Err(failure) if is_late(&failure) => {
            batch(client, "rollback").await?;
            let day = day.name("event");
            warn!(day, "Rows of this day are already in the default partition");
            Ok(())
        }
        made => made,
    }
}

/// Whether rows that belong into a new partition lie in the rest partition.
fn is_late(failure: &Failure) -> bool {
    matches!(failure, Failure::Database(e) if e.code() == Some(&SqlState::CHECK_VIOLATION))
}

/// Making a table first and attaching it then does not stop those who use the others. But attaching waits for those who use the
/// rest partition, and everybody waits behind it; so it gives up soon.
async fn make(client: &Object, day: Day) -> Outcome<()> {
    begin(client).await?;
    batch(client, &format!("select pg_advisory_xact_lock({})", lock::SCHEMA)).await?;
    batch(client, &format!("set local lock_timeout = {}", LOCK_WAIT.as_millis())).await?;
    if days(client).await?.contains(&day) {
        return commit(client).await;
    }
    let (from, to) = day.keys();
    for table in ["event", "delivery_done", "attempt"] {
        let name = day.name(table);
        batch(
            client,
            &format!(
                "create table {name} (like {table} including all); \
                 alter table {table} attach partition {name} for values from ('{from}') to ('{to}')"
            ),
        )
        .await?;
    }
    commit(client).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_knows_its_name_and_its_keys() {
        let day = Day::of(Timestamp::from_millis(1_700_000_000_123));
        assert_eq!(day.name("event"), "event_d20231114");
        assert_eq!(Day::parse("event_d20231114"), Some(day));
        for bad in ["event_rest", "event_d2023111", "attempt_d20231114", "event_dxxxxxxxx"] {
            assert_eq!(Day::parse(bad), None, "{bad}");
        }
        let (from, to) = day.keys();
        let inside = Uid::from(EventId::new(Timestamp::from_millis(1_700_000_000_123), 0));
        assert!(from <= inside && inside < to);
        assert!(Uid::from(EventId::new(day.end(), 0)) >= to);
    }
}
