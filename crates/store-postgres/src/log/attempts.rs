//! Lists of attempts over many deliveries.

use std::collections::BTreeSet;
use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::{FailureCode, Outcome as Came, SubscriptionId, TenantId, Timestamp};
use posthorn_store::{AttemptFilter, AttemptLine, Listing, Order, OutcomeFilter, Page, Result};
use tokio_postgres::Row;

use super::pages::{Range, Seen, Source, page_of, walk};
use super::{direction, is_of_failures, listed, owned};
use crate::codec::{self, Reader, Uid};
use crate::failure::{Corrupt, Outcome};
use crate::session::{Operation, Param, Session, begin_list, commit, query};
use crate::sql;

const ATTEMPTS: Operation = Operation::read("attempts_made", "list attempts");

pub(crate) async fn attempts(
    session: &Session,
    tenant: TenantId,
    filter: AttemptFilter,
    listing: Listing,
) -> Result<Page<AttemptLine>> {
    let filter = Arc::new(filter);
    session
        .run(ATTEMPTS, move |client| {
            let filter = Arc::clone(&filter);
            Box::pin(async move {
                begin_list(client).await?;
                let page = list(client, tenant, &filter, &listing).await?;
                commit(client).await?;
                Ok(page)
            })
        })
        .await
}

/// The place of an attempt: when it began, then its number.
fn place(started_at: i64, no: i64) -> u128 {
    let began = started_at.cast_unsigned() ^ (1 << 63);
    (u128::from(began) << 64) | u128::from(no.max(0).cast_unsigned())
}

/// Back from a place, which may be made up.
fn at_place(place: u128) -> (i64, i64) {
    let [began, no] = [place >> 64, place & u128::from(u64::MAX)]
        .map(|part| u64::try_from(part).unwrap_or(u64::MAX));
    ((began ^ (1 << 63)).cast_signed(), i64::try_from(no).unwrap_or(i64::MAX))
}

/// Enough to find one, once it is known to be meant.
struct Name {
    delivery: Uid,
    number: i32,
    no: i64,
}

async fn list(
    client: &Object,
    tenant: TenantId,
    filter: &AttemptFilter,
    listing: &Listing,
) -> Outcome<Page<AttemptLine>> {
    let from = filter.started.from.map_or(0, |from| place(from.as_millis(), 0));
    let until = filter.started.until.map_or(u128::MAX, |until| place(until.as_millis(), 0));
    let range = Range::new(listing, (from.saturating_sub(1), until));
    if let Some(id) = filter.subscription
        && owned(client, tenant, id).await?.is_none()
    {
        return Ok(Page::empty());
    }
    let page = match filter.event {
        Some(event) => {
            let ids = listed(client, tenant, event).await?;
            let rows = query(client, sql::ATTEMPTS_OF_EVENT, &[&ids]).await?;
            page_of(seen(&rows, filter)?, listing, range)
        }
        None => {
            let (by, owner) = by(tenant, filter);
            let came = match by {
                By::FailedOfTenant | By::FailedToSubscription => {
                    came(client, by, owner, filter.outcome.as_ref()).await?
                }
                By::Tenant | By::Subscription | By::Manual => Vec::new(),
            };
            walk(client, &Found { by, owner, came, filter }, listing, range).await?
        }
    };
    let items = lines(client, tenant, &page.items).await?;
    let Page { places, first, last, more, scanned_until, looked, .. } = page;
    Ok(Page { items, places, first, last, more, scanned_until, looked })
}

