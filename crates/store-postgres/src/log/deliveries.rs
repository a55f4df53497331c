//! Lists of deliveries: those that have not ended and those that have, merged by id.
//!
//! Both tables are read in one statement, so that a delivery on its way from one to the other is seen exactly
//! once.

use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::{Delivery, DeliveryState, Outcome as Came, TenantId};
use posthorn_store::{DeliveryFilter, Listing, Order, OutcomeFilter, Page, Result, StateKind};

use super::pages::{Range, Seen, Source, page_of, walk};
use super::{Made, Owned, direction, ids_of, is_of_failures, listed, owned, place_of, stream, uid};
use crate::codec::{self, Reader, Uid, state_code, state_of};
use crate::failure::{Corrupt, Outcome};
use crate::query::by_ids;
use crate::session::{Operation, Param, Session, begin_list, commit, query};

const DELIVERIES: Operation = Operation::read("deliveries", "list deliveries");

pub(crate) async fn deliveries(
    session: &Session,
    tenant: TenantId,
    filter: DeliveryFilter,
    listing: Listing,
) -> Result<Page<Delivery>> {
    let filter = Arc::new(filter);
    session
        .run(DELIVERIES, move |client| {
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

async fn list(
    client: &Object,
    tenant: TenantId,
    filter: &DeliveryFilter,
    listing: &Listing,
) -> Outcome<Page<Delivery>> {
    let range = Range::new(listing, ids_of(client, tenant, &filter.created, Made::Later).await?);
    if let Some(event) = filter.event {
        // The event itself knows its deliveries.
        let mut found = by_ids(client, tenant, &listed(client, tenant, event).await?).await?;
        found.retain(|delivery| filter.wants(delivery));
        let rows = found.into_iter().map(|delivery| seen(0, delivery, filter)).collect();
        return Ok(page_of(rows, listing, range));
    }
    let subscription = match filter.subscription {
        None => None,
        Some(id) => match owned(client, tenant, id).await? {
            Some(owned) => Some(owned),
            None => return Ok(Page::empty()),
        },
    };
    let streams = streams(client, tenant, filter, subscription.as_ref()).await?;
    let found = Found { tenant: tenant.into(), filter, streams };
    walk(client, &found, listing, range).await
}

/// Which of those that have not ended are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// None: none of them can be meant.
    Nothing,
    /// A stream for each subscription.
    All,
    /// The same of those whose last attempt failed.
    Failed,
    /// The same of those with a written lease.
    Leased,
}

/// Which of those that have ended are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Nothing,
    /// All of the tenant.
    All,
    /// A stream for each state, of the tenant or of a subscription.
    States(Owner),
    /// A stream for each outcome that was a failure.
    Failed(Owner),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Tenant,
    Subscription,
}

impl Owner {
    const fn column(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Subscription => "subscription",
        }
    }
}

struct Streams {
    open: Open,
    ended: Ended,
    /// Of those that have not ended.
    subscriptions: Vec<Uid>,
    /// Of those that have: the tenant or the subscription.
    owner: Uid,
    states: Vec<i16>,
    outcomes: Vec<i32>,
}

