//! How each sheet is read from the tables of this store, and written into them.
//!
//! Nearly all have the columns of their sheet, and their statements are put together from it; texts of keys are sorted
//! byte by byte here as well (`collate "C"`). Values come and go as arrays, one for each column.

use deadpool_postgres::Object;
use posthorn_domain::{Shard, SubscriptionId};
use posthorn_store::copy::{Column, Kind, Row, Sheet, Value};
use tokio_postgres::types::ToSql;

use crate::codec::Uid;
use crate::failure::Outcome;
use crate::session::{Param, execute};

/// What reads a sheet, in the order of its key.
pub(super) fn select(sheet: &Sheet) -> String {
    match sheet.name {
        "event" => super::events::ORDER.to_owned(),
        "subscription" => "select s.id, s.tenant, s.deleted_at, g.id is not null \
            from subscription s left join subscription_gone g on g.id = s.id order by s.id"
            .to_owned(),
        "store" => STORE.to_owned(),
        name => {
            let shown = |column: &Column| match (column.name, column.kind) {
                // The place of one that has ended is nobody's business.
                ("cursor", _) => "case when state = 0 then cursor end".to_owned(),
                (name, Kind::Int) => format!("\"{name}\"::int8"),
                (name, _) => format!("\"{name}\""),
            };
            let columns: Vec<String> = sheet.columns.iter().map(shown).collect();
            let (columns, order) = (columns.join(", "), names(key(sheet)));
            let owned = owner(sheet).map_or_else(String::new, |(owner, column)| {
                format!("where exists (select from {owner} o where o.id = t.\"{column}\") ")
            });
            format!("select {columns} from {name} t {owned}order by {order}")
        }
    }
}

/// What rows belong to, by which column. Where that is missing they belong to nothing, and are left out.
fn owner(sheet: &Sheet) -> Option<(&'static str, &'static str)> {
    match sheet.name {
        "idempotency" | "redrive" | "job" => Some(("tenant", "tenant")),
        "failing" => Some(("subscription", "subscription")),
        "push_channel" | "push_message" => Some(("push_agent", "agent")),
        _ => None,
    }
}

fn key(sheet: &Sheet) -> &[Column] {
    &sheet.columns[..sheet.key]
}

fn names(columns: &[Column]) -> String {
    let names: Vec<String> = columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
    names.join(", ")
}

/// What is true of the whole store.
const STORE: &str = "select 1::int8, c.version, (select before from pruned), \
    (select case when is_called then last_value else last_value - 1 end from delivery_seq), \
    (select case when is_called then last_value else last_value - 1 end from attempt_no), \
    (select case when is_called then last_value else last_value - 1 end from push_seq), \
    f.at, f.scope, f.node, \
    (select string_agg(int8send(epoch), ''::bytea order by shard) from shard_lease) \
    from catalog c cross join folded_rollup f";

/// Values of one column.
pub(super) type Values<'r> = Box<dyn ToSql + Sync + Send + 'r>;

/// The values of one column of many rows.
pub(super) fn column<'r>(kind: Kind, values: impl Iterator<Item = &'r Value>) -> Values<'r> {
    match kind {
        Kind::Int => Box::new(values.map(Value::int).collect::<Vec<_>>()),
        Kind::Flag => {
            Box::new(values.map(|value| value.int().map(|flag| flag != 0)).collect::<Vec<_>>())
        }
        Kind::Text => Box::new(values.map(Value::as_text).collect::<Vec<_>>()),
        Kind::Bytes => Box::new(values.map(Value::as_bytes).collect::<Vec<_>>()),
        Kind::Id => Box::new(values.map(|value| value.id().map(Uid)).collect::<Vec<_>>()),
    }
}

/// The first columns of many rows, so many as are named.
pub(super) fn columns<'r>(columns: &[Column], rows: &[&'r Row]) -> Vec<Values<'r>> {
    let of = |(place, which): (usize, &Column)| {
        column(which.kind, rows.iter().map(move |row| &row[place]))
    };
    columns.iter().enumerate().map(of).collect()
}

