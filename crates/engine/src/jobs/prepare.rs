//! What the next bite of a job does: which part of the history it looks at, and what of it is wanted.
//!
//! # Theory of operation
//! A bite has room for so many looks, so many deeds, and so many deliveries that its events have: the store goes
//! through those, in a transaction that others wait for. It begins with as many rows as it may do something with. When
//! hardly any of them is wanted, it looks at more and more at once, until it is full: so a slow job makes no commit for
//! each event that it passes over.
//!
//! Whether an event is wanted is decided as for a publish: what may take long is done aside, within the tenant's share of
//! the time. Jobs of others do not wait for that: when it is not the tenant's turn, the bite ends before that event.
//!
//! # What it must not know
//! Whose turn it is, and what becomes of a bite.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use posthorn_domain::delivery::Wish;
use posthorn_domain::filter::{Candidate, Matching};
use posthorn_domain::{
    Delivery, DeliveryId, Event, EventId, Filter, Job, JobWork, ReplayStatus, Selection,
    SubscriptionId, TenantId,
};
use posthorn_store::{
    DeliveryFilter, EventFilter, EventLine, Expunges, Listing, Moves, Order, Page, Period, Place,
    Redelivery, Result as StoreResult, StateKind,
};
use tokio::time::Instant;
use tracing::warn;

use super::Jobs;
use crate::catalog::SubscriptionView;
use crate::error::{Error, chain};
use crate::matching::{self, Matcher, Slice};
use crate::quotas::Quotas;

/// Rows that one bite looks at; more only when an index does not serve what is asked for.
pub(crate) const BITE: usize = 200;
/// Deliveries that one bite cancels, forgets or tries again: each takes a store several steps, in a transaction that others wait for.
const MOVES_MAX: usize = 50;
/// Deliveries that the events of one bite may have, all together.
const LISTED_MAX: usize = 5_000;

/// How much a bite may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Rows it may look at.
    pub(crate) looks: usize,
    /// Deliveries it may make, try again, cancel or forget, or events it may expunge.
    pub(crate) deeds: usize,
    /// Deliveries that its events may have, all together. One event alone may have more.
    pub(crate) listed: usize,
}

impl Room {
    /// As much as a bite may be at most.
    pub(crate) const WHOLE: Self = Self { looks: BITE, deeds: BITE, listed: LISTED_MAX };

    /// The same, halved so many times. There is always room for one.
    pub(crate) fn halved(self, times: u32) -> Self {
        let half = |room: usize| room.checked_shr(times).unwrap_or(0).max(1);
        Self { looks: half(self.looks), deeds: half(self.deeds), listed: half(self.listed) }
    }
}

/// How long a bite waits when it is not its tenant's turn to match what is costly.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all: others would wait, too.
    None,
    /// Until then.
    Until(Instant),
}

/// What one part of the history leads to.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    pub(crate) deeds: Vec<Redelivery>,
    pub(crate) expunges: Option<Expunges>,
    pub(crate) moves: Option<Moves>,
    /// About how many rows of a tenant that is being deleted go.
    pub(crate) removes: Option<usize>,
    /// Events or deliveries that were chosen.
    pub(crate) seen: usize,
    /// Rows that were looked at for it.
    pub(crate) looked: usize,
    /// Up to where.
    pub(crate) last: Option<Place>,
    pub(crate) more: bool,
    /// Whether it ended because it was not the tenant's turn.
    pub(crate) waits: bool,
    /// Deliveries that the events have.
    listed: usize,
    is_full: bool,
}

impl Prepared {
    /// How much it changes at most.
    pub(crate) fn wanted(&self) -> usize {
        let expunged = self.expunges.as_ref().map_or(0, |expunges| expunges.events.len());
        let moved = self.moves.as_ref().map_or(0, |moves| moves.deliveries.len());
        self.deeds.len() + expunged + moved
    }

