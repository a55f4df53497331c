//! A published CloudEvent (experimental in the original): checks, and what becomes of it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use posthorn_domain::limits::{
    ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX, ATTRIBUTES_MAX,
};
use posthorn_domain::{Idempotency, IdempotencyKey, TopicName};
use posthorn_engine::Publish;
use posthorn_sealing::encoding::Encoding;
use posthorn_sealing::hash::fingerprint;
use serde_json::Value;
use serde_json::value::RawValue;

use super::fields::{Fields, Need, Text, snake};
use super::notificatie::{CLOUDEVENT, event_type};
use super::problem::Problem;

/// The topic of all CloudEvents that are published as such.
pub(crate) const TOPIC: &str = "posthorn:cloudevents";

/// What is kept of a CloudEvent; everything else is dropped, as the original does.
const MEMBERS: [&str; 9] = [
    "id",
    "source",
    "specversion",
    "type",
    "datacontenttype",
    "dataschema",
    "subject",
    "time",
    "data",
];

pub(crate) fn topic() -> TopicName {
    TopicName::new(TOPIC).expect("a valid name")
}

/// A CloudEvent, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CloudEvent {
    id: String,
    source: String,
    kind: String,
    data: Option<Value>,
}

impl CloudEvent {
    pub(crate) fn read(document: &Value) -> Result<Self, Problem> {
        let mut fields = Fields::of(document)?;
        let id = fields.text("id", Text::required(255));
        let source = fields.text("source", Text::required(255));
        if source.as_ref().is_some_and(|text| text.chars().any(char::is_whitespace)) {
            fields.fault("source", "invalid", "Must be a URI reference, without spaces.");
        }
        let version = fields.text("specversion", Text::required(10));
        if version.is_some_and(|text| !is_version(&text)) {
            fields.fault("specversion", "invalid", "Must be a version such as 1.0.");
        }
        let kind = fields.text("type", Text::required(255));
        fields.text("datacontenttype", Text::optional(255));
        let schema = fields.text("dataschema", Text::optional(1_000));
        if schema.is_some_and(|text| !text.is_empty() && url::Url::parse(&text).is_err()) {
            fields.fault("dataschema", "invalid", "Must be an absolute URI.");
        }
        fields.text("subject", Text::optional(255));
        let rule = Text { need: Need::Optional, max: 100, blank: false };
        let time = fields.text("time", rule);
        if time.is_some_and(|text| text.parse::<posthorn_domain::Timestamp>().is_err()) {
            let reason = "Use RFC 3339, such as 2019-01-01T12:00:00Z.";
            fields.fault("time", "invalid", reason);
        }
        fields.finish()?;
        let (Some(id), Some(source), Some(kind)) = (id, source, kind) else {
            return Err(Problem::malformed("The CloudEvent is not complete."));
        };
        Ok(Self { id, source, kind, data: document.get("data").cloned() })
    }

    /// The event. `filtered` are the names that subscriptions filter on: of data with more members
    /// than an event may have attributes, these come first.
    pub(crate) fn publish(
        &self,
        body: &Bytes,
        filtered: &BTreeSet<String>,
    ) -> Result<Publish, Problem> {
        let attributes = self.attributes(filtered)?;
        let payload = known_members(body);
        let names = fingerprint(&[self.source.as_bytes(), self.id.as_bytes()]);
        let key = format!("cloudevent:{}", Encoding::Hex.encode(&names));
        let key = IdempotencyKey::new(&key).expect("hexadecimal digits are printable");
        let contents = fingerprint(&[&payload]);
        Ok(Publish {
            topic: topic(),
            event_type: event_type(&self.kind),
            attributes,
            key: None,
            content_type: CLOUDEVENT.to_owned(),
            payload,
            idempotency: Some(Idempotency { key, fingerprint: contents }),
            publisher_id: IdempotencyKey::new(&self.id).ok(),
            deliver_at: None,
            retention: None,
            trace: None,
        })
    }

    /// The members of its data as attributes. Data that is not an object has none, and what a filter
    /// asks for that is not there does not count; so what one asks for and is there must be among them.
    fn attributes(&self, filtered: &BTreeSet<String>) -> Result<BTreeMap<String, String>, Problem> {
        let Some(Value::Object(members)) = &self.data else { return Ok(BTreeMap::new()) };
        let fits = |name: &&String| {
            !name.is_empty()
                && name.len() <= ATTRIBUTE_NAME_BYTES_MAX
                && !name.chars().any(char::is_control)
        };
        let mut names: Vec<&String> = members.keys().filter(fits).collect();
        names.sort_by_cached_key(|name| !filtered.contains(&snake(name)));
        if names.get(ATTRIBUTES_MAX).is_some_and(|name| filtered.contains(&snake(name))) {
            let reason = format!(
                "Abonnementen filter on more than {ATTRIBUTES_MAX} of its members; send fewer."
            );
            return Err(Problem::field("data", "max_length", reason));
        }
        names.truncate(ATTRIBUTES_MAX);
        Ok(names.into_iter().map(|name| (name.clone(), attribute(&members[name]))).collect())
    }
}

/// Texts as they are, everything else as its JSON. What is longer than any filter can be is cut.
fn attribute(value: &Value) -> String {
    let mut text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.len() > ATTRIBUTE_VALUE_BYTES_MAX {
        // Filters have at most 1,000 characters, so that what is cut here equals none of them.
        let end = text.floor_char_boundary(ATTRIBUTE_VALUE_BYTES_MAX - '…'.len_utf8());
        text.truncate(end);
        text.push('…');
    }
    text
}

