//! Cases about operational events: stored by the transaction that causes them, or not at all.

use std::sync::Arc;

use posthorn_domain::{
    CatalogVersion, DeliveryId, DeliveryState, Epoch, Event, EventId, Fence, JobState, Lane,
    RedriveState, SubscriptionId, TenantId, TopicName,
};
use posthorn_store::{
    Bite, CatalogChange, Ending, Error, EventFilter, Listing, NewEvent, Place, Record, Recorded,
    Refusal, Standing, Streak,
};

use super::Fixture;
use super::builders::{
    Setting, at, dead_skip, delivered, delivery, event, failed, lane, redrive, subscription, tenant,
};
use super::jobs::{advance, begun, bite, job, redelivery};

const WRITTEN: Recorded = Recorded::Written { promoted: None };

/// Somebody who is told, in the tenant and in another one, as operators are.
struct Audience {
    own: SubscriptionId,
    operators: TenantId,
    theirs: SubscriptionId,
}

impl Audience {
    async fn new(setting: &Setting) -> Self {
        let own = setting.subscribe().await;
        let operators = setting.other_tenant().await;
        let theirs = setting.subscribe_for(operators).await;
        Self { own, operators, theirs }
    }

    /// What is told to both of them, on the present versions.
    async fn told(&self, setting: &Setting) -> Vec<NewEvent> {
        self.told_in(setting, None).await
    }

    async fn told_in(&self, setting: &Setting, lane: Option<Lane>) -> Vec<NewEvent> {
        let mut told = Vec::new();
        for (tenant, to) in [(setting.tenant, self.own), (self.operators, self.theirs)] {
            let topic = TopicName::operational();
            let event = Arc::new(Event { topic, ..event(tenant) });
            let catalog = setting.version_of(tenant).await;
            let deliveries = vec![delivery(to, lane.clone())];
            told.push(NewEvent { event, idempotency: None, catalog, deliveries });
        }
        told
    }

    /// How many events there are that were told, in both tenants, each with its delivery.
    async fn heard(&self, setting: &Setting) -> (usize, usize) {
        let own = heard(setting, setting.tenant, self.own).await;
        (own, heard(setting, self.operators, self.theirs).await)
    }
}

async fn heard(setting: &Setting, tenant: TenantId, to: SubscriptionId) -> usize {
    let filter = EventFilter { topics: vec![TopicName::operational()], ..EventFilter::default() };
    let page = setting.store.events(tenant, filter, Listing::newest(100)).await.expect("a list");
    let ids: Vec<EventId> = page.items.iter().map(|event| event.id).collect();
    let pairs = ids.iter().map(|id| (*id, to)).collect();
    let states = setting.store.delivery_states(tenant, pairs).await.expect("states");
    assert!(states.iter().all(Option::is_some), "no event without its delivery: {states:?}");
    ids.len()
}

async fn one(setting: &Setting) -> (SubscriptionId, DeliveryId) {
    let subscription = setting.subscribe().await;
    (subscription, setting.publish_one(subscription).await)
}

/// Makes every plan of a tenant stale.
async fn stir(setting: &Setting, tenant: TenantId) {
    setting.subscribe_for(tenant).await;
}

fn is_stale<T: std::fmt::Debug>(answer: Result<T, Error>) -> bool {
    match answer {
        Err(Error::Refused(Refusal::Stale)) => true,
        other => panic!("it is stale, not {other:?}"),
    }
}

