//! Writing down what became of deliveries: a whole batch in one round trip.
//!
//! What was delivered at once and has no lane goes the short way (`plain`), the rest the way that is ready for
//! everything; both in one transaction, with all rows held in the order of ids. When something is not as the short way takes
//! it to be, that transaction fails, and another one writes the whole batch the other way.

use std::borrow::Cow;
use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_store::{Record, Recorded, Result, Rollups, Work};
use tokio_postgres::Row;

use crate::codec::{self, Reader, Uid, due, state_code, text};
use crate::failure::{Failure, Outcome};
use crate::session::{Operation, Param, Session, begin, commit, pipeline, query, step};
use crate::standing::Changes;
use crate::work::{Fences, runs};
use crate::{lock, metrics, rollup, sql, told};

mod plain;

use plain::Plain;

/// A record, and where it stands in its batch.
type Placed<'b> = (usize, &'b Record);

const RECORD: Operation = Operation::write("record", "store outcomes");

pub(crate) async fn record(
    session: &Session,
    batch: Vec<Record>,
    rollups: Option<Rollups>,
) -> Result<Vec<Recorded>> {
    if batch.is_empty() && rollups.is_none() {
        return Ok(Vec::new());
    }
    metrics::rows(RECORD.name, batch.len());
    if batch.iter().any(|record| !record.told.is_empty()) {
        told::prepare(session, batch.iter().flat_map(|record| &record.told)).await?;
    }
    let all = Arc::new((batch, rollups));
    session
        .run(RECORD, move |client| {
            let all = Arc::clone(&all);
            Box::pin(async move { record_batch(client, &all.0, all.1.as_ref()).await })
        })
        .await
}

#[derive(Default)]
struct Columns<'b> {
    id: Vec<Uid>,
    tenant: Vec<Uid>,
    fence: Fences,
    expected: Vec<i32>,
    state: Vec<i16>,
    due_at: Vec<i64>,
    charge: Vec<i32>,
    release: Vec<bool>,
    at: Vec<i64>,
    number: Vec<Option<i32>>,
    started_at: Vec<Option<i64>>,
    took: Vec<Option<i64>>,
    status: Vec<Option<i16>>,
    failure: Vec<Option<&'static str>>,
    detail: Vec<Option<Cow<'b, str>>>,
    response: Vec<Option<&'b [u8]>>,
    revival: Vec<i32>,
    timings: Vec<Option<String>>,
    outcome: Vec<Option<i32>>,
    manual: Vec<bool>,
    request: Vec<Option<String>>,
}

impl<'b> Columns<'b> {
    fn of(batch: impl Iterator<Item = &'b Record>) -> Self {
        let mut columns = Self::default();
        for record in batch {
            columns.push(record);
        }
        columns
    }

    fn push(&mut self, record: &'b Record) {
        self.id.push(record.delivery.into());
        self.tenant.push(record.tenant.into());
        self.fence.push(&record.fence);
        // A count that does not fit was never stored, so nothing has it.
        self.expected.push(i32::try_from(record.expected_attempts).unwrap_or(-1));
        self.state.push(state_code(record.step.state));
        self.due_at.push(due(record.step.due_at));
        self.charge.push(i32::from(record.step.charge));
        self.release.push(record.step.release_lane);
        self.at.push(due(record.at));
        let attempt = record.attempt.as_ref();
        self.number.push(attempt.map(|a| i32::try_from(a.number).unwrap_or(i32::MAX)));
        self.started_at.push(attempt.map(|a| a.started_at.as_millis()));
        self.took.push(attempt.map(|a| i64::try_from(a.took.as_millis()).unwrap_or(i64::MAX)));
        self.status.push(attempt.and_then(|a| i16::try_from(a.status?).ok()));
        self.failure.push(attempt.and_then(|a| Some(a.failure?.as_str())));
        self.detail.push(attempt.map(|a| text(&a.detail)));
        self.response.push(attempt.map(|a| &a.response[..]));
        self.timings.push(attempt.and_then(|a| a.timings.to_text()));
        self.outcome.push(attempt.and_then(|a| a.came_of_it()).map(|outcome| outcome.code()));
        self.manual.push(attempt.is_some_and(|a| a.manual));
        self.request.push(attempt.and_then(|a| Some(a.request.as_ref()?.to_text())));
        self.revival.push(i32::try_from(record.expected_revival).unwrap_or(-1));
    }

