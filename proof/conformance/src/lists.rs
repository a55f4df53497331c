//! Cases about lists of events, deliveries and attempts.
//!
//! What a filter means is written down in `posthorn_store`; what a store lists is compared with the model, which
//! takes those words as they are. A history that is longer than any page, and longer than what a store keeps
//! together, is gone through with every filter, in both directions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::delivery::Step;
use posthorn_domain::{
    Attempt, CancelReason, DeadReason, DeliveryId, DeliveryState, Event, EventId, EventType,
    FailureCode, LaneKey, SubscriptionId, TenantId, TopicName,
};

use super::Fixture;
use super::builders::{
    Setting, at, attempt, dead_skip, delivered, delivery, dropped, event, failed, idempotency,
};
use crate::model::ModelStore;
use crate::upgrade::Still;
use posthorn_store::{
    AttemptFilter, CatalogChange, DeliveryFilter, EventFilter, EventLine, Listing, NewEvent, Order,
    OutcomeFilter, Page, Period, Place, Record, StateKind, Store,
};

fn topic(text: &str) -> TopicName {
    TopicName::new(text).expect("a proper name")
}

fn kind(text: &str) -> EventType {
    EventType::new(text).expect("a proper type")
}

/// One question, whichever list it is for.
#[derive(Clone, Debug)]
enum Ask {
    Events(EventFilter),
    Deliveries(DeliveryFilter),
    Attempts(AttemptFilter),
}

impl Ask {
    /// A page, by what tells its items apart.
    async fn page(&self, store: &dyn Store, tenant: TenantId, listing: Listing) -> Page<String> {
        match self.clone() {
            Self::Events(filter) => {
                let page = store.events(tenant, filter.clone(), listing).await.expect("events");
                let names = named(&page, |event| event.id.to_string());
                let lines = store.event_lines(tenant, filter, listing).await.expect("lines");
                // An index that is written meanwhile is looked at less.
                let lines = Page { looked: page.looked, ..lines };
                assert_eq!(lines, page.map(EventLine::of), "{self:?}: the same without payloads");
                names
            }
            Self::Deliveries(filter) => {
                let page = store.deliveries(tenant, filter, listing).await.expect("deliveries");
                named(&page, |delivery| delivery.id.to_string())
            }
            Self::Attempts(filter) => {
                let page = store.attempts_made(tenant, filter, listing).await.expect("attempts");
                named(&page, |line| {
                    let made = &line.attempt;
                    format!("{} {} {}", made.started_at.as_millis(), made.delivery, made.number)
                })
            }
        }
    }

    /// Everything, or the first [`ENOUGH`], page by page.
    async fn all(
        &self,
        store: &dyn Store,
        tenant: TenantId,
        order: Order,
        limit: usize,
    ) -> Vec<String> {
        let mut listing = Listing { order, after: None, limit };
        let mut all = Vec::new();
        loop {
            let page = self.page(store, tenant, listing).await;
            assert!(page.items.len() <= limit, "{self:?}");
            assert_eq!(page.items.len(), page.places.len(), "{self:?}: each has its place");
            assert_eq!(page.first, page.places.first().copied(), "{self:?}");
            assert!(page.looked >= page.items.len(), "{self:?}: what is shown was looked at");
            assert!(!page.more || page.last.is_some(), "{self:?}: a list that goes on says where");
            all.extend(page.items);
            if !page.more || all.len() >= ENOUGH {
                all.truncate(ENOUGH);
                return all;
            }
            assert_ne!(page.last, listing.after, "{self:?}: each page gets on");
            listing.after = page.last;
        }
    }
}

impl Ask {
    /// Attempts of one batch that began in the same millisecond may stand in any order.
    fn settled(&self, items: Vec<String>) -> Vec<String> {
        if !matches!(self, Self::Attempts(_)) {
            return items;
        }
        let began = |item: &String| item.split(' ').next().map(str::to_owned);
        let mut moments: Vec<Vec<String>> =
            items.chunk_by(|a, b| began(a) == began(b)).map(<[String]>::to_vec).collect();
        if items.len() >= ENOUGH {
            assert!(moments.len() > 1, "one moment proves nothing");
            // It may go on behind what was asked for.
            moments.pop();
        }
        moments.iter_mut().for_each(|moment| moment.sort_unstable());
        moments.concat()
    }
}

