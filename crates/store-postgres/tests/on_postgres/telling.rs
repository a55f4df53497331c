//! Operational events beside everything that needs the same locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use posthorn_conformance::builders::{Setting, at, delivery, event, lane, topic};
use posthorn_domain::{
    Event, Job, JobId, JobState, JobWork, ReplayStatus, Selection, SubscriptionId, TenantId,
    TopicName,
};
use posthorn_store::{CatalogChange, Ending, Error, NewEvent, Record, Recorded, Refusal, Store};
use tokio::time::timeout;

use crate::fixture::{Databases, connect};
use crate::nodes::{PATIENCE, STRESS, success};

/// Two tenants in which everything is told, each in a lane of one subscription.
#[derive(Clone)]
struct Stage {
    setting: Arc<Setting>,
    ears: [(TenantId, SubscriptionId); 2],
    stop: Arc<AtomicBool>,
}

impl Stage {
    /// Whether to go on, for a task that has told so often. Whoever has not told yet goes on for as long as it takes: who
    /// changes the catalog makes the plans of others stale, and may have kept one of them from writing until then.
    fn goes_on(&self, done: usize) -> bool {
        done == 0 || !self.stop.load(Ordering::Relaxed)
    }

    /// What is told in both tenants, planned on the present.
    async fn told(&self) -> Vec<NewEvent> {
        let mut told = Vec::new();
        for (tenant, to) in self.ears {
            let event = Event { topic: TopicName::operational(), ..event(tenant) };
            told.push(NewEvent {
                event: Arc::new(event),
                idempotency: None,
                catalog: self.setting.version_of(tenant).await,
                deliveries: vec![delivery(to, lane("told"))],
            });
        }
        told
    }

    /// Repeats something that tells until it is not stale; whether it was done.
    async fn tell<T, F>(&self, done: usize, write: impl Fn(Vec<NewEvent>) -> F) -> bool
    where
        F: Future<Output = Result<T, Error>>,
    {
        while self.goes_on(done) {
            match write(self.told().await).await {
                Ok(_) => return true,
                Err(Error::Refused(Refusal::Stale)) => {}
                Err(e) => panic!("{e:?}"),
            }
        }
        false
    }
}

/// Changes the catalog of a tenant, telling of it; how often.
async fn change(stage: Stage, store: Arc<dyn Store>, tenant: TenantId) -> usize {
    let mut done = 0;
    while stage.goes_on(done) {
        let made = topic(tenant, &format!("t-{}", done % 7));
        let change = CatalogChange::PutTopic(made);
        let write = |told: Vec<NewEvent>| store.change_catalog_with(change.clone(), told.into());
        done += usize::from(stage.tell(done, write).await);
    }
    done
}

/// Publishes to the ears' own lanes, and delivers what it published, telling of it; how often.
async fn deliver(stage: Stage, store: Arc<dyn Store>) -> usize {
    let (setting, mut done) = (&stage.setting, 0);
    let (tenant, to) = stage.ears[0];
    while stage.goes_on(done) {
        let catalog = setting.version_of(tenant).await;
        let new = |_| NewEvent {
            event: Arc::new(event(tenant)),
            idempotency: None,
            catalog,
            deliveries: vec![delivery(to, None)],
        };
        let batch: Vec<NewEvent> = (0..3).map(new).collect();
        let ids: Vec<_> = batch.iter().map(|new| new.deliveries[0].id).collect();
        let replies = store.accept(batch).await.expect("accept");
        if replies.iter().any(|reply| !matches!(reply, posthorn_store::Accepted::Stored(_))) {
            continue;
        }
        let mut left: Vec<Record> = ids.iter().map(|id| success(setting, to, *id)).collect();
        while !left.is_empty() && stage.goes_on(done) {
            // The first tells, the others do not.
            left[0].told = stage.told().await;
            let replies = store.record(left.clone()).await.expect("record");
            let mut stale = Vec::new();
            for (record, reply) in left.into_iter().zip(replies) {
                match reply {
                    Recorded::Written { .. } => done += usize::from(!record.told.is_empty()),
                    Recorded::Stale => stale.push(record),
                    other => panic!("{other:?}"),
                }
            }
            left = stale;
        }
    }
    done
}

/// Begins jobs and cancels them, telling of it; how often.
async fn cancel(stage: Stage, store: Arc<dyn Store>) -> usize {
    let (tenant, mut done) = (stage.setting.tenant, 0);
    while stage.goes_on(done) {
        let work = JobWork::Replay {
            subscription: None,
            events: Selection::default(),
            status: ReplayStatus::Failed,
            budget: posthorn_domain::Budget::Fresh,
        };
        let job = Job {
            id: JobId::new(at(0), posthorn_conformance::builders::unique().into()),
            tenant,
            work,
            per_second: 1,
            state: JobState::Running,
            seen: 0,
            done: 0,
            created_by: String::new(),
            created_at: at(0),
            finished_at: None,
            problem: None,
        };
        let id = job.id;
        store.create_job(job, None, Vec::new()).await.expect("a job");
        let write =
            |told| store.cancel_job(tenant, id, at(5), Some(Ending { told, seen: 0, done: 0 }));
        done += usize::from(stage.tell(done, write).await);
    }
    done
}

/// Outcomes, changes of both catalogs and cancelled jobs tell in the same lanes at once: no deadlock reaches anybody, and
/// there are as many events as causes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everything_tells_at_once_and_nothing_is_told_twice_or_forgotten() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let url = databases.url_of(&setting.store);
    let other = setting.other_tenant().await;
    let ears =
        [(setting.tenant, setting.subscribe().await), (other, setting.subscribe_for(other).await)];
    let stage = Stage { setting, ears, stop: Arc::default() };
    let mut tasks = Vec::new();
    for tenant in [stage.setting.tenant, other] {
        let store: Arc<dyn Store> = Arc::new(connect(&url).await);
        tasks.push(tokio::spawn(change(stage.clone(), store, tenant)));
    }
    for _ in 0..2 {
        let store: Arc<dyn Store> = Arc::new(connect(&url).await);
        tasks.push(tokio::spawn(deliver(stage.clone(), store)));
    }
    let store: Arc<dyn Store> = Arc::new(connect(&url).await);
    tasks.push(tokio::spawn(cancel(stage.clone(), store)));
    tokio::time::sleep(STRESS).await;
    stage.stop.store(true, Ordering::Relaxed);
    let mut causes = Vec::new();
    for task in tasks {
        let ended = timeout(PATIENCE, task).await.expect("nobody waits for ever");
        causes.push(ended.expect("no deadlock, and nothing else"));
    }
    let all: usize = causes.iter().sum();
    for (tenant, to) in stage.ears {
        let heard = stage.setting.store.counts(Some(tenant)).await.expect("counts");
        let waiting = stage.setting.store.pending(
            vec![posthorn_store::PendingAsk {
                subscription: to,
                from: posthorn_domain::Timestamp::MIN,
                until: posthorn_domain::Timestamp::MAX,
                limit: 10,
            }],
            usize::MAX,
        );
        let heads = waiting.await.expect("an answer").remove(0);
        let in_lane = heads.iter().filter(|work| work.delivery.lane == lane("told")).count();
        assert_eq!(in_lane, 1, "one of the lane heads it");
        if tenant != stage.setting.tenant {
            assert_eq!(heard.pending, all as u64, "one event for each cause");
        }
    }
    assert!(causes.iter().all(|times| *times > 0), "all of them did something: {causes:?}");
}
