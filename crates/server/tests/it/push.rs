//! Web Push, as an operator, a browser and a sender see it.

use std::future::Future;

use posthorn_agent::{Agent, Event, Notification, Options};
use posthorn_domain::{AgentId, ChannelId};
use posthorn_testkit::caller::Reply;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::wait::PATIENCE;
use tokio::time::timeout;

use crate::postgres;

const CHANNEL: ChannelId = ChannelId::from_bytes([7; 16]);

/// A home whose servers do Web Push, with more keys below `push`.
pub(crate) fn home(keys: &str) -> Home {
    let home = Home::new();
    home.configure(&format!("push:\n  enabled: true\n  drain_timeout: 200ms\n{keys}"));
    home
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| runtime.block_on(timeout(PATIENCE, future))).expect("in time")
}

/// A browser that is connected, perhaps as somebody the server knows.
pub(crate) fn connected(server: &Server, known: Option<AgentId>) -> (Agent, AgentId) {
    wait(async {
        let mut agent = Agent::connect(&server.url, &Options::default()).await.expect("a socket");
        let hello = agent.hello(known, &[]).await.expect("hello");
        assert_eq!(hello.known, known.is_some());
        (agent, hello.agent)
    })
}

pub(crate) fn notified(agent: &mut Agent) -> Notification {
    match wait(agent.next()).expect("an event") {
        Event::Notification(notification) => notification,
        other => panic!("{other:?}"),
    }
}

