//! Bringing an older database up to date: numbered files, forward only, each in one transaction.
//!
//! A process that is killed in between leaves the earlier migrations applied and nothing of the
//! later ones; the next start goes on. Each applied migration leaves its checksum, so a database
//! that was migrated by a different program is noticed before anything is read from it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthorn_domain::{
    CertificateId, FailureCode, KeyId, Outcome, SubscriptionId, TenantId, Timestamp,
};
use rusqlite::functions::FunctionFlags;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use sha2::{Digest, Sha256};

use crate::error::OpenError;

/// All migrations; the version is the place in the list, from 1.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_initial.sql"),
    include_str!("migrations/0002_admission.sql"),
    include_str!("migrations/0003_certificate.sql"),
    include_str!("migrations/0004_names.sql"),
    include_str!("migrations/0005_push.sql"),
    include_str!("migrations/0006_push_topics.sql"),
    include_str!("migrations/0007_failing.sql"),
    include_str!("migrations/0008_revival.sql"),
    include_str!("migrations/0009_clients.sql"),
    include_str!("migrations/0010_entries.sql"),
    include_str!("migrations/0011_timings.sql"),
    include_str!("migrations/0012_log.sql"),
    include_str!("migrations/0013_jobs.sql"),
    include_str!("migrations/0014_times.sql"),
    include_str!("migrations/0015_expunge.sql"),
    include_str!("migrations/0016_sent_request.sql"),
    include_str!("migrations/0017_told.sql"),
    include_str!("migrations/0018_rollups.sql"),
    include_str!("migrations/0019_realms.sql"),
    include_str!("migrations/0020_audit.sql"),
    include_str!("migrations/0021_trace.sql"),
    include_str!("migrations/0022_sessions.sql"),
    include_str!("migrations/0023_questions.sql"),
    include_str!("migrations/0030_kept_answers.sql"),
];

/// Brings the database to the newest version.
pub(crate) fn migrate(conn: &mut Connection) -> Result<(), OpenError> {
    let configuring = |source| OpenError::Sqlite { doing: "configuring the connection", source };
    add_functions(conn).map_err(configuring)?;
    // A table that others refer to is made anew, which is only possible while nobody checks.
    conn.pragma_update(None, "foreign_keys", false).map_err(configuring)?;
    apply(conn, MIGRATIONS)?;
    conn.pragma_update(None, "foreign_keys", true).map_err(configuring)
}

/// The version that a database has, and the newest that this program knows. A database without any has 0.
pub(crate) fn versions(conn: &Connection) -> Result<(u32, u32), OpenError> {
    let read = || -> rusqlite::Result<u32> {
        let there = "select exists (select 1 from sqlite_schema where name = 'migration')";
        match conn.query_row(there, [], |row| row.get(0))? {
            false => Ok(0),
            true => {
                let newest = "select coalesce(max(version), 0) from migration";
                conn.query_row(newest, [], |row| row.get(0))
            }
        }
    };
    let found = read().map_err(OpenError::sqlite("reading the schema version"))?;
    let known = number(MIGRATIONS.len());
    match found > known {
        true => Err(OpenError::NewerSchema { found, known }),
        false => Ok((found, known)),
    }
}

/// How the domain writes values in documents, for statements that make some of columns.
fn add_functions(conn: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    conn.create_scalar_function("typed", 2, flags, |context| {
        let (prefix, id): (String, Option<[u8; 16]>) = (context.get(0)?, context.get(1)?);
        let Some(id) = id else { return Ok(None) };
        Ok(Some(match prefix.as_str() {
            TenantId::PREFIX => TenantId::from_bytes(id).to_string(),
            SubscriptionId::PREFIX => SubscriptionId::from_bytes(id).to_string(),
            KeyId::PREFIX => KeyId::from_bytes(id).to_string(),
            CertificateId::PREFIX => CertificateId::from_bytes(id).to_string(),
            _ => return Err(rusqlite::Error::InvalidFunctionParameterType(0, Type::Text)),
        }))
    })?;
    conn.create_scalar_function("outcome", 2, flags, |context| {
        let (status, failure): (Option<u16>, Option<String>) = (context.get(0)?, context.get(1)?);
        let failure = failure.as_deref().and_then(FailureCode::parse).map(Outcome::Failure);
        Ok(status.map(Outcome::Status).or(failure).map(Outcome::code))
    })?;
    conn.create_scalar_function("moment", 1, flags, |context| {
        let millis: Option<i64> = context.get(0)?;
        Ok(millis.map(|millis| Timestamp::from_millis(millis).to_string()))
    })?;
    conn.create_scalar_function("base64", 1, flags, |context| {
        let bytes: Option<Vec<u8>> = context.get(0)?;
        Ok(bytes.map(|bytes| STANDARD.encode(bytes)))
    })
}

