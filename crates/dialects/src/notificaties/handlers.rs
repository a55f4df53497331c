//! What each path does.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use posthorn_domain::TenantId;
use posthorn_engine::{Engine, Error, Publish, Published, SubscriptionChange, SubscriptionView};
use serde_json::Value;
use tracing::info;

use super::abonnement::{Abonnement, filtered_names, subscription_name};
use super::access::Client;
use super::authentication::ways_of;
use super::authorizations;
use super::cloudevent::CloudEvent;
use super::dispatch::{Answer, Call, created, json};
use super::incoming::{NO_SOURCE, wants_cloudevent};
use super::kanaal::Kanaal;
use super::notificatie::{CLOUDEVENT, JSON, Notificatie, unknown_kanaal};
use super::probe::{Callback, check_documentation};
use super::problem::{Problem, bare, plain};
use super::uuid::Uuid;
use super::{Service, seconds};

/// How often a change is merged anew when others change the same thing at the same time.
const TRIES: usize = 5;

fn ok(value: &Value) -> Answer {
    Ok(json(StatusCode::OK, value))
}

fn nothing() -> Answer {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

// Kanalen.

pub(super) fn list_kanalen(call: &Call) -> Answer {
    let query = call.query(&["naam"])?;
    let wanted = query.iter().find(|(_, naam)| !naam.is_empty()).map(|(_, naam)| naam);
    let all = Kanaal::all(&call.service.engine, call.service.tenant);
    let fitting = all.iter().filter(|kanaal| wanted.is_none_or(|naam| kanaal.naam == *naam));
    ok(&fitting.map(|kanaal| kanaal.view(&call.base)).collect())
}

pub(super) async fn read_kanaal(call: Call, uuid: Uuid) -> Answer {
    ok(&found_kanaal(&call.service, uuid).await?.view(&call.base))
}

/// What is there. What this node does not know may have been made on another a moment ago.
async fn known<T>(service: &Service, find: impl Fn() -> Option<T>) -> Result<Option<T>, Problem> {
    if let Some(found) = find() {
        return Ok(Some(found));
    }
    service.engine.refresh_catalog().await?;
    Ok(find())
}

async fn found_kanaal(service: &Service, uuid: Uuid) -> Result<Kanaal, Problem> {
    let find = || Kanaal::found(&service.engine, service.tenant, uuid);
    known(service, find).await?.ok_or_else(Problem::not_found)
}

async fn named_kanaal(service: &Service, naam: &str) -> Result<Option<Kanaal>, Problem> {
    known(service, || Kanaal::named(&service.engine, service.tenant, naam)).await
}

pub(super) async fn create_kanaal(mut call: Call) -> Answer {
    let (_, document) = call.document(JSON).await?;
    let service = &call.service;
    let (engine, tenant) = (&service.engine, service.tenant);
    let kanaal = Kanaal::read(tenant, &document, None, false)?;
    let taken = || {
        let reason = format!("There is a kanaal or topic with the name {} already.", kanaal.naam);
        Problem::field("naam", "unique", reason)
    };
    if Kanaal::named(engine, tenant, &kanaal.naam).is_some() {
        return Err(taken());
    }
    check_documentation(engine, tenant, &service.options, &kanaal.documentatie_link).await?;
    match kanaal.create(engine, tenant).await {
        Err(Error::AlreadyExists(_)) => return Err(taken()),
        made => made?,
    }
    info!(channel_name = kanaal.naam, client_id = &*call.client.id, "channel_created");
    Ok(created(&kanaal.view(&call.base), &kanaal.url(&call.base)))
}

pub(super) async fn update_kanaal(mut call: Call, uuid: Uuid, patch: bool) -> Answer {
    let present = found_kanaal(&call.service, uuid).await?;
    let (_, document) = call.document(JSON).await?;
    let service = &call.service;
    let (engine, tenant) = (&service.engine, service.tenant);
    let kanaal = Kanaal::read(tenant, &document, Some(&present), patch)?;
    if kanaal.documentatie_link != present.documentatie_link {
        check_documentation(engine, tenant, &service.options, &kanaal.documentatie_link).await?;
    }
    let _changing = service.changing.lock().await;
    // What others changed meanwhile stays as they made it, where this request does not name it.
    let present = Kanaal::found(engine, tenant, uuid).ok_or_else(Problem::not_found)?;
    let kanaal = Kanaal::read(tenant, &document, Some(&present), patch)?;
    kanaal.put(engine, tenant).await?;
    info!(channel_name = kanaal.naam, client_id = &*call.client.id, "channel_updated");
    ok(&kanaal.view(&call.base))
}

// Abonnementen.

pub(super) fn list_abonnementen(call: &Call) -> Answer {
    call.query(&[])?;
    let engine = &call.service.engine;
    let views = engine.catalog().subscriptions(call.service.tenant);
    let all = views.iter().filter_map(|view| Abonnement::of(engine, view));
    ok(&all.map(|(uuid, _, abonnement)| abonnement.view(&call.base, uuid)).collect())
}

pub(super) async fn read_abonnement(call: Call, uuid: Uuid) -> Answer {
    let (_, _, abonnement) = found_abonnement(&call.service, uuid).await?;
    ok(&abonnement.view(&call.base, uuid))
}

/// An abonnement, whose it is, and its subscription.
async fn found_abonnement(
    service: &Service,
    uuid: Uuid,
) -> Result<(Arc<SubscriptionView>, String, Abonnement), Problem> {
    let find = || subscription_of(&service.engine, service.tenant, uuid);
    let view = known(service, find).await?.ok_or_else(Problem::not_found)?;
    let (_, client, abonnement) =
        Abonnement::of(&service.engine, &view).ok_or_else(Problem::not_found)?;
    Ok((view, client, abonnement))
}

fn subscription_of(engine: &Engine, tenant: TenantId, uuid: Uuid) -> Option<Arc<SubscriptionView>> {
    engine.catalog().subscription_named(tenant, &subscription_name(uuid))
}

/// The same, when the caller may change it: only who made it may.
async fn own_abonnement(
    service: &Service,
    caller: &Client,
    uuid: Uuid,
) -> Result<(Arc<SubscriptionView>, Abonnement), Problem> {
    let (view, client, abonnement) = found_abonnement(service, uuid).await?;
    if *client != *caller.id {
        return Err(Problem::forbidden(
            "permission_denied",
            "The abonnement was made by another client; only that one may change it.",
        ));
    }
    Ok((view, abonnement))
}

pub(super) async fn create_abonnement(mut call: Call) -> Answer {
    let (_, document) = call.document(JSON).await?;
    let service = &call.service;
    let (engine, tenant) = (&service.engine, service.tenant);
    let abonnement = Abonnement::read(&document, None, false)?;
    check(service, &call.client, &abonnement, None).await?;
    let uuid = Uuid::random(|| engine.dice());
    let ways = ways(&abonnement, None);
    let profile = &service.options.profile;
    let new = abonnement.subscription(tenant, profile, uuid, &call.client.id, &ways)?;
    engine.create_subscription(tenant, new).await?;
    info!(subscription = %uuid, subscription_callback = abonnement.callback_host(),
        client_id = &*call.client.id, "subscription_created");
    let url = format!("{}/abonnement/{uuid}", call.base);
    Ok(created(&abonnement.view(&call.base, uuid), &url))
}

pub(super) async fn update_abonnement(mut call: Call, uuid: Uuid, patch: bool) -> Answer {
    own_abonnement(&call.service, &call.client, uuid).await?;
    let (_, document) = call.document(JSON).await?;
    let service = &call.service;
    for _ in 0..TRIES {
        let (view, present) = own_abonnement(service, &call.client, uuid).await?;
        let abonnement = Abonnement::read(&document, Some(&present), patch)?;
        check(service, &call.client, &abonnement, Some(&view)).await?;
        match replace(service, &view, uuid, &call.client.id, &abonnement).await {
            Ok(()) => {
                info!(subscription = %uuid, subscription_callback = abonnement.callback_host(),
                    client_id = &*call.client.id, "subscription_updated");
                return ok(&abonnement.view(&call.base, uuid));
            }
            // Somebody else was faster; this request is for what is there now.
            Err(Error::Changed { .. }) => service.engine.refresh_catalog().await?,
            Err(other) => return Err(other.into()),
        }
    }
    Err(Problem::conflict())
}

pub(super) async fn delete_abonnement(call: Call, uuid: Uuid) -> Answer {
    let (view, _) = own_abonnement(&call.service, &call.client, uuid).await?;
    let service = &call.service;
    service.engine.delete_subscription(service.tenant, view.subscription.id).await?;
    info!(subscription = %uuid, client_id = &*call.client.id, "subscription_deleted");
    nothing()
}

/// How deliveries are authenticated: as the request says, or else as before.
fn ways(abonnement: &Abonnement, present: Option<&SubscriptionView>) -> Vec<Value> {
    match (&abonnement.auth, present) {
        (Some(auth), _) => auth.ways(),
        (None, Some(view)) => ways_of(&view.subscription.overrides),
        (None, None) => Vec::new(),
    }
}

/// Whether the client may use the certificate; then asks the callback, then looks at the kanalen.
async fn check(
    service: &Service,
    client: &Client,
    abonnement: &Abonnement,
    present: Option<&SubscriptionView>,
) -> Result<(), Problem> {
    let (engine, tenant) = (&service.engine, service.tenant);
    // What this node does not know may have been made on another a moment ago. One look is enough
    // for everything that the request names.
    if !abonnement.is_known(engine, tenant) {
        engine.refresh_catalog().await?;
    }
    abonnement.check_certificate(engine, tenant, &client.id)?;
    let ways = ways(abonnement, present);
    let callback = Callback {
        url: &abonnement.callback_url,
        ways: &ways,
        certificate: abonnement.certificate_way(),
        secrets: abonnement.auth.as_ref().map(|auth| auth.secrets()).unwrap_or_default(),
        like: present.map(|view| view.subscription.id),
    };
    callback.check(engine, tenant, &service.options).await?;
    abonnement.check_kanalen(engine, tenant)
}

/// Replaces the abonnement that `view` shows. What was read and merged must still be there: nothing
/// is made again that was deleted meanwhile.
async fn replace(
    service: &Service,
    view: &SubscriptionView,
    uuid: Uuid,
    client: &str,
    abonnement: &Abonnement,
) -> posthorn_engine::Result<()> {
    let (tenant, profile) = (service.tenant, &service.options.profile);
    let ways = ways(abonnement, Some(view));
    let new = abonnement.subscription(tenant, profile, uuid, client, &ways)?;
    let change = SubscriptionChange {
        labels: Some(new.labels),
        destination: Some(new.destination),
        filter: new.filter,
        profile: new.profile,
        overrides: Some(new.overrides),
        secrets: new.secrets,
        expected: Some(view.subscription.version),
        ..SubscriptionChange::default()
    };
    service.engine.update_subscription(tenant, view.subscription.id, change).await?;
    Ok(())
}

// Messages.

pub(super) async fn publish(mut call: Call) -> Answer {
    call.service.engine.admission().publish(call.service.tenant)?;
    let (body, document) = call.document(JSON).await?;
    let service = &call.service;
    let now = service.engine.now();
    let refuse = |faults| Ok(json(StatusCode::BAD_REQUEST, &bare(faults)));
    let limit = service.engine.payload_bytes();
    if body.len() > limit {
        return Err(Problem::too_large(limit));
    }
    let message = match Notificatie::read(&document, now, seconds(service.options.leeway)) {
        Ok(message) => message,
        Err(faults) => return refuse(&faults),
    };
    if message.kanaal == posthorn_domain::OPERATIONAL_TOPIC {
        let reserved = posthorn_domain::TopicName::operational();
        return Err(Error::TopicReserved(reserved).into());
    }
    let kanaal = named_kanaal(service, &message.kanaal).await?;
    if let Err(fault) = message.check(kanaal.as_ref()) {
        return refuse(&[fault]);
    }
    let Some(kanaal) = kanaal else { return refuse(&[unknown_kanaal(&message.kanaal)]) };
    let (engine, tenant) = (&service.engine, service.tenant);
    if message.source.is_none() && wants_cloudevent(engine, tenant, &message, &kanaal.topic)? {
        tracing::error!(
            channel_name = message.kanaal,
            resource = message.resource,
            action = message.actie,
            "no_notification_source"
        );
        return Err(Problem::field("source", "invalid", NO_SOURCE));
    }
    let id = Uuid::random(|| service.engine.dice());
    let event = message.publish(kanaal.topic, &body, id);
    match publish_one(service, event).await {
        Ok(published) => log_received(&message, &call, &published),
        // Deleted since we looked.
        Err(Error::UnknownTopic(_)) => return refuse(&[unknown_kanaal(&message.kanaal)]),
        Err(Error::PayloadTooLarge { size, limit }) => {
            return Err(Problem::too_large_as_cloudevent(size, limit));
        }
        Err(other) => return Err(other.into()),
    }
    if message.kanaal == authorizations::KANAAL {
        service.changes.note();
    }
    Ok(plain(StatusCode::CREATED, JSON, body))
}

/// What was looked at here is not looked at again.
async fn publish_one(service: &Service, event: Publish) -> posthorn_engine::Result<Published> {
    let mut answers = service.engine.publish_unchecked(service.tenant, vec![event]).await?;
    answers.pop().unwrap_or(Err(Error::Busy("it is stopping")))
}

fn log_received(message: &Notificatie, call: &Call, published: &Published) {
    info!(event = %published.id, deliveries = published.deliveries,
        channel_name = message.kanaal, resource = message.resource,
        resource_url = message.resource_url, main_object_url = message.hoofd_object,
        action = message.actie, client_id = &*call.client.id, "notification_received");
}

pub(super) async fn publish_cloudevent(mut call: Call) -> Answer {
    call.service.engine.admission().publish(call.service.tenant)?;
    let (body, document) = call.document(CLOUDEVENT).await?;
    let service = &call.service;
    let event = CloudEvent::read(&document)?;
    let filtered = filtered_names(&service.engine, service.tenant);
    let publish = event.publish(&body, &filtered)?;
    let echo = publish.payload.clone();
    // Somebody may have deleted the topic natively.
    super::ensure_cloudevents(&service.engine, service.tenant).await?;
    match publish_one(service, publish).await {
        Ok(published) => info!(event = %published.id, deliveries = published.deliveries,
            repeated = published.duplicate, client_id = &*call.client.id, "cloudevent_received"),
        Err(Error::KeyReused { .. }) => {
            let reason = "There was another CloudEvent with this id and source.";
            return Err(Problem::field(super::problem::NO_FIELD, "unique", reason));
        }
        Err(other) => return Err(other.into()),
    }
    Ok(plain(StatusCode::CREATED, CLOUDEVENT, echo))
}

/// Notifications to ourselves, of changed rights: those that were asked for are asked for anew.
pub(super) async fn receive(mut call: Call) -> Answer {
    let (_, document) = call.document(JSON).await?;
    let now = call.service.engine.now();
    if let Err(faults) = Notificatie::read(&document, now, seconds(call.service.options.leeway)) {
        return Err(Problem::invalid(faults));
    }
    call.service.changes.note();
    nothing()
}