fn named<T>(page: &Page<T>, name: impl Fn(&T) -> String) -> Page<String> {
    Page {
        items: page.items.iter().map(name).collect(),
        first: page.first,
        last: page.last,
        more: page.more,
        scanned_until: page.scanned_until,
        places: page.places.clone(),
        looked: page.looked,
    }
}

fn everything() -> [Ask; 3] {
    [
        Ask::Events(EventFilter::default()),
        Ask::Deliveries(DeliveryFilter::default()),
        Ask::Attempts(AttemptFilter::default()),
    ]
}

/// Newest or oldest first; `last` goes on, `more` tells, and from `first` one comes back.
pub async fn lists_go_both_ways(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    for number in 0..7 {
        let id = setting.publish_one(subscription).await;
        setting.record(id, delivered(), at(number)).await;
    }
    let (store, tenant) = (&*setting.store, setting.tenant);
    for ask in everything() {
        let newest = ask.all(store, tenant, Order::NewestFirst, 100).await;
        assert_eq!(newest.len(), 7, "{ask:?}");
        for limit in [1, 2, 3, 6, 7, 8] {
            assert_eq!(ask.all(store, tenant, Order::NewestFirst, limit).await, newest, "{ask:?}");
            let mut oldest = ask.all(store, tenant, Order::OldestFirst, limit).await;
            oldest.reverse();
            assert_eq!(oldest, newest, "{ask:?}");
        }
        let page =
            async |order, after| ask.page(store, tenant, Listing { order, after, limit: 3 }).await;
        let one = page(Order::NewestFirst, None).await;
        let two = page(Order::NewestFirst, one.last).await;
        assert_eq!((&two.items[..], two.more), (&newest[3..6], true), "{ask:?}");
        let mut back = page(Order::OldestFirst, two.first).await;
        back.items.reverse();
        assert_eq!((back.items, back.more), (one.items, false), "{ask:?}: back again");
        let three = page(Order::NewestFirst, two.last).await;
        assert_eq!((&three.items[..], three.more), (&newest[6..], false), "{ask:?}");
        let over = page(Order::NewestFirst, three.last).await;
        assert_eq!((over.items.len(), over.more, over.last), (0, false, None), "{ask:?}");
    }
}

const NOBODY: [usize; 0] = [];

/// By topics, types, attributes, key, the publisher's id, time, and by what became of them.
pub async fn events_can_be_filtered(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut ids: Vec<EventId> = Vec::new();
    for (place, (on, of, key)) in
        [("a", "x", None), ("a", "y", Some("k")), ("b", "x", Some("l")), ("c", "z", None)]
            .into_iter()
            .enumerate()
    {
        let attributes = BTreeMap::from([("place".to_owned(), (place % 2).to_string())]);
        let own = idempotency(&format!("own-{place}"), 1);
        let made = Event {
            topic: topic(on),
            event_type: kind(of),
            attributes,
            key: key.map(|key| LaneKey::new(key).expect("a key")),
            accepted_at: at(place as i64 * 10),
            publisher_id: Some(own.key.clone()),
            ..event(setting.tenant)
        };
        ids.push(made.id);
        let deliveries = if place < 2 { vec![delivery(subscription, None)] } else { vec![] };
        let planned = setting.planned(deliveries).await;
        let new = NewEvent { event: Arc::new(made), idempotency: Some(own), ..planned };
        let published = setting.accept(new).await;
        for id in published.deliveries {
            let step = if place == 0 { dead_skip() } else { delivered() };
            setting.record(id, step, at(50)).await;
        }
    }
    let list = async |filter: EventFilter| {
        let newest = Listing::newest(10);
        let page = setting.store.events(setting.tenant, filter, newest).await.expect("a page");
        let place = |event: &Event| ids.iter().position(|id| *id == event.id).expect("one of them");
        page.items.iter().map(place).collect::<Vec<_>>()
    };
    let filter = EventFilter::default;
    assert_eq!(list(EventFilter { topics: vec![topic("a")], ..filter() }).await, [1, 0]);
    let topics = vec![topic("a"), topic("c"), topic("a")];
    assert_eq!(list(EventFilter { topics, ..filter() }).await, [3, 1, 0]);
    let types = vec![kind("x"), kind("z")];
    assert_eq!(list(EventFilter { types: types.clone(), ..filter() }).await, [3, 2, 0]);
    let both = EventFilter { topics: vec![topic("b")], types, ..filter() };
    assert_eq!(list(both).await, [2]);
    let neither = EventFilter { topics: vec![topic("b")], types: vec![kind("y")], ..filter() };
    assert_eq!(list(neither).await, NOBODY);
    assert_eq!(list(EventFilter { types: vec![kind("nope")], ..filter() }).await, NOBODY);
    let attributes = BTreeMap::from([("place".to_owned(), "1".to_owned())]);
    assert_eq!(list(EventFilter { attributes, ..filter() }).await, [3, 1]);
    let attributes = BTreeMap::from([("other".to_owned(), "1".to_owned())]);
    assert_eq!(list(EventFilter { attributes, ..filter() }).await, NOBODY);
    let key = Some(LaneKey::new("l").expect("a key"));
    assert_eq!(list(EventFilter { key, ..filter() }).await, [2]);
    let publisher_id = Some(idempotency("own-3", 1).key);
    assert_eq!(list(EventFilter { publisher_id, ..filter() }).await, [3]);
    let accepted = Period { from: Some(at(10)), until: Some(at(30)) };
    assert_eq!(list(EventFilter { accepted, ..filter() }).await, [2, 1]);
    let accepted = Period { from: Some(at(30)), until: Some(at(10)) };
    assert_eq!(list(EventFilter { accepted, ..filter() }).await, NOBODY);
    assert_eq!(list(EventFilter { with_dead_letters: true, ..filter() }).await, [0]);
    assert_eq!(list(EventFilter { unwanted: true, ..filter() }).await, [3, 2]);
    let dead = EventFilter { with_dead_letters: true, types: vec![kind("y")], ..filter() };
    assert_eq!(list(dead).await, NOBODY);
    let whole = setting.store.event(setting.tenant, ids[3]).await.expect("a lookup").expect("it");
    assert_eq!(whole.publisher_id, Some(idempotency("own-3", 1).key));
}