    /// Adds what was decided of the first rows of a page.
    fn add(&mut self, page: &Looked, decided: Vec<Option<Deed>>) {
        self.seen += decided.len();
        self.looked += page.looked;
        self.waits = page.waits;
        if decided.len() == page.places.len() {
            (self.last, self.more) = (page.last.or(self.last), page.more);
        } else {
            let last = decided.len().checked_sub(1).and_then(|at| page.places.get(at));
            (self.last, self.more, self.is_full) = (last.copied().or(self.last), true, true);
        }
        for deed in decided.into_iter().flatten() {
            match deed {
                Deed::Deliver(redelivery) => self.deeds.push(redelivery),
                Deed::Expunge(event) => {
                    self.expunges.get_or_insert_default().events.push(event);
                }
                Deed::Move(delivery, _) => {
                    if let Some(moves) = &mut self.moves {
                        moves.deliveries.push(delivery);
                    }
                }
            }
        }
    }
}

/// What is to be done about one row.
#[derive(Debug)]
enum Deed {
    Deliver(Redelivery),
    Expunge(EventId),
    Move(DeliveryId, EventId),
}

impl Deed {
    fn event(&self) -> EventId {
        match self {
            Self::Deliver(redelivery) => redelivery.event,
            Self::Expunge(event) | Self::Move(_, event) => *event,
        }
    }
}

/// What a page says besides its items.
struct Looked {
    places: Vec<Place>,
    last: Option<Place>,
    more: bool,
    looked: usize,
    waits: bool,
}

impl Looked {
    fn of<T>(page: &Page<T>) -> Self {
        let Page { last, more, looked, .. } = *page;
        Self { places: page.places.clone(), last, more, looked, waits: false }
    }
}

/// Whether something is wanted.
enum Decision {
    Yes,
    No,
    /// Nobody knows: it is not the tenant's turn.
    NotNow,
}

impl From<bool> for Decision {
    fn from(wanted: bool) -> Self {
        if wanted { Self::Yes } else { Self::No }
    }
}

