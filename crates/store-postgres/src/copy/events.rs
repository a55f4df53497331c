//! Events with their deliveries and attempts, between the tables here and the form of a copy.

use std::collections::{BTreeMap, HashMap};

use deadpool_postgres::Object;
use posthorn_domain::{DeliveryId, EventId, Lane, LaneKey, SubscriptionId};
use posthorn_store::copy::{ATTEMPT, Column, DELIVERY, EVENT, Kind, Row, Unit, Value};
use tokio_postgres::Row as SqlRow;

use super::reading::row_of;
use super::sheets::{Values, columns, params, shard_of, unnest};
use crate::codec::{PARKED, Uid};
use crate::failure::Outcome;
use crate::session::{execute, query};
use crate::{intake, lock, log, sql};

/// A delivery that was made so much later than its event was made by a job.
const MADE_LATER: i64 = 60_000;

/// What is read of all events, to read them in their order; large values are not sorted. One whose tenant is not there
/// belongs to nothing.
pub(super) const ORDER: &str = "select id, tenant, octet_length(payload), cardinality(deliveries) \
    from event e where exists (select from tenant t where t.id = e.tenant) order by id, tenant";

/// An event whose turn is next, and what it weighs.
pub(super) struct Next {
    id: Uid,
    tenant: Uid,
    pub(super) bytes: usize,
    pub(super) deliveries: usize,
}

impl Next {
    pub(super) fn of(row: &SqlRow) -> Outcome<Self> {
        let number = |place| -> Outcome<usize> {
            let number: Option<i32> = row.try_get(place)?;
            Ok(usize::try_from(number.unwrap_or_default()).unwrap_or_default())
        };
        let (id, tenant) = (row.try_get(0)?, row.try_get(1)?);
        Ok(Self { id, tenant, bytes: number(2)?, deliveries: number(3)? })
    }
}

const FIND: &str = "select e.id, e.tenant, e.topic, e.type, e.attributes, e.key, e.content_type, \
    e.payload, e.accepted_at, e.publisher_id, e.deliver_at, e.retention, e.expunged_at, e.trace, \
    e.unwanted, (select x.at from expiry x where x.tenant = e.tenant and x.event = e.id limit 1), \
    e.deliveries \
    from unnest($1::uuid[], $2::uuid[]) with ordinality as v(id, tenant, place) \
    cross join lateral (select * from event where tenant = v.tenant and id = v.id limit 1) as e \
    order by v.place";

/// Wherever each is, unless its subscription is not there: then it belongs to nothing. Plan: probes of primary keys, partitions
/// pruned.
const DELIVERIES: &str = "select d.id, d.event, d.subscription, d.tenant, d.seq, d.state::int8, d.due_at, \
    d.attempts::int8, d.budget_base::int8, d.budget_began, d.ended_at, d.lane, \
    (select true from lane_block b where b.delivery = d.id limit 1) is true, d.revival::int8, \
    d.held_until, d.outcome::int8, w.at, w.lane \
    from unnest($1::uuid[], $2::uuid[]) as v(id, tenant) \
    cross join lateral ( \
        select id, event, subscription, tenant, seq, state, due_at, attempts, budget_base, \
            budget_began, null::int8 as ended_at, lane, revival, held_until, outcome \
        from delivery_live where id = v.id \
        union all \
        select id, event, subscription, tenant, seq, state, null, attempts, budget_base, \
            budget_began, ended_at, lane, revival, null, outcome \
        from delivery_done where tenant = v.tenant and id = v.id limit 1) as d \
    left join lateral (select at, lane from scheduled where delivery = d.id limit 1) as w on true \
    where (select true from subscription s where s.id = d.subscription limit 1)";

/// Of two rows about one attempt, the one that was late says nothing new.
const ATTEMPTS: &str = "select a.delivery, a.number::int8, a.started_at, a.no, a.took, a.late, a.manual, \
    a.status::int8, a.failure, a.detail, a.timings, a.response, a.response_expunged_at, a.request \
    from unnest($1::uuid[]) as v(id) \
    cross join lateral (select * from attempt where delivery = v.id) as a \
    where not (a.late and exists (select from attempt o where o.delivery = a.delivery \
        and o.number = a.number and o.started_at = a.started_at and o.no <> a.no \
        and (not o.late or o.no < a.no)))";

