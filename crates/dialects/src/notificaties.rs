//! The Notificaties API 1.0, as Open Notificaties speaks it.
//!
//! # Theory of operation
//! A *kanaal* is a topic, an *abonnement* a subscription, a *notificatie* an event; nothing else is
//! kept. UUIDs in URLs are derived from the name of a kanaal, and are the name of an abonnement's
//! subscription, so that every node gives the same answers. A message is published with its bytes as
//! they came; where it says its source, the same stands beside it as a CloudEvent, and the policy of
//! each subscription says which of the two it wants. What is retried when is the profile's affair.
//!
//! A request passes its method, token and scope before its body is read; everything that is wrong with
//! a body is said at once, and nothing is changed unless all of it is right.
//!
//! # What it must not know
//! SQL, sockets, schedules.
//!
//! # Where to start
//! `Notificaties::start`; `dispatch.rs` for what there is, `fields.rs` for how bodies are read, `notificatie.rs`
//! for the conversion to CloudEvents.

mod abonnement;
mod access;
mod authentication;
mod authorizations;
mod cloudevent;
mod configuration;
mod dispatch;
mod fields;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handlers;
mod incoming;
mod kanaal;
mod management;
mod notificatie;
mod openapi;
mod probe;
mod problem;
mod resend;
pub mod settings;
mod setup;
mod uuid;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthorn_access::Callers;
use posthorn_domain::{Labels, ProfileName, Rate, Span, TenantId, setting};
use posthorn_engine::{Engine, FailureNames};
use posthorn_listener::Table;
use posthorn_sealing::jwt::Terms;
use serde::{Deserialize, Deserializer, de::Error};
use tokio::sync::Mutex;
use url::Url;

pub use access::{Application, Credential, Scope};
pub use authorizations::{Authorizations, Fetch, Fetching};
pub(crate) use configuration::configured;
pub use management::Management;
pub use setup::{Applied, Service as SetupService, Setup, resolve};

use crate::{Dialect, Home, Services, StartError, Started};
use access::Clients;
use authorizations::{Changes, Rights};

/// Where its settings are.
const SECTION: &str = "dialects.notificaties";

/// Beginnings of paths that are taken.
const TAKEN: [&str; 7] = ["v1", "jwks", "healthz", "readyz", "metrics", "openapi.json", "admin"];

/// Knobs: the section `dialects.notificaties` of the configuration, and what others know of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Whether it is served at all.
    pub enabled: bool,
    /// What stands before all paths, such as `/api/v1`.
    #[serde(deserialize_with = "prefix")]
    pub prefix: String,
    /// The tenant everything belongs to, by name; it is made when it is not there.
    #[serde(deserialize_with = "setting::some_text")]
    pub tenant: String,
    /// The profile of all abonnementen.
    pub profile: ProfileName,
    /// Scheme and authority by which clients know this server; those of each request when absent.
    #[serde(deserialize_with = "base_url")]
    pub base_url: Option<String>,
    /// Whether requests come over https when there is no `base_url` that says so.
    #[serde(skip)]
    pub https: bool,
    /// Whether a callback must refuse a message without authentication when it is registered.
    pub test_callback_auth: bool,
    /// Whether a callback must answer when it is registered.
    pub probe_callback: bool,
    /// Whether the documentation of a kanaal must be there when it is registered.
    pub check_documentation: bool,
    /// How long a token counts after it was made.
    #[serde(deserialize_with = "setting::some_time")]
    pub jwt_expiry: Span,
    /// By how much clocks may differ.
    pub leeway: Span,
    /// Clients with their secrets.
    pub credentials: Vec<Credential>,
    /// What clients may do.
    pub applications: Vec<Application>,
    /// Where rights are asked for that are not said here.
    pub authorizations: Authorizations,
    /// The file that `setup` is read from.
    pub setup_configuration: Option<PathBuf>,
    /// The largest body.
    #[serde(skip)]
    pub body_bytes: usize,
    /// What is to be there from the start.
    #[serde(skip)]
    pub setup: Setup,
}

fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    crate::prefix(deserializer, &TAKEN)
}

fn base_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let fine = |text: &str| site(text).is_some_and(|url| url.path() == "/");
    if text.as_deref().is_some_and(|text| !fine(text)) {
        return Err(Error::custom(
            "must be scheme and host such as https://notificaties.example.nl, without a path: that is \
             the prefix",
        ));
    }
    Ok(text)
}

/// A URL that paths can be put behind.
fn site(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let web = matches!(url.scheme(), "http" | "https") && url.has_host();
    (web && url.query().is_none()).then_some(url)
}

