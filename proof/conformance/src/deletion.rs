//! Cases about tenants that are deleted: nothing comes in from the first moment, everything goes, and nobody else loses
//! anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use posthorn_domain::{
    CatalogVersion, Event, Job, JobId, JobState, JobWork, RollupCounts, RollupScope, RollupStep,
    Span, SubscriptionId, TenantChange, TenantId, Timestamp, TopicName,
};
use posthorn_store::{
    Accepted, Along, AttemptFilter, Bite, Bitten, CatalogChange, Counts, DeliveryFilter, Ending,
    Error, EventFilter, Listing, MinuteRollup, NewEvent, Record, Recorded, Refusal, Rollups,
    SeriesAsk, StateKind, TendRollups,
};

use super::Fixture;
use super::builders::{
    Published, Setting, api_key, at, attempt, certificate, dead_block, delivered, delivery, event,
    idempotency, lane, node, redrive, subscription, tenant, topic, unique, whole,
};
use super::changes::{change, refused, since};

fn deletion(tenant: TenantId) -> Job {
    Job {
        id: JobId::new(at(0), unique().into()),
        tenant,
        work: JobWork::DeleteTenant,
        per_second: 5_000,
        state: JobState::Running,
        seen: 0,
        done: 0,
        created_by: "key_1".to_owned(),
        created_at: at(100),
        finished_at: None,
        problem: None,
    }
}

/// Says that a tenant is to be deleted.
async fn begun(setting: &Setting, tenant: TenantId) -> Job {
    begun_with(setting, tenant, Along::default()).await
}

/// The same with what goes along with it.
pub(super) async fn begun_with(setting: &Setting, tenant: TenantId, along: Along) -> Job {
    let job = deletion(tenant);
    let delete = CatalogChange::DeleteTenant { tenant, job: job.id, at: at(100) };
    let created = setting.store.create_job_with(job.clone(), Some(delete), along).await;
    assert!(created.expect("a new job").is_some(), "nodes hear of it");
    job
}

fn bite(job: &Job, rows: usize) -> Bite {
    Bite {
        job: job.id,
        expected: None,
        cursor: None,
        seen: 0,
        deeds: Vec::new(),
        expunges: None,
        moves: None,
        removes: Some(rows),
        ends: None,
        ending: None,
        problem: None,
        at: at(200),
    }
}

async fn advance(setting: &Setting, job: &Job, rows: usize) -> Bitten {
    setting.store.advance_job(bite(job, rows)).await.expect("advances")
}

/// Until there is nothing left; how many bites it took, and how many rows went.
pub(super) async fn finish(setting: &Setting, job: &Job, rows: usize) -> (usize, usize) {
    let mut gone = 0;
    for number in 1..1_000 {
        let bitten = advance(setting, job, rows).await;
        gone += bitten.done;
        if bitten.state == JobState::Done {
            assert!(bitten.recall.is_some(), "nodes hear that it is buried");
            return (number, gone);
        }
        assert!(bitten.done > 0, "each bite takes something away");
    }
    panic!("it never ends");
}

/// A tenant with something in every corner.
async fn furnish(setting: &Setting) -> (SubscriptionId, Vec<Published>) {
    let own = setting.tenant;
    for new in [
        CatalogChange::PutTopic(topic(own, "orders")),
        CatalogChange::CreateKey(api_key(Some(own))),
        CatalogChange::CreateCertificate(Box::new(certificate(
            own,
            posthorn_domain::CertificateKind::Caller,
        ))),
    ] {
        change(setting, new).await.expect("something new");
    }
    let (plain, ordered) = (setting.subscribe().await, setting.subscribe().await);
    let mut all = Vec::new();
    for key in ["a", "b", "a"] {
        all.push(setting.publish(&[(plain, None), (ordered, lane(key))]).await);
    }
    setting.record(all[0].deliveries[0], delivered(), at(5)).await;
    setting.record(all[0].deliveries[1], dead_block(), at(6)).await;
    let mut keyed = setting.planned(vec![delivery(plain, None)]).await;
    keyed.idempotency = Some(idempotency("once", 1));
    all.push(setting.accept(keyed).await);
    let mut later = setting.planned(vec![delivery(ordered, whole())]).await;
    let mut event = Event::clone(&later.event);
    event.deliver_at = Some(at(1_000_000));
    event.retention = Some(Span::from_secs(60));
    later.event = Arc::new(event);
    all.push(setting.accept(later).await);
    setting.store.create_redrive(redrive(own, at(1_000))).await.expect("a redrive");
    (plain, all)
}

