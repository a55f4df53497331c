//! Backups that become stores again, servers that send nothing, and stores that are put right.

use posthorn_testkit::postgres;
use posthorn_testkit::program::Home;
use posthorn_testkit::receiver::Receiver;
use serde_json::json;

#[test]
fn a_restored_store_calls_nobody_until_it_is_resumed() {
    let receiver = Receiver::new(503);
    let (mut home, server) = Home::new().served();
    server.ask("topics put orders");
    let soon =
        r#"{"schedule":{"backoff":{"fixed":{"wait":"100ms"}},"jitter":"none","max_attempts":900}}"#;
    let made = server.ask(&[
        "subscriptions",
        "create",
        &receiver.url("/"),
        "--name",
        "hook",
        "--policy",
        soon,
    ]);
    server.ask("send orders order.created --count 3");
    receiver.wait_for(3);
    home.run("backup --to backup.db").exits(0);
    home.run("restore backup.db").exits(73).says(&["a store already", "nothing is overwritten"]);
    server.stop();
    receiver.answers(200);
    let before = receiver.count();

    home.run("restore backup.db --to restored --dry-run").exits(0).says(&[
        "is sound",
        "3 events",
        "3 deliveries",
        "seal.key",
        "nothing was written",
    ]);
    assert!(!home.path().join("restored").exists());
    // Of a store that was there once.
    let left = ["posthorn.db-wal", "posthorn.db-shm", "posthorn.db-journal"];
    let left = left.map(|name| home.path().join("restored").join(name));
    std::fs::create_dir(home.path().join("restored")).expect("made");
    left.iter().for_each(|file| std::fs::write(file, "of another store").expect("written"));
    home.run("restore backup.db --to restored").exits(0).says(&[
        "restored",
        "serve --hold",
        "posthorn resume",
    ]);
    left.iter().for_each(|file| assert!(!file.exists(), "{}", file.display()));
    home.run("restore backup.db --to restored").exits(73).says(&["a store already"]);
    std::fs::copy(home.data().join("seal.key"), home.path().join("restored/seal.key"))
        .expect("copied");

    let server = home.serve_with("--hold --data restored");
    let ready = server.get("/readyz").with(200).json();
    assert_eq!(ready, json!({"status": "ready", "on_hold": true}));
    assert_eq!(server.metric("posthorn_on_hold"), 1.0);
    assert!(server.running.stderr().contains("on hold"), "the log says so");
    // What is published is accepted and waits; what an operator tries does not leave either.
    assert_eq!(server.ask("send orders order.created")["deliveries"], 1);
    let tested = server.ask(&["subscriptions", "test", made["id"].as_str().expect("an id")]);
    assert!(tested.to_string().contains("on hold"), "{tested}");
    // Long enough for attempts whose retries are a tenth of a second away.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(receiver.count(), before, "nobody was called");
    assert_eq!(server.ask("stats")["pending"], 4);

    assert_eq!(server.ask("resume"), json!({"was_on_hold": true}));
    server.settles(&[("delivered", 4), ("pending", 0)]);
    assert_eq!(receiver.count() - before, 4);
    assert_eq!(server.ask("resume"), json!({"was_on_hold": false}));
    assert_eq!(server.get("/readyz").with(200).json(), json!({"status": "ready"}));
    assert_eq!(server.metric("posthorn_on_hold"), 0.0);
    let lines = server.ask("audit list --action node.resumed");
    assert_eq!(lines["items"].as_array().map(Vec::len), Some(1), "{lines}");
    server.stop();
}

#[test]
fn a_file_that_is_no_sound_backup_is_not_restored() {
    let (home, server) = Home::new().served();
    server.ask("topics put orders");
    server.ask("subscriptions create http://127.0.0.1:9/ --paused");
    server.ask("send orders order.created --count 50");
    home.run("backup --to backup.db").exits(0);
    // The files of a store at work are no backup.
    home.run("restore posthorn-data/posthorn.db --to r")
        .exits(1)
        .says(&["a log beside it", "posthorn backup"]);
    server.stop();
    home.write("backup.db-journal", "what to undo");
    home.run("restore backup.db --to r").exits(1).says(&["a log beside it", "-journal"]);
    std::fs::remove_file(home.path().join("backup.db-journal")).expect("removed");

    home.run("restore missing.db --to r").exits(1).says(&["missing.db cannot be read"]);
    home.write(
        "text.db",
        "this is no database, but long enough to have a header, or so it seems to readers of files",
    );
    home.run("restore text.db --to r").exits(65).says(&["not a database"]);
    let mut bytes = std::fs::read(home.path().join("backup.db")).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8192].fill(0x5a);
    home.write("damaged.db", &bytes);
    home.run("restore damaged.db --to r").exits(65).says(&["damaged", "another backup"]);
    home.run("seal create --to other.key").exits(0);
    let other = format!("--set seal.key=file:{}", home.path().join("other.key").display());
    home.run(&format!("restore backup.db --to r {other}"))
        .exits(78)
        .says(&["cannot decrypt 1 of 1"]);
    assert!(!home.path().join("r").exists(), "nothing was made");
}

#[test]
fn of_a_backup_with_an_older_schema_it_is_said_that_the_key_could_not_be_tried() {
    let (home, server) = Home::new().served();
    server.ask("topics put orders");
    server.ask("subscriptions create http://127.0.0.1:9/ --paused");
    home.run("backup --to backup.db").exits(0);
    server.stop();
    home.run("seal create --to other.key").exits(0);
    let other = format!("--set seal.key=file:{}", home.path().join("other.key").display());
    let restore = format!("restore backup.db --to r --dry-run {other}");
    home.run(&restore).exits(78).says(&["cannot decrypt"]);
    // As the version before would have written it.
    let backup = rusqlite::Connection::open(home.path().join("backup.db")).expect("a connection");
    let older = "delete from migration where version = (select max(version) from migration); \
                 drop table kept_answer";
    backup.execute_batch(older).expect("changed");
    drop(backup);
    home.run(&restore).exits(0).says(&["schema is older", "the seal key could not be tried"]);
    let told = home.run(&format!("{restore} --json")).exits(0).json();
    assert_eq!((&told["events"], &told["pending"]), (&json!(null), &json!(null)), "{told}");
}

#[test]
fn a_store_in_postgres_whose_rows_do_not_fit_is_repaired() {
    let url = postgres::shared().url();
    let mut home = Home::new();
    home.configure(&format!("store: {{url: '{url}', schema: repairing}}\n"));
    let server = home.serve();
    server.ask("topics put orders");
    server.ask("send orders order.created");
    let sql = |text: &str| postgres::shared().sql(text).expect(text);
    sql("update repairing.tally set events = events + 3");
    sql(
        "insert into repairing.push_channel values (gen_random_uuid(), gen_random_uuid(), null, 1)",
    );
    let found = home.run("check store").exits(65).says(&["2 findings", "--repair"]);
    for part in ["1 push channels without their agent", "1 tenants whose counts"] {
        assert!(found.out.contains(part), "{}", found.out);
    }
    home.run("check store --repair").fails().says(&["a server works with it"]);
    server.stop();
    let repaired = home.run("check store --repair").exits(0).says(&["is sound"]);
    assert_eq!(repaired.out.matches("(repaired)").count(), 2, "{}", repaired.out);
    home.run("check store").exits(0).says(&["is sound"]);
}
