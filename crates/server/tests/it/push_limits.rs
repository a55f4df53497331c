//! Web Push at its edges: backlogs above the limit, urgencies, broadcasts that moved, and what is refused
//! before a start.

use posthorn_agent::{Agent, Event, Options};
use posthorn_domain::AgentId;
use posthorn_sealing::endpoint_token::EndpointKey;
use posthorn_sealing::node_key::NodeKey;
use posthorn_sealing::vapid::SenderKey;
use posthorn_sealing::vault::VaultKey;
use posthorn_testkit::program::{Home, Ran};
use posthorn_testkit::receiver::{Answer, Receiver};
use posthorn_testkit::wait::PATIENCE;
use tokio::time::timeout;

use crate::push_world::{Shape, Town, WITH_TEXT, acknowledged, event, notification, text};

/// An agent that is away, with so many messages that wait for it.
async fn away(town: &Town, messages: usize) -> (AgentId, String) {
    let (agent, id, endpoint) = town.agents().registered().await;
    timeout(PATIENCE, agent.close()).await.expect("in time").expect("closed");
    let mut sender = town.senders().sender().await;
    for number in 0..messages {
        sender.post(&endpoint, &number.to_string()).await.expect(201);
    }
    (id, endpoint)
}

async fn gone(town: &Town, id: AgentId, endpoint: &str) {
    let answer = town.senders().sender().await.post(endpoint, "x").await;
    assert_eq!(answer.status, 410, "{answer:?}");
    let mut agent =
        Agent::connect(&town.agents().url, &Options::default()).await.expect("a socket");
    let hello = timeout(PATIENCE, agent.hello(Some(id), &[])).await.expect("in time");
    assert_ne!(hello.expect("a hello").agent, id, "it starts anew");
}

