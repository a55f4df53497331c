//! From the table of routes to a router.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, on};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use metrics::Counter;
use posthorn_access::Callers;
use posthorn_domain::Scope;
use posthorn_engine::metrics::ADMISSION_REFUSED;
use posthorn_engine::{Engine, Refused};
use posthorn_listener::Peer;

use crate::call::{Api, Call};
use crate::limits::Limits;
use crate::metrics::Tally;
use crate::problem::{Problem, RETRY_AFTER};
use crate::routes::{Access, ROUTES, Route};
use crate::{Options, codes, respond};

/// The parts of the API, which listeners may serve apart from each other.
#[derive(Clone, Debug, Default)]
pub struct Surfaces {
    /// `/healthz` and `/readyz`.
    pub health: axum::Router,
    /// `/metrics`.
    pub metrics: axum::Router,
    /// `/v1/…` and the document that describes it.
    pub v1: axum::Router,
    /// `/jwks/…`, which receivers ask.
    pub jwks: axum::Router,
}

impl Surfaces {
    /// The part that has a path.
    fn of(&mut self, path: &str) -> &mut axum::Router {
        match path {
            "/healthz" | "/readyz" => &mut self.health,
            "/metrics" => &mut self.metrics,
            path if path.starts_with("/jwks/") => &mut self.jwks,
            _ => &mut self.v1,
        }
    }
}

/// The API in parts. Metrics are counted with the recorder that is installed now.
pub fn surfaces(engine: Engine, options: Options) -> Surfaces {
    crate::metrics::describe();
    // What the listener refuses by itself has its page among the codes of the API.
    assert_eq!(codes::MALFORMED_REQUEST.code, posthorn_listener::MALFORMED_REQUEST);
    assert_eq!(codes::TOO_MANY_CONNECTIONS.code, posthorn_listener::TOO_MANY_CONNECTIONS);
    let callers = Callers::new(engine.clone(), Arc::clone(&options.failures));
    let limits = Limits::new(&options.limits);
    let overloaded = Overloaded::new();
    let streams = crate::handlers::stream::Streams::default();
    let api = Arc::new(Api { engine, callers, options, limits, overloaded, streams });
    let mut surfaces = Surfaces::default();
    for route in &ROUTES {
        let api = Arc::clone(&api);
        let tally = Tally::of(route.operation);
        let handler = move |request: Request<Body>| serve_one(api, route, tally, request);
        let router = surfaces.of(route.path);
        *router = std::mem::take(router).route(route.path, on(filter(&route.method), handler));
    }
    let Surfaces { health, metrics, v1, jwks } = &mut surfaces;
    for router in [health, metrics, v1, jwks] {
        *router = std::mem::take(router).method_not_allowed_fallback(wrong_method);
    }
    surfaces
}

/// A router that says of every other path, in the API's way, that it does not exist.
pub fn closed(router: axum::Router) -> axum::Router {
    router.fallback(no_route)
}

/// The whole API as one router.
pub fn router(engine: Engine, options: Options) -> axum::Router {
    let Surfaces { health, metrics, v1, jwks } = surfaces(engine, options);
    closed(v1.merge(health).merge(metrics).merge(jwks))
}

/// So much of a body that nobody reads is skipped; beyond, the connection is closed.
const UNREAD_MAX: u64 = 8 << 10;

/// The answer to what is refused because of overload, made once.
pub(crate) struct Overloaded {
    body: Bytes,
    refused: Counter,
}

impl Overloaded {
    fn new() -> Self {
        let problem = Problem::from(Refused::Overloaded);
        let reason = problem.admission_reason().unwrap_or_default();
        Self {
            body: serde_json::to_vec(&problem).unwrap_or_default().into(),
            refused: ::metrics::counter!(ADMISSION_REFUSED, "reason" => reason),
        }
    }

    fn respond(&self) -> Response {
        self.refused.increment(1);
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let mut response = respond::bytes(status, respond::PROBLEM, self.body.clone());
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        response
    }
}

async fn serve_one(
    api: Arc<Api>,
    route: &'static Route,
    tally: Tally,
    request: Request<Body>,
) -> Response {
    let publishes = route.access == Access::Scope(Scope::Publish);
    let peer: Option<Peer> = publishes.then(|| request.extensions().get().cloned()).flatten();
    let mut unread = false;
    let large = http_body::Body::size_hint(request.body()).lower() > UNREAD_MAX;
    let answer = match Call::admit(&api, route, request) {
        Ok(call) => (route.handler)(call).await,
        // Nothing of it was read but its head: what is refused because of overload must cost next to
        // nothing.
        Err(problem) if problem.is(codes::OVERLOADED) => {
            let hold = api.limits.hold(peer.as_ref(), api.engine.admission().nanos());
            if !hold.is_zero() {
                tokio::time::sleep(hold).await;
            }
            let response = api.overloaded.respond();
            tally.count(response.status());
            return closing(response, large);
        }
        Err(problem) => {
            unread = large;
            Err(problem)
        }
    };
    if let Some(reason) = answer.as_ref().err().and_then(Problem::admission_reason) {
        ::metrics::counter!(ADMISSION_REFUSED, "reason" => reason).increment(1);
    }
    let response = answer.unwrap_or_else(Problem::into_response);
    tally.count(response.status());
    closing(response, unread)
}

/// Says that the connection ends, when there is more of the body than can be skipped: a client that sent another
/// request on it would not know whether that was served.
fn closing(mut response: Response, large: bool) -> Response {
    if large {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn filter(method: &Method) -> MethodFilter {
    MethodFilter::try_from(method.clone()).expect("the table has methods that can be routed")
}

async fn no_route() -> Response {
    Problem::not_found("path").into_response()
}

async fn wrong_method() -> Response {
    let detail = "this path does not support the method; see the Allow header";
    Problem::new(codes::METHOD_NOT_ALLOWED, detail).into_response()
}
