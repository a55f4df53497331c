//! The same program on PostgreSQL.

use std::time::{Duration, Instant};

use posthorn_store::{CatalogChange, Store as _};
use posthorn_store_postgres::PostgresStore;
use posthorn_testkit::postgres::TestPostgres;

use crate::harness::{Home, Running, Server, assert_exit, assert_says, eventually, posthorn, run};

/// A database. A machine without PostgreSQL fails the test.
pub(crate) fn database() -> TestPostgres {
    TestPostgres::start().expect("PostgreSQL, which ./test installs")
}

pub(crate) fn configure(home: &Home, url: &str) {
    let file = home.path().join("posthorn.yaml");
    let config = std::fs::read_to_string(&file).expect("there");
    let store = format!("{config}store: {{url: 'file:{}'}}\n", home.path().join("url").display());
    std::fs::write(home.path().join("url"), url).expect("written");
    std::fs::write(file, store).expect("written");
}

/// Nodes on one database, with one seal key and the first one's operator key.
pub(crate) fn nodes<const N: usize>(
    database: &TestPostgres,
    homes: [Home; N],
) -> [(Home, Server); N] {
    let seal = run(Home::new().path(), &["keys", "generate-seal"]);
    assert_exit(&seal, 0);
    let mut key = None;
    homes.map(|mut home| {
        configure(&home, &database.url());
        let file = home.path().join("posthorn.yaml");
        let config = std::fs::read_to_string(&file).expect("there");
        let shared = home.path().join("shared.key");
        std::fs::write(&shared, &seal.stdout).expect("written");
        let config = format!("{config}seal: {{key: 'file:{}'}}\n", shared.display());
        std::fs::write(&file, config).expect("written");
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
    configure(&home, &database.url());
    let server = home.serve();
    server.running.says("same seal key");
    let (mut listener, _) = server.listen(&["--subscribe", "orders", "--count", "1", "--json"]);
    server.ask(&["send", "orders", "order.created", "{\"on\": \"postgres\"}"]);
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    assert!(listener.stdout().contains("\"verified\":true"), "{}", listener.stdout());
    eventually("the end of the delivery", || {
        (server.ask(&["stats"])["delivered"] == 1).then_some(())
    });
    let backup = server.command().args(["backup", "--to", "copy.db"]).output().expect("runs");
    assert_exit(&backup, 2);
    assert_says(&backup, &["PostgreSQL", "pg_dump"]);
    server.stop();

    database.stop_immediate().expect("stops");
    let mut running = Running::start(posthorn(home.path()).arg("serve"));
    running.wait_for("message", |text| text.contains("trying again").then_some(()));
    database.restart().expect("starts");
    running.wait_for("start", |text| text.contains("listening on").then_some(()));
    running.signal("TERM");
    assert_eq!(running.wait().code(), Some(0), "{}", running.stderr());
}

#[test]
fn a_database_that_refuses_us_is_named_at_once() {
    let database = database();
    let home = Home::new();
    configure(&home, &database.database_url("no_such_database"));
    let output =
        posthorn(home.path()).args(["serve", "--set", "store.wait=3s"]).output().expect("runs");
    assert_ne!(output.status.code(), Some(0));
    assert_says(&output, &["no_such_database", "store.url"]);
}

/// What was revoked behind the nodes' backs, so that no hint of it ever came, is noticed all the same:
/// every sign of life of a node compares catalogs.
#[test]
fn a_revoked_key_opens_nothing_on_any_node_within_five_seconds_although_no_hint_came() {
    let database = database();
    let (mut one, mut two) = (Home::new(), Home::new());
    configure(&one, &database.url());
    configure(&two, &database.url());
    let first = one.serve();
    two.key.clone_from(&one.key);
    let second = two.serve();
    let made = first.ask(&["keys", "create", "--scope", "read"]);
    let (id, key) = (made["id"].as_str().expect("an id"), made["key"].as_str().expect("a key"));
    let opens = |server: &Server| {
        let list =
            server.command().args(["events", "list", "--json"]).env("POSTHORN_KEY", key).output();
        list.expect("runs").status.success()
    };
    assert!(opens(&first) && opens(&second));

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
        eventually("the refusal", || (!opens(server)).then_some(()));
    }
    assert!(revoked.elapsed() < Duration::from_secs(5), "{:?}", revoked.elapsed());
    // Uses were seen on both nodes, and are one list.
    let keys = second.ask(&["keys", "list"]);
    let used = keys["items"].as_array().into_iter().flatten().find(|listed| listed["id"] == id);
    assert!(used.is_some_and(|key| key["last_used_at"].is_string()), "{keys}");
    first.stop();
    second.stop();
}
