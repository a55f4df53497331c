//! The benchmarks of Web Push run, and what they count is right. Speeds are not looked at.

use std::path::Path;

use serde_json::json;

use crate::{bench, run, run_on};

#[test]
fn idle_sockets_stay_open() {
    let report = bench(&["sockets", "--connections", "50"]);
    assert_eq!(report["connections"], 50);
    assert_eq!(report["closed"], 0, "{report}");
    assert_eq!(report["floor"]["bytes_per_connection"], 10_240.0);
    assert_eq!(report["goal"]["bytes_per_connection"], 6_656.0);
    for rate in ["opens_per_s", "bare_opens_per_s", "registers_per_s", "bare_registers_per_s"] {
        assert!(report[rate].as_f64().is_some_and(|rate| rate > 0.0), "{rate} of {report}");
    }
}

#[test]
fn no_message_is_lost_on_the_way_or_while_agents_are_away() {
    for vapid in ["v2", "none"] {
        let report = bench(&["push", "--agents", "4", "--publishers", "8", "--vapid", vapid]);
        let number = |name: &str| report[name].as_f64().expect("a number");
        let zero = ["lost", "duplicates", "returned", "refused"].map(number);
        assert_eq!(zero, [0.0; 4], "{report}");
        assert!((0.0..=1.0).contains(&number("direct_share")), "{report}");
        assert_eq!(report["floor"]["direct_per_s"], 6_000.0);
        assert_eq!(report["goal"]["direct_per_s"], 12_000.0);
        let rates = ["bare_per_s", "direct_per_s", "direct_share", "stored_per_s", "drained_per_s"];
        for rate in rates.into_iter().chain(["accepted"]) {
            assert!(number(rate) > 0.0, "{rate} of {report}");
        }
    }
}

#[test]
fn what_is_stored_first_is_not_called_direct() {
    let stored = ["push", "--agents", "2", "--publishers", "2", "--set", "push.direct=stored"];
    let report = bench(&stored);
    assert_eq!((&report["direct_share"], &report["lost"]), (&json!(0.0), &json!(0)), "{report}");
}

/// The server drops what is over the limit of an agent: that is a loss, and it is told.
#[test]
fn a_loss_is_seen_and_ends_in_an_error() {
    let few = ["--set", "push.stored_max=5", "--set", "push.on_overflow=drop_oldest"];
    let args = ["push", "--agents", "2", "--publishers", "2", "--seconds", "1"];
    let output = run(&[&args[..], &few].concat()).exits(1).says(&["accepted messages were lost"]);
    let text = output.out;
    assert!(text.contains("(floor 6000, goal 12000)"), "{text}");
}

#[test]
fn more_connections_than_descriptors_are_refused_at_once() {
    run(&["sockets", "--connections", "100000000"]).exits(1).says(&["ulimit -n"]);
}

#[test]
fn a_server_that_is_not_there_is_said() {
    let nowhere = Path::new("/nowhere/posthorn");
    run_on(nowhere, &["throughput"]).exits(1).says(&["there is no server at /nowhere/posthorn"]);
}
