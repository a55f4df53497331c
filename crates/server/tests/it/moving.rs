//! Stores that move from one database to another.

use std::path::Path;
use std::time::Duration;

use posthorn_domain::Timestamp;
use posthorn_testkit::clock::since_1970;
use posthorn_testkit::postgres;
use posthorn_testkit::program::{Home, Running, Server, id_of};
use posthorn_testkit::receiver::Receiver;
use posthorn_testkit::wait::until;
use serde_json::{Value, json};

/// What `store copy` says, as JSON.
#[track_caller]
pub(super) fn copied(home: &Home, args: &str) -> Value {
    home.run(&format!("store copy --json {args}")).exits(0).json()
}

/// A schema of the shared server that is a test's own: how it is named as a target, and as a source.
pub(super) fn schema(name: &str) -> (String, String) {
    let url = postgres::shared().url();
    (format!("--to {url} --to-schema {name}"), format!("--from {url} --from-schema {name}"))
}

pub(super) fn sql(statement: &str) {
    postgres::shared().sql(statement).expect(statement);
}

/// A row of each kind that a few minutes of a test do not make by themselves.
fn add_rare_rows(schema: &str) {
    let tenant = format!("(select id from {schema}.tenant order by id limit 1)");
    let id = |n: u8| format!("'018f0000-0000-7000-8000-0000000000{n:02}'");
    let some = |table: &str| format!("insert into {schema}.{table}");
    for statement in [
        format!("{} values ({}, 5) on conflict do nothing", some("key_use"), id(1)),
        format!(
            "{} select subscription, 3, 7, true, false from {schema}.delivery_done limit 1",
            some("failing")
        ),
        format!("{} select at, scope, counts from {schema}.rollup limit 1", some("rollup_hour")),
        format!(
            "{} values ({}, 'console', {tenant}, null, null, 'x', 9999999999999, '{{}}')",
            some("page_session"),
            id(2)
        ),
        format!(
            "{} (key, seed_at, seed, expires_at, status, body) values ('\\x01', 1, {}, 9999999999999, 201, 'hi')",
            some("kept_answer"),
            id(3)
        ),
        format!("{} values ({}, 'http://node', 1, 2, 9999999999999)", some("push_agent"), id(4)),
        format!("{} values ({}, {}, '\\x0203', 4)", some("push_channel"), id(4), id(5)),
        format!(
            "{} (agent, seq, channel, id, received_at, ttl, expires_at, body) values ({}, nextval('{schema}.push_seq'), {}, {}, 1, 2, 9999999999999, '\\xff')",
            some("push_message"),
            id(4),
            id(5),
            id(6)
        ),
        format!(
            "{} (id, tenant, work, per_second, state, seen, done, created_by, created_at, finished_at) values ({}, {tenant}, '{{\"kind\":\"delete_tenant\"}}', 1, 2, 3, 4, 'me', 5, 9999999999999)",
            some("job"),
            id(7)
        ),
        format!("insert into {schema}.pruned (before) values (17)"),
    ] {
        sql(&statement);
    }
}

