//! The portal: pages for customers, each of whom sees one tenant.
//!
//! # Theory of operation
//! A customer comes in by a link (`entrance.rs`), which is redeemed for a session. `ROUTES` is the one table of all pages
//! and forms with the capability that each needs. A request passes the session, its rate, the origin and token of its
//! form, and its capability before a handler sees it (`gate.rs`). A handler asks the native API within the process as that
//! tenant, like a page of the console, so that nothing of another tenant can be reached. Customers read *endpoint*,
//! *message* and *attempt* where operators read subscription, event and attempt of a delivery.
//!
//! All texts are in `texts/`, a file for each language. Everything works without scripts but the way in and push
//! notifications; the script adds local times, copying, and answers in place.
//!
//! # What it must not know
//! SQL, sockets, how links and tokens are made, other tenants.
//!
//! # Where to start
//! [`router`], `gate.rs`, then `endpoints.rs` for a page.

pub(crate) mod attempts;
pub(crate) mod brand;
pub(crate) mod browsers;
pub(crate) mod catalogue;
pub(crate) mod colour;
pub(crate) mod endpoint;
pub(crate) mod endpoint_new;
pub(crate) mod endpoints;
pub(crate) mod entrance;
pub(crate) mod figures;
pub(crate) mod frame;
pub(crate) mod gate;
pub(crate) mod guest;
pub(crate) mod jobs;
pub(crate) mod look;
pub(crate) mod messages;
pub(crate) mod notifications;
pub(crate) mod recover;
pub(crate) mod say;
pub(crate) mod settings;
pub(crate) mod snippets;
pub(crate) mod texts;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::{MethodFilter, get, on, post};
use http::{HeaderValue, Method, Request};
use posthorn_access::Callers;
use posthorn_domain::{Capability, setting};
use posthorn_engine::Engine;
use serde::Deserialize;

pub use brand::Picture;
pub use colour::Colour;
pub use texts::Language;

use crate::Console;
use crate::pages::Answering;
use guest::Guest;

/// Knobs of the portal, a section of the configuration.
#[derive(Clone, Debug, Deserialize)]
pub struct Options {
    /// Whether there are pages at all.
    pub enabled: bool,
    /// What customers read above every page.
    #[serde(deserialize_with = "brand::name")]
    pub name: String,
    /// The colour of the brand.
    pub accent: Option<Colour>,
    /// The picture beside the name.
    pub logo: Option<Picture>,
    /// The same in the dark theme.
    pub logo_dark: Option<Picture>,
    /// The picture of tabs.
    pub favicon: Option<Picture>,
    /// Terms of use.
    #[serde(deserialize_with = "brand::web_link")]
    pub terms_url: Option<String>,
    /// Where customers go when their link says nothing else.
    #[serde(deserialize_with = "brand::web_link")]
    pub return_url: Option<String>,
    /// Of whoever asks for no other.
    pub language: Language,
    /// Whether customers may get messages in their browsers.
    pub browsers: bool,
    /// Sites that may show the portal in a frame.
    #[serde(deserialize_with = "brand::ancestors")]
    pub frame_ancestors: Vec<String>,
    /// Requests of one session in a second.
    #[serde(deserialize_with = "setting::within::<1, 1000, _, _>")]
    pub requests_per_second: u32,
    /// How customers reach this server, when that is not the address of the listener.
    #[serde(skip)]
    pub public_url: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            enabled: true,
            name: "Webhooks".to_owned(),
            accent: None,
            logo: None,
            logo_dark: None,
            favicon: None,
            terms_url: None,
            return_url: None,
            language: Language::English,
            browsers: false,
            frame_ancestors: Vec::new(),
            requests_per_second: 20,
            public_url: None,
        }
    }
}

/// One page or form.
pub(crate) struct PageRoute {
    pub(crate) method: Method,
    /// Below `/portal/`.
    pub(crate) path: &'static str,
    pub(crate) needs: Capability,
    pub(crate) handler: fn(Arc<Guest>) -> Answering,
}

macro_rules! routes {
    ($($method:ident $path:literal $needs:ident $handler:path;)+) => {
        &[$(PageRoute {
            method: Method::$method,
            path: $path,
            needs: Capability::$needs,
            handler: |guest| Box::pin($handler(guest)),
        }),+]
    };
}

