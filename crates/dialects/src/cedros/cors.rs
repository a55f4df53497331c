//! What browsers ask before a page of another origin may call.
//!
//! Nothing here opens anything: who may do what is decided by keys. A browser only lets a page read answers
//! when they name the page's origin, and only those the operator has configured are named. Cookies play no
//! part, so credentials are not allowed.

use std::sync::Arc;

use axum::body::Body;
use axum::middleware::Next;
use axum::response::Response;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
    VARY,
};
use http::{HeaderValue, Method, Request, StatusCode};

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
const HEADERS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, posthorn-tenant, x-api-key");
const EXPOSED: HeaderValue = HeaderValue::from_static("retry-after");
/// How long a browser may remember the answer, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Answers what a browser asks beforehand, and names the origin in every answer to its pages.
pub(super) async fn answer(
    origins: Arc<Vec<String>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let known =
        |origin: &HeaderValue| origins.iter().any(|known| known.as_bytes() == origin.as_bytes());
    let allowed = origin.filter(known);
    let asks_beforehand = request.method() == Method::OPTIONS
        && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks_beforehand && allowed.is_some() {
        let mut response = Response::default();
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        response
    } else {
        next.run(request).await
    };
    if !origins.is_empty() {
        // What one origin gets must not be kept for another.
        response.headers_mut().append(VARY, HeaderValue::from_static("Origin"));
    }
    if let Some(origin) = allowed {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        response.headers_mut().insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
    response
}
