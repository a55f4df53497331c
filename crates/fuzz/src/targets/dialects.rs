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

/// The target of a callback: a text as it stands goes on to the end, anything else is what a reader
/// of forms makes of it.
pub(super) fn callback_target(input: &[u8]) -> bool {
    let Ok(query) = std::str::from_utf8(input) else { return false };
    let Ok(found) = target(query) else { return false };
    let pairs: Vec<(String, String)> =
        url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let as_form = pairs.iter().find(|(name, _)| name == "url").map(|(_, value)| value);
    if as_form == Some(&found) {
        return true;
    }
    // It stands in the query as it was read, up to its end, behind the parameter's name.
    assert!(query.ends_with(&format!("url={found}")), "{query:?}: {found:?}");
    let (scheme, _) = found.split_once("://").expect("only a URL stands as it is");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    assert!(!scheme.is_empty() && scheme.chars().all(plain), "{query:?}");
    true
}
