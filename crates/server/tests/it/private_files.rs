//! What is written belongs to its owner alone, whatever the umask says.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use posthorn_testkit::program::{Home, Ran, Running, read_key};
use posthorn_testkit::wait::until;

fn mode(path: &Path) -> u32 {
    path.metadata().expect("there").permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("changed");
}

/// The program under a umask that closes nothing.
fn open_handed(dir: &Path, args: &str) -> Command {
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_posthorn");
    command.args(["-c", &format!("umask 000; exec {program} {args}")]).current_dir(dir);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("POSTHORN") {
            command.env_remove(name);
        }
    }
    command
}

fn serve(home: &Home) -> (Running, String) {
    let address = home.path().join("address");
    drop(std::fs::remove_file(&address));
    let mut running = Running::start(&mut open_handed(home.path(), "serve --address-file address"));
    let url = running.wait_for("address", |_| std::fs::read_to_string(&address).ok());
    // What it has to say about files comes before.
    running.wait_for("announcement", |log| log.contains("listening on").then_some(()));
    (running, url.trim().to_owned())
}

#[track_caller]
fn all_closed(folder: &Path) -> Vec<PathBuf> {
    let files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    files
}

#[test]
fn every_file_is_closed_to_others_whatever_the_umask() {
    let home = Home::new();
    let (mut running, url) = serve(&home);
    let key = read_key(&home.data());
    let run = |args: &str| {
        let mut command = open_handed(home.path(), args);
        command.env("POSTHORN_SERVER", &url).env("POSTHORN_KEY", &key);
        Ran::of(&mut command).exits(0);
    };
    run("send orders order.created --create-topic");
    let names: Vec<String> = all_closed(&home.data())
        .iter()
        .map(|file| file.file_name().expect("a name").to_string_lossy().into_owned())
        .collect();
    let expected = [
        "posthorn.db",
        "posthorn.db-wal",
        "posthorn.db-shm",
        "posthorn.lock",
        "operator.key",
        "seal.key",
    ];
    for name in expected {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }
    assert_eq!(mode(&home.data()), 0o700);
    assert!(!running.stderr().contains("chmod"), "{}", running.stderr());
    for (args, file) in [
        ("backup --to copy.db", "copy.db"),
        ("seal create --to other.key", "other.key"),
        ("keys generate operator --to first.key", "first.key"),
        ("seal rotate --begin other.key", "other.key"),
    ] {
        run(args);
        assert_eq!(mode(&home.path().join(file)), 0o600, "{args}");
    }

    // What is open already is closed at the next start; a folder is its owner's to close.
    running.signal("KILL");
    running.wait();
    set_mode(&home.data(), 0o755);
    for name in expected.iter().filter(|name| home.data().join(name).exists()) {
        set_mode(&home.data().join(name), 0o644);
    }
    let (mut running, _) = serve(&home);
    all_closed(&home.data());
    running.says("listening on");
    let log = running.stderr();
    assert!(log.contains("chmod 700") && log.contains("posthorn-data"), "{log}");
    // Each of them was open to others for a while, and whoever runs the server should know.
    for name in ["posthorn.db", "posthorn.db-wal", "posthorn.lock", "operator.key", "seal.key"] {
        let warned = |line: &str| line.contains("WARN") && line.contains(&format!("{name}\""));
        assert!(log.lines().any(warned), "{name}: {log}");
    }
    running.signal("TERM");
    assert_eq!(running.wait().code(), Some(0));
}

#[test]
fn secrets_of_the_operator_that_others_can_read_are_warned_of_and_left_alone() {
    let home = Home::new();
    for (command, file) in
        [("seal create", "own-seal.key"), ("keys generate operator", "own-first.key")]
    {
        let args = format!("{command} --to {file}");
        Ran::of(&mut open_handed(home.path(), &args)).exits(0);
    }
    home.configure("seal: {key: 'file:own-seal.key'}\nkeys: {bootstrap: 'file:own-first.key'}\n");
    let start = || {
        let (mut running, _) = serve(&home);
        running.signal("TERM");
        assert_eq!(running.wait().code(), Some(0));
        running.stderr()
    };
    let log = start();
    assert!(!log.contains("chmod"), "{log}");

    set_mode(&home.path().join("own-seal.key"), 0o640);
    set_mode(&home.path().join("own-first.key"), 0o604);
    let log = start();
    for (key, file, mode) in
        [("seal.key", "own-seal.key", 0o640), ("keys.bootstrap", "own-first.key", 0o604)]
    {
        let warned = |line: &str| {
            line.contains("WARN")
                && [key, &format!("{file}\""), "chmod 600"].iter().all(|part| line.contains(part))
        };
        assert!(log.lines().any(warned), "{file}: {log}");
        assert_eq!(self::mode(&home.path().join(file)), mode, "whose file it is decides");
    }
}

#[test]
fn the_identity_of_an_agent_is_closed_to_others_whatever_the_umask() {
    let home = Home::new();
    let address = home.path().join("address");
    let args = "serve --push --address-file address";
    let mut running = Running::start(&mut open_handed(home.path(), args));
    let url = running.wait_for("address", |_| std::fs::read_to_string(&address).ok());
    let mut command =
        open_handed(home.path(), "listen --subscribe orders --push --keep agent.json");
    let key = read_key(&home.data());
    let listener =
        Running::start(command.env("POSTHORN_SERVER", url.trim()).env("POSTHORN_KEY", key));
    let file = home.path().join("agent.json");
    until("the identity", || file.exists());
    assert_eq!(mode(&file), 0o600);
    drop(listener);
}
