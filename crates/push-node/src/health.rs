//! How a node is, for load balancers and for people: the routes that operators of such services know.
//!
//! # How it works
//! What is shown depends on what the process does ([`Roles`]); one that does both shows the fields of
//! both. The status is 200 even when `status` is `ERROR`: load balancers that shall act on it must
//! read the body, or ask `/readyz`.
//!
//! The routes are open to everybody, so none of them does more work when it is asked more often: the
//! store is asked once a second at most, and one question serves all who wait for it.
//!
//! # What it must not know
//! What the store keeps, and what a connection is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use http::StatusCode;
use parking_lot::Mutex;
use posthorn_domain::{AgentId, ChannelId, Clock};
use posthorn_push::endpoint::MORE_INFO;
use posthorn_store::push::{PushStore, RouteAsk};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};

use crate::local::Local;
use crate::log::{Seldom, chain};
use crate::options::Roles;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// For so long the store is not asked again.
const CHECK_APART: Duration = Duration::from_secs(1);
/// A store that needs longer is not well.
const CHECK_TIME: Duration = Duration::from_secs(2);

/// What the routes look at.
pub struct HealthParts {
    /// What this process does.
    pub roles: Roles,
    /// The agents that are connected here, if any can be.
    pub local: Option<Arc<dyn Local>>,
    /// The store that is asked whether it answers.
    pub store: Arc<dyn PushStore>,
    /// How many requests of senders there were.
    pub request_count: Arc<AtomicU64>,
    /// For what is not said too often.
    pub clock: Arc<dyn Clock>,
}

/// How the node is. Clones share what they know of the store, so that one is enough for all listeners
/// of a process.
#[derive(Clone)]
pub struct Health {
    inner: Arc<Inner>,
}

struct Inner {
    parts: HealthParts,
    /// The last question to the store, and when it was asked.
    check: Mutex<Option<(Instant, Check)>>,
    errors: Seldom,
}

/// What is wrong with the store, if anything.
type Check = Shared<BoxFuture<'static, Option<&'static str>>>;

impl Health {
    /// Of a node with these parts.
    pub fn new(parts: HealthParts) -> Self {
        let inner = Inner { parts, check: Mutex::new(None), errors: Seldom::default() };
        Self { inner: Arc::new(inner) }
    }

    /// The routes, for any listener of the process.
    pub fn routes(&self) -> Router {
        let Roles { connection, endpoint } = self.inner.parts.roles;
        let mut router = Router::new()
            .route("/health", get(health))
            .route("/__heartbeat__", get(health))
            .route("/status", get(status))
            .route("/__lbheartbeat__", get(|| async { StatusCode::OK }))
            .route("/__version__", get(version))
            .route("/__error__", get(error));
        if connection {
            router = router.route("/v1/err/crit", get(error));
        }
        if endpoint {
            router = router.route("/v1/err", get(error));
        }
        router.with_state(Arc::clone(&self.inner))
    }
}

impl Inner {
    /// Whether the store answers. Who asks while a question is under way waits for the same answer.
    async fn store_trouble(&self) -> Option<&'static str> {
        let check = {
            let now = Instant::now();
            let mut last = self.check.lock();
            match &*last {
                Some((at, check)) if now.duration_since(*at) < CHECK_APART => check.clone(),
                _ => {
                    let check = ask(Arc::clone(&self.parts.store)).boxed().shared();
                    *last = Some((now, check.clone()));
                    check
                }
            }
        };
        check.await
    }
}

/// Asks for the way to an agent that does not exist: one look into an index.
async fn ask(store: Arc<dyn PushStore>) -> Option<&'static str> {
    let nobody =
        RouteAsk { agent: AgentId::from_bytes([0; 16]), channel: ChannelId::from_bytes([0; 16]) };
    match timeout(CHECK_TIME, store.routes(vec![nobody])).await {
        Ok(Ok(_)) => None,
        Ok(Err(e)) => {
            tracing::warn!(error = chain(&e), "the store of Web Push answers with an error");
            Some("the store answered with an error")
        }
        Err(_) => {
            tracing::warn!("the store of Web Push does not answer in time");
            Some("the store did not answer in time")
        }
    }
}

const fn word(trouble: Option<&'static str>) -> &'static str {
    match trouble {
        None => "OK",
        Some(_) => "ERROR",
    }
}

async fn health(State(inner): State<Arc<Inner>>) -> Json<Value> {
    let status = word(inner.store_trouble().await);
    let HealthParts { roles, local, request_count, .. } = &inner.parts;
    let mut fields = Map::new();
    fields.insert("status".into(), status.into());
    fields.insert("version".into(), VERSION.into());
    if roles.connection {
        let connections = local.as_ref().map_or(0, |local| local.connections());
        fields.insert("connections".into(), connections.into());
    }
    if roles.endpoint {
        fields.insert("router_table".into(), json!({"status": status}));
        fields.insert("message_table".into(), json!({"status": status}));
        // There are no bridges to the push services of phones.
        fields.insert("routers".into(), json!({"apns": false, "fcm": false}));
        fields.insert("request_count".into(), request_count.load(Ordering::Relaxed).into());
    }
    Json(fields.into())
}

async fn status(State(inner): State<Arc<Inner>>) -> Json<Value> {
    let mut fields = Map::new();
    // An endpoint by itself says only that it is there.
    let trouble = if inner.parts.roles.connection { inner.store_trouble().await } else { None };
    fields.insert("status".into(), word(trouble).into());
    fields.insert("version".into(), VERSION.into());
    if let Some(trouble) = trouble {
        fields.insert("error".into(), trouble.into());
    }
    Json(fields.into())
}

/// Whoever builds it may say what it was built from.
async fn version() -> Json<Value> {
    Json(json!({
        "source": option_env!("POSTHORN_BUILD_SOURCE").unwrap_or_default(),
        "version": VERSION,
        "commit": option_env!("POSTHORN_BUILD_COMMIT").unwrap_or_default(),
        "build": option_env!("POSTHORN_BUILD_URL").unwrap_or_default(),
    }))
}

/// Fails on purpose, so that an operator can see whether errors reach those who should know of them.
async fn error(State(inner): State<Arc<Inner>>) -> (StatusCode, Json<Value>) {
    if inner.errors.may(inner.parts.clock.now()) {
        tracing::error!("this is a requested test error");
    }
    let body = json!({
        "code": 418,
        "errno": 999,
        "error": "I'm a teapot",
        "message": "this is a requested test error",
        "more_info": MORE_INFO,
    });
    (StatusCode::IM_A_TEAPOT, Json(body))
}
