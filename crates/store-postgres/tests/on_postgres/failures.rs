//! A database that goes away, comes back, or says what it should not.

use std::sync::Arc;
use std::time::Duration;

use posthorn_conformance::builders::{Setting, at, delivered, delivery};
use posthorn_domain::CatalogVersion;
use posthorn_store::{Error, Store};
use posthorn_store_postgres::{Options, PostgresStore};
use posthorn_testkit::postgres::TestPostgres;
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::{Databases, connect, database, options, raw};

/// A server that is stopped and killed while a store uses it.
struct Own {
    server: Arc<TestPostgres>,
}

#[async_trait::async_trait]
impl posthorn_conformance::Fixture for Own {
    async fn store(&self) -> Arc<dyn Store> {
        let url = self.server.create_database("own").expect("a database");
        Arc::new(connect(&url).await)
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        store
    }
}

/// Until the store answers again.
async fn back(store: &dyn Store) {
    let until = Instant::now() + Duration::from_secs(20);
    while let Err(error) = store.ping().await {
        assert!(error.is_transient(), "{error:?}");
        assert!(Instant::now() < until, "the store does not come back: {error:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_comes_back_with_the_database_and_has_lost_nothing() {
    let server = Arc::new(TestPostgres::start().expect("a server"));
    let setting = Setting::new(&Own { server: Arc::clone(&server) }).await;
    let listener = connect(&server.database_url("own")).await;
    let to = setting.subscribe().await;
    let catalog = setting.version_of(setting.tenant).await;
    let before = setting.publish_one(to).await;

    server.stop_immediate().expect("a stop");
    let error = setting.store.ping().await.expect_err("nobody answers");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let error = setting.store.accept(vec![]).await;
    assert!(error.is_ok(), "nothing to do needs no database");
    let away = PostgresStore::connect(options(&server.url())).await.err().expect("nobody there");
    assert!(matches!(away, Error::Unavailable { .. }), "{away:?}");
    server.restart().expect("a start");
    back(&*setting.store).await;
    assert!(!setting.look(before).await.state.is_terminal());
    setting.record(before, delivered(), at(5)).await;

    // Killed in the middle of publishing: whatever was answered is there afterwards.
    let publisher = {
        let store = Arc::clone(&setting.store);
        let tenant = setting.tenant;
        tokio::spawn(async move {
            let mut stored = Vec::new();
            loop {
                let event = Arc::new(posthorn_conformance::builders::event(tenant));
                let id = event.id;
                let deliveries = vec![delivery(to, None)];
                let new =
                    posthorn_store::NewEvent { event, idempotency: None, catalog, deliveries };
                match store.accept(vec![new]).await {
                    Ok(_) => stored.push(id),
                    Err(error) => {
                        assert!(error.is_transient(), "{error:?}");
                        return stored;
                    }
                }
            }
        })
    };
    sleep(Duration::from_millis(300)).await;
    server.kill_postmaster().expect("a kill");
    let stored = publisher.await.expect("the publisher");
    server.restart().expect("a start");
    back(&*setting.store).await;
    assert!(!stored.is_empty());
    for id in stored {
        let found = setting.store.event(setting.tenant, id).await.expect("a lookup");
        assert!(found.is_some(), "{id} was acknowledged and is lost");
    }
    // Hints work again, too.
    let heard = timeout(Duration::from_secs(20), async {
        loop {
            setting.store.notify(&[]).await.expect("notify");
            if timeout(Duration::from_millis(300), listener.notified()).await.is_ok() {
                return;
            }
        }
    });
    heard.await.expect("a hint after the restart");
}

#[tokio::test]
async fn unreachable_database_is_a_clear_error() {
    let mut options = Options::new("postgres://nobody@127.0.0.1:1/none");
    options.connect_timeout = Duration::from_millis(500);
    let error = PostgresStore::connect(options).await.err().expect("nobody there");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

/// Waiting does not bring a database into being.
#[tokio::test]
async fn missing_database_is_the_operators_mistake() {
    let url = posthorn_testkit::postgres::shared().database_url("there_is_none");
    let error = PostgresStore::connect(options(&url)).await.err().expect("no such database");
    assert!(matches!(error, Error::Fatal { .. }), "{error:?}");
}

#[tokio::test]
async fn newer_schema_is_refused() {
    let url = database().await;
    let client = raw(&url).await;
    let newer = "insert into migration (version, checksum) values (999, 'x')";
    client.batch_execute(newer).await.expect("an insert");
    let error = PostgresStore::connect(options(&url)).await.err().expect("a refusal");
    let Error::Fatal { source: Some(source), .. } = error else { panic!("{error:?}") };
    assert!(source.to_string().contains("999"), "{source}");
}

#[tokio::test]
async fn commits_wait_for_the_disk_whatever_the_role_says() {
    let url = database().await;
    let name = url.rsplit('/').next().expect("a name").to_owned();
    let client = raw(&url).await;
    let off = format!("alter database {name} set synchronous_commit = off");
    client.batch_execute(&off).await.expect("a setting");
    let client = raw(&url).await;
    let setup = PostgresStore::session_statements(&options(&url));
    client.batch_execute(&setup).await.expect("the settings");
    let row = client.query_one("show synchronous_commit", &[]).await.expect("an answer");
    assert_eq!(row.get::<_, &str>(0), "on");
    connect(&url).await.ping().await.expect("it starts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_leave_no_transaction_open() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let client = raw(&databases.url_of(&setting.store)).await;
    let to = setting.subscribe().await;
    for micros in 0..60 {
        let new = setting.planned(vec![delivery(to, posthorn_conformance::builders::whole())]);
        let new = new.await;
        let short = Duration::from_micros(micros * 100);
        let _ = timeout(short, setting.store.accept(vec![new])).await;
        let _ = timeout(short, setting.store.catalog_since(CatalogVersion(0))).await;
        let id = setting.ready(to).await.into_iter().next();
        if let Some(id) = id {
            let _ = timeout(short, setting.store.cancel_delivery(setting.tenant, id, at(1))).await;
        }
    }
    sleep(Duration::from_millis(200)).await;
    let open = "select count(*) from pg_stat_activity \
                where datname = current_database() and state like 'idle in transaction%'";
    let row = client.query_one(open, &[]).await.expect("a count");
    assert_eq!(row.get::<_, i64>(0), 0);
    setting.store.ping().await.expect("the pool is not used up");
}

#[tokio::test]
async fn corrupt_row_is_named() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let to = setting.subscribe().await;
    let id = setting.publish_one(to).await;
    let client = raw(&databases.url_of(&setting.store)).await;
    client.batch_execute("update delivery_live set state = 77").await.expect("an update");
    let error = setting.store.delivery(setting.tenant, id).await.expect_err("a corrupt row");
    let Error::Fatal { source: Some(source), .. } = error else { panic!("{error:?}") };
    let text = source.to_string();
    assert!(text.contains("delivery") && text.contains("77"), "{text}");
}

/// A caller that does not know whether a batch was stored may send it again as it is.
#[tokio::test]
async fn repeated_batch_is_a_duplicate_of_itself() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let to = setting.subscribe().await;
    let old = setting.planned(vec![delivery(to, None)]).await;
    let new = setting.planned(vec![delivery(to, None)]).await;
    setting.accept(old.clone()).await;
    let replies = setting.store.accept(vec![old.clone(), new]).await.expect("accept");
    assert_eq!(replies[0], posthorn_store::Accepted::Duplicate { event: old.event.id });
    assert!(matches!(&replies[1], posthorn_store::Accepted::Stored(placed) if placed.len() == 1));
    assert_eq!(setting.ready(to).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checking_counts_may_take_longer_than_other_statements() {
    let url = database().await;
    let hasty = Options { statement_timeout: Duration::from_secs(1), ..options(&url) };
    let store = PostgresStore::connect(hasty).await.expect("a connection");
    // A table that takes two seconds to read, whatever is in it.
    let slow = "alter table delivery_live rename to delivery_rest;
        create view delivery_live as
        select * from delivery_rest where (select pg_sleep(2) is not null)";
    raw(&url).await.batch_execute(slow).await.expect("a view");
    assert_eq!(store.recount().await.expect("a count"), 0);
}

/// What came with it in its batch is stored before it is made sure that the other is.
#[tokio::test]
async fn a_batch_that_is_stored_is_never_said_to_be_not() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let to = setting.subscribe().await;
    let old = setting.planned(vec![delivery(to, None)]).await;
    let new = setting.planned(vec![delivery(to, None)]).await;
    setting.accept(old.clone()).await;
    let url = databases.url_of(&setting.store);
    let name = url.rsplit_once('/').expect("a database").1;
    // From the next connection on, the statement after the commit is refused as one that was ended.
    let late = format!(
        "create function public.current_setting(name text) returns text language plpgsql as $$ begin
             if name = 'synchronous_standby_names' then
                 raise exception 'too late' using errcode = '57014';
             end if;
             return pg_catalog.current_setting(name);
         end $$;
         alter database {name} set search_path = public, pg_catalog"
    );
    raw(&url).await.batch_execute(&late).await.expect("a function");
    let store = connect(&url).await;
    let error = store.accept(vec![old, new]).await.expect_err("it cannot be made sure");
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    assert_eq!(setting.ready(to).await.len(), 2);
}
