//! The plan of the house, checked: which crate may know which, and what no file may look like.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crate that programs embed.
const FACADE: &str = "posthorn";

/// A package's name within the plan, if it is one of ours.
fn in_the_plan(package: &str) -> Option<&str> {
    if package == FACADE { Some(FACADE) } else { package.strip_prefix("posthorn-") }
}

/// Every crate of the product with the crates it may know. Anything else is an arrow that points up.
const PRODUCT: [(&str, &[&str]); 18] = [
    ("domain", &[]),
    ("sealing", &["domain"]),
    ("store", &["domain"]),
    ("store-sqlite", &["store", "domain"]),
    ("store-postgres", &["store", "domain"]),
    ("egress", &["domain"]),
    ("engine", &["store", "egress", "sealing", "domain"]),
    ("listener", &["sealing", "domain"]),
    ("access", &["listener", "engine", "domain"]),
    ("api", &["access", "listener", "engine", "store", "sealing", "domain"]),
    ("dialects", &["access", "listener", "engine", "store", "sealing", "domain"]),
    // Asks the API within the process, so that the rules of who may do what are written once.
    ("console", &["api", "access", "listener", "engine", "store", "sealing", "domain"]),
    ("push", &["sealing", "domain"]),
    ("push-node", &["push", "listener", "engine", "egress", "store", "sealing", "domain"]),
    // The other end of a socket: a small agent, for the command line, benchmarks and tests.
    ("agent", &["sealing", "domain"]),
    // What programs embed: the only package without a prefix.
    (
        FACADE,
        &[
            "push",
            "push-node",
            "engine",
            "store",
            "store-sqlite",
            "store-postgres",
            "egress",
            "sealing",
            "domain",
        ],
    ),
    ("notifier", &[FACADE, "engine", "store", "domain"]),
    (
        "server",
        &[
            "access",
            "api",
            "console",
            "dialects",
            "notifier",
            "agent",
            "push",
            "push-node",
            "listener",
            "engine",
            "store",
            "store-sqlite",
            "store-postgres",
            "egress",
            "sealing",
            "domain",
        ],
    ),
];

/// The same for what proves it. Nothing of the product is built on these.
const PROOF: [(&str, &[&str]); 5] = [
    ("testkit", &["domain"]),
    ("hostile", &["domain"]),
    ("conformance", &["store", "domain"]),
    ("bench", &["hostile", "agent", "listener", "egress", "sealing", "domain"]),
    (
        "proof",
        &[
            "conformance",
            "testkit",
            "api",
            "dialects",
            "push",
            "engine",
            "store",
            "egress",
            "sealing",
            "domain",
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root exists")
}

#[test]
fn arrows_point_down_only() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let allowed: BTreeMap<&str, &[&str]> = PRODUCT.into_iter().chain(PROOF).collect();
    let mut crates = 0;
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let krate = in_the_plan(name).expect("every package is posthorn-NAME");
        let is_proof = PROOF.iter().any(|(proof, _)| *proof == krate);
        let folder = if is_proof { "proof" } else { "crates" };
        let folder = format!("{folder}/{krate}/Cargo.toml");
        let manifest = package["manifest_path"].as_str().expect("a path");
        assert!(manifest.ends_with(&folder), "{name} lives in {folder}, not {manifest}");
        let may = allowed.get(krate).unwrap_or_else(|| panic!("{krate} is not in the plan"));
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let Some(other) = dependency["name"].as_str().and_then(in_the_plan) else { continue };
            // What tests stand on may be anything; what ships may not.
            if dependency["kind"].is_null() {
                assert!(may.contains(&other), "{krate} must not know {other}");
            }
        }
        crates += 1;
    }
    assert_eq!(crates, allowed.len(), "crates of the plan that do not exist");
}

