//! Bringing an older database up to date: numbered files, forward only, each in one transaction.
//!
//! A process that is killed in between leaves the earlier migrations applied and nothing of the
//! later ones; the next start goes on. Each applied migration leaves its checksum, so a database
//! that was migrated by a different program is noticed before anything is read from it. It also leaves
//! which version a program must know from then on: an older program that may go on is let in (`posthorn_store::schema`
//! has the rule). Nobody else is at work meanwhile: the directory is locked.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthorn_domain::{
    CertificateId, FailureCode, KeyId, Outcome, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::schema::{Applied, Migration, Missing, Schema};
use rusqlite::functions::FunctionFlags;
use rusqlite::types::Type;
use rusqlite::{Connection, TransactionBehavior};
use sha2::{Digest, Sha256};

use crate::error::OpenError;

/// What this program knows. Every version before this one can be brought up to date in one step.
pub(crate) static SCHEMA: Schema = Schema::new(MIGRATIONS, checksum);

/// All migrations; the version is the place in the list, from 1. A new one may be `beside` when it only adds: see
/// docs/adr/0054.
const MIGRATIONS: &[Migration] = &[
    Migration::alone(include_str!("migrations/0001_initial.sql")),
    Migration::alone(include_str!("migrations/0002_admission.sql")),
    Migration::alone(include_str!("migrations/0003_certificate.sql")),
    Migration::alone(include_str!("migrations/0004_names.sql")),
    Migration::alone(include_str!("migrations/0005_push.sql")),
    Migration::alone(include_str!("migrations/0006_push_topics.sql")),
    Migration::alone(include_str!("migrations/0007_failing.sql")),
    Migration::alone(include_str!("migrations/0008_revival.sql")),
    Migration::alone(include_str!("migrations/0009_clients.sql")),
    Migration::alone(include_str!("migrations/0010_entries.sql")),
    Migration::alone(include_str!("migrations/0011_timings.sql")),
    Migration::alone(include_str!("migrations/0012_log.sql")),
    Migration::alone(include_str!("migrations/0013_jobs.sql")),
    Migration::alone(include_str!("migrations/0014_times.sql")),
    Migration::alone(include_str!("migrations/0015_expunge.sql")),
    Migration::alone(include_str!("migrations/0016_sent_request.sql")),
    Migration::alone(include_str!("migrations/0017_told.sql")),
    Migration::alone(include_str!("migrations/0018_rollups.sql")),
    Migration::alone(include_str!("migrations/0019_realms.sql")),
    Migration::alone(include_str!("migrations/0020_audit.sql")),
    Migration::alone(include_str!("migrations/0021_trace.sql")),
    Migration::alone(include_str!("migrations/0022_sessions.sql")),
    Migration::alone(include_str!("migrations/0023_questions.sql")),
    Migration::alone(include_str!("migrations/0030_kept_answers.sql")),
];

/// The version of the schema that this program writes.
pub const SCHEMA_VERSION: usize = MIGRATIONS.len();

/// Brings the database to the newest version of `schema`.
pub(crate) fn migrate(conn: &mut Connection, schema: &Schema) -> Result<(), OpenError> {
    let configuring = |source| OpenError::Sqlite { doing: "configuring the connection", source };
    add_functions(conn).map_err(configuring)?;
    // A table that others refer to is made anew, which is only possible while nobody checks.
    conn.pragma_update(None, "foreign_keys", false).map_err(configuring)?;
    apply(conn, schema)?;
    conn.pragma_update(None, "foreign_keys", true).map_err(configuring)
}