    fn params(&self) -> [Param<'_>; 24] {
        [
            &self.id,
            &self.fence.shard,
            &self.fence.epoch,
            &self.fence.node,
            &self.expected,
            &self.state,
            &self.due_at,
            &self.charge,
            &self.release,
            &self.at,
            &self.number,
            &self.started_at,
            &self.took,
            &self.status,
            &self.failure,
            &self.detail,
            &self.response,
            &self.tenant,
            &self.revival,
            &lock::LANES,
            &self.timings,
            &self.outcome,
            &self.manual,
            &self.request,
        ]
    }
}

async fn record_batch(
    client: &Object,
    batch: &[Record],
    rollups: Option<&Rollups>,
) -> Outcome<Vec<Recorded>> {
    if batch.iter().any(|record| !record.told.is_empty()) {
        return record_telling(client, batch, rollups).await;
    }
    let placed: Vec<Placed<'_>> = batch.iter().enumerate().collect();
    let several = runs(&placed, |(_, record)| record.delivery).len() > 1;
    let standings = Changes::of(batch);
    let beside = Beside { standings: &standings, rollups };
    let mut replies = vec![Recorded::Written { promoted: None }; batch.len()];
    if !several && let (Some(plain), rest) = plain::split(&placed) {
        match write(client, Some(&plain), &rest, beside, &mut replies).await {
            // Nothing of it is written, so all of it can be written anew.
            Err(failure) if plain::is_missed(&failure) => {}
            written => return written.map(|()| replies),
        }
    }
    write(client, None, &placed, beside, &mut replies).await?;
    Ok(replies)
}

/// What is written in the same transaction as outcomes.
#[derive(Clone, Copy)]
struct Beside<'b> {
    standings: &'b Changes,
    rollups: Option<&'b Rollups>,
}

