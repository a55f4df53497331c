//! Questions about the past and the present.

use std::collections::BTreeMap;

use posthorn_domain::{
    Attempt, DeliveryState, Event, EventId, EventType, IdempotencyKey, LaneKey, OutcomeFilter,
    Period, RedriveId, Span, StateKind, SubscriptionId, Timestamp, TopicName,
};

/// In which order a list comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The last that came first.
    #[default]
    NewestFirst,
    /// The first that came first.
    OldestFirst,
}

impl Order {
    /// The other one.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::NewestFirst => Self::OldestFirst,
            Self::OldestFirst => Self::NewestFirst,
        }
    }
}

/// Where an item stands in a list. Only the store that gave it out knows what it means; every value is
/// allowed, and at worst is the place of nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub u128);

/// Which part of a list.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    /// In which order.
    pub order: Order,
    /// Only what comes after this place, in that order.
    pub after: Option<Place>,
    /// At most so many.
    pub limit: usize,
}

impl Listing {
    /// The newest ones.
    pub const fn newest(limit: usize) -> Self {
        Self { order: Order::NewestFirst, after: None, limit }
    }
}

/// Which events to list. What is empty or absent does not matter.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only on one of these topics.
    pub topics: Vec<TopicName>,
    /// Only of one of these types.
    pub types: Vec<EventType>,
    /// Only with all of these attributes. They are in no index: such a list may stop before it is full
    /// ([`Page::scanned_until`]).
    pub attributes: BTreeMap<String, String>,
    /// Only with this key.
    pub key: Option<LaneKey>,
    /// Only what its publisher called so.
    pub publisher_id: Option<IdempotencyKey>,
    /// Only accepted in this period.
    pub accepted: Period,
    /// Only this event and those that come after it in the order of the list. When it is not there, those that would:
    /// by ids.
    pub from_event: Option<EventId>,
    /// Only those with a dead letter.
    pub with_dead_letters: bool,
    /// Only those that nobody wanted.
    pub unwanted: bool,
}

impl EventFilter {
    /// Whether an event is meant, as far as the event itself tells.
    pub fn wants(&self, event: &Event) -> bool {
        let any_of = |empty: bool, found: bool| empty || found;
        any_of(self.topics.is_empty(), self.topics.contains(&event.topic))
            && any_of(self.types.is_empty(), self.types.contains(&event.event_type))
            && self.attributes.iter().all(|(name, value)| event.attributes.get(name) == Some(value))
            && (self.key.is_none() || self.key == event.key)
            && (self.publisher_id.is_none() || self.publisher_id == event.publisher_id)
            && self.accepted.contains(event.accepted_at)
    }
}

/// Which attempts to list, of all deliveries of a tenant. What is absent does not matter.
#[derive(Clone, Debug, Default)]
pub struct AttemptFilter {
    /// Only of this event.
    pub event: Option<EventId>,
    /// Only to this subscription.
    pub subscription: Option<SubscriptionId>,
    /// Only what came to this.
    pub outcome: Option<OutcomeFilter>,
    /// Only those that somebody asked for (`true`), or that a schedule made (`false`).
    pub manual: Option<bool>,
    /// Only begun in this period.
    pub started: Period,
}

impl AttemptFilter {
    /// Whether an attempt is meant.
    pub fn wants(&self, line: &AttemptLine) -> bool {
        let attempt = &line.attempt;
        let outcome = match (&self.outcome, attempt.came_of_it()) {
            (None, _) => true,
            (Some(filter), Some(outcome)) => filter.wants(outcome),
            (Some(_), None) => false,
        };
        outcome
            && self.event.is_none_or(|event| event == line.event)
            && self.subscription.is_none_or(|wanted| wanted == line.subscription)
            && self.manual.is_none_or(|manual| manual == attempt.manual)
            && self.started.contains(attempt.started_at)
    }
}

/// An attempt in a list over many deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptLine {
    /// The attempt.
    pub attempt: Attempt,
    /// Of which event.
    pub event: EventId,
    /// To which subscription.
    pub subscription: SubscriptionId,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, in the order that was asked for.
    pub items: Vec<T>,
    /// The place of each item.
    pub places: Vec<Place>,
    /// The place of the first item.
    pub first: Option<Place>,
    /// The place after which the list goes on: of the last item, or where the search stopped.
    pub last: Option<Place>,
    /// Whether more may follow.
    pub more: bool,
    /// Set when the search stopped before the page was full, since it had looked at as much as one question
    /// may: everything up to this time was looked at.
    pub scanned_until: Option<Timestamp>,
    /// How many rows were looked at, about: the items, and what is not meant.
    pub looked: usize,
}

