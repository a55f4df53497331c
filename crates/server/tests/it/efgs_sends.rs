//! How EFGS callbacks are sent: what is checked before, what the request is, when, and which events are taken.

use std::time::Duration;

use posthorn_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::efgs_stage::{Country, QUICK, Stage, announce};

/// A connection that is open already does not save the look at the name.
#[test]
fn the_url_is_checked_before_every_send_also_on_a_connection_that_is_open() {
    let stage = Stage::new();
    let (_home, server) =
        stage.home("{schedule: {backoff: {fixed: {wait: 1s}}, max_attempts: 60}}", "").served();
    let backend = stage.backend("cb.de.example");
    backend.keep_connections();
    Country::register(&server, "DE").subscribe(&server, "cb", &backend);
    announce(&server, "1");
    announce(&server, "2");
    backend.wait_for(2);
    server.settles(&[("delivered", 2)]);
    stage.names.set("cb.de.example", &[[10, 0, 0, 1]]);
    // What the resolver knew is forgotten after a few seconds, long before the connection is.
    std::thread::sleep(Duration::from_secs(6));
    announce(&server, "3");
    let failed = eventually("a failed attempt", || {
        let list = server.ask("deliveries list --state pending");
        let delivery = server.ask(&["deliveries", "show", list["items"][0]["id"].as_str()?]);
        Some(delivery["attempts"][0]["failure"].as_str()?.to_owned())
    });
    assert_eq!(failed, "address_not_allowed");
    assert_eq!(backend.tags(), ["1", "2"], "nothing was sent to it");
    stage.names.set("cb.de.example", &[[127, 0, 0, 1]]);
    backend.wait_for(3);
    assert_eq!(backend.tags(), ["1", "2", "3"]);
    server.stop();
}

/// The request byte by byte, with certificates about that must not be taken for the right one.
#[test]
fn the_request_of_a_callback_has_tag_date_and_the_right_thumbprint_and_nothing_else() {
    let (stage, _home, server) = Stage::serving();
    let backend = stage.backend("cb.de.example");
    let [germany, holland] = ["DE", "NL"].map(|name| Country::register(&server, name));
    // Before the right one, and after it.
    let decoys = || {
        let (_, revoked) = germany.certify(&server, &backend.host, false);
        server.ask(&["certificates", "revoke", &revoked]);
        germany.certify(&server, "other.de.example", false);
        holland.certify(&server, &backend.host, false);
    };
    decoys();
    let right = germany.subscribe(&server, "cb", &backend);
    decoys();
    let sent = server.ask("send efgs.batches b -a 'batchTag=2020 8/17&x=ü+%' -a more=1");
    let day = server.ask(&["events", "show", sent["id"].as_str().expect("an id")]);
    let day = day["accepted_at"].as_str().expect("a time")[..10].to_owned();
    let seen = &backend.wait_for(1)[0];
    let line =
        format!("GET /callback?batchTag=2020%208%2F17%26x%3D%C3%BC%2B%25&date={day} HTTP/1.1\r\n");
    assert!(seen.head.starts_with(&line), "{}", seen.head);
    let mut names: Vec<String> = seen
        .head
        .trim_end()
        .lines()
        .skip(1)
        .map(|line| line.split(':').next().unwrap_or_default().to_lowercase())
        .collect();
    names.sort();
    assert_eq!(names, ["accept-encoding", "host", "user-agent", "x-ssl-client-sha256"]);
    assert_eq!(seen.header("x-ssl-client-sha256"), Some(right.thumbprint().as_str()));
    assert!(seen.head.ends_with("\r\n\r\n"), "no body");
    server.stop();
}