/// One transaction, one round trip.
async fn write(
    client: &Object,
    plain: Option<&Plain<'_>>,
    rest: &[Placed<'_>],
    beside: Beside<'_>,
    replies: &mut [Recorded],
) -> Outcome<()> {
    let ending = ending(rest.iter().map(|(_, record)| *record));
    let runs = if rest.is_empty() { Vec::new() } else { runs(rest, |(_, r)| r.delivery) };
    let columns: Vec<Columns<'_>> =
        runs.iter().map(|run| Columns::of(run.iter().map(|(_, record)| *record))).collect();
    let params: Vec<[Param<'_>; 24]> = columns.iter().map(Columns::params).collect();
    let plain_params = plain.map(Plain::params);
    let shards = columns.iter().flat_map(|c| c.fence.slots());
    let shards = lock::sorted(shards.chain(plain.iter().flat_map(|plain| plain.slots())));
    let lane_params: [Param<'_>; 2] = [&lock::LANES, &ending];
    let shard_params: [Param<'_>; 2] = [&lock::SHARDS, &shards];
    let held = held(&columns, plain);
    let held_params: [Param<'_>; 1] = [&held];
    let ends = beside.standings.ends();
    let begins = beside.standings.begins();
    let counted = beside.rollups.map(rollup::Columns::of);
    let counted = counted.as_ref().map(rollup::Columns::params);

    let mut steps = Vec::with_capacity(runs.len() + 7);
    if !ending.is_empty() {
        steps.push(step(client, sql::LOCK_LANES_OF, &lane_params).await?);
    }
    steps.push(step(client, sql::LOCK_SHARED, &shard_params).await?);
    if !held.is_empty() {
        steps.push(step(client, sql::LIVE_HOLD, &held_params).await?);
    }
    let first = steps.len();
    for params in &params {
        steps.push(step(client, sql::RECORD, params).await?);
    }
    if let Some(plain) = &plain_params {
        steps.push(step(client, sql::DELIVER, plain).await?);
    }
    if let Some(ends) = &ends {
        steps.push(step(client, sql::FAILING_END, ends).await?);
    }
    if let Some(begins) = &begins {
        steps.push(step(client, sql::FAILING_BEGIN, begins).await?);
    }
    // Last: whoever holds these rows waits for nobody.
    if let Some(counted) = &counted {
        steps.push(step(client, sql::ROLLUP_PUT, counted).await?);
    }
    let rows = pipeline(client, &steps).await?;
    for (run, rows) in runs.iter().zip(&rows[first..]) {
        for row in rows {
            let (place, reply) = reply(row)?;
            let (place, _) = run.get(place).ok_or_else(|| no_such_item(row))?;
            replies[*place] = reply;
        }
    }
    Ok(())
}

/// What has to be held before several statements change it, so that all of it is held in the order of ids: what comes
/// before the last that all statements but the last one change.
fn held(columns: &[Columns<'_>], plain: Option<&Plain<'_>>) -> Vec<Uid> {
    let of_runs = || columns.iter().flat_map(|run| &run.id);
    let of_plain = || plain.into_iter().flat_map(|plain| &plain.id);
    let before = match plain {
        Some(_) => of_runs().max(),
        None if columns.len() > 1 => of_runs().max(),
        None => None,
    };
    let Some(before) = before else { return Vec::new() };
    of_runs().chain(of_plain()).filter(|id| *id <= before).copied().collect()
}

/// Deliveries that end and have a lane: only those change who heads one.
fn ending<'b>(batch: impl Iterator<Item = &'b Record>) -> Vec<Uid> {
    let ends = batch.filter(|record| record.ordered && record.step.state.is_terminal());
    ends.map(|record| record.delivery.into()).collect()
}

/// The same for a batch with something to tell: statement by statement, since what is told depends on what was
/// written. There are few of those.
async fn record_telling(
    client: &Object,
    batch: &[Record],
    rollups: Option<&Rollups>,
) -> Outcome<Vec<Recorded>> {
    let told = || batch.iter().flat_map(|record| &record.told);
    begin(client).await?;
    lock::share(client, lock::TENANTS, &told::tenant_slots(told())).await?;
    let stale = told::stale(client, batch).await?;
    let places: Vec<usize> = (0..batch.len()).filter(|place| !stale.contains(place)).collect();
    let fresh: Vec<Record> = places.iter().map(|place| batch[*place].clone()).collect();
    let mut replies = vec![Recorded::Stale; batch.len()];
    for (place, reply) in places.into_iter().zip(record_fresh(client, &fresh).await?) {
        replies[place] = reply;
    }
    // Last: whoever holds these rows waits for nobody.
    if let Some(counted) = rollups.map(rollup::Columns::of) {
        query(client, sql::ROLLUP_PUT, &counted.params()).await?;
    }
    commit(client).await?;
    Ok(replies)
}

/// The caller holds the locks of the tenants in which something is told.
async fn record_fresh(client: &Object, batch: &[Record]) -> Outcome<Vec<Recorded>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let ending = ending(batch.iter());
    let lanes = told::lane_slots(batch.iter().flat_map(|record| &record.told));
    query(client, sql::LOCK_LANES_TOLD, &[&lock::LANES, &ending, &lanes]).await?;
    let runs = runs(batch, |record| record.delivery);
    let columns: Vec<Columns<'_>> = runs.iter().map(|run| Columns::of(run.iter())).collect();
    let shards = lock::sorted(columns.iter().flat_map(|c| c.fence.slots()));
    lock::share(client, lock::SHARDS, &shards).await?;
    let held = held(&columns, None);
    if !held.is_empty() {
        query(client, sql::LIVE_HOLD, &[&held]).await?;
    }
    let mut replies = vec![Recorded::Written { promoted: None }; batch.len()];
    let mut start = 0;
    for (run, columns) in runs.iter().zip(&columns) {
        for row in &query(client, sql::RECORD, &columns.params()).await? {
            let (place, reply) = reply(row)?;
            *replies[start..start + run.len()].get_mut(place).ok_or_else(|| no_such_item(row))? =
                reply;
        }
        start += run.len();
    }
    let standings = Changes::of(batch);
    if let Some(ends) = standings.ends() {
        query(client, sql::FAILING_END, &ends).await?;
    }
    if let Some(begins) = standings.begins() {
        query(client, sql::FAILING_BEGIN, &begins).await?;
    }
    let written = |(_, reply): &(&Record, &Recorded)| matches!(reply, Recorded::Written { .. });
    let caused = batch.iter().zip(&replies).filter(written);
    told::tell(client, caused.flat_map(|(record, _)| &record.told)).await?;
    Ok(replies)
}

/// Which item of its statement a row is about.
fn item(row: &Row) -> Outcome<usize> {
    let item: usize = Reader::new(row, "delivery_live", "id").small("item")?;
    item.checked_sub(1).ok_or_else(|| no_such_item(row))
}

fn no_such_item(row: &Row) -> Failure {
    Reader::new(row, "delivery_live", "id").corrupt("item", "no such item").into()
}

/// The statement names only what was not written, and who was promoted.
fn reply(row: &Row) -> Outcome<(usize, Recorded)> {
    let reader = Reader::new(row, "delivery_live", "id");
    if reader.get::<Option<Uid>>("id")?.is_some() {
        let event = codec::shared_event(row, "event")?;
        let promoted = Some(Work { delivery: codec::delivery(row)?, event });
        return Ok((item(row)?, Recorded::Written { promoted }));
    }
    let reply = match reader.get("held")? {
        false => Recorded::Fenced,
        true => Recorded::Superseded,
    };
    Ok((item(row)?, reply))
}
