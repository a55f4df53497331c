//! A published message: what it must be like, and what becomes of it in the engine.

use std::collections::BTreeMap;

use bytes::Bytes;
use posthorn_domain::limits::{ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTES_MAX};
use posthorn_domain::{EventType, Timestamp, TopicName, alternatives};
use posthorn_engine::Publish;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::fields::{ACTIE, Fields, MapRule, RESOURCE, Text, consistent};
use super::kanaal::Kanaal;
use super::problem::Fault;
use super::uuid::Uuid;

pub(crate) const JSON: &str = "application/json";
pub(crate) const CLOUDEVENT: &str = posthorn_domain::cloudevent::MEDIA_TYPE;

/// How far ahead a time without an offset may be: it may be local time.
const LOCAL_TIME_SECONDS: i64 = 2 * 3_600;

/// A message, read and checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Notificatie {
    pub(crate) kanaal: String,
    pub(crate) source: Option<String>,
    pub(crate) hoofd_object: String,
    pub(crate) resource: String,
    pub(crate) resource_url: String,
    pub(crate) actie: String,
    pub(crate) aanmaakdatum: Timestamp,
    pub(crate) kenmerken: BTreeMap<String, String>,
}

impl Notificatie {
    /// Reads a message. `leeway` is by how many seconds it may come from the future.
    pub(crate) fn read(document: &Value, now: Timestamp, leeway: i64) -> Result<Self, Vec<Fault>> {
        let mut fields = Fields::of(document).map_err(|p| p.faults.unwrap_or_default())?;
        let kanaal = fields.text("kanaal", Text::required(50));
        let source = fields.text("source", Text::optional(100)).filter(|text| !text.is_empty());
        let hoofd_object = fields.url("hoofdObject", Text::required(usize::MAX));
        let resource = fields.text("resource", Text::required(100));
        let resource_url = fields.url("resourceUrl", Text::required(usize::MAX));
        let actie = fields.text("actie", Text::required(100));
        let aanmaakdatum = read_time(&mut fields, now, leeway);
        let rule = MapRule {
            // Two places are taken by what every message can be filtered on.
            items_max: ATTRIBUTES_MAX - 2,
            key_bytes_max: ATTRIBUTE_NAME_BYTES_MAX,
            value_max: 1_000,
            blank: true,
        };
        let kenmerken = fields.map("kenmerken", rule).unwrap_or_default();
        let faults = fields.faults();
        match (kanaal, hoofd_object, resource, resource_url, actie, aanmaakdatum) {
            (
                Some(kanaal),
                Some(hoofd_object),
                Some(resource),
                Some(resource_url),
                Some(actie),
                Some(aanmaakdatum),
            ) if faults.is_empty() => Ok(Self {
                kanaal,
                source,
                hoofd_object,
                resource,
                resource_url,
                actie,
                aanmaakdatum,
                kenmerken,
            }),
            _ => Err(faults),
        }
    }

    /// Checks it against the kanaal it names.
    pub(crate) fn check(&self, kanaal: Option<&Kanaal>) -> Result<(), Fault> {
        let Some(kanaal) = kanaal else { return Err(unknown_kanaal(&self.kanaal)) };
        if consistent(&kanaal.filters, self.kenmerken.keys()) {
            return Ok(());
        }
        Err(Fault::new(
            "kenmerken",
            "kenmerken_inconsistent",
            format!(
                "The kenmerken are not consistent with the filters of kanaal {}: {}.",
                kanaal.naam,
                kanaal.filters.join(", ")
            ),
        ))
    }

    /// What filters look at.
    pub(crate) fn attributes(&self) -> BTreeMap<String, String> {
        let mut all = self.kenmerken.clone();
        all.insert(RESOURCE.to_owned(), self.resource.clone());
        all.insert(ACTIE.to_owned(), self.actie.clone());
        all
    }

    /// The type of the same as a CloudEvent.
    fn cloudevent_type(&self) -> String {
        format!("nl.overheid.{}.{}.{}", self.kanaal, self.resource, self.actie)
    }