/// Everything the gateway calls X is a key of the configuration, and the running server goes by it.
#[test]
fn every_number_of_the_configuration_is_what_the_server_goes_by() {
    let stage = Stage::new();
    let policy = "{schedule: {backoff: {fixed: {wait: 2s}}, max_attempts: 2}, \
                  limits: {connect: 1s, tls: 1s, response: 1s, total: 2s}}";
    let (_home, server) = stage.home(policy, "").served();
    let backend = stage.backend("cb.de.example");
    Country::register(&server, "DE").subscribe(&server, "cb", &backend);
    // The first batch is never answered in time.
    backend.script(|_, tag| (Duration::from_millis(if tag == "1" { 1_800 } else { 0 }), 200));
    announce(&server, "1");
    announce(&server, "2");
    let seen = backend.wait_for(3);
    assert_eq!(backend.tags(), ["1", "1", "2"], "two sends, then the next");
    let wait = seen[1].at.duration_since(seen[0].at);
    assert!(wait >= Duration::from_millis(2_900), "time-out and wait: {wait:?}");
    assert!(wait < Duration::from_secs(9), "neither ten seconds nor five minutes: {wait:?}");
    server.stop();
}

/// With a safety net that is looked at once a minute, one callback a tick would take half an hour.
#[test]
fn all_that_waits_is_sent_one_after_the_other_and_not_one_a_tick() {
    let stage = Stage::new();
    let mut home = stage.home(QUICK, "");
    home.edit("drain_timeout: 2s", "drain_timeout: 2s, poll_interval: 1m");
    let server = home.serve();
    let backend = stage.backend("cb.de.example");
    Country::register(&server, "DE").subscribe(&server, "cb", &backend);
    let id = server.ask("subscriptions list")["items"][0]["id"].clone();
    let id = id.as_str().expect("an id");
    server.ask(&["subscriptions", "pause", id]);
    let wanted: Vec<String> = (1..=30).map(|n| n.to_string()).collect();
    for tag in &wanted {
        announce(&server, tag);
    }
    assert!(backend.seen().is_empty());
    server.ask(&["subscriptions", "resume", id]);
    let seen = backend.wait_for(30);
    assert_eq!(backend.tags(), wanted);
    let took = seen[29].at.duration_since(seen[0].at);
    assert!(took < Duration::from_secs(20), "{took:?} for what waited");
    server.stop();
}

/// Such an event would stand before every later batch of every country.
#[test]
fn an_event_without_a_tag_is_refused_whichever_way_it_comes() {
    let (stage, _home, server) = Stage::serving();
    let backend = stage.backend("cb.de.example");
    Country::register(&server, "DE").subscribe(&server, "cb", &backend);
    for more in [&[][..], &["-a", "date=2020-08-17"], &["-a", "batchTag="], &["-a", "batchtag=1"]] {
        let send = ["send", "efgs.batches", "batch.created"];
        let one = server.run(&[&send[..], more].concat());
        one.exits(1).says(&["batchTag", "efgs.batches"]);
        let many = server.run(&[&send[..], more, &["--count", "3"]].concat());
        many.exits(1).says(&["3 refused", "batchTag"]);
    }
    let post = |path: &str, body: &Value| {
        server.call("POST", path).header("posthorn-tenant", "efgs").json(body).send()
    };
    let said = json!({"topic": "efgs.batches", "type": "b", "payload": {}, "attributes": {"date": "2020-08-17"}});
    let problem = post("/v1/events", &said).expect(422);
    assert_eq!(problem["field"], "attributes", "{problem}");
    assert!(
        problem["detail"].as_str().is_some_and(|text| text.contains("`batchTag`")),
        "{problem}"
    );
    // Of a batch, the good ones are taken.
    let good = json!({"topic": "efgs.batches", "type": "b", "payload": {}, "attributes": {"batchTag": "1"}});
    let both = json!({"events": [said, good]});
    let items = post("/v1/events/batch", &both).json()["items"].clone();
    assert_eq!((&items[0]["status"], &items[1]["status"]), (&json!(422), &json!(202)), "{items}");
    assert_eq!(backend.wait_for(1)[0].query("batchTag"), "1", "and nothing stands before it");
    // Other topics of the tenant have no such rule.
    server.ask("send notes note --create-topic");
    server.stop();
}
