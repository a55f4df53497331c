//! Operational events in the words of the Svix API: what its clients' receivers expect. Ids are ours in the writing of that
//! API, so that they can be asked for there.

use bytes::Bytes;
use posthorn_domain::{
    DeliveryId, Event, EventId, JobId, OperationalType, SubscriptionId, TenantId, base62,
};
use serde_json::{Map, Value, json};

/// The body for an operational event. `None` for any other event, and for what that API does not tell.
pub(super) fn operational(event: &Event) -> Option<Bytes> {
    if !event.topic.is_reserved() {
        return None;
    }
    let is_it = |kind: &OperationalType| kind.as_str() == event.event_type.as_str();
    let kind = OperationalType::ALL.into_iter().find(is_it)?;
    let name = kind.svix_name()?;
    let told: Map<String, Value> = serde_json::from_slice(&event.payload).ok()?;
    let told = Told { event, told };
    let mut data = Map::new();
    match kind {
        OperationalType::JobFinished => told.task(&mut data)?,
        _ => {
            told.whose(&mut data)?;
            match kind {
                OperationalType::SubscriptionDisabled => {
                    data.insert("failSince".to_owned(), told.told.get("at")?.clone());
                }
                OperationalType::DeliveryFailing
                | OperationalType::DeliveryDead
                | OperationalType::DeliveryRecovered => told.attempt(&mut data)?,
                _ => {}
            }
        }
    }
    Some(Bytes::from(json!({"type": name, "data": data}).to_string()))
}

/// An operational event, and what it tells.
struct Told<'e> {
    event: &'e Event,
    told: Map<String, Value>,
}

impl Told<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.told.get(name)?.as_str()
    }

    fn tenant(&self) -> Option<TenantId> {
        self.text("tenant")?.parse().ok()
    }

    /// Which application and which endpoint it is about.
    fn whose(&self, data: &mut Map<String, Value>) -> Option<()> {
        let subscription: SubscriptionId = self.text("subscription")?.parse().ok()?;
        data.insert("appId".to_owned(), id("app_", self.tenant()?.as_bytes(), 0));
        if let Some(uid) = self.event.attributes.get("external_id") {
            data.insert("appUid".to_owned(), uid.as_str().into());
        }
        data.insert("endpointId".to_owned(), id("ep_", subscription.as_bytes(), 0));
        if let Some(uid) = self.text("subscription_name") {
            data.insert("endpointUid".to_owned(), uid.into());
        }
        Some(())
    }

    /// Which message it is about, and its last attempt.
    fn attempt(&self, data: &mut Map<String, Value>) -> Option<()> {
        let message: EventId = self.text("event")?.parse().ok()?;
        let delivery: DeliveryId = self.text("delivery")?.parse().ok()?;
        let number = u32::try_from(self.told.get("attempts")?.as_u64()?).ok()?;
        data.insert("msgId".to_owned(), id("msg_", message.as_bytes(), 0));
        if let Some(own) = self.text("publisher_id") {
            data.insert("msgEventId".to_owned(), own.into());
        }
        let last = json!({
            "id": id("atmpt_", delivery.as_bytes(), number),
            "msgId": id("msg_", message.as_bytes(), 0),
            "responseStatusCode": self.told.get("status").and_then(Value::as_u64).unwrap_or(0),
            "timestamp": self.told.get("at")?,
        });
        data.insert("lastAttempt".to_owned(), last);
        Some(())
    }

    /// A job that ended. A redrive is none of that API's tasks.
    fn task(&self, data: &mut Map<String, Value>) -> Option<()> {
        let job: JobId = self.text("job")?.parse().ok()?;
        let tenant = self.tenant()?;
        let status = if self.text("state") == Some("done") { "finished" } else { "failed" };
        // The number of a task's id has a little of whose it is, and 0 for a job.
        let [.., a, b, c, d] = *tenant.as_bytes();
        let number = u32::from_be_bytes([a, b, c, d]) << 1;
        let task = match (self.text("kind")?, self.text("status")) {
            ("replay", Some("failed")) => "endpoint.recover",
            ("replay", Some("missed")) => "endpoint.replay",
            ("replay" | "retry", _) => "endpoint.bulk-replay",
            ("expunge", _) => "application.purge_content",
            _ => return None,
        };
        data.insert("taskId".to_owned(), id("qtask_", job.as_bytes(), number));
        data.insert("status".to_owned(), status.into());
        data.insert("task".to_owned(), task.into());
        let of = json!({
            "seen": self.told.get("seen"), "done": self.told.get("done"),
            "appId": id("app_", tenant.as_bytes(), 0),
        });
        data.insert("data".to_owned(), of);
        Some(())
    }
}

