//! EFGS callbacks by three nodes on one PostgreSQL.

use std::thread;
use std::time::Duration;

use posthorn_testkit::postgres::TestPostgres;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::wait::eventually;

use crate::efgs_stage::{Country, Stage, announce};
use crate::postgres::{database, nodes};

/// Three nodes that share a database and a seal key.
fn three(database: &TestPostgres, stage: &Stage, policy: &str) -> Vec<(Home, Server)> {
    nodes(database, [(); 3].map(|()| stage.home(policy, ""))).into()
}

#[test]
fn of_two_countries_that_take_one_id_at_once_on_two_nodes_one_is_refused() {
    let (database, stage) = (database(), Stage::new());
    let nodes = three(&database, &stage, "{}");
    let first = &nodes[0].1;
    let names = ["DE", "NL", "FR"];
    let backends = names.map(|name| stage.backend(&format!("cb.{}.example", name.to_lowercase())));
    let countries = names.map(|name| Country::register(first, name));
    for (country, backend) in countries.iter().zip(&backends) {
        country.certify(first, &backend.host, false);
    }
    for round in 0..5 {
        let id = format!("cb-{round}");
        let statuses: Vec<u16> = thread::scope(|scope| {
            let asked: Vec<_> = (0..3)
                .map(|n| {
                    let (country, server) = (&countries[n], &nodes[n].1);
                    let (id, url) = (&id, backends[n].url());
                    scope.spawn(move || country.put(server, id, &url).status)
                })
                .collect();
            asked.into_iter().map(|asked| asked.join().expect("an answer")).collect()
        });
        let mut sorted = statuses.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [200, 403, 403], "{id}");
        // Whoever won has it, on every node.
        let winner = statuses.iter().position(|status| *status == 200).expect("one");
        for (_, server) in &nodes {
            for (n, country) in countries.iter().enumerate() {
                let list = country.list(server);
                let has =
                    list.as_array().expect("a list").iter().any(|one| one["callbackId"] == id);
                assert_eq!(has, n == winner, "{list}");
            }
        }
    }
    for (_, server) in nodes {
        server.stop();
    }
}

#[test]
fn each_batch_is_sent_once_and_in_order_whichever_node_it_was_announced_on() {
    let (database, stage) = (database(), Stage::new());
    let nodes = three(&database, &stage, "{schedule: {backoff: {fixed: {wait: 500ms}}}}");
    let names = ["DE", "NL", "FR", "IT"];
    let backends = names.map(|name| stage.backend(&format!("cb.{}.example", name.to_lowercase())));
    for (n, (name, backend)) in names.into_iter().zip(&backends).enumerate() {
        let server = &nodes[n % 3].1;
        Country::register(server, name).subscribe(server, name, backend);
    }
    // One of them fails now and then, which delays nobody else.
    backends[0].script(|nth, _| (Duration::ZERO, if nth % 5 == 2 { 503 } else { 200 }));
    let wanted: Vec<String> = (0..24).map(|n| format!("{n}")).collect();
    for (n, tag) in wanted.iter().enumerate() {
        announce(&nodes[n % 3].1, tag);
    }
    for backend in &backends[1..] {
        backend.wait_for(24);
        assert_eq!(backend.tags(), wanted, "{}: each once, in order", backend.host);
    }
    let first = &nodes[0].1;
    first.settles(&[("delivered", 96)]);
    let mut tags = backends[0].tags();
    assert!(tags.len() > 24, "some were repeated");
    tags.dedup();
    assert_eq!(tags, wanted, "repeats follow their first try, nothing passes them");
    for (_, server) in nodes {
        server.stop();
    }
}

#[test]
fn a_killed_node_keeps_its_lock_and_another_one_sends_after_its_end() {
    let (database, stage) = (database(), Stage::new());
    let policy = "{limits: {connect: 2s, tls: 2s, response: 9s, total: 10s}, lease: {time: 14s}, \
                  log: {before: 'calling {subscription.name}'}}";
    let mut nodes = three(&database, &stage, policy);
    let backends = ["cb.de.example", "cb.nl.example"].map(|host| stage.backend(host));
    for (name, backend) in ["DE", "NL"].into_iter().zip(&backends) {
        Country::register(&nodes[0].1, name).subscribe(&nodes[0].1, name, backend);
    }
    backends[0].script(|nth, _| (Duration::from_secs(if nth == 0 { 8 } else { 0 }), 200));
    announce(&nodes[0].1, "1");
    let first = backends[0].wait_for(1)[0].at;
    let sender = eventually("the sender's line", || {
        nodes.iter().position(|(_, server)| server.running.stderr().contains("calling DE"))
    });
    // The other country's is written down before anybody dies.
    let first_node = &nodes[0].1;
    first_node.settles(&[("delivered", 1)]);
    let (_home, mut killed) = nodes.remove(sender);
    killed.running.signal("KILL");
    killed.running.wait();
    let survivor = &nodes[0].1;
    announce(survivor, "2");
    backends[1].wait_for(2);
    let seen = backends[0].wait_for(2);
    survivor.settles(&[("delivered", 4)]);
    assert_eq!(backends[0].tags(), ["1", "1", "2"]);
    let waited = seen[1].at.duration_since(first);
    assert!(waited > Duration::from_secs(12), "the lock of 14 s held for {waited:?}");
    let other = backends[1].seen();
    assert!(other[1].at < seen[1].at, "another country did not wait");
    assert_eq!(backends[1].tags(), ["1", "2"]);
    for (_, server) in nodes {
        server.stop();
    }
}
