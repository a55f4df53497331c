//! How each sheet is read from the tables of this store, and written into them.
//!
//! Every `select` gives the columns of its sheet in their order, sorted by its key. Every `put` takes them as parameters;
//! a row with the same key is replaced. `cut` removes by the key.
//!
//! Places of running jobs and redrives are row numbers here and ids elsewhere, and the two orders differ: a scheduled delivery keeps its
//! id when it enters its lane, but gets a number of that moment. A place is translated to one that has no row behind it in
//! the one order that is before it in the other: some rows may be looked at twice, none is passed over.

use posthorn_store::copy::{Row, Sheet, Value};
use rusqlite::types::Null;
use rusqlite::{Connection, ToSql, params};

use super::reading;

/// How a sheet is kept here.
pub(super) enum Layout {
    /// In rows that belong together; see `events`.
    Events,
    /// In one row and what the last numbers say.
    Store,
    /// In a table.
    Plain(&'static Plain),
}

/// The statements of a sheet that is a table.
pub(super) struct Plain {
    sheet: &'static str,
    pub(super) select: &'static str,
    pub(super) put: &'static str,
    pub(super) cut: &'static [&'static str],
}

pub(super) fn layout(sheet: &Sheet) -> Layout {
    match PLAIN.iter().find(|plain| plain.sheet == sheet.name) {
        Some(plain) => Layout::Plain(plain),
        None if sheet.name == "store" => Layout::Store,
        None => Layout::Events,
    }
}

/// Whether a job walks over deliveries instead of events, as the engine decides it (`jobs::prepare`).
macro_rules! walks_deliveries {
    ($work:literal) => {
        concat!(
            "(json_extract(",
            $work,
            ", '$.kind') in ('cancel', 'forget', 'retry') \
             or (json_extract(",
            $work,
            ", '$.kind') = 'replay' \
             and (json_extract(",
            $work,
            ", '$.subscription') is null \
             or json_extract(",
            $work,
            ", '$.status') not in ('all', 'missed'))))"
        )
    };
}

/// The id up to which everything has been looked at, of a row number.
macro_rules! id_of_place {
    ($table:literal, $number:literal, $place:literal) => {
        concat!(
            "(select case when exists (select 1 from ",
            $table,
            " where ",
            $number,
            " > ",
            $place,
            ") \
             then ifnull((select max(id) from ",
            $table,
            " where id < \
             (select min(id) from ",
            $table,
            " where ",
            $number,
            " > ",
            $place,
            ")), zeroblob(16)) \
             else ifnull((select max(id) from ",
            $table,
            "), zeroblob(16)) end)"
        )
    };
}

/// And the other way round.
macro_rules! place_of_id {
    ($table:literal, $number:literal, $id:literal) => {
        concat!(
            "coalesce((select min(",
            $number,
            ") - 1 from ",
            $table,
            " where id > ",
            $id,
            "), \
             (select max(",
            $number,
            ") from ",
            $table,
            "), 0)"
        )
    };
}

