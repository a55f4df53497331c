//! The table of all routes. The router, the OpenAPI document and the tests are made from it, so that
//! no route can be without a scope or missing from the documentation.

use std::future::Future;
use std::pin::Pin;

use http::Method;
use posthorn_domain::Scope;

use crate::call::{Answer, Call};
use crate::handlers::{
    audit, bulk, certificates, clients, deliveries, destinations, event_types, events, expunge,
    filters, handshake, jobs, keys, notificaties, open, portal, profiles, publish, push, realms,
    redrives, series, sessions, stream, subscriptions, system, tenants, topics,
};

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody, without a key.
    Open,
    /// Every key of the tenant, and operators.
    Key,
    /// Keys with this scope, and operators.
    Scope(Scope),
    /// The same, for what belongs to a realm: keys of tenants look, keys of the realm change.
    Realm(Scope),
}

/// A handler on the heap: one shape for all of them.
type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Answer> + Send>>;

/// One route.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, with `{id}` or `{name}` where something is named.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
    /// Its name in the OpenAPI document and in metrics.
    pub operation: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// The query parameters it knows; all others are refused.
    pub query: &'static [&'static str],
    /// The schema of its body, when it takes one.
    pub body: Option<&'static str>,
    /// The status of success.
    pub status: u16,
    /// The schema of its answer; none when the answer has no JSON body.
    pub answer: Option<&'static str>,
    pub(crate) handler: Handler,
}

const fn route(
    method: Method,
    path: &'static str,
    access: Access,
    operation: &'static str,
    summary: &'static str,
    handler: Handler,
) -> Route {
    Route {
        method,
        path,
        access,
        operation,
        summary,
        query: &[],
        body: None,
        status: 200,
        answer: None,
        handler,
    }
}

impl Route {
    const fn query(mut self, query: &'static [&'static str]) -> Self {
        self.query = query;
        self
    }

    const fn takes(mut self, schema: &'static str) -> Self {
        self.body = Some(schema);
        self
    }

    const fn gives(mut self, status: u16, schema: &'static str) -> Self {
        self.status = status;
        self.answer = Some(schema);
        self
    }

    const fn gives_nothing(mut self) -> Self {
        self.status = 204;
        self
    }
}

const OPEN: Access = Access::Open;
const KEY: Access = Access::Key;
const PUBLISH: Access = Access::Scope(Scope::Publish);
const READ: Access = Access::Scope(Scope::Read);
const MANAGE: Access = Access::Scope(Scope::Manage);
const REALM_READ: Access = Access::Realm(Scope::Read);
const REALM_MANAGE: Access = Access::Realm(Scope::Manage);
const OPERATOR: Access = Access::Scope(Scope::Operator);

const PAGE: &[&str] = &["cursor", "limit"];

macro_rules! routes {
    ($($method:ident $path:literal $access:ident $operation:literal $summary:literal
       $handler:path $(, $more:ident($($argument:expr),*))*;)*) => {
        /// Every route there is.
        pub static ROUTES: [Route; [$($operation),*].len()] = [$(
            route(Method::$method, $path, $access, $operation, $summary, |call| {
                Box::pin($handler(call))
            })$(.$more($($argument),*))*,
        )*];
    };
}

