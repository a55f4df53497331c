//! Events that come into a kanaal by another way than this API: the native one, the command line, a
//! library. They are judged as messages of this API are, and become the same event.

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{Event, EventId, TenantId, TopicName, alternatives};
use posthorn_engine::{Engine, Error, Publish, PublishCheck};

use super::abonnement::filtered_names;
use super::authorizations::{self, Changes};
use super::cloudevent::{self, CloudEvent};
use super::kanaal::Kanaal;
use super::notificatie::{CLOUDEVENT, JSON, Notificatie, event_type};
use super::problem::{Fault, Problem};
use super::uuid::Uuid;
use crate::document;

/// What looks at every event of the tenant.
pub(super) fn check(tenant: TenantId, leeway: i64, changes: Changes) -> PublishCheck {
    Arc::new(move |engine: &Engine, publish: Publish| {
        judge(engine, tenant, leeway, &changes, publish)
    })
}

fn judge(
    engine: &Engine,
    tenant: TenantId,
    leeway: i64,
    changes: &Changes,
    publish: Publish,
) -> Result<Publish, Error> {
    if publish.topic == cloudevent::topic() {
        return as_cloudevent(engine, tenant, publish);
    }
    let topic = engine.catalog().topic(tenant, &publish.topic).ok();
    let Some(kanaal) = topic.as_deref().and_then(Kanaal::of) else { return Ok(publish) };
    let body = body_of(&publish, JSON)?;
    let document = document::read(&body).map_err(|e| refuse(&kanaal.naam, &e.to_string()))?;
    let said = |faults: &[Fault]| refuse(&kanaal.naam, &words(faults));
    let message =
        Notificatie::read(&document, engine.now(), leeway).map_err(|faults| said(&faults))?;
    if message.kanaal != kanaal.naam {
        let problem = format!("kanaal: it says `{}`, and is published in this one", message.kanaal);
        return Err(refuse(&kanaal.naam, &problem));
    }
    message.check(Some(&kanaal)).map_err(|fault| said(&[fault]))?;
    if message.source.is_none() && wants_cloudevent(engine, tenant, &message, &publish.topic)? {
        return Err(refuse(&kanaal.naam, &format!("source: {NO_SOURCE}")));
    }
    if kanaal.naam == authorizations::KANAAL {
        // It is not stored yet, but what it tells of has happened.
        changes.note();
    }
    let id = Uuid::random(|| engine.dice());
    let made = message.publish(publish.topic, &body, id);
    let Publish { key, idempotency, trace, .. } = publish;
    Ok(Publish { key, idempotency, trace, ..made })
}

fn as_cloudevent(engine: &Engine, tenant: TenantId, publish: Publish) -> Result<Publish, Error> {
    let body = body_of(&publish, CLOUDEVENT)?;
    let document = document::read(&body).map_err(|e| refuse(cloudevent::TOPIC, &e.to_string()))?;
    let said = |problem: &Problem| {
        refuse(cloudevent::TOPIC, &words(problem.faults.as_deref().unwrap_or_default()))
    };
    let event = CloudEvent::read(&document).map_err(|problem| said(&problem))?;
    let filtered = filtered_names(engine, tenant);
    let made = event.publish(&body, &filtered).map_err(|problem| said(&problem))?;
    let idempotency = publish.idempotency.or(made.idempotency);
    Ok(Publish { key: publish.key, idempotency, trace: publish.trace, ..made })
}

/// The message itself: events with a second form beside it have it first.
fn body_of(publish: &Publish, wanted: &'static str) -> Result<Bytes, Error> {
    let kind = publish.content_type.split(';').next().unwrap_or_default().trim();
    if kind == alternatives::MEDIA_TYPE {
        let chosen = alternatives::choose(&publish.payload, Some(wanted)).ok().flatten();
        let problem = || format!("has no form of type {wanted}");
        return chosen
            .map(|(_, body)| body)
            .ok_or_else(|| Error::Event { field: "payload", problem: problem() });
    }
    if [JSON, wanted].iter().any(|fits| kind.eq_ignore_ascii_case(fits)) {
        return Ok(publish.payload.clone());
    }
    let problem = format!("must be {wanted} in a kanaal of the Notificaties API");
    Err(Error::Event { field: "content_type", problem })
}

fn refuse(naam: &str, problem: &str) -> Error {
    let problem = format!(
        "the topic is the kanaal {naam} of the Notificaties API, and this is no message of it: {problem}"
    );
    Error::Event { field: "payload", problem }
}

fn words(faults: &[Fault]) -> String {
    let texts = faults.iter().map(|fault| format!("{}: {}", fault.name, fault.reason));
    texts.collect::<Vec<_>>().join(" ")
}

/// What is said of a message that somebody wants in a form it cannot have.
pub(super) const NO_SOURCE: &str = "The notification has no source, so it cannot be sent as a \
                                    CloudEvent, but an abonnement requires CloudEvents.";

/// Whether some abonnement would get the message as a CloudEvent if it were one.
pub(super) fn wants_cloudevent(
    engine: &Engine,
    tenant: TenantId,
    message: &Notificatie,
    topic: &TopicName,
) -> posthorn_engine::Result<bool> {
    let imagined = Event {
        id: EventId::from_bytes([0; 16]),
        tenant,
        topic: topic.clone(),
        event_type: event_type("notificatie"),
        attributes: message.attributes(),
        key: None,
        content_type: JSON.to_owned(),
        payload: Bytes::from_static(br#"{"source":"somebody"}"#),
        accepted_at: engine.now(),
        publisher_id: None,
        deliver_at: None,
        retention: None,
        expunged_at: None,
        trace: None,
    };
    let matching = engine.matches(&imagined)?;
    Ok(matching.iter().any(|view| {
        let policy = view.policy.as_ref().ok();
        policy.is_some_and(|policy| policy.request.alternative.as_deref() == Some(CLOUDEVENT))
    }))
}
