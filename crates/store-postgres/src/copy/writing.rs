//! Making a store out of rows.

use std::collections::BTreeSet;

use async_trait::async_trait;
use deadpool_postgres::Object;
use posthorn_domain::{EventId, Timestamp};
use posthorn_store::copy::{Reading, Row, Sheet, Unit, Value, Writing};
use posthorn_store::{Error, Result};
use tracing::warn;

use super::reading::CopyReading;
use super::{CopyError, connect, events, has_no_node, marked, name, opening, sheets};
use crate::failure::Outcome;
use crate::options::{Options, quoted};
use crate::partition::{self, Day};
use crate::server::Pooling;
use crate::session::{Session, batch, begin, commit, execute};
use crate::{lock, migrate, sql};

const WRITING: &str = "write the copy";
/// So many days before today get partitions whether or not they have rows.
const DAYS_BETWEEN_MAX: i64 = 400;
/// How often partitions of a day are tried to be made. A connection that is closed lets go of its locks a moment later.
const LOCK_TRIES: usize = 3;

/// A store that a copy is made in.
pub struct CopyTarget {
    session: Session,
    client: Object,
    /// Days that have partitions.
    days: BTreeSet<Day>,
}

impl CopyTarget {
    /// Makes a store in a database, or goes on with a copy of the same source that was begun there before. A store that holds
    /// anything else is refused, and nothing is changed in it. `other` is the name of a source that is a database as well.
    pub async fn open(
        options: &Options,
        source: &str,
        other: Option<&str>,
    ) -> Result<Self, CopyError> {
        let session = Session::direct(options)?;
        let client = connect(&session).await?;
        let own = name(&client).await.map_err(opening)?;
        if other == Some(&*own) {
            return Err(CopyError::Same);
        }
        let is_new = look(&client, source).await?;
        // Before there are tables, so that one that is killed at any moment is known for what it is.
        mark(&client, options, source).await.map_err(opening)?;
        migrate::run(&session, options, Pooling::None, &migrate::SCHEMA).await?;
        begin_copy(&client, is_new).await?;
        partition::ensure(&session).await?;
        make_between(&session, &client).await?;
        let days = partition::days(&client).await.map_err(opening)?.into_iter().collect();
        Ok(Self { session, client, days })
    }

    async fn applied(&mut self, sheet: &'static Sheet, gone: &[Row], new: &[Unit]) -> Outcome<()> {
        if sheet.name == "event" {
            self.make_days(new).await?;
        }
        let client = &self.client;
        begin(client).await?;
        if sheet.name == "event" {
            events::cut(client, &gone.iter().collect::<Vec<_>>()).await?;
            events::put(client, new).await?;
        } else {
            // Others refer to rows of some sheets, so that what stays is changed in its place.
            let stays: BTreeSet<&[Value]> =
                new.iter().map(|unit| sheet.key_of(&unit.row)).collect();
            let gone: Vec<&Row> = match sheet.whole {
                true => gone.iter().collect(),
                false => gone.iter().filter(|key| !stays.contains(key.as_slice())).collect(),
            };
            sheets::cut(client, sheet, &gone).await?;
            sheets::put(client, sheet, &new.iter().map(|unit| &unit.row).collect::<Vec<_>>())
                .await?;
        }
        commit(client).await
    }

    /// Partitions for all days of events, deliveries and attempts.
    async fn make_days(&mut self, units: &[Unit]) -> Outcome<()> {
        let ids = units.iter().flat_map(|unit| unit.deliveries.iter().chain([&unit.row]));
        let ids = ids.filter_map(|row| row[0].id());
        let days: BTreeSet<Day> =
            ids.map(|id| Day::of(EventId::from_bytes(id).made_at())).collect();
        for day in days {
            // What is not of our time has a strange id, and is found in the rest partition as well.
            let sensible = day.begin() > Timestamp::from_millis(0);
            if sensible && self.days.insert(day) {
                make_patiently(&self.client, day).await?;
            }
        }
        Ok(())
    }
}

/// Makes what is missing between the oldest day that has partitions and today: what a former run has copied may have got
/// deliveries of any of them since, and later, while a reading of the copy itself is under way, nobody can attach any.
async fn make_between(session: &Session, client: &Object) -> Result<(), CopyError> {
    let look = async {
        let days = partition::days(client).await?;
        Ok((days.first().copied(), partition::now(client).await?))
    };
    let (oldest, now) = look.await.map_err(opening)?;
    let today = Day::of(now);
    if let Some(oldest) = oldest.filter(|oldest| *oldest < today) {
        let count = oldest.until(today).min(DAYS_BETWEEN_MAX);
        partition::make_days(session, today.before(count).begin(), count).await?;
    }
    Ok(())
}

/// Makes the partitions of a day. Where somebody has the others in use for long, its rows go to the rest partition, where
/// everything works the same: a copy that waits for a reading of its own would wait for ever.
async fn make_patiently(client: &Object, day: Day) -> Outcome<()> {
    for _ in 0..LOCK_TRIES {
        match partition::make_if_possible(client, day).await {
            Err(failure) if failure.is_lock_wait() => batch(client, "rollback").await?,
            made => return made,
        }
    }
    let day = day.name("event");
    warn!(day, "The tables are in use; rows of this day go to the default partition");
    Ok(())
}

