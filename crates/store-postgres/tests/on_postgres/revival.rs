//! Deliveries that come back into a lane while other connections lease its head and write down what
//! became of it. Those remove the head's row and write it anew, and hold no lock of the lane for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use posthorn_conformance::builders::{
    Setting, at, dead_skip, delivered, failed, lane, postponed, redrive, whole,
};
use posthorn_domain::delivery::Step;
use posthorn_domain::{
    Delivery, DeliveryId, DeliveryState, Lane, RedriveState, Shard, SubscriptionId,
};
use posthorn_store::{
    Claim, DeliveryFilter, Error, Listing, Moved, PendingAsk, Record, Recorded, Refusal, Result,
    StateKind, Store, Work,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Client;

use crate::fixture::{Databases, connect, raw, until_somebody_waits, uuid_text};

/// How long the stress test runs, at least.
const STRESS: Duration = Duration::from_secs(2);
/// How long it may take on a busy machine until enough was done.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is enough: outcomes written down, and dead letters that came back.
const ENOUGH: (usize, usize) = (50, 20);
const LANES: usize = 6;

/// What was done so far, and whether to stop.
#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    written: AtomicUsize,
    moved: AtomicUsize,
}

impl Progress {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn is_enough(&self) -> bool {
        let (written, moved) = ENOUGH;
        self.written.load(Ordering::Relaxed) > written && self.moved.load(Ordering::Relaxed) > moved
    }
}

/// A dead letter and the head behind it.
async fn dead_and_head(setting: &Setting) -> (DeliveryId, DeliveryId) {
    let to = setting.subscribe().await;
    let dead = setting.publish_in(to, whole()).await;
    let head = setting.publish_in(to, whole()).await;
    setting.record(dead, dead_skip(), at(5)).await;
    (dead, head)
}

/// Retries one while somebody else, in a transaction that has begun, does `change` to the head.
async fn retry_during(
    setting: &Arc<Setting>,
    url: &str,
    (dead, head): (DeliveryId, DeliveryId),
    change: &str,
) -> Moved {
    let (other, watch) = (raw(url).await, raw(url).await);
    let key = uuid_text(head);
    let anew = format!(
        "begin; create temp table moved on commit drop as \
         select * from delivery_live where id = '{key}'; \
         update moved set {change}; \
         delete from delivery_live where id = '{key}'; \
         insert into delivery_live select * from moved"
    );
    other.batch_execute(&anew).await.expect("written anew");
    let retrying = {
        let setting = Arc::clone(setting);
        tokio::spawn(async move { setting.store.retry_delivery(setting.tenant, dead, at(9)).await })
    };
    timeout(Duration::from_secs(30), until_somebody_waits(&watch)).await.expect("it waits");
    other.batch_execute("commit").await.expect("a commit");
    retrying.await.expect("no panic").expect("it is retried")
}

/// A head that was moved while the retry waited for it has to wait all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_that_is_written_anew_is_made_to_wait() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let url = databases.url_of(&setting.store);
    let (dead, head) = dead_and_head(&setting).await;
    let due = at(700).as_millis();
    let change = format!("due_at = {due}, attempts = attempts + 1");
    let moved = retry_during(&setting, &url, (dead, head), &change).await;
    assert_eq!(moved.ready.map(|work| work.delivery.id), Some(dead));
    assert!(moved.recall.is_some());
    let waits = setting.look(head).await;
    assert!(waits.is_parked());
    assert_eq!((waits.attempts, waits.revival), (1, 1));
    let next = setting.record(dead, delivered(), at(20)).await.expect("the next goes on");
    assert_eq!((next.delivery.id, next.delivery.due_at), (head, at(700)));
}

/// A head that got a lease while the retry waited for it is under way, and is not overtaken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_that_is_leased_meanwhile_is_not_made_to_wait() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let url = databases.url_of(&setting.store);
    let (dead, head) = dead_and_head(&setting).await;
    let change = format!("state = 1, due_at = {}", at(700).as_millis());
    let moved = retry_during(&setting, &url, (dead, head), &change).await;
    assert!(moved.delivery.is_parked());
    assert_eq!((moved.ready, moved.recall), (None, None));
    let leased = setting.look(head).await;
    assert_eq!((leased.state, leased.due_at), (DeliveryState::InFlight, at(700)));
    let next = setting.record(head, delivered(), at(20)).await.expect("the next goes on");
    assert_eq!(next.delivery.id, dead);
}

