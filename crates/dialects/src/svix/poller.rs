//! Polling: the messages of an application in the order of their commits, for programs that ask for them.
//!
//! What is read is the log itself, in an order in which nothing ever appears behind a reader, on whichever node it is read. An
//! iterator is a place in it: whoever goes on with the one of the answer before misses nothing and gets nothing twice. Most of the
//! log is of others, so a page may be empty and still not the last.
//!
//! A consumer is a place that is kept here, as a label of its polling endpoint. It is moved when a client comes with the iterator of
//! a page: so it has that page. One that starts anew comes without, and gets again what it did not confirm.

use std::collections::{BTreeMap, HashMap};

use http::StatusCode;
use posthorn_domain::filter::Candidate;
use posthorn_domain::{
    Event, EventId, EventType, Filter, Labels, Span, Subscription, SubscriptionId, Tenant,
    TenantId, Timestamp,
};
use posthorn_engine::{Error, SubscriptionChange};
use posthorn_store::{EventFilter, FollowAsk, LogPlace};
use serde_json::{Value, json};

use super::body::Given;
use super::call::{Answer, Call, ok};
use super::endpoint::{self, ATTRIBUTE_PREFIX, Kind, TRIES};
use super::failure::{Failure, VALUE};
use super::message;
use super::page::Paging;

/// Questions to the store for one page; each looks at a bounded part of the log.
const LOOKS_MAX: usize = 4;
/// Payloads of one page come to about this many bytes at most.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// How far times in the log may be out of order: clocks of nodes differ, and a commit takes a while.
const DISORDER: Span = Span::from_secs(60);
/// What stands before the name of a consumer in the label with its place.
const CONSUMER: &str = "svix.consumer.";
/// The longest name of a consumer.
const CONSUMER_BYTES_MAX: usize = 40;

/// Where a reader stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    place: LogPlace,
    /// Messages of up to this time are passed over.
    after: Option<Timestamp>,
    /// Whether the page that led here had messages: if not, there is nothing to confirm.
    confirms: bool,
}

impl Position {
    fn write(self) -> String {
        let Self { place: LogPlace { commit, row }, after, confirms } = self;
        let after = after.map(|at| format!("-{}", at.as_millis())).unwrap_or_default();
        let mark = if confirms { "c" } else { "p" };
        format!("{mark}_{commit:016x}{row:032x}{after}")
    }

    fn read(text: &str) -> Option<Self> {
        let (mark, rest) = text.split_once('_')?;
        let confirms = match mark {
            "c" => true,
            "p" => false,
            _ => return None,
        };
        let (place, after) = match rest.split_once('-') {
            Some((place, after)) => (place, Some(Timestamp::from_millis(after.parse().ok()?))),
            None => (rest, None),
        };
        let whole = place.len() == 48 && place.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (commit, row) = place.split_at_checked(16).filter(|_| whole)?;
        let commit = u64::from_str_radix(commit, 16).ok()?;
        let row = u128::from_str_radix(row, 16).ok()?;
        Some(Self { place: LogPlace { commit, row }, after, confirms })
    }
}

/// What a reader wants.
struct Wanted {
    /// What its polling endpoint wants.
    filter: Filter,
    /// What it asks for besides.
    besides: EventFilter,
}

/// What a polling endpoint wants, as others want messages.
pub(super) fn filter(call: &Call, own: &Subscription) -> Filter {
    endpoint::wanted(call, own).filter(&call.service.options.topic)
}

struct Page {
    events: Vec<Event>,
    position: Position,
    done: bool,
}

impl Page {
    fn show(&self) -> Value {
        let data: Vec<Value> = self.events.iter().map(|own| message::view(own, true)).collect();
        json!({"data": data, "iterator": self.position.write(), "done": self.done})
    }
}

