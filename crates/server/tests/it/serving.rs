//! `serve`: starts, stops, restarts, and everything that can be in the way.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use posthorn_testkit::program::{Home, Ran, Running};
use posthorn_testkit::wait::{eventually, until};

#[test]
fn the_first_start_makes_a_key_and_a_restart_keeps_everything() {
    let (mut home, server) = Home::new().served();
    server.running.says("listening on http://127.0.0.1:");
    assert!(server.running.stdout().is_empty(), "a server has no data to print");
    server.ask("topics put orders");
    let sent = server.ask(&["send", "orders", "order.created", "{\"total\":  12}"]);
    assert_eq!(sent["deliveries"], 0);
    let seal = home.data().join("seal.key");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&seal.metadata().expect("there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());

    let server = home.serve();
    assert!(!server.running.stderr().contains("operator.key"), "a key is made once");
    assert_eq!(server.ask("topics list")["items"][0]["name"], "orders");
    let events = server.ask("events list");
    assert_eq!(events["items"][0]["id"], sent["id"]);
    server.stop();
}

#[test]
fn nothing_accepted_is_lost_when_it_is_killed() {
    let (mut home, server) = Home::new().served();
    server.ask("topics put orders");
    // Nobody listens there, so that everything is still to be done when the server dies.
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/");
    let made = server.ask(&["subscriptions", "create", &url, "--profile", "quick"]);
    let secret = made["signing_secret"].as_str().expect("made").to_owned();
    let sent = server.ask("send orders order.created --count 3");
    assert_eq!(sent["accepted"], 3);
    drop(server);

    let server = home.serve();
    let port = port.to_string();
    let (mut listener, _) =
        server.listen(&["--port", &port, "--count", "3", "--verify", &secret, "--json"]);
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    assert_eq!(listener.stdout().matches("\"verified\":true").count(), 3);
    until("the end of all deliveries", || {
        let stats = server.ask("stats");
        stats["delivered"] == 3 && stats["pending"] == 0
    });
    server.stop();
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port()
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut home = Home::new();
    home.edit("drain_timeout: 2s", "drain_timeout: 20s");
    let mut server = home.serve();
    let (listener, _) = server.listen("--subscribe orders --stall");
    server.ask("send orders order.created");
    until("an attempt under way", || !listener.stdout().is_empty());
    server.running.signal("INT");
    server.running.wait_for("stop", |text| text.contains("\"stopping\"").then_some(()));
    let begun = Instant::now();
    server.running.signal("INT");
    assert_eq!(server.running.wait().code(), Some(130), "{}", server.running.stderr());
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_reload_without_a_certificate_changes_nothing() {
    let (_home, mut server) = Home::new().served();
    server.ask("topics put orders");
    for count in 1..=2 {
        server.running.signal("HUP");
        // Each is answered, not only the first.
        server.running.wait_for("what a reload does", |text| {
            (text.matches("nothing was reloaded").count() == count).then_some(())
        });
    }
    server.get("/readyz").expect(200);
    assert_eq!(server.ask("topics list")["items"][0]["name"], "orders");
    server.stop();
}

#[test]
fn a_server_at_a_terminal_that_is_closed_stops_in_good_order() {
    let home = Home::new();
    // `script` gives a shell a terminal of its own, which is gone with it. As any shell does, this one passes SIGHUP on;
    // then it tells how the server ended.
    let program = env!("CARGO_BIN_EXE_posthorn");
    let serve = format!("{program} serve --address-file address");
    let serve = format!("trap 'kill -HUP $!' HUP; {serve} & wait $!; wait $!; echo $? >code");
    let mut command = std::process::Command::new("script");
    command.args(["-qfc", &serve, "/dev/null"]).current_dir(home.path());
    let terminal =
        Running::start(command.env("SHELL", "/bin/sh").stdin(std::process::Stdio::null()));
    until("the start", || home.path().join("address").exists());
    drop(terminal);
    let code = || std::fs::read_to_string(home.path().join("code")).ok();
    let ended = eventually("the end of the server", || code().filter(|code| code.ends_with('\n')));
    assert_eq!(ended.trim(), "0", "129 is the end of a process that knows nothing of SIGHUP");
}

#[test]
fn a_port_in_use_is_named_and_no_data_is_touched() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = taken.local_addr().expect("bound").to_string();
    home.run(&["serve", "--listen", &address]).exits(75).says(&[&address, "in use", "--listen"]);
    assert!(!home.data().exists());
}

#[test]
fn a_second_process_on_the_same_data_is_refused() {
    let (home, server) = Home::new().served();
    home.run("serve").exits(75).says(&["posthorn-data", "in use by another", "--data"]);
    server.stop();
}

#[test]
fn a_data_directory_that_cannot_be_used_is_named() {
    // A file in its place is as unusable as a directory without rights, also for root.
    let home = Home::new();
    home.write("file", "");
    home.run("serve --data file/data").exits(73).says(&["file/data", "hint:"]);
}

#[test]
fn a_seal_key_that_does_not_fit_is_refused() {
    let (home, server) = Home::new().served();
    server.ask("subscriptions create http://127.0.0.1:9/");
    server.stop();
    let seal = home.data().join("seal.key");
    let right = std::fs::read_to_string(&seal).expect("there");

    std::fs::remove_file(&seal).expect("removed");
    home.run("serve").exits(78).says(&["seal.key", "is missing"]);
    assert!(!seal.exists(), "no fresh key hides that the right one is lost");

    std::fs::write(&seal, "nonsense").expect("written");
    home.run("serve").exits(78).says(&["does not contain a seal key"]);

    std::fs::remove_file(&seal).expect("removed");
    home.run("seal create --to other.key").exits(0);
    std::fs::copy(home.path().join("other.key"), &seal).expect("copied");
    home.run("serve").exits(78).says(&["cannot decrypt 1 of 1", "seal.former"]);

    // With the old key among the former ones, the new one may take over.
    home.write("old.key", right);
    let mut command = home.command();
    command.args(["serve", "--set", "seal.former=file:old.key"]);
    let mut running = Running::start(&mut command);
    running.wait_for("start", |text| text.contains("listening on").then_some(()));
}

#[test]
fn a_database_that_is_away_is_waited_for_and_then_named() {
    let home = Home::new();
    let url = format!("postgres://posthorn:hush@127.0.0.1:{}/posthorn", free_port());
    let output = Ran::of(
        home.command()
            .args(["serve", "--set", "store.start_timeout=1s", "--set", "store.url=env:DB"])
            .env("DB", url),
    )
    .exits(69)
    .says(&["retrying", "PostgreSQL could not be reached within 1s", "store.start_timeout"]);
    assert!(!output.err.contains("hush"), "{}", output.err);
}

#[test]
fn probes_and_metrics_answer_without_a_key() {
    let (_home, server) = Home::new().served();
    server.ask("topics put orders");
    server.ask("send orders order.created");
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        server.get(path).expect(200);
    }
    let metrics = server.metrics();
    for part in [
        "posthorn_events_accepted_total 1",
        "posthorn_accept_batch_events_bucket",
        "posthorn_store_commit_seconds_bucket",
        "posthorn_build_info{version=",
        "process_resident_memory_bytes",
        "posthorn_egress_connections_total{how=\"opened\"}",
    ] {
        assert!(metrics.contains(part), "`{part}` is not in:\n{metrics}");
    }
    server.stop();
}