async fn has_nothing(setting: &Setting, tenant: TenantId) {
    let store = &setting.store;
    let newest = || Listing::newest(100);
    assert_eq!(store.counts(Some(tenant)).await.expect("counts"), Counts::default());
    let events = store.events(tenant, EventFilter::default(), newest()).await.expect("a list");
    assert!(events.items.is_empty(), "{:?}", events.items);
    let rows = store.deliveries(tenant, DeliveryFilter::default(), newest()).await.expect("a list");
    assert!(rows.items.is_empty(), "{:?}", rows.items);
    let made = store.attempts_made(tenant, AttemptFilter::default(), newest()).await;
    assert!(made.expect("a list").items.is_empty());
    let counts = store.pending_by_tenant().await.expect("counts");
    assert!(counts.iter().all(|(of, count)| *of != tenant || *count == 0), "{counts:?}");
    let redrives = posthorn_store::RedrivePage { before: None, limit: 10 };
    assert!(store.redrives(tenant, redrives).await.expect("a list").items.is_empty());
    let all = since(setting, CatalogVersion(0)).await;
    assert!(all.topics.iter().all(|topic| topic.tenant != tenant));
    assert!(all.subscriptions.iter().all(|subscription| subscription.tenant != tenant));
    assert!(all.removed_subscriptions.iter().all(|(of, _)| *of != tenant));
    assert!(all.keys.iter().all(|key| key.tenant != Some(tenant)));
    assert!(all.certificates.iter().all(|certificate| certificate.tenant != tenant));
}

/// From the moment that it is to be deleted, nothing is accepted, made or changed; also what was planned before.
pub async fn nothing_comes_in_any_more(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (plain, _) = furnish(&setting).await;
    let planned = setting.planned(vec![delivery(plain, None)]).await;
    let job = begun(&setting, setting.tenant).await;
    let mut current = setting.planned(vec![delivery(plain, None)]).await;
    current.catalog = setting.version_of(setting.tenant).await;
    let answers = setting.store.accept(vec![planned, current]).await.expect("answers");
    assert_eq!(answers, [Accepted::Stale, Accepted::Stale]);
    let own = setting.tenant;
    for new in [
        CatalogChange::PutTopic(topic(own, "more")),
        CatalogChange::CreateSubscription(Box::new(subscription(own))),
        CatalogChange::CreateKey(api_key(Some(own))),
        CatalogChange::ChangeTenant {
            tenant: own,
            realm: posthorn_domain::RealmName::default(),
            change: TenantChange {
                deliveries_per_second: Some(Some(1)),
                ..TenantChange::default()
            },
        },
        CatalogChange::DeleteTenant { tenant: own, job: job.id, at: at(150) },
    ] {
        refused(change(&setting, new).await, Refusal::Deleted);
    }
    let more = setting.store.create_job(deletion(own), None, Vec::new()).await;
    assert!(matches!(more, Err(Error::Refused(Refusal::NotFound))), "{more:?}");
    let told = since(&setting, CatalogVersion(0)).await.tenants;
    let told = told.iter().find(|entry| entry.tenant.id == own).expect("it is there");
    let deletion = told.tenant.deletion.expect("it says so");
    assert_eq!((deletion.job, deletion.at, told.removed), (job.id, at(100), false));
    // It is so after a crash as well.
    let setting = setting.reopen(fixture).await;
    let new = setting.planned(vec![delivery(plain, None)]).await;
    assert_eq!(setting.store.accept(vec![new]).await.expect("answers"), [Accepted::Stale]);
}

