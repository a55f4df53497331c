//! Preparation of events that arrive as JSON rather than as values: what is missing is filled in, and every
//! byte of the rest stays as it is.

use std::fmt;

use bytes::Bytes;
use posthorn_domain::Clock;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{EventTime, family, fresh_event_id};

/// How a time that was never set looks on the wire.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// The payload with `eventId`, `eventType`, `eventTimestamp` and, for payments and refunds, `paidAt` or
/// `refundedAt`, where these are absent, null, empty or the zero time. `None` when nothing is missing, or
/// when it is no JSON object at all: then it is nobody's event, and is sent as it is.
pub fn prepare_json(payload: &[u8], event_type: &str, clock: &dyn Clock) -> Option<Bytes> {
    let Members(mut members) = serde_json::from_slice(payload).ok()?;
    let now = EventTime::from(clock.now());
    let paid = match family(event_type) {
        "payment" => Some("paidAt"),
        "refund" => Some("refundedAt"),
        _ => None,
    };
    let mut wanted = vec![("eventId", None), ("eventType", None), ("eventTimestamp", Some(now))];
    wanted.extend(paid.map(|name| (name, Some(now))));
    let mut changed = false;
    let mut fresh: Vec<(String, Box<RawValue>)> = Vec::new();
    for (name, time) in wanted {
        let place = members.iter().position(|(known, _)| known == name);
        if place.is_some_and(|place| !is_empty(&members[place].1, time.is_some())) {
            continue;
        }
        let text = match (name, time) {
            (_, Some(time)) => time.to_string(),
            ("eventId", _) => fresh_event_id(clock),
            _ => event_type.to_owned(),
        };
        let value = serde_json::value::to_raw_value(&text).ok()?;
        changed = true;
        match place {
            Some(place) => members[place].1 = value,
            None => fresh.push((name.to_owned(), value)),
        }
    }
    changed.then(|| write(fresh.iter().chain(&members)))
}

/// Whether a value stands for nothing.
fn is_empty(value: &RawValue, time: bool) -> bool {
    let text = value.get();
    text == "null" || text == "\"\"" || (time && text.trim_matches('"') == ZERO_TIME)
}

fn write<'a>(members: impl Iterator<Item = &'a (String, Box<RawValue>)>) -> Bytes {
    let mut out = String::from("{");
    for (place, (name, value)) in members.enumerate() {
        if place > 0 {
            out.push(',');
        }
        out.push_str(&serde_json::Value::from(name.as_str()).to_string());
        out.push(':');
        out.push_str(value.get());
    }
    out.push('}');
    out.into()
}

/// The members of an object in their order, each value as it was written: numbers keep their digits.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use posthorn_testkit::clock::StillClock;
    use serde_json::{Value, json};

    use super::*;

    fn fixed() -> Arc<StillClock> {
        StillClock::at(1_700_000_000_123)
    }

    fn prepared(payload: &str, event_type: &str) -> Option<String> {
        let bytes = prepare_json(payload.as_bytes(), event_type, &*fixed())?;
        Some(String::from_utf8(bytes.to_vec()).expect("text"))
    }

    #[test]
    fn what_is_missing_is_filled_in_and_the_rest_keeps_its_bytes() {
        let said = r#"{"resource" : "article-42","amount":12345678901234567890123, "x":1.50}"#;
        let text = prepared(said, "payment.succeeded").expect("changed");
        let rest = r#""resource":"article-42","amount":12345678901234567890123,"x":1.50}"#;
        assert!(text.ends_with(rest), "{text}");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        let id = json["eventId"].as_str().expect("an id");
        assert!(id.starts_with("evt_") && id.len() == 28, "{id}");
        assert_eq!(json["eventType"], "payment.succeeded");
        let now = "2023-11-14T22:13:20.123Z";
        assert_eq!((&json["eventTimestamp"], &json["paidAt"]), (&json!(now), &json!(now)));
        assert_eq!(json["refundedAt"], Value::Null);
        assert_eq!(prepared(&text, "payment.succeeded"), None, "preparing twice changes nothing");
    }

    #[test]
    fn nothing_that_is_there_is_touched() {
        let said =
            json!({"eventId": "evt_1", "eventType": "x", "eventTimestamp": "t", "paidAt": "p"});
        assert_eq!(prepared(&said.to_string(), "payment.succeeded"), None);
        for other in ["", "[]", "7", "\"text\"", "null", "{\"a\":", "\u{1}"] {
            assert_eq!(prepared(other, "payment.succeeded"), None, "{other}");
        }
        let empty = r#"{"eventId":"","eventType":null,"eventTimestamp":"0001-01-01T00:00:00Z"}"#;
        let text = prepared(empty, "refund.succeeded").expect("changed");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        assert!(json["eventId"].as_str().is_some_and(|id| id.starts_with("evt_")), "{text}");
        assert_eq!(json["eventType"], "refund.succeeded");
        assert!(json["refundedAt"].is_string() && json["paidAt"].is_null(), "{text}");
        assert!(json["eventTimestamp"].as_str().is_some_and(|t| t.starts_with("2023")), "{text}");
        let other = prepared("{}", "subscription.renewed").expect("changed");
        assert!(!other.contains("paidAt") && !other.contains("refundedAt"), "{other}");
        assert!(other.contains("eventTimestamp"), "{other}");
    }
}
