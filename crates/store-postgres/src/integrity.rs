//! Looking for damage, without changing anything.
//!
//! PostgreSQL notices a damaged page when it is read (with data checksums, always), so every row of
//! every table is read, large values included. Whether an index still fits its table only the extension
//! `amcheck` can tell, where somebody has installed it and the role may use it.

use deadpool_postgres::Object;
use posthorn_store::{Error, Result};
use tokio_postgres::error::SqlState;

use crate::failure::Outcome;
use crate::options::Options;
use crate::session::{Operation, Session, allow_endless, begin_snapshot, commit, query};

const TABLES: Operation = Operation::read("check", "list the tables").endless();
const READ: Operation = Operation::read("check", "read a table").endless();
const COMPARE: Operation = Operation::read("check", "compare an index with its table").endless();

/// What a check saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Tables that were read.
    pub tables: usize,
    /// Their rows.
    pub rows: u64,
    /// Indexes that were compared with their tables; `None` where that was not possible.
    pub indexes: Option<usize>,
    /// One line for each finding; none means that everything is sound.
    pub findings: Vec<String>,
}

/// Reads everything in the schema; with `quick`, indexes are not compared. Fails only when the database
/// cannot be asked: damage is a result.
pub async fn check(options: &Options, quick: bool) -> Result<Checked> {
    let session = Session::direct(options)?;
    let mut checked = Checked::default();
    for table in names(&session, 'r').await? {
        checked.tables += 1;
        let sql = format!("select count(*), coalesce(sum(length(t::text)), 0) from {table} t");
        match one(&session, READ, sql).await {
            Ok(rows) => checked.rows += rows,
            Err(error) => checked.findings.push(format!("{table}: {}", damage(error)?)),
        }
    }
    if quick || !has_amcheck(&session).await? {
        return Ok(checked);
    }
    let mut compared = 0;
    for index in names(&session, 'i').await? {
        // Names come from the catalog of the database, quoted where they must be.
        let sql = format!(
            "select 1::bigint from bt_index_check('{}'::regclass, true)",
            index.replace('\'', "''")
        );
        match one(&session, COMPARE, sql).await {
            Ok(_) => compared += 1,
            Err(error) if state(&error) == Some(SqlState::INSUFFICIENT_PRIVILEGE) => {
                return Ok(checked);
            }
            // Indexes of other kinds cannot be compared.
            Err(error) if state(&error) == Some(SqlState::FEATURE_NOT_SUPPORTED) => {}
            Err(error) => checked.findings.push(format!("{index}: {}", damage(error)?)),
        }
    }
    checked.indexes = Some(compared);
    Ok(checked)
}

/// The tables (`r`) or indexes (`i`) of our schema.
async fn names(session: &Session, kind: char) -> Result<Vec<String>> {
    let kind = kind.to_string();
    session
        .run(TABLES, move |client| {
            let kind = kind.clone();
            Box::pin(async move {
                let sql = "select c.oid::regclass::text from pg_class c \
                           where c.relnamespace = current_schema()::regnamespace \
                           and c.relkind::text = $1 order by 1";
                let rows = query(client, sql, &[&kind]).await?;
                Ok(rows.iter().map(|row| row.get(0)).collect())
            })
        })
        .await
}

async fn has_amcheck(session: &Session) -> Result<bool> {
    let sql = "select count(*) from pg_extension where extname = 'amcheck'".to_owned();
    Ok(one(session, TABLES, sql).await? > 0)
}

/// The first number of the only row.
async fn one(session: &Session, operation: Operation, sql: String) -> Result<u64> {
    session
        .run(operation, move |client| {
            let sql = sql.clone();
            Box::pin(async move { number(client, &sql).await })
        })
        .await
}

async fn number(client: &Object, sql: &str) -> Outcome<u64> {
    begin_snapshot(client).await?;
    allow_endless(client).await?;
    let row = client.query_one(sql, &[]).await?;
    commit(client).await?;
    Ok(row.get::<_, i64>(0).unsigned_abs())
}

fn of_database(error: &Error) -> Option<&tokio_postgres::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

fn state(error: &Error) -> Option<SqlState> {
    of_database(error)?.code().cloned()
}

/// What the database says of damage (it calls it internal or a system error); other errors are not
/// about it.
fn damage(error: Error) -> Result<String> {
    let found = state(&error).filter(|state| matches!(&state.code()[..2], "XX" | "58"));
    let text = of_database(&error).and_then(|e| e.as_db_error()).map(|db| db.message().to_owned());
    match (found, text) {
        (Some(_), Some(text)) => Ok(text),
        _ => Err(error),
    }
}