fn id(prefix: &str, bytes: &[u8; 16], number: u32) -> Value {
    format!("{prefix}{}", base62::to_text(bytes, number)).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use posthorn_domain::{EventType, Timestamp, TopicName};

    use super::*;

    fn event(kind: &str, payload: &Value) -> Event {
        let at = Timestamp::from_millis(1_790_000_000_000);
        Event {
            id: EventId::new(at, 1),
            tenant: TenantId::SYSTEM,
            topic: TopicName::operational(),
            event_type: EventType::new(kind).expect("a type"),
            attributes: BTreeMap::from([("external_id".to_owned(), "acme".to_owned())]),
            key: None,
            content_type: "application/json".to_owned(),
            payload: Bytes::from(payload.to_string()),
            accepted_at: at,
            publisher_id: None,
            deliver_at: None,
            retention: None,
            expunged_at: None,
            trace: None,
        }
    }

    fn said(kind: &str, payload: &Value) -> Option<Value> {
        let body = operational(&event(kind, payload))?;
        Some(serde_json::from_slice(&body).expect("JSON"))
    }

    #[test]
    fn a_dead_letter_is_an_attempt_that_was_the_last() {
        let at = Timestamp::from_millis(1_790_000_000_000);
        let (tenant, delivery) = (TenantId::new(at, 7), DeliveryId::new(at, 8));
        let (own, message) = (SubscriptionId::new(at, 9), EventId::new(at, 10));
        let told = json!({
            "type": "delivery.dead", "at": at.to_string(), "tenant": tenant.to_string(),
            "delivery": delivery.to_string(), "event": message.to_string(),
            "subscription": own.to_string(), "subscription_name": "main", "attempts": 8,
            "status": 503, "publisher_id": "order-7", "failure": null, "reason": "exhausted",
        });
        let said = said("delivery.dead", &told).expect("a body");
        assert_eq!(said["type"], "message.attempt.exhausted");
        let data = &said["data"];
        assert_eq!(data["appId"], id("app_", tenant.as_bytes(), 0));
        assert_eq!((&data["appUid"], &data["endpointUid"]), (&json!("acme"), &json!("main")));
        assert_eq!(data["msgEventId"], "order-7");
        assert_eq!(data["lastAttempt"]["id"], id("atmpt_", delivery.as_bytes(), 8));
        assert_eq!(data["lastAttempt"]["responseStatusCode"], 503);
    }

    #[test]
    fn a_replay_of_what_failed_is_a_recovery() {
        let at = Timestamp::from_millis(1_790_000_000_000);
        let (tenant, job) = (TenantId::new(at, 7), JobId::new(at, 8));
        let mut told = json!({
            "type": "job.finished", "at": at.to_string(), "tenant": tenant.to_string(),
            "job": job.to_string(), "kind": "replay", "status": "failed", "state": "done",
            "seen": 5, "done": 3,
        });
        let body = said("job.finished", &told).expect("a body");
        assert_eq!(body["type"], "background_task.finished");
        assert_eq!(body["data"]["task"], "endpoint.recover");
        assert_eq!(body["data"]["status"], "finished");
        told["kind"] = json!("cancel");
        assert_eq!(said("job.finished", &told), None);
    }

    #[test]
    fn what_that_api_does_not_tell_has_no_body() {
        let told = json!({"type": "node.lost", "at": "2026-01-01T00:00:00Z", "tenant": null});
        assert_eq!(said("node.lost", &told), None);
        assert_eq!(said("subscription.created", &json!({"type": "subscription.created"})), None);
    }
}