/// The next messages from a position on.
async fn read(
    call: &Call,
    tenant: &Tenant,
    wanted: &Wanted,
    from: Position,
    limit: usize,
) -> Result<Page, Failure> {
    let store = call.service.engine.store();
    // Nothing of an application is older than itself.
    let since = from.after.map_or(tenant.created_at, |after| after.max(tenant.created_at));
    let since = since.minus(DISORDER);
    let mut position = Position { confirms: false, ..from };
    let (mut ids, mut bytes, mut done) = (Vec::new(), 0, false);
    'looks: for _ in 0..LOOKS_MAX {
        let ask = FollowAsk {
            tenants: vec![tenant.id],
            after: Some(position.place),
            since: Some(since),
            limit,
        };
        let found = store.events_after(ask).await?;
        for line in found.items {
            let event = &line.item.event;
            let fits = from.after.is_none_or(|after| event.accepted_at > after)
                && wanted.besides.wants(event)
                && wanted.filter.wants(&Candidate::new(event));
            if fits {
                // The first one is given however large it is.
                let full = bytes + line.item.payload_bytes > PAGE_BYTES_MAX && !ids.is_empty();
                if full || ids.len() >= limit {
                    break 'looks;
                }
                bytes += line.item.payload_bytes;
                ids.push(event.id);
            }
            position.place = line.place;
        }
        position.place = position.place.max(found.last);
        if !found.more {
            done = true;
            break;
        }
        if ids.len() >= limit {
            break;
        }
    }
    position.confirms = !ids.is_empty();
    Ok(Page { events: whole(call, tenant.id, ids).await?, position, done })
}

/// Events with their payloads, in this order. What was removed meanwhile is left out.
async fn whole(call: &Call, tenant: TenantId, ids: Vec<EventId>) -> Result<Vec<Event>, Failure> {
    let found = call.service.engine.store().events_by_id(tenant, ids.clone()).await?;
    let mut found: HashMap<EventId, Event> =
        found.into_iter().map(|event| (event.id, event)).collect();
    Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
}

/// A polling endpoint that a request names, with its application.
fn find(call: &Call, app: &str, sink: &str) -> Result<(Tenant, Subscription), Failure> {
    let tenant = call.application(app)?;
    let own = call.destination(tenant.id, sink)?.subscription.clone();
    if Kind::of(&own) != Kind::Polling {
        return Err(Failure::NotFound);
    }
    Ok((tenant, own))
}

/// The iterator of a request. One that cannot be read is refused: it would begin anew and repeat everything.
fn given(call: &Call) -> Result<Option<Position>, Failure> {
    let refuse = || Failure::at(&["query", "iterator"], "is not one of this list", VALUE);
    let text = call.query.text("iterator");
    text.map(|text| Position::read(text).ok_or_else(refuse)).transpose()
}

async fn answer(
    call: &Call,
    tenant: &Tenant,
    own: &Subscription,
    besides: EventFilter,
    from: Position,
) -> Answer {
    let limit = Paging::read(&call.query, true)?.limit;
    if !own.status.is_active() {
        // It waits until it is enabled again.
        return ok(&Page { events: Vec::new(), position: from, done: true }.show());
    }
    let wanted = Wanted { filter: filter(call, own), besides };
    ok(&read(call, tenant, &wanted, from, limit).await?.show())
}

/// `GET /app/{app}/poller/{sink}`: the client keeps its place.
pub(super) async fn poll(call: &Call, app: &str, sink: &str) -> Answer {
    let (tenant, own) = find(call, app, sink)?;
    let types = call.query.list("event_type");
    let types = types.iter().map(|name| {
        EventType::new(name)
            .map_err(|error| Failure::at(&["query", "event_type"], error.to_string(), VALUE))
    });
    let channel = call.query.text("channel");
    let channel = channel.map(|own| (format!("{ATTRIBUTE_PREFIX}{own}"), "1".to_owned()));
    let besides = EventFilter {
        types: types.collect::<Result<_, _>>()?,
        attributes: channel.into_iter().collect(),
        ..EventFilter::default()
    };
    let mut from = given(call)?.unwrap_or_default();
    from.after = call.query.time("after")?.or(from.after);
    answer(call, &tenant, &own, besides, from).await
}

