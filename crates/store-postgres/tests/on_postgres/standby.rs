//! Commits that wait for a standby, servers that are not the ones to write to, and several servers in one URL.
//!
//! A server that waits for a standby that is not there waits for ever, which is all these tests need.

use std::sync::Arc;
use std::time::Duration;

use posthorn_conformance::Fixture;
use posthorn_conformance::builders::{Setting, delivery, event};
use posthorn_domain::{Idempotency, IdempotencyKey};
use posthorn_store::{Accepted, Error, NewEvent, Result, Store};
use posthorn_store_postgres::{Options, PostgresStore};
use posthorn_testkit::postgres::TestPostgres;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::options;

/// A server that can be told to wait for a standby.
struct Own {
    server: TestPostgres,
}

#[async_trait::async_trait]
impl Fixture for Own {
    async fn store(&self) -> Arc<dyn Store> {
        let url = self.server.create_database("own").expect("a database");
        let statement_timeout = Duration::from_millis(400);
        let options = Options { statement_timeout, ..options(&url) };
        Arc::new(PostgresStore::connect(options).await.expect("a connection"))
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        store
    }
}

impl Own {
    fn wait_for(&self, standby: &str) {
        self.server
            .sql(&format!("alter system set synchronous_standby_names = '{standby}'"))
            .expect("a setting");
        self.server.sql("select pg_reload_conf()").expect("a reload");
        let shown = || self.server.sql("show synchronous_standby_names").expect("a setting");
        while shown().trim() != standby {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the waits of all commits, until there was one.
    async fn cancel_waits(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        let cancel = "select count(pg_cancel_backend(pid)) from pg_stat_activity \
                      where wait_event = 'SyncRep'";
        while self.server.sql(cancel).expect("a cancel").trim() == "0" {
            assert!(Instant::now() < until, "no commit waits for the standby");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn accept(setting: &Setting, new: &NewEvent) -> JoinHandle<Result<Vec<Accepted>>> {
    let (store, new) = (Arc::clone(&setting.store), new.clone());
    tokio::spawn(async move { store.accept(vec![new]).await })
}

/// Until the server has settled what was left of a test before.
async fn accepted(setting: &Setting, new: &NewEvent) -> Accepted {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match accept(setting, new).await.expect("no panic") {
            Ok(mut replies) => return replies.remove(0),
            Err(error) => assert!(Instant::now() < until, "{error:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_did_not_wait_for_the_standby_is_never_acknowledged() {
    let own = Own { server: TestPostgres::start().expect("a server") };
    let setting = Setting::new(&own).await;
    let to = setting.subscribe().await;
    let catalog = setting.version_of(setting.tenant).await;
    let key = IdempotencyKey::new("once").expect("a key");
    let new = || NewEvent {
        event: Arc::new(event(setting.tenant)),
        idempotency: Some(Idempotency { key: key.clone(), fingerprint: [7; 32] }),
        catalog,
        deliveries: vec![delivery(to, None)],
    };
    let (first, again) = (new(), new());

    // The time that a statement may take does not end the wait of a commit, nor does anything of ours.
    own.wait_for("nobody");
    let waiting = accept(&setting, &first);
    sleep(Duration::from_millis(1_500)).await;
    assert!(!waiting.is_finished(), "it was acknowledged without its standby");
    // Somebody else does. The server says success then, and a warning.
    own.cancel_waits().await;
    let error = waiting.await.expect("no panic").expect_err("nobody knows");
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");

    // It is there, on this server, and seen by the next. Saying so is an acknowledgement as well.
    let waiting = accept(&setting, &again);
    sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished(), "a repeat was acknowledged without its standby");
    own.cancel_waits().await;
    let error = waiting.await.expect("no panic").expect_err("nobody knows");
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");

    own.wait_for("");
    let repeat = accepted(&setting, &again).await;
    assert_eq!(repeat, Accepted::Duplicate { event: first.event.id });
}

/// As it is with a server that became a standby, or a proxy that ends on one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_may_not_write_is_given_up() {
    let own = Own { server: TestPostgres::start().expect("a server") };
    let setting = Setting::new(&own).await;
    let beat = posthorn_store::Heartbeat {
        node: setting.node,
        ttl: Duration::from_secs(60),
        catalog: posthorn_domain::CatalogVersion(1),
        version: "1",
    };
    let set = |text: &str| {
        own.server.sql(text).expect("a setting");
        own.server.sql("select pg_reload_conf()").expect("a reload");
    };
    set("alter system set default_transaction_read_only = on");
    let until = Instant::now() + Duration::from_secs(20);
    let error = loop {
        match setting.store.heartbeat(beat).await {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < until, "it still writes"),
        }
        sleep(Duration::from_millis(50)).await;
    };
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    // New ones are refused before anything is asked of them.
    let url = own.server.database_url("own");
    let error = PostgresStore::connect(options(&url)).await.err().expect("it takes no writes");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    set("alter system reset default_transaction_read_only");
    while let Err(error) = setting.store.heartbeat(beat).await {
        assert!(error.is_transient() && Instant::now() < until, "{error:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// One is silent, one refuses, one takes writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_servers_the_one_that_takes_writes_is_found() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let silent = silent.local_addr().expect("an address");
    let url = crate::fixture::database().await;
    let (before, path) = url.rsplit_once('/').expect("a path");
    let (user, host) = before.rsplit_once('@').expect("a user");
    let several = format!("{user}@{silent},127.0.0.1:1,{host}/{path}");
    let several = format!("{several}?target_session_attrs=read-write");
    let store = timeout(Duration::from_secs(15), PostgresStore::connect(options(&several)));
    let store = store.await.expect("not kept waiting").expect("a connection");
    store.ping().await.expect("an answer");
    // None of those that are left.
    let (none, _) = several.split_once(&format!(",{host}")).expect("the last");
    let none = format!("{none}/{path}");
    let error = PostgresStore::connect(options(&none)).await.err().expect("nobody there");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

/// A way that takes long, as one between continents does or a server that many come to at once, beside one that refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_server_gets_the_time_that_a_connection_may_take() {
    let url = crate::fixture::database().await;
    let (before, path) = url.rsplit_once('/').expect("a path");
    let (user, host) = before.rsplit_once('@').expect("a user");
    let way = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let slow = way.local_addr().expect("an address");
    let host = host.to_owned();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = way.accept().await {
            let host = host.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(2_500)).await;
                // Loopback only, to the server of the tests.
                #[allow(clippy::disallowed_methods)]
                let mut far = tokio::net::TcpStream::connect(host).await.expect("the server");
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    let several = format!("{user}@127.0.0.1:1,{slow}/{path}");
    let store = PostgresStore::connect(options(&several)).await.expect("a connection");
    store.ping().await.expect("an answer");
}
