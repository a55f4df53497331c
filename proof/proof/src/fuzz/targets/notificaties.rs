//! Bodies of the Notificaties API: what is accepted can be used, and is what was written.

use posthorn_dialects::notificaties::fuzzing;
use posthorn_domain::policy::profiles;
use posthorn_domain::{Event, alternatives};
use serde_json::Value;

pub(super) const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "null",
    "true",
    "\"\"",
    "{}",
    "[]",
    "1e400",
    "\\u0000",
    "\\ud800",
    "\u{FEFF}",
    "\"kanaal\":",
    "\"source\":",
    "\"hoofdObject\":",
    "\"resource\":",
    "\"resourceUrl\":",
    "\"actie\":",
    "\"aanmaakdatum\":",
    "\"kenmerken\":",
    "\"#actie\":",
    "\"naam\":",
    "\"filters\":",
    "\"callbackUrl\":",
    "\"auth\":",
    "\"authType\":",
    "\"zgw\"",
    "\"oauth2_client_credentials\"",
    "\"authClientId\":",
    "\"oauth2TokenUrl\":",
    "\"kanalen\":",
    "\"sendCloudevents\":",
    "\"cloudeventFilters\":",
    "\"typeSubstring\":",
    "\"specversion\":",
    "\"1.0\"",
    "\"data\":",
    "\"dataref\":",
    "\"http://a/\"",
    "\"2019-01-01T12:00:00Z\"",
    "\"2019-01-01T12:00\"",
];

pub(super) fn check(input: &[u8]) -> bool {
    let accepted = [message(input), cloudevent(input), abonnement(input), kanaal(input)];
    accepted.contains(&true)
}

fn read(input: &[u8]) -> Value {
    serde_json::from_slice(input).expect("what is accepted is JSON")
}

fn message(input: &[u8]) -> bool {
    let Some(event) = fuzzing::message(input) else { return false };
    let written = read(input);
    Event::check_attributes(&event.attributes).expect("attributes that can be kept");
    for name in written["kenmerken"].as_object().into_iter().flat_map(|map| map.keys()) {
        assert!(event.attributes.contains_key(name), "{name} is lost");
    }
    let says_source = written["source"].as_str().is_some_and(|text| !text.trim().is_empty())
        || written["source"].is_number();
    if !says_source {
        assert_eq!(event.payload, input, "the body is kept as it is");
        return true;
    }
    assert_eq!(event.content_type, alternatives::MEDIA_TYPE);
    let form = |kind| alternatives::choose(&event.payload, kind).expect("forms").expect("one");
    let text = std::str::from_utf8(input).expect("JSON is text");
    assert_eq!(form(None).1, text.trim().as_bytes(), "the body is kept as it is");
    let cloudevent = read(&form(Some("application/cloudevents+json")).1);
    assert_eq!(cloudevent["specversion"], "1.0");
    for (name, value) in written["kenmerken"].as_object().into_iter().flatten() {
        if name != "hoofdObject" {
            assert_eq!(cloudevent["data"][name], *value);
        }
    }
    true
}

fn cloudevent(input: &[u8]) -> bool {
    let Some(event) = fuzzing::cloudevent(input) else { return false };
    let (written, kept) = (read(input), read(&event.payload));
    Event::check_attributes(&event.attributes).expect("attributes that can be kept");
    for name in ["id", "source", "specversion", "type", "subject", "time", "data"] {
        assert_eq!(written.get(name), kept.get(name), "{name}");
    }
    assert!(event.idempotency.is_some());
    true
}

fn abonnement(input: &[u8]) -> bool {
    let Some((filter, overrides, view)) = fuzzing::abonnement(input) else { return false };
    let written = read(input);
    filter.validate().expect("a filter that can be used");
    let count = |name: &str| written[name].as_array().map_or(0, Vec::len);
    assert_eq!(filter.any_of.len(), count("kanalen") + count("cloudeventFilters"));
    profiles::notificaties().patched(&overrides).expect("a policy that can be used");
    assert!(view.get("auth").is_none() && view.get("secret").is_none());
    true
}

fn kanaal(input: &[u8]) -> bool {
    let Some((view, topic)) = fuzzing::kanaal(input) else { return false };
    assert!(view["naam"].as_str().is_some_and(|naam| !naam.is_empty()));
    assert!(!topic.starts_with("posthorn:"), "nobody can take our own topics");
    true
}