/// Something of everything: lanes that wait, one that is blocked, what was delivered, what died, and what is for later.
fn fill(server: &Server, receiver: &Receiver) {
    server.ask("topics put orders");
    let url = |path: &str| receiver.url(path);
    server.ask(&["subscriptions", "create", &url("/done"), "--topic", "orders", "--name", "done"]);
    let by_key = r#"{"order":{"scope":"key"}}"#;
    server.ask(&[
        "subscriptions",
        "create",
        &url("/lanes"),
        "--topic",
        "orders",
        "--name",
        "lanes",
        "--policy",
        by_key,
        "--paused",
    ]);
    let blocking = r#"{"order":{"scope":"subscription","dead_head":"block"}}"#;
    server.ask(&[
        "subscriptions",
        "create",
        &url("/blocked"),
        "--topic",
        "orders",
        "--name",
        "blocked",
        "--profile",
        "once",
        "--policy",
        blocking,
    ]);
    server.ask("tenants create acme");
    for n in 0..12 {
        let (payload, key) = (json!({"n": n}).to_string(), format!("k{}", n % 3));
        server.ask(&[
            "send",
            "orders",
            "order.created",
            &payload,
            "-a",
            "region=eu",
            "--ordering-key",
            &key,
            "--idempotency-key",
            &format!("i{n}"),
        ]);
    }
    server.ask(&[
        "send",
        "orders",
        "order.kept",
        r#"{"n": 12}"#,
        "--retention",
        "1d",
        "--ordering-key",
        "k9",
    ]);
    let later = since_1970() + Duration::from_secs(2 * 86_400);
    let later =
        Timestamp::from_millis(i64::try_from(later.as_millis()).expect("our time")).to_string();
    let tomorrow = server.ask(&[
        "send",
        "orders",
        "order.later",
        r#"{"n": 13}"#,
        "--deliver-at",
        &later,
        "--ordering-key",
        "k9",
    ]);
    assert_eq!(tomorrow["deliveries"], 3, "{tomorrow}");
    // The first of the blocked lane died; 12 wait behind it, 13 wait for a resume, 3 for the day after tomorrow.
    server.settles(&[("delivered", 13), ("dead", 1), ("pending", 12 + 13 + 3)]);
}

/// The numbers of what arrived at a path, in their order.
fn arrived(receiver: &Receiver, path: &str) -> Vec<u64> {
    let seen = receiver.seen();
    let seen = seen.iter().filter(|request| request.path == path);
    seen.map(|request| {
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        body["n"].as_u64().expect("a number")
    })
    .collect()
}

