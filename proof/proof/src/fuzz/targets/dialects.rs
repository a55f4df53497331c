//! What callers of other systems' APIs write.

use posthorn_dialects::efgs::target;

pub(super) const WORDS: &[&str] = &[
    "url=",
    "url",
    "&",
    "https://",
    "https%3A%2F%2F",
    "://",
    "%3A",
    "%2F",
    "%",
    "+",
    "?",
    "host/",
    "=",
];

/// The target of a callback is what any reader of forms makes of the query.
pub(super) fn callback_target(input: &[u8]) -> bool {
    let Ok(query) = std::str::from_utf8(input) else { return false };
    let Ok(found) = target(query) else { return false };
    let pairs: Vec<(String, String)> =
        url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let as_form = pairs.iter().find(|(name, _)| name == "url").map(|(_, value)| value);
    assert_eq!(as_form, Some(&found), "{query:?}");
    true
}
