//! A pooler that shares sessions, and keeps prepared statements: such a one is not on every machine (`pooler` has the
//! real one).
//!
//! A database stands in for it whose sessions do not say who they are: each question for the process gets another answer,
//! so the store finds what it would find behind such a pooler. Everything that it does then is tried, except for the
//! sharing itself.

use std::time::Duration;

use posthorn_conformance::builders::at;
use posthorn_domain::{CatalogVersion, NodeId};
use posthorn_store::schema::{Migration, Mismatch};
use posthorn_store::{Error, Heartbeat, Store};
use posthorn_store_postgres::{Options, PostgresStore};
use posthorn_testkit::link::Link;
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::{database, options, raw};

/// Programs of before cannot see from what they do every day that it was applied.
const OTHER: Migration = Migration::alone("create table other (one bigint primary key)");

/// A database whose sessions look shared.
async fn shared() -> String {
    let url = database().await;
    let name = url.rsplit_once('/').expect("a database").1;
    let text = format!(
        "create sequence pids;
         create function public.pg_backend_pid() returns int volatile language sql
             as 'select nextval(''public.pids'')::int';
         alter database {name} set search_path = public, pg_catalog"
    );
    raw(&url).await.batch_execute(&text).await.expect("a database");
    url
}

fn listening(url: &str) -> Options {
    Options { listen_url: Some(url.to_owned()), ..options(url) }
}

/// Why a start was refused, in the words of the refusal.
async fn refused(url: &str) -> String {
    let error = PostgresStore::connect(listening(url)).await.err().expect("a refusal");
    assert!(matches!(error, Error::Fatal { .. }), "{error:?}");
    format!("{error:?}")
}

/// Runs what a refusal says, for the whole database.
pub(crate) async fn obey(url: &str, told: &str) {
    let name = url.rsplit_once('/').expect("a database").1;
    let client = raw(url).await;
    let statements: Vec<_> = told.split("alter role CURRENT_ROLE ").skip(1).collect();
    assert!(!statements.is_empty(), "{told}");
    for rest in statements {
        let set = rest.split(';').next().expect("a statement");
        client.batch_execute(&format!("alter database {name} {set}")).await.expect("a setting");
    }
}

/// The same, set up as the refusal says.
async fn ready() -> String {
    let url = shared().await;
    let told = refused(&url).await;
    obey(&url, &told).await;
    url
}

/// One of its own on each connection, as without a pooler.
fn direct(url: &str) -> Options {
    options(&format!("{url}?options=-c%20search_path%3Dpublic"))
}

async fn beat(store: &PostgresStore) -> Result<(), Error> {
    let (ttl, catalog) = (Duration::from_secs(60), CatalogVersion(0));
    let node = NodeId::new(at(0), 1);
    store.heartbeat(Heartbeat { node, ttl, catalog, version: "1" }).await.map(drop)
}

#[tokio::test]
async fn a_role_whose_commits_do_not_wait_is_refused_where_sessions_are_shared() {
    let url = ready().await;
    drop(PostgresStore::connect(listening(&url)).await.expect("it is set up"));
    let name = url.rsplit_once('/').expect("a database").1;
    for value in ["off", "local"] {
        let set = format!("alter database {name} set synchronous_commit = {value}");
        raw(&url).await.batch_execute(&set).await.expect("a setting");
        let told = refused(&url).await;
        let wanted = "alter role CURRENT_ROLE set synchronous_commit = 'on';";
        assert!(told.contains(wanted) && !told.contains("jit"), "{told}");
        obey(&url, &told).await;
        drop(PostgresStore::connect(listening(&url)).await.expect("it is set up"));
    }
}

/// The gate is taken before the start is over, and what is missed while it is lost is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_that_listens_holds_the_gate_for_all() {
    let url = ready().await;
    let older = PostgresStore::connect(listening(&url)).await.expect("today's program");
    let newer = PostgresStore::schema().and(OTHER);
    let started = PostgresStore::connect_as(direct(&url), &newer).await;
    let error = started.err().expect("an older program is at work");
    assert!(matches!(Mismatch::behind(&error), Some(Mismatch::AtWork { .. })), "{error:?}");
    beat(&older).await.expect("it goes on");
    // It loses that connection, and only that one.
    let client = raw(&url).await;
    let cut = "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'
        and classid between 730000 and 739999 and mode = 'ShareLock'
        and database = (select oid from pg_database where datname = current_database())";
    let until = Instant::now() + Duration::from_secs(20);
    let newer = loop {
        client.execute(cut, &[]).await.expect("it is cut off");
        match PostgresStore::connect_as(direct(&url), &newer).await {
            Ok(store) => break store,
            Err(error) => assert!(Instant::now() < until, "{error:?}"),
        }
    };
    let error = loop {
        match beat(&older).await {
            Err(error) if !error.is_transient() => break error,
            _ => assert!(Instant::now() < until, "it goes on with a schema that it cannot use"),
        }
        sleep(Duration::from_millis(20)).await;
    };
    assert!(matches!(Mismatch::behind(&error), Some(Mismatch::Newer { .. })), "{error:?}");
    drop(newer);
}

#[tokio::test]
async fn without_the_connection_that_listens_nothing_begins() {
    let url = ready().await;
    let options = Options {
        listen_url: Some("postgres://postgres@127.0.0.1:1/none".to_owned()),
        ..options(&url)
    };
    let error = PostgresStore::connect(options).await.err().expect("nobody is told");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("listen"), "{error}");
    // The same when nothing is heard of it.
    let silent = Link::open(1).await.expect("a wire");
    silent.cut();
    let options = Options {
        listen_url: Some(format!("postgres://postgres@127.0.0.1:{}/none", silent.port())),
        connect_timeout: Duration::from_secs(1),
        ..crate::fixture::options(&url)
    };
    let error = PostgresStore::connect(options).await.err().expect("nobody is told");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

/// No setting of a session limits what a new connection begins with, and the server may fall silent just then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_does_not_get_ready_is_given_up() {
    let url = ready().await;
    let hasty = Options {
        connect_timeout: Duration::from_secs(1),
        statement_timeout: Duration::from_millis(500),
        ..listening(&url)
    };
    let store = PostgresStore::connect(hasty).await.expect("a connection");
    let client = raw(&url).await;
    let lock = "begin; lock table migration in access exclusive mode";
    client.batch_execute(lock).await.expect("a lock");
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity
        where application_name = 'posthorn' and datname = current_database()";
    client.execute(cut, &[]).await.expect("they are cut off");
    let asked = timeout(Duration::from_secs(20), store.ping()).await;
    let error = asked.expect("it ends").expect_err("no connection gets ready");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    client.batch_execute("rollback").await.expect("let go");
    let asked = timeout(Duration::from_secs(20), store.ping()).await;
    asked.expect("it ends").expect("an answer");
}