    /// The event. The body is kept as it came; beside it, where the message says who it comes from,
    /// stands the same as a CloudEvent, for those subscribers who want that.
    pub(crate) fn publish(&self, topic: TopicName, body: &Bytes, id: Uuid) -> Publish {
        let (content_type, payload) = match self.with_cloudevent(body, id) {
            Some(payload) => (alternatives::MEDIA_TYPE, payload),
            None => (JSON, body.clone()),
        };
        Publish {
            topic,
            event_type: event_type(&self.cloudevent_type()),
            attributes: self.attributes(),
            key: None,
            content_type: content_type.to_owned(),
            payload,
            idempotency: None,
            publisher_id: None,
            deliver_at: None,
            retention: None,
            trace: None,
        }
    }

    fn with_cloudevent(&self, body: &Bytes, id: Uuid) -> Option<Bytes> {
        let text = std::str::from_utf8(body).ok()?.trim();
        let cloudevent = self.cloudevent(text, id)?;
        alternatives::encode(&[(JSON, text), (CLOUDEVENT, &cloudevent)]).ok()
    }

    /// The message as a CloudEvent; `None` when it does not say who it comes from.
    fn cloudevent(&self, body: &str, id: Uuid) -> Option<String> {
        #[derive(Serialize)]
        struct Envelope<'a> {
            id: String,
            source: &'a str,
            specversion: &'static str,
            r#type: String,
            datacontenttype: &'static str,
            subject: &'a str,
            time: String,
            data: Map<String, Value>,
        }
        #[derive(serde::Deserialize)]
        struct Message<'a> {
            #[serde(borrow, default)]
            kenmerken: Option<&'a RawValue>,
        }
        let message: Message<'_> = serde_json::from_str(body).ok()?;
        let mut data: Map<String, Value> = match message.kenmerken {
            Some(kenmerken) => serde_json::from_str(kenmerken.get()).ok()?,
            None => Map::new(),
        };
        data.insert("hoofdObject".to_owned(), self.hoofd_object.clone().into());
        let envelope = Envelope {
            id: id.to_string(),
            source: self.source.as_deref()?,
            specversion: "1.0",
            r#type: self.cloudevent_type(),
            datacontenttype: JSON,
            subject: last_segment(&self.resource_url),
            time: whole_seconds(self.aanmaakdatum),
            data,
        };
        serde_json::to_string(&envelope).ok()
    }
}

pub(crate) fn unknown_kanaal(naam: &str) -> Fault {
    Fault::new("kanaal", "message_kanaal", format!("There is no kanaal with the name {naam}."))
}

fn last_segment(url: &str) -> &str {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

fn whole_seconds(at: Timestamp) -> String {
    match jiff::Timestamp::from_second(at.as_seconds()) {
        Ok(at) => at.to_string(),
        Err(_) => at.to_string(),
    }
}

/// An event's type is a name without spaces; what a name may not have becomes `_`. The exact type is
/// in the message.
pub(crate) fn event_type(text: &str) -> EventType {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '/');
    let clean: String =
        text.chars().take(EventType::MAX).map(|c| if fits(c) { c } else { '_' }).collect();
    EventType::new(&clean).unwrap_or_else(|_| EventType::new("notificatie").expect("a valid type"))
}

fn read_time(fields: &mut Fields<'_>, now: Timestamp, leeway: i64) -> Option<Timestamp> {
    let text = fields.text("aanmaakdatum", Text::required(100))?;
    let (at, ahead) = match parse_time(&text) {
        Some(parsed) => parsed,
        None => {
            let reason = "Use ISO 8601 with date, time and offset, such as 2019-01-01T12:00:00Z.";
            fields.fault("aanmaakdatum", "invalid", reason);
            return None;
        }
    };
    let limit =
        now.as_millis().saturating_add((leeway.saturating_add(ahead)).saturating_mul(1_000));
    if at.as_millis() > limit {
        let reason = "The date and time lie in the future; look at the clock of the publisher.";
        fields.fault("aanmaakdatum", "future_not_allowed", reason);
        return None;
    }
    Some(at)
}

