//! The native REST API: everything `docs/reference/api.md` describes, on top of the engine.
//!
//! # Theory of operation
//! [`ROUTES`] is the one table of all routes. From it come the router, the scopes, the OpenAPI
//! document and the tests. A request passes key, scope, tenant and query parameters before its
//! handler sees it; a handler reads the body, asks the engine, and answers JSON or a
//! [problem document](error_codes).
//!
//! Publishing is the hot path: the body is parsed with borrowed types, the payload is never parsed
//! into a value, and the answer is written straight into the response's bytes.
//!
//! # What it must not know
//! No SQL, no sockets, no templates, no retry rules: what is allowed and what happens is decided by the engine.
//!
//! # Where to start
//! [`router`]; `routes.rs` for what there is, `publish.rs` for the hot path.

mod call;
mod codes;
mod cursor;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handlers;
mod json;
mod limits;
pub mod metrics;
mod openapi;
mod problem;
mod query;
mod reasons;
mod respond;
mod router;
mod routes;
mod wire;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use posthorn_domain::TenantId;
use posthorn_engine::{Engine, NewReplay, PushDelivery, WebhookOrigin};
use posthorn_listener::{Failures, ProxyIdentity};
use posthorn_store::PushStore;
use serde::Serialize;
use serde_json::{Map, Value};

pub use call::Vouched;
pub use codes::{ErrorCode, error_codes, reference_page};
pub use json::unquoted;
pub use limits::LimitOptions;
pub use openapi::document as openapi_document;
pub use reasons::{Reason, ReasonKind, reasons};
pub use router::{Surfaces, closed, router, surfaces};
pub use routes::{Access, ROUTES, Route};

/// Renders all metrics in the Prometheus text format.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Applies a setup file of the Notificaties API, with an engine that acts for whoever sends it. The answer says what it
/// changed.
pub type ApplySetup = Arc<dyn Fn(Engine, Value) -> ApplyingSetup + Send + Sync>;
/// See [`ApplySetup`].
pub type ApplyingSetup = Pin<Box<dyn Future<Output = Result<Value, SetupRefusal>> + Send>>;

/// Reads, in the words of the Notificaties API, which of its messages are to be sent again, and for whom (who asks);
/// otherwise which fields are wrong, and why.
pub type ReadResend =
    Arc<dyn Fn(&Value, String) -> Result<NewReplay, Vec<(String, String)>> + Send + Sync>;

/// Gives the four settings of deliveries of the Notificaties API by their names, after it has changed those that are
/// given. `Err` says what is wrong, beginning with the name of the setting where it is one of them.
pub type Settings = Arc<dyn Fn(Engine, Option<Map<String, Value>>) -> Setting + Send + Sync>;
/// See [`Settings`].
pub type Setting = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;

/// What operators do with the Notificaties API, where it is served.
#[derive(Clone)]
pub struct Notificaties {
    /// The tenant that everything of it belongs to.
    pub tenant: TenantId,
    /// Applies setup files.
    pub setup: ApplySetup,
    /// Reads what is to be sent again.
    pub resend: ReadResend,
    /// Shows and changes the settings of deliveries.
    pub settings: Settings,
}

/// What operators see of Web Push, where it is on.
#[derive(Clone)]
pub struct PushSight {
    /// Where agents and messages are.
    pub store: Arc<dyn PushStore>,
    /// Knows what an endpoint stands for.
    pub mailboxes: Arc<dyn PushDelivery>,
    /// This node, as records of agents name it, with the sockets that are open here; nothing while it starts.
    pub here: Arc<dyn Fn() -> Option<(String, usize)> + Send + Sync>,
}

/// A key of the configuration, as it is in effect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConfigEntry {
    /// With dots between its sections.
    pub key: String,
    /// Without what is secret.
    pub value: Value,
    /// Which layer says so.
    pub source: String,
}

/// Why a setup file was not applied as a whole.
#[derive(Debug)]
pub enum SetupRefusal {
    /// What is wrong with it, and where.
    Invalid(String),
    /// The engine could not do it.
    Engine(posthorn_engine::Error),
}

/// Knobs of the API.
#[derive(Clone)]
pub struct Options {
    /// What `/metrics` shows; without it, the path does not exist.
    pub metrics: Option<RenderMetrics>,
    /// The largest body of a request.
    pub body_bytes: usize,
    /// The largest body of a batch publish.
    pub batch_bytes: usize,
    /// Limits on who asks.
    pub limits: LimitOptions,
    /// Counts those who are not known, for all routers of the process.
    pub failures: Arc<Failures>,
    /// The proxy that vouches for callers without a key, if there is one.
    pub identity: Option<ProxyIdentity>,
    /// Senders that may ask without a key whether they may publish (`WebHook-Request-Origin`).
    pub webhook_origins: Vec<AllowedOrigin>,
    /// What operators do with the Notificaties API, where that API is served.
    pub notificaties: Option<Notificaties>,
    /// Scheme and host, and perhaps a path, by which customers know this server; without it, the scheme below and the
    /// `Host` of each request.
    pub portal_url: Option<String>,
    /// Whether the listener serves https.
    pub https: bool,
    /// What operators see of Web Push, where it is on.
    pub push: Option<PushSight>,
    /// The configuration in effect, for operators.
    pub config: Arc<[ConfigEntry]>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            metrics: None,
            body_bytes: 1 << 20,
            batch_bytes: 8 << 20,
            limits: LimitOptions::default(),
            failures: Arc::default(),
            identity: None,
            webhook_origins: Vec::new(),
            notificaties: None,
            portal_url: None,
            https: false,
            push: None,
            config: Arc::default(),
        }
    }
}

/// Senders that may ask without a key whether they may publish: one by its name, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedOrigin {
    /// `*`.
    Every,
    /// This one.
    One(WebhookOrigin),
}

impl AllowedOrigin {
    /// Whether a sender is among them.
    fn allows(&self, origin: &WebhookOrigin) -> bool {
        match self {
            Self::Every => true,
            Self::One(own) => own.as_str().eq_ignore_ascii_case(origin.as_str()),
        }
    }
}

impl std::str::FromStr for AllowedOrigin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" { Ok(Self::Every) } else { text.parse().map(Self::One) }
    }
}
