//! Answers: bytes with the headers every answer has.

use std::fmt::Display;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::codes;
use crate::problem::{Problem, Result, chain};

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
pub(crate) const JWK_SET: HeaderValue = HeaderValue::from_static("application/jwk-set+json");
pub(crate) const METRICS: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
pub(crate) const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
pub(crate) const NO: HeaderValue = HeaderValue::from_static("no");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// An answer with a body.
pub(crate) fn bytes(status: StatusCode, kind: HeaderValue, body: impl Into<Body>) -> Response {
    let mut response = empty(status);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    *response.body_mut() = body.into();
    response
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// A JSON answer, written straight from the value.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Result<Response> {
    let mut body = Vec::with_capacity(256);
    serde_json::to_writer(&mut body, value).map_err(|e| {
        tracing::error!(error = %chain(&e), "a response could not be written; this is a defect");
        Problem::new(codes::INTERNAL, "internal error; see the server's log")
    })?;
    Ok(bytes(status, JSON, body))
}

/// `200` with JSON.
pub(crate) fn ok(value: &impl Serialize) -> Result<Response> {
    json(StatusCode::OK, value)
}

/// `201` with JSON and where to find what was made.
pub(crate) fn created(location: impl Display, value: &impl Serialize) -> Result<Response> {
    let mut response = json(StatusCode::CREATED, value)?;
    if let Ok(location) = HeaderValue::from_str(&location.to_string()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}