/// What a record tells is there when the record is, with all its deliveries; and it is counted.
pub async fn a_record_tells_in_its_transaction(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let audience = Audience::new(&setting).await;
    let (_, id) = one(&setting).await;
    let (_, other) = one(&setting).await;
    let told = audience.told(&setting).await;
    let record = Record { told: told.clone(), ..setting.report(id, dead_skip(), at(9)).await };
    let silent = setting.report(other, delivered(), at(9)).await;
    let replies = setting.store.record(vec![silent, record]).await.expect("an answer");
    assert_eq!(replies, [WRITTEN, WRITTEN]);
    assert_eq!(audience.heard(&setting).await, (1, 1));
    let stored = setting.store.event(setting.tenant, told[0].event.id).await.expect("an answer");
    assert_eq!(stored.as_ref(), Some(&*told[0].event));
    let foreign = setting.store.event(setting.tenant, told[1].event.id).await.expect("an answer");
    assert_eq!(foreign, None, "what operators are told is theirs");
    assert_eq!(setting.ready(audience.own).await, [told[0].deliveries[0].id]);
    assert_eq!(setting.ready(audience.theirs).await, [told[1].deliveries[0].id]);
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.events, counts.pending, counts.delivered, counts.dead), (3, 1, 1, 1));
    // What was told is delivered like anything else.
    let step = setting.report(told[0].deliveries[0].id, delivered(), at(10)).await;
    assert_eq!(setting.record_one(step).await, WRITTEN);
}

/// Who is fenced, superseded or speaks of what is not there tells nothing; nor does a repeat.
pub async fn late_writers_tell_nothing(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let audience = Audience::new(&setting).await;
    let (_, id) = one(&setting).await;
    let good = setting.report(id, dead_skip(), at(9)).await;
    let fence = Fence { epoch: Epoch(good.fence.epoch.0 + 1), ..good.fence };
    let told = audience.told(&setting).await;
    let fenced = Record { fence, told, ..good.clone() };
    assert_eq!(setting.record_one(fenced).await, Recorded::Fenced);
    let told = audience.told(&setting).await;
    let superseded = Record { expected_attempts: 7, told, ..good.clone() };
    assert_eq!(setting.record_one(superseded).await, Recorded::Superseded);
    let told = audience.told(&setting).await;
    let unknown = Record { delivery: DeliveryId::new(at(0), u128::MAX), told, ..good.clone() };
    assert_eq!(setting.record_one(unknown).await, Recorded::Superseded);
    assert_eq!(audience.heard(&setting).await, (0, 0));
    let told = audience.told(&setting).await;
    let record = Record { told, ..good };
    assert_eq!(setting.record_one(record.clone()).await, WRITTEN);
    assert_eq!(setting.record_one(record).await, Recorded::Superseded);
    assert_eq!(audience.heard(&setting).await, (1, 1));
}

/// A record whose plan is out of date, in either tenant, leaves nothing behind; the others of its batch are
/// written. Planned again, it is written as if nothing had been.
pub async fn a_stale_record_leaves_no_trace(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let audience = Audience::new(&setting).await;
    for stirred in [setting.tenant, audience.operators] {
        let (subscription, id) = one(&setting).await;
        let (_, other) = one(&setting).await;
        let before = audience.heard(&setting).await;
        let streak = Streak { since: at(1), exhausted: false, told: true };
        let standing = Some(Standing { subscription, failing: Some(streak) });
        let told = audience.told(&setting).await;
        let report = setting.report(id, failed(at(20)), at(9)).await;
        let record = Record { standing, told, ..report };
        stir(&setting, stirred).await;
        let silent = setting.report(other, delivered(), at(9)).await;
        let fence = Fence { epoch: Epoch(record.fence.epoch.0 + 1), ..record.fence };
        let fenced = Record { fence, ..record.clone() };
        let batch = vec![record.clone(), silent, fenced];
        let replies = setting.store.record(batch).await.expect("an answer");
        assert_eq!(replies, [Recorded::Stale, WRITTEN, Recorded::Stale], "judged first of all");
        assert_eq!(audience.heard(&setting).await, before);
        assert_eq!(setting.look(id).await.attempts, 0);
        let kept = setting.store.attempts(setting.tenant, id).await.expect("attempts");
        assert_eq!(kept, [], "not even the attempt");
        let failing = setting.store.failing(&super::builders::all_shards()).await.expect("streaks");
        assert!(failing.iter().all(|known| known.subscription != subscription), "{failing:?}");
        let told = audience.told(&setting).await;
        assert_eq!(setting.record_one(Record { told, ..record }).await, WRITTEN);
        assert_eq!(audience.heard(&setting).await, (before.0 + 1, before.1 + 1));
        assert_eq!(setting.look(id).await.attempts, 1);
    }
}