/// The label that keeps a consumer's place.
fn label(consumer: &str) -> Result<String, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if consumer.is_empty() || consumer.len() > CONSUMER_BYTES_MAX || !consumer.chars().all(plain) {
        let problem = format!("must be 1 to {CONSUMER_BYTES_MAX} characters of A-Z a-z 0-9 - _ .");
        return Err(Failure::at(&["path", "consumer_id"], problem, VALUE));
    }
    Ok(format!("{CONSUMER}{consumer}"))
}

/// `GET /app/{app}/poller/{sink}/consumer/{consumer}`: its place is kept here.
pub(super) async fn consume(call: &Call, app: &str, sink: &str, consumer: &str) -> Answer {
    let (tenant, own) = find(call, app, sink)?;
    let label = label(consumer)?;
    let kept = own.labels.get(&label).and_then(Position::read);
    let from = match given(call)? {
        Some(given) => {
            let moves = kept.is_none_or(|kept| given.place > kept.place);
            if given.confirms && moves {
                keep(call, tenant.id, own.id, &label, given, false).await?;
            }
            given
        }
        None => kept.unwrap_or_default(),
    };
    answer(call, &tenant, &own, EventFilter::default(), from).await
}

/// `POST …/consumer/{consumer}/seek`: from the first message after a time on.
pub(super) async fn seek(mut call: Call, app: &str, sink: &str, consumer: &str) -> Answer {
    let (tenant, own) = find(&call, app, sink)?;
    let label = label(consumer)?;
    let mut body = call.object(tenant.id).await?;
    let after = match body.time("after") {
        Given::Some(after) => Some(after),
        _ => {
            body.refuse("after", "field required");
            None
        }
    };
    body.done()?;
    let position = Position { after, ..Position::default() };
    keep(&call, tenant.id, own.id, &label, position, true).await?;
    ok(&json!({"iterator": position.write()}))
}

/// Keeps a consumer's place. It moves back only where that is asked for.
async fn keep(
    call: &Call,
    tenant: TenantId,
    id: SubscriptionId,
    label: &str,
    position: Position,
    back: bool,
) -> Result<(), Failure> {
    let engine = &call.service.engine;
    for _ in 0..TRIES {
        let view = engine.catalog().subscription(tenant, id)?;
        let own = &view.subscription;
        let kept = own.labels.get(label).and_then(Position::read);
        if !back && kept.is_some_and(|kept| kept.place >= position.place) {
            return Ok(());
        }
        let mut labels: BTreeMap<String, String> = own.labels.clone().into();
        labels.insert(label.to_owned(), Position { confirms: false, ..position }.write());
        let labels = Labels::new(labels)
            .map_err(|error| Failure::bad_request("limit_reached", error.to_string()))?;
        let change = SubscriptionChange {
            labels: Some(labels),
            expected: Some(own.version),
            ..SubscriptionChange::default()
        };
        match engine.update_subscription(tenant, id, change).await {
            Ok(_) => return Ok(()),
            Err(Error::Changed { .. }) => engine.refresh_catalog().await?,
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::Refused {
        status: StatusCode::CONFLICT,
        code: "conflict",
        detail: "The place of the consumer is being changed by others; try again.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_come_back_as_iterators() {
        let place = LogPlace { commit: 7, row: u128::MAX - 1 };
        for after in [None, Some(Timestamp::from_millis(1_790_000_000_123))] {
            for confirms in [true, false] {
                let position = Position { place, after, confirms };
                assert_eq!(Position::read(&position.write()), Some(position));
            }
        }
    }

    #[test]
    fn what_is_no_iterator_is_not_read_as_the_beginning() {
        let zeros = "0".repeat(48);
        assert_eq!(Position::read(&format!("p_{zeros}")), Some(Position::default()));
        for text in
            ["", "p_", "it_00", &zeros, &format!("x_{zeros}"), &format!("p_+{}", &zeros[1..])]
        {
            assert_eq!(Position::read(text), None, "{text}");
        }
        assert_eq!(Position::read(&format!("p_{zeros}-soon")), None);
    }
}
