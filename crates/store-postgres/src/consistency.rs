//! Whether rows fit together, and putting right what is safe.
//!
//! `integrity` finds pages that are not what they were. Here the question is whether sound rows say the same: that what
//! refers to something finds it, that counts are what a recount gives, that each lane moves on. Nothing of this should ever be
//! found; where it is, a crash of the disk or a defect has been at work.
//!
//! Only what nobody can read any more is removed, and only what follows from other rows is written anew.

use deadpool_postgres::Object;
use posthorn_store::{Error, Inconsistency, Result};

use crate::copy;
use crate::failure::Outcome;
use crate::migrate;
use crate::options::Options;
use crate::session::{
    Operation, Session, allow_endless, batch, begin, begin_snapshot, commit, execute,
};
use crate::{lock, sql};

const LOOK: Operation = Operation::read("check", "compare rows with each other").endless();
const REPAIR: Operation = Operation::write("repair", "put rows right").endless();

const REPAIRING: &str = "repair the store";

/// Something that can be wrong: how many rows are, and what puts them right.
struct Rule {
    what: &'static str,
    count: &'static str,
    repair: Option<&'static str>,
}

const TALLY: &str = "tenants whose counts of events and deliveries are wrong";

const RULES: &[Rule] = &[
    Rule {
        what: "deliveries without their event",
        count: "select count(*) from (select tenant, event from delivery_live \
                union all select tenant, event from delivery_done) as d \
                where not exists (select from event e where e.tenant = d.tenant and e.id = d.event)",
        repair: None,
    },
    Rule {
        what: "deliveries without their subscription",
        count: "select count(*) from (select subscription from delivery_live \
                union all select subscription from delivery_done) as d \
                where not exists (select from subscription s where s.id = d.subscription)",
        repair: None,
    },
    Rule {
        what: "events without their tenant",
        count: "select count(*) from event e where not exists (select from tenant t where t.id = e.tenant)",
        repair: None,
    },
    Rule {
        what: "deliveries that both wait and have ended",
        count: "select count(*) from delivery_live l \
                where exists (select from delivery_done d where d.tenant = l.tenant and d.id = l.id)",
        repair: None,
    },
    Rule {
        what: "attempts without their delivery",
        count: "select count(*) from attempt a where not exists (select from delivery_live l where l.id = a.delivery) \
                and not exists (select from delivery_done d where d.tenant = a.tenant and d.id = a.delivery)",
        repair: Some(
            "delete from attempt a where not exists (select from delivery_live l where l.id = a.delivery) \
                      and not exists (select from delivery_done d where d.tenant = a.tenant and d.id = a.delivery)",
        ),
    },
    Rule {
        what: "times of entering a lane without their delivery",
        count: "select count(*) from scheduled w where not exists (select from delivery_live l where l.id = w.delivery)",
        repair: Some(
            "delete from scheduled w where not exists (select from delivery_live l where l.id = w.delivery)",
        ),
    },
    Rule {
        what: "blocks of lanes without their delivery",
        count: "select count(*) from lane_block b where not exists (select from delivery_done d where d.id = b.delivery)",
        repair: Some(
            "delete from lane_block b where not exists (select from delivery_done d where d.id = b.delivery)",
        ),
    },
    Rule {
        what: "times of expiry without their event",
        count: "select count(*) from expiry x \
                where not exists (select from event e where e.tenant = x.tenant and e.id = x.event)",
        repair: Some(
            "delete from expiry x \
                      where not exists (select from event e where e.tenant = x.tenant and e.id = x.event)",
        ),
    },
    Rule {
        what: "idempotency keys without their tenant",
        count: "select count(*) from idempotency i where not exists (select from tenant t where t.id = i.tenant)",
        repair: Some(
            "delete from idempotency i where not exists (select from tenant t where t.id = i.tenant)",
        ),
    },
    Rule {
        what: "lanes that wait without a head",
        // Those of a subscription that was deleted lose their head before the others, while they are swept.
        count: "select count(*) from (select from delivery_live l where l.lane is not null \
                and not exists (select from lane_block b where b.subscription = l.subscription and b.lane = l.lane) \
                and not exists (select from subscription_gone g where g.id = l.subscription) \
                group by l.subscription, l.lane having min(l.due_at) = 9223372036854775807) as w",
        // The first of each lane is due at once, or when it would have been.
        repair: Some(
            "update delivery_live set due_at = coalesce(held_until, 0), held_until = null where id in ( \
                      select (array_agg(l.id order by l.seq))[1] from delivery_live l where l.lane is not null \
                      and not exists (select from lane_block b where b.subscription = l.subscription and b.lane = l.lane) \
                      and not exists (select from subscription_gone g where g.id = l.subscription) \
                      group by l.subscription, l.lane having min(l.due_at) = 9223372036854775807)",
        ),
    },
    Rule {
        what: "push channels without their agent",
        count: "select count(*) from push_channel c where not exists (select from push_agent a where a.id = c.agent)",
        repair: Some(
            "delete from push_channel c where not exists (select from push_agent a where a.id = c.agent)",
        ),
    },
    Rule {
        what: "push messages without their agent",
        count: "select count(*) from push_message m where not exists (select from push_agent a where a.id = m.agent)",
        repair: Some(
            "delete from push_message m where not exists (select from push_agent a where a.id = m.agent)",
        ),
    },
    Rule {
        what: TALLY,
        count: "select count(*) from (select tenant from ( \
                select tenant, count(*) as events, 0::int8 as pending, 0::int8 as delivered, 0::int8 as dead, \
                    0::int8 as cancelled from event group by tenant \
                union all select tenant, 0, count(*), 0, 0, 0 from delivery_live group by tenant \
                union all select tenant, 0, 0, count(*) filter (where state = 2), \
                    count(*) filter (where state between 10 and 19), count(*) filter (where state >= 20) \
                    from delivery_done group by tenant \
                union all select tenant, -events, -pending, -delivered, -dead, -cancelled from tally) as counted \
                group by tenant having sum(events) <> 0 or sum(pending) <> 0 or sum(delivered) <> 0 \
                or sum(dead) <> 0 or sum(cancelled) <> 0) as off",
        repair: Some(sql::RECOUNT),
    },
];

