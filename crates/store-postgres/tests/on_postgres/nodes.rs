//! Several nodes on one database.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthorn_conformance::Fixture;
use posthorn_conformance::builders::{
    Setting, all_shards, at, attempt, delivered, delivery, event, lane, node, subscription,
};
use posthorn_conformance::push::{PushFixture, channel_id, further, newcomer};
use posthorn_domain::{CatalogVersion, DeliveryId, Lane, Shard, SubscriptionId};
use posthorn_store::push::Registered;
use posthorn_store::{Accepted, CatalogChange, NewEvent, Record, Recorded, Store};
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::{Databases, connect, database, raw, until_somebody_waits, uuid_text};

/// How long the stress tests run, at least.
pub(crate) const STRESS: Duration = Duration::from_secs(3);
/// How long they may take on a busy machine until they did something.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How many deliveries are something.
const ENOUGH: u64 = 100;
pub(crate) const LANES: usize = 5;

async fn planned(
    setting: &Setting,
    catalog: CatalogVersion,
    to: SubscriptionId,
    lanes: &[Option<Lane>],
) -> Vec<NewEvent> {
    let new = |lane: &Option<Lane>| NewEvent {
        event: Arc::new(event(setting.tenant)),
        idempotency: None,
        catalog,
        deliveries: vec![delivery(to, lane.clone())],
    };
    lanes.iter().map(new).collect()
}

/// Publishes batches over several lanes from one node until told to stop; checks that its own
/// calls, one after the other, get growing sequence numbers in every lane.
pub(crate) async fn publish(
    setting: Arc<Setting>,
    store: Arc<dyn Store>,
    to: SubscriptionId,
    catalog: CatalogVersion,
    stop: Arc<AtomicBool>,
) -> usize {
    let mut last: HashMap<usize, u64> = HashMap::new();
    let mut published = 0;
    while !stop.load(Ordering::Relaxed) {
        let numbers: Vec<usize> = (0..8).map(|n| (published + n * 3) % LANES).collect();
        let lanes: Vec<Option<Lane>> = numbers.iter().map(|n| lane(&format!("lane-{n}"))).collect();
        let batch = planned(&setting, catalog, to, &lanes).await;
        let replies = store.accept(batch).await.expect("accept");
        for (number, reply) in numbers.iter().zip(replies) {
            let Accepted::Stored(placed) = reply else { panic!("{reply:?}") };
            let before = last.insert(*number, placed[0].seq).unwrap_or(0);
            assert!(before < placed[0].seq, "sequence follows the calls");
        }
        published += numbers.len();
    }
    published
}

pub(crate) fn success(setting: &Setting, to: SubscriptionId, id: DeliveryId) -> Record {
    Record {
        fence: setting.fence(to),
        tenant: setting.tenant,
        delivery: id,
        expected_attempts: 0,
        expected_revival: 0,
        ordered: true,
        step: delivered(),
        attempt: Some(attempt(id, 1, 200)),
        standing: None,
        told: Vec::new(),
        at: at(10),
    }
}

/// Three nodes publish into the same lanes while a fourth delivers: in every lane deliveries become
/// due in the order of their sequence, which is only so when that is the order of commits, and in
/// the end none was forgotten behind a head that had gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lanes_keep_commit_order_across_nodes_and_forget_nobody() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let url = databases.url_of(&setting.store);
    let to = setting.subscribe().await;
    let catalog = setting.version_of(setting.tenant).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut publishers = Vec::new();
    for _ in 0..3 {
        let store: Arc<dyn Store> = Arc::new(connect(&url).await);
        let (setting, stop) = (Arc::clone(&setting), Arc::clone(&stop));
        publishers.push(tokio::spawn(publish(setting, store, to, catalog, stop)));
    }
    let begun = Instant::now();
    let mut last: HashMap<Option<Lane>, u64> = HashMap::new();
    let mut done = 0;
    let mut published = None;
    loop {
        let long_enough = begun.elapsed() > STRESS && done > ENOUGH;
        if (long_enough || begun.elapsed() > PATIENCE) && published.is_none() {
            stop.store(true, Ordering::Relaxed);
            let mut sum = 0;
            for publisher in publishers.drain(..) {
                sum += publisher.await.expect("a publisher");
            }
            published = Some(sum);
        }
        let due = setting.pending(to, at(1_000)).await;
        if due.is_empty() && published.is_some() {
            break;
        }
        let records = due.iter().map(|work| {
            let lane = work.delivery.lane.clone();
            let before = last.insert(lane, work.delivery.seq).unwrap_or(0);
            assert!(before < work.delivery.seq, "{before} then {}", work.delivery.seq);
            success(&setting, to, work.delivery.id)
        });
        for reply in setting.store.record(records.collect()).await.expect("record") {
            assert!(matches!(reply, Recorded::Written { .. }), "{reply:?}");
            done += 1;
        }
    }
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.pending, counts.delivered), (0, done), "nobody is left behind");
    assert_eq!(published, usize::try_from(done).ok());
    assert!(done > ENOUGH, "the test did something: {done}");
}