/// Refuses what must not be written to. Whether the copy is new, and not one that goes on.
async fn look(client: &Object, source: &str) -> Result<bool, CopyError> {
    let sql = "select pg_try_advisory_lock($1, hashtext(current_setting('search_path')))";
    let seen = async {
        let held: bool = client.query_one(sql, &[&lock::COPIES]).await?.try_get(0)?;
        let (found, known) = migrate::versions(client).await?;
        let mark = marked(client).await?;
        let empty = match found {
            0 => true,
            _ if found < known => false,
            _ => is_empty(client).await?,
        };
        let alone = found == 0 || has_no_node(client).await?;
        Ok((held && alone, mark, empty))
    };
    match seen.await.map_err(opening)? {
        (false, _, _) => Err(CopyError::InUse),
        (true, Some(begun), _) if begun == source => Ok(false),
        (true, Some(begun), _) => Err(CopyError::OtherSource(begun)),
        (true, None, true) => Ok(true),
        (true, None, false) => Err(CopyError::NotEmpty),
    }
}

/// Whether nothing but what a new store has is in it.
async fn is_empty(client: &Object) -> Outcome<bool> {
    let sql = "select not exists (select from event) and not exists (select from audit) \
        and not exists (select from push_agent) and (select count(*) from entry) < 2";
    Ok(client.query_one(sql, &[]).await?.try_get(0)?)
}

/// Marks the store, which may have no tables yet.
async fn mark(client: &Object, options: &Options, source: &str) -> Outcome<()> {
    begin(client).await?;
    if let Some(schema) = &options.schema {
        batch(client, &format!("create schema if not exists {}", quoted(schema))).await?;
    }
    batch(
        client,
        "create table if not exists unfinished_copy \
         (one boolean primary key default true check (one), source text not null, head_index text)",
    )
    .await?;
    let mark =
        "insert into unfinished_copy (source) values ($1::text) on conflict (one) do nothing";
    client.execute(mark, &[&source]).await?;
    commit(client).await
}

/// Takes the index away for as long as lanes may have two heads for a moment. How it is made is kept with the mark. A server
/// that started before it could see the mark keeps its store, without the mark.
async fn begin_copy(client: &Object, is_new: bool) -> Result<(), CopyError> {
    let look = async { Ok((has_no_node(client).await?, is_empty(client).await?)) };
    let refusal = match look.await.map_err(opening)? {
        (false, _) => Some(CopyError::InUse),
        (true, false) if is_new => Some(CopyError::NotEmpty),
        _ => None,
    };
    if let Some(refusal) = refusal {
        if is_new {
            batch(client, "drop table unfinished_copy").await.map_err(opening)?;
        }
        return Err(refusal);
    }
    let begun = async {
        begin(client).await?;
        batch(
            client,
            "update unfinished_copy set head_index = (select indexdef from pg_indexes \
             where schemaname = current_schema() and indexname = 'delivery_live_head') \
             where head_index is null; \
             drop index if exists delivery_live_head",
        )
        .await?;
        commit(client).await
    };
    Ok(begun.await.map_err(opening)?)
}

/// What is counted with the rows, as the transactions of a server would have left it.
async fn derived(client: &Object) -> Outcome<()> {
    begin(client).await?;
    batch(
        client,
        "set local enable_seqscan = on; set local enable_hashjoin = on; \
         update tenant t set version = e.version from entry e \
         where e.kind = 'tenant' and e.tenant = t.id; \
         delete from tally",
    )
    .await?;
    execute(client, sql::RECOUNT, &[]).await?;
    let there = "select to_regclass('delivery_live_head') is null, head_index from unfinished_copy";
    let row = client.query_one(there, &[]).await?;
    if row.try_get(0)? {
        batch(client, row.try_get(1)?).await?;
    }
    commit(client).await?;
    batch(
        client,
        "analyze event, delivery_live, delivery_done, attempt, entry, idempotency, push_message",
    )
    .await
}

#[async_trait]
impl Writing for CopyTarget {
    async fn reading(&mut self) -> Result<Box<dyn Reading>> {
        let client = connect(&self.session).await?;
        let reading = CopyReading::start(client).await;
        Ok(Box::new(reading.map_err(|failure| failure.into_error(WRITING))?))
    }

    async fn apply(&mut self, sheet: &'static Sheet, gone: Vec<Row>, new: Vec<Unit>) -> Result<()> {
        let applied = self.applied(sheet, &gone, &new).await;
        applied.map_err(|failure| failure.into_error(WRITING))
    }

    async fn derive(&mut self) -> Result<()> {
        derived(&self.client).await.map_err(|failure| failure.into_error(WRITING))
    }

    async fn complete(&mut self) -> Result<()> {
        let done = batch(&self.client, "drop table unfinished_copy").await;
        done.map_err(|failure| failure.into_error(WRITING))
    }
}

impl Drop for CopyTarget {
    fn drop(&mut self) {
        // The lock goes with the connection.
        self.session.close();
    }
}

/// Refuses a store that is not complete.
pub(crate) async fn check_complete(session: &Session) -> Result<()> {
    let client = session.connection(super::OPENING).await?;
    match marked(&client).await.map_err(opening)? {
        None => Ok(()),
        Some(source) => {
            let problem = format!("the store is a copy of {source} that is not complete");
            Err(Error::fatal("use the database", problem))
        }
    }
}