/// A success that arrives while somebody cancels and retries the delivery: whoever writes it down could not
/// know which lane to hold, so it does not end the new head.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn success_that_did_not_hold_the_lane_ends_nobody_who_came_back() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let url = databases.url_of(&setting.store);
    let (holder, watch) = (raw(&url).await, raw(&url).await);
    let to = setting.subscribe().await;
    let id = setting.publish_in(to, whole()).await;
    let record = setting.report(id, delivered(), at(30)).await;
    setting.store.cancel_delivery(setting.tenant, id, at(6)).await.expect("it is cancelled");
    // Between the locks of lanes and the record.
    let shard = Shard::of(to).number();
    let hold = format!("begin; select pg_advisory_xact_lock(720103, {shard})");
    holder.batch_execute(&hold).await.expect("held");
    let recording = {
        let setting = Arc::clone(&setting);
        tokio::spawn(async move { setting.store.record(vec![record]).await })
    };
    timeout(Duration::from_secs(30), until_somebody_waits(&watch)).await.expect("it waits");
    setting.store.retry_delivery(setting.tenant, id, at(7)).await.expect("it is retried");
    holder.batch_execute("commit").await.expect("a commit");
    let replies = recording.await.expect("no panic").expect("record");
    assert_eq!(replies, [Recorded::Superseded]);
    let back = setting.look(id).await;
    assert_eq!((back.state, back.revival), (DeliveryState::Pending, 2));
    // With the lane held, what the receiver has, it has.
    let record = Record { expected_revival: 0, ..setting.report(id, delivered(), at(40)).await };
    let replies = setting.store.record(vec![record]).await.expect("record");
    assert_eq!(replies, [Recorded::Written { promoted: None }]);
}

fn claim_of(setting: &Setting, seen: &Delivery) -> Claim {
    Claim {
        fence: setting.fence(seen.subscription),
        delivery: seen.id,
        expected_attempts: seen.attempts,
        expected_revival: seen.revival,
        until: at(900),
    }
}

/// What a batch does to each of its deliveries.
#[derive(Clone, Copy, Debug)]
enum Batch {
    Claims,
    Failures,
    /// Delivered at once and without a lane: written the short way.
    Successes,
    /// Some of each.
    Mixed,
    /// The same delivery twice.
    Repeated,
}

impl Batch {
    fn step(self, place: usize) -> Step {
        match self {
            Self::Successes => delivered(),
            Self::Mixed if place.is_multiple_of(2) => delivered(),
            _ => failed(at(40)),
        }
    }
}

/// Whoever waits for a row of its batch holds none with a greater id, so that nobody waits in a circle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_records_hold_rows_in_the_order_of_ids() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let url = databases.url_of(&setting.store);
    let (holder, looker) = (raw(&url).await, raw(&url).await);
    let to = setting.subscribe().await;
    let hold = |ids: &[DeliveryId]| {
        let keys: Vec<String> = ids.iter().map(|id| format!("'{}'", uuid_text(*id))).collect();
        let keys = keys.join(", ");
        format!("begin; select from delivery_live where id in ({keys}) for update nowait")
    };
    let kinds = [Batch::Claims, Batch::Failures, Batch::Successes, Batch::Mixed, Batch::Repeated];
    for kind in kinds {
        // Whichever of them somebody else holds: those before it may be held, those behind it not.
        for first in 0..4 {
            let mut ids = Vec::new();
            for _ in 0..6 {
                ids.push(setting.publish_one(to).await);
            }
            ids.sort_unstable();
            holder.batch_execute(&hold(&ids[first..=first])).await.expect("held");
            let working = {
                let (setting, ids) = (Arc::clone(&setting), ids.clone());
                tokio::spawn(async move {
                    let (mut claim, mut record) = (Vec::new(), Vec::new());
                    for (place, id) in ids.iter().enumerate().rev() {
                        claim.push(claim_of(&setting, &setting.look(*id).await));
                        record.push(setting.report(*id, kind.step(place), at(30)).await);
                    }
                    if let Batch::Repeated = kind {
                        record.push(setting.report(ids[2], failed(at(50)), at(31)).await);
                    }
                    if let Batch::Claims = kind {
                        let claimed = setting.store.claim(claim).await.expect("claim");
                        return assert_eq!(claimed, [true; 6]);
                    }
                    let written = Recorded::Written { promoted: None };
                    let mut replies = setting.store.record(record).await.expect("record");
                    if let Batch::Repeated = kind {
                        assert_eq!(replies.pop(), Some(Recorded::Superseded));
                    }
                    assert_eq!(replies, vec![written; 6]);
                })
            };
            let waits = timeout(Duration::from_secs(30), until_somebody_waits(&looker)).await;
            waits.expect("it waits");
            let free = looker.batch_execute(&hold(&ids[first + 1..])).await;
            free.unwrap_or_else(|e| panic!("{kind:?}, {first}: others are held: {e}"));
            looker.batch_execute("rollback").await.expect("let go");
            holder.batch_execute("rollback").await.expect("let go");
            working.await.expect("no panic");
        }
    }
}

