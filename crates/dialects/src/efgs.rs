//! The callback administration of the European Federation Gateway Service: national backends say
//! where they want to be told of new batches of diagnosis keys.
//!
//! # Theory of operation
//! A callback is a subscription of one tenant: its name is the callback's id (with the country before
//! it, where every country has ids of its own), its labels say whose it is, its profile says
//! everything about sending. That a name exists once is the store's promise, so that of two countries
//! which take one id at the same moment on two nodes, one is refused. A batch is announced by
//! publishing an event with the attributes `batchTag` and `date` on one topic.
//!
//! Who calls is known by a certificate, from a proxy's headers or from the handshake; its country
//! comes from the certificate and never from what the caller writes.
//!
//! # What it must not know
//! When and how often anything is sent.
//!
//! # Where to start
//! `Efgs::start`; `target.rs` for how callback URLs are read, `answer.rs` for the bodies clients expect.

mod answer;
mod batch;
mod caller;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{get, put};
use http::request::Parts;
use http::{Request, StatusCode};
use posthorn_access::Callers;
use posthorn_domain::filter::Group;
use posthorn_domain::policy::Auth;
use posthorn_domain::{
    Filter, Labels, Policy, ProfileName, SubscriptionName, SubscriptionStatus, TenantId, TopicName,
    setting,
};
use posthorn_engine::{Engine, Error, NewSubscription, SubscriptionChange, SubscriptionView};
use posthorn_listener::ProxyIdentity;
use serde::{Deserialize, Deserializer};
use tracing::{info, warn};

use crate::{Around, Dialect, Home, Services, Settings, StartError, Started};
use answer::{Answer, Refusal, accepts_json};

pub use target::target;

/// The label with the country whose callback it is.
const COUNTRY: &str = "country";
/// The label with the id the country chose.
const CALLBACK_ID: &str = "callbackId";
/// The label with the URL as the country wrote it.
const URL: &str = "url";
/// How often a change is tried again when others interfere.
const TRIES: usize = 5;

/// In which scope ids are unique.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackIdScope {
    /// Among all countries: another country's id is refused.
    #[default]
    Global,
    /// In each country.
    PerCountry,
}

/// How callbacks are authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The country's certificate is named to an outbound proxy.
    ProxyHeader,
    /// It is shown in the handshake.
    NativeMtls,
}

/// Knobs of this dialect: the section `dialects.efgs` of the configuration.
#[derive(Clone, Debug, Deserialize)]
struct Options {
    /// Whether it is served at all.
    enabled: bool,
    /// Whose subscriptions callbacks are.
    #[serde(deserialize_with = "setting::some_text")]
    pub tenant: String,
    /// The policy they have.
    pub profile: ProfileName,
    /// Where batches are announced; made at the start when it is not there.
    pub topic: TopicName,
    /// What stands before all its paths.
    #[serde(deserialize_with = "prefix")]
    pub prefix: String,
    /// The proxy that ends the callers' TLS, of the same section; without one, certificates are shown in
    /// the handshake.
    #[serde(skip)]
    pub identity: ProxyIdentity,
    /// How callbacks are authenticated; for whoever makes the profile.
    pub mode: Mode,
    /// In which scope ids are unique.
    pub callback_id_scope: CallbackIdScope,
    /// The longest id, in characters. The store keeps no more of a name with its country before it.
    #[serde(deserialize_with = "setting::within::<1, 60, _, _>")]
    pub callback_id_length_max: usize,
    /// The longest URL, in bytes. Labels keep no more of it beside the rest.
    #[serde(deserialize_with = "setting::within::<1, 2048, _, _>")]
    pub url_length_max: usize,
}

fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    crate::prefix(deserializer, &["v1"])
}

/// The dialect, when it is on. Changes its profile where the mode asks for it.
///
/// The proxy that is believed has its own headers, and its own addresses or those of `server.identity`.
pub(crate) fn configured(
    settings: &mut impl Settings,
    around: &mut Around<'_>,
) -> Option<Box<dyn Dialect>> {
    let mut options: Options = settings.at("dialects.efgs");
    options.identity = settings.at("dialects.efgs");
    if options.identity.proxies.is_empty() {
        around.proxies.clone_into(&mut options.identity.proxies);
    }
    if !options.enabled {
        return None;
    }
    match around.profiles.get_mut(&options.profile) {
        Some(policy) if options.mode == Mode::NativeMtls => show_certificates(policy),
        Some(_) => {}
        None => {
            let problem = format!("there is no profile `{}`", options.profile);
            settings.refuse("dialects.efgs.profile", problem);
        }
    }
    let told = !options.identity.proxies.is_empty() || around.asks_for_certificates;
    let problem = "must name where the proxy that ends the callers' TLS connects from (or \
                   server.identity.proxies), unless server.tls asks for certificates";
    settings.require(told, "dialects.efgs.proxies", problem);
    Some(Box::new(Efgs { options }))
}

/// The certificates that the profile would name to a proxy are shown in the handshake.
fn show_certificates(policy: &mut Policy) {
    for auth in &mut policy.auth {
        if let Auth::CertificateThumbprint(header) = auth {
            *auth = Auth::ClientCertificate(header.choice.clone());
        }
    }
}

