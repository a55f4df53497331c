//! A process that is killed loses nothing it had enqueued.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use posthorn_notifier::{CallbacksConfig, PersistentNotifier, VaultKey};
use posthorn_testkit::postgres::TestPostgres;
use posthorn_testkit::receiver::Receiver;
use posthorn_testkit::wait::PATIENCE;

use crate::house::payment;
use crate::receiver::{event_id, hook, open_to_loopback};

/// Set in the process that is going to be killed: where the receiver is, and the database.
const CHILD_URL: &str = "NOTIFIER_TEST_URL";
const CHILD_STORE: &str = "NOTIFIER_TEST_STORE";
/// The key that seals, which every process on one database shares.
const SHARED: &str = "phvk_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
/// Events that are enqueued before the process is killed.
const ENOUGH: usize = 25;

fn config(url: &str) -> CallbacksConfig {
    let yaml = format!(
        "callbacks:\n  payment_success_url: {url}\n  retry: {{max_attempts: 100, \
         initial_interval: 100ms, max_interval: 500ms}}\n"
    );
    CallbacksConfig::from_yaml(&yaml).expect("a block")
}

async fn open(url: &str, store: &str) -> PersistentNotifier {
    let builder = match store.starts_with("postgres") {
        true => PersistentNotifier::postgres(config(url), store)
            .seal_key(VaultKey::parse(SHARED).expect("a key")),
        false => PersistentNotifier::sqlite(config(url), store),
    };
    builder.egress(open_to_loopback()).start().await.expect("starts")
}

/// Not a test by itself: what the killed process does. It names each event once it is enqueued.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in a process of its own, which is killed"]
async fn a_process_that_enqueues_until_it_is_killed() {
    let (Ok(url), Ok(store)) = (std::env::var(CHILD_URL), std::env::var(CHILD_STORE)) else {
        return;
    };
    let notifier = open(&url, &store).await;
    for n in 0..100_000 {
        let enqueued = notifier.enqueue_payment(payment(&n.to_string())).await.expect("committed");
        println!("\nenqueued {}", enqueued.event_id);
    }
}

/// Runs the process above and kills it in the middle. Returns what it had been told is enqueued.
fn enqueue_and_kill(url: &str, store: &str) -> BTreeSet<String> {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "crash::a_process_that_enqueues_until_it_is_killed"])
        .args(["--ignored", "--nocapture"])
        .env(CHILD_URL, url)
        .env(CHILD_STORE, store)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut enqueued = BTreeSet::new();
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    for line in lines.map_while(Result::ok) {
        if let Some(id) = line.strip_prefix("enqueued ") {
            enqueued.insert(id.to_owned());
        }
        if enqueued.len() == ENOUGH {
            // SIGKILL: nothing of it can be caught.
            child.kill().expect("killed");
        }
    }
    child.wait().expect("ended");
    assert!(enqueued.len() >= ENOUGH, "the process ended by itself");
    enqueued
}

async fn nothing_is_lost(store: &str) {
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let receiver =
        Receiver::scripted(move |_| if is_up.load(Ordering::Relaxed) { 200 } else { 503 });
    let (url, place) = (hook(&receiver), store.to_owned());
    let enqueued =
        tokio::task::spawn_blocking(move || enqueue_and_kill(&url, &place)).await.expect("ran");
    let before = receiver.count();
    up.store(true, Ordering::Relaxed);
    let notifier = open(&hook(&receiver), store).await;
    let begun = Instant::now();
    loop {
        let arrived: BTreeSet<String> = receiver.seen()[before..].iter().map(event_id).collect();
        let missing = enqueued.difference(&arrived).count();
        if missing == 0 {
            break;
        }
        assert!(begun.elapsed() < 2 * PATIENCE, "{missing} of {} are missing", enqueued.len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    notifier.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_loses_nothing_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    nothing_is_lost(folder.path().to_str().expect("text")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_loses_nothing_on_postgresql() {
    let database = TestPostgres::start().expect("PostgreSQL, which ./test installs");
    nothing_is_lost(&database.url()).await;
}