async fn streams(
    client: &Object,
    tenant: TenantId,
    filter: &DeliveryFilter,
    subscription: Option<&Owned>,
) -> Outcome<Streams> {
    let states: Vec<i16> = (2..100)
        .filter(|code| state_of(*code).is_some_and(|state| filter.wants_state(state)))
        .collect();
    let failed = is_of_failures(filter.outcome.as_ref());
    let whose = if subscription.is_some() { Owner::Subscription } else { Owner::Tenant };
    let owner = subscription.map_or(Uid::from(tenant), |owned| owned.id.into());
    let delivered = state_code(DeliveryState::Delivered);
    let ended = match whose {
        _ if states.is_empty() => Ended::Nothing,
        whose if failed => Ended::Failed(whose),
        Owner::Tenant if states.contains(&delivered) => Ended::All,
        whose => Ended::States(whose),
    };
    let outcomes = match ended {
        Ended::Failed(whose) => outcomes(client, whose, owner, filter.outcome.as_ref()).await?,
        _ => Vec::new(),
    };
    let open = match (filter.state, filter.exactly) {
        (Some(StateKind::InFlight), _) | (_, Some(DeliveryState::InFlight)) => Open::Leased,
        _ if failed => Open::Failed,
        _ => Open::All,
    };
    let subscriptions = match (open, subscription) {
        (_, Some(owned)) => Vec::from_iter(waits(filter, owned.gone).then_some(owner)),
        (open, None) => waiting(client, tenant, filter, open).await?,
    };
    let open = match open {
        _ if subscriptions.is_empty() => Open::Nothing,
        open => open,
    };
    Ok(Streams { open, ended, subscriptions, owner, states, outcomes })
}

/// Whether those can be meant that have not ended. Of a deleted subscription they count as cancelled.
fn waits(filter: &DeliveryFilter, gone: bool) -> bool {
    let cancelled = DeliveryState::Cancelled(posthorn_domain::CancelReason::Unsubscribed);
    match gone {
        true => filter.wants_state(cancelled),
        false => [DeliveryState::Pending, DeliveryState::InFlight]
            .into_iter()
            .any(|state| filter.wants_state(state)),
    }
}

/// Subscriptions of a tenant with deliveries that have not ended, as far as those can be meant.
async fn waiting(
    client: &Object,
    tenant: TenantId,
    filter: &DeliveryFilter,
    open: Open,
) -> Outcome<Vec<Uid>> {
    if !waits(filter, false) && !waits(filter, true) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for row in &query(client, &waiting_sql(open), &[&Uid::from(tenant)]).await? {
        let reader = Reader::new(row, "delivery_live", "subscription");
        if waits(filter, reader.get("gone")?) {
            found.push(reader.get("subscription")?);
        }
    }
    Ok(found)
}

/// Outcomes that are meant and that there are.
async fn outcomes(
    client: &Object,
    whose: Owner,
    owner: Uid,
    filter: Option<&OutcomeFilter>,
) -> Outcome<Vec<i32>> {
    let (first, last) = match filter {
        None => return Ok(Vec::new()),
        Some(OutcomeFilter::Failures(codes)) => {
            let mut codes: Vec<i32> =
                codes.iter().map(|code| Came::Failure(*code).code()).collect();
            codes.sort_unstable();
            codes.dedup();
            return Ok(codes);
        }
        Some(OutcomeFilter::Status(first, last)) => (i32::from(*first), i32::from(*last)),
    };
    let rows = query(client, &outcomes_sql(whose), &[&owner, &first, &last]).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

struct Found<'f> {
    tenant: Uid,
    filter: &'f DeliveryFilter,
    streams: Streams,
}