routes! {
    POST "/v1/events" PUBLISH "publishEvent" "Publish one event" publish::one,
        query(&["topic"]), takes("NewEvent"), gives(202, "Published");
    POST "/v1/events/batch" PUBLISH "publishEvents" "Publish up to 1,000 events" publish::batch,
        query(&["topic"]), takes("NewEvents"), gives(200, "PublishedItems");
    OPTIONS "/v1/events" OPEN "validateSender"
        "Ask whether a sender may publish (handshake of the CloudEvents webhook specification)"
        handshake::one, gives_nothing();
    OPTIONS "/v1/events/batch" OPEN "validateBatchSender"
        "Ask whether a sender may publish batches (the same handshake)"
        handshake::batch, gives_nothing();
    GET "/v1/events" READ "listEvents" "List events, newest first" events::list,
        query(&["topic", "type", "attribute", "key", "publisher_id", "from", "until", "dead_letters", "unwanted",
                "order", "cursor", "limit"]), gives(200, "EventPage");
    GET "/v1/events/{id}" READ "explainEvent" "Get an event and its deliveries" events::one,
        gives(200, "ExplainedEvent");
    POST "/v1/events/{id}/republish" PUBLISH "republishEvent"
        "Publish an event again, to all subscriptions that match now" events::republish,
        gives(202, "Published");

    POST "/v1/events/{id}/deliver" MANAGE "deliverEvent"
        "Deliver an event to a subscription, whatever its filter" jobs::deliver,
        takes("DeliverTo"), gives(201, "Job");

    DELETE "/v1/events/{id}/payload" MANAGE "expungeEvent"
        "Remove the payload of an event for good; the event and its deliveries stay" expunge::event,
        query(&["responses", "cancel"]), gives(200, "Event");
    POST "/v1/events/expunge" MANAGE "expungeEvents"
        "Remove the payloads of many events for good, at a bounded rate" expunge::many,
        takes("NewExpunge"), gives(201, "Job");
    POST "/v1/events/expunge/count" MANAGE "countExpunge"
        "Count the events whose payload would be removed; nothing is changed" expunge::count,
        takes("NewExpunge"), gives(200, "ExpungeCount");

    GET "/v1/jobs" READ "listJobs" "List jobs, newest first" jobs::list,
        query(&["order", "cursor", "limit"]), gives(200, "JobPage");
    GET "/v1/jobs/{id}" READ "getJob" "Get a job and its progress" jobs::one, gives(200, "Job");
    POST "/v1/jobs/{id}/cancel" MANAGE "cancelJob"
        "Stop a job; what it has done stays done" jobs::cancel, gives(200, "Job");

    GET "/v1/topics" READ "listTopics" "List topics by name" topics::list,
        query(PAGE), gives(200, "TopicPage");
    GET "/v1/topics/{name}" READ "getTopic" "Get a topic" topics::one, gives(200, "Topic");
    PUT "/v1/topics/{name}" MANAGE "putTopic" "Create or change a topic" topics::put,
        takes("TopicContents"), gives(200, "Topic");
    DELETE "/v1/topics/{name}" MANAGE "deleteTopic" "Delete a topic; its events are kept"
        topics::delete, gives_nothing();

    POST "/v1/subscriptions" MANAGE "createSubscription" "Create a subscription"
        subscriptions::create, takes("NewSubscription"), gives(201, "CreatedSubscription");
    GET "/v1/subscriptions" READ "listSubscriptions" "List subscriptions, oldest first"
        subscriptions::list, query(&["name", "cursor", "limit"]),
        gives(200, "SubscriptionPage");
    GET "/v1/subscriptions/{id}" READ "getSubscription" "Get a subscription"
        subscriptions::one, gives(200, "Subscription");
    GET "/v1/subscriptions/{id}/health" READ "getSubscriptionHealth"
        "Get how a subscription is doing: breaker, concurrency, rate, lanes, the last hour"
        subscriptions::health, gives(200, "SubscriptionHealth");
    PATCH "/v1/subscriptions/{id}" MANAGE "updateSubscription" "Change a subscription"
        subscriptions::update, takes("SubscriptionChange"), gives(200, "Subscription");
    DELETE "/v1/subscriptions/{id}" MANAGE "deleteSubscription"
        "Delete a subscription; no further attempts start"
        subscriptions::delete, gives_nothing();
    POST "/v1/subscriptions/{id}/pause" MANAGE "pauseSubscription"
        "Pause attempts; events keep matching" subscriptions::pause, gives(200, "Subscription");
    POST "/v1/subscriptions/{id}/resume" MANAGE "resumeSubscription"
        "Resume attempts" subscriptions::resume, gives(200, "Subscription");
    POST "/v1/subscriptions/{id}/test" MANAGE "testSubscription"
        "Send one test event now" subscriptions::test, takes("SubscriptionTest"),
        gives(200, "TestOutcome");
    POST "/v1/subscriptions/{id}/rotate-secret" MANAGE "rotateSecret"
        "Rotate a secret; the old one keeps signing for a while"
        subscriptions::rotate_secret, takes("SecretRotation"), gives(200, "RotatedSecret");
    POST "/v1/subscriptions/{id}/replay" MANAGE "replay"
        "Deliver events of the past to a subscription, at a bounded rate" jobs::replay,
        takes("NewReplay"), gives(201, "Job");
    POST "/v1/subscriptions/{id}/replay/count" MANAGE "countReplay"
        "Count what a replay would deliver; nothing is changed" jobs::count_replay,
        takes("NewReplay"), gives(200, "ReplayCount");
    POST "/v1/filters/test" READ "testFilter"
        "Find out whether a filter matches an event, and why not; changes nothing" filters::test,
        takes("FilterTest"), gives(200, "FilterOutcome");
    GET "/v1/push/key" KEY "getPushKey"
        "Get the application server key that browsers subscribe with"
        destinations::key, gives(200, "PushKey");

    GET "/v1/push" OPERATOR "getPush" "Get how many agents and messages Web Push has, and where agents are connected"
        push::overview, gives(200, "PushOverview");
    GET "/v1/push/agents/{id}" OPERATOR "getPushAgent"
        "Get an agent of Web Push with its channels, and how many messages wait for it" push::agent,
        gives(200, "PushAgent");
    POST "/v1/push/agents/find" OPERATOR "findPushAgent" "Find the agent that an endpoint belongs to"
        push::find, takes("PushEndpoint"), gives(200, "PushAgent");

    GET "/v1/profiles" READ "listProfiles" "List the profiles that subscriptions can use"
        profiles::list, gives(200, "ProfileList");
    GET "/v1/profiles/{name}" READ "getProfile" "Get a profile" profiles::one,
        gives(200, "Profile");
    PUT "/v1/profiles/{name}" MANAGE "putProfile"
        "Create or change a profile of the tenant; its subscriptions change at once" profiles::put,
        takes("ProfileContents"), gives(200, "Profile");
    DELETE "/v1/profiles/{name}" MANAGE "deleteProfile"
        "Delete the tenant's profile, or its changes to a configured profile" profiles::delete, gives_nothing();

    GET "/v1/clients" READ "listClients" "List the clients of dialects that were created through \
                                          the API"
        clients::list, gives(200, "ClientList");
    GET "/v1/clients/{name}" READ "getClient" "Get a client; its secret is never shown"
        clients::one, gives(200, "Client");
    PUT "/v1/clients/{name}" OPERATOR "putClient"
        "Create or change a client of a dialect; absent fields stay unchanged" clients::put,
        takes("ClientContents"), gives(200, "Client");
    DELETE "/v1/clients/{name}" OPERATOR "deleteClient"
        "Delete a client, or the changes to a configured client" clients::delete, gives_nothing();

    PUT "/v1/notificaties/setup" OPERATOR "applyNotificatiesSetup"
        "Apply a setup file of the Notificaties API; idempotent" notificaties::setup,
        takes("NotificatiesSetup"), gives(200, "NotificatiesApplied");
    GET "/v1/notificaties/settings" OPERATOR "getNotificatiesSettings"
        "Get the four settings of deliveries of the Notificaties API" notificaties::settings,
        gives(200, "NotificatiesSettings");
    PATCH "/v1/notificaties/settings" OPERATOR "updateNotificatiesSettings"
        "Change settings of deliveries of the Notificaties API; absent ones stay unchanged"
        notificaties::change_settings, takes("NotificatiesSettingsChange"),
        gives(200, "NotificatiesSettings");
    POST "/v1/notificaties/resend" OPERATOR "resendNotificaties"
        "Send messages of the Notificaties API again, at a bounded rate" notificaties::resend,
        takes("NotificatiesResend"), gives(201, "Job");
    POST "/v1/notificaties/resend/count" OPERATOR "countNotificatiesResend"
        "Count what would be sent again; nothing is changed" notificaties::count_resend,
        takes("NotificatiesResend"), gives(200, "ReplayCount");

    GET "/v1/deliveries" READ "listDeliveries" "List deliveries, newest first" deliveries::list,
        query(&["event", "subscription", "state", "reason", "status", "failure", "from", "until", "order",
                "cursor", "limit"]), gives(200, "DeliveryPage");
    GET "/v1/deliveries/{id}" READ "getDelivery" "Get a delivery with its attempts"
        deliveries::one, gives(200, "DeliveryWithAttempts");
    POST "/v1/deliveries/resend" MANAGE "resendDeliveries"
        "Deliver again what failed, or what was delivered, at a bounded rate" jobs::resend,
        takes("NewReplay"), gives(201, "Job");
    POST "/v1/deliveries/resend/count" MANAGE "countResend"
        "Count what would be delivered again; nothing is changed" jobs::count_resend,
        takes("NewReplay"), gives(200, "ReplayCount");
    POST "/v1/deliveries/bulk" MANAGE "createBulk"
        "Cancel, delete or retry all deliveries that match, at a bounded rate" bulk::create,
        takes("NewBulk"), gives(201, "Job");
    POST "/v1/deliveries/bulk/count" MANAGE "countBulk"
        "Count the deliveries that match; nothing is changed" bulk::count,
        takes("NewBulk"), gives(200, "BulkCount");
    GET "/v1/deliveries/{id}/timeline" READ "getDeliveryTimeline"
        "Get what happened to a delivery, step by step, and what it waits for"
        deliveries::timeline, gives(200, "Timeline");
    GET "/v1/deliveries/{id}/request" READ "getDeliveryRequest"
        "Get the request that the last failed attempt sent, or that an attempt would send now, without secrets"
        deliveries::request, query(&["rebuild"]), gives(200, "RequestPreview");
    POST "/v1/deliveries/{id}/retry" MANAGE "retryDelivery"
        "Retry a delivery now, ended or waiting; its attempts and age count from zero again"
        deliveries::retry, takes("DeliveryRetry"), gives(200, "Delivery");
    POST "/v1/deliveries/{id}/cancel" MANAGE "cancelDelivery" "Cancel an unfinished delivery"
        deliveries::cancel, gives(200, "Delivery");
    DELETE "/v1/deliveries/{id}" MANAGE "forgetDelivery"
        "Delete a delivery and its attempts; an unfinished one is cancelled"
        deliveries::forget, gives_nothing();

    DELETE "/v1/deliveries/{id}/attempts/{number}/response" MANAGE "expungeResponse"
        "Remove the response to an attempt for good; the attempt stays" expunge::response,
        gives(200, "DeliveryWithAttempts");

    GET "/v1/attempts" READ "listAttempts" "List attempts of all deliveries, newest first"
        deliveries::list_attempts,
        query(&["event", "subscription", "status", "failure", "trigger", "from", "until", "order", "cursor",
                "limit"]), gives(200, "AttemptPage");

    GET "/v1/dead-letters" READ "listDeadLetters" "List dead letters, newest first"
        deliveries::list_dead,
        query(&["subscription", "reason", "status", "failure", "from", "until", "order", "cursor", "limit"]),
        gives(200, "DeliveryPage");
    GET "/v1/dead-letters/{id}" READ "getDeadLetter" "Get a dead letter with its attempts"
        deliveries::one_dead, gives(200, "DeliveryWithAttempts");
    POST "/v1/dead-letters/{id}/retry" MANAGE "retryDeadLetter"
        "Retry a dead letter; its attempts and age count from zero again"
        deliveries::retry_dead, takes("DeliveryRetry"), gives(200, "Delivery");

    POST "/v1/redrives" MANAGE "createRedrive" "Retry many dead letters at a bounded rate"
        redrives::create, takes("NewRedrive"), gives(201, "Redrive");
    GET "/v1/redrives" READ "listRedrives" "List redrives, newest first" redrives::list,
        query(PAGE), gives(200, "RedrivePage");
    GET "/v1/redrives/{id}" READ "getRedrive" "Get a redrive and its progress" redrives::one,
        gives(200, "Redrive");
    POST "/v1/redrives/{id}/cancel" MANAGE "cancelRedrive"
        "Stop a redrive; deliveries it already retried continue" redrives::cancel, gives(200, "Redrive");

    POST "/v1/certificates" MANAGE "createCertificate" "Register a certificate"
        certificates::create, takes("NewCertificate"), gives(201, "Certificate");
    GET "/v1/certificates" READ "listCertificates" "List certificates, oldest first"
        certificates::list, query(PAGE), gives(200, "CertificatePage");
    GET "/v1/certificates/{id}" READ "getCertificate" "Get a certificate" certificates::one,
        gives(200, "Certificate");
    POST "/v1/certificates/{id}/rotate" MANAGE "rotateCertificate"
        "Replace certificate and key without a restart"
        certificates::rotate, takes("CertificateRotation"), gives(200, "Certificate");
    POST "/v1/certificates/{id}/revoke" MANAGE "revokeCertificate"
        "Revoke a certificate permanently" certificates::revoke, gives(200, "Certificate");
    DELETE "/v1/certificates/{id}" MANAGE "deleteCertificate"
        "Delete a certificate and its key" certificates::delete, gives_nothing();

    GET "/v1/realms" OPERATOR "listRealms" "List realms by name" realms::list,
        query(PAGE), gives(200, "RealmPage");
    GET "/v1/realms/{name}" OPERATOR "getRealm" "Get a realm" realms::one, gives(200, "Realm");
    PUT "/v1/realms/{name}" OPERATOR "putRealm" "Create or change a realm" realms::put,
        takes("RealmContents"), gives(200, "Realm");
    DELETE "/v1/realms/{name}" OPERATOR "deleteRealm" "Delete an empty realm" realms::delete,
        gives_nothing();

    GET "/v1/event-types" REALM_READ "listEventTypes" "List event types by name" event_types::list,
        query(&["realm", "group", "archived", "prefix", "cursor", "limit"]),
        gives(200, "EventTypePage");
    GET "/v1/event-types/{name}" REALM_READ "getEventType" "Get an event type" event_types::one,
        query(&["realm"]), gives(200, "EventType");
    PUT "/v1/event-types/{name}" REALM_MANAGE "putEventType" "Create or change an event type"
        event_types::put, query(&["realm"]), takes("EventTypeContents"), gives(200, "EventType");
    DELETE "/v1/event-types/{name}" REALM_MANAGE "deleteEventType"
        "Delete an event type; events of it are kept" event_types::delete, query(&["realm"]),
        gives_nothing();
    POST "/v1/event-types/import" REALM_MANAGE "importEventTypes"
        "Create and change event types from the webhooks of an OpenAPI document" event_types::import,
        query(&["realm"]), takes("EventTypeImport"), gives(200, "EventTypesImported");

    GET "/v1/tenants" OPERATOR "listTenants" "List tenants, oldest first" tenants::list,
        query(&["realm", "external_id", "name_prefix", "cursor", "limit"]), gives(200, "TenantPage");
    POST "/v1/tenants" OPERATOR "createTenant" "Create a tenant" tenants::create,
        takes("NewTenant"), gives(201, "Tenant");
    GET "/v1/tenants/{id}" OPERATOR "getTenant" "Get a tenant" tenants::one,
        gives(200, "Tenant");
    PATCH "/v1/tenants/{id}" OPERATOR "updateTenant" "Change a tenant; absent fields stay unchanged"
        tenants::update, takes("TenantChange"), gives(200, "Tenant");
    DELETE "/v1/tenants/{id}" OPERATOR "deleteTenant"
        "Delete a tenant with everything it has; no further attempts start" tenants::delete,
        gives(202, "Job");
    GET "/v1/tenants/{id}/deletion" OPERATOR "getTenantDeletion"
        "Get the job that deletes a tenant, and its progress" tenants::deletion, gives(200, "Job");
    GET "/v1/tenants/{id}/export" OPERATOR "exportTenant"
        "Get everything a tenant has, as lines of JSON, without secrets" tenants::export,
        gives(200, "ExportedLine");
    GET "/v1/keys" OPERATOR "listKeys" "List keys, oldest first" keys::list,
        query(PAGE), gives(200, "KeyPage");
    POST "/v1/keys" OPERATOR "createKey" "Create a key; it is shown only once" keys::create,
        takes("NewKey"), gives(201, "CreatedKey");
    GET "/v1/keys/{id}" OPERATOR "getKey" "One key, without its secret half" keys::one,
        gives(200, "Key");
    DELETE "/v1/keys/{id}" OPERATOR "revokeKey" "Revoke a key" keys::revoke, gives_nothing();

    GET "/v1/audit" REALM_READ "listAudit" "List who changed what, newest first" audit::list,
        query(&["tenant", "realm", "actor", "action", "object", "from", "until", "order", "cursor", "limit"]),
        gives(200, "AuditPage");

    POST "/v1/portal/links" MANAGE "createPortalLink"
        "Create a link into the portal of a tenant, for one of its customers; it works once"
        portal::create_link, takes("NewPortalLink"), gives(201, "CreatedPortalLink");
    GET "/v1/sessions" MANAGE "listSessions"
        "List sessions of console and portal and links that were not redeemed, newest first"
        sessions::list, query(&["kind", "label", "order", "cursor", "limit"]),
        gives(200, "SessionPage");
    DELETE "/v1/sessions" MANAGE "endSessions" "End all sessions of a tenant with a label"
        sessions::end_labelled, query(&["label"]), gives(200, "EndedSessions");
    DELETE "/v1/sessions/{id}" MANAGE "endSession" "End a session, or take a portal link back"
        sessions::end, gives_nothing();

    GET "/v1/nodes" OPERATOR "listNodes" "List nodes with their shards, and when each was heard of last"
        system::nodes, gives(200, "NodeList");
    GET "/v1/config" OPERATOR "getConfig" "Get the configuration of this node, without secrets"
        system::config, gives(200, "ConfigList");

    POST "/v1/resume" OPERATOR "resume" "End the hold of this node: what is due is sent from now on"
        system::resume, gives(200, "Resumed");

    POST "/v1/seal/rotate" OPERATOR "rotateSeal"
        "Seal the next batch of stored secrets with the current seal key" keys::rotate_seal,
        gives(200, "SealRotation");

    GET "/v1/stats" READ "getStats" "Get the number of events and deliveries" events::stats,
        gives(200, "Stats");
    GET "/v1/stream" READ "stream"
        "Follow events and attempts as they happen (server-sent events)" stream::open,
        query(&["kind", "event", "topic", "type", "attribute", "key", "publisher_id", "subscription", "state",
                "status", "failure", "trigger"]);
    GET "/v1/metrics/series" REALM_READ "getSeries"
        "Get what happened in the past, by the minute or by the hour" series::get,
        query(&["scope", "realm", "id", "from", "until", "step"]), gives(200, "Series");

    GET "/jwks/{id}" OPEN "jwks" "Get the public keys that verify a subscription's signatures"
        open::jwks, gives(200, "JwkSet");
    GET "/healthz" OPEN "healthz" "Liveness: 200 while the process runs" open::health,
        gives(200, "Status");
    GET "/readyz" OPEN "readyz" "Readiness: 200 when the store answers and the engine runs" open::ready,
        gives(200, "Status");
    GET "/metrics" OPEN "metrics" "Metrics in the Prometheus text format" open::metrics;
    GET "/openapi.json" OPEN "openapi" "This document" open::openapi, gives(200, "Any");
}