fn apply(conn: &mut Connection, migrations: &[&str]) -> Result<(), OpenError> {
    conn.execute_batch(
        "create table if not exists migration (version integer primary key, \
         checksum text not null, applied_at integer not null) strict",
    )
    .map_err(OpenError::sqlite("creating the table of migrations"))?;
    let known = number(migrations.len());
    let found: u32 = conn
        .query_row("select coalesce(max(version), 0) from migration", [], |row| row.get(0))
        .map_err(OpenError::sqlite("reading the schema version"))?;
    if found > known {
        return Err(OpenError::NewerSchema { found, known });
    }
    match found {
        0 => tracing::info!(version = known, "creating the database"),
        found if found < known => {
            tracing::info!(from = found, to = known, "migrating the database");
        }
        _ => {}
    }
    for (index, sql) in migrations.iter().enumerate() {
        apply_one(conn, number(index + 1), sql)?;
    }
    Ok(())
}

fn apply_one(conn: &mut Connection, version: u32, sql: &str) -> Result<(), OpenError> {
    let checksum: String = Sha256::digest(sql).iter().map(|byte| format!("{byte:02x}")).collect();
    let transaction = conn
        .transaction_with_behavior(TransactionBehavior::Exclusive)
        .map_err(OpenError::sqlite("beginning a migration"))?;
    let stored: Option<String> = transaction
        .query_row("select checksum from migration where version = ?1", [version], |row| row.get(0))
        .optional()
        .map_err(OpenError::sqlite("reading the table of migrations"))?;
    match stored {
        Some(stored) if stored == checksum => return Ok(()),
        Some(_) => return Err(OpenError::ChangedMigration { version }),
        None => {}
    }
    tracing::debug!(version, "migrating the database");
    transaction.execute_batch(sql).map_err(OpenError::sqlite("applying a migration"))?;
    transaction
        .execute(
            "insert into migration values (?1, ?2, cast(unixepoch('subsec') * 1000 as integer))",
            (version, checksum),
        )
        .map_err(OpenError::sqlite("recording a migration"))?;
    transaction.commit().map_err(OpenError::sqlite("committing a migration"))
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "create table a (x integer); insert into a values (1);";
    const TWO: &str = "alter table a add column y integer;";
    const BROKEN: &str = "create table b (x integer); insert into nowhere values (1);";

    #[test]
    fn migrations_run_once_and_in_order() {
        let mut conn = Connection::open_in_memory().expect("a database");
        apply(&mut conn, &[ONE]).expect("the first");
        apply(&mut conn, &[ONE, TWO]).expect("the second");
        apply(&mut conn, &[ONE, TWO]).expect("nothing to do");
        let rows: i64 =
            conn.query_row("select count(*) from a where y is null", [], |r| r.get(0)).expect("a");
        assert_eq!(rows, 1);
    }

    #[test]
    fn a_migration_that_stops_halfway_leaves_nothing() {
        let mut conn = Connection::open_in_memory().expect("a database");
        apply(&mut conn, &[ONE, BROKEN]).expect_err("the second is broken");
        let tables: i64 = conn
            .query_row("select count(*) from sqlite_schema where name = 'b'", [], |r| r.get(0))
            .expect("the schema");
        assert_eq!(tables, 0);
        apply(&mut conn, &[ONE, TWO]).expect("goes on where it stopped");
    }

    #[test]
    fn newer_and_changed_schemas_are_refused() {
        let mut conn = Connection::open_in_memory().expect("a database");
        apply(&mut conn, &[ONE, TWO]).expect("both");
        let newer = apply(&mut conn, &[ONE]).expect_err("one is unknown");
        assert!(matches!(newer, OpenError::NewerSchema { found: 2, known: 1 }), "{newer:?}");
        let changed = apply(&mut conn, &[TWO, TWO]).expect_err("the first differs");
        assert!(matches!(changed, OpenError::ChangedMigration { version: 1 }), "{changed:?}");
    }
}