#[test]
fn a_store_moves_to_postgres_and_back_and_its_server_goes_on_with_what_waits() {
    let receiver = Receiver::scripted(|request| if request.path == "/blocked" { 500 } else { 200 });
    let (mut home, server) = Home::new().served();
    fill(&server, &receiver);

    // While the server works the copy is as of one moment, and nobody starts on it.
    let (to_one, from_one) = schema("moving_one");
    let first = copied(&home, &format!("--from config {to_one}"));
    assert_eq!(first["complete"], false, "{first}");
    home.configure(&format!(
        "store: {{url: '{}', schema: moving_one}}\n",
        postgres::shared().url()
    ));
    home.run("serve").exits(78).says(&[
        "is a copy of sqlite:",
        "not complete",
        "posthorn store copy",
    ]);
    home.run("store copy --from config --to sqlite:elsewhere").fails().says(&["not complete"]);
    server.ask(&["send", "orders", "order.created", r#"{"n": 14}"#, "--ordering-key", "k0"]);
    server.settles(&[("delivered", 14)]);
    let lanes_dead = server.ask("dead-letters list");
    server.stop();

    // Then only what has changed is copied.
    let second = copied(&home, &format!("--from sqlite:posthorn-data {to_one}"));
    assert_eq!(second["complete"], true, "{second}");
    let written = |copy: &Value| copy["rows_written"].as_u64().expect("a number");
    assert!(written(&second) < written(&first) / 2, "{second}");
    assert_eq!(second["left_out"], 0);

    // There and back, with rows of every kind.
    add_rare_rows("moving_one");
    let back = copied(&home, &format!("{from_one} --to sqlite:back"));
    let (to_two, _) = schema("moving_two");
    std::fs::copy(home.data().join("seal.key"), home.path().join("back/seal.key")).expect("copied");
    let two = copied(&home, &format!("--from sqlite:back {to_two}"));
    let three = copied(&home, "--from sqlite:back --to sqlite:three");
    assert_eq!(back["tables"], two["tables"]);
    assert_eq!(back["tables"], three["tables"]);
    for table in back["tables"].as_array().expect("a list") {
        let optional = table["name"] == "redrive";
        assert!(optional || table["rows"].as_u64() > Some(0), "{table}");
    }
    for (place, said) in [("--data back", "is sound"), ("--data three", "is sound")] {
        home.run(&format!("check store --set store.url=sqlite {place}")).exits(0).says(&[said]);
    }

    // The server goes on: exactly what waited arrives, in order.
    home.edit("schema: moving_one", "schema: moving_two");
    let before = receiver.count();
    receiver.answers(200);
    let server = home.serve();
    assert!(
        server.running.stderr().contains("there is also a SQLite store"),
        "{}",
        server.running.stderr()
    );
    home.run("check store").exits(0).says(&["is sound"]);
    server.ask("subscriptions resume lanes");
    let dead = id_of(&lanes_dead["items"][0]);
    server.ask(&["dead-letters", "retry", &dead]);
    server.settles(&[("delivered", 14 + 14 + 14), ("dead", 0), ("pending", 3)]);
    assert_eq!(receiver.count() - before, 14 + 14, "exactly what waited");
    for key in 0..3 {
        let lane: Vec<u64> =
            arrived(&receiver, "/lanes").into_iter().filter(|n| n % 3 == key && *n < 12).collect();
        assert_eq!(lane, (0..12).filter(|n| n % 3 == key).collect::<Vec<_>>());
    }
    let blocked = arrived(&receiver, "/blocked");
    assert_eq!(blocked[1..], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14], "{blocked:?}");
    // A repeat of a publish of before is one.
    let again = server.ask(&[
        "send",
        "orders",
        "order.created",
        r#"{"n":0}"#,
        "-a",
        "region=eu",
        "--ordering-key",
        "k0",
        "--idempotency-key",
        "i0",
    ]);
    assert_eq!(again["duplicate"], true);
    server.stop();

    // And so does one on SQLite, with what waits there.
    let data = format!("--set store.url=sqlite --data {}", home.path().join("three").display());
    std::fs::copy(home.data().join("seal.key"), home.path().join("three/seal.key"))
        .expect("copied");
    let before = receiver.count();
    let server = home.serve_with(&data);
    server.ask("subscriptions resume lanes");
    server.ask(&["dead-letters", "retry", &dead]);
    server.settles(&[("delivered", 14 + 14 + 14), ("dead", 0), ("pending", 3)]);
    assert_eq!(receiver.count() - before, 14 + 14, "exactly what waited");
    let blocked = arrived(&receiver, "/blocked");
    assert_eq!(blocked[15..], blocked[1..15], "in the same order");
    let listed = server.ask("events list --type order.kept");
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed}");
    server.stop();
}

/// Begins a copy again and again and kills it, each time a little later, until it ends by itself; how often it was killed.
fn kill_until_complete(home: &Home, args: &str) -> usize {
    let (mut delay, mut killed) = (Duration::from_millis(60), 0);
    loop {
        let mut command = home.command();
        command.args(["store", "copy", "--json"]).args(args.split_whitespace());
        let mut running = Running::start(&mut command);
        std::thread::sleep(delay);
        running.signal("KILL");
        match running.wait().code() {
            None => killed += 1,
            Some(0) => return killed,
            // The last one was killed when everything was done already.
            Some(73) if killed > 0 => return killed,
            // The database has not noticed yet that the last one is gone.
            Some(75) => {}
            Some(code) => panic!("{code}: {}", running.stderr()),
        }
        delay = delay * 5 / 4;
    }
}

#[test]
fn a_copy_that_is_killed_again_and_again_is_as_one_that_was_not() {
    let (home, server) = Home::new().served();
    server.ask("topics put orders");
    let ordered = r#"{"order":{"scope":"key"}}"#;
    server.ask(&[
        "subscriptions",
        "create",
        "http://127.0.0.1:9/",
        "--name",
        "one",
        "--policy",
        ordered,
        "--paused",
    ]);
    server.ask(&["subscriptions", "create", "http://127.0.0.1:9/", "--name", "two", "--paused"]);
    for n in 0..4 {
        server.ask(&format!(
            "send orders order.created --count 600 --ordering-key k{n} --idempotency-key i{n}"
        ));
    }
    server.stop();
    let whole = copied(&home, "--from config --to sqlite:whole");
    let (to, from) = schema("moving_killed");
    let there = kill_until_complete(&home, &format!("--from config {to}"));
    assert_eq!(copied(&home, &format!("{from} --to sqlite:there"))["tables"], whole["tables"]);
    let back = kill_until_complete(&home, &format!("{from} --to sqlite:back"));
    std::fs::copy(home.data().join("seal.key"), home.path().join("back/seal.key")).expect("copied");
    assert_eq!(copied(&home, "--from sqlite:back --to sqlite:again")["tables"], whole["tables"]);
    println!("killed {there} times on the way there, {back} on the way back");
    home.run("check store --data back").exits(0).says(&["is sound"]);
}