/// By event, subscription, state, reason, outcome and time, alone and together.
pub async fn deliveries_can_be_filtered(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let first = setting.publish(&[(a, None), (b, None)]).await;
    let second = setting.publish(&[(a, None), (b, None)]).await;
    let [a1, b1] = first.deliveries[..] else { panic!("two deliveries") };
    let [a2, b2] = second.deliveries[..] else { panic!("two deliveries") };
    setting.record(a1, delivered(), at(1)).await;
    setting.record(b1, dead_skip(), at(1)).await;
    setting.record(a2, dropped(), at(1)).await;
    let mut report = setting.report(b2, failed(at(9)), at(1)).await;
    let failure = Some(FailureCode::ConnectTimeout);
    report.attempt = Some(Attempt { status: None, failure, ..attempt(b2, 1, 0) });
    setting.record_one(report).await;
    let list = async |filter: DeliveryFilter| {
        let newest = Listing::newest(10);
        let page = setting.store.deliveries(setting.tenant, filter, newest).await.expect("a page");
        assert!(!page.more);
        page.items.iter().map(|delivery| delivery.id).collect::<Vec<_>>()
    };
    let filter = DeliveryFilter::default;
    let event = Some(first.event.id);
    assert_eq!(list(DeliveryFilter { event, ..filter() }).await, [b1, a1]);
    assert_eq!(list(DeliveryFilter { subscription: Some(a), ..filter() }).await, [a2, a1]);
    let state = |state| DeliveryFilter { state: Some(state), ..filter() };
    assert_eq!(list(state(StateKind::Pending)).await, [b2]);
    assert_eq!(list(state(StateKind::InFlight)).await, []);
    assert_eq!(list(state(StateKind::Delivered)).await, [a1]);
    assert_eq!(list(state(StateKind::Dead)).await, [b1]);
    assert_eq!(list(state(StateKind::Cancelled)).await, [a2]);
    let (dead, pending) = (Some(StateKind::Dead), Some(StateKind::Pending));
    let subscription = Some(b);
    assert_eq!(list(DeliveryFilter { event, subscription, state: dead, ..filter() }).await, [b1]);
    let event = Some(second.event.id);
    assert_eq!(list(DeliveryFilter { event, subscription, state: dead, ..filter() }).await, []);
    assert_eq!(list(DeliveryFilter { subscription, state: pending, ..filter() }).await, [b2]);
    let event = Some(EventId::new(at(0), u128::MAX));
    assert_eq!(list(DeliveryFilter { event, ..filter() }).await, []);
    let exactly = |state| DeliveryFilter { exactly: Some(state), ..filter() };
    assert_eq!(list(exactly(DeliveryState::Dead(DeadReason::Exhausted))).await, [b1]);
    assert_eq!(list(exactly(DeliveryState::Dead(DeadReason::Gate))).await, []);
    assert_eq!(list(exactly(DeliveryState::Cancelled(CancelReason::Dropped))).await, [a2]);
    let outcome = |outcome| DeliveryFilter { outcome: Some(outcome), ..filter() };
    assert_eq!(list(outcome(OutcomeFilter::Status(200, 299))).await, [a2, b1, a1]);
    assert_eq!(list(outcome(OutcomeFilter::Status(500, 599))).await, []);
    let codes = vec![FailureCode::ConnectTimeout, FailureCode::DnsFailed];
    assert_eq!(list(outcome(OutcomeFilter::Failures(codes.clone()))).await, [b2]);
    let both =
        DeliveryFilter { state: dead, outcome: Some(OutcomeFilter::Failures(codes)), ..filter() };
    assert_eq!(list(both).await, []);
    let created = Period { from: Some(at(0)), until: Some(at(1)) };
    assert_eq!(list(DeliveryFilter { created, ..filter() }).await, [b2, a2, b1, a1]);
    let created = Period { from: Some(at(1)), until: None };
    assert_eq!(list(DeliveryFilter { created, ..filter() }).await, []);
    setting.lease(b2, at(90)).await;
    assert_eq!(list(state(StateKind::InFlight)).await, [b2]);
    assert_eq!(list(state(StateKind::Pending)).await, [b2]);
    setting.unsubscribe(b, at(70)).await;
    assert_eq!(list(state(StateKind::Pending)).await, [], "nobody waits for it any more");
    assert_eq!(list(state(StateKind::InFlight)).await, []);
    assert_eq!(list(state(StateKind::Cancelled)).await, [b2, a2]);
    let gone = DeliveryFilter { event: Some(second.event.id), ..state(StateKind::Cancelled) };
    assert_eq!(list(gone).await, [b2, a2]);
}