/// Operators cancel and retry while two nodes publish and one delivers: no deadlock reaches
/// anybody, no lane is left without a head.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lanes_survive_operators_and_publishers_at_once() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let url = databases.url_of(&setting.store);
    let to = setting.subscribe().await;
    let catalog = setting.version_of(setting.tenant).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut publishers = Vec::new();
    for _ in 0..2 {
        let store: Arc<dyn Store> = Arc::new(connect(&url).await);
        let (setting, stop) = (Arc::clone(&setting), Arc::clone(&stop));
        publishers.push(tokio::spawn(publish(setting, store, to, catalog, stop)));
    }
    let operator = {
        let store = connect(&url).await;
        let (setting, stop) = (Arc::clone(&setting), Arc::clone(&stop));
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                for work in setting.pending(to, at(1_000)).await {
                    let id = work.delivery.id;
                    let moved = store.cancel_delivery(setting.tenant, id, at(20)).await;
                    if moved.is_ok() {
                        store.retry_delivery(setting.tenant, id, at(30)).await.expect("a retry");
                    }
                }
            }
        })
    };
    let until = Instant::now() + STRESS;
    while Instant::now() < until {
        let due = setting.pending(to, at(1_000)).await;
        let records = due.iter().map(|work| success(&setting, to, work.delivery.id)).collect();
        setting.store.record(records).await.expect("record");
    }
    stop.store(true, Ordering::Relaxed);
    for publisher in publishers {
        publisher.await.expect("a publisher");
    }
    operator.await.expect("the operator");
    loop {
        let due = setting.pending(to, at(1_000)).await;
        if due.is_empty() {
            break;
        }
        let records = due.iter().map(|work| success(&setting, to, work.delivery.id)).collect();
        setting.store.record(records).await.expect("record");
    }
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!(counts.pending, 0, "nobody is left behind");
}

/// A subscription that was created on one node, with the answer in hand, is never missed by an
/// accept that begins afterwards on another, however busy both are.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn new_subscription_makes_old_plans_stale_everywhere() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let url = databases.url_of(&setting.store);
    let other: Arc<dyn Store> = Arc::new(connect(&url).await);
    let to = setting.subscribe().await;
    for _ in 0..40 {
        let old = setting.version_of(setting.tenant).await;
        let background: Vec<_> = (0..4)
            .map(|_| {
                let (other, setting) = (Arc::clone(&other), Arc::clone(&setting));
                tokio::spawn(async move {
                    let batch = planned(&setting, old, to, &[None, None]).await;
                    other.accept(batch).await.expect("accept")
                })
            })
            .collect();
        let new = Box::new(subscription(setting.tenant));
        let change = CatalogChange::CreateSubscription(new);
        let version = setting.store.change_catalog(change).await.expect("a subscription");
        assert!(version > old);
        let batch = planned(&setting, old, to, &[None]).await;
        assert_eq!(other.accept(batch).await.expect("accept"), [Accepted::Stale]);
        let batch = planned(&setting, version, to, &[None]).await;
        let replies = other.accept(batch).await.expect("accept");
        assert!(matches!(replies[0], Accepted::Stored(_)));
        for task in background {
            // Before or after the change, but never half.
            let replies = task.await.expect("an accept");
            let stored = replies.iter().filter(|r| matches!(r, Accepted::Stored(_))).count();
            assert!(stored == 0 || stored == replies.len(), "{replies:?}");
        }
    }
}

