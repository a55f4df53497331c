//! Encrypted connections, and servers that are not who they should be.

use std::time::Duration;

use posthorn_store::{Error, Store};
use posthorn_store_postgres::{Options, PostgresStore};
use posthorn_testkit::authority::Pair;
use posthorn_testkit::postgres::{Settings, TestPostgres};
use tokio::time::{Instant, sleep};

use crate::fixture::raw;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_certificate_and_name_are_checked() {
    let fast = Settings { fsync: false, ..Settings::default() };
    let server = TestPostgres::start_with(fast).expect("a server");
    let own = Pair::self_signed("localhost");
    server.enable_tls(&own.certificate, &own.key).expect("TLS");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &own.certificate).expect("a file");

    let base = server.url();
    let named = base.replace("127.0.0.1", "localhost");
    let trusted = format!("sslmode=verify-full&sslrootcert={}", file.path().display());
    let good = Options::new(format!("{named}?{trusted}"));
    // The server needs a moment to read its settings again.
    let until = Instant::now() + Duration::from_secs(10);
    let store = loop {
        match PostgresStore::connect(good.clone()).await {
            Ok(store) => break store,
            Err(error) => assert!(Instant::now() < until, "{error:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    };
    store.ping().await.expect("an answer");
    let encrypted = "select count(*) from pg_stat_ssl s join pg_stat_activity a using (pid) \
                     where a.application_name = 'posthorn' and s.ssl";
    let row = raw(&base).await.query_one(encrypted, &[]).await.expect("a count");
    assert!(row.get::<_, i64>(0) > 0);

    for bad in [
        // Another name than the certificate's.
        format!("{base}?{trusted}"),
        // A certificate that nobody vouches for.
        format!("{named}?sslmode=require"),
        format!("{named}?sslmode=verify-full"),
    ] {
        let error = PostgresStore::connect(Options::new(bad)).await.err().expect("a refusal");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    }
}