/// Over all deliveries: by subscription, event, outcome, time, and who asked for them.
pub async fn attempts_can_be_filtered(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let published = setting.publish(&[(a, None), (b, None)]).await;
    let other = setting.publish_one(a).await;
    let [to_a, to_b] = published.deliveries[..] else { panic!("two deliveries") };
    let record = async |id: DeliveryId, step: Step, of: Attempt| {
        let mut report = setting.report(id, step, at(500)).await;
        report.attempt = Some(of);
        setting.record_one(report).await;
    };
    record(to_a, failed(at(9)), attempt(to_a, 1, 503)).await;
    let failure = Some(FailureCode::TlsFailed);
    record(to_b, failed(at(9)), Attempt { status: None, failure, ..attempt(to_b, 1, 0) }).await;
    record(other, delivered(), attempt(other, 1, 204)).await;
    record(to_a, delivered(), Attempt { manual: true, ..attempt(to_a, 2, 200) }).await;
    let list = async |filter: AttemptFilter| {
        let newest = Listing::newest(10);
        let page =
            setting.store.attempts_made(setting.tenant, filter, newest).await.expect("a page");
        assert!(!page.more);
        let of = |line: &posthorn_store::AttemptLine| (line.attempt.delivery, line.attempt.number);
        page.items.iter().map(of).collect::<Vec<_>>()
    };
    let filter = AttemptFilter::default;
    let whole = [(to_a, 2), (other, 1), (to_b, 1), (to_a, 1)];
    assert_eq!(list(filter()).await, whole);
    let subscription = Some(a);
    assert_eq!(
        list(AttemptFilter { subscription, ..filter() }).await,
        [(to_a, 2), (other, 1), (to_a, 1)]
    );
    let event = Some(published.event.id);
    let mut of_event = list(AttemptFilter { event, ..filter() }).await;
    of_event.sort_unstable();
    assert_eq!(of_event, [(to_a, 1), (to_a, 2), (to_b, 1)]);
    let narrow = AttemptFilter { event, subscription: Some(b), ..filter() };
    assert_eq!(list(narrow).await, [(to_b, 1)]);
    let outcome = |outcome| AttemptFilter { outcome: Some(outcome), ..filter() };
    assert_eq!(list(outcome(OutcomeFilter::Status(200, 299))).await, [(to_a, 2), (other, 1)]);
    assert_eq!(list(outcome(OutcomeFilter::Status(503, 503))).await, [(to_a, 1)]);
    let codes = vec![FailureCode::TlsFailed];
    assert_eq!(list(outcome(OutcomeFilter::Failures(codes))).await, [(to_b, 1)]);
    assert_eq!(list(AttemptFilter { manual: Some(true), ..filter() }).await, [(to_a, 2)]);
    assert_eq!(list(AttemptFilter { manual: Some(false), ..filter() }).await, whole[1..]);
    let started = Period { from: Some(at(2)), until: None };
    assert_eq!(list(AttemptFilter { started, ..filter() }).await, [(to_a, 2)]);
    let page = setting
        .store
        .attempts_made(
            setting.tenant,
            AttemptFilter { manual: Some(true), ..filter() },
            Listing::newest(1),
        )
        .await
        .expect("a page");
    let line = &page.items[0];
    assert_eq!((line.event, line.subscription), (published.event.id, a));
    assert_eq!(line.attempt, Attempt { manual: true, ..attempt(to_a, 2, 200) });
}

