//! A server that says nothing any more while its connections stay open, as a frozen machine does, and another one that
//! takes over.
//!
//! Both are one server here, behind two wires: one that is cut is frozen, one that is made whole has taken over.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use posthorn_conformance::builders::at;
use posthorn_domain::{CatalogVersion, NodeId};
use posthorn_store::{Error, Heartbeat, Store};
use posthorn_store_postgres::{Options, PostgresStore};
use posthorn_testkit::link::Link;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Client;

use crate::fixture::{database, options, raw};

/// A store with all its connections at rest on the first of two servers. The second does not answer.
struct Two {
    first: Link,
    second: Link,
    store: Arc<PostgresStore>,
}

async fn two(change: impl FnOnce(Options) -> Options) -> Two {
    let url = database().await;
    let (before, name) = url.rsplit_once('/').expect("a database");
    let (user, port) = before.rsplit_once(':').expect("a port");
    let port: u16 = port.parse().expect("a port");
    let first = Link::open(port).await.expect("a wire");
    let second = Link::open(port).await.expect("a wire");
    second.cut();
    let several = format!("{user}:{},127.0.0.1:{}/{name}", first.port(), second.port());
    let store = PostgresStore::connect(change(options(&several))).await.expect("a connection");
    let store = Arc::new(store);
    fill(&store, &raw(&url).await).await;
    Two { first, second, store }
}

/// Until every connection of the pool is there: calls that wait for a lock have one each.
async fn fill(store: &Arc<PostgresStore>, client: &Client) {
    // Not what everybody does at the moment: a transaction sees that as it was when it first looked.
    let waiting = "select count(*) from pg_locks where not granted and relation = 'node'::regclass
        and database = (select oid from pg_database where datname = current_database())";
    let mut most = 0;
    // They give up soon, maybe before the last of them has come.
    while most < 4 {
        let lock = "begin; lock table node in access exclusive mode";
        client.batch_execute(lock).await.expect("a lock");
        let beats = (0..4).map(|number| {
            let store = Arc::clone(store);
            tokio::spawn(async move { beat(&store, number).await })
        });
        let beats: Vec<_> = beats.collect();
        while most < 4 && !beats.iter().any(JoinHandle::is_finished) {
            most = client.query_one(waiting, &[]).await.expect("a count").get::<_, i64>(0);
            sleep(Duration::from_millis(5)).await;
        }
        client.batch_execute("rollback").await.expect("let go");
        join_all(beats).await;
    }
    client.batch_execute("delete from node").await.expect("as before");
}

async fn beat(store: &PostgresStore, number: u128) -> Result<(), Error> {
    let (ttl, catalog) = (Duration::from_secs(60), CatalogVersion(0));
    let node = NodeId::new(at(0), number);
    store.heartbeat(Heartbeat { node, ttl, catalog, version: "1" }).await.map(drop)
}

/// One call finds out, not one for each connection that was at rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_call_after_one_that_was_not_answered_reaches_the_server_that_took_over() {
    // The connection that listens would find out as well, but later than the first call.
    let patient = Duration::from_secs(60);
    let short = Duration::from_millis(500);
    let two = two(|o| Options { connect_timeout: patient, statement_timeout: short, ..o }).await;
    two.first.cut();
    let error = beat(&two.store, 1).await.expect_err("nobody answers");
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    two.second.mend();
    let next = timeout(Duration::from_secs(3), beat(&two.store, 1)).await;
    next.expect("it does not wait for the frozen one").expect("a sign of life");
}

/// Whoever waits for an answer of the former server waits no longer when another one is found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_end_with_the_server_that_they_were_sent_to() {
    let short = Duration::from_secs(1);
    let patient = Duration::from_secs(60);
    let two = two(|o| Options { connect_timeout: short, statement_timeout: patient, ..o }).await;
    two.first.cut();
    let began = Instant::now();
    let asked = [0, 1, 2].map(|_| {
        let store = Arc::clone(&two.store);
        tokio::spawn(async move { store.ping().await })
    });
    let written = beat(&two.store, 1);
    two.second.mend();
    // The connection that listens finds the other server, within seconds.
    let error = timeout(Duration::from_secs(30), written).await.expect("it ends");
    let error = error.expect_err("it was not answered");
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    for asked in asked {
        // A question is simply asked again.
        asked.await.expect("no panic").expect("an answer");
    }
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}
