//! Whether rows fit together, and putting right what is safe.
//!
//! `integrity` finds pages that are not what they were. Here the question is whether sound rows say the same: that what
//! refers to something finds it, that counts are what a recount gives, that each lane moves on. Nothing of this should ever be
//! found; where it is, a crash of the disk or a defect has been at work.
//!
//! Only what nobody can read any more is removed, and only what follows from other rows is written anew.

use std::path::Path;

use posthorn_store::Inconsistency;
use rusqlite::{Connection, TransactionBehavior};

use crate::error::OpenError;
use crate::log::changes::miscounted;
use crate::open::{self, DATABASE_FILE, Options};
use crate::{copy, migrate};

/// Something that can be wrong: how many rows are, and what puts them right.
struct Rule {
    what: &'static str,
    count: &'static str,
    repair: Option<&'static str>,
}

const RULES: &[Rule] = &[
    Rule {
        what: "deliveries without their event",
        count: "select count(*) from delivery d where not exists (select 1 from event e where e.no = d.event)",
        repair: None,
    },
    Rule {
        what: "deliveries without their subscription",
        count: "select count(*) from delivery d \
                where not exists (select 1 from subscription s where s.no = d.subscription)",
        repair: None,
    },
    Rule {
        what: "events without their tenant",
        count: "select count(*) from event e where not exists (select 1 from tenant t where t.no = e.tenant)",
        repair: None,
    },
    Rule {
        what: "attempts without their delivery",
        count: "select count(*) from attempt a where not exists (select 1 from delivery d where d.seq = a.delivery)",
        repair: Some(
            "delete from attempt where not exists (select 1 from delivery d where d.seq = delivery)",
        ),
    },
    Rule {
        what: "times of entering a lane without their delivery",
        count: "select count(*) from scheduled w where not exists (select 1 from delivery d where d.seq = w.seq)",
        repair: Some(
            "delete from scheduled where not exists (select 1 from delivery d where d.seq = scheduled.seq)",
        ),
    },
    Rule {
        what: "places of later deliveries without their delivery",
        count: "select count(*) from later_delivery l where not exists (select 1 from delivery d where d.seq = l.seq)",
        repair: Some(
            "delete from later_delivery where not exists \
                      (select 1 from delivery d where d.seq = later_delivery.seq)",
        ),
    },
    Rule {
        what: "times of expiry without their event",
        count: "select count(*) from expiry x where not exists (select 1 from event e where e.no = x.event)",
        repair: Some(
            "delete from expiry where not exists (select 1 from event e where e.no = expiry.event)",
        ),
    },
    Rule {
        what: "idempotency keys without their tenant",
        count: "select count(*) from idempotency i where not exists (select 1 from tenant t where t.no = i.tenant)",
        repair: Some(
            "delete from idempotency where not exists \
                      (select 1 from tenant t where t.no = idempotency.tenant)",
        ),
    },
    Rule {
        what: "lanes that wait without a head",
        // Those of a subscription that was deleted lose their head before the others, while they are swept.
        count: "select count(*) from (select 1 from delivery d indexed by delivery_lane \
                where d.holds_lane = 1 and not exists (select 1 from subscription s where s.no = d.subscription \
                and s.deleted_at is not null and s.swept = 0) \
                group by d.subscription, d.lane \
                having sum(d.state >= 2 or d.due_at < 9223372036854775807) = 0)",
        // The first of each lane is due at once, or when it would have been.
        repair: Some(
            "update delivery set due_at = ifnull(held_until, 0), held_until = null where seq in ( \
                      select min(d.seq) from delivery d indexed by delivery_lane \
                      where d.holds_lane = 1 and not exists (select 1 from subscription s where s.no = d.subscription \
                      and s.deleted_at is not null and s.swept = 0) \
                      group by d.subscription, d.lane \
                      having sum(d.state >= 2 or d.due_at < 9223372036854775807) = 0)",
        ),
    },
    Rule {
        what: "lanes with more than one head",
        count: "select count(*) from (select 1 from delivery d indexed by delivery_lane \
                where d.holds_lane = 1 group by d.subscription, d.lane \
                having sum(d.state < 2 and d.due_at < 9223372036854775807) > 1)",
        repair: None,
    },
    Rule {
        what: "push channels without their agent",
        count: "select count(*) from push_channel c where not exists (select 1 from push_agent a where a.no = c.agent)",
        repair: Some(
            "delete from push_channel where not exists \
                      (select 1 from push_agent a where a.no = push_channel.agent)",
        ),
    },
    Rule {
        what: "push messages without their agent",
        count: "select count(*) from push_message m where not exists (select 1 from push_agent a where a.no = m.agent)",
        repair: Some(
            "delete from push_message where not exists \
                      (select 1 from push_agent a where a.no = push_message.agent)",
        ),
    },
    Rule {
        what: "events whose number of dead letters is wrong",
        count: "select count(*) from ( \
                select tenant, event, sum(letters) as off from ( \
                select tenant, event, letters from dead_event union all \
                select tenant, event, -count(*) from delivery where state between 10 and 19 group by tenant, event) \
                group by tenant, event) where off <> 0",
        repair: Some(
            "delete from dead_event; insert into dead_event select tenant, event, count(*) \
                      from delivery where state between 10 and 19 group by tenant, event",
        ),
    },
];

const TALLY: &str = "tenants whose counts of events and deliveries are wrong";

