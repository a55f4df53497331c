//! The pages, and the one table of them.

pub(crate) mod deliveries;
pub(crate) mod delivery;
pub(crate) mod events;
pub(crate) mod jobs;
pub(crate) mod overview;
pub(crate) mod show;
pub(crate) mod subscription;
pub(crate) mod subscriptions;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::response::Response;
use http::Method;

use crate::trouble::Trouble;
use crate::visit::Visit;

/// What a handler makes of a visit.
pub(crate) type Answer = Result<Response, Trouble>;
pub(crate) type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What a visitor needs for a page or a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// To look.
    Read,
    /// To change what a tenant has.
    Manage,
    /// To publish.
    Publish,
    /// To be an operator.
    Operator,
}

/// One page or form.
pub(crate) struct PageRoute {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) needs: Needs,
    pub(crate) handler: fn(Arc<Visit>) -> Answering,
}

macro_rules! routes {
    ($($method:ident $path:literal $needs:ident $handler:path;)+) => {
        &[$(PageRoute {
            method: Method::$method,
            path: $path,
            needs: Needs::$needs,
            handler: |visit| Box::pin($handler(visit)),
        }),+]
    };
}

/// Everything there is.
pub(crate) static ROUTES: &[PageRoute] = routes! {
    GET "/console/" Read overview::server;
    GET "/console/switch" Read overview::switch;
    GET "/console/t/{tenant}" Read overview::tenant;

    GET "/console/t/{tenant}/events" Read events::list;
    GET "/console/t/{tenant}/events/new" Publish events::new;
    POST "/console/t/{tenant}/events/new" Publish events::publish;
    GET "/console/t/{tenant}/events/{id}" Read events::one;
    GET "/console/t/{tenant}/events/{id}/payload" Read events::payload;
    POST "/console/t/{tenant}/events/{id}/republish" Publish events::republish;

    GET "/console/t/{tenant}/deliveries" Read deliveries::list;
    GET "/console/t/{tenant}/dead-letters" Read deliveries::dead;
    GET "/console/t/{tenant}/deliveries/{id}" Read delivery::one;
    POST "/console/t/{tenant}/deliveries/{id}/retry" Manage delivery::retry;
    POST "/console/t/{tenant}/deliveries/{id}/cancel" Manage delivery::cancel;
    POST "/console/t/{tenant}/deliveries/{id}/forget" Manage delivery::forget;
    GET "/console/t/{tenant}/dead-letters/redrive" Manage jobs::ask_redrive;
    POST "/console/t/{tenant}/dead-letters/redrive" Manage jobs::redrive;

    GET "/console/t/{tenant}/subscriptions" Read subscriptions::list;
    GET "/console/t/{tenant}/subscriptions/new" Manage subscriptions::new;
    POST "/console/t/{tenant}/subscriptions/new" Manage subscriptions::create;
    GET "/console/t/{tenant}/subscriptions/{id}" Read subscription::one;
    POST "/console/t/{tenant}/subscriptions/{id}/pause" Manage subscription::pause;
    POST "/console/t/{tenant}/subscriptions/{id}/resume" Manage subscription::resume;
    POST "/console/t/{tenant}/subscriptions/{id}/test" Manage subscription::test;
    POST "/console/t/{tenant}/subscriptions/{id}/rotate" Manage subscription::rotate;
    POST "/console/t/{tenant}/subscriptions/{id}/change" Manage subscription::change;
    POST "/console/t/{tenant}/subscriptions/{id}/try" Manage subscription::try_filter;
    POST "/console/t/{tenant}/subscriptions/{id}/replay" Manage subscription::replay;
    POST "/console/t/{tenant}/subscriptions/{id}/delete" Manage subscription::delete;

    GET "/console/t/{tenant}/jobs" Read jobs::list;
    GET "/console/t/{tenant}/jobs/{id}" Read jobs::one;
    POST "/console/t/{tenant}/jobs/{id}/cancel" Manage jobs::cancel;
    GET "/console/t/{tenant}/redrives/{id}" Read jobs::one_redrive;
    POST "/console/t/{tenant}/redrives/{id}/cancel" Manage jobs::cancel_redrive;
};
