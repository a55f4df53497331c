//! Lists of events.

use std::collections::BTreeMap;
use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::{Event, EventId, TenantId, Timestamp};
use posthorn_store::{EventFilter, EventLine, Listing, Order, Page, Result};
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
                let ids: Vec<Uid> = page.items.iter().map(|id| Uid::from(*id)).collect();
                let tenants = vec![Uid::from(tenant); ids.len()];
                let mut whole = BTreeMap::new();
                if !ids.is_empty() {
                    let params: [Param<'_>; 3] = [&tenants, &ids, &limit(usize::MAX)];
                    for row in &query(client, sql::EVENTS_OF, &params).await? {
                        let event = codec::event(row, "id")?;
                        whole.insert(event.id, event);
                    }
                }
                commit(client).await?;
                Ok(filled(page, whole))
            })
        })
        .await
}

/// The same without payloads.
pub(crate) async fn lines(
    session: &Session,
    tenant: TenantId,
    filter: EventFilter,
    listing: Listing,
) -> Result<Page<EventLine>> {
    let filter = Arc::new(filter);
    session
        .run(EVENTS, move |client| {
            let filter = Arc::clone(&filter);
            Box::pin(async move {
                begin_list(client).await?;
                let page = list(client, tenant, &filter, &listing).await?;
                let ids: Vec<Uid> = page.items.iter().map(|id| Uid::from(*id)).collect();
                let lines = lines_of(client, &vec![Uid::from(tenant); ids.len()], &ids).await?;
                commit(client).await?;
                Ok(filled(page, lines))
            })
        })
        .await
}

/// Events without their payloads.
pub(super) async fn lines_of(
    client: &Object,
    tenants: &[Uid],
    ids: &[Uid],
) -> Outcome<BTreeMap<EventId, EventLine>> {
    let mut lines = BTreeMap::new();
    if ids.is_empty() {
        return Ok(lines);
    }
    for row in &query(client, sql::EVENT_LINES, &[&tenants, &ids]).await? {
        let size: i32 = Reader::new(row, "event", "id").get("payload_bytes")?;
        let event = codec::event(row, "id")?;
        let payload_bytes = usize::try_from(size).unwrap_or(0);
        lines.insert(event.id, EventLine { event, payload_bytes });
    }
    Ok(lines)
}

/// A page of what was read of its events. What is gone is left out.
fn filled<T>(page: Page<EventId>, mut whole: BTreeMap<EventId, T>) -> Page<T> {
    let Page { items, places, first, last, more, scanned_until, looked } = page;
    let found = items.iter().zip(places).filter_map(|(id, place)| Some((whole.remove(id)?, place)));
    let (items, places) = found.unzip();
    Page { items, places, first, last, more, scanned_until, looked }
}

async fn list(
    client: &Object,
    tenant: TenantId,
    filter: &EventFilter,
    listing: &Listing,
) -> Outcome<Page<EventId>> {
    let (mut low, high) = ids_of(client, tenant, &filter.accepted, Made::AtOnce).await?;
    if let Some(first) = filter.from_event {
        low = low.max(place_of(first.into()).saturating_sub(1));
    }
    let kinds = match by(filter) {
        By::Kind | By::UnwantedKind => kinds_of(client, tenant, filter).await?,
        By::Key => kinds_of_key(client, tenant, filter).await?,
        By::DeadLetters | By::PublisherId | By::Unwanted | By::All => Vec::new(),
    };
    let found = Found { tenant: tenant.into(), by: by(filter), filter, kinds };
    let found = match found.by {
        By::UnwantedKind if found.kinds.len() > KINDS_MAX => Found { by: By::Unwanted, ..found },
        _ if found.kinds.len() > KINDS_MAX => Found { by: By::All, ..found },
        _ => found,
    };
    walk(client, &found, listing, Range::new(listing, (low, high))).await
}

/// The index that serves a list: the one that has the fewest in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    DeadLetters,
    PublisherId,
    Key,
    Unwanted,
    UnwantedKind,
    Kind,
    All,
}

