//! The documents that are made from code: OpenAPI, the error reference, the table of routes.

use std::collections::BTreeSet;
use std::path::Path;

use posthorn_api::{ROUTES, error_codes, openapi_document, reference_page};
use serde_json::Value;

use crate::harness::{Problem as _, Server};

/// Compares with the file that is checked in; with UPDATE_GOLDEN=1 it is written anew.
#[track_caller]
fn check_golden(path: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "{} is out of date: run with UPDATE_GOLDEN=1", path.display());
}

#[test]
fn openapi_document_is_the_one_checked_in() {
    check_golden("openapi.json", &openapi_document());
}

#[test]
fn error_reference_is_the_one_checked_in() {
    check_golden("../../docs/reference/errors.md", &reference_page());
}

#[test]
fn every_failure_of_an_attempt_is_explained_in_the_reference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/api.md");
    let text = std::fs::read_to_string(path).unwrap();
    for code in posthorn_domain::FailureCode::ALL {
        let name = format!("`{}`", code.as_str());
        assert!(text.lines().any(|line| line.starts_with('|') && line.contains(&name)), "{name}");
    }
}

#[test]
fn every_reason_to_wait_is_explained_in_the_reference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/api.md");
    let text = std::fs::read_to_string(path).unwrap();
    for reason in posthorn_domain::WaitReason::ALL {
        let name = format!("`{}`", reason.as_str());
        assert!(text.lines().any(|line| line.starts_with('|') && line.contains(&name)), "{name}");
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
    }
}

#[test]
fn every_route_is_in_the_openapi_document_and_vice_versa() {
    let document: Value = serde_json::from_str(&openapi_document()).unwrap();
    let mut documented = BTreeSet::new();
    let mut operations = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            documented.insert((method.to_uppercase(), path.clone()));
            let id = operation["operationId"].as_str().unwrap().to_owned();
            assert!(operations.insert(id), "operation ids are unique");
        }
    }
    let routed: BTreeSet<_> =
        ROUTES.iter().map(|route| (route.method.to_string(), route.path.to_owned())).collect();
    assert_eq!(documented, routed);
    assert_eq!(routed.len(), ROUTES.len(), "no route is in the table twice");
}

#[test]
fn every_reference_in_the_openapi_document_leads_somewhere() {
    fn walk(value: &Value, document: &Value) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(target)) = fields.get("$ref") {
                    let pointer = target.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{target}");
                }
                fields.values().for_each(|value| walk(value, document));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, document)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_str(&openapi_document()).unwrap();
    walk(&document, &document);
}

/// Generators of clients make types of schemas, and nothing of conditions on other schemas.
#[test]
fn every_schema_says_what_it_is() {
    fn walk(value: &Value, at: &str) {
        match value {
            Value::Object(fields) => {
                for form in fields.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
                    let is_type = form.get("$ref").is_some() || form.get("type").is_some();
                    assert!(is_type, "{at}: a form that is no type: {form}");
                }
                if fields.get("type") == Some(&Value::from("object")) {
                    let says = ["properties", "additionalProperties"];
                    let known = says.iter().any(|name| fields.contains_key(*name));
                    assert!(known || at.ends_with(".Any"), "{at}: an object without fields");
                }
                fields.iter().for_each(|(name, value)| walk(value, &format!("{at}.{name}")));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, at)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_str(&openapi_document()).unwrap();
    walk(&document["components"]["schemas"], "schemas");
}

/// `docs/reference/api.md` is written by hand; its words must at least be the right ones.
#[test]
fn the_written_page_names_every_error_code_and_every_route() {
    let page = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/api.md"),
    )
    .unwrap();
    for code in error_codes() {
        let row = format!("| `{}` | {} |", code.code, code.status);
        assert!(page.contains(&row), "{row}");
    }
    for route in &ROUTES {
        let last = route.path.rsplit('/').find(|part| !part.starts_with('{')).unwrap();
        assert!(page.contains(last), "{}", route.path);
    }
}

#[test]
fn error_codes_are_unique_and_explained() {
    let mut seen = BTreeSet::new();
    for code in error_codes() {
        assert!(seen.insert(code.code));
        assert!((400..600).contains(&code.status));
        assert!(code.meaning.ends_with('.') && code.remedy.ends_with('.'), "{}", code.code);
    }
}

#[tokio::test]
async fn open_routes_answer_without_a_key() {
    let server = Server::start().await;
    let get = async |path| server.ask("GET", path).await;
    assert_eq!(get("/healthz").await.expect(200)["status"], "alive");
    assert_eq!(get("/readyz").await.expect(200)["status"], "ready");
    let metrics = get("/metrics").await;
    assert_eq!((metrics.status, &*metrics.body), (200, "posthorn_up 1\n"));
    let served = get("/openapi.json").await;
    assert_eq!(served.body, openapi_document());
    assert_eq!(served.header("content-type"), Some("application/json"));
    server.engine.stop().await;
    get("/healthz").await.expect(200);
    let unready = get("/readyz").await;
    unready.expect_problem(503, "unavailable");
    assert_eq!(unready.header("retry-after"), Some("1"));
    let body = serde_json::json!({"topic": "orders", "type": "x", "payload": 1});
    let refused = server.as_acme("POST", "/v1/events").json(&body).await;
    refused.expect_problem(503, "unavailable");
}