/// Posts to an endpoint, at the server that has its path now.
#[track_caller]
fn post(server: &Server, endpoint: &str, ttl: &str) -> Reply {
    let path = &endpoint[endpoint.find("/wpush/").expect("an endpoint")..];
    let headers = [("ttl", ttl), ("content-length", "0")];
    server.open("POST", path).headers(&headers).send()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_goes_from_a_sender_to_a_browser_and_survives_a_restart() {
    let (mut home, server) = home("  broadcasts: {values: {one: v1}}\n").served();
    server.get("/").expect(426);
    let (mut agent, id) = connected(&server, None);
    let endpoint = wait(agent.register(CHANNEL, None)).expect("an endpoint");
    assert!(endpoint.starts_with(&format!("{}/wpush/v1/", server.url)), "{endpoint}");
    post(&server, &endpoint, "0").expect(201);
    let first = notified(&mut agent);
    assert_eq!(first.channel, CHANNEL);
    wait(agent.ack(&[first.ack()])).expect("acknowledged");
    let health = server.get("/health").expect(200);
    assert_eq!((&health["connections"], &health["request_count"]), (&1.into(), &1.into()));
    // The rest of the server is there as well.
    server.get("/healthz").expect(200);
    server.ask("stats");

    // What the browser had not acknowledged when the server stopped comes again.
    post(&server, &endpoint, "60").expect(201);
    let second = notified(&mut agent);
    server.stop();
    let end = wait(agent.next());
    assert!(matches!(end, Ok(Event::Closed(_))), "{end:?}");
    let server = home.serve();
    let (mut agent, _) = connected(&server, Some(id));
    assert_eq!(notified(&mut agent).version, second.version);
    drop(agent);
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_that_fails_leaves_the_operator_key_for_the_next() {
    let mut home = home("  broadcasts: {url: 'http://169.254.169.254/'}\n");
    let failed = home.run("serve").exits(78).says(&["push.broadcasts.url cannot be asked"]);
    assert!(!failed.err.contains("operator key"), "{}", failed.err);
    let file = home.path().join("posthorn.yaml");
    let config = std::fs::read_to_string(&file).expect("there");
    let (config, _) = config.split_once("  broadcasts").expect("it is the last");
    std::fs::write(file, config).expect("written");
    let server = home.serve();
    let shown = server.ask("push show-key");
    let key = shown["public_key"].as_str().expect("a key");
    assert_eq!((key.len(), &key[..1]), (87, "B"));
    let plain = server.run("push show-key").exits(0);
    assert!(plain.out.contains(key), "{}", plain.out);
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_survive_a_change_of_the_seal_key() {
    let (mut home, server) = home("").served();
    let (mut agent, _) = connected(&server, None);
    let endpoint = wait(agent.register(CHANNEL, None)).expect("an endpoint");
    home.run("seal rotate --begin posthorn-data/seal.key").exits(0);
    server.stop();
    let server = home.serve();
    let finish = ["seal", "rotate", "--finish", "posthorn-data/seal.key"];
    server.run(&finish).exits(0).says(&["endpoint.keys", "back it up"]);
    server.stop();
    let server = home.serve();
    post(&server, &endpoint, "60").expect(201);
    server.stop();
    // Without the kept key it would be dead.
    std::fs::remove_file(home.data().join("endpoint.keys")).expect("was there");
    let server = home.serve();
    post(&server, &endpoint, "60").expect(404);
    server.stop();
    std::fs::write(home.data().join("endpoint.keys"), "nonsense\n").expect("written");
    home.run("serve").exits(78).says(&["endpoint.keys are not readable", "backup"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_one_database_hand_messages_to_each_other() {
    let database = postgres::database();
    let nodes = "  internal: {listen: '127.0.0.1:0'}\n";
    let (mut one, mut two) = (home(nodes), home(nodes));
    for home in [&one, &two] {
        home.store_in(&database.url());
    }
    let first = one.serve();
    two.key.clone_from(&one.key);
    std::fs::create_dir_all(two.data()).expect("made");
    std::fs::copy(one.data().join("seal.key"), two.data().join("seal.key")).expect("the same key");
    let second = two.serve();
    let (mut agent, _) = connected(&first, None);
    let endpoint = wait(agent.register(CHANNEL, None)).expect("an endpoint");
    // One that is stored for nobody: it arrives straight away or not at all.
    post(&second, &endpoint, "0").expect(201);
    let notification = notified(&mut agent);
    wait(agent.ack(&[notification.ack()])).expect("acknowledged");
    drop(agent);
    first.stop();
    post(&second, &endpoint, "60").expect(201);
    second.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nearly_full_disk_takes_no_messages_in() {
    let mut home = home("");
    let server = home.serve();
    let (mut agent, _) = connected(&server, None);
    let endpoint = wait(agent.register(CHANNEL, None)).expect("an endpoint");
    drop(agent);
    server.stop();
    home.edit(
        "disk_warn_percent: 100, disk_refuse_percent: 100",
        "disk_warn_percent: 1, disk_refuse_percent: 1",
    );
    let mut server = home.serve();
    server.running.wait_for("the word", |text| text.contains("nearly full").then_some(()));
    post(&server, &endpoint, "60").expect(503);
    server.stop();
}

#[test]
fn what_is_wrong_is_said_before_anything_starts() {
    let home = home("  body_max: 1KiB\n  endpoint_url: push.example\n");
    for command in [&["check"][..], &["serve"]] {
        home.run(command).exits(78).says(&["push.body_max", "push.endpoint_url"]);
    }
    let plain = Home::new();
    let flag = plain.run("check --push --json").exits(0);
    assert!(flag.out.contains("flag --push"), "{}", flag.out);
    // A port that is taken is named by its setting.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    let setting = format!("push.internal.listen={address}");
    plain.run(&["serve", "--push", "--set", &setting]).says(&["in use", "push.internal.listen"]);
}

#[test]
fn no_tenant_can_make_the_server_call_its_internal_listener() {
    let home = home("  internal: {listen: '127.0.0.1:18081'}\n");
    let url = |url: &str| home.run(&["check", "url", url]);
    url("http://127.0.0.1:18082/").exits(0);
    let own = url("http://127.0.0.1:18081/push/x");
    assert_ne!(own.code, Some(0), "{}", own.err);
}