/// Events with all that belongs to them, in the order given.
pub(super) async fn fetch(client: &Object, wanted: &[Next]) -> Outcome<Vec<Unit>> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uid> = wanted.iter().map(|next| next.id).collect();
    let tenants: Vec<Uid> = wanted.iter().map(|next| next.tenant).collect();
    let mut units = Vec::with_capacity(wanted.len());
    let (mut deliveries, mut whose) = (Vec::new(), Vec::new());
    for row in &query(client, FIND, &[&ids, &tenants]).await? {
        units.push(Unit::from(row_of(row, &EVENT)?));
        let listed: Option<Vec<Uid>> = row.try_get(EVENT.columns.len())?;
        let listed = listed.unwrap_or_default();
        whose.extend(listed.iter().map(|_| row.get::<_, Uid>(1)));
        deliveries.extend(listed);
    }
    if deliveries.is_empty() {
        return Ok(units);
    }
    let mut attempts: HashMap<Value, Vec<Row>> = HashMap::new();
    for row in &query(client, ATTEMPTS, &[&deliveries]).await? {
        let row = row_of(row, &ATTEMPT)?;
        attempts.entry(row[0].clone()).or_default().push(row);
    }
    let mut by_event: HashMap<Value, Vec<Row>> = HashMap::new();
    for row in &query(client, DELIVERIES, &[&deliveries, &whose]).await? {
        let row = row_of(row, &DELIVERY)?;
        by_event.entry(row[1].clone()).or_default().push(row);
    }
    for unit in &mut units {
        unit.deliveries = by_event.remove(&unit.row[0]).unwrap_or_default();
        unit.deliveries.sort_unstable();
        for delivery in &unit.deliveries {
            let mut made = attempts.remove(&delivery[0]).unwrap_or_default();
            made.sort_unstable();
            unit.attempts.append(&mut made);
        }
    }
    Ok(units)
}

/// Removes events with all that belongs to them.
pub(super) async fn cut(client: &Object, keys: &[&Row]) -> Outcome<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let values = columns(&EVENT.columns[..2], keys);
    let from = unnest(&EVENT.columns[..2]);
    let find = format!(
        "select e.tenant, e.deliveries from {from} cross join lateral \
         (select tenant, deliveries from event where tenant = v.tenant and id = v.id limit 1) as e"
    );
    let (mut tenants, mut deliveries) = (Vec::new(), Vec::new());
    for row in &query(client, &find, &params(&values)).await? {
        let listed: Vec<Uid> = row.try_get(1)?;
        tenants.extend(listed.iter().map(|_| row.get::<_, Uid>(0)));
        deliveries.extend(listed);
    }
    for sql in [
        "delete from attempt where delivery = any($1::uuid[])",
        "delete from delivery_live where id = any($1::uuid[])",
        "delete from scheduled where delivery = any($1::uuid[])",
        "delete from lane_block where delivery = any($1::uuid[])",
    ] {
        execute(client, sql, &[&deliveries]).await?;
    }
    let done = "delete from delivery_done d using unnest($1::uuid[], $2::uuid[]) as v(id, tenant) \
                where d.tenant = v.tenant and d.id = v.id";
    execute(client, done, &[&deliveries, &tenants]).await?;
    for sql in [
        format!("delete from expiry x using {from} where x.tenant = v.tenant and x.event = v.id"),
        format!("delete from event e using {from} where e.tenant = v.tenant and e.id = v.id"),
    ] {
        execute(client, &sql, &params(&values)).await?;
    }
    Ok(())
}

const fn int(name: &'static str) -> Column {
    Column { name, kind: Kind::Int, compared: true }
}

/// Writes events with all that belongs to them.
pub(super) async fn put(client: &Object, units: &[Unit]) -> Outcome<()> {
    if units.is_empty() {
        return Ok(());
    }
    note_times(client, units).await?;
    put_events(client, units).await?;
    let (mut live, mut done) = (Vec::new(), Vec::new());
    for unit in units {
        for row in &unit.deliveries {
            let ended = row[5].int().is_some_and(|state| state > 1);
            if ended { done.push((row, &unit.row)) } else { live.push((row, &unit.row)) }
        }
    }
    put_deliveries(client, "delivery_live", &live).await?;
    put_deliveries(client, "delivery_done", &done).await?;
    put_attempts(client, units).await
}

