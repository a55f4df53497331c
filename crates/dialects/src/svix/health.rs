//! Whether the server is well, for clients that ask before they begin. Without a token, and without a word about the inside.

use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use super::Service;
use super::call::{Answer, json, nothing};

/// `GET /health`.
pub(super) async fn whole(service: &Service) -> Answer {
    let (status, word) = match service.engine.store().ping().await {
        Ok(()) => (StatusCode::OK, "ok"),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "error"),
    };
    let part = json!({"status": word});
    Ok(json(status, &json!({"database": part, "queue": part, "cache": part})))
}

/// `GET /health/ping`.
pub(super) fn ping() -> Response {
    nothing()
}