#[test]
fn what_cannot_be_copied_is_refused_and_nothing_is_changed() {
    let (mut home, server) = Home::new().served();
    server.ask("topics put orders");
    server.ask("subscriptions create http://127.0.0.1:9/ --paused");
    server.ask("send orders order.created");
    server.stop();
    let (to, from) = schema("moving_refused");
    let is_there = |path: &str| home.path().join(path).exists();

    home.run("store copy --from nothing --to sqlite:a").exits(2).says(&["sqlite:DIRECTORY"]);
    home.run("store copy --from sqlite:missing --to sqlite:a")
        .exits(1)
        .says(&["no store in missing"]);
    home.run("store copy --from config --to sqlite:./posthorn-data")
        .exits(2)
        .says(&["the same store"]);
    assert!(!is_there("missing") && !is_there("a"));

    // Keys that do not open what is sealed: of the configuration, and beside the target.
    home.run("seal create --to other.key").exits(0);
    let other = format!("--set seal.key=file:{}", home.path().join("other.key").display());
    home.run(&format!("store copy --from config --to sqlite:a {other}"))
        .exits(78)
        .says(&["cannot decrypt 1 of 1"]);
    assert!(!is_there("a"));
    std::fs::create_dir(home.path().join("b")).expect("made");
    std::fs::copy(home.path().join("other.key"), home.path().join("b/seal.key")).expect("copied");
    home.run("store copy --from config --to sqlite:b")
        .exits(78)
        .says(&["another seal key", "cannot decrypt"]);
    assert!(!is_there("b/posthorn.db"));

    // What is there already is not overwritten.
    copied(&home, &format!("--from config {to}"));
    home.run(&format!("store copy --from config {to}")).exits(73).says(&["not empty"]);
    home.run("store copy --from config --to sqlite:full").exits(0);
    home.run("store copy --from config --to sqlite:full").exits(73).says(&["not empty"]);
    home.run(&format!("store copy {from} {to}")).exits(2).says(&["the same store"]);

    // A copy of something else.
    sql(
        "create table moving_refused.unfinished_copy (source text); insert into moving_refused.unfinished_copy values ('sqlite:/other')",
    );
    home.run(&format!("store copy --from config {to}")).exits(1).says(&["a copy of sqlite:/other"]);
    home.run(&format!("store copy {from} --to sqlite:c")).exits(1).says(&["not complete"]);
    sql("drop table moving_refused.unfinished_copy");

    // A schema of the future.
    sql("insert into moving_refused.migration (version, checksum) values (999, '0')");
    home.run(&format!("store copy {from} --to sqlite:c")).fails().says(&["version 999", "newer"]);
    home.run(&format!("store copy --from config {to}")).fails().says(&["version 999"]);
    sql("delete from moving_refused.migration where version = 999");
    assert!(!is_there("c"));

    // A server that works on the target.
    home.configure(&format!(
        "store: {{url: '{}', schema: moving_refused}}\n",
        postgres::shared().url()
    ));
    let server = home.serve();
    home.run(&format!("store copy --from sqlite:posthorn-data {to}")).exits(75).says(&["in use"]);
    let events = server.ask("stats");
    assert_eq!(events["events"], 1);
    server.stop();
    until("the source is as it was", || Path::new(&home.data().join("posthorn.db")).exists());
}