/// The version that a database has, and the newest that this program knows. A database without any has 0. What a newer
/// program has added is not known here, so nothing that must know all of it can be done.
pub(crate) fn versions(conn: &Connection) -> Result<(u32, u32), OpenError> {
    let applied = applied(conn).map_err(OpenError::sqlite("reading the schema version"))?;
    SCHEMA.whole(&applied)?;
    Ok((applied.last().map_or(0, |newest| newest.version), SCHEMA.known()))
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

fn apply(conn: &mut Connection, schema: &Schema) -> Result<(), OpenError> {
    let applied = applied(conn).map_err(OpenError::sqlite("reading the schema version"))?;
    let missing = schema.missing(&applied)?;
    let (found, known) = (applied.len(), schema.known());
    match missing.first() {
        Some(first) if first.version == 1 => {
            tracing::info!(version = known, "creating the database")
        }
        Some(_) => tracing::info!(from = found, to = known, "migrating the database"),
        None if applied.last().is_some_and(|newest| newest.version > known) => {
            tracing::info!(
                found,
                known,
                "the database is of a newer version, which this one can work with"
            );
        }
        None => {}
    }
    if !missing.is_empty() {
        remember(conn).map_err(OpenError::sqlite("creating the table of migrations"))?;
    }
    missing.iter().try_for_each(|missing| apply_one(conn, missing))
}

/// The versions that the database has. Only reads.
fn applied(conn: &Connection) -> rusqlite::Result<Vec<Applied>> {
    let columns = columns(conn)?;
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    // Programs of before did not write them.
    let column = |name: &str| {
        if columns.iter().any(|known| known == name) { name.to_owned() } else { "null".to_owned() }
    };
    let text = format!(
        "select version, checksum, {}, {} from migration order by version",
        column("least"),
        column("program")
    );
    let mut statement = conn.prepare(&text)?;
    let rows = statement.query_map([], |row| {
        Ok(Applied {
            version: row.get(0)?,
            checksum: row.get(1)?,
            least: row.get(2)?,
            program: row.get(3)?,
        })
    })?;
    rows.collect()
}

fn columns(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare("select name from pragma_table_info('migration')")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// Makes the table of migrations as this program writes it.
fn remember(conn: &mut Connection) -> rusqlite::Result<()> {
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Exclusive)?;
    transaction.execute_batch(
        "create table if not exists migration (version integer primary key, \
         checksum text not null, applied_at integer not null) strict",
    )?;
    let there = columns(&transaction)?;
    for (name, kind) in [("least", "integer"), ("program", "text")] {
        if !there.iter().any(|known| known == name) {
            transaction
                .execute_batch(&format!("alter table migration add column {name} {kind}"))?;
        }
    }
    transaction.commit()
}

fn apply_one(conn: &mut Connection, missing: &Missing<'_>) -> Result<(), OpenError> {
    let transaction = conn
        .transaction_with_behavior(TransactionBehavior::Exclusive)
        .map_err(OpenError::sqlite("beginning a migration"))?;
    tracing::debug!(version = missing.version, "migrating the database");
    transaction.execute_batch(missing.text).map_err(OpenError::sqlite("applying a migration"))?;
    transaction
        .execute(
            "insert into migration (version, checksum, applied_at, least, program) \
             values (?1, ?2, cast(unixepoch('subsec') * 1000 as integer), ?3, ?4)",
            (missing.version, &missing.checksum, missing.least, env!("CARGO_PKG_VERSION")),
        )
        .map_err(OpenError::sqlite("recording a migration"))?;
    transaction.commit().map_err(OpenError::sqlite("committing a migration"))
}

fn checksum(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use posthorn_store::schema::{Kind, Mismatch};

    use super::*;

    static NONE: Schema = Schema::new(&[], checksum);
    const ONE: Migration =
        Migration::alone("create table a (x integer); insert into a values (1);");
    const TWO: Migration = Migration::alone("alter table a add column y integer;");
    const BESIDE: Migration = Migration::beside("create table c (x integer);");
    const BROKEN: Migration =
        Migration::alone("create table b (x integer); insert into nowhere values (1);");

    fn empty() -> Connection {
        Connection::open_in_memory().expect("a database")
    }

    /// Everything that the database says of itself.
    fn shown(conn: &Connection) -> Vec<String> {
        let text = "select coalesce(sql, name) from sqlite_schema union all \
                    select version || ' ' || checksum from migration";
        let mut statement = conn.prepare(text).expect("a question");
        let rows = statement.query_map([], |row| row.get(0)).expect("rows");
        rows.collect::<Result<_, _>>().expect("texts")
    }

    #[test]
    fn migrations_run_once_and_in_order() {
        let mut conn = empty();
        let one = NONE.and(ONE);
        let both = one.and(TWO);
        apply(&mut conn, &one).expect("the first");
        apply(&mut conn, &both).expect("the second");
        apply(&mut conn, &both).expect("nothing to do");
        let rows: i64 =
            conn.query_row("select count(*) from a where y is null", [], |r| r.get(0)).expect("a");
        assert_eq!(rows, 1);
    }

    #[test]
    fn a_migration_that_stops_halfway_leaves_nothing() {
        let mut conn = empty();
        apply(&mut conn, &NONE.and(ONE).and(BROKEN)).expect_err("the second is broken");
        let tables: i64 = conn
            .query_row("select count(*) from sqlite_schema where name = 'b'", [], |r| r.get(0))
            .expect("the schema");
        assert_eq!(tables, 0);
        apply(&mut conn, &NONE.and(ONE).and(TWO)).expect("goes on where it stopped");
    }

    #[test]
    fn what_is_refused_is_not_changed() {
        let mut conn = empty();
        let one = NONE.and(ONE);
        apply(&mut conn, &one.and(TWO)).expect("both");
        let before = shown(&conn);
        let newer = apply(&mut conn, &one).expect_err("one is unknown");
        assert!(matches!(newer, OpenError::Schema(Mismatch::Newer { found: 2, known: 1, .. })));
        let changed = apply(&mut conn, &NONE.and(TWO).and(TWO)).expect_err("the first differs");
        assert!(matches!(changed, OpenError::Schema(Mismatch::Changed { version: 1 })));
        let late = one.and(TWO).and(BESIDE).since(3);
        let old = apply(&mut conn, &late).expect_err("too old");
        assert!(matches!(old, OpenError::Schema(Mismatch::TooOld { found: 2, oldest: 3 })));
        assert_eq!(shown(&conn), before);
    }

    #[test]
    fn an_older_program_is_let_in_where_only_something_was_added() {
        let mut conn = empty();
        let one = NONE.and(ONE);
        apply(&mut conn, &one.and(BESIDE)).expect("both");
        let before = shown(&conn);
        apply(&mut conn, &one).expect("it may");
        assert_eq!(shown(&conn), before);
    }

    /// The table of migrations as programs left it that did not say what others must know.
    #[test]
    fn a_table_of_before_is_read_and_completed() {
        let mut conn = empty();
        apply(&mut conn, &NONE.and(ONE)).expect("the first");
        conn.execute_batch(
            "alter table migration drop column least; alter table migration drop column program",
        )
        .expect("as it was");
        let before = shown(&conn);
        apply(&mut conn, &NONE.and(ONE)).expect("nothing to do");
        assert_eq!(shown(&conn), before, "only who adds a version touches it");
        apply(&mut conn, &NONE.and(ONE).and(TWO)).expect("the second");
        let kept: (Option<u32>, Option<u32>) = conn
            .query_row("select min(least), max(least) from migration", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .expect("a row");
        assert_eq!(kept, (Some(2), Some(2)));
    }

    /// What is wrong with a migration after which older programs are still let in: they know of no rule that a new column or
    /// index brings, and would break it.
    fn objection(text: &str) -> Option<String> {
        let code = text.lines().map(|line| line.split("--").next().unwrap_or(""));
        let code = code.collect::<Vec<_>>().join(" ").replace('(', " (");
        let words = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
        let statements: Vec<String> =
            code.split(';').map(words).filter(|part| !part.is_empty()).collect();
        let name = |rest: &str| rest.split([' ', '(', ',', ')']).next().map(str::to_owned);
        let made: Vec<String> = statements
            .iter()
            .filter_map(|part| name(part.strip_prefix("create table ")?))
            .collect();
        let is_new = |rest: &str| name(rest).is_some_and(|table| made.contains(&table));
        let objection = statements.iter().find(|part| {
            if let Some(rest) = part.strip_prefix("alter table ") {
                let rules = [" unique", " primary ", " references ", " generated ", " check "];
                let default = rest.split(" default ").nth(1);
                !rest.contains(" add column ")
                    || rules.iter().any(|rule| format!("{rest} ").contains(rule))
                    || (rest.contains(" not null") && default.is_none())
                    || default.is_some_and(|value| value.contains('('))
            } else if part.starts_with("create unique index ") {
                !part.split(" on ").nth(1).is_some_and(is_new)
            } else if part.starts_with("create table ") {
                !part.split(" references ").skip(1).all(is_new)
            } else {
                !part.starts_with("create index ")
            }
        });
        objection.cloned()
    }

    #[test]
    fn what_lets_older_programs_in_only_adds() {
        for (index, migration) in MIGRATIONS.iter().enumerate() {
            if migration.kind() == Kind::Beside {
                assert_eq!(objection(migration.text()), None, "version {}", index + 1);
            }
        }
        for good in [
            "create table a (x integer primary key); create unique index a_x on a (x); -- why\n",
            "create table a (x integer primary key); create table b (x integer references a (x))",
            "alter table event add column x integer not null default 0; create index event_x on event (x)",
        ] {
            assert_eq!(objection(good), None, "{good}");
        }
        for bad in [
            "drop index event_key",
            "create unique index event_x on event (x)",
            "create table a (x integer references event (id))",
            "alter table event drop column key",
            "alter table event add column x integer not null",
            "alter table event add column x integer check (x > 0)",
            "alter table event add column x integer references event (id)",
            "alter table event add column x integer default (random ())",
            "update event set key = null",
        ] {
            assert_eq!(objection(bad).as_deref(), Some(bad));
        }
    }
}