impl Source for Found<'_> {
    type Item = Delivery;

    fn streams(&self) -> usize {
        let open = match self.streams.open {
            Open::Nothing => 0,
            Open::All | Open::Failed | Open::Leased => self.streams.subscriptions.len(),
        };
        let ended = match self.streams.ended {
            Ended::Nothing => 0,
            Ended::All => 1,
            Ended::States(_) => self.streams.states.len(),
            Ended::Failed(_) => self.streams.outcomes.len(),
        };
        open + ended
    }

    async fn look(&self, client: &Object, range: Range, each: i64) -> Outcome<Vec<Seen<Delivery>>> {
        let Streams { open, ended, subscriptions, owner, states, outcomes } = &self.streams;
        let (low, high) = (uid(range.low), uid(range.high));
        let mut params: Vec<Param<'_>> = vec![&low, &high, &each];
        match open {
            Open::Nothing => {}
            Open::All | Open::Failed | Open::Leased => {
                params.extend([&self.tenant as Param<'_>, subscriptions]);
            }
        }
        match ended {
            Ended::Nothing => {}
            Ended::All => params.push(owner),
            Ended::States(_) => params.extend([owner as Param<'_>, states]),
            Ended::Failed(_) => params.extend([owner as Param<'_>, outcomes]),
        }
        let rows = query(client, &list_sql(*open, *ended, range.order), &params).await?;
        let look = |row| {
            let stream = Reader::new(row, "delivery", "id").get("stream")?;
            Ok(seen(stream, codec::delivery(row)?, self.filter))
        };
        Ok(rows.iter().map(look).collect::<Result<_, Corrupt>>()?)
    }
}

fn seen(stream: i32, delivery: Delivery, filter: &DeliveryFilter) -> Seen<Delivery> {
    Seen {
        stream,
        place: place_of(delivery.id.into()),
        time: delivery.created_at.as_millis(),
        item: filter.wants(&delivery).then_some(delivery),
    }
}

/// As readers see them: those of a deleted subscription are cancelled already.
const OPEN_COLUMNS: &str = "
    l.id, l.event, l.subscription, l.tenant, l.lane, l.seq,
    case when g.id is null then l.state else 20::int2 end as state,
    case when g.id is null then l.due_at else 9223372036854775807 end as due_at,
    l.attempts, l.budget_base, l.budget_began, l.revival, l.created_at, g.deleted_at as ended_at,
    l.outcome";
const ENDED_COLUMNS: &str = "
    d.id, d.event, d.subscription, d.tenant, d.lane, d.seq, d.state, 9223372036854775807 as due_at,
    d.attempts, d.budget_base, d.budget_began, d.revival, d.created_at, d.ended_at, d.outcome";
/// The condition of the indexes of failures, which leave out what was never tried as well.
const FAILED: &str = "outcome not between 200 and 299";
/// The condition of the index of written leases.
const LEASED: &str = "state = 1";

/// Streams of those that have not ended count upwards from 1, the others downwards from -1.
fn list_sql(open: Open, ended: Ended, order: Order) -> String {
    let (open, next) = open_sql(open, order);
    let ended = ended_sql(ended, order, next);
    let parts: Vec<String> = [open, ended].into_iter().flatten().collect();
    parts.join("\nunion all\n")
}

const BOUNDS: (&str, &str) = ("$1", "$2");

/// The statement, and the number of the next parameter. Plan: `delivery_live_place`, `delivery_live_failed` or
/// `delivery_live_leased`.
fn open_sql(open: Open, order: Order) -> (Option<String>, usize) {
    let gone = "left join lateral (
        select * from subscription_gone where id = l.subscription limit 1
    ) as g on true";
    let of_each = |condition: &str| {
        let values = [("tenant", "$4"), ("subscription", "w.subscription")];
        let stream = stream(&values, BOUNDS, order);
        format!(
            "select w.stream::int4 as stream, {OPEN_COLUMNS}
             from unnest($5::uuid[]) with ordinality as w(subscription, stream)
             cross join lateral (
                 select * from delivery_live where {condition} and {stream} $3::int8
             ) as l
             {gone}"
        )
    };
    match open {
        Open::Nothing => (None, 4),
        Open::All => (Some(of_each("seq > 0")), 6),
        Open::Failed => (Some(of_each(FAILED)), 6),
        Open::Leased => (Some(of_each(LEASED)), 6),
    }
}

/// Plan: the primary key, `delivery_done_undelivered`, `delivery_done_state`, `delivery_done_failed` or
/// `delivery_done_failed_to`.
fn ended_sql(ended: Ended, order: Order, next: usize) -> Option<String> {
    let (owner, values) = (next, next + 1);
    let of_each = |kind: &str, [whose, column]: [&str; 2], condition: &str| {
        let wanted = [(whose, &*format!("${owner}")), (column, "w.value")];
        let stream = stream(&wanted, BOUNDS, order);
        format!(
            "select -w.stream::int4 as stream, {ENDED_COLUMNS}
             from unnest(${values}::{kind}[]) with ordinality as w(value, stream)
             cross join lateral (
                 select * from delivery_done where {condition} and {stream} $3::int8
             ) as d"
        )
    };
    let text = match ended {
        Ended::Nothing => return None,
        Ended::All => {
            let direction = direction(order);
            format!(
                "select -1 as stream, {ENDED_COLUMNS}
                 from (
                     select * from delivery_done
                     where tenant = ${owner} and id > $1 and id < $2
                     order by id {direction} limit $3::int8
                 ) as d"
            )
        }
        Ended::States(Owner::Tenant) => of_each("int2", ["tenant", "state"], "state >= 10"),
        Ended::States(Owner::Subscription) => of_each("int2", ["subscription", "state"], "seq > 0"),
        Ended::Failed(Owner::Tenant) => of_each("int4", ["tenant", "outcome"], FAILED),
        Ended::Failed(Owner::Subscription) => of_each("int4", ["subscription", "outcome"], FAILED),
    };
    Some(text)
}

/// Subscriptions of a tenant with deliveries that have not ended. A skip scan: one probe for each.
fn waiting_sql(open: Open) -> String {
    let condition = match open {
        Open::Failed => FAILED,
        Open::Leased => LEASED,
        Open::Nothing | Open::All => "seq > 0",
    };
    format!(
        "with recursive found as (
             (
                 select l.subscription from delivery_live l
                 where l.tenant = $1 and l.{condition}
                 order by l.subscription
                 limit 1
             )
             union all
             select next.subscription
             from found
             cross join lateral (
                 select l.subscription from delivery_live l
                 where l.tenant = $1 and l.{condition} and l.subscription > found.subscription
                 order by l.subscription
                 limit 1
             ) as next
         )
         select found.subscription, g.id is not null as gone
         from found
         left join subscription_gone g on g.id = found.subscription"
    )
}

/// Failures that deliveries have ended with, from one to another. A skip scan: one probe for each.
fn outcomes_sql(whose: Owner) -> String {
    let column = whose.column();
    let probe = |from: &str| {
        format!(
            "select d.outcome from delivery_done d
             where d.{column} = $1 and d.{FAILED} and d.outcome {from} and d.outcome <= $3::int4
             order by d.outcome
             limit 1"
        )
    };
    format!(
        "with recursive found as (
             ({first})
             union all
             select next.outcome from found cross join lateral ({next}) as next
         )
         select outcome from found",
        first = probe(">= $2::int4"),
        next = probe("> found.outcome"),
    )
}

pub(super) fn statements(order: Order) -> Vec<(String, String)> {
    let open = [Open::Nothing, Open::All, Open::Failed, Open::Leased];
    let ended = [
        Ended::Nothing,
        Ended::All,
        Ended::States(Owner::Tenant),
        Ended::States(Owner::Subscription),
        Ended::Failed(Owner::Tenant),
        Ended::Failed(Owner::Subscription),
    ];
    let both = open.into_iter().flat_map(|open| ended.map(|ended| (open, ended)));
    both.filter(|both| *both != (Open::Nothing, Ended::Nothing))
        .map(|(open, ended)| {
            let name = format!("list of deliveries {open:?} {ended:?} {order:?}");
            (name, list_sql(open, ended, order))
        })
        .collect()
}

pub(super) fn skips() -> Vec<(String, String)> {
    let outcomes = |whose| (format!("outcomes {whose:?}"), outcomes_sql(whose));
    let waiting = |open| (format!("waiting {open:?}"), waiting_sql(open));
    vec![
        outcomes(Owner::Tenant),
        outcomes(Owner::Subscription),
        waiting(Open::All),
        waiting(Open::Failed),
        waiting(Open::Leased),
    ]
}
