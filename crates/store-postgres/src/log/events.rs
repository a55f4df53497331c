//! Lists of events.

use std::collections::BTreeMap;
use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::{Event, EventId, TenantId, Timestamp};
use posthorn_store::{EventFilter, Listing, Order, Page, Result};
use tokio_postgres::Row;

use super::pages::{Range, Seen, Source, walk};
use super::{Made, direction, ids_of, kinds, place_of, stream, uid};
use crate::codec::{self, Reader, Uid, limit};
use crate::failure::{Corrupt, Outcome};
use crate::session::{Operation, Param, Session, begin_list, commit, query};
use crate::sql;

const EVENTS: Operation = Operation::read("events", "list events");

/// Streams of kinds that are merged. A tenant with more is searched row by row.
const KINDS_MAX: usize = 256;

pub(crate) async fn events(
    session: &Session,
    tenant: TenantId,
    filter: EventFilter,
    listing: Listing,
) -> Result<Page<Event>> {
    let filter = Arc::new(filter);
    session
        .run(EVENTS, move |client| {
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
    filter: &EventFilter,
    listing: &Listing,
) -> Outcome<Page<Event>> {
    let range = Range::new(listing, ids_of(client, tenant, &filter.accepted, Made::AtOnce).await?);
    let kinds = match by(filter) {
        By::Kind => kinds_of(client, tenant, filter).await?,
        _ => Vec::new(),
    };
    let found = Found { tenant: tenant.into(), by: by(filter), filter, kinds };
    let found = match found.by {
        By::Kind if found.kinds.len() > KINDS_MAX => Found { by: By::All, ..found },
        _ => found,
    };
    let page = walk(client, &found, listing, range).await?;
    let ids: Vec<Uid> = page.items.iter().map(|id| Uid::from(*id)).collect();
    let tenants = vec![Uid::from(tenant); ids.len()];
    let mut whole = BTreeMap::new();
    if !ids.is_empty() {
        for row in &query(client, sql::EVENTS_OF, &[&tenants, &ids, &limit(usize::MAX)]).await? {
            let event = codec::event(row, "id")?;
            whole.insert(event.id, event);
        }
    }
    let Page { items, places, first, last, more, scanned_until, looked } = page;
    let found = items.iter().zip(places).filter_map(|(id, place)| Some((whole.remove(id)?, place)));
    let (items, places) = found.unzip();
    Ok(Page { items, places, first, last, more, scanned_until, looked })
}

/// The index that serves a list: the one that has the fewest in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    DeadLetters,
    PublisherId,
    Key,
    Unwanted,
    Kind,
    All,
}

fn by(filter: &EventFilter) -> By {
    if filter.with_dead_letters {
        By::DeadLetters
    } else if filter.publisher_id.is_some() {
        By::PublisherId
    } else if filter.key.is_some() {
        By::Key
    } else if filter.unwanted {
        By::Unwanted
    } else if !filter.topics.is_empty() || !filter.types.is_empty() {
        By::Kind
    } else {
        By::All
    }
}

/// The kinds of which there may be events that are wanted; one more than [`KINDS_MAX`] when there are too many.
async fn kinds_of(client: &Object, tenant: TenantId, filter: &EventFilter) -> Outcome<Vec<i64>> {
    let owner = Uid::from(tenant);
    let max = limit(KINDS_MAX + 1);
    let mut topics: Vec<u32> = filter.topics.iter().map(|t| kinds::half(t.as_str())).collect();
    if topics.is_empty() {
        let rows = query(client, sql::EVENT_TOPICS, &[&owner, &max]).await?;
        topics = read(&rows)?.into_iter().map(kinds::topic_of).collect();
    }
    let types: Vec<u32> = filter.types.iter().map(|t| kinds::half(t.as_str())).collect();
    let mut found: Vec<i64> = if types.is_empty() {
        let first: Vec<i64> = topics.iter().map(|topic| kinds::kind(*topic, 0)).collect();
        let last: Vec<i64> = topics.iter().map(|topic| kinds::kind(*topic, u32::MAX)).collect();
        read(&query(client, sql::EVENT_TYPES, &[&owner, &first, &last, &max]).await?)?
    } else {
        let of = |topic: &u32| types.iter().map(|kind| kinds::kind(*topic, *kind)).collect();
        topics.iter().flat_map(|topic| -> Vec<i64> { of(topic) }).collect()
    };
    // Names may be given twice, or share a number.
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn read(rows: &[Row]) -> Result<Vec<i64>, Corrupt> {
    rows.iter().map(|row| Reader::new(row, "event", "id").get("kind")).collect()
}

struct Found<'f> {
    tenant: Uid,
    by: By,
    filter: &'f EventFilter,
    kinds: Vec<i64>,
}

impl Source for Found<'_> {
    type Item = EventId;

    fn streams(&self) -> usize {
        if self.by == By::Kind { self.kinds.len() } else { 1 }
    }

    async fn look(&self, client: &Object, range: Range, each: i64) -> Outcome<Vec<Seen<EventId>>> {
        let (low, high) = (uid(range.low), uid(range.high));
        let key = self.filter.key.as_ref().map(|key| key.as_str());
        let publisher_id = self.filter.publisher_id.as_ref().map(|id| id.as_str());
        let mut params: Vec<Param<'_>> = vec![&self.tenant, &low, &high, &each];
        match self.by {
            By::Key => params.push(&key),
            By::PublisherId => params.push(&publisher_id),
            By::Kind => params.push(&self.kinds),
            By::DeadLetters | By::Unwanted | By::All => {}
        }
        let rows = query(client, &list_sql(self.by, range.order), &params).await?;
        let seen = |row| self.seen(row);
        Ok(rows.iter().map(seen).collect::<Result<_, Corrupt>>()?)
    }
}

