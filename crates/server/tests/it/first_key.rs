//! The first operator key: where it is, that it is never lost, and that the last one stays.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use posthorn_testkit::caller::{Reply, call};
use posthorn_testkit::program::{Home, Running, id_of, read_key};
use posthorn_testkit::wait::{PATIENCE, until};
use serde_json::{Value, json};

use crate::postgres::database;

/// The operator keys that a key shows.
#[track_caller]
fn operators(url: &str, key: &str) -> Vec<Value> {
    let all = send(url, key, "GET", "/v1/keys", "").expect(200);
    let operator = |key: &Value| key["scopes"] == json!(["operator"]);
    all["items"].as_array().expect("a list").iter().filter(|k| operator(k)).cloned().collect()
}

fn send(url: &str, key: &str, method: &str, path: &str, body: &str) -> Reply {
    call(url, method, path).key(key).text(body).send()
}

fn mode(file: &Path) -> u32 {
    file.metadata().expect("there").permissions().mode() & 0o777
}

#[test]
fn without_a_terminal_the_first_key_is_in_a_file_and_the_log_says_which() {
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (home, server) = Home::new().served();
        let file = home.data().join("operator.key");
        assert_eq!(mode(&file), 0o600);
        server.running.says("listening on");
        let log = server.running.stderr();
        assert!(log.contains(&*file.canonicalize().expect("there").to_string_lossy()), "{log}");
        assert!(!log.contains("ph_"), "no key in a log: {log}");
        let keys = operators(&server.url, &server.key);
        assert_eq!(keys.len(), 1);
        ids.push(keys[0]["id"].as_str().expect("an id").to_owned());
        server.stop();
    }
    assert_ne!(ids[0], ids[1], "nobody can guess it");
    assert!(ids.iter().all(|id| !id.contains("00000000")), "{ids:?}");
}

#[test]
fn on_a_terminal_the_first_key_is_shown() {
    let home = Home::new();
    let program = env!("CARGO_BIN_EXE_posthorn");
    let mut command = Command::new("script");
    command.args(["-qefc", &format!("{program} serve"), "/dev/null"]);
    command.current_dir(home.path()).stdin(Stdio::null()).env("NO_COLOR", "1");
    let running = Running::start(&mut command);
    let begun = Instant::now();
    while !running.stdout().contains("POSTHORN_KEY=") {
        assert!(begun.elapsed() < PATIENCE, "{}", running.stdout());
        std::thread::sleep(Duration::from_millis(20));
    }
    let shown = running.stdout();
    let key = read_key(&home.data());
    assert!(shown.contains(&format!("export POSTHORN_KEY={key}")), "{shown}");
    assert!(shown.contains("operator.key"), "{shown}");
    drop(running);
}

/// A kill at many moments of the first start: whatever it left, the next start has one key that works
/// and that the file tells.
#[test]
fn a_first_start_that_is_killed_at_any_moment_leaves_a_key_that_works() {
    let begun = Instant::now();
    let mut whole = Home::new();
    whole.serve().stop();
    let whole = begun.elapsed();
    let (mut with_file, tries) = (0, 24);
    for number in 0..tries {
        let mut home = Home::new();
        let mut command = home.command();
        let mut running = Running::start(command.arg("serve"));
        if number % 3 == 0 {
            // Right behind the file, which is where a key could be lost.
            let begun = Instant::now();
            while !home.data().join("operator.key").exists() && begun.elapsed() < whole * 10 {
                std::thread::sleep(Duration::from_micros(200));
            }
            std::thread::sleep(Duration::from_micros(300) * number);
        } else {
            std::thread::sleep(whole * number / tries);
        }
        running.signal("KILL");
        running.wait();
        let kept = std::fs::read_to_string(home.data().join("operator.key")).ok();
        with_file += usize::from(kept.is_some());
        let server = home.serve();
        assert!(kept.is_none_or(|kept| kept.trim() == server.key), "the key stays");
        assert_eq!(operators(&server.url, &server.key).len(), 1);
        server.stop();
    }
    assert!(with_file > 0, "some were killed behind the file");
}