/// A batch is one transaction, also when something of it is not as it was: what fails leaves nothing behind, and a
/// repeat of the whole writes all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_which_something_has_moved_on_is_written_as_one() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let url = databases.url_of(&setting.store);
    let client = raw(&url).await;
    let to = setting.subscribe().await;
    let (plain, gone) = (setting.publish_one(to).await, setting.publish_one(to).await);
    let tried = setting.publish_one(to).await;
    let mut batch = Vec::new();
    for (id, step) in [(plain, delivered()), (gone, delivered()), (tried, failed(at(40)))] {
        batch.push(setting.report(id, step, at(30)).await);
    }
    setting.store.cancel_delivery(setting.tenant, gone, at(20)).await.expect("it is cancelled");
    // What comes late cannot be kept.
    let refuse = "create function refuse() returns trigger language plpgsql as $$
                      begin raise exception 'no room' using errcode = '53100'; end
                  $$;
                  create trigger refuse before insert on attempt for each row when (new.late)
                      execute function refuse()";
    client.batch_execute(refuse).await.expect("a trigger");
    setting.store.record(batch.clone()).await.expect_err("there is no room");
    for id in [plain, tried] {
        assert_eq!(setting.look(id).await.state, DeliveryState::Pending, "nothing was written");
    }
    client.batch_execute("drop trigger refuse on attempt").await.expect("there is room again");
    let replies = setting.store.record(batch).await.expect("record");
    let written = Recorded::Written { promoted: None };
    assert_eq!(replies, [written.clone(), Recorded::Superseded, written]);
    let late = setting.store.attempts(setting.tenant, gone).await.expect("attempts");
    assert!(matches!(late.as_slice(), [attempt] if attempt.late), "{late:?}");
}

async fn another(url: &str) -> Arc<dyn Store> {
    Arc::new(connect(url).await)
}

async fn heads(store: &dyn Store, to: SubscriptionId) -> Vec<Work> {
    let ask = PendingAsk { subscription: to, from: at(0), until: at(1_000), limit: 100 };
    let mut found = store.pending(vec![ask], usize::MAX).await.expect("pending");
    found.pop().expect("an answer")
}

