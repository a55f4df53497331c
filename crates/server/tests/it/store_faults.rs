//! What becomes of a server whose store is taken away, filled up or damaged.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use posthorn_testkit::caller::{Reply, call};
use posthorn_testkit::program::{Home, Ran, Running};
use posthorn_testkit::wait::until;
use serde_json::json;

fn publish(url: &str, key: &str, bytes: usize) -> Reply {
    let event = json!({"topic": "orders", "type": "a", "payload": "x".repeat(bytes)});
    call(url, "POST", "/v1/events").key(key).json(&event).send()
}

#[test]
fn a_data_directory_that_is_removed_makes_the_server_unready_and_refuse() {
    let (mut home, server) = Home::new().served();
    server.ask("topics put orders");
    publish(&server.url, &server.key, 10).expect(202);
    let (data, aside) = (home.data(), home.path().join("aside"));
    std::fs::rename(&data, &aside).expect("moved");
    let gone = Instant::now();
    assert_eq!(publish(&server.url, &server.key, 10).expect(503)["code"], "unavailable");
    server.get("/readyz").expect(503);
    assert!(gone.elapsed() < Duration::from_secs(5), "{:?}", gone.elapsed());
    server.get("/healthz").expect(200);
    server.running.says("was removed or replaced");
    // A new directory in its place is not the store.
    std::fs::create_dir(&data).expect("made");
    publish(&server.url, &server.key, 10).expect(503);
    std::fs::remove_dir(&data).expect("removed");
    // The same files again are.
    std::fs::rename(&aside, &data).expect("moved back");
    until("readiness", || server.get("/readyz").status == 200);
    publish(&server.url, &server.key, 10).expect(202);
    let events = server.ask("events list");
    assert_eq!(events["items"].as_array().map(Vec::len), Some(2), "{events}");
    server.stop();

    // Removed for good.
    let server = home.serve();
    std::fs::remove_dir_all(&data).expect("removed");
    server.get("/readyz").expect(503);
    publish(&server.url, &server.key, 10).expect(503);
}

