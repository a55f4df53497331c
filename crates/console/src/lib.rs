//! The console: pages for operators, rendered on the server and part of the program; and the portal, pages for their
//! customers.
//!
//! # Theory of operation
//! `login.rs`, `oidc.rs` and `entry.rs` are the ways in: a key, a provider of identities, a proxy in front. All of them
//! open the same kind of session.
//!
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
//! [`router`]; `visit.rs` for how pages ask, `pages/deliveries.rs` for a page; [`portal`] for customers.

mod assets;
mod chart;
mod cookie;
mod entry;
mod form;
mod frame;
mod gate;
mod live;
mod login;
mod metrics;
mod oidc;
mod pages;
mod policy_words;
pub mod portal;
mod rights;
mod signature_words;
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
use posthorn_domain::{Rate, SessionId, setting};
use posthorn_engine::Engine;
use posthorn_listener::{ProxyPerson, Table};
use serde::Deserialize;

pub use oidc::{Ask, Asking, Issuer, Options as OidcOptions, Question};
pub use rights::Rights;

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
    /// Whether people may log in with a key.
    pub key_login: bool,
    /// How many requests a second one session may make; zero means any number.
    pub requests_per_second: u32,
    /// The provider where people log in.
    pub oidc: OidcOptions,
    /// The proxy that logs people in before it lets them through.
    pub proxy_login: ProxyPerson,
    /// What groups stand for that the proxy names.
    #[serde(skip)]
    pub proxy_rights: Rights,
    /// The way to the provider.
    #[serde(skip)]
    pub ask: Option<Ask>,
    /// What the store is, for people. The engine knows only that there is one.
    #[serde(skip)]
    pub store: Option<&'static str>,
    /// Other systems that are spoken here: what each is called, and its tenant by name.
    #[serde(skip)]
    pub systems: Vec<(&'static str, String)>,
    /// How the program may end, what each of it means, and what to do.
    #[serde(skip)]
    pub exit_codes: Vec<(u8, &'static str, &'static str)>,
}

impl Default for Options {
    fn default() -> Self {
        let session_time = Duration::from_secs(8 * 3600);
        Self {
            enabled: true,
            session_time,
            public_url: None,
            key_login: true,
            requests_per_second: 50,
            oidc: OidcOptions::default(),
            proxy_login: ProxyPerson::default(),
            proxy_rights: Rights::default(),
            ask: None,
            store: None,
            systems: Vec::new(),
            exit_codes: Vec::new(),
        }
    }
}

/// The table of pages and forms, for tests: method and path of each.
#[doc(hidden)]
pub fn routes() -> impl Iterator<Item = (&'static Method, &'static str)> {
    pages::ROUTES.iter().map(|route| (&route.method, route.path))
}

/// The largest form.
pub(crate) const FORM_BYTES_MAX: usize = 2 << 20;
/// So many seconds' worth of requests may come at once.
const BURST_SECONDS: u32 = 4;
/// Sessions whose requests are counted; further ones share a bucket.
const SESSIONS_MAX: usize = 10_000;
/// Sessions that are opened for one person in a minute, on the word of a proxy.
const OPENINGS: u32 = 30;
/// People for whom they are counted.
const PEOPLE_MAX: usize = 10_000;

/// What all pages share.
pub(crate) struct Console {
    pub(crate) engine: Engine,
    /// The native API, asked within the process.
    pub(crate) api: Router,
    pub(crate) callers: Callers,
    pub(crate) options: Options,
    /// Where people log in, if that is configured.
    pub(crate) provider: Option<oidc::provider::Provider>,
    /// How many requests each session makes.
    pub(crate) pace: Table<SessionId>,
    /// How many sessions are opened for each person on the word of a proxy.
    pub(crate) openings: Table<String>,
    pub(crate) streams: Arc<live::Streams>,
    pub(crate) backlog: pages::attention::Backlog,
    pub(crate) figures: pages::figures::Figures,
    pub(crate) numbers: pages::systems::Numbers,
}

impl Console {
    pub(crate) fn new(engine: Engine, api: Router, callers: Callers, options: Options) -> Self {
        let requests = options.requests_per_second.saturating_mul(BURST_SECONDS);
        let pace = Rate::new(requests, Duration::from_secs(BURST_SECONDS.into()));
        Self {
            engine,
            api,
            callers,
            provider: oidc::provider::Provider::new(options.oidc.clone(), options.ask.clone()),
            options,
            pace: Table::new(pace, SESSIONS_MAX),
            openings: Table::new(Rate::new(OPENINGS, Duration::from_secs(60)), PEOPLE_MAX),
            streams: Arc::default(),
            backlog: Default::default(),
            figures: Default::default(),
            numbers: Default::default(),
        }
    }
}

/// The pages as a router. `api` is the native API, whole.
pub fn router(engine: Engine, api: Router, callers: Callers, options: Options) -> Router {
    metrics::describe();
    let console = Arc::new(Console::new(engine, api, callers, options));
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
    let (beginning, finishing) = (Arc::clone(&console), Arc::clone(&console));
    router
        .route(
            "/console/login",
            get(move |request| login::show(Arc::clone(&showing), request))
                .post(move |request| login::check(Arc::clone(&checking), request)),
        )
        .route(
            "/console/login/oidc",
            get(move |request| oidc::flow::begin(Arc::clone(&beginning), request)),
        )
        .route(
            oidc::flow::BACK,
            get(move |request| oidc::flow::finish(Arc::clone(&finishing), request)),
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
