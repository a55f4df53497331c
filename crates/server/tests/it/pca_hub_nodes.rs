//! Calls of a PCA Hub by three nodes on one PostgreSQL. The Hub itself keeps watch: whoever is touched
//! too soon, or twice at once, gets a 409 and the Hub a complaint.

use std::collections::BTreeMap;
use std::time::Duration;

use posthorn_testkit::fake_hub::{Agreement, FakeHub, Reply};
use posthorn_testkit::postgres::TestPostgres;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::wait::{eventually, until};

use crate::pca_hub::{number, patient_profile, send, subscribe};
use crate::postgres::{database, nodes};

/// Three nodes that share a database and a seal key. A dead one is replaced after two seconds, long
/// before its locks end.
fn three(database: &TestPostgres, hub: &FakeHub, patience: u64) -> Vec<(Home, Server)> {
    let homes = [(); 3].map(|()| {
        let home = Home::new();
        patient_profile(&home, "pca-hub", hub, patience, "");
        home.edit(
            "engine: {drain_timeout: 2s}",
            "engine: {drain_timeout: 2s, lease: 2s, heartbeat_interval: 200ms}",
        );
        home
    });
    nodes(database, homes).into()
}

fn delivered(server: &Server) -> u64 {
    server.ask("stats")["delivered"].as_u64().expect("a number")
}

/// Waits for deliveries one by one: a busy machine may be slow, but it must get on.
fn wait_for(server: &Server, count: u64) {
    for wanted in 1..=count {
        until("the next delivery", || delivered(server) >= wanted);
    }
    assert_eq!(delivered(server), count);
}

#[test]
fn each_message_is_called_once_in_order_and_two_seconds_apart() {
    let database = database();
    let agreement = Agreement::default();
    let hub = FakeHub::start(agreement.clone()).expect("starts");
    let nodes = three(&database, &hub, 2);
    subscribe(&nodes[0].1, &hub, &agreement);
    let users = [("tenant1", "a"), ("tenant1", "b"), ("tenant2", "a")];
    for n in 0..4 {
        for (nth, (tenant, account)) in users.iter().enumerate() {
            let (_, server) = &nodes[(n as usize + nth) % nodes.len()];
            send(server, "user.updated", tenant, account, n);
        }
    }
    wait_for(&nodes[0].1, 12);
    assert_eq!(hub.complaints(), [""; 0], "no 409");
    let mut seen: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
    for call in hub.calls() {
        assert_eq!(call.status, 200);
        let account = call.body["account_id"].as_str().expect("text").to_owned();
        let key = (call.header("x-pca-tenant").to_owned(), account);
        seen.entry(key).or_default().push(number(&call));
    }
    for (tenant, account) in users {
        let own = &seen[&(tenant.to_owned(), account.to_owned())];
        assert_eq!(own[..], [0, 1, 2, 3], "{tenant}/{account}: each once, in order");
    }
    for (_, server) in nodes {
        server.stop();
    }
}

#[test]
fn a_killed_node_keeps_its_lock_and_another_one_calls_after_its_end() {
    let database = database();
    let agreement = Agreement::default();
    let hub = FakeHub::start(agreement.clone()).expect("starts");
    let nodes = three(&database, &hub, 7);
    subscribe(&nodes[0].1, &hub, &agreement);
    // The call takes long enough to find out who makes it, and to kill that node meanwhile.
    hub.script([Reply::Slow(Duration::from_secs(6))]);
    send(&nodes[0].1, "user.updated", "tenant1", "a", 1);
    let who = eventually("the caller's line", || {
        nodes
            .iter()
            .position(|(_, server)| server.running.stderr().contains("Call PCA Hub Webhook"))
    });
    until("the call", || !hub.calls().is_empty());
    let mut nodes = nodes;
    nodes[who].1.running.signal("KILL");
    nodes[who].1.running.wait();
    nodes.remove(who);
    send(&nodes[0].1, "user.updated", "tenant1", "a", 2);
    send(&nodes[1].1, "user.updated", "tenant2", "a", 3);
    wait_for(&nodes[0].1, 3);
    let calls = hub.calls();
    let own: Vec<_> = calls.iter().filter(|c| c.header("x-pca-tenant") == "tenant1").collect();
    assert_eq!(own.iter().map(|call| number(call)).collect::<Vec<_>>(), [1, 1, 2]);
    let waited = own[1].begun.duration_since(own[0].begun);
    assert!(waited > Duration::from_secs(10), "the lock of 11 s held for {waited:?}");
    // Another user did not wait for that lock: it was served by the new owner before.
    let other = calls.iter().position(|call| number(call) == 3).expect("called");
    let repeated = calls.iter().rposition(|call| number(call) == 1).expect("called");
    assert!(other < repeated, "the lock is one message's, not everybody's");
    assert_eq!(hub.complaints(), [""; 0], "no 409");
    for (_, server) in nodes {
        server.stop();
    }
}

#[test]
fn order_and_gap_hold_while_a_node_dies_and_another_one_leaves() {
    let database = database();
    let agreement = Agreement::default();
    let hub = FakeHub::start(agreement.clone()).expect("starts");
    let mut nodes = three(&database, &hub, 2);
    subscribe(&nodes[0].1, &hub, &agreement);
    hub.script([Reply::Slow(Duration::from_millis(300)); 6]);
    for n in 0..3 {
        for account in ["a", "b", "c"] {
            send(&nodes[n as usize].1, "user.updated", "tenant1", account, n);
        }
    }
    until("the first calls", || hub.calls().len() >= 3);
    let (_home, mut dying) = nodes.remove(0);
    dying.running.signal("KILL");
    dying.running.wait();
    let (_other, leaving) = nodes.remove(0);
    leaving.stop();
    wait_for(&nodes[0].1, 9);
    assert_eq!(hub.complaints(), [""; 0], "no 409");
    let calls = hub.calls();
    for account in ["a", "b", "c"] {
        let own = calls.iter().filter(|call| call.body["account_id"] == account);
        let mut order: Vec<u64> = own.map(number).collect();
        // A call whose node died before it was written down is made again, at its place.
        order.dedup();
        assert_eq!(order, [0, 1, 2], "{account}");
    }
    for (_, server) in nodes {
        server.stop();
    }
}