fn is_version(text: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let mut parts = text.splitn(2, '.');
    parts.next().is_some_and(number)
        && parts.next().is_some_and(|rest| rest.bytes().next().is_some_and(|b| b.is_ascii_digit()))
}

/// The body without the members that are not kept, each as it was written.
fn known_members(body: &Bytes) -> Bytes {
    let Ok(members) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(body) else {
        return body.clone();
    };
    if members.keys().all(|name| MEMBERS.contains(&name.as_str())) {
        return body.clone();
    }
    let kept: Vec<String> = MEMBERS
        .iter()
        .filter_map(|name| Some(format!("\"{name}\":{}", members.get(*name)?.get())))
        .collect();
    Bytes::from(format!("{{{}}}", kept.join(",")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event() -> Value {
        json!({"id": "1", "source": "urn:oz", "specversion": "1.0", "type": "nl.overheid.x",
            "data": {"bron": "a", "n": 5}})
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "tables read better without borrows")]
    fn check(changes: Value, expected: &[(&str, &str)]) {
        let mut document = event();
        for (name, value) in changes.as_object().unwrap() {
            if value == "absent" {
                document.as_object_mut().unwrap().remove(name);
            } else {
                document[name] = value.clone();
            }
        }
        let found = CloudEvent::read(&document).err().and_then(|p| p.faults).unwrap_or_default();
        let found: Vec<(&str, &str)> = found.iter().map(|f| (f.name.as_str(), f.code)).collect();
        assert_eq!(found, expected, "{changes}");
    }

    #[test]
    fn cloudevents_are_checked_field_by_field() {
        check(json!({}), &[]);
        for name in ["id", "source", "specversion", "type"] {
            check(json!({name: "absent"}), &[(name, "required")]);
            check(json!({name: null}), &[(name, "null")]);
            check(json!({name: ""}), &[(name, "blank")]);
            check(json!({name: {}}), &[(name, "invalid")]);
        }
        for version in ["1", "x", "1.", ".1", "v1.0"] {
            check(json!({"specversion": version}), &[("specversion", "invalid")]);
        }
        for data in [json!(null), json!("<xml/>"), json!(5), json!([1]), json!({}), json!("absent")]
        {
            check(json!({"data": data}), &[]);
        }
        check(json!({"source": "a b"}), &[("source", "invalid")]);
        check(json!({"time": "now"}), &[("time", "invalid")]);
        check(json!({"time": "2024-05-06T12:00:00Z"}), &[]);
        check(json!({"dataschema": "x"}), &[("dataschema", "invalid")]);
        check(json!({"dataschema": ""}), &[]);
        check(json!({"id": "x".repeat(256)}), &[("id", "max_length")]);
    }

    fn published(document: &Value, filtered: &[&str]) -> Publish {
        let filtered = filtered.iter().map(|name| (*name).to_owned()).collect();
        let event = CloudEvent::read(document).expect("fine");
        event.publish(&Bytes::from(document.to_string()), &filtered).expect("not too many")
    }

    #[test]
    fn data_can_be_filtered_on_and_the_same_event_is_the_same() {
        let one = published(&event(), &[]);
        assert_eq!(one.attributes["bron"], "a");
        assert_eq!(one.attributes["n"], "5");
        let mut other = event();
        other["data"]["n"] = json!(6);
        let other = published(&other, &[]).idempotency.expect("a key");
        let key = one.idempotency.expect("a key");
        assert_eq!(key.key, other.key);
        assert_ne!(key.fingerprint, other.fingerprint);
        let mut third = event();
        third["source"] = json!("urn:other");
        assert_ne!(published(&third, &[]).idempotency.expect("a key").key, key.key);
    }

    #[test]
    fn of_too_many_members_those_that_are_filtered_on_are_kept() {
        let mut document = event();
        let many = (0..200).map(|n| (format!("k{n:03}"), json!("v".repeat(5_000))));
        document["data"] = Value::Object(many.collect());
        let event = published(&document, &["k199"]);
        assert_eq!(event.attributes.len(), ATTRIBUTES_MAX);
        assert!(event.attributes.contains_key("k199"));
        let names = |count: usize| (0..count).map(|n| format!("k{n:03}")).collect();
        let event = CloudEvent::read(&document).expect("fine");
        assert!(event.attributes(&names(ATTRIBUTES_MAX)).is_ok());
        let problem = event.attributes(&names(ATTRIBUTES_MAX + 1)).expect_err("one is left out");
        assert_eq!(problem.faults.expect("one")[0].name, "data");
        let event = published(&document, &["k199"]);
        assert!(posthorn_domain::Event::check_attributes(&event.attributes).is_ok());
    }

    #[test]
    fn unknown_members_are_dropped_and_known_ones_stay_as_they_were() {
        let kept = r#"{ "id":"1","source":"s","type":"t", "specversion":"1.0","data":{"a": 1.0}}"#;
        assert_eq!(known_members(&Bytes::from(kept)), kept);
        let more = r#"{"dataref":"x","id":"1","data":{"a": 1.0},"source":"s"}"#;
        assert_eq!(
            known_members(&Bytes::from(more)),
            r#"{"id":"1","source":"s","data":{"a": 1.0}}"#
        );
    }
}