/// Deliveries of what is told go to the end of their lanes, also when the cause ends the head of the same lane.
pub async fn what_is_told_waits_in_its_lane(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let audience = Audience::new(&setting).await;
    let head = setting.publish_in(audience.own, lane("a")).await;
    let next = setting.publish_in(audience.own, lane("a")).await;
    let (_, id) = one(&setting).await;
    let told = audience.told_in(&setting, lane("a")).await;
    let first = told[0].deliveries[0].id;
    let record = Record { told, ..setting.report(id, dead_skip(), at(9)).await };
    assert_eq!(setting.record_one(record).await, WRITTEN);
    assert!(setting.look(first).await.is_parked());
    let told = audience.told_in(&setting, lane("a")).await;
    let second = told[0].deliveries[0].id;
    let record = Record { told, ..setting.report(head, dead_skip(), at(10)).await };
    let Recorded::Written { promoted: Some(work) } = setting.record_one(record).await else {
        panic!("the next of the lane goes on");
    };
    assert_eq!(work.delivery.id, next);
    for expected in [first, second] {
        let head = setting.ready(audience.own).await[0];
        let promoted = setting.record(head, delivered(), at(11)).await.expect("the next");
        assert_eq!(promoted.delivery.id, expected);
    }
}

/// A change moves the version of its tenant; what it tells is planned on the one before.
pub async fn a_change_tells_on_the_version_before_it(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let audience = Audience::new(&setting).await;
    let new = subscription(setting.tenant);
    let id = new.id;
    let mut heard = 0;
    for change in [
        CatalogChange::CreateSubscription(Box::new(new.clone())),
        CatalogChange::UpdateSubscription { subscription: Box::new(new), expected: None },
        CatalogChange::DeleteSubscription { tenant: setting.tenant, id, at: at(5) },
    ] {
        let before = setting.version_of(setting.tenant).await;
        let told = audience.told(&setting).await;
        let version =
            setting.store.change_catalog_with(change, told.into()).await.expect("changed");
        assert!(version > before);
        assert_eq!(setting.version_of(setting.tenant).await, version);
        heard += 1;
        assert_eq!(audience.heard(&setting).await, (heard, heard));
    }
}

/// A change that is refused tells nothing, nor does one that finds everything as it should be.
pub async fn a_refused_change_tells_nothing(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let audience = Audience::new(&setting).await;
    let unknown = SubscriptionId::new(at(0), u128::MAX);
    let change =
        CatalogChange::DeleteSubscription { tenant: setting.tenant, id: unknown, at: at(5) };
    let told = audience.told(&setting).await;
    let refused = setting.store.change_catalog_with(change, told.into()).await;
    assert!(matches!(refused, Err(Error::Refused(Refusal::NotFound))), "{refused:?}");
    let key = super::builders::api_key(Some(setting.tenant));
    let revoke = CatalogChange::RevokeKey { id: key.id, at: at(5) };
    setting.store.change_catalog(CatalogChange::CreateKey(key)).await.expect("a key");
    setting.store.change_catalog(revoke.clone()).await.expect("revoked");
    let before = setting.version_of(setting.tenant).await;
    let told = audience.told(&setting).await;
    setting.store.change_catalog_with(revoke, told.into()).await.expect("nothing to do");
    assert_eq!(setting.version_of(setting.tenant).await, before);
    assert_eq!(audience.heard(&setting).await, (0, 0));
}

/// A change whose plan is out of date, in either tenant, is not made.
pub async fn a_stale_change_changes_nothing(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let audience = Audience::new(&setting).await;
    for stirred in [setting.tenant, audience.operators] {
        let new = Box::new(subscription(setting.tenant));
        let told = audience.told(&setting).await;
        stir(&setting, stirred).await;
        let before = setting.store.catalog_since(CatalogVersion(0)).await.expect("all").version;
        let change = CatalogChange::CreateSubscription(new.clone());
        assert!(is_stale(setting.store.change_catalog_with(change, told.into()).await));
        let after = setting.store.catalog_since(CatalogVersion(0)).await.expect("all");
        assert_eq!(after.version, before);
        assert!(after.subscriptions.iter().all(|known| known.id != new.id));
    }
    assert_eq!(audience.heard(&setting).await, (0, 0));
}

