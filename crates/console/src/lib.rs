//! The console: pages for operators, rendered on the server and part of the program.
//!
//! # Theory of operation
//! `pages.rs` has the one table of all pages and forms, with what each needs. A request passes the session, the
//! origin and token of its form, what it needs, and the tenant in its path before its handler sees it (`visit.rs`). A
//! handler asks the native API within the process (`Visit::get`, `Visit::send`) and fills in a template. So the rules
//! of who may see and do what are the API's own, and nothing can be done here that a key could not do.
//!
//! Every page is a plain GET with its filter in the query, and can be read without scripts. Scripts add keys, themes,
//! charts and live updates. Nothing is loaded from elsewhere.
//!
//! # What it must not know
//! SQL, sockets, how keys and tokens are made.
//!
//! # Where to start
//! [`router`]; `visit.rs` for how pages ask, `pages/deliveries.rs` for a page.

mod assets;
mod chart;
mod cookie;
mod form;
mod frame;
mod gate;
mod login;
mod pages;
mod text;
mod trouble;
mod visit;
mod words;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{MethodFilter, get, on};
use http::{Method, Request};
use posthorn_access::Callers;
use posthorn_domain::setting;
use posthorn_engine::Engine;
use serde::Deserialize;

/// Knobs of the console, a section of the configuration.
#[derive(Clone, Debug, Deserialize)]
pub struct Options {
    /// Whether there are pages at all.
    pub enabled: bool,
    /// How long a login lasts.
    #[serde(deserialize_with = "setting::some_time")]
    pub session_time: Duration,
    /// Where people open it, when that is not the address of the listener.
    pub public_url: Option<String>,
    /// What the store is, for people. The engine knows only that there is one.
    #[serde(skip)]
    pub store: Option<&'static str>,
}

impl Default for Options {
    fn default() -> Self {
        let session_time = Duration::from_secs(8 * 3600);
        Self { enabled: true, session_time, public_url: None, store: None }
    }
}

/// The table of pages and forms, for tests: method and path of each.
#[doc(hidden)]
pub fn routes() -> impl Iterator<Item = (&'static Method, &'static str)> {
    pages::ROUTES.iter().map(|route| (&route.method, route.path))
}

/// The largest form.
pub(crate) const FORM_BYTES_MAX: usize = 2 << 20;

/// What all pages share.
pub(crate) struct Console {
    pub(crate) engine: Engine,
    /// The native API, asked within the process.
    pub(crate) api: Router,
    pub(crate) callers: Callers,
    pub(crate) options: Options,
}

/// The pages as a router. `api` is the native API, whole.
pub fn router(engine: Engine, api: Router, callers: Callers, options: Options) -> Router {
    let console = Arc::new(Console { engine, api, callers, options });
    let mut router = Router::new();
    for route in pages::ROUTES {
        let console = Arc::clone(&console);
        let handler =
            move |request: Request<Body>| gate::pass(Arc::clone(&console), route, request);
        let method = MethodFilter::try_from(route.method.clone())
            .expect("the table has methods that can be routed");
        router = router.route(route.path, on(method, handler));
    }
    let (showing, checking, leaving, lost) =
        (Arc::clone(&console), Arc::clone(&console), Arc::clone(&console), Arc::clone(&console));
    router
        .route(
            "/console/login",
            get(move |request| login::show(Arc::clone(&showing), request))
                .post(move |request| login::check(Arc::clone(&checking), request)),
        )
        .route(
            "/console/logout",
            axum::routing::post(move |request| login::leave(Arc::clone(&leaving), request)),
        )
        .route("/console", get(async || visit::see("/console/")))
        .route("/console/assets/{hash}/{name}", get(gate::asset))
        .route("/console/{*rest}", get(move |request| gate::lost(Arc::clone(&lost), request)))
        .layer(axum::middleware::map_response(gate::harden))
}