async fn put_events(client: &Object, units: &[Unit]) -> Outcome<()> {
    let rows: Vec<&Row> = units.iter().map(|unit| &unit.row).collect();
    let own = &EVENT.columns[..15];
    let mut values = columns(own, &rows);
    let text = |value: &Value| value.as_text().unwrap_or_default().to_owned();
    let kinds = rows.iter().map(|row| log::kinds::of_names(&text(&row[2]), &text(&row[3])));
    values.push(Box::new(kinds.collect::<Vec<i64>>()));
    let (mut first, mut last, mut all) = (Vec::new(), Vec::new(), Vec::<Option<Uid>>::new());
    for unit in units {
        first.push(position(all.len() + 1));
        let mut listed: Vec<&Row> = unit.deliveries.iter().collect();
        listed.sort_unstable_by_key(|row| row[4].int());
        all.extend(listed.iter().map(|row| row[0].id().map(Uid)));
        last.push(position(all.len()));
    }
    values.extend([Box::new(first) as Values<'_>, Box::new(last), Box::new(all)]);
    let all: Vec<Column> =
        own.iter().copied().chain([int("kind"), int("first"), int("last")]).collect();
    let sql = format!(
        "insert into event (id, tenant, topic, type, attributes, key, content_type, payload, \
         accepted_at, publisher_id, deliver_at, retention, expunged_at, trace, unwanted, kind, deliveries) \
         select v.id, v.tenant, v.topic, v.type, v.attributes, v.key, v.content_type, v.payload, \
         v.accepted_at, v.publisher_id, v.deliver_at, v.retention, v.expunged_at, v.trace, v.unwanted, \
         v.kind, (${}::uuid[])[v.first:v.last] from {}",
        values.len(),
        unnest(&all)
    );
    execute(client, &sql, &params(&values)).await?;
    let expiring: Vec<&&Row> = rows.iter().filter(|row| row[15] != Value::Null).collect();
    if !expiring.is_empty() {
        let ids = |place: usize| expiring.iter().map(move |row| row[place].id().map(Uid));
        let (tenants, events): (Vec<_>, Vec<_>) = (ids(1).collect(), ids(0).collect());
        let at: Vec<Option<i64>> = expiring.iter().map(|row| row[15].int()).collect();
        let sql = "insert into expiry (tenant, event, at) select * from unnest($1::uuid[], $2::uuid[], $3::int8[])";
        execute(client, sql, &[&tenants, &events, &at]).await?;
    }
    Ok(())
}

fn position(place: usize) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

/// Deliveries with the rows of their events.
async fn put_deliveries(client: &Object, table: &str, pairs: &[(&Row, &Row)]) -> Outcome<()> {
    if pairs.is_empty() {
        return Ok(());
    }
    let rows: Vec<&Row> = pairs.iter().map(|(row, _)| *row).collect();
    let created = pairs.iter().map(|(_, event)| event[8].int()).collect::<Vec<_>>();
    let shard = rows.iter().map(|row| shard_of(&row[2])).collect::<Vec<_>>();
    let slot = rows.iter().map(|row| lane_slot(&row[2], &row[11])).collect::<Vec<_>>();
    let enters = rows.iter().map(|row| lane_slot(&row[2], &row[17])).collect::<Vec<_>>();
    let mut values = columns(DELIVERY.columns, &rows);
    values.extend([
        Box::new(created) as Values<'_>,
        Box::new(shard),
        Box::new(slot),
        Box::new(enters),
    ]);
    let all: Vec<Column> = DELIVERY
        .columns
        .iter()
        .copied()
        .chain(["created_at", "shard", "lane_slot", "enters_slot"].map(int))
        .collect();
    let from = unnest(&all);
    let insert = match table {
        "delivery_live" => format!(
            "insert into delivery_live (id, event, subscription, tenant, seq, due_at, budget_began, \
             created_at, attempts, budget_base, shard, state, lane_slot, lane, revival, held_until, outcome) \
             select id, event, subscription, tenant, seq, coalesce(due_at, {PARKED}), budget_began, \
             created_at, attempts, budget_base, shard, state, lane_slot, lane, revival, held_until, outcome \
             from {from}"
        ),
        _ => format!(
            "insert into delivery_done (id, event, subscription, tenant, seq, budget_began, created_at, \
             ended_at, attempts, budget_base, state, lane, revival, outcome) \
             select id, event, subscription, tenant, seq, budget_began, created_at, ended_at, attempts, \
             budget_base, state, lane, revival, outcome from {from}"
        ),
    };
    execute(client, &insert, &params(&values)).await?;
    // Who blocked before may be removed only later.
    if rows.iter().any(|row| row[12].int() == Some(1)) {
        let sql = format!(
            "insert into lane_block (subscription, lane, delivery) \
             select subscription, lane, id from {from} where blocks \
             on conflict (subscription, lane) do update set delivery = excluded.delivery"
        );
        execute(client, &sql, &params(&values)).await?;
    }
    if rows.iter().any(|row| row[16] != Value::Null) {
        let sql = format!(
            "insert into scheduled (delivery, subscription, at, seq, lane_slot, lane) \
             select id, subscription, enters_at, seq, enters_slot, enters_lane from {from} \
             where enters_at is not null"
        );
        execute(client, &sql, &params(&values)).await?;
    }
    Ok(())
}

fn lane_slot(subscription: &Value, lane: &Value) -> Option<i64> {
    let lane = match lane.as_text()? {
        "" => Lane::Subscription,
        key => Lane::Key(LaneKey::new(key).ok()?),
    };
    let subscription = SubscriptionId::from_bytes(subscription.id()?);
    Some(i64::from(lock::lane_slot(subscription, &lane)))
}

async fn put_attempts(client: &Object, units: &[Unit]) -> Outcome<()> {
    let rows: Vec<&Row> = units.iter().flat_map(|unit| &unit.attempts).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let owners: HashMap<&Value, &Row> =
        units.iter().flat_map(|unit| &unit.deliveries).map(|row| (&row[0], row)).collect();
    let owner = |place: usize| {
        let find = |row: &&Row| owners.get(&row[0]).and_then(|row| row[place].id()).map(Uid);
        rows.iter().map(find).collect::<Vec<_>>()
    };
    let mut values = columns(ATTEMPT.columns, &rows);
    values.extend([Box::new(owner(3)) as Values<'_>, Box::new(owner(2))]);
    let id = |name| Column { name, kind: Kind::Id, compared: true };
    let all: Vec<Column> =
        ATTEMPT.columns.iter().copied().chain([id("tenant"), id("subscription")]).collect();
    let sql = format!(
        "insert into attempt (delivery, number, started_at, no, took, late, manual, status, failure, \
         detail, timings, response, response_expunged_at, request, tenant, subscription) \
         select delivery, number, started_at, no, took, late, manual, status, failure, detail, timings, \
         response, response_expunged_at, request, tenant, subscription from {}",
        unnest(&all)
    );
    execute(client, &sql, &params(&values)).await?;
    Ok(())
}

/// Writes down how far the times of rows and those in their ids are apart, before the rows: lists by time rely on it. Too much
/// is harmless.
async fn note_times(client: &Object, units: &[Unit]) -> Outcome<()> {
    let mut skew = 0;
    let mut replayed: BTreeMap<[u8; 16], (i64, i64)> = BTreeMap::new();
    for unit in units {
        let at = unit.row[8].int().unwrap_or_default();
        let made = EventId::from_bytes(unit.row[0].id().unwrap_or_default()).made_at().as_millis();
        skew = skew.max((at - made).saturating_abs());
        for delivery in &unit.deliveries {
            let id = DeliveryId::from_bytes(delivery[0].id().unwrap_or_default());
            let made = id.made_at().as_millis();
            if made - at <= MADE_LATER {
                skew = skew.max((made - at).saturating_abs());
                continue;
            }
            let tenant = replayed.entry(delivery[3].id().unwrap_or_default()).or_default();
            *tenant = (tenant.0.max(made - at), tenant.1.max(made));
        }
    }
    execute(client, sql::SKEW_GROW, &[&intake::round_up(skew)]).await?;
    for (tenant, (later, last)) in replayed {
        let later = intake::round_up(later);
        execute(client, sql::REPLAYED, &[&Uid(tenant), &later, &(last + 1)]).await?;
    }
    Ok(())
}