/// A place that no list gave out is the place of nothing: no error, and nothing of anybody else.
pub async fn made_up_places_are_harmless(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    setting.record(id, delivered(), at(1)).await;
    for ask in everything() {
        for place in [0, 1, 1 << 63, u128::from(u64::MAX), 1 << 100, u128::MAX] {
            for order in [Order::NewestFirst, Order::OldestFirst] {
                let listing = Listing { order, after: Some(Place(place)), limit: 5 };
                let page = ask.page(&*setting.store, setting.tenant, listing).await;
                assert!(page.items.len() <= 1, "{ask:?}");
            }
        }
    }
}

/// Of a longer list the beginning will do: the same list is also gone through from its other end.
const ENOUGH: usize = 2_500;
/// Long enough for several parts of what a store keeps together.
const LONG: usize = 9_000;
/// Events of one batch.
const BATCH: usize = 500;

/// A small generator, so that both stores get the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Two stores that get the same.
struct Twins {
    setting: Setting,
    model: Setting,
    other: TenantId,
    subscriptions: Vec<SubscriptionId>,
}

impl Twins {
    async fn new(fixture: &dyn Fixture) -> Self {
        let setting = Setting::new(fixture).await;
        let model: Arc<dyn Store> = Arc::new(ModelStore::new(Arc::new(Still)));
        let delta = setting.store.catalog_since(Default::default()).await.expect("the catalog");
        let other = setting.other_tenant().await;
        let mut tenants: Vec<_> = delta.tenants.into_iter().map(|entry| entry.tenant).collect();
        tenants.retain(|tenant| tenant.id == setting.tenant);
        let known = setting.store.catalog_since(Default::default()).await.expect("the catalog");
        tenants.extend(known.tenants.into_iter().map(|e| e.tenant).filter(|t| t.id == other));
        for tenant in tenants {
            model.change_catalog(CatalogChange::CreateTenant(tenant)).await.expect("a tenant");
        }
        let model = Setting::on(model, setting.tenant, setting.node).await;
        let mut subscriptions = Vec::new();
        for place in 0..6 {
            let owner = if place == 5 { other } else { setting.tenant };
            let wanted = super::builders::subscription(owner);
            subscriptions.push(wanted.id);
            for one in [&setting, &model] {
                let change = CatalogChange::CreateSubscription(Box::new(wanted.clone()));
                one.store.change_catalog(change).await.expect("a subscription");
            }
        }
        Self { setting, model, other, subscriptions }
    }