/// Once another node has taken a shard, a write of the old owner that begins then changes nothing,
/// and what the old owner had written is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn late_writer_is_fenced_after_a_take_over() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let other = connect(&databases.url_of(&setting.store)).await;
    let to = setting.subscribe().await;
    for round in 0..10 {
        let id = setting.publish_one(to).await;
        let written = setting.publish_one(to).await;
        let record = success(&setting, to, written);
        let writing = {
            let setting = Arc::clone(&setting);
            tokio::spawn(async move { setting.record_one(record).await })
        };
        let grants: Vec<_> = [Shard::of(to)]
            .into_iter()
            .map(|shard| posthorn_store::Grant { shard, epoch: setting.fence(to).epoch })
            .collect();
        if round > 0 {
            // The rounds after the first only race the write with losing the shard.
            assert_eq!(writing.await.expect("a write"), Recorded::Fenced);
            continue;
        }
        setting.store.release_shards(setting.node, &grants).await.expect("a release");
        let taker = node();
        let taken = other.acquire_shards(taker, &[Shard::of(to)], Duration::from_secs(60)).await;
        let taken = taken.expect("a take-over");
        assert_eq!(taken[0].epoch.0, grants[0].epoch.0 + 1);
        let late = setting.record_one(success(&setting, to, id)).await;
        assert_eq!(late, Recorded::Fenced);
        assert!(!setting.look(id).await.state.is_terminal());
        let first = writing.await.expect("a write");
        let ended = setting.look(written).await.state.is_terminal();
        assert_eq!(matches!(first, Recorded::Written { .. }), ended);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_reach_the_other_node_and_not_oneself() {
    let url = database().await;
    let (one, two) = (connect(&url).await, connect(&url).await);
    let shards: Vec<Shard> = all_shards().into_iter().filter(|s| s.number() % 9 == 0).collect();
    // The listening connection may still be on its way.
    let heard = timeout(Duration::from_secs(20), async {
        loop {
            one.notify(&shards).await.expect("notify");
            if let Ok(heard) = timeout(Duration::from_millis(200), two.notified()).await {
                return heard;
            }
        }
    });
    assert_eq!(heard.await.expect("a hint"), shards);
    assert!(timeout(Duration::from_millis(200), one.notified()).await.is_err());
    one.notify(&[]).await.expect("notify");
    let heard = timeout(Duration::from_secs(20), async {
        // Earlier repetitions may still arrive.
        while !two.notified().await.is_empty() {}
    });
    heard.await.expect("a hint about the catalog");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_may_start_on_an_empty_database_at_once() {
    let url =
        posthorn_testkit::postgres::shared().create_database("start_together").expect("a database");
    let starting: Vec<_> = (0..4)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { connect(&url).await })
        })
        .collect();
    let mut stores = Vec::new();
    for task in starting {
        stores.push(task.await.expect("a start"));
    }
    let client = raw(&url).await;
    let row = client.query_one("select count(*) from migration", &[]).await.expect("a count");
    let files =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations")).expect("migrations");
    assert_eq!(row.get::<_, i64>(0), files.count() as i64, "each was applied once");
    for store in &stores {
        store.ping().await.expect("an answer");
    }
    // Two stores in schemas of their own share nothing.
    let mut options = crate::fixture::options(&url);
    options.schema = Some("other \"one\"".to_owned());
    let apart = posthorn_store_postgres::PostgresStore::connect(options).await.expect("a schema");
    let change = CatalogChange::CreateTenant(posthorn_conformance::builders::tenant());
    stores[0].change_catalog(change).await.expect("a tenant");
    let delta = apart.catalog_since(CatalogVersion(0)).await.expect("a catalog");
    assert_eq!(delta.tenants.len(), 1);
    sleep(Duration::from_millis(1)).await;
}

/// Two connections that never listen to each other must still agree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_stores_the_other_reads() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let other = connect(&databases.url_of(&setting.store)).await;
    let to = setting.subscribe().await;
    let id = setting.publish_one(to).await;
    let seen = other.delivery(setting.tenant, id).await.expect("a lookup").expect("a delivery");
    assert_eq!(seen, setting.look(id).await);
    let due = other.due_subscriptions(&all_shards()).await.expect("due");
    assert_eq!(due.len(), 1);
    drop(databases.reopen(setting.store).await);
}