fn by(filter: &EventFilter) -> By {
    let any_kind = filter.topics.is_empty() && filter.types.is_empty();
    if filter.with_dead_letters {
        By::DeadLetters
    } else if filter.publisher_id.is_some() {
        By::PublisherId
    } else if filter.key.is_some() {
        By::Key
    } else if filter.unwanted {
        if any_kind { By::Unwanted } else { By::UnwantedKind }
    } else if any_kind {
        By::All
    } else {
        By::Kind
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

/// The kinds of events with a key that may be wanted; one more than [`KINDS_MAX`] when there are too many.
async fn kinds_of_key(
    client: &Object,
    tenant: TenantId,
    filter: &EventFilter,
) -> Outcome<Vec<i64>> {
    if !filter.topics.is_empty() && !filter.types.is_empty() {
        return kinds_of(client, tenant, filter).await;
    }
    let key = filter.key.as_ref().map(|key| key.as_str());
    let params: [Param<'_>; 3] = [&Uid::from(tenant), &key, &limit(KINDS_MAX + 1)];
    let mut found = read(&query(client, sql::EVENT_KEY_KINDS, &params).await?)?;
    if found.len() > KINDS_MAX {
        return Ok(found);
    }
    let topics: Vec<u32> = filter.topics.iter().map(|t| kinds::half(t.as_str())).collect();
    let types: Vec<u32> = filter.types.iter().map(|t| kinds::half(t.as_str())).collect();
    found.retain(|kind| {
        (topics.is_empty() || topics.contains(&kinds::topic_of(*kind)))
            && (types.is_empty() || types.contains(&kinds::type_of(*kind)))
    });
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
        match self.by {
            By::Key | By::Kind | By::UnwantedKind => self.kinds.len(),
            By::DeadLetters | By::PublisherId | By::Unwanted | By::All => 1,
        }
    }

    async fn look(&self, client: &Object, range: Range, each: i64) -> Outcome<Vec<Seen<EventId>>> {
        let (low, high) = (uid(range.low), uid(range.high));
        let key = self.filter.key.as_ref().map(|key| key.as_str());
        let publisher_id = self.filter.publisher_id.as_ref().map(|id| id.as_str());
        let mut params: Vec<Param<'_>> = vec![&self.tenant, &low, &high, &each];
        match self.by {
            By::Key => params.extend([&self.kinds as Param<'_>, &key]),
            By::PublisherId => params.push(&publisher_id),
            By::Kind | By::UnwantedKind => params.push(&self.kinds),
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

/// Plans: `event_kind`, `event_key`, `event_publisher_id`, `event_unwanted`, `event_unwanted_kind`,
/// `delivery_done_dead_event` or the primary key, each from its one end or the other.
fn list_sql(by: By, order: Order) -> String {
    let direction = direction(order);
    let (tenant, kind, bounds) = (("tenant", "$1"), ("kind", "w.kind"), ("$2", "$3"));
    let plain = |condition: &str| {
        format!("select 1 as stream, {COLUMNS} from event where {condition} $4::int8")
    };
    let of_tenant = |condition: &str| {
        plain(&format!(
            "tenant = $1 and id > $2 and id < $3{condition} order by id {direction} limit"
        ))
    };
    let of_each = |stream: &str| {
        format!(
            "select w.stream::int4 as stream, e.*
             from unnest($5::int8[]) with ordinality as w(kind, stream)
             cross join lateral (
                 select {COLUMNS} from event where {stream} $4::int8
             ) as e"
        )
    };
    match by {
        By::All => of_tenant(""),
        By::Unwanted => of_tenant(" and unwanted"),
        By::PublisherId => plain(&stream(&[tenant, ("publisher_id", "$5::text")], bounds, order)),
        By::Key => of_each(&stream(&[tenant, ("key", "$6::text"), kind], bounds, order)),
        By::Kind => of_each(&stream(&[tenant, kind], bounds, order)),
        By::UnwantedKind => {
            let stream = stream(&[tenant, kind], bounds, order);
            of_each(&format!("unwanted and {stream}"))
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
    let all = [
        By::All,
        By::Unwanted,
        By::UnwantedKind,
        By::Key,
        By::PublisherId,
        By::Kind,
        By::DeadLetters,
    ];
    all.into_iter()
        .map(|by| (format!("list of events {by:?} {order:?}"), list_sql(by, order)))
        .collect()
}