/// A time, and by how many seconds it may really be earlier.
fn parse_time(text: &str) -> Option<(Timestamp, i64)> {
    // A calendar day alone is not a time.
    if !text.contains(['T', 't', ' ']) {
        return None;
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some((at, 0));
    }
    // Without an offset it is taken for UTC, and may be local time.
    let local: jiff::civil::DateTime = text.parse().ok()?;
    let at = local.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    Some((Timestamp::from_millis(at.as_millisecond()), LOCAL_TIME_SECONDS))
}

#[cfg(test)]
mod tests {
    use posthorn_domain::TenantId;
    use serde_json::json;

    use super::*;

    const NOW: &str = "2024-05-06T12:00:00Z";

    fn message() -> Value {
        json!({"kanaal": "zaken", "source": "oz", "hoofdObject": "http://openzaak:8000/zaken/1",
            "resource": "status", "resourceUrl": "http://openzaak:8000/statussen/2/",
            "actie": "create", "aanmaakdatum": "2024-05-06T11:59:59.123Z",
            "kenmerken": {"bron": "082096752011", "leeg": ""}})
    }

    fn read(document: &Value) -> Result<Notificatie, Vec<Fault>> {
        Notificatie::read(document, NOW.parse().unwrap(), 0)
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "tables read better without borrows")]
    fn check(changes: Value, expected: &[(&str, &str)]) {
        let mut document = message();
        for (name, value) in changes.as_object().unwrap() {
            if value == "absent" {
                document.as_object_mut().unwrap().remove(name);
            } else {
                document[name] = value.clone();
            }
        }
        let found = read(&document).err().unwrap_or_default();
        let found: Vec<(&str, &str)> = found.iter().map(|f| (f.name.as_str(), f.code)).collect();
        assert_eq!(found, expected, "{changes}");
    }

    #[test]
    fn messages_are_checked_field_by_field() {
        check(json!({}), &[]);
        check(json!({"source": "absent"}), &[]);
        check(json!({"source": ""}), &[]);
        check(json!({"kenmerken": "absent"}), &[]);
        check(json!({"kenmerken": {}}), &[]);
        check(json!({"extra": {"a": 1}}), &[]);
        check(json!({"kenmerken": {"n": 5}}), &[]);
        for name in ["kanaal", "hoofdObject", "resource", "resourceUrl", "actie", "aanmaakdatum"] {
            check(json!({name: "absent"}), &[(name, "required")]);
            check(json!({name: null}), &[(name, "null")]);
            check(json!({name: ""}), &[(name, "blank")]);
            check(json!({name: []}), &[(name, "invalid")]);
            check(json!({name: true}), &[(name, "invalid")]);
        }
        for (name, max) in [("kanaal", 50), ("resource", 100), ("actie", 100), ("source", 100)] {
            check(json!({name: "é".repeat(max)}), &[]);
            check(json!({name: "é".repeat(max + 1)}), &[(name, "max_length")]);
        }
        check(json!({"hoofdObject": "zaken/1"}), &[("hoofdObject", "invalid")]);
        check(json!({"resourceUrl": "ftp://a/b"}), &[("resourceUrl", "invalid")]);
        check(json!({"kenmerken": []}), &[("kenmerken", "not_a_dict")]);
        check(json!({"kenmerken": {"a": null}}), &[("kenmerken.a", "null")]);
        check(json!({"kenmerken": {"a": {}}}), &[("kenmerken.a", "invalid")]);
        check(json!({"kenmerken": {"a": "x".repeat(1_000)}}), &[]);
        check(json!({"kenmerken": {"a": "x".repeat(1_001)}}), &[("kenmerken.a", "max_length")]);
        check(json!({"kenmerken": {"x".repeat(101): "v"}}), &[("kenmerken", "invalid")]);
        let many: Map<String, Value> = (0..63).map(|n| (n.to_string(), json!("v"))).collect();
        check(json!({"kenmerken": many}), &[("kenmerken", "max_length")]);
        assert!(read(&json!([])).is_err() && read(&json!("x")).is_err());
    }

    #[test]
    fn times_may_not_lie_in_the_future() {
        let at = |text: &str| check(json!({"aanmaakdatum": text}), &[]);
        let bad =
            |text: &str, code| check(json!({"aanmaakdatum": text}), &[("aanmaakdatum", code)]);
        at("2024-05-06T12:00:00Z");
        at("2024-05-06T14:00:00+02:00");
        at("2024-05-06T11:00:00.123456789Z");
        at("2018-01-01T17:00:00Z");
        // Local time without an offset.
        at("2024-05-06T14:00:00");
        bad("2024-05-06T14:00:01", "future_not_allowed");
        bad("2024-05-06T12:00:00.001Z", "future_not_allowed");
        bad("2024-05-06T12:00:01Z", "future_not_allowed");
        for text in ["yesterday", "2024-05-06", "12:00:00", "2024-13-01T00:00:00Z"] {
            bad(text, "invalid");
        }
        check(json!({"aanmaakdatum": 1_700_000_000}), &[("aanmaakdatum", "invalid")]);
        let mut document = message();
        document["aanmaakdatum"] = "2024-05-06T12:00:05Z".into();
        assert!(Notificatie::read(&document, NOW.parse().unwrap(), 4).is_err());
        assert!(Notificatie::read(&document, NOW.parse().unwrap(), 5).is_ok());
    }

    #[test]
    fn kenmerken_must_fit_the_kanaal() {
        let kanaal = |filters: &[&str]| {
            let filters = filters.iter().map(|f| (*f).to_owned()).collect();
            Kanaal::new(TenantId::DEFAULT, "zaken", "", filters)
        };
        let message = read(&message()).expect("fine");
        let code = |kanaal: Option<&Kanaal>| message.check(kanaal).err().map(|fault| fault.code);
        assert_eq!(code(None), Some("message_kanaal"));
        assert_eq!(code(Some(&kanaal(&[]))), None);
        assert_eq!(code(Some(&kanaal(&["bron"]))), None);
        assert_eq!(code(Some(&kanaal(&["bron", "leeg", "meer"]))), None);
        assert_eq!(code(Some(&kanaal(&["bron", "meer"]))), Some("kenmerken_inconsistent"));
    }

    #[test]
    fn a_message_that_says_its_source_has_a_second_form() {
        let text = format!(" {} ", serde_json::to_string_pretty(&message()).unwrap());
        let body = Bytes::from(text.clone());
        let id: Uuid = "b3ff6ad5-7a2c-4a4c-9a5a-6a1b6b6cbb6c".parse().unwrap();
        let topic = TopicName::new("zaken").unwrap();
        let event = read(&message()).expect("fine").publish(topic.clone(), &body, id);
        assert_eq!(event.content_type, alternatives::MEDIA_TYPE);
        let form =
            |kind: &str| alternatives::choose(&event.payload, Some(kind)).unwrap().unwrap().1;
        assert_eq!(form(JSON), text.trim().as_bytes());
        let cloudevent: Value = serde_json::from_slice(&form(CLOUDEVENT)).unwrap();
        let expected = json!({"id": "b3ff6ad5-7a2c-4a4c-9a5a-6a1b6b6cbb6c", "source": "oz",
            "specversion": "1.0", "type": "nl.overheid.zaken.status.create",
            "datacontenttype": "application/json", "subject": "2",
            "time": "2024-05-06T11:59:59Z",
            "data": {"bron": "082096752011", "leeg": "",
                "hoofdObject": "http://openzaak:8000/zaken/1"}});
        assert_eq!(cloudevent, expected);
        assert_eq!(event.event_type.as_str(), "nl.overheid.zaken.status.create");
        assert_eq!(event.attributes["#actie"], "create");

        let mut document = message();
        document.as_object_mut().unwrap().remove("source");
        let body = Bytes::from(document.to_string());
        let event = read(&document).expect("fine").publish(topic, &body, id);
        assert_eq!((event.content_type.as_str(), event.payload), (JSON, body));
    }

    #[test]
    fn types_of_events_are_names_whatever_the_message_says() {
        assert_eq!(event_type("nl.overheid.a b.é.x").as_str(), "nl.overheid.a_b._.x");
        assert_eq!(event_type(&"x".repeat(400)).as_str().len(), EventType::MAX);
        assert_eq!(event_type("").as_str(), "notificatie");
    }
}