/// Everything goes, whatever state it is in; then the name is free, and the id never is.
pub async fn everything_goes_and_the_name_is_free(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    furnish(&setting).await;
    let told = since(&setting, CatalogVersion(0)).await.tenants;
    let own = told.iter().find(|entry| entry.tenant.id == setting.tenant).expect("it is there");
    let own = own.tenant.clone();
    let job = begun(&setting, own.id).await;
    let version = setting.version_of(own.id).await;
    let (_, gone) = finish(&setting, &job, 1_000).await;
    assert!(gone >= 5 + 8, "events and deliveries at least, not {gone}");
    has_nothing(&setting, own.id).await;
    let setting = setting.reopen(fixture).await;
    has_nothing(&setting, own.id).await;
    let told = since(&setting, version).await.tenants;
    let left = told.iter().find(|entry| entry.tenant.id == own.id).expect("others are told");
    assert!(left.removed && left.tenant.name.is_empty());
    assert_eq!(left.tenant.deletion.map(|deletion| deletion.job), Some(job.id));
    let twin = posthorn_domain::Tenant { name: format!("x-{}", unique()), ..own.clone() };
    refused(change(&setting, CatalogChange::CreateTenant(twin)).await, Refusal::AlreadyExists);
    let heir = posthorn_domain::Tenant { name: own.name.clone(), ..tenant() };
    change(&setting, CatalogChange::CreateTenant(heir)).await.expect("the name is free");
    let again = CatalogChange::DeleteTenant { tenant: own.id, job: job.id, at: at(300) };
    refused(change(&setting, again).await, Refusal::Deleted);
    let done = setting.store.job(own.id, job.id).await.expect("answers").expect("the job stays");
    assert_eq!((done.state, done.finished_at), (JobState::Done, Some(at(200))));
    assert_eq!(done.done, gone as u64, "its progress is what went");
    let late = setting.store.advance_job(bite(&job, 10)).await.expect("answers");
    assert_eq!((late.done, late.state), (0, JobState::Done));
}