    async fn publish(&self, dice: &mut Dice, from: usize) {
        let mut batch = Vec::new();
        for number in from..from + BATCH {
            let foreign = dice.below(20) == 0;
            let tenant = if foreign { self.other } else { self.setting.tenant };
            let to: Vec<SubscriptionId> = match (foreign, dice.below(10)) {
                (true, _) => vec![self.subscriptions[5]],
                (false, 0) => vec![],
                (false, 1) => self.subscriptions[..3].to_vec(),
                (false, roll) => vec![self.subscriptions[roll as usize % 5]],
            };
            let rare = dice.below(1_500) == 0;
            let made = Event {
                topic: topic(["orders", "users", "bills"][dice.below(3) as usize]),
                event_type: kind(if rare {
                    "rare"
                } else {
                    ["one", "two"][dice.below(2) as usize]
                }),
                attributes: BTreeMap::from([("n".to_owned(), (number % 700).to_string())]),
                key: (dice.below(3) == 0)
                    .then(|| LaneKey::new(&format!("k{}", dice.below(40))).expect("a key")),
                accepted_at: at(number as i64),
                publisher_id: (number % 3 == 0).then(|| idempotency(&format!("p{number}"), 1).key),
                ..event(tenant)
            };
            let deliveries = to.into_iter().map(|id| delivery(id, None)).collect();
            batch.push((Arc::new(made), deliveries));
        }
        for one in [&self.setting, &self.model] {
            let mut versions = BTreeMap::new();
            for tenant in [self.setting.tenant, self.other] {
                versions.insert(tenant, one.version_of(tenant).await);
            }
            let new = batch.iter().map(|(event, deliveries): &(Arc<Event>, Vec<_>)| NewEvent {
                event: Arc::clone(event),
                idempotency: None,
                catalog: versions[&event.tenant],
                deliveries: deliveries.clone(),
            });
            one.store.accept(new.collect()).await.expect("accepted");
        }
    }

    /// Something becomes of some of what is pending, in both stores.
    async fn progress(&self, dice: &mut Dice, limit: usize, when: i64) {
        let filter =
            DeliveryFilter { state: Some(StateKind::Pending), ..DeliveryFilter::default() };
        for tenant in [self.setting.tenant, self.other] {
            let listing = Listing { order: Order::OldestFirst, after: None, limit };
            let pending = self.model.store.deliveries(tenant, filter.clone(), listing).await;
            let mut records: Vec<(Record, Record)> = Vec::new();
            for seen in pending.expect("a list").items {
                let number = seen.attempts + 1;
                let (step, of) = match dice.below(40) {
                    0 => (dead_skip(), attempt(seen.id, number, 500)),
                    1 => (dropped(), attempt(seen.id, number, 410)),
                    2..6 => {
                        let failure = Some(FailureCode::ALL[dice.below(20) as usize]);
                        let of = Attempt { status: None, failure, ..attempt(seen.id, number, 0) };
                        (failed(at(when + 50)), of)
                    }
                    6..8 => (failed(at(when + 50)), attempt(seen.id, number, 503)),
                    // It waits for ever.
                    8 => continue,
                    _ => (delivered(), attempt(seen.id, number, 200)),
                };
                let of = Attempt { started_at: at(when), manual: dice.below(50) == 0, ..of };
                let record = |one: &Setting| Record {
                    fence: one.fence(seen.subscription),
                    tenant,
                    delivery: seen.id,
                    expected_attempts: seen.attempts,
                    expected_revival: seen.revival,
                    ordered: seen.lane.is_some(),
                    step,
                    attempt: Some(of.clone()),
                    standing: None,
                    told: Vec::new(),
                    at: at(when),
                };
                records.push((record(&self.setting), record(&self.model)));
            }
            let (own, models): (Vec<Record>, Vec<Record>) = records.into_iter().unzip();
            for (one, records) in [(&self.setting, own), (&self.model, models)] {
                for batch in records.chunks(BATCH) {
                    one.store.record(batch.to_vec()).await.expect("recorded");
                }
            }
        }
    }

    /// Old dead letters come back, others are cancelled or forgotten, in both stores.
    async fn meddle(&self, when: i64) {
        let tenant = self.setting.tenant;
        let oldest = Listing { order: Order::OldestFirst, after: None, limit: 40 };
        for state in [StateKind::Dead, StateKind::Pending] {
            let filter = DeliveryFilter { state: Some(state), ..DeliveryFilter::default() };
            let found = self.model.store.deliveries(tenant, filter, oldest).await.expect("a list");
            for (place, found) in found.items.iter().enumerate() {
                for one in [&self.setting, &self.model] {
                    let (store, id, when) = (&one.store, found.id, at(when));
                    let moved = match place % 4 {
                        0 => store.retry_delivery(tenant, id, when).await.map(drop),
                        1 => store.forget_delivery(tenant, id, when).await.map(drop),
                        2 if state == StateKind::Pending => {
                            store.cancel_delivery(tenant, id, when).await.map(drop)
                        }
                        _ => Ok(()),
                    };
                    moved.expect("possible");
                }
            }
        }
    }

