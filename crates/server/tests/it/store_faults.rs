//! What becomes of a server whose store is taken away, filled up or damaged.

use std::io::{Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{
    Home, Running, assert_exit, assert_says, err, eventually, out, posthorn, run,
};

#[expect(clippy::disallowed_methods, reason = "the test's own client talks to its own server")]
fn exchange(url: &str, request: &str) -> String {
    let address = url.strip_prefix("http://").expect("an address");
    let Ok(mut stream) = TcpStream::connect(address) else { return String::new() };
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    drop(stream.write_all(request.as_bytes()));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(url: &str, path: &str) -> String {
    exchange(url, &format!("GET {path} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n"))
}

fn publish(url: &str, key: &str, bytes: usize) -> String {
    let payload = "x".repeat(bytes);
    let body = format!("{{\"topic\":\"orders\",\"type\":\"a\",\"payload\":\"{payload}\"}}");
    exchange(
        url,
        &format!(
            "POST /v1/events HTTP/1.1\r\nhost: a.test\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ),
    )
}

#[test]
fn a_data_directory_that_is_removed_makes_the_server_unready_and_refuse() {
    let mut home = Home::new();
    let server = home.serve();
    server.ask(&["topics", "put", "orders"]);
    assert!(publish(&server.url, &server.key, 10).starts_with("HTTP/1.1 202"));
    let (data, aside) = (home.data(), home.path().join("aside"));
    std::fs::rename(&data, &aside).expect("moved");
    let gone = Instant::now();
    let answer = publish(&server.url, &server.key, 10);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("unavailable"), "{answer}");
    let ready = get(&server.url, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(gone.elapsed() < Duration::from_secs(5), "{:?}", gone.elapsed());
    assert!(get(&server.url, "/healthz").starts_with("HTTP/1.1 200"));
    server.running.says("was removed or replaced");
    // A new directory in its place is not the store.
    std::fs::create_dir(&data).expect("made");
    assert!(publish(&server.url, &server.key, 10).starts_with("HTTP/1.1 503"));
    std::fs::remove_dir(&data).expect("removed");
    // The same files again are.
    std::fs::rename(&aside, &data).expect("moved back");
    eventually("readiness", || {
        get(&server.url, "/readyz").starts_with("HTTP/1.1 200").then_some(())
    });
    assert!(publish(&server.url, &server.key, 10).starts_with("HTTP/1.1 202"));
    let events = server.ask(&["events", "list"]);
    assert_eq!(events["items"].as_array().map(Vec::len), Some(2), "{events}");
    server.stop();

    // Removed for good.
    let server = home.serve();
    std::fs::remove_dir_all(&data).expect("removed");
    assert!(get(&server.url, "/readyz").starts_with("HTTP/1.1 503"));
    assert!(publish(&server.url, &server.key, 10).starts_with("HTTP/1.1 503"));
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
    let key = out(&run(home.path(), &["keys", "generate", "operator"])).trim().to_owned();
    let (mut running, url) = serve_on_small_disk(&home, 12 << 20, &key);
    let topic = posthorn(home.path())
        .args(["topics", "put", "orders"])
        .env("POSTHORN_SERVER", &url)
        .env("POSTHORN_KEY", &key)
        .output()
        .expect("runs");
    assert_exit(&topic, 0);
    let mut accepted = 0;
    let refused = loop {
        let answer = publish(&url, &key, 200_000);
        if !answer.starts_with("HTTP/1.1 202") {
            break answer;
        }
        accepted += 1;
        assert!(accepted < 200, "the disk is never full");
    };
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("\"code\":\"disk_full\""), "{refused}");
    assert!(refused.to_lowercase().contains("retry-after: "), "{refused}");
    assert!(accepted > 5, "{accepted}");
    // It lives on, and says what is the matter as often as it is asked.
    let again = publish(&url, &key, 200_000);
    assert!(again.contains("\"code\":\"disk_full\""), "{again}");
    assert!(get(&url, "/healthz").starts_with("HTTP/1.1 200"));
    let events = exchange(
        &url,
        &format!(
            "GET /v1/events HTTP/1.1\r\nhost: a.test\r\nauthorization: Bearer {key}\r\n\
             connection: close\r\n\r\n"
        ),
    );
    assert!(events.starts_with("HTTP/1.1 200"), "{events}");
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
    let mut home = Home::new();
    let server = home.serve();
    server.ask(&["topics", "put", "orders"]);
    for _ in 0..20 {
        assert!(publish(&server.url, &server.key, 20_000).starts_with("HTTP/1.1 202"));
    }
    // Beside a server at work, too.
    let sound = run(home.path(), &["check", "store"]);
    assert_exit(&sound, 0);
    assert_says(&sound, &["is sound", "pages"]);
    let backup = home.path().join("backup.db");
    let made = posthorn(home.path()).args(["backup", "--to"]).arg(&backup).output().expect("runs");
    assert_exit(&made, 0);
    server.stop();

    let file = home.data().join("posthorn.db");
    damage(&file);
    let before = std::fs::read(&file).expect("read");
    for args in [&["check", "store"][..], &["check", "store", "--quick"]] {
        let found = run(home.path(), args);
        assert_exit(&found, 65);
        assert_says(&found, &["is damaged", "restore", "backup"]);
        assert!(!out(&found).is_empty(), "findings are data");
    }
    let json = run(home.path(), &["check", "store", "--json"]);
    assert_exit(&json, 65);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(report["sound"], false);
    assert_eq!(before, std::fs::read(&file).expect("read"), "the check wrote something");

    // The server says the same, at its start or when it finds out.
    let address = home.path().join("address");
    drop(std::fs::remove_file(&address));
    let mut command = posthorn(home.path());
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
    assert_exit(&run(home.path(), &["check", "store"]), 0);
    let server = home.serve();
    let events = server.ask(&["events", "list"]);
    assert_eq!(events["items"].as_array().map(Vec::len), Some(20));
    server.stop();
}

#[test]
fn a_check_of_no_store_says_so() {
    let home = Home::new();
    let none = run(home.path(), &["check", "store"]);
    assert_exit(&none, 1);
    assert!(err(&none).contains("there is no store"), "{}", err(&none));
}

#[test]
fn damaged_pages_of_postgresql_are_found_as_well() {
    let database = crate::postgres::database();
    let mut home = Home::new();
    crate::postgres::configure(&home, &database.url());
    let server = home.serve();
    server.ask(&["topics", "put", "orders"]);
    for _ in 0..10 {
        assert!(publish(&server.url, &server.key, 5_000).starts_with("HTTP/1.1 202"));
    }
    let sound = run(home.path(), &["check", "store"]);
    assert_exit(&sound, 0);
    assert_says(&sound, &["is sound", "rows", "tables"]);
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
    let damaged = run(home.path(), &["check", "store"]);
    assert_exit(&damaged, 65);
    assert_says(&damaged, &["is damaged", "backup"]);
    assert!(out(&damaged).contains("invalid page"), "{}", out(&damaged));
}