/// A subscription that comes with a job is told of like any other; a job that is refused tells nothing.
pub async fn a_job_tells_with_its_subscription(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let audience = Audience::new(&setting).await;
    let (first, new) = (job(setting.tenant), subscription(setting.tenant));
    let new = CatalogChange::CreateSubscription(Box::new(new));
    let told = audience.told(&setting).await;
    stir(&setting, setting.tenant).await;
    let stale = setting.store.create_job(first.clone(), Some(new.clone()), told).await;
    assert!(is_stale(stale));
    assert_eq!(setting.store.job(setting.tenant, first.id).await.expect("an answer"), None);
    let told = audience.told(&setting).await;
    setting.store.create_job(first.clone(), Some(new.clone()), told).await.expect("created");
    assert_eq!(audience.heard(&setting).await, (1, 1));
    let told = audience.told(&setting).await;
    let again = setting.store.create_job(first, Some(new), told).await;
    assert!(matches!(again, Err(Error::Refused(Refusal::AlreadyExists))), "{again:?}");
    assert_eq!(audience.heard(&setting).await, (1, 1));
}

/// The end of a job is told by the bite or the cancel that ends it, and by no other.
pub async fn the_end_of_a_job_is_told_once(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let audience = Audience::new(&setting).await;
    let job = begun(&setting).await;
    let ending =
        async |seen, done| Some(Ending { told: audience.told(&setting).await, seen, done });
    let end = async |expected| Bite {
        ends: Some(JobState::Done),
        ending: ending(0, 0).await,
        expected,
        ..bite(&job, None, 7, Vec::new())
    };
    let late = end(Some(Place(3))).await;
    assert_eq!(advance(&setting, late).await.state, JobState::Running);
    assert_eq!(audience.heard(&setting).await, (0, 0), "another was faster");
    let stale = end(None).await;
    stir(&setting, audience.operators).await;
    assert!(is_stale(setting.store.advance_job(stale).await));
    assert_eq!(audience.heard(&setting).await, (0, 0));
    let last = end(None).await;
    assert_eq!(advance(&setting, last.clone()).await.state, JobState::Done);
    assert_eq!(audience.heard(&setting).await, (1, 1));
    assert_eq!(advance(&setting, last).await.state, JobState::Done);
    let told = ending(0, 0).await;
    let cancelled = setting.store.cancel_job(setting.tenant, job.id, at(9), told).await;
    assert_eq!(cancelled.expect("answers").state, JobState::Done);
    assert_eq!(audience.heard(&setting).await, (1, 1), "it had ended");

    let other = begun(&setting).await;
    let foreign = ending(0, 0).await;
    let refused = setting.store.cancel_job(audience.operators, other.id, at(9), foreign).await;
    assert!(matches!(refused, Err(Error::Refused(Refusal::NotFound))), "{refused:?}");
    let told = ending(0, 0).await;
    stir(&setting, setting.tenant).await;
    assert!(is_stale(setting.store.cancel_job(setting.tenant, other.id, at(9), told).await));
    let told = ending(0, 0).await;
    let cancelled = setting.store.cancel_job(setting.tenant, other.id, at(9), told).await;
    assert_eq!(cancelled.expect("answers").state, JobState::Cancelled);
    assert_eq!(audience.heard(&setting).await, (2, 2));
}