impl<T> Page<T> {
    /// Nothing at all.
    pub const fn empty() -> Self {
        Self {
            items: Vec::new(),
            places: Vec::new(),
            first: None,
            last: None,
            more: false,
            scanned_until: None,
            looked: 0,
        }
    }

    /// The same page of something else.
    pub fn map<U>(self, of: impl FnMut(T) -> U) -> Page<U> {
        let Self { items, places, first, last, more, scanned_until, looked } = self;
        let items = items.into_iter().map(of).collect();
        Page { items, places, first, last, more, scanned_until, looked }
    }

    /// A page of what was found without looking at anything else.
    pub fn of(items: Vec<T>, place: impl Fn(&T) -> Place, more: bool) -> Self {
        let places: Vec<Place> = items.iter().map(place).collect();
        let (first, last, looked) = (places.first().copied(), places.last().copied(), items.len());
        Self { items, places, first, last, more, scanned_until: None, looked }
    }
}

/// Which redrives of a list.
#[derive(Clone, Copy, Debug)]
pub struct RedrivePage {
    /// Only those older than this one.
    pub before: Option<RedriveId>,
    /// At most so many.
    pub limit: usize,
}

/// How many there are. `accepted = pending + delivered + dead + cancelled`, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Events in the store.
    pub events: u64,
    /// Deliveries not ended.
    pub pending: u64,
    /// Delivered.
    pub delivered: u64,
    /// Dead letters.
    pub dead: u64,
    /// Cancelled; deliveries of deleted subscriptions count here even before they are swept.
    pub cancelled: u64,
}

impl Counts {
    /// All deliveries.
    pub const fn deliveries(&self) -> u64 {
        self.pending + self.delivered + self.dead + self.cancelled
    }
}

/// What became of an event's deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EventTally {
    /// Not ended.
    pub pending: u64,
    /// Delivered.
    pub delivered: u64,
    /// Dead letters.
    pub dead: u64,
    /// Cancelled; those of deleted subscriptions count here even before they are swept.
    pub cancelled: u64,
    /// Whether it has more deliveries than were looked at.
    pub more: bool,
}

impl EventTally {
    /// Counts so many more in a state.
    pub fn add(&mut self, state: DeliveryState, count: u64) {
        let kind = match StateKind::of(state) {
            StateKind::Pending | StateKind::InFlight => &mut self.pending,
            StateKind::Delivered => &mut self.delivered,
            StateKind::Dead => &mut self.dead,
            StateKind::Cancelled => &mut self.cancelled,
        };
        *kind += count;
    }
}

/// What may be removed.
#[derive(Clone, Copy, Debug)]
pub struct Prune {
    /// What time it is, for events with a retention of their own.
    pub now: Timestamp,
    /// Events all of whose deliveries ended before this (events without deliveries: accepted, or to be
    /// delivered, before).
    pub ended_before: Timestamp,
    /// Dead letters must also have ended before this.
    pub dead_before: Timestamp,
    /// Idempotency keys of events accepted before this.
    pub keys_before: Timestamp,
    /// Recalls that were written before this.
    pub recalls_before: Timestamp,
    /// Lines of the audit log that were written before this.
    pub audit_before: Timestamp,
    /// At most so many events in one go.
    pub limit: usize,
}

impl Prune {
    /// When to look again at an event whose retention was over at `expired` and that cannot go yet: the
    /// longer it is over, the later. So those that must stay for long are seldom looked at.
    pub fn look_again(&self, expired: Timestamp) -> Timestamp {
        let quarter = Span::from_millis(self.now.since(expired).as_millis() / 4);
        self.now.plus(quarter.clamp(Span::from_secs(60), Span::from_secs(3_600)))
    }
}

/// What was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Events, with their deliveries and attempts.
    pub events: usize,
    /// Idempotency keys.
    pub keys: usize,
    /// Redrives that ended before `ended_before`.
    pub redrives: usize,
    /// Lines of the audit log.
    pub audit: usize,
    /// Whether there may be more.
    pub more: bool,
}