impl Jobs {
    /// What the next part of the history leads to; `Err` when the job can never go on.
    pub(crate) async fn prepare(
        &self,
        job: &Job,
        after: Option<Place>,
        mut room: Room,
        patience: Patience,
    ) -> StoreResult<Result<Prepared, &'static str>> {
        let mut all = Prepared { last: after, more: true, ..Prepared::default() };
        let view = match &job.work {
            // Which rows is the store's affair, and when there are none left.
            JobWork::DeleteTenant => {
                let removes = Some(room.looks.min(room.deeds));
                return Ok(Ok(Prepared { removes, ..all }));
            }
            JobWork::Deliver { event, subscription, .. } => {
                return self.single(job.tenant, (*event, *subscription), after).await;
            }
            JobWork::Expunge { responses, .. } => {
                all.expunges = Some(Expunges { events: Vec::new(), responses: *responses });
                None
            }
            JobWork::Cancel { .. } | JobWork::Forget { .. } | JobWork::Retry { .. } => {
                let chosen = job.work.moves();
                let moves = |(wish, filter): (Wish, &DeliveryFilter)| Moves {
                    wish,
                    filter: filter.clone(),
                    deliveries: Vec::new(),
                };
                all.moves = chosen.map(moves);
                room.deeds = room.deeds.min(MOVES_MAX);
                None
            }
            JobWork::Replay { subscription: None, .. } => None,
            JobWork::Replay { subscription: Some(id), .. } => {
                let Some(view) = self.view(job.tenant, *id).await? else {
                    return Ok(Err("the subscription was deleted"));
                };
                Some(view)
            }
        };
        let mut limit = room.looks.min(room.deeds).max(1);
        loop {
            let listing = Listing { order: Order::OldestFirst, after: all.last, limit };
            let deeds = room.deeds - all.wanted().min(room.deeds);
            let way = Way { view: view.as_ref(), listing, deeds, patience };
            let (page, mut decided) = self.look(job, way).await?;
            let (fits, listed) = self.fitting(job.tenant, &decided, room, &all).await?;
            decided.truncate(fits);
            all.listed += listed;
            all.add(&page, decided);
            let full = all.is_full
                || all.looked >= room.looks
                || all.wanted() >= room.deeds
                || all.listed >= room.listed;
            if full || !all.more {
                return Ok(Ok(all));
            }
            limit = (2 * limit).min(room.looks - all.looked);
        }
    }

    /// One event to one subscription. Done once: whoever comes after it only ends the job.
    async fn single(
        &self,
        tenant: TenantId,
        (event, subscription): (EventId, SubscriptionId),
        after: Option<Place>,
    ) -> StoreResult<Result<Prepared, &'static str>> {
        let found = self.store.event(tenant, event).await?;
        let view = self.view(tenant, subscription).await?;
        let (Some(event), Some(view)) = (found, view) else {
            return Ok(Err("the event or the subscription is gone"));
        };
        if event.expunged_at.is_some() {
            return Ok(Err("the payload of the event was removed"));
        }
        let (deeds, seen) = match after {
            None => (vec![self.redelivery(&event, &view, ReplayStatus::All)], 1),
            Some(_) => (Vec::new(), 0),
        };
        let last = Some(Place(0));
        Ok(Ok(Prepared { deeds, seen, looked: 1, last, ..Prepared::default() }))
    }

    /// Looks at the next rows of a job, and decides about them one by one, as long as more may be done.
    async fn look(&self, job: &Job, way: Way<'_>) -> StoreResult<(Looked, Vec<Option<Deed>>)> {
        match &job.work {
            JobWork::Deliver { .. } | JobWork::DeleteTenant => {
                Ok((Looked::of(&Page::<Event>::empty()), Vec::new()))
            }
            JobWork::Expunge { events, responses } => {
                let filter = filter_of(events);
                let page = self.store.event_lines(job.tenant, filter, way.listing).await?;
                // What has no payload any more may still have answers.
                let wanted = |event: &Event| event.expunged_at.is_none() || *responses;
                let deed = |EventLine { event, .. }: &EventLine| {
                    wanted(event).then_some(Deed::Expunge(event.id))
                };
                Ok((Looked::of(&page), page.items.iter().map(deed).collect()))
            }
            JobWork::Cancel { deliveries } | JobWork::Forget { deliveries } => {
                let page =
                    self.store.deliveries(job.tenant, deliveries.clone(), way.listing).await?;
                let deeds = page.items.iter().take(way.deeds);
                let decided = deeds.map(|found| Some(Deed::Move(found.id, found.event)));
                Ok((Looked::of(&page), decided.collect()))
            }
            // Places do not change, and the job stands behind each that it has tried: so none is tried twice, however often
            // it fails meanwhile.
            JobWork::Retry { deliveries } => {
                let page =
                    self.store.deliveries(job.tenant, deliveries.clone(), way.listing).await?;
                let whose = page.items.iter().map(|delivery| delivery.subscription).collect();
                let views = self.views(job.tenant, whose).await?;
                let (mut decided, mut wanted) = (Vec::new(), 0);
                for found in &page.items {
                    if wanted == way.deeds {
                        break;
                    }
                    // To somebody who is gone nothing is sent.
                    let is_there = views.contains_key(&found.subscription);
                    wanted += usize::from(is_there);
                    decided.push(is_there.then_some(Deed::Move(found.id, found.event)));
                }
                Ok((Looked::of(&page), decided))
            }
            JobWork::Replay { subscription, events, status, .. } => match (way.view, status) {
                (Some(view), ReplayStatus::All | ReplayStatus::Missed) => {
                    self.look_at_events(job.tenant, view, events, *status, way).await
                }
                _ => self.look_at_deliveries(job.tenant, *subscription, events, *status, way).await,
            },
        }
    }

    /// What of the events a subscription wants.
    async fn look_at_events(
        &self,
        tenant: TenantId,
        view: &Arc<SubscriptionView>,
        events: &Selection,
        status: ReplayStatus,
        way: Way<'_>,
    ) -> StoreResult<(Looked, Vec<Option<Deed>>)> {
        let page = self.store.events(tenant, filter_of(events), way.listing).await?;
        let mut looked = Looked::of(&page);
        let (mut decided, mut slice, mut wanted) = (Vec::new(), Slice::default(), 0);
        for event in page.items {
            if wanted == way.deeds {
                break;
            }
            let event = Arc::new(event);
            let filter = events.filter.as_ref();
            decided.push(match self.meets(&event, filter, Some(view), &way, &mut slice).await {
                Decision::Yes => {
                    wanted += 1;
                    Some(Deed::Deliver(self.redelivery(&event, view, status)))
                }
                Decision::No => None,
                Decision::NotNow => {
                    looked.waits = true;
                    break;
                }
            });
        }
        if crate::plant::active("replay-skips")
            && let Some(last) = decided.iter_mut().rfind(|deed| deed.is_some())
        {
            *last = None;
        }
        Ok((looked, decided))
    }

    /// Deliveries that ended as a status says. Of what a subscription got, its filter of today is not asked.
    async fn look_at_deliveries(
        &self,
        tenant: TenantId,
        subscription: Option<SubscriptionId>,
        events: &Selection,
        status: ReplayStatus,
        way: Way<'_>,
    ) -> StoreResult<(Looked, Vec<Option<Deed>>)> {
        let state = match status {
            ReplayStatus::Delivered => StateKind::Delivered,
            _ => StateKind::Dead,
        };
        let created = Period { from: events.from, until: events.until };
        let state = Some(state);
        let filter = DeliveryFilter { subscription, state, created, ..DeliveryFilter::default() };
        let page = self.store.deliveries(tenant, filter, way.listing).await?;
        let ids: BTreeSet<EventId> = page.items.iter().map(|delivery| delivery.event).collect();
        let found = self.store.events_by_id(tenant, ids.into_iter().collect()).await?;
        let found: HashMap<EventId, Arc<Event>> =
            found.into_iter().map(|event| (event.id, Arc::new(event))).collect();
        let whose = page.items.iter().map(|delivery| delivery.subscription).collect();
        let views = self.views(tenant, whose).await?;
        let mut looked = Looked::of(&page);
        let (mut decided, mut slice, mut wanted) = (Vec::new(), Slice::default(), 0);
        let (plain, mut chosen) = (filter_of(events), HashMap::new());
        for Delivery { event, subscription, .. } in page.items {
            if wanted == way.deeds {
                break;
            }
            let (Some(event), Some(view)) = (found.get(&event), views.get(&subscription)) else {
                decided.push(None);
                continue;
            };
            let is_chosen = match chosen.get(&event.id) {
                Some(known) => *known,
                None if !plain.wants(event) => false,
                None => {
                    match self.meets(event, events.filter.as_ref(), None, &way, &mut slice).await {
                        Decision::Yes => true,
                        Decision::No => false,
                        Decision::NotNow => {
                            looked.waits = true;
                            break;
                        }
                    }
                }
            };
            chosen.insert(event.id, is_chosen);
            wanted += usize::from(is_chosen);
            let deed = || Deed::Deliver(self.redelivery(event, view, status));
            decided.push(is_chosen.then(deed));
        }
        Ok((looked, decided))
    }

    /// Whether an event is what a filter wants, and for a subscription. One that costs too much is not delivered to
    /// anybody when it is published; so it is here.
    async fn meets(
        &self,
        event: &Arc<Event>,
        filter: Option<&Filter>,
        view: Option<&Arc<SubscriptionView>>,
        way: &Way<'_>,
        slice: &mut Slice,
    ) -> Decision {
        // Nobody can be sent what is not there.
        if event.expunged_at.is_some() {
            return Decision::No;
        }
        let bytes = event.payload.len();
        let cost = view.map_or(0, |view| view.cost.of(bytes));
        let cost = cost.saturating_add(filter.map_or(0, |filter| filter.cost().of(bytes)));
        if !Matcher::is_long(cost) {
            slice.spend(cost).await;
            return is_meant(event, filter, view, &self.quotas).1.into();
        }
        let (of, quotas) = (Arc::clone(event), Arc::clone(&self.quotas));
        let (filter, view) = (filter.cloned(), view.cloned());
        let work = move || is_meant(&of, filter.as_ref(), view.as_ref(), &quotas);
        let decided = match way.patience {
            Patience::None => self.matcher.aside_now(event.tenant, work).await,
            Patience::Until(end) if Instant::now() >= end => Ok(None),
            Patience::Until(_) => self.matcher.aside(event.tenant, work).await.map(Some),
        };
        match decided {
            Ok(Some(wanted)) => wanted.into(),
            Ok(None) | Err(Error::TooMany { .. }) => Decision::NotNow,
            Err(e) => {
                warn!(event = %event.id, error = %chain(&e), "an event could not be matched for a job");
                Decision::NotNow
            }
        }
    }

    /// How many of the rows fit into a bite by the deliveries of their events, and how many those are.
    async fn fitting(
        &self,
        tenant: TenantId,
        decided: &[Option<Deed>],
        room: Room,
        before: &Prepared,
    ) -> StoreResult<(usize, usize)> {
        let mut known = HashSet::new();
        let events = decided.iter().flatten().map(Deed::event);
        let events: Vec<EventId> = events.filter(|event| known.insert(*event)).collect();
        if events.is_empty() {
            return Ok((decided.len(), 0));
        }
        let counts = self.store.fan_outs(tenant, events.clone()).await?;
        let mut counts: HashMap<EventId, usize> = events.into_iter().zip(counts).collect();
        let (mut listed, mut is_first) = (0, before.wanted() == 0);
        for (at, deed) in decided.iter().enumerate() {
            // Each counts once.
            let Some(more) = deed.as_ref().and_then(|deed| counts.remove(&deed.event())) else {
                continue;
            };
            if !is_first && before.listed + listed + more > room.listed {
                return Ok((at, listed));
            }
            (listed, is_first) = (listed + more, false);
        }
        Ok((decided.len(), listed))
    }

    /// A subscription, unless it was deleted.
    async fn view(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
    ) -> StoreResult<Option<Arc<SubscriptionView>>> {
        Ok(self.views(tenant, BTreeSet::from([id])).await?.remove(&id))
    }

    /// Those of some subscriptions that were not deleted. The catalog of this node may be older than the job, which
    /// may have been written together with its subscription: only what it lacks when it is up to date is gone.
    async fn views(
        &self,
        tenant: TenantId,
        ids: BTreeSet<SubscriptionId>,
    ) -> StoreResult<HashMap<SubscriptionId, Arc<SubscriptionView>>> {
        let known = || {
            let view =
                |id: &SubscriptionId| Some((*id, self.catalog.subscription(tenant, *id).ok()?));
            ids.iter().filter_map(view).collect::<HashMap<_, _>>()
        };
        let found = known();
        if found.len() == ids.len() || crate::plant::active("job-trusts-old-catalog") {
            return Ok(found);
        }
        self.teller.refresh().await?;
        Ok(known())
    }

    fn redelivery(
        &self,
        event: &Event,
        view: &Arc<SubscriptionView>,
        status: ReplayStatus,
    ) -> Redelivery {
        let known = crate::request::EventLookup::new(event);
        Redelivery {
            event: event.id,
            subscription: view.subscription.id,
            id: self.chance.delivery_id(self.clock.now()),
            lane: view.lane(&known),
            status,
        }
    }
}

