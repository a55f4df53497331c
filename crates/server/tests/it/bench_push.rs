//! The benchmarks of Web Push run, and what they count is right. Speeds are not looked at.

use serde_json::Value;

use crate::harness::{assert_exit, out, run};

fn bench(args: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a folder");
    let output = run(dir.path(), &[&["bench"], args, &["--json", "--seconds", "1"]].concat());
    assert_exit(&output, 0);
    serde_json::from_str(&out(&output)).expect("JSON")
}

#[test]
fn idle_sockets_stay_open() {
    let report = bench(&["sockets", "--connections", "50"]);
    assert_eq!(report["connections"], 50);
    assert_eq!(report["closed"], 0, "{report}");
    for rate in ["opens_per_s", "bare_opens_per_s", "registers_per_s", "bare_registers_per_s"] {
        assert!(report[rate].as_f64().is_some_and(|rate| rate > 0.0), "{rate} of {report}");
    }
}

#[test]
fn no_message_is_lost_on_the_way_or_while_agents_are_away() {
    for vapid in ["v2", "none"] {
        let report = bench(&["push", "--agents", "4", "--publishers", "8", "--vapid", vapid]);
        let number = |name: &str| report[name].as_f64().expect("a number");
        let zero = [number("lost"), number("duplicates"), number("refused")];
        assert_eq!(zero, [0.0; 3], "{report}");
        for rate in ["bare_per_s", "direct_per_s", "stored_per_s", "drained_per_s", "accepted"] {
            assert!(number(rate) > 0.0, "{rate} of {report}");
        }
    }
}

#[test]
fn more_connections_than_descriptors_are_refused_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = run(dir.path(), &["bench", "sockets", "--connections", "100000000"]);
    assert_exit(&output, 1);
    crate::harness::assert_says(&output, &["ulimit -n"]);
}
