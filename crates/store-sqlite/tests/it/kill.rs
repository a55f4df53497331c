//! `kill -9` in the middle of work: what was acknowledged is there, and the file is sound.
//!
//! The test runs itself again as a child process that publishes and prints what was accepted.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use posthorn_conformance::builders::{
    LONG, all_shards, at, attempt, delivered, delivery, event, node, subscription,
};
use posthorn_domain::{CatalogVersion, EventId, Fence, Shard, TenantId, Timestamp};
use posthorn_store::{CatalogChange, NewEvent, Record, Recorded, Store};
use posthorn_store_sqlite::{Options, SqliteStore};
use rusqlite::Connection;

const DIRECTORY: &str = "POSTHORN_TEST_KILL_DIRECTORY";

/// Not a test of its own: publishes until it is killed, when the parent asks for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_publishes_until_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let store = SqliteStore::open(&Options::new(PathBuf::from(directory))).expect("the store");
    let store = Arc::new(store);
    let subscription = subscription(TenantId::DEFAULT);
    let to = subscription.id;
    let change = CatalogChange::CreateSubscription(Box::new(subscription));
    let catalog = store.change_catalog(change).await.expect("subscribe");
    let me = node();
    let grants = store.acquire_shards(me, &all_shards(), LONG).await.expect("shards");
    let shard = Shard::of(to);
    let epoch = grants.iter().find(|grant| grant.shard == shard).expect("granted").epoch;
    let fence = Fence { shard, epoch, node: me };
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for _ in 0..u64::MAX {
                    publish_and_deliver(&store, to, catalog, fence).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task panics");
    }
}

async fn publish_and_deliver(
    store: &SqliteStore,
    to: posthorn_domain::SubscriptionId,
    catalog: CatalogVersion,
    fence: Fence,
) {
    let event = Arc::new(event(TenantId::DEFAULT));
    let plan = delivery(to, None);
    let (id, deliver) = (event.id, plan.id);
    let new = NewEvent { event, idempotency: None, catalog, deliveries: vec![plan] };
    store.accept(vec![new]).await.expect("accept");
    say(&format!("accepted {id}"));
    let record = Record {
        fence,
        tenant: TenantId::DEFAULT,
        delivery: deliver,
        expected_attempts: 0,
        expected_revival: 0,
        ordered: true,
        step: delivered(),
        attempt: Some(attempt(deliver, 1, 200)),
        standing: None,
        told: Vec::new(),
        at: at(1),
    };
    let replies = store.record(vec![record]).await.expect("record");
    assert_eq!(replies, [Recorded::Written { promoted: None }]);
    say(&format!("delivered {deliver}"));
}

pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").and_then(|()| out.flush()).expect("the parent listens");
}

#[test]
fn killed_anywhere_keeps_what_was_acknowledged() {
    let child = "kill::child_publishes_until_killed";
    killed_while_it_says(child, DIRECTORY, ["accepted ", "delivered "], check);
}

/// Runs a child until it has said so many lines that begin like these, kills it, and lets what it
/// left behind be checked.
pub(crate) fn killed_while_it_says(
    child: &str,
    variable: &str,
    beginnings: [&str; 2],
    check: impl Fn(&tempfile::TempDir, &[String]),
) {
    for lines in [1, 40, 400] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", child, "--nocapture"])
            .env(variable, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let said: Vec<String> = output
            .lines()
            .map(|line| line.expect("a line"))
            .filter(|line| beginnings.iter().any(|beginning| line.starts_with(beginning)))
            .take(lines)
            .collect();
        child.kill().expect("kill");
        child.wait().expect("it is gone");
        assert_eq!(said.len(), lines);
        check(&directory, &said);
    }
}

fn check(directory: &tempfile::TempDir, said: &[String]) {
    let conn = Connection::open(directory.path().join("posthorn.db")).expect("the file");
    let sound: String =
        conn.query_row("pragma integrity_check", [], |row| row.get(0)).expect("a check");
    assert_eq!(sound, "ok");
    drop(conn);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = SqliteStore::open(&Options::new(directory.path())).expect("it opens again");
        let delta = store.catalog_since(CatalogVersion(0)).await.expect("the catalog");
        let to = delta.subscriptions[0].id;
        let ask = posthorn_store::PendingAsk {
            subscription: to,
            from: Timestamp::MIN,
            until: Timestamp::MAX,
            limit: 100_000,
        };
        let works = store.pending(vec![ask], usize::MAX).await.expect("pending").remove(0);
        let pending: HashSet<String> =
            works.iter().map(|work| work.delivery.id.to_string()).collect();
        for line in said {
            if let Some(id) = line.strip_prefix("accepted ") {
                let id: EventId = id.parse().expect("an id");
                let found = store.event(TenantId::DEFAULT, id).await.expect("a lookup");
                assert!(found.is_some(), "{id} was acknowledged");
            }
            if let Some(id) = line.strip_prefix("delivered ") {
                assert!(!pending.contains(id), "{id} was written down");
            }
        }
        let counts = store.counts(None).await.expect("counts");
        assert_eq!(counts.events, counts.deliveries(), "each event with its delivery");
    });
}
