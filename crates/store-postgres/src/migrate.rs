//! Bringing the schema to the version this binary knows.
//!
//! Forward only, all missing versions in one transaction under one lock: several nodes may start at
//! once, and one that is killed half-way leaves nothing. What was applied is remembered with a
//! checksum, so that a changed file is noticed instead of being believed.

use std::time::Duration;

use deadpool_postgres::{Object, PoolError};
use posthorn_store::{Error, Result};
use tracing::{debug, info, warn};

use crate::failure::Outcome;
use crate::lock;
use crate::options::{Options, quoted};
use crate::session::{Operation, Session, allow_slow, batch, begin, commit};

/// All versions, in order, from 1.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_base.sql"),
    include_str!("../migrations/0002_admission.sql"),
    include_str!("../migrations/0003_certificate.sql"),
    include_str!("../migrations/0004_names.sql"),
    include_str!("../migrations/0005_push.sql"),
    include_str!("../migrations/0006_push_topics.sql"),
    include_str!("../migrations/0007_failing.sql"),
    include_str!("../migrations/0008_revival.sql"),
    include_str!("../migrations/0009_clients.sql"),
    include_str!("../migrations/0010_entries.sql"),
    include_str!("../migrations/0011_timings.sql"),
    include_str!("../migrations/0012_log.sql"),
    include_str!("../migrations/0013_jobs.sql"),
    include_str!("../migrations/0014_times.sql"),
    include_str!("../migrations/0015_expunge.sql"),
    include_str!("../migrations/0016_sent_request.sql"),
    include_str!("../migrations/0017_kinds.sql"),
    include_str!("../migrations/0018_told.sql"),
    include_str!("../migrations/0019_series.sql"),
    include_str!("../migrations/0020_realms.sql"),
    include_str!("../migrations/0021_audit.sql"),
    include_str!("../migrations/0022_trace.sql"),
    include_str!("../migrations/0023_replayed.sql"),
    include_str!("../migrations/0024_sessions.sql"),
    include_str!("../migrations/0025_nodes.sql"),
    include_str!("../migrations/0026_questions.sql"),
    include_str!("../migrations/0030_kept_answers.sql"),
];
/// The oldest server whose features are enough.
const SERVER_MIN: i32 = 140_000;

const MIGRATE: Operation =
    Operation::write("migrate", "bring the schema up to date").patient(PATIENCE);
/// What a migration may take: one that rewrites a long history is not half done.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Checks the server and applies what is missing.
pub(crate) async fn run(session: &Session, options: &Options) -> Result<()> {
    let schema = options.schema.clone();
    let migrated = session
        .run(MIGRATE, move |client| {
            let schema = schema.clone();
            Box::pin(async move {
                check_server(client).await?;
                migrate(client, schema.as_deref()).await
            })
        })
        .await;
    match migrated {
        Err(Error::Unavailable { source: Some(source), .. }) if is_mistake(&*source) => {
            Err(Error::fatal("connect to the database", source))
        }
        other => other,
    }
}

/// Whether the server answered, and does not let us in or does not know the database. Waiting does
/// not help against that, at least not at the start.
fn is_mistake(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    match error.downcast_ref::<PoolError>() {
        Some(PoolError::Backend(error)) => error
            .code()
            .is_some_and(|state| state.code().starts_with("28") || state.code() == "3D000"),
        _ => false,
    }
}

async fn check_server(client: &Object) -> Outcome<()> {
    let row = client
        .query_one(
            "select current_setting('server_version_num')::int4, \
             current_setting('synchronous_commit'), current_setting('fsync'), pg_is_in_recovery()",
            &[],
        )
        .await?;
    let version: i32 = row.try_get(0)?;
    if version < SERVER_MIN {
        let text = format!("PostgreSQL 14 or newer is needed, the server is {}", version / 10_000);
        return Err(Error::fatal("use the database", text).into());
    }
    let synchronous: &str = row.try_get(1)?;
    if matches!(synchronous, "off" | "local") {
        let text = "synchronous_commit is off and cannot be set to on for this session";
        return Err(Error::fatal("use the database", text).into());
    }
    if row.try_get::<_, &str>(2)? == "off" {
        warn!("The database runs with fsync = off: what it acknowledges can be lost in a crash");
    }
    if row.try_get(3)? {
        return Err(Error::unavailable("use the database", "the server is a standby").into());
    }
    Ok(())
}

/// The version that a schema has, 0 for none, and the newest that this program knows.
pub(crate) async fn versions(client: &Object) -> Outcome<(usize, usize)> {
    let there = client.query_one("select to_regclass('migration') is not null", &[]).await?;
    if !there.try_get::<_, bool>(0)? {
        return Ok((0, MIGRATIONS.len()));
    }
    let rows = client.query("select version, checksum from migration", &[]).await?;
    for row in &rows {
        check_applied(row.try_get(0)?, row.try_get(1)?)?;
    }
    Ok((rows.len(), MIGRATIONS.len()))
}

async fn migrate(client: &Object, schema: Option<&str>) -> Outcome<()> {
    begin(client).await?;
    allow_slow(client).await?;
    batch(client, "set local statement_timeout = 0; set local lock_timeout = 0").await?;
    batch(client, &format!("select pg_advisory_xact_lock({})", lock::SCHEMA)).await?;
    if let Some(schema) = schema {
        batch(client, &format!("create schema if not exists {}", quoted(schema))).await?;
    }
    batch(
        client,
        "create table if not exists migration (version integer primary key, \
         checksum text not null, applied_at timestamptz not null default clock_timestamp())",
    )
    .await?;
    let rows =
        client.query("select version, checksum from migration order by version", &[]).await?;
    for row in &rows {
        let (version, checksum): (i32, &str) = (row.try_get(0)?, row.try_get(1)?);
        check_applied(version, checksum)?;
    }
    match rows.len() {
        0 => info!(version = MIGRATIONS.len(), "creating the tables"),
        found if found < MIGRATIONS.len() => {
            info!(from = found, to = MIGRATIONS.len(), "migrating the database");
        }
        _ => {}
    }
    for (index, text) in MIGRATIONS.iter().enumerate().skip(rows.len()) {
        let version = i32::try_from(index + 1).unwrap_or(i32::MAX);
        debug!(version, "migrating the database");
        batch(client, text).await?;
        client
            .execute(
                "insert into migration (version, checksum) values ($1, $2)",
                &[&version, &checksum_of(text)],
            )
            .await?;
    }
    commit(client).await
}

fn check_applied(version: i32, checksum: &str) -> Result<()> {
    let known = usize::try_from(version).ok().and_then(|v| MIGRATIONS.get(v.checked_sub(1)?));
    let Some(text) = known else {
        let newest = MIGRATIONS.len();
        let problem = format!(
            "the schema has version {version}, this program knows {newest}: run a newer program"
        );
        return Err(Error::fatal("use the database", problem));
    };
    if checksum_of(text) != checksum {
        let problem = format!("schema version {version} was created by a different migration");
        return Err(Error::fatal("use the database", problem));
    }
    Ok(())
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

    #[test]
    fn newer_and_changed_schemas_are_refused() {
        let first = checksum_of(MIGRATIONS[0]);
        assert!(check_applied(1, &first).is_ok());
        assert!(check_applied(1, "0").is_err());
        assert!(check_applied(0, &first).is_err());
        let newer = i32::try_from(MIGRATIONS.len()).expect("few") + 1;
        let error = check_applied(newer, &first).expect_err("a newer schema");
        assert!(matches!(error, Error::Fatal { .. }));
    }
}
