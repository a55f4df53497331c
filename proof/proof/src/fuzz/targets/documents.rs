//! Filters and policies as JSON: what is accepted comes back as it was, and can be used.

use std::borrow::Cow;
use std::sync::LazyLock;

use bytes::Bytes;
use posthorn_domain::filter::Candidate;
use posthorn_domain::limits::HEADER_VALUE_BYTES_MAX;
use posthorn_domain::policy::{Policy, profiles};
use posthorn_domain::{
    Event, EventId, EventType, Filter, Lookup, Template, TenantId, Timestamp, TopicName,
};
use serde_json::{Value, json};

use super::first_line;

pub(super) const HEADERS: &[&str] = &[
    "X-A",
    "Host",
    "host?",
    "Content-Length",
    "Transfer-Encoding",
    "X-Forwarded-For",
    "Metadata",
    "webhook-id",
    "?",
    ":",
    " ",
    "\\r",
    "\\n",
    "\r",
    "\0",
    "\t",
    "\u{85}",
    "\u{e9}",
    "{event.id}",
    "{{",
];

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
    "\"any_of\"",
    "\"topics\"",
    "\"types\"",
    "\"attributes\"",
    "\"payload\"",
    "\"*\"",
    "\"kind\"",
    "\"a\"",
    "[\"a\",\"b\"]",
    "\"**\"",
    "\"a*b*c\"",
    "\"all\"",
    "\"any\"",
    "\"not\"",
    "\"pointer\"",
    "\"/a/0\"",
    "\"~01\"",
    "\"schedule\"",
    "\"backoff\"",
    "\"fixed\"",
    "\"list\"",
    "\"exponential\"",
    "\"waits\"",
    "\"max_attempts\"",
    "\"jitter\"",
    "\"ratio\"",
    "\"add\"",
    "\"limits\"",
    "\"concurrency\"",
    "\"rate\"",
    "\"1s\"",
    "\"0s\"",
    "\"30d\"",
    "\"success\"",
    "\"2xx\"",
    "\"300-399\"",
    "\"auth\"",
    "\"order\"",
    "\"scope\"",
    "\"key\"",
    "\"gate\"",
    "\"values\"",
    "\"from\"",
    "\"after\"",
    "{values.a}",
    "\"families\"",
    "\"off\"",
    "\"/a\"",
    "\"log\"",
    "\"fields\"",
    "1e308",
    "-1",
    "0.1",
    "1e-9",
];

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

static EVENT: LazyLock<Event> = LazyLock::new(|| Event {
    id: EventId::new(NOW, 7),
    tenant: TenantId::DEFAULT,
    topic: TopicName::new("orders").expect("a topic"),
    event_type: EventType::new("order.created").expect("a type"),
    attributes: [("kind".to_owned(), "a".to_owned())].into(),
    key: None,
    content_type: "application/json".to_owned(),
    payload: Bytes::from_static(br#"{"a":[1,"x",null,{"b":1.5}],"n":9007199254740993}"#),
    accepted_at: NOW,
    publisher_id: None,
    deliver_at: None,
    retention: None,
    expunged_at: None,
    trace: None,
});

/// A filter on the first line's word `filter`, a patch of the default policy otherwise.
pub(super) fn document(input: &[u8]) -> bool {
    let (kind, text) = first_line(input);
    let Ok(value) = serde_json::from_slice::<Value>(text) else { return false };
    if kind == b"filter" { filter(value) } else { policy(&value) }
}

fn filter(value: Value) -> bool {
    let Ok(filter) = serde_json::from_value::<Filter>(value) else { return false };
    if filter.validate().is_err() {
        return false;
    }
    let json = serde_json::to_value(&filter).expect("a filter is JSON");
    let again: Filter = serde_json::from_value(json.clone()).expect("its own JSON");
    assert_eq!(again, filter, "{json}");
    again.validate().expect("it was valid before");
    let candidate = Candidate::new(&EVENT);
    let why_not = filter.explain(&candidate);
    assert_eq!(filter.wants(&candidate), why_not.is_none(), "{json}: {why_not:?}");
    assert_eq!(filter.wants(&candidate), again.wants(&candidate));
    if let Some(wanted) = wanted(&json) {
        assert_eq!(filter.wants(&candidate), wanted, "{json}: {why_not:?}");
    }
    true
}

/// Whether a filter wants the event, read from its JSON once more; nothing is said where that depends on
/// a payload.
fn wanted(filter: &Value) -> Option<bool> {
    let ignored = filter["missing_attribute"] == "ignore";
    let either_style = filter["attribute_names"] == "camel_or_snake";
    let one_of = |list: &Value, fits: &dyn Fn(&str) -> bool| {
        list.as_array().is_none_or(|list| list.iter().filter_map(Value::as_str).any(fits))
    };
    let mut unknown = false;
    for group in filter["any_of"].as_array().into_iter().flatten() {
        let attributes = group["attributes"].as_object().into_iter().flatten();
        let fits = attributes.into_iter().all(|(name, values)| {
            let is_kind = name == "kind" || (either_style && name == "Kind");
            let is_a = |value: &Value| value == "a" || value == "*";
            match values {
                _ if !is_kind => ignored,
                Value::Array(values) => values.iter().any(is_a),
                value => is_a(value),
            }
        });
        if fits
            && one_of(&group["topics"], &|topic| topic == EVENT.topic.as_str())
            && one_of(&group["types"], &|glob| fits_glob(glob, EVENT.event_type.as_str()))
        {
            match group["payload"].is_null() {
                true => return Some(true),
                false => unknown = true,
            }
        }
    }
    (!unknown).then_some(false)
}

/// Whether a text fits a pattern, tried out in every way: a row of the places in the text that the pattern
/// may have come to.
fn fits_glob(glob: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for sign in glob.chars() {
        let mut next = vec![false; text.len() + 1];
        for at in 0..=text.len() {
            next[at] = match sign {
                '*' => reached[at] || (at > 0 && next[at - 1]),
                sign => at > 0 && reached[at - 1] && text[at - 1] == sign,
            };
        }
        reached = next;
    }
    reached[text.len()]
}

/// An event that has a long answer to everything.
struct Everything;

impl Lookup for Everything {
    fn lookup(&self, _: &str) -> Option<Cow<'_, str>> {
        Some(Cow::Owned("acme.".repeat(250)))
    }
}