const PLAIN: &[Plain] = &[
    Plain {
        sheet: "tenant",
        select: "select id, closed from tenant order by id",
        // Rows refer to its number, so that it is never removed to be written anew.
        put: "insert into tenant (id, closed) values (?1, ?2) \
              on conflict (id) do update set closed = excluded.closed",
        cut: &["delete from tenant where id = ?1"],
    },
    Plain {
        sheet: "subscription",
        select: "select s.id, t.id, s.deleted_at, s.deleted_at is not null and s.swept = 0 \
                 from subscription s join tenant t on t.no = s.tenant order by s.id",
        // The last parameter is its number, should it be new.
        put: "insert into subscription (no, id, tenant, deleted_at, swept) values \
              (?5, ?1, (select no from tenant where id = ?2), ?3, ?3 is not null and ?4 = 0) \
              on conflict (id) do update set deleted_at = excluded.deleted_at, swept = excluded.swept",
        cut: &["delete from subscription where id = ?1"],
    },
    Plain {
        sheet: "entry",
        select: "select kind, key, tenant, version, unique_key, removed, document, alias, realm \
                 from entry order by kind, key",
        put: "insert or replace into entry (kind, key, tenant, version, unique_key, removed, \
              document, alias, realm) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        cut: &["delete from entry where kind = ?1 and key = ?2"],
    },
    Plain {
        sheet: "key_use",
        select: "select key, used_at from key_use order by key",
        put: "insert or replace into key_use (key, used_at) values (?1, ?2)",
        cut: &["delete from key_use where key = ?1"],
    },
    Plain {
        sheet: "idempotency",
        select: "select t.id, i.key, i.fingerprint, i.event, i.accepted_at from tenant t \
                 cross join idempotency i on i.tenant = t.no order by t.id, i.key",
        put: "insert or replace into idempotency (tenant, key, fingerprint, event, accepted_at) \
              values ((select no from tenant where id = ?1), ?2, ?3, ?4, ?5)",
        cut: &["delete from idempotency where key = ?2 \
                and tenant = (select no from tenant where id = ?1)"],
    },
    Plain {
        sheet: "redrive",
        // The place of one that has ended is nobody's business.
        select: concat!(
            "select r.id, t.id, r.filter, r.per_second, r.state, r.total, r.moved, \
             r.created_at, r.finished_at, \
             case when r.state <> 0 or r.cursor = 0 then null else ",
            id_of_place!("delivery", "seq", "r.cursor"),
            " end from redrive r join tenant t on t.no = r.tenant order by r.id"
        ),
        put: concat!(
            "insert or replace into redrive (id, tenant, filter, per_second, state, total, moved, \
             created_at, finished_at, cursor) values (?1, (select no from tenant where id = ?2), \
             ?3, ?4, ?5, ?6, ?7, ?8, ?9, case when ?10 is null or ?10 = zeroblob(16) then 0 else ",
            place_of_id!("delivery", "seq", "?10"),
            " end)"
        ),
        cut: &["delete from redrive where id = ?1"],
    },
    Plain {
        sheet: "job",
        // Zero is not nothing: it says that a delivery of one event was made.
        select: concat!(
            "select j.id, t.id, j.work, j.per_second, j.state, j.seen, j.done, j.created_by, \
             j.created_at, j.finished_at, j.problem, \
             case when j.state <> 0 or j.cursor is null then null \
             when j.cursor = 0 then zeroblob(16) when ",
            walks_deliveries!("j.work"),
            " then ",
            id_of_place!("delivery", "seq", "j.cursor"),
            " else ",
            id_of_place!("event", "no", "j.cursor"),
            " end from job j join tenant t on t.no = j.tenant order by j.id"
        ),
        put: concat!(
            "insert or replace into job (id, tenant, work, per_second, state, seen, done, \
             created_by, created_at, finished_at, problem, cursor) values \
             (?1, (select no from tenant where id = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, \
             case when ?12 is null then null when ?12 = zeroblob(16) then 0 when ",
            walks_deliveries!("?3"),
            " then ",
            place_of_id!("delivery", "seq", "?12"),
            " else ",
            place_of_id!("event", "no", "?12"),
            " end)"
        ),
        cut: &["delete from job where id = ?1"],
    },
    Plain {
        sheet: "failing",
        select: "select s.id, f.since, f.exhausted, f.told from failing f \
                 join subscription s on s.no = f.subscription order by s.id",
        put: "insert or replace into failing (subscription, since, exhausted, told) \
              values ((select no from subscription where id = ?1), ?2, ?3, ?4)",
        cut: &[
            "delete from failing where subscription = (select no from subscription where id = ?1)",
        ],
    },
    Plain {
        sheet: "rollup",
        select: "select at, scope, node, number, counts from rollup order by at, scope, node",
        put: "insert or replace into rollup (at, scope, node, number, counts) \
              values (?1, ?2, ?3, ?4, ?5)",
        cut: &["delete from rollup where at = ?1 and scope = ?2 and node = ?3"],
    },
    Plain {
        sheet: "rollup_hour",
        select: "select at, scope, counts from rollup_hour order by at, scope",
        put: "insert or replace into rollup_hour (at, scope, counts) values (?1, ?2, ?3)",
        cut: &["delete from rollup_hour where at = ?1 and scope = ?2"],
    },
    Plain {
        sheet: "audit",
        select: "select id, tenant, realm, actor, action, noun, object, document from audit \
                 order by id",
        put: "insert or replace into audit (id, tenant, realm, actor, action, noun, object, \
              document) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        cut: &["delete from audit where id = ?1"],
    },
    Plain {
        sheet: "page_session",
        select: "select id, kind, tenant, realm, key, label, expires_at, document \
                 from page_session order by id",
        put: "insert or replace into page_session (id, kind, tenant, realm, key, label, expires_at, \
              document) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        cut: &["delete from page_session where id = ?1"],
    },
    Plain {
        sheet: "kept_answer",
        select: "select key, seed_at, seed, expires_at, status, body from kept_answer order by key",
        put: "insert or replace into kept_answer (key, seed_at, seed, expires_at, status, body) \
              values (?1, ?2, ?3, ?4, ?5, ?6)",
        cut: &["delete from kept_answer where key = ?1"],
    },
    Plain {
        sheet: "push_agent",
        select: "select id, node, connected_at, created_at, seen_at from push_agent order by id",
        put: "insert into push_agent (id, node, connected_at, created_at, seen_at) \
              values (?1, ?2, ?3, ?4, ?5) on conflict (id) do update set node = excluded.node, \
              connected_at = excluded.connected_at, created_at = excluded.created_at, \
              seen_at = excluded.seen_at",
        // What belongs to its number would be nobody's.
        cut: &[
            "delete from push_channel where agent = (select no from push_agent where id = ?1)",
            "delete from push_message where agent = (select no from push_agent where id = ?1)",
            "delete from push_agent where id = ?1",
        ],
    },
    Plain {
        sheet: "push_channel",
        select: "select a.id, c.id, c.key_hash, c.created_at from push_agent a \
                 cross join push_channel c on c.agent = a.no order by a.id, c.id",
        put: "insert or replace into push_channel (agent, id, key_hash, created_at) \
              values ((select no from push_agent where id = ?1), ?2, ?3, ?4)",
        cut: &["delete from push_channel where id = ?2 \
                and agent = (select no from push_agent where id = ?1)"],
    },
    Plain {
        sheet: "push_message",
        select: "select a.id, m.seq, m.channel, m.id, m.topic, m.received_at, m.ttl, m.expires_at, \
                 m.encoding, m.encryption, m.crypto_key, m.body from push_agent a cross join \
                 push_message m indexed by push_message_by_agent on m.agent = a.no \
                 order by a.id, m.seq",
        put: "insert or replace into push_message (agent, seq, channel, id, topic, received_at, ttl, \
              expires_at, encoding, encryption, crypto_key, body) values \
              ((select no from push_agent where id = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        cut: &["delete from push_message where seq = ?2 and ?1 is not null"],
    },
];

