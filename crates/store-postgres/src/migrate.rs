//! Bringing the schema to the version this binary knows.
//!
//! Forward only, all missing versions in one transaction under one lock: several nodes may start at
//! once, and one that is killed half-way leaves nothing. What was applied is remembered with a
//! checksum, so that a changed file is noticed instead of being believed, and with the version that programs must
//! know from then on (`posthorn_store::schema` has the rule).
//!
//! Migrations that others may go on beside are applied under traffic. One waits for each lock no longer than [`LOCK_WAIT`],
//! and for a statement with all its locks no longer than [`STATEMENT_WAIT`], because everybody behind it waits as well; then it
//! lets go of everything and tries again. The other kind is applied while nobody
//! else is at work (`gate`), and may take its time. Those who start meanwhile read what was applied before, and then wait
//! for the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::Object;
use posthorn_store::schema::{Applied, Kind, Migration, Schema};
use posthorn_store::{Error, Result};
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tracing::{debug, info};

use crate::failure::Outcome;
use crate::options::{Options, quoted};
use crate::server::Pooling;
use crate::session::{Operation, Session, allow_slow, batch, begin, commit};
use crate::{gate, lock};

/// What this program knows. Every version before this one can be brought up to date in one step.
pub(crate) static SCHEMA: Schema = Schema::new(MIGRATIONS, checksum_of);

/// All versions, in order, from 1. A new one may be `beside` when it only adds: see docs/adr/0054. Programs of the first
/// 27 versions did not say what they know.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration::alone(include_str!("../migrations/0001_base.sql")),
    Migration::alone(include_str!("../migrations/0002_admission.sql")),
    Migration::alone(include_str!("../migrations/0003_certificate.sql")),
    Migration::alone(include_str!("../migrations/0004_names.sql")),
    Migration::alone(include_str!("../migrations/0005_push.sql")),
    Migration::alone(include_str!("../migrations/0006_push_topics.sql")),
    Migration::alone(include_str!("../migrations/0007_failing.sql")),
    Migration::alone(include_str!("../migrations/0008_revival.sql")),
    Migration::alone(include_str!("../migrations/0009_clients.sql")),
    Migration::alone(include_str!("../migrations/0010_entries.sql")),
    Migration::alone(include_str!("../migrations/0011_timings.sql")),
    Migration::alone(include_str!("../migrations/0012_log.sql")),
    Migration::alone(include_str!("../migrations/0013_jobs.sql")),
    Migration::alone(include_str!("../migrations/0014_times.sql")),
    Migration::alone(include_str!("../migrations/0015_expunge.sql")),
    Migration::alone(include_str!("../migrations/0016_sent_request.sql")),
    Migration::alone(include_str!("../migrations/0017_kinds.sql")),
    Migration::alone(include_str!("../migrations/0018_told.sql")),
    Migration::alone(include_str!("../migrations/0019_series.sql")),
    Migration::alone(include_str!("../migrations/0020_realms.sql")),
    Migration::alone(include_str!("../migrations/0021_audit.sql")),
    Migration::alone(include_str!("../migrations/0022_trace.sql")),
    Migration::alone(include_str!("../migrations/0023_replayed.sql")),
    Migration::alone(include_str!("../migrations/0024_sessions.sql")),
    Migration::alone(include_str!("../migrations/0025_nodes.sql")),
    Migration::alone(include_str!("../migrations/0026_questions.sql")),
    Migration::alone(include_str!("../migrations/0030_kept_answers.sql")),
];
/// The version of the schema that this program writes.
pub const SCHEMA_VERSION: usize = MIGRATIONS.len();

const MIGRATE: Operation =
    Operation::write("migrate", "bring the schema up to date").patient(PATIENCE);
/// What a migration may take: one that rewrites a long history is not half done.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// For each lock, when others are at work.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// For a statement, when others are at work: what only adds takes no time.
const STATEMENT_WAIT: Duration = Duration::from_secs(30);
/// Between two tries, so that those who waited behind us get through.
const LOCK_PAUSE: Duration = Duration::from_secs(1);
/// Then whoever starts us decides.
const LOCK_TRIES: u32 = 20;

