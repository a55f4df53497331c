//! How a node says that it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use posthorn_domain::AgentId;
use posthorn_push::session::Pushed;
use posthorn_push_node::Roles;
use posthorn_push_node::health::{Health, HealthParts};
use posthorn_testkit::clock::StillClock;
use serde_json::{Value, json};

use crate::house::{Agents, Server, ask};
use crate::live::gated::{Gated, Mood};

const CONNECTION: Roles = Roles { connection: true, endpoint: false };
const ENDPOINT: Roles = Roles { connection: false, endpoint: true };
const BOTH: Roles = Roles { connection: true, endpoint: true };

const VERSION: &str = env!("CARGO_PKG_VERSION");

async fn node(roles: Roles, store: Arc<Gated>) -> Server {
    let agents = Arc::new(Agents::default());
    for nth in 0..3 {
        agents.answers.lock().insert(AgentId::from_random(nth), Pushed::Accepted);
    }
    let health = Health::new(HealthParts {
        roles,
        local: roles.connection.then_some(agents as _),
        store,
        request_count: Arc::new(AtomicU64::new(17)),
        clock: StillClock::at(0),
    });
    Server::start(health.routes()).await
}

async fn get(server: &Server, path: &str) -> (StatusCode, Value) {
    let (status, body) = ask(server, "GET", path, None, "").await;
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

#[track_caller]
fn check(answer: &(StatusCode, Value), body: &Value) {
    assert_eq!(answer, &(StatusCode::OK, body.clone()));
}

fn tables(status: &str) -> Value {
    json!({
        "status": status,
        "version": VERSION,
        "router_table": {"status": status},
        "message_table": {"status": status},
        "routers": {"apns": false, "fcm": false},
        "request_count": 17,
    })
}

#[tokio::test]
async fn each_role_shows_its_own_fields_and_both_together_show_all() {
    let connections = json!({"status": "OK", "version": VERSION, "connections": 3});
    let mut both = tables("OK");
    both["connections"] = json!(3);
    for (roles, body) in [(CONNECTION, connections), (ENDPOINT, tables("OK")), (BOTH, both)] {
        let server = node(roles, Gated::in_mood(Mood::Well)).await;
        check(&get(&server, "/health").await, &body);
        check(&get(&server, "/__heartbeat__").await, &body);
        check(&get(&server, "/status").await, &json!({"status": "OK", "version": VERSION}));
        let (status, body) = ask(&server, "GET", "/__lbheartbeat__", None, "").await;
        assert_eq!((status, &*body), (StatusCode::OK, ""));
        let (status, version) = get(&server, "/__version__").await;
        assert_eq!((status, &version["version"]), (StatusCode::OK, &json!(VERSION)));
        for field in ["source", "commit", "build"] {
            assert!(version[field].is_string(), "{field}");
        }
    }
}

#[tokio::test]
async fn a_store_that_fails_is_told_in_the_body_with_a_200() {
    for roles in [CONNECTION, ENDPOINT, BOTH] {
        let server = node(roles, Gated::in_mood(Mood::Broken)).await;
        let (status, health) = get(&server, "/health").await;
        assert_eq!((status, &health["status"]), (StatusCode::OK, &json!("ERROR")));
        if roles.endpoint {
            assert_eq!(health["router_table"], json!({"status": "ERROR"}));
            assert_eq!(health["message_table"], json!({"status": "ERROR"}));
        }
        let (code, status) = get(&server, "/status").await;
        assert_eq!(code, StatusCode::OK);
        // An endpoint alone says only that it is there.
        let wanted = if roles.connection {
            let error = "the store answered with an error";
            json!({"status": "ERROR", "version": VERSION, "error": error})
        } else {
            json!({"status": "OK", "version": VERSION})
        };
        assert_eq!(status, wanted);
    }
}

/// Asks without a connection, so that time can be virtual.
async fn status_of(health: &Health) -> Value {
    let request = http::Request::get("/status").body(axum::body::Body::empty());
    let service = TowerToHyperService::new(health.routes());
    let answer = service.call(request.expect("a request")).await.expect("an answer");
    let body = answer.into_body().collect().await.expect("a body");
    serde_json::from_slice(&body.to_bytes()).expect("JSON")
}

fn connection_with(store: Arc<Gated>) -> Health {
    Health::new(HealthParts {
        roles: CONNECTION,
        local: None,
        store,
        request_count: Arc::default(),
        clock: StillClock::at(0),
    })
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_not_waited_for() {
    let health = connection_with(Gated::in_mood(Mood::Mute));
    assert_eq!(status_of(&health).await["error"], "the store did not answer in time");
}

#[tokio::test(start_paused = true)]
async fn the_store_is_asked_again_after_a_second() {
    let store = Gated::in_mood(Mood::Well);
    let health = connection_with(store.clone());
    assert_eq!(status_of(&health).await["status"], "OK");
    *store.mood.lock() = Mood::Broken;
    assert_eq!(status_of(&health).await["status"], "OK");
    assert_eq!(store.asked.load(Ordering::Relaxed), 1);
    tokio::time::advance(Duration::from_millis(1_001)).await;
    assert_eq!(status_of(&health).await["status"], "ERROR");
    assert_eq!(store.asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn many_questions_are_one_for_the_store() {
    let store = Gated::in_mood(Mood::Well);
    let server = node(BOTH, store.clone()).await;
    let asks = (0..50).map(|nth| {
        let path = ["/health", "/status", "/__heartbeat__", "/__lbheartbeat__"][nth % 4];
        get(&server, path)
    });
    for (status, _) in futures_util::future::join_all(asks).await {
        assert_eq!(status, StatusCode::OK);
    }
    // One a second at most; the test may have been slow, but not so slow.
    let asked = store.asked.load(Ordering::Relaxed);
    assert!((1..30).contains(&asked), "{asked}");
}

#[tokio::test]
async fn an_error_can_be_asked_for() {
    let cases = [
        (CONNECTION, "/__error__", true),
        (CONNECTION, "/v1/err/crit", true),
        (CONNECTION, "/v1/err", false),
        (ENDPOINT, "/__error__", true),
        (ENDPOINT, "/v1/err", true),
        (ENDPOINT, "/v1/err/crit", false),
        (BOTH, "/v1/err", true),
        (BOTH, "/v1/err/crit", true),
    ];
    for (roles, path, there) in cases {
        let server = node(roles, Gated::in_mood(Mood::Well)).await;
        // The second time nothing has broken either.
        for _ in 0..2 {
            let (status, body) = get(&server, path).await;
            if there {
                assert_eq!((status, &body["code"]), (StatusCode::IM_A_TEAPOT, &json!(418)));
                assert_eq!(body["errno"], json!(999));
            } else {
                assert_eq!(status, StatusCode::NOT_FOUND);
            }
        }
    }
}

#[tokio::test]
async fn calls_of_nodes_are_not_on_these_routes() {
    let server = node(BOTH, Gated::in_mood(Mood::Well)).await;
    let agent = AgentId::from_random(0);
    for path in [format!("/push/{agent}"), format!("/notif/{agent}")] {
        let (status, _) = ask(&server, "PUT", &path, None, "").await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
}