/// As a statement wants them.
pub(super) fn params<'v>(values: &'v [Values<'_>]) -> Vec<Param<'v>> {
    values.iter().map(|values| &**values as Param<'v>).collect()
}

/// `unnest(…) as v(…)` of columns whose parameters begin with the first.
pub(super) fn unnest(columns: &[Column]) -> String {
    let array = |(place, column): (usize, &Column)| {
        let kind = match column.kind {
            Kind::Int => "int8",
            Kind::Flag => "bool",
            Kind::Text => "text",
            Kind::Bytes => "bytea",
            Kind::Id => "uuid",
        };
        format!("${}::{kind}[]", place + 1)
    };
    let arrays: Vec<String> = columns.iter().enumerate().map(array).collect();
    format!("unnest({}) as v({})", arrays.join(", "), names(columns))
}

/// Removes rows by their keys.
pub(super) async fn cut(client: &Object, sheet: &Sheet, keys: &[&Row]) -> Outcome<()> {
    if keys.is_empty() || sheet.name == "store" {
        return Ok(());
    }
    let same: Vec<String> =
        key(sheet).iter().map(|column| format!("t.\"{0}\" = v.\"{0}\"", column.name)).collect();
    let sql = format!(
        "delete from {} t using {} where {}",
        sheet.name,
        unnest(key(sheet)),
        same.join(" and ")
    );
    execute(client, &sql, &params(&columns(key(sheet), keys))).await?;
    if sheet.name == "push_agent" {
        // Nobody reads them any more, and they would be there again with the agent.
        let ids: Vec<Option<Uid>> = keys.iter().map(|key| key[0].id().map(Uid)).collect();
        for table in ["push_channel", "push_message"] {
            let sql = format!("delete from {table} where agent = any($1::uuid[])");
            execute(client, &sql, &[&ids]).await?;
        }
    }
    Ok(())
}

/// Writes rows; one with the same key is replaced.
pub(super) async fn put(client: &Object, sheet: &Sheet, rows: &[&Row]) -> Outcome<()> {
    let mut values = columns(sheet.columns, rows);
    match sheet.name {
        "store" => return put_store(client, rows).await,
        "tenant" => {
            let sql = format!(
                "insert into tenant (id, version, closed) select id, 0, closed from {} \
                 on conflict (id) do update set closed = excluded.closed",
                unnest(sheet.columns)
            );
            execute(client, &sql, &params(&values)).await?;
        }
        "subscription" => {
            let from = unnest(sheet.columns);
            let sql = format!(
                "insert into subscription (id, tenant, deleted_at) select id, tenant, deleted_at \
                 from {from} on conflict (id) do update set deleted_at = excluded.deleted_at"
            );
            execute(client, &sql, &params(&values)).await?;
            let ids: Vec<Option<Uid>> = rows.iter().map(|row| row[0].id().map(Uid)).collect();
            execute(client, "delete from subscription_gone where id = any($1::uuid[])", &[&ids])
                .await?;
            values.push(shards(rows));
            let sql = format!(
                "insert into subscription_gone (id, shard, deleted_at) \
                 select id, shard, deleted_at from {} where unswept",
                unnest(&with_shard(sheet))
            );
            execute(client, &sql, &params(&values)).await?;
        }
        "failing" => {
            values.push(shards(rows));
            let columns = with_shard(sheet);
            execute(client, &upsert(sheet, &columns), &params(&values)).await?;
        }
        _ => {
            execute(client, &upsert(sheet, sheet.columns), &params(&values)).await?;
        }
    }
    Ok(())
}

fn upsert(sheet: &Sheet, columns: &[Column]) -> String {
    let named = names(columns);
    let new: Vec<String> = columns[sheet.key..]
        .iter()
        .map(|column| format!("\"{0}\" = excluded.\"{0}\"", column.name))
        .collect();
    format!(
        "insert into {} ({named}) select {named} from {} on conflict ({}) do update set {}",
        sheet.name,
        unnest(columns),
        names(key(sheet)),
        new.join(", ")
    )
}

fn with_shard(sheet: &Sheet) -> Vec<Column> {
    let shard = Column { name: "shard", kind: Kind::Int, compared: true };
    sheet.columns.iter().copied().chain([shard]).collect()
}

/// The shards of rows whose first column is a subscription.
fn shards(rows: &[&Row]) -> Values<'static> {
    Box::new(rows.iter().map(|row| shard_of(&row[0])).collect::<Vec<i64>>())
}

/// The shard of a subscription.
pub(super) fn shard_of(subscription: &Value) -> i64 {
    let id = SubscriptionId::from_bytes(subscription.id().unwrap_or_default());
    i64::from(Shard::of(id).number())
}

async fn put_store(client: &Object, rows: &[&Row]) -> Outcome<()> {
    for row in rows {
        let int = |place: usize| row[place].int();
        execute(client, "update catalog set version = $1", &[&int(1)]).await?;
        execute(client, "delete from pruned", &[]).await?;
        execute(
            client,
            "insert into pruned (before) select $1::int8 where $1::int8 is not null",
            &[&int(2)],
        )
        .await?;
        let sequences = "select setval('delivery_seq', greatest($1::int8, 1), $1::int8 > 0), \
            setval('attempt_no', greatest($2::int8, 1), $2::int8 > 0), \
            setval('push_seq', greatest($3::int8, 1), $3::int8 > 0)";
        execute(client, sequences, &[&int(3), &int(4), &int(5)]).await?;
        let folded = "update folded_rollup set at = $1::int8, scope = $2, node = $3";
        let node = Uid(row[8].id().unwrap_or_default());
        execute(client, folded, &[&int(6), &row[7].as_text(), &node]).await?;
        let epochs = row[9].as_bytes().unwrap_or_default().chunks_exact(8);
        let epochs: Vec<i64> = epochs
            .map(|bytes| bytes.iter().fold(0, |epoch, byte| epoch << 8 | i64::from(*byte)))
            .collect();
        let sql = "update shard_lease l set epoch = v.epoch, node = null, expires_at = '-infinity' \
            from unnest($1::int8[]) with ordinality as v(epoch, place) where l.shard = v.place - 1";
        execute(client, sql, &[&epochs]).await?;
    }
    Ok(())
}