async fn lines(client: &Object, tenant: TenantId, names: &[Name]) -> Outcome<Vec<AttemptLine>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let deliveries: Vec<Uid> = names.iter().map(|name| name.delivery).collect();
    let numbers: Vec<i32> = names.iter().map(|name| name.number).collect();
    let nos: Vec<i64> = names.iter().map(|name| name.no).collect();
    let params: [Param<'_>; 4] = [&Uid::from(tenant), &deliveries, &numbers, &nos];
    let rows = query(client, sql::ATTEMPT_LINES, &params).await?;
    let line = |row| {
        let reader = Reader::new(row, "attempt", "delivery");
        Ok(AttemptLine {
            attempt: codec::attempt(row)?,
            event: reader.id("event")?,
            subscription: reader.id("subscription")?,
        })
    };
    Ok(rows.iter().map(line).collect::<Result<_, Corrupt>>()?)
}

/// The index that serves a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Tenant,
    Subscription,
    FailedOfTenant,
    FailedToSubscription,
    Manual,
}

fn by(tenant: TenantId, filter: &AttemptFilter) -> (By, Uid) {
    let failed = is_of_failures(filter.outcome.as_ref());
    let tenant = Uid::from(tenant);
    match filter.subscription.map(Uid::from) {
        // They are few, whoever they went to.
        _ if filter.manual == Some(true) => (By::Manual, tenant),
        None if failed => (By::FailedOfTenant, tenant),
        None => (By::Tenant, tenant),
        Some(subscription) if failed => (By::FailedToSubscription, subscription),
        Some(subscription) => (By::Subscription, subscription),
    }
}

/// What failed attempts came to, as their indexes have it: what is meant, and of statuses those that there are.
async fn came(
    client: &Object,
    by: By,
    owner: Uid,
    filter: Option<&OutcomeFilter>,
) -> Outcome<Vec<String>> {
    let (first, last) = match filter {
        None => return Ok(Vec::new()),
        Some(OutcomeFilter::Failures(codes)) => {
            let codes: BTreeSet<&str> = codes.iter().map(|code| code.as_str()).collect();
            return Ok(codes.into_iter().map(str::to_owned).collect());
        }
        Some(OutcomeFilter::Status(first, last)) => (format!("{first:03}"), format!("{last:03}")),
    };
    let rows = query(client, &came_sql(by), &[&owner, &first, &last]).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

struct Found<'f> {
    by: By,
    owner: Uid,
    /// One stream for each, of what failed.
    came: Vec<String>,
    filter: &'f AttemptFilter,
}

impl Source for Found<'_> {
    type Item = Name;

    fn streams(&self) -> usize {
        match self.by {
            By::FailedOfTenant | By::FailedToSubscription => self.came.len(),
            By::Tenant | By::Subscription | By::Manual => 1,
        }
    }

    async fn look(&self, client: &Object, range: Range, each: i64) -> Outcome<Vec<Seen<Name>>> {
        let (low, high) = (at_place(range.low), at_place(range.high));
        let mut params: Vec<Param<'_>> = vec![&self.owner, &low.0, &low.1, &high.0, &high.1, &each];
        if matches!(self.by, By::FailedOfTenant | By::FailedToSubscription) {
            params.push(&self.came);
        }
        let rows = query(client, &list_sql(self.by, range.order), &params).await?;
        Ok(seen(&rows, self.filter)?)
    }
}

fn seen(rows: &[Row], filter: &AttemptFilter) -> Result<Vec<Seen<Name>>, Corrupt> {
    let seen = |row| {
        let reader = Reader::new(row, "attempt", "delivery");
        let (time, no): (i64, i64) = (reader.get("started_at")?, reader.get("no")?);
        let name = Name { delivery: reader.get("delivery")?, number: reader.get("number")?, no };
        let item = wants(&reader, filter, time)?.then_some(name);
        Ok(Seen { stream: reader.get("stream")?, place: place(time, no), time, item })
    };
    rows.iter().map(seen).collect()
}