#[test]
fn a_key_that_is_only_in_the_file_is_taken_in_and_what_is_no_key_is_refused() {
    let mut home = Home::new();
    std::fs::create_dir(home.data()).expect("a folder");
    let file = home.data().join("operator.key");
    home.run("keys generate operator --to posthorn-data/operator.key").exits(0);
    let key = read_key(&home.data());
    let server = home.serve();
    assert_eq!(server.key, key);
    assert_eq!(operators(&server.url, &key).len(), 1);
    server.stop();

    let home = Home::new();
    std::fs::create_dir(home.data()).expect("a folder");
    std::fs::copy(&file, home.data().join("operator.key")).expect("copied");
    std::fs::write(home.data().join("operator.key"), "ph_half").expect("written");
    let refused = home.run("serve").exits(78).says(&["operator.key", "remove the file"]);
    assert!(!refused.err.contains("ph_half"));
}

#[test]
fn a_first_key_can_come_from_the_environment_or_a_file() {
    let mut home = Home::new();
    let key = home.run("keys generate operator").out.trim().to_owned();
    home.configure("keys: {bootstrap: 'env:FIRST_KEY'}\n");
    home.env = vec![("FIRST_KEY".to_owned(), key.clone())];
    home.key = Some(key.clone());
    for _ in 0..2 {
        let server = home.serve();
        assert_eq!(operators(&server.url, &key).len(), 1);
        let log = server.running.stderr();
        assert!(!log.contains("ph_") && !log.contains("is not valid here"), "{log}");
        server.stop();
    }
    assert!(!home.data().join("operator.key").exists(), "it is kept by its owner");
    // Another one later is not taken in: there is a key that works.
    let other = home.run("keys generate operator").out.trim().to_owned();
    home.env = vec![("FIRST_KEY".to_owned(), other.clone())];
    let mut server = home.serve();
    server.running.wait_for("warning", |log| log.contains("keys.bootstrap").then_some(()));
    send(&server.url, &other, "GET", "/v1/keys", "").expect(401);
    assert_eq!(operators(&server.url, &key).len(), 1);
    server.stop();

    let mut home = Home::new();
    home.run("keys generate operator --to first.key").exits(0);
    let file = home.path().join("first.key");
    assert_eq!(mode(&file), 0o600);
    home.configure("keys: {bootstrap: 'file:first.key'}\n");
    let key = std::fs::read_to_string(&file).expect("a key").trim().to_owned();
    home.key = Some(key.clone());
    let server = home.serve();
    assert_eq!(operators(&server.url, &key).len(), 1);
    server.stop();

    std::fs::write(&file, "ph_nearly").expect("written");
    let refused = home.run("serve").exits(78).says(&["keys.bootstrap", "not an API key"]);
    assert!(!refused.err.contains("ph_nearly"));
    let plain = home.run("serve --set keys.bootstrap=ph_in_the_open").exits(78);
    assert!(!plain.err.contains("ph_in_the_open"));
}

fn recover(home: &Home) -> String {
    let made = home.run("keys recover --json").exits(0).json();
    made["key"].as_str().expect("a key").to_owned()
}

#[test]
fn a_lost_key_is_replaced_without_a_server() {
    let mut home = Home::new();
    home.run("keys recover").exits(1).says(&["there is no store"]);
    let server = home.serve();
    let busy = home.run("keys recover");
    assert_ne!(busy.code, Some(0), "the server has the store");
    busy.says(&["stop the other process"]);
    server.stop();
    let key = recover(&home);
    home.run("keys recover --to new.key").exits(0);
    let file = home.path().join("new.key");
    assert_eq!(mode(&file), 0o600);
    let server = home.serve();
    assert_eq!(operators(&server.url, &key).len(), 3);
    assert_eq!(
        operators(&server.url, std::fs::read_to_string(file).expect("there").trim()).len(),
        3
    );
    server.stop();
}

#[test]
fn the_last_operator_key_cannot_be_revoked() {
    let (_home, server) = Home::new().served();
    let (url, key) = (&server.url, &server.key);
    let first = operators(url, key)[0]["id"].as_str().expect("an id").to_owned();
    let revoke = |key: &str, id: &str| send(url, key, "DELETE", &format!("/v1/keys/{id}"), "");
    let refused = revoke(key, &first).expect(409);
    assert_eq!(refused["code"], "last_operator_key");
    // Nor when the others work for a while only.
    for end in ["2030-01-01T00:00:00Z", "9999-12-31T23:59:59Z"] {
        let body = json!({"scopes": ["operator"], "expires_at": end}).to_string();
        let made = send(url, key, "POST", "/v1/keys", &body).expect(201);
        assert!(made["expires_at"].as_str().expect("a time").starts_with(&end[..10]));
        revoke(key, &first).expect(409);
    }
    let lasting = json!({"scopes": ["operator"]}).to_string();
    let made = send(url, key, "POST", "/v1/keys", &lasting).expect(201);
    let (id, other) = (made["id"].as_str().expect("id"), made["key"].as_str().expect("key"));
    revoke(key, &first).expect(204);
    send(url, key, "GET", "/v1/keys", "").expect(401);
    assert_eq!(revoke(other, id).expect(409)["code"], "last_operator_key");
    let revoke = &["keys", "revoke", id, "--key", other];
    server.run(revoke).fails().says(&["last_operator_key"]);
    server.stop();
}