/// How one page is looked at.
#[derive(Clone, Copy)]
struct Way<'v> {
    view: Option<&'v Arc<SubscriptionView>>,
    listing: Listing,
    /// How much of it may be done.
    deeds: usize,
    patience: Patience,
}

/// Whether an event is what a filter wants, and for a subscription; and what it cost to find out.
fn is_meant(
    event: &Event,
    filter: Option<&Filter>,
    view: Option<&Arc<SubscriptionView>>,
    quotas: &Quotas,
) -> (u64, bool) {
    let mut cost = 0;
    if let Some(filter) = filter {
        let candidate = Candidate::metered(event, quotas.match_cost_per_event());
        let wants = Matching::new(&candidate).wants(filter);
        cost = candidate.meter().spent();
        if !wants || candidate.meter().is_spent() {
            return (cost, false);
        }
    }
    let Some(view) = view else { return (cost, true) };
    let (own, found) = matching::decide(event, [view], quotas);
    (cost.saturating_add(own), found.is_ok_and(|found| !found.is_empty()))
}

fn filter_of(selection: &Selection) -> EventFilter {
    EventFilter {
        topics: selection.topics.clone(),
        types: selection.types.clone(),
        attributes: selection.attributes.clone(),
        accepted: Period { from: selection.from, until: selection.until },
        from_event: selection.from_event,
        ..EventFilter::default()
    }
}