/// Claims and records write rows anew. Whoever waits for the old row must find the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivery_that_is_written_anew_is_found() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let client = raw(&databases.url_of(&setting.store)).await;
    let watch = raw(&databases.url_of(&setting.store)).await;
    let to = setting.subscribe().await;
    for what in 0..3 {
        let id = setting.publish_one(to).await;
        let key = uuid_text(id);
        let anew = format!(
            "begin; create temp table moved on commit drop as \
             select * from delivery_live where id = '{key}'; \
             delete from delivery_live where id = '{key}'; \
             insert into delivery_live select * from moved"
        );
        client.batch_execute(&anew).await.expect("written anew");
        let task = {
            let setting = Arc::clone(&setting);
            tokio::spawn(async move {
                let (store, tenant) = (&setting.store, setting.tenant);
                match what {
                    0 => store.retry_delivery(tenant, id, at(9)).await,
                    1 => store.cancel_delivery(tenant, id, at(9)).await,
                    _ => store.forget_delivery(tenant, id, at(9)).await,
                }
            })
        };
        until_somebody_waits(&watch).await;
        client.batch_execute("commit").await.expect("a commit");
        let moved = task.await.expect("no panic").expect("the delivery is there");
        assert_eq!(moved.delivery.id, id);
    }
}

/// What comes too late for a delivery that was removed for good leaves no row behind; for one that
/// was only cancelled it does.
#[tokio::test]
async fn late_attempt_of_a_forgotten_delivery_is_not_written() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let client = raw(&databases.url_of(&setting.store)).await;
    let to = setting.subscribe().await;
    let rows = async || {
        let row = client.query_one("select count(*) from attempt", &[]).await.expect("a count");
        row.get::<_, i64>(0)
    };
    let forgotten = setting.publish_one(to).await;
    setting.store.forget_delivery(setting.tenant, forgotten, at(5)).await.expect("forgotten");
    let late = success(&setting, to, forgotten);
    let replies = setting.store.record(vec![late]).await.expect("record");
    assert_eq!(replies, [Recorded::Superseded]);
    assert_eq!(rows().await, 0);
    let cancelled = setting.publish_one(to).await;
    setting.store.cancel_delivery(setting.tenant, cancelled, at(5)).await.expect("cancelled");
    let late = success(&setting, to, cancelled);
    assert_eq!(setting.store.record(vec![late]).await.expect("record"), [Recorded::Superseded]);
    assert_eq!(rows().await, 1);
}

/// Whoever waits for an agent of its batch holds none with a greater id, also when a batch has an
/// agent twice: so two nodes never wait for each other.
#[tokio::test]
async fn channels_are_registered_in_the_order_of_their_agents() {
    let databases = Databases::default();
    let store = databases.push_store().await;
    let url = databases.url_of(&store);
    let mut agents = Vec::new();
    for _ in 0..3 {
        agents.push(newcomer(&*store, at(0)).await.0);
    }
    agents.sort_unstable();
    let [a, b, c] = agents[..] else { panic!("three") };
    let hold = |wanted: &str| {
        format!("begin; select from push_agent where id in ({wanted}) for no key update nowait")
    };
    let holder = raw(&url).await;
    holder.batch_execute(&hold(&format!("'{a}'"))).await.expect("held");
    let batch = [b, c, c, a].map(|agent| further(agent, channel_id())).to_vec();
    let registering = tokio::spawn(async move { store.register_channels(batch).await });
    let looker = raw(&url).await;
    let waits = "select from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'";
    let waiting = async {
        while looker.query(waits, &[]).await.expect("an answer").is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(30), waiting).await.expect("it waits for the first");
    let free = looker.batch_execute(&hold(&format!("'{b}', '{c}'"))).await;
    free.expect("nobody holds the others");
    looker.batch_execute("rollback").await.expect("let go");
    holder.batch_execute("rollback").await.expect("let go");
    let registered = registering.await.expect("no panic").expect("register");
    assert_eq!(registered, [Registered::New; 4]);
}