/// Publishers and receivers that go on while it is deleted leave nothing behind, and what was accepted before is counted away.
pub async fn nothing_slips_in_beside_it(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (plain, ordered) = (setting.subscribe().await, setting.subscribe().await);
    let planned = setting.planned(vec![delivery(plain, None)]).await;
    let (own, catalog) = (setting.tenant, planned.catalog);
    let setting = Arc::new(setting);
    let closed = Arc::new(AtomicBool::new(false));
    let publishers: Vec<_> = (0..4)
        .map(|_| {
            let (setting, closed) = (Arc::clone(&setting), Arc::clone(&closed));
            tokio::spawn(async move {
                let mut stored = 0;
                loop {
                    let late = closed.load(Ordering::SeqCst);
                    let deliveries = vec![delivery(plain, None), delivery(ordered, whole())];
                    let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.id).collect();
                    let new = NewEvent {
                        event: Arc::new(event(own)),
                        idempotency: Some(idempotency(&format!("k{}", unique()), 1)),
                        catalog,
                        deliveries,
                    };
                    match setting.store.accept(vec![new]).await.expect("an answer").pop() {
                        Some(Accepted::Stored(_)) if !late => stored += 1,
                        Some(Accepted::Stale) => return stored,
                        other => panic!("late: {late}, {other:?}"),
                    }
                    let record = Record {
                        fence: setting.fence(plain),
                        tenant: own,
                        delivery: ids[0],
                        expected_attempts: 0,
                        expected_revival: 0,
                        ordered: false,
                        step: delivered(),
                        attempt: Some(attempt(ids[0], 1, 200)),
                        standing: None,
                        told: Vec::new(),
                        at: at(9),
                    };
                    // Written before the deletion got there, or superseded by it.
                    setting.store.record(vec![record]).await.expect("an answer");
                    // A store that never waits would keep the deletion from its turn.
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            })
        })
        .collect();
    while setting.store.counts(Some(own)).await.expect("counts").events < 40 {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let job = begun(&setting, own).await;
    closed.store(true, Ordering::SeqCst);
    let (_, gone) = finish(&setting, &job, 100).await;
    let mut stored = 0;
    for publisher in publishers {
        stored += publisher.await.expect("it ends by itself");
    }
    assert!(stored >= 40 && gone >= stored, "{stored} were accepted, {gone} rows went");
    has_nothing(&setting, own).await;
}

/// Bites are small, each is a step of its own, and a crash between two of them loses nothing.
pub async fn it_goes_in_bites(fixture: &dyn Fixture) {
    let mut setting = Setting::new(fixture).await;
    furnish(&setting).await;
    let job = begun(&setting, setting.tenant).await;
    let (mut bites, mut gone) = (0, 0);
    loop {
        let bitten = advance(&setting, &job, 2).await;
        gone += bitten.done;
        bites += 1;
        assert!(bitten.done <= 4, "an event has two deliveries: {}", bitten.done);
        if bites % 3 == 0 {
            setting = setting.reopen(fixture).await;
        }
        if bitten.state == JobState::Done {
            break;
        }
        let stored = setting.store.job(setting.tenant, job.id).await.expect("answers");
        assert_eq!(stored.expect("it is there").done, gone as u64);
        assert!(bites < 100, "it never ends");
    }
    assert!(bites > 5, "{bites}");
    has_nothing(&setting, setting.tenant).await;
}

/// An attempt that was under way changes nothing when it comes back, and brings nothing back.
pub async fn late_results_change_nothing(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let (one, two) = (setting.publish_one(to).await, setting.publish_one(to).await);
    let early = setting.report(one, delivered(), at(150)).await;
    let late = setting.report(two, delivered(), at(250)).await;
    let job = begun(&setting, setting.tenant).await;
    // Its subscriptions go with the first bite, and nothing of them is due any more.
    advance(&setting, &job, 1).await;
    assert_eq!(setting.ready(to).await, []);
    let due = setting.store.due_subscriptions(&super::builders::all_shards()).await;
    assert_eq!(due.expect("answers"), []);
    assert!(matches!(setting.record_one(early).await, Recorded::Superseded));
    finish(&setting, &job, 1_000).await;
    assert!(matches!(setting.record_one(late).await, Recorded::Superseded));
    has_nothing(&setting, setting.tenant).await;
    let swept = setting.store.sweep_cancelled(100, at(300)).await.expect("answers");
    assert_eq!(swept.cancelled, 0);
    let entered = setting.store.enter_lanes(100, at(2_000_000)).await.expect("answers");
    assert!(entered.subscriptions.is_empty());
}

/// Others keep what they have, whatever a bite of another's job says.
pub async fn others_lose_nothing(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let doomed = setting.other_tenant().await;
    furnish(&setting).await;
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    let before = since(&setting, CatalogVersion(0)).await;
    setting.subscribe_for(doomed).await;
    let job = begun(&setting, doomed).await;
    finish(&setting, &job, 3).await;
    assert_eq!(setting.store.counts(Some(setting.tenant)).await.expect("counts"), counts);
    let after = since(&setting, CatalogVersion(0)).await;
    assert_eq!(after.topics, before.topics);
    assert_eq!(after.keys, before.keys);
    assert_eq!(after.subscriptions, before.subscriptions);
    let dead = DeliveryFilter { state: Some(StateKind::Dead), ..DeliveryFilter::default() };
    let dead = setting.store.deliveries(setting.tenant, dead, Listing::newest(9)).await;
    assert_eq!(dead.expect("a list").items.len(), 1);
    // A job of somebody who is not to be deleted removes nothing.
    let stranger = deletion(setting.tenant);
    setting.store.create_job(stranger.clone(), None, Vec::new()).await.expect("a job");
    let refused = setting.store.advance_job(bite(&stranger, 100)).await;
    assert!(matches!(refused, Err(Error::Refused(Refusal::NotFound))), "{refused:?}");
    assert_eq!(setting.store.counts(Some(setting.tenant)).await.expect("counts"), counts);
}

/// The end of a deletion is told by the bite that buries the tenant, which is one that found nothing else to do.
pub async fn its_end_is_told_once(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let operators = setting.other_tenant().await;
    let to = setting.subscribe_for(operators).await;
    furnish(&setting).await;
    let job = begun(&setting, setting.tenant).await;
    let biting = async |done: u64| {
        let event = Event { topic: TopicName::operational(), ..event(operators) };
        let told = vec![NewEvent {
            event: Arc::new(event),
            idempotency: None,
            catalog: setting.version_of(operators).await,
            deliveries: vec![delivery(to, None)],
        }];
        Bite { ending: Some(Ending { told, seen: 0, done }), ..bite(&job, 10_000) }
    };
    let heard = async || {
        let all = EventFilter::default();
        let page = setting.store.events(operators, all, Listing::newest(10)).await;
        page.expect("a list").items.len()
    };
    let mut gone = 0;
    let stale = loop {
        let bitten = setting.store.advance_job(biting(0).await).await;
        match bitten {
            Ok(bitten) => {
                assert_eq!((bitten.state, heard().await), (JobState::Running, 0));
                assert!(bitten.done > 0, "each bite takes something away");
                gone += bitten.done as u64;
            }
            Err(refused) => break refused,
        }
    };
    assert!(matches!(stale, Error::Refused(Refusal::Stale)), "it says what is not true: {stale:?}");
    let last = biting(gone).await;
    change(&setting, CatalogChange::PutTopic(topic(operators, "news"))).await.expect("a topic");
    let stale = setting.store.advance_job(last).await;
    assert!(matches!(stale, Err(Error::Refused(Refusal::Stale))), "{stale:?}");
    assert_eq!(heard().await, 0);
    for _ in 0..2 {
        let last = setting.store.advance_job(biting(gone).await).await.expect("the end");
        assert_eq!((last.done, last.state, heard().await), (0, JobState::Done, 1));
    }
    let job = setting.store.job(setting.tenant, job.id).await.expect("answers").expect("kept");
    assert_eq!((job.state, job.done), (JobState::Done, gone));
}

/// What else ran for the tenant is stopped at once, and the default tenant is never deleted.
pub async fn its_other_jobs_stop(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    furnish(&setting).await;
    let other = super::jobs::begun(&setting).await;
    let job = begun(&setting, setting.tenant).await;
    advance(&setting, &job, 1).await;
    let running = setting.store.running_jobs(10).await.expect("answers");
    let running: Vec<JobId> = running.iter().map(|(job, _)| job.id).collect();
    assert_eq!(running, [job.id], "not {}", other.id);
    assert!(setting.store.running_redrives(10).await.expect("answers").is_empty());
    let late = setting.store.create_redrive(redrive(setting.tenant, at(1_000))).await;
    assert!(matches!(late, Err(Error::Refused(Refusal::NotFound))), "{late:?}");
    finish(&setting, &job, 1_000).await;
    let late = setting.store.create_redrive(redrive(setting.tenant, at(1_000))).await;
    assert!(matches!(late, Err(Error::Refused(Refusal::NotFound))), "{late:?}");
    assert_eq!(setting.store.job(setting.tenant, other.id).await.expect("answers"), None);
    let default = TenantId::DEFAULT;
    let first = deletion(default);
    let delete = CatalogChange::DeleteTenant { tenant: default, job: first.id, at: at(100) };
    let refused = setting.store.create_job(first.clone(), Some(delete), Vec::new()).await;
    assert!(matches!(refused, Err(Error::Refused(Refusal::NotEmpty))), "{refused:?}");
    assert_eq!(setting.store.job(default, first.id).await.expect("answers"), None);
}

/// Figures of a tenant, of subscriptions that it has had and of its topics go with it, by the minute and by the hour. Those
/// of others, of its realm and of the server stay.
pub async fn its_figures_go(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let (kept, deleted) = (setting.subscribe().await, setting.subscribe().await);
    let theirs = setting.subscribe_for(other).await;
    setting.unsubscribe(deleted, at(50)).await;
    let topic = |name: &str| TopicName::new(name).expect("a name");
    let own = [
        RollupScope::Tenant(setting.tenant),
        RollupScope::Subscription(kept),
        RollupScope::Subscription(deleted),
        RollupScope::Topic(setting.tenant, topic("orders")),
        RollupScope::Topic(setting.tenant, topic("orders.paid")),
    ];
    let others = [
        RollupScope::Server,
        RollupScope::Tenant(other),
        RollupScope::Subscription(theirs),
        RollupScope::Topic(other, topic("orders")),
    ];
    let begin = RollupStep::Hour.ceil(at(0));
    let counts = RollupCounts { published: 3, ..RollupCounts::default() };
    let rows = |minute: Timestamp| {
        let row = |scope: &RollupScope| MinuteRollup { scope: scope.clone(), minute, counts };
        own.iter().chain(&others).map(row).collect::<Vec<_>>()
    };
    let later = begin.plus(Span::from_secs(7_200));
    let minutes = [rows(begin), rows(later)].concat();
    let rollups = Rollups { node: node(), number: 1, minutes };
    setting.store.record_with(Vec::new(), Some(rollups)).await.expect("written");
    let never = Timestamp::MIN;
    let limit = 1_000;
    let fold_before = begin.plus(Span::from_secs(3_600));
    let fold = TendRollups { fold_before, minutes_before: never, hours_before: never, limit };
    setting.store.tend_rollups(fold).await.expect("added to its hour");
    let steps = async |setting: &Setting, scope: &RollupScope, step| {
        let until = later.plus(Span::from_secs(60));
        let ask = SeriesAsk { scope: scope.clone(), step, from: begin, until };
        setting.store.series(ask).await.expect("a series").len()
    };
    let job = begun(&setting, setting.tenant).await;
    finish(&setting, &job, 2).await;
    for step in [RollupStep::Minute, RollupStep::Hour] {
        for scope in &own {
            assert_eq!(steps(&setting, scope, step).await, 0, "{scope} by the {step:?}");
        }
        for scope in &others {
            assert_eq!(steps(&setting, scope, step).await, 2, "{scope} by the {step:?}");
        }
    }
}
