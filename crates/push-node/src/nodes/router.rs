//! Being called by other nodes.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::put;
use bytes::Bytes;
use http::StatusCode;
use http::header::AUTHORIZATION;
use posthorn_domain::{AgentId, Clock};
use posthorn_listener::BodyError;
use posthorn_listener::body;
use posthorn_push::session::Pushed;
use posthorn_sealing::node_key::{NodeCall, NodeCallError, NodeKeys};

use super::wire::{self, MESSAGE_BYTES_MAX};
use crate::health::Health;
use crate::local::Local;
use crate::log::{Seldom, chain};
use crate::metrics;

struct Parts {
    local: Arc<dyn Local>,
    keys: Arc<NodeKeys>,
    clock: Arc<dyn Clock>,
    complaints: Seldom,
}

/// Everything on the internal listener: the calls of other nodes, and how this one is. Not for a
/// public listener, and not below a path: signatures are over whole paths.
pub fn internal(
    local: Arc<dyn Local>,
    keys: Arc<NodeKeys>,
    clock: Arc<dyn Clock>,
    health: &Health,
) -> Router {
    let parts = Parts { local, keys, clock, complaints: Seldom::default() };
    Router::new()
        .route("/push/{agent}", put(push))
        .route("/notif/{agent}", put(hint))
        .with_state(Arc::new(parts))
        .merge(health.routes())
}

async fn push(State(parts): State<Arc<Parts>>, request: Request) -> StatusCode {
    let (agent, body) = match parts.let_in(request).await {
        Ok(called) => called,
        Err(status) => return status,
    };
    let message = match wire::read(agent, &body) {
        Ok(message) => message,
        Err(e) => {
            tracing::debug!(error = chain(&e), "a node sent something that is not a message");
            return StatusCode::BAD_REQUEST;
        }
    };
    match parts.local.push(message) {
        Pushed::Accepted => StatusCode::OK,
        Pushed::Full => StatusCode::SERVICE_UNAVAILABLE,
        Pushed::NotConnected => StatusCode::NOT_FOUND,
    }
}

async fn hint(State(parts): State<Arc<Parts>>, request: Request) -> StatusCode {
    match parts.let_in(request).await {
        Ok((agent, _)) if parts.local.hint(agent) => StatusCode::OK,
        Ok(_) => StatusCode::NOT_FOUND,
        Err(status) => status,
    }
}

impl Parts {
    /// Whom a call is about, and its body; or the answer to who is no node of ours.
    async fn let_in(&self, request: Request) -> Result<(AgentId, Bytes), StatusCode> {
        let (head, body) = request.into_parts();
        let Some(authorization) = head.headers.get(AUTHORIZATION) else {
            return Err(self.refuse(NodeCallError::Form));
        };
        let read = body::read(&head.headers, body, MESSAGE_BYTES_MAX, None).await;
        let body = read.map(|whole| whole.bytes).map_err(|e| match e {
            BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::BAD_REQUEST,
        })?;
        let path = head.uri.path_and_query().map_or("", |path| path.as_str());
        let call = NodeCall { method: head.method.as_str(), path, body: &body };
        let authorization = authorization.to_str().unwrap_or_default();
        self.keys
            .verify(call, authorization, self.clock.now())
            .map_err(|error| self.refuse(error))?;
        let agent = path.rsplit('/').next().and_then(|text| text.parse().ok());
        Ok((agent.ok_or(StatusCode::NOT_FOUND)?, body))
    }

    fn refuse(&self, error: NodeCallError) -> StatusCode {
        let reason = match error {
            NodeCallError::Time => "time",
            NodeCallError::Unknown => "unknown",
            _ => "form",
        };
        ::metrics::counter!(metrics::NODE_CALLS_REFUSED, "reason" => reason).increment(1);
        if self.complaints.may(self.clock.now()) {
            tracing::warn!(reason = %error, "refused a call on the internal listener");
        }
        StatusCode::UNAUTHORIZED
    }
}