async fn dropped(shape: Shape, limit: usize, stored: usize) {
    let town = Town::start(shape, &format!("stored_max: {limit}"));
    let numbers: Vec<String> = (0..limit).map(|number| number.to_string()).collect();
    // It gets as many as are allowed, and only then loses everything.
    let (id, endpoint) = away(&town, stored).await;
    let (mut agent, _) = town.agents().agent(Some(id)).await;
    let mut seen = Vec::new();
    for _ in 0..limit {
        seen.push(acknowledged(&mut agent).await);
    }
    assert_eq!(seen, numbers, "{limit} of {stored}");
    match event(&mut agent).await {
        Event::Closed(closed) => assert_eq!(closed.code, Some(1000), "{closed:?}"),
        other => panic!("not the end: {other:?}"),
    }
    gone(&town, id, &endpoint).await;

    // Who closes right after the last acknowledgement is dropped as well.
    let (id, endpoint) = away(&town, stored).await;
    let (mut agent, _) = town.agents().agent(Some(id)).await;
    let mut got = Vec::new();
    for _ in 0..limit {
        got.push(notification(&mut agent).await);
    }
    let acks: Vec<_> = got.iter().map(|got| got.ack()).collect();
    agent.ack(&acks).await.expect("sent");
    drop(timeout(PATIENCE, agent.close()).await.expect("in time"));
    gone(&town, id, &endpoint).await;

    // One that acknowledges nothing keeps what it had.
    let (id, _) = away(&town, stored).await;
    let (mut agent, _) = town.agents().agent(Some(id)).await;
    let first = text(&notification(&mut agent).await);
    drop(timeout(PATIENCE, agent.close()).await.expect("in time"));
    let (mut agent, _) = town.agents().agent(Some(id)).await;
    assert_eq!(text(&notification(&mut agent).await), first);
    town.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_gets_five_of_seven_before_it_is_dropped_on_sqlite() {
    dropped(Shape::Sqlite, 5, 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_gets_fifteen_of_sixteen_before_it_is_dropped_on_postgresql() {
    dropped(Shape::Postgres, 15, 16).await;
}

/// A server that sends whoever asks for `/old` on to `/new` of its own, and `/away` to another.
fn moved(away: &str) -> Receiver {
    let (found, away) = (|to: &str| Answer::from(302).header("location", to), away.to_owned());
    let table = Answer::from(200).header("content-type", "application/json");
    let table = table.body(r#"{"broadcasts":{"remote/settings":"v7"}}"#);
    Receiver::scripted(move |seen| match seen.path.as_str() {
        "/old" => found("/newer"),
        "/newer" => found("new"),
        "/away" => found(&away),
        _ => table.clone(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn broadcasts_follow_their_origin_and_senders_may_write_urgency_as_they_like() {
    let other = moved("/");
    let source = moved(&other.url("/new"));
    let town = Town::start(
        Shape::Sqlite,
        &format!("broadcasts: {{url: '{}', interval: 50ms}}", source.url("/old")),
    );
    let node = town.agents();
    let followed = async {
        loop {
            let mut agent = Agent::connect(&node.url, &Options::default()).await.expect("a socket");
            let hello = agent.hello(None, &[("remote/settings", "")]).await.expect("a hello");
            if hello
                .broadcasts
                .iter()
                .any(|(id, version)| id == "remote/settings" && version == "v7")
            {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, followed).await.expect("the version of the moved table");

    let (mut agent, _, endpoint) = node.registered().await;
    let mut sender = node.sender().await;
    for urgency in ["high", "High", "VERY-LOW", "Normal", "lOW"] {
        let headers = [&WITH_TEXT[..], &[("urgency", urgency)]].concat();
        let answer = sender.ask("POST", &endpoint, &headers, urgency).await.expect("an answer");
        assert_eq!(answer.status, 201, "{urgency}: {answer:?}");
        assert_eq!(acknowledged(&mut agent).await, urgency);
    }
    let headers = [&WITH_TEXT[..], &[("urgency", "soon")]].concat();
    assert_eq!(sender.ask("POST", &endpoint, &headers, "x").await.expect("an answer").status, 400);
    town.stop();

    // To others nobody is led: what they say does not count.
    let settings = format!("broadcasts: {{url: '{}', interval: 50ms}}", source.url("/away"));
    let mut town = Town::start(Shape::Sqlite, &settings);
    let polled = async {
        let name = "posthorn_push_broadcast_polls_total{outcome=\"failed\"}";
        while town.agents().metric(name).await < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, polled).await.expect("it was asked");
    let log = town.nodes[0].stop();
    assert!(log.contains("a redirect to another origin"), "{log}");
    drop(town);
}

/// Both refuse it, in the same words.
#[track_caller]
fn refused(push: &str, says: &[&str]) {
    let home = Home::new();
    home.configure(&format!("push: {{enabled: true, {push}}}\n"));
    for command in ["check", "serve"] {
        let output = home.run(command);
        assert_eq!(output.code, Some(78), "{command}, {push}: {}", output.err);
        output.says(says);
    }
    assert!(!home.data().exists(), "nothing was opened");
}

#[test]
fn check_refuses_what_serve_refuses() {
    refused("roles: [connection]", &["push.roles", "SQLite", "PostgreSQL"]);
    refused("roles: [endpoint]", &["push.roles", "SQLite"]);
    let closed = "broadcasts: {url: 'http://10.0.0.1/broadcasts'}";
    refused(closed, &["push.broadcasts.url cannot be asked", "egress.allow"]);
    let unusable = "internal: {listen: '127.0.0.1:0', url: 'http://user@10.0.0.5:8081'}";
    refused(unusable, &["push.internal.url"]);
    let other = "internal: {listen: '127.0.0.1:0', url: 'http://10.0.0.5:99999'}";
    refused(other, &["push.internal.url"]);
}

#[test]
fn check_shows_the_connections_that_are_in_effect() {
    let home = Home::new();
    let shell = |limit: &str, json: &str| {
        let program = env!("CARGO_BIN_EXE_posthorn");
        let script = format!("ulimit -n {limit}; exec '{program}' check --push {json}");
        Ran::of(std::process::Command::new("sh").current_dir(home.path()).args(["-c", &script]))
            .exits(0)
    };
    // Half of what little there is goes to receivers, and most of the rest to agents.
    shell("1024", "").says(&[
        "server.connections 112 (not 10000)",
        "push.connections 336 (not 15000)",
        "egress.connections 448 (not 2000)",
        "1024 open files",
    ]);
    let entries = shell("1024", "--json").json();
    let entry = |key: &str| {
        let mut all = entries.as_array().expect("a list").iter();
        all.find(|entry| entry["key"] == key).cloned().expect("a key")
    };
    assert_eq!(entry("server.connections")["in_effect"], 112);
    assert_eq!(entry("push.connections")["in_effect"], 336);
    assert_eq!(entry("egress.connections")["in_effect"], 448);
    assert!(entry("server.listen").get("in_effect").is_none());
}

#[test]
fn every_kind_of_key_is_created_without_a_server() {
    let home = Home::new();
    let made = |command: &str| {
        let output = home.run(command).exits(0);
        (output.out.trim().to_owned(), output.err)
    };
    assert!(VaultKey::parse(&made("seal create").0).is_ok());
    assert!(EndpointKey::parse(&made("push create-key endpoint").0).is_ok());
    assert!(NodeKey::parse(&made("push create-key node").0).is_ok());
    let (text, public) = made("push create-key sender");
    let key = SenderKey::parse(&text).expect("a key");
    assert!(public.contains(&key.public_key().to_text()), "{public}");
    assert_ne!(made("push create-key sender").0, text);
    let shown = home.run("push create-key sender --json").json();
    assert!(shown["key"].is_string() && shown["public_key"].is_string(), "{shown}");

    // In a file that only its owner reads, which a start takes as it is.
    for (kind, command) in [
        ("seal", "seal create"),
        ("endpoint", "push create-key endpoint"),
        ("node", "push create-key node"),
    ] {
        home.run(&format!("{command} --to {kind}.key"))
            .exits(0)
            .says(&[&format!("file:{kind}.key")]);
        use std::os::unix::fs::PermissionsExt as _;
        let file = std::fs::metadata(home.path().join(format!("{kind}.key"))).expect("there");
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
    // Nothing is overwritten.
    home.run("push create-key node --to node.key").fails();
    home.configure(
        "seal: {key: 'file:seal.key'}\npush: {enabled: true, endpoint_keys: ['file:endpoint.key'], \
         internal: {listen: '127.0.0.1:0', key: 'file:node.key'}}\n",
    );
    home.run("check").exits(0);
    home.served().1.stop();
}