/// Applies what is missing.
pub(crate) async fn run(
    session: &Session,
    options: &Options,
    pooling: Pooling,
    schema: &Schema,
) -> Result<()> {
    let mut tries = 1;
    loop {
        let (place, schema) = (options.schema.clone(), schema.clone());
        let hurried = Arc::new(AtomicBool::new(false));
        let hurries = Arc::clone(&hurried);
        let migrated = session
            .run(MIGRATE, move |client| {
                let (place, schema) = (place.clone(), schema.clone());
                let hurries = Arc::clone(&hurries);
                Box::pin(async move {
                    migrate(client, place.as_deref(), pooling, &schema, &hurries).await
                })
            })
            .await;
        match migrated {
            // Without a limit it was somebody who ended it, and means it.
            Err(Error::Unavailable { source: Some(source), .. })
                if hurried.load(Ordering::Relaxed)
                    && took_too_long(&*source)
                    && tries < LOCK_TRIES =>
            {
                info!(tries, "A table that the new schema changes is in use; trying again");
                tries += 1;
                sleep(LOCK_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Whether somebody held a lock for too long, or several did one after the other.
fn took_too_long(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    let error = error.downcast_ref::<tokio_postgres::Error>();
    let state = error.and_then(tokio_postgres::Error::code);
    matches!(state, Some(&SqlState::LOCK_NOT_AVAILABLE | &SqlState::QUERY_CANCELED))
}

/// The version that a schema has, 0 for none, and the newest that this program knows. Fails when they do not fit.
pub(crate) async fn versions(client: &Object) -> Outcome<(usize, usize)> {
    let applied = applied(client).await?;
    SCHEMA.whole(&applied).map_err(|mismatch| Error::fatal("use the database", mismatch))?;
    Ok((applied.len(), MIGRATIONS.len()))
}

async fn migrate(
    client: &Object,
    place: Option<&str>,
    pooling: Pooling,
    schema: &Schema,
    hurries: &AtomicBool,
) -> Outcome<()> {
    begin(client).await?;
    allow_slow(client).await?;
    batch(client, "set local statement_timeout = 0; set local lock_timeout = 0").await?;
    batch(client, &format!("select pg_advisory_xact_lock({})", lock::SCHEMA)).await?;
    if let Some(place) = place {
        batch(client, &format!("create schema if not exists {}", quoted(place))).await?;
        // Until now it may have had no number.
        if pooling == Pooling::None {
            batch(client, &gate::enter(schema.known())).await?;
        }
    }
    let applied = applied(client).await?;
    let missing =
        schema.missing(&applied).map_err(|mismatch| Error::fatal("use the database", mismatch))?;
    let Some(last) = missing.last() else {
        if applied.last().is_some_and(|newest| newest.version > schema.known()) {
            let (found, known) = (applied.len(), schema.known());
            info!(found, known, "the schema is of a newer version, which this one can work with");
        }
        return commit(client).await;
    };
    match applied.len() {
        0 => info!(version = last.version, "creating the tables"),
        found => info!(from = found, to = last.version, "migrating the database"),
    }
    if applied.is_empty() {
        // Nobody can be at work.
    } else if missing.iter().any(|missing| missing.kind == Kind::Alone) {
        gate::close(client, last.least).await?;
    } else {
        let (lock, statement) = (LOCK_WAIT.as_millis(), STATEMENT_WAIT.as_millis());
        let text =
            format!("set local lock_timeout = {lock}; set local statement_timeout = {statement}");
        batch(client, &text).await?;
        hurries.store(true, Ordering::Relaxed);
    }
    remember(client).await?;
    for missing in &missing {
        let version = i32::try_from(missing.version).unwrap_or(i32::MAX);
        let least = i32::try_from(missing.least).unwrap_or(i32::MAX);
        debug!(version, "migrating the database");
        batch(client, missing.text).await?;
        client
            .execute(
                "insert into migration (version, checksum, least, program) values ($1, $2, $3, $4)",
                &[&version, &missing.checksum, &least, &env!("CARGO_PKG_VERSION")],
            )
            .await?;
    }
    commit(client).await
}

/// Makes the table of migrations as this program writes it. It is changed only where it must be: the lock would last until the
/// end of the migration, and whoever connects reads that table.
async fn remember(client: &Object) -> Outcome<()> {
    batch(
        client,
        "create table if not exists migration (version integer primary key, \
         checksum text not null, applied_at timestamptz not null default clock_timestamp())",
    )
    .await?;
    let text = "select count(*) from pg_attribute where attrelid = to_regclass('migration') \
                and not attisdropped and attname in ('least', 'program')";
    let there: i64 = client.query_one(text, &[]).await?.try_get(0)?;
    if there < 2 {
        batch(
            client,
            "alter table migration add column if not exists least integer, \
             add column if not exists program text",
        )
        .await?;
    }
    Ok(())
}

/// The versions that the database has. Only reads. Programs of before did not write all columns.
async fn applied(client: &Object) -> Outcome<Vec<Applied>> {
    let there = client.query_one("select to_regclass('migration') is not null", &[]).await?;
    if !there.try_get::<_, bool>(0)? {
        return Ok(Vec::new());
    }
    let text = "select version, checksum, (to_jsonb(m) ->> 'least')::int4, to_jsonb(m) ->> 'program' \
                from migration m order by version";
    let mut applied = Vec::new();
    for row in &client.query(text, &[]).await? {
        let number = |value: i32| u32::try_from(value).unwrap_or(0);
        applied.push(Applied {
            version: number(row.try_get(0)?),
            checksum: row.try_get(1)?,
            least: row.try_get::<_, Option<i32>>(2)?.map(number),
            program: row.try_get(3)?,
        });
    }
    Ok(applied)
}

/// FNV-1a: against mistakes, not against attackers, who could change the table as well.
fn checksum_of(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first words of what may be applied beside others: it adds, and reads no table from end to end.
    const ADDS: [&str; 4] =
        ["create table ", "create sequence ", "create index ", "create unique index "];

    /// What a new column may not have: it checks or computes something for every row that is there, or builds an index.
    const NOT_FREE: [&str; 6] =
        [" unique ", " primary ", " references ", " generated ", " check ", " constraint "];

    fn statements(text: &str) -> Vec<String> {
        let code = text.lines().map(|line| line.split("--").next().unwrap_or(""));
        let code = code.collect::<Vec<_>>().join(" ");
        let words = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
        code.split(';').map(words).filter(|part| !part.is_empty()).collect()
    }

    /// What is wrong with a migration that is to be applied beside others.
    fn objection(text: &str) -> Option<String> {
        let statements = statements(text);
        let made: Vec<_> = statements
            .iter()
            .filter_map(|part| part.strip_prefix("create table "))
            .filter_map(|rest| rest.split([' ', '(']).next())
            .collect();
        statements.iter().find_map(|part| {
            let index =
                part.starts_with("create index ") || part.starts_with("create unique index ");
            let on = part.split(" on ").nth(1).and_then(|rest| rest.split([' ', '(']).next());
            let bad = if let Some(rest) = part.strip_prefix("alter table ") {
                rest.split(',').any(is_more_than_a_column)
            } else if index {
                // It would keep writers out for as long as it takes to read the table.
                on.is_none_or(|table| !made.contains(&table))
            } else {
                // Somebody who does not know of it could not remove what it refers to.
                let refers = part.split(" references ").skip(1).any(|rest| {
                    let table = rest.split([' ', '(', ',', ')']).next();
                    table.is_none_or(|table| !made.contains(&table))
                });
                refers || !ADDS.iter().any(|start| part.starts_with(start))
            };
            bad.then(|| part.clone())
        })
    }

    /// A change of a table that does more than add a column which is empty, or has the same value in every row.
    fn is_more_than_a_column(change: &str) -> bool {
        let change = format!("{} ", change.replace('(', " ("));
        let default = change.split(" default ").nth(1);
        !change.contains("add column ")
            || NOT_FREE.iter().any(|word| change.contains(word))
            || (change.contains(" not null") && default.is_none())
            // A function may give every row a value of its own, and then the table is written anew.
            || default.is_some_and(|value| value.contains('('))
    }

    #[test]
    fn what_is_applied_beside_others_only_adds() {
        for (index, migration) in MIGRATIONS.iter().enumerate() {
            if migration.kind() == Kind::Beside {
                assert_eq!(objection(migration.text()), None, "version {}", index + 1);
            }
        }
        for good in [
            "create table a (x int); create index a_x on a (x); -- why\n",
            "create table a (x int primary key); create table b (x int references a (x) check (x > 0))",
            "alter table event add column x bigint;\nalter table event\n add column y int not null default 0",
        ] {
            assert_eq!(objection(good), None, "{good}");
        }
        for bad in [
            "drop index event_key",
            "create index event_x on event (x)",
            "alter table event drop column key",
            "alter table event add column x bigint not null",
            "update event set key = null",
            "alter table event add column x bigint unique",
            "alter table event add column x bigint primary key",
            "alter table event add column x bigint references tenant (id)",
            "alter table event add column x bigint generated always as (1) stored",
            "alter table event add column x bigint check (x > 0)",
            "alter table event add column x bigint constraint positive check (x > 0)",
            "alter table event add column x uuid default gen_random_uuid()",
            "alter table event add column x bigint not null default 0, add column y bigint not null",
            "create table a (x bigint references tenant (id))",
        ] {
            assert_eq!(objection(bad).as_deref(), Some(bad));
        }
    }
}
