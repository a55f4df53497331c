//! Who is at work on the database, and what they know of its schema.
//!
//! # Theory of operation
//! Every connection holds an advisory lock as long as it lasts, its *gate*: shared, with the newest schema version that its
//! program knows and the schema of its tables as keys. So the database itself knows which programs are at work, also
//! those that tell no node's signs of life, and forgets one with its connections. A migration that older programs cannot go on
//! beside takes the gates of their versions exclusively until it has committed: it is refused while one of
//! them is taken, and who comes meanwhile waits. After it, the gate is open again, and who has come through it looks at
//! what the database asks of programs, and leaves ([`look`]).
//!
//! Programs of before hold no gate. They are known by their slot of the tally.

use std::fmt::Write as _;

use deadpool_postgres::Object;
use posthorn_domain::NodeId;
use posthorn_store::Error;
use posthorn_store::schema::Mismatch;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::codec::Reader;
use crate::failure::Outcome;
use crate::lock;
use crate::session::BY_HAND;

/// The first key is this and the version; other locks of ours begin below.
const GATES: i64 = 730_000;
const GATES_END: i64 = 739_999;

/// The second key: which schema of the database. Zero where it is yet to be made.
const PLACE: &str =
    "(coalesce(to_regnamespace(quote_ident(current_schema()))::oid::int8, 0) & 2147483647)::int4";

/// The statement that takes the gate, on a connection that has its `search_path`.
pub(crate) fn enter(known: u32) -> String {
    format!("select pg_advisory_lock_shared({}, {PLACE});", GATES + i64::from(known))
}

/// Whether a program that knows `known` may work on the database. Only the first connection to a database of before, or to an
/// empty one, finds nothing to look at.
pub(crate) async fn look(
    client: &Client,
    known: u32,
) -> Result<Result<(), Mismatch>, tokio_postgres::Error> {
    let text = "select max(version), max(coalesce(least, version)), \
                (array_agg(program order by version desc))[1] from migration";
    let row = match client.query_one(text, &[]).await {
        Ok(row) => row,
        Err(error) if is_before(&error) => return Ok(Ok(())),
        Err(error) => return Err(error),
    };
    let number =
        |value: Option<i32>| value.and_then(|value| u32::try_from(value).ok()).unwrap_or(0);
    let (found, least) = (number(row.try_get(0)?), number(row.try_get(1)?));
    if least <= known {
        return Ok(Ok(()));
    }
    Ok(Err(Mismatch::Newer { found, least, known, program: row.try_get(2)? }))
}

fn is_before(error: &tokio_postgres::Error) -> bool {
    matches!(error.code(), Some(&SqlState::UNDEFINED_TABLE | &SqlState::UNDEFINED_COLUMN))
}

/// Inside a transaction: keeps programs out, until its end, that do not know `version`. Fails when some are at work.
pub(crate) async fn close(client: &Object, version: u32) -> Outcome<()> {
    let older = GATES + i64::from(version) - 1;
    let text = format!(
        "select coalesce(bool_and(pg_try_advisory_xact_lock(gate, {PLACE})), true) \
         from generate_series({GATES} + 1, {older}) as gate"
    );
    let closed: bool = client.query_one(&text, &[]).await?.try_get(0)?;
    let programs = at_work(client, older).await?;
    if !programs.is_empty() {
        return Err(Error::fatal("use the database", Mismatch::AtWork { version, programs }).into());
    }
    if !closed {
        let left = "an older program was at work, and has just left";
        return Err(Error::unavailable("bring the schema up to date", left).into());
    }
    Ok(())
}

/// Who is at work and came through a gate up to `older`, or through none: nodes first, then connections.
async fn at_work(client: &Object, older: i64) -> Outcome<Vec<String>> {
    let text = format!(
        "with held as (\
             select pid, classid::int8 as class, objid::int8 as place from pg_locks \
             where locktype = 'advisory' and objsubid = 2 and granted and pid <> pg_backend_pid() \
             and database = (select oid from pg_database where datname = current_database())\
         ), gates as (\
             select pid, class - {GATES} as known, place from held \
             where class between {GATES} and {GATES_END}\
         ), older as (\
             select pid, known from gates where known <= {older} - {GATES} and place = {PLACE} \
             union all \
             select pid, null from held where class = {slots} and pid not in (select pid from gates)\
         ) \
         select coalesce(host(a.client_addr), 'a local socket') as place, o.known, count(*) as connections \
         from older o join pg_stat_activity a using (pid) group by 1, 2 order by 1, 2",
        slots = lock::SLOTS,
    );
    let found = client.query(&text, &[]).await?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let mut programs = nodes(client).await?;
    for row in &found {
        let (place, known, count): (&str, Option<i64>, i64) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let word = if count == 1 { "connection" } else { "connections" };
        let mut text = format!("{count} {word} from {place}");
        // Writing to a text does not fail.
        let _ = match known {
            Some(known) => write!(text, " of a program that knows schema version {known}"),
            None => write!(text, " of a program that does not say what it knows"),
        };
        programs.push(text);
    }
    Ok(programs)
}

/// Whether a server has come through a gate, whatever it knows: also one that gives no signs of life, but is not gone.
pub(crate) async fn has_servers(client: &Object) -> Outcome<bool> {
    let text = format!(
        "select exists (select from pg_locks l join pg_stat_activity a using (pid) \
         where l.locktype = 'advisory' and l.objsubid = 2 and l.granted \
         and l.database = (select oid from pg_database where datname = current_database()) \
         and l.classid::int8 between {GATES} and {GATES_END} and l.objid::int8 = {PLACE} \
         and a.application_name <> $1)"
    );
    Ok(client.query_one(&text, &[&BY_HAND]).await?.try_get(0)?)
}

/// The nodes that were heard of lately, by id and version. A table of before does not have the latter.
async fn nodes(client: &Object) -> Outcome<Vec<String>> {
    let text = "select id, coalesce(to_jsonb(n) ->> 'version', '') as version from node n \
                where expires_at > clock_timestamp() order by id";
    let mut nodes = Vec::new();
    for row in &client.query(text, &[]).await? {
        let id: NodeId = Reader::new(row, "node", "id").id("id")?;
        nodes.push(match row.try_get("version")? {
            "" => format!("node {id}"),
            version => format!("node {id} (Posthorn {version})"),
        });
    }
    Ok(nodes)
}