fn policy(patch: &Value) -> bool {
    let Ok(policy) = profiles::default_profile().patched(patch) else { return false };
    policy.validate().expect("what was patched is valid");
    let json = serde_json::to_value(&policy).expect("a policy is JSON");
    let again: Policy = serde_json::from_value(json.clone()).expect("its own JSON");
    assert_eq!(again, policy, "{json}");
    assert_eq!(policy.patched(&json!({})).as_ref(), Ok(&policy));
    // As a whole it is a patch that leads to itself.
    assert_eq!(profiles::default_profile().patched(&json).as_ref(), Ok(&policy), "{json}");
    // Values end somewhere, whatever they use, and are no longer than a header.
    let values = policy.with_values(&Everything);
    for name in policy.values.keys() {
        let value = values.lookup(&format!("values.{name}"));
        assert!(value.is_none_or(|value| value.len() <= HEADER_VALUE_BYTES_MAX), "{name}: {json}");
    }
    // Its schedule goes forward and ends.
    let mut now = NOW;
    let mut attempts = 0;
    while attempts < 2_000 {
        attempts += 1;
        let Some(next) = policy.schedule.next(attempts, NOW, now, None, u64::from(attempts) * 977)
        else {
            break;
        };
        assert!(next >= now, "an attempt before the last one: {json}");
        now = next.plus(posthorn_domain::Span::from_secs(1));
    }
    let bounded = policy.schedule.max_attempts.is_some_and(|max| attempts <= max);
    assert!(bounded || policy.schedule.max_age.is_some(), "{attempts} attempts: {json}");
    true
}

/// Headers that belong to the connection, to us, or open a metadata service, written down once more.
const RESERVED: [&str; 18] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "content-encoding",
    "accept-encoding",
    "proxy-authorization",
    "via",
    "forwarded",
    "metadata",
    "metadata-flavor",
    "x-aws-ec2-metadata-token",
    "webhook-signature",
];

/// The name, and the value.
pub(super) fn header(input: &[u8]) -> bool {
    let (name, value) = first_line(input);
    let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else {
        return false;
    };
    let patch = json!({"request": {"headers": {name: value}}});
    let Ok(policy) = profiles::default_profile().patched(&patch) else { return false };
    assert!(policy.request.headers.contains_key(name));
    let bare = name.strip_suffix('?').unwrap_or(name).to_ascii_lowercase();
    assert!(http::HeaderName::from_bytes(bare.as_bytes()).is_ok(), "{name:?} cannot be sent");
    assert!(!RESERVED.contains(&bare.as_str()), "{name:?} is reserved");
    assert!(!bare.starts_with("x-forwarded-"), "{name:?} is reserved");
    let template: Template = value.parse().expect("the policy has parsed it");
    if template.names().next().is_none() {
        let text = template.render(&Nothing, str::to_owned).expect("it names nothing");
        assert!(text.len() <= HEADER_VALUE_BYTES_MAX);
        assert!(http::HeaderValue::from_str(&text).is_ok(), "{text:?} cannot be sent");
    }
    true
}

struct Nothing;

impl Lookup for Nothing {
    fn lookup(&self, _: &str) -> Option<Cow<'_, str>> {
        None
    }
}