/// What a request works with: an engine that acts for its client, and what all requests share.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) engine: Engine,
    shared: Arc<Shared>,
}

impl std::ops::Deref for Service {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) tenant: TenantId,
    pub(crate) options: Options,
    pub(crate) clients: Clients,
    /// Rights that somebody else knows.
    pub(crate) rights: Option<Arc<Rights>>,
    /// Who hears that these changed says it here.
    pub(crate) changes: Changes,
    pub(crate) callers: Callers,
    /// How much each client used of the rate that keys have too (`admission.key_requests_per_second`).
    pub(crate) rates: Table<Arc<str>>,
    /// One kanaal at a time is changed, so that what two changes do not name both stay.
    pub(crate) changing: Mutex<()>,
}

/// Clients that are counted at once, besides those of the configuration.
const CLIENTS_COUNTED: usize = 1_000;

/// What failures of deliveries are called in the log, as in that of the original.
const FAILURES: FailureNames =
    FailureNames { failed: "notification_failed", dead: "notification_dead_letter" };

/// The API as it was configured.
#[derive(Debug)]
struct Notificaties {
    options: Options,
}

#[async_trait]
impl Dialect for Notificaties {
    fn name(&self) -> &'static str {
        "notificaties"
    }

    fn tenant(&self) -> &str {
        &self.options.tenant
    }

    fn home(&self) -> Option<Home<'_>> {
        let Options { tenant, profile, .. } = &self.options;
        Some(Home { key: "dialects.notificaties.tenant", tenant, profile: profile.as_str() })
    }

    fn prefix(&self) -> Option<(&'static str, &str)> {
        Some(("dialects.notificaties.prefix", &self.options.prefix))
    }

    fn asks(&self) -> Vec<(&'static str, &str)> {
        let api = &self.options.authorizations;
        let asked = api.is_asked().then_some(api.url.as_str());
        asked.map(|url| ("dialects.notificaties.authorizations.url", url)).into_iter().collect()
    }

    async fn start(self: Box<Self>, services: Services) -> Result<Started, StartError> {
        let (Services { engine, callers, fetch }, Self { mut options }) = (services, *self);
        dispatch::describe();
        let tenant = engine.ensure_tenant(&options.tenant).await?.id;
        engine.catalog().profile(tenant, &options.profile)?;
        ensure_cloudevents(&engine, tenant).await?;
        let setup = std::mem::take(&mut options.setup);
        for section in &setup.ignored {
            tracing::warn!(
                section,
                "a section of the setup_configuration file does not apply here"
            );
        }
        setup.apply(&engine, tenant, &options.profile).await?;
        let changes = Changes::default();
        let (expiry, leeway) = (seconds(options.jwt_expiry), seconds(options.leeway));
        engine.check_publishes(tenant, incoming::check(tenant, leeway, changes.clone()));
        engine.name_failures(tenant, FAILURES);
        let terms = Terms { expiry, leeway };
        let credentials = std::mem::take(&mut options.credentials);
        let clients = Clients::new(credentials, &options.applications, terms);
        let rate =
            Rate::new(engine.admission().options().key_requests_per_second, Duration::from_secs(1));
        let rates = Table::new(rate, clients.count() + CLIENTS_COUNTED);
        let changing = Mutex::new(());
        let api = options.authorizations.clone();
        let rights = api.is_asked().then(|| Rights::new(api, fetch, changes.clone()));
        let management =
            Management { engine: engine.clone(), tenant, profile: options.profile.clone() };
        let shared = Arc::new(Shared {
            tenant,
            options,
            clients,
            rights,
            changes,
            callers,
            rates,
            changing,
        });
        let service = Service { engine, shared };
        Ok(Started { routes: dispatch::router(service), management: Some(management) })
    }
}

/// As the times in tokens and messages are.
fn seconds(span: Span) -> i64 {
    i64::try_from(span.as_millis() / 1_000).unwrap_or(i64::MAX)
}

/// Makes the topic of CloudEvents that are published as such, when it is not there.
pub(crate) async fn ensure_cloudevents(
    engine: &Engine,
    tenant: TenantId,
) -> posthorn_engine::Result<()> {
    if engine.catalog().topic(tenant, &cloudevent::topic()).is_err() {
        let description = "CloudEvents that were published as such".to_owned();
        let labels = Labels::default();
        engine.put_topic(tenant, cloudevent::topic(), description, Vec::new(), labels).await?;
    }
    Ok(())
}