/// The dialect as it was configured.
#[derive(Debug)]
struct Efgs {
    options: Options,
}

/// What all requests share.
#[derive(Clone)]
struct Service {
    engine: Engine,
    callers: Callers,
    tenant: TenantId,
    options: Arc<Options>,
}

#[async_trait]
impl Dialect for Efgs {
    fn name(&self) -> &'static str {
        "efgs"
    }

    fn tenant(&self) -> &str {
        &self.options.tenant
    }

    fn home(&self) -> Option<Home<'_>> {
        let Options { tenant, profile, .. } = &self.options;
        Some(Home { key: "dialects.efgs.tenant", tenant, profile: profile.as_str() })
    }

    async fn start(self: Box<Self>, services: Services) -> Result<Started, StartError> {
        let (Services { engine, callers, .. }, Self { options }) = (services, *self);
        answer::describe();
        let tenant = engine.ensure_tenant(&options.tenant).await?.id;
        if engine.catalog().topic(tenant, &options.topic).is_err() {
            let description = "New batches of diagnosis keys".to_owned();
            let attributes = vec!["batchTag".to_owned(), "date".to_owned()];
            let topic = options.topic.clone();
            engine.put_topic(tenant, topic, description, attributes, Labels::default()).await?;
        }
        let batches = batch::Announcements {
            tenant,
            topic: options.topic.clone(),
            profile: options.profile.clone(),
        };
        let check = move |engine: &Engine, publish| batches.check(engine, publish);
        engine.check_publishes(tenant, Arc::new(check));
        let all = format!("{}/callback", options.prefix);
        let options = Arc::new(options);
        let service = Arc::new(Service { engine, callers, tenant, options });
        let one = put(subscribe).delete(unsubscribe).fallback(wrong_method);
        let routes = Router::new()
            .route(&all, get(list).fallback(wrong_method))
            .route(&format!("{all}/"), get(list).fallback(wrong_method))
            .route(&format!("{all}/{{id}}"), one)
            .with_state(service);
        Ok(Started { routes, ..Started::default() })
    }
}

async fn wrong_method() -> Response {
    answer::count(
        "other",
        Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed").into(),
    )
}

async fn list(State(service): State<Arc<Service>>, request: Request<Body>) -> Response {
    let (parts, _) = request.into_parts();
    answer::count("list", service.list(&parts).unwrap_or_else(Refusal::into))
}

