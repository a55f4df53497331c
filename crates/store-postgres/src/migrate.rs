//! Bringing the schema to the version this binary knows.
//!
//! Forward only, all missing versions in one transaction under one lock: several nodes may start at
//! once, and one that is killed half-way leaves nothing. What was applied is remembered with a
//! checksum, so that a changed file is noticed instead of being believed, and with the version that programs must
//! know from then on (`posthorn_store::schema` has the rule).
//!
//! Migrations that others may go on beside are applied under traffic. One waits for a lock no longer than [`LOCK_WAIT`],
//! because everybody behind it waits as well, then lets go of everything and tries again. The other kind is applied while nobody
//! else is at work (`gate`), and may take its time.

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

/// For a lock, when others are at work.
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
        let migrated = session
            .run(MIGRATE, move |client| {
                let (place, schema) = (place.clone(), schema.clone());
                Box::pin(async move { migrate(client, place.as_deref(), pooling, &schema).await })
            })
            .await;
        match migrated {
            Err(Error::Unavailable { source: Some(source), .. })
                if is_lock_wait(&*source) && tries < LOCK_TRIES =>
            {
                info!(tries, "A table that the new schema changes is in use; trying again");
                tries += 1;
                sleep(LOCK_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Whether somebody held a lock for too long.
fn is_lock_wait(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    let error = error.downcast_ref::<tokio_postgres::Error>();
    error.and_then(tokio_postgres::Error::code) == Some(&SqlState::LOCK_NOT_AVAILABLE)
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
    }
    batch(
        client,
        "create table if not exists migration (version integer primary key, \
         checksum text not null, applied_at timestamptz not null default clock_timestamp()); \
         alter table migration add column if not exists least integer, \
         add column if not exists program text",
    )
    .await?;
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
                let adds = rest.split(',').all(|change| change.contains("add column "));
                !adds || (rest.contains("not null") && !rest.contains("default"))
            } else if index {
                // It would keep writers out for as long as it takes to read the table.
                on.is_none_or(|table| !made.contains(&table))
            } else {
                !ADDS.iter().any(|start| part.starts_with(start))
            };
            bad.then(|| part.clone())
        })
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
        ] {
            assert_eq!(objection(bad).as_deref(), Some(bad));
        }
    }
}
