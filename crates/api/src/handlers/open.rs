//! What anybody may ask, without a key.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use posthorn_domain::SubscriptionId;
use posthorn_engine::{Health, JwkSet, VerificationKey};
use serde::Serialize;

use crate::call::{Answer, Call};
use crate::codes;
use crate::problem::{Problem, chain};
use crate::{openapi, respond};

/// How long the store may take to answer before it counts as unreachable.
const PING_TIME: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Status {
    status: &'static str,
    /// Why publishes are refused although everything else works.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusing_publishes: Option<&'static str>,
    /// Whether nothing is sent although everything works.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    on_hold: bool,
}

/// `GET /healthz`.
pub(crate) async fn health(_call: Call) -> Answer {
    respond::ok(&Status { status: "alive", refusing_publishes: None, on_hold: false })
}

/// `GET /readyz`.
pub(crate) async fn ready(call: Call) -> Answer {
    let engine = call.engine();
    let unready = |reason: &'static str| Err(Problem::new(codes::UNAVAILABLE, reason));
    let health = engine.health().borrow().clone();
    match health {
        Health::Running => {}
        Health::Stopping => return unready("the server is stopping"),
        // The cause may tell of paths and hosts; it is in the log.
        Health::Failed(_) => return unready("the store has failed; the server must be restarted"),
    }
    match tokio::time::timeout(PING_TIME, engine.store().ping()).await {
        // Deliveries go on and everything can be asked and managed: the node stays in service.
        Ok(Ok(())) => {
            let admission = engine.admission();
            let refusing_publishes = if admission.is_disk_full() {
                Some("disk_full")
            } else {
                admission.is_overloaded().then_some("overloaded")
            };
            let on_hold = engine.is_on_hold();
            respond::ok(&Status { status: "ready", refusing_publishes, on_hold })
        }
        Ok(Err(e)) => {
            tracing::warn!(error = %chain(&e), "not ready: the store cannot be reached");
            unready("the store cannot be reached")
        }
        Err(_) => unready("the store did not answer in time"),
    }
}

/// How long receivers may keep a set of keys. During the overlap of a rotation messages carry the
/// signatures of both keys, so that one who still has the old set can go on.
const JWKS_CACHE: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// `GET /jwks/{id}`. Ids have 74 random bits: one who asks for a subscription's keys was told of it,
/// and learns nothing but those keys. Without keys there is nothing here, whatever the reason.
pub(crate) async fn jwks(mut call: Call) -> Answer {
    let id = call.named::<SubscriptionId>("set of keys").await?;
    let none = || Problem::not_found("set of keys");
    let view = call.engine().catalog().view(id).ok_or_else(none)?;
    let keys = view.verification_keys(call.engine().now()).map_err(|problem| {
        tracing::warn!(subscription = %id, problem, "public keys cannot be shown");
        Problem::new(codes::UNAVAILABLE, "the keys cannot be read at the moment; try again")
    })?;
    if keys.is_empty() {
        return Err(none());
    }
    let set = JwkSet { keys: keys.iter().map(VerificationKey::jwk).collect() };
    let mut response = respond::ok(&set)?;
    response.headers_mut().insert(header::CACHE_CONTROL, JWKS_CACHE);
    response.headers_mut().insert(header::CONTENT_TYPE, respond::JWK_SET);
    Ok(response)
}

/// `GET /metrics`.
pub(crate) async fn metrics(call: Call) -> Answer {
    match &call.api.options.metrics {
        Some(render) => Ok(respond::bytes(StatusCode::OK, respond::METRICS, render())),
        None => Err(Problem::not_found("path")),
    }
}

/// `GET /openapi.json`.
pub(crate) async fn openapi(_call: Call) -> Answer {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| Bytes::from(openapi::document()));
    Ok(respond::bytes(StatusCode::OK, respond::JSON, document.clone()))
}