/// Looks at all rows of the store, whether or not nodes work with it.
pub async fn inconsistencies(options: &Options) -> Result<Vec<Inconsistency>> {
    let session = Session::direct(options)?;
    session.run(LOOK, |client| Box::pin(look_at_all(client))).await
}

async fn look_at_all(client: &Object) -> Outcome<Vec<Inconsistency>> {
    let (found, known) = migrate::versions(client).await?;
    if found < known {
        // Its tables are not those that the rules speak of; a start brings them up to date.
        return Ok(Vec::new());
    }
    begin_snapshot(client).await?;
    allow_endless(client).await?;
    let found = look(client).await?;
    commit(client).await?;
    Ok(found)
}

async fn look(client: &Object) -> Outcome<Vec<Inconsistency>> {
    let mut found = Vec::new();
    for Rule { what, count, repair } in RULES {
        let rows: i64 = client.query_one(*count, &[]).await?.try_get(0)?;
        if rows > 0 {
            let (rows, repairable) = (rows.unsigned_abs(), repair.is_some());
            found.push(Inconsistency { what, rows, repairable });
        }
    }
    Ok(found)
}

/// Puts right what can be, in one transaction; what was found before, of which nothing is left that says it can be put right.
/// Refused while a node works with the store or a copy is made in it, and where the schema is not that of this program.
pub async fn repair(options: &Options) -> Result<Vec<Inconsistency>> {
    let session = Session::direct(options)?;
    session.run(REPAIR, |client| Box::pin(repair_all(client))).await
}

async fn repair_all(client: &Object) -> Outcome<Vec<Inconsistency>> {
    if !copy::has_no_node(client).await? {
        return Err(Error::unavailable(REPAIRING, "a server works with it").into());
    }
    begin(client).await?;
    allow_endless(client).await?;
    let alone = "select pg_try_advisory_xact_lock($1, hashtext(current_setting('search_path')))";
    if !client.query_one(alone, &[&lock::COPIES]).await?.try_get::<_, bool>(0)? {
        return Err(Error::unavailable(REPAIRING, "a copy is being made in it").into());
    }
    let (found, known) = migrate::versions(client).await?;
    if found != known {
        let problem = format!(
            "the schema has version {found}, this program has {known}; start this version on it first"
        );
        return Err(Error::fatal(REPAIRING, problem).into());
    }
    if let Some(source) = copy::marked(client).await? {
        let problem = format!("it is a copy of {source} that is not complete");
        return Err(Error::fatal(REPAIRING, problem).into());
    }
    let mut found: Vec<Inconsistency> = Vec::new();
    // What is put right may show more: a block that belongs to nothing hides a lane without a head.
    for _ in RULES {
        let now = look(client).await?;
        let repairs = RULES.iter().filter(|rule| now.iter().any(|now| now.what == rule.what));
        let repairs: Vec<_> = repairs.filter_map(|rule| Some((rule.what, rule.repair?))).collect();
        for new in now {
            match found.iter_mut().find(|found| found.what == new.what) {
                Some(found) if found.repairable => found.rows += new.rows,
                Some(_) => {}
                None => found.push(new),
            }
        }
        if repairs.is_empty() {
            commit(client).await?;
            return Ok(found);
        }
        for (what, repair) in repairs {
            // The counts are the last of all rules, since the others change what is counted.
            match what == TALLY {
                true => drop(execute(client, repair, &[]).await?),
                false => batch(client, repair).await?,
            }
        }
    }
    Err(Error::fatal(REPAIRING, "what is put right is wrong again at once").into())
}