impl Found<'_> {
    fn seen(&self, row: &Row) -> Result<Seen<EventId>, Corrupt> {
        let reader = Reader::new(row, "event", "id");
        let (id, time): (Uid, i64) = (reader.get("id")?, reader.get("accepted_at")?);
        Ok(Seen {
            stream: reader.get("stream")?,
            place: place_of(id),
            time,
            item: self.wants(&reader, time)?.then(|| id.into()),
        })
    }

    /// What [`EventFilter::wants`] says, without reading the whole event.
    fn wants(&self, reader: &Reader<'_>, accepted_at: i64) -> Result<bool, Corrupt> {
        let filter = self.filter;
        let (topic, kind): (&str, &str) = (reader.get("topic")?, reader.get("type")?);
        let key: Option<&str> = reader.get("key")?;
        let publisher_id: Option<&str> = reader.get("publisher_id")?;
        let named = (filter.topics.is_empty() || filter.topics.iter().any(|t| t.as_str() == topic))
            && (filter.types.is_empty() || filter.types.iter().any(|t| t.as_str() == kind))
            && filter.key.as_ref().is_none_or(|wanted| key == Some(wanted.as_str()))
            && filter.publisher_id.as_ref().is_none_or(|id| publisher_id == Some(id.as_str()))
            && (!filter.unwanted || reader.get("unwanted")?)
            && filter.accepted.contains(Timestamp::from_millis(accepted_at));
        if !named || filter.attributes.is_empty() {
            return Ok(named);
        }
        let own: BTreeMap<String, String> = reader.json("attributes")?;
        Ok(filter.attributes.iter().all(|(name, value)| own.get(name) == Some(value)))
    }
}

const COLUMNS: &str = "id, accepted_at, topic, type, key, publisher_id, unwanted, attributes";

/// Plans: `event_kind`, `event_key`, `event_publisher_id`, `event_unwanted`, `delivery_done_dead_event` or the
/// primary key, each from its one end or the other.
fn list_sql(by: By, order: Order) -> String {
    let direction = direction(order);
    let (tenant, bounds) = (("tenant", "$1"), ("$2", "$3"));
    let plain = |condition: &str| {
        format!("select 1 as stream, {COLUMNS} from event where {condition} $4::int8")
    };
    let of_tenant = |condition: &str| {
        plain(&format!(
            "tenant = $1 and id > $2 and id < $3{condition} order by id {direction} limit"
        ))
    };
    match by {
        By::All => of_tenant(""),
        By::Unwanted => of_tenant(" and unwanted"),
        By::Key => plain(&stream(&[tenant, ("key", "$5::text")], bounds, order)),
        By::PublisherId => plain(&stream(&[tenant, ("publisher_id", "$5::text")], bounds, order)),
        By::Kind => {
            let stream = stream(&[tenant, ("kind", "w.kind")], bounds, order);
            format!(
                "select w.stream::int4 as stream, e.*
                 from unnest($5::int8[]) with ordinality as w(kind, stream)
                 cross join lateral (
                     select {COLUMNS} from event where {stream} $4::int8
                 ) as e"
            )
        }
        // One with several dead letters comes several times.
        By::DeadLetters => format!(
            "select 1 as stream, e.*
             from (
                 select event from delivery_done
                 where tenant = $1 and state between 10 and 19 and event > $2 and event < $3
                 order by event {direction} limit $4::int8
             ) as d
             cross join lateral (
                 select {COLUMNS} from event where tenant = $1 and id = d.event limit 1
             ) as e"
        ),
    }
}

pub(super) fn statements(order: Order) -> Vec<(String, String)> {
    let all =
        [By::All, By::Unwanted, By::Key, By::PublisherId, By::Kind, By::DeadLetters].into_iter();
    all.map(|by| (format!("list of events {by:?} {order:?}"), list_sql(by, order))).collect()
}