#[test]
fn a_receiver_that_is_gone_is_told_in_status_log_and_metrics() {
    let (_home, server) = Home::new().served();
    server.ask("topics put orders");
    let (_listener, address) = server.listen("--status 410");
    let made = server.ask(&["subscriptions", "create", &address]);
    let id = made["id"].as_str().expect("an id");
    server.ask("send orders order.created");
    let shown = eventually("disabled", || {
        let shown = server.ask(&["subscriptions", "show", id]);
        (shown["status"] == "disabled").then_some(shown)
    });
    assert_eq!(shown["status_reason"], "the receiver answered 410 Gone");
    assert_eq!(server.ask("stats")["pending"], 1, "its work is kept");
    let counted = "posthorn_subscriptions_disabled_total{reason=\"gone\"} 1";
    until("the count", || server.metrics().contains(counted));
    server.running.says("a subscription was disabled");
    server.stop();
}

#[test]
fn the_server_does_not_deliver_to_itself() {
    let (_home, server) = Home::new().served();
    let port = server.url.rsplit(':').next().expect("a port").to_owned();
    // Loopback is open here, and still the server's own port is not.
    for url in [server.url.clone(), format!("http://2130706433:{port}/v1/events")] {
        let output = server.run(&["subscriptions", "create", &url, "--profile", "quick"]).exits(1);
        // The tenant learns that it is closed, not what is there.
        let output = output.says(&["receivers may not be at this address"]);
        assert!(!output.err.contains("installation"), "{}", output.err);
    }
    server.stop();
}

#[test]
fn opening_metadata_is_said_loudly() {
    let home = Home::new();
    let mut running = Running::start(home.command().args([
        "serve",
        "--set",
        "egress.dangerously_allow_metadata=true",
    ]));
    running.wait_for("the warning", |text| {
        text.contains("egress.dangerously_allow_metadata is on").then_some(())
    });
    running.signal("TERM");
    running.wait();
}

#[test]
fn a_store_that_fails_ends_the_process_and_a_restart_recovers() {
    let mut home = Home::new();
    home.serve().stop();
    // Writes beyond the limit fail as on a broken disk, not as on a full one.
    let address = home.path().join("address");
    drop(std::fs::remove_file(&address));
    let script = "trap '' XFSZ; ulimit -f 4000; exec \"$0\" serve --address-file address";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_posthorn")]).current_dir(home.path());
    let mut running = Running::start(&mut command);
    let url = running.wait_for("address", |_| std::fs::read_to_string(&address).ok());
    let payload = format!("\"{}\"", "x".repeat(10_000));
    let key = home.key.clone().expect("created at the first start");
    let mut sender = home.command();
    sender.args(["send", "orders", "order.created", &payload, "--create-topic", "--count", "2000"]);
    sender.env("POSTHORN_SERVER", url.trim()).env("POSTHORN_KEY", key).arg("--json");
    let sent = Ran::of(&mut sender);
    assert_ne!(sent.code, Some(0), "not everything fits");
    assert_eq!(running.wait().code(), Some(70), "{}", running.stderr());
    running.says("the server has failed");

    let server = home.serve();
    let events = server.ask("stats")["events"].as_u64().expect("a number");
    assert!((1..2000).contains(&events), "{events}");
    server.ask("send orders order.created");
    server.stop();
}

#[test]
fn a_stop_while_waiting_for_a_database_is_obeyed() {
    let home = Home::new();
    let url = format!("postgres://posthorn@127.0.0.1:{}/posthorn", free_port());
    let mut command = home.command();
    command.args(["serve", "--set", &format!("store.url={url}")]);
    let mut running = Running::start(&mut command);
    running.wait_for("message", |text| text.contains("retrying").then_some(()));
    running.signal("TERM");
    assert_eq!(running.wait().code(), Some(0), "{}", running.stderr());
}