/// Leases the heads of some lanes and writes down what became of them, the last first, until told to
/// stop. Whatever was leased is still as it was when the outcome comes: nobody overtook it.
async fn work(
    setting: Arc<Setting>,
    store: Arc<dyn Store>,
    to: SubscriptionId,
    lanes: Vec<Option<Lane>>,
    progress: Arc<Progress>,
) {
    let mut written = 0;
    while progress.goes_on() {
        let mut due = heads(&*store, to).await;
        due.retain(|work| lanes.contains(&work.delivery.lane));
        due.reverse();
        let claims = due.iter().map(|work| claim_of(&setting, &work.delivery)).collect();
        let granted = store.claim(claims).await.expect("claim");
        let records: Vec<Record> = due
            .iter()
            .zip(granted)
            .filter(|(_, granted)| *granted)
            .enumerate()
            .map(|(turn, (work, _))| Record {
                fence: setting.fence(to),
                tenant: setting.tenant,
                delivery: work.delivery.id,
                expected_attempts: work.delivery.attempts,
                expected_revival: work.delivery.revival,
                ordered: work.delivery.lane.is_some(),
                step: match (written + turn) % 4 {
                    0 => failed(at(20)),
                    1 => postponed(at(20)),
                    _ => dead_skip(),
                },
                attempt: None,
                standing: None,
                told: Vec::new(),
                at: at(20),
            })
            .collect();
        for reply in store.record(records).await.expect("record") {
            assert!(matches!(reply, Recorded::Written { .. }), "it was overtaken: {reply:?}");
            written += 1;
            progress.written.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What an operator may be told while others work.
fn harmless<T>(answer: Result<T>) -> usize {
    match answer {
        Ok(_) => 1,
        Err(Error::Refused(Refusal::NotEnded | Refusal::Ended | Refusal::NotFound)) => 0,
        Err(error) => panic!("{error:?}"),
    }
}

/// Retries dead letters one by one, latest first, until told to stop.
async fn retry_all(setting: Arc<Setting>, store: Arc<dyn Store>, progress: Arc<Progress>) {
    while progress.goes_on() {
        let state = Some(StateKind::Dead);
        let filter = DeliveryFilter { state, ..DeliveryFilter::default() };
        for dead in store
            .deliveries(setting.tenant, filter, Listing::newest(50))
            .await
            .expect("dead letters")
            .items
        {
            let moved = harmless(store.retry_delivery(setting.tenant, dead.id, at(30)).await);
            progress.moved.fetch_add(moved, Ordering::Relaxed);
        }
    }
}

/// Redrives all dead letters again and again until told to stop.
async fn redrive_all(setting: Arc<Setting>, store: Arc<dyn Store>, progress: Arc<Progress>) {
    while progress.goes_on() {
        let wanted = redrive(setting.tenant, at(1_000));
        let id = store.create_redrive(wanted).await.expect("a redrive").id;
        loop {
            let bite = store.advance_redrive(id, 5, at(30), None).await.expect("a bite");
            progress.moved.fetch_add(bite.moved, Ordering::Relaxed);
            if bite.state != RedriveState::Running {
                break;
            }
        }
        sleep(Duration::from_millis(5)).await;
    }
}

async fn deadlocks(client: &Client) -> i64 {
    let text = "select deadlocks from pg_stat_database where datname = current_database()";
    client.query_one(text, &[]).await.expect("a number").get(0)
}

/// Dead letters come back, by hand and in bulk, while two connections lease heads and write down
/// outcomes: nobody gets an error, nobody who is under way is overtaken, and nobody is left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lanes_survive_revivals_and_work_at_once() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let url = databases.url_of(&setting.store);
    let to = setting.subscribe().await;
    let lanes: Vec<Option<Lane>> = (0..LANES).map(|n| lane(&format!("lane-{n}"))).collect();
    for _ in 0..4 {
        let plans: Vec<_> = lanes.iter().map(|lane| (to, lane.clone())).collect();
        setting.publish(&plans).await;
    }
    let progress = Arc::new(Progress::default());
    let mut tasks = Vec::new();
    for part in lanes.chunks(LANES / 2) {
        let (setting, store) = (Arc::clone(&setting), another(&url).await);
        tasks.push(tokio::spawn(work(setting, store, to, part.to_vec(), Arc::clone(&progress))));
    }
    let (one, two) = (another(&url).await, another(&url).await);
    tasks.push(tokio::spawn(retry_all(Arc::clone(&setting), one, Arc::clone(&progress))));
    tasks.push(tokio::spawn(redrive_all(Arc::clone(&setting), two, Arc::clone(&progress))));
    let begun = Instant::now();
    while !tasks.iter().any(JoinHandle::is_finished)
        && (begun.elapsed() < STRESS || !progress.is_enough())
        && begun.elapsed() < PATIENCE
    {
        sleep(Duration::from_millis(20)).await;
    }
    progress.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("a worker or an operator");
    }
    let (written, moved) = (&progress.written, &progress.moved);
    assert!(progress.is_enough(), "the test did something: {written:?} and {moved:?}");
    // What is left goes out in order, and all of it.
    loop {
        let due = setting.pending(to, at(1_000)).await;
        if due.is_empty() {
            break;
        }
        for work in due {
            setting.record(work.delivery.id, delivered(), at(950)).await;
        }
    }
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!(counts.pending, 0, "nobody is left behind");
    let client = raw(&url).await;
    assert_eq!(deadlocks(&client).await, 0, "nobody waited in a circle");
}
