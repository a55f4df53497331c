//! From the table of routes to a router.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, on};
use http::{Method, Request};
use posthorn_engine::Engine;
use posthorn_engine::metrics::ADMISSION_REFUSED;

use crate::call::{Api, Call};
use crate::limits::{Limits, Peer};
use crate::metrics::Tally;
use crate::problem::Problem;
use crate::routes::{ROUTES, Route};
use crate::{Options, codes};

/// The API as a router. Metrics are counted with the recorder that is installed now.
pub fn router(engine: Engine, options: Options) -> axum::Router {
    crate::metrics::describe();
    let limits = Limits::new(&options.limits);
    let api = Arc::new(Api { engine, options, limits });
    let mut router = axum::Router::new();
    for route in &ROUTES {
        let api = Arc::clone(&api);
        let tally = Tally::of(route.operation);
        let handler = move |request: Request<Body>| serve_one(api, route, tally, request);
        router = router.route(route.path, on(filter(&route.method), handler));
    }
    router.method_not_allowed_fallback(wrong_method).fallback(no_route)
}

async fn serve_one(
    api: Arc<Api>,
    route: &'static Route,
    tally: Tally,
    request: Request<Body>,
) -> Response {
    let peer = request.extensions().get::<Peer>().cloned();
    let answer = match Call::admit(&api, route, request) {
        Ok(call) => (route.handler)(call).await,
        Err(problem) => {
            if problem.is(codes::OVERLOADED) {
                let hold = api.limits.hold(peer.as_ref(), api.engine.admission().nanos());
                if !hold.is_zero() {
                    tokio::time::sleep(hold).await;
                }
            }
            Err(problem)
        }
    };
    if let Some(reason) = answer.as_ref().err().and_then(Problem::admission_reason) {
        ::metrics::counter!(ADMISSION_REFUSED, "reason" => reason).increment(1);
    }
    let response = answer.unwrap_or_else(Problem::into_response);
    tally.count(response.status());
    response
}

fn filter(method: &Method) -> MethodFilter {
    MethodFilter::try_from(method.clone()).expect("the table has methods that can be routed")
}

async fn no_route() -> Response {
    Problem::not_found("path").into_response()
}

async fn wrong_method() -> Response {
    let detail = "the path exists, but not with this method; see Allow";
    Problem::new(codes::METHOD_NOT_ALLOWED, detail).into_response()
}