/// What is true of the whole store.
pub(super) fn store_row(conn: &Connection) -> rusqlite::Result<Row> {
    let sql = "select 1, s.catalog_version, s.pruned_before, \
        max(s.seq_floor, coalesce((select max(seq) from delivery), 0)), \
        max(s.attempt_floor, coalesce((select max(no) from attempt), 0)), \
        coalesce((select seq from sqlite_sequence where name = 'push_message'), 0), \
        f.at, f.scope, iif(f.node = x'', zeroblob(16), f.node) from store s cross join folded_rollup f";
    let mut row = conn.query_row(sql, [], |row| reading::values(row, 0, 9))?;
    let mut epochs = [0_u8; 64 * 8];
    let mut statement = conn.prepare("select number, epoch from shard")?;
    let mut rows = statement.query([])?;
    while let Some(shard) = rows.next()? {
        let (number, epoch): (u16, i64) = (shard.get(0)?, shard.get(1)?);
        let place = usize::from(number) * 8;
        if let Some(place) = epochs.get_mut(place..place + 8) {
            place.copy_from_slice(&epoch.to_be_bytes());
        }
    }
    row.push(Value::Bytes(epochs.to_vec().into()));
    Ok(row)
}

/// The same the other way round.
pub(super) fn put_store(conn: &Connection, row: &Row) -> rusqlite::Result<()> {
    conn.execute(
        "update store set catalog_version = ?1, pruned_before = ?2, seq_floor = ?3, attempt_floor = ?4",
        params![Param(&row[1]), Param(&row[2]), Param(&row[3]), Param(&row[4])],
    )?;
    conn.execute("delete from sqlite_sequence where name = 'push_message'", [])?;
    conn.execute("insert into sqlite_sequence values ('push_message', ?1)", [Param(&row[5])])?;
    conn.execute(
        "update folded_rollup set at = ?1, scope = ?2, node = ?3",
        params![Param(&row[6]), Param(&row[7]), Param(&row[8])],
    )?;
    conn.execute("delete from shard", [])?;
    let epochs = row[9].as_bytes().unwrap_or_default().chunks_exact(8);
    for (number, epoch) in (0_i64..).zip(epochs) {
        let epoch = epoch.iter().fold(0_i64, |epoch, byte| epoch << 8 | i64::from(*byte));
        if epoch > 0 {
            conn.execute("insert into shard values (?1, ?2)", params![number, epoch])?;
        }
    }
    Ok(())
}

/// A value as a parameter.
pub(super) struct Param<'v>(pub(super) &'v Value);

impl ToSql for Param<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self.0 {
            Value::Null => Ok(Null.into()),
            Value::Int(number) => Ok((*number).into()),
            Value::Text(text) => text.as_str().to_sql(),
            Value::Bytes(bytes) => {
                Ok(rusqlite::types::ToSqlOutput::Borrowed(rusqlite::types::ValueRef::Blob(bytes)))
            }
        }
    }
}
