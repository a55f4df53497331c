//! The pages, and the one table of them.

pub(crate) mod attention;
pub(crate) mod audit;
pub(crate) mod bulk;
pub(crate) mod cedros;
pub(crate) mod certificates;
pub(crate) mod dead_letters;
pub(crate) mod deliveries;
pub(crate) mod delivery;
pub(crate) mod efgs;
pub(crate) mod event_type_form;
pub(crate) mod event_types;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod figures;
pub(crate) mod filter_form;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod matching;
pub(crate) mod nodes;
pub(crate) mod notificaties;
pub(crate) mod overview;
pub(crate) mod pca_hub;
pub(crate) mod push;
pub(crate) mod realms;
pub(crate) mod show;
pub(crate) mod subscription;
pub(crate) mod subscriptions;
pub(crate) mod sure;
pub(crate) mod system;
pub(crate) mod systems;
pub(crate) mod tenant;
pub(crate) mod tenant_portal;
pub(crate) mod tenants;
pub(crate) mod topics;
pub(crate) mod typed;

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
    GET "/console/live" Operator crate::live::server;
    GET "/console/t/{tenant}/live" Read crate::live::tenant;
    GET "/console/t/{tenant}" Read overview::tenant;

    GET "/console/t/{tenant}/events" Read events::list;
    GET "/console/t/{tenant}/events/new" Publish events::new;
    POST "/console/t/{tenant}/events/new" Publish events::publish;
    GET "/console/t/{tenant}/events/{id}" Read events::one;
    GET "/console/t/{tenant}/events/{id}/payload" Read events::payload;
    POST "/console/t/{tenant}/events/{id}/republish" Publish events::republish;

    GET "/console/t/{tenant}/deliveries" Read deliveries::list;
    GET "/console/t/{tenant}/dead-letters" Read deliveries::dead;
    POST "/console/t/{tenant}/deliveries/selected" Manage bulk::selected;
    GET "/console/t/{tenant}/deliveries/matching" Manage matching::ask;
    POST "/console/t/{tenant}/deliveries/matching" Manage matching::start;
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
    GET "/console/t/{tenant}/subscriptions/{id}/filter" Manage filter_form::show;
    POST "/console/t/{tenant}/subscriptions/{id}/filter" Manage filter_form::send;
    POST "/console/t/{tenant}/subscriptions/{id}/replay" Manage subscription::replay;
    POST "/console/t/{tenant}/subscriptions/{id}/delete" Manage subscription::delete;

    GET "/console/t/{tenant}/jobs" Read jobs::list;
    GET "/console/t/{tenant}/jobs/{id}" Read jobs::one;
    POST "/console/t/{tenant}/jobs/{id}/cancel" Manage jobs::cancel;
    GET "/console/t/{tenant}/redrives/{id}" Read jobs::one_redrive;
    POST "/console/t/{tenant}/redrives/{id}/cancel" Manage jobs::cancel_redrive;

    GET "/console/t/{tenant}/certificates" Read certificates::list;
    GET "/console/t/{tenant}/certificates/new" Manage certificates::new;
    POST "/console/t/{tenant}/certificates/new" Manage certificates::create;
    GET "/console/t/{tenant}/certificates/{id}" Read certificates::one;
    POST "/console/t/{tenant}/certificates/{id}/rotate" Manage certificates::rotate;
    POST "/console/t/{tenant}/certificates/{id}/revoke" Manage certificates::revoke;
    POST "/console/t/{tenant}/certificates/{id}/delete" Manage certificates::delete;

    GET "/console/t/{tenant}/topics" Read topics::list;
    POST "/console/t/{tenant}/topics" Manage topics::create;
    GET "/console/t/{tenant}/topics/{name}" Read topics::one;
    POST "/console/t/{tenant}/topics/{name}" Manage topics::change;

    GET "/console/t/{tenant}/notificaties" Read notificaties::show;
    POST "/console/t/{tenant}/notificaties" Operator notificaties::change;
    GET "/console/t/{tenant}/efgs" Read efgs::show;
    GET "/console/t/{tenant}/cedros" Read cedros::show;
    GET "/console/t/{tenant}/pca-hub" Read pca_hub::show;

    GET "/console/tenants" Operator tenants::list;
    GET "/console/tenants/new" Operator tenants::new;
    POST "/console/tenants/new" Operator tenants::create;
    GET "/console/tenants/{id}" Operator tenant::one;
    POST "/console/tenants/{id}" Operator tenant::change;
    POST "/console/tenants/{id}/delete" Operator tenant::delete;
    POST "/console/tenants/{id}/portal-link" Operator tenant_portal::create;

    GET "/console/realms" Operator realms::list;
    POST "/console/realms" Operator realms::create;
    GET "/console/realms/{name}" Operator realms::one;
    POST "/console/realms/{name}" Operator realms::change;
    POST "/console/realms/{name}/delete" Operator realms::delete;

    GET "/console/keys" Operator keys::list;
    GET "/console/keys/new" Operator keys::new;
    POST "/console/keys/new" Operator keys::create;
    POST "/console/keys/{id}/revoke" Operator keys::revoke;

    GET "/console/event-types" Read event_types::list;
    GET "/console/event-types/new" Manage event_type_form::new;
    POST "/console/event-types/new" Manage event_type_form::create;
    GET "/console/event-types/import" Manage event_type_form::paste;
    POST "/console/event-types/import" Manage event_type_form::import;
    GET "/console/event-types/{realm}/{name}" Read event_types::one;
    GET "/console/event-types/{realm}/{name}/change" Manage event_type_form::show;
    POST "/console/event-types/{realm}/{name}/change" Manage event_type_form::change;
    POST "/console/event-types/{realm}/{name}/mark" Manage event_types::mark;
    POST "/console/event-types/{realm}/{name}/delete" Manage event_types::delete;

    GET "/console/audit" Read audit::list;

    GET "/console/push" Operator push::show;
    POST "/console/push/find" Operator push::find;
    GET "/console/push/agents/{id}" Operator push::agent;

    GET "/console/system" Operator system::show;
    GET "/console/system/config" Operator nodes::config;
    GET "/console/system/explain" Operator explain::show;
    POST "/console/system/sessions/{id}/end" Operator system::end;
};
