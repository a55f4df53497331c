//! The same program on PostgreSQL.

use std::time::{Duration, Instant};

use posthorn_store::{CatalogChange, Store as _};
use posthorn_store_postgres::PostgresStore;
use posthorn_testkit::authority::Pair;
use posthorn_testkit::postgres::TestPostgres;
use posthorn_testkit::program::{Home, Running, Server};
use posthorn_testkit::wait::until;

/// A database. A machine without PostgreSQL fails the test.
pub(crate) fn database() -> TestPostgres {
    TestPostgres::start().expect("PostgreSQL, which ./test installs")
}

/// Nodes on one database, with one seal key and the first one's operator key.
pub(crate) fn nodes<const N: usize>(
    database: &TestPostgres,
    homes: [Home; N],
) -> [(Home, Server); N] {
    let seal = Home::new().run("seal create").exits(0).out;
    let mut key = None;
    homes.map(|mut home| {
        home.store_in(&database.url());
        let shared = home.write("shared.key", &seal);
        home.configure(&format!("seal: {{key: 'file:{}'}}\n", shared.display()));
        home.key.clone_from(&key);
        let server = home.serve();
        key.clone_from(&home.key);
        (home, server)
    })
}

#[test]
fn it_delivers_on_postgresql_and_waits_for_it() {
    let database = database();
    let mut home = Home::new();
    home.store_in(&database.url());
    let server = home.serve();
    server.running.says("same seal key");
    let (mut listener, _) = server.listen("--subscribe orders --count 1 --json");
    server.ask(&["send", "orders", "order.created", "{\"on\": \"postgres\"}"]);
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    assert!(listener.stdout().contains("\"verified\":true"), "{}", listener.stdout());
    server.settles(&[("delivered", 1)]);
    server.run("backup --to copy.db").exits(2).says(&["PostgreSQL", "pg_dump"]);
    server.stop();

    database.stop_immediate().expect("stops");
    let mut running = Running::start(home.command().arg("serve"));
    running.wait_for("message", |text| text.contains("retrying").then_some(()));
    database.restart().expect("starts");
    running.wait_for("start", |text| text.contains("listening on").then_some(()));
    running.signal("TERM");
    assert_eq!(running.wait().code(), Some(0), "{}", running.stderr());
}

#[test]
fn a_database_that_refuses_us_is_named_at_once() {
    let database = database();
    let home = Home::new();
    home.store_in(&database.database_url("no_such_database"));
    let output = home.run("serve --set store.start_timeout=3s");
    assert_ne!(output.code, Some(0));
    output.says(&["no_such_database", "store.url"]);
}

#[test]
fn a_database_whose_certificate_nobody_knows_says_what_to_do() {
    let database = database();
    let own = Pair::self_signed("localhost");
    database.enable_tls(&own.certificate, &own.key).expect("TLS");
    let home = Home::new();
    let url = database.url().replace("127.0.0.1", "localhost");
    home.store_in(&url);
    // The server needs a moment to read its settings again.
    until("TLS", || {
        let probe = home.run(&format!("store probe --url {url}?sslmode=require"));
        probe.out.contains("certificate") || probe.err.contains("certificate")
    });
    home.run("serve --set store.start_timeout=1s").exits(69).says(&[
        "retrying",
        "invalid peer certificate",
        "sslrootcert=FILE",
        "sslmode=disable",
    ]);
    let mut trusting = Home::new();
    let file = trusting.write("database-ca.pem", &own.certificate);
    trusting.store_in(&format!("{url}?sslmode=verify-full&sslrootcert={}", file.display()));
    drop(trusting.serve());
}

/// What was revoked behind the nodes' backs, so that no hint of it ever came, is noticed all the same:
/// every sign of life of a node compares catalogs.
#[test]
fn a_revoked_key_opens_nothing_on_any_node_within_five_seconds_although_no_hint_came() {
    let database = database();
    let (mut one, mut two) = (Home::new(), Home::new());
    one.store_in(&database.url());
    two.store_in(&database.url());
    let first = one.serve();
    two.key.clone_from(&one.key);
    let second = two.serve();
    let made = first.ask("keys create --scope read");
    let (id, key) = (made["id"].as_str().expect("an id"), made["key"].as_str().expect("a key"));
    let opens = |server: &Server| {
        let list =
            server.command().args(["events", "list", "--json"]).env("POSTHORN_KEY", key).output();
        list.expect("runs").status.success()
    };
    assert!(opens(&first));
    until("the key on the other node", || opens(&second));

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let options = posthorn_store_postgres::Options::new(database.url());
        let store = PostgresStore::connect(options).await.expect("a connection");
        let at = posthorn_domain::Timestamp::from_millis(1);
        let id = id.parse().expect("an id");
        store.change_catalog(CatalogChange::RevokeKey { id, at }).await.expect("revoked");
    });
    let revoked = Instant::now();
    for server in [&first, &second] {
        until("the refusal", || !opens(server));
    }
    assert!(revoked.elapsed() < Duration::from_secs(5), "{:?}", revoked.elapsed());
    // Uses were seen on both nodes, and are one list.
    let keys = second.ask("keys list");
    let used = keys["items"].as_array().into_iter().flatten().find(|listed| listed["id"] == id);
    assert!(used.is_some_and(|key| key["last_used_at"].is_string()), "{keys}");
    first.stop();
    second.stop();
}
