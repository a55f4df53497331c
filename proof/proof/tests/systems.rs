//! The pages about other systems, checked: every requirement is there, and is proved by tests that
//! exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Each page with how many requirements its system has.
const PAGES: [(&str, usize); 6] = [
    ("efgs", 34),
    ("notificaties", 15),
    ("cedros", 32),
    ("pca-hub", 25),
    ("autopush", 63),
    ("svix", 67),
];

/// What every client of the Svix API calls, besides the few operations that only its cloud has.
const SVIX: [&str; 43] = [
    "GET /app",
    "POST /app",
    "POST /app?get_if_exists=true",
    "GET /app/{app}",
    "PUT /app/{app}",
    "PATCH /app/{app}",
    "DELETE /app/{app}",
    "GET /app/{app}/endpoint",
    "POST /app/{app}/endpoint",
    "GET /app/{app}/endpoint/{ep}",
    "PUT /app/{app}/endpoint/{ep}",
    "PATCH /app/{app}/endpoint/{ep}",
    "DELETE /app/{app}/endpoint/{ep}",
    "GET /app/{app}/endpoint/{ep}/secret",
    "POST /app/{app}/endpoint/{ep}/secret/rotate",
    "GET /app/{app}/endpoint/{ep}/headers",
    "PUT /app/{app}/endpoint/{ep}/headers",
    "PATCH /app/{app}/endpoint/{ep}/headers",
    "GET /app/{app}/endpoint/{ep}/stats",
    "POST /app/{app}/endpoint/{ep}/send-example",
    "POST /app/{app}/endpoint/{ep}/recover",
    "GET /event-type",
    "POST /event-type",
    "GET /event-type/{name}",
    "PUT /event-type/{name}",
    "PATCH /event-type/{name}",
    "DELETE /event-type/{name}",
    "POST /app/{app}/msg",
    "GET /app/{app}/msg",
    "GET /app/{app}/msg/{msg}",
    "DELETE /app/{app}/msg/{msg}/content",
    "GET /app/{app}/attempt/endpoint/{ep}",
    "GET /app/{app}/attempt/msg/{msg}",
    "GET /app/{app}/endpoint/{ep}/msg",
    "GET /app/{app}/msg/{msg}/endpoint",
    "GET /app/{app}/msg/{msg}/attempt/{attempt}",
    "DELETE /app/{app}/msg/{msg}/attempt/{attempt}/content",
    "POST /app/{app}/msg/{msg}/endpoint/{ep}/resend",
    "POST /auth/app-portal-access/{app}",
    "POST /auth/dashboard-access/{app}",
    "POST /auth/logout",
    "GET /health",
    "GET /health/ping",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root exists")
}

/// Every test there is, as `file::function`: functions with a test attribute, and the cases of the
/// conformance suite, which become tests in each store.
fn tests(folder: &Path, into: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            tests(&path, into);
            continue;
        }
        if path.extension().is_none_or(|ext| ext != "rs") {
            continue;
        }
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("UTF-8");
        let is_case = path.components().any(|part| part.as_os_str() == "conformance");
        let mut marked = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                marked = true;
                continue;
            }
            let (_, after) = line.split_once("fn ").unwrap_or_default();
            let name = after.split(['(', '<']).next().unwrap_or_default();
            if !name.is_empty() && !line.starts_with("//") {
                if marked || (is_case && line.starts_with("pub async fn")) {
                    into.insert(format!("{stem}::{name}"));
                }
                marked = false;
            }
        }
    }
}

/// The requirements of a page, each with the tests that prove it.
fn requirements(page: &str) -> BTreeMap<usize, Vec<String>> {
    let mut all = BTreeMap::new();
    let is_row = |line: &&str| {
        // The head of the table begins with an R as well.
        line.strip_prefix("| R").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    for line in page.lines().filter(is_row) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let number = cells[0].trim_start_matches('R').parse().expect(line);
        assert_eq!(cells.len(), 3, "three columns: {line}");
        assert!(!cells[1].is_empty(), "says what: {line}");
        let names = cells[2].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert!(all.insert(number, names).is_none(), "R{number} is there twice");
    }
    all
}

#[test]
fn every_requirement_is_proved_by_tests_that_exist() {
    let mut known = BTreeSet::new();
    for folder in ["crates", "proof"] {
        tests(&root().join(folder), &mut known);
    }
    assert!(known.len() > 500, "only {} tests were found", known.len());
    let mut problems = Vec::new();
    for (name, count) in PAGES {
        let page = root().join(format!("docs/systems/{name}.md"));
        let page =
            std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        let listed = requirements(&page);
        for number in (1..=count).filter(|number| !listed.contains_key(number)) {
            problems.push(format!("{name}: R{number} is missing"));
        }
        for number in listed.keys().filter(|number| **number == 0 || **number > count) {
            problems.push(format!("{name}: there is no R{number}"));
        }
        for (number, proofs) in &listed {
            if proofs.is_empty() {
                problems.push(format!("{name}: R{number} names no test"));
            }
            for proof in proofs.iter().filter(|proof| !known.contains(*proof)) {
                problems.push(format!("{name}: R{number} names {proof}, which does not exist"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_operation_of_the_svix_api_has_a_row() {
    let page = std::fs::read_to_string(root().join("docs/systems/svix.md")).expect("a page");
    let rows: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| R")?.split('|').nth(1))
        .filter_map(|cell| cell.trim().strip_prefix('`')?.strip_suffix('`'))
        .collect();
    let wanted = BTreeSet::from(SVIX);
    let missing: Vec<&&str> = wanted.difference(&rows).collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
    let unknown: Vec<&&str> = rows.difference(&wanted).collect();
    assert!(unknown.is_empty(), "no such operation: {unknown:?}");
}