/// Every source file of product and proof.
fn all_sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in ["crates", "proof"] {
        sources(&root().join(folder), &mut files);
    }
    files
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, into);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn files_are_tidy() {
    let files = all_sources();
    let mut problems = Vec::new();
    for path in &files {
        let text = std::fs::read_to_string(path).expect("UTF-8");
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let mut complain = |what: &str| problems.push(format!("{}: {what}", path.display()));
        if text.lines().count() > 800 {
            complain("is longer than 800 lines; it is probably two things");
        }
        if ["mod", "utils", "helpers", "common", "misc", "manager"].contains(&stem.as_str()) {
            complain("has a name that says nothing");
        }
        if stem != "main" && path.components().any(|c| c.as_os_str() == "src") {
            let first = text.lines().next().unwrap_or_default();
            if stem == "lib" && !first.starts_with("//!") {
                complain("does not say what the crate is for");
            }
        }
        for word in ["todo!", "unimplemented!", "dbg!"] {
            if text.contains(&format!("{word}(")) {
                complain(&format!("contains {word}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(files.len() > 50, "only {} files were found", files.len());
}

/// A test that passes where a tool is missing proves nothing there, and nobody notices.
#[test]
fn no_test_passes_for_want_of_a_tool() {
    let files = all_sources();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !file.to_string_lossy().contains("/testkit/")) {
        let text = std::fs::read_to_string(file).expect("readable");
        // Spelled in two parts, so that this file is not found.
        for word in [concat!("NotInst", "alled"), concat!("SKIP_OTHER", "_LANGUAGES")] {
            if text.contains(word) {
                found.push(format!("{}: {word}", file.display()));
            }
        }
        for (number, line) in text.lines().enumerate() {
            let asks = ["database()", ".ask(&question"].iter().any(|asked| line.contains(asked));
            if asks && line.contains(concat!("else { ret", "urn }")) {
                found.push(format!("{}:{}: {line}", file.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "these would pass without running:\n{}", found.join("\n"));
}

/// The crash test proves nothing about code that it shares with the server.
#[test]
fn crash_runs_share_no_code_with_the_server() {
    let mut files =
        vec![root().join("proof/proof/src/crash.rs"), root().join("proof/proof/src/bin/crash.rs")];
    sources(&root().join("proof/proof/src/crash"), &mut files);
    assert!(files.len() > 10, "only {} files were found", files.len());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("readable");
        for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
            let foreign = word.starts_with("posthorn_")
                && !["posthorn_testkit", "posthorn_proof"].contains(&word);
            assert!(!foreign, "{} knows {word}", file.display());
        }
    }
}

/// Names of metrics in a text: what stands in quotes or backticks and begins like one of ours.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(['"', '`']);
    let is_name = |word: &&str| {
        ["posthorn_", "cedros_", "process_"].iter().any(|prefix| word.starts_with(prefix))
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    words.filter(is_name).map(str::to_owned).collect()
}

#[test]
fn every_metric_is_in_the_reference() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let mut known = BTreeSet::new();
    for file in files.iter().filter(|file| !file.to_string_lossy().contains("/tests/")) {
        let text = std::fs::read_to_string(file).expect("readable");
        // A metric is a constant; other texts may begin like one.
        for line in text.lines().filter(|line| line.contains("const ") && line.contains(": &str")) {
            known.extend(metrics(line));
        }
    }
    assert!(known.len() > 50, "only {} metrics were found", known.len());
    let page = std::fs::read_to_string(root().join("docs/reference/metrics.md")).expect("a page");
    assert_eq!(metrics(&page), known, "docs/reference/metrics.md and the code differ");
}

/// What operators load into their monitoring names metrics that exist, and leads to paragraphs that exist.
#[test]
fn alerts_and_the_dashboard_know_the_metrics_and_the_runbook() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("readable");
    let known = metrics(&read("docs/reference/metrics.md"));
    let (rules, board) =
        (read("deploy/prometheus/posthorn.rules.yml"), read("deploy/grafana/posthorn.json"));
    for (file, text) in [("the rules", &rules), ("the dashboard", &board)] {
        let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        let named: BTreeSet<&str> = words
            .filter(|word| ["posthorn_", "process_"].iter().any(|p| word.starts_with(p)))
            .collect();
        assert!(named.len() > 10, "{file} name only {named:?}");
        for name in named {
            assert!(known.contains(name.trim_end_matches("_bucket")), "{file} name {name}");
        }
    }
    let after = |text: &str, mark: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.trim().strip_prefix(mark)).map(str::to_owned).collect()
    };
    let alerts = after(&rules, "- alert: ");
    assert!(alerts.len() > 10, "only {alerts:?}");
    let paragraphs = after(&read("docs/guide/operating.md"), "### Posthorn");
    let named: Vec<&str> = alerts.iter().map(|name| &name["Posthorn".len()..]).collect();
    assert_eq!(paragraphs, named, "alerts and their paragraphs, in the same order");
    let books =
        alerts.iter().map(|name| format!("docs/guide/operating.md#{}", name.to_lowercase()));
    assert_eq!(after(&rules, "runbook: "), books.collect::<Vec<_>>());
    let tests = read("deploy/prometheus/posthorn.tests.yml");
    for alert in alerts {
        assert!(tests.contains(&alert), "{alert} has no test");
    }
}