/// Everything there is for somebody who is in.
pub(crate) static ROUTES: &[PageRoute] = routes! {
    GET "/portal/" View endpoints::list;
    GET "/portal/endpoints/new" ManageEndpoints endpoint_new::show;
    POST "/portal/endpoints/new" ManageEndpoints endpoint_new::step;
    GET "/portal/endpoints/{id}" View endpoint::show;
    POST "/portal/endpoints/{id}/test" ManageEndpoints endpoint::test;
    POST "/portal/endpoints/{id}/pause" ManageEndpoints endpoint::pause;
    POST "/portal/endpoints/{id}/resume" ManageEndpoints endpoint::resume;
    POST "/portal/endpoints/{id}/change" ManageEndpoints settings::change;
    POST "/portal/endpoints/{id}/delete" ManageEndpoints settings::delete;
    POST "/portal/endpoints/{id}/secret" SeeSecret endpoint::reveal;
    POST "/portal/endpoints/{id}/rotate" RotateSecret endpoint::rotate;
    POST "/portal/endpoints/{id}/recover" Resend recover::recover;

    GET "/portal/messages" View messages::list;
    GET "/portal/messages/{id}" View messages::one;
    GET "/portal/messages/{id}/payload" View messages::payload;

    GET "/portal/attempts" View attempts::list;
    GET "/portal/attempts/{delivery}" View attempts::one;
    POST "/portal/attempts/{delivery}/resend" Resend attempts::resend;

    GET "/portal/event-types" View catalogue::list;
    GET "/portal/event-types/{name}" View catalogue::one;
    POST "/portal/event-types/{name}/send" ManageEndpoints catalogue::send;

    GET "/portal/notifications" View notifications::show;
    POST "/portal/notifications" ManageEndpoints notifications::create;

    POST "/portal/browsers" ManageEndpoints browsers::add;

    GET "/portal/jobs/{id}" View jobs::one;
    POST "/portal/jobs/{id}/cancel" Resend jobs::cancel;

    POST "/portal/look" View entrance::choose;
};

/// The table of pages and forms, for tests: method, path and what each needs.
#[doc(hidden)]
pub fn routes() -> impl Iterator<Item = (&'static Method, &'static str, Capability)> {
    ROUTES.iter().map(|route| (&route.method, route.path, route.needs))
}

/// What all pages share.
pub(crate) struct Portal {
    pub(crate) console: Arc<Console>,
    pub(crate) options: Options,
    /// What paths begin with: that of the proxy in front, if it has one, and `/portal`.
    pub(crate) base: String,
    /// What pages may do, told to the browser.
    pub(crate) policy: HeaderValue,
}

impl Portal {
    fn new(console: Arc<Console>, options: Options) -> Self {
        let path = options.public_url.as_deref().and_then(|url| url::Url::parse(url).ok());
        let path = path.map(|url| url.path().trim_end_matches('/').to_owned()).unwrap_or_default();
        let policy = HeaderValue::from_str(&gate::policy(&options.frame_ancestors))
            .expect("sites of frames were checked when they were read");
        Self { console, base: format!("{path}/portal"), policy, options }
    }

    /// Pictures by the last part of their URL.
    pub(crate) fn picture(&self, name: &str) -> Option<&Picture> {
        let own = &self.options;
        let all = [&own.logo, &own.logo_dark, &own.favicon];
        all.into_iter().flatten().find(|picture| picture.name() == name)
    }
}

/// The pages as a router. `api` is the native API, whole.
pub fn router(engine: Engine, api: Router, callers: Callers, options: Options) -> Router {
    let shared = crate::Options {
        requests_per_second: options.requests_per_second,
        ..crate::Options::default()
    };
    let console = Console::new(engine, api, callers, shared);
    let portal = Arc::new(Portal::new(Arc::new(console), options));
    let mut router = Router::new();
    for route in ROUTES {
        let portal = Arc::clone(&portal);
        let handler = move |request: Request<Body>| gate::pass(Arc::clone(&portal), route, request);
        let method = MethodFilter::try_from(route.method.clone())
            .expect("the table has methods that can be routed");
        router = router.route(route.path, on(method, handler));
    }
    macro_rules! with_portal {
        ($handler:path) => {{
            let portal = Arc::clone(&portal);
            move |request: Request<Body>| $handler(Arc::clone(&portal), request)
        }};
    }
    let hardened = Arc::clone(&portal);
    router
        .route("/portal", get(with_portal!(entrance::show)))
        .route("/portal/redeem", post(with_portal!(entrance::redeem)))
        .route("/portal/logout", post(with_portal!(entrance::leave)))
        .route("/portal/left", get(with_portal!(entrance::left)))
        .route("/portal/look.css", get(with_portal!(entrance::sheet)))
        .route("/portal/worker.js", get(browsers::worker))
        .route("/portal/brand/{name}", get(with_portal!(entrance::picture)))
        .route("/portal/assets/{hash}/{name}", get(crate::gate::asset))
        .route("/portal/{*rest}", get(with_portal!(gate::lost)))
        .layer(axum::middleware::map_response(move |response| {
            gate::harden(Arc::clone(&hardened), response)
        }))
}