/// What [`AttemptFilter::wants`] says, but for the event, without reading the whole attempt.
fn wants(reader: &Reader<'_>, filter: &AttemptFilter, started: i64) -> Result<bool, Corrupt> {
    let subscription: SubscriptionId = reader.id("subscription")?;
    let manual: bool = reader.get("manual")?;
    let status = reader.get::<Option<i16>>("status")?.and_then(|raw| u16::try_from(raw).ok());
    let failure = reader.get::<Option<&str>>("failure")?.and_then(FailureCode::parse);
    let came = status.map(Came::Status).or(failure.map(Came::Failure));
    let outcome = filter.outcome.as_ref();
    Ok(outcome.is_none_or(|filter| came.is_some_and(|came| filter.wants(came)))
        && filter.subscription.is_none_or(|wanted| wanted == subscription)
        && filter.manual.is_none_or(|wanted| wanted == manual)
        && filter.started.contains(Timestamp::from_millis(started)))
}

const FAILED: &str = "(status between 200 and 299) is not true";
/// What an attempt came to, in the words of the indexes of failures.
const CAME: &str = "(coalesce(status::text, failure) collate \"C\")";
const COLUMNS: &str = "delivery, number, no, started_at, status, failure, manual, subscription";

/// The owner of what failed.
const fn owner_of(by: By) -> &'static str {
    match by {
        By::Subscription | By::FailedToSubscription => "subscription",
        By::Tenant | By::FailedOfTenant | By::Manual => "tenant",
    }
}

/// Plan: `attempt_place`, `attempt_place_to`, `attempt_failed`, `attempt_failed_to` or `attempt_manual`.
fn list_sql(by: By, order: Order) -> String {
    let direction = direction(order);
    let owner = owner_of(by);
    let range = format!(
        "(started_at, no) > ($2::int8, $3::int8) and (started_at, no) < ($4::int8, $5::int8)
         order by started_at {direction}, no {direction}
         limit $6::int8"
    );
    let condition = match by {
        By::Tenant | By::Subscription => "no > 0",
        By::Manual => "manual",
        // As in `stream`, each value is asked for twice over.
        By::FailedOfTenant | By::FailedToSubscription => {
            return format!(
                "select w.stream::int4 as stream, a.*
                 from unnest($7::text[]) with ordinality as w(came, stream)
                 cross join lateral (
                     select {COLUMNS} from attempt
                     where {owner} = $1 and {FAILED} and {CAME} = w.came
                         and {CAME} >= w.came and {CAME} <= w.came and {range}
                 ) as a"
            );
        }
    };
    format!(
        "select 1 as stream, {COLUMNS} from attempt where {owner} = $1 and {condition} and {range}"
    )
}

/// What attempts failed with, from one to another. A skip scan: one probe for each.
fn came_sql(by: By) -> String {
    let owner = owner_of(by);
    let probe = |from: &str| {
        format!(
            "select {CAME} as came from attempt
             where {owner} = $1 and {FAILED} and {CAME} {from} and {CAME} <= $3::text
             order by {CAME}
             limit 1"
        )
    };
    format!(
        "with recursive found as (
             ({first})
             union all
             select next.came from found cross join lateral ({next}) as next
         )
         select came from found",
        first = probe(">= $2::text"),
        next = probe("> found.came"),
    )
}

pub(super) fn skips() -> Vec<(String, String)> {
    let skip = |by| (format!("came of attempts {by:?}"), came_sql(by));
    vec![skip(By::FailedOfTenant), skip(By::FailedToSubscription)]
}

pub(super) fn statements(order: Order) -> Vec<(String, String)> {
    let all =
        [By::Tenant, By::Subscription, By::FailedOfTenant, By::FailedToSubscription, By::Manual];
    all.into_iter()
        .map(|by| (format!("list of attempts {by:?} {order:?}"), list_sql(by, order)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_order_and_come_back() {
        let all = [(i64::MIN, 0), (-1, 5), (0, 0), (0, 1), (7, i64::MAX), (8, 0), (i64::MAX, 9)];
        let places = all.map(|(began, no)| place(began, no));
        assert!(places.is_sorted());
        assert_eq!(places.map(at_place), all);
        assert_eq!(at_place(u128::MAX), (i64::MAX, i64::MAX));
    }
}