    /// Of old events whose deliveries have ended, some payloads and answers are removed, in both stores.
    async fn expunge(&self, when: i64) {
        let tenant = self.setting.tenant;
        let oldest = Listing { order: Order::OldestFirst, after: None, limit: 120 };
        let found = self.model.store.events(tenant, EventFilter::default(), oldest).await;
        let mut gone = 0;
        for (place, event) in found.expect("a list").items.iter().enumerate() {
            if place % 3 == 0 {
                continue;
            }
            let ask = |store: Arc<dyn Store>| async move {
                store.expunge_event(tenant, event.id, place % 2 == 0, at(when)).await.ok()
            };
            let wanted = ask(Arc::clone(&self.model.store)).await;
            assert_eq!(ask(Arc::clone(&self.setting.store)).await, wanted);
            gone += usize::from(wanted.is_some());
        }
        assert!(gone > 20, "{gone}");
    }

    async fn compare(&self, when: &str, order: Order, limit: usize) {
        for tenant in [self.setting.tenant, self.other] {
            let counts = self.setting.store.counts(Some(tenant)).await.expect("counts");
            assert_eq!(
                counts,
                self.model.store.counts(Some(tenant)).await.expect("counts"),
                "{when}"
            );
        }
        let mut asks = self.asks();
        let first = Listing { order: Order::OldestFirst, after: None, limit: LONG / 2 };
        let half =
            self.model.store.events(self.setting.tenant, EventFilter::default(), first).await;
        let from_event = half.expect("a list").items.last().map(|event| event.id);
        let types = vec![kind("one")];
        asks.push(Ask::Events(EventFilter { from_event, ..EventFilter::default() }));
        asks.push(Ask::Events(EventFilter { from_event, types, ..EventFilter::default() }));
        for ask in asks {
            for tenant in [self.setting.tenant, self.other] {
                let found = ask.all(&*self.setting.store, tenant, order, limit).await;
                let wanted = ask.all(&*self.model.store, tenant, order, 1_000_000).await;
                let (found, wanted) = (ask.settled(found), ask.settled(wanted));
                let same = found.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
                assert!(
                    found == wanted,
                    "{when}, {ask:?}, {order:?}: {} instead of {}, the first {same} are right",
                    found.len(),
                    wanted.len()
                );
            }
        }
    }

    fn asks(&self) -> Vec<Ask> {
        let mut asks = everything().to_vec();
        let event = EventFilter::default;
        let key = |text: &str| Some(LaneKey::new(text).expect("a key"));
        let middle = Period { from: Some(at(2_000)), until: Some(at(5_000)) };
        let n = |text: &str| BTreeMap::from([("n".to_owned(), text.to_owned())]);
        asks.extend(
            [
                EventFilter { types: vec![kind("rare")], ..event() },
                EventFilter { types: vec![kind("one"), kind("rare")], ..event() },
                EventFilter { types: vec![kind("none")], ..event() },
                EventFilter { topics: vec![topic("orders")], types: vec![kind("two")], ..event() },
                EventFilter { key: key("k7"), ..event() },
                EventFilter { key: key("k7"), topics: vec![topic("users")], ..event() },
                EventFilter { key: key("k7"), types: vec![kind("rare")], ..event() },
                EventFilter { publisher_id: Some(idempotency("p4002", 1).key), ..event() },
                EventFilter { unwanted: true, ..event() },
                EventFilter { unwanted: true, types: vec![kind("rare")], ..event() },
                EventFilter { unwanted: true, topics: vec![topic("users")], ..event() },
                EventFilter { with_dead_letters: true, ..event() },
                EventFilter { with_dead_letters: true, accepted: middle, ..event() },
                EventFilter { with_dead_letters: true, types: vec![kind("one")], ..event() },
                EventFilter { accepted: middle, ..event() },
                EventFilter { accepted: middle, types: vec![kind("rare")], ..event() },
                EventFilter { attributes: n("42"), ..event() },
            ]
            .map(Ask::Events),
        );
        let delivery = DeliveryFilter::default;
        let failures = || Some(OutcomeFilter::Failures(FailureCode::ALL.to_vec()));
        let one_failure = || Some(OutcomeFilter::Failures(vec![FailureCode::ALL[3]]));
        let status = |first, last| Some(OutcomeFilter::Status(first, last));
        for subscription in [None, Some(self.subscriptions[0]), Some(self.subscriptions[5])] {
            let one = || DeliveryFilter { subscription, ..delivery() };
            asks.extend(
                [
                    one(),
                    DeliveryFilter { state: Some(StateKind::Pending), ..one() },
                    DeliveryFilter { state: Some(StateKind::Delivered), ..one() },
                    DeliveryFilter { state: Some(StateKind::Dead), ..one() },
                    DeliveryFilter { state: Some(StateKind::Cancelled), ..one() },
                    DeliveryFilter {
                        exactly: Some(DeliveryState::Cancelled(CancelReason::Operator)),
                        ..one()
                    },
                    DeliveryFilter { outcome: status(500, 599), ..one() },
                    DeliveryFilter { outcome: failures(), ..one() },
                    DeliveryFilter {
                        outcome: failures(),
                        state: Some(StateKind::Pending),
                        ..one()
                    },
                    DeliveryFilter { created: middle, ..one() },
                    DeliveryFilter { created: middle, state: Some(StateKind::Dead), ..one() },
                ]
                .map(Ask::Deliveries),
            );
            let one = || AttemptFilter { subscription, ..AttemptFilter::default() };
            asks.extend(
                [
                    one(),
                    AttemptFilter { outcome: status(503, 503), ..one() },
                    AttemptFilter { outcome: status(400, 599), ..one() },
                    AttemptFilter { outcome: status(200, 299), ..one() },
                    AttemptFilter { outcome: one_failure(), ..one() },
                    AttemptFilter { outcome: failures(), ..one() },
                    AttemptFilter { manual: Some(true), ..one() },
                    AttemptFilter { started: middle, ..one() },
                ]
                .map(Ask::Attempts),
            );
        }
        asks
    }
}

