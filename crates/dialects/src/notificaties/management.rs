//! What operators do with the API from outside: applying a setup file while everything runs. They show
//! a key of this server, not a token of a client.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use axum::routing::put;
use http::{HeaderMap, Request, StatusCode, header};
use posthorn_listener::{Peer, body, only};
use serde_json::json;

use super::dispatch::json;
use super::problem::{Fault, Problem, seconds};
use super::setup::Setup;
use super::uuid::Uuid;
use super::{Service, StartError};
use crate::document;

/// The path. It is beside the native API, since it is no part of the standard.
const PATH: &str = "/v1/notificaties/setup";
/// The largest file.
const FILE_BYTES_MAX: usize = 1024 * 1024;

pub(super) fn router(service: Arc<Service>) -> axum::Router {
    let handler = move |request: Request<Body>| {
        let service = Arc::clone(&service);
        async move {
            let instance = Uuid::random(|| service.engine.dice());
            let answer = apply(&service, request).await;
            answer.unwrap_or_else(|problem| problem.respond("", instance))
        }
    };
    axum::Router::new().route(PATH, put(handler))
}

async fn apply(service: &Service, request: Request<Body>) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let principal = key_of(&parts.headers).and_then(|text| service.engine.authenticate(text));
    let Some(principal) = principal else {
        let detail = "Show an operator's key of this server.";
        return Err(match service.failures.count(parts.extensions.get::<Peer>()) {
            Ok(()) => Problem::forbidden("not_authenticated", detail),
            Err(wait) => Problem::throttled(detail, seconds(wait)),
        });
    };
    if !principal.is_operator() {
        let detail = "Only an operator may set up kanalen, abonnementen and clients.";
        return Err(Problem::forbidden("permission_denied", detail));
    }
    // Only operators come this far, and a file is small, so it needs no loan.
    let whole = body::read(&parts.headers, body, FILE_BYTES_MAX, None)
        .await
        .map_err(|e| Problem::malformed(e.to_string()))?;
    let document = document::read(&whole.bytes).map_err(|e| Problem::malformed(e.to_string()))?;
    let setup = Setup::read(&document, &|_| None).map_err(|problems| {
        Problem::invalid(
            problems.into_iter().map(|text| Fault::new("setup", "invalid", text)).collect(),
        )
    })?;
    let done = setup.apply(&service.engine, service.tenant, &service.options.profile).await;
    let applied = done.map_err(|e| match e {
        StartError::Engine(e) => e.into(),
        StartError::Setup(text) => Problem::field("setup", "invalid", text),
    })?;
    let mut ignored = setup.ignored.clone();
    if setup.authorizations.is_some() {
        ignored.push("autorisaties_api".to_owned());
    }
    let body =
        json!({"changed": applied.changed, "unchanged": applied.unchanged, "ignored": ignored});
    Ok(json(StatusCode::OK, &body))
}

fn key_of(headers: &HeaderMap) -> Option<&str> {
    let (scheme, text) = only(headers, &header::AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| text.trim())
}