async fn subscribe(
    State(service): State<Arc<Service>>,
    id: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Response {
    let (parts, _) = request.into_parts();
    let answer = service.subscribe(&parts, id.ok().map(|Path(id)| id)).await;
    answer::count("subscribe", answer.unwrap_or_else(Refusal::into))
}

async fn unsubscribe(
    State(service): State<Arc<Service>>,
    id: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Response {
    let (parts, _) = request.into_parts();
    let answer = service.unsubscribe(&parts, id.ok().map(|Path(id)| id)).await;
    answer::count("unsubscribe", answer.unwrap_or_else(Refusal::into))
}

impl Service {
    /// The callbacks of the caller's country, oldest first.
    fn list(&self, parts: &Parts) -> Answer {
        if !accepts_json(&parts.headers) {
            let problem = "the answer is application/json, which Accept does not allow";
            return Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, problem));
        }
        let (_, country) = self.enter(parts)?;
        let mut views = self.engine.catalog().subscriptions(self.tenant);
        views.sort_by_key(|view| view.subscription.id);
        let items = views.iter().filter_map(|view| {
            let id = callback_of(view, &country)?;
            Some(serde_json::json!({"callbackId": id, "url": self.shown_url(view)}))
        });
        Ok(answer::json(StatusCode::OK, &items.collect()))
    }

    async fn subscribe(&self, parts: &Parts, id: Option<String>) -> Answer {
        let (service, country) = self.enter(parts)?;
        let id = self.callback_id(id)?;
        let answer = service.put(parts, &country, &id).await;
        answer.inspect_err(|refusal| refusal.log(&id, &country))
    }

    /// Makes or changes the callback of a known country.
    async fn put(&self, parts: &Parts, country: &str, id: &str) -> Answer {
        let name = self.name(country, id)?;
        let url = target(parts.uri.query().unwrap_or_default()).map_err(Refusal::from)?;
        if url.len() > self.options.url_length_max {
            return Err(Refusal::invalid_url("it is too long"));
        }
        let labels = BTreeMap::from([
            (COUNTRY.to_owned(), country.to_owned()),
            (CALLBACK_ID.to_owned(), id.to_owned()),
            (URL.to_owned(), url.clone()),
        ]);
        let labels = Labels::new(labels).map_err(|e| Refusal::invalid_url(&e.to_string()))?;
        for _ in 0..TRIES {
            let found = self.engine.catalog().subscription_named(self.tenant, &name);
            let done = match found {
                Some(view) if callback_of(&view, country) != Some(id) => {
                    warn!(
                        callback_id = id,
                        country, "a callback id of another country was refused"
                    );
                    let problem = "the callback id belongs to another country";
                    return Err(Refusal::new(StatusCode::FORBIDDEN, problem));
                }
                Some(view) => self.update(&view, url.clone(), labels.clone()).await,
                None => self.create(name.clone(), url.clone(), labels.clone()).await,
            };
            match done {
                Ok(()) => {
                    info!(callback_id = id, country, url, "a callback was subscribed");
                    return Ok(answer::empty());
                }
                // Somebody else was faster; what there is now decides.
                Err(Error::NotFound("subscription") | Error::AlreadyExists("subscription")) => {}
                Err(error) => return Err(Refusal::from_engine(&error)),
            }
        }
        Err(Refusal::from_engine(&Error::Busy(
            "the callback is being changed by others; try again",
        )))
    }

    async fn create(
        &self,
        name: SubscriptionName,
        url: String,
        labels: Labels,
    ) -> Result<(), Error> {
        let group = Group { topics: vec![self.options.topic.clone()], ..Group::default() };
        let new = NewSubscription {
            name: Some(name),
            labels,
            destination: url.into(),
            filter: Some(Filter { any_of: vec![group], ..Filter::default() }),
            profile: Some(self.options.profile.clone()),
            ..NewSubscription::default()
        };
        self.engine.create_subscription(self.tenant, new).await.map(drop)
    }

    async fn update(
        &self,
        view: &SubscriptionView,
        url: String,
        labels: Labels,
    ) -> Result<(), Error> {
        let id = view.subscription.id;
        // What somebody else remembers there stays.
        let mut all: BTreeMap<String, String> = view.subscription.labels.clone().into();
        all.extend(BTreeMap::from(labels));
        let labels = Labels::new(all)
            .map_err(|e| Error::Event { field: "labels", problem: e.to_string() })?;
        let change = SubscriptionChange {
            destination: Some(url.into()),
            labels: Some(labels),
            ..SubscriptionChange::default()
        };
        self.engine.update_subscription(self.tenant, id, change).await?;
        // What was wrong with the old URL need not be wrong with this one.
        if let SubscriptionStatus::Disabled { .. } = view.subscription.status {
            self.engine.resume_subscription(self.tenant, id).await?;
        }
        Ok(())
    }

    async fn unsubscribe(&self, parts: &Parts, id: Option<String>) -> Answer {
        let (service, country) = self.enter(parts)?;
        service.remove(&country, id).await
    }

    /// Removes the callback of a known country.
    async fn remove(&self, country: &str, id: Option<String>) -> Answer {
        let unknown = || {
            let problem = "there is no callback subscription with this id";
            Refusal::new(StatusCode::NOT_FOUND, problem)
        };
        // What could never be subscribed is not there.
        let id = self.callback_id(id).map_err(|_| unknown())?;
        let name = self.name(country, &id).map_err(|_| unknown())?;
        let found = self.engine.catalog().subscription_named(self.tenant, &name);
        let view =
            found.filter(|view| callback_of(view, country) == Some(&id)).ok_or_else(unknown)?;
        match self.engine.delete_subscription(self.tenant, view.subscription.id).await {
            Ok(()) => {
                info!(callback_id = id, country, "a callback was unsubscribed");
                Ok(answer::empty())
            }
            Err(Error::NotFound(_)) => Err(unknown()),
            Err(error) => Err(Refusal::from_engine(&error)),
        }
    }

    /// The URL as it was written, unless somebody changed it by another way since.
    fn shown_url<'v>(&self, view: &'v SubscriptionView) -> &'v str {
        let url = view.subscription.destination.url().unwrap_or_default();
        let is_same = |written: &&str| self.engine.check_url(written).is_ok_and(|now| now == url);
        view.subscription.labels.get(URL).filter(is_same).unwrap_or(url)
    }

    /// An id as the country chose it.
    fn callback_id(&self, id: Option<String>) -> Result<String, Refusal> {
        let max = self.options.callback_id_length_max;
        let fits = |id: &String| {
            !id.is_empty() && id.chars().count() <= max && !id.chars().any(char::is_control)
        };
        id.filter(fits).ok_or_else(|| {
            let problem = format!("the callback id must be 1 to {max} printable characters");
            Refusal::new(StatusCode::BAD_REQUEST, problem)
        })
    }

    /// The name of the subscription.
    fn name(&self, country: &str, id: &str) -> Result<SubscriptionName, Refusal> {
        let name = match self.options.callback_id_scope {
            CallbackIdScope::Global => SubscriptionName::new(id),
            CallbackIdScope::PerCountry => SubscriptionName::new(&format!("{country}/{id}")),
        };
        name.map_err(|e| Refusal::new(StatusCode::BAD_REQUEST, format!("the callback id: {e}")))
    }
}

/// The id of the callback that a subscription is, when it is one of this country.
fn callback_of<'v>(view: &'v SubscriptionView, country: &str) -> Option<&'v str> {
    let labels = &view.subscription.labels;
    let own = labels.get(COUNTRY).is_some_and(|own| own.eq_ignore_ascii_case(country));
    labels.get(CALLBACK_ID).filter(|_| own)
}
