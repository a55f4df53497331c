//! Entrances for the fuzz targets to the readers of what clients write, each without a server around it.
//! Nothing of the product uses them, and they promise nothing.

use std::collections::BTreeSet;

use bytes::Bytes;
use posthorn_domain::{Filter, TenantId, Timestamp};
use posthorn_engine::Publish;
use serde_json::Value;

use super::abonnement::Abonnement;
use super::cloudevent::CloudEvent;
use super::kanaal::{Kanaal, topic_of};
use super::notificatie::Notificatie;
use super::problem::bare;
use super::uuid::Uuid;
use crate::document;

/// What a published message becomes.
pub fn message(body: &[u8]) -> Option<Publish> {
    let document = document::read(body).ok()?;
    let now = Timestamp::from_millis(1_700_000_000_000);
    match Notificatie::read(&document, now, 0) {
        Ok(message) => {
            let topic = topic_of(TenantId::DEFAULT, &message.kanaal);
            let id = Uuid::random(|| 7);
            Some(message.publish(topic, &Bytes::copy_from_slice(body), id))
        }
        Err(faults) => {
            assert!(bare(&faults).as_object().is_some_and(|map| !map.is_empty()));
            None
        }
    }
}

/// What a published CloudEvent becomes.
pub fn cloudevent(body: &[u8]) -> Option<Publish> {
    let document = document::read(body).ok()?;
    let event = CloudEvent::read(&document).ok()?;
    event.publish(&Bytes::copy_from_slice(body), &BTreeSet::new()).ok()
}

/// What an abonnement wants, what it changes in its policy, and how it is shown.
pub fn abonnement(body: &[u8]) -> Option<(Filter, Value, Value)> {
    let document = document::read(body).ok()?;
    let abonnement = Abonnement::read(&document, None, false).ok()?;
    let ways = abonnement.auth.as_ref().map(|auth| auth.ways()).unwrap_or_default();
    let view = abonnement.view("http://nrc", Uuid::random(|| 7));
    Some((abonnement.filter(TenantId::DEFAULT), abonnement.overrides(&ways), view))
}

/// How a kanaal is shown, and the topic it is.
pub fn kanaal(body: &[u8]) -> Option<(Value, String)> {
    let document = document::read(body).ok()?;
    let kanaal = Kanaal::read(TenantId::DEFAULT, &document, None, false).ok()?;
    Some((kanaal.view("http://nrc"), kanaal.topic.to_string()))
}