/// Looks at all rows of the store in a directory, whether or not a process works with it. Blocks.
pub fn inconsistencies(directory: &Path) -> Result<Vec<Inconsistency>, OpenError> {
    let conn = open::read_only(&directory.join(DATABASE_FILE))?;
    let (found, known) = migrate::versions(&conn)?;
    if found < known {
        // Its tables are not those that the rules speak of; a start brings them up to date.
        return Ok(Vec::new());
    }
    conn.execute_batch("begin").map_err(OpenError::sqlite("checking it"))?;
    look(&conn).map_err(OpenError::sqlite("checking it"))
}

fn look(conn: &Connection) -> rusqlite::Result<Vec<Inconsistency>> {
    let mut found = Vec::new();
    for Rule { what, count, repair } in RULES {
        let rows: i64 = conn.query_row(count, [], |row| row.get(0))?;
        if rows > 0 {
            let (rows, repairable) = (rows.unsigned_abs(), repair.is_some());
            found.push(Inconsistency { what, rows, repairable });
        }
    }
    let off = miscounted(conn).map_err(|failure| match failure {
        crate::error::Failure::Sql(error) => error,
        other => rusqlite::Error::InvalidColumnName(other.to_string()),
    })?;
    if !off.is_empty() {
        found.push(Inconsistency { what: TALLY, rows: off.len() as u64, repairable: true });
    }
    Ok(found)
}

/// Puts right what can be, in one transaction; what was found before. Refused while a process works with the store, for a copy
/// that is not complete, and where the schema is not that of this program: nothing is migrated on the side.
pub fn repair(directory: &Path) -> Result<Vec<Inconsistency>, OpenError> {
    let _lock = open::lock(directory)?;
    let mut conn = open::writer(&Options::new(directory))?;
    let (found, known) = migrate::versions(&conn)?;
    if found != known {
        return Err(OpenError::OlderSchema { found, known });
    }
    if let Some(source_name) = copy::marked(&conn)? {
        return Err(OpenError::HalfCopied { path: directory.to_owned(), source_name });
    }
    let repaired = (|| {
        let change = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found = look(&change)?;
        for rule in RULES.iter().filter(|rule| found.iter().any(|found| found.what == rule.what)) {
            if let Some(repair) = rule.repair {
                change.execute_batch(repair)?;
            }
        }
        if !found.is_empty() {
            change.execute_batch(copy::RECOUNT)?;
            // Of blocks whose rows have changed, all rows are looked at.
            change.execute("update block set stale = 7", [])?;
        }
        change.commit()?;
        Ok(found)
    })();
    repaired.map_err(OpenError::sqlite("repairing it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;

    #[tokio::test]
    async fn what_does_not_fit_is_found_and_repaired_unless_a_server_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options::new(folder.path());
        let store = SqliteStore::open(&options).expect("a store");
        let refused = repair(folder.path()).expect_err("a server runs");
        assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
        store.close().await.expect("closed");
        assert_eq!(inconsistencies(folder.path()).expect("looked"), []);

        let conn = open::writer(&options).expect("a connection");
        // Subscription 65 was deleted and is being swept: nothing is wrong with its lane.
        conn.execute_batch(
            "pragma foreign_keys = off; \
             insert into attempt (delivery, subscription, number, started_at, took, late, manual) \
             values (77, 1, 1, 0, 0, 0, 0); \
             insert into tally (tenant, events, pending, delivered, dead, cancelled) values (1, 5, 0, 0, 0, 0) \
             on conflict do update set events = 5; \
             insert into push_channel (agent, id, created_at) values (9, x'00', 0); \
             insert into subscription (no, id, tenant) values (64, zeroblob(16), 1); \
             insert into subscription (no, id, tenant, deleted_at, swept) values (65, randomblob(16), 1, 1, 0); \
             insert into event (no, id, tenant, accepted_at, first_seq, deliveries, topic, event_type, \
             content_type, payload) values (1, zeroblob(16), 1, 0, 1, 2, 't', 't', '', x''), \
             (2, randomblob(16), 1, 0, 4, 1, 't', 't', '', x''); \
             insert into delivery (seq, id, event, tenant, subscription, state, due_at, attempts, budget_base, lane, \
             holds_lane) values (1, x'01', 1, 1, 64, 0, 9223372036854775807, 0, 0, 'a', 1), \
             (2, x'02', 1, 1, 64, 0, 9223372036854775807, 0, 0, 'a', 1), \
             (3, x'03', 99, 1, 64, 10, 0, 0, 0, null, null), \
             (4, x'04', 2, 1, 65, 0, 9223372036854775807, 0, 0, 'a', 1)",
        )
        .expect("written");
        drop(conn);
        let found = inconsistencies(folder.path()).expect("looked");
        let found: Vec<(&str, u64)> = found.iter().map(|found| (found.what, found.rows)).collect();
        let expected = [
            ("deliveries without their event", 1),
            ("attempts without their delivery", 1),
            ("lanes that wait without a head", 1),
            ("push channels without their agent", 1),
            ("events whose number of dead letters is wrong", 1),
            (TALLY, 1),
        ];
        assert_eq!(found, expected);
        assert_eq!(repair(folder.path()).expect("repaired").len(), expected.len());
        let left = inconsistencies(folder.path()).expect("looked again");
        assert_eq!(left.iter().map(|left| left.what).collect::<Vec<_>>(), [expected[0].0]);
        let conn = open::read_only(&folder.path().join(DATABASE_FILE)).expect("a connection");
        let heads: Vec<i64> = conn
            .prepare("select due_at from delivery where lane = 'a' order by seq")
            .and_then(|mut all| all.query_map([], |row| row.get(0))?.collect())
            .expect("read");
        assert_eq!(heads, [0, i64::MAX, i64::MAX], "the first goes on");
    }
}