/// Events of one moment have an order: whoever begins with one of them gets that one and what comes after it.
pub async fn events_are_listed_from_one_on(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let mut batch = Vec::new();
    for _ in 0..7 {
        batch.push(setting.planned(Vec::new()).await);
    }
    let ids: Vec<EventId> = batch.iter().map(|new| new.event.id).collect();
    setting.store.accept(batch).await.expect("accept");
    let list = async |tenant, from_event, order, limit| {
        let listing = Listing { order, after: None, limit };
        let filter = EventFilter { from_event: Some(from_event), ..EventFilter::default() };
        let page = setting.store.events(tenant, filter, listing).await.expect("a page");
        let found: Vec<EventId> = page.items.iter().map(|event| event.id).collect();
        (found, page.more)
    };
    let own = setting.tenant;
    assert_eq!(list(own, ids[3], Order::OldestFirst, 2).await, (ids[3..5].to_vec(), true));
    let newest: Vec<EventId> = ids[3..].iter().rev().copied().collect();
    assert_eq!(list(own, ids[3], Order::NewestFirst, 9).await, (newest, false));
    assert_eq!(list(own, ids[6], Order::OldestFirst, 9).await, (ids[6..].to_vec(), false));
    assert_eq!(list(other, ids[3], Order::OldestFirst, 9).await, (Vec::new(), false));
    // One that is not there stands where it would.
    let before = EventId::floor(at(-1_000));
    assert_eq!(list(own, before, Order::OldestFirst, 9).await, (ids.clone(), false));
    let after = EventId::floor(at(1_000_000));
    assert_eq!(list(own, after, Order::OldestFirst, 9).await, (Vec::new(), false));
}

/// Every filter, over thousands of rows of two tenants, while they are new, when they have come to rest, and after
/// old ones have changed.
pub async fn long_histories_are_listed_like_the_model(fixture: &dyn Fixture) {
    let twins = Twins::new(fixture).await;
    let mut dice = Dice(7);
    for from in (0..LONG).step_by(BATCH) {
        twins.publish(&mut dice, from).await;
        twins.progress(&mut dice, BATCH, from as i64).await;
    }
    twins.compare("at once", Order::NewestFirst, 700).await;
    // Whatever a store does in the background has time to be done.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    twins.compare("at rest", Order::OldestFirst, 1_000).await;
    twins.progress(&mut dice, 1_000, 10_000).await;
    twins.meddle(10_100).await;
    twins.expunge(10_200).await;
    let Twins { setting, model, other, subscriptions } = twins;
    let twins = Twins { setting: setting.reopen(fixture).await, model, other, subscriptions };
    twins.compare("after changes to old ones", Order::NewestFirst, 1_000).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    twins.compare("at rest again", Order::OldestFirst, 700).await;
}
