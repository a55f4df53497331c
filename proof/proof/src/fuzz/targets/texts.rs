//! Small texts: dates, durations, templates.

use std::borrow::Cow;

use posthorn_domain::policy::{parse_retry_after, profiles};
use posthorn_domain::{Lookup, Span, Template, Timestamp};

pub(super) const DATES: &[&str] = &[
    "Wed, 21 Oct 2026 07:28:00 GMT",
    "GMT",
    "Mon",
    "Jan",
    "Feb",
    "29 Feb 2027",
    "31 Dec 9999",
    "00:00:60",
    "24:00:00",
    "0001",
    "9999",
    "NaN",
    "inf",
    "9e18",
    " ",
    "+",
    "-",
    "\u{FF11}",
];
pub(super) const SPANS: &[&str] = &[
    "ms",
    "s",
    "m",
    "h",
    "d",
    "w",
    "1h30m",
    "0s",
    " ",
    "-",
    "+",
    ".",
    "e",
    "18446744073709551615",
];
pub(super) const TEMPLATES: &[&str] =
    &["{", "}", "{{", "}}", "{event.id}", "{a}", "{}", "{a b}", "{{{", "}}}", "{\u{e9}}"];

/// 2027-01-15, so that dates lie on both sides of it.
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

pub(super) fn retry_after(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let asked = parse_retry_after(text, NOW);
    let trimmed = text.trim_matches([' ', '\t']);
    let digits = !trimmed.is_empty() && trimmed.bytes().all(|byte| byte.is_ascii_digit());
    if digits && trimmed.len() <= 7 {
        let seconds = trimmed.bytes().fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0'));
        assert_eq!(asked, Some(Span::from_secs(seconds)), "{text:?}");
    } else if let Some(asked) = asked {
        assert!(trimmed.len() == 29 && trimmed.ends_with(" GMT"), "{text:?} was taken for a date");
        // Nothing beyond the year 9999.
        assert!(asked <= Span::from_secs(260_000_000_000), "{text:?} asks for {asked}");
    }
    // Whatever was asked, the wait is neither shorter than the schedule's nor longer than its cap.
    let schedule = profiles::default_profile().schedule;
    let next = |asked| schedule.next(1, NOW, NOW, asked, 3).expect("there is a second attempt");
    assert!(next(asked) >= next(None), "{text:?} shortens the wait");
    assert!(next(asked) <= next(None).max(NOW.plus(schedule.retry_after.cap)), "{text:?}");
    asked.is_some()
}

pub(super) fn span(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let Ok(span) = text.parse::<Span>() else { return false };
    let shown = span.to_string();
    assert_eq!(shown.parse::<Span>().ok(), Some(span), "{text:?} is shown as {shown:?}");
    let json = serde_json::to_string(&span).expect("a span is JSON");
    assert_eq!(serde_json::from_str::<Span>(&json).ok(), Some(span), "{json}");
    true
}

struct Values;

impl Lookup for Values {
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
        // As a stranger would want it: more braces.
        (name != "missing").then(|| Cow::Owned(format!("<{name}{{x}}>")))
    }
}

pub(super) fn template(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let parsed = text.parse::<Template>();
    assert_eq!(parsed.is_ok(), filled(text).is_some(), "{text:?}: {parsed:?}");
    let Ok(template) = parsed else { return false };
    let json = serde_json::to_string(&template).expect("a template is JSON");
    let again: Template = serde_json::from_str(&json).expect("its own JSON");
    assert_eq!(again, template);
    match template.render(&Values, str::to_owned) {
        // Values are put in once and never looked at again.
        Ok(rendered) => assert_eq!(Some(rendered), filled(text)),
        Err(_) => assert!(template.names().any(|name| name == "missing")),
    }
    true
}

/// The same, by hand; nothing when it is no template.
fn filled(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            out.push_str(brace);
            rest = after;
            continue;
        }
        if brace == "}" {
            return None;
        }
        let (name, after) = rest.split_once('}')?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let names: Vec<&str> = name.split('|').collect();
        if names.iter().any(|name| name.is_empty() || !name.bytes().all(plain)) {
            return None;
        }
        // Of several, the first that is known counts.
        let known = names.iter().find(|name| **name != "missing").unwrap_or(&names[0]);
        out.push_str(&format!("<{known}{{x}}>"));
        rest = after;
    }
    Some(out + rest)
}