#[test]
fn nodes_that_start_together_make_one_key_between_them() {
    let database = database();
    let seal = Home::new().run("seal create").out;
    let home = |shared: &Path| {
        let home = Home::new();
        home.store_in(&database.url());
        home.write("shared.key", &seal);
        home.configure("seal: {key: 'file:shared.key'}\n");
        if shared != Path::new("") {
            std::os::unix::fs::symlink(shared, home.data()).expect("linked");
        }
        home
    };
    let mut homes: Vec<Home> = (0..3).map(|_| home(Path::new(""))).collect();
    // The last two share a folder.
    std::fs::create_dir(homes[2].data()).expect("a folder");
    homes.push(home(&homes[2].data()));
    let start = |home: &Home| {
        let mut command = home.command();
        Running::start(command.args(["serve", "--address-file", "address"]))
    };
    let mut nodes: Vec<Running> = homes.iter().map(start).collect();
    let urls: Vec<String> = nodes
        .iter_mut()
        .zip(&homes)
        .map(|(node, home)| {
            let file = home.path().join("address");
            // Who made the key has said so before.
            node.wait_for("announcement", |log| log.contains("listening on").then_some(()));
            std::fs::read_to_string(&file).expect("an address").trim().to_owned()
        })
        .collect();
    let told = nodes.iter().filter(|n| n.stderr().contains("operator.key")).count();
    assert_eq!(told, 1, "one node made it");
    let kept: Vec<String> = homes[..3]
        .iter()
        .filter_map(|home| std::fs::read_to_string(home.data().join("operator.key")).ok())
        .collect();
    assert_eq!(kept.len(), 1, "one folder has it");
    for url in &urls {
        assert_eq!(operators(url, kept[0].trim()).len(), 1);
    }
    // Offline for those who lost it, although nodes are at work.
    let recovered = recover(&homes[0]);
    for url in &urls {
        until("the new key", || send(url, &recovered, "GET", "/v1/keys", "").status == 200);
    }
    // Two that are revoked at once on two nodes: one stays.
    let ids: Vec<String> = operators(&urls[0], &recovered).iter().map(id_of).collect();
    assert_eq!(ids.len(), 2);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let revoke = |at: usize| {
            let (url, path) = (&urls[at], format!("/v1/keys/{}", ids[at]));
            let key = &recovered;
            scope.spawn(move || send(url, key, "DELETE", &path, "").status)
        };
        let both = [revoke(0), revoke(1)];
        both.into_iter().map(|one| one.join().expect("answered")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 204).count(), 1, "{statuses:?}");
}

#[test]
fn nodes_that_share_a_folder_keep_the_key_that_works() {
    let database = database();
    let seal = Home::new().run("seal create").out;
    let shared = tempfile::tempdir().expect("a folder");
    let homes: Vec<Home> = (0..4)
        .map(|_| {
            let home = Home::new();
            home.store_in(&database.url());
            home.write("shared.key", &seal);
            home.configure("seal: {key: 'file:shared.key'}\n");
            std::os::unix::fs::symlink(shared.path(), home.data()).expect("linked");
            home
        })
        .collect();
    let start = |home: &Home| {
        let mut command = home.command();
        Running::start(command.args(["serve", "--address-file", "address"]))
    };
    let mut nodes: Vec<Running> = homes.iter().map(start).collect();
    for (node, home) in nodes.iter_mut().zip(&homes) {
        let file = home.path().join("address");
        let url = node.wait_for("address", |_| std::fs::read_to_string(&file).ok());
        // Whoever knows an address finds the key, and it works there.
        let key = read_key(shared.path());
        assert_eq!(operators(url.trim(), key.trim()).len(), 1);
    }
}