/// A redrive whose end is told ends when there is nothing left, and tells it once.
pub async fn the_end_of_a_redrive_is_told_once(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let audience = Audience::new(&setting).await;
    for _ in 0..3 {
        let (_, id) = one(&setting).await;
        setting.record(id, dead_skip(), at(5)).await;
    }
    let made = setting.store.create_redrive(redrive(setting.tenant, at(10))).await.expect("made");
    let ending = async |done| Some(Ending { told: audience.told(&setting).await, seen: 3, done });
    let store = &setting.store;
    let advanced = store.advance_redrive(made.id, 2, at(20), ending(0).await).await.expect("moves");
    assert_eq!((advanced.moved, advanced.state), (2, RedriveState::Running));
    let advanced = store.advance_redrive(made.id, 2, at(20), ending(2).await).await.expect("moves");
    assert_eq!((advanced.moved, advanced.state), (1, RedriveState::Running), "not yet");
    assert_eq!(audience.heard(&setting).await, (0, 0));
    let stale = ending(3).await;
    stir(&setting, setting.tenant).await;
    assert!(is_stale(store.advance_redrive(made.id, 2, at(20), stale).await));
    for _ in 0..2 {
        let last = store.advance_redrive(made.id, 2, at(21), ending(3).await).await.expect("ends");
        assert_eq!((last.moved, last.state), (0, RedriveState::Done));
        assert_eq!(audience.heard(&setting).await, (1, 1));
    }
    let told = ending(3).await;
    let cancelled = store.cancel_redrive(setting.tenant, made.id, at(22), told).await;
    assert_eq!(cancelled.expect("answers").state, RedriveState::Done);
    assert_eq!(audience.heard(&setting).await, (1, 1), "it had ended");

    let other = store.create_redrive(redrive(setting.tenant, at(10))).await.expect("made");
    let told = Some(Ending { told: audience.told(&setting).await, seen: 0, done: 0 });
    let cancelled = store.cancel_redrive(setting.tenant, other.id, at(22), told).await;
    assert_eq!(cancelled.expect("answers").state, RedriveState::Cancelled);
    assert_eq!(audience.heard(&setting).await, (2, 2));
}

/// What would be told must be true: when a job or a redrive has done more meanwhile, nothing ends.
pub async fn an_end_that_moved_on_is_not_told(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let audience = Audience::new(&setting).await;
    let to = setting.subscribe().await;
    let published = setting.publish(&[]).await;
    let job = begun(&setting).await;
    let deed = redelivery(published.event.id, to, posthorn_domain::ReplayStatus::All);
    assert_eq!(advance(&setting, bite(&job, None, 7, vec![deed])).await.done, 1);
    for (seen, done) in [(0, 0), (1, 0), (0, 1)] {
        let ending = Some(Ending { told: audience.told(&setting).await, seen, done });
        let cancel = setting.store.cancel_job(setting.tenant, job.id, at(9), ending.clone());
        assert!(is_stale(cancel.await));
        let ends = Some(JobState::Done);
        let last = Bite { ends, ending, ..bite(&job, Some(Place(7)), 8, Vec::new()) };
        assert!(is_stale(setting.store.advance_job(last).await));
    }
    let still = setting.store.job(setting.tenant, job.id).await.expect("answers").expect("there");
    assert_eq!(still.state, JobState::Running);
    let (_, id) = one(&setting).await;
    setting.record(id, dead_skip(), at(5)).await;
    let made = setting.store.create_redrive(redrive(setting.tenant, at(10))).await.expect("made");
    setting.store.advance_redrive(made.id, 1, at(20), None).await.expect("moves");
    let ending = Some(Ending { told: audience.told(&setting).await, seen: 1, done: 0 });
    let last = setting.store.advance_redrive(made.id, 1, at(20), ending.clone()).await;
    assert!(is_stale(last));
    assert!(is_stale(setting.store.cancel_redrive(setting.tenant, made.id, at(20), ending).await));
    assert_eq!(audience.heard(&setting).await, (0, 0));
}

/// Cause and event are in one transaction, so a crash leaves both.
pub async fn what_was_told_survives_reopening(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let audience = Audience::new(&setting).await;
    let (_, id) = one(&setting).await;
    let told = audience.told(&setting).await;
    let record = Record { told, ..setting.report(id, dead_skip(), at(9)).await };
    setting.record_one(record).await;
    let told = audience.told(&setting).await;
    let change = CatalogChange::CreateTopic(super::builders::topic(setting.tenant, "more"));
    setting.store.change_catalog_with(change, told.into()).await.expect("changed");
    let setting = setting.reopen(fixture).await;
    assert_eq!(audience.heard(&setting).await, (2, 2));
    assert!(matches!(setting.look(id).await.state, DeliveryState::Dead(_)));
    assert_eq!(setting.ready(audience.own).await.len(), 2);
    let new = CatalogChange::CreateTenant(tenant());
    setting.store.change_catalog(new).await.expect("it goes on");
}
