//! The admin endpoints of Cedros Pay's webhooks, below `/admin/webhooks`.
//!
//! # Theory of operation
//! A *webhook* is a delivery of the caller's tenant, under the delivery's own id, which receivers know
//! from `X-Cedros-Delivery-ID`. Nothing is kept beside it: what the endpoints tell is read from the
//! store, and what they change goes through the engine, so that every node gives the same answers. A
//! dead letter is a webhook that failed; it is shown both as such and below `/dlq`.
//!
//! Callers show a key of this server, as a bearer token or in `X-API-Key`. Headers are not shown: the admin
//! of a queue does not need what opens the receiver. Pages of other origins may call from a browser only
//! where the operator has named their origin; `cors.rs` says so to the browser.
//!
//! # What it must not know
//! SQL, sockets, schedules.
//!
//! # Where to start
//! `Cedros::start`; `webhook.rs` for how a delivery becomes a webhook.

mod access;
mod cors;
mod failure;
mod handlers;
mod webhook;

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, delete, get, post};
use http::{Method, Request};
use posthorn_access::Callers;
use posthorn_domain::{Scope, TenantId};
use posthorn_engine::Engine;
use serde::{Deserialize, Deserializer, de::Error};
use url::Url;

use crate::{Around, Dialect, Home, Services, Settings, StartError, Started};
use failure::Failure;

/// Knobs: the section `dialects.cedros` of the configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Whether they are there at all.
    enabled: bool,
    /// The origins of pages that may call from a browser, such as `https://admin.example.com`.
    #[serde(deserialize_with = "origins")]
    origins: Vec<String>,
}

/// What a browser sends, and nothing that only looks like it.
fn origins<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let origins = Vec::<String>::deserialize(deserializer)?;
    for origin in &origins {
        let read = Url::parse(origin).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        if read.is_none_or(|url| url.origin().ascii_serialization() != *origin) {
            return Err(Error::custom(format_args!(
                "`{origin}` is not an origin: write scheme, host and port as a browser does, such as \
                 https://admin.example.com, with nothing behind them"
            )));
        }
    }
    Ok(origins)
}

/// The endpoints, when they are on or there are callbacks to see.
pub(crate) fn configured(
    settings: &mut impl Settings,
    around: &Around<'_>,
) -> Option<Box<dyn Dialect>> {
    let options: Options = settings.at("dialects.cedros");
    let (tenant, profile) = (around.callbacks_tenant.clone(), around.callbacks_profile);
    (options.enabled || profile.is_some())
        .then(|| Box::new(Cedros { tenant, profile, origins: options.origins }) as Box<dyn Dialect>)
}

/// The endpoints as they were configured.
#[derive(Debug)]
struct Cedros {
    /// The tenant of operators that name none; it is made when it is not there.
    tenant: String,
    /// The profile of the callbacks that go to that tenant, when there are any.
    profile: Option<&'static str>,
    origins: Vec<String>,
}

/// What all requests share.
#[derive(Clone)]
struct Service {
    engine: Engine,
    callers: Callers,
    tenant: TenantId,
}

#[async_trait]
impl Dialect for Cedros {
    fn name(&self) -> &'static str {
        "cedros"
    }

    fn tenant(&self) -> &str {
        &self.tenant
    }

    fn home(&self) -> Option<Home<'_>> {
        let home = |profile| Home { key: "callbacks.tenant", tenant: &self.tenant, profile };
        self.profile.map(home)
    }

    async fn start(self: Box<Self>, services: Services) -> Result<Started, StartError> {
        let Services { engine, callers, .. } = services;
        let tenant = engine.ensure_tenant(&self.tenant).await?.id;
        let origins = Arc::new(self.origins);
        let service = Arc::new(Service { engine, callers, tenant });
        let wrap = |scope: Scope, act: Act| {
            let service = Arc::clone(&service);
            move |request: Request<Body>| serve(service, scope, act, request)
        };
        let (read, manage) = (Scope::Read, Scope::Manage);
        let only = |router: MethodRouter| router.fallback(wrong_method);
        // The word `dlq` stands before ids: they all begin with `dlv_`.
        let routes = Router::new()
            .route("/admin/webhooks", only(get(wrap(read, Act::List))))
            .route("/admin/webhooks/dlq", only(get(wrap(read, Act::ListDead))))
            .route("/admin/webhooks/dlq/{id}", only(delete(wrap(manage, Act::DeleteDead))))
            .route("/admin/webhooks/dlq/{id}/retry", only(post(wrap(manage, Act::RetryDead))))
            .route(
                "/admin/webhooks/{id}",
                only(get(wrap(read, Act::Get)).delete(wrap(manage, Act::Delete))),
            )
            .route("/admin/webhooks/{id}/retry", only(post(wrap(manage, Act::Retry))))
            .layer(axum::middleware::from_fn(move |request, next| {
                cors::answer(Arc::clone(&origins), request, next)
            }));
        Ok(Started { routes, ..Started::default() })
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    List,
    Get,
    Retry,
    Delete,
    ListDead,
    RetryDead,
    DeleteDead,
}

async fn serve(service: Arc<Service>, scope: Scope, act: Act, request: Request<Body>) -> Response {
    let (mut parts, _) = request.into_parts();
    let (service, caller) = match access::admit(&service, scope, &parts) {
        Ok(admitted) => admitted,
        Err(failure) => return failure.into_response(),
    };
    let answer = match act {
        Act::List => handlers::list(&service, &caller, &parts).await,
        Act::ListDead => handlers::list_dead(&service, &caller, &parts).await,
        Act::Get => handlers::get(&service, &caller, &mut parts).await,
        Act::Retry => handlers::retry(&service, &caller, &mut parts, false).await,
        Act::RetryDead => handlers::retry(&service, &caller, &mut parts, true).await,
        Act::Delete => handlers::delete(&service, &caller, &mut parts, false).await,
        Act::DeleteDead => handlers::delete(&service, &caller, &mut parts, true).await,
    };
    answer.unwrap_or_else(Failure::into_response)
}

async fn wrong_method(method: Method) -> Response {
    Failure::WrongMethod(method).into_response()
}