/// A server whose data directory is a file system of its own, of so many bytes; only it sees it, so its
/// first key is given to it.
fn serve_on_small_disk(home: &Home, bytes: usize, key: &str) -> (Running, String) {
    let (data, address) = (home.data(), home.path().join("address"));
    std::fs::create_dir_all(&data).expect("made");
    let program = env!("CARGO_BIN_EXE_posthorn");
    let script = format!(
        "mount -t tmpfs -o size={bytes} none {} && exec {program} serve --address-file {}",
        data.display(),
        address.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    command.current_dir(home.path());
    command.env("POSTHORN__KEYS__BOOTSTRAP", "env:FIRST_KEY").env("FIRST_KEY", key);
    let mut running = Running::start(&mut command);
    let url = running.wait_for("address", |_| std::fs::read_to_string(&address).ok());
    (running, url.trim().to_owned())
}

#[test]
fn a_full_disk_is_said_at_once_and_by_its_name() {
    let home = Home::new();
    let key = home.run("keys generate operator").out.trim().to_owned();
    let (mut running, url) = serve_on_small_disk(&home, 12 << 20, &key);
    Ran::of(
        home.command()
            .args(["topics", "put", "orders"])
            .env("POSTHORN_SERVER", &url)
            .env("POSTHORN_KEY", &key),
    )
    .exits(0);
    let mut accepted = 0;
    let refused = loop {
        let answer = publish(&url, &key, 200_000);
        if answer.status != 202 {
            break answer;
        }
        accepted += 1;
        assert!(accepted < 200, "the disk is never full");
    };
    assert_eq!(refused.expect(503)["code"], "disk_full");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert!(accepted > 5, "{accepted}");
    // It lives on, and says what is the matter as often as it is asked.
    assert_eq!(publish(&url, &key, 200_000).expect(503)["code"], "disk_full");
    call(&url, "GET", "/healthz").send().expect(200);
    call(&url, "GET", "/v1/events").key(&key).send().expect(200);
    running.signal("TERM");
    running.wait();
}

/// Overwrites pages in the middle of a file.
fn damage(file: &Path) {
    let mut opened = std::fs::File::options().write(true).open(file).expect("opened");
    let pages = opened.metadata().expect("there").len() / 4_096;
    assert!(pages > 40, "{pages}");
    for page in (2..pages).step_by(3) {
        opened.seek(SeekFrom::Start(page * 4_096)).expect("there");
        opened.write_all(&[0xa5; 4_096]).expect("written");
    }
    opened.sync_all().expect("synced");
}

#[test]
fn damaged_pages_are_found_read_only_and_only_a_backup_is_promised() {
    let (mut home, server) = Home::new().served();
    server.ask("topics put orders");
    for _ in 0..20 {
        publish(&server.url, &server.key, 20_000).expect(202);
    }
    // Beside a server at work, too.
    home.run("check store").exits(0).says(&["is sound", "pages"]);
    let backup = home.path().join("backup.db");
    Ran::of(home.command().args(["backup", "--to"]).arg(&backup)).exits(0);
    server.stop();

    let file = home.data().join("posthorn.db");
    damage(&file);
    let before = std::fs::read(&file).expect("read");
    for args in [&["check", "store"][..], &["check", "store", "--quick"]] {
        let found = home.run(args).exits(65).says(&["is damaged", "restore", "backup"]);
        assert!(!found.out.is_empty(), "findings are data");
    }
    let json = home.run("check store --json").exits(65);
    let report: serde_json::Value = json.json();
    assert_eq!(report["sound"], false);
    assert_eq!(before, std::fs::read(&file).expect("read"), "the check wrote something");

    // The server says the same, at its start or when it finds out.
    let address = home.path().join("address");
    drop(std::fs::remove_file(&address));
    let mut command = home.command();
    command.args(["serve", "--address-file"]).arg(&address);
    let mut running = Running::start(&mut command);
    let begun = Instant::now();
    loop {
        // Publishes touch what is damaged, when the start has not.
        if let Ok(url) = std::fs::read_to_string(&address) {
            publish(url.trim(), home.key.as_deref().expect("known"), 20_000);
        }
        let text = running.stderr();
        if text.contains("damaged") && text.contains("backup") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(running.wait().code(), Some(65), "{}", running.stderr());
    assert!(!running.stderr().contains("nothing that is on disk is lost"));

    // What the message says works.
    for name in ["posthorn.db", "posthorn.db-wal", "posthorn.db-shm"] {
        drop(std::fs::remove_file(home.data().join(name)));
    }
    std::fs::copy(&backup, &file).expect("restored");
    home.run("check store").exits(0);
    let server = home.serve();
    let events = server.ask("events list");
    assert_eq!(events["items"].as_array().map(Vec::len), Some(20));
    server.stop();
}

#[test]
fn a_check_of_no_store_says_so() {
    let home = Home::new();
    let none = home.run("check store").exits(1);
    assert!(none.err.contains("there is no store"), "{}", none.err);
}

#[test]
fn damaged_pages_of_postgresql_are_found_as_well() {
    let database = crate::postgres::database();
    let mut home = Home::new();
    home.store_in(&database.url());
    let server = home.serve();
    server.ask("topics put orders");
    for _ in 0..10 {
        publish(&server.url, &server.key, 5_000).expect(202);
    }
    home.run("check store").exits(0).says(&["is sound", "rows", "tables"]);
    server.stop();
    let find = "select pg_relation_filepath('entry'), current_setting('data_directory')";
    let found = database.sql(find).expect("answers");
    let (relation, folder) = found.trim().split_once('|').expect("two columns");
    database.sql("checkpoint").expect("written back");
    database.stop_immediate().expect("stops");
    let file = Path::new(folder.trim()).join(relation.trim());
    let mut opened = std::fs::File::options().write(true).open(file).expect("opened");
    opened.write_all(&[0xa5; 4_096]).expect("written");
    drop(opened);
    database.restart().expect("starts");
    let damaged = home.run("check store").exits(65).says(&["is damaged", "backup"]);
    assert!(damaged.out.contains("invalid page"), "{}", damaged.out);
}
